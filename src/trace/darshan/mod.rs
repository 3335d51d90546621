//! Darshan logs, decoded by Darshan's own parsers: individual reads and writes if the log has them (DXT), otherwise
//! counts and histograms.
//!
//! The output of darshan-parser and darshan-dxt-parser is also accepted, from one or both of them, concatenated. A log
//! is read in full before the first operation is returned, because it lists files, not times.

mod series;
mod text;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use self::series::{MOST_OPERATIONS, Series};
use self::text::{Log, Module, Record, Segment, counter};
use super::input::{Input, Line, OPERATION};
use super::problems::excerpt;
use super::program::{Program, failed, find};
use super::{Clock, Findings, Index, Kind, Names, Operation, Origin, Problems, Source, Trouble};
use crate::error::{Error, ErrorKind, Result};

/// First bytes of a darshan-parser text.
pub(super) const TEXT_MAGIC: &[u8] = b"# darshan log version:";

const LONGEST_LINE_BYTES: usize = 64 << 10;

/// A reader of a log.
#[derive(Debug)]
pub(super) struct Reader {
    series: Vec<Series>,
    /// Time of the next operation of each series; the earliest is on top, and of equal ones the series that was created
    /// first.
    next: BinaryHeap<Reverse<(u64, usize)>>,
    segments: std::vec::IntoIter<Segment>,
    /// Process numbers of ranks.
    ranks: HashMap<i64, u32>,
    openings: HashMap<(u32, i64), u32>,
    sizes: HashMap<u32, u64>,
    start_ns: u64,
    files: Names,
    processes: Names,
    origin: Origin,
    problems: Problems,
    given: u64,
    total: u64,
}

impl Reader {
    /// Reads `input`: a log, or the output of Darshan's parsers.
    ///
    /// # Errors
    /// If a parser is missing or cannot read the log; errors from reading.
    pub(super) fn new(mut input: Input) -> Result<Reader> {
        let mut log = Log::default();
        if input.head().starts_with(TEXT_MAGIC) {
            read(&mut input, &mut log)?;
            return Ok(Reader::of_log(log, Vec::new()));
        }
        let path = input.path().to_owned();
        if path.as_os_str() == "-" {
            return Err(Error::new(ErrorKind::Usage, OPERATION, "Darshan's own parser does not read standard input")
                .advise("name the file, or pipe the output of 'darshan-parser --show-incomplete LOG'"));
        }
        drop(input);
        let mut notes = Vec::new();
        // An absolute path cannot be taken for an option, whatever its first character.
        let file = std::path::absolute(&path).map_err(|error| Error::io(OPERATION, &path, error))?;
        let arguments = ["--show-incomplete".as_ref(), file.as_os_str()];
        find("darshan-parser")?;
        if find("darshan-dxt-parser").is_ok() {
            let (program, mut printed) = Program::start("darshan-dxt-parser", arguments, None, &path)?;
            read(&mut printed, &mut log)?;
            if let Err(words) = program.end() {
                log.problems.count(Trouble::Damaged, || words);
            }
        } else {
            notes.push(
                "The program darshan-dxt-parser is missing: individual reads and writes in the log, if any, \
                are not read."
                    .to_owned(),
            );
        }
        let (program, mut printed) = Program::start("darshan-parser", arguments, None, &path)?;
        read(&mut printed, &mut log)?;
        if let Err(words) = program.end() {
            if log.records.is_empty() && log.segments.is_empty() {
                return Err(failed(&path, words));
            }
            log.problems.count(Trouble::Damaged, || words);
        }
        Ok(Reader::of_log(log, notes))
    }

