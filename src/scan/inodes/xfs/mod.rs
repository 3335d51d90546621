//! XFS, read from its device or an image.
//!
//! Inodes are in chunks of 64, listed in a B-tree of each allocation group; those that are not in use, deleted and
//! still open, or internal to the file system are left out. If the log has changes that were not written back, as
//! always while it is mounted, they are applied to the bytes read (see `log`), so the result is the state at the last
//! sync of the log.
//!
//! Nothing is trusted: offsets are checked against the bounds of the file system, trees must ascend, and blocks have
//! checksums and name their owner (since version 5), unless the log changed them.

mod changes;
mod chunks;
mod directory;
mod extents;
mod inode;
mod log;
mod reservations;
mod superblock;
mod transactions;
mod tree;

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use twox_hash::XxHash3_64;

use self::chunks::{CHUNK_INODES, Chunk};
use self::extents::Extent;
use self::inode::{Decoded, Format};
use self::log::Log;
use self::superblock::{Superblock, is_sealed};
use super::fields::{BigEndian, Record as _};
use super::medium::{Medium, Window};
use super::{Damage, Found, InodeSource, Listed, Slot, damaged};
use crate::error::{Error, ErrorKind, Result};
use crate::scan::{Kind, Stat};

/// Chunks per part.
const PART_CHUNKS: usize = 64;
/// Parts to read ahead.
const AHEAD_PARTS: usize = 4;
/// Largest read, and largest gap that a read includes.
const RUN_BYTES: u64 = 1 << 20;
const GAP_BYTES: u64 = 64 << 10;
/// Directory bytes per read.
const PIECE_BYTES: u64 = 256 << 10;
/// Offset of the owner in the header of a directory block; such blocks have a checksum.
const OWNER: usize = 40;
const HEADER_BYTES: usize = OWNER + 8;
const CHECKSUM: usize = 4;
/// Header before the target of a symlink in a block.
const TARGET_HEADER_BYTES: usize = 56;
const TARGET_MAGIC: &[u8] = b"XSLM";

/// An XFS file system.
#[derive(Debug)]
pub struct Xfs<M> {
    medium: M,
    superblock: Superblock,
    chunks: Vec<Chunk>,
    log: Log,
    checked: bool,
    warnings: Vec<String>,
    device: u64,
    /// Directory blocks that may still be read: all directories together have no more than the file system.
    left: AtomicU64,
}

/// Location of the names of a directory, and its state.
#[derive(Debug)]
pub struct Listing {
    names: Names,
    version: u64,
    /// When the inode changed, seconds since 1970.
    changed: i64,
}

/// Location of names.
#[derive(Debug)]
enum Names {
    /// In the inode, which is at this offset.
    Inode(u64),
    /// In consecutive blocks.
    Run {
        /// The first block, numbered over all groups.
        first: u64,
        /// Number of blocks.
        count: u32,
    },
    /// In blocks that a list or a tree in the inode refers to.
    Map {
        /// The data fork.
        fork: Box<[u8]>,
        /// Number of extents, for a list.
        extents: Option<u64>,
        /// Position of the first ones.
        position: u64,
    },
}

/// Buffers that a thread reuses.
#[derive(Debug, Default)]
pub struct Buffers {
    run: Vec<u8>,
    window: Window,
    piece: Vec<u8>,
    targets: Vec<SymlinkTarget>,
}

/// A symlink whose target is in a block.
#[derive(Debug)]
struct SymlinkTarget {
    place: Option<u64>,
    offset: usize,
    stat: Stat,
}

