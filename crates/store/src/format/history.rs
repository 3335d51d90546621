//! The history of epochs, as in every superblock (docs/FORMAT.md, section 4): who wrote to the store, after what, and
//! on which devices.
//!
//! Never empty; the newest epoch is last. This module is about the bytes only: `devices::epochs` compares histories.

#![cfg_attr(not(test), warn(clippy::indexing_slicing))]

use super::decode::Decoder;
use super::geometry::{EPOCH_BYTES, MEMBER_BYTES};
use super::ids::{DeviceNumber, Epoch};
use super::names::SegmentName;

/// Maximum number of epochs; older ones are dropped.
pub(crate) const MOST_EPOCHS: usize = 256;

/// One epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EpochEntry {
    pub(crate) epoch: Epoch,
    /// When it began, nanoseconds since 1970.
    pub(crate) began_nanoseconds: i64,
    /// Segments begun before it.
    pub(crate) segments_begun: u64,
    /// Sequence number of the last batch before it: if the next epoch has the same, no batch was written in this one.
    pub(crate) last_batch: u64,
    /// Devices in sync, ascending.
    pub(crate) in_sync: Vec<DeviceNumber>,
}

impl EpochEntry {
    pub(crate) fn has(&self, device: DeviceNumber) -> bool {
        self.in_sync.binary_search(&device).is_ok()
    }

    fn encoded_bytes(&self) -> usize {
        EPOCH_BYTES + MEMBER_BYTES * self.in_sync.len()
    }
}

/// Epochs, the newest last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct History {
    older: Vec<EpochEntry>,
    newest: EpochEntry,
}

impl History {
    /// The history of a new store.
    pub(crate) fn new(first: EpochEntry) -> History {
        History { older: Vec::new(), newest: first }
    }

    /// The newest epoch.
    pub(crate) fn newest(&self) -> &EpochEntry {
        &self.newest
    }

    /// All epochs, oldest first.
    pub(crate) fn entries(&self) -> impl DoubleEndedIterator<Item = &EpochEntry> + Clone {
        self.older.iter().chain(std::iter::once(&self.newest))
    }

    pub(crate) fn contains(&self, epoch: Epoch) -> bool {
        self.entries().any(|entry| entry.epoch == epoch)
    }

    /// Whether a segment of this name may be part of the log: it was begun in one of these epochs and before the next,
    /// or before the oldest of them. Any other was begun by a writer whose epoch these do not continue.
    pub(crate) fn may_have(&self, segment: SegmentName) -> bool {
        let is_begun_by = |entry: &EpochEntry| segment.number.0 <= entry.segments_begun;
        match self.entries().position(|entry| entry.epoch.low_half() == segment.epoch_low_half) {
            Some(at) => self.entries().skip(at + 1).all(is_begun_by),
            None => self.entries().all(is_begun_by),
        }
    }

    /// Whether a segment of this name was begun in one of these epochs, for certain. Of one that was begun in an older
    /// epoch, or on another side in as old a one, nobody can tell; what is removed must be known to be of this history.
    pub(crate) fn has_begun(&self, segment: SegmentName) -> bool {
        self.entries().any(|entry| entry.epoch.low_half() == segment.epoch_low_half) && self.may_have(segment)
    }

    /// The epochs after `epoch`, oldest first; `None` if it is not in the history.
    pub(crate) fn after(&self, epoch: Epoch) -> Option<impl Iterator<Item = &EpochEntry> + Clone> {
        let at = self.entries().position(|entry| entry.epoch == epoch)?;
        Some(self.entries().skip(at + 1))
    }

    /// The last batch that a writer of `epoch` may have written: the next writer found that the log ended there. `None`
    /// if there is no next one, or the epoch is not in the history.
    pub(crate) fn last_batch_of(&self, epoch: Epoch) -> Option<u64> {
        self.after(epoch)?.next().map(|next| next.last_batch)
    }

    /// When the epoch began in which a batch was written: of several, the earliest that may have it.
    pub(crate) fn began_before(&self, batch: u64) -> Option<i64> {
        let last = self.entries().map(|entry| entry.last_batch).filter(|&last| last < batch).max()?;
        self.entries().find(|entry| entry.last_batch == last).map(|entry| entry.began_nanoseconds)
    }

    /// The same history with one more epoch.
    pub(crate) fn followed_by(&self, next: EpochEntry) -> History {
        let mut older: Vec<EpochEntry> = self.entries().cloned().collect();
        older.drain(..older.len().saturating_sub(MOST_EPOCHS - 1));
        History { older, newest: next }
    }

    /// The history up to `epoch`, which is then its newest; `None` if it is not in the history.
    pub(crate) fn up_to(&self, epoch: Epoch) -> Option<History> {
        let at = self.entries().position(|entry| entry.epoch == epoch)?;
        let mut older: Vec<EpochEntry> = self.entries().take(at + 1).cloned().collect();
        let newest = older.pop()?;
        Some(History { older, newest })
    }

