//! Opening a store whose index is behind its log, beside another process, on a full device, or without a directory.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use super::{bytes, devices_below, file, key};
use crate::devices::host::Host;
use crate::engine::locking::{Access, lock};
use crate::error::ErrorKind;
use crate::format::names::SEGMENTS;
use crate::format::rows::Change;
use crate::log::completeness::Cause;
use crate::simulation::subject::{Simulated, geometry, home};
use crate::simulation::trial::Subject;
use crate::simulation::world::World;
use crate::{Choice, CompactOptions, Error, OpenOptions, Plan, Progress, Store, rebuild_index};

/// Ends a store without a mark.
pub(super) fn kill(store: Store) {
    store.engine().latch(&Error::new(ErrorKind::Io, "go on", "the test ends it"));
}

pub(super) fn causes(store: &Store) -> Vec<Cause> {
    let mut causes: Vec<Cause> = store.completeness().missing.iter().map(|missing| missing.cause).collect();
    causes.dedup();
    causes
}

/// A copy of a directory.
pub(super) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to.join(entry.file_name())),
            false => drop(fs::copy(entry.path(), to.join(entry.file_name())).unwrap()),
        }
    }
}

#[test]
fn a_reader_beside_a_writer_that_is_recovering_reads_the_log_itself() {
    let sandbox = TempDir::new().unwrap();
    let home = sandbox.path().join("s");
    let store = Store::create(&home, &Plan::default()).unwrap();
    store.put(&key("a"), &file(), b"a").unwrap();
    let (index, old) = (home.join("index"), sandbox.path().join("old"));
    copy(&index, &old);
    store.put(&key("b"), &file(), b"b").unwrap();
    kill(store);
    // As after a power failure.
    fs::remove_dir_all(&index).unwrap();
    fs::rename(&old, &index).unwrap();
    let mut locks = Vec::new();
    lock(&Host, &home, &mut locks).unwrap();
    let has = |name: &str| Store::open_read_only(&home).unwrap().entry(&key(name)).unwrap().is_some();
    assert!(has("a") && has("b"), "a writer that has only begun has applied nothing");
    // That would be one with an index that is as this one is.
    locks[0].sign(true);
    assert!(has("a") && !has("b"), "the index of a writer that has recovered is ahead of the log");
    locks[0].sign(false);
    assert!(has("b"));
    drop(locks);
    assert!(has("b"));
}

#[test]
fn a_reader_keeps_what_it_applied_while_a_writer_applies_it() {
    let sandbox = TempDir::new().unwrap();
    let home = sandbox.path().join("s");
    let store = Store::create(&home, &Plan::default()).unwrap();
    let index = home.join("index");
    let [before, midway] = ["before", "midway"].map(|name| sandbox.path().join(name));
    for (name, kept) in [("a", Some(&before)), ("b", Some(&midway)), ("c", None)] {
        store.put(&key(name), &file(), name.as_bytes()).unwrap();
        kept.iter().for_each(|kept| copy(&index, kept));
    }
    kill(store);
    // A reader keeps its files open.
    let restore = |kept: &Path| copy(kept, &index);
    restore(&before);
    let reader = Store::open_read_only(&home).unwrap();
    let shown = || {
        reader.engine().refresh().unwrap();
        ["a", "b", "c"].map(|name| reader.entry(&key(name)).unwrap().is_some())
    };
    assert_eq!(shown(), [true, true, true]);
    let mut locks = Vec::new();
    lock(&Host, &home, &mut locks).unwrap();
    restore(&midway);
    assert_eq!(shown(), [true, true, true], "the writer is recovering");
    drop(locks);
    assert_eq!(shown(), [true, true, true], "the writer was killed");
    let mut locks = Vec::new();
    lock(&Host, &home, &mut locks).unwrap();
    locks[0].sign(true);
    assert_eq!(shown(), [true, true, false], "a writer has recovered, and does without");
}

#[test]
fn a_directory_that_cannot_be_listed_is_as_good_as_away() {
    let sandbox = TempDir::new().unwrap();
    let home = sandbox.path().join("s");
    let fast = ["a", "b"].map(|name| sandbox.path().join(name));
    let store = Store::create(&home, &Plan { fast: fast.to_vec(), ..Plan::default() }).unwrap();
    store.put(&key("f"), &file(), b"content").unwrap();
    drop(store);
    let (segments, aside) = (fast[0].join("segments"), sandbox.path().join("aside"));
    fs::rename(&segments, &aside).unwrap();
    fs::write(&segments, b"not a directory").unwrap();
    let content = |store: &Store| store.get(&key("f")).unwrap();
    let reader = Store::open_read_only(&home).unwrap();
    assert_eq!((content(&reader).as_deref(), causes(&reader)), (Some(&b"content"[..]), vec![Cause::DevicesAway]));
    let refused = Store::open(&home).unwrap_err().to_string();
    assert!(refused.contains("--degraded"), "{refused}");
    let how = OpenOptions { degraded: true, ..OpenOptions::default() };
    let writer = Store::open_with(&home, &how).unwrap();
    assert_eq!((content(&writer).as_deref(), causes(&writer)), (Some(&b"content"[..]), vec![Cause::DevicesAway]));
    drop(writer);
    fs::remove_file(&segments).unwrap();
    fs::rename(&aside, &segments).unwrap();
    let store = Store::open(&home).unwrap();
    assert_eq!((content(&store).as_deref(), causes(&store)), (Some(&b"content"[..]), vec![]));
}

