//! Devices that fail while a writer runs: which errors are of a device, and whether the others suffice without it
//! (docs/FORMAT.md, section 3, law 5).
//!
//! A device is taken out of service for the first write or sync that fails on it, and stays out until it was repaired:
//! what it then has is unknown, whatever a later call on it returns. It is still read, because everything read is
//! verified. Nothing may be acknowledged before an epoch without it has begun ([`Devices::owes_epoch`]).

use std::io;

use crate::devices::set::Devices;
use crate::devices::slot::{Failed, Slot, Trouble};
use crate::devices::superblocks::is_of_process;
use crate::error::{Error, ErrorKind};
use crate::format::geometry::{Class, DeviceState, Geometry};
use crate::format::ids::DeviceNumber;

/// Whether an error of writing or syncing says that the device failed: not if it is full, nor if this process or the
/// machine has too little of something, nor if a name is taken.
fn is_of_device(error: &Error) -> bool {
    let is_kind = matches!(error.kind(), ErrorKind::Io | ErrorKind::NotFound | ErrorKind::PermissionDenied);
    let is_other = |source: &io::Error| is_of_process(source) || source.kind() == io::ErrorKind::AlreadyExists;
    is_kind && error.os_error().is_some_and(|source| !is_other(source))
}

impl Devices {
    /// Takes a device out of service after a failed write.
    pub(crate) fn fail(&self, device: DeviceNumber, error: &Error) {
        self.change(|slot| {
            if slot.entry.number == device && slot.trouble.is_none() {
                slot.trouble = Some(Trouble::Failed(error.to_string()));
            }
        });
    }

    /// Takes devices out of service on which a write or a sync failed, if the errors are of the devices, and redundancy
    /// covers their loss; otherwise changes nothing. Returns whether the writer may go on without them.
    pub(crate) fn lose(&self, geometry: &Geometry, failed: &[Failed]) -> bool {
        let numbers: Vec<DeviceNumber> = failed.iter().map(|(device, _)| *device).collect();
        let is_borne = failed.iter().all(|(_, error)| is_of_device(error)) && self.suffices_without(geometry, &numbers);
        if is_borne {
            failed.iter().for_each(|(device, error)| self.fail(*device, error));
        }
        is_borne
    }

    /// Whether what remains without these devices takes records with every copy that redundancy bears to lose, and, if
    /// one of them has only units, stripes.
    fn suffices_without(&self, geometry: &Geometry, failed: &[DeviceNumber]) -> bool {
        let remain = |class: Class| {
            let slots = self.writable(class);
            slots.iter().filter(|slot| !failed.contains(&slot.entry.number)).count()
        };
        let is_of_units = |device: &DeviceNumber| !geometry.record_devices().any(|entry| entry.number == *device);
        self.bears_loss_of(geometry, failed)
            && remain(Class::Fast) > 0
            && (!failed.iter().any(is_of_units) || remain(Class::Slow) > usize::from(geometry.parity))
    }

    /// Whether redundancy covers the devices that are not in service.
    pub(crate) fn bears_losses(&self, geometry: &Geometry) -> bool {
        self.bears_loss_of(geometry, &[])
    }

    /// The same if these devices were not in service either.
    fn bears_loss_of(&self, geometry: &Geometry, failed: &[DeviceNumber]) -> bool {
        let slots = self.slots();
        let away = |class: Class| {
            let is_away = |slot: &&Slot| {
                let is_well = matches!(slot.trouble, None | Some(Trouble::Stale { .. }));
                slot.entry.class == class
                    && slot.entry.state != DeviceState::Gone
                    && (!is_well || failed.contains(&slot.entry.number))
            };
            slots.iter().filter(is_away).count()
        };
        let survived = geometry.survives();
        away(Class::Fast) <= survived.fast.into() && away(Class::Slow) <= survived.slow.into()
    }

    /// Devices in service whose superblock cannot be written, and why. A full device is not one of them, nor is one for
    /// which this process lacks memory or file descriptors.
    pub(crate) fn unwritable(&self) -> Vec<Failed> {
        let is_of_it =
            |error: &Error| error.kind() != ErrorKind::NoSpace && !error.os_error().is_some_and(is_of_process);
        self.rewrite_mark().into_iter().filter(|(_, error)| is_of_it(error)).collect()
    }

    /// Whether the epoch of this writer counts a device that has failed: another one has to begin before anything is
    /// acknowledged.
    pub(crate) fn owes_epoch(&self) -> bool {
        let slots = self.slots();
        let has_failed = |device: &DeviceNumber| {
            slots.get(device.index()).is_some_and(|slot| matches!(slot.trouble, Some(Trouble::Failed(_))))
        };
        // Asked for each durable batch: the history is not copied.
        let known = self.known();
        let newest = known.history.newest();
        newest.epoch == self.epoch() && newest.in_sync.iter().any(has_failed)
    }
}
