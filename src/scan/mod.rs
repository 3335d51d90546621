//! Scans: enumerate files by any means. [`walk`] walks the directories; [`inodes`] reads the tables of a whole file
//! system.
//!
//! A scan passes what it finds to a [`Visitor`], directory by directory, and knows nothing of distributions. The
//! content of a directory is summed in the visitor's own [`Tally`]; when everything below a directory has been seen,
//! its sums are added to its parent, so that sums over subtrees cost memory only for unfinished directories.

pub(crate) mod division;
pub(crate) mod exclude;
mod frontier;
pub mod inodes;
pub(crate) mod links;
mod mounted_again;
pub(crate) mod mounts;
pub(crate) mod place;
pub(crate) mod walk;

use std::path::PathBuf;

use rustix::fs::FileType;
use serde::{Deserialize, Serialize};

pub(crate) use frontier::{Snapshot, join};
use place::Parent;

use crate::units::SECONDS_A_DAY;

/// Kind of a directory entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link; `absolute` when its target starts with `/`.
    Symlink {
        /// Whether the target starts with `/`.
        absolute: bool,
    },
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A block device.
    BlockDevice,
    /// A character device.
    CharacterDevice,
}

impl Kind {
    /// The kind in the mode of an inode; `None` if it is none that there is.
    pub fn of_mode(mode: u16) -> Option<Kind> {
        match FileType::from_raw_mode(mode.into()) {
            FileType::RegularFile => Some(Kind::File),
            FileType::Directory => Some(Kind::Directory),
            FileType::Symlink => Some(Kind::Symlink { absolute: false }),
            FileType::Fifo => Some(Kind::Fifo),
            FileType::Socket => Some(Kind::Socket),
            FileType::BlockDevice => Some(Kind::BlockDevice),
            FileType::CharacterDevice => Some(Kind::CharacterDevice),
            FileType::Unknown => None,
        }
    }
}

/// A point in time, since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timestamp {
    /// Whole seconds.
    pub seconds: i64,
    /// And nanoseconds.
    pub nanoseconds: u32,
}

/// Attributes of an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stat {
    /// Its kind.
    pub kind: Kind,
    /// Its size.
    pub size_bytes: u64,
    /// Its allocated bytes (`st_blocks * 512`).
    pub allocated_bytes: u64,
    /// Its number of names.
    pub link_count: u32,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// File type and permissions, as in `st_mode`.
    pub mode: u16,
    /// The device that contains it.
    pub device: u64,
    /// Its inode number on the device.
    pub inode: u64,
    /// Last change of the content.
    pub mtime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Last read.
    pub atime: Timestamp,
}

impl Stat {
    /// Day of the last change of the content, since 1970; 0 if that was before, the last if it was after 2149.
    pub fn modified_day(&self) -> u16 {
        self.mtime.seconds.div_euclid(SECONDS_A_DAY).clamp(0, u16::MAX.into()) as u16
    }
}

/// Names (or paths) and the attributes of their inodes: some entries of one directory, or rows of a table.
#[derive(Debug)]
pub struct Batch<T = Stat> {
    stats: Vec<(T, u32)>,
    names: Vec<u8>,
}

impl<T> Default for Batch<T> {
    fn default() -> Batch<T> {
        Batch { stats: Vec::new(), names: Vec::new() }
    }
}

impl<T: Copy> Batch<T> {
    /// Adds an entry.
    pub fn push(&mut self, name: &[u8], stat: T) {
        self.names.extend_from_slice(name);
        self.stats.push((stat, self.names.len() as u32));
    }

    /// Adds all entries of `other`.
    pub fn append(&mut self, other: &Batch<T>) {
        other.iter().for_each(|(name, stat)| self.push(name, *stat));
    }

    /// Removes all entries, and keeps the memory.
    pub fn clear(&mut self) {
        self.stats.clear();
        self.names.clear();
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.stats.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.stats.is_empty()
    }

    /// Names and the attributes of their inodes.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &T)> {
        let mut start = 0;
        self.stats.iter().map(move |(stat, end)| {
            let name = &self.names[start..*end as usize];
            start = *end as usize;
            (name, stat)
        })
    }
}

/// Sums over the entries of a directory, or of everything below it.
pub trait Tally: Clone + Default + Send + Sync + serde::Serialize + for<'a> serde::Deserialize<'a> {
    /// Adds `other`.
    fn add(&mut self, other: &Self);
}

/// Something that was left out or not seen, without being an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Skipped {
    /// Removed, or replaced by something else, between listing and reading.
    Vanished,
    /// Matches a glob.
    Excluded,
    /// A snapshot directory.
    SnapshotDirectory,
    /// Another root: it is walked on its own.
    Root,
    /// Another file system, one that was seen at another mount point, or a pseudo file system (proc, sysfs, …).
    MountPoint,
}

