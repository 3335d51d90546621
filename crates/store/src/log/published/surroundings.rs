//! What a writer and a reader need beside the bucket: random numbers, the time, and how long they go on trying.

use std::fmt::Debug;
use std::time::Duration;

use crate::devices::host::Host;
use crate::devices::set::Platform;
use crate::error::Result;

/// Where random numbers and the time come from, and how long a request is tried that fails.
pub trait Surroundings: Send + Sync + Debug {
    /// A number that nobody can guess and that does not come twice.
    ///
    /// # Errors
    /// If the system has none.
    fn random(&self) -> Result<u64>;

    /// Nanoseconds since 1970. Only people read it.
    fn now_nanoseconds(&self) -> i64;

    /// Waits before a request is sent again that was sent so many times; gives whether it should be. It must say no at last.
    fn wait(&self, attempts: u32) -> bool;
}

/// The machine: its clock, its random numbers, and waits that double, each cut at random so that many do not come back at once.
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
    /// How many times a request is sent at most.
    pub attempts: u32,
    /// The longest wait after the first attempt; after each other one, twice as long.
    pub first_wait: Duration,
    /// No wait is longer than that.
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
        // Without a random number the whole time.
        let share = self.random().map_or(u32::MAX, |random| random as u32);
        std::thread::sleep(doubled.mul_f64(f64::from(share) / f64::from(u32::MAX)));
        true
    }
}
