//! Historical versions from the outside: what the segments still have of a name, and what is left after compaction, on
//! damaged and missing devices, and behind the end of the log.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::names::{LARGE_BYTES, is_sound};
use super::{bytes, file, key};
use crate::devices::device::Device;
use crate::error::ErrorKind;
use crate::format::ids::ObjectNumber;
use crate::format::index_key::ROOT;
use crate::format::names::SEGMENTS;
use crate::simulation::subject::{Simulated, geometry};
use crate::simulation::trial::Subject;
use crate::simulation::world::World;
use crate::{
    Buffer, Choice, CompactOptions, Durability, Existing, Kind, OpenOptions, Plan, Progress, Removed, Store, Version,
    VersionContent, Versions, rebuild_index,
};

pub(super) fn versions(store: &Store, path: &str) -> Versions {
    store.versions(&key(path), &Progress::default()).unwrap()
}

fn read(found: &Versions, version: &Version) -> Vec<u8> {
    found.read(version.entry.id, &mut Buffer::default()).unwrap().content.to_vec()
}

/// The versions of a key in words, newest first; the current one has a star.
pub(super) fn shown(store: &Store, path: &str) -> Vec<String> {
    let found = versions(store, path);
    assert!(found.is_complete && found.damage.is_empty(), "{:?}", found.damage);
    assert!(found.versions.windows(2).all(|pair| pair[0].entry.id > pair[1].entry.id));
    words(&found)
}

fn words(found: &Versions) -> Vec<String> {
    let words = |version: &Version| {
        let what = match (&version.removed, version.entry.kind, version.content) {
            (Some(Removed::Renamed { name, .. }), ..) => format!("to {}", String::from_utf8_lossy(name)),
            (Some(Removed::Tree), ..) => "removed with a tree".to_owned(),
            (Some(Removed::Name), ..) => "removed".to_owned(),
            (None, Kind::Link, _) => "name".to_owned(),
            (None, Kind::Directory, _) => "directory".to_owned(),
            (None, _, VersionContent::Present) => {
                let content = read(found, version);
                assert_eq!(content.len() as u64, version.entry.size_bytes);
                String::from_utf8_lossy(&content[..content.len().min(8)]).into_owned()
            }
            (None, _, content) => format!("{content:?}").to_lowercase(),
        };
        format!("{what}{}", if version.is_current { "*" } else { "" })
    };
    found.versions.iter().map(words).collect()
}

fn compact_all(store: &Store) {
    let all = CompactOptions { choice: Choice::All, is_alone: true, ..CompactOptions::default() };
    store.compact(&all, &Progress::default()).unwrap();
}

fn new_store() -> (TempDir, PathBuf, Store) {
    let sandbox = TempDir::new().unwrap();
    let home = sandbox.path().join("s");
    let store = Store::create(&home, &Plan::default()).unwrap();
    (sandbox, home, store)
}

#[test]
fn overwrites_removals_and_new_beginnings_are_listed_newest_first() {
    let (_sandbox, home, store) = new_store();
    for content in ["one", "two", "three"] {
        store.put(&key("d/f"), &file(), content.as_bytes()).unwrap();
        store.put(&key("d/other"), &file(), b"noise").unwrap();
        store.put(&key("f"), &file(), b"the same name elsewhere").unwrap();
    }
    assert_eq!(shown(&store, "d/f"), ["three*", "two", "one"]);
    store.remove(&key("d/f")).unwrap();
    assert_eq!(shown(&store, "d/f"), ["removed*", "three", "two", "one"]);
    store.put(&key("d/f"), &file(), b"four").unwrap();
    let all = ["four*", "removed", "three", "two", "one"];
    assert_eq!(shown(&store, "d/f"), all);
    let found = versions(&store, "d/f");
    assert!(found.versions.iter().all(|version| version.written.is_some()), "{found:?}");
    assert!(found.versions.windows(2).all(|pair| pair[0].written >= pair[1].written));
    assert_ne!(found.versions[0].entry.number, found.versions[2].entry.number, "it is another object");
    assert_eq!(found.versions[2].entry.number, found.versions[4].entry.number);
    assert_eq!(shown(&store, "d").len(), 1);

    // Beside the writer, after a clean end, and from the log alone.
    assert_eq!(shown(&Store::open_read_only(&home).unwrap(), "d/f"), all);
    drop(found);
    drop(store);
    assert_eq!(shown(&Store::open_read_only(&home).unwrap(), "d/f"), all);
    let store = rebuild_index(&home, &OpenOptions::default()).unwrap();
    assert_eq!(shown(&store, "d/f"), all);

    compact_all(&store);
    assert_eq!(shown(&store, "d/f"), ["four*"]);
}