    fn of_log(mut log: Log, notes: Vec<String>) -> Reader {
        let mut origin = Origin::new("darshan");
        origin.command = log.command.take();
        origin.clock = if log.start_seconds.is_some() { Clock::Wall } else { Clock::Start };
        origin.notes = notes;
        log.segments.sort_by_key(|segment| (segment.start_ns, segment.file, segment.rank));
        let segments = std::mem::take(&mut log.segments);
        let mut reader = Reader {
            series: Vec::new(),
            next: BinaryHeap::new(),
            ranks: HashMap::new(),
            openings: HashMap::new(),
            sizes: HashMap::new(),
            start_ns: log.start_seconds.unwrap_or(0).saturating_mul(1_000_000_000),
            files: std::mem::take(&mut log.files),
            processes: Names::default(),
            origin,
            problems: std::mem::take(&mut log.problems),
            given: 0,
            total: segments.len() as u64,
            segments: Vec::new().into_iter(),
        };
        // Individual operations by file and rank, and by file for the records of all ranks.
        let mut traced: HashMap<(u32, i64), [u64; 2]> = HashMap::new();
        for segment in &segments {
            for rank in [i64::from(segment.rank), -1] {
                traced.entry((segment.file, rank)).or_default()[usize::from(segment.wrote)] += 1;
            }
        }
        let mut process_index = Index::default();
        let ranks =
            segments.iter().map(|segment| i64::from(segment.rank)).chain(log.records.iter().map(|record| record.rank));
        for rank in ranks {
            reader.ranks.entry(rank).or_insert_with(|| {
                let name = if rank < 0 { "all ranks".to_owned() } else { format!("rank {rank}") };
                process_index.number(&mut reader.processes, name.as_bytes()).unwrap_or(0)
            });
        }
        let mut has_untraced = false;
        for record in &log.records {
            let seen = match record.module {
                Module::Posix => traced.get(&(record.file, record.rank)).copied(),
                Module::Stdio => None,
            };
            has_untraced |= seen.is_none();
            reader.add(record, seen);
        }
        for (at, series) in reader.series.iter().enumerate() {
            reader.next.extend(series.time_ns().map(|time| Reverse((time, at))));
        }
        reader.add_notes(has_untraced, !segments.is_empty());
        reader.segments = segments.into_iter();
        reader
    }

    /// Notes on what the log has of the requests: only counts of some files, and individual requests (DXT) of others.
    fn add_notes(&mut self, has_untraced: bool, has_traced: bool) {
        let notes = &mut self.origin.notes;
        if has_untraced {
            notes.push(
                "Darshan counts the requests to a file and does not list them: their sizes are from its histogram, \
                    exact for the four most common ones of a file; they are spread over the period in which the file \
                    was accessed, and their offsets are unknown."
                    .to_owned(),
            );
        }
        if has_traced {
            notes.push(
                "Reads and writes of traced files are individual requests (DXT); other operations are counts, \
                spread over time."
                    .to_owned(),
            );
        }
        notes.push(
            "File sizes are the highest offset that was accessed. Requests of MPI-IO and HDF5 count as the POSIX \
                calls that they become."
                .to_owned(),
        );
    }

    /// Creates the series of a record; `seen` are its reads and writes that are known individually.
    fn add(&mut self, record: &Record, seen: Option<[u64; 2]>) {
        let at = |place: usize| u64::try_from(record.counters[place]).unwrap_or(0);
        let process = self.ranks.get(&record.rank).copied().unwrap_or(0);
        let touched = series::touched_bytes(record);
        if let Some(touched) = touched {
            let size = self.sizes.entry(record.file).or_default();
            *size = touched.max(*size);
        }
        let opens = at(counter::OPENS).saturating_add(at(counter::FDOPENS));
        // Everything between one open and its end goes through that open.
        let opening = (opens == 1 && record.rank >= 0).then(|| {
            let number = self.openings.len() as u32;
            *self.openings.entry((record.file, record.rank)).or_insert(number)
        });
        let known = seen.map_or(0, |seen| seen[0] + seen[1]);
        let reads_and_writes = at(counter::READS).saturating_add(at(counter::WRITES));
        if known > 0 && reads_and_writes > known {
            let file = self.files.get(record.file).map(excerpt).unwrap_or_default();
            self.problems.count_many(Trouble::Lost, reads_and_writes - known, || {
                format!("requests to {file} that did not fit in DXT's memory")
            });
        }
        let close = series::times(record, Kind::Close).0;
        let mut end_ns = close;
        let kinds = [
            (Kind::Open, vec![(opens, 0)]),
            (Kind::Stat, vec![(at(counter::STATS), 0)]),
            (Kind::Map, vec![(at(counter::MMAPS), 0)]),
            (Kind::Read, Vec::new()),
            (Kind::Write, Vec::new()),
            (Kind::Sync, vec![(at(counter::FSYNCS).saturating_add(at(counter::FDSYNCS)), 0)]),
            (Kind::Rename, vec![(at(counter::RENAMES), 0)]),
            (Kind::Close, vec![(u64::from(opening.is_some()), 0)]),
        ];
        for (kind, mut groups) in kinds {
            let (start, mut end) = series::times(record, kind);
            if matches!(kind, Kind::Read | Kind::Write) && known == 0 {
                let (sized, fits) = series::sizes(record, kind == Kind::Write);
                groups = sized;
                if !fits {
                    let file = self.files.get(record.file).map(excerpt).unwrap_or_default();
                    self.problems
                        .count(Trouble::Damaged, || format!("the counts, sizes and bytes of {file} are inconsistent"));
                }
            }
            let mut start = start;
            match kind {
                Kind::Read | Kind::Write => end_ns = end_ns.max(end),
                Kind::Close => (start, end) = (end_ns, end_ns),
                // A sync makes writes durable, and takes place at their time.
                Kind::Sync => (start, end) = series::times(record, Kind::Write),
                _ => {}
            }
            let count = groups.iter().fold(0u64, |sum, (count, _)| sum.saturating_add(*count));
            if count > MOST_OPERATIONS {
                let file = self.files.get(record.file).map(excerpt).unwrap_or_default();
                self.problems.count(Trouble::Absurd, || format!("{count} times '{}' of {file}", kind.name()));
                continue;
            }
            if count == 0 {
                continue;
            }
            let model = Operation {
                file: Some(record.file),
                opening,
                file_size_bytes: touched.filter(|_| kind.moves_bytes()),
                ..Operation::new(start, process, kind)
            };
            self.total = self.total.saturating_add(count);
            self.series.push(Series::new(model, end, groups));
        }
    }

