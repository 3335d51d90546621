//! 2Q (Johnson and Shasha, VLDB 1994): a block enters the main queue when it is used again after it left the queue of
//! new blocks, while its key is still remembered. So a scan does not displace blocks in use.

use super::Cache;
use super::lists::Lists;

/// New blocks; keys of those that left that queue; blocks that were used again.
const IN: usize = 0;
const OUT: usize = 1;
const MAIN: usize = 2;

#[derive(Debug)]
pub(super) struct TwoQueues {
    lists: Lists<3>,
    blocks: usize,
    most_in: usize,
    most_out: usize,
}

impl TwoQueues {
    pub(super) fn new(blocks: usize) -> TwoQueues {
        TwoQueues { lists: Lists::new(), blocks, most_in: (blocks / 4).max(1), most_out: (blocks / 2).max(1) }
    }

    /// Makes room for one block.
    fn reclaim(&mut self) {
        if self.lists.length(IN) + self.lists.length(MAIN) < self.blocks {
            return;
        }
        if self.lists.length(IN) <= self.most_in && self.lists.pop_back(MAIN).is_some() {
            return;
        }
        if let Some((key, _)) = self.lists.back(IN) {
            self.lists.put_front(OUT, key, 0);
            if self.lists.length(OUT) > self.most_out {
                self.lists.pop_back(OUT);
            }
        }
    }
}

impl Cache for TwoQueues {
    fn refer(&mut self, key: u64) -> bool {
        match self.lists.list_of(key) {
            Some(MAIN) => {
                self.lists.put_front(MAIN, key, 0);
                true
            }
            Some(OUT) => {
                // It leaves OUT first, so that the key that making room puts there displaces no other.
                self.lists.remove(key);
                self.reclaim();
                self.lists.put_front(MAIN, key, 0);
                false
            }
            // In IN: uses soon after the first do not count.
            Some(_) => true,
            None => {
                self.reclaim();
                self.lists.put_front(IN, key, 0);
                false
            }
        }
    }

    fn forget(&mut self, ranges: &[(u64, u64)]) {
        self.lists.remove_within(ranges);
    }

    fn memory_bytes(&self) -> usize {
        self.lists.memory_bytes()
    }
}
