//! A page of any document: one self-contained HTML file, with its amounts, its facts and its tables.
//!
//! Its script is `web/fields.js`.

use std::io;

use serde::Serialize;

use super::fields::Fields;
use super::page::{Part, Scripts};

const SCRIPTS: Scripts =
    Scripts { kind: "fields", sections: "", details: "", script: include_str!("../../web/fields.js") };

#[derive(Serialize)]
struct Page<'a> {
    name: &'a str,
    document: &'a Fields,
}

/// The part of a document; `name` is its file, or what else tells it apart.
///
/// # Errors
/// When the data cannot be JSON.
pub(crate) fn part(name: &str, document: &Fields) -> io::Result<Part> {
    let name = document.of.as_deref().unwrap_or(name);
    let title = if name.is_empty() { document.kind.clone() } else { format!("{}: {name}", document.kind) };
    Part::new(title, &Page { name, document }, &SCRIPTS)
}
