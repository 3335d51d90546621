//! The index alone, without contents, for any number of entries: its space, how often an entry is written, and the
//! memory needed.
//!
//! Entries arrive as from an import (in order of directory and name) or shuffled, which is the worst case for the
//! differences in leaves, for merges and for filters. They are collected, written to tables and merged by the rules and
//! limits of the store. The test that always runs checks the figures used by docs/FORMAT.md, section 13; `make
//! bench-index-scale` prints them for any number.

use std::fs;
use std::io::{self, Write};
use std::time::Instant;

use super::tests::Driver;
use super::*;
use crate::format::entry::{Location, Time};
use crate::format::ids::{LogOffset, ObjectNumber, SegmentNumber};
use crate::format::index_key::entry_key;
use crate::index::catalog::Change;

/// Entries per table, as in a store outside of tests.
const RECENT_LIMIT: u64 = 32_768;
/// As in a store.
const CACHE_BYTES: usize = 16 << 20;
/// Files per directory.
const DIRECTORY_FILES: u64 = 100;
/// Content of each file, and its record.
const SIZE_BYTES: u64 = 100;
const RECORD_BYTES: u64 = 192;
/// Records per segment.
const SEGMENT_RECORDS: u64 = (64 << 20) / RECORD_BYTES;
/// Numbers do not begin at 1 in a store that has been used: differences are like those in one with many millions.
const FIRST_ID: u64 = 1 << 24;
/// Timed look-ups.
const LOOK_UPS: u64 = 20_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    /// An import: in key order, with arbitrary modification times and the change times of the import.
    Walk,
    /// Written one after the other at random places, with the current time.
    Written,
    /// Random places and arbitrary times: like a restore by several threads in any order.
    Shuffled,
}

impl Order {
    const ALL: [Order; 3] = [Order::Walk, Order::Written, Order::Shuffled];

    fn name(self) -> &'static str {
        match self {
            Order::Walk => "walk",
            Order::Written => "written",
            Order::Shuffled => "shuffled",
        }
    }
}

/// Result of a run.
#[derive(Debug)]
struct Figures {
    entries: u64,
    /// Size of all tables at the end, before the last merge.
    size_bytes: u64,
    /// Bytes of all tables written.
    written_bytes: u64,
    tables: usize,
    /// Size of a single table of everything.
    merged_bytes: u64,
    /// Bytes of its keys: what each does not share with the one before, and every 16th key in full.
    key_bytes: u64,
    build_seconds: f64,
    look_up_microseconds: f64,
    /// Leaves read per look-up of an existing key, and of a missing one.
    leaves_found: f64,
    leaves_missed: f64,
}

impl Driver {
    /// As the engine does when the recent changes are full.
    fn make_table(&mut self) {
        let end = self.tables.len();
        self.replace(end..end, true);
        if let Some(chosen) = choose(&self.state.tables) {
            self.replace(chosen, false);
        }
    }

    /// Merges some tables into one, and removes the replaced ones.
    fn replace(&mut self, range: std::ops::Range<usize>, with_recent: bool) {
        for row in self.merge(range, with_recent) {
            self.device.remove(&table::table_path(row.number)).unwrap();
        }
    }

    fn size_bytes(&self) -> u64 {
        self.state.tables.iter().map(|row| row.size_bytes).sum()
    }
}

/// The `place`th key in order.
fn key_at(place: u64) -> Vec<u8> {
    let (directory, file) = (place / DIRECTORY_FILES, place % DIRECTORY_FILES);
    let directory = ObjectNumber(FIRST_ID + directory * (DIRECTORY_FILES + 1));
    entry_key(directory, format!("file-{file:03}.dat").as_bytes())
}

/// The `turn`th record: a file put after `turn` others.
fn entry_of(turn: u64, order: Order) -> Entry {
    let id = FIRST_ID + turn + turn / DIRECTORY_FILES;
    let location = Location {
        segment: SegmentNumber(1 + turn / SEGMENT_RECORDS),
        offset: LogOffset(128 + turn % SEGMENT_RECORDS * RECORD_BYTES),
        record_bytes: RECORD_BYTES,
    };
    // A batch has one change time.
    let ctime = Time {
        seconds: 1_760_000_000 + (turn / 8192) as i64,
        nanoseconds: (turn / 2_500 * 104_729 % 1_000_000_000) as u32,
    };
    let mtime = match order {
        Order::Written => ctime,
        Order::Walk | Order::Shuffled => Time {
            seconds: 1_700_000_000 + (turn * 7919 % 2_000_000) as i64,
            nanoseconds: (turn * 104_729 % 1_000_000_000) as u32,
        },
    };
    Entry {
        kind: Kind::File,
        id,
        number: ObjectNumber(id),
        attributes_id: 0,
        is_plain: true,
        location,
        size_bytes: SIZE_BYTES,
        mode: 0o100_644,
        uid: 1000,
        gid: 1000,
        mtime,
        ctime,
    }
}

