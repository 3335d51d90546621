//! Rebuilding a lost device: onto a new directory, which takes its number, or into spare space on the others.
//!
//! Onto a new directory, segments and units return to the same files and offsets: nothing in the log or the index
//! changes, and an interrupted rebuild finds what already exists, but for objects that were renamed or changed since,
//! which it visits again. Into spare space, copies of segments go to other devices of the class, and components of
//! large objects to devices that their chunk is not on; each such object gets a record with the same id and another
//! map, moved as compaction moves records, and what its versions share is written once (see `shared_units`). Objects
//! written meanwhile are on other devices from the beginning; one that was changed meanwhile may still have stripes on
//! the lost device, so into spare space what is newer than the last pass is examined again, until nothing is left. Open
//! objects without a name are in no index: those of this process follow after all others. The device leaves the store,
//! or returns to service, only when nothing is missing: not even bytes of a segment that are damaged on all other
//! devices and that no entry of the index is in, as they may be a removal. Otherwise the caller has to give up what
//! only the lost device has; then it stays damaged, for a repair to drop.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::replace::{is_same, note_name};
use super::salvage::Moving;
use super::shared_units::{MovedRuns, run_of, versions_of_large};
use crate::Store;
use crate::devices::extents::{Claim, Touched, order};
use crate::devices::slot::{Slot, Trouble};
use crate::engine::content::Base;
use crate::engine::copies::Damaged;
use crate::engine::open_files::OpenFile;
use crate::engine::pace::{Pace, outcome};
use crate::engine::{Engine, View};
use crate::error::{Error, ErrorKind, Result};
use crate::format::descriptor::{Chunk, Component, Descriptor};
use crate::format::entry::{Entry, Kind};
use crate::format::geometry::{Class, DeviceState};
use crate::format::ids::{DeviceNumber, SegmentNumber};
use crate::format::index_key::{object_key, until_of};
use crate::format::record::checksum;
use crate::format::segment::SEGMENT_HEADER_BYTES;
use crate::index::catalog::{ExtentRow, SegmentRow};
use crate::locks;
use crate::progress::Progress;

/// Bytes written between two syncs of units with a note of the progress.
const SYNC_BYTES: u64 = 64 << 20;
/// Objects whose records are written together.
const MOVED_TOGETHER: usize = 256;

/// What is to be rebuilt, and where.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RebuildOptions {
    /// Number of the lost device.
    pub device: DeviceNumber,
    /// Directory that replaces it; `None` for spare space on the other devices.
    pub onto: Option<PathBuf>,
    /// Whether to do without what only the lost device has.
    pub gives_up: bool,
    /// Most bytes written per second.
    pub bytes_per_second: Option<u64>,
}

/// What a rebuild would do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RebuildPlan {
    /// Segments that had a copy on the device.
    pub segments: u64,
    /// Their bytes.
    pub segment_bytes: u64,
    /// Large objects with units on it.
    pub objects: u64,
    /// Bytes of these units.
    pub unit_bytes: u64,
    /// Segments that no device in service has.
    pub lost_segments: u64,
    /// Segments and chunks for which no other device has a place.
    pub without_place: u64,
}

/// Result of a rebuild.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RebuildReport {
    /// Whether everything that was on the device is elsewhere now, and everything has its copies.
    pub is_complete: bool,
    /// Whether the device is in service again, or has left the store. If not all is complete then, a repair goes on.
    pub is_settled: bool,
    /// Copies of segments that were made.
    pub segments: u64,
    /// Large objects whose units were rebuilt.
    pub objects: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Segments and large objects that cannot be reconstructed from what is left, or only in part. One more if part of
    /// the log is missing and the device may have it.
    pub lost: u64,
}

impl RebuildPlan {
    /// Bytes that will be written.
    pub fn total_bytes(&self) -> u64 {
        self.segment_bytes + self.unit_bytes
    }

    /// Whether everything has a place.
    ///
    /// # Errors
    /// [`NoSpace`](ErrorKind::NoSpace) if not.
    pub fn must_fit(&self) -> Result<()> {
        match self.without_place {
            0 => Ok(()),
            count => Err(no_place(format!("no other device has room for {count} of its segments and chunks"))),
        }
    }
}

