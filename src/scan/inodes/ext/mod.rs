//! ext2, ext3 and ext4, read from a device or an image.
//!
//! Nothing is trusted: every number is checked against the bounds of the file system before it is used, every checksum
//! that the file system has is verified ([`checksum`]), and impossible values are reported as damage, as Linux would
//! refuse them. Only inodes with names (a link count above 0) count: deleted ones and those that are
//! unlinked and still open have none, and internal inodes (journal, quotas, attributes, orphans) are left out by number
//! or flag. The values of `stat` are computed as Linux does, also where that is odd (data in the inode counts as
//! allocated).
//!
//! A mounted file system is read through the page cache of its device, where the kernel keeps the same tables and
//! directories: after it is synchronised, the bytes read are the current ones. The kernel changes an inode or a block
//! first and its checksum afterwards; so what is wrong is read again for a while ([`Ext::await_changes`]).

mod blocks;
mod checksum;
mod damaged_listing;
mod directory;
mod groups;
mod index;
mod inode;
mod listing;
mod raw;
#[cfg(feature = "testing")]
mod seal;
mod superblock;

use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use self::damaged_listing::list_damaged;
use self::groups::Groups;
use self::inode::{Decoded, ENCRYPTED, INLINE, ROOT};
use self::listing::Lister;
pub use self::listing::Listing;
use self::raw::BLOCK_BYTES;
#[cfg(feature = "testing")]
pub use self::seal::seal;
use self::superblock::Superblock;
use super::medium::Medium;
use super::{Damage, Found, InodeSource, Listed, Slot, damaged};
use crate::error::{Error, ErrorKind, Result};
use crate::scan::{Kind, Stat};

/// Bytes of a table per read: few enough to stay in a core's cache.
const PIECE_BYTES: usize = 64 << 10;
/// Groups to read ahead.
const AHEAD_PARTS: usize = 4;
/// How long to wait for a checksum that is wrong: at first, and at most, doubled each time.
const WAITS_MS: [u64; 2] = [1, 128];
/// How long to wait in all: what is still wrong then is damaged.
const ALL_WAITS_MS: u64 = 2000;
/// Symlink targets shorter than this are in the inode, with a NUL after them.
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
    /// Milliseconds left to wait for the kernel.
    patience: AtomicU64,
}

/// Buffers that a thread reuses.
#[derive(Debug, Default)]
pub struct Buffers {
    piece: Vec<u8>,
    listing: listing::Buffers,
    targets: Vec<SymlinkTarget>,
}

/// A symlink whose target is in a block.
#[derive(Debug)]
struct SymlinkTarget {
    offset: usize,
    stat: Stat,
    block: Option<u64>,
}

