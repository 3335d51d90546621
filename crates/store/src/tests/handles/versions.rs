//! Versions of a large object in snapshots: what they share is there once, wherever it moves.

use super::rebuilt::lose;
use super::*;
use crate::RebuildOptions;

const NAMES: [&str; 3] = ["monday", "tuesday", "wednesday"];
const OBJECT_BYTES: usize = 400_000;
/// More than the changes need.
const CHANGED_BYTES: u64 = 100_000;

/// Stores an object, and one that goes; changes a little of the first after each snapshot. Returns its contents, the
/// present one last, and the bytes of extent files when it was alone.
fn store_versions(sandbox: &TempDir, store: &Store, gone_bytes: usize) -> (Vec<Vec<u8>>, u64) {
    let mut contents = vec![bytes(1, OBJECT_BYTES)];
    store.put(&key("f"), &file(), &contents[0]).unwrap();
    let alone_bytes = extent_bytes(sandbox);
    store.put(&key("gone"), &file(), &bytes(2, gone_bytes)).unwrap();
    store.remove(&key("gone")).unwrap();
    for (at, name) in NAMES.iter().enumerate() {
        store.create_snapshot(name).unwrap();
        let offset = 50_000 + at * 100_000;
        let handle = open(store, "f");
        handle.write_at(b"other", offset as u64).unwrap();
        handle.commit(Durability::Batch).unwrap();
        handle.close().unwrap();
        let mut content = contents[at].clone();
        content[offset..offset + 5].copy_from_slice(b"other");
        contents.push(content);
    }
    (contents, alone_bytes)
}

fn are_there(store: &Store, contents: &[Vec<u8>]) {
    let mut buffer = crate::Buffer::default();
    for (name, content) in NAMES.iter().zip(contents) {
        let snapshot = store.snapshot_named(name).unwrap().unwrap();
        let read = snapshot.read(&key("f"), &mut buffer).unwrap().unwrap();
        assert!(read.content == content.as_slice(), "{name}");
    }
    assert!(store.get(&key("f")).unwrap().as_ref() == contents.last());
}

#[test]
fn what_versions_share_moves_once() {
    let sandbox = TempDir::new().unwrap();
    let store = store(&sandbox);
    let (contents, alone_bytes) = store_versions(&sandbox, &store, 10 * OBJECT_BYTES);
    compact(&store);
    let now_bytes = extent_bytes(&sandbox);
    assert!(now_bytes < alone_bytes + CHANGED_BYTES, "{now_bytes} bytes, of which the first has {alone_bytes}");
    are_there(&store, &contents);
    is_sound(&store);
}

#[test]
fn what_is_dead_beside_versions_is_seen() {
    let sandbox = TempDir::new().unwrap();
    let store = store(&sandbox);
    let (contents, alone_bytes) = store_versions(&sandbox, &store, OBJECT_BYTES * 3 / 2);
    let options = |choice, counts_shared_once| CompactOptions { choice, counts_shared_once, ..ALL };
    let live = |options: CompactOptions| -> Vec<u64> {
        let plan = store.plan_compaction(&options).unwrap();
        plan.extents.iter().map(|file| file.live_bytes).filter(|&live| live > 0).collect()
    };
    // Each version counts, and there seem to be more live bytes than there are bytes; but on the device that the first
    // version is not on there may be changed stripes.
    let counted = live(options(Choice::All, false));
    assert!(counted.len() <= 1, "{counted:?}");
    let once = live(options(Choice::Dead(30), true));
    // The objects are on five of six devices each.
    assert!(once.len() >= 4 && once.iter().sum::<u64>() < alone_bytes + CHANGED_BYTES, "{once:?} of {alone_bytes}");
    store.compact(&options(Choice::Dead(30), true), &Progress::default()).unwrap();
    let now_bytes = extent_bytes(&sandbox);
    assert!(now_bytes < alone_bytes + CHANGED_BYTES, "{now_bytes} bytes, of which the first has {alone_bytes}");
    are_there(&store, &contents);
    is_sound(&store);
}

#[test]
fn what_versions_share_is_rebuilt_once() {
    let sandbox = TempDir::new().unwrap();
    let store = store(&sandbox);
    let (contents, _) = store_versions(&sandbox, &store, OBJECT_BYTES);
    let snapshot = store.engine().snapshot().at(store.snapshots().unwrap()[0].sequence);
    let first = store.engine().descriptor(&snapshot.look_up_path(key("f").stored()).unwrap().unwrap()).unwrap();
    let lost = first.runs().next().unwrap().device;
    let first_bytes: u64 = first.runs().filter(|run| run.device == lost).map(|run| run.length_bytes).sum();
    lose(&sandbox, &store, lost);
    let options = RebuildOptions { device: lost, ..RebuildOptions::default() };
    let plan = store.plan_rebuild(&options).unwrap();
    let report = store.rebuild(&options, &Progress::default()).unwrap();
    assert!(report.is_complete && report.bytes == plan.total_bytes(), "{report:?}, {plan:?}");
    assert!(report.bytes < first_bytes + CHANGED_BYTES, "{report:?}, of which the first has {first_bytes}");
    are_there(&store, &contents);
}
