//! A bucket as a client sees it, over a network: requests fail, their answers are lost, they land late or twice, the
//! client dies, and other clients act in between.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{MutexGuard, Weak};
use std::{fmt, io};

use super::play::Play;
use super::truth::{Truth, Verdict};
use crate::devices::objects::{Expected, Head, ListedObject, Memory, ObjectError, Objects, Page, Piece, Tag};
use crate::devices::published::{MANIFEST, Surroundings};
use crate::error::Result as StoreResult;
use crate::locks::lock;
use crate::random::Random;

/// A request that changes something.
#[derive(Debug, Clone)]
pub(super) enum Request {
    Put(String, Vec<u8>),
    Replace(String, Vec<u8>, Expected),
    Delete(String),
}

/// The world of a scenario; drawn once.
#[derive(Debug, Clone)]
pub(super) struct Weather {
    /// Requests that fail in some way, per 1,000.
    pub(super) faults: u64,
    /// Moments between requests in which another client acts, per 1,000.
    pub(super) interludes: u64,
    /// Moments between requests in which a late request lands, per 1,000.
    pub(super) landings: u64,
    /// The bucket does not support conditional writes.
    pub(super) overwrites: bool,
    /// Listings lag.
    pub(super) lags: bool,
    /// Turns of a writer that copy it, per 100.
    pub(super) twins: u64,
    /// Most times that a request is sent.
    pub(super) attempts: u32,
    pub(super) page_objects: usize,
}

/// The bucket, the requests in transit, and its history.
#[derive(Debug)]
pub(super) struct Network {
    pub(super) random: Random,
    pub(super) weather: Weather,
    pub(super) bucket: Memory,
    pub(super) truth: Truth,
    /// With the numbers of the clients that sent them.
    late: Vec<(usize, Request)>,
    /// What listings return, if they lag.
    lagging: Vec<ListedObject>,
    /// Number of faults and interludes so far.
    pub(super) disturbances: u64,
    /// Events, with their counts.
    pub(super) seen: BTreeMap<&'static str, u64>,
    /// The first violated law.
    pub(super) broken: Option<String>,
    /// A log of events, on request.
    pub(super) trace: Option<Vec<String>>,
}

impl Network {
    pub(super) fn new(seed: u64, is_traced: bool) -> Network {
        let mut random = Random::new(seed);
        let weather = Weather {
            faults: *random.pick(&[0, 20, 60, 150, 400]),
            interludes: *random.pick(&[0, 20, 60, 200]),
            landings: *random.pick(&[20, 100, 300]),
            overwrites: random.happens(1, 3),
            lags: random.happens(1, 3),
            twins: *random.pick(&[0, 5, 30]),
            attempts: *random.pick(&[1, 2, 3, 5]),
            page_objects: *random.pick(&[1, 2, 5, 1000]),
        };
        let bucket = Memory::with_pages_of(weather.page_objects);
        let trace = is_traced.then(|| vec![format!("{weather:?}")]);
        Network {
            random,
            weather,
            bucket,
            truth: Truth::default(),
            late: Vec::new(),
            lagging: Vec::new(),
            disturbances: 0,
            seen: BTreeMap::new(),
            broken: None,
            trace,
        }
    }

    pub(super) fn say(&mut self, words: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(words());
        }
    }

    /// Counts an event.
    pub(super) fn note(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }

    pub(super) fn judge(&mut self, verdict: Verdict) {
        if let Err(broken) = verdict {
            self.say(|| format!("BROKEN: {broken}"));
            self.broken.get_or_insert(broken);
        }
    }

    /// Executes a request on arrival.
    fn land(&mut self, client: usize, request: &Request) -> Result<Option<Tag>, ObjectError> {
        let (bucket, overwrites) = (&self.bucket, self.weather.overwrites);
        let answer = match request {
            Request::Put(name, bytes) => {
                if overwrites {
                    _ = bucket.delete(name);
                }
                bucket.put(name, bytes).map(Some)
            }
            Request::Replace(name, bytes, expected) => bucket.replace(name, bytes, expected).map(Some),
            Request::Delete(name) => bucket.delete(name).map(|()| None),
        };
        let verdict = match request {
            Request::Replace(..) if answer.is_ok() => self.truth.observe(bucket, client),
            Request::Put(..) if !overwrites => Ok(()),
            Request::Put(name, _) | Request::Delete(name) if self.truth.names(name) => self.truth.whole(bucket),
            _ => Ok(()),
        };
        self.judge(verdict);
        answer
    }

    /// Executes one of the late requests, if there is one.
    pub(super) fn land_late(&mut self) -> bool {
        if self.late.is_empty() {
            return false;
        }
        let at = self.random.index(self.late.len());
        let (client, request) = self.late.swap_remove(at);
        self.disturbances += 1;
        let answer = self.land(client, &request).is_ok();
        if let (true, Request::Replace(..)) = (answer, &request) {
            self.note("a manifest landed late");
        }
        self.say(|| format!("    late: {} (effect: {answer})", brief(&request)));
        true
    }

    /// Some late requests never arrive.
    pub(super) fn lose_some(&mut self) {
        let random = &mut self.random;
        self.late.retain(|_| random.happens(1, 2));
    }

    /// Listings return the current state.
    pub(super) fn catch_up(&mut self) {
        let (mut listed, mut after): (Vec<ListedObject>, Option<String>) = (Vec::new(), None);
        while let Ok(page) = self.bucket.list("", after.as_deref()) {
            listed.extend(page.objects);
            if page.is_last {
                break;
            }
            after = listed.last().map(|last| last.name.clone());
        }
        self.lagging = listed;
    }

    fn list(&self, prefix: &str, after: Option<&str>) -> Result<Page, ObjectError> {
        if !self.weather.lags {
            return self.bucket.list(prefix, after);
        }
        let found = |listed: &&ListedObject| {
            listed.name.starts_with(prefix) && after.is_none_or(|after| listed.name.as_str() > after)
        };
        let mut found = self.lagging.iter().filter(found).cloned();
        let objects = found.by_ref().take(self.weather.page_objects).collect();
        Ok(Page { objects, is_last: found.next().is_none() })
    }
}

