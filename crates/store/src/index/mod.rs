//! The index: what the store has for a key, according to the catalog's recent changes, removed trees and sorted tables.
//!
//! A [`Snapshot`] is one immutable state of these: entries by key in memory, and tables that never change. For a key
//! the newest source counts: recent changes first, then tables from the newest to the oldest, except those whose bounds
//! or filters exclude it. A removed tree with a higher id hides the entry found. For each key, ids ascend from older to
//! newer sources, so whatever is behind a hidden entry is hidden too.
//!
//! After the keys of all objects come those of attributes in records of their own (an object's entry has the id of that
//! record, and what a listing shows of it), then those of superseded versions that a snapshot references
//! (`scan::past`). So reading the current state does not encounter them, and they do not slow it down.
//!
//! | module | subject |
//! | --- | --- |
//! | [`copies`] | the devices with the index |
//! | [`ranges`] | which removed directory hides a key |
//! | [`scan`] | entries in order over all sources; in it `past`, the state at an earlier sequence number |
//! | [`merge`] | merging tables, and choosing which |
//! | [`paths`] | from a path to an entry and vice versa |

use std::ops::Bound;
use std::sync::Arc;

use crate::devices::device::Device;
use crate::error::Result;
use crate::format::entry::{Entry, Kind};
use crate::format::index_key::{attributes_key, first_attributes, is_superseded_by};
use crate::index::catalog::chunks::Recent;
use crate::index::catalog::{RangeRow, State, TableRow};
use crate::index::table::{BlockCache, KeyHash, Table};

pub mod catalog;
pub(crate) mod copies;
pub(crate) mod merge;
pub(crate) mod paths;
pub(crate) mod ranges;
pub(crate) mod scan;
pub(crate) mod table;

#[cfg(test)]
mod scale_tests;
#[cfg(test)]
mod tests;

pub(crate) use merge::{choose, merge_tables, most_ranges};
pub(crate) use scan::{Scan, Windows};
pub(crate) use table::Reach;

/// Open tables, oldest first.
pub(crate) type Tables = Arc<[Arc<Table>]>;

/// Opens the tables in `rows`, reusing those open in `previous`.
///
/// # Errors
/// As [`Table::open`].
pub(crate) fn open_tables(
    device: &dyn Device,
    cache: &Arc<BlockCache>,
    rows: &[TableRow],
    previous: &[Arc<Table>],
) -> Result<Tables> {
    let open = |row: &TableRow| match previous.iter().find(|table| table.row() == row) {
        Some(table) => Ok(table.clone()),
        None => Table::open(device, row, cache).map(Arc::new),
    };
    rows.iter().map(open).collect()
}

/// One state of the index. Cheap to clone; it keeps its tables open.
#[derive(Debug, Clone)]
pub(crate) struct Snapshot {
    recent: Recent,
    ranges: Arc<Vec<RangeRow>>,
    tables: Tables,
    /// The sequence number whose state is read; `None`: the latest.
    at: Option<u64>,
    /// Versions superseded by this record are invisible: it is not applied yet.
    early: Option<u64>,
}

/// The note about versions that are in the index before the record that superseded them (see [`Early`]).
pub(crate) const EARLY: &str = "versions.early";

/// Versions that are in the index but invisible, because the record that supersedes them is not applied yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Early {
    /// The sequence number of that record.
    pub(crate) until: u64,
    /// Whether all of them are in the index.
    pub(crate) is_whole: bool,
}

impl Early {
    /// The early versions of a state.
    pub(crate) fn of(state: &State) -> Option<Early> {
        let (is_whole, until) = state.notes.get(EARLY)?.split_first()?;
        Some(Early { until: u64::from_le_bytes(until.try_into().ok()?), is_whole: *is_whole == 1 })
    }

    /// Whether this record supersedes them.
    pub(crate) fn is_of(self, until: u64) -> bool {
        self.until == until
    }

    /// Removes the note: the versions become visible.
    pub(crate) fn no_note() -> (String, Vec<u8>) {
        (EARLY.to_owned(), Vec::new())
    }

    /// The content of the note.
    pub(crate) fn encode(self) -> Vec<u8> {
        [&[u8::from(self.is_whole)][..], &self.until.to_le_bytes()].concat()
    }
}

impl Snapshot {
    /// The snapshot of `state`, whose tables are `tables`.
    pub(crate) fn new(state: &State, tables: Tables) -> Snapshot {
        debug_assert!(tables.iter().map(|table| table.row()).eq(state.tables.iter()), "other tables");
        Snapshot {
            recent: state.recent.clone(),
            ranges: state.ranges.clone(),
            tables,
            at: None,
            early: Early::of(state).map(|early| early.until),
        }
    }

    /// The same, with all versions visible.
    pub(crate) fn revealed(self) -> Snapshot {
        Snapshot { early: None, ..self }
    }

