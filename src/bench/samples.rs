//! Samples: many times in constant memory, and few of them with their median and spread.
//!
//! [`Spread`] is for a handful of repeated measurements, all of which the result keeps. [`Latencies`] is for millions
//! of operations: the distribution of their times (exact up to 65,536 ns, error below 1 % beyond), the first and the
//! last thousand, and the curve over the number of the operation that Foddex plotted: at most [`CURVE_BINS`] bins of
//! equal counts, each with mean, smallest and largest time. When all bins are full, neighbours are merged, so memory
//! use does not depend on the number of operations.

use serde::{Deserialize, Serialize};

use crate::distribution::Distribution;

/// Largest number of bins of a curve; a power of two.
pub(crate) const CURVE_BINS: usize = 1024;
/// Operations that count as "first" and "last".
pub(crate) const EDGE_OPERATIONS: usize = 1000;

/// Median and spread of samples.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Spread {
    /// Number of samples.
    pub count: u64,
    /// The middle sample, or the mean of the middle two.
    pub median: f64,
    /// Their mean.
    pub mean: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// Standard deviation over the mean, defined as in the second source: of the samples themselves, divided by n; 0
    /// for one sample.
    pub normalised_deviation: f64,
}

impl Spread {
    /// Statistics of `samples`; all zero if there are none.
    pub fn of(samples: &[f64]) -> Spread {
        if samples.is_empty() {
            return Spread::default();
        }
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let count = sorted.len();
        let mean = sorted.iter().sum::<f64>() / count as f64;
        let squares: f64 = sorted.iter().map(|sample| (sample - mean).powi(2)).sum();
        let deviation = (squares / count as f64).sqrt();
        Spread {
            count: count as u64,
            median: (sorted[(count - 1) / 2] + sorted[count / 2]) / 2.0,
            mean,
            min: sorted[0],
            max: sorted[count - 1],
            normalised_deviation: if mean == 0.0 { 0.0 } else { deviation / mean },
        }
    }
}

/// A bin of consecutive operations.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CurveBin {
    /// Number of the first operation, from 0.
    pub first: u64,
    /// Number of operations.
    pub count: u64,
    /// Mean time per operation, in nanoseconds.
    pub mean_ns: f64,
    /// The shortest.
    pub min_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

/// Times of many operations, in the order in which they were done.
#[derive(Debug, Clone)]
pub(crate) struct Latencies {
    times: Distribution,
    /// Operations per full bin; a power of two.
    width: u64,
    bins: Vec<Bin>,
    first_ns: u64,
    last: Vec<u64>,
    count: u64,
}

#[derive(Debug, Clone, Copy)]
struct Bin {
    count: u64,
    sum_ns: u64,
    min_ns: u64,
    max_ns: u64,
}

/// Statistics of [`Latencies`], as in results.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct LatencySummary {
    /// Number of operations.
    pub count: u64,
    /// Their sum, in seconds.
    pub total_seconds: f64,
    /// Mean time per operation, in nanoseconds.
    pub mean_ns: f64,
    /// Half of them took no longer.
    pub p50_ns: u64,
    /// 90 % of them took no longer.
    pub p90_ns: u64,
    /// 99 % of them took no longer.
    pub p99_ns: u64,
    /// 99.9 % of them took no longer.
    pub p999_ns: u64,
    /// The shortest.
    pub min_ns: u64,
    /// The longest.
    pub max_ns: u64,
    /// Mean of the first [`EDGE_OPERATIONS`].
    pub first_mean_ns: f64,
    /// Mean of the last [`EDGE_OPERATIONS`].
    pub last_mean_ns: f64,
    /// The time of the n-th operation.
    pub curve: Vec<CurveBin>,
}

impl Default for Latencies {
    fn default() -> Self {
        Latencies {
            times: Distribution::default(),
            width: 1,
            bins: Vec::new(),
            first_ns: 0,
            last: Vec::new(),
            count: 0,
        }
    }
}

impl Bin {
    fn join(self, later: Bin) -> Bin {
        Bin {
            count: self.count + later.count,
            sum_ns: self.sum_ns.saturating_add(later.sum_ns),
            min_ns: self.min_ns.min(later.min_ns),
            max_ns: self.max_ns.max(later.max_ns),
        }
    }
}

