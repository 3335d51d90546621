//! Making things durable: files are synced, the catalog takes the change in, full `recent` entries become a sorted table, and
//! what was freed is given back once no reader needs it.

use std::io;
use std::sync::{Arc, PoisonError};

use super::catalog::{Change, Freed};
use super::engine::Engine;
use super::extents::EXTENTS;
use super::index::{self, RECENT_LIMIT};
use super::log::Writer;
use super::segment::{SEGMENTS, segment_path};
use super::table::table_path;
use crate::error::{Error, ErrorKind, Result};
use crate::io::device::{DeviceFile, Mode};

/// What has to be synced for a batch to be durable.
#[derive(Debug, Default)]
pub(crate) struct Dirty {
    files: Vec<Arc<dyn DeviceFile>>,
    extents: Vec<(u16, u32)>,
    directories: Vec<(u16, &'static str)>,
}

impl Engine {
    /// What the writer has written and not synced.
    pub(crate) fn take_dirty(&self, writer: &mut Writer) -> Dirty {
        let directories = std::mem::take(&mut writer.dirty_directories).into_iter().map(|device| (device, SEGMENTS));
        let extent_directories = std::mem::take(&mut writer.dirty_extent_directories).into_iter().map(|device| (device, EXTENTS));
        Dirty {
            files: std::mem::take(&mut writer.dirty),
            extents: std::mem::take(&mut writer.dirty_extents).into_iter().collect(),
            directories: directories.chain(extent_directories).collect(),
        }
    }

    /// Syncs all of it, devices side by side.
    ///
    /// # Errors
    /// The first failure.
    pub(crate) fn sync_files(&self, dirty: &Dirty) -> Result<()> {
        let fail = |error| Error::io("sync", &self.home, error);
        for &(device, directory) in &dirty.directories {
            if let Some(slot) = self.devices.slots().get(usize::from(device)) {
                slot.device.sync_directory(directory).map_err(fail)?;
            }
        }
        let extents = dirty.extents.iter().map(|&(device, file)| self.devices.file(device, &super::extents::extent_path(file), Mode::Write));
        let mut files = extents.collect::<io::Result<Vec<_>>>().map_err(fail)?;
        files.extend(dirty.files.iter().cloned());
        match &files[..] {
            [] => Ok(()),
            [file] => file.sync().map_err(fail),
            files => {
                let outcomes: Vec<io::Result<()>> = std::thread::scope(|scope| {
                    let threads: Vec<_> = files.iter().map(|file| scope.spawn(|| file.sync())).collect();
                    let joined = threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread died"))));
                    joined.collect()
                });
                outcomes.into_iter().collect::<io::Result<()>>().map_err(fail)
            }
        }
    }

    /// When `recent` is full, makes it a sorted table, and merges tables when there are many. Called with `sync` held and nothing pending before.
    pub(crate) fn flush_recent(&self) -> Result<()> {
        if self.view().state.recent.len() < RECENT_LIMIT {
            return Ok(());
        }
        // The lock keeps batches away from here to the end.
        let mut writer = self.writer()?;
        let dirty = self.take_dirty(&mut writer);
        let (sequence, change) = (writer.position.sequence, std::mem::take(&mut writer.pending));
        let durable = self.sync_files(&dirty).and_then(|()| self.catalog.commit(&change));
        durable.inspect_err(|error| self.latch(error))?;
        writer.durable_sequence = sequence;
        self.make_table()
    }

    /// `recent` becomes a sorted table; then the tables that the policy chooses become one. Nothing may be pending.
    pub(crate) fn make_table(&self) -> Result<()> {
        let (state, snapshot) = {
            let view = self.view();
            (view.state.clone(), view.snapshot())
        };
        let Some(row) = index::write_recent(&*self.index, state.next_table, &snapshot)? else { return Ok(()) };
        let mut tables = state.tables.to_vec();
        tables.push(row);
        let change = Change {
            clear_recent: true,
            next_table: Some(state.next_table + 1),
            tables: Some(tables),
            ..Change::default()
        };
        drop((state, snapshot));
        self.catalog.commit(&change)?;
        self.apply(&change)?;
        self.merge_tables(false)
    }

