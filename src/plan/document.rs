//! A whole plan: the request and every answer, as docs/SCHEMA.md describes it under `granulo/plan/1`.

use serde::{Deserialize, Serialize};

use super::bill::{Bill, MONTH_SECONDS, MOST_READS, ReadRate, bill};
use super::block_size::{BlockSize, block_sizes};
use super::caching::Caching;
use super::cost::{Cost, Prices, cheapest, costs};
use super::operations::{Operations, Served};
use super::population::Population;
use super::recommend::{Recommendation, TOLERANCE, recommend};
use super::space::{ModelSpace, model_space};
use super::systems::Fact;
use super::tier::{Allowance, Fit, Profile, Tier, Tiers, cutoffs, scale};
use crate::distribution::Distribution;
use crate::document::Unread;
use crate::error::{Error, ErrorKind, Result};
use crate::layout::{Model, Wanted, kinds};
use crate::program;
use crate::units::SMALL_FILE_BYTES;

/// What a plan should answer.
#[derive(Debug)]
#[non_exhaustive]
pub struct Request {
    /// The layouts, in the order in which to list them.
    pub models: Vec<Model>,
    /// Cutoffs to answer besides the powers of two; the first is the usual one, to which fits, profiles and costs
    /// refer.
    pub cutoffs: Vec<u64>,
    /// The usual cutoff where no cutoff is specified.
    pub default_cutoff_bytes: u64,
    /// Capacity of a fast tier, to find the cutoff that it holds.
    pub fast_device_bytes: Option<u64>,
    /// What to allow for.
    pub allowance: Allowance,
    /// Sizes of reads and writes.
    pub operations: Option<Operations>,
    /// A cache, and what it makes of each block size.
    pub caching: Option<Caching>,
    /// Growth over 1 KiB blocks that is allowed.
    pub tolerance_fraction: f64,
    /// Whether a block size is asked for, besides what operations, a cache and a tolerance ask.
    pub block_sizes: bool,
    /// What devices cost.
    pub prices: Option<Prices>,
    /// Reads of whole files in a month; by default those of `operations`, if these tell a rate.
    pub reads_per_month: Option<u64>,
}

impl Request {
    /// Asks for the space of each layout, with the defaults of `granulo plan`.
    pub fn new(models: Vec<Model>) -> Request {
        Request {
            models,
            cutoffs: Vec::new(),
            default_cutoff_bytes: SMALL_FILE_BYTES,
            fast_device_bytes: None,
            allowance: Allowance::default(),
            operations: None,
            caching: None,
            tolerance_fraction: TOLERANCE,
            block_sizes: false,
            prices: None,
            reads_per_month: None,
        }
    }
}

/// Every answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// `granulo/plan/1`.
    pub schema: String,
    /// Version that wrote it.
    pub granulo_version: String,
    /// Commit that wrote it, with `+changed` where the tree differed from it; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub granulo_commit: Option<String>,
    /// The population.
    pub source: Source,
    /// Space by block size.
    pub block_sizes: Vec<BlockSize>,
    /// Whether a block size was asked for: by name, or with operations, a cache, or a tolerance of its own. Only then
    /// people see it.
    #[serde(default)]
    pub block_sizes_asked: bool,
    /// How block sizes serve the operations, if they are known.
    pub operations: Option<ServedOperations>,
    /// A cache, and what it makes of each block size, if it is known.
    #[serde(default)]
    pub caching: Option<Caching>,
    /// Which block size to use.
    pub recommendation: Option<Recommendation>,
    /// Space by layout.
    pub models: Vec<ModelSpace>,
    /// The layout that `tiers` describes: the first with a fast tier.
    pub tier_model: Option<String>,
    /// The usual cutoff.
    pub usual_cutoff_bytes: u64,
    /// Requested cutoffs.
    pub asked_cutoffs_bytes: Vec<u64>,
    /// Allowed growth of the population.
    pub growth_fraction: f64,
    /// Space for metadata and small files, for each power of two and each requested cutoff.
    pub tiers: Vec<Tier>,
    /// Every layout with a fast tier.
    pub fast_tiers: Vec<FastTier>,
    /// Currency of the prices.
    pub currency: Option<String>,
    /// Reads in a month, if they are known and prices were specified.
    #[serde(default)]
    pub reads: Option<ReadRate>,
    /// A month in object stores, where prices were specified.
    pub bills: Vec<Bill>,
}

