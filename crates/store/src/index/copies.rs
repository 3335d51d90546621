//! The devices with the index: writes go to each of them, reads to the first that has the data.
//!
//! A device that fails a write no longer has a copy; writing continues as long as one remains, and the next transaction
//! of the catalog records which ones remain. A failed read is tried on the next device. Callers verify what they read:
//! [`DeviceFile::copy`] opens the same file on each device.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, RwLock};

use crate::devices::device::{Device, DeviceFile, Mode, Room};
use crate::error::os_message;
use crate::format::ids::DeviceNumber;
use crate::locks;

/// A device that has or may have a copy of the index.
#[derive(Debug, Clone)]
pub(crate) struct IndexDevice {
    /// Its number.
    pub(crate) number: DeviceNumber,
    /// The device itself.
    pub(crate) device: Arc<dyn Device>,
}

/// The devices with the index. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Copies {
    places: Arc<RwLock<Arc<Vec<IndexDevice>>>>,
    /// Why devices have no copy any more, or got none.
    failures: Arc<RwLock<BTreeMap<DeviceNumber, String>>>,
}

impl Copies {
    /// Copies on these devices, in the order in which they are asked.
    pub(crate) fn new(places: Vec<IndexDevice>) -> Copies {
        Copies { places: Arc::new(RwLock::new(Arc::new(places))), failures: Arc::default() }
    }

    /// The devices.
    pub(crate) fn places(&self) -> Arc<Vec<IndexDevice>> {
        Arc::clone(&locks::read(&self.places))
    }

    /// Their numbers.
    pub(crate) fn numbers(&self) -> Vec<DeviceNumber> {
        self.places().iter().map(|place| place.number).collect()
    }

    /// Replaces the devices.
    pub(crate) fn set(&self, places: Vec<IndexDevice>) {
        *locks::write(&self.places) = Arc::new(places);
    }

    /// Drops the copies on devices that failed.
    pub(crate) fn drop_failed(&self, failed: &[(IndexDevice, io::Error)]) {
        if !failed.is_empty() {
            failed.iter().for_each(|(place, error)| self.note_failure(place.number, os_message(error)));
            let is_sound = |place: &&IndexDevice| !failed.iter().any(|(failed, _)| failed.number == place.number);
            self.set(self.places().iter().filter(is_sound).cloned().collect());
        }
    }

    /// Keeps why a device has no copy.
    pub(crate) fn note_failure(&self, device: DeviceNumber, cause: String) {
        locks::write(&self.failures).insert(device, cause);
    }

    /// Why a device has no copy, if this process has tried to write one.
    pub(crate) fn failure(&self, device: DeviceNumber) -> Option<String> {
        locks::read(&self.failures).get(&device).cloned()
    }

    /// Runs `work` on every device; returns the results of those on which it succeeded. The others are dropped.
    fn on_each<T>(&self, work: impl Fn(&IndexDevice) -> io::Result<T>) -> io::Result<Vec<(IndexDevice, T)>> {
        let (mut done, mut failed) = (Vec::new(), Vec::new());
        for place in self.places().iter() {
            match work(place) {
                Ok(result) => done.push((place.clone(), result)),
                Err(error) => failed.push((place.clone(), error)),
            }
        }
        self.settle(done, failed)
    }

    /// Drops those that failed; fails if none remains.
    fn settle<T>(&self, done: Vec<T>, failed: Vec<(IndexDevice, io::Error)>) -> io::Result<Vec<T>> {
        if done.is_empty() {
            // Messages name the first device.
            let first = failed.into_iter().next();
            return Err(first.map_or_else(|| io::ErrorKind::NotFound.into(), |(_, error)| error));
        }
        self.drop_failed(&failed);
        Ok(done)
    }

    /// Tries one device after the other.
    fn ask_any<T>(&self, ask: impl Fn(&IndexDevice) -> io::Result<T>) -> io::Result<T> {
        let mut first = None;
        for place in self.places().iter() {
            match ask(place) {
                Ok(answer) => return Ok(answer),
                // That a file does not exist says less than that it cannot be read.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    first.get_or_insert(error);
                }
                Err(error) => first = first.filter(|first| first.kind() != io::ErrorKind::NotFound).or(Some(error)),
            }
        }
        Err(first.unwrap_or_else(|| io::ErrorKind::NotFound.into()))
    }
}

impl Device for Copies {
    fn place(&self) -> PathBuf {
        self.places().first().map(|place| place.device.place()).unwrap_or_default()
    }

