//! A number of values with the distribution of a source: stratified, not sampled, so that even a few are close to it.
//!
//! The cells of the source are processed from the largest to the smallest. Each gets its share of the values, rounded
//! down or up so that the larger of two running relative differences, that of the count and that of the sum, stays
//! smallest. The largest values determine the sum and the small ones the count, and both match. In a cell wider than
//! one value, the values are spread evenly around its mean.
//!
//! Invariants, property-tested: exactly as many values as requested; every one of them in a cell of the source. A
//! [`Table`] has a row for each cell, so its memory does not depend on the number of values.

use crate::distribution::{Cell, Distribution};

/// Values that share a cell, evenly spread over `base .. base + span`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CellValues {
    /// Values in the rows before.
    first: u64,
    count: u64,
    base: u64,
    span: u64,
}

impl CellValues {
    fn new(cell: &Cell, high: u64, first: u64, count: u64) -> CellValues {
        let mean = cell.mean().clamp(cell.low, high.max(cell.low));
        // Over the widest interval around the mean that the cell holds: their mean is that of the cell.
        let reach = if cell.count == 1 || count <= 1 { 0 } else { (mean - cell.low).min(high.saturating_sub(mean)) };
        CellValues { first, count, base: mean - reach, span: 2 * reach + 1 }
    }

    fn value(&self, index: u64) -> u64 {
        let along = u128::from(self.span) * (2 * u128::from(index) + 1) / (2 * u128::from(self.count));
        self.base + along as u64
    }
}

/// Values in rising order, by their rank.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Table {
    rows: Vec<CellValues>,
    count: u64,
}

impl Table {
    /// The value of a rank below the number of values, counted from the smallest.
    #[inline]
    pub(crate) fn value(&self, rank: u64) -> u64 {
        let behind = self.rows.partition_point(|row| row.first <= rank);
        match self.rows.get(behind.wrapping_sub(1)) {
            Some(row) => row.value(rank - row.first),
            None => 0,
        }
    }

    /// Calls `each` with each value and its number, by rising value.
    pub(crate) fn for_each(&self, mut each: impl FnMut(u64, u64)) {
        for row in &self.rows {
            if row.span == 1 {
                each(row.base, row.count);
            } else {
                (0..row.count).for_each(|index| each(row.value(index), 1));
            }
        }
    }

    /// Calls `each` with at most `most` representative values per cell, and the number of values that each represents.
    pub(crate) fn for_samples(&self, most: u64, mut each: impl FnMut(u64, u64)) {
        for row in &self.rows {
            let pieces = if row.span == 1 { 1 } else { most.clamp(1, row.count) };
            let until = |piece: u64| (u128::from(row.count) * u128::from(piece) / u128::from(pieces)) as u64;
            for piece in 0..pieces {
                let sample = CellValues { count: pieces, ..*row };
                each(sample.value(piece), until(piece + 1) - until(piece));
            }
        }
    }

    /// All values as a distribution.
    pub(crate) fn distribution(&self) -> Distribution {
        let mut distribution = Distribution::default();
        self.for_each(|value, count| distribution.add(value, count));
        distribution
    }

    /// The sum of all values.
    pub(crate) fn total(&self) -> u128 {
        let mut total = 0;
        self.for_each(|value, count| total += u128::from(value) * u128::from(count));
        total
    }

    /// The largest value; 0 if there are none.
    pub(crate) fn max(&self) -> u64 {
        self.rows.last().map_or(0, |row| row.value(row.count - 1))
    }
}

/// `count` values with the distribution of `source`; none if that is empty.
pub(crate) fn stratify(source: &Distribution, count: u64) -> Table {
    let cells: Vec<Cell> = source.cells().collect();
    let counts = shares(&cells, count);
    let max = source.max();
    let mut rows = Vec::new();
    let mut first = 0;
    for (cell, &count) in cells.iter().zip(&counts) {
        if count > 0 {
            rows.push(CellValues::new(cell, cell.high.min(max), first, count));
            first += count;
        }
    }
    Table { rows, count: first }
}

