//! XFS, version 5: whole blocks for the data, one inode per file, directories that grow through four forms.
//!
//! - **File**: `up(size, block)`; the extents are in the inode. One extent holds at most 2^21 - 1 blocks (8 GiB in
//!   blocks of 4 KiB), and an inode at least 12 of them, so that a contiguous file below 96 GiB needs no block for its
//!   map; a larger one needs one block for some 250 extents, which is omitted.
//! - **Symlink**: in the inode up to `inode - 176` bytes, else in blocks with a header of 56 bytes.
//! - **Directory**, in blocks of `max(block, 4 KiB)`: in the inode; then one block with entries and hashes; then data
//!   blocks and one leaf of hashes; then data blocks, leaves of hashes that split in halves (see `halving`) with nodes
//!   above them, and an index of free space.
//!
//! Invariants: what is allocated for a file is a whole number of blocks; a directory in its inode allocates nothing.
//!
//! Source: Linux `fs/xfs/libxfs/xfs_da_format.h` (directory blocks), `xfs_dir2_sf.c` (in the inode), `xfs_bmap.c`
//! (`xfs_default_attroffset`), `xfs_inode_util.c` (`xfs_icreate_want_attrfork`), `xfs_symlink_remote.c`; `mkfs.xfs(8)`.

use super::halving::leaves;
use super::{Kind, Layout, Opt, Range, Space, WholeUnits, round_up_wide};
use crate::units::{KIB, format_size};

/// `xfs:block=4096`.
pub(super) const XFS: Kind = Kind {
    name: "xfs",
    summary: "XFS: whole blocks, extents in the inode",
    options: &[
        Opt {
            name: "block",
            default: "4096",
            range: Range::Size { least: KIB, most: 64 * KIB, power_of_two: true },
            meaning: "block size (mkfs.xfs -b size=)",
        },
        Opt {
            name: "inode",
            default: "512",
            range: Range::Size { least: 512, most: 2048, power_of_two: true },
            meaning: "inode size (mkfs.xfs -i size=)",
        },
        Opt {
            name: "security",
            default: "on",
            range: Range::Switch,
            meaning: "a security module or default ACLs reserve part of each inode for attributes",
        },
    ],
    build: |options| {
        let (block_bytes, inode_bytes) = (options.size("block"), options.size("inode"));
        let most = block_bytes / INODES_PER_BLOCK_LEAST;
        if inode_bytes > most {
            return Err(format!(
                "an inode of {} is too large: a block of {} holds at least {INODES_PER_BLOCK_LEAST}, so inode must be \
                    at most {}",
                format_size(inode_bytes.into()),
                format_size(block_bytes.into()),
                format_size(most.into()),
            ));
        }
        Ok(Box::new(Xfs { block_bytes, inode_bytes, attributes_reserved: options.switch("security") }))
    },
};

/// `XFS_MIN_INODE_PERBLOCK`.
const INODES_PER_BLOCK_LEAST: u64 = 2;

/// The core of an inode of version 3: the rest is for data or attributes.
const INODE_CORE_BYTES: u64 = 176;

/// Bytes left for data if the inode is created with room for attributes, whatever its size: `xfs_default_attroffset`,
/// in units of 8 bytes.
const FORK_BESIDE_ATTRIBUTES_BYTES: u64 = 192;

/// One extent in the inode or in a block of the map.
const EXTENT_BYTES: u64 = 16;

/// Header of a block of a map of extents: `XFS_BMBT_BLOCK_LEN`.
const MAP_HEADER_BYTES: u64 = 72;

/// Header of a remote symlink block: `struct xfs_dsymlink_hdr`.
const SYMLINK_HEADER_BYTES: u64 = 56;

/// Header of each kind of directory block: data, hash leaves, nodes and free space, all alike in version 5.
const DIRECTORY_HEADER_BYTES: u64 = 64;

/// `.` and `..` if a directory has blocks of its own.
const DOTS: u64 = 2;

/// Their total bytes there.
const DOTS_BYTES: u64 = 32;

