//! Locates the blocks of a directory, through extents or lists of block numbers.
//!
//! Both are read in directory order and produce runs of blocks. Damage cannot make this run for long: an extent must
//! follow the previous one, a node of the tree is one level below its parent and not empty, and the caller limits the
//! number of blocks.

use std::io;

use super::inode::BLOCK_BYTES;
use super::{u16_at, u32_at};
use crate::scan::inodes::damaged;

const HEADER_BYTES: usize = 12;
const MAGIC: u16 = 0xf30a;
const MOST_LEVELS: u16 = 5;
/// A larger length marks an extent as reserved and unwritten; its length is the excess.
const MOST_WRITTEN: u16 = 1 << 15;
/// Block numbers in the inode itself.
const DIRECT: usize = 12;

/// Operations for following a map: reads one of its blocks, and receives a run of data blocks.
pub(super) trait Follow {
    /// Reads a block of the map.
    fn read(&mut self, block: u64) -> io::Result<Vec<u8>>;
    /// Block numbers per block.
    fn numbers_a_block(&self) -> u64;
    /// Receives `count` blocks from `first`; returns `false` to stop.
    fn run(&mut self, first: u64, count: u64) -> io::Result<bool>;
}

/// Follows extents up to block number `limit` of the directory.
pub(super) fn extents(root: &[u8; BLOCK_BYTES], limit: u64, follow: &mut impl Follow) -> io::Result<()> {
    let levels = u16_at(root, 6);
    if levels > MOST_LEVELS {
        return Err(damaged("its extent tree has too many levels"));
    }
    let mut next = 0;
    node(root, levels, limit, &mut next, follow).map(|_| ())
}

/// A node of the tree; returns `false` to stop.
fn node(bytes: &[u8], level: u16, limit: u64, next: &mut u64, follow: &mut impl Follow) -> io::Result<bool> {
    let (magic, entries, found) = (u16_at(bytes, 0), usize::from(u16_at(bytes, 2)), u16_at(bytes, 6));
    if magic != MAGIC || found != level || entries > bytes.len() / HEADER_BYTES - 1 {
        return Err(damaged("a node of its extent tree is damaged"));
    }
    for entry in bytes[HEADER_BYTES..].chunks_exact(HEADER_BYTES).take(entries) {
        let logical = u64::from(u32_at(entry, 0));
        if logical < *next {
            return Err(damaged("its extents overlap"));
        }
        if logical >= limit {
            return Ok(false);
        }
        *next = logical;
        if level > 0 {
            let block = u64::from(u32_at(entry, 4)) | u64::from(u16_at(entry, 8)) << 32;
            let child = follow.read(block)?;
            if u16_at(&child, 2) == 0 {
                return Err(damaged("a node of its extent tree is empty"));
            }
            if !node(&child, level - 1, limit, next, follow)? {
                return Ok(false);
            }
            // Nothing else may begin where this one did.
            *next = (*next).max(logical + 1);
            continue;
        }
        let length = u16_at(entry, 4);
        let first = u64::from(u32_at(entry, 8)) | u64::from(u16_at(entry, 6)) << 32;
        let written = length <= MOST_WRITTEN;
        let count = u64::from(if written { length } else { length - MOST_WRITTEN });
        if count == 0 {
            return Err(damaged("one of its extents is empty"));
        }
        *next = logical + count;
        if written && !follow.run(first, count.min(limit - logical))? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Follows lists of block numbers up to block number `limit` of the directory.
pub(super) fn numbers(root: &[u8; BLOCK_BYTES], limit: u64, follow: &mut impl Follow) -> io::Result<()> {
    let mut at = 0;
    let (direct, indirect) = root.split_at(4 * DIRECT);
    if !list(direct, 0, limit, &mut at, follow)? {
        return Ok(());
    }
    for (level, number) in (1..).zip(indirect.chunks_exact(4)) {
        if !list(number, level, limit, &mut at, follow)? {
            return Ok(());
        }
    }
    Ok(())
}

/// A list of block numbers, `level` steps above those of the directory; returns `false` to stop.
fn list(bytes: &[u8], level: u32, limit: u64, at: &mut u64, follow: &mut impl Follow) -> io::Result<bool> {
    let mut numbers = bytes.chunks_exact(4).map(|number| u64::from(u32_at(number, 0))).peekable();
    while let Some(number) = numbers.next() {
        if *at >= limit {
            return Ok(false);
        }
        match (number, level) {
            // A hole: skips the blocks that this number would have covered.
            (0, level) => *at = at.saturating_add(follow.numbers_a_block().pow(level)),
            (first, 0) => {
                let mut count = 1;
                while *at + count < limit && numbers.next_if_eq(&(first + count)).is_some() {
                    count += 1;
                }
                *at += count;
                if !follow.run(first, count)? {
                    return Ok(false);
                }
            }
            (block, level) => {
                let block = follow.read(block)?;
                if !list(&block, level - 1, limit, at, follow)? {
                    return Ok(false);
                }
            }
        }
    }
    Ok(true)
}
