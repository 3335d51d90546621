//! Scrubbing: every copy of the index, of every record and every stripe unit is read and verified, and repaired where
//! redundancy allows.
//!
//! The index comes first, as the rest is compared with it: every block of every table, manifest and journal, on each
//! device with a copy. If a part of it is damaged on all of them, the index is rebuilt from the log, which has
//! everything, if the caller lets the scrub reopen the store ([`Store::scrub_and_rebuild`]). Then follows the log,
//! segment by segment; the units of a large object are read when its record is met. A writer of the same process may
//! continue meanwhile. The catalog has a note of the progress, so that an interrupted scrub can resume, and one of when
//! and with what result the last scrub ended. Repairs only write the correct bytes: after a crash a flaw is unchanged
//! or repaired. A file is synced and its cached pages are dropped before it is read: memory may have what the device
//! has not, of a repair that failed or was killed.

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::audit::{DamagedRecords, Flaws, Observation, divergences};
use super::objects::ObjectPaths;
use super::problem::{Problem, ProblemKind, Remedy};
use crate::Store;
use crate::devices::device::Mode;
use crate::devices::survey::OpenOptions;
use crate::engine::copies::Damaged;
use crate::engine::locking::Access;
use crate::engine::pace::{Pace, outcome};
use crate::engine::repaired_copies::RepairedCopies;
use crate::engine::{Engine, View};
use crate::error::{Error, ErrorKind, Result};
use crate::format::descriptor::Descriptor;
use crate::format::ids::{DeviceNumber, LogOffset, SegmentNumber};
use crate::format::names::segment_path;
use crate::format::segment::FIRST_BATCH_AT;
use crate::index::catalog::SegmentRow;
use crate::progress::Progress;
use crate::units::format_counted;

/// Position of the current or interrupted scrub: segment and offset.
const POSITION: &str = "scrub.position";
/// Its result so far.
const TALLY: &str = "scrub.tally";
/// When the last scrub ended (nanoseconds since 1970), and its result.
pub(crate) const FINISHED: &str = "scrub.finished";
/// Longest time between two notes of the progress.
const NOTED_EVERY: Duration = Duration::from_secs(5);

/// How a store is scrubbed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScrubOptions {
    /// Most bytes read per second.
    pub bytes_per_second: Option<u64>,
    /// Resume an interrupted scrub; else start from the beginning.
    pub resume: bool,
}

impl Default for ScrubOptions {
    fn default() -> ScrubOptions {
        ScrubOptions { bytes_per_second: None, resume: true }
    }
}

/// Result of a scrub, including earlier sessions if it was resumed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ScrubReport {
    /// Whether it ran to the end.
    pub is_complete: bool,
    /// Whether the index is damaged on all copies: [`Store::scrub`] ends there, [`Store::scrub_and_rebuild`] has
    /// rebuilt it from the log.
    pub is_index_lost: bool,
    /// Bytes of copies of segments and of units that were verified.
    pub verified_bytes: u64,
    /// Bytes of copies of the index that were verified.
    pub index_bytes: u64,
    /// Problems found.
    pub found: u64,
    /// Problems that were repaired.
    pub repaired: u64,
    /// Repairs that failed: what was written is perhaps not durable.
    pub failed: u64,
    /// Whether a device that should be in service was not: what it has was not verified, or is not complete.
    pub is_partial: bool,
}

/// A scrub that ended, or was interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScrubStatus {
    /// When it ended, nanoseconds since 1970; `None` if it was interrupted.
    pub finished_nanoseconds: Option<i64>,
    /// Its result.
    pub report: ScrubReport,
}

impl ScrubReport {
    fn encode(&self) -> String {
        let ScrubReport { verified_bytes, found, repaired, index_bytes, is_partial, .. } = *self;
        format!("{verified_bytes} {found} {repaired} {index_bytes} {}", u8::from(is_partial))
    }

