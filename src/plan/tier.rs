//! The fast tier: the space that metadata and small files need there, for every cutoff. Welch and Noer (2013).
//!
//! [`Tiers`] answers any cutoff from a distribution. The layout places a file up to the cutoff as small, which no
//! higher cutoff changes (a law of [`place`]), so these sums are computed once; only the files above it are recomputed.
//! Directories and symlinks count as metadata, where they are known and modelled.
//!
//! [`place`] is monotonic in the cutoff, so the largest cutoff that a device holds is found by bisection.
//!
//! [`place`]: crate::layout::Layout::place

use serde::{Deserialize, Serialize};

use super::population::{Population, SAMPLES, add, samples};
use super::space::ModelSpace;
use crate::distribution::Cell;
use crate::layout::{Model, Placement, round_up};
use crate::units::fraction;

/// SSD to HDD ratios of Welch and Noer's three blades, as they name them: 120 GB to 8 TB, 300 GB to 8 TB, 480 GB to 4
/// TB.
pub const RATIOS: [f64; 3] = [0.015, 0.03, 0.10];

/// Sizes that represent the files of a cell for each cutoff that is evaluated.
const LARGE_SAMPLES: u128 = 4;

/// The tiers of a population at one cutoff.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Tier {
    /// Files (blocks, first bytes) up to this size go to the fast tier.
    pub cutoff_bytes: u64,
    /// Share of the files that are of this size or smaller.
    pub small_file_fraction: f64,
    /// Share of the bytes that these hold.
    pub small_data_fraction: f64,
    /// On the fast tier at least: lower than `fast_bytes` where records or compression leave it undetermined.
    pub fast_least_bytes: u128,
    /// On the fast tier: metadata and small files, redundancy included.
    pub fast_bytes: u128,
    /// On the slow tier.
    pub slow_bytes: u128,
    /// `fast_bytes` as a share of the sum of both.
    pub fast_fraction: f64,
    /// Raw capacity of the fast tier that this needs, with growth and reserve.
    pub fast_device_bytes: u128,
}

/// What to allow for when capacity is bought.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Allowance {
    /// Growth of the population: 0.5 for half as much again.
    pub growth_fraction: f64,
    /// How full the fast tier may become; `None` for the default of the layout.
    pub fill_fraction: Option<f64>,
}

/// The largest cutoff that a fast tier of a given capacity holds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Fit {
    /// Capacity of the fast tier.
    pub fast_device_bytes: u128,
    /// Bytes that may be filled before the requested growth.
    pub usable_bytes: u128,
    /// The largest cutoff that fits; `None` when metadata alone does not.
    pub largest: Option<Tier>,
    /// At the usual cutoff: what does not fit and spills to the slow tier.
    pub spill: Spill,
}

/// What happens when the fast tier is full.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Spill {
    /// The cutoff.
    pub cutoff_bytes: u64,
    /// What the fast tier would need.
    pub needed_bytes: u128,
    /// Bytes that go to the slow tier instead.
    pub spilled_bytes: u128,
    /// The same as a share of the bytes that should be fast.
    pub spilled_fraction: f64,
}

/// One of the three ratios of fast to slow capacity.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// Fast to slow capacity.
    pub ratio: f64,
    /// Capacity of the fast tier if the slow one were just large enough for what the usual cutoff leaves it.
    pub fast_device_bytes: u128,
    /// Whether metadata and files up to the usual cutoff fit.
    pub fits: bool,
    /// The largest cutoff that fits in the ratio; `None` when metadata alone does not.
    pub largest_cutoff_bytes: Option<u64>,
    /// What spills at the usual cutoff.
    pub spill: Spill,
}

/// A population under a layout with a fast tier.
pub struct Tiers<'a> {
    model: &'a Model,
    cells: Vec<Cell>,
    /// Sums over the cells before each, as if all were small.
    small: Vec<[u128; 5]>,
    /// Sums over the cells from each one up to `alike`, as if all were large: the layout places these identically for
    /// any cutoff below them.
    large: Vec<[u128; 3]>,
    /// Directories and symlinks, on the fast tier.
    tree_bytes: u128,
    allowance: Allowance,
    files: u128,
    size_bytes: u128,
    /// Bytes that the layout needs without tiers.
    everything_bytes: u128,
}

