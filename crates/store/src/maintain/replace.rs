//! The number of a lost device: it goes to another directory before a rebuild, and back into service or out of the
//! store after it.

use std::io;
use std::path::Path;

use crate::devices::device::Device;
use crate::devices::platform::LOST_AND_FOUND;
use crate::devices::slot::{Slot, Trouble};
use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::format::geometry::{DeviceState, random_identity};
use crate::format::ids::DeviceNumber;
use crate::format::names::{EXTENTS, SEGMENTS};
use crate::format::superblock::{SUPERBLOCK, Superblock};
use crate::index::catalog::{Change, Superseded};

impl Engine {
    /// Whether a directory was this device: before it was lost, or of a rebuild that the other devices do not know of.
    pub(super) fn is_former(&self, slot: &Slot, directory: &Path) -> bool {
        let found = Superblock::read(&*self.platform.device(directory)).ok().flatten();
        found.is_some_and(|found| self.is_of_former(slot, &found.superblock))
    }

    fn is_of_former(&self, slot: &Slot, found: &Superblock) -> bool {
        found.is_former_of(&self.geometry().store, &slot.entry)
    }

    /// Refuses a directory for a device that contains the home or another device, or is inside one: they would be lost
    /// together.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] for such a directory.
    pub(super) fn must_be_apart(&self, device: DeviceNumber, directory: &Path) -> Result<()> {
        let path = self.platform.resolve(directory);
        let refuse = |cause: String| {
            let error = Error::new(ErrorKind::Usage, "rebuild the device onto", cause).at(&path);
            Err(error.advise("each device needs its own directory, on its own disk"))
        };
        if self.platform.resolve(&self.home).starts_with(&path) {
            return refuse("the home of the store is inside it".to_owned());
        }
        let is_other = |slot: &&Slot| slot.entry.number != device && slot.entry.state != DeviceState::Gone;
        for slot in self.devices.slots().iter().filter(is_other) {
            let (other, number) = (self.platform.resolve(&slot.path), slot.entry.number);
            // A device itself is refused because of what is in it.
            if other == path {
                continue;
            }
            if path.starts_with(&other) {
                return refuse(format!("it is inside device {number}"));
            }
            if other.starts_with(&path) {
                return refuse(format!("device {number} is inside it"));
            }
        }
        Ok(())
    }

    /// Assigns the number of a lost device to another directory, in the rebuilding state.
    pub(crate) fn replace_device(&self, slot: &Slot, directory: &Path) -> Result<()> {
        if slot.trouble.is_none() && is_same(directory, &slot.path) {
            // A killed rebuild may have left the name of the superblock in memory only.
            return slot.device.sync_directory("").map_err(|error| slot.error("sync", "", error));
        }
        let path = std::path::absolute(directory).map_err(|error| Error::io("find", directory, error))?;
        let fail = |error| Error::io("create the device", &path, error);
        let mut geometry = (*self.geometry()).clone();
        let device = self.platform.device_with(&path, geometry.file_mode);
        device.create_directory("").map_err(fail)?;
        self.may_become(slot, &*device, &path)?;
        for directory in [SEGMENTS, EXTENTS] {
            device.create_directory(directory).map_err(fail)?;
        }
        // Progress was noted of a directory before this one.
        self.note(&[(&note_name(slot.entry.number), Vec::new())])?;
        let identity = random_identity()?;
        let entry = &mut geometry.devices[slot.entry.number.index()];
        (entry.identity, entry.state, entry.path) = (identity, DeviceState::Rebuilding, path.clone());
        entry.node = self.platform.node(&path).unwrap_or_default();
        let mut replaced = Slot { entry: entry.clone(), path, device, trouble: None, is_late: false };
        replaced.anchor(&*self.platform);
        self.devices.change_slot(slot.entry.number, |slot| *slot = replaced);
        self.extents.forget(slot.entry.number);
        self.write_geometry(&geometry)
    }

    /// Devices of a copy of the store are no longer its own: their numbers have other identities.
    ///
    /// # Errors
    /// Any error of writing the superblocks of the others.
    pub(crate) fn leave_out(&self, devices: &[DeviceNumber]) -> Result<()> {
        let mut geometry = (*self.geometry()).clone();
        for device in devices {
            let entry = &mut geometry.devices[device.index()];
            entry.identity = random_identity()?;
            let entry = entry.clone();
            self.devices.change_slot(*device, |slot| slot.entry = entry);
        }
        self.write_geometry(&geometry)
    }

