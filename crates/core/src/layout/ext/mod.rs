//! ext2, ext3 and ext4: whole blocks, and the blocks that map them.
//!
//! Formula, with B the block and C the allocation cluster (bigalloc; else C = B): a file needs up(size, C) and its map.
//! - ext2 and ext3 count their indirect blocks: the inode has 12 direct blocks, then come a single, a double and a
//!   triple indirect block of B/4 pointers each. `fs/ext2/inode.c` and `fs/ext4/indirect.c`, `ext4_block_to_path`.
//! - ext4 keeps 4 extents in the inode. An extent is a contiguous run of at most 32,768 blocks (`EXT_INIT_MAX_LEN` in
//!   `fs/ext4/ext4_extents.h`). The fifth extent needs a leaf block; one holds (B − 12 − 4) / 12 extents, and the inode
//!   points to 4 leaves or, above those, to index blocks with as many entries. Appending fills leaves to the last
//!   entry. With bigalloc each of these blocks needs a cluster.
//! - ext4 with inline_data keeps a file in the inode while it fits: 60 bytes in `i_block` and, as the extended
//!   attribute `system.data`, inode − 188 more, so inode − 128 in total (`ext4_get_max_inline_size` in
//!   `fs/ext4/inline.c`, with the `i_extra_isize` of 32 that mke2fs writes). `stat` shows such a file in whole sectors
//!   of 512 bytes, though it has no block (`ext4_file_getattr` in `fs/ext4/inode.c`).
//!
//! Directories are the subject of `directory`. A symlink below 60 bytes is in the inode, a longer one in a block.
//!
//! Invariants: the map never shrinks as a file grows; an inline file never shows more than a block.

mod directory;

use self::directory::Directories;
use super::{Kind, Layout, Opt, Options, Range, Space, round_up, round_up_wide};
use crate::units::{GIB, KIB, MIB};

/// Bytes of an inode for a map, a short symlink or the beginning of an inline file.
const MAP_BYTES: u64 = 60;
/// Direct blocks of an inode of ext2 and ext3.
const DIRECT_BLOCKS: u64 = 12;
/// Most blocks of an extent.
const EXTENT_BLOCKS: u64 = 32_768;
/// Extents (or index entries) that an inode has room for.
const INODE_EXTENTS: u64 = 4;
/// An extent or an index entry; a block of them also has a header of as many bytes, and a checksum.
const EXTENT_BYTES: u64 = 12;
const CHECKSUM_BYTES: u64 = 4;
/// The fixed part of an inode; what follows it holds extended attributes.
const OLD_INODE_BYTES: u64 = 128;
/// The unit of `st_blocks`.
const SECTOR_BYTES: u64 = 512;

const BLOCK: Opt = Opt {
    name: "block",
    default: "4096",
    range: Range::Size { least: KIB, most: 64 * KIB, power_of_two: true },
    meaning: "block size (mke2fs -b)",
};

const INODE: Opt = Opt {
    name: "inode",
    default: "256",
    range: Range::Size { least: 128, most: 64 * KIB, power_of_two: true },
    meaning: "inode size (mke2fs -I)",
};

/// `ext2:block=4096,inode=256`.
pub(super) const EXT2: Kind = Kind {
    name: "ext2",
    summary: "ext2: whole blocks and indirect blocks",
    options: &[BLOCK, INODE],
    build: build_indirect,
};

/// `ext3:block=4096,inode=256`.
pub(super) const EXT3: Kind =
    Kind { name: "ext3", summary: "ext3: whole blocks and indirect blocks, like ext2", ..EXT2 };

