//! Where the index of a store is, and reading it when the store is opened.
//!
//! A reader that finds the index lost makes one for itself, from the log. A writer makes it in memory and in tables of new names beside whatever there
//! is, and puts it in its place when it is whole ([`Engine::publish_index`]): until then nothing of what there was is touched.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::devices::device::{Device, Mode};
use crate::devices::set::{Devices, Lock, Platform, Slot, Trouble};
use crate::engine::Engine;
use crate::engine::index_copies::wanted;
use crate::engine::open::Access;
use crate::error::{Error, ErrorKind, Result};
use crate::format::geometry::Geometry;
use crate::index::catalog::kept::Catalog;
use crate::index::catalog::{Change, Position, TableRow, manifest};
use crate::index::copies::Place;
use crate::index::table::{INDEX_DIRECTORY, table_number, table_path};

/// Directory of the index on its device.
pub(crate) const INDEX: &str = INDEX_DIRECTORY;

/// How often the tables of an index are looked for that another process is changing.
const OPEN_ATTEMPTS: u32 = 8;

/// Where an index is: its directory on the first device, for messages, and the catalog.
pub(crate) struct IndexPlace {
    pub(crate) directory: PathBuf,
    pub(crate) catalog: Catalog,
    /// The last batch that an index has which is not used: it was durable, whether or not the log in sight has it.
    pub(crate) witnessed: u64,
    /// What removes it when it is dropped, if it is this process's own.
    pub(crate) private: Option<Box<dyn Lock>>,
}

/// The index of a store that is being opened; one that is not published where there is none.
///
/// # Errors
/// What reading it fails with; [`ErrorKind::Lost`] if there is no device to have it.
pub(crate) fn index_place(
    platform: &dyn Platform,
    devices: &Devices,
    geometry: &Geometry,
    access: Access,
) -> Result<IndexPlace> {
    let (slots, store, epoch) = (devices.slots(), geometry.store, devices.epoch());
    let place = |slot: &Slot| Place { number: slot.entry.number, device: Arc::clone(&slot.device) };
    let places: Vec<Place> = slots.iter().filter(|slot| slot.is_writable()).map(place).collect();
    let found = match (Catalog::open(places, store, epoch), access) {
        // It is replaced, whatever it is.
        (Err(error), Access::RebuildIndex | Access::ReadWithoutIndex) if error.kind() != ErrorKind::NewerVersion => {
            None
        }
        (found, _) => found?,
    };
    let version = found.as_ref().map_or(0, |catalog| catalog.state().version);
    // One that was never written to may be older than the log: a reader takes in what there is, and sees what a writer adds.
    let is_usable = |catalog: &Catalog| {
        let is_empty = catalog.state().position == Position::default();
        matches!((access, is_empty), (Access::Read, _) | (Access::Write, false)) && has_tables(catalog)
    };
    let is_of_history =
        |catalog: &&Catalog| catalog.found_epoch().is_some_and(|epoch| devices.history().contains(epoch));
    let witnessed = found.as_ref().filter(is_of_history).map_or(0, |catalog| catalog.state().position.sequence);
    let mut private = None;
    let catalog = match (found.filter(is_usable), access) {
        (Some(catalog), Access::Read) => catalog,
        (_, Access::Read | Access::ReadWithoutIndex) => {
            let own = platform.private_device()?;
            private = Some(own.guard);
            let own = Place { number: 0, device: own.device };
            let made = own.device.create_directory(INDEX);
            made.map_err(|error| Error::io("make an index of its own", &own.device.place(), error))?;
            Catalog::unpublished(vec![own], store, epoch, 0)
        }
        (Some(catalog), _) => {
            let wanted = wanted(&slots, geometry.copies, &catalog.copies().numbers());
            // Others get theirs when the log is recovered.
            let present = catalog.copies().places();
            let kept = |place: &&Place| wanted.iter().any(|wanted| wanted.number == place.number);
            let mut kept: Vec<Place> = present.iter().filter(kept).cloned().collect();
            if kept.is_empty() {
                kept = present.to_vec();
            }
            kept.sort_by_key(|place| place.number);
            catalog.write_to(kept);
            catalog
        }
        (None, _) => {
            let wanted = wanted(&slots, geometry.copies, &[]);
            if wanted.is_empty() {
                return Err(no_device(&slots));
            }
            let now = u64::try_from(platform.now_nanoseconds()).unwrap_or(0);
            let catalog = Catalog::unpublished(wanted, store, epoch, version.max(now));
            // Above all tables that there are: they stay until this one is published.
            let next_table = Some(highest_table(&slots)? + 1);
            catalog.commit(&Change { next_table, ..Change::default() })?;
            catalog
        }
    };
    let directory = catalog.copies().place().join(INDEX);
    Ok(IndexPlace { directory, catalog, witnessed, private })
}

/// Whether every table that a catalog names is on some device: one that lacks one is read no further, and the log has everything.
fn has_tables(catalog: &Catalog) -> bool {
    let copies = catalog.copies();
    let is_missing = |row: &TableRow| {
        let opened = copies.open(&table_path(row.number), Mode::Read);
        opened.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    };
    // A writer may merge and remove tables between reading their rows and looking for them.
    for _ in 0..OPEN_ATTEMPTS {
        if !catalog.state().tables.iter().any(is_missing) {
            return true;
        }
        if !matches!(catalog.renewed(), Ok(Some(_))) {
            return false;
        }
    }
    false
}

fn no_device(slots: &[Slot]) -> Error {
    let causes: Vec<String> = slots
        .iter()
        .filter_map(|slot| {
            Some(format!("device {} {}", slot.entry.number, slot.trouble.as_ref().map(Trouble::explain)?))
        })
        .collect();
    Error::new(ErrorKind::Lost, "open the store", format!("no device is in service: {}", causes.join("; ")))
}

/// The highest number of a table on any device.
fn highest_table(slots: &[Slot]) -> Result<u64> {
    let mut highest = 0;
    for slot in slots.iter().filter(|slot| slot.is_writable()) {
        let files = slot.device.list(INDEX);
        let files = files.map_err(|error| Error::io("look for an index", &slot.path.join(INDEX), error))?;
        let number = |name: &str| table_number(name.strip_suffix(manifest::TEMPORARY).unwrap_or(name));
        highest = files.iter().filter_map(|(name, _)| number(name)).fold(highest, u64::max);
    }
    Ok(highest)
}

impl Engine {
    /// The view as the catalog has it.
    ///
    /// # Errors
    /// What reading it, or opening a table, fails with.
    pub(crate) fn load_view(&self) -> Result<()> {
        let mut state = self.catalog.state();
        // A writer may merge and remove tables between reading their rows and opening them.
        for _ in 0..OPEN_ATTEMPTS {
            match self.set_state(state.clone()) {
                Err(error) if error.kind() == ErrorKind::NotFound => state = self.catalog.renewed()?.unwrap_or(state),
                other => return other,
            }
        }
        self.set_state(state)
    }

    /// A writer's index is the store's from now on: what was made from the log is put in the place of what there was, and what is left of that goes.
    ///
    /// # Errors
    /// What writing the manifest fails with.
    pub(crate) fn publish_index(&self) -> Result<()> {
        self.catalog.publish()?;
        self.complete_index()?;
        self.tidy_index();
        Ok(())
    }
}
