//! Attributes that are changed alone: what it costs, and that a file and its attributes stay together whatever comes.

use super::names::is_sound;
use super::snapshots::{compact_all, through_all};
use super::*;
use crate::format::ids::DeviceNumber;
use crate::format::index_key::{first_attributes, first_superseded};
use crate::{HandleOptions, PinnedSnapshot, RepairOptions, plan_repair, repair};

const SIZES: [usize; 4] = [100, 20_000, 65_000, 300_000];

fn given(number: u32) -> Attributes {
    let xattrs = vec![(b"user.number".to_vec(), number.to_le_bytes().to_vec())];
    Attributes { mode: 0o100_600, uid: number, xattrs, ..file() }
}

fn names() -> Vec<String> {
    let of_size = SIZES.iter().flat_map(|size| [format!("d/{size}"), format!("d/sub/{size}")]);
    of_size.chain(["d/first".to_owned(), "d/second".to_owned()]).collect()
}

fn fill(store: &Store) {
    let mut batch = store.batch(Durability::Batch);
    for size in SIZES {
        batch.put(&key(&format!("d/{size}")), &given(0), &bytes(1, size)).unwrap();
        batch.put(&key(&format!("d/sub/{size}")), &given(0), &bytes(2, size)).unwrap();
    }
    let shared = batch.shared(&given(0), &mut &bytes(3, 30_000)[..], None).unwrap();
    batch.link(&key("d/first"), shared).unwrap();
    batch.link(&key("d/second"), shared).unwrap();
    batch.commit().unwrap();
}

/// Path, owner as listed, owner and number among all attributes, length of the content.
type Shown = Vec<(String, u32, u32, Option<u32>, usize)>;

fn shown_of(listed: &Listed, object: &crate::Object<'_>) -> (String, u32, u32, Option<u32>, usize) {
    let number = |value: &Vec<u8>| u32::from_le_bytes(value[..].try_into().unwrap());
    let attributes = &object.attributes;
    assert_eq!(Some(object.entry.ctime), attributes.ctime);
    let of_name = attributes.xattrs.iter().find(|(name, _)| name == b"user.number").map(|(_, value)| number(value));
    (listed.key.to_string(), listed.entry.uid, attributes.uid, of_name, object.content.len())
}

fn shown(store: &Store) -> Shown {
    let mut buffer = crate::Buffer::default();
    let walk =
        store.walk(&Key::root()).unwrap().map(Result::unwrap).filter(|listed| listed.entry.kind != Kind::Directory);
    let all: Shown = walk
        .map(|listed| {
            let object = store.read(&listed.key, &mut buffer).unwrap().unwrap();
            let stat = store.stat(&listed.key).unwrap().unwrap();
            assert_eq!((&stat.attributes, stat.entry), (&object.attributes, object.entry), "{}", listed.key);
            shown_of(&listed, &object)
        })
        .collect();
    let mut loaded: Vec<(String, u32)> = Vec::new();
    for piece in store.load(&Key::root()).unwrap() {
        for object in piece.unwrap().objects().filter(|object| object.offset() == 0) {
            if let (Some(key), Kind::File | Kind::Large) = (object.key().unwrap(), object.kind()) {
                loaded.push((key.to_string(), object.attributes().unwrap().uid));
            }
        }
    }
    loaded.sort();
    let single = store
        .walk(&Key::root())
        .unwrap()
        .map(Result::unwrap)
        .filter(|listed| listed.shared.is_none() && listed.entry.kind != Kind::Directory);
    assert_eq!(loaded, single.map(|listed| (listed.key.to_string(), listed.entry.uid)).collect::<Vec<_>>());
    all
}

fn shown_then(snapshot: &PinnedSnapshot) -> Shown {
    let mut buffer = crate::Buffer::default();
    let walk = snapshot.walk(&Key::root(), &Key::root()).unwrap().map(Result::unwrap);
    let files = walk.filter(|listed| listed.entry.kind != Kind::Directory);
    files.map(|listed| shown_of(&listed, &snapshot.read(&listed.key, &mut buffer).unwrap().unwrap())).collect()
}

