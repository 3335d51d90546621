//! Which block size to use, and why. Follows the argument of Tanenbaum, Herder and Bos (2006), sections 3 to 6.
//!
//! Larger blocks move more data in one transfer and cost space, so the recommendation is the largest whose growth over
//! 1 KiB blocks is within a tolerance. Where the misses of a cache are known, it is the largest of those with which a
//! run also needs hardly more time than with the best of them, because fewer large blocks fit in a cache. Where
//! operations are known, it is the smallest of those that serves nearly as many of them in one block, because blocks
//! larger than the operations only crowd the cache.

use serde::{Deserialize, Serialize};

use super::block_size::BlockSize;
use super::caching::{CachedBlock, Caching, TIME_TOLERANCE};
use super::operations::Served;
use crate::units::KIB;

/// Growth over 1 KiB blocks that is allowed by default.
pub const TOLERANCE: f64 = 0.05;

/// The largest recommended block: no file system in common use has larger ones.
pub(crate) const MOST_BYTES: u64 = 64 * KIB;

/// Share of reads and of writes by which a smaller block size may be worse.
const NEARLY: f64 = 0.02;

/// A block size and the reasons for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Recommendation {
    /// The block size.
    pub block_bytes: u64,
    /// Growth over 1 KiB blocks that was allowed.
    pub tolerance_fraction: f64,
    /// Its row of the analysis.
    pub chosen: BlockSize,
    /// The next larger one: it costs or takes more than is allowed, serves hardly more operations, has no known time,
    /// or is larger than any in common use.
    pub next: Option<BlockSize>,
    /// Whether the next larger one costs more than is allowed.
    pub next_costs_too_much: bool,
    /// How it serves the operations, if they are known.
    pub served: Option<Served>,
    /// How the next larger one would serve them.
    pub next_served: Option<Served>,
    /// Its time with the cache, if one is known.
    #[serde(default)]
    pub cached: Option<TimedBlock>,
    /// The time with the next larger one.
    #[serde(default)]
    pub next_cached: Option<TimedBlock>,
    /// Time over that of the best block size that was allowed.
    #[serde(default)]
    pub time_tolerance_fraction: Option<f64>,
}

/// A block size with a cache.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TimedBlock {
    /// Its misses and its time.
    #[serde(flatten)]
    pub block: CachedBlock,
    /// Time over that of the best block size that does not need too much space.
    pub slower_fraction: f64,
}

impl TimedBlock {
    /// Whether it takes more time than is allowed.
    pub fn takes_too_long(&self) -> bool {
        self.slower_fraction > TIME_TOLERANCE
    }
}

/// Chooses among `rows`, which rise in block size; `served` has one element for each. The smallest, if none is within
/// the tolerance; `None` for an empty list.
pub fn recommend(
    rows: &[BlockSize],
    served: Option<&[Served]>,
    caching: Option<&Caching>,
    tolerance_fraction: f64,
) -> Option<Recommendation> {
    let within = |row: &BlockSize| row.growth_fraction <= tolerance_fraction && row.block_bytes <= MOST_BYTES;
    let block_with_cache = |row: &BlockSize| caching?.row(row.block_bytes).copied();
    let seconds = rows.iter().filter(|row| within(row)).filter_map(block_with_cache).map(|block| block.seconds);
    let least_seconds = seconds.reduce(f64::min);
    let timed = |row: &BlockSize| {
        let (block, least) = (block_with_cache(row)?, least_seconds?);
        let slower_fraction = if block.seconds > least { block.seconds / least - 1.0 } else { 0.0 };
        Some(TimedBlock { block, slower_fraction })
    };
    // Without any time, no block size is slow; with some, those without are not recommended.
    let is_fast = |row: &BlockSize| match least_seconds {
        None => true,
        Some(_) => timed(row).is_some_and(|timed| !timed.takes_too_long()),
    };
    let largest = rows.iter().rposition(within).unwrap_or(0);
    let mut at = rows.iter().rposition(|row| within(row) && is_fast(row)).unwrap_or(0);
    if let Some(served) = served {
        let best = served.get(at)?;
        let nearly = |other: &Served| {
            best.reads_fraction - other.reads_fraction <= NEARLY
                && best.writes_fraction - other.writes_fraction <= NEARLY
        };
        let is_enough =
            |index: &usize| served.get(*index).is_some_and(&nearly) && rows.get(*index).is_some_and(is_fast);
        at = (0..=at).find(is_enough).unwrap_or(at);
    }
    let of = |index: usize| served.and_then(|served| served.get(index)).copied();
    Some(Recommendation {
        block_bytes: rows.get(at)?.block_bytes,
        tolerance_fraction,
        chosen: rows.get(at)?.clone(),
        next: rows.get(at + 1).cloned(),
        next_costs_too_much: at == largest
            && rows.get(at + 1).is_some_and(|next| next.growth_fraction > tolerance_fraction),
        served: of(at),
        next_served: of(at + 1),
        cached: rows.get(at).and_then(timed),
        next_cached: rows.get(at + 1).and_then(timed),
        time_tolerance_fraction: least_seconds.map(|_| TIME_TOLERANCE),
    })
}

