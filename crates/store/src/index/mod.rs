//! The index: what the store has for a key, over the catalog's recent changes, removed trees and sorted tables.
//!
//! A [`Snapshot`] is one state of all that, and stays what it is: entries by key in memory, tables that never change. For a key the
//! newest source counts: recent changes first, then tables from the newest to the oldest, but for those whose bounds or filters say that
//! they have not got it. What it has is hidden by a removed tree with a higher id. Ids rise from source to source for a key, so what is
//! behind a hidden entry is hidden too.
//!
//! Behind all keys of now are those of versions that something took the place of and that a snapshot has ([`past`]). So who looks at now does not meet
//! them, and takes no longer for them.
//!
//! | module | subject |
//! | --- | --- |
//! | [`copies`] | the devices that it is on |
//! | [`ranges`] | which removed directory hides a key |
//! | [`scan`] | entries in order over all sources |
//! | [`merge`] | tables into one, and which |
//! | [`past`] | what there was at an earlier sequence number |
//! | [`paths`] | from a path to an entry, and back |

use std::ops::Bound;
use std::sync::Arc;

use crate::devices::device::Device;
use crate::error::Result;
use crate::format::entry::{Entry, Kind};
use crate::format::index_key::{first_superseded, is_superseded_by};
use crate::index::catalog::chunks::Recent;
use crate::index::catalog::{RangeRow, State, TableRow};
use crate::index::table::{BlockCache, KeyHash, Table};

pub mod catalog;
pub(crate) mod copies;
pub(crate) mod merge;
pub(crate) mod past;
pub(crate) mod paths;
pub(crate) mod ranges;
pub(crate) mod scan;
pub(crate) mod table;

#[cfg(test)]
mod scale_tests;
#[cfg(test)]
mod tests;

pub(crate) use merge::{choose, merge_tables};
pub(crate) use scan::{Scan, Windows};
pub(crate) use table::Reach;

/// Open tables, oldest first.
pub(crate) type Tables = Arc<[Arc<Table>]>;

/// Opens the tables in `rows`, taking over those that are open in `previous`.
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
    /// The sequence number whose state is looked at; `None`: the last.
    at: Option<u64>,
    /// Versions of which this record takes the place are not in sight: it is not taken in yet.
    early: Option<u64>,
}

/// The note of versions that are in the index before what takes their place is (see [`Early`]).
pub(crate) const EARLY: &str = "versions.early";

/// Versions that are in the index and not in sight, as what takes their place is not taken in yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Early {
    /// The sequence number of the record that takes their place.
    pub(crate) until: u64,
    /// All of them are there.
    pub(crate) is_whole: bool,
}

impl Early {
    /// What a state has of them.
    pub(crate) fn of(state: &State) -> Option<Early> {
        let (is_whole, until) = state.notes.get(EARLY)?.split_first()?;
        Some(Early { until: u64::from_le_bytes(until.try_into().ok()?), is_whole: *is_whole == 1 })
    }

    /// Whether it is this record that takes their place.
    pub(crate) fn is_of(self, until: u64) -> bool {
        self.until == until
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

    /// The same, with all versions in sight.
    pub(crate) fn revealed(self) -> Snapshot {
        Snapshot { early: None, ..self }
    }

    /// Whether a key is that of a version which is not in sight.
    #[inline]
    fn is_early(&self, key: &[u8]) -> bool {
        self.early.is_some_and(|until| is_superseded_by(key, until))
    }

    /// The same, at an earlier sequence number that is kept.
    pub(crate) fn at(self, sequence: u64) -> Snapshot {
        Snapshot { at: Some(sequence), ..self }
    }

    /// Its tables, oldest first.
    pub(crate) fn tables(&self) -> &Tables {
        &self.tables
    }

    /// What the store has for a stored key; `None` if nothing, or no more.
    ///
    /// # Errors
    /// As [`Table::look_up`].
    pub(crate) fn look_up(&self, key: &[u8]) -> Result<Option<Entry>> {
        match self.at {
            None => self.look_up_now(key),
            Some(sequence) => self.look_up_at(key, sequence),
        }
    }

    fn look_up_now(&self, key: &[u8]) -> Result<Option<Entry>> {
        if self.is_early(key) {
            return Ok(None);
        }
        if let Some(entry) = self.recent.get(key) {
            return Ok(visible(&self.ranges, key, *entry));
        }
        look_up_tables(&self.tables, &self.ranges, key, Expected::Perhaps)
    }

    /// Everything that the store has from a stored key on, in order.
    ///
    /// # Errors
    /// As [`Table::look_up`].
    pub(crate) fn scan_from(&self, from: &[u8]) -> Result<Scan> {
        self.scan(Bound::Included(from), Bound::Excluded(&first_superseded()))
    }

    /// As [`scan_from`](Self::scan_from), and behind it all versions that something took the place of, under keys of their own.
    ///
    /// # Errors
    /// As [`Table::look_up`].
    pub(crate) fn scan_versions_from(&self, from: &[u8]) -> Result<Scan> {
        debug_assert!(self.at.is_none(), "at an earlier time there are no versions");
        Scan::new(self, Bound::Included(from), Bound::Unbounded)
    }

    /// Everything that the store has from one stored key to another, in order.
    ///
    /// # Errors
    /// As [`Table::look_up`].
    pub(crate) fn scan(&self, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Result<Scan> {
        Scan::new(self, from, to)
    }

    /// What is read ahead of its tables by scans that have it in common.
    pub(crate) fn windows(&self, reach: Reach) -> Windows {
        Windows::new(&self.tables, reach)
    }

    /// As [`scan`](Self::scan), with what is read ahead for other scans of this snapshot too.
    ///
    /// # Errors
    /// As [`Table::look_up`].
    pub(crate) fn scan_within(&self, windows: &Windows, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Result<Scan> {
        Scan::within(self, windows, from, to)
    }
}

/// What an entry stands for: nothing if it is a removal, or lies in a tree that was removed later.
fn visible(ranges: &[RangeRow], key: &[u8], entry: Entry) -> Option<Entry> {
    (entry.kind != Kind::Removal && ranges::hiding(ranges, key, entry.id).is_none()).then_some(entry)
}

/// Whether a key that is looked up is thought to be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expected {
    /// By somebody who reads it: the table where it must be, if it is anywhere, is looked into without a look at its filter.
    There,
    /// A writer wants to know.
    Perhaps,
}

/// What tables have for a stored key that the recent changes say nothing about: one look-up without a snapshot of its own.
///
/// # Errors
/// As [`Table::look_up`].
pub(crate) fn look_up_tables(
    tables: &[Arc<Table>],
    ranges: &[RangeRow],
    key: &[u8],
    expected: Expected,
) -> Result<Option<Entry>> {
    if tables.is_empty() {
        return Ok(None);
    }
    let hash = KeyHash::of(key);
    for (index, table) in tables.iter().enumerate().rev() {
        let is_last = index == 0 && expected == Expected::There;
        if (is_last || table.may_have(key, hash))
            && let Some(entry) = table.look_up(key)?
        {
            return Ok(visible(ranges, key, entry));
        }
    }
    Ok(None)
}

/// What the recent changes of a state have for a stored key: `None` if they say nothing, `Some(None)` if it is no more.
pub(crate) fn look_up_recent(state: &State, key: &[u8]) -> Option<Option<Entry>> {
    state.recent.get(key).map(|&entry| visible(&state.ranges, key, entry))
}
