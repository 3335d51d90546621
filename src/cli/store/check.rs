//! `granulo store check`: is the store consistent?

use clap::Args;
use serde::Serialize;

use super::completeness::emit_with;
use super::problems::{ProblemRecord, word};
use super::progress::maintenance_words;
use super::{Ended, StoreToWrite, output};
use crate::cli::output::DocumentArguments;
use crate::cli::progress::during;
use crate::cli::signals;
use crate::error::Result;
use crate::report::check_page::part;
use crate::report::store::check::Checked;
use crate::store::{CheckOptions, CheckReport, Problem, rebuild_index};
use crate::units::{format_count, parse_size};

/// Problems that are kept for JSON; further ones are only counted.
const KEPT: usize = 10_000;

/// Check a store: its metadata or, with --deep, every byte
///
/// Checks the superblocks, all blocks and accounts of the index, and that every segment and extent file exists, is
/// long enough and has a valid header. --deep reads every record on every copy and every stripe unit, and compares
/// the index with them. Nothing is changed, and a writer may be active. The exit status is 1 if there is any problem.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  granulo store check /srv/s\n  granulo store check /srv/s --deep --rate 200MiB\n  granulo store check /srv/s --rebuild-index"
)]
pub(super) struct CheckArguments {
    #[command(flatten)]
    at: StoreToWrite,
    /// Read every byte
    #[arg(long)]
    deep: bool,
    /// Rebuild the index from the segments first; opens the store for writing
    #[arg(long)]
    rebuild_index: bool,
    /// Limit the read rate, in bytes per second
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    rate: Option<u64>,
    #[command(flatten)]
    pub(super) document: DocumentArguments,
}

/// Kind and version of the document.
pub(crate) const STORE_CHECK: &str = "granulo/store-check/1";

#[derive(Serialize)]
struct CheckDocument {
    schema: &'static str,
    #[serde(flatten)]
    checked: Checked,
    problems: Vec<ProblemRecord>,
}

impl CheckArguments {
    pub(super) fn run(self) -> Result<Ended> {
        let store = if self.rebuild_index {
            let (home, how) = (&self.at.read.store, self.at.options()?);
            self.at.waiting.until_free(home, || rebuild_index(home, &how))?
        } else {
            self.at.read.open_quietly()?
        };
        super::say_completeness(&store);
        if self.rebuild_index && !self.document.json {
            let recovered = store.recovered();
            let text = format!("rebuilt the index from {} records", format_count(recovered.records.into()));
            output::note(&text);
        }
        let progress = signals::progress()?;
        let mut problems = Vec::new();
        let mut printed = Ok(Ended::Well);
        let options = CheckOptions { is_deep: self.deep, bytes_per_second: self.rate };
        let mut found = |problem: Problem| {
            if self.document.is_wanted() && problems.len() < KEPT {
                problems.push(ProblemRecord::new(&problem, None));
            }
            // Printed as they are found: a check may take hours.
            if !self.document.json {
                let line = output::print(|out| writeln!(out, "{}: {problem}", word(problem.remedy)));
                if line.is_err() {
                    printed = line;
                }
            }
        };
        let report = during(false, &progress, maintenance_words, || store.check(options, &mut found, &progress));
        let report = report?;
        let checked = checked(&report, self.rebuild_index);
        let sentence = checked.sentence(store.completeness().is_complete());
        emit_with(&self.document, &CheckDocument { schema: STORE_CHECK, checked, problems }, |value| part(&value))?;
        // The document has the problems that could not be printed.
        printed?;
        if !self.document.json {
            output::print_words(&sentence)?;
        }
        Ok(if report.is_complete && report.problems() == 0 { Ended::Well } else { Ended::Amiss })
    }
}

/// The report as a document has it.
pub(super) fn checked(report: &CheckReport, index_rebuilt: bool) -> Checked {
    Checked {
        deep: report.is_deep,
        complete: report.is_complete,
        index_rebuilt,
        keys: report.keys,
        segments: report.segments,
        tables: report.tables,
        large_objects: report.large_objects,
        verified_bytes: report.verified_bytes,
        quarantined_bytes: report.quarantined_bytes,
        problem_count: report.problems(),
        repairable: report.repairable,
        rebuildable: report.rebuildable,
        of_index: report.of_index,
        harmless: report.harmless,
        lost: report.lost,
    }
}
