//! The result of a bench, `granulo/bench/1`: what was measured on what, how, every sample, and what they say.
//!
//! One [`Document`] is one run. Its [`Subject`]s (a directory, a store, a file system that was made for it) were measured in turns inside
//! that run, so they may be compared; those of two documents may be shown together but not divided by one another. Every
//! [`Series`] keeps its raw samples. What a bench has besides, such as curves, is in [`Details`]. Fields are added, never renamed.

use serde::{Deserialize, Serialize};

use super::samples::{LatencySummary, Spread};
use crate::document::read_document;
use crate::error::Result;

/// The schema that documents name.
pub const SCHEMA: &str = "granulo/bench/1";

/// The result that is in `text`; `None` if it is something else.
///
/// # Errors
/// As [`read_document`].
pub fn read(text: &[u8]) -> Option<Result<Document>> {
    read_document("read the result of a bench", SCHEMA, "write it again with granulo bench -o", text)
}

/// One run of one bench.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Document {
    /// [`SCHEMA`].
    pub schema: String,
    /// Version that wrote it.
    pub granulo_version: String,
    /// When it began, RFC 3339 UTC.
    pub started_at: String,
    /// How long it took, everything included.
    pub elapsed_seconds: f64,
    /// Whether it came to its end; an interrupted run keeps what it has.
    pub complete: bool,
    /// What was typed, each word escaped.
    pub command_line: Vec<String>,
    /// Seed of everything random in it.
    pub seed: u64,
    /// Where it ran.
    pub host: Host,
    /// Programs that it used, and their versions.
    pub tools: Vec<Tool>,
    /// What one empty operation costs the harness: reading the clock, recording the time.
    pub harness: Harness,
    /// What was measured.
    pub subjects: Vec<Subject>,
    /// Every sample, by subject and measure.
    pub series: Vec<Series>,
    /// What is to be known beside the figures: what could not be dropped, what an emulated disk does not model.
    pub notes: Vec<String>,
    /// What this kind of bench has besides.
    pub details: Details,
}

impl Document {
    /// The first series of a measure of a subject.
    pub fn series_of(&self, subject: usize, measure: &str) -> Option<&Series> {
        self.series.iter().find(|series| series.subject == subject && series.measure == measure)
    }
}

/// Where a bench ran.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Host {
    /// Release of the kernel.
    pub kernel: String,
    /// Architecture.
    pub machine: String,
    /// Model of the processor.
    pub cpu_model: String,
    /// Processors that may be used.
    pub cpus: u64,
    /// Memory in all.
    pub memory_bytes: u64,
    /// Whether it ran as root.
    pub is_root: bool,
    /// Load average of one minute when it began.
    pub load_before: f64,
    /// Load average of one minute when it ended.
    pub load_after: f64,
}

/// A program that was used.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// What it says of its version.
    pub version: String,
}

/// What measuring costs.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Harness {
    /// Median time of an operation that does nothing, in nanoseconds.
    pub empty_operation_ns: f64,
    /// Its share of the shortest median of an operation that was timed; at most 0.05 is aimed at.
    pub overhead_fraction: f64,
}

/// What kind of thing was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SubjectKind {
    /// A directory that was there.
    Directory,
    /// granulo's store, by its library.
    Store,
    /// A file system made for the run.
    FileSystem,
}

/// What was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Subject {
    /// A short name for tables: `ext4`, `xfs -m crc=0`, `granulo`.
    pub name: String,
    /// What kind of thing it is.
    pub kind: SubjectKind,
    /// The directory that it was measured in, escaped.
    pub path: String,
    /// The file system below.
    pub file_system: FileSystem,
    /// The device below that.
    pub device: Device,
    /// Share of the file system in use before, `used / (used + available)`.
    pub fill_before: f64,
    /// And afterwards.
    pub fill_after: f64,
    /// Further devices, each with such a file system, where a store is on several.
    pub further_devices: Vec<Device>,
}

