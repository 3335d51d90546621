//! Populations of which only an interval is known: a number of values from `low` to `high`, perhaps with their sum.
//!
//! Histograms and published tables say no more than that about most of their files. Without a sum the values are laid
//! out log-uniformly. With one they follow a power law (a truncated Pareto distribution, `density ∝ x^(s-1)`), whose
//! exponent `s` is solved for the mean; `s = 0` is log-uniform again. A power law is chosen rather than the truncated
//! exponential of maximum entropy because file sizes are nearly straight on log-log paper: given only the mean of the
//! files of 0-2 KiB, 2-8 KiB or 16 KiB-1 MiB in the three curves of Tanenbaum, Herder and Bos (2006, Fig. 1), a power
//! law is off by at most 10 % of those files, an exponential by up to 32 %. An interval from zero is laid out in
//! `x + 1`.
//!
//! Invariants: exactly `count` values are added, all of them in the interval, and their sum is exactly `sum`, clamped
//! to `low·count ..= high·count`. Counts come from rounding the cumulative curve; the rounding error of the sum is
//! corrected by moving values towards the far end of the interval, each by the same share of its distance.

use super::{BINS, Distribution, EXACT_LIMIT, Weight, bin_index, bin_range};

/// A number of values with only this known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interval {
    /// Smallest possible value.
    pub low: u64,
    /// Largest possible value.
    pub high: u64,
    /// Number of values.
    pub count: u128,
    /// Their sum, if known.
    pub sum: Option<u128>,
}

/// Values that share a cell of the distribution, all of the same size initially.
struct Group {
    value: u64,
    count: u128,
}

/// Adds the values of `interval` to `distribution`.
///
/// # Errors
/// A sentence, if `low` is above `high`, or if there are more values than a distribution may hold ([`Weight::LIMIT`])
/// or their sum could reach 2^128. Nothing is added then.
pub fn spread<W: Weight>(distribution: &mut Distribution<W>, interval: &Interval) -> Result<(), &'static str> {
    let &Interval { low, high, count, sum } = interval;
    if low > high {
        return Err("an interval ends before it begins");
    }
    let Some(most) = count.checked_mul(u128::from(high)).filter(|_| count <= W::LIMIT) else {
        return Err("the counts of an interval are too large");
    };
    if count == 0 {
        return Ok(());
    }
    if low == high {
        return add(distribution, low, count);
    }
    let sum = sum.map(|sum| sum.clamp(u128::from(low) * count, most));
    let shape = Shape::new(low, high, sum.map(|sum| sum as f64 / count as f64));
    let groups = shape.groups(low, high, count);
    let Some(sum) = sum else {
        return groups.iter().try_for_each(|group| add(distribution, group.value, group.count));
    };
    let laid_out: u128 = groups.iter().map(|group| u128::from(group.value) * group.count).sum();
    let raise = sum >= laid_out;
    let moves = moves(&groups, if raise { high } else { low }, sum.abs_diff(laid_out));
    for (group, moved) in groups.iter().zip(moves) {
        let before = u128::from(group.value) * group.count;
        let together = if raise { before + moved } else { before - moved };
        let value = (together / group.count) as u64;
        let larger = together - u128::from(value) * group.count;
        add(distribution, value, group.count - larger)?;
        if larger > 0 {
            add(distribution, value + 1, larger)?;
        }
    }
    Ok(())
}

fn add<W: Weight>(distribution: &mut Distribution<W>, value: u64, count: u128) -> Result<(), &'static str> {
    let weight = W::try_from(count).map_err(|_| "the counts of an interval are too large")?;
    distribution.add(value, weight);
    Ok(())
}