impl Store {
    /// Numbers of the devices that a rebuild is for: out of service and not merely stale, which a repair solves, or not
    /// yet whole.
    pub fn lost_devices(&self) -> Vec<DeviceNumber> {
        let slots = self.engine().devices.slots();
        let is_lost = |slot: &&Slot| match &slot.trouble {
            Some(trouble) => !matches!(trouble, Trouble::Gone | Trouble::Stale { .. } | Trouble::Newer),
            None => slot.entry.state == DeviceState::Rebuilding,
        };
        slots.iter().filter(is_lost).map(|slot| slot.entry.number).collect()
    }

    /// Plans a rebuild; changes nothing.
    ///
    /// # Errors
    /// [`Usage`](ErrorKind::Usage) if the device is in service or the number does not exist, and for a directory that
    /// is inside another device or contains one; errors of reading.
    pub fn plan_rebuild(&self, options: &RebuildOptions) -> Result<RebuildPlan> {
        let engine = self.engine();
        let slot = engine.lost_slot(options)?;
        let device = slot.entry.number;
        if let Some(directory) = &options.onto {
            engine.must_be_apart(device, directory)?;
        }
        let (_pin, view) = engine.pinned()?;
        let mut plan = RebuildPlan::default();
        for row in view.state.segments.values().filter(|row| engine.needs_copy(row, device)) {
            plan.segments += 1;
            plan.segment_bytes += row.size_bytes;
            if !engine.has_source(row, device) {
                plan.lost_segments += 1;
            } else if options.onto.is_none() && engine.place_for(row, device)?.is_none() {
                plan.without_place += 1;
            }
        }
        let mut count = |key: &[u8], descriptor: &Descriptor| -> Result<()> {
            let components = components_on(descriptor, device);
            plan.objects += u64::from(!components.is_empty());
            for (number, component) in components {
                let bytes = descriptor.chunks[number].stripes.component_bytes(component);
                plan.unit_bytes += bytes;
                if options.onto.is_none() && engine.device_for(key, descriptor, number, bytes, device)?.is_none() {
                    plan.without_place += 1;
                }
            }
            Ok(())
        };
        let snapshot = view.snapshot();
        let mut scan = snapshot.scan_versions_from(&[])?;
        while let Some((key, entry)) = scan.next_entry()? {
            if entry.kind == Kind::Large
                // An unreadable one is counted when it is met.
                && let Ok(descriptor) = engine.descriptor(entry)
            {
                count(key, &descriptor)?;
            }
        }
        for file in engine.open_files.all() {
            let base = file.striped_without_name();
            if let Some(descriptor) = base.as_deref().and_then(Base::descriptor) {
                count(&object_key(file.number), descriptor)?;
            }
        }
        if options.onto.is_none() {
            let shared = engine.shared_bytes()?;
            let on_it = shared.iter().filter(|((of, _), _)| *of == device).map(|(_, bytes)| bytes);
            plan.unit_bytes = plan.unit_bytes.saturating_sub(on_it.sum());
        }
        Ok(plan)
    }

