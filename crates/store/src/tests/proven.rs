//! Superblocks that are damaged or gone on all devices with records: the segments beside them prove what they were.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::opening::{causes, copy};
use super::{bytes, file, key};
use crate::error::ErrorKind;
use crate::format::ids::DeviceNumber;
use crate::format::superblock::SUPERBLOCK;
use crate::{
    Choice, CompactOptions, OpenOptions, Plan, Progress, RepairOptions, RepairReport, Result, Store, plan_repair,
    repair,
};

const LARGE_BYTES: usize = 300_000;

/// With devices `a` (and `a2`) for records and `b` for the rest.
fn store(sandbox: &TempDir, fast: &[&str]) -> (PathBuf, Vec<PathBuf>) {
    let at = |name: &&str| sandbox.path().join(name);
    let (home, fast) = (at(&"s"), fast.iter().map(at).collect::<Vec<_>>());
    let plan = Plan { fast: fast.clone(), slow: vec![at(&"b")], ..Plan::default() };
    let store = Store::create(&home, &plan).unwrap();
    store.put(&key("small"), &file(), b"small").unwrap();
    store.put(&key("large"), &file(), &bytes(1, LARGE_BYTES)).unwrap();
    (home, fast)
}

fn repaired(home: &Path) -> Result<RepairReport> {
    let how = OpenOptions::default();
    let plan = plan_repair(home, &how, None, &mut |_| {}, &Progress::default())?;
    repair(home, &how, &plan, RepairOptions::default(), &mut |_, _| {}, &Progress::default())
}

fn is_whole(home: &Path) {
    for store in [Store::open_read_only(home).unwrap(), Store::open(home).unwrap()] {
        assert_eq!((causes(&store), store.troubles()), (vec![], vec![]));
        assert_eq!(store.get(&key("small")).unwrap().as_deref(), Some(&b"small"[..]));
        assert!(store.get(&key("large")).unwrap() == Some(bytes(1, LARGE_BYTES)));
    }
}

fn spoil(superblock: &Path, how: usize) {
    match how {
        0 => fs::remove_file(superblock).unwrap(),
        1 => fs::write(superblock, "").unwrap(),
        _ => {
            let mut bytes = fs::read(superblock).unwrap();
            [100, 65_636].into_iter().for_each(|at: usize| bytes[at] ^= 1);
            fs::write(superblock, bytes).unwrap();
        }
    }
}

#[test]
fn a_superblock_is_written_again_where_segments_of_the_store_are_beside_it() {
    for how in 0..3 {
        for names in [&["a"][..], &["a", "a2"]] {
            let sandbox = TempDir::new().unwrap();
            let (home, fast) = store(&sandbox, names);
            fast.iter().for_each(|device| spoil(&device.join(SUPERBLOCK), how));
            let reader = Store::open_read_only(&home).unwrap();
            assert!(!reader.completeness().is_complete());
            let refused = Store::open(&home).unwrap_err().to_string();
            assert!(refused.contains("granulo store repair writes a superblock again"), "{refused}");
            let report = repaired(&home).unwrap();
            let numbers: Vec<DeviceNumber> = (0..names.len() as u16).map(DeviceNumber).collect();
            assert_eq!((report.admitted, report.check.problems()), (numbers, 0));
            is_whole(&home);
        }
    }
}

/// The other superblocks do not know the last epochs.
#[test]
fn what_the_device_wrote_without_the_others_is_followed() {
    let sandbox = TempDir::new().unwrap();
    let (home, fast) = store(&sandbox, &["a"]);
    let others = [home.join(SUPERBLOCK), sandbox.path().join("b").join(SUPERBLOCK)];
    let old = others.each_ref().map(|path| fs::read(path).unwrap());
    let all = CompactOptions { choice: Choice::All, ..CompactOptions::default() };
    Store::open(&home).unwrap().compact(&all, &Progress::default()).unwrap();
    others.iter().zip(old).for_each(|(path, old)| fs::write(path, old).unwrap());
    spoil(&fast[0].join(SUPERBLOCK), 1);
    repaired(&home).unwrap();
    is_whole(&home);
}

#[test]
fn no_superblock_is_written_beside_the_segments_of_another_store_or_none() {
    for has_others in [false, true] {
        let (sandbox, elsewhere) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let (home, fast) = store(&sandbox, &["a"]);
        let (_, theirs) = store(&elsewhere, &["a"]);
        fs::remove_dir_all(&fast[0]).unwrap();
        match has_others {
            true => copy(&theirs[0].join("segments"), &fast[0].join("segments")),
            false => fs::create_dir(&fast[0]).unwrap(),
        }
        assert_eq!(repaired(&home).unwrap_err().kind(), ErrorKind::Lost);
        assert!(!fast[0].join(SUPERBLOCK).exists());
    }
}
