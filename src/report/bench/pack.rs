//! `bench pack` on a terminal: loading many files against one, beside the figures of the source; writing them, and the
//! space they need.

use std::io::{self, Write};

use super::{FAINT, NAME_COLUMNS, TIMES, caches, faint, heading, name_before_text, prose, table};
use crate::bench::pack::Way;
use crate::bench::result::{Document, PackDetails, PackPublished, Series, Subject};
use crate::report::chart::{bar, left, right};
use crate::report::table::bar_columns;
use crate::units::{format_count, format_duration, format_share, format_size};

const BAR_COLUMNS: usize = 16;
/// The reference for loads: the first of these that exists.
const ONE: [Way; 3] = [Way::Flat, Way::Composite, Way::Store];

pub(super) fn title(details: &PackDetails) -> String {
    format!("Many files versus one: {}, {}", details.population, format_size(details.bytes.into()))
}

pub(super) fn write(document: &Document, details: &PackDetails, out: &mut dyn Write) -> io::Result<()> {
    write_loads(document, details, out)?;
    write_writing(document, details, out)?;
    write_failures(document, details, out)
}

/// The name of a way of storing the files, in tables.
fn words(way: &str) -> &str {
    match way {
        "files" => "files",
        "store" => "granulo store",
        "composite" => "composite file",
        "flat" => "flat file",
        other => other,
    }
}

/// The loads of a subject, many files first: their names and samples.
fn loads(document: &Document, subject: usize) -> Vec<(String, &Series)> {
    let mut loads = Vec::new();
    for way in Way::ALL {
        for series in document.series.iter().filter(|series| series.subject == subject) {
            if let Some(order) = series.measure.strip_prefix(way.name()).and_then(|rest| rest.strip_prefix(" load")) {
                loads.push((format!("{}{order}", words(way.name())), series));
            }
        }
    }
    loads
}

/// The median load of one file.
fn one(document: &Document, subject: usize) -> Option<(Way, f64)> {
    let load = |way: Way| {
        let series = document.series_of(subject, &format!("{} load", way.name()))?;
        Some((way, series.spread.median)).filter(|(_, median)| *median > 0.0)
    };
    ONE.into_iter().find_map(load)
}

/// The rows of the source for the file system of a subject.
fn published<'d>(details: &'d PackDetails, subject: &Subject) -> impl Iterator<Item = &'d PackPublished> {
    let made = subject.file_system.made_by.as_deref().and_then(|made_by| made_by.strip_prefix("mkfs."));
    let kind = match made.and_then(|made_by| made_by.split([' ', ';']).next()) {
        Some(kind) => kind.to_owned(),
        None => match subject.file_system.kind.as_str() {
            "vfat" | "msdos" | "fuse.fusefat" => "fat".to_owned(),
            "ntfs3" | "ntfs" => "ntfs".to_owned(),
            kind => kind.to_owned(),
        },
    };
    details.published.iter().filter(move |row| row.file_system == kind)
}

fn ratio(seconds: f64, one: f64) -> String {
    let ratio = seconds / one;
    match ratio {
        _ if !ratio.is_finite() => "–".to_owned(),
        ratio if ratio >= 99.95 => format!("{} x", format_count(ratio.round() as u128)),
        ratio if ratio >= 9.995 => format!("{ratio:.1} x"),
        ratio => format!("{ratio:.2} x"),
    }
}

/// Seconds and ratios as bars, with those of the source below each file system that it measured.
fn write_loads(document: &Document, details: &PackDetails, out: &mut dyn Write) -> io::Result<()> {
    let subjects = || document.subjects.iter().enumerate();
    let Some((_, first)) = subjects().flat_map(|(at, _)| loads(document, at)).next() else { return Ok(()) };
    let rounds = document.series.iter().map(|series| series.spread.count).max().unwrap_or(0);
    let medians =
        if rounds > 1 { format!(", medians of {} rounds", format_count(rounds.into())) } else { String::new() };
    heading(
        &format!("Time to read everything, caches {}{medians}; and as a multiple of one file", caches(first.caches)),
        out,
    )?;
    let ratios = subjects().filter_map(|(at, subject)| {
        let one = one(document, at)?.1;
        let measured = loads(document, at).into_iter().map(move |(_, series)| series.spread.median / one);
        let published = published(details, subject).map(|row| row.many_files_seconds / row.one_file_seconds);
        measured
            .chain(published)
            .fold(None, |most: Option<f64>, ratio| Some(most.map_or(ratio, |most| most.max(ratio))))
    });
    let most = ratios.fold(1.0, f64::max);
    let width = bar_columns(BAR_COLUMNS, 1);
    table(out, |out| {
        for (at, subject) in subjects() {
            let one = one(document, at);
            for (index, (load, series)) in loads(document, at).into_iter().enumerate() {
                let seconds = series.spread.median;
                let spread = match series.spread.count {
                    0 | 1 => String::new(),
                    _ => format!("± {}", format_share(series.spread.normalised_deviation)),
                };
                write!(
                    out,
                    "{}{}{TIMES}{}{TIMES:#}{FAINT}{}{FAINT:#}",
                    if index == 0 { name_before_text(document, at) } else { " ".repeat(NAME_COLUMNS) },
                    left(&load, 16),
                    right(&format_duration(seconds), 10),
                    right(&spread, 11),
                )?;
                match one {
                    Some((_, one)) => writeln!(
                        out,
                        "{} {TIMES}{}{TIMES:#}",
                        right(&ratio(seconds, one), 9),
                        bar(seconds / one / most, width)
                    )?,
                    None => writeln!(out)?,
                }
            }
            for row in published(details, subject) {
                let PackPublished { system, one_file_seconds, many_files_seconds, .. } = row;
                let figures =
                    format!("{} versus {}", format_duration(*many_files_seconds), format_duration(*one_file_seconds));
                writeln!(
                    out,
                    "{FAINT}{}{}{}{} {}{FAINT:#}",
                    " ".repeat(NAME_COLUMNS),
                    left(&format!("paper: {system}"), 16),
                    right(&figures, 21),
                    right(&ratio(*many_files_seconds, *one_file_seconds), 9),
                    bar(many_files_seconds / one_file_seconds / most, width)
                )?;
            }
        }
        Ok(())
    })?;
    let mut remarks = Vec::new();
    let ones: Vec<Way> = subjects().filter_map(|(at, _)| Some(one(document, at)?.0)).collect();
    if let Some(way) = ones.first().filter(|way| ones.iter().all(|other| other == *way)) {
        let called = words(way.name());
        let article = if called.contains('\'') { "" } else { "the " };
        remarks.push(format!("One file: {article}{called} on the same file system."));
    }
    if !details.published.is_empty() {
        remarks.push(
            "Paper: Vorontsov, on an external disk after a reboot, many files versus one composite file.".to_owned(),
        );
    }
    faint(&remarks.join(" "), out)
}

