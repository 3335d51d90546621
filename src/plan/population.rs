//! A population as a plan sees it: the sizes of its files, and the other entries of its tree.
//!
//! A total is the sum of a layout's answers over the files. It is exact for files up to [`EXACT_LIMIT`], for cells of
//! one file or one size, and for the whole where a layout rounds up to a block size that [`Padding`] was kept for.
//! Elsewhere the files of a cell (at most 0.8 % apart) are assumed to lie evenly around their mean: [`SAMPLES`] of them
//! represent all.

use super::block_size::{BLOCK_SIZES, Padding};
use crate::distribution::{Cell, Distribution, EXACT_LIMIT};
use crate::layout::{Layout, Space};

/// Sizes that represent the files of one cell above [`EXACT_LIMIT`].
pub const SAMPLES: u128 = 16;

/// What is known of a file population.
#[derive(Debug, Clone, Copy)]
pub struct Population<'a> {
    /// Sizes of its regular files.
    pub sizes: &'a Distribution,
    /// The exact bytes that rounding up adds to the large files, if they were recorded.
    pub padding: Option<&'a Padding>,
    /// Its directories and symlinks; `None` where the source does not say.
    pub tree: Option<Tree<'a>>,
}

/// Directories and symlinks of a population.
#[derive(Debug, Clone, Copy)]
pub struct Tree<'a> {
    /// Entries of each directory.
    pub entries: &'a Distribution,
    /// Lengths of names, one per entry.
    pub names: &'a Distribution,
    /// Lengths of symlink targets, one per symlink.
    pub symlinks: &'a Distribution,
}

/// The files of some cells, each cell as sizes that represent it.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// The size.
    pub size_bytes: u64,
    /// Number of files that it represents.
    pub count: u128,
}

/// At most `most` sizes that represent the files of a cell, each with a number of files.
pub fn samples(cell: Cell, most: u128) -> impl Iterator<Item = Sample> {
    let Cell { low, high, count, sum } = cell;
    let mean = cell.mean().clamp(low, high);
    let same = low == high || count <= 1;
    // Evenly over the widest interval around the mean that the cell holds: their mean is that of the cell.
    let reach = if same { 0 } else { (mean - low).min(high - mean) };
    let pieces = if same || reach == 0 { 1 } else { most.min(count) };
    let one = if same && low != high { u64::try_from(sum).unwrap_or(high).clamp(low, high) } else { mean };
    (0..pieces).map(move |piece| {
        let along = (2 * u128::from(reach) + 1) * (2 * piece + 1) / (2 * pieces);
        let size_bytes = if reach == 0 { one } else { mean - reach + along as u64 };
        let until = |piece: u128| count / pieces * piece + count % pieces * piece / pieces;
        Sample { size_bytes, count: until(piece + 1) - until(piece) }
    })
}

/// Totals of a layout for a population.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Total {
    /// Allocated for its files.
    pub allocated_bytes: u128,
    /// The part of it that lies in data blocks; the rest is already counted as metadata.
    pub data_bytes: u128,
    /// Metadata of its files.
    pub metadata_bytes: u128,
    /// What the system would report as allocated, where that differs.
    pub reported_bytes: Option<u128>,
    /// Space for its directories and symlinks, blocks and metadata; `None` if the source has none or the layout does
    /// not model directories.
    pub tree_bytes: Option<u128>,
}

