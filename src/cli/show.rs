//! `granulo show`: print a source or any result: for people, as JSON, or a table of it as CSV; or write its page.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use serde_json::Value;

use super::output::refuse_to_replace;
use super::report::write_report;
use super::results::{self, Stored};
use super::{Ended, lists, output, sources, usage_error};
use crate::distribution::published;
use crate::error::{Error, ErrorKind, Result};
use crate::io::write_atomically;
use crate::layout::Model;
use crate::plan::systems::{self, AssessedSystem, Suited};
use crate::plan::tier::RATIOS;
use crate::population::profiles;
use crate::program;
use crate::report::fields::Fields;
use crate::report::{self, csv, fields_page, page, terminal};
use crate::survey::Survey;
use crate::survey::answers::Answers;
use crate::survey::file::{Detail, Document};
use crate::survey::fsstats;
use crate::survey::owner_ages::{MOST_BREAKS, are_breaks};
use crate::units::{escape, parse_percent, parse_size};

/// Print a survey, fsstats CSV, published table, or any result
///
/// Answers for any cutoff and any block size: a survey keeps enough to be exact up to 64 KiB and within 1 % above.
///
/// Lists of other programs: sizes one a line (with allocated bytes, or find's %b, and names); min,max,count; fsstats
/// CSV; the JSON of ncdu, gdu and dust; the report of fprof or zdb -bbbs; Parquet with size_bytes.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  granulo show vu-2005\n  granulo show usr.json --cutoff 12KiB --cutoff 64KiB --block-size 128KiB\n  \
    granulo show usr.json --csv=where.directories.subtree.size\n  find /srv -type f -printf '%s %b %p\\n' | granulo show -"
)]
pub(super) struct ShowArguments {
    /// Survey file, list of another program, published table, any result that another command wrote as JSON, or - for
    /// standard input
    #[arg(value_name = "SOURCE", required_unless_present = "list")]
    source: Option<PathBuf>,
    /// List the published tables
    #[arg(long, conflicts_with = "source")]
    list: bool,
    /// Show how many files are of this size or smaller, and how many bytes they hold; may be repeated
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    cutoff: Vec<u64>,
    /// Show the space needed with this block size; may be repeated
    #[arg(long, value_name = "SIZE", value_parser = block_size)]
    block_size: Vec<u64>,
    /// Show the sizes and ages up to which this share of the files and bytes lies; may be repeated
    #[arg(long, value_name = "PERCENT", value_parser = quantile)]
    quantile: Vec<f64>,
    /// Show this many rows of each list, as far as the survey has them
    #[arg(long, value_name = "N")]
    top: Option<usize>,
    /// Breaks of the tables of ages, in days, instead of those of the survey: 30,365. Bytes of owners are known only at
    /// breaks of the survey
    #[arg(long, value_name = "DAYS", value_delimiter = ',')]
    age_breaks: Vec<u64>,
    /// Print every distribution, not only the summary
    #[arg(long)]
    all: bool,
    /// Write the histograms to this file in the fsstats CSV layout
    #[arg(long, value_name = "FILE.csv")]
    fsstats: Option<PathBuf>,
    /// Write what is shown to this file, as JSON
    #[arg(short, long, value_name = "FILE.json")]
    output: Option<PathBuf>,
    /// Print as JSON
    #[arg(long)]
    json: bool,
    /// Print one table of the result as CSV, with bytes, seconds and shares of 1; without TABLE, the names of its
    /// tables
    #[arg(long, value_name = "TABLE", num_args = 0..=1, require_equals = true, default_missing_value = "", conflicts_with = "json")]
    csv: Option<String>,
    /// Write a self-contained HTML page to this file
    #[arg(long, value_name = "FILE.html", conflicts_with = "list")]
    report: Option<PathBuf>,
}

fn block_size(text: &str) -> std::result::Result<u64, String> {
    match parse_size(text)? {
        0 => Err("a block size must be at least 1 byte".to_owned()),
        bytes => Ok(bytes),
    }
}

/// Reads a share; `%` may be omitted.
fn quantile(text: &str) -> std::result::Result<f64, String> {
    let percent = if text.ends_with('%') { text.to_owned() } else { format!("{text}%") };
    match parse_percent(&percent)? {
        fraction if !(0.0..=1.0).contains(&fraction) => Err("it must be 0 to 100 %".to_owned()),
        // Quantiles are computed to a thousandth of a per cent; more decimals than that would be rounded.
        fraction if (fraction * 1e5 - (fraction * 1e5).round()).abs() > 1e-6 => {
            Err(format!("'{text}' has more than three decimals; write, for example, 99.999%"))
        }
        fraction => Ok(fraction),
    }
}

