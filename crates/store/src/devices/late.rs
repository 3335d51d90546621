//! Devices that lack the newest epochs, in which nothing was written according to superblocks: they are late.
//!
//! A crash between the superblocks leaves such devices; so does a restored copy that lacks what was written in the last
//! epoch. The segments of the others tell: in the second case the log goes on there. Lengths alone do not, because a
//! segment may have a quarantine behind its part of the log, of any length on each device.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::epochs::{WriterView, may_be_of_copy};
use super::names;
use super::set::Devices;
use super::slot::{Slot, Trouble};
use super::superblocks::{self, OnDevice};
use super::survey::{Survey, superblock_if_any};
use crate::error::Result;
use crate::format::history::History;
use crate::format::ids::DeviceNumber;
use crate::format::names::{SEGMENTS, SegmentName};
use crate::format::superblock::{Superblock, last_marked};

/// The segments of a device, with their sizes in bytes.
type Sizes = BTreeMap<SegmentName, u64>;

impl Survey {
    /// Rereads devices that lack epochs in which nothing was written according to superblocks: a writer may have
    /// reached them meanwhile, or the others may show that something was written.
    ///
    /// # Errors
    /// Those that say nothing about the device.
    pub(super) fn look_at_late(&mut self) -> Result<()> {
        let newest = self.history.newest().epoch;
        for at in 0..self.slots.len() {
            let slot = &self.slots[at];
            if !slot.is_late {
                continue;
            }
            let again = superblock_if_any(&*slot.device)?;
            let is_of_slot = |found: &OnDevice| found.superblock.identity == slot.entry.identity;
            if let Some(again) = again.filter(is_of_slot)
                && again.superblock.history.contains(newest)
            {
                self.on_devices[at] = Some(again);
                self.slots[at].is_late = false;
            } else if self.lacks_log(at)? {
                let slot = &mut self.slots[at];
                (slot.trouble, slot.is_late) = (Some(Trouble::Stale { missed: 1 }), false);
            }
        }
        Ok(())
    }

    /// Whether another device has a part of the log that a late one should have: a segment that was begun after the
    /// newest epoch, or more of one that both have.
    fn lacks_log(&self, late: usize) -> Result<bool> {
        let segments_begun = self.history.newest().segments_begun;
        let own = sizes(&self.slots[late])?;
        for other in self.slots.iter().filter(|slot| slot.trouble.is_none() && !slot.is_late) {
            let mut theirs = sizes(other)?;
            theirs.retain(|name, _| self.history.may_have(*name));
            for (name, &bytes) in &theirs {
                let is_shorter = own.get(name).filter(|&&own| own < bytes);
                if name.number.0 > segments_begun
                    || is_shorter.is_some_and(|&own| own < self.bytes_in_log(late, other, &theirs, *name))
                {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Bytes of a segment that belong to the log, as far as another device and all marks show; all, if they do not. A
    /// writer that knows the end of the log looks again.
    fn bytes_in_log(&self, late: usize, other: &Slot, theirs: &Sizes, name: SegmentName) -> u64 {
        let all = theirs.get(&name).copied().unwrap_or(0);
        let after = SegmentName { epoch_low_half: u32::MAX, ..name };
        if let Some((&next, _)) = theirs.range((Bound::Excluded(after), Bound::Unbounded)).next() {
            return match other.segment_header(next, &self.geometry.store).map(|header| header.continues) {
                Some(continues) if continues.segment == name.number => continues.offset.0,
                // Nothing continues it.
                Some(continues) if continues.segment < name.number => 0,
                _ => all,
            };
        }
        let mark = self.on_devices[late].as_ref().and_then(|found| found.superblock.mark);
        if mark.is_some_and(|mark| mark.is_closed && mark.segment == name.number) {
            // It had all of the log then, which went on in this segment.
            return all;
        }
        let marks = self.marks().into_iter().filter(|mark| mark.segment == name.number);
        marks.map(|mark| mark.offset.0).max().unwrap_or(0)
    }
}

impl Devices {
    /// Devices that count as late, and lack batches: epochs in which something was written up to `last_batch`, the end
    /// of the log, or the log before them. They are old copies, not the result of a crash between superblocks.
    pub(crate) fn old_among_late(&self, last_batch: u64, has_log: impl Fn(DeviceNumber) -> bool) -> Vec<DeviceNumber> {
        let was_written = self.known().history.newest().last_batch != last_batch;
        let is_old = |slot: &&Slot| slot.is_late && (was_written || !has_log(slot.entry.number));
        self.slots().iter().filter(is_old).map(|slot| slot.entry.number).collect()
    }

    /// Once the log is as long on the others as it will be, no device is late: it has the log, or is stale. If there
    /// are no others, a writer that was told to continue without them continues from what these have.
    pub(crate) fn settle_late(&self, last_batch: u64, has_log: impl Fn(DeviceNumber) -> bool) {
        let old = self.old_among_late(last_batch, has_log);
        let has_others = self.in_service().iter().any(|slot| !old.contains(&slot.entry.number));
        self.change(|slot| {
            if has_others && old.contains(&slot.entry.number) {
                slot.trouble = Some(Trouble::Stale { missed: 1 });
            }
            slot.is_late = false;
        });
    }

    /// Whether a device with this history may be of a copy of the store: see [`may_be_of_copy`].
    pub(crate) fn is_of_copy(&self, device: DeviceNumber, history: &History) -> bool {
        let known = self.known();
        let others = known.histories().filter(|(number, _)| *number != device);
        let seen: Vec<(DeviceNumber, &History)> = others.chain([(device, history)]).collect();
        may_be_of_copy(history, &known.history, &seen)
    }

    /// Whether something was written in epochs of a device that are in no history in sight.
    pub(crate) fn goes_on(&self, found: &Superblock) -> bool {
        found.goes_on(&self.known().history)
    }

    /// Whether the devices that are in sync suffice to write without these, and without a lost one.
    pub(crate) fn has_proof_without(&self, old: &[DeviceNumber], lost: Option<DeviceNumber>) -> bool {
        let known = self.known();
        let seen: Vec<(DeviceNumber, &History)> = known.histories().collect();
        let slots = self.slots();
        let in_sync = slots.iter().filter(|slot| slot.trouble.is_none()).map(|slot| slot.entry.number);
        let in_sync: Vec<DeviceNumber> = in_sync.filter(|device| !old.contains(device)).collect();
        let marked = last_marked(self.marks());
        WriterView { in_sync: &in_sync, seen: &seen, marked, lost }.has_proof(&known.history)
    }
}

/// The segments of a device; none, if its directory cannot be read.
///
/// # Errors
/// Those that say nothing about the device.
fn sizes(slot: &Slot) -> Result<Sizes> {
    let listed = match names::list(&*slot.device, SEGMENTS) {
        Err(error) if superblocks::is_of_process(&error) => return Err(slot.error("list", SEGMENTS, error)),
        listed => listed.unwrap_or_default(),
    };
    Ok(listed.into_iter().filter_map(|(name, bytes)| Some((SegmentName::parse(&name)?, bytes))).collect())
}
