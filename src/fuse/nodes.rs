//! The objects that the kernel knows: by number, how often it has looked each up, and a place where it is named.
//!
//! A node is the number of an object in the store, for its life. The store finds objects by directory and name, so a
//! node knows the names under which the kernel has met it. Directories are known by number, too: when one is renamed,
//! nothing below it changes here.
//!
//! What is open or has attributes that the store lacks is [`Live`], too, as long as that is so or somebody holds it.
//! Invariants: there is one `Live` of an object at a time; the known names of an object change only with its state
//! locked, but for those under which the kernel meets it. Lock order: a listing, then the states of `Live`s, in the
//! order of their numbers, then the table; under the lock of the table a state is only tried.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, TryLockError};

use super::live::Live;
use super::node::{Node, NodeTable};
use super::wire::ROOT_NODE;
use crate::locks::lock;
use crate::store::ids::ObjectNumber;

const NUMBER_BYTES: usize = size_of::<u64>();
/// Most names in a path that is shown.
const DEEPEST: usize = 256;

/// A directory and a name in it: the number of the directory, and the name behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place(Box<[u8]>);

#[derive(Debug, Default)]
struct Table {
    nodes: NodeTable,
    /// Known names besides the last of a node, the one first met first.
    others: HashMap<ObjectNumber, Vec<Place>>,
    live: HashMap<ObjectNumber, Arc<Live>>,
    /// In a mount for reading only: the record that a file had when it was last opened.
    opened: HashMap<ObjectNumber, u64>,
}

/// The table.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    table: Mutex<Table>,
}

/// What is live of an object, held.
#[derive(Debug)]
pub(super) struct Held<'n> {
    nodes: &'n Nodes,
    live: Option<Arc<Live>>,
}

impl Place {
    fn new(directory: ObjectNumber, name: &[u8]) -> Place {
        Place([&directory.0.to_le_bytes()[..], name].concat().into_boxed_slice())
    }

    /// The directory, and the name in it.
    pub(super) fn parts(&self) -> (ObjectNumber, &[u8]) {
        let (directory, name) = self.0.split_first_chunk::<NUMBER_BYTES>().expect("it begins with a number");
        (ObjectNumber(u64::from_le_bytes(*directory)), name)
    }
}

impl Deref for Held<'_> {
    type Target = Live;

    fn deref(&self) -> &Live {
        self.live.as_deref().expect("it is there until this is dropped")
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let mut table = lock(&self.nodes.table);
        if let Some(number) = self.live.take().map(|live| live.number) {
            table.trim(number);
        }
    }
}

impl Table {
    fn look_ups(&self, number: ObjectNumber) -> u32 {
        self.nodes.get(number).map_or(0, Node::look_ups)
    }

    /// Drops the `Live` of an object if nobody holds it and its state need not stay (`LiveState::is_needed`); then the
    /// node, if there is no `Live` and the kernel has no look-ups of it.
    fn trim(&mut self, number: ObjectNumber) {
        if let Some(live) = self.live.get(&number)
            && Arc::strong_count(live) == 1
        {
            let is_known = self.look_ups(number) > 0;
            let is_needed = match live.state.try_lock() {
                Ok(state) => state.is_needed(is_known),
                Err(TryLockError::Poisoned(state)) => state.into_inner().is_needed(is_known),
                Err(TryLockError::WouldBlock) => true,
            };
            if !is_needed {
                self.live.remove(&number);
            }
        }
        if self.look_ups(number) == 0 && !self.live.contains_key(&number) {
            self.nodes.remove(number);
            self.others.remove(&number);
            self.opened.remove(&number);
        }
    }

    /// The known names of an object, each with its directory.
    fn names(&self, number: ObjectNumber) -> impl Iterator<Item = (ObjectNumber, &[u8])> {
        let others = self.others.get(&number).into_iter().flatten().map(Place::parts);
        self.nodes.get(number).and_then(Node::place).into_iter().chain(others)
    }

    /// An object that is known has another name.
    fn name(&mut self, number: ObjectNumber, directory: ObjectNumber, name: &[u8]) {
        let Some(node) = self.nodes.get_mut(number) else { return };
        if let Some((directory, name)) = node.place() {
            self.others.entry(number).or_default().push(Place::new(directory, name));
        }
        node.set_place(Some((directory, name)));
    }

