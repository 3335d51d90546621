//! The log alone, without an index: after losses in a crash, and after compaction.

use super::*;
use crate::format::ids::Epoch;
use crate::format::segment::SEGMENT_HEADER_BYTES;
use crate::index::catalog::{Change, SegmentRow, State};

/// Copies the current segments of a store to a store of their own without an index.
pub(super) fn without_index(home: &Path, copy: &Path) {
    std::fs::create_dir_all(copy.join(SEGMENTS)).unwrap();
    std::fs::copy(home.join("superblock"), copy.join("superblock")).unwrap();
    for segment in segments(home) {
        std::fs::copy(&segment, copy.join(SEGMENTS).join(segment.file_name().unwrap())).unwrap();
    }
}

#[test]
fn what_follows_a_segment_that_a_crash_took_is_not_there() {
    let sandbox = TempDir::new().unwrap();
    let (home, copy) = (sandbox.path().join("home"), sandbox.path().join("copy"));
    let store = Store::create(&home, &small_segments()).unwrap();
    // Fewer than are synced automatically.
    for number in 0..5 {
        let mut batch = store.batch(Durability::None);
        (0..8).for_each(|at| batch.put(&key(&format!("{number}/{at}")), &file(), &bytes(at, 60_000)).unwrap());
        batch.commit().unwrap();
    }
    without_index(&home, &copy);
    let taken = segments(&copy);
    assert!(taken.len() > 2);
    std::fs::write(&taken[0], []).unwrap();
    let store = Store::open(&copy).unwrap();
    assert_eq!(store.walk(&Key::root()).unwrap().count(), 0, "later batches without the first");
    store.put(&key("new"), &file(), b"new").unwrap();
    assert_eq!(store.walk(&Key::root()).unwrap().count(), 1);
}

#[test]
fn what_was_compacted_is_no_gap_even_if_the_last_commit_is_damaged() {
    let sandbox = TempDir::new().unwrap();
    let (home, copy) = (sandbox.path().join("home"), sandbox.path().join("copy"));
    let store = Store::create(&home, &small_segments()).unwrap();
    for number in 0..60 {
        store.put(&key(&format!("{number}")), &file(), &bytes(number, 40_000)).unwrap();
    }
    for number in (0..60).filter(|number| number % 3 > 0) {
        store.remove(&key(&format!("{number}"))).unwrap();
    }
    compact(&store, &ALL);
    let expected = loaded(&store, &Key::root());
    assert_eq!(expected.len(), 20);
    drop(store);
    without_index(&home, &copy);
    let last = segments(&copy).pop().unwrap();
    assert!(segments(&copy)[0].file_name() != Some("0000000000000001".as_ref()), "nothing was given back");
    let mut bytes = std::fs::read(&last).unwrap();
    let at = bytes.len() - 30;
    bytes[at] ^= 1;
    std::fs::write(&last, bytes).unwrap();
    assert!(loaded(&Store::open(&copy).unwrap(), &Key::root()) == expected);
}

#[test]
fn a_removal_in_quarantine_is_none_after_compaction_either() {
    let sandbox = TempDir::new().unwrap();
    let [home, copy, again] = ["home", "copy", "again"].map(|name| sandbox.path().join(name));
    let store = Store::create(&home, &small_segments()).unwrap();
    for number in 0..20 {
        store.put(&key(&format!("{number}")), &file(), &bytes(number, 60_000)).unwrap();
    }
    store.remove(&key("0")).unwrap();
    (0..5).for_each(|version| store.put(&key("last"), &file(), &bytes(version, 60_000)).unwrap());
    let expected = loaded(&store, &Key::root());
    let mut batch = store.batch(Durability::None);
    batch.remove(&key("1")).unwrap();
    batch.commit().unwrap();
    // A crash loses a part of its commit, and leaves the record of the removal.
    without_index(&home, &copy);
    let taken = segments(&copy);
    assert_eq!(taken.len(), 2);
    let last = std::fs::File::options().write(true).open(&taken[1]).unwrap();
    last.set_len(last.metadata().unwrap().len() - 40).unwrap();
    let store = Store::open(&copy).unwrap();
    assert!(loaded(&store, &Key::root()) == expected);
    // The segment before it is moved, and the one with older records stays.
    let done = compact(&store, &CompactOptions::default());
    assert_eq!((done.segments, segments(&copy).contains(&taken[0])), (1, true));
    without_index(&copy, &again);
    assert!(loaded(&Store::open(&again).unwrap(), &Key::root()) == expected, "a removal came out of quarantine");
}

