//! Tests of scrubbing the index: damage at any place of any copy is found, reported, and repaired: from another copy,
//! or from the log.

use std::collections::BTreeMap;
use std::time::Duration;

use rustix::io::Errno;

use super::Scrubber;
use crate::engine::locking::Access;
use crate::engine::pace::{Pace, outcome};
use crate::format::ids::DeviceNumber;
use crate::format::names::segment_path;
use crate::maintain::problem::{Problem, ProblemKind};
use crate::simulation::mishap::{FileKind, Rot};
use crate::simulation::subject::{Simulated, geometry, home};
use crate::simulation::trial::Subject;
use crate::simulation::world::{Fault, World};
use crate::{Attributes, Durability, Geometry, Key, Progress, RepairOptions};

const PAGE_BYTES: u64 = 4096;
/// Several tables, and some recent changes.
const OBJECTS: u64 = 300;

fn key(number: u64) -> Key {
    Key::parse(format!("directory/{number}")).unwrap()
}

fn made(geometry: &Geometry) -> World {
    let world = World::new(Simulated::devices(geometry), 1);
    let subject = Simulated::create(geometry, &world).unwrap();
    for first in (0..OBJECTS).step_by(30) {
        let mut batch = subject.store().batch(Durability::Batch);
        for number in first..first + 30 {
            batch.put(&key(number), &Attributes::default(), &number.to_le_bytes()).unwrap();
        }
        batch.commit().unwrap();
    }
    world
}

/// The files of the index on a device, with their sizes.
fn files(world: &World, device: usize) -> Vec<(String, u64)> {
    let files = world.device(device).files();
    files.into_iter().filter(|(path, size)| FileKind::of(path).is_of_index() && *size > 0).collect()
}

/// The tables on a device.
fn tables(world: &World, device: usize) -> BTreeMap<String, Vec<u8>> {
    let tables = files(world, device).into_iter().filter(|(path, _)| FileKind::of(path) == FileKind::Table);
    tables.map(|(path, _)| (path.clone(), world.device(device).content(&path))).collect()
}

fn all_there(subject: &Simulated) {
    for number in 0..OBJECTS {
        assert!(subject.store().entry(&key(number)).unwrap().is_some(), "{number}");
    }
    assert_eq!(subject.check_all(), Vec::<String>::new());
}

fn only(problems: &[(Problem, bool)], path: &str, kind: ProblemKind) {
    let [(problem, true)] = problems else { panic!("{path}: {problems:?}") };
    assert!(problem.kind == kind && problem.device == Some(DeviceNumber(1)), "{path}: {problem}");
}

#[test]
fn a_bit_that_flips_in_one_copy_of_a_table_is_found_and_made_good() {
    let geometry = geometry(2, 0, 2, (2, 0));
    let world = made(&geometry);
    let sound = tables(&world, 0);
    let mut subject = Simulated::open(&geometry, &world).unwrap();
    let mut places = 0;
    for (path, size) in files(&world, 1).into_iter().filter(|(path, _)| FileKind::of(path) == FileKind::Table) {
        for page in 0..size / PAGE_BYTES {
            world.device(1).flip_bit(&path, (page * PAGE_BYTES + 37 * page % PAGE_BYTES) * 8 + page % 8);
            let (next, report, problems) = subject.scrub_and_rebuild().unwrap();
            only(&problems, &path, ProblemKind::Table);
            assert_eq!((report.found, report.repaired, report.is_complete), (1, 1, true), "{path}");
            assert!(!report.is_index_lost);
            assert_eq!(tables(&world, 1), sound, "{path}");
            assert_eq!(tables(&world, 0), sound, "{path}");
            (subject, places) = (next, places + 1);
        }
    }
    assert!(places > 5 && sound.len() > 1, "{places} places of {} tables", sound.len());
    all_there(&subject);
}

#[test]
fn a_bit_that_flips_in_one_copy_of_manifest_or_journal_is_found_and_made_good() {
    let geometry = geometry(2, 0, 2, (2, 0));
    let world = made(&geometry);
    let mut subject = Simulated::open(&geometry, &world).unwrap();
    for kind in [FileKind::Manifest, FileKind::Journal] {
        for seed in 0..20 {
            // The journal has frames.
            subject.store().put(&key(OBJECTS + seed), &Attributes::default(), b"content").unwrap();
            subject.sync().unwrap();
            let (path, at) = world.rot(1, kind, Rot::Bit, seed).unwrap();
            let (next, report, problems) = subject.scrub_and_rebuild().unwrap();
            only(&problems, &format!("{path} at {at}"), ProblemKind::Catalog);
            assert_eq!((report.found, report.repaired), (1, 1));
            subject = next;
            assert_eq!(files(&world, 0), files(&world, 1));
            let (_, report, problems) =
                Simulated::open(&geometry, &world.after_kill(1)).unwrap().scrub_and_rebuild().unwrap();
            assert!(report.found == 0 && problems.is_empty(), "{problems:?}");
        }
    }
    all_there(&subject);
}

