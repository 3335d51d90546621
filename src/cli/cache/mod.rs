//! `granulo cache`: a trace against caches of several sizes, with blocks of several sizes.

mod beside;
mod events;

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use super::output::{LongResult, refuse_to_replace};
use super::progress::during;
use super::trace::opening::Opening;
use super::trace::{count, only_below};
use super::{Ended, output, signals, usage_error};
use crate::bench;
use crate::error::{Error, ErrorKind, Result};
use crate::mrc::device::{self, Device};
use crate::mrc::policy::Policy;
use crate::mrc::study::{self, Study, StudyRequest, TraceResult, Writes};
use crate::plan::Caching;
use crate::program;
use crate::progress::{Progress, Snapshot};
use crate::report;
use crate::survey::file::format_time;
use crate::trace::{Source, open};
use crate::units::{GIB, KIB, escape_path, format_count, format_share, format_size, parse_percent, parse_size};
use beside::BenchResult;
use events::Events;

/// Predict miss ratios and run time of a trace for any cache size and block size
///
/// Splits requests into blocks; one pass per block size gives the exact LRU miss ratio at every cache size, as long
/// as memory allows. Beyond that, or with --sample, a sample of the blocks is used and its error is reported. A
/// device with a latency and a bandwidth turns misses into time. TRACE is anything that granulo trace reads.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  granulo trace record -o build.gtrace -- make\n  granulo cache build.gtrace\n  \
    granulo cache build.gtrace --block-size 1K,2K,4K,8K --cache-size 0.5M..8M --device disk\n  \
    granulo cache build.gtrace --policy all --cache-size 16M,64M --block-size 4K\n  \
    granulo cache build.gtrace --measure /dev/sdb --beside cache.json\n\nExit status: 0 success; 1 finished with problems \
    (interrupted, a damaged trace); 2 failed.")]
