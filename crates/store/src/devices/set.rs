//! The devices of an open store: which are there, which are in trouble, and their open files.
//!
//! A device is known by its superblock, not by its path: a directory with another identity is a stranger and is left alone, an
//! empty one is lost, one that missed changes is stale. [`Platform`] is where directories and locks come from; tests
//! put a simulated one there.

use std::collections::HashMap;
use std::fmt::Debug;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use super::extents::DeviceSource;
use crate::devices::device::{Device, DeviceFile, Mode};
use crate::error::{Error, ErrorKind, Result};
use crate::format::geometry::{Class, DeviceEntry, DeviceState, Geometry};
use crate::format::segment::segment_path;
use crate::format::superblock::{NO_DEVICE, Superblock};

/// Open files that are kept, at most.
const OPEN_FILES: usize = 200;

/// What holds a lock; dropping it lets go.
pub(crate) trait Lock: Send + Sync + Debug {}

/// A device that is this process's own, and what removes it.
pub(crate) struct PrivateDevice {
    pub(crate) device: Arc<dyn Device>,
    pub(crate) guard: Box<dyn Lock>,
}

/// Where a store's directories, locks and time come from.
pub(crate) trait Platform: Send + Sync + Debug {
    /// The directory at `path`; it need not exist.
    fn device(&self, path: &Path) -> Arc<dyn Device>;
    /// Whether a directory has other directories in it than those on the way to `allowed`.
    fn has_directories(&self, path: &Path, allowed: &[PathBuf]) -> io::Result<bool>;
    /// The exclusive lock on a directory; `None` if somebody else has it.
    fn lock(&self, directory: &Path) -> io::Result<Option<Box<dyn Lock>>>;
    /// Whether somebody has it.
    fn is_locked(&self, directory: &Path) -> bool;
    /// Keeps what a snapshot of an epoch needs; `None` where that cannot be.
    fn pin(&self, index: &Path, epoch: u64) -> io::Result<Option<Box<dyn Lock>>>;
    /// The lowest epoch below `below` that is pinned, or else `below`.
    fn unpinned(&self, index: &Path, below: u64) -> io::Result<u64>;
    /// A place for an index that only this process uses.
    fn private_device(&self) -> Result<PrivateDevice>;
    /// Nanoseconds since 1970.
    fn now_nanoseconds(&self) -> i64;
}

/// Why a device cannot be used as it should.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// Its directory is not there, or cannot be read, for this reason.
    Missing(String),
    /// Its directory is there and has no superblock.
    Empty,
    /// Its directory belongs to another store, or is another device of this one.
    Stranger,
    /// Neither slot of its superblock is sound.
    Damaged,
    /// It was away while the store was written to: its generation, and that of the others.
    Stale {
        /// Its generation.
        generation: u64,
        /// That of the others.
        newest: u64,
    },
    /// It left the store.
    Gone,
}

impl Trouble {
    /// In words, as the end of "device 3 …".
    pub fn explain(&self) -> String {
        match self {
            Trouble::Missing(cause) => format!("is missing: {cause}"),
            Trouble::Empty => "has an empty directory".to_owned(),
            Trouble::Stranger => "has the directory of another device or store".to_owned(),
            Trouble::Damaged => "has a damaged superblock".to_owned(),
            Trouble::Stale { generation, newest } => {
                format!("is old (generation {generation}, others {newest}): it was away, or restored from a copy")
            }
            Trouble::Gone => "left the store".to_owned(),
        }
    }
}

/// A device of the geometry, as it was found.
#[derive(Debug, Clone)]
pub(crate) struct Slot {
    pub(crate) entry: DeviceEntry,
    /// Its directory, absolute.
    pub(crate) path: PathBuf,
    pub(crate) device: Arc<dyn Device>,
    pub(crate) trouble: Option<Trouble>,
}

impl Slot {
    /// Whether what is on it may be read (and verified).
    pub(crate) fn is_readable(&self) -> bool {
        matches!(self.trouble, None | Some(Trouble::Stale { .. }))
    }

    /// Whether it may be written.
    pub(crate) fn is_writable(&self) -> bool {
        self.trouble.is_none()
    }
}

/// Generations of the superblocks that there are; `None` where there is none.
#[derive(Debug, Default)]
struct Generations {
    /// By number.
    devices: Vec<Option<u64>>,
    home: Option<u64>,
}

/// All devices of a store, by number.
#[derive(Debug)]
pub(crate) struct Devices {
    slots: RwLock<Arc<Vec<Slot>>>,
    segments: RwLock<HashMap<(u16, u64), Arc<dyn DeviceFile>>>,
    generations: Mutex<Generations>,
}

