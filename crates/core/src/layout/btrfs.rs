//! Btrfs: sectors of 4 KiB for the data; small files, names and all other metadata are items in B-trees.
//!
//! - **Allocated**, as in `stat`: `up(size, 4 KiB)`, even for an inline file, which has no sector at all;
//!   [`Layout::data_bytes`] is what is really in data blocks, nothing for such a file.
//! - **Inline**: sizes from 1 to `min(max_inline, 4095, node - 147)`.
//! - **Metadata**: the items of a file, each with a header of 25 bytes, in nodes that are not full, in one or two
//!   copies.
//!
//! | item | bytes after the header | tree |
//! | --- | --- | --- |
//! | inode | 160 | file system |
//! | inode ref | 10 + name | file system |
//! | dir item and dir index | 30 + name, each | file system |
//! | file extent, inline | 21 + size | file system |
//! | file extent, one for 128 MiB | 53 | file system |
//! | extent with its back reference | 53 | extent |
//! | checksum of each sector | 4 to 32 | checksum |
//!
//! The three items with a name are counted as [`Layout::entry_bytes`].
//!
//! Invariants: the device needs `data_bytes + metadata_bytes`; an inline file has no data bytes.
//!
//! Source: Linux `include/uapi/linux/btrfs_tree.h` (items), `fs/btrfs/inode.c` (`can_cow_file_range_inline`,
//! `btrfs_symlink`), `fs/btrfs/fs.h` (`BTRFS_MAX_EXTENT_SIZE`). How full nodes are was measured: docs/MODELS.md.

use super::{Kind, Layout, Opt, Range, Space, WholeUnits, round_up_wide};
use crate::units::{KIB, MIB};

/// `btrfs:max_inline=2048`.
pub(super) const BTRFS: Kind = Kind {
    name: "btrfs",
    summary: "Btrfs: sectors of 4 KiB, small files inline in the metadata",
    options: &[
        Opt {
            name: "max_inline",
            default: "2048",
            range: Range::Size { least: 0, most: SECTOR_BYTES, power_of_two: false },
            meaning: "largest file stored inline in the metadata, 0 for none (mount -o max_inline=)",
        },
        Opt {
            name: "metadata",
            default: "dup",
            range: Range::Choice(&["dup", "single"]),
            meaning: "copies of the metadata; raid1 keeps as many as dup (mkfs.btrfs -m)",
        },
        Opt {
            name: "node",
            default: "16384",
            range: Range::Size { least: 4 * KIB, most: 64 * KIB, power_of_two: true },
            meaning: "size of a metadata block (mkfs.btrfs -n)",
        },
        Opt {
            name: "checksum",
            default: "crc32c",
            range: Range::Choice(&["crc32c", "xxhash", "sha256", "blake2"]),
            meaning: "checksum of each sector (mkfs.btrfs --csum)",
        },
    ],
    build: |options| {
        let checksum_bytes = match options.choice("checksum") {
            "crc32c" => 4,
            "xxhash" => 8,
            _ => 32,
        };
        Ok(Box::new(Btrfs {
            max_inline_bytes: options.size("max_inline"),
            copies: if options.choice("metadata") == "dup" { 2 } else { 1 },
            node_bytes: options.size("node"),
            checksum_bytes,
        }))
    },
};

/// The unit of data blocks and of checksums.
const SECTOR_BYTES: u64 = 4 * KIB;

/// `struct btrfs_header`, at the front of every node.
const NODE_HEADER_BYTES: u64 = 101;

/// `struct btrfs_item`: key, offset and size of an item.
const ITEM_HEADER_BYTES: u64 = 25;

/// An inode item with its header.
const INODE_BYTES: u64 = ITEM_HEADER_BYTES + 160;

/// Bytes before the data of an inline file.
const INLINE_HEADER_BYTES: u64 = ITEM_HEADER_BYTES + INLINE_EXTENT_BYTES;

/// `struct btrfs_file_extent_item` up to the begin of inline data.
const INLINE_EXTENT_BYTES: u64 = 21;