/// By how much the sum of each group must move towards `end`, `distance` in total: in proportion to its distance from
/// there, so that each value moves by the same share of its own distance.
fn moves(groups: &[Group], end: u64, distance: u128) -> Vec<u128> {
    let room = |group: &Group| u128::from(group.value.abs_diff(end)) * group.count;
    let whole: u128 = groups.iter().map(room).sum();
    let share = if whole == 0 { 0.0 } else { distance as f64 / whole as f64 };
    let (mut passed, mut moved) = (0, 0);
    let mut moves = Vec::with_capacity(groups.len());
    for group in groups {
        passed += room(group);
        let until_here = ((passed as f64 * share) as u128).min(distance);
        let by = until_here.saturating_sub(moved).min(room(group));
        moved += by;
        moves.push(by);
    }
    // The rounding remainder goes to any group with room; there is enough, as the sum is feasible.
    let mut left = distance.saturating_sub(moved);
    for (group, by) in groups.iter().zip(&mut moves).rev() {
        let more = left.min(room(group) - *by);
        *by += more;
        left -= more;
    }
    moves
}

/// The power law `density ∝ x^(s-1)` on `first <= x < first + width`, where a value `v` represents the density of
/// `[v, v+1)`, and of `[v+1, v+2)` in an interval from zero.
struct Shape {
    low: u64,
    first: f64,
    length: f64,
    exponent: f64,
    /// `exp(exponent · length) - 1`.
    whole: f64,
}

/// Largest `s · ln(last/first)`: there, nearly all values are within a millionth of the interval's end.
const STEEPEST: f64 = 1e6;

impl Shape {
    fn new(low: u64, high: u64, mean: Option<f64>) -> Shape {
        let first = low.max(1) as f64;
        let length = (((high - low) as f64 + 1.0) / first).ln_1p();
        let mut shape = Shape { low, first, length, exponent: 0.0, whole: 0.0 };
        if let Some(mean) = mean {
            // A value represents [value, value + 1), half of which is above it.
            shape.exponent = shape.exponent_of((mean - low as f64 + 0.5) / first);
            shape.whole = (shape.exponent * length).exp_m1();
        }
        shape
    }

    /// The exponent for which the mean is `first · (1 + above)`; found by bisection, as the mean rises with the
    /// exponent.
    fn exponent_of(&self, above: f64) -> f64 {
        let target = above.max(0.0).ln_1p();
        let (mut below, mut beyond) = (-STEEPEST / self.length, STEEPEST / self.length);
        for _ in 0..100 {
            let middle = 0.5 * (below + beyond);
            if self.ln_moment(middle + 1.0) - self.ln_moment(middle) < target {
                below = middle;
            } else {
                beyond = middle;
            }
        }
        0.5 * (below + beyond)
    }

    /// `ln ∫ x^(p-1) dx` over the interval, in units of `first`.
    fn ln_moment(&self, power: f64) -> f64 {
        let steepness = power.abs() * self.length;
        let flat = if steepness < 1e-12 { 1.0 } else { -(-steepness).exp_m1() / steepness };
        (self.length * flat).ln() + (power * self.length).max(0.0)
    }

    /// Share of the values below `value`.
    fn below(&self, value: u64) -> f64 {
        let at = ((value - self.low) as f64 / self.first).ln_1p();
        let steepness = self.exponent * self.length;
        if steepness.abs() < 1e-9 {
            at / self.length
        } else if steepness < 700.0 {
            (self.exponent * at).exp_m1() / self.whole
        } else {
            (self.exponent * (at - self.length)).exp()
        }
    }

