//! Batches go to the devices chosen by placement (see [`placement`](crate::devices::placement)), and to the other class
//! if one turns out to be full.

use super::Engine;
use crate::devices::device::Room;
use crate::devices::placement::{Limits, Purpose, Rooms, decide, file_bytes};
use crate::devices::slot::Slot;
use crate::error::{Error, ErrorKind, Result};
use crate::format::entry::Kind;
use crate::format::geometry::{Class, DeviceState, Geometry};
use crate::format::ids::DeviceNumber;
use crate::format::record::{HEADER_BYTES, Lengths, kind_of};
use crate::format::rows::{Change, SegmentRow};
use crate::log::writer::{Batched, SegmentTarget, Writer, WrittenBatch, for_segment};

/// Where a batch may go.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Destination<'d> {
    /// Classes of devices; the first with space is chosen.
    pub(crate) classes: &'d [Class],
    /// The devices that are to hold it, if they are enough for all copies; otherwise the roomiest are.
    pub(crate) near: &'d [DeviceNumber],
    pub(crate) claim: Purpose,
}

impl Engine {
    /// Whether the store has devices of both classes, so that records can overflow.
    pub(crate) fn has_both_classes(&self) -> bool {
        let geometry = self.geometry();
        let has = |class: Class| {
            geometry.devices.iter().any(|device| device.class == class && device.state != DeviceState::Gone)
        };
        has(Class::Fast) && has(Class::Slow)
    }

    /// Bytes of records that fast devices can take up to the low watermark.
    ///
    /// # Errors
    /// A device does not say how much space it has.
    pub(crate) fn fast_room_bytes(&self, geometry: &Geometry) -> Result<u64> {
        let room_of = |room: &Room| {
            let allowed = u128::from(room.total_bytes) * u128::from(geometry.low_watermark_percent) / 100;
            (allowed as u64).saturating_sub(room.total_bytes.saturating_sub(room.available_bytes))
        };
        let rooms = rooms(&self.next_slots(geometry, Class::Fast))?;
        Ok(rooms.rooms.iter().map(room_of).min().unwrap_or(0))
    }

    /// Length at which a batch of records that may be committed in any pieces should end: `most_bytes`, or half a
    /// segment of small devices. A longer batch makes its segment longer than full devices have room to move.
    pub(crate) fn batch_bytes(&self, most_bytes: u64) -> u64 {
        let geometry = self.geometry();
        let slots = [Class::Fast, Class::Slow].map(|class| self.next_slots(&geometry, class)).concat();
        // A device that does not say how much space it has says so when it is written to.
        let rooms = slots.iter().filter_map(|slot| slot.room().ok());
        rooms.map(|room| file_bytes(room, geometry.segment_bytes) / 2).fold(most_bytes, u64::min)
    }

    /// The devices of a class that would hold a new segment.
    pub(crate) fn next_slots(&self, geometry: &Geometry, class: Class) -> Vec<Slot> {
        self.next_slots_near(geometry, class, &[])
    }

    /// As [`next_slots`](Self::next_slots), for a segment that is to be on the devices `near`.
    pub(crate) fn next_slots_near(&self, geometry: &Geometry, class: Class, near: &[DeviceNumber]) -> Vec<Slot> {
        for_segment(self.devices.writable(class), near, geometry.copies.into())
    }

    /// Whether the records of a segment, moved to devices of a class, would have as many copies as now. While a device
    /// is away, they may not.
    pub(crate) fn keeps_copies(&self, row: &SegmentRow, class: Class) -> bool {
        row.is_without_batches() || self.wanted_copies(row) <= self.next_slots(&self.geometry(), class).len()
    }

    /// Copies of a segment, of those that the geometry asks for; one on a missing device is one.
    pub(crate) fn wanted_copies(&self, row: &SegmentRow) -> usize {
        let devices = row.devices.iter().filter(|&&device| !self.devices.has_left(device)).count();
        devices.min(self.geometry().copies.into())
    }

