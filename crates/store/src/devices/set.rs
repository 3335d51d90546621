//! The devices of an open store: which are present, which are in trouble, and their open files.
//!
//! A device is identified by its superblock, not by its path: a directory with another identity is a stranger and is
//! left alone, an empty one is lost, one that missed changes is stale.

use std::collections::HashMap;
use std::fmt::Debug;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};

use super::extents::DeviceSource;
use super::platform::Platform;
use super::slot::{Failed, Slot};
use super::survey::Survey;
use super::threads;
use crate::devices::device::{Device, DeviceFile, Mode};
use crate::devices::names;
use crate::devices::superblocks::OnDevice;
use crate::error::{Error, ErrorKind, Result};
use crate::format::geometry::{Class, DeviceState, Geometry};
use crate::format::history::{EpochEntry, History, MOST_EPOCHS};
use crate::format::ids::{DeviceNumber, Epoch, SegmentId};
use crate::format::names::segment_path;
use crate::format::superblock::{LogMark, Superblock};
use crate::locks::{self, lock};

/// Maximum number of files kept open.
const OPEN_FILES: usize = 200;

/// What was last written to superblocks, or read from them.
#[derive(Debug)]
pub(super) struct LastWritten {
    /// By number.
    devices: Vec<Option<OnDevice>>,
    home: Option<OnDevice>,
    geometry: Geometry,
    pub(super) history: History,
    mark: Option<LogMark>,
}

/// Cached files of segments.
#[derive(Debug, Default)]
struct OpenSegments {
    files: HashMap<(DeviceNumber, SegmentId), Arc<dyn DeviceFile>>,
    /// How often some were forgotten: what was opened before that may be one of them.
    generation: u64,
}

impl OpenSegments {
    /// Closes those that are not kept.
    fn retain(&mut self, is_kept: impl Fn(DeviceNumber, SegmentId) -> bool) {
        self.files.retain(|&(device, segment), _| is_kept(device, segment));
        self.generation += 1;
    }
}

/// All devices of a store, by number.
#[derive(Debug)]
pub(crate) struct Devices {
    home: PathBuf,
    slots: RwLock<Arc<Vec<Slot>>>,
    segments: RwLock<OpenSegments>,
    known: Mutex<LastWritten>,
    /// The current epoch for writes; for a reader, the newest.
    epoch: AtomicU64,
    /// The marks read when the store was opened.
    marks: Vec<LogMark>,
    may_lack_epoch: bool,
}

/// The state at the beginning of an epoch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EpochStart {
    /// Segments begun before it.
    pub(crate) segments_begun: u64,
    /// The last batch before it.
    pub(crate) last_batch: u64,
    /// Ids up to this one may be assigned in it.
    pub(crate) ids_reserved: u64,
}

impl Devices {
    /// The devices found by a survey. A writer draws the epoch that it is about to begin.
    ///
    /// # Errors
    /// Any error of drawing a number.
    pub(crate) fn new(platform: &dyn Platform, survey: Survey, is_writer: bool) -> Result<Devices> {
        let epoch = if is_writer { platform.random()? } else { survey.history.newest().epoch.0 };
        let marks = survey.marks();
        let newest = survey.history.newest().epoch;
        let found = survey.on_devices.iter().flatten().chain(&survey.on_home);
        let may_lack_epoch =
            found.filter(|found| found.superblock.history.newest().epoch == newest).all(|found| found.is_alone);
        let mut slots = survey.slots;
        if is_writer {
            slots.iter_mut().for_each(|slot| slot.anchor(platform));
        }
        let known = LastWritten {
            devices: survey.on_devices,
            home: survey.on_home,
            geometry: survey.geometry,
            history: survey.history,
            mark: marks.iter().max_by_key(|mark| mark.sequence).copied(),
        };
        Ok(Devices {
            home: survey.home,
            slots: RwLock::new(Arc::new(slots)),
            segments: RwLock::default(),
            known: Mutex::new(known),
            epoch: AtomicU64::new(epoch),
            marks,
            may_lack_epoch,
        })
    }

