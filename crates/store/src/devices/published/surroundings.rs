//! What a writer and a reader need besides the bucket: random numbers, the time, how long to retry, and who they are.

use std::fmt::Debug;
use std::time::Duration;

use super::process::{self, Process};
use crate::devices::host::Host;
use crate::devices::platform::Platform;
use crate::devices::threads;
use crate::error::Result;

/// Source of random numbers and the time, and how long a failing request is retried. What has an implementation here is
/// of this machine and this process.
pub trait Surroundings: Send + Sync + Debug {
    /// A random number that is unpredictable and does not repeat.
    ///
    /// # Errors
    /// If the system has none.
    fn random(&self) -> Result<u64>;

    /// Nanoseconds since 1970. For information only.
    fn now_nanoseconds(&self) -> i64;

    /// Waits before a request is retried after `attempts` attempts; returns whether to retry. Must return `false`
    /// eventually.
    fn wait(&self, attempts: u32) -> bool;

    /// Time since the machine started, without what it slept; the same for all processes that see each other.
    fn elapsed(&self) -> Duration {
        process::elapsed()
    }

    /// Waits.
    fn pause(&self, time: Duration) {
        std::thread::sleep(time);
    }

    /// The process that this is.
    fn process(&self) -> Process {
        Process::this()
    }

    /// Whether a process has ended. Never if that cannot be seen from here.
    fn has_ended(&self, process: &Process) -> bool {
        process.has_ended()
    }

    /// Calls `call` after each `interval`, beside everything else, until it returns `false`. If the system refuses
    /// that, it is not called.
    fn keep_calling(&self, interval: Duration, mut call: Box<dyn FnMut() -> bool + Send>) {
        let calls = move || {
            loop {
                std::thread::sleep(interval);
                if !call() {
                    return;
                }
            }
        };
        // Whoever relies on it is late then, as with a process that hangs.
        let _ = threads::spawn(calls);
    }
}

/// The machine: its clock, its random numbers, and exponential backoff with jitter, so that many clients do not return
/// simultaneously.
///
/// ```
/// use std::time::Duration;
///
/// use granulo_store::published::{Machine, Surroundings};
///
/// let hasty = Machine { attempts: 3, first_wait: Duration::from_millis(1), ..Machine::default() };
/// assert!(hasty.wait(1) && hasty.wait(2) && !hasty.wait(3));
/// ```
#[derive(Debug, Clone)]
pub struct Machine {
    /// Maximum number of attempts of a request.
    pub attempts: u32,
    /// The longest wait after the first attempt; it doubles with each further attempt.
    pub first_wait: Duration,
    /// Upper bound of every wait.
    pub longest_wait: Duration,
}

impl Default for Machine {
    fn default() -> Machine {
        Machine { attempts: 8, first_wait: Duration::from_millis(100), longest_wait: Duration::from_secs(10) }
    }
}

impl Surroundings for Machine {
    fn random(&self) -> Result<u64> {
        Host.random()
    }

    fn now_nanoseconds(&self) -> i64 {
        Host.now_nanoseconds()
    }

    fn wait(&self, attempts: u32) -> bool {
        if attempts >= self.attempts {
            return false;
        }
        let doubled = self.first_wait.saturating_mul(1 << attempts.saturating_sub(1).min(31)).min(self.longest_wait);
        // The full wait if no random number is available.
        let share = self.random().map_or(u32::MAX, |random| random as u32);
        std::thread::sleep(doubled.mul_f64(f64::from(share) / f64::from(u32::MAX)));
        true
    }
}
