//! An open store from the outside: what is stored is returned, by this handle and the next, under every geometry.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::OpenOptions;
use crate::engine::locking::Access;
use crate::engine::open::open_here;
use crate::error::ErrorKind;
use crate::format::ids::LogOffset;
use crate::random::Random;

mod acknowledged;
mod attributes;
mod bucket_requests;
mod buckets;
mod copying;
mod devices;
mod divergence;
mod dropping;
mod ends;
mod full;
mod garbage;
mod giving_up;
mod handles;
mod leases;
mod lost_copies;
mod merges;
mod names;
mod old_catalog;
mod old_superblocks;
mod opening;
mod passes;
mod pins;
mod postponed;
mod proven;
mod reads;
mod rebuilding;
mod replaced;
mod snapshots;
mod times;
mod twins;
mod two_writers;
mod unpinned;
mod versions;

/// A compaction of everything, alone.
pub(super) const ALL: CompactOptions = CompactOptions {
    choice: Choice::All,
    is_alone: true,
    alignment: None,
    bytes_per_second: None,
    counts_shared_once: false,
};

pub(super) fn key(path: &str) -> Key {
    Key::parse(path).unwrap()
}

pub(super) fn file() -> Attributes {
    Attributes::of_file(Time { seconds: 5, nanoseconds: 6 })
}

pub(super) fn bytes(seed: u64, length: usize) -> Vec<u8> {
    Random::new(seed).bytes(length)
}

/// Paths below a directory for devices of a class.
fn devices_below(directory: &std::path::Path, class: &str, count: usize) -> Vec<std::path::PathBuf> {
    (0..count).map(|at| directory.join(format!("{class}{at}"))).collect()
}

/// Plans, by name, with directories below `home`.
fn plans(home: &std::path::Path) -> Vec<(&'static str, Plan)> {
    let devices = |class: &str, count: usize| devices_below(home, class, count);
    vec![
        ("one directory", Plan::default()),
        ("mirror", Plan { fast: devices("fast", 2), ..Plan::default() }),
        ("hybrid", Plan { fast: devices("fast", 2), slow: devices("slow", 4), ..Plan::default() }),
        (
            "raid6",
            Plan {
                fast: devices("fast", 3),
                slow: devices("slow", 5),
                copies: Some(3),
                parity: Some(2),
                ..Plan::default()
            },
        ),
        ("zstd", Plan { compression: Compression::Zstd(3), ..Plan::default() }),
    ]
}

/// A new store by each plan, with its name and home: one after the other, as they have devices in the same place.
fn stores(sandbox: &std::path::Path) -> impl Iterator<Item = (&'static str, std::path::PathBuf, Store)> {
    plans(sandbox).into_iter().map(move |(name, plan)| {
        let home = sandbox.join(format!("home of {name}"));
        for device in plan.fast.iter().chain(&plan.slow) {
            let _ = std::fs::remove_dir_all(device);
        }
        let store = Store::create(&home, &plan).unwrap();
        (name, home, store)
    })
}

const SIZES: [usize; 14] =
    [0, 1, 100, 4095, 4096, 8191, 8193, 20_000, 65_535, 65_536, 65_537, 70_000, 300_000, 3_000_000];

#[test]
fn what_is_put_is_got_now_and_by_the_next() {
    let sandbox = TempDir::new().unwrap();
    for (name, home, store) in stores(sandbox.path()) {
        for (at, size) in SIZES.into_iter().enumerate() {
            store.put(&key(&format!("d{}/f{at}", at % 3)), &file(), &bytes(at as u64, size)).unwrap();
        }
        let check = |store: &Store| {
            for (at, size) in SIZES.into_iter().enumerate() {
                let key = key(&format!("d{}/f{at}", at % 3));
                let content = bytes(at as u64, size);
                assert_eq!(store.get(&key).unwrap().as_ref(), Some(&content), "{name}: {size} bytes");
                let (from, to) = (size as u64 / 3, size as u64 * 2 / 3 + 1);
                let mut part = Vec::new();
                store.read_range(&key, from..to, &mut part).unwrap();
                assert_eq!(part, content[from as usize..(to as usize).min(size)], "{name}: part of {size} bytes");
                let found = store.stat(&key).unwrap().unwrap().attributes;
                assert_eq!(Attributes { ctime: None, btime: None, ..found }, file());
                assert_eq!(store.entry(&key).unwrap().unwrap().entry.size_bytes, size as u64);
            }
            let walked: Vec<String> =
                store.walk(&Key::root()).unwrap().map(|found| found.unwrap().key.to_string()).collect();
            assert_eq!(walked.len(), SIZES.len() + 3);
            assert!(walked.is_sorted());
        };
        check(&store);
        assert_eq!(Store::open(&home).unwrap_err().kind(), ErrorKind::Busy);
        check(&Store::open_read_only(&home).unwrap());
        drop(store);
        let store = Store::open(&home).unwrap();
        check(&store);
        assert_eq!(*store.recovered(), Recovered::default());
        drop(store);
        drop(open_here(&home, Access::RebuildIndex, &OpenOptions::default()).unwrap());
        check(&Store::open(&home).unwrap());
    }
}

