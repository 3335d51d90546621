//! HDFS: replicated blocks that are not padded, and the NameNode's memory.
//!
//! A file of `S` bytes has `ceil(S / block)` blocks, of which the last is as long as the rest, and needs
//! `replication * S`. The NameNode keeps an object of about 150 bytes for the file and one for each block in its heap:
//! that is `metadata_bytes`.
//!
//! On a DataNode each block is a file, with a second file of checksums: 7 bytes, and 4 for each 512 of data. With
//! `local_block` these files are counted, each in whole blocks of the DataNode's file system; HDFS itself never reports
//! that.
//!
//! Invariants: only the last block is partial, so there is no loop over blocks; the heap grows with blocks, not with
//! bytes.
//!
//! Sources: Cloudera Runtime 7.2.18, "Disk space versus namespace" (not padded; 150 bytes an object; its examples are
//! tests); Hadoop, DFSConfigKeys.java (`dfs.bytes-per-checksum`) and BlockMetadataHeader.java (header of the
//! checksums).

use super::{Kind, Layout, Opt, Options, Range, Space, WholeUnits, round_up_wide};
use crate::units::{GIB, KIB, MIB};

/// `hdfs:replication=3,…`.
pub(super) const HDFS: Kind = Kind {
    name: "hdfs",
    summary: "HDFS, replicated, with the NameNode's memory",
    options: &[
        Opt {
            name: "replication",
            default: "3",
            range: Range::Count { least: 1, most: 512 },
            meaning: "copies of each block",
        },
        Opt {
            name: "block",
            default: "128M",
            range: Range::Size { least: 512, most: 64 * GIB, power_of_two: false },
            meaning: "block size, a multiple of 512",
        },
        Opt {
            name: "heap",
            default: "150",
            range: Range::Size { least: 0, most: MIB, power_of_two: false },
            meaning: "NameNode memory for a file, and for each of its blocks",
        },
        Opt {
            name: "local_block",
            default: "0",
            range: Range::Size { least: 0, most: 64 * KIB, power_of_two: true },
            meaning: "block size of the DataNodes' file systems, to count what they allocate; 0 to count as HDFS does",
        },
    ],
    build,
};

/// Data covered by one checksum (`dfs.bytes-per-checksum`).
const CHECKSUMMED_BYTES: u64 = 512;
/// A checksum (CRC32C).
const CHECKSUM_BYTES: u128 = 4;
/// Header before the checksums of a block: two bytes of version, five that describe the checksums.
const CHECKSUM_HEADER_BYTES: u128 = 7;

#[derive(Debug)]
struct Hdfs {
    replication: u64,
    block_bytes: u64,
    heap_bytes: u64,
    /// 0 if the DataNodes' file systems are not modelled.
    local_block_bytes: u64,
}

fn build(options: &Options) -> Result<Box<dyn Layout>, String> {
    let block_bytes = options.size("block");
    if !block_bytes.is_multiple_of(CHECKSUMMED_BYTES) {
        return Err(format!(
            "a block has whole checksums, so its size must be a multiple of 512: use block={} instead of \
                block={block_bytes}",
            block_bytes.next_multiple_of(CHECKSUMMED_BYTES)
        ));
    }
    Ok(Box::new(Hdfs {
        replication: options.count("replication"),
        block_bytes,
        heap_bytes: options.size("heap"),
        local_block_bytes: options.size("local_block"),
    }))
}

impl Hdfs {
    /// The two files of one block on a DataNode, in blocks of its file system.
    fn on_data_node(&self, block_bytes: u64) -> u128 {
        if block_bytes == 0 {
            return 0;
        }
        let checksums = u128::from(block_bytes.div_ceil(CHECKSUMMED_BYTES)) * CHECKSUM_BYTES;
        round_up_wide(block_bytes.into(), self.local_block_bytes)
            + round_up_wide(CHECKSUM_HEADER_BYTES + checksums, self.local_block_bytes)
    }
}

