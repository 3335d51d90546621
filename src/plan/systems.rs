//! The 65 file systems of Welch and Noer (2013), Tables I and II, and how the three ratios of fast to slow capacity
//! suit them.
//!
//! The tables list the number of files, their bytes, the mean and the largest size, but no distribution. For each
//! system there are two kinds of figures, kept apart:
//!
//! - **What is certain.** A file has at least two component objects, each with a descriptor of one block ([`panfs`]). A
//!   file of `S` bytes has at most `S / 64 KiB + 2`, and at most 9 for each 2,000 stripes, so the descriptors of a
//!   system lie between two bounds, whatever its distribution.
//! - **What is assumed**: sizes with the shape of `vu-2005`, all multiplied by one factor so that number and bytes
//!   match the table. The figures for small files need this, and are marked. Under this assumption, a quarter to nine
//!   tenths of the files are of 64 KiB or less in most systems, as the paper found (its Fig. 3); the largest file of
//!   the table is not reproduced.
//!
//! [`panfs`]: crate::layout

use serde::Serialize;

use super::population::Population;
use super::space::model_space;
use super::tier::{Allowance, RATIOS, Tiers};
use crate::distribution::{Distribution, published};
use crate::error::Result;
use crate::layout::Model;
use crate::units::{GIB, KIB, SMALL_FILE_BYTES, TIB, fraction};

const TABLE: &str = include_str!("../../data/panasas_systems.csv");

/// What `show` calls the whole collection.
pub const COLLECTION: &str = "panasas";

/// The layout that the systems used, with the packing that the paper introduces.
const LAYOUT: &str = "panfs";
/// The published distribution whose shape is assumed.
const SHAPE: &str = "vu-2005";
const DESCRIPTOR_BYTES: u128 = 16 * KIB as u128;
/// Data in one stripe of 8 units, and in the 2,000 stripes after which a file gets new component objects.
const STRIPE_UNIT_BYTES: u128 = 64 * KIB as u128;
const OBJECT_SET_BYTES: u128 = 2000 * 8 * STRIPE_UNIT_BYTES;
/// Component objects of a large file: 8 with data and one with parity.
const COMPONENTS: u128 = 9;

/// A measured system.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct System {
    /// Kind of customer, and number.
    pub name: &'static str,
    /// Sum of the sizes of all files, to the digits of the table.
    pub size_bytes: u128,
    /// Number of files.
    pub files: u64,
    /// Size of the largest, to a KiB.
    pub max_bytes: u64,
    /// Number of directories.
    pub directories: u64,
}

/// How a fast tier would suit a system.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SystemShares {
    /// Descriptors, at least, as a share of the file data.
    pub descriptors_least_fraction: f64,
    /// Descriptors, at most.
    pub descriptors_most_fraction: f64,
    /// Descriptors, under the assumed distribution.
    pub descriptors_assumed_fraction: f64,
    /// Share of the files that are of 64 KiB or less, assumed.
    pub small_files_assumed_fraction: f64,
    /// Fast to slow bytes with descriptors and files up to 64 KiB on the fast tier, assumed.
    pub fast_to_slow_assumed: f64,
}

/// How many of the systems a ratio suits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Suited {
    /// Descriptors fit, whatever the distribution.
    pub descriptors_certain: usize,
    /// Descriptors fit for some distribution.
    pub descriptors_possible: usize,
    /// Descriptors and files up to 64 KiB fit, assumed.
    pub small_files_assumed: usize,
}

/// All of them, in the order of the table.
pub fn all() -> Vec<System> {
    let rows = TABLE.lines().filter(|line| !line.starts_with('#')).skip(1);
    rows.map(|row| system(row).unwrap_or_else(|| unreachable!("the built-in table is sound: {row}"))).collect()
}

/// The system of that name.
pub fn find(name: &str) -> Option<System> {
    all().into_iter().find(|system| system.name.eq_ignore_ascii_case(name))
}

fn system(row: &'static str) -> Option<System> {
    let fields: Vec<&str> = row.split(',').collect();
    let &[name, data, unit, files, _mean, max_kib, directories, ..] = fields.as_slice() else { return None };
    let unit_bytes = if unit == "TB" { TIB } else { GIB };
    Some(System {
        name,
        size_bytes: (data.parse::<f64>().ok()? * unit_bytes as f64) as u128,
        files: files.parse().ok()?,
        max_bytes: max_kib.parse::<u64>().ok()? * KIB,
        directories: directories.parse().ok()?,
    })
}

impl System {
    /// The assumed distribution: that of `vu-2005` with every size multiplied by the factor that yields the bytes of
    /// the table.
    pub fn distribution(&self) -> Distribution {
        let shape = published::find(SHAPE).map_or_else(Distribution::default, |table| table.distribution().clone());
        let mut factor = self.size_bytes as f64 / self.files.max(1) as f64 / shape.mean();
        let mut scaled = self.scaled(&shape, factor);
        // Sizes are integers, and a small number of files lacks fractions among the largest: the factor compensates for
        // both.
        for _ in 0..4 {
            factor *= self.size_bytes as f64 / scaled.total().max(1) as f64;
            scaled = self.scaled(&shape, factor);
        }
        scaled
    }

