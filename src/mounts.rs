//! The mounts of this process, as /proc/self/mountinfo has them (proc_pid_mountinfo(5)). Paths are bytes, whatever they
//! hold.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::units::escape;

/// Types of file systems that several machines can have mounted at once.
const SHARED: [&str; 15] = [
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "ceph",
    "lustre",
    "gpfs",
    "beegfs",
    "ocfs2",
    "gfs2",
    "9p",
    "afs",
    "glusterfs",
    "panfs",
];

/// Whether several machines can have a file system of this type mounted at once.
pub(crate) fn is_shared(kind: &str) -> bool {
    SHARED.contains(&kind.trim_start_matches("fuse."))
}

/// A row of /proc/self/mountinfo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mount {
    /// Its number.
    pub id: u64,
    /// Number of the mount that it is in.
    pub parent: u64,
    /// Device number of what is mounted; the major number is 0 where there is no single device.
    pub device: (u32, u32),
    /// Which directory of it is mounted.
    pub root: PathBuf,
    /// Where it is mounted.
    pub point: PathBuf,
    /// Type of the file system.
    pub kind: String,
    /// What was named as the source, such as `/dev/sda1`.
    pub source: OsString,
    /// Whether neither the mount nor the file system is read-only.
    pub is_writable: bool,
    /// Options of the mount, then those of the file system that are not among them, without its `ro` or `rw`; separated
    /// by commas, printable ([`escape`]).
    pub options: String,
}

/// All mounts of this process's namespace, in the order in which they were made.
///
/// # Errors
/// /proc/self/mountinfo cannot be read.
pub(crate) fn mounts() -> Result<Vec<Mount>> {
    let path = Path::new("/proc/self/mountinfo");
    let text = fs::read(path).map_err(|error| Error::io("read the mounts from", path, error))?;
    Ok(parse(&text))
}

/// The mount that contains `path`, which must exist.
///
/// # Errors
/// If there is no such path, or the mounts cannot be read.
pub(crate) fn mount_of(path: &Path) -> Result<Mount> {
    let real = fs::canonicalize(path).map_err(|error| Error::io("examine", path, error))?;
    let mounts = mounts()?;
    let found = visible_at(&mounts, &real).cloned();
    found.ok_or_else(|| Error::io("find the mount of", path, io::ErrorKind::NotFound.into()))
}

/// The mount in which a path is: a later one at the same place, or at one above it, hides others.
pub(crate) fn visible_at<'m>(mounts: &'m [Mount], path: &Path) -> Option<&'m Mount> {
    let is_top = |mount: &&Mount| mount.parent == mount.id || mounts.iter().all(|other| other.id != mount.parent);
    let mut current = mounts.iter().rfind(|mount| path.starts_with(&mount.point) && is_top(mount))?;
    let mut above: Vec<&Path> = path.ancestors().collect();
    above.reverse();
    for point in above {
        let on = |current: &Mount| {
            mounts.iter().rfind(|mount| mount.parent == current.id && mount.id != current.id && mount.point == point)
        };
        while let Some(mount) = on(current) {
            current = mount;
        }
    }
    Some(current)
}

/// The mounts in a text like that of /proc/self/mountinfo; rows that do not describe a mount are left out.
pub(crate) fn parse(text: &[u8]) -> Vec<Mount> {
    text.split(|&byte| byte == b'\n').filter_map(parse_mount).collect()
}

/// `36 35 98:0 /root /point options optional… - type source super-options`.
fn parse_mount(row: &[u8]) -> Option<Mount> {
    let mut fields = row.split(|&byte| byte == b' ');
    let mut number = || std::str::from_utf8(fields.next()?).ok()?.parse().ok();
    let (id, parent) = (number()?, number()?);
    let device = std::str::from_utf8(fields.next()?).ok()?;
    let (major, minor) = device.split_once(':')?;
    let root = unescape_octal(fields.next()?);
    let point = unescape_octal(fields.next()?);
    let mount_options = fields.next()?;
    let mut rest = fields.skip_while(|field| *field != b"-").skip(1);
    let kind = String::from_utf8_lossy(rest.next()?).into_owned();
    let source = unescape_octal(rest.next()?);
    let mut options: Vec<&[u8]> = mount_options.split(|&byte| byte == b',').collect();
    let of_file_system = rest.next().unwrap_or_default().split(|&byte| byte == b',');
    let is_writable = options.iter().copied().chain(of_file_system.clone()).all(|option| option != b"ro");
    for option in of_file_system {
        // Its `ro` or `rw` would contradict the mount's own; `is_writable` takes both into account.
        if !options.contains(&option) && !matches!(option, b"" | b"ro" | b"rw") {
            options.push(option);
        }
    }
    Some(Mount {
        id,
        parent,
        device: (major.parse().ok()?, minor.parse().ok()?),
        root: PathBuf::from(OsString::from_vec(root)),
        point: PathBuf::from(OsString::from_vec(point)),
        kind,
        source: OsString::from_vec(source),
        is_writable,
        // From the kernel's escapes to ours.
        options: escape(&unescape_octal(&options.join(&b","[..]))),
    })
}

/// The kernel writes spaces, tabs, line feeds and backslashes in names as three octal digits after a backslash.
fn unescape_octal(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut at = 0;
    while at < field.len() {
        let (byte, length) = match field[at..] {
            [b'\\', high @ b'0'..=b'3', middle @ b'0'..=b'7', low @ b'0'..=b'7', ..] => {
                ((high - b'0') << 6 | (middle - b'0') << 3 | (low - b'0'), 4)
            }
            _ => (field[at], 1),
        };
        bytes.push(byte);
        at += length;
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
        assert_eq!((mount.id, mount.parent, mount.device, mount.kind.as_str()), (36, 35, (8, 1), "ext4"));
        assert_eq!(mount.point, Path::new("/mnt/with blank"));
        assert_eq!((mount.root.as_path(), mount.source.to_str()), (Path::new("/a"), Some("/dev/sda1")));
        assert_eq!(mount.options, "rw,noatime,errors=continue");
        assert!(mount.is_writable);
        let overlay = br"30 1 0:30 / /m rw - overlay overlay rw,lowerdir=/a\040b";
        assert_eq!(parse_mount(overlay).unwrap().options, "rw,lowerdir=/a b");
        assert_eq!(parse_mount(br"25 1 0:23 / /tmp rw - tmpfs tmpfs rw").unwrap().device, (0, 23));
        let read_only = br"31 1 8:1 / /m ro,relatime - ext4 /dev/sda1 rw,errors=continue";
        assert_eq!(parse_mount(read_only).unwrap().options, "ro,relatime,errors=continue");
        let is_writable = |row: &[u8]| parse_mount(row).unwrap().is_writable;
        assert!(!is_writable(read_only) && !is_writable(br"31 1 8:1 / /m rw - ext4 /dev/sda1 ro,errors=continue"));
        assert_eq!(parse_mount(b"36 35 98:7 / /mnt rw ext3 /dev/x rw"), None);
        assert_eq!(parse_mount(b""), None);
        assert_eq!(parse_mount(b"1 2 x / / rw - a b c"), None);
    }

    #[test]
    fn octal_is_undone_and_nothing_else() {
        assert_eq!(unescape_octal(br"a\134b\011\012"), b"a\\b\t\n");
        assert_eq!(unescape_octal(br"\999\1\+12\777x"), br"\999\1\+12\777x");
    }
}
