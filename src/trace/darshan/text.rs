//! The output of darshan-parser and darshan-dxt-parser, line by line: counters of a file and a rank, and individual
//! reads and writes.

use crate::trace::problems::excerpt;
use crate::trace::{Index, Names, Problems, Trouble};

/// Counters that are used, by their index in [`Record::counters`]; without the prefix of the module.
const COUNTERS: [&str; 41] = [
    "OPENS",
    "READS",
    "WRITES",
    "STATS",
    "MMAPS",
    "FSYNCS",
    "FDSYNCS",
    "RENAME_SOURCES",
    "BYTES_READ",
    "BYTES_WRITTEN",
    "MAX_BYTE_READ",
    "MAX_BYTE_WRITTEN",
    "FDOPENS",
    "SIZE_READ_0_100",
    "SIZE_READ_100_1K",
    "SIZE_READ_1K_10K",
    "SIZE_READ_10K_100K",
    "SIZE_READ_100K_1M",
    "SIZE_READ_1M_4M",
    "SIZE_READ_4M_10M",
    "SIZE_READ_10M_100M",
    "SIZE_READ_100M_1G",
    "SIZE_READ_1G_PLUS",
    "SIZE_WRITE_0_100",
    "SIZE_WRITE_100_1K",
    "SIZE_WRITE_1K_10K",
    "SIZE_WRITE_10K_100K",
    "SIZE_WRITE_100K_1M",
    "SIZE_WRITE_1M_4M",
    "SIZE_WRITE_4M_10M",
    "SIZE_WRITE_10M_100M",
    "SIZE_WRITE_100M_1G",
    "SIZE_WRITE_1G_PLUS",
    "ACCESS1_ACCESS",
    "ACCESS2_ACCESS",
    "ACCESS3_ACCESS",
    "ACCESS4_ACCESS",
    "ACCESS1_COUNT",
    "ACCESS2_COUNT",
    "ACCESS3_COUNT",
    "ACCESS4_COUNT",
];

/// Times that are used, by their index in [`Record::seconds`]; a log has one of the names.
const TIMES: [[&str; 2]; 6] = [
    ["F_OPEN_START_TIMESTAMP", "F_OPEN_TIMESTAMP"],
    ["F_READ_START_TIMESTAMP", ""],
    ["F_READ_END_TIMESTAMP", ""],
    ["F_WRITE_START_TIMESTAMP", ""],
    ["F_WRITE_END_TIMESTAMP", ""],
    ["F_CLOSE_END_TIMESTAMP", "F_CLOSE_TIMESTAMP"],
];

/// Indices of counters.
pub(super) mod counter {
    pub(crate) const OPENS: usize = 0;
    pub(crate) const READS: usize = 1;
    pub(crate) const WRITES: usize = 2;
    pub(crate) const STATS: usize = 3;
    pub(crate) const MMAPS: usize = 4;
    pub(crate) const FSYNCS: usize = 5;
    pub(crate) const FDSYNCS: usize = 6;
    pub(crate) const RENAMES: usize = 7;
    pub(crate) const BYTES_READ: usize = 8;
    pub(crate) const BYTES_WRITTEN: usize = 9;
    pub(crate) const MAX_BYTE_READ: usize = 10;
    pub(crate) const MAX_BYTE_WRITTEN: usize = 11;
    pub(crate) const FDOPENS: usize = 12;
    pub(crate) const READ_SIZES: usize = 13;
    pub(crate) const WRITE_SIZES: usize = 23;
    pub(crate) const ACCESS_SIZES: usize = 33;
    pub(crate) const ACCESS_COUNTS: usize = 37;
}

/// Indices of times.
pub(super) mod time {
    pub(crate) const OPEN: usize = 0;
    pub(crate) const READ_START: usize = 1;
    pub(crate) const READ_END: usize = 2;
    pub(crate) const WRITE_START: usize = 3;
    pub(crate) const WRITE_END: usize = 4;
    pub(crate) const CLOSE: usize = 5;
}

/// Largest number of individual reads and writes that are kept for sorting.
const MOST_SEGMENTS: usize = 1 << 24;
/// Largest number of records.
const MOST_RECORDS: usize = 1 << 20;

/// The layer of a log that is used. Calls of MPI-IO and HDF5 appear as these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Module {
    /// read(2), write(2) and the like.
    Posix,
    /// fread(3), fwrite(3) and the like.
    Stdio,
}

/// Counters of a file for a rank.
#[derive(Debug, Clone)]
pub(super) struct Record {
    /// Layer of the calls.
    pub module: Module,
    /// Rank of the process; -1 for all of them together.
    pub rank: i64,
    /// Its number in [`Log::files`].
    pub file: u32,
    /// Counts and sizes; -1 if Darshan does not know one.
    pub counters: [i64; COUNTERS.len()],
    /// Seconds since the job began; 0 if there is none.
    pub seconds: [f64; TIMES.len()],
}

/// An individual read or write.
#[derive(Debug, Clone, Copy)]
pub(super) struct Segment {
    /// Start time, in nanoseconds since the job began.
    pub start_ns: u64,
    /// Duration.
    pub duration_ns: u64,
    /// Offset in the file.
    pub offset_bytes: u64,
    /// Length.
    pub length_bytes: u64,
    /// Its number in [`Log::files`].
    pub file: u32,
    /// Rank of the process.
    pub rank: i32,
    /// Whether it wrote.
    pub wrote: bool,
}