    /// Whether a directory may become a device: one that a rebuild of this device has begun, or an unused one.
    fn may_become(&self, slot: &Slot, device: &dyn Device, path: &Path) -> Result<()> {
        let refuse = |cause: &str| Error::new(ErrorKind::Exists, "create the device", cause).at(path);
        let is_unused = |files: &[&str]| {
            let is_unused = self.is_unused(device, path, files);
            is_unused.map_err(|error| Error::io("create the device", path, error))
        };
        let store = self.geometry().store;
        match Superblock::read(device) {
            // One that a rebuild has begun may have an epoch that no other has, if it failed while that began.
            Ok(Some(found))
                if !self.is_being_rebuilt(slot, &found.superblock)
                    && self.devices.is_of_copy(slot.entry.number, &found.superblock.history) =>
            {
                Err(refuse("it is a device of a copy of the store, which was written to separately"))
            }
            Ok(Some(found)) if self.is_begun(slot, &found.superblock) => match self.devices.goes_on(&found.superblock) {
                false => Ok(()),
                true => Err(refuse("it has something that was written after all that the other devices know of").advise(
                    "name the directory itself in place of the store to see what it has; or name an empty directory",
                )),
            },
            Ok(None) if is_unused(&[])? => Ok(()),
            Ok(None) => Err(refuse("the directory is not empty")),
            // A crash came before the first superblock was whole.
            Err(error)
                if error.kind() == ErrorKind::Corrupt
                    && Superblock::is_unfinished(device, store)?
                    && is_unused(&[SUPERBLOCK])? =>
            {
                Ok(())
            }
            _ => Err(refuse("a store, or a device of one, already exists").advise("name an empty directory")),
        }
    }

    /// Whether a superblock is that of the device before it was lost, or of a rebuild of it that was interrupted.
    fn is_begun(&self, slot: &Slot, found: &Superblock) -> bool {
        self.is_of_former(slot, found) || self.is_being_rebuilt(slot, found)
    }

    fn is_being_rebuilt(&self, slot: &Slot, found: &Superblock) -> bool {
        let is_itself = found.geometry.store == self.geometry().store && found.identity == slot.entry.identity;
        is_itself && slot.entry.state == DeviceState::Rebuilding
    }

    /// Whether a directory has only these files, and no directories but what an interrupted rebuild or a new file
    /// system leaves there: each a real one, and empty.
    fn is_unused(&self, device: &dyn Device, path: &Path, files: &[&str]) -> io::Result<bool> {
        let own = [SEGMENTS, EXTENTS];
        let known = own.into_iter().chain([LOST_AND_FOUND]).map(|name| path.join(name)).collect::<Vec<_>>();
        let has_others = device.list("")?.iter().any(|(name, _)| !files.contains(&&name[..]))
            || self.platform.has_directories(path, &known)?;
        let lost_and_found = path.join(LOST_AND_FOUND);
        if has_others
            || self.platform.node(&lost_and_found).is_some() && !self.platform.is_lost_and_found(&lost_and_found)
        {
            return Ok(false);
        }
        for name in own {
            let inside = path.join(name);
            if self.platform.node(&inside).is_some()
                && (self.platform.resolve(&inside) != self.platform.resolve(path).join(name)
                    || !device.list(name)?.is_empty()
                    || self.platform.has_directories(&inside, &[])?)
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Everything is complete: the device returns to service, or leaves the store.
    pub(super) fn settle_device(&self, device: DeviceNumber, is_onto: bool) -> Result<()> {
        self.has_nothing_missing(device)?;
        let mut geometry = (*self.geometry()).clone();
        let entry = &mut geometry.devices[device.index()];
        entry.state = if is_onto { DeviceState::InUse } else { DeviceState::Gone };
        let entry = entry.clone();
        if !is_onto {
            self.adjust(|state| {
                let was_there =
                    |one: &Superseded| matches!(one, Superseded::Extent { device: of, .. } if *of == device);
                let freed = state.superseded.iter().filter(|(_, superseded)| was_there(superseded)).cloned().collect();
                // What was given up stays in the accounts until it is removed.
                let left = state.extents.values().filter(|row| row.device == device && row.live_bytes == 0);
                let removed_extents = left.map(|row| (row.device, row.file)).collect();
                Change { freed, removed_extents, durable: true, ..Change::default() }
            })?;
        }
        self.devices.change_slot(device, |slot| {
            slot.entry = entry;
            if !is_onto {
                slot.trouble = Some(Trouble::Gone);
            }
        });
        self.extents.forget(device);
        self.write_geometry(&geometry)
    }
}

/// Name of the note of a rebuild's progress in the catalog.
pub(super) fn note_name(device: DeviceNumber) -> String {
    format!("rebuild.{device}")
}

pub(super) fn is_same(a: &Path, b: &Path) -> bool {
    match (a.canonicalize(), b.canonicalize()) {
        (Ok(a), Ok(b)) => a == b,
        _ => a == b,
    }
}
