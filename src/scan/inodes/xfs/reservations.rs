//! Blocks that are reserved for copy-on-write: before the kernel writes to blocks that several files share, it reserves
//! others, usually more than it then needs. While the file system is mounted, `stat` counts them as blocks of the file,
//! although the inode does not have them.
//!
//! The tree of reference counts of each allocation group has the reservations, behind all shared blocks (Linux,
//! `fs/xfs/libxfs/xfs_refcount.c`): its last record tells whether there are any.

use std::io;

use super::chunks::ReadBlock;
use super::superblock::{Superblock, is_sealed};
use super::{u16_at, u32_at};
use crate::scan::inodes::damaged;

/// The header of a group's free space and counts is in its second sector.
const HEADER_SECTOR: u64 = 1;
const HEADER_MAGIC: &[u8] = b"XAGF";
const HEADER_CHECKSUM: usize = 216;
/// In the header: number of the group, root of the tree, its levels.
const GROUP: usize = 8;
const ROOT: usize = 88;
const LEVELS: usize = 92;
const MAGIC: &[u8] = b"R3FC";
const CHECKSUM: usize = 52;
const NODE_HEADER_BYTES: usize = 56;
const RECORD_BYTES: usize = 12;
const MOST_LEVELS: u32 = 9;
/// Set in the first block of a record that is a reservation.
const RESERVED: u32 = 1 << 31;

/// Whether a group has reservations.
///
/// # Errors
/// If its tree cannot be read, or is damaged.
pub(super) fn in_group(superblock: &Superblock, group: u32, read: ReadBlock<'_>) -> io::Result<bool> {
    let start = superblock.place(group, 0, 1).ok_or_else(|| damaged("a group is outside the file system"))?;
    let sector_bytes = superblock.sector_bytes as usize;
    let (header, sealed) = read(start + HEADER_SECTOR * sector_bytes as u64, sector_bytes)?;
    let is_whole = !sealed || is_sealed(&header, HEADER_CHECKSUM);
    if !header.starts_with(HEADER_MAGIC) || u32_at(&header, GROUP) != group || !is_whole {
        return Err(damaged("its header of free space is damaged"));
    }
    let (mut block, levels) = (u32_at(&header, ROOT), u32_at(&header, LEVELS));
    if levels == 0 || levels > MOST_LEVELS {
        return Err(damaged("its tree of reference counts has too many levels"));
    }
    for level in (0..levels).rev() {
        let place = superblock.place(group, block.into(), 1);
        let place = place.ok_or_else(|| damaged("a node of its tree of reference counts is outside it"))?;
        let (bytes, sealed) = read(place, superblock.block_bytes as usize)?;
        let is_whole = !sealed || is_sealed(&bytes, CHECKSUM);
        if !bytes.starts_with(MAGIC) || u32::from(u16_at(&bytes, 4)) != level || !is_whole {
            return Err(damaged("a node of its tree of reference counts is damaged"));
        }
        let entries = bytes.get(NODE_HEADER_BYTES..).unwrap_or_default();
        let Some(last) = usize::from(u16_at(&bytes, 6)).checked_sub(1) else { return Ok(false) };
        if level == 0 {
            let record = entries.chunks_exact(RECORD_BYTES).nth(last);
            let record = record.ok_or_else(|| damaged("a node of its tree of reference counts is too full"))?;
            return Ok(u32_at(record, 0) & RESERVED != 0);
        }
        // The children follow all keys.
        let most = entries.len() / 8;
        if last >= most {
            return Err(damaged("a node of its tree of reference counts is too full"));
        }
        block = u32_at(entries, 4 * (most + last));
    }
    Ok(false)
}
