//! The checksums of `metadata_csum`, CRC-32C, as Linux verifies them; and the one of descriptors without it,
//! CRC-16-IBM.
//!
//! Everything that belongs to an inode begins with a [`seed`] from its number and generation, so a block of another
//! inode is as wrong as a damaged one. Blocks of files, bitmaps and separate attributes are not verified, because they
//! are not read.

use std::sync::LazyLock;

use super::{u16_at, u32_at};
use crate::scan::inodes::checksum::crc32c;

/// Size of the part of an inode that exists in all file systems.
const FIRST_BYTES: usize = 128;
const GENERATION: usize = 0x64;
const INODE_LOW: usize = 0x7c;
const EXTRA_BYTES: usize = 0x80;
const INODE_HIGH: usize = 0x82;
/// A third of an inode of 256 bytes and of what precedes it, its number and generation.
const PART_BYTES: usize = (8 + 256) / 3;
/// Bytes of an inode in the first two thirds, which are copied to set its checksum to 0.
const HEAD_BYTES: usize = 2 * PART_BYTES - 8;

/// Size of the header and of each entry in a node of extents.
const EXTENT_BYTES: usize = 12;
/// The end of a block of names looks like a free entry: its length, its kind, and its checksum.
const TAIL_BYTES: usize = 12;
const TAIL_KIND: u8 = 0xde;
/// The end of an index block.
const INDEX_TAIL_BYTES: usize = 8;
const INDEX_ENTRY_BYTES: usize = 8;

/// The beginning of the checksums of an inode and its blocks; `file_system`: that of the whole file system.
#[inline]
pub(super) fn seed(file_system: u32, number: u32, raw: &[u8]) -> u32 {
    let mut start = [0; 8];
    start[..4].copy_from_slice(&number.to_le_bytes());
    start[4..].copy_from_slice(&u32_at(raw, GENERATION).to_le_bytes());
    crc32c(file_system, &start)
}

/// Words of an aligned copy are read without waiting for more than the store that wrote them.
#[repr(align(16))]
struct Copied([u8; 2 * PART_BYTES]);

/// The checksum that an inode should have, and the one it has. Only its low half is stored where the inode is small.
#[inline]
fn inode(file_system: u32, number: u32, raw: &[u8]) -> [u32; 2] {
    let is_wide = raw.len() > FIRST_BYTES && u16_at(raw, EXTRA_BYTES) >= 4;
    let (head, rest) = raw.split_at(raw.len().min(HEAD_BYTES));
    let Copied(copy) = &mut Copied([0; 2 * PART_BYTES]);
    copy[..4].copy_from_slice(&number.to_le_bytes());
    copy[4..8].copy_from_slice(&u32_at(raw, GENERATION).to_le_bytes());
    // A copy of constant length is made without a call.
    match <&[u8; HEAD_BYTES]>::try_from(head) {
        Ok(head) => copy[8..].copy_from_slice(head),
        Err(_) => copy[8..8 + head.len()].copy_from_slice(head),
    }
    copy[8 + INODE_LOW..10 + INODE_LOW].fill(0);
    if is_wide {
        copy[8 + INODE_HIGH..10 + INODE_HIGH].fill(0);
    }
    let crc = match rest.split_at_checked(PART_BYTES) {
        Some((third, rest)) => {
            let crc = in_parts(file_system, copy, third);
            if rest.is_empty() { crc } else { crc32c(crc, rest) }
        }
        None => crc32c(crc32c(file_system, &copy[..8 + head.len()]), rest),
    };
    let low = u32::from(u16_at(raw, INODE_LOW));
    match is_wide {
        true => [crc, low | u32::from(u16_at(raw, INODE_HIGH)) << 16],
        false => [crc & 0xffff, low],
    }
}

/// CRC-32C of three parts, which a processor computes at the same time, faster than one after the other. The last one
/// is zero in an inode of 256 bytes without attributes; zeroes alone have the CRC 0.
#[inline]
fn in_parts(seed: u32, head: &[u8; 2 * PART_BYTES], third: &[u8]) -> u32 {
    let (first, second) = head.split_at(PART_BYTES);
    let is_zero = third.iter().fold(0, |all, byte| all | byte) == 0;
    let [a, b, c] = [crc32c(seed, first), crc32c(0, second), if is_zero { 0 } else { crc32c(0, third) }];
    behind(behind(a) ^ b) ^ c
}

/// The CRC after as many zeroes as a part has. It is linear: the sum of those of the bytes of `crc`.
#[inline]
fn behind(crc: u32) -> u32 {
    static OF_BYTES: LazyLock<[[u32; 256]; 4]> = LazyLock::new(|| {
        let of_byte = |at: usize, byte: usize| crc32c((byte as u32) << (8 * at), &[0; PART_BYTES]);
        std::array::from_fn(|at| std::array::from_fn(|byte| of_byte(at, byte)))
    });
    let tables = &*OF_BYTES;
    let [a, b, c, d] = crc.to_le_bytes().map(usize::from);
    tables[0][a] ^ tables[1][b] ^ tables[2][c] ^ tables[3][d]
}

/// Whether the checksum of an inode is right. `raw` has at least 128 bytes.
#[inline]
pub(super) fn inode_is_intact(file_system: u32, number: u32, raw: &[u8]) -> bool {
    let [right, stored] = inode(file_system, number, raw);
    right == stored
}