fn brief(request: &Request) -> String {
    match request {
        Request::Put(name, _) => format!("put {name}"),
        Request::Replace(name, _, expected) => format!("replace {name} {expected:?}"),
        Request::Delete(name) => format!("delete {name}"),
    }
}

/// A process's connection to the bucket, its random numbers and its patience.
pub(super) struct Client {
    play: Weak<Play>,
    pub(super) number: usize,
    /// No request gets through any more, and nobody receives its answers.
    pub(super) is_dead: AtomicBool,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "client {}", self.number)
    }
}

/// What happens to a request.
#[derive(Debug, Clone, Copy)]
enum RequestFault {
    None,
    /// It does not arrive, and the client knows that.
    Fails,
    /// It arrives, and the answer is lost.
    AnswerLost,
    /// It does not arrive, and the client does not know that.
    Lost,
    /// It arrives at some later time.
    Late,
    /// A proxy sends it twice, and returns the second answer.
    Resent,
    /// It is answered, and arrives again at some later time.
    Repeated,
    /// The client dies; the request arrived.
    Dies,
    /// The client dies before that.
    DiesBefore,
    /// The client dies, and the request arrives at some later time.
    DiesLate,
}

const FAULTS: [RequestFault; 12] = [
    RequestFault::Fails,
    RequestFault::Fails,
    RequestFault::AnswerLost,
    RequestFault::AnswerLost,
    RequestFault::Lost,
    RequestFault::Late,
    RequestFault::Late,
    RequestFault::Resent,
    RequestFault::Repeated,
    RequestFault::Dies,
    RequestFault::DiesBefore,
    RequestFault::DiesLate,
];

fn lost() -> ObjectError {
    ObjectError::Unknown(io::ErrorKind::TimedOut.into())
}

fn failed() -> ObjectError {
    ObjectError::Failed(io::ErrorKind::ConnectionRefused.into())
}

impl Client {
    pub(super) fn new(play: Weak<Play>, number: usize) -> Client {
        Client { play, number, is_dead: AtomicBool::new(false) }
    }

    fn with<T>(&self, of: impl FnOnce(&mut Network) -> T) -> T {
        let play = self.play.upgrade().expect("a client does not outlive the play");
        of(&mut play.network())
    }

    pub(super) fn is_dead(&self) -> bool {
        self.is_dead.load(Ordering::Relaxed)
    }

    /// Everything that may happen between two requests.
    fn between(&self) {
        let play = self.play.upgrade().expect("a client does not outlive the play");
        let acts = {
            let mut network = play.network();
            let (landings, interludes) = (network.weather.landings, network.weather.interludes);
            if network.random.happens(landings, 1000) {
                network.land_late();
            }
            if network.weather.lags && network.random.happens(1, 4) {
                network.catch_up();
            }
            network.random.happens(interludes, 1000)
        };
        if acts {
            play.interlude();
        }
    }

    fn damaged_in_transit(&self, (mut piece, is_damaged): (Option<Piece>, bool)) -> Option<Piece> {
        if let Some(piece) = piece.as_mut().filter(|piece| is_damaged && !piece.bytes.is_empty()) {
            let at = self.with(|network| network.random.index(piece.bytes.len()));
            piece.bytes[at] ^= 0x10;
        }
        piece
    }

