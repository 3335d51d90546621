//! Tests of the catalog: changes are applied to a state, readers catch up whatever they missed, damage is detected, and
//! a crash or failure leaves a consistent older state.

use std::sync::Arc;

use proptest::prelude::*;

use super::encoding::DecodeError;
use super::kept::Catalog;
use super::*;
use crate::devices::device::{Device, Mode};
use crate::error::ErrorKind;
use crate::format::entry::{Entry, Location};
use crate::format::geometry::Class;
use crate::format::ids::{DeviceNumber, Epoch, LogOffset, ObjectNumber};
use crate::index::copies::IndexDevice;
use crate::index::table::tests::any_entry;
use crate::simulation::world::{Fault, World};

const STORE: [u8; 16] = [7; 16];
const EPOCH: Epoch = Epoch(1);

/// A change with something of each kind.
pub(crate) fn a_change(recent: Vec<(Vec<u8>, Entry)>) -> Change {
    Change {
        position: Some(Position {
            segment: SegmentNumber(1),
            commit: LogOffset(380),
            offset: LogOffset(500),
            sequence: 3,
            chain: 77,
        }),
        epoch: Some(4),
        highest_id: Some(900),
        next_table: Some(2),
        clear_recent: true,
        forget: vec![b"gone"[..].into()],
        recent: recent.into_iter().map(|(key, entry)| (key.into(), entry)).collect(),
        ranges: Some(vec![RangeRow { directory: ObjectNumber(7), id: 12 }]),
        tables: Some(vec![TableRow { number: 1, entries: 5, size_bytes: 8192, lowest_id: 1, highest_id: 9 }]),
        segments: vec![SegmentRow {
            number: SegmentNumber(1),
            epoch: Epoch(2),
            class: Class::Slow,
            devices: vec![DeviceNumber(0), DeviceNumber(3)],
            size_bytes: 500,
            live_bytes: 300,
            live_records: 3,
            dead_records: 1,
            lowest_id: 1,
        }],
        removed_segments: vec![SegmentNumber(9)],
        extents: vec![ExtentRow { device: DeviceNumber(2), file: 1, end_bytes: 8192, live_bytes: 4096 }],
        removed_extents: vec![(DeviceNumber(2), 0)],
        shared: vec![(ObjectNumber(5), 2), (ObjectNumber(6), 0)],
        superseded: vec![
            (3, Superseded::Segment(SegmentNumber(1))),
            (3, Superseded::Extent { device: DeviceNumber(2), file: 1 }),
            (4, Superseded::Table(1)),
        ],
        freed: vec![(1, Superseded::Table(8))],
        notes: vec![("note".to_owned(), b"text".to_vec()), ("none".to_owned(), Vec::new())],
        devices: Some(vec![DeviceNumber(0), DeviceNumber(1)]),
        pins: vec![("mount".to_owned(), 3)],
        unpinned: vec!["other".to_owned()],
        snapshots: Some(vec![SnapshotRow { sequence: 8, created_nanoseconds: -5, name: b"day".to_vec() }]),
        durable: false,
    }
}