fn figures(placement: Placement) -> [u128; 3] {
    [placement.fast_least_bytes, placement.fast_bytes, placement.slow_bytes]
}

impl<'a> Tiers<'a> {
    /// `space` is the space that the model needs for the population without tiers. `None` for a layout without tiers.
    pub fn new(
        population: &Population,
        model: &'a Model,
        space: &ModelSpace,
        allowance: Allowance,
    ) -> Option<Tiers<'a>> {
        model.layout.place(0, 0)?;
        let cells = population.cells();
        let mut small = Vec::with_capacity(cells.len() + 1);
        let mut sums = [0; 5];
        small.push(sums);
        for &cell in &cells {
            add_small(&mut sums, cell, model);
            small.push(sums);
        }
        Some(Tiers {
            model,
            small,
            large: large_sums(&cells, model),
            tree_bytes: population.fast_tree_bytes(&*model.layout),
            allowance,
            files: population.files(),
            size_bytes: population.size_bytes(),
            everything_bytes: space.total_bytes,
            cells,
        })
    }

    /// The tiers at `cutoff_bytes`. In a cell above 64 KiB that contains the cutoff, a proportion of the files is
    /// small.
    pub fn at(&self, cutoff_bytes: u64) -> Tier {
        let placed_at = round_up(cutoff_bytes, self.model.layout.cutoff_unit_bytes());
        let [fast_least_bytes, fast_bytes, slow_bytes] = self.placed(placed_at);
        let (files, bytes) = self.up_to(cutoff_bytes);
        let fast_bytes = fast_bytes.saturating_add(self.tree_bytes);
        Tier {
            cutoff_bytes,
            small_file_fraction: fraction(files, self.files),
            small_data_fraction: fraction(bytes, self.size_bytes),
            fast_least_bytes: fast_least_bytes.saturating_add(self.tree_bytes),
            fast_bytes,
            slow_bytes,
            fast_fraction: fraction(fast_bytes, fast_bytes.saturating_add(slow_bytes)),
            fast_device_bytes: self.device_bytes(fast_bytes),
        }
    }

    /// The cell that contains a cutoff, with the part of it up to there, and the number of cells before it.
    fn inside(&self, cutoff_bytes: u64) -> (usize, Option<(Cell, f64)>) {
        let first = self.cells.partition_point(|cell| cell.high <= cutoff_bytes);
        let cell = self.cells.get(first).filter(|cell| cell.low <= cutoff_bytes);
        let part = |cell: &Cell| (cutoff_bytes - cell.low + 1) as f64 / ((cell.high - cell.low) as f64 + 1.0);
        (first, cell.map(|cell| (*cell, part(cell))))
    }

    /// Number and bytes of the files up to a cutoff.
    fn up_to(&self, cutoff_bytes: u64) -> (u128, u128) {
        let (first, inside) = self.inside(cutoff_bytes);
        let [.., files, bytes] = self.small[first];
        let part = |of: fn(&Cell) -> u128| inside.map_or(0, |(cell, part)| scale(of(&cell), part));
        (files + part(|cell| cell.count), bytes + part(|cell| cell.sum))
    }

    /// Where all files lie, for a cutoff in whole units.
    fn placed(&self, cutoff_bytes: u64) -> [u128; 3] {
        let (first, inside) = self.inside(cutoff_bytes);
        let [least, fast, slow, ..] = self.small[first];
        let mut sums = [least, fast, slow];
        let mut rest = first;
        if let Some((cell, part)) = inside {
            let [mut as_large, mut as_small] = [[0; 3]; 2];
            add_placed(
                &mut as_large,
                cell,
                self.model,
                cell.low.saturating_sub(1).min(cutoff_bytes),
                samples_of(&cell, self.model),
            );
            add_placed(&mut as_small, cell, self.model, u64::MAX, samples_of(&cell, self.model));
            for (at, sum) in sums.iter_mut().enumerate() {
                *sum = sum.saturating_add(between(as_large[at], as_small[at], part));
            }
            rest += 1;
        }
        if let Some(alike) = self.large.get(rest) {
            for (sum, alike) in sums.iter_mut().zip(alike) {
                *sum = sum.saturating_add(*alike);
            }
            rest = self.large.len() - 1;
        }
        for &cell in &self.cells[rest..] {
            add_placed(&mut sums, cell, self.model, cutoff_bytes, samples_of(&cell, self.model));
        }
        sums
    }

    /// Bytes that the layout needs on devices of one kind, without tiers.
    pub fn everything_bytes(&self) -> u128 {
        self.everything_bytes
    }

    /// How full the fast tier may become.
    pub fn fill_fraction(&self) -> f64 {
        let (numerator, denominator) = self.model.layout.fast_fill();
        self.allowance.fill_fraction.unwrap_or(numerator as f64 / denominator as f64)
    }

    /// The capacity of a device that holds `bytes` plus growth and stays within its fill level.
    fn device_bytes(&self, bytes: u128) -> u128 {
        scale(bytes, (1.0 + self.allowance.growth_fraction) / self.fill_fraction())
    }

    /// The largest cutoff that a fast tier of `device_bytes` holds, and what spills at `usual_bytes`.
    pub fn fit(&self, device_bytes: u128, usual_bytes: u64) -> Fit {
        let usable = scale(device_bytes, self.fill_fraction() / (1.0 + self.allowance.growth_fraction));
        let fits = |tier: &Tier| tier.fast_bytes <= usable;
        Fit {
            fast_device_bytes: device_bytes,
            usable_bytes: usable,
            largest: self.largest(fits),
            spill: spill(&self.at(usual_bytes), usable),
        }
    }

    /// How the three ratios compare; `usual_bytes` is the cutoff that they should hold.
    pub fn profiles(&self, usual_bytes: u64) -> Vec<Profile> {
        let usual = self.at(usual_bytes);
        let profile = |ratio: f64| {
            let room = |tier: &Tier| scale(tier.slow_bytes, ratio * self.fill_fraction());
            Profile {
                ratio,
                fast_device_bytes: scale(usual.slow_bytes, ratio),
                fits: usual.fast_bytes <= room(&usual),
                largest_cutoff_bytes: self.largest(|tier| tier.fast_bytes <= room(tier)).map(|tier| tier.cutoff_bytes),
                spill: spill(&usual, room(&usual)),
            }
        };
        RATIOS.map(profile).to_vec()
    }

    /// The largest cutoff for which `fits`, which is true up to some cutoff and false above; at most the largest file,
    /// and what the layout allows.
    fn largest(&self, fits: impl Fn(&Tier) -> bool) -> Option<Tier> {
        let lowest = self.at(0);
        if !fits(&lowest) {
            return None;
        }
        let largest_file = self.cells.last().map_or(0, |cell| cell.high);
        let most_bytes = largest_file.min(self.model.layout.cutoff_most_bytes());
        let most = self.at(most_bytes);
        if fits(&most) {
            return Some(most);
        }
        let (mut below, mut beyond) = (0, most_bytes);
        while beyond - below > 1 {
            let middle = below + (beyond - below) / 2;
            if fits(&self.at(middle)) {
                below = middle;
            } else {
                beyond = middle;
            }
        }
        Some(self.at(below))
    }
}

