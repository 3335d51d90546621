//! What is below a path: file system, device, room, fill level; from statfs, the mounts and /sys.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor, statvfs};

use super::host::line;
use super::result::{Device, FileSystem};
use crate::error::{Error, Result};
use crate::units::{escape, escape_path, fraction};

/// A row of /proc/self/mountinfo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Device number of what is mounted; the major one is 0 where there is no single device.
    pub device: (u32, u32),
    /// Which directory of it is mounted.
    pub root: PathBuf,
    /// Where.
    pub point: PathBuf,
    /// Type of the file system.
    pub kind: String,
    /// What was named as the source, such as `/dev/sda1`.
    pub source: OsString,
    /// Options of the mount and of the file system, escaped.
    pub options: String,
}

/// Room on a file system.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Room {
    /// Its size.
    pub total_bytes: u64,
    /// What this user may still write.
    pub available_bytes: u64,
    /// Share in use, `used / (used + available)`.
    pub fill: f64,
    /// Inodes that may still be made; `None` where there is no fixed number of them.
    pub available_inodes: Option<u64>,
}

/// All mounts of this process's name space, in the order in which they were made.
///
/// # Errors
/// What reading /proc/self/mountinfo fails with.
pub fn mounts() -> Result<Vec<Mount>> {
    let path = Path::new("/proc/self/mountinfo");
    let text = fs::read(path).map_err(|error| Error::io("read the mounts from", path, error))?;
    Ok(text.split(|&byte| byte == b'\n').filter_map(parse_mount).collect())
}

/// Mounts at `directory` or below it, innermost first.
///
/// # Errors
/// As [`mounts`].
pub fn mounts_below(directory: &Path) -> Result<Vec<Mount>> {
    let mut below: Vec<Mount> = mounts()?.into_iter().filter(|mount| mount.point.starts_with(directory)).collect();
    below.reverse();
    Ok(below)
}

/// The mount that `path` is on; the path must exist.
///
/// # Errors
/// If there is no such path, or the mounts cannot be read.
pub fn mount_of(path: &Path) -> Result<Mount> {
    let real = fs::canonicalize(path).map_err(|error| Error::io("look at", path, error))?;
    let above = mounts()?.into_iter().filter(|mount| real.starts_with(&mount.point));
    // Of several mounts on one point the last is seen.
    let found = above.max_by_key(|mount| mount.point.as_os_str().len());
    found.ok_or_else(|| Error::io("find the mount of", path, io::ErrorKind::NotFound.into()))
}

/// The file system that `path` is on.
///
/// # Errors
/// As [`mount_of`].
pub fn file_system(path: &Path) -> Result<FileSystem> {
    let mount = mount_of(path)?;
    let found = statvfs(path).map_err(|error| Error::io("look at the file system of", path, error.into()))?;
    let unit = if found.f_frsize == 0 { found.f_bsize } else { found.f_frsize };
    Ok(FileSystem {
        kind: mount.kind,
        block_bytes: unit,
        size_bytes: found.f_blocks.saturating_mul(unit),
        mount_options: mount.options,
        made_by: None,
    })
}

/// The device that `path` is on; of a file system without one (in memory, on the network), what it names as its source.
///
/// # Errors
/// As [`mount_of`].
pub fn device(path: &Path) -> Result<Device> {
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
pub fn block_device((major, minor): (u32, u32)) -> Option<Device> {
    let directory = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    let name = directory.file_name()?.to_string_lossy().into_owned();
    // A partition has no queue and no model; the disk above it has.
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

/// Room on the file system of `path`.
///
/// # Errors
/// What statfs fails with.
pub fn room(path: &Path) -> Result<Room> {
    let found = statvfs(path).map_err(|error| Error::io("look for room in", path, error.into()))?;
    let unit = if found.f_frsize == 0 { found.f_bsize } else { found.f_frsize };
    let used = found.f_blocks.saturating_sub(found.f_bfree);
    Ok(Room {
        total_bytes: found.f_blocks.saturating_mul(unit),
        available_bytes: found.f_bavail.saturating_mul(unit),
        fill: fraction(used.into(), u128::from(used) + u128::from(found.f_bavail)),
        available_inodes: (found.f_files != 0).then_some(found.f_favail),
    })
}

/// `path` as results have it.
pub(super) fn shown(path: &Path) -> String {
    escape_path(path)
}

/// `36 35 98:0 /root /point options optional… - type source super-options`.
fn parse_mount(row: &[u8]) -> Option<Mount> {
    let mut fields = row.split(|&byte| byte == b' ').skip(2);
    let device = std::str::from_utf8(fields.next()?).ok()?;
    let (major, minor) = device.split_once(':')?;
    let root = unescape_octal(fields.next()?);
    let point = unescape_octal(fields.next()?);
    let mount_options = fields.next()?;
    let mut rest = fields.skip_while(|field| *field != b"-").skip(1);
    let kind = String::from_utf8_lossy(rest.next()?).into_owned();
    let source = unescape_octal(rest.next()?);
    let mut options: Vec<&[u8]> = mount_options.split(|&byte| byte == b',').collect();
    for option in rest.next().unwrap_or_default().split(|&byte| byte == b',') {
        if !options.contains(&option) && !option.is_empty() {
            options.push(option);
        }
    }
    Some(Mount {
        device: (major.parse().ok()?, minor.parse().ok()?),
        root: PathBuf::from(OsString::from_vec(root)),
        point: PathBuf::from(OsString::from_vec(point)),
        kind,
        source: OsString::from_vec(source),
        options: escape(&options.join(&b","[..])),
    })
}

/// The kernel writes blanks, tabs, line feeds and backslashes in names as three octal digits.
fn unescape_octal(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut at = 0;
    while at < field.len() {
        let digits = field.get(at + 1..at + 4).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) if field[at] == b'\\' => {
                bytes.push(byte);
                at += 4;
            }
            _ => {
                bytes.push(field[at]);
                at += 1;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_the_kernel_are_read() {
        let row = br"36 35 8:1 /a /mnt/with\040blank rw,noatime master:1 shared:2 - ext4 /dev/sda1 rw,errors=continue";
        let mount = parse_mount(row).unwrap();
        assert_eq!((mount.device, mount.kind.as_str()), ((8, 1), "ext4"));
        assert_eq!(mount.point, Path::new("/mnt/with blank"));
        assert_eq!((mount.root.as_path(), mount.source.to_str()), (Path::new("/a"), Some("/dev/sda1")));
        assert_eq!(mount.options, "rw,noatime,errors=continue");
        assert_eq!(parse_mount(br"25 1 0:23 / /tmp rw - tmpfs tmpfs rw").unwrap().device, (0, 23));
        assert_eq!(parse_mount(b""), None);
        assert_eq!(parse_mount(b"1 2 x / / rw - a b c"), None);
    }

    #[test]
    fn octal_is_undone_and_nothing_else() {
        assert_eq!(unescape_octal(br"a\134b\011\012"), b"a\\b\t\n");
        assert_eq!(unescape_octal(br"\999\1"), br"\999\1");
    }

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
