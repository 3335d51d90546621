//! Devices that are lost, swapped, emptied or old: what they had is read from redundancy, rebuilt onto a new device or
//! into spare space, and a stale device brings nothing back.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use granulo::store::ids::DeviceNumber;
use granulo::store::{Choice, CompactOptions, OpenOptions, Plan, Progress, RebuildOptions, Store, rebuild_index};

use crate::args;
use crate::harness::{run, sandbox};
use crate::store_sample::{GEOMETRIES, Sample, bytes, check, file, key, repaired};

#[test]
fn a_rebuild_that_is_interrupted_goes_on_and_readers_read_meanwhile() {
    for onto in [true, false] {
        let sample = Arc::new(Sample::new((3, 5, 2, 1)));
        // Which two of the three fast devices have a segment depends on their room.
        let segments = |number: &usize| fs::read_dir(sample.devices()[*number].join("segments")).unwrap().count();
        for number in [(0..3).max_by_key(segments).unwrap(), 5] {
            let directory = sample.devices()[number].clone();
            fs::remove_dir_all(&directory).unwrap();
            let options = RebuildOptions {
                device: DeviceNumber(number as u16),
                onto: onto.then_some(directory),
                ..RebuildOptions::default()
            };
            let mut sessions = 0;
            loop {
                let store = Store::open(&sample.home()).unwrap();
                let reader = Store::open_read_only(&sample.home()).unwrap();
                let (observed, steps) = (sample.clone(), AtomicU64::new(0));
                let progress = Progress::observed(move |progress| {
                    let step = steps.fetch_add(1, Ordering::Relaxed) + 1;
                    if step.is_multiple_of(3) {
                        assert_eq!(observed.unreadable(&reader), 0);
                    }
                    if step > 4 * sessions {
                        progress.stop();
                    }
                });
                let report = store.rebuild(&options, &progress).unwrap();
                sessions += 1;
                if report.is_complete {
                    break;
                }
                assert!(sessions < 100);
            }
            assert!(sessions > 1, "it was never interrupted");
            sample.is_whole();
            sample.is_clean();
        }
    }
}

#[test]
fn any_device_may_be_lost_and_is_rebuilt_onto_a_new_one_and_then_another_may_be() {
    for geometry in &GEOMETRIES[1..] {
        let sample = Sample::new(*geometry);
        let devices = sample.devices();
        for (number, directory) in devices.iter().enumerate() {
            let away = sample.sandbox.path().join("away");
            fs::rename(directory, &away).unwrap();
            sample.is_whole();
            let (_, problems) = check(&Store::open_read_only(&sample.home()).unwrap(), false);
            let said = problems.join("\n");
            assert!(said.contains(&format!("device {number} is missing: no such directory")), "{said}");
            assert!(said.contains("granulo store rebuild"), "{said}");
            let lost = OpenOptions { lost: Some(DeviceNumber(number as u16)), ..OpenOptions::default() };
            let store = Store::open_with(&sample.home(), &lost).unwrap();
            assert_eq!(sample.unreadable(&store), 0);
            let options = RebuildOptions {
                device: DeviceNumber(number as u16),
                onto: Some(directory.clone()),
                ..RebuildOptions::default()
            };
            let plan = store.plan_rebuild(&options).unwrap();
            assert_eq!((plan.lost_segments, plan.without_place), (0, 0));
            let report = store.rebuild(&options, &Progress::default()).unwrap();
            assert!(report.is_complete && report.lost == 0, "{report:?}");
            assert!(report.bytes <= plan.total_bytes() + 200, "{report:?} {plan:?}");
            drop(store);
            fs::remove_dir_all(&away).unwrap();
            sample.is_clean();
        }
    }
}

#[test]
fn with_two_of_parity_and_three_copies_any_two_devices_may_be_lost() {
    let sample = Sample::new(GEOMETRIES[3]);
    let devices = sample.devices();
    let away = |number: usize| sample.sandbox.path().join(format!("away{number}"));
    for first in 0..devices.len() {
        for second in first + 1..devices.len() {
            for number in [first, second] {
                fs::rename(&devices[number], away(number)).unwrap();
            }
            sample.is_whole();
            for number in [first, second] {
                fs::rename(away(number), &devices[number]).unwrap();
            }
        }
    }
}

#[test]
fn a_lost_device_is_rebuilt_into_spare_space_and_leaves_the_store() {
    for (geometry, lost) in [((3, 5, 2, 1), [0usize, 4]), ((3, 6, 2, 1), [1, 3])] {
        let sample = Sample::new(geometry);
        let devices = sample.devices();
        for number in lost {
            fs::remove_dir_all(&devices[number]).unwrap();
            let store = Store::open(&sample.home()).unwrap();
            let options = RebuildOptions { device: DeviceNumber(number as u16), ..RebuildOptions::default() };
            let plan = store.plan_rebuild(&options).unwrap();
            if plan.without_place > 0 {
                panic!("{geometry:?}: device {number} has no spare space: {plan:?}");
            }
            let report = store.rebuild(&options, &Progress::default()).unwrap();
            assert!(report.is_complete, "{report:?}");
            assert_eq!(sample.unreadable(&store), 0);
            drop(store);
            sample.is_clean();
        }
        // It survives a second loss of each class afterwards.
        for number in (0..devices.len()).filter(|number| !lost.contains(number)) {
            let away = sample.sandbox.path().join("away");
            fs::rename(&devices[number], &away).unwrap();
            sample.is_whole();
            fs::rename(&away, &devices[number]).unwrap();
        }
        let rebuilt = rebuild_index(&sample.home(), &OpenOptions::default()).unwrap();
        assert_eq!(sample.unreadable(&rebuilt), 0);
        assert_eq!(check(&rebuilt, true).1, Vec::<String>::new());
    }
}

