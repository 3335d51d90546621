//! Cache sizes to measure with where none are given: from the least with which the workload runs to twice its
//! footprint.
//!
//! Without a limit, the kernel counts everything that the workload uses: pages of files and memory of programs. With
//! less, some pages have to be read again; with much less, the workload thrashes or is killed for lack of memory.
//! Bisection between a limit that works and one that does not finds the least limit.

use crate::error::Result;
use crate::units::MIB;

/// Precision of the least limit: one part in this many, or a mebibyte.
const SHARE: u64 = 16;
/// Every workload needs some memory.
const LEAST_BYTES: u64 = MIB;

/// Returns the least limit for which `works` returns true, up to twice `footprint_bytes`, and at least a mebibyte;
/// `None` if even twice that fails, or if `works` gave up.
///
/// # Errors
/// Errors of `works`, which returns `None` to give up.
pub(super) fn least(footprint_bytes: u64, works: &mut dyn FnMut(u64) -> Result<Option<bool>>) -> Result<Option<u64>> {
    let (mut low, mut high) = (0, rounded(footprint_bytes));
    match works(high)? {
        None => return Ok(None),
        Some(true) => {}
        Some(false) => {
            (low, high) = (high, 2 * high);
            if works(high)? != Some(true) {
                return Ok(None);
            }
        }
    }
    while high - low > (high / SHARE).max(LEAST_BYTES) {
        let middle = rounded(low + (high - low) / 2);
        if middle >= high {
            break;
        }
        match works(middle)? {
            None => return Ok(None),
            Some(true) => high = middle,
            Some(false) => low = middle,
        }
    }
    Ok(Some(high))
}

/// Returns five sizes from the least that works to twice the footprint, the fourth being the footprint; fewer where
/// several are the same.
pub(super) fn sizes(least_bytes: u64, footprint_bytes: u64) -> Vec<u64> {
    let footprint = rounded(footprint_bytes).max(least_bytes);
    let third = (footprint - least_bytes) / 3;
    let mut sizes = vec![
        least_bytes,
        rounded(least_bytes + third),
        rounded(least_bytes + 2 * third),
        footprint,
        rounded(footprint.saturating_mul(2)),
    ];
    sizes.dedup();
    sizes
}

/// Rounds up to a whole mebibyte.
fn rounded(bytes: u64) -> u64 {
    bytes.max(LEAST_BYTES).next_multiple_of(MIB)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sizes_go_from_the_least_to_twice_what_is_taken() {
        assert_eq!(sizes(32 * MIB, 60 * MIB), [32, 42, 51, 60, 120].map(|mib| mib * MIB));
        assert_eq!(sizes(MIB, MIB), [MIB, 2 * MIB]);
        assert_eq!(sizes(90 * MIB, 60 * MIB), [90 * MIB, 180 * MIB]);
    }

    #[test]
    fn what_never_works_has_no_least() {
        assert_eq!(least(100 * MIB, &mut |_| Ok(Some(false))).unwrap(), None);
        assert_eq!(least(100 * MIB, &mut |_| Ok(None)).unwrap(), None);
        // A workload that needs more than before.
        assert_eq!(least(MIB, &mut |limit| Ok(Some(limit >= 2 * MIB))).unwrap(), Some(2 * MIB));
    }

    proptest! {
        #[test]
        fn the_least_that_works_is_found(footprint in 1u64..2000, needed in 0u64..4000) {
            let needed = needed.min(2 * footprint) * MIB;
            let (mut tried, mut is_again) = (std::collections::HashSet::new(), false);
            let found = least(footprint * MIB, &mut |limit| {
                is_again |= !tried.insert(limit);
                Ok(Some(limit >= needed))
            });
            let found = found.unwrap().unwrap();
            prop_assert!(found >= needed && found - needed <= (found / SHARE).max(MIB), "{} {}", found, needed);
            prop_assert!(tried.len() <= 15 && !is_again);
        }
    }
}
