//! A device that fails while a writer runs: the store continues without it (docs/FORMAT.md, section 3, law 5).
//!
//! A write or sync of a segment, of an extent file or of a superblock that fails on some devices, and succeeds on
//! others, takes the former out of service if redundancy covers that ([`Devices::lose`]): what a failed write or sync
//! left is unknown, and is not tried again. Every batch that was not durable yet is then whole and synced on each
//! remaining copy, and its units on the lost device count as lost. Before anything more is acknowledged, an epoch
//! begins on the others, durably and with a batch of its own; the log continues in a segment on them.
//!
//! When units cannot be written or a device does not say how much space it has, nothing refers to what was written:
//! then the superblocks of all devices in service are test-written, and only those that cannot be written are lost.
//!
//! If all copies fail, or the rest is less than redundancy needs, the store is latched.
//!
//! [`Devices::lose`]: crate::devices::set::Devices::lose

use std::io;

use super::Engine;
use crate::devices::slot::{Failed, Slot, Trouble};
use crate::error::{Error, ErrorKind, Result};
use crate::format::geometry::Class;
use crate::format::ids::DeviceNumber;
use crate::index::copies::IndexDevice;
use crate::locks::lock;
use crate::log::writer::Writer;

/// Whether an error calls for a look at the devices.
fn may_be_of_device(error: &Error) -> bool {
    let is_kind = matches!(error.kind(), ErrorKind::Io | ErrorKind::NotFound | ErrorKind::PermissionDenied);
    // An object that does not exist is no error of a device.
    is_kind && error.os_error().is_some()
}

impl Engine {
    /// An error of placing a large object on too few devices, with what helps if some of the others are stale.
    pub(crate) fn advise_on_devices(&self, error: Error) -> Error {
        let slots = self.devices.slots();
        let troubles =
            slots.iter().filter_map(|slot| slot.trouble.as_ref()).filter(|trouble| **trouble != Trouble::Gone);
        let (stale, others): (Vec<_>, Vec<_>) = troubles.partition(|trouble| matches!(trouble, Trouble::Stale { .. }));
        if error.kind() != ErrorKind::Lost || stale.is_empty() {
            return error;
        }
        let repair = "granulo store repair brings stale devices up to date";
        match others.is_empty() {
            true => error.advise(repair),
            false => error.advise(format!("{repair}, and granulo store rebuild replaces lost ones")),
        }
    }

    /// Takes devices out of service on which a write or sync failed that succeeded on all others.
    ///
    /// # Errors
    /// The first failure, if the others do not suffice.
    pub(crate) fn bear(&self, failed: Vec<Failed>) -> Result<()> {
        // Another thread may have met it before.
        let mut failed: Vec<Failed> =
            failed.into_iter().filter(|(device, _)| self.devices.is_in_service(*device)).collect();
        match failed.is_empty() || self.devices.lose(&self.geometry(), &failed) {
            true => Ok(()),
            false => Err(failed.swap_remove(0).1),
        }
    }

    /// Records in the superblocks that ids up to this one may be assigned. Called with the writer's lock held.
    ///
    /// # Errors
    /// A superblock cannot be written, and the others do not suffice.
    pub(crate) fn reserve_ids(&self, ids_reserved: u64) -> Result<()> {
        let failed = self.devices.reserve_ids(ids_reserved);
        self.bear(failed)
    }

    /// Whether devices that cannot be written, found after an error that wrote nothing to the log, are now out of
    /// service.
    pub(crate) fn loses_unwritable(&self, error: &Error) -> bool {
        if !may_be_of_device(error) || error.device().is_none() {
            return false;
        }
        let failed = self.devices.unwritable();
        !failed.is_empty() && self.devices.lose(&self.geometry(), &failed)
    }

    /// Whether a device that caused a failed write of units is now out of service, so that the write can be retried
    /// without it. Called without the writer's lock and without `sync`.
    ///
    /// # Errors
    /// Fewer devices remain than redundancy needs, or the epoch could not begin on them: nothing more is written.
    pub(crate) fn goes_on_without(&self, error: &Error) -> Result<bool> {
        if !may_be_of_device(error) || !self.is_writer() {
            return Ok(false);
        }
        // Held until the epoch is durable: what is acknowledged before it counts on the device.
        let _sync = lock(&self.sync);
        if self.latched().is_some() {
            return Ok(false);
        }
        let is_known = |slot: &Slot| {
            error.device() == Some(slot.entry.number.0) && matches!(slot.trouble, Some(Trouble::Failed(_)))
        };
        if self.devices.slots().iter().any(is_known) {
            // Another thread met it before.
            return Ok(true);
        }
        let failed = self.devices.unwritable();
        if failed.is_empty() {
            return Ok(false);
        }
        if !self.devices.lose(&self.geometry(), &failed) {
            if !failed.iter().all(|(device, _)| self.is_of_units(*device)) {
                return Ok(false);
            }
            failed.iter().for_each(|(device, error)| self.devices.fail(*device, error));
            let cause = "too many devices failed since the store was opened";
            let lost = Error::new(ErrorKind::Lost, "write to the store", cause).at(&self.home);
            self.latch(&lost);
            return Err(lost);
        }
        let mut writer = self.writer()?;
        match self.settle(&mut writer) {
            Err(error) if self.is_waiting_for_space(&error) => Ok(true),
            settled => settled.map(|()| true).inspect_err(|error| self.latch(error)),
        }
    }

    /// Refuses if one of some devices has failed: what was written to it may be lost with it.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] if so.
    pub(crate) fn refuse_failed(&self, operation: &'static str, devices: &[DeviceNumber]) -> Result<()> {
        let slots = self.devices.slots();
        let failed = devices.iter().find_map(|device| match &slots.get(device.index())?.trouble {
            Some(Trouble::Failed(cause)) => Some((device, cause)),
            _ => None,
        });
        failed.map_or(Ok(()), |(device, cause)| {
            let cause = format!("device {device} failed meanwhile, and the store goes on without it: {cause}");
            Err(Error::new(ErrorKind::Lost, operation, cause)
                .at(&self.home)
                .on_device(device.0)
                .advise("run granulo store repair again when it can be written"))
        })
    }

    /// Whether a device has units and no records.
    fn is_of_units(&self, device: DeviceNumber) -> bool {
        let slots = self.devices.slots();
        slots.get(device.index()).is_some_and(|slot| slot.entry.class == Class::Slow)
            && !self.view().state.segments.values().any(|row| row.devices.contains(&device))
    }

    /// Begins an epoch without devices that have failed, if none has begun yet. Called with `sync` held, when
    /// everything in the log is durable on the others, and before it is acknowledged.
    ///
    /// # Errors
    /// As [`begin_settled_epoch`](Self::begin_settled_epoch).
    pub(super) fn tell_of_losses(&self, writer: &mut Writer) -> Result<()> {
        if !self.devices.owes_epoch() {
            return Ok(());
        }
        self.leave_lost_index();
        self.begin_settled_epoch(writer, &self.geometry())
    }

    /// Drops the copies of the index on devices out of service, unless no other is left.
    fn leave_lost_index(&self) {
        let places = self.index.places();
        let is_lost = |place: &&IndexDevice| !self.devices.is_in_service(place.number);
        let lost: Vec<(IndexDevice, io::Error)> =
            places.iter().filter(is_lost).map(|place| (place.clone(), io::Error::other("the device failed"))).collect();
        if lost.len() < places.len() {
            self.index.drop_failed(&lost);
        }
    }
}
