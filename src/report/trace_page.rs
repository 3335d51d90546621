//! A page of traces: one self-contained HTML file, with traces overlaid and beside Fig. 4 of Tanenbaum, Herder and Bos.
//!
//! Its scripts are in `web/trace*.js`; template, style, figures and formats are those of the survey page.

use std::io::{self, Write};

use serde::Serialize;

use super::origin::told_apart;
use super::page::{Part, Scripts};
use crate::plan::Operations;
use crate::trace::summary::Document;

const SCRIPTS: Scripts = Scripts {
    kind: "trace",
    sections: include_str!("../../web/trace-sections.js"),
    details: "",
    script: include_str!("../../web/trace.js"),
};

#[derive(Serialize)]
struct Page<'a> {
    words: Vec<String>,
    traces: Vec<&'a Document>,
    published: Vec<Decile>,
}

/// A row of Fig. 4.
#[derive(Serialize)]
struct Decile {
    fraction: f64,
    read_bytes: u64,
    write_bytes: u64,
}

/// Writes the page of traces and the sentences about each; `generated_at` is in seconds since 1970.
///
/// # Errors
/// Any error of `out`.
pub(crate) fn write(traces: &[(Document, Vec<String>)], generated_at: i64, out: &mut dyn Write) -> io::Result<()> {
    part(traces)?.write(generated_at, out)
}

/// The part on a page with other results.
///
/// # Errors
/// When the data cannot be JSON.
pub(crate) fn part(traces: &[(Document, Vec<String>)]) -> io::Result<Part> {
    let fig4 = Operations::published();
    let deciles = fig4.reads.deciles().into_iter().zip(fig4.writes.deciles());
    let row = |(tenth, (read_bytes, write_bytes)): (u32, (u64, u64))| Decile {
        fraction: f64::from(tenth) / 10.0,
        read_bytes,
        write_bytes,
    };
    let title = match traces {
        [(only, _)] => told_apart(only.name(), only.host(), only.started_at()),
        several => format!("{} traces", several.len()),
    };
    let words = match traces {
        [(_, words)] => words.clone(),
        several => several
            .iter()
            .filter_map(|(document, words)| Some(format!("{}: {}", document.name(), words.first()?)))
            .collect(),
    };
    let page = Page {
        words,
        traces: traces.iter().map(|(document, _)| document).collect(),
        published: (1..).zip(deciles).map(row).collect(),
    };
    Part::new(title, &page, &SCRIPTS)
}
