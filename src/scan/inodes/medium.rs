//! What a file system is stored on: a block device, an image file, or bytes in memory. Read-only, by offset.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{Advice, OFlags, fadvise};

/// Bytes at offsets.
pub trait Medium: Sync {
    /// Fills `bytes` with the current content at `offset`.
    ///
    /// # Errors
    /// Errors from reading; `UnexpectedEof` past the end.
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()>;

    /// Same as [`read_at`](Self::read_at), with content from any time since the medium was opened: a range announced by
    /// [`will_need`](Self::will_need) may have been read then.
    ///
    /// # Errors
    /// Same as [`read_at`](Self::read_at).
    fn read_since_opened(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_at(bytes, offset)
    }

    /// Its length.
    fn length_bytes(&self) -> u64;

    /// Announces that a range will be read soon.
    fn will_need(&self, _offset: u64, _length: u64) {}

    /// Announces that from now on only requested ranges are read, without read-ahead.
    fn will_not_go_on(&self) {}
}

/// Alignment of direct reads; no existing device has larger sectors.
const ALIGNED_BYTES: usize = 4096;

thread_local! {
    /// Buffer for direct reads.
    static ALIGNED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A block device or an image file.
#[derive(Debug)]
pub struct Device {
    file: File,
    length_bytes: u64,
    /// Descriptor for direct reads, where the page cache may differ from the device.
    past_cache: Option<File>,
}

impl Device {
    /// Opens it for reading.
    ///
    /// # Errors
    /// Errors from opening it or reading its length.
    pub fn open(path: &Path) -> io::Result<Device> {
        let mut file = File::open(path)?;
        // Only seeking returns the length of a block device.
        let length_bytes = file.seek(SeekFrom::End(0))?;
        // Tables are read from front to back; this is only a hint.
        let _ = fadvise(&file, 0, None, Advice::Sequential);
        Ok(Device { file, length_bytes, past_cache: None })
    }

    /// Opens it so that a block device is read itself: btrfs and xfs write their metadata past the device's page cache,
    /// which may be stale. So the page cache is dropped first (except pages that another process has mapped), and used
    /// for reading ahead. An image file has a single page cache.
    ///
    /// # Errors
    /// Errors from opening it or reading its length.
    pub fn open_past_cache(path: &Path) -> io::Result<Device> {
        let mut device = Device::open(path)?;
        if device.file.metadata()?.file_type().is_block_device() {
            let flags = OFlags::DIRECT.bits() as i32;
            device.past_cache = Some(File::options().read(true).custom_flags(flags).open(path)?);
            device.will_not_go_on();
            device.empty_cache();
        }
        Ok(device)
    }

    fn empty_cache(&self) {
        let _ = fadvise(&self.file, 0, None, Advice::DontNeed);
    }

    fn read_direct(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let aligned = ALIGNED_BYTES as u64;
        let before = (offset % aligned) as usize;
        let length = (before + bytes.len()).next_multiple_of(ALIGNED_BYTES);
        ALIGNED.with_borrow_mut(|buffer| {
            if buffer.len() < length + ALIGNED_BYTES {
                buffer.resize(length + ALIGNED_BYTES, 0);
            }
            let start = buffer.as_ptr().align_offset(ALIGNED_BYTES);
            let buffer = buffer.get_mut(start..start + length).ok_or(io::ErrorKind::OutOfMemory)?;
            let mut filled = 0;
            while filled < before + bytes.len() {
                let rest = buffer.get_mut(filled..).unwrap_or_default();
                match file.read_at(rest, offset - before as u64 + filled as u64) {
                    Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                    Ok(count) => filled += count,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            let read = buffer.get(before..before + bytes.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
            bytes.copy_from_slice(read);
            Ok(())
        })
    }
}

impl Medium for Device {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        match &self.past_cache {
            Some(file) => Device::read_direct(file, bytes, offset),
            None => self.file.read_exact_at(bytes, offset),
        }
    }

    fn read_since_opened(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(bytes, offset)
    }

    fn length_bytes(&self) -> u64 {
        self.length_bytes
    }

    fn will_need(&self, offset: u64, length: u64) {
        let _ = fadvise(&self.file, offset, std::num::NonZeroU64::new(length), Advice::WillNeed);
    }

    fn will_not_go_on(&self) {
        let _ = fadvise(&self.file, 0, None, Advice::Random);
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // No other process uses it.
        if self.past_cache.is_some() {
            self.empty_cache();
        }
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

    fn read_since_opened(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        (**self).read_since_opened(bytes, offset)
    }

    fn length_bytes(&self) -> u64 {
        (**self).length_bytes()
    }

    fn will_need(&self, offset: u64, length: u64) {
        (**self).will_need(offset, length);
    }

    fn will_not_go_on(&self) {
        (**self).will_not_go_on();
    }
}

/// How far a window reads ahead when a request follows it directly.
const AHEAD_BYTES: usize = 64 << 10;

/// A part of a medium in memory, so that reads in device order become large ones.
#[derive(Debug, Default)]
pub(super) struct Window {
    bytes: Vec<u8>,
    start: u64,
}

impl Window {
    /// Returns `length` bytes at `offset`.
    pub(super) fn read(&mut self, medium: &(impl Medium + ?Sized), offset: u64, length: usize) -> io::Result<&[u8]> {
        let end = self.start + self.bytes.len() as u64;
        if offset < self.start || offset + length as u64 > end {
            let behind = offset >= self.start && offset <= end.saturating_add(AHEAD_BYTES as u64 / 4);
            let follows = behind && !self.bytes.is_empty();
            let rest = medium.length_bytes().saturating_sub(offset);
            let wanted = if follows { length.max(AHEAD_BYTES.min(rest.min(1 << 30) as usize)) } else { length };
            self.bytes.resize(wanted, 0);
            if let Err(error) = medium.read_since_opened(&mut self.bytes, offset) {
                self.bytes.clear();
                return Err(error);
            }
            self.start = offset;
        }
        let at = (offset - self.start) as usize;
        Ok(self.bytes.get(at..at + length).ok_or(io::ErrorKind::UnexpectedEof)?)
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
