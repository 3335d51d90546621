//! An open-loop load: operations are due at times that do not depend on the progress of earlier ones.
//!
//! The n-th operation is due at a random moment of the n-th interval, and its response time counts from then, so the
//! time that it waits behind a slow operation is included. (A closed loop, which begins an operation when the last one
//! has ended, omits that time.) The operation and its file depend only on its number and the seed, not on the thread
//! that performs it. Operations that remain when the window ends have as long again; what has not begun then counts
//! with the time that it has waited. A time limit cuts both short: the result is about what was done until then.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::mix::{Mix, Operation};
use super::target::{Aim, Fresh, Memory};
use crate::bench::clock::nanoseconds_since;
use crate::bench::result::OperationTime;
use crate::distribution::Distribution;
use crate::error::{Error, Result};
use crate::population::scramble;
use crate::progress::Progress;

/// A thread that is early by less than this does not sleep.
const SHORTEST_SLEEP: Duration = Duration::from_micros(5);
/// Longest single sleep of a thread, so that it notices a stop.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);

/// Performs an operation.
pub(super) type Perform<'p> = dyn Fn(Operation, Aim, &mut Memory) -> Result<()> + Sync + 'p;

/// A load.
#[derive(Debug, Clone)]
pub(super) struct Load<'m> {
    pub mix: &'m Mix,
    /// Files that operations can choose.
    pub files: u64,
    /// Offered operations per second.
    pub offered_per_second: f64,
    /// Threads that perform them.
    pub threads: u64,
    /// Time before the window, which is discarded.
    pub warm_up: Duration,
    /// The measured time.
    pub window: Duration,
    /// Time limit for all of it, longer than the warm-up. No operation begins later.
    pub longest: Duration,
    /// Largest read or write, for the size of buffers.
    pub transfer_bytes: u64,
    pub seed: u64,
}

/// Result of a load.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Outcome {
    /// Operations per second that ended in the window.
    pub achieved_per_second: f64,
    /// Operations that were due in the window.
    pub due: u64,
    /// Number of these that had not begun when the load was given up; those under way are waited for, and count with
    /// all of their time.
    pub unfinished: u64,
    /// Mean of their response times.
    pub response_seconds: f64,
    pub p50_seconds: f64,
    pub p99_seconds: f64,
    pub longest_seconds: f64,
    /// Service times by operation, without waiting.
    pub operations: Vec<OperationTime>,
    /// The shortest of their medians; infinite if there are none.
    pub shortest_median_ns: f64,
}

/// Counters of one thread.
#[derive(Default)]
struct Counts {
    responses: Distribution,
    ended: u64,
    unfinished: u64,
    /// Times of each operation, in nanoseconds.
    operations: [Distribution; Operation::ALL.len()],
}

impl Counts {
    fn merge(&mut self, other: &Counts) {
        self.responses.merge(&other.responses);
        self.ended += other.ended;
        self.unfinished += other.unfinished;
        self.operations.iter_mut().zip(&other.operations).for_each(|(mine, other)| mine.merge(other));
    }
}

