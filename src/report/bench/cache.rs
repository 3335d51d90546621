//! `bench cache` on a terminal: the matrix of the source for each kind of file system, with spread and reads, and the
//! published matrix.

use std::io::{self, Write};

use super::{FAINT, TIMES, heading, table};
use crate::bench::result::{CacheCell, CacheDetails, Document, FailureKind, Series, Subject};
use crate::mrc::published::{Matrix, fig_5};
use crate::report::chart::{COLUMNS, right};
use crate::report::paragraphs::prose;
use crate::units::{format_duration, format_size};

/// Columns of a cache size, and largest width of a figure.
const LABEL_COLUMNS: usize = 12;
const MOST_FIGURE_COLUMNS: usize = 12;

pub(super) fn title(details: &CacheDetails) -> String {
    format!("Run time by cache size and block size: {}", details.workload)
}

pub(super) fn write(document: &Document, details: &CacheDetails, out: &mut dyn Write) -> io::Result<()> {
    for (name, subjects) in groups(document, details) {
        write_group(document, details, &name, &subjects, out)?;
    }
    write_published(&fig_5(), out)?;
    write_sentences(document, details, out)
}

/// Subjects that differ only in their block size, by their names without it.
fn groups(document: &Document, details: &CacheDetails) -> Vec<(String, Vec<usize>)> {
    let mut groups: Vec<(String, Vec<usize>)> = Vec::new();
    for (at, subject) in document.subjects.iter().enumerate() {
        let name = name_without_block(subject);
        match groups.iter_mut().find(|(other, _)| *other == name) {
            Some((_, subjects)) => subjects.push(at),
            None => groups.push((name, vec![at])),
        }
    }
    let block = |at: &usize| details.cells.iter().find(|cell| cell.subject == *at).map(|cell| cell.block_bytes);
    groups.iter_mut().for_each(|(_, subjects)| subjects.sort_by_key(block));
    groups
}

fn name_without_block(subject: &Subject) -> String {
    let block = format!(" {}", format_size(subject.file_system.block_bytes.into()));
    subject.name.replacen(&block, "", 1)
}

fn write_group(
    document: &Document,
    details: &CacheDetails,
    name: &str,
    subjects: &[usize],
    out: &mut dyn Write,
) -> io::Result<()> {
    let cell = |at: usize, size: u64| details.cells.iter().find(|cell| cell.subject == at && cell.limit_bytes == size);
    let times = |at: usize, size: u64| {
        document
            .series
            .iter()
            .find(|series| series.subject == at && series.measure == "run" && series.level == Some(size as f64))
    };
    let rounds = document.series.iter().map(|series| series.spread.count).max().unwrap_or(0);
    heading(&format!("{name}: run time{}", if rounds > 1 { ", median" } else { "" }), out)?;
    let blocks: Vec<u64> = subjects.iter().map(|&at| document.subjects[at].file_system.block_bytes).collect();
    table(out, |out| {
        write_head(&blocks, out)?;
        write_rows(details, subjects, out, &|at, size| time(times(at, size), cell(at, size)))?;
        if rounds > 1 {
            writeln!(out, "\t{FAINT}spread: standard deviation over the mean{FAINT:#}")?;
            write_rows(details, subjects, out, &|at, size| match times(at, size) {
                Some(series) if series.spread.count > 1 => {
                    format!("± {:.0} %", 100.0 * series.spread.normalised_deviation)
                }
                _ => "–".to_owned(),
            })?;
        }
        writeln!(out, "\t{FAINT}read from the device per run{FAINT:#}")?;
        write_rows(details, subjects, out, &|at, size| match cell(at, size) {
            Some(cell) if times(at, size).is_some() => format_size(cell.read_bytes.into()),
            _ => "–".to_owned(),
        })?;
        writeln!(out, "\t{FAINT}largest page cache{FAINT:#}")?;
        write_rows(details, subjects, out, &|at, size| {
            cell(at, size).map_or("–".to_owned(), |cell| format_size(cell.page_cache_bytes.into()))
        })
    })
}

