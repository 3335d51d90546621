//! Copies in the world: who reads and writes beside them, and what else stands where they are made.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::sync::Arc;

use tempfile::TempDir;

use super::super::source::{Source, StoreSource, drop_freed};
use super::{assert_sound, clone, cloned, content, of, push, stores, with_peer, write};
use crate::engine::locking::Access;
use crate::engine::recovered::RELEASED;
use crate::error::ErrorKind;
use crate::format::geometry::Class;
use crate::format::ids::{DeviceNumber, Epoch, SegmentNumber};
use crate::format::release::Released;
use crate::format::rows::{ExtentRow, SegmentRow, Superseded};
use crate::format::segment::SEGMENT_HEADER_BYTES;
use crate::index::catalog::State;
use crate::simulation::subject::{Simulated, geometry, home};
use crate::simulation::trial::Subject;
use crate::simulation::world::World;
use crate::tests::{bytes, file, key};
use crate::{CopyOptions, Plan, Progress, Store};

/// Its index is written when it is first opened, after its view was made.
#[test]
fn a_store_is_copied_by_the_writer_that_made_it() {
    let sandbox = TempDir::new().unwrap();
    let (home, copy) = (sandbox.path().join("store"), sandbox.path().join("copy"));
    let store = Store::create(&home, &Plan::default()).unwrap();
    store.put(&key("a"), &file(), b"one").unwrap();
    assert_eq!(store.clone_to(&copy, &CopyOptions::default(), &Progress::default()).unwrap().segments, 1);
    store.put(&key("b"), &file(), b"two").unwrap();
    store.push_to(&copy, &CopyOptions::default(), &Progress::default()).unwrap();
    assert_eq!(of(&copy), content(&store));
    assert_sound(&copy);
}

/// Files grow in the copy by taking the place of shorter ones.
#[test]
fn readers_of_a_copy_read_what_came_into_files_that_they_have_open() {
    let sandbox = TempDir::new().unwrap();
    for (home, copy) in stores(sandbox.path()) {
        clone(&home, &copy).unwrap();
        let reader = Store::open_read_only(&copy).unwrap();
        assert_eq!(content(&reader), of(&home));
        for round in 0..3 {
            let store = Store::open(&home).unwrap();
            store.put(&key(&format!("small{round}")), &file(), &bytes(round, 3000)).unwrap();
            store.put(&key(&format!("new-large{round}")), &file(), &bytes(round, 150_000)).unwrap();
            drop(store);
            push(&home, &copy).unwrap();
            assert_eq!(content(&reader), of(&home));
        }
    }
}

/// The directory beside a copy, in which it is made, may be its source, or have a part of it.
#[test]
fn a_source_is_not_the_place_where_its_copy_is_made() {
    let sandbox = TempDir::new().unwrap();
    let (home, copy) = (sandbox.path().join("copy.incoming"), sandbox.path().join("copy"));
    write(&Store::create(&home, &Plan::default()).unwrap(), 0);
    let before = of(&home);
    assert_eq!(clone(&home, &copy).unwrap_err().kind(), ErrorKind::Usage);
    // An earlier copy, which is to be brought up to date.
    clone(&home, &sandbox.path().join("first")).unwrap();
    fs::rename(sandbox.path().join("first"), &copy).unwrap();
    write(&Store::open(&home).unwrap(), 1);
    let later = of(&home);
    assert_ne!(before, later);
    let (options, progress) = (CopyOptions::default(), Progress::default());
    assert_eq!(push(&home, &copy).unwrap_err().kind(), ErrorKind::Usage);
    let refused = with_peer(&copy, u64::MAX, |peer| {
        Store::open_read_only(&home).unwrap().push_to_peer(peer, &options, &progress)
    });
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Busy);
    assert_eq!((of(&home), of(&copy)), (later, before));
    // A device of the source.
    let (apart, other) = (sandbox.path().join("apart"), sandbox.path().join("other"));
    let plan = Plan { fast: vec![sandbox.path().join("other.incoming")], ..Plan::default() };
    write(&Store::create(&apart, &plan).unwrap(), 0);
    let before = of(&apart);
    assert_eq!(clone(&apart, &other).unwrap_err().kind(), ErrorKind::Usage);
    let refused = with_peer(&other, u64::MAX, |peer| {
        Store::open_read_only(&apart).unwrap().clone_to_peer(peer, &options, &progress)
    });
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Busy);
    assert_eq!(of(&apart), before);
    assert!(!other.exists());
}

/// What a crash left behind the end of the log may be wanted: a store that has such bytes does not become a copy's
/// state.
#[test]
fn what_is_in_quarantine_does_not_go_with_what_a_store_was() {
    let sandbox = TempDir::new().unwrap();
    let (home, copy) = cloned(&sandbox);
    let segments = fs::read_dir(home.join("segments")).unwrap().map(|entry| entry.unwrap().path());
    let last = segments.max().unwrap();
    OpenOptions::new().append(true).open(last).unwrap().write_all(&[7; 5000]).unwrap();
    write(&Store::open(&home).unwrap(), 1);
    push(&home, &copy).unwrap();
    assert_eq!(of(&copy), of(&home));
    assert_sound(&copy);
    write(&Store::open(&copy).unwrap(), 2);
    let before = of(&home);
    let refused = push(&copy, &home).unwrap_err();
    assert!(refused.kind() == ErrorKind::Exists && refused.to_string().contains("quarantine"), "{refused}");
    assert_eq!(of(&home), before);
    // Without that, it does.
    let third = sandbox.path().join("third");
    clone(&copy, &third).unwrap();
    write(&Store::open(&third).unwrap(), 3);
    push(&third, &copy).unwrap();
    assert_eq!(of(&copy), of(&third));
}

