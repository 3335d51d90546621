//! `granulo plan`: the space that layouts need for a population, and the size of the fast tier.

use std::path::{Path, PathBuf};

use clap::Args;

use super::cache::named_device;
use super::output::refuse_to_replace;
use super::{Ended, lists, output, sources, usage_error};
use crate::error::{Error, ErrorKind, Result};
use crate::io::read_bounded;
use crate::layout::{Model, kinds};
use crate::mrc::device::Device;
use crate::plan::bill::MOST_READS;
use crate::plan::cost::Prices;
use crate::plan::operations::{self, Operations};
use crate::plan::tier::Allowance;
use crate::plan::{About, Caching, Request, plan, recommend};
use crate::report;
use crate::survey::Resolution;
use crate::survey::file::format_time;
use crate::units::{SMALL_FILE_BYTES, parse_percent, parse_size};

/// The models if none is named: one of each kind, and the pools and classes that users choose between.
const MODELS: [&str; 15] = [
    "ext4",
    "xfs",
    "btrfs",
    "ntfs",
    "exfat",
    "zfs",
    "panfs",
    "ceph",
    "ceph:pool=replicated",
    "lustre",
    "hdfs",
    "minio",
    "s3",
    "s3:class=standard-ia",
    "granulo:small=mirror,large=raid5",
];

/// Serves the misses of a cache, unless another is named.
const DEFAULT_DEVICE: &str = "disk";

/// Predict the space a population needs under each layout, and size the fast tier
///
/// Reads only the source: a survey, a list of another program as granulo show takes it (of ncdu, Parquet, …), a
/// published table, or one of the 65 systems that granulo show panasas lists.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  granulo plan usr.json\n  granulo plan vu-2005 --model zfs:vdev=raidz2,disks=10 --fast 2TB --growth 50%\n  \
    granulo plan usr.json --model ext4 --model xfs --trace vu-2005 --json\n  granulo plan usr.json --trace build.gtrace --cache-size 64MiB --device nvme\n  granulo plan usr.json --prices prices.toml --report plan.html\n  \
    granulo plan usr.json --model s3 --model s3:as=granulo --prices prices.toml --reads 1000000"
)]
pub(super) struct PlanArguments {
    /// Survey file, list of another program, published table, measured system, or - for standard input
    #[arg(value_name = "SOURCE", required_unless_present = "list")]
    source: Option<PathBuf>,
    /// List the models with their options; granulo show panasas lists the measured systems
    #[arg(long, conflicts_with_all = ["source", "model", "cutoff", "fast", "growth", "fill", "trace", "cache", "device", "block_sizes", "tolerance", "prices", "report"])]
    list: bool,
    /// Layout model, as NAME or NAME:option=value,…; may be repeated; 'all' for every model with its defaults
    #[arg(long, value_name = "MODEL")]
    model: Vec<String>,
    /// Cutoff to evaluate; may be repeated, the first one is used for sizing [default: 64KiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    cutoff: Vec<u64>,
    /// Raw capacity of the fast tier, all copies together (a mirror of two 2 TB devices is 4TB): show which cutoff it
    /// can hold, and what does not fit
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    fast: Option<u64>,
    /// Expected growth of the population
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent, default_value = "0%", allow_hyphen_values = true)]
    growth: f64,
    /// Maximum fill level of the fast tier [default: from the model, such as 75% for zfs]
    #[arg(long, value_name = "PERCENT", value_parser = fill, allow_hyphen_values = true)]
    fill: Option<f64>,
    /// Read and write sizes: vu-2005, any trace that granulo trace reads, or a CSV of deciles
    /// (decile_pct,read_bytes,write_bytes)
    #[arg(long, value_name = "TRACE")]
    trace: Option<PathBuf>,
    /// Size of a cache: with --trace, the recommended block size also keeps its misses and their time low
    /// [default with vu-2005: 8MiB, the largest that its source measured]
    #[arg(long = "cache-size", alias = "cache", value_name = "SIZE", value_parser = parse_size, requires = "trace")]
    cache: Option<u64>,
    /// Device that serves the misses of the cache: disk, ssd or nvme [default: disk]
    #[arg(long, value_name = "NAME", value_parser = named_device, requires = "cache")]
    device: Option<Device>,
    /// Recommend a block size, and show the space with each; --trace and --tolerance do, too
    #[arg(long)]
    block_sizes: bool,
    /// Largest growth over 1 KiB blocks for a recommended block size [default: 5%]
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent, allow_hyphen_values = true)]
    tolerance: Option<f64>,
    /// TOML file with prices of devices and storage classes
    #[arg(long, value_name = "FILE.toml")]
    prices: Option<PathBuf>,
    /// Reads of whole files in a month, for the bills of object stores [default: as in --trace, if it covers an hour]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(..=MOST_READS), requires = "prices")]
    reads: Option<u64>,
    /// Write a self-contained HTML page to this file, with an interactive cutoff
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
    /// Write the plan to this file, for show and report
    #[arg(short, long, value_name = "FILE.json")]
    output: Option<PathBuf>,
    /// Print the plan as JSON
    #[arg(long)]
    json: bool,
}

fn fill(text: &str) -> std::result::Result<f64, String> {
    match parse_percent(text)? {
        fill if fill > 0.0 && fill <= 1.0 => Ok(fill),
        _ => Err("the fill level must be more than 0 % and at most 100 %".to_owned()),
    }
}