impl Plan {
    /// Whether somebody asked for a block size. A plan that does not say so is by an older version.
    pub(crate) fn asks_for_blocks(&self) -> bool {
        let tolerance = self.recommendation.as_ref().map(|recommendation| recommendation.tolerance_fraction);
        self.block_sizes_asked
            || self.operations.is_some()
            || self.caching.is_some()
            || tolerance.is_some_and(|tolerance| tolerance != TOLERANCE)
    }
}

/// The population that a plan is about.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Source {
    /// Its name; `None` when anonymous.
    pub name: Option<String>,
    /// The host, if it is of one machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// When it was surveyed, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken_at: Option<String>,
    /// Number of files.
    pub files: u128,
    /// Sum of their sizes.
    pub size_bytes: u128,
    /// The largest file.
    pub largest_bytes: u64,
    /// Whether directories and symlinks are known, and counted where a model has them.
    pub tree_is_known: bool,
    /// Remarks: what was assumed or interpolated.
    pub notes: Vec<String>,
    /// What is published about it and what is assumed; empty for one that was measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub facts: Vec<Fact>,
}

/// Name of a population, with remarks.
#[derive(Debug, Clone, Default)]
pub struct About {
    /// Its name; `None` when anonymous.
    pub name: Option<String>,
    /// The host, if it is of one machine.
    pub host: Option<String>,
    /// When it was surveyed, RFC 3339.
    pub taken_at: Option<String>,
    /// Sentences for people.
    pub notes: Vec<String>,
    /// What is published about it and what is assumed.
    pub facts: Vec<Fact>,
}

/// How block sizes serve operations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServedOperations {
    /// Source of the operations.
    pub name: String,
    /// One row per block size.
    pub served: Vec<Served>,
}

/// The fast tier of one layout.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FastTier {
    /// The model, as it was written.
    pub model: String,
    /// How full the fast tier may become.
    pub fill_fraction: f64,
    /// Whether small files go to the slow tier when it is full; else writing them fails.
    pub overflows: bool,
    /// A dense curve: cutoffs at fractions of octaves, and those requested.
    pub curve: Vec<Tier>,
    /// The cutoff that the specified fast tier holds.
    pub fit: Option<Fit>,
    /// How the three ratios compare.
    pub profiles: Vec<Profile>,
    /// What to type for the usual cutoff, or for the largest that the specified fast tier holds if that is lower.
    pub settings: Vec<String>,
    /// Costs, where prices were specified.
    pub costs: Vec<Cost>,
    /// The cheapest that holds metadata and files up to the usual cutoff on fast devices.
    pub cheapest: Option<Cost>,
}

/// The schema identifier of plans.
const SCHEMA: &str = "granulo/plan/1";
/// Points of a curve in each doubling of the cutoff.
const POINTS_PER_OCTAVE: u32 = 4;
/// The least cutoff above 0 in a table.
const LEAST_BYTES: u64 = 512;

fn refuse(cause: impl Into<String>, advice: impl Into<String>) -> Error {
    Error::new(ErrorKind::Usage, "plan", cause).advise(advice)
}

