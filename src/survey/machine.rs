//! Which machine and which file systems a survey is of, as the kernel described them when it ended.
//!
//! Everything here is text for people and programs that tell surveys apart; no figure of a survey depends on it. Texts
//! are escaped. An anonymous survey has none of it.

use std::collections::HashMap;
use std::fs::{self, File, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{makedev, statvfs};
use serde::{Deserialize, Serialize};

use super::Origin;
use crate::mounts::{Mount, is_shared, mounts, visible_at};
use crate::scan::walk::display_root;
use crate::units::{escape, escape_path, fraction, unescape, unescape_path};

/// A machine, and the file systems of it that were surveyed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Machine {
    /// Name of the host.
    pub host: String,
    /// Release of its kernel.
    pub kernel: String,
    /// Its file systems with at least one of the roots, in the order of these.
    pub file_systems: Vec<FileSystem>,
}

/// A file system with some of the roots.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct FileSystem {
    /// The roots on it, as in the survey.
    pub roots: Vec<String>,
    /// Its type, such as `ext4`; empty if unknown.
    pub kind: String,
    /// Its label, if it has one and it could be read.
    pub label: Option<String>,
    /// Its UUID, if it has one and it could be read.
    pub uuid: Option<String>,
    /// What is mounted: a device, or the source of a network file system.
    pub device: String,
    /// Where it is mounted; empty if it is not.
    pub mount_point: String,
    /// With which options.
    pub mount_options: String,
    /// Its size; `None` if it is not mounted.
    pub capacity_bytes: Option<u64>,
    /// Free bytes, with those that only root may use.
    pub free_bytes: Option<u64>,
    /// Free bytes for every user.
    pub available_bytes: Option<u64>,
    /// Its inodes; `None` where their number is not fixed.
    pub inodes: Option<u64>,
    /// Those of them that are free.
    pub free_inodes: Option<u64>,
}

impl Machine {
    /// The same with `change` applied to every text.
    pub(super) fn map_text(self, change: &impl Fn(String) -> String) -> Machine {
        Machine {
            host: change(self.host),
            kernel: change(self.kernel),
            file_systems: self.file_systems.into_iter().map(|found| found.map_text(change)).collect(),
        }
    }

    /// Adds what another survey of the same machine knows. Of a file system that is in both, the figures stay.
    fn add(&mut self, other: Machine) {
        for theirs in other.file_systems {
            match self.file_systems.iter_mut().find(|mine| mine.is_same(&theirs)) {
                Some(mine) => {
                    let unknown = theirs.roots.into_iter().filter(|root| !mine.roots.contains(root));
                    mine.roots.extend(unknown.collect::<Vec<_>>());
                }
                None => self.file_systems.push(theirs),
            }
        }
    }
}

impl FileSystem {
    fn map_text(self, change: &impl Fn(String) -> String) -> FileSystem {
        FileSystem {
            roots: self.roots.into_iter().map(change).collect(),
            kind: change(self.kind),
            label: self.label.map(change),
            uuid: self.uuid.map(change),
            device: change(self.device),
            mount_point: change(self.mount_point),
            mount_options: change(self.mount_options),
            ..self
        }
    }

    fn is_same(&self, other: &FileSystem) -> bool {
        (&self.device, &self.mount_point, &self.uuid) == (&other.device, &other.mount_point, &other.uuid)
    }

    /// Bytes in use; `None` if it is not mounted.
    pub fn used_bytes(&self) -> Option<u64> {
        Some(self.capacity_bytes?.saturating_sub(self.free_bytes?))
    }

    /// Share in use of what every user may use, as df prints it: what only root may write is neither in use nor free.
    pub fn fill_fraction(&self) -> Option<f64> {
        fill_fraction(self.used_bytes()?, self.available_bytes?)
    }

    /// Inodes in use; `None` where their number is not fixed.
    pub fn used_inodes(&self) -> Option<u64> {
        Some(self.inodes?.saturating_sub(self.free_inodes?))
    }
}

/// Whether other hosts can have a file system of this type mounted from this source, too.
pub(super) fn is_on_network(kind: &str, source: &str) -> bool {
    // server:/a, //server/a, user@id.name=/ (CephFS), JuiceFS:name; a device is a path.
    let is_path = source.starts_with('/') && !source.starts_with("//");
    !is_path && [":", "=/", "//"].iter().any(|mark| source.contains(mark)) || is_shared(kind)
}

/// The share in use of a file system with these bytes in use and free for every user.
pub(crate) fn fill_fraction(used_bytes: u64, available_bytes: u64) -> Option<f64> {
    let usable = u128::from(used_bytes) + u128::from(available_bytes);
    (usable > 0).then(|| fraction(used_bytes.into(), usable))
}

