//! The result of a bench, `granulo/bench/1`: subjects, all samples, and their statistics.
//!
//! One [`Document`] is one run. Its [`Subject`]s (a directory, a store, a file system that was created for it) were
//! measured in turns within that run, so they may be compared; those of two documents may be shown together but not
//! divided by one another. Every [`Series`] keeps its raw samples. Data specific to a bench, such as curves, is in
//! [`Details`]. Fields are added, never renamed.

use serde::{Deserialize, Serialize};

use super::samples::{LatencySummary, Spread};
use crate::document::Unread;
use crate::error::Result;

/// The schema name of documents.
pub const SCHEMA: &str = "granulo/bench/1";

/// Reads a result from `text`; `None` if it is something else.
///
/// # Errors
/// Same as [`Unread::read`].
pub fn read(text: &[u8]) -> Option<Result<Document>> {
    read_document(&Unread::new(text)?)
}

/// Reads a result; `None` if the document is something else.
///
/// # Errors
/// Same as [`Unread::read`].
pub(crate) fn read_document(document: &Unread<'_>) -> Option<Result<Document>> {
    document.read("read the result of a bench", SCHEMA, "write it again with granulo bench -o")
}

/// One run of one bench.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Document {
    /// [`SCHEMA`].
    pub schema: String,
    /// Version of granulo that wrote it.
    pub granulo_version: String,
    /// Commit that wrote it, with `+changed` where the tree differed from it; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub granulo_commit: Option<String>,
    /// Start time, RFC 3339 UTC.
    pub started_at: String,
    /// Duration, everything included.
    pub elapsed_seconds: f64,
    /// Whether it ran to the end; an interrupted run keeps its samples.
    pub complete: bool,
    /// Command line, each word escaped.
    pub command_line: Vec<String>,
    /// Seed of everything random in it.
    pub seed: u64,
    /// Where it ran.
    pub host: Host,
    /// Programs that it used, and their versions.
    pub tools: Vec<Tool>,
    /// Cost of one empty operation for the harness: reading the clock, recording the time.
    pub harness: Harness,
    /// What was measured.
    pub subjects: Vec<Subject>,
    /// Every sample, by subject and measure.
    pub series: Vec<Series>,
    /// Notes on the figures: caches that could not be dropped, properties that an emulated disk does not model.
    pub notes: Vec<String>,
    /// Data specific to this kind of bench.
    pub details: Details,
}

impl Document {
    /// The name of a subject; empty if there is no such subject.
    pub fn subject_name(&self, subject: usize) -> &str {
        self.subjects.get(subject).map_or("", |subject| &subject.name)
    }

    /// The first series of a subject's measure.
    pub fn series_of(&self, subject: usize, measure: &str) -> Option<&Series> {
        self.series.iter().find(|series| series.subject == subject && series.measure == measure)
    }
}

/// Adds a note, unless it is among them.
pub(super) fn add_note(notes: &mut Vec<String>, note: String) {
    if !notes.contains(&note) {
        notes.push(note);
    }
}

/// The machine of a run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Host {
    /// Its name; empty in results of an older granulo.
    #[serde(default)]
    pub name: String,
    /// Release of the kernel.
    pub kernel: String,
    /// Architecture.
    pub machine: String,
    /// Model of the processor.
    pub cpu_model: String,
    /// Number of available processors.
    pub cpus: u64,
    /// Total memory.
    pub memory_bytes: u64,
    /// Whether it ran as root.
    pub is_root: bool,
    /// One-minute load average at the start.
    pub load_before: f64,
    /// One-minute load average at the end.
    pub load_after: f64,
}

/// A program that was used.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// The version that it reports.
    pub version: String,
}

/// Cost of measuring.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Harness {
    /// Median time of an empty operation, in nanoseconds.
    pub empty_operation_ns: f64,
    /// Its share of the shortest median of a timed operation; the target is at most 0.05.
    pub overhead_fraction: f64,
}

