//! Operations in memory, as a source.

use super::{Findings, Names, Operation, Origin, Problems, Source};
use crate::error::Result;

/// A source of operations that were assembled in memory.
#[derive(Debug, Clone)]
pub struct Listed {
    /// The operations.
    pub operations: Vec<Operation>,
    /// Names of files.
    pub files: Names,
    /// Names of processes.
    pub processes: Names,
    /// Their origin.
    pub origin: Origin,
    /// Problems found.
    pub problems: Problems,
    given: usize,
}

impl Listed {
    /// An empty source from `recorder`.
    pub fn new(recorder: &str) -> Listed {
        Listed {
            operations: Vec::new(),
            files: Names::default(),
            processes: Names::default(),
            origin: Origin::new(recorder),
            problems: Problems::default(),
            given: 0,
        }
    }
}

impl Source for Listed {
    fn next(&mut self) -> Result<Option<Operation>> {
        let operation = self.operations.get(self.given).copied();
        self.given += usize::from(operation.is_some());
        Ok(operation)
    }

    fn findings(&self) -> Findings<'_> {
        Findings { files: &self.files, processes: &self.processes, origin: &self.origin, problems: &self.problems }
    }

    fn progress(&self) -> (u64, Option<u64>) {
        (self.given as u64, Some(self.operations.len() as u64))
    }
}