impl Load<'_> {
    /// Time from the start at which an operation is due.
    fn due(&self, number: u64) -> Duration {
        let within = fraction(scramble(self.seed ^ scramble(number)));
        Duration::from_secs_f64((number as f64 + within) / self.offered_per_second)
    }

    /// Returns an operation and its file.
    fn operation(&self, number: u64, fresh: &Fresh) -> (Operation, Aim) {
        let draw =
            |purpose: u64| scramble(self.seed.wrapping_add(purpose) ^ scramble(number.wrapping_mul(4) + purpose));
        let (operation, fresh) = fresh.choose(self.mix.pick(fraction(draw(1))));
        let file = ((u128::from(draw(2)) * u128::from(self.files)) >> 64) as u64;
        (operation, Aim { file, place: draw(3), fresh })
    }

    /// Number of operations that are due before `until`.
    fn due_before(&self, until: Duration) -> u64 {
        let near = (until.as_secs_f64() * self.offered_per_second) as u64;
        // The operation whose interval contains the end.
        if self.due(near) < until { near + 1 } else { near }
    }

    /// Offers the load to `perform`; `None` if it was asked to stop.
    ///
    /// # Errors
    /// The first operation that failed.
    pub(super) fn run(&self, perform: &Perform<'_>, fresh: &Fresh, progress: &Progress) -> Result<Option<Outcome>> {
        let next = AtomicU64::new(0);
        let failed = AtomicBool::new(false);
        let failure: Mutex<Option<Error>> = Mutex::new(None);
        let started = Instant::now();
        let work = || {
            let mut counts = Counts::default();
            if let Err(error) = self.work(perform, fresh, &next, started, &mut counts, &|| {
                failed.load(Ordering::Relaxed) || progress.should_stop()
            }) && !failed.swap(true, Ordering::Relaxed)
                && let Ok(mut failure) = failure.lock()
            {
                *failure = Some(error);
            }
            counts
        };
        let mut all = Counts::default();
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..self.threads).map(|_| scope.spawn(work)).collect();
            for thread in threads {
                if let Ok(counts) = thread.join() {
                    all.merge(&counts);
                }
            }
        });
        if let Some(error) = failure.into_inner().unwrap_or_default() {
            return Err(error);
        }
        if progress.should_stop() {
            return Ok(None);
        }
        // Operations that no thread began.
        let given_up = self.given_up();
        for number in next.load(Ordering::Relaxed)..self.due_before(self.end()) {
            self.give_up(number, given_up, &mut all);
        }
        Ok(Some(self.outcome(&all)))
    }

    fn end(&self) -> Duration {
        (self.warm_up + self.window).min(self.longest)
    }

    /// Whether the time limit ends the window early.
    pub(super) fn is_cut_short(&self) -> bool {
        self.longest < self.warm_up + self.window
    }

    /// Time from the start at which the rest is given up.
    fn given_up(&self) -> Duration {
        (self.warm_up + 2 * self.window).min(self.longest)
    }

    fn give_up(&self, number: u64, now: Duration, counts: &mut Counts) {
        let due = self.due(number);
        if due >= self.warm_up {
            counts.responses.record(now.saturating_sub(due).as_nanos() as u64);
            counts.unfinished += 1;
        }
    }

    /// One thread: takes the next operation, waits until it is due, performs it.
    fn work(
        &self,
        perform: &Perform<'_>,
        fresh: &Fresh,
        next: &AtomicU64,
        started: Instant,
        counts: &mut Counts,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<()> {
        wake_punctually();
        let mut memory = Memory::new(self.transfer_bytes as usize);
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let due = self.due(number);
            if due >= self.end() || is_stopped() {
                return Ok(());
            }
            if started.elapsed() > self.given_up() {
                self.give_up(number, self.given_up(), counts);
                return Ok(());
            }
            while let Some(early) = due.checked_sub(started.elapsed()).filter(|early| *early > SHORTEST_SLEEP) {
                if is_stopped() {
                    return Ok(());
                }
                sleep(early.min(LONGEST_SLEEP));
            }
            let (operation, aim) = self.operation(number, fresh);
            let begun = Instant::now();
            perform(operation, aim, &mut memory)?;
            let took = nanoseconds_since(begun);
            let ended = started.elapsed();
            if operation == Operation::Create {
                fresh.created(aim.fresh);
            }
            if (self.warm_up..self.end()).contains(&ended) {
                counts.ended += 1;
            }
            if due >= self.warm_up {
                counts.responses.record(ended.saturating_sub(due).as_nanos() as u64);
                counts.operations[operation as usize].record(took);
            }
        }
    }

    fn outcome(&self, all: &Counts) -> Outcome {
        let seconds = |nanoseconds: u64| nanoseconds as f64 / 1e9;
        let times = || Operation::ALL.into_iter().zip(&all.operations).filter(|(_, times)| !times.is_empty());
        let medians_ns = times().map(|(_, times)| times.quantile(50, 100) as f64);
        Outcome {
            achieved_per_second: all.ended as f64 / (self.end() - self.warm_up).as_secs_f64(),
            due: all.responses.count() as u64,
            unfinished: all.unfinished,
            response_seconds: all.responses.mean() / 1e9,
            p50_seconds: seconds(all.responses.quantile(50, 100)),
            p99_seconds: seconds(all.responses.quantile(99, 100)),
            longest_seconds: seconds(all.responses.max()),
            shortest_median_ns: medians_ns.fold(f64::INFINITY, f64::min),
            operations: times()
                .map(|(operation, times)| OperationTime {
                    operation: operation.name().to_owned(),
                    count: times.count() as u64,
                    mean_ms: times.mean() / 1e6,
                    longest_ms: times.max() as f64 / 1e6,
                })
                .collect(),
        }
    }
}

