//! Extents: the files on devices that stripe units of large objects are in (docs/FORMAT.md, section 6).
//!
//! | module | subject |
//! | --- | --- |
//! | `allocate` | where the next chunk goes |
//! | `write` | a stream becomes chunks, stripes and units, in bounded memory |
//! | `read` | ranges of an object, verified, reconstructed where units are lost |
//! | `repair` | every unit verified; damaged ones made anew; components moved to other devices |
//!
//! Here are the files themselves: opening, syncing, giving back space, and reading one unit. Extent files have no structure of their
//! own: every byte that counts is named and checksummed by a descriptor, and what no descriptor names is free.
//!
//! Survived: a device that is not in service, a file that is missing or short, an error of the medium, changed bytes. All of these are
//! [`Wrong`] units, made up for by parity if there is enough of it.

mod allocate;
mod read;
mod repair;
#[cfg(test)]
mod tests;
mod write;

pub(crate) use allocate::{Allocator, order};
pub(crate) use write::{LargeWriter, Written};

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::{self, Debug};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use twox_hash::XxHash3_64;

use crate::devices::device::{Device, DeviceFile, Mode};
use crate::error::{Error, Result, os_message};
use crate::format::descriptor::{Chunk, Descriptor, Run};

/// Directory of the extent files on a device.
pub(crate) const DIRECTORY: &str = "extents";

/// Extent files that are kept open beside those being written.
const MOST_OPEN: usize = 128;

/// Reads of adjacent units are joined up to this, in bytes.
const JOINED_BYTES: usize = 1 << 20;

/// Path of an extent file on its device.
pub(crate) fn path(file: u32) -> String {
    format!("{DIRECTORY}/{file:016x}")
}

/// Where devices come from: they come and go while the store is open.
pub(crate) trait DeviceSource: Send + Sync + Debug {
    /// The device of this number, if it is in service.
    fn device(&self, number: u16) -> Option<Arc<dyn Device>>;
    /// Its directory, for messages.
    fn directory(&self, number: u16) -> PathBuf;
}

/// What is the matter with a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// Its device is not in service, or has no such file.
    Absent,
    /// The file ends before it.
    Short,
    /// Its bytes are not those that were written.
    Changed,
    /// The operating system cannot read it, and says this.
    Unreadable(String),
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Flaw::Absent => f.write_str("is missing"),
            Flaw::Short => f.write_str("is cut off"),
            Flaw::Changed => f.write_str("is damaged"),
            Flaw::Unreadable(cause) => write!(f, "cannot be read: {cause}"),
        }
    }
}

/// A unit that is not as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wrong {
    /// Device that it is on.
    pub(crate) device: u16,
    /// Chunk of the object.
    pub(crate) chunk: usize,
    /// Stripe of the chunk.
    pub(crate) stripe: usize,
    /// Unit of the stripe: data before parity.
    pub(crate) unit: usize,
    /// What is the matter with it.
    pub(crate) flaw: Flaw,
}

/// Files that were written to and are not synced. Keeps them open: an error in writing back is told to those who had the file open.
#[derive(Debug, Default)]
pub(crate) struct Touched {
    files: BTreeMap<(u16, u32), Arc<dyn DeviceFile>>,
}

impl Touched {
    fn add(&mut self, device: u16, file: u32, open: &Arc<dyn DeviceFile>) {
        self.files.entry((device, file)).or_insert_with(|| Arc::clone(open));
    }

    /// Adds what another has.
    pub(crate) fn merge(&mut self, other: Touched) {
        self.files.extend(other.files);
    }

    /// Whether there is nothing to sync.
    pub(crate) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }
}

/// An extent file and its number.
type Named<'f> = (u32, &'f Arc<dyn DeviceFile>);

/// An open file of the cache.
#[derive(Debug)]
struct Open {
    file: Arc<dyn DeviceFile>,
    writable: bool,
    last_used: u64,
}

#[derive(Debug, Default)]
struct Cache {
    open: HashMap<(u16, u32), Open>,
    uses: u64,
}

