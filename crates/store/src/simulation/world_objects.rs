//! A bucket in a world: it crashes with nobody, and the network to it does.
//!
//! Each request that changes something is one operation, with an atomic effect. One that is made to fail is refused,
//! has its effect unseen, has none, or has it before some later request, as its error says. A request that was on its
//! way when its process died may have any of these fates, and so may those that were late before.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, MutexGuard};

use rustix::io::Errno;

use super::world::{DeviceOperation, World, WorldState};
use crate::devices::objects::{Expected, Head, ListedObject, ObjectError, Objects, Page, Piece, Tag};
use crate::devices::published::{Process, Surroundings};
use crate::error::Result as StoreResult;
use crate::random::Random;

/// It fails, and has no effect.
pub(crate) const FAILS: Errno = Errno::CONNREFUSED;
/// It has its effect, and its answer is lost.
pub(crate) const ANSWER_LOST: Errno = Errno::CONNRESET;
/// It has none, and its answer is lost.
pub(crate) const LOST: Errno = Errno::TIMEDOUT;
/// Its answer is lost, and it has its effect before a later request, or never.
pub(crate) const LATE: Errno = Errno::INPROGRESS;
/// The disk that operations count for; nothing is on it.
const DISK: usize = 0;
/// Most times that a request is sent.
const ATTEMPTS: u32 = 3;

/// A request that changes something.
#[derive(Debug, Clone)]
enum Request {
    Replace(String, Arc<Vec<u8>>, Expected),
    Delete(String),
}

/// The objects, and the requests on their way.
#[derive(Debug, Clone, Default)]
pub(super) struct Shelf {
    objects: BTreeMap<String, (Arc<Vec<u8>>, u64)>,
    tags: u64,
    sent: Option<Request>,
    late: Vec<Request>,
}

fn tag(number: u64) -> Tag {
    Tag(number.to_string())
}

impl Shelf {
    fn head(&self, name: &str) -> Result<Head, ObjectError> {
        let (bytes, number) = self.objects.get(name).ok_or(ObjectError::NotFound)?;
        Ok(Head { size_bytes: bytes.len() as u64, tag: tag(*number) })
    }

    /// A request arrives.
    fn land(&mut self, request: Request) -> Result<Option<Tag>, ObjectError> {
        match request {
            Request::Replace(name, bytes, expected) => {
                let found = self.objects.get(&name).map(|(_, number)| tag(*number));
                let is_expected = match expected {
                    Expected::Absent => found.is_none(),
                    Expected::Tagged(expected) => found == Some(expected),
                };
                if !is_expected {
                    return Err(ObjectError::Refused);
                }
                self.tags += 1;
                self.objects.insert(name, (bytes, self.tags));
                Ok(Some(tag(self.tags)))
            }
            Request::Delete(name) => self.objects.remove(&name).map(|_| None).ok_or(ObjectError::NotFound),
        }
    }

    fn land_late(&mut self, random: &mut Random) {
        if !self.late.is_empty() && random.happens(1, 4) {
            let request = self.late.swap_remove(random.index(self.late.len()));
            _ = self.land(request);
        }
    }

    /// What another process finds when the one that sent requests has died.
    pub(super) fn remains(&mut self, random: &mut Random) {
        let sent = self.sent.take();
        for request in std::mem::take(&mut self.late).into_iter().chain(sent) {
            match random.below(3) {
                0 => _ = self.land(request),
                1 => self.late.push(request),
                _ => {}
            }
        }
    }
}

impl World {
    /// Its bucket.
    pub(crate) fn bucket(&self) -> Arc<WorldObjects> {
        Arc::new(WorldObjects { world: self.clone() })
    }

    /// Whether requests are late.
    pub(crate) fn awaits_requests(&self) -> bool {
        !self.state().shelf.late.is_empty()
    }

    /// A new process, without patience after a while; all others are dead.
    pub(crate) fn process(&self) -> Arc<dyn Surroundings> {
        Arc::new(WorldProcess { world: self.clone(), number: self.draw() })
    }
}

