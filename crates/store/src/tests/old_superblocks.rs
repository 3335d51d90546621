//! Superblocks that are older than the log, put back from a copy: the segments prove what followed, and are not taken
//! for what another side left.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::opening::{causes, copy};
use super::{file, key};
use crate::error::ErrorKind;
use crate::format::superblock::SUPERBLOCK;
use crate::log::completeness::Cause;
use crate::{
    Choice, CompactOptions, Error, OpenOptions, Plan, Progress, RepairOptions, RepairPlan, RepairReport, Store,
    plan_repair, rebuild_index, repair,
};

fn put(home: &Path, names: &[&str]) {
    for name in names {
        Store::open(home).unwrap().put(&key(name), &file(), name.as_bytes()).unwrap();
    }
}

fn compact(home: &Path) {
    let all = CompactOptions { choice: Choice::All, ..CompactOptions::default() };
    Store::open(home).unwrap().compact(&all, &Progress::default()).unwrap();
}

fn has(store: &Store, names: &[&str]) -> Vec<bool> {
    let has = |name: &&str| store.get(&key(name)).unwrap().as_deref() == Some(name.as_bytes());
    names.iter().map(has).collect()
}

fn planned(home: &Path) -> RepairPlan {
    plan_repair(home, &OpenOptions::default(), None, &mut |_| {}, &Progress::default()).unwrap()
}

fn repaired(home: &Path, plan: &RepairPlan, options: RepairOptions) -> RepairReport {
    repair(home, &OpenOptions::default(), plan, options, &mut |_, _| {}, &Progress::default()).unwrap()
}

fn segments(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let listed = fs::read_dir(directory.join("segments")).unwrap().map(|entry| entry.unwrap().path());
    let mut all: Vec<_> = listed.map(|path| (path.clone(), fs::read(path).unwrap())).collect();
    all.sort();
    all
}

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

#[test]
fn segments_that_continue_the_log_are_followed_and_repair_writes_the_superblocks_again() {
    for (is_mirror, is_index_lost, is_accepted) in
        [(false, false, false), (false, true, false), (false, false, true), (true, false, false), (true, true, true)]
    {
        let sandbox = TempDir::new().unwrap();
        let home = sandbox.path().join("s");
        let fast = ["x", "y"].map(|name| sandbox.path().join(name));
        let devices = if is_mirror { fast.to_vec() } else { vec![home.clone()] };
        let fast = if is_mirror { fast.to_vec() } else { Vec::new() };
        drop(Store::create(&home, &Plan { fast, ..Plan::default() }).unwrap());
        put(&home, &["a", "b"]);
        let old: Vec<_> = devices.iter().map(|device| fs::read(device.join(SUPERBLOCK)).unwrap()).collect();
        put(&home, &["c"]);
        compact(&home);
        put(&home, &["d"]);
        compact(&home);
        put(&home, &["e"]);
        for (device, old) in devices.iter().zip(old) {
            fs::write(device.join(SUPERBLOCK), old).unwrap();
            if is_index_lost {
                fs::remove_dir_all(device.join("index")).unwrap();
            }
        }
        let before = segments(&devices[0]);

        let reader = Store::open_read_only(&home).unwrap();
        assert_eq!((causes(&reader), has(&reader, &NAMES)), (vec![Cause::SuperblocksOld], vec![true; 5]));
        assert_eq!(reader.status(false).unwrap().quarantined_bytes, 0);
        let is_refused = |error: Error| error.kind() == ErrorKind::Lost && error.to_string().contains("store repair");
        assert!(is_refused(Store::open(&home).unwrap_err()));
        assert!(is_refused(rebuild_index(&home, &OpenOptions::default()).unwrap_err()));
        let degraded = OpenOptions { degraded: true, ..OpenOptions::default() };
        assert!(is_refused(Store::open_with(&home, &degraded).unwrap_err()));
        let plan = planned(&home);
        assert!(plan.superblocks.is_some() && !plan.is_empty());
        assert!(segments(&devices[0]) == before);

        let report = repaired(&home, &plan, RepairOptions { accept: is_accepted, ..RepairOptions::default() });
        assert!(report.is_complete && report.check.problems() == 0 && report.completeness.is_complete(), "{report:?}");
        for _ in 0..2 {
            let store = Store::open(&home).unwrap();
            assert_eq!((causes(&store), has(&store, &NAMES)), (vec![], vec![true; 5]));
            drop(store);
            put(&home, &["f"]);
            drop(rebuild_index(&home, &OpenOptions::default()).unwrap());
        }
        assert!(planned(&home).is_empty());
    }
}

/// Two copies of a store went on alone, and the superblock of one is beside the log of the other.
#[test]
fn segments_that_contradict_the_superblock_are_not_followed() {
    let sandbox = TempDir::new().unwrap();
    let (home, other) = (sandbox.path().join("s"), sandbox.path().join("other"));
    drop(Store::create(&home, &Plan::default()).unwrap());
    put(&home, &["a"]);
    copy(&home, &other);
    put(&home, &["b"]);
    compact(&home);
    for name in ["c", "d", "e"] {
        put(&other, &[name]);
    }
    // What the superblock knows to be durable is later than where the segment continues the log.
    let before = segments(&home);
    for _ in 0..20 {
        put(&other, &["c"]);
    }
    fs::copy(other.join(SUPERBLOCK), home.join(SUPERBLOCK)).unwrap();
    assert!(causes(&Store::open_read_only(&home).unwrap()).contains(&Cause::UnknownSegments));
    assert!(planned(&home).superblocks.is_none());
    let store = Store::open(&home).unwrap();
    assert!(causes(&store).contains(&Cause::UnknownSegments));
    drop(store);
    // It is said until somebody accepts it.
    let store = Store::open(&home).unwrap();
    assert!(causes(&store).contains(&Cause::UnknownSegments));
    drop(store);
    assert!(segments(&home).starts_with(&before), "nothing is given up before that");
    let plan = planned(&home);
    let report = repaired(&home, &plan, RepairOptions { accept: true, ..RepairOptions::default() });
    assert!(report.is_accepted);
    assert_eq!(causes(&Store::open(&home).unwrap()), []);
}
