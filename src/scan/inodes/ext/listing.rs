//! Lists a directory: the names that Linux would list, read in the order of the device.
//!
//! Where blocks have checksums, all of them are verified before the first name is reported. If one is wrong, what a
//! walk would see depends on how Linux reads this directory ([`damaged_listing`](super::damaged_listing)).

use std::io;

use super::blocks::{self, Follow};
use super::directory::Limits;
use super::inode::{self, ENCRYPTED, EXTENTS, INDEXED, INLINE};
use super::raw::{BLOCK_BYTES, Raw};
use super::{Ext, checksum, directory};
use crate::scan::Stat;
use crate::scan::inodes::fields::LittleEndian;
use crate::scan::inodes::medium::{Medium, Window};
use crate::scan::inodes::{Damage, Listed, damaged};

/// Bytes of a directory per read.
const PIECE_BYTES: u64 = 64 << 10;
/// Directories up to this size are read once, larger ones twice: to verify, and to report. The blocks are kept, or, of
/// a single run of one piece, are still in the window.
const KEPT_BYTES: u64 = 256 << 10;

/// A directory: the location of its names, and its state.
#[derive(Debug)]
pub struct Listing {
    place: ListingBlocks,
    pub(super) version: u64,
    /// Time of the last change, in seconds since 1970.
    pub(super) changed: u32,
    /// The beginning of the checksums of its blocks.
    seed: u32,
}

/// Location of the names of a directory.
#[derive(Debug)]
enum ListingBlocks {
    /// In consecutive blocks.
    Run { first: u64, count: u32, kind: DirectoryKind },
    /// In blocks that a map in the inode refers to, with or without extents. `limit`: number of blocks of the
    /// directory.
    Map { root: Box<[u8; BLOCK_BYTES]>, extents: bool, limit: u64, kind: DirectoryKind },
    /// In the inode: the names of both parts.
    Inline(Box<[Vec<u8>; 2]>, DirectoryKind),
}

/// What its flags say of a directory.
#[derive(Debug, Clone, Copy)]
struct DirectoryKind {
    order: Order,
    is_encrypted: bool,
}

/// How Linux reads a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// From its first block to its last.
    Blocks,
    /// By its index.
    Index,
    /// Its only block, as if it were indexed.
    Single,
}

/// Consecutive blocks of a directory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run {
    /// Number of the first of them in the directory.
    pub(super) logical: u64,
    first: u64,
    count: u64,
}

/// Buffers that a thread reuses.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    window: Window,
    runs: Vec<Run>,
    kept: Vec<u8>,
}

impl Listing {
    /// From an inode.
    pub(super) fn new<M: Medium>(ext: &Ext<M>, number: u32, raw: Raw<'_>, stat: &Stat, flags: u32) -> Listing {
        Listing {
            place: place(ext, raw, stat.size_bytes, flags),
            version: inode::version(raw),
            changed: stat.ctime.seconds.max(stat.mtime.seconds).clamp(0, u32::MAX.into()) as u32,
            seed: ext.superblock.seed.map_or(0, |seed| checksum::seed(seed, number, raw)),
        }
    }

    /// The first block of its names, approximately.
    pub(super) fn position(&self) -> u64 {
        match &self.place {
            ListingBlocks::Inline(..) => 0,
            ListingBlocks::Run { first, .. } => *first,
            ListingBlocks::Map { root, extents: true, .. } if root.u16::<6>() == 0 => root.u32::<20>().into(),
            ListingBlocks::Map { root, extents: true, .. } => root.u32::<16>().into(),
            ListingBlocks::Map { root, .. } => root.u32::<0>().into(),
        }
    }

    /// First and number of its blocks, if they are consecutive.
    pub(super) fn run(&self) -> Option<(u64, u64)> {
        match self.place {
            ListingBlocks::Run { first, count, .. } => Some((first, count.into())),
            _ => None,
        }
    }

    /// Whether both are of the same directory, not of one that took the place of the other.
    pub(super) fn is_of_same(&self, other: &Listing) -> bool {
        self.seed == other.seed
    }

    fn kind(&self) -> DirectoryKind {
        match self.place {
            ListingBlocks::Run { kind, .. } | ListingBlocks::Map { kind, .. } | ListingBlocks::Inline(_, kind) => kind,
        }
    }
}

