//! What one pass over a store can read and the next one cannot: it may be readable again, so nothing is given up.

use std::path::{Path, PathBuf};

use super::{bytes, file, key};
use crate::engine::locking::Access;
use crate::format::ids::DeviceNumber;
use crate::format::names::{EXTENTS, SEGMENTS, segment_path};
use crate::format::superblock::SUPERBLOCK;
use crate::simulation::mishap::{Absence, FileKind};
use crate::simulation::subject::{Simulated, geometry, home};
use crate::simulation::trial::Subject;
use crate::simulation::world::World;
use crate::{Choice, CompactOptions, Key, OpenOptions, Problem, Progress, Remedy, RepairOptions, RepairReport, Store};

/// The names of all objects.
fn names(store: &Store) -> Vec<String> {
    store.walk(&Key::root()).unwrap().map(|listed| listed.unwrap().key.to_string()).collect()
}

/// The check read a removal that the pass cannot read in which the segment is emptied.
#[test]
fn a_segment_stays_if_less_of_it_can_be_read_than_the_check_had_read() {
    let settings = geometry(1, 0, 1, (1, 0));
    let (world, home) = (World::new(Simulated::devices(&settings), 1), home(&settings));
    let subject = Simulated::create(&settings, &world).unwrap();
    let store = subject.store();
    store.put(&key("kept"), &file(), b"kept").unwrap();
    store.put(&key("gone"), &file(), b"gone").unwrap();
    store.engine().close_active_segment().unwrap();
    store.put(&key("dead"), &file(), &[1; 1000]).unwrap();
    let dead = store.entry(&key("dead")).unwrap().unwrap().entry.location;
    let removal = store.engine().writer().unwrap().position.offset;
    store.remove(&key("gone")).unwrap();
    store.remove(&key("dead")).unwrap();
    let path = segment_path(store.engine().segment_id(dead.segment));
    drop(subject);
    world.device(0).flip_bit(&path, 8 * (dead.offset.0 + 500));

    let (device, of_removal) = (world.device(0), path.clone());
    let failing = Progress::observed(move |progress| {
        if progress.snapshot().stage.name == "emptying damaged segments" {
            device.make_unreadable(&of_removal, removal.0, 1);
        }
    });
    let repair = |progress: &Progress| {
        Simulated::repair_reporting(&home, &world, RepairOptions::default(), progress).unwrap().report
    };
    let rebuilt = || names(Simulated::open_as(&home, &world, Access::RebuildIndex).unwrap().store());
    let report = repair(&failing);
    assert_eq!((report.given_back, report.check.problems(), report.left.len()), (0, 2, 2), "{report:?}");
    assert!(report.left[1].to_string().contains("the segment was not freed"), "{report:?}");
    world.device(0).make_readable(&path);
    assert_eq!(rebuilt(), ["kept"]);
    let report = repair(&Progress::default());
    assert_eq!((report.given_back, report.check.problems()), (1, 0), "{report:?}");
    assert_eq!(rebuilt(), ["kept"]);
}

/// Objects in the first segment, and their removals in the second one.
struct Removed {
    world: World,
    home: PathBuf,
    paths: [String; 2],
    /// Where the records of "lost" and "gone" begin in the first segment, and the removal of "gone" in the second.
    lost: u64,
    gone: u64,
    removal: u64,
}

impl Removed {
    fn new() -> Removed {
        let settings = geometry(1, 0, 1, (1, 0));
        let world = World::new(Simulated::devices(&settings), 1);
        let subject = Simulated::create(&settings, &world).unwrap();
        let store = subject.store();
        let end = || store.engine().writer().unwrap().position;
        let put = |name: &str| {
            store.put(&key(name), &file(), &[1; 1000]).unwrap();
            store.entry(&key(name)).unwrap().unwrap().entry.location
        };
        let [lost, gone] = ["lost", "gone"].map(put);
        store.engine().close_active_segment().unwrap();
        let dead = put("dead");
        let removal = end().offset.0;
        store.remove(&key("gone")).unwrap();
        store.remove(&key("dead")).unwrap();
        store.engine().close_active_segment().unwrap();
        put("kept");
        let paths = [lost, dead].map(|at| segment_path(store.engine().segment_id(at.segment)));
        drop(subject);
        Removed { world, home: home(&settings), paths, lost: lost.offset.0, gone: gone.offset.0, removal }
    }

