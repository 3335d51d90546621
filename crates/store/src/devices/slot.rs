//! One device of a store as it was found: its entry in the geometry, its directory, and what is wrong with it.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::anchored::Anchored;
use super::device::{Device, DeviceFile, Mode, Room};
use super::names;
use super::platform::Platform;
use crate::error::{Error, Result};
use crate::format::geometry::DeviceEntry;
use crate::format::ids::{DeviceNumber, Epoch, SegmentId};
use crate::format::names::{SegmentName, segment_path};
use crate::format::segment::{SEGMENT_HEADER_BYTES, SegmentHeader};

/// Why a device is not fully usable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// Its directory is missing or cannot be read, for this reason.
    Missing(String),
    /// Its directory exists but has no superblock.
    Empty,
    /// Its directory has segments or extent files, and no superblock.
    Unmarked,
    /// Its directory belongs to another store, or is another device of this one.
    Stranger,
    /// It was replaced according to the others, and has something that was written after all that they know of: they
    /// are old.
    Newer,
    /// Neither slot of its superblock is valid.
    Damaged,
    /// It was missing while the store was written to, or is an old copy.
    Stale {
        /// Number of epochs that it missed.
        missed: usize,
    },
    /// It was written to separately from the others.
    Diverged,
    /// Writing to it has failed since the store was opened, for this reason.
    Failed(String),
    /// It left the store.
    Gone,
}

impl Trouble {
    /// In words, as the end of "device 3 …".
    pub fn explain(&self) -> String {
        match self {
            Trouble::Missing(cause) => format!("is missing: {cause}"),
            Trouble::Empty => "has an empty directory".to_owned(),
            Trouble::Unmarked => "has no superblock, but segments or extent files".to_owned(),
            Trouble::Stranger => "has the directory of another device or store".to_owned(),
            Trouble::Newer => "has newer data than the other devices, which lack its last epochs".to_owned(),
            Trouble::Damaged => "has a damaged superblock".to_owned(),
            Trouble::Stale { missed: 0 | 1 } => {
                "is stale: it was absent while the store was written to, or restored from a copy".to_owned()
            }
            Trouble::Stale { missed } => {
                format!(
                    "is stale: it was absent while the store was opened for writing {missed} times, or restored from a copy"
                )
            }
            Trouble::Diverged => "was written to separately from the others".to_owned(),
            Trouble::Failed(cause) => format!("failed and is no longer written to: {cause}"),
            Trouble::Gone => "left the store".to_owned(),
        }
    }
}

/// What failed on a device.
pub(crate) type Failed = (DeviceNumber, Error);

/// A device of the geometry, as found.
#[derive(Debug, Clone)]
pub(crate) struct Slot {
    pub(crate) entry: DeviceEntry,
    /// Its directory, absolute.
    pub(crate) path: PathBuf,
    pub(crate) device: Arc<dyn Device>,
    pub(crate) trouble: Option<Trouble>,
    /// It lacks epochs in which nothing was written, unless the log shows otherwise.
    pub(crate) is_late: bool,
}

impl Slot {
    /// An error of the operating system about a file or directory of the device.
    pub(crate) fn error(&self, operation: &'static str, file: &str, error: io::Error) -> Error {
        Error::io(operation, &self.path.join(file), error).on_device(self.entry.number.0)
    }

    /// Its space.
    ///
    /// # Errors
    /// The device does not say: it is not full, but may be broken.
    pub(crate) fn room(&self) -> Result<Room> {
        self.device.room().map_err(|error| self.error("read the free space of", "", error))
    }

    /// The header of a segment of a store with this identity, if it can be read.
    pub(crate) fn segment_header(&self, name: SegmentName, store: &[u8; 16]) -> Option<SegmentHeader> {
        let id = SegmentId { number: name.number, epoch: Epoch(name.epoch_low_half.into()) };
        let file = names::open(&*self.device, &segment_path(id), Mode::Read).ok()?;
        header_of(&*file, name, store).ok()?
    }

    /// From here on it is only written to in its present directory.
    pub(crate) fn anchor(&mut self, platform: &dyn Platform) {
        if let Some(anchor) = platform.anchor(&self.path) {
            self.device = Arc::new(Anchored::new(Arc::clone(&self.device), anchor));
        }
    }

    /// Whether its content may be read (and verified).
    pub(crate) fn is_readable(&self) -> bool {
        matches!(self.trouble, None | Some(Trouble::Stale { .. } | Trouble::Failed(_)))
    }

    /// Whether it may be written.
    pub(crate) fn is_writable(&self) -> bool {
        self.trouble.is_none()
    }
}

/// The header of a segment of a store with this identity; `None` if it is damaged.
///
/// # Errors
/// Any error of reading.
pub(super) fn header_of(
    file: &dyn DeviceFile,
    name: SegmentName,
    store: &[u8; 16],
) -> io::Result<Option<SegmentHeader>> {
    let mut bytes = Vec::new();
    file.read_onto(&mut bytes, SEGMENT_HEADER_BYTES as usize, 0)?;
    let is_it = |header: &SegmentHeader| header.store == *store && SegmentName::from(header.id) == name;
    Ok(SegmentHeader::decode(&bytes).filter(is_it))
}