    /// The devices that would receive a batch for a class: those of the active segment, if it continues.
    fn target_slots(&self, writer: &Writer, geometry: &Geometry, class: Class, near: &[DeviceNumber]) -> Vec<Slot> {
        match &writer.active {
            Some(active) if active.class == class => {
                let slots = self.devices.slots();
                active.copies.iter().filter_map(|(device, _)| slots.get(device.index()).cloned()).collect()
            }
            _ => self.next_slots_near(geometry, class, near),
        }
    }

    /// Appends a batch where it belongs: for a purpose, or for that of tombstones if there is nothing else in it.
    ///
    /// # Errors
    /// [`ErrorKind::NoSpace`] if no class of devices has space, or the error of one that does not say how much it has:
    /// nothing was written. For other errors, it is unknown what was written.
    pub(crate) fn append_somewhere(
        &self,
        writer: &mut Writer,
        geometry: &Geometry,
        claim: Purpose,
        batch: Batched<'_>,
    ) -> Result<WrittenBatch> {
        let claim = if only_removes(&batch) { Purpose::Frees } else { claim };
        self.append_claiming(writer, geometry, claim, batch)
    }

    /// As [`append_somewhere`](Self::append_somewhere), for a given purpose.
    ///
    /// # Errors
    /// As [`append_somewhere`](Self::append_somewhere).
    pub(crate) fn append_claiming(
        &self,
        writer: &mut Writer,
        geometry: &Geometry,
        claim: Purpose,
        mut batch: Batched<'_>,
    ) -> Result<WrittenBatch> {
        self.without_lost(writer, |writer| self.append_by_class(writer, geometry, claim, &mut batch))
    }

    /// Appends a batch; if a device does not say how much space it has, and cannot be written, without it.
    fn without_lost(
        &self,
        writer: &mut Writer,
        mut append: impl FnMut(&mut Writer) -> Result<WrittenBatch>,
    ) -> Result<WrittenBatch> {
        loop {
            writer.leave_lost(&self.devices);
            match append(writer) {
                Err(error) if self.latched().is_none() && self.loses_unwritable(&error) => {}
                appended => return appended,
            }
        }
    }

    fn append_by_class(
        &self,
        writer: &mut Writer,
        geometry: &Geometry,
        claim: Purpose,
        batch: &mut Batched<'_>,
    ) -> Result<WrittenBatch> {
        let needed_bytes = batch.records.len() as u64;
        if !self.has_both_classes() {
            // The only class, whichever is requested; segments of either continue.
            let class = writer.active.as_ref().map_or(Class::Fast, |active| active.class);
            let to = Destination { classes: &[class], near: &[], claim };
            return self.append_in_order(writer, geometry, to, batch);
        }
        let limits = Limits {
            high_watermark_percent: geometry.high_watermark_percent,
            low_watermark_percent: geometry.low_watermark_percent,
        };
        // A reopened store continues as before.
        let is_overflowing =
            writer.is_overflowing || writer.active.as_ref().is_some_and(|active| active.on == Class::Slow);
        let rooms_of = |class: Class| rooms(&self.target_slots(writer, geometry, class, &[]));
        let (fast, slow) = (rooms_of(Class::Fast)?, rooms_of(Class::Slow)?);
        let (mut classes, is_overflowing) = decide(&fast, &slow, limits, is_overflowing, needed_bytes, claim);
        writer.is_overflowing = is_overflowing;
        if claim == Purpose::Frees
            && let Some(active) = &writer.active
        {
            // A tombstone is small and goes where the log is: it is rarely worth a new segment.
            classes.sort_by_key(|&class| class != active.class);
        }
        self.append_in_order(writer, geometry, Destination { classes: &classes, near: &[], claim }, batch)
    }

