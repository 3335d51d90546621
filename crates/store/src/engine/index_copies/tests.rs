//! Tests of copies of the index: whichever device is lost, look-ups cost the same as before, and what is damaged or
//! missing is repaired.

use crate::devices::device::Device;
use crate::engine::locking::Access;
use crate::engine::sync::RECENT_LIMIT_BYTES;
use crate::format::ids::DeviceNumber;
use crate::index::catalog::manifest;
use crate::index::table::INDEX_DIRECTORY;
use crate::index::table::table_number;

use crate::simulation::mishap::{Absence, FileKind, Rot};
use crate::simulation::subject::{Simulated, geometry, home};
use crate::simulation::trial::Subject;
use crate::simulation::world::{Fault, World};
use crate::{Attributes, Durability, Geometry, Key, Store};

/// More than enough for a table.
const OBJECTS: u64 = 300;

fn key(number: u64) -> Key {
    Key::parse(format!("directory/{number}")).unwrap()
}

fn put(store: &Store, numbers: std::ops::Range<u64>) {
    let mut batch = store.batch(Durability::Batch);
    for number in numbers {
        batch.put(&key(number), &Attributes::default(), &number.to_le_bytes()).unwrap();
    }
    batch.commit().unwrap();
}

/// A store with tables and recent changes.
fn made(geometry: &Geometry) -> World {
    let world = World::new(Simulated::devices(geometry), 1);
    let subject = Simulated::create(geometry, &world).unwrap();
    for first in (0..OBJECTS).step_by(30) {
        put(subject.store(), first..first + 30);
    }
    drop(subject);
    world
}

/// Number of reads of the log to open the store and look everything up.
fn reads(geometry: &Geometry, world: &World) -> u64 {
    let before = world.reads(FileKind::Segment);
    let subject = Simulated::open_as(&home(geometry), world, Access::Read).unwrap();
    for number in 0..OBJECTS {
        assert!(subject.store().entry(&key(number)).unwrap().is_some(), "{number}");
    }
    assert!(subject.store().entry(&key(OBJECTS)).unwrap().is_none());
    world.reads(FileKind::Segment) - before
}

#[test]
fn after_the_loss_of_any_allowed_set_look_ups_take_what_they_did() {
    for (geometry, lost) in [
        (geometry(2, 0, 2, (2, 0)), vec![vec![0], vec![1]]),
        (geometry(2, 3, 2, (2, 1)), vec![vec![0], vec![1]]),
        (geometry(3, 5, 3, (2, 2)), vec![vec![0, 1], vec![1, 2], vec![0, 2]]),
    ] {
        let world = made(&geometry);
        let whole = reads(&geometry, &world);
        for set in lost {
            let away: Vec<_> =
                set.iter().map(|&device| (device, world.detach(device, Absence::Unmounted, 1))).collect();
            assert!(reads(&geometry, &world) <= whole, "without {set:?}: {whole} reads with all");
            away.iter().for_each(|(device, detached)| world.attach(*device, detached));
            // Also if only the index is gone.
            let before: Vec<_> = set.iter().map(|&device| (device, world.image(device))).collect();
            set.iter().for_each(|&device| world.lose_index(device));
            assert!(reads(&geometry, &world) <= whole, "without the index of {set:?}: {whole} reads with all");
            // The next writer completes them.
            drop(Simulated::open(&geometry, &world).unwrap());
            for (device, image) in before {
                let tables = |image: &crate::simulation::mishap::Image| {
                    image.keys().filter(|path| FileKind::of(path) == FileKind::Table).cloned().collect::<Vec<_>>()
                };
                assert!(!tables(&image).is_empty());
                assert_eq!(tables(&world.image(device)), tables(&image), "device {device}");
            }
        }
    }
}

#[test]
fn what_is_damaged_in_one_copy_is_read_from_the_other_reported_and_repaired() {
    let geometry = geometry(2, 0, 2, (2, 0));
    for kind in [FileKind::Table, FileKind::Manifest, FileKind::Journal] {
        for seed in 0..6 {
            let world = made(&geometry);
            let device = (seed % 2) as usize;
            let rot = if seed % 3 == 0 { Rot::Unreadable } else { Rot::Bit };
            let Some(place) = world.rot(device, kind, rot, seed) else { continue };
            let what = format!("{kind:?} at {place:?} of device {device}");
            reads(&geometry, &world);
            let reader = Simulated::open_as(&home(&geometry), &world, Access::Read).unwrap();
            assert!(!reader.check_all().is_empty(), "{what}: not found");
            drop(reader);
            let left = Simulated::repair(&home(&geometry), &world, Default::default(), None).unwrap().left();
            let reader = Simulated::open_as(&home(&geometry), &world, Access::Read).unwrap();
            assert_eq!(reader.check_all(), Vec::<String>::new(), "{what}");
            assert_eq!(left, None, "{what}");
        }
    }
}

