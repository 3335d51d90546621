//! Versions: superseded entries that a snapshot references stay in the index, under a key that says until when they
//! existed.
//!
//! The removal of a tree creates a version of every object in it. More than memory should hold are inserted into the
//! index **early**: in pieces, before the removal is in the log. A note says which removal they belong to, and makes
//! them invisible; the change that applies the removal removes the note. So readers see the tree either before or after
//! its removal, and what a crash leaves counts only if the log has the removal (see [`early`](crate::engine::early)).

use std::ops::Bound;
use std::sync::Arc;

use super::{Accounts, Effects, Leaves};
use crate::error::{ErrorKind, Result};
use crate::format::descriptor::Descriptor;
use crate::format::entry::Entry;
use crate::format::index_key::{
    ROOT, attributes_of, entries_of, is_superseded, superseded, superseded_key, until_of, versions_behind,
    versions_from,
};

/// Versions with their keys.
pub(crate) type Versions = Vec<(Arc<[u8]>, Entry)>;

/// Versions left by a removed tree, while it is traversed.
#[derive(Debug)]
pub(super) struct Left {
    /// The id of the tombstone.
    until: u64,
    /// Not inserted into the index yet.
    waiting: Versions,
    /// The device of the index has no space for more.
    is_full: bool,
    /// The index has had all of them since before the removal was in the log.
    is_there: bool,
}

