//! Ceph: RADOS objects on BlueStore, in a replicated or an erasure-coded pool; small files in a replicated pool on fast
//! devices.
//!
//! A file is cut into RADOS objects of `object` bytes; the last one is partial. With `up(a, b)` for `a` rounded up to a
//! multiple of `b`, an object of `x` bytes needs
//!
//! - replicated: `copies * up(x, min_alloc)`;
//! - erasure-coded: every one of `k + m` shards has `up(x, k * stripe_unit) / k` bytes, and needs
//!   `up(shard, min_alloc)`;
//! - erasure-coded with `fast_ec`: a data shard has only its own bytes of the last stripe, in whole pages of 4 KiB; a
//!   parity shard is as long as the first data shard.
//!
//! Besides, each object has an onode in the RocksDB of every device with a shard: `onode` bytes, and one byte for each
//! 768 of data (four for the checksum of each 4 KiB, the rest for the extent map; measured).
//!
//! Invariants: there is no loop over objects, so no size is slow; allocated never falls as an object grows, so neither
//! does that of a file.
//!
//! Sources: Ceph, doc/rados/configuration/bluestore-config-ref.rst, "Minimum Allocation Size", for `min_alloc` and the
//! examples of the tests; doc/rados/operations/erasure-code.rst, "Erasure Coding Optimizations"; src/osd/ECUtil.h
//! (`object_size_to_shard_size`) and its test in src/test/osd/TestECUtil.cc for `fast_ec`; doc/cephfs/file-layouts.rst
//! and `rgw_obj_stripe_size` in src/common/options/rgw.yaml.in for 4 MiB objects. Measured on Ceph 16.2.15:
//! docs/MODELS.md.

use super::{Kind, Layout, Opt, Options, Placement, Range, Space, Wanted, WholeUnits, round_up_wide};
use crate::units::{KIB, MIB, format_size};

/// `ceph:pool=ec,k=4,m=2,…`.
pub(super) const CEPH: Kind = Kind {
    name: "ceph",
    summary: "Ceph (BlueStore): replicated and erasure-coded pools",
    options: &[
        Opt {
            name: "pool",
            default: "ec",
            range: Range::Choice(&["ec", "replicated"]),
            meaning: "kind of pool; with a cutoff, of the pool for large files",
        },
        Opt { name: "k", default: "4", range: Range::Count { least: 1, most: 32 }, meaning: "data shards (ec)" },
        Opt { name: "m", default: "2", range: Range::Count { least: 1, most: 32 }, meaning: "parity shards (ec)" },
        Opt {
            name: "copies",
            default: "3",
            range: Range::Count { least: 1, most: 10 },
            meaning: "copies (replicated)",
        },
        Opt {
            name: "stripe_unit",
            default: "4K",
            range: Range::Size { least: 512, most: 4 * MIB, power_of_two: true },
            meaning: "bytes of a stripe on one data shard (ec)",
        },
        Opt {
            name: "min_alloc",
            default: "4K",
            range: Range::Size { least: 512, most: 4 * MIB, power_of_two: true },
            meaning: "bluestore_min_alloc_size of the devices when they were created",
        },
        Opt {
            name: "fast_ec",
            default: "off",
            range: Range::Switch,
            meaning: "allow_ec_optimizations, since Tentacle: short shards are not padded (ec)",
        },
        Opt {
            name: "object",
            default: "4M",
            range: Range::Size { least: 0, most: 1 << 40, power_of_two: false },
            meaning: "size of the RADOS objects of a file; 0 for one object of any size",
        },
        Opt {
            name: "onode",
            default: "512",
            range: Range::Size { least: 0, most: MIB, power_of_two: false },
            meaning: "RocksDB bytes of one object on one device, without checksums",
        },
        Opt {
            name: "fast_copies",
            default: "3",
            range: Range::Count { least: 1, most: 10 },
            meaning: "copies in the fast pool of small files",
        },
        Opt {
            name: "fast_min_alloc",
            default: "4K",
            range: Range::Size { least: 512, most: 4 * MIB, power_of_two: true },
            meaning: "bluestore_min_alloc_size of the fast devices",
        },
        Opt {
            name: "db",
            default: "fast",
            range: Range::Choice(&["fast", "slow"]),
            meaning: "location of the RocksDB of slow devices: on a fast block.db, or with the data",
        },
    ],
    build,
};