/// Adds the machines of a survey to those of another.
pub(super) fn merge(mine: &mut Vec<Machine>, theirs: Vec<Machine>) {
    for other in theirs {
        match mine.iter_mut().find(|machine| (&machine.host, &machine.kernel) == (&other.host, &other.kernel)) {
            Some(same) => same.add(other),
            None => mine.push(other),
        }
    }
}

impl Origin {
    /// The host, if all of it is of one machine.
    pub fn host(&self) -> Option<&str> {
        match &self.machines[..] {
            [machine] if !machine.host.is_empty() => Some(&machine.host),
            _ => None,
        }
    }

    /// The roots; relative ones in their directory, if it is known.
    pub fn absolute_roots(&self) -> Vec<String> {
        self.roots.iter().map(|root| self.absolute(root)).collect()
    }

    /// A path that begins with a root.
    pub(super) fn absolute(&self, path: &str) -> String {
        match &self.directory {
            Some(directory) => below(Path::new(directory), Path::new(path)).display().to_string(),
            None => path.to_owned(),
        }
    }

    /// Makes the roots independent of a directory.
    pub(super) fn make_absolute(&mut self) {
        self.roots = self.absolute_roots();
        let mut machines = std::mem::take(&mut self.machines);
        for found in machines.iter_mut().flat_map(|machine| &mut machine.file_systems) {
            found.roots.iter_mut().for_each(|root| *root = self.absolute(root));
        }
        (self.machines, self.directory) = (machines, None);
    }

    /// Whether some files may be those of another survey: one of the hosts is not known, both are one, or they have a
    /// network file system in common.
    pub(super) fn may_share_files(&self, other: &Origin) -> bool {
        let hosts_differ = self.host().zip(other.host()).is_some_and(|(one, other)| one != other);
        // Containers have hosts of their own.
        let is_one = |mine: &FileSystem, theirs: &FileSystem| {
            let is_on_network = is_on_network(&mine.kind, &mine.device);
            mine.uuid.is_some() && mine.uuid == theirs.uuid || is_on_network && mine.device == theirs.device
        };
        !hosts_differ || self.file_systems().any(|mine| other.file_systems().any(|theirs| is_one(mine, theirs)))
    }

    /// All file systems of all machines.
    pub fn file_systems(&self) -> impl Iterator<Item = &FileSystem> {
        self.machines.iter().flat_map(|machine| &machine.file_systems)
    }

    /// What it is called where surveys of other machines may be: its name and its host.
    pub fn title(&self) -> Option<String> {
        let name = self.name.as_deref()?;
        Some(match self.host() {
            Some(host) => format!("{name} on {host}"),
            None => name.to_owned(),
        })
    }
}

/// A path in a directory that is known without symbolic links: what is above it is its parent.
pub(super) fn below(directory: &Path, path: &Path) -> PathBuf {
    let (mut above, mut rest) = (directory.to_owned(), path);
    while let Ok(below) = rest.strip_prefix("..") {
        above.pop();
        rest = below;
    }
    // The components, so without `.`.
    above.join(rest).components().collect()
}

/// A line of text that the kernel shows.
fn line(path: &str) -> String {
    fs::read(path).map(|text| escape(text.trim_ascii_end())).unwrap_or_default()
}

/// The name of this machine.
pub(crate) fn host() -> String {
    line("/proc/sys/kernel/hostname")
}

/// This machine, with the file systems of `roots`.
pub(super) fn here(roots: &[PathBuf]) -> Machine {
    let mut machine = Machine { host: host(), kernel: line("/proc/sys/kernel/osrelease"), file_systems: Vec::new() };
    let mounts = mounts().unwrap_or_default();
    for root in roots {
        let Some(mut found) = file_system(root, &mounts) else { continue };
        let root = escape(display_root(root));
        match machine.file_systems.iter_mut().find(|known| known.is_same(&found)) {
            Some(known) => known.roots.push(root),
            None => {
                describe(&mut found);
                found.roots.push(root);
                machine.file_systems.push(found);
            }
        }
    }
    machine
}

/// The file system of an image, which is not mounted.
pub(super) fn of_image(path: &Path) -> FileSystem {
    let root = escape(display_root(path));
    let mut found = FileSystem { roots: vec![root], device: escape_path(path), ..FileSystem::default() };
    describe(&mut found);
    found
}

