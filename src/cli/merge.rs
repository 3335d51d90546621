//! `granulo merge`: add surveys of disjoint trees, and the shards of one survey.

use std::path::PathBuf;

use clap::Args;

use super::output::refuse_to_replace;
use super::shard::{self, Opened};
use super::{Ended, output};
use crate::error::Result;
use crate::io::write_atomically;
use crate::report::{page, terminal};
use crate::survey::file::{Detail, write};
use crate::survey::merge::{merge, overlapping_roots};

/// Merge surveys of disjoint trees: the result equals one survey of them all
///
/// A file hard-linked from two of the trees counts in both; ages stay relative to the time of each survey. Shards of
/// one survey (granulo survey --shard) become that survey exactly, with files linked from several of them counted once.
#[derive(Debug, Args)]
pub(super) struct MergeArguments {
    /// Survey files, shards of a survey, or fsstats CSVs
    #[arg(value_name = "SURVEY", required = true)]
    sources: Vec<PathBuf>,
    /// Write the merged survey to this file
    #[arg(short, long, value_name = "FILE.json")]
    output: Option<PathBuf>,
    /// Print the merged survey as JSON instead of a summary
    #[arg(long)]
    json: bool,
    /// Write a self-contained HTML page of the merged survey to this file
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
}

impl MergeArguments {
    pub(super) fn run(self) -> Result<Ended> {
        refuse_to_replace(&self.sources, self.output.iter().chain(&self.report))?;
        let Opened { mut surveys, only_shards, is_whole } = shard::open_all(&self.sources)?;
        for root in overlapping_roots(&surveys) {
            output::warn(&format!("{root} is in more than one survey: its files count twice"));
        }
        let whole = if only_shards { surveys.remove(0) } else { merge(surveys)? };
        if let Some(path) = &self.output {
            write_atomically(path, |out| write(&whole, Detail::Full, out))?;
        }
        if let Some(path) = &self.report {
            output::write_page(path, |out| page::write(std::slice::from_ref(&whole), super::now(), out))?;
        }
        let ended = if self.json {
            output::print(|out| write(&whole, Detail::Full, out))
        } else {
            output::print(|out| terminal::write_summary(&whole, out))
        };
        Ok(ended?.and(is_whole))
    }
}
