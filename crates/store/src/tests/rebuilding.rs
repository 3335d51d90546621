//! A rebuild that was interrupted and goes on, after the store was written to in between.

use std::path::PathBuf;

use tempfile::TempDir;

use super::{bytes, file, key};
use crate::format::ids::DeviceNumber;
use crate::{CheckOptions, Existing, Plan, Progress, RebuildOptions, Store};

const OBJECTS: u64 = 12;
const OBJECT_BYTES: usize = 300_000;

#[test]
fn what_was_renamed_while_a_rebuild_was_interrupted_is_rebuilt() {
    let sandbox = TempDir::new().unwrap();
    let home = sandbox.path().join("s");
    let devices = |class: &str, count: usize| -> Vec<PathBuf> {
        (0..count).map(|at| sandbox.path().join(format!("{class}{at}"))).collect()
    };
    let (fast, slow) = (devices("fast", 2), devices("slow", 3));
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
    let options = RebuildOptions { device: lost, onto: Some(sandbox.path().join("new")), bytes_per_second: None };
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
