//! Changes since the newest sorted table, by stored key: a sorted list in chunks, each shared with the clones that
//! contain it.
//!
//! A clone costs one reference count. The first change after it copies the list of chunks and the affected chunk, not
//! the entries: a commit costs what it changes, however many readers have a snapshot. Chunks are in order, none is
//! empty, and none has more than `CHUNK` entries or room for more.

#![cfg_attr(not(test), warn(clippy::indexing_slicing))]

use std::ops::Bound;
use std::sync::Arc;

use crate::format::entry::Entry;
use crate::format::rows::weight;

/// Maximum number of entries in a chunk. Smaller in tests, which then cover several chunks.
const CHUNK: usize = if cfg!(test) { 8 } else { 128 };

type EntryChunk = Arc<Vec<(Arc<[u8]>, Entry)>>;

/// Entries by stored key.
#[derive(Debug, Clone, Default)]
pub struct Recent {
    chunks: Arc<Vec<EntryChunk>>,
    entries: usize,
    bytes: usize,
}

/// Position of an entry: its chunk, and its index in the chunk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChunkCursor {
    chunk: usize,
    entry: usize,
}

impl Recent {
    /// The number of entries.
    pub fn len(&self) -> usize {
        self.entries
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Bytes of keys and entries.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The entry for a key.
    pub fn get(&self, key: &[u8]) -> Option<&Entry> {
        let chunk = self.chunks.get(self.chunk_of(key))?;
        chunk.get(find(chunk, key).ok()?).map(|(_, entry)| entry)
    }

    /// All entries in key order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &Entry)> {
        self.chunks.iter().flat_map(|chunk| chunk.iter()).map(|(key, entry)| (&**key, entry))
    }

    /// All entries in the order of their keys.
    pub fn values(&self) -> impl Iterator<Item = &Entry> {
        self.iter().map(|(_, entry)| entry)
    }

    /// The chunk that contains a key, or would.
    fn chunk_of(&self, key: &[u8]) -> usize {
        let begins_before = |chunk: &EntryChunk| chunk.first().is_some_and(|(first, _)| **first <= *key);
        self.chunks.partition_point(begins_before).saturating_sub(1)
    }

    /// Inserts entries, replacing those with the same keys. Fastest if they are in key order.
    pub fn extend<'k>(&mut self, entries: impl Iterator<Item = (&'k Arc<[u8]>, Entry)>) {
        let mut at = 0;
        for (key, entry) in entries {
            if !self.is_chunk_of(at, key) {
                at = self.chunk_of(key);
            }
            self.insert_at(at, key, entry);
        }
    }

    /// Whether a chunk contains a key, or would.
    fn is_chunk_of(&self, at: usize, key: &[u8]) -> bool {
        let begins_before = |chunk: &EntryChunk| chunk.first().is_some_and(|(first, _)| **first <= *key);
        self.chunks.get(at).is_some_and(begins_before) && !self.chunks.get(at + 1).is_some_and(begins_before)
    }

    /// Inserts an entry into a given chunk, replacing that with the same key.
    fn insert_at(&mut self, at: usize, key: &Arc<[u8]>, entry: Entry) {
        let chunks = Arc::make_mut(&mut self.chunks);
        let Some(shared) = chunks.get_mut(at) else {
            chunks.push(Arc::new(vec![(Arc::clone(key), entry)]));
            return self.count(key);
        };
        let chunk = Arc::make_mut(shared);
        match find(chunk, key) {
            Ok(found) => {
                if let Some((_, old)) = chunk.get_mut(found) {
                    *old = entry;
                }
            }
            Err(place) => {
                let new = (Arc::clone(key), entry);
                if chunk.len() < CHUNK {
                    if chunk.len() == chunk.capacity() {
                        chunk.reserve_exact(chunk.len().clamp(1, CHUNK - chunk.len()));
                    }
                    chunk.insert(place, new);
                } else {
                    // Keys that arrive in order fill one chunk after the other.
                    let mut rest = chunk.split_off(if place == CHUNK { CHUNK } else { CHUNK / 2 });
                    match place.checked_sub(chunk.len()) {
                        Some(place) => rest.insert(place, new),
                        None => chunk.insert(place, new),
                    }
                    chunks.insert(at + 1, Arc::new(rest));
                }
                self.count(key);
            }
        }
    }

    fn count(&mut self, key: &[u8]) {
        self.entries += 1;
        self.bytes += weight(key);
    }

    /// Removes the entry for a key, if any.
    pub fn remove(&mut self, key: &[u8]) {
        let at = self.chunk_of(key);
        let Some(Ok(found)) = self.chunks.get(at).map(|chunk| find(chunk, key)) else { return };
        let chunks = Arc::make_mut(&mut self.chunks);
        let Some(chunk) = chunks.get_mut(at).map(Arc::make_mut) else { return };
        chunk.remove(found);
        if chunk.is_empty() {
            chunks.remove(at);
        }
        self.entries -= 1;
        self.bytes -= weight(key);
    }

    /// The actual or hypothetical position of the first entry from a key on.
    pub(crate) fn seek(&self, from: Bound<&[u8]>) -> ChunkCursor {
        let (Bound::Included(key) | Bound::Excluded(key)) = from else { return ChunkCursor { chunk: 0, entry: 0 } };
        let chunk = self.chunk_of(key);
        let is_before = |(other, _): &(Arc<[u8]>, Entry)| match from {
            Bound::Excluded(key) => **other <= *key,
            _ => **other < *key,
        };
        let entry = self.chunks.get(chunk).map_or(0, |chunk| chunk.partition_point(is_before));
        self.settled(ChunkCursor { chunk, entry })
    }

    /// The entry at a position, with its key.
    #[inline]
    pub(crate) fn at(&self, cursor: ChunkCursor) -> Option<(&[u8], &Entry)> {
        let (key, entry) = self.chunks.get(cursor.chunk)?.get(cursor.entry)?;
        Some((key, entry))
    }

    /// The position after this one.
    pub(crate) fn after(&self, cursor: ChunkCursor) -> ChunkCursor {
        self.settled(ChunkCursor { entry: cursor.entry + 1, ..cursor })
    }

    /// The end of a chunk is the beginning of the next.
    fn settled(&self, cursor: ChunkCursor) -> ChunkCursor {
        match self.chunks.get(cursor.chunk) {
            Some(chunk) if cursor.entry >= chunk.len() => ChunkCursor { chunk: cursor.chunk + 1, entry: 0 },
            _ => cursor,
        }
    }
}

