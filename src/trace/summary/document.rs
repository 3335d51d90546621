//! The JSON form of a summary: `granulo/trace/1` in docs/SCHEMA.md.

use serde::Serialize;

use super::{BLOCK_SIZES, FileCounts, Interval, Pattern, ReadWrite, Side, SizeRow, Summary, UNKNOWN_SIZE};
use crate::distribution::{Bucket, Distribution, Encoded};
use crate::program;
use crate::trace::{Clock, Detail, Kind, Problems, Source};
use crate::units::{civil, escape};

/// All results for a trace, for other programs.
#[derive(Debug, Clone, Serialize)]
pub struct Document {
    schema: &'static str,
    granulo_version: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    granulo_commit: Option<&'static str>,
    name: String,
    recorder: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<String>,
    command: Option<String>,
    clock: Clock,
    detail: Detail,
    operations: u64,
    processes: u64,
    start_ns: Option<u64>,
    /// The same as RFC 3339, if it is the time of day.
    #[serde(skip_serializing_if = "Option::is_none")]
    started_at: Option<String>,
    span_seconds: f64,
    kinds: Vec<KindRow>,
    reads: SideRecord,
    writes: SideRecord,
    read_write: ReadWriteRatio,
    files: Files,
    rates: RatesRecord,
    problems: Problems,
    notes: Vec<String>,
}

#[derive(Debug, Clone, Serialize)]
struct KindRow {
    kind: Kind,
    count: u64,
    failed: u64,
    bytes: u128,
    /// `null` if no times are known.
    seconds: Option<f64>,
    timed: u64,
}

#[derive(Debug, Clone, Serialize)]
struct SideRecord {
    /// `null` if individual requests are not known.
    requests: Option<Sizes>,
    empty_requests: u64,
    whole: Sizes,
    file_size: Sizes,
    one_block: Vec<OneBlock>,
    patterns: Vec<PatternRow>,
    by_file_size: Vec<FileSizeRow>,
}

#[derive(Debug, Clone, Serialize)]
struct Sizes {
    unit: &'static str,
    count: u128,
    min: u64,
    max: u64,
    mean: f64,
    total: u128,
    deciles: [u64; 10],
    deciles_by_total: [u64; 10],
    buckets: Vec<Bucket>,
    detail: Encoded,
}

#[derive(Debug, Clone, Serialize)]
struct OneBlock {
    block_bytes: u64,
    whole_fraction: f64,
    requests_fraction: Option<f64>,
    requests_within_fraction: Option<f64>,
}

#[derive(Debug, Clone, Serialize)]
struct PatternRow {
    pattern: &'static str,
    count: u64,
    bytes: u128,
}

#[derive(Debug, Clone, Serialize)]
struct FileSizeRow {
    /// Both `null` for unknown sizes.
    low: Option<u128>,
    high: Option<u128>,
    whole: u64,
    requests: u64,
    bytes: u128,
}

#[derive(Debug, Clone, Serialize)]
struct ReadWriteRatio {
    requests: Option<f64>,
    whole: Option<f64>,
    bytes: Option<f64>,
}

#[derive(Debug, Clone, Serialize)]
struct Files {
    touched: u64,
    read: u64,
    written: u64,
    only_read: u64,
    only_written: u64,
    both: u64,
    read_once: u64,
    written_once: u64,
    temporary: u64,
}

#[derive(Debug, Clone, Serialize)]
struct RatesRecord {
    start_ns: u64,
    interval_seconds: f64,
    intervals: Vec<Interval>,
}

impl Document {
    /// Name of the trace, escaped.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The machine that it was recorded on, escaped, if the trace says so.
    pub fn host(&self) -> Option<&str> {
        self.host.as_deref()
    }

    /// When it begins, RFC 3339, if its times are not of another clock.
    pub fn started_at(&self) -> Option<&str> {
        self.started_at.as_deref()
    }