/// The geometry that a directory (a home or a device) leads to, and where the home is.
///
/// # Errors
/// [`ErrorKind::NotFound`] if it is no store; what reading fails with.
pub(crate) fn find(platform: &dyn Platform, directory: &Path) -> Result<(PathBuf, Superblock)> {
    let device = platform.device(directory);
    let Some(superblock) = Superblock::read(&*device)? else {
        let cause = if directory.is_dir() { "there is no superblock in it" } else { "there is no such directory" };
        // Never to make a store there: this may be the place of a home that is lost, with devices that are not.
        return Err(Error::new(ErrorKind::NotFound, "open the store", cause).at(directory).advise(
            "if a store had its home there, name any of its devices instead; granulo store repair DEVICE makes the home again",
        ));
    };
    let home = match superblock.number {
        NO_DEVICE => directory.to_owned(),
        _ if superblock.geometry.home.as_os_str().is_empty() => directory.to_owned(),
        _ => superblock.geometry.home.clone(),
    };
    Ok((home, superblock))
}

/// Makes the directory of a home that is lost. The superblock that leads there must be on a device that lies where it says: else the store was moved, and
/// its home with it.
///
/// # Errors
/// What making a directory fails with; [`ErrorKind::Exists`] if another store has its home there.
pub(crate) fn keep_home(platform: &dyn Platform, home: &Path, superblock: &Superblock) -> Result<()> {
    let geometry = &superblock.geometry;
    if geometry.home.as_os_str().is_empty() || superblock.number == NO_DEVICE {
        return Ok(());
    }
    let device = platform.device(home);
    match Superblock::read(&*device) {
        Ok(Some(found)) if found.geometry.store != geometry.store => {
            let cause = "another store has its home there, which is the place of this one's";
            Err(Error::new(ErrorKind::Exists, "open the store for writing", cause)
                .at(home)
                .advise("move the other store away; reading is possible meanwhile"))
        }
        Ok(None) => {
            let place = geometry.devices.get(usize::from(superblock.number)).map(|entry| entry.directory(home));
            let found = place.and_then(|place| Superblock::read(&*platform.device(&place)).ok().flatten());
            if found.is_none_or(|found| found.identity != superblock.identity) {
                let cause = "there is no home, and the device is not where the store has it: it was moved";
                return Err(Error::new(ErrorKind::NotFound, "open the store for writing", cause)
                    .at(home)
                    .advise("name the home where it is now"));
            }
            device.create_directory("").map_err(|error| Error::io("make the home again", home, error))
        }
        // One that is damaged is written anew.
        _ => Ok(()),
    }
}

impl Devices {
    /// Looks at every device of the geometry.
    pub(crate) fn open(platform: &dyn Platform, home: &Path, superblock: &Superblock) -> Devices {
        let geometry = &superblock.geometry;
        let mut slots = Vec::new();
        let mut generations = Vec::new();
        for entry in &geometry.devices {
            let path = entry.directory(home);
            let device = platform.device(&path);
            let mut trouble = None;
            let mut generation = None;
            if entry.state == DeviceState::Gone {
                trouble = Some(Trouble::Gone);
            } else {
                match Superblock::read(&*device) {
                    Ok(Some(found)) if found.geometry.store == geometry.store && found.identity == entry.identity => {
                        generation = Some(found.generation);
                    }
                    Ok(Some(_)) => trouble = Some(Trouble::Stranger),
                    Ok(None) => {
                        trouble = Some(if path.is_dir() {
                            Trouble::Empty
                        } else {
                            Trouble::Missing("there is no such directory".into())
                        })
                    }
                    Err(error) if error.kind() == ErrorKind::Corrupt => trouble = Some(Trouble::Damaged),
                    Err(error) => trouble = Some(Trouble::Missing(error.to_string())),
                }
            }
            generations.push(generation);
            slots.push(Slot { entry: entry.clone(), path, device, trouble });
        }
        let home_generation = match superblock.geometry.home.as_os_str().is_empty() {
            true => None,
            false => Superblock::read(&*platform.device(home)).ok().flatten().map(|found| found.generation),
        };
        let newest = generations.iter().flatten().copied().max().unwrap_or(0).max(superblock.generation);
        for (slot, generation) in slots.iter_mut().zip(&mut generations) {
            let is_old = |generation: Option<u64>| generation.is_some_and(|generation| generation + 2 <= newest);
            if !is_old(*generation) {
                continue;
            }
            // A writer that opens may have taken both steps since it was read. None that is there is ever two steps behind another, so one that
            // still is, read after the others, was away.
            if let Ok(Some(found)) = Superblock::read(&*slot.device)
                && found.identity == slot.entry.identity
            {
                *generation = Some(found.generation);
            }
            if let Some(generation) = generation.filter(|&generation| is_old(Some(generation))) {
                slot.trouble = Some(Trouble::Stale { generation, newest });
            }
        }
        let generations = Generations { devices: generations, home: home_generation };
        Devices {
            slots: RwLock::new(Arc::new(slots)),
            segments: RwLock::default(),
            generations: Mutex::new(generations),
        }
    }

