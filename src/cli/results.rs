//! Results in files that are not sources of sizes: plans, benches and caches.

use std::path::Path;

use crate::bench::result::{self, Document};
use crate::document::read_document;
use crate::error::{Error, Result};
use crate::io::read_bounded;
use crate::mrc::study::{SCHEMA as CACHES, Study};
use crate::plan::{self, Plan};

/// A result with a table and a page of its own.
pub(super) enum Stored {
    Plan(Box<Plan>),
    Bench(Box<Document>),
    Caches(Box<Study>),
}

/// The result in a file; `None` for anything else, which may be a source.
pub(super) fn read(path: &Path) -> Result<Option<Stored>> {
    if !path.is_file() {
        return Ok(None);
    }
    let text = read_bounded("read the result", path)?;
    if let Some(plan) = plan::read(&text).transpose().map_err(|error: Error| error.at(path))? {
        return Ok(Some(Stored::Plan(Box::new(plan))));
    }
    let again = "write it again with granulo cache -o";
    let study: Option<Result<Study>> = read_document("read the study of caches", CACHES, again, &text);
    if let Some(study) = study.transpose().map_err(|error: Error| error.at(path))? {
        return Ok(Some(Stored::Caches(Box::new(study))));
    }
    let document = result::read(&text).transpose().map_err(|error: Error| error.at(path))?;
    Ok(document.map(|document| Stored::Bench(Box::new(document))))
}