    fn decode(text: &str) -> Option<ScrubReport> {
        let numbers: Vec<u64> = text.split(' ').map(str::parse).collect::<std::result::Result<_, _>>().ok()?;
        let (&[verified_bytes, found, repaired, index_bytes], rest) = numbers.split_first_chunk()?;
        // Older notes do not say.
        let is_partial = rest.first().is_some_and(|&partial| partial > 0);
        Some(ScrubReport { verified_bytes, found, repaired, index_bytes, is_partial, ..ScrubReport::default() })
    }
}

impl Store {
    /// Verifies every byte and repairs what redundancy can repair. `found` receives each problem and whether it was
    /// repaired; `progress` receives the bytes of each stage.
    ///
    /// # Errors
    /// [`ReadOnly`](ErrorKind::ReadOnly) if the store was opened for reading; errors of writing and of syncing. Damage
    /// is not an error.
    pub fn scrub(
        &self,
        options: ScrubOptions,
        found: &mut dyn FnMut(&Problem, bool),
        progress: &Progress,
    ) -> Result<ScrubReport> {
        self.scrub_adding_to(ScrubReport::default(), options, found, progress)
    }

    /// As [`scrub`](Self::scrub); if the index is damaged on all copies, the store is reopened with one that is rebuilt
    /// from the log.
    ///
    /// # Errors
    /// As [`scrub`](Self::scrub) and [`rebuild_index`](crate::rebuild_index).
    pub fn scrub_and_rebuild(
        self,
        how: &OpenOptions,
        options: ScrubOptions,
        found: &mut dyn FnMut(&Problem, bool),
        progress: &Progress,
    ) -> Result<(Store, ScrubReport)> {
        let mut of_index = Vec::new();
        let mut sort = |problem: &Problem, is_repaired: bool| match problem.remedy {
            Remedy::RebuildIndex => of_index.push(problem.clone()),
            _ => found(problem, is_repaired),
        };
        let mut before = self.scrub(options, &mut sort, progress)?;
        if !before.is_index_lost {
            of_index.iter().for_each(|problem| found(problem, false));
            return Ok((self, before));
        }
        let (platform, home) = (Arc::clone(&self.engine().platform), self.engine().home.clone());
        drop(self);
        let store = Store::open_on(platform, &home, Access::RebuildIndex, how)?;
        of_index.iter().for_each(|problem| found(problem, true));
        before.repaired += of_index.len() as u64;
        let report = store.scrub_adding_to(before, ScrubOptions { resume: false, ..options }, found, progress)?;
        Ok((store, report))
    }

    /// Scrubs, and adds to the result `so_far`; an interrupted scrub that is resumed, to what it noted instead.
    fn scrub_adding_to(
        &self,
        mut so_far: ScrubReport,
        options: ScrubOptions,
        found: &mut dyn FnMut(&Problem, bool),
        progress: &Progress,
    ) -> Result<ScrubReport> {
        let engine = self.engine();
        // Only checks that the store is open for writing.
        drop(engine.writer()?);
        let mut pace = Pace::new(options.bytes_per_second, progress);
        let mut resume_at = None;
        if options.resume {
            resume_at = engine.noted(POSITION).as_deref().and_then(parse_position);
            if resume_at.is_some() {
                so_far = engine.noted(TALLY).as_deref().and_then(ScrubReport::decode).unwrap_or_default();
            }
        }
        let mut scrubber = Scrubber::new(engine, found, true);
        scrubber.report = so_far;
        scrubber.report.is_partial |= engine.unsettled().is_some();
        let result = scrubber.scrub(resume_at, &mut pace);
        scrubber.report.is_partial |= engine.unsettled().is_some();
        // A stop on request is not an error: the scrub is incomplete, and its position remains noted.
        scrubber.report.is_complete = outcome(result)? && !scrubber.lacks_index;
        let report = scrubber.report;
        if report.is_complete {
            // Empty notes are removed.
            let finished = format!("{} {}", engine.platform.now_nanoseconds(), report.encode());
            engine.note(&[(POSITION, Vec::new()), (TALLY, Vec::new()), (FINISHED, finished.into_bytes())])?;
        }
        Ok(report)
    }