impl<M: Medium> Xfs<M> {
    /// Reads superblock, log and inode B-trees. Inodes are reported to be on `device`; `unchecked` ignores checksums,
    /// for images that are corrupted on purpose.
    ///
    /// # Errors
    /// [`ErrorKind::NotRecognised`] for another file system or unknown features, [`ErrorKind::Corrupt`] if it is
    /// shorter than its superblock says, if its log cannot be replayed, or if no inode B-tree is intact.
    pub fn open(medium: M, device: u64, unchecked: bool) -> Result<Xfs<M>> {
        let mut bytes = [0; superblock::BYTES];
        if let Err(error) = medium.read_at(&mut bytes, 0)
            && error.kind() != io::ErrorKind::UnexpectedEof
        {
            return Err(refuse(format!("its superblock cannot be read: {error}")));
        }
        let superblock = Superblock::parse(&bytes, !unchecked)?;
        if medium.length_bytes() < superblock.length_bytes() {
            let missing = superblock.length_bytes() - medium.length_bytes();
            let cause = format!("it is {missing} bytes shorter than its superblock states");
            return Err(refuse(cause).advise("check whether the image is complete"));
        }
        let log = Log::read(&medium, &superblock, !unchecked).map_err(|error| refuse(error.to_string()))?;
        let left = AtomicU64::new(superblock.blocks);
        let (chunks, warnings, checked) = (Vec::new(), Vec::new(), !unchecked);
        let mut xfs = Xfs { medium, superblock, chunks, log, checked, warnings, device, left };
        let mut chunks = Vec::new();
        for group in 0..xfs.superblock.groups {
            let mut read = |place, length| {
                let mut bytes = vec![0; length];
                let sealed = xfs.read(place, &mut bytes)?;
                Ok((bytes, sealed))
            };
            if let Err(error) = chunks::of_group(&xfs.superblock, group, &mut read, &mut chunks) {
                xfs.warnings.push(format!("inodes of group {group} are missing: {error}"));
            }
        }
        if chunks.is_empty() {
            let cause = xfs.warnings.first().cloned().unwrap_or_else(|| "it has no inodes".to_owned());
            return Err(refuse(cause));
        }
        xfs.chunks = chunks;
        Ok(xfs)
    }

    /// Problems of the file system as a whole.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Whether the log had changes that were not written back, as while it is mounted, and after a crash.
    pub fn was_replayed(&self) -> bool {
        !self.log.changes.is_clean()
    }

    /// Whether blocks may be reserved for copy-on-write, which `stat` counts while it is mounted and inodes do not
    /// have. Damage counts as yes.
    pub fn may_have_reservations(&self) -> bool {
        let mut read = |place, length| {
            let mut bytes = vec![0; length];
            let sealed = self.read(place, &mut bytes)?;
            Ok((bytes, sealed))
        };
        let mut has = |group| reservations::in_group(&self.superblock, group, &mut read).unwrap_or(true);
        self.superblock.has_reference_counts && (0..self.superblock.groups).any(&mut has)
    }

    /// Whether the log shows that inodes changed since it was opened.
    pub fn has_changed(&self) -> bool {
        let now = Log::read(&self.medium, &self.superblock, self.checked);
        now.map_or(true, |now| !now.has_same_inodes(&self.log))
    }

    /// Reads bytes from the device and applies the log; returns whether their checksum must be valid.
    fn read(&self, place: u64, bytes: &mut [u8]) -> io::Result<bool> {
        self.medium.read_at(bytes, place)?;
        Ok(!self.log.changes.lay_over(place, bytes) && self.checked)
    }

    fn block_bytes(&self) -> u64 {
        self.superblock.block_bytes.into()
    }

