//! S3-FIFO: a small queue that new blocks leave soon unless they are used again, a main one, and the keys of evicted
//! blocks.

use super::Cache;
use super::lists::Lists;

const SMALL: usize = 0;
const MAIN: usize = 1;
const GHOST: usize = 2;

/// Uses are counted up to this.
const MOST_USES: u8 = 3;

#[derive(Debug)]
pub(super) struct S3Fifo {
    lists: Lists<3>,
    blocks: usize,
    /// Size of the small queue; the main one has the rest, and there are as many ghosts as in that.
    small: usize,
}

impl S3Fifo {
    pub(super) fn new(blocks: usize) -> S3Fifo {
        S3Fifo { lists: Lists::new(), blocks, small: (blocks / 10).max(1) }
    }

    fn evict(&mut self) {
        if self.lists.length(SMALL) >= self.small { self.evict_from_small() } else { self.evict_from_main() }
    }

    fn evict_from_small(&mut self) {
        let most_main = self.blocks - self.small;
        while let Some((key, uses)) = self.lists.back(SMALL) {
            if uses > 1 {
                self.lists.put_front(MAIN, key, uses);
                if self.lists.length(MAIN) > most_main {
                    self.evict_from_main();
                }
            } else {
                self.lists.put_front(GHOST, key, 0);
                if self.lists.length(GHOST) > most_main {
                    self.lists.pop_back(GHOST);
                }
                return;
            }
        }
    }

    fn evict_from_main(&mut self) {
        while let Some((key, uses)) = self.lists.back(MAIN) {
            match uses {
                0 => return self.lists.remove(key),
                uses => self.lists.put_front(MAIN, key, uses - 1),
            }
        }
    }
}

impl Cache for S3Fifo {
    fn refer(&mut self, key: u64) -> bool {
        let list = self.lists.list_of(key);
        if let (Some(SMALL | MAIN), Some(uses)) = (list, self.lists.mark(key)) {
            *uses = (*uses + 1).min(MOST_USES);
            return true;
        }
        self.lists.remove(key);
        while self.lists.length(SMALL) + self.lists.length(MAIN) >= self.blocks {
            self.evict();
        }
        self.lists.put_front(if list == Some(GHOST) { MAIN } else { SMALL }, key, 0);
        false
    }

    fn forget(&mut self, ranges: &[(u64, u64)]) {
        self.lists.remove_within(ranges);
    }

    fn memory_bytes(&self) -> usize {
        self.lists.memory_bytes()
    }
}