    /// The interrupted scrub, if there is one, else the last that ended.
    pub fn last_scrub(&self) -> Option<ScrubStatus> {
        let engine = self.engine();
        if engine.noted(POSITION).is_some() {
            let report = engine.noted(TALLY).as_deref().and_then(ScrubReport::decode).unwrap_or_default();
            return Some(ScrubStatus { finished_nanoseconds: None, report });
        }
        let (at, report) = finished(&engine.noted(FINISHED)?)?;
        Some(ScrubStatus { finished_nanoseconds: Some(at), report })
    }
}

/// When the last scrub ended, in nanoseconds since 1970, and its result, from the note of it.
pub(crate) fn finished(note: &str) -> Option<(i64, ScrubReport)> {
    let (at, report) = note.split_once(' ')?;
    Some((at.parse().ok()?, ScrubReport { is_complete: true, ..ScrubReport::decode(report)? }))
}

fn parse_position(text: &str) -> Option<(SegmentNumber, LogOffset)> {
    let (segment, offset) = text.split_once(' ')?;
    Some((SegmentNumber(segment.parse().ok()?), LogOffset(offset.parse().ok()?)))
}

impl Engine {
    /// Bytes of all copies of segments and of all live units.
    pub(crate) fn stored_bytes(&self) -> u64 {
        let view = self.view();
        let segments: u64 = view.state.segments.values().map(|row| row.size_bytes * row.devices.len() as u64).sum();
        segments + view.state.extents.values().map(|row| row.live_bytes).sum::<u64>()
    }
}

/// Reads the log and repairs what it finds.
pub(crate) struct Scrubber<'m> {
    engine: &'m Engine,
    pub(crate) report: ScrubReport,
    found: &'m mut dyn FnMut(&Problem, bool),
    objects: ObjectPaths,
    /// Whether it notes its progress.
    keeps_notes: bool,
    /// Whether this pass found the index lost and stopped; the same in `report` may be from before a rebuild.
    lacks_index: bool,
    noted: Instant,
    /// Longest time between two notes.
    noted_every: Duration,
    /// Extent files that were met: they are read from their devices.
    uncached: BTreeSet<(DeviceNumber, u32)>,
}

