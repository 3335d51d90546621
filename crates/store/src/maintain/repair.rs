//! Repair: redundancy repairs what a check finds, after a plan that says what will be done.
//!
//! The order is that of trust: superblocks that are older than the log are written again; devices whose superblock is
//! damaged or stale return to service only if their content belongs to this store; then every copy and unit is verified
//! and repaired, which brings such a device up to date; then missing copies are made; only then is the geometry
//! written, so that an interrupted repair starts again. What redundancy cannot repair is listed, and removed only on
//! request, if the plan listed it and it is still lost after the repair. At the end everything is verified once more.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use super::check::{CheckOptions, CheckReport};
use super::problem::{Problem, ProblemKind, Remedy};
use super::quarantine::Accepted;
use super::salvage::{Emptied, KnownDamage};
use super::scrub::{ScrubReport, Scrubber};
use crate::devices::extents::Touched;
use crate::devices::names;
use crate::devices::platform::Platform;
use crate::devices::platforms;
use crate::engine::Engine;
use crate::engine::copies::Damaged;
use crate::engine::displaced;
use crate::engine::divergence::{Rejected, take};
use crate::engine::locking::Access;
use crate::engine::open::open;
use crate::engine::pace::{Pace, outcome};
use crate::engine::proven;
use crate::engine::unknown_epochs::follow;
use crate::error::{Error, ErrorKind, Result};
use crate::format::ids::{DeviceNumber, LogOffset, SegmentNumber};
use crate::format::names::SEGMENTS;
use crate::format::record::checksum;
use crate::index::catalog::{Change, ExtentRow, SegmentRow};
use crate::log::completeness::{Cause, Completeness};
use crate::progress::Progress;
use crate::{OpenOptions, Store};

/// Most problems of lost objects that are named, and most bytes of memory for them. Fewer in tests.
pub(crate) const NAMED: usize = if cfg!(test) { 16 } else { 10_000 };
const NAMED_BYTES: usize = 4 << 20;
/// Most lost objects that a plan lists, which are dropped at a time, and most bytes of their index keys. Fewer in
/// tests.
pub(crate) const LISTED: usize = if cfg!(test) { 32 } else { 100_000 };
const LISTED_BYTES: usize = 4 << 20;

/// How a store is repaired.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RepairOptions {
    /// Remove what redundancy cannot repair and the plan lists as lost.
    pub drop_lost: bool,
    /// Forget what may be missing, and free the quarantine.
    pub accept: bool,
    /// Most bytes read per second.
    pub bytes_per_second: Option<u64>,
}

/// Problems of one kind with one remedy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PlanLine {
    /// How many.
    pub problems: u64,
    /// Bytes that are concerned.
    pub bytes: u64,
}

/// What a repair would do.
#[derive(Debug, Clone, Default)]
pub struct RepairPlan {
    /// Problems and bytes by kind and remedy.
    pub lines: BTreeMap<(Remedy, ProblemKind), PlanLine>,
    /// The first of the lost objects. It lists more, without their names.
    pub lost: Vec<Problem>,
    /// Why the index has to be rebuilt before anything else can be examined.
    pub index: Option<String>,
    /// Why superblocks have to be written again first.
    pub superblocks: Option<String>,
    /// What may be missing, and what a crash left.
    pub completeness: Completeness,
    /// Bytes that are no part of the log, on all devices that are present.
    pub quarantined_bytes: u64,
    /// Whether the whole store was examined.
    pub is_complete: bool,
    /// Memory of the first lost objects in bytes.
    lost_bytes: usize,
    /// The lost objects that it lists.
    listed: Listed,
}

/// A limited number of lost objects.
#[derive(Debug, Clone, Default)]
struct Listed {
    /// Hashes of their index keys. Where two are equal, both objects are lost.
    keys: BTreeSet<u64>,
    key_bytes: usize,
}

impl Listed {
    fn add(&mut self, key: &[u8]) {
        let bytes = self.key_bytes + key.len();
        if self.keys.len() < LISTED && bytes <= LISTED_BYTES && self.keys.insert(checksum(key)) {
            self.key_bytes = bytes;
        }
    }

