//! Lists of keys in one arena: every key is in at most one list, and is found in constant time.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::mrc::request::kept_within;
use crate::mrc::table::scatter;

const NONE: u32 = u32::MAX;

/// Hashes keys of blocks.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Scatter(u64);

impl Hasher for Scatter {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.0 = scatter(self.0 ^ u64::from(byte)));
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = scatter(key);
    }
}

#[derive(Debug, Clone, Copy)]
struct Node {
    key: u64,
    /// The previous node, towards the front; unset in a free node.
    newer: u32,
    /// The next node; in a free node, the next free one.
    older: u32,
    list: u8,
    /// Number of uses, or a flag, depending on the policy.
    mark: u8,
}

#[derive(Debug, Clone, Copy)]
struct Ends {
    front: u32,
    back: u32,
    length: usize,
}

/// `N` lists.
#[derive(Debug)]
pub(super) struct Lists<const N: usize> {
    nodes: Vec<Node>,
    unused: u32,
    places: HashMap<u64, u32, BuildHasherDefault<Scatter>>,
    ends: [Ends; N],
}

impl<const N: usize> Lists<N> {
    pub(super) fn new() -> Lists<N> {
        let ends = [Ends { front: NONE, back: NONE, length: 0 }; N];
        Lists { nodes: Vec::new(), unused: NONE, places: HashMap::default(), ends }
    }

    /// The list that a key is in.
    pub(super) fn list_of(&self, key: u64) -> Option<usize> {
        self.places.get(&key).map(|&at| usize::from(self.nodes[at as usize].list))
    }

    pub(super) fn length(&self, list: usize) -> usize {
        self.ends[list].length
    }

    /// The mark of a key that is in a list.
    pub(super) fn mark(&mut self, key: u64) -> Option<&mut u8> {
        let at = *self.places.get(&key)?;
        Some(&mut self.nodes[at as usize].mark)
    }

    /// Moves a key to the front of a list, wherever it was before.
    pub(super) fn put_front(&mut self, list: usize, key: u64, mark: u8) {
        let at = match self.places.get(&key) {
            Some(&at) => {
                self.unlink(at);
                at
            }
            None => self.take_node(key),
        };
        let front = self.ends[list].front;
        self.nodes[at as usize] = Node { key, newer: NONE, older: front, list: list as u8, mark };
        match front {
            NONE => self.ends[list].back = at,
            front => self.nodes[front as usize].newer = at,
        }
        self.ends[list].front = at;
        self.ends[list].length += 1;
    }

    /// The key at the back of a list, and its mark.
    pub(super) fn back(&self, list: usize) -> Option<(u64, u8)> {
        match self.ends[list].back {
            NONE => None,
            at => Some((self.nodes[at as usize].key, self.nodes[at as usize].mark)),
        }
    }

    /// Removes the key at the back of a list.
    pub(super) fn pop_back(&mut self, list: usize) -> Option<u64> {
        let (key, _) = self.back(list)?;
        self.remove(key);
        Some(key)
    }

    pub(super) fn remove(&mut self, key: u64) {
        if let Some(at) = self.places.remove(&key) {
            self.unlink(at);
            self.nodes[at as usize].older = self.unused;
            self.unused = at;
        }
    }

    /// Removes the keys in these ranges from all lists.
    pub(super) fn remove_within(&mut self, ranges: &[(u64, u64)]) {
        let places = &self.places;
        let gone = kept_within(ranges, places.len(), places.keys().copied(), |key| places.contains_key(&key));
        gone.into_iter().for_each(|key| self.remove(key));
    }

    pub(super) fn memory_bytes(&self) -> usize {
        const PLACE_BYTES: usize = size_of::<(u64, u32)>() + 1;
        self.nodes.capacity() * size_of::<Node>() + self.places.capacity() * 8 / 7 * PLACE_BYTES
    }

    fn take_node(&mut self, key: u64) -> u32 {
        let at = match self.unused {
            NONE => {
                self.nodes.push(Node { key, newer: NONE, older: NONE, list: 0, mark: 0 });
                (self.nodes.len() - 1) as u32
            }
            at => {
                self.unused = self.nodes[at as usize].older;
                at
            }
        };
        self.places.insert(key, at);
        at
    }

    fn unlink(&mut self, at: u32) {
        let Node { newer, older, list, .. } = self.nodes[at as usize];
        let ends = &mut self.ends[usize::from(list)];
        ends.length -= 1;
        match newer {
            NONE => ends.front = older,
            newer => self.nodes[newer as usize].older = older,
        }
        match older {
            NONE => ends.back = newer,
            older => self.nodes[older as usize].newer = newer,
        }
    }
}
