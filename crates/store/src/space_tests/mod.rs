//! Space of a store from the outside: loading, compaction, many objects in one call, status; the content equals that of
//! a model at all times, and a rebuilt index agrees.

mod aligned;
mod extents;
mod log;
mod pinned;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use proptest::prelude::*;
use tempfile::TempDir;

use super::tests::{ALL, bytes, file, key};
use super::*;
use crate::OpenOptions;
use crate::Progress;
use crate::engine::locking::Access;
use crate::engine::open::open_here;
use crate::engine::pace::Pace;
use crate::error::ErrorKind;
use crate::format::entry::Location;
use crate::format::ids::LogOffset;
use crate::format::names::SEGMENTS;
use crate::maintain::moving::MoveTarget;

type Model = BTreeMap<String, Vec<u8>>;

fn small_segments() -> Plan {
    Plan { segment_bytes: 1 << 20, ..Plan::default() }
}

fn compact(store: &Store, options: &CompactOptions) -> Compacted {
    store.compact(options, &Progress::default()).unwrap()
}

fn is_sound(store: &Store) {
    let options = CheckOptions { is_deep: true, ..CheckOptions::default() };
    let mut problems = Vec::new();
    store.check(options, &mut |problem| problems.push(problem.to_string()), &Progress::default()).unwrap();
    assert!(problems.is_empty(), "{problems:#?}");
}

/// All names with their content, by loading.
fn loaded(store: &Store, top: &Key) -> Model {
    let (mut found, mut names, mut shared) = (Model::new(), Vec::new(), BTreeMap::new());
    for piece in store.load(top).unwrap() {
        for object in piece.unwrap().objects() {
            let Some(key) = object.key().unwrap() else {
                shared.insert(object.shared().unwrap(), object.content().to_vec());
                continue;
            };
            match object.kind() {
                Kind::Link => names.push((key.to_string(), object.shared().unwrap())),
                Kind::Directory => {}
                _ => {
                    assert_eq!(object.attributes().unwrap().mtime, file().mtime);
                    let content = found.entry(key.to_string()).or_default();
                    let end = object.offset() as usize + object.content().len();
                    content.resize(content.len().max(end), 0);
                    content[object.offset() as usize..end].copy_from_slice(object.content());
                    assert!(end as u64 <= object.content_bytes());
                }
            }
        }
    }
    found.extend(names.into_iter().map(|(name, number)| (name, shared[&number].clone())));
    found
}

fn walked(store: &Store) -> Model {
    let mut found = Model::new();
    for listed in store.walk(&Key::root()).unwrap() {
        let listed = listed.unwrap();
        if listed.entry.kind != Kind::Directory {
            found.insert(listed.key.to_string(), store.get(&listed.key).unwrap().unwrap());
        }
    }
    found
}

fn segment_files(home: &Path) -> Vec<u64> {
    let mut sizes: Vec<u64> =
        std::fs::read_dir(home.join(SEGMENTS)).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).collect();
    sizes.sort_unstable();
    sizes
}

fn segments(home: &Path) -> Vec<std::path::PathBuf> {
    let mut found: Vec<_> =
        std::fs::read_dir(home.join(SEGMENTS)).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.sort();
    found
}

/// The index and its accounts: entries, accounts of segments, and live units; `lowest_id` is a bound, and not compared.
type Indexed = (Vec<(Vec<u8>, Entry)>, Vec<(u64, u64, u64)>, Vec<u64>);

fn index_of(store: &Store) -> Indexed {
    let view = store.engine().view();
    let mut entries = Vec::new();
    let mut scan = view.snapshot().scan(std::ops::Bound::Unbounded, std::ops::Bound::Unbounded).unwrap();
    while let Some((key, entry)) = scan.next_entry().unwrap() {
        entries.push((key.to_vec(), *entry));
    }
    let rows = view.state.segments.values().filter(|row| row.live_records > 0);
    let segments = rows.map(|row| (row.number.0, row.live_records, row.live_bytes)).collect();
    (entries, segments, view.state.extents.values().map(|row| row.live_bytes).collect())
}

