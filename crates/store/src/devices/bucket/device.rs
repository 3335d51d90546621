//! A directory of a volume, as the engine sees a device.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::file::VolumeFile;
use super::volume::Volume;
use crate::devices::device::{Device, DeviceFile, Mode, Room};

/// What a bucket has room for: more than anybody puts into one.
const TOTAL_BYTES: u64 = 1 << 50;

/// A directory of a volume. Names are durable with the next publication, in the order of their changes.
#[derive(Debug)]
pub(super) struct VolumeDevice {
    pub(super) volume: Arc<Volume>,
    /// Its location, for messages.
    pub(super) place: PathBuf,
    /// Its path in the volume.
    pub(super) directory: String,
}

impl VolumeDevice {
    /// The path in the volume of a path in this directory.
    fn path(&self, path: &str) -> String {
        match (self.directory.as_str(), path) {
            ("", path) => path.to_owned(),
            (directory, "") => directory.to_owned(),
            (directory, path) => format!("{directory}/{path}"),
        }
    }
}

impl Device for VolumeDevice {
    fn place(&self) -> PathBuf {
        self.place.clone()
    }

    fn open(&self, path: &str, mode: Mode) -> io::Result<Arc<dyn DeviceFile>> {
        let path = self.path(path);
        let number = match mode {
            Mode::Create => self.volume.change(|table| {
                let number = table.create(&path)?;
                table.hold(number);
                Ok(number)
            })?,
            Mode::Read | Mode::Write => {
                if mode == Mode::Write {
                    self.volume.may_write()?;
                }
                let found = self.volume.look(|table| {
                    let number = table.find(&path)?;
                    table.hold(number);
                    Some(number)
                })?;
                found.ok_or(io::ErrorKind::NotFound)?
            }
        };
        Ok(Arc::new(VolumeFile::new(Arc::clone(&self.volume), number, &path)))
    }

    fn list(&self, directory: &str) -> io::Result<Vec<(String, u64)>> {
        let directory = self.path(directory);
        self.volume.look(|table| table.list(&directory))
    }

    fn create_directory(&self, directory: &str) -> io::Result<()> {
        let directory = self.path(directory);
        match self.volume.look(|table| table.has_directory(&directory))? {
            true => Ok(()),
            false => self.volume.change(|table| table.create_directory(&directory)),
        }
    }

    fn sync_directory(&self, _directory: &str) -> io::Result<()> {
        self.volume.sync(false)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        let path = self.path(path);
        self.volume.change(|table| table.remove(&path))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let (from, to) = (self.path(from), self.path(to));
        self.volume.change(|table| table.rename(&from, &to))
    }

    fn room(&self) -> io::Result<Room> {
        let used: u64 = self.volume.look(|table| table.all().map(|pieces| pieces.size_bytes()).sum())?;
        Ok(Room { total_bytes: TOTAL_BYTES, available_bytes: TOTAL_BYTES.saturating_sub(used) })
    }
}