/// Kind of a subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SubjectKind {
    /// An existing directory.
    Directory,
    /// granulo's store, through its library.
    Store,
    /// A file system made for the run.
    FileSystem,
    /// granulo's store, mounted as a file system.
    Mount,
}

/// What was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Subject {
    /// Short name for tables: `ext4`, `xfs -m crc=0`, `granulo`.
    pub name: String,
    /// Its kind.
    pub kind: SubjectKind,
    /// The directory of the measurement, escaped.
    pub path: String,
    /// The file system below.
    pub file_system: FileSystem,
    /// The device below that.
    pub device: Device,
    /// Share of the file system in use before, `used / (used + available)`.
    pub fill_before: f64,
    /// Same, afterwards.
    pub fill_after: f64,
    /// Further devices, each with such a file system, if a store has several.
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
    /// Mount options.
    pub mount_options: String,
    /// How it was made, if the run made it.
    pub made_by: Option<String>,
}

/// A device.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Device {
    /// Its name: `vda`, `loop3`.
    pub name: String,
    /// Its model, or the backing file of a loop device, escaped.
    pub model: String,
    /// Whether it reports that it rotates; `None` if it does not report it.
    pub is_rotational: Option<bool>,
    /// Its size; 0 if unknown.
    pub size_bytes: u64,
    /// The limits that slowed it down.
    pub emulated: Option<Emulated>,
}

/// The limits of a deliberately slow device.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Emulated {
    /// Operations per second in each direction.
    pub operations_per_second: u64,
    /// Bytes per second in each direction.
    pub bytes_per_second: u64,
    /// Largest read-ahead, which determines the size of an operation in a sequential read.
    pub read_ahead_bytes: u64,
}

/// State of the caches when a measurement began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CacheState {
    /// Written back and dropped: pages, directory entries and inodes.
    Cold,
    /// The measured data was read just before.
    Warm,
    /// As earlier operations left them, or because dropping them was refused.
    AsIs,
}

/// One measure of one subject: its samples and their statistics.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Index of the subject in [`Document::subjects`].
    pub subject: usize,
    /// What was measured: `create`, `load`, `find 10,000 directories`.
    pub measure: String,
    /// `seconds`, `operations/s`, `bytes/s`, `bytes`.
    pub unit: String,
    /// The value of the varied parameter, such as the fill level, the number of files, the cache size; `None` if there
    /// is none.
    pub level: Option<f64>,
    /// The value of a second varied parameter, such as the block size.
    pub second_level: Option<f64>,
    /// The caches before each sample.
    pub caches: CacheState,
    /// All samples, in the order in which they were taken.
    pub samples: Vec<f64>,
    /// Their statistics.
    pub spread: Spread,
}

impl Series {
    /// Creates a series from `samples`.
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

/// Data specific to a kind of bench, beyond series.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "bench", rename_all = "kebab-case")]
pub enum Details {
    /// Times of individual operations on many files.
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

/// Details of `bench create`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct CreateDetails {
    /// Number of files requested.
    pub files: u64,
    /// Bytes written into each; 0 for open and close alone.
    pub size_bytes: u64,
    /// Files per directory; 0 for all in one.
    pub directory_files: u64,
    /// Order of deletion: `creation`, `reverse`, `random`, `name`, `listed`.
    pub order: String,
    /// When files and objects became durable: `none` (by the sync after a phase), `each`, `batch` (every thousand).
    pub durability: String,
    /// Each phase of each subject and round.
    pub phases: Vec<CreatePhase>,
}

/// One phase of `bench create`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CreatePhase {
    /// Index of the subject.
    pub subject: usize,
    /// Round, from 0.
    pub round: u64,
    /// `create`, `stat`, `delete`.
    pub phase: String,
    /// Elapsed time of the phase, including the harness.
    pub elapsed_seconds: f64,
    /// Time to write back dirty data after it.
    pub sync_seconds: f64,
    /// The caches before it.
    pub caches: CacheState,
    /// Why there are fewer operations than requested files; `None` if there are not, or the phase was interrupted.
    pub limit: Option<String>,
    /// Times of the operations.
    pub latencies: LatencySummary,
}

