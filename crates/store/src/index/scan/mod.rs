//! Entries in key order over all sources of a snapshot.
//!
//! [`Sources`] iterates over recent changes and tables together; for each key the newest counts and the others are
//! skipped. If a removed tree hides everything that a table has below it, the table skips it in one step, so that a
//! million hidden entries cost no more than one. [`Scan`] omits tombstones and ends at its upper bound.

mod past;

use std::ops::Bound;
use std::sync::Arc;

use super::Snapshot;
use super::ranges::hiding;
use crate::error::Result;
use crate::format::entry::{Entry, Kind};
use crate::format::index_key::{entries_of, is_superseded_by};
use crate::index::catalog::RangeRow;
use crate::index::catalog::chunks::{ChunkCursor, Recent};
use crate::index::table::{Reach, SharedWindow, Table, TableScan};
use past::PastScan;

/// Read-ahead windows of the tables of a snapshot, in the order of the tables, shared by all scans of a walk.
#[derive(Debug)]
pub(crate) struct Windows(Vec<SharedWindow>);

impl Windows {
    /// The windows of `tables`.
    pub(crate) fn new(tables: &[Arc<Table>], reach: Reach) -> Windows {
        Windows(tables.iter().map(|table| SharedWindow::new(table, reach)).collect())
    }
}

/// Recent changes from a key on.
#[derive(Debug)]
struct RecentScan {
    recent: Recent,
    at: ChunkCursor,
}

impl RecentScan {
    fn new(recent: Recent, from: Bound<&[u8]>) -> RecentScan {
        let at = recent.seek(from);
        RecentScan { recent, at }
    }

    #[inline]
    fn head(&self) -> Option<(&[u8], &Entry)> {
        self.recent.at(self.at)
    }

    fn advance(&mut self) {
        self.at = self.recent.after(self.at);
    }

    fn seek(&mut self, key: &[u8]) {
        if self.head().is_some_and(|(head, _)| head < key) {
            self.go_to(key);
        }
    }

    fn go_to(&mut self, key: &[u8]) {
        self.at = self.recent.seek(Bound::Included(key));
    }
}

/// Advances all of these that are at `key`.
#[inline]
fn pass(tables: &mut [TableScan], key: &[u8]) -> Result<()> {
    for table in tables {
        if table.head().is_some_and(|(head, _)| head == key) {
            table.advance()?;
        }
    }
    Ok(())
}

/// The newest entry of every key over some sources, including tombstones, without hidden entries.
#[derive(Debug)]
pub(super) struct Sources {
    recent: RecentScan,
    /// Newest first.
    tables: Vec<TableScan>,
    ranges: Arc<Vec<RangeRow>>,
    /// The source at the last entry returned. It stays there until the next one is requested, so that its key can be
    /// borrowed.
    given: Option<Given>,
    /// The source at the lowest key of the others.
    next: Option<Given>,
    /// Whether the others are past the last key returned: while they are, only one source is examined.
    is_ahead: bool,
}

/// Position of the last entry returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Given {
    Recent,
    Table(usize),
}

impl Sources {
    /// `tables` are oldest first.
    pub(super) fn new(
        recent: Recent,
        tables: &[Arc<Table>],
        ranges: Arc<Vec<RangeRow>>,
        windows: &Windows,
        from: Bound<&[u8]>,
    ) -> Result<Sources> {
        let within = tables.iter().zip(&windows.0).rev();
        let tables = within
            .map(|(table, window)| TableScan::within(Arc::clone(table), window.clone(), from))
            .collect::<Result<_>>()?;
        Ok(Sources { recent: RecentScan::new(recent, from), tables, ranges, given: None, next: None, is_ahead: false })
    }

    /// Advances to the next entry, and returns it with its key.
    #[inline]
    pub(super) fn next_entry(&mut self) -> Result<Option<(&[u8], &Entry)>> {
        loop {
            self.choose()?;
            let Some((key, entry)) = self.given() else { break };
            let Some(range) = hiding(&self.ranges, key, entry.id) else { break };
            self.leave(range)?;
        }
        Ok(self.given())
    }

    /// The last entry returned, with its key.
    #[inline]
    pub(super) fn given(&self) -> Option<(&[u8], &Entry)> {
        self.given.and_then(|given| self.head_of(given))
    }