/// Adds the placement of the files of a cell.
fn add_placed(sums: &mut [u128; 3], cell: Cell, model: &Model, cutoff_bytes: u64, most_samples: u128) {
    for sample in samples(cell, most_samples) {
        let placement = model.layout.place(sample.size_bytes, cutoff_bytes).unwrap_or_default();
        add(sums, figures(placement), sample.count);
    }
}

/// For each cell that the layout places identically, and after the last: the bytes of that cell and the later ones when
/// they are above the cutoff.
fn large_sums(cells: &[Cell], model: &Model) -> Vec<[u128; 3]> {
    let alike = cells.partition_point(|cell| cell.high <= model.layout.alike_up_to());
    let mut sums = vec![[0; 3]; alike + 1];
    for (at, &cell) in cells[..alike].iter().enumerate().rev() {
        sums[at] = sums[at + 1];
        add_placed(&mut sums[at], cell, model, 0, SAMPLES);
    }
    sums
}

/// The same number for a cell on either side of a cutoff, so that none of its files appears or disappears.
fn samples_of(cell: &Cell, model: &Model) -> u128 {
    if cell.high <= model.layout.alike_up_to() { SAMPLES } else { LARGE_SAMPLES }
}

fn add_small(sums: &mut [u128; 5], cell: Cell, model: &Model) {
    let mut placed = [sums[0], sums[1], sums[2]];
    add_placed(&mut placed, cell, model, u64::MAX, samples_of(&cell, model));
    *sums = [placed[0], placed[1], placed[2], sums[3] + cell.count, sums[4] + cell.sum];
}