#[test]
fn everything_is_loaded_whatever_the_order_on_disk() {
    let sandbox = TempDir::new().unwrap();
    for compression in [Compression::None, Compression::Zstd(3)] {
        let home = sandbox.path().join(format!("{compression:?}"));
        let store = Store::create(&home, &Plan { compression, ..small_segments() }).unwrap();
        let mut model = Model::new();
        let mut batch = store.batch(Durability::None);
        for at in 0..2000u64 {
            // An order other than that of keys.
            let path = format!("d{}/f{:05}", at % 7, at * 7919 % 2000);
            let size = if at % 100 == 0 { 200_000 } else { (at * 37 % 3000) as usize };
            let content = vec![at as u8; size];
            batch.put(&key(&path), &file(), &content).unwrap();
            model.insert(path, content);
        }
        let shared = batch.shared(&file(), &mut &b"one file"[..], None).unwrap();
        for name in ["d0/first", "d1/second", "d1/third"] {
            batch.link(&key(name), shared).unwrap();
            model.insert(name.to_owned(), b"one file".to_vec());
        }
        batch.commit().unwrap();
        store.sync().unwrap();
        assert!(loaded(&store, &Key::root()) == model);
        let below: Model =
            model.iter().filter(|(path, _)| path.starts_with("d1/")).map(|(a, b)| (a.clone(), b.clone())).collect();
        assert!(loaded(&store, &key("d1")) == below);
        assert_eq!(loaded(&store, &key("d1/third")), Model::from([("d1/third".to_owned(), b"one file".to_vec())]));
        assert_eq!(store.load(&key("d1/absent")).unwrap_err().kind(), ErrorKind::NotFound);
        let (count, total) = (AtomicU64::new(0), AtomicU64::new(0));
        let counting = |object: Result<LoadedObject<'_>>| {
            total.fetch_add(object.unwrap().content().len() as u64, Ordering::Relaxed);
            count.fetch_add(1, Ordering::Relaxed) < 100
        };
        store.load_with(&Key::root(), 3, counting).unwrap();
        assert!((100..200).contains(&count.load(Ordering::Relaxed)), "it ends when it is told to");
        // Dropped early, it ends too.
        drop(store.load(&Key::root()).unwrap().next());
        let mut keys: Vec<Key> = model.keys().map(|path| key(path)).collect();
        keys.push(key("nothing"));
        let got = Mutex::new(vec![None; keys.len()]);
        store.get_many(&keys, 4, |at, object| {
            let object = object.unwrap().map(|object| object.content.to_vec());
            assert!(got.lock().unwrap()[at].replace(object).is_none(), "once each");
        });
        let got = got.into_inner().unwrap();
        assert_eq!(got[keys.len() - 1], Some(None));
        assert!(got.into_iter().flatten().flatten().eq(model.into_values()));
    }
}

#[test]
fn compaction_gives_back_and_restores_order() {
    let sandbox = TempDir::new().unwrap();
    let home = sandbox.path().join("s");
    let store = Store::create(&home, &small_segments()).unwrap();
    let mut model = Model::new();
    for round in 0..4u64 {
        let mut batch = store.batch(Durability::None);
        for at in 0..300u64 {
            let path = format!("d{}/f{at:04}", at % 3);
            let content = bytes(round * 1000 + at, 8000);
            batch.put(&key(&path), &file(), &content).unwrap();
            model.insert(path, content);
        }
        batch.put(&key("large"), &file(), &bytes(round, 300_000)).unwrap();
        batch.commit().unwrap();
    }
    model.insert("large".to_owned(), bytes(3, 300_000));
    store.sync().unwrap();
    let before: u64 = segment_files(&home).iter().sum();
    let plan = store.plan_compaction(&CompactOptions::default()).unwrap();
    assert!(!plan.segments.is_empty() && plan.gained_bytes() > before / 2, "{plan:?}");
    let done = compact(&store, &CompactOptions::default());
    assert_eq!((done.is_interrupted, done.waiting_bytes, done.segments), (false, 0, plan.segments.len() as u64));
    assert!(done.gained_bytes as u64 >= plan.gained_bytes() * 9 / 10);
    assert!(segment_files(&home).iter().sum::<u64>() < before / 3);
    assert!(walked(&store) == model);
    compact(&store, &ALL);
    assert!(walked(&store) == model && loaded(&store, &Key::root()) == model);
    // In key order, with adjacent records.
    let (entries, ..) = index_of(&store);
    let places: Vec<Location> = entries.iter().map(|(_, entry)| entry.location).collect();
    let behind = places
        .windows(2)
        .filter(|two| two[1].segment == two[0].segment && two[1].offset == two[0].offset + two[0].record_bytes);
    assert!(behind.count() > places.len() * 9 / 10);
    let nothing = store
        .plan_compaction(&CompactOptions { choice: Choice::DeadOrDisordered(30), ..CompactOptions::default() })
        .unwrap();
    assert_eq!(nothing.segments, []);
    drop(store);
    let before = index_of(&Store::open_read_only(&home).unwrap());
    drop(open_here(&home, Access::RebuildIndex, &OpenOptions::default()).unwrap());
    let store = Store::open(&home).unwrap();
    assert!(index_of(&store) == before);
    assert!(walked(&store) == model);
}