/// Shards are whole pages with `fast_ec` (`EC_ALIGN_SIZE`).
const PAGE_BYTES: u64 = 4 * KIB;

/// Bytes of data for which an onode grows by one byte; measured on objects of 4 MiB.
const DATA_PER_ONODE_BYTE: u128 = 768;

/// Unit of `st_blocks`.
const SECTOR_BYTES: u64 = 512;

/// How a pool spreads an object over devices.
#[derive(Debug, Clone, Copy)]
enum Spread {
    Replicated { copies: u64 },
    Erasure { k: u64, m: u64, stripe_unit_bytes: u64, unpadded: bool },
}

/// A pool on devices of one kind.
#[derive(Debug, Clone, Copy)]
struct Pool {
    spread: Spread,
    min_alloc_bytes: u64,
    /// 0 for one object per file, however large.
    object_bytes: u64,
    onode_bytes: u64,
}

#[derive(Debug)]
struct Ceph {
    pool: Pool,
    fast: Pool,
    db_is_fast: bool,
}

fn build(options: &Options) -> Result<Box<dyn Layout>, String> {
    let stripe_unit_bytes = options.size("stripe_unit");
    let unpadded = options.switch("fast_ec");
    let spread = if options.choice("pool") == "ec" {
        if unpadded && !stripe_unit_bytes.is_multiple_of(PAGE_BYTES) {
            return Err(
                "fast_ec=on divides stripes into whole pages of 4 KiB: use a stripe_unit of at least 4K (Ceph \
                recommends 16K)"
                    .to_owned(),
            );
        }
        Spread::Erasure { k: options.count("k"), m: options.count("m"), stripe_unit_bytes, unpadded }
    } else {
        if unpadded {
            return Err("fast_ec=on applies only to erasure-coded pools: use pool=ec, or omit fast_ec".to_owned());
        }
        Spread::Replicated { copies: options.count("copies") }
    };
    let (object_bytes, onode_bytes) = (options.size("object"), options.size("onode"));
    let pool = Pool { spread, min_alloc_bytes: options.size("min_alloc"), object_bytes, onode_bytes };
    let fast = Pool {
        spread: Spread::Replicated { copies: options.count("fast_copies") },
        min_alloc_bytes: options.size("fast_min_alloc"),
        object_bytes,
        onode_bytes,
    };
    Ok(Box::new(Ceph { pool, fast, db_is_fast: options.choice("db") == "fast" }))
}

impl Spread {
    /// Number of devices with a part of each object, and how many of them have the bytes of one copy.
    fn shards(self) -> (u64, u64) {
        match self {
            Spread::Replicated { copies } => (copies, 1),
            Spread::Erasure { k, m, .. } => (k + m, k),
        }
    }
}

impl Pool {
    /// Bytes on all devices for one RADOS object.
    fn object(&self, size_bytes: u64) -> u128 {
        let size = u128::from(size_bytes);
        let shard = |bytes: u128| round_up_wide(bytes, self.min_alloc_bytes);
        match self.spread {
            Spread::Replicated { copies } => u128::from(copies) * shard(size),
            Spread::Erasure { k, m, stripe_unit_bytes, unpadded } => {
                let (k, m, unit) = (u128::from(k), u128::from(m), u128::from(stripe_unit_bytes));
                if !unpadded {
                    return (k + m) * shard(size.div_ceil(k * unit) * unit);
                }
                let (stripes, rest) = (size / (k * unit), size % (k * unit));
                let data = |in_last_stripe: u128| shard(round_up_wide(stripes * unit + in_last_stripe, PAGE_BYTES));
                // In the last stripe the first shards hold a whole unit, one holds the end, the others nothing.
                let (whole, end) = (rest / unit, rest % unit);
                let ends = u128::from(end > 0);
                let first = data(if whole > 0 { unit } else { end });
                whole * data(unit) + ends * data(end) + (k - whole - ends) * data(0) + m * first
            }
        }
    }

