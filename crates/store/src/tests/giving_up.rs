//! Rebuilds where what is left is damaged: the lost device may have it intact, so it is given up only on request. What
//! was given up is dropped by a repair, and nothing else.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::{bytes, file, key};
use crate::format::entry::Kind;
use crate::format::ids::{DeviceNumber, LogOffset};
use crate::format::names::segment_path;
use crate::log::scan::{ScanStep, SegmentScan};
use crate::{
    CheckOptions, Key, OpenOptions, Plan, Progress, RebuildOptions, RebuildReport, RepairOptions, RepairReport, Store,
    plan_repair, rebuild_index, repair,
};

/// On ten of the slow devices.
const LARGE_BYTES: usize = 700_000;

struct Sample {
    sandbox: TempDir,
    devices: Vec<PathBuf>,
}

impl Sample {
    /// Files "kept", "needle", "dead" and "gone"; the last two are removed.
    fn new(fast: usize, slow: usize, copies: u8) -> Sample {
        let sandbox = TempDir::new().unwrap();
        let named = |class: &str, count: usize| -> Vec<PathBuf> {
            (0..count).map(|at| sandbox.path().join(format!("{class}{at}"))).collect()
        };
        let (fast, slow) = (named("fast", fast), named("slow", slow));
        let devices = fast.iter().chain(&slow).cloned().collect();
        let parity = (!slow.is_empty()).then_some(copies - 1);
        let plan = Plan { fast, slow, copies: Some(copies), parity, ..Plan::default() };
        let store = Store::create(&sandbox.path().join("s"), &plan).unwrap();
        for name in ["kept", "needle", "dead", "gone"] {
            store.put(&key(name), &file(), name.as_bytes()).unwrap();
        }
        for name in ["dead", "gone"] {
            store.remove(&key(name)).unwrap();
        }
        Sample { sandbox, devices }
    }

    fn home(&self) -> PathBuf {
        self.sandbox.path().join("s")
    }

    fn open(&self) -> Store {
        Store::open_with(&self.home(), &how()).unwrap()
    }

    /// Flips a bit of the record of this kind and name on one of its devices; returns the other.
    fn damage(&self, kind: Kind, name: &str) -> DeviceNumber {
        let store = self.open();
        let view = store.engine().view().clone();
        let row = view.state.segments.values().next_back().unwrap();
        let copies = store.engine().open_copies(row.id(), &row.devices);
        let mut scan = SegmentScan::new(copies, store.engine().seed(row.id()), LogOffset::START);
        let at = std::iter::from_fn(|| {
            scan.next(false).map(|step| match step {
                ScanStep::Record(at, record, _) if record.head.kind == kind => {
                    record.head.name.is_some_and(|of| of == name.as_bytes()).then_some(at.0 + record.record_bytes() / 2)
                }
                _ => None,
            })
        });
        let at = at.flatten().next().unwrap();
        let [lost, damaged] = row.devices[..] else { panic!("{row:?}") };
        let path = self.devices[damaged.index()].join(segment_path(row.id()));
        let mut segment = fs::read(&path).unwrap();
        segment[at as usize] ^= 1;
        fs::write(path, segment).unwrap();
        lost
    }

    fn dead(&self) -> PathBuf {
        self.sandbox.path().join("dead")
    }

    fn lose(&self, device: DeviceNumber) {
        fs::rename(&self.devices[device.index()], self.dead()).unwrap();
    }

    fn rebuild(&self, device: DeviceNumber, onto: Option<&Path>, gives_up: bool) -> RebuildReport {
        let options = RebuildOptions { device, onto: onto.map(Path::to_owned), gives_up, ..RebuildOptions::default() };
        let how = OpenOptions { lost: Some(device), ..how() };
        let store = Store::open_with(&self.home(), &how).unwrap();
        store.rebuild(&options, &Progress::default()).unwrap()
    }

    fn repair(&self, drop_lost: bool) -> RepairReport {
        let (home, quiet) = (self.home(), Progress::default());
        let plan = plan_repair(&home, &how(), None, &mut |_| {}, &quiet).unwrap();
        let options = RepairOptions { drop_lost, ..RepairOptions::default() };
        repair(&home, &how(), &plan, options, &mut |_, _| {}, &quiet).unwrap()
    }

    fn accept(&self) -> RepairReport {
        let (home, quiet) = (self.home(), Progress::default());
        let plan = plan_repair(&home, &how(), None, &mut |_| {}, &quiet).unwrap();
        let options = RepairOptions { accept: true, ..RepairOptions::default() };
        repair(&home, &how(), &plan, options, &mut |_, _| {}, &quiet).unwrap()
    }

    /// What a deep check says, and the names that exist, those that cannot be read with an exclamation mark.
    fn state(&self) -> (Vec<String>, Vec<String>) {
        state_of(&Store::open_read_only_with(&self.home(), &how()).unwrap())
    }
}

