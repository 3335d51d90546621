//! A page of a comparison: one self-contained HTML file; of two surveys of one tree, what grew comes first.
//!
//! Its data is a document that `granulo compare --json` prints (docs/SCHEMA.md), so that the page of the command and
//! that of the document are the same; its scripts are in `web/compare*.js`.

use std::io;

use serde::Serialize;

use super::growth::sentences;
use super::origin::told_apart;
use super::page::{Part, Scripts};
use crate::survey::compare::Comparison;

const SCRIPTS: Scripts = Scripts {
    kind: "compare",
    sections: include_str!("../../web/compare-sections.js"),
    details: "",
    script: include_str!("../../web/compare.js"),
};

#[derive(Serialize)]
struct Page<'a> {
    words: Vec<String>,
    comparison: &'a Comparison,
}

/// The part of a comparison on a page.
///
/// # Errors
/// When the data cannot be JSON.
pub(crate) fn part(comparison: &Comparison) -> io::Result<Part> {
    let words = comparison.growth.as_ref().map_or_else(Vec::new, sentences);
    Part::new(title(comparison), &Page { words, comparison }, &SCRIPTS)
}

fn title(comparison: &Comparison) -> String {
    if let Some(growth) = &comparison.growth {
        let name = told_apart(growth.name.as_deref().unwrap_or("Anonymous tree"), growth.host.as_deref(), None);
        let day = |at: &Option<String>| at.as_deref().and_then(|at| at.split('T').next().map(str::to_owned));
        return match (day(&growth.from), day(&growth.to)) {
            (Some(from), Some(to)) if from == to => format!("{name}, {to}: what grew"),
            (Some(from), Some(to)) => format!("{name}: {from} to {to}"),
            _ => format!("{name}: what grew"),
        };
    }
    match &comparison.sources[..] {
        [one, other] => format!("{} and {}", one.name, other.name),
        several => format!("{} populations compared", several.len()),
    }
}