/// Begins the next segment, and leaves of it, in a copy without an index, what a crash leaves before its first batch is
/// durable.
fn with_segment_begun(store: &Store, home: &Path, copy: &Path) {
    store.engine().close_active_segment().unwrap();
    let mut batch = store.batch(Durability::None);
    batch.put(&key("next"), &file(), b"next").unwrap();
    batch.commit().unwrap();
    without_index(home, copy);
    let begun = std::fs::File::options().write(true).open(segments(copy).pop().unwrap()).unwrap();
    begun.set_len(SEGMENT_HEADER_BYTES).unwrap();
}

#[test]
fn a_segment_without_a_batch_hides_nothing_that_was_released() {
    let sandbox = TempDir::new().unwrap();
    let (home, copy) = (sandbox.path().join("home"), sandbox.path().join("copy"));
    let store = Store::create(&home, &small_segments()).unwrap();
    for number in 0..60 {
        store.put(&key(&format!("{number}")), &file(), &bytes(number, 40_000)).unwrap();
    }
    (1..60).for_each(|number| _ = store.remove(&key(&format!("{number}"))).unwrap());
    compact(&store, &ALL);
    let expected = loaded(&store, &Key::root());
    with_segment_begun(&store, &home, &copy);
    let store = Store::open(&copy).unwrap();
    assert!(store.completeness().is_complete(), "{:?}", store.completeness());
    assert!(loaded(&store, &Key::root()) == expected);
    compact(&store, &ALL);
    is_sound(&store);
}

#[test]
fn a_segment_without_a_batch_hides_no_end_of_another() {
    let sandbox = TempDir::new().unwrap();
    let [home, copy, again] = ["home", "copy", "again"].map(|name| sandbox.path().join(name));
    let store = Store::create(&home, &small_segments()).unwrap();
    (0..10).for_each(|number| store.put(&key(&format!("{number}")), &file(), &bytes(number, 60_000)).unwrap());
    let end = segment_files(&home)[0];
    let mut expected = loaded(&store, &Key::root());
    let unacknowledged = |change: &dyn Fn(&mut Batch<'_>)| {
        let mut batch = store.batch(Durability::None);
        change(&mut batch);
        batch.commit().unwrap();
    };
    unacknowledged(&|batch| batch.put(&key("torn"), &file(), b"torn").unwrap());
    unacknowledged(&|batch| _ = batch.remove(&key("0")).unwrap());
    // A crash takes the first of two batches and leaves the second: the log ends before both.
    without_index(&home, &copy);
    let first = segments(&copy).remove(0);
    let mut torn = std::fs::read(&first).unwrap();
    torn[end as usize + 50] ^= 1;
    std::fs::write(&first, torn).unwrap();
    drop(store);
    let store = Store::open(&copy).unwrap();
    assert!(loaded(&store, &Key::root()) == expected);
    // The segment that goes on at the end is given back, and the one with the end stays.
    (0..10).for_each(|version| store.put(&key("last"), &file(), &bytes(version, 60_000)).unwrap());
    expected.insert("last".to_owned(), bytes(9, 60_000));
    let done = compact(&store, &CompactOptions::default());
    assert_eq!((done.segments, segments(&copy)[0] == first), (1, true));
    with_segment_begun(&store, &copy, &again);
    let store = Store::open(&again).unwrap();
    assert!(loaded(&store, &Key::root()) == expected, "a removal came out of quarantine");
    assert!(store.completeness().is_complete(), "{:?}", store.completeness());
}

