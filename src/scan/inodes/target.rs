//! What a path means to a scan of inodes: a mounted file system, a part of one, a block device, or an image.

use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{StatVfs, statvfs, syncfs};

use crate::error::{Error, ErrorKind, Result};
use crate::mounts::{self, Mount, mounts};
use crate::units::unescape;

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
    pub(crate) mount: Option<Mount>,
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

impl ScanTarget {
    /// Identifies `path`.
    ///
    /// # Errors
    /// If it has no device, or its mount is not found.
    pub fn of(path: &Path) -> Result<ScanTarget> {
        let fail = |error| Error::io("survey", path, error);
        let found = fs::metadata(path).map_err(fail)?;
        let mounts = mounts().unwrap_or_default();
        if found.file_type().is_block_device() {
            let device = found.rdev();
            let mount = mounts.into_iter().find(|mount| is_of(mount, device));
            return Ok(ScanTarget { device_path: path.to_owned(), device, mount, ..ScanTarget::default() });
        }
        if found.is_file() {
            return Ok(ScanTarget { device_path: path.to_owned(), ..ScanTarget::default() });
        }
        let whole = path.canonicalize().map_err(fail)?;
        ScanTarget::of_directory(&whole, found.dev(), found.ino(), &mounts).ok_or_else(|| {
            let cause = "no readable device has it";
            Error::new(ErrorKind::NotFound, "scan the inodes of", cause).at(path).advise("use --method walk")
        })
    }

    fn of_directory(whole: &Path, device: u64, inode: u64, mounts: &[Mount]) -> Option<ScanTarget> {
        let mount = mounts::visible_at(mounts, whole)?;
        if number(mount) != device && mount.kind != BTRFS {
            return None;
        }
        // What another mount hides is mounted on directories that are hidden, too.
        let visible = mounts.iter().filter(|mount| {
            mount.point.starts_with(whole)
                && mounts::visible_at(mounts, &mount.point).is_some_and(|visible| visible.id == mount.id)
        });
        let below = visible.filter_map(|mount| {
            let below_root = mount.point.strip_prefix(whole).ok()?.as_os_str().as_bytes().to_vec();
            let is_left_out = fs::metadata(&mount.point).is_ok_and(|found| found.is_dir() && found.dev() != device);
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
        let is_whole = |mount: &Mount| match option(mount, "subvol") {
            Some(name) => mount.root.as_os_str().as_bytes() == name,
            None => mount.root == Path::new("/"),
        };
        self.mount.as_ref().is_some_and(|mount| mount.point == whole && is_whole(mount))
    }

    /// For a directory on btrfs, the subvolume that is mounted there, and the path from it to the directory.
    pub fn below_subvolume(&self, path: &Path) -> Option<(u64, Vec<u8>)> {
        let mount = self.mount.as_ref().filter(|_| self.root.is_some())?;
        let (subvolume, name) = (option(mount, "subvolid")?, option(mount, "subvol")?);
        let whole = path.canonicalize().ok()?;
        // The visible part may be a directory below the subvolume.
        let shown = mount.root.as_os_str().as_bytes().strip_prefix(&name[..])?;
        let below = whole.strip_prefix(&mount.point).ok()?;
        Some((
            std::str::from_utf8(&subvolume).ok()?.parse().ok()?,
            [shown, b"/", below.as_os_str().as_bytes()].concat(),
        ))
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
            let _ = File::open(&mount.point).map(syncfs);
        }
    }

    /// Where it is mounted with its root, if it is.
    pub fn mount_point(&self) -> Option<&Path> {
        self.mount.as_ref().filter(|mount| mount.root == Path::new("/")).map(|mount| mount.point.as_path())
    }

    /// Number of inodes in use in the mounted file system.
    pub fn inodes_in_use(&self) -> Option<u64> {
        let StatVfs { f_files, f_ffree, .. } = statvfs(&self.mount.as_ref()?.point).ok()?;
        Some(f_files.saturating_sub(f_ffree))
    }

    /// Number of inodes in kernel memory, over all mounted file systems of this kind; `None` if the kernel does not
    /// report it.
    pub fn inodes_in_memory(&self) -> Option<u64> {
        in_memory(&fs::read_to_string("/proc/slabinfo").ok()?, &self.mount.as_ref()?.kind)
    }

    /// Space and inodes reported by the mounted file system, to be compared after a scan.
    pub fn state(&self) -> Option<[u64; 3]> {
        let mount = self.mount.as_ref().filter(|mount| mount.is_writable)?;
        let StatVfs { f_files, f_ffree, f_bfree, .. } = statvfs(&mount.point).ok()?;
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

fn number(mount: &Mount) -> u64 {
    rustix::fs::makedev(mount.device.0, mount.device.1)
}

/// Value of an option of a mounted file system.
fn option(mount: &Mount, name: &str) -> Option<Vec<u8>> {
    let value = mount.options.split(',').find_map(|option| option.strip_prefix(name)?.strip_prefix('='));
    unescape(value?)
}

/// Whether a device with this number is mounted there. btrfs has numbers of its own, because it may have several
/// devices.
fn is_of(mount: &Mount, device: u64) -> bool {
    let is_source = || fs::metadata(&mount.source).is_ok_and(|found| found.rdev() == device);
    number(mount) == device || mount.kind == BTRFS && is_source()
}

/// Device file of a mount.
fn device_path(mount: &Mount) -> Option<PathBuf> {
    let (major, minor) = mount.device;
    let source = PathBuf::from(&mount.source);
    let by_number = PathBuf::from(format!("/dev/block/{major}:{minor}"));
    let event = fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/uevent")).unwrap_or_default();
    let by_name = event.lines().find_map(|line| line.strip_prefix("DEVNAME=")).map(|name| Path::new("/dev").join(name));
    let is_it = |path: &PathBuf| {
        fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device() && is_of(mount, found.rdev()))
    };
    [Some(source), Some(by_number), by_name].into_iter().flatten().find(is_it)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inodes_in_memory_are_those_of_the_kind() {
        let slabs =
            "slabinfo - version: 2.1\n# name <active_objs>\nxfs_inode_log 5 6\nxfs_inode 77424 77430 1024 : a\nnone\n";
        assert_eq!(
            (in_memory(slabs, "xfs"), in_memory(slabs, "btrfs"), in_memory("", "xfs")),
            (Some(77424), None, None)
        );
    }
}