/// What is shown if all files have the attributes with this number.
fn expected(number: u32) -> Shown {
    let length = |name: &str| name.rsplit('/').next().unwrap().parse().unwrap_or(30_000);
    let mut all: Shown =
        names().into_iter().map(|name| (name.clone(), number, number, Some(number), length(&name))).collect();
    all.sort();
    all
}

fn set_all(store: &Store, number: u32) {
    names().iter().for_each(|name| store.set_attributes(&key(name), &given(number)).unwrap());
}

fn log_bytes(store: &Store) -> u64 {
    store.engine().view().state.segments.values().map(|row| row.size_bytes).sum()
}

fn attributes_records(store: &Store) -> usize {
    let (from, to) = (first_attributes(), first_superseded());
    let snapshot = store.engine().snapshot();
    snapshot.scan(std::ops::Bound::Included(&from), std::ops::Bound::Excluded(&to)).unwrap().count()
}

#[test]
fn new_attributes_cost_no_content_and_replace_each_other() {
    let sandbox = TempDir::new().unwrap();
    for (name, home, store) in stores(sandbox.path()) {
        fill(&store);
        let before = log_bytes(&store);
        set_all(&store, 1);
        // A record and its commit.
        let each = (log_bytes(&store) - before) / names().len() as u64;
        assert!(each < 400, "{name}: {each} bytes");
        set_all(&store, 2);
        // Two names have one set.
        let records = attributes_records(&store);
        assert!(names().len() - 1 - records <= 2, "{name}: {records}");
        let store = through_all(store, &home, &|store| {
            assert_eq!(shown(store), expected(2), "{name}");
            assert_eq!(attributes_records(store), records, "{name}");
        });
        // New content has the attributes that come with it.
        for (at, path) in names().into_iter().enumerate().filter(|(_, path)| !path.contains("first")) {
            match at % 3 {
                0 => store.put(&key(&path), &given(3), &bytes(at as u64, 9)).unwrap(),
                1 => assert!(store.remove(&key(&path)).unwrap()),
                _ => store.rename(&key(&path), &key(&format!("{path} renamed")), Existing::Refuse).unwrap(),
            }
        }
        let now = shown(&store);
        for (path, listed, ..) in &now {
            assert_eq!(*listed, if path.contains("renamed") || path.contains("first") { 2 } else { 3 }, "{path}");
        }
        let store = through_all(store, &home, &|store| {
            assert_eq!(shown(store), now, "{name}");
            assert!(attributes_records(store) <= 1, "{name}: only the file with two names has one");
        });
        assert!(store.remove_tree(&key("d")).unwrap());
        through_all(store, &home, &|store| assert_eq!((shown(store), attributes_records(store)), (Vec::new(), 0)));
    }
}

#[test]
fn a_snapshot_has_the_attributes_of_its_time() {
    let sandbox = TempDir::new().unwrap();
    let home = sandbox.path().join("s");
    let store = Store::create(&home, &Plan::default()).unwrap();
    fill(&store);
    store.create_snapshot("zero").unwrap();
    for number in 1..4 {
        set_all(&store, number);
        store.create_snapshot(&number.to_string()).unwrap();
        set_all(&store, number + 10);
    }
    assert!(store.remove_tree(&key("d")).unwrap());
    fill(&store);
    set_all(&store, 20);
    let then = |store: &Store, name: &str| shown_then(&store.snapshot_named(name).unwrap().unwrap());
    let store = through_all(store, &home, &|store| {
        assert_eq!(then(store, "zero"), expected(0));
        (1..4).for_each(|number| assert_eq!(then(store, &number.to_string()), expected(number)));
        assert_eq!(shown(store), expected(20));
    });
    for (name, left) in [("2", &["zero", "1", "3"][..]), ("zero", &["1", "3"]), ("3", &["1"]), ("1", &[])] {
        store.remove_snapshot(name).unwrap();
        compact_all(&store);
        is_sound(&store);
        for name in left {
            assert_eq!(then(&store, name), expected(name.parse().unwrap_or(0)), "{name} of {left:?}");
        }
    }
    assert_eq!(shown(&store), expected(20));
    let live = store.engine().view().state.segments.values().map(|row| row.live_records).sum::<u64>();
    compact_all(&store);
    drop(store);
    let store = rebuild_index(&home, &OpenOptions::default()).unwrap();
    let again = store.engine().view().state.segments.values().map(|row| row.live_records).sum::<u64>();
    assert_eq!((again, shown(&store)), (live, expected(20)));
}

