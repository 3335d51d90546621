//! Devices that were away for long, that are in a strange place, or that fail in a way that says nothing about them.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::process::geteuid;
use tempfile::TempDir;

use super::opening::copy;
use super::{bytes, devices_below, file, key};
use crate::devices::directory::Directory;
use crate::devices::slot::Trouble;
use crate::engine::locking::Access;
use crate::engine::pace::Pace;
use crate::error::{Error, ErrorKind};
use crate::format::history::{EpochEntry, MOST_EPOCHS};
use crate::format::ids::{DeviceNumber, Epoch};
use crate::format::segment::FIRST_BATCH_AT;
use crate::format::superblock::{SLOT_BYTES, Superblock};
use crate::simulation::mishap::Absence;
use crate::simulation::subject::{Simulated, geometry};
use crate::simulation::trial::Subject;
use crate::simulation::world::{Fault, World};
use crate::{
    CheckOptions, OpenOptions, Plan, Progress, RebuildOptions, RepairOptions, RepairReport, Store, plan_repair,
    rebuild_index, repair,
};

/// Two copies of everything, and a home apart.
fn mirror(sandbox: &TempDir) -> (PathBuf, [PathBuf; 2]) {
    let home = sandbox.path().join("s");
    let fast = ["a", "b"].map(|name| sandbox.path().join(name));
    let store = Store::create(&home, &Plan { fast: fast.to_vec(), ..Plan::default() }).unwrap();
    store.put(&key("f"), &file(), b"content").unwrap();
    (home, fast)
}

/// A backup of the devices in the home, while the store is open or closed: the devices are where they were.
#[test]
fn copies_of_devices_in_the_home_do_not_take_their_place() {
    let sandbox = TempDir::new().unwrap();
    let (home, fast) = mirror(&sandbox);
    let store = Store::open(&home).unwrap();
    fast.iter().for_each(|device| copy(device, &home.join(device.file_name().unwrap())));
    store.put(&key("after"), &file(), b"the copies").unwrap();
    drop(store);
    for open in [Store::open_read_only, Store::open, Store::open_read_only] {
        let store = open(&home).unwrap();
        assert_eq!(store.get(&key("after")).unwrap().as_deref(), Some(&b"the copies"[..]));
    }
    // Moved away, the devices are found in the home.
    fast.iter().for_each(|device| std::fs::remove_dir_all(home.join(device.file_name().unwrap())).unwrap());
    fast.iter().for_each(|device| std::fs::rename(device, home.join(device.file_name().unwrap())).unwrap());
    let store = Store::open(&home).unwrap();
    assert_eq!(store.get(&key("after")).unwrap().as_deref(), Some(&b"the copies"[..]));
}

#[test]
fn a_home_is_no_side_however_often_the_store_was_opened_since_it_was_written() {
    let sandbox = TempDir::new().unwrap();
    let (home, fast) = mirror(&sandbox);
    std::fs::rename(&fast[0], sandbox.path().join("dead")).unwrap();
    let lost = Some(DeviceNumber(0));
    let store = Store::open_with(&home, &OpenOptions { lost, ..OpenOptions::default() }).unwrap();
    let onto = Some(sandbox.path().join("new"));
    let options = RebuildOptions { device: DeviceNumber(0), onto, ..RebuildOptions::default() };
    assert!(store.rebuild(&options, &Progress::default()).unwrap().is_settled);
    drop(store);
    let history = |path: &PathBuf| Superblock::read(&Directory::new(path)).unwrap().unwrap().superblock.history;
    for _ in 0..=MOST_EPOCHS {
        drop(Store::open(&home).unwrap());
        let of_device = history(&fast[1]);
        let missed = of_device.after(history(&home).newest().epoch);
        assert!(missed.is_some_and(|missed| missed.count() < MOST_EPOCHS / 2 + 1));
    }
    std::fs::rename(&fast[1], sandbox.path().join("dead too")).unwrap();
    let store =
        Store::open_with(&home, &OpenOptions { lost: Some(DeviceNumber(1)), ..OpenOptions::default() }).unwrap();
    assert_eq!(store.get(&key("f")).unwrap().as_deref(), Some(&b"content"[..]));
}

