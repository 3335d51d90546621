//! Handles from the outside: all of them read what was written, whatever others do to the object meanwhile, and the
//! store is sound at all times.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::names::is_sound;
use super::{ALL, bytes, file, key};
use crate::access::handle::{LARGEST_BYTES, MOST_PENDING_BYTES};
use crate::error::ErrorKind;
use crate::format::descriptor::{Descriptor, Run};
use crate::{
    Attributes, Batch, CheckOptions, Choice, CompactOptions, Compression, Durability, Existing, Handle, HandleOptions,
    Holes, Key, Kind, OpenOptions, Plan, Progress, Store, Time, rebuild_index,
};

mod crashes;
mod large;
mod laws;
mod losses;
mod nameless;
mod rebuilt;
mod room;
mod striped;
mod tail;
mod versions;

/// Objects above 8 KiB are in stripes of 16 KiB with parity, on five of six devices.
fn plan(sandbox: &Path, compression: Compression) -> Plan {
    Plan {
        fast: vec![sandbox.join("fast")],
        slow: (0..6).map(|at| sandbox.join(format!("slow{at}"))).collect(),
        parity: Some(1),
        stripe_unit_bytes: 4096,
        cutoff_bytes: 8192,
        segment_bytes: 1 << 20,
        compression,
        ..Plan::default()
    }
}

fn store(sandbox: &TempDir) -> Store {
    Store::create(&sandbox.path().join("s"), &plan(sandbox.path(), Compression::None)).unwrap()
}

fn open(store: &Store, path: &str) -> Handle {
    store.open_object(&key(path), &HandleOptions::write()).unwrap()
}

fn read(handle: &Handle) -> Vec<u8> {
    let mut content = vec![7; handle.size_bytes().unwrap() as usize + 10];
    let read = handle.read_at(&mut content, 0).unwrap();
    assert_eq!(read + 10, content.len());
    content.truncate(read);
    content
}

fn compact(store: &Store) {
    store.compact(&ALL, &Progress::default()).unwrap();
}

pub(super) fn descriptor(store: &Store, path: &str) -> Descriptor {
    store.engine().descriptor(&store.entry(&key(path)).unwrap().unwrap().entry).unwrap()
}

/// Files below the devices' directories of extents, with their sizes.
fn extent_files(sandbox: &TempDir) -> BTreeMap<PathBuf, u64> {
    let listed = |at: usize| std::fs::read_dir(sandbox.path().join(format!("slow{at}/extents"))).into_iter().flatten();
    (0..6)
        .flat_map(listed)
        .map(|file| file.unwrap())
        .map(|file| (file.path(), file.metadata().unwrap().len()))
        .collect()
}

fn extent_bytes(sandbox: &TempDir) -> u64 {
    extent_files(sandbox).values().sum()
}

#[test]
fn a_file_is_made_written_and_read_by_all_its_handles() {
    let sandbox = TempDir::new().unwrap();
    let store = store(&sandbox);
    assert_eq!(store.open_object(&key("a"), &HandleOptions::write()).unwrap_err().kind(), ErrorKind::NotFound);
    let making = HandleOptions::write().create_new(file());
    let one = store.open_object(&key("a"), &making).unwrap();
    assert_eq!(store.open_object(&key("a"), &making).unwrap_err().kind(), ErrorKind::Exists);
    assert_eq!(store.open_object(&key("d/a"), &making).unwrap_err().kind(), ErrorKind::NotFound);
    let other = store.open_object(&key("a"), &HandleOptions::read()).unwrap();
    one.write_at(b"hello", 3).unwrap();
    assert_eq!(one.append(b"!").unwrap(), 8);
    assert_eq!(read(&other), b"\0\0\0hello!");
    assert_eq!(store.get(&key("a")).unwrap().unwrap(), b"", "not committed");
    assert_eq!(other.write_at(b"x", 0).unwrap_err().kind(), ErrorKind::ReadOnly);
    one.set_attributes(&Attributes { uid: 12, ..file() }).unwrap();
    assert_eq!((other.attributes().unwrap().uid, other.number()), (12, one.number()));
    one.commit(Durability::Batch).unwrap();
    assert_eq!(store.get(&key("a")).unwrap().unwrap(), b"\0\0\0hello!");
    assert_eq!(store.stat(&key("a")).unwrap().unwrap().attributes.uid, 12);
    let again = store.open_object(&key("a"), &HandleOptions::write().truncate()).unwrap();
    assert_eq!((read(&one), again.size_bytes().unwrap()), (Vec::new(), 0));
    again.close().unwrap();
    assert_eq!(store.get(&key("a")).unwrap().unwrap(), b"");
    // Dropping it commits.
    one.write_at(b"late", 0).unwrap();
    drop((one, other));
    assert_eq!(store.get(&key("a")).unwrap().unwrap(), b"late");
    assert_eq!(store.engine().open_files.count(), 0);
    is_sound(&store);
}

