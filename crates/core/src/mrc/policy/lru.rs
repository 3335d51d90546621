//! LRU, one size at a time: a reference for the curve of all sizes.

use super::Cache;
use super::lists::Lists;

#[derive(Debug)]
pub(super) struct Lru {
    lists: Lists<1>,
    blocks: usize,
}

impl Lru {
    pub(super) fn new(blocks: usize) -> Lru {
        Lru { lists: Lists::new(), blocks }
    }
}

impl Cache for Lru {
    fn refer(&mut self, key: u64) -> bool {
        let hit = self.lists.list_of(key).is_some();
        if !hit && self.lists.length(0) == self.blocks {
            self.lists.pop_back(0);
        }
        self.lists.put_front(0, key, 0);
        hit
    }

    fn forget(&mut self, ranges: &[(u64, u64)]) {
        self.lists.remove_within(ranges);
    }

    fn memory_bytes(&self) -> usize {
        self.lists.memory_bytes()
    }
}
