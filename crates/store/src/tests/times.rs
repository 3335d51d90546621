//! Change times and birth times: what alters them, and that nothing else does.

use std::fs;
use std::path::Path;

use super::*;
use crate::format::ids::DeviceNumber;
use crate::{RebuildOptions, RepairOptions, ScrubOptions, plan_repair, repair};

fn at(seconds: i64) -> Time {
    Time { seconds, nanoseconds: 7 }
}

const CHANGED: i64 = 1_000;
const BORN: i64 = -30;

/// Attributes with a change time and a birth time that no clock returned.
fn given(mode: u16) -> Attributes {
    Attributes { mode, ctime: Some(at(CHANGED)), btime: Some(at(BORN)), ..file() }
}

/// Change time and birth time, by key.
type Times = BTreeMap<String, (Time, Time)>;

fn times_of(object: &crate::Object<'_>, listed: &Listed) -> (Time, Time) {
    let (changed, born) = (object.attributes.ctime.unwrap(), object.attributes.btime.unwrap());
    // What a listing shows without reading the record, and what a look-up finds.
    assert_eq!((listed.entry.ctime, object.entry.ctime), (changed, changed), "{}", listed.key);
    (changed, born)
}

fn times(store: &Store) -> Times {
    let mut buffer = crate::Buffer::default();
    let mut all = Times::new();
    for listed in store.walk(&Key::root()).unwrap().map(Result::unwrap) {
        let object = store.read(&listed.key, &mut buffer).unwrap().unwrap();
        all.insert(listed.key.to_string(), times_of(&object, &listed));
    }
    all
}

fn times_then(store: &Store, name: &str) -> Times {
    let snapshot = store.snapshot_named(name).unwrap().unwrap();
    let mut buffer = crate::Buffer::default();
    let mut all = Times::new();
    for listed in snapshot.walk(&Key::root(), &Key::root()).unwrap().map(Result::unwrap) {
        let object = snapshot.read(&listed.key, &mut buffer).unwrap().unwrap();
        all.insert(listed.key.to_string(), times_of(&object, &listed));
    }
    all
}

fn of(store: &Store, path: &str) -> (Time, Time) {
    let status = store.stat(&key(path)).unwrap().unwrap();
    assert_eq!(Some(status.entry.ctime), status.attributes.ctime);
    (status.entry.ctime, status.attributes.btime.unwrap())
}

/// An object of each kind in `d`, with given times, and one without.
fn fill(store: &Store) {
    let mut batch = store.batch(Durability::Batch);
    batch.directory(&Key::root(), &given(0o040_755)).unwrap();
    batch.directory(&key("d"), &given(0o040_755)).unwrap();
    for name in ["file", "one", "other", "single", "written"] {
        batch.put(&key(&format!("d/{name}")), &given(0o100_644), name.as_bytes()).unwrap();
    }
    batch.put(&key("d/large"), &given(0o100_644), &bytes(1, 300_000)).unwrap();
    batch.put(&key("d/large written"), &given(0o100_644), &bytes(2, 300_000)).unwrap();
    batch.directory(&key("d/sub"), &given(0o040_700)).unwrap();
    batch.symlink(&key("d/symlink"), &given(0o120_777), b"to").unwrap();
    batch.special(&key("d/special"), &given(0o020_600), 1, 3).unwrap();
    let shared = batch.shared(&given(0o100_644), &mut &b"shared"[..], None).unwrap();
    batch.link(&key("d/first"), shared).unwrap();
    batch.link(&key("d/second"), shared).unwrap();
    batch.put(&key("d/made/open"), &file(), b"open").unwrap();
    batch.commit().unwrap();
}

/// Writes everything again in one way or another.
fn change_all(store: &Store) {
    store.rename(&key("d/file"), &key("d/renamed"), Existing::Refuse).unwrap();
    store.exchange(&key("d/one"), &key("d/other")).unwrap();
    store.hard_link(&key("d/single"), &key("d/made/double")).unwrap();
    for name in ["d/special", "d/first", "d/large", "d/made"] {
        store.set_attributes(&key(name), &Attributes { uid: 9, ..file() }).unwrap();
    }
    store.rename(&key("d/sub"), &key("sub"), Existing::Refuse).unwrap();
    store.rename(&key("d/symlink"), &key("sub/symlink"), Existing::Refuse).unwrap();
    for name in ["d/written", "d/large written"] {
        let handle = store.open_object(&key(name), &HandleOptions::write()).unwrap();
        handle.write_at(b"other", 2).unwrap();
        handle.close().unwrap();
    }
    store.set_attributes(&Key::root(), &Attributes { uid: 9, ..file() }).unwrap();
}

