//! Tests of pins by name: the state when they were set can be read until they are released, whatever happens to the
//! index, to a device, and to the power.

use std::collections::BTreeSet;

use tempfile::TempDir;

use crate::engine::locking::Access;
use crate::error::{Error, ErrorKind};
use crate::format::ids::DeviceNumber;
use crate::format::segment::FIRST_BATCH_AT;
use crate::simulation::mishap::{Absence, FileKind};
use crate::simulation::subject::{Simulated, geometry, home};
use crate::simulation::trial::Subject;
use crate::simulation::world::{HERE, World};
use crate::{
    Attributes, Buffer, Choice, CompactOptions, Durability, Geometry, Key, Listed, OpenOptions, Plan, Progress, Store,
    rebuild_index,
};

const OBJECTS: u64 = 120;

fn key(number: u64) -> Key {
    Key::parse(format!("directory/{number}")).unwrap()
}

/// Every 20th is large.
fn content(number: u64) -> Vec<u8> {
    vec![number as u8; if number.is_multiple_of(20) { 30_000 } else { 700 }]
}

fn put(subject: &Simulated, numbers: std::ops::Range<u64>) {
    for first in numbers.clone().step_by(20) {
        let mut batch = subject.store().batch(Durability::Batch);
        for number in first..(first + 20).min(numbers.end) {
            batch.put(&key(number), &Attributes::default(), &content(number)).unwrap();
        }
        batch.commit().unwrap();
    }
}

/// Removes everything, stores other objects, and frees what can be freed.
fn go_on(subject: &mut Simulated) {
    let mut batch = subject.store().batch(Durability::Batch);
    batch.remove_tree(&Key::parse("directory").unwrap()).unwrap();
    batch.commit().unwrap();
    put(subject, OBJECTS..OBJECTS + 40);
    subject.compact().unwrap();
    subject.compact().unwrap();
}

/// A reader that continues, and its listing of the objects as they are now. Tables that it has open are unaffected.
struct Pinned(Simulated, Vec<Listed>);

impl Pinned {
    fn new(reader: Simulated) -> Pinned {
        let snapshot = reader.store().snapshot().unwrap();
        let all = (0..OBJECTS).map(|number| snapshot.entry(&key(number)).unwrap().unwrap()).collect();
        Pinned(reader, all)
    }

    fn is_readable(&self) {
        let mut buffer = Buffer::default();
        for (number, listed) in self.1.iter().enumerate() {
            let read =
                self.0.store().read_listed(listed, &mut buffer).unwrap_or_else(|error| panic!("{number}: {error}"));
            assert_eq!(read.unwrap().content, content(number as u64), "{number}");
        }
    }
}

/// Files of the log and of units, on all devices.
fn files(world: &World) -> BTreeSet<String> {
    let kinds = [FileKind::Segment, FileKind::Extent];
    let of = |device: usize| world.device(device).files().into_iter().map(move |(path, _)| format!("{device}/{path}"));
    (0..world.devices().len())
        .flat_map(of)
        .filter(|path| kinds.contains(&FileKind::of(path.split_once('/').unwrap().1)))
        .collect()
}

fn lose_index(geometry: &Geometry, world: &World) {
    (0..Simulated::devices(geometry)).for_each(|device| world.lose_index(device));
}

fn geometries() -> [Geometry; 3] {
    [geometry(1, 0, 1, (1, 0)), geometry(2, 0, 2, (2, 0)), geometry(2, 3, 2, (2, 1))]
}

#[test]
fn a_pin_survives_the_loss_of_the_index() {
    for geometry in geometries() {
        let world = World::new(Simulated::devices(&geometry), 1);
        let subject = Simulated::create(&geometry, &world).unwrap();
        put(&subject, 0..OBJECTS);
        subject.store().pin("mount").unwrap();
        let reader = Simulated::open_as(&home(&geometry), &world, Access::Read).unwrap();
        let kept = Pinned::new(reader);
        let pinned = files(&world);
        drop(subject);
        for _ in 0..2 {
            lose_index(&geometry, &world);
            let mut subject = Simulated::open(&geometry, &world).unwrap();
            let names: Vec<String> = subject.store().pins().unwrap().into_iter().map(|(name, _)| name).collect();
            assert_eq!(names, ["mount"]);
            go_on(&mut subject);
            assert!(files(&world).is_superset(&pinned), "{:?}", pinned.difference(&files(&world)));
            kept.is_readable();
        }
        let mut subject = Simulated::open(&geometry, &world).unwrap();
        assert!(subject.store().status(false).unwrap().waiting_bytes > 0);
        assert!(subject.store().unpin("mount").unwrap());
        subject.compact().unwrap();
        assert_eq!(subject.store().status(false).unwrap().waiting_bytes, 0);
        assert!(files(&world).is_disjoint(&pinned));
    }
}

