//! Memory for large tables within a bound: blocks in an unnamed file that is mapped, whose pages leave the process when
//! it has more in memory than it may.
//!
//! [`Spill`] is an allocator for the collections of `allocator-api2`. Without a bound it is the global one. With a
//! bound, blocks of [`SMALLEST_BYTES`] and more are taken from the file, one after the other; [`Spill::relieve`], which
//! whoever fills or reads the tables calls now and then, asks the kernel to take the pages out of the process once its
//! resident set reaches seven eighths of the bound (`MADV_DONTNEED`). They stay in the page cache as long as the
//! machine has memory for that, and are read again when they are needed.
//!
//! **Invariants**: a block stays where it is until it is freed, and its extent until the last clone of the allocator
//! that has it is gone, for each collection has one. Disk space is reserved before an extent is mapped (fallocate(2)),
//! so that writing to it cannot fail for lack of it. Nobody else can open the file, which has no name.
//!
//! **Failures that it survives**: no space, or a file system that cannot reserve any. From then on blocks are on the
//! heap, and [`Spill::is_full`] says so. A page that cannot be read back ends the process (`SIGBUS`), as one that
//! cannot be read back from swap space does; and so does one that a file system which never writes in place (btrfs) has
//! no room for, although it was reserved.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use allocator_api2::alloc::{AllocError, Allocator, Global, Layout};
use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::mm::{Advice, MapFlags, ProtFlags};

/// Smaller blocks are on the heap.
pub const SMALLEST_BYTES: usize = 1024;
/// The file grows by this much, or by the size of a larger block.
const EXTENT_BYTES: usize = 16 << 20;
/// A hole in the file costs up to a millisecond, so the space of smaller blocks is not given back.
const SMALLEST_GIVEN_BACK_BYTES: usize = 1 << 20;
/// Blocks begin at multiples of this: a cache line.
const ALIGNMENT_BYTES: usize = 64;
/// `TMPFS_MAGIC` and `RAMFS_MAGIC` in Linux `include/uapi/linux/magic.h`. (An overlay of one has a magic of its own,
/// and is not noticed.)
const IN_MEMORY: [i64; 2] = [0x0102_1994, 0x8584_58f6];
/// `relieve` looks at the resident set this often.
const CALLS_A_LOOK: u64 = 8;

/// An allocator that keeps large blocks in a file if it has a bound.
#[derive(Debug, Clone, Default)]
pub struct Spill(Option<Arc<Arena>>);

#[derive(Debug)]
struct Arena {
    extents: Mutex<Extents>,
    /// `/proc/self/statm`.
    resident: File,
    page_bytes: usize,
    bound_bytes: u64,
    /// The size of the resident set from which pages are taken out: seven eighths of the bound, or more as long as much
    /// of it is not in the file.
    relieved_from_bytes: AtomicU64,
    calls: AtomicU64,
    is_full: AtomicBool,
}

#[derive(Debug)]
struct Extents {
    file: File,
    file_bytes: u64,
    /// Addresses and lengths of mappings.
    mapped: BTreeMap<usize, usize>,
    /// The rest of the newest one.
    free: std::ops::Range<usize>,
}