/// The actual or hypothetical position of a key in a chunk.
fn find(chunk: &[(Arc<[u8]>, Entry)], key: &[u8]) -> Result<usize, usize> {
    // Keys usually arrive in order.
    if chunk.last().is_some_and(|(last, _)| **last < *key) {
        return Err(chunk.len());
    }
    chunk.binary_search_by(|(other, _)| (**other).cmp(key))
}

/// The same entries, however they are divided into chunks.
impl PartialEq for Recent {
    fn eq(&self, other: &Recent) -> bool {
        self.entries == other.entries && (Arc::ptr_eq(&self.chunks, &other.chunks) || self.iter().eq(other.iter()))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::format::entry::Location;
    use crate::format::ids::{LogOffset, SegmentNumber};

    fn entry(id: u64) -> Entry {
        Entry::removal(id, Location { segment: SegmentNumber(1), offset: LogOffset(0), record_bytes: 64 })
    }

    proptest! {
        #[test]
        fn it_is_a_map_and_clones_stay_what_they_were(
            steps in proptest::collection::vec((any::<u8>(), 0..5u8, 0..3usize), 0..400),
        ) {
            let (mut recent, mut model) = (Recent::default(), BTreeMap::new());
            let mut clones = Vec::new();
            for (id, (byte, what, length)) in steps.into_iter().enumerate() {
                let key = vec![byte; length];
                match what {
                    0 => {
                        recent.remove(&key);
                        model.remove(&key);
                    }
                    1 => clones.push((recent.clone(), model.clone())),
                    _ => {
                        // In any order, and some twice.
                        let keys = [&key[..], &key[length / 2..], &key[..]].map(Arc::from);
                        recent.extend(keys.iter().map(|key| (key, entry(id as u64))));
                        model.extend(keys.iter().map(|key| (key.to_vec(), entry(id as u64))));
                    }
                }
                for from in [Bound::Included(&key[..]), Bound::Excluded(&key[..]), Bound::Unbounded] {
                    let expected = model.range::<[u8], _>((from, Bound::Unbounded)).next();
                    let found = recent.at(recent.seek(from));
                    prop_assert_eq!(found, expected.map(|(key, entry)| (&key[..], entry)));
                }
            }
            clones.push((recent, model));
            for (recent, model) in clones {
                prop_assert_eq!(recent.len(), model.len());
                prop_assert_eq!(recent.bytes(), model.keys().map(|key| weight(key)).sum::<usize>());
                prop_assert!(recent.iter().eq(model.iter().map(|(key, entry)| (&key[..], entry))));
                let mut cursor = recent.seek(Bound::Unbounded);
                for (key, entry) in &model {
                    prop_assert_eq!(recent.at(cursor), Some((&key[..], entry)));
                    prop_assert_eq!(recent.get(key), Some(entry));
                    cursor = recent.after(cursor);
                }
                prop_assert_eq!(recent.at(cursor), None);
                let is_sound = |chunk: &EntryChunk| !chunk.is_empty() && chunk.capacity() <= CHUNK;
                prop_assert!(recent.chunks.iter().all(is_sound));
            }
        }
    }

    #[test]
    fn a_change_copies_one_chunk_of_what_a_clone_shares() {
        let mut recent = Recent::default();
        let keys: Vec<Arc<[u8]>> = (0..1000u32).map(|number| number.to_be_bytes()[..].into()).collect();
        recent.extend(keys.iter().map(|key| (key, entry(1))));
        let clone = recent.clone();
        recent.extend([(&keys[500], entry(2))].into_iter());
        let copied = recent.chunks.iter().zip(clone.chunks.iter()).filter(|(one, other)| !Arc::ptr_eq(one, other));
        assert_eq!(copied.count(), 1);
        assert_eq!(clone.get(&500u32.to_be_bytes()), Some(&entry(1)));
    }
}
