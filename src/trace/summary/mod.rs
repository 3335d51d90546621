//! The summary of a trace: operations by kind, sizes of reads and writes as individual requests and as whole-file
//! operations, the share that one block serves, patterns, files, rates.
//!
//! One pass, in memory that grows with the number of files and of simultaneous opens, not of operations. Invariants:
//! every read and write that moved bytes is in exactly one pattern, if requests are known, in one whole-file operation,
//! which is in one row by file size, and in one interval of the rates; docs/METHOD.md defines each figure.

mod document;
mod rates;
mod runs;
#[cfg(test)]
mod tests;

pub use document::{Document, typed};
pub use rates::{Interval, Rates};
pub use runs::{Pattern, Share};

use crate::distribution::{Distribution, bucket_number};
use crate::trace::{Detail, Kind, Operation, Source};
use crate::units::fraction;
use runs::{Moved, Runs};

/// Block sizes for which the share that one block serves is reported: 512 B to 16 MiB.
pub const BLOCK_SIZES: [u64; 16] = {
    let mut sizes = [0; 16];
    let mut at = 0;
    while at < sizes.len() {
        sizes[at] = 512 << at;
        at += 1;
    }
    sizes
};

/// Rows by file size: one per power of two, and one for unknown sizes.
pub const SIZE_ROWS: usize = 66;
/// The row of unknown sizes.
pub const UNKNOWN_SIZE: usize = SIZE_ROWS - 1;

/// Options for counting.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// If a trace has no opens: the pause after which another whole-file operation begins.
    pub gap_ns: u64,
    /// Whether mapped ranges count as read.
    pub maps_are_reads: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options { gap_ns: 1_000_000_000, maps_are_reads: false }
    }
}

/// Totals of a kind of operation.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct KindCount {
    /// Number of operations.
    pub count: u64,
    /// Number of failed ones.
    pub failed: u64,
    /// Bytes read, written or mapped.
    pub bytes: u128,
    /// Total duration of operations whose duration is known.
    pub duration_ns: u128,
    /// Number of these operations.
    pub timed: u64,
}

/// A figure for reads, and the same for writes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ReadWrite<T> {
    /// For reads.
    pub reads: T,
    /// For writes.
    pub writes: T,
}

impl<T> ReadWrite<T> {
    /// The figure for writes or for reads.
    pub fn of(&mut self, writes: bool) -> &mut T {
        if writes { &mut self.writes } else { &mut self.reads }
    }
}

/// Reads or writes of files with one size at the end of the whole-file operation.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct SizeRow {
    /// Whole-file operations.
    pub whole: u64,
    /// Individual requests.
    pub requests: u64,
    /// Bytes.
    pub bytes: u128,
}

/// Reads, or writes.
#[derive(Debug, Clone)]
pub struct Side {
    /// Sizes of individual requests that moved bytes.
    pub requests: Distribution,
    /// Requests that moved no bytes: mostly at the end of a file.
    pub empty: u64,
    /// Sizes of whole-file operations: all bytes from open to close.
    pub whole: Distribution,
    /// File sizes at whole-file operations, if they are known.
    pub file_sizes: Distribution,
    /// Requests by the logarithm of the smallest aligned block that contains them, for known offsets.
    pub aligned: [u64; 65],
    /// Requests by pattern.
    pub patterns: [Share; Pattern::ALL.len()],
    /// By size of the file: one row per [`bucket_number`].
    pub by_file_size: [SizeRow; SIZE_ROWS],
}

impl Default for Side {
    fn default() -> Side {
        Side {
            requests: Distribution::default(),
            empty: 0,
            whole: Distribution::default(),
            file_sizes: Distribution::default(),
            aligned: [0; 65],
            patterns: Default::default(),
            by_file_size: [SizeRow::default(); SIZE_ROWS],
        }
    }
}

impl Side {
    /// Share of whole-file operations that one block of a size serves, by their size.
    pub fn whole_served(&self, block_bytes: u64) -> f64 {
        fraction(self.whole.up_to(block_bytes).count, self.whole.count())
    }

    /// Share of requests that one block of a size serves, by their size alone.
    pub fn requests_served(&self, block_bytes: u64) -> f64 {
        fraction(self.requests.up_to(block_bytes).count, self.requests.count())
    }

    /// Share of requests that do not cross a boundary between blocks of a size, a power of two, for known offsets.
    pub fn requests_within(&self, block_bytes: u64) -> f64 {
        let sum = |counts: &[u64]| counts.iter().map(|&count| u128::from(count)).sum();
        let fits = block_bytes.ilog2() as usize;
        fraction(sum(&self.aligned[..=fits]), sum(&self.aligned))
    }
}

/// Use of files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FileCounts {
    /// Files and directories on which an operation succeeded.
    pub touched: u64,
    /// Files that were read and never written.
    pub only_read: u64,
    /// Files that were written and never read.
    pub only_written: u64,
    /// Files that were read and written.
    pub both: u64,
    /// Files that were read by exactly one whole-file operation.
    pub read_once: u64,
    /// Files that were written by exactly one.
    pub written_once: u64,
    /// Files that were created or truncated, and later removed.
    pub temporary: u64,
}

impl FileCounts {
    /// Files that were read.
    pub fn read(&self) -> u64 {
        self.only_read + self.both
    }

    /// Files that were written.
    pub fn written(&self) -> u64 {
        self.only_written + self.both
    }
}

/// Use of one file.
#[derive(Debug, Clone, Copy, Default)]
struct Use {
    reads: u32,
    writes: u32,
    touched: bool,
    created: bool,
    removed: bool,
}

