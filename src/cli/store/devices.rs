//! What a command says about the devices of a store: those with a fault when it is opened, those that fail afterwards,
//! and directories given with `--device` that are not used.

use std::ops::Deref;
use std::path::Path;

use super::completeness::say_completeness;
use crate::cli::output;
use crate::error::{Error, ErrorKind, Result};
use crate::store::ids::DeviceNumber;
use crate::store::{OpenOptions, Store, Trouble, unused_directories};
use crate::units::escape_path;

/// A store that a command uses.
pub(super) struct OpenedStore {
    store: Store,
    /// Devices that could not be written already when it was opened.
    failed_before: Vec<DeviceNumber>,
}

impl Deref for OpenedStore {
    type Target = Store;

    fn deref(&self) -> &Store {
        &self.store
    }
}

impl OpenedStore {
    /// Reports what is wrong with the store.
    pub(super) fn new(store: Store) -> OpenedStore {
        say_what_is_wrong(&store);
        OpenedStore::of_known(store)
    }

    /// The same, of a store of which that was reported.
    pub(super) fn of_known(store: Store) -> OpenedStore {
        let failed_before = failed(&store).map(|(number, _)| number).collect();
        OpenedStore { store, failed_before }
    }

    /// Devices that failed since: the store goes on without them.
    pub(super) fn failed_devices(&self) -> Vec<u16> {
        self.failed_meanwhile().map(|(number, _)| number.0).collect()
    }

    /// Reports them.
    pub(super) fn say_failures(&self) {
        for (number, cause) in self.failed_meanwhile() {
            let path = place(&self.store, number);
            output::warn(&format!(
                "device {number}, {path}, failed meanwhile, and the store goes on without it: {cause} (when it is back, \
                 run granulo store repair; if it is lost, granulo store rebuild)"
            ));
        }
    }

    fn failed_meanwhile(&self) -> impl Iterator<Item = (DeviceNumber, String)> {
        failed(&self.store).filter(|(number, _)| !self.failed_before.contains(number))
    }
}

/// Reports what may be missing, and devices with a fault, before anything else about the store.
pub(in crate::cli) fn say_what_is_wrong(store: &Store) {
    say_completeness(store);
    for (number, trouble) in store.troubles() {
        let advice = match trouble {
            Trouble::Gone => continue,
            Trouble::Stale { .. } => " (granulo store repair brings it up to date)",
            Trouble::Damaged | Trouble::Unmarked => " (granulo store repair writes it again)",
            Trouble::Newer => " (name its directory in place of the store)",
            Trouble::Failed(_) => " (when it can be written, run granulo store repair)",
            _ => "",
        };
        let words = store.explain_trouble(number).unwrap_or_default();
        output::warn(&format!("device {number}, {}, {words}{advice}", place(store, number)));
    }
}

/// Options for opening, after a look at the directories in them: one that cannot be used is reported, or refused if it
/// is certain that it is not a device of this store.
///
/// # Errors
/// [`ErrorKind::Usage`] for a directory that is not a device of the store; errors of finding the store.
pub(in crate::cli) fn checked(store: &Path, options: OpenOptions) -> Result<OpenOptions> {
    if options.devices.is_empty() {
        return Ok(options);
    }
    for unused in unused_directories(store, &options)? {
        if unused.is_no_device {
            return Err(Error::new(ErrorKind::Usage, "use as a device", unused.cause)
                .at(&unused.path)
                .advise("give --device the directory of a device of this store, or omit it"));
        }
        output::warn(&format!("--device {} is not used: {}", escape_path(&unused.path), unused.cause));
    }
    Ok(options)
}

/// Devices that cannot be written, and why.
fn failed(store: &Store) -> impl Iterator<Item = (DeviceNumber, String)> {
    store.troubles().into_iter().filter_map(|(number, trouble)| match trouble {
        Trouble::Failed(cause) => Some((number, cause)),
        _ => None,
    })
}

/// The directory of a device, for messages.
fn place(store: &Store, number: DeviceNumber) -> String {
    store.geometry().devices.get(number.index()).map_or_else(String::new, |device| escape_path(&device.path))
}