/// The extent files of all devices. Shared by threads.
#[derive(Debug)]
pub(crate) struct ExtentFiles {
    source: Arc<dyn DeviceSource>,
    cache: Mutex<Cache>,
    /// Devices with files whose names are not known to be durable.
    new_names: Mutex<BTreeSet<u16>>,
}

/// What a mutex guards is whole whenever it is not locked, also after a panic elsewhere.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn checksum(unit: &[u8]) -> u64 {
    XxHash3_64::oneshot(unit)
}

impl ExtentFiles {
    /// The extent files of the devices of `source`.
    pub(crate) fn new(source: Arc<dyn DeviceSource>) -> ExtentFiles {
        ExtentFiles { source, cache: Mutex::default(), new_names: Mutex::default() }
    }

    /// Closes the files of a device that has left or was replaced.
    pub(crate) fn forget(&self, device: u16) {
        lock(&self.cache).open.retain(|&(number, _), _| number != device);
        lock(&self.new_names).remove(&device);
    }

    fn error(&self, operation: &'static str, device: u16, file: u32, error: io::Error) -> Error {
        Error::io(operation, &self.source.directory(device).join(path(file)), error)
    }

    /// The file, from the cache or opened; [`io::ErrorKind::NotFound`] also where the device is not in service.
    fn open(&self, device: u16, file: u32, writable: bool) -> io::Result<Arc<dyn DeviceFile>> {
        {
            let mut cache = lock(&self.cache);
            cache.uses += 1;
            let uses = cache.uses;
            if let Some(open) = cache.open.get_mut(&(device, file))
                && (open.writable || !writable)
            {
                open.last_used = uses;
                return Ok(Arc::clone(&open.file));
            }
        }
        let on = self.source.device(device).ok_or(io::ErrorKind::NotFound)?;
        let opened = on.open(&path(file), if writable { Mode::Write } else { Mode::Read })?;
        self.keep(device, file, &opened, writable);
        Ok(opened)
    }

    fn keep(&self, device: u16, file: u32, opened: &Arc<dyn DeviceFile>, writable: bool) {
        let mut cache = lock(&self.cache);
        if cache.open.len() >= MOST_OPEN
            && let Some(&oldest) = cache.open.iter().min_by_key(|(_, open)| open.last_used).map(|(key, _)| key)
        {
            cache.open.remove(&oldest);
        }
        let last_used = cache.uses;
        cache.open.insert((device, file), Open { file: Arc::clone(opened), writable, last_used });
    }

