//! The superblock: the layout of an XFS file system, and what a reader has to know.

use crate::error::{Error, ErrorKind, Result};
use crate::scan::inodes::checksum::crc32c;
use crate::scan::inodes::fields::{BigEndian, Record};

/// The most that is read: the superblock is in the first sector.
pub(super) const BYTES: usize = 512;
const MAGIC: &[u8] = b"XFSB";
const CHECKSUM: usize = 224;
/// Before version 5, features are in these bits.
const V4_DIRECTORIES2: u16 = 0x2000;
const V4_MORE: u16 = 0x8000;
const V4_FILE_TYPES: u32 = 0x200;
/// Features that a reader need not know are in another field. These are file types in entries, sparse inode chunks, a
/// separate metadata identifier, large times, large extent counts, exchange of ranges, parent pointers, a tree of
/// internal files, and zones with gaps.
const KNOWN: u32 = 0x1 | 0x2 | 0x4 | 0x8 | NEEDS_REPAIR | 0x20 | 0x40 | 0x80 | 0x100 | 0x200 | 0x400;
const FILE_TYPES: u32 = 0x1;
const OTHER_IDENTIFIER: u32 = 0x4;
const NEEDS_REPAIR: u32 = 0x10;
/// A feature that only writers must know.
const REFERENCE_COUNTS: u32 = 0x4;

/// The fields of a superblock that are used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Superblock {
    pub(super) block_bytes: u32,
    pub(super) blocks: u64,
    pub(super) group_blocks: u32,
    pub(super) groups: u32,
    /// Numbers of bits: of a block number within a group, of the inodes in a block, and of a block.
    pub(super) group_bits: u32,
    pub(super) inode_bits: u32,
    pub(super) sector_bytes: u32,
    pub(super) inode_bytes: u32,
    pub(super) directory_bytes: u32,
    pub(super) root: u64,
    /// Inodes that are internal to the file system.
    pub(super) internal: [u64; 5],
    /// The first block of the log; `None` if it is on another device.
    pub(super) log: Option<u64>,
    pub(super) log_blocks: u32,
    /// Whether there are checksums.
    pub(super) is_v5: bool,
    pub(super) file_types: bool,
    /// Whether files can share blocks.
    pub(super) has_reference_counts: bool,
    /// The identifier in metadata blocks.
    pub(super) identifier: [u8; 16],
    /// The identifier of the file system, which the log contains.
    pub(super) user_identifier: [u8; 16],
}

impl Superblock {
    /// Parses the first sector.
    ///
    /// # Errors
    /// [`ErrorKind::NotRecognised`] if it is not XFS, or has unknown features, [`ErrorKind::Corrupt`] if it contradicts
    /// itself.
    pub(super) fn parse(bytes: &[u8; BYTES], checked: bool) -> Result<Superblock> {
        if !bytes.starts_with(MAGIC) {
            return Err(Error::new(ErrorKind::NotRecognised, "read the superblock", "it is not XFS"));
        }
        let is_v5 = match bytes.u16::<100>() & 0xf {
            4 if bytes.u16::<100>() & V4_DIRECTORIES2 != 0 => false,
            5 => true,
            version => return Err(unknown(format!("XFS version {version}"))),
        };
        let incompatible = if is_v5 { bytes.u32::<216>() } else { 0 };
        let not_known = incompatible & !KNOWN;
        if not_known != 0 {
            return Err(unknown(format!("incompat {:#x}", 1u32 << not_known.trailing_zeros())));
        }
        if incompatible & NEEDS_REPAIR != 0 {
            return Err(damaged("it is marked as needing repair"));
        }
        let more = if bytes.u16::<100>() & V4_MORE != 0 { bytes.u32::<200>() } else { 0 };
        let (user_identifier, other_identifier) = (*bytes.field::<32, 16>(), *bytes.field::<248, 16>());
        let [blocks_log, sectors_log, inodes_log, inodes_a_block, groups_log] = bytes.field::<120, 5>().map(u32::from);
        let superblock = Superblock {
            block_bytes: bytes.u32::<4>(),
            blocks: bytes.u64::<8>(),
            group_blocks: bytes.u32::<84>(),
            groups: bytes.u32::<88>(),
            group_bits: groups_log,
            inode_bits: inodes_a_block,
            sector_bytes: bytes.u16::<102>().into(),
            inode_bytes: bytes.u16::<104>().into(),
            directory_bytes: bytes.u32::<4>().checked_shl(bytes[192].into()).unwrap_or(0),
            root: bytes.u64::<56>(),
            internal: [
                bytes.u64::<64>(),
                bytes.u64::<72>(),
                bytes.u64::<160>(),
                bytes.u64::<168>(),
                bytes.u64::<232>(),
            ],
            log: Some(bytes.u64::<48>()).filter(|&start| start != 0),
            log_blocks: bytes.u32::<96>(),
            is_v5,
            has_reference_counts: is_v5 && bytes.u32::<212>() & REFERENCE_COUNTS != 0,
            file_types: incompatible & FILE_TYPES != 0 || !is_v5 && more & V4_FILE_TYPES != 0,
            identifier: if incompatible & OTHER_IDENTIFIER != 0 { other_identifier } else { user_identifier },
            user_identifier,
        };
        let fits = |bytes: u32, log: u32, least: u32, most: u32| {
            (least..=most).contains(&bytes) && bytes.is_power_of_two() && log == bytes.trailing_zeros()
        };
        let least_inode = if is_v5 { 512 } else { 256 };
        let sizes = fits(superblock.block_bytes, blocks_log, 512, 64 << 10)
            && fits(superblock.sector_bytes, sectors_log, 512, 32 << 10)
            && fits(superblock.inode_bytes, inodes_log, least_inode, 2048)
            && blocks_log == inodes_log + inodes_a_block
            && (superblock.block_bytes..=64 << 10).contains(&superblock.directory_bytes);
        if !sizes {
            return Err(damaged("its sizes are impossible"));
        }
        let groups = superblock.blocks.div_ceil(superblock.group_blocks.max(1).into());
        let bits = u64::from(superblock.group_blocks).next_power_of_two().trailing_zeros();
        let counts = superblock.blocks > 0
            && superblock.blocks >> 52 == 0
            && groups == u64::from(superblock.groups)
            && bits == groups_log
            && groups_log + inodes_a_block <= 32;
        if !counts {
            return Err(damaged("its number of blocks does not match its groups"));
        }
        Ok(superblock).and_then(|superblock| {
            let sealed = !is_v5 || !checked || superblock.is_sealed(bytes);
            if sealed { Ok(superblock) } else { Err(damaged("its checksum is wrong")) }
        })
    }

