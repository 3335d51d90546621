//! FAT and exFAT: whole clusters, and nothing else for a file.
//!
//! Formula: up(size, cluster); an empty file has no cluster. A file is described by its entry in the directory and its
//! clusters' entries in the file allocation table, which exist whether they are used or not: counted as metadata, in
//! proportion to its clusters.
//!
//! A directory needs whole clusters of 32-byte slots, at least one cluster, and does not shrink. FAT: each file has a
//! slot with its short name and, for its long name, one for every 13 UTF-16 units; a directory begins with `.` and
//! `..`. exFAT: a file slot, a stream slot and one for every 15 units of the name; no dots. Neither has symlinks.
//!
//! Source: Linux, `fs/fat/namei_vfat.c` (`vfat_build_slots`), `fs/fat/dir.c`, `fs/exfat/exfat_raw.h` and
//! `fs/exfat/dir.c`; the formats are Microsoft's "FAT: General Overview of On-Disk Format" and "exFAT file system
//! specification". Checked against fusefat and exfat-fuse.
//!
//! Assumed: every FAT name has long-name slots. fusefat writes them for all names; other systems omit them for names
//! like `README.TXT`, which cannot be told from the length of a name.
//!
//! Invariants: files of any size have an answer, although a FAT file ends below 4 GiB.

use super::{Kind, Layout, Opt, Range, Space, WholeUnits, round_up_wide};
use crate::units::{KIB, MIB};

/// A slot of a directory.
const SLOT_BYTES: u64 = 32;

/// `fat:cluster=4096,bits=32`.
pub(super) const FAT: Kind = Kind {
    name: "fat",
    summary: "FAT12, FAT16, FAT32: whole clusters",
    options: &[
        Opt {
            name: "cluster",
            default: "4096",
            range: Range::Size { least: 512, most: 256 * KIB, power_of_two: true },
            meaning: "cluster size (mkfs.fat -s, in sectors)",
        },
        Opt {
            name: "bits",
            default: "32",
            range: Range::Choice(&["12", "16", "32"]),
            meaning: "bits per table entry (mkfs.fat -F)",
        },
    ],
    build: |options| {
        let bits = options.choice("bits").parse().unwrap_or(32);
        Ok(Box::new(Fat {
            cluster_bytes: options.size("cluster"),
            // The table is kept twice.
            bits_per_cluster: 2 * bits,
            slots_of_file: 1,
            units_per_slot: 13,
            slots_of_dots: 2,
        }))
    },
};

/// `exfat:cluster=4096`.
pub(super) const EXFAT: Kind = Kind {
    name: "exfat",
    summary: "exFAT: whole clusters",
    options: &[Opt {
        name: "cluster",
        default: "4096",
        range: Range::Size { least: 512, most: 32 * MIB, power_of_two: true },
        meaning: "cluster size (mkfs.exfat -c)",
    }],
    build: |options| {
        Ok(Box::new(Fat {
            cluster_bytes: options.size("cluster"),
            // One table of 32-bit entries, and the allocation bitmap.
            bits_per_cluster: 32 + 1,
            slots_of_file: 2,
            units_per_slot: 15,
            slots_of_dots: 0,
        }))
    },
};

#[derive(Debug)]
struct Fat {
    cluster_bytes: u64,
    /// Bits of table and bitmap for each cluster.
    bits_per_cluster: u64,
    /// Slots of a file besides those of its long name.
    slots_of_file: u64,
    /// UTF-16 units of a name in each slot.
    units_per_slot: u64,
    /// Slots of `.` and `..`.
    slots_of_dots: u64,
}

impl Fat {
    fn space(&self, bytes: u128) -> Space {
        let allocated_bytes = round_up_wide(bytes, self.cluster_bytes);
        let bits = allocated_bytes / u128::from(self.cluster_bytes) * u128::from(self.bits_per_cluster);
        Space { allocated_bytes, metadata_bytes: bits.div_ceil(8) }
    }
}

impl Layout for Fat {
    fn file(&self, size_bytes: u64) -> Space {
        self.space(size_bytes.into())
    }

    fn whole_units(&self) -> Option<WholeUnits> {
        Some(WholeUnits { unit_bytes: self.cluster_bytes, bytes_per_unit: self.cluster_bytes.into() })
    }

    fn entry_bytes(&self, name_length: u64) -> u64 {
        let slots = self.slots_of_file + name_length.div_ceil(self.units_per_slot);
        slots.saturating_mul(SLOT_BYTES)
    }

    fn directory(&self, _entries: u64, entries_bytes: u64) -> Option<Space> {
        let bytes = u128::from(entries_bytes) + u128::from(self.slots_of_dots * SLOT_BYTES);
        Some(self.space(bytes.max(1)))
    }
}

/// Models for the laws of `tests`, besides the defaults.
#[cfg(test)]
pub(super) const TESTED: &[&str] = &[
    "fat:cluster=512,bits=12",
    "fat:cluster=32KiB,bits=16",
    "fat:cluster=256KiB",
    "exfat:cluster=512",
    "exfat:cluster=128KiB",
    "exfat:cluster=32MiB",
];

#[cfg(test)]
mod tests {
    use super::super::Model;

    #[test]
    fn a_file_takes_whole_clusters_and_their_table_entries() {
        let fat = Model::parse("fat:cluster=2048").unwrap().layout;
        let of = |size| (fat.file(size).allocated_bytes, fat.file(size).metadata_bytes);
        assert_eq!((of(0), of(1), of(2048), of(2049)), ((0, 0), (2048, 8), (2048, 8), (4096, 16)));
        let fat12 = Model::parse("fat:bits=12").unwrap().layout;
        assert_eq!(fat12.file(4096).metadata_bytes, 3);
    }

    #[test]
    fn directories_grow_at_the_entries_at_which_they_were_measured_to() {
        // fusefat, clusters of 2 KiB, names of 20 characters: the first entries that need the 2nd, 3rd, 4th and 15th
        // cluster.
        let fat = Model::parse("fat:cluster=2048").unwrap().layout;
        for (entries, clusters) in [(0, 1), (20, 1), (21, 2), (42, 2), (43, 3), (64, 4), (298, 14), (299, 15)] {
            let bytes = entries * fat.entry_bytes(20);
            assert_eq!(fat.directory(entries, bytes).unwrap().allocated_bytes, clusters * 2048, "{entries}");
        }
        // exfat-fuse, clusters of 8 KiB.
        let exfat = Model::parse("exfat:cluster=8192").unwrap().layout;
        for (entries, clusters) in [(0, 1), (64, 1), (65, 2), (129, 3), (257, 5)] {
            let bytes = entries * exfat.entry_bytes(20);
            assert_eq!(exfat.directory(entries, bytes).unwrap().allocated_bytes, clusters * 8192, "{entries}");
        }
        assert!(exfat.symlink(10).is_none());
    }
}
