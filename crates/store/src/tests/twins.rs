//! A store and its copy were both written to, and devices of both are in one place: nothing is merged, and the side
//! that is taken is the store.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::{bytes, file, key};
use crate::error::{Error, ErrorKind};
use crate::format::ids::DeviceNumber;
use crate::{
    OpenOptions, Plan, Progress, RebuildOptions, RepairOptions, Store, plan_repair, rebuild_index, repair, take_side,
};

/// On several devices.
const LARGE_BYTES: usize = 300_000;

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &target),
            false => _ = fs::copy(entry.path(), target).unwrap(),
        }
    }
}

/// The files of a directory.
fn content(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap().is_dir() {
            true => files.extend(content(&entry.path())),
            false => _ = files.insert(entry.path(), fs::read(entry.path()).unwrap()),
        }
    }
    files
}

/// A store whose devices are partly those of its copy.
struct Twins {
    sandbox: TempDir,
    fast: usize,
    slow: usize,
}

impl Twins {
    fn place(&self) -> PathBuf {
        self.sandbox.path().join("place")
    }

    /// The store "a".
    fn kept(&self) -> PathBuf {
        self.sandbox.path().join("a")
    }

    fn home(&self) -> PathBuf {
        self.place().join("home")
    }

    fn device(&self, number: usize) -> PathBuf {
        self.place().join(format!("d{number}"))
    }

    /// Two devices have no parity.
    fn has_large(&self) -> bool {
        self.fast + self.slow > 2
    }

    fn write(&self, name: &str, times: usize, is_killed: bool) {
        for time in 0..times {
            let store = Store::open(&self.home()).unwrap();
            store.put(&key(&format!("{name}/{time}")), &file(), name.as_bytes()).unwrap();
            if self.has_large() {
                store.put(&key(&format!("{name}/{time}-large")), &file(), &bytes(time as u64, LARGE_BYTES)).unwrap();
            }
            if is_killed {
                store.engine().latch(&Error::new(ErrorKind::Io, "go on", "the test ends it"));
            }
        }
    }

    /// The store "a" and its copy "b" are written to so many times; then these devices of "b" are those of "a".
    fn new(classes: (usize, usize), times: (usize, usize), of_a: &[usize], is_killed: bool) -> Twins {
        let twins = Twins::apart(classes, times, is_killed);
        of_a.iter().for_each(|&device| twins.take_from_a(device));
        twins
    }

    /// The same, before any device is exchanged.
    fn apart((fast, slow): (usize, usize), times: (usize, usize), is_killed: bool) -> Twins {
        let twins = Twins { sandbox: TempDir::new().unwrap(), fast, slow };
        let (place, image) = (twins.place(), twins.sandbox.path().join("image"));
        fs::create_dir(&place).unwrap();
        let devices = |range: std::ops::Range<usize>| range.map(|at| twins.device(at)).collect();
        let plan = Plan { fast: devices(0..fast), slow: devices(fast..fast + slow), ..Plan::default() };
        drop(Store::create(&twins.home(), &plan).unwrap());
        twins.write("both", 1, false);
        copy(&place, &image);
        twins.write("a", times.0, is_killed);
        fs::rename(&place, twins.kept()).unwrap();
        copy(&image, &place);
        twins.write("b", times.1, is_killed);
        twins
    }

    fn take_from_a(&self, device: usize) {
        fs::remove_dir_all(self.device(device)).unwrap();
        copy(&self.kept().join(format!("d{device}")), &self.device(device));
    }

    fn must_have(&self, side: &str, other: &str, store: &Store, when: &str) {
        for name in ["both", side] {
            assert_eq!(store.get(&key(&format!("{name}/0"))).unwrap().as_deref(), Some(name.as_bytes()), "{when}");
            let large = self.has_large().then(|| bytes(0, LARGE_BYTES));
            assert!(store.get(&key(&format!("{name}/0-large"))).unwrap() == large, "{when}");
        }
        assert!(store.entry(&key(other)).unwrap().is_none(), "{when}");
    }

    /// Nothing can be written, and nothing passes for whole, until a side is taken.
    fn are_apart(&self, when: &str) {
        let refused = Store::open(&self.home()).unwrap_err().to_string();
        assert!(refused.contains("have diverged"), "{when}: {refused}");
        let reader = Store::open_read_only(&self.home());
        assert!(reader.map_or(true, |reader| !reader.completeness().is_complete()), "{when}");
    }

    /// Takes a side; each device of the other is rebuilt, and what it has stays as it is.
    fn take(&self, device: usize, when: &str) {
        let rejected = take_side(&self.home(), &OpenOptions::default(), DeviceNumber(device as u16)).unwrap();
        assert!(rejected.stale.is_empty() && !rejected.of_copy.is_empty(), "{when}: {rejected:?}");
        self.must_be_left_out(&rejected.of_copy, when);
    }