impl PlanArguments {
    pub(super) fn run(self) -> Result<Ended> {
        let Some(path) = &self.source else {
            return self.list();
        };
        let read: Vec<PathBuf> = std::iter::once(path).chain(&self.trace).chain(&self.prices).cloned().collect();
        refuse_to_replace(&read, self.output.iter().chain(&self.report))?;
        let models = models(&self.model)?;
        let operations = self.trace.as_deref().map(read_operations).transpose()?;
        let is_sound = operations.as_ref().is_none_or(|(_, is_sound)| *is_sound);
        let request = Request {
            models,
            cutoffs: self.cutoff.clone(),
            default_cutoff_bytes: SMALL_FILE_BYTES,
            fast_device_bytes: self.fast,
            allowance: Allowance { growth_fraction: self.growth, fill_fraction: self.fill },
            operations: operations.map(|(operations, _)| operations),
            caching: self.trace.as_deref().map(|trace| self.read_caching(trace)).transpose()?.flatten(),
            tolerance_fraction: self.tolerance.unwrap_or(recommend::TOLERANCE),
            block_sizes: self.block_sizes || self.tolerance.is_some(),
            prices: self.prices.as_deref().map(read_prices).transpose()?,
            reads_per_month: self.reads,
        };
        if request.prices.as_ref().is_some_and(|prices| prices.fast.is_empty() != prices.slow.is_empty()) {
            output::warn("costs need prices for both fast and slow devices; the file has only one of them");
        }
        let (survey, mut notes) = sources::open_with_notes(path)?;
        if survey.origin.resolution == Resolution::Buckets && notes.is_empty() {
            notes.push("sizes between the edges of its table are interpolated".to_owned());
        }
        let origin = &survey.origin;
        let about = About {
            name: origin.name.clone(),
            host: origin.host().map(str::to_owned),
            taken_at: origin.taken_at.map(format_time),
            notes,
            facts: origin.facts.clone(),
        };
        let plan = plan(&survey.population(), about, &request)
            .map_err(|error| if error.path().is_none() { error.at(path) } else { error })?;
        if request.prices.is_some() && plan.bills.is_empty() && plan.fast_tiers.iter().all(|tier| tier.costs.is_empty())
        {
            output::warn("the prices are not used: no chosen model has a fast tier or a price for requests and bytes");
        }
        if plan.reads.is_some() && !plan.bills.is_empty() && request.prices.as_ref().is_some_and(|it| !it.has_reads()) {
            output::warn("the bills have reads for nothing: no class has per_1000_reads or per_gib_read");
        }
        if let Some(page) = &self.report {
            output::write_page(page, |out| report::plan_page::write(&plan, &request.models, super::now(), out))?;
        }
        if let Some(path) = &self.output {
            output::write_json(path, &plan)?;
        }
        let ended = output::print_result(self.json, &plan, |out| report::plan::write_plan(&plan, out))?;
        Ok(ended.and(is_sound))
    }

    /// What the cache makes of each block size, if one is asked for or published.
    fn read_caching(&self, trace: &Path) -> Result<Option<Caching>> {
        if trace.as_os_str() == operations::PUBLISHED {
            if self.device.is_some() {
                let error = usage_error(format!("--device does not change the times of {}", operations::PUBLISHED));
                return Err(error.advise("omit it: they were measured, and are not those of another device"));
            }
            return Ok(Some(Caching::published(self.cache.unwrap_or_else(Caching::largest_published))));
        }
        let Some(cache_bytes) = self.cache else { return Ok(None) };
        let device = self.device.clone().map_or_else(|| named_device(DEFAULT_DEVICE).map_err(usage_error), Ok)?;
        super::cache::caching(trace, cache_bytes, &device).map(Some)
    }

    fn list(&self) -> Result<Ended> {
        let models = lists::models();
        if let Some(path) = &self.output {
            output::write_json(path, &models)?;
        }
        output::print_result(self.json, &models, |out| report::plan::write_models_list(kinds(), out))
    }
}

fn models(given: &[String]) -> Result<Vec<Model>> {
    let named = |names: &[&str]| names.iter().map(|name| Model::parse(name)).collect::<Result<Vec<Model>>>();
    if given.is_empty() {
        return named(&MODELS);
    }
    let mut models = Vec::new();
    for name in given {
        if name == "all" {
            let every: Vec<&str> = kinds().iter().map(|kind| kind.name).collect();
            models.extend(named(&every)?);
        } else {
            models.push(Model::parse(name)?);
        }
    }
    let mut seen = std::collections::HashSet::new();
    models.retain(|model| seen.insert(model.name.clone()));
    Ok(models)
}

fn read_text(operation: &'static str, path: &Path) -> Result<String> {
    String::from_utf8(read_bounded(operation, path)?)
        .map_err(|_| Error::new(ErrorKind::NotRecognised, operation, "it is not text").at(path))
}

/// The operations, and whether all of them could be read.
fn read_operations(path: &Path) -> Result<(Operations, bool)> {
    const OPERATION: &str = "read the operations";
    if path.as_os_str() == operations::PUBLISHED {
        return Ok((Operations::published(), true));
    }
    if let Some(read) = super::trace::operations(path)? {
        return Ok(read);
    }
    let text = read_text(OPERATION, path)?;
    Operations::parse(&text, &crate::units::escape_path(path))
        .map(|operations| (operations, true))
        .map_err(|cause| Error::new(ErrorKind::NotRecognised, OPERATION, cause).at(path))
}

fn read_prices(path: &Path) -> Result<Prices> {
    const OPERATION: &str = "read the prices";
    let text = read_text(OPERATION, path)?;
    Prices::parse(&text).map_err(|cause| {
        Error::new(ErrorKind::NotRecognised, OPERATION, cause).at(path).advise("docs/METHOD.md shows a price file")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_planned_for_by_default_can_be_built() {
        assert_eq!(models(&[]).unwrap().len(), MODELS.len());
        let all = ["all".to_owned(), "ext4".to_owned()];
        assert_eq!(models(&all).unwrap().len(), kinds().len());
    }
}
