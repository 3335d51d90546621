//! `repair --drop-lost` drops what its plan listed, and nothing else.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::{file, key};
use crate::format::entry::Location;
use crate::format::names::{SEGMENTS, segment_path};
use crate::maintain::repair::{LISTED, NAMED};
use crate::{
    Attributes, Buffer, Compression, Key, OpenOptions, Plan, Progress, RepairOptions, RepairPlan, RepairReport, Store,
    plan_repair, rebuild_index, repair,
};

/// More than a plan lists, which is more than it names.
const OBJECTS: usize = 40;

fn name(number: usize) -> String {
    format!("f{number:02}")
}

fn store_in(sandbox: &TempDir) -> PathBuf {
    store_of(sandbox, &Plan::default())
}

fn store_of(sandbox: &TempDir, plan: &Plan) -> PathBuf {
    let home = sandbox.path().join("s");
    let store = Store::create(&home, plan).unwrap();
    (0..OBJECTS).for_each(|number| store.put(&key(&name(number)), &file(), b"content").unwrap());
    home
}

fn damage(home: &Path, numbers: impl Iterator<Item = usize>) {
    numbers.for_each(|number| damage_record(home, &name(number)));
}

/// Flips a bit in the record of a name.
fn damage_record(home: &Path, name: &str) {
    let store = Store::open_read_only(home).unwrap();
    let entry = store.engine().snapshot().look_up_path(key(name).stored()).unwrap().unwrap();
    damage_at(home, &store, entry.location);
}

fn damage_at(home: &Path, store: &Store, location: Location) {
    let path = home.join(segment_path(store.engine().segment_id(location.segment)));
    let mut bytes = fs::read(&path).unwrap();
    bytes[location.offset.0 as usize + 25] ^= 4;
    fs::write(&path, bytes).unwrap();
}

fn planned(home: &Path) -> RepairPlan {
    plan_repair(home, &OpenOptions::default(), None, &mut |_| {}, &Progress::default()).unwrap()
}

fn drop_lost(home: &Path, plan: &RepairPlan) -> RepairReport {
    let options = RepairOptions { drop_lost: true, ..RepairOptions::default() };
    repair(home, &OpenOptions::default(), plan, options, &mut |_, _| {}, &Progress::default()).unwrap()
}

/// A power failure may leave the last segment empty: the index knows what was in it, and is not rebuilt without it.
#[test]
fn what_was_in_the_last_segment_stays_listed_until_it_is_dropped() {
    for length in [0, 100] {
        let sandbox = TempDir::new().unwrap();
        let home = store_in(&sandbox);
        for entry in fs::read_dir(home.join(SEGMENTS)).unwrap() {
            fs::File::options().write(true).open(entry.unwrap().path()).unwrap().set_len(length).unwrap();
        }
        let listed = || Store::open_read_only(&home).unwrap().list(&Key::root()).unwrap().count();
        let plan = planned(&home);
        assert!(plan.lost_problems() > 0, "{length}: {:?}", plan.lines);
        let how = OpenOptions::default();
        let report =
            repair(&home, &how, &plan, RepairOptions::default(), &mut |_, _| {}, &Progress::default()).unwrap();
        assert!(report.check.problems() > 0, "{length}: {report:?}");
        assert_eq!(listed(), OBJECTS, "{length}");
        let report = drop_lost(&home, &planned(&home));
        assert!(report.dropped > 0 && listed() < OBJECTS, "{length}: {report:?}");
    }
}

#[test]
fn what_was_damaged_since_the_plan_is_not_dropped() {
    let sandbox = TempDir::new().unwrap();
    let home = store_in(&sandbox);
    damage(&home, 3..5);
    let plan = planned(&home);
    damage(&home, 7..8);
    let report = drop_lost(&home, &plan);
    assert_eq!((report.dropped, report.unplanned, report.lost.len()), (2, 1, 1), "{report:?}");
    let names = |numbers: &[usize]| -> Vec<String> { numbers.iter().map(|&number| name(number)).collect() };
    let is_there = |name: &String| Store::open_read_only(&home).unwrap().entry(&key(name)).unwrap().is_some();
    assert!(names(&[3, 4]).iter().all(|name| !is_there(name)) && is_there(&name(7)));
    // The next plan lists it.
    let report = drop_lost(&home, &planned(&home));
    assert_eq!((report.dropped, report.unplanned, report.check.problems()), (1, 0, 0), "{report:?}");
}

