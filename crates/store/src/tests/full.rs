//! Full devices: filled as far as the store allows, then a few objects are removed, and compaction frees their space,
//! again and again. What it moves may not use up the reserve of any device. And an index without any space, which keeps
//! nobody from writing.

use rustix::io::Errno;

use super::names::is_sound;
use super::*;
use crate::devices::placement::reserve_bytes;
use crate::engine::missing::DETACHED;
use crate::engine::snapshots::versions_due;
use crate::simulation::subject::{Simulated, geometry, home};
use crate::simulation::trial::Subject;
use crate::simulation::world::{Fault, World};
use crate::{Choice, Class, CompactOptions, Progress};

const CAPACITY_BYTES: u64 = 4 << 20;
const CYCLES: usize = 5;

/// Stores objects until there is no space; returns how many there are.
fn fill(store: &Store, random: &mut Random, model: &mut BTreeMap<String, Vec<u8>>) {
    loop {
        let most = if random.below(3) == 0 { 150_000 } else { 8192 };
        let length = random.below(most) as usize;
        let (name, content) = (format!("f{}", random.below(1 << 40)), random.bytes(length));
        match store.put(&key(&name), &file(), &content) {
            Ok(()) => _ = model.insert(name, content),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
                return;
            }
        }
    }
}

/// The index is on a fast device without any space, the log goes on on a slow one.
#[test]
fn what_is_due_in_an_index_without_space_keeps_no_writer_out() {
    let settings = geometry(1, 1, 1, (1, 0));
    let world = World::new(Simulated::devices(&settings), 1);
    let subject = Simulated::create(&settings, &world).unwrap();
    let store = subject.store();
    for number in 0..200 {
        store.put(&key(&format!("{number:0>100}")), &file(), b"content").unwrap();
    }
    store.create_snapshot("snapshot").unwrap();
    assert!(store.remove_tree(&Key::root()).unwrap());
    let (versions, detached) = (versions_due().0, DETACHED);
    store.engine().note(&[(detached, b"due".to_vec())]).unwrap();
    world.fill(0, 0);
    assert!(store.remove_snapshot("snapshot").unwrap());
    let due = |store: &Store| [&versions[..], detached].map(|note| store.engine().noted(note).is_some());
    assert_eq!(due(store), [true, true]);
    // It is closed all the same.
    let is_closed = |store: &Store| {
        store.engine().close().unwrap();
        let writer = store.engine().writer().unwrap();
        writer.closed_sequence == Some(writer.position.sequence)
    };
    assert!(is_closed(store));
    drop(subject);
    for number in 0..3 {
        world.fill(0, 0);
        let subject = Simulated::open(&settings, &world).unwrap();
        let store = subject.store();
        assert_eq!((due(store), store.snapshots().unwrap().len()), ([true, true], 0));
        store.put(&key(&format!("more/{number}")), &file(), b"content").unwrap();
        store.sync().unwrap();
        assert!(is_closed(store));
    }
    world.device(0).set_endless();
    let subject = Simulated::open(&settings, &world).unwrap();
    let store = subject.store();
    assert_eq!(due(store), [false, false]);
    for number in 0..3 {
        assert_eq!(store.get(&key(&format!("more/{number}"))).unwrap().as_deref(), Some(&b"content"[..]));
    }
    is_sound(store);
}

