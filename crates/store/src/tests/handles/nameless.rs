//! Objects without a name: created without one, or after losing it; in memory, in units that no record refers to, and
//! after a crash.

use super::*;
use crate::simulation::subject::{Simulated, geometry};
use crate::simulation::trial::Subject;
use crate::simulation::world::World;

/// Removes the last name of `d/f` while it is open.
type Unname = fn(&Store);

const WAYS: [(&str, Unname); 6] = [
    ("removed", |store| assert!(store.remove(&key("d/f")).unwrap())),
    ("renamed over", |store| store.rename(&key("other"), &key("d/f"), Existing::Replace).unwrap()),
    ("removed with its tree", |store| assert!(store.remove_tree(&key("d")).unwrap())),
    ("removed with all", |store| assert!(store.remove_tree(&Key::root()).unwrap())),
    ("replaced by another kind", |store| {
        let mut batch = store.batch(Durability::Batch);
        batch.symlink(&key("d/f"), &file(), b"other").unwrap();
        batch.commit().unwrap();
    }),
    ("removed under another name", |store| {
        store.hard_link(&key("d/f"), &key("d/g")).unwrap();
        store.remove(&key("d/f")).unwrap();
        store.remove(&key("d/g")).unwrap();
    }),
];

fn names(store: &Store) -> Vec<String> {
    store.walk(&Key::root()).unwrap().map(|listed| listed.unwrap().key.to_string()).collect()
}

fn lives_on(way: &str, unname: Unname, size: usize, is_read_before: bool) {
    let sandbox = TempDir::new().unwrap();
    let store = store(&sandbox);
    let mut model = bytes(1, size);
    store.put(&key("d/f"), &file(), &model).unwrap();
    store.put(&key("other"), &file(), b"other").unwrap();
    let handle = open(&store, "d/f");
    if is_read_before {
        assert!(read(&handle) == model);
    }
    unname(&store);
    store.sync().unwrap();
    let left = names(&store);
    for _ in 0..2 {
        // None of it is freed while it is open.
        compact(&store);
        compact(&store);
        assert!(read(&handle) == model, "{way}: {size} bytes");
        handle.write_at(b"still here", 50).unwrap();
        model[50..60].copy_from_slice(b"still here");
        handle.append(&bytes(2, 30_000)).unwrap();
        model.extend(bytes(2, 30_000));
        handle.commit(Durability::Batch).unwrap();
        assert!(read(&handle) == model, "{way}: {size} bytes");
        is_sound(&store);
    }
    handle.write_at(b"never committed", 0).unwrap();
    handle.close().unwrap();
    assert_eq!(names(&store), left, "{way}");
    assert_eq!(store.engine().open_files.count(), 0);
    compact(&store);
    assert_eq!(extent_bytes(&sandbox), 0, "{way}: {size} bytes");
    is_sound(&store);
    drop(store);
    let store = rebuild_index(&sandbox.path().join("s"), &OpenOptions::default()).unwrap();
    assert_eq!(names(&store), left, "{way}");
}

#[test]
fn an_object_lives_on_without_a_name_until_its_last_handle_is_closed() {
    for (way, unname) in WAYS {
        for size in [100, 100_000] {
            for is_read_before in [true, false] {
                lives_on(way, unname, size, is_read_before);
            }
        }
    }
}

#[test]
fn what_takes_the_name_is_another_object() {
    let sandbox = TempDir::new().unwrap();
    let store = store(&sandbox);
    store.put(&key("f"), &file(), &bytes(1, 50_000)).unwrap();
    let old = open(&store, "f");
    store.remove(&key("f")).unwrap();
    store.put(&key("f"), &file(), &bytes(2, 50_000)).unwrap();
    let new = open(&store, "f");
    assert_ne!(old.number(), new.number());
    old.write_at(b"old", 0).unwrap();
    new.write_at(b"new", 0).unwrap();
    new.commit(Durability::None).unwrap();
    drop(old);
    assert_eq!(store.get(&key("f")).unwrap().unwrap()[..4], [b"new", &bytes(2, 4)[3..]].concat());
    is_sound(&store);
}

