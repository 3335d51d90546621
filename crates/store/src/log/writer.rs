//! The writer's end of the log: the active segment on all its copies, batches appended and committed, files waiting to
//! be synced (docs/FORMAT.md, sections 5 and 8).
//!
//! A batch for which a device has no space leaves nothing: the segment is truncated to its previous length. A copy that
//! fails in any other way is left as it is, if the others suffice without its device, which is then out of service: the
//! batch is whole on them, and the next one begins another segment. Otherwise the caller latches the store.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use crate::devices::device::{DeviceFile, Mode};
use crate::devices::extents::Touched;
use crate::devices::names;
use crate::devices::set::Devices;
use crate::devices::slot::{Failed, Slot};
use crate::devices::threads;
use crate::error::{Error, ErrorKind, Result};
use crate::format::entry::Kind;
use crate::format::geometry::{Class, Geometry};
use crate::format::ids::{BatchSequence, DeviceNumber, Epoch, LogOffset, SegmentId, SegmentNumber};
use crate::format::names::{SEGMENTS, segment_path};
use crate::format::record::{HEADER_BYTES, NewRecord, seal};
use crate::format::release::Released;
use crate::format::rows::{Change, Position, SegmentRow};
use crate::format::segment::{Commit, Continued, FIRST_BATCH_AT, SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::layout::granulo::Alignment;

/// A batch of at least this length is written to all copies in parallel, and then the devices start write-back of the
/// rest of it while the next batch is built. Smaller ones are left alone: many of them share one page, and usually a
/// sync follows.
const LARGE_BYTES: u64 = 1 << 20;

/// An open copy of a segment, and its device.
pub(crate) type SegmentCopy = (DeviceNumber, Arc<dyn DeviceFile>);

/// The active segment, to which batches are appended.
#[derive(Debug)]
pub(crate) struct Active {
    pub(crate) id: SegmentId,
    /// The requested class.
    pub(crate) class: Class,
    /// Class of the devices that hold it: the other one if the store has no devices of the requested class.
    pub(crate) on: Class,
    /// Where the content of files begins in it.
    pub(crate) alignment: Alignment,
    /// Devices and their copies, without those that have failed.
    pub(crate) copies: Vec<SegmentCopy>,
    /// The devices on which it was begun.
    pub(crate) begun_on: Vec<DeviceNumber>,
    /// Offset of the next record.
    pub(crate) end: LogOffset,
}

/// The writer's state, under one lock.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    pub(crate) active: Option<Active>,
    /// Highest segment number ever assigned.
    pub(crate) newest_segment: SegmentNumber,
    /// End of the last batch.
    pub(crate) position: Position,
    /// Sequence number of the last batch that is durable.
    pub(crate) durable_sequence: u64,
    /// The last batch with records.
    pub(crate) record_sequence: u64,
    /// The mark in the last commit, which becomes durable with it.
    pub(crate) written_mark: u64,
    /// The highest mark that is durable.
    pub(crate) marked_sequence: u64,
    /// The batch of a clean close, if nothing followed it.
    pub(crate) closed_sequence: Option<u64>,
    /// Everything ever released. The first batch of a segment repeats it.
    pub(crate) released: Released,
    /// Changes that are committed but not in the catalog yet.
    pub(crate) pending: Change,
    /// Whether there are any.
    pub(crate) has_pending: bool,
    /// Memory of its keys and entries in bytes, including those replaced meanwhile.
    pub(crate) pending_bytes: usize,
    /// Recovery may still find a reason not to open the store.
    pub(crate) is_undecided: bool,
    /// Files with unsynced bytes.
    pub(crate) dirty: Vec<DirtyCopy>,
    /// Extent files with unsynced bytes.
    pub(crate) touched: Touched,
    /// Devices with an unsynced name in their segment directory.
    pub(crate) dirty_directories: BTreeSet<DeviceNumber>,
    /// Records spill to slow devices because the fast ones are full.
    pub(crate) is_overflowing: bool,
}

/// A copy of a segment with unsynced bytes.
#[derive(Debug, Clone)]
pub(crate) struct DirtyCopy {
    pub(crate) device: DeviceNumber,
    pub(crate) segment: SegmentId,
    pub(crate) file: Arc<dyn DeviceFile>,
}

/// A batch that was written, and its location.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WrittenBatch {
    pub(crate) segment: SegmentNumber,
    /// Offset of its first record.
    pub(crate) begin: LogOffset,
    pub(crate) position: Position,
}

