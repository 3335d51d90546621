//! Memory that nobody can change any more, shared by processes: a sealed memfd, mapped (memfd_create(2),
//! `F_ADD_SEALS`).
//!
//! **Invariant**: the file has the seals against writing, growing and shrinking, so its bytes are the same for as long
//! as it exists, in whichever process. That is what makes a shared slice of it sound. It has no name: it is gone when
//! the last process that holds it has closed it, whichever way that ends.
//!
//! The mapping is private: its pages are those of the file, as nobody writes to them, so it costs no memory of its own.
//! A shared one is refused by Linux before 6.7 (`EPERM`) for a file that is sealed against writing and open for it,
//! whatever the mapping permits.

use std::fs::File;
use std::io::{self, Seek};
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

/// The seals without which a file is not mapped.
const SEALS: SealFlags = SealFlags::WRITE.union(SealFlags::GROW).union(SealFlags::SHRINK).union(SealFlags::SEAL);

/// A file in memory, to be written and then [sealed](SealedMemory::seal). `name` is only for people who look at a
/// process.
///
/// # Errors
/// Those of memfd_create(2).
pub fn memory_file(name: &str) -> io::Result<File> {
    Ok(rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?.into())
}

/// Bytes that never change, mapped from a sealed file in memory.
#[derive(Debug)]
pub struct SealedMemory {
    file: OwnedFd,
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the bytes are read only, by this process and by all others, and the mapping has no owner thread.
unsafe impl Send for SealedMemory {}
// SAFETY: as above.
unsafe impl Sync for SealedMemory {}

impl SealedMemory {
    /// Seals a file of [`memory_file`] and maps it.
    ///
    /// # Errors
    /// Those of fcntl(2) and mmap(2): `EBUSY` if something has it mapped for writing.
    pub fn seal(file: File) -> io::Result<SealedMemory> {
        rustix::fs::fcntl_add_seals(&file, SEALS)?;
        SealedMemory::open(file.into())
    }

    /// Maps a file that is sealed already, such as one that another process made.
    ///
    /// # Errors
    /// `InvalidData` if it is not sealed; errors of mmap(2).
    pub fn open(file: OwnedFd) -> io::Result<SealedMemory> {
        let seals = rustix::fs::fcntl_get_seals(&file)?;
        if !seals.contains(SEALS) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the memory is not sealed"));
        }
        let mut file = File::from(file);
        let length = usize::try_from(file.seek(io::SeekFrom::End(0))?).map_err(io::Error::other)?;
        let mut start = NonNull::dangling();
        if length > 0 {
            // SAFETY: a new mapping at an address that the kernel chooses touches no other memory. The file is sealed
            // against changes of its bytes and its length, so that no access faults and no byte changes.
            let mapped = unsafe {
                rustix::mm::mmap(std::ptr::null_mut(), length, ProtFlags::READ, MapFlags::PRIVATE, &file, 0)?
            };
            start = NonNull::new(mapped.cast()).ok_or(io::ErrorKind::InvalidData)?;
        }
        Ok(SealedMemory { file: file.into(), start, length })
    }
}

impl AsFd for SealedMemory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Deref for SealedMemory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `length` bytes are mapped from `start` on until this is dropped (none, and an aligned address, if it
        // is 0), and the seals keep every process from changing them.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl Drop for SealedMemory {
    fn drop(&mut self) {
        if self.length > 0 {
            // SAFETY: this is the whole of a mapping that nothing else owns, and every slice of it has ended.
            let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.length) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::FileExt;

    #[test]
    fn sealed_bytes_are_shared_and_cannot_be_changed() {
        let mut file = memory_file("test").unwrap();
        file.write_all(b"granulo").unwrap();
        let other = file.try_clone().unwrap();
        let memory = SealedMemory::seal(file).unwrap();
        assert_eq!(&memory[..], b"granulo");
        assert!(other.write_all_at(b"G", 0).is_err() && other.set_len(1).is_err() && other.set_len(100).is_err());
        let again = SealedMemory::open(memory.as_fd().try_clone_to_owned().unwrap()).unwrap();
        drop(memory);
        assert_eq!(&again[..], b"granulo");
    }

    /// What a mapping permits, as in `/proc/self/maps`.
    fn permissions(of: usize) -> String {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let line = maps.lines().find(|line| line.starts_with(&format!("{of:x}-"))).unwrap();
        line.split(' ').nth(1).unwrap().to_owned()
    }

    #[test]
    fn the_mapping_is_one_that_every_kernel_makes() {
        let mut file = memory_file("test").unwrap();
        file.write_all(b"granulo").unwrap();
        let memory = SealedMemory::seal(file).unwrap();
        assert_eq!(permissions(memory.as_ptr() as usize), "r--p", "before 6.7, Linux refuses a shared one");
    }

    #[test]
    fn empty_memory_is_an_empty_slice_and_what_is_not_sealed_is_refused() {
        assert!(SealedMemory::seal(memory_file("test").unwrap()).unwrap().is_empty());
        let error = SealedMemory::open(memory_file("test").unwrap().into()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert!(SealedMemory::open(tempfile::tempfile().unwrap().into()).is_err());
    }
}
