//! Sides of a store that was written to separately: finding them, opening one for reading, and what only it has.

use std::path::Path;

use crate::Store;
use crate::devices::platforms;
use crate::devices::survey::OpenOptions;
use crate::engine::sides::{Side, sides};
use crate::error::Result;
use crate::format::entry::{Entry, Kind};
use crate::format::key::Key;

impl Store {
    /// All sides of a store: of devices that have diverged, or the store's own; then those that were not taken (see
    /// [`take_side`](crate::take_side)), of which there are segments.
    ///
    /// # Errors
    /// Errors of finding the store.
    pub fn sides(home: &Path, how: &OpenOptions) -> Result<Vec<Side>> {
        sides(&platforms::of(home, &how.bucket)?, home, how)
    }

    /// Opens a store for reading as a side shows it. Nothing is written, and nothing is seen of what a writer adds from
    /// then on.
    ///
    /// # Errors
    /// Errors of opening for reading.
    pub fn open_side(home: &Path, how: &OpenOptions, side: &Side) -> Result<Store> {
        side.open(platforms::of(home, &how.bucket)?, home, how).and_then(Store::of)
    }

    /// Number of objects, without directories, and of those that none of the others has under the same key with the
    /// same size and times.
    ///
    /// # Errors
    /// Errors of reading the index.
    pub fn count_beside(&self, others: &[&Store]) -> Result<(u64, u64)> {
        let is_same = |one: &Entry, other: &Entry| {
            let of = |entry: &Entry| (entry.kind, entry.id, entry.size_bytes, entry.mtime, entry.ctime);
            of(one) == of(other)
        };
        let (mut count, mut only_here) = (0, 0);
        for found in self.walk(&Key::root())? {
            let found = found?;
            if found.entry.kind == Kind::Directory {
                continue;
            }
            let mut is_elsewhere = false;
            for other in others {
                let there = other.entry(&found.key)?;
                is_elsewhere |= there.is_some_and(|there| is_same(&there.entry, &found.entry));
            }
            count += 1;
            only_here += u64::from(!is_elsewhere);
        }
        Ok((count, only_here))
    }
}