    /// An object has lost a name, if it had it.
    fn unname(&mut self, number: ObjectNumber, lost: (ObjectNumber, &[u8])) {
        let Table { nodes, others, .. } = self;
        let Some(node) = nodes.get_mut(number) else { return };
        if let Some(known) = others.get_mut(&number) {
            known.retain(|place| place.parts() != lost);
        }
        if node.place() == Some(lost) {
            let other = others.get_mut(&number).and_then(Vec::pop);
            node.set_place(other.as_ref().map(Place::parts));
        }
        if others.get(&number).is_some_and(Vec::is_empty) {
            others.remove(&number);
        }
    }
}

impl Nodes {
    /// The kernel has met an object under a name, which is the first of its names from then on: beside a writer, the
    /// others may be gone by now.
    pub(super) fn met(&self, number: ObjectNumber, directory: ObjectNumber, name: &[u8]) {
        let mut table = lock(&self.table);
        table.nodes.get_or_make(number).add_look_up();
        if table.nodes.get(number).and_then(Node::place) != Some((directory, name)) {
            table.unname(number, (directory, name));
            table.name(number, directory, name);
        }
    }

    /// The kernel has met an object that has no name.
    pub(super) fn met_nameless(&self, number: ObjectNumber) {
        lock(&self.table).nodes.get_or_make(number).add_look_up();
    }

    /// The kernel forgets look-ups.
    pub(super) fn forget(&self, number: ObjectNumber, look_ups: u64) {
        let mut table = lock(&self.table);
        if let Some(node) = table.nodes.get_mut(number) {
            node.forget(look_ups);
            if node.look_ups() == 0 {
                table.trim(number);
            }
        }
    }

    /// Whether there is a node of an object: the kernel knows it, or something of it is live.
    pub(super) fn is_known(&self, number: ObjectNumber) -> bool {
        lock(&self.table).nodes.get(number).is_some()
    }

    /// Whether an object that is known has another known name than this.
    pub(super) fn has_other_name(&self, number: ObjectNumber, directory: ObjectNumber, name: &[u8]) -> bool {
        lock(&self.table).names(number).any(|known| known != (directory, name))
    }

    /// A place where an object is named, as far as is known.
    pub(super) fn place(&self, number: ObjectNumber) -> Option<Place> {
        let table = lock(&self.table);
        let (directory, name) = table.nodes.get(number)?.place()?;
        Some(Place::new(directory, name))
    }

    /// The path under which an object was last met, for messages: in the mount, without a slash at its beginning;
    /// `None` for the root, and for what has no name that is known.
    pub(super) fn path(&self, number: ObjectNumber) -> Option<Vec<u8>> {
        let table = lock(&self.table);
        let (mut names, mut at) = (Vec::new(), number);
        // A rename may be under way: then it is cut.
        while at.0 != ROOT_NODE && names.len() < DEEPEST {
            let (directory, name) = table.nodes.get(at)?.place()?;
            names.push(name);
            at = directory;
        }
        names.reverse();
        Some(names.join(&b'/')).filter(|path| !path.is_empty())
    }

    /// An object has another name in place of one: at no time it has none.
    pub(super) fn moved(&self, number: ObjectNumber, old: (ObjectNumber, &[u8]), new: (ObjectNumber, &[u8])) {
        let mut table = lock(&self.table);
        table.unname(number, old);
        table.name(number, new.0, new.1);
    }

    /// An object has lost a name.
    pub(super) fn unnamed(&self, number: ObjectNumber, directory: ObjectNumber, name: &[u8]) {
        lock(&self.table).unname(number, (directory, name));
    }

    /// A file is opened that has this record; returns whether it had the same when it was opened before.
    pub(super) fn is_opened_again(&self, number: ObjectNumber, record: u64) -> bool {
        lock(&self.table).opened.insert(number, record) == Some(record)
    }