    /// Appends the history in at most `room` bytes: what does not fit is dropped, oldest first. Returns whether the
    /// newest epoch fits.
    pub(crate) fn encode(&self, room: usize, onto: &mut Vec<u8>) -> bool {
        let mut left = room.saturating_sub(2);
        let mut kept = 0;
        for entry in self.entries().rev().take(MOST_EPOCHS) {
            let Some(rest) = left.checked_sub(entry.encoded_bytes()) else { break };
            (left, kept) = (rest, kept + 1);
        }
        onto.extend_from_slice(&(kept as u16).to_le_bytes());
        for entry in self.entries().skip(self.older.len() + 1 - kept) {
            for field in [entry.epoch.0, entry.began_nanoseconds as u64, entry.segments_begun, entry.last_batch] {
                onto.extend_from_slice(&field.to_le_bytes());
            }
            onto.extend_from_slice(&(entry.in_sync.len() as u16).to_le_bytes());
            entry.in_sync.iter().for_each(|device| onto.extend_from_slice(&device.0.to_le_bytes()));
        }
        kept > 0
    }

    /// `None` if it is truncated, empty, longer than [`MOST_EPOCHS`], or a set is not in ascending order.
    pub(crate) fn decode(at: &mut Decoder<'_>) -> Option<History> {
        let count = usize::from(at.u16()?);
        let mut older = Vec::new();
        for _ in 0..count {
            let entry = EpochEntry {
                epoch: Epoch(at.u64()?),
                began_nanoseconds: at.u64()? as i64,
                segments_begun: at.u64()?,
                last_batch: at.u64()?,
                in_sync: (0..at.u16()?).map(|_| at.u16().map(DeviceNumber)).collect::<Option<_>>()?,
            };
            if !entry.in_sync.is_sorted_by(|a, b| a < b) {
                return None;
            }
            older.push(entry);
        }
        let newest = older.pop().filter(|_| count <= MOST_EPOCHS)?;
        Some(History { older, newest })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::ids::SegmentNumber;

    fn entry(epoch: u64, set: &[u16]) -> EpochEntry {
        EpochEntry {
            epoch: Epoch(epoch),
            began_nanoseconds: -3,
            segments_begun: epoch,
            last_batch: 7 * epoch,
            in_sync: set.iter().map(|&number| DeviceNumber(number)).collect(),
        }
    }

    #[test]
    fn what_does_not_fit_is_forgotten_and_the_newest_stays() {
        let mut history = History::new(entry(0, &[0, 1]));
        for epoch in 1..300 {
            history = history.followed_by(entry(epoch, &[0, 1]));
        }
        assert_eq!(history.entries().count(), MOST_EPOCHS);
        for (room, kept) in [(1 << 20, MOST_EPOCHS), (2 + 38 * 10, 10), (2 + 38 * 2 - 1, 1)] {
            let mut bytes = Vec::new();
            assert!(history.encode(room, &mut bytes) && bytes.len() <= room);
            let mut at = Decoder::new(&bytes);
            let read = History::decode(&mut at).unwrap();
            assert!(at.rest().is_empty());
            assert_eq!((read.entries().count(), read.newest()), (kept, history.newest()));
        }
        assert!(!history.encode(39, &mut Vec::new()));
    }

    #[test]
    fn a_segment_belongs_to_the_epoch_that_began_it_and_not_to_what_another_continued() {
        // Epochs 2, 3 and 4 begin after that many segments.
        let history = (3..5).fold(History::new(entry(2, &[0])), |known, epoch| known.followed_by(entry(epoch, &[0])));
        for (number, epoch, expected) in [
            (3, 2, true),
            (4, 2, false),
            (4, 3, true),
            (5, 3, false),
            (5, 4, true),
            (9, 4, true),
            // An epoch that was dropped, or that is on another side.
            (2, 77, true),
            (3, 77, false),
        ] {
            let name = SegmentName { number: SegmentNumber(number), epoch_low_half: epoch };
            assert_eq!(history.may_have(name), expected, "segment {number} of epoch {epoch}");
            assert_eq!(history.has_begun(name), expected && epoch < 77, "segment {number} of epoch {epoch}");
        }
    }

    #[test]
    fn a_set_that_does_not_rise_and_no_epoch_are_no_history() {
        for (set, is_sound) in [(&[0, 3][..], true), (&[], true), (&[1, 1], false), (&[2, 1], false)] {
            let mut bytes = Vec::new();
            History::new(entry(1, set)).encode(1000, &mut bytes);
            assert_eq!(History::decode(&mut Decoder::new(&bytes)).is_some(), is_sound, "{set:?}");
        }
        assert_eq!(History::decode(&mut Decoder::new(&[0, 0])), None);
    }
}