#[test]
fn a_device_that_was_away_for_longer_than_histories_reach_is_repaired() {
    let sandbox = TempDir::new().unwrap();
    let (home, fast) = mirror(&sandbox);
    let away = sandbox.path().join("away");
    std::fs::rename(&fast[1], &away).unwrap();
    let how = OpenOptions { lost: Some(DeviceNumber(1)), ..OpenOptions::default() };
    for _ in 0..=MOST_EPOCHS {
        drop(Store::open_with(&home, &how).unwrap());
    }
    Store::open_with(&home, &how).unwrap().put(&key("g"), &file(), b"written alone").unwrap();
    std::fs::rename(&away, &fast[1]).unwrap();
    let store = Store::open(&home).unwrap();
    assert_eq!(store.engine().devices.slots()[1].trouble, Some(Trouble::Stale { missed: MOST_EPOCHS }));
    assert_eq!(store.engine().admit(&mut Pace::new(None, &Progress::default())).unwrap(), [DeviceNumber(1)]);
}

#[test]
fn a_directory_in_place_of_a_segment_does_not_keep_a_device_from_returning() {
    let sandbox = TempDir::new().unwrap();
    let (home, fast) = mirror(&sandbox);
    let away = sandbox.path().join("away");
    std::fs::rename(&fast[1], &away).unwrap();
    let without = OpenOptions { lost: Some(DeviceNumber(1)), ..OpenOptions::default() };
    Store::open_with(&home, &without).unwrap().put(&key("g"), &file(), b"written alone").unwrap();
    std::fs::rename(&away, &fast[1]).unwrap();
    let segments: Vec<PathBuf> =
        std::fs::read_dir(fast[1].join("segments")).unwrap().map(|found| found.unwrap().path()).collect();
    assert!(!segments.is_empty());
    for segment in segments {
        std::fs::remove_file(&segment).unwrap();
        std::fs::create_dir(&segment).unwrap();
    }
    let store = Store::open(&home).unwrap();
    assert!(matches!(store.engine().devices.slots()[1].trouble, Some(Trouble::Stale { .. })));
    assert_eq!(store.engine().admit(&mut Pace::new(None, &Progress::default())).unwrap(), [DeviceNumber(1)]);
}

#[test]
fn a_device_that_failed_before_another_is_admitted_stays_out_of_service() {
    let sandbox = TempDir::new().unwrap();
    let home = sandbox.path().join("s");
    let fast = ["a", "b", "c"].map(|name| sandbox.path().join(name));
    let plan = Plan { fast: fast.to_vec(), copies: Some(3), ..Plan::default() };
    let store = Store::create(&home, &plan).unwrap();
    for path in ["f", "g", "h"] {
        store.put(&key(path), &file(), b"content").unwrap();
        store.engine().close_active_segment().unwrap();
    }
    drop(store);
    std::fs::remove_file(fast[2].join("superblock")).unwrap();
    let store = Store::open(&home).unwrap();
    let engine = store.engine();
    // Before the admission, not within it: there is no place to wait in.
    engine.devices.fail(DeviceNumber(0), &Error::new(ErrorKind::Io, "write", "it broke"));
    assert_eq!(engine.admit(&mut Pace::new(None, &Progress::default())).unwrap(), [DeviceNumber(2)]);
    let slots = engine.devices.slots();
    assert!(matches!(slots[0].trouble, Some(Trouble::Failed(_))) && slots[2].trouble.is_none(), "{slots:?}");
}