#[test]
fn space_comes_back_on_full_devices() {
    for (seed, (fast, slow, copies, parity)) in
        [(1, 0, 1, (1, 0)), (3, 0, 2, (2, 1)), (4, 0, 2, (3, 1)), (2, 4, 2, (3, 1))]
            .into_iter()
            .cycle()
            .take(8)
            .enumerate()
    {
        let mut settings = geometry(fast, slow, copies, parity);
        settings.segment_bytes = 1 << 20;
        let devices = Simulated::devices(&settings);
        let world = World::new(devices, seed as u64);
        (0..devices).for_each(|device| world.device(device).set_capacity(CAPACITY_BYTES));
        let subject = Simulated::create(&settings, &world).unwrap();
        let (store, mut random, mut model) = (subject.store(), Random::new(seed as u64), BTreeMap::new());
        for cycle in 0..CYCLES {
            fill(store, &mut random, &mut model);
            for _ in 0..1 + random.below(3) {
                let name = model.keys().nth(random.below(model.len() as u64) as usize).unwrap().clone();
                store.remove(&key(&name)).unwrap();
                model.remove(&name);
            }
            let choice = if random.below(2) == 0 { Choice::All } else { Choice::Dead(1) };
            let compacted =
                store.compact(&CompactOptions { choice, ..CompactOptions::default() }, &Progress::default());
            let what = format!("seed {seed}, {fast} fast and {slow} slow devices, cycle {cycle}");
            compacted.unwrap_or_else(|error| panic!("{what}: {error}"));
            for slot in store.engine().devices.slots().iter() {
                let room = slot.room().unwrap();
                let reserve_bytes = reserve_bytes(room);
                let is_left = room.available_bytes >= reserve_bytes / 2;
                assert!(is_left, "{what}: device {} has {room:?} of {reserve_bytes}", slot.entry.number);
            }
        }
        for (name, content) in &model {
            assert!(store.get(&key(name)).unwrap().as_ref() == Some(content), "{name}");
        }
    }
}

/// Those who make room rename, change attributes and shorten files first.
#[test]
fn what_is_there_can_be_changed_when_nothing_new_fits() {
    let mut settings = geometry(1, 0, 1, (1, 0));
    settings.segment_bytes = 1 << 20;
    let world = World::new(Simulated::devices(&settings), 1);
    world.device(0).set_capacity(CAPACITY_BYTES);
    let subject = Simulated::create(&settings, &world).unwrap();
    let (store, mut random, mut model) = (subject.store(), Random::new(1), BTreeMap::new());
    let mut batch = store.batch(Durability::Batch);
    batch.directory(&key("below"), &Attributes::of_directory(Time::default())).unwrap();
    batch.commit().unwrap();
    fill(store, &mut random, &mut model);
    while store.put(&key("last"), &file(), &[1; 200]).is_ok() {}
    let names: Vec<String> = model.keys().take(5).cloned().collect();
    for (number, name) in names.iter().enumerate() {
        let (from, to) = (key(name), key(&format!("below/{number}")));
        store.rename(&from, &to, Existing::Refuse).unwrap();
        store.set_attributes(&to, &Attributes { mode: 0o100_600, ..file() }).unwrap();
        let handle = store.open_object(&to, &HandleOptions::write()).unwrap();
        handle.set_len(3 * number as u64).unwrap();
        handle.close().unwrap();
        let mut content = model.remove(name).unwrap();
        content.truncate(3 * number);
        model.insert(format!("below/{number}"), content);
        let nothing_new = store.put(&key("new"), &file(), &[1; 200]).unwrap_err();
        assert_eq!(nothing_new.kind(), ErrorKind::NoSpace);
    }
    // Not without end: what is left is for those who remove.
    let mut changes = 0;
    let error = loop {
        changes += 1;
        let attributes = Attributes { mode: 0o100_000 | (changes % 0o1000), ..file() };
        if let Err(error) = store.set_attributes(&key("below/1"), &attributes) {
            break error;
        }
    };
    assert!(error.kind() == ErrorKind::NoSpace && changes > 100, "{error} after {changes}");
    let (name, _) = model.pop_last().unwrap();
    store.remove(&key(&name)).unwrap();
    store.compact(&CompactOptions { choice: Choice::All, ..CompactOptions::default() }, &Progress::default()).unwrap();
    store.put(&key("new"), &file(), &[1; 200]).unwrap();
    for (name, content) in &model {
        assert!(store.get(&key(name)).unwrap().as_ref() == Some(content), "{name}");
    }
}

