//! What a path means to a scan of inodes: a mounted file system, a part of one, a block device, or an image.

use std::fs::{self, File};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{StatVfs, statvfs, syncfs};

use crate::error::{Error, ErrorKind, Result};

/// Name of btrfs in the list of mounts.
const BTRFS: &str = "btrfs";

/// Where the tables of a file system are, and which part of it is chosen.
#[derive(Debug, Clone, Default)]
pub struct ScanTarget {
    /// The device or image to read.
    pub device_path: PathBuf,
    /// The device number that its inodes have.
    pub device: u64,
    /// The inode of the chosen directory; `None` for the root.
    pub root: Option<u64>,
    /// Where it is mounted, if it is.
    pub mount: Option<Mount>,
    /// Paths below the directory where something is mounted.
    pub mount_points: Vec<Nested>,
}

/// Something that is mounted below a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nested {
    /// Where, below the directory.
    pub below_root: Vec<u8>,
    /// Whether it is another file system, mounted on a directory: a walk that stays on one file system leaves it out.
    pub is_left_out: bool,
}

/// A line of the kernel's list of mounts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mount {
    /// Type of the file system: `ext4`.
    pub kind: String,
    /// Mount point.
    pub point: Vec<u8>,
    /// Major and minor number of the device.
    device: (u32, u32),
    /// The directory of the file system that is visible there.
    root: Vec<u8>,
    /// Whether it is mounted read-write.
    pub writable: bool,
    /// What it was mounted from.
    source: Vec<u8>,
    /// Options of the file system.
    options: String,
}

impl ScanTarget {
    /// Identifies `path`.
    ///
    /// # Errors
    /// If it has no device, or its mount is not found.
    pub fn of(path: &Path) -> Result<ScanTarget> {
        let fail = |error| Error::io("survey", path, error);
        let found = fs::metadata(path).map_err(fail)?;
        let mounts = read_mounts();
        if found.file_type().is_block_device() {
            let device = found.rdev();
            let mount = mounts.into_iter().find(|mount| mount.is_of(device));
            return Ok(ScanTarget { device_path: path.to_owned(), device, mount, ..ScanTarget::default() });
        }
        if found.is_file() {
            return Ok(ScanTarget { device_path: path.to_owned(), ..ScanTarget::default() });
        }
        let whole = path.canonicalize().map_err(fail)?;
        ScanTarget::of_directory(&whole, found.dev(), found.ino(), mounts).ok_or_else(|| {
            let cause = "no readable device has it";
            Error::new(ErrorKind::NotFound, "scan the inodes of", cause).at(path).advise("use --method walk")
        })
    }

    fn of_directory(whole: &Path, device: u64, inode: u64, mounts: Vec<Mount>) -> Option<ScanTarget> {
        let above = mounts.iter().enumerate().filter(|(_, mount)| whole.starts_with(mount.point()));
        // The last mount at a place hides earlier ones.
        let (_, mount) = above.max_by_key(|(number, mount)| (mount.point.len(), *number))?;
        if mount.number() != device && mount.kind != BTRFS {
            return None;
        }
        let below = mounts.iter().filter_map(|mount| {
            let below_root = mount.point().strip_prefix(whole).ok()?.as_os_str().as_bytes().to_vec();
            let is_left_out = fs::metadata(mount.point()).is_ok_and(|found| found.is_dir() && found.dev() != device);
            (!below_root.is_empty()).then_some(Nested { below_root, is_left_out })
        });
        let mount_points = below.collect();
        Some(ScanTarget {
            device_path: device_path(mount)?,
            device,
            root: Some(inode),
            mount: Some(mount.clone()),
            mount_points,
        })
    }

    /// Whether the chosen directory is a mount point, of a whole file system.
    pub fn is_mount_point(&self, path: &Path) -> bool {
        let whole = path.canonicalize().unwrap_or_default();
        let is_whole = |mount: &Mount| match mount.option("subvol") {
            Some(name) => mount.root == name.as_bytes(),
            None => mount.root == b"/",
        };
        self.mount.as_ref().is_some_and(|mount| mount.point() == whole && is_whole(mount))
    }

