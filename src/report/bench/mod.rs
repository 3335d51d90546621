//! Results of benches on a terminal: the measured subjects, tables, and remarks.

mod cache;
mod create;
mod fill;
mod metadata;
mod noise;
mod pack;
pub mod page;
pub mod words;

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};

use super::chart::{columns, left, letters, right, shorten, wrap};
use super::paragraphs::{FAINT, HEADING, faint, heading, prose};
use super::table::table;
use crate::bench::result::{CacheState, Details, Document, Subject};
use crate::units::{format_count, format_duration, format_share, format_size};

pub(super) const TIMES: Style = AnsiColor::Cyan.on_default();
const WARNING: Style = AnsiColor::Yellow.on_default();

/// Largest width of the name of a subject, and where subjects stand side by side.
const NAME_COLUMNS: usize = 16;
const HEAD_COLUMNS: usize = 12;

/// A whole result: subjects, tables, notes.
///
/// # Errors
/// Any error of `out`.
pub fn write_document(document: &Document, out: &mut dyn Write) -> io::Result<()> {
    for line in wrap(&title(document), columns()) {
        writeln!(out, "{HEADING}{line}{HEADING:#}")?;
    }
    let host = &document.host;
    let on = if host.name.is_empty() { String::new() } else { format!(" on {}", host.name) };
    let facts = format!(
        "{}{on}, took {}; Linux {}, {}, {} CPUs, {} of memory",
        document.started_at,
        format_duration(document.elapsed_seconds),
        host.kernel,
        if host.cpu_model.is_empty() { &host.machine } else { &host.cpu_model },
        host.cpus,
        format_size(host.memory_bytes.into()),
    );
    faint(&facts, out)?;
    write_subjects(&document.subjects, out)?;
    match &document.details {
        Details::Create(details) => create::write(document, details, out)?,
        Details::Pack(details) => pack::write(document, details, out)?,
        Details::Fill(details) => fill::write(document, details, out)?,
        Details::Cache(details) => cache::write(document, details, out)?,
        Details::Metadata(details) => metadata::write(document, details, out)?,
    }
    write_words(document, out)?;
    write_warnings(document, out)?;
    write_notes(document, out)
}

/// The findings in words.
fn write_words(document: &Document, out: &mut dyn Write) -> io::Result<()> {
    let sentences = words::sentences(document);
    if sentences.is_empty() {
        return Ok(());
    }
    heading("In words", out)?;
    sentences.iter().try_for_each(|sentence| prose(sentence, out))
}

/// Where the figures are not to be trusted.
fn write_warnings(document: &Document, out: &mut dyn Write) -> io::Result<()> {
    for warning in noise::warnings(document) {
        writeln!(out)?;
        for line in wrap(&format!("Warning: {warning}"), columns()) {
            writeln!(out, "{WARNING}{line}{WARNING:#}")?;
        }
    }
    Ok(())
}

fn title(document: &Document) -> String {
    match &document.details {
        Details::Create(details) => create::title(details),
        Details::Pack(details) => pack::title(details),
        Details::Fill(details) => fill::title(details),
        Details::Metadata(details) => metadata::title(details),
        Details::Cache(details) => cache::title(details),
    }
}

/// The name of a subject, as wide as names in tables.
pub(super) fn name(document: &Document, subject: usize) -> String {
    left(&short_name(&document.subjects, subject, NAME_COLUMNS), NAME_COLUMNS)
}

/// The same where text follows that the name must not touch.
fn name_before_text(document: &Document, subject: usize) -> String {
    left(&short_name(&document.subjects, subject, NAME_COLUMNS - 1), NAME_COLUMNS)
}

/// What a subject is called in at most `width` columns, unlike every other: shortened names that could be confused
/// begin with a letter.
fn short_name(subjects: &[Subject], subject: usize, width: usize) -> String {
    let name = subjects.get(subject).map_or("", |subject| subject.name.as_str());
    if are_alike(subjects) && !is_short(name) {
        shorten(&format!("{} {name}", letters(subject)), width)
    } else {
        shorten(name, width)
    }
}

/// A name that is whole wherever it is printed.
fn is_short(name: &str) -> bool {
    shorten(name, HEAD_COLUMNS) == name
}

/// Whether two of the names look alike once they are shortened.
fn are_alike(subjects: &[Subject]) -> bool {
    [HEAD_COLUMNS, NAME_COLUMNS - 1, NAME_COLUMNS].into_iter().any(|width| {
        let mut names: Vec<String> = subjects.iter().map(|subject| shorten(&subject.name, width)).collect();
        names.sort();
        names.windows(2).any(|pair| pair[0] == pair[1])
    })
}

