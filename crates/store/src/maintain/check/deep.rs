//! Every byte: the log on all copies, the units of large objects, and the index against both.
//!
//! One pass through the log finds for each record whether the index refers to it. Where the index has as many records
//! in a segment as were met there, each of its entries was met, as an entry refers to one record. Only if they differ,
//! or bytes are damaged, is the index read once more to find the objects concerned.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use super::super::audit::{AuditedRecord, DamagedRecords, Flaws, Observation, divergences};
use super::super::problem::{Problem, ProblemKind, Remedy};
use super::Checker;
use super::unclaimed::Unclaimed;
use crate::devices::extents::FaultyUnit;
use crate::engine::pace::Pace;
use crate::error::Result;
use crate::format::descriptor::{Chunk, Descriptor};
use crate::format::entry::{Entry, Kind};
use crate::format::ids::{DeviceNumber, LogOffset, SegmentNumber};
use crate::format::names::segment_path;
use crate::format::record::decode_directories;
use crate::index::catalog::SegmentRow;
use crate::units::{format_count, format_counted};

/// What the pass through the log leaves for later.
#[derive(Default)]
struct LogPass {
    unclaimed: Unclaimed,
    /// Damage that no copy can repair, by segment.
    damaged: BTreeMap<SegmentNumber, Vec<Unreadable>>,
    /// Devices that have copies of these segments.
    damaged_on: BTreeSet<DeviceNumber>,
    /// Those of them where something could not be read: it may be readable again.
    unread: BTreeSet<SegmentNumber>,
    /// Whether one of them has a copy that cannot be opened.
    has_unopened: bool,
    /// Segments where the index has other records than were met.
    doubtful: BTreeSet<SegmentNumber>,
    /// Bytes of live units, by device and extent file.
    units: BTreeMap<(DeviceNumber, u32), u64>,
    /// Whether every descriptor could be read.
    has_all_descriptors: bool,
}

/// Bytes that are damaged on every copy.
struct Unreadable {
    range: Range<LogOffset>,
    /// Whether the index has an object there.
    is_in_use: bool,
}

