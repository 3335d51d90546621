//! States preserved by name.
//!
//! A snapshot is a sequence number in the log: it contains everything with that number or a lower one. Taking one
//! writes a record of a few dozen bytes. From then on, superseded entries that it contains stay in the index, under
//! keys that say until when they existed (see `effects`), and their records and units stay live: compaction moves them,
//! and their redundancy is maintained. When the last snapshot with a version is removed, so is the version: all
//! versions are traversed, in bounded memory. If a crash or lack of space interrupts that, it is completed when a
//! writer opens or compacts the store; a note says that it is due.
//!
//! Segments repeat the list of snapshots at their beginning ([`Released`](crate::format::release::Released)), so that
//! the record of one need not be kept forever, and an index built from the log knows them before the records that they
//! reference.

use super::effects::{Effects, Nameless};
use super::{Engine, EngineAccounts};
use crate::devices::placement::Purpose;
use crate::error::{Error, ErrorKind, Result};
use crate::format::entry::{Kind, Location};
use crate::format::index_key::{first_superseded, is_name, superseded};
use crate::format::record::{NewRecord, give_id};
use crate::format::rows::{Change, SnapshotRow};
use crate::locks::lock;
use crate::log::writer::WrittenBatch;
use crate::units::escape;

/// Note that there may be versions that no snapshot references.
const VERSIONS_DUE: &str = "snapshots.due";
/// Number of versions removed per transaction.
pub(super) const DROPPED_TOGETHER: usize = if cfg!(test) { 8 } else { 4096 };

/// The note that there may be versions that no snapshot references.
pub(crate) fn versions_due() -> (String, Vec<u8>) {
    (VERSIONS_DUE.to_owned(), b"due".to_vec())
}

fn fail(kind: ErrorKind, name: &[u8], cause: &str) -> Error {
    Error::new(kind, "create a snapshot", format!("{}: {cause}", escape(name)))
}

impl Engine {
    /// Takes a snapshot of everything committed; durable on return.
    ///
    /// # Errors
    /// [`ErrorKind::Exists`] if there is one of this name; [`ErrorKind::Usage`] if the name is invalid; any error of
    /// writing.
    pub(crate) fn take_snapshot(&self, name: &[u8]) -> Result<SnapshotRow> {
        if !is_name(name) {
            return Err(fail(ErrorKind::Usage, name, "a name has no / and at most 65,535 bytes"));
        }
        let created_nanoseconds = self.platform.now_nanoseconds();
        let content = &created_nanoseconds.to_le_bytes()[..];
        let record = NewRecord { name: Some(name), content, ..NewRecord::of(Kind::Snapshot) };
        self.change_snapshots(record, |sequence, snapshots| {
            if snapshots.iter().any(|row| row.name == name) {
                return Err(fail(ErrorKind::Exists, name, "a snapshot with this name exists"));
            }
            let row = SnapshotRow { sequence, created_nanoseconds, name: name.to_vec() };
            snapshots.push(row.clone());
            Ok(row)
        })
    }

    /// Removes a snapshot, and what only it referenced; returns whether one of this name existed.
    ///
    /// # Errors
    /// Any error of writing and of reading the index.
    pub(crate) fn remove_snapshot(&self, name: &[u8]) -> Result<bool> {
        // If two callers remove the same one, only one does it.
        let known = self.view().state.snapshot_named(name).map(|row| row.sequence);
        let Some(sequence) = known else { return Ok(false) };
        let content = &sequence.to_le_bytes()[..];
        let record = NewRecord { content, ..NewRecord::of(Kind::Snapshot) };
        let removed = self.change_snapshots(record, |_, snapshots| {
            let is_there = snapshots.iter().any(|row| row.sequence == sequence);
            snapshots.retain(|row| row.sequence != sequence);
            if is_there { Ok(()) } else { Err(fail(ErrorKind::NotFound, name, "it was removed meanwhile")) }
        });
        match removed {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            other => other?,
        }
        // It is gone, whatever waits.
        self.or_later(self.drop_versions()).map(|()| true)
    }

