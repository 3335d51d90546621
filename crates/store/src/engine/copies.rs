//! Copies of segments: creating one on a device without it, and keeping the accounts true while batches continue.
//!
//! Only immutable segments are copied; the active one is closed first. A copy is written under another name, synced and
//! renamed: a crash leaves either the old file or the new one. What is valid on no copy is copied as it is, damaged, to
//! preserve offsets; but only if the caller accepts that: a device that is away may have it intact. What is damaged
//! everywhere comes from the file that is to be replaced; if it cannot be read there, that file stays: only proven
//! bytes replace others.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use crate::devices::device::{DeviceFile, Mode};
use crate::devices::names;
use crate::devices::slot::Slot;
use crate::engine::copying::CopyPaths;
use crate::engine::pace::Pace;
use crate::engine::pins::Pin;
use crate::engine::recovered::RELEASED;
use crate::engine::{Engine, View};
use crate::error::{Error, ErrorKind, Result};
use crate::format::geometry::DeviceState;
use crate::format::ids::{DeviceNumber, LogOffset, SegmentId, SegmentNumber};
use crate::format::names::{SEGMENTS, SegmentName, segment_path};
use crate::format::release::Released;
use crate::format::rows::Position;
use crate::format::segment::{FIRST_BATCH_AT, SEGMENT_HEADER_BYTES};
use crate::index::catalog::{Change, SegmentRow, State};
use crate::locks::lock;
use crate::log::scan::{DifferingCopies, ScanStep, SegmentScan};
use crate::log::writer::roomiest;

/// Bytes per read and write.
const PIECE_BYTES: u64 = 4 << 20;
/// Bytes per read near an unreadable place.
const PAGE_BYTES: u64 = 4096;

/// What happens to bytes that no copy in service has intact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Damaged {
    /// They are copied as they are. Of a segment without any copy, none is made.
    Copied,
    /// They are copied as they are, and are a hole where there is no copy at all.
    GivenUp,
    /// No copy is made.
    Refused,
}

/// Result of copying a segment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Copied {
    /// Bytes written.
    pub(crate) bytes: u64,
    /// Those of them that no copy has intact.
    pub(crate) damaged_bytes: u64,
    /// The file that was there stays: no copy has intact what cannot be read in it.
    pub(crate) is_kept: bool,
}

impl Engine {
    /// Makes everything committed durable, and all existing segments immutable.
    ///
    /// # Errors
    /// Any error of syncing.
    pub(crate) fn close_active_segment(&self) -> Result<()> {
        self.writer()?.close_segment();
        self.sync_all()
    }

    /// Changes the catalog between two batches, without the log. `change_of` receives the state with everything
    /// committed.
    ///
    /// # Errors
    /// Any error of syncing or of the catalog.
    pub(crate) fn adjust(&self, change_of: impl FnOnce(&State) -> Change) -> Result<()> {
        self.adjust_with(|state| Ok((change_of(state), ())))
    }

    /// The same with a fallible `change_of`: if it fails, nothing is changed.
    ///
    /// # Errors
    /// As [`adjust`](Self::adjust), and those of `change_of`.
    pub(crate) fn adjust_with<T>(&self, change_of: impl FnOnce(&State) -> Result<(Change, T)>) -> Result<T> {
        let _sync = lock(&self.sync);
        let mut writer = self.writer()?;
        self.settle(&mut writer)?;
        let state = self.view().state.clone();
        let (change, done) = change_of(&state)?;
        // Rows that are not shared are changed in place.
        drop(state);
        self.catalog.commit(&change)?;
        self.apply(&change)?;
        Ok(done)
    }

    /// Stores notes in the catalog; an empty one is removed.
    ///
    /// # Errors
    /// As [`adjust`](Self::adjust).
    pub(crate) fn note(&self, notes: &[(&str, Vec<u8>)]) -> Result<()> {
        let notes = notes.iter().map(|(name, note)| ((*name).to_owned(), note.clone())).collect();
        self.adjust(|_| Change { notes, ..Change::default() })
    }

    /// A note as text.
    pub(crate) fn noted(&self, name: &str) -> Option<String> {
        let note = self.view().state.notes.get(name).cloned()?;
        String::from_utf8(note).ok()
    }