    fn must_be_left_out(&self, devices: &[DeviceNumber], when: &str) {
        // They do not go on alone, however many they are.
        let of_side = (0..self.fast + self.slow).filter(|&at| !devices.contains(&DeviceNumber(at as u16)));
        let moved: Vec<(PathBuf, PathBuf)> =
            of_side.map(|at| (self.device(at), self.place().join(format!("away{at}")))).collect();
        moved.iter().for_each(|(from, to)| fs::rename(from, to).unwrap());
        assert!(Store::open(&self.home()).is_err(), "{when}: the rejected devices alone");
        moved.iter().for_each(|(from, to)| fs::rename(to, from).unwrap());
    }

    fn rebuild(&self, device: usize, when: &str) {
        let before = content(&self.device(device));
        let how = OpenOptions { degraded: true, ..OpenOptions::default() };
        let store = Store::open_with(&self.home(), &how).unwrap();
        let onto = |directory: PathBuf| RebuildOptions {
            device: DeviceNumber(device as u16),
            onto: Some(directory),
            ..RebuildOptions::default()
        };
        let refused = store.rebuild(&onto(self.device(device)), &Progress::default()).unwrap_err();
        assert!(refused.to_string().contains("a device of a copy"), "{when}: {refused}");
        let new = self.place().join(format!("new{device}"));
        let report = store.rebuild(&onto(new), &Progress::default()).unwrap();
        assert!(report.is_complete, "{when}: {report:?}");
        assert_eq!(content(&self.device(device)), before, "{when}: what the copy has stays");
    }

    fn repair(&self, when: &str) {
        let (how, quiet) = (OpenOptions::default(), Progress::default());
        let plan = plan_repair(&self.home(), &how, None, &mut |_| {}, &quiet).unwrap();
        let report = repair(&self.home(), &how, &plan, RepairOptions::default(), &mut |_, _| {}, &quiet).unwrap();
        assert_eq!((report.lost.len(), report.check.problems()), (0, 0), "{when}: {report:?}");
    }
}

#[test]
fn a_mirror_of_which_one_device_is_of_the_copy() {
    for times in [(1, 1), (1, 3), (3, 1)] {
        for is_killed in [false, true] {
            for (side, other, taken) in [("b", "a", 0), ("a", "b", 1)] {
                let when = format!("{times:?}, killed {is_killed}, {side} is taken");
                let twins = Twins::new((2, 0), times, &[1], is_killed);
                twins.are_apart(&when);
                twins.take(taken, &when);
                twins.must_have(side, other, &Store::open_read_only(&twins.home()).unwrap(), &when);
                twins.rebuild(1 - taken, &when);
                twins.repair(&when);
                twins.must_have(side, other, &Store::open(&twins.home()).unwrap(), &when);
                let store = rebuild_index(&twins.home(), &OpenOptions::default()).unwrap();
                twins.must_have(side, other, &store, &when);
                assert!(store.completeness().is_complete(), "{when}");
            }
        }
    }
}

#[test]
fn most_devices_are_of_the_copy() {
    for is_killed in [false, true] {
        for (side, other) in [("b", "a"), ("a", "b")] {
            let when = format!("killed {is_killed}, {side} is taken");
            let twins = Twins::apart((3, 0), (1, 1), is_killed);
            // Which devices have the records of "b" depends on their room. Without all of them, nobody could know that
            // there were any.
            let has_records = |&device: &usize| !content(&twins.device(device).join("segments")).is_empty();
            let of_b = (0..3).find(has_records).unwrap();
            let of_a: Vec<usize> = (0..3).filter(|&device| device != of_b).collect();
            of_a.iter().for_each(|&device| twins.take_from_a(device));
            twins.are_apart(&when);
            twins.take(if side == "b" { of_b } else { of_a[0] }, &when);
            // Of large objects, "b" has too few devices left.
            if side == "a" {
                twins.must_have(side, other, &Store::open_read_only(&twins.home()).unwrap(), &when);
                twins.rebuild(of_b, &when);
                twins.repair(&when);
                twins.must_have(side, other, &Store::open(&twins.home()).unwrap(), &when);
            }
        }
    }
}

#[test]
fn the_log_or_one_device_is_of_the_copy() {
    for is_killed in [false, true] {
        let when = format!("the fast devices, killed {is_killed}");
        let twins = Twins::new((2, 3), (1, 1), &[0, 1], is_killed);
        twins.are_apart(&when);
        for device in [0, 3] {
            let when = format!("device {device}, killed {is_killed}");
            let twins = Twins::new((2, 3), (1, 2), &[device], is_killed);
            twins.are_apart(&when);
            twins.take(if device == 0 { 1 } else { 0 }, &when);
            twins.must_have("b", "a", &Store::open_read_only(&twins.home()).unwrap(), &when);
            twins.rebuild(device, &when);
            twins.repair(&when);
            twins.must_have("b", "a", &Store::open(&twins.home()).unwrap(), &when);
        }
    }
}