    fn of_segment(&self, segment: &Segment) -> Operation {
        let rank = i64::from(segment.rank);
        let kind = if segment.wrote { Kind::Write } else { Kind::Read };
        Operation {
            duration_ns: Some(segment.duration_ns),
            file: Some(segment.file),
            opening: self.openings.get(&(segment.file, rank)).copied(),
            offset_bytes: Some(segment.offset_bytes),
            length_bytes: segment.length_bytes,
            file_size_bytes: self.sizes.get(&segment.file).copied(),
            ..Operation::new(segment.start_ns, self.ranks.get(&rank).copied().unwrap_or(0), kind)
        }
    }
}

impl Source for Reader {
    fn next(&mut self) -> Result<Option<Operation>> {
        let series = self.next.peek().map(|&Reverse((time, at))| (time, at));
        let segment = self.segments.as_slice().first().map(|segment| segment.start_ns);
        let operation = match (series, segment) {
            (Some((time, at)), segment) if segment.is_none_or(|segment| time <= segment) => {
                self.next.pop();
                let operation = self.series[at].take();
                self.next.extend(self.series[at].time_ns().map(|time| Reverse((time, at))));
                operation
            }
            _ => self.segments.next().map(|segment| self.of_segment(&segment)),
        };
        self.given += u64::from(operation.is_some());
        Ok(operation
            .map(|operation| Operation { time_ns: operation.time_ns.saturating_add(self.start_ns), ..operation }))
    }

    fn findings(&self) -> Findings<'_> {
        Findings { files: &self.files, processes: &self.processes, origin: &self.origin, problems: &self.problems }
    }

    fn progress(&self) -> (u64, Option<u64>) {
        (self.given, Some(self.total))
    }
}