/// Gives an inode the checksum that it should have.
#[cfg(any(test, feature = "testing"))]
pub(super) fn seal_inode(file_system: u32, number: u32, raw: &mut [u8]) {
    let [right, _] = inode(file_system, number, raw);
    raw[INODE_LOW..INODE_LOW + 2].copy_from_slice(&(right as u16).to_le_bytes());
    if raw.len() > FIRST_BYTES && u16_at(raw, EXTRA_BYTES) >= 4 {
        raw[INODE_HIGH..INODE_HIGH + 2].copy_from_slice(&((right >> 16) as u16).to_le_bytes());
    }
}

/// The checksum that a node of extents should have, and its offset.
pub(super) fn extents(seed: u32, block: &[u8]) -> Option<(u32, usize)> {
    let at = EXTENT_BYTES * (1 + usize::from(u16_at(block, 4)));
    (at + 4 <= block.len()).then(|| (crc32c(seed, &block[..at]), at))
}

/// The checksum that a block of names should have, and its offset.
#[inline]
pub(super) fn names(seed: u32, block: &[u8]) -> Option<(u32, usize)> {
    let (names, tail) = block.split_at_checked(block.len().checked_sub(TAIL_BYTES)?)?;
    // The number of an entry, and its length, that of its name, and its kind.
    let is_tail = u32_at(tail, 0) == 0 && tail[4..8] == [TAIL_BYTES as u8, 0, 0, TAIL_KIND];
    is_tail.then(|| (crc32c(seed, names), block.len() - 4))
}

/// Offset of the limit, the count and the entries in an index block.
pub(super) fn index_entries(block: &[u8]) -> Option<usize> {
    let length = |at| super::directory::entry_bytes(u16_at(block, at), block.len());
    let is_root = || length(4) == 12 && length(16) == block.len() - 12 && u32_at(block, 24) == 0 && block[29] == 8;
    match length(4) {
        length if length == block.len() => Some(8),
        _ if is_root() => Some(32),
        _ => None,
    }
}

/// The checksum that an index block should have, and its offset.
pub(super) fn index(seed: u32, block: &[u8]) -> Option<(u32, usize)> {
    let entries = index_entries(block)?;
    let [limit, count] = [0, 2].map(|at| usize::from(u16_at(block, entries + at)));
    let (tail, end) = (entries + limit * INDEX_ENTRY_BYTES, entries + count * INDEX_ENTRY_BYTES);
    if tail + INDEX_TAIL_BYTES > block.len() || end > block.len() {
        return None;
    }
    let crc = crc32c(seed, &block[..end]);
    Some((crc32c(crc32c(crc, &block[tail..tail + 4]), &[0; 4]), tail + 4))
}

/// Whether a block has the checksum that it should have.
#[inline]
pub(super) fn is_stored(expected: Option<(u32, usize)>, block: &[u8]) -> bool {
    expected.is_some_and(|(crc, at)| crc == u32_at(block, at))
}

const TABLE: [u16; 256] = table();

const fn table() -> [u16; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut value, mut bit) = (byte as u16, 0);
        while bit < 8 {
            value = if value & 1 == 1 { value >> 1 ^ 0xa001 } else { value >> 1 };
            bit += 1;
        }
        table[byte] = value;
        byte += 1;
    }
    table
}

/// CRC-16 of `bytes`, continued from `seed`.
pub(super) fn crc16(seed: u16, bytes: &[u8]) -> u16 {
    bytes.iter().fold(seed, |crc, &byte| crc >> 8 ^ TABLE[usize::from(crc as u8 ^ byte)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_old_one_is_the_published_one() {
        assert_eq!(crc16(0, b"123456789"), 0xbb3d);
    }

    #[test]
    fn every_byte_of_an_inode_counts() {
        for length in [128, 256, 512, 1024] {
            // With and without attributes.
            let byte = |at| if length == 256 && at >= 160 { 0 } else { at * 7 % 251 };
            let mut raw: Vec<u8> = (0..length).map(|at| byte(at) as u8).collect();
            if length > 128 {
                raw[EXTRA_BYTES..EXTRA_BYTES + 2].copy_from_slice(&32u16.to_le_bytes());
            }
            let [right, _] = inode(5, 12, &raw);
            seal_inode(5, 12, &mut raw);
            assert_eq!(inode(5, 12, &raw), [right; 2]);
            assert!(inode_is_intact(5, 12, &raw) && !inode_is_intact(5, 13, &raw) && !inode_is_intact(6, 12, &raw));
            for at in 0..length {
                raw[at] ^= 4;
                assert!(!inode_is_intact(5, 12, &raw), "byte {at} of {length}");
                raw[at] ^= 4;
            }
            // The same in parts, without a copy.
            let zero = [0; 2];
            let parts: &[&[u8]] = match length {
                128 => &[&raw[..0x7c], &zero, &raw[0x7e..]],
                _ => &[&raw[..0x7c], &zero, &raw[0x7e..0x82], &zero, &raw[0x84..]],
            };
            let crc = parts.iter().fold(seed(5, 12, &raw), |crc, part| crc32c(crc, part));
            assert_eq!(inode(5, 12, &raw)[0], if length > 128 { crc } else { crc & 0xffff });
        }
    }

    #[test]
    fn blocks_of_any_content_are_judged() {
        for byte in [0, 1, 12, 0x7f, 0xff] {
            for length in [1024, 4096, 65_536] {
                let block = vec![byte; length];
                let _ = (extents(1, &block), index(1, &block));
                assert!(names(1, &block).is_none());
            }
        }
        assert!(names(1, &[0; 4]).is_none());
    }
}
