//! Versions: what something took the place of and a snapshot has stays in the index, under a key that says until when it was there.
//!
//! The removal of a tree makes a version of every object in it. More than memory should hold are put into the index **early**: in pieces, before the removal is in
//! the log. A note says of which removal they are, and as long as it is there nobody sees them; the change that takes the removal in takes the note
//! away. So readers see the tree before its removal or after it, and of what a crash leaves nothing counts unless the log has the removal (see
//! [`early`](crate::engine::early)).

use std::ops::Bound;
use std::sync::Arc;

use super::{Effects, Leaves, Ledger};
use crate::error::{ErrorKind, Result};
use crate::format::descriptor::Descriptor;
use crate::format::entry::Entry;
use crate::format::index_key::{
    ROOT, entries_of, is_superseded, superseded, superseded_key, until_of, versions_behind, versions_from,
};

/// Versions, by their keys.
pub(crate) type Versions = Vec<(Arc<[u8]>, Entry)>;

/// Versions that a removed tree leaves, while it is gone through.
#[derive(Debug)]
pub(super) struct Left {
    /// The id of the removal.
    until: u64,
    /// That the index has not got yet.
    waiting: Versions,
    /// Its device has no room for more.
    is_full: bool,
    /// The index has all of them, since before the removal was in the log.
    is_there: bool,
}

impl<L: Ledger> Effects<'_, L> {
    /// A moved record of a version of `of`, of which record `until` took the place.
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
        if old.is_none() && !self.ledger.keeps(new.id, until) {
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
        self.set_version(&key, new);
        Ok(())
    }

    /// Record `id` is in between a version of `of` and what seemed to take the place of that, as the log, read from its beginning, had not said so yet: there is a removal, or
    /// another version, that was moved behind what came later.
    pub(super) fn end_version(&mut self, of: &[u8], id: u64) -> Result<()> {
        if !self.ledger.keeps(0, u64::MAX) {
            return Ok(());
        }
        let Some((known, entry)) = self.version_behind(of, id)?.filter(|(_, entry)| entry.id < id) else {
            return Ok(());
        };
        if !self.ledger.keeps(entry.id, id) {
            return self.forget_version(&known, entry);
        }
        self.forget(&known[..].into(), entry.id, entry.location);
        self.set_version(&superseded_key(of, id).into(), entry);
        Ok(())
    }

    /// Everything in the root was removed by record `id`. Only there can anything come later: no other directory has its number again.
    pub(super) fn end_versions_in_root(&mut self, id: u64) -> Result<()> {
        if !self.ledger.keeps(0, u64::MAX) {
            return Ok(());
        }
        let (from, to) = entries_of(ROOT);
        let (from, to) = (versions_from(&from), versions_from(&to));
        let changed: Vec<_> = self.versions.range(from.clone()..to.clone()).map(|(key, _)| key.clone()).collect();
        changed.iter().filter_map(|key| superseded(key)).try_for_each(|(of, _)| self.end_version(&of, id))?;
        let mut scan = self.ledger.snapshot().scan(Bound::Included(&from), Bound::Excluded(&to))?;
        let mut last = Vec::new();
        while let Some((key, _)) = scan.next_entry()? {
            // The versions of a key lie one behind the other.
            if let Some((of, _)) = superseded(key).filter(|(of, _)| *of != last) {
                self.end_version(&of, id)?;
                last = of;
            }
        }
        Ok(())
    }

    fn set_version(&mut self, key: &Arc<[u8]>, entry: Entry) {
        self.versions.insert(key.to_vec(), Some(entry));
        self.keys.insert(key, entry);
    }

    /// As [`Snapshot::version_behind`], as the batch has it so far.
    fn version_behind(&self, of: &[u8], sequence: u64) -> Result<Option<(Vec<u8>, Entry)>> {
        let mut behind = sequence;
        let before = loop {
            let index = self.revealed.as_ref().unwrap_or(self.ledger.snapshot());
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

    /// Until when a snapshot has a version that record `until` takes the place of, or one that the index knows already; `None` if none has it.
    pub(super) fn kept_until(&self, key: &[u8], old: Entry, until: u64) -> Result<Option<u64>> {
        if is_superseded(key) || !self.ledger.keeps(old.id, until) {
            return Ok(None);
        }
        let next = self.version_behind(key, old.id)?.map(|(_, entry)| entry.id);
        match next {
            // Its moved record was read before what took its place.
            Some(next) if next == old.id => Ok(None),
            Some(next) if next < until => Ok(Some(next).filter(|&next| self.ledger.keeps(old.id, next))),
            _ => Ok(Some(until)),
        }
    }

    /// No snapshot has a version any more, which is under this key.
    pub(crate) fn forget_version(&mut self, key: &[u8], old: Entry) -> Result<()> {
        self.forget(&key.into(), old.id, old.location);
        self.retire(key, old, Leaves::Forgotten)
    }

    /// What a snapshot has of a key, of which record `until` took the place.
    pub(super) fn keep_version(&mut self, key: &[u8], until: u64, old: Entry) {
        let key: Arc<[u8]> = superseded_key(key, until).into();
        match &mut self.left {
            Some(left) if left.until == until && !left.is_there => left.waiting.push((key, old)),
            Some(left) if left.until == until => {}
            _ => self.set_version(&key, old),
        }
    }

    /// From here on, versions that record `id` leaves are those of a tree.
    pub(super) fn begin_tree(&mut self, id: u64) {
        let is_there = self.ledger.early().is_some_and(|early| early.is_of(id) && early.is_whole);
        self.left = Some(Left { until: id, waiting: Vec::new(), is_full: false, is_there });
    }

    /// Puts what there is of them into the index, if that is more than memory should hold.
    pub(super) fn write_if_many(&mut self) -> Result<()> {
        match (&mut self.left, self.ledger.piece()) {
            (Some(left), Some(piece)) if left.waiting.len() >= piece && !left.is_full => left.write(self.ledger, false),
            _ => Ok(()),
        }
    }

    /// The tree was gone through.
    pub(super) fn end_tree(&mut self) -> Result<()> {
        let Some(mut left) = self.left.take() else { return Ok(()) };
        let is_begun = self.ledger.early().is_some_and(|early| early.is_of(left.until));
        if is_begun && !left.is_there && !left.is_full && self.ledger.piece().is_some() {
            left.write(self.ledger, true)?;
        }
        left.waiting.iter().for_each(|(key, entry)| self.set_version(key, *entry));
        if is_begun {
            (self.revealed, self.takes_early_in) = (Some(self.ledger.revealed()), true);
        }
        Ok(())
    }
}

impl Left {
    /// Puts what waits into the index. Where its device is full, that waits on and comes with the batch, as everything else that the log has and the index has no
    /// room for.
    fn write<L: Ledger>(&mut self, ledger: &L, is_last: bool) -> Result<()> {
        match ledger.write_early(self.until, self.waiting.clone(), is_last) {
            Err(error) if error.kind() == ErrorKind::NoSpace => self.is_full = true,
            other => {
                other?;
                self.waiting.clear();
            }
        }
        Ok(())
    }
}
