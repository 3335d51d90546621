//! Snapshots with a name: their content stays, whatever is done to the current state, to the log and to the index; and
//! is freed with its last snapshot.

use std::path::Path;

use super::names::{LARGE_BYTES, Shown, is_sound, shown, shown_as, store};
use super::opening::{copy, kill};
use super::*;
use crate::PinnedSnapshot;
use crate::format::ids::DeviceNumber;
use crate::format::key::LONGEST_KEY_BYTES;

mod trees;

fn of(store: &Store, name: &str) -> PinnedSnapshot {
    store.snapshot_named(name).unwrap().unwrap()
}

/// The content of a snapshot.
fn then(store: &Store, name: &str) -> BTreeMap<String, Shown> {
    let snapshot = of(store, name);
    let mut buffer = crate::Buffer::default();
    let mut all = BTreeMap::new();
    let walk = snapshot.walk(&Key::root(), &Key::root()).unwrap();
    for listed in walk.map(Result::unwrap).filter(|listed| !listed.key.is_root()) {
        let read = snapshot.read(&listed.key, &mut buffer).unwrap().unwrap();
        all.insert(listed.key.to_string(), shown_as(&read, listed.shared));
    }
    all
}

/// Every kind of change to the objects of `names::store`.
fn change_all(store: &Store) {
    store.put(&key("d/file"), &file(), b"other content").unwrap();
    store.rename(&key("d/large"), &key("d/renamed"), Existing::Refuse).unwrap();
    store.set_attributes(&key("d/sparse"), &Attributes { mode: 0o100_600, ..file() }).unwrap();
    store.exchange(&key("d/symlink"), &key("d/file")).unwrap();
    store.hard_link(&key("d/renamed"), &key("d/other name")).unwrap();
    store.remove_tree(&key("d/sub")).unwrap();
    store.put(&key("d/new/one"), &file(), b"new").unwrap();
}

pub(super) fn compact_all(store: &Store) {
    let options = CompactOptions { choice: Choice::All, is_alone: true, ..CompactOptions::default() };
    store.compact(&options, &Progress::default()).unwrap();
}

/// Closes the store, rebuilds its index from the log, compacts it, and checks after each that it is the same.
pub(super) fn through_all(mut store: Store, home: &Path, look: &dyn Fn(&Store)) -> Store {
    for _ in 0..2 {
        look(&store);
        is_sound(&store);
        drop(store);
        look(&Store::open_read_only(home).unwrap());
        store = rebuild_index(home, &OpenOptions::default()).unwrap();
        look(&store);
        is_sound(&store);
        compact_all(&store);
        look(&store);
    }
    is_sound(&store);
    store
}

#[test]
fn a_snapshot_stays_whatever_is_done() {
    let sandbox = TempDir::new().unwrap();
    let (store, home) = store(&sandbox);
    let mut kept = BTreeMap::new();
    for name in ["monday", "tuesday", "wednesday"] {
        kept.insert(name, shown(&store));
        let row = store.create_snapshot(name).unwrap();
        assert_eq!(row.name, name.as_bytes());
        match name {
            "monday" => change_all(&store),
            "tuesday" => assert!(store.remove_tree(&Key::root()).unwrap()),
            _ => store.put(&key("d/file"), &file(), b"again").unwrap(),
        }
    }
    let last = shown(&store);
    assert!(kept.values().all(|before| *before != last));
    let store = through_all(store, &home, &|store| {
        assert_eq!(shown(store), last);
        kept.iter().for_each(|(name, before)| assert_eq!(then(store, name), *before, "{name}"));
        let names: Vec<_> = store.snapshots().unwrap().into_iter().map(|row| row.name).collect();
        assert_eq!(names, [&b"monday"[..], b"tuesday", b"wednesday"]);
    });
    // One at a time, the middle one first: the others stay.
    for name in ["tuesday", "monday", "wednesday"] {
        assert!(store.remove_snapshot(name).unwrap() && !store.remove_snapshot(name).unwrap());
        kept.remove(name);
        kept.iter().for_each(|(name, before)| assert_eq!(then(&store, name), *before, "{name}"));
        is_sound(&store);
        compact_all(&store);
        is_sound(&store);
    }
    through_all(store, &home, &|store| {
        assert_eq!((shown(store), store.snapshots().unwrap()), (last.clone(), Vec::new()));
    });
}

