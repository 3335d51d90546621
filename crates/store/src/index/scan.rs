//! Entries in order of keys over all sources of a snapshot.
//!
//! [`Sources`] goes through recent changes and tables at once; for each key the newest counts and the others are passed. A removed tree
//! that hides whole what a table has below it is jumped over, so that a million hidden entries cost no more than one.
//! [`Scan`] leaves removals out and ends where it was told to.

use std::ops::Bound;
use std::sync::Arc;

use super::Snapshot;
use super::ranges::{end_of_tree, hiding};
use crate::error::Result;
use crate::format::entry::{Entry, Kind};
use crate::index::catalog::RangeRow;
use crate::index::catalog::chunks::{Cursor, Recent};
use crate::index::table::{Table, TableScan};

/// Recent changes from a key on.
#[derive(Debug)]
struct RecentScan {
    recent: Recent,
    at: Cursor,
}

impl RecentScan {
    fn new(recent: Recent, from: Bound<&[u8]>) -> RecentScan {
        let at = recent.seek(from);
        RecentScan { recent, at }
    }

    fn head(&self) -> Option<(&[u8], Entry)> {
        self.recent.at(self.at)
    }

    fn advance(&mut self) {
        self.at = self.recent.after(self.at);
    }

    fn seek(&mut self, key: &[u8]) {
        if self.head().is_some_and(|(head, _)| head < key) {
            self.at = self.recent.seek(Bound::Included(key));
        }
    }
}

/// The newest of every key over some sources, removals too, hidden entries left out.
#[derive(Debug)]
pub(super) struct Sources {
    recent: RecentScan,
    /// Newest first.
    tables: Vec<TableScan>,
    ranges: Arc<Vec<RangeRow>>,
    /// Key of the entry that was given last.
    key: Vec<u8>,
}

impl Sources {
    /// `tables` are oldest first.
    pub(super) fn new(
        recent: Recent,
        tables: &[Arc<Table>],
        ranges: Arc<Vec<RangeRow>>,
        from: Bound<&[u8]>,
    ) -> Result<Sources> {
        let tables = tables.iter().rev().map(|table| TableScan::new(table.clone(), from)).collect::<Result<_>>()?;
        Ok(Sources { recent: RecentScan::new(recent, from), tables, ranges, key: Vec::new() })
    }

    /// The next entry; its key is [`Sources::key`].
    #[inline]
    pub(super) fn next_entry(&mut self) -> Result<Option<Entry>> {
        loop {
            let Some(entry) = self.take_lowest()? else { return Ok(None) };
            match hiding(&self.ranges, &self.key, entry.id) {
                None => return Ok(Some(entry)),
                Some(range) => {
                    let range = range.clone();
                    self.leave(&range)?;
                }
            }
        }
    }

    /// The key of the entry that was given last.
    pub(super) fn key(&self) -> &[u8] {
        &self.key
    }

    /// Takes the newest entry of the lowest key, and passes the older ones.
    #[inline]
    fn take_lowest(&mut self) -> Result<Option<Entry>> {
        let mut lowest = self.recent.head();
        for table in &self.tables {
            if let Some((key, entry)) = table.head()
                && lowest.is_none_or(|(lowest, _)| key < lowest)
            {
                lowest = Some((key, *entry));
            }
        }
        let Some((key, entry)) = lowest else { return Ok(None) };
        self.key.clear();
        self.key.extend_from_slice(key);
        if self.recent.head().is_some_and(|(head, _)| head == self.key) {
            self.recent.advance();
        }
        for table in &mut self.tables {
            if table.head().is_some_and(|(head, _)| head == self.key) {
                table.advance()?;
            }
        }
        Ok(Some(entry))
    }

    /// In a removed tree: every table that has only older entries leaves it at once.
    fn leave(&mut self, range: &RangeRow) -> Result<()> {
        let end = end_of_tree(&range.key);
        for table in &mut self.tables {
            if table.table().row().highest_id >= range.id {
                continue;
            }
            match &end {
                Some(end) => table.seek(end)?,
                // The root comes before the shared objects, which stay, and all else below it comes behind them.
                None if self.key.is_empty() => {}
                None => table.exhaust(),
            }
        }
        Ok(())
    }

    /// Goes ahead to `key`, if it is not behind it.
    pub(super) fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.recent.seek(key);
        self.tables.iter_mut().try_for_each(|table| table.seek(key))
    }
}

/// Everything that a snapshot has between two keys, in order.
#[derive(Debug)]
pub(crate) struct Scan {
    sources: Sources,
    to: Bound<Vec<u8>>,
    ended: bool,
}

impl Scan {
    pub(super) fn new(snapshot: &Snapshot, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Result<Scan> {
        let sources = Sources::new(snapshot.recent.clone(), &snapshot.tables, snapshot.ranges.clone(), from)?;
        Ok(Scan { sources, to: to.map(<[u8]>::to_vec), ended: false })
    }

    /// The next entry with its stored key.
    ///
    /// # Errors
    /// As [`Table::look_up`]; the scan is at its end then.
    pub(crate) fn next_entry(&mut self) -> Result<Option<(&[u8], Entry)>> {
        while !self.ended {
            let next = self.sources.next_entry();
            let within = |key: &[u8]| match &self.to {
                Bound::Included(to) => key <= to.as_slice(),
                Bound::Excluded(to) => key < to.as_slice(),
                Bound::Unbounded => true,
            };
            match next {
                Ok(Some(entry)) if within(self.sources.key()) => {
                    if entry.kind != Kind::Removal {
                        return Ok(Some((self.sources.key(), entry)));
                    }
                }
                Ok(_) => self.ended = true,
                Err(error) => {
                    self.ended = true;
                    return Err(error);
                }
            }
        }
        Ok(None)
    }

    /// Goes ahead: the next entry is the first that was not given yet and is not below `key`.
    ///
    /// # Errors
    /// As [`Scan::next_entry`].
    pub(crate) fn seek(&mut self, key: &[u8]) -> Result<()> {
        let sought = if self.ended { Ok(()) } else { self.sources.seek(key) };
        self.ended |= sought.is_err();
        sought
    }
}

/// For those who want copies: every entry with its stored key; ends after an error.
impl Iterator for Scan {
    type Item = Result<(Vec<u8>, Entry)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_entry().map(|next| next.map(|(key, entry)| (key.to_vec(), entry))).transpose()
    }
}
