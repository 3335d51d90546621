//! A device with copies of the log fails while a writer runs, at each of its operations: the writer goes on without it,
//! and everything acknowledged survives, whether the device returns, never returns, or the others are missing then.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use rustix::io::Errno;

use super::{bytes, file, key};
use crate::devices::threads::without_threads;
use crate::engine::locking::Access;
use crate::error::ErrorKind;
use crate::format::ids::DeviceNumber;
use crate::layout::granulo::Alignment;
use crate::simulation::device::SimulatedDevice;
use crate::simulation::mishap::Absence;
use crate::simulation::subject::{Simulated, geometry, home};
use crate::simulation::trial::Subject;
use crate::simulation::world::{Fault, World};
use crate::{CompactOptions, Durability, Geometry, OpenOptions, Progress, RepairOptions, Store};

/// Objects and their content.
type Objects = BTreeMap<String, Vec<u8>>;

/// Mirrors with two and with three copies, and three devices for two copies.
fn mirrors() -> [Geometry; 3] {
    [geometry(2, 0, 2, (1, 1)), geometry(3, 0, 3, (1, 2)), geometry(3, 0, 2, (2, 1))]
}

/// A store in which something was written, and the device with the first copy of its active segment.
fn written(settings: &Geometry, seed: u64) -> (World, Simulated, Objects, usize) {
    let world = World::new(Simulated::devices(settings), seed);
    let subject = Simulated::create(settings, &world).unwrap();
    let mut there = Objects::new();
    put(subject.store(), &mut there, "before", 3);
    let row = subject.store().engine().view().state.segments.values().next_back().cloned().unwrap();
    let device = row.devices[seed as usize % row.devices.len()].index();
    (world, subject, there, device)
}

/// Puts objects in one durable batch.
fn put(store: &Store, there: &mut Objects, name: &str, count: u64) {
    let mut batch = store.batch(Durability::Batch);
    let content = |number: u64| bytes(number, 700 + 1000 * (number as usize % 5));
    for number in 0..count {
        batch.put(&key(&format!("{name}/{number}")), &file(), &content(number)).unwrap();
    }
    batch.commit().unwrap();
    there.extend((0..count).map(|number| (format!("{name}/{number}"), content(number))));
}

/// Batches, with segments begun and sorted tables written between them; `acknowledged` gets what is durable.
fn work(store: &Store, there: &mut Objects, acknowledged: &Mutex<Objects>) {
    for round in 0..4 {
        put(store, there, &format!("batch {round}"), 9);
        *acknowledged.lock().unwrap() = there.clone();
    }
    for number in 0..2 {
        let mut batch = store.batch(Durability::None);
        let (name, content) = (format!("none/{number}"), bytes(number, 2000));
        batch.put(&key(&name), &file(), &content).unwrap();
        batch.commit().unwrap();
        there.insert(name, content);
    }
    store.sync().unwrap();
    *acknowledged.lock().unwrap() = there.clone();
    store.create_snapshot("s").map(drop).unwrap();
    assert!(store.remove(&key("before/0")).unwrap());
    there.remove("before/0");
    *acknowledged.lock().unwrap() = there.clone();
}

fn lacking(store: &Store, there: &Objects) -> Vec<String> {
    let is_lacking = |(name, content): &(&String, &Vec<u8>)| {
        !store.get(&key(name)).is_ok_and(|found| found.as_ref() == Some(content))
    };
    there.iter().filter(is_lacking).map(|(name, _)| name.clone()).collect()
}

/// A writer opens, finds everything and nothing missing; returns the devices that it is without.
fn open(settings: &Geometry, world: &World, there: &Objects) -> (Simulated, Vec<DeviceNumber>) {
    open_without(settings, world, there, None)
}

/// The same without waiting for a device.
fn open_without(
    settings: &Geometry,
    world: &World,
    there: &Objects,
    lost: Option<DeviceNumber>,
) -> (Simulated, Vec<DeviceNumber>) {
    let how = OpenOptions { lost, ..OpenOptions::default() };
    let opened = Simulated::open_how(&home(settings), world, Access::Write, &how).unwrap();
    let completeness = opened.store().completeness();
    assert!(completeness.missing.is_empty(), "{:?}", completeness.lines());
    assert_eq!(lacking(opened.store(), there), [""; 0]);
    let out = opened.out_of_service();
    (opened, out)
}

