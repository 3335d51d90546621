//! Segments and extent files: that they exist, are long enough, and have sound headers.
//!
//! What is in a directory that cannot be listed, or in a file that cannot be opened, may be intact: it is not taken for
//! lost.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use super::super::choice::ExtentId;
use super::super::problem::{Problem, ProblemKind, Remedy};
use super::Checker;
use crate::devices::device::Mode;
use crate::devices::extents::file_number;
use crate::devices::names;
use crate::devices::slot::Slot;
use crate::engine::displaced::{self, in_place_of};
use crate::engine::pace::Pace;
use crate::error::{Result, os_message};
use crate::format::geometry::{Class, DeviceState};
use crate::format::ids::{DeviceNumber, LogOffset};
use crate::format::names::{EXTENTS, SEGMENTS, SegmentName, segment_path};
use crate::format::segment::FIRST_BATCH_AT;
use crate::index::catalog::SegmentRow;
use crate::log::scan::SegmentScan;
use crate::units::format_size;

impl Checker<'_> {
    /// Copies of segments: that they exist with a sound header, and are as long as they should be.
    pub(super) fn segments(&mut self, pace: &mut Pace<'_>) -> Result<()> {
        for slot in self.slots.clone().iter().filter(|slot| slot.is_readable()) {
            let listed = match names::list(&*slot.device, SEGMENTS) {
                Ok(listed) => listed,
                Err(error) => {
                    self.unlisted(slot, SEGMENTS, &error);
                    self.sizes_of_opened(slot.entry.number);
                    continue;
                }
            };
            let numbered =
                listed.iter().filter_map(|(name, size)| Some(((slot.entry.number, SegmentName::parse(name)?), *size)));
            self.sizes.extend(numbered);
            if self.is_alone && slot.is_writable() {
                let in_progress = self.engine.copying.files();
                let left = self.engine.leftover_segments(slot, &self.view.state, &in_progress)?;
                drop(in_progress);
                for (name, size) in left {
                    let cause = format!("the file ({}) is not a segment of the store", format_size(size.into()));
                    let path = slot.path.join(SEGMENTS).join(name);
                    self.found(Problem::new(ProblemKind::Leftover, path, cause, Remedy::Repair).on(slot.entry.number));
                }
            }
        }
        let rows = std::sync::Arc::clone(&self.view.state.segments);
        for row in rows.values().filter(|row| !self.superseded.contains(&row.number)).collect::<Vec<_>>() {
            self.report.segments += 1;
            self.segment(row);
            pace.spend(0)?;
        }
        Ok(())
    }

    /// A directory of a device cannot be listed: nothing in it is known to be lost.
    fn unlisted(&mut self, slot: &Slot, directory: &str, error: &io::Error) {
        let cause = format!("the directory cannot be listed: {}", os_message(error));
        let problem = Problem::new(ProblemKind::Device, slot.path.join(directory), cause, Remedy::Rebuild);
        self.found(problem.on(slot.entry.number));
    }

    /// Without a listing, the sizes of segments are those of the files that can be opened.
    fn sizes_of_opened(&mut self, device: DeviceNumber) {
        let on_it = self.view.state.segments.values().filter(|row| row.devices.contains(&device));
        for row in on_it {
            let opened = self.engine.devices.segment(device, row.id(), Mode::Read);
            if let Ok(size) = opened.and_then(|file| file.size()) {
                self.sizes.insert((device, row.id().into()), size);
            }
        }
    }

    fn segment(&mut self, row: &SegmentRow) {
        // A segment that a crash left without a batch is no part of the log.
        if row.is_without_batches() {
            return;
        }
        let is_active = row.number >= self.view.state.position.segment;
        let readable: Vec<DeviceNumber> =
            row.devices.iter().copied().filter(|&device| self.is_readable(device)).collect();
        let long_enough = |device: &DeviceNumber| {
            self.sizes.get(&(*device, row.id().into())).is_some_and(|&size| size >= row.size_bytes)
        };
        let whole: Vec<DeviceNumber> = readable.iter().copied().filter(long_enough).collect();
        if readable.is_empty() {
            let cause = "no device in service has it";
            self.found(
                Problem::new(ProblemKind::SegmentMissing, self.engine.segment_place(row), cause, Remedy::Rebuild)
                    .within(row.number, LogOffset::START..row.end()),
            );
        }
        for &device in &readable {
            let place = self.engine.devices.place(device, &segment_path(row.id()));
            let has_other = whole.iter().any(|&other| other != device);
            let remedy = match self.slot(device) {
                Some(slot) if slot.entry.state == DeviceState::Rebuilding => Remedy::Rebuild,
                _ if has_other => Remedy::Repair,
                _ => self.engine.remedy_of_segment(row),
            };
            // A killed writer can leave copies of the end of the log that differ; the next writer makes them equal.
            let recovered_bytes = self.engine.recovered_end(row).0;
            let is_end = |size: u64| has_other && recovered_bytes < row.size_bytes && size >= recovered_bytes;
            let problem = match self.sizes.get(&(device, row.id().into())) {
                None if is_end(0) => None,
                Some(&size) if size < row.size_bytes && is_end(size) => None,
                None if self.engine.is_unopened(device, row.id()) => {
                    Some((ProblemKind::SegmentMissing, "the segment cannot be opened".to_owned()))
                }
                None => Some((ProblemKind::SegmentMissing, "the segment is missing".to_owned())),
                Some(&size) if size < row.size_bytes => Some((
                    ProblemKind::SegmentSize,
                    format!("the segment is truncated: it has {size} of {} bytes", row.size_bytes),
                )),
                Some(_) => None,
            };
            if let Some((kind, cause)) = problem {
                let is_it = |name: &str| SegmentName::parse(name) == Some(row.id().into());
                let missing = Problem::new(kind, place.clone(), cause, remedy).on(device);
                let problem = self.or_displaced(missing, device, SEGMENTS, is_it);
                self.found(problem.within(row.number, LogOffset::START..row.end()));
            }
        }
        self.headers(row, &readable);
        let writable = self.engine.devices.writable(row.class);
        let wanted = usize::from(self.engine.geometry().copies).min(self.devices_of(row.class));
        if row.devices.len() < wanted && !is_active {
            let has_spare = writable.iter().any(|slot| !row.devices.contains(&slot.entry.number));
            let remedy = if has_spare { Remedy::Repair } else { Remedy::Rebuild };
            let cause = format!("it has {} of {wanted} copies", row.devices.len());
            self.found(
                Problem::new(ProblemKind::Copies, self.engine.segment_place(row), cause, remedy)
                    .within(row.number, LogOffset::START..row.end()),
            );
        }
    }

    /// Number of devices of a class in the store, or of the other class if there are none.
    fn devices_of(&self, class: Class) -> usize {
        let count = |wanted: &dyn Fn(&Slot) -> bool| {
            self.slots.iter().filter(|slot| slot.entry.state != DeviceState::Gone && wanted(slot)).count()
        };
        match count(&|slot| slot.entry.class == class) {
            0 => count(&|_| true),
            some => some,
        }
    }

    fn headers(&mut self, row: &SegmentRow, readable: &[DeviceNumber]) {
        let copies = self.engine.open_segment_copies(row.id(), readable);
        if copies.is_empty() {
            return;
        }
        let store = self.engine.geometry().store;
        let mut sound = Vec::new();
        let mut unsound = Vec::new();
        for copy in copies {
            let device = copy.0;
            let (header, _) =
                SegmentScan::new(vec![copy], self.engine.seed(row.id()), LogOffset::START).header(row.id().into());
            match header {
                Some(header) if header.id == row.id() && header.store == store => sound.push(device),
                Some(_) => unsound.push((device, "its header belongs to another segment or store")),
                None => unsound.push((device, "its header is damaged")),
            }
        }
        // A segment that a crash left without a batch is no part of the log.
        if sound.is_empty() && row.live_records + row.dead_records == 0 {
            return;
        }
        for (device, cause) in unsound {
            let place = self.engine.devices.place(device, &segment_path(row.id()));
            // Reading needs nothing from the header; moved records get a sound one.
            let remedy = if sound.is_empty() { Remedy::Harmless } else { Remedy::Repair };
            let problem = Problem::new(ProblemKind::SegmentHeader, place, cause, remedy);
            self.found(problem.on(device).within(row.number, LogOffset::START..FIRST_BATCH_AT));
        }
    }

    /// A missing file; if something else is in its place, that is what is wrong.
    fn or_displaced(
        &self,
        missing: Problem,
        device: DeviceNumber,
        directory: &str,
        is_it: impl Fn(&str) -> bool,
    ) -> Problem {
        match self.slot(device).and_then(|slot| in_place_of(slot, directory, is_it)) {
            Some((place, other)) => Problem::new(missing.kind, place, other.to_string(), Remedy::Return)
                .advise(displaced::ADVICE)
                .on(device),
            None => missing,
        }
    }

    /// Extent files: that they exist and extend as far as live units; and what is in them that nothing ever referred
    /// to.
    pub(super) fn extents(&mut self) -> Result<()> {
        let mut sizes: BTreeMap<DeviceNumber, BTreeMap<u32, u64>> = BTreeMap::new();
        let slots: Vec<Slot> = self
            .slots
            .iter()
            .filter(|slot| slot.is_readable() && slot.entry.state == DeviceState::InUse)
            .cloned()
            .collect();
        for slot in &slots {
            match self.engine.extents.list(slot.entry.number) {
                Ok(listed) => drop(sizes.insert(slot.entry.number, listed)),
                Err(error) => self.unlisted(slot, EXTENTS, &error),
            }
        }
        let rows = std::sync::Arc::clone(&self.view.state.extents);
        let remedy = if self.engine.geometry().parity > 0 { Remedy::Repair } else { Remedy::Lost };
        for row in rows.values().filter(|row| row.live_bytes > 0) {
            let Some(sizes) = sizes.get(&row.device) else { continue };
            let cause = match sizes.get(&row.file) {
                None => "the extent file is missing".to_owned(),
                // Versions of an object may share units, which are counted for each version.
                Some(&size) if size < row.live_bytes.min(row.end_bytes) => {
                    let in_use = row.live_bytes.min(row.end_bytes);
                    format!("the extent file is truncated: it has {size} bytes, but {in_use} are in use")
                }
                Some(_) => continue,
            };
            let is_it = |name: &str| file_number(name) == Some(row.file);
            let place = self.engine.extents.place(row.device, row.file);
            let missing = Problem::new(ProblemKind::ExtentFile, place, cause, remedy).on(row.device);
            self.found(self.or_displaced(missing, row.device, EXTENTS, is_it));
        }
        // A writer at work stores units there before it refers to them; and objects that are missing may have some.
        if self.is_alone && self.knows_all && !self.engine.is_writer() {
            self.quarantine(&sizes);
        }
        Ok(())
    }

    /// Bytes that no descriptor refers to, left by a killed writer. They stay until compaction frees the file.
    fn quarantine(&mut self, sizes: &BTreeMap<DeviceNumber, BTreeMap<u32, u64>>) {
        let state = &self.view.state;
        let superseded: BTreeSet<ExtentId> = state.superseded_extents().collect();
        for (&device, sizes) in sizes {
            for (&file, &size) in sizes.iter().filter(|(file, _)| !superseded.contains(&(device, **file))) {
                let end = state.extents.get(&(device, file)).map_or(0, |row| row.end_bytes);
                self.report.quarantined_bytes += size.saturating_sub(end);
            }
        }
    }
}
