//! Copies of the index on several devices: which devices have one, creating a missing one, and repairing a damaged one.
//!
//! A table is copied block by block, each from a copy where it is valid, under another name; it is renamed to the
//! table's name when it is complete and durable. Only then does a manifest name the device. Nothing valid is touched.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::devices::device::Mode;
use crate::devices::slot::Slot;
use crate::engine::Engine;
use crate::engine::pace::Pace;
use crate::error::{Error, ErrorKind, Result, os_message};
use crate::format::geometry::{Class, DeviceState};
use crate::format::ids::DeviceNumber;
use crate::format::names::TEMPORARY;
use crate::index::catalog::kept::Catalog;
use crate::index::catalog::{Change, TableRow, journal, manifest};
use crate::index::copies::{Copies, IndexDevice};
use crate::index::table::INDEX_DIRECTORY;
use crate::index::table::{BlockCache, Table, table_number, table_path};
use crate::locks::lock;

/// Devices that should have the index: as many as records have copies, of the class of the records. Those that already
/// have it come first.
pub(crate) fn wanted(slots: &[Slot], copies: u8, present: &[DeviceNumber]) -> Vec<IndexDevice> {
    let in_service = |slot: &&Slot| slot.is_writable() && slot.entry.state == DeviceState::InUse;
    let has_fast = slots.iter().any(|slot| slot.entry.class == Class::Fast && slot.entry.state != DeviceState::Gone);
    let class = if has_fast { Class::Fast } else { Class::Slow };
    let mut fit: Vec<&Slot> = slots.iter().filter(in_service).filter(|slot| slot.entry.class == class).collect();
    if fit.is_empty() {
        // Then records go to the other class, too.
        fit = slots.iter().filter(|slot| slot.is_writable()).collect();
    }
    fit.sort_by_key(|slot| !present.contains(&slot.entry.number));
    fit.truncate(usize::from(copies));
    let place = |slot: &Slot| IndexDevice { number: slot.entry.number, device: Arc::clone(&slot.device) };
    let mut places: Vec<IndexDevice> = fit.into_iter().map(place).collect();
    places.sort_by_key(|place| place.number);
    places
}

/// A fault in a copy of the index.
#[derive(Debug)]
pub(crate) struct IndexFault {
    pub(crate) device: DeviceNumber,
    pub(crate) path: PathBuf,
    pub(crate) cause: String,
}

impl Engine {
    /// Devices that should have the index and do not, according to the manifest, and why, as far as it is known.
    pub(crate) fn index_copies_missing(&self) -> Vec<IndexFault> {
        let present = self.catalog.state().devices;
        let slots = self.devices.slots();
        let wanted = wanted(&slots, self.geometry().copies, &present);
        let fault = |place: &IndexDevice| {
            let unlisted = || place.device.list(INDEX_DIRECTORY).err().map(|error| os_message(&error));
            let why = self.index.failure(place.number).or_else(unlisted);
            let why = why.map_or_else(String::new, |why| format!(": {why}"));
            let cause = format!("device {} has no copy of the index{why}", place.number);
            IndexFault { device: place.number, path: place.device.place().join(INDEX_DIRECTORY), cause }
        };
        wanted.iter().filter(|place| !present.contains(&place.number)).map(fault).collect()
    }

    /// Gives every device that should have a copy of the index one, as far as possible now. The content of existing
    /// tables is not checked.
    ///
    /// # Errors
    /// The manifest cannot be written.
    pub(crate) fn complete_index(&self) -> Result<()> {
        let _sync = lock(&self.sync);
        let view = self.view().clone();
        let present = self.index.places();
        let slots = self.devices.slots();
        let mut complete = Vec::new();
        for place in wanted(&slots, self.geometry().copies, &self.index.numbers()) {
            let was_copy = present.iter().any(|copy| copy.number == place.number);
            // The directory of a copy exists durably: creating it again would cost a sync on each open.
            let made = if was_copy { Ok(()) } else { place.device.create_directory(INDEX_DIRECTORY) };
            // A device that cannot be listed or written now gets no copy; the next open retries.
            let listed = made.and_then(|()| place.device.list(INDEX_DIRECTORY)).unwrap_or_else(|error| {
                self.index.note_failure(place.number, os_message(&error));
                Vec::new()
            });
            let files: BTreeSet<(String, u64)> = listed.into_iter().collect();
            let is_there = |row: &&TableRow| {
                files.iter().any(|(name, size)| table_number(name) == Some(row.number) && *size == row.size_bytes)
            };
            // A device that had no copy may have old tables under the same names.
            let mut missing = view.state.tables.iter().filter(|row| !was_copy || !is_there(row));
            match missing.try_for_each(|row| fetch_table(&self.index, &place, row)) {
                Ok(()) => complete.push(place),
                Err(error) => self.index.note_failure(place.number, error.to_string()),
            }
        }
        if complete.is_empty() {
            return Ok(());
        }
        self.index.set(complete);
        if self.index.numbers() != *self.catalog.state().devices || self.catalog.journal().is_none() {
            self.catalog.commit(&Change { durable: true, ..Change::default() })?;
        }
        Ok(())
    }