    fn has(&self, key: &[u8]) -> bool {
        self.keys.contains(&checksum(key))
    }
}

/// Result of a repair.
#[derive(Debug, Clone, Default)]
pub struct RepairReport {
    /// Whether it ran to the end.
    pub is_complete: bool,
    /// Problems that were met and repaired on the way.
    pub scrub: ScrubReport,
    /// Devices that returned to service.
    pub admitted: Vec<DeviceNumber>,
    /// Copies of segments that were made because there were too few.
    pub copies: u64,
    /// Large objects whose units on devices that left the store were rebuilt on others.
    pub moved_objects: u64,
    /// Files that belonged to nothing and were removed.
    pub removed_files: u64,
    /// Files of the index that were written again, from a copy on another device.
    pub index_files: u64,
    /// Unreachable directories that are in `lost+found` now.
    pub detached: u64,
    /// Names of lost objects that were removed, and lost versions in snapshots.
    pub dropped: u64,
    /// Problems of lost objects that were to be removed and were not, because the plan does not list them: it lists a
    /// limited number, and they may have been damaged since. Another plan has them.
    pub unplanned: u64,
    /// Directories whose record was lost, and that were restored from the index.
    pub restored_directories: u64,
    /// Attributes that were changed alone and whose record was lost, and that were restored from the index.
    pub restored_attributes: u64,
    /// Names of a file with several whose record was lost, and that were restored from the index.
    pub restored_names: u64,
    /// Result of the final check.
    pub check: CheckReport,
    /// The first of the lost objects that still exist.
    pub lost: Vec<Problem>,
    /// The first of the other problems that the final check found.
    pub left: Vec<Problem>,
    /// Segments with damage that no copy can repair, which were emptied and freed.
    pub given_back: u64,
    /// Whether what was missing is forgotten.
    pub is_accepted: bool,
    /// What may be missing, and was not accepted.
    pub completeness: Completeness,
    /// Segments that were freed with the quarantine.
    pub released: u64,
    /// Such damage in the last check.
    damage: KnownDamage,
    /// Segments that were to be freed, and could not be read as in that check.
    unread: Vec<Problem>,
}

impl RepairReport {
    /// Counts segments that were to be freed and stay, as problems that are left.
    fn count_unread(&mut self) {
        for problem in std::mem::take(&mut self.unread) {
            self.check.count(problem.remedy);
            self.left.push(problem);
        }
    }
}

impl RepairPlan {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        !self.has_problems() && self.completeness.tail.is_none()
    }

    /// Whether anything is damaged, missing or lost. What a crash left at the end of the log is no problem.
    pub fn has_problems(&self) -> bool {
        !self.lines.is_empty() || self.index.is_some() || self.superblocks.is_some()
    }

    /// Whether there is anything to accept.
    pub fn has_to_accept(&self) -> bool {
        !self.completeness.is_complete() || self.quarantined_bytes > 0
    }

    fn add(&mut self, problem: &Problem) {
        let line = self.lines.entry((problem.remedy, problem.kind)).or_default();
        line.problems += 1;
        line.bytes += problem.range.as_ref().map_or(0, |range| range.end - range.start);
        if problem.remedy == Remedy::Lost {
            add_named(&mut self.lost, &mut self.lost_bytes, problem);
            problem.key.iter().for_each(|key| self.listed.add(key));
        }
    }

    /// Problems of lost objects, including those that are not named.
    pub fn lost_problems(&self) -> u64 {
        self.lines.iter().filter(|((remedy, _), _)| *remedy == Remedy::Lost).map(|(_, line)| line.problems).sum()
    }

    fn has(&self, remedy: Remedy) -> bool {
        self.lines.keys().any(|&(of, _)| of == remedy)
    }
}

/// Adds a problem to the first ones, of this many bytes, while there is room.
fn add_named(first: &mut Vec<Problem>, first_bytes: &mut usize, problem: &Problem) {
    let bytes = *first_bytes + problem.memory_bytes();
    if first.len() < NAMED && bytes <= NAMED_BYTES {
        first.push(problem.clone());
        *first_bytes = bytes;
    }
}

/// Other problems that a report names.
const NAMED_LEFT: usize = 10;

