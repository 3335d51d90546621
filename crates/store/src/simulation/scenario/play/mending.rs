//! Repairs and rebuilds, and what each of them may change.

use super::super::super::mishap::FileKind;
use super::super::look::{Announced, Look};
use super::super::promise::{Condition, Freshness};
use super::sides::seen;
use super::{Outcome, Play, patient, text};
use crate::engine::locking::Access;
use crate::format::ids::DeviceNumber;
use crate::simulation::subject::{Repaired, Simulated};
use crate::{Key, OpenOptions, RebuildReport, RepairOptions};

impl Play {
    pub(super) fn repair(&mut self, options: RepairOptions) -> Outcome {
        let betrayals = self.world.betrayals();
        self.close()?;
        self.note_betrayals(betrayals);
        let (promise, before, may_fail) = (self.promise(), self.world.images(), self.may_fail());
        let all = self.conditions.iter().all(|one| one.away.is_none());
        // A rebuild that was interrupted at its very end may be complete.
        if self.conditions.iter().all(|one| one.away.is_none() || one.begun.is_some()) {
            // A segment with damage that no copy can repair is emptied and released.
            for (device, image) in before.iter().enumerate() {
                self.released.add(device, image);
            }
            if options.accept {
                self.released.spare_nothing();
            }
        }
        let access = if self.lacks_tables() { Access::ReadWithoutIndex } else { Access::Read };
        let passed = self.world.passed();
        let shown = Simulated::open_as(&self.home, &self.world, access).ok().map(|reader| reader.look());
        let (betrayals, failures) = (self.world.betrayals(), self.world.failures());
        let repaired = Simulated::repair(&self.home, &self.world, options, self.stop);
        // What could not be read for a while may be left to the next one.
        self.world.end_passing();
        let has_passed = self.world.passed() > passed;
        // A write that a device acknowledged but did not do during the repair is left to the next one.
        let may_fail = may_fail || self.world.betrayals() < betrayals;
        if self.world.failures() > failures {
            // It went on without what failed.
            self.conditions.iter_mut().for_each(Condition::doubt);
            self.is_set_unsure = true;
        }
        let is_stopped = matches!(&repaired, Ok(done) if self.stop.is_some() && !done.report.is_complete);
        if self.has_crashed() || is_stopped {
            self.conditions.iter_mut().filter(|one| one.freshness == Freshness::Stale).for_each(|one| {
                (one.freshness, one.is_in_set) = (Freshness::Unknown, true);
            });
            self.is_set_unsure |= is_stopped;
            // Part of what is lost may be dropped, or that something is missing be forgotten.
            self.is_over |= !promise.is_whole && (options.drop_lost || options.accept);
            return Ok(());
        }
        let after = self.world.images();
        patient(&before, &after, &self.released, &self.sound)?;
        for (disk, (old, new)) in before.iter().zip(&after).enumerate() {
            let is_longer = |path: &String, now: usize| now > old.get(path).map_or(0, |old| old.bytes.len());
            let of_extents = |(path, _): &(&String, _)| FileKind::of(path) == FileKind::Extent;
            if new.iter().filter(of_extents).any(|(path, new)| is_longer(path, new.bytes.len())) {
                self.sound.fill(disk);
            }
        }
        let is_written = super::untouched(&before, &after).is_err();
        if !all && is_written {
            // It wrote to the devices that are present.
            self.doubt_set();
            self.leave_behind();
        }
        // Beyond redundancy, what follows the last mark cannot be distinguished from unacknowledged batches: it is
        // reported once, and then accepted.
        let warned = shown.as_ref().filter(|look| !promise.is_whole && look.announced == Announced::Tail);
        if let Some(look) = warned.filter(|look| repaired.is_ok() && self.model.allows_from_mark(&look.state, &[])) {
            self.model = seen(look);
        }
        if !promise.is_whole && repaired.is_ok() {
            // Its record may be among what is lost.
            self.is_pinned = None;
        }
        let is_unclear = may_fail || self.model.has_doubt();
        // It may be complete, if that was interrupted at its very end.
        let is_begun = self.conditions.iter().any(|one| one.begun.is_some());
        match repaired {
            Ok(Repaired { report, .. }) if report.is_accepted && !all && !is_begun => {
                Err("law 3: what may be missing was accepted, and a device is away".to_owned())
            }
            Ok(Repaired { report, .. }) if promise.is_whole && report.dropped > 0 && !is_unclear => {
                Err(format!("law 2: a repair dropped {} objects that redundancy makes up for", report.dropped))
            }
            // Part of what is lost was dropped.
            Err(_) if may_fail && !promise.is_whole && (options.drop_lost || options.accept) => {
                self.is_over = true;
                Ok(())
            }
            // A write during the repair went elsewhere: over what was then lost.
            Ok(done) if done.report.dropped > 0 && self.world.betrayals() < betrayals => {
                self.is_over = true;
                Ok(())
            }
            Ok(done) if all && promise.is_whole => match done.left() {
                // The index that knew that nothing is in use there may be lost.
                Some(_) if self.has_scars && done.report.lost.iter().all(|one| one.key.is_none()) => Ok(()),
                // A device without a superblock, of which only what is freed is left, may be any directory.
                Some(_) if self.lacks_superblock() && done.leaves_only_devices() => Ok(()),
                Some(left) if !may_fail && !has_passed => {
                    Err(format!("law 2: a repair leaves problems that redundancy makes up for: {left}"))
                }
                Some(_) => {
                    self.is_set_unsure = true;
                    Ok(())
                }
                // The last batch of the repair may be what the device did not write.
                None if self.world.betrayals() < betrayals => {
                    self.is_over = true;
                    Ok(())
                }
                None => {
                    self.are_sound();
                    // What a pin keeps, it keeps with its quarantine.
                    if options.accept && self.is_pinned == Some(false) && !may_fail {
                        self.judge_accepted(&done)
                    } else {
                        Ok(())
                    }
                }
            },
            Ok(done) if all && !promise.has_diverged && !may_fail && done.left().is_none() => {
                // A version that only a snapshot has stays in the log.
                let stays = done.report.dropped > 0 && self.model.latest().snapshots().next().is_some();
                self.judge_mended(options, shown.filter(|_| !has_passed))?;
                self.is_over |= stays;
                Ok(())
            }
            // A plan that was stopped does not know of what it did not read.
            Err(error) if self.is_undecided(&error) || self.stop.is_some() && self.is_of_tables(&text(&error)) => {
                Ok(())
            }
            Err(_) if options.accept && self.lacks_superblock() => Ok(()),
            Err(error) if all && promise.is_whole && promise.has_proof == Some(true) && !may_fail => {
                Err(format!("law 2: a repair fails: {error}"))
            }
            Ok(_) if !promise.is_whole && options.accept => {
                // That something is missing was forgotten.
                self.is_over = true;
                Ok(())
            }
            Ok(done) if !promise.is_whole && done.report.dropped > 0 => {
                self.is_over = true;
                Ok(())
            }
            _ => {
                self.is_set_unsure |= is_written;
                Ok(())
            }
        }
    }

