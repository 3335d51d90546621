//! Progress of long work, and the request to stop it: counters that working threads advance, and a flag that they poll.
//!
//! Both sides share one [`Progress`]. The work adds to its counters and ends early once [`Progress::should_stop`] is
//! true; whoever waits reads a [`Snapshot`] when it likes. All of it is relaxed atomics, cheap enough for hot loops;
//! only the [`Stage`], which changes rarely, is behind a lock. The counters of a snapshot are read one after the other:
//! they may differ by what was added meanwhile.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What is being done; work without stages has the default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stage {
    /// What is being done, such as "verifying segments".
    pub name: String,
    /// What it is done to, where there are several.
    pub subject: String,
    /// Round, from 0.
    pub round: u64,
}

impl From<&str> for Stage {
    fn from(name: &str) -> Stage {
        Stage { name: name.to_owned(), ..Stage::default() }
    }
}

/// The counters at one time. Each work says which of them it advances.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// The current stage.
    pub stage: Stage,
    /// Time since it began.
    pub stage_elapsed: Duration,
    /// Time since the work began.
    pub elapsed: Duration,
    /// Files, or objects of a store.
    pub objects: u64,
    /// Directories.
    pub directories: u64,
    /// Bytes: of all files, or done in the current stage.
    pub bytes: u128,
    /// Those of them that an earlier session did.
    pub skipped_bytes: u64,
    /// Operations, or other units, done in the current stage.
    pub operations: u64,
    /// What could not be read.
    pub errors: u64,
    /// The total of what the current stage counts; 0 if unknown.
    pub total: u64,
}

type Observer = dyn Fn(&Progress) + Send + Sync;

/// Shared progress of long work. Clones share the counters and the flag.
#[derive(Clone, Default)]
pub struct Progress {
    counters: Arc<Counters>,
    stop: Arc<AtomicBool>,
    observer: Option<Arc<Observer>>,
}

#[derive(Default)]
struct Counters {
    current: Mutex<Current>,
    objects: AtomicU64,
    directories: AtomicU64,
    /// Sums of sizes can exceed 64 bits: sparse files may be as large as 2^63 bytes.
    bytes: AtomicU64,
    bytes_carried: AtomicU64,
    skipped_bytes: AtomicU64,
    operations: AtomicU64,
    errors: AtomicU64,
    total: AtomicU64,
}

/// The stage, and when it and the work began.
struct Current {
    stage: Stage,
    stage_began: Instant,
    began: Instant,
}

impl Default for Current {
    fn default() -> Current {
        let now = Instant::now();
        Current { stage: Stage::default(), stage_began: now, began: now }
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_stopped = self.should_stop();
        f.debug_struct("Progress").field("snapshot", &self.snapshot()).field("is_stopped", &is_stopped).finish()
    }
}

impl Progress {
    /// Progress whose stop flag is set elsewhere, for example by a signal handler.
    pub fn with_stop_flag(stop: Arc<AtomicBool>) -> Progress {
        Progress { stop, ..Progress::default() }
    }

    /// Progress that calls `observer` whenever the work reports, on the thread that reports: it delays the work. Where
    /// a look now and then is enough, read snapshots instead.
    pub fn observed(observer: impl Fn(&Progress) + Send + Sync + 'static) -> Progress {
        Progress { observer: Some(Arc::new(observer)), ..Progress::default() }
    }

    /// Progress of a part of the work: counters of its own, the same stop flag. Its bytes and total become the
    /// operations and total of the whole.
    pub fn part(&self) -> Progress {
        let whole = self.clone();
        let observer = move |part: &Progress| {
            whole.set_total(part.counters.total.load(Ordering::Relaxed));
            whole.set_operations(part.counters.bytes.load(Ordering::Relaxed));
        };
        Progress { stop: self.stop.clone(), ..Progress::observed(observer) }
    }

    /// Requests a stop: the work ends soon, and what is done stays.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Whether a stop was requested.
    #[inline]
    pub fn should_stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// The flag itself.
    pub fn stop_flag(&self) -> &AtomicBool {
        &self.stop
    }

    /// Sets all counters to 0, for other work with the same stop flag.
    pub fn restart(&self) {
        let counters = &*self.counters;
        *self.current() = Current::default();
        let all = [&counters.objects, &counters.directories, &counters.errors];
        all.into_iter().for_each(|counter| counter.store(0, Ordering::Relaxed));
        self.restart_stage(0);
    }

    /// Begins a stage, in which `total` is to be done: bytes and operations start at 0 again.
    pub fn begin(&self, stage: impl Into<Stage>, total: u64) {
        {
            let mut current = self.current();
            (current.stage, current.stage_began) = (stage.into(), Instant::now());
        }
        self.restart_stage(total);
        self.report();
    }

    fn restart_stage(&self, total: u64) {
        let Counters { bytes, bytes_carried, skipped_bytes, operations, .. } = &*self.counters;
        let all = [bytes, bytes_carried, skipped_bytes, operations];
        all.into_iter().for_each(|counter| counter.store(0, Ordering::Relaxed));
        self.counters.total.store(total, Ordering::Relaxed);
    }

