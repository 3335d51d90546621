//! The names in an inode, or in a block of a directory.

use std::io;

use super::superblock::Superblock;
use crate::scan::inodes::damaged;
use crate::scan::inodes::fields::BigEndian;

/// End of the part of a directory that contains names; hashes and free space follow.
pub(super) const NAMES_BYTES: u64 = 1 << 35;
const FREE: u16 = 0xffff;

/// Reports the names of a small directory, which are in its inode.
///
/// # Errors
/// If an entry extends past the fork; the entries before it were reported.
pub(super) fn of_inode(superblock: &Superblock, fork: &[u8], mut visit: impl FnMut(&[u8], u64)) -> io::Result<()> {
    let cut = || damaged("one of its entries is damaged");
    let [count, wide, ..] = *fork else { return Err(cut()) };
    let number_bytes = if wide > 0 { 8 } else { 4 };
    let kind_bytes = usize::from(superblock.file_types);
    // The number of the parent is before the entries.
    let mut rest = fork.get(2 + number_bytes..).unwrap_or_default();
    for _ in 0..count {
        let (name, number, behind) = split_entry(rest, kind_bytes, number_bytes).ok_or_else(cut)?;
        visit(name, number);
        rest = behind;
    }
    Ok(())
}

/// The name and the number of the entry at the start of `bytes`, and what follows the entry.
fn split_entry(bytes: &[u8], kind_bytes: usize, number_bytes: usize) -> Option<(&[u8], u64, &[u8])> {
    let (&[length, _, _], rest) = bytes.split_first_chunk()?;
    let (name, rest) = rest.split_at_checked(length.into()).filter(|(name, _)| !name.is_empty())?;
    let (number, behind) = rest.get(kind_bytes..)?.split_at_checked(number_bytes)?;
    Some((name, number.iter().fold(0, |number, &byte| number << 8 | u64::from(byte)), behind))
}

/// Reports the names in a block of a directory.
///
/// # Errors
/// If an entry extends past the block; the entries before it were reported.
pub(super) fn of_block(superblock: &Superblock, block: &[u8], mut visit: impl FnMut(&[u8], u64)) -> io::Result<()> {
    let ([only, data], header_bytes): ([&[u8; 4]; 2], usize) =
        if superblock.is_v5 { ([b"XDB3", b"XDD3"], 64) } else { ([b"XD2B", b"XD2D"], 16) };
    let end = match (block.first_chunk(), block.last_chunk::<8>()) {
        // The only block of a directory ends with the hashes of its names and their number.
        (Some(magic), Some(tail)) if magic == only => {
            let hashes = u64::from(tail.u32::<0>()) * 8 + 8;
            block.len().saturating_sub(usize::try_from(hashes).unwrap_or(usize::MAX))
        }
        (Some(magic), _) if magic == data => block.len(),
        _ => return Err(damaged("one of its blocks is damaged")),
    };
    let cut = || damaged("one of its entries is damaged");
    let kind_bytes = usize::from(superblock.file_types);
    let mut rest = block.get(header_bytes..end).unwrap_or_default();
    // The number of an inode and the length of its name, or the mark of free space and its length.
    while let Some(start) = rest.first_chunk::<9>() {
        if start.u16::<0>() == FREE {
            let length = usize::from(start.u16::<2>());
            let behind = rest.get(length..).filter(|_| length >= 8 && length.is_multiple_of(8));
            rest = behind.ok_or_else(cut)?;
            continue;
        }
        let length = usize::from(start[8]);
        let entry_bytes = (8 + 1 + length + kind_bytes + 2).next_multiple_of(8);
        let (entry, behind) = rest.split_at_checked(entry_bytes).ok_or_else(cut)?;
        let name = entry.get(9..9 + length).filter(|name| !name.is_empty()).ok_or_else(cut)?;
        visit(name, start.u64::<0>());
        rest = behind;
    }
    Ok(())
}
