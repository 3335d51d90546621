//! Segments on devices that were away, or were restored from an old copy, when the index is made anew.
//!
//! Such a device still has what the others gave back since: objects that were removed or replaced, without the removals, which went when
//! nothing needed them any more. Laws: what a device in service has is read there first; a copy on an old device stands beside it only if it
//! is of the same segment (a number may have been given again while the device was away); and a segment that a device in service should have
//! a copy of, and none has, was given back. Where an old device may have had the only copy, nothing tells what became of it: it is
//! taken in, and that is said.

use std::collections::BTreeMap;

use super::scan::SegmentScan;
use crate::devices::set::{Slot, Trouble};
use crate::engine::Engine;
use crate::format::geometry::DeviceState;
use crate::format::segment::{SegmentHeader, segment_path};
use crate::maintain::problem::{Problem, ProblemKind, Remedy};

/// A segment that the index was made anew with or without, and that only old devices have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outdated {
    /// Number of the segment.
    pub segment: u64,
    /// An old device that has it.
    pub device: u16,
    /// It was given back while the device was away, and is no part of the index. Else it may have been, and what was removed or replaced since
    /// may be back.
    pub is_passed_over: bool,
}

fn is_old(slot: &Slot) -> bool {
    matches!(slot.trouble, Some(Trouble::Stale { .. }))
}

impl Engine {
    /// Takes copies on old devices out of `segments` that are of another segment than those in service, and, if the index `is_made_anew`, segments
    /// that were given back. Gives those that only old devices have.
    pub(crate) fn sort_out_old(&self, segments: &mut BTreeMap<u64, Vec<u16>>, is_made_anew: bool) -> Vec<Outdated> {
        let slots = self.devices.slots();
        let of = |device: u16| slots.get(usize::from(device));
        if !slots.iter().any(is_old) {
            return Vec::new();
        }
        // Devices that say nothing about a segment by not having it.
        let is_silent = |slot: &&Slot| slot.trouble.is_some() || slot.entry.state != DeviceState::InUse;
        let silent = slots.iter().filter(is_silent).count();
        let mut outdated = Vec::new();
        segments.retain(|&number, devices| {
            let (old, current): (Vec<u16>, Vec<u16>) =
                devices.iter().partition(|&&device| of(device).is_some_and(is_old));
            let header_on = |devices: &[u16]| self.header_of(number, devices);
            if !current.is_empty() {
                let header = header_on(&current);
                devices
                    .retain(|device| current.contains(device) || header.is_some() && header_on(&[*device]) == header);
                return true;
            }
            let Some(&device) = old.first().filter(|_| is_made_anew) else { return true };
            let copies = header_on(&old).map_or(self.geometry().copies, |header| header.copies);
            let is_passed_over = usize::from(copies) > silent;
            outdated.push(Outdated { segment: number, device, is_passed_over });
            !is_passed_over
        });
        outdated
    }

    fn header_of(&self, number: u64, devices: &[u16]) -> Option<SegmentHeader> {
        SegmentScan::new(self.open_copies(number, devices), 0).header().0
    }

    /// What a check says of them: one problem for each device and what became of its segments.
    pub(crate) fn problems_of_old(&self, outdated: &[Outdated]) -> Vec<Problem> {
        let mut counted: BTreeMap<(u16, bool), (u64, u64)> = BTreeMap::new();
        for one in outdated {
            counted.entry((one.device, one.is_passed_over)).or_insert((0, one.segment)).0 += 1;
        }
        let problem = |((device, is_passed_over), (count, first)): ((u16, bool), (u64, u64))| {
            let place = self.devices.place(device, &segment_path(first));
            let what =
                if count == 1 { "this segment".to_owned() } else { format!("this and {} more segments", count - 1) };
            let cause = match is_passed_over {
                true => format!(
                    "only device {device}, which is old, has {what}: given back while it was away, and passed over when the index was made anew"
                ),
                false => format!(
                    "only device {device}, which is old, has {what}: nothing else tells what became of it, so objects in it that were removed or \
                     replaced while the device was away are back in the index that was made anew"
                ),
            };
            let remedy = if is_passed_over { Remedy::Repair } else { Remedy::Rebuild };
            Problem::new(ProblemKind::Device, place, cause, remedy).on(device)
        };
        counted.into_iter().map(problem).collect()
    }
}
