//! Surveys: one measured description of a file population, and everything done with it.
//!
//! A [`Survey`] is plain data of bounded size, whatever the number of files: distributions ([`measure`]), counts, and
//! the places that hold most ([`places`]). It is taken by [`take`](run::take) from a scan, read from a survey file
//! ([`mod@file`]), an fsstats CSV ([`fsstats`]) or a published table ([`source`]), added with [`mod@merge`], and set
//! beside others by [`mod@compare`]; of one tree at several times by [`mod@growth`] and [`history`].

mod ages;
pub mod answers;
pub(crate) mod checkpoint;
pub(crate) mod collect;
pub mod compare;
pub mod errors;
pub mod file;
mod file_table;
pub mod fsstats;
pub mod growth;
pub mod history;
pub(crate) mod inode_scan;
mod kind;
pub mod largest;
pub mod listed;
pub mod machine;
pub mod measure;
pub mod merge;
mod ncdu_export;
pub mod owner_ages;
pub mod part;
pub mod places;
mod places_file;
mod recent;
pub(crate) mod request;
pub mod run;
mod sealed;
pub mod source;
pub mod tree;
mod tree_file;
pub mod tree_kinds;

pub use checkpoint::Checkpoint;

use serde::{Deserialize, Serialize};

use crate::distribution::{Bucket, bucket_number};
use crate::plan::systems::Fact;
use crate::plan::{Padding, Population, Tree};
use crate::units::{SMALL_FILE_BYTES, fraction};
use errors::ErrorLog;
use machine::Machine;
use measure::{Distributions, Measure};
use places::Places;
use tree::DirectoryTree;

/// A measured (or published) file population.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Survey {
    /// Where it comes from.
    pub origin: Origin,
    /// How many there are of each kind.
    pub counts: Counts,
    /// Bytes allocated to directories and symlinks.
    pub other_allocated: OtherAllocated,
    /// All distributions.
    pub distributions: Distributions,
    /// The overheads by the size of the entry.
    pub overhead_by_size: OverheadBySize,
    /// What rounding up adds to large files, exactly; `None` where only a distribution is known.
    pub padding: Option<Padding>,
    /// The places that hold most; `None` where the source does not say.
    pub places: Option<Places>,
    /// The directories that hold most, as a tree; `None` where the source does not say.
    pub tree: Option<DirectoryTree>,
    /// What could not be read.
    pub errors: ErrorLog,
}

/// Where a survey comes from.
#[derive(Debug, Clone, PartialEq)]
pub struct Origin {
    /// Short label; `None` when anonymous.
    pub name: Option<String>,
    /// Roots as given, escaped; empty when anonymous.
    pub roots: Vec<String>,
    /// Directory in which relative roots are, escaped; `None` if all are absolute, or it is not known.
    pub directory: Option<String>,
    /// The machines and their file systems; empty when anonymous or unknown.
    pub machines: Vec<Machine>,
    /// How the files were enumerated.
    pub method: Method,
    /// Why this method was used, where it is not the requested one; otherwise empty.
    pub method_reason: String,
    /// What changed or was inconsistent during an inode scan; empty where the result describes one moment.
    pub inconsistencies: Vec<String>,
    /// Whether names were not read: entries, names, depths, extensions and locations of files are then unknown.
    pub without_names: bool,
    /// What is published about the population and what is assumed; empty for one that was measured.
    pub facts: Vec<Fact>,
    /// How fine the data are.
    pub resolution: Resolution,
    /// Start, seconds since 1970. `None` if unknown.
    pub taken_at: Option<i64>,
    /// What ages are relative to, seconds since 1970. `None` if unknown or different between parts.
    pub reference_time: Option<i64>,
    /// Wall time of all sessions together.
    pub elapsed_seconds: f64,
    /// Whether everything below the roots was seen.
    pub complete: bool,
    /// Whether names and paths were omitted.
    pub anonymous: bool,
    /// What was requested.
    pub options: Options,
}

impl Default for Origin {
    fn default() -> Origin {
        Origin {
            name: None,
            roots: Vec::new(),
            directory: None,
            machines: Vec::new(),
            method: Method::Walk,
            method_reason: String::new(),
            inconsistencies: Vec::new(),
            without_names: false,
            facts: Vec::new(),
            resolution: Resolution::Exact,
            taken_at: None,
            reference_time: None,
            elapsed_seconds: 0.0,
            complete: true,
            anonymous: false,
            options: Options::default(),
        }
    }
}

/// How files were enumerated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// Through the directories.
    Walk,
    /// From the tables of inodes.
    #[serde(rename = "inode-scan")]
    InodeScan,
    /// Added from other surveys.
    Merge,
    /// Read from an fsstats CSV.
    Fsstats,
    /// A published table.
    Published,
    /// A list or table of sizes by another program.
    List,
}

/// Resolution of the data behind the distributions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Resolution {
    /// As measured: to the byte up to 64 KiB, better than 1 % above.
    Exact,
    /// Known at the edges of a table; interpolated between them.
    Buckets,
}

