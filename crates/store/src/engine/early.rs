//! Versions of a large tree, put into the index before the removal of the tree is in the log (see [`effects`](super::effects)).
//!
//! A tree of any size is removed by one record, but what a snapshot has of it is a version of each object in it. They go into the index in pieces, so that
//! memory stays bounded, and the note [`EARLY`] goes with the first: it says of which removal they are, and that nobody is to see them. The change that takes the
//! removal in takes the note away.
//!
//! **A crash** leaves versions with the note. If the log has the removal, recovery takes it in as it would have been: what is there is put there again, or is
//! all there already, which the note says too. If it has not, the versions go when a writer opens the store, or before the next removal that does this. Where
//! the device of the index is full, the rest comes with the removal, and waits in memory.

use std::sync::PoisonError;

use super::effects::{Versions, each_entry_of};
use super::{Engine, EngineLedger};
use crate::error::Result;
use crate::format::entry::Entry;
use crate::format::index_key::{first_superseded, is_superseded_by};
use crate::index::catalog::Change;
use crate::index::{EARLY, Early, Snapshot};

/// So many versions go into the index at once. Trees with fewer objects are removed by one change of the index. Tests come to several pieces sooner.
pub(crate) const PIECE: usize = if cfg!(test) { 3 } else { 4096 };

/// The note is taken away: the versions are in sight.
pub(crate) fn taken_in() -> (String, Vec<u8>) {
    (EARLY.to_owned(), Vec::new())
}

/// Whether some directories have more objects than one change of the index should.
///
/// # Errors
/// What reading the index fails with.
pub(crate) fn is_many(snapshot: &Snapshot, directories: &[u64]) -> Result<bool> {
    let mut entries = 0;
    each_entry_of(snapshot, directories, &mut |_, _| {
        entries += 1;
        Ok(entries < PIECE)
    })?;
    Ok(entries >= PIECE)
}

impl EngineLedger<'_> {
    /// Versions may go into the index before the batch does. Called with `sync` and the writer's lock held, and nothing pending.
    pub(crate) fn may_write_early(&mut self) {
        self.piece = Some(PIECE);
    }
}

impl Engine {
    /// Puts versions into the index that nobody sees until the removal `until` is taken in; `is_last`: these are all. Called as
    /// [`may_write_early`](EngineLedger::may_write_early) says, or while the log is replayed.
    ///
    /// # Errors
    /// What changing the catalog fails with.
    pub(super) fn write_early(&self, until: u64, versions: Versions, is_last: bool) -> Result<()> {
        let known = Early::of(&self.view().state);
        if known.is_some_and(|early| !early.is_of(until)) {
            self.drop_early()?;
        }
        let note = (EARLY.to_owned(), Early { until, is_whole: is_last }.encode());
        self.change_index(&Change { recent: versions, notes: vec![note], ..Change::default() })
    }

    /// What a removal left that did not come to the log goes.
    ///
    /// # Errors
    /// What syncing and changing the catalog fails with.
    pub(crate) fn forget_early(&self) -> Result<()> {
        if Early::of(&self.view().state).is_none() {
            return Ok(());
        }
        let _one = self.sync.lock().unwrap_or_else(PoisonError::into_inner);
        let mut writer = self.writer()?;
        self.settle(&mut writer)?;
        self.drop_early()
    }

    /// Removes versions that nobody sees, and then their note.
    fn drop_early(&self) -> Result<()> {
        let Some(Early { until, .. }) = Early::of(&self.view().state) else { return Ok(()) };
        let mut from = first_superseded().to_vec();
        loop {
            let snapshot = self.view().snapshot().revealed();
            let mut scan = snapshot.scan_versions_from(&from)?;
            let mut change = Change::default();
            while change.recent.len() + change.forget.len() < PIECE
                && let Some((key, entry)) = scan.next_entry()?
            {
                if !is_superseded_by(key, until) {
                    continue;
                }
                from = key.to_vec();
                // A removal hides what tables have of it.
                match snapshot.tables().is_empty() {
                    true => change.forget.push(key.into()),
                    false => change.recent.push((key.into(), Entry::removal(entry.id, entry.location))),
                }
            }
            drop((scan, snapshot));
            let is_last = change.recent.is_empty() && change.forget.is_empty();
            if is_last {
                change.notes.push(taken_in());
            }
            self.change_index(&change)?;
            if is_last {
                return Ok(());
            }
        }
    }

    /// One transaction that waits for nothing in the log. Memory stays bounded.
    fn change_index(&self, change: &Change) -> Result<()> {
        if self.owns_index() {
            self.catalog.commit(change)?;
        }
        self.apply(change)?;
        if self.owns_index() && self.is_recent_full() { self.make_table() } else { Ok(()) }
    }
}
