//! Which block size to use, and why. Follows the argument of Tanenbaum, Herder and Bos (2006), sections 3 to 6.
//!
//! Larger blocks move more data in one transfer and cost space, so the recommendation is the largest whose growth over
//! 1 KiB blocks is within a tolerance. Where operations are known, it is the smallest that serves nearly as many of
//! them in one block, because blocks larger than the operations only crowd the cache.

use serde::{Deserialize, Serialize};

use super::block_size::BlockSize;
use super::operations::Served;
use crate::units::KIB;

/// Growth over 1 KiB blocks that is allowed by default.
pub const TOLERANCE: f64 = 0.05;

/// The largest recommended block: no file system in common use has larger ones.
const MOST_BYTES: u64 = 64 * KIB;

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
    /// The next larger one, which costs more than is allowed or serves hardly more operations.
    pub next: Option<BlockSize>,
    /// Whether the next larger one costs more than is allowed; else it only serves hardly more operations.
    pub next_costs_too_much: bool,
    /// How it serves the operations, if they are known.
    pub served: Option<Served>,
    /// How the next larger one would serve them.
    pub next_served: Option<Served>,
}

/// Chooses among `rows`, by rising block size; `None` for an empty list.
pub fn recommend(rows: &[BlockSize], served: Option<&[Served]>, tolerance_fraction: f64) -> Option<Recommendation> {
    let within = |row: &BlockSize| row.growth_fraction <= tolerance_fraction && row.block_bytes <= MOST_BYTES;
    let mut at = rows.iter().rposition(within).unwrap_or(0);
    let largest = at;
    if let Some(served) = served {
        let best = served.get(at)?;
        let nearly = |other: &Served| {
            best.reads_fraction - other.reads_fraction <= NEARLY
                && best.writes_fraction - other.writes_fraction <= NEARLY
        };
        at = served[..=at].iter().position(nearly).unwrap_or(at);
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
    })
}

#[cfg(test)]
mod tests {
    use super::super::block_size::block_sizes;
    use super::super::operations::Operations;
    use super::*;
    use crate::distribution::published;

    #[test]
    fn four_kib_for_the_files_of_2005_and_more_where_more_growth_is_borne() {
        let rows = block_sizes(published::find("vu-2005").unwrap().distribution(), None);
        let of = |tolerance| recommend(&rows, None, tolerance).unwrap();
        // 8 KiB grow by 4.4 %, 16 KiB by 10.1 %.
        assert_eq!(of(0.05).block_bytes, 8192);
        assert_eq!(of(0.02).block_bytes, 4096);
        assert_eq!(of(0.11).block_bytes, 16384);
        assert!(of(0.05).next_costs_too_much);
        assert_eq!(of(0.05).next.unwrap().block_bytes, 16384);
        let served = Operations::published().served();
        assert_eq!(recommend(&rows, Some(&served), 0.11).unwrap().block_bytes, 16384);
    }

    #[test]
    fn blocks_larger_than_every_operation_are_not_recommended() {
        let rows = block_sizes(published::find("vu-2005").unwrap().distribution(), None);
        let small = "decile_pct,read_bytes,write_bytes\n99,2048,2048\n100,3000,3000\n";
        let served = Operations::parse(small, "small").unwrap().served();
        let chosen = recommend(&rows, Some(&served), 0.11).unwrap();
        assert_eq!(chosen.block_bytes, 2048);
        assert!(!chosen.next_costs_too_much);
    }

    #[test]
    fn nothing_is_recommended_from_nothing() {
        assert_eq!(recommend(&[], None, 0.05), None);
    }
}
