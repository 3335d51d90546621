//! Unit and property tests of distributions.

use super::*;
use proptest::prelude::*;

fn of(values: &[u64]) -> Distribution {
    let mut distribution = Distribution::default();
    for &value in values {
        distribution.record(value);
    }
    distribution
}

/// Values of every magnitude, often powers of two and their neighbours.
fn values() -> impl Strategy<Value = Vec<u64>> {
    let any_magnitude = (0u32..64, any::<u64>()).prop_map(|(shift, bits)| bits >> shift);
    let edges = (0u32..64, -1i64..=1).prop_map(|(exponent, off)| (1u64 << exponent).wrapping_add_signed(off));
    proptest::collection::vec(prop_oneof![any_magnitude, edges, 0u64..200], 0..200)
}

#[test]
fn every_bin_meets_the_next_without_gap_or_overlap() {
    let mut expected = EXACT_LIMIT;
    for index in 0..BINS {
        let (low, high) = bin_range(index);
        assert_eq!(low, expected, "bin {index}");
        assert!(high >= low && (high - low) as f64 <= low as f64 / 127.0, "bin {index}");
        if low > EXACT_LIMIT {
            assert_eq!((bin_index(low), bin_index(high)), (index, index));
        }
        assert_eq!(bucket_number(low), bucket_number(high), "bin {index} straddles a power of two");
        expected = high.wrapping_add(1);
    }
    assert_eq!(expected, 0, "the last bin ends at 2^64 - 1");
}

#[test]
fn nothing_has_neither_deciles_nor_buckets() {
    let empty: Distribution = Distribution::default();
    assert_eq!((empty.min(), empty.max(), empty.count(), empty.mean()), (0, 0, 0, 0.0));
    assert_eq!(empty.deciles(), [0; 10]);
    assert!(empty.buckets().is_empty());
}

#[test]
fn a_value_without_weight_is_not_counted() {
    let mut distribution = of(&[70_000]);
    distribution.add(1 << 20, 0);
    assert_eq!((distribution.count(), distribution.max()), (1, 70_000));
    let mut empty: Distribution<u128> = Distribution::default();
    empty.add(1 << 20, 0);
    assert_eq!((empty.min(), empty.max()), (0, 0));
    assert_eq!(Distribution::try_from(&Encoded::from(&empty)), Ok(empty));
}

#[test]
fn deciles_are_the_smallest_values_that_hold_so_many_tenths() {
    assert_eq!(of(&[7]).deciles(), [7; 10]);
    assert_eq!(of(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]).deciles(), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    assert_eq!(of(&[0, 0, 0, 9]).deciles(), [0, 0, 0, 0, 0, 0, 0, 9, 9, 9]);
    // By bytes, one large file is everything.
    assert_eq!(of(&[1, 1, 1, 1, 1 << 40]).deciles_by_sum(), [1 << 40; 10]);
}

#[test]
fn buckets_are_half_open_with_zero_on_its_own() {
    let buckets = of(&[0, 0, 1, 2, 3, 4, 65536, 131071, 131072]).buckets();
    let filled: Vec<_> = buckets.iter().filter(|b| b.count > 0).map(|b| (b.low, b.high, b.count)).collect();
    assert_eq!(filled, [(0, 1, 2), (1, 2, 1), (2, 4, 2), (4, 8, 1), (65536, 131072, 2), (131072, 262144, 1)]);
}

proptest! {
    #[test]
    fn totals_extremes_and_deciles_agree_with_a_sorted_list(mut list in values()) {
        let distribution = of(&list);
        list.sort_unstable();
        prop_assert_eq!(distribution.count(), list.len() as u128);
        prop_assert_eq!(distribution.total(), list.iter().map(|&v| u128::from(v)).sum::<u128>());
        if list.is_empty() { return Ok(()); }
        prop_assert_eq!(distribution.min(), list[0]);
        prop_assert_eq!(distribution.max(), list[list.len() - 1]);
        let deciles = distribution.deciles();
        for tenth in 1..=10 {
            let want = list[(list.len() * tenth).div_ceil(10) - 1];
            let got = deciles[tenth - 1];
            if want <= EXACT_LIMIT || tenth == 10 { prop_assert_eq!(got, want); }
            else { prop_assert!((got as f64 - want as f64).abs() <= want as f64 * 0.008, "{} for {}", got, want); }
        }
    }

    #[test]
    fn cells_and_buckets_conserve_the_population(list in values()) {
        let distribution = of(&list);
        for cell in distribution.cells() {
            prop_assert!(u128::from(cell.low) * cell.count <= cell.sum && cell.sum <= u128::from(cell.high) * cell.count);
        }
        let buckets = distribution.buckets();
        prop_assert_eq!(buckets.iter().map(|b| b.count).sum::<u128>(), distribution.count());
        prop_assert_eq!(buckets.iter().map(|b| b.sum).sum::<u128>(), distribution.total());
        for bucket in &buckets {
            let inside = list.iter().filter(|&&v| bucket.low <= u128::from(v) && u128::from(v) < bucket.high).count();
            prop_assert_eq!(bucket.count, inside as u128);
        }
    }

    #[test]
    fn any_cutoff_is_exact_up_to_the_limit_and_at_powers_of_two(list in values(), cutoff in 0u64..=EXACT_LIMIT, exponent in 0u32..64) {
        let distribution = of(&list);
        for cutoff in [cutoff, 1 << exponent, u64::MAX] {
            let at = distribution.up_to(cutoff);
            prop_assert_eq!(at.doubt, 0);
            prop_assert_eq!(at.count, list.iter().filter(|&&v| v <= cutoff).count() as u128);
            prop_assert_eq!(at.sum, list.iter().filter(|&&v| v <= cutoff).map(|&v| u128::from(v)).sum::<u128>());
        }
    }

    #[test]
    fn merging_is_the_same_as_counting_everything_in_any_order(a in values(), b in values(), c in values()) {
        let whole = of(&[a.clone(), b.clone(), c.clone()].concat());
        let mut left = of(&a);
        left.merge(&of(&b));
        left.merge(&of(&c));
        let mut right = of(&c);
        let mut bc = of(&b);
        bc.merge(&of(&a));
        right.merge(&bc);
        prop_assert_eq!(&left, &whole);
        prop_assert_eq!(&right, &whole);
    }

    #[test]
    fn weights_count_for_as_many_values(list in proptest::collection::vec((0u64..1 << 40, 0u64..50), 0..40)) {
        let mut weighted: Distribution<u128> = Distribution::default();
        let mut repeated = Vec::new();
        for &(value, weight) in &list {
            weighted.add(value, u128::from(weight));
            repeated.extend(std::iter::repeat_n(value, weight as usize));
        }
        let plain = of(&repeated);
        prop_assert_eq!(weighted.cells().collect::<Vec<_>>(), plain.cells().collect::<Vec<_>>());
    }
}