#[test]
fn a_file_of_the_index_that_is_gone_or_truncated_comes_back() {
    let geometry = geometry(2, 0, 2, (2, 0));
    let world = made(&geometry);
    let mut subject = Simulated::open(&geometry, &world).unwrap();
    for turn in 0..2 {
        for (path, size) in files(&world, 1) {
            // A file may have been removed as another was created.
            if !files(&world, 1).iter().any(|(there, _)| *there == path) {
                continue;
            }
            match turn {
                0 => world.device(1).delete(&path),
                _ => world.device(1).truncate(&path, size / 2),
            }
            let (next, report, _) = subject.scrub_and_rebuild().unwrap();
            assert_eq!((report.found, report.repaired), (1, 1), "{path}");
            assert_eq!(tables(&world, 1), tables(&world, 0), "{path}");
            subject = next;
        }
    }
    all_there(&subject);
}

#[test]
fn what_is_damaged_in_the_only_copy_of_the_index_comes_from_the_log() {
    let geometry = geometry(1, 0, 1, (1, 0));
    for kind in [FileKind::Table, FileKind::Manifest, FileKind::Journal] {
        for seed in 0..12 {
            let world = made(&geometry);
            let mut subject = Simulated::open(&geometry, &world).unwrap();
            subject.store().put(&key(OBJECTS), &Attributes::default(), b"content").unwrap();
            subject.sync().unwrap();
            let what = world.rot(0, kind, Rot::Bit, seed).unwrap();
            let is_last = world.device(0).content(&what.0).len() as u64 - what.1 <= PAGE_BYTES;
            let (subject, report, problems) = subject.scrub_and_rebuild().unwrap();
            assert_eq!((report.found, report.repaired, report.is_complete), (1, 1, true), "{what:?}");
            // The content of manifest and journal is in memory, too, and so is the last page of a table.
            assert_eq!(report.is_index_lost, kind == FileKind::Table && !is_last, "{what:?}: {problems:?}");
            assert!(problems.len() == 1 && problems[0].1, "{problems:?}");
            all_there(&subject);
            assert_eq!(subject.store().last_scrub().unwrap().report.found, 1);
            drop(subject);
            all_there(&Simulated::open_as(&home(&geometry), &world, Access::Read).unwrap());
        }
    }
}

#[test]
fn a_scrub_without_another_opening_says_that_the_index_is_lost_and_ends() {
    let geometry = geometry(1, 0, 1, (1, 0));
    let world = made(&geometry);
    let subject = Simulated::open(&geometry, &world).unwrap();
    world.rot(0, FileKind::Table, Rot::Bit, 3).unwrap();
    let (left, report) = subject.scrub_until(None).unwrap();
    assert!(report.is_index_lost && left.len() == 1, "{left:?}");
    assert_eq!(subject.store().last_scrub(), None);
}

/// A device without room for the copy of a table, or where nothing can be written.
#[test]
fn a_copy_that_cannot_be_written_does_not_end_a_scrub() {
    let geometry = geometry(2, 0, 2, (2, 0));
    for (errno, kind) in [Errno::NOSPC, Errno::IO]
        .into_iter()
        .flat_map(|errno| [FileKind::Table, FileKind::Manifest].into_iter().map(move |kind| (errno, kind)))
    {
        let world = made(&geometry);
        let subject = Simulated::open(&geometry, &world).unwrap();
        world.rot(1, kind, Rot::Bit, 5).unwrap();
        let (path, at) = world.rot(1, FileKind::Segment, Rot::Bit, 9).unwrap();
        world.fail(Fault { operation: 0, errno, is_lasting: true, device: Some(1) });
        let what = format!("{errno:?}, {kind:?}, {path} at {at}");
        let (left, report) = subject.scrub_until(None).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(report.is_complete && report.failed > 0, "{what}: {report:?}");
        assert!(left.iter().any(|left| left.contains("index")), "{what}: {left:?}");
        assert!(left.iter().any(|left| left.contains("segments")), "{what}: {left:?}");
        drop(subject);
        world.clear_faults();
        // A device that failed is brought up to date first.
        Simulated::repair(&home(&geometry), &world, RepairOptions::default(), None).unwrap();
        let subject = Simulated::open(&geometry, &world).unwrap();
        assert_eq!(subject.scrub_until(None).unwrap().0, Vec::<String>::new(), "{what}");
        all_there(&subject);
    }
}

/// Nor does a stripe unit.
#[test]
fn a_unit_that_cannot_be_written_does_not_end_a_scrub() {
    let geometry = geometry(1, 3, 1, (2, 1));
    for errno in [Errno::NOSPC, Errno::IO] {
        let world = World::new(Simulated::devices(&geometry), 1);
        let subject = Simulated::create(&geometry, &world).unwrap();
        let large = |number: u64| (key(number), vec![number as u8; 300_000]);
        for (key, content) in (0..3).map(large) {
            subject.store().put(&key, &Attributes::default(), &content).unwrap();
        }
        let devices = [1, 2].map(|device| {
            let (path, at) = world.rot(device, FileKind::Extent, Rot::Bit, 5).unwrap();
            format!("{path} of device {device} at {at}")
        });
        world.fail(Fault { operation: 0, errno, is_lasting: true, device: Some(1) });
        let (left, report) = subject.scrub_until(None).unwrap_or_else(|error| panic!("{errno:?}: {error}"));
        assert!(report.is_complete && (report.found, report.repaired, report.failed) == (2, 1, 1), "{report:?}");
        assert!(left.len() == 1 && left[0].contains("it was not repaired: "), "{left:?} of {devices:?}");
        drop(subject);
        world.clear_faults();
        Simulated::repair(&home(&geometry), &world, RepairOptions::default(), None).unwrap();
        let subject = Simulated::open(&geometry, &world).unwrap();
        assert_eq!(subject.scrub_until(None).unwrap().0, Vec::<String>::new());
        for (key, content) in (0..3).map(large) {
            assert!(subject.store().get(&key).unwrap() == Some(content), "{key}");
        }
    }
}

