//! Extents: the files on devices that contain the stripe units of large objects (docs/FORMAT.md, section 7).
//!
//! | module | subject |
//! | --- | --- |
//! | `allocate` | where the next chunk goes |
//! | `write` | a stream becomes chunks, stripes and units, in bounded memory |
//! | `splice` | rewriting some stripes of an object, with the others in place |
//! | `read` | ranges of an object, verified, and reconstructed if units are lost |
//! | `repair` | every unit verified; damaged ones rebuilt; components moved to other devices |
//!
//! This module handles the files themselves: names, opening, syncing, unlinking, and reading one unit. Extent files
//! have no structure of their own: descriptors reference and checksum every live byte. Unreferenced bytes stay in
//! place, dead or in quarantine, until the whole file was released and is unlinked: nothing is punched, truncated or
//! overwritten.
//!
//! A name consists of the number used in descriptors and the low half of the epoch that created the file, so that a
//! file of one history is not taken for one of another. The device's directory lists the existing numbers; it is read
//! once, and again for a number not in the list.
//!
//! Survived: a device that is not in service, a file that is missing or short, a media error, changed bytes. All of
//! these are [`FaultyUnit`]s, reconstructed if parity suffices.

mod allocate;
mod read;
mod repair;
mod splice;
#[cfg(test)]
mod tests;
mod write;

pub(crate) use allocate::{Allocator, Reserved, order};
#[cfg(test)]
pub(crate) use splice::most_chunks;
pub(crate) use splice::{Edit, Filling};
pub(crate) use write::{LargeWriter, WrittenObject};

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::{self, Debug};
use std::io;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use twox_hash::XxHash3_64;

use crate::devices::device::{Device, DeviceFile, Mode, Unanswered};
use crate::devices::names;
use crate::devices::slot::Failed;
use crate::devices::threads;
use crate::error::{Error, Result, os_message};
use crate::format::descriptor::{Chunk, Descriptor, Run};
use crate::format::ids::DeviceNumber;
use crate::format::names::EXTENTS;
use crate::locks::lock;

/// Maximum number of extent files that are kept open besides those being written.
const MOST_OPEN: usize = 128;

/// Maximum number of files synced concurrently.
pub(crate) const MOST_SYNCS: usize = 32;

/// Reads of adjacent units are joined up to this, in bytes.
const JOINED_BYTES: usize = 1 << 20;

/// Name of the extent file `file` that was created in this epoch.
pub(crate) fn file_name(file: u32, epoch: u32) -> String {
    format!("{file:08x}-{epoch:08x}")
}

/// The number in the name of an extent file; `None` of any other name.
pub(crate) fn file_number(name: &str) -> Option<u32> {
    let (number, epoch) = name.split_once('-')?;
    let of_eight = |digits: &str| {
        let is_lower = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let sound = digits.len() == 8 && digits.bytes().all(is_lower);
        sound.then(|| u32::from_str_radix(digits, 16).ok()).flatten()
    };
    of_eight(epoch).and(of_eight(number))
}

/// The low half of the epoch in the name of an extent file.
fn epoch_of(name: &str) -> Option<u32> {
    file_number(name)?;
    u32::from_str_radix(name.split_once('-')?.1, 16).ok()
}

/// Source of devices, which may come and go while the store is open.
pub(crate) trait DeviceSource: Send + Sync + Debug {
    /// The device of this number, if it may be read.
    fn device(&self, number: DeviceNumber) -> Option<Arc<dyn Device>>;
    /// The device of this number, if it may be written: it is in service and up to date.
    fn device_to_write(&self, number: DeviceNumber) -> Option<Arc<dyn Device>>;
    /// Its directory, for messages.
    fn directory(&self, number: DeviceNumber) -> PathBuf;
    /// Low half of the epoch in which this process creates files.
    fn epoch(&self) -> u32;
    /// Whether a file of an epoch, by its low half, is one of this history as far as is known.
    fn is_of_history(&self, _epoch: u32) -> bool {
        true
    }
}

