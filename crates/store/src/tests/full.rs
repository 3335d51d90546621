//! Full devices: filled as far as the store allows, then a few objects are removed, and compaction frees their space,
//! again and again. What it moves may not use up the reserve of any device.

use super::*;
use crate::devices::placement::reserve_bytes;
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
