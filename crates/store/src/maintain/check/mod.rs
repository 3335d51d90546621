//! Checking a store: whether its metadata agree and, if requested, every byte.
//!
//! | module | subject |
//! | --- | --- |
//! | here | superblocks, catalog, tables |
//! | [`files`] | segments and extent files: sizes and headers |
//! | [`entries`] | the whole index: places, names of shared objects, directories |
//! | [`deep`] | every record on every copy, every unit, and the index against the log |
//! | [`unclaimed`] | live records of the log that the index lacks |
//!
//! Problems are passed to the caller as they are found; memory grows with the number of segments, of directories and of
//! files with several names, not with the number of files. A check changes nothing and works beside a writer: it
//! examines one state of the catalog, pins what that refers to, and ignores what was written after it.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::time::Duration;

use super::objects::ObjectPaths;
use super::problem::{Problem, ProblemKind, Remedy};
use super::status::explain_trouble;
use crate::Store;
use crate::devices::admission::newer_advice;
use crate::devices::slot::{Slot, Trouble};
use crate::engine::pace::{Pace, outcome};
use crate::engine::pins::Loose;
use crate::engine::recovered::{Damage, Recovered};
use crate::engine::{Engine, View};
use crate::error::{ErrorKind, Result};
use crate::format::geometry::DeviceState;
use crate::format::ids::{DeviceNumber, LogOffset, SegmentNumber};
use crate::format::names::{SegmentName, segment_path};
use crate::format::superblock::{SUPERBLOCK, Superblock};
use crate::index::Snapshot;
use crate::index::catalog::{Position, SegmentRow};
use crate::log::scan::{Committed, ScanStep, SegmentScan};
use crate::progress::Progress;
use crate::units::{format_count, format_size};

mod deep;
mod entries;
mod files;
mod unclaimed;

/// A superblock that is being written is whole after this time.
const WRITING: Duration = Duration::from_millis(50);

/// How thoroughly a store is checked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CheckOptions {
    /// Every byte, not only metadata.
    pub is_deep: bool,
    /// Most bytes read per second.
    pub bytes_per_second: Option<u64>,
}

/// Result of a check.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Whether every byte was examined.
    pub is_deep: bool,
    /// Whether it ran to the end.
    pub is_complete: bool,
    /// Problems that a repair solves.
    pub repairable: u64,
    /// Problems that the return or the rebuild of a device solves.
    pub rebuildable: u64,
    /// Problems of the index alone.
    pub of_index: u64,
    /// Damage where no live object is.
    pub harmless: u64,
    /// Problems that no redundancy solves.
    pub lost: u64,
    /// Live keys: files, directories, symlinks, special files, and names of files with several.
    pub keys: u64,
    /// Segments.
    pub segments: u64,
    /// Sorted tables of the index.
    pub tables: u64,
    /// Large objects whose units were read.
    pub large_objects: u64,
    /// Bytes of segments and units that were read and verified.
    pub verified_bytes: u64,
    /// Bytes in extent files that no object refers to, left by a killed writer. Harmless, and not a problem: compaction
    /// frees them.
    pub quarantined_bytes: u64,
    /// Whether every record in the log was found to be in the index or removed, and what cannot be read is in segments
    /// without lost objects: then nothing comes back when segments with damage are freed together.
    pub(crate) is_log_explained: bool,
}

impl CheckReport {
    /// All problems.
    pub fn problems(&self) -> u64 {
        self.repairable + self.rebuildable + self.of_index + self.harmless + self.lost
    }

    pub(super) fn count(&mut self, remedy: Remedy) {
        *match remedy {
            Remedy::Repair => &mut self.repairable,
            Remedy::Rebuild | Remedy::Return => &mut self.rebuildable,
            Remedy::RebuildIndex => &mut self.of_index,
            Remedy::Harmless => &mut self.harmless,
            Remedy::Lost => &mut self.lost,
        } += 1;
    }
}

impl Store {
    /// Checks the store; `found` receives each problem, `progress` the bytes of each stage.
    ///
    /// # Errors
    /// Errors that make continuing impossible; damage is a problem that was found, not an error.
    /// [`Busy`](ErrorKind::Busy) if files were freed meanwhile, as this user may not keep what it reads: what is gone
    /// then is no damage.
    pub fn check(
        &self,
        options: CheckOptions,
        found: &mut dyn FnMut(Problem),
        progress: &Progress,
    ) -> Result<CheckReport> {
        let (pin, view) = self.engine().pinned()?;
        self.check_view(view, pin.loose(), options, found, progress)
    }