#[test]
fn what_is_made_durable_again_is_not_written_to_a_device_that_missed_writes() {
    let sandbox = TempDir::new().unwrap();
    let home = sandbox.path().join("s");
    let [fast, slow] = [("fast", 2), ("slow", 3)].map(|(class, count)| devices_below(sandbox.path(), class, count));
    let store = Store::create(&home, &Plan { fast, slow: slow.clone(), ..Plan::default() }).unwrap();
    store.put(&key("f"), &file(), &bytes(1, 300_000)).unwrap();
    drop(store);
    let away = sandbox.path().join("away");
    std::fs::rename(&slow[2], &away).unwrap();
    let store = Store::open(&home).unwrap();
    store.put(&key("g"), &file(), b"written without it").unwrap();
    drop(store);
    std::fs::rename(&away, &slow[2]).unwrap();
    let store = Store::open(&home).unwrap();
    let engine = store.engine();
    assert!(matches!(engine.devices.slots()[4].trouble, Some(Trouble::Stale { .. })));
    let entry = store.entry(&key("f")).unwrap().unwrap().entry;
    let descriptor = engine.descriptor(&entry).unwrap();
    let files = std::fs::read_dir(slow[2].join("extents")).unwrap().map(|found| found.unwrap().path());
    let files: Vec<PathBuf> = files.collect();
    let written = || files.iter().map(|path| path.metadata().unwrap().modified().unwrap()).collect::<Vec<_>>();
    let before = written();
    assert_eq!(before.len(), 1);
    let segment = engine.segment_id(entry.location.segment);
    engine.write_again(segment, FIRST_BATCH_AT..FIRST_BATCH_AT, descriptor.runs()).unwrap();
    assert_eq!(written(), before);
}

/// It is not full, and if it cannot be written either, it is lost: the store goes on without it until it was repaired.
#[test]
fn a_device_that_does_not_say_how_much_space_it_has_is_not_full() {
    let sandbox = TempDir::new().unwrap();
    for (class, copies, slow) in [("one", 3, vec![]), ("both", 2, vec![sandbox.path().join("slow")])] {
        let home = sandbox.path().join(class);
        let fast: Vec<PathBuf> = (0..copies).map(|at| sandbox.path().join(format!("{at} of {class}"))).collect();
        let plan = Plan { fast: fast.clone(), slow, copies: Some(copies), ..Plan::default() };
        let store = Store::create(&home, &plan).unwrap();
        store.put(&key("f"), &file(), b"content").unwrap();
        let away = sandbox.path().join("away");
        std::fs::rename(&fast[1], &away).unwrap();
        store.put(&key("g"), &file(), b"content").unwrap();
        std::fs::rename(&away, &fast[1]).unwrap();
        store.put(&key("h"), &file(), b"content").unwrap();
        assert!(matches!(store.troubles()[..], [(DeviceNumber(1), Trouble::Failed(_))]), "{:?}", store.troubles());
        drop(store);
        let store = Store::open(&home).unwrap();
        assert!(matches!(store.troubles()[..], [(DeviceNumber(1), Trouble::Stale { .. })]), "{:?}", store.troubles());
        for name in ["f", "g", "h"] {
            assert_eq!(store.get(&key(name)).unwrap().as_deref(), Some(&b"content"[..]));
        }
    }
}

/// A mirror whose second device is gone, and how to rebuild it onto a directory that is there.
fn degraded(sandbox: &TempDir) -> (Store, RebuildOptions, PathBuf) {
    let (home, fast) = mirror(sandbox);
    std::fs::rename(&fast[1], sandbox.path().join("dead")).unwrap();
    let lost = DeviceNumber(1);
    let store = Store::open_with(&home, &OpenOptions { lost: Some(lost), ..OpenOptions::default() }).unwrap();
    let new = sandbox.path().join("new");
    std::fs::create_dir(&new).unwrap();
    (store, RebuildOptions { device: lost, onto: Some(new.clone()), ..RebuildOptions::default() }, new)
}