impl Spill {
    /// An allocator for a process whose resident set should be at most `bound_bytes`, with a file in `directory`.
    ///
    /// # Errors
    /// Those of creating a file there, and of opening `/proc/self/statm`; `Unsupported` if the file would be in memory
    /// too.
    pub fn within(bound_bytes: u64, directory: &Path) -> io::Result<Spill> {
        let file = unnamed_file(directory)?;
        if IN_MEMORY.contains(&rustix::fs::fstatfs(&file)?.f_type) {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "its files are in memory (tmpfs or ramfs)"));
        }
        let extents = Extents { file, file_bytes: 0, mapped: BTreeMap::new(), free: 0..0 };
        Ok(Spill(Some(Arc::new(Arena {
            extents: Mutex::new(extents),
            resident: File::open("/proc/self/statm")?,
            page_bytes: rustix::param::page_size(),
            bound_bytes,
            relieved_from_bytes: AtomicU64::new(bound_bytes - bound_bytes / 8),
            calls: AtomicU64::new(0),
            is_full: AtomicBool::new(false),
        }))))
    }

    /// Takes pages of the file out of the process if it has more in memory than it may. Cheap enough to be called for
    /// every few thousand entries of a table.
    pub fn relieve(&self) {
        let Some(arena) = self.0.as_deref() else { return };
        if arena.calls.fetch_add(1, Relaxed) % CALLS_A_LOOK == 0 {
            arena.take_out_pages();
        }
    }

    /// The same, with a look at the resident set in each call: for loops that read rows in no order. The kernel maps 16
    /// pages for each that is read.
    pub fn relieve_now(&self) {
        if let Some(arena) = self.0.as_deref() {
            arena.take_out_pages();
        }
    }

    /// Whether some blocks that belong in the file are on the heap, because it could not grow.
    pub fn is_full(&self) -> bool {
        self.0.as_deref().is_some_and(|arena| arena.is_full.load(Relaxed))
    }

    /// Size of the file.
    #[cfg(test)]
    fn file_bytes(&self) -> u64 {
        self.0.as_deref().map_or(0, |arena| arena.extents().file_bytes)
    }
}

/// A file without a name, open for reading and writing. Where file systems cannot make one, its name is removed at
/// once.
///
/// # Errors
/// Those of creating a file in `directory`.
pub fn unnamed_file(directory: &Path) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    match rustix::fs::open(directory, flags | OFlags::TMPFILE, Mode::RUSR | Mode::WUSR) {
        Ok(file) => Ok(file.into()),
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::ISDIR) => {
            let path = directory.join(format!(".granulo-{}", std::process::id()));
            let file = rustix::fs::open(&path, flags | OFlags::CREATE | OFlags::EXCL, Mode::RUSR | Mode::WUSR)?;
            fs::remove_file(&path)?;
            Ok(file.into())
        }
        Err(error) => Err(error.into()),
    }
}

impl Arena {
    fn extents(&self) -> MutexGuard<'_, Extents> {
        self.extents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The resident set of the process; 0 if it cannot be read.
    fn resident_bytes(&self) -> u64 {
        let mut text = [0; 128];
        let read = self.resident.read_at(&mut text, 0).unwrap_or(0);
        let text = std::str::from_utf8(text.get(..read).unwrap_or_default()).unwrap_or_default();
        let pages: u64 = text.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
        pages * self.page_bytes as u64
    }

