//! FIFO, and CLOCK: the same, except that a block that was used since it was inserted or last examined stays for
//! another round.

use super::Cache;
use super::lists::Lists;

#[derive(Debug)]
pub(super) struct Fifo {
    lists: Lists<1>,
    /// Its capacity, at least one.
    blocks: usize,
    has_second_chance: bool,
}

impl Fifo {
    pub(super) fn new(blocks: usize, has_second_chance: bool) -> Fifo {
        Fifo { lists: Lists::new(), blocks, has_second_chance }
    }
}

impl Cache for Fifo {
    fn refer(&mut self, key: u64) -> bool {
        if let Some(mark) = self.lists.mark(key) {
            *mark = 1;
            return true;
        }
        while self.lists.length(0) == self.blocks {
            match self.lists.back(0) {
                // Used since: it stays for another round, unmarked.
                Some((oldest, 1)) if self.has_second_chance => self.lists.put_front(0, oldest, 0),
                _ => drop(self.lists.pop_back(0)),
            }
        }
        self.lists.put_front(0, key, 0);
        false
    }

    fn forget(&mut self, ranges: &[(u64, u64)]) {
        self.lists.remove_within(ranges);
    }

    fn memory_bytes(&self) -> usize {
        self.lists.memory_bytes()
    }
}