    /// `count` values, grouped by cell.
    fn groups(&self, low: u64, high: u64, count: u128) -> Vec<Group> {
        let mut groups = Vec::new();
        let mut seen = 0;
        let mut group = |first: u64, last: u64| {
            let until_here = match last {
                _ if last == high => count,
                _ => ((count as f64 * self.below(last + 1)).round() as u128).clamp(seen, count),
            };
            if until_here > seen {
                groups.push(Group { value: first + (last - first) / 2, count: until_here - seen });
            }
            seen = until_here;
        };
        for value in low..=high.min(EXACT_LIMIT) {
            group(value, value);
        }
        if high > EXACT_LIMIT {
            for index in bin_index(low.max(EXACT_LIMIT + 1))..BINS {
                let (first, last) = bin_range(index);
                if first > high {
                    break;
                }
                group(first.max(low), last.min(high));
            }
        }
        groups
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn laid_out(low: u64, high: u64, count: u128, sum: Option<u128>) -> Distribution<u128> {
        let mut distribution = Distribution::default();
        spread(&mut distribution, &Interval { low, high, count, sum }).unwrap();
        distribution
    }

    #[test]
    fn without_a_sum_every_octave_holds_as_many() {
        let distribution = laid_out(1024, (1 << 30) - 1, 2_000_000, None);
        for bucket in distribution.buckets().iter().filter(|bucket| bucket.low >= 1024) {
            assert_eq!(bucket.count, 100_000, "from {}", bucket.low);
        }
    }

    #[test]
    fn with_its_sum_the_small_end_of_vu_2005_looks_like_itself() {
        // Of the files of up to 2,047 bytes in Fig. 1, the shares up to 64, 256 and 1,024 bytes.
        let distribution = laid_out(0, 2047, 783_530, Some(783_530 * 755));
        for (size, want) in [(64, 4.98 / 46.09), (256, 13.29 / 46.09), (1024, 30.91 / 46.09)] {
            let got = distribution.up_to(size).count as f64 / 783_530.0;
            assert!((got - want).abs() < 0.03, "{got} for {want} up to {size}");
        }
    }

    #[test]
    fn an_interval_that_cannot_be_is_refused_and_nothing_is_added() {
        let mut distribution: Distribution = Distribution::default();
        for (low, high, count) in [(2, 1, 1), (0, 1, (1 << 53) + 1), (0, u64::MAX, u128::MAX)] {
            assert!(spread(&mut distribution, &Interval { low, high, count, sum: None }).is_err());
        }
        let mut weighted: Distribution<u128> = Distribution::default();
        let too_much = Interval { low: 1, high: u64::MAX, count: 1 << 96, sum: Some(0) };
        assert!(spread(&mut weighted, &too_much).is_err());
        assert!(distribution.is_empty() && weighted.is_empty());
    }

    #[test]
    fn the_largest_intervals_are_held() {
        let count = <u64 as Weight>::LIMIT;
        for sum in [None, Some(0), Some(count << 20), Some(count << 62), Some(u128::MAX)] {
            let distribution = laid_out(0, 1 << 63, count, sum);
            assert_eq!(distribution.count(), count);
            if let Some(sum) = sum {
                assert_eq!(distribution.total(), sum.min(count << 63));
            }
        }
        assert_eq!(laid_out(0, 40_000, 1 << 96, Some(9 << 96)).total(), 9 << 96);
        assert_eq!(laid_out(u64::MAX - 1, u64::MAX, 4, Some(4 * u128::from(u64::MAX) - 1)).count(), 4);
    }

    /// Bounds of every magnitude and width, from one value to everything.
    fn bounds() -> impl Strategy<Value = (u64, u64)> {
        let any_magnitude = || (0u32..64, any::<u64>()).prop_map(|(shift, bits)| bits >> 1 >> shift);
        prop_oneof![
            (any_magnitude(), any_magnitude()).prop_map(|(a, b)| (a.min(b), a.max(b))),
            (any_magnitude(), 0u64..300).prop_map(|(low, width)| (low, low + width)),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn count_and_sum_are_exact_and_everything_is_in_the_interval(
            (low, high) in bounds(),
            count in prop_oneof![1u128..20, 1u128..1 << 40],
            along in prop_oneof![0.0f64..=1.0, 0.0f64..0.001, 0.999f64..1.0],
        ) {
            let least = u128::from(low) * count;
            let sum = least + ((u128::from(high) * count - least) as f64 * along) as u128;
            let sum = sum.min(u128::from(high) * count);
            for sum in [None, Some(sum)] {
                let distribution = laid_out(low, high, count, sum);
                prop_assert_eq!(distribution.count(), count);
                prop_assert!(distribution.min() >= low && distribution.max() <= high);
                if let Some(sum) = sum {
                    prop_assert_eq!(distribution.total(), sum);
                }
            }
        }
    }
}
