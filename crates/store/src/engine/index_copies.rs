//! Copies of the index on several devices: which devices have one, making one where it is missing, and making good what is damaged in one.
//!
//! A table is copied block by block, each from a copy where it is sound, under another name that becomes the table's when it is whole and durable; only
//! then does a manifest name the device. Nothing that is sound is touched.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};

use crate::devices::device::Mode;
use crate::devices::set::Slot;
use crate::engine::Engine;
use crate::engine::index_place::INDEX;
use crate::engine::pace::Pace;
use crate::error::{Error, Result};
use crate::format::geometry::{Class, DeviceState};
use crate::index::catalog::kept::Catalog;
use crate::index::catalog::{Change, TableRow, journal, manifest};
use crate::index::copies::{Copies, Place};
use crate::index::table::{BlockCache, Table, table_number, table_path};

/// Devices that shall have the index: as many as records have copies, of the class that has the records. Those that have it already come first.
pub(crate) fn wanted(slots: &[Slot], copies: u8, present: &[u16]) -> Vec<Place> {
    let in_service = |slot: &&Slot| slot.is_writable() && slot.entry.state == DeviceState::InUse;
    let has_fast = slots.iter().any(|slot| slot.entry.class == Class::Fast && slot.entry.state != DeviceState::Gone);
    let class = if has_fast { Class::Fast } else { Class::Slow };
    let mut fit: Vec<&Slot> = slots.iter().filter(in_service).filter(|slot| slot.entry.class == class).collect();
    if fit.is_empty() {
        // Records go to the other class then, too.
        fit = slots.iter().filter(|slot| slot.is_writable()).collect();
    }
    fit.sort_by_key(|slot| !present.contains(&slot.entry.number));
    fit.truncate(usize::from(copies));
    let place = |slot: &Slot| Place { number: slot.entry.number, device: Arc::clone(&slot.device) };
    let mut places: Vec<Place> = fit.into_iter().map(place).collect();
    places.sort_by_key(|place| place.number);
    places
}

/// What is wrong with a copy of the index.
#[derive(Debug)]
pub(crate) struct Flaw {
    pub(crate) device: u16,
    pub(crate) path: PathBuf,
    pub(crate) cause: String,
}

impl Engine {
    /// Devices that should have the index and have not: as far as the manifest says.
    pub(crate) fn index_copies_missing(&self) -> usize {
        let present = self.catalog.state().devices;
        let slots = self.devices.slots();
        let wanted = wanted(&slots, self.geometry().copies, &present);
        wanted.iter().filter(|place| !present.contains(&place.number)).count()
    }

