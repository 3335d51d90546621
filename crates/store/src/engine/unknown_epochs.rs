//! Epochs that no superblock has, and that segments do.
//!
//! **A damaged slot.** A device has two superblocks, written in turn. If the newer one is damaged on every device that
//! has the newest epoch known, an epoch may have begun after that. As only one of two superblocks is lost, only one
//! epoch can be; the headers of its segments have it (docs/FORMAT.md, section 4).
//!
//! **Old superblocks.** All superblocks may be old together: put back from a copy, while the segments stayed. Then the
//! segments go on beyond the newest epoch known. A writer of this history numbers its segments above all in sight, so a
//! higher one on a device that is in sync was begun later, not by a side that was given up. If these segments continue
//! the log, they prove which epochs followed. Readers follow them, and say so; no writer opens before a repair has
//! written the superblocks again ([`follow`]).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::locking::locked;
use crate::devices::platform::Platform;
use crate::devices::set::Devices;
use crate::devices::slot::Slot;
use crate::devices::survey::{OpenOptions, survey};
use crate::devices::{names, written};
use crate::error::{Error, ErrorKind, Result};
use crate::format::history::{EpochEntry, History};
use crate::format::ids::{Epoch, SegmentNumber};
use crate::format::names::{SEGMENTS, SegmentName};
use crate::format::segment::{Commit, FIRST_BATCH_AT, SegmentHeader};
use crate::log::completeness::{Cause, Missing};

/// Segments beyond the newest epoch of all superblocks.
#[derive(Debug)]
pub(super) struct Beyond {
    /// Their epochs, oldest first; none if they do not continue the log.
    epochs: Vec<EpochEntry>,
    /// The first and the last of them.
    segments: (SegmentNumber, SegmentNumber),
}

impl Beyond {
    /// Whether they continue the log.
    pub(super) fn continues(&self) -> bool {
        !self.epochs.is_empty()
    }

    /// What may be missing because of them.
    pub(super) fn missing(&self) -> Missing {
        let cause = if self.continues() { Cause::SuperblocksOld } else { Cause::UnknownSegments };
        let segments = Some(self.segments);
        Missing { cause, segments, batches: None, after_nanoseconds: None, devices: Vec::new() }
    }

    /// Why no writer opens.
    pub(super) fn refusal(&self, home: &Path) -> Error {
        Error::new(ErrorKind::Lost, "write to", self.missing().to_string())
            .at(home)
            .advise("granulo store repair follows the log and writes the superblocks again")
    }
}

/// Adds the epochs to the history that segments prove. Returns the segments of those that superblocks should have.
pub(super) fn find(devices: &Devices, store: &[u8; 16]) -> Option<Beyond> {
    let history = devices.history();
    let (mut known, mut beyond) = (BTreeSet::new(), BTreeMap::new());
    for slot in devices.slots().iter().filter(|slot| slot.is_writable() && !slot.is_late) {
        // A device that cannot be listed is reported when the log is read.
        let listed = names::list_names(&*slot.device, SEGMENTS).unwrap_or_default();
        for name in listed.iter().filter_map(|name| SegmentName::parse(name)) {
            if history.may_have(name) {
                known.insert(name);
            } else if name.number.0 > history.newest().segments_begun
                && let Some(header) = slot.segment_header(name, store)
            {
                beyond.insert(name, header);
            }
        }
    }
    let beyond: Vec<SegmentHeader> = beyond.into_values().collect();
    let (first, last) = (beyond.first()?.id.number, beyond.last()?.id.number);
    let epochs = epochs(&history, &beyond);
    if let ([entry], true) = (&epochs[..], devices.may_lack_epoch()) {
        devices.add_epoch(entry.clone());
        return None;
    }
    let log = Log { devices, store, history: &history, known: &known, beyond: &beyond };
    let epochs = if log.goes_on() { epochs } else { Vec::new() };
    epochs.iter().for_each(|entry| devices.add_epoch(entry.clone()));
    Some(Beyond { epochs, segments: (first, last) })
}