#[test]
fn all_of_the_index_is_counted() {
    let geometry = geometry(2, 0, 2, (2, 0));
    let world = made(&geometry);
    let subject = Simulated::open(&geometry, &world).unwrap();
    let stored: u64 = (0..2).flat_map(|device| files(&world, device)).map(|(_, size)| size).sum();
    let (_, report, _) = subject.scrub_and_rebuild().unwrap();
    assert_eq!(report.index_bytes, stored);
}

#[test]
fn blocks_that_are_damaged_in_both_copies_are_made_good_if_they_are_not_the_same() {
    let geometry = geometry(2, 0, 2, (2, 0));
    let world = made(&geometry);
    let subject = Simulated::open(&geometry, &world).unwrap();
    let sound = tables(&world, 0);
    let (path, size) = files(&world, 0).into_iter().max_by_key(|(_, size)| *size).unwrap();
    assert!(size >= 3 * PAGE_BYTES);
    world.device(0).flip_bit(&path, 8 * 100);
    world.device(1).flip_bit(&path, 8 * (PAGE_BYTES + 100));
    let (_, report, _) = subject.scrub_and_rebuild().unwrap();
    assert_eq!((report.found, report.repaired, report.is_index_lost), (2, 2, false));
    assert_eq!((tables(&world, 0), tables(&world, 1)), (sound.clone(), sound));
}

/// Two of three copies are damaged, and one of them cannot be opened for writing.
#[test]
fn a_copy_that_cannot_be_opened_for_writing_is_not_said_to_be_repaired() {
    let geometry = geometry(3, 0, 3, (2, 0));
    let world = World::new(Simulated::devices(&geometry), 1);
    let subject = Simulated::create(&geometry, &world).unwrap();
    let store = subject.store();
    store.put(&key(0), &Attributes::default(), b"content").unwrap();
    store.engine().close_active_segment().unwrap();
    let at = store.entry(&key(0)).unwrap().unwrap().entry.location;
    let path = segment_path(store.engine().segment_id(at.segment));
    for device in [1, 2] {
        world.device(device).flip_bit(&path, 8 * (at.offset.0 + 60));
    }
    world.device(2).set_writable(&path, false);
    let (subject, report, problems) = subject.scrub_and_rebuild().unwrap();
    let repaired: Vec<_> = problems.iter().map(|(problem, is_repaired)| (problem.device, *is_repaired)).collect();
    assert_eq!(repaired, [(Some(DeviceNumber(1)), true), (Some(DeviceNumber(2)), false)]);
    assert_eq!((report.found, report.repaired, report.failed), (2, 1, 0));
    assert!(problems[1].0.cause.contains("it was not repaired"), "{problems:?}");
    world.device(2).set_writable(&path, true);
    let (left, report) = subject.scrub_until(None).unwrap();
    assert_eq!((left, report.found, report.repaired), (vec![], 1, 1));
}

/// Damage is reported at the end of its segment, so the scrub resumes before it.
#[test]
fn a_scrub_that_is_resumed_finds_what_it_found_before_it_was_interrupted() {
    let geometry = geometry(1, 0, 1, (1, 0));
    let world = World::new(Simulated::devices(&geometry), 1);
    let subject = Simulated::create(&geometry, &world).unwrap();
    let store = subject.store();
    for number in 0..4 {
        store.put(&key(number), &Attributes::default(), &[1; 1000]).unwrap();
    }
    let at = store.entry(&key(0)).unwrap().unwrap().entry.location;
    world.device(0).flip_bit(&segment_path(store.engine().segment_id(at.segment)), 8 * (at.offset.0 + 500));
    let progress = Progress::observed(|progress| {
        let seen = progress.snapshot();
        if seen.stage.name == "scrubbing" && seen.bytes > 2000 {
            progress.stop();
        }
    });
    let mut found = |_: &Problem, _| {};
    let mut scrubber = Scrubber::new(store.engine(), &mut found, true);
    scrubber.noted_every = Duration::ZERO;
    let ended = outcome(scrubber.scrub(None, &mut Pace::new(None, &progress)));
    assert!(!ended.unwrap(), "it was to be interrupted");
    let (left, report) = subject.scrub_until(None).unwrap();
    assert_eq!((left.len(), report.found, report.is_complete), (1, 1, true), "{left:?}");
}
