//! MinIO: Reed-Solomon shards with checksums, and small objects inside their metadata file.
//!
//! An object of `S` bytes on an erasure set of `n` drives with `p` parities has `d = n - p` data shards. It is coded in
//! blocks of 1 MiB: a whole block has shards of `ceil(1 MiB / d)`, the last one of `ceil(rest / d)`, each after a
//! checksum of 32 bytes. On every drive the object is a directory with `xl.meta`, about 400 bytes, and
//!
//! - if the shard is at most 128 KiB (16 KiB in a versioned bucket), `xl.meta` holds it: one file;
//! - otherwise `part.1` in a directory of its own holds it: two files.
//!
//! Each file needs whole blocks of the drive's file system.
//!
//! Invariants: all drives need the same; `metadata_bytes` is part of what is allocated. The size of `xl.meta` is that
//! of an object without user metadata, of the type application/octet-stream, written in one part.
//!
//! Sources: minio/minio, internal/config/storageclass/storage-class.go (`ShouldInline`, `DefaultParityBlocks`,
//! `ValidateParity`), cmd/erasure-metadata.go (`ShardFileSize`), cmd/bitrot.go (`bitrotShardFileSize`),
//! cmd/object-api-common.go (`blockSizeV2`), cmd/endpoint-ellipses.go (`setSizes`). The size of `xl.meta` was measured
//! on servers of February 2026 with 1, 4, 5, 8 and 16 drives: docs/MODELS.md.

use super::{Kind, Layout, Opt, Options, Range, Space, round_up_wide};
use crate::units::{KIB, MIB};

/// `minio:drives=16,parity=4,…`.
pub(super) const MINIO: Kind = Kind {
    name: "minio",
    summary: "MinIO: erasure-coded objects, small ones inline",
    options: &[
        Opt {
            name: "drives",
            default: "16",
            range: Range::Count { least: 1, most: 16 },
            meaning: "drives of one erasure set",
        },
        Opt {
            name: "parity",
            default: "4",
            range: Range::Count { least: 0, most: 8 },
            meaning: "parity shards (EC:4), at most half of the drives; by default 0 to 4, depending on the number of \
                drives, as in MinIO",
        },
        Opt {
            name: "versioned",
            default: "off",
            range: Range::Switch,
            meaning: "the bucket is versioned: the largest inline shard is an eighth as large",
        },
        Opt {
            name: "inline",
            default: "128K",
            range: Range::Size { least: 0, most: MIB, power_of_two: true },
            meaning: "largest shard that is inline (MINIO_STORAGE_CLASS_INLINE_BLOCK)",
        },
        Opt {
            name: "block",
            default: "4K",
            range: Range::Size { least: 512, most: 64 * KIB, power_of_two: true },
            meaning: "block size of the drives' file systems",
        },
    ],
    build,
};

/// The unit of coding (`blockSizeV2`).
const CODED_BYTES: u64 = MIB;

/// Checksum before every shard of a coded block (HighwayHash256S).
const CHECKSUM_BYTES: u64 = 32;

#[derive(Debug)]
struct Minio {
    drives: u64,
    data: u64,
    inline_bytes: u64,
    /// The version then names inline shards: 33 bytes more than `null`.
    versioned: bool,
    block_bytes: u64,
}

/// The files of an object on one drive.
struct OnDrive {
    /// Length of `xl.meta` without the shard.
    meta_bytes: u64,
    /// The shard with its checksums: on one drive, longer than the object.
    shard_bytes: u128,
    /// Whether the shard is in `xl.meta`.
    inline: bool,
}

fn build(options: &Options) -> Result<Box<dyn Layout>, String> {
    let drives = options.count("drives");
    // The default of MinIO for this many drives.
    let usual = match drives {
        1 => 0,
        2 | 3 => 1,
        4 | 5 => 2,
        6 | 7 => 3,
        _ => 4,
    };
    let parity = if options.is_given("parity") { options.count("parity") } else { usual };
    if parity > drives / 2 {
        return Err(format!(
            "parity={parity} is more than half of {drives} drives: use at most {}; the default of MinIO is {usual}",
            drives / 2
        ));
    }
    let versioned = options.switch("versioned");
    let inline_bytes = options.size("inline") / if versioned { 8 } else { 1 };
    Ok(Box::new(Minio { drives, data: drives - parity, inline_bytes, versioned, block_bytes: options.size("block") }))
}

/// Length of a positive number in MessagePack as MinIO writes it: signed.
fn packed_integer(value: u64) -> u64 {
    match value {
        0..=0x7F => 1,
        0x80..=0x7FFF => 3,
        0x8000..=0x7FFF_FFFF => 5,
        _ => 9,
    }
}