fn any_change() -> impl Strategy<Value = Change> {
    let key = || prop::collection::vec(0u8..3, 0..4);
    let number = || prop_oneof![0u64..5, Just(u64::MAX)];
    let recent = (
        prop::bool::weighted(0.1),
        prop::collection::vec(key(), 0..3),
        prop::collection::vec((key(), any_entry()), 0..6),
        prop::option::weighted(
            0.2,
            prop::collection::vec(
                (number(), number())
                    .prop_map(|(directory, id)| RangeRow { directory: ObjectNumber(directory >> 16), id }),
                0..5,
            ),
        ),
        prop::option::weighted(0.2, prop::collection::vec(number(), 0..4)),
    );
    let segments = (
        prop::collection::vec((number(), prop::collection::vec(any::<u16>().prop_map(DeviceNumber), 0..3)), 0..4),
        prop::collection::vec(number(), 0..2),
    );
    let extents = (
        prop::collection::vec(((0u16..3).prop_map(DeviceNumber), 0u32..3, number()), 0..3),
        prop::collection::vec(((0u16..3).prop_map(DeviceNumber), 0u32..3), 0..2),
    );
    let others = (
        prop::collection::vec((number(), 0u64..3), 0..3),
        prop::collection::vec((number(), number(), 0u8..3, any::<bool>()), 0..4),
        prop::collection::vec(("[a-c]", prop::collection::vec(any::<u8>(), 0..3)), 0..3),
        any::<bool>(),
        prop::collection::vec(("[a-c]", 0u64..4), 0..3),
    );
    let numbers = (
        prop::option::of(any::<[u64; 5]>()),
        prop::option::of(number()),
        prop::option::of(number()),
        prop::option::of(number()),
    );
    (recent, segments, extents, others, numbers).prop_map(|(recent, segments, extents, others, numbers)| {
        let segment = |(number, devices): (u64, Vec<DeviceNumber>)| SegmentRow {
            number: SegmentNumber(number),
            epoch: Epoch(!number),
            class: if number % 2 == 0 { Class::Fast } else { Class::Slow },
            devices,
            size_bytes: 7,
            live_bytes: number,
            live_records: 8,
            dead_records: 9,
            lowest_id: u64::MAX,
        };
        let table = |number| TableRow { number, entries: 1, size_bytes: 4096, lowest_id: u64::MAX, highest_id: 0 };
        let superseded = |&(epoch, number, kind, _): &(u64, u64, u8, bool)| match kind {
            0 => (epoch, Superseded::Segment(SegmentNumber(number))),
            1 => (epoch, Superseded::Table(number)),
            _ => (epoch, Superseded::Extent { device: DeviceNumber(3), file: u32::MAX - number as u32 }),
        };
        let position = |[segment, commit, offset, sequence, chain]: [u64; 5]| Position {
            segment: SegmentNumber(segment),
            commit: LogOffset(commit),
            offset: LogOffset(offset),
            sequence,
            chain,
        };
        let snapshot = |(name, sequence): &(String, u64)| SnapshotRow {
            sequence: *sequence,
            created_nanoseconds: -1,
            name: name.clone().into_bytes(),
        };
        Change {
            position: numbers.0.map(position),
            epoch: numbers.1,
            highest_id: numbers.2,
            next_table: numbers.3,
            clear_recent: recent.0,
            forget: recent.1.into_iter().map(Arc::from).collect(),
            recent: recent.2.into_iter().map(|(key, entry)| (key.into(), entry)).collect(),
            ranges: recent.3,
            tables: recent.4.map(|numbers| numbers.into_iter().map(table).collect()),
            segments: segments.0.into_iter().map(segment).collect(),
            removed_segments: segments.1.into_iter().map(SegmentNumber).collect(),
            extents: extents
                .0
                .into_iter()
                .map(|(device, file, end_bytes)| ExtentRow { device, file, end_bytes, live_bytes: 5 })
                .collect(),
            removed_extents: extents.1,
            shared: others.0.into_iter().map(|(number, names)| (ObjectNumber(number >> 16), names)).collect(),
            superseded: others.1.iter().filter(|superseded| superseded.3).map(superseded).collect(),
            freed: others.1.iter().filter(|superseded| !superseded.3).map(superseded).collect(),
            notes: others.2,
            devices: None,
            snapshots: others.3.then(|| others.4.iter().map(snapshot).collect()),
            pins: others.4.clone(),
            unpinned: others.4.into_iter().filter(|pin| pin.1 > 2).map(|pin| pin.0).collect(),
            durable: others.3,
        }
    })
}

fn places(world: &World) -> Vec<IndexDevice> {
    let place =
        |(number, device): (usize, Arc<dyn Device>)| IndexDevice { number: DeviceNumber(number as u16), device };
    world.devices().into_iter().enumerate().map(place).collect()
}

/// Creates a catalog on all devices of a world, for writing.
fn create(world: &World) -> Catalog {
    let catalog = Catalog::unpublished(places(world), STORE, EPOCH, 0);
    catalog.publish().unwrap();
    catalog
}

fn open(world: &World) -> Option<Catalog> {
    Catalog::open(places(world), STORE, EPOCH).unwrap()
}

fn put(number: u64) -> Change {
    let entry = Entry::removal(number, Location { segment: SegmentNumber(1), offset: LogOffset(80), record_bytes: 40 });
    Change { recent: vec![(format!("key {}", number % 100).into_bytes().into(), entry)], ..Change::default() }
}

fn durable(number: u64) -> Change {
    Change { durable: true, ..put(number) }
}

