//! A mounted XFS as the kernel has it in memory: inodes by `XFS_IOC_BULKSTAT`, directories opened by handle.
//!
//! XFS keeps its metadata past the page cache of the device, so a scan of the device reads from the device what the
//! kernel may have in memory. Where that is so (`inodes_in_memory`), the kernel is asked instead: one call for hundreds
//! of inodes, and three for a directory. What is reserved for copy-on-write and for delayed allocation is counted, as
//! `stat` counts it; nothing needs to be written back or replayed. Like a walk, the scan sees what changes meanwhile.
//! Of an inode with its content inside, the kernel reports no blocks, not even those of its attributes: `stat` does.
//!
//! Inodes that the kernel refuses because they are damaged are damage here, too. Source: Linux `fs/xfs/xfs_itable.c`,
//! `fs/xfs/xfs_export.c`.

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{OFlags, RawDir, readlinkat_raw};
use rustix::io::Errno;

use super::{Damage, Found, InodeSource, Listed, Slot};
use crate::scan::walk::stat_open;
use crate::scan::{Kind, Stat, Timestamp};
use crate::sys::bulkstat::{self, InodeChunk, InodeRecord, bulkstat, inode_chunks};
use crate::sys::open_handle;

/// Inodes of a chunk.
const CHUNK_INODES: u64 = 64;
/// Chunks per part.
const PART_CHUNKS: usize = 64;
/// Most inodes per call.
const CALL_INODES: u32 = 512;
/// Bytes of names per call.
const NAMES_BYTES: usize = 32 << 10;
/// The kind of handles with a 64-bit inode number and a generation: `XFS_FILEID_TYPE_64FLAG | FILEID_INO32_GEN`.
const HANDLE_KIND: i32 = 0x81;

/// A mounted XFS.
#[derive(Debug)]
pub struct MountedXfs {
    /// Its root directory.
    root: OwnedFd,
    root_inode: u64,
    device: u64,
    chunks: Vec<InodeChunk>,
}

/// What opens a directory.
#[derive(Debug)]
pub struct Listing {
    inode: u64,
    generation: u32,
}

/// Buffers that a thread reuses.
#[derive(Debug, Default)]
pub struct Buffers {
    inodes: bulkstat::Buffer,
    unfinished: Vec<Unfinished>,
    names: Vec<u8>,
}

/// An inode about which something else must be asked.
#[derive(Debug)]
struct Unfinished {
    offset: usize,
    stat: Stat,
    generation: u32,
    /// The blocks of its attributes were not reported.
    has_more_blocks: bool,
}

impl MountedXfs {
    /// Opens the XFS that is mounted at `point`, with its root there. Inodes are reported to be on `device`.
    ///
    /// # Errors
    /// Those of opening it; `ENOTTY` if it is no XFS or the kernel is older than 5.4; `EPERM` without `CAP_SYS_ADMIN`.
    pub fn open(point: &Path, device: u64) -> io::Result<MountedXfs> {
        let root = File::open(point)?;
        let root_inode = root.metadata()?.ino();
        let chunks = inode_chunks(root.as_fd(), &mut bulkstat::Buffer::default())?;
        Ok(MountedXfs { root: root.into(), root_inode, device, chunks })
    }

    fn chunks_of(&self, part: usize) -> &[InodeChunk] {
        self.chunks.chunks(PART_CHUNKS).nth(part).unwrap_or_default()
    }

    fn open_inode(&self, inode: u64, generation: u32, flags: OFlags) -> io::Result<OwnedFd> {
        let handle = [&HANDLE_KIND.to_ne_bytes()[..], &inode.to_ne_bytes(), &generation.to_ne_bytes()].concat();
        open_handle(self.root.as_fd(), &handle, flags)
    }