/// What is wrong with a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum UnitFault {
    /// Its device is not in service, or has no such file.
    Absent,
    /// The file ends before it.
    Short,
    /// Its bytes differ from what was written.
    Changed,
    /// Its file cannot be opened, or the directory of the file cannot be read: the error. The unit may be intact.
    Unopened(String),
    /// The operating system cannot read it: its error.
    Unreadable(String),
}

impl fmt::Display for UnitFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UnitFault::Absent => f.write_str("is missing"),
            UnitFault::Short => f.write_str("is truncated"),
            UnitFault::Changed => f.write_str("is damaged"),
            UnitFault::Unopened(cause) | UnitFault::Unreadable(cause) => write!(f, "cannot be read: {cause}"),
        }
    }
}

/// A unit that is missing or damaged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FaultyUnit {
    /// Its device.
    pub(crate) device: DeviceNumber,
    /// Chunk of the object.
    pub(crate) chunk: usize,
    /// Stripe of the chunk.
    pub(crate) stripe: usize,
    /// Unit of the stripe: data before parity.
    pub(crate) unit: usize,
    pub(crate) fault: UnitFault,
}

/// Units in an extent file are about to be referenced: it is not released while a claim on it exists.
#[derive(Debug, Clone)]
#[cfg_attr(test, derive(Default))]
pub(crate) struct Claim(#[expect(dead_code, reason = "it is counted, not looked at")] Arc<()>);

/// An open extent file, and the device on which it was opened: after a replacement, another one has its number.
#[derive(Debug, Clone)]
pub(crate) struct OpenExtent {
    file: Arc<dyn DeviceFile>,
    on: Arc<dyn Device>,
}

impl Deref for OpenExtent {
    type Target = dyn DeviceFile;

    fn deref(&self) -> &Self::Target {
        &*self.file
    }
}

/// Files with unsynced writes. Keeps them open: a write-back error is reported to those who had the file open.
#[derive(Debug, Clone, Default)]
pub(crate) struct Touched {
    /// Several of a number if the device was replaced in between.
    files: BTreeMap<(DeviceNumber, u32), Vec<OpenExtent>>,
    claims: BTreeMap<(DeviceNumber, u32), Claim>,
}

impl Touched {
    fn add(&mut self, device: DeviceNumber, file: u32, open: &OpenExtent) {
        let known = self.files.entry((device, file)).or_default();
        if !known.iter().any(|known| Arc::ptr_eq(&known.on, &open.on)) {
            known.push(open.clone());
        }
    }

    /// Keeps the claim on the file of a reservation.
    pub(crate) fn claim(&mut self, device: DeviceNumber, file: u32, claim: &Claim) {
        self.claims.entry((device, file)).or_insert_with(|| claim.clone());
    }

    /// Adds the files of another.
    pub(crate) fn merge(&mut self, other: Touched) {
        for ((device, file), opened) in &other.files {
            opened.iter().for_each(|open| self.add(*device, *file, open));
        }
        self.claims.extend(other.claims);
    }

    /// Whether there is nothing to sync.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }
}

/// Something to be made durable: an extent file, or the names in the extent directory of a device.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Unsynced<'t> {
    File(DeviceNumber, u32, &'t OpenExtent),
    Names(DeviceNumber),
}

impl Unsynced<'_> {
    /// Its device.
    pub(crate) fn device(&self) -> DeviceNumber {
        match self {
            Unsynced::File(device, ..) | Unsynced::Names(device) => *device,
        }
    }
}

/// A cached open file.
#[derive(Debug)]
struct CachedFile {
    file: OpenExtent,
    writable: bool,
    last_used: u64,
}

#[derive(Debug, Default)]
struct Cache {
    open: HashMap<(DeviceNumber, u32), CachedFile>,
    uses: u64,
    /// How often some were forgotten: what was opened before that may be one of them.
    generation: u64,
}

