//! Result files that are not sources of sizes: plans, comparisons, bench results, cache studies, histories, checks and
//! the status of stores, and every other document of granulo.

use std::path::Path;

use serde_json::Value;

use super::allocate::ALLOCATIONS;
use super::store::{STORE_CHECK, STORE_STATUS};
use crate::bench::result::{self, Document};
use crate::document::Unread;
use crate::error::{Error, ErrorKind, Result};
use crate::io::read_bounded;
use crate::mrc::study::{self, Study};
use crate::plan::{self, Plan};
use crate::report::fields::Fields;
use crate::survey::compare::{self, Comparison};
use crate::survey::history::{self, History};
use crate::units::escape;

/// Documents that are read as sources.
const SOURCES: [&str; 3] = ["granulo/survey/1", "granulo/partial/1", "granulo/checkpoint/1"];

/// The major version of all documents that have no report of their own.
const VERSION: &str = "1";

/// A result with a table and a page of its own.
pub(super) enum Stored {
    Plan(Box<Plan>),
    Bench(Box<Document>),
    CacheStudy(Box<Study>),
    StoreStatus(Box<Written<Value>>),
    StoreCheck(Box<Written<Value>>),
    Comparison(Box<Written<Comparison>>),
    History(Box<History>),
    Allocations(Box<Written<Value>>),
    /// A document that has no report of its own.
    Other(Box<Written<Fields>>),
}

/// A document as it was written, and what was read from it.
pub(super) struct Written<T> {
    pub(super) text: Vec<u8>,
    pub(super) read: T,
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
    let written = |read: Option<Result<Value>>| read.map(|read| read.map(|read| Written { text: text.clone(), read }));
    let status = || {
        let advice = "write it again with granulo store status --json";
        written(document.read("read the status of a store", STORE_STATUS, advice))
    };
    let check = || written(document.read("read the check", STORE_CHECK, "write it again with granulo store check -o"));
    let comparison = || {
        let read = compare::read_document(&document)?;
        Some(read.map(|read| Written { text: text.clone(), read }))
    };
    let history = || document.read("read the history", history::SCHEMA, "write it again with granulo history -o");
    let allocations =
        || written(document.read("read the allocations", ALLOCATIONS, "write them again with granulo allocate -o"));
    let stored = boxed(plan::read_document(&document), Stored::Plan)
        .or_else(|| boxed(study(), Stored::CacheStudy))
        .or_else(|| boxed(status(), Stored::StoreStatus))
        .or_else(|| boxed(check(), Stored::StoreCheck))
        .or_else(|| boxed(comparison(), Stored::Comparison))
        .or_else(|| boxed(history(), Stored::History))
        .or_else(|| boxed(result::read_document(&document), Stored::Bench))
        .or_else(|| boxed(allocations(), Stored::Allocations))
        .or_else(|| other(&document, &text));
    stored.transpose().map_err(|error: Error| error.at(path))
}

/// A document of granulo that is no source of sizes either.
fn other(document: &Unread<'_>, text: &[u8]) -> Option<Result<Stored>> {
    let version = document.version()?;
    if SOURCES.iter().any(|schema| document.is_of(schema)) {
        return None;
    }
    if version != VERSION {
        return Some(Err(Error::newer_version("read the result", escape(version.as_bytes()), VERSION)));
    }
    let read = Fields::read(text).map(|fields| Stored::Other(Box::new(Written { text: text.to_vec(), read: fields })));
    Some(read.map_err(|error| Error::new(ErrorKind::Corrupt, "read the result", error.to_string())))
}

fn boxed<T>(read: Option<Result<T>>, stored: fn(Box<T>) -> Stored) -> Option<Result<Stored>> {
    read.map(|read| read.map(|value| stored(Box::new(value))))
}
