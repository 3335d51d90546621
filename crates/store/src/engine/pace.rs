//! Long work on a store: held to a rate, watched, and stopped in good order.
//!
//! A rate is kept by a clock that bytes move on: work that ran ahead of it sleeps, work that fell behind (a slow device, a pause) may
//! catch up a quarter of a second and no more, so that a pause is not followed by a burst.

use std::thread;
use std::time::{Duration, Instant};

use crate::error::{Error, ErrorKind, Result};

/// Behind its rate, work may catch up this much.
const CREDIT: Duration = Duration::from_millis(250);
/// Whoever watches is asked at least this often.
const NAP: Duration = Duration::from_millis(50);

/// How far long work is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// What is being done, as "verifying segments".
    pub stage: &'static str,
    /// Bytes that are done.
    pub done_bytes: u64,
    /// Bytes that there are to do, as far as that is known.
    pub total_bytes: u64,
}

/// Sees how far work is, and says whether to go on.
pub type Watch<'w> = &'w mut dyn FnMut(Progress) -> bool;

/// Work that is held to a rate and watched.
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

    /// Begins another kind of work, of so many bytes.
    pub(crate) fn stage(&mut self, stage: &'static str, total_bytes: u64) {
        self.progress = Progress { stage, done_bytes: 0, total_bytes };
    }

    /// Bytes that an earlier session has done.
    pub(crate) fn skip(&mut self, bytes: u64) {
        self.progress.done_bytes += bytes;
    }

    /// So many bytes are done: sleeps until they are due.
    ///
    /// # Errors
    /// Whoever watches does not want to go on; [`is_stopped`](Self::is_stopped) tells this from other errors.
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

    /// Whether whoever watches wanted an end.
    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// What the work came to: an end that was wished for is none that failed. Gives whether all of it was done.
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
        // A pause is caught up a quarter of a second, no more.
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
