//! Result files that are not sources of sizes: plans, bench results and cache studies.

use std::path::Path;

use crate::bench::result::{self, Document};
use crate::document::Unread;
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
    let Some(document) = Unread::new(&text) else { return Ok(None) };
    let study = || document.read("read the cache study", study::SCHEMA, "write it again with granulo cache -o");
    let stored = boxed(plan::read_document(&document), Stored::Plan)
        .or_else(|| boxed(study(), Stored::CacheStudy))
        .or_else(|| boxed(result::read_document(&document), Stored::Bench));
    stored.transpose().map_err(|error: Error| error.at(path))
}

fn boxed<T>(read: Option<Result<T>>, stored: fn(Box<T>) -> Stored) -> Option<Result<Stored>> {
    read.map(|read| read.map(|value| stored(Box::new(value))))
}