/// The highest number inserted.
fn newest(state: &State) -> u64 {
    state.recent.values().map(|entry| entry.id).max().unwrap_or(0)
}

#[test]
fn a_version_that_none_can_follow_is_refused() {
    let encoded = |version| encoding::decode(&encoding::encode_change(version, &Change::default()));
    assert!(encoded(1 << 62).is_ok());
    assert_eq!(encoded(u64::MAX).unwrap_err(), DecodeError::Damaged);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn changes_come_back_and_nothing_else_is_taken_for_one(change in any_change(), version in 0..u64::MAX / 2, bit: prop::sample::Index) {
        let bytes = encoding::encode_change(version, &change);
        let (again, read) = encoding::decode(&bytes).unwrap();
        prop_assert_eq!(again, version);
        let (mut one, mut other) = (State::default(), State::default());
        one.apply(&change);
        other.apply(&read);
        prop_assert_eq!(&one, &other);
        let whole = encoding::encode_state(&one).unwrap();
        prop_assert_eq!(encoding::decode(&whole[..whole.len() - 1]).unwrap_err(), DecodeError::Damaged);

        let frame = journal::frame(5, 0, &bytes);
        let taken = |seed, offset, version: u64, frame: &[u8]| journal::frames(seed, offset, version, frame).unwrap().changes.len();
        let before = version.wrapping_sub(1);
        prop_assert_eq!(taken(5, 0, before, &frame), usize::from(version > 0));
        // Of another journal, another offset, another state, damaged or torn.
        prop_assert_eq!(taken(6, 0, before, &frame), 0);
        prop_assert_eq!(taken(5, 8, before, &frame), 0);
        prop_assert_eq!(taken(5, 0, version, &frame), 0);
        prop_assert_eq!(taken(5, 0, before, &frame[..frame.len() - 1]), 0);
        let mut damaged = frame;
        let bit = bit.index(damaged.len() * 8);
        damaged[bit / 8] ^= 1 << (bit % 8);
        prop_assert_eq!(taken(5, 0, before, &damaged), 0);
    }

    #[test]
    fn readers_catch_up(changes in prop::collection::vec((any_change(), any::<bool>()), 1..25), devices in 1usize..4) {
        let world = World::new(devices, 1);
        let writer = create(&world);
        let reader = open(&world).unwrap();
        let mut model = writer.state();
        let mut seen = reader.state();
        prop_assert_eq!(&seen, &model);
        for (change, read) in changes {
            writer.commit(&change).unwrap();
            model.apply(&change);
            prop_assert_eq!(&writer.state(), &model);
            if read {
                seen = reader.renewed().unwrap().unwrap();
                prop_assert_eq!(&seen, &model);
                prop_assert!(reader.renewed().unwrap().is_none());
                prop_assert_eq!(&open(&world).unwrap().state(), &model);
            }
        }
        drop(writer);
        let again = open(&world).unwrap();
        again.write_to(places(&world));
        again.commit(&put(1)).unwrap();
        model.apply(&put(1));
        prop_assert_eq!(&again.state(), &model);
        prop_assert_eq!(&reader.renewed().unwrap().unwrap(), &model);
    }
}

/// A catalog whose frames were never synced, left by a killed writer, and its world.
fn left_by_a_killed_writer(seed: u64) -> (World, Catalog) {
    let world = World::new(1, seed);
    let writer = create(&world);
    (1..20).for_each(|number| writer.commit(&put(number)).unwrap());
    drop(writer);
    let killed = world.after_kill(seed);
    let next = open(&killed).unwrap();
    next.write_to(places(&killed));
    (killed, next)
}

#[test]
fn what_a_writer_goes_by_is_durable_before_anything_goes() {
    for seed in 0..40 {
        let (killed, next) = left_by_a_killed_writer(seed);
        let taken = newest(&next.state());
        assert!(next.settle());
        let failed = killed.after_power_failure(seed);
        assert_eq!(newest(&open(&failed).unwrap().state()), taken, "seed {seed}");
        // A durable transaction makes more durable than itself.
        let (killed, next) = left_by_a_killed_writer(seed);
        next.commit(&durable(20)).unwrap();
        let failed = killed.after_power_failure(seed);
        assert_eq!(newest(&open(&failed).unwrap().state()), 20, "seed {seed}");
    }
}