    fn open(&self, path: &str, mode: Mode) -> io::Result<Arc<dyn DeviceFile>> {
        if mode == Mode::Read {
            let file = self.ask_any(|place| place.device.open(path, mode))?;
            return Ok(Arc::new(ReadFile { file, path: path.to_owned(), copies: self.clone() }));
        }
        let files = self.on_each(|place| place.device.open(path, mode))?;
        Ok(Arc::new(WrittenFile { files: RwLock::new(files), copies: self.clone() }))
    }

    fn list(&self, directory: &str) -> io::Result<Vec<(String, u64)>> {
        self.ask_any(|place| place.device.list(directory))
    }

    fn create_directory(&self, directory: &str) -> io::Result<()> {
        self.on_each(|place| place.device.create_directory(directory)).map(drop)
    }

    fn sync_directory(&self, directory: &str) -> io::Result<()> {
        self.on_each(|place| place.device.sync_directory(directory)).map(drop)
    }

    /// A file missing on one device still counts as removed.
    fn remove(&self, path: &str) -> io::Result<()> {
        self.places().iter().map(|place| place.device.remove(path)).collect::<Vec<_>>().into_iter().collect()
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.on_each(|place| place.device.rename(from, to)).map(drop)
    }

    fn room(&self) -> io::Result<Room> {
        self.ask_any(|place| place.device.room())
    }
}

/// A file that is read from the first device that has it.
#[derive(Debug)]
struct ReadFile {
    file: Arc<dyn DeviceFile>,
    path: String,
    copies: Copies,
}

impl ReadFile {
    fn read<T>(&self, mut read: impl FnMut(&dyn DeviceFile) -> io::Result<T>) -> io::Result<T> {
        read(&*self.file).or_else(|error| {
            let others = (0..).map_while(|turn| self.copy(turn));
            others.filter_map(|file| read(&*file.ok()?).ok()).next().ok_or(error)
        })
    }
}

impl DeviceFile for ReadFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read(|file| file.read_at(buffer, offset))
    }

    fn read_onto(&self, buffer: &mut Vec<u8>, length: usize, offset: u64) -> io::Result<usize> {
        self.read(|file| file.read_onto(buffer, length, offset))
    }

    fn write_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        Err(io::ErrorKind::PermissionDenied.into())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        self.read(|file| file.size())
    }

    fn set_size(&self, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::PermissionDenied.into())
    }

    fn start_writeback(&self, _: u64, _: u64) {}

    fn will_read(&self, offset: u64, length: u64) {
        self.file.will_read(offset, length);
    }

    fn copy(&self, turn: usize) -> Option<io::Result<Arc<dyn DeviceFile>>> {
        let places = self.copies.places();
        match places.get(turn) {
            Some(place) => Some(place.device.open(&self.path, Mode::Read)),
            // One that is not cached, if the device of this one has a cache.
            None => self.file.copy(1 + turn - places.len()),
        }
    }
}

/// A file that is written on every device.
#[derive(Debug)]
struct WrittenFile {
    files: RwLock<Vec<(IndexDevice, Arc<dyn DeviceFile>)>>,
    copies: Copies,
}

impl WrittenFile {
    fn on_each(&self, work: impl Fn(&dyn DeviceFile) -> io::Result<()>) -> io::Result<()> {
        let mut files = locks::write(&self.files);
        let (mut done, mut failed) = (Vec::new(), Vec::new());
        for (place, file) in files.drain(..) {
            match work(&*file) {
                Ok(()) => done.push((place, file)),
                Err(error) => failed.push((place, error)),
            }
        }
        *files = self.copies.settle(done, failed)?;
        Ok(())
    }

    fn first<T>(&self, ask: impl FnOnce(&dyn DeviceFile) -> io::Result<T>) -> io::Result<T> {
        let files = locks::read(&self.files);
        files.first().map_or_else(|| Err(io::ErrorKind::NotFound.into()), |(_, file)| ask(&**file))
    }
}

impl DeviceFile for WrittenFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.first(|file| file.read_at(buffer, offset))
    }

    fn read_onto(&self, buffer: &mut Vec<u8>, length: usize, offset: u64) -> io::Result<usize> {
        self.first(|file| file.read_onto(buffer, length, offset))
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.on_each(|file| file.write_at(data, offset))
    }

    fn sync(&self) -> io::Result<()> {
        self.on_each(|file| file.sync())
    }

    fn size(&self) -> io::Result<u64> {
        self.first(|file| file.size())
    }

    fn set_size(&self, size_bytes: u64) -> io::Result<()> {
        self.on_each(|file| file.set_size(size_bytes))
    }

    fn start_writeback(&self, offset: u64, length: u64) {
        let files = locks::read(&self.files);
        files.iter().for_each(|(_, file)| file.start_writeback(offset, length));
    }
}
