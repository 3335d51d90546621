//! A page of surveys: one self-contained HTML file.
//!
//! The template, its style, its scripts and the chart library are in `web/`; this module combines them with the data.
//! Names from file systems reach the page only inside the JSON of the data, where no character can end the element that
//! holds it.

use std::io::{self, Write};

use serde::Serialize;

use super::origin::told_apart;
use super::words::sentences;
use crate::distribution::{Distribution, published};
use crate::program;
use crate::survey::Survey;
use crate::survey::file::{Detail, Document, UpToRow, format_time};
use crate::survey::growth::is_of_one_tree;
use crate::survey::measure::Measure;
use crate::units::fraction;

const TEMPLATE: &str = include_str!("../../web/report.html");
/// Style and scripts that all pages share, by their placeholders in the template.
const SHARED: [(&str, &str); 6] = [
    ("css", include_str!("../../web/report.css")),
    ("charts", include_str!("../../web/vendor/echarts.granulo.min.js")),
    ("format", include_str!("../../web/format.js")),
    ("save", include_str!("../../web/save.js")),
    ("figure", include_str!("../../web/figure.js")),
    ("shell", include_str!("../../web/shell.js")),
];

/// Scripts of one kind of page: its sections, more of them, and the script that assembles them.
pub(super) struct Scripts {
    pub(super) kind: &'static str,
    pub(super) sections: &'static str,
    pub(super) details: &'static str,
    pub(super) script: &'static str,
}

const SCRIPTS: Scripts = Scripts {
    kind: "survey",
    sections: include_str!("../../web/sections.js"),
    details: concat!(
        include_str!("../../web/treemap.js"),
        include_str!("../../web/ages.js"),
        include_str!("../../web/places.js")
    ),
    script: include_str!("../../web/report.js"),
};

/// Points of a curve for each doubling of the size.
const POINTS_PER_OCTAVE: u32 = 4;

#[derive(Serialize)]
struct Page<'a> {
    sources: Vec<SourceRecord<'a>>,
    published: Vec<PublishedRecord>,
}

#[derive(Serialize)]
struct SourceRecord<'a> {
    survey: Document<'a>,
    curve: Vec<UpToRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ages: Option<super::page_ages::Ages>,
    words: Vec<String>,
}

#[derive(Serialize)]
struct PublishedRecord {
    name: &'static str,
    title: &'static str,
    curve: Vec<UpToRow>,
}

/// Writes a page of `surveys`; `generated_at` is in seconds since 1970.
///
/// # Errors
/// Any error of `out`.
pub fn write(surveys: &[Survey], generated_at: i64, out: &mut dyn Write) -> io::Result<()> {
    part(surveys)?.write(generated_at, out)
}

/// The part of `surveys` on a page with other results.
///
/// # Errors
/// When the data cannot be JSON.
pub(crate) fn part(surveys: &[Survey]) -> io::Result<Part> {
    let title = match surveys {
        [only] => match only.origin.name.as_deref() {
            Some(name) => told_apart(name, only.origin.host(), only.origin.taken_at.map(format_time).as_deref()),
            None => "Anonymous survey".to_owned(),
        },
        [first, rest @ ..] if rest.iter().all(|survey| is_of_one_tree(first, survey)) => {
            let name = told_apart(&first.origin.roots.join(", "), first.origin.host(), None);
            format!("{name}, then and now")
        }
        several => format!("{} populations", several.len()),
    };
    let page = Page {
        sources: surveys
            .iter()
            .map(|survey| SourceRecord {
                survey: Document::of(survey, Detail::Summary),
                curve: curve(survey.distributions.of(Measure::FileSize)),
                ages: super::page_ages::Ages::of(survey),
                words: sentences(survey),
            })
            .collect(),
        published: published::all()
            .iter()
            .map(|table| PublishedRecord { name: table.name, title: table.title, curve: curve(table.distribution()) })
            .collect(),
    };
    Part::new(title, &page, &SCRIPTS)
}

/// A page, or one of several results on a page: its title and its data.
pub struct Part {
    title: String,
    /// The fields of the data, as a JSON object.
    json: String,
    scripts: &'static Scripts,
}

impl Part {
    /// A part with `title` and `data`, which the scripts show.
    ///
    /// # Errors
    /// When the data cannot be JSON.
    pub(super) fn new(title: String, data: &impl Serialize, scripts: &'static Scripts) -> io::Result<Part> {
        Ok(Part { title, json: serde_json::to_string(data)?, scripts })
    }

    /// Writes the part as a page of its own; `generated_at` is in seconds since 1970.
    ///
    /// # Errors
    /// Any error of `out`.
    pub fn write(&self, generated_at: i64, out: &mut dyn Write) -> io::Result<()> {
        let all = with_fields(&head(&self.title, generated_at)?, &self.json);
        let Scripts { sections, details, script, .. } = *self.scripts;
        write_template(&self.title, &all, [sections, details, script], out)
    }
}

/// Writes several parts, which show so many results, as one page with a contents list.
///
/// # Errors
/// Any error of `out`.
pub(crate) fn write_together(parts: &[Part], results: usize, generated_at: i64, out: &mut dyn Write) -> io::Result<()> {
    let title = format!("{results} results");
    let mut fields = Vec::new();
    let mut used: Vec<&Scripts> = Vec::new();
    for part in parts {
        let head = serde_json::to_string(&PartHead { kind: part.scripts.kind, title: &part.title })?;
        fields.push(with_fields(&head, &part.json));
        if used.iter().all(|scripts| scripts.kind != part.scripts.kind) {
            used.push(part.scripts);
        }
    }
    let all = with_fields(&head(&title, generated_at)?, &format!("{{\"parts\":[{}]}}", fields.join(",")));
    let joined =
        |of: fn(&Scripts) -> &'static str| used.iter().map(|scripts| of(scripts)).collect::<Vec<_>>().join("\n");
    let [sections, details, script] =
        [joined(|scripts| scripts.sections), joined(|scripts| scripts.details), joined(|scripts| scripts.script)];
    write_template(&title, &all, [&sections, &details, &script], out)
}