/// Answers `request` for a population.
///
/// # Errors
/// [`ErrorKind::Usage`]: no files; a fast tier where no layout has one.
pub fn plan(population: &Population, about: About, request: &Request) -> Result<Plan> {
    if population.sizes.is_empty() {
        return Err(refuse("the source has no files", "survey a tree with files"));
    }
    let largest_bytes = population.sizes.max();
    let usual_cutoff_bytes = request.cutoffs.first().copied().unwrap_or(request.default_cutoff_bytes);
    let rows = block_sizes(population.sizes, population.padding);
    let operations = request
        .operations
        .as_ref()
        .map(|operations| ServedOperations { name: operations.name.clone(), served: operations.served() });
    let served = operations.as_ref().map(|operations| operations.served.as_slice());
    let models: Vec<ModelSpace> = request.models.iter().map(|model| model_space(population, model)).collect();
    let fast_tiers = fast_tiers(population, request, &models, usual_cutoff_bytes)?;
    let is_in_table = |tier: &&Tier| {
        let size = tier.cutoff_bytes;
        size == 0
            || (size.is_power_of_two() && size >= LEAST_BYTES)
            || request.cutoffs.contains(&size)
            || size == usual_cutoff_bytes
    };
    let reads = request.prices.as_ref().and_then(|_| read_rate(population, request));
    let bills = bills(population, request, &models, reads.as_ref());
    Ok(Plan {
        schema: SCHEMA.to_owned(),
        granulo_version: program::VERSION.to_owned(),
        granulo_commit: program::commit().map(str::to_owned),
        source: Source {
            name: about.name,
            host: about.host,
            taken_at: about.taken_at,
            files: population.files(),
            size_bytes: population.size_bytes(),
            largest_bytes,
            tree_is_known: population.tree.is_some(),
            notes: about.notes,
            facts: about.facts,
        },
        recommendation: (population.size_bytes() > 0)
            .then(|| recommend(&rows, served, request.caching.as_ref(), request.tolerance_fraction))
            .flatten(),
        block_sizes: rows,
        block_sizes_asked: request.block_sizes
            || request.operations.is_some()
            || request.caching.is_some()
            || request.tolerance_fraction != TOLERANCE,
        operations,
        caching: request.caching.clone(),
        models,
        tier_model: fast_tiers.first().map(|tier| tier.model.clone()),
        usual_cutoff_bytes,
        asked_cutoffs_bytes: request.cutoffs.clone(),
        growth_fraction: request.allowance.growth_fraction,
        tiers: fast_tiers.first().map_or(Vec::new(), |tier| tier.curve.iter().filter(is_in_table).copied().collect()),
        fast_tiers,
        currency: request.prices.as_ref().map(|prices| prices.currency.clone()),
        reads,
        bills,
    })
}

/// Reads a plan that was written as JSON; `None` if `text` is no plan.
///
/// # Errors
/// [`ErrorKind::NewerVersion`], [`ErrorKind::Corrupt`].
pub fn read(text: &[u8]) -> Option<Result<Plan>> {
    read_document(&Unread::new(text)?)
}

/// Reads a plan; `None` if the document is something else.
///
/// # Errors
/// Same as [`Unread::read`].
pub(crate) fn read_document(document: &Unread<'_>) -> Option<Result<Plan>> {
    document.read("read the plan", SCHEMA, "write it again with granulo plan --json")
}

fn fast_tiers(population: &Population, request: &Request, spaces: &[ModelSpace], usual: u64) -> Result<Vec<FastTier>> {
    let tiered: Vec<(&Model, Tiers)> = request
        .models
        .iter()
        .zip(spaces)
        .filter_map(|(model, space)| Some((model, Tiers::new(population, model, space, request.allowance)?)))
        .collect();
    if request.fast_device_bytes.is_some() {
        check_fast(&tiered)?;
    }
    let mut points = cutoffs(population.sizes.max(), POINTS_PER_OCTAVE);
    points.extend(request.cutoffs.iter().copied().chain([usual]));
    points.sort_unstable();
    points.dedup();
    let growth = request.allowance.growth_fraction;
    let of = |(model, tiers): (&Model, Tiers)| {
        let fit = request.fast_device_bytes.map(|bytes| tiers.fit(bytes.into(), usual));
        // Settings are for the cutoff that fits, unless the usual one does: files may grow beyond the largest of today.
        let chosen = match fit {
            Some(Fit { largest: None, .. }) => tiers.at(0),
            Some(Fit { largest: Some(tier), spill, .. }) if spill.spilled_bytes > 0 => tier,
            _ => tiers.at(usual),
        };
        let device_bytes = fit.map_or(chosen.fast_device_bytes, |fit| fit.fast_device_bytes);
        let powers: Vec<u64> = points
            .iter()
            .copied()
            .filter(|size| *size < population.sizes.max() || *size == usual)
            .filter(|size| *size == 0 || (size.is_power_of_two() && *size >= 4096) || request.cutoffs.contains(size))
            .collect();
        let costs = match &request.prices {
            Some(prices) => costs(&tiers, &powers, usual, prices, growth),
            None => Vec::new(),
        };
        FastTier {
            model: model.name.clone(),
            fill_fraction: tiers.fill_fraction(),
            overflows: model.layout.overflows(),
            fit,
            profiles: tiers.profiles(usual),
            settings: model.layout.settings(&Wanted {
                cutoff_bytes: chosen.cutoff_bytes,
                fast_bytes: device_bytes,
                metadata_bytes: scale(tiers.at(0).fast_bytes, 1.0 + growth),
                files: scale(population.files(), 1.0 + growth),
                fill_fraction: tiers.fill_fraction(),
            }),
            cheapest: cheapest(&costs).cloned(),
            costs,
            curve: points.iter().map(|&cutoff| tiers.at(cutoff)).collect(),
        }
    };
    Ok(tiered.into_iter().map(of).collect())
}

