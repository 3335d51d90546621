//! Result files that are not sources of sizes: plans, bench results and cache studies.

use std::path::Path;

use crate::bench::result::{self, Document};
use crate::document::read_document;
use crate::error::{Error, Result};
use crate::io::read_bounded;
use crate::mrc::study::{self, Study};
use crate::plan::{self, Plan};

/// A result with a table and a page of its own.
pub(super) enum Stored {
    Plan(Box<Plan>),
    Bench(Box<Document>),
    CacheStudy(Box<Study>),
}

/// The result in a file; `None` for anything else, which may be a source.
pub(super) fn read(path: &Path) -> Result<Option<Stored>> {
    // The name of a published table is no file, and a pipe could not be read again as a source.
    if !path.is_file() {
        return Ok(None);
    }
    let text = read_bounded("read the result", path)?;
    if let Some(plan) = plan::read(&text).transpose().map_err(|error: Error| error.at(path))? {
        return Ok(Some(Stored::Plan(Box::new(plan))));
    }
    let advice = "write it again with granulo cache -o";
    let study: Option<Result<Study>> = read_document("read the cache study", study::SCHEMA, advice, &text);
    if let Some(study) = study.transpose().map_err(|error: Error| error.at(path))? {
        return Ok(Some(Stored::CacheStudy(Box::new(study))));
    }
    let document = result::read(&text).transpose().map_err(|error: Error| error.at(path))?;
    Ok(document.map(|document| Stored::Bench(Box::new(document))))
}
