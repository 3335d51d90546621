//! The directories that a scan of inodes finds, in the order of their listings on the device.
//!
//! Each thread sorts what it finds in runs of [`RUN_DIRECTORIES`], and the runs of all threads are merged. So a table
//! that is larger than memory is read and written in order, except within a run.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use allocator_api2::vec::Vec as SpilledVec;

use super::tree::look;
use crate::sys::spill::Spill;

/// Directories that are sorted at a time.
const RUN_DIRECTORIES: usize = 1 << 16;

/// A directory from the tables.
pub(super) struct Entry<L> {
    pub(super) inode: u64,
    pub(super) listing: L,
}

/// Directories in one table.
pub(super) type Directories<L> = SpilledVec<Entry<L>, Spill>;

/// What directories are sorted by: where the listing is, and the inode.
type SortKey = (u64, u64);

/// The directories that one thread finds.
pub(super) struct Runs<L> {
    sorted: Vec<Directories<L>>,
    last: Directories<L>,
}

impl<L> Runs<L> {
    pub(super) fn new(spill: &Spill) -> Runs<L> {
        Runs { sorted: Vec::new(), last: SpilledVec::new_in(spill.clone()) }
    }

    /// Adds a directory.
    pub(super) fn push(&mut self, entry: Entry<L>, key: impl Fn(&Entry<L>) -> SortKey) {
        self.last.push(entry);
        if self.last.len() == RUN_DIRECTORIES {
            self.last.sort_unstable_by_key(key);
            let next = SpilledVec::new_in(self.last.allocator().clone());
            self.sorted.push(std::mem::replace(&mut self.last, next));
        }
    }

    /// The runs, each sorted.
    pub(super) fn sorted(mut self, key: impl Fn(&Entry<L>) -> SortKey) -> Vec<Directories<L>> {
        self.last.sort_unstable_by_key(key);
        self.sorted.push(self.last);
        self.sorted
    }
}

/// Sorted runs as one table.
pub(super) fn merge<L>(runs: Vec<Directories<L>>, key: impl Fn(&Entry<L>) -> SortKey, spill: &Spill) -> Directories<L> {
    // Positions have 32 bits: no such file system has more inodes.
    let count = runs.iter().map(SpilledVec::len).sum::<usize>().min(u32::MAX as usize - 1);
    let mut merged = SpilledVec::with_capacity_in(count, spill.clone());
    let mut runs: Vec<_> = runs.into_iter().map(|run| run.into_iter().peekable()).collect();
    let first = runs.iter_mut().enumerate().filter_map(|(at, run)| Some(Reverse((key(run.peek()?), at))));
    let mut heads: BinaryHeap<Reverse<(SortKey, usize)>> = first.collect();
    while merged.len() < count
        && let Some(mut head) = heads.peek_mut()
    {
        let Reverse((_, at)) = *head;
        let Some(run) = runs.get_mut(at) else { break };
        merged.extend(run.next());
        match run.peek() {
            Some(entry) => *head = Reverse((key(entry), at)),
            None => drop(PeekMut::pop(head)),
        }
        look(spill, merged.len());
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_of_several_threads_are_in_one_order() {
        let spill = Spill::default();
        let key = |entry: &Entry<u64>| (entry.listing, entry.inode);
        let count = 3 * RUN_DIRECTORIES as u64 + 5;
        let mut threads: Vec<Runs<u64>> = (0..3).map(|_| Runs::new(&spill)).collect();
        for inode in 0..count {
            // A permutation: 7919 is a prime that does not divide the count.
            let listing = inode * 7919 % count / 2;
            threads[(inode % 7 % 3) as usize].push(Entry { inode, listing }, key);
        }
        let runs: Vec<Directories<u64>> = threads.into_iter().flat_map(|thread| thread.sorted(key)).collect();
        let merged = merge(runs, key, &spill);
        assert_eq!(merged.len() as u64, count);
        assert!(merged.windows(2).all(|pair| key(&pair[0]) < key(&pair[1])));
        assert!(merge::<u64>(Vec::new(), key, &spill).is_empty());
    }
}
