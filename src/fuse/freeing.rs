//! Space of what was overwritten and removed comes back while the store is mounted.
//!
//! A store only appends; compaction frees what is dead by moving what lives beside it. Here it runs at intervals, once
//! that frees much: each byte freed then costs at most one byte moved. And it runs when the devices are full: a program
//! is told so only if there is nothing left to free. Programs read and write meanwhile; who needs room waits.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use super::errno::Outcome;
use super::file_system::FileSystem;
use crate::error::{ErrorKind, Result};
use crate::locks::lock;
use crate::progress::Progress;
use crate::store::{Choice, CompactOptions};

/// Segments and extent files with at least this percentage of dead bytes are freed at intervals, if that frees at least
/// so many bytes, and this part of all.
const USUALLY: Choice = Choice::Dead(50);
const LEAST_BYTES: u64 = 64 << 20;
const LEAST_PART: u64 = 10;
/// The same on full devices.
const IF_FULL: Choice = Choice::Dead(10);
const LEAST_BYTES_IF_FULL: u64 = 1 << 20;

/// Frees space at intervals, until nobody is left that could send.
pub(super) fn free_at_intervals(system: &FileSystem, every: Duration, ended: &Receiver<()>) {
    while ended.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
        if let Err(error) = system.free_much() {
            system.fail(error);
        }
    }
}

impl FileSystem {
    fn free_much(&self) -> Result<()> {
        let _one = lock(&self.freeing);
        let status = self.store.status(false)?;
        let stored_bytes = status.live_bytes + status.dead_bytes + status.unit_bytes;
        self.free(USUALLY, LEAST_BYTES.max(stored_bytes / LEAST_PART)).map(drop)
    }

    /// Frees what `choice` selects, if that is enough; returns whether it was.
    fn free(&self, choice: Choice, least_bytes: u64) -> Result<bool> {
        let options = CompactOptions { choice, ..CompactOptions::default() };
        if self.store.plan_compaction(&options)?.gained_bytes() < least_bytes {
            return Ok(false);
        }
        self.store.compact(&options, &Progress::with_stop_flag(self.has_ended.clone()))?;
        Ok(true)
    }

    /// Does what needs room; if there is none, again after freeing some. Called with no lock that a program can wait
    /// for while compaction needs it.
    pub(super) fn with_room<T>(&self, act: impl Fn() -> Result<T>) -> Outcome<T> {
        let outcome = act();
        let is_full = |outcome: &Result<T>| outcome.as_ref().is_err_and(|error| error.kind() == ErrorKind::NoSpace);
        if !is_full(&outcome) {
            return outcome.map_err(|error| self.fail(error));
        }
        let _one = lock(&self.freeing);
        // Somebody else may have freed some meanwhile.
        let mut outcome = act();
        if is_full(&outcome) && self.free(IF_FULL, LEAST_BYTES_IF_FULL).map_err(|error| self.fail(error))? {
            outcome = act();
        }
        if is_full(&outcome) {
            self.waiting.set_tight(true);
        }
        outcome.map_err(|error| self.fail(error))
    }
}