fn how() -> OpenOptions {
    OpenOptions { degraded: true, ..OpenOptions::default() }
}

fn state_of(store: &Store) -> (Vec<String>, Vec<String>) {
    let mut problems = Vec::new();
    let check = CheckOptions { is_deep: true, ..CheckOptions::default() };
    store.check(check, &mut |found| problems.push(found.to_string()), &Progress::default()).unwrap();
    let names = store.list(&key("")).unwrap().map(|listed| {
        let name = listed.unwrap().key.to_string();
        match store.get(&key(&name)) {
            Ok(_) => name,
            Err(_) => format!("{name}!"),
        }
    });
    (problems, names.collect())
}

#[test]
fn what_a_device_that_is_only_away_has_is_not_given_up_unasked() {
    for (kind, name) in [(Kind::File, "needle"), (Kind::File, "dead"), (Kind::Removal, "gone")] {
        for is_onto in [true, false] {
            let sample = Sample::new(if is_onto { 2 } else { 3 }, 0, 2);
            let lost = sample.damage(kind, name);
            sample.lose(lost);
            let new = sample.sandbox.path().join("new");
            let onto = is_onto.then_some(&*new);
            for _ in 0..2 {
                let report = sample.rebuild(lost, onto, false);
                assert!(!report.is_settled && !report.is_complete && report.lost == 1, "{name}: {report:?}");
                let report = sample.repair(true);
                assert!(report.dropped == 0 && report.given_back == 0, "{name}: {report:?}");
            }
            // It returns: to where it was, or in place of the one that it was to be rebuilt onto.
            match is_onto {
                false => fs::rename(sample.dead(), &sample.devices[lost.index()]).unwrap(),
                true => {
                    let report = sample.rebuild(lost, Some(&sample.dead()), false);
                    assert!(report.is_settled && report.is_complete && report.lost == 0, "{name}: {report:?}");
                }
            }
            sample.repair(false);
            assert_eq!(sample.state(), (vec![], vec!["kept".to_owned(), "needle".to_owned()]), "{name}");
            drop(rebuild_index(&sample.home(), &how()).unwrap());
            assert_eq!(sample.state(), (vec![], vec!["kept".to_owned(), "needle".to_owned()]), "{name}");
        }
    }
}

#[test]
fn what_was_given_up_is_dropped_and_nothing_else() {
    for is_onto in [true, false] {
        let sample = Sample::new(if is_onto { 2 } else { 3 }, 0, 2);
        let lost = sample.damage(Kind::File, "needle");
        sample.lose(lost);
        let new = sample.sandbox.path().join("new");
        let report = sample.rebuild(lost, is_onto.then_some(&*new), true);
        assert!(report.is_settled && !report.is_complete && report.lost == 1, "{report:?}");
        let (problems, names) = sample.state();
        assert!(problems.len() == 1 && problems[0].contains("needle"), "{problems:?}");
        assert_eq!(names, ["kept", "needle!"]);
        let report = sample.repair(true);
        assert_eq!((report.dropped, report.given_back), (1, 1), "{report:?}");
        assert_eq!(sample.state(), (vec![], vec!["kept".to_owned()]));
        drop(rebuild_index(&sample.home(), &how()).unwrap());
        assert_eq!(sample.state(), (vec![], vec!["kept".to_owned()]));
    }
}

/// Without copies and parity, all that was on the device is lost: segments as a whole, and each large object.
#[test]
fn a_store_goes_on_without_a_device_that_had_the_only_copy() {
    for number in [0, 2] {
        for is_onto in [true, false] {
            let sample = Sample::new(2, 12, 1);
            let store = sample.open();
            for at in 0..6 {
                store.put(&key(&format!("large{at}")), &file(), &bytes(at, LARGE_BYTES)).unwrap();
            }
            let first = store.engine().view().state.segments.values().next().unwrap().devices[0];
            drop(store);
            let lost = if number == 0 { first } else { DeviceNumber(number) };
            sample.lose(lost);
            // Which fast device has the only copy of the index depends on their room.
            let has_index = |directory: PathBuf| fs::read_dir(directory).is_ok_and(|files| files.count() > 0);
            let is_with_index = has_index(sample.dead().join("index"));
            let new = sample.sandbox.path().join("new");
            let onto = is_onto.then_some(&*new);
            let report = sample.rebuild(lost, onto, false);
            assert!(!report.is_settled && report.lost > 0, "{report:?}");
            let report = sample.rebuild(lost, onto, true);
            assert!(report.is_settled && report.lost > 0, "{report:?}");
            sample.open().put(&key("new"), &file(), b"new").unwrap();
            let (problems, before) = sample.state();
            // With the index went what was known of the lost objects.
            assert_eq!(problems.is_empty(), is_with_index, "{problems:?}");
            let report = sample.repair(true);
            assert!(report.is_complete && (report.dropped > 0) != is_with_index, "{report:?}");
            if lost == first && !is_with_index {
                // Nobody knows whether the lost bytes had more than the objects that the index knew.
                assert!(!report.lost.is_empty(), "{report:?}");
                sample.accept();
            }
            let (problems, names) = sample.state();
            assert_eq!(problems, [""; 0]);
            let is_read = |name: &&String| !name.ends_with('!');
            assert_eq!(names, before.iter().filter(is_read).cloned().collect::<Vec<_>>());
            assert_eq!(names.contains(&"kept".to_owned()), lost != first);
            drop(rebuild_index(&sample.home(), &how()).unwrap());
            assert_eq!(sample.state(), (vec![], names));
        }
    }
}