/// As with a quota, the fast device says that it has space. What was released before is repeated there, and the batch
/// itself goes to the slow one.
#[test]
fn a_segment_that_has_no_space_for_its_batch_is_in_the_index() {
    let settings = geometry(1, 1, 1, (1, 0));
    let world = World::new(Simulated::devices(&settings), 1);
    let subject = Simulated::create(&settings, &world).unwrap();
    let store = subject.store();
    store.put(&key("gone"), &file(), &[1; 7000]).unwrap();
    assert!(store.remove(&key("gone")).unwrap());
    store.compact(&ALL, &Progress::default()).unwrap();
    store.engine().close_active_segment().unwrap();
    assert!(!store.engine().writer().unwrap().released.is_empty());
    world.set_quota(0, 1);
    store.put(&key("f"), &file(), &[2; 7000]).unwrap();
    let rows = store.engine().view().state.segments.clone();
    let mut last = rows.values().rev().map(|row| (row.number.0, row.class));
    let (newest, class) = last.next().unwrap();
    assert_eq!((class, last.next()), (Class::Slow, Some((newest - 1, Class::Fast))));
    assert_eq!(store.engine().quarantine().unwrap(), []);
    drop(subject);
    world.device(0).set_endless();
    for access in [Access::Write, Access::RebuildIndex] {
        let opened = Simulated::open_as(&home(&settings), &world, access).unwrap();
        assert_eq!(opened.store().get(&key("f")).unwrap(), Some(vec![2; 7000]));
        assert_eq!(opened.store().completeness().missing, []);
        assert_eq!(opened.store().engine().quarantine().unwrap(), []);
    }
}

/// All that a recovery writes, from some operation on, finds no space: it does without, or says so. Whatever it has
/// done until then, nothing is lost, now and after a crash, and with space again a writer has everything.
#[test]
fn a_recovery_that_finds_no_space_loses_nothing() {
    const OBJECTS: u64 = 40;
    let content = |number: u64| bytes(number, if number.is_multiple_of(20) { 30_000 } else { 700 });
    for settings in [geometry(1, 0, 1, (1, 0)), geometry(2, 0, 2, (2, 0)), geometry(2, 3, 2, (2, 1))] {
        let has_all = |world: &World, access: Access, when: &str| {
            let opened = Simulated::open_as(&home(&settings), world, access);
            let opened = opened.unwrap_or_else(|error| panic!("{when}: {error}"));
            let (store, missing) = (opened.store(), &opened.store().completeness().missing);
            assert!(missing.is_empty() && store.entry(&key("f1")).unwrap().is_none(), "{when}: {missing:?}");
            for number in (0..OBJECTS).filter(|number| *number != 1) {
                let found = store.get(&key(&format!("f{number}"))).unwrap();
                assert!(found == Some(content(number)), "{when}: object {number}");
            }
        };
        for is_index_lost in [false, true] {
            let world = World::new(Simulated::devices(&settings), 1);
            let subject = Simulated::create(&settings, &world).unwrap();
            for number in 0..OBJECTS {
                subject.store().put(&key(&format!("f{number}")), &file(), &content(number)).unwrap();
            }
            assert!(subject.store().remove(&key("f1")).unwrap());
            let crashed = world.after_power_failure(1);
            drop(subject);
            if is_index_lost {
                (0..Simulated::devices(&settings)).for_each(|device| crashed.lose_index(device));
            }
            for operations in (0..).step_by(3) {
                let count = settings.devices.len();
                let when = format!("{count} devices, the index is lost: {is_index_lost}, after {operations}");
                let world = crashed.after_kill(operations);
                let operation = world.operations() + operations;
                world.fail(Fault { operation, errno: Errno::NOSPC, is_lasting: true, device: None });
                if let Err(error) = Simulated::open(&settings, &world) {
                    assert_eq!(error.kind(), ErrorKind::NoSpace, "{when}: {error}");
                }
                let is_over = world.failures() == 0;
                world.clear_faults();
                has_all(&world, Access::Read, &when);
                has_all(&world.after_power_failure(operations), Access::Write, &when);
                has_all(&world, Access::Write, &when);
                if is_over {
                    break;
                }
            }
        }
    }
}