    /// Removes the index of a device that should have none. One that was away may have that of another history, whose
    /// version claims to be newer.
    ///
    /// # Errors
    /// Any error of removing it.
    pub(crate) fn remove_index(&self, slot: &Slot) -> Result<()> {
        if self.index.numbers().contains(&slot.entry.number) {
            return Ok(());
        }
        let path = manifest::path();
        let removed = slot.device.remove(&path).and_then(|()| slot.device.sync_directory(INDEX_DIRECTORY));
        match removed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(slot.error("remove the old index", &path, error))
            }
            _ => Ok(()),
        }
    }

    /// Removes what belongs to no index: tables and journals that no manifest names.
    pub(crate) fn tidy_index(&self) {
        let view = self.view().clone();
        let journal = self.catalog.journal();
        let is_known = |name: &str| {
            table_number(name).is_some_and(|number| view.state.tables.iter().any(|row| row.number == number))
                || journal::number(name).is_some_and(|number| journal.is_none_or(|journal| journal == number))
        };
        let is_ours =
            |name: &str| name.ends_with(TEMPORARY) || table_number(name).is_some() || journal::number(name).is_some();
        // What cannot be listed or removed now is retried later.
        let leftovers = |place: &IndexDevice| {
            let names = place.device.list(INDEX_DIRECTORY).unwrap_or_default().into_iter().map(|(name, _)| name);
            names.filter(|name| is_ours(name) && !is_known(name)).collect::<Vec<_>>()
        };
        let places = self.index.places();
        let leftovers: Vec<_> =
            places.iter().flat_map(|place| leftovers(place).into_iter().map(move |name| (place, name))).collect();
        // If nothing is removed, nothing must be made durable first.
        if leftovers.is_empty() || !self.catalog.settle() {
            return;
        }
        for (place, name) in leftovers {
            let _ = place.device.remove(&format!("{INDEX_DIRECTORY}/{name}"));
        }
    }

    /// Verifies every block of every copy of a table.
    ///
    /// # Errors
    /// [`ErrorKind::Interrupted`]. Damage is not an error.
    pub(crate) fn flaws_of_table(&self, row: &TableRow, pace: &mut Pace<'_>) -> Result<Vec<IndexFault>> {
        let mut flaws = Vec::new();
        for place in self.index.places().iter() {
            let cache = Arc::new(BlockCache::new(0));
            let mut spend = |bytes| pace.spend(bytes);
            let table = Table::open(&*place.device, row, &cache);
            match table.and_then(|table| table.verify_paced(&mut spend)) {
                Err(error) if error.kind() == ErrorKind::Interrupted => return Err(error),
                Err(error) => {
                    let path = place.device.place().join(table_path(row.number));
                    flaws.push(IndexFault { device: place.number, path, cause: error.to_string() });
                }
                Ok(()) => {}
            }
        }
        Ok(flaws)
    }

    /// Checks every copy of manifest and journal; also returns how many bytes were read, if this process writes them.
    pub(crate) fn flaws_of_catalog(&self) -> (Vec<IndexFault>, u64) {
        let flaw = |place: &IndexDevice, cause| {
            let path = manifest::place(&*place.device);
            IndexFault { device: place.number, path, cause }
        };
        if self.catalog.is_written() {
            let (flaws, read_bytes) = self.catalog.flaws_of_writer();
            return (flaws.into_iter().map(|(place, cause)| flaw(&place, cause)).collect(), read_bytes);
        }
        let store = self.geometry().store;
        let position = self.view().state.position;
        let is_closed = self.is_closed_at(position);
        let places = self.index.places();
        let flaws =
            places.iter().filter_map(|place| Some(flaw(place, Catalog::verify(place, &store, is_closed).err()?)));
        (flaws.collect(), 0)
    }

    /// Rewrites a table on the devices where it has faults: from a copy without any or, if there is none, each block
    /// from a copy where it is valid. Returns `false` if a block is valid on no copy; if the table was merged
    /// meanwhile, nothing remains to be done.
    ///
    /// # Errors
    /// Any error of writing.
    pub(crate) fn repair_table(&self, row: &TableRow, flaws: &[IndexFault]) -> Result<bool> {
        let _sync = lock(&self.sync);
        let Some(table) = self.view().tables.iter().find(|table| table.row() == row).cloned() else { return Ok(true) };
        let places = self.index.places();
        let damaged: Vec<&IndexDevice> =
            places.iter().filter(|place| flaws.iter().any(|flaw| flaw.device == place.number)).collect();
        // Perhaps no block is damaged on all of them.
        if damaged.len() == places.len() && table.verify().is_err() {
            return Ok(false);
        }
        // A valid block may be another than the one written, which only the whole copy shows.
        let is_sound = |place: &&IndexDevice| !damaged.iter().any(|damaged| damaged.number == place.number);
        let sound = places.iter().find(is_sound);
        let sound = sound.map(|place| Table::open(&*place.device, row, &Arc::new(BlockCache::new(0)))).transpose()?;
        let source = sound.as_ref().unwrap_or(&table);
        for place in damaged {
            copy_table(source, place)
                .map_err(|error| Error::io("write the sorted table", &place.device.place(), error))?;
        }
        // The open file is the one that was damaged.
        self.reopen_table(row)?;
        Ok(true)
    }

    /// Repairs damage in copies of the index from valid copies; returns how many files were written.
    ///
    /// # Errors
    /// Any error of writing; the work was asked to stop.
    pub(crate) fn repair_index(&self, pace: &mut Pace<'_>) -> Result<u64> {
        let mut repaired = 0;
        let tables = Arc::clone(&self.view().state.tables);
        pace.stage("verifying the index", self.index_bytes());
        for row in tables.iter() {
            let flaws = self.flaws_of_table(row, pace)?;
            if !flaws.is_empty() && self.repair_table(row, &flaws)? {
                repaired += flaws.len() as u64;
            }
        }
        let (flaws, _) = self.flaws_of_catalog();
        if !flaws.is_empty() {
            self.catalog.write_again()?;
            repaired += flaws.len() as u64;
        }
        self.complete_index()?;
        Ok(repaired)
    }

    /// Size of all copies of all tables.
    pub(crate) fn index_bytes(&self) -> u64 {
        let bytes: u64 = self.view().state.tables.iter().map(|row| row.size_bytes).sum();
        bytes * self.index.places().len() as u64
    }
}

