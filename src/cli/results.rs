//! Result files that are not sources of sizes: plans, bench results, cache studies, histories, and the status of
//! stores.

use std::path::Path;

use serde_json::Value;

use super::store::STORE_STATUS;
use crate::bench::result::{self, Document};
use crate::document::Unread;
use crate::error::{Error, Result};
use crate::io::read_bounded;
use crate::mrc::study::{self, Study};
use crate::plan::{self, Plan};
use crate::survey::history::{self, History};

/// A result with a table and a page of its own.
pub(super) enum Stored {
    Plan(Box<Plan>),
    Bench(Box<Document>),
    CacheStudy(Box<Study>),
    StoreStatus(Box<Value>),
    History(Box<History>),
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
    let status =
        || document.read("read the status of a store", STORE_STATUS, "write it again with granulo store status --json");
    let history = || document.read("read the history", history::SCHEMA, "write it again with granulo history -o");
    let stored = boxed(plan::read_document(&document), Stored::Plan)
        .or_else(|| boxed(study(), Stored::CacheStudy))
        .or_else(|| boxed(status(), Stored::StoreStatus))
        .or_else(|| boxed(history(), Stored::History))
        .or_else(|| boxed(result::read_document(&document), Stored::Bench));
    stored.transpose().map_err(|error: Error| error.at(path))
}

fn boxed<T>(read: Option<Result<T>>, stored: fn(Box<T>) -> Stored) -> Option<Result<Stored>> {
    read.map(|read| read.map(|value| stored(Box::new(value))))
}
