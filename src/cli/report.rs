//! `granulo report`: any results as one page.

use std::path::{Path, PathBuf};

use clap::Args;

use super::output::refuse_to_replace;
use super::results::{Stored, read};
use super::{Ended, output, sources, trace};
use crate::bench::result::Document;
use crate::error::{Error, Result};
use crate::layout::Model;
use crate::plan::Plan;
use crate::report::bench::page::{self as bench_page, NamedRun};
use crate::report::page::Part;
use crate::report::{
    allocate_page, cache_page, check_page, compare_page, fields_page, history_page, page, plan_page, store_page,
    trace_page,
};
use crate::survey::Survey;
use crate::units::escape_path;

/// Create one self-contained HTML page from any results
///
/// Several surveys appear side by side; several benches or traces are overlaid. Results of different kinds, and several
/// plans, become one page with a contents list.
#[derive(Debug, Args)]
pub(super) struct ReportArguments {
    /// Survey files, fsstats CSVs, published tables; plans, histories, bench results, cache results, the status of
    /// stores and every other result (JSON); traces
    #[arg(value_name = "RESULT", required = true)]
    results: Vec<PathBuf>,
    /// Write the page to this file
    #[arg(short, long, value_name = "FILE.html", required = true)]
    output: PathBuf,
}

impl ReportArguments {
    pub(super) fn run(self) -> Result<Ended> {
        refuse_to_replace(&self.results, [&self.output])?;
        let (mut plans, mut runs, mut studies, mut traces) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (mut stores, mut histories, mut allocations) = (Vec::new(), Vec::new(), Vec::new());
        let (mut comparisons, mut checks, mut without_page) = (Vec::new(), Vec::new(), Vec::new());
        // Surveys, or nothing that is known: then the error names them.
        let mut others = Vec::new();
        let mut ended = Ended::Well;
        for path in &self.results {
            if let Some(trace) = trace::whole(path)? {
                traces.push(trace.page);
                ended = ended.and(trace.is_sound);
                continue;
            }
            match read(path)? {
                Some(Stored::Plan(plan)) => plans.push(*plan),
                Some(Stored::Bench(document)) => runs.push((path.as_path(), *document)),
                Some(Stored::CacheStudy(study)) => studies.push(*study),
                Some(Stored::StoreStatus(status)) => stores.push(status.read),
                Some(Stored::History(history)) => histories.push(*history),
                Some(Stored::Allocations(document)) => allocations.push(document.read),
                Some(Stored::Comparison(comparison)) => comparisons.push(comparison.read),
                Some(Stored::StoreCheck(check)) => checks.push(check.read),
                Some(Stored::Other(document)) => without_page.push((path.as_path(), document.read)),
                None => others.push(path.clone()),
            }
        }
        let mut parts = Vec::new();
        for comparison in &comparisons {
            parts.push(self.made(compare_page::part(comparison))?);
        }
        if !others.is_empty() {
            parts.push(self.surveys(&others)?);
        }
        if !histories.is_empty() {
            parts.push(self.made(history_page::part(&histories.iter().collect::<Vec<_>>()))?);
        }
        for plan in &plans {
            parts.push(self.made(plan_page::part(plan, &models_of(plan)?))?);
        }
        if !runs.is_empty() {
            parts.push(self.made(bench_page::part(&named(runs)))?);
        }
        if !traces.is_empty() {
            parts.push(self.made(trace_page::part(&traces))?);
        }
        if !studies.is_empty() {
            parts.push(self.made(cache_page::part(&studies))?);
        }
        if !stores.is_empty() {
            parts.push(self.made(store_page::part(&stores))?);
        }
        for check in &checks {
            parts.push(self.made(check_page::part(check))?);
        }
        if !allocations.is_empty() {
            let models: Vec<&str> = allocations.iter().map(|it| it["model"].as_str().unwrap_or_default()).collect();
            parts.push(self.made(allocate_page::part(&models, &allocations))?);
        }
        for (path, document) in &without_page {
            parts.push(self.made(fields_page::part(&escape_path(path), document))?);
        }
        output::write_page(&self.output, |out| match &parts[..] {
            [only] => only.write(super::now(), out),
            several => page::write_together(several, self.results.len(), super::now(), out),
        })?;
        Ok(ended)
    }

    /// The surveys side by side.
    fn surveys(&self, paths: &[PathBuf]) -> Result<Part> {
        let surveys = sources::open_all(paths)?;
        let names = sources::names(&surveys, paths);
        self.made(side_by_side(surveys, names))
    }

    fn made(&self, part: std::io::Result<Part>) -> Result<Part> {
        part.map_err(|error| Error::io("write", &self.output, error))
    }
}

/// Writes the page of one result that is no survey.
///
/// # Errors
/// Any error of reading it again or writing the page.
pub(super) fn write_report(result: &Path, page: &Path) -> Result<Ended> {
    ReportArguments { results: vec![result.to_owned()], output: page.to_owned() }.run()
}

/// Surveys under these names, side by side.
fn side_by_side(mut surveys: Vec<Survey>, names: Vec<String>) -> std::io::Result<Part> {
    for (survey, name) in surveys.iter_mut().zip(names) {
        if !survey.origin.anonymous {
            survey.origin.name = Some(name);
        }
    }
    page::part(&surveys)
}

fn named(runs: Vec<(&Path, Document)>) -> Vec<NamedRun> {
    let names = names_of(&runs.iter().map(|(path, _)| *path).collect::<Vec<_>>());
    names.into_iter().zip(runs).map(|(name, (_, document))| NamedRun { name, document }).collect()
}

fn models_of(plan: &Plan) -> Result<Vec<Model>> {
    plan.models.iter().map(|row| Model::parse(&row.model)).collect()
}

/// Names of runs: those of their files, and whole paths where these are equal.
fn names_of(paths: &[&Path]) -> Vec<String> {
    let stem = |path: &Path| path.file_stem().unwrap_or(path.as_os_str()).to_owned();
    let name = |path: &&Path| {
        let alike = paths.iter().filter(|other| stem(other) == stem(path)).count();
        escape_path(&if alike > 1 { path.to_path_buf() } else { stem(path).into() })
    };
    paths.iter().map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_called_what_tells_them_apart() {
        let paths = ["a/create.json", "b/create.json", "c/pack.json"].map(Path::new);
        assert_eq!(names_of(&paths), ["a/create.json", "b/create.json", "pack"]);
    }
}