/// Inodes in use below roots that are mount points, with those of file systems mounted below unless these are left out;
/// `None` where they are not known, or a root is another directory.
pub fn inodes_in_use(roots: &[PathBuf], one_file_system: bool) -> Option<u64> {
    let mounts = mounts().ok()?;
    let mut used = HashMap::new();
    for root in roots {
        let real = fs::canonicalize(root).ok()?;
        let is_whole = |mount: &&Mount| mount.point == real && mount.root == Path::new("/");
        let whole = mounts.iter().rev().find(is_whole)?;
        let below = mounts.iter().filter(|mount| !one_file_system && mount.point.starts_with(&real));
        for mount in below.chain([whole]) {
            let Ok(room) = statvfs(&mount.point) else { continue };
            used.insert(mount.device, room.f_files.saturating_sub(room.f_ffree));
        }
        used.get(&whole.device).filter(|used| **used > 0)?;
    }
    (!used.is_empty()).then(|| used.values().sum())
}

/// The file system that has `root`, or is on it if it is a device; without its names and its room.
fn file_system(root: &Path, mounts: &[Mount]) -> Option<FileSystem> {
    let real = fs::canonicalize(root).ok()?;
    let found = fs::metadata(&real).ok()?;
    if found.file_type().is_block_device() {
        let is_of = |mount: &&Mount| makedev(mount.device.0, mount.device.1) == found.rdev();
        let unmounted = || FileSystem { device: escape_path(&real), ..FileSystem::default() };
        return Some(mounts.iter().find(is_of).map_or_else(unmounted, of_mount));
    }
    visible_at(mounts, &real).map(of_mount)
}

fn of_mount(mount: &Mount) -> FileSystem {
    FileSystem {
        kind: escape(mount.kind.as_bytes()),
        device: escape(mount.source.as_bytes()),
        mount_point: escape_path(&mount.point),
        mount_options: mount.options.clone(),
        ..FileSystem::default()
    }
}

/// Adds label, UUID, and room.
fn describe(found: &mut FileSystem) {
    let device = unescape_path(&found.device).and_then(|device| Some((fs::metadata(&device).ok()?, device)));
    if let Some((metadata, device)) = device {
        let superblock = identity(&device, &metadata);
        found.uuid = named_in("/dev/disk/by-uuid", &metadata).or_else(|| superblock.as_ref().map(|s| s.uuid.clone()));
        found.label = named_in("/dev/disk/by-label", &metadata)
            .or_else(|| superblock.as_ref().map(|s| s.label.clone()).filter(|label| !label.is_empty()));
        if let Some(superblock) = superblock.filter(|_| found.kind.is_empty()) {
            found.kind = superblock.kind.to_owned();
        }
    }
    if found.mount_point.is_empty() {
        return;
    }
    if let Some(room) = unescape_path(&found.mount_point).and_then(|point| statvfs(point).ok()) {
        let unit = if room.f_frsize == 0 { room.f_bsize } else { room.f_frsize };
        found.capacity_bytes = Some(room.f_blocks.saturating_mul(unit));
        found.free_bytes = Some(room.f_bfree.saturating_mul(unit));
        found.available_bytes = Some(room.f_bavail.saturating_mul(unit));
        found.inodes = (room.f_files > 0).then_some(room.f_files);
        found.free_inodes = (room.f_files > 0).then_some(room.f_ffree);
    }
}

/// The name that udev gave to a device in a directory of links.
fn named_in(directory: &str, device: &Metadata) -> Option<String> {
    if !device.file_type().is_block_device() {
        return None;
    }
    let is_it = |entry: &fs::DirEntry| fs::metadata(entry.path()).is_ok_and(|found| found.rdev() == device.rdev());
    let name = fs::read_dir(directory).ok()?.flatten().find(is_it)?.file_name();
    // It writes what is special in a name as we do: \x20.
    let plain = name.to_str().and_then(unescape);
    Some(escape(&plain.unwrap_or_else(|| name.as_bytes().to_vec())))
}

/// What a superblock says of its file system.
#[derive(Debug, PartialEq)]
struct Superblock {
    kind: &'static str,
    uuid: String,
    label: String,
}