    /// Creates the document of a summary, from a source that was read to its end.
    pub fn new(name: &str, summary: &Summary, source: &dyn Source) -> Document {
        let origin = source.origin();
        let ReadWrite { reads, writes } = &summary.sides;
        let ratio = |figure: fn(&Side) -> u128| {
            let (reads, writes) = (figure(reads), figure(writes));
            (writes > 0).then(|| reads as f64 / writes as f64)
        };
        Document {
            schema: "granulo/trace/1",
            granulo_version: program::VERSION,
            granulo_commit: program::commit(),
            name: name.to_owned(),
            recorder: origin.recorder.clone(),
            host: origin.host.clone(),
            command: origin.command.clone(),
            clock: origin.clock,
            detail: origin.detail,
            operations: summary.operations,
            processes: source.processes().len() as u64,
            start_ns: summary.span_ns.map(|(first, _)| first),
            started_at: summary.span_ns.filter(|_| origin.clock == Clock::Wall).map(|(first, _)| rfc_3339(first)),
            span_seconds: summary.span_seconds(),
            kinds: kinds(summary),
            reads: SideRecord::new(reads, summary.has_requests),
            writes: SideRecord::new(writes, summary.has_requests),
            read_write: ReadWriteRatio {
                requests: ratio(|side| side.requests.count()),
                whole: ratio(|side| side.whole.count()),
                bytes: ratio(|side| side.whole.total()),
            },
            files: Files::new(&summary.files),
            rates: RatesRecord {
                start_ns: summary.rates.start_ns,
                interval_seconds: summary.rates.width_ns as f64 / 1e9,
                intervals: summary.rates.intervals.clone(),
            },
            problems: source.problems().clone(),
            notes: origin.notes.clone(),
        }
    }
}

/// A time in nanoseconds since 1970, to the second.
fn rfc_3339(nanoseconds: u64) -> String {
    let (year, month, day, hour, minute, second) = civil((nanoseconds / 1_000_000_000) as i64);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

fn kinds(summary: &Summary) -> Vec<KindRow> {
    let met = Kind::ALL.into_iter().filter(|&kind| summary.kind(kind).count > 0);
    let row = |kind| {
        let counted = summary.kind(kind);
        KindRow {
            kind,
            count: counted.count,
            failed: counted.failed,
            bytes: counted.bytes,
            seconds: (counted.timed > 0).then_some(counted.duration_ns as f64 / 1e9),
            timed: counted.timed,
        }
    };
    met.map(row).collect()
}

impl SideRecord {
    fn new(side: &Side, has_requests: bool) -> SideRecord {
        let one_block = |block_bytes: u64| OneBlock {
            block_bytes,
            whole_fraction: side.whole_served(block_bytes),
            requests_fraction: has_requests.then(|| side.requests_served(block_bytes)),
            requests_within_fraction: has_requests.then(|| side.requests_within(block_bytes)),
        };
        let patterns = Pattern::ALL.iter().map(|&pattern| {
            let share = side.patterns[pattern as usize];
            PatternRow { pattern: pattern.name(), count: share.count, bytes: share.bytes }
        });
        let rows = side.by_file_size.iter().enumerate().filter(|(_, row)| **row != SizeRow::default());
        let rows = rows.map(|(number, row)| {
            let bucket = (number != UNKNOWN_SIZE).then(|| Bucket::of(number as u32));
            FileSizeRow {
                low: bucket.map(|bucket| bucket.low),
                high: bucket.map(|bucket| bucket.high),
                whole: row.whole,
                requests: row.requests,
                bytes: row.bytes,
            }
        });
        SideRecord {
            requests: has_requests.then(|| Sizes::new(&side.requests)),
            empty_requests: side.empty,
            whole: Sizes::new(&side.whole),
            file_size: Sizes::new(&side.file_sizes),
            one_block: BLOCK_SIZES.into_iter().map(one_block).collect(),
            patterns: if has_requests { patterns.collect() } else { Vec::new() },
            by_file_size: rows.collect(),
        }
    }
}

impl Sizes {
    fn new(sizes: &Distribution) -> Sizes {
        Sizes {
            unit: "bytes",
            count: sizes.count(),
            min: sizes.min(),
            max: sizes.max(),
            mean: sizes.mean(),
            total: sizes.total(),
            deciles: sizes.deciles(),
            deciles_by_total: sizes.deciles_by_sum(),
            buckets: sizes.buckets(),
            detail: Encoded::from(sizes),
        }
    }
}

impl Files {
    fn new(files: &FileCounts) -> Files {
        Files {
            touched: files.touched,
            read: files.read(),
            written: files.written(),
            only_read: files.only_read,
            only_written: files.only_written,
            both: files.both,
            read_once: files.read_once,
            written_once: files.written_once,
            temporary: files.temporary,
        }
    }
}

/// A command as a user would type it, escaped.
pub fn typed(command: &[std::ffi::OsString]) -> String {
    use std::os::unix::ffi::OsStrExt;
    let words: Vec<String> = command.iter().map(|word| escape(word.as_bytes())).collect();
    words.join(" ")
}
