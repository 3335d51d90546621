//! The 65 file systems of Welch and Noer (2013): Tables I and II, what the text says of them, and how the three ratios
//! of fast to slow capacity suit them.
//!
//! The paper has no distribution of a system, only figures of it. For each system there are three kinds of figures,
//! kept apart:
//!
//! - **What is published**: the tables ([`System`]) and the statements of the text (`text`). The distribution of a
//!   system has all of these figures (`fit`).
//! - **What is certain.** A file has at least two component objects, each with a descriptor of one block ([`panfs`]). A
//!   file of `S` bytes has at most `S / 64 KiB + 2`, and at most 9 for each 2,000 stripes, so the descriptors of a
//!   system lie between two bounds, whatever its distribution.
//! - **What is assumed**: sizes between the published figures have the shape of `vu-2005`. [`Fact`] says in words which
//!   figure is of which kind.
//!
//! [`panfs`]: crate::layout

mod facts;
mod fit;
mod text;

pub use facts::{Fact, FactKind};

use serde::Serialize;

use super::population::Population;
use super::space::model_space;
use super::tier::{Allowance, RATIOS, Tiers};
use crate::distribution::Distribution;
use crate::error::Result;
use crate::layout::Model;
use crate::tables::{PanasasRow, panasas_systems};
use crate::units::{GIB, KIB, SMALL_FILE_BYTES, TIB, fraction};
use text::{Measure, Role, Statement};

/// What `show` calls the whole collection.
pub const COLLECTION: &str = "panasas";

/// The layout that the systems used, with the packing that the paper introduces.
const LAYOUT: &str = "panfs";
/// The layout while they were measured.
const MEASURED_LAYOUT: &str = "panfs:packing=off";
/// The published distribution whose shape is assumed between published figures.
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
    /// Mean size, cut to a KiB: of the table, not from bytes and files.
    pub mean_bytes: u64,
    /// Entries of a directory, on average.
    pub directory_entries_mean: u64,
    /// Entries of the largest directory.
    pub directory_entries_max: u64,
    /// Length of a name in bytes, on average.
    pub name_length_mean: u64,
    /// Length of the longest name.
    pub name_length_max: u64,
}

/// A distribution with all published figures of a system.
#[derive(Debug, Clone, PartialEq)]
pub struct SystemPopulation {
    /// Its sizes.
    pub sizes: Distribution,
    /// What is published and what is assumed.
    pub facts: Vec<Fact>,
}

/// How a fast tier would suit a system.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SystemShares {
    /// Descriptors, at least, as a share of the file data.
    pub descriptors_least_fraction: f64,
    /// Descriptors, at most.
    pub descriptors_most_fraction: f64,
    /// Descriptors of the fitted distribution.
    pub descriptors_assumed_fraction: f64,
    /// Share of the files that are of 64 KiB or less, in the fitted distribution.
    pub small_files_assumed_fraction: f64,
    /// Fast to slow bytes with descriptors and files up to 64 KiB on the fast tier, in the fitted distribution.
    pub fast_to_slow_assumed: f64,
}

/// A system with what follows from its figures.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AssessedSystem {
    /// Its figures.
    #[serde(flatten)]
    pub system: System,
    /// How a fast tier would suit it.
    pub shares: SystemShares,
    /// What is published about it and what is assumed.
    pub facts: Vec<Fact>,
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
    panasas_systems().into_iter().map(System::from).collect()
}

/// The system of that name.
pub fn find(name: &str) -> Option<System> {
    all().into_iter().find(|system| system.name.eq_ignore_ascii_case(name))
}

impl From<PanasasRow> for System {
    fn from(row: PanasasRow) -> System {
        let unit_bytes = if row.unit == "TB" { TIB } else { GIB };
        System {
            name: row.system,
            size_bytes: (row.user_data * unit_bytes as f64) as u128,
            files: row.files,
            max_bytes: row.max_kib * KIB,
            directories: row.directories,
            mean_bytes: row.mean_kib * KIB,
            directory_entries_mean: row.directory_entries_mean,
            directory_entries_max: row.directory_entries_max,
            name_length_mean: row.name_length_mean,
            name_length_max: row.name_length_max,
        }
    }
}

