//! Space of what was overwritten and removed comes back while the store is mounted.
//!
//! A store only appends; compaction frees what is dead by moving what lives beside it. Here it runs at intervals, once
//! that frees much: each byte freed then costs at most one byte moved. And it runs when the devices are full: a program
//! gets ENOSPC only if too little is left to free. What was compacted before and waited for readers is freed first: it
//! costs nothing. Other programs read, list and write meanwhile; one that needs room waits, and so does whoever uses
//! the same file. Which request needs room is known when there is none: its thread then calls another to the device.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use super::errno::Outcome;
use super::file_system::FileSystem;
use crate::error::{ErrorKind, Result};
use crate::locks::lock;
use crate::progress::Progress;
use crate::store::ids::ObjectNumber;
use crate::store::{Choice, CompactOptions};

/// Segments and extent files with at least this percentage of dead bytes are freed at intervals, if that frees at least
/// so many bytes, and at least a tenth of all.
const AT_INTERVALS: Choice = Choice::Dead(50);
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
        let _freeing = lock(&self.freeing);
        self.free_waiting()?;
        let status = self.store.status(false)?;
        let stored_bytes = status.live_bytes + status.dead_bytes + status.unit_bytes;
        let progress = Progress::with_stop_flag(self.has_ended.clone());
        self.free(AT_INTERVALS, LEAST_BYTES.max(stored_bytes / LEAST_PART), &progress).map(drop)
    }

    /// Frees what waited for readers that have ended; returns whether there was any.
    fn free_waiting(&self) -> Result<bool> {
        Ok(self.store.free_waiting()? > 0)
    }

    /// Also after the mount has ended: the last changes need room, too.
    fn free_if_full(&self) -> Result<bool> {
        self.free(IF_FULL, LEAST_BYTES_IF_FULL, &Progress::default())
    }

    /// Frees what `choice` selects, if that is enough; returns whether it was.
    fn free(&self, choice: Choice, least_bytes: u64, progress: &Progress) -> Result<bool> {
        let options = CompactOptions { choice, ..CompactOptions::default() };
        if self.store.plan_compaction(&options)?.gained_bytes() < least_bytes {
            return Ok(false);
        }
        self.store.compact(&options, progress)?;
        Ok(true)
    }

    /// Runs `act`, which is about an object; if the store is full, frees space and runs it again, up to four times in
    /// all. `act` must change nothing when it finds no space. The caller may hold states of objects, but no lock that
    /// compaction takes.
    pub(super) fn retry_after_freeing<T>(&self, number: ObjectNumber, act: impl Fn() -> Result<T>) -> Outcome<T> {
        let mut outcome = act();
        if is_full(&outcome) {
            outcome = self.attention.away(|| self.act_after_freeing(act));
        }
        outcome.map_err(|error| self.fail_of(number, error))
    }

    fn act_after_freeing<T>(&self, act: impl Fn() -> Result<T>) -> Result<T> {
        let _freeing = lock(&self.freeing);
        // Somebody else may have freed some meanwhile.
        let mut outcome = act();
        for free in [FileSystem::free_waiting, FileSystem::free_if_full] {
            if !is_full(&outcome) {
                break;
            }
            let freed = free(self);
            // A compaction that fails may have freed something before.
            if !matches!(freed, Ok(false)) {
                outcome = act();
            }
            if let Err(error) = freed {
                self.fail(error);
            }
        }
        if is_full(&outcome) {
            // Writes are committed at once from now on, so that the one for which there is no room fails itself.
            self.waiting.set_tight(true);
        }
        outcome
    }
}

fn is_full<T>(outcome: &Result<T>) -> bool {
    outcome.as_ref().is_err_and(|error| error.kind() == ErrorKind::NoSpace)
}
