//! What is missing from the log according to the index: noted with the devices that were read when it was found, so
//! that the log is read again once another one is there, and with what is due because of it.
//!
//! **A crash** while a log is read: the notes are in the transaction that goes on behind what is missing, so that no
//! index knows what follows and not that.

use std::collections::{BTreeMap, BTreeSet};

use super::Engine;
use crate::devices::set::Devices;
use crate::devices::slot::Slot;
use crate::error::Result;
use crate::format::geometry::DeviceState;
use crate::format::ids::DeviceNumber;
use crate::format::superblock::HOME_APART;
use crate::log::completeness::{Cause, Completeness, Missing};

/// Note with what may be missing.
pub(crate) const MISSING: &str = "log.missing";
/// Note with the devices that were read when it was found missing.
pub(crate) const MISSING_ON: &str = "log.missing.on";
/// Note that the index was built from an incomplete log, and may lack the names of pins.
pub(crate) const PINS_DOUBTED: &str = "pins.doubted";
/// Note that directories may have lost their record: `lost+found` must be updated (see `maintain::lost_found`).
pub(crate) const DETACHED: &str = "log.detached";

/// What may be missing because too few devices are present to know, or have diverged.
pub(super) fn too_few(devices: &Devices) -> Missing {
    let slots = devices.slots();
    let others = slots.iter().filter(|slot| slot.trouble.is_some() && slot.entry.state != DeviceState::Gone);
    devices_away(others.map(|slot| slot.entry.number).collect())
}

/// What these devices may have.
pub(super) fn devices_away(devices: Vec<DeviceNumber>) -> Missing {
    Missing { cause: Cause::DevicesAway, segments: None, batches: None, after_nanoseconds: None, devices }
}

impl Engine {
    /// The notes of what is missing, and of what is due because of it.
    pub(super) fn missing_notes(
        &self,
        kept: Vec<u8>,
        is_from_scratch: bool,
        unlisted: &BTreeSet<DeviceNumber>,
    ) -> Vec<(String, Vec<u8>)> {
        // What was not read now is looked for again once it can be.
        let mut on = self.in_sight();
        on.retain(|device| !unlisted.contains(device));
        // Even if none was read, the note is not empty.
        on.push(HOME_APART);
        let on = if kept.is_empty() { Vec::new() } else { encode_devices(&on) };
        let doubted = is_from_scratch && !kept.is_empty();
        let mut notes = vec![(MISSING.to_owned(), kept), (MISSING_ON.to_owned(), on)];
        notes.push((DETACHED.to_owned(), b"due".to_vec()));
        notes.extend(doubted.then(|| (PINS_DOUBTED.to_owned(), b"doubted".to_vec())));
        notes
    }

    /// Devices that are there with all that they should have. One that is being rebuilt stands for a lost one.
    fn in_sight(&self) -> Vec<DeviceNumber> {
        let slots = self.devices.slots();
        let is_whole = |slot: &&Slot| slot.is_readable() && slot.entry.state == DeviceState::InUse;
        slots.iter().filter(is_whole).map(|slot| slot.entry.number).collect()
    }

    /// Whether a device is present that was not when something was found missing: it may have that, so the log must be
    /// read again.
    pub(super) fn is_more_in_sight(
        &self,
        notes: &BTreeMap<String, Vec<u8>>,
        unlisted: &BTreeSet<DeviceNumber>,
    ) -> bool {
        let is_new = |device: &DeviceNumber| !unlisted.contains(device) && may_have_missing(notes, *device);
        self.in_sight().iter().any(is_new)
    }

    /// Whether something is missing that a device may have.
    pub(crate) fn may_have_missing(&self, device: DeviceNumber) -> bool {
        may_have_missing(&self.view().state.notes, device)
    }

    /// The catalog's notes of what may be missing.
    pub(crate) fn completeness_of(&self, notes: &BTreeMap<String, Vec<u8>>) -> Vec<Missing> {
        let missing = |note: &Vec<u8>| Completeness::decode_missing(note).unwrap_or_else(|| vec![Missing::unknown()]);
        notes.get(MISSING).map(missing).unwrap_or_default()
    }

    /// A device was rebuilt from the others: it has nothing of what is missing.
    ///
    /// # Errors
    /// Errors of the index.
    pub(crate) fn has_nothing_missing(&self, device: DeviceNumber) -> Result<()> {
        let notes = self.view().state.notes.clone();
        if !may_have_missing(&notes, device) {
            return Ok(());
        }
        let on = notes.get(MISSING_ON).cloned().unwrap_or_default();
        self.note(&[(MISSING_ON, [on, encode_devices(&[device])].concat())])
    }
}

fn encode_devices(devices: &[DeviceNumber]) -> Vec<u8> {
    devices.iter().flat_map(|device| device.0.to_le_bytes()).collect()
}

/// Whether a device was away or unread when something was found missing, according to the notes of a catalog.
fn may_have_missing(notes: &BTreeMap<String, Vec<u8>>, device: DeviceNumber) -> bool {
    let on = notes.get(MISSING_ON).map(Vec::as_slice).unwrap_or_default();
    !on.is_empty() && !on.chunks_exact(2).any(|bytes| bytes == device.0.to_le_bytes())
}
