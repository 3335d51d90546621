//! Places that names of files wait at: directories whose sums are not final, because a file in them may yet count
//! elsewhere.
//!
//! In a walk, a directory with such names is unfinished, like one with unfinished child directories. An inode scan
//! keeps the sums of all directories until its end, so a position is enough.

use std::sync::Arc;

use super::frontier::Node;
use super::{Directory, Tally};

/// Where a name is.
#[derive(Debug, Clone)]
pub enum Place<T> {
    /// It is a root, in no directory.
    Root,
    /// In a directory of a walk.
    Walked(Waiting<T>),
    /// In the directory at this position of an inode scan.
    Position(u32),
}

/// A directory of a walk that waits for the decision on a name.
pub struct Waiting<T>(Arc<Node<T>>);

impl<T> Clone for Waiting<T> {
    fn clone(&self) -> Waiting<T> {
        Waiting(self.0.clone())
    }
}

impl<T> std::fmt::Debug for Waiting<T> {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str("Waiting")
    }
}

/// The directory of some entries, as it is known while they are listed.
#[derive(Debug)]
pub struct Parent<T> {
    /// Where its entries are.
    pub(super) place: Place<T>,
    /// Its inode number, if any of the entries is a file with several names.
    pub(super) inode: u64,
}

impl<T: Tally> Parent<T> {
    /// What a root is in.
    pub fn of_root() -> Parent<T> {
        Parent { place: Place::Root, inode: 0 }
    }

    /// The directory with this inode number, whose sums are kept at `position` until all names are known.
    pub(crate) fn at_position(position: u32, inode: u64) -> Parent<T> {
        Parent { place: Place::Position(position), inode }
    }

    /// The path of the directory, if it is one of a walk; otherwise empty.
    pub fn path(&self) -> Vec<u8> {
        self.place.path()
    }

    /// Its position, if it is a directory of an inode scan.
    pub fn position(&self) -> Option<u32> {
        match self.place {
            Place::Position(position) => Some(position),
            Place::Root | Place::Walked(_) => None,
        }
    }

    /// Its inode number, if any of the entries is a file with several names; otherwise 0.
    pub fn inode(&self) -> u64 {
        self.inode
    }

    /// Keeps the directory unfinished until the place is released.
    pub fn hold(&self) -> Place<T> {
        if let Place::Walked(Waiting(node)) = &self.place {
            node.hold();
        }
        self.place.clone()
    }
}

impl<T: Tally> Place<T> {
    /// The path of the directory, if it is one of a walk; otherwise empty.
    pub fn path(&self) -> Vec<u8> {
        match self {
            Place::Walked(waiting) => Directory { place: &*waiting.0 }.path(),
            Place::Root | Place::Position(_) => Vec::new(),
        }
    }
}

impl<T: Tally> Waiting<T> {
    /// A hold on a node that counts it already.
    pub(super) fn on(node: Arc<Node<T>>) -> Waiting<T> {
        Waiting(node)
    }

    pub(super) fn node(&self) -> &Arc<Node<T>> {
        &self.0
    }

    /// Adds `tally` to the sums of the directory, which no longer waits for this name. If that finishes it, and maybe
    /// directories above it, `finish` is called for each, as [`super::Visitor::finished`] would be.
    pub fn release(self, tally: &T, mut finish: impl FnMut(Directory<'_>, &T, &T) -> T) {
        if self.0.settle(tally, None) {
            super::frontier::finish_upwards(self.0, |node, own, below| finish(Directory { place: node }, own, below));
        }
    }
}
