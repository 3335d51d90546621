//! XFS, read from its device or an image.
//!
//! Inodes are in chunks of 64, and a tree in each allocation group has them; those that are not in use, deleted and still open, or keep
//! something of the file system are left out. Where the log has changes that are not in their place yet, as always while it
//! is mounted, they are laid over what is read (see `log`); so what is read is what was there when the log was synchronised.
//!
//! Nothing is trusted: places are held against the bounds of the file system, trees must ascend, and blocks have checksums and say
//! whose they are (since version 5), unless the log changed them.

mod chunks;
mod directory;
mod extents;
mod inode;
mod log;
mod superblock;
mod transactions;

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use self::chunks::{CHUNK_INODES, Chunk};
use self::extents::Extent;
use self::inode::{Decoded, Format};
use self::log::Log;
use self::superblock::{Superblock, is_sealed};
use super::medium::{Medium, Window};
use super::{Damage, Found, Listed, Slot, Source, damaged};
use crate::error::{Error, ErrorKind, Result};
use crate::scan::{Kind, Stat};

/// Chunks in a part.
const PART_CHUNKS: usize = 64;
/// How many parts ahead chunks are asked for.
const AHEAD_PARTS: usize = 4;
/// Bytes that are read at a time, and gaps that are read over.
const RUN_BYTES: u64 = 1 << 20;
const GAP_BYTES: u64 = 64 << 10;
/// Blocks of a directory that are read at a time.
const PIECE_BYTES: u64 = 256 << 10;
/// Where blocks of directories say whose they are, and have their checksum.
const OWNER: usize = 40;
const CHECKSUM: usize = 4;
/// What stands before the target of a symlink in a block.
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
    /// Blocks of directories that may still be read: those of all together are no more than there are.
    left: AtomicU64,
}

/// Where the names of a directory are.
#[derive(Debug)]
pub enum Listing {
    /// In the inode, which is at this byte.
    Inode(u64),
    /// In consecutive blocks.
    Run {
        /// The first, numbered over all groups.
        first: u64,
        /// How many.
        count: u32,
    },
    /// In blocks that a list or a tree in the inode leads to.
    Map {
        /// The data fork.
        fork: Box<[u8]>,
        /// Of a list, how many extents it has.
        extents: Option<u64>,
        /// Where the first ones are.
        position: u64,
    },
}

/// What a thread needs again.
#[derive(Debug, Default)]
pub struct Buffers {
    run: Vec<u8>,
    window: Window,
    piece: Vec<u8>,
    targets: Vec<Target>,
}

/// A symlink whose target is in a block.
#[derive(Debug)]
struct Target {
    place: Option<u64>,
    offset: usize,
    stat: Stat,
}

impl<M: Medium> Xfs<M> {
    /// Reads superblock, log and the trees of inodes. Inodes will be said to be on `device`; `unchecked` leaves checksums aside, for
    /// what was spoilt on purpose.
    ///
    /// # Errors
    /// [`ErrorKind::NotRecognised`] for another file system or features that are not known, [`ErrorKind::Corrupt`] for what is
    /// shorter than it says, has a log that cannot be replayed, or no tree of inodes that is whole.
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
            let cause = format!("it is {missing} bytes shorter than its superblock says");
            return Err(refuse(cause).advise("is it a part of an image?"));
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

    /// What is wrong with the file system as a whole.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Whether the log had changes that are not in their place: so it is while it is mounted, and after a crash.
    pub fn was_replayed(&self) -> bool {
        !self.log.is_clean()
    }

    /// Whether inodes were changed since it was opened, as far as the log says.
    pub fn has_changed(&self) -> bool {
        let now = Log::read(&self.medium, &self.superblock, self.checked);
        now.map_or(true, |now| !now.has_same_inodes(&self.log))
    }

    /// Reads what the log leaves of bytes on the device; whether they have to have their checksum.
    fn read(&self, place: u64, bytes: &mut [u8]) -> io::Result<bool> {
        self.medium.read_at(bytes, place)?;
        Ok(!self.log.lay_over(place, bytes) && self.checked)
    }

    fn block_bytes(&self) -> u64 {
        self.superblock.block_bytes.into()
    }