/// The segment with the removal has a quarantine behind its end, which would be freed together with it.
#[test]
fn what_a_damaged_removal_removed_stays_removed_when_the_quarantine_is_accepted() {
    let sample = Sample::new(2, 0, 2);
    let store = sample.open();
    store.put(&key("late"), &file(), b"late").unwrap();
    store.engine().close_active_segment().unwrap();
    store.remove(&key("late")).unwrap();
    drop(store);
    sample.damage(Kind::Removal, "late");
    let row = sample.open().engine().view().state.segments.values().next_back().unwrap().clone();
    let [one, other] = row.devices[..] else { panic!("{row:?}") };
    let place = |device: DeviceNumber| sample.devices[device.index()].join(segment_path(row.id()));
    let mut damaged = fs::read(place(other)).unwrap();
    damaged.extend_from_slice(&[7; 5000]);
    fs::write(place(one), &damaged).unwrap();
    fs::write(place(other), &damaged).unwrap();
    for _ in 0..2 {
        sample.accept();
        assert_eq!(sample.state().1, ["kept", "needle"]);
    }
    sample.repair(true);
    drop(rebuild_index(&sample.home(), &how()).unwrap());
    assert_eq!(sample.state(), (vec![], vec!["kept".to_owned(), "needle".to_owned()]));
}

/// Its content is intact where it is, but for one record, which the rebuild has to find.
#[test]
fn a_former_device_is_read_before_it_counts_as_rebuilt() {
    let sample = Sample::new(2, 0, 2);
    let lost = sample.damage(Kind::File, "needle");
    sample.lose(lost);
    let new = sample.sandbox.path().join("new");
    sample.rebuild(lost, Some(&new), false);
    // What it was to replace returns with damage of its own.
    let file = fs::read_dir(sample.dead().join("segments")).unwrap().next().unwrap().unwrap().path();
    let mut segment = fs::read(&file).unwrap();
    let at = segment.windows(6).position(|bytes| bytes == b"needle").unwrap();
    segment[at] ^= 1;
    fs::write(file, segment).unwrap();
    let report = sample.rebuild(lost, Some(&sample.dead()), false);
    assert!(!report.is_settled && report.lost == 1, "{report:?}");
}

/// Parity bears one lost device. While a second one was away, the first was given up; then the second returns.
#[test]
fn units_on_a_device_that_was_given_up_are_rebuilt_once_they_can_be() {
    let sample = Sample::new(2, 14, 2);
    let content = bytes(7, LARGE_BYTES);
    let (gone, away) = (DeviceNumber(2), DeviceNumber(3));
    let devices_of = |store: &Store, name: &Key| -> Vec<DeviceNumber> {
        let entry = store.entry(name).unwrap().unwrap().entry;
        store.engine().descriptor(&entry).unwrap().runs().map(|run| run.device).collect()
    };
    let store = sample.open();
    // The devices of an object are those of its key: some have units on both.
    let name = (0..).map(|number| key(&format!("large{number}"))).find(|name| {
        store.put(name, &file(), &content).unwrap();
        let devices = devices_of(&store, name);
        [gone, away].iter().all(|device| devices.contains(device))
    });
    let name = name.unwrap();
    drop(store);
    sample.lose(gone);
    let aside = sample.sandbox.path().join("aside");
    fs::rename(&sample.devices[away.index()], &aside).unwrap();
    let report = sample.rebuild(gone, None, true);
    assert!(report.is_settled && report.lost > 0, "{report:?}");
    fs::rename(&aside, &sample.devices[away.index()]).unwrap();
    let report = sample.repair(false);
    assert!(report.moved_objects > 0 && report.lost.is_empty(), "{report:?}");
    assert_eq!(sample.state().0, Vec::<String>::new());
    let store = sample.open();
    assert!(!devices_of(&store, &name).contains(&gone));
    drop(store);
    // Parity bears a lost device again.
    fs::rename(&sample.devices[away.index()], &aside).unwrap();
    let store = Store::open_read_only_with(&sample.home(), &how()).unwrap();
    assert!(store.get(&name).unwrap().as_deref() == Some(&content[..]));
}