    /// Rebuilds a lost device. Reading and writing continue meanwhile; `progress` receives the bytes of each stage.
    ///
    /// # Errors
    /// As [`plan_rebuild`](Self::plan_rebuild); [`NoSpace`](ErrorKind::NoSpace) if there is no place for it; errors of
    /// writing. Another run resumes where it ended.
    pub fn rebuild(&self, options: &RebuildOptions, progress: &Progress) -> Result<RebuildReport> {
        let engine = self.engine();
        drop(engine.writer()?);
        let plan = self.plan_rebuild(options)?;
        plan.must_fit()?;
        let slot = engine.lost_slot(options)?;
        if let Some(directory) = &options.onto {
            engine.replace_device(&slot, directory)?;
        }
        engine.close_active_segment()?;
        let mut pace = Pace::new(options.bytes_per_second, progress);
        pace.stage("rebuilding", plan.total_bytes());
        let mut rebuild = Rebuild {
            engine,
            device: slot.entry.number,
            is_onto: options.onto.is_some(),
            gives_up: options.gives_up,
            skips_full: false,
            is_revisited: false,
            report: RebuildReport::default(),
        };
        // What is missing in the log is in no account.
        rebuild.report.lost += u64::from(engine.may_have_missing(slot.entry.number));
        let result = rebuild.copy_segments(&mut pace).and_then(|()| rebuild.objects(&mut pace));
        let is_done = outcome(result)?;
        let mut report = rebuild.report;
        if is_done && (report.lost == 0 || options.gives_up) {
            if report.lost > 0 {
                // The log goes on elsewhere than in what was lost.
                engine.append_moved(Vec::new())?;
            }
            engine.settle_device(slot.entry.number, options.onto.is_some())?;
            engine.complete_index()?;
            report.is_settled = true;
            // What was written while the device was lost has too few copies.
            report.is_complete = outcome(engine.complete_copies(&mut pace).map(|_| ()))? && report.lost == 0;
        }
        engine.sync_all()?;
        Ok(report)
    }
}

/// Chunks and components of an object that are on a device; a component without bytes names its device too.
fn components_on(descriptor: &Descriptor, device: DeviceNumber) -> Vec<(usize, usize)> {
    let of_chunk = |(number, chunk): (usize, &Chunk)| {
        let component = chunk.components.iter().position(|component| component.device == device)?;
        Some((number, component))
    };
    descriptor.chunks.iter().enumerate().filter_map(of_chunk).collect()
}

impl Engine {
    /// The device to be rebuilt, if it can be.
    fn lost_slot(&self, options: &RebuildOptions) -> Result<Slot> {
        let refuse =
            |cause: String, advice: &str| Err(Error::new(ErrorKind::Usage, "rebuild the device", cause).advise(advice));
        let slots = self.devices.slots();
        let Some(slot) = slots.get(options.device.index()) else {
            return refuse(format!("there is no device {}", options.device), "granulo store status has their numbers");
        };
        match (&slot.trouble, slot.entry.state) {
            (Some(Trouble::Gone), _) => {
                refuse(format!("device {} has left the store", options.device), "there is nothing to rebuild")
            }
            (None, DeviceState::InUse) => refuse(
                format!("device {} is in service at {}", options.device, crate::units::escape_path(&slot.path)),
                "granulo store scrub verifies what is on it",
            ),
            (None, _)
                if options
                    .onto
                    .as_ref()
                    .is_none_or(|onto| !is_same(onto, &slot.path) && !self.is_former(slot, onto)) =>
            {
                let onto = crate::units::escape_path(&slot.path);
                refuse(
                    format!("device {} is being rebuilt already", options.device),
                    &format!("continue with --onto {onto}"),
                )
            }
            _ => Ok(slot.clone()),
        }
    }

    /// Whether a segment has a copy on `lost`, or had, or would have: without that device it has too few copies.
    fn needs_copy(&self, row: &SegmentRow, lost: DeviceNumber) -> bool {
        let slots = self.devices.slots();
        let of_class = |class: Option<Class>| {
            let is_of = |slot: &&Slot| {
                slot.entry.state != DeviceState::Gone && class.is_none_or(|class| slot.entry.class == class)
            };
            slots.iter().filter(is_of).count()
        };
        let devices = Some(of_class(Some(row.class))).filter(|&count| count > 0).unwrap_or(of_class(None));
        let wanted = usize::from(self.geometry().copies).min(devices);
        row.devices.contains(&lost) || row.devices.len() < wanted
    }

    /// Another device for a copy that was on `lost`.
    ///
    /// # Errors
    /// As [`roomiest_for`](Self::roomiest_for).
    fn place_for(&self, row: &SegmentRow, lost: DeviceNumber) -> Result<Option<DeviceNumber>> {
        self.roomiest_for(row, |device| device != lost && !row.devices.contains(&device))
    }

