//! Tests of sorted tables: everything written is found and in order, and all damage is reported.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use proptest::prelude::*;

use super::block::PAGE_BYTES;
use super::*;
use crate::devices::device::Device;
use crate::devices::directory::Directory;
use crate::error::ErrorKind;
use crate::format::entry::{Entry, Kind, Location, Time};
use crate::format::ids::{LogOffset, ObjectNumber, SegmentNumber};
use crate::format::index_key::LONGEST_INDEX_KEY_BYTES;
use crate::index::catalog::TableRow;

/// A device with an index directory, removed with the returned guard.
pub(crate) fn device() -> (tempfile::TempDir, Directory) {
    let directory = tempfile::tempdir().unwrap();
    let device = Directory::new(directory.path());
    device.create_directory(INDEX_DIRECTORY).unwrap();
    (directory, device)
}

/// Any entry that a table can have. Tombstones as they are read back: without a location.
pub(crate) fn any_entry() -> impl Strategy<Value = Entry> {
    let kinds = prop::sample::select(vec![Kind::File, Kind::Large, Kind::Directory, Kind::Link, Kind::Removal]);
    let place = (prop_oneof![0u64..3, Just(u64::MAX)], 0u64..1 << 32, 0u64..1 << 20);
    let small = prop_oneof![0u64..100_000, any::<u64>()];
    (kinds, prop_oneof![1u64..1000, 1u64..1 << 48], place, small, (0u16..4, 0u32..3, 0u32..3), any::<i64>(), 0..4u32)
        .prop_map(|(kind, id, (segment, offset, length), size_bytes, (mode, uid, gid), seconds, part)| {
            if kind == Kind::Removal {
                return Entry::removal(id, Location::NONE);
            }
            let location =
                Location { segment: SegmentNumber(segment), offset: LogOffset(offset * 4), record_bytes: length * 4 };
            let mtime = Time { seconds, nanoseconds: part * 333_333_333 };
            // Some share that of others; some are far off.
            let ctime = match id % 4 {
                0 => mtime,
                1 => Time { seconds: seconds / 2, nanoseconds: 999_999_999 - part },
                _ => Time { seconds: seconds.clamp(-1, 1), nanoseconds: 5 },
            };
            // For every third object this is the first record.
            let number = ObjectNumber(if id % 3 == 0 { id } else { id.div_ceil(2) });
            let attributes_id = if kind.is_file() && id % 5 == 0 { id + 1 + seconds as u64 % 1000 } else { 0 };
            let is_plain = kind.plain_code().is_some() && attributes_id == 0 && id.is_multiple_of(2);
            Entry { kind, id, number, attributes_id, is_plain, location, size_bytes, mode, uid, gid, mtime, ctime }
        })
}

/// Keys that share long and short prefixes, some of them longer than a page.
pub(crate) fn any_key() -> impl Strategy<Value = Vec<u8>> {
    let short = prop::collection::vec(prop::sample::select(vec![0u8, 1, b'a', b'b', 0xff]), 0..12);
    let name = (0u32..40, 0u32..40).prop_map(|(a, b)| format!("{a}\0{b}").into_bytes());
    let long =
        (prop::sample::select(vec![b'a', b'b']), 3000usize..20_000).prop_map(|(byte, length)| vec![byte; length]);
    prop_oneof![10 => short, 20 => name, 1 => long]
}

fn write(device: &Directory, number: u64, entries: &BTreeMap<Vec<u8>, Entry>) -> TableRow {
    let mut writer = TableWriter::create(device, number).unwrap();
    for (key, entry) in entries {
        writer.add(key, entry).unwrap();
    }
    writer.finish().unwrap()
}

fn open(device: &Directory, row: &TableRow) -> Arc<Table> {
    Arc::new(Table::open(device, row, &Arc::new(BlockCache::new(1 << 16))).unwrap())
}

fn collect(mut scan: TableScan) -> Vec<(Vec<u8>, Entry)> {
    let mut found = Vec::new();
    while let Some((key, entry)) = scan.head() {
        found.push((key.to_vec(), *entry));
        scan.advance().unwrap();
    }
    found
}