/// A log, as far as it was read.
#[derive(Debug, Default)]
pub(super) struct Log {
    /// Start of the job, in seconds since 1970.
    pub start_seconds: Option<u64>,
    /// The command.
    pub command: Option<String>,
    /// Names of files.
    pub files: Names,
    /// Counters of files and ranks.
    pub records: Vec<Record>,
    /// Individual reads and writes.
    pub segments: Vec<Segment>,
    /// Problems found.
    pub problems: Problems,
    index: Index,
    /// Module, rank and record of the current counters.
    open: Option<(Module, i64, u64)>,
    /// The file of the current individual operations.
    traced: Option<u32>,
}

impl Log {
    /// Parses a line.
    pub(super) fn line(&mut self, line: &[u8]) {
        let trimmed = line.trim_ascii();
        if trimmed.starts_with(b"#") {
            self.comment(trimmed.trim_ascii_start());
        } else if trimmed.starts_with(b"X_") {
            if self.segment(trimmed).is_none() {
                self.problems.count(Trouble::Unreadable, || excerpt(line));
            }
        } else if !trimmed.is_empty() && self.counter(line).is_none() {
            self.problems.count(Trouble::Unreadable, || excerpt(line));
        }
    }

    fn comment(&mut self, line: &[u8]) {
        let Some(text) = line.get(1..).map(<[u8]>::trim_ascii_start) else { return };
        if let Some(rest) = text.strip_prefix(b"DXT, file_id:") {
            const NAME: &[u8] = b", file_name: ";
            let at = rest.windows(NAME.len()).position(|window| window == NAME);
            self.traced = at.and_then(|at| self.index.number(&mut self.files, &rest[at + NAME.len()..]));
        } else if let Some(rest) = text.strip_prefix(b"start_time:") {
            self.start_seconds = number(rest.trim_ascii());
        } else if let Some(rest) = text.strip_prefix(b"exe:") {
            self.command = Some(excerpt(rest.trim_ascii()));
        } else if text.starts_with(b"*WARNING*") || text.starts_with(b"*ERROR*") {
            self.problems.count(Trouble::Lost, || excerpt(text));
        }
    }

    /// Fields: module, rank, record, counter, value, file, mount point, file system.
    fn counter(&mut self, line: &[u8]) -> Option<()> {
        let mut fields = line.split(|&b| b == b'\t');
        let module = fields.next()?.trim_ascii();
        let rank: i64 = number(fields.next()?)?;
        let id: u64 = number(fields.next()?)?;
        let (name, value, file) = (fields.next()?, fields.next()?, fields.next()?);
        let module = match module {
            b"POSIX" => Module::Posix,
            b"STDIO" => Module::Stdio,
            _ => return Some(()),
        };
        if self.open != Some((module, rank, id)) {
            // Standard streams are not files.
            let stream = [&b"<STDIN>"[..], b"<STDOUT>", b"<STDERR>"].contains(&file);
            let full = self.records.len() >= MOST_RECORDS;
            let number = if stream || full { None } else { self.index.number(&mut self.files, file) };
            if !stream && number.is_none() {
                self.problems.count(Trouble::TooMany, || format!("files and ranks, starting with {}", excerpt(file)));
            }
            self.open = Some((module, rank, id));
            let file = number.unwrap_or(u32::MAX);
            if number.is_some() {
                self.records.push(Record {
                    module,
                    rank,
                    file,
                    counters: [0; COUNTERS.len()],
                    seconds: [0.0; TIMES.len()],
                });
            } else {
                // Counters that follow belong to no record.
                self.open = None;
                return Some(());
            }
        }
        let record = self.records.last_mut()?;
        let name = name.get(name.iter().position(|&b| b == b'_')? + 1..)?;
        if let Some(at) = COUNTERS.iter().position(|known| known.as_bytes() == name) {
            record.counters[at] = number(value)?;
        } else if let Some(at) = TIMES.iter().position(|known| known.iter().any(|known| known.as_bytes() == name)) {
            record.seconds[at] = number::<f64>(value).filter(|seconds| seconds.is_finite())?;
        }
        Some(())
    }

    /// Fields: module, rank, write or read, number, offset, length, start, end; then Lustre's targets or a thread.
    fn segment(&mut self, line: &[u8]) -> Option<()> {
        let mut fields = line.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty());
        if fields.next()? != b"X_POSIX" {
            return Some(());
        }
        let rank: i32 = number(fields.next()?)?;
        let wrote = match fields.next()? {
            b"write" => true,
            b"read" => false,
            _ => return None,
        };
        let _: u64 = number(fields.next()?)?;
        let (offset, length): (u64, u64) = (number(fields.next()?)?, number(fields.next()?)?);
        let (start, end): (f64, f64) = (number(fields.next()?)?, number(fields.next()?)?);
        offset.checked_add(length)?;
        let Some(file) = self.traced else {
            self.problems.count(Trouble::UnknownFile, || excerpt(line));
            return Some(());
        };
        if self.segments.len() >= MOST_SEGMENTS {
            self.problems
                .count(Trouble::TooMany, || format!("individual reads and writes, starting with {}", excerpt(line)));
            return Some(());
        }
        self.segments.push(Segment {
            start_ns: nanoseconds(start),
            duration_ns: nanoseconds(end - start),
            offset_bytes: offset,
            length_bytes: length,
            file,
            rank,
            wrote,
        });
        Some(())
    }
}

/// Nanoseconds from seconds as an arbitrary float.
pub(super) fn nanoseconds(seconds: f64) -> u64 {
    (seconds.max(0.0) * 1e9).round() as u64
}

fn number<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    std::str::from_utf8(text).ok()?.trim().parse().ok()
}
