//! `granulo compare`: then and now.

use std::path::PathBuf;

use clap::Args;

use super::output::refuse_to_replace;
use super::{Ended, output, sources};
use crate::error::Result;
use crate::report::compare::write_comparison;
use crate::report::compare_page;
use crate::survey::compare::compare;

/// Compare populations: what grew, cumulative shares, deciles, and distances
///
/// Two surveys of one tree begin with what came and went: files and bytes in all and by size, and the directories,
/// owners and extensions that grew or shrank most. The distance is that of Kolmogorov and Smirnov: the largest
/// difference between two cumulative curves, by files and by bytes.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  granulo compare monday.json tuesday.json\n  granulo compare vu-1984 vu-2005 usr.json"
)]
pub(super) struct CompareArguments {
    /// Two or more survey files, lists of other programs (as granulo show takes them) or published tables; one may be -
    /// for standard input
    #[arg(value_name = "SOURCE", required = true, num_args = 2..)]
    sources: Vec<PathBuf>,
    /// Write the comparison to this file, as JSON
    #[arg(short, long, value_name = "FILE.json")]
    output: Option<PathBuf>,
    /// Print the comparison as JSON
    #[arg(long)]
    json: bool,
    /// Write a self-contained HTML page of the comparison to this file
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
}

impl CompareArguments {
    pub(super) fn run(self) -> Result<Ended> {
        refuse_to_replace(&self.sources, self.output.iter().chain(&self.report))?;
        let surveys = sources::open_all(&self.sources)?;
        let names = sources::names(&surveys, &self.sources);
        let comparison = compare(&surveys, &names);
        if let Some(path) = &self.output {
            output::write_json(path, &comparison)?;
        }
        if let Some(page) = &self.report {
            output::write_page(page, |out| compare_page::part(&comparison)?.write(super::now(), out))?;
        }
        if self.json {
            output::print_json(&comparison)
        } else {
            output::print(|out| write_comparison(&comparison, out))
        }
    }
}
