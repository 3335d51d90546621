//! Copies of segments: what they make of the other copies, and that nobody takes them for what a crash left.

use std::sync::Arc;

use tempfile::TempDir;

use super::{bytes, devices_below, file, key};
use crate::engine::copies::Damaged;
use crate::engine::pace::Pace;
use crate::format::ids::DeviceNumber;
use crate::format::rows::SegmentRow;
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
