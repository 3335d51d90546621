//! Keys that a batch changes, with their new entries: a list in order of arrival, and a hash table of positions in it.
//!
//! Batches usually arrive in key order, and then so does the list: an ordered map costs a search from its root for each
//! key, and twice the memory.

use std::sync::Arc;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry as Slot;

use crate::format::entry::Entry;
use crate::format::ids::ObjectNumber;
use crate::format::index_key::directory_of;
use crate::format::record::checksum;

/// A key with its new entry; for a forgotten key, a tombstone.
type Changed = (Arc<[u8]>, Entry);

/// Keys that a batch changes.
#[derive(Debug, Default)]
pub(crate) struct ChangedKeys {
    list: Vec<Changed>,
    places: HashTable<u32>,
}

impl ChangedKeys {
    /// Allocates memory for `count` more.
    pub(crate) fn reserve(&mut self, count: usize) {
        self.list.reserve(count);
        let list = &self.list;
        self.places.reserve(count, |&place| hash_at(list, place));
    }

    /// The batch's entry for a key, if it changes it.
    pub(crate) fn get(&self, key: &[u8]) -> Option<Entry> {
        let place = self.places.find(checksum(key), |&place| self.is_at(place, key))?;
        self.list.get(*place as usize).map(|(_, entry)| *entry)
    }

    fn is_at(&self, place: u32, key: &[u8]) -> bool {
        self.list.get(place as usize).is_some_and(|(other, _)| **other == *key)
    }

    /// Sets the batch's entry for a key, replacing any earlier one.
    pub(crate) fn insert(&mut self, key: &Arc<[u8]>, entry: Entry) {
        let list = &self.list;
        let is_it = |&place: &u32| list.get(place as usize).is_some_and(|(other, _)| other == key);
        match self.places.entry(checksum(key), is_it, |&place| hash_at(list, place)) {
            Slot::Occupied(slot) => self.list[*slot.get() as usize].1 = entry,
            Slot::Vacant(slot) => {
                // A batch has at most as many records as a piece has bytes.
                slot.insert(self.list.len() as u32);
                self.list.push((Arc::clone(key), entry));
            }
        }
    }

    /// The batch's entries of a directory, and attributes records of them.
    pub(crate) fn entries_of(&self, directory: ObjectNumber) -> Vec<(Arc<[u8]>, Entry)> {
        let is_in = |key: &[u8]| directory_of(key) == Some(directory);
        self.list.iter().filter(|(key, _)| is_in(key)).cloned().collect()
    }

    /// All entries, mutable.
    pub(crate) fn entries_mut(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.list.iter_mut().map(|(_, entry)| entry)
    }

    /// All of them, in key order.
    pub(crate) fn into_sorted(self) -> Vec<Changed> {
        let mut list = self.list;
        // Costs one comparison each if they are in order.
        list.sort_by(|(one, _), (other, _)| one.cmp(other));
        list
    }
}

fn hash_at(list: &[Changed], place: u32) -> u64 {
    list.get(place as usize).map_or(0, |(key, _)| checksum(key))
}

#[cfg(test)]
mod tests {
    use crate::format::ids::LogOffset;
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::format::entry::Location;
    use crate::format::ids::SegmentNumber;
    use crate::format::index_key::{entries_of, entry_key};

    proptest! {
        #[test]
        fn it_is_a_map(steps in proptest::collection::vec((0..4u64, 0..3usize), 0..60), directory in 0..4u64) {
            let directory = ObjectNumber(directory);
            let (mut changed, mut model) = (ChangedKeys::default(), BTreeMap::new());
            for (id, (within, length)) in steps.into_iter().enumerate() {
                let key: Arc<[u8]> = entry_key(ObjectNumber(within), &b"name"[..length]).into();
                let location = Location { segment: SegmentNumber(1), offset: LogOffset(0), record_bytes: 64 };
                let entry = Entry::removal(id as u64, location);
                prop_assert_eq!(changed.get(&key), model.get(&key).copied());
                changed.insert(&key, entry);
                model.insert(key, entry);
            }
            let mut entries = changed.entries_of(directory);
            entries.sort_by(|one, other| one.0.cmp(&other.0));
            let (from, to) = entries_of(directory);
            let expected = model.iter().filter(|(key, _)| ***key >= from[..] && ***key < to[..]);
            let expected = expected.map(|(key, entry)| (Arc::clone(key), *entry));
            prop_assert!(entries.into_iter().eq(expected));
            prop_assert!(changed.into_sorted().into_iter().eq(model));
        }
    }
}
