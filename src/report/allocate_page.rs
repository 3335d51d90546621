//! A page of allocations: one self-contained HTML file, with the space of single files under a layout as a curve.
//!
//! Its data are documents that `granulo allocate --json` prints (docs/SCHEMA.md); its script is `web/allocate.js`.

use std::io;

use serde::Serialize;

use super::page::{Part, Scripts};
use super::plan_page::sizes;
use crate::layout::Model;

const SCRIPTS: Scripts =
    Scripts { kind: "allocate", sections: "", details: "", script: include_str!("../../web/allocate.js") };

#[derive(Serialize)]
struct Page<'a, A> {
    allocations: &'a [A],
    /// What sizes between those that were asked for need, so that steps are drawn as steps.
    curves: Vec<Curve>,
}

#[derive(Serialize)]
struct Curve {
    model: String,
    sizes_bytes: Vec<u64>,
    allocated_bytes: Vec<u128>,
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
    let curves = models.iter().filter_map(|model| Model::parse(model).ok()).map(|model| curve(&model)).collect();
    Part::new(title, &Page { allocations, curves }, &SCRIPTS)
}

fn curve(model: &Model) -> Curve {
    let sizes_bytes = sizes();
    Curve {
        model: model.name.clone(),
        allocated_bytes: sizes_bytes.iter().map(|&size| model.layout.file(size).allocated_bytes).collect(),
        sizes_bytes,
    }
}