#[test]
fn a_device_is_rebuilt_onto_a_new_file_system_and_where_it_was_begun() {
    let header = |of_store: [u8; 16]| [&[0; 8][..], b"granulo\0", &[2; 16], &of_store].concat();
    for left in ["nothing", "no superblock", "an empty one", "a torn one", "that of another store"] {
        let sandbox = TempDir::new().unwrap();
        let (store, options, new) = degraded(&sandbox);
        let lost_and_found = new.join("lost+found");
        if geteuid().is_root() {
            std::fs::DirBuilder::new().mode(0o700).create(&lost_and_found).unwrap();
        }
        if left != "nothing" {
            ["segments", "extents"].iter().for_each(|name| std::fs::create_dir(new.join(name)).unwrap());
        }
        let superblock = match left {
            "an empty one" => Some(Vec::new()),
            "a torn one" => Some(header(store.engine().geometry().store)),
            "that of another store" => Some(header([1; 16])),
            _ => None,
        };
        superblock.into_iter().for_each(|bytes| std::fs::write(new.join("superblock"), bytes).unwrap());
        let rebuilt = store.rebuild(&options, &Progress::default());
        if left == "that of another store" {
            assert_eq!(rebuilt.unwrap_err().kind(), ErrorKind::Exists);
            continue;
        }
        assert!(rebuilt.unwrap().is_complete, "{left}");
        if geteuid().is_root() {
            assert_eq!(std::fs::metadata(&lost_and_found).unwrap().mode() & 0o7777, 0o700);
        }
    }
}

#[test]
fn a_store_is_made_where_a_new_file_system_is_mounted() {
    let sandbox = TempDir::new().unwrap();
    let [home, device] = ["s", "device"].map(|name| sandbox.path().join(name));
    let created = |plan: &Plan| Store::create(&home, plan).map(drop);
    for (plan, mounted) in [(Plan::default(), &home), (Plan { fast: vec![device.clone()], ..Plan::default() }, &device)]
    {
        let lost_and_found = mounted.join("lost+found");
        std::fs::DirBuilder::new().recursive(true).create(mounted).unwrap();
        std::fs::DirBuilder::new().mode(0o700).create(&lost_and_found).unwrap();
        std::fs::write(lost_and_found.join("#12"), b"of another file system").unwrap();
        assert_eq!(created(&plan).unwrap_err().kind(), ErrorKind::Exists);
        std::fs::remove_file(lost_and_found.join("#12")).unwrap();
        match created(&plan) {
            // Only the administrator's is that of a file system.
            Err(error) => assert!(!geteuid().is_root() && error.kind() == ErrorKind::Exists, "{error}"),
            Ok(()) => assert_eq!(std::fs::metadata(&lost_and_found).unwrap().mode() & 0o7777, 0o700),
        }
        let _ = std::fs::remove_dir_all(&home);
    }
}

#[test]
fn a_rebuild_goes_on_onto_its_directory_after_that_failed() {
    let sandbox = TempDir::new().unwrap();
    let (store, options, new) = degraded(&sandbox);
    let slot = store.engine().devices.slots()[1].clone();
    store.engine().replace_device(&slot, &new).unwrap();
    store.engine().devices.fail(DeviceNumber(1), &Error::new(ErrorKind::Io, "write", "it broke"));
    assert!(store.rebuild(&options, &Progress::default()).unwrap().is_complete);
    assert_eq!(store.engine().devices.slots()[1].trouble, None);
}

#[test]
fn a_rebuild_goes_on_although_its_directory_has_an_epoch_that_no_other_has() {
    let sandbox = TempDir::new().unwrap();
    let (store, options, new) = degraded(&sandbox);
    let slot = store.engine().devices.slots()[1].clone();
    store.engine().replace_device(&slot, &new).unwrap();
    drop(store);
    // The device failed while an epoch began, and the others went on without it.
    let device = Directory::new(&new);
    let known = Superblock::read(&device).unwrap().unwrap();
    let newest = known.superblock.history.newest().clone();
    let last_batch = known.superblock.mark.map_or(newest.last_batch, |mark| mark.sequence);
    let history = known.superblock.history.followed_by(EpochEntry { epoch: Epoch(77), last_batch, ..newest });
    let superblock = Superblock { history, ..known.superblock.clone() };
    known.replace(&device, superblock).unwrap();
    let lost = OpenOptions { lost: Some(options.device), without: vec![options.device], ..OpenOptions::default() };
    Store::open_with(&sandbox.path().join("s"), &lost).unwrap().put(&key("g"), &file(), b"since").unwrap();
    let store = Store::open_with(&sandbox.path().join("s"), &OpenOptions { without: Vec::new(), ..lost }).unwrap();
    assert!(store.rebuild(&options, &Progress::default()).unwrap().is_complete);
}