    /// Nothing is wrong with any device.
    fn are_sound(&mut self) {
        self.has_few_copies = false;
        for one in &mut self.conditions {
            (one.freshness, one.is_in_set, one.is_restored) = (Freshness::Fresh, true, false);
            one.rotten.clear();
        }
    }

    /// Law 3: what may be missing is forgotten, and the quarantine is gone.
    fn judge_accepted(&self, done: &Repaired) -> Outcome {
        if !done.report.is_accepted {
            return Err("law 3: nothing is wrong, and nothing was accepted".to_owned());
        }
        let copy = self.world.after_kill(0);
        let writer = Simulated::open_as(&self.home, &copy, Access::Write).map_err(|error| text(&error))?;
        match writer.quarantined_bytes().map_err(|error| text(&error))? {
            0 => Ok(()),
            bytes => Err(format!("law 3: {bytes} bytes are in quarantine after it was accepted")),
        }
    }

    /// After damage beyond redundancy, a repair says that nothing is wrong any more.
    fn judge_mended(&mut self, options: RepairOptions, shown: Option<Look>) -> Outcome {
        let reader = Simulated::open_as(&self.home, &self.world, Access::Read).map_err(|error| text(&error))?;
        let look = reader.look();
        if let Some(cause) = look.causes().next() {
            return Err(format!("law 4: a repair says that nothing is wrong, and then: {cause}"));
        }
        look.is_of(&self.ever)?;
        if options.accept && look.announced != Announced::Complete {
            return Err(format!("law 4: all was accepted, and it says: {}", look.words.join("; ")));
        }
        // With the index, all that is lost is listed.
        if let Some(shown) = shown.filter(|shown| is_listed(shown) && !self.lacks_index()) {
            seen(&shown).allows(&look.state).map_err(|mismatch| format!("law 2: a repair changed: {mismatch}"))?;
        }
        self.is_incomplete = look.announced == Announced::Incomplete;
        self.model = seen(&look);
        self.are_sound();
        self.has_scars = true;
        Ok(())
    }