#[test]
fn what_cannot_be_is_refused() {
    let sandbox = TempDir::new().unwrap();
    let store = store(&sandbox);
    store.put(&key("d/f"), &file(), b"content").unwrap();
    let mut batch = store.batch(Durability::Batch);
    batch.symlink(&key("d/s"), &file(), b"f").unwrap();
    batch.commit().unwrap();
    for path in ["d", "d/s"] {
        for options in [HandleOptions::read(), HandleOptions::write().create(file())] {
            assert_eq!(store.open_object(&key(path), &options).unwrap_err().kind(), ErrorKind::Usage, "{path}");
        }
    }
    assert_eq!(store.open_object(&Key::root(), &HandleOptions::read()).unwrap_err().kind(), ErrorKind::Usage);
    let handle = open(&store, "d/f");
    assert_eq!(handle.write_at(b"x", LARGEST_BYTES).unwrap_err().kind(), ErrorKind::Usage);
    assert_eq!(handle.write_at(b"x", u64::MAX).unwrap_err().kind(), ErrorKind::Usage);
    assert_eq!(handle.set_len(u64::MAX).unwrap_err().kind(), ErrorKind::Usage);
    let xattrs = vec![(b"b".to_vec(), Vec::new()), (b"a".to_vec(), Vec::new())];
    assert_eq!(handle.set_attributes(&Attributes { xattrs, ..file() }).unwrap_err().kind(), ErrorKind::Usage);
    assert_eq!(handle.link(&key("d/g")).unwrap_err().kind(), ErrorKind::Usage, "it has a name");
    assert_eq!(read(&handle), b"content");
    let reader = Store::open_read_only(&sandbox.path().join("s")).unwrap();
    assert_eq!(reader.open_object(&key("d/f"), &HandleOptions::write()).unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(reader.create_nameless(&file()).unwrap_err().kind(), ErrorKind::ReadOnly);
    let seen = reader.open_object(&key("d/f"), &HandleOptions::read()).unwrap();
    assert_eq!(read(&seen), b"content");
    // It sees what the writer commits.
    handle.write_at(&bytes(1, 50_000), 0).unwrap();
    handle.commit(Durability::Batch).unwrap();
    reader.refresh().unwrap();
    assert_eq!(read(&seen), bytes(1, 50_000));
    // Under a new name once that is met, and from then on with every name.
    store.rename(&key("d/f"), &key("d/g"), Existing::Replace).unwrap();
    handle.write_at(&bytes(2, 50_000), 0).unwrap();
    handle.commit(Durability::Batch).unwrap();
    reader.refresh().unwrap();
    let met = reader.open_object(&key("d/g"), &HandleOptions::read()).unwrap();
    assert_eq!((read(&seen), read(&met)), (bytes(2, 50_000), bytes(2, 50_000)));
    store.hard_link(&key("d/g"), &key("d/h")).unwrap();
    handle.write_at(&bytes(3, 50_000), 0).unwrap();
    handle.commit(Durability::Batch).unwrap();
    reader.refresh().unwrap();
    assert_eq!(read(&seen), bytes(3, 50_000));
    met.close().unwrap();
    seen.close().unwrap();
}

#[test]
fn a_handle_follows_its_object() {
    let sandbox = TempDir::new().unwrap();
    let store = store(&sandbox);
    for (path, size) in [("d/small", 100), ("d/large", 100_000)] {
        let mut content = bytes(1, size);
        store.put(&key(path), &file(), &content).unwrap();
        let handle = open(&store, path);
        let mut change = |at: usize, store: &Store, path: &str| {
            assert_eq!(read(&handle), content);
            handle.write_at(&[at as u8; 5], at as u64 * 10).unwrap();
            content[at * 10..at * 10 + 5].fill(at as u8);
            handle.commit(Durability::None).unwrap();
            assert_eq!(store.get(&key(path)).unwrap().unwrap(), content, "{path}");
            is_sound(store);
        };
        let mut batch = store.batch(Durability::None);
        batch.directory(&key("e"), &Attributes::of_directory(Time::default())).unwrap();
        batch.commit().unwrap();
        store.rename(&key(path), &key("e/one"), Existing::Replace).unwrap();
        change(0, &store, "e/one");
        store.rename(&key("e"), &key("g"), Existing::Replace).unwrap();
        change(1, &store, "g/one");
        store.hard_link(&key("g/one"), &key("g/two")).unwrap();
        change(2, &store, "g/two");
        store.remove(&key("g/one")).unwrap();
        change(3, &store, "g/two");
        store.set_attributes(&key("g/two"), &Attributes { gid: 3, ..file() }).unwrap();
        change(4, &store, "g/two");
        compact(&store);
        change(5, &store, "g/two");
        store.put(&key("other"), &file(), b"other").unwrap();
        store.exchange(&key("g/two"), &key("other")).unwrap();
        change(6, &store, "other");
        assert_eq!(store.stat(&key("other")).unwrap().unwrap().attributes.gid, 3);
        handle.close().unwrap();
        store.remove_tree(&key("g")).unwrap();
        store.remove(&key("other")).unwrap();
    }
}

#[test]
fn what_a_batch_puts_is_below_what_is_pending() {
    let sandbox = TempDir::new().unwrap();
    let store = store(&sandbox);
    for size in [50, 50_000] {
        store.put(&key("f"), &file(), &bytes(1, size)).unwrap();
        let handle = open(&store, "f");
        handle.write_at(b"mine", 10).unwrap();
        let mut content = bytes(2, 60_000);
        store.put(&key("f"), &file(), &content).unwrap();
        content[10..14].copy_from_slice(b"mine");
        assert_eq!(read(&handle), content);
        // A size that was set stays.
        handle.set_len(100).unwrap();
        store.put(&key("f"), &file(), &bytes(3, 70_000)).unwrap();
        let mut content = bytes(3, 100);
        content[10..14].copy_from_slice(b"mine");
        handle.close().unwrap();
        assert_eq!(store.get(&key("f")).unwrap().unwrap(), content);
        is_sound(&store);
    }
}

#[test]
fn pending_bytes_are_bounded_and_come_into_the_store_by_themselves() {
    let sandbox = TempDir::new().unwrap();
    let store = store(&sandbox);
    let handle = store.open_object(&key("f"), &HandleOptions::write().create(file())).unwrap();
    let content = bytes(1, 20 << 20);
    handle.write_at(&content, 0).unwrap();
    assert!(handle.pending_bytes() <= MOST_PENDING_BYTES);
    assert!(store.entry(&key("f")).unwrap().unwrap().entry.size_bytes >= 12 << 20);
    assert!(read(&handle) == content);
    (0..200_000).for_each(|at| handle.write_at(b"x", at * 97).unwrap());
    assert!(handle.pending_bytes() <= MOST_PENDING_BYTES);
    let mut expected = content;
    (0..200_000).for_each(|at| expected[at * 97] = b'x');
    assert!(read(&handle) == expected);
    handle.close().unwrap();
    assert!(store.get(&key("f")).unwrap().unwrap() == expected);
    is_sound(&store);
}

#[test]
fn objects_become_records_and_stripes_as_they_grow_and_shrink() {
    let sandbox = TempDir::new().unwrap();
    let store = store(&sandbox);
    let handle = store.open_object(&key("f"), &HandleOptions::write().create(file())).unwrap();
    let kind = || store.entry(&key("f")).unwrap().unwrap().entry.kind;
    let mut model = Vec::new();
    for (size, expected) in
        [(8192, Kind::File), (8193, Kind::Large), (100_000, Kind::Large), (8192, Kind::File), (0, Kind::File)]
    {
        if size > model.len() {
            let more = bytes(size as u64, size - model.len());
            handle.append(&more).unwrap();
            model.extend(more);
        } else {
            handle.set_len(size as u64).unwrap();
            model.truncate(size);
        }
        handle.commit(Durability::None).unwrap();
        assert_eq!((kind(), &read(&handle)), (expected, &model));
        assert_eq!(store.get(&key("f")).unwrap().unwrap(), model);
        is_sound(&store);
    }
    let live: u64 = store.engine().view().state.extents.values().map(|row| row.live_bytes).sum();
    assert_eq!(live, 0);
    // For distant writes, the stored bytes count.
    handle.write_at(b"end", 1 << 40).unwrap();
    handle.commit(Durability::Batch).unwrap();
    let holes = Holes { size_bytes: (1 << 40) + 3, data: vec![(1 << 40, 3)] };
    assert_eq!((kind(), handle.attributes().unwrap().holes), (Kind::File, Some(holes)));
    is_sound(&store);
}

#[test]
fn threads_write_through_handles_and_batches_side_by_side() {
    const ROUNDS: u64 = 60;
    let sandbox = TempDir::new().unwrap();
    let store = store(&sandbox);
    store.put(&key("f"), &file(), &vec![0; 60_000]).unwrap();
    store.put(&key("log"), &file(), b"").unwrap();
    std::thread::scope(|scope| {
        for thread in 0..2_u64 {
            let store = &store;
            scope.spawn(move || {
                let (handle, log) = (open(store, "f"), open(store, "log"));
                for round in 0..ROUNDS {
                    handle.write_at(&[thread as u8 + 1; 16], (thread * ROUNDS + round) * 500).unwrap();
                    log.append(&[thread as u8; 10]).unwrap();
                    handle.commit(Durability::None).unwrap();
                    open_again(&handle, store, round);
                }
            });
        }
        let store = &store;
        scope.spawn(move || {
            for round in 0..ROUNDS {
                let mut batch: Batch<'_> = store.batch(Durability::None);
                batch.put(&key(&format!("other{}", round % 5)), &file(), &bytes(round, 20_000)).unwrap();
                batch.set_attributes(&key("f"), &Attributes { uid: round as u32, ..file() }).unwrap();
                batch.commit().unwrap();
                if round % 20 == 7 {
                    compact_beside(store);
                }
            }
        });
    });
    let mut expected = vec![0; 60_000];
    for at in 0..2 * ROUNDS as usize {
        expected[at * 500..at * 500 + 16].fill(1 + (at / ROUNDS as usize) as u8);
    }
    assert!(store.get(&key("f")).unwrap().unwrap() == expected);
    let log = store.get(&key("log")).unwrap().unwrap();
    assert_eq!(log.len() as u64, 2 * ROUNDS * 10);
    assert!(log.chunks(10).all(|piece| piece.iter().all(|byte| byte == &piece[0])), "an append is in one piece");
    is_sound(&store);
}

fn compact_beside(store: &Store) {
    store.compact(&CompactOptions { is_alone: false, ..ALL }, &Progress::default()).unwrap();
}

/// Sometimes opens the object of a handle again by its name and closes that.
fn open_again(handle: &Handle, store: &Store, round: u64) {
    if round.is_multiple_of(7) {
        let other = open(store, "f");
        assert_eq!(other.number(), handle.number());
        other.close().unwrap();
    }
}

#[test]
fn what_could_not_be_committed_stays_pending() {
    let sandbox = TempDir::new().unwrap();
    let store = store(&sandbox);
    let content = bytes(1, 100_000);
    store.put(&key("f"), &file(), &content).unwrap();
    let handle = open(&store, "f");
    // Two devices with units of a stripe are lost: it cannot be read, so it cannot be written in part either.
    handle.write_at(b"new", 50_000).unwrap();
    let runs: Vec<Run> = descriptor(&store, "f").runs().take(2).collect();
    let places = runs.iter().map(|run| store.engine().extents.place(run.device, run.file));
    let kept: Vec<(PathBuf, Vec<u8>)> = places.map(|place| (place.clone(), std::fs::read(place).unwrap())).collect();
    kept.iter().for_each(|(place, there)| std::fs::write(place, vec![1; there.len()]).unwrap());
    assert_eq!(handle.commit(Durability::None).unwrap_err().kind(), ErrorKind::Lost);
    kept.iter().for_each(|(place, there)| std::fs::write(place, there).unwrap());
    handle.commit(Durability::Batch).unwrap();
    let mut expected = content;
    expected[50_000..50_003].copy_from_slice(b"new");
    assert_eq!(store.get(&key("f")).unwrap().unwrap(), expected);
    is_sound(&store);
    drop(handle);
    drop(store);
    let home = sandbox.path().join("s");
    let store = rebuild_index(&home, &OpenOptions::default()).unwrap();
    assert_eq!(store.get(&key("f")).unwrap().unwrap(), expected);
    is_sound(&store);
}

#[test]
fn what_is_taken_back_leaves_what_was_pending_before() {
    let sandbox = TempDir::new().unwrap();
    let store = store(&sandbox);
    for size in [5000, 100_000] {
        store.put(&key("f"), &file(), &bytes(1, size)).unwrap();
        let handle = open(&store, "f");
        let owned = |uid| Attributes { uid, ..file() };
        // Cut, longer again, with a hole, and written to.
        handle.set_len(3000).unwrap();
        handle.zero_range(2000..4500).unwrap();
        handle.write_at(b"before", 4000).unwrap();
        handle.set_attributes(&owned(7)).unwrap();
        let mut expected = bytes(1, 2000);
        expected.resize(4500, 0);
        expected[4000..4006].copy_from_slice(b"before");
        let change = || {
            let saved = handle.save_pending();
            handle.write_at(b"after", 1000).unwrap();
            handle.punch_hole(0..500).unwrap();
            handle.set_len(4002).unwrap();
            handle.set_attributes(&owned(8)).unwrap();
            assert!(read(&handle) != expected);
            saved
        };
        handle.restore_pending(change());
        assert!(read(&handle) == expected, "{size} bytes");
        assert_eq!(handle.zero_range(0..LARGEST_BYTES + 1).unwrap_err().kind(), ErrorKind::Usage);
        // It was committed meanwhile: over itself, it is the same.
        let saved = handle.save_pending();
        handle.commit(Durability::None).unwrap();
        assert!(store.get(&key("f")).unwrap().unwrap() == expected);
        handle.restore_pending(saved);
        assert!(read(&handle) == expected, "{size} bytes");
        handle.restore_pending(change());
        handle.close().unwrap();
        assert!(store.get(&key("f")).unwrap().unwrap() == expected);
        assert_eq!(store.stat(&key("f")).unwrap().unwrap().attributes.uid, 7);
        is_sound(&store);
    }
}
