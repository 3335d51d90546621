//! The clock and its cost: an empty operation is timed like any other.
//!
//! Only the operation lies between the two clock readings; its name is prepared before, its time recorded after.

use std::hint::black_box;
use std::time::Instant;

use super::result::Harness;
use super::samples::Latencies;

/// Target: measuring takes at most this share of the shortest operation.
pub(crate) const LARGEST_OVERHEAD_FRACTION: f64 = 0.05;
/// Empty operations that are timed.
const EMPTY_OPERATIONS: u32 = 200_000;

/// Performs an operation and records its time.
#[inline(always)]
pub(crate) fn timed<T>(latencies: &mut Latencies, operation: impl FnOnce() -> T) -> T {
    let started = Instant::now();
    let outcome = operation();
    latencies.record(nanoseconds_since(started));
    outcome
}

/// Same for a fallible operation; a failed one is not recorded.
#[inline(always)]
pub(crate) fn try_timed<T, E>(latencies: &mut Latencies, operation: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    let started = Instant::now();
    let outcome = operation();
    let time_ns = nanoseconds_since(started);
    if outcome.is_ok() {
        latencies.record(time_ns);
    }
    outcome
}

/// Nanoseconds since `started`.
#[inline(always)]
pub(crate) fn nanoseconds_since(started: Instant) -> u64 {
    started.elapsed().as_nanos() as u64
}

/// Overhead of measuring, relative to the shortest median of the timed operations (in nanoseconds; infinite if there
/// are none).
pub(crate) fn harness(shortest_median_ns: f64) -> Harness {
    let mut latencies = Latencies::default();
    for _ in 0..EMPTY_OPERATIONS {
        timed(&mut latencies, || black_box(()));
    }
    let empty_operation_ns = latencies.summary().p50_ns as f64;
    Harness { empty_operation_ns, overhead_fraction: empty_operation_ns / shortest_median_ns.max(1.0) }
}

/// A note for the result if measuring took a larger share than the target.
pub(crate) fn overhead_note(harness: &Harness) -> Option<String> {
    (harness.overhead_fraction > LARGEST_OVERHEAD_FRACTION).then(|| {
        format!(
            "Measuring adds {:.0} ns to each operation, which is {} of the shortest median here: those times are too \
                long by that amount.",
            harness.empty_operation_ns,
            crate::units::format_share(harness.overhead_fraction),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_operation_takes_little() {
        let harness = harness(1e6);
        assert!(harness.empty_operation_ns < 10_000.0, "{harness:?}");
        assert_eq!(harness.overhead_fraction, harness.empty_operation_ns / 1e6);
        assert_eq!(super::harness(f64::INFINITY).overhead_fraction, 0.0);
    }

    #[test]
    fn what_is_too_much_is_said() {
        let cheap = Harness { empty_operation_ns: 20.0, overhead_fraction: 0.02 };
        assert_eq!(overhead_note(&cheap), None);
        let dear = Harness { empty_operation_ns: 40.0, overhead_fraction: 0.08 };
        assert!(overhead_note(&dear).unwrap().contains("8.0 %"));
    }
}