#[test]
fn the_longest_names_become_parts_of_tables_as_versions_too() {
    let sandbox = TempDir::new().unwrap();
    let home = sandbox.path().join("s");
    let store = Store::create(&home, &Plan::default()).unwrap();
    let longest = |byte: u8| Key::parse(vec![byte; LONGEST_KEY_BYTES]).unwrap();
    for byte in [b'a', b'b', b'c'] {
        store.put(&longest(byte), &file(), &[byte; 100]).unwrap();
    }
    store.set_attributes(&longest(b'a'), &Attributes { mode: 0o100_600, ..file() }).unwrap();
    let before = shown(&store);
    store.create_snapshot("before").unwrap();
    // The attributes alone, the record, and a tombstone.
    store.set_attributes(&longest(b'a'), &Attributes { mode: 0o100_640, ..file() }).unwrap();
    store.put(&longest(b'b'), &file(), b"other").unwrap();
    assert!(store.remove(&longest(b'c')).unwrap());
    let after = shown(&store);
    let store = through_all(store, &home, &|store| {
        assert!(shown(store) == after && then(store, "before") == before);
    });
    assert!(store.remove_snapshot("before").unwrap());
    compact_all(&store);
    is_sound(&store);
    assert!(shown(&store) == after);
}

#[test]
fn a_store_opened_at_a_snapshot_is_that_state_for_whatever_reads() {
    let sandbox = TempDir::new().unwrap();
    let (store, home) = store(&sandbox);
    let mut kept = BTreeMap::new();
    for name in ["monday", "tuesday"] {
        kept.insert(name, (shown(&store), loaded(&store)));
        store.create_snapshot(name).unwrap();
        match name {
            "monday" => change_all(&store),
            _ => assert!(store.remove_tree(&Key::root()).unwrap()),
        }
    }
    assert_ne!(kept["monday"], kept["tuesday"]);
    let open = |name: &str| Store::open_at(&home, name, &OpenOptions::default());
    let readers: Vec<(&str, Store)> = kept.keys().map(|&name| (name, open(name).unwrap())).collect();
    let look = |readers: &[(&str, Store)]| {
        for (name, reader) in readers {
            assert_eq!((shown(reader), loaded(reader)), kept[name], "{name}");
            assert!(!reader.refresh().unwrap());
        }
    };
    look(&readers);
    // What is written, compacted and removed meanwhile changes nothing for them.
    store.put(&key("d/file"), &file(), b"again").unwrap();
    compact_all(&store);
    look(&readers);
    assert!(store.remove_snapshot("monday").unwrap());
    compact_all(&store);
    look(&readers);
    drop((readers, store));
    look(&[("tuesday", open("tuesday").unwrap())]);
    for name in ["monday", "", "d"] {
        assert_eq!(open(name).unwrap_err().kind(), ErrorKind::NotFound, "{name}");
    }
    let error = open("tuesday").unwrap().put(&key("d/file"), &file(), b"").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReadOnly);
}

/// Sizes of everything that a load of the store reads.
fn loaded(store: &Store) -> Vec<(Option<String>, usize)> {
    let seen = std::sync::Mutex::new(Vec::new());
    let see = |object: Result<crate::LoadedObject<'_>>| {
        let object = object.unwrap();
        // An object with several names has none here.
        let key = object.key().unwrap().map(|key| key.to_string());
        seen.lock().unwrap().push((key, object.content().len()));
        true
    };
    store.load_with(&Key::root(), 1, see).unwrap();
    let mut seen = seen.into_inner().unwrap();
    seen.sort();
    seen
}

