//! Naming the object that a problem concerns, by its path. The index has only names and numbers of directories.

use super::problem::Problem;
use crate::format::ids::ObjectNumber;
use crate::format::index_key::{entry_of_key, object_of, superseded};
use crate::index::Snapshot;
use crate::index::paths::Ways;
use crate::units::escape;

/// Paths of directories are computed when the first object is named.
#[derive(Debug, Default)]
pub(super) struct ObjectPaths {
    ways: Option<Ways>,
}

impl ObjectPaths {
    /// With known paths of directories.
    pub(super) fn of(ways: Ways) -> ObjectPaths {
        ObjectPaths { ways: Some(ways) }
    }

    /// The problem, with the name of its object: "shared file N" for one with several names, and "NAME in directory N"
    /// if the directory has no path in the index.
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

    fn path(&mut self, directory: ObjectNumber, name: &[u8], snapshot: &Snapshot) -> String {
        // If the index cannot be read to the end, numbers are shown.
        let ways = self.ways.get_or_insert_with(|| Ways::of(snapshot).unwrap_or_default());
        match ways.path(directory, name) {
            Some(path) => path.to_string(),
            None => format!("{} in directory {directory}", escape(name)),
        }
    }
}
