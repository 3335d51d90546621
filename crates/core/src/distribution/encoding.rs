//! The cells of a distribution as plain arrays, for survey files and checkpoints.
//!
//! Reading checks every invariant of [`Distribution`]: order, ranges of cells, sums within their cells, and a bound on
//! the weight, so that no file can make later arithmetic overflow.

use serde::{Deserialize, Serialize};

use super::{BINS, Distribution, EXACT_LIMIT, Weight, bin_index, bin_range};

/// The non-empty cells of a distribution, in parallel arrays.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Encoded {
    /// Values up to 65,536, ascending.
    pub value: Vec<u64>,
    /// The weight of each of them.
    pub count: Vec<u128>,
    /// Smallest value of each bin above, ascending.
    pub bin_low: Vec<u64>,
    /// Largest value of each bin.
    pub bin_high: Vec<u64>,
    /// The weight of each bin.
    pub bin_count: Vec<u128>,
    /// The sum of the values in each bin.
    pub bin_sum: Vec<u128>,
    /// Smallest value in any bin; `null` if there are no bins.
    pub bin_min: Option<u64>,
    /// Largest value in any bin; `null` if there are no bins.
    pub bin_max: Option<u64>,
}

impl<W: Weight> From<&Distribution<W>> for Encoded {
    fn from(distribution: &Distribution<W>) -> Encoded {
        let mut encoded = Encoded::default();
        for cell in distribution.cells() {
            if cell.high <= EXACT_LIMIT {
                encoded.value.push(cell.low);
                encoded.count.push(cell.count);
            } else {
                encoded.bin_low.push(cell.low);
                encoded.bin_high.push(cell.high);
                encoded.bin_count.push(cell.count);
                encoded.bin_sum.push(cell.sum);
            }
        }
        if distribution.binned_max > 0 {
            encoded.bin_min = Some(distribution.binned_min);
            encoded.bin_max = Some(distribution.binned_max);
        }
        encoded
    }
}

impl<W: Weight> TryFrom<&Encoded> for Distribution<W> {
    type Error = &'static str;

    fn try_from(encoded: &Encoded) -> Result<Distribution<W>, &'static str> {
        let bins = encoded.bin_low.len();
        if encoded.value.len() != encoded.count.len()
            || [encoded.bin_high.len(), encoded.bin_count.len(), encoded.bin_sum.len()] != [bins; 3]
        {
            return Err("the arrays of a distribution differ in length");
        }
        if !encoded.value.is_sorted_by(|a, b| a < b) || !encoded.bin_low.is_sorted_by(|a, b| a < b) {
            return Err("the values of a distribution are not in ascending order");
        }
        let mut distribution = Distribution::<W>::default();
        let mut whole: u128 = 0;
        let mut weigh = |weight: u128| {
            whole = whole.saturating_add(weight);
            match W::try_from(weight) {
                _ if weight == 0 => Err("a cell of a distribution is empty"),
                Ok(weight) if whole <= W::LIMIT => Ok(weight),
                _ => Err("the counts of a distribution are too large"),
            }
        };
        for (&value, &weight) in encoded.value.iter().zip(&encoded.count) {
            let weight = weigh(weight)?;
            if value > EXACT_LIMIT {
                return Err("a value of a distribution is above the exact range");
            }
            distribution.add(value, weight);
        }
        for bin in 0..bins {
            let (low, high, sum) = (encoded.bin_low[bin], encoded.bin_high[bin], encoded.bin_sum[bin]);
            let count = encoded.bin_count[bin];
            let weight = weigh(count)?;
            if low <= EXACT_LIMIT || bin_range(bin_index(low)) != (low, high) {
                return Err("a bin of a distribution has unexpected edges");
            }
            let (Some(least), Some(most)) = (count.checked_mul(low.into()), count.checked_mul(high.into())) else {
                return Err("the counts of a distribution are too large");
            };
            if most > BINS_SUM_LIMIT || sum < least || sum > most {
                return Err("the sum of a bin of a distribution does not match its range and count");
            }
            distribution.add_bin(bin_index(low), weight, sum);
        }
        match (encoded.bin_min, encoded.bin_max, encoded.bin_low.first(), encoded.bin_high.last()) {
            (None, None, None, None) => {}
            (Some(min), Some(max), Some(&low), Some(&high))
                if min <= max
                    && min > EXACT_LIMIT
                    && bin_range(bin_index(min)).0 == low
                    && bin_range(bin_index(max)).1 == high =>
            {
                distribution.binned_min = min;
                distribution.binned_max = max;
            }
            _ => return Err("the smallest or largest value of a distribution is not in its bins"),
        }
        Ok(distribution)
    }
}

/// Largest sum of a bin, so that those of all bins of thousands of surveys add up in a `u128`.
const BINS_SUM_LIMIT: u128 = (u128::MAX / (BINS as u128)) >> 12;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_encoded_is_read_back(values in proptest::collection::vec((0u32..64, any::<u64>()), 0..100)) {
            let mut distribution: Distribution = Distribution::default();
            let mut weighted: Distribution<u128> = Distribution::default();
            for (shift, bits) in values {
                distribution.record(bits >> shift);
                weighted.add(bits >> shift >> 40, 1 << 70);
            }
            let encoded = Encoded::from(&distribution);
            prop_assert_eq!(Distribution::try_from(&encoded), Ok(distribution));
            let json = serde_json::to_string(&encoded).unwrap();
            prop_assert_eq!(serde_json::from_str::<Encoded>(&json).unwrap(), encoded);
            prop_assert_eq!(Distribution::try_from(&Encoded::from(&weighted)), Ok(weighted));
        }
    }

    #[test]
    fn contradictions_are_refused() {
        let mut distribution: Distribution = Distribution::default();
        for value in [3, 70_000, 1 << 40] {
            distribution.record(value);
        }
        let good = Encoded::from(&distribution);
        let broken: [fn(&mut Encoded); 9] = [
            |e| e.count.push(1),
            |e| e.value[0] = 1 << 20,
            |e| e.count[0] = 0,
            |e| e.count[0] = 1 << 60,
            |e| e.count[0] = u128::MAX,
            |e| e.bin_low[0] += 1,
            |e| e.bin_sum[0] = 1,
            |e| e.bin_max = Some(1 << 41),
            |e| e.bin_min = None,
        ];
        for (case, break_it) in broken.iter().enumerate() {
            let mut bad = good.clone();
            break_it(&mut bad);
            assert!(Distribution::<u64>::try_from(&bad).is_err(), "case {case}");
        }
    }
}