fn wrong(error: Error) -> io::Error {
    io::Error::other(error.to_string())
}

/// Writes a table to a device without it: each block from any of the existing copies or, if these are not all the ones
/// written, from a copy by itself.
fn fetch_table(copies: &Copies, to: &IndexDevice, row: &TableRow) -> io::Result<()> {
    let cache = Arc::new(BlockCache::new(0));
    let together = Table::open(copies, row, &cache).map_err(wrong).and_then(|table| copy_table(&table, to));
    let by_itself = |place: &IndexDevice| {
        let table = Table::open(&*place.device, row, &cache).map_err(wrong)?;
        copy_table(&table, to)
    };
    together.or_else(|error| copies.places().iter().find_map(|place| by_itself(place).ok()).ok_or(error))
}

/// Writes a table to a device, block by block, each from a copy where it is valid.
fn copy_table(table: &Table, to: &IndexDevice) -> io::Result<()> {
    let path = table_path(table.row().number);
    let temporary = format!("{path}{}", TEMPORARY);
    // Left by an interrupted attempt.
    let _ = to.device.remove(&temporary);
    let file = to.device.open(&temporary, Mode::Create)?;
    let written = table.copy_to(&*file).map_err(wrong).and_then(|()| {
        file.sync()?;
        to.device.rename(&temporary, &path)?;
        to.device.sync_directory(INDEX_DIRECTORY)
    });
    if written.is_err() {
        let _ = to.device.remove(&temporary);
    }
    written
}

#[cfg(test)]
mod tests;