/// Where a batch is to be written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SegmentTarget<'t> {
    /// Devices of this class.
    pub(crate) class: Class,
    /// Those that receive a new segment, if they are enough for all copies; otherwise the roomiest do.
    pub(crate) near: &'t [DeviceNumber],
    /// Size at which a segment is closed there.
    pub(crate) segment_bytes: u64,
}

/// The input of an append.
#[derive(Debug)]
pub(crate) struct Batched<'b> {
    /// Encoded records; sealed here for their final offsets.
    pub(crate) records: &'b mut [u8],
    /// The alignment for which they are encoded.
    pub(crate) alignment: Alignment,
    pub(crate) highest_id: u64,
    pub(crate) now_nanoseconds: i64,
    /// The epoch of this writer.
    pub(crate) epoch: Epoch,
    /// The batch closes the store.
    pub(crate) is_close: bool,
}

impl Writer {
    /// Adds a change that waits until it is durable in the log.
    pub(crate) fn pend(&mut self, change: Change) {
        self.has_pending = true;
        self.pending_bytes += change.bytes();
        self.pending.merge(change);
    }

    /// Takes what waits for the catalog.
    pub(crate) fn take_pending(&mut self) -> Change {
        self.has_pending = false;
        self.pending_bytes = 0;
        std::mem::take(&mut self.pending)
    }

    /// Puts back what the catalog could not apply, before anything that came later.
    pub(crate) fn pend_again(&mut self, mut change: Change) {
        change.merge(self.take_pending());
        self.pend(change);
    }

    /// The account of the active segment as of its beginning.
    pub(crate) fn active_row(&self) -> Option<SegmentRow> {
        let active = self.active.as_ref()?;
        Some(SegmentRow {
            number: active.id.number,
            epoch: active.id.epoch,
            class: active.on,
            devices: active.begun_on.clone(),
            size_bytes: active.end.0,
            live_bytes: 0,
            live_records: 0,
            dead_records: 0,
            lowest_id: u64::MAX,
        })
    }

    /// Ends the active segment: the next batch begins another.
    pub(crate) fn close_segment(&mut self) {
        self.active = None;
    }

    /// Ends the active segment if a device with a copy of it is out of service: the next one has all its copies on
    /// others.
    pub(crate) fn leave_lost(&mut self, devices: &Devices) {
        let is_lost = |active: &Active| active.begun_on.iter().any(|&device| !devices.is_in_service(device));
        if self.active.as_ref().is_some_and(is_lost) {
            self.close_segment();
        }
    }

    /// Appends a batch with its commit record to all copies of the active segment, without syncing.
    ///
    /// # Errors
    /// [`ErrorKind::NoSpace`]: nothing was written, the log is unchanged. For other errors, it is unknown what was
    /// written.
    pub(crate) fn append(
        &mut self,
        devices: &Devices,
        geometry: &Geometry,
        place: SegmentTarget<'_>,
        batch: &mut Batched<'_>,
    ) -> Result<WrittenBatch> {
        let length = batch.records.len() as u64;
        let stay = self.active.as_ref().is_some_and(|active| {
            active.class == place.class
                && active.alignment == batch.alignment
                && (active.end <= FIRST_BATCH_AT || (active.end + length).0 <= place.segment_bytes)
        });
        if !stay {
            self.begin_segment(devices, geometry, place, batch)?;
        }
        let is_new = self.active.as_ref().is_some_and(|active| active.end == FIRST_BATCH_AT);
        let is_misplaced = batch.alignment.padding_to_batch(SEGMENT_HEADER_BYTES) > 0 && !batch.records.is_empty();
        if is_new && (!self.released.is_empty() || is_misplaced) {
            // With an alignment, its commit ends where the next batch may begin.
            let mut records = if self.released.is_empty() { Vec::new() } else { release_record(&self.released)? };
            let mut first = Batched { records: &mut records, is_close: false, ..*batch };
            self.write(devices, geometry, &mut first)?;
        }
        self.write(devices, geometry, batch)
    }