    /// Commits a record about snapshots; `change` modifies the existing ones, and receives the sequence number of the
    /// record.
    fn change_snapshots<T>(
        &self,
        record: NewRecord<'_>,
        change: impl FnOnce(u64, &mut Vec<SnapshotRow>) -> Result<T>,
    ) -> Result<T> {
        let alignment = self.geometry().alignment;
        let mut bytes = Vec::new();
        record.encode(alignment, &mut bytes)?;
        let mut writer = self.writer()?;
        let before = self.view().state.snapshots.len();
        let mut snapshots = self.view().state.snapshots.to_vec();
        let id = self.give_ids(1)?;
        let done = change(id, &mut snapshots)?;
        give_id(&mut bytes, id);
        let record_bytes = bytes.len() as u64;
        let batch = self.batch_of(&mut bytes);
        let WrittenBatch { segment, begin, position } =
            self.append_somewhere(&mut writer, &self.geometry(), Purpose::Put, batch)?;
        let accounts = EngineAccounts::new(self);
        let mut effects = Effects::new(&accounts, Nameless::Go);
        effects.appended(writer.active_row(), position);
        effects.dead(Location { segment, offset: begin, record_bytes }, id);
        let mut change = effects.finish(Some(position));
        change.highest_id = Some(id);
        if snapshots.len() < before {
            change.notes.push(versions_due());
        }
        writer.released.snapshots.clone_from(&snapshots);
        change.snapshots = Some(snapshots);
        drop(accounts);
        self.apply_pending(&mut writer, change)?;
        drop(writer);
        self.sync_all()?;
        Ok(done)
    }

    /// Removes versions that no snapshot references, if there may be any.
    ///
    /// # Errors
    /// Any error of reading the index and changing the catalog. What was removed until then stays removed.
    pub(crate) fn drop_versions(&self) -> Result<()> {
        if self.noted(VERSIONS_DUE).is_none() {
            return Ok(());
        }
        let mut from = first_superseded().to_vec();
        loop {
            let is_end = self.adjust_with(|_| self.without_some_versions(&mut from))?;
            let _sync = lock(&self.sync);
            self.flush_recent()?;
            if is_end {
                break;
            }
        }
        self.note(&[(VERSIONS_DUE, Vec::new())])
    }

    /// Forgets lost versions by their keys; returns how many existed.
    ///
    /// # Errors
    /// As [`drop_versions`](Self::drop_versions).
    pub(crate) fn forget_versions(&self, keys: &[Vec<u8>]) -> Result<u64> {
        let mut forgotten = 0;
        for keys in keys.chunks(DROPPED_TOGETHER) {
            forgotten += self.adjust_with(|_| {
                let accounts = EngineAccounts::of_log(self);
                let mut effects = Effects::new(&accounts, Nameless::Go);
                let mut forgotten = 0;
                for key in keys {
                    if let Some(entry) = accounts.snapshot.look_up(key)? {
                        effects.forget_entry(key, entry)?;
                        forgotten += 1;
                    }
                }
                Ok((effects.finish(None), forgotten))
            })?;
            let _sync = lock(&self.sync);
            self.flush_recent()?;
        }
        Ok(forgotten)
    }

    fn without_some_versions(&self, from: &mut Vec<u8>) -> Result<(Change, bool)> {
        let accounts = EngineAccounts::of_log(self);
        let mut effects = Effects::new(&accounts, Nameless::Go);
        let (mut dropped, mut is_end) = (0, true);
        let mut scan = accounts.snapshot.scan_versions_from(from)?;
        while let Some((key, entry)) = scan.next_entry()? {
            if superseded(key).is_some_and(|(_, until)| accounts.state.keeps(entry.id, until)) {
                continue;
            }
            if dropped == DROPPED_TOGETHER {
                *from = key.to_vec();
                is_end = false;
                break;
            }
            effects.forget_entry(key, *entry)?;
            dropped += 1;
        }
        Ok((effects.finish(None), is_end))
    }
}
