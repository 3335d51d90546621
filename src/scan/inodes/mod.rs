//! Inode scans: a whole file system from its inode tables, not through its directories.
//!
//! A [`InodeSource`] is a kind of file system: it returns inodes in table order, and the names in a directory. [`Scan`]
//! derives from them what a walk of the same file system with `one_file_system` would have reported to its visitor: an
//! [`InodeVisitor`] receives inodes and names separately, because they are stored separately. In between, eight bytes
//! per inode are kept in memory, and per directory its sums, its parent and its name; or, beyond a bound, in a file
//! ([`Scope::spill`]).
//!
//! The first attempt counts inodes in table order. That is correct if every one of them is below the root: nothing is
//! left out, no mount point hides anything. Otherwise [`Ended::again`] is set, and a scan with
//! [`Scope::counted_by_name`] counts what names lead to, reading the tables twice. A scan that leaves something out
//! begins that way.
//!
//! [`ext`] reads ext2, ext3 and ext4, [`btrfs`] and [`xfs`] read the file systems of those names; [`kernel`] asks the
//! kernel for a mounted XFS. [`target`] identifies what a path refers to, and [`medium`] reads it.

#![cfg_attr(not(test), warn(clippy::indexing_slicing))]

mod ahead;
pub mod btrfs;
mod checksum;
mod directories;
pub mod ext;
mod fields;
pub mod kernel;
pub mod medium;
mod records;
pub mod remember;
mod scan;
pub mod target;
mod tree;
pub mod xfs;

pub use scan::{Ended, Scan};

use std::io;

use super::exclude::Exclude;
use super::place::Parent;
use super::{Batch, Directory, Stat, Visitor};
use crate::sys::spill::Spill;

/// A kind of file system whose inode tables can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileSystem {
    /// ext2, ext3 or ext4.
    Ext,
    /// btrfs.
    Btrfs,
    /// XFS.
    Xfs,
}

impl FileSystem {
    /// By its name in the list of mounts.
    pub fn called(name: &str) -> Option<FileSystem> {
        match name {
            "ext2" | "ext3" | "ext4" => Some(FileSystem::Ext),
            "btrfs" => Some(FileSystem::Btrfs),
            "xfs" => Some(FileSystem::Xfs),
            _ => None,
        }
    }
}

/// Detects the kind of a file system by the magic number of its superblock.
pub fn file_system(medium: &impl medium::Medium) -> Option<FileSystem> {
    let has = |mark: &[u8], offset: u64| {
        let mut found = vec![0; mark.len()];
        medium.read_at(&mut found, offset).is_ok() && found == mark
    };
    let marks: [(&[u8], u64, FileSystem); 4] = [
        (b"XFSB", 0, FileSystem::Xfs),
        (b"\x53\xef", 1024 + 0x38, FileSystem::Ext),
        (b"_BHRfS_M", (64 << 10) + 0x40, FileSystem::Btrfs),
        (b"_BHRfS_M", (64 << 20) + 0x40, FileSystem::Btrfs),
    ];
    marks.into_iter().find(|&(mark, offset, _)| has(mark, offset)).map(|(.., kind)| kind)
}

/// Location of an inode: a part of the tables, and a slot in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// The part.
    pub part: usize,
    /// The slot in it.
    pub offset: usize,
}

/// Content of a part of the tables.
#[derive(Debug)]
pub enum Found<L> {
    /// An inode that is in use and has names (or is the root).
    Inode {
        /// Its slot in the part.
        offset: usize,
        /// Its attributes.
        stat: Stat,
        /// For a directory, the location of its names.
        listing: Option<L>,
    },
    /// Something unreadable. An inode counts as damaged where a name leads to it.
    Damaged(Damage),
}

