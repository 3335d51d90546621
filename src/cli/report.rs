//! `granulo report`: any results as one page.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::Args;

use super::results::{Stored, read};
use super::{Ended, output, sources, trace, usage_error};
use crate::bench::result::Document;
use crate::error::Result;
use crate::io::write_atomically;
use crate::layout::Model;
use crate::plan::Plan;
use crate::report::bench::page::{self as bench_page, NamedRun};
use crate::report::{cache_page, page, plan_page, trace_page};
use crate::units::escape_path;

/// Create one self-contained HTML page from any results
///
/// Several surveys appear side by side; several benches or traces are overlaid. A plan (JSON from granulo plan) has a
/// page of its own, and so has a cache result (JSON from granulo cache).
#[derive(Debug, Args)]
pub(super) struct ReportArguments {
    /// Survey files, fsstats CSVs or published tables; or bench results, cache results, traces; or one plan
    #[arg(value_name = "RESULT", required = true)]
    results: Vec<PathBuf>,
    /// Write the page to this file
    #[arg(short, long, value_name = "FILE.html", required = true)]
    output: PathBuf,
}

impl ReportArguments {
    pub(super) fn run(self) -> Result<Ended> {
        self.check_output()?;
        let (mut plans, mut runs, mut studies, mut traces) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        // Surveys, or neither: then the error names them, not the mixture.
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
                None => others.push(path.clone()),
            }
        }
        match [plans.len(), runs.len(), studies.len(), traces.len()] {
            [0, 0, 0, 0] => self.surveys()?,
            [1, 0, 0, 0] if self.results.len() == 1 => self.plan(&plans[0])?,
            [0, found, 0, 0] if self.results.len() == found => self.benches(runs)?,
            [0, 0, found, 0] if self.results.len() == found => {
                write_atomically(&self.output, |out| cache_page::write(&studies, super::survey::now(), out))?;
            }
            [0, 0, 0, found] if self.results.len() == found => {
                write_atomically(&self.output, |out| trace_page::write(&traces, super::survey::now(), out))?;
            }
            [0, ..] => {
                sources::open_all(&others)?;
                return Err(usage_error("bench results, cache results and traces each have their own page")
                    .advise("give results of one kind only"));
            }
            _ => {
                sources::open_all(&others)?;
                return Err(
                    usage_error("a plan has its own page").advise("give one plan alone, or results without a plan")
                );
            }
        }
        output::note(&format!("wrote {}", escape_path(&self.output)));
        Ok(ended)
    }

    /// Refuses to replace a result by its own page.
    fn check_output(&self) -> Result<()> {
        let identity = |path: &Path| std::fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
        let output = identity(&self.output);
        match self.results.iter().find(|path| output.is_some() && identity(path) == output) {
            Some(path) => {
                Err(usage_error("the page would replace the result").at(path).advise("write it to another file"))
            }
            None => Ok(()),
        }
    }

    fn surveys(&self) -> Result<()> {
        let mut surveys = sources::open_all(&self.results)?;
        let names = sources::names(&surveys, &self.results);
        for (survey, name) in surveys.iter_mut().zip(names) {
            if !survey.origin.anonymous {
                survey.origin.name = Some(name);
            }
        }
        write_atomically(&self.output, |out| page::write(&surveys, super::survey::now(), out))
    }

    fn benches(&self, runs: Vec<(&Path, Document)>) -> Result<()> {
        let names = names_of(&runs.iter().map(|(path, _)| *path).collect::<Vec<_>>());
        let named = names.into_iter().zip(runs).map(|(name, (_, document))| NamedRun { name, document });
        let runs: Vec<NamedRun> = named.collect();
        write_atomically(&self.output, |out| bench_page::write(&runs, super::survey::now(), out))
    }

    fn plan(&self, plan: &Plan) -> Result<()> {
        let models = plan.models.iter().map(|row| Model::parse(&row.model)).collect::<Result<Vec<Model>>>()?;
        write_atomically(&self.output, |out| plan_page::write(plan, &models, super::survey::now(), out))
    }
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