/// How many of `count` values each cell gets.
fn shares(cells: &[Cell], count: u64) -> Vec<u64> {
    let mut counts = vec![0; cells.len()];
    let whole: u128 = cells.iter().map(|cell| cell.count).sum();
    if whole == 0 || count == 0 {
        return counts;
    }
    let ratio = count as f64 / whole as f64;
    let sum = cells.iter().map(|cell| cell.sum).sum::<u128>() as f64 * ratio;
    let whole_sum = if sum > 0.0 { sum } else { 1.0 };
    let (mut count_ahead, mut sum_ahead) = (0.0f64, 0.0f64);
    for (cell, given) in cells.iter().zip(&mut counts).rev() {
        let share = cell.count as f64 * ratio;
        let mean = cell.sum as f64 / cell.count as f64;
        let ahead = |rounded: f64| (count_ahead + (rounded - share), sum_ahead + (rounded - share) * mean);
        let larger = |(of_count, of_sum): (f64, f64)| (of_count.abs() / count as f64).max(of_sum.abs() / whole_sum);
        let (down, up) = (ahead(share.floor()), ahead(share.floor() + 1.0));
        let goes_up = larger(up) < larger(down);
        *given = share as u64 + u64::from(goes_up);
        (count_ahead, sum_ahead) = if goes_up { up } else { down };
    }
    // What floating point and the last cells left over: a negligible part of the most frequent values.
    let mut by_count: Vec<usize> = (0..cells.len()).collect();
    by_count.sort_by_key(|&at| (std::cmp::Reverse(cells[at].count), at));
    let given: u64 = counts.iter().sum();
    let mut lacking = count.saturating_sub(given);
    let mut over = given.saturating_sub(count);
    if lacking > 0 {
        counts[by_count[0]] += std::mem::take(&mut lacking);
    }
    for at in by_count {
        let less = over.min(counts[at]);
        counts[at] -= less;
        over -= less;
    }
    counts
}

/// A lower bound of the distance by sum: no `count` values with the mean of `source` can be nearer to it. Everything
/// above the largest of them is missing, and the largest alone is too large a part; it can be chosen, but not so that
/// both are small.
pub(crate) fn least_distance_by_sum(source: &Distribution, count: u64) -> f64 {
    least_distance(&source.cells().collect::<Vec<_>>(), count)
}

fn least_distance(cells: &[Cell], count: u64) -> f64 {
    let whole: u128 = cells.iter().map(|cell| cell.count).sum();
    let total: u128 = cells.iter().map(|cell| cell.sum).sum();
    if total == 0 || count == 0 {
        return 0.0;
    }
    let made = total as f64 * (count as f64 / whole as f64);
    let (mut above, mut least) = (0.0f64, f64::INFINITY);
    for cell in cells.iter().rev() {
        let with = above + cell.sum as f64 / total as f64;
        // Its smallest value, if it is the only largest one.
        least = least.min(above.max(cell.low as f64 / made - with));
        above = with;
        if above > least {
            break;
        }
    }
    least.max(0.0)
}

/// The smallest number of values for which [`least_distance_by_sum`] is at most `distance`, within 1 %.
pub(crate) fn count_for_distance(source: &Distribution, distance: f64) -> u64 {
    let cells: Vec<Cell> = source.cells().collect();
    let enough = |count: u64| least_distance(&cells, count) <= distance;
    let mut most = 1u64;
    while !enough(most) && most < 1 << 52 {
        most *= 2;
    }
    let mut too_few = most / 2;
    while most - too_few > (most / 100).max(1) {
        let middle = too_few + (most - too_few) / 2;
        if enough(middle) {
            most = middle;
        } else {
            too_few = middle;
        }
    }
    most
}

/// `source` with every value multiplied by `factor`.
pub(crate) fn scaled(source: &Distribution, factor: f64) -> Distribution {
    const SAMPLES: u64 = 16;
    let max = source.max();
    let mut scaled = Distribution::default();
    for cell in source.cells() {
        let count = u64::try_from(cell.count).unwrap_or(u64::MAX);
        let table = Table { rows: vec![CellValues::new(&cell, cell.high.min(max), 0, count)], count };
        table.for_samples(SAMPLES, |value, count| scaled.add((value as f64 * factor).round() as u64, count));
    }
    scaled
}

#[cfg(test)]
mod tests {
    use super::super::SizeLaw;
    use super::*;
    use crate::distribution::{distance, published};
    use proptest::prelude::*;

    fn sizes() -> impl Strategy<Value = Distribution> {
        let one = prop_oneof![
            (0u64..100, 1u64..1000),
            (0u64..70_000, 1u64..50),
            ((16u32..40, any::<u64>()).prop_map(|(e, bits)| (1 << e) | (bits >> (64 - e))), 1u64..5),
        ];
        proptest::collection::vec(one, 1..60).prop_map(|values| {
            let mut distribution = Distribution::default();
            values.into_iter().for_each(|(value, count)| distribution.add(value, count));
            distribution
        })
    }

