//! An epoch that no superblock has any more.
//!
//! A device has two superblocks, written in turn. If the newer one is damaged on every device that has the newest epoch
//! known, an epoch may have begun after that, and its segments look like those of another history. As only one of two
//! superblocks is lost, only one epoch can be; the headers of its segments have it (docs/FORMAT.md, section 4).

use std::collections::BTreeMap;

use crate::devices::names;
use crate::devices::set::Devices;
use crate::format::ids::Epoch;
use crate::format::segment::{SEGMENTS, SegmentHeader, SegmentName};

/// Adds the epoch to the history, if the segments on the devices say that there is one. Returns `false` if they are of
/// several, so that it is unknown which one continues the log.
pub(super) fn find(devices: &Devices, store: &[u8; 16]) -> bool {
    if !devices.may_lack_epoch() {
        return true;
    }
    let history = devices.history();
    let segments_begun = history.newest().segments_begun;
    let is_later = |name: &SegmentName| name.number.0 > segments_begun && !history.may_have(*name);
    let mut first: BTreeMap<Epoch, SegmentHeader> = BTreeMap::new();
    for slot in devices.slots().iter().filter(|slot| slot.is_readable()) {
        // A device that cannot be listed is reported when the log is read.
        let listed = names::list(&*slot.device, SEGMENTS).unwrap_or_default();
        for name in listed.iter().filter_map(|(name, _)| SegmentName::parse(name)).filter(is_later) {
            let Some(header) = slot.segment_header(name, store) else { continue };
            let known = first.entry(header.id.epoch).or_insert(header);
            if header.id.number < known.id.number {
                *known = header;
            }
        }
    }
    let Some((epoch, header)) = first.pop_first() else { return true };
    if !first.is_empty() {
        return false;
    }
    devices.add_epoch(epoch, header.id.number.0 - 1, header.continues.sequence.0);
    true
}
