//! Finding the devices of a store and reading all their superblocks, before anything is written (docs/FORMAT.md, laws 5
//! and 6).
//!
//! A device is identified by its superblock, wherever it is: it is looked for relative to the home as it was relative
//! to the old one, then at its last location, then where the caller says, then at the last locations of the other
//! devices. What all superblocks permit together is judged in [`super::admission`].

use std::path::{Component, Path, PathBuf};

use super::bucket::BucketOptions;
use super::device::Device;
use super::epochs::{Side, Standing, preferred, sides, standing};
use super::names;
use super::platform::Platform;
use super::slot::{Slot, Trouble};
use super::written;
use crate::devices::superblocks::{self, OnDevice};
use crate::error::{Error, ErrorKind, Result, os_message};
use crate::format::geometry::{DeviceEntry, DeviceState, Geometry};
use crate::format::history::{EpochEntry, History};
use crate::format::ids::DeviceNumber;
use crate::format::names::{EXTENTS, SEGMENTS};
use crate::format::superblock::{HOME_APART, LogMark, Superblock, last_marked};

/// How a store is opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// Write although too few devices are present to be sure that the others have nothing newer.
    pub degraded: bool,
    /// Directories in which to look for devices that are neither in the home nor at their last location.
    pub devices: Vec<PathBuf>,
    /// A device that is permanently lost and not waited for.
    pub lost: Option<DeviceNumber>,
    /// Devices that are treated as missing.
    pub without: Vec<DeviceNumber>,
    /// How the bucket of a store in one is used.
    pub bucket: BucketOptions,
}

/// How often a geometry that was found may lead to a newer one.
const ROUNDS: usize = 4;

/// All superblocks of a store, and what they imply.
#[derive(Debug)]
pub(crate) struct Survey {
    /// The home's directory.
    pub(crate) home: PathBuf,
    /// As in the newest superblock.
    pub(crate) geometry: Geometry,
    /// The same with the places where everything was found.
    pub(crate) bound: Geometry,
    /// The current history; of several sides, the one that readers use.
    pub(crate) history: History,
    pub(crate) slots: Vec<Slot>,
    /// By number; `None` if there is no valid one of this store.
    pub(crate) on_devices: Vec<Option<OnDevice>>,
    /// The superblock of a separate home.
    pub(crate) on_home: Option<OnDevice>,
    /// More than one if devices have diverged.
    pub(crate) sides: Vec<Side>,
    /// Whether readers know which side to use.
    pub(crate) is_decided: bool,
    /// The directory given by the caller, if it is a device.
    pub(super) named: Option<DeviceNumber>,
}

/// What was found of a device.
struct FoundDevice {
    path: PathBuf,
    on_device: Option<OnDevice>,
    trouble: Option<Trouble>,
    /// In its place is a device of this store with its number and another identity.
    former: Option<Box<Superblock>>,
}

/// Where a search begins.
struct SearchStart<'b> {
    platform: &'b dyn Platform,
    directory: &'b Path,
    first: &'b Superblock,
    options: &'b OpenOptions,
}

/// Reads all superblocks of the store to which a directory (a home or a device) belongs; writes nothing.
///
/// # Errors
/// [`ErrorKind::NotFound`] if it is not a store; any error of reading its own superblock.
pub(crate) fn survey(platform: &dyn Platform, directory: &Path, options: &OpenOptions) -> Result<Survey> {
    let Some(first) = Superblock::read(&*platform.device(directory))? else {
        let is_there = platform.node(directory).is_some();
        let cause = if is_there { "it has no superblock" } else { "no such directory" };
        // Never advise to create a store there: this may be the place of a lost home whose devices still exist.
        return Err(Error::new(ErrorKind::NotFound, "open the store", cause).at(directory).advise(
            "if a store had its home there, name any of its devices instead; granulo store repair DEVICE recreates the home",
        ));
    };
    let first = first.superblock;
    let beginning = SearchStart { platform, directory, first: &first, options };
    let mut geometry = first.geometry.clone();
    let mut survey = beginning.survey_once(&geometry)?;
    for _ in 1..ROUNDS {
        if !survey.leads_on(&geometry) {
            break;
        }
        geometry = survey.geometry;
        survey = beginning.survey_once(&geometry)?;
    }
    survey.look_at_late()?;
    Ok(survey)
}

