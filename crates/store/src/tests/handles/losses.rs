//! A slow device fails while objects are open: the writer takes it out of service, durably before the next
//! acknowledgement, and continues; reads reconstruct from parity.

use super::*;
use crate::engine::RESERVED_IDS;
use crate::engine::locking::Access;
use crate::format::ids::DeviceNumber;
use crate::simulation::mishap::Absence;
use crate::simulation::subject::{Simulated, geometry, home};
use crate::simulation::trial::Subject;
use crate::simulation::world::World;

/// Numbers of the devices in sync.
fn in_sync(store: &Store) -> Vec<DeviceNumber> {
    let history = store.engine().devices.history();
    history.newest().in_sync.clone()
}

#[test]
fn a_writer_goes_on_without_a_slow_device_that_fails() {
    for seed in 0..4 {
        let settings = geometry(2, 3, 2, (2, 1));
        let world = World::new(Simulated::devices(&settings), seed);
        let subject = Simulated::create(&settings, &world).unwrap();
        let store = subject.store();
        let mut model = bytes(seed, 120_000);
        store.put(&key("f"), &file(), &model).unwrap();
        store.put(&key("stays"), &file(), &model).unwrap();
        let (handle, nameless) = (open(store, "f"), store.create_nameless(&file()).unwrap());
        nameless.append(&model).unwrap();
        nameless.commit(Durability::Batch).unwrap();
        // Units that are not yet durable are on it, too.
        let mut batch = store.batch(Durability::None);
        batch.put(&key("not durable yet"), &file(), &model).unwrap();
        batch.commit().unwrap();
        let lost = descriptor(store, "f").runs().next().unwrap().device;
        let detached = world.detach(lost.index(), Absence::Unmounted, seed);
        assert!(read(&nameless) == model && read(&handle) == model, "parity has it");
        for written in [&handle, &nameless] {
            written.write_at(b"written", 60_000).unwrap();
            written.append(&bytes(9, 50_000)).unwrap();
        }
        let unwritten = model.clone();
        model[60_000..60_007].copy_from_slice(b"written");
        model.extend(bytes(9, 50_000));
        // Either of them is the first to meet the failure.
        let order = if seed % 2 == 0 { [&handle, &nameless] } else { [&nameless, &handle] };
        for written in order {
            written.commit(Durability::Batch).unwrap();
            assert!(!in_sync(store).contains(&lost) && subject.out_of_service() == [lost]);
        }
        store.put(&key("put"), &file(), &model).unwrap();
        nameless.link(&key("linked")).unwrap();
        store.sync().unwrap();
        let expected = [
            ("f", &model),
            ("put", &model),
            ("linked", &model),
            ("stays", &unwritten),
            ("not durable yet", &unwritten),
        ];
        let are_there = |store: &Store| {
            for (name, content) in expected {
                assert!(store.get(&key(name)).unwrap().unwrap() == *content, "{name}");
            }
        };
        are_there(store);
        // All others know it: there are enough devices to open the store, and it is whole.
        let left = world.after_crash(seed);
        let after = Simulated::open(&settings, &left).unwrap();
        are_there(after.store());
        assert_eq!(after.out_of_service(), [lost]);
        drop(after);
        left.attach(lost.index(), &detached);
        let back = Simulated::open(&settings, &left).unwrap();
        assert_eq!(back.out_of_service(), [lost], "it missed what was written");
        are_there(back.store());
        drop(back);
        // One more exceeds redundancy, and nothing is acknowledged.
        let next = descriptor(store, "f").runs().map(|run| run.device).find(|device| *device != lost).unwrap();
        world.detach(next.index(), Absence::Unmounted, seed);
        assert_eq!(store.put(&key("too many"), &file(), &model).unwrap_err().kind(), ErrorKind::Lost);
        assert_eq!(store.put(&key("small"), &file(), b"small").unwrap_err().kind(), ErrorKind::ReadOnly);
    }
}