    /// Every device that should have a copy of the index gets one, as far as that can be done now. Tables that are there are not looked into.
    ///
    /// # Errors
    /// The manifest cannot be written.
    pub(crate) fn complete_index(&self) -> Result<()> {
        let _one = self.sync.lock().unwrap_or_else(PoisonError::into_inner);
        let view = self.view().clone();
        let present = self.index.places();
        let slots = self.devices.slots();
        let mut complete = Vec::new();
        for place in wanted(&slots, self.geometry().copies, &self.index.numbers()) {
            let was_copy = present.iter().any(|copy| copy.number == place.number);
            // A copy has its directory, durably: making it once more would cost a sync at each opening.
            let made = if was_copy { Ok(()) } else { place.device.create_directory(INDEX) };
            // What cannot be listed or written now is no copy; the next opening looks again.
            let listed = made.and_then(|()| place.device.list(INDEX));
            let files: BTreeSet<(String, u64)> = listed.unwrap_or_default().into_iter().collect();
            let is_there = |row: &&TableRow| {
                files.iter().any(|(name, size)| table_number(name) == Some(row.number) && *size == row.size_bytes)
            };
            // One that was no copy may have tables of another time under the same names.
            let mut missing = view.state.tables.iter().filter(|row| !was_copy || !is_there(row));
            if missing.try_for_each(|row| fetch_table(&self.index, &place, row)).is_ok() {
                complete.push(place);
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

    /// What belongs to no index any more goes: tables and journals that no manifest names.
    pub(crate) fn tidy_index(&self) {
        let view = self.view().clone();
        let journal = self.catalog.journal();
        let is_known = |name: &str| {
            table_number(name).is_some_and(|number| view.state.tables.iter().any(|row| row.number == number))
                || journal::number(name).is_some_and(|number| journal.is_none_or(|journal| journal == number))
        };
        let is_ours = |name: &str| {
            name.ends_with(manifest::TEMPORARY) || table_number(name).is_some() || journal::number(name).is_some()
        };
        // What cannot be listed or removed now is there the next time.
        let leftovers = |place: &Place| {
            let names = place.device.list(INDEX).unwrap_or_default().into_iter().map(|(name, _)| name);
            names.filter(|name| is_ours(name) && !is_known(name)).collect::<Vec<_>>()
        };
        let places = self.index.places();
        let leftovers: Vec<_> =
            places.iter().flat_map(|place| leftovers(place).into_iter().map(move |name| (place, name))).collect();
        // Where nothing goes, nothing has to be durable for it.
        if leftovers.is_empty() || !self.catalog.settle() {
            return;
        }
        for (place, name) in leftovers {
            let _ = place.device.remove(&format!("{INDEX}/{name}"));
        }
    }

    /// Verifies every copy of a table, every block of it.
    ///
    /// # Errors
    /// Whoever watches wants an end. Damage is none.
    pub(crate) fn flaws_of_table(&self, row: &TableRow, pace: &mut Pace<'_>) -> Result<Vec<Flaw>> {
        let mut flaws = Vec::new();
        for place in self.index.places().iter() {
            let cache = Arc::new(BlockCache::new(0));
            let mut spend = |bytes| pace.spend(bytes);
            let table = Table::open(&*place.device, row, &cache);
            match table.and_then(|table| table.verify_paced(&mut spend)) {
                Err(error) if pace.is_stopped() => return Err(error),
                Err(error) => {
                    let path = place.device.place().join(table_path(row.number));
                    flaws.push(Flaw { device: place.number, path, cause: error.to_string() });
                }
                Ok(()) => {}
            }
        }
        Ok(flaws)
    }

    /// Looks at every copy of manifest and journal; gives how many bytes were read, too, if this process writes them.
    pub(crate) fn flaws_of_catalog(&self) -> (Vec<Flaw>, u64) {
        let flaw = |place: &Place, cause| {
            let path = manifest::place(&*place.device);
            Flaw { device: place.number, path, cause }
        };
        if self.catalog.is_written() {
            let (flaws, read_bytes) = self.catalog.flaws_of_writer();
            return (flaws.into_iter().map(|(place, cause)| flaw(&place, cause)).collect(), read_bytes);
        }
        let store = self.geometry().store;
        let places = self.index.places();
        let flaws = places.iter().filter_map(|place| Some(flaw(place, Catalog::verify(place, &store).err()?)));
        (flaws.collect(), 0)
    }

    /// Writes a table again on the devices where it has flaws, each block from a copy where that is sound. Gives `false` if a block is sound on none; of a
    /// table that was merged meanwhile, nothing is left to do.
    ///
    /// # Errors
    /// What writing fails with.
    pub(crate) fn mend_table(&self, row: &TableRow, flaws: &[Flaw]) -> Result<bool> {
        let _one = self.sync.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(table) = self.view().tables.iter().find(|table| table.row() == row).cloned() else { return Ok(true) };
        let places = self.index.places();
        let damaged: Vec<&Place> =
            places.iter().filter(|place| flaws.iter().any(|flaw| flaw.device == place.number)).collect();
        // Perhaps no block is damaged on all of them.
        if damaged.len() == places.len() && table.verify().is_err() {
            return Ok(false);
        }
        for place in damaged {
            copy_table(&table, place)
                .map_err(|error| Error::io("write the sorted table", &place.device.place(), error))?;
        }
        // What is open is the file that was damaged.
        self.reopen_table(row)?;
        Ok(true)
    }

    /// Makes good what is damaged in copies of the index of which another is sound; gives how many files were written.
    ///
    /// # Errors
    /// What writing fails with; whoever watches wants an end.
    pub(crate) fn mend_index(&self, pace: &mut Pace<'_>) -> Result<u64> {
        let mut mended = 0;
        let tables = Arc::clone(&self.view().state.tables);
        pace.stage("verifying the index", self.index_bytes());
        for row in tables.iter() {
            let flaws = self.flaws_of_table(row, pace)?;
            if !flaws.is_empty() && self.mend_table(row, &flaws)? {
                mended += flaws.len() as u64;
            }
        }
        let (flaws, _) = self.flaws_of_catalog();
        if !flaws.is_empty() {
            self.catalog.write_again()?;
            mended += flaws.len() as u64;
        }
        self.complete_index()?;
        Ok(mended)
    }

    /// Bytes of all copies of all tables.
    pub(crate) fn index_bytes(&self) -> u64 {
        let bytes: u64 = self.view().state.tables.iter().map(|row| row.size_bytes).sum();
        bytes * self.index.places().len() as u64
    }
}

fn wrong(error: Error) -> io::Error {
    io::Error::other(error.to_string())
}

/// Writes a table to a device that has it not, from the copies that there are.
fn fetch_table(copies: &Copies, to: &Place, row: &TableRow) -> io::Result<()> {
    copy_table(&Table::open(copies, row, &Arc::new(BlockCache::new(0))).map_err(wrong)?, to)
}

/// Writes a table to a device, block by block, each from a copy where it is sound.
fn copy_table(table: &Table, to: &Place) -> io::Result<()> {
    let path = table_path(table.row().number);
    let temporary = format!("{path}{}", manifest::TEMPORARY);
    // Of an attempt that was interrupted.
    let _ = to.device.remove(&temporary);
    let file = to.device.open(&temporary, Mode::Create)?;
    let written = table.copy_to(&*file).map_err(wrong).and_then(|()| {
        file.sync()?;
        to.device.rename(&temporary, &path)?;
        to.device.sync_directory(INDEX)
    });
    if written.is_err() {
        let _ = to.device.remove(&temporary);
    }
    written
}

#[cfg(test)]
mod tests;