impl Cache {
    /// Closes the files of devices that are not kept.
    fn retain(&mut self, is_kept: impl Fn(DeviceNumber) -> bool) {
        self.open.retain(|&(device, _), _| is_kept(device));
        self.generation += 1;
    }
}

/// Cached listings of extent directories.
#[derive(Debug, Default)]
struct ListingCache {
    /// Names by number, for each device whose directory was read.
    listed: HashMap<DeviceNumber, BTreeMap<u32, String>>,
    /// Files that were looked up in vain since.
    absent: BTreeSet<(DeviceNumber, u32)>,
    /// How often some were forgotten: what was listed before that may be of another time.
    generation: u64,
}

/// The extent files of all devices. Shared by threads.
#[derive(Debug)]
pub(crate) struct ExtentFiles {
    source: Arc<dyn DeviceSource>,
    cache: Mutex<Cache>,
    names: Mutex<ListingCache>,
    /// Devices with files whose names may not be durable.
    new_names: Mutex<BTreeSet<DeviceNumber>>,
}

fn checksum(unit: &[u8]) -> u64 {
    XxHash3_64::oneshot(unit)
}

impl ExtentFiles {
    /// The extent files of the devices of `source`.
    pub(crate) fn new(source: Arc<dyn DeviceSource>) -> ExtentFiles {
        ExtentFiles { source, cache: Mutex::default(), names: Mutex::default(), new_names: Mutex::default() }
    }

    /// Closes the files of a device that has left, was replaced or is in service again. Names that are not yet durable
    /// stay known: a batch that is being written may have made some in the directory of today.
    pub(crate) fn forget(&self, device: DeviceNumber) {
        lock(&self.cache).retain(|number| number != device);
        let mut names = lock(&self.names);
        names.listed.remove(&device);
        names.absent.retain(|&(number, _)| number != device);
        names.generation += 1;
    }

    /// Closes all files.
    pub(crate) fn forget_all(&self) {
        lock(&self.cache).retain(|_| false);
        let mut names = lock(&self.names);
        *names = ListingCache { generation: names.generation + 1, ..ListingCache::default() };
    }

    /// Another process has changed the store: files that did not exist may by now.
    pub(crate) fn look_again(&self) {
        let mut names = lock(&self.names);
        names.absent.clear();
        names.generation += 1;
    }

    /// Extent files on a device in service, by number, with their sizes in bytes.
    ///
    /// # Errors
    /// The directory cannot be read; one that does not exist is empty.
    pub(crate) fn list(&self, device: DeviceNumber) -> io::Result<BTreeMap<u32, u64>> {
        let on = self.source.device(device).ok_or(io::ErrorKind::NotFound)?;
        let generation = lock(&self.names).generation;
        Ok(self.keep_names(device, names::list(&*on, EXTENTS)?, generation))
    }

    /// Keeps the names of a device's files, unless some were forgotten since they were read, and returns what comes
    /// with each by its number.
    fn keep_names<T: Ord>(
        &self,
        device: DeviceNumber,
        mut listed: Vec<(String, T)>,
        generation: u64,
    ) -> BTreeMap<u32, T> {
        // Of two with the same number, which only a device with two histories can have, that of this one, or always the
        // same one.
        let is_of_other = |name: &str| epoch_of(name).is_some_and(|epoch| !self.source.is_of_history(epoch));
        listed.sort_unstable();
        if listed.windows(2).any(|two| file_number(&two[0].0) == file_number(&two[1].0)) {
            listed.sort_by_key(|(name, _)| is_of_other(name));
        }
        let (mut kept, mut by_number) = (BTreeMap::new(), BTreeMap::new());
        for (name, with) in listed {
            if let Some(file) = file_number(&name) {
                kept.entry(file).or_insert(with);
                by_number.entry(file).or_insert(name);
            }
        }
        let mut names = lock(&self.names);
        if names.generation == generation {
            names.listed.insert(device, by_number);
        }
        kept
    }

