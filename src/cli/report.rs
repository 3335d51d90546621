//! `granulo report`: any results as one page.

use std::path::PathBuf;

use clap::Args;

use super::{Ended, output, sources};
use crate::error::Result;
use crate::io::write_atomically;
use crate::report::page;

/// Make one page of any results, to look at without a network
///
/// Several surveys appear side by side.
#[derive(Debug, Args)]
pub(super) struct ReportArguments {
    /// Survey files, fsstats CSVs or published tables
    #[arg(value_name = "RESULT", required = true)]
    results: Vec<PathBuf>,
    /// Write the page here
    #[arg(short, long, value_name = "FILE.html", required = true)]
    output: PathBuf,
}

impl ReportArguments {
    pub(super) fn run(self) -> Result<Ended> {
        let mut surveys = sources::open_all(&self.results)?;
        let names = sources::names(&surveys, &self.results);
        for (survey, name) in surveys.iter_mut().zip(names) {
            if !survey.origin.anonymous {
                survey.origin.name = Some(name);
            }
        }
        write_atomically(&self.output, |out| page::write(&surveys, super::survey::now(), out))?;
        output::note(&format!("wrote {}", crate::units::escape_path(&self.output)));
        Ok(Ended::Well)
    }
}