/// A step coprime to `entries`, which visits all of them in an order without locality.
fn step(entries: u64, order: Order) -> u64 {
    if order == Order::Walk {
        return 1;
    }
    let greatest_divisor = |mut a: u64, mut b: u64| {
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let golden = (entries as f64 * 0.618_033_988_749) as u64 | 1;
    (golden..).find(|&step| greatest_divisor(step, entries) == 1).unwrap()
}

/// Number of read system calls of this thread, if the kernel reports it.
fn reads() -> Option<u64> {
    let text = fs::read_to_string("/proc/thread-self/io").ok()?;
    text.lines().find_map(|line| line.strip_prefix("syscr: "))?.parse().ok()
}

/// Average number of reads per operation.
fn reads_each(count: u64, mut operation: impl FnMut(u64)) -> f64 {
    let before = reads();
    (0..count).for_each(&mut operation);
    // Querying the count reads too.
    before.zip(reads()).map_or(f64::NAN, |(before, after)| (after - before) as f64 / count as f64)
}

fn run(entries: u64, order: Order) -> Figures {
    let mut driver = Driver::new(CACHE_BYTES);
    let step = step(entries, order);
    let place_of = |turn: u64| (u128::from(turn) * u128::from(step) % u128::from(entries)) as u64;
    let begun = Instant::now();
    let mut turn = 0;
    while turn < entries {
        // Batches as in the store.
        let end = entries.min(turn + 2_500).min((turn / RECENT_LIMIT + 1) * RECENT_LIMIT);
        let mut recent: Vec<_> = (turn..end).map(|turn| (key_at(place_of(turn)), entry_of(turn, order))).collect();
        recent.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        let recent = recent.into_iter().map(|(key, entry)| (key[..].into(), entry)).collect();
        driver.commit(Change { recent, ..Change::default() });
        turn = end;
        if turn % RECENT_LIMIT == 0 || turn == entries {
            driver.make_table();
        }
    }
    let build_seconds = begun.elapsed().as_secs_f64();
    let (size_bytes, written_bytes, tables) = (driver.size_bytes(), driver.written_bytes, driver.tables.len());

    let snapshot = driver.snapshot();
    let some_place = |turn: u64| (turn * 2_654_435_761 + 17) % entries;
    let begun = Instant::now();
    let leaves_found = reads_each(LOOK_UPS, |turn| {
        assert!(snapshot.look_up(&key_at(some_place(turn))).unwrap().is_some());
    });
    let look_up_microseconds = begun.elapsed().as_secs_f64() * 1e6 / LOOK_UPS as f64;
    let leaves_missed = reads_each(LOOK_UPS, |turn| {
        let key = [&key_at(some_place(turn))[..], b"~"].concat();
        assert!(snapshot.look_up(&key).unwrap().is_none());
    });

    let all = driver.tables.len();
    driver.replace(0..all, false);
    let merged_bytes = driver.size_bytes();
    let mut scan = driver.snapshot().scan_from(b"").unwrap();
    let (mut before, mut count, mut key_bytes) = (Vec::new(), 0u64, 0);
    while let Some((key, _)) = scan.next_entry().unwrap() {
        assert_eq!(key, key_at(count), "the {count}th key");
        let shared = before.iter().zip(key).take_while(|(a, b)| a == b).count();
        key_bytes += (if count % 16 == 0 { key.len() } else { key.len() - shared }) as u64;
        before = key.to_vec();
        count += 1;
    }
    assert_eq!(count, entries);
    Figures {
        entries,
        size_bytes,
        written_bytes,
        tables,
        merged_bytes,
        key_bytes,
        build_seconds,
        look_up_microseconds,
        leaves_found,
        leaves_missed,
    }
}

impl Figures {
    fn each(&self, bytes: u64) -> f64 {
        bytes as f64 / self.entries as f64
    }
}

/// How often an entry is written: once in its first table, and once each time the table containing it has grown enough.
fn most_writes(entries: u64) -> f64 {
    2.0 + (entries as f64 / RECENT_LIMIT as f64).log2().max(0.0) / 2.0 + 1.0
}

#[test]
fn an_entry_takes_what_the_format_says_in_any_order() {
    for (order, most_bytes) in [(Order::Walk, 24.0), (Order::Written, 24.0), (Order::Shuffled, 35.0)] {
        let figures = run(400_000, order);
        let own = figures.each(figures.merged_bytes - figures.key_bytes);
        assert!(own < most_bytes, "{order:?}: {own} bytes beside the key");
        let writes = figures.written_bytes as f64 / figures.size_bytes as f64;
        assert!(writes < most_writes(figures.entries), "{order:?}: an entry is written {writes} times");
    }
}

/// Peak memory of this process, in MiB.
fn peak_mebibytes() -> Option<f64> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    let kibibytes: f64 =
        text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kibibytes / 1024.0)
}

#[test]
#[ignore = "takes minutes: make bench-index-scale"]
fn index_at_scale() {
    let entries: u64 = std::env::var("INDEX_ENTRIES").map_or(1_000_000, |text| text.parse().unwrap());
    let name = std::env::var("INDEX_ORDER").unwrap_or_else(|_| "walk".to_owned());
    let order =
        Order::ALL.into_iter().find(|order| order.name() == name).expect("INDEX_ORDER is walk, written or shuffled");
    let figures = run(entries, order);
    let line = format!(
        "entries={entries} order={} table_bytes={:.2} merged_bytes={:.2} key_bytes={:.2} own_bytes={:.2} written_times={:.2} tables={} \
         build_microseconds={:.2} look_up_microseconds={:.2} reads_found={:.3} reads_missed={:.3} peak_mib={:.1}",
        order.name(),
        figures.each(figures.size_bytes),
        figures.each(figures.merged_bytes),
        figures.each(figures.key_bytes),
        figures.each(figures.merged_bytes - figures.key_bytes),
        figures.written_bytes as f64 / figures.size_bytes as f64,
        figures.tables,
        figures.build_seconds * 1e6 / entries as f64,
        figures.look_up_microseconds,
        figures.leaves_found,
        figures.leaves_missed,
        peak_mebibytes().unwrap_or(f64::NAN),
    );
    writeln!(io::stdout(), "{line}").unwrap();
}