#[test]
fn a_handle_writes_attributes_alone_and_sees_those_of_others() {
    let sandbox = TempDir::new().unwrap();
    let store = Store::create(&sandbox.path().join("s"), &Plan::default()).unwrap();
    fill(&store);
    for size in [20_000, 300_000] {
        let path = key(&format!("d/{size}"));
        let handle = store.open_object(&path, &HandleOptions::write()).unwrap();
        let before = log_bytes(&store);
        handle.set_attributes(&given(7)).unwrap();
        handle.commit(Durability::Batch).unwrap();
        assert!(log_bytes(&store) - before < 400);
        assert_eq!((handle.attributes().unwrap().uid, shown(&store)[0].0.is_empty()), (7, false));
        store.set_attributes(&path, &given(8)).unwrap();
        assert_eq!(handle.attributes().unwrap().xattrs, given(8).xattrs);
        // New content keeps them, and takes their record out.
        let records = attributes_records(&store);
        handle.write_at(b"other", 5).unwrap();
        handle.commit(Durability::Batch).unwrap();
        assert_eq!((handle.attributes().unwrap().xattrs, attributes_records(&store)), (given(8).xattrs, records - 1));
        let mut content = bytes(1, size);
        content[5..10].copy_from_slice(b"other");
        assert_eq!(store.get(&path).unwrap().unwrap(), content);
    }
    is_sound(&store);
}

#[test]
fn lost_attributes_are_reported_and_restored_from_the_index() {
    let sandbox = TempDir::new().unwrap();
    let home = sandbox.path().join("s");
    let store = Store::create(&home, &Plan::default()).unwrap();
    fill(&store);
    set_all(&store, 5);
    let path = key("d/20000");
    let entry = store.entry(&path).unwrap().unwrap().entry;
    let snapshot = store.engine().snapshot();
    let own = snapshot.look_up_path(path.stored()).unwrap().unwrap();
    assert_eq!((own.id, own.attributes_id), (entry.id, entry.attributes_id));
    let directory = store.engine().directory(b"d").unwrap().unwrap();
    let own_key = crate::format::index_key::entry_key(directory, b"20000");
    let record = snapshot.attributes_record(&own_key, own.attributes_id).unwrap().unwrap();
    let segment = store.engine().segment_id(record.location.segment);
    let place = store.engine().devices.place(DeviceNumber(0), &crate::format::names::segment_path(segment));
    drop((snapshot, store));
    let mut damaged = std::fs::read(&place).unwrap();
    damaged[record.location.offset.0 as usize + 60] ^= 1;
    std::fs::write(&place, damaged).unwrap();
    let store = Store::open(&home).unwrap();
    // The content is whole.
    assert_eq!(store.content(&path).map(|_| ()).unwrap_err().kind(), ErrorKind::Corrupt);
    let mut part = Vec::new();
    assert_eq!((store.read_range(&path, 0..20_000, &mut part).unwrap(), part), (Some(20_000), bytes(1, 20_000)));
    drop(store);
    let open = OpenOptions::default();
    let plan = plan_repair(&home, &open, None, &mut |_| {}, &Progress::default()).unwrap();
    let options = RepairOptions { drop_lost: true, ..RepairOptions::default() };
    let report = repair(&home, &open, &plan, options, &mut |_, _| {}, &Progress::default()).unwrap();
    assert_eq!((report.dropped, report.restored_attributes, report.check.problems()), (0, 1, 0), "{report:?}");
    let store = Store::open(&home).unwrap();
    let stat = store.stat(&path).unwrap().unwrap();
    assert_eq!(
        (stat.attributes.uid, stat.attributes.xattrs.len(), store.get(&path).unwrap().unwrap()),
        (5, 0, bytes(1, 20_000))
    );
    is_sound(&store);
}