#[test]
fn what_is_written_again_has_another_change_time_and_is_as_old_as_it_was() {
    let sandbox = TempDir::new().unwrap();
    let store = Store::create(&sandbox.path().join("s"), &Plan::default()).unwrap();
    fill(&store);
    let before = times(&store);
    let open = before["d/made/open"];
    assert_eq!((open.0, before["d/made"]), (open.1, open), "one time for a batch, and for the directories it makes");
    let told = before.iter().filter(|(_, times)| **times == (at(CHANGED), at(BORN)));
    assert_eq!((told.count(), before.len()), (14, 16), "{before:?}");
    change_all(&store);
    let after = times(&store);
    for (path, (changed, born)) in &after {
        // With two names of a file, the file is what changed.
        match &path[..] {
            "d/made" | "d/made/open" => assert_eq!(*born, open.1),
            _ => assert_eq!(*born, at(BORN), "{path}"),
        }
        assert_eq!(*changed == at(CHANGED), path == "d", "{path}");
    }
    assert_eq!((after["d/first"], after["d/single"]), (after["d/second"], after["d/made/double"]));
    assert_eq!(after["d/made/open"], open);
    assert_ne!(after["d/made"].0, open.0);
    // A given time is kept; a replacement is born at its change time.
    let told = Attributes { ctime: Some(at(5)), ..file() };
    store.set_attributes(&key("d/renamed"), &told).unwrap();
    assert_eq!(of(&store, "d/renamed"), (at(5), at(BORN)));
    store.set_attributes(&key("d/renamed"), &Attributes { btime: Some(at(4)), ..told.clone() }).unwrap();
    assert_eq!(of(&store, "d/renamed"), (at(5), at(4)));
    store.put(&key("d/renamed"), &told, b"").unwrap();
    assert_eq!(of(&store, "d/renamed"), (at(5), at(5)));
    store.put(&key("d/renamed"), &file(), b"").unwrap();
    let (changed, born) = of(&store, "d/renamed");
    assert!(changed == born && changed != at(5));
    let beyond = Attributes { ctime: Some(Time { seconds: 1 << 39, nanoseconds: 0 }), ..file() };
    assert_eq!(store.put(&key("d/new"), &beyond, b"").unwrap_err().kind(), ErrorKind::Usage);
}

#[test]
fn open_files_keep_their_birth_time_with_and_without_a_name() {
    let sandbox = TempDir::new().unwrap();
    let store = Store::create(&sandbox.path().join("s"), &Plan::default()).unwrap();
    fill(&store);
    let shown = |handle: &Handle| {
        let attributes = handle.attributes().unwrap();
        (attributes.ctime.unwrap(), attributes.btime.unwrap())
    };
    let handle = store.open_object(&key("d/written"), &HandleOptions::write()).unwrap();
    assert_eq!(shown(&handle), (at(CHANGED), at(BORN)));
    handle.write_at(b"x", 0).unwrap();
    handle.set_attributes(&Attributes { ctime: Some(at(3)), ..file() }).unwrap();
    assert_eq!(shown(&handle), (at(3), at(BORN)), "what is pending shows");
    handle.commit(Durability::None).unwrap();
    assert_eq!((shown(&handle), of(&store, "d/written")), ((at(3), at(BORN)), (at(3), at(BORN))));
    // A given birth time stays, whatever attributes without one follow.
    handle.set_attributes(&Attributes { btime: Some(at(2)), ctime: Some(at(4)), ..file() }).unwrap();
    handle.set_attributes(&Attributes { ctime: Some(at(6)), ..file() }).unwrap();
    handle.commit(Durability::None).unwrap();
    assert_eq!(of(&store, "d/written"), (at(6), at(2)));
    // Without a name, and with a new one.
    assert!(store.remove(&key("d/written")).unwrap());
    assert_eq!(shown(&handle), (at(6), at(2)));
    handle.write_at(b"y", 0).unwrap();
    handle.set_attributes(&Attributes { ctime: Some(at(8)), ..file() }).unwrap();
    handle.link(&key("again")).unwrap();
    let (changed, born) = of(&store, "again");
    assert!(born == at(2) && changed != at(8) && changed != at(6), "{changed:?}");
    assert_eq!(shown(&handle), (changed, born));

    let made = store.create_nameless(&file()).unwrap();
    let (changed, born) = shown(&made);
    assert_eq!(changed, born);
    made.append(b"content").unwrap();
    made.link(&key("made")).unwrap();
    assert_eq!(of(&store, "made").1, born);
    let given = store.create_nameless(&given(0o100_600)).unwrap();
    given.link(&key("given")).unwrap();
    assert_eq!(of(&store, "given").1, at(BORN));
    let options = HandleOptions::write().create_new(Attributes { btime: Some(at(1)), ctime: Some(at(9)), ..file() });
    store.open_object(&key("new"), &options).unwrap().close().unwrap();
    assert_eq!(of(&store, "new"), (at(9), at(1)));
}

