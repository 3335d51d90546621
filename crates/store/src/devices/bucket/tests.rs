//! A volume against a map of files: what it has, what its readers see, and what is left of it when requests fail.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use proptest::prelude::*;
use tempfile::TempDir;

use super::BucketOptions;
use super::platform::BucketPlatform;
use super::volume::Volume;
use crate::devices::device::{Device, DeviceFile, Mode};
use crate::devices::objects::{Expected, Head, Memory, ObjectError, Objects, Page, Piece, Tag};
use crate::devices::platform::{Hold, Lock, Platform};
use crate::devices::published::{MANIFEST, Surroundings};
use crate::simulation::machines::survivor;

const HOME: &str = "memory://home";
/// Of each kind; the last one is temporary.
const NAMES: [&str; 6] = ["superblock", "segments/1", "segments/2", "extents/1", "index/journal", "index/manifest.tmp"];
const DIRECTORIES: [&str; 3] = ["segments", "extents", "index"];

fn options() -> BucketOptions {
    let mut options = BucketOptions::default();
    (options.object_bytes, options.poll, options.grace) = (2000, Duration::ZERO, Some(Duration::ZERO));
    options
}

/// A process that takes every other one for dead, without patience.
pub(crate) fn machine() -> Arc<dyn Surroundings> {
    survivor()
}

fn platform(objects: Arc<dyn Objects>) -> BucketPlatform {
    BucketPlatform::new(Path::new(HOME), Volume::open(objects, machine(), options()).unwrap())
}

type Contents = BTreeMap<String, Vec<u8>>;

/// Everything in a device, read through new handles.
fn contents(device: &dyn Device) -> io::Result<Contents> {
    let mut contents = Contents::new();
    for directory in DIRECTORIES.iter().chain(&[""]) {
        for (name, size_bytes) in device.list(directory)? {
            let path = if directory.is_empty() { name } else { format!("{directory}/{name}") };
            let mut bytes = Vec::new();
            device.open(&path, Mode::Read)?.read_onto(&mut bytes, 1 << 20, 0)?;
            assert_eq!(bytes.len() as u64, size_bytes, "{path}");
            contents.insert(path, bytes);
        }
    }
    Ok(contents)
}

#[derive(Debug, Clone)]
enum Step {
    Create(usize),
    Open(usize),
    Close(usize),
    /// Through a handle, wherever its file is by now.
    Write(usize, u64, u64, u8),
    SetSize(usize, u64),
    Rename(usize, usize),
    Remove(usize),
    Sync(usize),
    Hold,
    Publish,
    LetGo,
    /// The lock is released, and taken again.
    Reopen,
    /// The process dies, and another one opens what there is.
    Die,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let name = || 0..NAMES.len();
    let step = prop_oneof![
        3 => name().prop_map(Step::Create),
        2 => name().prop_map(Step::Open),
        1 => any::<prop::sample::Index>().prop_map(|index| Step::Close(index.index(100))),
        10 => (0..100_usize, 0..6000_u64, 1..3000_u64, any::<u8>())
            .prop_map(|(handle, at, length, byte)| Step::Write(handle, at, length, byte)),
        2 => (0..100_usize, 0..9000_u64).prop_map(|(handle, size)| Step::SetSize(handle, size)),
        2 => (name(), name()).prop_map(|(from, to)| Step::Rename(from, to)),
        1 => name().prop_map(Step::Remove),
        3 => (0..100_usize).prop_map(Step::Sync),
        1 => Just(Step::Hold),
        1 => Just(Step::Publish),
        1 => Just(Step::LetGo),
        1 => Just(Step::Reopen),
        1 => Just(Step::Die),
    ];
    proptest::collection::vec(step, 0..60)
}

/// Files by number, and the numbers of names.
#[derive(Debug, Default, Clone)]
struct Model {
    names: BTreeMap<String, usize>,
    files: Vec<Vec<u8>>,
}

impl Model {
    fn contents(&self) -> Contents {
        self.names.iter().map(|(path, file)| (path.clone(), self.files[*file].clone())).collect()
    }

    /// What a cut has.
    fn cut(&self) -> Contents {
        let mut contents = self.contents();
        contents.retain(|path, _| !path.ends_with(".tmp"));
        contents
    }
}

struct Handle {
    file: Arc<dyn DeviceFile>,
    number: usize,
    /// Whether a sync of it publishes.
    publishes: bool,
}

