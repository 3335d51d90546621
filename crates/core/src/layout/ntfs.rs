//! NTFS: whole clusters, and small files inside their record of the master file table (MFT).
//!
//! Formula, with R the record (1,024 bytes, or a sector if that is larger) and L the length of the name in UTF-16
//! units: a file is resident, without a cluster, up to R − header − standard information − up(90 + 2L, 8) − 32 bytes.
//! header = up(48 + 2 (R/512 + 1), 8); standard information is 96 bytes if security descriptors are shared (NTFS 3, as
//! Windows writes them), and 72 + 104 if the record has a descriptor of its own (as ntfs-3g writes it unless mounted
//! with `permissions`); 90 + 2L is the file name attribute (24 + 66 and the name), 32 the header of the data attribute
//! (24) and the end mark (8). The structures are in `include/ntfs-3g/layout.h` of ntfs-3g; the limits were measured,
//! see docs/MODELS.md. Above it, a file needs up(size, cluster).
//!
//! `stat` by ntfs-3g shows a resident file in whole sectors of 512 bytes, though it has no cluster
//! (`libntfs-3g/inode.c` and `src/ntfs-3g.c`), and no blocks for a directory; the figure here for a directory is the
//! clusters of its index.
//!
//! A directory keeps entries of up(82 + 2L, 8) bytes (a header of 16 and the file name), sorted by name: in its record
//! while they fit, then in index blocks of 4,096 bytes (a cluster if that is larger) that split in halves; see
//! `halving`. The entry in the middle moves up: first into the record, and when that is full, into a parent block
//! (`libntfs-3g/index.c` of ntfs-3g, `ntfs_ib_split`, `ntfs_ir_reparent`).
//!
//! Invariants: a sector is never more than a cluster, so that a file does not shrink when it stops being resident; no
//! resident limit is above 4 KiB, so that files above 64 KiB are whole clusters.

use super::halving::leaves;
use super::{Kind, Layout, Opt, Range, Space, WholeUnits, round_up, round_up_wide};
use crate::units::{KIB, MIB};

/// The unit of `st_blocks`, and of the fixups that protect a record.
const SECTOR_BYTES: u64 = 512;
/// A file name attribute without its name: 24 of header and 66.
const FILE_NAME_BYTES: u64 = 90;
/// The header of a resident attribute, and the end mark of a record.
const ATTRIBUTE_BYTES: u64 = 24;
const END_BYTES: u64 = 8;
/// An index entry without its name, and the entry that ends an index block.
const ENTRY_BYTES: u64 = 16 + 66;
const LAST_ENTRY_BYTES: u64 = 16;
/// Headers of the index in a record, including its last entry.
const INDEX_ROOT_BYTES: u64 = 48;
/// What remains free in a record with an index, and the attributes of an index outside the record (its runs, its
/// bitmap) in there. The second follows from the format; the first was measured.
const INDEX_RESERVE_BYTES: u64 = 120;
const INDEX_ATTRIBUTES_BYTES: u64 = 80 + 40;
/// The number of an index block's child, in entries that have one.
const CHILD_BYTES: u64 = 8;
/// Least number of entries of an index block with children: the longest names have 255 units.
const LEAST_NODE_ENTRIES: u64 = 6;
/// Least size of an index block.
const INDEX_BLOCK_BYTES: u64 = 4 * KIB;
/// The prefix of a symlink's target in ntfs-3g, which writes it as a file in UTF-16.
const SYMLINK_BYTES: u64 = 8;

/// `ntfs:cluster=4096,record=1024,name=12,descriptor=own`.
pub(super) const NTFS: Kind = Kind {
    name: "ntfs",
    summary: "NTFS: whole clusters, small files in their MFT record",
    options: &[
        Opt {
            name: "cluster",
            default: "4096",
            range: Range::Size { least: 512, most: 2 * MIB, power_of_two: true },
            meaning: "cluster size (mkntfs -c)",
        },
        Opt {
            name: "record",
            default: "1024",
            range: Range::Size { least: KIB, most: 4 * KIB, power_of_two: true },
            meaning: "size of an MFT record: 1024, or the sector size where that is larger",
        },
        Opt {
            name: "name",
            default: "12",
            range: Range::Count { least: 1, most: 255 },
            meaning: "length of a typical name, which reduces the space for a resident file",
        },
        Opt {
            name: "descriptor",
            default: "own",
            range: Range::Choice(&["own", "shared"]),
            meaning: "security descriptors: in each record (ntfs-3g), or shared (Windows, ntfs-3g -o permissions)",
        },
    ],
    build: |options| {
        let (record_bytes, name) = (options.size("record"), options.count("name"));
        let fixed = match options.choice("descriptor") {
            "own" => 72 + 104,
            _ => 96,
        };
        let name_bytes = round_up(FILE_NAME_BYTES + 2 * name, 8);
        let taken = header_bytes(48, record_bytes) + fixed + name_bytes + ATTRIBUTE_BYTES + END_BYTES;
        Ok(Box::new(Ntfs {
            cluster_bytes: options.size("cluster"),
            record_bytes,
            resident_bytes: record_bytes.saturating_sub(taken),
        }))
    },
};

