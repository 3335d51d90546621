//! What the end of the log says, and for how long: a log that ends too early, and a last batch that is damaged in part.

use std::fs::{self, OpenOptions as FileOptions};
use std::path::PathBuf;

use tempfile::TempDir;

use super::opening::{causes, copy, kill};
use super::{bytes, file, key};
use crate::error::ErrorKind;
use crate::format::ids::DeviceNumber;
use crate::format::names::segment_path;
use crate::log::completeness::Cause;
use crate::{
    Choice, CompactOptions, OpenOptions, Plan, Progress, RepairOptions, Store, plan_repair, rebuild_index, repair,
};

#[test]
fn a_log_that_ended_too_early_is_not_forgotten_with_the_index() {
    for is_index_lost in [false, true] {
        let sandbox = TempDir::new().unwrap();
        let home = sandbox.path().join("s");
        let store = Store::create(&home, &Plan::default()).unwrap();
        store.put(&key("a"), &file(), b"a").unwrap();
        let end = store.engine().writer().unwrap().position;
        for name in ["b", "c"] {
            store.put(&key(name), &file(), name.as_bytes()).unwrap();
        }
        let path = home.join(segment_path(store.engine().segment_id(end.segment)));
        kill(store);
        FileOptions::new().write(true).open(path).unwrap().set_len(end.offset.0).unwrap();
        for name in ["d", "e"] {
            let store = Store::open(&home).unwrap();
            assert_eq!(causes(&store), [Cause::EndsBeforeMark]);
            store.put(&key(name), &file(), name.as_bytes()).unwrap();
        }
        for _ in 0..2 {
            if is_index_lost {
                fs::remove_dir_all(home.join("index")).unwrap();
                assert_eq!(causes(&Store::open_read_only(&home).unwrap()), [Cause::EndsBeforeMark]);
            }
            let store = rebuild_index(&home, &OpenOptions::default()).unwrap();
            assert_eq!(causes(&store), [Cause::EndsBeforeMark]);
            let has = |name: &str| store.entry(&key(name)).unwrap().is_some();
            assert_eq!(["a", "b", "c", "d", "e"].map(has), [true, false, false, true, true]);
        }
    }
}

#[test]
fn a_log_that_ended_too_early_stays_accepted() {
    for (goes_on, is_rebuilt) in [(false, false), (true, false), (true, true)] {
        let sandbox = TempDir::new().unwrap();
        let home = sandbox.path().join("s");
        let store = Store::create(&home, &Plan::default()).unwrap();
        store.put(&key("a"), &file(), b"a").unwrap();
        let end = store.engine().writer().unwrap().position;
        store.put(&key("b"), &file(), b"b").unwrap();
        let path = home.join(segment_path(store.engine().segment_id(end.segment)));
        drop(store);
        FileOptions::new().write(true).open(path).unwrap().set_len(end.offset.0).unwrap();
        if goes_on {
            Store::open(&home).unwrap().put(&key("c"), &file(), b"c").unwrap();
        }
        let how = OpenOptions::default();
        if is_rebuilt {
            assert!(!rebuild_index(&home, &how).unwrap().completeness().is_complete());
        }
        let plan = plan_repair(&home, &how, None, &mut |_| {}, &Progress::default()).unwrap();
        let options = RepairOptions { accept: true, ..RepairOptions::default() };
        let report = repair(&home, &how, &plan, options, &mut |_, _| {}, &Progress::default()).unwrap();
        assert!(report.is_accepted, "{report:?}");
        for _ in 0..3 {
            assert_eq!(causes(&rebuild_index(&home, &how).unwrap()), []);
            let store = Store::open(&home).unwrap();
            assert_eq!((causes(&store), store.status(false).unwrap().quarantined_bytes), (vec![], 0));
            let has = |name: &str| store.entry(&key(name)).unwrap().is_some();
            assert_eq!(["a", "b", "c"].map(has), [true, false, goes_on]);
            store.put(&key("d"), &file(), b"d").unwrap();
        }
    }
}

