//! A device is lost and rebuilt while objects are open: those without a name, which are in no index, and those that are
//! written to meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use super::*;
use crate::RebuildOptions;
use crate::error::Error;
use crate::format::ids::DeviceNumber;

/// Deletes everything on a device.
pub(super) fn lose(sandbox: &TempDir, store: &Store, device: DeviceNumber) {
    let slot = store.engine().devices.slots()[device.index()].clone();
    std::fs::rename(&slot.path, sandbox.path().join(format!("lost{device}"))).unwrap();
    store.engine().devices.fail(device, &Error::new(ErrorKind::Io, "write", "it is gone"));
}

/// Descriptors of open objects that have no name.
fn descriptors_without_name(store: &Store) -> Vec<Descriptor> {
    let files = store.engine().open_files.all();
    let bases = files.iter().filter_map(|file| file.striped_without_name());
    bases.filter_map(|base| base.descriptor().cloned()).collect()
}

/// How many objects have units on a device: open ones without a name, and this one.
fn objects_on(store: &Store, device: DeviceNumber, name: &str) -> u64 {
    let descriptors = descriptors_without_name(store).into_iter().chain([descriptor(store, name)]);
    descriptors.filter(|descriptor| descriptor.runs().any(|run| run.device == device)).count() as u64
}

/// Devices with units of open objects that have no name; the first object's come first.
fn devices_without_name(store: &Store) -> Vec<DeviceNumber> {
    let mut devices = Vec::new();
    for run in descriptors_without_name(store).iter().flat_map(Descriptor::runs) {
        if !devices.contains(&run.device) {
            devices.push(run.device);
        }
    }
    devices
}

#[test]
fn objects_without_a_name_are_rebuilt_with_all_others() {
    for is_onto in [true, false] {
        let sandbox = TempDir::new().unwrap();
        let store = store(&sandbox);
        let content = bytes(1, 200_000);
        store.put(&key("named"), &file(), &content).unwrap();
        store.put(&key("gone"), &file(), &content).unwrap();
        let unnamed = open(&store, "gone");
        store.remove(&key("gone")).unwrap();
        assert!(read(&unnamed) == content);
        let nameless = store.create_nameless(&file()).unwrap();
        nameless.append(&content).unwrap();
        nameless.commit(Durability::Batch).unwrap();
        let lost = devices_without_name(&store)[0];
        let objects = objects_on(&store, lost, "named");
        lose(&sandbox, &store, lost);
        assert!(read(&nameless) == content && read(&unnamed) == content, "parity has it");
        let onto = is_onto.then(|| sandbox.path().join("new"));
        let options = RebuildOptions { device: lost, onto, ..RebuildOptions::default() };
        let plan = store.plan_rebuild(&options).unwrap();
        let report = store.rebuild(&options, &Progress::default()).unwrap();
        assert!(report.is_complete, "{report:?}");
        assert_eq!((report.objects, plan.objects, report.lost), (objects, objects, 0));
        let devices = devices_without_name(&store);
        assert_eq!(devices.contains(&lost), is_onto, "{devices:?}");
        // Everything from the device is on another: the loss of any one more can be repaired.
        let again = *devices.iter().rev().find(|device| **device != lost).unwrap();
        lose(&sandbox, &store, again);
        for handle in [&nameless, &unnamed] {
            assert!(read(handle) == content, "onto another: {is_onto}");
            handle.write_at(b"written", 100_000).unwrap();
        }
        let mut written = content.clone();
        written[100_000..100_007].copy_from_slice(b"written");
        for (handle, name) in [(&nameless, "first"), (&unnamed, "second")] {
            handle.link(&key(name)).unwrap();
            assert!(store.get(&key(name)).unwrap().unwrap() == written);
        }
        assert!(store.get(&key("named")).unwrap().unwrap() == content);
    }
}

#[test]
fn what_is_written_to_while_a_device_is_rebuilt_has_nothing_on_it_afterwards() {
    let sandbox = TempDir::new().unwrap();
    let store = store(&sandbox);
    let mut models: Vec<Vec<u8>> = (0..4).map(|seed| bytes(seed, 150_000)).collect();
    let name = |number: usize| format!("f{number}");
    let mut batch = store.batch(Durability::Batch);
    for (number, model) in models.iter().enumerate() {
        batch.put(&key(&name(number)), &file(), model).unwrap();
    }
    batch.commit().unwrap();
    let lost = descriptor(&store, "f0").runs().next().unwrap().device;
    let handles: Vec<Handle> = (0..models.len()).map(|number| open(&store, &name(number))).collect();
    store.create_snapshot("before").unwrap();
    lose(&sandbox, &store, lost);
    let options = RebuildOptions { device: lost, ..RebuildOptions::default() };
    let before = models.clone();
    let (waiting, written) = (Mutex::new(handles), Arc::new(AtomicBool::new(false)));
    let is_written = written.clone();
    let progress = Progress::observed(move |progress| {
        if progress.snapshot().bytes > 0 {
            // Closed once written to.
            for handle in waiting.lock().unwrap().drain(..) {
                handle.write_at(b"meanwhile", 70_000).unwrap();
                handle.commit(Durability::None).unwrap();
            }
            written.store(true, Ordering::Relaxed);
        }
    });
    let report = store.rebuild(&options, &progress);
    assert!(is_written.load(Ordering::Relaxed) && report.unwrap().is_complete);
    models.iter_mut().for_each(|model| model[70_000..70_009].copy_from_slice(b"meanwhile"));
    for (number, model) in models.iter().enumerate() {
        let descriptor = descriptor(&store, &name(number));
        let named = descriptor.chunks.iter().flat_map(|chunk| &chunk.components);
        assert!(named.map(|component| component.device).all(|device| device != lost), "{number}");
        assert!(store.get(&key(&name(number))).unwrap().unwrap() == *model);
    }
    let then = store.snapshot_named("before").unwrap().unwrap();
    for (number, model) in before.iter().enumerate() {
        let mut buffer = crate::Buffer::default();
        assert!(then.read(&key(&name(number)), &mut buffer).unwrap().unwrap().content == model);
    }
    is_sound(&store);
}
