//! Directories of ext2, ext3 and ext4: one block, or a hash tree of blocks.
//!
//! Formula: an entry needs up(8 + name, 4) bytes and does not cross blocks. The first block also has `.` and `..` (24
//! bytes), and with metadata checksums every block ends with one of 12 bytes. What fits in one block is one block.
//! Beyond it the directory is a hash tree (`dir_index`, on by default in mke2fs): a root of (B − 32) / 8 index entries,
//! leaves that split in halves (`leaves`, see `halving`), and between them, once the root is full, nodes of (B − 8) / 8
//! entries that split likewise; with checksums, root and nodes have one entry less. `fs/ext4/namei.c`:
//! `make_indexed_dir`, `do_split`, `dx_root_limit`, `dx_node_limit`, `ext4_dx_add_entry`;
//! Documentation/filesystems/ext4/directory.rst.
//!
//! With inline_data a small directory is in the inode, in two parts that no entry crosses: 56 bytes of `i_block` and
//! everything after it (`fs/ext4/inline.c`, `ext4_try_add_inline_entry`).
//!
//! Assumed: all entries have the mean length, were added one after another, and none was removed: directories of ext do
//! not shrink.

use super::super::halving::leaves;
use super::MAP_BYTES;
use crate::layout::round_up;

/// The entries `.` and `..`.
const DOTS_BYTES: u64 = 24;
/// Bytes of an inline directory in `i_block` besides the number of its parent.
const INLINE_FIRST_BYTES: u64 = MAP_BYTES - 4;

/// Bytes of an entry.
pub(super) fn entry_bytes(name_length: u64) -> u64 {
    round_up(name_length.saturating_add(8), 4)
}

/// How directories are stored.
#[derive(Debug)]
pub(super) struct Directories {
    pub(super) block_bytes: u64,
    /// Whether blocks end with a checksum (`metadata_csum`, on by default in ext4).
    pub(super) checksums: bool,
    /// The largest directory in an inode, if inodes hold directories.
    pub(super) inline: Option<u64>,
}

impl Directories {
    /// Blocks of a directory with `entries` entries of `entries_bytes` in total.
    pub(super) fn blocks(&self, entries: u64, entries_bytes: u64) -> u128 {
        // How many entries of mean length fit into these bytes.
        let fit = |bytes: u64| {
            let fit = u128::from(bytes) * u128::from(entries) / u128::from(entries_bytes.max(1));
            u64::try_from(fit).unwrap_or(u64::MAX)
        };
        if let Some(inline) = self.inline {
            let second = inline.saturating_sub(MAP_BYTES);
            if entries <= fit(INLINE_FIRST_BYTES).saturating_add(fit(second)) {
                return 0;
            }
        }
        let room = self.block_bytes - if self.checksums { 12 } else { 0 };
        if entries <= fit(room - DOTS_BYTES) {
            return 1;
        }
        let checksum = if self.checksums { 8 } else { 0 };
        let root_entries = (self.block_bytes - 32 - checksum) / 8;
        let node_entries = (self.block_bytes - 8 - checksum) / 8;
        let mut level = leaves(entries, fit(room)).max(2);
        let mut blocks = u128::from(level);
        while level > root_entries {
            level = leaves(level, node_entries);
            blocks += u128::from(level);
        }
        blocks + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_eight_bytes_and_its_name() {
        assert_eq!((entry_bytes(1), entry_bytes(4), entry_bytes(20), entry_bytes(255)), (12, 12, 28, 264));
    }

    #[test]
    fn one_block_then_a_root_and_two_leaves() {
        let ext4 = Directories { block_bytes: 4096, checksums: true, inline: None };
        assert_eq!(ext4.blocks(0, 0), 1);
        assert_eq!(ext4.blocks(145, 145 * 28), 1);
        assert_eq!(ext4.blocks(146, 146 * 28), 3);
    }

    #[test]
    fn a_hash_tree_is_as_large_as_it_was_measured() {
        // Linux 6.18, names of 20 and 8 random characters, with checksums: block size, bytes of an entry, entries,
        // blocks, and the allowed error of a prediction in per cent.
        for (block_bytes, bytes, entries, measured, percent) in [
            (4096, 28, 745u64, 9u32, 8.0),
            (4096, 28, 2842, 32, 8.0),
            (4096, 28, 4440, 46, 8.0),
            (4096, 28, 10_842, 109, 8.0),
            (4096, 28, 26_469, 267, 3.0),
            (4096, 28, 100_000, 997, 1.5),
            (4096, 28, 200_000, 1997, 1.5),
            (4096, 16, 2273, 16, 8.0),
            (4096, 16, 10_842, 65, 8.0),
            (4096, 16, 16_940, 102, 8.0),
            (1024, 28, 30_000, 1226, 3.0),
            (1024, 28, 100_000, 4016, 1.5),
            (1024, 28, 200_000, 8022, 1.5),
        ] {
            let ext4 = Directories { block_bytes, checksums: true, inline: None };
            let predicted = ext4.blocks(entries, entries * bytes) as f64;
            let off = 100.0 * (predicted / f64::from(measured) - 1.0);
            assert!(off.abs() < percent, "{entries} of {bytes}: {predicted}, measured {measured}");
        }
    }

    #[test]
    fn no_directory_is_too_strange() {
        for block_bytes in [1024, 65_536] {
            let directories = Directories { block_bytes, checksums: true, inline: Some(128) };
            for (entries, bytes) in [(1, u64::MAX), (u64::MAX, u64::MAX), (u64::MAX, 0), (3, 1 << 40), (1 << 40, 0)] {
                directories.blocks(entries, bytes);
            }
        }
    }

    #[test]
    fn a_small_directory_lies_in_the_inode() {
        // Measured: five entries with names of 12 characters in an inode of 256 bytes, and not six.
        let inline = Directories { block_bytes: 4096, checksums: true, inline: Some(128) };
        assert_eq!(inline.blocks(5, 100), 0);
        assert_eq!(inline.blocks(6, 120), 1);
    }
}
