//! `granulo store scrub`: verify every byte, including the index, and repair from redundancy.

use clap::Args;
use serde::Serialize;

use super::completeness::emit;
use super::problems::{ProblemRecord, line};
use super::progress::maintenance_words;
use super::{Ended, StoreToWrite, output};
use crate::cli::output::DocumentArguments;
use crate::cli::progress::during;
use crate::cli::signals;
use crate::error::Result;
use crate::store::{Problem, ScrubOptions};
use crate::units::{format_count, format_counted, format_size, parse_size};

/// Problems that are kept for JSON; further ones are only counted.
const KEPT: usize = 10_000;

/// Verify every copy of every record, stripe unit and index table, and repair from redundancy
///
/// Opens the store for writing. Rebuilds the index from the segments if it is damaged on every copy. After Ctrl-C or a
/// crash, the next scrub resumes where this one stopped; granulo store status shows when the last one finished. Run it
/// regularly: only a scrub finds damage in data that nobody reads, while a good copy still exists. The exit status is 1
/// if anything was found, or if a device that should be in service is not.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  granulo store scrub /srv/s --rate 100MiB\n  granulo store scrub /srv/s --restart --json"
)]
pub(super) struct ScrubArguments {
    #[command(flatten)]
    at: StoreToWrite,
    /// Limit the read rate, in bytes per second
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    rate: Option<u64>,
    /// Start from the beginning, ignoring an interrupted scrub
    #[arg(long)]
    restart: bool,
    #[command(flatten)]
    pub(super) document: DocumentArguments,
}

#[derive(Serialize)]
struct ScrubDocument {
    schema: &'static str,
    complete: bool,
    partial: bool,
    verified_bytes: u64,
    index_bytes: u64,
    index_rebuilt: bool,
    found: u64,
    repaired: u64,
    problems: Vec<ProblemRecord>,
}

impl ScrubArguments {
    pub(super) fn run(self) -> Result<Ended> {
        let how = self.at.options()?;
        let store = self.at.open_quietly(&how)?;
        super::say_what_is_wrong(&store);
        let progress = signals::progress()?;
        let options = ScrubOptions { bytes_per_second: self.rate, resume: !self.restart };
        let mut problems = Vec::new();
        let mut printed = Ok(Ended::Well);
        let mut found = |problem: &Problem, is_repaired: bool| {
            if self.document.is_wanted() && problems.len() < KEPT {
                problems.push(ProblemRecord::new(problem, Some(is_repaired)));
            }
            if !self.document.json {
                let line = output::print(|out| writeln!(out, "{}", line(problem, is_repaired)));
                if line.is_err() {
                    printed = line;
                }
            }
        };
        let scrubbed = during(false, &progress, maintenance_words, || {
            store.scrub_and_rebuild(&how, options, &mut found, &progress)
        });
        let (store, report) = scrubbed?;
        if report.is_index_lost {
            super::say_completeness(&store);
        }
        emit(&self.document, || ScrubDocument {
            schema: "granulo/store-scrub/1",
            complete: report.is_complete,
            partial: report.is_partial,
            verified_bytes: report.verified_bytes,
            index_bytes: report.index_bytes,
            index_rebuilt: report.is_index_lost,
            found: report.found,
            repaired: report.repaired,
            problems,
        })?;
        // The document has the problems that could not be printed.
        printed?;
        if !self.document.json {
            let partial = if report.is_partial { "; not all devices were in service" } else { "" };
            let end = if report.is_complete { "" } else { "; interrupted, the next scrub resumes here" };
            let verified = format_size(report.verified_bytes.into());
            let index = format_size(report.index_bytes.into());
            let (found, repaired) =
                (format_counted(report.found, "problem", "problems"), format_count(report.repaired.into()));
            output::print_words(&format!(
                "{verified} verified, and {index} of the index: {found}, {repaired} repaired{partial}{end}"
            ))?;
        }
        let is_well = report.is_complete && !report.is_partial && report.found == 0;
        Ok(if is_well { Ended::Well } else { Ended::Amiss })
    }
}
