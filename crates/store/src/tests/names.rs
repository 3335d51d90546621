//! Names of existing objects: renamed, exchanged, added; by this handle, from the log alone, and after compaction.

use std::path::Path;

use super::*;
use crate::format::ids::ObjectNumber;
use crate::format::index_key::ROOT;

/// The object of a name: kind, number, content, mode, number of a shared file.
pub(super) type Shown = (Kind, ObjectNumber, Vec<u8>, u16, Option<ObjectNumber>);

pub(super) fn shown_as(read: &crate::Object<'_>, shared: Option<ObjectNumber>) -> Shown {
    (read.entry.kind, read.entry.number, read.content.to_vec(), read.attributes.mode, shared)
}

pub(super) fn shown(store: &Store) -> BTreeMap<String, Shown> {
    let mut buffer = crate::Buffer::default();
    let mut all = BTreeMap::new();
    for listed in store.walk(&Key::root()).unwrap().map(Result::unwrap).filter(|listed| !listed.key.is_root()) {
        let read = store.read(&listed.key, &mut buffer).unwrap().unwrap();
        all.insert(listed.key.to_string(), shown_as(&read, listed.shared));
    }
    all
}

pub(super) fn is_sound(store: &Store) {
    let mut problems = Vec::new();
    let options = CheckOptions { is_deep: true, ..CheckOptions::default() };
    store.check(options, &mut |problem| problems.push(problem.to_string()), &Progress::default()).unwrap();
    assert_eq!(problems, Vec::<String>::new());
}

/// The same from the index, from the log alone, and after compaction.
fn stays(mut store: Store, home: &Path) -> Store {
    for _ in 0..2 {
        let before = shown(&store);
        is_sound(&store);
        drop(store);
        store = rebuild_index(home, &OpenOptions::default()).unwrap();
        assert_eq!(shown(&store), before);
        is_sound(&store);
        let all = CompactOptions { is_alone: true, ..CompactOptions::default() };
        store.compact(&all, &Progress::default()).unwrap();
        assert_eq!(shown(&store), before);
    }
    store
}

pub(super) const LARGE_BYTES: usize = 300_000;

/// A store with an object of each kind in directory `d`.
pub(super) fn store(sandbox: &TempDir) -> (Store, std::path::PathBuf) {
    let home = sandbox.path().join("s");
    let store = Store::create(&home, &Plan::default()).unwrap();
    let attributes = Attributes { mode: 0o100_640, ..Attributes::of_file(Time::default()) };
    let mut batch = store.batch(Durability::Batch);
    batch.put(&key("d/file"), &attributes, b"content").unwrap();
    batch.put(&key("d/large"), &attributes, &[7; LARGE_BYTES]).unwrap();
    let holes = Holes { size_bytes: 1000, data: vec![(500, 4)] };
    batch.put(&key("d/sparse"), &Attributes { holes: Some(holes), ..attributes.clone() }, b"data").unwrap();
    batch
        .directory(&key("d/sub"), &Attributes { mode: 0o040_711, ..Attributes::of_directory(Time::default()) })
        .unwrap();
    batch.put(&key("d/sub/a/b"), &attributes, b"below").unwrap();
    batch.symlink(&key("d/symlink"), &Attributes { mode: 0o120_777, ..Attributes::default() }, b"to/where").unwrap();
    batch.special(&key("d/special"), &Attributes { mode: 0o020_600, ..Attributes::default() }, 1, 3).unwrap();
    let number = batch.shared(&attributes, &mut &b"of two"[..], None).unwrap();
    batch.link(&key("d/one"), number).unwrap();
    batch.link(&key("d/two"), number).unwrap();
    batch.commit().unwrap();
    (store, home)
}

const NAMES: [&str; 8] = ["file", "large", "sparse", "sub", "symlink", "special", "one", "two"];