    /// The same for a state, which may be freed meanwhile or not.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub(crate) fn check_view(
        &self,
        view: View,
        loose: Loose,
        options: CheckOptions,
        found: &mut dyn FnMut(Problem),
        progress: &Progress,
    ) -> Result<CheckReport> {
        let engine = self.engine();
        let mut pace = Pace::new(options.bytes_per_second, progress);
        let mut checker = Checker::new(engine, view, loose, found);
        checker.report.is_deep = options.is_deep;
        checker.knows_all = self.completeness().is_complete();
        let Recovered { damage, lost, .. } = self.recovered();
        for Damage { segment, range } in damage {
            let what = "acknowledged bytes of the log are damaged";
            checker.found(checker.of_damage(ProblemKind::Log, what, *segment, range.clone()).of_unknown());
        }
        // A deep check reads them.
        for (key, Damage { segment, range }) in lost.iter().filter(|_| !options.is_deep) {
            let found = checker.snapshot.look_up(key)?;
            if found.is_some_and(|entry| (entry.location.segment, entry.location.range()) == (*segment, range.clone()))
            {
                let problem = checker.of_damage(ProblemKind::Record, "the record is damaged", *segment, range.clone());
                checker.found(problem.of(key));
            }
        }
        let result = checker.run(options.is_deep, &mut pace);
        if checker.is_overtaken {
            return Err(engine.freed());
        }
        checker.report.is_complete = outcome(result).map_err(|error| engine.or_freed(loose, error))?;
        Ok(checker.report)
    }
}

/// Records that the index has in a segment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Sum {
    records: u64,
    bytes: u64,
}

/// What is wrong with a device, and what helps.
struct Diagnosis {
    cause: String,
    remedy: Remedy,
    advice: Option<String>,
}

/// A check in progress.
struct Checker<'c> {
    engine: &'c Engine,
    view: View,
    snapshot: Snapshot,
    slots: Vec<Slot>,
    report: CheckReport,
    found: &'c mut dyn FnMut(Problem),
    objects: ObjectPaths,
    /// The index totals of each segment; `None` if the index could not be read to the end.
    sums: Option<HashMap<SegmentNumber, Sum>>,
    superseded: BTreeSet<SegmentNumber>,
    /// Segments of lost objects.
    lost_in: BTreeSet<SegmentNumber>,
    /// Sizes of segments by device and number.
    sizes: HashMap<(DeviceNumber, SegmentName), u64>,
    /// Whether nobody else can be writing.
    is_alone: bool,
    /// Whether a device with records is present.
    sees_log: bool,
    /// Whether the index has everything that was acknowledged.
    knows_all: bool,
    /// Whether what is checked may be freed meanwhile; and whether that may have happened when there was a problem.
    loose: Loose,
    is_overtaken: bool,
}