impl Layout for Hdfs {
    fn file(&self, size_bytes: u64) -> Space {
        let one_copy = match self.local_block_bytes {
            0 => size_bytes.into(),
            _ => {
                u128::from(size_bytes / self.block_bytes) * self.on_data_node(self.block_bytes)
                    + self.on_data_node(size_bytes % self.block_bytes)
            }
        };
        let objects = 1 + u128::from(size_bytes.div_ceil(self.block_bytes));
        Space {
            allocated_bytes: u128::from(self.replication) * one_copy,
            metadata_bytes: objects * u128::from(self.heap_bytes),
        }
    }

    fn metadata_is_memory(&self) -> bool {
        true
    }

    fn redundancy(&self) -> Option<(u64, u64)> {
        Some((self.replication, 1))
    }

    fn whole_units(&self) -> Option<WholeUnits> {
        let unpadded = WholeUnits { unit_bytes: 1, bytes_per_unit: self.replication.into() };
        (self.local_block_bytes == 0).then_some(unpadded)
    }

    /// What HDFS counts, also for space quotas: without checksums and without rounding by the DataNodes' file systems.
    fn reported(&self, size_bytes: u64) -> Option<u128> {
        (self.local_block_bytes > 0).then(|| u128::from(self.replication) * u128::from(size_bytes))
    }
}

/// Models for the laws of `tests`, besides the defaults.
#[cfg(test)]
pub(super) const TESTED: &[&str] = &[
    "hdfs:replication=1,block=512",
    "hdfs:replication=2,block=64M,heap=900",
    "hdfs:local_block=4K",
    "hdfs:replication=10,block=1536,local_block=1K",
    "hdfs:block=1M,local_block=64K,heap=0",
    "hdfs:local_block=1",
];

#[cfg(test)]
mod tests {
    use super::super::Model;
    use super::super::tests::layout;
    use super::*;

    #[test]
    fn the_examples_of_the_manual() {
        // 192 MB are two blocks: three objects, 450 bytes. 128 MB: 300 bytes. 128 files of 1 MB: 38,400 bytes.
        let hdfs = layout("hdfs");
        assert_eq!(hdfs.file(192 * MIB), Space { allocated_bytes: 3 * 192 * u128::from(MIB), metadata_bytes: 450 });
        assert_eq!(hdfs.file(128 * MIB).metadata_bytes, 300);
        assert_eq!(128 * hdfs.file(MIB).metadata_bytes, 38_400);
        // Ten million files of one block: 3 GB of heap.
        assert_eq!(10_000_000 * hdfs.file(1).metadata_bytes, 3_000_000_000);
        // An empty file has no block.
        assert_eq!(hdfs.file(0), Space { allocated_bytes: 0, metadata_bytes: 150 });
    }

    #[test]
    fn data_nodes_take_two_blocks_of_their_own_for_a_small_file() {
        let counted = layout("hdfs:local_block=4K");
        assert_eq!(counted.file(1000).allocated_bytes, 3 * (4096 + 4096));
        assert_eq!(counted.reported(1000), Some(3000));
        assert_eq!(counted.file(0).allocated_bytes, 0);
        // A whole block of 128 MiB has 1 MiB of checksums, and their header needs one more local block: 0.8 %.
        assert_eq!(counted.file(128 * MIB).allocated_bytes, 3 * u128::from(129 * MIB + 4096));
        // Two blocks and a byte, in local blocks of one byte.
        let exact = layout("hdfs:replication=1,block=1M,local_block=1");
        assert_eq!(exact.file(2 * MIB + 1).allocated_bytes, u128::from(2 * MIB + 1) + 3 * 7 + 4 * (2 * 2048 + 1));
    }

    #[test]
    fn a_block_of_half_a_checksum_is_refused() {
        let said = Model::parse("hdfs:block=1000").unwrap_err().to_string();
        assert!(said.contains("use block=1024 instead"), "{said}");
    }
}