    /// What is live of an object, made if there is nothing yet.
    pub(super) fn hold(&self, number: ObjectNumber) -> Held<'_> {
        let mut table = lock(&self.table);
        let live = table.live.entry(number).or_insert_with(|| Arc::new(Live::new(number)));
        Held { nodes: self, live: Some(Arc::clone(live)) }
    }

    /// What is live of an object, if there is something.
    pub(super) fn held(&self, number: ObjectNumber) -> Option<Held<'_>> {
        let live = lock(&self.table).live.get(&number).cloned()?;
        Some(Held { nodes: self, live: Some(live) })
    }

    /// Everything that is live.
    pub(super) fn all_live(&self) -> Vec<Held<'_>> {
        let live: Vec<_> = lock(&self.table).live.values().cloned().collect();
        live.into_iter().map(|live| Held { nodes: self, live: Some(live) }).collect()
    }

    /// Nodes that the kernel knows.
    pub(super) fn known(&self) -> Vec<ObjectNumber> {
        lock(&self.table).nodes.numbers().collect()
    }

    #[cfg(test)]
    fn count(&self) -> (usize, usize) {
        let table = lock(&self.table);
        (table.nodes.len(), table.live.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: ObjectNumber = ObjectNumber(1);

    #[test]
    fn a_node_stays_while_the_kernel_knows_it_or_somebody_holds_it() {
        let (nodes, number) = (Nodes::default(), ObjectNumber(7));
        nodes.met(number, ROOT, b"a");
        nodes.met(number, ROOT, b"a");
        nodes.met(number, ROOT, b"b");
        nodes.forget(number, 1);
        assert_eq!(nodes.place(number), Some(Place::new(ROOT, b"b")));
        nodes.unnamed(number, ROOT, b"b");
        assert_eq!(nodes.place(number).as_ref().map(Place::parts), Some((ROOT, &b"a"[..])));
        nodes.forget(number, 1);
        assert!(nodes.is_known(number));
        let held = nodes.hold(number);
        nodes.forget(number, 1);
        assert_eq!((nodes.count(), nodes.place(number).is_some()), ((1, 1), true));
        drop(held);
        assert_eq!((nodes.count(), nodes.is_known(number)), ((0, 0), false));
    }

    #[test]
    fn each_name_that_is_left_finds_the_object() {
        let (nodes, number) = (Nodes::default(), ObjectNumber(7));
        for name in [b"a", b"b", b"c", b"b"] {
            nodes.met(number, ROOT, name);
        }
        for (lost, last) in [(b"b", Some(b"c")), (b"c", Some(b"a")), (b"c", Some(b"a")), (b"a", None)] {
            nodes.unnamed(number, ROOT, lost);
            assert_eq!(nodes.place(number), last.map(|name| Place::new(ROOT, name)));
        }
        assert!(lock(&nodes.table).others.is_empty() && nodes.is_known(number));
        nodes.met(number, ROOT, b"d");
        assert_eq!(nodes.place(number), Some(Place::new(ROOT, b"d")));
    }

    #[test]
    fn a_name_that_moved_is_known_under_the_new_one_alone() {
        let (nodes, number) = (Nodes::default(), ObjectNumber(7));
        nodes.moved(number, (ROOT, b"a"), (ROOT, b"b"));
        assert!(!nodes.is_known(number));
        nodes.met(number, ROOT, b"a");
        nodes.moved(number, (ROOT, b"a"), (ROOT, b"b"));
        assert_eq!(nodes.place(number), Some(Place::new(ROOT, b"b")));
        assert!(!nodes.has_other_name(number, ROOT, b"b"));
        // The kernel has met it under another name only.
        nodes.moved(number, (ROOT, b"c"), (ROOT, b"d"));
        assert!(nodes.has_other_name(number, ROOT, b"d") && nodes.has_other_name(number, ROOT, b"b"));
    }

    #[test]
    fn the_path_of_a_message_is_that_of_the_names_last_met() {
        let nodes = Nodes::default();
        let [directory, file, other] = [7, 8, 9].map(ObjectNumber);
        nodes.met(directory, ROOT, b"a");
        nodes.met(file, directory, b"b");
        assert_eq!(nodes.path(file).as_deref(), Some(&b"a/b"[..]));
        nodes.moved(directory, (ROOT, b"a"), (ROOT, b"c"));
        assert_eq!(nodes.path(file).as_deref(), Some(&b"c/b"[..]));
        assert_eq!((nodes.path(ROOT), nodes.path(other)), (None, None));
    }

    #[test]
    fn what_is_changed_stays_live_and_there_is_one_of_it() {
        let (nodes, number) = (Nodes::default(), ObjectNumber(7));
        let (one, other) = (nodes.hold(number), nodes.hold(number));
        lock(&one.state).is_dirty = true;
        drop(one);
        assert!(lock(&other.state).is_dirty);
        drop(other);
        assert_eq!(nodes.all_live().len(), 1);
        lock(&nodes.hold(number).state).is_dirty = false;
        assert_eq!(nodes.count(), (0, 0));
    }
}
