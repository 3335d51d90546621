//! Reading a segment sequentially: the one reader shared by recovery, checks, scrubs, repairs and salvage.
//!
//! Records are read one after the other, each verified on the first copy and, if it fails, on the others; a commit ends
//! a batch and is compared with what was read. **After damage, reading resumes only where a commit allows it:** at a
//! later intact commit (its checksum is seeded with segment and offset) whose list accounts for every byte from the
//! beginning of its batch to itself. The records of that batch are read at the offsets in the list. What merely looks
//! like a record is never taken for one: content is never log.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::devices::device::DeviceFile;
use crate::format::entry::Kind;
use crate::format::ids::{DeviceNumber, Epoch, LogOffset};
use crate::format::names::SegmentName;
use crate::format::record::{HEADER_BYTES, Head, Lengths, ListedRecord, Record, Seed, kind_of};
use crate::format::segment::{Commit, FIRST_BATCH_AT, SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::layout::granulo::RECORD_ALIGNMENT_BYTES;
use crate::layout::round_up;

/// Bytes read ahead during sequential reading.
const WINDOW_BYTES: usize = 1 << 20;
/// Bytes of the first read and of the first one after a seek: an open needs a header and the end of the log. Each read
/// after it may be four times as long.
const LEAST_WINDOW_BYTES: usize = 4 << 10;

/// The least that a device cannot read.
const SECTOR_BYTES: u64 = 512;
/// Reads that fail in one sector until a search goes on behind it. One may be a passing error.
const MOST_FAILED_READS: u32 = 3;

/// A window into one copy of a segment.
#[derive(Debug)]
struct Copy {
    device: DeviceNumber,
    file: Arc<dyn DeviceFile>,
    seed: Seed,
    size_bytes: u64,
    bytes: Vec<u8>,
    start: LogOffset,
    /// Length of the last read-ahead.
    window_bytes: usize,
    /// The last error of reading it.
    error: Option<io::Error>,
    /// The sector in which the last read that failed begins, and how many failed in it.
    failed: (u64, u32),
}

impl Copy {
    /// The bytes from `offset`, at least `length` of them unless the copy ends; `None` if reading fails.
    fn bytes(&mut self, offset: LogOffset, length: usize) -> Option<&[u8]> {
        let read_end = self.start + self.bytes.len() as u64;
        if offset < self.start || offset + length as u64 > read_end {
            let goes_on = !self.bytes.is_empty() && (self.start..=read_end).contains(&offset);
            let window = if goes_on { (4 * self.window_bytes).min(WINDOW_BYTES) } else { LEAST_WINDOW_BYTES };
            self.window_bytes = window;
            self.start = offset;
            // An unreadable position further on says nothing about the bytes requested, nor about those before it.
            let before_next = (round_up(offset.0 + 1, LEAST_WINDOW_BYTES as u64) - offset.0) as usize;
            let read = self.read(offset, length.max(window)).or_else(|error| {
                self.window_bytes = LEAST_WINDOW_BYTES;
                if before_next > length { self.read(offset, before_next) } else { Err(error) }
            });
            if let Err(error) = read.or_else(|_| self.read(offset, length)) {
                let sector = offset.0 / SECTOR_BYTES;
                self.failed = (sector, if self.failed.0 == sector { self.failed.1 + 1 } else { 1 });
                self.error = Some(error);
                return None;
            }
        }
        self.bytes.get((offset - self.start) as usize..)
    }

    fn read(&mut self, offset: LogOffset, length: usize) -> io::Result<()> {
        self.bytes.clear();
        self.file.read_onto(&mut self.bytes, length, offset.0).map(|_| ())
    }

    /// Whether several reads from where `offset` is have failed: a disk may try for seconds each time.
    fn is_given_up(&self, offset: LogOffset) -> bool {
        self.failed.0 == offset.0 / SECTOR_BYTES && self.failed.1 >= MOST_FAILED_READS
    }

    /// The record at `offset`, if it is valid.
    fn record(&mut self, offset: LogOffset) -> Option<Record<'_>> {
        let rest = self.size_bytes.checked_sub(offset.0)?;
        let lengths = Lengths::peek(self.bytes(offset, HEADER_BYTES)?)?;
        if lengths.record_bytes() as u64 > rest {
            return None;
        }
        let seal = self.seed.at(offset);
        Record::decode(self.bytes(offset, lengths.record_bytes())?, seal)
    }

    /// Whether the head of the record that a list has at an offset is valid.
    fn has_head(&mut self, placed: PlacedRecord) -> bool {
        let seal = self.seed.at(placed.at);
        self.head(placed.at, |bytes| Head::decode(bytes, seal)).is_some_and(|head| head.listed() == placed.listed)
    }

    /// The head of the record at `offset`.
    fn head<'c>(&'c mut self, offset: LogOffset, decode: impl Fn(&'c [u8]) -> Option<Head<'c>>) -> Option<Head<'c>> {
        let length = Lengths::peek(self.bytes(offset, HEADER_BYTES)?)?.head_bytes();
        self.bytes(offset, length).and_then(decode)
    }

    /// The record at `offset`, which was just verified.
    fn verified(&mut self, offset: LogOffset) -> Option<Record<'_>> {
        let length = Lengths::peek(self.bytes(offset, HEADER_BYTES)?)?.record_bytes();
        Record::parse(self.bytes(offset, length)?)
    }

    /// The commit at `offset`, if it is valid.
    fn commit(&mut self, offset: LogOffset) -> Option<Commit> {
        let header = self.bytes(offset, HEADER_BYTES)?;
        if kind_of(header) != Some(Kind::Commit) {
            return None;
        }
        Commit::decode(self.record(offset)?.content)
    }
}

