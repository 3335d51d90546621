//! A crash at each operation of a device while handles write: what was durable exists, and what was not exists whole or
//! not at all.

use std::sync::{Arc, Mutex};

use super::*;
use crate::simulation::subject::{Simulated, geometry};
use crate::simulation::trial::Subject;
use crate::simulation::world::World;

/// The content of the object after each commit, and the first commit that may be found.
#[derive(Default)]
struct Versions {
    all: Vec<Vec<u8>>,
    durable: usize,
    /// Crashes that were tried.
    crashes: u64,
}

#[test]
fn a_commit_is_there_whole_after_a_crash_or_not_at_all() {
    let settings = geometry(2, 4, 2, (3, 1));
    let world = World::new(Simulated::devices(&settings), 5);
    let subject = Simulated::create(&settings, &world).unwrap();
    let store = subject.store();
    let mut model = bytes(1, 60_000);
    store.put(&key("f"), &file(), &model).unwrap();
    let versions = Arc::new(Mutex::new(Versions { all: vec![model.clone()], ..Versions::default() }));
    let (seen, of) = (Arc::clone(&versions), settings.clone());
    world.observe(move |world, operation| {
        let mut versions = seen.lock().unwrap();
        versions.crashes += 1;
        let left = if operation.is_multiple_of(4) { world.after_kill(operation) } else { world.after_crash(operation) };
        let subject = Simulated::open(&of, &left).unwrap();
        let content = subject.store().get(&key("f")).unwrap().unwrap();
        assert!(versions.all[versions.durable..].contains(&content), "before operation {operation}");
        if operation.is_multiple_of(16) {
            is_sound(subject.store());
        }
    });
    let handle = open(store, "f");
    for round in 0..12_usize {
        match round % 4 {
            3 => {
                let size = model.len() - 7000;
                handle.set_len(size as u64).unwrap();
                model.truncate(size);
            }
            2 => {
                handle.append(&bytes(round as u64, 9000)).unwrap();
                model.extend(bytes(round as u64, 9000));
            }
            _ => {
                let at = round * 4500;
                handle.write_at(&bytes(round as u64, 5000), at as u64).unwrap();
                model[at..at + 5000].copy_from_slice(&bytes(round as u64, 5000));
            }
        }
        versions.lock().unwrap().all.push(model.clone());
        let is_durable = round % 3 > 0;
        handle.commit(if is_durable { Durability::Batch } else { Durability::None }).unwrap();
        if is_durable {
            versions.lock().unwrap().durable = round + 1;
        }
        if round == 6 {
            compact(store);
            versions.lock().unwrap().durable = round + 1;
        }
    }
    world.stop_observing();
    assert!(versions.lock().unwrap().crashes > 100);
    assert!(store.get(&key("f")).unwrap().unwrap() == model);
    is_sound(store);
}