    /// Writes a batch to the active segment.
    fn write(&mut self, devices: &Devices, geometry: &Geometry, batch: &mut Batched<'_>) -> Result<WrittenBatch> {
        let length = batch.records.len() as u64;
        let Some(active) = &mut self.active else {
            return Err(Error::new(ErrorKind::NoSpace, "write to the store", "no device has space for a segment"));
        };
        let begin = active.end;
        let seed = active.id.seed(&geometry.store);
        let commit = Commit {
            sequence: BatchSequence(self.position.sequence).next(),
            mark: BatchSequence(self.durable_sequence),
            begin,
            chain_before: self.position.chain,
            time_nanoseconds: batch.now_nanoseconds,
            highest_id: batch.highest_id,
            epoch: batch.epoch,
            is_close: batch.is_close,
            list: seal(batch.records, seed, begin),
        };
        let (content, mut end_record) = (commit.encode(), Vec::new());
        let record = NewRecord { content: &content, ..NewRecord::of(Kind::Commit) };
        let padding_bytes =
            active.alignment.padding_to_batch((begin + length).0 + (HEADER_BYTES + content.len()) as u64);
        record.encode_with(padding_bytes, Alignment::None, &mut end_record)?;
        seal(&mut end_record, seed, begin + length);
        let fail = |operation: &'static str, (device, error): (DeviceNumber, io::Error)| {
            (device, devices.error(operation, device, &segment_path(active.id), error))
        };
        let failed = write_copies(&active.copies, batch.records, &end_record, begin);
        let failed = failed.into_iter().map(|failed| fail("write to the segment", failed));
        let (full, failed): (Vec<Failed>, Vec<Failed>) =
            failed.partition(|(_, error)| error.kind() == ErrorKind::NoSpace);
        active.copies = without(&active.copies, devices, geometry, failed)?;
        if let Some((_, full)) = full.into_iter().next() {
            // Durably: after a crash, a complete copy would be taken for the end of the log. If no copy can be
            // truncated, the content of the log is unknown.
            let truncated = active.copies.iter().map(|(device, file)| {
                let truncated = file.set_size(begin.0).and_then(|()| file.sync());
                truncated.err().map(|error| fail("truncate the segment", (*device, error)))
            });
            let failed: Vec<Failed> = truncated.flatten().collect();
            // Whatever its kind: it is not that nothing was written.
            let unknown = |error: Error| Error::new(ErrorKind::Io, "write to the segment", error.to_string());
            active.copies = without(&active.copies, devices, geometry, failed).map_err(unknown)?;
            return Err(full);
        }
        active.end = begin + length + end_record.len() as u64;
        assert_eq!(active.alignment.padding_to_batch(active.end.0), 0, "a batch ends where another may begin");
        if length >= LARGE_BYTES {
            active.copies.iter().for_each(|(_, file)| file.start_writeback(begin.0, active.end - begin));
        }
        let position = Position {
            segment: active.id.number,
            commit: begin + length,
            offset: active.end,
            sequence: commit.sequence.0,
            chain: commit.chain(),
        };
        self.position = position;
        self.written_mark = commit.mark.0;
        if !commit.list.is_empty() {
            self.record_sequence = position.sequence;
        }
        for (device, file) in &active.copies {
            if !self.dirty.iter().any(|dirty| Arc::ptr_eq(&dirty.file, file)) {
                self.dirty.push(DirtyCopy { device: *device, segment: active.id, file: Arc::clone(file) });
            }
        }
        Ok(WrittenBatch { segment: position.segment, begin, position })
    }

    /// Begins the next segment, without devices on which that fails if the others suffice.
    fn begin_segment(
        &mut self,
        devices: &Devices,
        geometry: &Geometry,
        place: SegmentTarget<'_>,
        batch: &Batched<'_>,
    ) -> Result<()> {
        loop {
            let Err(error) = self.try_segment(devices, geometry, place, batch) else { return Ok(()) };
            let Some(device) = error.device().map(DeviceNumber) else { return Err(error) };
            let failed = [(device, error)];
            if !devices.lose(geometry, &failed) {
                let [(_, error)] = failed;
                return Err(error);
            }
        }
    }

    /// Creates the files of the next segment, on as many devices as records have copies.
    fn try_segment(
        &mut self,
        devices: &Devices,
        geometry: &Geometry,
        place: SegmentTarget<'_>,
        batch: &Batched<'_>,
    ) -> Result<()> {
        let number = self.newest_segment.next();
        let id = SegmentId::new(number, batch.epoch);
        let class = place.class;
        let slots = for_segment(devices.writable(class), place.near, geometry.copies.into());
        if slots.is_empty() {
            return Err(Error::new(ErrorKind::NoSpace, "begin a segment", "no device for records is in service")
                .advise("see granulo store status"));
        }
        let header = SegmentHeader {
            class: slots[0].entry.class,
            copies: slots.len() as u8,
            alignment: batch.alignment,
            store: geometry.store,
            id,
            created_nanoseconds: batch.now_nanoseconds,
            continues: Continued {
                segment: self.position.segment,
                offset: self.position.offset,
                sequence: BatchSequence(self.position.sequence),
                chain: self.position.chain,
            },
            highest_id: batch.highest_id,
        };
        let mut copies = Vec::with_capacity(slots.len());
        for slot in &slots {
            match make_segment(devices, slot, &header) {
                Ok(file) => copies.push((slot.entry.number, file)),
                Err(error) => {
                    // Nothing refers to this segment yet: its files are removed.
                    // On every device, whatever the others say.
                    let are_gone: Vec<bool> = slots.iter().map(|slot| is_removed(slot, id)).collect();
                    let is_gone = are_gone.iter().all(|&is_one| is_one);
                    if !is_gone {
                        // Its header says where the log continues: if more was appended there, a crash would take it
                        // for quarantine. The header of yet another segment overrules it.
                        self.active = None;
                    }
                    devices.forget_segment(id);
                    self.newest_segment = number;
                    self.released.add_segment(id.number);
                    return Err(slot.error("begin the segment", &segment_path(id), error));
                }
            }
        }
        self.dirty_directories.extend(slots.iter().map(|slot| slot.entry.number));
        self.newest_segment = number;
        let (on, alignment) = (header.class, header.alignment);
        let begun_on = slots.iter().map(|slot| slot.entry.number).collect();
        self.active = Some(Active { id, class, on, alignment, copies, begun_on, end: FIRST_BATCH_AT });
        Ok(())
    }
}