#[test]
fn directories_links_and_removals() {
    let sandbox = TempDir::new().unwrap();
    let store = Store::create(&sandbox.path().join("s"), &Plan::default()).unwrap();
    let mut batch = store.batch(Durability::Batch);
    let shared = batch.shared(&file(), &mut &b"one file"[..], None).unwrap();
    batch.link(&key("a/first"), shared).unwrap();
    batch.link(&key("b/second"), shared).unwrap();
    batch.symlink(&key("a/link"), &file(), b"../b").unwrap();
    batch.put(&key("a/deep/er/file"), &file(), b"content").unwrap();
    batch.commit().unwrap();
    assert_eq!(store.stat(&key("a/first")).unwrap().unwrap().names, 2);
    assert_eq!(store.get(&key("b/second")).unwrap().unwrap(), b"one file");
    let names: Vec<String> = store.list(&key("a")).unwrap().map(|found| found.unwrap().key.to_string()).collect();
    assert_eq!(names, ["a/deep", "a/first", "a/link"]);
    assert!(store.remove(&key("a/first")).unwrap());
    assert!(!store.remove(&key("a/first")).unwrap());
    assert_eq!(store.get(&key("b/second")).unwrap().unwrap(), b"one file");
    assert_eq!(store.remove(&key("a")).unwrap_err().kind(), ErrorKind::Usage);
    assert!(store.remove_tree(&key("a")).unwrap());
    assert_eq!(store.get(&key("a/deep/er/file")).unwrap(), None);
    assert_eq!(store.list(&key("a")).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(store.put(&key("b/second/below"), &file(), b"").unwrap_err().kind(), ErrorKind::Exists);
    assert_eq!(store.put(&key("b"), &file(), b"").unwrap_err().kind(), ErrorKind::Exists);
    assert!(store.remove(&key("b/second")).unwrap());
    assert!(store.engine().view().state.shared.is_empty());
    let live: u64 = store.engine().view().state.segments.values().map(|row| row.live_records).sum();
    assert_eq!(live, 1, "only the directory b is left");
}

#[test]
fn the_root_stays_with_its_attributes_when_all_below_it_goes() {
    let sandbox = TempDir::new().unwrap();
    let home = sandbox.path().join("s");
    let store = Store::create(&home, &Plan::default()).unwrap();
    let at = |seconds| Time { seconds, nanoseconds: 0 };
    let (ctime, btime) = (Some(at(10)), Some(at(8)));
    let attributes = Attributes { mode: 0o40_711, uid: 7, ctime, btime, ..Attributes::of_directory(at(9)) };
    let mut batch = store.batch(Durability::Batch);
    batch.directory(&Key::root(), &attributes).unwrap();
    (0..200).for_each(|at| batch.put(&key(&format!("d/f{at}")), &file(), b"content").unwrap());
    batch.commit().unwrap();
    let is_as_it_should = |store: &Store| {
        assert_eq!(store.stat(&Key::root()).unwrap().unwrap().attributes, attributes);
        assert_eq!(
            store.walk(&Key::root()).unwrap().map(|found| found.unwrap().key).collect::<Vec<_>>(),
            [Key::root()]
        );
        let live: u64 = store.engine().view().state.segments.values().map(|row| row.live_records).sum();
        assert_eq!(live, 1);
    };
    assert!(store.remove_tree(&Key::root()).unwrap());
    is_as_it_should(&store);
    store.engine().merge_all().unwrap();
    is_as_it_should(&store);
    drop(store);
    is_as_it_should(&Store::open(&home).unwrap());
    drop(open_here(&home, Access::RebuildIndex, &OpenOptions::default()).unwrap());
    is_as_it_should(&Store::open(&home).unwrap());
    // A later change in the same batch follows it.
    let store = Store::open(&home).unwrap();
    let mut batch = store.batch(Durability::Batch);
    batch.remove_tree(&Key::root()).unwrap();
    batch.directory(&Key::root(), &attributes).unwrap();
    batch.put(&key("after"), &file(), b"content").unwrap();
    batch.commit().unwrap();
    assert_eq!(store.get(&key("after")).unwrap().unwrap(), b"content");
}

#[test]
fn what_went_with_a_tree_is_gone_for_the_same_batch() {
    let sandbox = TempDir::new().unwrap();
    let store = Store::create(&sandbox.path().join("s"), &Plan::default()).unwrap();
    for path in ["a/b", "a/c/d", "ab", "e"] {
        store.put(&key(path), &file(), b"content").unwrap();
    }
    let mut batch = store.batch(Durability::Batch);
    assert!(batch.remove_tree(&key("a")).unwrap());
    for path in ["a/b", "a/c/d", "a/c", "a"] {
        assert!(!batch.remove(&key(path)).unwrap(), "{path} was there");
    }
    assert!(batch.remove(&key("ab")).unwrap());
    assert!(batch.remove_tree(&Key::root()).unwrap());
    assert!(!batch.remove(&key("e")).unwrap());
    batch.put(&key("e"), &file(), b"again").unwrap();
    assert!(batch.remove(&key("e")).unwrap());
    batch.commit().unwrap();
    assert!(store.list(&Key::root()).unwrap().next().is_none());
}

#[test]
fn a_shared_file_and_its_first_name_are_in_one_piece_of_the_log() {
    use crate::log::scan::{ScanStep, SegmentScan};
    let sandbox = TempDir::new().unwrap();
    let plan = Plan { cutoff_bytes: 16 << 20, segment_bytes: 1 << 30, ..Plan::default() };
    let store = Store::create(&sandbox.path().join("s"), &plan).unwrap();
    const ROUNDS: usize = 14;
    for round in 0..ROUNDS {
        // Sizes around the one at which a piece is full.
        let mut batch = store.batch(Durability::None);
        batch.put(&key("filler"), &file(), &vec![7; (8 << 20) - 48 - 220 + 16 * round]).unwrap();
        let number = batch.shared(&file(), &mut &b"one file"[..], None).unwrap();
        batch.link(&key(&format!("name{round}")), number).unwrap();
        batch.commit().unwrap();
    }
    let mut batch = store.batch(Durability::Each);
    let number = batch.shared(&file(), &mut &b"one file"[..], None).unwrap();
    batch.link(&key("each"), number).unwrap();
    batch.commit().unwrap();
    let (mut nameless, mut files, mut pieces) = (None, 0, 0);
    let rows = store.engine().view().state.segments.clone();
    for row in rows.values() {
        let copies = store.engine().open_copies(row.id(), &row.devices);
        let mut scan = SegmentScan::new(copies, store.engine().seed(row.id()), LogOffset::START);
        while let Some(ScanStep::Record(_, record, _) | ScanStep::Commit(_, record, _)) = scan.next(false) {
            match record.head.kind {
                Kind::File if record.head.name.is_none() => {
                    nameless = Some(record.head.key());
                    files += 1;
                }
                Kind::Link => nameless = None,
                Kind::Commit => {
                    pieces += 1;
                    assert_eq!(nameless, None, "a file without a name is committed");
                }
                _ => {}
            }
        }
    }
    assert!(files == ROUNDS + 1 && pieces > ROUNDS + 2, "{files} files in {pieces} pieces");
}

#[test]
fn the_content_of_a_file_comes_in_pieces_without_its_holes() {
    let sandbox = TempDir::new().unwrap();
    for (name, _, store) in stores(sandbox.path()) {
        for (at, size) in SIZES.into_iter().chain([13_000_000]).enumerate() {
            let content = bytes(at as u64, size);
            // A hole precedes each third of the content.
            let (mut data, mut end, mut left) = (Vec::new(), 0, size as u64);
            while left > 0 {
                let length = (size as u64 / 3 + 1).min(left);
                data.push((end + 5000, length));
                (end, left) = (end + 5000 + length, left - length);
            }
            let sparse = Attributes { holes: Some(Holes { size_bytes: end + 3_000, data }), ..file() };
            store.put(&key("plain"), &file(), &content).unwrap();
            store.put(&key("sparse"), &sparse, &content).unwrap();
            for path in ["plain", "sparse"] {
                let expected = store.get(&key(path)).unwrap().unwrap();
                let total = expected.len() as u64;
                for from in [0, 1, 4096, total / 2, total].map(|from| from.min(total)) {
                    let mut read = vec![0; expected.len()];
                    let mut pieces = store.content(&key(path)).unwrap().unwrap();
                    pieces.seek(from);
                    let mut data_bytes = 0;
                    while let Some((at, piece)) = pieces.next_piece().unwrap() {
                        assert!(at >= from && !piece.is_empty());
                        read[at as usize..at as usize + piece.len()].copy_from_slice(piece);
                        data_bytes += piece.len();
                    }
                    assert!(read[from as usize..] == expected[from as usize..], "{name}: {path} of {size} from {from}");
                    assert!(from > 0 || data_bytes == size, "holes are no data");
                }
            }
        }
        assert!(store.content(&key("nothing")).unwrap().is_none());
        store.put(&key("d/f"), &file(), b"content").unwrap();
        assert!(store.content(&key("d")).unwrap().unwrap().next_piece().unwrap().is_none());
    }
}

#[test]
fn a_giant_object_is_read_in_pieces_and_not_whole() {
    let sandbox = TempDir::new().unwrap();
    let store = Store::create(&sandbox.path().join("s"), &Plan::default()).unwrap();
    for (path, content) in [("record", &b"end"[..]), ("large", &[3; 100_000])] {
        let length = content.len() as u64;
        let holes = Holes { size_bytes: 1 << 40, data: vec![((1 << 40) - length, length)] };
        store.put(&key(path), &Attributes { holes: Some(holes), ..file() }, content).unwrap();
        let said = store.get(&key(path)).unwrap_err();
        assert_eq!(said.kind(), ErrorKind::Usage);
        assert!(said.to_string().contains("1 TiB") && said.to_string().contains("Store::read_range"), "{said}");
        let many = std::sync::Mutex::new(Vec::new());
        store.get_many(&[key(path)], 4, |_, read| many.lock().unwrap().push(read.map(|_| ()).unwrap_err().kind()));
        assert_eq!(*many.lock().unwrap(), [ErrorKind::Usage]);
        let mut end = Vec::new();
        store.read_range(&key(path), (1 << 40) - length..1 << 40, &mut end).unwrap();
        assert_eq!(end, content);
        let mut pieces = store.content(&key(path)).unwrap().unwrap();
        assert_eq!(pieces.next_piece().unwrap(), Some(((1 << 40) - length, content)));
        assert_eq!(pieces.next_piece().unwrap(), None);
    }
}

/// An operation on a store.
#[derive(Debug, Clone)]
enum Deed {
    Put(usize, usize),
    Remove(usize),
    RemoveTree(usize),
    Sync,
    Reopen,
    RebuildIndex,
    Merge,
}

fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        8 => (0..24usize, 0..SIZES.len() - 1).prop_map(|(name, size)| Deed::Put(name, size)),
        3 => (0..24usize).prop_map(Deed::Remove),
        1 => (0..5usize).prop_map(Deed::RemoveTree),
        1 => Just(Deed::Sync),
        1 => Just(Deed::Reopen),
        1 => Just(Deed::RebuildIndex),
        1 => Just(Deed::Merge),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn it_is_like_a_map(deeds in proptest::collection::vec(deed(), 1..60)) {
        let sandbox = TempDir::new().unwrap();
        let home = sandbox.path().join("s");
        let mut store = Store::create(&home, &Plan { segment_bytes: 1 << 20, ..Plan::default() }).unwrap();
        let mut model: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        for (at, deed) in deeds.into_iter().enumerate() {
            let mut batch = store.batch(Durability::None);
            match deed {
                Deed::Put(name, size) => {
                    let path = format!("d{}/f{name}", name % 4);
                    let content = bytes(at as u64, SIZES[size]);
                    batch.put(&key(&path), &file(), &content).unwrap();
                    model.insert(path, content);
                }
                Deed::Remove(name) => {
                    let path = format!("d{}/f{name}", name % 4);
                    prop_assert_eq!(batch.remove(&key(&path)).unwrap(), model.remove(&path).is_some());
                }
                Deed::RemoveTree(directory) => {
                    let top = if directory == 4 { Key::root() } else { key(&format!("d{directory}")) };
                    batch.remove_tree(&top).unwrap();
                    model.retain(|path, _| directory < 4 && !path.starts_with(&format!("d{directory}/")));
                }
                Deed::Sync => store.sync().unwrap(),
                _ => {}
            }
            batch.commit().unwrap();
            match deed {
                Deed::Reopen => {
                    drop(store);
                    store = Store::open(&home).unwrap();
                }
                Deed::RebuildIndex => {
                    drop(store);
                    drop(open_here(&home, Access::RebuildIndex, &OpenOptions::default()).unwrap());
                    store = Store::open(&home).unwrap();
                }
                Deed::Merge => {
                    store.sync().unwrap();
                    store.engine().merge_all().unwrap();
                }
                _ => {}
            }
        }
        let mut found = BTreeMap::new();
        for listed in store.walk(&Key::root()).unwrap() {
            let listed = listed.unwrap();
            if listed.entry.kind != Kind::Directory {
                found.insert(listed.key.to_string(), store.get(&listed.key).unwrap().unwrap());
            }
        }
        prop_assert!(found == model);
        // The accounts equal those of a rebuilt index.
        store.sync().unwrap();
        let accounts = |store: &Store| {
            let state = store.engine().view().state.clone();
            (state.segments, state.extents)
        };
        drop(store);
        // Opened again, as closing frees space, which the log records.
        let store = Store::open(&home).unwrap();
        let before = accounts(&store);
        drop(store);
        drop(open_here(&home, Access::RebuildIndex, &OpenOptions::default()).unwrap());
        prop_assert_eq!(before, accounts(&Store::open(&home).unwrap()));
    }
}