/// A writer has acknowledged what the full device of the index has no room for.
#[test]
fn a_source_whose_index_is_behind_is_not_copied_as_it_was() {
    let settings = geometry(1, 1, 1, (1, 0));
    let world = World::new(Simulated::devices(&settings), 1);
    let subject = Simulated::create(&settings, &world).unwrap();
    let store = subject.store();
    store.put(&key("early"), &file(), b"content").unwrap();
    store.sync().unwrap();
    let reader = Simulated::open_as(&home(&settings), &world, Access::Read).unwrap();
    let image = || StoreSource::new(reader.store()).image().map(|image| image.position().sequence);
    assert_eq!(image().unwrap(), store.engine().view().state.position.sequence);
    world.fill(0, 0);
    for number in 0..50 {
        store.put(&key(&format!("{number:0>100}")), &file(), b"content").unwrap();
    }
    store.sync().unwrap();
    store.engine().mark(false).unwrap();
    let refused = image().unwrap_err();
    assert!(refused.kind() == ErrorKind::Busy && refused.to_string().contains("index"), "{refused}");
    world.device(0).set_endless();
    store.put(&key("late"), &file(), b"content").unwrap();
    store.sync().unwrap();
    assert_eq!(image().unwrap(), store.engine().view().state.position.sequence);
}

/// What a writer acknowledges after the state was taken does not keep it from being copied, however often that is.
#[test]
fn a_source_is_copied_beside_a_writer_that_goes_on() {
    let settings = geometry(1, 1, 1, (1, 0));
    let world = World::new(Simulated::devices(&settings), 1);
    let subject = Simulated::create(&settings, &world).unwrap();
    let store = subject.store();
    let acknowledge = |name: &str| {
        store.put(&key(name), &file(), b"content").unwrap();
        store.engine().mark(false).unwrap();
        store.engine().view().state.clone()
    };
    let states = ["a", "b", "c"].map(acknowledge);
    let reader = Simulated::open_as(&home(&settings), &world, Access::Read).unwrap();
    let (source, mut durable) = (StoreSource::new(reader.store()), None);
    let refused = source.superblocks_of(&states[0], &mut durable).unwrap_err();
    assert_eq!((refused.kind(), durable), (ErrorKind::Busy, Some(states[2].position.sequence)));
    assert!(source.superblocks_of(&states[1], &mut durable).is_err());
    acknowledge("d");
    source.superblocks_of(&states[2], &mut durable).unwrap();
}

/// The exchange was the last that a push did: what the copy was has the pins of its readers, too.
#[test]
fn what_a_killed_push_left_is_removed_beside_readers_of_the_copy() {
    let sandbox = TempDir::new().unwrap();
    let (home, copy) = cloned(&sandbox);
    let aside = sandbox.path().join("one-copy.incoming");
    clone(&home, &sandbox.path().join("left")).unwrap();
    let reader = Store::open_read_only(&copy).unwrap();
    let then = reader.snapshot().unwrap();
    let pins = copy.join("index/pins");
    let left = sandbox.path().join("left/index/pins");
    fs::create_dir_all(&left).unwrap();
    let names: Vec<_> = fs::read_dir(&pins).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!names.is_empty());
    names.iter().for_each(|name| fs::hard_link(pins.join(name), left.join(name)).unwrap());
    fs::rename(sandbox.path().join("left"), &aside).unwrap();
    write(&Store::open(&home).unwrap(), 1);
    push(&home, &copy).unwrap();
    assert_eq!(of(&copy), of(&home));
    assert!(!aside.exists());
    drop((then, reader));
}

/// Rows of files that a writer that was killed may have removed, or never completed.
#[test]
fn files_that_may_be_gone_are_not_copied() {
    let row = |number, size_bytes| SegmentRow {
        number: SegmentNumber(number),
        epoch: Epoch(1),
        class: Class::Fast,
        devices: vec![DeviceNumber(0)],
        size_bytes,
        live_bytes: 0,
        live_records: 0,
        dead_records: u64::from(size_bytes > SEGMENT_HEADER_BYTES),
        lowest_id: number,
    };
    let extent = |file| ExtentRow { device: DeviceNumber(1), file, end_bytes: 9, live_bytes: 0 };
    let mut released = Released::default();
    [1, 2].into_iter().for_each(|number| released.add_segment(SegmentNumber(number)));
    let mut state = State::default();
    let rows = [row(1, 5000), row(3, 5000), row(4, 5000), row(5, SEGMENT_HEADER_BYTES)];
    state.segments = Arc::new(rows.into_iter().map(|row| (row.number, row)).collect());
    state.extents = Arc::new([extent(6), extent(7)].into_iter().map(|row| ((row.device, row.file), row)).collect());
    released.add_extent(DeviceNumber(1), 6);
    state.notes = Arc::new([(RELEASED.to_owned(), released.encode())].into());
    let of_extent = |file| Superseded::Extent { device: DeviceNumber(1), file };
    let (one, three) = (Superseded::Segment(SegmentNumber(1)), Superseded::Segment(SegmentNumber(3)));
    let superseded = [one, three.clone(), of_extent(6), of_extent(7), Superseded::Table(9)];
    state.superseded = Arc::new(superseded.into_iter().map(|file| (4, file)).collect());
    drop_freed(&mut state);
    assert_eq!(state.segments.keys().map(|number| number.0).collect::<Vec<_>>(), [3, 4]);
    assert_eq!(state.extents.keys().map(|&(_, file)| file).collect::<Vec<_>>(), [7]);
    let left: Vec<Superseded> = state.superseded.iter().map(|(_, file)| file.clone()).collect();
    assert_eq!(left, [three, of_extent(7), Superseded::Table(9)]);
}
