//! Directories that a caller gives for devices, and that are not used when the store is opened.

use std::path::{Path, PathBuf};

use crate::devices::platform::Platform;
use crate::devices::platforms;
use crate::devices::survey::{OpenOptions, Survey, survey};
use crate::error::{ErrorKind, Result};
use crate::format::geometry::DeviceState;
use crate::format::superblock::{HOME_APART, Superblock};
use crate::units::escape_path;

/// A directory in [`OpenOptions::devices`] that is not used.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnusedDirectory {
    /// The directory.
    pub path: PathBuf,
    /// Why it is not used.
    pub cause: String,
    /// Whether it is certain that it is not a device of the store.
    pub is_no_device: bool,
}

/// The directories in [`OpenOptions::devices`] that are not used for a device of the store; writes nothing.
///
/// # Errors
/// As [`Store::open_read_only_with`](crate::Store::open_read_only_with), before anything but superblocks is read.
pub fn unused_directories(store: &Path, options: &OpenOptions) -> Result<Vec<UnusedDirectory>> {
    let platform = platforms::of(store, &options.bucket)?;
    let survey = survey(&*platform, store, options)?;
    Ok(options.devices.iter().filter_map(|path| unused(&*platform, &survey, path)).collect())
}

fn unused(platform: &dyn Platform, survey: &Survey, path: &Path) -> Option<UnusedDirectory> {
    let (cause, is_no_device) = reason(platform, survey, path)?;
    Some(UnusedDirectory { path: path.to_owned(), cause, is_no_device })
}

/// Why it is not used, and whether it is certain that it is not a device of the store; `None` if it is used.
fn reason(platform: &dyn Platform, survey: &Survey, path: &Path) -> Option<(String, bool)> {
    let no_device = |cause: &str| Some((cause.to_owned(), true));
    let Some(node) = platform.node(path) else { return no_device("no such directory") };
    let found = match Superblock::read(&*platform.device(path)) {
        Ok(Some(found)) => found.superblock,
        Ok(None) => return no_device("it has no superblock"),
        Err(error) if error.kind() == ErrorKind::Corrupt => {
            return Some(("its superblock is damaged, so it is unknown which device it is".to_owned(), false));
        }
        Err(error) => return Some((error.to_string(), false)),
    };
    if found.geometry.store != survey.geometry.store {
        return no_device("it belongs to another store");
    }
    if found.number == HOME_APART {
        return no_device("it is the home of the store");
    }
    let slot = survey.slots.iter().find(|slot| slot.entry.identity == found.identity);
    let Some(slot) = slot else { return no_device("it is a device that was replaced") };
    let number = slot.entry.number;
    if slot.entry.state == DeviceState::Gone {
        return Some((format!("it is device {number}, which left the store"), true));
    }
    let is_other = platform.node(&slot.path) != Some(node);
    is_other.then(|| (format!("it is a copy of device {number}, which is at {}", escape_path(&slot.path)), false))
}
