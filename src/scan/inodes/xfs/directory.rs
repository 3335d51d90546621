//! The names in an inode, or in a block of a directory.

use std::io;

use super::superblock::Superblock;
use super::{u16_at, u32_at, u64_at};
use crate::scan::inodes::damaged;

/// End of the part of a directory that contains names; hashes and free space follow.
pub(super) const NAMES_BYTES: u64 = 1 << 35;
const FREE: u16 = 0xffff;

/// Reports the names of a small directory, which are in its inode.
///
/// # Errors
/// If an entry extends past the fork; the entries before it were reported.
pub(super) fn of_inode(superblock: &Superblock, fork: &[u8], mut tell: impl FnMut(&[u8], u64)) -> io::Result<()> {
    let cut = || damaged("one of its entries is damaged");
    let [count, wide, ..] = *fork else { return Err(cut()) };
    let number_bytes = if wide > 0 { 8 } else { 4 };
    let kind_bytes = usize::from(superblock.file_types);
    let mut at = 2 + number_bytes;
    for _ in 0..count {
        let length = usize::from(*fork.get(at).ok_or_else(cut)?);
        let name = fork.get(at + 3..at + 3 + length).filter(|name| !name.is_empty()).ok_or_else(cut)?;
        let behind = at + 3 + length + kind_bytes;
        let number = fork.get(behind..behind + number_bytes).ok_or_else(cut)?;
        let number = if wide > 0 { u64_at(number, 0) } else { u32_at(number, 0).into() };
        tell(name, number);
        at = behind + number_bytes;
    }
    Ok(())
}

/// Reports the names in a block of a directory.
///
/// # Errors
/// If an entry extends past the block; the entries before it were reported.
pub(super) fn of_block(superblock: &Superblock, block: &[u8], mut tell: impl FnMut(&[u8], u64)) -> io::Result<()> {
    let (magics, mut at): ([&[u8]; 2], usize) =
        if superblock.is_v5 { ([b"XDB3", b"XDD3"], 64) } else { ([b"XD2B", b"XD2D"], 16) };
    let end = match &block[..4] {
        // The only block of a directory ends with the hashes of its names and their number.
        magic if magic == magics[0] => {
            let hashes = u64::from(u32_at(block, block.len() - 8)) * 8 + 8;
            block.len().saturating_sub(usize::try_from(hashes).unwrap_or(usize::MAX))
        }
        magic if magic == magics[1] => block.len(),
        _ => return Err(damaged("one of its blocks is damaged")),
    };
    let cut = || damaged("one of its entries is damaged");
    let kind_bytes = usize::from(superblock.file_types);
    while at + 8 < end {
        if u16_at(block, at) == FREE {
            let length = usize::from(u16_at(block, at + 2));
            if length < 8 || !length.is_multiple_of(8) || at + length > end {
                return Err(cut());
            }
            at += length;
            continue;
        }
        let length = usize::from(block[at + 8]);
        let entry_bytes = (8 + 1 + length + kind_bytes + 2).next_multiple_of(8);
        if length == 0 || at + entry_bytes > end {
            return Err(cut());
        }
        tell(&block[at + 9..at + 9 + length], u64_at(block, at));
        at += entry_bytes;
    }
    Ok(())
}
