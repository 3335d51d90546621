//! A catalog in memory: for stores whose index is lost while they are only read, and for the crash tests.
//!
//! A clone is another view of the same catalog, as a second connection would be. In tests it remembers every transaction since
//! the last durable one, as a power failure may take it back to before any of them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Catalog, Change, State};
use crate::error::Result;

/// A catalog that ends with the process.
#[derive(Debug, Clone, Default)]
pub struct Memory {
    kept: Arc<Mutex<Kept>>,
}

#[derive(Debug, Default)]
struct Kept {
    state: State,
    #[cfg(test)]
    durable: State,
    /// What came after it.
    #[cfg(test)]
    since: Vec<Change>,
}

impl Memory {
    /// An empty catalog.
    pub fn new() -> Memory {
        Memory::default()
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        // A change is applied whole before anything can panic.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
impl Memory {
    /// Another catalog that has what this one has.
    pub(crate) fn copy(&self) -> Memory {
        let kept = self.kept();
        let copy = Kept { state: kept.state.clone(), durable: kept.durable.clone(), since: kept.since.clone() };
        Memory { kept: Arc::new(Mutex::new(copy)) }
    }

    /// How many states a power failure may leave: after the last durable transaction, and after each since.
    pub(crate) fn states(&self) -> usize {
        1 + self.kept().since.len()
    }

    /// Takes the catalog back to one of these states, 0 being the oldest, as a power failure does. What is left is durable.
    pub(crate) fn roll_back(&self, state: usize) {
        let mut kept = self.kept();
        kept.since.truncate(state);
        let since = std::mem::take(&mut kept.since);
        since.into_iter().for_each(|change| kept.durable.apply(change));
        kept.state = kept.durable.clone();
    }
}

impl Catalog for Memory {
    fn refresh(&self, state: &mut State) -> Result<bool> {
        let kept = self.kept();
        let changed = kept.state.version != state.version;
        if changed {
            *state = kept.state.clone();
        }
        Ok(changed)
    }

    fn commit(&self, state: &mut State, change: Change) -> Result<()> {
        let mut kept = self.kept();
        #[cfg(test)]
        {
            let durable = change.durable;
            kept.since.push(change.clone());
            if durable {
                let since = std::mem::take(&mut kept.since);
                since.into_iter().for_each(|change| kept.durable.apply(change));
            }
        }
        kept.state.apply(change.clone());
        state.apply(change);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(value: u8, durable: bool) -> Change {
        Change { notes: vec![("note".to_owned(), vec![value])], durable, ..Change::default() }
    }

    fn note(catalog: &Memory) -> Vec<u8> {
        let mut state = State::default();
        catalog.refresh(&mut state).unwrap();
        state.notes.get("note").cloned().unwrap_or_default()
    }

    #[test]
    fn a_power_failure_leaves_any_state_since_the_durable_one() {
        for (back, expected) in [(0, 2), (1, 3), (2, 4)] {
            let catalog = Memory::new();
            let mut state = State::default();
            for (value, durable) in [(1, false), (2, true), (3, false), (4, false)] {
                catalog.commit(&mut state, noted(value, durable)).unwrap();
            }
            assert_eq!((catalog.states(), note(&catalog)), (3, vec![4]));
            catalog.clone().roll_back(back);
            assert_eq!((catalog.states(), note(&catalog)), (1, vec![expected]));
        }
    }

    #[test]
    fn another_view_sees_what_was_committed() {
        let (writer, mut state) = (Memory::new(), State::default());
        let (reader, mut seen) = (writer.clone(), State::default());
        assert!(!reader.refresh(&mut seen).unwrap());
        writer.commit(&mut state, noted(1, false)).unwrap();
        assert!(reader.refresh(&mut seen).unwrap());
        assert_eq!(seen, state);
        assert!(!reader.refresh(&mut seen).unwrap());
    }
}