#[test]
fn an_emptied_store_is_small_and_goes_on() {
    let sandbox = TempDir::new().unwrap();
    let home = sandbox.path().join("s");
    let store = Store::create(&home, &small_segments()).unwrap();
    for at in 0..30 {
        store.put(&key(&format!("f{at}")), &file(), &bytes(at, 100_000)).unwrap();
    }
    store.remove_tree(&Key::root()).unwrap();
    compact(&store, &ALL);
    assert!(segment_files(&home).iter().sum::<u64>() < 2000, "{:?}", segment_files(&home));
    drop(store);
    for access in [Access::Write, Access::RebuildIndex, Access::Write] {
        drop(open_here(&home, access, &OpenOptions::default()).unwrap());
    }
    let store = Store::open(&home).unwrap();
    assert_eq!(walked(&store), Model::new());
    store.put(&key("again"), &file(), b"content").unwrap();
    drop(store);
    assert_eq!(Store::open(&home).unwrap().get(&key("again")).unwrap().unwrap(), b"content");
}

#[test]
fn removals_stay_while_older_records_do() {
    let sandbox = TempDir::new().unwrap();
    let home = sandbox.path().join("s");
    let store = Store::create(&home, &small_segments()).unwrap();
    // A segment that is mostly live, with one record that will be dead.
    store.put(&key("victim"), &file(), &bytes(1, 10_000)).unwrap();
    for at in 0..16 {
        store.put(&key(&format!("stays{at}")), &file(), &bytes(at, 60_000)).unwrap();
    }
    // Another one that will be entirely dead except for the removal.
    for at in 0..17 {
        store.put(&key(&format!("goes{at}")), &file(), &bytes(at, 60_000)).unwrap();
    }
    store.remove(&key("victim")).unwrap();
    for at in 0..17 {
        store.remove(&key(&format!("goes{at}"))).unwrap();
    }
    let done = compact(&store, &CompactOptions::default());
    assert!(done.kept_removals > 0 && done.segments > 0, "{done:?}");
    drop(store);
    drop(open_here(&home, Access::RebuildIndex, &OpenOptions::default()).unwrap());
    let store = Store::open(&home).unwrap();
    assert_eq!(store.get(&key("victim")).unwrap(), None, "it must not come back");
    assert_eq!(walked(&store).len(), 16);
    // When everything is rewritten, nothing needs them any more.
    assert_eq!(compact(&store, &ALL).kept_removals, 0);
    drop(store);
    drop(open_here(&home, Access::RebuildIndex, &OpenOptions::default()).unwrap());
    assert_eq!(walked(&Store::open(&home).unwrap()).len(), 16);
}

#[test]
fn compaction_can_be_ended_early_and_goes_on_later() {
    let sandbox = TempDir::new().unwrap();
    let home = sandbox.path().join("s");
    let store = Store::create(&home, &Plan { segment_bytes: 16 << 20, ..Plan::default() }).unwrap();
    let mut model = Model::new();
    let mut batch = store.batch(Durability::None);
    for at in 0..800u64 {
        let path = format!("f{at:04}");
        let content = bytes(at, 60_000);
        batch.put(&key(&path), &file(), &content).unwrap();
        model.insert(path, content);
    }
    batch.commit().unwrap();
    let progress = Progress::observed(|progress| {
        if progress.snapshot().bytes >= 20 << 20 {
            progress.stop();
        }
    });
    let done = store.compact(&ALL, &progress).unwrap();
    assert!(done.is_interrupted && (1..800).contains(&done.moved_records), "{done:?}");
    assert!(walked(&store) == model);
    drop(store);
    drop(open_here(&home, Access::RebuildIndex, &OpenOptions::default()).unwrap());
    let store = Store::open(&home).unwrap();
    assert!(walked(&store) == model);
    let done = compact(&store, &ALL);
    assert!(!done.is_interrupted && walked(&store) == model);
}

