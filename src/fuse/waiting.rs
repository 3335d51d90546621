//! The objects that programs have written and the store does not have yet, and the handles that are open.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::locks::lock;
use crate::store::ids::ObjectNumber;

/// Most bytes that wait.
pub(super) const MOST_BYTES: u64 = 32 << 20;
/// Most bytes that wait of one object: with another request, less than what makes its handle commit by itself (8 MiB),
/// before what was written to others earlier.
const MOST_BYTES_OF_ONE: u64 = 6 << 20;
/// Most objects that wait.
const MOST_OBJECTS: usize = 4096;
/// Most handles that stay open although nothing needs them; the content of a small file is in memory with its handle.
const MOST_IDLE: usize = 64;

/// Objects that wait to be committed, and handles that are open.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    lists: Mutex<Lists>,
    /// Bytes that were written since everything was committed.
    bytes: AtomicU64,
    /// What is written is committed at once, so that it fails and nothing later does.
    is_tight: AtomicBool,
}

#[derive(Debug, Default)]
struct Lists {
    /// The longest waiting first.
    written: VecDeque<ObjectNumber>,
    /// Whose handle is open, the one that was opened first, first.
    open: VecDeque<ObjectNumber>,
}

impl Waiting {
    /// An object waits to be committed.
    pub(super) fn add(&self, number: ObjectNumber) {
        lock(&self.lists).written.push_back(number);
    }

    /// Bytes were written to an object, of which so many wait now.
    pub(super) fn count(&self, bytes: usize, of_object: u64) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        if of_object > MOST_BYTES_OF_ONE {
            self.bytes.fetch_max(MOST_BYTES + 1, Ordering::Relaxed);
        }
    }

    /// What waits, which then no longer does.
    pub(super) fn take(&self) -> VecDeque<ObjectNumber> {
        self.bytes.store(0, Ordering::Relaxed);
        std::mem::take(&mut lock(&self.lists).written)
    }

    pub(super) fn is_much(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) > MOST_BYTES || lock(&self.lists).written.len() > MOST_OBJECTS
    }

    /// Whether a write must be committed at once, since it might not fit.
    pub(super) fn is_tight(&self) -> bool {
        self.is_tight.load(Ordering::Relaxed)
    }

    pub(super) fn set_tight(&self, is_tight: bool) {
        self.is_tight.store(is_tight, Ordering::Relaxed);
    }

    /// A handle is open; returns those that have been open for longest, if there are many.
    pub(super) fn opened(&self, number: ObjectNumber) -> Vec<ObjectNumber> {
        let mut lists = lock(&self.lists);
        lists.open.push_back(number);
        // Two for one, so that many that were in use become few again.
        let more = lists.open.len().saturating_sub(MOST_IDLE).min(2);
        lists.open.drain(..more).collect()
    }

    /// One of those that [`opened`](Self::opened) has returned stays open.
    pub(super) fn stays_open(&self, number: ObjectNumber) {
        lock(&self.lists).open.push_back(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_open_handles_become_few_and_much_is_bytes_or_objects() {
        let waiting = Waiting::default();
        let all = (1..=200).map(ObjectNumber);
        let closed: Vec<_> = all.flat_map(|number| waiting.opened(number)).collect();
        assert_eq!(closed.len(), 200 - MOST_IDLE);
        assert_eq!(closed[..2], [ObjectNumber(1), ObjectNumber(2)]);
        (0..10).for_each(|number| waiting.stays_open(ObjectNumber(number)));
        assert_eq!(waiting.opened(ObjectNumber(201)).len(), 2);

        waiting.count(MOST_BYTES as usize, 0);
        assert!(!waiting.is_much());
        waiting.count(1, 0);
        assert!(waiting.is_much());
        waiting.add(ObjectNumber(7));
        assert_eq!((waiting.take(), waiting.is_much()), (VecDeque::from([ObjectNumber(7)]), false));
        (0..=MOST_OBJECTS as u64).for_each(|number| waiting.add(ObjectNumber(number)));
        assert!(waiting.is_much());
        waiting.take();
        waiting.count(1, MOST_BYTES_OF_ONE);
        assert!(!waiting.is_much());
        waiting.count(1, MOST_BYTES_OF_ONE + 1);
        assert!(waiting.is_much());
    }
}