#[test]
fn an_end_stays_accepted_though_its_continuation_was_released() {
    let sandbox = TempDir::new().unwrap();
    let (home, how) = (sandbox.path().join("s"), OpenOptions::default());
    let store = Store::create(&home, &Plan::default()).unwrap();
    store.put(&key("a"), &file(), b"a").unwrap();
    let end = store.engine().writer().unwrap().position;
    store.put(&key("b"), &file(), b"b").unwrap();
    let path = home.join(segment_path(store.engine().segment_id(end.segment)));
    kill(store);
    // The next writer goes on in a segment of its own, and the one after it again.
    for name in ["c", "d"] {
        let store = Store::open(&home).unwrap();
        store.put(&key(name), &file(), &bytes(1, 10_000)).unwrap();
        kill(store);
    }
    let store = Store::open(&home).unwrap();
    store.remove(&key("c")).unwrap();
    let dead = CompactOptions { choice: Choice::Dead(50), ..CompactOptions::default() };
    store.compact(&dead, &Progress::default()).unwrap();
    drop(store);
    FileOptions::new().write(true).open(path).unwrap().set_len(end.offset.0).unwrap();
    assert_eq!(causes(&rebuild_index(&home, &how).unwrap()), [Cause::Damage]);
    let plan = plan_repair(&home, &how, None, &mut |_| {}, &Progress::default()).unwrap();
    let options = RepairOptions { accept: true, ..RepairOptions::default() };
    assert!(repair(&home, &how, &plan, options, &mut |_, _| {}, &Progress::default()).unwrap().is_accepted);
    for _ in 0..3 {
        let store = rebuild_index(&home, &how).unwrap();
        let has = |name: &str| store.entry(&key(name)).unwrap().is_some();
        assert_eq!((causes(&store), ["a", "b", "c", "d"].map(has)), (vec![], [true, false, false, true]));
    }
}

/// An object has two versions, and the index knows the first.
struct Tail {
    sandbox: TempDir,
    slow: Vec<PathBuf>,
    /// A place in the second version: device, file, offset.
    place: (DeviceNumber, PathBuf, u64),
}

const LARGE_BYTES: usize = 400_000;

impl Tail {
    fn new() -> Tail {
        let sandbox = TempDir::new().unwrap();
        let (home, fast) = (sandbox.path().join("s"), sandbox.path().join("fast"));
        let slow: Vec<PathBuf> = (0..3).map(|at| sandbox.path().join(format!("slow{at}"))).collect();
        let plan =
            Plan { fast: vec![fast.clone()], slow: slow.clone(), copies: Some(1), parity: Some(1), ..Plan::default() };
        let store = Store::create(&home, &plan).unwrap();
        store.put(&key("f"), &file(), &bytes(1, LARGE_BYTES)).unwrap();
        let (index, old) = (fast.join("index"), sandbox.path().join("old"));
        copy(&index, &old);
        store.put(&key("f"), &file(), &bytes(2, LARGE_BYTES)).unwrap();
        let run = super::handles::descriptor(&store, "f").runs().next().unwrap();
        let file = store.engine().extents.place(run.device, run.file);
        kill(store);
        fs::remove_dir_all(&index).unwrap();
        fs::rename(&old, &index).unwrap();
        Tail { sandbox, slow, place: (run.device, file, run.offset_bytes) }
    }

    fn home(&self) -> PathBuf {
        self.sandbox.path().join("s")
    }

    fn damage(&self) {
        let (_, path, offset) = &self.place;
        let mut content = fs::read(path).unwrap();
        content[*offset as usize] ^= 1;
        fs::write(path, content).unwrap();
    }

    /// Another device disappears; returns where it was, and where it is.
    fn lose_another(&self) -> [PathBuf; 2] {
        let other = self.slow.iter().find(|device| !self.place.1.starts_with(device)).unwrap();
        let hidden = self.sandbox.path().join("hidden");
        fs::rename(other, &hidden).unwrap();
        [other.clone(), hidden]
    }
}

fn version(store: &Store) -> u64 {
    let content = store.get(&key("f")).unwrap().unwrap();
    (1..3).find(|&version| content == bytes(version, LARGE_BYTES)).unwrap()
}

