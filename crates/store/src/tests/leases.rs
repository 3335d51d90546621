//! Who may write to a store in a bucket, and what becomes of a writer that is dead, asleep, or without a network. The
//! time is that of a simulation.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::{bytes, file, key};
use crate::bucket::BucketOptions;
use crate::devices::bucket::platform::BucketPlatform;
use crate::devices::bucket::tests::{Breaking, Fate};
use crate::devices::bucket::volume::Volume;
use crate::devices::platform::Platform;
use crate::devices::published::{Process, Surroundings};
use crate::engine::locking::Access;
use crate::engine::open;
use crate::error::{ErrorKind, Result};
use crate::locks::lock;
use crate::objects::{Memory, Objects};
use crate::simulation::machines::{Machines, SimulatedProcess};
use crate::*;

const HOME: &str = "leased://bucket";
/// A writer of which nobody knows anything is given up after this time, at most a look later.
const SILENCE: Duration = Duration::from_secs(15);
const LOOK: Duration = Duration::from_secs(1);
/// A writer that lives shows it within this time.
const HEARTBEAT: Duration = Duration::from_secs(5);

fn options() -> OpenOptions {
    let bucket = BucketOptions { object_bytes: 128 << 10, poll: Duration::ZERO, ..BucketOptions::default() };
    OpenOptions { bucket, ..OpenOptions::default() }
}

fn platform(objects: Arc<dyn Objects>, process: &Arc<SimulatedProcess>) -> Result<Arc<dyn Platform>> {
    let volume = Volume::open(objects, process.clone(), options().bucket)?;
    Ok(Arc::new(BucketPlatform::new(Path::new(HOME), volume)))
}

pub(super) fn open_as(objects: Arc<dyn Objects>, process: &Arc<SimulatedProcess>, access: Access) -> Result<Store> {
    Store::open_on(platform(objects, process)?, Path::new(HOME), access, &options())
}

/// A bucket and machines.
pub(super) struct Place {
    pub(super) bucket: Arc<Memory>,
    pub(super) machines: Arc<Machines>,
}

impl Place {
    /// With a store that nobody has open.
    pub(super) fn new() -> Place {
        let place = Place { bucket: Arc::default(), machines: Arc::default() };
        let platform = platform(place.bucket.clone(), &place.machines.process("origin")).unwrap();
        let hold = platform.hold();
        open::create(&*platform, Path::new(HOME), &Plan { segment_bytes: 1 << 20, ..Plan::default() }).unwrap();
        let store = Store::open_on(Arc::clone(&platform), Path::new(HOME), Access::Write, &options()).unwrap();
        hold.publish().unwrap();
        drop(store);
        place
    }

    pub(super) fn open(&self, process: &Arc<SimulatedProcess>) -> Result<Store> {
        open_as(self.bucket.clone(), process, Access::Write)
    }

    pub(super) fn read(&self) -> Store {
        open_as(self.bucket.clone(), &self.machines.process("readers"), Access::Read).unwrap()
    }

    /// The time that something takes.
    fn time<T>(&self, does: impl FnOnce() -> T) -> (T, Duration) {
        let before = self.machines.now();
        let done = does();
        (done, self.machines.now() - before)
    }

    /// Is refused because of this holder; returns the time that it took.
    fn is_busy(&self, process: &Arc<SimulatedProcess>, holder: &str) -> Duration {
        let (refused, time) = self.time(|| self.open(process).unwrap_err());
        assert_eq!(refused.kind(), ErrorKind::Busy, "{refused}");
        assert!(refused.to_string().contains(&format!("another process ({holder})")), "{refused}");
        time
    }

    /// Number of writers that show themselves.
    pub(super) fn shown(&self) -> usize {
        self.bucket.list("leases/", None).unwrap().objects.len()
    }
}

fn put(store: &Store, name: &str) -> Result<()> {
    store.put(&key(name), &file(), name.as_bytes())
}

fn has(store: &Store, name: &str) -> bool {
    store.get(&key(name)).unwrap().is_some_and(|content| content == name.as_bytes())
}