pub(super) struct CacheArguments {
    #[command(flatten)]
    opening: Opening,
    /// Only files at or below this path; may be repeated
    #[arg(long, value_name = "PATH")]
    below: Vec<PathBuf>,
    /// Whether mappings and program starts count as reads of the ranges they cover
    #[arg(long, value_name = "HOW", default_value = "read")]
    mapped: Mapped,
    /// Skip longer requests, and count them
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "64GiB")]
    longest_request: u64,

    /// Block sizes [default: 1K,2K,4K,8K,16K,32K,64K]
    #[arg(long, value_name = "SIZE", value_delimiter = ',', value_parser = parse_size, help_heading = "Caches")]
    block_size: Vec<u64>,
    /// Cache sizes; A..B means A, doubling up to B [default: 0.5M..8G]
    #[arg(long, value_name = "SIZE", value_delimiter = ',', value_parser = sizes, help_heading = "Caches")]
    cache_size: Vec<Sizes>,
    /// Also simulate other policies: fifo, clock, 2q, s3-fifo, arc, lru, all
    #[arg(long, value_name = "POLICY", value_delimiter = ',', value_parser = policies, help_heading = "Caches")]
    policy: Vec<Policies>,
    /// When to write to the device
    #[arg(long, value_name = "WHEN", default_value = "back", help_heading = "Caches")]
    writes: WhenWritten,
    /// Find the smallest cache with this miss ratio [default: 50%,20%,10%,5%,2%,1%]
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', value_parser = share, help_heading = "Caches")]
    target: Vec<f64>,

    /// Sample this share of the blocks, but at least 16,384 of each size
    #[arg(long, value_name = "PERCENT", value_parser = share, help_heading = "Samples")]
    sample: Option<f64>,
    /// Track this many blocks of each size, and sample beyond that
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1_000..), help_heading = "Samples")]
    sample_blocks: Option<u64>,
    /// Memory limit for all block sizes together; sampling keeps within it
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "2GiB", help_heading = "Samples")]
    memory: u64,
    /// Number of threads, at most one per block size [default: number of processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024), help_heading = "Samples")]
    threads: Option<u16>,

    /// Device that serves misses: disk (8 ms, 200 MB/s), ssd (100 µs, 500 MB/s), nvme (80 µs, 3 GB/s)
    #[arg(long, value_name = "NAME", value_parser = named_device, default_value = "disk", help_heading = "Time")]
    device: Device,
    /// Latency: time before the first byte of a transfer, such as 8ms or 90us
    #[arg(long, value_name = "TIME", value_parser = latency, help_heading = "Time")]
    latency: Option<f64>,
    /// Bandwidth in bytes per second, such as 200MB
    #[arg(long, value_name = "SIZE", value_parser = bandwidth, help_heading = "Time")]
    bandwidth: Option<u64>,
    /// Measure latency and bandwidth by direct reads at random offsets of this file or block device
    #[arg(long, value_name = "PATH", conflicts_with_all = ["device", "latency", "bandwidth"], help_heading = "Time")]
    measure: Option<PathBuf>,
    /// Run time not spent on the device, such as 9.7s [default: 0; with --beside, fitted to the run with the largest
    /// limit]
    #[arg(long, value_name = "TIME", value_parser = latency, help_heading = "Time")]
    base: Option<f64>,
    /// Result of granulo bench cache for the same workload, to show beside the prediction
    #[arg(long, value_name = "FILE.json", help_heading = "Time")]
    beside: Option<PathBuf>,

    /// Write the result to this file, as JSON
    #[arg(short, long, value_name = "FILE.json", value_parser = output::target(), help_heading = "Results")]
    output: Option<PathBuf>,
    /// Write a self-contained HTML page to this file
    #[arg(long, value_name = "FILE.html", value_parser = output::target(), help_heading = "Results")]
    report: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long, help_heading = "Results")]
    json: bool,
    /// Do not show progress
    #[arg(short, long, help_heading = "Results")]
    quiet: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Mapped {
    /// Count them as reads
    Read,
    /// Ignore them
    Ignore,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum WhenWritten {
    /// When the block is evicted, and at the end
    Back,
    /// Immediately
    Through,
}

/// One or several sizes.
#[derive(Debug, Clone)]
struct Sizes(Vec<u64>);

/// One or several policies.
#[derive(Debug, Clone)]
struct Policies(Vec<Policy>);

type Parsed<T> = std::result::Result<T, String>;

fn sizes(text: &str) -> Parsed<Sizes> {
    let Some((from, to)) = text.split_once("..") else {
        return Ok(Sizes(vec![parse_size(text)?]));
    };
    let (from, to) = (parse_size(from)?, parse_size(to)?);
    if from == 0 || from > to {
        return Err(format!("'{text}' is an empty range; write the smaller size first, such as 0.5M..8G"));
    }
    let doubled = std::iter::successors(Some(from), |size| size.checked_mul(2)).take_while(|&size| size < to);
    Ok(Sizes(doubled.chain([to]).collect()))
}

fn policies(text: &str) -> Parsed<Policies> {
    if text == "all" {
        return Ok(Policies(Policy::EVERY.to_vec()));
    }
    let found = Policy::EVERY.into_iter().find(|policy| policy.name().eq_ignore_ascii_case(text));
    found.map(|policy| Policies(vec![policy])).ok_or_else(|| {
        let names: Vec<String> = Policy::EVERY.iter().map(|policy| policy.name().to_lowercase()).collect();
        format!("the policies are {}, all", names.join(", "))
    })
}

fn share(text: &str) -> Parsed<f64> {
    match parse_percent(text)? {
        share if share > 0.0 && share <= 1.0 => Ok(share),
        _ => Err("it must be more than 0 % and at most 100 %".to_owned()),
    }
}

pub(super) fn named_device(text: &str) -> Parsed<Device> {
    Device::named(text).ok_or_else(|| {
        let names: Vec<&str> = device::NAMED.iter().map(|(name, ..)| *name).collect();
        format!("the devices are {}; use --latency and --bandwidth for others", names.join(", "))
    })
}

fn latency(text: &str) -> Parsed<f64> {
    let wrong = |_| format!("'{text}' is not a time; write, for example, 8ms, 90us or 9s");
    // Fractions, which the parser of times does not accept, with the likely units.
    let units = [("ns", 1e-9), ("us", 1e-6), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0)];
    let given = units.iter().find_map(|(unit, seconds)| {
        let number = text.trim().strip_suffix(unit)?.trim_end().parse::<f64>().ok()?;
        Some(number * seconds)
    });
    match given {
        Some(seconds) if seconds.is_finite() && seconds >= 0.0 => Ok(seconds),
        _ => humantime::parse_duration(text).map(|time| time.as_secs_f64()).map_err(wrong),
    }
}