/// File systems and devices that were measured.
fn write_subjects(subjects: &[Subject], out: &mut dyn Write) -> io::Result<()> {
    heading("Targets", out)?;
    table(out, |out| {
        writeln!(
            out,
            "{FAINT}{}{:>15}{:>9}{:>10}{:>9}{:>9}\tdevice{FAINT:#}",
            left("", NAME_COLUMNS),
            "file system",
            "block",
            "size",
            "before",
            "after",
        )?;
        for (at, subject) in subjects.iter().enumerate() {
            let device = &subject.device;
            let slow = if device.emulated.is_some() { " slow" } else { "" };
            let further = match subject.further_devices.len() {
                0 => String::new(),
                more => format!("+{more}"),
            };
            writeln!(
                out,
                "{}{}{}{}{}{}\t{}{further}{slow}",
                left(&short_name(subjects, at, NAME_COLUMNS), NAME_COLUMNS),
                right(&subject.file_system.kind, 15),
                right(&format_size(subject.file_system.block_bytes.into()), 9),
                right(&format_size(subject.file_system.size_bytes.into()), 10),
                right(&format_share(subject.fill_before), 9),
                right(&format_share(subject.fill_after), 9),
                device.name,
            )?;
        }
        Ok(())
    })?;
    for (at, subject) in subjects.iter().enumerate() {
        let short = short_name(subjects, at, NAME_COLUMNS);
        match short == subject.name {
            true => {}
            false if are_alike(subjects) => faint(&format!("{} is {}", letters(at), subject.name), out)?,
            false => faint(&format!("{short} is {}", subject.name), out)?,
        }
    }
    Ok(())
}

/// A figure of a series with its unit.
pub(super) fn figure(value: f64, unit: &str) -> String {
    match unit {
        "seconds" => format_duration(value),
        "bytes" => format_size(value.max(0.0) as u128),
        "bytes/s" => format!("{}/s", format_size(value.max(0.0) as u128)),
        "operations/s" => format!("{}/s", format_count(value.max(0.0).round() as u128)),
        other => format!("{value:.3} {other}"),
    }
}

/// Caches in words.
pub(super) fn caches(state: CacheState) -> &'static str {
    match state {
        CacheState::Cold => "cold",
        CacheState::Warm => "warm",
        CacheState::AsIs => "not dropped",
    }
}

/// Cost of the measurement, and other remarks.
fn write_notes(document: &Document, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out)?;
    let harness = &document.harness;
    let mut first = format!("An empty operation takes {:.0} ns here", harness.empty_operation_ns);
    if harness.overhead_fraction > 0.0 {
        first.push_str(&format!(", {} of the shortest median", format_share(harness.overhead_fraction)));
    }
    first.push_str(&format!("; seed {}.", document.seed));
    for note in [&first].into_iter().chain(&document.notes) {
        faint(note, out)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::result::{FileSystem, SubjectKind};

    fn subjects(names: &[&str]) -> Vec<Subject> {
        let subject = |name: &&str| Subject {
            name: (*name).to_owned(),
            kind: SubjectKind::FileSystem,
            path: String::new(),
            file_system: FileSystem::default(),
            device: Default::default(),
            further_devices: Vec::new(),
            fill_before: 0.0,
            fill_after: 0.0,
        };
        names.iter().map(subject).collect()
    }

    #[test]
    fn no_two_names_look_alike() {
        let alike = subjects(&["ext4", "/mnt/first/of/two/place", "/mnt/again/of/two/place"]);
        for width in [HEAD_COLUMNS, NAME_COLUMNS - 1, NAME_COLUMNS] {
            let names: Vec<String> = (0..3).map(|at| short_name(&alike, at, width)).collect();
            assert_eq!(names[0], "ext4");
            assert!(names[1].starts_with("B /") && names[2].starts_with("C /"), "{names:?}");
        }
        let mut out = Vec::new();
        write_subjects(&alike, &mut out).unwrap();
        let text = String::from_utf8(anstream::adapter::strip_bytes(&out).into_vec()).unwrap();
        assert!(text.contains("B is /mnt/first/of/two/place\nC is /mnt/again/of/two/place\n"), "{text}");
        let unlike = subjects(&["granulo slow device", "ext4"]);
        assert_eq!(short_name(&unlike, 0, NAME_COLUMNS), shorten("granulo slow device", NAME_COLUMNS));
    }
}