    /// Reports an inode, or leaves it for later.
    fn take(
        &self,
        offset: usize,
        record: &InodeRecord,
        unfinished: &mut Vec<Unfinished>,
        found: &mut dyn FnMut(Found<Listing>),
    ) {
        let &InodeRecord { inode, generation, mode, link_count, .. } = record;
        // Those without a name are deleted and still open.
        if link_count == 0 {
            return;
        }
        let Some(kind) = Kind::of_mode(mode) else {
            let error = super::damaged("its kind is unknown");
            return found(Found::Damaged(Damage { operation: "read the inode", inode: Some(inode), error }));
        };
        let time = |(seconds, nanoseconds)| Timestamp { seconds, nanoseconds };
        let stat = Stat {
            kind,
            size_bytes: record.size_bytes,
            allocated_bytes: record.allocated_bytes,
            link_count,
            uid: record.uid,
            gid: record.gid,
            mode,
            device: self.device,
            inode,
            mtime: time(record.mtime),
            ctime: time(record.ctime),
            atime: time(record.atime),
        };
        let has_more_blocks = record.allocated_bytes == 0 && record.attribute_extents > 0;
        if has_more_blocks || matches!(kind, Kind::Symlink { .. }) {
            unfinished.push(Unfinished { offset, stat, generation, has_more_blocks });
        } else {
            found(Found::Inode { offset, listing: listing_of(&stat, generation), stat });
        }
    }

    /// Asks for what is not known; `None` if the inode was removed meanwhile.
    fn finished(&self, unfinished: &Unfinished) -> io::Result<Option<Stat>> {
        let Unfinished { mut stat, generation, has_more_blocks, .. } = *unfinished;
        let inode = match self.open_inode(stat.inode, generation, OFlags::PATH | OFlags::NOFOLLOW) {
            Err(error) if is_gone(&error) => return Ok(None),
            inode => inode?,
        };
        if has_more_blocks {
            stat.allocated_bytes = stat_open(inode.as_fd())?.allocated_bytes;
        }
        if let Kind::Symlink { .. } = stat.kind {
            let mut first = [MaybeUninit::<u8>::uninit(); 1];
            let (target, _) = readlinkat_raw(&inode, c"", &mut first)?;
            stat.kind = Kind::Symlink { absolute: target.first() == Some(&b'/') };
        }
        Ok(Some(stat))
    }

    /// Lists an open directory.
    fn names(directory: BorrowedFd<'_>, names: &mut Vec<u8>, listed: &mut dyn FnMut(Listed<'_>)) -> Result<(), Errno> {
        names.clear();
        names.reserve(NAMES_BYTES);
        let mut entries = RawDir::new(directory, names.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = entry?;
            listed(Listed::Name(entry.file_name().to_bytes(), entry.ino()));
        }
        Ok(())
    }
}

/// What opens an inode for listing, if it is a directory.
fn listing_of(stat: &Stat, generation: u32) -> Option<Listing> {
    matches!(stat.kind, Kind::Directory).then_some(Listing { inode: stat.inode, generation })
}

/// Whether a handle leads to nothing any more.
fn is_gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::STALE.raw_os_error())
}

impl InodeSource for MountedXfs {
    type Listing = Listing;
    type Buffers = Buffers;

    fn root(&self) -> u64 {
        self.root_inode
    }

    fn parts(&self) -> usize {
        self.chunks.len().div_ceil(PART_CHUNKS)
    }

    fn slots(&self, part: usize) -> usize {
        self.chunks_of(part).len() * CHUNK_INODES as usize
    }

    fn slot(&self, inode: u64) -> Option<Slot> {
        let part_slots = PART_CHUNKS * CHUNK_INODES as usize;
        offset_in(&self.chunks, inode).map(|at| Slot { part: at / part_slots, offset: at % part_slots })
    }