#[test]
fn everything_can_be_renamed_and_stays_what_it_is() {
    let sandbox = TempDir::new().unwrap();
    let (store, home) = store(&sandbox);
    let mut expected = shown(&store);
    store.put(&key("e/there"), &Attributes::of_file(Time::default()), b"goes").unwrap();
    for name in NAMES {
        store.rename(&key(&format!("d/{name}")), &key(&format!("e/new {name}")), Existing::Refuse).unwrap();
    }
    let moved = |path: String| match path.strip_prefix("d/") {
        Some(below) => format!("e/new {below}"),
        None => path,
    };
    expected = expected.into_iter().map(|(path, shown)| (moved(path), shown)).collect();
    expected.insert("e".to_owned(), shown(&store)["e"].clone());
    expected.insert("e/there".to_owned(), shown(&store)["e/there"].clone());
    assert_eq!(shown(&store), expected);
    // Replacing an existing object; between two names of one file, nothing.
    store.rename(&key("e/new file"), &key("e/there"), Existing::Replace).unwrap();
    store.rename(&key("e/new one"), &key("e/new two"), Existing::Replace).unwrap();
    store.rename(&key("e/new large"), &key("e/new large"), Existing::Replace).unwrap();
    let of_file = expected.remove("e/new file").unwrap();
    expected.insert("e/there".to_owned(), of_file);
    assert_eq!(shown(&store), expected);
    // A directory replaces an empty one, with all its content.
    store.rename(&key("e"), &key("d"), Existing::Replace).unwrap();
    let expected: BTreeMap<String, Shown> = expected
        .iter()
        .filter(|(path, _)| *path != "d")
        .map(|(path, shown)| (path.replacen('e', "d", 1), shown.clone()))
        .collect();
    assert_eq!(shown(&store), expected);
    assert_eq!(shown(&stays(store, &home)), expected);
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let sandbox = TempDir::new().unwrap();
    let (store, home) = store(&sandbox);
    let before = shown(&store);
    let root = Key::root();
    let refused = |from: &str, to: &str, existing| store.rename(&key(from), &key(to), existing).unwrap_err().kind();
    let replaced = |from: &str, to: &str| refused(from, to, Existing::Replace);
    assert_eq!(replaced("d/none", "x"), ErrorKind::NotFound);
    assert_eq!(replaced("d/file", "none/x"), ErrorKind::NotFound);
    assert_eq!(replaced("d/file", "d/sub"), ErrorKind::Exists);
    assert_eq!(replaced("d/sub", "d/file"), ErrorKind::Exists);
    assert_eq!(refused("d/file", "d/large", Existing::Refuse), ErrorKind::Exists);
    assert_eq!(replaced("d", "d/sub/a/c"), ErrorKind::Usage);
    assert_eq!(replaced("d/sub/a", "d/sub"), ErrorKind::Usage);
    assert_eq!(store.rename(&root, &key("x"), Existing::Replace).unwrap_err().kind(), ErrorKind::Usage);
    assert_eq!(store.rename(&key("d"), &root, Existing::Replace).unwrap_err().kind(), ErrorKind::Usage);
    let exchanged = |one: &str, other: &str| store.exchange(&key(one), &key(other)).unwrap_err().kind();
    assert_eq!((exchanged("d", "d/file"), exchanged("d/file", "x")), (ErrorKind::Usage, ErrorKind::NotFound));
    let linked = |one: &str, other: &str| store.hard_link(&key(one), &key(other)).unwrap_err().kind();
    assert_eq!((linked("d/file", "d/one"), linked("d/sub", "x")), (ErrorKind::Exists, ErrorKind::Usage));
    assert_eq!((linked("none", "x"), linked("d/file", "none/x")), (ErrorKind::NotFound, ErrorKind::NotFound));
    assert_eq!(shown(&store), before);
    assert_eq!(shown(&stays(store, &home)), before);
}