/// Location of a directory's names, from its inode.
fn place<M: Medium>(ext: &Ext<M>, raw: Raw<'_>, size_bytes: u64, flags: u32) -> ListingBlocks {
    let map = raw.block();
    let limit = size_bytes.div_ceil(ext.block_bytes());
    let order = match (ext.superblock.indexes, flags & INDEXED != 0) {
        (true, true) => Order::Index,
        (true, false) if limit == 1 => Order::Single,
        _ => Order::Blocks,
    };
    let kind = DirectoryKind { order, is_encrypted: flags & ENCRYPTED != 0 };
    if flags & INLINE != 0 {
        // The first four bytes are the number of the parent.
        let first = map.get(4..(size_bytes as usize).clamp(4, BLOCK_BYTES));
        let parts = [first, inode::inline_rest(raw)].map(|part| part.unwrap_or_default().to_vec());
        return ListingBlocks::Inline(Box::new(parts), kind);
    }
    let extents = flags & EXTENTS != 0;
    match single(map, extents) {
        Some((first, count)) if first != 0 && count >= limit => ListingBlocks::Run { first, count: limit as u32, kind },
        _ => ListingBlocks::Map { root: Box::new(*map), extents, limit, kind },
    }
}

/// First block and length of the only run of a map, if it has exactly one.
fn single(map: &[u8; BLOCK_BYTES], extents: bool) -> Option<(u64, u64)> {
    if !extents {
        return Some((map.u32::<0>().into(), 1));
    }
    let is_single = map.u16::<2>() == 1 && map.u16::<6>() == 0 && map.u32::<12>() == 0;
    let length = map.u16::<16>();
    let first = u64::from(map.u32::<20>()) | u64::from(map.u16::<18>()) << 32;
    (is_single && length <= 1 << 15).then_some((first, length.into()))
}

/// The block of a symlink's target.
pub(super) fn target(raw: Raw<'_>, flags: u32) -> Option<u64> {
    let (first, count) = single(raw.block(), flags & EXTENTS != 0)?;
    (first != 0 && count > 0).then_some(first)
}

/// Lists one directory.
pub(super) struct Lister<'l, M> {
    ext: &'l Ext<M>,
    listing: &'l Listing,
    buffers: &'l mut Buffers,
    inode: u64,
    /// Whether `kept` has all blocks.
    is_kept: bool,
    /// The first error of the map.
    lost: Option<io::Error>,
}

impl<'l, M: Medium> Lister<'l, M> {
    pub(super) fn new(ext: &'l Ext<M>, inode: u64, listing: &'l Listing, buffers: &'l mut Buffers) -> Lister<'l, M> {
        buffers.runs.clear();
        Lister { ext, listing, buffers, inode, is_kept: false, lost: None }
    }

    /// Locates the blocks, and verifies all of them that have checksums.
    ///
    /// # Errors
    /// If something is damaged; [`list_damaged`](super::damaged_listing::list_damaged) lists the rest.
    pub(super) fn prepare(&mut self) -> io::Result<()> {
        let listing = self.listing;
        match &listing.place {
            ListingBlocks::Inline(..) => return Ok(()),
            ListingBlocks::Run { first, count, .. } => self.run(0, *first, (*count).into())?,
            ListingBlocks::Map { root, extents: true, limit, .. } => blocks::extents(root, *limit, self)?,
            ListingBlocks::Map { root, limit, .. } => blocks::numbers(root, *limit, self),
        }
        if let Some(error) = &self.lost {
            return Err(again(error));
        }
        if self.listing.kind().order == Order::Single && self.buffers.runs.is_empty() {
            return Err(damaged("it has no blocks"));
        }
        if self.ext.superblock.seed.is_none() {
            return Ok(());
        }
        let mut intact = true;
        let (seed, order) = (self.listing.seed, self.listing.kind().order);
        self.each_block(&mut |logical, block| intact &= is_intact(seed, order, logical, block))?;
        if intact { Ok(()) } else { Err(damaged(BLOCK_WRONG)) }
    }

    /// Reports the names.
    pub(super) fn list(&mut self, listed: &mut dyn FnMut(Listed<'_>)) {
        let (inode, limits) = (self.inode, self.limits());
        if let ListingBlocks::Inline(parts, _) = &self.listing.place {
            parts.iter().for_each(|part| report_names(inode, limits, part, listed));
        } else if let Err(error) = self.each_block(&mut |_, block| report_names(inode, limits, block, listed)) {
            damage(inode, error, listed);
        }
    }

    pub(super) fn limits(&self) -> Limits {
        Limits { inodes: self.ext.superblock.inodes, is_encrypted: self.listing.kind().is_encrypted }
    }

    /// Reads a block of the device.
    pub(super) fn read_block(&self, block: u64) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; self.ext.block_bytes() as usize];
        self.ext.medium.read_at(&mut bytes, self.ext.offset(block, 1)?)?;
        Ok(bytes)
    }

    /// Reads a block of the directory.
    pub(super) fn block(&self, logical: u64) -> io::Result<Vec<u8>> {
        let at = self.buffers.runs.partition_point(|run| run.logical + run.count <= logical);
        match (self.buffers.runs.get(at).filter(|run| run.logical <= logical), &self.lost) {
            (Some(run), _) => self.read_block(run.first + (logical - run.logical)),
            (None, Some(error)) => Err(again(error)),
            (None, None) => Err(damaged("its index refers to a hole")),
        }
    }

