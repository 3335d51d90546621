//! A page of checks of stores: one self-contained HTML file, with the verdict, how many problems of which kind there
//! are and what helps, and the problems themselves.
//!
//! Its data is a document that `granulo store check --json` prints (docs/SCHEMA.md); its script is `web/check.js`.

use std::io;

use serde::Serialize;
use serde_json::Value;

use super::page::{Part, Scripts};
use super::store::check::{sentence, title};

const SCRIPTS: Scripts =
    Scripts { kind: "check", sections: "", details: "", script: include_str!("../../web/check.js") };

#[derive(Serialize)]
struct Page<'a> {
    words: Vec<String>,
    check: &'a Value,
}

/// The part of a check on a page.
///
/// # Errors
/// When the data cannot be JSON, or is none of a check.
pub(crate) fn part(check: &Value) -> io::Result<Part> {
    Part::new(title(check), &Page { words: vec![sentence(check)?], check }, &SCRIPTS)
}
