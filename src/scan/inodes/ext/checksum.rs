//! The checksums of `metadata_csum`, CRC-32C, as Linux verifies them; and the one of descriptors without it,
//! CRC-16-IBM.
//!
//! Everything that belongs to an inode begins with a [`seed`] from its number and generation, so a block of another
//! inode is as wrong as a damaged one. Blocks of files, bitmaps and separate attributes are not verified, because they
//! are not read.

use std::sync::LazyLock;

use super::directory::entry_bytes;
use super::raw::{Raw, WIDE_BYTES};
use crate::scan::inodes::checksum::crc32c;
use crate::scan::inodes::fields::{LittleEndian, Record};

const GENERATION: usize = 0x64;
const INODE_LOW: usize = 0x7c;
const EXTRA_BYTES: usize = 0x80;
const INODE_HIGH: usize = 0x82;
/// A third of an inode of 256 bytes and of what precedes it, its number and generation.
const PART_BYTES: usize = (8 + WIDE_BYTES) / 3;
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
pub(super) fn seed(file_system: u32, number: u32, raw: Raw<'_>) -> u32 {
    crc32c(file_system, &start(number, raw))
}

/// Number and generation of an inode.
#[inline]
fn start(number: u32, raw: Raw<'_>) -> [u8; 8] {
    let mut start = [0; 8];
    start[..4].copy_from_slice(&number.to_le_bytes());
    start[4..].copy_from_slice(raw.first.field::<GENERATION, 4>());
    start
}

/// Words of an aligned copy are read without waiting for more than the store that wrote them.
#[repr(align(16))]
struct Copied([u8; 2 * PART_BYTES]);

/// The checksum that an inode should have, and the one it has. Only its low half is stored where the inode is small.
#[inline]
fn inode(file_system: u32, number: u32, raw: Raw<'_>) -> [u32; 2] {
    let with_high = raw.wide.filter(|wide| wide.u16::<EXTRA_BYTES>() >= 4);
    let crc = match raw.all.split_first_chunk::<WIDE_BYTES>() {
        Some((wide, rest)) => {
            let Copied(copy) = &mut Copied([0; 2 * PART_BYTES]);
            copy[..8].copy_from_slice(&start(number, raw));
            copy[8..].copy_from_slice(wide.field::<0, HEAD_BYTES>());
            copy[8 + INODE_LOW..10 + INODE_LOW].fill(0);
            if with_high.is_some() {
                copy[8 + INODE_HIGH..10 + INODE_HIGH].fill(0);
            }
            let crc = in_parts(file_system, copy, wide.field::<HEAD_BYTES, PART_BYTES>());
            if rest.is_empty() { crc } else { crc32c(crc, rest) }
        }
        None => {
            let mut copy = *raw.first;
            copy[INODE_LOW..INODE_LOW + 2].fill(0);
            crc32c(seed(file_system, number, raw), &copy)
        }
    };
    let low = u32::from(raw.first.u16::<INODE_LOW>());
    match with_high {
        Some(wide) => [crc, low | u32::from(wide.u16::<INODE_HIGH>()) << 16],
        None => [crc & 0xffff, low],
    }
}

/// CRC-32C of three parts, which a processor computes at the same time, faster than one after the other. The last one
/// is zero in an inode of 256 bytes without attributes; zeroes alone have the CRC 0.
#[inline]
fn in_parts(seed: u32, head: &[u8; 2 * PART_BYTES], third: &[u8; PART_BYTES]) -> u32 {
    let (first, second) = head.split_at(PART_BYTES);
    let is_zero = third.iter().fold(0, |all, byte| all | byte) == 0;
    let [a, b, c] = [crc32c(seed, first), crc32c(0, second), if is_zero { 0 } else { crc32c(0, third) }];
    behind(behind(a) ^ b) ^ c
}

/// The CRC after as many zeroes as a part has. It is linear: the sum of those of the bytes of `crc`.
#[inline]
#[expect(clippy::indexing_slicing, reason = "a table has an entry for each byte")]
fn behind(crc: u32) -> u32 {
    static OF_BYTES: LazyLock<[[u32; 256]; 4]> = LazyLock::new(|| {
        let of_byte = |at: usize, byte: usize| crc32c((byte as u32) << (8 * at), &[0; PART_BYTES]);
        std::array::from_fn(|at| std::array::from_fn(|byte| of_byte(at, byte)))
    });
    let tables = &*OF_BYTES;
    let [a, b, c, d] = crc.to_le_bytes().map(usize::from);
    tables[0][a] ^ tables[1][b] ^ tables[2][c] ^ tables[3][d]
}

/// Whether the checksum of an inode is right.
#[inline]
pub(super) fn inode_is_intact(file_system: u32, number: u32, raw: Raw<'_>) -> bool {
    let [right, stored] = inode(file_system, number, raw);
    right == stored
}

/// Gives an inode the checksum that it should have.
#[cfg(any(test, feature = "testing"))]
pub(super) fn seal_inode(file_system: u32, number: u32, raw: &mut [u8]) {
    let Some([right, _]) = Raw::new(raw).map(|raw| inode(file_system, number, raw)) else { return };
    let [low, high] = [right as u16, (right >> 16) as u16].map(u16::to_le_bytes);
    put(raw, INODE_LOW, &low);
    if raw.first_chunk::<WIDE_BYTES>().is_some_and(|wide| wide.u16::<EXTRA_BYTES>() >= 4) {
        put(raw, INODE_HIGH, &high);
    }
}

