//! Making changes durable: files are synced, the catalog applies the change, a full `recent` list becomes a sorted
//! table, and superseded files are freed once no reader needs them.

#[cfg(test)]
mod tests;

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::devices::device::{Device, Mode};
use crate::devices::extents::{MOST_SYNCS, Touched, Unsynced};
use crate::devices::names;
use crate::devices::platform::Hold;
use crate::devices::threads;
use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::format::ids::{DeviceNumber, SegmentId};
use crate::format::names::{SEGMENTS, SegmentName, segment_path};
use crate::format::release::Released;
use crate::index::catalog::{Change, Superseded};
use crate::index::table::INDEX_DIRECTORY;
use crate::index::table::table_path;
use crate::index::{self, merge_tables};
use crate::locks::lock;
use crate::log::writer::{DirtyCopy, Writer};

/// Maximum number of entries changed since the last sorted table, in the catalog and in memory. Smaller in tests, which
/// then create tables.
pub(crate) const RECENT_LIMIT: usize = if cfg!(test) { 64 } else { 32_768 };
/// Maximum size of these keys and entries in bytes: a key may have 4 KB.
pub(crate) const RECENT_LIMIT_BYTES: usize = if cfg!(test) { 64 << 10 } else { 8 << 20 };
/// Above this number, closing the store creates a table: otherwise the next open reads the journal.
const CLOSING_LIMIT: usize = if cfg!(test) { 32 } else { 2048 };

/// What must be synced to make a batch durable.
#[derive(Debug, Default)]
pub(crate) struct Dirty {
    files: Vec<DirtyCopy>,
    extents: Touched,
    directories: Vec<DeviceNumber>,
}

/// Something to sync.
#[derive(Clone, Copy)]
enum SyncTask<'d> {
    Segment(&'d DirtyCopy),
    SegmentNames(DeviceNumber),
    Extents(Unsynced<'d>),
}

impl SyncTask<'_> {
    fn device(&self) -> DeviceNumber {
        match self {
            SyncTask::Segment(copy) => copy.device,
            SyncTask::SegmentNames(device) => *device,
            SyncTask::Extents(unsynced) => unsynced.device(),
        }
    }
}

impl Engine {
    /// Takes what the writer has written and not synced.
    pub(crate) fn take_dirty(&self, writer: &mut Writer) -> Dirty {
        Dirty {
            files: std::mem::take(&mut writer.dirty),
            extents: std::mem::take(&mut writer.touched),
            directories: std::mem::take(&mut writer.dirty_directories).into_iter().collect(),
        }
    }