#[test]
fn what_a_writer_goes_by_costs_no_sync_where_nothing_goes() {
    let (killed, next) = left_by_a_killed_writer(1);
    let before = killed.operations();
    next.commit(&put(20)).unwrap();
    assert_eq!(killed.operations(), before + 1, "a frame is written");
    assert!(next.settle() && next.settle());
    assert_eq!(killed.operations(), before + 3, "the journal is synced, and the names of it and of the manifest, once");
}

#[test]
fn what_replaces_itself_all_the_time_does_not_grow() {
    let world = World::new(1, 1);
    let writer = create(&world);
    let reader = open(&world).unwrap();
    for number in 0..12_000 {
        writer.commit(&put(number)).unwrap();
        if number % 1000 == 0 {
            assert_eq!(newest(&reader.renewed().unwrap().unwrap()), number);
        }
    }
    let files = world.device(0).list("index").unwrap();
    assert_eq!(files.len(), 2, "{files:?}");
    let bytes: u64 = files.iter().map(|(_, bytes)| bytes).sum();
    assert!(bytes < 1 << 20, "{bytes} bytes for 100 keys");
    assert_eq!(newest(&reader.renewed().unwrap().unwrap()), 11_999);
}

#[test]
fn what_became_a_table_takes_no_space_in_the_catalog() {
    let world = World::new(1, 1);
    let writer = create(&world);
    let bytes = || world.device(0).list("index").unwrap().iter().map(|(_, bytes)| bytes).sum::<u64>();
    let empty = bytes();
    let location = Location { segment: SegmentNumber(1), offset: LogOffset(80), record_bytes: 20_068 };
    let recent = |number: u32| (number.to_be_bytes()[..].into(), Entry::removal(u64::from(number), location));
    writer.commit(&Change { recent: (0..20_000).map(recent).collect(), ..Change::default() }).unwrap();
    assert!(bytes() > empty + 200_000);
    writer.commit(&Change { clear_recent: true, ..Change::default() }).unwrap();
    assert!(bytes() < empty + 200, "{} after {empty}", bytes());
}

#[test]
fn a_power_failure_leaves_a_state_since_the_durable_one() {
    let mut left = BTreeSet::new();
    for seed in 0..200 {
        let world = World::new(2, seed);
        let writer = create(&world);
        for change in [put(1), durable(2), put(3), put(4)] {
            writer.commit(&change).unwrap();
        }
        let after = world.after_crash(seed);
        let Some(catalog) = open(&after) else { continue };
        let found = newest(&catalog.state());
        assert!((2..=4).contains(&found), "{found}");
        left.insert(found);
        // Torn bytes do not affect later frames, on either device.
        catalog.write_to(places(&after));
        for number in 5..8 {
            catalog.commit(&put(number)).unwrap();
        }
        assert_eq!(newest(&open(&after).unwrap().state()), 7);
        for place in places(&after) {
            assert_eq!(Catalog::open(vec![place], STORE, EPOCH).unwrap().unwrap().state(), catalog.state());
        }
    }
    assert_eq!(left.len(), 3, "{left:?}");
}

#[test]
fn a_crash_at_any_operation_leaves_an_older_whole_state_or_the_new_one() {
    for crash in 0..60 {
        let world = World::new(2, crash);
        let writer = create(&world);
        world.crash_at(world.operations() + crash);
        let mut acknowledged = 0;
        for number in 1..20 {
            let change = Change { clear_recent: number % 7 == 0, ..durable(number) };
            if writer.commit(&change).is_err() {
                break;
            }
            acknowledged = number;
        }
        for seed in 0..4 {
            let Some(catalog) = open(&world.after_crash(seed)) else { continue };
            let found = newest(&catalog.state());
            assert!(found == acknowledged || found == acknowledged + 1, "{found} after {acknowledged}");
        }
    }
}