#[test]
fn the_snapshot_of_a_reader_stays_while_the_index_is_rebuilt() {
    for fast in [0, 2] {
        let sandbox = TempDir::new().unwrap();
        let home = sandbox.path().join("s");
        let fast = (0..fast).map(|at| sandbox.path().join(format!("fast{at}"))).collect();
        let store = Store::create(&home, &Plan { fast, segment_bytes: 1 << 20, ..Plan::default() }).unwrap();
        for number in 0..40 {
            store.put(&key(number), &Attributes::default(), &[number as u8; 50_000]).unwrap();
        }
        drop(store);
        let reader = Store::open_read_only(&home).unwrap();
        let snapshot = reader.snapshot().unwrap();
        let store = rebuild_index(&home, &OpenOptions::default()).unwrap();
        assert!(store.remove_tree(&Key::parse("directory").unwrap()).unwrap());
        let all = CompactOptions { choice: Choice::All, ..CompactOptions::default() };
        for number in 40..50 {
            store.put(&key(number), &Attributes::default(), &[number as u8; 50_000]).unwrap();
            store.compact(&all, &Progress::default()).unwrap();
        }
        assert!(store.status(false).unwrap().waiting_bytes > 0);
        let mut buffer = Buffer::default();
        for number in 0..40 {
            let read = snapshot.read(&key(number), &mut buffer).unwrap().unwrap();
            assert_eq!(read.content, [number as u8; 50_000], "{number}");
        }
        drop(snapshot);
        store.compact(&all, &Progress::default()).unwrap();
        assert_eq!(store.status(false).unwrap().waiting_bytes, 0);
    }
}

/// As if it were that of another user.
#[test]
fn a_pin_that_cannot_be_looked_at_keeps_what_it_may_need_and_the_store_is_closed() {
    let sandbox = TempDir::new().unwrap();
    let home = sandbox.path().join("s");
    let put = |store: &Store, number: u64| store.put(&key(number), &Attributes::default(), &content(number)).unwrap();
    let compact = |store: &Store| {
        let all = CompactOptions { choice: Choice::All, ..CompactOptions::default() };
        store.compact(&all, &Progress::default()).unwrap().waiting_bytes
    };
    let store = Store::create(&home, &Plan::default()).unwrap();
    (0..3).for_each(|number| put(&store, number));
    let name = format!("index/pins/{:016x}", store.engine().view().state.epoch);
    std::fs::create_dir_all(home.join(&name)).unwrap();
    assert!(store.remove(&key(1)).unwrap());
    assert!(compact(&store) > 0);
    let unknown = store.status(false).unwrap().unknown_pins;
    assert!(unknown.len() == 1 && unknown[0].path.ends_with(&name), "{unknown:?}");
    drop(store);
    // A writer that does not close the store leaves a segment to the next.
    let segments = || std::fs::read_dir(home.join("segments")).unwrap().count();
    let before = segments();
    for number in 3..6 {
        put(&Store::open(&home).unwrap(), number);
        assert_eq!(segments(), before);
    }
    std::fs::remove_dir(home.join(&name)).unwrap();
    let store = Store::open(&home).unwrap();
    assert_eq!((compact(&store), store.unknown_pins().len()), (0, 0));
    assert!(segments() < before);
}

#[test]
fn pins_that_were_released_do_not_come_back() {
    let geometry = geometry(2, 0, 2, (2, 0));
    let world = World::new(Simulated::devices(&geometry), 1);
    let subject = Simulated::create(&geometry, &world).unwrap();
    for name in ["a", "b", "c"] {
        subject.store().pin(name).unwrap();
        put(&subject, 0..OBJECTS);
    }
    assert!(subject.store().unpin("b").unwrap() && !subject.store().unpin("b").unwrap());
    put(&subject, 0..OBJECTS);
    drop(subject);
    for left in [&["a", "c"][..], &["c"], &[]] {
        lose_index(&geometry, &world);
        let subject = Simulated::open(&geometry, &world).unwrap();
        assert_eq!(subject.store().status(false).unwrap().pins, left);
        if let Some(name) = left.first() {
            assert!(subject.store().unpin(name).unwrap());
        }
    }
}

