//! Two histories: devices that have missed something go on without the others, and one of the histories is chosen.

use std::mem::swap;

use super::super::super::mishap::{FileKind, Image};
use super::super::super::model::Model;
use super::super::super::subject::Simulated;
use super::super::End;
use super::super::look::{Announced, Look};
use super::super::promise::{Condition, Freshness, Promise};
use super::{Outcome, Play, text};
use crate::engine::locking::Access;
use crate::error::ErrorKind;
use crate::format::ids::DeviceNumber;
use crate::{Key, OpenOptions};

/// What was acknowledged in a history, and which devices have it.
pub(super) struct Side {
    model: Model,
    devices: Vec<(Freshness, bool)>,
    is_pinned: Option<bool>,
    has_torn: bool,
}

/// Whether only superblocks differ.
fn same_but_superblocks(before: &[Image], after: &[Image]) -> Outcome {
    let others = |images: &[Image]| -> Vec<Image> {
        let is_kept = |path: &String| !matches!(FileKind::of(path), FileKind::Superblock | FileKind::Other);
        let of_image = |image: &Image| {
            image.iter().filter(|(path, _)| is_kept(path)).map(|(path, file)| (path.clone(), file.clone())).collect()
        };
        images.iter().map(of_image).collect()
    };
    super::super::laws::untouched(&others(before), &others(after))
}

impl Play {
    /// Opens with fewer devices than the proof requires.
    pub(super) fn open_degraded(&mut self) -> Outcome {
        let (promise, degraded) = (self.promise(), OpenOptions { degraded: true, ..OpenOptions::default() });
        let is_covered = promise.is_whole && !self.has_torn && !self.model.has_doubt();
        let is_needed = promise.has_proof != Some(true) && (is_covered || promise.is_rolled_back);
        if self.writer.is_some() || !is_needed || self.is_set_unsure || self.may_fail() {
            return self.open(Access::Write);
        }
        self.open_how(Access::Write, &degraded)
    }

    /// A writer has none of what was acknowledged last: another history begins here.
    pub(super) fn part(&mut self, writer: Simulated, look: &Look) -> Outcome {
        // What leads nowhere was moved.
        let is_listed = look.ended.is_none() && look.announced != Announced::Incomplete;
        let devices = &self.conditions[..self.geometry.devices.len()];
        // Unacknowledged batches may be on one side only, and return with it.
        let is_torn = self.has_torn || self.model.has_doubt() || self.left_with.values().any(Model::has_doubt);
        let records = self.geometry.record_devices();
        let lacks = |one: &Condition| !one.is_there() || one.rotten.contains(&FileKind::Segment);
        let lacking = records.filter(|entry| lacks(&devices[entry.number.index()])).count();
        let has_records = lacking < usize::from(self.geometry.copies);
        // One that has the newest epoch shows that the log goes on behind what is away: no other history.
        let is_newest = devices.iter().any(|one| one.is_there() && one.is_in_set && one.freshness == Freshness::Fresh);
        let is_clear = |one: &Condition| {
            let is_known = one.freshness != Freshness::Unknown && !one.may_have_left_earlier;
            !one.is_unclear() && is_known && one.begun.is_none()
        };
        if self.other.is_some()
            || self.is_set_unsure
            || self.is_incomplete
            || !is_listed
            || is_torn
            || !has_records
            || is_newest
            || self.was_full
            || self.world.failures() > 0
            || !devices.iter().all(is_clear)
        {
            self.is_over = true;
            return Ok(());
        }
        look.is_of(&self.ever)?;
        let there = devices.iter().filter(|one| one.is_there());
        let parted_at = there.map(|one| one.left_at).max().unwrap_or(0);
        let count = devices.len();
        // Those without records know epochs, and no batches.
        let log_ends_at = self
            .geometry
            .record_devices()
            .map(|entry| &devices[entry.number.index()])
            .filter(|one| one.is_there())
            .map(|one| one.left_at)
            .max();
        if let Some(known) = log_ends_at.and_then(|at| self.left_with.get(&at)) {
            let unreadable: Vec<&Key> = look.unreadable.keys().collect();
            // What follows the last mark cannot be distinguished from unacknowledged batches.
            let may_end_early = matches!(look.announced, Announced::Tail | Announced::Unknown);
            if !may_end_early || !known.allows_from_mark(&look.state, &unreadable) {
                known
                    .allows_but_for(&look.state, &unreadable)
                    .map_err(|mismatch| format!("law 5: another history begins: {mismatch}"))?;
            }
        }
        let mut side = Side {
            model: seen(look),
            devices: vec![(Freshness::Fresh, true); count],
            is_pinned: Some(writer.is_pinned()),
            has_torn: false,
        };
        self.exchange(&mut side);
        let known = side.devices.iter().zip(&mut self.conditions);
        for ((freshness, _), condition) in known {
            condition.is_of_other = *freshness == Freshness::Fresh || condition.left_at > parted_at;
        }
        self.other = Some(side);
        // What was kept may be of any history.
        self.conditions.iter_mut().for_each(|one| one.kept = None);
        self.note_set(&writer);
        self.writer = Some(writer);
        Ok(())
    }