#[test]
fn swapped_emptied_and_old_devices_are_told_apart() {
    let mut sample = Sample::new(GEOMETRIES[2]);
    let devices = sample.devices();
    let said = |sample: &Sample| check(&Store::open_read_only(&sample.home()).unwrap(), false).1.join("\n");
    let swap = |a: &Path, b: &Path| {
        let between = sample.sandbox.path().join("between");
        fs::rename(a, &between).unwrap();
        fs::rename(b, a).unwrap();
        fs::rename(&between, b).unwrap();
    };
    let away = sample.sandbox.path().join("away");
    // Each is found in the other's place, and so is one whose own place is taken while the other is missing.
    swap(&devices[3], &devices[4]);
    assert_eq!(said(&sample), "");
    sample.is_clean();
    fs::rename(&devices[4], &away).unwrap();
    let words = said(&sample);
    assert!(words.contains("device 3 should be there, but it is device 4;"), "{words}");
    sample.is_whole();
    fs::rename(&devices[3], &devices[4]).unwrap();
    let words = said(&sample);
    assert!(words.contains("device 3 is missing") && !words.contains("device 4"), "{words}");
    fs::rename(&away, &devices[3]).unwrap();
    sample.is_clean();
    fs::rename(&devices[5], &away).unwrap();
    fs::create_dir(&devices[5]).unwrap();
    sample.is_whole();
    assert!(said(&sample).contains("device 5 has an empty directory"), "{}", said(&sample));
    fs::remove_dir(&devices[5]).unwrap();
    fs::rename(&away, &devices[5]).unwrap();

    // An old copy: the store is written to while the device is missing.
    fs::rename(&devices[1], &away).unwrap();
    let store = Store::open(&sample.home()).unwrap();
    sample.put(&store, "meanwhile", bytes(77, 6000));
    sample.put(&store, "meanwhile-large", bytes(78, 60_000));
    drop(store);
    drop(Store::open(&sample.home()).unwrap());
    fs::rename(&away, &devices[1]).unwrap();
    let words = said(&sample);
    assert!(words.contains("device 1 is stale: it was absent") && words.contains("restored from a copy"), "{words}");
    sample.is_whole();
    let report = repaired(&sample.home());
    assert_eq!(report.admitted, [DeviceNumber(1)]);
    sample.is_clean();
    for number in [0, 1] {
        fs::rename(&devices[number], &away).unwrap();
        sample.is_whole();
        fs::rename(&away, &devices[number]).unwrap();
    }
}

#[test]
fn a_lost_home_is_made_again_by_naming_a_device() {
    let mut sample = Sample::new(GEOMETRIES[2]);
    let devices = sample.devices();
    for is_emptied in [false, true] {
        fs::remove_dir_all(sample.home()).unwrap();
        if is_emptied {
            fs::create_dir(sample.home()).unwrap();
        }
        for said in [
            Store::open_read_only(&sample.home()).unwrap_err().to_string(),
            Store::open(&sample.home()).unwrap_err().to_string(),
        ] {
            assert!(said.contains("name any of its devices") && !said.contains("store init"), "{said}");
        }
        let store = Store::open_read_only(&devices[4]).unwrap();
        assert_eq!(sample.unreadable(&store), 0);
        let (_, problems) = check(&store, false);
        assert!(problems.len() == 1 && problems[0].contains("the home has no superblock"), "{problems:?}");
        drop(store);
        let report = repaired(&devices[1]);
        assert!(report.is_complete);
        sample.is_clean();
    }
    // Writing recreates it too.
    fs::remove_dir_all(sample.home()).unwrap();
    let store = Store::open(&devices[3]).unwrap();
    sample.put(&store, "without a home", bytes(71, 9000));
    drop(store);
    sample.is_clean();
    sample.is_whole();
    // A store that somebody created there meanwhile is left alone.
    fs::remove_dir_all(sample.home()).unwrap();
    drop(Store::create(&sample.home(), &Plan::default()).unwrap());
    let said = Store::open(&devices[3]).unwrap_err().to_string();
    assert!(said.contains("another store has its home in the place"), "{said}");
    assert_eq!(sample.unreadable(&Store::open_read_only(&devices[3]).unwrap()), 0);
    assert_eq!(Store::open(&sample.home()).unwrap().get(&key("d0/e/0")).unwrap(), None);
}

fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy_tree(&entry.path(), &target),
            false => _ = fs::copy(entry.path(), target).unwrap(),
        }
    }
}

/// A store whose device 0 is in the state before objects were removed and replaced, and segments freed.
fn with_an_old_device(geometry: (usize, usize, u8, u8)) -> Sample {
    let mut sample = Sample::new(geometry);
    let store = Store::open(&sample.home()).unwrap();
    store.put(&key("victim"), &file(), &bytes(61, 3000)).unwrap();
    sample.put(&store, "replaced", bytes(62, 3000));
    drop(store);
    let (device, copy) = (sample.devices()[0].clone(), sample.sandbox.path().join("copy"));
    copy_tree(&device, &copy);
    let store = Store::open(&sample.home()).unwrap();
    assert!(store.remove(&key("victim")).unwrap());
    sample.put(&store, "replaced", bytes(63, 3000));
    let all = CompactOptions { choice: Choice::All, is_alone: true, ..CompactOptions::default() };
    store.compact(&all, &Progress::default()).unwrap();
    drop(store);
    fs::remove_dir_all(&device).unwrap();
    fs::rename(&copy, &device).unwrap();
    sample
}

#[test]
fn an_old_device_brings_nothing_back_that_others_gave_back() {
    for geometry in [GEOMETRIES[1], GEOMETRIES[3]] {
        let sample = with_an_old_device(geometry);
        // The index was on that device: readers build a private one, the next writer one for all.
        for is_writer in [false, true, false] {
            let store = match is_writer {
                false => Store::open_read_only(&sample.home()).unwrap(),
                true => rebuild_index(&sample.home(), &OpenOptions::default()).unwrap(),
            };
            assert_eq!(sample.unreadable(&store), 0);
            assert_eq!(store.get(&key("victim")).unwrap(), None);
        }
        let rebuilt = rebuild_index(&sample.home(), &OpenOptions::default()).unwrap();
        assert!(rebuilt.completeness().is_complete());
        drop(rebuilt);
        let report = repaired(&sample.home());
        assert_eq!(report.admitted, [DeviceNumber(0)]);
        // The index on the old device is not used for the store.
        for _ in 0..2 {
            let store = Store::open(&sample.home()).unwrap();
            assert_eq!(store.get(&key("victim")).unwrap(), None);
            assert_eq!(sample.unreadable(&store), 0);
        }
        sample.is_clean();
        let rebuilt = rebuild_index(&sample.home(), &OpenOptions::default()).unwrap();
        assert_eq!(rebuilt.get(&key("victim")).unwrap(), None);
        assert!(rebuilt.completeness().is_complete());
    }
}

#[test]
fn a_reader_finds_no_device_old_while_writers_open() {
    let sample = Sample::new(GEOMETRIES[2]);
    let home = sample.home();
    let ended = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Every open advances the superblocks by two steps, device by device.
            for _ in 0..300 {
                drop(Store::open(&home).unwrap());
            }
            ended.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        while !ended.load(std::sync::atomic::Ordering::Relaxed) {
            assert_eq!(Store::open_read_only(&home).unwrap().troubles(), []);
        }
    });
}

#[test]
fn a_rebuild_waits_for_a_writer_to_end() {
    let sample = Sample::new(GEOMETRIES[2]);
    fs::remove_dir_all(&sample.devices()[0]).unwrap();
    let writer = Store::open(&sample.home()).unwrap();
    let place = sandbox();
    let rebuild = |wait: Option<&str>| {
        let arguments = args!["store", "rebuild", sample.home(), "--device", "0", "--onto", place.path().join("new")];
        run(arguments.into_iter().chain(wait.map(OsString::from)))
    };
    assert!(rebuild(None).ended(2).said().contains("add --wait"));
    let waited = rebuild(Some("--wait=10ms")).ended(2).said();
    assert!(waited.contains("open for writing") && !waited.contains("add --wait"), "{waited}");
    drop(writer);
    let rebuilt = rebuild(Some("--wait"));
    assert!(rebuilt.text().contains("is in service again"), "{rebuilt:?}");
}

#[test]
fn what_has_no_place_is_not_rebuilt_into_it() {
    let sample = Sample::new(GEOMETRIES[2]);
    fs::remove_dir_all(&sample.devices()[0]).unwrap();
    let store = Store::open(&sample.home()).unwrap();
    let options = RebuildOptions { device: DeviceNumber(0), ..RebuildOptions::default() };
    assert!(store.plan_rebuild(&options).unwrap().without_place > 0);
    let error = store.rebuild(&options, &Progress::default()).unwrap_err().to_string();
    assert!(
        error.contains(
            "no other device has room for 1 of its segments and chunks (name a directory on a new disk with --onto)"
        ),
        "{error}"
    );
    let options = RebuildOptions { device: DeviceNumber(1), ..RebuildOptions::default() };
    let error = store.plan_rebuild(&options).unwrap_err().to_string();
    assert!(error.contains("device 1 is in service at"), "{error}");
}