/// What a check found lost.
#[derive(Debug, Default)]
struct Lost {
    /// The first of the problems.
    first: Vec<Problem>,
    /// The first of what is not lost, and was not repaired.
    left: Vec<Problem>,
    first_bytes: usize,
    /// Index keys of the objects that the plan lists too.
    planned: BTreeSet<Vec<u8>>,
    /// Problems of objects that it does not list.
    unplanned: u64,
    /// The segments of all.
    segments: BTreeSet<SegmentNumber>,
}

/// Examines every byte and plans a repair; changes nothing. `found` receives each problem.
///
/// # Errors
/// Errors of opening, except a damaged index.
pub fn plan_repair(
    home: &Path,
    how: &OpenOptions,
    bytes_per_second: Option<u64>,
    found: &mut dyn FnMut(&Problem),
    progress: &Progress,
) -> Result<RepairPlan> {
    plan_repair_on(platforms::of(home, &how.bucket)?, home, how, bytes_per_second, found, progress)
}

/// As [`plan_repair`], on any platform.
pub(crate) fn plan_repair_on(
    platform: Arc<dyn Platform>,
    home: &Path,
    how: &OpenOptions,
    bytes_per_second: Option<u64>,
    found: &mut dyn FnMut(&Problem),
    progress: &Progress,
) -> Result<RepairPlan> {
    let mut plan = RepairPlan { superblocks: proven::look(&*platform, home, how)?, ..RepairPlan::default() };
    let store = match open(platform, home, Access::Read, how).and_then(Store::of) {
        Ok(store) => store,
        Err(error) if is_of_index(&error) => {
            plan.index = Some(error.to_string());
            return Ok(plan);
        }
        Err(error) => return Err(error),
    };
    plan.completeness = store.completeness().clone();
    let old = plan.completeness.missing.iter().find(|missing| missing.cause == Cause::SuperblocksOld);
    plan.superblocks = plan.superblocks.or_else(|| old.map(ToString::to_string));
    plan.quarantined_bytes = store.engine().quarantined_bytes();
    let options = CheckOptions { is_deep: true, bytes_per_second };
    let mut add = |problem: Problem| {
        plan.add(&problem);
        found(&problem);
    };
    let report = store.check(options, &mut add, progress)?;
    plan.is_complete = report.is_complete;
    Ok(plan)
}

/// Carries out a plan. `found` receives each problem that is met and whether it was repaired.
///
/// # Errors
/// Errors of opening, of writing and of syncing. Damage that cannot be repaired is not an error.
pub fn repair(
    home: &Path,
    how: &OpenOptions,
    plan: &RepairPlan,
    options: RepairOptions,
    found: &mut dyn FnMut(&Problem, bool),
    progress: &Progress,
) -> Result<RepairReport> {
    repair_on(platforms::of(home, &how.bucket)?, home, how, plan, options, found, progress)
}