#[test]
fn what_was_renamed_away_says_where_to() {
    let (_sandbox, _, store) = new_store();
    store.put(&key("a"), &file(), b"content").unwrap();
    store.rename(&key("a"), &key("d/b"), Existing::Refuse).unwrap_err();
    store.put(&key("d/x"), &file(), b"").unwrap();
    store.rename(&key("a"), &key("d/b"), Existing::Refuse).unwrap();
    let directory = store.entry(&key("d")).unwrap().unwrap().entry.number;
    let to_b = Removed::Renamed { directory, name: b"b".to_vec() };
    assert_eq!(versions(&store, "a").versions[0].removed, Some(to_b));
    store.rename(&key("d/b"), &key("a"), Existing::Refuse).unwrap();
    assert_eq!(shown(&store, "a"), ["content*", "to b", "content"]);
    assert_eq!(shown(&store, "d/b"), ["to a*", "content"]);
    let back = Removed::Renamed { directory: ROOT, name: b"a".to_vec() };
    assert_eq!(versions(&store, "d/b").versions[0].removed, Some(back));

    // Another object with a record next to a removal is not where it went.
    let mut batch = store.batch(Durability::Batch);
    batch.put(&key("neighbour"), &file(), b"neighbour").unwrap();
    batch.remove(&key("a")).unwrap();
    batch.commit().unwrap();
    assert_eq!(shown(&store, "a")[0], "removed*");
    // A name that another object takes in the same moment.
    store.put(&key("a"), &file(), b"A").unwrap();
    store.put(&key("b"), &file(), b"B").unwrap();
    store.exchange(&key("a"), &key("b")).unwrap();
    assert_eq!(shown(&store, "a")[..2], ["B*", "A"]);
}

