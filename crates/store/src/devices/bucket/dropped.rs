//! Objects that were dropped: no version refers to them any more, and readers of an older one may.
//!
//! A row comes with the version that no longer has its object, and is there until that was deleted. Deleting is
//! repeated if it failed, or if its writer died before it published that; names are never used again, so that harms
//! nobody.

#![cfg_attr(not(test), warn(clippy::indexing_slicing))]

use std::collections::BTreeSet;

use crate::devices::published::ObjectName;

/// Names of objects, each with the time at which it was dropped, in seconds since 1970 by the clock of its writer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Dropped {
    rows: BTreeSet<(u64, ObjectName)>,
}

impl Dropped {
    /// Adds a row; `false` if it is there already.
    pub(super) fn add(&mut self, seconds: u64, name: ObjectName) -> bool {
        self.rows.insert((seconds, name))
    }

    pub(super) fn rows(&self) -> impl ExactSizeIterator<Item = (u64, ObjectName)> + Clone {
        self.rows.iter().copied()
    }

    pub(super) fn names(&self) -> BTreeSet<ObjectName> {
        self.rows.iter().map(|(_, name)| *name).collect()
    }

    /// What was dropped at a time or before, the oldest first, but at most so many.
    pub(super) fn until(&self, seconds: u64, most: usize) -> BTreeSet<ObjectName> {
        self.rows.iter().take_while(|(dropped, _)| *dropped <= seconds).take(most).map(|(_, name)| *name).collect()
    }

    /// Names that are no longer there.
    pub(super) fn remove(&mut self, names: &BTreeSet<ObjectName>) {
        self.rows.retain(|(_, name)| !names.contains(name));
    }

    /// What seems to have been dropped later than now was dropped now: a clock was wrong.
    pub(super) fn date_back(&mut self, now_seconds: u64) {
        if self.rows.last().is_some_and(|(dropped, _)| *dropped > now_seconds) {
            let rows = std::mem::take(&mut self.rows);
            self.rows = rows.into_iter().map(|(dropped, name)| (dropped.min(now_seconds), name)).collect();
        }
    }
}