/// As [`repair`], on any platform.
pub(crate) fn repair_on(
    platform: Arc<dyn Platform>,
    home: &Path,
    how: &OpenOptions,
    plan: &RepairPlan,
    options: RepairOptions,
    found: &mut dyn FnMut(&Problem, bool),
    progress: &Progress,
) -> Result<RepairReport> {
    let mut written = Vec::new();
    if plan.superblocks.is_some() {
        written = proven::write_again(&*platform, home, how)?;
        follow(&*platform, home, how)?;
    }
    let is_index_rebuilt = plan.index.is_some() || plan.has(Remedy::RebuildIndex);
    let access = if is_index_rebuilt { Access::RebuildIndex } else { Access::Write };
    let store = Store::open_on(platform, home, access, how)?;
    if options.drop_lost || options.accept {
        // Whatever the options for opening: what is in place of a file may be all that keeps it from being read.
        displaced::refuse_others(&store.engine().devices, displaced::ADVICE)?;
    }
    let in_service = store.engine().devices.writable_numbers();
    let (detached, completeness) = (store.recovered.detached, store.completeness().clone());
    let mut report = RepairReport { detached, completeness, ..RepairReport::default() };
    let mut pace = Pace::new(options.bytes_per_second, progress);
    let result = store.repair_all(&mut report, found, &mut pace);
    report.admitted.extend(written);
    let is_done = outcome(result)?;
    if !is_done {
        return Ok(report);
    }
    let mut lost = store.check_again(options, &plan.listed, &mut report, progress)?;
    if !report.is_complete {
        return Ok(report);
    }
    if options.drop_lost && !lost.planned.is_empty() {
        let Lost { planned, .. } = std::mem::take(&mut lost);
        store.drop_lost(planned, &mut report)?;
        lost = store.check_again(options, &plan.listed, &mut report, progress)?;
        if !report.is_complete {
            return Ok(report);
        }
    }
    // A segment without a remaining lost object is freed, and the damage with it.
    let damaged: BTreeSet<SegmentNumber> = report.damage.segments().difference(&lost.segments).copied().collect();
    let mut pace = Pace::new(options.bytes_per_second, progress);
    let mut result = store.give_back(&damaged, &mut report, &mut pace);
    if options.accept && result.is_ok() {
        // What is damaged may have been a removal: without it, what it removed would be back.
        let spared = if report.check.is_log_explained { BTreeSet::new() } else { report.damage.segments() };
        result = store.engine().accept(&spared, &report.damage, &mut pace).map(|Accepted { freed, unread }| {
            report.is_accepted = unread.is_empty();
            report.released = freed;
            report.unread.extend(unread);
        });
        if report.is_accepted {
            report.completeness = Completeness::default();
        }
    }
    if !outcome(result)? {
        report.is_complete = false;
        return Ok(report);
    }
    if report.given_back + report.released > 0 || report.is_accepted && !lost.first.is_empty() {
        lost = store.check_again(options, &plan.listed, &mut report, progress)?;
    }
    report.unplanned = if options.drop_lost { lost.unplanned } else { 0 };
    (report.lost, report.left) = (lost.first, lost.left);
    report.count_unread();
    store.sync()?;
    store.engine().collect_garbage("repair the store")?;
    // The last writes to a device may fail too.
    match store.engine().close() {
        Err(error) if error.kind() == ErrorKind::NoSpace => {}
        closed => closed?,
    }
    store.engine().refuse_failed("repair the store", &[in_service, report.admitted.clone()].concat())?;
    Ok(report)
}

/// Opens a store with an index that is rebuilt from its segments. [`Store::recovered`] has the damage in the log.
///
/// # Errors
/// As [`Store::open`].
pub fn rebuild_index(home: &Path, how: &OpenOptions) -> Result<Store> {
    Store::open_on(platforms::of(home, &how.bucket)?, home, Access::RebuildIndex, how)
}

/// Continues with the side of diverged devices that `device` is on. The devices of the other sides become stale, or are
/// left out if they are of a copy of the store, and what only they have stays on them.
///
/// # Errors
/// [`ErrorKind::Usage`] if nothing has diverged; [`ErrorKind::Busy`] if another process writes; errors of writing
/// superblocks.
pub fn take_side(home: &Path, how: &OpenOptions, device: DeviceNumber) -> Result<Rejected> {
    take_side_on(platforms::of(home, &how.bucket)?, home, how, device)
}

/// As [`take_side`].
pub(crate) fn take_side_on(
    platform: Arc<dyn Platform>,
    home: &Path,
    how: &OpenOptions,
    device: DeviceNumber,
) -> Result<Rejected> {
    let rejected = take(&*platform, home, how, device)?;
    if !rejected.of_copy.is_empty() {
        let without = OpenOptions { degraded: true, without: rejected.of_copy.clone(), ..how.clone() };
        let store = Store::open_on(platform, home, Access::Write, &without)?;
        store.engine().leave_out(&rejected.of_copy)?;
    }
    Ok(rejected)
}

/// Whether the index cannot be read, or is ahead of the log.
fn is_of_index(error: &Error) -> bool {
    let is_superblock = error.path().is_some_and(|path| path.ends_with(crate::format::superblock::SUPERBLOCK));
    error.kind() == ErrorKind::Corrupt && !is_superblock
}

