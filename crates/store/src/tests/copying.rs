//! Copies of segments: what they make of the other copies, and that nobody takes them for what a crash left.

use std::sync::Arc;

use tempfile::TempDir;

use super::{bytes, devices_below, file, key};
use crate::engine::copies::Damaged;
use crate::engine::pace::Pace;
use crate::format::entry::Location;
use crate::format::geometry::Geometry;
use crate::format::ids::{DeviceNumber, LogOffset};
use crate::format::names::segment_path;
use crate::format::rows::SegmentRow;
use crate::simulation::subject::{Simulated, geometry};
use crate::simulation::trial::Subject;
use crate::simulation::world::World;
use crate::{CompactOptions, Plan, Progress, Store};

/// A store with two copies of a segment that does not change any more.
fn mirrored(sandbox: &TempDir) -> (Store, SegmentRow) {
    let fast = devices_below(sandbox.path(), "fast", 2);
    let store = Store::create(&sandbox.path().join("s"), &Plan { fast, ..Plan::default() }).unwrap();
    store.put(&key("f"), &file(), &bytes(1, 60_000)).unwrap();
    let number = store.engine().view().state.position.segment;
    let row = store.engine().closed_row(number).unwrap().unwrap();
    (store, row)
}

#[test]
fn compaction_spares_a_copy_that_another_thread_is_writing() {
    let sandbox = TempDir::new().unwrap();
    let (store, row) = mirrored(&sandbox);
    let segments = sandbox.path().join("fast1/segments");
    let left = segments.join("left.new");
    std::fs::write(&left, b"by a crash").unwrap();
    let store = Arc::new(store);
    let other = Arc::clone(&store);
    let progress = Progress::observed(move |_| {
        other.compact(&CompactOptions::default(), &Progress::default()).unwrap();
    });
    let mut pace = Pace::new(None, &progress);
    let copied = store.engine().copy_segment(&row, DeviceNumber(1), Damaged::Refused, &mut pace).unwrap();
    assert!(copied.bytes > 60_000 && !left.exists());
    assert_eq!(std::fs::read_dir(segments).unwrap().count(), 1, "it was renamed");
}

/// A simulated store with one record, where it is, and its segment, which does not change any more.
fn simulated(settings: &Geometry) -> (World, Simulated, Location, SegmentRow) {
    let world = World::new(Simulated::devices(settings), 1);
    let subject = Simulated::create(settings, &world).unwrap();
    subject.store().put(&key("f"), &file(), &bytes(1, 60_000)).unwrap();
    let location = subject.store().entry(&key("f")).unwrap().unwrap().entry.location;
    let row = subject.store().engine().closed_row(location.segment).unwrap().unwrap();
    (world, subject, location, row)
}

#[test]
fn an_unreadable_page_is_a_hole_of_its_size() {
    const PAGE_BYTES: u64 = 4096;
    let settings = Geometry { cutoff_bytes: 1 << 20, ..geometry(2, 0, 1, (1, 0)) };
    let (world, subject, location, row) = simulated(&settings);
    let engine = subject.store().engine();
    let (source, target) = (row.devices[0], DeviceNumber(1 - row.devices[0].0));
    let read = |device: DeviceNumber| {
        let mut bytes = Vec::new();
        engine.read_copy(device, row.id(), LogOffset::START, row.size_bytes as usize, &mut bytes).unwrap();
        bytes
    };
    let before = read(source);
    let page = (location.offset.0 + 30_000) / PAGE_BYTES * PAGE_BYTES;
    world.device(source.index()).make_unreadable(&segment_path(row.id()), page, 1);
    let progress = Progress::default();
    let mut pace = Pace::new(None, &progress);
    let copied = engine.copy_segment(&row, target, Damaged::Copied, &mut pace).unwrap();
    assert_eq!(copied.damaged_bytes, location.record_bytes);
    let mut expected = before;
    expected[page as usize..(page + PAGE_BYTES) as usize].fill(0);
    assert!(read(target) == expected);
}

/// A page that cannot be read now may be readable again: its file is not replaced by one with a hole there.
#[test]
fn a_copy_keeps_what_is_damaged_everywhere() {
    let settings = Geometry { cutoff_bytes: 1 << 20, ..geometry(2, 0, 2, (1, 0)) };
    for is_unreadable in [false, true] {
        let (world, subject, location, row) = simulated(&settings);
        let engine = subject.store().engine();
        let path = segment_path(row.id());
        let damage = |device: usize| {
            let at = location.offset.0 + 20_000 + 9000 * device as u64;
            match is_unreadable {
                true => world.device(device).make_unreadable(&path, at, 1),
                false => world.device(device).flip_bit(&path, 8 * at),
            }
        };
        let progress = Progress::default();
        let copy = || {
            let made = engine.copy_segment(&row, DeviceNumber(0), Damaged::Copied, &mut Pace::new(None, &progress));
            made.map(|copied| (copied.damaged_bytes, copied.is_kept)).unwrap()
        };
        // What the other copy has is proven.
        damage(0);
        assert_eq!(copy(), (0, false));
        assert!(world.device(0).content(&path) == world.device(1).content(&path));
        damage(0);
        damage(1);
        let before = world.device(0).content(&path);
        assert_eq!(copy(), (location.record_bytes, is_unreadable));
        assert!(world.device(0).content(&path) == before, "unreadable: {is_unreadable}");
        assert!(!world.device(0).files().iter().any(|(path, _)| path.ends_with(".new")));
    }
}
