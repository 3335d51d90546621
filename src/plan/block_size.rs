//! The space that a block size costs a population: the analysis of Tanenbaum, Herder and Bos (2006), section 3.
//!
//! A file of `size` bytes needs `up(size, block)` bytes, an empty file none. From the size distribution alone this is
//! exact for files up to 64 KiB and for block sizes that divide the width of a cell; for the power-of-two block sizes
//! of [`BLOCK_SIZES`], [`Padding`] holds what the distribution lacks, so that the totals are exact for every file.

use crate::distribution::{Cell, Distribution, EXACT_LIMIT};
use crate::layout::{round_up, round_up_spread};
use crate::units::fraction;

/// The block sizes that every survey covers: 512 B to 16 MiB.
pub const BLOCK_SIZES: [u64; 16] = {
    let mut sizes = [512; 16];
    let mut index = 1;
    while index < sizes.len() {
        sizes[index] = 2 * sizes[index - 1];
        index += 1;
    }
    sizes
};

/// Block size that is the reference for growth, in bytes: the paper's 1 KiB.
const REFERENCE_BLOCK_BYTES: u64 = 1024;

/// Bytes that rounding up adds to the files above [`EXACT_LIMIT`], for each of [`BLOCK_SIZES`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Padding(pub [u128; BLOCK_SIZES.len()]);

impl Padding {
    /// Adds a file of `size_bytes`, if it lies above the exact range.
    #[inline]
    pub fn record(&mut self, size_bytes: u64) {
        if size_bytes > EXACT_LIMIT {
            for (padding, block_bytes) in self.0.iter_mut().zip(BLOCK_SIZES) {
                *padding += u128::from(size_bytes.wrapping_neg() & (block_bytes - 1));
            }
        }
    }

    /// Adds every file of `other`.
    pub fn merge(&mut self, other: &Padding) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine += theirs;
        }
    }
}

/// One row of the analysis.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct BlockSize {
    /// The block size.
    pub block_bytes: u64,
    /// Bytes allocated to all files in whole blocks.
    pub allocated_bytes: u128,
    /// Growth over 1 KiB blocks (negative: less).
    pub growth_fraction: f64,
    /// Share of the files that need at most one block.
    pub single_block_fraction: f64,
    /// Share of the allocated bytes in the smallest 10 %, 20 %, … 100 % of the files.
    pub cumulative_weight: [f64; 10],
}

/// The analysis for all of [`BLOCK_SIZES`].
pub fn block_sizes(sizes: &Distribution, padding: Option<&Padding>) -> Vec<BlockSize> {
    let analysis = Analysis::of(sizes, padding);
    BLOCK_SIZES.iter().map(|&block_bytes| analysis.row(block_bytes)).collect()
}

/// The analysis for one block size (at least 1 byte), a power of two or not.
pub fn block_size(sizes: &Distribution, padding: Option<&Padding>, block_bytes: u64) -> BlockSize {
    Analysis::of(sizes, padding).row(block_bytes)
}

/// What the analyses of all block sizes have in common.
struct Analysis<'a> {
    sizes: &'a Distribution,
    padding: Option<&'a Padding>,
    /// The cells with all sizes up to [`EXACT_LIMIT`] rounded up to the smallest block: few cells, and exact for its
    /// multiples.
    coarse: Vec<Cell>,
    files: u128,
    /// Bytes allocated to all files in blocks of [`REFERENCE_BLOCK_BYTES`].
    reference_bytes: u128,
}

