//! Where the index of a store is, and reading it when the store is opened.
//!
//! A reader that finds the index lost makes one for itself, from the log. A writer makes it in memory and in tables of new names beside whatever there
//! is, and puts it in its place when it is whole ([`Engine::publish_index`]): until then nothing of what there was is touched.

use std::path::PathBuf;
use std::sync::Arc;

use crate::devices::device::Device;
use crate::devices::set::{Devices, Lock, Platform, Slot, Trouble};
use crate::engine::Engine;
use crate::engine::open::Access;
use crate::error::{Error, ErrorKind, Result};
use crate::format::geometry::Class;
use crate::index::catalog::kept::{Catalog, Place};
use crate::index::catalog::{Change, Position, journal, manifest};
use crate::index::table::{INDEX_DIRECTORY, table_number};

/// Directory of the index on its device.
pub(crate) const INDEX: &str = INDEX_DIRECTORY;

/// How often the tables of an index are looked for that another process is changing.
const OPEN_ATTEMPTS: u32 = 8;

/// Where an index is: the device, the index's directory on it, and the catalog there.
pub(crate) struct IndexPlace {
    pub(crate) device: Arc<dyn Device>,
    pub(crate) directory: PathBuf,
    pub(crate) catalog: Catalog,
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
    store: [u8; 16],
    access: Access,
) -> Result<IndexPlace> {
    let slots = devices.slots();
    let place = |slot: &Slot| Place { number: slot.entry.number, device: Arc::clone(&slot.device) };
    let places: Vec<Place> = slots.iter().filter(|slot| slot.is_writable()).map(place).collect();
    let found = Catalog::open(places, store, 0);
    let found = match (found, access) {
        // It is replaced, whatever it is.
        (Err(error), Access::Anew) if error.kind() != ErrorKind::NewerVersion => None,
        (found, _) => found?,
    };
    let version = found.as_ref().map_or(0, |catalog| catalog.state().version);
    // One that was never written to may be older than the log.
    let is_usable = |catalog: &Catalog| access != Access::Anew && catalog.state().position != Position::default();
    let found = found.filter(is_usable);
    if access == Access::Read {
        let Some(catalog) = found else {
            let private = platform.private_device()?;
            let own = Place { number: 0, device: private.device };
            own.device
                .create_directory(INDEX)
                .map_err(|error| Error::io("make an index of its own", &own.device.place(), error))?;
            return Ok(IndexPlace {
                directory: own.device.place().join(INDEX),
                device: Arc::clone(&own.device),
                catalog: Catalog::unpublished(Vec::new(), store, 0, 0),
                private: Some(private.guard),
            });
        };
        let number = catalog.source();
        let slot = slots.iter().find(|slot| Some(slot.entry.number) == number);
        let slot = slot.ok_or_else(|| no_device(&slots))?;
        let device = Arc::clone(&slot.device);
        return Ok(IndexPlace { device, directory: slot.path.join(INDEX), catalog, private: None });
    }
    let class = if slots.iter().any(|slot| slot.entry.class == Class::Fast) { Class::Fast } else { Class::Slow };
    let usable = |slot: &&Slot| slot.entry.class == class && slot.is_writable();
    let source = found.as_ref().and_then(Catalog::source);
    let slot = slots
        .iter()
        .find(|slot| Some(slot.entry.number) == source)
        .or_else(|| slots.iter().find(usable))
        .or_else(|| slots.iter().find(|slot| slot.is_writable()))
        .ok_or_else(|| no_device(&slots))?;
    let chosen = vec![place(slot)];
    let catalog = match found {
        Some(catalog) => {
            catalog.write_to(chosen);
            catalog
        }
        None => {
            let now = u64::try_from(platform.now_nanoseconds()).unwrap_or(0);
            let catalog = Catalog::unpublished(chosen, store, 0, version.max(now));
            // Above all tables that there are: they stay until this one is published.
            let next_table = Some(highest_table(&slots)? + 1);
            catalog.commit(&Change { next_table, ..Change::default() })?;
            catalog
        }
    };
    let device = Arc::clone(&slot.device);
    Ok(IndexPlace { device, directory: slot.path.join(INDEX), catalog, private: None })
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
        let view = self.view().clone();
        let journal = self.catalog.journal();
        let is_known = |name: &str| {
            name == manifest::NAME
                || table_number(name).is_some_and(|number| view.state.tables.iter().any(|row| row.number == number))
                || journal::number(name).is_some_and(|number| journal.is_none_or(|journal| journal == number))
        };
        let is_ours = |name: &str| {
            name.ends_with(manifest::TEMPORARY) || table_number(name).is_some() || journal::number(name).is_some()
        };
        // What cannot be listed or removed now is there the next time.
        for (name, _) in self.index.list(INDEX).unwrap_or_default() {
            if is_ours(&name) && !is_known(&name) {
                let _ = self.index.remove(&format!("{INDEX}/{name}"));
            }
        }
        Ok(())
    }
}
