//! Makes the checksums of a damaged image right again, so that tests reach what is behind them.

use std::io;

use super::blocks::{self, Follow};
use super::inode::{self, Decoded, EXTENTS, INDEXED, INLINE};
use super::superblock::{self, Superblock};
use super::{checksum, directory, groups};
use crate::scan::Kind;
use crate::scan::inodes::damaged;

/// Gives superblock, descriptors, inodes, nodes of extents and directories the checksums that their content should
/// have. Leaves alone what it cannot find.
pub fn seal(image: &mut [u8]) {
    superblock::seal(image);
    let Ok(superblock) = Superblock::read(&&*image) else { return };
    if superblock.group != 0 || superblock.length_bytes() > image.len() as u64 {
        return;
    }
    seal_descriptors(image, &superblock);
    let (Ok(found), Some(seed)) = (groups::read(&&*image, &superblock), superblock.seed) else { return };
    let inode_bytes = superblock.inode_bytes as usize;
    let mut left = superblock.blocks;
    for (group_number, group) in (0u32..).zip(&found.groups) {
        for slot in 0..group.slots {
            let number = group_number * superblock.inodes_per_group + slot + 1;
            let start = (group.table * u64::from(superblock.block_bytes)) as usize + slot as usize * inode_bytes;
            // One that was never used is zeroes.
            let bytes = image.get_mut(start..start + inode_bytes).filter(|bytes| bytes.iter().any(|&byte| byte != 0));
            let Some(bytes) = bytes else { continue };
            if let Some(seed) = superblock.inode_seed {
                checksum::seal_inode(seed, number, bytes);
            }
            let bytes = bytes.to_vec();
            if let Decoded::Inode { raw, stat, flags } = inode::decode(&superblock, number, &bytes, 0)
                && stat.kind == Kind::Directory
                && flags & INLINE == 0
            {
                let limit = stat.size_bytes.div_ceil(superblock.block_bytes.into());
                let seed = checksum::seed(seed, number, raw);
                let is_indexed = superblock.indexes && flags & INDEXED != 0;
                let mut sealer = Sealer { image, superblock: &superblock, seed, is_indexed, left: &mut left };
                // What is behind damage stays as it is.
                match flags & EXTENTS != 0 {
                    true => drop(blocks::extents(raw.block(), limit, &mut sealer)),
                    false => blocks::numbers(raw.block(), limit, &mut sealer),
                }
            }
        }
    }
}

fn seal_descriptors(image: &mut [u8], superblock: &Superblock) {
    let (block_bytes, descriptor_bytes) = (superblock.block_bytes as usize, superblock.descriptor_bytes as usize);
    let a_block = block_bytes / descriptor_bytes;
    for number in 0..superblock.groups {
        let block = groups::place(superblock, 0, (number as usize / a_block) as u64) as usize;
        let start = block * block_bytes + number as usize % a_block * descriptor_bytes;
        let Some(descriptor) = image.get_mut(start..start + descriptor_bytes) else { return };
        if let Some(right) = groups::checksum(superblock, number, descriptor) {
            checksum::put(descriptor, groups::CHECKSUM, &right.to_le_bytes());
        }
    }
}

/// Seals the blocks of a directory.
struct Sealer<'i> {
    image: &'i mut [u8],
    superblock: &'i Superblock,
    seed: u32,
    is_indexed: bool,
    /// Blocks that may still be read.
    left: &'i mut u64,
}

impl Sealer<'_> {
    fn block(&mut self, block: u64) -> io::Result<&mut [u8]> {
        *self.left = self.left.checked_sub(1).ok_or_else(|| damaged("too many blocks"))?;
        let bytes = self.superblock.block_bytes as usize;
        let start = usize::try_from(block).ok().and_then(|block| block.checked_mul(bytes));
        let range = start.filter(|&start| start > 0).map(|start| start..start.saturating_add(bytes));
        range.and_then(|range| self.image.get_mut(range)).ok_or_else(|| damaged("it is outside"))
    }

    fn seal(&mut self, block: u64, right: impl FnOnce(&[u8]) -> Option<(u32, usize)>) -> io::Result<&[u8]> {
        let bytes = self.block(block)?;
        if let Some((right, at)) = right(bytes) {
            checksum::put(bytes, at, &right.to_le_bytes());
        }
        Ok(bytes)
    }
}

impl Follow for Sealer<'_> {
    fn read(&mut self, block: u64) -> io::Result<Vec<u8>> {
        self.block(block).map(|bytes| bytes.to_vec())
    }

    fn read_node(&mut self, block: u64) -> io::Result<Vec<u8>> {
        let seed = self.seed;
        self.seal(block, |bytes| checksum::extents(seed, bytes)).map(<[u8]>::to_vec)
    }

    fn numbers_a_block(&self) -> u64 {
        u64::from(self.superblock.block_bytes) / 4
    }

    fn run(&mut self, logical: u64, first: u64, count: u64) -> io::Result<()> {
        let (seed, is_indexed) = (self.seed, self.is_indexed);
        for offset in 0..count {
            let is_index = |bytes: &[u8]| is_indexed && (logical + offset == 0 || directory::is_index_node(bytes));
            self.seal(first + offset, |bytes| match is_index(bytes) {
                true => checksum::index(seed, bytes),
                false => checksum::names(seed, bytes),
            })?;
        }
        Ok(())
    }

    fn lost(&mut self, _error: io::Error) {}
}
