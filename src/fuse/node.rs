//! Nodes in little memory: the kernel may know millions.
//!
//! A node is one piece of memory, and the table has nothing but where it is:
//!
//! | bytes | |
//! | --- | --- |
//! | 8 | number of the object |
//! | 8 | number of the directory in which it is named; [`ObjectNumber::NONE`] for what has no name |
//! | 4 | look-ups that the kernel has not forgotten |
//! | rest | the name |

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::store::ids::ObjectNumber;

const DIRECTORY_AT: usize = 8;
const LOOK_UPS_AT: usize = 16;
const NAME_AT: usize = 20;

/// What is known of an object.
#[derive(Debug)]
pub(super) struct Node(Box<[u8]>);

impl Node {
    fn new(number: ObjectNumber, look_ups: u32, place: Option<(ObjectNumber, &[u8])>) -> Node {
        let (directory, name) = place.unwrap_or((ObjectNumber::NONE, b""));
        let parts = [&number.0.to_le_bytes()[..], &directory.0.to_le_bytes(), &look_ups.to_le_bytes(), name];
        Node(parts.concat().into_boxed_slice())
    }

    fn number_at(&self, at: usize) -> ObjectNumber {
        ObjectNumber(u64::from_le_bytes(*self.0[at..].first_chunk().expect("a node begins with two numbers")))
    }

    fn number(&self) -> ObjectNumber {
        self.number_at(0)
    }

    /// The last known name, with its directory.
    pub(super) fn place(&self) -> Option<(ObjectNumber, &[u8])> {
        let directory = self.number_at(DIRECTORY_AT);
        (!directory.is_none()).then(|| (directory, &self.0[NAME_AT..]))
    }

    pub(super) fn set_place(&mut self, place: Option<(ObjectNumber, &[u8])>) {
        *self = Node::new(self.number(), self.look_ups(), place);
    }

    /// Look-ups that the kernel has not forgotten.
    pub(super) fn look_ups(&self) -> u32 {
        u32::from_le_bytes(*self.0[LOOK_UPS_AT..].first_chunk().expect("behind the numbers"))
    }

    fn set_look_ups(&mut self, look_ups: u32) {
        self.0[LOOK_UPS_AT..NAME_AT].copy_from_slice(&look_ups.to_le_bytes());
    }

    /// The kernel looked it up. A count that has come to its end stays there: the node is then never forgotten.
    pub(super) fn add_look_up(&mut self) {
        self.set_look_ups(self.look_ups().saturating_add(1));
    }

    /// The kernel forgets look-ups, no more than it made.
    pub(super) fn forget(&mut self, look_ups: u64) {
        if self.look_ups() < u32::MAX {
            let left = u64::from(self.look_ups()).saturating_sub(look_ups);
            self.set_look_ups(left as u32);
        }
    }
}

/// Nodes by number.
#[derive(Debug, Default)]
pub(super) struct NodeTable {
    nodes: HashTable<Node>,
    hasher: DefaultHashBuilder,
}

impl NodeTable {
    fn hash(&self, number: ObjectNumber) -> u64 {
        self.hasher.hash_one(number)
    }

    pub(super) fn get(&self, number: ObjectNumber) -> Option<&Node> {
        self.nodes.find(self.hash(number), |node| node.number() == number)
    }

    pub(super) fn get_mut(&mut self, number: ObjectNumber) -> Option<&mut Node> {
        let hash = self.hash(number);
        self.nodes.find_mut(hash, |node| node.number() == number)
    }

    /// The node of a number, made without look-ups and name if there is none.
    pub(super) fn get_or_make(&mut self, number: ObjectNumber) -> &mut Node {
        let NodeTable { nodes, hasher } = self;
        let hash = |node: &Node| hasher.hash_one(node.number());
        let entry = nodes.entry(hasher.hash_one(number), |node| node.number() == number, hash);
        entry.or_insert_with(|| Node::new(number, 0, None)).into_mut()
    }

    pub(super) fn remove(&mut self, number: ObjectNumber) {
        let hash = self.hash(number);
        if let Ok(found) = self.nodes.find_entry(hash, |node| node.number() == number) {
            found.remove();
        }
    }

    pub(super) fn numbers(&self) -> impl Iterator<Item = ObjectNumber> {
        self.nodes.iter().map(Node::number)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_found_by_number_and_keep_what_is_known() {
        let mut table = NodeTable::default();
        for number in 1..=1000 {
            let node = table.get_or_make(ObjectNumber(number));
            node.add_look_up();
            node.set_place(Some((ObjectNumber(number / 10 + 1), format!("name {number}").as_bytes())));
        }
        for number in (1..=1000).step_by(2) {
            table.remove(ObjectNumber(number));
        }
        assert_eq!((table.len(), table.numbers().map(|number| number.0).sum::<u64>()), (500, 250_500));
        let node = table.get(ObjectNumber(20)).unwrap();
        assert_eq!((node.place(), node.look_ups()), (Some((ObjectNumber(3), &b"name 20"[..])), 1));
        assert!(table.get(ObjectNumber(21)).is_none() && table.get_mut(ObjectNumber(0)).is_none());
        let node = table.get_or_make(ObjectNumber(20));
        node.set_place(None);
        assert_eq!((node.place(), node.look_ups()), (None, 1));
    }

    #[test]
    fn look_ups_are_counted_to_an_end() {
        let mut node = Node::new(ObjectNumber(7), u32::MAX - 1, None);
        node.forget(1);
        assert_eq!(node.look_ups(), u32::MAX - 2);
        node.add_look_up();
        node.add_look_up();
        node.add_look_up();
        node.forget(5);
        assert_eq!(node.look_ups(), u32::MAX);
        let mut node = Node::new(ObjectNumber(7), 2, None);
        node.forget(u64::MAX);
        assert_eq!(node.look_ups(), 0);
    }
}