    /// Subtracts `count` from the blocks that may still be read.
    fn spend(&self, count: u64) -> io::Result<()> {
        let spent = self.left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(count));
        spent.map(|_| ()).map_err(|_| damaged("directories have more blocks than the file system"))
    }

    fn chunks_of(&self, part: usize) -> &[Chunk] {
        self.chunks.chunks(PART_CHUNKS).nth(part).unwrap_or_default()
    }

    /// The bytes from the first to the last inode of a chunk that is in use, and the number of the first in the chunk.
    fn bytes_of(&self, chunk: &Chunk) -> Option<(Range<u64>, u32)> {
        let (first, end) = (chunk.used.trailing_zeros(), u64::BITS - chunk.used.leading_zeros());
        let start = self.superblock.inode_place(chunk.group, chunk.first + first, end - first)?;
        Some((start..start + u64::from(end - first) * u64::from(self.superblock.inode_bytes), first))
    }

    /// The chunks that are read together with the first one: the bytes, and the number of chunks.
    fn run(&self, chunks: &[Chunk]) -> Option<(Range<u64>, usize)> {
        let mut found = chunks.iter().map_while(|chunk| self.bytes_of(chunk));
        let (mut bytes, _) = found.next()?;
        let mut count = 1;
        for (next, _) in found {
            if next.start < bytes.end || next.start - bytes.end > GAP_BYTES || next.end - bytes.start > RUN_BYTES {
                break;
            }
            bytes.end = next.end;
            count += 1;
        }
        Some((bytes, count))
    }

    /// The chunks of a part in runs that are read together, with their bytes; `None` for a chunk outside the file
    /// system.
    fn runs(&self, part: usize) -> impl Iterator<Item = (&[Chunk], Option<Range<u64>>)> {
        let mut left = self.chunks_of(part);
        std::iter::from_fn(move || {
            let (bytes, count) = self.run(left).map_or((None, 1), |(bytes, count)| (Some(bytes), count));
            let (chunks, behind) = left.split_at_checked(count)?;
            left = behind;
            Some((chunks, bytes))
        })
    }

    /// Location of a directory's names, from its inode, which is at `place`.
    fn names(&self, raw: &[u8], place: u64) -> Names {
        let (format, fork) = inode::data_fork(raw);
        match format {
            Format::Extents => {
                let count = inode::extents(raw);
                let names = directory::NAMES_BYTES / self.block_bytes();
                let mut found = extents::of_list(fork, count).filter(|extent| extent.offset < names);
                match (found.next(), found.next()) {
                    (Some(only), None) => Names::Run { first: only.start, count: only.count as u32 },
                    (first, _) => {
                        let position = first.map_or(0, |first| first.start);
                        Names::Map { fork: fork.into(), extents: Some(count), position }
                    }
                }
            }
            Format::Tree => {
                let position = extents::first_child(fork).unwrap_or(0);
                Names::Map { fork: fork.into(), extents: None, position }
            }
            _ => Names::Inode(place),
        }
    }

    /// Reports an inode in use. `raw` is in the on-disk format, `sealed` whether its checksum must be valid.
    fn take(
        &self,
        (inode, offset): (u64, usize),
        raw: &mut [u8],
        (place, mut sealed): (u64, bool),
        targets: &mut Vec<SymlinkTarget>,
        found: &mut dyn FnMut(Found<Listing>),
    ) {
        if let Some(logged) = self.log.changes.inode(inode) {
            logged.merge(self.superblock.is_v5, raw);
            sealed = false;
        }
        match inode::decode(&self.superblock, inode, raw, sealed, self.device) {
            Decoded::None => {}
            Decoded::Damaged(cause) => {
                let (operation, inode) = ("read the inode", Some(inode));
                found(Found::Damaged(Damage { operation, inode, error: damaged(cause) }));
            }
            Decoded::Inode(mut stat) => match stat.kind {
                Kind::Directory => {
                    let (names, version, changed) = (self.names(raw, place), inode::version(raw), stat.ctime.seconds);
                    found(Found::Inode { offset, stat, listing: Some(Listing { names, version, changed }) });
                }
                Kind::Symlink { .. } => match inode::data_fork(raw) {
                    (Format::Local, target) => {
                        stat.kind = Kind::Symlink { absolute: target.first() == Some(&b'/') };
                        found(Found::Inode { offset, stat, listing: None });
                    }
                    (_, fork) => {
                        let first = extents::of_list(fork, 1).next();
                        let place = first.and_then(|extent| self.superblock.place_of(extent.start, 1));
                        targets.push(SymlinkTarget { place, offset, stat });
                    }
                },
                _ => found(Found::Inode { offset, stat, listing: None }),
            },
        }
    }

    /// Reports the symlinks whose targets are in blocks, which it reads in device order.
    fn finish_targets(&self, targets: &mut Vec<SymlinkTarget>, found: &mut dyn FnMut(Found<Listing>)) {
        targets.sort_unstable_by_key(|target| target.place);
        for SymlinkTarget { place, offset, mut stat } in targets.drain(..) {
            let read = place.ok_or_else(|| damaged("its target is not in the expected place")).and_then(|place| {
                let mut start = [0; TARGET_HEADER_BYTES + 1];
                self.read(place, &mut start)?;
                let marked = self.superblock.is_v5 && start.starts_with(TARGET_MAGIC);
                Ok(if marked { start[TARGET_HEADER_BYTES] } else { start[0] })
            });
            match read {
                Ok(first) => {
                    stat.kind = Kind::Symlink { absolute: first == b'/' };
                    found(Found::Inode { offset, stat, listing: None });
                }
                Err(error) => {
                    let inode = Some(stat.inode);
                    found(Found::Damaged(Damage { operation: "read the target of the symlink", inode, error }));
                }
            }
        }
    }
}