/// What becomes of the store after the writer went on without `device`, which may be out of service.
fn survives(settings: &Geometry, world: &World, there: &Objects, device: usize, is_out: bool) {
    let seed = world.operations();
    world.clear_faults();
    let (lost, others) = (DeviceNumber(device as u16), (0..settings.devices.len()).filter(|other| *other != device));
    let crashed = || world.after_power_failure(seed);
    // It never returns.
    let left = crashed();
    left.detach(device, Absence::Missing, seed);
    assert_eq!(open_without(settings, &left, there, Some(lost).filter(|_| !is_out)).1, [lost]);
    // It returns: it is up to date, or a stale prefix that a repair brings up to date.
    let left = crashed();
    let (back, out) = open(settings, &left, there);
    assert!(out.is_empty() != is_out && out.iter().all(|out| *out == lost), "{out:?}");
    drop(back);
    let repaired = Simulated::repair(&home(settings), &left, RepairOptions::default(), None).unwrap();
    assert_eq!(repaired.left(), None);
    assert_eq!(open(settings, &left, there).1, []);
    let other = others.clone().next().unwrap();
    left.detach(other, Absence::Missing, seed);
    let other_number = DeviceNumber(other as u16);
    assert_eq!(open_without(settings, &left, there, Some(other_number)).1, [other_number]);
    // It returns alone: it does not have what was acknowledged without it, and says so.
    let left = crashed();
    others.clone().for_each(|other| _ = left.detach(other, Absence::Missing, seed));
    refuses(settings, &left);
    // One of two that went on returns alone: the other may have what it lacks. It shows what it has.
    let left = crashed();
    if is_out && settings.devices.len() > 2 {
        left.detach(device, Absence::Missing, seed);
        left.detach(other, Absence::Missing, seed);
        refuses(settings, &left);
        if settings.copies == 3 {
            let reader = Simulated::open_as(&home(settings), &left, Access::Read).unwrap();
            assert_eq!(lacking(reader.store(), there), [""; 0]);
        }
    }
}

