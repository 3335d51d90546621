//! Rounding up to whole units: one size, a sum, or a population spread over an interval.

/// `size` rounded up to whole units of `unit_bytes` (at least 1); saturates at `u64::MAX`. An empty file takes no unit.
#[inline]
pub fn round_up(size_bytes: u64, unit_bytes: u64) -> u64 {
    if unit_bytes.is_power_of_two() {
        let rest = unit_bytes - 1;
        return size_bytes.checked_add(rest).map_or(u64::MAX, |above| above & !rest);
    }
    size_bytes.checked_next_multiple_of(unit_bytes.max(1)).unwrap_or(u64::MAX)
}

/// [`round_up`] for sums, which have room for it.
pub fn round_up_wide(size_bytes: u128, unit_bytes: u64) -> u128 {
    size_bytes.next_multiple_of(u128::from(unit_bytes.max(1)))
}

/// Allocated bytes of a population of `count` files with sizes spread evenly over `low..=high`, of `sum` bytes in
/// total, in units of `unit_bytes`, to the nearest byte. Exact if all of them round up to the same size.
#[inline]
pub fn round_up_spread(low: u64, high: u64, count: u128, sum: u128, unit_bytes: u64) -> u128 {
    let (first, last) = (round_up(low, unit_bytes), round_up(high, unit_bytes));
    if first == last {
        return count * u128::from(first);
    }
    let values = (high - low) as f64 + 1.0;
    let mean_rounded = (sum_of_rounded(high, unit_bytes) - sum_of_rounded(low.saturating_sub(1), unit_bytes)) / values;
    let mean_of_spread = low as f64 + (values - 1.0) / 2.0;
    let padding = (mean_rounded - mean_of_spread).max(0.0);
    sum + (padding * count as f64).round() as u128
}

/// The sum of 1..=value, each rounded up to a multiple of `unit`.
fn sum_of_rounded(value: u64, unit: u64) -> f64 {
    let (whole, rest) = ((value / unit) as f64, (value % unit) as f64);
    let unit = unit as f64;
    unit * unit * whole * (whole + 1.0) / 2.0 + rest * unit * (whole + 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_file_of_2300_bytes_takes_three_blocks_of_1_kib() {
        // The example of Tanenbaum, Herder and Bos, section 3.
        assert_eq!(round_up(2300, 1024), 3072);
        assert_eq!(round_up(2300, 2048), 4096);
        assert_eq!(round_up(2300, 8192), 8192);
        assert_eq!(round_up(0, 4096), 0);
        assert_eq!(round_up(u64::MAX, 4096), u64::MAX);
        assert_eq!(round_up_wide(u64::MAX.into(), 4096), 1 << 64);
    }

    proptest! {
        #[test]
        fn a_spread_is_the_sum_over_its_files(low in 1u64..20_000, width in 0u64..3_000, unit in 1u64..5_000) {
            let high = low + width;
            let count = u128::from(width + 1);
            let sum: u128 = (low..=high).map(u128::from).sum();
            let want: u128 = (low..=high).map(|size| u128::from(round_up(size, unit))).sum();
            prop_assert_eq!(round_up_spread(low, high, count, sum, unit), want);
        }
    }
}
