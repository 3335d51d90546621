//! Faults of the devices, and actions on all of them from outside.

use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::super::super::mishap::{Betrayal, FileKind, Image, Rot};
use super::super::super::subject::Simulated;
use super::super::super::trial::Subject;
use super::super::super::workload::Durability;
use super::super::super::world::Fault;
use super::super::laws::untouched;
use super::super::promise::Condition;
use super::super::{Step, Work};
use super::{Outcome, Play};
use crate::engine::locking::Access;

fn has_content(device: &Image) -> bool {
    device.keys().any(|path| matches!(FileKind::of(path), FileKind::Segment | FileKind::Extent))
}

impl Play {
    /// Applies a fault to the devices. Returns whether that was possible.
    pub(super) fn befall(&mut self, step: &Step) -> bool {
        let count = self.conditions.len();
        let device = match step {
            Step::Swap(one, other) => {
                let all = self.geometry.devices.len();
                // A rebuild that was begun is looked for where it is, and no more where the device was.
                let may_be = |number: &usize| *number < all && self.conditions[*number].begun.is_none();
                if one == other || !may_be(one) || !may_be(other) {
                    return false;
                }
                self.keep_sound();
                let disks = (self.conditions[*one].disk, self.conditions[*other].disk);
                self.world.swap(disks.0, disks.1);
                self.sound.swap(disks);
                self.released.swap(disks);
                (self.conditions[*one].disk, self.conditions[*other].disk) = (disks.1, disks.0);
                for number in [*one, *other] {
                    let condition = &mut self.conditions[number];
                    condition.is_swapped = condition.disk != number;
                    // A writer does not follow a device to another place.
                    if self.writer.is_some() {
                        condition.doubt();
                    }
                }
                return true;
            }
            Step::DropPages(seed) => {
                self.keep_sound();
                self.world.drop_pages(*seed);
                return true;
            }
            Step::Away(device, _)
            | Step::Back(device)
            | Step::Keep(device)
            | Step::Restore(device)
            | Step::Rot(device, ..)
            | Step::Unread(device, ..)
            | Step::IndexLost(device)
            | Step::IndexOld(device)
            | Step::Full(device, _)
            | Step::Quota(device, _)
            | Step::Room(device)
            | Step::Fails(device, _)
            | Step::Betray(device, ..) => *device,
            _ => return false,
        };
        if device >= count {
            return false;
        }
        let (is_away, disk) = (self.conditions[device].away.is_some(), self.conditions[device].disk);
        let is_replaced = self.conditions[device].begun.is_some();
        if is_away != matches!(step, Step::Back(_)) || is_replaced {
            return false;
        }
        self.keep_sound();
        let (world, has_writer, is_parted) = (&self.world, self.writer.is_some(), self.other.is_some());
        let condition = &mut self.conditions[device];
        match step {
            Step::Away(_, absence) => {
                condition.away = Some(world.detach(disk, *absence, self.random.any()));
                if has_writer {
                    condition.doubt();
                }
            }
            Step::Back(_) => {
                if let Some(away) = condition.away.take() {
                    world.attach(disk, &away);
                }
            }
            Step::Keep(_) if is_parted => return false,
            Step::Keep(_) => condition.kept = Some(world.device(disk).snapshot()),
            Step::Restore(_) => {
                let Some(kept) = &condition.kept else { return false };
                world.restore(disk, kept);
                condition.is_restored = true;
                condition.doubt();
                if has_writer {
                    // What it writes there follows what was never written.
                    self.sound.doubt(disk);
                }
            }
            // It would be an empty directory, as if another device were there.
            Step::Rot(_, FileKind::Superblock, Rot::Gone, _) if !has_content(&world.image(disk)) => return false,
            Step::Rot(_, kind, rot, place) => {
                if world.rot(disk, *kind, *rot, *place).is_none() {
                    return false;
                }
                condition.rotten.insert(*kind);
                if matches!(rot, Rot::Cut | Rot::Emptied | Rot::Gone) {
                    self.was_cut |= *kind == FileKind::Segment;
                    // Where units were, there is a hole, until all of them are reconstructed.
                    self.sound.fill(disk);
                }
            }
            Step::Unread(_, kind, place, reads) => {
                if !world.unread(disk, *kind, *place, *reads) {
                    return false;
                }
                condition.rotten.insert(*kind);
            }
            Step::IndexLost(_) => {
                world.lose_index(disk);
                condition.rotten.insert(FileKind::Manifest);
            }
            Step::IndexOld(_) => {
                let Some(kept) = &condition.kept else { return false };
                world.restore_index(disk, kept);
                condition.rotten.insert(FileKind::Manifest);
            }
            Step::Full(_, blocks) => {
                self.was_full = true;
                world.fill(disk, *blocks);
            }
            Step::Quota(_, blocks) => {
                self.was_full = true;
                world.set_quota(disk, *blocks);
            }
            Step::Room(_) => world.device(disk).set_endless(),
            Step::Fails(_, operations) => {
                let operation = world.operations() + operations;
                world.fail(Fault { operation, errno: Errno::IO, is_lasting: false, device: Some(disk) });
            }
            Step::Betray(_, kind, goes_elsewhere) => {
                world.betray(Betrayal { device: disk, kind: *kind, goes_elsewhere: *goes_elsewhere });
                self.sound.doubt(disk);
            }
            _ => return false,
        }
        true
    }

