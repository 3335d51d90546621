//! What `granulo generate` planned and made, `granulo/generate/1`. Fields are added, never renamed.

use serde::Serialize;

use super::extents::Fragmentation;
use super::room::{Needed, Room};
use crate::distribution::Distance;

/// The schema identifier of documents.
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
    /// Commit that wrote it, with `+changed` where the tree differed from it; `None` if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub granulo_commit: Option<&'static str>,
    /// The model of the tree: the name of a survey, a table, a profile, a law.
    pub source: String,
    /// Where the tree is, escaped.
    pub directory: String,
    /// Seed of everything.
    pub seed: u64,
    /// Number of threads.
    pub threads: usize,
    /// Contents of the files: `random`, `compressible:2.5`, `none`.
    pub content: String,
    /// Whether this was a dry run.
    pub dry_run: bool,
    /// Whether everything was made.
    pub complete: bool,
    /// What was to be made.
    pub plan: Plan,
    /// What was made; `None` for a dry run.
    pub made: Option<MadeFiles>,
    /// How it aged; `None` if it did not.
    pub aging: Option<Aging>,
    /// Distances from the source, one for each measure that the source has.
    pub distances: Vec<MeasureDistance>,
    /// Bounds of the distances of the sizes.
    pub bounds: Bounds,
    /// Remarks.
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
    /// Factor that sizes of the source were multiplied by.
    pub size_factor: f64,
    /// What ages are relative to, seconds since 1970; `None` where no times are set.
    pub ages_relative_to: Option<i64>,
    /// The space it needs.
    pub needed: Needed,
    /// The space that exists.
    pub room: Room,
    /// The space that stays available.
    pub left_bytes: u128,
    /// The limit, if one was set.
    pub limit_bytes: Option<u64>,
    /// Creations and deletions after the fill level is reached; `None` without aging.
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
    /// Bytes that the file system allocated for them, as surveyed afterwards; `None` without a survey.
    pub allocated_bytes: Option<u128>,
    /// Time to make them.
    pub elapsed_seconds: f64,
    /// Time to write back afterwards what was still in memory.
    pub sync_seconds: f64,
    /// Files per second, without writing back.
    pub files_per_second: f64,
    /// Bytes per second, with writing back.
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
    /// Files that would not fit below the level even alone, and were skipped.
    pub left_out: u64,
    /// Largest space for all files together.
    pub level_bytes: u64,
    /// Used share of the file system at the end, as `df` computes it.
    pub fill_fraction: f64,
    /// Time until the level was reached.
    pub filled_seconds: f64,
    /// Time of the operations after that.
    pub elapsed_seconds: f64,
    /// Distance of the relative ages of files from the profile; `None` without one.
    pub age_distance: Option<f64>,
    /// Fragmentation when the level was reached; `None` where it cannot be determined.
    pub first: Option<Fragmentation>,
    /// Fragmentation at the end.
    pub last: Option<Fragmentation>,
}

/// Distance of a measure from that of the source.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MeasureDistance {
    /// `file_size`, `name_length` and so on, as in a survey.
    pub measure: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// As planned; `None` where only the disk can answer.
    pub planned: Option<Distance>,
    /// As surveyed on disk.
    pub reached: Option<Distance>,
}

/// Bounds of the distances of the sizes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Bounds {
    /// By files.
    pub by_files: f64,
    /// By bytes.
    pub by_bytes: f64,
    /// Number of files from which they apply.
    pub from_files: u64,
    /// Lower bound of the distance by bytes for this number of files: the largest files of the source are too large a
    /// part of the tree.
    pub least_by_bytes: f64,
    /// Approximate number of files that the bound by bytes needs.
    pub files_for_bytes: u64,
    /// Whether they are met; `None` with too few files.
    pub met: Option<bool>,
}