#[test]
fn the_manifest_names_the_devices_that_have_copies_and_no_others() {
    let geometry = geometry(2, 3, 2, (2, 1));
    let world = made(&geometry);
    for (away, left) in [(1, 0), (0, 1)] {
        let detached = world.detach(away, Absence::Unmounted, 1);
        let subject = Simulated::open(&geometry, &world).unwrap();
        assert_eq!(**subject.store().engine().catalog.state().devices, [DeviceNumber(left)]);
        drop(subject);
        let reader = Simulated::open_as(&home(&geometry), &world, Access::Read).unwrap();
        assert_eq!(reader.store().engine().index.numbers(), [DeviceNumber(left)]);
        drop(reader);
        world.attach(away, &detached);
        assert_eq!(Simulated::repair(&home(&geometry), &world, Default::default(), None).unwrap().left(), None);
        let reader = Simulated::open_as(&home(&geometry), &world, Access::Read).unwrap();
        assert_eq!(reader.store().engine().index.numbers(), [0, 1].map(DeviceNumber));
    }
}

#[test]
fn status_says_on_which_devices_the_index_is() {
    let geometry = geometry(2, 3, 2, (2, 1));
    let world = made(&geometry);
    let said = |access| {
        let subject = Simulated::open_as(&home(&geometry), &world, access).unwrap();
        subject.store().status(false).unwrap().index_devices
    };
    assert_eq!(said(Access::Read), [0, 1].map(DeviceNumber));
    world.lose_index(0);
    assert_eq!(said(Access::Read), [DeviceNumber(1)]);
    assert_eq!(said(Access::Write), [0, 1].map(DeviceNumber));
    (0..2).for_each(|device| world.lose_index(device));
    assert_eq!(said(Access::Read), []);
}

#[test]
fn whatever_fails_once_while_a_table_is_made_is_told_and_loses_nothing() {
    let geometry = geometry(1, 0, 1, (1, 0));
    let (mut has_failed, mut operation) = (true, 0);
    while has_failed {
        let world = made(&geometry);
        let subject = Simulated::open(&geometry, &world).unwrap();
        world.count_reads(true);
        let operation_before = world.operations();
        let errno = rustix::io::Errno::IO;
        world.fail(Fault { operation: operation_before + operation, errno, is_lasting: false, device: None });
        // Enough for tables, some of which are merged.
        let mut acknowledged = Vec::new();
        for first in (0..OBJECTS).step_by(30) {
            let mut batch = subject.store().batch(Durability::Batch);
            let put = (OBJECTS + first..OBJECTS + first + 30)
                .try_for_each(|number| batch.put(&key(number), &Attributes::default(), &number.to_le_bytes()));
            if put.and_then(|()| batch.commit()).is_ok() {
                acknowledged.extend(OBJECTS + first..OBJECTS + first + 30);
            }
        }
        has_failed = world.failures() > 0;
        world.clear_faults();
        drop(subject);
        let reader = Simulated::open(&geometry, &world).unwrap();
        for number in (0..OBJECTS).chain(acknowledged) {
            assert!(reader.store().entry(&key(number)).unwrap().is_some(), "{number}, as operation {operation} failed");
        }
        assert_eq!(reader.check_all(), Vec::<String>::new(), "operation {operation} failed");
        operation += 1;
    }
    assert!(operation > 50, "{operation}");
}

/// Tables on device 0.
fn tables(world: &World) -> Vec<String> {
    let files = world.device(0).list(INDEX_DIRECTORY).unwrap();
    files.into_iter().map(|(name, _)| name).filter(|name| table_number(name).is_some()).collect()
}

#[test]
fn a_table_that_is_on_no_device_is_made_from_the_log() {
    let geometry = geometry(2, 0, 2, (2, 0));
    let world = made(&geometry);
    for name in tables(&world) {
        for device in world.devices() {
            // The home has none.
            let _ = device.remove(&format!("{INDEX_DIRECTORY}/{name}"));
        }
    }
    reads(&geometry, &world);
    let reader = Simulated::open_as(&home(&geometry), &world, Access::Read).unwrap();
    assert!(reader.store().engine().is_index_private);
    drop(reader);
    drop(Simulated::open(&geometry, &world).unwrap());
    reads(&geometry, &world);
    let reader = Simulated::open_as(&home(&geometry), &world, Access::Read).unwrap();
    assert_eq!(reader.check().unwrap(), Vec::<String>::new());
}