    /// Number of full objects of `object_bytes` in a file, and the rest for one more.
    fn objects(&self, size_bytes: u64) -> (u64, u64) {
        match self.object_bytes {
            0 => (0, size_bytes),
            object_bytes => (size_bytes / object_bytes, size_bytes % object_bytes),
        }
    }

    /// Space on all devices for a file.
    fn file(&self, size_bytes: u64) -> Space {
        let (full, rest) = self.objects(size_bytes);
        let allocated_bytes = u128::from(full) * self.object(self.object_bytes) + self.object(rest);
        // An empty file has an object too, for its attributes.
        let objects = u128::from(full) + u128::from(rest > 0 || full == 0);
        let onodes = objects * u128::from(self.spread.shards().0);
        let metadata_bytes = onodes * u128::from(self.onode_bytes) + allocated_bytes / DATA_PER_ONODE_BYTE;
        Space { allocated_bytes, metadata_bytes }
    }

    fn whole_units(&self) -> Option<WholeUnits> {
        let (unit_bytes, unit) = match self.spread {
            Spread::Replicated { .. } => (self.min_alloc_bytes, self.min_alloc_bytes),
            Spread::Erasure { unpadded: true, .. } => return None,
            Spread::Erasure { k, stripe_unit_bytes, .. } => {
                // Both are powers of two, so the larger is a multiple of the other.
                let unit = stripe_unit_bytes.max(self.min_alloc_bytes);
                (k * unit, unit)
            }
        };
        let bytes_per_unit = u128::from(self.spread.shards().0) * u128::from(unit);
        self.object_bytes.is_multiple_of(unit_bytes).then_some(WholeUnits { unit_bytes, bytes_per_unit })
    }
}

impl Layout for Ceph {
    fn file(&self, size_bytes: u64) -> Space {
        self.pool.file(size_bytes)
    }

    fn redundancy(&self) -> Option<(u64, u64)> {
        Some(self.pool.spread.shards())
    }

    fn whole_units(&self) -> Option<WholeUnits> {
        self.pool.whole_units()
    }

    /// CephFS: `st_blocks` of a file is its size in sectors of 512 bytes, whatever the pool allocates.
    fn reported(&self, size_bytes: u64) -> Option<u128> {
        Some(round_up_wide(size_bytes.into(), SECTOR_BYTES))
    }

    /// A file up to the cutoff is in the fast pool with all its metadata. For a larger one only the onodes may be fast.
    fn alike_up_to(&self) -> u64 {
        u64::MAX
    }

    fn place(&self, size_bytes: u64, cutoff_bytes: u64) -> Option<Placement> {
        let slow = self.pool.file(size_bytes);
        let fast_db_bytes = if self.db_is_fast { slow.metadata_bytes } else { 0 };
        if size_bytes > cutoff_bytes {
            let slow_db_bytes = slow.metadata_bytes - fast_db_bytes;
            return Some(Placement::certain(fast_db_bytes, slow.allocated_bytes + slow_db_bytes));
        }
        let fast = self.fast.file(size_bytes);
        // The onodes of many shards can be larger than a small file: the fast size to buy must not fall as the cutoff
        // rises.
        Some(Placement::certain((fast.allocated_bytes + fast.metadata_bytes).max(fast_db_bytes), 0))
    }

    /// Ceph refuses writes when a device is fuller than `mon_osd_full_ratio`, 0.95; it warns from 0.85 on.
    fn fast_fill(&self) -> (u64, u64) {
        (19, 20)
    }