impl Population<'_> {
    /// Number of files.
    pub fn files(&self) -> u128 {
        self.sizes.count()
    }

    /// Sum of the sizes of all files.
    pub fn size_bytes(&self) -> u128 {
        self.sizes.total()
    }

    /// Every cell, the last one cut at the largest file.
    pub fn cells(&self) -> Vec<Cell> {
        let mut cells: Vec<Cell> = self.sizes.cells().collect();
        if let Some(last) = cells.last_mut() {
            last.high = last.high.min(self.sizes.max());
        }
        cells
    }

    /// The sum of `figures` over all files; saturating.
    pub fn sum<const N: usize>(&self, figures: impl Fn(u64) -> [u128; N]) -> [u128; N] {
        let mut sums = [0u128; N];
        for sample in self.cells().into_iter().flat_map(|cell| samples(cell, SAMPLES)) {
            add(&mut sums, figures(sample.size_bytes), sample.count);
        }
        sums
    }

    /// Totals of `layout` for the population.
    pub fn total(&self, layout: &dyn Layout) -> Total {
        let reports = layout.reported(0).is_some();
        let [allocated, data, metadata, reported] = self.sum(|size| {
            let space = layout.file(size);
            let reported = if reports { layout.reported(size).unwrap_or_default() } else { 0 };
            [space.allocated_bytes, layout.data_bytes(size), space.metadata_bytes, reported]
        });
        let exactly = self.allocated_exactly(layout).unwrap_or(allocated);
        Total {
            allocated_bytes: exactly,
            data_bytes: exactly.saturating_sub(allocated.saturating_sub(data)),
            metadata_bytes: metadata,
            reported_bytes: reports.then_some(reported),
            tree_bytes: self.total_tree(layout, false),
        }
    }

    /// Space for directories and symlinks on the fast tier of `layout`; 0 where [`Total::tree_bytes`] is `None`.
    pub fn fast_tree_bytes(&self, layout: &dyn Layout) -> u128 {
        self.total_tree(layout, true).unwrap_or(0)
    }

    /// Allocated bytes, where whole units are all that counts and their padding is known.
    fn allocated_exactly(&self, layout: &dyn Layout) -> Option<u128> {
        let units = layout.whole_units()?;
        let padding = match BLOCK_SIZES.iter().position(|&size| size == units.unit_bytes) {
            Some(at) => self.padding?.0[at],
            None if units.unit_bytes == 1 => 0,
            None => return None,
        };
        let (mut small, mut large) = (0u128, 0u128);
        for cell in self.sizes.cells() {
            if cell.high <= EXACT_LIMIT {
                small += layout.file(cell.high).allocated_bytes.saturating_mul(cell.count);
            } else {
                large += cell.sum;
            }
        }
        let whole = (large + padding) / u128::from(units.unit_bytes);
        Some(small.saturating_add(whole.saturating_mul(units.bytes_per_unit)))
    }

    /// Space for directories and symlinks; `None` if the source has none or the layout does not model directories.
    /// Symlinks that it does not model count nothing. Names are assumed to be equally long in small and large
    /// directories.
    fn total_tree(&self, layout: &dyn Layout, is_fast: bool) -> Option<u128> {
        let tree = self.tree?;
        // Are directories modelled?
        layout.directory(0, 0)?;
        let whole = |space: Space| match layout.metadata_is_within() {
            true => space.allocated_bytes,
            false => space.allocated_bytes.saturating_add(space.metadata_bytes),
        };
        let names: u128 =
            tree.names.cells().map(|cell| u128::from(layout.entry_bytes(cell.mean())).saturating_mul(cell.count)).sum();
        let name_count = tree.names.count();
        let entries_bytes = |entries: u64| match name_count {
            0 => 0,
            _ => u64::try_from(u128::from(entries).saturating_mul(names) / name_count).unwrap_or(u64::MAX),
        };
        let over = |values: &Distribution, of: &dyn Fn(u64) -> Option<Space>| {
            values.cells().fold(0u128, |sum, cell| {
                sum.saturating_add(of(cell.mean()).map_or(0, whole).saturating_mul(cell.count))
            })
        };
        let directory = |entries: u64| match is_fast {
            true => layout.fast_directory(entries, entries_bytes(entries)),
            false => layout.directory(entries, entries_bytes(entries)),
        };
        let symlink = |length: u64| match is_fast {
            true => layout.fast_symlink(length),
            // What the system reports may be blocks that a symlink in the metadata does not have.
            false => {
                let space = layout.symlink(length)?;
                Some(Space { allocated_bytes: layout.symlink_data_bytes(length), ..space })
            }
        };
        Some(over(tree.entries, &directory).saturating_add(over(tree.symlinks, &symlink)))
    }
}