/// The epoch stated by a commit in a file, if the commit is sealed with it: for a segment whose header is damaged.
pub(crate) fn sealed_epoch(
    file: &dyn DeviceFile,
    is_right: &dyn Fn(Epoch) -> bool,
    seed: &dyn Fn(Epoch) -> Seed,
) -> Option<Epoch> {
    let size = file.size().ok()?;
    let mut at = SEGMENT_HEADER_BYTES;
    let (mut bytes, mut start) = (Vec::new(), 0);
    while at < size {
        if at + HEADER_BYTES as u64 > start + bytes.len() as u64 {
            (start, bytes) = (at, Vec::new());
            let read = file.read_onto(&mut bytes, WINDOW_BYTES, at).or_else(|_| {
                bytes.clear();
                file.read_onto(&mut bytes, LEAST_WINDOW_BYTES, at)
            });
            if read.is_err() {
                (at, bytes) = (round_up(at + 1, LEAST_WINDOW_BYTES as u64), Vec::new());
                continue;
            }
        }
        let here = bytes.get((at - start) as usize..)?;
        if kind_of(here) == Some(Kind::Commit)
            && let Some(lengths) = Lengths::peek(here)
            && at + lengths.record_bytes() as u64 <= size
        {
            let mut record = Vec::new();
            let is_read = file.read_onto(&mut record, lengths.record_bytes(), at).is_ok();
            let record = if is_read { record } else { Vec::new() };
            let said = Record::parse(&record).and_then(|record| Commit::decode(record.content));
            if let Some(epoch) = said.map(|commit| commit.epoch).filter(|&epoch| is_right(epoch))
                && Record::decode(&record, seed(epoch).at(LogOffset(at))).is_some()
            {
                return Some(epoch);
            }
        }
        at += RECORD_ALIGNMENT_BYTES;
    }
    None
}

/// A record and its offset in the segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PlacedRecord {
    at: LogOffset,
    listed: ListedRecord,
}

impl PlacedRecord {
    fn range(&self) -> Range<LogOffset> {
        self.at..self.at + self.listed.record_bytes
    }
}

/// Devices on which a record differs from the one returned.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct DifferingCopies {
    /// Devices without a valid record there.
    pub(crate) without: Vec<DeviceNumber>,
    /// Devices with another valid record there. Only determined if all copies are read.
    pub(crate) differ: Vec<DeviceNumber>,
}

/// A commit, and how it relates to what was read before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Committed {
    pub(crate) at: LogOffset,
    /// Where the commit record ends.
    pub(crate) end: LogOffset,
    pub(crate) commit: Commit,
    /// Every record of its list was returned.
    pub(crate) is_whole: bool,
    /// Offsets of records that were returned and are within the batch, but not in its list: they are not part of the
    /// log.
    pub(crate) refuted: Vec<LogOffset>,
}

