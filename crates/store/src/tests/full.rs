//! Full devices: filled as far as the store allows, then a few objects are removed, and compaction frees their space,
//! again and again. What it moves may not use up the reserve of any device. And an index without any space, which keeps
//! nobody from writing.

use super::names::is_sound;
use super::*;
use crate::devices::placement::reserve_bytes;
use crate::engine::missing::DETACHED;
use crate::engine::snapshots::versions_due;
use crate::simulation::subject::{Simulated, geometry};
use crate::simulation::trial::Subject;
use crate::simulation::world::World;
use crate::{Choice, CompactOptions, Progress};

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