#[test]
fn who_comes_second_is_refused_by_name_until_the_first_has_closed() {
    let place = Place::new();
    let (first, second) = (place.machines.process("north"), place.machines.process("south"));
    let store = place.open(&first).unwrap();
    put(&store, "a").unwrap();
    for idle in [0, 3, 3600] {
        place.machines.pass(Duration::from_secs(idle));
        let time = place.is_busy(&second, "2 on north");
        assert!(time <= HEARTBEAT + LOOK * 2, "{time:?}");
    }
    let status = |store: &Store| store.status(false).unwrap().has_writer;
    assert!(status(&place.read()) && place.shown() == 1);
    drop(store);
    assert!(!status(&place.read()) && place.shown() == 0);
    let (store, time) = place.time(|| place.open(&second).unwrap());
    assert!(time.is_zero() && has(&store, "a"), "{time:?}");
}

#[test]
fn on_one_machine_nobody_waits_for_what_can_be_seen() {
    let place = Place::new();
    let (first, second) = (place.machines.process("north"), place.machines.process("north"));
    let store = place.open(&first).unwrap();
    put(&store, "a").unwrap();
    for idle in [0, 4, 7, 3600] {
        place.machines.pass(Duration::from_secs(idle));
        assert!(place.is_busy(&second, "2 on north").is_zero());
    }
    first.kill();
    std::mem::forget(store);
    assert!(!place.read().status(false).unwrap().has_writer || place.shown() == 1);
    let (store, time) = place.time(|| place.open(&second).unwrap());
    assert!(time.is_zero() && has(&store, "a") && place.shown() == 0);
    put(&store, "b").unwrap();
}

#[test]
fn a_writer_that_is_dead_elsewhere_is_given_up_once_it_is_silent() {
    let place = Place::new();
    let second = place.machines.process("south");
    for idle in [0, 60] {
        let first = place.machines.process("north");
        let store = place.open(&first).unwrap();
        put(&store, &format!("after {idle}")).unwrap();
        place.machines.pass(Duration::from_secs(idle));
        first.sleep();
        std::mem::forget(store);
        let (store, time) = place.time(|| place.open(&second).unwrap());
        assert!((SILENCE..=SILENCE + LOOK).contains(&time), "{time:?}");
        assert!(has(&store, &format!("after {idle}")) && place.shown() == 0);
    }
}

#[test]
fn the_status_says_how_long_nothing_was_heard_of_a_writer() {
    let place = Place::new();
    let first = place.machines.process("north");
    let silence = |age: Option<Duration>, machine: &str| {
        let mut bucket = Breaking::after(&place.bucket, u64::MAX, Fate::Fails);
        bucket.age = age;
        let reader = open_as(Arc::new(bucket), &place.machines.process(machine), Access::Read).unwrap();
        reader.writer_silence().inspect(|_| assert!(reader.status(false).unwrap().has_writer))
    };
    let hour = Duration::from_secs(3600);
    assert_eq!(silence(Some(hour), "south"), None, "nobody writes");
    let store = place.open(&first).unwrap();
    put(&store, "a").unwrap();
    assert_eq!((silence(Some(HEARTBEAT), "south"), silence(None, "south")), (None, None));
    assert_eq!(silence(Some(hour), "south"), Some(hour));
    assert_eq!(silence(Some(hour), "north"), None, "it has the same clock");
    first.sleep();
    place.machines.pass(hour);
    assert!(silence(None, "north").unwrap() >= hour - HEARTBEAT);
    drop(store);
}

#[test]
fn a_writer_that_slept_commits_nothing_more() {
    let place = Place::new();
    let (first, second) = (place.machines.process("north"), place.machines.process("south"));
    let slept = place.open(&first).unwrap();
    put(&slept, "before").unwrap();
    let mut unfinished = slept.batch(Durability::Batch);
    unfinished.put(&key("unfinished"), &file(), b"").unwrap();
    first.sleep();
    let store = place.open(&second).unwrap();
    put(&store, "meanwhile").unwrap();
    first.wake();
    place.machines.pass(Duration::from_secs(60));
    let refused = unfinished.commit().unwrap_err();
    assert!(refused.to_string().contains("another writer has begun an epoch"), "{refused}");
    for _ in 0..2 {
        assert!(put(&slept, "late").is_err() && slept.sync().is_err());
    }
    drop(slept);
    assert!(place.is_busy(&place.machines.process("east"), "3 on south") <= HEARTBEAT + LOOK * 2);
    put(&store, "afterwards").unwrap();
    drop(store);
    let store = place.open(&first).unwrap();
    let found = ["before", "meanwhile", "afterwards", "unfinished", "late"].map(|name| has(&store, name));
    assert_eq!(found, [true, true, true, false, false]);
}