fn make_segment(devices: &Devices, slot: &Slot, header: &SegmentHeader) -> io::Result<Arc<dyn DeviceFile>> {
    let file = match devices.segment(slot.entry.number, header.id, Mode::Create) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            names::create_directory(&*slot.device, SEGMENTS)?;
            devices.segment(slot.entry.number, header.id, Mode::Create)?
        }
        other => other?,
    };
    file.write_at(&header.encode(), 0)?;
    Ok(file)
}

/// Whether the copy of a segment on a device, if there is one, was durably removed.
fn is_removed(slot: &Slot, id: SegmentId) -> bool {
    match slot.device.remove(&segment_path(id)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => true,
        removed => removed.and_then(|()| slot.device.sync_directory(SEGMENTS)).is_ok(),
    }
}

/// Writes a batch and its commit to all copies; a large one in parallel, because each write may wait for its device.
/// Returns the failures and their devices.
fn write_copies(
    copies: &[SegmentCopy],
    records: &[u8],
    end_record: &[u8],
    begin: LogOffset,
) -> Vec<(DeviceNumber, io::Error)> {
    let write = |(device, file): &SegmentCopy| {
        let written = file.append_at(records, begin.0);
        let written = written.and_then(|()| file.write_at(end_record, begin.0 + records.len() as u64));
        written.err().map(|error| (*device, error))
    };
    if (records.len() as u64) < LARGE_BYTES {
        return copies.iter().filter_map(write).collect();
    }
    threads::each(copies.iter().collect(), copies.len(), write).into_iter().flatten().collect()
}

/// The copies of a segment without those that failed, whose devices go out of service.
///
/// # Errors
/// The first failure, if no copy remains or redundancy does not cover the loss.
fn without(
    copies: &[SegmentCopy],
    devices: &Devices,
    geometry: &Geometry,
    mut failed: Vec<Failed>,
) -> Result<Vec<SegmentCopy>> {
    let has_failed = |device: DeviceNumber| failed.iter().any(|(failed, _)| *failed == device);
    let left: Vec<SegmentCopy> = copies.iter().filter(|(device, _)| !has_failed(*device)).cloned().collect();
    if !failed.is_empty() && (left.is_empty() || !devices.lose(geometry, &failed)) {
        return Err(failed.swap_remove(0).1);
    }
    Ok(left)
}

/// The devices for a new segment: those `near`, if there are `count` of them, otherwise the roomiest.
pub(crate) fn for_segment(slots: Vec<Slot>, near: &[DeviceNumber], count: usize) -> Vec<Slot> {
    let is_near = |slot: &&Slot| near.contains(&slot.entry.number);
    if slots.iter().filter(is_near).count() == count {
        return slots.iter().filter(is_near).cloned().collect();
    }
    roomiest(slots, count)
}

/// The devices with the most free space, at most `count` of them.
pub(crate) fn roomiest(mut slots: Vec<Slot>, count: usize) -> Vec<Slot> {
    slots.sort_by_cached_key(|slot| std::cmp::Reverse(slot.device.room().map_or(0, |room| room.available_bytes)));
    slots.truncate(count);
    slots.sort_by_key(|slot| slot.entry.number);
    slots
}

/// A release record, not sealed. It is alone in its batch, and its commit says where the next begins: it needs no
/// alignment.
///
/// # Errors
/// It is longer than a record may be.
pub(crate) fn release_record(released: &Released) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let content = &released.encode()[..];
    NewRecord { content, ..NewRecord::of(Kind::Release) }.encode(Alignment::None, &mut bytes)?;
    Ok(bytes)
}