/// Details of `bench pack`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct PackDetails {
    /// Name of the population: `50,000 × 20,000 bytes`, or that of a source.
    pub population: String,
    /// Number of files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes of each; `None` where they differ.
    pub size_bytes: Option<u64>,
    /// Space of each way on each subject.
    pub space: Vec<PackSpace>,
    /// What could not be measured, and why.
    pub failures: Vec<PackFailure>,
    /// Rate of comparing content on one processor, in bytes per second.
    pub checked_bytes_per_second: f64,
    /// The published measurements; empty if another population was packed.
    pub published: Vec<PackPublished>,
}

/// Space of one way of storing a population.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PackSpace {
    /// Index of the subject.
    pub subject: usize,
    /// `files`, `store`, `composite`, `flat`.
    pub way: String,
    /// Reduction of free space: the median of the rounds.
    pub allocated_bytes: u64,
}

/// A way that could not be measured on a subject.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackFailure {
    /// Index of the subject.
    pub subject: usize,
    /// One of the names in [`PackSpace`].
    pub way: String,
    /// Why, in words.
    pub cause: String,
}

/// A row of the published table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PackPublished {
    /// Operating system.
    pub system: String,
    /// File system, by granulo's name for it.
    pub file_system: String,
    /// One composite file, read whole.
    pub one_file_seconds: f64,
    /// 50,000 files, read whole.
    pub many_files_seconds: f64,
}

/// Details of `bench fill`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct FillDetails {
    /// Requested levels, as `used / (used + available)`.
    pub levels: Vec<f64>,
    /// Each level reached.
    pub reached: Vec<FillLevel>,
    /// The k of the weight `e^(k(x-1))`.
    pub weight: f64,
    /// Smallest and largest file.
    pub size_range_bytes: (u64, u64),
    /// Whether file content is random bytes, not zeros.
    pub is_random: bool,
    /// Created files per deletion; 0 for never.
    pub delete_every: u64,
    /// Created files between flushes around a deletion; 0 for never.
    pub flush_every: u64,
    /// Directories per test.
    pub directories: u64,
    /// Bytes written and read.
    pub file_bytes: u64,
    /// Small files per test.
    pub small_files: u64,
    /// Bytes of each.
    pub small_bytes: u64,
    /// What was not measured, and why.
    pub left_out: Vec<FillLeftOut>,
}

/// A level without figures, or tests without figures from a level on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FillLeftOut {
    /// Index of the subject.
    pub subject: usize,
    /// The requested level.
    pub level: f64,
    /// Tests that were left out from this level on; empty for all.
    pub tests: Vec<String>,
    /// Why, in words.
    pub cause: String,
}

/// A fill level that was reached.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FillLevel {
    /// Index of the subject.
    pub subject: usize,
    /// The requested level.
    pub level: f64,
    /// The level that was reached.
    pub reached: f64,
    /// The level after the tests, which remove what they create.
    pub after: f64,
    /// Number of files that fill it.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Total number of files deleted while filling.
    pub deleted: u64,
    /// Mean number of extents of a sample of the files; `None` if the file system does not report it.
    pub extents_per_file: Option<f64>,
}