#[test]
fn a_segment_whose_account_is_too_low_stays_even_if_moving_ends_early() {
    let sandbox = TempDir::new().unwrap();
    let store = Store::create(&sandbox.path().join("s"), &small_segments()).unwrap();
    let mut batch = store.batch(Durability::None);
    for at in 0..160u64 {
        batch.put(&key(&format!("f{at:04}")), &file(), &bytes(at, 60_000)).unwrap();
    }
    batch.commit().unwrap();
    store.sync().unwrap();
    let before = walked(&store);
    let mut state = store.engine().view().state.clone();
    let rows = std::sync::Arc::make_mut(&mut state.segments);
    // Not the end of the log, which is not freed anyway.
    let last = *rows.keys().rev().nth(1).unwrap();
    let row = rows.get_mut(&last).unwrap();
    assert!(row.live_records > 0);
    (row.live_records, row.live_bytes) = (0, 0);
    store.engine().set_state(state).unwrap();
    let progress = Progress::observed(|progress| {
        if progress.snapshot().bytes > 0 {
            progress.stop();
        }
    });
    let chosen = store.engine().view().state.segments.keys().copied().collect();
    let mut pace = Pace::new(None, &progress);
    let done = store.engine().move_segments(&chosen, MoveTarget::SameClass(Class::Fast), &mut pace).unwrap();
    assert!(done.is_interrupted && done.records > 0, "{done:?}");
    assert!(!done.freed_segments.contains(&last), "{done:?}");
    assert!(walked(&store) == before);
}

#[test]
fn readers_go_on_while_everything_moves() {
    let sandbox = TempDir::new().unwrap();
    let home = sandbox.path().join("s");
    let store = Store::create(&home, &small_segments()).unwrap();
    let mut model = Model::new();
    let mut batch = store.batch(Durability::None);
    for at in 0..400u64 {
        let path = format!("d{}/f{at:04}", at % 5);
        let content = bytes(at, if at % 50 == 0 { 200_000 } else { 5000 });
        batch.put(&key(&path), &file(), &content).unwrap();
        model.insert(path, content);
    }
    batch.commit().unwrap();
    store.sync().unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let read = |store: &Store| {
            let mut times = 0;
            while !is_over.load(Ordering::Relaxed) || times == 0 {
                assert!(walked(store) == model);
                assert!(loaded(store, &Key::root()) == model);
                times += 1;
            }
        };
        let reader = Store::open_read_only(&home).unwrap();
        let same = store.clone();
        let readers = [scope.spawn(move || read(&reader)), scope.spawn(move || read(&same))];
        for _ in 0..12 {
            compact(&store, &CompactOptions { is_alone: false, ..ALL });
        }
        is_over.store(true, Ordering::Relaxed);
        for reader in readers {
            reader.join().unwrap();
        }
    });
    // The next compaction frees what only the last reader needed.
    compact(&store, &CompactOptions::default());
    assert_eq!(store.status(false).unwrap().waiting_bytes, 0);
    assert!(segment_files(&home).iter().sum::<u64>() < 8 << 20);
}

#[test]
fn what_a_reader_needs_is_given_back_after_it() {
    let sandbox = TempDir::new().unwrap();
    let home = sandbox.path().join("s");
    let store = Store::create(&home, &small_segments()).unwrap();
    let mut batch = store.batch(Durability::Batch);
    for at in 0..600 {
        batch.put(&key(&format!("f{at}")), &file(), &bytes(at, 60_000)).unwrap();
    }
    batch.commit().unwrap();
    let reader = Store::open_read_only(&home).unwrap();
    let mut load = reader.load(&Key::root()).unwrap();
    let first = load.next().unwrap().unwrap();
    let done = compact(&store, &ALL);
    assert!(done.waiting_bytes > 30 << 20, "{done:?}");
    drop(first);
    assert!(load.all(|piece| piece.is_ok()), "everything of the old state is still there");
    drop(load);
    let done = compact(&store, &CompactOptions::default());
    assert_eq!(done.waiting_bytes, 0);
    assert!(segment_files(&home).iter().sum::<u64>() < 40 << 20);
}

#[test]
fn status_counts_what_is_there() {
    let sandbox = TempDir::new().unwrap();
    let home = sandbox.path().join("s");
    let fast = vec![sandbox.path().join("fast0"), sandbox.path().join("fast1")];
    let slow = (0..4).map(|at| sandbox.path().join(format!("slow{at}"))).collect();
    // Records do not overflow, however full this file system is.
    let plan = Plan { fast, slow, watermarks_percent: (99, 98), ..small_segments() };
    let store = Store::create(&home, &plan).unwrap();
    store.put(&key("d/small"), &file(), &bytes(1, 10_000)).unwrap();
    store.put(&key("d/large"), &file(), &bytes(1, 1_000_000)).unwrap();
    store.put(&key("d/gone"), &file(), &bytes(1, 10_000)).unwrap();
    store.remove(&key("d/gone")).unwrap();
    let status = store.status(true).unwrap();
    let census = Census {
        files: 2,
        large_files: 1,
        directories: 1,
        size_bytes: 1_010_000,
        large_size_bytes: 1_000_000,
        ..Census::default()
    };
    assert_eq!(status.census, Some(census));
    assert_eq!((status.live_records, status.dead_records, status.segments), (3, 2, 1));
    assert!(status.live_bytes > 10_000 && status.dead_bytes > 10_000 && status.overflowed_bytes == 0);
    assert!(status.unit_bytes > 1_200_000, "three data units and parity");
    assert_eq!(status.devices.iter().map(|device| device.unit_bytes).sum::<u64>(), status.unit_bytes);
    assert_eq!(status.devices[0].segment_bytes, status.devices[1].segment_bytes);
    assert_eq!((status.devices[2].segment_bytes, status.latched.as_ref(), status.has_writer), (0, None, true));
    assert!(status.index_bytes_per_object().unwrap() > 0.0 && !status.redundancy.is_empty());
    drop(store);
    assert!(!Store::open_read_only(&home).unwrap().status(false).unwrap().has_writer);
}