impl<'m> Scrubber<'m> {
    pub(crate) fn new(engine: &'m Engine, found: &'m mut dyn FnMut(&Problem, bool), keeps_notes: bool) -> Scrubber<'m> {
        let (report, objects) = (ScrubReport::default(), ObjectPaths::default());
        Scrubber {
            engine,
            report,
            found,
            objects,
            keeps_notes,
            lacks_index: false,
            noted: Instant::now(),
            noted_every: NOTED_EVERY,
            uncached: BTreeSet::new(),
        }
    }

    fn found(&mut self, problem: Problem, is_repaired: bool) {
        self.report.found += 1;
        self.report.repaired += u64::from(is_repaired);
        let problem = match problem.key {
            Some(_) => self.objects.name(problem, &self.engine.snapshot()),
            None => problem,
        };
        (self.found)(&problem, is_repaired);
    }

    /// Verifies the index, unless an interrupted scrub was past it, and all segments from there on.
    fn scrub(&mut self, at: Option<(SegmentNumber, LogOffset)>, pace: &mut Pace<'_>) -> Result<()> {
        if at.is_none() {
            pace.stage("verifying the index", self.engine.index_bytes());
            self.lacks_index = !self.verify_index(pace)?;
            if self.lacks_index {
                self.report.is_index_lost = true;
                return Ok(());
            }
        }
        pace.stage("scrubbing", self.engine.stored_bytes());
        pace.skip(self.report.verified_bytes);
        let from = at.unwrap_or_default();
        self.note(from.0, from.1)?;
        self.verify_log(from, pace)
    }

    /// Verifies and repairs every copy of the index, and reports what it found; returns `false` only if part of a table
    /// is damaged on every copy.
    fn verify_index(&mut self, pace: &mut Pace<'_>) -> Result<bool> {
        let is_sound = self.verify_tables(pace)?;
        self.verify_catalog(pace)?;
        self.complete_copies()?;
        Ok(is_sound)
    }

    fn verify_tables(&mut self, pace: &mut Pace<'_>) -> Result<bool> {
        let engine = self.engine;
        let mut is_sound = true;
        let rows = Arc::clone(&engine.view().state.tables);
        for row in rows.iter() {
            let flaws = engine.flaws_of_table(row, pace)?;
            self.report.index_bytes += row.size_bytes * engine.index.places().len() as u64;
            // A table that was merged meanwhile no longer exists.
            if flaws.is_empty() || !engine.view().state.tables.contains(row) {
                continue;
            }
            let mut failure = String::new();
            let repaired = self.unless_fatal(engine.repair_table(row, &flaws), &mut failure)?;
            is_sound &= repaired != Some(false);
            let remedy = if repaired == Some(false) { Remedy::RebuildIndex } else { Remedy::Repair };
            for flaw in flaws {
                let problem = Problem::new(ProblemKind::Table, flaw.path, flaw.cause + &failure, remedy);
                self.found(problem.on(flaw.device), repaired == Some(true));
            }
        }
        Ok(is_sound)
    }

    fn verify_catalog(&mut self, pace: &mut Pace<'_>) -> Result<()> {
        let engine = self.engine;
        let (flaws, read_bytes) = engine.flaws_of_catalog();
        self.report.index_bytes += read_bytes;
        pace.spend(read_bytes)?;
        let mut failure = String::new();
        // Its content is in memory: no sound copy is needed. A device where it cannot be written loses its copy.
        if !flaws.is_empty() {
            self.unless_fatal(engine.catalog.write_again(), &mut failure)?;
        }
        for flaw in flaws {
            let is_repaired = failure.is_empty() && engine.index.numbers().contains(&flaw.device);
            let problem = Problem::new(ProblemKind::Catalog, flaw.path, flaw.cause + &failure, Remedy::Repair);
            self.found(problem.on(flaw.device), is_repaired);
        }
        Ok(())
    }

    fn complete_copies(&mut self) -> Result<()> {
        let engine = self.engine;
        let missing = engine.index_copies_missing();
        if missing.is_empty() {
            return Ok(());
        }
        let mut failure = String::new();
        self.unless_fatal(engine.complete_index(), &mut failure)?;
        let left = engine.index_copies_missing();
        for fault in missing {
            let still = left.iter().find(|left| left.device == fault.device);
            let cause = still.map_or(&fault.cause, |still| &still.cause).clone() + &failure;
            let problem = Problem::new(ProblemKind::Catalog, fault.path, cause, Remedy::Repair).on(fault.device);
            self.found(problem, still.is_none());
        }
        Ok(())
    }

    /// Verifies all segments from a segment and offset on.
    pub(crate) fn verify_log(&mut self, from: (SegmentNumber, LogOffset), pace: &mut Pace<'_>) -> Result<()> {
        let (mut next, mut offset) = from;
        loop {
            // A separate pin for each segment: what was freed meanwhile need not wait for the end.
            let (_pin, view) = self.engine.pinned()?;
            let is_superseded = |row: &&SegmentRow| view.state.superseded_segments().any(|number| number == row.number);
            let row = view.state.segments.range(next..).map(|(_, row)| row).find(|row| !is_superseded(row)).cloned();
            let Some(row) = row else { return Ok(()) };
            let from = if row.number == next { offset } else { LogOffset::START };
            self.segment(&row, &view, from, pace)?;
            (next, offset) = (row.number.next(), LogOffset::START);
            self.note(next, LogOffset::START)?;
        }
    }

    fn note(&mut self, segment: SegmentNumber, offset: LogOffset) -> Result<()> {
        if !self.keeps_notes || self.noted.elapsed() < self.noted_every && offset > LogOffset::START {
            return Ok(());
        }
        self.noted = Instant::now();
        let position = format!("{segment} {offset}").into_bytes();
        self.engine.note(&[(POSITION, position), (TALLY, self.report.encode().into_bytes())])
    }

    /// Verifies one segment with all its copies, from an offset where a batch begins.
    pub(crate) fn segment(
        &mut self,
        row: &SegmentRow,
        view: &View,
        from: LogOffset,
        pace: &mut Pace<'_>,
    ) -> Result<()> {
        let engine = self.engine;
        if from == LogOffset::START {
            self.sizes(row, pace)?;
        }
        engine.open_segment_copies(row.id(), &row.devices).iter().for_each(|(_, file)| file.drop_cache());
        let snapshot = view.snapshot();
        let mut flaws = Flaws::default();
        let mut verified_to = from;
        let mut damaged = Vec::new();
        let copies = row.devices.iter().filter(|&&device| engine.devices.readable(device).is_some()).count() as u64;
        engine.audit_segment(row, &snapshot, from, pace, &mut |sight, pace| {
            match sight {
                Observation::Header(header, without) => {
                    if !without.is_empty() {
                        self.header(row, header.is_some(), &without)?;
                    }
                }
                Observation::Damage(range, _) => damaged.push(range),
                Observation::Batch(range, cause) => {
                    let problem = Problem::new(ProblemKind::Batch, engine.segment_place(row), cause, Remedy::Harmless);
                    self.found(problem.within(row.number, range), false);
                }
                Observation::Batched(end) => {
                    self.report.verified_bytes += (end - verified_to) * copies;
                    verified_to = end;
                    // Both are reported at the end of the segment; a scrub that is resumed begins behind the note.
                    if flaws.is_empty() && damaged.is_empty() {
                        self.note(row.number, end)?;
                    }
                }
                Observation::Record(met) => {
                    divergences(engine, row, met).into_iter().for_each(|problem| self.found(problem, false));
                    if let Some(flaw) = flaws.add(met) {
                        self.flaw(row, flaw)?;
                    }
                    if let (crate::Kind::Large, Some(_)) = (met.record.head.kind, met.live) {
                        match engine.descriptor_in(row, &met.record) {
                            Ok(descriptor) => self.large(&met.key, &descriptor, pace)?,
                            Err(error) => {
                                let problem = Problem::new(
                                    ProblemKind::Record,
                                    engine.segment_place(row),
                                    error.to_string(),
                                    Remedy::Lost,
                                );
                                self.found(problem.of(&met.key), false);
                            }
                        }
                    }
                }
            }
            Ok(())
        })?;
        flaws.end().map_or(Ok(()), |flaw| self.flaw(row, flaw))?;
        if damaged.is_empty() { Ok(()) } else { self.damage(row, &damaged, view) }
    }

    /// Bytes that are damaged on every copy, and the objects in them.
    fn damage(&mut self, row: &SegmentRow, damaged: &[Range<LogOffset>], view: &View) -> Result<()> {
        let place = self.engine.segment_place(row);
        let mut hit = vec![false; damaged.len()];
        let snapshot = view.snapshot();
        let mut scan = snapshot.scan_versions_from(&[])?;
        while let Some((key, entry)) = scan.next_entry()? {
            let here = entry.location.range();
            let found = damaged.iter().position(|range| range.start < here.end && here.start < range.end);
            let Some(at) = found.filter(|_| entry.location.segment == row.number) else { continue };
            hit[at] = true;
            let cause = format!("the record is damaged on {}", self.engine.copies_in_words(&row.devices));
            let problem = Problem::new(ProblemKind::Record, place.clone(), cause, self.engine.remedy_of_segment(row));
            self.found(problem.within(row.number, here).of(key), false);
        }
        for (range, _) in damaged.iter().zip(hit).filter(|(_, hit)| !hit) {
            self.found(self.engine.damage_without_objects(row, range.clone()), false);
        }
        Ok(())
    }

    /// Copies that are missing, truncated or too long.
    fn sizes(&mut self, row: &SegmentRow, pace: &mut Pace<'_>) -> Result<()> {
        let engine = self.engine;
        if row.is_without_batches() {
            return Ok(());
        }
        let is_active = row.number >= engine.view().state.position.segment;
        for &device in row.devices.iter().filter(|&&device| engine.is_settled(device)) {
            let place = engine.devices.place(device, &segment_path(row.id()));
            let size = match engine.devices.segment(device, row.id(), Mode::Read).and_then(|file| file.size()) {
                Ok(size) => Some(size),
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                Err(error) => {
                    let cause = engine.devices.error("read the segment", device, &segment_path(row.id()), error);
                    if is_of_replaced(&cause) {
                        return Err(cause);
                    }
                    let problem = Problem::new(ProblemKind::SegmentMissing, place, cause.to_string(), Remedy::Rebuild);
                    self.found(problem.on(device).within(row.number, LogOffset::START..row.end()), false);
                    continue;
                }
            };
            let has_copy = |&other: &DeviceNumber| engine.devices.segment(other, row.id(), Mode::Read).is_ok();
            let has_other = row.devices.iter().any(|other| *other != device && has_copy(other));
            let (kind, what) = match size {
                None => (ProblemKind::SegmentMissing, "the segment is missing"),
                Some(size) if size < row.size_bytes => (ProblemKind::SegmentSize, "the segment is truncated"),
                Some(_) => continue,
            };
            let (mut is_repaired, mut cause) = (false, what.to_owned());
            if has_other {
                if is_active {
                    engine.close_active_segment()?;
                }
                // What was written since is copied too.
                let now = engine.view().state.segments.get(&row.number).cloned();
                let Some(now) = now.filter(|_| !engine.is_superseded(row.number)) else { continue };
                let copied = engine.copy_segment(&now, device, Damaged::Copied, pace);
                is_repaired = self
                    .unless_fatal(copied, &mut cause)?
                    .is_some_and(|copied| copied.damaged_bytes == 0 && !copied.is_kept);
            }
            let remedy = if has_other { Remedy::Repair } else { engine.remedy_of_segment(row) };
            let problem = Problem::new(kind, place, cause, remedy).on(device);
            self.found(problem.within(row.number, LogOffset::START..row.end()), is_repaired);
        }
        Ok(())
    }

    fn header(&mut self, row: &SegmentRow, is_held: bool, without: &[DeviceNumber]) -> Result<()> {
        // A segment that a crash left without a batch is no part of the log.
        if !is_held && row.live_records + row.dead_records == 0 {
            return Ok(());
        }
        let range = LogOffset::START..FIRST_BATCH_AT;
        let mut cause = "its header is damaged".to_owned();
        let repaired = match is_held {
            true => self.repair_copies(row, range.clone(), &mut cause)?,
            false => RepairedCopies::default(),
        };
        for &device in without {
            let place = self.engine.devices.place(device, &segment_path(row.id()));
            let remedy = if is_held { Remedy::Repair } else { Remedy::Harmless };
            let cause = cause_on(device, &repaired, &cause);
            let problem = Problem::new(ProblemKind::SegmentHeader, place, cause, remedy).on(device);
            let is_repaired = repaired.has(device) && self.engine.is_settled(device);
            self.found(problem.within(row.number, range.clone()), is_repaired);
        }
        Ok(())
    }

    fn flaw(&mut self, row: &SegmentRow, flaw: DamagedRecords) -> Result<()> {
        let damaged = format_counted(flaw.records, "record was", "records were");
        let mut cause = format!("{damaged} damaged on this copy");
        let repaired = self.repair_copies(row, flaw.range.clone(), &mut cause)?;
        for &device in &flaw.devices {
            let place = self.engine.devices.place(device, &segment_path(row.id()));
            let cause = cause_on(device, &repaired, &cause);
            let problem = Problem::new(ProblemKind::Record, place, cause, Remedy::Repair).on(device);
            let mut problem = problem.within(row.number, flaw.range.clone());
            problem.key.clone_from(&flaw.key);
            self.found(problem, repaired.has(device) && self.engine.is_settled(device));
        }
        Ok(())
    }

    /// Repairs a range of a segment on its copies. If the repair fails as a whole, none counts as repaired, though some
    /// may have been written, and the error is added to `cause`.
    ///
    /// # Errors
    /// Those that end a scrub: all that [`unless_fatal`](Self::unless_fatal) does not take.
    fn repair_copies(
        &mut self,
        row: &SegmentRow,
        range: Range<LogOffset>,
        cause: &mut String,
    ) -> Result<RepairedCopies> {
        let repaired = self.engine.repair_segment(row.number, range);
        let repaired = repaired.and_then(|repaired| repaired.unless(is_of_replaced));
        let repaired = self.unless_fatal(repaired, cause)?.unwrap_or_default();
        self.report.failed += repaired.failed();
        Ok(repaired)
    }

    /// The outcome of a repair; `None`, with its error added to the cause, if it failed in a way that says nothing
    /// about what is verified next: one bad place does not end a scrub.
    fn unless_fatal<T>(&mut self, outcome: Result<T>, cause: &mut String) -> Result<Option<T>> {
        let goes_on = |error: &Error| {
            matches!(error.kind(), ErrorKind::Io | ErrorKind::NoSpace | ErrorKind::Lost) && !is_of_replaced(error)
        };
        match outcome {
            Err(error) if goes_on(&error) => {
                cause.push_str(&format!("; it was not repaired: {error}"));
                self.report.failed += 1;
                Ok(None)
            }
            outcome => outcome.map(Some),
        }
    }

    /// Verifies the units of a large object.
    fn large(&mut self, key: &[u8], descriptor: &Descriptor, pace: &mut Pace<'_>) -> Result<()> {
        let engine = self.engine;
        for run in descriptor.runs() {
            if self.uncached.insert((run.device, run.file)) {
                engine.extents.drop_cache(run.device, run.file);
            }
        }
        let wrong = engine.extents.verify(descriptor, &mut |bytes| pace.spend(bytes))?;
        let is_read = |device: DeviceNumber| engine.devices.readable(device).is_some();
        let read = descriptor.runs().filter(|run| is_read(run.device));
        self.report.verified_bytes += read.map(|run| run.length_bytes).sum::<u64>();
        if wrong.is_empty() {
            return Ok(());
        }
        // Units on devices that are missing or not yet rebuilt are left to a rebuild.
        let (here, _): (Vec<_>, Vec<_>) = wrong.into_iter().partition(|unit| engine.is_settled(unit.device));
        if here.is_empty() {
            return Ok(());
        }
        let mut repaired = engine.extents.repair(descriptor, &here)?;
        if let Some(at) = repaired.unwritten.iter().position(|(_, error)| is_of_replaced(error)) {
            return Err(repaired.unwritten.swap_remove(at).1);
        }
        self.report.failed += repaired.unwritten.len() as u64;
        let mut why = String::new();
        let is_synced = self.unless_fatal(engine.extents.sync(&repaired.touched), &mut why)?.is_some();
        for unit in &here {
            let Some(chunk) = descriptor.chunks.get(unit.chunk) else { continue };
            let run = chunk.unit(unit.stripe, unit.unit);
            let of_stripe =
                || repaired.left.iter().filter(|left| (left.chunk, left.stripe) == (unit.chunk, unit.stripe));
            let is_left = of_stripe().any(|left| left.unit == unit.unit);
            let remedy = if is_left { engine.remedy_of_stripe(chunk, of_stripe()) } else { Remedy::Repair };
            let unwritten = repaired.unwritten.iter().find(|(unwritten, _)| unwritten == unit).map(|(_, error)| error);
            let cause = match unwritten {
                Some(error) => format!("a stripe unit {}; it was not repaired: {error}", unit.fault),
                None if is_left => format!("a stripe unit {}", unit.fault),
                None => format!("a stripe unit {}{why}", unit.fault),
            };
            let mut problem =
                Problem::new(ProblemKind::Unit, engine.extents.place(run.device, run.file), cause, remedy);
            problem.range = Some(Range { start: run.offset_bytes, end: run.offset_bytes + run.length_bytes });
            let is_repaired = !is_left && unwritten.is_none() && is_synced;
            self.found(problem.on(run.device).of(key), is_repaired);
        }
        Ok(())
    }
}

/// The cause of a problem on one device, with why it was not repaired there.
fn cause_on(device: DeviceNumber, repaired: &RepairedCopies, cause: &str) -> String {
    match repaired.cause(device) {
        Some(error) => format!("{cause}; it was not repaired: {error}"),
        None => cause.to_owned(),
    }
}

/// Whether the directory of a device is no longer the one that was opened: nothing on it can be reached.
fn is_of_replaced(error: &Error) -> bool {
    error.os_error().is_some_and(|source| source.raw_os_error() == Some(rustix::io::Errno::STALE.raw_os_error()))
}

#[cfg(test)]
mod tests;