#[test]
fn nothing_is_wrong_with_a_store_that_was_never_written_to() {
    let geometry = geometry(2, 0, 2, (2, 0));
    let world = World::new(Simulated::devices(&geometry), 1);
    drop(Simulated::create(&geometry, &world).unwrap());
    let reader = Simulated::open_as(&home(&geometry), &world, Access::Read).unwrap();
    assert_eq!(reader.check().unwrap(), Vec::<String>::new());
}

#[test]
fn a_manifest_says_the_epoch_of_its_writer() {
    let geometry = geometry(1, 0, 1, (1, 0));
    let world = made(&geometry);
    world.lose_index(0);
    let subject = Simulated::open(&geometry, &world).unwrap();
    let head = manifest::read_head(&*world.device(0)).unwrap();
    assert_eq!(head.epoch, subject.store().engine().epoch());
}

/// A key of the maximum length.
fn long_key(number: u64) -> Key {
    let name = format!("{number:0200}");
    Key::parse([&*name; 19].join("/")).unwrap()
}

#[test]
fn memory_is_bounded_by_the_bytes_of_keys_too() {
    let geometry = geometry(1, 0, 1, (1, 0));
    let world = World::new(Simulated::devices(&geometry), 1);
    let subject = Simulated::create(&geometry, &world).unwrap();
    let engine = subject.store().engine();
    let mut put = |number: u64| {
        let mut batch = subject.store().batch(Durability::None);
        batch.put(&long_key(number), &Attributes::default(), b"content").unwrap();
        batch.commit().unwrap();
        assert!(engine.view().state.recent.bytes() < RECENT_LIMIT_BYTES + (128 << 10));
        assert!(engine.writer().unwrap().pending_bytes < RECENT_LIMIT_BYTES + (128 << 10));
    };
    // Of repeated puts of one name, only the last counts, but each is pending.
    (0..40).for_each(|_| put(0));
    (0..40).for_each(&mut put);
    assert!(!engine.view().state.tables.is_empty());
    for number in 0..40 {
        assert!(subject.store().entry(&long_key(number)).unwrap().is_some());
    }
}

#[test]
fn a_store_that_was_closed_opens_with_little_to_read() {
    let geometry = geometry(1, 0, 1, (1, 0));
    let world = World::new(Simulated::devices(&geometry), 1);
    let subject = Simulated::create(&geometry, &world).unwrap();
    put(subject.store(), 0..40);
    assert_eq!(subject.store().engine().view().state.recent.len(), 41);
    drop(subject);
    let reader = Simulated::open_as(&home(&geometry), &world, Access::Read).unwrap();
    assert_eq!(reader.store().engine().view().state.recent.len(), 0);
    assert!(reader.store().entry(&key(39)).unwrap().is_some());
}

#[test]
fn a_pin_keeps_what_was_freed_until_it_is_released_by_name() {
    let geometry = geometry(1, 0, 1, (1, 0));
    let world = made(&geometry);
    let mut subject = Simulated::open(&geometry, &world).unwrap();
    subject.store().pin("mount").unwrap();
    for number in 0..OBJECTS {
        assert!(subject.store().remove(&key(number)).unwrap());
    }
    subject.compact().unwrap();
    drop(subject);
    let mut subject = Simulated::open(&geometry, &world).unwrap();
    assert_eq!(subject.store().pins().unwrap().len(), 1);
    let waiting = |subject: &Simulated| subject.store().status(false).unwrap().waiting_bytes;
    assert!(waiting(&subject) > 0);
    assert!(subject.store().unpin("mount").unwrap());
    assert!(!subject.store().unpin("mount").unwrap());
    subject.compact().unwrap();
    assert_eq!(waiting(&subject), 0);
}

/// Cuts the last bytes off the journal of a device.
fn cut_journal(world: &World) {
    let files = world.device(0).files();
    let (path, size_bytes) = files.into_iter().find(|(path, _)| FileKind::of(path) == FileKind::Journal).unwrap();
    world.device(0).truncate(&path, size_bytes - 5);
}

#[test]
fn a_journal_that_ends_within_a_frame_is_no_problem_after_a_crash_and_one_after_a_close() {
    let geometry = geometry(1, 0, 1, (1, 0));
    let world = World::new(Simulated::devices(&geometry), 1);
    let subject = Simulated::create(&geometry, &world).unwrap();
    put(subject.store(), 0..3);
    put(subject.store(), 3..6);
    let problems = |world: &World| Simulated::open_as(&home(&geometry), world, Access::Read).unwrap().check_all();
    let killed = world.after_kill(1);
    cut_journal(&killed);
    assert_eq!(problems(&killed), Vec::<String>::new());
    drop(subject);
    assert_eq!(problems(&world), Vec::<String>::new());
    cut_journal(&world);
    let found = problems(&world);
    assert!(matches!(&found[..], [one] if one.contains("its journal is damaged")), "{found:?}");
}
