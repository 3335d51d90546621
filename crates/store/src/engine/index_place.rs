//! The location of a store's index, and reading it when the store is opened.
//!
//! A reader that finds the index lost builds a private one from the log. A writer rebuilds it in memory and in tables
//! with new names beside the existing ones, and publishes it when it is complete ([`Engine::publish_index`]): until
//! then nothing existing is touched.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::devices::device::{Device, Mode};
use crate::devices::platform::{Lock, Platform};
use crate::devices::set::Devices;
use crate::devices::slot::{Slot, Trouble};
use crate::engine::Engine;
use crate::engine::index_copies::wanted;
use crate::engine::locking::Access;
use crate::error::{Error, ErrorKind, Result};
use crate::format::geometry::Geometry;
use crate::format::ids::DeviceNumber;
use crate::format::names::TEMPORARY;
use crate::index::catalog::kept::Catalog;
use crate::index::catalog::{Change, Position, TableRow};
use crate::index::copies::IndexDevice;
use crate::index::table::{INDEX_DIRECTORY, table_number, table_path};

/// How often to retry opening the tables of an index that another process is changing.
const OPEN_ATTEMPTS: u32 = 8;

/// The location of an index: its directory on the first device, for messages, and the catalog.
pub(crate) struct IndexPlace {
    pub(crate) directory: PathBuf,
    pub(crate) catalog: Catalog,
    /// The last batch in an index that is not used: it was durable, whether or not the visible log has it.
    pub(crate) witnessed: u64,
    /// Removes the index when dropped, if it is private to this process.
    pub(crate) private: Option<Box<dyn Lock>>,
}

/// The index of a store being opened; an unpublished one if none exists.
///
/// # Errors
/// Any error of reading it; [`ErrorKind::Lost`] if there is no device for it.
pub(crate) fn index_place(
    platform: &dyn Platform,
    devices: &Devices,
    geometry: &Geometry,
    access: Access,
) -> Result<IndexPlace> {
    // Until this writer has begun one of its own, manifests are of the last.
    let (slots, store, epoch) = (devices.slots(), geometry.store, devices.history().newest().epoch);
    let place = |slot: &Slot| IndexDevice { number: slot.entry.number, device: Arc::clone(&slot.device) };
    let places: Vec<IndexDevice> = slots.iter().filter(|slot| slot.is_writable()).map(place).collect();
    let found = match (Catalog::open(places, store, epoch), access) {
        // It is replaced, whatever its state.
        (Err(error), Access::RebuildIndex | Access::ReadWithoutIndex) if error.kind() != ErrorKind::NewerVersion => {
            None
        }
        (found, _) => found?,
    };
    let version = found.as_ref().map_or(0, |catalog| catalog.state().version);
    // A catalog that was never written may be older than the log: a reader applies what is in the log, and sees what a
    // writer adds.
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
            let own = IndexDevice { number: DeviceNumber(0), device: own.device };
            let made = own.device.create_directory(INDEX_DIRECTORY);
            made.map_err(|error| Error::io("create a private index", &own.device.place(), error))?;
            Catalog::unpublished(vec![own], store, epoch, 0)
        }
        (Some(catalog), _) => {
            let wanted = wanted(&slots, geometry.copies, &catalog.copies().numbers());
            // Others get theirs when the log is recovered.
            let present = catalog.copies().places();
            let kept = |place: &&IndexDevice| wanted.iter().any(|wanted| wanted.number == place.number);
            let mut kept: Vec<IndexDevice> = present.iter().filter(kept).cloned().collect();
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
            // Above all existing tables: they remain until this index is published.
            let next_table = Some(highest_table(&slots)? + 1);
            catalog.commit(&Change { next_table, ..Change::default() })?;
            catalog
        }
    };
    let directory = catalog.copies().place().join(INDEX_DIRECTORY);
    Ok(IndexPlace { directory, catalog, witnessed, private })
}

/// Whether every table that a catalog names is on some device: an index without one of them is not used, because the
/// log has everything.
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

/// The highest number of a table on any device that can be listed. One that cannot is dropped when the index is
/// published, if it still cannot then.
///
/// # Errors
/// None can be listed.
fn highest_table(slots: &[Slot]) -> Result<u64> {
    let (mut highest, mut listed, mut failure) = (0, 0, None);
    for slot in slots.iter().filter(|slot| slot.is_writable()) {
        let files = match slot.device.list(INDEX_DIRECTORY) {
            Ok(files) => files,
            Err(error) => {
                failure = Some(slot.error("look for an index", INDEX_DIRECTORY, error));
                continue;
            }
        };
        listed += 1;
        let number = |name: &str| table_number(name.strip_suffix(TEMPORARY).unwrap_or(name));
        // A directory or a link can have the name of a table, too, and is in its way.
        let others = slot.device.list_others(INDEX_DIRECTORY).unwrap_or_default().into_iter().map(|(name, _)| name);
        let names = files.into_iter().map(|(name, _)| name).chain(others);
        highest = names.filter_map(|name| number(&name)).fold(highest, u64::max);
    }
    match failure {
        Some(error) if listed == 0 => Err(error),
        _ => Ok(highest),
    }
}

impl Engine {
    /// Loads the view from the catalog.
    ///
    /// # Errors
    /// Any error of reading it, or of opening a table.
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

    /// Makes a writer's index that of the store: it replaces the previous one, whose remains are removed.
    ///
    /// # Errors
    /// Any error of writing the manifest.
    pub(crate) fn publish_index(&self) -> Result<()> {
        self.catalog.publish()?;
        match self.complete_index() {
            // Its device is full: the log has what waits for space.
            Err(error) if error.kind() == ErrorKind::NoSpace => {}
            completed => completed?,
        }
        self.tidy_index();
        Ok(())
    }
}