/// Length of the prefix of `length` bytes in MessagePack, beyond the shortest form.
fn packed_length(length: u128) -> u64 {
    match length {
        0..=0xFF => 0,
        0x100..=0xFFFF => 1,
        _ => 3,
    }
}

impl Minio {
    /// Length of `xl.meta` without an inline shard, fitted to measured files: the order of the drives with a byte each,
    /// the size three times as an integer.
    fn meta_bytes(&self, size_bytes: u64, inline_shard_bytes: Option<u128>) -> u64 {
        let order = self.drives + if self.drives > 15 { 2 } else { 0 };
        let inline = inline_shard_bytes.map_or(0, |shard_bytes| {
            let name = if self.versioned { 33 } else { 0 };
            44 + name + packed_length(shard_bytes)
        });
        340 + order + 3 * packed_integer(size_bytes) + inline
    }

    fn on_drive(&self, size_bytes: u64) -> OnDrive {
        let (whole, rest) = (size_bytes / CODED_BYTES, size_bytes % CODED_BYTES);
        let plain_bytes = whole * CODED_BYTES.div_ceil(self.data) + rest.div_ceil(self.data);
        let shard_bytes = u128::from(plain_bytes) + u128::from((whole + u64::from(rest > 0)) * CHECKSUM_BYTES);
        let inline = plain_bytes <= self.inline_bytes;
        let meta_bytes = self.meta_bytes(size_bytes, inline.then_some(shard_bytes));
        OnDrive { meta_bytes, shard_bytes, inline }
    }

    fn in_blocks(&self, bytes: u128) -> u128 {
        round_up_wide(bytes, self.block_bytes)
    }
}

impl Layout for Minio {
    fn file(&self, size_bytes: u64) -> Space {
        let OnDrive { meta_bytes, shard_bytes, inline } = self.on_drive(size_bytes);
        let meta_bytes = u128::from(meta_bytes);
        let (allocated, metadata) = if inline {
            (self.in_blocks(meta_bytes + shard_bytes), meta_bytes)
        } else {
            (self.in_blocks(meta_bytes) + self.in_blocks(shard_bytes), self.in_blocks(meta_bytes))
        };
        let drives = u128::from(self.drives);
        Space { allocated_bytes: drives * allocated, metadata_bytes: drives * metadata }
    }

    fn metadata_is_within(&self) -> bool {
        true
    }

    fn redundancy(&self) -> Option<(u64, u64)> {
        Some((self.drives, self.data))
    }

    fn data_bytes(&self, size_bytes: u64) -> u128 {
        let OnDrive { shard_bytes, inline, .. } = self.on_drive(size_bytes);
        if inline { 0 } else { u128::from(self.drives) * self.in_blocks(shard_bytes) }
    }
}

/// Models for the laws of `tests`, besides the defaults.
#[cfg(test)]
pub(super) const TESTED: &[&str] = &[
    "minio:drives=1,parity=0",
    "minio:drives=1,parity=0,inline=1M,block=512",
    "minio:drives=2,parity=1",
    "minio:drives=4,parity=2,block=512",
    "minio:drives=5,parity=2,versioned=on",
    "minio:drives=12,parity=0,inline=1M,block=512",
    "minio:drives=16,parity=8,versioned=on,block=64K",
    "minio:drives=16,parity=0,inline=1M,block=512",
    "minio:inline=0",
    "minio:inline=512,block=1K",
];

#[cfg(test)]
mod tests {
    use super::super::Model;
    use super::*;

    /// Length of `xl.meta`, and of `part.1` (0 for none).
    fn files(minio: &Minio, size_bytes: u64) -> (u128, u128) {
        let OnDrive { meta_bytes, shard_bytes, inline } = minio.on_drive(size_bytes);
        let meta_bytes = u128::from(meta_bytes);
        if inline { (meta_bytes + shard_bytes, 0) } else { (meta_bytes, shard_bytes) }
    }

    fn minio(drives: u64, data: u64, versioned: bool) -> Minio {
        let inline_bytes = if versioned { 16 * KIB } else { 128 * KIB };
        Minio { drives, data, inline_bytes, versioned, block_bytes: 4096 }
    }