#[test]
fn more_lost_objects_than_a_plan_lists_need_another_run_and_the_report_says_so() {
    let sandbox = TempDir::new().unwrap();
    let home = store_in(&sandbox);
    damage(&home, 0..OBJECTS);
    let plan = planned(&home);
    assert_eq!((plan.lost.len(), plan.lost_problems()), (NAMED, OBJECTS as u64));
    let report = drop_lost(&home, &plan);
    assert_eq!((report.dropped, report.unplanned), (LISTED as u64, (OBJECTS - LISTED) as u64), "{report:?}");
    let report = drop_lost(&home, &planned(&home));
    assert_eq!((report.dropped, report.unplanned), ((OBJECTS - LISTED) as u64, 0), "{report:?}");
    assert_eq!(report.check.problems(), 0);
}

#[test]
fn one_of_several_names_of_a_file_is_rebuilt_if_only_its_record_is_lost() {
    let sandbox = TempDir::new().unwrap();
    let home = store_in(&sandbox);
    let store = Store::open(&home).unwrap();
    store.hard_link(&key(&name(1)), &key("other")).unwrap();
    store.hard_link(&key(&name(2)), &key("lost")).unwrap();
    drop(store);
    damage_record(&home, "other");
    let report = drop_lost(&home, &planned(&home));
    assert_eq!((report.dropped, report.restored_names, report.check.problems()), (0, 1, 0), "{report:?}");
    // The log has it, and not only the index.
    let store = rebuild_index(&home, &OpenOptions::default()).unwrap();
    assert!(store.completeness().is_complete());
    let number = |store: &Store, name: &str| store.entry(&key(name)).unwrap().map(|found| found.entry.number);
    assert!(number(&store, "other").is_some());
    assert_eq!(number(&store, &name(1)), number(&store, "other"));
    // What a path leads to, for a file with several names, is the file itself.
    let location = store.entry(&key("lost")).unwrap().unwrap().entry.location;
    damage_at(&home, &store, location);
    drop(store);
    // Both names go with the file itself.
    let report = drop_lost(&home, &planned(&home));
    assert_eq!((report.restored_names, report.check.problems()), (0, 0), "{report:?}");
    let store = Store::open_read_only(&home).unwrap();
    assert_eq!([name(2).as_str(), "lost", "other"].map(|name| number(&store, name).is_some()), [false, false, true]);
}

#[test]
fn what_an_index_built_after_the_damage_does_not_show_stays_until_it_is_accepted() {
    let sandbox = TempDir::new().unwrap();
    let home = store_in(&sandbox);
    damage(&home, 5..6);
    drop(rebuild_index(&home, &OpenOptions::default()).unwrap());
    let bytes = |home: &Path| -> Vec<Vec<u8>> {
        let segments = fs::read_dir(home.join(SEGMENTS)).unwrap().map(|entry| entry.unwrap().path());
        segments.map(|path| fs::read(path).unwrap()).filter(|bytes| has(bytes, name(5).as_bytes())).collect()
    };
    let damaged = bytes(&home);
    for _ in 0..2 {
        let plan = planned(&home);
        let quiet = Progress::default();
        let report =
            repair(&home, &OpenOptions::default(), &plan, RepairOptions::default(), &mut |_, _| {}, &quiet).unwrap();
        assert_eq!((report.given_back, report.lost.len()), (0, 1), "{report:?}");
        assert_eq!(bytes(&home), damaged);
        let store = rebuild_index(&home, &OpenOptions::default()).unwrap();
        assert!(!store.completeness().is_complete());
    }
    let plan = planned(&home);
    let options = RepairOptions { accept: true, ..RepairOptions::default() };
    let report = repair(&home, &OpenOptions::default(), &plan, options, &mut |_, _| {}, &Progress::default()).unwrap();
    assert_eq!((report.is_accepted, report.given_back, report.lost.len(), report.check.problems()), (true, 1, 0, 0));
    let store = rebuild_index(&home, &OpenOptions::default()).unwrap();
    assert!(store.completeness().is_complete());
    assert!(store.entry(&key(&name(5))).unwrap().is_none() && store.entry(&key(&name(6))).unwrap().is_some());
}

