//! Continuing with one side after devices have diverged (docs/FORMAT.md, law 5). Nothing is merged: the other devices
//! become old ones of the chosen side, by its history in their superblocks, so that they alone are never enough to
//! write again. What they wrote separately remains, in files whose names have epochs that are in no history.

use std::path::Path;

use super::open::lock;
use crate::devices::epochs::last_common;
use crate::devices::set::Platform;
use crate::devices::superblocks::OnDevice;
use crate::devices::survey::{OpenOptions, survey};
use crate::error::{Error, ErrorKind, Result};
use crate::format::history::History;
use crate::format::ids::{DeviceNumber, Epoch};
use crate::format::superblock::Superblock;

/// Makes the side of a device the current one. Returns the devices of the others.
///
/// # Errors
/// [`ErrorKind::Usage`] if nothing has diverged, or the device has no epoch that only its side has; any error of
/// locking and of writing superblocks: the command can then be repeated.
pub(crate) fn take(
    platform: &dyn Platform,
    directory: &Path,
    options: &OpenOptions,
    device: DeviceNumber,
) -> Result<Vec<DeviceNumber>> {
    let refuse = |cause: String| Err(Error::new(ErrorKind::Usage, "choose a side of", cause).at(directory));
    let found = survey(platform, directory, &options.devices)?;
    let mut locks = Vec::new();
    if found.on_home.is_some() || !found.geometry.has_home_apart() {
        lock(platform, &found.home, &mut locks)?;
    }
    for (slot, _) in found.slots.iter().zip(&found.on_devices).filter(|(_, on_device)| on_device.is_some()) {
        if slot.path != found.home {
            lock(platform, &slot.path, &mut locks)?;
        }
    }
    // What was read before the locks were taken may be outdated.
    let found = survey(platform, directory, &options.devices)?;
    if found.sides.len() < 2 {
        return refuse("its devices share one history: there is nothing to choose".to_owned());
    }
    let taken = found.sides.iter().find(|side| side.devices.contains(&device));
    let Some(taken) = taken else {
        return refuse(format!("device {device} belongs to no single side; name one that does"));
    };
    let Some(common) = last_common(&found.sides).map(|entry| entry.epoch) else {
        return refuse("the sides have no epoch in common: these are two stores with the same identity".to_owned());
    };
    let geometry = found.on_devices.get(device.index()).and_then(Option::as_ref);
    let Some(geometry) = geometry.map(|on_device| on_device.superblock.geometry.clone()) else {
        return refuse(format!("device {device} has no superblock"));
    };
    let with = |known: &OnDevice, history: &History| Superblock {
        history: history.clone(),
        geometry: geometry.clone(),
        ..known.superblock.clone()
    };
    let mut left = Vec::new();
    for (slot, on_device) in found.slots.iter().zip(&found.on_devices) {
        let Some(known) = on_device else { continue };
        if !taken.history.contains(known.superblock.history.newest().epoch) {
            // Its marks belong to a log that no longer exists.
            let history = history_without(&taken.history, common, slot.entry.number);
            known.replace(&*slot.device, Superblock { mark: None, ..with(known, &history) })?;
            left.push(slot.entry.number);
        }
    }
    if let Some(known) = &found.on_home
        && !taken.history.contains(known.superblock.history.newest().epoch)
    {
        let home = platform.device_with(&found.home, geometry.file_mode);
        known.replace(&*home, Superblock { mark: None, ..with(known, &taken.history) })?;
    }
    Ok(left)
}

/// A history as far as a device may know it that lacks all after `common` and must not count as in sync: the epochs
/// that began without it.
fn history_without(history: &History, common: Epoch, device: DeviceNumber) -> History {
    let alone = history.after(common).into_iter().flatten().take_while(|entry| !entry.has(device));
    let last = alone.last().map_or(common, |entry| entry.epoch);
    history.up_to(last).unwrap_or_else(|| unreachable!("both are in the history"))
}