    /// The pools, and the one mechanism by which Ceph chooses a pool by size: a script of the object gateway. In CephFS
    /// a directory's layout chooses the pool, before the size is known. A pool belongs to one of the two: `ceph fs`
    /// refuses one of RGW.
    fn settings(&self, wanted: &Wanted) -> Vec<String> {
        let &Wanted { cutoff_bytes, fast_bytes, metadata_bytes, fill_fraction, .. } = wanted;
        let Spread::Replicated { copies } = self.fast.spread else { return Vec::new() };
        let mut lines = vec!["# Before creating the OSDs: allocation units, and the location of RocksDB.".to_owned()];
        for (class, min_alloc_bytes) in [("ssd", self.fast.min_alloc_bytes), ("hdd", self.pool.min_alloc_bytes)] {
            lines.push(format!("ceph config set osd bluestore_min_alloc_size_{class} {min_alloc_bytes}"));
        }
        if self.db_is_fast {
            lines.extend([
                format!(
                    "# Of the {} of fast devices, at least {} are for block.db (DBSSD...), and the rest is for data \
                        (SSD...).",
                    format_size(fast_bytes),
                    format_size(metadata_bytes)
                ),
                "# Divide devices for both uses first: batch gives block.db all the space that it finds.".to_owned(),
                "ceph-volume lvm batch --no-auto HDD... --db-devices DBSSD...".to_owned(),
            ]);
        } else {
            lines.push("ceph-volume lvm batch --no-auto HDD...".to_owned());
        }
        lines.push("ceph-volume lvm batch --no-auto SSD...".to_owned());
        lines.extend([
            "# Pools: small on fast devices, large on slow ones.".to_owned(),
            "ceph osd crush rule create-replicated small default host ssd".to_owned(),
            "ceph osd pool create small replicated small".to_owned(),
            format!("ceph osd pool set small size {copies}"),
        ]);
        // The quota counts bytes before they are copied; a quota of 0 would mean none.
        let data_bytes = ((fast_bytes as f64 * fill_fraction) as u128).saturating_sub(metadata_bytes);
        match data_bytes / u128::from(copies) {
            0 => lines.push(format!(
                "# No space is left for data: metadata needs {} of {}. Keep the pool small empty.",
                format_size(metadata_bytes),
                format_size(fast_bytes)
            )),
            quota_bytes => lines.push(format!("ceph osd pool set-quota small max_bytes {quota_bytes}")),
        }
        match self.pool.spread {
            Spread::Replicated { copies } => lines.extend([
                "ceph osd crush rule create-replicated large default host hdd".to_owned(),
                "ceph osd pool create large replicated large".to_owned(),
                format!("ceph osd pool set large size {copies}"),
            ]),
            Spread::Erasure { k, m, stripe_unit_bytes, unpadded } => {
                lines.push(format!(
                    "ceph osd erasure-code-profile set large k={k} m={m} stripe_unit={stripe_unit_bytes} \
                     crush-device-class=hdd crush-failure-domain=host"
                ));
                lines.push("ceph osd pool create large erasure large".to_owned());
                if unpadded {
                    lines.push("ceph osd pool set large allow_ec_optimizations true".to_owned());
                }
            }
        }
        let script = format!(
            "if Request.RGWOp == \"put_obj\" and (Request.HTTP.StorageClass or \"\") == \"\" and \
             Request.ContentLength > {cutoff_bytes} then Request.HTTP.StorageClass = \"LARGE\" end"
        );
        lines.extend([
            "# Either the object gateway, before the first object: the storage class LARGE for objects above the \
                cutoff; multipart uploads must name it themselves."
                .to_owned(),
            "ceph osd pool application enable small rgw".to_owned(),
            "ceph osd pool application enable large rgw".to_owned(),
            "radosgw-admin zonegroup placement add --rgw-zonegroup default --placement-id default-placement \
             --storage-class LARGE"
                .to_owned(),
            "radosgw-admin zone placement add --rgw-zone default --placement-id default-placement \
             --storage-class LARGE --data-pool large"
                .to_owned(),
            "radosgw-admin zone placement modify --rgw-zone default --placement-id default-placement \
             --storage-class STANDARD --data-pool small"
                .to_owned(),
            "# In a realm, commit the change: radosgw-admin period update --commit".to_owned(),
            "# Then restart the gateways: systemctl restart ceph-radosgw.target, or ceph orch restart rgw.NAME"
                .to_owned(),
            format!("echo '{script}' > by-size.lua"),
            "radosgw-admin script put --infile=by-size.lua --context=preRequest".to_owned(),
            "# Or CephFS, with pools other than the gateway's: the pool for new files of a directory, of any size; \
                small can be the first data pool of FS."
                .to_owned(),
        ]);
        if let Spread::Erasure { .. } = self.pool.spread {
            lines.push("ceph osd pool set large allow_ec_overwrites true".to_owned());
        }
        lines.extend([
            "ceph fs add_data_pool FS large".to_owned(),
            "setfattr -n ceph.dir.layout.pool -v large DIR".to_owned(),
        ]);
        lines
    }
}