    fn exchange(&mut self, side: &mut Side) {
        swap(&mut self.model, &mut side.model);
        swap(&mut self.is_pinned, &mut side.is_pinned);
        swap(&mut self.has_torn, &mut side.has_torn);
        for (condition, (freshness, is_in_set)) in self.conditions.iter_mut().zip(&mut side.devices) {
            swap(&mut condition.freshness, freshness);
            swap(&mut condition.is_in_set, is_in_set);
            swap(&mut condition.is_of_this, &mut condition.is_of_other);
        }
    }

    /// If all devices of this history are away, and some of the other are there, that is the store.
    pub(super) fn follow_side(&mut self) {
        let is_there = |is_of: fn(&Condition) -> bool| self.conditions.iter().any(|one| one.is_there() && is_of(one));
        if self.writer.is_none() && is_there(|one| one.is_of_other) && !is_there(|one| one.is_of_this) {
            self.follow_other();
        }
    }

    fn follow_other(&mut self) {
        if let Some(mut other) = self.other.take() {
            self.exchange(&mut other);
            self.other = Some(other);
        }
    }

    /// A choice that is interrupted, and repeated.
    pub(super) fn take_side_in_two(&mut self, device: usize, operations: u64, end: End) -> Result<bool, String> {
        self.close()?;
        let (promise, unsure) = (self.promise(), self.is_set_unsure);
        self.world.crash_at(self.world.operations() + operations);
        let is_done = self.take_side(device, false)?;
        let has_crashed = self.has_crashed();
        self.end(end);
        self.is_set_unsure = unsure;
        if !has_crashed {
            return Ok(is_done);
        }
        self.take_side(device, promise.has_diverged)
    }

    /// Law 5: the side of a device is taken, and nothing is changed but superblocks.
    pub(super) fn take_side(&mut self, device: usize, is_repeated: bool) -> Result<bool, String> {
        if device >= self.geometry.devices.len() {
            return Ok(false);
        }
        self.close()?;
        let (promise, before, may_fail) = (self.promise(), self.world.images(), self.may_fail());
        let condition = &self.conditions[device];
        let is_of_one = condition.is_there() && condition.is_of_this != condition.is_of_other;
        let is_of_other = condition.is_of_other;
        let taken = Simulated::take_side(&self.home, &self.world, DeviceNumber(device as u16));
        if self.has_crashed() {
            return Ok(true);
        }
        same_but_superblocks(&before, &self.world.images())?;
        let has_failed = may_fail || self.world.failures() > 0;
        let is_unclear = self.conditions.iter().any(Condition::is_unclear) || self.is_set_unsure || has_failed;
        let is_done_before = |error: &crate::Error| {
            is_repeated && error.kind() == ErrorKind::Usage && error.to_string().contains("one history")
        };
        let left = match taken {
            Ok(_) if is_unclear => {
                self.is_over = true;
                return Ok(true);
            }
            Ok(_) if !promise.has_diverged => return Err("law 5: of one history, a side was taken".to_owned()),
            Ok(_) if !is_of_one => return Err("law 5: the side of a device that has none was taken".to_owned()),
            Ok(left) => left,
            Err(error) if is_done_before(&error) => Vec::new(),
            Err(error) if promise.has_diverged && is_of_one && !is_unclear => {
                return Err(format!("law 5: no side can be taken: {}", text(&error)));
            }
            Err(_) => {
                self.is_over |= is_repeated;
                return Ok(true);
            }
        };
        if is_of_other {
            self.follow_other();
        }
        let is_rejected = |one: &Condition| one.is_there() && one.is_of_other;
        let rejected: Vec<u16> =
            (0..).zip(&self.conditions).filter(|(_, one)| is_rejected(one)).map(|(n, _)| n).collect();
        let left: Vec<u16> = left.into_iter().map(|number| number.0).collect();
        if !is_repeated && left != rejected {
            return Err(format!("law 5: devices {left:?} were left, and {rejected:?} are of the other side"));
        }
        let epochs = self.epochs;
        for condition in self.conditions.iter_mut().filter(|one| is_rejected(one)) {
            condition.is_of_other = false;
            condition.leave(epochs);
        }
        if !self.conditions.iter().any(|one| one.is_of_other) {
            self.other = None;
            self.conditions.iter_mut().for_each(|one| one.is_of_this = false);
        }
        self.conditions.iter_mut().for_each(|one| one.kept = None);
        self.spare_rejected();
        Ok(true)
    }

    /// Segments of a history that was not taken stay until that is accepted, and so do its large objects.
    fn spare_rejected(&mut self) {
        let Ok(reader) = Simulated::open_as(&self.home, &self.world, Access::Read) else { return };
        for (device, image) in self.world.images().iter().enumerate() {
            let others = image.iter().filter(|(path, file)| !file.bytes.is_empty() && reader.is_of_other_history(path));
            others.for_each(|(path, _)| self.released.spare(device, path));
        }
        for (device, path) in reader.extents_of_other_sides() {
            self.released.spare(device, &path);
        }
    }

    /// What a store with such devices promises without one of them, which does not return.
    pub(super) fn promise_without(&mut self, device: usize) -> Promise {
        let was = std::mem::replace(&mut self.conditions[device].is_in_set, false);
        let promise = self.promise();
        self.conditions[device].is_in_set = was;
        promise
    }
}

/// The state that is shown, whatever cannot be read.
pub(super) fn seen(look: &Look) -> Model {
    let unreadable: Vec<&Key> = look.unreadable.keys().collect();
    Model::of(look.state.clone()).but_for(&unreadable)
}