/// Adds `figures`, each times `count`, to `sums`; saturating.
pub fn add<const N: usize>(sums: &mut [u128; N], figures: [u128; N], count: u128) {
    for (sum, figure) in sums.iter_mut().zip(figures) {
        *sum = sum.saturating_add(figure.saturating_mul(count));
    }
}

#[cfg(test)]
mod tests {
    use super::super::block_size::tests::of;
    use super::*;
    use crate::layout::{Model, kinds};
    use proptest::prelude::*;

    #[test]
    fn a_symlink_in_the_metadata_is_counted_once() {
        let (sizes, _) = of(&[1]);
        let (empty, mut symlinks) = (Distribution::default(), Distribution::default());
        symlinks.record(20);
        for (model, has_blocks) in [("btrfs", false), ("ntfs", false), ("granulo", true)] {
            let layout = Model::parse(model).unwrap().layout;
            let total = |symlinks: &Distribution| {
                let tree = Tree { entries: &empty, names: &empty, symlinks };
                let population = Population { sizes: &sizes, padding: None, tree: Some(tree) };
                population.total(&*layout).tree_bytes.unwrap()
            };
            let space = layout.symlink(20).unwrap();
            let allocated_bytes = if has_blocks { space.allocated_bytes } else { 0 };
            assert_eq!(total(&symlinks) - total(&empty), allocated_bytes + space.metadata_bytes, "{model}");
        }
    }

    proptest! {
        #[test]
        fn samples_keep_the_number_and_the_mean_of_a_cell(low in 65_537u64..1 << 40, width in 0u64..1 << 20, count in 1u128..1000, along in 0.0f64..=1.0) {
            let high = low + width;
            let sum = u128::from(low) * count + (u128::from(width) * count).min((width as f64 * count as f64 * along) as u128);
            let cell = Cell { low, high, count, sum };
            let all: Vec<Sample> = samples(cell, SAMPLES).collect();
            prop_assert_eq!(all.iter().map(|sample| sample.count).sum::<u128>(), count);
            prop_assert!(all.iter().all(|sample| (low..=high).contains(&sample.size_bytes)));
            let mean = all.iter().map(|s| s.size_bytes as f64 * s.count as f64).sum::<f64>() / count as f64;
            prop_assert!((mean - sum as f64 / count as f64).abs() <= 2.0 + width as f64 / 16.0);
        }

        #[test]
        fn a_total_is_the_sum_over_the_files(
            small in proptest::collection::vec(0u64..=65_536, 1..40),
            large in proptest::collection::vec((17u32..63, any::<u64>()).prop_map(|(shift, bits)| (1 << shift) | bits >> (64 - shift)), 0..6),
        ) {
            let sizes: Vec<u64> = small.iter().chain(&large).copied().collect();
            let (distribution, padding) = of(&sizes);
            let population = Population { sizes: &distribution, padding: Some(&padding), tree: None };
            for kind in kinds() {
                let layout = Model::parse(kind.name).unwrap().layout;
                let want: u128 = sizes.iter().map(|&size| layout.file(size).allocated_bytes).sum();
                let got = population.total(&*layout).allocated_bytes;
                // Exact to the byte, except for cells that several large files share.
                let cells: std::collections::HashSet<u64> = distribution.cells().filter(|c| c.low > EXACT_LIMIT && c.count > 1).map(|c| c.low).collect();
                if cells.is_empty() {
                    prop_assert_eq!(got, want, "{}", kind.name);
                } else {
                    prop_assert!(got.abs_diff(want) as f64 <= 0.02 * want as f64, "{}", kind.name);
                }
            }
        }

        #[test]
        fn nothing_overflows(sizes in proptest::collection::vec(any::<u64>(), 1..10), count in 1u64..1 << 53) {
            let mut distribution = Distribution::default();
            for size in sizes {
                distribution.add(size, count / 16);
            }
            let population = Population { sizes: &distribution, padding: None, tree: None };
            for kind in kinds() {
                population.total(&*Model::parse(kind.name).unwrap().layout);
            }
        }
    }
}
