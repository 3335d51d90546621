//! What a file system lies on: a block device, an image file, or bytes in memory. Read only, by position.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{Advice, fadvise};

/// Bytes at positions.
pub trait Medium: Sync {
    /// Fills `bytes` from `offset`.
    ///
    /// # Errors
    /// What reading fails with; `UnexpectedEof` behind the end.
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()>;

    /// How long it is.
    fn length_bytes(&self) -> u64;

    /// Says that a range will be read soon.
    fn will_need(&self, _offset: u64, _length: u64) {}
}

/// A block device or an image file.
#[derive(Debug)]
pub struct Device {
    file: File,
    length_bytes: u64,
}

impl Device {
    /// Opens it for reading.
    ///
    /// # Errors
    /// What opening or measuring it fails with.
    pub fn open(path: &Path) -> io::Result<Device> {
        let mut file = File::open(path)?;
        // Of a block device only seeking tells the length.
        let length_bytes = file.seek(SeekFrom::End(0))?;
        // Tables are read from front to back; that this is said is no more than a hint.
        let _ = fadvise(&file, 0, None, Advice::Sequential);
        Ok(Device { file, length_bytes })
    }
}

impl Medium for Device {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(bytes, offset)
    }

    fn length_bytes(&self) -> u64 {
        self.length_bytes
    }

    fn will_need(&self, offset: u64, length: u64) {
        let _ = fadvise(&self.file, offset, std::num::NonZeroU64::new(length), Advice::WillNeed);
    }
}

impl Medium for [u8] {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let part = self.get(start..).and_then(|rest| rest.get(..bytes.len()));
        bytes.copy_from_slice(part.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn length_bytes(&self) -> u64 {
        self.len() as u64
    }
}

impl<M: Medium + ?Sized> Medium for &M {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        (**self).read_at(bytes, offset)
    }

    fn length_bytes(&self) -> u64 {
        (**self).length_bytes()
    }

    fn will_need(&self, offset: u64, length: u64) {
        (**self).will_need(offset, length);
    }
}

/// How far a window reads on when what is asked for lies just behind it.
const AHEAD_BYTES: usize = 64 << 10;

/// A part of a medium in memory, so that what is read in the order of the device is read in large pieces.
#[derive(Debug, Default)]
pub(super) struct Window {
    bytes: Vec<u8>,
    start: u64,
}

impl Window {
    /// `length` bytes at `offset`.
    pub(super) fn read(&mut self, medium: &(impl Medium + ?Sized), offset: u64, length: usize) -> io::Result<&[u8]> {
        let end = self.start + self.bytes.len() as u64;
        if offset < self.start || offset + length as u64 > end {
            let behind = offset >= self.start && offset <= end.saturating_add(AHEAD_BYTES as u64 / 4);
            let follows = behind && !self.bytes.is_empty();
            let rest = medium.length_bytes().saturating_sub(offset);
            let wanted = if follows { length.max(AHEAD_BYTES.min(rest.min(1 << 30) as usize)) } else { length };
            self.bytes.resize(wanted, 0);
            if let Err(error) = medium.read_at(&mut self.bytes, offset) {
                self.bytes.clear();
                return Err(error);
            }
            self.start = offset;
        }
        let at = (offset - self.start) as usize;
        Ok(&self.bytes[at..at + length])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_gives_what_is_there_and_never_more() {
        let bytes: Vec<u8> = (0..1_000_000u32).map(|i| (i % 251) as u8).collect();
        let mut window = Window::default();
        for (offset, length) in [(0, 10), (10, 10), (20, 300_000), (5, 1), (999_990, 10), (999_000, 5), (999_004, 996)]
        {
            let read = window.read(&bytes[..], offset, length).unwrap();
            assert_eq!(read, &bytes[offset as usize..offset as usize + length]);
        }
        assert!(window.read(&bytes[..], 999_995, 6).is_err());
        assert_eq!(window.read(&bytes[..], 999_995, 5).unwrap(), &bytes[999_995..]);
    }
}
