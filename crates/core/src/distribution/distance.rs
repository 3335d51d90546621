//! The distance of two distributions: the Kolmogorov-Smirnov distance, by count and by sum.

use super::{Cell, Distribution, Weight};
use crate::units::fraction;

/// The largest vertical distance between two cumulative curves, and the value at which it occurs.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Distance {
    /// Largest difference between the shares of the count at or below a value; 0 to 1.
    pub by_count: f64,
    /// The value at which it occurs.
    pub by_count_at: u64,
    /// Largest difference between the shares of the total in values at or below a value; 0 to 1.
    pub by_sum: f64,
    /// The value at which it occurs.
    pub by_sum_at: u64,
}

/// The Kolmogorov-Smirnov distance of `a` and `b`, computed at the upper edge of every cell. Both divide values into
/// the same cells, so it is exact up to [`super::EXACT_LIMIT`]; above that, differences within a cell (0.78 % of a
/// size) are invisible.
pub fn distance<W: Weight>(a: &Distribution<W>, b: &Distribution<W>) -> Distance {
    let (by_count, by_count_at) = largest_gap(a, b, |cell| cell.count);
    let (by_sum, by_sum_at) = largest_gap(a, b, |cell| cell.sum);
    Distance { by_count, by_count_at, by_sum, by_sum_at }
}

fn largest_gap<W: Weight>(a: &Distribution<W>, b: &Distribution<W>, mass: fn(&Cell) -> u128) -> (f64, u64) {
    let whole = |d: &Distribution<W>| d.cells().map(|cell| mass(&cell)).sum::<u128>();
    let (whole_a, whole_b) = (whole(a), whole(b));
    let (mut cells_a, mut cells_b) = (a.cells().peekable(), b.cells().peekable());
    let (mut seen_a, mut seen_b) = (0, 0);
    let (mut gap, mut at) = (0.0, 0);
    loop {
        let edge = match (cells_a.peek(), cells_b.peek()) {
            (Some(x), Some(y)) => x.high.min(y.high),
            (Some(x), None) | (None, Some(x)) => x.high,
            (None, None) => return (gap, at),
        };
        seen_a += cells_a.next_if(|cell| cell.high == edge).map_or(0, |cell| mass(&cell));
        seen_b += cells_b.next_if(|cell| cell.high == edge).map_or(0, |cell| mass(&cell));
        let difference = (fraction(seen_a, whole_a) - fraction(seen_b, whole_b)).abs();
        if difference > gap {
            (gap, at) = (difference, edge);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[u64]) -> Distribution {
        let mut distribution = Distribution::default();
        values.iter().for_each(|&value| distribution.record(value));
        distribution
    }

    #[test]
    fn the_same_population_is_at_no_distance_whatever_its_size() {
        let d = distance(&of(&[1, 5, 1 << 30]), &of(&[1, 1, 5, 5, 1 << 30, 1 << 30]));
        assert_eq!((d.by_count, d.by_sum), (0.0, 0.0));
    }

    #[test]
    fn disjoint_populations_are_at_distance_one() {
        let d = distance(&of(&[1, 2, 3]), &of(&[100_000]));
        assert_eq!((d.by_count, d.by_count_at, d.by_sum), (1.0, 3, 1.0));
    }

    #[test]
    fn the_gap_is_found_where_it_is() {
        // Shares up to 10: 3/4 against 1/4.
        let d = distance(&of(&[1, 10, 10, 20]), &of(&[1, 20, 20, 20]));
        assert_eq!((d.by_count, d.by_count_at), (0.5, 10));
        assert!((d.by_sum - (21.0 / 41.0 - 1.0 / 61.0)).abs() < 1e-12);
    }
}