/// Linear interpolation between two sums.
fn between(from: u128, to: u128, part: f64) -> u128 {
    if to >= from { from + scale(to - from, part).min(to - from) } else { from - scale(from - to, part).min(from - to) }
}

fn spill(tier: &Tier, usable_bytes: u128) -> Spill {
    let spilled_bytes = tier.fast_bytes.saturating_sub(usable_bytes);
    Spill {
        cutoff_bytes: tier.cutoff_bytes,
        needed_bytes: tier.fast_bytes,
        spilled_bytes,
        spilled_fraction: fraction(spilled_bytes, tier.fast_bytes),
    }
}

/// `bytes` times a factor, saturating, rounded up.
pub fn scale(bytes: u128, factor: f64) -> u128 {
    if factor == 1.0 {
        return bytes;
    }
    let exact = bytes as f64 * factor;
    let nearest = exact.round();
    // 100 times 1.1 is 110, and a rounding error more.
    if (exact - nearest).abs() <= nearest * 4.0 * f64::EPSILON { nearest as u128 } else { exact.ceil() as u128 }
}

/// Cutoffs of a table or a curve: 0 and every `per_octave`-th part of an octave up to the largest file, and the last
/// byte before each power of two, because layouts change there.
pub fn cutoffs(largest_bytes: u64, per_octave: u32) -> Vec<u64> {
    let top = u64::BITS - largest_bytes.leading_zeros();
    let steps = (9 * per_octave)..=(top.clamp(17, 63) * per_octave);
    let mut cutoffs: Vec<u64> =
        steps.map(|step| (f64::from(step) / f64::from(per_octave)).exp2().round() as u64).collect();
    cutoffs.extend((9..=top.clamp(17, 63)).map(|exponent| (1u64 << exponent) - 1));
    cutoffs.push(0);
    cutoffs.sort_unstable();
    cutoffs.dedup();
    cutoffs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distribution::{Distribution, published};
    use crate::layout::kinds;
    use crate::plan::{Tree, model_space};
    use proptest::prelude::*;

    fn tiers<'a>(sizes: &Distribution, model: &'a Model) -> Option<Tiers<'a>> {
        let population = Population { sizes, padding: None, tree: None };
        Tiers::new(&population, model, &model_space(&population, model), Allowance::default())
    }

    fn tiered() -> impl Iterator<Item = Model> {
        let more = [
            "zfs:compress=1.5",
            "zfs:compression=off,recordsize=16K",
            "ceph:fast_ec=on",
            "granulo:small=mirror,large=raid5",
        ];
        let names = kinds().iter().map(|kind| kind.name).chain(more);
        names.map(|name| Model::parse(name).unwrap()).filter(|model| model.layout.place(0, 0).is_some())
    }

    #[test]
    fn what_is_fast_never_falls_as_the_cutoff_rises() {
        let population = published::find("vu-2005").unwrap().distribution();
        for model in tiered() {
            let tiers = tiers(population, &model).unwrap();
            let mut points = cutoffs(population.max(), 6);
            points.extend((0..120).map(|step| step * 971));
            points.sort_unstable();
            for pair in points.windows(2) {
                let (low, high) = (tiers.at(pair[0]), tiers.at(pair[1]));
                assert!(low.fast_bytes <= high.fast_bytes, "{} {pair:?}", model.name);
                assert!(low.fast_least_bytes <= high.fast_least_bytes, "{} {pair:?}", model.name);
                assert!(low.small_file_fraction <= high.small_file_fraction);
            }
        }
    }

    #[test]
    fn directories_and_symlinks_have_the_redundancy_of_the_fast_tier() {
        let of = |value: u64, count: u64| {
            let mut distribution = Distribution::default();
            distribution.add(value, count);
            distribution
        };
        let (sizes, entries, names, symlinks) = (of(30_000, 1), of(10, 1000), of(20, 10_000), of(20, 100));
        let tree = Tree { entries: &entries, names: &names, symlinks: &symlinks };
        let population = Population { sizes: &sizes, padding: None, tree: Some(tree) };
        // A sector and a share of a block of dnodes, both twice, on a mirror of two or of three; a record of 108 bytes
        // with an index entry of 32 and its share of an onode, in three copies.
        for (name, of_directory, of_symlink) in [
            ("zfs:vdev=single", 2 * 2 * 4096 + 512, 0),
            ("zfs:vdev=draid2,disks=11", 3 * 2 * 4096 + 768, 0),
            ("ceph:as=granulo", 3 * 140 + 1, 3 * 160 + 1),
        ] {
            let model = Model::parse(name).unwrap();
            let space = model_space(&population, &model);
            let tiers = Tiers::new(&population, &model, &space, Allowance::default()).unwrap();
            let of_tree = tiers.at(0).fast_bytes - model.layout.place(30_000, 0).unwrap().fast_bytes;
            assert_eq!(of_tree, 1000 * of_directory + 100 * of_symlink, "{name}");
        }
    }

    #[test]
    fn no_cutoff_is_larger_than_the_layout_allows() {
        let mut sizes = Distribution::default();
        sizes.record(10 << 30);
        for name in ["lustre", "granulo", "ceph:as=granulo"] {
            let model = Model::parse(name).unwrap();
            let largest = tiers(&sizes, &model).unwrap().fit(1 << 41, 65_536).largest.unwrap();
            assert_eq!((largest.cutoff_bytes, largest.small_data_fraction), (1 << 30, 0.0), "{name}");
            assert!(largest.slow_bytes > 0, "{name}");
        }
    }

    #[test]
    fn growth_adds_no_rounding_error() {
        assert_eq!(scale(100, 1.0 + 0.1), 110);
        assert_eq!(scale(101, 1.0 + 0.1), 112);
        assert_eq!(scale(1, 1e-9), 1);
        assert_eq!(scale(u128::MAX, 2.0), u128::MAX);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn a_cutoff_is_the_sum_over_the_files(sizes in proptest::collection::vec(0u64..=65_536, 1..60), cutoff in 0u64..70_000) {
            let mut distribution = Distribution::default();
            for &size in &sizes {
                distribution.record(size);
            }
            for model in tiered() {
                let tier = tiers(&distribution, &model).unwrap().at(cutoff);
                let at = round_up(cutoff, model.layout.cutoff_unit_bytes());
                let placed = |size: u64| model.layout.place(size, at).unwrap();
                prop_assert_eq!(tier.fast_bytes, sizes.iter().map(|&size| placed(size).fast_bytes).sum::<u128>(), "{}", model.name);
                prop_assert_eq!(tier.slow_bytes, sizes.iter().map(|&size| placed(size).slow_bytes).sum::<u128>(), "{}", model.name);
                let small = sizes.iter().filter(|size| **size <= cutoff).count();
                prop_assert!((tier.small_file_fraction - small as f64 / sizes.len() as f64).abs() < 1e-12);
            }
        }

        #[test]
        fn what_fits_is_the_largest_cutoff(sizes in proptest::collection::vec(0u64..3_000_000, 1..40), device in 0u128..8_000_000) {
            let mut distribution = Distribution::default();
            for &size in &sizes {
                distribution.record(size);
            }
            for model in tiered() {
                let tiers = tiers(&distribution, &model).unwrap();
                let fit = tiers.fit(device, 65_536);
                match fit.largest {
                    None => prop_assert!(tiers.at(0).fast_bytes > fit.usable_bytes),
                    Some(tier) => {
                        prop_assert!(tier.fast_bytes <= fit.usable_bytes, "{}", model.name);
                        let next = tiers.at(tier.cutoff_bytes + 1);
                        prop_assert!(next.fast_bytes > fit.usable_bytes || tier.cutoff_bytes >= distribution.max(), "{}", model.name);
                    }
                }
            }
        }
    }
}
