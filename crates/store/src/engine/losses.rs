//! A slow device that fails while a writer runs: the store goes on without it (docs/FORMAT.md, section 3, law 5).
//!
//! When units cannot be written, all devices in service are asked whether their superblocks can be. A slow device whose superblock cannot is taken out of service: an
//! epoch begins on the others, durably and with a batch of its own, before anything more is acknowledged. What is written from then on goes to the others; what is on the
//! lost one is reconstructed from parity; of batches that are not durable yet, the units there count as lost. If fewer are left than redundancy needs, nothing is written any
//! more. Where a device with records fails, or a sync, the store is latched as before: what is durable then is not known.

use super::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::format::geometry::Class;

impl Engine {
    /// Whether a device that made writing units fail is out of service now, so that it can be tried again without it. Called without the writer's lock.
    ///
    /// # Errors
    /// Fewer devices are left than redundancy needs, or the epoch could not begin on them: nothing is written any more.
    pub(crate) fn goes_on_without(&self, error: &Error) -> Result<bool> {
        let is_of_device = matches!(error.kind(), ErrorKind::Io | ErrorKind::NotFound | ErrorKind::PermissionDenied);
        if !is_of_device || !self.is_writer() || self.latched().is_some() {
            return Ok(false);
        }
        let failed = self.devices.unwritable();
        let slots = self.devices.slots();
        let is_slow = |device: u16| {
            slots.get(usize::from(device)).is_some_and(|slot| slot.entry.class == Class::Slow)
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
        self.write_geometry(&geometry).inspect_err(|error| self.latch(error))?;
        Ok(true)
    }
}