/// The bucket of a world, as a store sees it.
#[derive(Debug)]
pub(crate) struct WorldObjects {
    world: World,
}

impl WorldObjects {
    fn send(&self, operation: DeviceOperation, request: &Request) -> Result<Option<Tag>, ObjectError> {
        self.world.state().shelf.sent = Some(request.clone());
        let begun = self.world.begin(operation, DISK);
        let (mut state, failure) = begun.map_err(ObjectError::Failed)?;
        let WorldState { shelf, random, .. } = &mut *state;
        shelf.sent = None;
        shelf.land_late(random);
        let Some(failure) = failure else { return shelf.land(request.clone()) };
        match failure {
            ANSWER_LOST => _ = shelf.land(request.clone()),
            LATE => shelf.late.push(request.clone()),
            _ => {}
        }
        let error = io::Error::from(failure);
        Err(if failure == FAILS { ObjectError::Failed(error) } else { ObjectError::Unknown(error) })
    }

    fn ask(&self) -> Result<MutexGuard<'_, WorldState>, ObjectError> {
        let (mut state, failure) = self.world.begin(DeviceOperation::Read, DISK).map_err(ObjectError::Failed)?;
        let WorldState { shelf, random, .. } = &mut *state;
        shelf.land_late(random);
        failure.map_or(Ok(state), |failure| Err(ObjectError::Unknown(failure.into())))
    }
}

impl Objects for WorldObjects {
    fn place(&self) -> PathBuf {
        PathBuf::from("bucket")
    }

    fn replace(&self, name: &str, bytes: &[u8], expected: &Expected) -> Result<Tag, ObjectError> {
        let request = Request::Replace(name.to_owned(), Arc::new(bytes.to_vec()), expected.clone());
        self.send(DeviceOperation::Write, &request).map(|tag| tag.expect("what is put has a tag"))
    }

    fn read(&self, name: &str, range: Range<u64>) -> Result<Piece, ObjectError> {
        let state = self.ask()?;
        let head = state.shelf.head(name)?;
        let (begin, end) = (range.start.min(head.size_bytes), range.end.min(head.size_bytes));
        let bytes = state.shelf.objects[name].0[begin as usize..end as usize].to_vec();
        Ok(Piece { bytes, head })
    }

    fn head(&self, name: &str) -> Result<Head, ObjectError> {
        self.ask()?.shelf.head(name)
    }

    fn list(&self, prefix: &str, after: Option<&str>) -> Result<Page, ObjectError> {
        let state = self.ask()?;
        let is_meant = |name: &str| name.starts_with(prefix) && after.is_none_or(|after| name > after);
        let objects = state.shelf.objects.iter().filter(|(name, _)| is_meant(name));
        let listed = |(name, (bytes, _)): (&String, &(Arc<Vec<u8>>, u64))| ListedObject {
            name: name.clone(),
            size_bytes: bytes.len() as u64,
        };
        Ok(Page { objects: objects.map(listed).collect(), is_last: true })
    }

    fn delete(&self, name: &str) -> Result<(), ObjectError> {
        self.send(DeviceOperation::Remove, &Request::Delete(name.to_owned())).map(drop)
    }
}

/// A process of a world.
#[derive(Debug)]
struct WorldProcess {
    world: World,
    number: u64,
}

impl Surroundings for WorldProcess {
    fn random(&self) -> StoreResult<u64> {
        Ok(self.world.draw())
    }

    fn now_nanoseconds(&self) -> i64 {
        self.world.tick()
    }

    fn wait(&self, attempts: u32) -> bool {
        attempts < ATTEMPTS
    }

    fn process(&self) -> Process {
        Process { began: self.number, ..Process::default() }
    }

    fn has_ended(&self, process: &Process) -> bool {
        *process != self.process()
    }

    fn keep_calling(&self, _: std::time::Duration, _: Box<dyn FnMut() -> bool + Send>) {}
}
