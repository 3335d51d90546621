//! What is below a path: file system, device, free space, fill level; from statfs, the mounts and /sys.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{major, minor, statvfs};

use super::host::line;
use super::result::{Device, FileSystem};
use crate::error::{Error, Result};
use crate::mounts::{Mount, mount_of, mounts};
use crate::units::{escape, escape_path, fraction};

/// Capacity and free space of a file system.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Room {
    /// Its size.
    pub total_bytes: u64,
    /// Bytes in use.
    pub used_bytes: u64,
    /// Bytes that this user may still write.
    pub available_bytes: u64,
    /// Share in use, `used / (used + available)`.
    pub fill: f64,
    /// Inodes that may still be created; `None` if their number is not fixed.
    pub available_inodes: Option<u64>,
}

/// Share of a user's file system that stays free.
pub(super) const MARGIN_FRACTION: f64 = 0.05;

impl Room {
    /// Bytes that this user may still write if [`MARGIN_FRACTION`] stays free.
    pub(super) fn beyond_margin_bytes(&self) -> u64 {
        self.available_bytes.saturating_sub((self.total_bytes as f64 * MARGIN_FRACTION) as u64)
    }
}

/// Mounts at `directory` or below it, innermost first.
///
/// # Errors
/// Same as [`mounts`].
pub(crate) fn mounts_below(directory: &Path) -> Result<Vec<Mount>> {
    let mut below: Vec<Mount> = mounts()?.into_iter().filter(|mount| mount.point.starts_with(directory)).collect();
    below.reverse();
    Ok(below)
}

/// The file system that contains `path`.
///
/// # Errors
/// As [`mount_of`].
pub(crate) fn file_system(path: &Path) -> Result<FileSystem> {
    let mount = mount_of(path)?;
    let found = statvfs(path).map_err(|error| Error::io("examine the file system of", path, error.into()))?;
    let unit = if found.f_frsize == 0 { found.f_bsize } else { found.f_frsize };
    Ok(FileSystem {
        kind: mount.kind,
        block_bytes: unit,
        size_bytes: found.f_blocks.saturating_mul(unit),
        mount_options: mount.options,
        made_by: None,
    })
}

/// The device that contains `path`; for a file system without one (in memory, on the network), the name of its source.
///
/// # Errors
/// As [`mount_of`].
pub(crate) fn device(path: &Path) -> Result<Device> {
    let mount = mount_of(path)?;
    let number = match mount.device {
        (0, _) => fs::metadata(&mount.source).ok().filter(|found| found.rdev() != 0).map(|found| {
            let rdev = found.rdev();
            (major(rdev), minor(rdev))
        }),
        number => Some(number),
    };
    let unknown = Device { name: escape(mount.source.as_bytes()), ..Device::default() };
    Ok(number.and_then(block_device).unwrap_or(unknown))
}

/// A block device by its number; `None` if there is none.
pub(crate) fn block_device((major, minor): (u32, u32)) -> Option<Device> {
    let directory = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    let name = directory.file_name()?.to_string_lossy().into_owned();
    // A partition has no queue and no model; the disk that contains it has.
    let disk = if directory.join("partition").exists() { directory.parent()? } else { &directory };
    let say = |directory: &Path, name: &str| line(&directory.join(name).to_string_lossy());
    let model = match fs::read(directory.join("loop/backing_file")) {
        Ok(path) => escape(path.trim_ascii_end()),
        Err(_) => [say(disk, "device/model"), say(disk, "dm/name")]
            .into_iter()
            .find(|name| !name.is_empty())
            .unwrap_or_default(),
    };
    let is_rotational = match say(disk, "queue/rotational").as_str() {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    };
    let size_bytes = say(&directory, "size").parse::<u64>().unwrap_or(0).saturating_mul(512);
    Some(Device { name, model, is_rotational, size_bytes, emulated: None })
}

/// Capacity and free space of the file system of `path`.
///
/// # Errors
/// Errors from statfs.
pub(crate) fn room(path: &Path) -> Result<Room> {
    let found = statvfs(path).map_err(|error| Error::io("read the free space of", path, error.into()))?;
    let unit = if found.f_frsize == 0 { found.f_bsize } else { found.f_frsize };
    let used = found.f_blocks.saturating_sub(found.f_bfree);
    Ok(Room {
        total_bytes: found.f_blocks.saturating_mul(unit),
        used_bytes: used.saturating_mul(unit),
        available_bytes: found.f_bavail.saturating_mul(unit),
        fill: fraction(used.into(), u128::from(used) + u128::from(found.f_bavail)),
        available_inodes: (found.f_files != 0).then_some(found.f_favail),
    })
}

/// `path` as results show it.
pub(super) fn shown(path: &Path) -> String {
    escape_path(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_place_has_a_file_system_and_room() {
        let directory = tempfile::tempdir().unwrap();
        let found = file_system(directory.path()).unwrap();
        assert!(!found.kind.is_empty() && found.block_bytes > 0 && !found.mount_options.is_empty());
        let room = room(directory.path()).unwrap();
        assert!(room.available_bytes <= room.total_bytes && (0.0..=1.0).contains(&room.fill));
        assert!(!device(directory.path()).unwrap().name.is_empty());
        assert!(mount_of(&directory.path().join("missing")).is_err());
        assert_eq!(mounts_below(directory.path()).unwrap(), []);
    }
}
