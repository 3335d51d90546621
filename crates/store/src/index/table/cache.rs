//! Leaves in memory: a bounded cache for all sorted tables of a store.
//!
//! It consists of sets of eight pages, like the caches of processors, each with its own lock, held for a comparison of
//! eight numbers: threads rarely contend. In a set, a leaf not used since the clock's hand last passed it is evicted.
//! Leaves are hashed over the sets; the hash has no other use.

use crate::locks::lock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::block::{Block, PAGE_BYTES};

/// Default size of a store's cache.
pub(crate) const DEFAULT_CACHE_BYTES: usize = 16 << 20;
/// Pages in a set; longer blocks occupy several.
const WAYS: usize = 8;

/// A bounded cache of leaves.
#[derive(Debug)]
pub(crate) struct BlockCache {
    sets: Box<[Mutex<Set>]>,
    next_owner: AtomicU64,
}

#[derive(Debug, Default)]
struct Set {
    slots: Vec<CacheSlot>,
    hand: usize,
    size_bytes: usize,
}

#[derive(Debug)]
struct CacheSlot {
    owner: u64,
    page: u64,
    /// Used since the hand last passed.
    used: bool,
    block: Arc<Block>,
}

impl BlockCache {
    /// A cache of about `size_bytes`, at least one set.
    pub(crate) fn new(size_bytes: usize) -> BlockCache {
        let sets = (size_bytes / (WAYS * PAGE_BYTES)).max(1);
        BlockCache { sets: (0..sets).map(|_| Mutex::default()).collect(), next_owner: AtomicU64::new(0) }
    }

    /// A unique number for a table: table numbers may be reused after the index was rebuilt.
    pub(crate) fn new_owner(&self) -> u64 {
        self.next_owner.fetch_add(1, Ordering::Relaxed)
    }

    /// The block, if it is cached.
    #[inline]
    pub(crate) fn get(&self, owner: u64, page: u64) -> Option<Arc<Block>> {
        let mut set = lock(self.set(owner, page));
        let slot = set.slots.iter_mut().find(|slot| slot.page == page && slot.owner == owner)?;
        slot.used = true;
        Some(slot.block.clone())
    }

    /// Caches the block, evicting others. A block longer than a set is not cached.
    pub(crate) fn insert(&self, owner: u64, page: u64, block: &Arc<Block>) {
        let room = WAYS * PAGE_BYTES;
        if block.size_bytes() > room {
            return;
        }
        let mut set = lock(self.set(owner, page));
        if set.slots.iter().any(|slot| slot.page == page && slot.owner == owner) {
            return;
        }
        while set.size_bytes + block.size_bytes() > room {
            set.evict();
        }
        set.size_bytes += block.size_bytes();
        set.slots.push(CacheSlot { owner, page, used: false, block: block.clone() });
    }

    #[inline]
    fn set(&self, owner: u64, page: u64) -> &Mutex<Set> {
        // Fibonacci hashing: the high bits are well mixed.
        let hash = (page ^ owner.rotate_left(40)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let index = (u128::from(hash) * self.sets.len() as u128) >> 64;
        &self.sets[index as usize]
    }
}

impl Set {
    /// Evicts the first block from the hand on that was not used since the hand passed it.
    fn evict(&mut self) {
        loop {
            if self.hand >= self.slots.len() {
                self.hand = 0;
            }
            let Some(slot) = self.slots.get_mut(self.hand) else { return };
            if slot.used {
                slot.used = false;
                self.hand += 1;
            } else {
                let gone = self.slots.swap_remove(self.hand);
                self.size_bytes -= gone.block.size_bytes();
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::block::BlockBuilder;
    use super::*;

    fn block(key: &[u8]) -> Arc<Block> {
        let mut builder = BlockBuilder::new(0);
        assert!(builder.push(key, b"value"));
        let mut bytes = Vec::new();
        builder.finish(&mut bytes);
        Arc::new(Block::parse(bytes).unwrap())
    }

    #[test]
    fn it_is_bounded_and_keeps_what_is_used() {
        let cache = BlockCache::new(0);
        let small = block(b"key");
        for page in 0..8 {
            cache.insert(1, page, &small);
        }
        assert!(cache.get(1, 3).is_some());
        for page in 8..15 {
            cache.insert(1, page, &small);
        }
        let kept: Vec<u64> = (0..15).filter(|&page| cache.get(1, page).is_some()).collect();
        assert_eq!(kept.len(), 8, "{kept:?}");
        assert!(kept.contains(&3), "{kept:?}");
        assert!(cache.get(2, 3).is_none(), "another table's");
    }

    #[test]
    fn a_long_block_takes_the_place_of_several() {
        let cache = BlockCache::new(0);
        for page in 0..8 {
            cache.insert(1, page, &block(b"key"));
        }
        cache.insert(1, 100, &block(&[b'k'; 4 * PAGE_BYTES]));
        assert!(cache.get(1, 100).is_some());
        assert_eq!((0..8).filter(|&page| cache.get(1, page).is_some()).count(), 3);
        cache.insert(1, 200, &block(&[b'k'; 9 * PAGE_BYTES]));
        assert!(cache.get(1, 200).is_none(), "longer than a set");
    }

    #[test]
    fn leaves_spread_over_the_sets() {
        let cache = BlockCache::new(DEFAULT_CACHE_BYTES);
        let small = block(b"key");
        for page in 0..1024 {
            cache.insert(1, page, &small);
        }
        assert_eq!((0..1024).filter(|&page| cache.get(1, page).is_some()).count(), 1024);
    }
}