impl<M: Medium> InodeSource for Xfs<M> {
    type Listing = Listing;
    type Buffers = Buffers;

    fn root(&self) -> u64 {
        self.superblock.root
    }

    fn parts(&self) -> usize {
        self.chunks.len().div_ceil(PART_CHUNKS)
    }

    fn slots(&self, part: usize) -> usize {
        self.chunks_of(part).len() * CHUNK_INODES as usize
    }

    fn slot(&self, inode: u64) -> Option<Slot> {
        let (group, number) = self.superblock.split(inode)?;
        let behind = self.chunks.partition_point(|chunk| (chunk.group, chunk.first) <= (group, number));
        let at = behind.checked_sub(1)?;
        let chunk = self.chunks.get(at)?;
        let within = number - chunk.first.min(number);
        (chunk.group == group && within < CHUNK_INODES).then(|| Slot {
            part: at / PART_CHUNKS,
            offset: at % PART_CHUNKS * CHUNK_INODES as usize + within as usize,
        })
    }

    fn read_part(&self, part: usize, buffers: &mut Buffers, found: &mut impl FnMut(Found<Listing>)) {
        for bytes in self.runs(part + AHEAD_PARTS).filter_map(|(_, bytes)| bytes) {
            self.medium.will_need(bytes.start, bytes.end - bytes.start);
        }
        let inode_bytes = self.superblock.inode_bytes as usize;
        let mut before = 0;
        for (chunks, bytes) in self.runs(part) {
            let read = bytes.ok_or_else(|| damaged("an inode chunk is outside the file system")).and_then(|bytes| {
                buffers.run.resize((bytes.end - bytes.start) as usize, 0);
                self.medium.read_since_opened(&mut buffers.run, bytes.start).map(|()| bytes.start)
            });
            let start = match read {
                Ok(start) => start,
                Err(error) => {
                    found(Found::Damaged(Damage { operation: "read an inode chunk", inode: None, error }));
                    before += chunks.len();
                    continue;
                }
            };
            for (number, chunk) in (before..).zip(chunks) {
                let Some((bytes, first)) = self.bytes_of(chunk) else { continue };
                let Some(inodes) = buffers.run.get_mut((bytes.start - start) as usize..) else { continue };
                let slots = (first..CHUNK_INODES).zip(inodes.chunks_exact_mut(inode_bytes));
                for (within, raw) in slots.filter(|(within, _)| chunk.used >> within & 1 == 1) {
                    let place = bytes.start + u64::from(within - first) * inode_bytes as u64;
                    let sealed = !self.log.changes.lay_over(place, raw) && self.checked;
                    let inode = self.superblock.inode(chunk.group, chunk.first + within);
                    let offset = number * CHUNK_INODES as usize + within as usize;
                    self.take((inode, offset), raw, (place, sealed), &mut buffers.targets, found);
                }
            }
            before += chunks.len();
        }
        self.finish_targets(&mut buffers.targets, found);
    }