/// Models for the laws of `tests`, besides the defaults.
#[cfg(test)]
pub(super) const TESTED: &[&str] = &[
    "ceph:pool=replicated",
    "ceph:pool=replicated,copies=2,min_alloc=64K",
    "ceph:pool=replicated,copies=1,min_alloc=512,object=1000000",
    "ceph:pool=replicated,object=0,onode=0",
    "ceph:fast_ec=on",
    "ceph:fast_ec=on,stripe_unit=16K,db=slow",
    "ceph:fast_ec=on,k=3,m=1,stripe_unit=64K,min_alloc=64K",
    "ceph:fast_ec=on,k=5,m=3,min_alloc=16K,object=5000001",
    "ceph:fast_ec=on,k=7,min_alloc=512,object=0",
    "ceph:k=2,m=1,min_alloc=64K",
    "ceph:k=3,m=2,min_alloc=16K",
    "ceph:k=8,m=3,stripe_unit=1M,object=0",
    "ceph:k=20,m=4,onode=4K,fast_copies=1,fast_min_alloc=512,min_alloc=512",
    "ceph:k=6,m=3,object=1",
    "ceph:db=slow,fast_copies=2,min_alloc=64K,fast_min_alloc=16K",
];

#[cfg(test)]
mod tests {
    use super::super::Model;
    use super::super::tests::{allocated, layout};
    use super::*;

    #[test]
    fn one_kib_takes_what_the_manual_says() {
        // bluestore-config-ref: three copies of 1 KB strand about 9 KB; on 4+2 it needs 6 * 4 KB = 24 KB.
        assert_eq!(allocated("ceph:pool=replicated", 1024) - 3 * 1024, 9 * 1024);
        assert_eq!(allocated("ceph:k=4,m=2", 1024), 24 * 1024);
    }

    #[test]
    fn a_cluster_of_16_2_15_allocates_the_same() {
        // Sum of bluestore_allocated over all OSDs, for one object: docs/MODELS.md.
        for (size, replicated, erasure) in [
            (0, 0, 0),
            (1, 12_288, 24_576),
            (4_096, 12_288, 24_576),
            (4_097, 24_576, 24_576),
            (16_384, 49_152, 24_576),
            (16_385, 61_440, 49_152),
            (65_537, 208_896, 122_880),
            (100_000, 307_200, 172_032),
            (1_000_000, 3_010_560, 1_523_712),
            (4_194_303, 12_582_912, 6_291_456),
            (4_194_304, 12_582_912, 6_291_456),
        ] {
            assert_eq!(allocated("ceph:pool=replicated", size), replicated, "{size}");
            assert_eq!(allocated("ceph:k=4,m=2", size), erasure, "{size}");
        }
    }

    #[test]
    fn unpadded_shards_are_as_long_as_in_the_test_of_ceph() {
        // TestECUtil.cc: k=4, m=2, chunks of 4 KiB. 0x4D000, 0x4CCFF and 0x4C001 bytes: the first data shard and both
        // parity shards have 0x14000 bytes, the other data shards 0x13000.
        for size in [0x4D000, 0x4CCFF, 0x4C001] {
            assert_eq!(allocated("ceph:fast_ec=on", size), 3 * 0x14000 + 3 * 0x13000);
        }
        assert_eq!(allocated("ceph:fast_ec=on", 0x4C000), 6 * 0x13000);
        assert_eq!(allocated("ceph:fast_ec=on", 0x4D001), 4 * 0x14000 + 2 * 0x13000);
        // One small data shard and its two parities, instead of six.
        assert_eq!(allocated("ceph:fast_ec=on", 1024), 3 * 4096);
        assert_eq!(allocated("ceph:fast_ec=on,stripe_unit=16K", 20_000), 16_384 + 4_096 + 2 * 16_384);
    }

    #[test]
    fn unpadded_never_takes_more_than_padded() {
        for size in (0..200_000).step_by(511) {
            assert!(allocated("ceph:fast_ec=on,k=5", size) <= allocated("ceph:k=5", size), "{size}");
        }
    }

