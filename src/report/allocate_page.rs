//! A page of allocations: one self-contained HTML file, with the space of single files under a layout as a curve.
//!
//! Its data are documents that `granulo allocate --json` prints (docs/SCHEMA.md); its script is `web/allocate.js`.

use std::io;

use serde::Serialize;

use super::page::{Part, Scripts};

const SCRIPTS: Scripts =
    Scripts { kind: "allocate", sections: "", details: "", script: include_str!("../../web/allocate.js") };

#[derive(Serialize)]
struct Page<'a, A> {
    allocations: &'a [A],
}

/// The part of documents with allocations, which are of these models.
///
/// # Errors
/// When the data cannot be JSON.
pub(crate) fn part(models: &[&str], allocations: &[impl Serialize]) -> io::Result<Part> {
    let title = match models {
        [only] => format!("Single files under {only}"),
        several => format!("Single files under {} layouts", several.len()),
    };
    Part::new(title, &Page { allocations }, &SCRIPTS)
}
