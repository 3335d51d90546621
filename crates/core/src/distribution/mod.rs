//! Distributions: a population of sizes (or ages, lengths, counts) in bounded memory.
//!
//! [`Distribution`] is the one structure behind every figure that granulo prints. It has a fixed set of cells:
//!
//! - one for every value from 0 to 65,536 ([`EXACT_LIMIT`]), so that "64 KiB or less" is exact to the byte;
//! - above, for every octave `2^e`: one cell for the value `2^e` itself, and 128 cells `(2^e + i·w, 2^e + (i+1)·w]`
//!   with `w = 2^(e-7)`, the last without its upper edge, which is the next octave's own cell. A cell is at most 1/128
//!   (0.78 %) of its values wide, and keeps the exact sum of them.
//!
//! No cell straddles a power of two from either side, so both "up to 2^k" (Tanenbaum et al. 2006) and the half-open
//! `[2^k, 2^(k+1))` (fsstats, Welch and Noer 2013) are exact. Cells are closed above because a block size that is a
//! multiple of `w` then rounds all values of a cell up to the same allocation.
//!
//! Invariants: `count = Σ cells.count`, `total = Σ cells.sum`, `low·count <= sum <= high·count` in every cell. Merging
//! adds cell by cell, so it is exact, associative and commutative (property-tested).

mod distance;
mod encoding;
pub mod published;
mod spread;

pub use distance::{Distance, distance};
pub use encoding::Encoded;
pub use spread::{Interval, spread};

/// Largest value with a cell of its own.
pub const EXACT_LIMIT: u64 = 1 << EXACT_EXPONENT;

const EXACT_EXPONENT: u32 = 16;
/// Exact cells that are allocated together, when a value of one of them is first counted.
const PAGE: usize = 512;
const PAGES: usize = (EXACT_LIMIT as usize + 1).div_ceil(PAGE);
const BINS_EXPONENT: u32 = 7;
const OCTAVES: usize = 64 - EXACT_EXPONENT as usize;
const OCTAVE_CELLS: usize = 1 + (1 << BINS_EXPONENT);
const BINS: usize = OCTAVES * OCTAVE_CELLS;

/// The weight of a value: a number of files in a `u64`, or of bytes in a `u128`.
pub trait Weight:
    Copy
    + Default
    + PartialEq
    + std::fmt::Debug
    + std::ops::AddAssign
    + Into<u128>
    + TryFrom<u128>
    + serde::Serialize
    + for<'a> serde::Deserialize<'a>
{
    /// Largest total weight of a distribution read from a file, so that sums cannot overflow.
    const LIMIT: u128;
}

impl Weight for u64 {
    const LIMIT: u128 = 1 << 53;
}

impl Weight for u128 {
    const LIMIT: u128 = 1 << 96;
}

/// A non-empty cell of a distribution: values from `low` to `high`, inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cell {
    /// Smallest value of the cell.
    pub low: u64,
    /// Largest value of the cell.
    pub high: u64,
    /// Weight of the counted values.
    pub count: u128,
    /// Sum of the counted values, each times its weight.
    pub sum: u128,
}

impl Cell {
    /// The mean of the values in the cell, rounded down: within 0.78 % of each of them.
    pub fn mean(&self) -> u64 {
        if self.low == self.high { self.low } else { (self.sum / self.count.max(1)) as u64 }
    }
}

/// A power-of-two bucket `[low, high)`; the first is `[0, 1)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Bucket {
    /// Smallest value in the bucket.
    pub low: u128,
    /// Smallest value above it.
    pub high: u128,
    /// Weight of the values in it.
    pub count: u128,
    /// Sum of the values in it.
    pub sum: u128,
}

impl Bucket {
    /// The bucket of `value`, empty: its number is 0 for 0 and `1 + floor(log2 value)` otherwise.
    pub fn of(number: u32) -> Bucket {
        let low = if number == 0 { 0 } else { 1u128 << (number - 1) };
        Bucket { low, high: 1u128 << number, count: 0, sum: 0 }
    }
}