/// The header of a record or index block of `bytes`, with a fixup of two bytes for each sector and one more.
fn header_bytes(fields: u64, bytes: u64) -> u64 {
    round_up(fields + 2 * (bytes / SECTOR_BYTES + 1), 8)
}

#[derive(Debug)]
struct Ntfs {
    cluster_bytes: u64,
    record_bytes: u64,
    /// The largest file that needs no cluster.
    resident_bytes: u64,
}

/// Bytes of the file that is a symlink.
fn symlink_bytes(target_length: u64) -> u64 {
    target_length.saturating_mul(2).saturating_add(SYMLINK_BYTES)
}

impl Ntfs {
    fn space(&self, allocated_bytes: u128) -> Space {
        Space { allocated_bytes, metadata_bytes: self.record_bytes.into() }
    }

    fn is_resident(&self, size_bytes: u64) -> bool {
        size_bytes <= self.resident_bytes
    }

    /// Blocks of the index of a directory; none while it fits its record.
    fn index_blocks(&self, entries: u64, entries_bytes: u64, block_bytes: u64) -> u128 {
        let root_room = self.resident_bytes.saturating_sub(INDEX_RESERVE_BYTES);
        if entries == 0 || entries_bytes.saturating_add(INDEX_ROOT_BYTES) < root_room {
            return 0;
        }
        let mean = (entries_bytes / entries).max(1);
        let node_mean = mean.saturating_add(CHILD_BYTES);
        let room = block_bytes - header_bytes(40, block_bytes) - LAST_ENTRY_BYTES;
        // The entry at which a block splits moves up, so blocks share the gaps between entries: one more than entries.
        let mut level = leaves(entries.saturating_add(1), room / mean + 1);
        let mut blocks = u128::from(level);
        let root_room = root_room.saturating_sub(INDEX_ATTRIBUTES_BYTES + INDEX_ROOT_BYTES + CHILD_BYTES + 1);
        while level > root_room / node_mean + 1 {
            level = leaves(level, (room / node_mean).max(LEAST_NODE_ENTRIES) + 1);
            blocks += u128::from(level);
        }
        blocks
    }
}

impl Layout for Ntfs {
    fn file(&self, size_bytes: u64) -> Space {
        let unit = if self.is_resident(size_bytes) { SECTOR_BYTES } else { self.cluster_bytes };
        self.space(round_up_wide(size_bytes.into(), unit))
    }

    fn data_bytes(&self, size_bytes: u64) -> u128 {
        if self.is_resident(size_bytes) { 0 } else { self.file(size_bytes).allocated_bytes }
    }

    fn whole_units(&self) -> Option<WholeUnits> {
        Some(WholeUnits { unit_bytes: self.cluster_bytes, bytes_per_unit: self.cluster_bytes.into() })
    }

    fn entry_bytes(&self, name_length: u64) -> u64 {
        round_up(name_length.saturating_mul(2).saturating_add(ENTRY_BYTES), 8)
    }

    fn directory(&self, entries: u64, entries_bytes: u64) -> Option<Space> {
        let block_bytes = INDEX_BLOCK_BYTES.max(self.cluster_bytes);
        Some(self.space(self.index_blocks(entries, entries_bytes, block_bytes) * u128::from(block_bytes)))
    }

    fn symlink(&self, target_length: u64) -> Option<Space> {
        Some(self.file(symlink_bytes(target_length)))
    }

    fn symlink_data_bytes(&self, target_length: u64) -> u128 {
        self.data_bytes(symlink_bytes(target_length))
    }
}