    pub(super) fn known(&self) -> MutexGuard<'_, LastWritten> {
        lock(&self.known)
    }

    /// The current epoch for writes.
    pub(crate) fn epoch(&self) -> Epoch {
        Epoch(self.epoch.load(Ordering::Relaxed))
    }

    /// The history of epochs, as last written or read.
    pub(crate) fn history(&self) -> History {
        self.known().history.clone()
    }

    /// Whether another epoch may have begun that no superblock has any more: each of the newest has a damaged slot
    /// beside it.
    pub(crate) fn may_lack_epoch(&self) -> bool {
        self.may_lack_epoch
    }

    /// Adds an epoch that no superblock has.
    pub(crate) fn add_epoch(&self, entry: EpochEntry) {
        let mut known = self.known();
        known.history = known.history.followed_by(entry);
    }

    /// Writes the history, to which epochs were added, to all devices that were in sync before.
    ///
    /// # Errors
    /// Any error of writing one of them.
    pub(crate) fn write_history(&self) -> Result<()> {
        let mut known = self.known();
        let slots: Vec<Slot> = self.in_service().into_iter().filter(|slot| !slot.is_late).collect();
        let superblock = known.superblock();
        known.write(&slots, &superblock).into_iter().next().map_or(Ok(()), |(_, error)| Err(error))
    }

    /// The marks in all superblocks that were readable when the store was opened.
    pub(crate) fn marks(&self) -> &[LogMark] {
        &self.marks
    }

    /// The mark in the superblock of a device, as last read or written.
    pub(crate) fn mark_on(&self, device: DeviceNumber) -> Option<LogMark> {
        self.known().devices.get(device.index())?.as_ref()?.superblock.mark
    }

    /// All devices of the geometry.
    pub(crate) fn slots(&self) -> Arc<Vec<Slot>> {
        Arc::clone(&locks::read(&self.slots))
    }

    /// Changes the slot of a device that is replaced, leaves, or returns to service. The others keep what happened to
    /// them meanwhile.
    pub(crate) fn change_slot(&self, device: DeviceNumber, change: impl FnOnce(&mut Slot)) {
        let mut change = Some(change);
        self.change(|slot| {
            if slot.entry.number == device
                && let Some(change) = change.take()
            {
                change(slot);
            }
        });
        locks::write(&self.segments).retain(|number, _| number != device);
    }

    /// The device with a number, if its content may be read.
    pub(crate) fn readable(&self, number: DeviceNumber) -> Option<Arc<dyn Device>> {
        let slots = self.slots();
        slots.get(number.index()).filter(|slot| slot.is_readable()).map(|slot| Arc::clone(&slot.device))
    }

    /// Whether a device may be written.
    pub(crate) fn is_in_service(&self, number: DeviceNumber) -> bool {
        self.slots().get(number.index()).is_some_and(Slot::is_writable)
    }

    /// Whether a device that has records may be read: without one, nothing is known of what the others have.
    pub(crate) fn sees_log(&self, geometry: &Geometry) -> bool {
        geometry.record_devices().any(|entry| self.readable(entry.number).is_some())
    }

    /// Devices of the store that have records, or may have, and that cannot be read.
    pub(crate) fn record_devices_away(&self, geometry: &Geometry) -> Vec<DeviceNumber> {
        let away = geometry.record_devices().map(|entry| entry.number);
        away.filter(|&number| self.readable(number).is_none() && !self.has_left(number)).collect()
    }

    /// The device with a number, if it may be written.
    pub(crate) fn to_write(&self, number: DeviceNumber) -> Option<Arc<dyn Device>> {
        let slots = self.slots();
        slots.get(number.index()).filter(|slot| slot.is_writable()).map(|slot| Arc::clone(&slot.device))
    }

    /// Whether a device has left the store.
    pub(crate) fn has_left(&self, number: DeviceNumber) -> bool {
        self.slots().get(number.index()).is_some_and(|slot| slot.entry.state == DeviceState::Gone)
    }

    /// Writable devices of the class, or of the other class if the store has none of it.
    pub(crate) fn writable(&self, class: Class) -> Vec<Slot> {
        let slots = self.slots();
        let of = |wanted: Class| {
            slots.iter().filter(move |slot| slot.entry.class == wanted && slot.entry.state != DeviceState::Gone)
        };
        let class = if of(class).next().is_some() { class } else { other(class) };
        of(class).filter(|slot| slot.is_writable()).cloned().collect()
    }

    /// All devices that may be written.
    pub(super) fn in_service(&self) -> Vec<Slot> {
        self.slots().iter().filter(|slot| slot.is_writable()).cloned().collect()
    }

    /// Their numbers.
    pub(crate) fn writable_numbers(&self) -> Vec<DeviceNumber> {
        self.in_service().iter().map(|slot| slot.entry.number).collect()
    }

    pub(super) fn change(&self, mut change: impl FnMut(&mut Slot)) {
        let mut slots = locks::write(&self.slots);
        let mut changed = Vec::clone(&slots);
        changed.iter_mut().for_each(&mut change);
        *slots = Arc::new(changed);
    }

    /// Begins an epoch: writes it with the geometry to all devices in service in parallel, and to the home if geometry
    /// or places have changed. A device that cannot be written is taken out of service, and another epoch begins on the
    /// others, if redundancy allows that.
    ///
    /// # Errors
    /// Any error of writing a superblock; nothing may be acknowledged then.
    pub(crate) fn begin_epoch(&self, platform: &dyn Platform, geometry: &Geometry, at: EpochStart) -> Result<()> {
        let mut known = self.known();
        self.sync_others(&known);
        loop {
            let slots = self.in_service();
            if slots.is_empty() {
                return Err(Error::new(ErrorKind::Lost, "write to the store", "none of its devices is in service")
                    .at(&self.home));
            }
            let entry = EpochEntry {
                epoch: self.epoch(),
                began_nanoseconds: platform.now_nanoseconds(),
                segments_begun: at.segments_begun,
                last_batch: at.last_batch,
                in_sync: slots.iter().map(|slot| slot.entry.number).collect(),
            };
            let history = known.history.followed_by(entry);
            let mark = LogMark { is_closed: false, ids_reserved: at.ids_reserved, ..known.mark.unwrap_or_default() };
            let superblock = Superblock::of_store(geometry.clone(), history.clone(), Some(mark));
            let mut failed = known.write(&slots, &superblock);
            if failed.is_empty() {
                known.mark = Some(mark);
                known.history = history;
                known.geometry = geometry.clone();
                return known.write_home(platform, &self.home, superblock);
            }
            let is_full = failed.iter().any(|(_, error)| error.kind() == ErrorKind::NoSpace);
            if !is_full {
                failed.iter().for_each(|(device, error)| self.fail(*device, error));
            }
            if is_full || failed.len() == slots.len() || !self.bears_losses(geometry) {
                return Err(failed.swap_remove(0).1);
            }
            self.epoch.store(platform.random()?, Ordering::Relaxed);
        }
    }

    /// Makes superblocks durable that were read and are not about to be written: what they say was relied on, and must
    /// not be what it was before after a power failure. A device that cannot is not in service, and says so by itself.
    fn sync_others(&self, known: &LastWritten) {
        let slots = self.slots();
        let others = slots.iter().zip(&known.devices).filter(|(slot, found)| !slot.is_writable() && found.is_some());
        for (slot, _) in others {
            let _ = Superblock::sync(&*slot.device);
        }
    }

    /// Begins another epoch, with another geometry or other devices.
    ///
    /// # Errors
    /// As [`begin_epoch`](Self::begin_epoch): see [`continue_epoch`](Self::continue_epoch).
    pub(crate) fn begin_next(&self, platform: &dyn Platform, geometry: &Geometry, at: EpochStart) -> Result<()> {
        self.epoch.store(platform.random()?, Ordering::Relaxed);
        self.begin_epoch(platform, geometry, at)
    }

    /// After another epoch could not begin, goes on with the one that superblocks have: segments of an epoch that they
    /// do not have would be no part of the log. Returns whether none can have the other one, and its set is in service.
    pub(crate) fn continue_epoch(&self) -> bool {
        let mut known = self.known();
        let begun = known.history.newest().epoch.0;
        if self.epoch.swap(begun, Ordering::Relaxed) == begun {
            return true;
        }
        let slots = self.in_service();
        let superblock = known.superblock();
        let is_in_service = |device: &DeviceNumber| slots.iter().any(|slot| slot.entry.number == *device);
        let has_set = known.history.newest().in_sync.iter().all(is_in_service);
        // A slot for which there was no space is as it was.
        has_set && known.write(&slots, &superblock).iter().all(|(_, error)| error.kind() == ErrorKind::NoSpace)
    }

    /// Records in the superblocks of all devices in service, durably, that ids up to this one may be assigned. Returns
    /// those that could not be written, and why: no id beyond those reserved before may be assigned while they count.
    pub(crate) fn reserve_ids(&self, ids_reserved: u64) -> Vec<Failed> {
        let mark = self.known().mark.unwrap_or_default();
        self.write_mark(LogMark { ids_reserved, ..mark })
    }

    /// Writes the end of the durable log to the superblocks of all devices in service. Returns those that could not be
    /// written, and why.
    pub(crate) fn write_mark(&self, mark: LogMark) -> Vec<Failed> {
        let mut known = self.known();
        let slots = self.in_service();
        known.mark = Some(mark);
        let superblock = known.superblock();
        known.write(&slots, &superblock)
    }

    /// Writes the superblocks of all devices in service again. Returns those that could not be written, and why.
    pub(super) fn rewrite_mark(&self) -> Vec<Failed> {
        let mark = self.known().mark.unwrap_or_default();
        self.write_mark(mark)
    }

    /// Rewrites the superblock of a separate home if one of its slots is invalid: otherwise it is only written when the
    /// geometry changes.
    ///
    /// # Errors
    /// Any error of reading and writing it.
    pub(crate) fn repair_home(&self, platform: &dyn Platform) -> Result<()> {
        let mut known = self.known();
        let device = platform.device_with(&self.home, known.geometry.file_mode);
        if !known.geometry.has_home_apart() || Superblock::sound_slots(&*device)? == 2 {
            return Ok(());
        }
        let superblock = known.superblock();
        known.home = Some(match &known.home {
            Some(home) => home.replace(&*device, superblock)?,
            None => superblock.write_first(&*device)?,
        });
        Ok(())
    }

    /// Opens a device's copy of a segment.
    pub(crate) fn segment(
        &self,
        device: DeviceNumber,
        segment: SegmentId,
        mode: Mode,
    ) -> io::Result<Arc<dyn DeviceFile>> {
        let key = (device, segment);
        let generation = {
            let segments = locks::read(&self.segments);
            if let Some(file) = segments.files.get(&key)
                && mode == Mode::Read
            {
                return Ok(Arc::clone(file));
            }
            segments.generation
        };
        let file = self.open_file(device, &segment_path(segment), mode)?;
        let mut segments = locks::write(&self.segments);
        if segments.generation == generation {
            bound(&mut segments.files);
            segments.files.insert(key, Arc::clone(&file));
        }
        Ok(file)
    }

    /// A path on a device, for messages.
    pub(crate) fn place(&self, device: DeviceNumber, path: &str) -> PathBuf {
        self.slots().get(device.index()).map_or_else(|| PathBuf::from(path), |slot| slot.path.join(path))
    }

    /// An error of the operating system about a file of a device.
    pub(crate) fn error(&self, operation: &'static str, device: DeviceNumber, path: &str, error: io::Error) -> Error {
        Error::io(operation, &self.place(device, path), error).on_device(device.0)
    }

    fn open_file(&self, device: DeviceNumber, path: &str, mode: Mode) -> io::Result<Arc<dyn DeviceFile>> {
        let slots = self.slots();
        let slot = slots.get(device.index()).ok_or(io::ErrorKind::NotFound)?;
        let usable = if mode == Mode::Read { slot.is_readable() } else { slot.is_writable() };
        if !usable {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the device is not in service"));
        }
        names::open(&*slot.device, path, mode)
    }

    /// Closes all cached files of segments.
    pub(crate) fn forget_segments(&self) {
        locks::write(&self.segments).retain(|_, _| false);
    }

    /// Closes cached files of a removed segment.
    pub(crate) fn forget_segment(&self, segment: SegmentId) {
        locks::write(&self.segments).retain(|_, kept| kept != segment);
    }
}