#[test]
fn a_copy_that_fails_is_dropped_and_no_reader_stays_with_it() {
    for operation in 0..12 {
        for errno in [rustix::io::Errno::IO, rustix::io::Errno::NOSPC] {
            for failing in 0..2 {
                let world = World::new(2, operation);
                let writer = create(&world);
                writer.commit(&put(1)).unwrap();
                let readers = [open(&world).unwrap(), open(&world).unwrap()];
                let fault =
                    Fault { operation: world.operations() + operation, errno, is_lasting: true, device: Some(failing) };
                world.fail(fault);
                for number in 2..8 {
                    writer.commit(&Change { clear_recent: number == 5, ..durable(number) }).unwrap();
                    for reader in &readers {
                        assert_eq!(newest(&reader.renewed().unwrap().unwrap()), number);
                    }
                }
                assert_eq!(*writer.state().devices, [DeviceNumber(1 - failing as u16)]);
                world.clear_faults();
                // The dropped copy is older.
                let again = open(&world).unwrap();
                assert_eq!(newest(&again.state()), 7);
                again.write_to(places(&world));
                again.commit(&put(8)).unwrap();
                assert_eq!(*again.state().devices, [0, 1].map(DeviceNumber));
                assert_eq!(newest(&readers[0].renewed().unwrap().unwrap()), 8);
            }
        }
    }
}

#[test]
fn one_that_is_made_from_the_log_is_not_seen_before_it_is_whole() {
    let world = World::new(1, 1);
    let old = create(&world);
    old.commit(&put(1)).unwrap();
    let reader = open(&world).unwrap();
    let new = Catalog::unpublished(places(&world), STORE, EPOCH, old.state().version);
    new.commit(&put(2)).unwrap();
    assert!(reader.renewed().unwrap().is_none());
    assert_eq!(newest(&open(&world).unwrap().state()), 1);
    new.publish().unwrap();
    let seen = reader.renewed().unwrap().unwrap();
    assert_eq!((seen.recent.len(), newest(&seen)), (1, 2));
}

#[test]
fn a_reader_cannot_write() {
    let world = World::new(1, 1);
    assert!(open(&world).is_none());
    create(&world).commit(&put(1)).unwrap();
    let before = world.operations();
    let reader = open(&world).unwrap();
    assert_eq!(reader.commit(&put(2)).unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(newest(&reader.state()), 1);
    assert_eq!(world.operations(), before);
}

#[test]
fn damage_of_one_copy_is_read_around_and_of_all_is_a_loss() {
    for bit in (0..2000u64).step_by(37) {
        let world = World::new(2, 1);
        let writer = create(&world);
        for number in 1..6 {
            writer.commit(&put(number)).unwrap();
        }
        let damage = |device: &dyn Device| {
            let file = device.open(&manifest::path(), Mode::Write).unwrap();
            let at = bit / 8 % file.size().unwrap();
            let mut byte = [0];
            file.read_at(&mut byte, at).unwrap();
            file.write_at(&[byte[0] ^ 1 << (bit % 8)], at).unwrap();
        };
        damage(&*world.device(0));
        assert_eq!(newest(&open(&world).unwrap().state()), 5, "bit {bit}");
        damage(&*world.device(1));
        match Catalog::open(places(&world), STORE, EPOCH) {
            Ok(found) => assert!(found.is_none(), "bit {bit}"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::NewerVersion, "bit {bit}"),
        }
    }
}

#[test]
fn the_index_of_another_store_is_none() {
    let world = World::new(1, 1);
    create(&world).commit(&put(1)).unwrap();
    assert!(Catalog::open(places(&world), [8; 16], EPOCH).unwrap().is_none());
}

#[test]
fn a_manifest_of_any_length_is_read_if_it_could_be_written() {
    let names = |count: u64| Change { shared: (1..=count).map(|at| (ObjectNumber(at), 2)).collect(), ..put(1) };
    let world = World::new(1, 1);
    let catalog = Catalog::unpublished(places(&world), STORE, EPOCH, 0);
    catalog.commit(&names(40_000)).unwrap();
    catalog.publish().unwrap();
    assert_eq!(open(&world).unwrap().state(), catalog.state());
    // One with a list whose length it cannot state is not written, and everything goes on with the one before.
    let before = catalog.state();
    let error = catalog.commit(&names((16 << 20) / 16 + 1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    assert_eq!(catalog.state(), before);
    catalog.commit(&put(2)).unwrap();
    let read = open(&world).unwrap();
    assert_eq!((read.state(), newest(&read.state())), (catalog.state(), 2));
    // Damage at the end of a long one.
    let file = world.device(0).open(&manifest::path(), Mode::Write).unwrap();
    file.write_at(&[0xff], file.size().unwrap() - 1).unwrap();
    assert!(open(&world).is_none());
}