/// Whether directories of the file system on `medium` may find names however they are written.
///
/// # Errors
/// As [`Ext::open`], as far as the superblock is concerned.
pub fn folds_names(medium: &impl Medium) -> Result<bool> {
    Ok(Superblock::read(medium)?.casefold)
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
        Ok(Ext { medium, superblock, groups, warnings, device, left, patience: AtomicU64::new(0) })
    }

    /// Expects that the kernel writes meanwhile: a wrong checksum may then be one that is being changed.
    #[must_use]
    pub fn await_changes(self) -> Ext<M> {
        self.patience.store(ALL_WAITS_MS, Relaxed);
        self
    }

    /// Whether some of its directories may be encrypted.
    pub fn may_be_encrypted(&self) -> bool {
        self.superblock.encrypt
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

    /// Reads something again while it is damaged, if the kernel may be writing it.
    fn settled<T>(&self, mut read: impl FnMut() -> (T, bool)) -> T {
        let mut wait = WAITS_MS[0];
        loop {
            let (found, is_intact) = read();
            let is_over = || self.patience.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(wait)).is_err();
            if is_intact || wait > WAITS_MS[1] || is_over() {
                return found;
            }
            std::thread::sleep(Duration::from_millis(wait));
            wait *= 2;
        }
    }

    /// An inode as it is in its table now.
    fn read_inode(&self, number: u32) -> io::Result<Vec<u8>> {
        let slot = self.slot(number.into());
        let place = slot.and_then(|slot| Some((self.groups.get(slot.part)?.table, slot.offset)));
        let (table, offset) = place.ok_or(io::ErrorKind::NotFound)?;
        let mut bytes = vec![0; self.superblock.inode_bytes as usize];
        let start = table * self.block_bytes();
        self.medium.read_at(&mut bytes, start + offset as u64 * u64::from(self.superblock.inode_bytes))?;
        Ok(bytes)
    }

    /// Lists a directory that was damaged, or was being written, as it is now.
    #[cold]
    fn list_again(&self, inode: u64, before: &Listing, buffers: &mut Buffers, listed: &mut dyn FnMut(Listed<'_>)) {
        let number = inode as u32;
        let current = self.settled(|| {
            let bytes = self.read_inode(number).unwrap_or_default();
            let current = match self.decode(number, &bytes) {
                Decoded::Inode { raw, stat, flags } if stat.kind == Kind::Directory => {
                    Some(Listing::new(self, number, raw, &stat, flags)).filter(|now| now.is_of_same(before))
                }
                Decoded::Damaged(_) => return (None, false),
                _ => None,
            };
            let mut prepare = |now| Lister::new(self, inode, now, &mut buffers.listing).prepare();
            let is_settled = current.as_ref().is_none_or(|now| prepare(now).is_ok());
            (Some(current), is_settled)
        });
        let now = match &current {
            Some(None) => return listed(Listed::Gone),
            Some(Some(now)) => now,
            None => before,
        };
        let mut lister = Lister::new(self, inode, now, &mut buffers.listing);
        match lister.prepare() {
            Ok(()) => lister.list(listed),
            Err(error) => list_damaged(&lister, error, listed),
        }
    }

    #[inline(always)]
    fn decode<'a>(&self, number: u32, bytes: &'a [u8]) -> Decoded<'a> {
        inode::decode(&self.superblock, number, bytes, self.device)
    }

    /// Reports the symlinks whose targets are in blocks, which it reads in device order.
    fn finish_targets(&self, targets: &mut Vec<SymlinkTarget>, found: &mut impl FnMut(Found<Listing>)) {
        targets.sort_unstable_by_key(|target| target.block);
        for SymlinkTarget { offset, mut stat, block } in targets.drain(..) {
            let read = block.ok_or_else(|| damaged("its target is not in the expected place")).and_then(|block| {
                let mut first = [0];
                self.medium.read_at(&mut first, self.offset(block, 1)?)?;
                Ok(first[0])
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
        for (offset, bytes) in (first..).zip(piece.chunks_exact(inode_bytes)) {
            let number = before + offset as u32;
            let decoded = self.decode(number, bytes);
            if matches!(decoded, Decoded::Damaged(_)) && self.patience.load(Relaxed) > 0 {
                self.read_again(offset, number, targets, found);
                continue;
            }
            self.report(offset, number, decoded, targets, found);
        }
    }

    /// An inode that was damaged, or was being written.
    #[cold]
    fn read_again(
        &self,
        offset: usize,
        number: u32,
        targets: &mut Vec<SymlinkTarget>,
        found: &mut impl FnMut(Found<Listing>),
    ) {
        let bytes = self.settled(|| {
            let bytes = self.read_inode(number).unwrap_or_default();
            let is_intact = !matches!(self.decode(number, &bytes), Decoded::Damaged(_));
            (bytes, is_intact)
        });
        self.report(offset, number, self.decode(number, &bytes), targets, found);
    }

    /// Reports a decoded inode.
    #[inline(always)]
    fn report(
        &self,
        offset: usize,
        number: u32,
        decoded: Decoded<'_>,
        targets: &mut Vec<SymlinkTarget>,
        found: &mut impl FnMut(Found<Listing>),
    ) {
        match decoded {
            Decoded::None => {}
            Decoded::Damaged(cause) => {
                let (operation, inode) = ("read the inode", Some(number.into()));
                found(Found::Damaged(Damage { operation, inode, error: damaged(cause) }));
            }
            Decoded::Inode { raw, mut stat, flags } => match &mut stat.kind {
                Kind::Directory => {
                    let listing = Some(Listing::new(self, number, raw, &stat, flags));
                    found(Found::Inode { offset, stat, listing });
                }
                Kind::Symlink { absolute } => {
                    let inside = stat.size_bytes < SHORT_TARGET_BYTES || flags & INLINE != 0;
                    if inside || flags & ENCRYPTED != 0 {
                        // Encrypted targets count as relative: they cannot be read.
                        *absolute = flags & ENCRYPTED == 0 && raw.block()[0] == b'/';
                        found(Found::Inode { offset, stat, listing: None });
                    } else {
                        targets.push(SymlinkTarget { offset, stat, block: listing::target(raw, flags) });
                    }
                }
                _ => found(Found::Inode { offset, stat, listing: None }),
            },
        }
    }
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
        self.groups.get(part).map_or(0, |group| group.slots as usize)
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
        let Some(group) = self.groups.get(part) else { return };
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
        self.finish_targets(&mut buffers.targets, found);
    }

    fn position(&self, listing: &Listing) -> u64 {
        listing.position()
    }

    fn list(&self, inode: u64, listing: &Listing, buffers: &mut Buffers, listed: &mut dyn FnMut(Listed<'_>)) {
        let mut lister = Lister::new(self, inode, listing, &mut buffers.listing);
        match lister.prepare() {
            Ok(()) => lister.list(listed),
            Err(_) if self.patience.load(Relaxed) > 0 => self.list_again(inode, listing, buffers, listed),
            Err(error) => list_damaged(&lister, error, listed),
        }
    }

    fn inodes_in_use(&self) -> Option<u64> {
        Some(self.superblock.inodes.saturating_sub(self.superblock.free_inodes).into())
    }

    fn extent(&self, listing: &Listing) -> Option<(u64, u64)> {
        let (first, count) = listing.run()?;
        Some((self.offset(first, count).ok()?, count * self.block_bytes()))
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