    /// The current state, and a pin that prevents everything it references from being freed, if this user may pin.
    ///
    /// # Errors
    /// Any error of reading the index.
    pub(crate) fn pinned(&self) -> Result<(Pin, View)> {
        if self.is_writer() && self.latched().is_none() {
            self.sync_all()?;
        }
        self.pinned_as_it_is()
    }

    /// The same with nothing in it that is not durable, whoever writes meanwhile.
    ///
    /// # Errors
    /// As [`pinned`](Self::pinned); [`ErrorKind::ReadOnly`] after a failed write.
    pub(crate) fn pinned_durable(&self) -> Result<(Pin, View)> {
        if !self.is_writer() {
            return self.pinned_as_it_is();
        }
        let _sync = lock(&self.sync);
        let mut writer = self.writer()?;
        self.settle_log(&mut writer)?;
        self.pinned_as_it_is()
    }

    /// The same without making the state durable first.
    ///
    /// # Errors
    /// As [`pinned`](Self::pinned).
    pub(crate) fn pinned_as_it_is(&self) -> Result<(Pin, View)> {
        let fail = |error| Error::io("keep what is being read from being freed in", &self.index_directory, error);
        loop {
            self.refresh()?;
            let epoch = self.view().state.epoch;
            let pin = self.pin_epoch(epoch).map_err(fail)?;
            self.refresh()?;
            let view = self.view().clone();
            if view.state.epoch == epoch {
                return Ok((pin, view));
            }
        }
    }

    /// The copies of a segment on these devices that can be opened.
    pub(crate) fn open_segment_copies(
        &self,
        segment: SegmentId,
        devices: &[DeviceNumber],
    ) -> Vec<(DeviceNumber, Arc<dyn DeviceFile>)> {
        let open =
            |&device: &DeviceNumber| self.devices.segment(device, segment, Mode::Read).ok().map(|file| (device, file));
        devices.iter().filter_map(open).collect()
    }

