//! Trees of any size are removed while a snapshot has them: the index is then as after one change, whatever the number
//! of pieces and wherever the removal was interrupted.

use std::sync::{Arc, Mutex};

use rustix::io::Errno;

use super::*;
use crate::engine::EngineAccounts;
use crate::engine::early::PIECE;
use crate::engine::effects::{Effects, Nameless};
use crate::format::entry::Entry;
use crate::format::ids::ObjectNumber;
use crate::format::index_key::{ROOT, ROOT_KEY, entry_key, entry_of_key, is_superseded, superseded_key};
use crate::format::names::segment_path;
use crate::index::EARLY;
use crate::simulation::subject::{Simulated, geometry, home};
use crate::simulation::trial::Subject;
use crate::simulation::world::{Fault, World};

type Entries = BTreeMap<Vec<u8>, Entry>;

#[derive(Debug, Clone)]
enum Step {
    Put(usize, usize),
    Link(usize, usize),
    Snapshot,
    RemoveSnapshot,
    RemoveTree(usize),
    Compact,
}

/// The root, directories in it, and directories in these.
const DIRECTORIES: [&str; 7] = ["", "a", "b", "a/c", "a/d", "a/c/e", "b/f"];

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => (0..DIRECTORIES.len(), 0..9usize).prop_map(|(directory, name)| Step::Put(directory, name)),
        2 => (0..DIRECTORIES.len(), 0..9usize).prop_map(|(directory, name)| Step::Link(directory, name)),
        3 => Just(Step::Snapshot),
        1 => Just(Step::RemoveSnapshot),
        3 => (0..DIRECTORIES.len()).prop_map(Step::RemoveTree),
        1 => Just(Step::Compact),
    ]
}

/// All entries of the index.
fn entries(store: &Store) -> Entries {
    let snapshot = store.engine().snapshot();
    snapshot.scan_versions_from(&[]).unwrap().map(Result::unwrap).collect()
}

/// Directory `path` and all directories below it, by number.
fn below(entries: &Entries, path: &str) -> Vec<ObjectNumber> {
    let mut top = Some(ROOT);
    for name in path.split('/').filter(|name| !name.is_empty()) {
        let entry = top.and_then(|top| entries.get(&entry_key(top, name.as_bytes())));
        top = entry.filter(|entry| entry.kind == Kind::Directory).map(|entry| entry.number);
    }
    let mut all = Vec::from_iter(top);
    for at in 0.. {
        let Some(&directory) = all.get(at) else { break };
        let is_in = |key: &[u8]| key != ROOT_KEY && entry_of_key(key).is_some_and(|(of, _)| of == directory);
        let in_it = entries.iter().filter(|(key, entry)| is_in(key) && entry.kind == Kind::Directory);
        all.extend(in_it.map(|(_, entry)| entry.number));
    }
    all
}

/// The index after an atomic removal of a tree: without objects that have several names.
fn without_tree(store: &Store, before: &Entries, path: &str, id: u64) -> Entries {
    let directories = below(before, path);
    let goes = |key: &[u8], entry: &Entry| {
        let is_top = !path.is_empty() && entry.kind == Kind::Directory && directories.first() == Some(&entry.number);
        let of = entry_of_key(key).filter(|_| key != ROOT_KEY);
        !is_superseded(key) && (is_top || of.is_some_and(|(of, _)| directories.contains(&of)))
    };
    let state = store.engine().view().state.clone();
    let mut after = before.clone();
    for (key, entry) in before.iter().filter(|(key, entry)| goes(key, entry)) {
        after.remove(key);
        if state.keeps(entry.id, id) {
            after.insert(superseded_key(key, id), *entry);
        }
    }
    after
}

fn is_of_shared(key: &[u8], entry: &Entry) -> bool {
    entry.kind == Kind::Link || entry_of_key(key).is_none() && !is_superseded(key) || {
        let of = crate::format::index_key::superseded(key);
        of.is_some_and(|(of, _)| entry_of_key(&of).is_none())
    }
}

