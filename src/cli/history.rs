//! `granulo history`: many surveys of one tree.

use std::path::{Path, PathBuf};

use clap::Args;

use super::output::refuse_to_replace;
use super::{Ended, output, usage_error};
use crate::document::Unread;
use crate::error::{Error, Result};
use crate::io::read_bounded;
use crate::report::history::{write_csv, write_history};
use crate::report::history_page;
use crate::survey::history::Collected;
use crate::survey::{file, source};
use crate::units::escape_path;

/// Show how a tree grows, from many surveys of it, and when its file system will be full
///
/// Surveys of several trees are told apart by their names, roots and hosts; anonymous ones have none, and are listed
/// without growth. Growth is the median of the slopes between all pairs of surveys; a forecast uses that of the last 30
/// days if these have at least three surveys.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  granulo history /var/lib/granulo --report growth.html\n  granulo history home-*.json --csv > home.csv"
)]
pub(super) struct HistoryArguments {
    /// Survey files, and directories with survey files (*.json, not below)
    #[arg(value_name = "SURVEY", required = true)]
    surveys: Vec<PathBuf>,
    /// Write the history to this file, as JSON
    #[arg(short, long, value_name = "FILE.json")]
    output: Option<PathBuf>,
    /// Write a self-contained HTML page with its curves to this file
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
    /// Print the history as CSV: a line for each survey
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    /// Print the history as JSON
    #[arg(long)]
    json: bool,
}

impl HistoryArguments {
    pub(super) fn run(self) -> Result<Ended> {
        let (mut collected, mut found, mut ended) = (Collected::default(), Vec::new(), Ended::Well);
        let mut is_any_read = false;
        for path in &self.surveys {
            if !path.is_dir() {
                add(&mut collected, path)?;
                is_any_read = true;
                found.push(path.clone());
                continue;
            }
            for path in surveys_in(path)? {
                // What else is in a directory is not asked for.
                match add(&mut collected, &path) {
                    Ok(()) => is_any_read = true,
                    Err(error) => {
                        output::warn(&error.to_string());
                        ended = Ended::Amiss;
                    }
                }
                found.push(path);
            }
        }
        refuse_to_replace(&found, self.report.iter().chain(&self.output))?;
        if !is_any_read {
            return Err(usage_error("there is no survey").advise("take one with: granulo survey PATH -o DIR/FILE.json"));
        }
        let history = collected.history();
        if let Some(path) = &self.output {
            output::write_json(path, &history)?;
        }
        if let Some(page) = &self.report {
            output::write_page(page, |out| history_page::write(&history, super::now(), out))?;
        }
        match () {
            () if self.json => output::print_json(&history)?,
            () if self.csv => output::print_document(|out| write_csv(&history, out))?,
            () => output::print(|out| write_history(&history, out))?,
        };
        Ok(ended)
    }
}

fn add(collected: &mut Collected, path: &Path) -> Result<()> {
    let survey = source::open(path)?.survey;
    if !survey.origin.complete {
        let cause = "it is of a part of the tree: it was interrupted, or shards are missing";
        return Err(usage_error(cause).at(path).advise("leave it out, or take it again"));
    }
    if collected.add(&survey, escape_path(path)) {
        return Ok(());
    }
    Err(usage_error("it does not say when it was taken").at(path).advise("give surveys by granulo survey -o FILE"))
}

/// The files in a directory that are surveys, by their schema; sorted by name.
fn surveys_in(directory: &Path) -> Result<Vec<PathBuf>> {
    let fail = |error| Error::io("list", directory, error);
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(fail)? {
        let path = entry.map_err(fail)?.path();
        if path.extension().is_some_and(|extension| extension == "json") && path.is_file() {
            paths.push(path);
        }
    }
    paths.sort();
    paths.retain(|path| {
        // One that cannot be read, or is truncated, is reported when it is added.
        let Ok(text) = read_bounded("read the survey", path) else { return true };
        let is_cut = || file::looks_like(&text) && serde_json::from_slice::<serde::de::IgnoredAny>(&text).is_err();
        Unread::new(&text).map_or_else(is_cut, |document| document.is_of("granulo/survey/1"))
    });
    Ok(paths)
}