/// An operation on a store.
#[derive(Debug, Clone)]
enum Deed {
    Put(usize, usize),
    Link(usize, usize),
    Remove(usize),
    RemoveTree(usize),
    Compact(bool),
    EndedEarly,
    Reopen,
    RebuildIndex,
}

fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        10 => (0..24usize, 0..6usize).prop_map(|(name, size)| Deed::Put(name, size)),
        2 => (0..24usize, 0..24usize).prop_map(|(name, other)| Deed::Link(name, other)),
        4 => (0..24usize).prop_map(Deed::Remove),
        1 => (0..5usize).prop_map(Deed::RemoveTree),
        2 => any::<bool>().prop_map(Deed::Compact),
        1 => Just(Deed::EndedEarly),
        1 => Just(Deed::Reopen),
        1 => Just(Deed::RebuildIndex),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]
    #[test]
    fn compaction_changes_nothing_but_places(deeds in proptest::collection::vec(deed(), 1..80)) {
        const SIZES: [usize; 6] = [0, 10, 5000, 40_000, 70_000, 400_000];
        let sandbox = TempDir::new().unwrap();
        let home = sandbox.path().join("s");
        let mut store = Store::create(&home, &small_segments()).unwrap();
        let mut model = Model::new();
        let path_of = |name: usize| format!("d{}/f{name}", name % 4);
        for (at, deed) in deeds.into_iter().enumerate() {
            match deed {
                Deed::Put(name, size) => {
                    let content = bytes(at as u64, SIZES[size]);
                    store.put(&key(&path_of(name)), &file(), &content).unwrap();
                    model.insert(path_of(name), content);
                }
                Deed::Link(name, other) => {
                    let content = bytes(at as u64, 3000);
                    let mut batch = store.batch(Durability::Batch);
                    let shared = batch.shared(&file(), &mut &content[..], None).unwrap();
                    for name in [name, other] {
                        batch.link(&key(&path_of(name)), shared).unwrap();
                        model.insert(path_of(name), content.clone());
                    }
                    batch.commit().unwrap();
                }
                Deed::Remove(name) => {
                    prop_assert_eq!(store.remove(&key(&path_of(name))).unwrap(), model.remove(&path_of(name)).is_some());
                }
                Deed::RemoveTree(directory) => {
                    let top = if directory == 4 { Key::root() } else { key(&format!("d{directory}")) };
                    store.remove_tree(&top).unwrap();
                    model.retain(|path, _| directory < 4 && !path.starts_with(&format!("d{directory}/")));
                }
                Deed::Compact(all) => {
                    let options = if all { ALL } else { CompactOptions { is_alone: true, ..CompactOptions::default() } };
                    compact(&store, &options);
                }
                Deed::EndedEarly => {
                    let stopped = Progress::default();
                    stopped.stop();
                    store.compact(&ALL, &stopped).unwrap();
                }
                Deed::Reopen => {
                    drop(store);
                    store = Store::open(&home).unwrap();
                }
                Deed::RebuildIndex => {
                    drop(store);
                    drop(open_here(&home, Access::RebuildIndex, &OpenOptions::default()).unwrap());
                    store = Store::open(&home).unwrap();
                }
            }
        }
        prop_assert!(walked(&store) == model);
        prop_assert!(loaded(&store, &Key::root()) == model);
        store.sync().unwrap();
        let before = index_of(&store);
        drop(store);
        drop(open_here(&home, Access::RebuildIndex, &OpenOptions::default()).unwrap());
        let store = Store::open(&home).unwrap();
        prop_assert!(walked(&store) == model);
        let after = index_of(&store);
        prop_assert_eq!(after.0, before.0);
        prop_assert_eq!(after.1, before.1);
        prop_assert_eq!(after.2.iter().sum::<u64>(), before.2.iter().sum::<u64>());
    }
}