impl LastWritten {
    /// The histories of the devices with a valid superblock.
    pub(super) fn histories(&self) -> impl Iterator<Item = (DeviceNumber, &History)> {
        let numbered = (0..).map(DeviceNumber).zip(&self.devices);
        numbered.filter_map(|(number, found)| Some((number, &found.as_ref()?.superblock.history)))
    }

    /// The current content of superblocks.
    fn superblock(&self) -> Superblock {
        Superblock::of_store(self.geometry.clone(), self.history.clone(), self.mark)
    }

    /// Writes a superblock to devices in parallel, to each with its own number and identity, and notes what each has.
    /// Returns those that failed, which stay in service: that is for the caller, as are `geometry`, `history` and
    /// `mark`.
    fn write(&mut self, slots: &[Slot], superblock: &Superblock) -> Vec<Failed> {
        let of = |slot: &Slot| {
            let entry = &slot.entry;
            Superblock { number: entry.number, identity: entry.identity, ..superblock.clone() }
        };
        let write = |slot: &Slot, known: Option<&OnDevice>| match known {
            Some(known) => known.replace(&*slot.device, of(slot)),
            None => of(slot).write_first(&*slot.device),
        };
        let known_of = |slot: &Slot| {
            let known = self.devices.get(slot.entry.number.index()).and_then(Option::as_ref);
            // The number may have been reassigned to another directory.
            known.filter(|known| known.superblock.identity == slot.entry.identity)
        };
        let with_known: Vec<(&Slot, Option<&OnDevice>)> = slots.iter().map(|slot| (slot, known_of(slot))).collect();
        let written = threads::each(with_known, slots.len(), |(slot, known)| write(slot, known));
        let mut failed = Vec::new();
        for (slot, written) in slots.iter().zip(written) {
            let at = slot.entry.number.index();
            if self.devices.len() <= at {
                self.devices.resize(at + 1, None);
            }
            match written {
                Ok(on_device) => self.devices[at] = Some(on_device),
                // It may be there or not. What was noted stays, so the next write goes to the same slot and spares the
                // other, which is intact.
                Err(error) => failed.push((slot.entry.number, error)),
            }
        }
        failed
    }