#[test]
fn a_number_that_only_the_index_has_is_not_used_again() {
    let sandbox = TempDir::new().unwrap();
    let home = sandbox.path().join("home");
    let store = Store::create(&home, &small_segments()).unwrap();
    store.put(&key("before"), &file(), b"before").unwrap();
    // A writer took in the segment that another one had just begun, and the power failed: its name was not durable,
    // what the index wrote was.
    let never = |state: &State| {
        let newest = state.segments.last_key_value().unwrap().1.clone();
        let (live_bytes, live_records, dead_records) = (0, 0, 0);
        let (number, epoch, size_bytes) = (newest.number.next(), Epoch(7), SEGMENT_HEADER_BYTES);
        let row = SegmentRow {
            number,
            epoch,
            size_bytes,
            live_bytes,
            live_records,
            dead_records,
            lowest_id: u64::MAX,
            ..newest
        };
        Change { segments: vec![row], durable: true, ..Change::default() }
    };
    store.engine().adjust(never).unwrap();
    drop(store);
    let store = Store::open(&home).unwrap();
    store.engine().close_active_segment().unwrap();
    store.put(&key("after"), &file(), b"after").unwrap();
    for name in ["before", "after"] {
        assert_eq!(store.get(&key(name)).unwrap().as_deref(), Some(name.as_bytes()));
    }
    is_sound(&store);
    drop(store);
    // The log alone shows the same.
    let copy = sandbox.path().join("copy");
    without_index(&home, &copy);
    let store = Store::open(&copy).unwrap();
    assert!(store.completeness().is_complete());
    assert_eq!(store.get(&key("after")).unwrap().as_deref(), Some(&b"after"[..]));
}

#[test]
fn removals_stay_while_a_damaged_segment_with_what_they_remove_does() {
    let sandbox = TempDir::new().unwrap();
    // Damage of a live record is found when it is moved, of a dead one while the removals of its segment are.
    for (name, is_live) in [("live", true), ("dead", false)] {
        let [home, copy] = ["home", "copy"].map(|part| sandbox.path().join(format!("{name}-{part}")));
        let store = Store::create(&home, &small_segments()).unwrap();
        let contents = [bytes(7, 30_000), bytes(8, 3000)];
        store.put(&key("removed"), &file(), &contents[0]).unwrap();
        store.put(&key("with it"), &file(), &contents[1]).unwrap();
        store.engine().close_active_segment().unwrap();
        store.remove(&key("removed")).unwrap();
        store.put(&key("other"), &file(), b"kept").unwrap();
        store.engine().close_active_segment().unwrap();
        // It stays, with a dead record, which is newer than that removal.
        store.put(&key("newer"), &file(), b"first").unwrap();
        store.put(&key("newer"), &file(), &bytes(9, 60_000)).unwrap();
        store.sync().unwrap();
        let first = segments(&home).remove(0);
        let mut segment = std::fs::read(&first).unwrap();
        let damaged = &contents[usize::from(is_live)];
        let at = segment.windows(damaged.len()).position(|window| window == damaged).unwrap();
        segment[at + 1000] ^= 1;
        std::fs::write(&first, segment).unwrap();
        let done = compact(&store, &CompactOptions { choice: Choice::Dead(50), ..ALL });
        assert_eq!(done.damaged_segments, [crate::format::ids::SegmentNumber(1)], "{name}");
        assert_eq!((done.segments, done.kept_removals, segments(&home).contains(&first)), (1, 1, true), "{name}");
        drop(store);
        without_index(&home, &copy);
        let store = Store::open(&copy).unwrap();
        assert_eq!(store.get(&key("with it")).is_err(), is_live, "{name}");
        assert!(store.get(&key("newer")).unwrap().is_some(), "{name}");
        assert!(store.entry(&key("removed")).unwrap().is_none(), "{name}");
    }
}