/// A writer beside its model, and a reader in another process.
struct Play {
    bucket: Arc<Memory>,
    machine: BucketPlatform,
    lock: Option<Box<dyn Lock>>,
    device: Arc<dyn Device>,
    model: Model,
    handles: Vec<Handle>,
    holds: Vec<Box<dyn Hold>>,
    published: Contents,
    reader: BucketPlatform,
    /// Another one, with the cache of others before it.
    cached: BucketPlatform,
    cache: TempDir,
}

/// A reader with a cache, which is too small for everything.
fn cached(bucket: &Arc<Memory>, cache: &TempDir) -> BucketPlatform {
    let options = BucketOptions { cache: Some(cache.path().to_owned()), cache_bytes: 20_000, ..options() };
    BucketPlatform::new(Path::new(HOME), Volume::open(bucket.clone(), machine(), options).unwrap())
}

impl Play {
    fn begin() -> Play {
        let bucket = Arc::new(Memory::default());
        let machine = platform(bucket.clone());
        let device = machine.device(Path::new(HOME));
        DIRECTORIES.iter().for_each(|directory| device.create_directory(directory).unwrap());
        machine.hold().publish().unwrap();
        let lock = machine.lock(Path::new(HOME)).unwrap();
        assert!(lock.is_some() && machine.lock(Path::new(HOME)).unwrap().is_none());
        let reader = platform(bucket.clone());
        let cache = tempfile::tempdir().unwrap();
        let cached = cached(&bucket, &cache);
        let (model, published) = (Model::default(), Contents::new());
        let (handles, holds) = (Vec::new(), Vec::new());
        Play { bucket, machine, lock, device, model, handles, holds, published, reader, cached, cache }
    }

    fn do_step(&mut self, step: &Step) {
        let device = Arc::clone(&self.device);
        match *step {
            Step::Create(name) => {
                let (name, opened) = (NAMES[name], device.open(NAMES[name], Mode::Create));
                assert_eq!(opened.is_err(), self.model.names.contains_key(name));
                if let Ok(file) = opened {
                    let number = self.model.files.len();
                    self.model.files.push(Vec::new());
                    self.model.names.insert(name.to_owned(), number);
                    self.handles.push(Handle { file, number, publishes: !name.starts_with("index") });
                }
            }
            Step::Open(name) => {
                let (name, opened) = (NAMES[name], device.open(NAMES[name], Mode::Write));
                let number = self.model.names.get(name).copied();
                assert_eq!(opened.is_ok(), number.is_some());
                if let (Ok(file), Some(number)) = (opened, number) {
                    self.handles.push(Handle { file, number, publishes: !name.starts_with("index") });
                }
            }
            Step::Close(handle) if !self.handles.is_empty() => {
                drop(self.handles.swap_remove(handle % self.handles.len()));
            }
            Step::Write(handle, at, length, byte) if !self.handles.is_empty() => {
                let handle = &self.handles[handle % self.handles.len()];
                let data: Vec<u8> = (0..length).map(|at| byte.wrapping_add(at as u8)).collect();
                // Half of them append.
                let content = &mut self.model.files[handle.number];
                let at = if at % 2 == 0 { content.len() as u64 } else { at };
                handle.file.write_at(&data, at).unwrap();
                let end = (at + length) as usize;
                content.resize(content.len().max(end), 0);
                content[at as usize..end].copy_from_slice(&data);
            }
            Step::SetSize(handle, size) if !self.handles.is_empty() => {
                let handle = &self.handles[handle % self.handles.len()];
                handle.file.set_size(size).unwrap();
                self.model.files[handle.number].resize(size as usize, 0);
            }
            Step::Rename(from, to) => {
                let (from, to) = (NAMES[from], NAMES[to]);
                let renamed = device.rename(from, to);
                let number = self.model.names.get(from).copied();
                assert_eq!(renamed.is_ok(), number.is_some());
                if let Some(number) = number {
                    self.model.names.remove(from);
                    self.model.names.insert(to.to_owned(), number);
                }
            }
            Step::Remove(name) => {
                let removed = device.remove(NAMES[name]);
                assert_eq!(removed.is_ok(), self.model.names.remove(NAMES[name]).is_some());
            }
            Step::Sync(handle) if !self.handles.is_empty() => {
                let handle = &self.handles[handle % self.handles.len()];
                handle.file.sync().unwrap();
                if handle.publishes && self.holds.is_empty() {
                    self.published = self.model.cut();
                }
            }
            Step::Hold => self.holds.push(self.machine.hold()),
            Step::Publish => {
                if let Some(hold) = self.holds.pop() {
                    hold.publish().unwrap();
                    if self.holds.is_empty() {
                        self.published = self.model.cut();
                    }
                }
            }
            Step::LetGo => drop(self.holds.pop()),
            Step::Reopen => {
                self.lock = None;
                self.published = self.model.cut();
                self.model.names.retain(|path, _| !path.ends_with(".tmp"));
                self.lock = self.machine.lock(Path::new(HOME)).unwrap();
            }
            Step::Die => self.die(),
            Step::Close(_) | Step::Write(..) | Step::SetSize(..) | Step::Sync(_) => {}
        }
    }