impl Store {
    /// Reads everything once more; returns what is lost.
    fn check_again(
        &self,
        options: RepairOptions,
        listed: &Listed,
        report: &mut RepairReport,
        progress: &Progress,
    ) -> Result<Lost> {
        let mut lost = Lost::default();
        let mut damage = KnownDamage::default();
        let mut keep = |problem: Problem| {
            let is_whole_segment = matches!(problem.kind, ProblemKind::SegmentMissing | ProblemKind::SegmentSize);
            let is_of_log =
                matches!(problem.kind, ProblemKind::Record | ProblemKind::Batch | ProblemKind::SegmentHeader);
            if (is_of_log || is_whole_segment) && matches!(problem.remedy, Remedy::Harmless | Remedy::Lost) {
                let of_bytes = problem.kind == ProblemKind::Record && problem.key.is_none();
                let range = problem.range.clone().filter(|_| of_bytes);
                let range = range.map(|range| LogOffset(range.start)..LogOffset(range.end));
                if let Some(segment) = problem.segment {
                    damage.add(segment, range);
                }
            }
            if problem.remedy != Remedy::Lost {
                if lost.left.len() < NAMED_LEFT {
                    lost.left.push(problem);
                }
                return;
            }
            let is_unknown = problem.kind == ProblemKind::Record && problem.key.is_none();
            // The objects that are lost with a whole segment are problems of their own.
            if !(is_whole_segment || options.accept && is_unknown) {
                lost.segments.extend(problem.segment);
            }
            match &problem.key {
                Some(key) if listed.has(key) => _ = lost.planned.insert(key.clone()),
                Some(_) => lost.unplanned += 1,
                None => {}
            }
            add_named(&mut lost.first, &mut lost.first_bytes, &problem);
        };
        let check = CheckOptions { is_deep: true, bytes_per_second: options.bytes_per_second };
        report.check = self.check(check, &mut keep, progress)?;
        report.is_complete = report.check.is_complete;
        report.damage = damage;
        Ok(lost)
    }

    /// Empties segments with damage that no copy can repair.
    fn give_back(
        &self,
        damaged: &BTreeSet<SegmentNumber>,
        report: &mut RepairReport,
        pace: &mut Pace<'_>,
    ) -> Result<()> {
        let engine = self.engine();
        // What is damaged may have been a removal.
        if !report.check.is_log_explained {
            return Ok(());
        }
        // A missing device may have what is damaged on all others; one that is being rebuilt stands for it.
        if damaged.is_empty() || engine.unsettled().is_some() {
            return Ok(());
        }
        engine.close_active_segment()?;
        let rows: Vec<SegmentRow> =
            damaged.iter().filter_map(|number| engine.view().state.segments.get(number).cloned()).collect();
        pace.stage("emptying damaged segments", rows.iter().map(|row| row.size_bytes * row.devices.len() as u64).sum());
        let mut emptied = Vec::new();
        for row in rows {
            match engine.empty_segment(&row, &report.damage, pace)? {
                Emptied::Whole => emptied.push(row.number),
                Emptied::InUse => {}
                Emptied::Unread(range) => report.unread.push(engine.problem_of_unread(&row, range)),
            }
        }
        // What cannot be read in one of them may be what a removal in damaged bytes of another one removed.
        if !report.unread.is_empty() {
            return Ok(());
        }
        report.given_back += emptied.len() as u64;
        engine.supersede(emptied, &[])?;
        engine.reclaim()
    }

    fn repair_all(
        &self,
        report: &mut RepairReport,
        found: &mut dyn FnMut(&Problem, bool),
        pace: &mut Pace<'_>,
    ) -> Result<()> {
        let engine = self.engine();
        engine.close_active_segment()?;
        report.admitted = engine.admit(pace)?;
        report.index_files = engine.repair_index(pace)?;
        let slots = engine.devices.slots();
        report.admitted.iter().try_for_each(|device| engine.remove_index(&slots[device.index()]))?;
        report.removed_files += engine.remove_leftovers()?;
        pace.stage("repairing", engine.stored_bytes());
        let mut scrubber = Scrubber::new(engine, found, false);
        let result = scrubber.verify_log(Default::default(), pace);
        report.scrub = scrubber.report;
        result?;
        engine.extend_extent_files()?;
        report.copies = engine.complete_copies(pace)?;
        report.moved_objects = engine.move_units_from_left(pace)?;
        let geometry = engine.geometry();
        engine.write_geometry(&geometry)?;
        engine.devices.repair_home(&*engine.platform)
    }
}