#[test]
fn a_nameless_object_gets_a_name_with_its_content() {
    for size in [0, 100, 100_000] {
        let sandbox = TempDir::new().unwrap();
        let home = sandbox.path().join("s");
        let store = store(&sandbox);
        store.put(&key("taken"), &file(), b"taken").unwrap();
        let handle = store.create_nameless(&Attributes { uid: 5, ..file() }).unwrap();
        let mut model = bytes(1, size);
        handle.append(&model).unwrap();
        handle.commit(Durability::Batch).unwrap();
        handle.write_at(b"begin", 0).unwrap();
        model.resize(model.len().max(5), 0);
        model[..5].copy_from_slice(b"begin");
        compact(&store);
        assert!(read(&handle) == model);
        assert_eq!(names(&store), ["taken"]);
        assert_eq!(handle.link(&key("taken")).unwrap_err().kind(), ErrorKind::Exists);
        assert_eq!(handle.link(&key("no/where")).unwrap_err().kind(), ErrorKind::NotFound);
        handle.link(&key("named")).unwrap();
        assert_eq!(handle.link(&key("again")).unwrap_err().kind(), ErrorKind::Usage);
        is_sound(&store);
        compact(&store);
        handle.append(b"end").unwrap();
        model.extend(b"end");
        handle.close().unwrap();
        store.sync().unwrap();
        assert!(store.get(&key("named")).unwrap().unwrap() == model);
        assert_eq!(store.stat(&key("named")).unwrap().unwrap().attributes.uid, 5);
        is_sound(&store);
        // One that lost its name gets a new one too.
        let handle = open(&store, "named");
        store.remove(&key("named")).unwrap();
        compact(&store);
        handle.link(&key("back")).unwrap();
        assert_eq!(store.entry(&key("back")).unwrap().unwrap().entry.number, handle.number());
        drop(handle);
        is_sound(&store);
        drop(store);
        let store = rebuild_index(&home, &OpenOptions::default()).unwrap();
        assert!(store.get(&key("back")).unwrap().unwrap() == model);
        is_sound(&store);
    }
}

#[test]
fn what_never_had_a_name_is_given_out_again() {
    let sandbox = TempDir::new().unwrap();
    let store = store(&sandbox);
    let write = |round| {
        let handle = store.create_nameless(&file()).unwrap();
        handle.append(&bytes(round, 50_000)).unwrap();
        handle.commit(Durability::None).unwrap();
        handle.close().unwrap();
        extent_bytes(&sandbox)
    };
    let sizes: Vec<u64> = (0..4).map(write).collect();
    // Devices are chosen again each time: all five have some of the first four.
    assert!(sizes[0] > 50_000 && sizes[3] <= 2 * sizes[0], "{sizes:?}");
    compact(&store);
    assert_eq!(extent_bytes(&sandbox), 0);
}

#[test]
fn after_a_crash_nothing_is_left_of_what_has_no_name() {
    for seed in 0..20 {
        let settings = geometry(1, 4, 1, (3, 1));
        let world = World::new(Simulated::devices(&settings), seed);
        let subject = Simulated::create(&settings, &world).unwrap();
        let store = subject.store();
        store.put(&key("kept"), &file(), &bytes(1, 30_000)).unwrap();
        store.put(&key("lost"), &file(), &bytes(2, 30_000)).unwrap();
        let (kept, lost) = (open(store, "kept"), open(store, "lost"));
        let nameless = store.create_nameless(&file()).unwrap();
        nameless.append(&bytes(3, 30_000)).unwrap();
        nameless.commit(Durability::Batch).unwrap();
        store.remove(&key("lost")).unwrap();
        for handle in [&lost, &kept] {
            handle.write_at(&bytes(4, 20_000), 5000).unwrap();
            handle.commit(Durability::Batch).unwrap();
        }
        let left = if seed % 2 == 0 { world.after_kill(seed) } else { world.after_crash(seed) };
        drop((kept, lost, nameless, subject));
        let subject = Simulated::open(&settings, &left).unwrap();
        let store = subject.store();
        let mut model = bytes(1, 30_000);
        model[5000..25_000].copy_from_slice(&bytes(4, 20_000));
        assert!(store.get(&key("kept")).unwrap().unwrap() == model);
        assert_eq!(names(store), ["kept"]);
        is_sound(store);
        compact(store);
        is_sound(store);
        let report = store.check(CheckOptions::default(), &mut |_| (), &Progress::default()).unwrap();
        assert_eq!(report.quarantined_bytes, 0);
        let units: u64 = descriptor(store, "kept").runs().map(|run| run.length_bytes).sum();
        let there: u64 = store.engine().extent_files().iter().map(|file| file.size_bytes).sum();
        assert_eq!(there, units, "seed {seed}");
        assert!(store.get(&key("kept")).unwrap().unwrap() == model);
    }
}
