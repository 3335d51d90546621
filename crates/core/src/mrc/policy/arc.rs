//! ARC: lists of blocks used once and used again, with their ghosts, and a split between them that follows hits on
//! ghosts.

use super::Cache;
use super::lists::Lists;

/// Used once, used again, and the keys of what was evicted from each.
const ONCE: usize = 0;
const AGAIN: usize = 1;
const GHOSTS_OF_ONCE: usize = 2;
const GHOSTS_OF_AGAIN: usize = 3;

#[derive(Debug)]
pub(super) struct Arc {
    lists: Lists<4>,
    blocks: usize,
    /// Target number of blocks that were used once.
    target: f64,
}

impl Arc {
    pub(super) fn new(blocks: usize) -> Arc {
        Arc { lists: Lists::new(), blocks, target: 0.0 }
    }

    fn length(&self, list: usize) -> usize {
        self.lists.length(list)
    }

    /// Evicts one block, whose key becomes a ghost; `from_again`: the requested block is a ghost of those used again.
    fn replace(&mut self, from_again: bool) {
        let once = self.length(ONCE) as f64;
        let from = match once > 0.0 && (once > self.target || (from_again && once == self.target)) {
            true => ONCE,
            false => AGAIN,
        };
        // An empty list cannot evict; that happens only after blocks were dropped.
        let from = if self.length(from) == 0 { ONCE + AGAIN - from } else { from };
        if let Some((key, _)) = self.lists.back(from) {
            self.lists.put_front(from + GHOSTS_OF_ONCE, key, 0);
        }
    }

    fn is_full(&self) -> bool {
        self.length(ONCE) + self.length(AGAIN) >= self.blocks
    }
}

impl Cache for Arc {
    fn refer(&mut self, key: u64) -> bool {
        let ghosts = (self.length(GHOSTS_OF_ONCE) as f64, self.length(GHOSTS_OF_AGAIN) as f64);
        match self.lists.list_of(key) {
            Some(ONCE | AGAIN) => {
                self.lists.put_front(AGAIN, key, 0);
                return true;
            }
            Some(list) => {
                self.target = match list {
                    GHOSTS_OF_ONCE => (self.target + (ghosts.1 / ghosts.0).max(1.0)).min(self.blocks as f64),
                    _ => (self.target - (ghosts.0 / ghosts.1).max(1.0)).max(0.0),
                };
                if self.is_full() {
                    self.replace(list == GHOSTS_OF_AGAIN);
                }
                self.lists.put_front(AGAIN, key, 0);
            }
            None => {
                let once = self.length(ONCE) + self.length(GHOSTS_OF_ONCE);
                let all = once + self.length(AGAIN) + self.length(GHOSTS_OF_AGAIN);
                if once >= self.blocks {
                    if self.length(ONCE) < self.blocks {
                        self.lists.pop_back(GHOSTS_OF_ONCE);
                        if self.is_full() {
                            self.replace(false);
                        }
                    } else {
                        self.lists.pop_back(ONCE);
                    }
                } else if all >= self.blocks {
                    if all >= 2 * self.blocks {
                        self.lists.pop_back(GHOSTS_OF_AGAIN);
                    }
                    if self.is_full() {
                        self.replace(false);
                    }
                }
                self.lists.put_front(ONCE, key, 0);
            }
        }
        false
    }

    fn forget(&mut self, ranges: &[(u64, u64)]) {
        self.lists.remove_within(ranges);
    }

    fn memory_bytes(&self) -> usize {
        self.lists.memory_bytes()
    }
}