    fn position(&self, listing: &Listing) -> u64 {
        let place = |number| self.superblock.place_of(number, 1).unwrap_or(0);
        match &listing.names {
            Names::Inode(place) => *place,
            Names::Run { first, .. } => place(*first),
            Names::Map { position, .. } => place(*position),
        }
    }

    fn extent(&self, listing: &Listing) -> Option<(u64, u64)> {
        match listing.names {
            Names::Run { first, count } => {
                let start = self.superblock.place_of(first, count.into())?;
                Some((start, u64::from(count) * self.block_bytes()))
            }
            _ => None,
        }
    }

    fn will_need(&self, offset: u64, length: u64) {
        self.medium.will_need(offset, length);
    }

    fn identity(&self) -> Option<u64> {
        Some(XxHash3_64::oneshot(&self.superblock.user_identifier))
    }

    fn version(&self, listing: &Listing) -> Option<(u64, i64)> {
        Some((listing.version, listing.changed))
    }

    fn list(&self, inode: u64, listing: &Listing, buffers: &mut Buffers, listed: &mut dyn FnMut(Listed<'_>)) {
        let result = match &listing.names {
            Names::Inode(place) => self.list_inode(inode, *place, buffers, listed),
            Names::Run { first, count } => {
                let extent = Extent { offset: 0, start: *first, count: (*count).into() };
                Lister::new(self, inode, buffers, listed).list_extents([extent].into_iter())
            }
            Names::Map { fork, extents: Some(count), .. } => {
                Lister::new(self, inode, buffers, listed).list_extents(extents::of_list(fork, *count))
            }
            Names::Map { fork, extents: None, .. } => self
                .extents_of(fork)
                .and_then(|found| Lister::new(self, inode, buffers, listed).list_extents(found.into_iter())),
        };
        if let Err(error) = result {
            listed(Listed::Damaged(Damage { operation: "list the directory", inode: Some(inode), error }));
        }
    }

    fn begin_listing(&self) {
        self.left.store(self.superblock.blocks, Relaxed);
    }
}

impl<M: Medium> Xfs<M> {
    fn list_inode(
        &self,
        inode: u64,
        place: u64,
        buffers: &mut Buffers,
        listed: &mut dyn FnMut(Listed<'_>),
    ) -> io::Result<()> {
        let raw = buffers.window.read(&self.medium, place, self.superblock.inode_bytes as usize)?;
        let mut raw = raw.to_vec();
        self.log.changes.lay_over(place, &mut raw);
        if let Some(logged) = self.log.changes.inode(inode) {
            logged.merge(self.superblock.is_v5, &mut raw);
        }
        match inode::data_fork(&raw) {
            (Format::Local, fork) => {
                directory::of_inode(&self.superblock, fork, |name, child| listed(Listed::Name(name, child)))
            }
            _ => Err(damaged("its format is not that of a directory")),
        }
    }

    /// The extents of a tree that contain names.
    fn extents_of(&self, root: &[u8]) -> io::Result<Vec<Extent>> {
        let mut found = Vec::new();
        let mut read = |place| {
            self.spend(1)?;
            let mut bytes = vec![0; self.block_bytes() as usize];
            self.read(place, &mut bytes)?;
            Ok(bytes)
        };
        let limit = directory::NAMES_BYTES / self.block_bytes();
        extents::of_tree(&self.superblock, root, limit, &mut read, &mut |extent| found.push(extent))?;
        Ok(found)
    }
}

/// Lists a directory that has blocks.
struct Lister<'l, 'f, M> {
    xfs: &'l Xfs<M>,
    inode: u64,
    window: &'l mut Window,
    /// Reads blocks of the file system until they form a directory block.
    piece: &'l mut Vec<u8>,
    listed: &'l mut (dyn FnMut(Listed<'_>) + 'f),
}

impl<'l, 'f, M: Medium> Lister<'l, 'f, M> {
    fn new(
        xfs: &'l Xfs<M>,
        inode: u64,
        buffers: &'l mut Buffers,
        listed: &'l mut (dyn FnMut(Listed<'_>) + 'f),
    ) -> Lister<'l, 'f, M> {
        buffers.piece.clear();
        Lister { xfs, inode, window: &mut buffers.window, piece: &mut buffers.piece, listed }
    }