#[test]
fn a_device_is_not_rebuilt_onto_anything_else() {
    let sandbox = TempDir::new().unwrap();
    let (store, options, new) = degraded(&sandbox);
    let elsewhere = sandbox.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    for (name, of_link) in [("file", ""), ("directory/", ""), ("segments/file", ""), ("lost+found/file", "")]
        .into_iter()
        .chain(["segments", "extents", "lost+found"].map(|name| ("", name)))
    {
        match (name.rsplit_once('/'), of_link) {
            (_, link) if !link.is_empty() => std::os::unix::fs::symlink(&elsewhere, new.join(link)).unwrap(),
            (Some((directory, file)), _) => {
                std::fs::create_dir(new.join(directory)).unwrap();
                (!file.is_empty()).then(|| std::fs::write(new.join(name), b"content").unwrap());
            }
            _ => std::fs::write(new.join(name), b"content").unwrap(),
        }
        let error = store.rebuild(&options, &Progress::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Exists, "{name} {of_link}: {error}");
        std::fs::remove_dir_all(&new).unwrap();
        std::fs::create_dir(&new).unwrap();
    }
}

#[test]
fn a_device_is_not_missing_because_too_many_files_are_open() {
    let geometry = geometry(2, 0, 2, (1, 0));
    for errno in [Errno::MFILE, Errno::NFILE, Errno::NOMEM] {
        // Whatever is read of the device: its file is opened, and then each of its slots.
        for operation in 0..12 {
            let world = World::new(Simulated::devices(&geometry), 1);
            drop(Simulated::create(&geometry, &world).unwrap());
            let opened = || Simulated::open_as(&geometry.home, &world, Access::Read);
            world.count_reads(true);
            let fault = Fault { operation: world.operations() + operation, errno, is_lasting: true, device: Some(1) };
            world.fail(fault);
            let error = opened().map(drop).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Io, "{error}");
            world.clear_faults();
            opened().unwrap();
        }
    }
}

/// What only a failing device has cannot be read, and is not lost.
#[test]
fn nothing_is_dropped_while_a_device_fails() {
    let geometry = geometry(2, 3, 2, (2, 1));
    for device in 0..5 {
        let world = World::new(Simulated::devices(&geometry), 1);
        let subject = Simulated::create(&geometry, &world).unwrap();
        let store = subject.store();
        store.put(&key("f"), &file(), b"content").unwrap();
        store.drop_lost(BTreeSet::new(), &mut RepairReport::default()).unwrap();
        world.detach(device, Absence::Failing, 1);
        let refused = store.drop_lost(BTreeSet::new(), &mut RepairReport::default()).unwrap_err().to_string();
        assert!(refused.contains(&format!("device {device} fails")), "{refused}");
    }
}

/// All files below a directory.
fn files(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => drop(found.insert(path.clone(), std::fs::read(path).unwrap())),
        }
    }
    found
}

fn restore(directory: &Path, wanted: &BTreeMap<PathBuf, Vec<u8>>) {
    files(directory)
        .keys()
        .filter(|path| !wanted.contains_key(*path))
        .for_each(|path| std::fs::remove_file(path).unwrap());
    wanted.iter().for_each(|(path, bytes)| std::fs::write(path, bytes).unwrap());
}

