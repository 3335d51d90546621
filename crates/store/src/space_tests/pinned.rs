//! Pinned snapshots beside writers and compaction, and listings that continue from a name.

use super::*;

fn keys(walk: Walk) -> Vec<String> {
    walk.map(|listed| listed.unwrap().key.to_string()).collect()
}

#[test]
fn a_snapshot_stays_while_what_it_has_is_replaced_removed_and_compacted() {
    let place = TempDir::new().unwrap();
    let home = place.path().join("store");
    let store = Store::create(&home, &Plan::default()).unwrap();
    let large = vec![7; 300_000];
    for name in ["a/1", "a/2", "b/1", "c"] {
        store.put(&key(name), &file(), name.as_bytes()).unwrap();
    }
    store.put(&key("b/large"), &file(), &large).unwrap();
    let reader = Store::open_read_only(&home).unwrap();
    for snapshot in [store.snapshot().unwrap(), reader.snapshot().unwrap()] {
        let before = keys(snapshot.walk(&Key::root(), &Key::root()).unwrap());
        store.remove_tree(&key("b")).unwrap();
        store.put(&key("a/1"), &file(), b"other").unwrap();
        compact(&store, &CompactOptions { is_alone: false, ..ALL });
        assert_eq!(keys(snapshot.walk(&Key::root(), &Key::root()).unwrap()), before);
        assert_eq!(keys(snapshot.list(&key("b"), b"l").unwrap()), ["b/large"]);
        let mut buffer = Buffer::default();
        assert_eq!(snapshot.read(&key("a/1"), &mut buffer).unwrap().unwrap().content, b"a/1");
        assert_eq!(snapshot.read(&key("b/large"), &mut buffer).unwrap().unwrap().content, large);
        assert!(snapshot.entry(&key("b/2")).unwrap().is_none());
        // Restored for the next case.
        store.put(&key("a/1"), &file(), b"a/1").unwrap();
        store.put(&key("b/1"), &file(), b"b/1").unwrap();
        store.put(&key("b/large"), &file(), &large).unwrap();
        reader.refresh().unwrap();
    }
}

#[test]
fn what_waited_for_a_reader_is_freed_without_a_compaction_once_that_has_ended() {
    let place = TempDir::new().unwrap();
    let home = place.path().join("store");
    let store = Store::create(&home, &small_segments()).unwrap();
    (0..40).for_each(|number| store.put(&key(&number.to_string()), &file(), &bytes(number, 50_000)).unwrap());
    let reader = Store::open_read_only(&home).unwrap();
    let snapshot = reader.snapshot().unwrap();
    assert!(store.remove_tree(&Key::root()).unwrap());
    let waiting_bytes = compact(&store, &ALL).waiting_bytes;
    assert!(waiting_bytes > 1_000_000);
    assert_eq!(store.free_waiting().unwrap(), 0);
    assert_eq!(store.status(false).unwrap().waiting_bytes, waiting_bytes);
    drop(snapshot);
    // Whatever others write meanwhile.
    let mut batch = store.batch(Durability::None);
    batch.put(&key("another"), &file(), b"content").unwrap();
    batch.commit().unwrap();
    store.engine().reclaim().unwrap();
    assert_eq!(store.status(false).unwrap().waiting_bytes, 0);
    assert!(compact(&store, &ALL).waiting_bytes == 0 && store.free_waiting().unwrap() == 0);
    assert!(segment_files(&home).iter().sum::<u64>() < 100_000);
    is_sound(&store);
}

#[test]
fn what_waits_for_a_pin_is_freed_with_it() {
    let place = TempDir::new().unwrap();
    let store = Store::create(&place.path().join("store"), &small_segments()).unwrap();
    (0..40).for_each(|number| store.put(&key(&number.to_string()), &file(), &bytes(number, 50_000)).unwrap());
    store.pin("copy").unwrap();
    assert!(store.remove_tree(&Key::root()).unwrap());
    let waiting_bytes = compact(&store, &ALL).waiting_bytes;
    assert!(waiting_bytes > 1_000_000 && store.unpin("copy").unwrap());
    assert_eq!(store.free_waiting().unwrap(), waiting_bytes);
    assert_eq!((store.status(false).unwrap().waiting_bytes, store.free_waiting().unwrap()), (0, 0));
    is_sound(&store);
}

#[test]
fn a_listing_goes_on_from_any_name_and_any_key() {
    let place = TempDir::new().unwrap();
    let store = Store::create(&place.path().join("store"), &Plan::default()).unwrap();
    for name in ["a", "d/a/x", "d/a-b", "d/b/x/y", "d/c", "e"] {
        store.put(&key(name), &file(), b"").unwrap();
    }
    for directory in ["", "d", "d/b"].map(key) {
        let all = keys(store.list(&directory).unwrap());
        for from in 0..=all.len() {
            let name = all.get(from).map_or("zz", |key| key.rsplit('/').next().unwrap());
            assert_eq!(keys(store.list_from(&directory, name.as_bytes()).unwrap()), all[from..]);
        }
        let all = keys(store.walk(&directory).unwrap());
        for from in 0..all.len() {
            assert_eq!(keys(store.walk_from(&directory, &key(&all[from])).unwrap()), all[from..]);
        }
    }
    assert_eq!(keys(store.list_from(&key("d"), b"a\x01").unwrap()), ["d/a-b", "d/b", "d/c"]);
    assert!(store.list_from(&key("nothing"), b"a").is_err());
}
