//! Files with several names: which name is the first, and what the work on it passes to the work on the others.
//!
//! A file is forgotten when all its names were seen, so only those with names still to come, or elsewhere, need memory.

use crate::locks::{lock, unpoisoned};
use std::hash::Hash;
use std::sync::{Condvar, Mutex};

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

/// Files of which some names were seen: what is passed to the next name, and how many are to come.
pub(super) struct SharedNames<K, T> {
    seen: HashMap<K, (T, u64)>,
}

impl<K, T> Default for SharedNames<K, T> {
    fn default() -> SharedNames<K, T> {
        SharedNames { seen: HashMap::new() }
    }
}

impl<K: Hash + Eq, T: Clone> SharedNames<K, T> {
    /// What the first name passed on, if it was seen; this is then a later name.
    pub(super) fn later(&mut self, file: K) -> Option<T> {
        let Entry::Occupied(mut occupied) = self.seen.entry(file) else { return None };
        let (left, to_come) = occupied.get_mut();
        let left = left.clone();
        *to_come -= 1;
        if *to_come == 0 {
            occupied.remove();
        }
        Some(left)
    }

    /// Notes the first of `count` names, and what it passes on.
    pub(super) fn first(&mut self, file: K, count: u64, left: T) {
        if count > 1 {
            self.seen.insert(file, (left, count - 1));
        }
    }
}

/// A value that the thread with the first name passes to those with the others.
#[derive(Debug)]
pub(super) struct Handover<T> {
    state: Mutex<HandoverState<T>>,
    set: Condvar,
}

#[derive(Debug, Clone, Copy)]
enum HandoverState<T> {
    Open,
    Done(T),
    Failed,
}

impl<T> Default for Handover<T> {
    fn default() -> Handover<T> {
        Handover { state: Mutex::new(HandoverState::Open), set: Condvar::new() }
    }
}

impl<T: Copy> Handover<T> {
    /// Sets the result of the first name; `None` if it failed. Only the first call counts.
    pub(super) fn set(&self, value: Option<T>) {
        let mut state = lock(&self.state);
        if let HandoverState::Open = *state {
            *state = value.map_or(HandoverState::Failed, HandoverState::Done);
            self.set.notify_all();
        }
    }

    /// The value, without waiting.
    pub(super) fn known(&self) -> Option<T> {
        match *lock(&self.state) {
            HandoverState::Done(value) => Some(value),
            HandoverState::Open | HandoverState::Failed => None,
        }
    }

    /// Waits for the value. The work on the first name was handed out before, so it will come.
    pub(super) fn wait(&self) -> Option<T> {
        let mut state = lock(&self.state);
        loop {
            match *state {
                HandoverState::Open => state = unpoisoned(self.set.wait(state)),
                HandoverState::Done(value) => return Some(value),
                HandoverState::Failed => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_file_is_forgotten_when_all_its_names_were_seen() {
        let mut names = SharedNames::default();
        assert_eq!(names.later(7), None);
        names.first(7, 3, 'x');
        assert_eq!((names.later(7), names.later(7), names.later(7)), (Some('x'), Some('x'), None));
        names.first(8, 1, 'y');
        assert!(names.seen.is_empty());
    }

    #[test]
    fn what_was_said_first_counts_and_wakes_those_that_wait() {
        let slot = Arc::new(Handover::default());
        let waiting = {
            let slot = slot.clone();
            std::thread::spawn(move || slot.wait())
        };
        assert_eq!(slot.known(), None);
        slot.set(Some(5));
        slot.set(None);
        assert_eq!((waiting.join().unwrap(), slot.known()), (Some(5), Some(5)));
        let failed = Handover::<u8>::default();
        failed.set(None);
        assert_eq!(failed.wait(), None);
    }
}
