//! Which object a problem concerns, for people: its path. The index has names and numbers of directories only.

use super::problem::Problem;
use crate::format::index_key::{entry_of_key, object_of, superseded};
use crate::index::Snapshot;
use crate::index::paths::Ways;
use crate::units::escape;

/// Directories are put together when the first object is named.
#[derive(Debug, Default)]
pub(super) struct Objects {
    ways: Option<Ways>,
}

impl Objects {
    /// With the directories that are known.
    pub(super) fn of(ways: Ways) -> Objects {
        Objects { ways: Some(ways) }
    }

    /// The problem, with the name of its object: "shared file N" of one with several names, and where the index does not lead to its directory
    /// "NAME in directory N".
    pub(super) fn name(&mut self, mut problem: Problem, snapshot: &Snapshot) -> Problem {
        problem.object = problem.key.as_deref().and_then(|key| match superseded(key) {
            None => self.of_key(key, snapshot),
            Some((of, _)) => Some(format!("{}, as it was before", self.of_key(&of, snapshot)?)),
        });
        problem
    }

    fn of_key(&mut self, key: &[u8], snapshot: &Snapshot) -> Option<String> {
        match (object_of(key), entry_of_key(key)) {
            (Some(number), _) => Some(format!("shared file {number}")),
            (None, Some((directory, name))) => Some(self.path(directory, name, snapshot)),
            (None, None) => None,
        }
    }

    fn path(&mut self, directory: u64, name: &[u8], snapshot: &Snapshot) -> String {
        // Where the index cannot be read to its end, there are numbers.
        let ways = self.ways.get_or_insert_with(|| Ways::of(snapshot).unwrap_or_default());
        match ways.path(directory, name) {
            Some(path) => path.to_string(),
            None => format!("{} in directory {directory}", escape(name)),
        }
    }
}