/// A step through a segment.
#[derive(Debug)]
pub(crate) enum ScanStep<'r> {
    /// A valid record, its offset, and what other copies have there. It replaces any earlier record at this offset,
    /// which the list of the commit refutes: see [`OpenBatch`](super::open_batch::OpenBatch).
    Record(LogOffset, Record<'r>, DifferingCopies),
    /// The end of a batch, its record, and what other copies have there.
    Commit(Committed, Record<'r>, DifferingCopies),
    /// Bytes that are valid on no copy; with the head of the record there if a copy has that.
    Damage(Range<LogOffset>, Option<Head<'r>>),
}

/// What was found at an offset.
struct Candidate {
    /// The copy that has it.
    copy: usize,
    listed: ListedRecord,
    is_commit: bool,
    /// `None` for an inconsistent commit.
    commit: Option<Commit>,
    copies: DifferingCopies,
}

/// A step before its record is looked up: which copy has it.
enum Next {
    Record(LogOffset, usize, DifferingCopies),
    Commit(Committed, usize, DifferingCopies),
    Damage(Range<LogOffset>),
    /// Only the head of a record is valid, on this copy.
    Headed(Range<LogOffset>, usize),
}

/// Reads one segment.
#[derive(Debug)]
pub(crate) struct SegmentScan {
    copies: Vec<Copy>,
    at: LogOffset,
    /// Where the scan began; the batch that contains this offset is only read from there on.
    from: LogOffset,
    /// Where the longest copy ends.
    pub(crate) end: LogOffset,
    /// Records returned since the last commit.
    given: Vec<PlacedRecord>,
    /// Whether a commit was passed, so that no later one may reach back before `batch_begin`.
    has_commit: bool,
    batch_begin: LogOffset,
    /// Records still to be returned at the offsets in a commit's list, and the offset of that commit.
    listed: Option<(VecDeque<PlacedRecord>, LogOffset)>,
    /// A copy that could not be opened, and the error.
    unopened: Option<(DeviceNumber, io::Error)>,
}

impl SegmentScan {
    /// Begins at `from` (at the first record if that is 0).
    pub(crate) fn new(files: Vec<(DeviceNumber, Arc<dyn DeviceFile>)>, seed: Seed, from: LogOffset) -> SegmentScan {
        let copy = |(device, file): (DeviceNumber, Arc<dyn DeviceFile>)| {
            let (size_bytes, error) = match file.size() {
                Ok(size_bytes) => (size_bytes, None),
                Err(error) => (0, Some(error)),
            };
            Copy {
                device,
                file,
                seed,
                size_bytes,
                bytes: Vec::new(),
                start: LogOffset::START,
                window_bytes: 0,
                error,
                failed: (0, 0),
            }
        };
        let copies: Vec<Copy> = files.into_iter().map(copy).collect();
        let end = LogOffset(copies.iter().map(|copy| copy.size_bytes).max().unwrap_or(0));
        let at = from.max(FIRST_BATCH_AT);
        let (given, has_commit) = (Vec::new(), at == FIRST_BATCH_AT);
        SegmentScan { copies, at, from: at, end, given, has_commit, batch_begin: at, listed: None, unopened: None }
    }

    /// For a segment with another copy that could not be opened.
    pub(crate) fn beside(self, unopened: Option<(DeviceNumber, io::Error)>) -> SegmentScan {
        SegmentScan { unopened, ..self }
    }

    /// A copy that could not be opened or read somewhere, and the error. That is not evidence of its content.
    pub(crate) fn take_error(&mut self) -> Option<(DeviceNumber, io::Error)> {
        let unread = self.copies.iter_mut().find_map(|copy| Some((copy.device, copy.error.take()?)));
        unread.or_else(|| self.unopened.take())
    }

    /// The header, from the first copy with a valid one that matches the segment's name, and the devices without it.
    pub(crate) fn header(&mut self, segment: SegmentName) -> (Option<SegmentHeader>, Vec<DeviceNumber>) {
        let is_right = |header: &SegmentHeader| SegmentName::from(header.id) == segment;
        let mut found = None;
        let mut without = Vec::new();
        for copy in &mut self.copies {
            let header = copy.bytes(LogOffset::START, SEGMENT_HEADER_BYTES as usize).and_then(SegmentHeader::decode);
            match header.filter(is_right) {
                Some(header) => found = found.or(Some(header)),
                None => without.push(copy.device),
            }
        }
        (found, without)
    }

    /// The next step; `None` at the end. Reads every copy if `all`, else only as many as needed.
    pub(crate) fn next(&mut self, all: bool) -> Option<ScanStep<'_>> {
        match self.advance(all)? {
            Next::Damage(range) => Some(ScanStep::Damage(range, None)),
            Next::Headed(range, copy) => {
                let head = self.copies[copy].head(range.start, Head::parse);
                Some(ScanStep::Damage(range, head))
            }
            Next::Record(at, copy, copies) => Some(ScanStep::Record(at, self.copies[copy].verified(at)?, copies)),
            Next::Commit(committed, copy, copies) => {
                let record = self.copies[copy].verified(committed.at)?;
                Some(ScanStep::Commit(committed, record, copies))
            }
        }
    }

    fn advance(&mut self, all: bool) -> Option<Next> {
        loop {
            if let Some((places, commit_at)) = &mut self.listed {
                let commit_at = *commit_at;
                return Some(match places.pop_front() {
                    Some(placed) => self.listed_record(placed, all),
                    None => self.listed_commit(commit_at, all),
                });
            }
            let at = self.at;
            if at >= self.end {
                return None;
            }
            match self.find(at, all) {
                Some(Candidate { is_commit: false, copies, .. })
                    if !copies.differ.is_empty()
                        && let Some((commit, commit_at)) = self.proof(at) =>
                {
                    self.listed = Some((self.missing(&commit), commit_at));
                }
                Some(Candidate { is_commit: false, copy, listed, copies, .. }) => {
                    self.given.push(PlacedRecord { at, listed });
                    self.at += listed.record_bytes;
                    return Some(Next::Record(at, copy, copies));
                }
                Some(Candidate { commit: Some(commit), copy, listed, copies, .. }) if self.accounts(&commit, at) => {
                    let missing = self.missing(&commit);
                    if missing.is_empty() {
                        return Some(self.committed(commit, at, listed, copy, copies));
                    }
                    self.listed = Some((missing, at));
                }
                _ => match self.later_commit(at) {
                    None => {
                        self.at = self.end;
                        return Some(Next::Damage(at..self.end));
                    }
                    Some((commit, commit_at)) => {
                        self.listed = Some((self.missing(&commit), commit_at));
                        if commit.begin > at {
                            return Some(Next::Damage(at..commit.begin));
                        }
                    }
                },
            }
        }
    }

    /// The valid record at an offset, on any copy.
    fn find(&mut self, at: LogOffset, all: bool) -> Option<Candidate> {
        let mut found: Option<(usize, ListedRecord, u64)> = None;
        let mut copies = DifferingCopies::default();
        for (number, copy) in self.copies.iter_mut().enumerate() {
            if found.is_some() && !all {
                break;
            }
            let device = copy.device;
            match copy.record(at).map(|record| (record.head.listed(), record.head.head_checksum)) {
                None => copies.without.push(device),
                Some((listed, sum)) => match found {
                    None => found = Some((number, listed, sum)),
                    Some((_, _, first)) if first != sum => copies.differ.push(device),
                    Some(_) => {}
                },
            }
        }
        let (copy, listed, _) = found?;
        let is_commit = self.copies[copy].verified(at)?.head.kind == Kind::Commit;
        let commit = if is_commit { self.copies[copy].commit(at) } else { None };
        Some(Candidate { copy, listed, is_commit, commit, copies })
    }

    /// Whether the list of a commit accounts for every byte from its beginning to the commit, and does not reach into
    /// earlier batches.
    fn accounts(&self, commit: &Commit, at: LogOffset) -> bool {
        commit.begin.0.checked_add(commit.listed_bytes()) == Some(at.0)
            && commit.begin >= if self.has_commit { self.batch_begin } else { FIRST_BATCH_AT }
    }

    /// Records in the list of a commit that were not returned.
    fn missing(&self, commit: &Commit) -> VecDeque<PlacedRecord> {
        let mut at = commit.begin;
        let placed = commit.list.iter().map(|&listed| {
            let placed = PlacedRecord { at, listed };
            at += listed.record_bytes;
            placed
        });
        // Both are in the order of their offsets.
        let mut given = self.given.iter().peekable();
        placed
            .filter(|placed| placed.at >= self.from)
            .filter(|placed| {
                while given.next_if(|given| given.at < placed.at).is_some() {}
                given.peek() != Some(&placed)
            })
            .collect()
    }

    /// The record that the list of a commit has at an offset, from any copy. Another valid one that was returned from
    /// there before is replaced.
    fn listed_record(&mut self, placed: PlacedRecord, all: bool) -> Next {
        let mut copies = DifferingCopies::default();
        let mut found = None;
        for (number, copy) in self.copies.iter_mut().enumerate() {
            if found.is_some() && !all {
                break;
            }
            // The list decides: anything else is damage.
            match copy.record(placed.at).is_some_and(|record| record.head.listed() == placed.listed) {
                true => found = found.or(Some(number)),
                false => copies.without.push(copy.device),
            }
        }
        let Some(copy) = found else {
            let headed = self.copies.iter_mut().position(|copy| copy.has_head(placed));
            return headed.map_or(Next::Damage(placed.range()), |copy| Next::Headed(placed.range(), copy));
        };
        let after = self.given.partition_point(|given| given.at < placed.at);
        match self.given.get_mut(after).filter(|given| given.at == placed.at) {
            Some(given) => *given = placed,
            None => self.given.insert(after, placed),
        }
        Next::Record(placed.at, copy, copies)
    }

    fn listed_commit(&mut self, at: LogOffset, all: bool) -> Next {
        self.listed = None;
        match self.find(at, all) {
            Some(Candidate { commit: Some(commit), copy, listed, copies, .. }) => {
                self.committed(commit, at, listed, copy, copies)
            }
            // It was just verified.
            _ => {
                self.at = self.end;
                Next::Damage(at..self.end)
            }
        }
    }

    /// A commit, after everything in its list was returned or is damaged.
    fn committed(
        &mut self,
        commit: Commit,
        at: LogOffset,
        listed: ListedRecord,
        copy: usize,
        copies: DifferingCopies,
    ) -> Next {
        let is_whole = self.missing(&commit).is_empty();
        let given = &self.given[self.given.partition_point(|given| given.at < commit.begin)..];
        let (mut place, mut list) = (commit.begin, commit.list.iter().peekable());
        let is_refuted = |given: &&PlacedRecord| {
            while place < given.at
                && let Some(listed) = list.next()
            {
                place += listed.record_bytes;
            }
            place != given.at || list.peek() != Some(&&given.listed)
        };
        let refuted = given.iter().filter(is_refuted).map(|given| given.at).collect();
        let end = at + listed.record_bytes;
        self.given.clear();
        (self.at, self.batch_begin, self.has_commit) = (end, end, true);
        Next::Commit(Committed { at, end, commit, is_whole, refuted }, copy, copies)
    }

    /// Where copies have different valid records, the commit whose list has one of them, and its offset. `None` if no
    /// list has any, or if the lists on several copies have different ones: each copy is right by itself then.
    fn proof(&mut self, at: LogOffset) -> Option<(Commit, LogOffset)> {
        let mut proof: Option<(Option<ListedRecord>, Commit, LogOffset)> = None;
        for copy in 0..self.copies.len() {
            let found = self.later_commit_on(copy..copy + 1, at).filter(|(commit, _)| commit.begin <= at);
            let Some((commit, commit_at)) = found else { continue };
            let mut place = commit.begin;
            let placed = commit.list.iter().map(|&listed| {
                let here = PlacedRecord { at: place, listed };
                place += listed.record_bytes;
                here
            });
            let listed = placed.into_iter().find(|placed| placed.at == at).map(|placed| placed.listed);
            match &proof {
                Some((first, ..)) if *first != listed => return None,
                Some(_) => {}
                None => proof = Some((listed, commit, commit_at)),
            }
        }
        proof.map(|(_, commit, commit_at)| (commit, commit_at))
    }

    /// The next commit after damage that is intact on some copy and whose list accounts for every byte, and its offset.
    fn later_commit(&mut self, damaged: LogOffset) -> Option<(Commit, LogOffset)> {
        self.later_commit_on(0..self.copies.len(), damaged)
    }

    /// The first commit behind an offset that is intact on one of these copies and whose list accounts for every byte
    /// of its batch, and its offset. Reads up to the end of the segment.
    fn later_commit_on(&mut self, copies: Range<usize>, after: LogOffset) -> Option<(Commit, LogOffset)> {
        let mut at = after + RECORD_ALIGNMENT_BYTES;
        while at < self.end {
            for copy in copies.clone() {
                if self.copies[copy].is_given_up(at) {
                    continue;
                }
                if let Some(commit) = self.copies[copy].commit(at).filter(|commit| self.accounts(commit, at)) {
                    return Some((commit, at));
                }
            }
            at += RECORD_ALIGNMENT_BYTES;
        }
        None
    }
}