impl<'c> Checker<'c> {
    fn new(engine: &'c Engine, view: View, loose: Loose, found: &'c mut dyn FnMut(Problem)) -> Checker<'c> {
        Checker {
            engine,
            snapshot: view.snapshot(),
            slots: engine.devices.slots().to_vec(),
            report: CheckReport::default(),
            found,
            objects: ObjectPaths::default(),
            sums: None,
            superseded: view.state.superseded_segments().collect(),
            lost_in: BTreeSet::new(),
            sizes: HashMap::new(),
            is_alone: engine.is_writer() || !engine.platform.is_locked(&engine.home),
            sees_log: engine.devices.sees_log(&engine.geometry()),
            knows_all: false,
            loose,
            is_overtaken: false,
            view,
        }
    }

    fn found(&mut self, problem: Problem) {
        self.is_overtaken |= self.engine.may_have_freed(self.loose);
        if self.is_overtaken {
            return;
        }
        self.report.count(problem.remedy);
        if problem.remedy == Remedy::Lost && problem.key.is_some() {
            self.lost_in.extend(problem.segment);
        }
        (self.found)(self.objects.name(problem, &self.snapshot));
    }

    fn run(&mut self, is_deep: bool, pace: &mut Pace<'_>) -> Result<()> {
        pace.stage("checking metadata", self.engine.index_bytes());
        self.devices()?;
        self.index_place();
        self.tables(pace)?;
        self.entries(pace)?;
        self.accounts();
        self.position();
        self.segments(pace)?;
        self.extents()?;
        if is_deep { self.every_byte(pace) } else { Ok(()) }
    }

    fn slot(&self, number: DeviceNumber) -> Option<&Slot> {
        self.slots.get(number.index())
    }

    fn is_readable(&self, device: DeviceNumber) -> bool {
        self.slot(device).is_some_and(Slot::is_readable)
    }

    /// Whether everything that the accounts have on a device should exist there.
    fn is_settled(&self, device: DeviceNumber) -> bool {
        self.slot(device).is_some_and(|slot| slot.is_readable() && slot.entry.state == DeviceState::InUse)
    }

    /// Devices and their superblocks.
    fn devices(&mut self) -> Result<()> {
        let geometry = self.engine.geometry();
        for slot in self.slots.clone() {
            match &slot.trouble {
                Some(Trouble::Gone) => {}
                Some(trouble) => {
                    let problem = self.of_trouble(&slot, trouble);
                    self.found(problem);
                }
                None => {
                    self.superblock(&slot)?;
                    if slot.entry.state == DeviceState::Rebuilding {
                        let cause =
                            format!("device {} is being rebuilt: not everything is on it yet", slot.entry.number);
                        self.found(
                            Problem::new(ProblemKind::Device, slot.path.clone(), cause, Remedy::Rebuild)
                                .on(slot.entry.number),
                        );
                    }
                }
            }
        }
        if geometry.has_home_apart() {
            let home = self.engine.platform.device(&self.engine.home);
            let place = self.engine.home.join(SUPERBLOCK);
            match Superblock::read(&*home) {
                Ok(Some(found)) if found.superblock.geometry.store != geometry.store => {
                    self.found(Problem::new(
                        ProblemKind::Geometry,
                        place,
                        "the home has the superblock of another store: move it away",
                        Remedy::Rebuild,
                    ));
                }
                Ok(Some(_)) if self.has_damaged_slot(&*home)? => {
                    self.found(Problem::new(
                        ProblemKind::Superblock,
                        place,
                        "one of its two slots is damaged",
                        Remedy::Repair,
                    ));
                }
                Ok(Some(_)) => {}
                Ok(None) => self.found(Problem::new(
                    ProblemKind::Superblock,
                    place,
                    "the home has no superblock",
                    Remedy::Repair,
                )),
                Err(error) if error.kind() == ErrorKind::Corrupt => {
                    self.found(Problem::new(
                        ProblemKind::Superblock,
                        place,
                        "both of its slots are damaged",
                        Remedy::Repair,
                    ));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Whether a slot is damaged, and neither is being written nor was when a writer was killed.
    fn has_damaged_slot(&self, device: &dyn crate::devices::device::Device) -> Result<bool> {
        let is_damaged = || Ok(Superblock::sound_slots(device)? < 2 && !Superblock::has_unfinished_slot(device)?);
        if !is_damaged()? {
            return Ok(false);
        }
        std::thread::sleep(WRITING);
        is_damaged()
    }

    fn superblock(&mut self, slot: &Slot) -> Result<()> {
        let place = slot.path.join(SUPERBLOCK);
        if self.has_damaged_slot(&*slot.device)? {
            let problem =
                Problem::new(ProblemKind::Superblock, place.clone(), "one of its two slots is damaged", Remedy::Repair);
            self.found(problem.on(slot.entry.number));
        }
        let found = Superblock::read(&*slot.device)?.map(|found| found.superblock);
        if self.is_alone && found.is_some_and(|found| !found.geometry.is_same_elsewhere(&self.engine.geometry())) {
            let cause = "its geometry differs from that of the newest superblock";
            self.found(Problem::new(ProblemKind::Geometry, place, cause, Remedy::Repair).on(slot.entry.number));
        }
        Ok(())
    }

    /// The problem of damage on all copies of a segment, which recovery met.
    fn of_damage(&self, kind: ProblemKind, what: &str, segment: SegmentNumber, range: Range<LogOffset>) -> Problem {
        let engine = self.engine;
        let place = engine.devices.place(DeviceNumber(0), &segment_path(engine.segment_id(segment)));
        let row = self.view.state.segments.get(&segment);
        let cause = format!("{what} on {}", engine.copies_in_words(row.map_or(&[][..], |row| &row.devices)));
        let remedy = row.map_or(Remedy::Lost, |row| engine.remedy_of_segment(row));
        Problem::new(kind, place, cause, remedy).within(segment, range)
    }

    /// The problem of a device with a fault, and of what is on it.
    fn of_trouble(&self, slot: &Slot, trouble: &Trouble) -> Problem {
        let number = slot.entry.number;
        let Diagnosis { mut cause, mut remedy, mut advice } = self.diagnose(slot, trouble);
        if self.sees_log {
            let state = &self.view.state;
            let on_it = |row: &&SegmentRow| row.devices.contains(&number);
            let (mut segments, mut segment_bytes) = (0, 0);
            for row in state.segments.values().filter(on_it) {
                (segments, segment_bytes) = (segments + 1, segment_bytes + row.size_bytes);
            }
            let of_it = state.extents.values().filter(|row| row.device == number);
            let unit_bytes: u64 = of_it.map(|row| row.live_bytes).sum();
            if matches!(trouble, Trouble::Damaged | Trouble::Unmarked | Trouble::Empty) {
                // Without a sound superblock, only what it should have shows that it is the device.
                let is_ours = self.engine.has_ours(slot).unwrap_or(false);
                remedy = if is_ours { Remedy::Repair } else { Remedy::Rebuild };
            }
            cause.push_str(&format!(
                "; {} {} ({}) and {} of large objects are kept on it",
                format_count(segments),
                if segments == 1 { "segment" } else { "segments" },
                format_size(segment_bytes.into()),
                format_size(unit_bytes.into())
            ));
        } else {
            cause.push_str("; what it has is unknown, because no device with records is present");
            if remedy == Remedy::Rebuild {
                (remedy, advice) = (Remedy::Return, None);
            }
        }
        let problem = Problem::new(ProblemKind::Device, slot.path.clone(), cause, remedy).on(number);
        advice.into_iter().fold(problem, Problem::advise)
    }

    /// What is wrong with a device.
    fn diagnose(&self, slot: &Slot, trouble: &Trouble) -> Diagnosis {
        let number = slot.entry.number;
        let words = || explain_trouble(slot).unwrap_or_else(|| trouble.explain());
        let of = |remedy| Diagnosis { cause: format!("device {number} {}", words()), remedy, advice: None };
        match trouble {
            Trouble::Damaged | Trouble::Unmarked | Trouble::Stale { .. } => of(Remedy::Repair),
            Trouble::Newer => Diagnosis { advice: Some(newer_advice(slot)), ..of(Remedy::Return) },
            Trouble::Stranger => {
                let found = Superblock::read(&*slot.device).ok().flatten().map(|found| found.superblock);
                let geometry = self.engine.geometry();
                let found = found.filter(|found| found.geometry.store == geometry.store);
                let known = found.as_ref().map(|found| {
                    geometry.devices.iter().find(|entry| entry.identity == found.identity).map(|entry| entry.number)
                });
                let (what, advice) = match known {
                    None => ("it belongs to another store".to_owned(), None),
                    Some(Some(other)) => (format!("it is device {other}"), None),
                    Some(None) => {
                        let advice = format!(
                            "granulo store rebuild --device {number} --onto DIRECTORY fills a directory in its place; \
                             this one will do"
                        );
                        ("it is one that was replaced".to_owned(), Some(advice))
                    }
                };
                let cause = format!("device {number} should be there, but {what}");
                Diagnosis { cause, remedy: Remedy::Rebuild, advice }
            }
            _ => of(Remedy::Rebuild),
        }
    }

    /// If the index is lost, readers build one for themselves; if a copy is damaged or missing, the others have it.
    fn index_place(&mut self) {
        if !self.engine.is_index_private {
            for flaw in self.engine.flaws_of_catalog().0 {
                self.found(Problem::new(ProblemKind::Catalog, flaw.path, flaw.cause, Remedy::Repair).on(flaw.device));
            }
            for fault in self.engine.index_copies_missing() {
                let problem = Problem::new(ProblemKind::Catalog, fault.path, fault.cause, Remedy::Repair);
                self.found(problem.on(fault.device));
            }
        } else if self.view.state.position != Position::default() {
            // A store without any batch needs none.
            let cause = "no device in service has an index that this reader could use: it built a private one, as the next writer will";
            self.found(Problem::new(ProblemKind::Catalog, self.engine.home.clone(), cause, Remedy::RebuildIndex));
        }
    }

    fn tables(&mut self, pace: &mut Pace<'_>) -> Result<()> {
        for table in self.view.tables.clone().iter() {
            self.report.tables += 1;
            let flaws = self.engine.flaws_of_table(table.row(), pace)?;
            if !flaws.is_empty() {
                // A writer may have merged and removed it meanwhile.
                self.engine.refresh()?;
                if !self.engine.view().state.tables.contains(table.row()) {
                    continue;
                }
            }
            let is_sound = flaws.len() < self.engine.index.places().len() || table.verify().is_ok();
            let remedy = if is_sound { Remedy::Repair } else { Remedy::RebuildIndex };
            for flaw in flaws {
                self.found(Problem::new(ProblemKind::Table, flaw.path, flaw.cause, remedy).on(flaw.device));
            }
        }
        Ok(())
    }

    /// Compares the accounts of the catalog with the index.
    fn accounts(&mut self) {
        let Some(sums) = self.sums.take() else { return };
        let rows = std::sync::Arc::clone(&self.view.state.segments);
        for row in rows.values() {
            let sum = sums.get(&row.number).copied().unwrap_or_default();
            if (sum.records, sum.bytes) != (row.live_records, row.live_bytes) {
                let cause = format!(
                    "the catalog counts {} records in use of {} bytes, the index has {} of {}",
                    row.live_records, row.live_bytes, sum.records, sum.bytes
                );
                let problem =
                    Problem::new(ProblemKind::Account, self.engine.segment_place(row), cause, Remedy::RebuildIndex);
                self.found(problem.within(row.number, LogOffset::START..row.end()));
            }
            if self.superseded.contains(&row.number) && sum.records > 0 {
                let cause = format!("it is to be freed, but {} records in it are in use", sum.records);
                self.found(Problem::new(
                    ProblemKind::Account,
                    self.engine.segment_place(row),
                    cause,
                    Remedy::RebuildIndex,
                ));
            }
        }
        self.sums = Some(sums);
    }

    /// The last batch that the catalog has taken in must be in the log. If it is damaged there, the index is not wrong:
    /// rebuilt from what is left, it would lack what it has.
    fn position(&mut self) {
        let position = self.view.state.position;
        let Some(row) = self.view.state.segments.get(&position.segment).cloned() else {
            if position.segment > SegmentNumber(0) {
                let cause = format!("the log ends in segment {}, which is not in the catalog", position.segment);
                self.found(Problem::new(
                    ProblemKind::Log,
                    self.engine.index_directory.clone(),
                    cause,
                    Remedy::RebuildIndex,
                ));
            }
            return;
        };
        let copies = self.engine.open_segment_copies(row.id(), &row.devices);
        let from = position.commit;
        let is_away = copies.is_empty();
        let mut scan = SegmentScan::new(copies, self.engine.seed(row.id()), from);
        let is_it = |committed: &Committed| {
            let commit = &committed.commit;
            committed.at == from && (commit.sequence.0, commit.chain()) == (position.sequence, position.chain)
        };
        let (what, remedy) = match scan.next(false) {
            _ if is_away => return,
            Some(ScanStep::Commit(committed, ..)) if is_it(&committed) => return,
            Some(ScanStep::Commit(..) | ScanStep::Record(..)) => ("does not end there", Remedy::RebuildIndex),
            // A deep check reports what is damaged.
            Some(ScanStep::Damage(..)) | None if self.report.is_deep => return,
            Some(ScanStep::Damage(..)) | None => ("is damaged on every copy", Remedy::Repair),
        };
        let cause = format!("batch {}, the last in the catalog, {what}", position.sequence);
        let problem = Problem::new(ProblemKind::Log, self.engine.segment_place(&row), cause, remedy);
        self.found(problem.within(row.number, from..position.offset));
    }
}
