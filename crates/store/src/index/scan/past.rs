//! The state at an earlier sequence number: the newest version of each key up to it.
//!
//! That is the current entry of the key, if it is old enough; else a version superseded later. Those have keys that end
//! in the sequence number that superseded them ([`superseded_key`](crate::format::index_key::superseded_key)): the
//! first such key after the requested number is the version at that time, if the object existed. Only sequence numbers
//! of snapshots may be requested: the versions of others are gone.
//!
//! The entry of a file has the attributes of its newest attributes record. If that is too new, there is a version of
//! that record: the first such record of a file is not written while a snapshot has the file without one.

use std::ops::Bound;

use super::Scan;
use crate::error::Result;
use crate::format::entry::Entry;
use crate::format::index_key::{
    attributes_key, first_superseded, is_superseded, superseded, superseded_key, versions_behind, versions_from,
};
use crate::index::Snapshot;

/// An entry with its key.
type KeyedEntry = (Vec<u8>, Entry);

impl Snapshot {
    /// The entry for a stored key at a sequence number.
    ///
    /// # Errors
    /// As [`look_up`](Self::look_up).
    pub(crate) fn look_up_at(&self, key: &[u8], sequence: u64) -> Result<Option<Entry>> {
        match self.look_up_now(key)? {
            Some(now) if now.id <= sequence => self.attributes_at(key, now, sequence).map(Some),
            _ => match self.version_behind(key, sequence)?.filter(|(_, entry)| entry.id <= sequence) {
                Some((_, entry)) => self.attributes_at(key, entry, sequence).map(Some),
                None => Ok(None),
            },
        }
    }

    /// An entry with the attributes that its object had at a sequence number.
    fn attributes_at(&self, key: &[u8], entry: Entry, sequence: u64) -> Result<Entry> {
        if entry.attributes_id <= sequence {
            return Ok(entry);
        }
        let is_its = |then: &Entry| then.id > entry.id && then.number == entry.number;
        let then = self.look_up_at(&attributes_key(key), sequence)?.filter(is_its);
        // Without a version it was lost: those in the record of the file are all there is.
        Ok(then.map_or(Entry { attributes_id: 0, ..entry }, |then| entry.with_attributes(&then)))
    }

    /// The oldest version of a key that was superseded after a sequence number, with the key of that version.
    ///
    /// # Errors
    /// As [`look_up`](Self::look_up).
    pub(crate) fn version_behind(&self, key: &[u8], sequence: u64) -> Result<Option<KeyedEntry>> {
        let (from, to) = (superseded_key(key, sequence + 1), versions_behind(key));
        Scan::of_now(self, Bound::Included(&from), Bound::Excluded(&to))?.next().transpose()
    }

    /// Whether there are any superseded versions.
    ///
    /// # Errors
    /// As [`look_up`](Self::look_up).
    pub(crate) fn has_versions(&self) -> Result<bool> {
        Ok(Scan::of_now(self, Bound::Included(&first_superseded()), Bound::Unbounded)?.next_entry()?.is_some())
    }
}

/// What was between two keys at a sequence number.
#[derive(Debug)]
pub(super) struct PastScan {
    snapshot: Snapshot,
    sequence: u64,
    /// Current entries: those old enough existed then too.
    now: Scan,
    /// Superseded versions.
    versions: Scan,
    /// The next of each.
    next_now: Option<KeyedEntry>,
    next_version: Option<KeyedEntry>,
    given: Option<KeyedEntry>,
}

impl PastScan {
    pub(super) fn new(snapshot: &Snapshot, sequence: u64, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Result<PastScan> {
        let end = first_superseded();
        let to_now = match to {
            Bound::Unbounded => Bound::Excluded(&end[..]),
            other => other,
        };
        let now = Scan::of_now(snapshot, from, to_now)?;
        let from = match from {
            Bound::Included(key) => versions_from(key),
            Bound::Excluded(key) => versions_behind(key),
            Bound::Unbounded => end.to_vec(),
        };
        let to = match to {
            Bound::Included(key) => Bound::Excluded(versions_behind(key)),
            Bound::Excluded(key) if !is_superseded(key) => Bound::Excluded(versions_from(key)),
            Bound::Excluded(_) | Bound::Unbounded => Bound::Unbounded,
        };
        let versions = Scan::of_now(snapshot, Bound::Included(&from), to.as_ref().map(Vec::as_slice))?;
        let (snapshot, next_now, next_version, given) = (snapshot.clone(), None, None, None);
        let mut scan = PastScan { snapshot, sequence, now, versions, next_now, next_version, given };
        scan.step_now()?;
        scan.step_versions()?;
        Ok(scan)
    }

    fn step_now(&mut self) -> Result<()> {
        self.next_now = loop {
            match self.now.next_entry()? {
                Some((_, entry)) if entry.id > self.sequence => {}
                found => break found.map(|(key, entry)| (key.to_vec(), *entry)),
            }
        };
        Ok(())
    }

    fn step_versions(&mut self) -> Result<()> {
        self.next_version = loop {
            let Some((key, entry)) = self.versions.next_entry()? else { break None };
            let was_there = |until: u64| entry.id <= self.sequence && self.sequence < until;
            if let Some((key, _)) = superseded(key).filter(|&(_, until)| was_there(until)) {
                break Some((key, *entry));
            }
        };
        Ok(())
    }

    pub(super) fn next_entry(&mut self) -> Result<()> {
        let is_version = match (&self.next_now, &self.next_version) {
            (Some((now, _)), Some((version, _))) => version < now,
            (now, _) => now.is_none(),
        };
        let next = if is_version { self.next_version.take() } else { self.next_now.take() };
        self.given = match next {
            Some((key, entry)) => {
                let entry = self.snapshot.attributes_at(&key, entry, self.sequence)?;
                Some((key, entry))
            }
            None => None,
        };
        if is_version { self.step_versions() } else { self.step_now() }
    }

    pub(super) fn given(&self) -> Option<(&[u8], &Entry)> {
        self.given.as_ref().map(|(key, entry)| (&key[..], entry))
    }

    /// Advances to `key`, unless it is already past it.
    pub(super) fn seek(&mut self, key: &[u8]) -> Result<()> {
        if self.next_now.as_ref().is_some_and(|(next, _)| &next[..] < key) {
            self.now.seek(key)?;
            self.step_now()?;
        }
        if self.next_version.as_ref().is_some_and(|(next, _)| &next[..] < key) {
            self.versions.seek(&versions_from(key))?;
            self.step_versions()?;
        }
        Ok(())
    }
}