/// A file system.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct FileSystem {
    /// Its type as the kernel says: `ext4`, `fuseblk`.
    pub kind: String,
    /// Block size by statfs.
    pub block_bytes: u64,
    /// Its size by statfs.
    pub size_bytes: u64,
    /// Options that it is mounted with.
    pub mount_options: String,
    /// How it was made, if the run made it.
    pub made_by: Option<String>,
}

/// A device.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Device {
    /// Its name: `vda`, `loop3`.
    pub name: String,
    /// Its model, or the file that a loop device stands on, escaped.
    pub model: String,
    /// Whether it says that it rotates; `None` where it does not say.
    pub is_rotational: Option<bool>,
    /// Its size; 0 if unknown.
    pub size_bytes: u64,
    /// How it was made slow on purpose.
    pub emulated: Option<Emulated>,
}

/// A device that is slow on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Emulated {
    /// Operations a second in each direction.
    pub operations_per_second: u64,
    /// Bytes a second in each direction.
    pub bytes_per_second: u64,
    /// Largest read-ahead, which decides how large an operation of a sequential read is.
    pub read_ahead_bytes: u64,
}

/// What was in the caches when a measurement began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CacheState {
    /// Written back and dropped: pages, directory entries and inodes.
    Cold,
    /// Whatever is measured was read just before.
    Warm,
    /// As what was done before left them; where dropping was refused, this too.
    AsIs,
}

/// One measure of one subject: its samples and what they say.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Place of the subject in [`Document::subjects`].
    pub subject: usize,
    /// What was measured: `create`, `load`, `find 10,000 directories`.
    pub measure: String,
    /// `seconds`, `operations/s`, `bytes/s`, `bytes`.
    pub unit: String,
    /// What was varied and where it stood, such as the fill level, the number of files, the cache size; `None` if nothing.
    pub level: Option<f64>,
    /// A second thing that was varied, such as the block size.
    pub second_level: Option<f64>,
    /// The caches before each sample.
    pub caches: CacheState,
    /// Every sample, in the order in which they were taken.
    pub samples: Vec<f64>,
    /// What they say.
    pub spread: Spread,
}

impl Series {
    /// A series of `samples`.
    pub fn new(
        subject: usize,
        measure: impl Into<String>,
        unit: impl Into<String>,
        caches: CacheState,
        samples: Vec<f64>,
    ) -> Series {
        let spread = Spread::of(&samples);
        let (measure, unit) = (measure.into(), unit.into());
        Series { subject, measure, unit, level: None, second_level: None, caches, samples, spread }
    }
}

/// What a kind of bench has besides series.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "bench", rename_all = "kebab-case")]
pub enum Details {
    /// Times of single operations on many files.
    Create(CreateDetails),
    /// Many files against one composite store.
    Pack(PackDetails),
    /// Performance over the fill level.
    Fill(FillDetails),
    /// Metadata operations.
    Metadata(MetadataDetails),
    /// Run time over cache size and block size.
    Cache(CacheDetails),
}

/// Of `bench create`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct CreateDetails {
    /// Files that were asked for.
    pub files: u64,
    /// Bytes written into each; 0 for open and close alone.
    pub size_bytes: u64,
    /// Files in a directory; 0 for all in one.
    pub directory_files: u64,
    /// The order of deleting: `creation`, `reverse`, `random`, `name`, `listed`.
    pub order: String,
    /// When files and objects were made durable: `none` (by the sync after a phase), `each`, `batch` (every thousand).
    pub durability: String,
    /// Each phase of each subject and round.
    pub phases: Vec<CreatePhase>,
}

/// One phase of `bench create`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CreatePhase {
    /// Place of the subject.
    pub subject: usize,
    /// Round, from 0.
    pub round: u64,
    /// `create`, `stat`, `delete`.
    pub phase: String,
    /// Wall time of the phase, harness included.
    pub elapsed_seconds: f64,
    /// Time to write back what it left in memory, after it.
    pub sync_seconds: f64,
    /// The caches before it.
    pub caches: CacheState,
    /// Why there are fewer operations than files were asked for; `None` if there are not, or it was interrupted.
    pub limit: Option<String>,
    /// Times of the operations.
    pub latencies: LatencySummary,
}

