//! What a store in a bucket deletes, when, and what it puts together.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::leases::Place;
use super::{bytes, file, key};
use crate::objects::{Memory, Objects};
use crate::published::{Machine, Reader};
use crate::*;

const HOUR: Duration = Duration::from_secs(3600);

/// Objects that the newest version names.
fn named(bucket: &Arc<Memory>) -> BTreeSet<String> {
    let reader = Reader::open(bucket.clone(), Arc::new(Machine::default())).unwrap();
    reader.manifest().objects().map(|object| object.path()).collect()
}

/// Objects that are there.
fn there(bucket: &Arc<Memory>) -> BTreeSet<String> {
    let listed = ["fast/", "slow/"].map(|prefix| bucket.list(prefix, None).unwrap());
    assert!(listed.iter().all(|page| page.is_last));
    listed.into_iter().flat_map(|page| page.objects).map(|object| object.name).collect()
}

fn fill(store: &Store, numbers: std::ops::Range<u64>) {
    for number in numbers {
        store.put(&key(&format!("a/{number}")), &file(), &bytes(number, 30_000)).unwrap();
    }
}

fn compact(store: &Store) {
    let all = CompactOptions { choice: Choice::All, is_alone: true, ..CompactOptions::default() };
    store.compact(&all, &Progress::default()).unwrap();
    store.sync().unwrap();
}

fn has_all(store: &Store, numbers: std::ops::Range<u64>) {
    for number in numbers {
        let found = store.get(&key(&format!("a/{number}"))).unwrap().unwrap();
        assert!(found == bytes(number, 30_000), "{number}");
    }
}

#[test]
fn what_was_dropped_is_deleted_after_the_grace_time_and_not_before() {
    let place = Place::new();
    let process = place.machines.process("north");
    let store = place.open(&process).unwrap();
    fill(&store, 0..40);
    let before = there(&place.bucket);
    for number in 0..30 {
        store.remove(&key(&format!("a/{number}"))).unwrap();
    }
    compact(&store);
    compact(&store);
    let dropped: BTreeSet<String> = before.difference(&named(&place.bucket)).cloned().collect();
    assert!(dropped.len() > 5, "{dropped:?}");
    place.machines.pass(HOUR * 23);
    compact(&store);
    assert!(dropped.is_subset(&there(&place.bucket)), "a reader may need them");
    drop(store);
    place.machines.pass(HOUR * 2);
    let store = place.open(&process).unwrap();
    assert!(dropped.is_disjoint(&there(&place.bucket)), "whoever writes next deletes them");
    has_all(&store, 30..40);
    compact(&store);
    drop(store);
    place.machines.pass(HOUR * 25);
    let store = place.open(&process).unwrap();
    store.engine().collect_garbage("test").unwrap();
    assert_eq!(there(&place.bucket), named(&place.bucket));
    has_all(&place.read(), 30..40);
}

#[test]
fn a_compaction_deletes_what_dead_writers_left() {
    let place = Place::new();
    let (first, second) = (place.machines.process("north"), place.machines.process("south"));
    let store = place.open(&first).unwrap();
    fill(&store, 0..5);
    // Put, and published by nobody.
    let mut unfinished = store.batch(Durability::None);
    unfinished.put(&key("unfinished"), &file(), &bytes(1, 900_000)).unwrap();
    unfinished.commit().unwrap();
    place.machines.pass(HOUR);
    first.sleep();
    let left: BTreeSet<String> = there(&place.bucket).difference(&named(&place.bucket)).cloned().collect();
    assert!(!left.is_empty());
    let next = place.open(&second).unwrap();
    // It does not know yet that it was overtaken.
    first.wake();
    place.machines.pass(HOUR);
    assert_eq!((left.is_subset(&there(&place.bucket)), place.shown()), (true, 2));
    first.sleep();
    compact(&next);
    assert_eq!((left.is_disjoint(&there(&place.bucket)), place.shown()), (true, 1), "its own remains");
    assert!(store.put(&key("late"), &file(), b"").is_err());
    has_all(&next, 0..5);
    drop(next);
    assert_eq!(place.shown(), 0);
}

#[test]
fn many_small_batches_do_not_leave_an_object_each() {
    let place = Place::new();
    let process = place.machines.process("north");
    let store = place.open(&process).unwrap();
    let mut most = 0;
    for number in 0..120 {
        fill(&store, number..number + 1);
        most = most.max(named(&place.bucket).len());
    }
    // 3.6 MB, in objects of 128 KiB, and some that are smaller.
    assert!((28..100).contains(&most), "{most}");
    assert!(there(&place.bucket).len() > 120);
    has_all(&place.read(), 0..120);
    drop(store);
    has_all(&place.open(&process).unwrap(), 0..120);
}