#[cfg(test)]
mod tests {
    use super::super::block_size::block_sizes;
    use super::super::operations::Operations;
    use super::*;
    use crate::distribution::published;
    use crate::units::MIB;

    #[test]
    fn four_kib_for_the_files_of_2005_and_more_where_more_growth_is_borne() {
        let rows = block_sizes(published::find("vu-2005").unwrap().distribution(), None);
        let of = |tolerance| recommend(&rows, None, None, tolerance).unwrap();
        // 8 KiB grow by 4.4 %, 16 KiB by 10.1 %.
        assert_eq!(of(0.05).block_bytes, 8192);
        assert_eq!(of(0.02).block_bytes, 4096);
        assert_eq!(of(0.11).block_bytes, 16384);
        assert!(of(0.05).next_costs_too_much);
        assert_eq!(of(0.05).next.unwrap().block_bytes, 16384);
        let served = Operations::published().served();
        assert_eq!(recommend(&rows, Some(&served), None, 0.11).unwrap().block_bytes, 16384);
    }

    #[test]
    fn with_the_cache_of_the_source_its_choice_is_made() {
        let rows = block_sizes(published::find("vu-2005").unwrap().distribution(), None);
        let served = Operations::published().served();
        let of = |cache_bytes| {
            let caching = Caching::published(cache_bytes);
            recommend(&rows, Some(&served), Some(&caching), TOLERANCE).unwrap()
        };
        // "Probably 4 KB is the sweet spot": "even with an 8-MB cache, there is a measureable performance loss with
        // 8-KB blocks, something not observed with 4-KB blocks."
        for cache_mib in [2, 4, 8] {
            let chosen = of(cache_mib * MIB);
            assert_eq!(chosen.block_bytes, 4096, "{cache_mib} MiB");
            assert!(!chosen.next_costs_too_much && chosen.next_cached.unwrap().takes_too_long());
        }
        let slower = of(8 * MIB).next_cached.unwrap().slower_fraction;
        assert!((slower - (83.0 / 78.0 - 1.0)).abs() < 1e-9, "{slower}");
        // "Having large blocks is a huge performance loss" when "the cache is too small".
        assert_eq!(of(MIB).block_bytes, 1024);
        // Where times are measured for no block size within the tolerance, space decides.
        let nothing = Caching { rows: Vec::new(), ..Caching::published(MIB) };
        assert_eq!(recommend(&rows, None, Some(&nothing), TOLERANCE).unwrap().block_bytes, 8192);
    }

    #[test]
    fn blocks_larger_than_every_operation_are_not_recommended() {
        let rows = block_sizes(published::find("vu-2005").unwrap().distribution(), None);
        let small = "decile_pct,read_bytes,write_bytes\n99,2048,2048\n100,3000,3000\n";
        let served = Operations::parse(small, "small").unwrap().served();
        let chosen = recommend(&rows, Some(&served), None, 0.11).unwrap();
        assert_eq!(chosen.block_bytes, 2048);
        assert!(!chosen.next_costs_too_much);
    }

    #[test]
    fn nothing_is_recommended_from_nothing() {
        assert_eq!(recommend(&[], None, None, 0.05), None);
    }
}