fn check_fast(tiered: &[(&Model, Tiers)]) -> Result<()> {
    if tiered.is_empty() {
        let with: Vec<&str> = kinds()
            .iter()
            .filter(|kind| Model::parse(kind.name).is_ok_and(|model| model.layout.place(0, 0).is_some()))
            .map(|kind| kind.name)
            .collect();
        return Err(refuse(
            "a fast tier was requested, but no chosen model has one",
            format!("models with a fast tier are {}", with.join(", ")),
        ));
    }
    Ok(())
}

/// Sizes of what is read: those of the operations if they have reads, else those of the files.
fn read_sizes<'p>(population: &'p Population, request: &'p Request) -> (&'p Distribution, Option<&'p Operations>) {
    match &request.operations {
        Some(operations) if !operations.reads.is_empty() => (&operations.reads, Some(operations)),
        _ => (population.sizes, None),
    }
}

/// The reads of a month: as many as were asked for, or at the rate of the operations.
fn read_rate(population: &Population, request: &Request) -> Option<ReadRate> {
    let (sizes, operations) = read_sizes(population, request);
    let mut rate = ReadRate {
        per_month: 0,
        mean_bytes: sizes.total() as f64 / sizes.count().max(1) as f64,
        trace: operations.map(|operations| operations.name.clone()),
        trace_seconds: None,
    };
    if let Some(per_month) = request.reads_per_month {
        return Some(ReadRate { per_month: per_month.min(MOST_READS), ..rate });
    }
    rate.trace_seconds = operations?.rate_seconds();
    let in_month = sizes.count() as f64 / rate.trace_seconds? * MONTH_SECONDS;
    Some(ReadRate { per_month: (in_month.round() as u64).min(MOST_READS), ..rate })
}

fn bills(population: &Population, request: &Request, spaces: &[ModelSpace], reads: Option<&ReadRate>) -> Vec<Bill> {
    let Some(prices) = &request.prices else { return Vec::new() };
    let read = reads.map(|rate| (rate, read_sizes(population, request).0));
    let growth = request.allowance.growth_fraction;
    let of = |both: (&Model, &ModelSpace)| bill(population, both, prices, growth, read);
    request.models.iter().zip(spaces).filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fast_tier_that_holds_everything_leaves_the_usual_cutoff() {
        let mut sizes = Distribution::default();
        sizes.record(30_000);
        let population = Population { sizes: &sizes, padding: None, tree: None };
        let settings = |fast_device_bytes: Option<u64>| {
            let mut request = Request::new(vec![Model::parse("zfs").unwrap()]);
            request.fast_device_bytes = fast_device_bytes;
            plan(&population, About::default(), &request).unwrap().fast_tiers.remove(0).settings.join("\n")
        };
        assert!(settings(Some(1 << 40)).contains("special_small_blocks=64K"), "{}", settings(Some(1 << 40)));
        // Too little for 32 KiB in three copies: the cutoff is the next smaller size of a block.
        assert!(settings(Some(100_000)).contains("special_small_blocks=29K"), "{}", settings(Some(100_000)));
    }
}