/// `ext4:block=4096,inode=256,inline=off,cluster=0,extent=0`.
pub(super) const EXT4: Kind = Kind {
    name: "ext4",
    summary: "ext4: whole blocks (clusters) and extent blocks, inline files",
    options: &[
        BLOCK,
        INODE,
        Opt {
            name: "inline",
            default: "off",
            range: Range::Switch,
            meaning: "small files in the inode (mke2fs -O inline_data)",
        },
        Opt {
            name: "cluster",
            default: "0",
            range: Range::Size { least: 0, most: 256 * MIB, power_of_two: true },
            meaning: "cluster size of bigalloc (mke2fs -O bigalloc -C), 0 for none",
        },
        Opt {
            name: "extent",
            default: "0",
            range: Range::Size { least: 0, most: 2 * GIB, power_of_two: false },
            meaning: "contiguous bytes that the allocator finds, 0 for the most that an extent can have",
        },
    ],
    build: build_ext4,
};

/// How the blocks of a file are mapped.
#[derive(Debug)]
enum Map {
    Indirect,
    Extents { blocks_per_extent: u64 },
}

#[derive(Debug)]
struct Ext {
    block_bytes: u64,
    inode_bytes: u64,
    cluster_bytes: u64,
    /// The largest file in an inode, if inodes hold files.
    inline_bytes: Option<u64>,
    map: Map,
    directories: Directories,
}

fn check_inode(options: &Options) -> Result<(u64, u64), String> {
    let (block, inode) = (options.size("block"), options.size("inode"));
    if inode > block {
        return Err(format!(
            "an inode of {inode} bytes does not fit in a block of {block}; inode must be at most block"
        ));
    }
    Ok((block, inode))
}

fn build_indirect(options: &Options) -> Result<Box<dyn Layout>, String> {
    let (block_bytes, inode_bytes) = check_inode(options)?;
    let directories = Directories { block_bytes, checksums: false, inline: None };
    let map = Map::Indirect;
    Ok(Box::new(Ext { block_bytes, inode_bytes, cluster_bytes: block_bytes, inline_bytes: None, map, directories }))
}

fn build_ext4(options: &Options) -> Result<Box<dyn Layout>, String> {
    let (block_bytes, inode_bytes) = check_inode(options)?;
    let (cluster, extent) = (options.size("cluster"), options.size("extent"));
    if cluster != 0 && cluster < block_bytes {
        return Err(format!(
            "a cluster of {cluster} bytes is smaller than a block of {block_bytes}; it must be at least one"
        ));
    }
    if extent != 0 && extent < block_bytes.max(cluster) {
        return Err(format!("an extent of {extent} bytes is smaller than a block or cluster; it must be at least one"));
    }
    let inline = options.switch("inline");
    if inline && inode_bytes <= OLD_INODE_BYTES {
        return Err("an inode of 128 bytes has no space for inline files; inline=on needs inode=256 or more".to_owned());
    }
    let inline_bytes = inline.then(|| inode_bytes - OLD_INODE_BYTES);
    let found = if extent == 0 { EXTENT_BLOCKS } else { extent / block_bytes };
    let blocks_per_extent = found.clamp(1, EXTENT_BLOCKS);
    Ok(Box::new(Ext {
        block_bytes,
        inode_bytes,
        cluster_bytes: cluster.max(block_bytes),
        inline_bytes,
        map: Map::Extents { blocks_per_extent },
        directories: Directories { block_bytes, checksums: true, inline: inline_bytes },
    }))
}

impl Ext {
    /// Bytes in whole clusters, with their map.
    fn mapped(&self, bytes: u128) -> u128 {
        let bytes = round_up_wide(bytes, self.cluster_bytes);
        let blocks = bytes / u128::from(self.block_bytes);
        let map_blocks = match self.map {
            Map::Indirect => indirect_blocks(blocks, self.block_bytes / 4),
            Map::Extents { blocks_per_extent } => {
                let per_block = (self.block_bytes - EXTENT_BYTES - CHECKSUM_BYTES) / EXTENT_BYTES;
                extent_blocks(blocks.div_ceil(blocks_per_extent.into()), per_block)
            }
        };
        bytes + map_blocks * u128::from(self.cluster_bytes)
    }

