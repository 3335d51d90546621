//! The referenced blocks, by key: open addressing with linear probing, 16 bytes per entry.

use crate::random::{STEP, mix};

/// What is known about a block.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) key: u64,
    /// Slot of its last reference; [`FREE`] if there is no block.
    pub(super) slot: u32,
    /// The smallest cache, in blocks, in which it differs from the device; [`CLEAN`] for none.
    pub(super) dirty_from: u32,
}

/// The slot of an entry without a block.
pub(super) const FREE: u32 = u32::MAX;
/// No cache has it dirty.
pub(super) const CLEAN: u32 = u32::MAX;

const LEAST_ENTRIES: usize = 1 << 10;
const NOTHING: Entry = Entry { key: 0, slot: FREE, dirty_from: CLEAN };

/// Scrambles keys over 64 bits; a bijection.
pub(super) fn scatter(key: u64) -> u64 {
    mix(key.wrapping_add(STEP))
}

/// The table.
#[derive(Debug)]
pub(super) struct Table {
    entries: Vec<Entry>,
    count: usize,
}

impl Table {
    pub(super) fn new() -> Table {
        Table { entries: vec![NOTHING; LEAST_ENTRIES], count: 0 }
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.entries.len() * size_of::<Entry>()
    }

    /// The place of the block, or else the place for inserting it.
    pub(super) fn find(&self, key: u64) -> Result<usize, usize> {
        let mask = self.entries.len() - 1;
        let mut at = scatter(key) as usize & mask;
        loop {
            let entry = &self.entries[at];
            match () {
                _ if entry.slot == FREE => return Err(at),
                _ if entry.key == key => return Ok(at),
                _ => at = (at + 1) & mask,
            }
        }
    }

    /// The slot in the entry at which a search for a block begins, to bring it into the processor's cache.
    pub(super) fn first_slot(&self, key: u64) -> u32 {
        self.entries[scatter(key) as usize & (self.entries.len() - 1)].slot
    }

    pub(super) fn entry(&mut self, at: usize) -> &mut Entry {
        &mut self.entries[at]
    }

    /// Inserts a block at the place that [`find`](Self::find) returned. It may move later: see
    /// [`is_full`](Self::is_full).
    pub(super) fn insert_at(&mut self, at: usize, entry: Entry) {
        self.entries[at] = entry;
        self.count += 1;
    }

    /// Whether it must [`grow`](Self::grow) before the next block.
    pub(super) fn is_full(&self) -> bool {
        self.count * 4 >= self.entries.len() * 3
    }

    pub(super) fn grow(&mut self) {
        self.rebuild(self.entries.len() * 2, |_| true);
    }

    /// Keeps the blocks for which `keep` returns true.
    pub(super) fn retain(&mut self, keep: impl FnMut(&Entry) -> bool) {
        self.rebuild(self.entries.len(), keep);
    }

    fn rebuild(&mut self, length: usize, mut keep: impl FnMut(&Entry) -> bool) {
        let old = std::mem::replace(&mut self.entries, vec![NOTHING; length]);
        self.count = 0;
        for entry in old.iter().filter(|entry| entry.slot != FREE) {
            if keep(entry)
                && let Err(at) = self.find(entry.key)
            {
                self.insert_at(at, *entry);
            }
        }
    }

    pub(super) fn blocks(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.slot != FREE)
    }

    pub(super) fn blocks_mut(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.entries.iter_mut().filter(|entry| entry.slot != FREE)
    }

    /// Removes the block at this place; later blocks that it displaced move up, so that no search ends too early.
    pub(super) fn remove_at(&mut self, at: usize) {
        let mask = self.entries.len() - 1;
        let (mut gap, mut next) = (at, (at + 1) & mask);
        let distance = |from: usize, to: usize| to.wrapping_sub(from) & mask;
        while self.entries[next].slot != FREE {
            let home = scatter(self.entries[next].key) as usize & mask;
            // A search for the block passes the gap.
            if distance(home, next) >= distance(gap, next) {
                self.entries[gap] = self.entries[next];
                gap = next;
            }
            next = (next + 1) & mask;
        }
        self.entries[gap] = NOTHING;
        self.count -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        #[test]
        fn it_holds_what_a_map_holds(steps in proptest::collection::vec((0u64..900, any::<bool>()), 0..3000)) {
            let (mut table, mut map) = (Table::new(), HashMap::new());
            for (number, (key, remove)) in steps.into_iter().enumerate() {
                match table.find(key) {
                    Ok(at) if remove => {
                        table.remove_at(at);
                        prop_assert!(map.remove(&key).is_some());
                    }
                    Ok(at) => prop_assert_eq!(Some(&table.entry(at).slot), map.get(&key)),
                    Err(_) if remove => prop_assert!(!map.contains_key(&key)),
                    Err(at) => {
                        table.insert_at(at, Entry { key, slot: number as u32, dirty_from: CLEAN });
                        prop_assert!(map.insert(key, number as u32).is_none());
                        if table.is_full() {
                            table.grow();
                        }
                    }
                }
                prop_assert_eq!(table.count(), map.len());
            }
            table.retain(|entry| entry.key % 3 != 0);
            map.retain(|key, _| key % 3 != 0);
            let held: HashMap<u64, u32> = table.blocks().map(|entry| (entry.key, entry.slot)).collect();
            prop_assert_eq!(held, map);
        }
    }
}