    /// For a directory on btrfs, the subvolume that is mounted there, and the path from it to the directory.
    pub fn below_subvolume(&self, path: &Path) -> Option<(u64, Vec<u8>)> {
        let mount = self.mount.as_ref().filter(|_| self.root.is_some())?;
        let (subvolume, name) = (mount.option("subvolid")?, mount.option("subvol")?);
        let whole = path.canonicalize().ok()?;
        // The visible part may be a directory below the subvolume.
        let shown = mount.root.strip_prefix(name.as_bytes())?;
        let below = whole.strip_prefix(mount.point()).ok()?;
        Some((subvolume.parse().ok()?, [shown, b"/", below.as_os_str().as_bytes()].concat()))
    }

    /// All devices of the btrfs with this identifier, if it is mounted; otherwise the known device.
    pub fn members(&self, identifier: [u8; 16]) -> Vec<PathBuf> {
        let hexadecimal: String = identifier.iter().map(|byte| format!("{byte:02x}")).collect();
        let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| &hexadecimal[part]);
        let listed = fs::read_dir(format!("/sys/fs/btrfs/{}/devices", parts.join("-")));
        let names = listed.into_iter().flatten().flatten().map(|device| device.file_name());
        // A slash in the name of a device is replaced by an exclamation mark there.
        let path = |name: std::ffi::OsString| Path::new("/dev").join(name.to_string_lossy().replace('!', "/"));
        let found: Vec<PathBuf> = names.map(path).filter(|path| path.exists()).collect();
        if self.mount.is_some() && !found.is_empty() { found } else { vec![self.device_path.clone()] }
    }

    /// Writes back everything in memory, so that the tables are up to date.
    pub fn synchronise(&self) {
        if let Some(mount) = &self.mount {
            // A file system that cannot be synchronised is read as it is; changes during the scan are detected anyway.
            let _ = File::open(mount.point()).map(syncfs);
        }
    }

    /// Where it is mounted with its root, if it is.
    pub fn mount_point(&self) -> Option<&Path> {
        self.mount.as_ref().filter(|mount| mount.root == b"/").map(Mount::point)
    }

    /// Number of inodes in use in the mounted file system.
    pub fn inodes_in_use(&self) -> Option<u64> {
        let StatVfs { f_files, f_ffree, .. } = statvfs(self.mount.as_ref()?.point()).ok()?;
        Some(f_files.saturating_sub(f_ffree))
    }

    /// Number of inodes in kernel memory, over all mounted file systems of this kind; `None` if the kernel does not
    /// report it.
    pub fn inodes_in_memory(&self) -> Option<u64> {
        in_memory(&fs::read_to_string("/proc/slabinfo").ok()?, &self.mount.as_ref()?.kind)
    }

    /// Space and inodes reported by the mounted file system, to be compared after a scan.
    pub fn state(&self) -> Option<[u64; 3]> {
        let mount = self.mount.as_ref().filter(|mount| mount.writable)?;
        let StatVfs { f_files, f_ffree, f_bfree, .. } = statvfs(mount.point()).ok()?;
        Some([f_files, f_ffree, f_bfree])
    }
}

/// Number of inodes in the table of the kernel's slab caches: one per line, with its name and the number of active
/// objects.
fn in_memory(slabs: &str, kind: &str) -> Option<u64> {
    let mut lines = slabs.lines().map(str::split_whitespace);
    let cache = format!("{kind}_inode");
    lines.find_map(|mut fields| (fields.next()? == cache).then(|| fields.next()?.parse().ok())?)
}

impl Mount {
    fn point(&self) -> &Path {
        Path::new(std::ffi::OsStr::from_bytes(&self.point))
    }

    fn number(&self) -> u64 {
        rustix::fs::makedev(self.device.0, self.device.1)
    }

    /// Value of an option of the file system.
    fn option(&self, name: &str) -> Option<&str> {
        self.options.split(',').find_map(|option| option.strip_prefix(name)?.strip_prefix('='))
    }

    /// Whether it is mounted from the device with this number. btrfs has numbers of its own, because it may have
    /// several devices.
    fn is_of(&self, device: u64) -> bool {
        let source = Path::new(std::ffi::OsStr::from_bytes(&self.source));
        let is_source = || fs::metadata(source).is_ok_and(|found| found.rdev() == device);
        self.number() == device || self.kind == BTRFS && is_source()
    }
}