    fn is_inline(&self, size_bytes: u64) -> bool {
        self.inline_bytes.is_some_and(|most| size_bytes <= most)
    }

    fn space(&self, allocated_bytes: u128) -> Space {
        Space { allocated_bytes, metadata_bytes: self.inode_bytes.into() }
    }
}

/// Indirect blocks, of `pointers` pointers each, of a file with `blocks` blocks of data and no holes. A file beyond the
/// reach of the triple indirect block is assumed to continue there.
fn indirect_blocks(blocks: u128, pointers: u64) -> u128 {
    let pointers = u128::from(pointers);
    let behind_direct = blocks.saturating_sub(DIRECT_BLOCKS.into());
    let behind_single = behind_direct.saturating_sub(pointers);
    let in_triple = behind_single.saturating_sub(pointers * pointers);
    let in_double = behind_single - in_triple;
    u128::from(behind_direct > 0)
        + u128::from(in_double > 0)
        + in_double.div_ceil(pointers)
        + u128::from(in_triple > 0)
        + in_triple.div_ceil(pointers * pointers)
        + in_triple.div_ceil(pointers)
}

/// Blocks of the tree of `extents` extents, with `per_block` entries in each full block; none while the inode has room.
fn extent_blocks(extents: u128, per_block: u64) -> u128 {
    let (mut level, mut blocks) = (extents, 0);
    while level > INODE_EXTENTS.into() {
        level = level.div_ceil(per_block.into());
        blocks += level;
    }
    blocks
}

impl Layout for Ext {
    fn file(&self, size_bytes: u64) -> Space {
        if self.is_inline(size_bytes) {
            return self.space(round_up(size_bytes, SECTOR_BYTES).into());
        }
        self.space(self.mapped(size_bytes.into()))
    }

    fn data_bytes(&self, size_bytes: u64) -> u128 {
        if self.is_inline(size_bytes) { 0 } else { self.file(size_bytes).allocated_bytes }
    }

    fn entry_bytes(&self, name_length: u64) -> u64 {
        directory::entry_bytes(name_length)
    }

    fn directory(&self, entries: u64, entries_bytes: u64) -> Option<Space> {
        let blocks = self.directories.blocks(entries, entries_bytes);
        Some(self.space(self.mapped(blocks * u128::from(self.block_bytes))))
    }

    fn symlink(&self, target_length: u64) -> Option<Space> {
        let in_inode = target_length < MAP_BYTES;
        // The target is stored with a terminating zero byte.
        Some(self.space(if in_inode { 0 } else { self.mapped(u128::from(target_length) + 1) }))
    }
}

/// Models for the laws of `tests`, besides the defaults.
#[cfg(test)]
pub(super) const TESTED: &[&str] = &[
    "ext2:block=1024,inode=128",
    "ext2:block=2048",
    "ext2:block=64KiB,inode=64KiB",
    "ext3:block=1024",
    "ext3:block=4096,inode=512",
    "ext4:block=1024",
    "ext4:block=2048,inode=128",
    "ext4:block=64KiB",
    "ext4:inline=on",
    "ext4:inline=on,inode=512",
    "ext4:inline=on,inode=1024",
    "ext4:inline=on,inode=1024,block=1024",
    "ext4:inline=on,inode=64KiB,block=64KiB",
    "ext4:inline=on,inode=4096,cluster=64KiB",
    "ext4:cluster=16KiB",
    "ext4:cluster=1MiB",
    "ext4:cluster=256MiB",
    "ext4:cluster=4096",
    "ext4:block=1024,cluster=16KiB",
    "ext4:extent=4096",
    "ext4:extent=1MiB,cluster=64KiB",
    "ext4:block=1024,extent=100000",
];

#[cfg(test)]
mod tests {
    use super::super::Model;
    use super::super::tests::allocated;
    use super::*;

