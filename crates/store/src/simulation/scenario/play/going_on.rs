//! A writer that loses one device goes on without it (law 5): the batch that meets the loss succeeds, and the others
//! have everything that is acknowledged from then on.

use super::super::Work;
use super::super::promise::{Condition, Freshness};
use super::{Outcome, Play};
use crate::error::Error;
use crate::format::geometry::Class;

impl Play {
    /// Something failed on devices in this step, and a writer may have continued without it: what they have is unknown.
    pub(super) fn note_failed(&mut self, is_done: bool) {
        let failed = self.world.take_failed();
        if self.writer.is_some() && is_done {
            let failed = self.conditions.iter_mut().filter(|one| failed.contains(&one.disk));
            failed.for_each(Condition::doubt);
        }
    }

    /// The writer closes, and may lose a device as it does.
    pub(super) fn note_close(&mut self) {
        if let Some(writer) = &self.writer {
            // What fails is in doubt in any case.
            let _ = writer.store().engine().close();
        }
        self.note_lost();
    }

    /// Judges the failure of a batch, if the writer was open before: if a single device failed or disappeared, what is
    /// left suffices, and nothing else was wrong, the writer had to go on. Only units may fail with one write, as
    /// nothing refers to them: batches with large objects are not judged.
    pub(super) fn must_go_on(&self, was_open: bool, work: Work, error: &Error) -> Outcome {
        let is_small = matches!(
            work,
            Work::Small | Work::Removal | Work::TreeRemoval | Work::Rename | Work::Crossing | Work::Snapshot
        );
        let is_unclear = self.has_crashed()
            || self.was_full
            || self.is_forced
            || self.has_scars
            || self.has_few_copies
            || self.is_incomplete
            || self.other.is_some()
            || self.world.betrayals() > 0
            || self.conditions.iter().any(|one| self.sound.is_doubted(one.disk) || one.is_restored);
        if !was_open || !is_small || is_unclear {
            return Ok(());
        }
        let failed = self.world.failed();
        let is_well = |one: &Condition| {
            let is_sound = one.is_there() && one.rotten.is_empty() && one.freshness == Freshness::Fresh;
            is_sound && one.begun.is_none() && !one.is_swapped && !failed.contains(&one.disk)
        };
        let troubled: Vec<usize> = (0..self.conditions.len()).filter(|at| !is_well(&self.conditions[*at])).collect();
        let &[device] = &troubled[..] else { return Ok(()) };
        let Some(entry) = self.geometry.devices.get(device) else { return Ok(()) };
        let survived = self.geometry.survives();
        let is_borne = match entry.class {
            Class::Fast => survived.fast > 0,
            Class::Slow => survived.slow > 0,
        };
        match is_borne {
            true => Err(format!("law 5: device {device} failed, and the writer did not go on without it: {error}")),
            false => Ok(()),
        }
    }
}