#[test]
fn a_store_whose_fast_devices_are_full_opens_after_a_crash() {
    let geometry = geometry(2, 3, 2, (2, 1));
    for seed in 0..20 {
        let mut world = World::new(Simulated::devices(&geometry), seed);
        let subject = Simulated::create(&geometry, &world).unwrap();
        for name in ["a", "b", "c"] {
            // The index has the first, durably.
            if name == "b" {
                let durable = Change { durable: true, ..Change::default() };
                subject.store().engine().catalog.commit(&durable).unwrap();
            }
            subject.store().put(&key(name), &file(), name.as_bytes()).unwrap();
        }
        // The index loses what was not synced.
        world = world.after_power_failure(seed);
        drop(subject);
        (0..2).for_each(|device| world.fill(device, 0));
        let open = |world: &World| Simulated::open_as(&home(&geometry), world, Access::Write).unwrap();
        let subject = open(&world);
        let has = |subject: &Simulated, name: &str| subject.store().entry(&key(name)).unwrap().is_some();
        assert!(["a", "b", "c"].iter().all(|name| has(&subject, name)), "seed {seed}");
        subject.store().put(&key("d"), &file(), b"d").unwrap();
        subject.store().remove(&key("a")).unwrap();
        drop(subject);
        (0..2).for_each(|device| world.device(device).set_endless());
        for round in 0..2 {
            let subject = open(&world);
            assert_eq!(
                ["a", "b", "c", "d"].map(|name| has(&subject, name)),
                [false, true, true, true],
                "{seed}, {round}"
            );
        }
    }
}

/// The writer goes on without the segments of a device that cannot list them, and without the log in them. They are
/// found once it can.
#[test]
fn what_could_not_be_read_is_looked_for_again() {
    let sandbox = TempDir::new().unwrap();
    let home = sandbox.path().join("s");
    let fast = sandbox.path().join("fast");
    let store = Store::create(&home, &Plan { fast: vec![fast.clone()], ..Plan::default() }).unwrap();
    store.put(&key("f"), &file(), b"content").unwrap();
    store.engine().close_active_segment().unwrap();
    store.put(&key("g"), &file(), b"content").unwrap();
    drop(store);
    let (segments, aside) = (fast.join("segments"), sandbox.path().join("aside"));
    fs::rename(&segments, &aside).unwrap();
    fs::write(&segments, b"not a directory").unwrap();
    let degraded = OpenOptions { degraded: true, ..OpenOptions::default() };
    let writer = Store::open_with(&home, &degraded).unwrap();
    assert!(!writer.completeness().is_complete());
    drop(writer);
    fs::remove_file(&segments).unwrap();
    fs::rename(&aside, &segments).unwrap();
    let store = Store::open(&home).unwrap();
    assert!(store.completeness().is_complete(), "{:?}", store.completeness());
    for name in ["f", "g"] {
        assert_eq!(store.get(&key(name)).unwrap().as_deref(), Some(&b"content"[..]));
    }
}

#[test]
fn whether_a_home_was_moved_is_asked_once_if_its_old_place_does_not_tell() {
    let sandbox = TempDir::new().unwrap();
    let [home, moved] = ["s", "moved"].map(|name| sandbox.path().join(name));
    let fast = devices_below(&sandbox.path().join("disks"), "fast", 2);
    let plan = Plan { fast: fast.clone(), ..Plan::default() };
    Store::create(&home, &plan).unwrap().put(&key("f"), &file(), b"content").unwrap();
    copy(&home, &moved);
    // Perhaps the home of the original is mounted there.
    fs::remove_file(home.join("superblock")).unwrap();
    let refused = Store::open(&moved).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Exists);
    assert!(refused.to_string().contains("moved or is a copy"), "{refused}");
    assert!(Store::open_read_only(&moved).unwrap().get(&key("f")).unwrap().is_some());
    let said = OpenOptions { devices: vec![fast[1].clone()], ..OpenOptions::default() };
    drop(Store::open_with(&moved, &said).unwrap());
    drop(Store::open(&moved).unwrap());
    // A place that is gone tells enough.
    let elsewhere = sandbox.path().join("elsewhere");
    copy(&moved, &elsewhere);
    fs::remove_dir_all(&moved).unwrap();
    drop(Store::open(&elsewhere).unwrap());
}

