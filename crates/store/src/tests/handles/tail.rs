//! Large objects in the tail of the log: opening after a kill reads what the last commits wrote and no more, and judges
//! them by nothing else.

use super::*;
use crate::devices::device::Device;
use crate::format::names::EXTENTS;
use crate::simulation::subject::{Simulated, geometry};
use crate::simulation::trial::Subject;
use crate::simulation::world::World;

/// Commits that no mark follows.
const COMMITS: usize = 60;

#[test]
fn opening_after_a_kill_costs_what_the_last_commits_wrote() {
    let settings = geometry(2, 4, 2, (3, 1));
    let world = World::new(Simulated::devices(&settings), 5);
    let subject = Simulated::create(&settings, &world).unwrap();
    let store = subject.store();
    let mut model = bytes(1, 1_200_000);
    store.put(&key("f"), &file(), &model).unwrap();
    store.sync().unwrap();
    let handle = open(store, "f");
    for round in 0..COMMITS {
        let at = round * 19_001;
        handle.write_at(&bytes(round as u64, 100), at as u64).unwrap();
        model[at..at + 100].copy_from_slice(&bytes(round as u64, 100));
        handle.commit(Durability::None).unwrap();
    }
    let mut batch = store.batch(Durability::None);
    batch.rename(&key("f"), &key("g"), Existing::Refuse).unwrap();
    batch.commit().unwrap();
    let left = world.after_kill(1);
    left.count_reads(true);
    let before = left.operations();
    let opened = Simulated::open(&settings, &left).unwrap();
    let operations = left.operations() - before;
    left.count_reads(false);
    assert!(opened.store().get(&key("g")).unwrap().unwrap() == model);
    is_sound(opened.store());
    assert_eq!(opened.store().recovered().batches, COMMITS as u64 + 1);
    assert!(operations < 100 * COMMITS as u64, "{operations} operations for {COMMITS} commits of a stripe each");
}

#[test]
fn damage_from_long_ago_does_not_make_a_commit_of_today_torn() {
    let settings = geometry(1, 1, 1, (1, 0));
    let world = World::new(Simulated::devices(&settings), 5);
    let subject = Simulated::create(&settings, &world).unwrap();
    let store = subject.store();
    store.put(&key("f"), &file(), &bytes(1, 60_000)).unwrap();
    store.sync().unwrap();
    let slow = world.device(1);
    let extents = slow.list(EXTENTS).unwrap();
    let (name, size_bytes) = extents.first().unwrap();
    slow.flip_bit(&format!("{EXTENTS}/{name}"), 8 * (size_bytes - 10_000));
    let handle = open(store, "f");
    handle.write_at(b"today", 5000).unwrap();
    handle.commit(Durability::Batch).unwrap();
    let left = world.after_power_failure(1);
    let opened = Simulated::open(&settings, &left).unwrap();
    let mut found = Vec::new();
    opened.store().read_range(&key("f"), 5000..5005, &mut found).unwrap();
    assert_eq!(found, b"today");
    assert_eq!(opened.store().completeness().tail.as_ref().map(|tail| tail.batches), Some(1));
    assert_eq!(opened.store().get(&key("f")).unwrap_err().kind(), ErrorKind::Lost);
}

/// A hole over what ends the file leaves its size, whether that was committed or not.
#[test]
fn a_punched_hole_does_not_shorten_the_file() {
    let sandbox = TempDir::new().unwrap();
    let store = store(&sandbox);
    for is_committed in [false, true] {
        let handle = store.open_object(&key("file"), &HandleOptions::write().create(file()).truncate()).unwrap();
        handle.write_at(&[1; 100], 0).unwrap();
        handle.write_at(&[2; 100], 5000).unwrap();
        if is_committed {
            handle.commit(Durability::None).unwrap();
        }
        handle.punch_hole(50..6000).unwrap();
        assert_eq!(handle.size_bytes().unwrap(), 5100);
        let expected = [&[1; 50][..], &[0; 5050]].concat();
        assert_eq!(read(&handle), expected);
        handle.close().unwrap();
        assert_eq!(store.get(&key("file")).unwrap().unwrap(), expected);
        assert_eq!(store.stat(&key("file")).unwrap().unwrap().attributes.holes.unwrap().data, [(0, 50)]);
    }
    is_sound(&store);
}