/// Entries of objects with one name: for one with several, an index that is rebuilt from the log knows only at the end
/// that its last name was removed.
fn of_one(entries: Entries) -> Entries {
    entries.into_iter().filter(|(key, entry)| !is_of_shared(key, entry)).collect()
}

fn remove_tree(store: &Store, path: &str) {
    let before = entries(store);
    store.remove_tree(&key(path)).unwrap();
    let id = store.engine().highest_id.load(std::sync::atomic::Ordering::Relaxed);
    let expected = without_tree(store, &before, path, id);
    assert_eq!(of_one(entries(store)), of_one(expected), "{path:?}");
    is_sound(store);
}

fn step(store: &Store, number: usize, step: &Step) {
    let path = |directory: usize, name: usize| key(&format!("{}/{name}", DIRECTORIES[directory]));
    match *step {
        Step::Put(directory, name) => store.put(&path(directory, name), &file(), &bytes(number as u64, 50)).unwrap(),
        Step::Link(directory, name) => {
            let from = store.walk(&Key::root()).unwrap().map(Result::unwrap).find(|one| one.entry.kind == Kind::File);
            if let Some(from) = from {
                // The name may exist, or the directory may not.
                let _ = store.hard_link(&from.key, &path(directory, name));
            }
        }
        Step::Snapshot => drop(store.create_snapshot(&format!("{number}")).unwrap()),
        Step::RemoveSnapshot => {
            if let Some(first) = store.snapshots().unwrap().first() {
                assert!(store.remove_snapshot(&String::from_utf8_lossy(&first.name)).unwrap());
            }
        }
        Step::RemoveTree(directory) => remove_tree(store, DIRECTORIES[directory]),
        Step::Compact => compact_all(store),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 400, ..ProptestConfig::default() })]

    #[test]
    fn a_removed_tree_leaves_what_one_change_would(steps in proptest::collection::vec(steps(), 20..120)) {
        let sandbox = TempDir::new().unwrap();
        let home = sandbox.path().join("s");
        let store = Store::create(&home, &Plan::default()).unwrap();
        for (number, one) in steps.iter().enumerate() {
            step(&store, number, one);
        }
        let before = entries(&store);
        prop_assert!(!store.engine().view().state.notes.contains_key(EARLY));
        drop(store);
        prop_assert_eq!(&entries(&Store::open(&home).unwrap()), &before);
        let store = rebuild_index(&home, &OpenOptions::default()).unwrap();
        prop_assert_eq!(of_one(entries(&store)), of_one(before));
        is_sound(&store);
    }
}

/// A store with `count` objects in a tree that a snapshot has.
fn filled(store: &Store, count: usize) -> BTreeMap<String, Shown> {
    let mut batch = store.batch(Durability::Batch);
    batch.put(&key("other"), &file(), b"other").unwrap();
    for number in 0..count {
        batch.put(&key(&format!("tree/{}/{number}", number % 3)), &file(), &bytes(number as u64, 40)).unwrap();
    }
    batch.commit().unwrap();
    store.create_snapshot("monday").unwrap();
    shown(store)
}

#[test]
fn a_large_tree_goes_in_pieces_and_nothing_of_it_waits_in_memory() {
    let sandbox = TempDir::new().unwrap();
    let store = Store::create(&sandbox.path().join("s"), &Plan::default()).unwrap();
    let before = filled(&store, 100 * PIECE);
    let version = store.engine().view().state.version;
    let mut batch = store.batch(Durability::None);
    assert!(batch.remove_tree(&key("tree")).unwrap());
    batch.commit().unwrap();
    assert!(store.engine().view().state.version >= version + 100);
    let pending = store.engine().writer().unwrap().pending.recent.len();
    assert!(pending < 2 * PIECE, "{pending} entries wait");
    assert_eq!(shown(&store).keys().collect::<Vec<_>>(), ["other"]);
    assert_eq!(then(&store, "monday"), before);
    is_sound(&store);
}