/// Of `bench pack`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct PackDetails {
    /// What was packed: `50,000 × 20,000 bytes`, the name of a source.
    pub population: String,
    /// Files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes of each; `None` where they differ.
    pub size_bytes: Option<u64>,
    /// What each way takes on each subject.
    pub space: Vec<PackSpace>,
    /// What could not be measured, and why.
    pub failures: Vec<PackFailure>,
    /// How many bytes a second are compared with what was written, on one processor.
    pub checked_bytes_per_second: f64,
    /// What the source measured; empty where something else was packed than there.
    pub published: Vec<PackPublished>,
}

/// What one way of keeping a population takes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PackSpace {
    /// Place of the subject.
    pub subject: usize,
    /// `files`, `store`, `composite`, `flat`.
    pub way: String,
    /// What the file system has less for it: the median of the rounds.
    pub allocated_bytes: u64,
}

/// A way that could not be measured on a subject.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackFailure {
    /// Place of the subject.
    pub subject: usize,
    /// As in [`PackSpace`].
    pub way: String,
    /// Why, in words.
    pub cause: String,
}

/// A row of the source's table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PackPublished {
    /// Operating system.
    pub system: String,
    /// File system, by the name that it has here.
    pub file_system: String,
    /// One composite file, read whole.
    pub one_file_seconds: f64,
    /// 50,000 files, read whole.
    pub many_files_seconds: f64,
}

/// Of `bench fill`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct FillDetails {
    /// Levels that were aimed at, as `used / (used + available)`.
    pub levels: Vec<f64>,
    /// Each level reached.
    pub reached: Vec<FillLevel>,
    /// The k of the weight `e^(k(x-1))`.
    pub weight: f64,
    /// Smallest and largest file.
    pub size_range_bytes: (u64, u64),
    /// Whether files have random bytes in them, not zeros.
    pub is_random: bool,
    /// Created files after which one is deleted; 0 for never.
    pub delete_every: u64,
    /// Created files after which there are flushes around a deletion; 0 for never.
    pub flush_every: u64,
    /// Directories of a test.
    pub directories: u64,
    /// Bytes that are written and read.
    pub file_bytes: u64,
    /// Small files of a test.
    pub small_files: u64,
    /// Bytes of each.
    pub small_bytes: u64,
    /// What was not measured, and why.
    pub left_out: Vec<FillLeftOut>,
}

/// A level, or tests from a level on, that there are no figures of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FillLeftOut {
    /// Place of the subject.
    pub subject: usize,
    /// The level aimed at.
    pub level: f64,
    /// Tests that were left out from there on; empty for all.
    pub tests: Vec<String>,
    /// Why, in words.
    pub cause: String,
}

/// A fill level that was reached.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FillLevel {
    /// Place of the subject.
    pub subject: usize,
    /// The level aimed at.
    pub level: f64,
    /// The level there was.
    pub reached: f64,
    /// And after the tests, which remove what they make.
    pub after: f64,
    /// Files that fill it.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Files deleted on the way, in all.
    pub deleted: u64,
    /// Mean number of extents of a sample of the files; `None` where the file system does not say.
    pub extents_per_file: Option<f64>,
}