    /// Number of its blocks.
    pub(super) fn blocks(&self) -> u64 {
        self.buffers.runs.iter().map(|run| run.count).sum()
    }

    /// Its blocks: number in the directory, and number on the device.
    pub(super) fn located(&self) -> impl Iterator<Item = (u64, u64)> {
        self.buffers.runs.iter().flat_map(|run| (0..run.count).map(|offset| (run.logical + offset, run.first + offset)))
    }

    /// Whether part of its map is missing.
    pub(super) fn has_lost_blocks(&self) -> bool {
        self.lost.is_some()
    }

    pub(super) fn order(&self) -> Order {
        self.listing.kind().order
    }

    pub(super) fn has_checksums(&self) -> bool {
        self.ext.superblock.seed.is_some()
    }

    pub(super) fn seed(&self) -> u32 {
        self.listing.seed
    }

    pub(super) fn has_large_directories(&self) -> bool {
        self.ext.superblock.large_directories
    }

    /// Reports the names in a block.
    pub(super) fn report_names(&self, block: &[u8], listed: &mut dyn FnMut(Listed<'_>)) {
        report_names(self.inode, self.limits(), block, listed);
    }

    /// Reports damage in the directory.
    pub(super) fn damage(&self, error: io::Error, listed: &mut dyn FnMut(Listed<'_>)) {
        damage(self.inode, error, listed);
    }

    /// Passes each block on, with its number in the directory.
    fn each_block(&mut self, f: &mut dyn FnMut(u64, &[u8])) -> io::Result<()> {
        let Buffers { window, runs, kept } = &mut *self.buffers;
        let block_bytes = self.ext.block_bytes();
        if self.is_kept {
            let numbers = runs.iter().flat_map(|run| run.logical..run.logical + run.count);
            numbers.zip(kept.chunks_exact(block_bytes as usize)).for_each(|(logical, block)| f(logical, block));
            return Ok(());
        }
        // A single run of one piece stays in the window.
        let blocks: u64 = runs.iter().map(|run| run.count).sum();
        let keep = (runs.len() > 1 || blocks * block_bytes > PIECE_BYTES) && blocks * block_bytes <= KEPT_BYTES;
        kept.clear();
        let a_piece = (PIECE_BYTES / block_bytes).max(1);
        for run in runs.iter() {
            let start = run.first * block_bytes;
            for from in (0..run.count).step_by(a_piece as usize) {
                let length = (a_piece.min(run.count - from) * block_bytes) as usize;
                let piece = window.read(&self.ext.medium, start + from * block_bytes, length)?;
                let blocks = piece.chunks_exact(block_bytes as usize);
                (run.logical + from..).zip(blocks).for_each(|(logical, block)| f(logical, block));
                if keep {
                    kept.extend_from_slice(piece);
                }
            }
        }
        self.is_kept = keep;
        Ok(())
    }
}

pub(super) const BLOCK_WRONG: &str = "the checksum of one of its blocks is wrong";

/// Whether the checksum of a block is right.
fn is_intact(seed: u32, order: Order, logical: u64, block: &[u8]) -> bool {
    let is_index = order == Order::Index && (logical == 0 || directory::is_index_node(block));
    checksum::is_stored(if is_index { checksum::index(seed, block) } else { checksum::names(seed, block) }, block)
}

/// Reports the names in a block, and any damage in it.
fn report_names(inode: u64, limits: Limits, bytes: &[u8], listed: &mut dyn FnMut(Listed<'_>)) {
    let told = directory::names(bytes, limits, |name, child| listed(Listed::Name(name, child.into())));
    if let Err(error) = told {
        damage(inode, error, listed);
    }
}

fn damage(inode: u64, error: io::Error, listed: &mut dyn FnMut(Listed<'_>)) {
    listed(Listed::Damaged(Damage { operation: "list the directory", inode: Some(inode), error }));
}

/// The same error once more.
fn again(error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), error.to_string())
}

impl<M: Medium> Follow for Lister<'_, M> {
    fn read(&mut self, block: u64) -> io::Result<Vec<u8>> {
        self.ext.spend(1)?;
        self.read_block(block)
    }

    fn read_node(&mut self, block: u64) -> io::Result<Vec<u8>> {
        let node = self.read(block)?;
        match self.ext.superblock.seed {
            Some(_) if !checksum::is_stored(checksum::extents(self.listing.seed, &node), &node) => {
                Err(damaged("the checksum of a node of its extent tree is wrong"))
            }
            _ => Ok(node),
        }
    }

    fn numbers_a_block(&self) -> u64 {
        self.ext.block_bytes() / 4
    }

    fn run(&mut self, logical: u64, first: u64, count: u64) -> io::Result<()> {
        self.ext.spend(count)?;
        self.ext.offset(first, count)?;
        self.buffers.runs.push(Run { logical, first, count });
        Ok(())
    }

    fn lost(&mut self, error: io::Error) {
        self.lost.get_or_insert(error);
    }
}
