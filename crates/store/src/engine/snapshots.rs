//! States that are kept by name.
//!
//! A snapshot is a sequence number in the log: what has that number or a lower one is in it. Taking one writes a record of some dozen bytes. From then on, what
//! takes the place of something that is in it leaves that in the index, under a key that says until when it was there (see `effects`), and its record and units
//! in use: compaction moves them, redundancy is kept up for them. When the last snapshot that has a version is removed, the version goes: all of them are
//! gone through, in bounded memory. What a crash interrupts is done when a writer opens the store; a note says that it is due.
//!
//! Segments repeat at their beginning which snapshots there are ([`Released`](crate::format::release::Released)), so that the record of one is not needed for ever, and an
//! index that is made from the log knows them before the records that they keep.

use std::sync::PoisonError;

use super::effects::{Effects, Nameless};
use super::{Engine, EngineLedger};
use crate::error::{Error, ErrorKind, Result};
use crate::format::entry::{Kind, Location};
use crate::format::index_key::{first_superseded, is_name, superseded};
use crate::format::record::{NewRecord, give_id};
use crate::format::rows::{Change, SnapshotRow};
use crate::log::writer::Written;
use crate::units::escape;

/// Note that versions may be there which no snapshot has.
const VERSIONS_DUE: &str = "snapshots.due";
/// So many versions go at a time.
const DROPPED_TOGETHER: usize = if cfg!(test) { 8 } else { 4096 };

/// The note that versions may be there which no snapshot has.
pub(crate) fn versions_due() -> (String, Vec<u8>) {
    (VERSIONS_DUE.to_owned(), b"due".to_vec())
}

fn fail(kind: ErrorKind, name: &[u8], cause: &str) -> Error {
    Error::new(kind, "keep a snapshot", format!("{}: {cause}", escape(name)))
}

impl Engine {
    /// Takes a snapshot of everything that was committed; durable on return.
    ///
    /// # Errors
    /// [`ErrorKind::Exists`] if there is one of the name; [`ErrorKind::Usage`] if it is no name; what writing fails with.
    pub(crate) fn take_snapshot(&self, name: &[u8]) -> Result<SnapshotRow> {
        if !is_name(name) || u16::try_from(name.len()).is_err() {
            return Err(fail(ErrorKind::Usage, name, "a name has no / and is not longer than 65,535 bytes"));
        }
        let created_nanoseconds = self.platform.now_nanoseconds();
        let content = &created_nanoseconds.to_le_bytes()[..];
        let record = NewRecord { name: Some(name), content, ..NewRecord::of(Kind::Snapshot) };
        self.change_snapshots(record, |sequence, snapshots| {
            if snapshots.iter().any(|row| row.name == name) {
                return Err(fail(ErrorKind::Exists, name, "there is a snapshot of this name"));
            }
            let row = SnapshotRow { sequence, created_nanoseconds, name: name.to_vec() };
            snapshots.push(row.clone());
            Ok(row)
        })
    }

    /// Removes a snapshot, and what only that had; gives whether there was one of the name.
    ///
    /// # Errors
    /// What writing and reading the index fails with.
    pub(crate) fn remove_snapshot(&self, name: &[u8]) -> Result<bool> {
        let known = |snapshots: &[SnapshotRow]| snapshots.iter().find(|row| row.name == name).map(|row| row.sequence);
        // Two who remove the same do it once.
        let Some(sequence) = known(&self.view().state.snapshots) else { return Ok(false) };
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
        self.drop_versions().map(|()| true)
    }

    /// Commits a record about snapshots; `change` makes of those that there are those that there will be, and is given the sequence number of the record.
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
        let Written { segment, begin, position } = self.append_somewhere(&mut writer, &self.geometry(), batch)?;
        let ledger = EngineLedger::new(self);
        let mut effects = Effects::new(&ledger, Nameless::Go);
        effects.appended(writer.active_row(), position);
        effects.dead(Location { segment, offset: begin, record_bytes }, id);
        let mut change = effects.finish(Some(position));
        change.highest_id = Some(id);
        if snapshots.len() < before {
            change.notes.push(versions_due());
        }
        writer.released.snapshots.clone_from(&snapshots);
        change.snapshots = Some(snapshots);
        drop(ledger);
        self.apply_pending(&mut writer, change)?;
        drop(writer);
        self.sync_all()?;
        Ok(done)
    }

    /// Versions that no snapshot has go, if there may be any.
    ///
    /// # Errors
    /// What reading the index and changing the catalog fails with. What went until then is gone.
    pub(crate) fn drop_versions(&self) -> Result<()> {
        if self.noted(VERSIONS_DUE).is_none() {
            return Ok(());
        }
        let mut from = first_superseded().to_vec();
        loop {
            let is_end = self.adjust_with(|_| self.without_some_versions(&mut from))?;
            let _one = self.sync.lock().unwrap_or_else(PoisonError::into_inner);
            self.flush_recent()?;
            if is_end {
                break;
            }
        }
        self.note(&[(VERSIONS_DUE, Vec::new())])
    }

    /// Forgets versions by their keys, as they are lost; gives how many were there.
    ///
    /// # Errors
    /// As [`drop_versions`](Self::drop_versions).
    pub(crate) fn forget_versions(&self, keys: &[Vec<u8>]) -> Result<u64> {
        if keys.is_empty() {
            return Ok(0);
        }
        self.adjust_with(|_| {
            let ledger = EngineLedger::of_log(self);
            let mut effects = Effects::new(&ledger, Nameless::Go);
            let mut forgotten = 0;
            for key in keys {
                if let Some(entry) = ledger.snapshot.look_up(key)? {
                    effects.forget_version(key, entry)?;
                    forgotten += 1;
                }
            }
            Ok((effects.finish(None), forgotten))
        })
    }

    fn without_some_versions(&self, from: &mut Vec<u8>) -> Result<(Change, bool)> {
        let ledger = EngineLedger::of_log(self);
        let mut effects = Effects::new(&ledger, Nameless::Go);
        let (mut dropped, mut is_end) = (0, true);
        let mut scan = ledger.snapshot.scan_versions_from(from)?;
        while let Some((key, entry)) = scan.next_entry()? {
            if superseded(key).is_some_and(|(_, until)| ledger.state.keeps(entry.id, until)) {
                continue;
            }
            if dropped == DROPPED_TOGETHER {
                *from = key.to_vec();
                is_end = false;
                break;
            }
            effects.forget_version(key, *entry)?;
            dropped += 1;
        }
        Ok((effects.finish(None), is_end))
    }
}
