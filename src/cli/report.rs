//! `granulo report`: any results as one page.

use std::path::{Path, PathBuf};

use clap::Args;

use super::{Ended, output, sources, usage_error};
use crate::error::Result;
use crate::io::{read_bounded, write_atomically};
use crate::layout::Model;
use crate::plan::{self, Plan};
use crate::report::{page, plan_page};

/// Make one page of any results, to look at without a network
///
/// Several surveys appear side by side; a plan (the JSON of granulo plan) has a page of its own.
#[derive(Debug, Args)]
pub(super) struct ReportArguments {
    /// Survey files, fsstats CSVs or published tables; or one plan
    #[arg(value_name = "RESULT", required = true)]
    results: Vec<PathBuf>,
    /// Write the page here
    #[arg(short, long, value_name = "FILE.html", required = true)]
    output: PathBuf,
}

impl ReportArguments {
    pub(super) fn run(self) -> Result<Ended> {
        let mut plans = Vec::new();
        for path in &self.results {
            plans.extend(read_plan(path)?);
        }
        match plans.as_slice() {
            [] => self.surveys()?,
            [plan] if self.results.len() == 1 => self.plan(plan)?,
            _ => {
                return Err(
                    usage_error("a plan has a page of its own").advise("give one plan, or surveys without plans")
                );
            }
        }
        output::note(&format!("wrote {}", crate::units::escape_path(&self.output)));
        Ok(Ended::Well)
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

    fn plan(&self, plan: &Plan) -> Result<()> {
        let models = plan.models.iter().map(|row| Model::parse(&row.model)).collect::<Result<Vec<Model>>>()?;
        write_atomically(&self.output, |out| plan_page::write(plan, &models, super::survey::now(), out))
    }
}

/// The plan that a file holds; `None` for anything else, which is left to be read as a source.
fn read_plan(path: &Path) -> Result<Option<Plan>> {
    if !path.is_file() {
        return Ok(None);
    }
    let text = read_bounded("read the result", path)?;
    plan::read(&text).transpose().map_err(|error| error.at(path))
}
