//! Reading the whole log and comparing it with the index: every record on every copy, every batch, and whether the
//! index refers to it.
//!
//! `check --deep`, `scrub` and `repair` share this. A segment is read once, in order, whatever the number of copies;
//! memory is one window for each copy. A segment is read only as far as one state of the catalog knows it, so that a
//! writer may append meanwhile.

use std::ops::Range;
use std::path::Path;

use super::problem::{Problem, ProblemKind, Remedy};
use crate::engine::Engine;
use crate::engine::pace::Pace;
use crate::error::Result;
use crate::format::descriptor::Descriptor;
use crate::format::entry::{Entry, Location};
use crate::format::ids::{DeviceNumber, LogOffset, SegmentNumber};
use crate::format::index_key::superseded;
use crate::format::names::segment_path;
use crate::format::record::Record;
use crate::format::segment::{FIRST_BATCH_AT, SegmentHeader};
use crate::index::Snapshot;
use crate::index::catalog::SegmentRow;
use crate::log::scan::{Committed, DifferingCopies, ScanStep, SegmentScan};

/// The copies of a record that differ from the first one, although they are valid.
pub(crate) fn divergences(engine: &Engine, row: &SegmentRow, met: &AuditedRecord<'_>) -> Vec<Problem> {
    let of_device = |&device: &DeviceNumber| {
        let place = engine.devices.place(device, &segment_path(row.id()));
        let cause = "this copy has a different record than the first, and both are valid: neither is overwritten";
        let problem = Problem::new(ProblemKind::Divergence, place, cause, Remedy::Lost).on(device);
        problem.within(row.number, met.range())
    };
    met.differ.iter().map(of_device).collect()
}

/// Totals of a segment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Records, without commits.
    pub(crate) records: u64,
    /// Records that the index refers to.
    pub(crate) live_records: u64,
    /// Their bytes.
    pub(crate) live_bytes: u64,
    /// Bytes read, on all copies.
    pub(crate) read_bytes: u64,
    /// Whether a copy could not be opened or read somewhere: that is not evidence of what it has.
    pub(crate) is_unread: bool,
}

/// A record that the audit met; of one that is damaged, its head.
#[derive(Debug)]
pub(crate) struct AuditedRecord<'r> {
    /// Where it begins.
    pub(crate) at: LogOffset,
    pub(crate) record: Record<'r>,
    /// Its key in the index, if the index has it; else the key of the record. Empty for what is not an object.
    pub(crate) key: Vec<u8>,
    /// Devices whose copy of it is damaged.
    pub(crate) without: Vec<DeviceNumber>,
    /// Devices whose copy has another valid record.
    pub(crate) differ: Vec<DeviceNumber>,
    /// The index entry of its key, now or in a snapshot, if it refers to this record.
    pub(crate) live: Option<Entry>,
    /// The index entry of its key.
    pub(crate) known: Option<Entry>,
}

impl AuditedRecord<'_> {
    /// The offsets of its bytes.
    pub(crate) fn range(&self) -> Range<LogOffset> {
        self.at..self.at + self.record.record_bytes()
    }
}

/// What the audit of a segment meets.
#[derive(Debug)]
pub(crate) enum Observation<'r> {
    /// The header, and the devices whose copy of it is damaged.
    Header(Option<SegmentHeader>, Vec<DeviceNumber>),
    /// A valid record.
    Record(&'r AuditedRecord<'r>),
    /// Bytes that are not a record on any copy; with the record of which a copy has the head, but none the content,
    /// which is empty here.
    Damage(Range<LogOffset>, Option<&'r AuditedRecord<'r>>),
    /// A commit record that does not end the batch before it.
    Batch(Range<LogOffset>, &'static str),
    /// Everything up to this offset was seen: work can resume here.
    Batched(LogOffset),
}

/// Where a batch should end.
#[derive(Debug, Clone, Copy)]
struct Running {
    sequence: u64,
    chain: u64,
    begin: LogOffset,
}

impl Engine {
    /// Reads a segment from `from` (the begin of a batch, or 0) as far as its account says, on all copies; `see`
    /// receives what is met.
    ///
    /// # Errors
    /// Errors of reading the index, of `see` and of `pace`.
    pub(crate) fn audit_segment(
        &self,
        row: &SegmentRow,
        snapshot: &Snapshot,
        from: LogOffset,
        pace: &mut Pace<'_>,
        see: &mut dyn FnMut(Observation<'_>, &mut Pace<'_>) -> Result<()>,
    ) -> Result<Tally> {
        let copies = self.open_segment_copies(row.id(), &row.devices);
        let count = copies.len() as u64;
        let mut scan = SegmentScan::new(copies, self.seed(row.id()), from);
        scan.end = row.end();
        let mut tally = Tally::default();
        let has_versions = snapshot.has_versions()?;
        let mut running = None;
        if from <= FIRST_BATCH_AT {
            let (header, without) = scan.header(row.id().into());
            running = header.map(|header| Running {
                sequence: header.continues.sequence.0,
                chain: header.continues.chain,
                begin: FIRST_BATCH_AT,
            });
            see(Observation::Header(header, without), pace)?;
        }
        while let Some(step) = scan.next(true) {
            let (range, batch_ends) = match step {
                ScanStep::Damage(range, head) => {
                    running = None;
                    let range = range.start..range.end.min(row.end());
                    let headed = match head.map(|head| Record { head, content: &[] }) {
                        Some(record) => Some(looked_up(snapshot, has_versions, (row.number, range.start), record)?),
                        None => None,
                    };
                    see(Observation::Damage(range.clone(), headed.as_ref()), pace)?;
                    (range, false)
                }
                ScanStep::Commit(committed, record, copies) => {
                    let range = committed.at..committed.end;
                    running = Some(follow(running, &committed, &mut |sight| see(sight, pace))?);
                    let DifferingCopies { without, differ } = copies;
                    let key = Vec::new();
                    let met = AuditedRecord { at: range.start, record, key, without, differ, live: None, known: None };
                    see(Observation::Record(&met), pace)?;
                    (range, true)
                }
                ScanStep::Record(at, record, copies) => {
                    let range = at..at + record.record_bytes();
                    let DifferingCopies { without, differ } = copies;
                    let met = looked_up(snapshot, has_versions, (row.number, at), record)?;
                    let met = AuditedRecord { without, differ, ..met };
                    tally.records += 1;
                    if met.live.is_some() {
                        tally.live_records += 1;
                        tally.live_bytes += record.record_bytes();
                    }
                    see(Observation::Record(&met), pace)?;
                    (range, false)
                }
            };
            let bytes = (range.end - range.start) * count;
            tally.read_bytes += bytes;
            if batch_ends {
                see(Observation::Batched(range.end), pace)?;
            }
            pace.spend(bytes)?;
        }
        tally.is_unread = scan.take_error().is_some() || self.has_unopened(row);
        Ok(tally)
    }