/// Sets the field at `at`, if there is one.
#[cfg(any(test, feature = "testing"))]
pub(super) fn put(bytes: &mut [u8], at: usize, field: &[u8]) {
    if let Some(place) = bytes.get_mut(at..at + field.len()) {
        place.copy_from_slice(field);
    }
}

/// The checksum that a node of extents should have, and its offset.
pub(super) fn extents(seed: u32, block: &[u8]) -> Option<(u32, usize)> {
    let most = block.first_chunk::<EXTENT_BYTES>()?.u16::<4>();
    let at = EXTENT_BYTES * (1 + usize::from(most));
    let (node, tail) = block.split_at_checked(at)?;
    (tail.len() >= 4).then(|| (crc32c(seed, node), at))
}

/// The checksum that a block of names should have, and its offset.
#[inline]
pub(super) fn names(seed: u32, block: &[u8]) -> Option<(u32, usize)> {
    let (names, tail) = block.split_last_chunk::<TAIL_BYTES>()?;
    // The number of an entry, and its length, that of its name, and its kind.
    let is_tail = tail.starts_with(&[0, 0, 0, 0, TAIL_BYTES as u8, 0, 0, TAIL_KIND]);
    is_tail.then(|| (crc32c(seed, names), block.len() - 4))
}

/// The entries of an index block: the offset of the first, how many fit, and how many there are. The first one has
/// these two numbers.
pub(super) fn index_entries(block: &[u8]) -> Option<(usize, usize, usize)> {
    let head = block.first_chunk::<32>()?;
    let (first, second) = (entry_bytes(head.u16::<4>(), block.len()), entry_bytes(head.u16::<16>(), block.len()));
    let is_root = first == 12 && second == block.len() - 12 && head.u32::<24>() == 0 && head[29] == 8;
    let start = match first == block.len() {
        true => 8,
        false if is_root => 32,
        false => return None,
    };
    let numbers = block.get(start..)?.first_chunk::<4>()?;
    Some((start, numbers.u16::<0>().into(), numbers.u16::<2>().into()))
}

/// The checksum that an index block should have, and its offset.
pub(super) fn index(seed: u32, block: &[u8]) -> Option<(u32, usize)> {
    let (start, limit, count) = index_entries(block)?;
    let at = start + limit * INDEX_ENTRY_BYTES;
    let entries = block.get(..start + count * INDEX_ENTRY_BYTES)?;
    let tail = block.get(at..)?.first_chunk::<INDEX_TAIL_BYTES>()?;
    Some((crc32c(crc32c(crc32c(seed, entries), tail.field::<0, 4>()), &[0; 4]), at + 4))
}

/// Whether a block has the checksum that it should have.
#[inline]
pub(super) fn is_stored(expected: Option<(u32, usize)>, block: &[u8]) -> bool {
    expected.is_some_and(|(crc, at)| block.get(at..at + 4) == Some(&crc.to_le_bytes()))
}

/// CRC-16 of `bytes`, continued from `seed`.
#[expect(clippy::indexing_slicing, reason = "the table has an entry for each byte")]
pub(super) fn crc16(seed: u16, bytes: &[u8]) -> u16 {
    static TABLE: LazyLock<[u16; 256]> = LazyLock::new(|| {
        let bit = |crc: u16, _| if crc & 1 == 1 { crc >> 1 ^ 0xa001 } else { crc >> 1 };
        std::array::from_fn(|byte| (0..8).fold(byte as u16, bit))
    });
    let table = &*TABLE;
    bytes.iter().fold(seed, |crc, &byte| crc >> 8 ^ table[usize::from(crc as u8 ^ byte)])
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
            let checksums = |raw: &[u8]| inode(5, 12, Raw::new(raw).unwrap());
            let is_intact = |seed, number, raw: &[u8]| inode_is_intact(seed, number, Raw::new(raw).unwrap());
            let [right, _] = checksums(&raw);
            seal_inode(5, 12, &mut raw);
            assert_eq!(checksums(&raw), [right; 2]);
            assert!(is_intact(5, 12, &raw) && !is_intact(5, 13, &raw) && !is_intact(6, 12, &raw));
            for at in 0..length {
                raw[at] ^= 4;
                assert!(!is_intact(5, 12, &raw), "byte {at} of {length}");
                raw[at] ^= 4;
            }
            // The same in parts, without a copy.
            let zero = [0; 2];
            let parts: &[&[u8]] = match length {
                128 => &[&raw[..0x7c], &zero, &raw[0x7e..]],
                _ => &[&raw[..0x7c], &zero, &raw[0x7e..0x82], &zero, &raw[0x84..]],
            };
            let seed = seed(5, 12, Raw::new(&raw).unwrap());
            let crc = parts.iter().fold(seed, |crc, part| crc32c(crc, part));
            assert_eq!(checksums(&raw)[0], if length > 128 { crc } else { crc & 0xffff });
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
