//! Rates over time: intervals of equal width, which doubles when there would be too many.

use serde::{Deserialize, Serialize};

use crate::trace::{Kind, Operation};

/// Largest number of intervals while a trace is read; at its end there are at least half as many.
const MOST_INTERVALS: usize = 128;
const FIRST_WIDTH_NS: u64 = 1_000_000;

/// Totals of an interval of time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interval {
    /// All operations.
    pub operations: u64,
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes read.
    pub read_bytes: u128,
    /// Bytes written.
    pub write_bytes: u128,
}

impl Interval {
    fn add(&mut self, other: &Interval) {
        self.operations += other.operations;
        self.reads += other.reads;
        self.writes += other.writes;
        self.read_bytes += other.read_bytes;
        self.write_bytes += other.write_bytes;
    }
}

/// Operations over time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rates {
    /// Start of the first interval.
    pub start_ns: u64,
    /// Width of each interval.
    pub width_ns: u64,
    /// All intervals.
    pub intervals: Vec<Interval>,
}

impl Default for Rates {
    fn default() -> Rates {
        Rates { start_ns: 0, width_ns: FIRST_WIDTH_NS, intervals: Vec::new() }
    }
}

impl Rates {
    /// Counts an operation; one that maps a file as a read of the range if `maps_are_reads`.
    pub fn take(&mut self, operation: &Operation, maps_are_reads: bool) {
        if self.intervals.is_empty() {
            self.start_ns = operation.time_ns;
        }
        // An operation that began before the one that ended first counts with it.
        let since = operation.time_ns.saturating_sub(self.start_ns);
        while since / self.width_ns >= MOST_INTERVALS as u64 {
            self.double();
        }
        let at = (since / self.width_ns) as usize;
        if at >= self.intervals.len() {
            self.intervals.resize(at + 1, Interval::default());
        }
        let interval = &mut self.intervals[at];
        interval.operations += 1;
        match operation.kind {
            Kind::Map if !maps_are_reads || operation.failed => {}
            Kind::Read | Kind::Map => {
                interval.reads += 1;
                interval.read_bytes += u128::from(operation.length_bytes);
            }
            Kind::Write => {
                interval.writes += 1;
                interval.write_bytes += u128::from(operation.length_bytes);
            }
            _ => {}
        }
    }

    fn double(&mut self) {
        self.width_ns = self.width_ns.saturating_mul(2);
        let halves = std::mem::take(&mut self.intervals);
        self.intervals = halves
            .chunks(2)
            .map(|pair| {
                let mut sum = pair[0];
                pair[1..].iter().for_each(|other| sum.add(other));
                sum
            })
            .collect();
    }

    /// The same rates in at most `count` intervals.
    pub fn at_most(&self, count: usize) -> Rates {
        let mut coarser = self.clone();
        while coarser.intervals.len() > count.max(1) {
            coarser.double();
        }
        coarser
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_become_wider_and_nothing_is_lost() {
        let mut rates = Rates::default();
        for second in 0..1_000u64 {
            let mut operation = Operation::new(5_000_000_000 + second * 1_000_000_000, 0, Kind::Read);
            operation.length_bytes = 10;
            rates.take(&operation, false);
        }
        rates.take(&Operation::new(0, 0, Kind::Write), false);
        assert!((64..=128).contains(&rates.intervals.len()), "{}", rates.intervals.len());
        let few = rates.at_most(10);
        assert!((5..=10).contains(&few.intervals.len()));
        for rates in [&rates, &few] {
            let sum = |figure: fn(&Interval) -> u64| rates.intervals.iter().map(figure).sum::<u64>();
            assert_eq!((sum(|i| i.reads), sum(|i| i.writes), sum(|i| i.operations)), (1_000, 1, 1_001));
            assert_eq!(rates.intervals.iter().map(|interval| interval.read_bytes).sum::<u128>(), 10_000);
        }
        rates.take(&Operation::new(u64::MAX, 0, Kind::Stat), false);
        assert!(rates.intervals.len() <= 128);
    }
}