/// A removal is damaged after the space that it freed was released. An index that is built from such a log has the
/// object again, without its content, and is used all the same.
#[test]
fn an_index_built_from_a_log_with_a_damaged_removal_is_used() {
    let sandbox = TempDir::new().unwrap();
    let home = sandbox.path().join("s");
    let store = Store::create(&home, &Plan::default()).unwrap();
    let name = "the-large-one";
    store.put(&key(name), &file(), &bytes(1, 300_000)).unwrap();
    for number in 0..200 {
        store.put(&key(&format!("small/{number}")), &file(), &bytes(number, 1000)).unwrap();
    }
    assert!(store.remove(&key(name)).unwrap());
    let options = CompactOptions { choice: Choice::Dead(30), ..CompactOptions::default() };
    store.compact(&options, &Progress::default()).unwrap();
    assert_eq!(std::fs::read_dir(home.join("extents")).unwrap().count(), 0);
    drop(store);
    let segment = std::fs::read_dir(home.join("segments")).unwrap().next().unwrap().unwrap().path();
    let mut log = std::fs::read(&segment).unwrap();
    let at = log.windows(name.len()).rposition(|window| window == name.as_bytes()).unwrap();
    log[at] ^= 1;
    std::fs::write(&segment, log).unwrap();
    let store = rebuild_index(&home, &OpenOptions::default()).unwrap();
    assert!(store.entry(&key(name)).unwrap().is_some());
    drop(store);
    for _ in 0..2 {
        let reader = Store::open_read_only(&home).unwrap();
        assert_eq!(reader.status(false).unwrap().index_devices.len(), 1, "it is not one of its own");
        assert!(reader.get(&key(name)).is_err() && reader.get(&key("small/1")).unwrap().is_some());
        drop(reader);
        drop(Store::open(&home).unwrap());
    }
}

#[test]
fn a_writer_whose_lock_another_process_has_taken_acknowledges_nothing() {
    for removes in [true, false] {
        let sandbox = TempDir::new().unwrap();
        let home = sandbox.path().join("s");
        let store = Store::create(&home, &Plan::default()).unwrap();
        store.put(&key("a"), &file(), b"a").unwrap();
        if removes {
            fs::remove_file(home.join("lock")).unwrap();
            // Nobody has it yet.
            store.put(&key("b"), &file(), b"b").unwrap();
            let other = Store::open(&home).unwrap();
            other.put(&key("c"), &file(), b"c").unwrap();
            assert_eq!(store.put(&key("d"), &file(), b"d").unwrap_err().kind(), ErrorKind::Busy);
            drop((store, other));
            let store = Store::open(&home).unwrap();
            let has = |name: &str| store.entry(&key(name)).unwrap().is_some();
            assert!(has("a") && has("b") && has("c") && store.completeness().is_complete());
        } else {
            // By another machine, to which this lock is none.
            fs::write(home.join("lock"), "1 0000000000000000\n").unwrap();
            assert_eq!(store.put(&key("d"), &file(), b"d").unwrap_err().kind(), ErrorKind::Busy);
        }
    }
}

/// A failing disk says nothing of what is on it, with the index and without.
#[test]
fn segments_that_cannot_be_listed_are_not_taken_for_none() {
    for (settings, has_other_copy) in [(geometry(1, 0, 1, (1, 0)), false), (geometry(2, 0, 2, (2, 0)), true)] {
        for is_index_lost in [false, true] {
            let what = format!("another copy: {has_other_copy}, the index is lost: {is_index_lost}");
            let (world, home) = (World::new(Simulated::devices(&settings), 1), home(&settings));
            let subject = Simulated::create(&settings, &world).unwrap();
            subject.store().put(&key("f"), &file(), b"content").unwrap();
            drop(subject);
            if is_index_lost {
                (0..Simulated::devices(&settings)).for_each(|device| world.lose_index(device));
            }
            world.device(0).set_listable(SEGMENTS, false);
            let reader = Simulated::open_as(&home, &world, Access::Read).unwrap();
            assert!(causes(reader.store()).contains(&Cause::DevicesAway), "{what}: {:?}", causes(reader.store()));
            if has_other_copy || !is_index_lost {
                assert_eq!(reader.store().get(&key("f")).unwrap().as_deref(), Some(&b"content"[..]), "{what}");
            }
            drop(reader);
            let refused = Simulated::open(&settings, &world).map(drop).unwrap_err();
            assert!(refused.to_string().contains("--degraded"), "{what}: {refused}");
            let how = OpenOptions { degraded: true, ..OpenOptions::default() };
            let degraded = Simulated::open_how(&home, &world, Access::Write, &how).unwrap();
            assert!(!degraded.store().completeness().is_complete(), "{what}");
            drop(degraded);
            world.device(0).set_listable(SEGMENTS, true);
            let subject = Simulated::open(&settings, &world).unwrap();
            assert_eq!(causes(subject.store()), [], "{what}");
            assert_eq!(subject.store().get(&key("f")).unwrap().as_deref(), Some(&b"content"[..]), "{what}");
        }
    }
}
