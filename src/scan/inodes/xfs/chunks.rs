//! Chunks of 64 inodes, from the inode B-trees of all groups.

use std::io;

use super::superblock::{Superblock, is_sealed};
use super::tree::{children, node};
use crate::scan::inodes::damaged;
use crate::scan::inodes::fields::BigEndian;

/// Inodes in a chunk.
pub(super) const CHUNK_INODES: u32 = 64;
/// The inode header of a group is in its third sector.
pub(super) const HEADER_SECTOR: u64 = 2;
const HEADER_MAGIC: &[u8] = b"XAGI";
const HEADER_BYTES: usize = 28;
const HEADER_CHECKSUM: usize = 312;
const MAGIC: &[u8] = b"IABT";
const V5_MAGIC: &[u8] = b"IAB3";
const CHECKSUM: usize = 52;
const RECORD_BYTES: usize = 16;
const MOST_LEVELS: u32 = 9;
/// Inodes per bit of the hole mask.
const HOLE_INODES: u32 = 4;

/// A chunk of inodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Chunk {
    pub(super) group: u32,
    /// Number of its first inode within the group.
    pub(super) first: u32,
    /// One bit per inode in use.
    pub(super) used: u64,
}

/// Reads a block at a byte offset.
pub(super) type ReadBlock<'r> = &'r mut dyn FnMut(u64, usize) -> io::Result<(Vec<u8>, bool)>;

/// Appends the chunks of a group, in order. `read` returns a block and whether its checksum must be valid.
pub(super) fn of_group(
    superblock: &Superblock,
    group: u32,
    read: ReadBlock<'_>,
    chunks: &mut Vec<Chunk>,
) -> io::Result<()> {
    let start = superblock.place(group, 0, 1).ok_or_else(|| damaged("a group is outside the file system"))?;
    let sector_bytes = superblock.sector_bytes as usize;
    let (header, sealed) = read(start + HEADER_SECTOR * sector_bytes as u64, sector_bytes)?;
    let whole = !superblock.is_v5 || !sealed || is_sealed(&header, HEADER_CHECKSUM);
    let is_it = |header: &&[u8; HEADER_BYTES]| whole && header.starts_with(HEADER_MAGIC) && header.u32::<8>() == group;
    let header = header.first_chunk().filter(is_it).ok_or_else(|| damaged("its inode header is damaged"))?;
    let (root, levels) = (header.u32::<20>(), header.u32::<24>());
    if levels == 0 || levels > MOST_LEVELS {
        return Err(damaged("its inode tree has too many levels"));
    }
    Tree { superblock, group, read, chunks, next: 0 }.node(root, levels - 1)
}

struct Tree<'r, 'c> {
    superblock: &'r Superblock,
    group: u32,
    read: ReadBlock<'r>,
    chunks: &'c mut Vec<Chunk>,
    /// No chunk begins before this one, so no block of the tree is visited twice.
    next: u64,
}

impl Tree<'_, '_> {
    fn node(&mut self, block: u32, level: u32) -> io::Result<()> {
        let place = self.superblock.place(self.group, block.into(), 1);
        let place = place.ok_or_else(|| damaged("a node of its inode tree is outside it"))?;
        let (bytes, sealed) = (self.read)(place, self.superblock.block_bytes as usize)?;
        let is_v5 = self.superblock.is_v5;
        let (magic, header_bytes) = if is_v5 { (V5_MAGIC, 56) } else { (MAGIC, 16) };
        let whole = !is_v5 || !sealed || is_sealed(&bytes, CHECKSUM);
        let (header, entries) = node(&bytes, magic, header_bytes)
            .filter(|(header, _)| whole && u32::from(header.u16::<4>()) == level)
            .ok_or_else(|| damaged("a node of its inode tree is damaged"))?;
        let count = header.u16::<6>().into();
        if level == 0 {
            return entries.as_chunks().0.iter().take(count).try_for_each(|record| self.record(record));
        }
        for (key, child) in children(entries, count) {
            let (key, child) = (u32::from_be_bytes(key), u32::from_be_bytes(child));
            let before = self.next;
            if u64::from(key) < before {
                return Err(damaged("its inode tree is out of order"));
            }
            self.node(child, level - 1)?;
            if self.next == before {
                return Err(damaged("a node of its inode tree is empty"));
            }
        }
        Ok(())
    }

    fn record(&mut self, record: &[u8; RECORD_BYTES]) -> io::Result<()> {
        let (first, holes, free) = (record.u32::<0>(), record.u16::<4>(), record.u64::<8>());
        if u64::from(first) < self.next || first > u32::MAX - CHUNK_INODES {
            return Err(damaged("its inode tree is out of order"));
        }
        self.next = u64::from(first) + u64::from(CHUNK_INODES);
        let hole = |at: u32| ((1u64 << HOLE_INODES) - 1) << (at * HOLE_INODES);
        let holes = (0..u16::BITS).filter(|at| holes >> at & 1 == 1);
        let used = holes.fold(!free, |used, at| used & !hole(at));
        if used != 0 {
            self.chunks.push(Chunk { group: self.group, first, used });
        }
        Ok(())
    }
}