/// Flips a byte in the middle of each segment of a device.
fn rot(device: &Path) {
    for entry in fs::read_dir(device.join("segments")).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&path, bytes).unwrap();
    }
}

#[test]
fn nothing_but_a_change_alters_change_and_birth_times() {
    let sandbox = TempDir::new().unwrap();
    let home = sandbox.path().join("s");
    let plan = plans(&home).into_iter().find(|(name, _)| *name == "hybrid").unwrap().1;
    let mut store = Store::create(&home, &plan).unwrap();
    fill(&store);
    let then = times(&store);
    store.create_snapshot("then").unwrap();
    change_all(&store);
    let now = times(&store);
    assert_ne!(then.values().collect::<Vec<_>>(), now.values().collect::<Vec<_>>());
    let is_the_same = |store: &Store, after: &str| {
        assert_eq!(times(store), now, "after {after}");
        assert_eq!(times_then(store, "then"), then, "in the snapshot, after {after}");
    };
    is_the_same(&store, "nothing");
    let index = |device: &str| home.join(device).join("index");
    for round in 0..2 {
        drop(store);
        is_the_same(&Store::open_read_only(&home).unwrap(), "a reader has opened it");
        store = Store::open(&home).unwrap();
        is_the_same(&store, "a writer has opened it");
        let all = CompactOptions { choice: Choice::All, is_alone: true, ..CompactOptions::default() };
        store.compact(&all, &Progress::default()).unwrap();
        is_the_same(&store, "a compaction");
        drop(store);
        store = rebuild_index(&home, &OpenOptions::default()).unwrap();
        is_the_same(&store, "the index was made from the log");
        drop(store);
        for device in ["fast0", "fast1"] {
            let _ = fs::remove_dir_all(index(device));
        }
        is_the_same(&Store::open_read_only(&home).unwrap(), "a reader has read the log");
        store = Store::open(&home).unwrap();
        is_the_same(&store, "a writer has read the log");
        store.compact(&all, &Progress::default()).unwrap();
        rot(&home.join(if round == 0 { "fast0" } else { "fast1" }));
        is_the_same(&store, "damage");
        store.scrub(ScrubOptions::default(), &mut |_, _| {}, &Progress::default()).unwrap();
        is_the_same(&store, "a scrub");
        drop(store);
        rot(&home.join("fast0"));
        let how = OpenOptions::default();
        let planned = plan_repair(&home, &how, None, &mut |_| {}, &Progress::default()).unwrap();
        let options = RepairOptions::default();
        assert!(repair(&home, &how, &planned, options, &mut |_, _| {}, &Progress::default()).unwrap().is_complete);
        store = Store::open(&home).unwrap();
        is_the_same(&store, "a repair");
    }
    drop(store);
    fs::rename(home.join("fast1"), sandbox.path().join("gone")).unwrap();
    store = Store::open(&home).unwrap();
    let options = RebuildOptions { device: DeviceNumber(1), onto: Some(home.join("new")), ..RebuildOptions::default() };
    assert!(store.rebuild(&options, &Progress::default()).unwrap().is_complete);
    fs::rename(home.join("fast0"), sandbox.path().join("gone too")).unwrap();
    drop(store);
    store = Store::open_read_only(&home).unwrap();
    is_the_same(&store, "a device was rebuilt and the other one lost");
}