    #[test]
    fn indirect_blocks_begin_where_the_pointers_end() {
        // 1 KiB blocks, 256 pointers: the sizes at which ext2's own limits are usually quoted.
        let edges = [
            (12 * KIB, 0),
            (12 * KIB + 1, 1),
            (268 * KIB, 1),
            (268 * KIB + 1, 3),
            ((12 + 512) * KIB, 3),
            ((12 + 512) * KIB + 1, 4),
            (64 * MIB + 268 * KIB, 258),
            (64 * MIB + 268 * KIB + 1, 261),
        ];
        for (size, blocks) in edges {
            let data = round_up_wide(size.into(), KIB);
            assert_eq!(allocated("ext2:block=1024", size) - data, blocks * 1024, "{size}");
        }
        // The largest file of ext2 with 1 KiB blocks: 16 GiB and 64 MiB and 268 KiB, with 65,536 + 256 + 1 more for the
        // triple tree.
        let largest = 16 * GIB + 64 * MIB + 268 * KIB;
        assert_eq!(allocated("ext3:block=1024", largest) - u128::from(largest), (258 + 65_793) * 1024);
    }

    #[test]
    fn extent_blocks_begin_with_the_fifth_extent() {
        assert_eq!(extent_blocks(4, 340), 0);
        assert_eq!(extent_blocks(5, 340), 1);
        assert_eq!(extent_blocks(340, 340), 1);
        assert_eq!(extent_blocks(341, 340), 2);
        assert_eq!(extent_blocks(4 * 340, 340), 4);
        assert_eq!(extent_blocks(4 * 340 + 1, 340), 5 + 1);
        let extra = |size: u64| allocated("ext4", size) - u128::from(size);
        assert_eq!(extra(512 * MIB), 0);
        assert_eq!(extra(GIB), 4096);
        assert_eq!(extra(50 * GIB), 2 * 4096);
        // A file in pieces of 1 MiB: 1,024 extents, four leaves, to which the inode points.
        assert_eq!(allocated("ext4:extent=1MiB", GIB), u128::from(GIB) + 4 * 4096);
    }

    #[test]
    fn inline_files_end_128_bytes_below_the_inode_size() {
        for (inode, most) in [(256u64, 128u64), (512, 384), (1024, 896)] {
            let model = Model::parse(&format!("ext4:inline=on,inode={inode}")).unwrap();
            assert_eq!(model.layout.file(most).allocated_bytes, u128::from(most).next_multiple_of(512));
            assert_eq!(model.layout.data_bytes(most), 0);
            assert_eq!(model.layout.file(most + 1).allocated_bytes, 4096);
            assert_eq!(model.layout.data_bytes(most + 1), 4096);
        }
    }

    #[test]
    fn clusters_are_the_unit_of_bigalloc_and_of_its_tree() {
        assert_eq!(allocated("ext4:cluster=64KiB", 0), 0);
        assert_eq!(allocated("ext4:cluster=64KiB", 1), 65_536);
        assert_eq!(allocated("ext4:cluster=64KiB", 600 * MIB), u128::from(600 * MIB + 64 * KIB));
    }

    #[test]
    fn symlinks_below_60_bytes_need_no_block() {
        let model = Model::parse("ext4:inline=on").unwrap();
        let of = |length| model.layout.symlink(length).unwrap().allocated_bytes;
        assert_eq!((of(0), of(59), of(60), of(4095)), (0, 0, 4096, 4096));
    }

    #[test]
    fn what_does_not_go_together_is_said() {
        for (model, right) in [
            ("ext4:inode=2048,block=1024", "inode must be at most block"),
            ("ext4:inline=on,inode=128", "inode=256 or more"),
            ("ext4:cluster=1024", "at least one"),
            ("ext4:extent=1024", "at least one"),
            ("ext2:inode=4096,block=2048", "inode must be at most block"),
        ] {
            let said = Model::parse(model).unwrap_err().to_string();
            assert!(said.contains(right), "{said}");
        }
    }
}
