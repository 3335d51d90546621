//! Layouts: the space of one file in a storage system. Pure arithmetic: no clock, no disk, no randomness.
//!
//! A [`Layout`] answers for one size at a time: what is allocated for a file, for a symlink, for a directory, and how
//! much of it a fast tier would hold. Populations are the subject of `plan`, which sums these answers; granulo's own
//! store allocates with the same functions. Layouts are named on the command line as `NAME:option=value,…`; [`Model`]
//! parses that, and each layout's file ends with its [`Kind`]: name, options, how it is built. Formula, source and
//! checks of each are in docs/MODELS.md.
//!
//! Invariants, property-tested for every layout in `tests`: allocated never falls as the size rises (except at a cutoff
//! where small files have more redundancy than large ones); it is at least the size times the layout's redundancy if
//! nothing is compressed, packed or inlined; no size overflows. Sizes are bytes in a `u64`, results bytes in a `u128`.

pub mod billing;
mod block;
mod btrfs;
mod ceph;
mod ext;
mod fat;
pub mod granulo;
mod halving;
mod hdfs;
mod kind;
mod lustre;
mod minio;
mod model;
mod ntfs;
mod panfs;
mod raidz;
mod rounding;
mod s3;
#[cfg(test)]
mod tests;
mod xfs;
mod zap;
mod zfs;
mod zpool;

pub use kind::{Kind, Opt, Options, Range};
pub use model::{Model, kinds};
pub use rounding::{round_up, round_up_spread, round_up_wide};

/// The space of one file (symlink, directory).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Space {
    /// What `stat` reports as `st_blocks * 512`, for file systems that have it; otherwise the raw bytes on all devices,
    /// including copies and parity; for object stores that bill, the billed bytes.
    pub allocated_bytes: u128,
    /// Its metadata: inode, descriptors, maps, its share of a name server's memory; without its entry in a directory.
    /// In addition to `allocated_bytes`, or a part of it: see [`Layout::metadata_is_within`].
    pub metadata_bytes: u128,
}

/// Where the bytes of one file are in a layout with a fast tier, including redundancy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Placement {
    /// At least this many on the fast tier. Below `fast_bytes` only if records or compression leave it open.
    pub fast_least_bytes: u128,
    /// On the fast tier: the figure to buy for.
    pub fast_bytes: u128,
    /// On the slow tier.
    pub slow_bytes: u128,
}

impl Placement {
    /// A placement without uncertainty.
    pub fn certain(fast_bytes: u128, slow_bytes: u128) -> Placement {
        Placement { fast_least_bytes: fast_bytes, fast_bytes, slow_bytes }
    }
}

/// A fast tier to be set up.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Wanted {
    /// Files (blocks, first bytes) up to this size are to be fast.
    pub cutoff_bytes: u64,
    /// Raw capacity of the fast tier, all copies together.
    pub fast_bytes: u128,
    /// Raw bytes of it for metadata, once the population has grown.
    pub metadata_bytes: u128,
    /// Expected files, including growth.
    pub files: u128,
    /// How full it may become.
    pub fill_fraction: f64,
}

#[cfg(test)]
impl Wanted {
    /// A tier of which only cutoff and capacity matter.
    fn of(cutoff_bytes: u64, fast_bytes: u128) -> Wanted {
        Wanted { cutoff_bytes, fast_bytes, metadata_bytes: 0, files: 1_000_000, fill_fraction: 1.0 }
    }
}

/// For files above [`crate::distribution::EXACT_LIMIT`]: allocated is exactly `up(size, unit) / unit * bytes_per_unit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WholeUnits {
    /// The unit to which sizes are rounded up.
    pub unit_bytes: u64,
    /// Allocated bytes per unit.
    pub bytes_per_unit: u128,
}

/// The arithmetic of one layout.
pub trait Layout: Send + Sync + std::fmt::Debug {
    /// The space of a regular file of `size_bytes`, written in one go, without holes. Never falls as the size rises,
    /// except where small and large files have different redundancy (`zfs` with a special vdev, `granulo`).
    fn file(&self, size_bytes: u64) -> Space;

