//! The names in a block of a directory, or in the inode of a small directory.
//!
//! A hashed directory is read like any other: to a reader that does not know index blocks, they look like blocks of
//! free entries, and so do the checksums at the end of blocks.

use std::io;

use crate::scan::inodes::damaged;
use crate::scan::inodes::fields::LittleEndian;

const HEADER_BYTES: usize = 8;
/// Size of the shortest entry.
const LEAST_BYTES: usize = 12;

/// What entries may contain.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Number of inodes of the file system.
    pub(super) inodes: u32,
    /// Whether names may consist of any bytes.
    pub(super) is_encrypted: bool,
}

/// Reports the names in `bytes`.
///
/// # Errors
/// If an entry is none that Linux would accept: it extends past the block, is too short, leaves no room for another,
/// refers to an impossible inode, or has a name that no file can have. The entries before it were reported.
pub(super) fn names(bytes: &[u8], limits: Limits, mut visit: impl FnMut(&[u8], u32)) -> io::Result<()> {
    let mut rest = bytes;
    while let Some(header) = rest.first_chunk::<HEADER_BYTES>() {
        let inode = header.u32::<0>();
        let entry = split_entry(rest, header, bytes.len()).filter(|_| inode <= limits.inodes);
        let (name, behind) = entry.ok_or_else(|| damaged("one of its blocks is damaged"))?;
        rest = behind;
        if inode != 0 {
            let is_impossible =
                || name.iter().fold(name.is_empty(), |found, &byte| found | (byte == 0) | (byte == b'/'));
            if !limits.is_encrypted && is_impossible() {
                return Err(damaged("one of its names is impossible"));
            }
            visit(name, inode);
        }
    }
    Ok(())
}

/// The name of the entry at the start of `bytes`, and what follows the entry; `None` if it has no length that it can
/// have.
#[inline]
fn split_entry<'a>(bytes: &'a [u8], header: &[u8; HEADER_BYTES], block_bytes: usize) -> Option<(&'a [u8], &'a [u8])> {
    let length = entry_bytes(header.u16::<4>(), block_bytes);
    let (entry, behind) = bytes.split_at_checked(length)?;
    let name = entry.get(HEADER_BYTES..HEADER_BYTES + usize::from(header[6]))?;
    let is_possible = length >= LEAST_BYTES && length.is_multiple_of(4);
    (is_possible && (behind.is_empty() || behind.len() >= LEAST_BYTES)).then_some((name, behind))
}

/// Decodes a 16-bit entry length: with blocks of 64 KiB, its two lowest bits are the highest bits of the length.
pub(super) fn entry_bytes(stored: u16, block_bytes: usize) -> usize {
    let stored = usize::from(stored);
    match stored {
        0 | 0xffff if block_bytes > 0xffff => block_bytes,
        _ if block_bytes > 0xffff => stored & 0xfffc | (stored & 3) << 16,
        _ => stored,
    }
}

/// Whether a block that is not the first looks like a node of an index: one free entry.
pub(super) fn is_index_node(block: &[u8]) -> bool {
    let header = block.first_chunk::<HEADER_BYTES>();
    header.is_some_and(|header| entry_bytes(header.u16::<4>(), block.len()) == block.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(inode: u32, length: u16, name: &[u8]) -> Vec<u8> {
        let mut entry = inode.to_le_bytes().to_vec();
        entry.extend(length.to_le_bytes());
        entry.extend([name.len() as u8, 1]);
        entry.extend(name);
        entry.resize(usize::from(length).max(entry.len()), 0);
        entry
    }

    fn told(bytes: &[u8]) -> (Vec<(Vec<u8>, u32)>, bool) {
        let mut found = Vec::new();
        let limits = Limits { inodes: 1000, is_encrypted: false };
        let whole = names(bytes, limits, |name, inode| found.push((name.to_vec(), inode))).is_ok();
        (found, whole)
    }

    #[test]
    fn names_are_told_until_the_first_that_cannot_be() {
        let good = [entry(5, 12, b"abc"), entry(0, 16, b"gone"), entry(7, 36, b"x")].concat();
        assert_eq!(told(&good), (vec![(b"abc".to_vec(), 5), (b"x".to_vec(), 7)], true));
        for bad in [
            [entry(6, 0, b""), vec![0; 8]].concat(),
            [entry(6, 8, b"x"), vec![0; 8]].concat(),
            [entry(6, 10, b"x"), vec![0; 8]].concat(),
            entry(6, 400, b"x")[..40].to_vec(),
            [entry(6, 16, b"x"), vec![0; 8]].concat(),
            entry(1001, 12, b"x"),
            entry(6, 12, b"x/y"),
            entry(6, 12, b"x\0"),
        ] {
            let bytes = [entry(5, 12, b"abc"), bad].concat();
            let (found, is_whole) = told(&bytes);
            assert!(!is_whole);
            assert_eq!(found[0].0, b"abc");
            assert_eq!(found.len(), 1, "{found:?}");
        }
        assert_eq!(told(&[0; 4096]), (vec![], false));
        assert_eq!(told(&[]), (vec![], true));
    }

    #[test]
    fn entries_of_large_blocks_fit_in_16_bits() {
        assert_eq!(entry_bytes(12, 4096), 12);
        assert_eq!(entry_bytes(0, 65_536), 65_536);
        assert_eq!(entry_bytes(0xffff, 65_536), 65_536);
        assert_eq!(entry_bytes(0xfff0, 65_536), 0xfff0);
    }
}
