//! Ceph: RADOS objects on BlueStore, in a replicated or an erasure-coded pool; small files in a replicated pool on fast
//! devices. A file is an object, or part of a store in a bucket ([`packed`]).
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

mod packed;
mod settings;

use self::packed::Packed;
use super::{Kind, Layout, Opt, Options, Placement, Range, Space, Wanted, WholeUnits, round_up_wide};
use crate::units::{KIB, MIB};

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
        Opt {
            name: "as",
            default: "files",
            range: Range::Choice(&["files", "granulo"]),
            meaning: "an object for each file, or a store of granulo in a bucket",
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

/// A pool, and a fast one for small files; each file is stored by itself.
#[derive(Debug)]
struct Ceph {
    pool: Pool,
    fast: Pool,
    db_is_fast: bool,
}

fn build(options: &Options) -> Result<Box<dyn Layout>, String> {
    let stripe_unit_bytes = options.size("stripe_unit");
    let unpadded = options.switch("fast_ec");
    let is_erasure_coded = options.choice("pool") == "ec";
    let (other, idle): (&str, &[&str]) =
        if is_erasure_coded { ("replicated", &["copies"]) } else { ("ec", &["k", "m", "stripe_unit"]) };
    if let Some(name) = idle.iter().find(|name| options.is_given(name)) {
        return Err(format!("{name} applies only to pool={other}: use pool={other}, or omit {name}"));
    }
    let spread = if is_erasure_coded {
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
    let ceph = Ceph { pool, fast, db_is_fast: options.choice("db") == "fast" };
    match options.choice("as") {
        "granulo" if object_bytes == 0 => {
            Err("the gateway divides the objects of a store: use as=granulo with an object of at least 1 byte"
                .to_owned())
        }
        "granulo" => Ok(Box::new(Packed::new(ceph))),
        _ => Ok(Box::new(ceph)),
    }
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

    fn settings(&self, wanted: &Wanted) -> Vec<String> {
        self.settings_for_files(wanted)
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
    "ceph:as=granulo",
    "ceph:as=granulo,k=2,m=1,db=slow",
    "ceph:as=granulo,pool=replicated,copies=1,min_alloc=512,object=1000000",
    "ceph:as=granulo,k=32,m=32,onode=1M,fast_copies=1,fast_min_alloc=512,object=5000001",
];

#[cfg(test)]
mod tests;