    /// Whether [`Space::metadata_bytes`] is a part of `allocated_bytes`; otherwise it is added.
    fn metadata_is_within(&self) -> bool {
        false
    }

    /// Whether [`Space::metadata_bytes`] is memory of a server, not space on a device.
    fn metadata_is_memory(&self) -> bool {
        false
    }

    /// Least number of bytes stored per byte of a large file, as `(numerator, denominator)`: `(2, 1)` for two copies,
    /// `(10, 8)` for 8+2. `None` if less than the size may be stored (compression, billing).
    fn redundancy(&self) -> Option<(u64, u64)> {
        Some((1, 1))
    }

    /// The part of `allocated_bytes` in data blocks; the rest is data in the metadata (inline files).
    fn data_bytes(&self, size_bytes: u64) -> u128 {
        self.file(size_bytes).allocated_bytes
    }

    /// How files above 64 KiB are allocated, if that is rounding up to whole units and nothing else.
    fn whole_units(&self) -> Option<WholeUnits> {
        None
    }

    /// Bytes of an entry with a name of `name_length` bytes in its directory.
    fn entry_bytes(&self, _name_length: u64) -> u64 {
        0
    }

    /// The space of a directory with `entries` entries of `entries_bytes` in total ([`Layout::entry_bytes`]). `None` if
    /// directories are not modelled.
    fn directory(&self, _entries: u64, _entries_bytes: u64) -> Option<Space> {
        None
    }

    /// The space of a symlink to a target of `target_length` bytes. `None` if symlinks are not modelled.
    fn symlink(&self, _target_length: u64) -> Option<Space> {
        None
    }

    /// The part of the bytes allocated to a symlink that lies in data blocks; see [`Layout::data_bytes`].
    fn symlink_data_bytes(&self, target_length: u64) -> u128 {
        self.symlink(target_length).map_or(0, |space| space.allocated_bytes)
    }

    /// [`Layout::directory`] with metadata on the fast tier of [`Layout::place`].
    fn fast_directory(&self, entries: u64, entries_bytes: u64) -> Option<Space> {
        self.directory(entries, entries_bytes)
    }

    /// [`Layout::symlink`] with metadata on the fast tier of [`Layout::place`].
    fn fast_symlink(&self, target_length: u64) -> Option<Space> {
        self.symlink(target_length)
    }

    /// Where a file is when files (or blocks, or first bytes) up to `cutoff_bytes` and all metadata go to a fast tier.
    /// `None` for layouts without tiers. The bytes on the fast tier never fall as the cutoff rises, and are the same
    /// for every cutoff from the file's size on.
    fn place(&self, _size_bytes: u64, _cutoff_bytes: u64) -> Option<Placement> {
        None
    }

    /// Unit of the cutoffs that [`Layout::place`] distinguishes.
    fn cutoff_unit_bytes(&self) -> u64 {
        1
    }

    /// The largest cutoff that can be set; [`Layout::place`] takes a larger one for this.
    fn cutoff_most_bytes(&self) -> u64 {
        u64::MAX
    }

    /// Largest size for which [`Layout::place`] is the same for every cutoff below the size, both in whole units of
    /// [`Layout::cutoff_unit_bytes`]: such sizes need not be evaluated for every cutoff.
    fn alike_up_to(&self) -> u64 {
        0
    }

    /// How full the fast tier may become before it rejects small files: `(3, 4)` for 75 %.
    fn fast_fill(&self) -> (u64, u64) {
        (1, 1)
    }

    /// Commands that place files (blocks) up to a cutoff on a fast tier, before the system exists; empty if there are
    /// none. Comments begin with `#`.
    fn settings(&self, _wanted: &Wanted) -> Vec<String> {
        Vec::new()
    }

    /// Whether small files go to the slow tier when the fast one is full; otherwise writing them fails.
    fn overflows(&self) -> bool {
        false
    }

    /// How it is billed; `None` where nobody bills for requests.
    fn billing(&self) -> Option<&dyn billing::Billing> {
        None
    }

    /// What the system itself reports as used by the file, if that differs from the raw bytes.
    fn reported(&self, _size_bytes: u64) -> Option<u128> {
        None
    }
}