#[test]
fn any_two_exchange_their_names() {
    let sandbox = TempDir::new().unwrap();
    let (store, home) = store(&sandbox);
    store.remove(&key("d/two")).unwrap();
    let names = NAMES.iter().filter(|name| **name != "two");
    // A second file with several names, of which one is left.
    store.hard_link(&key("d/file"), &key("d/other")).unwrap();
    store.remove(&key("d/file")).unwrap();
    store.rename(&key("d/other"), &key("d/file"), Existing::Refuse).unwrap();
    let before = shown(&store);
    for one in names.clone() {
        for other in names.clone() {
            store.exchange(&key(&format!("d/{one}")), &key(&format!("d/{other}"))).unwrap();
            let now = shown(&store);
            let at = |all: &BTreeMap<String, Shown>, name: &str| all[&format!("d/{name}")].clone();
            assert_eq!((at(&now, one), at(&now, other)), (at(&before, other), at(&before, one)));
            store.exchange(&key(&format!("d/{other}")), &key(&format!("d/{one}"))).unwrap();
            assert_eq!(shown(&store), before, "{one} and {other}");
        }
    }
    assert_eq!(shown(&stays(store, &home)), before);
}

#[test]
fn a_file_gets_other_names_and_goes_with_the_last() {
    let sandbox = TempDir::new().unwrap();
    let (store, home) = store(&sandbox);
    for name in ["file", "large", "sparse", "one"] {
        let number = store.entry(&key(&format!("d/{name}"))).unwrap().unwrap().entry.number;
        store.hard_link(&key(&format!("d/{name}")), &key(&format!("d/sub/{name}"))).unwrap();
        store.hard_link(&key(&format!("d/sub/{name}")), &key(&format!("third {name}"))).unwrap();
        let now = shown(&store);
        assert_eq!(now[&format!("d/{name}")], now[&format!("third {name}")]);
        assert_eq!((now[&format!("d/{name}")].1, now[&format!("d/{name}")].4), (number, Some(number)));
    }
    let store = stays(store, &home);
    for name in ["file", "large", "sparse", "one"] {
        let before = shown(&store)[&format!("d/{name}")].clone();
        store.remove(&key(&format!("d/{name}"))).unwrap();
        store.remove(&key(&format!("d/sub/{name}"))).unwrap();
        assert_eq!(shown(&store)[&format!("third {name}")], before);
        store.remove(&key(&format!("third {name}"))).unwrap();
    }
    store.remove(&key("d/two")).unwrap();
    let store = stays(store, &home);
    assert_eq!(shown(&store).len(), 6, "{:?}", shown(&store).keys());
    let extents = store.engine().view().state.extents.clone();
    assert!(extents.values().all(|row| row.live_bytes == 0), "{extents:?}");
}

#[test]
fn threads_that_rename_each_others_directories_lose_nothing() {
    const THREADS: usize = 4;
    const ROUNDS: usize = 150;
    let sandbox = TempDir::new().unwrap();
    let home = sandbox.path().join("s");
    let store = Store::create(&home, &Plan::default()).unwrap();
    for number in 0..6 {
        store.put(&key(&format!("d{number}/f{number}")), &Attributes::of_file(Time::default()), b"file").unwrap();
    }
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let store = &store;
            scope.spawn(move || {
                let mut random = Random::new(thread as u64);
                for _ in 0..ROUNDS {
                    let keys: Vec<Key> =
                        store.walk(&Key::root()).unwrap().filter_map(|one| Some(one.ok()?.key)).collect();
                    let (from, into) = (random.pick(&keys).clone(), random.pick(&keys).clone());
                    let Some(name) = from.name() else { continue };
                    let done = match random.below(4) {
                        0 => store.exchange(&from, &into),
                        _ => store.rename(&from, &into.child(name).unwrap(), Existing::Refuse),
                    };
                    if let Err(error) = done {
                        assert!(
                            matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Exists | ErrorKind::Usage),
                            "{error}"
                        );
                    }
                }
            });
        }
    });
    // Each of the twelve objects once, whatever its current name.
    let numbers = |store: &Store| {
        shown(store).values().map(|shown| shown.1).collect::<std::collections::BTreeSet<ObjectNumber>>()
    };
    assert_eq!((shown(&store).len(), numbers(&store).len()), (12, 12), "{:?}", shown(&store).keys());
    let store = stays(store, &home);
    assert_eq!(shown(&store).values().filter(|shown| shown.0 == Kind::File && shown.2 == b"file").count(), 6);
}