    /// The descriptor in a record of a large object.
    ///
    /// # Errors
    /// [`Corrupt`](crate::error::ErrorKind::Corrupt) if it contradicts itself.
    pub(crate) fn descriptor_in(&self, row: &SegmentRow, record: &Record<'_>) -> Result<Descriptor> {
        let place =
            self.devices.place(row.devices.first().copied().unwrap_or(DeviceNumber(0)), &segment_path(row.id()));
        Descriptor::decode(record.content, Path::new(&place))
    }
}

/// A record at a place in the log, with what the index has of it.
fn looked_up<'r>(
    snapshot: &Snapshot,
    has_versions: bool,
    (segment, offset): (SegmentNumber, LogOffset),
    record: Record<'r>,
) -> Result<AuditedRecord<'r>> {
    let here = Location { segment, offset, record_bytes: record.record_bytes() };
    let (without, differ) = (Vec::new(), Vec::new());
    let mut met = AuditedRecord { at: offset, record, key: Vec::new(), without, differ, live: None, known: None };
    let head = &met.record.head;
    if !head.kind.is_used() {
        return Ok(met);
    }
    let (key, id) = (head.key(), head.id);
    let is_it = |entry: &Entry| entry.location == here && entry.id == id;
    met.known = snapshot.look_up(&key)?;
    met.live = met.known.filter(is_it);
    met.key = key;
    if met.live.is_none() && has_versions {
        let of = superseded(&met.key).map_or_else(|| met.key.clone(), |(of, _)| of);
        let version = snapshot.version_behind(&of, id)?;
        if let Some((key, entry)) = version.filter(|(_, entry)| is_it(entry)) {
            (met.key, met.known, met.live) = (key, Some(entry), Some(entry));
        }
    }
    Ok(met)
}

/// Checks that a commit ends the batch before it; returns where the next batch continues.
fn follow(
    running: Option<Running>,
    committed: &Committed,
    see: &mut dyn FnMut(Observation<'_>) -> Result<()>,
) -> Result<Running> {
    let Committed { at, end, commit, refuted, .. } = committed;
    let wrong = match running {
        _ if !refuted.is_empty() => Some("the records before a commit do not match its list"),
        Some(running) if commit.sequence.0 != running.sequence + 1 => {
            Some("a commit does not have the next sequence number")
        }
        Some(running) if commit.begin != running.begin => {
            Some("a commit belongs to another batch than the records before it")
        }
        Some(running) if commit.chain_before != running.chain => Some("the chain is broken before a commit"),
        _ => None,
    };
    if let Some(wrong) = wrong {
        see(Observation::Batch(*at..*end, wrong))?;
    }
    Ok(Running { sequence: commit.sequence.0, chain: commit.chain(), begin: *end })
}

/// Adjacent flaws on the same devices, joined.
#[derive(Debug, Default)]
pub(crate) struct Flaws {
    open: Option<DamagedRecords>,
}

/// Records that are damaged on some copies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DamagedRecords {
    pub(crate) devices: Vec<DeviceNumber>,
    pub(crate) range: Range<LogOffset>,
    pub(crate) records: u64,
    /// Key of the first, if it is an object.
    pub(crate) key: Option<Vec<u8>>,
}

/// Flaws are joined up to this size, so that repairs proceed in steps.
const JOINED_BYTES: u64 = 4 << 20;

impl Flaws {
    /// Adds a record; returns the flaw that ends before it.
    pub(crate) fn add(&mut self, met: &AuditedRecord<'_>) -> Option<DamagedRecords> {
        if met.without.is_empty() {
            return self.open.take();
        }
        let range = met.range();
        if let Some(open) = &mut self.open
            && open.devices == met.without
            && open.range.end == range.start
            && range.end - open.range.start <= JOINED_BYTES
        {
            open.range.end = range.end;
            open.records += 1;
            return None;
        }
        let key = met.record.head.kind.is_used().then(|| met.key.clone());
        self.open.replace(DamagedRecords { devices: met.without.clone(), range, records: 1, key })
    }

    /// Whether everything that was found was returned.
    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_none()
    }

    /// The last flaw.
    pub(crate) fn end(&mut self) -> Option<DamagedRecords> {
        self.open.take()
    }
}
