//! Blocks that are reserved for copy-on-write: before the kernel writes to blocks that several files share, it reserves
//! others, usually more than it then needs. While the file system is mounted, `stat` counts them as blocks of the file,
//! although the inode does not have them.
//!
//! The tree of reference counts of each allocation group has the reservations, behind all shared blocks (Linux,
//! `fs/xfs/libxfs/xfs_refcount.c`): its last record tells whether there are any.

use std::io;

use super::chunks::ReadBlock;
use super::superblock::{Superblock, is_sealed};
use super::tree::{children, node};
use crate::scan::inodes::damaged;
use crate::scan::inodes::fields::BigEndian;

/// The header of a group's free space and counts is in its second sector.
const HEADER_SECTOR: u64 = 1;
const HEADER_MAGIC: &[u8] = b"XAGF";
const HEADER_CHECKSUM: usize = 216;
const HEADER_BYTES: usize = 96;
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
    let is_it =
        |header: &&[u8; HEADER_BYTES]| is_whole && header.starts_with(HEADER_MAGIC) && header.u32::<GROUP>() == group;
    let header = header.first_chunk().filter(is_it).ok_or_else(|| damaged("its header of free space is damaged"))?;
    let (mut block, levels) = (header.u32::<ROOT>(), header.u32::<LEVELS>());
    if levels == 0 || levels > MOST_LEVELS {
        return Err(damaged("its tree of reference counts has too many levels"));
    }
    for level in (0..levels).rev() {
        let place = superblock.place(group, block.into(), 1);
        let place = place.ok_or_else(|| damaged("a node of its tree of reference counts is outside it"))?;
        let (bytes, sealed) = read(place, superblock.block_bytes as usize)?;
        let is_whole = !sealed || is_sealed(&bytes, CHECKSUM);
        let (header, entries) = node(&bytes, MAGIC, NODE_HEADER_BYTES)
            .filter(|(header, _)| is_whole && u32::from(header.u16::<4>()) == level)
            .ok_or_else(|| damaged("a node of its tree of reference counts is damaged"))?;
        let count = usize::from(header.u16::<6>());
        let Some(last) = count.checked_sub(1) else { return Ok(false) };
        let too_full = || damaged("a node of its tree of reference counts is too full");
        if level == 0 {
            let record = entries.as_chunks::<RECORD_BYTES>().0.get(last).ok_or_else(too_full)?;
            return Ok(record.u32::<0>() & RESERVED != 0);
        }
        let (_, child) = children(entries, count).nth(last).ok_or_else(too_full)?;
        block = u32::from_be_bytes(child);
    }
    Ok(false)
}
