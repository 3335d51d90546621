//! Which of the names of a file is the one that it counts for, and that name until this is decided.
//!
//! It is the name in the directory with the smallest inode number, and there the smallest in byte order; a file that is
//! a root itself comes before all others. Both a walk and an inode scan know this of a name at once, and neither threads
//! nor the order of directories influence it. (A directory that a bind mount shows twice is the same directory: there
//! the smaller path decides.)

use serde::{Deserialize, Serialize};

use super::places::Tally;
use crate::scan::links::Link;
use crate::scan::place::{Parent, Place};
use crate::scan::{Stat, join};

/// The smallest name of a file that was met, and what is needed to count the file there.
#[derive(Debug)]
pub(super) struct LinkName {
    pub(super) place: Place<Tally>,
    pub(super) data: LinkNameData,
}

/// A name without its place.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct LinkNameData {
    /// Inode number of its directory; 0 for a root.
    directory: u64,
    /// The name; the whole path of a root.
    pub(super) name: Box<[u8]>,
    pub(super) file: LinkedFile,
    /// The row for the table of files, if there is one.
    pub(super) row: Option<Box<Stat>>,
}

/// What the sums of a directory need to know of a file.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct LinkedFile {
    pub(super) size_bytes: u64,
    pub(super) allocated_bytes: u64,
    pub(super) link_count: u32,
}

/// A name that is being met.
pub(super) struct MetName<'a> {
    pub(super) link: Link,
    pub(super) file: LinkedFile,
    pub(super) name: &'a [u8],
    pub(super) parent: &'a Parent<Tally>,
}

impl LinkedFile {
    pub(super) fn of(stat: &Stat) -> LinkedFile {
        let Stat { size_bytes, allocated_bytes, link_count, .. } = *stat;
        LinkedFile { size_bytes, allocated_bytes, link_count }
    }
}

impl MetName<'_> {
    /// Whether this name comes before `other`.
    pub(super) fn is_before(&self, other: &LinkName) -> bool {
        let mine = (self.parent.inode(), self.name);
        match mine.cmp(&(other.data.directory, &other.data.name)) {
            std::cmp::Ordering::Equal => self.parent.path() < other.place.path(),
            different => different.is_lt(),
        }
    }

    /// The name to keep; its directory waits for the decision.
    pub(super) fn keep(&self, row: Option<&Stat>) -> LinkName {
        let row = row.map(|stat| Box::new(*stat));
        let data = LinkNameData { directory: self.parent.inode(), name: self.name.into(), file: self.file, row };
        LinkName { place: self.parent.hold(), data }
    }
}

impl LinkName {
    /// Its whole path.
    pub(super) fn path(&self) -> Vec<u8> {
        join(self.place.path(), &self.data.name)
    }
}