/// Location of a directory: a node of a walk, or a directory that a scan of inodes found.
pub(crate) trait DirectoryLocation {
    /// Its path: the root as specified, and the names below it.
    fn path(&self) -> Vec<u8>;

    /// Depth below its root, which is 0.
    fn depth(&self) -> u32;
}

/// A directory as a visitor sees it.
#[derive(Clone, Copy)]
pub struct Directory<'a> {
    place: &'a dyn DirectoryLocation,
}

impl<'a> Directory<'a> {
    /// The directory at a location.
    pub(crate) fn at(place: &'a dyn DirectoryLocation) -> Directory<'a> {
        Directory { place }
    }

    /// Its path: the root as specified, and the names below it.
    pub fn path(&self) -> Vec<u8> {
        self.place.path()
    }

    /// The path of an entry in it.
    pub fn path_of(&self, name: &[u8]) -> Vec<u8> {
        join(self.path(), name)
    }

    /// Depth below its root, which is 0.
    pub fn depth(&self) -> u32 {
        self.place.depth()
    }
}

/// Receives what a scan finds. Called from several threads; `worker` numbers them from 0.
pub trait Visitor: Sync {
    /// What is summed over directories.
    type Tally: Tally;

    /// Receives some entries of a directory (all of them, over all calls), to be added to the sums of the directory
    /// alone, at once or later through a place that `parent` holds.
    fn entries(
        &self,
        worker: usize,
        directory: Directory<'_>,
        parent: &Parent<Self::Tally>,
        batch: &Batch,
        own: &mut Self::Tally,
    );

    /// Receives an entry that has a name in its directory but is otherwise not part of the population: a mount point
    /// that is left out, an inode that could not be read.
    fn name_alone(&self, worker: usize, name: &[u8]);

    /// Receives a root, which may be a file: when a walk starts, before any worker runs; not when it is resumed, nor
    /// from an inode scan. A root has no parent, so it is among the entries of no directory.
    fn root(&self, path: &[u8], stat: &Stat);

    /// A directory was listed to the end and has `entries` entries.
    fn listed(&self, worker: usize, directory: Directory<'_>, entries: u64);

    /// Everything below a directory was seen: `own` is its own sum, `below` that of the directories in it. Returns what
    /// its parent adds to its `below`.
    fn finished(&self, worker: usize, directory: Directory<'_>, own: &Self::Tally, below: &Self::Tally) -> Self::Tally;

    /// Something was left out `count` times.
    fn skipped(&self, worker: usize, what: Skipped, count: u64);

    /// An entry with a name in a directory that is being listed was left out.
    fn left_out(&self, worker: usize, _directory: Directory<'_>, _name: &[u8], what: Skipped) {
        self.skipped(worker, what, 1);
    }

    /// An entry of a directory, or with `None` the directory itself, could not be read: the same failure goes to
    /// [`failed`](Self::failed), for people.
    fn unreadable(&self, _directory: Directory<'_>, _name: Option<&[u8]>) {}

    /// Something could not be read; the scan continues without it.
    fn failed(&self, operation: &'static str, error: std::io::Error, path: &dyn Fn() -> Vec<u8>);

    /// Whether the walk should end: asked after every directory.
    fn should_stop(&self) -> bool {
        false
    }
}

/// What to scan and how.
#[derive(Debug, Clone, Default)]
pub(crate) struct WalkOptions {
    /// Roots, as specified.
    pub roots: Vec<PathBuf>,
    /// Number of threads, at least 1.
    pub threads: usize,
    /// Whether to stay on the file system of each root.
    pub one_file_system: bool,
    /// Whether to walk snapshot directories.
    pub include_snapshots: bool,
    /// What to leave out.
    pub exclude: exclude::Exclude,
    /// Which part to walk; `None`: all.
    pub division: Option<division::Division>,
}

impl WalkOptions {
    /// Whether the walk leaves out a directory with this name, as one of snapshots.
    fn skips_as_snapshot(&self, name: &[u8]) -> bool {
        !self.include_snapshots && SNAPSHOT_DIRECTORIES.contains(&name)
    }
}

/// Names of directories that hold snapshots of their parent (NetApp, Panasas; snapper; ZFS; Isilon, Dell).
pub(crate) const SNAPSHOT_DIRECTORIES: [&[u8]; 4] = [b".snapshot", b".snapshots", b".zfs", b"~snapshot"];

/// A number of threads that costs little with a warm cache and hides latency with a cold one: four per core, 8 to 32.
pub(crate) fn default_threads() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    (4 * cores).clamp(8, 32)
}