    /// Merges the tables that the policy chooses, or `all`.
    pub(crate) fn merge_tables(&self, all: bool) -> Result<()> {
        let (state, tables) = {
            let view = self.view();
            (view.state.clone(), Arc::clone(&view.tables))
        };
        let chosen = match all {
            true if state.tables.len() > 1 || !state.ranges.is_empty() && !state.tables.is_empty() => Some(0..state.tables.len()),
            true => None,
            false => index::choose(&state.tables),
        };
        let Some(chosen) = chosen else { return Ok(()) };
        let row = index::merge_tables(&*self.index, state.next_table, &tables[chosen.clone()], &state.ranges, chosen.start == 0)?;
        let mut rows = state.tables.to_vec();
        let merged: Vec<_> = rows.splice(chosen.clone(), row).collect();
        let ranges = (chosen.start == 0 && chosen.end == state.tables.len()).then(Vec::new);
        let change = Change { next_table: Some(state.next_table + 1), tables: Some(rows), ranges, durable: true, ..Change::default() };
        drop((state, tables));
        self.catalog.commit(&change)?;
        self.apply(&change)?;
        // Readers that opened them keep them; others find the merged one.
        for row in merged {
            let _ = self.index.remove(&table_path(row.number));
        }
        Ok(())
    }

    /// Gives back what was freed and no reader can need any more.
    ///
    /// # Errors
    /// What the catalog fails with; a file that cannot be removed stays, and is found by `check`.
    pub(crate) fn reclaim(&self) -> Result<()> {
        let _one = self.sync.lock().unwrap_or_else(PoisonError::into_inner);
        let writer = self.writer()?;
        if writer.durable_sequence != writer.position.sequence || self.view().state.freed.is_empty() {
            return Ok(());
        }
        let epoch = self.view().state.epoch;
        // From here on, new snapshots are of the next epoch; and what was freed is durable.
        let next = Change { epoch: Some(epoch + 1), durable: true, ..Change::default() };
        self.catalog.commit(&next)?;
        self.apply(&next)?;
        let free_below = self.platform.unpinned(&self.index_directory, epoch + 1).map_err(|error| Error::io("look for readers", &self.index_directory, error))?;
        let freed = Arc::clone(&self.view().state.freed);
        let (gone, kept): (Vec<_>, Vec<_>) = freed.iter().cloned().partition(|&(since, _)| since < free_below);
        if gone.is_empty() {
            return Ok(());
        }
        let mut change = Change { freed: Some(kept), ..Change::default() };
        for (_, freed) in &gone {
            match freed {
                Freed::Segment(number) => change.removed_segments.push(*number),
                Freed::Extent { .. } | Freed::Table(_) => {}
            }
        }
        let rows = Arc::clone(&self.view().state.segments);
        for (_, freed) in &gone {
            match *freed {
                Freed::Segment(number) => {
                    for &device in rows.get(&number).map_or(&[][..], |row| &row.devices) {
                        if let Some(device) = self.devices.readable(device) {
                            let _ = device.remove(&segment_path(number));
                        }
                    }
                    self.devices.forget_segment(number);
                }
                Freed::Extent { device, file, offset, length } => self.punch(device, file, offset, length),
                Freed::Table(number) => {
                    let _ = self.index.remove(&table_path(number));
                }
            }
        }
        drop(freed);
        drop(rows);
        self.catalog.commit(&change)?;
        self.apply(&change)
    }

    /// Gives back the space of units, as far as the file system can; what fails is found by compaction.
    pub(crate) fn punch(&self, device: u16, file: u32, offset: u64, length: u64) {
        if let Ok(file) = self.devices.file(device, &super::extents::extent_path(file), Mode::Write) {
            let _ = file.punch_hole(offset, length);
        }
    }

    /// Makes everything durable, the catalog too, before the store is closed.
    pub(crate) fn close(&self) -> Result<()> {
        if !self.is_writer() || self.latched().is_some() {
            return Ok(());
        }
        match self.sync_all() {
            Err(error) if error.kind() == ErrorKind::ReadOnly => Ok(()),
            other => other,
        }?;
        self.reclaim()
    }
}
