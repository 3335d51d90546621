//! Merging: recent changes and tables become one table, in the memory of one writer and a window for each table.
//!
//! A tombstone must be kept as long as an older table may have its key, and a removed tree as long as any unmerged
//! source has an entry with a lower id. What the merge itself hides or replaces is dropped in any case.

use std::ops::{Bound, Range};

use super::Snapshot;
use super::scan::{Sources, Windows};
use crate::devices::device::Device;
use crate::error::Result;
use crate::format::entry::Kind;
use crate::format::index_key::is_superseded;
use crate::index::catalog::chunks::Recent;
use crate::index::catalog::{RangeRow, TableRow};
use crate::index::table::{Reach, TableWriter};

/// Number of tables that triggers a merge.
const MOST_TABLES: usize = 8;
/// An older table is merged too if it is at most this many times as large as all newer ones together.
const GROWTH: u64 = 2;

/// Number of removed directories that is borne in any case, and the number that is never exceeded.
const FEWEST_RANGES: u64 = 1024;
const MOST_RANGES: u64 = 1 << 20;
/// Between these, all tables are merged if that rewrites at most this many entries for each of them.
const ENTRIES_PER_RANGE: u64 = 64;

/// Result of a merge.
#[derive(Debug)]
pub(crate) struct Merged {
    /// The table that replaces the merged ones; `None` if it would be empty.
    pub(crate) row: Option<TableRow>,
    /// The removed trees that still hide something.
    pub(crate) ranges: Vec<RangeRow>,
}

/// Merges the tables `tables` of a snapshot (oldest first, so 0 is the oldest) into table `number`, with the recent
/// changes if `with_recent`; then the newest table must be among them, unless there are no tables. The result replaces
/// them in the catalog.
///
/// # Errors
/// As [`Table::look_up`](crate::index::table::Table::look_up) and [`TableWriter::finish`]; nothing is left behind.
pub(crate) fn merge_tables(
    device: &dyn Device,
    number: u64,
    snapshot: &Snapshot,
    tables: Range<usize>,
    with_recent: bool,
) -> Result<Merged> {
    debug_assert!(!with_recent || tables.end == snapshot.tables.len(), "recent changes would be older than a table");
    let recent = if with_recent { snapshot.recent.clone() } else { Recent::default() };
    let is_oldest = tables.start == 0;
    let merged = &snapshot.tables[tables.clone()];
    let windows = Windows::new(merged, Reach::All);
    let mut sources = Sources::new(recent, merged, snapshot.ranges.clone(), &windows, Bound::Unbounded)?;
    let mut writer = TableWriter::create(device, number)?;
    while let Some((key, entry)) = sources.next_entry()? {
        if entry.kind != Kind::Removal || !is_oldest {
            writer.add(key, entry)?;
        }
    }
    let row = if writer.entries() == 0 { None } else { Some(writer.finish()?) };
    Ok(Merged { row, ranges: remaining(snapshot, &tables, with_recent) })
}

/// The removed trees that hide something in unmerged sources.
fn remaining(snapshot: &Snapshot, merged: &Range<usize>, with_recent: bool) -> Vec<RangeRow> {
    let others = snapshot.tables.iter().enumerate().filter(|(index, _)| !merged.contains(index));
    let in_tables = others.map(|(_, table)| table.row().lowest_id).min().unwrap_or(u64::MAX);
    let of_now = snapshot.recent.iter().filter(|(key, _)| !is_superseded(key));
    let recent_ids = of_now.map(|(_, entry)| entry.id);
    let in_recent = if with_recent { None } else { recent_ids.min() };
    let lowest_id = in_tables.min(in_recent.unwrap_or(u64::MAX));
    snapshot.ranges.iter().filter(|range| range.id > lowest_id).cloned().collect()
}

/// The tables (oldest first) to be merged, if any: from the newest on, as long as an older one is not much larger than
/// all newer ones. The remaining tables grow geometrically, so an entry is rewritten about as often as tables double.
pub(crate) fn choose(tables: &[TableRow]) -> Option<Range<usize>> {
    if tables.len() <= MOST_TABLES {
        return None;
    }
    let mut first = tables.len() - 1;
    let mut size_bytes = tables[first].size_bytes;
    while let Some(older) = first.checked_sub(1).map(|index| &tables[index])
        && (older.size_bytes <= size_bytes.saturating_mul(GROWTH) || first == tables.len() - 1)
    {
        size_bytes = size_bytes.saturating_add(older.size_bytes);
        first -= 1;
    }
    Some(first..tables.len())
}

/// How many removed directories these tables bear. With more, all of them are merged, which drops the directories.
pub(crate) fn most_ranges(tables: &[TableRow]) -> usize {
    let entries: u64 = tables.iter().map(|table| table.entries).sum();
    (entries / ENTRIES_PER_RANGE).clamp(FEWEST_RANGES, MOST_RANGES) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(sizes: &[u64]) -> Vec<TableRow> {
        sizes
            .iter()
            .map(|&size_bytes| TableRow { number: 1, entries: 1, size_bytes, lowest_id: 1, highest_id: 1 })
            .collect()
    }

    #[test]
    fn the_newest_are_merged_and_much_larger_ones_left_alone() {
        assert_eq!(choose(&rows(&[1; 8])), None);
        assert_eq!(choose(&rows(&[1; 9])), Some(0..9));
        assert_eq!(choose(&rows(&[100, 1, 1, 1, 1, 1, 1, 1, 1])), Some(1..9));
        let geometric: Vec<u64> = (0..9).rev().map(|power| 5u64.pow(power)).collect();
        assert_eq!(choose(&rows(&geometric)), Some(7..9));
    }

    #[test]
    fn removed_directories_are_borne_as_long_as_a_merge_would_cost_more() {
        let of = |entries: u64| most_ranges(&[TableRow { entries, ..rows(&[1])[0] }, rows(&[1])[0]]);
        assert_eq!((most_ranges(&[]), of(40_000), of(6_399_999)), (1024, 1024, 100_000));
        assert_eq!(of(1_000_000_000), 1 << 20);
    }

    #[test]
    fn there_are_few_tables_and_few_rewrites_however_many_are_added() {
        let (mut tables, mut written) = (Vec::new(), 0u64);
        for _ in 0..10_000 {
            tables.extend(rows(&[1]));
            if let Some(range) = choose(&tables) {
                let size: u64 = tables[range.clone()].iter().map(|table| table.size_bytes).sum();
                written += size;
                tables.splice(range, rows(&[size]));
            }
            assert!(tables.len() <= MOST_TABLES);
        }
        assert!(written < 10_000 * 12, "an entry is rewritten {} times", written / 10_000);
    }
}