/// How a file with several names is counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HardLinks {
    /// Once, at its smallest name (by the inode of the directory, then by name).
    #[default]
    Once,
    /// At every name, in full.
    Each,
    /// At every name, with its size and allocation divided by its link count.
    Shared,
}

/// How snapshot directories are treated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Snapshots {
    /// Skipped and counted.
    #[default]
    Skip,
    /// Walked like any other.
    Include,
}

/// What was requested, as far as the result depends on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Options {
    /// How files with several names are counted.
    pub hard_links: HardLinks,
    /// Whether mount points were skipped.
    pub one_file_system: bool,
    /// How snapshot directories were treated.
    pub snapshots: Snapshots,
    /// Globs of names and paths that were skipped.
    pub excluded: Vec<String>,
    /// Largest size that counts as small among the places.
    pub small_file_bytes: u64,
    /// The lower bounds of the age classes of each owner, in days, but for the first.
    pub age_breaks_days: Vec<u64>,
}

/// Also the values of fields that older survey files lack: to change one changes what those files mean.
impl Default for Options {
    fn default() -> Options {
        Options {
            hard_links: HardLinks::Once,
            one_file_system: false,
            snapshots: Snapshots::Skip,
            excluded: Vec::new(),
            small_file_bytes: SMALL_FILE_BYTES,
            age_breaks_days: owner_ages::DEFAULT_BREAKS_DAYS.to_vec(),
        }
    }
}

/// How many there are of each kind. Every field is a plain sum, so merging adds field by field.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counts {
    /// Regular files counted.
    pub files: u64,
    /// Directories, with the roots.
    pub directories: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Fifos, sockets and devices.
    pub special: u64,
    /// Second and later names of a file already counted.
    pub hard_links_skipped: u64,
    /// What could not be read.
    pub errors: u64,
    /// Files of size 0.
    pub empty_files: u64,
    /// Files with less allocated than their size.
    pub sparse_files: u64,
    /// Symlinks whose target starts with `/`.
    pub symlinks_absolute: u64,
    /// The other symlinks.
    pub symlinks_relative: u64,
    /// Named pipes.
    pub fifos: u64,
    /// Sockets.
    pub sockets: u64,
    /// Block devices.
    pub block_devices: u64,
    /// Character devices.
    pub character_devices: u64,
    /// Entries that disappeared between listing and reading.
    pub vanished: u64,
    /// Entries skipped by a glob.
    pub excluded: u64,
    /// Snapshot directories skipped.
    pub snapshot_directories_skipped: u64,
    /// Mount points skipped.
    pub mount_points_skipped: u64,
    /// Time stamps later than the survey.
    pub future_times: u64,
}

impl Counts {
    /// Adds `other`, field by field.
    pub fn merge(&mut self, other: &Counts) {
        let Counts {
            files,
            directories,
            symlinks,
            special,
            hard_links_skipped,
            errors,
            empty_files,
            sparse_files,
            symlinks_absolute,
            symlinks_relative,
            fifos,
            sockets,
            block_devices,
            character_devices,
            vanished,
            excluded,
            snapshot_directories_skipped,
            mount_points_skipped,
            future_times,
        } = other;
        self.files += files;
        self.directories += directories;
        self.symlinks += symlinks;
        self.special += special;
        self.hard_links_skipped += hard_links_skipped;
        self.errors += errors;
        self.empty_files += empty_files;
        self.sparse_files += sparse_files;
        self.symlinks_absolute += symlinks_absolute;
        self.symlinks_relative += symlinks_relative;
        self.fifos += fifos;
        self.sockets += sockets;
        self.block_devices += block_devices;
        self.character_devices += character_devices;
        self.vanished += vanished;
        self.excluded += excluded;
        self.snapshot_directories_skipped += snapshot_directories_skipped;
        self.mount_points_skipped += mount_points_skipped;
        self.future_times += future_times;
    }

    /// Whether every count is plausible for a file system, so that sums of thousands of surveys fit.
    fn is_plausible(&self) -> bool {
        let all = [
            self.files,
            self.directories,
            self.symlinks,
            self.special,
            self.hard_links_skipped,
            self.errors,
            self.empty_files,
            self.sparse_files,
            self.symlinks_absolute,
            self.symlinks_relative,
            self.fifos,
            self.sockets,
            self.block_devices,
            self.character_devices,
            self.vanished,
            self.excluded,
            self.snapshot_directories_skipped,
            self.mount_points_skipped,
            self.future_times,
        ];
        all.iter().all(|&count| count <= MOST)
    }
}

/// Upper bound of any count in a survey file: 2^53, which every JSON reader represents exactly.
const MOST: u64 = 1 << 53;

/// Bytes allocated to inodes other than regular files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OtherAllocated {
    /// Bytes allocated to directories.
    pub directories_bytes: u128,
    /// Bytes allocated to symlinks.
    pub symlinks_bytes: u128,
}