fn bandwidth(text: &str) -> Parsed<u64> {
    match parse_size(text.trim_end_matches("/s"))? {
        0 => Err("the bandwidth must be more than 0".to_owned()),
        bytes => Ok(bytes),
    }
}

/// Sorted, without duplicates.
fn in_order(mut sizes: Vec<u64>) -> Vec<u64> {
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

impl CacheArguments {
    pub(super) fn run(self) -> Result<Ended> {
        let read: Vec<PathBuf> = std::iter::once(&self.opening.trace).chain(&self.beside).cloned().collect();
        refuse_to_replace(&read, self.output.iter().chain(&self.report))?;
        let bench_result = self.beside.as_deref().map(BenchResult::open).transpose()?;
        let mut request = self.request(bench_result.as_ref())?;
        // Until the first bytes arrive, a signal ends the process.
        let opened = self.opening.open()?;
        let progress = signals::progress()?;
        let mut source = only_below(opened, &self.below, Some(&progress))?;
        if let Some(path) = &self.measure {
            request.device = bench::device::measure(path, progress.stop_flag())?;
        }
        let mut events = Events::new(self.mapped == Mapped::Read);
        let mut found = run_study(&request, &mut *source, &mut events, &progress, self.quiet)?;
        // The filter ends as the trace does.
        found.complete &= self.below.is_empty() || !progress.should_stop();
        let bases = bench_result.as_ref().filter(|_| self.base.is_none()).map(|of| of.bases_seconds(&request, &found));
        if let Some(base) = bases.as_ref().and_then(|bases| bases.first()) {
            // The pass does not depend on it. The study takes that of the first file system.
            request.base_seconds = *base;
        }
        let mut study = request.study(&found, escape_path(&self.opening.trace), events.notes(&*source));
        study.granulo_commit = program::commit().map(str::to_owned);
        study.host = source.origin().host.clone();
        study.written_at = Some(format_time(super::now()));
        study.beside = bench_result.as_ref().and_then(|of| of.beside(&request, &found, bases.as_deref()));
        self.finish(&study, &*source)
    }

    fn request(&self, measured: Option<&BenchResult>) -> Result<StudyRequest> {
        let mut block_sizes_bytes = self.block_size.clone();
        if block_sizes_bytes.is_empty() {
            block_sizes_bytes = (0..7).map(|power| KIB << power).collect();
        }
        block_sizes_bytes.extend(measured.iter().flat_map(|measured| measured.block_sizes_bytes()));
        let block_sizes_bytes = in_order(block_sizes_bytes);
        let cache_sizes_bytes = match self.cache_size.as_slice() {
            [] => sizes("0.5M..8G").map_err(usage_error)?.0,
            given => in_order(given.iter().flat_map(|sizes| sizes.0.clone()).collect()),
        };
        let possible = 16..=GIB;
        if let Some(wrong) = block_sizes_bytes.iter().find(|size| !possible.contains(*size)) {
            let cause = format!("a block size of {} is not supported", format_size((*wrong).into()));
            return Err(usage_error(cause).advise("use block sizes from 16 B to 1 GiB"));
        }
        if block_sizes_bytes.len() > 64 || cache_sizes_bytes.len() > 64 {
            return Err(usage_error("too many sizes").advise("give at most 64 block sizes and 64 cache sizes"));
        }
        if cache_sizes_bytes.last() < block_sizes_bytes.first() {
            return Err(usage_error("no cache can hold even one block").advise("use larger caches or smaller blocks"));
        }
        let mut policies: Vec<Policy> = self.policy.iter().flat_map(|policies| policies.0.clone()).collect();
        policies.sort_unstable();
        policies.dedup();
        let custom = self.latency.is_some() || self.bandwidth.is_some();
        let device = Device {
            name: if custom { "device".to_owned() } else { self.device.name.clone() },
            latency_seconds: self.latency.unwrap_or(self.device.latency_seconds),
            bytes_per_second: self.bandwidth.map_or(self.device.bytes_per_second, |bytes| bytes as f64),
        };
        let mut targets =
            if self.target.is_empty() { vec![0.5, 0.2, 0.1, 0.05, 0.02, 0.01] } else { self.target.clone() };
        targets.sort_by(|one, other| other.total_cmp(one));
        let processors = || std::thread::available_parallelism().map_or(1, usize::from);
        Ok(StudyRequest {
            block_sizes_bytes,
            cache_sizes_bytes,
            rate: self.sample.unwrap_or(1.0),
            most_blocks: self.sample_blocks,
            memory_bytes: self.memory,
            policies,
            writes: if self.writes == WhenWritten::Back { Writes::Back } else { Writes::Through },
            device,
            base_seconds: self.base.unwrap_or(0.0),
            targets,
            longest_bytes: self.longest_request,
            threads: self.threads.map_or_else(processors, usize::from),
        })
    }

    fn finish(&self, study: &Study, source: &dyn Source) -> Result<Ended> {
        let mut warnings: Vec<String> = source
            .problems()
            .list()
            .into_iter()
            .map(|problem| {
                let count = format_count(problem.count.into());
                format!("in the trace: {count} {}; the first: {}", problem.kind.words(), problem.first)
            })
            .collect();
        let seen = &study.seen;
        if seen.too_long > 0 {
            warnings.push(format!(
                "{} requests are longer than {} (the longest {}) and were left out; raise --longest-request to include them",
                format_count(seen.too_long.into()),
                format_size(self.longest_request.into()),
                format_size(seen.longest_bytes.into()),
            ));
        }
        if seen.beyond_end > 0 {
            let count = format_count(seen.beyond_end.into());
            warnings.push(format!("{count} requests end beyond 2^64 bytes and were left out"));
        }
        if seen.reads + seen.writes == 0 {
            warnings.push("nothing in the trace reads or writes a file".to_owned());
        }
        if !study.complete {
            warnings.push("interrupted; the result is that of the trace until then".to_owned());
        }
        let result = LongResult { output: self.output.as_deref(), report: self.report.as_deref(), json: self.json };
        let is_written = result.emit(
            study,
            |out| report::cache_page::write(std::slice::from_ref(study), super::now(), out),
            |out| report::cache::write_study(study, out),
        )?;
        warnings.iter().for_each(|warning| output::warn(warning));
        Ok(if warnings.is_empty() && is_written { Ended::Well } else { Ended::Amiss })
    }
}

/// Studies a trace to its end, or until it is stopped, with a progress line unless `quiet`.
fn run_study(
    request: &StudyRequest,
    source: &mut dyn Source,
    events: &mut Events,
    progress: &Progress,
    quiet: bool,
) -> Result<TraceResult> {
    during(quiet, progress, words, || {
        let mut next = || {
            let event = events.next(source)?;
            count(events.operations(), source, progress);
            Ok(event)
        };
        study::run(request, &mut next, progress)
    })
}

/// Smallest block of a plan.
const LEAST_BLOCK_BYTES: u64 = 512;

/// What an LRU cache of one size makes of a trace, with each block size that a plan may recommend.
///
/// # Errors
/// Any error of reading the trace; a table of sizes without files; a trace that reads and writes nothing.
pub(super) fn caching(trace: &Path, cache_bytes: u64, device: &Device) -> Result<Caching> {
    const OPERATION: &str = "simulate the cache";
    let refuse = |cause: &str| Error::new(ErrorKind::Usage, OPERATION, cause).at(trace);
    if trace.as_os_str() == "-" {
        return Err(refuse("standard input can be read only once").advise("save the trace in a file"));
    }
    if cache_bytes < LEAST_BLOCK_BYTES {
        return Err(refuse("no block fits in the cache").advise("a --cache-size has at least 512 bytes"));
    }
    let mut source = open(trace, None).map_err(|error| match error.kind() {
        ErrorKind::NotRecognised => refuse("it has sizes but no files, so nothing is known about reuse")
            .advise("--cache-size needs a trace; see granulo trace record"),
        _ => error,
    })?;
    let request = StudyRequest {
        block_sizes_bytes: (0..8).map(|power| LEAST_BLOCK_BYTES << power).collect(),
        cache_sizes_bytes: around(cache_bytes),
        rate: 1.0,
        most_blocks: None,
        memory_bytes: 2 * GIB,
        policies: Vec::new(),
        writes: Writes::Back,
        device: device.clone(),
        base_seconds: 0.0,
        targets: Vec::new(),
        longest_bytes: 64 * GIB,
        threads: std::thread::available_parallelism().map_or(1, usize::from),
    };
    let progress = signals::progress()?;
    let mut events = Events::new(true);
    let found = run_study(&request, &mut *source, &mut events, &progress, false)?;
    if !found.complete {
        return Err(refuse("interrupted"));
    }
    if found.seen.reads + found.seen.writes == 0 {
        return Err(refuse("nothing in it reads or writes a file that it names"));
    }
    Ok(Caching::predicted(&request.study(&found, escape_path(trace), Vec::new()), cache_bytes))
}

/// A cache size, and others from a sixteenth of it to four times as much, that hold at least the largest block.
fn around(cache_bytes: u64) -> Vec<u64> {
    let largest_block_bytes = 512 << 7;
    let smaller = (1..=4).rev().map(|power| cache_bytes >> power).filter(|&bytes| bytes >= largest_block_bytes);
    let larger = [2, 4].into_iter().filter_map(|times| cache_bytes.checked_mul(times));
    smaller.chain([cache_bytes]).chain(larger.filter(|&bytes| bytes >= largest_block_bytes)).collect()
}

fn words(now: &Snapshot) -> String {
    let rate = now.operations as f64 / now.elapsed.as_secs_f64().max(0.05);
    let part = match now.total {
        0 => String::new(),
        size => format!(" · {}", format_share((now.bytes as f64 / size as f64).min(1.0))),
    };
    format!("{} operations{part} · {} operations/s", format_count(now.operations.into()), format_count(rate as u128))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_double() {
        assert_eq!(sizes("0.5M..4M").unwrap().0, [1 << 19, 1 << 20, 2 << 20, 4 << 20]);
        assert_eq!(sizes("1M..3M").unwrap().0, [1 << 20, 2 << 20, 3 << 20]);
        assert_eq!(sizes("7K").unwrap().0, [7 << 10]);
        assert_eq!(sizes("1..16E").map(|_| ()).unwrap_err(), parse_size("16E").unwrap_err());
        assert_eq!(sizes("1..15E").unwrap().0.len(), 65);
        for wrong in ["0..8", "8M..4M", "..", "1M..", "x"] {
            assert!(sizes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn times_and_rates_are_read() {
        for (text, seconds) in [("8ms", 8e-3), ("90us", 9e-5), ("1.5 ms", 1.5e-3), ("0s", 0.0), ("1m 30s", 90.0)] {
            assert!((latency(text).unwrap() - seconds).abs() < 1e-12, "{text}");
        }
        for wrong in ["", "8", "-1ms", "ms", "infs", "x"] {
            assert!(latency(wrong).is_err(), "{wrong}");
        }
        assert_eq!(bandwidth("200MB/s"), Ok(200_000_000));
        assert!(bandwidth("0").is_err());
    }

    #[test]
    fn policies_have_the_names_that_they_are_printed_with() {
        for policy in Policy::EVERY {
            assert_eq!(policies(&policy.name().to_lowercase()).unwrap().0, [policy]);
        }
        assert_eq!(policies("all").unwrap().0, Policy::EVERY);
        assert!(policies("mru").unwrap_err().contains("lru, fifo, clock, 2q, s3-fifo, arc, all"));
    }
}