    /// Takes `count` blocks of those that may still be read.
    fn spend(&self, count: u64) -> io::Result<()> {
        let spent = self.left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(count));
        spent.map(|_| ()).map_err(|_| damaged("directories have more blocks than the file system"))
    }

    fn chunks_of(&self, part: usize) -> Range<usize> {
        let first = part * PART_CHUNKS;
        first..self.chunks.len().min(first + PART_CHUNKS)
    }

    /// The bytes from the first inode of a chunk that is in use to the last, and the number of the first in the chunk.
    fn bytes_of(&self, chunk: &Chunk) -> Option<(Range<u64>, u32)> {
        let (first, end) = (chunk.used.trailing_zeros(), u64::BITS - chunk.used.leading_zeros());
        let start = self.superblock.inode_place(chunk.group, chunk.first + first, end - first)?;
        Some((start..start + u64::from(end - first) * u64::from(self.superblock.inode_bytes), first))
    }

    /// The chunks from `at` on, of those before `end`, that are read together: their bytes, and the first chunk behind them.
    fn run(&self, at: usize, end: usize) -> Option<(Range<u64>, usize)> {
        let (mut bytes, _) = self.bytes_of(&self.chunks[at])?;
        let mut behind = at + 1;
        while let Some((next, _)) = self.chunks[..end].get(behind).and_then(|chunk| self.bytes_of(chunk)) {
            if next.start < bytes.end || next.start - bytes.end > GAP_BYTES || next.end - bytes.start > RUN_BYTES {
                break;
            }
            bytes.end = next.end;
            behind += 1;
        }
        Some((bytes, behind))
    }

    fn ask_for(&self, part: usize) {
        let all = self.chunks_of(part);
        let mut at = all.start;
        while at < all.end {
            match self.run(at, all.end) {
                Some((bytes, behind)) => {
                    self.medium.will_need(bytes.start, bytes.end - bytes.start);
                    at = behind;
                }
                None => at += 1,
            }
        }
    }

    /// The names of a directory, from its inode, which is at `place`.
    fn listing(&self, raw: &[u8], place: u64) -> Listing {
        let (format, fork) = inode::data_fork(raw);
        match format {
            Format::Extents => {
                let count = inode::extents(raw);
                let names = directory::NAMES_BYTES / self.block_bytes();
                let mut found = extents::of_list(fork, count).filter(|extent| extent.offset < names);
                match (found.next(), found.next()) {
                    (Some(only), None) => Listing::Run { first: only.start, count: only.count as u32 },
                    (first, _) => {
                        let position = first.map_or(0, |first| first.start);
                        Listing::Map { fork: fork.into(), extents: Some(count), position }
                    }
                }
            }
            Format::Tree => {
                // Behind the keys are the children.
                let position = u64_at(fork, 4 + 8 * (fork.len().saturating_sub(4) / 16));
                Listing::Map { fork: fork.into(), extents: None, position }
            }
            _ => Listing::Inode(place),
        }
    }

    /// Tells of an inode that is in use. `raw` is as it is on the device, `sealed` whether it has to have its checksum.
    fn take(
        &self,
        (inode, offset): (u64, usize),
        raw: &mut [u8],
        (place, mut sealed): (u64, bool),
        targets: &mut Vec<Target>,
        found: &mut dyn FnMut(Found<Listing>),
    ) {
        if let Some(logged) = self.log.inode(inode) {
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
                    let listing = Some(self.listing(raw, place));
                    found(Found::Inode { offset, stat, listing });
                }
                Kind::Symlink { .. } => match inode::data_fork(raw) {
                    (Format::Local, target) => {
                        stat.kind = Kind::Symlink { absolute: target.first() == Some(&b'/') };
                        found(Found::Inode { offset, stat, listing: None });
                    }
                    (_, fork) => {
                        let first = extents::of_list(fork, 1).next();
                        let place = first.and_then(|extent| self.superblock.place_of(extent.start, 1));
                        targets.push(Target { place, offset, stat });
                    }
                },
                _ => found(Found::Inode { offset, stat, listing: None }),
            },
        }
    }

    /// Looks into the blocks of targets, in the order of the device.
    fn finish_targets(&self, targets: &mut Vec<Target>, found: &mut dyn FnMut(Found<Listing>)) {
        targets.sort_unstable_by_key(|target| target.place);
        for Target { place, offset, mut stat } in targets.drain(..) {
            let read = place.ok_or_else(|| damaged("its target is not where it should be")).and_then(|place| {
                let mut start = [0; TARGET_HEADER_BYTES + 1];
                self.read(place, &mut start)?;
                let marked = self.superblock.is_v5 && &start[..4] == TARGET_MAGIC;
                Ok(if marked { start[TARGET_HEADER_BYTES] } else { start[0] })
            });
            match read {
                Ok(first) => stat.kind = Kind::Symlink { absolute: first == b'/' },
                Err(error) => {
                    let inode = Some(stat.inode);
                    found(Found::Damaged(Damage { operation: "read the target of the symlink", inode, error }));
                }
            }
            found(Found::Inode { offset, stat, listing: None });
        }
    }
}