#[test]
fn a_crash_leaves_a_large_tree_or_its_removal() {
    for settings in [geometry(1, 0, 1, (1, 0)), geometry(2, 3, 2, (2, 1))] {
        let world = World::new(Simulated::devices(&settings), 7);
        let subject = Simulated::create(&settings, &world).unwrap();
        let store = subject.store();
        let before = filled(store, 40);
        let mut gone = before.clone();
        gone.retain(|path, _| path == "other");
        // Whether it was acknowledged, the number of crashes, and how many of them left pieces without the removal.
        let seen = Arc::new(Mutex::new((false, 0, 0)));
        let (seen_by, of, expected) = (Arc::clone(&seen), settings.clone(), (before.clone(), gone.clone()));
        world.observe(move |world, operation| {
            let mut seen = seen_by.lock().unwrap();
            seen.1 += 1;
            let is_kill = operation.is_multiple_of(2);
            let left = if is_kill { world.after_kill(operation) } else { world.after_crash(operation) };
            let reader = Simulated::open_as(&home(&of), &left, Access::Read).unwrap();
            let read = (shown(reader.store()), then(reader.store(), "monday"));
            let has_pieces = reader.store().engine().view().state.notes.contains_key(EARLY);
            drop(reader);
            if has_pieces && is_kill {
                // Without space for the index, they wait.
                let full = left.after_shutdown();
                (0..usize::from(of.copies)).for_each(|device| full.fill(device, 0));
                let subject = Simulated::open(&of, &full).unwrap();
                assert_eq!((shown(subject.store()), then(subject.store(), "monday")), read);
            }
            assert!(read.0 == expected.1 || read.0 == expected.0 && !seen.0, "before operation {operation}");
            assert_eq!(read.1, expected.0, "before operation {operation}");
            let subject = Simulated::open(&of, &left).unwrap();
            let store = subject.store();
            assert_eq!((shown(store), then(store, "monday")), read, "before operation {operation}");
            assert!(!store.engine().view().state.notes.contains_key(EARLY));
            let versions = entries(store).keys().filter(|key| is_superseded(key)).count();
            let is_gone = read.0 == expected.1;
            assert_eq!(versions, if is_gone { expected.0.len() - 1 } else { 0 }, "before operation {operation}");
            is_sound(store);
            seen.2 += u32::from(has_pieces && !is_gone);
            // The remains of one removal after a crash do not block another.
            assert_eq!(store.remove_tree(&key("tree")).unwrap(), !is_gone);
            assert_eq!((shown(store), then(store, "monday")), (expected.1.clone(), expected.0.clone()));
            is_sound(store);
        });
        store.remove_tree(&key("tree")).unwrap();
        seen.lock().unwrap().0 = true;
        store.create_snapshot("tuesday").unwrap();
        world.stop_observing();
        let (_, crashes, pieces) = *seen.lock().unwrap();
        assert!(crashes > 20 && pieces > 5, "{crashes} crashes, {pieces} with pieces");
        assert_eq!((shown(store), then(store, "monday")), (gone, before));
    }
}

