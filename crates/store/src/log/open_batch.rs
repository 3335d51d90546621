//! A batch that is being read, until its commit says which of its records are part of the log.
//!
//! A scan can return two records from one offset: a valid one from the first copy and then, once a commit is known
//! whose list has another one there, that one from another copy. Only the second was written in this batch. So records
//! are kept by offset, each in place of what was there before, and leave in the order in which they were written: what
//! a list brings late is applied neither twice nor after what superseded it.

use super::scan::Committed;
use crate::format::ids::LogOffset;

/// What a reader keeps of the records of a batch, in the order of their offsets.
#[derive(Debug)]
pub(crate) struct OpenBatch<T> {
    records: Vec<(LogOffset, T)>,
}

impl<T> Default for OpenBatch<T> {
    fn default() -> OpenBatch<T> {
        OpenBatch { records: Vec::new() }
    }
}

impl<T> OpenBatch<T> {
    /// Keeps what a record says, or nothing of it; what was kept of another record at this offset goes.
    pub(crate) fn replace(&mut self, at: LogOffset, kept: Option<T>) {
        let place = self.records.partition_point(|&(offset, _)| offset < at);
        let has_earlier = self.records.get(place).is_some_and(|&(offset, _)| offset == at);
        self.records.splice(place..place + usize::from(has_earlier), kept.map(|kept| (at, kept)));
    }

    /// What was kept of the records that a commit does not refute; the next batch begins.
    pub(crate) fn end<'c>(&mut self, committed: &'c Committed) -> impl Iterator<Item = T> + use<'c, T> {
        let records = std::mem::take(&mut self.records).into_iter();
        records.filter(|(at, _)| !committed.refuted.contains(at)).map(|(_, kept)| kept)
    }

    /// What was kept of records that no commit follows.
    pub(crate) fn without_commit(self) -> impl Iterator<Item = T> {
        self.records.into_iter().map(|(_, kept)| kept)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }
}