/// Whether an error says nothing about the device.
pub(super) fn is_of_process(error: &Error) -> bool {
    error.os_error().is_some_and(superblocks::is_of_process)
}

/// The superblock of a device; `None` if it has no valid one, or cannot be read.
pub(super) fn superblock_if_any(device: &dyn Device) -> Result<Option<OnDevice>> {
    match Superblock::read(device) {
        Err(error) if is_of_process(&error) => Err(error),
        found => Ok(found.ok().flatten()),
    }
}

impl SearchStart<'_> {
    /// One round: looks for every device of `geometry`, and judges the histories of those that are found.
    fn survey_once(&self, geometry: &Geometry) -> Result<Survey> {
        let home = self.locate_home(geometry)?;
        let found = geometry.devices.iter().map(|entry| self.device(geometry, &home, entry));
        let found: Vec<FoundDevice> = found.collect::<Result<_>>()?;
        let on_home = match geometry.has_home_apart() {
            true => self.of_this_store(&home, geometry)?.filter(|found| found.superblock.number == HOME_APART),
            false => None,
        };
        let seen: Vec<(DeviceNumber, &History)> = geometry
            .devices
            .iter()
            .zip(&found)
            .filter_map(|(entry, found)| Some((entry.number, &found.on_device.as_ref()?.superblock.history)))
            .collect();
        let mut witnesses: Vec<&History> = on_home.iter().map(|found| &found.superblock.history).collect();
        // Where the search began counts if it is a home, or if no device was found: one that was replaced leads on.
        if self.first.number == HOME_APART || seen.is_empty() {
            witnesses.push(&self.first.history);
        }
        let written = |entry: &EpochEntry| self.is_written(geometry, &found, entry);
        let sides = sides(&seen, &witnesses, &written);
        let preferred = preferred(&sides);
        let history = sides.get(preferred.unwrap_or(0)).map_or(&self.first.history, |side| &side.history).clone();
        let is_newest = |superblock: &&Superblock| superblock.history.newest().epoch == history.newest().epoch;
        let on_devices = || found.iter().filter_map(|found| found.on_device.as_ref()).map(|found| &found.superblock);
        let of_home = on_home.iter().map(|found| &found.superblock);
        let newest_superblock = on_devices().chain(of_home).chain([self.first]).find(is_newest);
        let marked = last_marked(on_devices().filter(is_newest).filter_map(|superblock| superblock.mark.as_ref()));
        let newest = newest_superblock.map_or(geometry, |superblock| &superblock.geometry).clone();
        let troubles: Vec<(Option<Trouble>, bool)> = geometry
            .devices
            .iter()
            .zip(&found)
            .map(|(entry, found)| {
                let Some(on_device) = &found.on_device else {
                    let is_newer = found.former.as_ref().is_some_and(|former| {
                        former.history.contains(history.newest().epoch) && former.goes_on(&history)
                    });
                    return (if is_newer { Some(Trouble::Newer) } else { found.trouble.clone() }, false);
                };
                let others = sides.iter().enumerate().filter(|&(at, _)| sides.len() > 1 && Some(at) != preferred);
                let is_of_other = others.map(|(_, side)| side).any(|side| side.devices.contains(&entry.number));
                match standing(entry.number, &on_device.superblock.history, &history, &seen, marked) {
                    _ if is_of_other => (Some(Trouble::Diverged), false),
                    Standing::InSync => (None, false),
                    Standing::Late => (None, true),
                    Standing::Stale(missed) => (Some(Trouble::Stale { missed }), false),
                    Standing::Diverged => (Some(Trouble::Diverged), false),
                }
            })
            .collect();
        let mut bound = newest.clone();
        // Of two devices that changed places, one may be away: it is expected where the other was.
        for (entry, device) in geometry.devices.iter().zip(&found).filter(|(_, device)| device.on_device.is_some()) {
            let is_its = |other: &DeviceEntry| other.number != entry.number && other.directory(&home) == device.path;
            let owner = geometry.devices.iter().position(is_its);
            if let Some(owner) = owner.filter(|&owner| found.get(owner).is_some_and(|owner| owner.on_device.is_none()))
                && let Some(bound_entry) = bound.devices.get_mut(owner)
            {
                bound_entry.path.clone_from(&entry.path);
            }
        }
        let mut slots = Vec::new();
        let mut on_devices = Vec::new();
        let resolved_home = self.platform.resolve(&home);
        for ((entry, found), (trouble, is_late)) in geometry.devices.iter().zip(found).zip(troubles) {
            let mut entry = entry.clone();
            if found.on_device.is_some() {
                if found.path != entry.directory(&home) {
                    entry.path = beside(&resolved_home, &self.platform.resolve(&found.path));
                }
                entry.node = self.platform.node(&found.path).unwrap_or_default();
                if let Some(bound_entry) = bound.devices.get_mut(entry.number.index()) {
                    (bound_entry.path, bound_entry.node) = (entry.path.clone(), entry.node);
                }
            }
            let device = self.platform.device_with(&found.path, geometry.file_mode);
            slots.push(Slot { entry, path: found.path, device, trouble, is_late });
            on_devices.push(found.on_device);
        }
        if bound.has_home_apart() {
            // A lost home is recreated where it was.
            if let Some(node) = self.platform.node(&home) {
                (bound.home, bound.home_node) = (resolved_home, node);
            }
        }
        let is_decided = preferred.is_some();
        let named = Some(self.first.number).filter(|&number| number != HOME_APART);
        Ok(Survey { home, geometry: newest, bound, history, slots, on_devices, on_home, sides, is_decided, named })
    }

    /// Whether something was written in an epoch that is the newest of some devices; `None` if that is unknown: no
    /// device with records has it and can be read.
    fn is_written(&self, geometry: &Geometry, found: &[FoundDevice], entry: &EpochEntry) -> Option<bool> {
        let mut known = None;
        for (device, found) in geometry.devices.iter().zip(found) {
            let superblock = found.on_device.as_ref().map(|on_device| &on_device.superblock);
            let Some(superblock) = superblock.filter(|one| one.history.newest().epoch == entry.epoch) else { continue };
            if superblock.mark.is_some_and(|mark| mark.sequence > entry.last_batch) {
                return Some(true);
            }
            if !geometry.record_devices().any(|one| one.number == device.number) {
                continue;
            }
            let one = &*self.platform.device(&found.path);
            match written::has_batch(one, &geometry.store, entry, superblock.mark) {
                Some(true) => return Some(true),
                has_batch => known = known.or(has_batch),
            }
        }
        known
    }

    /// The superblock in a directory, if it belongs to this store.
    fn of_this_store(&self, directory: &Path, geometry: &Geometry) -> Result<Option<OnDevice>> {
        if self.platform.node(directory).is_none() {
            return Ok(None);
        }
        let found = superblock_if_any(&*self.platform.device(directory))?;
        Ok(found.filter(|found| found.superblock.geometry.store == geometry.store))
    }

    /// The home's directory: the one that was named, if that is the home, or a device that is also the home (the store
    /// then has no other device); else where the home is if it moved together with the named device; else where it was
    /// recorded, even if it is not there now.
    fn locate_home(&self, geometry: &Geometry) -> Result<PathBuf> {
        if self.first.number == HOME_APART || !geometry.has_home_apart() {
            return Ok(self.directory.to_owned());
        }
        let mut candidates = Vec::new();
        if let Some(entry) = geometry.devices.get(self.first.number.index()) {
            let was = entry.directory(&geometry.home);
            candidates.extend(moved_along(&was, &geometry.home, &self.platform.resolve(self.directory)));
        }
        candidates.push(geometry.home.clone());
        for path in candidates {
            if self.of_this_store(&path, geometry)?.is_some_and(|found| found.superblock.number == HOME_APART) {
                return Ok(path);
            }
        }
        Ok(geometry.home.clone())
    }

    /// Where a device is if it moved together with the home, and where it was. In a home that did not move, a device of
    /// the same identity is a copy, as long as there is one where it was.
    fn places(&self, geometry: &Geometry, home: &Path, entry: &DeviceEntry) -> Vec<PathBuf> {
        let was = entry.directory(home);
        let Some(name) = entry.path.file_name().filter(|_| entry.path.is_absolute()) else { return vec![was] };
        let now = self.platform.resolve(home);
        let is_same_path = now == geometry.home;
        let here = self.platform.node(home);
        let is_where_it_was = is_same_path || here.is_some() && here == self.platform.node(&geometry.home);
        let inside = home.join(name);
        // Not by nodes: a copy of a file system has those of the original, and the old path may be a link to the new.
        let moved = (!is_same_path).then(|| moved_along(&geometry.home, &entry.path, &now)).flatten();
        let mut places: Vec<PathBuf> = moved.into_iter().collect();
        places.extend(if is_where_it_was { [was, inside] } else { [inside, was] });
        // It was away when the others were moved, and is where it was beside the home.
        places.extend(home.parent().map(|above| above.join(name)));
        places
    }

    /// # Errors
    /// Those that say nothing about the device. It is missing, empty or damaged after all others.
    fn device(&self, geometry: &Geometry, home: &Path, entry: &DeviceEntry) -> Result<FoundDevice> {
        let was = entry.directory(home);
        if entry.state == DeviceState::Gone {
            return Ok(FoundDevice { path: was, on_device: None, trouble: Some(Trouble::Gone), former: None });
        }
        if self.options.without.contains(&entry.number) {
            let trouble = Some(Trouble::Missing("it was left out".into()));
            return Ok(FoundDevice { path: was, on_device: None, trouble, former: None });
        }
        let mut candidates = Vec::new();
        if self.first.identity == entry.identity && self.first.number != HOME_APART {
            candidates.push(self.directory.to_owned());
        }
        candidates.extend(self.places(geometry, home, entry));
        candidates.extend(self.options.devices.iter().cloned());
        // Disks that were mounted in another order: each answers in the place of another one. An identity is bound to
        // one place, the first that has it, so a copy of a device that is where it was is not used.
        let others = geometry.devices.iter().filter(|other| other.state != DeviceState::Gone);
        candidates.extend(others.flat_map(|other| self.places(geometry, home, other)).filter(|place| *place != was));
        let is_its = |superblock: &Superblock| {
            (superblock.geometry.store, superblock.identity) == (geometry.store, entry.identity)
        };
        let is_it = |found: &OnDevice| is_its(&found.superblock);
        let mut at_was = Ok(None);
        for path in candidates {
            match Superblock::read(&*self.platform.device(&path)) {
                Err(error) if is_of_process(&error) => return Err(error.on_device(entry.number.0)),
                Ok(Some(found)) if is_it(&found) && self.platform.node(&path).is_some() => {
                    return Ok(FoundDevice { path, on_device: Some(found), trouble: None, former: None });
                }
                other if path == was => at_was = other,
                _ => {}
            }
        }
        let former = at_was.as_ref().ok().and_then(Option::as_ref).map(|found| &found.superblock);
        let former = former.filter(|superblock| superblock.is_former_of(&geometry.store, entry)).cloned().map(Box::new);
        let trouble = match at_was {
            Ok(Some(found)) if is_it(&found) => Trouble::Missing("its directory cannot be examined".into()),
            Ok(Some(_)) => Trouble::Stranger,
            Ok(None) if has_files(&*self.platform.device(&was)) => Trouble::Unmarked,
            Ok(None) if self.platform.node(&was).is_some() => Trouble::Empty,
            Ok(None) => Trouble::Missing("no such directory".into()),
            Err(error) if error.kind() == ErrorKind::Corrupt => Trouble::Damaged,
            Err(error) => Trouble::Missing(error.to_string()),
        };
        Ok(FoundDevice { path: was, on_device: None, trouble: Some(trouble), former })
    }
}