fn read(input: &mut Input, log: &mut Log) -> Result<()> {
    let mut line = Vec::new();
    loop {
        match input.line(&mut line, LONGEST_LINE_BYTES)? {
            Line::Whole => log.line(&line),
            Line::TooLong => log.problems.count(Trouble::Unreadable, || format!("too long: {}", excerpt(&line))),
            Line::Last => {
                let before = log.problems.of(Trouble::Unreadable);
                log.line(&line);
                if log.problems.of(Trouble::Unreadable) == before && !line.starts_with(b"#") {
                    log.problems.count(Trouble::Truncated, || format!("the last line: {}", excerpt(&line)));
                }
            }
            Line::End => {
                if input.is_cut() {
                    log.problems.count(Trouble::Truncated, || "the compressed file".to_owned());
                }
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SMALL: &str = include_str!("../../../tests/data/traces/darshan-small.txt");

    fn all(text: impl Into<Vec<u8>>) -> (Vec<Operation>, Reader) {
        let mut reader =
            Reader::new(Input::of_bytes([TEXT_MAGIC, b" 3.41\n", &text.into()].concat()).unwrap()).unwrap();
        let mut operations = Vec::new();
        // A damaged counter may claim billions.
        while operations.len() < 10_000
            && let Some(operation) = reader.next().unwrap()
        {
            operations.push(operation);
        }
        (operations, reader)
    }

    #[test]
    fn counters_become_operations_and_traced_files_single_ones() {
        let (operations, reader) = all(SMALL);
        assert!(reader.problems.is_empty(), "{:?}", reader.problems);
        assert_eq!(
            reader.files.iter().collect::<Vec<_>>(),
            [&b"/scratch/out.dat"[..], b"/scratch/input.bin", b"/scratch/job.log"]
        );
        let of = |file: u32, kind| -> Vec<&Operation> {
            operations.iter().filter(|o| o.file == Some(file) && o.kind == kind).collect()
        };
        // Traced: four writes of two ranks, in order of time.
        let writes = of(0, Kind::Write);
        assert_eq!(
            writes.iter().map(|o| o.offset_bytes).collect::<Vec<_>>(),
            [Some(0), Some(1 << 20), Some(2 << 20), Some(3 << 20)]
        );
        assert!(writes.iter().all(|o| o.length_bytes == 1 << 20 && o.file_size_bytes == Some(4 << 20)));
        assert_eq!(writes[0].time_ns, 1_700_000_000_510_000_000);
        assert_eq!(writes[0].duration_ns, Some(1_500_000));
        assert_eq!(reader.processes.get(writes[1].process), Some(&b"rank 1"[..]));
        // Counted: the sizes of the histogram.
        let reads = of(1, Kind::Read);
        assert_eq!(reads.len(), 10);
        assert_eq!(reads.iter().filter(|o| o.length_bytes == 65_536).count(), 9);
        assert_eq!(reads.iter().map(|o| o.length_bytes).sum::<u64>(), 9 * 65_536 + 500);
        assert!(reads.iter().all(|o| o.opening == Some(0) && o.offset_bytes.is_none()));
        let last = operations.iter().rposition(|o| o.file == Some(1)).unwrap();
        assert_eq!((operations[last].kind, operations[last].opening), (Kind::Close, Some(0)));
        assert_eq!((of(1, Kind::Open).len(), of(1, Kind::Stat).len(), of(2, Kind::Write).len()), (1, 2, 3));
        assert!(operations.is_sorted_by_key(|o| o.time_ns));
    }

    #[test]
    fn what_is_wrong_is_counted_and_the_rest_stands() {
        let cut = &SMALL[..SMALL.len() - 20];
        let (_, reader) = all(cut);
        assert_eq!(reader.problems.of(Trouble::Truncated) + reader.problems.of(Trouble::Unreadable), 1);
        let text = "rubbish\n# *WARNING*: The POSIX module contains incomplete data!\n X_POSIX 0 read 0 5 5 0.1 0.2\n X_POSIX 0 rd 0 5 5 0.1 0.2\n\
            POSIX\t0\t7\tPOSIX_READS\t9000000000000000000\t/f\t/\text4\nPOSIX\t0\t7\tPOSIX_OPENS\tmany\t/f\t/\text4\n\
            POSIX\t0\t8\tPOSIX_READS\t5\t/g\t/\text4\nPOSIX\t0\t8\tPOSIX_SIZE_READ_0_100\t5\t/g\t/\text4\n\
            POSIX\t0\t8\tPOSIX_BYTES_READ\t5000\t/g\t/\text4\n";
        let (operations, reader) = all(text);
        let of = |trouble| reader.problems.of(trouble);
        assert_eq!(
            (of(Trouble::Unreadable), of(Trouble::Lost), of(Trouble::UnknownFile)),
            (3, 1, 1),
            "{:?}",
            reader.problems
        );
        assert_eq!((of(Trouble::Absurd), of(Trouble::Damaged)), (1, 1));
        assert_eq!(operations.len(), 5);
    }

    proptest! {
        #[test]
        fn any_bytes_are_borne(
            at in 0usize..22_000,
            bytes in proptest::collection::vec(any::<u8>(), 0..40),
        ) {
            let mut text = SMALL.as_bytes().to_vec();
            let at = at.min(text.len());
            text.splice(at..(at + bytes.len() / 2).min(SMALL.len()), bytes);
            all(text);
        }
    }
}