impl<'a> Analysis<'a> {
    fn of(sizes: &'a Distribution, padding: Option<&'a Padding>) -> Analysis<'a> {
        let coarse = coarse(sizes);
        let files = coarse.iter().map(|cell| cell.count).sum();
        let mut analysis = Analysis { sizes, padding, coarse, files, reference_bytes: 0 };
        analysis.reference_bytes = analysis.weigh(&analysis.coarse, REFERENCE_BLOCK_BYTES).0;
        analysis
    }

    fn row(&self, block_bytes: u64) -> BlockSize {
        if !block_bytes.is_multiple_of(BLOCK_SIZES[0]) {
            let cells: Vec<Cell> = self.sizes.cells().collect();
            return self.row_of(&cells, block_bytes);
        }
        self.row_of(&self.coarse, block_bytes)
    }

    fn row_of(&self, cells: &[Cell], block_bytes: u64) -> BlockSize {
        let reference = self.reference_bytes;
        let (allocated_bytes, cumulative_weight) = self.weigh(cells, block_bytes);
        // No cell spans one of these boundaries.
        let of_one_block = match block_bytes <= EXACT_LIMIT || block_bytes.is_power_of_two() {
            true => cells.iter().take_while(|cell| cell.high <= block_bytes).map(|cell| cell.count).sum(),
            false => self.sizes.up_to(block_bytes).count,
        };
        BlockSize {
            block_bytes,
            allocated_bytes,
            growth_fraction: if reference == 0 { 0.0 } else { fraction(allocated_bytes, reference) - 1.0 },
            single_block_fraction: fraction(of_one_block, self.files),
            cumulative_weight,
        }
    }

    /// Bytes allocated to all files in such blocks, and the cumulative share of each decile. A decile that ends inside
    /// a cell takes its part of the cell.
    fn weigh(&self, cells: &[Cell], block_bytes: u64) -> (u128, [f64; 10]) {
        let exact = BLOCK_SIZES.iter().position(|&size| size == block_bytes);
        let above_limit = exact.and_then(|at| Some(self.padding?.0[at]));
        let files = self.files as f64;
        let (mut weights, mut filled) = ([0.0; 10], 0);
        let (mut files_seen, mut bytes_seen) = (0.0, 0.0);
        let mut allocated_bytes = above_limit.unwrap_or(0);
        for cell in cells {
            let rounded = round_up_spread(cell.low, cell.high, cell.count, cell.sum, block_bytes);
            // With the padding, the sums of the others are exact.
            allocated_bytes += if above_limit.is_some() && cell.high > EXACT_LIMIT { cell.sum } else { rounded };
            if filled == 9 {
                continue;
            }
            let (cell_files, cell_bytes) = (cell.count as f64, rounded as f64);
            while filled < 9 {
                let boundary = files * (filled + 1) as f64 / 10.0;
                if boundary > files_seen + cell_files {
                    break;
                }
                weights[filled] = bytes_seen + cell_bytes * (boundary - files_seen) / cell_files;
                filled += 1;
            }
            files_seen += cell_files;
            bytes_seen += cell_bytes;
        }
        if allocated_bytes == 0 {
            return (0, [0.0; 10]);
        }
        weights.iter_mut().for_each(|weight| *weight = (*weight / allocated_bytes as f64).min(1.0));
        // Removes rounding errors: the last is the whole.
        weights[9] = 1.0;
        (allocated_bytes, weights)
    }
}

/// The cells of sizes up to [`EXACT_LIMIT`] in steps of the smallest block, and all others.
fn coarse(sizes: &Distribution) -> Vec<Cell> {
    let mut coarse: Vec<Cell> = Vec::new();
    for cell in sizes.cells() {
        if cell.high > EXACT_LIMIT {
            coarse.push(cell);
            continue;
        }
        let size = round_up(cell.high, BLOCK_SIZES[0]);
        match coarse.last_mut().filter(|last| last.high == size) {
            Some(last) => last.count += cell.count,
            None => coarse.push(Cell { low: size, high: size, count: cell.count, sum: 0 }),
        }
    }
    coarse
        .iter_mut()
        .filter(|cell| cell.high <= EXACT_LIMIT)
        .for_each(|cell| cell.sum = u128::from(cell.high) * cell.count);
    coarse
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(in crate::plan) fn of(sizes: &[u64]) -> (Distribution, Padding) {
        let (mut distribution, mut padding) = (Distribution::default(), Padding::default());
        for &size in sizes {
            distribution.record(size);
            padding.record(size);
        }
        (distribution, padding)
    }

    #[test]
    fn ten_files_have_their_shares_at_their_places() {
        // Nine files of one block and one of 91 blocks: each of the nine is 1 % of the disk.
        let mut sizes = vec![100; 9];
        sizes.push(91 * 1024);
        let (distribution, padding) = of(&sizes);
        let row = block_size(&distribution, Some(&padding), 1024);
        assert_eq!(row.allocated_bytes, 100 * 1024);
        assert!((row.cumulative_weight[8] - 0.09).abs() < 1e-12);
        assert_eq!(row.cumulative_weight[9], 1.0);
        assert_eq!(row.single_block_fraction, 0.9);
        assert_eq!(row.growth_fraction, 0.0);
    }

    #[test]
    fn nothing_takes_nothing() {
        let row = block_size(&Distribution::default(), None, 4096);
        assert_eq!((row.allocated_bytes, row.growth_fraction, row.cumulative_weight), (0, 0.0, [0.0; 10]));
    }

    proptest! {
        #[test]
        fn totals_are_exact_for_every_power_of_two_and_close_for_any_size(
            sizes in proptest::collection::vec((0u32..64, any::<u64>()).prop_map(|(shift, bits)| bits >> shift >> 1), 1..80),
            odd in 1u64..40_000_000,
        ) {
            let (distribution, padding) = of(&sizes);
            for row in block_sizes(&distribution, Some(&padding)) {
                let want: u128 = sizes.iter().map(|&s| u128::from(round_up(s, row.block_bytes))).sum();
                prop_assert_eq!(row.allocated_bytes, want);
                prop_assert!(row.cumulative_weight.is_sorted());
                prop_assert!(row.cumulative_weight.iter().all(|w| (0.0..=1.0).contains(w)));
            }
            // Without the padding, and for sizes that are not powers of two, at most a cell's width off.
            let want: f64 = sizes.iter().map(|&s| round_up(s, odd) as f64).sum();
            let got = block_size(&distribution, None, odd).allocated_bytes as f64;
            prop_assert!((got - want).abs() <= want * 0.01 + odd as f64 * sizes.len() as f64);
        }
    }
}
