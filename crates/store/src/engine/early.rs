//! Versions of a large tree, inserted into the index before the removal of the tree is in the log (see
//! [`effects`](super::effects)).
//!
//! One record removes a tree of any size, but a snapshot preserves a version of each object in it. They are inserted
//! into the index in pieces, so that memory stays bounded. The note [`EARLY`] comes with the first piece: it says which
//! removal they belong to, and that they are invisible. The change that applies the removal removes the note.
//!
//! **A crash** leaves versions with the note. If the log has the removal, recovery applies it normally: existing
//! versions are inserted again, or all of them already exist, which the note says too. Otherwise the versions are
//! removed when a writer opens the store, or before the next such removal. If the device of the index is full, the rest
//! comes with the removal, and waits in memory.

use super::effects::{Versions, each_entry_of};
use super::{Engine, EngineAccounts};
use crate::error::Result;
use crate::format::entry::Entry;
use crate::format::ids::ObjectNumber;
use crate::format::index_key::{first_superseded, is_superseded_by};
use crate::index::catalog::Change;
use crate::index::{EARLY, Early, Snapshot};
use crate::locks::lock;

/// Number of versions inserted into the index per transaction. Trees with fewer objects are removed by one change of
/// the index. Smaller in tests, which then cover several pieces.
pub(crate) const PIECE: usize = if cfg!(test) { 3 } else { 4096 };

/// Whether some directories have more objects than one change of the index should.
///
/// # Errors
/// Any error of reading the index.
pub(crate) fn is_many(snapshot: &Snapshot, directories: &[ObjectNumber]) -> Result<bool> {
    let mut entries = 0;
    each_entry_of(snapshot, directories, &mut |_, _| {
        entries += 1;
        Ok(entries < PIECE)
    })?;
    Ok(entries >= PIECE)
}

impl EngineAccounts<'_> {
    /// Allows versions to be inserted into the index before the batch. Called with nothing pending, and while nothing
    /// else changes the index: with `sync` and the writer's lock held, or during replay. A table made of them
    /// beside what is pending would be ahead of the position of the index.
    pub(crate) fn may_write_early(&mut self) {
        self.piece = Some(PIECE);
    }
}

impl Engine {
    /// Inserts versions into the index that are invisible until the removal `until` is applied; `is_last`: these are
    /// the last. Called as [`may_write_early`](EngineAccounts::may_write_early) says.
    ///
    /// # Errors
    /// Any error of changing the catalog.
    pub(super) fn write_early(&self, until: u64, versions: Versions, is_last: bool) -> Result<()> {
        let known = Early::of(&self.view().state);
        if known.is_some_and(|early| !early.is_of(until)) {
            self.drop_early()?;
        }
        let note = (EARLY.to_owned(), Early { until, is_whole: is_last }.encode());
        self.change_index(&Change { recent: versions, notes: vec![note], ..Change::default() })
    }

    /// Removes the versions of a removal that never reached the log.
    ///
    /// # Errors
    /// Any error of syncing and of changing the catalog.
    pub(crate) fn forget_early(&self) -> Result<()> {
        if Early::of(&self.view().state).is_none() {
            return Ok(());
        }
        let _sync = lock(&self.sync);
        let mut writer = self.writer()?;
        self.settle(&mut writer)?;
        self.drop_early()
    }

    /// Removes invisible versions, and then their note.
    fn drop_early(&self) -> Result<()> {
        let Some(Early { until, .. }) = Early::of(&self.view().state) else { return Ok(()) };
        let mut from = first_superseded().to_vec();
        loop {
            let snapshot = self.snapshot().revealed();
            let mut scan = snapshot.scan_versions_from(&from)?;
            let mut change = Change::default();
            while change.recent.len() + change.forget.len() < PIECE
                && let Some((key, entry)) = scan.next_entry()?
            {
                if !is_superseded_by(key, until) {
                    continue;
                }
                from = key.to_vec();
                // A tombstone hides what tables have for it.
                match snapshot.tables().is_empty() {
                    true => change.forget.push(key.into()),
                    false => change.recent.push((key.into(), Entry::removal(entry.id, entry.location))),
                }
            }
            drop((scan, snapshot));
            let is_last = change.recent.is_empty() && change.forget.is_empty();
            if is_last {
                change.notes.push(Early::no_note());
            }
            self.change_index(&change)?;
            if is_last {
                return Ok(());
            }
        }
    }

    /// A transaction that does not depend on the log. Memory stays bounded.
    pub(super) fn change_index(&self, change: &Change) -> Result<()> {
        if self.owns_index() {
            self.catalog.commit(change)?;
        }
        self.apply(change)?;
        if self.owns_index() && self.is_recent_full() { self.make_table() } else { Ok(()) }
    }
}
