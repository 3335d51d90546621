//! Group descriptors: the location of each group's inode table, and how much of it was ever used.

use super::checksum::crc16;
use super::superblock::{MOST_RETRIES, RETRY_AFTER, Superblock};
use crate::error::{Error, ErrorKind, Result};
use crate::scan::inodes::checksum::crc32c;
use crate::scan::inodes::fields::LittleEndian;
use crate::scan::inodes::medium::Medium;

const INODES_UNINITIALISED: u16 = 1;
/// Offset of the checksum in a descriptor.
pub(super) const CHECKSUM: usize = 0x1e;

/// A group's inode table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Group {
    /// Its first block.
    pub(super) table: u64,
    /// Number of its inodes, from the first, that may be in use.
    pub(super) slots: u32,
}

/// All groups, and the number of damaged descriptors; a table with an invalid location is left out.
pub(super) struct Groups {
    pub(super) groups: Vec<Group>,
    /// Groups whose descriptor is unusable.
    pub(super) damaged: Vec<u32>,
    /// Number of descriptors that were read from copies.
    pub(super) copied: usize,
}

/// Reads all descriptors.
///
/// # Errors
/// [`ErrorKind::Corrupt`] if no inode table can be found.
pub(super) fn read(medium: &impl Medium, superblock: &Superblock) -> Result<Groups> {
    let (mut first, mut unreadable) = from(medium, superblock, 0);
    for _ in 0..MOST_RETRIES {
        // The kernel may be writing them.
        if superblock.group == 0 && !first.damaged.is_empty() {
            std::thread::sleep(RETRY_AFTER);
            (first, unreadable) = from(medium, superblock, 0);
        }
    }
    if superblock.group == 0 && first.damaged.is_empty() && !unreadable {
        return Ok(first);
    }
    // A copy of descriptors has the locations of the tables; its counts of used inodes date from the creation of the
    // file system.
    let copies = (1..u64::from(superblock.groups)).filter(|&group| superblock.has_copy(group)).take(4);
    let mut best = first;
    for group in copies {
        let (mut copy, _) = from(medium, superblock, group);
        copy.groups
            .iter_mut()
            .filter(|group| group.table != 0)
            .for_each(|group| group.slots = superblock.inodes_per_group);
        if copy.damaged.len() < best.damaged.len() {
            // The primary descriptors are newer; they are preferred if they are valid.
            for (number, (group, primary)) in (0..).zip(copy.groups.iter_mut().zip(&best.groups)) {
                if best.damaged.binary_search(&number).is_err() {
                    *group = *primary;
                }
            }
            copy.copied = best.copied + best.damaged.len() - copy.damaged.len();
            best = copy;
        }
    }
    if best.damaged.len() == best.groups.len() {
        let error = Error::new(ErrorKind::Corrupt, "read the group descriptors", "none of them is intact");
        return Err(error.advise("check the file system with e2fsck"));
    }
    Ok(best)
}

/// Reads the descriptors beside the superblock of `home`; returns whether some could not be read.
fn from(medium: &impl Medium, superblock: &Superblock, home: u64) -> (Groups, bool) {
    let block_bytes = superblock.block_bytes as usize;
    let a_block = block_bytes / superblock.descriptor_bytes as usize;
    let mut block = vec![0; block_bytes];
    let mut groups = Vec::with_capacity(superblock.groups as usize);
    let (mut damaged, mut unreadable) = (Vec::new(), false);
    while groups.len() < superblock.groups as usize {
        let number = (groups.len() / a_block) as u64;
        let place = place(superblock, home, number);
        let read = medium.read_at(&mut block, place.saturating_mul(block_bytes as u64));
        unreadable |= read.is_err();
        for descriptor in block.chunks_exact(superblock.descriptor_bytes as usize) {
            let group = groups.len() as u32;
            if group == superblock.groups {
                break;
            }
            let parsed = if read.is_ok() { parse(superblock, group, descriptor) } else { None };
            if parsed.is_none() {
                damaged.push(group);
            }
            groups.push(parsed.unwrap_or(Group { table: 0, slots: 0 }));
        }
    }
    (Groups { groups, damaged, copied: 0 }, unreadable)
}

/// The block with descriptor block `number`.
pub(super) fn place(superblock: &Superblock, home: u64, number: u64) -> u64 {
    let small = superblock.block_bytes == 1024;
    if !superblock.has_meta_bg || number < u64::from(superblock.first_meta_bg) {
        let own = u64::from(small && superblock.first_data_block == 0);
        return superblock.first_block(home) + own + 1 + number;
    }
    let a_block = u64::from(superblock.block_bytes / superblock.descriptor_bytes);
    // The copies are in the second and in the last group of those that the block describes.
    let group = number * a_block + u64::from(home != 0);
    let own = u64::from(small && group == 0 && superblock.first_data_block == 0);
    superblock.first_block(group) + u64::from(superblock.has_copy(group)) + own
}

/// Parses a descriptor; `None` if it is unusable.
fn parse(superblock: &Superblock, number: u32, descriptor: &[u8]) -> Option<Group> {
    let (narrow, wide) = (descriptor.first_chunk::<32>()?, descriptor.first_chunk::<64>());
    let high = wide.map_or(0, |wide| u64::from(wide.u32::<0x28>()) << 32);
    let table = high | u64::from(narrow.u32::<0x8>());
    let table_bytes = u64::from(superblock.inodes_per_group) * u64::from(superblock.inode_bytes);
    let end = table.checked_add(table_bytes.div_ceil(superblock.block_bytes.into()))?;
    if table <= superblock.first_data_block.into() || end > superblock.blocks {
        return None;
    }
    let stored = narrow.u16::<CHECKSUM>();
    let expected = checksum(superblock, number, descriptor);
    let all = superblock.inodes_per_group;
    let slots = match expected {
        Some(expected) if expected != stored => return None,
        // Only descriptors with checksums record how much of a table was used.
        Some(_) if narrow.u16::<0x12>() & INODES_UNINITIALISED != 0 => 0,
        Some(_) => {
            let high = wide.map_or(0, |wide| u32::from(wide.u16::<0x32>()) << 16);
            all.saturating_sub(high | u32::from(narrow.u16::<0x1c>()))
        }
        None => all,
    };
    Some(Group { table, slots })
}

/// The checksum that a descriptor should have, if descriptors have any.
pub(super) fn checksum(superblock: &Superblock, number: u32, descriptor: &[u8]) -> Option<u16> {
    let (first, behind) = descriptor.split_first_chunk::<CHECKSUM>()?;
    let (_, rest) = behind.split_first_chunk::<2>()?;
    match superblock.seed {
        Some(seed) => {
            let crc = crc32c(crc32c(seed, &number.to_le_bytes()), first);
            Some(crc32c(crc32c(crc, &[0; 2]), rest) as u16)
        }
        None if superblock.crc16 => {
            let crc = crc16(crc16(!0, &superblock.uuid), &number.to_le_bytes());
            let crc = crc16(crc, first);
            Some(if descriptor.len() >= 64 { crc16(crc, rest) } else { crc })
        }
        None => None,
    }
}
