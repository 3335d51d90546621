//! What `granulo generate` planned and made, `granulo/generate/1`. Fields are added, never renamed.

use serde::Serialize;

use super::extents::Fragmentation;
use super::room::{Needed, Room};
use crate::distribution::Distance;

/// The schema that documents name.
pub const SCHEMA: &str = "granulo/generate/1";
/// Largest distance by files that a tree of [`BOUNDED_FILES`] may have.
pub const BOUND_BY_FILES: f64 = 0.01;
/// Largest distance by bytes.
pub const BOUND_BY_BYTES: f64 = 0.02;
/// The number of files from which the bounds hold.
pub const BOUNDED_FILES: u64 = 100_000;

/// One run of `granulo generate`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Document {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// Version that wrote it.
    pub granulo_version: &'static str,
    /// What the tree is to be like: the name of a survey, a table, a profile, a law.
    pub source: String,
    /// Where the tree is, escaped.
    pub directory: String,
    /// Seed of everything.
    pub seed: u64,
    /// Number of threads.
    pub threads: usize,
    /// What is in the files: `random`, `compressible:2.5`, `none`.
    pub content: String,
    /// Whether nothing was to be made.
    pub dry_run: bool,
    /// Whether everything was made.
    pub complete: bool,
    /// What was to be made.
    pub plan: Plan,
    /// What was made; `None` of a dry run.
    pub made: Option<MadeFiles>,
    /// How it aged; `None` where it did not.
    pub aging: Option<Aging>,
    /// How far from the source it is, one for each measure that the source has.
    pub distances: Vec<MeasureDistance>,
    /// What the distances of the sizes may be.
    pub bounds: Bounds,
    /// What is to be known beside the figures.
    pub notes: Vec<String>,
}

/// What was to be made.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Plan {
    /// Files.
    pub files: u64,
    /// Directories, with the root.
    pub directories: u64,
    /// Sizes of the files.
    pub size_bytes: u128,
    /// The largest of them.
    pub largest_bytes: u64,
    /// What sizes of the source were multiplied by.
    pub size_factor: f64,
    /// What ages are relative to, seconds since 1970; `None` where there are no times to set.
    pub ages_relative_to: Option<i64>,
    /// What it takes.
    pub needed: Needed,
    /// What there is.
    pub room: Room,
    /// What stays available.
    pub left_bytes: u128,
    /// The limit that was set.
    pub limit_bytes: Option<u64>,
    /// Creations and deletions after the fill level is reached; `None` where it is not to age.
    pub operations: Option<u64>,
}

/// What was made.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MadeFiles {
    /// Files.
    pub files: u64,
    /// Directories, with the root.
    pub directories: u64,
    /// Sizes of the files.
    pub size_bytes: u64,
    /// What the file system has allocated for them, as surveyed afterwards; `None` where that was not done.
    pub allocated_bytes: Option<u128>,
    /// Time to make them.
    pub elapsed_seconds: f64,
    /// Time to write back then what was still in memory.
    pub sync_seconds: f64,
    /// Files a second, without writing back.
    pub files_per_second: f64,
    /// Bytes a second, with writing back.
    pub bytes_per_second: f64,
}

/// How a tree aged.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Aging {
    /// Creations and deletions after the level was reached.
    pub operations: u64,
    /// Files created, in all.
    pub created: u64,
    /// Files deleted.
    pub deleted: u64,
    /// Files that would not fit below the level even alone, and were left out.
    pub left_out: u64,
    /// What files may take together.
    pub level_bytes: u64,
    /// Share of the file system in use at the end, as `df` has it.
    pub fill_fraction: f64,
    /// Time until the level was reached.
    pub filled_seconds: f64,
    /// Time of the operations then.
    pub elapsed_seconds: f64,
    /// Distance of the relative ages of files from the profile; `None` where there is none.
    pub age_distance: Option<f64>,
    /// Fragmentation when the level was reached; `None` where it cannot be seen.
    pub first: Option<Fragmentation>,
    /// Fragmentation at the end.
    pub last: Option<Fragmentation>,
}

/// How far a measure is from that of the source.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MeasureDistance {
    /// `file_size`, `name_length` and so on, as in a survey.
    pub measure: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// As planned; `None` where only the disk tells.
    pub planned: Option<Distance>,
    /// As surveyed on disk.
    pub reached: Option<Distance>,
}

/// What the distances of the sizes may be.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Bounds {
    /// By files.
    pub by_files: f64,
    /// By bytes.
    pub by_bytes: f64,
    /// From how many files on.
    pub from_files: u64,
    /// What no tree of this many files can be below by bytes: the largest files of the source are too large a part of it.
    pub least_by_bytes: f64,
    /// About how many files it takes for the bound by bytes.
    pub files_for_bytes: u64,
    /// Whether they are met; `None` where there are too few files for them.
    pub met: Option<bool>,
}