/// Whether a directory has files of segments or of large objects.
fn has_files(device: &dyn Device) -> bool {
    [SEGMENTS, EXTENTS]
        .into_iter()
        .any(|directory| names::list_names(device, directory).is_ok_and(|files| !files.is_empty()))
}

/// A path of a device: relative to the home if inside it.
fn beside(home: &Path, path: &Path) -> PathBuf {
    match path.strip_prefix(home) {
        Ok(inside) if inside.as_os_str().is_empty() => PathBuf::from("."),
        Ok(inside) => inside.to_owned(),
        Err(_) => path.to_owned(),
    }
}

/// The new path of `to` if it was moved together with `from`, which is now at `now`. `None` if they have only the root
/// in common.
fn moved_along(from: &Path, to: &Path, now: &Path) -> Option<PathBuf> {
    let common = from.components().zip(to.components()).take_while(|(a, b)| a == b).count();
    if common < 2 {
        return None;
    }
    let mut path = now.to_owned();
    for _ in from.components().skip(common) {
        if !path.pop() {
            return None;
        }
    }
    path.extend(to.components().skip(common).filter(|part| matches!(part, Component::Normal(_))));
    Some(path)
}

impl Survey {
    /// Whether the newest superblock has other devices or places than the geometry that was searched.
    fn leads_on(&self, looked: &Geometry) -> bool {
        let devices = |geometry: &Geometry| {
            geometry.devices.iter().map(|entry| (entry.identity, entry.path.clone(), entry.state)).collect::<Vec<_>>()
        };
        devices(&self.geometry) != devices(looked) || self.geometry.home != looked.home
    }