    /// Whether the checksum of the superblock is valid. It covers the sector; beyond the known part, the sector is
    /// empty.
    fn is_sealed(&self, bytes: &[u8; BYTES]) -> bool {
        let mut sector = bytes.to_vec();
        sector.resize(self.sector_bytes as usize, 0);
        is_sealed(&sector, CHECKSUM)
    }

    /// Size of the data device.
    pub(super) fn length_bytes(&self) -> u64 {
        self.blocks.saturating_mul(self.block_bytes.into())
    }

    /// Number of blocks in a group.
    pub(super) fn blocks_of(&self, group: u32) -> u64 {
        let before = u64::from(group) * u64::from(self.group_blocks);
        self.blocks.saturating_sub(before).min(self.group_blocks.into())
    }

    /// Offset of block `block` of a group, if `count` blocks fit from there.
    pub(super) fn place(&self, group: u32, block: u64, count: u64) -> Option<u64> {
        let end = block.checked_add(count)?;
        let fits = group < self.groups && end <= self.blocks_of(group);
        let first = u64::from(group) * u64::from(self.group_blocks) + block;
        fits.then(|| first * u64::from(self.block_bytes))
    }

    /// Offset of a block that is numbered over all groups.
    pub(super) fn place_of(&self, number: u64, count: u64) -> Option<u64> {
        let group = u32::try_from(number >> self.group_bits).ok()?;
        self.place(group, number & ((1 << self.group_bits) - 1), count)
    }

    /// The group of an inode, and its number within the group.
    pub(super) fn split(&self, inode: u64) -> Option<(u32, u32)> {
        let bits = self.group_bits + self.inode_bits;
        let group = u32::try_from(inode >> bits).ok().filter(|&group| group < self.groups)?;
        Some((group, (inode & ((1 << bits) - 1)) as u32))
    }

    /// The number of an inode, from its group and the number within the group.
    pub(super) fn inode(&self, group: u32, number: u32) -> u64 {
        u64::from(group) << (self.group_bits + self.inode_bits) | u64::from(number)
    }

    /// Offset of inodes of a group, if all of them fit in it.
    pub(super) fn inode_place(&self, group: u32, number: u32, count: u32) -> Option<u64> {
        let a_block = 1u64 << self.inode_bits;
        let (first, end) = (u64::from(number), u64::from(number) + u64::from(count));
        let block = first >> self.inode_bits;
        let start = self.place(group, block, end.div_ceil(a_block) - block)?;
        Some(start + (first & (a_block - 1)) * u64::from(self.inode_bytes))
    }
}

/// Whether the checksum of a block, which is at `at`, matches the rest of it.
pub(super) fn is_sealed(block: &[u8], at: usize) -> bool {
    let Some((before, rest)) = block.split_at_checked(at) else { return false };
    let Some((stored, behind)) = rest.split_first_chunk() else { return false };
    let crc = crc32c(crc32c(crc32c(!0, before), &[0; 4]), behind);
    (!crc).to_le_bytes() == *stored
}

fn unknown(what: String) -> Error {
    let cause = format!("it has an unsupported feature: {what}");
    Error::new(ErrorKind::NotRecognised, "read the superblock", cause).advise("use --method walk")
}

fn damaged(cause: &str) -> Error {
    Error::new(ErrorKind::Corrupt, "read the superblock", cause).advise("check it with xfs_repair -n")
}