impl OtherAllocated {
    /// Adds `other`.
    pub fn merge(&mut self, other: &OtherAllocated) {
        self.directories_bytes += other.directories_bytes;
        self.symlinks_bytes += other.symlinks_bytes;
    }
}

/// Overhead in power-of-two buckets of the *size* of the entry, as in fsstats: `count` inodes, `sum` bytes of overhead.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OverheadBySize {
    positive: Vec<(u64, u128)>,
    negative: Vec<(u64, u128)>,
}

/// Number of power-of-two buckets: zero, and one for each bit of a size.
const BUCKETS: usize = u64::BITS as usize + 1;

impl Default for OverheadBySize {
    fn default() -> OverheadBySize {
        OverheadBySize { positive: vec![(0, 0); BUCKETS], negative: vec![(0, 0); BUCKETS] }
    }
}

impl OverheadBySize {
    /// Counts `count` entries of `size_bytes` with `overhead_bytes` more (`positive`) or fewer bytes allocated.
    #[inline]
    pub fn record(&mut self, size_bytes: u64, positive: bool, count: u64, overhead_bytes: u128) {
        let buckets = if positive { &mut self.positive } else { &mut self.negative };
        let bucket = &mut buckets[bucket_number(size_bytes) as usize];
        bucket.0 += count;
        bucket.1 += overhead_bytes;
    }

    /// The buckets of positive overhead up to the last that is not empty.
    pub fn positive(&self) -> Vec<Bucket> {
        filled(&self.positive)
    }

    /// The buckets of negative overhead up to the last that is not empty.
    pub fn negative(&self) -> Vec<Bucket> {
        filled(&self.negative)
    }

    /// Whether there is a bucket for every size.
    fn is_whole(&self) -> bool {
        [&self.positive, &self.negative].iter().all(|buckets| buckets.len() == BUCKETS)
    }

    /// Adds `other`.
    pub fn merge(&mut self, other: &OverheadBySize) {
        let pairs = self.positive.iter_mut().zip(&other.positive).chain(self.negative.iter_mut().zip(&other.negative));
        for (mine, theirs) in pairs {
            mine.0 += theirs.0;
            mine.1 += theirs.1;
        }
    }
}

fn filled(buckets: &[(u64, u128)]) -> Vec<Bucket> {
    let used = buckets.iter().rposition(|bucket| bucket.0 > 0).map_or(0, |last| last + 1);
    let numbered = buckets[..used].iter().enumerate();
    numbered.map(|(number, &(count, sum))| Bucket { count: count.into(), sum, ..Bucket::of(number as u32) }).collect()
}

impl Survey {
    /// The survey in the form that a plan uses.
    pub fn population(&self) -> Population<'_> {
        let of = |measure| self.distributions.of(measure);
        let entries = of(Measure::DirectoryEntries);
        let tree = Tree { entries, names: of(Measure::NameLength), symlinks: of(Measure::SymlinkTargetLength) };
        Population {
            sizes: of(Measure::FileSize),
            padding: self.padding.as_ref(),
            tree: (!entries.is_empty()).then_some(tree),
        }
    }

    /// Sum of the sizes of all regular files.
    pub fn size_bytes(&self) -> u128 {
        self.distributions.of(Measure::FileSize).total()
    }

    /// Sum of the bytes allocated to all regular files.
    pub fn allocated_bytes(&self) -> u128 {
        self.distributions.of(Measure::Allocated).total()
    }

    /// What files have allocated beyond their sizes, summed over those with more than their size; `None` where neither
    /// the sums by owner nor those by extension are of all files.
    pub fn overhead_bytes(&self) -> Option<u128> {
        let places = self.places.as_ref()?;
        let of_all = |(size_bytes, overhead_bytes)| (size_bytes == self.size_bytes()).then_some(overhead_bytes);
        of_all(sums(places.owners.tallies())).or_else(|| of_all(sums(places.extensions.tallies())))
    }

    /// (allocated − size) / allocated, as fsstats defines it, of the files of which the allocation is known; negative
    /// for sparse populations, 0 where nothing is allocated.
    pub fn overhead_fraction(&self) -> f64 {
        let allocated = self.distributions.of(Measure::Allocated);
        let size_bytes = match allocated.count() == self.distributions.of(Measure::FileSize).count() {
            true => self.size_bytes(),
            false => {
                let overhead = |measure| self.distributions.of(measure).total();
                let (beyond, short) = (overhead(Measure::PositiveOverhead), overhead(Measure::NegativeOverhead));
                // Those of buckets are estimates.
                (allocated.total() + short).saturating_sub(beyond)
            }
        };
        if allocated.total() == 0 { 0.0 } else { 1.0 - fraction(size_bytes, allocated.total()) }
    }
}

/// The sizes of files, and what they have allocated beyond these.
fn sums<'t>(tallies: impl Iterator<Item = &'t places::Tally>) -> (u128, u128) {
    tallies.fold((0, 0), |(size, beyond), tally| (size + tally.size_bytes, beyond + tally.overhead_bytes))
}
