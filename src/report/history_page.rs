//! A page of histories: one self-contained HTML file, with the curves of each tree over time, how fast it grows, and
//! when its file system will be full.
//!
//! Its data are the trees of documents that `granulo history --json` prints (docs/SCHEMA.md); its scripts are in
//! `web/history*.js`.

use std::io::{self, Write};

use serde::Serialize;

use super::history::{sentences, title};
use super::page::{Part, Scripts};
use crate::survey::history::{History, TreeHistory};

const SCRIPTS: Scripts = Scripts {
    kind: "history",
    sections: include_str!("../../web/history-sections.js"),
    details: "",
    script: include_str!("../../web/history.js"),
};

#[derive(Serialize)]
struct Page<'a> {
    words: Vec<String>,
    trees: Vec<&'a TreeHistory>,
}

/// Writes the page of a history; `generated_at` is in seconds since 1970.
///
/// # Errors
/// Any error of `out`.
pub(crate) fn write(history: &History, generated_at: i64, out: &mut dyn Write) -> io::Result<()> {
    part(&[history])?.write(generated_at, out)
}

/// The part on a page with other results.
///
/// # Errors
/// When the data cannot be JSON.
pub(crate) fn part(histories: &[&History]) -> io::Result<Part> {
    let trees: Vec<&TreeHistory> = histories.iter().flat_map(|history| &history.trees).collect();
    let (name, words) = match trees[..] {
        [only] => (title(only), sentences(only)),
        _ => {
            let words = |tree: &&TreeHistory| format!("{}: {}", title(tree), sentences(tree).join(" "));
            (format!("{} trees", trees.len()), trees.iter().map(words).collect())
        }
    };
    Part::new(name, &Page { words, trees }, &SCRIPTS)
}