    /// Whether a device has a copy of a segment with the right size in which everything is valid by itself.
    ///
    /// # Errors
    /// Those of `pace`.
    pub(crate) fn has_whole_copy(&self, row: &SegmentRow, device: DeviceNumber, pace: &mut Pace<'_>) -> Result<bool> {
        let Ok(file) = self.devices.segment(device, row.id(), Mode::Read) else { return Ok(false) };
        if file.size().ok() != Some(row.size_bytes) {
            return Ok(false);
        }
        let mut scan = SegmentScan::new(vec![(device, file)], self.seed(row.id()), LogOffset::START);
        scan.end = row.end();
        let (header, _) = scan.header(row.id().into());
        if !header.is_some_and(|header| header.id == row.id() && header.store == self.geometry().store) {
            return Ok(false);
        }
        while let Some(step) = scan.next(false) {
            match step {
                ScanStep::Record(_, record, _) => pace.spend(record.record_bytes())?,
                ScanStep::Commit(committed, ..) => pace.spend(committed.end - committed.at)?,
                ScanStep::Damage(..) => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Devices other than `device` that may have a copy of a segment. Those that the index does not know of come last:
    /// one that was missing when it was built may have one.
    fn sources(&self, row: &SegmentRow, device: DeviceNumber) -> Vec<DeviceNumber> {
        let slots = self.devices.slots();
        let readable = slots.iter().filter(|slot| slot.is_readable()).map(|slot| slot.entry.number);
        let others = readable.filter(|other| !row.devices.contains(other));
        row.devices.iter().copied().chain(others).filter(|&source| source != device).collect()
    }

    /// Whether another device than `device` has a copy of a segment.
    pub(crate) fn has_source(&self, row: &SegmentRow, device: DeviceNumber) -> bool {
        !self.open_segment_copies(row.id(), &self.sources(row, device)).is_empty()
    }

    /// Rebuilds the copy of a segment on `device` from the others, and from what is there. The segment must be
    /// immutable.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] if part of it is `damaged` on all copies and that is refused; any error of reading all
    /// copies, writing or syncing, and those of `pace`.
    pub(crate) fn copy_segment(
        &self,
        row: &SegmentRow,
        device: DeviceNumber,
        damaged: Damaged,
        pace: &mut Pace<'_>,
    ) -> Result<Copied> {
        let target = segment_path(row.id());
        let temporary = format!("{target}.new");
        let fail = |error| self.devices.error("create a copy of the segment", device, &target, error);
        let on = self.devices.readable(device).ok_or_else(|| fail(std::io::ErrorKind::NotFound.into()))?;
        let mut sources = self.sources(row, device);
        sources.push(device);
        let copies = self.open_segment_copies(row.id(), &sources);
        let lost = |cause: &str| {
            Error::new(ErrorKind::Lost, "create a copy of the segment", cause).at(&self.devices.place(device, &target))
        };
        if copies.is_empty() && damaged != Damaged::GivenUp {
            return Err(lost("no device in service has a copy"));
        }
        let _in_progress = self.copying.begin(device, &temporary);
        // Left by an interrupted attempt.
        let _ = on.remove(&temporary);
        names::create_directory(&*on, SEGMENTS).map_err(fail)?;
        let file = on.open(&temporary, Mode::Create).map_err(fail)?;
        let replaced = copies.iter().find(|(number, _)| *number == device).map(|(_, file)| &**file);
        let copied = self.copy_onto(row, &copies, replaced, &*file, pace).and_then(|mut copied| {
            if copied.damaged_bytes > 0 && damaged == Damaged::Refused {
                return Err(lost("part of it is damaged on every copy in service"));
            }
            copied.is_kept |= !keep_quarantine(row, replaced, &*file).map_err(fail)?;
            if !copied.is_kept {
                file.sync().map_err(fail)?;
                on.rename(&temporary, &target).and_then(|()| on.sync_directory(SEGMENTS)).map_err(fail)?;
            }
            Ok(copied)
        });
        if copied.as_ref().map_or(true, |copied| copied.is_kept) {
            let _ = on.remove(&temporary);
        }
        self.devices.forget_segment(row.id());
        copied
    }

    /// The device with the most space for another copy of a segment, if it needs one.
    ///
    /// # Errors
    /// As [`roomiest_for`](Self::roomiest_for).
    pub(crate) fn spare_for(&self, row: &SegmentRow, wanted: usize) -> Result<Option<DeviceNumber>> {
        let now = self.view().state.segments.get(&row.number).map(|row| row.devices.clone());
        let Some(now) = now.filter(|now| now.len() < wanted) else { return Ok(None) };
        if row.number >= self.view().state.position.segment && self.is_active(row.number) {
            return Ok(None);
        }
        self.roomiest_for(row, |device| !now.contains(&device))
    }

    /// The device in use with the most space for a copy of a segment, of those that `may_have` one.
    ///
    /// # Errors
    /// A device does not say how much space it has: it is not full, but may be broken.
    pub(crate) fn roomiest_for(
        &self,
        row: &SegmentRow,
        may_have: impl Fn(DeviceNumber) -> bool,
    ) -> Result<Option<DeviceNumber>> {
        let mut slots = self.devices.writable(row.class);
        slots.retain(|slot| may_have(slot.entry.number) && slot.entry.state == DeviceState::InUse);
        let mut fit = Vec::new();
        for slot in slots {
            if slot.room()?.available_bytes > row.size_bytes {
                fit.push(slot);
            }
        }
        Ok(roomiest(fit, 1).first().map(|slot| slot.entry.number))
    }

    /// Whether a device has the log up to its end: every segment that is on it in its length, and the last one intact.
    pub(super) fn has_log(&self, device: DeviceNumber, end: Position) -> bool {
        let rows = Arc::clone(&self.view().state.segments);
        let is_due = |row: &&SegmentRow| {
            row.devices.contains(&device) && !row.is_without_batches() && !self.is_superseded(row.number)
        };
        rows.values().filter(is_due).all(|row| {
            let Ok(file) = self.devices.segment(device, row.id(), Mode::Read) else { return false };
            if row.number != end.segment {
                return file.size().is_ok_and(|size| size >= row.size_bytes);
            }
            let mut scan = SegmentScan::new(vec![(device, file)], self.seed(row.id()), LogOffset::START);
            scan.end = end.offset;
            let mut chain = None;
            while let Some(step) = scan.next(false) {
                match step {
                    ScanStep::Record(..) => {}
                    ScanStep::Commit(committed, ..) => chain = Some(committed.commit.chain()),
                    ScanStep::Damage(..) => return false,
                }
            }
            chain.is_none_or(|chain| chain == end.chain)
        })
    }

    /// A missing device that has, or may have, a copy of what was last written to a segment, which was found on others.
    pub(super) fn missing_copy(&self, segment: SegmentNumber, found: &[DeviceNumber]) -> Option<DeviceNumber> {
        let mut devices = found.to_vec();
        devices.extend(self.view().state.segments.get(&segment).iter().flat_map(|row| &row.devices));
        devices.sort_unstable();
        devices.dedup();
        let geometry = self.geometry();
        if devices.len() < geometry.copies.into() {
            devices.extend(geometry.record_devices().map(|entry| entry.number));
        }
        // Without the others, the last epoch began.
        let history = self.devices.history();
        let is_away = |device: &DeviceNumber| history.newest().has(*device) && self.devices.readable(*device).is_none();
        devices.into_iter().find(is_away)
    }

    /// The account of a segment that will not change any more: the active one is closed first. `None` if it is gone.
    pub(crate) fn closed_row(&self, number: SegmentNumber) -> Result<Option<SegmentRow>> {
        if self.is_active(number) {
            self.close_active_segment()?;
        }
        Ok(self.view().state.segments.get(&number).cloned())
    }

    fn is_active(&self, number: SegmentNumber) -> bool {
        self.writer().is_ok_and(|writer| writer.active.as_ref().is_some_and(|active| active.id.number == number))
    }

    fn copy_onto(
        &self,
        row: &SegmentRow,
        copies: &[(DeviceNumber, Arc<dyn DeviceFile>)],
        replaced: Option<&dyn DeviceFile>,
        target: &dyn DeviceFile,
        pace: &mut Pace<'_>,
    ) -> Result<Copied> {
        let first = copies.first().map_or(DeviceNumber(0), |copy| copy.0);
        let fail = |error| self.devices.error("copy the segment", first, &segment_path(row.id()), error);
        let mut scan = SegmentScan::new(copies.to_vec(), self.seed(row.id()), LogOffset::START);
        scan.end = row.end();
        let mut copied = Copied::default();
        match scan.header(row.id().into()) {
            (Some(header), _) => target.write_at(&header.encode(), 0).map_err(fail)?,
            (None, _) => {
                // Of a segment that a crash left without anything, no header was ever durable.
                if row.size_bytes > SEGMENT_HEADER_BYTES {
                    copied.damaged_bytes += SEGMENT_HEADER_BYTES;
                }
                copied.is_kept |=
                    !copy_raw(replaced, copies, LogOffset::START..FIRST_BATCH_AT, target).map_err(fail)?;
            }
        }
        let mut buffer = Vec::new();
        // A run of records on one copy.
        let mut run = (0, FIRST_BATCH_AT..FIRST_BATCH_AT);
        let source =
            |on: &DifferingCopies| copies.iter().position(|(device, _)| !on.without.contains(device)).unwrap_or(0);
        loop {
            let step = match scan.next(false) {
                Some(ScanStep::Record(at, record, on)) => Some((source(&on), at..at + record.record_bytes(), true)),
                Some(ScanStep::Commit(committed, _, on)) => Some((source(&on), committed.at..committed.end, true)),
                Some(ScanStep::Damage(range, _)) => Some((0, range, false)),
                None => None,
            };
            let joins = step.as_ref().is_some_and(|(source, range, is_intact)| {
                *is_intact && *source == run.0 && range.start == run.1.end && range.end - run.1.start <= PIECE_BYTES
            });
            if joins {
                run.1.end = step.map_or(run.1.end, |(_, range, _)| range.end);
                continue;
            }
            if !run.1.is_empty() {
                buffer.clear();
                let length = run.1.end - run.1.start;
                copies[run.0].1.read_onto(&mut buffer, length as usize, run.1.start.0).map_err(fail)?;
                target.append_at(&buffer, run.1.start.0).map_err(fail)?;
                target.start_writeback(run.1.start.0, length);
                copied.bytes += length;
                pace.spend(length)?;
            }
            match step {
                None => break,
                Some((source, range, true)) => run = (source, range),
                Some((_, range, false)) => {
                    let range = range.start..range.end.min(row.end());
                    copied.damaged_bytes += range.end - range.start;
                    copied.is_kept |= !copy_raw(replaced, copies, range.clone(), target).map_err(fail)?;
                    pace.spend(range.end - range.start)?;
                    run = (0, range.end..range.end);
                }
            }
        }
        target.set_size(row.size_bytes).map_err(fail)?;
        Ok(copied)
    }

    /// Files in the segment directory of a device that a repair may remove, with their sizes in bytes: segments that
    /// were released and are not in the catalog there, and incomplete copies that are none of those in progress. The
    /// caller is the only writer, and holds the lock of `in_progress` until it has removed them.
    pub(crate) fn leftover_segments(
        &self,
        slot: &Slot,
        state: &State,
        in_progress: &CopyPaths,
    ) -> Result<Vec<(String, u64)>> {
        let listed = names::list(&*slot.device, SEGMENTS).map_err(|error| slot.error("list", SEGMENTS, error))?;
        let released = state.notes.get(RELEASED).and_then(|note| Released::decode(note)).unwrap_or_default();
        let has_begun = self.has_begun();
        let is_written = |name: &str| in_progress.contains(&(slot.entry.number, format!("{SEGMENTS}/{name}")));
        let is_left = |(name, _): &(String, u64)| match SegmentName::parse(name) {
            // A segment that is neither in the catalog nor released is in quarantine, and stays.
            Some(name) => {
                // Between its release and the removal of its file, a segment still has its row.
                let is_it =
                    |row: &SegmentRow| SegmentName::from(row.id()) == name && row.devices.contains(&slot.entry.number);
                // One of another history may have a number that this one has released.
                has_begun(name)
                    && released.has_segment(name.number)
                    && !state.segments.get(&name.number).is_some_and(is_it)
            }
            None => name.ends_with(".new") && !is_written(name),
        };
        Ok(listed.into_iter().filter(is_left).collect())
    }

    /// The location of a segment's first copy, for messages.
    pub(crate) fn segment_place(&self, row: &SegmentRow) -> PathBuf {
        self.devices.place(row.devices.first().copied().unwrap_or(DeviceNumber(0)), &segment_path(row.id()))
    }
}

/// Copies what follows the log in the file that is to be replaced; returns whether all of that was read.
fn keep_quarantine(
    row: &SegmentRow,
    replaced: Option<&dyn DeviceFile>,
    target: &dyn DeviceFile,
) -> std::io::Result<bool> {
    let Some(file) = replaced else { return Ok(true) };
    let end = LogOffset(file.size()?);
    if end > row.end() { copy_raw(replaced, &[], row.end()..end, target) } else { Ok(true) }
}

/// Copies bytes that are not records: from the file that is to be `replaced` as far as it goes, otherwise from the
/// first readable copy; pages that none has readable remain a hole. Returns whether all of `replaced` was read.
fn copy_raw(
    replaced: Option<&dyn DeviceFile>,
    copies: &[(DeviceNumber, Arc<dyn DeviceFile>)],
    range: Range<LogOffset>,
    target: &dyn DeviceFile,
) -> std::io::Result<bool> {
    let (mut own, mut buffer, mut is_read) = (Vec::new(), Vec::new(), true);
    let mut copy_piece = |at: u64, end: u64, is_page: bool| -> std::io::Result<bool> {
        let length = (end - at) as usize;
        own.clear();
        let from_own = replaced.map_or(Ok(0), |file| file.read_onto(&mut own, length, at));
        match from_own {
            Ok(read) if read == length => return target.write_at(&own, at).map(|()| true),
            Ok(0) => {}
            _ if !is_page => return Ok(false),
            Ok(read) => own.truncate(read),
            Err(_) => {
                is_read = false;
                own.clear();
            }
        }
        let mut is_copied = false;
        for (_, file) in copies {
            buffer.clear();
            if file.read_onto(&mut buffer, length, at).is_ok_and(|read| read == length) {
                target.write_at(&buffer, at)?;
                is_copied = true;
                break;
            }
        }
        // The last page of a file that ends earlier.
        if !own.is_empty() {
            target.write_at(&own, at)?;
        }
        Ok(is_copied)
    };
    let end_of = |at: u64, most_bytes: u64, end: u64| (at / most_bytes + 1).saturating_mul(most_bytes).min(end);
    let mut at = range.start.0;
    while at < range.end.0 {
        let end = end_of(at, PIECE_BYTES, range.end.0);
        if !copy_piece(at, end, false)? {
            let mut page = at;
            while page < end {
                let end_of_page = end_of(page, PAGE_BYTES, end);
                copy_piece(page, end_of_page, true)?;
                page = end_of_page;
            }
        }
        at = end;
    }
    Ok(is_read)
}