/// Numbers of objects are reserved in the superblocks of all devices, also for records that are on none of the slow
/// ones.
#[test]
fn records_are_written_although_the_superblock_of_a_slow_device_cannot_be() {
    for (absence, by_handle) in [(Absence::Unmounted, false), (Absence::Failing, false), (Absence::Unmounted, true)] {
        let settings = geometry(2, 3, 2, (2, 1));
        let world = World::new(Simulated::devices(&settings), 1);
        let subject = Simulated::create(&settings, &world).unwrap();
        let store = subject.store();
        store.put(&key("large"), &file(), &bytes(1, 120_000)).unwrap();
        let handle = store.create_nameless(&file()).unwrap();
        handle.link(&key("handle")).unwrap();
        world.detach(3, absence, 1);
        let mut number = 0;
        while subject.out_of_service().is_empty() && number < 4 * RESERVED_IDS {
            if by_handle {
                handle.append(b"more").unwrap();
                handle.commit(Durability::Batch).unwrap();
            } else {
                store.put(&key(&format!("small/{number}")), &file(), b"content").unwrap();
            }
            number += 1;
        }
        assert_eq!(subject.out_of_service(), [DeviceNumber(3)], "after {number} objects");
        let after = Simulated::open(&settings, &world.after_crash(1)).unwrap();
        let written = match by_handle {
            true => after.store().get(&key("handle")).unwrap().unwrap().len() as u64 / 4,
            false => after.store().list(&key("small")).unwrap().count() as u64,
        };
        assert_eq!(written, number);
        assert!(after.store().get(&key("large")).unwrap().unwrap() == bytes(1, 120_000));
    }
}

/// The tree of a removal is determined when it is committed, and so again after a device was found lost.
#[test]
fn a_tree_is_removed_by_one_record_although_the_superblock_of_a_slow_device_cannot_be_written() {
    for first in 0..5 {
        let settings = geometry(2, 3, 2, (2, 1));
        let world = World::new(Simulated::devices(&settings), 1);
        let subject = Simulated::create(&settings, &world).unwrap();
        let store = subject.store();
        // The ids run out in each of its records.
        (0..first).for_each(|number| store.put(&key(&format!("kept/{number}")), &file(), b"kept").unwrap());
        world.detach(3, Absence::Unmounted, 1);
        let mut removed = 0;
        while subject.out_of_service().is_empty() && removed < 4 * RESERVED_IDS {
            let mut batch = store.batch(Durability::Batch);
            batch.remove_tree(&key(&format!("tree/{removed}"))).unwrap();
            batch.put(&key(&format!("tree/{}/new/file", removed + 1)), &file(), b"new").unwrap();
            batch.commit().unwrap();
            removed += 1;
        }
        assert_eq!(subject.out_of_service(), [DeviceNumber(3)], "after {removed} trees");
        for access in [Access::Write, Access::RebuildIndex] {
            let after = Simulated::open_as(&home(&settings), &world.after_crash(1), access).unwrap();
            assert!(after.store().completeness().missing.is_empty(), "{:?}", after.store().completeness());
            assert_eq!(after.store().list(&key("tree")).unwrap().count(), 1);
            let newest = key(&format!("tree/{removed}/new/file"));
            assert_eq!(after.store().get(&newest).unwrap().as_deref(), Some(&b"new"[..]));
            let mut problems = Vec::new();
            let deep = CheckOptions { is_deep: true, ..CheckOptions::default() };
            after.store().check(deep, &mut |problem| problems.push(problem.to_string()), &Progress::default()).unwrap();
            problems.retain(|problem| problem.contains("record") || problem.contains("damaged"));
            assert_eq!(problems, [""; 0]);
        }
    }
}

#[test]
fn what_does_not_exist_is_no_sign_of_a_lost_device() {
    let settings = geometry(2, 3, 2, (2, 1));
    let world = World::new(Simulated::devices(&settings), 1);
    let subject = Simulated::create(&settings, &world).unwrap();
    let store = subject.store();
    store.put(&key("f"), &file(), b"content").unwrap();
    let before = world.operations();
    for _ in 0..3 {
        let error = store.rename(&key("f"), &key("missing/f"), crate::Existing::Replace).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        let error = store.hard_link(&key("f"), &key("missing/f")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    }
    assert_eq!(world.operations(), before, "nothing is written");
}