    /// A new file; [`io::ErrorKind::AlreadyExists`] if there is one.
    fn create(&self, device: u16, file: u32) -> io::Result<Arc<dyn DeviceFile>> {
        let on = self.source.device(device).ok_or(io::ErrorKind::NotFound)?;
        let created = match on.open(&path(file), Mode::Create) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                on.create_directory(DIRECTORY)?;
                on.open(&path(file), Mode::Create)?
            }
            created => created?,
        };
        lock(&self.new_names).insert(device);
        self.keep(device, file, &created, true);
        Ok(created)
    }

    /// The file for writing, made if there is none: for units that return to their place on a device that lost them.
    fn open_or_create(&self, device: u16, file: u32) -> Result<Arc<dyn DeviceFile>> {
        let opened = match self.open(device, file, true) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.create(device, file),
            opened => opened,
        };
        opened.map_err(|error| self.error("open the extent file", device, file, error))
    }

    /// Makes durable what was written, and the names of new files; devices at the same time.
    ///
    /// # Errors
    /// The first failure. Nothing may be said to be durable then, whatever a later call says.
    pub(crate) fn sync(&self, touched: &Touched) -> Result<()> {
        let mut by_device: BTreeMap<u16, Vec<Named<'_>>> = BTreeMap::new();
        for (&(device, file), open) in &touched.files {
            by_device.entry(device).or_default().push((file, open));
        }
        if by_device.len() < 2 {
            return by_device.iter().try_for_each(|(&device, files)| self.sync_device(device, files));
        }
        thread::scope(|scope| {
            let syncing: Vec<_> =
                by_device.iter().map(|(&device, files)| scope.spawn(move || self.sync_device(device, files))).collect();
            // All are waited for; a panic goes on here.
            let results: Vec<_> = syncing
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect();
            results.into_iter().collect()
        })
    }

    fn sync_device(&self, device: u16, files: &[Named<'_>]) -> Result<()> {
        for &(file, open) in files {
            open.sync().map_err(|error| self.error("sync the extent file", device, file, error))?;
        }
        // A file made meanwhile waits for the lock, and its name is synced next time.
        let mut new_names = lock(&self.new_names);
        if new_names.contains(&device) {
            let directory = self.source.directory(device).join(DIRECTORY);
            let on = self.source.device(device).ok_or(io::Error::from(io::ErrorKind::NotFound));
            on.and_then(|on| on.sync_directory(DIRECTORY))
                .map_err(|error| Error::io("sync the directory", &directory, error))?;
            new_names.remove(&device);
        }
        Ok(())
    }

    /// Gives back the space of a run. What is not there need not be given back.
    ///
    /// # Errors
    /// The device cannot.
    pub(crate) fn punch(&self, run: Run) -> Result<()> {
        let punched = match self.open(run.device, run.file, true) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            opened => opened.and_then(|file| file.punch_hole(run.offset_bytes, run.length_bytes)),
        };
        punched.map_err(|error| self.error("give back space in", run.device, run.file, error))
    }

    /// Tells the operating system that an object's units will be read soon, up to so many bytes of them.
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
    fn open_run(&self, run: Run) -> std::result::Result<Arc<dyn DeviceFile>, Flaw> {
        self.open(run.device, run.file, false).map_err(|error| flaw(&error))
    }

    /// Reads a run to the end of `out`, which is left as it was if not all of it is there. Nothing is verified.
    fn read_run(&self, run: Run, out: &mut Vec<u8>) -> std::result::Result<(), Flaw> {
        let (start, length) = (out.len(), run.length_bytes as usize);
        let read = self.open_run(run)?.read_onto(out, length, run.offset_bytes);
        let result = match read {
            Ok(read) if read == length => Ok(()),
            Ok(_) => Err(Flaw::Short),
            Err(error) => Err(flaw(&error)),
        };
        if result.is_err() {
            out.truncate(start);
        }
        result
    }

    /// Reads a unit that has bytes to the end of `out`, verified; `out` is left as it was if it is wrong.
    fn read_unit(&self, chunk: &Chunk, stripe: usize, unit: usize, out: &mut Vec<u8>) -> std::result::Result<(), Flaw> {
        let start = out.len();
        self.read_run(chunk.unit(stripe, unit), out)?;
        if is_intact(chunk, stripe, unit, &out[start..]) {
            return Ok(());
        }
        out.truncate(start);
        Err(Flaw::Changed)
    }

    /// As [`read_unit`](Self::read_unit), into a place of its length.
    fn read_unit_into(
        &self,
        chunk: &Chunk,
        stripe: usize,
        unit: usize,
        place: &mut [u8],
    ) -> std::result::Result<(), Flaw> {
        let run = chunk.unit(stripe, unit);
        match self.open_run(run)?.read_at(place, run.offset_bytes) {
            Ok(read) if read < place.len() => Err(Flaw::Short),
            Ok(_) if is_intact(chunk, stripe, unit, place) => Ok(()),
            Ok(_) => Err(Flaw::Changed),
            Err(error) => Err(flaw(&error)),
        }
    }
}

/// Whether bytes are those of a unit.
fn is_intact(chunk: &Chunk, stripe: usize, unit: usize, bytes: &[u8]) -> bool {
    let expected = chunk.stripes.position(stripe, unit).and_then(|position| chunk.checksums.get(position));
    expected.is_some_and(|&expected| expected == checksum(bytes))
}

fn flaw(error: &io::Error) -> Flaw {
    match error.kind() {
        io::ErrorKind::NotFound => Flaw::Absent,
        _ => Flaw::Unreadable(os_message(error)),
    }
}
