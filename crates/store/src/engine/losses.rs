//! A slow device that fails while a writer runs: the store continues without it (docs/FORMAT.md, section 3, law 5).
//!
//! When units cannot be written, the superblocks of all devices in service are test-written. A slow device whose
//! superblock cannot be written is taken out of service: an epoch begins on the others, durably and with a batch of its
//! own, before anything more is acknowledged. From then on, writes go to the others, and units on the lost device are
//! reconstructed from parity; in batches that are not durable yet, its units count as lost. If fewer devices remain
//! than redundancy needs, nothing more is written. If a device with records fails, or a sync, the store is latched as
//! before: what is then durable is unknown.

use super::Engine;
use crate::devices::slot::{Slot, Trouble};
use crate::error::{Error, ErrorKind, Result};
use crate::format::geometry::Class;
use crate::format::ids::DeviceNumber;
use crate::locks::lock;

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

    /// Whether a device that caused a failed write of units is now out of service, so that the write can be retried
    /// without it. Called without the writer's lock and without `sync`.
    ///
    /// # Errors
    /// Fewer devices remain than redundancy needs, or the epoch could not begin on them: nothing more is written.
    pub(crate) fn goes_on_without(&self, error: &Error) -> Result<bool> {
        let is_of_device = matches!(error.kind(), ErrorKind::Io | ErrorKind::NotFound | ErrorKind::PermissionDenied);
        // An object that does not exist is no error of a device.
        let is_of_system = error.os_error().is_some();
        if !is_of_device || !is_of_system || !self.is_writer() {
            return Ok(false);
        }
        // Held until the epoch is durable: what is acknowledged before it counts on the device.
        let _one = lock(&self.sync);
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
        let slots = self.devices.slots();
        let is_slow = |device: DeviceNumber| {
            slots.get(device.index()).is_some_and(|slot| slot.entry.class == Class::Slow)
                && !self.view().state.segments.values().any(|row| row.devices.contains(&device))
        };
        if failed.is_empty() || !failed.iter().all(|(device, _)| is_slow(*device)) {
            return Ok(false);
        }
        failed.iter().for_each(|(device, error)| self.devices.fail(*device, error));
        let geometry = self.geometry();
        let left = self.devices.writable(Class::Slow).len();
        if left <= usize::from(geometry.parity) || !self.devices.bears_losses(&geometry) {
            let cause = "too many devices failed since the store was opened";
            let lost = Error::new(ErrorKind::Lost, "write to the store", cause).at(&self.home);
            self.latch(&lost);
            return Err(lost);
        }
        self.begin_next_epoch(&geometry).inspect_err(|error| self.latch(error))?;
        Ok(true)
    }
}
