//! The names of segments and extent files on a device, which a writer may have to make durable once more.
//!
//! After a failed sync of a directory, Linux considers its names clean, and another sync says nothing. So a file is
//! renamed to another name and back. A crash midway leaves it under the other name; a reader, or a writer that sees
//! only this device, finds it under either. The next writer of the device restores its own name.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use crate::devices::device::{Device, DeviceFile, Mode, NotAFile};
use crate::format::names::{EXTENTS, SEGMENTS};
use crate::format::superblock::SUPERBLOCK;

/// Suffix of the other name of a file.
pub(crate) const OTHER: &str = ".again";

/// Names and sizes in bytes of the files in a directory, each under its own name.
pub(crate) fn list(device: &dyn Device, directory: &str) -> io::Result<Vec<(String, u64)>> {
    let mut listed = device.list(directory)?;
    if listed.iter().any(|(name, _)| name.ends_with(OTHER)) {
        let mut sizes = BTreeMap::new();
        for (name, size) in listed {
            match name.strip_suffix(OTHER) {
                Some(own) => drop(sizes.entry(own.to_owned()).or_insert(size)),
                None => drop(sizes.insert(name, size)),
            }
        }
        listed = sizes.into_iter().collect();
    }
    Ok(listed)
}

/// The own name of a file.
fn own_name(name: String) -> String {
    name.strip_suffix(OTHER).map(str::to_owned).unwrap_or(name)
}

/// As [`list`], without the sizes.
pub(crate) fn list_names(device: &dyn Device, directory: &str) -> io::Result<BTreeSet<String>> {
    Ok(device.list_names(directory)?.into_iter().map(own_name).collect())
}

/// What is no regular file in a directory, under the own name of the file that should be there.
pub(crate) fn list_others(device: &dyn Device, directory: &str) -> io::Result<BTreeMap<String, NotAFile>> {
    Ok(device.list_others(directory)?.into_iter().map(|(name, kind)| (own_name(name), kind)).collect())
}

/// Opens the file whose own name is `path`.
pub(crate) fn open(device: &dyn Device, path: &str, mode: Mode) -> io::Result<Arc<dyn DeviceFile>> {
    let is_absent =
        |opened: &io::Result<_>| opened.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    let opened = device.open(path, mode);
    if mode == Mode::Create || !is_absent(&opened) {
        return opened;
    }
    let other = device.open(&format!("{path}{OTHER}"), mode);
    // A writer may have restored its own name in between.
    if is_absent(&other) { device.open(path, mode) } else { other }
}

/// Creates a directory of segments or extent files on a device that is present: a mount point without its file system
/// has no superblock and no such files, and gets none. (A device that is being repaired may have lost its superblock.)
pub(crate) fn create_directory(device: &dyn Device, directory: &str) -> io::Result<()> {
    let has_files = |directory: &str| device.list(directory).is_ok_and(|files| !files.is_empty());
    match device.open(SUPERBLOCK, Mode::Read) {
        Err(error) if !has_files(SEGMENTS) && !has_files(EXTENTS) => Err(error),
        _ => device.create_directory(directory),
    }
}

/// Removes a file of the directory of segments, durably.
pub(crate) fn remove_segment_file(device: &dyn Device, path: &str) -> io::Result<()> {
    device.remove(path).and_then(|()| device.sync_directory(SEGMENTS))
}

/// Renames a file to its other name and back, each durably.
pub(crate) fn name_again(device: &dyn Device, path: &str, directory: &str) -> io::Result<()> {
    let other = format!("{path}{OTHER}");
    device.rename(path, &other)?;
    device.sync_directory(directory)?;
    device.rename(&other, path)?;
    device.sync_directory(directory)
}

/// Restores the own names of files that a crash left under the other one.
pub(crate) fn end_renaming(device: &dyn Device, directory: &str) -> io::Result<()> {
    let listed = device.list(directory)?;
    for (other, own) in listed.iter().filter_map(|(name, _)| Some((name, name.strip_suffix(OTHER)?))) {
        let (from, to) = (format!("{directory}/{other}"), format!("{directory}/{own}"));
        match listed.iter().any(|(name, _)| name == own) {
            true => device.remove(&from)?,
            false => device.rename(&from, &to)?,
        }
        device.sync_directory(directory)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices::directory::Directory;

    #[test]
    fn a_file_is_found_under_its_own_name_while_it_has_the_other() {
        let place = tempfile::tempdir().unwrap();
        let device = Directory::new(place.path());
        device.create_directory("segments").unwrap();
        let file = device.open("segments/1", Mode::Create).unwrap();
        file.write_at(b"bytes", 0).unwrap();
        device.rename("segments/1", "segments/1.again").unwrap();
        assert_eq!(list(&device, "segments").unwrap(), [("1".to_owned(), 5)]);
        assert_eq!(open(&device, "segments/1", Mode::Read).unwrap().size().unwrap(), 5);
        assert!(open(&device, "segments/2", Mode::Read).is_err());
        end_renaming(&device, "segments").unwrap();
        assert_eq!(device.list("segments").unwrap(), [("1".to_owned(), 5)]);
        name_again(&device, "segments/1", "segments").unwrap();
        assert_eq!(device.list("segments").unwrap(), [("1".to_owned(), 5)]);
    }
}
