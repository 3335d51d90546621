//! Deletions: of objects that were dropped long enough ago, and of what no version ever had.
//!
//! - A writer that begins deletes some of what is due; a compaction and a repair all of it.
//! - These also list the bucket, and delete what writers before put and did not publish, and by what they showed that
//!   they lived.

#![cfg_attr(not(test), warn(clippy::indexing_slicing))]

use std::io;
use std::time::Duration;

use super::lease::{LEASES, is_lease, path_of};
use super::volume::{Author, Log, Volume};
use crate::devices::objects::ObjectError;
use crate::devices::published::{Surroundings, WriteError};
use crate::locks::lock;

/// Most deletions with which a writer begins: a request.
const MOST_AT_BEGINNING: usize = 1000;

/// The time, in seconds since 1970.
pub(super) fn seconds(surroundings: &dyn Surroundings) -> u64 {
    u64::try_from(surroundings.now_nanoseconds()).unwrap_or(0) / 1_000_000_000
}

impl Author {
    /// Deletes objects that were dropped before the grace time, at most so many. What cannot be deleted is due again.
    fn delete_due(&mut self, now_seconds: u64, grace: Duration, most: usize) {
        self.dropped.date_back(now_seconds);
        let Some(until) = now_seconds.checked_sub(grace.as_secs()) else { return };
        let due = self.dropped.until(until, most);
        if due.is_empty() {
            return;
        }
        let left = self.writer.delete_dropped(&due);
        self.dropped.remove(&due.difference(&left).copied().collect());
    }
}

impl Volume {
    fn grace(&self) -> Duration {
        lock(&self.files).remembered.grace()
    }

    /// A writer that has begun deletes what is due.
    pub(super) fn delete_some(&self) {
        if let Log::Writing(author) = &mut *lock(&self.log) {
            author.delete_due(seconds(&*self.bucket.surroundings), self.grace(), MOST_AT_BEGINNING);
        }
    }

    /// Deletes everything that no version needs. Nothing else changes; if this is not the writer, nothing at all.
    ///
    /// # Errors
    /// The bucket cannot be listed, or another writer has begun.
    pub(super) fn collect(&self) -> io::Result<()> {
        let mut log = lock(&self.log);
        let Log::Writing(author) = &mut *log else { return Ok(()) };
        author.delete_due(seconds(&*self.bucket.surroundings), self.grace(), usize::MAX);
        let collected = author.writer.collect_except(&author.dropped.names());
        let own = path_of(author.writer.manifest().epoch());
        match collected {
            Ok(_) => {}
            Err(WriteError::Failed(error)) => return Err(io::Error::other(error.to_string())),
            Err(error) => return Err(self.refused(&error)),
        }
        // The writers of these are gone, and what one still puts is found the next time.
        let shown = self.bucket.names(LEASES).map_err(ObjectError::into_io)?;
        let others: Vec<String> = shown.into_iter().filter(|name| *name != own && is_lease(name)).collect();
        if !others.is_empty() {
            self.bucket.objects.delete_many(&others);
        }
        Ok(())
    }
}