    /// All devices of the geometry.
    pub(crate) fn slots(&self) -> Arc<Vec<Slot>> {
        Arc::clone(&self.slots.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts other slots in the place of these: after a change of the geometry.
    pub(crate) fn replace(&self, slots: Vec<Slot>) {
        *self.slots.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(slots);
        self.segments.write().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// The device with a number, if what is on it may be read.
    pub(crate) fn readable(&self, number: u16) -> Option<Arc<dyn Device>> {
        let slots = self.slots();
        slots.get(usize::from(number)).filter(|slot| slot.is_readable()).map(|slot| Arc::clone(&slot.device))
    }

    /// Devices that may be written, of the class, or of the other if the store has none of it.
    pub(crate) fn writable(&self, class: Class) -> Vec<Slot> {
        let slots = self.slots();
        let of = |wanted: Class| {
            slots.iter().filter(move |slot| slot.entry.class == wanted && slot.entry.state != DeviceState::Gone)
        };
        let class = if of(class).next().is_some() { class } else { other(class) };
        of(class).filter(|slot| slot.is_writable()).cloned().collect()
    }

    /// Writes the geometry to the home and to every device that may be written, in the two steps of docs/FORMAT.md, section 3.
    ///
    /// # Errors
    /// What writing a superblock fails with.
    pub(crate) fn write_superblocks(&self, platform: &dyn Platform, home: &Path, geometry: &Geometry) -> Result<()> {
        let mut generations = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
        let slots = self.slots();
        generations.devices.resize(slots.len(), None);
        let newest = generations.devices.iter().flatten().copied().chain(generations.home).max().unwrap_or(0);
        // First those that an interrupted change left behind, so that none is ever two steps behind which was there.
        for generation in newest..=newest + 2 {
            let mut superblock =
                Superblock { generation, number: NO_DEVICE, identity: [0; 16], geometry: geometry.clone() };
            let is_behind = |known: Option<u64>| known.is_none_or(|known| known < generation);
            if !geometry.home.as_os_str().is_empty() && is_behind(generations.home) {
                superblock.write(&*platform.device(home))?;
                generations.home = Some(generation);
            }
            for (at, slot) in slots.iter().enumerate().filter(|(_, slot)| slot.is_writable()) {
                if is_behind(generations.devices[at]) {
                    (superblock.number, superblock.identity) = (slot.entry.number, slot.entry.identity);
                    superblock.write(&*slot.device)?;
                    generations.devices[at] = Some(generation);
                }
            }
        }
        Ok(())
    }

    /// A segment's copy on a device, open for reading and, by the writer, for writing.
    pub(crate) fn segment(&self, device: u16, number: u64, mode: Mode) -> io::Result<Arc<dyn DeviceFile>> {
        let key = (device, number);
        if let Some(file) = self.segments.read().unwrap_or_else(PoisonError::into_inner).get(&key)
            && mode == Mode::Read
        {
            return Ok(Arc::clone(file));
        }
        let file = self.open_file(device, &segment_path(number), mode)?;
        let mut segments = self.segments.write().unwrap_or_else(PoisonError::into_inner);
        bound(&mut segments);
        segments.insert(key, Arc::clone(&file));
        Ok(file)
    }

    /// A path on a device, for messages.
    pub(crate) fn place(&self, device: u16, path: &str) -> PathBuf {
        self.slots().get(usize::from(device)).map_or_else(|| PathBuf::from(path), |slot| slot.path.join(path))
    }

    fn open_file(&self, device: u16, path: &str, mode: Mode) -> io::Result<Arc<dyn DeviceFile>> {
        let slots = self.slots();
        let slot = slots.get(usize::from(device)).ok_or(io::ErrorKind::NotFound)?;
        let usable = if mode == Mode::Read { slot.is_readable() } else { slot.is_writable() };
        if !usable {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the device is not in service"));
        }
        slot.device.open(path, mode)
    }

    /// Forgets open files of a segment that is removed.
    pub(crate) fn forget_segment(&self, number: u64) {
        self.segments.write().unwrap_or_else(PoisonError::into_inner).retain(|&(_, segment), _| segment != number);
    }
}

impl DeviceSource for Devices {
    fn device(&self, number: u16) -> Option<Arc<dyn Device>> {
        self.readable(number)
    }

    fn directory(&self, number: u16) -> PathBuf {
        self.place(number, "")
    }
}

/// Keeps the number of open files bounded: any one goes, as opening is cheap beside reading.
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