    /// Takes the pages out if the resident set has reached the size for that; one that cannot be read never has.
    fn take_out_pages(&self) {
        let resident_bytes = self.resident_bytes();
        if resident_bytes < self.relieved_from_bytes.load(Relaxed) {
            // What was not in the file may have become less since.
            self.relieved_from_bytes.fetch_min(self.next_from_bytes(resident_bytes), Relaxed);
            return;
        }
        // If another thread does it or allocates, the next call will do.
        let extents = match self.extents.try_lock() {
            Ok(extents) => extents,
            Err(TryLockError::Poisoned(extents)) => extents.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        for (&start, &length) in &extents.mapped {
            // SAFETY: the range is a whole mapping of ours, which is unmapped only when the arena is dropped. The
            // contents of its pages do not change: of a shared mapping, the file has them (madvise(2)).
            let _ = unsafe { rustix::mm::madvise(start as *mut _, length, Advice::LinuxDontNeed) };
        }
        // What is left is mostly not in the file.
        self.relieved_from_bytes.store(self.next_from_bytes(self.resident_bytes()), Relaxed);
    }

    /// The size of the resident set at which there is something to gain: by an eighth of the bound above what it is.
    fn next_from_bytes(&self, resident_bytes: u64) -> u64 {
        let bound = self.bound_bytes;
        (bound - bound / 8).max(resident_bytes + bound / 8)
    }

    fn allocate(&self, layout: Layout) -> io::Result<NonNull<[u8]>> {
        let mut extents = self.extents();
        let alignment = layout.align().max(ALIGNMENT_BYTES);
        let begin = extents.free.start.next_multiple_of(alignment);
        let begin = match begin.checked_add(layout.size()).filter(|&end| end <= extents.free.end) {
            Some(_) => begin,
            None => {
                extents.grow(layout.size().max(EXTENT_BYTES).next_multiple_of(self.page_bytes))?;
                // A mapping begins at a page.
                assert!(alignment <= self.page_bytes, "no type is aligned to more than a page");
                extents.free.start
            }
        };
        extents.free.start = begin + layout.size();
        let start = NonNull::new(begin as *mut u8).ok_or(io::ErrorKind::InvalidData)?;
        Ok(NonNull::slice_from_raw_parts(start, layout.size()))
    }

    /// Whether an address is in one of the mappings.
    fn has(&self, address: usize) -> bool {
        let extents = self.extents();
        extents.mapped.range(..=address).next_back().is_some_and(|(&start, &length)| address - start < length)
    }

    /// Gives the space of the whole pages in a range of a mapping back to the file system, if it is worth the hole.
    fn give_back(&self, start: usize, length: usize) {
        if length < SMALLEST_GIVEN_BACK_BYTES {
            return;
        }
        let begin = start.next_multiple_of(self.page_bytes);
        let end = (start + length) / self.page_bytes * self.page_bytes;
        if begin < end {
            // SAFETY: the caller has freed the range, which is in one of our mappings, so that no reference to it
            // exists and its contents no longer matter.
            let _ = unsafe { rustix::mm::madvise(begin as *mut _, end - begin, Advice::LinuxRemove) };
        }
    }
}

impl Extents {
    /// Maps one more extent of the file, and continues there.
    fn grow(&mut self, length: usize) -> io::Result<()> {
        rustix::fs::fallocate(&self.file, FallocateFlags::empty(), self.file_bytes, length as u64)?;
        let (access, offset) = (ProtFlags::READ | ProtFlags::WRITE, self.file_bytes);
        // SAFETY: a new mapping at an address that the kernel chooses touches no other memory. The file has no name and
        // is never truncated, and the range has its space.
        let start =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), length, access, MapFlags::SHARED, &self.file, offset)? }
                as usize;
        self.file_bytes += length as u64;
        self.mapped.insert(start, length);
        self.free = start..start + length;
        Ok(())
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        for (&start, &length) in &self.extents().mapped {
            // SAFETY: this is the whole of a mapping that nothing else owns: each block in it belonged to a collection
            // with a clone of the allocator, and the last clone is gone.
            let _ = unsafe { rustix::mm::munmap(start as *mut _, length) };
        }
    }
}