/// A kind of superblock: where its mark, the UUID and the label are in the device.
struct Known {
    kind: &'static str,
    mark: (u64, &'static [u8]),
    uuid: u64,
    label: (u64, usize),
}

const SUPERBLOCKS: [Known; 3] = [
    Known { kind: "ext", mark: (1024 + 56, &[0x53, 0xef]), uuid: 1024 + 104, label: (1024 + 120, 16) },
    Known { kind: "xfs", mark: (0, b"XFSB"), uuid: 32, label: (108, 12) },
    Known { kind: "btrfs", mark: (65_536 + 64, b"_BHRfS_M"), uuid: 65_536 + 32, label: (65_536 + 299, 256) },
];

/// Reads the superblock, where this user may and the kind is known: udev may not run here.
fn identity(device: &Path, metadata: &Metadata) -> Option<Superblock> {
    if !metadata.file_type().is_block_device() && !metadata.is_file() {
        return None;
    }
    let file = File::open(device).ok()?;
    let read = |at: u64, length: usize| {
        let mut bytes = vec![0; length];
        file.read_exact_at(&mut bytes, at).ok().map(|()| bytes)
    };
    let is_there = |at: u64, mark: &[u8]| read(at, mark.len()).is_some_and(|bytes| bytes == mark);
    let known = SUPERBLOCKS.iter().find(|known| is_there(known.mark.0, known.mark.1))?;
    let label = read(known.label.0, known.label.1)?;
    let label = label.split(|&byte| byte == 0).next().unwrap_or_default();
    Some(Superblock { kind: known.kind, uuid: hyphenated(&read(known.uuid, 16)?), label: escape(label) })
}

/// A UUID as people write it.
fn hyphenated(bytes: &[u8]) -> String {
    let mut text = String::new();
    for (at, byte) in bytes.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_name_and_roots_share_a_file_system() {
        let directory = tempfile::tempdir().unwrap();
        let below = directory.path().join("below");
        fs::create_dir(&below).unwrap();
        let machine = here(&[directory.path().to_owned(), below, PathBuf::from("/no/such/root")]);
        assert!(!machine.host.is_empty() && !machine.kernel.is_empty());
        let [found] = &machine.file_systems[..] else { panic!("{machine:?}") };
        assert_eq!(found.roots.len(), 2);
        assert!(!found.kind.is_empty() && found.capacity_bytes > Some(0), "{found:?}");
        assert!(found.used_bytes() <= found.capacity_bytes);
    }

    #[test]
    fn superblocks_say_their_names() {
        let directory = tempfile::tempdir().unwrap();
        for Known { kind, mark: (mark_at, mark), uuid: uuid_at, label: (label_at, longest) } in SUPERBLOCKS {
            let path = directory.path().join(kind);
            let file = File::create(&path).unwrap();
            file.set_len(128 << 10).unwrap();
            file.write_all_at(mark, mark_at).unwrap();
            let uuid: Vec<u8> = (0x10..0x20).collect();
            file.write_all_at(&uuid, uuid_at).unwrap();
            let label = &b"home\x1b of a user"[..longest.min(15)];
            file.write_all_at(label, label_at).unwrap();
            let found = of_image(&path);
            assert_eq!(found.kind, kind);
            assert_eq!(found.uuid.as_deref(), Some("10111213-1415-1617-1819-1a1b1c1d1e1f"));
            assert!(found.label.as_deref().unwrap().starts_with("home\\x1b of"), "{found:?}");
        }
        let other = directory.path().join("other");
        fs::write(&other, b"XFS").unwrap();
        assert_eq!((of_image(&other).kind.as_str(), of_image(&other).uuid), ("", None));
    }

    #[test]
    fn sources_on_a_network_are_told_from_devices() {
        let of_network = [
            ("nfs4", "server:/home"),
            ("cifs", "//server/share"),
            ("ceph", "a@1-2.fs=/"),
            ("fuse.juicefs", "JuiceFS:name"),
            ("ocfs2", "/dev/sda"),
            ("9p", "tag"),
        ];
        assert!(of_network.iter().all(|(kind, source)| is_on_network(kind, source)));
        let here =
            [("ext4", "/dev/sda1"), ("ext4", "/dev/disk/by-path/pci-0:0"), ("zfs", "pool/data"), ("tmpfs", "none")];
        assert!(!here.iter().any(|(kind, source)| is_on_network(kind, source)));
    }

    #[test]
    fn machines_are_added_by_host_and_their_file_systems_by_identity() {
        let file_system = |device: &str, root: &str| FileSystem {
            roots: vec![root.to_owned()],
            device: device.to_owned(),
            ..FileSystem::default()
        };
        let machine = |host: &str, file_systems| Machine { host: host.to_owned(), file_systems, ..Machine::default() };
        let mut all = vec![machine("a", vec![file_system("/dev/1", "/x")])];
        merge(&mut all, vec![machine("a", vec![file_system("/dev/1", "/y"), file_system("/dev/2", "/z")])]);
        merge(&mut all, vec![machine("b", vec![file_system("/dev/1", "/x")])]);
        let hosts: Vec<&str> = all.iter().map(|machine| machine.host.as_str()).collect();
        assert_eq!(hosts, ["a", "b"]);
        assert_eq!(all[0].file_systems[0].roots, ["/x", "/y"]);
        assert_eq!((all[0].file_systems.len(), all[1].file_systems.len()), (2, 1));
    }
}