    fn draw(&self) -> RequestFault {
        self.with(|network| {
            let faults = network.weather.faults;
            match network.random.happens(faults, 1000) {
                true => {
                    network.disturbances += 1;
                    *network.random.pick(&FAULTS)
                }
                false => RequestFault::None,
            }
        })
    }

    fn send(&self, request: Request) -> Result<Option<Tag>, ObjectError> {
        if self.is_dead() {
            return Err(failed());
        }
        self.between();
        let fault = self.draw();
        let answer = self.with(|network| {
            network.say(|| format!("    {self:?}: {} {fault:?}", brief(&request)));
            let answer = match fault {
                RequestFault::None => network.land(self.number, &request),
                RequestFault::Fails => Err(failed()),
                RequestFault::AnswerLost | RequestFault::Dies => {
                    _ = network.land(self.number, &request);
                    Err(lost())
                }
                RequestFault::Lost | RequestFault::DiesBefore => Err(lost()),
                RequestFault::Late | RequestFault::DiesLate => {
                    network.late.push((self.number, request));
                    Err(lost())
                }
                RequestFault::Resent => {
                    _ = network.land(self.number, &request);
                    network.land(self.number, &request)
                }
                RequestFault::Repeated => {
                    network.late.push((self.number, request.clone()));
                    network.land(self.number, &request)
                }
            };
            network.say(|| format!("      {answer:?}"));
            answer
        });
        if let RequestFault::Dies | RequestFault::DiesBefore | RequestFault::DiesLate = fault {
            self.is_dead.store(true, Ordering::Relaxed);
        }
        self.between();
        answer
    }

    fn ask<T>(
        &self,
        what: &str,
        name: &str,
        of: impl FnOnce(&Network) -> Result<T, ObjectError>,
    ) -> Result<(T, bool), ObjectError> {
        if self.is_dead() {
            return Err(failed());
        }
        self.between();
        let fault = self.draw();
        let answer = self.with(|network| {
            network.say(|| format!("    {self:?}: {what} {name} {fault:?}"));
            match fault {
                RequestFault::None => of(network).map(|answer| (answer, false)),
                // Damaged in transit.
                RequestFault::Resent | RequestFault::Repeated => of(network).map(|answer| (answer, true)),
                _ => Err(lost()),
            }
        });
        if let RequestFault::Dies | RequestFault::DiesBefore | RequestFault::DiesLate = fault {
            self.is_dead.store(true, Ordering::Relaxed);
        }
        self.between();
        answer
    }
}

impl Objects for Client {
    fn place(&self) -> PathBuf {
        PathBuf::from("bucket")
    }

    fn put(&self, name: &str, bytes: &[u8]) -> Result<Tag, ObjectError> {
        self.send(Request::Put(name.to_owned(), bytes.to_vec())).map(|tag| tag.expect("what is put has a tag"))
    }

    fn replace(&self, name: &str, bytes: &[u8], expected: &Expected) -> Result<Tag, ObjectError> {
        let request = Request::Replace(name.to_owned(), bytes.to_vec(), expected.clone());
        self.send(request).map(|tag| tag.expect("what is put has a tag"))
    }

    fn read(&self, name: &str, range: Range<u64>) -> Result<Piece, ObjectError> {
        let (piece, is_damaged) = self.ask("read", name, |network| network.bucket.read(name, range))?;
        Ok(self.damaged_in_transit((Some(piece), is_damaged)).expect("it was read"))
    }

    fn read_if_changed(&self, name: &str, range: Range<u64>, tag: &Tag) -> Result<Option<Piece>, ObjectError> {
        let asked = self.ask("read if changed", name, |network| network.bucket.read_if_changed(name, range, tag))?;
        Ok(self.damaged_in_transit(asked))
    }

    fn head(&self, name: &str) -> Result<Head, ObjectError> {
        self.ask("head", name, |network| network.bucket.head(name)).map(|(head, _)| head)
    }

    fn list(&self, prefix: &str, after: Option<&str>) -> Result<Page, ObjectError> {
        self.ask("list", after.unwrap_or(prefix), |network| network.list(prefix, after)).map(|(page, _)| page)
    }

    fn delete(&self, name: &str) -> Result<(), ObjectError> {
        debug_assert_ne!(name, MANIFEST);
        self.send(Request::Delete(name.to_owned())).map(drop)
    }
}

impl Surroundings for Client {
    fn random(&self) -> StoreResult<u64> {
        Ok(self.with(|network| network.random.any()))
    }

    fn now_nanoseconds(&self) -> i64 {
        0
    }

    fn wait(&self, attempts: u32) -> bool {
        attempts < self.with(|network| network.weather.attempts)
    }
}

impl Play {
    /// The network; nobody locks it while another client acts.
    pub(super) fn network(&self) -> MutexGuard<'_, Network> {
        lock(&self.network)
    }
}
