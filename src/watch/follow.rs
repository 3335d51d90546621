//! Names of which an event says all: no look through their directory is needed, which would take four system calls.
//!
//! There are three conditions. The directory is the one that is known, by its handle: a number may be used again, a
//! handle never is. One event on the name was read since the last look, and it says one thing ([`Told`]): whatever
//! happens to the name later is another event, and another look. And a child that is there is found by its path under
//! the number that the event reported: then its attributes are those of that inode, even if the path led elsewhere for
//! a moment, and that it has this name is what the event says.
//!
//! A directory that moved and is known by its handle has the names that are known of it, so it is not listed again. The
//! attributes of the directory that a name is in are looked at later, once for many changes.
//!
//! Everything else is looked at: symbolic links (their target is read by name), mount points, names with several
//! events, and all names where the kernel does not report children (before Linux 5.17) or handles do not tell numbers.

use std::time::Instant;

use hashbrown::HashMap;

use super::events::{HandleBytes, Happened, MarkedName, Told, probable_number};
use super::scan::{Unlisted, to_list};
use super::tree::{Entry, InodeSlot};
use super::{LONGEST_PATH_BYTES, Watch};
use crate::scan::Kind;
use crate::sys::Handle;

/// What came of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Followed {
    /// It has to be looked at.
    Not,
    /// Its child was looked at.
    Here,
    /// It is gone; whether its child has no other known name.
    Gone { is_nameless: bool },
}

/// Forgets an inode that has no name any more, unless it was written: then it is looked at later, in case it has one
/// again.
pub(super) fn forget_changes(child: &[u8], inodes: &mut HashMap<HandleBytes, Happened>) {
    if inodes.get(child).is_some_and(|happened| !happened.is_written) {
        inodes.remove(child);
    }
}

impl Watch<'_> {
    /// Updates a name by the only event on it, as far as that is certain. Directories that are not known are added to
    /// `unlisted`.
    pub(super) fn follow(&mut self, at: &MarkedName<'_>, now: Instant, unlisted: &mut Vec<Unlisted>) -> Followed {
        let (Some(told), Some(child)) = (at.told, at.child) else { return Followed::Not };
        let directory = probable_number(at.directory).and_then(|number| self.tree.directory(number, at.directory));
        let (Some(directory), Some(number)) = (directory, probable_number(child)) else { return Followed::Not };
        let followed = match told {
            Told::Here if !self.follow_child(directory, at.name, (number, child), unlisted) => return Followed::Not,
            Told::Here => Followed::Here,
            Told::Gone => Followed::Gone { is_nameless: self.remove_child(directory, at.name, number) },
        };
        self.written_back.add(at.directory, now);
        followed
    }

    /// Looks at the child of a name by its path. Returns whether it is the one that the event reported.
    fn follow_child(
        &mut self,
        directory: InodeSlot,
        name: &[u8],
        (number, handle): (u64, &[u8]),
        unlisted: &mut Vec<Unlisted>,
    ) -> bool {
        let path = self.tree.write_path(directory, name, LONGEST_PATH_BYTES, &mut self.path);
        let Some(path) = path else { return false };
        let Some(stat) = self.truth.plain(path).filter(|stat| stat.inode == number) else { return false };
        self.tree.put(directory, name, &Entry::Inode(stat));
        if stat.kind == Kind::Directory
            && self.tree.directory(number, handle).is_none_or(|known| self.tree.trouble(known).is_some())
        {
            unlisted.extend(to_list(&mut self.tree, number, Handle::from_bytes(handle)));
        }
        true
    }

    /// Removes a name. Returns whether the child with this number has no other.
    fn remove_child(&mut self, directory: InodeSlot, name: &[u8], number: u64) -> bool {
        let Some(known) = self.tree.child(directory, name) else { return self.tree.inode(number).is_none() };
        let inode = self.tree.target(known).ok().filter(|&inode| self.tree.number(inode) == number);
        self.tree.detach(known);
        inode.is_some_and(|inode| self.tree.place(inode).is_none())
    }

    /// Forgets what happened to a child that was looked at under a name, or has another name, which will be looked at.
    pub(super) fn looked_at_child(
        &mut self,
        child: Option<&[u8]>,
        inodes: &mut HashMap<HandleBytes, Happened>,
        now: Instant,
    ) {
        if let Some((handle, happened)) = child.and_then(|child| inodes.remove_entry(child))
            && happened.is_written
        {
            self.written_back.add(&handle, now);
        }
    }
}