#[test]
fn a_removed_tree_ends_its_own_name_and_those_in_the_root() {
    let (_sandbox, _, store) = new_store();
    store.put(&key("d/f"), &file(), b"below").unwrap();
    store.put(&key("f"), &file(), b"content").unwrap();
    store.remove_tree(&key("d")).unwrap();
    assert_eq!(shown(&store, "d"), ["removed with a tree*", "directory"]);
    assert_eq!(shown(&store, "f"), ["content*"]);
    let error = store.versions(&key("d/f"), &Progress::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    store.remove_tree(&crate::Key::root()).unwrap();
    assert_eq!(shown(&store, "f"), ["removed with a tree*", "content"]);
    assert_eq!(versions(&store, "never").versions.len(), 1, "the tree of the root");
    let root = store.versions(&crate::Key::root(), &Progress::default()).unwrap();
    assert!(root.versions.is_empty() && root.directory == ObjectNumber::NONE);
}

#[test]
fn content_of_a_file_with_several_names_belongs_to_a_name_while_it_leads_there() {
    let (_sandbox, _, store) = new_store();
    store.put(&key("a"), &file(), b"one").unwrap();
    store.hard_link(&key("a"), &key("b")).unwrap();
    store.put(&key("a"), &file(), b"two").unwrap();
    let (a, b) = (shown(&store, "a"), shown(&store, "b"));
    assert_eq!(a.last().unwrap(), "one");
    assert!(a.contains(&"name".to_owned()) || a.contains(&"name*".to_owned()), "{a:?}");
    let found = versions(&store, "b");
    let number = found.versions.iter().find_map(|version| version.shared).unwrap();
    assert!(found.versions.iter().all(|version| version.entry.number == number), "{found:?}");
    assert!(b.iter().all(|word| word == "name*" || word.starts_with("one") || word.starts_with("two")), "{b:?}");
    // The name that is current leads to the content that is current.
    let current: Vec<&Version> = found.versions.iter().filter(|version| version.is_current).collect();
    let now = store.get(&key("b")).unwrap().unwrap();
    assert_eq!(current.len(), 2);
    assert_eq!(read(&found, current.iter().find(|version| version.shared.is_some()).unwrap()), now);
    let name = current.iter().find(|version| version.shared.is_none()).unwrap();
    assert_eq!(found.read(name.entry.id, &mut Buffer::default()).unwrap_err().kind(), ErrorKind::Usage);

    // What the file gets after the name is gone is not the name's, although its number is known from the log only.
    store.remove(&key("b")).unwrap();
    store.hard_link(&key("a"), &key("c")).unwrap();
    let before = shown(&store, "b");
    assert_eq!(before[0], "removed*");
    let handle = store.open_object(&key("c"), &crate::HandleOptions::write()).unwrap();
    handle.write_at(b"three", 0).unwrap();
    handle.commit(Durability::Batch).unwrap();
    handle.close().unwrap();
    assert_eq!(shown(&store, "b"), before);
    assert_eq!(shown(&store, "c")[0], "three*");
}

#[test]
fn a_large_object_can_be_read_until_its_extents_are_freed() {
    for slow in [0, 4] {
        let sandbox = TempDir::new().unwrap();
        let slow = (0..slow).map(|at| sandbox.path().join(format!("slow{at}"))).collect();
        let store = Store::create(&sandbox.path().join("s"), &Plan { slow, ..Plan::default() }).unwrap();
        let (old, new) = (bytes(1, LARGE_BYTES), bytes(2, LARGE_BYTES));
        store.put(&key("f"), &file(), &old).unwrap();
        store.put(&key("f"), &file(), &new).unwrap();
        let found = versions(&store, "f");
        assert_eq!(found.versions.iter().map(|version| version.entry.kind).collect::<Vec<_>>(), [Kind::Large; 2]);
        assert_eq!(found.versions[1].content, VersionContent::Present);
        let id = found.versions[1].entry.id;
        // What is listed stays while the list exists, whatever compaction does.
        compact_all(&store);
        let mut content = found.content(id).unwrap();
        let mut all = Vec::new();
        while let Some((_, piece)) = content.next_piece().unwrap() {
            all.extend_from_slice(piece);
        }
        assert!(all == old);
        assert!(read(&found, &found.versions[1]) == old && read(&found, &found.versions[0]) == new);
        drop(found);
        compact_all(&store);
        let found = versions(&store, "f");
        assert_eq!(found.versions.len(), 1);
        assert!(found.versions[0].is_current && read(&found, &found.versions[0]) == new);
        assert_eq!(found.read(id, &mut Buffer::default()).unwrap_err().kind(), ErrorKind::NotFound);
        is_sound(&store);
    }
}

#[test]
fn extent_files_that_are_gone_make_content_unreadable_and_nothing_else() {
    let (_sandbox, home, store) = new_store();
    store.put(&key("f"), &file(), &bytes(1, LARGE_BYTES)).unwrap();
    store.put(&key("f"), &file(), b"small").unwrap();
    drop(store);
    let extents: Vec<PathBuf> = fs::read_dir(home.join("extents")).unwrap().map(|one| one.unwrap().path()).collect();
    assert!(!extents.is_empty());
    extents.iter().for_each(|path| fs::remove_file(path).unwrap());
    let store = Store::open_read_only(&home).unwrap();
    let found = versions(&store, "f");
    assert_eq!(words(&found)[0], "small*");
    let content = found.versions[1].content;
    assert!(matches!(content, VersionContent::Freed | VersionContent::Missing), "{content:?}");
    let error = found.read(found.versions[1].entry.id, &mut Buffer::default()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Lost), "{error}");
}

/// The only segment below a device, and its bytes.
fn segment(device: &Path) -> (PathBuf, Vec<u8>) {
    let found: Vec<PathBuf> = fs::read_dir(device.join(SEGMENTS)).unwrap().map(|one| one.unwrap().path()).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    (found[0].clone(), fs::read(&found[0]).unwrap())
}

/// Flips a bit in the only place with these bytes.
fn flip(device: &Path, content: &[u8]) {
    let (path, mut all) = segment(device);
    let at: Vec<usize> = (0..all.len()).filter(|&at| all[at..].starts_with(content)).collect();
    assert_eq!(at.len(), 1);
    all[at[0]] ^= 1;
    fs::write(path, all).unwrap();
}

#[test]
fn a_flipped_bit_costs_one_version_and_is_reported() {
    let (_sandbox, home, store) = new_store();
    for content in ["version one", "version two", "version three"] {
        store.put(&key("f"), &file(), content.as_bytes()).unwrap();
    }
    let two = versions(&store, "f").versions[1].entry.location;
    drop(store);
    flip(&home, b"version two");
    let store = Store::open_read_only(&home).unwrap();
    let found = versions(&store, "f");
    assert_eq!(
        found.versions.iter().map(|version| read(&found, version)).collect::<Vec<_>>(),
        [b"version three".to_vec(), b"version one".to_vec()]
    );
    let [damage] = &found.damage[..] else { panic!("{:?}", found.damage) };
    assert_eq!((damage.segment, damage.range.clone()), (two.segment, two.range()));
}

