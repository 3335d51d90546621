//! Sorted tables: entries by key in blocks, written once and never changed (docs/FORMAT.md, section 10).
//!
//! | module | subject |
//! | --- | --- |
//! | [`block`] | keys in a block: shared prefixes, restarts, search |
//! | [`leaf`] | the value of a key in a leaf |
//! | [`filter`] | excluding keys without reading leaves |
//! | [`footer`] | the last block, and the classes before it |
//! | [`writer`], `heads` | writing a table: temporary name, sync, rename; the input of upper levels |
//! | [`reader`], `verify` | opening and look-up; verification of a whole table |
//! | [`scan`], `window` | entries in order, with read-ahead |
//! | [`cache`] | leaves in memory, for all tables of a store |
//!
//! A block is verified when it enters memory; an invalid one is an error that names the table, never a wrong answer.
//! Look-ups continue without an invalid filter. Tables are a cache of the segments: the advice is always to rebuild the
//! index.

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

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::devices::device::{Device, DeviceFile, Mode};
use crate::error::{Error, ErrorKind};

pub(crate) use crate::format::names::INDEX_DIRECTORY;

/// The advice of all errors about a damaged index.
pub(crate) const REBUILD_ADVICE: &str = "rebuild the index with granulo store check --rebuild-index";

/// Path of table `number` on its device.
pub(crate) fn table_path(number: u64) -> String {
    format!("{INDEX_DIRECTORY}/{number:016x}.table")
}

/// The number of a table, from its file name in the index directory; `None` for other files.
pub(crate) fn table_number(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".table")?;
    let sound = digits.len() == 16 && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    sound.then(|| u64::from_str_radix(digits, 16).ok())?
}

/// Creates a file with a temporary name, replacing that of a writer that died.
///
/// # Errors
/// Errors from creating a file in the index directory.
fn create_temporary(device: &dyn Device, path: &str) -> io::Result<Arc<dyn DeviceFile>> {
    match device.open(path, Mode::Create) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            device.remove(path)?;
            device.open(path, Mode::Create)
        }
        result => result,
    }
}

/// The error that table `number` is damaged.
fn damaged(number: u64, cause: impl Into<String>) -> Error {
    Error::new(ErrorKind::Corrupt, "read the sorted table", cause)
        .at(Path::new(&table_path(number)))
        .advise(REBUILD_ADVICE)
}