#[derive(Serialize)]
struct PartHead<'a> {
    kind: &'static str,
    title: &'a str,
}

/// What the data of every page begin with.
#[derive(Serialize)]
struct Head<'a> {
    schema: &'static str,
    title: &'a str,
    generated_at: String,
    granulo_version: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    granulo_commit: Option<&'static str>,
}

fn head(title: &str, generated_at: i64) -> io::Result<String> {
    let head = Head {
        schema: "granulo/report/1",
        title,
        generated_at: format_time(generated_at),
        granulo_version: program::VERSION,
        granulo_commit: program::commit(),
    };
    Ok(serde_json::to_string(&head)?)
}

/// Two JSON objects that both have fields, as one.
fn with_fields(first: &str, second: &str) -> String {
    format!("{},{}", first.strip_suffix('}').unwrap_or(first), second.strip_prefix('{').unwrap_or(second))
}

/// Assembles a page from the template, its title, its data as JSON, and the scripts of its kinds.
fn write_template(title: &str, json: &str, scripts: [&str; 3], out: &mut dyn Write) -> io::Result<()> {
    let json = for_script(json);
    let title = for_text(&format!("{title} – granulo"));
    let [sections, details, script] = scripts;
    fill(TEMPLATE, |name| match name {
        "title" => Some(&title),
        "data" => Some(&json),
        "sections" => Some(sections),
        "details" => Some(details),
        "script" => Some(script),
        _ => SHARED.iter().find(|(part, _)| *part == name).map(|(_, text)| *text),
    })
    .try_for_each(|piece| out.write_all(piece.as_bytes()))
}

/// Cumulative shares at quarter octaves from 0 to the largest value.
fn curve(sizes: &Distribution) -> Vec<UpToRow> {
    let (files, bytes) = (sizes.count(), sizes.total());
    let quarter_octaves = (0..64 * POINTS_PER_OCTAVE).map(|step| f64::from(step) / f64::from(POINTS_PER_OCTAVE));
    let mut edges: Vec<u64> = quarter_octaves.map(|exponent| exponent.exp2().round() as u64).collect();
    edges.insert(0, 0);
    edges.dedup();
    let mut cells = sizes.cells().peekable();
    let (mut files_seen, mut bytes_seen) = (0, 0);
    let mut rows = Vec::new();
    for size_bytes in edges {
        while let Some(cell) = cells.next_if(|cell| cell.mean() <= size_bytes) {
            files_seen += cell.count;
            bytes_seen += cell.sum;
        }
        let (files_fraction, bytes_fraction) = (fraction(files_seen, files), fraction(bytes_seen, bytes));
        rows.push(UpToRow { size_bytes, files_fraction, bytes_fraction });
        if cells.peek().is_none() {
            break;
        }
    }
    rows
}

/// The pieces of a template with `{{name}}` replaced; names that `part` does not know are left as they are.
fn fill<'a>(template: &'a str, part: impl Fn(&str) -> Option<&'a str>) -> impl Iterator<Item = &'a str> {
    let mut rest = template;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        if let Some(inside) = rest.strip_prefix("{{")
            && let Some((name, behind)) = inside.split_once("}}")
            && let Some(text) = part(name)
        {
            rest = behind;
            return Some(text);
        }
        let begin = usize::from(rest.starts_with("{{")) * 2;
        let end = rest[begin..].find("{{").map_or(rest.len(), |at| begin + at);
        let (piece, behind) = rest.split_at(end);
        rest = behind;
        Some(piece)
    })
}

/// JSON that is safe in a script element: nothing in it looks like markup, and its meaning is unchanged.
fn for_script(json: &str) -> String {
    let mut text = String::with_capacity(json.len() + json.len() / 16);
    for c in json.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => text.push_str(&format!("\\u{:04x}", c as u32)),
            _ => text.push(c),
        }
    }
    text
}

/// Text that is safe between tags.
fn for_text(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_filled_once() {
        let parts = |name: &str| match name {
            "a" => Some("{{b}}"),
            "b" => Some("B"),
            _ => None,
        };
        assert_eq!(fill("x{{a}}y{{b}}z{{c}}{{", parts).collect::<String>(), "x{{b}}yBz{{c}}{{");
    }

    #[test]
    fn names_cannot_leave_the_data() {
        let survey = Survey {
            origin: crate::survey::Origin { name: Some("</script><script>alert(1)".to_owned()), ..Default::default() },
            ..Survey::default()
        };
        let mut page = Vec::new();
        write(&[survey], 0, &mut page).unwrap();
        let page = String::from_utf8(page).unwrap();
        assert!(!page.contains("<script>alert(1)"));
        assert!(page.contains("&lt;script&gt;alert(1)"));
        assert!(page.contains("\\u003cscript\\u003ealert(1)"));
        assert!(page.len() < 5 << 20);
        assert!(!page.contains("{{"), "a part of the template was not filled");
    }

    #[test]
    fn a_curve_rises_to_the_whole() {
        let curve = curve(published::all()[0].distribution());
        assert!(curve.is_sorted_by(|a, b| a.size_bytes < b.size_bytes && a.files_fraction <= b.files_fraction));
        let last = curve.last().unwrap();
        assert_eq!((last.files_fraction, last.bytes_fraction), (1.0, 1.0));
    }
}