// SAFETY: a block of the arena is a range of a mapping that no other block has, aligned as asked, and mapped until the
// arena is dropped, after the last clone of the allocator; other blocks are those of the global allocator, which gets
// them back. Moving or cloning the allocator moves nothing.
unsafe impl Allocator for Spill {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        match self.0.as_deref().filter(|arena| layout.size() >= SMALLEST_BYTES && !arena.is_full.load(Relaxed)) {
            None => Global.allocate(layout),
            Some(arena) => arena.allocate(layout).or_else(|_| {
                arena.is_full.store(true, Relaxed);
                Global.allocate(layout)
            }),
        }
    }

    unsafe fn deallocate(&self, block: NonNull<u8>, layout: Layout) {
        let address = block.as_ptr() as usize;
        match self.0.as_deref().filter(|arena| layout.size() >= SMALLEST_BYTES && arena.has(address)) {
            Some(arena) => {
                arena.give_back(address, layout.size());
                // Whoever drops the rows of many blocks reads them.
                self.relieve();
            }
            // SAFETY: the block is not in the arena, so the global allocator made it, with this layout.
            None => unsafe { Global.deallocate(block, layout) },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use allocator_api2::vec::Vec;

    use super::*;

    /// Bytes of a mapping that are in memory.
    fn resident_bytes(of: usize) -> u64 {
        let maps = fs::read_to_string("/proc/self/smaps").unwrap();
        let mut lines = maps.lines();
        let is_it = |line: &&str| {
            let range = line.split(' ').next().and_then(|range| range.split_once('-'));
            let bounds = range.and_then(|(start, end)| {
                Some(usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?)
            });
            bounds.is_some_and(|bounds| bounds.contains(&of))
        };
        lines.by_ref().find(is_it).unwrap();
        let resident = lines.find_map(|line| line.strip_prefix("Rss:")).unwrap();
        resident.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
    }

    /// In a directory for temporary files, if that is on a device.
    fn spill(bound_bytes: u64) -> Option<Spill> {
        let sandbox = tempfile::tempdir().unwrap();
        match Spill::within(bound_bytes, sandbox.path()) {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                let said = io::stderr().write_all(b"SKIPPED: temporary files are in memory\n");
                said.ok().and(None)
            }
            spill => {
                assert_eq!(fs::read_dir(sandbox.path()).unwrap().count(), 0, "the file has a name");
                Some(spill.unwrap())
            }
        }
    }

    #[test]
    fn pages_leave_the_process_and_come_back_as_they_were() {
        let Some(spill) = spill(1) else { return };
        let mut numbers: Vec<u64, Spill> = Vec::with_capacity_in(1 << 20, spill.clone());
        numbers.extend((0..1 << 20).map(|number: u64| number * 3));
        let address = numbers.as_ptr() as usize;
        assert!(resident_bytes(address) >= 8 << 20);
        spill.relieve();
        assert!(resident_bytes(address) < 1 << 20, "{} bytes are in memory", resident_bytes(address));
        assert!(numbers.iter().zip(0..).all(|(&number, index): (&u64, u64)| number == index * 3));
        assert_eq!((spill.file_bytes(), spill.is_full()), (EXTENT_BYTES as u64, false));
    }

    #[test]
    fn blocks_grow_move_and_end_like_those_of_the_heap() {
        for spill in [Some(Spill::default()), spill(1 << 30)].into_iter().flatten() {
            let mut tables: Vec<Vec<u32, Spill>, Spill> = Vec::new_in(spill.clone());
            for table in 0..100 {
                let mut grown = Vec::new_in(spill.clone());
                grown.extend((0..table * 100).map(|number| number ^ table));
                grown.truncate(table as usize * 50);
                grown.shrink_to_fit();
                tables.push(grown);
            }
            // More than an extent.
            let mut large: Vec<u8, Spill> = Vec::new_in(spill.clone());
            large.resize(EXTENT_BYTES + 1, 7);
            for (table, numbers) in (0..).zip(&tables) {
                assert!(numbers.iter().zip(0..).all(|(&number, index): (&u32, u32)| number == index ^ table));
            }
            assert!(large.iter().all(|&byte| byte == 7));
            drop(spill);
            let kept = tables.pop().unwrap();
            drop(tables);
            assert_eq!(kept.len(), 99 * 50);
        }
    }

    #[test]
    fn what_the_file_has_no_room_for_is_on_the_heap() {
        let Some(spill) = spill(1 << 30) else { return };
        let arena = spill.0.as_deref().unwrap();
        // A file that is not open for writing cannot grow.
        arena.extents().file = File::open("/dev/null").unwrap();
        let mut numbers: Vec<u64, Spill> = Vec::new_in(spill.clone());
        numbers.extend(0..10_000);
        assert!(spill.is_full() && spill.file_bytes() == 0);
        assert_eq!(numbers.iter().sum::<u64>(), 10_000 * 9999 / 2);
    }
}