    /// Another device for a component that was on `lost`: the first in the order of the object's key that the chunk is
    /// not on.
    ///
    /// # Errors
    /// A device does not say how much space it has: it is not full, but may be broken.
    fn device_for(
        &self,
        key: &[u8],
        descriptor: &Descriptor,
        chunk: usize,
        bytes: u64,
        lost: DeviceNumber,
    ) -> Result<Option<DeviceNumber>> {
        let Some(chunk) = descriptor.chunks.get(chunk) else { return Ok(None) };
        let taken: BTreeSet<DeviceNumber> = chunk.components.iter().map(|component| component.device).collect();
        let slots = self.devices.writable(Class::Slow);
        let fit = |slot: &&Slot| {
            let number = slot.entry.number;
            number != lost && slot.entry.state == DeviceState::InUse && !taken.contains(&number)
        };
        let fit: Vec<&Slot> = slots.iter().filter(fit).collect();
        let devices: Vec<(DeviceNumber, [u8; 16])> =
            fit.iter().map(|slot| (slot.entry.number, slot.entry.identity)).collect();
        for number in order(checksum(key), &devices) {
            let slot = fit.iter().find(|slot| slot.entry.number == number);
            if slot.map(|slot| slot.room()).transpose()?.is_some_and(|room| room.available_bytes > bytes) {
                return Ok(Some(number));
            }
        }
        Ok(None)
    }
}

fn no_place(cause: String) -> Error {
    Error::new(ErrorKind::NoSpace, "rebuild the device", cause).advise("name a directory on a new disk with --onto")
}

/// Work that is not yet durable.
#[derive(Default)]
struct Done {
    /// Onto a new directory: which objects are done.
    so_far: SoFar,
    touched: Touched,
    moving: Vec<Moving>,
    unsynced_bytes: u64,
    /// Into spare space: where the units of versions in snapshots went.
    versions: MovedRuns,
}

/// Which objects are done: those with keys up to this one and records up to this id. What was renamed or changed since
/// has a later id, wherever its key is now.
#[derive(Debug, Default, PartialEq, Eq)]
struct SoFar {
    highest_id: u64,
    /// Empty before the first and after the last.
    key: Vec<u8>,
}

impl SoFar {
    fn has(&self, key: &[u8], entry: &Entry) -> bool {
        key <= &self.key[..] && !self.key.is_empty() && entry.id.max(until_of(key)) <= self.highest_id
    }

    /// For a note in the catalog; empty if there is nothing to note.
    fn encode(&self) -> Vec<u8> {
        match self.key.is_empty() {
            true => Vec::new(),
            false => [&self.highest_id.to_le_bytes()[..], &self.key].concat(),
        }
    }

    fn decode(note: &[u8]) -> Option<SoFar> {
        let (highest_id, key) = note.split_first_chunk()?;
        Some(SoFar { highest_id: u64::from_le_bytes(*highest_id), key: key.to_vec() })
    }
}

/// A rebuild in progress.
struct Rebuild<'r> {
    engine: &'r Engine,
    device: DeviceNumber,
    is_onto: bool,
    gives_up: bool,
    /// Whether objects stay as they are for which no other device has a place.
    skips_full: bool,
    /// Whether records were moved by something else while this pass moved their units: all are looked at again.
    is_revisited: bool,
    report: RebuildReport,
}

impl Engine {
    /// Moves units of large objects to other devices that are still on devices which left the store: not all could be
    /// reconstructed when these were given up. Returns the number of objects. One that fits nowhere else stays as it
    /// is.
    ///
    /// # Errors
    /// Errors of reading the index and of writing, and those of `pace`.
    pub(super) fn move_units_from_left(&self, pace: &mut Pace<'_>) -> Result<u64> {
        let slots = self.devices.slots();
        let mut objects = 0;
        for device in slots.iter().map(|slot| slot.entry.number).filter(|&device| self.devices.has_left(device)) {
            if !self.view().state.extents.values().any(|row| row.device == device && row.live_bytes > 0) {
                continue;
            }
            let report = RebuildReport::default();
            let (is_onto, gives_up, skips_full, is_revisited) = (false, true, true, false);
            let mut rebuild = Rebuild { engine: self, device, is_onto, gives_up, skips_full, is_revisited, report };
            rebuild.objects(pace)?;
            objects += rebuild.report.objects;
        }
        Ok(objects)
    }
}