#[test]
fn a_pin_is_durable_when_it_is_set() {
    for seed in 0..20 {
        let geometry = geometry(2, 0, 2, (2, 0));
        let world = World::new(Simulated::devices(&geometry), 1);
        let subject = Simulated::create(&geometry, &world).unwrap();
        put(&subject, 0..40);
        subject.store().pin("mount").unwrap();
        let world = world.after_power_failure(seed);
        if seed % 2 == 0 {
            lose_index(&geometry, &world);
        }
        let subject = Simulated::open(&geometry, &world).unwrap();
        assert_eq!(subject.store().status(false).unwrap().pins, ["mount"]);
        subject.store().unpin("mount").unwrap();
        let world = world.after_power_failure(seed);
        assert!(!Simulated::open(&geometry, &world).unwrap().is_pinned());
    }
}

#[test]
fn a_device_is_rebuilt_beside_a_pin() {
    let geometry = geometry(2, 3, 2, (2, 1));
    for device in [0, 3] {
        let world = World::new(Simulated::devices(&geometry), 1);
        let mut subject = Simulated::create(&geometry, &world).unwrap();
        put(&subject, 0..OBJECTS);
        subject.store().pin("mount").unwrap();
        let reader = Simulated::open_as(&home(&geometry), &world, Access::Read).unwrap();
        let kept = Pinned::new(reader);
        let of_others = |files: BTreeSet<String>| -> BTreeSet<String> {
            files.into_iter().filter(|path| !path.starts_with(&format!("{device}/"))).collect()
        };
        let pinned = of_others(files(&world));
        go_on(&mut subject);
        drop(subject);
        drop(world.detach(device, Absence::Missing, 1));
        lose_index(&geometry, &world);
        let mut subject = Simulated::open(&geometry, &world).unwrap();
        let onto = format!("{HERE}/new");
        assert!(subject.rebuild_until(DeviceNumber(device as u16), &onto, false, None).unwrap().is_complete);
        assert_eq!(subject.store().status(false).unwrap().pins, ["mount"]);
        subject.compact().unwrap();
        assert!(of_others(files(&world)).is_superset(&pinned), "device {device}");
        kept.is_readable();
    }
}

#[test]
fn what_may_lack_pins_is_told() {
    let geometry = geometry(1, 0, 1, (1, 0));
    let world = World::new(Simulated::devices(&geometry), 1);
    let subject = Simulated::create(&geometry, &world).unwrap();
    put(&subject, 0..OBJECTS);
    drop(subject);
    let told = |world: &World| {
        let subject = Simulated::open(&geometry, world).unwrap();
        subject.store().status(false).unwrap().may_lack_pins
    };
    lose_index(&geometry, &world);
    assert!(!told(&world), "the log is whole");
    let (path, _) =
        world.device(0).files().into_iter().find(|(path, _)| FileKind::of(path) == FileKind::Segment).unwrap();
    // In the head of a record: nobody knows what is lost.
    world.device(0).flip_bit(&path, 8 * (FIRST_BATCH_AT.0 + 20));
    assert!(!told(&world), "the index is there");
    lose_index(&geometry, &world);
    assert!(told(&world) && told(&world));
}

#[test]
fn what_is_pinned_to_be_copied_is_durable() {
    for geometry in geometries() {
        for seed in 0..10 {
            let world = World::new(Simulated::devices(&geometry), seed);
            let subject = Simulated::create(&geometry, &world).unwrap();
            let engine = subject.store().engine();
            for number in 0..3 {
                let mut batch = subject.store().batch(Durability::None);
                batch.put(&key(number), &Attributes::default(), &content(number)).unwrap();
                batch.commit().unwrap();
            }
            let (_pin, view) = engine.pinned_durable().unwrap();
            let snapshot = view.snapshot();
            let left = Simulated::open(&geometry, &world.after_power_failure(seed)).unwrap();
            for number in 0..3 {
                assert!(snapshot.look_up_path(key(number).stored()).unwrap().is_some(), "seed {seed}: {number}");
                assert_eq!(left.store().get(&key(number)).unwrap(), Some(content(number)), "seed {seed}: {number}");
            }
            drop(left);
            // A reader has nothing that is not, and after a failed write nobody knows what is.
            let reader = Simulated::open_as(&home(&geometry), &world, Access::Read).unwrap();
            assert!(reader.store().engine().pinned_durable().is_ok());
            drop(reader);
            engine.latch(&Error::new(ErrorKind::Io, "go on", "the test ends it"));
            assert_eq!(engine.pinned_durable().map(drop).unwrap_err().kind(), ErrorKind::ReadOnly);
        }
    }
}