    /// Lists the directory blocks in these extents, which must ascend. A directory block may consist of several
    /// extents, but begins at a multiple of its size and has no gap.
    fn list_extents(&mut self, extents: impl Iterator<Item = Extent>) -> io::Result<()> {
        let limit = directory::NAMES_BYTES / self.xfs.block_bytes();
        let blocks = (u64::from(self.xfs.superblock.directory_bytes) / self.xfs.block_bytes()).max(1);
        let mut end = 0;
        for extent in extents.take_while(|extent| extent.offset < limit) {
            if extent.offset < end || extent.count == 0 {
                return Err(damaged("its extents are empty or do not ascend"));
            }
            let continues = if self.piece.is_empty() { extent.offset % blocks == 0 } else { extent.offset == end };
            if !continues {
                return Err(damaged("one of its blocks is not whole"));
            }
            end = extent.offset + extent.count;
            self.list_run(extent.start, extent.count)?;
        }
        if self.piece.is_empty() { Ok(()) } else { Err(damaged("its last block is not whole")) }
    }

    fn list_run(&mut self, first: u64, count: u64) -> io::Result<()> {
        let xfs = self.xfs;
        xfs.spend(count)?;
        let start = xfs.superblock.place_of(first, count);
        let start = start.ok_or_else(|| damaged("one of its blocks is outside the file system"))?;
        let length = count * xfs.block_bytes();
        for from in (0..length).step_by(PIECE_BYTES as usize) {
            let read = self.window.read(&xfs.medium, start + from, PIECE_BYTES.min(length - from) as usize)?;
            let directory_bytes = xfs.superblock.directory_bytes as usize;
            for (at, block) in (0..).zip(read.chunks_exact(xfs.block_bytes() as usize)) {
                let before = self.piece.len();
                self.piece.extend_from_slice(block);
                let place = start + from + at * xfs.block_bytes();
                let added = self.piece.get_mut(before..).unwrap_or_default();
                let changed = xfs.log.changes.lay_over(place, added);
                if self.piece.len() < directory_bytes {
                    // Which of several blocks the log changed is not tracked: the checksum is not verified then.
                    continue;
                }
                let sealed = xfs.checked && !changed && directory_bytes == block.len();
                report_names(xfs, self.inode, self.piece, sealed, self.listed);
                self.piece.clear();
            }
        }
        Ok(())
    }
}

/// Reports the names in a block, and any damage in it.
fn report_names<M>(xfs: &Xfs<M>, inode: u64, block: &[u8], sealed: bool, listed: &mut dyn FnMut(Listed<'_>)) {
    let is_of_directory = |header: &[u8; HEADER_BYTES]| {
        header.u64::<OWNER>() == inode && *header.field::<24, 16>() == xfs.superblock.identifier
    };
    let own = !xfs.superblock.is_v5
        || block.first_chunk().is_some_and(is_of_directory) && (!sealed || is_sealed(block, CHECKSUM));
    let told = if own {
        directory::of_block(&xfs.superblock, block, |name, child| listed(Listed::Name(name, child)))
    } else {
        Err(damaged("one of its blocks is damaged, or is another block"))
    };
    if let Err(error) = told {
        listed(Listed::Damaged(Damage { operation: "list the directory", inode: Some(inode), error }));
    }
}

fn refuse(cause: impl Into<String>) -> Error {
    Error::new(ErrorKind::Corrupt, "read the file system", cause).advise("use --method walk")
}