    #[inline]
    fn head_of(&self, given: Given) -> Option<(&[u8], &Entry)> {
        match given {
            Given::Recent => self.recent.head(),
            Given::Table(index) => self.tables.get(index)?.head(),
        }
    }

    /// Advances to the newest source at the lowest key.
    #[inline]
    fn choose(&mut self) -> Result<()> {
        let last = self.given;
        self.pass_given()?;
        if self.is_ahead && last.is_some() && self.is_before_next(last) {
            self.given = last;
            return Ok(());
        }
        self.given = self.lowest_but(None);
        self.next = self.lowest_but(self.given);
        self.is_ahead = self.is_before_next(self.given);
        Ok(())
    }

    /// Whether a source is before the lowest key of the others.
    #[inline]
    fn is_before_next(&self, given: Option<Given>) -> bool {
        let key_of = |given: Option<Given>| given.and_then(|given| self.head_of(given)).map(|(key, _)| key);
        match (key_of(given), key_of(self.next)) {
            (Some(key), Some(next)) => key < next,
            (Some(_), None) => true,
            (None, _) => false,
        }
    }

    /// The newest source at the lowest key, excluding one.
    fn lowest_but(&self, one: Option<Given>) -> Option<Given> {
        let recent = self.recent.head().filter(|_| one != Some(Given::Recent));
        let mut lowest = recent.map(|(key, _)| (key, Given::Recent));
        for (index, table) in self.tables.iter().enumerate().filter(|(index, _)| one != Some(Given::Table(*index))) {
            if let Some((key, _)) = table.head()
                && lowest.is_none_or(|(lowest, _)| key < lowest)
            {
                lowest = Some((key, Given::Table(index)));
            }
        }
        lowest.map(|(_, given)| given)
    }

    /// Advances past the last entry returned, and all older ones of its key.
    #[inline]
    fn pass_given(&mut self) -> Result<()> {
        match self.given.take() {
            None => Ok(()),
            Some(Given::Recent) => {
                if let Some((key, _)) = self.recent.head()
                    && !self.is_ahead
                {
                    pass(&mut self.tables, key)?;
                }
                self.recent.advance();
                Ok(())
            }
            // Newer sources are past its key.
            Some(Given::Table(index)) => {
                let (newer, older) = self.tables.split_at_mut(index + 1);
                let Some(table) = newer.last_mut() else { return Ok(()) };
                if let Some((key, _)) = table.head()
                    && !self.is_ahead
                {
                    pass(older, key)?;
                }
                table.advance()
            }
        }
    }

    /// In a removed directory: every table with only older entries leaves it in one step.
    fn leave(&mut self, range: RangeRow) -> Result<()> {
        self.pass_given()?;
        self.is_ahead = false;
        let (_, end) = entries_of(range.directory);
        let older = self.tables.iter_mut().filter(|table| table.table().row().highest_id < range.id);
        older.into_iter().try_for_each(|table| table.seek(&end))
    }

    /// Moves to `key`, so that the next entry is the first not below it; `is_ahead` says that no source is past that
    /// entry.
    fn go_to(&mut self, key: &[u8], is_ahead: bool) -> Result<()> {
        (self.given, self.next, self.is_ahead) = (None, None, false);
        if is_ahead {
            self.recent.seek(key);
            return self.tables.iter_mut().try_for_each(|table| table.seek(key));
        }
        self.recent.go_to(key);
        self.tables.iter_mut().try_for_each(|table| table.go_to(key))
    }

    /// Advances to `key`, unless it is already past it.
    pub(super) fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.pass_given()?;
        self.is_ahead = false;
        self.recent.seek(key);
        self.tables.iter_mut().try_for_each(|table| table.seek(key))
    }
}

/// All entries of a snapshot between two keys, in order.
#[derive(Debug)]
pub(crate) struct Scan {
    sources: Sources,
    to: Bound<Vec<u8>>,
    /// For an earlier state; then the sources are not used.
    past: Option<Box<PastScan>>,
    /// Versions superseded by this record are invisible.
    early: Option<u64>,
    ended: bool,
}

