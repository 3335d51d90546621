//! ext2, ext3 and ext4, read from a device or an image.
//!
//! Nothing is trusted: every number is checked against the bounds of the file system before it is used, and impossible
//! values are reported as damage. Only inodes with names (a link count above 0) count: deleted ones and those that are
//! unlinked and still open have none, and internal inodes (journal, quotas, attributes, orphans) are left out by number
//! or flag. The values of `stat` are computed as Linux does, also where that is odd (data in the inode counts as
//! allocated).
//!
//! A mounted file system is read through the page cache of its device, where the kernel keeps the same tables and
//! directories: after it is synchronised, the bytes read are the current ones.

mod blocks;
mod checksum;
mod directory;
mod groups;
mod inode;
mod superblock;

use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use self::blocks::Follow;
use self::groups::Groups;
use self::inode::{BLOCK, BLOCK_BYTES, Decoded, ENCRYPTED, EXTENTS, INLINE, ROOT};
use self::superblock::Superblock;
use super::medium::{Medium, Window};
use super::{Damage, Found, InodeSource, Listed, Slot, damaged};
use crate::error::{Error, ErrorKind, Result};
use crate::scan::{Kind, Stat};

/// Bytes of a table per read: few enough to stay in a core's cache.
const PIECE_BYTES: usize = 64 << 10;
/// Groups to read ahead.
const AHEAD_PARTS: usize = 4;
/// Symlink targets up to this size are in the inode.
const SHORT_TARGET_BYTES: u64 = BLOCK_BYTES as u64;

/// An ext2, ext3 or ext4 file system.
#[derive(Debug)]
pub struct Ext<M> {
    medium: M,
    superblock: Superblock,
    groups: Vec<groups::Group>,
    warnings: Vec<String>,
    device: u64,
    /// Directory blocks that may still be read: all directories together have no more than the file system.
    left: AtomicU64,
}

/// A directory: the location of its names, and its state.
#[derive(Debug)]
pub struct Listing {
    place: ListingBlocks,
    version: u64,
    /// Time of the last change, in seconds since 1970.
    changed: u32,
}

/// Location of the names of a directory.
#[derive(Debug)]
enum ListingBlocks {
    /// In consecutive blocks.
    Run { first: u64, count: u32 },
    /// In blocks that a map in the inode refers to, with or without extents. `limit`: number of blocks of the
    /// directory.
    Map { root: Box<[u8; BLOCK_BYTES]>, extents: bool, limit: u64 },
    /// In the inode: the names of both parts.
    Inline(Box<[Vec<u8>; 2]>),
}

/// Buffers that a thread reuses.
#[derive(Debug, Default)]
pub struct Buffers {
    piece: Vec<u8>,
    window: Window,
    targets: Vec<SymlinkTarget>,
}

/// A symlink whose target is in a block.
#[derive(Debug)]
struct SymlinkTarget {
    offset: usize,
    stat: Stat,
    block: Option<u64>,
}

impl<M: Medium> Ext<M> {
    /// Reads superblock and descriptors. Inodes are reported to be on `device`.
    ///
    /// # Errors
    /// [`ErrorKind::NotRecognised`] for another file system or unknown features, [`ErrorKind::Corrupt`] if it is
    /// shorter than its superblock says, or if no superblock or descriptor table is intact.
    pub fn open(medium: M, device: u64) -> Result<Ext<M>> {
        let superblock = Superblock::read(&medium)?;
        if medium.length_bytes() < superblock.length_bytes() {
            let missing = superblock.length_bytes() - medium.length_bytes();
            let cause = format!("it is {missing} bytes shorter than its superblock states");
            return Err(Error::new(ErrorKind::Corrupt, "read the file system", cause)
                .advise("check whether the image is complete"));
        }
        let Groups { groups, damaged, copied } = groups::read(&medium, &superblock)?;
        let mut warnings = Vec::new();
        if superblock.group != 0 {
            warnings.push(format!("the first superblock is damaged; the copy in group {} was read", superblock.group));
        }
        if copied > 0 {
            warnings.push(format!("the descriptors of {copied} groups are damaged; their copies were read"));
        }
        if !damaged.is_empty() {
            warnings.push(format!("the descriptors of {} groups are damaged; their inodes are missing", damaged.len()));
        }
        let left = AtomicU64::new(superblock.blocks);
        Ok(Ext { medium, superblock, groups, warnings, device, left })
    }

