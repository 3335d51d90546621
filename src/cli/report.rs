//! `granulo report`: any results as one page.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::Value;

use super::output::refuse_to_replace;
use super::results::{Stored, read};
use super::{Ended, output, sources, trace};
use crate::bench::result::Document;
use crate::error::{Error, Result};
use crate::layout::Model;
use crate::mrc::study::Study;
use crate::plan::Plan;
use crate::report::bench::page::{self as bench_page, NamedRun};
use crate::report::fields::Fields;
use crate::report::page::Part;
use crate::report::{
    allocate_page, cache_page, check_page, compare_page, fields_page, history_page, page, plan_page, store_page,
    trace_page,
};
use crate::survey::Survey;
use crate::survey::compare::Comparison;
use crate::survey::history::History;
use crate::trace::summary::Document as TraceDocument;
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
        let (results, ended) = Results::read(&self.results)?;
        let parts = self.parts(results)?;
        output::write_page(&self.output, |out| match &parts[..] {
            [only] => only.write(super::now(), out),
            several => page::write_together(several, self.results.len(), super::now(), out),
        })?;
        Ok(ended)
    }

    /// The parts of the page, in order.
    fn parts(&self, results: Results<'_>) -> Result<Vec<Part>> {
        let mut parts = Vec::new();
        for comparison in &results.comparisons {
            parts.push(self.made(compare_page::part(comparison))?);
        }
        if !results.others.is_empty() {
            parts.push(self.surveys(&results.others)?);
        }
        if !results.histories.is_empty() {
            parts.push(self.made(history_page::part(&results.histories.iter().collect::<Vec<_>>()))?);
        }
        for plan in &results.plans {
            parts.push(self.made(plan_page::part(plan, &models_of(plan)?))?);
        }
        if !results.runs.is_empty() {
            parts.push(self.made(bench_page::part(&named(results.runs)))?);
        }
        if !results.traces.is_empty() {
            parts.push(self.made(trace_page::part(&results.traces))?);
        }
        if !results.studies.is_empty() {
            parts.push(self.made(cache_page::part(&results.studies))?);
        }
        if !results.stores.is_empty() {
            parts.push(self.made(store_page::part(&results.stores))?);
        }
        for check in &results.checks {
            parts.push(self.made(check_page::part(check))?);
        }
        if !results.allocations.is_empty() {
            let models: Vec<&str> =
                results.allocations.iter().map(|it| it["model"].as_str().unwrap_or_default()).collect();
            parts.push(self.made(allocate_page::part(&models, &results.allocations))?);
        }
        for (path, document) in &results.without_page {
            parts.push(self.made(fields_page::part(&escape_path(path), document))?);
        }
        Ok(parts)
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

/// Results by kind, in the order in which a page has them.
#[derive(Default)]
struct Results<'p> {
    comparisons: Vec<Comparison>,
    /// Surveys, or nothing that is known: then the error names them.
    others: Vec<PathBuf>,
    histories: Vec<History>,
    plans: Vec<Plan>,
    runs: Vec<(&'p Path, Document)>,
    traces: Vec<(TraceDocument, Vec<String>)>,
    studies: Vec<Study>,
    stores: Vec<Value>,
    checks: Vec<Value>,
    allocations: Vec<Value>,
    /// Without a page of their own.
    without_page: Vec<(&'p Path, Fields)>,
}

impl<'p> Results<'p> {
    /// Reads the results; [`Ended::Amiss`] if a part of a trace could not be read.
    fn read(paths: &'p [PathBuf]) -> Result<(Results<'p>, Ended)> {
        let mut results = Results::default();
        let mut ended = Ended::Well;
        for path in paths {
            if let Some(trace) = trace::whole(path)? {
                results.traces.push(trace.page);
                ended = ended.and(trace.is_sound);
                continue;
            }
            match read(path)? {
                Some(Stored::Plan(plan)) => results.plans.push(*plan),
                Some(Stored::Bench(document)) => results.runs.push((path.as_path(), *document)),
                Some(Stored::CacheStudy(study)) => results.studies.push(*study),
                Some(Stored::StoreStatus(status)) => results.stores.push(status.read),
                Some(Stored::History(history)) => results.histories.push(*history),
                Some(Stored::Allocations(document)) => results.allocations.push(document.read),
                Some(Stored::Comparison(comparison)) => results.comparisons.push(comparison.read),
                Some(Stored::StoreCheck(check)) => results.checks.push(check.read),
                Some(Stored::Other(document)) => results.without_page.push((path.as_path(), document.read)),
                None => results.others.push(path.clone()),
            }
        }
        Ok((results, ended))
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
