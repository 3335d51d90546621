//! Whether a writer sees enough devices to write.
//!
//! Why more than half of the last set is enough: every change of the set is an epoch that all devices of the set have
//! before anything is acknowledged in it. A later epoch would also have begun with more than half of this set, so some
//! device seen here would have it. The set of an epoch that perhaps was never established is not enough by itself:
//! others may have continued from the previous one (Jajodia and Mutchler, "Dynamic Voting Algorithms for Maintaining
//! the Consistency of a Replicated Database", ACM TODS 15 (2), 1990).

use super::SeenHistories;
use crate::format::history::{EpochEntry, History};
use crate::format::ids::DeviceNumber;

/// What a writer knows before it writes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WriterView<'s> {
    /// Devices that have the newest epoch, or lack only unused ones.
    pub(crate) in_sync: &'s [DeviceNumber],
    /// All superblocks, including those of old copies.
    pub(crate) seen: &'s SeenHistories<'s>,
    /// The last batch that was durable according to a mark.
    pub(crate) marked: u64,
    /// A device declared lost, which is not waited for.
    pub(crate) lost: Option<DeviceNumber>,
}

impl WriterView<'_> {
    /// Whether an epoch certainly began on all of its set: all of them have it, or something was written in it.
    fn is_established(&self, entry: &EpochEntry, last_batch_after: u64) -> bool {
        let has = |device: &DeviceNumber| {
            self.seen.iter().any(|(seen, history)| seen == device && history.contains(entry.epoch))
        };
        last_batch_after > entry.last_batch || entry.in_sync.iter().all(has)
    }

    /// Whether more than half of a set is in sync; or half of it, with the other half visible, which then cannot be
    /// part of a majority elsewhere.
    fn is_enough_of(&self, entry: &EpochEntry) -> bool {
        let wanted: Vec<&DeviceNumber> = entry.in_sync.iter().filter(|device| Some(**device) != self.lost).collect();
        let in_sync = wanted.iter().filter(|device| self.in_sync.contains(device)).count();
        let in_sight = wanted.iter().filter(|device| self.seen.iter().any(|(seen, _)| seen == **device)).count();
        in_sync > 0 && (2 * in_sync > wanted.len() || 2 * in_sync == wanted.len() && in_sight == wanted.len())
    }

    /// Whether this suffices to write: of the last set, and of earlier ones as long as it is unknown whether the
    /// following epoch was established.
    pub(crate) fn has_proof(&self, newest: &History) -> bool {
        let mut last_batch_after = self.marked;
        for entry in newest.entries().rev() {
            if !self.is_enough_of(entry) {
                return false;
            }
            if self.is_established(entry, last_batch_after) {
                break;
            }
            last_batch_after = entry.last_batch;
        }
        true
    }
}