/// Number of the power-of-two bucket of `value`.
pub fn bucket_number(value: u64) -> u32 {
    u64::BITS - value.leading_zeros()
}

/// The part of a distribution at or below a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UpTo {
    /// Weight of these values.
    pub count: u128,
    /// Sum of these values.
    pub sum: u128,
    /// Largest error of the count: the weight of the cell that contains the value, which was divided in proportion; 0
    /// if both are exact.
    pub doubt: u128,
}

/// The distribution of a population of values, exact up to [`EXACT_LIMIT`] and better than 1 % above.
///
/// Takes 1.4 KiB, and memory for what was counted: 4 KiB (8 KiB with `u128` weights) for each 512 neighbouring values
/// up to the limit, 3 KiB (4 KiB) for each octave above.
#[derive(Clone)]
pub struct Distribution<W: Weight = u64> {
    exact: Box<[Option<Box<[W; PAGE]>>; PAGES]>,
    octaves: Box<[Option<Box<Octave<W>>>; OCTAVES]>,
    /// Smallest and largest value above [`EXACT_LIMIT`]; `(u64::MAX, 0)` if there is none.
    binned_min: u64,
    binned_max: u64,
}

/// The cells of an octave above [`EXACT_LIMIT`]: weight, and sum of the values.
#[derive(Clone, PartialEq)]
struct Octave<W: Weight> {
    counts: [W; OCTAVE_CELLS],
    sums: [u128; OCTAVE_CELLS],
}

impl<W: Weight> Octave<W> {
    fn empty() -> Box<Octave<W>> {
        Box::new(Octave { counts: [W::default(); OCTAVE_CELLS], sums: [0; OCTAVE_CELLS] })
    }
}

fn empty_page<W: Weight>() -> Box<[W; PAGE]> {
    Box::new([W::default(); PAGE])
}

impl<W: Weight> Default for Distribution<W> {
    fn default() -> Self {
        Distribution {
            exact: Box::new([const { None }; PAGES]),
            octaves: Box::new([const { None }; OCTAVES]),
            binned_min: u64::MAX,
            binned_max: 0,
        }
    }
}

impl<W: Weight> std::fmt::Debug for Distribution<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.cells()).finish()
    }
}

impl<W: Weight> PartialEq for Distribution<W> {
    fn eq(&self, other: &Self) -> bool {
        // Cells with a weight of 0 count nothing, allocated or not.
        (self.binned_min, self.binned_max) == (other.binned_min, other.binned_max) && self.cells().eq(other.cells())
    }
}

/// The bin of a value above [`EXACT_LIMIT`].
fn bin_index(value: u64) -> usize {
    let exponent = u64::BITS - 1 - value.leading_zeros();
    let octave = (exponent - EXACT_EXPONENT) as usize * OCTAVE_CELLS;
    let above = value - (1 << exponent);
    if above == 0 { octave } else { octave + 1 + ((above - 1) >> (exponent - BINS_EXPONENT)) as usize }
}

/// The lowest and the highest value of a bin.
fn bin_range(index: usize) -> (u64, u64) {
    let exponent = EXACT_EXPONENT + (index / OCTAVE_CELLS) as u32;
    let base = 1u64 << exponent;
    match (index % OCTAVE_CELLS) as u64 {
        0 => (base, base),
        bin => {
            let width = 1u64 << (exponent - BINS_EXPONENT);
            let last = if bin == 1 << BINS_EXPONENT { 1 } else { 0 };
            (base + (bin - 1) * width + 1, base - last + (bin * width - 1) + 1)
        }
    }
}

impl<W: Weight> Distribution<W> {
    /// Counts `value` with a weight.
    #[inline]
    pub fn add(&mut self, value: u64, weight: W) {
        if weight == W::default() {
            // A value that is not counted is no maximum.
            return;
        }
        if value <= EXACT_LIMIT {
            let index = value as usize;
            self.exact[index / PAGE].get_or_insert_with(empty_page)[index % PAGE] += weight;
        } else {
            self.add_bin(bin_index(value), weight, u128::from(value) * weight.into());
            self.binned_min = self.binned_min.min(value);
            self.binned_max = self.binned_max.max(value);
        }
    }