/// Content of a directory.
#[derive(Debug)]
pub enum Listed<'a> {
    /// A name and its inode; also `.` and `..`, if they are stored.
    Name(&'a [u8], u64),
    /// The name of a directory where another file system begins, which is left out.
    Elsewhere(&'a [u8]),
    /// A name that is listed but cannot be looked up.
    Unreadable(&'a [u8], io::Error),
    /// The directory was removed meanwhile.
    Gone,
    /// An unreadable part.
    Damaged(Damage),
}

/// Something unreadable.
#[derive(Debug)]
pub struct Damage {
    /// The operation that failed.
    pub operation: &'static str,
    /// The inode, if it was one.
    pub inode: Option<u64>,
    /// Why.
    pub error: io::Error,
}

/// The tables of a file system. Several threads read it.
pub trait InodeSource: Sync {
    /// Location of the names of a directory.
    type Listing: Send + Sync;
    /// Buffers that a thread reuses for every part and directory.
    type Buffers: Default + Send;

    /// The inode of its root directory.
    fn root(&self) -> u64;

    /// Number of parts.
    fn parts(&self) -> usize;

    /// Number of inode slots in a part, of which the last may be in use.
    fn slots(&self, part: usize) -> usize;

    /// Location of an inode; `None` if no inode can have that number, or its part was not read yet.
    fn slot(&self, inode: u64) -> Option<Slot>;

    /// Reads a part from front to back. A scan reads each once, or twice; the offsets of the first time count.
    fn read_part(&self, part: usize, buffers: &mut Self::Buffers, found: &mut impl FnMut(Found<Self::Listing>));

    /// Approximate position of a listing on the device: directories are read in this order.
    fn position(&self, listing: &Self::Listing) -> u64;

    /// Number of inodes in use, as the file system reports it; `None` if unknown.
    fn inodes_in_use(&self) -> Option<u64> {
        None
    }

    /// Identifies the file system among all others, for reusing directories from an earlier scan; `None` if they may
    /// not be reused.
    fn identity(&self) -> Option<u64> {
        None
    }

    /// The state of a directory, as a number that differs after every change, and the time of its last change (seconds
    /// since 1970); `None` if unknown.
    fn version(&self, _listing: &Self::Listing) -> Option<(u64, i64)> {
        None
    }

    /// Offset and length of a directory's names on the device, if they are contiguous.
    fn extent(&self, _listing: &Self::Listing) -> Option<(u64, u64)> {
        None
    }

    /// Announces that a range of the device will be read soon.
    fn will_need(&self, _offset: u64, _length: u64) {}

    /// Reads the names of a directory.
    fn list(
        &self,
        inode: u64,
        listing: &Self::Listing,
        buffers: &mut Self::Buffers,
        listed: &mut dyn FnMut(Listed<'_>),
    );

    /// Resets the limit on directory blocks (which protects against damaged file systems), so that all directories can
    /// be read once more.
    fn begin_listing(&self);
}

/// What a name refers to, as far as it matters to the sums of its directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Named {
    /// A regular file.
    File {
        /// The device that contains it.
        device: u64,
        /// Its inode number there.
        inode: u64,
        /// Its size.
        size_bytes: u64,
        /// Its allocated bytes.
        allocated_bytes: u64,
        /// Its number of names.
        link_count: u32,
        /// Its owner.
        uid: u32,
        /// Day of the last change of its content, since 1970; within the range of the type.
        day: u16,
    },
    /// Anything else.
    Other,
}

/// Receives what a scan of inodes finds: inodes and their names separately. From [`Visitor`] it uses everything except
/// entries and roots.
pub trait InodeVisitor: Visitor {
    /// A directory's own sums in compact form, until all directories are read: there is one per directory.
    type Kept: Default + Send + Sync;

    /// Compacts sums.
    fn kept(own: Self::Tally) -> Self::Kept;

    /// Restores compacted sums.
    fn restored(kept: &Self::Kept) -> Self::Tally;

    /// Receives some inodes, each with the number of its names below the root. The root itself is among them, with one.
    fn inodes(&self, worker: usize, batch: &[(Stat, u32)]);

    /// Receives some names of a directory (all of them, over all calls), to be added to the sums of the directory
    /// alone.
    fn names(&self, worker: usize, parent: &Parent<Self::Tally>, batch: &Batch<Named>, own: &mut Self::Tally);

    /// All names were received.
    fn named(&self);

    /// The directory at a position has a path now: all its names were received, and it is about to be finished.
    fn located(&self, position: u32, directory: Directory<'_>);

    /// What else counts in the directory at a position: decided after its names were received.
    fn late(&self, position: u32) -> Self::Tally;
}

/// The part of a file system to scan, and its path.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    /// The path of the root, for people.
    pub path: Vec<u8>,
    /// The inode of the start directory; `None` for the root of the file system.
    pub root: Option<u64>,
    /// Paths below the root where something else is mounted, which hides the files below.
    pub mount_points: Vec<Vec<u8>>,
    /// Whether snapshot directories are counted too.
    pub include_snapshots: bool,
    /// What to leave out.
    pub exclude: Exclude,
    /// Whether to count only inodes that names lead to, even if nothing is left out.
    pub counted_by_name: bool,
    /// Whether to ignore names: directories then count only as inodes.
    pub without_names: bool,
    /// Number of threads, at least 1.
    pub threads: usize,
    /// The device number that inodes are reported with.
    pub device: u64,
    /// Where the tables of inodes and directories are kept.
    pub spill: Spill,
}

/// An error that describes damage in the data read.
pub(crate) fn damaged(cause: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, cause)
}
