//! Where the index of a store is, and reading it when the store is opened.
//!
//! A reader that finds the index lost makes one for itself; a writer makes it in its place, from the log.

use std::sync::Arc;

use crate::devices::set::{Devices, IndexPlace, Platform, Slot, Trouble};
use crate::engine::Engine;
use crate::engine::open::Access;
use crate::error::{Error, ErrorKind, Result};
use crate::format::geometry::Class;
use crate::index::catalog::State;
use crate::index::table::table_number;
use crate::log::recovery::UNFINISHED;

/// Directory of the index on its device.
pub(crate) const INDEX: &str = "index";

/// How often the tables of an index are looked for that another process is changing.
const OPEN_ATTEMPTS: u32 = 8;

/// The index of a store that is being opened; made by a writer where there is none.
///
/// # Errors
/// What reading it fails with; [`ErrorKind::Lost`] if there is no device to have it.
pub(crate) fn index_place(platform: &dyn Platform, devices: &Devices, access: Access) -> Result<IndexPlace> {
    let slots = devices.slots();
    let class = if slots.iter().any(|slot| slot.entry.class == Class::Fast) { Class::Fast } else { Class::Slow };
    let usable = |slot: &&Slot| slot.entry.class == class && slot.is_writable();
    if access != Access::Anew {
        for slot in slots.iter().filter(usable) {
            let directory = slot.path.join(INDEX);
            let Some(catalog) = platform.catalog(&directory, access == Access::Write, false)? else { continue };
            let mut state = State::default();
            catalog.refresh(&mut state)?;
            // Where a crash ended making it anew, what it has may lie behind what it has not.
            if !state.notes.contains_key(UNFINISHED) {
                return Ok(IndexPlace { device: Arc::clone(&slot.device), directory, catalog, state, private: None });
            }
        }
    }
    if access == Access::Read {
        // Lost, and not this process's to make anew: one of its own, gone with it.
        return platform.private_index();
    }
    let Some(slot) = slots.iter().find(usable).or_else(|| slots.iter().find(|slot| slot.is_writable())) else {
        let causes: Vec<String> = slots
            .iter()
            .filter_map(|slot| {
                Some(format!("device {} {}", slot.entry.number, slot.trouble.as_ref().map(Trouble::explain)?))
            })
            .collect();
        return Err(Error::new(
            ErrorKind::Lost,
            "open the store",
            format!("no device is in service: {}", causes.join("; ")),
        ));
    };
    let directory = slot.path.join(INDEX);
    slot.device.create_directory(INDEX).map_err(|error| Error::io("make the index", &directory, error))?;
    for (name, _) in slot.device.list(INDEX).map_err(|error| Error::io("make the index", &directory, error))? {
        if table_number(&name).is_some() {
            let _ = slot.device.remove(&format!("{INDEX}/{name}"));
        }
    }
    match platform.catalog(&directory, true, true)? {
        Some(catalog) => {
            let device = Arc::clone(&slot.device);
            Ok(IndexPlace { device, directory, catalog, state: State::default(), private: None })
        }
        None => Err(Error::new(ErrorKind::Io, "make the index", "it is not there after it was made").at(&directory)),
    }
}

impl Engine {
    /// The view as the catalog has it.
    ///
    /// # Errors
    /// What reading it, or opening a table, fails with.
    pub(crate) fn load_view(&self) -> Result<()> {
        let mut state = self.catalog.load()?;
        // A writer may merge and remove tables between reading their rows and opening them.
        for _ in 0..OPEN_ATTEMPTS {
            match self.set_state(state.clone()) {
                Err(error) if error.kind() == ErrorKind::NotFound => state = self.catalog.renewed()?.unwrap_or(state),
                other => return other,
            }
        }
        self.set_state(state)
    }
}