    /// Adds a weight and a sum to a bin.
    #[inline]
    fn add_bin(&mut self, index: usize, weight: W, sum: u128) {
        let octave = self.octaves[index / OCTAVE_CELLS].get_or_insert_with(Octave::empty);
        octave.counts[index % OCTAVE_CELLS] += weight;
        octave.sums[index % OCTAVE_CELLS] += sum;
    }

    /// Adds every value of `other`.
    pub fn merge(&mut self, other: &Distribution<W>) {
        for (mine, theirs) in self.exact.iter_mut().zip(other.exact.iter()) {
            let Some(theirs) = theirs else { continue };
            let mine = mine.get_or_insert_with(empty_page);
            mine.iter_mut().zip(theirs.iter()).for_each(|(mine, theirs)| *mine += *theirs);
        }
        for (mine, theirs) in self.octaves.iter_mut().zip(other.octaves.iter()) {
            let Some(theirs) = theirs else { continue };
            let mine = mine.get_or_insert_with(Octave::empty);
            mine.counts.iter_mut().zip(&theirs.counts).for_each(|(mine, theirs)| *mine += *theirs);
            mine.sums.iter_mut().zip(&theirs.sums).for_each(|(mine, theirs)| *mine += *theirs);
        }
        self.binned_min = self.binned_min.min(other.binned_min);
        self.binned_max = self.binned_max.max(other.binned_max);
    }

