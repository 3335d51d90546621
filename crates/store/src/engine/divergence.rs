//! Continuing with one side after devices have diverged (docs/FORMAT.md, law 5). Nothing is merged: the other devices
//! become old ones of the chosen side, by its history in their superblocks, so that they alone are never enough to
//! write again. What they wrote separately remains, in files whose names have epochs that are in no history.
//!
//! Devices of a copy of the store have other content in files of the same names, so they cannot become old ones of
//! this store: nothing is written to them, and the caller leaves them out.

use std::path::Path;

use super::locking::lock;
use crate::devices::platform::Platform;
use crate::devices::superblocks::OnDevice;
use crate::devices::survey::{OpenOptions, Survey, survey};
use crate::error::{Error, ErrorKind, Result};
use crate::format::history::{EpochEntry, History};
use crate::format::ids::{DeviceNumber, Epoch};
use crate::format::superblock::{SUPERBLOCK, Superblock};

/// Devices of the sides that were not taken.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rejected {
    /// Stale from now on.
    pub stale: Vec<DeviceNumber>,
    /// Devices of a copy of the store that was written to separately. They are left out of the store, unchanged, and
    /// their numbers are rebuilt onto other directories.
    pub of_copy: Vec<DeviceNumber>,
}

/// Makes the side of a device the current one. Returns the devices of the others. If some of them are of a copy of the
/// store, only a home of theirs is written.
///
/// # Errors
/// [`ErrorKind::Usage`] if nothing has diverged, or the device has no epoch that only its side has; any error of
/// locking and of writing superblocks: the command can then be repeated.
pub(crate) fn take(
    platform: &dyn Platform,
    directory: &Path,
    options: &OpenOptions,
    device: DeviceNumber,
) -> Result<Rejected> {
    let refuse = |cause: String| Err(Error::new(ErrorKind::Usage, "choose a side of", cause).at(directory));
    let found = survey(platform, directory, options)?;
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
    let found = survey(platform, directory, options)?;
    let is_one = found.sides.len() < 2;
    let taken = match is_one {
        // A choice that was interrupted: what is left of the other side is void as long as some of its devices are
        // in sight that were rejected already.
        true => &found.history,
        false => match found.sides.iter().find(|side| side.devices.contains(&device)) {
            Some(side) => {
                let of_copy = found.twins_of(side);
                if !of_copy.is_empty() {
                    take_home(platform, &found, &side.history, device)?;
                    return Ok(Rejected { of_copy, ..Rejected::default() });
                }
                &side.history
            }
            None => return refuse(format!("device {device} belongs to no single side; name one that does")),
        },
    };
    const ONE: &str = "its devices share one history: there is nothing to choose";
    let is_rejected = |known: &OnDevice| !taken.contains(known.superblock.history.newest().epoch);
    if is_one && !found.on_devices.iter().flatten().any(is_rejected) {
        // The last of its superblocks may be in memory only.
        for (slot, _) in found.slots.iter().zip(&found.on_devices).filter(|(_, on_device)| on_device.is_some()) {
            Superblock::sync(&*slot.device).map_err(|error| slot.error("sync", SUPERBLOCK, error))?;
        }
        return refuse(ONE.to_owned());
    }
    let geometry = found.on_devices.get(device.index()).and_then(Option::as_ref);
    let Some(geometry) = geometry.map(|on_device| on_device.superblock.geometry.clone()) else {
        return refuse(format!("device {device} has no superblock"));
    };
    if found.on_devices.get(device.index()).and_then(Option::as_ref).is_some_and(is_rejected) {
        return refuse(format!("device {device} is of a side that was rejected already"));
    }
    let last_common = |known: &OnDevice| {
        let shared = |entry: &EpochEntry| taken.contains(entry.epoch).then_some(entry.epoch);
        known.superblock.history.entries().rev().find_map(shared)
    };
    let mut numbered = found.slots.iter().zip(&found.on_devices);
    if numbered.any(|(slot, known)| {
        let is_of_side = found.sides.iter().any(|side| side.devices.contains(&slot.entry.number));
        is_of_side && known.as_ref().is_some_and(|known| last_common(known).is_none())
    }) {
        return refuse("the sides have no epoch in common: these are two stores with the same identity".to_owned());
    }
    let with = |known: &OnDevice, history: &History| Superblock {
        history: history.clone(),
        geometry: geometry.clone(),
        ..known.superblock.clone()
    };
    let mut stale = Vec::new();
    for (slot, on_device) in found.slots.iter().zip(&found.on_devices) {
        let Some(known) = on_device.as_ref().filter(|known| is_rejected(known)) else { continue };
        let Some(common) = last_common(known) else { continue };
        // Its marks belong to a log that no longer exists.
        let history = history_without(taken, common, slot.entry.number);
        let superblock = Superblock { mark: None, ..with(known, &history) };
        known.replace_both(&*slot.device, superblock)?;
        stale.push(slot.entry.number);
    }
    take_home(platform, &found, taken, device)?;
    if is_one { refuse(ONE.to_owned()) } else { Ok(Rejected { stale, ..Rejected::default() }) }
}

/// Gives a separate home that is of another side the history and the geometry of the one that is taken: it has no data.
fn take_home(platform: &dyn Platform, found: &Survey, taken: &History, device: DeviceNumber) -> Result<()> {
    let of_device = found.on_devices.get(device.index()).and_then(Option::as_ref);
    let home = found.on_home.as_ref().filter(|known| !taken.contains(known.superblock.history.newest().epoch));
    let (Some(of_device), Some(known)) = (of_device, home) else { return Ok(()) };
    let geometry = of_device.superblock.geometry.clone();
    let home = platform.device_with(&found.home, geometry.file_mode);
    let superblock = Superblock { history: taken.clone(), geometry, mark: None, ..known.superblock.clone() };
    known.replace_both(&*home, superblock).map(|_| ())
}

/// A history as far as a device may know it that lacks all after `common` and must not count as in sync: the epochs
/// that began without it.
fn history_without(history: &History, common: Epoch, device: DeviceNumber) -> History {
    let alone = history.after(common).into_iter().flatten().take_while(|entry| !entry.has(device));
    let last = alone.last().map_or(common, |entry| entry.epoch);
    history.up_to(last).unwrap_or_else(|| unreachable!("both are in the history"))
}