#[test]
fn what_a_snapshot_has_counts_once_and_goes_with_it() {
    let sandbox = TempDir::new().unwrap();
    let (store, _) = store(&sandbox);
    let live = |store: &Store| {
        let state = store.engine().view().state.clone();
        let records: u64 = state.segments.values().map(|row| row.live_bytes).sum();
        (records, state.extents.values().map(|row| row.live_bytes).sum::<u64>())
    };
    let on_disk = |store: &Store| store.status(false).unwrap().unit_bytes;
    compact_all(&store);
    let (records, units) = live(&store);
    store.create_snapshot("monday").unwrap();
    assert_eq!(live(&store), (records, units));
    // Another name for a large file: its units are those of the snapshot, wherever compaction moves them.
    store.rename(&key("d/large"), &key("d/renamed"), Existing::Refuse).unwrap();
    store.put(&key("d/gone"), &file(), &bytes(5, LARGE_BYTES)).unwrap();
    store.remove(&key("d/gone")).unwrap();
    compact_all(&store);
    assert_eq!(on_disk(&store), 2 * units, "they are counted for both, and there once");
    let files = |store: &Store| -> u64 {
        let listed = store.engine().extents.list(DeviceNumber(0)).unwrap();
        listed.values().sum()
    };
    assert!(files(&store) < units + (8 << 10), "{} for {units}", files(&store));
    assert_eq!(then(&store, "monday")["d/large"].2.len(), LARGE_BYTES);
    store.remove_snapshot("monday").unwrap();
    compact_all(&store);
    let (after, units_after) = live(&store);
    assert_eq!((units_after, shown(&store)["d/renamed"].2.len()), (units, LARGE_BYTES));
    assert!(after < records + 100, "{after} for {records}");
    is_sound(&store);
}

#[test]
fn a_snapshot_costs_what_changes_after_it() {
    let sandbox = TempDir::new().unwrap();
    let home = sandbox.path().join("s");
    let store = Store::create(&home, &Plan::default()).unwrap();
    let mut batch = store.batch(Durability::Batch);
    for number in 0..2000 {
        batch.put(&key(&format!("d/{number}")), &file(), b"before").unwrap();
    }
    batch.commit().unwrap();
    let versions = |store: &Store| {
        let snapshot = store.engine().snapshot();
        snapshot.scan_versions_from(&crate::format::index_key::first_superseded()).unwrap().count()
    };
    // Turn t changes files 7 t to 7 t + 9. The content of a file before turn t is needed if a snapshot exists between
    // that turn and the preceding one that changed it.
    let turns_of = |file: usize, end: usize| (0..end).filter(move |turn| (7 * turn..7 * turn + 10).contains(&file));
    let expected = |snapshots: usize, turns: usize| -> usize {
        let of_file = |file| {
            let before = std::iter::once(0).chain(turns_of(file, turns).map(|turn| turn + 1));
            turns_of(file, turns).zip(before).filter(|&(_, since)| since < snapshots).count()
        };
        (0..150).map(of_file).sum()
    };
    for turn in 0..20 {
        store.create_snapshot(&format!("{turn}")).unwrap();
        store.create_snapshot(&format!("{turn} again")).unwrap();
        assert_eq!(versions(&store), expected(turn, turn));
        for number in 0..10 {
            let name = key(&format!("d/{}", 7 * turn + number));
            // Twice: content in no snapshot is freed immediately.
            for content in [&b"between"[..], b"after"] {
                store.put(&name, &file(), content).unwrap();
            }
        }
    }
    for turn in (0..20).rev() {
        let snapshot = of(&store, &format!("{turn} again"));
        let mut buffer = crate::Buffer::default();
        for number in [0, 3, 6, 7, 9, 200] {
            let at = 7 * turn + number;
            let read = snapshot.read(&key(&format!("d/{at}")), &mut buffer).unwrap().unwrap();
            let was_changed = (0..turn).any(|before| (7 * before..7 * before + 10).contains(&at));
            assert_eq!(read.content, if was_changed { &b"after"[..] } else { b"before" }, "{turn} {number}");
        }
        // Of two with the same state one is enough.
        store.remove_snapshot(&format!("{turn}")).unwrap();
        assert_eq!(versions(&store), expected(turn + 1, 20));
        store.remove_snapshot(&format!("{turn} again")).unwrap();
        assert_eq!(versions(&store), expected(turn, 20));
    }
    is_sound(&store);
}