/// Models for the laws of `tests`, besides the defaults.
#[cfg(test)]
pub(super) const TESTED: &[&str] = &[
    "ntfs:cluster=512",
    "ntfs:cluster=64KiB",
    "ntfs:cluster=2MiB",
    "ntfs:record=4096",
    "ntfs:record=2048,cluster=512,name=255",
    "ntfs:name=1",
    "ntfs:name=255,descriptor=shared",
    "ntfs:record=4096,descriptor=shared,cluster=1024",
];

#[cfg(test)]
mod tests {
    use super::super::Model;

    #[test]
    fn the_resident_limit_is_as_it_was_measured() {
        // ntfs-3g 2022.10.3: the largest size without a cluster, for each length of name.
        for (options, most) in [
            ("name=1", 664),
            ("name=2", 664),
            ("name=8", 648),
            ("name=12", 640),
            ("name=16", 632),
            ("name=20", 624),
            ("name=40", 584),
            ("name=80", 504),
            ("name=160", 344),
            ("name=250", 168),
            ("name=8,descriptor=shared", 728),
            ("name=12,descriptor=shared", 720),
            ("name=20,descriptor=shared", 704),
            ("name=12,record=2048", 1656),
            ("name=12,record=4096", 3696),
            ("name=255,record=4096", 3216),
            ("name=12,record=4096,descriptor=shared", 3776),
        ] {
            let model = Model::parse(&format!("ntfs:cluster=64KiB,{options}")).unwrap();
            assert_eq!(model.layout.file(most).allocated_bytes, u128::from(most).next_multiple_of(512), "{options}");
            assert_eq!(model.layout.file(most + 1).allocated_bytes, 65_536, "{options}");
            assert_eq!((model.layout.data_bytes(most), model.layout.data_bytes(most + 1)), (0, 65_536), "{options}");
        }
    }

    #[test]
    fn an_index_is_as_large_as_it_was_measured() {
        // ntfs-3g 2022.10.3: length of the names, entries, bytes of the index.
        let model = Model::parse("ntfs:name=5").unwrap();
        for (name, entries, measured) in [
            (20, 3, 0u32),
            (8, 4, 0),
            (20, 30, 4096),
            (20, 60, 12_288),
            (20, 80, 20_480),
            (20, 300, 61_440),
            (20, 500, 94_208),
            (20, 1000, 180_224),
            (20, 4000, 753_664),
            (8, 100, 16_384),
            (8, 160, 28_672),
            (8, 1000, 163_840),
            (8, 4000, 634_880),
        ] {
            let bytes = entries * model.layout.entry_bytes(name);
            let predicted = model.layout.directory(entries, bytes).unwrap().allocated_bytes as f64;
            let off = (predicted - f64::from(measured)).abs();
            assert!(
                off <= (0.08 * f64::from(measured)).max(4096.0),
                "{entries} of {name}: {predicted}, measured {measured}"
            );
        }
    }

    #[test]
    fn a_directory_leaves_its_record_where_it_was_measured_to() {
        let model = Model::parse("ntfs:name=5").unwrap();
        for (name, most) in [(1, 5), (4, 5), (8, 4), (12, 4), (16, 4), (20, 3), (28, 3), (40, 2), (60, 2), (80, 1)] {
            let of = |entries| model.layout.directory(entries, entries * model.layout.entry_bytes(name)).unwrap();
            assert_eq!((of(most).allocated_bytes, of(most + 1).allocated_bytes), (0, 4096), "{name}");
        }
    }

    #[test]
    fn no_index_is_too_strange() {
        let model = Model::parse("ntfs:name=255").unwrap();
        for (entries, bytes) in [(1, u64::MAX), (u64::MAX, u64::MAX), (u64::MAX, 0), (3, 1 << 40), (1 << 40, 0)] {
            assert!(model.layout.directory(entries, bytes).is_some());
        }
    }

    #[test]
    fn a_symlink_is_a_small_file_in_utf_16() {
        let model = Model::parse("ntfs").unwrap();
        let of = |length| model.layout.symlink(length).unwrap().allocated_bytes;
        assert_eq!((of(1), of(100), of(300), of(800), of(3000)), (512, 512, 1024, 4096, 8192));
        assert_eq!([300, 800, 3000].map(|length| model.layout.symlink_data_bytes(length)), [0, 4096, 8192]);
    }
}