#[test]
fn a_quarantine_of_another_length_makes_no_device_stale() {
    let sandbox = TempDir::new().unwrap();
    let (home, fast) = mirror(&sandbox);
    let segments = |device: &PathBuf| files(&device.join("segments")).into_keys().collect::<Vec<_>>();
    // The next opening is killed before it has written the second superblock.
    let is_stale_if_late = || {
        let before = files(sandbox.path());
        let store = Store::open(&home).unwrap();
        let begun = files(sandbox.path());
        drop(store);
        restore(sandbox.path(), &begun);
        let superblock = fast[1].join("superblock");
        std::fs::write(&superblock, &before[&superblock]).unwrap();
        let store = Store::open_read_only(&home).unwrap();
        let slot = store.engine().devices.slots()[1].clone();
        assert!(slot.is_late || slot.trouble == Some(Trouble::Stale { missed: 1 }), "{slot:?}");
        slot.trouble.is_some()
    };
    assert!(!is_stale_if_late());
    // A writer is killed while it appends; the log has not gone on yet.
    let store = Store::open(&home).unwrap();
    store.put(&key("g"), &file(), b"content").unwrap();
    let killed = files(sandbox.path());
    drop(store);
    restore(sandbox.path(), &killed);
    let mut torn = std::fs::OpenOptions::new().append(true).open(&segments(&fast[0])[0]).unwrap();
    torn.write_all(&[7; 5000]).unwrap();
    assert!(!is_stale_if_late());
    // It has.
    Store::open(&home).unwrap().put(&key("h"), &file(), b"content").unwrap();
    assert_eq!(segments(&fast[0]).len(), 2);
    assert!(!is_stale_if_late());
    // The late one lacks what is in the log.
    drop(Store::open(&home).unwrap());
    let own = std::fs::OpenOptions::new().write(true).open(&segments(&fast[1])[0]).unwrap();
    own.set_len(own.metadata().unwrap().len() - 1).unwrap();
    assert!(is_stale_if_late());
}

/// The slow devices know the epoch without one of the two with records, but not its batches since the last mark.
#[test]
fn a_stale_device_does_not_stand_for_the_one_that_went_on_without_it() {
    let sandbox = TempDir::new().unwrap();
    let home = sandbox.path().join("s");
    let [fast, slow] = [("fast", 2), ("slow", 3)].map(|(class, count)| devices_below(sandbox.path(), class, count));
    let plan = Plan { fast: fast.clone(), slow, ..Plan::default() };
    Store::create(&home, &plan).unwrap().put(&key("f"), &file(), b"content").unwrap();
    let [away, dead] = ["away", "dead"].map(|name| sandbox.path().join(name));
    std::fs::rename(&fast[1], &away).unwrap();
    let degraded = OpenOptions { degraded: true, ..OpenOptions::default() };
    let store = Store::open_with(&home, &degraded).unwrap();
    store.put(&key("g"), &file(), b"acknowledged").unwrap();
    super::opening::kill(store);
    std::fs::rename(&fast[0], &dead).unwrap();
    std::fs::rename(&away, &fast[1]).unwrap();
    assert!(!Store::open_read_only(&home).unwrap().completeness().is_complete());
    for lost in [None, Some(DeviceNumber(0))] {
        let how = OpenOptions { lost, ..OpenOptions::default() };
        let refused = Store::open_with(&home, &how).unwrap_err().to_string();
        assert!(refused.contains("more devices are missing or stale"), "{refused}");
    }
    std::fs::rename(&dead, &fast[0]).unwrap();
    let store = Store::open(&home).unwrap();
    assert_eq!(store.get(&key("g")).unwrap().as_deref(), Some(&b"acknowledged"[..]));
}

/// Nothing was marked since the copy, and the last opening was killed before it wrote anything.
#[test]
fn a_device_restored_from_before_the_last_batches_is_stale() {
    let sandbox = TempDir::new().unwrap();
    let (home, fast) = mirror(&sandbox);
    let store = Store::open(&home).unwrap();
    let copied = files(&fast[1]);
    store.put(&key("g"), &file(), b"acknowledged").unwrap();
    super::opening::kill(store);
    let store = Store::open(&home).unwrap();
    super::opening::kill(store);
    restore(&fast[1], &copied);
    let store = Store::open(&home).unwrap();
    assert_eq!(store.engine().devices.slots()[1].trouble, Some(Trouble::Stale { missed: 1 }));
    drop(store);
    let (quiet, how) = (Progress::default(), OpenOptions::default());
    let plan = plan_repair(&home, &how, None, &mut |_| {}, &quiet).unwrap();
    let report = repair(&home, &how, &plan, RepairOptions::default(), &mut |_, _| {}, &quiet).unwrap();
    assert_eq!(report.admitted, [DeviceNumber(1)]);
    std::fs::remove_dir_all(&fast[0]).unwrap();
    let store = Store::open_read_only(&home).unwrap();
    assert_eq!(store.get(&key("g")).unwrap().as_deref(), Some(&b"acknowledged"[..]));
}