    /// Whether errors are expected, as something will fail or is full.
    pub(super) fn may_fail(&self) -> bool {
        self.world.is_troubled()
    }

    /// A step during which a device is gone for some operations.
    pub(super) fn outage(
        &mut self,
        device: usize,
        (after, operations): (u64, u64),
        step: &Step,
    ) -> Result<bool, String> {
        let is_here = |one: &&Condition| one.is_there() && one.begun.is_none();
        let Some(disk) = self.conditions.get(device).filter(is_here).map(|one| one.disk) else { return Ok(false) };
        self.keep_sound();
        self.world.lose_for(disk, after, operations);
        let is_done = self.act(step);
        self.world.end_outages();
        is_done
    }

    pub(super) fn another_place(&mut self) -> String {
        self.places += 1;
        format!("/place-{}", self.places)
    }

    /// Law 6: a store that was moved is the same store.
    pub(super) fn move_away(&mut self) -> Result<bool, String> {
        if self.writer.is_some() {
            return Ok(false);
        }
        let to = self.another_place();
        self.world.move_below(&self.place, &to);
        self.unmoved.extend(0..self.geometry.devices.len());
        self.home = self.home_below(&to);
        self.place = to;
        Ok(true)
    }

    pub(super) fn home_below(&self, place: &str) -> PathBuf {
        self.home.strip_prefix(&self.place).map_or_else(|_| self.home.clone(), |rest| Path::new(place).join(rest))
    }

    /// Law 6: what is done to a copy is not done to the original.
    pub(super) fn copy(&mut self) -> Outcome {
        if !self.unmoved.is_empty() && self.world.is_beside(&self.place) {
            // Which of the two homes a device elsewhere belongs to, nobody knows, as the store was moved before.
            return Ok(());
        }
        let world = self.world.after_kill(self.random.any());
        let before = world.images();
        let to = self.another_place();
        world.copy_below(&self.place, &to);
        let home = self.home_below(&to);
        if let Ok(mut writer) = Simulated::open_as(&home, &world, Access::Write) {
            let changes = self.changes(Work::Removal, self.places as u64);
            // It may fail: not all of it may have been copied.
            let _ = writer.batch(Durability::Batch, &changes, &mut || {});
        }
        untouched(&before, &world.images()).map_err(|cause| format!("law 6: a copy was written to; {cause}"))
    }

    /// Keeps the content of the files, as a reference for repairs.
    pub(super) fn keep_sound(&mut self) {
        for (device, image) in self.world.images().iter().enumerate() {
            self.sound.keep(device, image);
        }
    }

    pub(super) fn note_betrayals(&mut self, before: usize) {
        if self.world.betrayals() >= before {
            return;
        }
        if self.world.failures() > 0 {
            // The other copies may have failed.
            self.conditions.iter_mut().for_each(Condition::doubt);
        }
        for condition in &mut self.conditions {
            if self.sound.is_doubted(condition.disk) {
                condition.rotten.extend([FileKind::Segment, FileKind::Extent]);
            }
        }
    }
}