impl<M: Medium> Source for Xfs<M> {
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
        let chunk = &self.chunks[at];
        let within = number - chunk.first.min(number);
        (chunk.group == group && within < CHUNK_INODES).then(|| Slot {
            part: at / PART_CHUNKS,
            offset: at % PART_CHUNKS * CHUNK_INODES as usize + within as usize,
        })
    }

    fn read_part(&self, part: usize, buffers: &mut Buffers, found: &mut impl FnMut(Found<Listing>)) {
        if part + AHEAD_PARTS < self.parts() {
            self.ask_for(part + AHEAD_PARTS);
        }
        let all = self.chunks_of(part);
        let inode_bytes = self.superblock.inode_bytes as usize;
        let mut at = all.start;
        while at < all.end {
            let Some((Range { start, end }, behind)) = self.run(at, all.end) else {
                let error = damaged("a chunk of inodes is outside of the file system");
                found(Found::Damaged(Damage { operation: "read a chunk of inodes", inode: None, error }));
                at += 1;
                continue;
            };
            buffers.run.resize((end - start) as usize, 0);
            match self.medium.read_since_opened(&mut buffers.run, start) {
                Ok(()) => {
                    for (number, chunk) in (at..).zip(&self.chunks[at..behind]) {
                        let Some((bytes, first)) = self.bytes_of(chunk) else { continue };
                        for within in (0..CHUNK_INODES).filter(|within| chunk.used >> within & 1 == 1) {
                            let place = bytes.start + u64::from(within - first) * inode_bytes as u64;
                            let raw = &mut buffers.run[(place - start) as usize..][..inode_bytes];
                            let sealed = !self.log.lay_over(place, raw) && self.checked;
                            let inode = self.superblock.inode(chunk.group, chunk.first + within);
                            let offset = (number - all.start) * CHUNK_INODES as usize + within as usize;
                            self.take((inode, offset), raw, (place, sealed), &mut buffers.targets, found);
                        }
                    }
                }
                Err(error) => {
                    found(Found::Damaged(Damage { operation: "read a chunk of inodes", inode: None, error }));
                }
            }
            at = behind;
        }
        self.finish_targets(&mut buffers.targets, found);
    }

    fn position(&self, listing: &Listing) -> u64 {
        let place = |number| self.superblock.place_of(number, 1).unwrap_or(0);
        match listing {
            Listing::Inode(place) => *place,
            Listing::Run { first, .. } => place(*first),
            Listing::Map { position, .. } => place(*position),
        }
    }

    fn extent(&self, listing: &Listing) -> Option<(u64, u64)> {
        match *listing {
            Listing::Run { first, count } => {
                let start = self.superblock.place_of(first, count.into())?;
                Some((start, u64::from(count) * self.block_bytes()))
            }
            _ => None,
        }
    }

    fn will_need(&self, offset: u64, length: u64) {
        self.medium.will_need(offset, length);
    }

    fn list(&self, inode: u64, listing: &Listing, buffers: &mut Buffers, listed: &mut dyn FnMut(Listed<'_>)) {
        let result = match listing {
            Listing::Inode(place) => self.list_inode(inode, *place, buffers, listed),
            Listing::Run { first, count } => {
                let extent = Extent { offset: 0, start: *first, count: (*count).into() };
                Lister::new(self, inode, buffers, listed).extents([extent].into_iter())
            }
            Listing::Map { fork, extents: Some(count), .. } => {
                Lister::new(self, inode, buffers, listed).extents(extents::of_list(fork, *count))
            }
            Listing::Map { fork, extents: None, .. } => self
                .extents_of(fork)
                .and_then(|found| Lister::new(self, inode, buffers, listed).extents(found.into_iter())),
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
        self.log.lay_over(place, &mut raw);
        if let Some(logged) = self.log.inode(inode) {
            logged.merge(self.superblock.is_v5, &mut raw);
        }
        match inode::data_fork(&raw) {
            (Format::Local, fork) => {
                directory::of_inode(&self.superblock, fork, |name, child| listed(Listed::Name(name, child)))
            }
            _ => Err(damaged("its format is none of a directory")),
        }
    }

    /// The extents with names in a tree.
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
    /// Blocks of the file system until they are one of the directory.
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

    fn extents(&mut self, extents: impl Iterator<Item = Extent>) -> io::Result<()> {
        let limit = directory::NAMES_BYTES / self.xfs.block_bytes();
        let mut next = 0;
        for extent in extents.take_while(|extent| extent.offset < limit) {
            if extent.offset < next || extent.count == 0 {
                return Err(damaged("its extents overlap"));
            }
            next = extent.offset + extent.count;
            self.run(extent.start, extent.count)?;
        }
        if self.piece.is_empty() { Ok(()) } else { Err(damaged("a block of it is cut off")) }
    }

    fn run(&mut self, first: u64, count: u64) -> io::Result<()> {
        let xfs = self.xfs;
        xfs.spend(count)?;
        let start = xfs.superblock.place_of(first, count);
        let start = start.ok_or_else(|| damaged("a block of it is outside of the file system"))?;
        let length = count * xfs.block_bytes();
        for from in (0..length).step_by(PIECE_BYTES as usize) {
            let read = self.window.read(&xfs.medium, start + from, PIECE_BYTES.min(length - from) as usize)?;
            let directory_bytes = xfs.superblock.directory_bytes as usize;
            for (at, block) in (0..).zip(read.chunks_exact(xfs.block_bytes() as usize)) {
                let before = self.piece.len();
                self.piece.extend_from_slice(block);
                let changed = xfs.log.lay_over(start + from + at * xfs.block_bytes(), &mut self.piece[before..]);
                if self.piece.len() < directory_bytes {
                    // Of a block that has several, it is not known of all of them.
                    continue;
                }
                let sealed = xfs.checked && !changed && directory_bytes == block.len();
                tell(xfs, self.inode, self.piece, sealed, self.listed);
                self.piece.clear();
            }
        }
        Ok(())
    }
}

/// Tells the names in a block, and that it is damaged where it is.
fn tell<M>(xfs: &Xfs<M>, inode: u64, block: &[u8], sealed: bool, listed: &mut dyn FnMut(Listed<'_>)) {
    let own = !xfs.superblock.is_v5
        || u64_at(block, OWNER) == inode
            && block.get(24..40) == Some(&xfs.superblock.identifier)
            && (!sealed || is_sealed(block, CHECKSUM));
    let told = if own {
        directory::of_block(&xfs.superblock, block, |name, child| listed(Listed::Name(name, child)))
    } else {
        Err(damaged("a block of it is damaged, or another one"))
    };
    if let Err(error) = told {
        listed(Listed::Damaged(Damage { operation: "list the directory", inode: Some(inode), error }));
    }
}

fn refuse(cause: impl Into<String>) -> Error {
    Error::new(ErrorKind::Corrupt, "read the file system", cause).advise("survey it with --method walk")
}

/// Two bytes, the highest first; 0 behind the end.
#[inline]
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).map_or(0, |bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
}

/// Four bytes, the highest first; 0 behind the end.
#[inline]
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |bytes| u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

/// Eight bytes, the highest first; 0 behind the end.
#[inline]
fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).map_or(0, |bytes| u64::from_be_bytes(bytes.try_into().unwrap_or([0; 8])))
}