fn has(bytes: &[u8], what: &[u8]) -> bool {
    bytes.windows(what.len()).any(|window| window == what)
}

#[test]
fn what_a_snapshot_shares_with_a_lost_directory_stays() {
    let sandbox = TempDir::new().unwrap();
    let home = store_in(&sandbox);
    let store = Store::open(&home).unwrap();
    store.put(&key("now/in it"), &file(), b"1").unwrap();
    store.put(&key("then/in it"), &file(), b"2").unwrap();
    store.create_snapshot("before").unwrap();
    let place = |name: &str| store.engine().snapshot().look_up_path(key(name).stored()).unwrap().unwrap().location;
    let places = [place("now"), place("then")];
    store.set_attributes(&key("then"), &Attributes { mode: 0o040_500, ..Attributes::default() }).unwrap();
    places.iter().for_each(|&place| damage_at(&home, &store, place));
    drop(store);
    let report = drop_lost(&home, &planned(&home));
    assert_eq!((report.dropped, report.restored_directories, report.check.problems()), (0, 2, 0), "{report:?}");
    let is_whole = |store: &Store| {
        let snapshot = store.snapshot_named("before").unwrap().unwrap();
        let mut buffer = Buffer::default();
        for (name, content) in [("now/in it", "1"), ("then/in it", "2")] {
            let then = snapshot.read(&key(name), &mut buffer).unwrap().unwrap();
            assert_eq!(then.content, content.as_bytes());
        }
        assert_eq!(store.entry(&key("then")).unwrap().unwrap().entry.mode, 0o040_500);
        assert!(store.completeness().is_complete());
    };
    is_whole(&Store::open_read_only(&home).unwrap());
    // The log has it, and not only the index.
    is_whole(&rebuild_index(&home, &OpenOptions::default()).unwrap());
}

#[test]
fn an_older_version_does_not_stand_in_for_one_that_is_lost() {
    for (compression, content_bytes) in
        [(Compression::None, 13), (Compression::Zstd(3), 1_000), (Compression::None, 300_000)]
    {
        nothing_older_stands_in(&Plan { compression, ..Plan::default() }, content_bytes);
    }
}

fn nothing_older_stands_in(plan: &Plan, content_bytes: usize) {
    let sandbox = TempDir::new().unwrap();
    let home = store_of(&sandbox, plan);
    let store = Store::open(&home).unwrap();
    store.put(&key(&name(1)), &file(), &b"newer ".repeat(content_bytes / 6 + 1)[..content_bytes]).unwrap();
    let place = |name: &str| store.engine().snapshot().look_up_path(key(name).stored()).unwrap().unwrap().location;
    let places = [place(&name(1)), place(&name(2))];
    drop(store);
    for Location { segment, offset, record_bytes } in places {
        let store = Store::open_read_only(&home).unwrap();
        let path = home.join(segment_path(store.engine().segment_id(segment)));
        let mut bytes = fs::read(&path).unwrap();
        let record = &mut bytes[offset.0 as usize..][..record_bytes as usize];
        let content = (0..record.len()).rev().find(|&at| record[at] != 0).unwrap();
        record[content] ^= 1;
        fs::write(&path, bytes).unwrap();
    }
    // The heads are intact: the log shows which objects are lost, and the store is otherwise complete.
    let store = rebuild_index(&home, &OpenOptions::default()).unwrap();
    assert!(store.completeness().is_complete());
    for number in [1, 2] {
        let lost = store.get(&key(&name(number))).unwrap_err();
        assert!(lost.to_string().contains("cannot be verified"), "{lost}");
    }
    let size_bytes = store.entry(&key(&name(1))).unwrap().unwrap().entry.size_bytes;
    // That of stripes and of compressed bytes is lost with them.
    assert_eq!(size_bytes, if content_bytes == 13 { 13 } else { 0 });
    drop(store);
    let plan = planned(&home);
    assert_eq!((plan.lost_problems(), plan.lost.len()), (2, 2));
    let report = drop_lost(&home, &plan);
    assert_eq!((report.dropped, report.check.problems()), (2, 0), "{report:?}");
    let store = rebuild_index(&home, &OpenOptions::default()).unwrap();
    assert!(store.entry(&key(&name(1))).unwrap().is_none() && store.completeness().is_complete());
}
