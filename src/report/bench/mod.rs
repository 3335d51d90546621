//! Results of benches on a terminal: 80 columns, the measured subjects, tables, and remarks.

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

use super::chart::{COLUMNS, left, right, shorten, wrap};
use super::paragraphs::{FAINT, HEADING, heading};
use crate::bench::result::{CacheState, Details, Document, Subject};
use crate::units::{format_count, format_duration, format_share, format_size};

pub(super) const TIMES: Style = AnsiColor::Cyan.on_default();
const WARNING: Style = AnsiColor::Yellow.on_default();

/// Largest width of the name of a subject.
const NAME_COLUMNS: usize = 16;

/// A whole result: subjects, tables, notes.
///
/// # Errors
/// Any error of `out`.
pub fn write_document(document: &Document, out: &mut dyn Write) -> io::Result<()> {
    for line in wrap(&title(document), COLUMNS) {
        writeln!(out, "{HEADING}{line}{HEADING:#}")?;
    }
    let host = &document.host;
    let facts = format!(
        "{}, took {}; Linux {}, {}, {} CPUs, {} of memory",
        document.started_at,
        format_duration(document.elapsed_seconds),
        host.kernel,
        if host.cpu_model.is_empty() { &host.machine } else { &host.cpu_model },
        host.cpus,
        format_size(host.memory_bytes.into()),
    );
    for line in wrap(&facts, COLUMNS) {
        writeln!(out, "{FAINT}{line}{FAINT:#}")?;
    }
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
    sentences.iter().flat_map(|sentence| wrap(sentence, COLUMNS)).try_for_each(|line| writeln!(out, "{line}"))
}

/// Where the figures are not to be trusted.
fn write_warnings(document: &Document, out: &mut dyn Write) -> io::Result<()> {
    for warning in noise::warnings(document) {
        writeln!(out)?;
        for line in wrap(&format!("Warning: {warning}"), COLUMNS) {
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
pub(super) fn name(subject: &Subject) -> String {
    left(&shorten(&subject.name, NAME_COLUMNS), NAME_COLUMNS)
}

/// The same where text follows that the name must not touch.
fn name_before_text(subject: &Subject) -> String {
    left(&shorten(&subject.name, NAME_COLUMNS - 1), NAME_COLUMNS)
}

/// File systems and devices that were measured.
fn write_subjects(subjects: &[Subject], out: &mut dyn Write) -> io::Result<()> {
    heading("Targets", out)?;
    writeln!(
        out,
        "{FAINT}{}{:>15}{:>9}{:>10}{:>9}{:>9}  device{FAINT:#}",
        left("", NAME_COLUMNS),
        "file system",
        "block",
        "size",
        "before",
        "after",
    )?;
    for subject in subjects {
        let device = &subject.device;
        let slow = if device.emulated.is_some() { " slow" } else { "" };
        let further = match subject.further_devices.len() {
            0 => String::new(),
            more => format!("+{more}"),
        };
        writeln!(
            out,
            "{}{}{}{}{}{}  {}",
            name(subject),
            right(&subject.file_system.kind, 15),
            right(&format_size(subject.file_system.block_bytes.into()), 9),
            right(&format_size(subject.file_system.size_bytes.into()), 10),
            right(&format_share(subject.fill_before), 9),
            right(&format_share(subject.fill_after), 9),
            shorten(&format!("{}{further}{slow}", device.name), COLUMNS - NAME_COLUMNS - 54),
        )?;
    }
    let long = |subject: &&Subject| shorten(&subject.name, NAME_COLUMNS) != subject.name;
    for subject in subjects.iter().filter(long) {
        let line = format!("{} is {}", name(subject).trim_end(), subject.name);
        writeln!(out, "{FAINT}{}{FAINT:#}", shorten(&line, COLUMNS))?;
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
        for line in wrap(note, COLUMNS) {
            writeln!(out, "{FAINT}{line}{FAINT:#}")?;
        }
    }
    Ok(())
}