    /// Nothing of what is not published is left.
    fn die(&mut self) {
        self.handles.clear();
        self.holds.clear();
        std::mem::forget(self.lock.take());
        self.machine = platform(self.bucket.clone());
        self.cached = cached(&self.bucket, &self.cache);
        self.device = self.machine.device(Path::new(HOME));
        self.lock = self.machine.lock(Path::new(HOME)).unwrap();
        self.model = Model::default();
        for (path, content) in &self.published {
            self.model.names.insert(path.clone(), self.model.files.len());
            self.model.files.push(content.clone());
        }
    }

    fn check(&self) {
        assert_eq!(contents(&*self.device).unwrap(), self.model.contents());
        for handle in &self.handles {
            let mut bytes = Vec::new();
            handle.file.read_onto(&mut bytes, 1 << 20, 0).unwrap();
            assert!(bytes == self.model.files[handle.number]);
            let mut part = [7; 300];
            let read = handle.file.read_at(&mut part, 1000).unwrap();
            assert!(part[..read] == bytes[bytes.len().min(1000)..bytes.len().min(1300)]);
        }
        let seen = contents(&*self.reader.device(Path::new(HOME))).unwrap();
        assert_eq!(seen, self.published, "what a reader sees is the last cut");
        let seen = contents(&*self.cached.device(Path::new(HOME))).unwrap();
        assert_eq!(seen, self.published, "what another one has kept is of it");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn a_volume_has_what_a_directory_would_and_readers_see_cuts(steps in steps()) {
        let mut play = Play::begin();
        for step in &steps {
            play.do_step(step);
            play.check();
        }
    }
}

/// What no cut has for a while stays what it is, and is published when one has it.
#[test]
fn a_file_that_is_temporary_for_a_while_keeps_its_objects() {
    use Step::{Close, Create, Open, Remove, Rename, Reopen, Sync, Write};
    let (log, other, temporary) = (1, 2, 5);
    for steps in [
        // Published, temporary during a cut, and published again; with a handle, and without.
        vec![
            Create(log),
            Write(0, 0, 2900, 1),
            Sync(0),
            Rename(log, temporary),
            Sync(0),
            Rename(temporary, log),
            Sync(0),
        ],
        vec![
            Create(log),
            Write(0, 0, 2900, 1),
            Rename(log, temporary),
            Close(0),
            Create(other),
            Sync(0),
            Rename(temporary, log),
            Sync(0),
        ],
        // Staged by a writer that ends; its successor has no such file.
        vec![Create(temporary), Write(0, 0, 2900, 1), Reopen, Create(temporary), Rename(temporary, log), Reopen],
        // Without a name, and still open.
        vec![
            Create(log),
            Write(0, 0, 2900, 1),
            Sync(0),
            Remove(log),
            Create(other),
            Sync(1),
            Write(0, 0, 100, 2),
            Open(other),
        ],
    ] {
        let mut play = Play::begin();
        for step in &steps {
            play.do_step(step);
            play.check();
        }
    }
}

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It fails, and has no effect.
    Fails,
    /// It has its effect, and its answer is lost.
    AnswerLost,
    /// It has none, and its answer is lost.
    Lost,
}

/// A bucket that nothing reaches from one request that changes something on.
#[derive(Debug)]
pub(crate) struct Breaking {
    bucket: Memory,
    left: AtomicU64,
    fate: Fate,
    /// Of everything.
    pub(crate) age: Option<Duration>,
}