    #[test]
    fn files_are_as_long_as_those_of_a_server() {
        // On each drive: docs/MODELS.md.
        for (drives, data, size, meta, part) in [
            (1, 1, 0, 388, 0),
            (1, 1, 1000, 1427, 0),
            (1, 1, 131_072, 131_507, 0),
            (1, 1, 131_073, 356, 131_105),
            (1, 1, 2_000_000, 356, 2_000_064),
            (1, 1, 2_147_483_647, 356, 2_147_549_183),
            (1, 1, 2_147_483_648, 368, 2_147_549_184),
            (5, 3, 1000, 765, 0),
            (5, 3, 393_216, 131_511, 0),
            (5, 3, 393_217, 360, 131_105),
            (4, 2, 0, 391, 0),
            (4, 2, 1, 424, 0),
            (4, 2, 1000, 930, 0),
            (4, 2, 4096, 2478, 0),
            (4, 2, 100_000, 50_436, 0),
            (4, 2, 262_144, 131_510, 0),
            (4, 2, 262_145, 359, 131_105),
            (4, 2, 1_048_576, 359, 524_320),
            (4, 2, 4_194_304, 359, 2_097_280),
            (4, 2, 10_000_001, 359, 5_000_321),
            (8, 4, 0, 395, 0),
            (8, 4, 1000, 684, 0),
            (8, 4, 524_288, 131_514, 0),
            (8, 4, 524_289, 363, 131_105),
            (16, 12, 0, 405, 0),
            (16, 12, 2, 438, 0),
            (16, 12, 1000, 527, 0),
            (16, 12, 4096, 786, 0),
            (16, 12, 40_000, 3784, 0),
            (16, 12, 1_572_764, 131_549, 0),
            (16, 12, 1_572_852, 131_556, 0),
            (16, 12, 1_572_864, 373, 131_137),
            (16, 12, 4_194_304, 373, 349_656),
            (16, 12, 10_000_000, 373, 833_660),
        ] {
            assert_eq!(files(&minio(drives, data, false), size), (meta, part), "{drives} drives, {size} bytes");
        }
        for (drives, data, size, meta, part) in [
            (4, 2, 0, 424, 0),
            (4, 2, 1000, 963, 0),
            (4, 2, 32_768, 16_853, 0),
            (4, 2, 32_769, 359, 16_417),
            (4, 2, 100_000, 359, 50_032),
            (16, 12, 0, 438, 0),
            (16, 12, 1000, 560, 0),
            (16, 12, 196_608, 16_867, 0),
            (16, 12, 196_609, 373, 16_417),
        ] {
            assert_eq!(
                files(&minio(drives, data, true), size),
                (meta, part),
                "versioned, {drives} drives, {size} bytes"
            );
        }
    }

    #[test]
    fn small_objects_take_a_block_on_every_drive() {
        let layout = Model::parse("minio").unwrap().layout;
        assert_eq!(layout.file(0).allocated_bytes, 16 * 4096);
        assert_eq!(layout.file(40_000).allocated_bytes, 16 * 4096);
        assert_eq!(layout.data_bytes(40_000), 0);
        // Sums of all files' blocks on the 16 drives of a server.
        for (size, allocated) in [(1_572_852, 2_162_688), (1_572_864, 2_228_224), (4_194_304, 5_701_632)] {
            assert_eq!(layout.file(size).allocated_bytes, allocated);
        }
    }

    #[test]
    fn versioned_buckets_inline_an_eighth() {
        let layout = Model::parse("minio:versioned=on").unwrap().layout;
        // Shards of 16 KiB: the largest that were inline on a server. One byte more, and each is a file.
        assert_eq!(layout.data_bytes(196_608), 0);
        assert_eq!(layout.file(196_608).allocated_bytes, 16 * 5 * 4096);
        assert_eq!(layout.data_bytes(196_609), 16 * 5 * 4096);
        assert_eq!(layout.file(196_609).allocated_bytes, 393_216);
    }

    #[test]
    fn the_checksums_of_the_largest_size_are_counted() {
        let layout = Model::parse("minio:drives=1,parity=0").unwrap().layout;
        let shard = (1u128 << 64) - 1 + (1 << 44) * 32;
        assert_eq!(layout.data_bytes(u64::MAX), shard.next_multiple_of(4096));
    }

    #[test]
    fn more_parity_than_half_is_refused() {
        let usual = |drives: u64| Model::parse(&format!("minio:drives={drives}")).unwrap().layout.redundancy();
        assert_eq!((usual(4), usual(6), usual(12)), (Some((4, 2)), Some((6, 3)), Some((12, 8))));
        let said = Model::parse("minio:drives=4,parity=4").unwrap_err().to_string();
        assert!(
            said.contains("parity=4 is more than half of 4 drives: use at most 2; the default of MinIO is 2"),
            "{said}"
        );
    }
}
