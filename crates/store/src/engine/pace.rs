//! Long work on a store: rate-limited, and stopped cleanly.
//!
//! The rate is kept by a clock that advances with bytes: work ahead of it sleeps; work behind it (a slow device, a
//! pause) may catch up a quarter of a second and no more, so that a pause is not followed by a burst.

use std::thread;
use std::time::{Duration, Instant};

use crate::error::{Error, ErrorKind, Result};
use crate::progress::Progress;

/// How far work behind its rate may catch up.
const CREDIT: Duration = Duration::from_millis(250);
/// Longest sleep between two looks for a request to stop.
const NAP: Duration = Duration::from_millis(50);

/// Work that is rate-limited, and reports its bytes to a [`Progress`].
pub(crate) struct Pace<'p> {
    bytes_per_second: Option<u64>,
    /// When the bytes done so far are due.
    due: Instant,
    progress: &'p Progress,
}

impl<'p> Pace<'p> {
    pub(crate) fn new(bytes_per_second: Option<u64>, progress: &'p Progress) -> Pace<'p> {
        Pace { bytes_per_second: bytes_per_second.filter(|&rate| rate > 0), due: Instant::now(), progress }
    }

    /// Begins another stage, of `total_bytes`.
    pub(crate) fn stage(&mut self, stage: &'static str, total_bytes: u64) {
        self.progress.begin(stage, total_bytes);
    }

    /// Bytes done by an earlier session.
    pub(crate) fn skip(&mut self, bytes: u64) {
        self.progress.skip_bytes(bytes);
    }

    /// Counts `bytes` as done: sleeps until they are due.
    ///
    /// # Errors
    /// [`ErrorKind::Interrupted`] if the work is asked to stop.
    pub(crate) fn spend(&mut self, bytes: u64) -> Result<()> {
        self.progress.add_bytes(bytes);
        if let Some(rate) = self.bytes_per_second {
            let earliest = Instant::now().checked_sub(CREDIT).unwrap_or(self.due);
            self.due = self.due.max(earliest) + Duration::from_secs_f64(bytes as f64 / rate as f64);
        }
        loop {
            if self.progress.should_stop() {
                return Err(Error::new(ErrorKind::Interrupted, "go on", "it was asked to stop"));
            }
            let left = self.due.saturating_duration_since(Instant::now());
            if self.bytes_per_second.is_none() || left.is_zero() {
                return Ok(());
            }
            thread::sleep(left.min(NAP));
        }
    }
}

/// The outcome of work with a [`Pace`]: a stop on request is not a failure. Returns whether all of it was done.
///
/// # Errors
/// Those of the work.
pub(crate) fn outcome(result: Result<()>) -> Result<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::Interrupted => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_kept_within_a_tenth() {
        let progress = Progress::default();
        let mut pace = Pace::new(Some(1_000_000), &progress);
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
        let progress = Progress::observed(|progress| {
            if progress.snapshot().bytes == 3 {
                progress.stop();
            }
        });
        let mut pace = Pace::new(None, &progress);
        pace.stage("testing", 10);
        let result = (0..10).try_for_each(|_| pace.spend(1));
        assert!(!outcome(result).unwrap());
        assert_eq!(progress.snapshot().bytes, 3);
    }
}