impl ShowArguments {
    pub(super) fn run(self) -> Result<Ended> {
        let Some(path) = &self.source else {
            return self.list();
        };
        if path.as_os_str() == systems::COLLECTION {
            return self.systems();
        }
        refuse_to_replace(std::slice::from_ref(path), self.report.iter().chain(&self.fsstats).chain(&self.output))?;
        if let Some(stored) = results::read(path)? {
            return self.stored(&stored, path);
        }
        let mut survey = sources::open(path)?;
        if !self.age_breaks.is_empty() {
            if !are_breaks(&self.age_breaks) {
                return Err(usage_error(format!("breaks of ages are 1 to {MOST_BREAKS} numbers of days that rise")));
            }
            survey.origin.options.age_breaks_days = self.age_breaks.clone();
            self.set_owner_age_breaks(&mut survey);
        }
        if let Some(path) = &self.fsstats {
            write_atomically(path, |out| fsstats::write(&survey, out))?;
        }
        if let Some(page) = &self.report {
            output::write_page(page, |out| page::write(std::slice::from_ref(&survey), super::now(), out))?;
        }
        if self.is_document() || self.output.is_some() {
            let answers = Answers::of(&survey, &self.cutoff, &self.block_size).with_quantiles(&survey, &self.quantile);
            let document = Document::of(&survey, Detail::Full);
            match answers.is_empty() {
                true => self.emit(&document)?,
                false => self.emit(&Answered { survey: document, answers })?,
            }
        }
        if self.is_document() {
            return Ok(Ended::Well);
        }
        output::print(|out| {
            if self.cutoff.is_empty() && self.block_size.is_empty() && self.quantile.is_empty() {
                terminal::write_summary_of(&survey, self.top, out)?;
            }
            terminal::write_answers(&survey, &self.cutoff, &self.block_size, &self.quantile, out)?;
            if self.all { terminal::write_distributions(&survey, out) } else { Ok(()) }
        })
    }

    /// Gives the ages of owners the breaks that were asked for, of which a survey keeps only its own.
    fn set_owner_age_breaks(&self, survey: &mut Survey) {
        let Some(ages) = survey.places.as_mut().and_then(|places| places.owner_ages.as_mut()) else { return };
        match ages.with_breaks(&self.age_breaks) {
            Some(broken) => *ages = broken,
            None => {
                let own: Vec<String> = ages.breaks_days().iter().map(u64::to_string).collect();
                output::note(&format!("bytes of owners are known only at the breaks of the survey: {}", own.join(",")));
            }
        }
    }

    /// Whether an option needs a source of sizes.
    fn asks_for_sizes(&self) -> bool {
        self.all
            || self.fsstats.is_some()
            || !self.cutoff.is_empty()
            || !self.block_size.is_empty()
            || !self.quantile.is_empty()
            || !self.age_breaks.is_empty()
            || self.top.is_some()
    }

    /// Prints a plan, a bench or caches as on the original run.
    fn stored(&self, stored: &Stored, path: &Path) -> Result<Ended> {
        if self.asks_for_sizes() {
            return Err(usage_error("results other than surveys accept only -o, --json, --csv and --report")
                .advise("use the survey they were made from"));
        }
        if let Some(page) = &self.report {
            write_report(path, page)?;
        }
        match stored {
            Stored::CacheStudy(study) => self.emit(study)?,
            Stored::Plan(plan) => self.emit(plan)?,
            Stored::History(history) => self.emit(history)?,
            Stored::Bench(document) => self.emit(document)?,
            Stored::StoreStatus(written) | Stored::Allocations(written) => self.written(&written.text)?,
            Stored::StoreCheck(written) => self.written(&written.text)?,
            Stored::Comparison(written) => self.written(&written.text)?,
            Stored::Other(written) => self.written(&written.text)?,
        }
        match stored {
            _ if self.is_document() => Ok(Ended::Well),
            Stored::CacheStudy(study) => output::print(|out| report::cache::write_study(study, out)),
            Stored::Plan(plan) => output::print(|out| report::plan::write_plan(plan, out)),
            Stored::StoreStatus(status) => {
                output::print(|out| report::store::write_sentences(&report::store_page::sentences(&status.read), out))
            }
            Stored::StoreCheck(check) => output::print(|out| report::store::check::write_check(&check.read, out)),
            Stored::Comparison(comparison) => {
                output::print(|out| report::compare::write_comparison(&comparison.read, out))
            }
            Stored::History(history) => output::print(|out| report::history::write_history(history, out)),
            Stored::Bench(document) => output::print(|out| report::bench::write_document(document, out)),
            Stored::Allocations(document) => {
                let (model, sizes) = asked(&document.read)?;
                output::print(|out| report::allocate::write_allocations(&model, &sizes, out))
            }
            Stored::Other(document) => output::print(|out| document.read.write(out)),
        }
    }