impl System {
    /// Its distribution, with what is published about it and what is assumed.
    ///
    /// # Errors
    /// None in practice: the layout is built in.
    pub fn population(&self) -> Result<SystemPopulation> {
        let layout = Model::parse(MEASURED_LAYOUT)?.layout;
        let statements = text::all();
        let is_to_fit = |statement: &&Statement| statement.role == Role::Fit;
        let own = || statements.iter().filter(is_to_fit).filter(|statement| statement.names(self.name));
        let typical: Vec<&Statement> = statements
            .iter()
            .filter(is_to_fit)
            .filter(|statement| statement.is_of_most() && !own().any(|own| own.has_the_figure_of(statement)))
            .collect();
        let all: Vec<&Statement> = own().chain(typical.iter().copied()).collect();
        let alike =
            statements.iter().find(|statement| statement.measure == Measure::Distance && statement.names(self.name));
        let shape = alike.map_or_else(|| self.clone(), |statement| self.with_all(|name| statement.names(name)));
        let fitted = fit::fit(self, &shape, &all, &*layout);
        let facts = facts::facts(self, &statements, &typical, (&fitted.sizes, fitted.factor), &*layout);
        Ok(SystemPopulation { sizes: fitted.sizes, facts })
    }

    /// All systems of a group together, with the largest file that each of them could have.
    fn with_all(&self, is_in_group: impl Fn(&str) -> bool) -> System {
        let group: Vec<System> = all().into_iter().filter(|system| is_in_group(system.name)).collect();
        let max_bytes = group.iter().map(|system| system.max_bytes).min().unwrap_or(self.max_bytes);
        let besides = |system: &System| system.size_bytes.saturating_sub(system.max_bytes.into());
        System {
            files: group.iter().map(|system| system.files).sum(),
            size_bytes: group.iter().map(besides).sum::<u128>() + u128::from(max_bytes),
            max_bytes,
            ..self.clone()
        }
    }

    /// How a fast tier would suit it, if it has these sizes.
    fn shares(&self, sizes: &Distribution) -> Result<SystemShares> {
        let model = Model::parse(LAYOUT)?;
        let files = u128::from(self.files);
        let sets = self.size_bytes / OBJECT_SET_BYTES;
        let most = (files * COMPONENTS).min(2 * files + self.size_bytes / STRIPE_UNIT_BYTES) + sets * COMPONENTS;
        let population = Population { sizes, padding: None, tree: None };
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

    /// What follows from its figures.
    ///
    /// # Errors
    /// As [`System::population`].
    pub fn assess(self) -> Result<AssessedSystem> {
        let SystemPopulation { sizes, facts } = self.population()?;
        Ok(AssessedSystem { shares: self.shares(&sizes)?, facts, system: self })
    }
}

/// All of them, assessed.
///
/// # Errors
/// As [`System::population`].
pub fn assess_all() -> Result<Vec<AssessedSystem>> {
    all().into_iter().map(System::assess).collect()
}

/// How many of `systems` each of the [`RATIOS`] suits.
pub fn suited(systems: &[AssessedSystem]) -> [Suited; 3] {
    let many = |fits: &dyn Fn(&SystemShares) -> bool| systems.iter().filter(|system| fits(&system.shares)).count();
    RATIOS.map(|ratio| Suited {
        descriptors_certain: many(&|shares| shares.descriptors_most_fraction <= ratio),
        descriptors_possible: many(&|shares| shares.descriptors_least_fraction <= ratio),
        small_files_assumed: many(&|shares| shares.fast_to_slow_assumed <= ratio),
    })
}

#[cfg(test)]
mod tests;