    fn repair(&self, drop_lost: bool) -> RepairReport {
        let options = RepairOptions { drop_lost, ..RepairOptions::default() };
        Simulated::repair(&self.home, &self.world, options, None).unwrap().report
    }

    /// The names in an index that is built from the log.
    fn rebuilt(&self) -> Vec<String> {
        names(Simulated::open_as(&self.home, &self.world, Access::RebuildIndex).unwrap().store())
    }
}

/// It is removed, and the index is right. One that is built from the log has it again, as a lost object.
#[test]
fn a_damaged_record_whose_removal_is_damaged_too_is_told_and_can_be_removed_again() {
    let removed = Removed::new();
    let device = removed.world.device(0);
    device.flip_bit(&removed.paths[0], 8 * (removed.lost + 500));
    device.flip_bit(&removed.paths[0], 8 * (removed.gone + 500));
    device.flip_bit(&removed.paths[1], 8 * (removed.removal + 50));
    let report = removed.repair(false);
    let named: Vec<&str> = report.lost.iter().filter_map(|problem| problem.object.as_deref()).collect();
    assert_eq!((report.given_back, named), (0, vec!["gone", "lost"]), "{report:?}");
    let report = removed.repair(true);
    assert_eq!((report.given_back, report.check.problems()), (2, 0), "{report:?}");
    assert_eq!(removed.rebuilt(), ["kept"]);
}

/// The first segment stays with a lost object in it, and may be readable again.
#[test]
fn no_removal_is_freed_while_what_it_may_remove_cannot_be_read() {
    let removed = Removed::new();
    let device = removed.world.device(0);
    device.make_unreadable(&removed.paths[0], removed.gone, 1);
    device.make_unreadable(&removed.paths[1], removed.removal, 1);
    let report = removed.repair(false);
    assert_eq!((report.given_back, report.lost.len()), (0, 1), "{report:?}");
    removed.paths.iter().for_each(|path| device.make_readable(path));
    assert_eq!(removed.rebuilt(), ["kept", "lost"]);
}

/// The problems that a check finds, as a reader.
fn problems(home: &Path, world: &World) -> Vec<Problem> {
    Simulated::open_as(home, world, Access::Read).unwrap().problems().unwrap()
}

/// Its units may be intact.
#[test]
fn an_object_in_a_directory_that_cannot_be_listed_is_not_dropped() {
    let settings = geometry(1, 2, 1, (2, 0));
    let (world, home) = (World::new(Simulated::devices(&settings), 1), home(&settings));
    let content = bytes(1, 60_000);
    let subject = Simulated::create(&settings, &world).unwrap();
    subject.store().put(&key("large"), &file(), &content).unwrap();
    drop(subject);
    world.device(1).set_listable(EXTENTS, false);
    let found = problems(&home, &world);
    assert!(found.iter().any(|problem| problem.cause.contains("cannot be listed")), "{found:?}");
    assert!(found.iter().all(|problem| problem.remedy == Remedy::Rebuild), "{found:?}");
    let options = RepairOptions { drop_lost: true, ..RepairOptions::default() };
    // If it cannot be opened for writing, nothing is dropped either.
    let repaired = Simulated::repair(&home, &world, options, None);
    assert!(repaired.is_err() || repaired.is_ok_and(|repaired| repaired.report.dropped == 0));
    world.device(1).set_listable(EXTENTS, true);
    let store = Simulated::open(&settings, &world).unwrap();
    assert_eq!(store.store().get(&key("large")).unwrap(), Some(content));
}

/// Segments are found by their names in the index, too.
#[test]
fn segments_in_a_directory_that_cannot_be_listed_are_not_missing() {
    let settings = geometry(2, 0, 2, (2, 0));
    let (world, home) = (World::new(Simulated::devices(&settings), 1), home(&settings));
    let subject = Simulated::create(&settings, &world).unwrap();
    subject.store().put(&key("kept"), &file(), b"kept").unwrap();
    drop(subject);
    world.device(1).set_listable(SEGMENTS, false);
    let found: Vec<String> = problems(&home, &world).iter().map(Problem::without_advice).collect();
    assert!(found.len() == 1 && found[0].contains("cannot be listed"), "{found:?}");
}