#[test]
fn a_full_device_keeps_no_tree_from_being_removed() {
    let settings = geometry(1, 0, 1, (1, 0));
    let (mut removed, mut pieces) = (0, 0);
    for blocks in 0..16 {
        let world = World::new(Simulated::devices(&settings), blocks);
        let mut subject = Simulated::create(&settings, &world).unwrap();
        let before = filled(subject.store(), 60);
        world.fill(0, blocks);
        let store = subject.store();
        let outcome = store.remove_tree(&key("tree")).map_err(|error| error.kind());
        let is_gone = shown(store).keys().eq(["other"]);
        match outcome {
            Ok(is_there) => assert!(is_there && is_gone),
            // The removal may be in the log, and there is no room to write recent changes to a table.
            Err(kind) => assert!(kind == ErrorKind::NoSpace && (is_gone || shown(store) == before)),
        }
        removed += u32::from(is_gone);
        pieces += u32::from(store.engine().view().state.notes.contains_key(EARLY));
        assert_eq!(then(store, "monday"), before);
        world.device(0).set_endless();
        // Another removal clears the remains of the first.
        store.remove_tree(&key("tree/0")).unwrap();
        store.remove_tree(&key("tree")).unwrap();
        for _ in 0..2 {
            let store = subject.store();
            assert_eq!(shown(store).keys().collect::<Vec<_>>(), ["other"]);
            assert_eq!(then(store, "monday"), before);
            is_sound(store);
            subject = Simulated::open(&settings, &world.after_kill(1)).unwrap();
        }
    }
    assert!(removed > 2 && pieces > 0, "{removed} removed, {pieces} left pieces");
}

/// The device is lost before the removal is in the log: an epoch begins, with a batch in the segment that was active,
/// and the removal goes to the next one.
#[test]
fn a_device_that_fails_before_a_tree_is_removed_leaves_true_accounts() {
    const RECORD_BYTES: u64 = 1800;
    let settings = geometry(2, 3, 2, (2, 1));
    let world = World::new(Simulated::devices(&settings), 1);
    let subject = Simulated::create(&settings, &world).unwrap();
    let store = subject.store();
    let mut batch = store.batch(Durability::Batch);
    for number in 0..RECORD_BYTES / 6 {
        batch.directory(&key(&format!("tree/{number}")), &Attributes::of_directory(Time::default())).unwrap();
    }
    batch.commit().unwrap();
    store.create_snapshot("monday").unwrap();
    let put = |path: &str, content: &[u8]| {
        let mut batch = store.batch(Durability::None);
        batch.put(&key(path), &file(), content).unwrap();
        batch.commit().unwrap();
    };
    put("large", &bytes(1, 40_000));
    let end = || store.engine().writer().unwrap().position;
    // A batch without records fits, and the removal does not.
    for number in 0.. {
        if end().offset.0 + RECORD_BYTES - 400 > settings.segment_bytes {
            break;
        }
        put(&format!("tree/f{number}"), &bytes(number, 600));
    }
    let before = end().segment;
    world.fail(Fault { operation: 0, errno: Errno::IO, is_lasting: true, device: Some(2) });
    assert!(store.remove_tree(&key("tree")).unwrap());
    assert_eq!(subject.out_of_service(), [DeviceNumber(2)]);
    assert!(end().segment > before, "the removal is in the same segment");
    let sizes: BTreeMap<String, u64> = world.device(0).files().into_iter().collect();
    for row in store.engine().view().state.segments.values() {
        assert_eq!(Some(&row.size_bytes), sizes.get(&segment_path(row.id())), "segment {}", row.number);
    }
}

/// Versions that are inserted early may fill a table, with everything that was in memory.
#[test]
fn a_removal_hides_what_became_a_table_since_its_accounts_were_taken() {
    let sandbox = TempDir::new().unwrap();
    let store = Store::create(&sandbox.path().join("s"), &Plan::default()).unwrap();
    store.put(&key("a"), &file(), b"content").unwrap();
    let entry = store.entry(&key("a")).unwrap().unwrap().entry;
    let engine = store.engine();
    let accounts = EngineAccounts::new(engine);
    assert!(accounts.snapshot.tables().is_empty());
    engine.make_table().unwrap();
    let mut effects = Effects::new(&accounts, Nameless::Go);
    assert!(effects.remove(&entry_key(ROOT, b"a").into(), entry.id + 1, entry.location).unwrap());
    let change = effects.finish(None);
    assert!(change.forget.is_empty() && change.recent.len() == 1, "it would be there again");
}