/// Details of `bench metadata`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct MetadataDetails {
    /// Share of each operation in the mix.
    pub mix: Vec<MixShare>,
    /// Response time against offered load.
    pub load_points: Vec<LoadPoint>,
    /// Source of the file sizes.
    pub source: String,
    /// Number of files, without the entries of the directory with many entries.
    pub files: u64,
    /// Their bytes.
    pub size_bytes: u64,
    /// Files per directory.
    pub directory_files: u64,
    /// Requested entries of the directory with many entries.
    pub listed: u64,
    /// Largest size that counted as a small file.
    pub small_bytes: u64,
    /// Requested reads of small files.
    pub reads: u64,
    /// Threads that offered the load, and read in parallel.
    pub threads: u64,
    /// Largest READ or WRITE of the mix.
    pub transfer_bytes: u64,
    /// Whether modifying operations were durable when they returned.
    pub is_durable: bool,
    /// Discarded time at each load.
    pub warm_up_seconds: f64,
    /// Measured time at each load.
    pub window_seconds: f64,
    /// What could not be done, such as creating more entries in a full directory, and why.
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
    /// Index of the subject.
    pub subject: usize,
    /// Round, from 0.
    pub round: u64,
    /// Offered operations per second.
    pub offered_per_second: f64,
    /// Completed operations per second.
    pub achieved_per_second: f64,
    /// Mean time from the moment an operation was due to its end, in milliseconds.
    pub response_ms: f64,
    /// Half of them were done in this time.
    pub p50_ms: f64,
    /// 99 % of them were done in this time.
    pub p99_ms: f64,
    /// The longest.
    pub longest_ms: f64,
    /// Number of operations that were due.
    pub due: u64,
    /// Those of them that were given up; they count with the time that they had waited.
    pub unfinished: u64,
    /// The caches before it.
    pub caches: CacheState,
    /// Service times of the operations, without waiting.
    pub operations: Vec<OperationTime>,
}

/// Service time of an operation, without waiting.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OperationTime {
    /// Name of the operation.
    pub operation: String,
    /// Number of executions.
    pub count: u64,
    /// Mean time, in milliseconds.
    pub mean_ms: f64,
    /// The longest, in milliseconds.
    pub longest_ms: f64,
}

/// Details of `bench cache`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct CacheDetails {
    /// The workload.
    pub workload: String,
    /// Cache sizes of the matrix; the series have the seconds of each cache size (`level`) and block size
    /// (`second_level`).
    pub cache_sizes_bytes: Vec<u64>,
    /// Block sizes.
    pub block_sizes_bytes: Vec<u64>,
    /// What the device read in each cell, which explains the run time.
    pub cells: Vec<CacheCell>,
    /// Time of one run without a limit, on the first subject.
    pub unlimited_seconds: f64,
    /// Its peak memory, page cache and memory of programs together.
    pub footprint_bytes: u64,
    /// A run that took longer was killed.
    pub longest_seconds: f64,
    /// The least limit with which it runs, found on the first subject; `None` if it was not searched for.
    pub least_bytes: Option<u64>,
}

/// A cell of the matrix of `bench cache`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CacheCell {
    /// Index of the subject.
    pub subject: usize,
    /// Limit for page cache and memory of programs together.
    #[serde(rename = "cache_bytes")]
    pub limit_bytes: u64,
    /// Block size of the file system.
    pub block_bytes: u64,
    /// Bytes read from the device during a run; median.
    pub read_bytes: u64,
    /// Reads from the device; median.
    pub reads: u64,
    /// Bytes that the processes read from any device; median. `None` if the kernel does not count them.
    pub process_read_bytes: Option<u64>,
    /// Largest page cache that was sampled.
    pub page_cache_bytes: u64,
    /// Largest memory of programs that was sampled.
    pub anonymous_bytes: u64,
    /// Why there is no time, or fewer samples than rounds.
    pub failure: Option<CellFailure>,
}

/// Why a run with a limit failed. It is not tried again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellFailure {
    /// The reason.
    pub kind: FailureKind,
    /// The same in words.
    pub cause: String,
}

/// Reasons for a run to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureKind {
    /// It exceeded the time limit.
    TooLong,
    /// It needed more memory than the limit.
    OutOfMemory,
    /// It failed on its own.
    Failed,
}