/// A file extent item with its header; the extent tree needs as many bytes for an extent item with a back reference.
const EXTENT_BYTES: u64 = ITEM_HEADER_BYTES + 53;

/// `BTRFS_MAX_EXTENT_SIZE`: the largest extent in one write.
const EXTENT_MOST_BYTES: u64 = 128 * MIB;

/// Bytes elsewhere for each leaf: its item in the extent tree (58), and a pointer (33) in a node that is half full.
const PER_LEAF_BYTES: u64 = 58 + 2 * 33;

/// How full the leaves of the trees of extents and checksums are, in per cent: they grow in the order of addresses.
/// Measured: 88 to 99 once there are ten leaves.
const ADDRESSES_FILL_PER_CENT: u64 = 94;

#[derive(Debug)]
struct Btrfs {
    max_inline_bytes: u64,
    copies: u64,
    node_bytes: u64,
    checksum_bytes: u64,
}

impl Btrfs {
    /// Whether a file is in the metadata; it must be smaller than a sector and fit into a leaf of its own.
    fn is_inline(&self, size_bytes: u64) -> bool {
        let fits = self.node_bytes - NODE_HEADER_BYTES - INLINE_HEADER_BYTES;
        size_bytes > 0 && size_bytes <= self.max_inline_bytes.min(SECTOR_BYTES - 1).min(fits)
    }

    /// How full the leaves of a tree of files are, in per cent, measured for each size of a node: see docs/MODELS.md.
    /// If all files are alike they are fuller; they are less full if inline files need most of a node of 4 KiB.
    fn files_fill_per_cent(&self) -> u64 {
        match self.node_bytes / KIB {
            4 => 81,
            8 | 16 => 84,
            32 => 90,
            _ => 95,
        }
    }

    /// Bytes on the device for items: in the tree of files, and in the trees that are ordered by address.
    fn nodes(&self, of_files: u128, by_address: u128) -> u128 {
        let per_leaf = u128::from((self.node_bytes + PER_LEAF_BYTES) * self.copies);
        let room = u128::from(self.node_bytes - NODE_HEADER_BYTES);
        let in_leaves =
            |items: u128, fill_per_cent: u64| (items * per_leaf * 100).div_ceil(room * u128::from(fill_per_cent));
        in_leaves(of_files, self.files_fill_per_cent()) + in_leaves(by_address, ADDRESSES_FILL_PER_CENT)
    }
}

impl Layout for Btrfs {
    fn file(&self, size_bytes: u64) -> Space {
        let inode = u128::from(INODE_BYTES);
        let metadata_bytes = if self.is_inline(size_bytes) {
            self.nodes(inode + u128::from(INLINE_HEADER_BYTES + size_bytes), 0)
        } else {
            let extents = u128::from(size_bytes.div_ceil(EXTENT_MOST_BYTES)) * u128::from(EXTENT_BYTES);
            let checksums = u128::from(size_bytes.div_ceil(SECTOR_BYTES)) * u128::from(self.checksum_bytes);
            self.nodes(inode + extents, extents + checksums)
        };
        Space { allocated_bytes: round_up_wide(size_bytes.into(), SECTOR_BYTES), metadata_bytes }
    }

    fn data_bytes(&self, size_bytes: u64) -> u128 {
        if self.is_inline(size_bytes) { 0 } else { round_up_wide(size_bytes.into(), SECTOR_BYTES) }
    }

    fn whole_units(&self) -> Option<WholeUnits> {
        Some(WholeUnits { unit_bytes: SECTOR_BYTES, bytes_per_unit: SECTOR_BYTES.into() })
    }

    /// Dir item, dir index and inode ref, before division by the fill of leaves.
    fn entry_bytes(&self, name_length: u64) -> u64 {
        name_length.saturating_mul(3).saturating_add(3 * ITEM_HEADER_BYTES + 30 + 30 + 10)
    }