impl Rebuild<'_> {
    /// Makes copies of the segments that were on the device, and of those that have too few without it.
    fn copy_segments(&mut self, pace: &mut Pace<'_>) -> Result<()> {
        let (engine, lost) = (self.engine, self.device);
        let (_pin, view) = engine.pinned()?;
        let superseded: BTreeSet<SegmentNumber> = view.state.superseded_segments().collect();
        for row in view.state.segments.values().filter(|row| engine.needs_copy(row, lost)) {
            if superseded.contains(&row.number) {
                self.unlist(row)?;
                continue;
            }
            // Only closed segments: one begun by another thread since is written to, and a copy would replace its file.
            let Some(row) = &engine.closed_row(row.number)? else { continue };
            let is_listed = row.devices.contains(&lost);
            // Copied before an interruption, or by the device itself if it is one that was lost and has returned.
            if self.is_onto && is_listed && engine.has_whole_copy(row, lost, pace)? {
                continue;
            }
            // What was written while the device was lost has too few copies, and may be on devices of the other class.
            let takes_it = self.is_onto
                && (is_listed || engine.devices.writable(row.class).iter().any(|slot| slot.entry.number == lost));
            let target = if takes_it { Some(lost) } else { engine.place_for(row, lost)? };
            let Some(target) = target else {
                // The copy that it lacks belongs on the other class, not on this device.
                if self.is_onto {
                    continue;
                }
                return Err(no_place(format!("segment {} fits on no other device", row.number)));
            };
            let damaged = if self.gives_up { Damaged::GivenUp } else { Damaged::Refused };
            match engine.copy_segment(row, target, damaged, pace) {
                Ok(copied) => {
                    self.report.segments += 1;
                    self.report.bytes += copied.bytes;
                    self.report.lost += u64::from(copied.damaged_bytes > 0);
                }
                // A crash left it without anything that counts: nothing is lost with its only copy.
                Err(error) if error.kind() == ErrorKind::Lost && row.size_bytes <= SEGMENT_HEADER_BYTES => {
                    engine.change_devices(row.number, |devices| devices.retain(|&device| device != lost))?;
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::Lost => {
                    self.report.lost += 1;
                    continue;
                }
                Err(error) => return Err(error),
            }
            let is_onto = self.is_onto;
            engine.change_devices(row.number, |devices| {
                devices.retain(|&device| is_onto || device != lost);
                devices.push(target);
            })?;
        }
        Ok(())
    }

    /// A freed segment that waits for readers needs no copy.
    fn unlist(&mut self, row: &SegmentRow) -> Result<()> {
        let lost = self.device;
        if self.is_onto {
            Ok(())
        } else {
            self.engine.change_devices(row.number, |devices| devices.retain(|&device| device != lost))
        }
    }

    /// Units of large objects that were on the device. An interruption keeps what is done.
    fn objects(&mut self, pace: &mut Pace<'_>) -> Result<()> {
        let mut seen_id = None;
        loop {
            let before = self.report.objects;
            self.is_revisited = false;
            let highest_id = self.look(seen_id, pace)?;
            // Onto a new directory, changed objects have their old stripes where they are rebuilt.
            if self.is_onto || self.report.objects == before {
                return Ok(());
            }
            seen_id = Some(highest_id).filter(|_| !self.is_revisited);
        }
    }

    /// All current objects, or those after record `seen_id`; returns the highest id by then.
    fn look(&mut self, seen_id: Option<u64>, pace: &mut Pace<'_>) -> Result<u64> {
        let engine = self.engine;
        let (_pin, _) = engine.pinned()?;
        // At each moment an object has a name or is open without one.
        let (view, open, highest_id) = {
            let _writer = engine.writer()?;
            (engine.view().clone(), engine.open_files.all(), engine.highest_id.load(Ordering::Relaxed))
        };
        let mut done = Done { so_far: SoFar { highest_id, key: Vec::new() }, ..Done::default() };
        let result = self.each_object(&view, seen_id, &mut done, pace);
        let result = result.and_then(|()| open.iter().try_for_each(|file| self.nameless(file, &mut done, pace)));
        if result.as_ref().is_err_and(|error| error.kind() != ErrorKind::Interrupted) {
            return result.map(|()| highest_id);
        }
        if result.is_ok() {
            done.so_far.key.clear();
            let is_in_use = |row: &&ExtentRow| self.is_onto && row.device == self.device && row.live_bytes > 0;
            for row in view.state.extents.values().filter(is_in_use) {
                engine.extents.extend(row.device, row.file, row.end_bytes, &mut done.touched)?;
            }
        }
        self.settle(&mut done).and(result).map(|()| highest_id)
    }

    /// Units of an open object without a name. Into spare space, nobody writes to it meanwhile.
    fn nameless(&mut self, file: &Arc<OpenFile>, done: &mut Done, pace: &mut Pace<'_>) -> Result<()> {
        let _pending = (!self.is_onto).then(|| locks::write(&file.pending));
        let Some(base) = file.striped_without_name() else { return Ok(()) };
        let Some(descriptor) = base.descriptor() else { return Ok(()) };
        let components = components_on(descriptor, self.device);
        if components.is_empty() {
            return Ok(());
        }
        let mut of_this = Done::default();
        match self.object(&object_key(file.number), descriptor, &components, &mut of_this, pace) {
            Ok(moved) => {
                self.report.objects += 1;
                // One that was named meanwhile is in the index, newer than this pass.
                let _ = self.is_onto || file.move_units(&base, moved, &of_this.touched);
            }
            Err(error) if error.kind() == ErrorKind::Lost => self.report.lost += 1,
            Err(error) => return Err(error),
        }
        done.touched.merge(of_this.touched);
        done.unsynced_bytes += of_this.unsynced_bytes;
        Ok(())
    }

    /// Objects with a name, and their versions; onto a new directory in key order, by which the progress is noted.
    fn each_object(&mut self, view: &View, seen_id: Option<u64>, done: &mut Done, pace: &mut Pace<'_>) -> Result<()> {
        // Into spare space, records show the progress.
        let noted = view.state.notes.get(&note_name(self.device)).filter(|_| self.is_onto);
        let earlier = noted.and_then(|note| SoFar::decode(note)).unwrap_or_default();
        let is_due = |key: &[u8], entry: &Entry| {
            let is_seen = seen_id.is_some_and(|seen| entry.id.max(until_of(key)) <= seen);
            entry.kind == Kind::Large && !is_seen && !earlier.has(key, entry)
        };
        let snapshot = view.snapshot();
        if self.is_onto {
            let mut scan = snapshot.scan_versions_from(&[])?;
            while let Some((key, entry)) = scan.next_entry()? {
                if is_due(key, entry) {
                    self.named(key, entry, done, pace)?;
                }
            }
            return Ok(());
        }
        // Before what shares units with them.
        for key in versions_of_large(&snapshot)? {
            if let Some(entry) = snapshot.look_up(&key)?.filter(|entry| is_due(&key, entry)) {
                self.named(&key, &entry, done, pace)?;
            }
        }
        let mut scan = snapshot.scan_from(&[])?;
        while let Some((key, entry)) = scan.next_entry()? {
            if is_due(key, entry) {
                self.named(key, entry, done, pace)?;
            }
        }
        Ok(())
    }

    /// An object with a name, or a version of it.
    fn named(&mut self, key: &[u8], entry: &Entry, done: &mut Done, pace: &mut Pace<'_>) -> Result<()> {
        let (engine, mut buffer) = (self.engine, Vec::new());
        let record = engine.read_entry(entry, &mut buffer).ok();
        let read = record.and_then(|record| Some((Descriptor::decode(record.content, &engine.home).ok()?, record)));
        let Some((descriptor, record)) = read else {
            self.report.lost += 1;
            return Ok(());
        };
        let components = components_on(&descriptor, self.device);
        if components.is_empty() {
            return Ok(());
        }
        match self.object(key, &descriptor, &components, done, pace) {
            Ok(moved) => {
                self.report.objects += 1;
                if !self.is_onto {
                    done.moving.push(Moving::new(key, *entry, &record, Some(moved), engine.geometry().alignment)?);
                }
            }
            Err(error) if error.kind() == ErrorKind::Lost => self.report.lost += 1,
            Err(error) if self.skips_full && error.kind() == ErrorKind::NoSpace => {}
            Err(error) => return Err(error),
        }
        // What is lost is visited again: it may have come back.
        if self.report.lost == 0 {
            done.so_far.key = key.to_vec();
        }
        match done.unsynced_bytes >= SYNC_BYTES || done.moving.len() >= MOVED_TOGETHER {
            true => self.settle(done),
            false => Ok(()),
        }
    }

    /// Rebuilds the components of one object; returns its new map.
    fn object(
        &mut self,
        key: &[u8],
        before: &Descriptor,
        components: &[(usize, usize)],
        done: &mut Done,
        pace: &mut Pace<'_>,
    ) -> Result<Descriptor> {
        let mut moved = before.clone();
        components.iter().try_for_each(|&(number, component)| {
            let chunk = &before.chunks[number];
            let was = run_of(chunk, component);
            let is_apart = |target: Component| chunk.components.iter().all(|other| other.device != target.device);
            if let Some((target, claim)) = done.versions.find(was).filter(|(target, _)| is_apart(*target)) {
                done.touched.claim(target.device, target.file, &claim);
                moved.chunks[number].components[component] = target;
                return Ok(());
            }
            let (target, claim) = self.target(key, before, number, component)?;
            claim.iter().for_each(|claim| done.touched.claim(target.device, target.file, claim));
            moved.chunks[number].components[component] = target;
            let touched = self
                .engine
                .extents
                .rebuild_component(before, number, component, target, &mut |bytes| pace.spend(bytes))?;
            done.touched.merge(touched);
            done.unsynced_bytes += was.length_bytes;
            self.report.bytes += was.length_bytes;
            if let Some(claim) = claim.filter(|_| until_of(key) > 0) {
                done.versions.add(was, target, claim);
            }
            Ok::<(), Error>(())
        })?;
        Ok(moved)
    }

    /// The new place of a component, and in spare space a claim on its file, until the record is written.
    fn target(
        &self,
        key: &[u8],
        descriptor: &Descriptor,
        number: usize,
        component: usize,
    ) -> Result<(Component, Option<Claim>)> {
        let engine = self.engine;
        let chunk = &descriptor.chunks[number];
        if self.is_onto {
            return Ok((chunk.components[component], None));
        }
        match engine.device_for(key, descriptor, number, chunk.stripes.component_bytes(component), self.device)? {
            Some(device) => {
                let place = engine.extents.place_component(&engine.allocator(), chunk, component, device)?;
                Ok((place.component, Some(place.claim)))
            }
            None => Err(no_place("a chunk fits on no other device".to_owned())),
        }
    }

    /// Makes the written units durable, writes the records, and notes where the next session resumes.
    fn settle(&mut self, done: &mut Done) -> Result<()> {
        let engine = self.engine;
        // The files stay claimed until the records are written.
        let touched = std::mem::take(&mut done.touched);
        engine.extents.sync(&touched)?;
        done.unsynced_bytes = 0;
        if !done.moving.is_empty() {
            for outdated in engine.append_moved(std::mem::take(&mut done.moving))? {
                // Moved meanwhile by a compaction, which changes neither its id nor its map.
                let now = engine.snapshot().look_up(&outdated.key)?;
                self.is_revisited |= now.is_some_and(|now| now.id == outdated.entry.id);
            }
        }
        engine.sync_all()?;
        engine.note(&[(&note_name(self.device), if self.is_onto { done.so_far.encode() } else { Vec::new() })])
    }
}