/// A device that does not say how much space it has is broken, not full.
#[test]
fn nothing_is_placed_elsewhere_because_a_device_fails() {
    let failed = || Error::new(ErrorKind::Io, "write", "it broke");
    let elsewhere = |device| RebuildOptions { device: DeviceNumber(device), ..RebuildOptions::default() };
    let is_said = |error: Error, device: u16| {
        assert!(error.kind() == ErrorKind::Io && error.to_string().contains("read the free space"), "{error}");
        assert_eq!(error.device(), Some(device));
    };
    // Copies of segments.
    let settings = geometry(3, 0, 2, (1, 0));
    let world = World::new(Simulated::devices(&settings), 1);
    let subject = Simulated::create(&settings, &world).unwrap();
    let store = subject.store();
    store.put(&key("f"), &file(), b"content").unwrap();
    let engine = store.engine();
    let active = engine.view().state.position.segment;
    let row = engine.closed_row(active).unwrap().unwrap();
    let other = (0..3).map(DeviceNumber).find(|device| !row.devices.contains(device)).unwrap();
    assert_eq!(engine.spare_for(&row, 3).unwrap(), Some(other));
    world.detach(other.index(), Absence::Failing, 1);
    is_said(engine.spare_for(&row, 3).unwrap_err(), other.0);
    engine.devices.fail(row.devices[0], &failed());
    is_said(store.plan_rebuild(&elsewhere(row.devices[0].0)).unwrap_err(), other.0);
    // Stripe units.
    let settings = geometry(2, 4, 2, (2, 1));
    let world = World::new(Simulated::devices(&settings), 1);
    let subject = Simulated::create(&settings, &world).unwrap();
    let store = subject.store();
    store.put(&key("f"), &file(), &bytes(1, 300_000)).unwrap();
    let entry = store.entry(&key("f")).unwrap().unwrap().entry;
    let chunk = store.engine().descriptor(&entry).unwrap().chunks.swap_remove(0);
    let on: Vec<DeviceNumber> = chunk.components.iter().map(|component| component.device).collect();
    let other = (2..6).map(DeviceNumber).find(|device| !on.contains(device)).unwrap();
    store.engine().devices.fail(on[0], &failed());
    assert_eq!(store.plan_rebuild(&elsewhere(on[0].0)).unwrap().without_place, 0);
    world.detach(other.index(), Absence::Failing, 1);
    is_said(store.plan_rebuild(&elsewhere(on[0].0)).unwrap_err(), other.0);
}

/// Either the one of the last opening or a mark of it.
#[test]
fn the_log_is_found_although_the_newest_superblock_is_damaged() {
    for slot in [0, 1] {
        for closes in [false, true] {
            let sandbox = TempDir::new().unwrap();
            let home = sandbox.path().join("s");
            let store = Store::create(&home, &Plan::default()).unwrap();
            store.put(&key("f"), &file(), b"content").unwrap();
            super::opening::kill(store);
            let store = Store::open(&home).unwrap();
            store.put(&key("g"), &file(), b"after a crash").unwrap();
            if closes {
                drop(store)
            } else {
                super::opening::kill(store)
            }
            let path = home.join("superblock");
            let mut superblocks = std::fs::read(&path).unwrap();
            superblocks[slot * SLOT_BYTES as usize + 100] ^= 1;
            std::fs::write(&path, superblocks).unwrap();
            let shows = |store: &Store| {
                assert!(store.completeness().is_complete(), "{:?}", store.completeness());
                assert_eq!(store.get(&key("f")).unwrap().as_deref(), Some(&b"content"[..]));
                assert_eq!(store.get(&key("g")).unwrap().as_deref(), Some(&b"after a crash"[..]));
            };
            for _ in 0..2 {
                shows(&Store::open_read_only(&home).unwrap());
                shows(&Store::open(&home).unwrap());
                shows(&rebuild_index(&home, &OpenOptions::default()).unwrap());
            }
        }
    }
}

