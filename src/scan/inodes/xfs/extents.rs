//! Locates the blocks of a directory, in a list or a B-tree of extents.
//!
//! Extents must ascend and levels descend, so that no block is visited twice.

use std::io;

use super::superblock::Superblock;
use super::tree::{self, node};
use crate::scan::inodes::damaged;
use crate::scan::inodes::fields::BigEndian;

const RECORD_BYTES: usize = 16;
/// In an inode, the root of a tree begins with its level and its number of children.
const ROOT_HEADER_BYTES: usize = 4;
const MOST_LEVELS: u16 = 9;

/// A run of blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    /// Its first block within the file.
    pub(super) offset: u64,
    /// The number of that block over all groups.
    pub(super) start: u64,
    pub(super) count: u64,
}

impl Extent {
    pub(super) fn parse(record: &[u8; RECORD_BYTES]) -> Extent {
        let (high, low) = (record.u64::<0>(), record.u64::<8>());
        Extent { offset: high << 1 >> 10, start: (high & 0x1ff) << 43 | low >> 21, count: low & ((1 << 21) - 1) }
    }
}

/// Returns the extents of a list of `count`.
pub(super) fn of_list(fork: &[u8], count: u64) -> impl Iterator<Item = Extent> {
    fork.as_chunks().0.iter().take(usize::try_from(count).unwrap_or(usize::MAX)).map(Extent::parse)
}

/// The block of the first child of a tree whose root is in an inode.
pub(super) fn first_child(root: &[u8]) -> Option<u64> {
    let (_, child) = tree::children(root.get(ROOT_HEADER_BYTES..)?, 1).next()?;
    Some(u64::from_be_bytes(child))
}

/// Reports the extents of a tree whose root is in an inode, up to block `limit` of the file.
pub(super) fn of_tree(
    superblock: &Superblock,
    root: &[u8],
    limit: u64,
    read: &mut dyn FnMut(u64) -> io::Result<Vec<u8>>,
    visit: &mut dyn FnMut(Extent),
) -> io::Result<()> {
    let (header, entries) = root
        .split_first_chunk::<ROOT_HEADER_BYTES>()
        .filter(|(header, _)| (1..=MOST_LEVELS).contains(&header.u16::<0>()))
        .ok_or_else(|| damaged("its extent tree has an impossible number of levels"))?;
    Tree { superblock, limit, next: 0, read, visit }.children(entries, header.u16::<2>(), header.u16::<0>())
}

struct Tree<'t> {
    superblock: &'t Superblock,
    limit: u64,
    next: u64,
    read: &'t mut dyn FnMut(u64) -> io::Result<Vec<u8>>,
    visit: &'t mut dyn FnMut(Extent),
}

impl Tree<'_> {
    fn children(&mut self, entries: &[u8], count: u16, level: u16) -> io::Result<()> {
        for (key, block) in tree::children(entries, count.into()) {
            if u64::from_be_bytes(key) >= self.limit {
                break;
            }
            let before = self.next;
            self.node(u64::from_be_bytes(block), level - 1)?;
            if self.next == before {
                return Err(damaged("a node of its extent tree is empty"));
            }
        }
        Ok(())
    }

    fn node(&mut self, block: u64, level: u16) -> io::Result<()> {
        let place = self.superblock.place_of(block, 1);
        let bytes = (self.read)(place.ok_or_else(|| damaged("one of its blocks is outside the file system"))?)?;
        let (magic, header_bytes) = if self.superblock.is_v5 { (b"BMA3", 72) } else { (b"BMAP", 24) };
        let (header, entries) = node(&bytes, magic, header_bytes)
            .filter(|(header, _)| header.u16::<4>() == level)
            .ok_or_else(|| damaged("a node of its extent tree is damaged"))?;
        let count = header.u16::<6>();
        if level > 0 {
            return self.children(entries, count, level);
        }
        for extent in of_list(entries, count.into()) {
            if extent.offset < self.next || extent.count == 0 {
                return Err(damaged("its extents overlap"));
            }
            self.next = extent.offset + extent.count;
            (self.visit)(extent);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extent_is_packed_into_sixteen_bytes() {
        let (offset, start, count) = (0x2a_bcde_f012u64, 0xf_1234_5678_9abcu64, 0x1f_fff1u64);
        let high = 1 << 63 | offset << 9 | start >> 43;
        let low = start << 21 | count;
        let record = [high.to_be_bytes(), low.to_be_bytes()].concat();
        assert_eq!(Extent::parse(record.as_array().unwrap()), Extent { offset, start, count });
    }
}