#[test]
fn a_writer_is_seen_to_live_by_what_it_publishes() {
    let place = Place::new();
    let (first, second) = (place.machines.process("north"), place.machines.process("south"));
    let store = place.open(&first).unwrap();
    let (writes, mut number) = (store.clone(), 0);
    first.keep_calling(
        LOOK,
        Box::new(move || {
            number += 1;
            put(&writes, &number.to_string()).is_ok()
        }),
    );
    assert!(place.is_busy(&second, "2 on north") <= LOOK);
    assert_eq!(place.shown(), 0, "it need not show itself");
    drop(store);
}

#[test]
fn of_two_who_watch_one_takes_over_and_the_other_sees_it() {
    let place = Place::new();
    let (first, watching) = (place.machines.process("north"), place.machines.process("south"));
    let beside = place.machines.process("north");
    let store = place.open(&first).unwrap();
    put(&store, "a").unwrap();
    first.kill();
    std::mem::forget(store);
    // It sees at once that the first one is dead, but comes later.
    let taken = Arc::new(Mutex::new(None));
    let (takes, bucket, own) = (Arc::clone(&taken), place.bucket.clone(), beside.clone());
    beside.keep_calling(
        LOOK * 7,
        Box::new(move || {
            *lock(&takes) = Some(open_as(bucket.clone(), &own, Access::Write).unwrap());
            false
        }),
    );
    assert_eq!(place.is_busy(&watching, "4 on north"), LOOK * 7);
    let store = lock(&taken).take().unwrap();
    assert!(has(&store, "a"));
}

#[test]
fn who_waits_gets_the_store_when_the_other_ends() {
    let place = Place::new();
    let (first, second) = (place.machines.process("north"), place.machines.process("south"));
    let store = Mutex::new(Some(place.open(&first).unwrap()));
    let close = move || {
        drop(lock(&store).take());
        false
    };
    first.keep_calling(LOOK * 40, Box::new(close));
    let mut attempts = 0;
    let (store, time) = place.time(|| {
        loop {
            match place.open(&second) {
                Ok(store) => return store,
                Err(error) => assert_eq!(error.kind(), ErrorKind::Busy, "{error}"),
            }
            attempts += 1;
            place.machines.pass(LOOK);
        }
    });
    assert!((LOOK * 40..LOOK * 48).contains(&time) && attempts > 3, "{time:?}, {attempts}");
    put(&store, "a").unwrap();
}

/// Whatever becomes of its last request: it does not show itself any more, and gives way to others, its own process
/// among them.
#[test]
fn a_writer_whose_publication_failed_is_taken_for_dead() {
    for fate in [Fate::Fails, Fate::Lost, Fate::AnswerLost] {
        let place = Place::new();
        let (first, second) = (place.machines.process("north"), place.machines.process("south"));
        // Its epoch, and one version.
        let breaking = Arc::new(Breaking::after(&place.bucket, 3, fate));
        let store = open_as(breaking, &first, Access::Write).unwrap();
        put(&store, "a").unwrap();
        assert!(put(&store, "b").is_err() && put(&store, "c").is_err());
        drop(store);
        assert!(place.is_busy(&first, "2 on north").is_zero(), "for a while");
        let (store, time) = place.time(|| place.open(&second).unwrap());
        assert!(time <= SILENCE + LOOK && has(&store, "a"), "{time:?}");
        assert_eq!(has(&store, "b"), fate == Fate::AnswerLost);
        drop(store);

        let breaking = Arc::new(Breaking::after(&place.bucket, 2, fate));
        let store = open_as(breaking, &first, Access::Write).unwrap();
        assert!(put(&store, "b").is_err());
        place.machines.pass(SILENCE);
        let (store, time) = place.time(|| place.open(&first).unwrap());
        assert!(time.is_zero() && has(&store, "a"), "{time:?}");
    }
}