/// Its superblock was damaged, so the log was read without it, and the repair takes it back.
#[test]
fn what_a_device_has_that_came_back_in_this_run_is_not_accepted_as_missing() {
    let settings = geometry(2, 0, 1, (1, 0));
    let (world, home) = (World::new(Simulated::devices(&settings), 1), home(&settings));
    let subject = Simulated::create(&settings, &world).unwrap();
    let store = subject.store();
    // Each segment is on one of the devices.
    let name = (0..).map(|number| key(&format!("f{number}"))).find(|name| {
        store.put(name, &file(), b"content").unwrap();
        store.engine().close_active_segment().unwrap();
        let segment = store.entry(name).unwrap().unwrap().entry.location.segment;
        segment.0 > 1 && store.engine().copies(segment) == [DeviceNumber(1)]
    });
    store.put(&key("last"), &file(), b"content").unwrap();
    drop(subject);
    for device in [0, 1] {
        let device = world.device(device);
        let files = device.files().into_iter().map(|(path, _)| path);
        files.filter(|path| FileKind::of(path).is_of_index()).for_each(|path| device.delete(&path));
    }
    world.device(1).zero(SUPERBLOCK, 0, 1 << 20);
    let how = OpenOptions { degraded: true, ..OpenOptions::default() };
    let repair = |accept: bool| {
        let options = RepairOptions { accept, ..RepairOptions::default() };
        Simulated::repair_how(&home, &world, &how, options, &Progress::default())
    };
    let error = repair(true).unwrap_err();
    assert!(error.to_string().contains("device 1 came back in this run"), "{error}");
    repair(false).unwrap();
    let store = Simulated::open(&settings, &world).unwrap();
    assert_eq!(store.store().get(&name.unwrap()).unwrap().as_deref(), Some(&b"content"[..]));
}

/// Its segment cannot be read for the moment, so nothing says which extent files its large object is in.
#[test]
fn large_objects_of_a_side_that_was_not_taken_stay_though_its_log_cannot_be_read() {
    let settings = geometry(2, 0, 2, (2, 0));
    let (world, home) = (World::new(Simulated::devices(&settings), 1), home(&settings));
    let subject = Simulated::create(&settings, &world).unwrap();
    subject.store().put(&key("both"), &file(), b"both").unwrap();
    drop(subject);
    for (away, name) in [(1, "taken"), (0, "other")] {
        let detached = world.detach(away, Absence::Missing, 1);
        let how = OpenOptions { degraded: true, ..OpenOptions::default() };
        let subject = Simulated::open_how(&home, &world, Access::Write, &how).unwrap();
        subject.store().put(&key(name), &file(), &bytes(away as u64, 60_000)).unwrap();
        drop(subject);
        world.attach(away, &detached);
    }
    assert_eq!(Simulated::take_side(&home, &world, DeviceNumber(0)).unwrap(), [DeviceNumber(1)]);
    Simulated::repair(&home, &world, RepairOptions::default(), None).unwrap();
    let subject = Simulated::open(&settings, &world).unwrap();
    let spared = subject.extents_of_other_sides();
    let paths = world.device(1).files().into_iter().map(|(path, _)| path);
    let log: Vec<String> = paths.filter(|path| subject.is_of_other_history(path)).collect();
    assert!(!spared.is_empty() && !log.is_empty(), "{spared:?}, {log:?}");
    drop(subject);
    log.iter().for_each(|path| world.device(1).make_unreadable(path, 0, 1 << 20));
    let subject = Simulated::open(&settings, &world).unwrap();
    let options = CompactOptions { choice: Choice::All, ..CompactOptions::default() };
    subject.store().compact(&options, &Progress::default()).unwrap();
    drop(subject);
    log.iter().for_each(|path| world.device(1).make_readable(path));
    let subject = Simulated::open(&settings, &world).unwrap();
    assert_eq!(subject.extents_of_other_sides(), spared);
    for (device, path) in spared {
        let is_there = world.device(device).files().iter().any(|(there, _)| *there == path);
        assert!(is_there, "{path} of device {device}");
    }
}