#[test]
fn a_last_batch_that_redundancy_makes_up_for_counts() {
    for is_damaged in [true, false] {
        let tail = Tail::new();
        if is_damaged {
            tail.damage();
        } else {
            tail.lose_another();
        }
        assert_eq!(version(&Store::open_read_only(&tail.home()).unwrap()), 2);
        assert_eq!(version(&Store::open(&tail.home()).unwrap()), 2);
    }
}

#[test]
fn what_only_a_missing_device_can_tell_about_the_last_batch_waits_for_it() {
    let degraded = OpenOptions { degraded: true, ..OpenOptions::default() };
    for returns in [true, false] {
        let tail = Tail::new();
        tail.damage();
        let [place, hidden] = tail.lose_another();
        let reader = Store::open_read_only(&tail.home()).unwrap();
        assert_eq!(version(&reader), 1, "the version before can be read");
        assert!(reader.completeness().tail.is_some());
        let refused = Store::open(&tail.home()).unwrap_err().to_string();
        assert!(refused.starts_with("cannot recover the log") && refused.contains("--degraded"), "{refused}");
        if returns {
            fs::rename(hidden, place).unwrap();
            assert_eq!(version(&Store::open(&tail.home()).unwrap()), 2);
        } else {
            let store = Store::open_with(&tail.home(), &degraded).unwrap();
            assert_eq!(version(&store), 1);
            store.put(&key("g"), &file(), b"g").unwrap();
            drop(store);
            fs::rename(hidden, place).unwrap();
            assert_eq!(version(&Store::open(&tail.home()).unwrap()), 1);
        }
    }
}

/// In the log, as the tests above do it in an extent file.
#[test]
fn a_damaged_end_of_the_log_waits_for_the_device_that_may_have_it_whole() {
    // From the end of the log: in the record, in the commit, and all of both.
    for (damaged, kept) in [(1, None), (2, None), (0, Some(1))] {
        let sandbox = TempDir::new().unwrap();
        let home = sandbox.path().join("s");
        let fast = super::devices_below(sandbox.path(), "fast", 3);
        let plan = Plan { fast: fast.clone(), copies: Some(2), ..Plan::default() };
        let store = Store::create(&home, &plan).unwrap();
        store.put(&key("f"), &file(), b"before").unwrap();
        let begin = store.engine().writer().unwrap().position.offset.0;
        store.put(&key("f"), &file(), b"acknowledged").unwrap();
        let engine = store.engine();
        let (end, row) = {
            let position = engine.writer().unwrap().position;
            (position, engine.view().state.segments[&position.segment].clone())
        };
        let [one, other] = row.devices[..] else { panic!("{row:?}") };
        kill(store);
        // The index would know of the batch.
        fast.iter().for_each(|device| drop(fs::remove_dir_all(device.join("index"))));
        let path = fast[one.index()].join(segment_path(row.id()));
        let mut segment = fs::read(&path).unwrap();
        let place = [0, begin + 60, end.commit.0 + 20][damaged];
        match kept {
            None => segment[place as usize] ^= 1,
            Some(bytes) => segment.truncate((begin + bytes) as usize),
        }
        fs::write(&path, segment).unwrap();
        let aside = sandbox.path().join("aside");
        fs::rename(&fast[other.index()], &aside).unwrap();
        let refused = Store::open(&home).unwrap_err().to_string();
        assert!(refused.contains("which may have it, is missing"), "{damaged}: {refused}");
        let reader = Store::open_read_only(&home).unwrap();
        assert_eq!(reader.get(&key("f")).unwrap().as_deref(), Some(&b"before"[..]));
        fs::rename(&aside, &fast[other.index()]).unwrap();
        let store = Store::open(&home).unwrap();
        assert_eq!(store.get(&key("f")).unwrap().as_deref(), Some(&b"acknowledged"[..]));
        drop(store);
        // What is behind the end of a closed log is none of it.
        let mut segment = fs::OpenOptions::new().append(true).open(&path).unwrap();
        std::io::Write::write_all(&mut segment, &[7; 100]).unwrap();
        fs::rename(&fast[other.index()], &aside).unwrap();
        let store = Store::open(&home).unwrap();
        assert_eq!(store.get(&key("f")).unwrap().as_deref(), Some(&b"acknowledged"[..]));
    }
}