    /// Whether a key is that of an invisible version.
    #[inline]
    fn is_early(&self, key: &[u8]) -> bool {
        self.early.is_some_and(|until| is_superseded_by(key, until))
    }

    /// The same, at an earlier sequence number that is preserved.
    pub(crate) fn at(self, sequence: u64) -> Snapshot {
        Snapshot { at: Some(sequence), ..self }
    }

    /// Its tables, oldest first.
    pub(crate) fn tables(&self) -> &Tables {
        &self.tables
    }

    /// The entry for a stored key; `None` if it does not exist, or no longer does.
    ///
    /// # Errors
    /// As [`Table::look_up`].
    pub(crate) fn look_up(&self, key: &[u8]) -> Result<Option<Entry>> {
        match self.at {
            None => self.look_up_now(key),
            Some(sequence) => self.look_up_at(key, sequence),
        }
    }

    /// The record with the attributes of the object with this key, now or in a snapshot, that has this id; `None` if it
    /// was superseded and no snapshot references it.
    ///
    /// # Errors
    /// As [`Table::look_up`].
    pub(crate) fn attributes_record(&self, key: &[u8], id: u64) -> Result<Option<Entry>> {
        let key = attributes_key(key);
        let found = match self.look_up_now(&key)?.filter(|now| now.id == id) {
            Some(now) => Some(now),
            None => self.version_behind(&key, id)?.map(|(_, entry)| entry),
        };
        Ok(found.filter(|entry| entry.id == id))
    }

    fn look_up_now(&self, key: &[u8]) -> Result<Option<Entry>> {
        if self.is_early(key) {
            return Ok(None);
        }
        if let Some(entry) = self.recent.get(key) {
            return Ok(visible(&self.ranges, key, *entry));
        }
        look_up_tables(&self.tables, &self.ranges, key, Presence::Perhaps)
    }

    /// All entries of objects from a stored key on, in order: neither attributes in records of their own nor versions.
    ///
    /// # Errors
    /// As [`Table::look_up`].
    pub(crate) fn scan_from(&self, from: &[u8]) -> Result<Scan> {
        self.scan(Bound::Included(from), Bound::Excluded(&first_attributes()))
    }

    /// As [`scan_from`](Self::scan_from), followed by attributes in records of their own and by all superseded
    /// versions, under their own keys.
    ///
    /// # Errors
    /// As [`Table::look_up`].
    pub(crate) fn scan_versions_from(&self, from: &[u8]) -> Result<Scan> {
        debug_assert!(self.at.is_none(), "at an earlier time there are no versions");
        Scan::new(self, Bound::Included(from), Bound::Unbounded)
    }

    /// All entries between two stored keys, in order.
    ///
    /// # Errors
    /// As [`Table::look_up`].
    pub(crate) fn scan(&self, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Result<Scan> {
        Scan::new(self, from, to)
    }

    /// Read-ahead windows of its tables, to be shared by scans.
    pub(crate) fn windows(&self, reach: Reach) -> Windows {
        Windows::new(&self.tables, reach)
    }

    /// As [`scan`](Self::scan), with read-ahead windows shared with other scans of this snapshot.
    ///
    /// # Errors
    /// As [`Table::look_up`].
    pub(crate) fn scan_within(&self, windows: &Windows, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Result<Scan> {
        Scan::within(self, windows, from, to)
    }
}

/// What an entry means: `None` if it is a tombstone, or in a tree that was removed later.
fn visible(ranges: &[RangeRow], key: &[u8], entry: Entry) -> Option<Entry> {
    (entry.kind != Kind::Removal && ranges::hiding(ranges, key, entry.id).is_none()).then_some(entry)
}

/// Whether a key looked up is expected to exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    /// By a reader: the only table that can have it is searched without consulting its filter.
    There,
    /// By a writer that wants to know.
    Perhaps,
}

/// What tables have for a stored key absent from the recent changes: one look-up without a snapshot of its own.
///
/// # Errors
/// As [`Table::look_up`].
pub(crate) fn look_up_tables(
    tables: &[Arc<Table>],
    ranges: &[RangeRow],
    key: &[u8],
    expected: Presence,
) -> Result<Option<Entry>> {
    if tables.is_empty() {
        return Ok(None);
    }
    let hash = KeyHash::of(key);
    for (index, table) in tables.iter().enumerate().rev() {
        let is_last = index == 0 && expected == Presence::There;
        if (is_last || table.may_have(key, hash))
            && let Some(entry) = table.look_up(key)?
        {
            return Ok(visible(ranges, key, entry));
        }
    }
    Ok(None)
}

/// The recent changes of a state for a stored key: `None` if there are none, `Some(None)` if it no longer exists.
pub(crate) fn look_up_recent(state: &State, key: &[u8]) -> Option<Option<Entry>> {
    state.recent.get(key).map(|&entry| visible(&state.ranges, key, entry))
}
