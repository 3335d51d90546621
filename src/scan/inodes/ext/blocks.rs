//! Locates the blocks of a directory, through extents or lists of block numbers.
//!
//! Both are read in directory order and produce runs of blocks. What is below a damaged node is lost, and nothing else.
//! Damage cannot make this run for long: an extent must follow the previous one, a node of the tree is one level below
//! its parent and not empty, and the caller limits the number of blocks.

use std::io;

use super::raw::BLOCK_BYTES;
use crate::scan::inodes::damaged;
use crate::scan::inodes::fields::LittleEndian;

/// Size of the header of a node, and of each entry.
const ENTRY_BYTES: usize = 12;
const MAGIC: u16 = 0xf30a;
const MOST_LEVELS: u16 = 5;
/// A larger length marks an extent as reserved and unwritten; its length is the excess.
const MOST_WRITTEN: u16 = 1 << 15;
/// Block numbers in the inode itself.
const DIRECT: usize = 12;

/// Operations for following a map: reads its blocks, and receives runs of data blocks.
pub(super) trait Follow {
    /// Reads a block of numbers.
    fn read(&mut self, block: u64) -> io::Result<Vec<u8>>;
    /// Reads a node of extents, and verifies its checksum.
    fn read_node(&mut self, block: u64) -> io::Result<Vec<u8>>;
    /// Block numbers per block.
    fn numbers_a_block(&self) -> u64;
    /// Receives `count` blocks from `first`, which are those from `logical` of the directory.
    fn run(&mut self, logical: u64, first: u64, count: u64) -> io::Result<()>;
    /// A part of the map is damaged, or leads nowhere.
    fn lost(&mut self, error: io::Error);
}

/// Whether the root of a map in an inode is one that Linux would accept: its blocks are among `blocks`, its extents in
/// order.
pub(super) fn is_valid(root: &[u8; BLOCK_BYTES], extents: bool, first_data_block: u32, blocks: u64) -> bool {
    let is_inside = |first: u64, count: u64| first > first_data_block.into() && first + count <= blocks;
    if !extents {
        let mut numbers = root.as_chunks().0.iter().take(DIRECT).map(|&number| u32::from_le_bytes(number));
        return numbers.all(|number| number == 0 || is_inside(number.into(), 1));
    }
    let (magic, entries) = (root.u16::<0>(), root.u16::<2>());
    let (most, levels) = (root.u16::<4>(), root.u16::<6>());
    let most_entries = (BLOCK_BYTES / ENTRY_BYTES - 1) as u16;
    let is_header = magic == MAGIC && entries <= most && (1..=most_entries).contains(&most) && levels <= MOST_LEVELS;
    if !is_header || entries == 0 && levels > 0 {
        return false;
    }
    let mut next = 0;
    root.as_chunks().0.iter().skip(1).take(entries.into()).all(|entry| {
        let logical = u64::from(entry.u32::<0>());
        let (first, count, _) = if levels > 0 { (child(entry), 1, true) } else { extent(entry) };
        let is_in_range = levels > 0 || logical + count < 1 << 32;
        let is_next = logical >= next && count > 0 && is_in_range && is_inside(first, count);
        next = logical + count;
        is_next
    })
}

/// The block of a child, from its entry.
fn child(entry: &[u8; ENTRY_BYTES]) -> u64 {
    u64::from(entry.u32::<4>()) | u64::from(entry.u16::<8>()) << 32
}

/// First block and length of an extent, and whether it was written.
fn extent(entry: &[u8; ENTRY_BYTES]) -> (u64, u64, bool) {
    let length = entry.u16::<4>();
    let first = u64::from(entry.u32::<8>()) | u64::from(entry.u16::<6>()) << 32;
    let is_written = length <= MOST_WRITTEN;
    (first, u64::from(if is_written { length } else { length - MOST_WRITTEN }), is_written)
}

/// Follows extents up to block number `limit` of the directory.
pub(super) fn extents(root: &[u8; BLOCK_BYTES], limit: u64, follow: &mut impl Follow) -> io::Result<()> {
    let levels = root.u16::<6>();
    if levels > MOST_LEVELS {
        return Err(damaged("its extent tree has too many levels"));
    }
    node(root, levels, limit, &mut 0, follow)
}

/// A node of the tree.
fn node(bytes: &[u8], level: u16, limit: u64, next: &mut u64, follow: &mut impl Follow) -> io::Result<()> {
    let wrong = || damaged("a node of its extent tree is damaged");
    let (header, entries) = bytes.as_chunks::<ENTRY_BYTES>().0.split_first().ok_or_else(wrong)?;
    if header.u16::<0>() != MAGIC || header.u16::<6>() != level {
        return Err(wrong());
    }
    for entry in entries.get(..header.u16::<2>().into()).ok_or_else(wrong)? {
        let logical = u64::from(entry.u32::<0>());
        if logical < *next {
            return Err(damaged("its extents overlap"));
        }
        if logical >= limit {
            break;
        }
        *next = logical;
        if level > 0 {
            if let Err(error) = below(child(entry), level - 1, limit, next, follow) {
                follow.lost(error);
            }
            // Nothing else may begin where this one did.
            *next = (*next).max(logical + 1);
            continue;
        }
        let (first, count, is_written) = extent(entry);
        if count == 0 {
            return Err(damaged("one of its extents is empty"));
        }
        *next = logical + count;
        if is_written {
            follow.run(logical, first, count.min(limit - logical))?;
        }
    }
    Ok(())
}

/// The node in `block`.
fn below(block: u64, level: u16, limit: u64, next: &mut u64, follow: &mut impl Follow) -> io::Result<()> {
    let bytes = follow.read_node(block)?;
    if bytes.first_chunk::<ENTRY_BYTES>().is_some_and(|header| header.u16::<2>() == 0) {
        return Err(damaged("a node of its extent tree is empty"));
    }
    node(&bytes, level, limit, next, follow)
}

/// Follows lists of block numbers up to block number `limit` of the directory.
pub(super) fn numbers(root: &[u8; BLOCK_BYTES], limit: u64, follow: &mut impl Follow) {
    let mut at = 0;
    let (direct, indirect) = root.as_chunks().0.split_at(DIRECT);
    list(direct, 0, limit, &mut at, follow);
    for (level, number) in (1..).zip(indirect.chunks(1)) {
        list(number, level, limit, &mut at, follow);
    }
}

/// A list of block numbers, `level` steps above those of the directory.
fn list(numbers: &[[u8; 4]], level: u32, limit: u64, at: &mut u64, follow: &mut impl Follow) {
    let mut numbers = numbers.iter().map(|&number| u64::from(u32::from_le_bytes(number))).peekable();
    while let Some(number) = numbers.next() {
        if *at >= limit {
            return;
        }
        // The blocks that this number covers.
        let covered = follow.numbers_a_block().saturating_pow(level);
        let result = match (number, level) {
            (0, _) => Ok(()),
            (first, 0) => {
                let mut count = 1;
                while *at + count < limit && numbers.next_if_eq(&(first + count)).is_some() {
                    count += 1;
                }
                let result = follow.run(*at, first, count);
                *at += count - 1;
                result
            }
            (block, level) => match follow.read(block) {
                Ok(block) => {
                    list(block.as_chunks().0, level - 1, limit, at, follow);
                    continue;
                }
                Err(error) => Err(error),
            },
        };
        if let Err(error) = result {
            follow.lost(error);
        }
        *at = at.saturating_add(covered);
    }
}