    /// Syncs all of it in parallel, each file once. A device that fails is taken out of service, and what is on it
    /// counts as lost, if the others suffice without it; nothing may be acknowledged then before an epoch has begun on
    /// them.
    ///
    /// # Errors
    /// The first failure that is not borne; a segment has no copy in service.
    pub(crate) fn sync_files(&self, dirty: &Dirty) -> Result<()> {
        let segments = dirty.files.iter().map(SyncTask::Segment);
        let names = dirty.directories.iter().copied().map(SyncTask::SegmentNames);
        let unsynced = self.extents.unsynced(&dirty.extents);
        let extents = unsynced.into_iter().map(SyncTask::Extents);
        let is_in_service = |task: &SyncTask<'_>| self.devices.is_in_service(task.device());
        let jobs: Vec<SyncTask<'_>> = segments.chain(names).chain(extents).filter(is_in_service).collect();
        let sync = |job: SyncTask<'_>| {
            let synced = match job {
                SyncTask::Segment(copy) => {
                    let fail = |error| self.devices.error("sync", copy.device, &segment_path(copy.segment), error);
                    copy.file.sync().map_err(fail)
                }
                SyncTask::SegmentNames(device) => match self.devices.slots().get(device.index()) {
                    Some(slot) => {
                        let fail = |error| slot.error("sync", SEGMENTS, error);
                        slot.device.sync_directory(SEGMENTS).map_err(fail)
                    }
                    None => Ok(()),
                },
                SyncTask::Extents(unsynced) => self.extents.sync_one(unsynced),
            };
            synced.err().map(|error| (job.device(), error))
        };
        self.bear(threads::each(jobs, MOST_SYNCS, sync).into_iter().flatten().collect())?;
        let has_copy = |lost: &&DirtyCopy| {
            let mut copies = dirty.files.iter().filter(|copy| copy.segment == lost.segment);
            copies.any(|copy| self.devices.is_in_service(copy.device))
        };
        dirty.files.iter().find(|copy| !has_copy(copy)).map_or(Ok(()), |lost| {
            let cause = "all devices with copies of it have failed";
            let path = self.devices.place(lost.device, &segment_path(lost.segment));
            Err(Error::new(ErrorKind::Lost, "sync the segment", cause).at(&path))
        })
    }

    /// Makes everything committed durable, and applies it to the catalog.
    ///
    /// # Errors
    /// Any error of syncing; the store is then read-only.
    pub(crate) fn sync_all(&self) -> Result<()> {
        let target = self.writer()?.position.sequence;
        let _sync = lock(&self.sync);
        let mut writer = self.writer()?;
        if writer.durable_sequence >= target {
            return Ok(());
        }
        let dirty = self.take_dirty(&mut writer);
        let (sequence, change) = (writer.position.sequence, writer.take_pending());
        let mark = writer.written_mark;
        drop(writer);
        let waiting = self.make_durable(&dirty, change)?;
        let mut writer = self.writer()?;
        if let Some((change, _)) = waiting {
            writer.pend_again(change);
        }
        writer.durable_sequence = sequence;
        writer.marked_sequence = writer.marked_sequence.max(mark);
        if self.devices.owes_epoch() {
            // Others have appended meanwhile, and an epoch begins behind everything.
            match self.settle(&mut writer) {
                Err(error) if error.kind() == ErrorKind::NoSpace && !self.devices.owes_epoch() => {}
                settled => settled?,
            }
        }
        drop(writer);
        match self.flush_recent() {
            // It is durable in the log; the index waits for space.
            Err(error) if error.kind() == ErrorKind::NoSpace => Ok(()),
            other => other,
        }
    }

    /// Syncs, then changes the catalog. The log is authoritative: if the device of the catalog is full, returns the
    /// change, which must wait for space, and the error.
    ///
    /// # Errors
    /// Any error of syncing, and of the catalog except lack of space; the store is then read-only.
    fn make_durable(&self, dirty: &Dirty, change: Change) -> Result<Option<(Change, Error)>> {
        // Where a sync is a publication, the log and the index of a batch are one.
        let hold = self.platform.hold();
        // Asked after the sync: whoever signs a lock later finds what was synced when it recovers the log.
        let synced = self.sync_files(dirty).and_then(|()| self.refuse_overtaken());
        synced.inspect_err(|error| self.latch(error))?;
        let waiting = match self.catalog.commit(&change) {
            Ok(()) => None,
            Err(error) if error.kind() == ErrorKind::NoSpace => Some((change, error)),
            Err(error) => {
                self.latch(&error);
                return Err(error);
            }
        };
        self.publish(hold)?;
        Ok(waiting)
    }

    /// # Errors
    /// [`ErrorKind::Busy`] if another process has taken a lock: what was synced since is no part of its log. That can
    /// be if the lock was removed, or is on a network file system without locks between machines.
    fn refuse_overtaken(&self) -> Result<()> {
        if self.locks.iter().all(|lock| lock.is_ours()) {
            return Ok(());
        }
        let error = Error::new(ErrorKind::Busy, "write to the store", "another process has taken its lock meanwhile");
        let advice = "let one process write at a time, on one machine, and leave its lock in place; write this again";
        Err(error.at(&self.home).advise(advice))
    }

    /// Publishes what was held back.
    ///
    /// # Errors
    /// It may not be durable; the store is then read-only.
    pub(crate) fn publish(&self, hold: Box<dyn Hold>) -> Result<()> {
        let published = hold.publish().map_err(|error| Error::io("publish a batch to", &self.home, error));
        published.inspect_err(|error| self.latch(error))
    }

    /// As [`sync_all`](Self::sync_all), if more has changed than memory should hold.
    pub(crate) fn flush_if_full(&self) -> Result<()> {
        // Repeated replacements are each pending.
        let is_full = self.is_full() || self.writer()?.pending_bytes >= RECENT_LIMIT_BYTES;
        if is_full { self.sync_all() } else { Ok(()) }
    }

    /// Whether `recent` should become a sorted table, or all tables one.
    pub(crate) fn is_full(&self) -> bool {
        self.is_recent_full() || self.has_many_ranges()
    }

    /// Whether more directories were removed than the tables should hide. If a merge failed, perhaps for lack of space,
    /// as many again come before the next.
    fn has_many_ranges(&self) -> bool {
        let state = &self.view().state;
        let unmerged = self.unmerged_ranges.load(Ordering::Relaxed);
        state.ranges.len().saturating_sub(unmerged) > index::most_ranges(&state.tables)
    }

    /// Whether the changes since the newest table exceed their memory limit.
    pub(crate) fn is_recent_full(&self) -> bool {
        let recent = &self.view().state.recent;
        recent.len() >= RECENT_LIMIT || recent.bytes() >= RECENT_LIMIT_BYTES
    }

    /// Before the store is closed, writes many recent changes to a sorted table.
    fn flush_closing(&self) -> Result<()> {
        let _sync = lock(&self.sync);
        if self.view().state.recent.len() < CLOSING_LIMIT {
            return Ok(());
        }
        let mut writer = self.writer()?;
        self.settle(&mut writer)?;
        self.make_table()
    }

    /// When `recent` is full, writes it to a sorted table, and merges tables if there are many; all of them when many
    /// directories were removed: only that shows all to be gone. Called with `sync` held and nothing pending before.
    pub(crate) fn flush_recent(&self) -> Result<()> {
        if !self.is_full() {
            return Ok(());
        }
        // The lock keeps batches out until the end.
        let mut writer = self.writer()?;
        self.settle(&mut writer)?;
        if !self.has_many_ranges() {
            return self.make_table();
        }
        self.unmerged_ranges.store(self.view().state.ranges.len(), Ordering::Relaxed);
        self.merge_all()
    }

    /// Makes everything durable with the writer's lock held, so that nothing is pending; if a device has failed, an
    /// epoch begins without it. Called with `sync` held.
    pub(crate) fn settle(&self, writer: &mut Writer) -> Result<()> {
        let dirty = self.take_dirty(writer);
        let change = writer.take_pending();
        let waiting = self.make_durable(&dirty, change)?;
        writer.durable_sequence = writer.position.sequence;
        writer.marked_sequence = writer.marked_sequence.max(writer.written_mark);
        let waiting = waiting.map_or(Ok(()), |(change, error)| {
            writer.pend_again(change);
            Err(error)
        });
        self.tell_of_losses(writer)?;
        waiting
    }

    /// Whether what failed to [`settle`](Self::settle) is only that the index lacks space: the log is durable, and the
    /// change stays pending. A sync of the log that finds no space latches the engine.
    pub(super) fn is_waiting_for_space(&self, error: &Error) -> bool {
        error.kind() == ErrorKind::NoSpace && self.latched().is_none()
    }

    /// As [`settle`](Self::settle); what the index has no space for stays pending.
    pub(super) fn settle_log(&self, writer: &mut Writer) -> Result<()> {
        self.or_later(self.settle(writer))
    }

    /// The outcome of work in the index that is found again: if it only lacks space, it is left for later.
    pub(crate) fn or_later(&self, outcome: Result<()>) -> Result<()> {
        match outcome {
            Err(error) if self.is_waiting_for_space(&error) => Ok(()),
            outcome => outcome,
        }
    }

    /// What an earlier writer, or recovery, left to be done in the index. What that has no space for waits: a note says
    /// so.
    ///
    /// # Errors
    /// Any other error of reading and changing the index.
    pub(crate) fn catch_up(&self) -> Result<()> {
        self.or_later(self.forget_early())?;
        self.or_later(self.drop_versions())
    }

    /// `recent` becomes a sorted table; then the tables chosen by the policy become one. Nothing may be pending, and no
    /// batch may arrive.
    pub(crate) fn make_table(&self) -> Result<()> {
        let end = self.view().state.tables.len();
        self.merge_into_one(end..end, true)?;
        let chosen = index::choose(&self.view().state.tables);
        chosen.map_or(Ok(()), |chosen| self.merge_into_one(chosen, false))
    }

    /// The whole index becomes one sorted table. Nothing may be pending, and no batch may arrive.
    pub(crate) fn merge_all(&self) -> Result<()> {
        let view = self.view().clone();
        if view.state.recent.is_empty() && view.state.ranges.is_empty() && view.state.tables.len() < 2 {
            return Ok(());
        }
        let end = view.state.tables.len();
        drop(view);
        self.merge_into_one(0..end, true)?;
        self.unmerged_ranges.store(0, Ordering::Relaxed);
        Ok(())
    }

    fn merge_into_one(&self, tables: Range<usize>, with_recent: bool) -> Result<()> {
        let (snapshot, number, mut rows) = {
            let view = self.view();
            (view.snapshot(), view.state.next_table, view.state.tables.to_vec())
        };
        self.index
            .create_directory(INDEX_DIRECTORY)
            .map_err(|error| Error::io("write the index", &self.index_directory, error))?;
        let merged = merge_tables(&self.index, number, &snapshot, tables.clone(), with_recent)?;
        drop(snapshot);
        let replaced: Vec<_> = rows.splice(tables, merged.row).collect();
        let change = Change {
            clear_recent: with_recent,
            next_table: Some(number + 1),
            tables: Some(rows),
            ranges: Some(merged.ranges),
            durable: !replaced.is_empty(),
            ..Change::default()
        };
        // The commit names them: if one cannot be opened, the previous tables must not be used any longer.
        let tables = self.tables_of(&change)?;
        self.catalog.commit(&change)?;
        self.apply_with(&change, tables);
        // Readers that have them open keep them; others find the new one.
        for row in replaced {
            let _ = self.index.remove(&table_path(row.number));
        }
        Ok(())
    }

    /// Frees superseded files that no reader can need any more. What others have committed meanwhile becomes durable.
    ///
    /// # Errors
    /// Any error of the catalog and of writing the release; [`ErrorKind::Corrupt`] if a superseded file is in use. A
    /// file that cannot be removed is no error: an extent file is retried by a later call, others are found by `check`.
    pub(crate) fn reclaim(&self) -> Result<()> {
        let _sync = lock(&self.sync);
        let mut writer = self.writer()?;
        if self.view().state.superseded.is_empty() {
            return Ok(());
        }
        if writer.has_pending || writer.durable_sequence != writer.position.sequence {
            // The catalog lacks a batch, perhaps for lack of space. It gets it first: an index without it must not
            // outlive the files that are unlinked below.
            self.settle(&mut writer)?;
        }
        let due = self.due()?;
        if due.is_empty() {
            return Ok(());
        }
        self.refuse_in_use(&due)?;
        self.read_before_unlinking(|segment| due.iter().any(|(_, one)| *one == Superseded::Segment(segment)));
        self.release_all(&mut writer, &due)?;
        let change = self.unlink_all(due);
        self.catalog.commit(&change)?;
        self.apply(&change)
    }

    /// Superseded files that no reader can need any more: what readers pin from now on is newer.
    fn due(&self) -> Result<Vec<(u64, Superseded)>> {
        let epoch = self.view().state.epoch;
        // From here on, readers pin the next epoch. The commit is durable, and so is what superseded a file before it.
        let next = Change { epoch: Some(epoch + 1), durable: true, ..Change::default() };
        self.catalog.commit(&next)?;
        self.apply(&next)?;
        let free_below = self.unpinned_epoch(epoch + 1);
        let view = self.view();
        Ok(view.state.superseded.iter().take_while(|&&(since, _)| since < free_below).cloned().collect())
    }

    /// Says in the log, with a mark, that files are released: from then on, recovery does not look for them.
    fn release_all(&self, writer: &mut Writer, due: &[(u64, Superseded)]) -> Result<()> {
        let mut released = Released::default();
        for (_, superseded) in due {
            match *superseded {
                Superseded::Segment(number) => released.add_segment(number),
                // One that could not be unlinked was released before.
                Superseded::Extent { device, file } if !writer.released.has_extent(device, file) => {
                    released.add_extent(device, file);
                }
                Superseded::Extent { .. } | Superseded::Table(_) => {}
            }
        }
        match released.is_empty() {
            // All were released before, perhaps by a process that died before the mark: without one, recovery would
            // look for the units of those batches, which go now.
            true => self.mark_records(writer),
            false => self.release(writer, &released),
        }
    }

    /// Unlinks files; returns what changes in the catalog by it.
    fn unlink_all(&self, due: Vec<(u64, Superseded)>) -> Change {
        let rows = Arc::clone(&self.view().state.segments);
        let (mut change, mut left) = (Change::default(), Vec::new());
        for (since, superseded) in due {
            let is_freed = match superseded {
                Superseded::Segment(number) => {
                    change.removed_segments.push(number);
                    let devices = rows.get(&number).map_or(&[][..], |row| &row.devices);
                    let id = self.segment_id(number);
                    left.extend((!self.remove_segment(id, devices)).then(|| SegmentName::from(id)));
                    true
                }
                Superseded::Extent { device, file } => {
                    // If the device is missing, or unlinking fails, it is retried later.
                    let is_unlinked = self.devices.has_left(device) || self.extents.unlink(device, file).is_ok();
                    change.removed_extents.extend(is_unlinked.then_some((device, file)));
                    is_unlinked
                }
                Superseded::Table(number) => {
                    let _ = self.index.remove(&table_path(number));
                    true
                }
            };
            change.freed.extend(is_freed.then_some((since, superseded)));
        }
        change.notes.extend(self.note_of_left(&left));
        change
    }

    /// Checks what is to be freed against the accounts: nothing in it may be live.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if something is: the accounts are wrong, and nothing is freed.
    fn refuse_in_use(&self, due: &[(u64, Superseded)]) -> Result<()> {
        let state = self.view().state.clone();
        let in_use = due.iter().find_map(|(_, superseded)| match *superseded {
            Superseded::Segment(number) => {
                let row = state.segments.get(&number).filter(|row| row.live_records > 0);
                row.map(|row| self.segment_place(row))
            }
            Superseded::Extent { device, file } => {
                let row = state.extents.get(&(device, file)).filter(|row| row.live_bytes > 0);
                row.map(|_| self.extents.place(device, file))
            }
            Superseded::Table(_) => None,
        });
        in_use.map_or(Ok(()), |path| {
            Err(Error::new(ErrorKind::Corrupt, "give back space", "the file is to be given back and is in use")
                .at(&path)
                .advise("nothing was removed; run granulo store check --deep"))
        })
    }

    /// Removes a segment from its devices, durably: a later segment may have tombstones that older records in this one
    /// need (docs/FORMAT.md, section 6), so this one must be gone before the later one is removed. What cannot be
    /// removed now is found by `check`; until then, nobody reads it, as it is released. Returns whether it is gone.
    fn remove_segment(&self, segment: SegmentId, devices: &[DeviceNumber]) -> bool {
        let mut is_gone = true;
        let is_absent = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
        for &number in devices.iter().filter(|&&device| !self.devices.has_left(device)) {
            let removed =
                self.devices.readable(number).map(|on| names::remove_segment_file(&*on, &segment_path(segment)));
            is_gone &= removed.is_some_and(|removed| removed.as_ref().map_or_else(is_absent, |()| true));
        }
        // A device that is not in the row may have a copy: it was away when the index was built, or its copy was given
        // up.
        let slots = self.devices.slots();
        let others = slots.iter().map(|slot| slot.entry.number).filter(|device| !devices.contains(device));
        for number in others.filter(|&device| !self.devices.has_left(device)) {
            let opened = self.devices.readable(number).map(|on| names::open(&*on, &segment_path(segment), Mode::Read));
            is_gone &= opened.is_some_and(|opened| opened.is_err_and(|error| is_absent(&error)));
        }
        self.devices.forget_segment(segment);
        is_gone
    }

    /// Makes everything durable, including the catalog, before the store is closed.
    pub(crate) fn close(&self) -> Result<()> {
        if !self.is_writer() || self.latched().is_some() {
            return Ok(());
        }
        match self.sync_all() {
            Err(error) if error.kind() == ErrorKind::ReadOnly => Ok(()),
            other => other,
        }?;
        // The rest is acknowledged by nobody, and published with the lock.
        let _hold = self.platform.hold();
        let reclaimed = self.reclaim();
        // Everything is durable as it is: without a table the next open takes longer, that is all.
        let _ = self.flush_closing();
        // What could not be freed now waits for another writer; it does not make this an unclean end.
        let marked = self.mark(true);
        reclaimed.and(marked)
    }
}