    fn read_part(&self, part: usize, buffers: &mut Buffers, found: &mut impl FnMut(Found<Listing>)) {
        let Buffers { inodes, unfinished, .. } = buffers;
        let chunks = self.chunks_of(part);
        let Some(end) = chunks.last().map(|last| last.first + CHUNK_INODES) else { return };
        let mut next = chunks.first().map_or(0, |first| first.first);
        while next < end {
            // One more than are known, so that the last call of a part sees its end.
            let count = (in_use_from(chunks, next) + 1).min(CALL_INODES);
            match bulkstat(self.root.as_fd(), next, count, inodes) {
                Ok((records, behind)) => {
                    next = end;
                    for record in records {
                        next = behind;
                        if let Some(offset) = offset_in(chunks, record.inode) {
                            self.take(offset, &record, unfinished, found);
                        }
                    }
                }
                Err(error) => {
                    let inode = next_in_use(chunks, next);
                    found(Found::Damaged(Damage { operation: "read the inode", inode, error }));
                    next = inode.map_or(end, |inode| inode + 1);
                }
            }
        }
        for of_inode in unfinished.drain(..) {
            match self.finished(&of_inode) {
                Ok(Some(stat)) => {
                    let listing = listing_of(&stat, of_inode.generation);
                    found(Found::Inode { offset: of_inode.offset, stat, listing });
                }
                Ok(None) => {}
                Err(error) => {
                    let operation = match of_inode.stat.kind {
                        Kind::Symlink { .. } => "read the target of the symlink",
                        _ => "read the inode",
                    };
                    found(Found::Damaged(Damage { operation, inode: Some(of_inode.stat.inode), error }));
                }
            }
        }
    }

    fn position(&self, listing: &Listing) -> u64 {
        listing.inode
    }

    fn list(&self, inode: u64, listing: &Listing, buffers: &mut Buffers, listed: &mut dyn FnMut(Listed<'_>)) {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
        let listing = self.open_inode(inode, listing.generation, flags);
        match listing.and_then(|open| Ok(MountedXfs::names(open.as_fd(), &mut buffers.names, listed)?)) {
            Ok(()) => {}
            Err(error) if is_gone(&error) => listed(Listed::Gone),
            Err(error) => {
                listed(Listed::Damaged(Damage { operation: "list the directory", inode: Some(inode), error }));
            }
        }
    }

    fn begin_listing(&self) {}
}

/// The slot of an inode in consecutive chunks; `None` if it is in none of them.
fn offset_in(chunks: &[InodeChunk], inode: u64) -> Option<usize> {
    let at = chunks.partition_point(|chunk| chunk.first <= inode).checked_sub(1)?;
    let within = inode - chunks.get(at)?.first;
    (within < CHUNK_INODES).then(|| at * CHUNK_INODES as usize + within as usize)
}

/// For each chunk with inodes from a number on, the first of these, and a bit for each from there that is in use.
fn chunks_from(chunks: &[InodeChunk], from: u64) -> impl Iterator<Item = (u64, u64)> {
    chunks.iter().filter(move |chunk| chunk.first + CHUNK_INODES > from).map(move |chunk| {
        let first = chunk.first.max(from);
        (first, chunk.used >> (first - chunk.first))
    })
}

/// The first inode in use from a number on.
fn next_in_use(chunks: &[InodeChunk], from: u64) -> Option<u64> {
    let mut found = chunks_from(chunks, from).filter(|(_, used)| *used != 0);
    found.next().map(|(first, used)| first + u64::from(used.trailing_zeros()))
}

/// Number of inodes in use from a number on.
fn in_use_from(chunks: &[InodeChunk], from: u64) -> u32 {
    chunks_from(chunks, from).map(|(_, used)| used.count_ones()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inodes_are_found_within_a_chunk_and_in_the_next() {
        let chunks = [InodeChunk { first: 128, used: 0b1001 }, InodeChunk { first: 512, used: 1 << 63 }];
        for (from, want, count) in
            [(0, 128, 3), (128, 128, 3), (129, 131, 2), (131, 131, 2), (132, 575, 1), (575, 575, 1)]
        {
            assert_eq!((next_in_use(&chunks, from), in_use_from(&chunks, from)), (Some(want), count), "{from}");
        }
        assert_eq!((next_in_use(&chunks, 576), in_use_from(&chunks, 576)), (None, 0));
        assert_eq!(next_in_use(&[], 0), None);
        let offsets = [127, 128, 191, 192, 511, 512, 575, 576].map(|inode| offset_in(&chunks, inode));
        assert_eq!(offsets, [None, Some(0), Some(63), None, None, Some(64), Some(127), None]);
    }
}
