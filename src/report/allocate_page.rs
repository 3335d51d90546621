//! A page of allocations: one self-contained HTML file, with the space of single files under a layout as a curve.
//!
//! Its data are documents that `granulo allocate --json` prints (docs/SCHEMA.md); its script is `web/allocate.js`.

use std::io;

use serde::Serialize;
use serde_json::Value;

use super::page::{Part, Scripts};

const SCRIPTS: Scripts =
    Scripts { kind: "allocate", sections: "", details: "", script: include_str!("../../web/allocate.js") };

#[derive(Serialize)]
struct Page<'a> {
    allocations: &'a [Value],
}

/// The part of documents with allocations.
///
/// # Errors
/// When the data cannot be JSON.
pub(crate) fn part(allocations: &[Value]) -> io::Result<Part> {
    let title = match allocations {
        [only] => format!("Single files under {}", only["model"].as_str().unwrap_or_default()),
        several => format!("Single files under {} layouts", several.len()),
    };
    Part::new(title, &Page { allocations }, &SCRIPTS)
}