    /// Appends a batch to devices of the first of its classes with space. After an error that leaves it unknown what
    /// was written, nothing more is written.
    ///
    /// # Errors
    /// As [`append_somewhere`](Self::append_somewhere).
    pub(crate) fn append_to(
        &self,
        writer: &mut Writer,
        geometry: &Geometry,
        to: Destination<'_>,
        batch: &mut Batched<'_>,
    ) -> Result<WrittenBatch> {
        self.without_lost(writer, |writer| self.append_in_order(writer, geometry, to, batch))
    }

    fn append_in_order(
        &self,
        writer: &mut Writer,
        geometry: &Geometry,
        to: Destination<'_>,
        batch: &mut Batched<'_>,
    ) -> Result<WrittenBatch> {
        let Destination { classes, near, claim } = to;
        let needed_bytes = batch.records.len() as u64;
        let mut outcome = Err(full(claim));
        for &class in classes {
            if let Some(active) = writer.active.as_ref().filter(|_| !near.is_empty()) {
                let next = self.next_slots_near(geometry, class, near);
                let numbers = |slots: &[Slot]| slots.iter().map(|slot| slot.entry.number).collect::<Vec<_>>();
                if numbers(&next) != active.copies.iter().map(|&(device, _)| device).collect::<Vec<_>>() {
                    writer.close_segment();
                }
            }
            let mut target = rooms(&self.target_slots(writer, geometry, class, near))?;
            if !target.has_room(needed_bytes, claim) {
                // The active segment's devices may be full while others of the class are not.
                target = rooms(&self.next_slots_near(geometry, class, near))?;
                if !target.has_room(needed_bytes, claim) {
                    continue;
                }
                writer.close_segment();
            }
            let closing = target.rooms.iter().map(|&room| file_bytes(room, geometry.segment_bytes)).min();
            let segment_bytes = closing.unwrap_or(geometry.segment_bytes);
            outcome = writer.append(&self.devices, geometry, SegmentTarget { class, near, segment_bytes }, batch);
            match &outcome {
                Err(error) if error.kind() == ErrorKind::NoSpace => self.keep_row(writer)?,
                _ => break,
            }
        }
        outcome.inspect_err(|error| {
            if error.kind() != ErrorKind::NoSpace {
                self.latch(error);
            }
        })
    }

    /// A segment that was begun for a batch may have no space for it after the one that repeats what was released: it
    /// is part of the log all the same, and the log may continue on other devices.
    fn keep_row(&self, writer: &mut Writer) -> Result<()> {
        let is_new =
            |row: &SegmentRow| !row.is_without_batches() && !self.view().state.segments.contains_key(&row.number);
        match writer.active_row().filter(is_new) {
            Some(row) => self.apply_pending(writer, Change { segments: vec![row], ..Change::default() }),
            None => Ok(()),
        }
    }
}

/// What devices say about their space. One that does not say is not full, but may be broken: nothing is written then.
fn rooms(slots: &[Slot]) -> Result<Rooms> {
    Ok(Rooms { rooms: slots.iter().map(Slot::room).collect::<Result<_>>()? })
}

/// Whether all records of a batch are tombstones.
fn only_removes(batch: &Batched<'_>) -> bool {
    let mut rest = &*batch.records;
    while let Some(lengths) = Lengths::peek(rest) {
        if kind_of(rest).is_none_or(Kind::is_used) {
            return false;
        }
        debug_assert!(lengths.record_bytes() >= HEADER_BYTES);
        rest = rest.get(lengths.record_bytes()..).unwrap_or_default();
    }
    true
}

fn full(claim: Purpose) -> Error {
    let (cause, advice) = match claim {
        Purpose::Put | Purpose::Changes => (
            "the devices for records are full, except for the space reserved for removals",
            "remove objects and run granulo store compact, or use larger devices",
        ),
        // The store leaves this space free itself.
        Purpose::Frees => (
            "the devices for records are full, and something else occupies the space reserved for removals",
            "free space on their file systems",
        ),
    };
    Error::new(ErrorKind::NoSpace, "write to the store", cause).advise(advice)
}
