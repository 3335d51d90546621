//! Maintenance steps, and what is expected of them.

use super::super::super::mishap::FileKind;
use super::super::super::subject::Simulated;
use super::super::laws::patient;
use super::super::look::Announced;
use super::super::promise::{Condition, Freshness, Promise, is_sound};
use super::{Outcome, Play, text};
use crate::engine::locking::Access;

impl Play {
    pub(super) fn scrub(&mut self) -> Result<bool, String> {
        if !self.has_writer()? {
            return Ok(false);
        }
        let Some(writer) = &self.writer else { return Ok(false) };
        let (before, betrayals) = (self.world.images(), self.world.betrayals());
        let (failures, passed) = (self.world.failures(), self.world.passed());
        let scrubbed = writer.scrub_until(self.stop);
        self.world.end_passing();
        match scrubbed {
            Err(error) => self.fail(&error)?,
            // Nothing can be read any more.
            Ok((_, report)) if report.is_index_lost && self.has_crashed() => {}
            Ok((_, report)) if report.is_index_lost && !self.lacks_index() && !self.may_fail() => {
                return Err("law 7: a scrub finds the index lost".to_owned());
            }
            Ok((_, report)) if report.is_index_lost => {
                self.close()?;
                self.open(Access::RebuildIndex)?;
            }
            Ok((left, report)) => {
                patient(&before, &self.world.images(), &self.released, &self.sound)?;
                // A writer does not follow a device to another place.
                let is_left = |one: &Condition| one.is_swapped && one.freshness != Freshness::Fresh;
                let is_there = |one: &Condition| one.is_there() && one.is_in_set && !is_left(one);
                let all = self.conditions.iter().all(is_there);
                let has_failed = self.world.failures() > failures || self.world.passed() > passed;
                // If it is stopped, it does not say yet that the index is lost.
                let may_lack_index = self.stop.is_some() && self.lacks_index();
                if all && !left.is_empty() && !self.may_fail() && !has_failed && !may_lack_index {
                    return Err(format!("law 2: a scrub leaves what redundancy makes up for: {}", left.join("; ")));
                }
                if left.is_empty() && report.is_complete && !self.has_crashed() {
                    let is_index_repaired = all && self.world.betrayals() == betrayals;
                    let repaired = self.conditions.iter_mut().filter(|one| is_there(one));
                    repaired.for_each(|one| {
                        one.rotten.retain(|kind| match kind {
                            FileKind::Segment | FileKind::Extent => false,
                            kind => !(kind.is_of_index() && is_index_repaired),
                        })
                    });
                }
            }
        }
        Ok(true)
    }

    /// A compaction or a rebalance.
    pub(super) fn move_records(
        &mut self,
        how: fn(&mut Simulated, Option<u64>) -> crate::Result<bool>,
    ) -> Result<bool, String> {
        if !self.has_writer()? {
            return Ok(false);
        }
        let Some(writer) = &mut self.writer else { return Ok(false) };
        for (device, image) in self.world.images().iter().enumerate() {
            self.released.add(device, image);
        }
        let kept = writer.kept_by_pins();
        match how(writer, self.stop) {
            Err(error) => self.fail(&error)?,
            Ok(_) => {
                let gone = kept.difference(&writer.rows()).next().cloned();
                self.leave_behind();
                if let Some(gone) = gone {
                    return Err(format!("law 3: {gone:?} went, and a pin keeps it"));
                }
            }
        }
        Ok(true)
    }

    pub(super) fn pin(&mut self, is_set: bool) -> Result<bool, String> {
        if !self.has_writer()? {
            return Ok(false);
        }
        let Some(writer) = &self.writer else { return Ok(false) };
        self.is_pinned = None;
        match writer.pin(is_set) {
            Err(error) => self.fail(&error)?,
            Ok(()) if !self.has_crashed() => self.is_pinned = Some(is_set),
            Ok(()) => {}
        }
        Ok(true)
    }

    /// Within the promise, a pin stays until it is released, even if the index is rebuilt from the log.
    pub(super) fn judge_pin(&self, promise: Promise, subject: &Simulated, who: &str) -> Outcome {
        match self.is_pinned.filter(|_| promise.is_whole) {
            Some(is_pinned) if is_pinned != subject.is_pinned() => {
                Err(format!("law 3: {who} finds a pin: {}, and there is one: {is_pinned}", !is_pinned))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn check(&mut self) -> Outcome {
        if !is_sound(&self.conditions) || self.has_few_copies || self.may_fail() {
            return Ok(());
        }
        let copy = self.world.after_kill(self.random.any());
        let open = |access| Simulated::open_as(&self.home, &copy, access).map_err(|error| text(&error));
        let mut reader = open(Access::Read)?;
        if reader.look().announced == Announced::Tail {
            // What was unacknowledged may be torn where redundancy can repair it; a writer completes it.
            drop(reader);
            drop(open(Access::Write)?);
            reader = open(Access::Read)?;
        }
        let problems = reader.check().map_err(|error| text(&error))?;
        // The next writer writes a slot that a crash tore, and superblocks that a crash kept from a change of geometry.
        let is_torn = |problem: &&String| {
            problem.contains("one of its two slots") || self.has_torn && problem.contains("its geometry differs")
        };
        match problems.iter().find(|problem| !is_torn(problem)) {
            Some(problem) => Err(format!("law 4: nothing was damaged, and a check says: {problem}")),
            None => Ok(()),
        }
    }
}
