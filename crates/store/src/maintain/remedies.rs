//! What helps against damage that redundancy in sight cannot repair: a device may have what is damaged on all others,
//! or what cannot be opened now, and then it is not known to be lost.

use std::io;
use std::ops::Range;

use super::problem::{Problem, ProblemKind, Remedy};
use crate::devices::device::Mode;
use crate::devices::extents::{FaultyUnit, UnitFault};
use crate::devices::slot::{Slot, Trouble};
use crate::engine::Engine;
use crate::format::descriptor::Chunk;
use crate::format::geometry::DeviceState;
use crate::format::ids::{DeviceNumber, LogOffset, SegmentId};
use crate::index::catalog::SegmentRow;

impl Engine {
    /// Whether a device is in service and should have everything that the accounts have on it.
    pub(crate) fn is_settled(&self, device: DeviceNumber) -> bool {
        let slots = self.devices.slots();
        slots.get(device.index()).is_some_and(|slot| slot.is_writable() && slot.entry.state == DeviceState::InUse)
    }

    /// The first device that is neither settled nor has left: it may have what is missing or damaged on all others.
    pub(crate) fn unsettled(&self) -> Option<Slot> {
        let slots = self.devices.slots();
        let is_there = |number| self.is_settled(number) || self.devices.has_left(number);
        slots.iter().find(|slot| !is_there(slot.entry.number)).cloned()
    }

    /// Whether a device may have more than can be read on it now: by returning, or by a rebuild.
    pub(crate) fn is_awaited(&self, device: DeviceNumber) -> bool {
        let slots = self.devices.slots();
        slots.get(device.index()).is_some_and(|slot| match slot.trouble {
            None | Some(Trouble::Stale { .. }) => slot.entry.state == DeviceState::Rebuilding,
            Some(_) => slot.entry.state != DeviceState::Gone,
        })
    }

    /// The copies on these devices that were read, as the end of "damaged on …".
    pub(crate) fn copies_in_words(&self, devices: &[DeviceNumber]) -> String {
        let is_away = |device: &&DeviceNumber| self.is_awaited(**device);
        let away: Vec<String> = devices.iter().filter(is_away).map(DeviceNumber::to_string).collect();
        match (&away[..], devices.len()) {
            ([], 0 | 1) => "its only copy".to_owned(),
            ([], _) => "every copy".to_owned(),
            ([one], _) => format!("every copy that can be read; device {one}, which may have it, is not in service"),
            (several, _) => format!(
                "every copy that can be read; devices {}, which may have it, are not in service",
                several.join(", ")
            ),
        }
    }

    /// What helps against damage on all copies that can be read, of what is on these devices.
    pub(crate) fn remedy_beyond<'d>(&self, devices: impl IntoIterator<Item = &'d DeviceNumber>) -> Remedy {
        match devices.into_iter().any(|&device| self.is_awaited(device)) {
            true => Remedy::Rebuild,
            false => Remedy::Lost,
        }
    }

    /// Whether a copy of a segment cannot be opened, and may be there; or reads went unanswered, which may have been of
    /// it.
    pub(crate) fn is_unopened(&self, device: DeviceNumber, segment: SegmentId) -> bool {
        if self.platform.has_unanswered() {
            return true;
        }
        let opened = self.devices.segment(device, segment, Mode::Read);
        opened.is_err_and(|error| error.kind() != io::ErrorKind::NotFound)
    }

    /// Whether some copy of a segment is such.
    pub(crate) fn has_unopened(&self, row: &SegmentRow) -> bool {
        row.devices.iter().any(|&device| self.is_unopened(device, row.id()))
    }

    /// As [`remedy_beyond`](Self::remedy_beyond), of what is in a segment: a copy that cannot be opened may have it.
    pub(crate) fn remedy_of_segment(&self, row: &SegmentRow) -> Remedy {
        if self.has_unopened(row) { Remedy::Rebuild } else { self.remedy_beyond(&row.devices) }
    }

    /// The same of the faulty units of a stripe that parity cannot repair.
    pub(crate) fn remedy_of_stripe<'u>(&self, chunk: &Chunk, faulty: impl Iterator<Item = &'u FaultyUnit>) -> Remedy {
        let (unopened, known): (Vec<_>, Vec<_>) = faulty.partition(|unit| matches!(unit.fault, UnitFault::Unopened(_)));
        match !unopened.is_empty() && known.len() <= usize::from(chunk.stripes.parity) {
            true => Remedy::Rebuild,
            false => self.remedy_beyond(chunk.components.iter().map(|component| &component.device)),
        }
    }

    /// Bytes of the log that are damaged on every copy, with no object in use among them. If something is missing, the
    /// index may have been built from this log after the damage: it does not show what was there.
    pub(crate) fn damage_without_objects(&self, row: &SegmentRow, range: Range<LogOffset>) -> Problem {
        let copies = self.copies_in_words(&row.devices);
        let is_complete = self.completeness_of(&self.view().state.notes).is_empty();
        let (rest, remedy) = match is_complete {
            true if self.has_unopened(row) => ("", Remedy::Rebuild),
            true => ("", Remedy::Harmless),
            false => (", and what was there is unknown", self.remedy_of_segment(row)),
        };
        let cause = format!("bytes are damaged on {copies}{rest}");
        let problem = Problem::new(ProblemKind::Record, self.segment_place(row), cause, remedy);
        problem.within(row.number, range).of_unknown()
    }
}