/// The summary of a trace.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    /// All operations.
    pub operations: u64,
    /// Start times of the first and the last operation.
    pub span_ns: Option<(u64, u64)>,
    /// By kind, indexed by its number.
    pub kinds: [KindCount; Kind::ALL.len()],
    /// Reads and writes.
    pub sides: ReadWrite<Side>,
    /// Files.
    pub files: FileCounts,
    /// Rates over time.
    pub rates: Rates,
    /// Whether individual requests are known.
    pub has_requests: bool,
}

impl Summary {
    /// Time from the first operation to the last, in seconds.
    pub fn span_seconds(&self) -> f64 {
        self.span_ns.map_or(0.0, |(first, last)| (last - first) as f64 / 1e9)
    }

    /// Totals of one kind.
    pub fn kind(&self, kind: Kind) -> &KindCount {
        &self.kinds[kind as usize]
    }
}

/// Collects operations one by one.
#[derive(Debug)]
pub struct Collector {
    options: Options,
    detail: Detail,
    summary: Summary,
    runs: Runs,
    uses: Vec<Use>,
}

impl Collector {
    /// An empty collector for operations of this granularity.
    pub fn new(options: Options, detail: Detail) -> Collector {
        let summary = Summary { has_requests: detail == Detail::Requests, ..Summary::default() };
        Collector { options, detail, summary, runs: Runs::new(options.gap_ns), uses: Vec::new() }
    }

    /// Number of operations so far.
    pub fn operations(&self) -> u64 {
        self.summary.operations
    }

    /// Adds an operation.
    pub fn take(&mut self, operation: &Operation) {
        let summary = &mut self.summary;
        summary.operations += 1;
        let (first, last) = summary.span_ns.unwrap_or((operation.time_ns, operation.time_ns));
        summary.span_ns = Some((first.min(operation.time_ns), last.max(operation.time_ns)));
        let kind = &mut summary.kinds[operation.kind as usize];
        kind.count += 1;
        kind.failed += u64::from(operation.failed);
        if operation.kind.moves_bytes() {
            kind.bytes += u128::from(operation.length_bytes);
        }
        if let Some(duration) = operation.duration_ns {
            kind.duration_ns += u128::from(duration);
            kind.timed += 1;
        }
        summary.rates.take(operation, self.options.maps_are_reads);
        self.note_use(operation);
        match operation.kind {
            _ if operation.failed => {}
            Kind::Read => self.transfer(operation, false),
            Kind::Map if self.options.maps_are_reads => self.transfer(operation, false),
            Kind::Write => self.transfer(operation, true),
            Kind::Close => self.runs.close(operation, &mut self.summary.sides, &mut self.uses),
            _ => {}
        }
    }

    fn note_use(&mut self, operation: &Operation) {
        let Some(file) = operation.file.filter(|_| !operation.failed) else { return };
        let at = file as usize;
        if at >= self.uses.len() {
            self.uses.resize(at + 1, Use::default());
        }
        let used = &mut self.uses[at];
        used.touched = true;
        used.created |= operation.kind == Kind::Create;
        used.removed |= operation.kind == Kind::Unlink;
    }

    fn transfer(&mut self, operation: &Operation, writes: bool) {
        let side = self.summary.sides.of(writes);
        if operation.length_bytes == 0 {
            side.empty += 1;
            // It may still report the size of the file.
            self.runs.see_size(operation);
            return;
        }
        match self.detail {
            Detail::WholeFiles => {
                let moved = Moved { bytes: operation.length_bytes, requests: 0 };
                runs::end_run(side, writes, moved, operation.file_size_bytes, operation.file, &mut self.uses);
            }
            Detail::Requests => {
                side.requests.record(operation.length_bytes);
                if let Some(offset) = operation.offset_bytes {
                    let last = offset.saturating_add(operation.length_bytes - 1);
                    side.aligned[(u64::BITS - (offset ^ last).leading_zeros()) as usize] += 1;
                }
                self.runs.transfer(operation, writes, &mut self.summary.sides, &mut self.uses);
            }
        }
    }

    /// Ends everything that is still open, and computes the totals.
    pub fn finish(mut self) -> Summary {
        self.runs.finish(&mut self.summary.sides, &mut self.uses);
        let files = &mut self.summary.files;
        for used in &self.uses {
            files.touched += u64::from(used.touched);
            files.only_read += u64::from(used.reads > 0 && used.writes == 0);
            files.only_written += u64::from(used.reads == 0 && used.writes > 0);
            files.both += u64::from(used.reads > 0 && used.writes > 0);
            files.read_once += u64::from(used.reads == 1);
            files.written_once += u64::from(used.writes == 1);
            files.temporary += u64::from(used.created && used.removed);
        }
        self.summary
    }
}

/// The row of a file size.
fn row_of(size_bytes: Option<u64>) -> usize {
    size_bytes.map_or(UNKNOWN_SIZE, |size| bucket_number(size) as usize)
}

/// Summarises all operations of a source. `each` is called with every one of them, and stops by returning `false`.
///
/// # Errors
/// Errors from reading, or from `each`.
pub fn summarise(
    source: &mut dyn Source,
    options: Options,
    mut each: impl FnMut(&Operation, &dyn Source) -> crate::error::Result<bool>,
) -> crate::error::Result<Summary> {
    let mut collector = Collector::new(options, source.origin().detail);
    while let Some(operation) = source.next()? {
        collector.take(&operation);
        if !each(&operation, source)? {
            break;
        }
    }
    Ok(collector.finish())
}