/// A hash and the place of its entry; also a pointer to a child in the tree above.
const HASH_BYTES: u64 = 8;

/// At the end of a single block: the number of hashes.
const BLOCK_TAIL_BYTES: u64 = 8;

/// At the end of a single leaf: the number of data blocks with known free space, 2 bytes each.
const LEAF_TAIL_BYTES: u64 = 4;

/// A directory in the inode: number of entries and the parent.
const SHORT_HEADER_BYTES: u64 = 6;

#[derive(Debug)]
struct Xfs {
    block_bytes: u64,
    inode_bytes: u64,
    attributes_reserved: bool,
}

impl Xfs {
    /// Bytes of an inode for data, if no part of it is used for attributes.
    fn literal_bytes(&self) -> u64 {
        self.inode_bytes - INODE_CORE_BYTES
    }

    /// Bytes in the inode of a directory for its entries, or for its extents.
    fn fork_bytes(&self) -> u64 {
        if self.attributes_reserved { FORK_BESIDE_ATTRIBUTES_BYTES } else { self.literal_bytes() }
    }

    /// The default of mkfs.xfs.
    fn directory_block_bytes(&self) -> u64 {
        self.block_bytes.max(4 * KIB)
    }

    /// Whether the entries fit into the inode. There an entry needs its name and 8 bytes; in a block its name and 12,
    /// rounded up to a multiple of 8, by 3.5 on average. Only the latter sum of the names is known.
    fn is_short(&self, entries: u64, entries_bytes: u64) -> bool {
        let room = u128::from(self.fork_bytes() - SHORT_HEADER_BYTES);
        2 * u128::from(entries_bytes) <= 15 * u128::from(entries) + 2 * room
    }

    /// Directory blocks of a directory that does not fit into its inode.
    fn directory_blocks(&self, entries: u64, entries_bytes: u64) -> u128 {
        let room = self.directory_block_bytes() - DIRECTORY_HEADER_BYTES;
        let data_bytes = u128::from(entries_bytes) + u128::from(DOTS_BYTES);
        let hashes = entries.saturating_add(DOTS);
        let hashes_bytes = u128::from(hashes) * u128::from(HASH_BYTES);
        if data_bytes + hashes_bytes + u128::from(BLOCK_TAIL_BYTES) <= room.into() {
            return 1;
        }
        let data = data_bytes.div_ceil(room.into());
        let index_bytes = 2 * data;
        if hashes_bytes + index_bytes + u128::from(LEAF_TAIL_BYTES) <= room.into() {
            return data + 1;
        }
        let per_leaf = room / HASH_BYTES;
        let mut level = leaves(hashes, per_leaf);
        let mut tree = u128::from(level);
        while level > 1 {
            level = leaves(level, per_leaf);
            tree += u128::from(level);
        }
        data + tree + index_bytes.div_ceil(room.into())
    }

    /// Blocks that map this many extents.
    fn map_blocks(&self, extents: u128) -> u128 {
        if extents * u128::from(EXTENT_BYTES) <= self.fork_bytes().into() {
            return 0;
        }
        extents.div_ceil(u128::from((self.block_bytes - MAP_HEADER_BYTES) / EXTENT_BYTES))
    }
}

impl Layout for Xfs {
    fn file(&self, size_bytes: u64) -> Space {
        Space {
            allocated_bytes: round_up_wide(size_bytes.into(), self.block_bytes),
            metadata_bytes: self.inode_bytes.into(),
        }
    }

    fn whole_units(&self) -> Option<WholeUnits> {
        Some(WholeUnits { unit_bytes: self.block_bytes, bytes_per_unit: self.block_bytes.into() })
    }

    /// Inode number, length, name, type and offset, rounded up to 8 bytes.
    fn entry_bytes(&self, name_length: u64) -> u64 {
        name_length.saturating_add(8 + 1 + 1 + 2).checked_next_multiple_of(8).unwrap_or(u64::MAX)
    }