impl Scan {
    pub(super) fn new(snapshot: &Snapshot, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Result<Scan> {
        // A scan that begins before all keys continues to the end.
        let reach = if matches!(from, Bound::Included([])) { Reach::All } else { Reach::Near };
        Scan::within(snapshot, &Windows::new(&snapshot.tables, reach), from, to)
    }

    /// The same, with read-ahead windows shared with other scans.
    pub(super) fn within(snapshot: &Snapshot, windows: &Windows, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Result<Scan> {
        let Some(sequence) = snapshot.at else { return Scan::now_within(snapshot, windows, from, to) };
        let past = PastScan::new(snapshot, sequence, from, to)?;
        let sources = Sources::new(Recent::default(), &[], Arc::default(), windows, Bound::Unbounded)?;
        Ok(Scan { sources, to: Bound::Unbounded, past: Some(Box::new(past)), early: None, ended: false })
    }

    /// The current state, whatever the snapshot's sequence number.
    pub(super) fn of_now(snapshot: &Snapshot, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Result<Scan> {
        Scan::now_within(snapshot, &Windows::new(&snapshot.tables, Reach::Near), from, to)
    }

    fn now_within(snapshot: &Snapshot, windows: &Windows, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Result<Scan> {
        let (recent, ranges) = (snapshot.recent.clone(), Arc::clone(&snapshot.ranges));
        let sources = Sources::new(recent, &snapshot.tables, ranges, windows, from)?;
        Ok(Scan { sources, to: to.map(<[u8]>::to_vec), past: None, early: snapshot.early, ended: false })
    }

    /// The next entry with its stored key.
    ///
    /// # Errors
    /// As [`Table::look_up`]; the scan then ends.
    #[inline]
    pub(crate) fn next_entry(&mut self) -> Result<Option<(&[u8], &Entry)>> {
        if let Some(past) = &mut self.past {
            let stepped = if self.ended { Ok(()) } else { past.next_entry() };
            self.ended |= stepped.is_err();
            stepped?;
            return Ok(self.given());
        }
        while !self.ended {
            let within = |key: &[u8]| match &self.to {
                Bound::Included(to) => key <= to.as_slice(),
                Bound::Excluded(to) => key < to.as_slice(),
                Bound::Unbounded => true,
            };
            match self.sources.next_entry() {
                Ok(Some((key, entry))) if within(key) => {
                    let is_early = self.early.is_some_and(|until| is_superseded_by(key, until));
                    if entry.kind != Kind::Removal && !is_early {
                        break;
                    }
                }
                Ok(_) => self.ended = true,
                Err(error) => {
                    self.ended = true;
                    return Err(error);
                }
            }
        }
        Ok(self.given())
    }

    /// The last entry returned, with its stored key; `None` at the end.
    #[inline]
    pub(crate) fn given(&self) -> Option<(&[u8], &Entry)> {
        let given = match &self.past {
            None => self.sources.given(),
            Some(past) => past.given(),
        };
        given.filter(|_| !self.ended)
    }

    /// Restarts with other keys after the scan ended without an error; returns whether it does. Blocks already read are
    /// reused: keys directly after the previous ones cost one comparison.
    ///
    /// # Errors
    /// As [`Scan::next_entry`].
    pub(crate) fn restart(&mut self, from: &[u8], to: Vec<u8>) -> Result<bool> {
        if self.past.is_some() {
            return Ok(false);
        }
        // Each source is at its first key outside the bounds.
        let is_ahead = matches!(&self.to, Bound::Excluded(end) if &end[..] <= from);
        self.sources.go_to(from, is_ahead)?;
        (self.to, self.ended) = (Bound::Excluded(to), false);
        Ok(true)
    }

    /// Skips ahead: the next entry is the first not returned yet and not below `key`.
    ///
    /// # Errors
    /// As [`Scan::next_entry`].
    pub(crate) fn seek(&mut self, key: &[u8]) -> Result<()> {
        let sought = match &mut self.past {
            _ if self.ended => Ok(()),
            None => self.sources.seek(key),
            Some(past) => past.seek(key),
        };
        self.ended |= sought.is_err();
        sought
    }
}

/// For callers that want copies: every entry with its stored key; ends after an error.
impl Iterator for Scan {
    type Item = Result<(Vec<u8>, Entry)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_entry().map(|next| next.map(|(key, entry)| (key.to_vec(), *entry))).transpose()
    }
}
