//! Naming the object that a problem concerns, by its path. The index has only names and numbers of directories.

use super::problem::Problem;
use crate::format::index_key::superseded;
use crate::index::Snapshot;
use crate::index::paths::Ways;

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

    /// The problem, with the name of its object as [`Ways::name_of`] has it.
    pub(super) fn name(&mut self, mut problem: Problem, snapshot: &Snapshot) -> Problem {
        problem.object = problem.key.as_deref().and_then(|key| match superseded(key) {
            None => self.of_key(key, snapshot),
            Some((of, _)) => Some(format!("{}, as it was before", self.of_key(&of, snapshot)?)),
        });
        problem
    }

    fn of_key(&mut self, key: &[u8], snapshot: &Snapshot) -> Option<String> {
        // If the index cannot be read to the end, numbers are shown.
        self.ways.get_or_insert_with(|| Ways::of(snapshot).unwrap_or_default()).name_of(key)
    }
}