impl<L: Accounts> Effects<'_, L> {
    /// Applies the moved record of a version of `of`, superseded by record `until`.
    pub(super) fn put_version(
        &mut self,
        of: &[u8],
        until: u64,
        new: Entry,
        descriptor: Option<&Descriptor>,
    ) -> Result<()> {
        let mut key: Arc<[u8]> = superseded_key(of, until).into();
        let mut old = None;
        match self.version_behind(of, new.id)? {
            Some((known, entry)) if entry.id == new.id => (key, old) = (known.into(), Some(entry)),
            _ => self.end_version(of, new.id)?,
        }
        if old.is_none() && !self.accounts.keeps(new.id, until) {
            self.dead(new.location, new.id);
            return Ok(());
        }
        match old {
            Some(old) => {
                descriptor.map_or(Ok(()), |descriptor| self.move_units(old, descriptor))?;
                self.retire(&key, old, Leaves::Moved)?;
            }
            None => descriptor.iter().flat_map(|descriptor| descriptor.runs()).for_each(|run| self.take_run(run)),
        }
        self.count(new);
        if let Some(row) = self.segment(new.location.segment) {
            row.dead_records += 1;
        }
        let new = match old {
            Some(old) => new.with_attributes_as(&old),
            None => self.join_version(of, until, new)?,
        };
        self.set_version(&key, new);
        Ok(())
    }

    /// Record `id` comes between a version of `of` and its apparent successor. A log read from the beginning did not
    /// show that before: a tombstone or another version was moved after later records.
    pub(super) fn end_version(&mut self, of: &[u8], id: u64) -> Result<()> {
        if !self.accounts.keeps(0, u64::MAX) {
            return Ok(());
        }
        let Some((known, entry)) = self.version_behind(of, id)?.filter(|(_, entry)| entry.id < id) else {
            return Ok(());
        };
        if !self.accounts.keeps(entry.id, id) {
            return self.forget_entry(&known, entry);
        }
        self.forget(&known[..].into(), entry.id, entry.location);
        self.set_version(&superseded_key(of, id).into(), entry);
        Ok(())
    }

    /// Record `id` removed everything in the root. Only there can later entries exist: the number of any other
    /// directory is not reused.
    pub(super) fn end_versions_in_root(&mut self, id: u64) -> Result<()> {
        if !self.accounts.keeps(0, u64::MAX) {
            return Ok(());
        }
        self.end_versions_between(entries_of(ROOT), id)?;
        self.end_versions_between(attributes_of(ROOT), id)
    }

    fn end_versions_between(&mut self, (from, to): (Vec<u8>, Vec<u8>), id: u64) -> Result<()> {
        let (from, to) = (versions_from(&from), versions_from(&to));
        let changed: Vec<_> = self.versions.range(from.clone()..to.clone()).map(|(key, _)| key.clone()).collect();
        changed.iter().filter_map(|key| superseded(key)).try_for_each(|(of, _)| self.end_version(&of, id))?;
        let mut scan = self.accounts.snapshot().scan(Bound::Included(&from), Bound::Excluded(&to))?;
        let mut last = Vec::new();
        while let Some((key, _)) = scan.next_entry()? {
            // The versions of a key are adjacent.
            if let Some((of, _)) = superseded(key).filter(|(of, _)| *of != last) {
                self.end_version(&of, id)?;
                last = of;
            }
        }
        Ok(())
    }

    pub(super) fn set_version(&mut self, key: &Arc<[u8]>, entry: Entry) {
        self.versions.insert(key.to_vec(), Some(entry));
        self.keys.insert(key, entry);
    }

    /// As [`Snapshot::version_behind`], with the batch applied so far.
    pub(super) fn version_behind(&self, of: &[u8], sequence: u64) -> Result<Option<(Vec<u8>, Entry)>> {
        let mut behind = sequence;
        let before = loop {
            let index = self.revealed.as_ref().unwrap_or(self.accounts.snapshot());
            let Some((key, entry)) = index.version_behind(of, behind)? else { break None };
            if !self.versions.contains_key(&key) {
                break Some((key, entry));
            }
            behind = until_of(&key);
        };
        let range = (Bound::Excluded(superseded_key(of, sequence)), Bound::Excluded(versions_behind(of)));
        let changed = self.versions.range(range).find_map(|(key, entry)| Some((key.clone(), (*entry)?)));
        Ok(match (before, changed) {
            (Some(before), Some(changed)) => Some(if before.0 < changed.0 { before } else { changed }),
            (before, changed) => before.or(changed),
        })
    }

    /// Until when a snapshot references a version superseded by record `until`, or one that the index already has;
    /// `None` if none does.
    pub(super) fn kept_until(&self, key: &[u8], old: Entry, until: u64) -> Result<Option<u64>> {
        if is_superseded(key) || !self.accounts.keeps(old.id, until) {
            return Ok(None);
        }
        let next = self.version_behind(key, old.id)?.map(|(_, entry)| entry);
        match next {
            // It was inserted before the removal that is applied now, and then came a crash.
            Some(next) if (next.id, next.location) == (old.id, old.location) => Ok(Some(until)),
            // Its moved record was read before the one that superseded it.
            Some(next) if next.id == old.id => Ok(None),
            Some(next) if next.id < until => Ok(Some(next.id).filter(|&next| self.accounts.keeps(old.id, next))),
            _ => Ok(Some(until)),
        }
    }

    /// Removes a version that no snapshot references any more, or an entry, though the log has no record of that.
    pub(crate) fn forget_entry(&mut self, key: &[u8], old: Entry) -> Result<()> {
        self.forget(&key.into(), old.id, old.location);
        self.retire(key, old, Leaves::Forgotten)
    }

    /// Preserves an entry that a snapshot references and record `until` superseded.
    pub(super) fn keep_version(&mut self, key: &[u8], until: u64, old: Entry) {
        let key: Arc<[u8]> = superseded_key(key, until).into();
        match &mut self.left {
            Some(left) if left.until == until && !left.is_there => left.waiting.push((key, old)),
            Some(left) if left.until == until => {}
            _ => self.set_version(&key, old),
        }
    }

    /// From here on, versions left by record `id` are those of a tree.
    pub(super) fn begin_tree(&mut self, id: u64) {
        let is_there = self.accounts.early().is_some_and(|early| early.is_of(id) && early.is_whole);
        self.left = Some(Left { until: id, waiting: Vec::new(), is_full: false, is_there });
    }

    /// Inserts the versions so far into the index, if there are more than memory should hold.
    pub(super) fn write_if_many(&mut self) -> Result<()> {
        match (&mut self.left, self.accounts.piece()) {
            (Some(left), Some(piece)) if left.waiting.len() >= piece && !left.is_full => {
                left.write(self.accounts, false)
            }
            _ => Ok(()),
        }
    }

    /// The tree was traversed.
    pub(super) fn end_tree(&mut self) -> Result<()> {
        let Some(mut left) = self.left.take() else { return Ok(()) };
        let is_begun = self.accounts.early().is_some_and(|early| early.is_of(left.until));
        if is_begun && !left.is_there && !left.is_full && self.accounts.piece().is_some() {
            left.write(self.accounts, true)?;
        }
        left.waiting.iter().for_each(|(key, entry)| self.set_version(key, *entry));
        if is_begun {
            (self.revealed, self.takes_early_in) = (Some(self.accounts.revealed()), true);
        }
        Ok(())
    }
}

impl Left {
    /// Inserts waiting versions into the index. If its device is full, they keep waiting and come with the batch, like
    /// everything else in the log for which the index has no space.
    fn write<L: Accounts>(&mut self, accounts: &L, is_last: bool) -> Result<()> {
        match accounts.write_early(self.until, self.waiting.clone(), is_last) {
            Err(error) if error.kind() == ErrorKind::NoSpace => self.is_full = true,
            other => {
                other?;
                self.waiting.clear();
            }
        }
        Ok(())
    }
}
