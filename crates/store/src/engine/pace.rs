//! Long work on a store: rate-limited, watched, and stopped cleanly.
//!
//! The rate is kept by a clock that advances with bytes: work ahead of it sleeps; work behind it (a slow device, a
//! pause) may catch up a quarter of a second and no more, so that a pause is not followed by a burst.

use std::thread;
use std::time::{Duration, Instant};

use crate::error::{Error, ErrorKind, Result};

/// How far work behind its rate may catch up.
const CREDIT: Duration = Duration::from_millis(250);
/// Maximum interval between calls of the watcher.
const NAP: Duration = Duration::from_millis(50);

/// Progress of long work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// What is being done, such as "verifying segments".
    pub stage: &'static str,
    /// Bytes done.
    pub done_bytes: u64,
    /// Total bytes, as far as known.
    pub total_bytes: u64,
}

/// Receives the progress, and returns whether to continue.
pub type Watch<'w> = &'w mut dyn FnMut(Progress) -> bool;

/// Work that is rate-limited and watched.
pub(crate) struct Pace<'w> {
    bytes_per_second: Option<u64>,
    /// When the bytes done so far are due.
    due: Instant,
    progress: Progress,
    is_stopped: bool,
    watch: Watch<'w>,
}

impl<'w> Pace<'w> {
    pub(crate) fn new(bytes_per_second: Option<u64>, watch: Watch<'w>) -> Pace<'w> {
        let progress = Progress { stage: "", done_bytes: 0, total_bytes: 0 };
        Pace {
            bytes_per_second: bytes_per_second.filter(|&rate| rate > 0),
            due: Instant::now(),
            progress,
            is_stopped: false,
            watch,
        }
    }

    /// Begins another stage, of `total_bytes`.
    pub(crate) fn stage(&mut self, stage: &'static str, total_bytes: u64) {
        self.progress = Progress { stage, done_bytes: 0, total_bytes };
    }

    /// Bytes done by an earlier session.
    pub(crate) fn skip(&mut self, bytes: u64) {
        self.progress.done_bytes += bytes;
    }

    /// Counts `bytes` as done: sleeps until they are due.
    ///
    /// # Errors
    /// The watcher stops the work; [`is_stopped`](Self::is_stopped) distinguishes this from other errors.
    pub(crate) fn spend(&mut self, bytes: u64) -> Result<()> {
        self.progress.done_bytes += bytes;
        if let Some(rate) = self.bytes_per_second {
            let earliest = Instant::now().checked_sub(CREDIT).unwrap_or(self.due);
            self.due = self.due.max(earliest) + Duration::from_secs_f64(bytes as f64 / rate as f64);
        }
        loop {
            if !(self.watch)(self.progress) {
                self.is_stopped = true;
                return Err(Error::new(ErrorKind::Io, "go on", "it was interrupted"));
            }
            let left = self.due.saturating_duration_since(Instant::now());
            if self.bytes_per_second.is_none() || left.is_zero() {
                return Ok(());
            }
            thread::sleep(left.min(NAP));
        }
    }

    /// Whether the watcher stopped the work.
    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// The outcome of the work: a stop on request is not a failure. Returns whether all of it was done.
    ///
    /// # Errors
    /// Those of the work.
    pub(crate) fn outcome(&self, result: Result<()>) -> Result<bool> {
        match result {
            Ok(()) => Ok(true),
            Err(_) if self.is_stopped => Ok(false),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_kept_within_a_tenth() {
        let mut watch = |_: Progress| true;
        let mut pace = Pace::new(Some(1_000_000), &mut watch);
        let started = Instant::now();
        for _ in 0..60 {
            pace.spend(10_000).unwrap();
        }
        let seconds = started.elapsed().as_secs_f64();
        assert!((0.54..0.9).contains(&seconds), "0.6 s of work took {seconds} s");
        // After a pause, work catches up a quarter of a second at most.
        thread::sleep(Duration::from_millis(600));
        let started = Instant::now();
        for _ in 0..50 {
            pace.spend(10_000).unwrap();
        }
        assert!(started.elapsed().as_secs_f64() > 0.22);
    }

    #[test]
    fn an_end_that_was_wished_for_is_no_failure() {
        let mut steps = 0;
        let mut watch = |progress: Progress| {
            steps += 1;
            progress.done_bytes < 3
        };
        let mut pace = Pace::new(None, &mut watch);
        pace.stage("testing", 10);
        let result = (0..10).try_for_each(|_| pace.spend(1));
        assert!(pace.is_stopped() && !pace.outcome(result).unwrap());
        assert_eq!(steps, 3);
    }
}