    /// The path of a file on its device, if it exists.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub(crate) fn path(&self, device: DeviceNumber, file: u32) -> io::Result<Option<String>> {
        let known = |names: &ListingCache| {
            let name = names.listed.get(&device).and_then(|listed| listed.get(&file));
            name.map(|name| format!("{EXTENTS}/{name}"))
        };
        let generation = {
            let names = lock(&self.names);
            if let Some(path) = known(&names) {
                return Ok(Some(path));
            }
            if names.absent.contains(&(device, file)) {
                return Ok(None);
            }
            names.generation
        };
        // Without sizes: a file that cannot be examined does not hide the others.
        let on = self.source.device(device).ok_or(io::ErrorKind::NotFound)?;
        let listed = names::list_names(&*on, EXTENTS)?;
        let named = listed.into_iter().map(|name| (name.clone(), name)).collect();
        let path = self.keep_names(device, named, generation).remove(&file).map(|name| format!("{EXTENTS}/{name}"));
        let mut names = lock(&self.names);
        if path.is_none() && names.generation == generation {
            names.absent.insert((device, file));
        }
        Ok(path)
    }

    /// The present or future location of a file, for messages.
    pub(crate) fn place(&self, device: DeviceNumber, file: u32) -> PathBuf {
        let path = self.path(device, file).ok().flatten();
        self.source.directory(device).join(path.unwrap_or_else(|| format!("{EXTENTS}/{file:08x}")))
    }

    /// An error of the operating system about an extent file of a device.
    pub(crate) fn error(&self, operation: &'static str, device: DeviceNumber, file: u32, error: io::Error) -> Error {
        Error::io(operation, &self.place(device, file), error).on_device(device.0)
    }

    /// Opens the file, or takes it from the cache; [`io::ErrorKind::NotFound`] also if the device is not in service.
    fn open(&self, device: DeviceNumber, file: u32, writable: bool) -> io::Result<OpenExtent> {
        let generation = {
            let mut cache = lock(&self.cache);
            cache.uses += 1;
            let uses = cache.uses;
            if let Some(open) = cache.open.get_mut(&(device, file))
                && (open.writable || !writable)
            {
                open.last_used = uses;
                return Ok(open.file.clone());
            }
            cache.generation
        };
        let on = if writable { self.source.device_to_write(device) } else { self.source.device(device) };
        let on = on.ok_or(io::ErrorKind::NotFound)?;
        let path = self.path(device, file)?.ok_or(io::ErrorKind::NotFound)?;
        let opened = names::open(&*on, &path, if writable { Mode::Write } else { Mode::Read })?;
        let opened = OpenExtent { file: opened, on };
        self.keep((device, file), &opened, writable, generation);
        Ok(opened)
    }

    /// Keeps a file open, unless some were forgotten since it was opened.
    fn keep(&self, key: (DeviceNumber, u32), opened: &OpenExtent, writable: bool, generation: u64) {
        let mut cache = lock(&self.cache);
        if cache.generation != generation {
            return;
        }
        if cache.open.len() >= MOST_OPEN
            && let Some(&oldest) = cache.open.iter().min_by_key(|(_, open)| open.last_used).map(|(key, _)| key)
        {
            cache.open.remove(&oldest);
        }
        let last_used = cache.uses;
        cache.open.insert(key, CachedFile { file: opened.clone(), writable, last_used });
    }

    /// Has the next reads of a file, if it exists, ask the device: see [`DeviceFile::drop_cache`].
    pub(crate) fn drop_cache(&self, device: DeviceNumber, file: u32) {
        if let Ok(open) = self.open(device, file, false) {
            open.file.drop_cache();
        }
    }

    /// Creates a file of this epoch; [`io::ErrorKind::AlreadyExists`] if the number is taken.
    fn create(&self, device: DeviceNumber, file: u32) -> io::Result<OpenExtent> {
        let generation = lock(&self.cache).generation;
        let on = self.source.device_to_write(device).ok_or(io::ErrorKind::NotFound)?;
        if self.path(device, file)?.is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let name = file_name(file, self.source.epoch());
        let path = format!("{EXTENTS}/{name}");
        let created = match on.open(&path, Mode::Create) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                names::create_directory(&*on, EXTENTS)?;
                on.open(&path, Mode::Create)?
            }
            created => created?,
        };
        let mut names = lock(&self.names);
        names.listed.entry(device).or_default().insert(file, name);
        names.absent.remove(&(device, file));
        drop(names);
        lock(&self.new_names).insert(device);
        let created = OpenExtent { file: created, on };
        self.keep((device, file), &created, true, generation);
        Ok(created)
    }

    /// Opens the file for writing, and creates it if it does not exist: for units that are restored in place on a
    /// device that lost them.
    fn open_or_create(&self, device: DeviceNumber, file: u32) -> Result<OpenExtent> {
        let opened = match self.open(device, file, true) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.create(device, file),
            opened => {
                // Its name may be in memory only: left by a killed process.
                lock(&self.new_names).insert(device);
                opened
            }
        };
        opened.map_err(|error| self.error("open the extent file", device, file, error))
    }

    /// What must be synced to make writes durable: each file once, and the directories of new ones. Files on a device
    /// that was replaced are no part of the store any more: what was written there was lost with it.
    pub(crate) fn unsynced<'t>(&self, touched: &'t Touched) -> Vec<Unsynced<'t>> {
        let new_names = lock(&self.new_names);
        let devices: BTreeSet<DeviceNumber> = touched.files.keys().map(|&(device, _)| device).collect();
        let names = devices.into_iter().filter(|device| new_names.contains(device)).map(Unsynced::Names);
        let is_replaced = |device: DeviceNumber, open: &OpenExtent| {
            self.source.device_to_write(device).is_some_and(|now| !Arc::ptr_eq(&now, &open.on))
        };
        let opened = touched.files.iter().flat_map(|(&number, opened)| opened.iter().map(move |open| (number, open)));
        let current = opened.filter(|&((device, _), open)| !is_replaced(device, open));
        current.map(|((device, file), open)| Unsynced::File(device, file, open)).chain(names).collect()
    }

    /// Makes one of these durable.
    ///
    /// # Errors
    /// As [`sync`](Self::sync).
    pub(crate) fn sync_one(&self, unsynced: Unsynced<'_>) -> Result<()> {
        match unsynced {
            Unsynced::File(device, file, open) => {
                open.sync().map_err(|error| self.error("sync the extent file", device, file, error))
            }
            Unsynced::Names(device) => {
                // A file created meanwhile waits for the lock, and its name is synced next time.
                let mut new_names = lock(&self.new_names);
                if new_names.contains(&device) {
                    let directory = self.source.directory(device).join(EXTENTS);
                    let on = self.source.device(device).ok_or(io::Error::from(io::ErrorKind::NotFound));
                    on.and_then(|on| on.sync_directory(EXTENTS))
                        .map_err(|error| Error::io("sync the directory", &directory, error).on_device(device.0))?;
                    new_names.remove(&device);
                }
                Ok(())
            }
        }
    }

    /// Makes writes and the names of new files durable, all in parallel.
    ///
    /// # Errors
    /// The first failure. Nothing may then be reported as durable, whatever a later call returns.
    pub(crate) fn sync(&self, touched: &Touched) -> Result<()> {
        self.try_sync(touched).into_iter().next().map_or(Ok(()), |(_, error)| Err(error))
    }

    /// The same; returns all failures.
    pub(crate) fn try_sync(&self, touched: &Touched) -> Vec<Failed> {
        let sync = |unsynced: Unsynced<'_>| self.sync_one(unsynced).err().map(|error| (unsynced.device(), error));
        threads::each(self.unsynced(touched), MOST_SYNCS, sync).into_iter().flatten().collect()
    }

    /// Unlinks a file that was released and has no readers; returns whether it existed. Open handles stay readable. A
    /// device that is not in service is left as it is.
    ///
    /// # Errors
    /// The device is not in service, or the system call fails.
    pub(crate) fn unlink(&self, device: DeviceNumber, file: u32) -> Result<bool> {
        let fail = |error| self.error("unlink the extent file", device, file, error);
        let on = self.source.device_to_write(device).ok_or_else(|| fail(io::ErrorKind::NotFound.into()))?;
        let Some(path) = self.path(device, file).map_err(fail)? else { return Ok(false) };
        match on.remove(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(fail(error)),
            removed => {
                on.sync_directory(EXTENTS).map_err(fail)?;
                lock(&self.cache).open.remove(&(device, file));
                if let Some(listed) = lock(&self.names).listed.get_mut(&device) {
                    listed.remove(&file);
                }
                Ok(removed.is_ok())
            }
        }
    }

    /// Announces to the operating system that an object's units will be read soon, at most `most_bytes` of them.
    pub(crate) fn will_read(&self, descriptor: &Descriptor, most_bytes: u64) {
        let mut told = 0;
        for run in descriptor.runs() {
            if told >= most_bytes {
                return;
            }
            told += run.length_bytes;
            if let Ok(file) = self.open_run(run) {
                file.will_read(run.offset_bytes, run.length_bytes.min(most_bytes));
            }
        }
    }

    /// Opens the file of a run for reading.
    fn open_run(&self, run: Run) -> std::result::Result<OpenExtent, UnitFault> {
        self.open(run.device, run.file, false).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => UnitFault::Absent,
            _ => UnitFault::Unopened(os_message(&error)),
        })
    }

    /// Appends a run to `out`, which is left unchanged if the run is incomplete. Nothing is verified.
    fn read_run(&self, run: Run, out: &mut Vec<u8>) -> std::result::Result<(), UnitFault> {
        let (start, length) = (out.len(), run.length_bytes as usize);
        let read = self.open_run(run)?.read_onto(out, length, run.offset_bytes);
        let result = match read {
            Ok(read) if read == length => Ok(()),
            Ok(_) => Err(UnitFault::Short),
            Err(error) => Err(fault_of(&error)),
        };
        if result.is_err() {
            out.truncate(start);
        }
        result
    }

    /// Appends a unit that has bytes to `out`, verified; `out` is left unchanged if the unit is faulty.
    fn read_unit(
        &self,
        chunk: &Chunk,
        stripe: usize,
        unit: usize,
        out: &mut Vec<u8>,
    ) -> std::result::Result<(), UnitFault> {
        let start = out.len();
        self.read_run(chunk.unit(stripe, unit), out)?;
        if is_intact(chunk, stripe, unit, &out[start..]) {
            return Ok(());
        }
        out.truncate(start);
        Err(UnitFault::Changed)
    }

    /// As [`read_unit`](Self::read_unit), into a buffer of its length.
    fn read_unit_into(
        &self,
        chunk: &Chunk,
        stripe: usize,
        unit: usize,
        place: &mut [u8],
    ) -> std::result::Result<(), UnitFault> {
        let run = chunk.unit(stripe, unit);
        match self.open_run(run)?.read_at(place, run.offset_bytes) {
            Ok(read) if read < place.len() => Err(UnitFault::Short),
            Ok(_) if is_intact(chunk, stripe, unit, place) => Ok(()),
            Ok(_) => Err(UnitFault::Changed),
            Err(error) => Err(fault_of(&error)),
        }
    }
}

/// Whether the bytes of a unit match its checksum.
fn is_intact(chunk: &Chunk, stripe: usize, unit: usize, bytes: &[u8]) -> bool {
    let expected = chunk.stripes.checksum_index(stripe, unit).and_then(|index| chunk.checksums.get(index));
    expected.is_some_and(|&expected| expected == checksum(bytes))
}

fn fault_of(error: &io::Error) -> UnitFault {
    match error.kind() {
        io::ErrorKind::NotFound => UnitFault::Absent,
        _ if Unanswered::is(error) => UnitFault::Unopened(os_message(error)),
        _ => UnitFault::Unreadable(os_message(error)),
    }
}