impl Breaking {
    /// Breaks with the request of a number, from 1.
    pub(crate) fn after(bucket: &Memory, requests: u64, fate: Fate) -> Breaking {
        Breaking { bucket: bucket.clone(), left: AtomicU64::new(requests), fate, age: None }
    }

    /// Breaks now.
    pub(crate) fn break_off(&self) {
        self.left.store(0, Ordering::Relaxed);
    }

    /// What a request meets: nothing, the first trouble, or no bucket any more.
    fn change<T>(&self, change: impl FnOnce() -> Result<T, ObjectError>) -> Result<T, ObjectError> {
        let unknown = || ObjectError::Unknown(io::ErrorKind::TimedOut.into());
        let before = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| Some(left.saturating_sub(1)));
        match (before.unwrap(), self.fate) {
            (2.., _) => change(),
            (1, Fate::AnswerLost) => {
                change()?;
                Err(unknown())
            }
            (1, Fate::Fails) => Err(ObjectError::Failed(io::ErrorKind::ConnectionRefused.into())),
            _ => Err(unknown()),
        }
    }

    fn look<T>(&self, look: impl FnOnce() -> Result<T, ObjectError>) -> Result<T, ObjectError> {
        match self.left.load(Ordering::Relaxed) {
            0 => Err(ObjectError::Failed(io::ErrorKind::ConnectionRefused.into())),
            _ => look(),
        }
    }
}

impl Objects for Breaking {
    fn place(&self) -> PathBuf {
        self.bucket.place()
    }

    fn replace(&self, name: &str, bytes: &[u8], expected: &Expected) -> Result<Tag, ObjectError> {
        self.change(|| self.bucket.replace(name, bytes, expected))
    }

    fn read(&self, name: &str, range: Range<u64>) -> Result<Piece, ObjectError> {
        self.look(|| self.bucket.read(name, range))
    }

    fn head(&self, name: &str) -> Result<Head, ObjectError> {
        self.look(|| self.bucket.head(name))
    }

    fn age(&self, name: &str) -> Result<Option<Duration>, ObjectError> {
        self.look(|| self.bucket.head(name).map(|_| self.age))
    }

    fn list(&self, prefix: &str, after: Option<&str>) -> Result<Page, ObjectError> {
        self.look(|| self.bucket.list(prefix, after))
    }

    fn delete(&self, name: &str) -> Result<(), ObjectError> {
        self.change(|| self.bucket.delete(name))
    }
}

/// Work with publications of each kind: in the body, packs, long runs. Calls `cut` before each, and says which are
/// done.
fn work(machine: &BucketPlatform, cuts: &mut Vec<Contents>, done: &mut usize) -> io::Result<()> {
    let device = machine.device(Path::new(HOME));
    let mut model = Model::default();
    DIRECTORIES.iter().try_for_each(|directory| device.create_directory(directory))?;
    cuts.push(model.cut());
    machine.hold().publish()?;
    *done = cuts.len();
    let lock = machine.lock(Path::new(HOME))?;
    let mut handles = Vec::new();
    for name in &NAMES[..5] {
        handles.push(device.open(name, Mode::Create)?);
        model.names.insert((*name).to_owned(), model.files.len());
        model.files.push(Vec::new());
    }
    for round in 0..6_u8 {
        for (at, handle) in handles.iter().enumerate() {
            let data = vec![round * 16 + at as u8 + 1; [10, 900, 2500, 5000, 300][(at + usize::from(round)) % 5]];
            handle.write_at(&data, model.files[at].len() as u64)?;
            model.files[at].extend_from_slice(&data);
        }
        cuts.push(model.cut());
        handles[1].sync()?;
        *done = cuts.len();
    }
    device.remove("segments/2")?;
    model.names.remove("segments/2");
    // With the lock, unless that fails.
    cuts.push(model.cut());
    drop(lock);
    Ok(())
}

