//! A page of caches: one self-contained HTML file, with the miss-ratio curves of a trace, the matrix of times, and Fig.
//! 5 of Tanenbaum, Herder and Bos.
//!
//! Its scripts are in `web/cache*.js`; template, style, figures and formats are those of the survey page.

use std::io::{self, Write};

use serde::Serialize;

use super::cache::sentences;
use super::origin::told_apart;
use super::page::{Part, Scripts};
use crate::mrc::published::{Matrix, fig_5};
use crate::mrc::study::Study;

const SCRIPTS: Scripts = Scripts {
    kind: "cache",
    sections: include_str!("../../web/cache-sections.js"),
    details: "",
    script: include_str!("../../web/cache.js"),
};

#[derive(Serialize)]
struct Page<'a> {
    words: Vec<String>,
    studies: &'a [Study],
    fig_5: Matrix,
}

/// Writes the page of studies; `generated_at` is in seconds since 1970.
///
/// # Errors
/// Any error of `out`.
pub(crate) fn write(studies: &[Study], generated_at: i64, out: &mut dyn Write) -> io::Result<()> {
    part(studies)?.write(generated_at, out)
}

/// The part on a page with other results.
///
/// # Errors
/// When the data cannot be JSON.
pub(crate) fn part(studies: &[Study]) -> io::Result<Part> {
    let title = match studies {
        [only] => {
            told_apart(&format!("Cache study of {}", only.trace), only.host.as_deref(), only.written_at.as_deref())
        }
        several => format!("Cache study of {} traces", several.len()),
    };
    let words = studies.iter().flat_map(sentences).collect();
    Part::new(title, &Page { words, studies, fig_5: fig_5() }, &SCRIPTS)
}