/// Time to write everything, to make it durable, the combined rate, and the space needed.
fn write_writing(document: &Document, details: &PackDetails, out: &mut dyn Write) -> io::Result<()> {
    heading("Time to write everything and make it durable, and space used", out)?;
    table(out, |out| {
        writeln!(
            out,
            "{FAINT}{:31}{:>10}{:>10}{:>9}{:>11}{:>9}{FAINT:#}",
            "", "write", "sync", "MB/s", "allocated", "overhead"
        )?;
        for at in 0..document.subjects.len() {
            let mut is_first = true;
            for way in Way::ALL {
                let Some(created) = document.series_of(at, &format!("{} create", way.name())) else { continue };
                let synced =
                    document.series_of(at, &format!("{} sync", way.name())).map_or(0.0, |series| series.spread.median);
                let seconds = created.spread.median + synced;
                let rate = details.bytes as f64 / 1e6 / seconds.max(1e-9);
                let space = details.space.iter().find(|space| space.subject == at && space.way == way.name());
                let allocated = space.map_or(0, |space| space.allocated_bytes);
                let more = allocated as f64 / details.bytes.max(1) as f64 - 1.0;
                writeln!(
                    out,
                    "{}{}{TIMES}{}{}{}{TIMES:#}{}{}",
                    if is_first { name_before_text(document, at) } else { " ".repeat(NAME_COLUMNS) },
                    left(words(way.name()), 15),
                    right(&format_duration(created.spread.median), 10),
                    right(&format_duration(synced), 10),
                    right(&format_count(rate.round() as u128), 9),
                    right(&format_size(allocated.into()), 11),
                    right(&format_share(more), 9),
                )?;
                is_first = false;
            }
        }
        Ok(())
    })
}

fn write_failures(document: &Document, details: &PackDetails, out: &mut dyn Write) -> io::Result<()> {
    for failure in &details.failures {
        let subject = document.subject_name(failure.subject);
        let text = format!("Not measured: {} on {subject}: {}", words(&failure.way), failure.cause);
        prose(&text, out)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::result::FileSystem;

    #[test]
    fn ratios_have_three_digits() {
        for (seconds, text) in [(1.0, "1.00 x"), (23.44, "23.4 x"), (1234.0, "1,234 x"), (0.994, "0.99 x")] {
            assert_eq!(ratio(seconds, 1.0), text);
        }
        assert_eq!(ratio(1.0, 0.0), "–");
    }

    #[test]
    fn the_source_stands_beside_its_file_systems() {
        let details = PackDetails { published: crate::bench::pack::published::all(), ..PackDetails::default() };
        let rows = |kind: &str, made_by: Option<&str>| {
            let file_system =
                FileSystem { kind: kind.to_owned(), made_by: made_by.map(str::to_owned), ..FileSystem::default() };
            let subject = Subject {
                name: kind.to_owned(),
                kind: crate::bench::result::SubjectKind::FileSystem,
                path: String::new(),
                file_system,
                device: Default::default(),
                further_devices: Vec::new(),
                fill_before: 0.0,
                fill_after: 0.0,
            };
            published(&details, &subject).count()
        };
        assert_eq!((rows("ext4", None), rows("fuseblk", Some("mkfs.ntfs -q; ntfs-3g")), rows("xfs", None)), (1, 2, 0));
        assert_eq!((rows("vfat", None), rows("fuse.fusefat", Some("mkfs.fat; fusefat -o noatime"))), (2, 2));
    }
}