/// A time; for a run that failed, the reason.
fn time(series: Option<&Series>, cell: Option<&CacheCell>) -> String {
    match (series, cell.and_then(|cell| cell.failure.as_ref())) {
        (Some(series), _) => format_duration(series.spread.median),
        (None, Some(failure)) => match failure.kind {
            FailureKind::TooLong => "too long".to_owned(),
            FailureKind::OutOfMemory => "no memory".to_owned(),
            FailureKind::Failed => "failed".to_owned(),
        },
        (None, None) => "–".to_owned(),
    }
}

fn columns_of_a_figure(figures: usize) -> usize {
    ((COLUMNS - LABEL_COLUMNS) / figures.max(1)).min(MOST_FIGURE_COLUMNS)
}

fn write_head(blocks: &[u64], out: &mut dyn Write) -> io::Result<()> {
    write!(out, "{FAINT}{}", right("cache", LABEL_COLUMNS))?;
    for &block in blocks {
        write!(out, "{}", right(&format_size(block.into()), columns_of_a_figure(blocks.len())))?;
    }
    writeln!(out, "  blocks{FAINT:#}")
}

/// A row for each cache size.
fn write_rows(
    details: &CacheDetails,
    subjects: &[usize],
    out: &mut dyn Write,
    figure: &dyn Fn(usize, u64) -> String,
) -> io::Result<()> {
    for &size in &details.cache_sizes_bytes {
        write!(out, "{TIMES}{}{TIMES:#}", right(&format_size(size.into()), LABEL_COLUMNS))?;
        for &at in subjects {
            write!(out, "{}", right(&figure(at, size), columns_of_a_figure(subjects.len())))?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn write_published(matrix: &Matrix, out: &mut dyn Write) -> io::Result<()> {
    heading("For comparison: Tanenbaum, Herder and Bos (2006), Fig. 5, compiling on a PC", out)?;
    table(out, |out| {
        write_head(&matrix.block_sizes_bytes, out)?;
        for (size, seconds) in &matrix.rows {
            write!(out, "{TIMES}{}{TIMES:#}", right(&format_size((*size).into()), LABEL_COLUMNS))?;
            for &seconds in seconds {
                write!(
                    out,
                    "{}",
                    right(&format_duration(seconds), columns_of_a_figure(matrix.block_sizes_bytes.len()))
                )?;
            }
            writeln!(out)?;
        }
        Ok(())
    })
}

fn write_sentences(document: &Document, details: &CacheDetails, out: &mut dyn Write) -> io::Result<()> {
    let mut sentences = vec![format!(
        "Without a limit, a run took {} and {} of memory.",
        format_duration(details.unlimited_seconds),
        format_size(details.footprint_bytes.into()),
    )];
    if let Some(least_bytes) = details.least_bytes {
        sentences.push(format!(
            "The smallest limit that works is {}: below it, the run ran out of memory or exceeded {} (determined on the first file system).",
            format_size(least_bytes.into()),
            format_duration(details.longest_seconds),
        ));
    }
    let runs = |series: &&Series| series.measure == "run";
    let extremes = document.series.iter().filter(runs).map(|series| series.spread.median);
    let (shortest, longest) =
        extremes.fold((f64::INFINITY, 0.0f64), |(least, most), median| (least.min(median), most.max(median)));
    if shortest < longest {
        sentences.push(format!(
            "The slowest completed cell took {:.1} times as long as the fastest; in the paper it was {:.1} times.",
            longest / shortest,
            published_ratio(&fig_5()),
        ));
    }
    writeln!(out)?;
    prose(&sentences.join(" "), out)
}

fn published_ratio(matrix: &Matrix) -> f64 {
    let all = || matrix.rows.iter().flat_map(|(_, seconds)| seconds.iter().copied());
    all().fold(0.0, f64::max) / all().fold(f64::INFINITY, f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seven_columns_fit_a_terminal() {
        assert!(LABEL_COLUMNS + 7 * columns_of_a_figure(7) <= COLUMNS);
        // Room for "blocks" after those of the default.
        assert!(LABEL_COLUMNS + 5 * columns_of_a_figure(5) + "  blocks".len() <= COLUMNS);
        assert_eq!(format!("{:.1}", published_ratio(&fig_5())), "8.0");
    }
}
