//! Maintenance steps, and what is expected of them.

use super::super::super::mishap::FileKind;
use super::super::super::model::Model;
use super::super::super::subject::Simulated;
use super::super::Step;
use super::super::laws::patient;
use super::super::look::Announced;
use super::super::promise::{Condition, Freshness, Promise, is_sound};
use super::{Outcome, Play, text};
use crate::engine::open::Access;
use crate::format::ids::DeviceNumber;

impl Play {
    pub(super) fn scrub(&mut self) -> Result<bool, String> {
        if !self.has_writer()? {
            return Ok(false);
        }
        let Some(writer) = &self.writer else { return Ok(false) };
        let (before, betrayals) = (self.world.images(), self.world.betrayals());
        let failures = self.world.failures();
        match writer.scrub() {
            Err(error) => self.fail(&error)?,
            Ok((_, true)) if !self.lacks_index() && !self.may_fail() => {
                return Err("law 7: a scrub finds the index lost".to_owned());
            }
            Ok((_, true)) => {
                self.close()?;
                self.open(Access::RebuildIndex)?;
            }
            Ok((left, false)) => {
                patient(&before, &self.world.images(), &self.released, &self.sound)?;
                let is_there = |one: &Condition| one.away.is_none() && one.is_in_set;
                let all = self.conditions.iter().all(is_there);
                let has_failed = self.world.failures() > failures;
                if all && !left.is_empty() && !self.may_fail() && !has_failed {
                    return Err(format!("law 2: a scrub leaves what redundancy makes up for: {}", left.join("; ")));
                }
                if left.is_empty() && !self.has_crashed() {
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

    pub(super) fn repair(&mut self) -> Outcome {
        self.close()?;
        let (promise, before, may_fail) = (self.promise(), self.world.images(), self.may_fail());
        let all = self.conditions.iter().all(|one| one.away.is_none() && !one.is_swapped);
        if all {
            // A segment with damage that no copy can repair is emptied and released.
            for (device, image) in before.iter().enumerate() {
                self.released.add(device, image);
            }
        }
        // Beyond redundancy, what follows the last mark cannot be distinguished from unacknowledged batches: it is
        // reported once, and then accepted.
        let warned = Simulated::open_as(&self.home, &self.world, Access::Read).ok().map(|reader| reader.look());
        let warned = warned.filter(|look| !promise.is_whole && look.announced == Announced::Tail);
        let betrayals = self.world.betrayals();
        let repaired = Simulated::repair(&self.home, &self.world);
        // A write that a device acknowledged but did not do during the repair is left to the next one.
        let may_fail = may_fail || self.world.betrayals() < betrayals;
        if self.has_crashed() {
            self.conditions.iter_mut().filter(|one| one.freshness == Freshness::Stale).for_each(|one| {
                (one.freshness, one.is_in_set) = (Freshness::Unknown, true);
            });
            return Ok(());
        }
        patient(&before, &self.world.images(), &self.released, &self.sound)?;
        if !all {
            // It wrote to the devices that are present.
            self.doubt_set();
            self.leave_behind();
        }
        if let Some(look) = warned.filter(|look| repaired.is_ok() && self.model.allows_from_mark(&look.state, &[])) {
            self.model = Model::of(look.state);
        }
        match repaired {
            Ok(None) if all && promise.is_whole => {
                for one in &mut self.conditions {
                    (one.freshness, one.is_in_set, one.is_restored) = (Freshness::Fresh, true, false);
                    one.rotten.clear();
                }
                Ok(())
            }
            Ok(Some(left)) if all && promise.is_whole && !may_fail => {
                Err(format!("law 2: a repair leaves problems that redundancy makes up for: {left}"))
            }
            Err(error) if all && promise.is_whole && promise.has_proof == Some(true) && !may_fail => {
                Err(format!("law 2: a repair fails: {error}"))
            }
            _ => {
                self.is_set_unsure = true;
                Ok(())
            }
        }
    }

    /// A rebuild; interrupted after some bytes, if so given, and continued after a step.
    pub(super) fn rebuild(&mut self, device: usize, interruption: Option<(u64, &Step)>) -> Result<bool, String> {
        let is_of_store = device < self.geometry.devices.len();
        if !is_of_store || self.conditions[device].away.is_none() || !self.has_writer()? {
            return Ok(false);
        }
        // Of an interrupted rebuild, too: what is not yet rebuilt is a hole, which is filled.
        let (place, before) = (self.another_place(), self.world.images());
        let number = DeviceNumber(device as u16);
        if let (Some((bytes, between)), Some(writer)) = (interruption, &self.writer) {
            match writer.rebuild_until(number, &place, bytes) {
                Ok(false) => {}
                Ok(true) => {
                    self.conditions[device] = Condition::new(self.world.disk_at(&place));
                    self.leave_behind();
                    return Ok(true);
                }
                Err(error) => {
                    self.fail(&error)?;
                    return Ok(true);
                }
            }
            self.act(between)?;
            if self.has_crashed() || !self.has_writer()? {
                return Ok(true);
            }
        }
        let Some(writer) = &self.writer else { return Ok(false) };
        let rebuilt = writer.rebuild(number, &place);
        if self.has_crashed() {
            return Ok(true);
        }
        patient(&before, &self.world.images(), &self.released, &self.sound)?;
        match rebuilt {
            Ok(true) => {
                self.conditions[device] = Condition::new(self.world.disk_at(&place));
                self.leave_behind();
            }
            // An unacknowledged batch may lack units on another device too.
            Ok(false) if !self.may_fail() && !self.model.has_doubt() => {
                return Err("law 2: a rebuild leaves something out that redundancy makes up for".to_owned());
            }
            Ok(false) => {}
            Err(error) => self.fail(&error)?,
        }
        Ok(true)
    }

    /// A compaction or a rebalance.
    pub(super) fn move_records(&mut self, how: fn(&mut Simulated) -> crate::Result<()>) -> Result<bool, String> {
        if !self.has_writer()? {
            return Ok(false);
        }
        let Some(writer) = &mut self.writer else { return Ok(false) };
        for (device, image) in self.world.images().iter().enumerate() {
            self.released.add(device, image);
        }
        let kept = writer.kept_by_pins();
        match how(writer) {
            Err(error) => self.fail(&error)?,
            Ok(()) => {
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
        if !is_sound(&self.conditions) || self.may_fail() {
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
        // A slot that a crash tore is written by the next writer.
        let is_torn = |problem: &&String| problem.contains("one of its two slots");
        match problems.iter().find(|problem| !is_torn(problem)) {
            Some(problem) => Err(format!("law 4: nothing was damaged, and a check says: {problem}")),
            None => Ok(()),
        }
    }
}