/// Whoever reads them holds nothing that a writer waits for while it looks again.
#[test]
fn attributes_are_read_and_changed_at_the_same_time() {
    const ROUNDS: u32 = 300;
    let sandbox = TempDir::new().unwrap();
    let store = Store::create(&sandbox.path().join("s"), &Plan::default()).unwrap();
    for name in ["a", "b"] {
        store.put(&key(name), &file(), &bytes(1, 2000)).unwrap();
        store.set_attributes(&key(name), &Attributes { uid: 7, ..file() }).unwrap();
    }
    std::thread::scope(|scope| {
        for name in ["a", "b"] {
            let store = &store;
            scope.spawn(move || {
                for uid in 0..ROUNDS {
                    let mut batch = store.batch(Durability::None);
                    batch.set_attributes(&key(name), &Attributes { uid, ..file() }).unwrap();
                    batch.commit().unwrap();
                }
            });
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    assert_eq!(store.stat(&key(name)).unwrap().unwrap().entry.size_bytes, 2000);
                }
            });
        }
    });
    assert_eq!(store.stat(&key("a")).unwrap().unwrap().attributes.uid, ROUNDS - 1);
}

/// Whether the index shows all attributes of each object; `stat` says the same as reading.
fn plain(store: &Store) -> Vec<(String, bool)> {
    let mut buffer = crate::Buffer::default();
    let listed: Vec<Listed> = store.walk(&Key::root()).unwrap().map(Result::unwrap).collect();
    let mut all = Vec::new();
    for Listed { key, .. } in listed {
        let stat = store.stat(&key).unwrap().unwrap();
        let object = store.read(&key, &mut buffer).unwrap().unwrap();
        assert_eq!((&stat.attributes, stat.entry), (&object.attributes, object.entry), "{key}");
        all.push((key.to_string(), stat.entry.is_plain));
    }
    all
}

#[test]
fn no_record_is_read_for_attributes_that_the_index_shows() {
    use std::os::unix::fs::FileExt;
    let sandbox = TempDir::new().unwrap();
    for (name, home, store) in stores(sandbox.path()) {
        let (early, late) = (Time { seconds: 5, nanoseconds: 6 }, Time { seconds: 7, nanoseconds: 8 });
        let others = [
            ("born", Attributes { btime: Some(early), ctime: Some(late), ..file() }),
            ("read", Attributes { atime: Some(early), ..file() }),
            ("xattr", given(3)),
        ];
        let mut batch = store.batch(Durability::Batch);
        batch.directory(&key("d"), &Attributes::of_directory(early)).unwrap();
        batch.commit().unwrap();
        for (path, size) in [("changed", 2_000), ("file", 2_000), ("linked", 2_000), ("moved", 2_000), ("small", 20)] {
            store.put(&key(&format!("d/{path}")), &file(), &bytes(5, size)).unwrap();
        }
        store.put(&key("d/large"), &file(), &bytes(6, 300_000)).unwrap();
        others.iter().for_each(|(path, attributes)| store.put(&key(path), attributes, b"content").unwrap());
        for (path, is_plain) in plain(&store) {
            assert_eq!(is_plain, path.starts_with('d') && path != "d/large", "{name}: {path}");
        }

        store.set_attributes(&key("d/changed"), &file()).unwrap();
        store.set_attributes(&key("d/small"), &file()).unwrap();
        store.rename(&key("d/moved"), &key("moved"), Existing::Refuse).unwrap();
        store.hard_link(&key("d/linked"), &key("link")).unwrap();
        let expected = plain(&store);
        let still: Vec<&str> = expected.iter().filter(|(_, is)| *is).map(|(path, _)| &path[..]).collect();
        assert_eq!(still, ["d", "d/file"], "what was written again is older than its last change: {name}");
        drop(store);
        let store = rebuild_index(&home, &OpenOptions::default()).unwrap();
        assert_eq!(plain(&store), expected, "{name}");

        // The records themselves are damaged.
        let locations = ["d/file", "xattr"].map(|path| store.entry(&key(path)).unwrap().unwrap().entry.location);
        let engine = store.engine();
        for location in locations {
            let path_in_device = crate::format::names::segment_path(engine.segment_id(location.segment));
            for device in engine.copies(location.segment) {
                let path = engine.devices.place(device, &path_in_device);
                let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
                file.write_all_at(&[0; 40], location.offset.0).unwrap();
            }
        }
        assert_eq!(store.stat(&key("d/file")).unwrap().unwrap().attributes.mode, file().mode, "{name}");
        assert_eq!(store.stat(&key("xattr")).unwrap_err().kind(), ErrorKind::Corrupt, "{name}");
    }
}