    fn directory(&self, entries: u64, entries_bytes: u64) -> Option<Space> {
        let allocated_bytes = if self.is_short(entries, entries_bytes) {
            0
        } else {
            // Its blocks are allocated one by one, between those of its files: each is assumed to be an extent.
            let blocks = self.directory_blocks(entries, entries_bytes);
            blocks * u128::from(self.directory_block_bytes()) + self.map_blocks(blocks) * u128::from(self.block_bytes)
        };
        Some(Space { allocated_bytes, metadata_bytes: self.inode_bytes.into() })
    }

    fn symlink(&self, target_length: u64) -> Option<Space> {
        let blocks = if target_length <= self.literal_bytes() {
            0
        } else {
            target_length.div_ceil(self.block_bytes - SYMLINK_HEADER_BYTES)
        };
        let allocated_bytes = u128::from(blocks) * u128::from(self.block_bytes);
        Some(Space { allocated_bytes, metadata_bytes: self.inode_bytes.into() })
    }
}

/// Models for the laws of `tests`, besides the defaults.
#[cfg(test)]
pub(super) const TESTED: &[&str] = &[
    "xfs:block=1024",
    "xfs:block=2048,inode=1024",
    "xfs:inode=2048,security=off",
    "xfs:block=8192,security=off",
    "xfs:block=16KiB",
    "xfs:block=32KiB,inode=1024",
    "xfs:block=64KiB,inode=2048",
];

#[cfg(test)]
mod tests {
    use crate::layout::Model;

    fn directory(model: &str, entries: u64, name_length: u64) -> u128 {
        let layout = Model::parse(model).unwrap().layout;
        layout.directory(entries, entries * layout.entry_bytes(name_length)).unwrap().allocated_bytes
    }

    #[test]
    fn an_entry_is_rounded_up_to_eight_bytes() {
        let layout = Model::parse("xfs").unwrap().layout;
        // `.` and `..` need 16 each; the longest name of 255 bytes 272.
        assert_eq!([1, 2, 4, 5, 16, 255].map(|length| layout.entry_bytes(length)), [16, 16, 16, 24, 32, 272]);
        assert_eq!(layout.entry_bytes(u64::MAX), u64::MAX);
    }

    #[test]
    fn a_small_directory_lies_in_its_inode() {
        // Names of 16 bytes need 24 each after the first 6: 174 of 192 bytes for 7, 318 of 336 for 13.
        assert_eq!([7, 8].map(|entries| directory("xfs", entries, 16)), [0, 4096]);
        assert_eq!([13, 14].map(|entries| directory("xfs:security=off", entries, 16)), [0, 4096]);
    }

    #[test]
    fn a_directory_grows_through_its_forms() {
        // One block holds 64 + 32 + 32 n + 8 (n + 2) + 8 bytes up to n = 99.
        assert_eq!([99, 100].map(|entries| directory("xfs", entries, 16)), [4096, 8192]);
        // One leaf of hashes: 64 + 8 (n + 2) + 2 a data block + 4 up to n = 500.
        assert_eq!([500, 501].map(|entries| directory("xfs", entries, 16)), [5 * 4096, 6 * 4096]);
        assert_eq!(directory("xfs:block=16384", 500, 16), 2 * 16384);
    }

    #[test]
    fn a_symlink_is_in_the_inode_up_to_its_literal_area() {
        let symlink =
            |model: &str, length| Model::parse(model).unwrap().layout.symlink(length).unwrap().allocated_bytes;
        assert_eq!([1, 336, 337, 1023].map(|length| symlink("xfs", length)), [0, 0, 4096, 4096]);
        assert_eq!([336, 337, 968, 969].map(|length| symlink("xfs:block=1024", length)), [0, 1024, 1024, 2048]);
        assert_eq!([848, 849].map(|length| symlink("xfs:inode=1024", length)), [0, 4096]);
    }

    #[test]
    fn an_inode_that_does_not_fit_says_what_would() {
        let said = Model::parse("xfs:block=1024,inode=1024").unwrap_err().to_string();
        assert!(said.contains("so inode must be at most 512 B"), "{said}");
    }
}