    fn directory(&self, _entries: u64, entries_bytes: u64) -> Option<Space> {
        let metadata_bytes = self.nodes(u128::from(INODE_BYTES) + u128::from(entries_bytes), 0);
        Some(Space { allocated_bytes: 0, metadata_bytes })
    }

    /// Always inline, whatever `max_inline` is; `stat` shows a sector.
    fn symlink(&self, target_length: u64) -> Option<Space> {
        let items = u128::from(INODE_BYTES + INLINE_HEADER_BYTES) + u128::from(target_length);
        let allocated_bytes = round_up_wide(target_length.into(), SECTOR_BYTES);
        Some(Space { allocated_bytes, metadata_bytes: self.nodes(items, 0) })
    }

    fn symlink_data_bytes(&self, _target_length: u64) -> u128 {
        0
    }
}

/// Models for the laws of `tests`, besides the defaults.
#[cfg(test)]
pub(super) const TESTED: &[&str] = &[
    "btrfs:max_inline=0",
    "btrfs:max_inline=4096,metadata=single",
    "btrfs:max_inline=4096,node=4096",
    "btrfs:max_inline=100,node=64KiB,checksum=xxhash",
    "btrfs:checksum=sha256",
];

#[cfg(test)]
mod tests {
    use crate::layout::Model;

    fn data(model: &str, sizes: &[u64]) -> Vec<u128> {
        let layout = Model::parse(model).unwrap().layout;
        sizes.iter().map(|size| layout.data_bytes(*size)).collect()
    }

    #[test]
    fn an_inline_file_shows_a_sector_and_has_none() {
        let layout = Model::parse("btrfs").unwrap().layout;
        assert_eq!([0, 1, 2048, 2049, 4097].map(|size| layout.file(size).allocated_bytes), [0, 4096, 4096, 4096, 8192]);
        assert_eq!(data("btrfs", &[0, 1, 2048, 2049, 4097]), [0, 0, 0, 4096, 8192]);
    }

    #[test]
    fn inlining_ends_at_the_option_the_sector_and_the_leaf() {
        assert_eq!(data("btrfs:max_inline=0", &[1]), [4096]);
        assert_eq!(data("btrfs:max_inline=4096", &[4095, 4096]), [0, 4096]);
        assert_eq!(data("btrfs:max_inline=4096,node=4096", &[3949, 3950]), [0, 4096]);
    }

    #[test]
    fn items_have_the_sizes_of_the_kernel_and_a_name_is_there_three_times() {
        let layout = Model::parse("btrfs:metadata=single").unwrap().layout;
        // Inode 185, inline extent 47; with a name of 8: dir item and dir index 63 each, inode ref 43.
        assert_eq!(layout.entry_bytes(8), 63 + 63 + 43);
        let in_leaves = |items: u128, fill: u128| (items * (16384 + 124) * 100).div_ceil(16283 * fill);
        assert_eq!(layout.file(1).metadata_bytes, in_leaves(185 + 47, 84));
        // Two extents above 128 MiB: two items of 78 in each of two trees, 4 bytes a sector.
        let size = (128 << 20) + 1;
        assert_eq!(layout.file(size).metadata_bytes, in_leaves(185 + 156, 84) + in_leaves(156 + 4 * 32769, 94));
        let both = Model::parse("btrfs").unwrap().layout;
        assert_eq!(both.file(1).metadata_bytes, (232u128 * 2 * 16508 * 100).div_ceil(16283 * 84));
    }

    #[test]
    fn nothing_overflows_and_symlinks_are_inline() {
        let layout = Model::parse("btrfs:checksum=blake2").unwrap().layout;
        assert!(layout.file(u64::MAX).metadata_bytes > u128::from(u64::MAX / 4096 * 64));
        assert!(layout.directory(u64::MAX, u64::MAX).unwrap().metadata_bytes > u128::from(u64::MAX));
        assert_eq!((layout.symlink(1).unwrap().allocated_bytes, layout.symlink_data_bytes(1)), (4096, 0));
    }
}