    /// Writes the superblock of a separate home, if its geometry has changed, or its history is so old that devices
    /// will soon have dropped all of it.
    fn write_home(&mut self, platform: &dyn Platform, home: &Path, superblock: Superblock) -> Result<()> {
        let geometry = &superblock.geometry;
        if !geometry.has_home_apart() {
            return Ok(());
        }
        let device = platform.device_with(home, geometry.file_mode);
        let written = match &self.home {
            Some(known) if known.superblock.geometry == *geometry && !is_outdated(known, &superblock) => return Ok(()),
            Some(known) => known.replace(&*device, superblock)?,
            None => superblock.write_first(&*device)?,
        };
        self.home = Some(written);
        Ok(())
    }
}

/// Whether a superblock lacks many of the newest epochs.
fn is_outdated(known: &OnDevice, now: &Superblock) -> bool {
    let missed = now.history.after(known.superblock.history.newest().epoch);
    missed.is_none_or(|missed| missed.count() >= MOST_EPOCHS / 2)
}

impl DeviceSource for Devices {
    fn device(&self, number: DeviceNumber) -> Option<Arc<dyn Device>> {
        self.readable(number)
    }

    fn device_to_write(&self, number: DeviceNumber) -> Option<Arc<dyn Device>> {
        self.to_write(number)
    }

    fn directory(&self, number: DeviceNumber) -> PathBuf {
        self.place(number, "")
    }

    fn epoch(&self) -> u32 {
        Devices::epoch(self).0 as u32
    }

    fn is_of_history(&self, epoch: u32) -> bool {
        self.known().history.entries().any(|entry| entry.epoch.low_half() == epoch)
    }
}

/// Bounds the number of open files: evicts any one, because opening is cheap compared with reading.
fn bound<K: Clone + Eq + std::hash::Hash>(files: &mut HashMap<K, Arc<dyn DeviceFile>>) {
    if files.len() >= OPEN_FILES
        && let Some(key) = files.keys().next().cloned()
    {
        files.remove(&key);
    }
}

fn other(class: Class) -> Class {
    match class {
        Class::Fast => Class::Slow,
        Class::Slow => Class::Fast,
    }
}