    /// The last marks of all readable superblocks of this history: one of another is a place in another log.
    pub(crate) fn marks(&self) -> Vec<LogMark> {
        let found = self.on_devices.iter().flatten().chain(&self.on_home).map(|found| &found.superblock);
        let of_history = found.filter(|found| self.history.contains(found.history.newest().epoch));
        of_history.filter_map(|found| found.mark).collect()
    }

    /// Takes devices that cannot be written out of service.
    pub(crate) fn set_failed(&mut self, failed: &[(DeviceNumber, Error)]) {
        for (number, error) in failed {
            let slot = self.slots.iter_mut().find(|slot| slot.entry.number == *number && slot.is_writable());
            if let (Some(slot), Some(cause)) = (slot, error.os_error()) {
                slot.trouble = Some(Trouble::Failed(os_message(cause)));
            }
        }
    }

    /// Devices that are in sync according to superblocks.
    pub(crate) fn in_sync(&self) -> Vec<DeviceNumber> {
        let in_sync = self.slots.iter().filter(|slot| slot.trouble.is_none());
        in_sync.map(|slot| slot.entry.number).collect()
    }

    /// Whether the same devices are in the same places: nothing has changed since locks were taken.
    pub(crate) fn is_same_as(&self, other: &Survey) -> bool {
        let paths = |survey: &Survey| {
            survey.slots.iter().map(|slot| (slot.path.clone(), slot.is_writable())).collect::<Vec<_>>()
        };
        self.home == other.home && paths(self) == paths(other)
    }

    /// Recreates the directory of a lost home.
    ///
    /// # Errors
    /// Any error of creating it.
    pub(crate) fn make_home(&mut self, platform: &dyn Platform) -> Result<()> {
        if !self.geometry.has_home_apart() || self.on_home.is_some() {
            return Ok(());
        }
        let device = platform.device_with(&self.home, self.geometry.file_mode);
        device.create_directory("").map_err(|error| Error::io("recreate the home", &self.home, error))
    }
}

/// Records the directories of a new store in its geometry.
pub(crate) fn bind(platform: &dyn Platform, home: &Path, geometry: &mut Geometry) {
    for entry in &mut geometry.devices {
        entry.node = platform.node(&entry.directory(home)).unwrap_or_default();
    }
    if geometry.has_home_apart() {
        geometry.home_node = platform.node(home).unwrap_or_default();
    }
}