/// Of `bench metadata`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct MetadataDetails {
    /// Share of each operation in the mix.
    pub mix: Vec<MixShare>,
    /// Response time against offered load.
    pub load_points: Vec<LoadPoint>,
    /// Where the sizes of the files are from.
    pub source: String,
    /// Files, without the entries of the directory with many.
    pub files: u64,
    /// Their bytes.
    pub size_bytes: u64,
    /// Files in a directory.
    pub directory_files: u64,
    /// Entries that the directory with many was to have.
    pub listed: u64,
    /// Files up to this size were read as small ones.
    pub small_bytes: u64,
    /// Small files that were to be read.
    pub reads: u64,
    /// Threads that offered the load, and read side by side.
    pub threads: u64,
    /// Most bytes of one READ or WRITE of the mix.
    pub transfer_bytes: u64,
    /// Whether operations that change something were durable when they returned.
    pub is_durable: bool,
    /// What was done at each load before it counted.
    pub warm_up_seconds: f64,
    /// What counted.
    pub window_seconds: f64,
    /// What could not be done, such as a directory that takes no more entries, and why.
    pub limits: Vec<String>,
}

/// Share of an operation in a mix.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MixShare {
    /// The operation.
    pub operation: String,
    /// Its share.
    pub fraction: f64,
}

/// A point of load against response time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoadPoint {
    /// Place of the subject.
    pub subject: usize,
    /// Round, from 0.
    pub round: u64,
    /// Operations a second that were asked for.
    pub offered_per_second: f64,
    /// Operations a second that ended.
    pub achieved_per_second: f64,
    /// Mean time from when an operation was due to its end, in milliseconds.
    pub response_ms: f64,
    /// Half of them were done in this time.
    pub p50_ms: f64,
    /// 99 % of them were done in this time.
    pub p99_ms: f64,
    /// The longest.
    pub longest_ms: f64,
    /// Operations that were due.
    pub due: u64,
    /// Those of them that were given up; they count with the time that they had waited.
    pub unfinished: u64,
    /// The caches before it.
    pub caches: CacheState,
    /// How long operations took themselves, without waiting.
    pub operations: Vec<OperationTime>,
}

/// How long an operation took, without waiting.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OperationTime {
    /// Which.
    pub operation: String,
    /// How often it was done.
    pub count: u64,
    /// Mean time, in milliseconds.
    pub mean_ms: f64,
    /// The longest, in milliseconds.
    pub longest_ms: f64,
}

/// Of `bench cache`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct CacheDetails {
    /// What was run.
    pub workload: String,
    /// The matrix: seconds of each cache size (`level`) and block size (`second_level`) are in the series.
    pub cache_sizes_bytes: Vec<u64>,
    /// Block sizes.
    pub block_sizes_bytes: Vec<u64>,
    /// What the device read in each cell, to say where the time went.
    pub cells: Vec<CacheCell>,
    /// Time of one run without a limit, on the first subject.
    pub unlimited_seconds: f64,
    /// The most that it took then, page cache and memory of programs together.
    pub footprint_bytes: u64,
    /// A run that took longer was ended.
    pub longest_seconds: f64,
    /// The least limit that it bears, found on the first subject; `None` where it was not looked for.
    pub least_bytes: Option<u64>,
}

/// A cell of the matrix of `bench cache`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CacheCell {
    /// Place of the subject.
    pub subject: usize,
    /// Limit of page cache and memory of programs.
    pub cache_bytes: u64,
    /// Block size of the file system.
    pub block_bytes: u64,
    /// Bytes read from the device during a run; the median.
    pub read_bytes: u64,
    /// Reads from the device; the median.
    pub reads: u64,
    /// Bytes that the processes had read from any device; the median. `None` where the kernel does not count it.
    pub process_read_bytes: Option<u64>,
    /// The largest page cache that was seen.
    pub page_cache_bytes: u64,
    /// The most memory of programs that was seen.
    pub anonymous_bytes: u64,
    /// Why there is no time, or why there are fewer than rounds.
    pub failure: Option<CellFailure>,
}

/// Why a run with a limit had no good end. It is not tried again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellFailure {
    /// Which of the reasons.
    pub kind: FailureKind,
    /// The same in words.
    pub cause: String,
}

/// Reasons of a run to have no good end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureKind {
    /// It took longer than it may.
    TooLong,
    /// It needed more memory than the limit.
    OutOfMemory,
    /// It failed by itself.
    Failed,
}
