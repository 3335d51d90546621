//! Scans of inodes: a whole file system from the tables that it keeps its inodes in, not through its directories.
//!
//! A [`Source`] is a kind of file system: it gives inodes in the order of their tables, and the names in a directory. [`Scan`] makes of
//! them what a walk of the same file system with `one_file_system` would have told its visitor: an [`InodeVisitor`] is told of inodes
//! and of names apart, because they lie apart. What is remembered in between is eight bytes an inode, and per directory its sums, its
//! parent and its name.
//!
//! The first attempt counts inodes as they come, which is right if every one of them is below the root: nothing is left out, no
//! mount point hides anything. [`Ended::again`] says where that turned out not to be so; [`Scope::counted_by_name`] then counts what names lead
//! to, reading the tables twice. This is how an attempt begins where something is left out.
//!
//! [`ext`] reads ext2, ext3 and ext4, [`btrfs`] and [`xfs`] what they are called after. [`target`] says what a path is, and [`medium`] reads it.

pub mod btrfs;
mod checksum;
pub mod ext;
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
use super::{Batch, Stat, Visitor};

/// A kind of file system that can be read by its inodes.
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
    /// By what it is called in the list of mounts.
    pub fn called(name: &str) -> Option<FileSystem> {
        match name {
            "ext2" | "ext3" | "ext4" => Some(FileSystem::Ext),
            "btrfs" => Some(FileSystem::Btrfs),
            "xfs" => Some(FileSystem::Xfs),
            _ => None,
        }
    }
}

/// What a medium seems to hold, by the mark of a superblock.
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

/// Where a source keeps an inode: a part of its tables, and a place there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// The part.
    pub part: usize,
    /// The place in it.
    pub offset: usize,
}

/// What a part of the tables holds.
#[derive(Debug)]
pub enum Found<L> {
    /// An inode that is in use and has names (or is the root).
    Inode {
        /// Its place in the part.
        offset: usize,
        /// What it says.
        stat: Stat,
        /// Of a directory, where its names are.
        listing: Option<L>,
    },
    /// Something that could not be read.
    Damaged(Damage),
}

/// What a directory holds.
#[derive(Debug)]
pub enum Listed<'a> {
    /// A name and the inode that it leads to; also `.` and `..`, where they are stored.
    Name(&'a [u8], u64),
    /// The name of a directory where another file system begins, which is left out.
    Elsewhere(&'a [u8]),
    /// A part that could not be read.
    Damaged(Damage),
}

/// Something that could not be read.
#[derive(Debug)]
pub struct Damage {
    /// What was being done.
    pub operation: &'static str,
    /// The inode, if it is one.
    pub inode: Option<u64>,
    /// Why.
    pub error: io::Error,
}

/// A file system as its tables show it. Everything is read from several threads.
pub trait Source: Sync {
    /// Where a directory has its names.
    type Listing: Send + Sync;
    /// What a thread needs again for every part and directory.
    type Buffers: Default + Send;

    /// The inode of its root directory.
    fn root(&self) -> u64;

    /// How many parts its tables have.
    fn parts(&self) -> usize;

    /// How many places for inodes a part has, of which the last may be in use.
    fn slots(&self, part: usize) -> usize;

    /// Where an inode is; `None` if there cannot be one of that number.
    fn slot(&self, inode: u64) -> Option<Slot>;

    /// Reads a part from front to back.
    fn read_part(&self, part: usize, buffers: &mut Self::Buffers, found: &mut impl FnMut(Found<Self::Listing>));

    /// About where a listing is on the device: directories are read in this order.
    fn position(&self, listing: &Self::Listing) -> u64;

    /// How many inodes are in use, as the file system says; `None` if that is not known.
    fn inodes_in_use(&self) -> Option<u64> {
        None
    }

    /// What tells the file system from every other, as far as its directories may be known from an earlier scan; `None` if they may not.
    fn identity(&self) -> Option<u64> {
        None
    }

    /// What a directory says of itself, in one number that is another after every change, and when it changed last (seconds since
    /// 1970); `None` if that cannot be known.
    fn version(&self, _listing: &Self::Listing) -> Option<(u64, i64)> {
        None
    }

    /// Where on the device the names of a directory begin and how many bytes they take, where that is one place.
    fn extent(&self, _listing: &Self::Listing) -> Option<(u64, u64)> {
        None
    }

    /// Says that a range of the device will be read soon.
    fn will_need(&self, _offset: u64, _length: u64) {}

    /// Reads the names of a directory.
    fn list(
        &self,
        inode: u64,
        listing: &Self::Listing,
        buffers: &mut Self::Buffers,
        listed: &mut dyn FnMut(Listed<'_>),
    );

    /// Forgets what it knows against reading too much of a damaged file system: all directories will be read once more.
    fn begin_listing(&self);
}

/// What a name leads to, as far as it matters to the sums of its directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Named {
    /// A regular file.
    File {
        /// The device that holds it.
        device: u64,
        /// Its inode number there.
        inode: u64,
        /// Its size.
        size_bytes: u64,
        /// What is allocated to it.
        allocated_bytes: u64,
        /// How many names it has.
        link_count: u32,
    },
    /// Anything else.
    Other,
}

/// Takes what a scan of inodes finds: inodes and their names apart. Of [`Visitor`] it is told everything but entries and roots.
pub trait InodeVisitor: Visitor {
    /// What is kept of the sums of a directory alone until all directories were read: there are as many as directories.
    type Kept: Default + Send + Sync;

    /// What is kept of sums.
    fn kept(own: Self::Tally) -> Self::Kept;

    /// The sums of which that was kept.
    fn restored(kept: &Self::Kept) -> Self::Tally;

    /// Some inodes, each with the number of its names below the root. The root itself is among them, with one.
    fn inodes(&self, worker: usize, batch: &[(Stat, u32)]);

    /// Some names of a directory (all of them, over all calls), to be added to the sums of the directory alone.
    fn names(&self, worker: usize, batch: &Batch<Named>, own: &mut Self::Tally);
}

/// What part of a file system is scanned, and how it is called.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    /// The path of the root, for people.
    pub path: Vec<u8>,
    /// The inode of the directory to begin at; `None`: the root of the file system.
    pub root: Option<u64>,
    /// Paths below the root where something else is mounted, which hides what is there.
    pub mount_points: Vec<Vec<u8>>,
    /// Whether snapshot directories are counted too.
    pub include_snapshots: bool,
    /// What to leave out.
    pub exclude: Exclude,
    /// Whether to count only the inodes that names lead to, though nothing is left out.
    pub counted_by_name: bool,
    /// Whether names are left aside: nothing is told of directories then but their inodes.
    pub without_names: bool,
    /// Number of threads, at least 1.
    pub threads: usize,
    /// The device number that the inodes are said to be on.
    pub device: u64,
}

/// An error that says what is wrong with what was read.
pub(crate) fn damaged(cause: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, cause)
}