    /// A rebuild; it may give up what only the device has.
    pub(super) fn rebuild(&mut self, device: usize, gives_up: bool) -> Result<bool, String> {
        let is_of_store = device < self.geometry.devices.len();
        if !is_of_store || self.conditions[device].away.is_none() || self.conditions[device].is_swapped {
            return Ok(false);
        }
        if self.other.is_some() {
            return Ok(false);
        }
        if gives_up {
            self.open_without(device)?;
        } else if !self.has_writer()? {
            return Ok(false);
        }
        let promise = self.promise();
        let Some(writer) = &self.writer else { return Ok(false) };
        let shown = (!promise.is_whole).then(|| writer.look());
        let mut before = self.world.images();
        // What an interrupted rebuild left is replaced.
        if let Some(disk) = self.conditions[device].begun.as_ref().and_then(|place| self.world.disk_at(place)) {
            before[disk].clear();
        }
        let place = self.conditions[device].begun.take().unwrap_or_else(|| self.another_place());
        self.conditions[device].begun = Some(place.clone());
        let Some(writer) = &self.writer else { return Ok(false) };
        let betrayals = self.world.betrayals();
        let rebuilt = writer.rebuild_until(DeviceNumber(device as u16), &place, gives_up, self.stop);
        self.world.disk_at(&place).into_iter().for_each(|disk| self.sound.fill(disk));
        if self.has_crashed() {
            return Ok(true);
        }
        self.note_betrayals(betrayals);
        patient(&before, &self.world.images(), &self.released, &self.sound)?;
        // Of what was never acknowledged, the lost device may have had the only copy; a rebuild that begins a segment
        // on the only device left may be betrayed there.
        let is_betrayed = self.world.betrayals() < betrayals;
        let is_unclear = self.may_fail() || self.model.has_doubt() || self.has_torn || is_betrayed;
        match rebuilt {
            Ok(report) => {
                let is_promised = promise.is_whole && !is_unclear && !self.has_scars;
                if is_promised && (report.lost > 0 || !report.is_complete && self.stop.is_none()) {
                    return Err(format!(
                        "law 2: a rebuild leaves something out that redundancy makes up for: {report:?}"
                    ));
                }
                if gives_up && !report.is_settled && self.stop.is_none() && !is_unclear {
                    return Err(format!("a rebuild gives up, and does not end: {report:?}"));
                }
                if report.is_settled {
                    self.is_rebuilt(device, &place, report);
                    // A write may have gone over the only copy that was left; one that was stopped has copied what is
                    // damaged to any device.
                    if is_betrayed || shown.is_some() && self.stop.is_some() {
                        self.is_over = true;
                    } else if let Some(shown) = shown {
                        self.judge_given_up(&shown)?;
                    }
                }
            }
            Err(error) => self.fail(&error)?,
        }
        Ok(true)
    }

    /// Opens a writer that does not wait for a device.
    fn open_without(&mut self, device: usize) -> Outcome {
        let promise = self.promise_without(device);
        if promise.has_proof != Some(true) || promise.is_rolled_back {
            return self.open(Access::Write);
        }
        let lost = Some(DeviceNumber(device as u16));
        self.open_how(Access::Write, &OpenOptions { lost, ..OpenOptions::default() })
    }

    fn is_rebuilt(&mut self, device: usize, place: &str, report: RebuildReport) {
        let disk = self.world.disk_at(place).expect("a device was rebuilt onto it");
        let mut condition = Condition::new(disk);
        // It lacks the same as the others.
        let lacks = |kind: &FileKind| report.lost > 0 || self.lacks_index() && kind.is_of_index();
        condition.rotten = self.conditions.iter().flat_map(|one| one.rotten.iter().copied()).filter(lacks).collect();
        if !report.is_complete {
            condition.doubt();
        }
        self.conditions[device] = condition;
        // Of what only a pin keeps, no new copy is made.
        self.has_scars |= self.is_pinned != Some(false);
        self.leave_behind();
    }

    /// Only what could not be read before is lost, and it is named.
    fn judge_given_up(&mut self, shown: &Look) -> Outcome {
        let Some(writer) = &self.writer else { return Ok(()) };
        let look = writer.look();
        // What was not listed may return with another device.
        let may_return = matches!(look.announced, Announced::Incomplete | Announced::Unknown)
            && self.conditions.iter().any(|one| one.away.is_some());
        if shown.ended.is_some() || may_return {
            self.is_over = true;
            return Ok(());
        }
        if let Some((key, cause)) = look.unreadable.iter().find(|(key, _)| !shown.unreadable.contains_key(*key)) {
            return Err(format!("law 2: {key} could be read until a device was given up: {cause}"));
        }
        seen(shown).allows(&look.state).map_err(|mismatch| format!("law 2: a device was given up: {mismatch}"))?;
        let problems = writer.problems().map_err(|error| text(&error))?;
        let named: Vec<String> = problems.into_iter().filter_map(|one| one.object).collect();
        // A file with several names, and what only a snapshot has, are named in another way.
        let is_other = |name: &String| name.contains("shared file") || name.contains("as it was before");
        // So is what is in a directory that has two names, because the record that removed one is lost.
        let last_of = |path: &str| path.rsplit('/').next().map(str::to_owned);
        let is_named =
            |key: &Key| named.iter().any(|name| last_of(name) == last_of(&key.to_string()) || is_other(name));
        if let Some(key) = look.unreadable.keys().find(|key| !is_named(key)) {
            return Err(format!("law 4: {key} is lost, and a check names only {named:?}"));
        }
        self.model = seen(&look);
        Ok(())
    }
}

/// Whether all that cannot be read is known.
fn is_listed(look: &Look) -> bool {
    look.ended.is_none() && matches!(look.announced, Announced::Complete | Announced::Tail)
}