    /// Every non-empty cell, by ascending value.
    pub fn cells(&self) -> impl Iterator<Item = Cell> + '_ {
        self.exact_cells().chain(self.bins())
    }

    fn exact_cells(&self) -> impl DoubleEndedIterator<Item = Cell> + '_ {
        let pages = self.exact.iter().enumerate().filter_map(|(page, cells)| Some((page * PAGE, cells.as_ref()?)));
        pages.flat_map(|(first, cells)| {
            cells.iter().enumerate().filter_map(move |(within, &count)| {
                let (value, count) = ((first + within) as u64, count.into());
                (count > 0).then(|| Cell { low: value, high: value, count, sum: u128::from(value) * count })
            })
        })
    }

    fn bins(&self) -> impl Iterator<Item = Cell> + '_ {
        let octaves = self.octaves.iter().enumerate().filter_map(|(octave, cells)| Some((octave, cells.as_ref()?)));
        octaves.flat_map(|(octave, cells)| {
            cells.counts.iter().zip(&cells.sums).enumerate().filter_map(move |(within, (&count, &sum))| {
                let (low, high) = bin_range(octave * OCTAVE_CELLS + within);
                let count = count.into();
                (count > 0).then_some(Cell { low, high, count, sum })
            })
        })
    }

    /// Weight of all values.
    pub fn count(&self) -> u128 {
        self.cells().map(|cell| cell.count).sum()
    }

    /// Sum of all values, each times its weight.
    pub fn total(&self) -> u128 {
        self.cells().map(|cell| cell.sum).sum()
    }

    /// Whether nothing was counted.
    pub fn is_empty(&self) -> bool {
        self.cells().next().is_none()
    }

    /// The mean; 0 if empty.
    pub fn mean(&self) -> f64 {
        crate::units::fraction(self.total(), self.count())
    }

    /// The exact smallest value; 0 if empty.
    pub fn min(&self) -> u64 {
        match self.cells().next() {
            Some(cell) if cell.low <= EXACT_LIMIT => cell.low,
            Some(_) => self.binned_min,
            None => 0,
        }
    }

    /// The exact largest value; 0 if empty.
    pub fn max(&self) -> u64 {
        match self.binned_max {
            0 => self.exact_cells().next_back().map_or(0, |cell| cell.low),
            max => max,
        }
    }

    /// The part at or below `value`.
    pub fn up_to(&self, value: u64) -> UpTo {
        if value >= self.max() {
            return UpTo { count: self.count(), sum: self.total(), doubt: 0 };
        }
        let mut at = UpTo { count: 0, sum: 0, doubt: 0 };
        for cell in self.cells().take_while(|cell| cell.low <= value) {
            if cell.high <= value {
                at.count += cell.count;
                at.sum += cell.sum;
            } else {
                let share = (value - cell.low + 1) as f64 / (cell.high - cell.low + 1) as f64;
                at.count += (cell.count as f64 * share).round() as u128;
                at.sum += (cell.sum as f64 * share).round() as u128;
                at.doubt = cell.count;
            }
        }
        at
    }

    /// Deciles by count: the i-th of ten is the smallest value such that at least i tenths of the weight is at or below
    /// it.
    pub fn deciles(&self) -> [u64; 10] {
        self.deciles_of(|cell| cell.count)
    }

    /// Deciles by sum: the i-th of ten is the smallest value such that at least i tenths of the total is in values up
    /// to it.
    pub fn deciles_by_sum(&self) -> [u64; 10] {
        self.deciles_of(|cell| cell.sum)
    }

    /// The smallest value such that at least `numerator / denominator` of the weight is at or below it.
    pub fn quantile(&self, numerator: u128, denominator: u128) -> u64 {
        self.quantiles(&[numerator], denominator, |cell| cell.count)[0]
    }

    /// The smallest value such that at least `numerator / denominator` of the total is in values up to it.
    pub fn quantile_by_sum(&self, numerator: u128, denominator: u128) -> u64 {
        self.quantiles(&[numerator], denominator, |cell| cell.sum)[0]
    }

    fn deciles_of(&self, mass: impl Fn(&Cell) -> u128) -> [u64; 10] {
        let quantiles = self.quantiles(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10], 10, mass);
        quantiles.try_into().unwrap_or([0; 10])
    }

    /// `numerators` must ascend; each quantile is exact below the limit, the mean of its cell above, and the maximum
    /// for the whole.
    fn quantiles(&self, numerators: &[u128], denominator: u128, mass: impl Fn(&Cell) -> u128) -> Vec<u64> {
        let whole: u128 = self.cells().map(|cell| mass(&cell)).sum();
        let (min, max) = (self.min(), self.max());
        let mut values = Vec::with_capacity(numerators.len());
        let mut seen = 0;
        let mut last = 0;
        for cell in self.cells() {
            seen += mass(&cell);
            last = cell.mean().clamp(min, max);
            while let Some(&numerator) = numerators.get(values.len()) {
                // Division comes first where the product could overflow: whole is below 2^117.
                if numerator == denominator || seen < div_ceil_product(whole, numerator, denominator) {
                    break;
                }
                values.push(last);
            }
        }
        let rest = if self.is_empty() { 0 } else { max.max(last) };
        values.resize(numerators.len(), rest);
        values
    }

    /// Power-of-two buckets from zero to the one with the largest value.
    pub fn buckets(&self) -> Vec<Bucket> {
        let mut buckets: Vec<Bucket> = Vec::new();
        for cell in self.cells() {
            let number = bucket_number(cell.low) as usize;
            while buckets.len() <= number {
                buckets.push(Bucket::of(buckets.len() as u32));
            }
            buckets[number].count += cell.count;
            buckets[number].sum += cell.sum;
        }
        buckets
    }
}

impl Distribution<u64> {
    /// Counts `value` once.
    #[inline]
    pub fn record(&mut self, value: u64) {
        self.add(value, 1);
    }
}

/// `ceil(whole * numerator / denominator)` without overflow.
fn div_ceil_product(whole: u128, numerator: u128, denominator: u128) -> u128 {
    let (quotient, remainder) = (whole / denominator, whole % denominator);
    quotient * numerator + (remainder * numerator).div_ceil(denominator)
}

#[cfg(test)]
mod tests;
