//! The result of a pass: references, misses, transfers and blocks written back for caches of any size.

use serde::{Deserialize, Serialize};

use super::noted::{Bin, Noted};
use super::request::Kind;

/// References to blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct References {
    /// Blocks that were read.
    pub reads: u64,
    /// Blocks that were written in part.
    pub partial_writes: u64,
    /// Blocks that were overwritten completely.
    pub whole_writes: u64,
    /// Requests that wrote them.
    pub write_requests: u64,
}

/// The misses of a cache of one size.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Misses {
    /// Misses per reference.
    pub miss_ratio: f64,
    /// Reads that miss per read; 0 if there are no reads.
    pub read_miss_ratio: f64,
    /// Blocks that are fetched: reads that miss, and writes of a part of a block that is not in the cache.
    pub fetched_blocks: f64,
    /// Transfers that fetch them: neighbours in one request are fetched together.
    pub fetches: f64,
    /// Dirty blocks that are written back, including those at the end.
    pub written_back_blocks: f64,
}

/// The curve.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    /// Share of the blocks that were sampled; 1 if it is exact.
    pub rate: f64,
    /// References.
    pub references: References,
    /// Standard errors of the miss ratio for some cache sizes in blocks, ascending; 0 if it is exact.
    pub errors: Vec<(u64, f64)>,
    /// Peak memory of the pass.
    pub memory_bytes: u64,
    /// Cumulative.
    noted: Noted,
}

impl References {
    pub(super) fn count(&mut self, kind: Kind, joins: bool) {
        match kind {
            Kind::Read => self.reads += 1,
            Kind::PartialWrite => self.partial_writes += 1,
            Kind::WholeWrite => self.whole_writes += 1,
        }
        self.write_requests += u64::from(kind.is_write() && !joins);
    }

    /// Their total.
    pub fn all(&self) -> u64 {
        self.reads + self.writes()
    }

    /// Blocks written.
    pub fn writes(&self) -> u64 {
        self.partial_writes + self.whole_writes
    }
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { (part / whole).clamp(0.0, 1.0) } else { 0.0 }
}

impl Curve {
    /// The curve of what was recorded at each depth.
    pub(super) fn new(
        rate: f64,
        references: References,
        mut noted: Noted,
        errors: Vec<(u64, f64)>,
        memory_bytes: u64,
    ) -> Curve {
        noted.sum_up();
        Curve { rate, references, errors, memory_bytes, noted }
    }

    /// Whether every block was sampled.
    pub fn is_exact(&self) -> bool {
        self.rate >= 1.0
    }

    /// The sum for a cache of this many sampled blocks, interpolated between two such caches.
    fn sum(&self, sampled_blocks: f64) -> Bin {
        let mut sum = self.noted.always();
        let (at, share) = (sampled_blocks as usize, sampled_blocks.fract());
        for (at, share) in [(at, 1.0 - share), (at.saturating_add(1), share)] {
            sum.add(&self.noted.at(at), share);
        }
        sum
    }

    /// The misses of a cache of this many blocks.
    pub fn at(&self, cache_blocks: u64) -> Misses {
        let sum = self.sum(cache_blocks as f64 * self.rate);
        let expected = self.rate * self.references.all() as f64;
        Misses {
            miss_ratio: ratio(sum.misses(), expected),
            read_miss_ratio: ratio(sum.reads, self.rate * self.references.reads as f64),
            fetched_blocks: (sum.reads + sum.partial_writes) / self.rate,
            fetches: sum.transfers.max(0.0) / self.rate,
            written_back_blocks: sum.written.max(0.0) / self.rate,
        }
    }

    /// Compulsory misses per reference: each block's first.
    pub fn compulsory_ratio(&self) -> f64 {
        ratio(self.noted.always().misses(), self.rate * self.references.all() as f64)
    }

    /// Blocks that were referenced; a block that returns after it was removed counts again.
    pub fn blocks(&self) -> f64 {
        self.noted.always().misses() / self.rate
    }

    /// The smallest cache with compulsory misses only.
    pub fn enough_blocks(&self) -> u64 {
        let last = (0..self.noted.depths()).rev().find(|&depth| self.noted.at(depth).misses() > 0.0);
        let last = last.map_or(0, |last| last + 1);
        (last as f64 / self.rate).ceil() as u64
    }

    /// The smallest cache, in blocks, whose miss ratio is at most this; `None` if there is none.
    pub fn least_blocks(&self, miss_ratio: f64) -> Option<u64> {
        let expected = self.rate * self.references.all() as f64;
        let most = miss_ratio * expected * (1.0 + 1e-12);
        let always = self.noted.always().misses();
        if always > most {
            return None;
        }
        let (mut at, mut end) = (0, self.noted.depths());
        while at < end {
            let middle = at.midpoint(end);
            match always + self.noted.at(middle).misses() > most {
                true => at = middle + 1,
                false => end = middle,
            }
        }
        Some((at as f64 / self.rate).ceil() as u64)
    }

    /// Standard error of the miss ratio for a watched cache size.
    pub fn error(&self, cache_blocks: u64) -> Option<f64> {
        let at = self.errors.binary_search_by_key(&cache_blocks, |(size, _)| *size).ok()?;
        self.errors.get(at).map(|(_, error)| *error)
    }

    /// Cache sizes at which the curve is worth printing: each step at first, then 16 per doubling, up to the largest
    /// useful one.
    pub fn sizes(&self) -> Vec<u64> {
        let enough = self.enough_blocks();
        let (mut sizes, mut size) = (vec![0], 1u64);
        while size < enough {
            sizes.push(size);
            size += (size / 16).max(1);
        }
        if enough > 0 {
            sizes.push(enough);
        }
        sizes
    }
}