    proptest! {
        #[test]
        fn there_are_exactly_as_many_and_all_in_cells_of_the_source(source in sizes(), count in 1u64..5000) {
            let table = stratify(&source, count);
            prop_assert_eq!(table.count, count);
            let cells: Vec<Cell> = source.cells().collect();
            let mut last = 0;
            for rank in 0..count {
                let value = table.value(rank);
                prop_assert!(value >= last && value <= source.max());
                prop_assert!(cells.iter().any(|cell| (cell.low..=cell.high).contains(&value)));
                last = value;
            }
            prop_assert_eq!(table.distribution().count(), u128::from(count));
            prop_assert_eq!(table.distribution().total(), table.total());
            prop_assert_eq!(table.max(), last);
        }

        #[test]
        fn as_many_as_there_are_give_the_source_again(source in sizes()) {
            let table = stratify(&source, source.count() as u64);
            let found = distance(&source, &table.distribution());
            prop_assert!(found.by_count == 0.0);
            // Means of wide cells are rounded down.
            prop_assert!(found.by_sum < 1e-4, "{:?}", found);
        }

        #[test]
        fn both_differences_are_bounded(source in sizes(), count in 1u64..5000) {
            let made = stratify(&source, count).distribution();
            let found = distance(&source, &made);
            // Rounding is per file: never off by more than one file or by the largest one.
            let whole = source.total() as f64 * count as f64 / source.count() as f64;
            let of_sum = if whole > 0.0 { source.max() as f64 / whole } else { 0.0 };
            let of_count = 1.0 / count as f64;
            prop_assert!(found.by_count <= 1.5 * of_count.max(of_sum) + 1e-9, "{:?}", found);
            prop_assert!(found.by_sum <= 4.0 * of_count.max(of_sum) + 1e-3, "{:?}", found);
        }

        #[test]
        fn no_number_of_files_is_nearer_than_the_bound(source in sizes(), count in 1u64..300) {
            let made = stratify(&source, count).distribution();
            let bound = least_distance_by_sum(&source, count);
            // The bound applies to their own mean, which rounding has shifted a little.
            let moved = made.total() as f64 / (source.total().max(1) as f64 * count as f64 / source.count() as f64);
            if (moved - 1.0).abs() < 1e-3 {
                prop_assert!(distance(&source, &made).by_sum >= bound - 2e-3, "{}", bound);
            }
        }
    }

    #[test]
    fn published_populations_come_near() {
        for (name, files, by_files, by_bytes) in [
            ("vu-1984", 100_000, 1e-4, 0.001),
            ("web-2005", 100_000, 1e-4, 0.01),
            ("vu-2005", 100_000, 1e-4, 0.06),
            ("vu-2005", 1_000_000, 1e-4, 0.01),
        ] {
            let source = published::find(name).unwrap().distribution();
            let found = distance(source, &stratify(source, files).distribution());
            assert!(found.by_count <= by_files && found.by_sum <= by_bytes, "{name} {files}: {found:?}");
            let bound = least_distance_by_sum(source, files);
            assert!(
                bound <= found.by_sum + 1e-9 && found.by_sum <= 1.5 * bound + 0.01,
                "{name} {files}: {bound} {found:?}"
            );
        }
        let needed = count_for_distance(published::find("vu-2005").unwrap().distribution(), 0.02);
        assert!((150_000..500_000).contains(&needed), "{needed}");
    }

    /// For sizes so similar that a handful is enough, a hundredth of the number is no step: the search must still end.
    #[test]
    fn the_number_for_a_distance_is_found_where_it_is_small() {
        for (law, needed) in [
            ("weighted:k=3,min=100kB,max=1MB", 64),
            ("weighted:k=4,min=1000,max=2000", 64),
            ("weighted:k=0,min=4096,max=4096", 1),
        ] {
            let source = SizeLaw::parse(law).unwrap().distribution();
            let found = count_for_distance(&source, 0.02);
            assert!(found <= needed, "{law}: {found}");
            assert!(least_distance_by_sum(&source, found) <= 0.02, "{law}: {found}");
            assert!(found == 1 || least_distance_by_sum(&source, found - 1) > 0.02, "{law}: {found}");
        }
    }

    #[test]
    fn scaling_multiplies_the_mean() {
        let source = published::find("vu-2005").unwrap().distribution();
        let half = scaled(source, 0.5);
        assert_eq!(half.count(), source.count());
        assert!((half.mean() / source.mean() - 0.5).abs() < 1e-3);
    }
}
