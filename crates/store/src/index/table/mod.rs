//! Sorted tables: entries by key in blocks, written once and never changed (docs/FORMAT.md, section 10).
//!
//! | module | subject |
//! | --- | --- |
//! | [`block`] | keys in a block: shared prefixes, restarts, search |
//! | [`leaf`] | what a leaf has for a key |
//! | [`filter`] | which keys are not there, without a look at leaves |
//! | [`footer`] | the last block, and the classes before it |
//! | [`writer`], `heads` | entries in, a file out: temporary name, sync, rename; what levels above are made of |
//! | [`reader`], `verify` | opening, look-up; verification of the whole |
//! | [`scan`], `window` | entries in order, with read-ahead |
//! | [`cache`] | leaves in memory, for all tables of a store |
//!
//! A block is verified when it enters memory; one that does not hold is an error that names the table, never a wrong answer, but
//! look-ups do without a filter that does not hold. Tables
//! are a cache of the segments: the advice is always to rebuild the index.

pub(crate) mod block;
pub(crate) mod cache;
pub(crate) mod filter;
pub(crate) mod footer;
mod heads;
pub(crate) mod leaf;
pub(crate) mod reader;
pub(crate) mod scan;
mod verify;
mod window;
pub(crate) mod writer;

#[cfg(test)]
pub(crate) mod tests;

pub(crate) use cache::{BlockCache, DEFAULT_CACHE_BYTES};
pub(crate) use filter::KeyHash;
pub(crate) use reader::Table;
pub(crate) use scan::TableScan;
pub(crate) use window::{Reach, SharedWindow};
pub(crate) use writer::TableWriter;

use std::path::Path;

use crate::error::{Error, ErrorKind};

/// Directory of the index on its device.
pub(crate) const INDEX_DIRECTORY: &str = "index";

/// What all errors about a damaged index advise.
pub(crate) const REBUILD_ADVICE: &str = "rebuild the index with granulo store check --rebuild-index";

/// Path of table `number` on its device.
pub(crate) fn table_path(number: u64) -> String {
    format!("{INDEX_DIRECTORY}/{number:016x}.table")
}

/// The number of the table that a file in the index directory is; `None` of other files.
pub(crate) fn table_number(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".table")?;
    let sound = digits.len() == 16 && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    sound.then(|| u64::from_str_radix(digits, 16).ok())?
}

/// The error of table `number` being damaged.
fn damaged(number: u64, cause: impl Into<String>) -> Error {
    Error::new(ErrorKind::Corrupt, "read the sorted table", cause)
        .at(Path::new(&table_path(number)))
        .advise(REBUILD_ADVICE)
}