/// Entries like those of an import: records one after the other, keys by directory.
pub(crate) fn imported(count: u64) -> BTreeMap<Vec<u8>, Entry> {
    let mut offset = 80;
    (0..count)
        .map(|number| {
            let record_bytes = 4096 + number % 7 * 4;
            let entry = Entry {
                kind: Kind::File,
                id: number + 1,
                number: ObjectNumber(number + 1),
                attributes_id: 0,
                is_plain: true,
                location: Location {
                    segment: SegmentNumber(1 + number / 3000),
                    offset: LogOffset(offset),
                    record_bytes,
                },
                size_bytes: record_bytes - 80,
                mode: 0o100_644,
                uid: 1000,
                gid: 1000,
                mtime: Time {
                    seconds: 1_700_000_000 + number as i64,
                    nanoseconds: (number * 7919 % 1_000_000_000) as u32,
                },
                ctime: Time { seconds: 1_800_000_000, nanoseconds: 123_456_789 },
            };
            offset = if (number + 1) % 3000 == 0 { 80 } else { offset + record_bytes };
            (format!("{:02}\0{:02}\0{number:06}", number / 10_000, number / 100 % 100).into_bytes(), entry)
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn all_is_found_and_comes_in_order(
        entries in prop::collection::btree_map(any_key(), any_entry(), 0..400),
        probes in prop::collection::vec(any_key(), 40),
    ) {
        let (_guard, device) = device();
        let row = write(&device, 7, &entries);
        prop_assert_eq!(row.entries, entries.len() as u64);
        let table = open(&device, &row);
        table.verify().unwrap();
        for (key, entry) in &entries {
            prop_assert!(table.may_have(key, KeyHash::of(key)));
            prop_assert_eq!(table.look_up(key).unwrap(), Some(*entry));
        }
        for probe in &probes {
            prop_assert_eq!(table.look_up(probe).unwrap(), entries.get(probe).copied());
            for from in [Bound::Included(probe.as_slice()), Bound::Excluded(probe.as_slice())] {
                let expected: Vec<_> =
                    entries.range::<[u8], _>((from, Bound::Unbounded)).map(|(key, entry)| (key.clone(), *entry)).collect();
                prop_assert_eq!(collect(TableScan::new(table.clone(), from).unwrap()), expected);
            }
        }
        let mut rising = probes;
        rising.sort();
        let mut scan = TableScan::new(table, Bound::Unbounded).unwrap();
        for probe in &rising {
            scan.seek(probe).unwrap();
            let expected = entries.range::<Vec<u8>, _>(probe..).next();
            prop_assert_eq!(scan.head(), expected.map(|(key, entry)| (key.as_slice(), entry)));
        }
    }
}

#[test]
fn a_table_of_many_levels_is_whole_and_small() {
    let (_guard, device) = device();
    let entries = imported(200_000);
    let row = write(&device, 1, &entries);
    let table = open(&device, &row);
    assert_eq!(table.footer.levels, 3);
    table.verify().unwrap();
    assert_eq!(
        collect(TableScan::new(table.clone(), Bound::Unbounded).unwrap()),
        entries.clone().into_iter().collect::<Vec<_>>()
    );
    for (key, entry) in entries.iter().step_by(997) {
        assert_eq!(table.look_up(key).unwrap(), Some(*entry));
        assert_eq!(table.look_up(&[key, &b"x"[..]].concat()).unwrap(), None);
    }
    // Bounds and filters exclude nearly all missing keys.
    let others: Vec<Vec<u8>> = entries.keys().step_by(20).map(|key| [key, &b"x"[..]].concat()).collect();
    let passed = others.iter().filter(|key| table.may_have(key, KeyHash::of(key))).count();
    assert!(passed * 100 < others.len(), "{passed} of {} pass", others.len());
    assert!(!table.may_have(b"99", KeyHash::of(b"99")), "behind the last");
    assert!(row.size_bytes < 23 * row.entries, "{} bytes an entry", row.size_bytes as f64 / row.entries as f64);
    // A shared change time takes one byte, and is stored in full once per 16 entries.
    let of_themselves = entries.into_iter().map(|(key, entry)| (key, Entry { ctime: entry.mtime, ..entry })).collect();
    let more = row.size_bytes - write(&device, 2, &of_themselves).size_bytes;
    assert!(more * 10 < 18 * row.entries, "{} bytes an entry for change times", more as f64 / row.entries as f64);
}

/// Flips a byte in each of these pages.
fn damage(path: &std::path::Path, pages: impl Iterator<Item = u64>) {
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    for page in pages {
        let (at, mut byte) = (page * PAGE_BYTES as u64 + 700, [0]);
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
    }
}

#[test]
fn damaged_filters_hide_nothing_and_are_reported() {
    let (guard, device) = device();
    for (number, count) in [(1, 1_000), (2, 9_000)] {
        let entries = imported(count);
        let row = write(&device, number, &entries);
        let path = guard.path().join(table_path(number));
        let table = open(&device, &row);
        let places = table.read_filter_places().unwrap();
        let footer = &table.footer;
        let filters: Vec<u64> = match footer.filter_pages {
            0 => places.iter().flat_map(|place| place.page..place.page + place.pages).collect(),
            pages => (footer.leaf_pages - pages..footer.leaf_pages).collect(),
        };
        assert_eq!((places.len(), filters.len()), if number == 1 { (0, 1) } else { (5, 5) });
        let whole = std::fs::read(&path).unwrap();
        let directory: Vec<u64> = (footer.directory_page..table.footer_page()).collect();
        for damaged in [filters.clone(), filters[..1].to_vec(), directory] {
            if damaged.is_empty() {
                continue;
            }
            damage(&path, damaged.iter().copied());
            let table = open(&device, &row);
            for (key, entry) in &entries {
                assert!(table.may_have(key, KeyHash::of(key)), "pages {damaged:?}");
                assert_eq!(table.look_up(key).unwrap(), Some(*entry));
            }
            let all = entries.clone().into_iter().collect::<Vec<_>>();
            assert_eq!(
                collect(TableScan::new(open(&device, &row), Bound::Unbounded).unwrap()),
                all,
                "pages {damaged:?}"
            );
            assert_eq!(table.verify().unwrap_err().kind(), ErrorKind::Corrupt, "pages {damaged:?}");
            std::fs::write(&path, &whole).unwrap();
        }
        // A valid filter of other keys: nobody writes this, and verification detects it.
        let mut bytes = whole.clone();
        let at = filters[0] as usize * PAGE_BYTES;
        bytes[at + 16..at + 48].fill(0xff);
        block::seal(&mut bytes[at..at + PAGE_BYTES]);
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(open(&device, &row).verify().unwrap_err().kind(), ErrorKind::Corrupt);
    }
}

#[test]
fn long_keys_make_long_blocks_and_still_fewer_on_every_level() {
    let (_guard, device) = device();
    let mut entries = BTreeMap::new();
    let template = imported(1).into_values().next().unwrap();
    for byte in 0..200u8 {
        entries.insert(vec![byte; LONGEST_INDEX_KEY_BYTES], Entry { id: u64::from(byte) + 1, ..template });
    }
    let row = write(&device, 1, &entries);
    let table = open(&device, &row);
    assert_eq!(table.footer.levels, 9, "two of them to a block");
    table.verify().unwrap();
    for (key, entry) in &entries {
        assert_eq!(table.look_up(key).unwrap(), Some(*entry));
    }
    let mut writer = TableWriter::create(&device, 2).unwrap();
    assert_eq!(writer.add(&[b'a'; LONGEST_INDEX_KEY_BYTES + 1], &template).unwrap_err().kind(), ErrorKind::Usage);
}

#[test]
fn keys_that_do_not_rise_and_impossible_entries_are_refused() {
    let (guard, device) = device();
    let template = imported(1).into_values().next().unwrap();
    let mut writer = TableWriter::create(&device, 1).unwrap();
    writer.add(b"b", &template).unwrap();
    for key in [b"a", b"b"] {
        assert_eq!(writer.add(key, &template).unwrap_err().kind(), ErrorKind::Usage);
    }
    let tree = Entry { kind: Kind::TreeRemoval, ..template };
    assert_eq!(writer.add(b"c", &tree).unwrap_err().kind(), ErrorKind::Usage);
    drop(writer);
    assert_eq!(std::fs::read_dir(guard.path().join(INDEX_DIRECTORY)).unwrap().count(), 0, "nothing is left");
}

#[test]
fn what_a_dead_writer_left_is_replaced() {
    let (guard, device) = device();
    std::fs::write(guard.path().join(table_path(1) + ".tmp"), b"half").unwrap();
    let row = write(&device, 1, &imported(10));
    open(&device, &row).verify().unwrap();
    assert_eq!(std::fs::read_dir(guard.path().join(INDEX_DIRECTORY)).unwrap().count(), 1);
    assert_eq!(table_number("0000000000000001.table"), Some(1));
    assert_eq!(table_number("0000000000000001.table.tmp"), None);
    assert_eq!(table_number("000000000000000G.table"), None);
}

/// Every bit of a small table in turn: opening or verifying fails, and look-ups fail or are right.
#[test]
fn every_flipped_bit_is_found_and_never_answers_wrongly() {
    let (guard, device) = device();
    let entries = imported(330);
    let row = write(&device, 1, &entries);
    assert_eq!(row.size_bytes, 6 * PAGE_BYTES as u64, "two leaves, a filter, a root, classes, a footer");
    let path = guard.path().join(table_path(1));
    let whole = std::fs::read(&path).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    // Every bit of the first bytes of each page, and every 331st of the others.
    for bit in (0..whole.len() * 8).filter(|bit| bit / 8 % PAGE_BYTES < 64 || bit % 331 == 0) {
        let at = bit / 8;
        file.write_all_at(&[whole[at] ^ 1 << (bit % 8)], at as u64).unwrap();
        let cache = Arc::new(BlockCache::new(1 << 16));
        match Table::open(&device, &row, &cache) {
            Err(error) => assert!(matches!(error.kind(), ErrorKind::Corrupt), "bit {bit}: {error}"),
            Ok(table) => {
                assert_eq!(table.verify().unwrap_err().kind(), ErrorKind::Corrupt, "bit {bit}");
                for (key, entry) in entries.iter().step_by(50) {
                    assert!(table.may_have(key, KeyHash::of(key)), "bit {bit}");
                    if let Ok(found) = table.look_up(key) {
                        assert_eq!(found, Some(*entry), "bit {bit}");
                    }
                }
            }
        }
        file.write_all_at(&whole[at..=at], at as u64).unwrap();
    }
}

#[test]
fn a_truncated_or_strange_file_is_named() {
    let (guard, device) = device();
    let row = write(&device, 1, &imported(3000));
    let path = guard.path().join(table_path(1));
    let cache = Arc::new(BlockCache::new(1 << 16));
    let other = TableRow { entries: 2999, ..row };
    let error = Table::open(&device, &other, &cache).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("--rebuild-index"), "{error}");
    let table = Table::open(&device, &row, &cache).unwrap();
    let whole = std::fs::read(&path).unwrap();
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(4096).unwrap();
    assert_eq!(table.verify().unwrap_err().kind(), ErrorKind::Corrupt, "cut while open");
    for length in [0, 100, 4096, whole.len() - 4096, whole.len() - 1] {
        std::fs::write(&path, &whole[..length]).unwrap();
        assert_eq!(Table::open(&device, &row, &cache).unwrap_err().kind(), ErrorKind::Corrupt, "{length} bytes");
    }
    std::fs::remove_file(&path).unwrap();
    assert_eq!(Table::open(&device, &row, &cache).unwrap_err().kind(), ErrorKind::NotFound);
}

proptest! {
    /// Blocks with arbitrary content and a valid checksum: nothing panics, whatever they contain.
    #[test]
    fn blocks_that_lie_do_not_panic(
        edits in prop::collection::vec((0usize..4 * PAGE_BYTES, any::<u8>()), 1..20),
        key in any_key(),
    ) {
        let (guard, device) = device();
        let row = write(&device, 1, &imported(330));
        let path = guard.path().join(table_path(1));
        let mut bytes = std::fs::read(&path).unwrap();
        for (at, byte) in edits {
            // Changing the numbers at the beginning of a block has the largest effect.
            let at = if byte % 2 == 0 { at / PAGE_BYTES * PAGE_BYTES + at % 24 } else { at };
            bytes[at] = byte;
        }
        for page in bytes.chunks_exact_mut(PAGE_BYTES).take(4) {
            block::seal(page);
        }
        std::fs::write(&path, &bytes).unwrap();
        let table = open(&device, &row);
        // Results do not matter: granulo did not write a block that differs and has a valid checksum.
        let _ = table.verify();
        let _ = table.may_have(&key, KeyHash::of(&key));
        let _ = table.look_up(&key);
        let _ = table.look_up(b"00\x0001\x00000100");
        if let Ok(mut scan) = TableScan::new(table, Bound::Included(&key)) {
            while scan.head().is_some() && scan.advance().is_ok() {}
        }
    }
}