    /// Whether a document is printed, or a table of it, instead of text for people.
    fn is_document(&self) -> bool {
        self.json || self.csv.is_some()
    }

    /// Writes a document to the file, and prints it as JSON or one of its tables, as asked for.
    fn emit(&self, document: &impl Serialize) -> Result<()> {
        match self.is_document() || self.output.is_some() {
            true => self.written(&serde_json::to_vec(document).map_err(no_tables)?),
            false => Ok(()),
        }
    }

    /// The same of one that is kept as it was written.
    fn written(&self, json: &[u8]) -> Result<()> {
        let line = |out: &mut dyn Write| {
            out.write_all(json.trim_ascii_end())?;
            out.write_all(b"\n")
        };
        if let Some(path) = &self.output {
            write_atomically(path, line)?;
        }
        match &self.csv {
            Some(name) => print_table(name, json),
            None if self.json => output::print_document(line).map(drop),
            None => Ok(()),
        }
    }

    /// The published populations.
    fn list(&self) -> Result<Ended> {
        if self.asks_for_sizes() {
            return Err(usage_error("the list of sources accepts only -o, --json and --csv")
                .advise("name a source, such as granulo show vu-2005 --all"));
        }
        self.emit(&lists::published())?;
        if self.is_document() {
            return Ok(Ended::Well);
        }
        output::print(|out| {
            terminal::write_published(published::all(), out)?;
            terminal::write_profiles(&profiles::all(), profiles::SOURCE, out)
        })
    }

    /// The measured systems, side by side.
    fn systems(&self) -> Result<Ended> {
        if self.asks_for_sizes() {
            return Err(usage_error("the table of measured systems accepts only -o, --json, --csv and --report")
                .advise("name one system, such as granulo show Uni-5 --all"));
        }
        let systems = systems::assess_all()?;
        let suited = systems::suited(&systems);
        let document = Systems {
            schema: "granulo/systems/1",
            granulo_version: program::VERSION,
            granulo_commit: program::commit(),
            ratios: RATIOS,
            suited,
            systems: &systems,
        };
        if let Some(page) = &self.report {
            output::write_page(page, |out| fields_page::part("", &Fields::of(&document)?)?.write(super::now(), out))?;
        }
        self.emit(&document)?;
        if self.is_document() {
            return Ok(Ended::Well);
        }
        output::print(|out| report::systems::write_systems(&systems, out))
    }
}

/// Prints a table of a JSON document, or the names of its tables.
fn print_table(name: &str, json: &[u8]) -> Result<()> {
    let document = csv::read(json).map_err(no_tables)?;
    let tables = csv::tables_of(&document);
    if name.is_empty() {
        return output::print_document(|out| csv::write_names(&tables, out)).map(drop);
    }
    match tables.iter().find(|table| table.name == name) {
        Some(table) => output::print_document(|out| table.write(out)).map(drop),
        // A table without rows, whose columns are unknown.
        None if csv::is_empty_list(&document, name) => Ok(()),
        None => Err(usage_error(format!("the result has no table '{}'", escape(name.as_bytes())))
            .advise("list its tables with --csv")),
    }
}

fn no_tables(error: serde_json::Error) -> Error {
    Error::new(ErrorKind::Io, "find the tables of the result", error.to_string())
}

/// The layout and the sizes of a document of `granulo allocate`.
fn asked(allocations: &Value) -> Result<(Model, Vec<u64>)> {
    let model = Model::parse(allocations["model"].as_str().unwrap_or_default())?;
    let files = allocations["files"].as_array().map_or(&[][..], Vec::as_slice);
    Ok((model, files.iter().filter_map(|file| file["size_bytes"].as_u64()).collect()))
}

/// A survey with what was asked about it.
#[derive(Serialize)]
struct Answered<'a> {
    #[serde(flatten)]
    survey: Document<'a>,
    answers: Answers,
}

#[derive(Serialize)]
struct Systems<'a> {
    schema: &'static str,
    granulo_version: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    granulo_commit: Option<&'static str>,
    /// Fast to slow capacity.
    ratios: [f64; 3],
    /// How many systems each ratio suits.
    suited: [Suited; 3],
    systems: &'a [AssessedSystem],
}
