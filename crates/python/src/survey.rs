//! Surveys, plans and comparisons: the documents of `--json`, as text that the package turns into Python data; and the
//! `granulo` command itself.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use granulo::layout::Model;
use granulo::plan::{About, Request as PlanRequest};
use granulo::progress::Progress;
use granulo::survey::file::{Detail, format_time, read, write};
use granulo::survey::run::{Request, take};
use granulo::survey::{Survey, source};
use granulo_core::error::{Error, ErrorKind, Result};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use serde::Serialize;

use crate::errors::OrRaise;

fn json(document: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(document).map_err(|error| Error::new(ErrorKind::Io, "write the result", error.to_string()))
}

/// A survey in full, and the warnings of taking it.
#[pyfunction]
pub(crate) fn survey<'py>(
    py: Python<'py>,
    roots: Vec<PathBuf>,
    anonymous: bool,
    threads: Option<usize>,
) -> PyResult<(Bound<'py, PyBytes>, Vec<String>)> {
    let mut request = Request::new(roots);
    request.anonymous = anonymous;
    request.threads = threads.unwrap_or(request.threads).max(1);
    let progress = Arc::new(Progress::default());
    let working = Arc::clone(&progress);
    let work = std::thread::spawn(move || {
        let outcome = take(request, None, &working)?;
        let mut text = Vec::new();
        let written = write(&outcome.survey, Detail::Full, &mut text);
        written.map_err(|error| Error::new(ErrorKind::Io, "write the survey", error.to_string()))?;
        Ok((text, outcome.warnings.iter().map(ToString::to_string).collect()))
    });
    // Ctrl-C ends a survey, which may take hours.
    while !work.is_finished() {
        py.detach(|| std::thread::sleep(std::time::Duration::from_millis(5)));
        if let Err(interrupted) = py.check_signals() {
            progress.stop();
            let _ = py.detach(|| work.join());
            return Err(interrupted);
        }
    }
    let ended = work.join().unwrap_or_else(|_| Err(Error::new(ErrorKind::Io, "survey", "a thread ended unexpectedly")));
    let (text, warnings) = ended.or_raise(py)?;
    Ok((PyBytes::new(py, &text), warnings))
}

/// A source: the text of a survey, or a name or path.
#[derive(FromPyObject)]
pub(crate) enum Source {
    Text(Vec<u8>),
    Path(PathBuf),
}

impl Source {
    fn open(&self) -> Result<Survey> {
        match self {
            Source::Text(text) => read(text, Path::new("survey")),
            Source::Path(path) => Ok(source::open(path)?.survey),
        }
    }
}

/// A plan, as `granulo plan --json` prints it.
#[pyfunction]
pub(crate) fn plan<'py>(
    py: Python<'py>,
    of: Source,
    models: Vec<String>,
    cutoffs: Vec<u64>,
    fast_bytes: Option<u64>,
) -> PyResult<Bound<'py, PyBytes>> {
    let planned = py.detach(|| {
        let survey = of.open()?;
        let models = models.iter().map(|model| Model::parse(model)).collect::<Result<Vec<_>>>()?;
        let mut request = PlanRequest::new(models);
        (request.cutoffs, request.fast_device_bytes) = (cutoffs, fast_bytes);
        let origin = &survey.origin;
        let about = About {
            name: origin.name.clone(),
            host: origin.host().map(str::to_owned),
            taken_at: origin.taken_at.map(format_time),
            facts: origin.facts.clone(),
            notes: Vec::new(),
        };
        json(&granulo::plan::plan(&survey.population(), about, &request)?)
    });
    Ok(PyBytes::new(py, &planned.or_raise(py)?))
}

/// A comparison, as `granulo compare --json` prints it.
#[pyfunction]
pub(crate) fn compare<'py>(py: Python<'py>, of: Vec<Source>, names: Vec<String>) -> PyResult<Bound<'py, PyBytes>> {
    let compared = py.detach(|| {
        let surveys = of.iter().map(Source::open).collect::<Result<Vec<_>>>()?;
        json(&granulo::survey::compare::compare(&surveys, &names))
    });
    Ok(PyBytes::new(py, &compared.or_raise(py)?))
}

/// Runs the `granulo` command with these arguments, the name first; returns its exit status. `started_by`: what runs
/// the command with further arguments in another process.
#[pyfunction]
pub(crate) fn command(py: Python<'_>, arguments: Vec<OsString>, started_by: Vec<OsString>) -> u8 {
    py.detach(|| granulo::cli::run(arguments, started_by))
}