fn refuses(settings: &Geometry, world: &World) {
    let error = Simulated::open(settings, world).map(|_| ()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
}

/// Works while a fault occurs `operations` after the beginning; returns whether it did.
fn goes_on(settings: &Geometry, seed: u64, operations: u64, is_lasting: bool) -> bool {
    let (world, subject, mut there, device) = written(settings, seed);
    let operation = world.operations() + operations;
    world.fail(Fault { operation, errno: Errno::IO, is_lasting, device: Some(device) });
    let acknowledged = Mutex::new(there.clone());
    work(subject.store(), &mut there, &acknowledged);
    assert!(subject.store().engine().latched().is_none());
    let out = subject.out_of_service();
    survives(settings, &world, &there, device, !out.is_empty());
    // Closed, and not crashed.
    drop(subject);
    assert_eq!(open(settings, &world.after_shutdown(), &there).1, out);
    world.failures() > 0
}

#[test]
fn a_writer_goes_on_without_a_copy_whatever_operation_fails_on_it() {
    without_threads(|| {
        for settings in mirrors() {
            for is_lasting in [false, true] {
                for seed in 0..settings.copies.into() {
                    let tried = (0..).step_by(if is_lasting { 3 } else { 1 });
                    let tried = tried.take_while(|&operations| goes_on(&settings, seed, operations, is_lasting));
                    assert!(tried.count() > 20);
                }
            }
        }
    });
}

/// Before each operation after the fault, the power fails: what was acknowledged until then is there.
#[test]
fn what_was_acknowledged_beside_a_failing_copy_survives_a_crash_at_any_time() {
    without_threads(|| {
        for settings in mirrors() {
            for operations in (0..60).step_by(5) {
                let (world, subject, mut there, device) = written(&settings, operations);
                let operation = world.operations() + operations;
                world.fail(Fault {
                    operation,
                    errno: Errno::IO,
                    is_lasting: operations % 2 == 0,
                    device: Some(device),
                });
                let acknowledged = Arc::new(Mutex::new(there.clone()));
                let (known, of_crash) = (Arc::clone(&acknowledged), settings.clone());
                world.observe(move |world, operation| {
                    let there = known.lock().unwrap().clone();
                    open_or_refused(&of_crash, &world.after_power_failure(operation), &there, None);
                    open_or_refused(&of_crash, &world.after_power_failure(operation), &there, Some(device));
                });
                work(subject.store(), &mut there, &acknowledged);
                world.stop_observing();
            }
        }
    });
}

/// A writer finds what was acknowledged, but for a removal that is on its way; without `away`, it may have to wait for
/// that device, until others have the epoch without it.
fn open_or_refused(settings: &Geometry, left: &World, there: &Objects, away: Option<usize>) {
    if let Some(device) = away {
        left.detach(device, Absence::Missing, 1);
    }
    match Simulated::open(settings, left) {
        Ok(opened) => {
            assert!(opened.store().completeness().missing.is_empty(), "{:?}", opened.store().completeness().lines());
            let lacking = lacking(opened.store(), there);
            assert!(lacking.iter().all(|name| name == "before/0"), "{lacking:?}");
        }
        Err(error) => assert!(away.is_some() && error.kind() == ErrorKind::Lost, "{error}"),
    }
}

/// Everything on the device fails, reads too; or it is unmounted, or its directory is gone.
#[test]
fn a_writer_goes_on_without_a_device_that_is_gone() {
    without_threads(|| {
        for settings in mirrors() {
            for absence in [Absence::Failing, Absence::Missing, Absence::Unmounted] {
                for seed in 0..4 {
                    let (world, subject, mut there, device) = written(&settings, seed);
                    let detached = world.detach(device, absence, seed);
                    work(subject.store(), &mut there, &Mutex::default());
                    assert_eq!(subject.out_of_service(), [DeviceNumber(device as u16)], "{absence:?}");
                    assert_eq!(lacking(subject.store(), &there), [""; 0]);
                    world.attach(device, &detached);
                    survives(&settings, &world, &there, device, true);
                }
            }
        }
    });
}

/// A snapshot, a mark and a compaction meet the failure first.
#[test]
fn whoever_meets_the_failure_first_goes_on() {
    type Meets = fn(&Store);
    let all: [Meets; 5] = [
        |store| store.create_snapshot("t").map(drop).unwrap(),
        |store| store.sync().unwrap(),
        |store| store.engine().pin_named("pin").unwrap(),
        |store| {
            let options = CompactOptions { choice: crate::Choice::All, is_alone: true, ..CompactOptions::default() };
            store.compact(&options, &Progress::default()).map(drop).unwrap();
        },
        |store| {
            let handle = store.open_object(&key("before/1"), &crate::HandleOptions::write()).unwrap();
            handle.write_at(b"written", 3).unwrap();
            handle.commit(Durability::Batch).unwrap();
        },
    ];
    for settings in mirrors() {
        for (seed, meets) in (0..).zip(all) {
            let (world, subject, mut there, device) = written(&settings, seed);
            world.detach(device, Absence::Missing, seed);
            meets(subject.store());
            put(subject.store(), &mut there, "after", 3);
            let out = subject.out_of_service();
            // Of three devices, two others may have taken everything.
            assert!(out == [DeviceNumber(device as u16)] || out.is_empty() && settings.devices.len() > 2, "{out:?}");
            if seed == 4 {
                there.get_mut("before/1").unwrap()[3..10].copy_from_slice(b"written");
            }
            let left = world.after_power_failure(seed);
            open(&settings, &left, &there);
        }
    }
}

/// Threads share a round of syncs, one of which fails: all of them are acknowledged, and have their batches.
#[test]
fn threads_that_commit_together_go_on_together() {
    for settings in mirrors() {
        for operations in (0..40).step_by(3) {
            let (world, subject, mut there, device) = written(&settings, operations);
            let operation = world.operations() + operations;
            world.fail(Fault { operation, errno: Errno::IO, is_lasting: true, device: Some(device) });
            let store = subject.store();
            let of_threads = std::thread::scope(|scope| {
                let work = |thread: u64| {
                    scope.spawn(move || {
                        let mut there = Objects::new();
                        (0..4).for_each(|round| put(store, &mut there, &format!("{thread} in {round}"), 2));
                        there
                    })
                };
                let threads: Vec<_> = (0..4).map(work).collect();
                threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Objects>()
            });
            there.extend(of_threads);
            let left = world.after_power_failure(operations);
            left.detach(device, Absence::Missing, 1);
            open(&settings, &left, &there);
        }
    }
}

/// A freed segment would leave fewer copies of what was in it than there were.
#[test]
fn a_compaction_that_loses_a_device_frees_nothing_with_more_copies() {
    let settings = geometry(2, 0, 2, (1, 1));
    for operations in 0..60 {
        let (world, subject, mut there, device) = written(&settings, operations);
        put(subject.store(), &mut there, "more", 20);
        let before = subject.store().engine().view().state.segments.clone();
        let operation = world.operations() + operations;
        world.fail(Fault { operation, errno: Errno::IO, is_lasting: true, device: Some(device) });
        let options = CompactOptions { choice: crate::Choice::All, is_alone: true, ..CompactOptions::default() };
        let compacted = subject.store().compact(&options, &Progress::default()).unwrap();
        let rows = subject.store().engine().view().state.segments.clone();
        let freed = before.keys().filter(|number| !rows.contains_key(number)).count();
        if !subject.out_of_service().is_empty() && freed > 0 {
            // What was moved had been synced on both devices when that one failed.
            let image = world.image(device);
            let is_there = |number: &&crate::format::ids::SegmentNumber| {
                image.keys().any(|path| path.starts_with(&format!("segments/{:016x}", number.0)))
            };
            assert!(rows.keys().any(|number| is_there(&number)), "{operations}: {compacted:?}");
        }
        survives(&settings, &world, &there, device, !subject.out_of_service().is_empty());
    }
}

/// An epoch that begins because a device fails while another geometry is written has that geometry, too.
#[test]
fn another_geometry_stays_although_a_device_fails_while_it_is_written() {
    for settings in mirrors() {
        for operations in 0..60 {
            let (world, subject, there, device) = written(&settings, operations);
            let operation = world.operations() + operations;
            world.fail(Fault { operation, errno: Errno::IO, is_lasting: true, device: Some(device) });
            let options = CompactOptions { alignment: Some(Alignment::Page), ..CompactOptions::default() };
            // Files on the device that failed cannot be removed, after all else is done.
            let compacted = subject.store().compact(&options, &Progress::default());
            assert!(compacted.as_ref().err().is_none_or(|error| error.operation() == "remove"), "{compacted:?}");
            let left = world.after_power_failure(operations);
            if !subject.out_of_service().is_empty() {
                left.detach(device, Absence::Missing, 1);
            }
            let (subject, _) = open(&settings, &left, &there);
            assert_eq!(subject.store().geometry().alignment, Alignment::Page, "{operations}");
        }
    }
}

/// Without redundancy for it, nothing more is written: as if all copies had failed.
#[test]
fn the_last_copies_latch_the_store() {
    for (settings, lost) in [(geometry(1, 0, 1, (1, 0)), 0..1), (geometry(2, 0, 2, (1, 1)), 0..2)] {
        let (world, subject, mut there, _) = written(&settings, 1);
        let device: fn(&World, usize) -> Arc<SimulatedDevice> = World::device;
        for number in lost {
            device(&world, number).lose();
        }
        let store = subject.store();
        assert!(store.put(&key("lost"), &file(), b"lost").is_err());
        let latched = store.engine().latched().is_some();
        assert!(latched || store.put(&key("lost"), &file(), b"lost").is_err());
        let (world, subject, ..) = written(&settings, 1);
        world.fail(Fault { operation: 0, errno: Errno::IO, is_lasting: true, device: None });
        assert!(subject.store().put(&key("lost"), &file(), b"lost").is_err());
        assert!(subject.store().engine().latched().is_some());
        world.clear_faults();
        drop(subject);
        put(Simulated::open(&settings, &world).unwrap().store(), &mut there, "after", 1);
    }
}

/// One device after the other, as far as copies go.
#[test]
fn three_copies_bear_the_loss_of_two_devices() {
    let settings = geometry(3, 0, 3, (1, 2));
    for seed in 0..6 {
        let (world, subject, mut there, first) = written(&settings, seed);
        let second = (first + 1) % 3;
        for device in [first, second] {
            world.detach(device, Absence::Failing, seed);
            put(subject.store(), &mut there, &format!("without {device}"), 5);
        }
        let left = world.after_power_failure(seed);
        assert_eq!(open(&settings, &left, &there).1.len(), 2);
        let last = 3 - first - second;
        world.detach(last, Absence::Failing, seed);
        assert!(subject.store().put(&key("lost"), &file(), b"lost").is_err());
    }
}

/// A reader of another process sees what is acknowledged with and without the device.
#[test]
fn readers_follow_a_writer_that_goes_on() {
    let settings = geometry(2, 0, 2, (1, 1));
    let (world, subject, mut there, device) = written(&settings, 1);
    let reader = Simulated::open_as(&home(&settings), &world, Access::Read).unwrap();
    world.detach(device, Absence::Failing, 1);
    for round in 0..3 {
        put(subject.store(), &mut there, &format!("round {round}"), 40);
        let how = OpenOptions::default();
        let late = Simulated::open_how(Path::new(&home(&settings)), &world, Access::Read, &how).unwrap();
        for reader in [&reader, &late] {
            reader.store().refresh().unwrap();
            assert_eq!(lacking(reader.store(), &there), [""; 0]);
        }
    }
}
