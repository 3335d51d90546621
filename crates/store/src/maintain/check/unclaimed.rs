//! Records that are live in the log but missing from the index.
//!
//! A record whose key is missing from the index must have been removed: then the log has the removal, of the key or of
//! a tree with its parent directory, with a higher id (compaction keeps removals as long as anything older is left).
//! Otherwise the index has lost it.
//!
//! Memory is bounded: when there are too many keys, only every second hash is examined, then every fourth, and so on.
//! As a removal mostly follows what it removes, which it takes out of memory, that begins after half a million
//! removals. Directories in removed trees are all kept, up to a limit; with more, nothing is concluded. Removals are
//! kept by the hash of their key: if two keys have the same one, a lost record of one may pass for removed.

use std::collections::HashMap;

use crate::format::ids::{LogOffset, ObjectNumber, SegmentNumber};
use crate::format::index_key::directory_of;
use crate::format::record::checksum;

/// Most keys of records in memory; of removals, which are smaller, eight times as many.
const LIMIT: usize = 1 << 16;
/// Most directories of removed trees in memory.
const TREES_LIMIT: usize = 1 << 20;

/// What the log has for keys that are missing from the index.
#[derive(Debug, Default)]
pub(super) struct Unclaimed {
    /// Highest id of a record of the key, and its segment and offset.
    put: HashMap<Vec<u8>, (u64, SegmentNumber, LogOffset)>,
    /// Highest id of a removal, by the hash of the key.
    removed: HashMap<u64, u64>,
    /// Highest id of a removal of a tree with the directory.
    trees: HashMap<ObjectNumber, u64>,
    /// Only keys whose hash ends in this many zero bits are examined.
    sampled: u32,
    has_too_many_trees: bool,
}

impl Unclaimed {
    fn is_sampled(&self, hash: u64) -> bool {
        hash.trailing_zeros() >= self.sampled
    }

    /// A record of a key that is missing from the index.
    pub(super) fn put(&mut self, key: &[u8], id: u64, segment: SegmentNumber, offset: LogOffset) {
        let hash = checksum(key);
        if !self.is_sampled(hash) || self.removed.get(&hash).is_some_and(|&removal| removal > id) {
            return;
        }
        match self.put.get_mut(key) {
            Some(known) if known.0 >= id => {}
            Some(known) => *known = (id, segment, offset),
            None => {
                self.put.insert(key.to_vec(), (id, segment, offset));
            }
        }
        self.bound();
    }

    /// A removal of a key.
    pub(super) fn removal(&mut self, key: &[u8], id: u64) {
        let hash = checksum(key);
        if self.is_sampled(hash) {
            let known = self.removed.entry(hash).or_default();
            *known = (*known).max(id);
            if self.put.get(key).is_some_and(|put| put.0 < id) {
                self.put.remove(key);
            }
            self.bound();
        }
    }

    /// A removal of a tree: of its top, and of everything in these directories.
    pub(super) fn tree_removal(&mut self, key: &[u8], directories: &[ObjectNumber], id: u64) {
        self.removal(key, id);
        if self.trees.len() + directories.len() > TREES_LIMIT {
            self.has_too_many_trees = true;
            return;
        }
        for &directory in directories {
            let known = self.trees.entry(directory).or_default();
            *known = (*known).max(id);
        }
    }

    /// Whether every key was examined.
    pub(super) fn is_whole(&self) -> bool {
        self.sampled == 0 && !self.has_too_many_trees
    }

    fn bound(&mut self) {
        while self.put.len() > LIMIT || self.removed.len() > 8 * LIMIT {
            self.sampled += 1;
            let sampled = self.sampled;
            self.put.retain(|key, _| checksum(key).trailing_zeros() >= sampled);
            self.removed.retain(|hash, _| hash.trailing_zeros() >= sampled);
        }
    }

    /// Of the keys examined, those that nothing removed, in order: key, segment and offset of the newest record. It is
    /// empty if too many trees were removed to tell; [`is_whole`](Self::is_whole) says whether every key was examined.
    pub(super) fn into_lost(self) -> Vec<(Vec<u8>, SegmentNumber, LogOffset)> {
        if self.has_too_many_trees {
            return Vec::new();
        }
        let is_removed = |key: &[u8], id: u64| {
            let of_key = self.removed.get(&checksum(key)).is_some_and(|&removal| removal > id);
            let tree = directory_of(key).and_then(|directory| self.trees.get(&directory));
            of_key || tree.is_some_and(|&removal| removal > id)
        };
        let mut left: Vec<_> = self
            .put
            .iter()
            .filter(|(key, (id, _, _))| !is_removed(key, *id))
            .map(|(key, &(_, segment, offset))| (key.clone(), segment, offset))
            .collect();
        left.sort();
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::index_key::entry_key;

    fn key(directory: u64, name: &[u8]) -> Vec<u8> {
        entry_key(ObjectNumber(directory), name)
    }

    #[test]
    fn what_was_removed_after_it_was_put_is_claimed() {
        let mut log = Unclaimed::default();
        let keys = [key(1, b"a"), key(1, b"b"), key(5, b"c"), key(6, b"d"), key(1, b"h")];
        for (at, key) in keys.iter().enumerate() {
            log.put(key, 10 + at as u64, SegmentNumber(1), LogOffset(80));
        }
        log.removal(&keys[0], 20);
        log.removal(&keys[1], 9);
        log.tree_removal(&key(1, b"tree"), &[ObjectNumber(5)], 20);
        log.tree_removal(&key(1, b"older"), &[ObjectNumber(6), ObjectNumber(7)], 12);
        log.tree_removal(&keys[4], &[ObjectNumber(14)], 15);
        let left: Vec<Vec<u8>> = log.into_lost().into_iter().map(|(key, _, _)| key).collect();
        assert_eq!(left, [keys[1].clone(), keys[3].clone()]);
    }

    #[test]
    fn with_too_many_removed_directories_nothing_is_concluded() {
        let mut log = Unclaimed::default();
        log.put(&key(1, b"a"), 1, SegmentNumber(1), LogOffset(80));
        let directories: Vec<ObjectNumber> = (2..2 + TREES_LIMIT as u64).map(ObjectNumber).collect();
        log.tree_removal(&key(1, b"b"), &directories, 2);
        log.tree_removal(&key(1, b"c"), &[ObjectNumber(1)], 3);
        assert_eq!(log.into_lost(), []);
    }

    #[test]
    fn memory_is_bounded_and_a_sample_still_finds_what_is_lost() {
        let mut log = Unclaimed::default();
        for number in 0..4 * LIMIT as u64 {
            let key = number.to_le_bytes();
            log.put(&key, number + 1, SegmentNumber(1), LogOffset(80));
            if number % 2 == 0 {
                log.removal(&key, u64::MAX);
            }
        }
        assert!(log.put.len() <= LIMIT);
        let left = log.into_lost();
        assert!(left.len() > 1000, "{}", left.len());
        assert!(left.iter().all(|(key, _, _)| u64::from_le_bytes(key[..].try_into().unwrap()) % 2 == 1));
    }
}