/// Device file of a mount.
fn device_path(mount: &Mount) -> Option<PathBuf> {
    let (major, minor) = mount.device;
    let source = PathBuf::from(std::ffi::OsString::from_vec(mount.source.clone()));
    let by_number = PathBuf::from(format!("/dev/block/{major}:{minor}"));
    let event = fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/uevent")).unwrap_or_default();
    let by_name = event.lines().find_map(|line| line.strip_prefix("DEVNAME=")).map(|name| Path::new("/dev").join(name));
    let is_it = |path: &PathBuf| {
        fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device() && mount.is_of(found.rdev()))
    };
    [Some(source), Some(by_number), by_name].into_iter().flatten().find(is_it)
}

fn read_mounts() -> Vec<Mount> {
    let text = fs::read("/proc/self/mountinfo").unwrap_or_default();
    text.split(|&byte| byte == b'\n').filter_map(parse_mount).collect()
}

/// A line of `/proc/self/mountinfo`: `36 35 98:0 /root /point rw,noatime master:1 - ext3 /dev/source rw`.
fn parse_mount(line: &[u8]) -> Option<Mount> {
    let fields: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
    let text = |at: usize| std::str::from_utf8(fields.get(at)?).ok();
    let (major, minor) = text(2)?.split_once(':')?;
    let behind = fields.iter().position(|field| field == b"-")?;
    let options = [text(5)?, text(behind + 3).unwrap_or_default()];
    Some(Mount {
        kind: text(behind + 1)?.to_owned(),
        point: unescaped(fields.get(4)?),
        device: (major.parse().ok()?, minor.parse().ok()?),
        root: unescaped(fields.get(3)?),
        writable: options.iter().all(|options| options.split(',').all(|option| option != "ro")),
        source: unescaped(fields.get(behind + 2)?),
        options: String::from_utf8(unescaped(fields.get(behind + 3).copied().unwrap_or_default())).unwrap_or_default(),
    })
}

/// The kernel writes blanks, newlines and backslashes as `\` and three octal digits.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, behind)) = rest.split_first() {
        let is_octal = |digits: &[u8; 3]| digits.iter().all(|digit| (b'0'..b'8').contains(digit));
        match behind.split_first_chunk().filter(|(digits, _)| first == b'\\' && is_octal(digits)) {
            Some((digits, behind)) => {
                bytes.push(digits.iter().fold(0u8, |value, digit| value.wrapping_mul(8).wrapping_add(digit - b'0')));
                rest = behind;
            }
            None => {
                bytes.push(first);
                rest = behind;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(line: &str) -> Mount {
        parse_mount(line.as_bytes()).unwrap()
    }

    #[test]
    fn inodes_in_memory_are_those_of_the_kind() {
        let slabs =
            "slabinfo - version: 2.1\n# name <active_objs>\nxfs_inode_log 5 6\nxfs_inode 77424 77430 1024 : a\nnone\n";
        assert_eq!(
            (in_memory(slabs, "xfs"), in_memory(slabs, "btrfs"), in_memory("", "xfs")),
            (Some(77424), None, None)
        );
    }

    #[test]
    fn lines_of_the_list_of_mounts_are_read() {
        let read =
            mount(r"36 35 98:7 / /mnt/a\040b\134 rw,noatime shared:1 master:2 - ext3 /dev/lo\012op rw,errors=continue");
        assert_eq!((read.kind.as_str(), &read.point[..], read.device), ("ext3", &b"/mnt/a b\\"[..], (98, 7)));
        assert_eq!((&read.source[..], read.writable), (&b"/dev/lo\nop"[..], true));
        assert!(!mount("36 35 98:7 / /mnt ro,noatime - ext3 /dev/x rw").writable);
        assert!(!mount("36 35 98:7 / /mnt rw - ext3 /dev/x ro").writable);
        for line in ["", "36", "36 35 98:7 / /mnt rw ext3 /dev/x rw", "36 35 987 / /mnt rw - ext3 /dev/x rw"] {
            assert_eq!(parse_mount(line.as_bytes()), None, "{line}");
        }
    }
}