    #[test]
    fn large_files_are_cut_into_objects() {
        let whole = allocated("ceph:min_alloc=64K", 4 * MIB);
        assert_eq!(allocated("ceph:min_alloc=64K", 40 * MIB + 1), 10 * whole + 6 * 64 * 1024);
        // Onodes: 11 objects of 6 shards.
        let space = layout("ceph:onode=500").file(40 * MIB + 1);
        assert_eq!(space.metadata_bytes, 11 * 6 * 500 + space.allocated_bytes / 768);
        // An empty file has one object.
        assert_eq!(layout("ceph").file(0).metadata_bytes, 6 * 512);
    }

    #[test]
    fn onodes_are_as_large_as_measured() {
        // Keys and values of CephFS objects of 4 MiB on one device: 5,974 bytes replicated, 1,875 for each shard on
        // 4+2. Small ones had 433 to 600 bytes.
        let replicated = layout("ceph:pool=replicated,copies=1").file(4 * MIB).metadata_bytes;
        let shard = layout("ceph:k=4,m=2").file(4 * MIB).metadata_bytes / 6;
        assert!((5_964..=5_984).contains(&replicated), "{replicated}");
        assert!((1_865..=1_885).contains(&shard), "{shard}");
        assert!((433..=600).contains(&layout("ceph:pool=replicated,copies=1").file(1).metadata_bytes));
    }

    #[test]
    fn a_file_system_of_16_2_15_allocates_the_same() {
        // Files of CephFS in a pool with 4+2: docs/MODELS.md.
        for (size, measured) in
            [(4_194_305, 6_316_032), (10_000_000, 15_015_936), (12_652_912, 18_997_248), (100_000, 172_032)]
        {
            assert_eq!(allocated("ceph", size), measured, "{size}");
        }
        assert_eq!(layout("ceph").reported(100_000), Some(100_352));
    }

    #[test]
    fn devices_with_large_units_allocate_the_same() {
        // The same cluster with min_alloc of 16 KiB on the devices of the replicated pool, and 64 KiB on the others.
        for (size, replicated, erasure) in [
            (1, 49_152, 393_216),
            (16_385, 98_304, 393_216),
            (65_537, 245_760, 393_216),
            (262_144, 786_432, 393_216),
            (1_000_000, 3_047_424, 1_572_864),
            (4_194_304, 12_582_912, 6_291_456),
        ] {
            assert_eq!(allocated("ceph:pool=replicated,min_alloc=16K", size), replicated, "{size}");
            assert_eq!(allocated("ceph:min_alloc=64K", size), erasure, "{size}");
        }
    }

    #[test]
    fn small_files_lie_in_the_fast_pool() {
        let ceph = layout("ceph:db=slow");
        let small = ceph.place(1000, 65_536).unwrap();
        // Three blocks, three onodes, and the checksums of three blocks.
        assert_eq!((small.fast_bytes, small.slow_bytes), (3 * (4096 + 512) + 3 * 4096 / 768, 0));
        let large = ceph.place(65_537, 65_536).unwrap();
        assert_eq!(large.fast_bytes, 0);
        assert_eq!(large.slow_bytes, ceph.file(65_537).allocated_bytes + ceph.file(65_537).metadata_bytes);
        // With block.db on fast devices the onodes of large files are on them.
        assert_eq!(layout("ceph").place(65_537, 65_536).unwrap().fast_bytes, ceph.file(65_537).metadata_bytes);
    }

    #[test]
    fn settings_name_the_cutoff_and_the_pools() {
        let lines = layout("ceph:fast_ec=on,stripe_unit=16K").settings(&Wanted::of(65_536, 3_000_000)).join("\n");
        for part in [
            "k=4 m=2 stripe_unit=16384",
            "allow_ec_optimizations true",
            "max_bytes 1000000",
            "ContentLength > 65536",
            "pool set small size 3",
            "bluestore_min_alloc_size_hdd 4096",
            "--db-devices",
        ] {
            assert!(lines.contains(part), "{part}: {lines}");
        }
    }

