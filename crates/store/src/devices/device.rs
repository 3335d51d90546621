//! A device as seen by the store: a directory of files that are written at offsets and synced.
//!
//! [`Directory`](super::directory::Directory) is the real one. The store's crash and fault tests substitute another
//! that distinguishes written from durable bytes, so nothing here promises more than docs/FORMAT.md section 2 assumes
//! of media.

use std::fmt::{self, Debug};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Must exist; only read.
    Read,
    /// Must exist; read and written.
    Write,
    /// Must not exist; read and written. The name is durable after [`Device::sync_directory`].
    Create,
}

/// A file could not be asked for: the bucket did not answer, or refused to. It says nothing about what the file has, so
/// it is no damage, and nothing is lost by it.
#[derive(Debug)]
pub(crate) struct Unanswered(String);

impl Unanswered {
    /// An error that says so, with the kind and the words of another.
    pub(crate) fn of(error: &io::Error) -> io::Error {
        io::Error::new(error.kind(), Unanswered(error.to_string()))
    }

    /// Whether an error is one of these.
    pub(crate) fn is(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|inner| inner.is::<Unanswered>())
    }
}

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unanswered {}

/// In the place of a file is something else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotAFile(pub(crate) &'static str);

impl NotAFile {
    /// Whether an error is one of these.
    pub(crate) fn is(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|inner| inner.is::<NotAFile>())
    }
}

impl fmt::Display for NotAFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "it is {}, not a file", self.0)
    }
}

impl std::error::Error for NotAFile {}

impl From<NotAFile> for io::Error {
    fn from(found: NotAFile) -> io::Error {
        io::Error::other(found)
    }
}

/// Space on a device, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Size of the file system that contains the directory, without what is reserved for root.
    pub total_bytes: u64,
    /// Bytes that this user may still write.
    pub available_bytes: u64,
}

/// Bytes of a cache line.
const LINE_BYTES: usize = 64;

/// Clears `buffer` and prepares it for `length` bytes read from `offset`, to begin as far past a multiple of 64 bytes
/// as `offset` is. Returns where they begin.
///
/// The kernel copies with `rep movsb`, which is three to five times slower if the target is 1 to 63 bytes further into
/// its page than the source into its own (measured on an EPYC: 2.3 instead of 11 GB/s). Large allocations begin 16
/// bytes into a page.
pub(crate) fn make_landing(buffer: &mut Vec<u8>, length: usize, offset: u64) -> usize {
    buffer.clear();
    buffer.reserve_exact(length + LINE_BYTES);
    let begin = (offset as usize).wrapping_sub(buffer.as_ptr() as usize) % LINE_BYTES;
    buffer.resize(begin, 0);
    begin
}

/// A directory on a device. Paths are relative to it, with `/` between components.
pub(crate) trait Device: Send + Sync + Debug {
    /// Its location, for messages.
    fn place(&self) -> PathBuf;
    /// Opens the file at `path`.
    fn open(&self, path: &str, mode: Mode) -> io::Result<Arc<dyn DeviceFile>>;
    /// Names and sizes in bytes of the files in `directory`, unordered. A directory that does not exist is empty.
    fn list(&self, directory: &str) -> io::Result<Vec<(String, u64)>>;
    /// As [`list`](Self::list), without the sizes.
    fn list_names(&self, directory: &str) -> io::Result<Vec<String>> {
        Ok(self.list(directory)?.into_iter().map(|(name, _)| name).collect())
    }
    /// Names in `directory` of what is no regular file.
    fn list_others(&self, _directory: &str) -> io::Result<Vec<(String, NotAFile)>> {
        Ok(Vec::new())
    }
    /// Creates `directory` and its ancestors, and makes their names durable. Existing ones are left alone.
    fn create_directory(&self, directory: &str) -> io::Result<()>;
    /// Makes names created, renamed or removed in `directory` durable.
    fn sync_directory(&self, directory: &str) -> io::Result<()>;
    /// Removes a file; open handles stay readable.
    fn remove(&self, path: &str) -> io::Result<()>;
    /// Renames a file, replacing the target.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Space on the file system.
    fn room(&self) -> io::Result<Room>;
}

/// An open file on a device.
pub(crate) trait DeviceFile: Send + Sync + Debug {
    /// Reads up to `buffer.len()` bytes from `offset`; fewer only at the end of the file.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Appends up to `length` bytes from `offset` to `buffer`; returns how many, fewer only at the end of the file.
    /// Memory need not be cleared first if the capacity of `buffer` is at least `length` bytes and not much more: for
    /// example if it is empty, or was allocated for this read. After an error, `buffer` is unchanged.
    fn read_onto(&self, buffer: &mut Vec<u8>, length: usize, offset: u64) -> io::Result<usize>;
    /// Writes all of `data` at `offset`.
    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()>;
    /// As [`write_at`](Self::write_at), for a piece that is appended. A large one may bypass the page cache; then the
    /// call waits for the device.
    fn append_at(&self, piece: &[u8], offset: u64) -> io::Result<()> {
        self.write_at(piece, offset)
    }
    /// Makes everything written durable, and the size of the file (`fdatasync`).
    fn sync(&self) -> io::Result<()>;
    /// Size in bytes.
    fn size(&self) -> io::Result<u64>;
    /// Truncates the file, or extends it by a hole.
    fn set_size(&self, size_bytes: u64) -> io::Result<()>;
    /// Starts write-back of the dirty bytes in a range without waiting, so that a later [`sync`](Self::sync) has little
    /// to do; a hint without guarantees.
    fn start_writeback(&self, offset: u64, length: u64);
    /// Syncs the file and drops what is cached of it, so that the next read asks the device: what a failed sync left
    /// only in memory is no longer seen. A hint: its size, and pages in use elsewhere, stay.
    fn drop_cache(&self) {}
    /// Announces that a range will be read soon, so that the device can begin; a hint without guarantees.
    fn will_read(&self, _offset: u64, _length: u64) {}
    /// Opens the `turn`-th copy of a file that several devices have; `None` if there are no more.
    fn copy(&self, _turn: usize) -> Option<io::Result<Arc<dyn DeviceFile>>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_land_on_a_line_whatever_there_was_before() {
        let mut buffer = vec![7; 100];
        for (length, offset) in [(0, 0), (1, 5), (4096, 0), (1 << 20, 4_000_000_063), (300, u64::MAX)] {
            let begin = make_landing(&mut buffer, length, offset);
            assert_eq!((buffer.as_ptr() as usize + begin) % LINE_BYTES, offset as usize % LINE_BYTES);
            assert!(begin < LINE_BYTES && buffer.len() == begin && buffer.capacity() >= begin + length);
        }
    }
}