impl Checker<'_> {
    /// Reads everything that the index refers to; nothing, if the index cannot be read to its end, which is a problem
    /// that was found.
    pub(super) fn every_byte(&mut self, pace: &mut Pace<'_>) -> Result<()> {
        if self.sums.is_none() {
            return Ok(());
        }
        let rows = Arc::clone(&self.view.state.segments);
        let units: u64 = self.view.state.extents.values().map(|row| row.live_bytes).sum();
        let records: u64 = rows.values().map(|row| row.size_bytes * row.devices.len() as u64).sum();
        pace.stage("reading every byte", records + units);
        let mut seen = LogPass { has_all_descriptors: true, ..LogPass::default() };
        for row in rows.values() {
            if !self.superseded.contains(&row.number) {
                self.segment_bytes(row, &mut seen, pace)?;
            }
        }
        self.units(&seen);
        self.unclaimed(&mut seen);
        let unread = std::mem::take(&mut seen.unread);
        self.concerned(seen, pace)?;
        // They stay with the lost objects in them, and with what cannot be read: there may be a record whose removal is
        // in damaged bytes elsewhere.
        self.report.is_log_explained &= unread.is_disjoint(&self.lost_in);
        Ok(())
    }

    /// Records in use that are not in the index: it has lost them, unless what removed them is damaged. Then the index,
    /// which is verified itself, is right, and one that is built from this log would have them again.
    fn unclaimed(&mut self, seen: &mut LogPass) {
        let unclaimed = std::mem::take(&mut seen.unclaimed);
        let is_whole = unclaimed.is_whole();
        let left = unclaimed.into_lost();
        self.report.is_log_explained = is_whole && left.is_empty();
        let (cause, remedy) = match seen.damaged.is_empty() {
            true => ("the log has a record in use that is not in the index", Remedy::RebuildIndex),
            false => (
                "it has a record that is not in the index, and whose removal may be in damaged bytes",
                if seen.has_unopened { Remedy::Rebuild } else { self.engine.remedy_beyond(&seen.damaged_on) },
            ),
        };
        for (key, segment, offset) in left {
            let place = self.engine.devices.place(DeviceNumber(0), &segment_path(self.engine.segment_id(segment)));
            let problem = Problem::new(ProblemKind::Entry, place, cause, remedy);
            self.found(problem.within(segment, offset..offset).of(&key));
        }
    }

    /// All bytes of one segment, and the units of large objects whose records are in it.
    fn segment_bytes(&mut self, row: &SegmentRow, seen: &mut LogPass, pace: &mut Pace<'_>) -> Result<()> {
        let (engine, snapshot) = (self.engine, self.snapshot.clone());
        let mut flaws = Flaws::default();
        let tally = engine.audit_segment(row, &snapshot, LogOffset::START, pace, &mut |sight, pace| {
            match sight {
                Observation::Header(..) | Observation::Batched(_) => {}
                Observation::Damage(range, headed) => {
                    seen.damaged.entry(row.number).or_default().push(Unreadable { range, is_in_use: false });
                    seen.damaged_on.extend(&row.devices);
                    // An index that is built from the log has it, though it cannot be read. A removed tree has not: its
                    // directories are its content.
                    if let Some(met) = headed.filter(|met| met.record.head.kind != Kind::TreeRemoval) {
                        self.claim(row, met, seen)?;
                    }
                }
                Observation::Batch(range, cause) => {
                    let problem = Problem::new(ProblemKind::Batch, engine.segment_place(row), cause, Remedy::Harmless);
                    self.found(problem.within(row.number, range));
                }
                Observation::Record(met) => {
                    if let Some(flaw) = flaws.add(met) {
                        self.flaw(row, flaw);
                    }
                    self.record(row, met, seen, pace)?;
                }
            }
            Ok(())
        })?;
        if let Some(flaw) = flaws.end() {
            self.flaw(row, flaw);
        }
        self.report.verified_bytes += tally.read_bytes;
        if tally.is_unread && seen.damaged.contains_key(&row.number) {
            seen.unread.insert(row.number);
            seen.has_unopened |= engine.has_unopened(row);
        }
        let sum = self.sums.as_ref().map(|sums| sums.get(&row.number).copied().unwrap_or_default());
        if sum.is_some_and(|sum| (sum.records, sum.bytes) != (tally.live_records, tally.live_bytes)) {
            seen.doubtful.insert(row.number);
        }
        Ok(())
    }

    fn flaw(&mut self, row: &SegmentRow, flaw: DamagedRecords) {
        // A killed writer can leave copies of the end of the log that differ; the next writer makes them equal.
        if flaw.range.start >= self.engine.recovered_end(row) {
            return;
        }
        for &device in &flaw.devices {
            let place = self.engine.devices.place(device, &segment_path(row.id()));
            let damaged = format_counted(flaw.records, "record is", "records are");
            let cause = format!("{damaged} damaged on this copy and intact on another");
            let problem = Problem::new(ProblemKind::Record, place, cause, Remedy::Repair).on(device);
            let mut problem = problem.within(row.number, flaw.range.clone());
            problem.key.clone_from(&flaw.key);
            self.found(problem);
        }
    }

    fn newer_in_log(&mut self, row: &SegmentRow, met: &AuditedRecord<'_>, key: &[u8]) {
        let problem = Problem::new(
            ProblemKind::Entry,
            self.engine.segment_place(row),
            "the log has a newer record of it than the index",
            Remedy::RebuildIndex,
        );
        self.found(problem.within(row.number, met.range()).of(key));
    }

    fn record(
        &mut self,
        row: &SegmentRow,
        met: &AuditedRecord<'_>,
        seen: &mut LogPass,
        pace: &mut Pace<'_>,
    ) -> Result<()> {
        divergences(self.engine, row, met).into_iter().for_each(|problem| self.found(problem));
        self.claim(row, met, seen)?;
        if let (Kind::Large, Some(entry)) = (met.record.head.kind, met.live) {
            match self.engine.descriptor_in(row, &met.record) {
                Ok(descriptor) => self.large(&entry, &met.key, &descriptor, seen, pace)?,
                Err(error) => {
                    seen.has_all_descriptors = false;
                    let problem = Problem::new(
                        ProblemKind::Record,
                        self.engine.segment_place(row),
                        error.to_string(),
                        Remedy::Lost,
                    );
                    self.found(problem.within(row.number, met.range()).of(&met.key));
                }
            }
        }
        Ok(())
    }

    /// Compares a record with what the index has for its key.
    fn claim(&mut self, row: &SegmentRow, met: &AuditedRecord<'_>, seen: &mut LogPass) -> Result<()> {
        let head = &met.record.head;
        let key = if head.kind.is_used() { met.key.clone() } else { head.key() };
        match (head.kind, met.known) {
            (Kind::Commit | Kind::Release | Kind::Snapshot, _) => {}
            (Kind::Removal, _) => seen.unclaimed.removal(&key, head.id),
            (Kind::TreeRemoval, _) => {
                let directories = decode_directories(met.record.content).unwrap_or_default();
                seen.unclaimed.tree_removal(&key, &directories, head.id);
            }
            // It was moved for a snapshot that may have been removed.
            (_, None) if head.until > 0 && !self.view.state.keeps(head.id, head.until) => {}
            // Attributes are superseded with their object.
            (Kind::Attributes, None) => {
                let key = head.object_key();
                match self.snapshot.look_up(&key)? {
                    Some(object) if object.id > head.id => {}
                    Some(_) => self.newer_in_log(row, met, &key),
                    None if head.name.is_some() => seen.unclaimed.put(&key, head.id, row.number, met.at),
                    None => {}
                }
            }
            // A shared object is removed with its last name, without a removal record.
            (_, None) if head.name.is_some() => seen.unclaimed.put(&key, head.id, row.number, met.at),
            (_, Some(known)) if known.id < head.id => self.newer_in_log(row, met, &key),
            _ => {}
        }
        Ok(())
    }

    fn large(
        &mut self,
        entry: &Entry,
        key: &[u8],
        descriptor: &Descriptor,
        seen: &mut LogPass,
        pace: &mut Pace<'_>,
    ) -> Result<()> {
        self.report.large_objects += 1;
        for run in descriptor.runs() {
            *seen.units.entry((run.device, run.file)).or_default() += run.length_bytes;
            let is_read = self.engine.devices.readable(run.device).is_some();
            self.report.verified_bytes += if is_read { run.length_bytes } else { 0 };
        }
        let wrong = self.engine.extents.verify(descriptor, &mut |bytes| pace.spend(bytes))?;
        if wrong.is_empty() {
            return Ok(());
        }
        let mut of_stripe: BTreeMap<(usize, usize), Vec<&FaultyUnit>> = BTreeMap::new();
        for unit in &wrong {
            of_stripe.entry((unit.chunk, unit.stripe)).or_default().push(unit);
        }
        let remedy_of = |unit: &FaultyUnit, chunk: &Chunk| {
            let faulty = of_stripe.get(&(unit.chunk, unit.stripe)).map_or(&[][..], Vec::as_slice);
            match faulty.len() > usize::from(chunk.stripes.parity) {
                true => self.engine.remedy_of_stripe(chunk, faulty.iter().copied()),
                false => Remedy::Repair,
            }
        };
        // One problem for each device and flaw: a lost device is reported once, unless parity cannot reconstruct the
        // unit. Nothing returns to a device that left the store.
        let mut of_device: BTreeMap<(DeviceNumber, Remedy, String), (u64, &FaultyUnit)> = BTreeMap::new();
        for unit in &wrong {
            let Some(chunk) = descriptor.chunks.get(unit.chunk) else { continue };
            let remedy = remedy_of(unit, chunk);
            if remedy != Remedy::Repair || self.is_settled(unit.device) || self.engine.devices.has_left(unit.device) {
                of_device.entry((unit.device, remedy, unit.fault.to_string())).or_insert((0, unit)).0 += 1;
            }
        }
        for ((device, remedy, flaw), (count, first)) in of_device {
            let Some(chunk) = descriptor.chunks.get(first.chunk) else { continue };
            let run = chunk.unit(first.stripe, first.unit);
            let place = self.engine.extents.place(device, run.file);
            let units = if count == 1 {
                "a stripe unit".to_owned()
            } else {
                format!("{} stripe units, the first there,", format_count(count.into()))
            };
            let rest = if remedy != Remedy::Repair { ", and parity cannot repair it" } else { "" };
            let mut problem =
                Problem::new(ProblemKind::Unit, place, format!("{units} {flaw}{rest}"), remedy).on(device).of(key);
            problem.range = Some(run.offset_bytes..run.offset_bytes + run.length_bytes);
            problem.segment = Some(entry.location.segment);
            self.found(problem);
        }
        Ok(())
    }

    /// Compares the accounts of extent files with the descriptors.
    fn units(&mut self, seen: &LogPass) {
        if !seen.has_all_descriptors || !seen.damaged.is_empty() {
            return;
        }
        let rows = Arc::clone(&self.view.state.extents);
        let files: BTreeSet<(DeviceNumber, u32)> = rows.keys().chain(seen.units.keys()).copied().collect();
        for (device, file) in files {
            let noted = rows.get(&(device, file)).map_or(0, |row| row.live_bytes);
            let counted = seen.units.get(&(device, file)).copied().unwrap_or(0);
            if noted != counted {
                let place = self.engine.extents.place(device, file);
                let cause = format!("the catalog counts {noted} bytes in use, large objects have {counted}");
                self.found(Problem::new(ProblemKind::Account, place, cause, Remedy::RebuildIndex).on(device));
            }
        }
    }

    /// Which objects are in damaged bytes, and which entries refer to no valid record.
    fn concerned(&mut self, mut seen: LogPass, pace: &mut Pace<'_>) -> Result<()> {
        let suspects: BTreeSet<SegmentNumber> = seen.damaged.keys().chain(&seen.doubtful).copied().collect();
        // Then the first that overlaps a record is found by bisection: there may be as many as records.
        seen.damaged.values_mut().for_each(|damaged| damaged.sort_by_key(|damage| damage.range.start));
        if !suspects.is_empty() {
            let snapshot = self.snapshot.clone();
            let mut scan = snapshot.scan_versions_from(&[])?;
            let mut buffer = Vec::new();
            while let Some((key, entry)) = scan.next_entry()? {
                let location = entry.location;
                if !suspects.contains(&location.segment) {
                    continue;
                }
                pace.spend(0)?;
                let Some(row) = self.view.state.segments.get(&location.segment).cloned() else { continue };
                let Err(error) = self.engine.read_entry(entry, &mut buffer).map(|_| ()) else { continue };
                let range = location.range();
                let damaged = seen.damaged.get_mut(&row.number).map_or(&mut [][..], Vec::as_mut_slice);
                let at = damaged.partition_point(|damage| damage.range.end <= range.start);
                let damage = damaged.get_mut(at).filter(|damage| damage.range.start < range.end);
                let (kind, cause, remedy) = match damage {
                    Some(damage) => {
                        damage.is_in_use = true;
                        let cause = format!("the record is damaged on {}", self.engine.copies_in_words(&row.devices));
                        (ProblemKind::Record, cause, self.engine.remedy_of_segment(&row))
                    }
                    None => (
                        ProblemKind::Entry,
                        format!("the index names an invalid record: {error}"),
                        Remedy::RebuildIndex,
                    ),
                };
                let is_away = !row.devices.iter().any(|&device| self.is_readable(device));
                if is_away {
                    continue;
                }
                let problem = Problem::new(kind, self.engine.segment_place(&row), cause, remedy);
                self.found(problem.within(row.number, range).of(key));
            }
        }
        for (segment, damaged) in seen.damaged {
            let Some(row) = self.view.state.segments.get(&segment).cloned() else { continue };
            if !row.devices.iter().any(|&device| self.is_readable(device)) {
                continue;
            }
            for Unreadable { range, .. } in damaged.into_iter().filter(|damage| !damage.is_in_use) {
                self.found(self.engine.damage_without_objects(&row, range));
            }
        }
        Ok(())
    }
}
