//! An open file of a volume.

use std::io;
use std::sync::Arc;

use super::table::FileNumber;
use super::volume::{Volume, Way};
use crate::devices::device::DeviceFile;
use crate::format::names::{EXTENTS, INDEX_DIRECTORY, SEGMENTS};
use crate::format::superblock::SUPERBLOCK;
use crate::locks::lock;

/// A handle: follows its file through renames and newer versions, and keeps it while it has no name.
#[derive(Debug)]
pub(super) struct VolumeFile {
    volume: Arc<Volume>,
    number: FileNumber,
    is_acknowledged_by: bool,
    way: Way,
}

impl VolumeFile {
    /// The handle of a file that is held for it, opened by a path in the volume.
    pub(super) fn new(volume: Arc<Volume>, number: FileNumber, path: &str) -> VolumeFile {
        // What the engine acknowledges is in the log, in large objects and in superblocks.
        let is_acknowledged_by = match path.split_once('/') {
            Some((directory, _)) => [SEGMENTS, EXTENTS].contains(&directory),
            None => path == SUPERBLOCK,
        };
        let is_of_index = path.split_once('/').is_some_and(|(directory, _)| directory == INDEX_DIRECTORY);
        let way = if is_of_index { Way::Kept } else { Way::Plain };
        VolumeFile { volume, number, is_acknowledged_by, way }
    }
}

impl Drop for VolumeFile {
    fn drop(&mut self) {
        lock(&self.volume.files).table.let_go(self.number);
    }
}

impl DeviceFile for VolumeFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.volume.read(self.number, buffer, offset, self.way)
    }

    fn read_onto(&self, buffer: &mut Vec<u8>, length: usize, offset: u64) -> io::Result<usize> {
        // Never more than there is: the length may be that of damaged bytes.
        let there = self.volume.known_size_bytes(self.number).saturating_sub(offset);
        let length = length.min(usize::try_from(there).unwrap_or(usize::MAX));
        let before = buffer.len();
        buffer.resize(before + length, 0);
        let read = self.volume.read(self.number, &mut buffer[before..], offset, self.way);
        buffer.truncate(before + read.as_ref().copied().unwrap_or(0));
        read
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.volume.write(self.number, data, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.volume.sync(self.is_acknowledged_by)
    }

    fn size(&self) -> io::Result<u64> {
        self.volume.size_bytes(self.number)
    }

    fn set_size(&self, size_bytes: u64) -> io::Result<()> {
        self.volume.set_size(self.number, size_bytes)
    }

    fn start_writeback(&self, _offset: u64, _length: u64) {}

    fn drop_cache(&self) {
        self.volume.forget(self.number);
    }

    fn will_read(&self, offset: u64, length: u64) {
        self.volume.will_read(self.number, offset..offset.saturating_add(length), self.way);
    }

    fn copy(&self, turn: usize) -> Option<io::Result<Arc<dyn DeviceFile>>> {
        // The only device has its bytes twice: in caches, and in the bucket.
        let is_another = turn == 1 && self.way == Way::Kept;
        is_another.then(|| {
            lock(&self.volume.files).table.hold(self.number);
            let (volume, number) = (Arc::clone(&self.volume), self.number);
            let file = VolumeFile { volume, number, is_acknowledged_by: self.is_acknowledged_by, way: Way::Renewed };
            Ok(Arc::new(file) as Arc<dyn DeviceFile>)
        })
    }
}