    /// Sets what is to be done in all.
    pub fn set_total(&self, total: u64) {
        self.counters.total.store(total, Ordering::Relaxed);
    }

    /// Adds objects (or files), directories and bytes that are done.
    #[inline]
    pub fn add(&self, objects: u64, directories: u64, bytes: u128) {
        let counters = &*self.counters;
        counters.objects.fetch_add(objects, Ordering::Relaxed);
        counters.directories.fetch_add(directories, Ordering::Relaxed);
        let carried = counters.bytes.fetch_add(bytes as u64, Ordering::Relaxed).checked_add(bytes as u64).is_none();
        let high = (bytes >> 64) as u64 + u64::from(carried);
        if high > 0 {
            counters.bytes_carried.fetch_add(high, Ordering::Relaxed);
        }
        self.report();
    }

    /// Adds bytes that are done.
    #[inline]
    pub fn add_bytes(&self, bytes: u64) {
        self.add(0, 0, bytes.into());
    }

    /// Adds bytes that an earlier session did.
    pub fn skip_bytes(&self, bytes: u64) {
        self.counters.skipped_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.add_bytes(bytes);
    }

    /// Adds errors.
    #[inline]
    pub fn add_errors(&self, errors: u64) {
        self.counters.errors.fetch_add(errors, Ordering::Relaxed);
        self.report();
    }

    /// Sets the objects and bytes, where their number can also decrease.
    #[inline]
    pub fn set(&self, objects: u64, bytes: u64) {
        self.counters.objects.store(objects, Ordering::Relaxed);
        self.counters.bytes.store(bytes, Ordering::Relaxed);
        self.report();
    }

    /// Sets the operations done in the current stage.
    #[inline]
    pub fn set_operations(&self, operations: u64) {
        self.counters.operations.store(operations, Ordering::Relaxed);
        self.report();
    }

    #[inline]
    fn report(&self) {
        if let Some(observer) = &self.observer {
            observer(self);
        }
    }

    /// The state now.
    pub fn snapshot(&self) -> Snapshot {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &*self.counters;
        let (stage, stage_elapsed, elapsed) = {
            let current = self.current();
            (current.stage.clone(), current.stage_began.elapsed(), current.began.elapsed())
        };
        Snapshot {
            stage,
            stage_elapsed,
            elapsed,
            objects: of(&counters.objects),
            directories: of(&counters.directories),
            bytes: (u128::from(of(&counters.bytes_carried)) << 64) + u128::from(of(&counters.bytes)),
            skipped_bytes: of(&counters.skipped_bytes),
            operations: of(&counters.operations),
            errors: of(&counters.errors),
            total: of(&counters.total),
        }
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        self.counters.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_add_up_and_clones_share() {
        let progress = Progress::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let shared = progress.clone();
                scope.spawn(move || (0..1000).for_each(|_| shared.add(1, 2, 3)));
            }
        });
        let seen = progress.snapshot();
        assert_eq!((seen.objects, seen.directories, seen.bytes), (4000, 8000, 12_000));
        progress.clone().stop();
        assert!(progress.should_stop());
    }

    #[test]
    fn bytes_do_not_overflow() {
        let progress = Progress::default();
        let large = u128::from(u64::MAX);
        [large, 1, large << 3, 7].into_iter().for_each(|bytes| progress.add(0, 0, bytes));
        assert_eq!(progress.snapshot().bytes, large + 1 + (large << 3) + 7);
    }

    #[test]
    fn a_stage_counts_its_own_and_a_restart_clears_everything_but_the_request() {
        let progress = Progress::default();
        progress.add(1, 1, 100);
        progress.set_operations(5);
        progress.begin("verifying", 70);
        let seen = progress.snapshot();
        assert_eq!((seen.stage.name.as_str(), seen.total), ("verifying", 70));
        assert_eq!((seen.objects, seen.bytes, seen.operations), (1, 0, 0));
        progress.skip_bytes(9);
        progress.add_bytes(1);
        let seen = progress.snapshot();
        assert_eq!((seen.bytes, seen.skipped_bytes), (10, 9));
        progress.stop();
        progress.restart();
        let seen = progress.snapshot();
        assert_eq!((seen.stage, seen.objects, seen.bytes, seen.total), (Stage::default(), 0, 0, 0));
        assert!(progress.should_stop());
    }

    #[test]
    fn a_part_is_stopped_with_the_whole_and_counts_for_it() {
        let whole = Progress::default();
        whole.begin(Stage { subject: "ext4".to_owned(), ..Stage::from("check") }, 0);
        let part = whole.part();
        part.begin("reading", 50);
        part.add_bytes(20);
        let seen = whole.snapshot();
        assert_eq!((seen.stage.subject.as_str(), seen.operations, seen.total), ("ext4", 20, 50));
        whole.stop();
        assert!(part.should_stop());
    }

    #[test]
    fn an_observer_sees_every_report_and_may_stop_the_work() {
        let progress = Progress::observed(|progress| {
            if progress.snapshot().bytes >= 30 {
                progress.stop();
            }
        });
        let steps = (0..10).take_while(|_| {
            progress.add_bytes(10);
            !progress.should_stop()
        });
        assert_eq!(steps.count(), 2);
    }
}