    /// Problems of the file system as a whole.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Whether the journal has changes that were not written back yet, as while it is mounted, and after a crash.
    pub fn needs_recovery(&self) -> bool {
        self.superblock.needs_recovery
    }

    fn block_bytes(&self) -> u64 {
        self.superblock.block_bytes.into()
    }

    /// Offset of a run of blocks, if it is within the file system.
    fn offset(&self, first: u64, count: u64) -> io::Result<u64> {
        let end = first.checked_add(count).filter(|&end| end <= self.superblock.blocks);
        if end.is_none() || first < u64::from(self.superblock.first_data_block).max(1) {
            return Err(damaged("one of its blocks is outside the file system"));
        }
        Ok(first * self.block_bytes())
    }

    /// Subtracts `count` from the blocks that may still be read.
    fn spend(&self, count: u64) -> io::Result<()> {
        let spent = self.left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(count));
        spent.map(|_| ()).map_err(|_| damaged("directories have more blocks than the file system"))
    }

    /// A directory, from its inode.
    fn listing(&self, raw: &[u8], stat: &Stat, flags: u32) -> Listing {
        let changed = stat.ctime.seconds.max(stat.mtime.seconds).clamp(0, u32::MAX.into()) as u32;
        Listing { place: self.place(raw, stat.size_bytes, flags), version: inode::version(raw), changed }
    }

    /// Location of a directory's names, from its inode.
    fn place(&self, raw: &[u8], size_bytes: u64, flags: u32) -> ListingBlocks {
        let map: &[u8; BLOCK_BYTES] = raw[BLOCK..BLOCK + BLOCK_BYTES].try_into().unwrap_or(&[0; BLOCK_BYTES]);
        if flags & INLINE != 0 {
            // The first four bytes are the number of the parent.
            let first = &map[4..(size_bytes as usize).clamp(4, BLOCK_BYTES)];
            return ListingBlocks::Inline(Box::new(
                [first, inode::inline_rest(raw).unwrap_or_default()].map(<[u8]>::to_vec),
            ));
        }
        let limit = size_bytes.div_ceil(self.block_bytes());
        let extents = flags & EXTENTS != 0;
        let single = if extents { single_extent(map) } else { Some((u32_at(map, 0).into(), 1)) };
        match single {
            Some((first, count)) if first != 0 && count >= limit => ListingBlocks::Run { first, count: limit as u32 },
            _ => ListingBlocks::Map { root: Box::new(*map), extents, limit },
        }
    }

    /// The block of a symlink's target.
    fn target(&self, raw: &[u8], flags: u32) -> Option<u64> {
        match self.place(raw, 1, flags & EXTENTS) {
            ListingBlocks::Run { first, .. } => Some(first),
            _ => None,
        }
    }

    /// Reads the blocks of symlink targets, in device order.
    fn finish_targets(&self, buffers: &mut Buffers, found: &mut impl FnMut(Found<Listing>)) {
        let mut targets = std::mem::take(&mut buffers.targets);
        targets.sort_unstable_by_key(|target| target.block);
        for SymlinkTarget { offset, mut stat, block } in targets.drain(..) {
            let read = block.ok_or_else(|| damaged("its target is not in the expected place")).and_then(|block| {
                let mut first = [0];
                self.medium.read_at(&mut first, self.offset(block, 1)?)?;
                Ok(first[0])
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
        buffers.targets = targets;
    }

    /// Decodes the inodes of a piece of a table; `first` is the slot of its first inode.
    #[inline(always)]
    fn read_piece(
        &self,
        part: usize,
        first: usize,
        piece: &[u8],
        targets: &mut Vec<SymlinkTarget>,
        found: &mut impl FnMut(Found<Listing>),
    ) {
        let inode_bytes = self.superblock.inode_bytes as usize;
        let before = (part as u64 * u64::from(self.superblock.inodes_per_group)) as u32 + 1;
        for (offset, raw) in (first..).zip(piece.chunks_exact(inode_bytes)) {
            let number = before + offset as u32;
            match inode::decode(&self.superblock, number, raw, self.device) {
                Decoded::None => {}
                Decoded::Damaged(cause) => {
                    let (operation, inode) = ("read the inode", Some(number.into()));
                    found(Found::Damaged(Damage { operation, inode, error: damaged(cause) }));
                }
                Decoded::Inode { mut stat, flags } => match &mut stat.kind {
                    Kind::Directory => {
                        let listing = Some(self.listing(raw, &stat, flags));
                        found(Found::Inode { offset, stat, listing });
                    }
                    Kind::Symlink { absolute } => {
                        let inside = stat.size_bytes < SHORT_TARGET_BYTES || flags & INLINE != 0;
                        if inside || flags & ENCRYPTED != 0 {
                            // Encrypted targets count as relative: they cannot be read.
                            *absolute = flags & ENCRYPTED == 0 && raw[BLOCK] == b'/';
                            found(Found::Inode { offset, stat, listing: None });
                        } else {
                            targets.push(SymlinkTarget { offset, stat, block: self.target(raw, flags) });
                        }
                    }
                    _ => found(Found::Inode { offset, stat, listing: None }),
                },
            }
        }
    }
}

/// The only extent of a map, if it has exactly one: first block and length.
fn single_extent(map: &[u8; BLOCK_BYTES]) -> Option<(u64, u64)> {
    let single = u16_at(map, 2) == 1 && u16_at(map, 6) == 0 && u32_at(map, 12) == 0;
    let length = u16_at(map, 16);
    let first = u64::from(u32_at(map, 20)) | u64::from(u16_at(map, 18)) << 32;
    (single && length <= 1 << 15).then_some((first, length.into()))
}

impl<M: Medium> InodeSource for Ext<M> {
    type Listing = Listing;
    type Buffers = Buffers;

    fn root(&self) -> u64 {
        ROOT.into()
    }

    fn parts(&self) -> usize {
        self.groups.len()
    }

    fn slots(&self, part: usize) -> usize {
        self.groups[part].slots as usize
    }

    fn slot(&self, inode: u64) -> Option<Slot> {
        let number = u32::try_from(inode).ok()?.checked_sub(1)?;
        if number >= self.superblock.inodes {
            return None;
        }
        let a_group = self.superblock.inodes_per_group;
        Some(Slot { part: (number / a_group) as usize, offset: (number % a_group) as usize })
    }

    fn read_part(&self, part: usize, buffers: &mut Buffers, found: &mut impl FnMut(Found<Listing>)) {
        let group = self.groups[part];
        let inode_bytes = self.superblock.inode_bytes as usize;
        let start = group.table * self.block_bytes();
        let a_piece = PIECE_BYTES / inode_bytes;
        if let Some(next) = self.groups.get(part + AHEAD_PARTS).filter(|next| next.slots > 0) {
            self.medium.will_need(next.table * self.block_bytes(), u64::from(next.slots) * inode_bytes as u64);
        }
        for first in (0..group.slots as usize).step_by(a_piece) {
            let count = a_piece.min(group.slots as usize - first);
            buffers.piece.resize(count * inode_bytes, 0);
            match self.medium.read_at(&mut buffers.piece, start + (first * inode_bytes) as u64) {
                Ok(()) => self.read_piece(part, first, &buffers.piece, &mut buffers.targets, found),
                Err(error) => {
                    found(Found::Damaged(Damage { operation: "read an inode table", inode: None, error }));
                }
            }
        }
        self.finish_targets(buffers, found);
    }

    fn position(&self, listing: &Listing) -> u64 {
        match &listing.place {
            ListingBlocks::Inline(_) => 0,
            ListingBlocks::Run { first, .. } => *first,
            ListingBlocks::Map { root, extents: true, .. } if u16_at(&root[..], 6) == 0 => u32_at(&root[..], 20).into(),
            ListingBlocks::Map { root, extents: true, .. } => u32_at(&root[..], 16).into(),
            ListingBlocks::Map { root, .. } => u32_at(&root[..], 0).into(),
        }
    }

    fn list(&self, inode: u64, listing: &Listing, buffers: &mut Buffers, listed: &mut dyn FnMut(Listed<'_>)) {
        let mut lister = Lister { ext: self, window: &mut buffers.window, inode, listed };
        let result = match &listing.place {
            ListingBlocks::Inline(parts) => {
                parts.iter().for_each(|part| lister.block(part));
                Ok(())
            }
            ListingBlocks::Run { first, count } => lister.run(*first, (*count).into()).map(|_| ()),
            ListingBlocks::Map { root, extents: true, limit } => blocks::extents(root, *limit, &mut lister),
            ListingBlocks::Map { root, extents: false, limit } => blocks::numbers(root, *limit, &mut lister),
        };
        if let Err(error) = result {
            lister.damage(error);
        }
    }

    fn inodes_in_use(&self) -> Option<u64> {
        Some(self.superblock.inodes.saturating_sub(self.superblock.free_inodes).into())
    }

    fn extent(&self, listing: &Listing) -> Option<(u64, u64)> {
        match listing.place {
            ListingBlocks::Run { first, count } => {
                let offset = self.offset(first, count.into()).ok()?;
                Some((offset, u64::from(count) * self.block_bytes()))
            }
            _ => None,
        }
    }

    fn will_need(&self, offset: u64, length: u64) {
        self.medium.will_need(offset, length);
    }

    fn identity(&self) -> Option<u64> {
        Some(self.superblock.identity)
    }

    fn version(&self, listing: &Listing) -> Option<(u64, i64)> {
        Some((listing.version, listing.changed.into()))
    }

    fn begin_listing(&self) {
        self.medium.will_not_go_on();
        self.left.store(self.superblock.blocks, Relaxed);
    }
}

/// Lists one directory.
struct Lister<'l, 'f, M> {
    ext: &'l Ext<M>,
    window: &'l mut Window,
    inode: u64,
    listed: &'l mut (dyn FnMut(Listed<'_>) + 'f),
}

impl<M> Lister<'_, '_, M> {
    fn block(&mut self, bytes: &[u8]) {
        tell(self.inode, bytes, self.listed);
    }

    fn damage(&mut self, error: io::Error) {
        (self.listed)(Listed::Damaged(Damage { operation: "list the directory", inode: Some(self.inode), error }));
    }
}

/// Reports the names in a block, and any damage in it.
fn tell(inode: u64, bytes: &[u8], listed: &mut dyn FnMut(Listed<'_>)) {
    let told = directory::names(bytes, |name, child| listed(Listed::Name(name, child.into())));
    if let Err(error) = told {
        listed(Listed::Damaged(Damage { operation: "list the directory", inode: Some(inode), error }));
    }
}

impl<M: Medium> Follow for Lister<'_, '_, M> {
    fn read(&mut self, block: u64) -> io::Result<Vec<u8>> {
        self.ext.spend(1)?;
        let mut bytes = vec![0; self.ext.block_bytes() as usize];
        self.ext.medium.read_at(&mut bytes, self.ext.offset(block, 1)?)?;
        Ok(bytes)
    }

    fn numbers_a_block(&self) -> u64 {
        self.ext.block_bytes() / 4
    }

    fn run(&mut self, first: u64, count: u64) -> io::Result<bool> {
        self.ext.spend(count)?;
        let (start, block_bytes) = (self.ext.offset(first, count)?, self.ext.block_bytes());
        let a_piece = (PIECE_BYTES as u64 / block_bytes).max(1);
        for from in (0..count).step_by(a_piece as usize) {
            let length = (a_piece.min(count - from) * block_bytes) as usize;
            let piece = self.window.read(&self.ext.medium, start + from * block_bytes, length)?;
            for block in piece.chunks_exact(block_bytes as usize) {
                tell(self.inode, block, self.listed);
            }
        }
        Ok(true)
    }
}

/// Two bytes, little-endian; 0 past the end.
#[inline]
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).map_or(0, |bytes| u16::from_le_bytes([bytes[0], bytes[1]]))
}

/// Four bytes, little-endian; 0 past the end.
#[inline]
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |bytes| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}