impl Latencies {
    /// Records the next operation.
    #[inline]
    pub(crate) fn record(&mut self, time_ns: u64) {
        self.times.record(time_ns);
        if self.count < EDGE_OPERATIONS as u64 {
            self.first_ns = self.first_ns.saturating_add(time_ns);
            self.last.push(time_ns);
        } else {
            self.last[(self.count % EDGE_OPERATIONS as u64) as usize] = time_ns;
        }
        self.count += 1;
        let one = Bin { count: 1, sum_ns: time_ns, min_ns: time_ns, max_ns: time_ns };
        match self.bins.last_mut() {
            Some(bin) if bin.count < self.width => *bin = bin.join(one),
            _ => {
                if self.bins.len() == CURVE_BINS {
                    self.bins = self.bins.chunks(2).map(|pair| pair[0].join(pair[1])).collect();
                    self.width *= 2;
                }
                self.bins.push(one);
            }
        }
    }

    /// Number of operations so far.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Their statistics.
    pub(crate) fn summary(&self) -> LatencySummary {
        let edge = self.last.len().max(1) as f64;
        let mut first = 0;
        let curve = self.bins.iter().map(|bin| {
            let mean_ns = bin.sum_ns as f64 / bin.count as f64;
            let row = CurveBin { first, count: bin.count, mean_ns, min_ns: bin.min_ns, max_ns: bin.max_ns };
            first += bin.count;
            row
        });
        LatencySummary {
            count: self.count,
            total_seconds: self.times.total() as f64 / 1e9,
            mean_ns: self.times.mean(),
            p50_ns: self.times.quantile(500, 1000),
            p90_ns: self.times.quantile(900, 1000),
            p99_ns: self.times.quantile(990, 1000),
            p999_ns: self.times.quantile(999, 1000),
            min_ns: self.times.min(),
            max_ns: self.times.max(),
            curve: curve.collect(),
            first_mean_ns: self.first_ns as f64 / edge,
            last_mean_ns: self.last.iter().sum::<u64>() as f64 / edge,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_spread_of_the_second_sources_example() {
        // "Raw results: 4.241 0.133 0.109 0.308. Result (mean): 1.2. Standard deviation of normalised results: 1.5."
        let spread = Spread::of(&[4.241, 0.133, 0.109, 0.308]);
        assert_eq!(format!("{:.1}", spread.mean), "1.2");
        assert_eq!(format!("{:.1}", spread.normalised_deviation), "1.5");
        assert_eq!(spread.median, (0.133 + 0.308) / 2.0);
    }

    #[test]
    fn no_samples_and_one() {
        assert_eq!(Spread::of(&[]), Spread::default());
        let one = Spread::of(&[3.0]);
        assert_eq!((one.median, one.mean, one.normalised_deviation), (3.0, 3.0, 0.0));
    }

    #[test]
    fn edges_and_percentiles() {
        let mut latencies = Latencies::default();
        (0..10_000).for_each(|at| latencies.record(at));
        let summary = latencies.summary();
        assert_eq!((summary.min_ns, summary.max_ns, summary.p50_ns, summary.p99_ns), (0, 9_999, 4_999, 9_899));
        assert_eq!((summary.first_mean_ns, summary.last_mean_ns), (499.5, 9_499.5));
    }

    proptest! {
        #[test]
        fn a_curve_loses_no_operation(times in proptest::collection::vec(0u64..1 << 40, 0..5_000)) {
            let mut latencies = Latencies::default();
            times.iter().for_each(|&time| latencies.record(time));
            let curve = latencies.summary().curve;
            prop_assert!(curve.len() <= CURVE_BINS);
            prop_assert_eq!(curve.iter().map(|bin| bin.count).sum::<u64>(), times.len() as u64);
            for bin in curve {
                let slice = &times[bin.first as usize..(bin.first + bin.count) as usize];
                prop_assert_eq!(bin.min_ns, *slice.iter().min().unwrap());
                prop_assert_eq!(bin.max_ns, *slice.iter().max().unwrap());
                let mean = slice.iter().sum::<u64>() as f64 / slice.len() as f64;
                prop_assert!((bin.mean_ns - mean).abs() <= mean * 1e-9);
            }
        }
    }
}