#[test]
fn one_of_two_mirrored_devices_is_enough() {
    let sandbox = TempDir::new().unwrap();
    let home = sandbox.path().join("s");
    let fast: Vec<PathBuf> = (0..2).map(|at| sandbox.path().join(format!("fast{at}"))).collect();
    let store = Store::create(&home, &Plan { fast: fast.clone(), ..Plan::default() }).unwrap();
    for content in ["version one", "version two"] {
        store.put(&key("f"), &file(), content.as_bytes()).unwrap();
    }
    drop(store);
    let expected = ["version *", "version "];
    // Damage on one copy is none.
    flip(&fast[0], b"version one");
    assert_eq!(shown(&Store::open_read_only(&home).unwrap(), "f"), expected);
    fs::rename(&fast[0], sandbox.path().join("away")).unwrap();
    assert_eq!(shown(&Store::open_read_only(&home).unwrap(), "f"), expected);
}

#[test]
fn what_a_snapshot_keeps_is_a_version_after_compaction() {
    let (_sandbox, home, store) = new_store();
    for content in ["one", "two"] {
        store.put(&key("f"), &file(), content.as_bytes()).unwrap();
    }
    store.create_snapshot("kept").unwrap();
    store.put(&key("f"), &file(), b"three").unwrap();
    for _ in 0..2 {
        compact_all(&store);
        assert_eq!(shown(&store, "f"), ["three*", "two"]);
    }
    drop(store);
    let store = rebuild_index(&home, &OpenOptions::default()).unwrap();
    assert_eq!(shown(&store, "f"), ["three*", "two"]);
}

#[test]
fn segments_that_only_a_pin_keeps_have_no_versions() {
    let sandbox = TempDir::new().unwrap();
    let home = sandbox.path().join("s");
    let store = Store::create(&home, &Plan { segment_bytes: 1 << 20, ..Plan::default() }).unwrap();
    store.put(&key("f"), &file(), b"content").unwrap();
    store.put(&key("kept"), &file(), &bytes(1, 60_000)).unwrap();
    for round in 0..40 {
        store.put(&key(&format!("d/{round}")), &file(), &bytes(round, 60_000)).unwrap();
    }
    store.remove(&key("f")).unwrap();
    // A pin by name keeps the old segments as files, not as a part of what is listed.
    store.pin("mount").unwrap();
    compact_all(&store);
    let left = shown(&store, "f");
    assert!(left.iter().all(|word| word.starts_with("removed")) && left.len() <= 1, "{left:?}");
}

#[test]
fn a_batch_in_quarantine_has_no_versions() {
    let settings = geometry(1, 1, 1, (1, 0));
    for is_damaged in [false, true] {
        let world = World::new(Simulated::devices(&settings), 3);
        let subject = Simulated::create(&settings, &world).unwrap();
        let store = subject.store();
        store.put(&key("a"), &file(), b"one").unwrap();
        store.sync().unwrap();
        // Not durable, so that the index does not have it: the log alone says whether it counts.
        let mut batch = store.batch(Durability::None);
        batch.put(&key("a"), &file(), b"two").unwrap();
        batch.put(&key("b"), &file(), b"torn").unwrap();
        batch.commit().unwrap();
        let torn = store.entry(&key("b")).unwrap().unwrap().entry.location;
        let left = world.after_kill(1);
        if is_damaged {
            let device = left.device(0);
            let segments = device.list(SEGMENTS).unwrap();
            let (name, _) = segments.iter().max().unwrap();
            device.flip_bit(&format!("{SEGMENTS}/{name}"), 8 * (torn.offset.0 + 50));
        }
        let opened = Simulated::open(&settings, &left).unwrap();
        let expected: &[&str] = if is_damaged { &["one*"] } else { &["two*", "one"] };
        assert_eq!(shown(opened.store(), "a"), expected);
        opened.store().put(&key("a"), &file(), b"three").unwrap();
        let expected: &[&str] = if is_damaged { &["three*", "one"] } else { &["three*", "two", "one"] };
        assert_eq!(shown(opened.store(), "a"), expected);
    }
}

#[test]
fn a_search_that_is_asked_to_stop_says_so() {
    let (_sandbox, _, store) = new_store();
    store.put(&key("f"), &file(), b"content").unwrap();
    let progress = Progress::default();
    progress.stop();
    let found = store.versions(&key("f"), &progress).unwrap();
    assert!(!found.is_complete);
}