#[test]
fn who_cannot_ask_takes_nothing() {
    let place = Place::new();
    let (first, second) = (place.machines.process("north"), place.machines.process("south"));
    let store = place.open(&first).unwrap();
    put(&store, "a").unwrap();
    first.sleep();
    let breaking = Arc::new(Breaking::after(&place.bucket, 1, Fate::Lost));
    let platform = platform(breaking.clone(), &second).unwrap();
    let breaks = move || {
        breaking.break_off();
        false
    };
    second.keep_calling(LOOK * 5, Box::new(breaks));
    let (refused, time) = place.time(|| platform.lock(Path::new(HOME)).unwrap_err());
    assert_eq!((refused.kind(), time), (std::io::ErrorKind::ConnectionRefused, LOOK * 5));
    assert!(platform.lock(Path::new(HOME)).is_err());
    // Nothing has changed.
    put(&store, "b").unwrap();
}

#[test]
fn the_lock_of_this_process_is_taken_once_and_refusals_are_remembered() {
    let place = Place::new();
    let (first, second) = (place.machines.process("north"), place.machines.process("south"));
    let held = platform(place.bucket.clone(), &first).unwrap();
    let home = Path::new(HOME);
    assert!(!held.is_locked(home) && held.holder(home).is_none());
    let lock = held.lock(home).unwrap().unwrap();
    assert!(held.is_locked(home) && held.has_writer(home) && held.lock(home).unwrap().is_none());
    assert_eq!(held.holder(home).as_deref(), Some("2 on north"));
    let other = platform(place.bucket.clone(), &second).unwrap();
    assert!(other.lock(home).unwrap().is_none());
    let (again, time) = place.time(|| other.lock(home).unwrap().is_some());
    assert!(!again && time.is_zero());
    drop(lock);
    assert!(!held.is_locked(home) && !other.is_locked(home));
    place.machines.pass(LOOK * 2);
    let _lock = other.lock(home).unwrap().unwrap();
    assert!(held.lock(home).unwrap().is_none(), "it finds a newer version, and sees the other one");
}

/// Nothing is put twice under one name, and no epoch but the last is in the manifest's name.
#[test]
fn a_large_batch_of_a_writer_that_slept_is_garbage() {
    let place = Place::new();
    let (first, second) = (place.machines.process("north"), place.machines.process("south"));
    let slept = place.open(&first).unwrap();
    first.sleep();
    let store = place.open(&second).unwrap();
    store.put(&key("a"), &file(), &bytes(1, 400_000)).unwrap();
    assert!(slept.put(&key("a"), &file(), &bytes(2, 400_000)).is_err());
    drop(slept);
    assert!(store.get(&key("a")).unwrap().unwrap() == bytes(1, 400_000));
    drop(store);
    let store = place.open(&first).unwrap();
    assert!(store.get(&key("a")).unwrap().unwrap() == bytes(1, 400_000));
}

/// A process that has become the copy of the one that opened the store.
#[derive(Debug)]
struct Forked {
    parent: Arc<SimulatedProcess>,
    child: Arc<SimulatedProcess>,
    is_child: AtomicBool,
}

impl Surroundings for Forked {
    fn random(&self) -> Result<u64> {
        self.parent.random()
    }

    fn now_nanoseconds(&self) -> i64 {
        self.parent.now_nanoseconds()
    }

    fn wait(&self, _: u32) -> bool {
        false
    }

    fn elapsed(&self) -> Duration {
        self.parent.elapsed()
    }

    fn process(&self) -> Process {
        if self.is_child.load(Ordering::Relaxed) { self.child.process() } else { self.parent.process() }
    }

    fn keep_calling(&self, _: Duration, _: Box<dyn FnMut() -> bool + Send>) {}
}

#[test]
fn the_copy_of_a_writer_publishes_nothing_not_even_that_it_has_ended() {
    let place = Place::new();
    let (parent, child) = (place.machines.process("north"), place.machines.process("north"));
    let forked = Arc::new(Forked { parent, child, is_child: AtomicBool::new(false) });
    let volume = Volume::open(place.bucket.clone(), forked.clone(), options().bucket).unwrap();
    let platform = Arc::new(BucketPlatform::new(Path::new(HOME), volume));
    let store = Store::open_on(platform, Path::new(HOME), Access::Write, &options()).unwrap();
    put(&store, "a").unwrap();
    forked.is_child.store(true, Ordering::Relaxed);
    let before = place.bucket.head("manifest").unwrap();
    assert!(put(&store, "b").is_err());
    drop(store);
    assert_eq!(place.bucket.head("manifest").unwrap(), before);
    assert!(place.read().status(false).unwrap().has_writer);
}