/// Writes superblocks that are older than the log again, with the epochs that segments prove.
///
/// # Errors
/// As for any writer, except that superblocks are old; any error of writing them.
pub(crate) fn follow(platform: &dyn Platform, directory: &Path, options: &OpenOptions) -> Result<()> {
    let mut locks = Vec::new();
    let found = locked(platform, directory, options, survey(platform, directory, options)?, &mut locks)?;
    let store = found.geometry.store;
    let devices = Devices::new(platform, found, false)?;
    match find(&devices, &store) {
        Some(beyond) if beyond.continues() => devices.write_history(),
        _ => Ok(()),
    }
}

/// The epochs of segments, in the order of their numbers.
fn epochs(history: &History, segments: &[SegmentHeader]) -> Vec<EpochEntry> {
    let mut epochs: Vec<EpochEntry> = Vec::new();
    for header in segments {
        if epochs.last().is_none_or(|last| last.epoch != header.id.epoch) {
            epochs.push(EpochEntry {
                epoch: header.id.epoch,
                began_nanoseconds: header.created_nanoseconds,
                segments_begun: header.id.number.0 - 1,
                last_batch: header.continues.sequence.0,
                in_sync: history.newest().in_sync.clone(),
            });
        }
    }
    epochs
}

/// The log of the superblocks, and segments that may continue it.
struct Log<'l> {
    devices: &'l Devices,
    store: &'l [u8; 16],
    history: &'l History,
    /// Segments of the history.
    known: &'l BTreeSet<SegmentName>,
    /// By ascending number.
    beyond: &'l [SegmentHeader],
}

impl Log<'_> {
    /// Whether nothing in sight contradicts that the segments continue the log, one after the other: nothing that was
    /// acknowledged is behind the position that one of them continues.
    fn goes_on(&self) -> bool {
        let Some(first) = self.beyond.first() else { return false };
        let mut seen: BTreeSet<Epoch> = self.history.entries().map(|entry| entry.epoch).collect();
        let is_new = epochs(self.history, self.beyond).into_iter().all(|entry| seen.insert(entry.epoch));
        let is_ascending = self.beyond.is_sorted_by(|a, b| a.id.number < b.id.number);
        let is_behind = self.known.iter().all(|name| name.number < first.id.number);
        is_new && is_ascending && is_behind && self.has_known_end(first) && self.beyond.iter().all(|one| self.fits(one))
    }

    /// Whether a segment begins behind everything that superblocks know to be durable.
    fn has_known_end(&self, first: &SegmentHeader) -> bool {
        let from = first.continues;
        self.history.newest().last_batch <= from.sequence.0
            && self.devices.marks().iter().all(|mark| match mark.sequence.cmp(&from.sequence.0) {
                std::cmp::Ordering::Less => true,
                std::cmp::Ordering::Equal => mark.chain == from.chain,
                std::cmp::Ordering::Greater => false,
            })
    }

    /// Whether the segments from the one on that this one continues, as far as they are there, say nothing else: none
    /// has another batch in the place of the last one before it, or a mark of a later one.
    fn fits(&self, one: &SegmentHeader) -> bool {
        let from = one.continues;
        let known = self.known.iter().copied();
        let others = known.chain(self.beyond.iter().map(|other| other.id.into()));
        let others: Vec<SegmentName> = others.filter(|name| name.number < one.id.number).collect();
        // If the one that it continues was released since, the last one before it that is there.
        let begin = others.iter().map(|name| name.number).filter(|&number| number <= from.segment).max();
        let begin = begin.unwrap_or(from.segment);
        let refutes = |commit: &Commit| {
            let is_other = commit.sequence == from.sequence && commit.chain() != from.chain;
            is_other || commit.mark > from.sequence
        };
        from.segment < one.id.number
            && others.into_iter().filter(|name| name.number >= begin).all(|name| !self.has(name, &refutes))
    }

    /// Whether a copy of a segment has such a commit, as far as it can be read.
    fn has(&self, name: SegmentName, is_sought: &dyn Fn(&Commit) -> bool) -> bool {
        let has = |slot: &Slot| written::has_commit(&*slot.device, self.store, name, FIRST_BATCH_AT, is_sought);
        self.devices.slots().iter().filter(|slot| slot.is_writable()).any(|slot| has(slot) == Some(true))
    }
}
