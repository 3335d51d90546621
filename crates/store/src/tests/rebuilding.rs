//! A rebuild that was interrupted and goes on, after the store was written to in between.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tempfile::TempDir;

use super::{bytes, devices_below, file, key};
use crate::format::ids::DeviceNumber;
use crate::{CheckOptions, Existing, OpenOptions, Plan, Progress, RebuildOptions, Store};

const OBJECTS: u64 = 12;
const OBJECT_BYTES: usize = 300_000;

#[test]
fn what_was_renamed_while_a_rebuild_was_interrupted_is_rebuilt() {
    let sandbox = TempDir::new().unwrap();
    let home = sandbox.path().join("s");
    let [fast, slow] = [("fast", 2), ("slow", 3)].map(|(class, count)| devices_below(sandbox.path(), class, count));
    let store = Store::create(&home, &Plan { fast, slow: slow.clone(), ..Plan::default() }).unwrap();
    // The directory with the lower number comes first in the index.
    store.put(&key("first/small"), &file(), b"content").unwrap();
    for number in 0..OBJECTS {
        store.put(&key(&format!("last/{number:02}")), &file(), &bytes(number, OBJECT_BYTES)).unwrap();
    }
    drop(store);
    let lost = DeviceNumber(4);
    std::fs::rename(&slow[2], sandbox.path().join("dead")).unwrap();
    let store = Store::open(&home).unwrap();
    let options = RebuildOptions { device: lost, onto: Some(sandbox.path().join("new")), ..RebuildOptions::default() };
    let planned = store.plan_rebuild(&options).unwrap();
    let halfway = planned.segment_bytes + planned.unit_bytes / 2;
    let stopped_halfway = || {
        Progress::observed(move |progress| {
            if progress.snapshot().bytes > u128::from(halfway) {
                progress.stop();
            }
        })
    };
    let report = store.rebuild(&options, &stopped_halfway()).unwrap();
    assert!(!report.is_complete && !report.is_settled && report.objects > 0 && report.objects < OBJECTS, "{report:?}");
    store.rename(&key(&format!("last/{:02}", OBJECTS - 1)), &key("first/renamed"), Existing::Refuse).unwrap();
    let again = store.rebuild(&options, &Progress::default()).unwrap();
    assert!(again.is_complete && again.is_settled && again.objects < OBJECTS, "{again:?}");
    let check = CheckOptions { is_deep: true, ..CheckOptions::default() };
    let mut problems = Vec::new();
    store.check(check, &mut |problem| problems.push(problem.to_string()), &Progress::default()).unwrap();
    assert_eq!(problems, [""; 0]);
    // Another device may be lost now. What was noted of a directory says nothing about another one.
    drop(store);
    std::fs::rename(sandbox.path().join("new"), sandbox.path().join("dead as well")).unwrap();
    let store = Store::open(&home).unwrap();
    let third = RebuildOptions { onto: Some(sandbox.path().join("third")), ..options };
    assert!(!store.rebuild(&third, &stopped_halfway()).unwrap().is_complete);
    drop(store);
    std::fs::rename(sandbox.path().join("third"), sandbox.path().join("dead at once")).unwrap();
    let store = Store::open(&home).unwrap();
    let fourth = RebuildOptions { onto: Some(sandbox.path().join("fourth")), ..third };
    let report = store.rebuild(&fourth, &Progress::default()).unwrap();
    assert!(report.is_complete && report.objects == OBJECTS, "{report:?}");
    drop(store);
    std::fs::rename(&slow[0], sandbox.path().join("dead too")).unwrap();
    let store = Store::open_read_only(&home).unwrap();
    let content = store.get(&key("first/renamed")).unwrap().unwrap();
    assert!(content == bytes(OBJECTS - 1, OBJECT_BYTES));
}

#[test]
fn what_is_written_while_a_device_is_rebuilt_is_on_both() {
    let sandbox = TempDir::new().unwrap();
    let home = sandbox.path().join("s");
    let fast = ["a", "b"].map(|name| sandbox.path().join(name));
    let plan = Plan { fast: fast.to_vec(), segment_bytes: 1 << 20, ..Plan::default() };
    let store = Store::create(&home, &plan).unwrap();
    for number in 0..100 {
        store.put(&key(&format!("before/{number}")), &file(), &bytes(number, 60_000)).unwrap();
    }
    drop(store);
    std::fs::rename(&fast[1], sandbox.path().join("dead")).unwrap();
    let store = Store::open_with(&home, &OpenOptions { degraded: true, ..OpenOptions::default() }).unwrap();
    let (writer, written) = (store.clone(), Arc::new(AtomicU64::new(0)));
    let count = Arc::clone(&written);
    let progress = Progress::observed(move |_| {
        let number = count.fetch_add(1, Ordering::Relaxed);
        writer.put(&key(&format!("meanwhile/{number}")), &file(), &bytes(number, 5000)).unwrap();
    });
    let new = sandbox.path().join("new");
    let options = RebuildOptions { device: DeviceNumber(1), onto: Some(new.clone()), ..RebuildOptions::default() };
    assert!(store.rebuild(&options, &progress).unwrap().is_complete);
    drop((store, progress));
    let written = written.load(Ordering::Relaxed);
    assert!(written > 5, "{written}");
    for (lost, at) in [(&fast[0], "first"), (&new, "second")] {
        let aside = sandbox.path().join(at);
        std::fs::rename(lost, &aside).unwrap();
        let store = Store::open_read_only(&home).unwrap();
        for number in 0..written {
            let content = store.get(&key(&format!("meanwhile/{number}"))).unwrap();
            assert!(content == Some(bytes(number, 5000)), "{number} of {written}, without the {at}");
        }
        drop(store);
        std::fs::rename(&aside, lost).unwrap();
    }
}