/// Makes sleeps of this thread end on time; by default the kernel lets them end up to 50 µs later, to wake up less
/// often.
fn wake_punctually() {
    let thread = rustix::thread::gettid().as_raw_nonzero();
    let _ = std::fs::write(format!("/proc/{thread}/timerslack_ns"), "1");
}

/// A number from 0 (inclusive) to 1 (exclusive).
fn fraction(number: u64) -> f64 {
    (number >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(mix: &Mix, offered_per_second: f64, threads: u64) -> Load<'_> {
        let (warm_up, window) = (Duration::from_millis(100), Duration::from_millis(500));
        let longest = Duration::MAX;
        Load { mix, files: 100, offered_per_second, threads, warm_up, window, longest, transfer_bytes: 0, seed: 3 }
    }

    /// Outcome where every operation takes `each` and one stalls, and the number of operations performed.
    fn offer(load: &Load<'_>, each: Duration, stall: Option<Duration>) -> (Outcome, u64) {
        let (stalled, done) = (AtomicBool::new(false), AtomicU64::new(0));
        let perform = |_: Operation, _: Aim, _: &mut Memory| {
            done.fetch_add(1, Ordering::Relaxed);
            if let Some(stall) = stall
                && !stalled.swap(true, Ordering::Relaxed)
            {
                sleep(stall);
            }
            sleep(each);
            Ok(())
        };
        let outcome = load.run(&perform, &Fresh::new(), &Progress::default()).unwrap().unwrap();
        (outcome, done.load(Ordering::Relaxed))
    }

    #[test]
    fn what_is_offered_is_achieved_where_it_can_be() {
        let mix = Mix::default();
        let (outcome, done) = offer(&load(&mix, 400.0, 4), Duration::from_millis(1), None);
        assert_eq!((outcome.due, done, outcome.unfinished), (200, 240, 0));
        assert!((outcome.achieved_per_second - 400.0).abs() < 40.0, "{outcome:?}");
        let counted: u64 = outcome.operations.iter().map(|operation| operation.count).sum();
        assert_eq!(counted, 200);
        assert!(outcome.operations.iter().all(|operation| operation.mean_ms >= 1.0), "{outcome:?}");
    }

    #[test]
    fn operations_that_wait_for_a_slow_one_count_with_their_waiting() {
        let mix = Mix::default();
        let mut load = load(&mix, 400.0, 1);
        load.warm_up = Duration::ZERO;
        // One stall of 0.2 s delays everything due meanwhile: 80 of 200 operations by 0.1 s on average.
        let (outcome, _) = offer(&load, Duration::ZERO, Some(Duration::from_millis(200)));
        assert!(outcome.response_seconds > 0.03 && outcome.p99_seconds > 0.15, "{outcome:?}");
        assert!(outcome.p50_seconds < 0.1, "{outcome:?}");
    }

    #[test]
    fn what_is_not_done_counts_too() {
        let mix = Mix::default();
        // Ten times the capacity of one thread.
        let (outcome, done) = offer(&load(&mix, 1000.0, 1), Duration::from_millis(10), None);
        assert_eq!(outcome.due, 500);
        assert!(outcome.unfinished > 300 && done < 150, "{outcome:?}");
        assert!(outcome.achieved_per_second < 110.0 && outcome.response_seconds > 0.4, "{outcome:?}");
        assert!(outcome.longest_seconds <= 1.1, "{outcome:?}");
    }

    #[test]
    fn a_time_limit_ends_a_load_with_what_it_did() {
        let mix = Mix::default();
        // Far slower than offered, in a window that would last for hours.
        let load =
            Load { window: Duration::from_secs(10_000), longest: Duration::from_secs(3), ..load(&mix, 1000.0, 2) };
        let begun = Instant::now();
        let (outcome, done) = offer(&load, Duration::from_millis(200), None);
        assert!(begun.elapsed() < Duration::from_secs(1000));
        // Only what was due until then counts, and each at most once.
        assert_eq!(outcome.due, 2900);
        assert!(outcome.unfinished > 0 && done > 0 && done + outcome.unfinished <= 3000, "{done}: {outcome:?}");
        assert!(outcome.achieved_per_second <= done as f64 / 2.9, "{outcome:?}");
    }

    #[test]
    fn a_file_that_a_load_has_created_is_removed_next() {
        let (mix, fresh) = ("remove=1".parse::<Mix>().unwrap(), Fresh::new());
        while fresh.choose(Operation::Remove).0 == Operation::Remove {}
        let done = Mutex::new(Vec::new());
        let perform = |operation: Operation, aim: Aim, _: &mut Memory| {
            done.lock().unwrap().push((operation, aim.fresh));
            Ok(())
        };
        load(&mix, 100.0, 1).run(&perform, &fresh, &Progress::default()).unwrap();
        for pair in done.into_inner().unwrap().chunks(2) {
            assert_eq!(pair[0].0, Operation::Create);
            assert!(pair.get(1).is_none_or(|&next| next == (Operation::Remove, pair[0].1)), "{pair:?}");
        }
    }

    #[test]
    fn a_stall_does_not_change_the_median_of_an_operation() {
        let mut counts = Counts::default();
        let times = [1_000, 1_000, 1_000, 1_000_000];
        times.iter().for_each(|&time| counts.operations[Operation::Read as usize].record(time));
        counts.operations[Operation::Create as usize].record(40_000);
        let mix = Mix::default();
        let outcome = load(&mix, 400.0, 1).outcome(&counts);
        assert_eq!(outcome.shortest_median_ns, 1_000.0);
        let shown = outcome.operations.iter().map(|of| (&of.operation[..], of.count, of.mean_ms, of.longest_ms));
        assert_eq!(shown.collect::<Vec<_>>(), [("read", 4, 0.25075, 1.0), ("create", 1, 0.04, 0.04)]);
        assert_eq!(load(&mix, 400.0, 1).outcome(&Counts::default()).shortest_median_ns, f64::INFINITY);
    }

    #[test]
    fn a_seed_is_a_load() {
        let mix = Mix::default();
        let load = load(&mix, 1000.0, 1);
        let operations = |seed: u64| -> Vec<(Operation, u64)> {
            let load = Load { seed, ..load.clone() };
            let fresh = Fresh::new();
            (0..200)
                .map(|number| load.operation(number, &fresh))
                .map(|(operation, aim)| (operation, aim.file))
                .collect()
        };
        assert_eq!(operations(1), operations(1));
        assert_ne!(operations(1), operations(2));
        assert!(operations(1).iter().all(|(_, file)| *file < 100));
        let dues: Vec<Duration> = (0..100).map(|number| load.due(number)).collect();
        assert!(dues.windows(2).all(|pair| pair[0] < pair[1]) && dues[99] < Duration::from_millis(100));
    }
}