#[test]
fn whatever_request_fails_last_there_is_a_cut_and_none_before_the_last_that_was_told() {
    let mut broken_off = 0;
    for fate in [Fate::Fails, Fate::AnswerLost, Fate::Lost] {
        for requests in 1.. {
            let bucket = Memory::default();
            let breaking = Breaking::after(&bucket, requests, fate);
            let (mut cuts, mut done) = (vec![Contents::new()], 1);
            let worked = work(&platform(Arc::new(breaking)), &mut cuts, &mut done);
            let found = platform(Arc::new(bucket.clone()));
            let found = contents(&*found.device(Path::new(HOME))).unwrap();
            let possible = &cuts[done - 1..];
            assert!(possible.contains(&found), "{fate:?} after {requests}: {:?} of {}", found.keys(), possible.len());
            broken_off += u64::from(worked.is_err());
            // The next writer goes on from there.
            if bucket.head(MANIFEST).is_ok() {
                let next = platform(Arc::new(bucket));
                let lock = next.lock(Path::new(HOME)).unwrap();
                let device = next.device(Path::new(HOME));
                device.open("segments/3", Mode::Create).unwrap().sync().unwrap();
                assert_eq!(contents(&*device).unwrap().len(), found.len() + 1);
                drop(lock);
            }
            if worked.is_ok() && found == cuts[cuts.len() - 1] {
                break;
            }
        }
    }
    assert!(broken_off > 30, "{broken_off}");
}

#[test]
fn a_writer_that_another_one_follows_publishes_nothing_more() {
    let bucket = Arc::new(Memory::default());
    let first = platform(bucket.clone());
    let device = first.device(Path::new(HOME));
    device.create_directory("segments").unwrap();
    first.hold().publish().unwrap();
    let _first_lock = first.lock(Path::new(HOME)).unwrap().unwrap();
    let file = device.open("segments/1", Mode::Create).unwrap();
    file.write_at(b"acknowledged", 0).unwrap();
    file.sync().unwrap();

    let second = platform(bucket.clone());
    let unlocked = second.device(Path::new(HOME)).open("segments/1", Mode::Write).unwrap_err();
    assert_eq!(unlocked.kind(), io::ErrorKind::ReadOnlyFilesystem, "it may only read");
    let second_lock = second.lock(Path::new(HOME)).unwrap().unwrap();
    file.write_at(b"late", 12).unwrap();
    for _ in 0..2 {
        let refused = file.sync().unwrap_err();
        assert!(refused.to_string().contains("another writer has begun an epoch"), "{refused}");
        assert!(device.remove("segments/1").is_err() && first.hold().publish().is_err());
    }
    let read = second.device(Path::new(HOME)).open("segments/1", Mode::Write).unwrap();
    assert_eq!(read.size().unwrap(), 12);
    read.write_at(b", and more", 12).unwrap();
    drop(second_lock);
    assert_eq!(platform(bucket).device(Path::new(HOME)).list("segments").unwrap(), [("1".to_owned(), 22)]);
}

#[test]
fn objects_are_put_for_long_runs_and_not_for_little() {
    let bucket = Arc::new(Memory::default());
    let machine = platform(bucket.clone());
    let device = machine.device(Path::new(HOME));
    device.create_directory("segments").unwrap();
    device.create_directory("extents").unwrap();
    machine.hold().publish().unwrap();
    let lock = machine.lock(Path::new(HOME)).unwrap().unwrap();
    let lengths = |class: &str| -> Vec<u64> {
        bucket.list(class, None).unwrap().objects.iter().map(|object| object.size_bytes).collect()
    };
    let (log, extent) =
        (device.open("segments/1", Mode::Create).unwrap(), device.open("extents/1", Mode::Create).unwrap());
    log.write_at(&[1; 1500], 0).unwrap();
    log.sync().unwrap();
    assert_eq!((lengths("fast/"), lengths("slow/")), (vec![], vec![]), "little stays in the body");
    // Whole objects at once; the rest waits.
    extent.write_at(&[2; 5000], 0).unwrap();
    assert_eq!((lengths("fast/"), lengths("slow/")), (vec![], vec![2000, 2000]));
    log.write_at(&[3; 600], 1500).unwrap();
    assert_eq!(lengths("fast/"), [2000], "with what was in the body");
    extent.sync().unwrap();
    assert_eq!((lengths("fast/"), lengths("slow/")), (vec![2000], vec![2000, 2000]));
    // Much of many files is put together.
    let many: Vec<_> = (2..8).map(|name| device.open(&format!("segments/{name}"), Mode::Create).unwrap()).collect();
    many.iter().for_each(|file| file.write_at(&[4; 1900], 0).unwrap());
    log.sync().unwrap();
    assert_eq!(lengths("slow/"), [2000, 2000], "what is little stays in the body");
    assert_eq!(lengths("fast/"), [2000, 2000, 2000, 1700], "until the rest is little");
    drop(lock);
}