    #[test]
    fn the_quota_is_what_metadata_and_fill_leave_to_one_copy() {
        let said = |model: &str, metadata_bytes: u128| {
            let wanted = Wanted { metadata_bytes, fill_fraction: 0.5, ..Wanted::of(4096, 6_000_000_000) };
            layout(model).settings(&wanted).join("\n")
        };
        assert!(said("ceph", 0).contains("max_bytes 1000000000\n"));
        assert!(said("ceph", 600_000_000).contains("max_bytes 800000000\n"));
        assert!(said("ceph:fast_copies=2", 600_000_000).contains("max_bytes 1200000000\n"));
        // A quota of 0 would mean none.
        for metadata_bytes in [2_999_999_998, 3_000_000_000, u128::MAX] {
            let said = said("ceph", metadata_bytes);
            assert!(!said.contains("max_bytes") && said.contains("# No space is left for data"), "{said}");
        }
        layout("ceph").settings(&Wanted::of(u64::MAX, u128::MAX));
    }

    #[test]
    fn settings_say_how_much_is_for_block_db() {
        let said = |model: &str| {
            layout(model).settings(&Wanted { metadata_bytes: 1 << 30, ..Wanted::of(4096, 10 << 30) }).join("\n")
        };
        let fast = said("ceph");
        assert!(fast.contains("Of the 10 GiB of fast devices, at least 1 GiB are for block.db (DBSSD...)"), "{fast}");
        assert!(fast.contains("HDD... --db-devices DBSSD...\nceph-volume lvm batch --no-auto SSD...\n"), "{fast}");
        let slow = said("ceph:db=slow");
        assert!(!slow.contains("block.db") && !slow.contains("DBSSD"), "{slow}");
        assert!(slow.contains("--no-auto HDD...\nceph-volume lvm batch --no-auto SSD...\n"), "{slow}");
    }

    #[test]
    fn pools_are_made_ready_for_the_gateway_or_for_a_file_system() {
        let lines = |model: &str| layout(model).settings(&Wanted::of(4096, 1 << 40));
        for model in ["ceph", "ceph:pool=replicated"] {
            let lines = lines(model);
            let at = |start: &str| {
                lines.iter().position(|line| line.starts_with(start)).unwrap_or_else(|| panic!("{start}: {lines:?}"))
            };
            assert!(at("ceph osd pool create large") < at("ceph osd pool application enable large rgw"));
            assert!(at("ceph osd pool application enable small rgw") < at("radosgw-admin zonegroup placement add"));
            assert!(
                at("radosgw-admin zone placement modify") < at("# In a realm, commit the change: radosgw-admin period")
            );
            assert!(at("# In a realm") < at("# Then restart the gateways"));
            assert!(at("ceph fs add_data_pool FS large") < at("setfattr"));
        }
        let overwrites = "ceph osd pool set large allow_ec_overwrites true";
        let erasure = lines("ceph");
        let at = erasure.iter().position(|line| line == overwrites).unwrap();
        assert_eq!(erasure[at + 1], "ceph fs add_data_pool FS large");
        assert!(!lines("ceph:pool=replicated").iter().any(|line| line == overwrites));
    }

    #[test]
    fn the_largest_size_is_one_like_any_other() {
        // 2^64 - 1 bytes, rounded up to 2^64.
        let largest = |name| allocated(name, u64::MAX);
        assert_eq!(largest("ceph:pool=replicated"), 3 << 64);
        assert_eq!(largest("ceph"), (6 << 64) / 4);
        assert_eq!(largest("ceph:object=0"), largest("ceph"));
        assert_eq!(largest("ceph:fast_ec=on,object=0"), largest("ceph"));
        let placed = layout("ceph").place(u64::MAX, u64::MAX).unwrap();
        assert!(placed.fast_bytes > 3 << 64 && placed.slow_bytes == 0);
    }

    #[test]
    fn options_that_make_no_sense_together_are_refused() {
        for (name, cause) in [
            ("ceph:fast_ec=on,stripe_unit=2K", "stripe_unit of at least 4K"),
            ("ceph:pool=replicated,fast_ec=on", "use pool=ec"),
        ] {
            assert!(Model::parse(name).unwrap_err().to_string().contains(cause), "{name}");
        }
    }
}
