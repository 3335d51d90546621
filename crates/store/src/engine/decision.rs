//! The point in a recovery at which a writer decides to open: all of the log was read, and nothing is written yet, so
//! that an opening that is refused changes nothing (docs/FORMAT.md, law 3). Until then what is applied waits in memory,
//! as far as that suffices; what exceeds it goes to the index, which every recovery would bring to the same state.
//!
//! Devices that lack only epochs without batches count as up to date when superblocks are read (`devices::late`). Here
//! the end of the log is known: one that should have more is an old copy, has forgotten with whom it went on, and does
//! not count.

use super::Engine;
use super::replay::{LogTail, Replay};
use crate::error::{Error, ErrorKind, Result};
use crate::format::ids::{DeviceNumber, LogOffset, SegmentId, SegmentNumber};
use crate::format::names::segment_path;
use crate::format::rows::{Change, Position};
use crate::log::lineage::LogPart;
use crate::log::scan::ScanStep;
use crate::log::writer::Writer;

impl Engine {
    /// Applies a change from the log: to the catalog, if this process may change it, and to the view. The change waits
    /// while the log may still refuse to be opened and memory suffices, and while the device of the catalog is full.
    pub(super) fn take_in(&self, change: Change) -> Result<()> {
        if self.is_writer() {
            let mut writer = self.writer()?;
            writer.pend(change.clone());
            if !writer.is_undecided || self.is_recent_full() {
                self.commit_waiting(&mut writer)?;
            }
        } else if self.owns_index() {
            self.catalog.commit(&change)?;
        }
        self.apply(&change)
    }

    /// What waits becomes part of the catalog, so that the index may be changed out of the order of the log; returns
    /// whether nothing waits any more: the catalog may have no space for it.
    ///
    /// # Errors
    /// Any error of the catalog.
    pub(super) fn commit_pending(&self) -> Result<bool> {
        if !self.is_writer() {
            return Ok(self.owns_index());
        }
        let mut writer = self.writer()?;
        if writer.has_pending {
            self.commit_waiting(&mut writer)?;
        }
        Ok(!writer.has_pending)
    }

    fn commit_waiting(&self, writer: &mut Writer) -> Result<()> {
        let waiting = writer.take_pending();
        match self.catalog.commit(&waiting) {
            Err(error) if error.kind() == ErrorKind::NoSpace => {
                writer.pend(waiting);
                Ok(())
            }
            committed => committed,
        }
    }

    /// Whether it is still certain that no other device has anything newer, now that the end of the log is known. A
    /// writer may write from here on.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] if it is not, for a writer that was not told to continue; errors of the index.
    pub(super) fn decide(&self, replay: &Replay<'_>, tail: &LogTail) -> Result<bool> {
        let last_batch = replay.last_batch(tail);
        let old = self.devices.old_among_late(last_batch, |device| self.has_log(device, replay.position));
        let is_proven = old.is_empty() || self.devices.has_proof_without(&old, self.lost);
        if !self.is_writer() {
            return Ok(is_proven);
        }
        if !is_proven && !self.is_degraded {
            return Err(self.unproven(&old));
        }
        let mut writer = self.writer()?;
        writer.is_undecided = false;
        if writer.has_pending {
            self.commit_waiting(&mut writer)?;
        }
        Ok(is_proven)
    }

    fn unproven(&self, old: &[DeviceNumber]) -> Error {
        let words: Vec<String> = old.iter().map(|device| format!("device {device}")).collect();
        let cause = format!(
            "{} lacks the last batches, as an old copy does, and without it too few devices are present to be sure that \
             the others have nothing newer",
            words.join(", ")
        );
        Error::new(ErrorKind::Lost, "write to", cause)
            .at(&self.home)
            .advise("bring the missing devices back; --degraded writes without them")
    }

    /// Reads what a writer is about to apply: if opening fails with a system error, or must wait for a device, nothing
    /// has been written.
    ///
    /// # Errors
    /// As [`unreadable`](Self::unreadable) and [`wait_for_copies`](Self::wait_for_copies).
    pub(super) fn look_ahead(&self, parts: &[LogPart], start: Position, mark: u64) -> Result<()> {
        // Where something is damaged, after which batch.
        let mut damaged: Vec<(&LogPart, u64)> = Vec::new();
        let (mut sequence, mut mark) = (start.sequence, mark);
        for part in parts {
            let id = part.found.id;
            let from = if id.number == start.segment { start.offset } else { LogOffset::START };
            let mut scan = self.scan(id, &part.found.devices, from);
            let end = part.end.unwrap_or(LogOffset(part.found.size_bytes));
            let mut has_damage = scan.end < end;
            scan.end = end.min(scan.end);
            let mut is_open = false;
            if id.number != start.segment && part.found.header.is_none() {
                damaged.push((part, sequence));
            }
            while let Some(step) = scan.next(false) {
                match step {
                    ScanStep::Record(..) => is_open = true,
                    ScanStep::Damage(..) => {
                        has_damage = true;
                        damaged.push((part, sequence));
                    }
                    ScanStep::Commit(committed, ..) => {
                        (is_open, sequence) = (false, committed.commit.sequence.0);
                        mark = mark.max(committed.commit.mark.0);
                    }
                }
            }
            if is_open {
                damaged.push((part, sequence));
            }
            if has_damage && let Some((device, error)) = scan.take_error() {
                self.unreadable(device, id, error)?;
            }
        }
        let in_doubt = damaged.into_iter().find(|&(_, sequence)| sequence >= mark);
        in_doubt.map_or(Ok(()), |(LogPart { found, .. }, sequence)| {
            self.wait_for_copies(found.id.number, &found.devices, sequence)
        })
    }

    /// After batch `sequence`, one in a segment on these devices, or on those in the index, is not whole in sight. It
    /// may have been acknowledged, and may be whole on a device that is missing: nothing is written in its place before
    /// that returns, unless the log was closed.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`], for a writer that was not told to continue without it.
    pub(super) fn wait_for_copies(&self, segment: SegmentNumber, found: &[DeviceNumber], sequence: u64) -> Result<()> {
        let is_closed = self.devices.marks().iter().any(|mark| mark.is_closed && mark.sequence == sequence);
        let Some(away) = self.missing_copy(segment, found).filter(|_| !self.is_degraded && !is_closed) else {
            return Ok(());
        };
        let cause = format!(
            "the end of the log is damaged in segment {segment}, and device {away}, which may have it, is missing"
        );
        Err(Error::new(ErrorKind::Lost, "recover the log", cause)
            .at(&self.home)
            .advise("bring the device back; --degraded continues without what is damaged"))
    }

    /// A system error is not evidence of damage: a writer builds nothing on it, unless it was told to continue without
    /// what cannot be read.
    pub(super) fn unreadable(&self, device: DeviceNumber, id: SegmentId, error: std::io::Error) -> Result<()> {
        if !self.is_writer() || self.is_degraded {
            return Ok(());
        }
        Err(self
            .devices
            .error("recover the log from", device, &segment_path(id), error)
            .advise("check the device; --degraded continues without what cannot be read"))
    }
}