/// Everything but the newest device is rolled back: it was replaced, so the others do not know its identity.
#[test]
fn a_replaced_device_with_newer_data_is_not_passed_over() {
    let sandbox = TempDir::new().unwrap();
    let home = sandbox.path().join("s");
    let fast = devices_below(sandbox.path(), "fast", 2);
    let plan = Plan { fast: fast.clone(), ..Plan::default() };
    let store = Store::create(&home, &plan).unwrap();
    store.put(&key("old"), &file(), b"content").unwrap();
    drop(store);
    let before: Vec<_> = [&home, &fast[0]].map(|place| (place.clone(), files(place))).into();
    // A new disk in the old place.
    std::fs::rename(&fast[1], sandbox.path().join("dead")).unwrap();
    let without = OpenOptions { lost: Some(DeviceNumber(1)), ..OpenOptions::default() };
    let store = Store::open_with(&home, &without).unwrap();
    let options = RebuildOptions { device: DeviceNumber(1), onto: Some(fast[1].clone()), ..RebuildOptions::default() };
    assert!(store.rebuild(&options, &Progress::default()).unwrap().is_settled);
    store.put(&key("new"), &file(), b"content").unwrap();
    drop(store);
    before.iter().for_each(|(place, files)| restore(place, files));

    let store = Store::open_read_only(&home).unwrap();
    assert_eq!(store.troubles(), [(DeviceNumber(1), Trouble::Newer)]);
    assert!(store.lost_devices().is_empty() && !store.completeness().is_complete());
    let mut found = Vec::new();
    store.check(CheckOptions::default(), &mut |problem| found.push(problem.to_string()), &Progress::default()).unwrap();
    assert!(found.iter().any(|problem| problem.contains("in place of the store")), "{found:?}");
    drop(store);
    for options in [OpenOptions::default(), without] {
        let error = Store::open_with(&home, &options).unwrap_err();
        assert!(error.to_string().contains("newer data"), "{error}");
    }
    for (place, wanted) in &before {
        let superblock = place.join("superblock");
        assert!(wanted[&superblock] == std::fs::read(&superblock).unwrap(), "an epoch was begun");
    }

    let options = OpenOptions { degraded: true, ..OpenOptions::default() };
    let plan = plan_repair(&fast[1], &options, None, &mut |_| {}, &Progress::default()).unwrap();
    repair(&fast[1], &options, &plan, RepairOptions::default(), &mut |_, _| {}, &Progress::default()).unwrap();
    let store = Store::open(&home).unwrap();
    assert_eq!((store.troubles(), store.completeness().missing.clone()), (vec![], vec![]));
    assert_eq!(store.get(&key("new")).unwrap().as_deref(), Some(&b"content"[..]));
}

#[test]
fn a_device_is_not_rebuilt_inside_another_or_around_it() {
    let sandbox = TempDir::new().unwrap();
    let (home, [one, other]) = mirror(&sandbox);
    std::fs::rename(&one, sandbox.path().join("away")).unwrap();
    let store = Store::open_read_only(&home).unwrap();
    for (onto, cause) in [
        (other.join("new/deep"), "it is inside device 1"),
        (sandbox.path().to_owned(), "the home of the store is inside it"),
    ] {
        let options = RebuildOptions { device: DeviceNumber(0), onto: Some(onto), ..RebuildOptions::default() };
        let error = store.plan_rebuild(&options).unwrap_err();
        assert!(error.kind() == ErrorKind::Usage && error.to_string().contains(cause), "{error}");
    }
    assert!(!other.join("new").exists());
}