/// The last batch of a killed writer did not count, and the log went on without it.
#[test]
fn a_quarantine_stays_one_if_the_header_that_says_so_is_damaged() {
    let flip = |path: &PathBuf, at: u64| {
        let mut content = fs::read(path).unwrap();
        content[at as usize] ^= 1;
        fs::write(path, content).unwrap();
    };
    let sandbox = TempDir::new().unwrap();
    let home = sandbox.path().join("s");
    let store = Store::create(&home, &Plan::default()).unwrap();
    let path_of = |store: &Store, name: &str| {
        let location = store.entry(&key(name)).unwrap().unwrap().entry.location;
        (home.join(segment_path(store.engine().segment_id(location.segment))), location.offset.0)
    };
    store.put(&key("a"), &file(), b"a").unwrap();
    let (index, old) = (home.join("index"), sandbox.path().join("old"));
    copy(&index, &old);
    store.put(&key("b"), &file(), b"b").unwrap();
    let (first, at) = path_of(&store, "b");
    kill(store);
    fs::remove_dir_all(&index).unwrap();
    fs::rename(&old, &index).unwrap();
    flip(&first, at + 25);
    let store = Store::open(&home).unwrap();
    for name in ["c", "d"] {
        store.put(&key(name), &file(), name.as_bytes()).unwrap();
    }
    let (second, _) = path_of(&store, "c");
    let quarantined_bytes = store.status(false).unwrap().quarantined_bytes;
    assert!(first != second && quarantined_bytes > 0);
    drop(store);
    // What was wrong with it may be right on a device that returns.
    flip(&first, at + 25);
    flip(&second, 12);
    fs::remove_dir_all(&index).unwrap();
    let before = fs::read(&first).unwrap();
    let looks_right = |store: &Store| {
        assert_eq!(causes(store), [Cause::Damage], "the header");
        let has = |name: &str| store.entry(&key(name)).unwrap().is_some();
        assert_eq!(["a", "b", "c", "d"].map(has), [true, false, true, true]);
        assert_eq!(store.status(false).unwrap().quarantined_bytes, quarantined_bytes);
    };
    looks_right(&Store::open_read_only(&home).unwrap());
    let store = rebuild_index(&home, &OpenOptions::default()).unwrap();
    looks_right(&store);
    let all = CompactOptions { choice: Choice::All, ..CompactOptions::default() };
    assert_eq!(store.compact(&all, &Progress::default()).unwrap_err().kind(), ErrorKind::Corrupt);
    drop(store);
    looks_right(&Store::open(&home).unwrap());
    assert!(fs::read(&first).unwrap() == before);
}

/// Without one of its mirrors, and killed while it wrote.
#[test]
fn a_torn_end_waits_for_no_device_without_which_the_epoch_began() {
    let sandbox = TempDir::new().unwrap();
    let home = sandbox.path().join("s");
    let fast = super::devices_below(sandbox.path(), "fast", 3);
    Store::create(&home, &Plan { fast: fast.clone(), copies: Some(3), ..Plan::default() }).unwrap();
    fs::remove_dir_all(&fast[2]).unwrap();
    let store = Store::open(&home).unwrap();
    store.put(&key("f"), &file(), b"acknowledged").unwrap();
    let end = store.engine().writer().unwrap().position;
    store.put(&key("g"), &file(), b"torn").unwrap();
    let path = segment_path(store.engine().segment_id(end.segment));
    kill(store);
    for device in &fast[..2] {
        fs::remove_dir_all(device.join("index")).unwrap();
        FileOptions::new().write(true).open(device.join(&path)).unwrap().set_len(end.offset.0 + 30).unwrap();
    }
    let store = Store::open(&home).unwrap();
    assert_eq!(store.get(&key("f")).unwrap().as_deref(), Some(&b"acknowledged"[..]));
}