impl Engine {
    /// Makes truncated extent files as long as their accounts, where parity has what was in them: the units in use are
    /// repaired, and there may be dead ones behind them. A file that cannot be extended is found by the next check.
    ///
    /// # Errors
    /// Errors of syncing.
    fn extend_extent_files(&self) -> Result<()> {
        if self.geometry().parity == 0 {
            return Ok(());
        }
        let mut touched = Touched::default();
        for slot in self.devices.slots().iter().filter(|slot| slot.is_writable()) {
            let Ok(sizes) = self.extents.list(slot.entry.number) else { continue };
            let is_short = |row: &&ExtentRow| {
                let size_bytes = sizes.get(&row.file).copied().unwrap_or(0);
                row.device == slot.entry.number && row.live_bytes > 0 && size_bytes < row.end_bytes
            };
            let rows: Vec<ExtentRow> = self.view().state.extents.values().filter(is_short).copied().collect();
            for row in rows {
                let _ = self.extents.extend(row.device, row.file, row.end_bytes, &mut touched);
            }
        }
        self.extents.sync(&touched)
    }

    /// Removes what [`leftover_segments`](Self::leftover_segments) lists on each writable device; returns how many.
    pub(crate) fn remove_leftovers(&self) -> Result<u64> {
        let mut removed = 0;
        let state = self.view().state.clone();
        // Held until they are removed: a copy may begin under one of their names.
        let in_progress = self.copying.files();
        let mut is_everywhere = true;
        for slot in self.devices.slots().iter().filter(|slot| !self.devices.has_left(slot.entry.number)) {
            // A check names the device if its files cannot be listed.
            let listed = slot.is_writable().then(|| self.leftover_segments(slot, &state, &in_progress));
            let Some(Ok(left)) = listed else {
                is_everywhere = false;
                continue;
            };
            for (name, _) in left {
                let path = format!("{SEGMENTS}/{name}");
                let fail = |error| slot.error("remove", &path, error);
                names::remove_segment_file(&*slot.device, &path).map_err(fail)?;
                removed += 1;
            }
        }
        drop(in_progress);
        if is_everywhere {
            self.forget_left_behind()?;
        }
        Ok(removed)
    }

    /// Makes the missing copies of each segment, as far as there are devices for them; returns how many.
    ///
    /// # Errors
    /// Errors of copying.
    pub(crate) fn complete_copies(&self, pace: &mut Pace<'_>) -> Result<u64> {
        let mut made = 0;
        let numbers: Vec<SegmentNumber> = self.view().state.segments.keys().copied().collect();
        for number in numbers {
            let wanted = usize::from(self.geometry().copies);
            let Some(row) = self.closed_row(number)? else { continue };
            while let Some(device) = self.spare_for(&row, wanted)? {
                match self.copy_segment(&row, device, Damaged::Copied, pace) {
                    // None is present.
                    Err(error) if error.kind() == ErrorKind::Lost => break,
                    copied => copied?,
                };
                self.change_devices(row.number, |devices| devices.push(device))?;
                made += 1;
                if self.view().state.segments.get(&row.number).is_none_or(|now| now.devices.len() >= wanted) {
                    break;
                }
            }
        }
        Ok(made)
    }

    /// Changes the devices of a segment in the accounts.
    ///
    /// # Errors
    /// As [`adjust`](Self::adjust).
    pub(crate) fn change_devices(
        &self,
        number: SegmentNumber,
        change: impl FnOnce(&mut Vec<DeviceNumber>),
    ) -> Result<()> {
        self.adjust(|state| {
            let Some(mut row) = state.segments.get(&number).cloned() else { return Change::default() };
            change(&mut row.devices);
            row.devices.sort_unstable();
            row.devices.dedup();
            Change { segments: vec![row], durable: true, ..Change::default() }
        })
    }
}