    /// The system's number of files, spread over `shape` with sizes multiplied by `factor`.
    fn scaled(&self, shape: &Distribution, factor: f64) -> Distribution {
        let mut scaled = Distribution::default();
        let whole = shape.count();
        let (mut seen, mut placed) = (0u128, 0u64);
        for cell in shape.cells() {
            seen += cell.count;
            let until_here = (u128::from(self.files) * seen / whole) as u64;
            if until_here > placed {
                let size = cell.sum as f64 / cell.count as f64 * factor;
                scaled.add(size.round() as u64, until_here - placed);
            }
            placed = until_here;
        }
        scaled
    }

    /// Shares of its descriptors and small files.
    ///
    /// # Errors
    /// None in practice: the layout is built in.
    pub fn shares(&self) -> Result<SystemShares> {
        let model = Model::parse(LAYOUT)?;
        let files = u128::from(self.files);
        let sets = self.size_bytes / OBJECT_SET_BYTES;
        let most = (files * COMPONENTS).min(2 * files + self.size_bytes / STRIPE_UNIT_BYTES) + sets * COMPONENTS;
        let sizes = self.distribution();
        let population = Population { sizes: &sizes, padding: None, tree: None };
        let share = |descriptors: u128| fraction(descriptors * DESCRIPTOR_BYTES, self.size_bytes);
        let space = model_space(&population, &model);
        let tiers = Tiers::new(&population, &model, &space, Allowance::default());
        let small = tiers.map(|tiers| tiers.at(SMALL_FILE_BYTES));
        Ok(SystemShares {
            descriptors_least_fraction: share(2 * files),
            descriptors_most_fraction: share(most),
            descriptors_assumed_fraction: fraction(space.metadata_bytes, self.size_bytes),
            small_files_assumed_fraction: fraction(sizes.up_to(SMALL_FILE_BYTES).count, sizes.count()),
            fast_to_slow_assumed: small.map_or(0.0, |tier| fraction(tier.fast_bytes, tier.slow_bytes)),
        })
    }
}

/// All of them, each with its shares.
///
/// # Errors
/// As [`System::shares`].
pub fn with_shares() -> Result<Vec<(System, SystemShares)>> {
    all().into_iter().map(|system| system.shares().map(|shares| (system, shares))).collect()
}

/// How many of `systems` each of the [`RATIOS`] suits.
pub fn suited(systems: &[(System, SystemShares)]) -> [Suited; 3] {
    let many = |fits: &dyn Fn(&SystemShares) -> bool| systems.iter().filter(|(_, shares)| fits(shares)).count();
    RATIOS.map(|ratio| Suited {
        descriptors_certain: many(&|shares| shares.descriptors_most_fraction <= ratio),
        descriptors_possible: many(&|shares| shares.descriptors_least_fraction <= ratio),
        small_files_assumed: many(&|shares| shares.fast_to_slow_assumed <= ratio),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_65_with_the_figures_of_the_tables() {
        let systems = all();
        assert_eq!(systems.len(), 65);
        // "A total of nearly 600 million files."
        let files: u64 = systems.iter().map(|system| system.files).sum();
        assert!((595_000_000..605_000_000).contains(&files), "{files}");
        // The mean size of the table, from the bytes and the number.
        for (name, mean_kib) in [("Uni-5", 3339), ("Bio-4", 75), ("Sei-3", 1_203_178), ("User-1", 370)] {
            let system = find(name).unwrap();
            let mean = system.size_bytes / u128::from(system.files) / u128::from(KIB);
            assert!(mean.abs_diff(mean_kib) <= 1 + mean_kib / 500, "{name}: {mean}");
        }
        assert!(find("bio-2").is_some() && find("Uni-6").is_none());
        assert!(systems.iter().all(|system| u128::from(system.max_bytes) <= system.size_bytes + (1 << 20)));
    }

    #[test]
    fn the_assumed_distribution_has_the_figures_of_the_table() {
        for system in all() {
            let sizes = system.distribution();
            assert_eq!(sizes.count(), u128::from(system.files), "{}", system.name);
            let ratio = sizes.total() as f64 / system.size_bytes as f64;
            assert!((ratio - 1.0).abs() < 1e-3, "{}: {ratio}", system.name);
        }
    }

    #[test]
    fn by_it_most_systems_have_the_small_files_that_the_paper_found() {
        let share = |system: &System| {
            let sizes = system.distribution();
            fraction(sizes.up_to(SMALL_FILE_BYTES).count, sizes.count())
        };
        let shares: Vec<f64> = all().iter().map(share).collect();
        let many = shares.iter().filter(|share| (0.2..0.93).contains(*share)).count();
        assert!(many >= 40, "{many}: {shares:?}");
    }

    #[test]
    fn what_is_assumed_lies_between_what_is_certain() {
        for system in all() {
            let shares = system.shares().unwrap();
            let assumed = shares.descriptors_assumed_fraction;
            let (least, most) = (shares.descriptors_least_fraction, shares.descriptors_most_fraction);
            assert!(least * 0.999 <= assumed && assumed <= most * 1.001, "{}: {least} {assumed} {most}", system.name);
        }
    }
}