#[test]
fn names_of_snapshots_are_names_and_there_once() {
    let sandbox = TempDir::new().unwrap();
    let home = sandbox.path().join("s");
    let store = Store::create(&home, &Plan::default()).unwrap();
    store.create_snapshot("monday").unwrap();
    assert_eq!(store.create_snapshot("monday").unwrap_err().kind(), ErrorKind::Exists);
    for name in ["", ".", "a/b", "a\0b", &"x".repeat(70_000)] {
        assert_eq!(store.create_snapshot(name).unwrap_err().kind(), ErrorKind::Usage, "{name:.10}");
    }
    assert!(store.snapshot_named("tuesday").unwrap().is_none());
    drop(store);
    let reader = Store::open_read_only(&home).unwrap();
    assert_eq!(reader.create_snapshot("tuesday").unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(reader.remove_snapshot("monday").unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(reader.snapshots().unwrap().len(), 1);
}

#[test]
fn a_snapshot_that_the_last_release_lists_keeps_nothing_once_it_is_removed() {
    let sandbox = TempDir::new().unwrap();
    let home = sandbox.path().join("s");
    let store = Store::create(&home, &Plan::default()).unwrap();
    store.put(&key("f"), &file(), b"before").unwrap();
    store.put(&key("gone"), &file(), b"content").unwrap();
    store.remove(&key("gone")).unwrap();
    store.create_snapshot("monday").unwrap();
    compact_all(&store);
    assert!(store.remove_snapshot("monday").unwrap());
    let (index, old) = (home.join("index"), sandbox.path().join("old"));
    copy(&index, &old);
    store.put(&key("f"), &file(), b"after").unwrap();
    kill(store);
    std::fs::remove_dir_all(&index).unwrap();
    std::fs::rename(&old, &index).unwrap();
    let store = Store::open(&home).unwrap();
    assert_eq!(store.recovered().batches, 1);
    let snapshot = store.engine().snapshot();
    let versions = snapshot.scan_versions_from(&crate::format::index_key::first_superseded()).unwrap().count();
    assert_eq!((versions, store.get(&key("f")).unwrap().as_deref()), (0, Some(&b"after"[..])));
    is_sound(&store);
}

#[test]
fn a_rebuilt_index_keeps_only_objects_that_had_a_name_in_a_snapshot() {
    let sandbox = TempDir::new().unwrap();
    let home = sandbox.path().join("s");
    let store = Store::create(&home, &Plan::default()).unwrap();
    let two_names = |name: &str| [key(name), key(&format!("{name} again"))];
    for name in ["before", "in it"] {
        let [one, other] = two_names(name);
        store.put(&one, &file(), &bytes(5, LARGE_BYTES)).unwrap();
        store.hard_link(&one, &other).unwrap();
    }
    let remove = |name: &str| two_names(name).iter().for_each(|name| assert!(store.remove(name).unwrap()));
    remove("before");
    store.create_snapshot("monday").unwrap();
    let units = |store: &Store| store.engine().view().state.extents.values().map(|row| row.live_bytes).sum::<u64>();
    let of_one = units(&store);
    remove("in it");
    assert_eq!(units(&store), of_one);
    store.put(&key("other"), &file(), b"content").unwrap();
    drop(store);
    let store = rebuild_index(&home, &OpenOptions::default()).unwrap();
    assert_eq!(units(&store), of_one);
    assert_eq!(then(&store, "monday")["in it again"].2.len(), LARGE_BYTES);
    is_sound(&store);
}