#[test]
fn attributes_change_and_nothing_else_does() {
    let sandbox = TempDir::new().unwrap();
    let (store, home) = store(&sandbox);
    let mut expected = shown(&store);
    let given = Attributes {
        mode: 0o4_751,
        uid: 7,
        gid: 8,
        mtime: Time { seconds: 9, nanoseconds: 10 },
        ctime: Some(Time { seconds: 13, nanoseconds: 14 }),
        btime: None,
        atime: Some(Time { seconds: 11, nanoseconds: 12 }),
        xattrs: vec![(b"user.a".to_vec(), b"b".to_vec())],
        holes: None,
    };
    for name in NAMES.iter().filter(|name| **name != "two") {
        let key = key(&format!("d/{name}"));
        let before = store.stat(&key).unwrap().unwrap();
        store.set_attributes(&key, &given).unwrap();
        let after = store.stat(&key).unwrap().unwrap();
        let mode = before.attributes.mode & 0o170_000 | given.mode;
        let expected =
            Attributes { mode, btime: before.attributes.btime, holes: before.attributes.holes, ..given.clone() };
        assert_eq!(after.attributes, expected);
        assert_eq!((after.entry.mode, after.entry.uid, after.entry.mtime), (mode, 7, given.mtime));
        assert_eq!((after.names, after.entry.number), (before.names, before.entry.number));
    }
    store.set_attributes(&Key::root(), &Attributes { mode: 0o040_700, ..given.clone() }).unwrap();
    let changed = store.stat(&Key::root()).unwrap().unwrap();
    assert_eq!((changed.attributes.mode, changed.entry.number), (0o040_700, ROOT));
    for (path, shown) in &mut expected {
        if NAMES.contains(&path.strip_prefix("d/").unwrap_or_default()) {
            shown.3 = shown.3 & 0o170_000 | given.mode;
        }
    }
    assert_eq!(shown(&store), expected);
    assert_eq!(store.set_attributes(&key("d/none"), &given).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(shown(&stays(store, &home)), expected);
}

#[test]
fn compaction_beside_renames_disturbs_none() {
    let sandbox = TempDir::new().unwrap();
    let (store, home) = store(&sandbox);
    let expected = shown(&store);
    let all = CompactOptions { choice: Choice::All, is_alone: true, ..CompactOptions::default() };
    std::thread::scope(|scope| {
        let renaming = scope.spawn(|| {
            for round in 0..100 {
                let mut batch = store.batch(Durability::None);
                for name in ["d/file", "d/large", "d/sub", "d/one"] {
                    let other = key(&format!("{name} {round}"));
                    batch.rename(&key(name), &other, Existing::Refuse).unwrap();
                    batch.rename(&other, &key(name), Existing::Refuse).unwrap();
                }
                batch.commit().unwrap();
            }
        });
        while !renaming.is_finished() {
            store.compact(&all, &Progress::default()).unwrap();
        }
    });
    assert_eq!(shown(&store), expected);
    assert_eq!(shown(&stays(store, &home)), expected);
}

#[test]
fn an_index_from_the_log_drops_all_objects_without_a_name() {
    let sandbox = TempDir::new().unwrap();
    let (store, home) = store(&sandbox);
    store.put(&key("other/directory/of"), &file(), b"others").unwrap();
    // More than one transaction drops.
    for at in 0..40_u8 {
        let (one, other) = (key(&format!("one/{at}")), key(&format!("other/{at}")));
        store.put(&one, &file(), &[at; 10]).unwrap();
        store.hard_link(&one, &other).unwrap();
        if !at.is_multiple_of(5) {
            assert!(store.remove(&one).unwrap() && store.remove(&other).unwrap());
        }
    }
    let before = shown(&store);
    drop(store);
    let store = rebuild_index(&home, &OpenOptions::default()).unwrap();
    assert_eq!(shown(&store), before);
    is_sound(&store);
    let shared = store.engine().view().state.shared.len();
    assert_eq!(shared, before.values().filter(|shown| shown.4.is_some()).count() / 2);
}

#[test]
fn symlinks_and_special_files_can_have_several_names() {
    let sandbox = TempDir::new().unwrap();
    let (store, home) = store(&sandbox);
    let mut expected = shown(&store);
    for name in ["symlink", "special"] {
        let (path, other) = (format!("d/{name}"), format!("another {name}"));
        let (kind, number, content, mode, _) = expected[&path].clone();
        store.hard_link(&key(&path), &key(&other)).unwrap();
        for path in [path, other] {
            expected.insert(path, (kind, number, content.clone(), mode, Some(number)));
        }
    }
    assert_eq!(shown(&store), expected);
    let store = stays(store, &home);
    assert!(store.remove(&key("d/symlink")).unwrap() && store.remove(&key("d/special")).unwrap());
    store.rename(&key("another special"), &key("d/special"), Existing::Refuse).unwrap();
    let special = expected.remove("another special").unwrap();
    expected.remove("d/symlink");
    expected.insert("d/special".to_owned(), special);
    assert_eq!(shown(&store), expected);
    let store = stays(store, &home);
    // With their last name, they go.
    assert!(store.remove(&key("another symlink")).unwrap() && store.remove(&key("d/special")).unwrap());
    is_sound(&stays(store, &home));
}

#[test]
fn an_entry_is_found_by_the_number_of_its_directory_whatever_its_path() {
    let sandbox = TempDir::new().unwrap();
    let (store, home) = store(&sandbox);
    let number = |path: &str| store.entry(&key(path)).unwrap().unwrap().entry.number;
    let (d, sub) = (number("d"), number("d/sub"));
    let within = |directory, name: &str| Key::within(directory, name.as_bytes()).unwrap();
    store.rename(&key("d/sub"), &key("moved"), Existing::Refuse).unwrap();
    assert_eq!(store.entry(&within(ROOT, "moved")).unwrap().unwrap().entry.number, sub);
    let listed = |directory| -> Vec<Vec<u8>> {
        let walk = store.list_from(&Key::of_directory(directory), b"").unwrap();
        walk.map(|listed| listed.unwrap().key.name().unwrap().to_vec()).collect()
    };
    assert_eq!(listed(sub), [b"a".to_vec()]);
    // Everything that is done by paths.
    store.put(&within(sub, "new"), &file(), b"content").unwrap();
    store.rename(&within(sub, "new"), &within(d, "file"), Existing::Replace).unwrap();
    store.exchange(&within(d, "file"), &within(d, "large")).unwrap();
    store.hard_link(&within(d, "large"), &within(sub, "linked")).unwrap();
    store.set_attributes(&within(d, "large"), &Attributes { mode: 0o100_611, ..file() }).unwrap();
    let handle = store.open_object(&within(sub, "opened"), &crate::HandleOptions::write().create(file())).unwrap();
    handle.append(b"appended").unwrap();
    handle.close().unwrap();
    assert!(store.remove(&within(d, "symlink")).unwrap() && !store.remove(&within(d, "symlink")).unwrap());
    let is_below = store.rename(&within(ROOT, "moved"), &within(sub, "x"), Existing::Refuse).unwrap_err();
    assert_eq!(is_below.kind(), ErrorKind::Usage);
    assert_eq!(listed(sub), ["a", "linked", "opened"].map(|name| name.as_bytes().to_vec()));
    let seen = shown(&store);
    assert_eq!((&seen["d/large"].2[..], seen["d/large"].3), (&b"content"[..], 0o100_611));
    assert_eq!((&seen["moved/linked"].2[..], &seen["moved/opened"].2[..]), (&b"content"[..], &b"appended"[..]));
    assert_eq!(seen["d/file"].2.len(), LARGE_BYTES);
    assert!(!seen.contains_key("d/symlink"));
    assert_eq!(shown(&stays(store, &home)), seen);
}

/// A key of each form leads to one entry: between both, nothing happens, and nothing is lost.
#[test]
fn both_forms_of_a_key_are_one_name() {
    let sandbox = TempDir::new().unwrap();
    let (store, home) = store(&sandbox);
    let number = |path: &str| store.entry(&key(path)).unwrap().unwrap().entry.number;
    let (d, sub) = (number("d"), number("d/sub"));
    let within = |directory, name: &str| Key::within(directory, name.as_bytes()).unwrap();
    let (before, id) = (shown(&store), store.engine().highest_id.load(std::sync::atomic::Ordering::Relaxed));
    for name in NAMES {
        let (path, numbered) = (key(&format!("d/{name}")), within(d, name));
        for (one, other) in [(&path, &numbered), (&numbered, &path), (&numbered, &numbered)] {
            store.rename(one, other, Existing::Replace).unwrap();
            store.exchange(one, other).unwrap();
            assert_eq!(store.rename(one, other, Existing::Refuse).unwrap_err().kind(), ErrorKind::Exists);
            if name != "sub" {
                assert_eq!(store.hard_link(one, other).unwrap_err().kind(), ErrorKind::Exists);
            }
        }
    }
    // A directory does not come below itself, if a path says so, or its own number.
    for (one, other) in [(key("d"), within(d, "x")), (within(ROOT, "d"), key("d/sub/x"))] {
        assert_eq!(store.rename(&one, &other, Existing::Replace).unwrap_err().kind(), ErrorKind::Usage);
    }
    for (one, other) in [(key("d"), within(d, "file")), (within(ROOT, "d"), key("d/sub/a"))] {
        assert_eq!(store.exchange(&one, &other).unwrap_err().kind(), ErrorKind::Usage);
        assert_eq!(store.exchange(&other, &one).unwrap_err().kind(), ErrorKind::Usage);
    }
    assert_eq!(shown(&store), before);
    assert_eq!(store.engine().highest_id.load(std::sync::atomic::Ordering::Relaxed), id, "nothing is written");
    // Within one batch as well.
    let refused = |put: &dyn Fn(&mut Batch<'_>)| {
        let mut batch = store.batch(Durability::None);
        put(&mut batch);
        batch.commit().unwrap_err().kind()
    };
    let file_and_below = refused(&|batch| {
        batch.put(&within(d, "x"), &file(), b"file").unwrap();
        batch.put(&key("d/x/below"), &file(), b"below").unwrap();
    });
    let below_and_file = refused(&|batch| {
        batch.put(&key("d/x/below"), &file(), b"below").unwrap();
        batch.put(&within(d, "x"), &file(), b"file").unwrap();
    });
    assert_eq!((file_and_below, below_and_file), (ErrorKind::Exists, ErrorKind::Exists));
    for (one, other) in [(within(d, "new"), key("d/new")), (key("d/new"), within(d, "new"))] {
        let mut batch = store.batch(Durability::None);
        batch.put(&one, &file(), b"goes").unwrap();
        assert!(batch.remove(&other).unwrap() && !batch.remove(&one).unwrap());
        batch.commit().unwrap();
    }
    assert_eq!(shown(&store), before);
    // What comes in the place of a removed tree is not in what was removed.
    let mut batch = store.batch(Durability::None);
    assert!(batch.remove_tree(&within(d, "sub")).unwrap());
    batch.put(&key("d/sub/a/new"), &file(), b"new").unwrap();
    batch.commit().unwrap();
    let mut batch = store.batch(Durability::None);
    assert!(batch.remove_tree(&key("d/sub/a")).unwrap());
    assert!(!batch.remove(&within(number("d/sub"), "a")).unwrap());
    batch.put(&within(number("d/sub"), "a"), &file(), b"a file now").unwrap();
    batch.commit().unwrap();
    let seen = shown(&store);
    assert_eq!(
        (seen["d/sub"].1 == sub, &seen["d/sub/a"].2[..], seen.len()),
        (false, &b"a file now"[..], before.len() - 1)
    );
    assert_eq!(shown(&stays(store, &home)), seen);
}
