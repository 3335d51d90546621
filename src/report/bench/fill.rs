//! `bench fill` on a terminal: each test over the levels as a line, its figures at each level, and how the levels were
//! reached.

use std::io::{self, Write};

use super::create::line;
use super::{FAINT, NAME_COLUMNS, TIMES, faint, figure, heading, name_before_text, prose, table};
use crate::bench::fill::Test;
use crate::bench::result::{Document, FillDetails, FillLeftOut, Series, Subject};
use crate::report::chart::{is_narrow, left, right};
use crate::units::{format_count, format_duration, format_share, format_size};

/// Columns of a line over the levels.
const LINE_COLUMNS: usize = 28;
/// Columns of a figure at a level.
const FIGURE_COLUMNS: usize = 10;

pub(super) fn title(details: &FillDetails) -> String {
    match (details.levels.first(), details.levels.last()) {
        (Some(first), Some(last)) => {
            format!("Performance by fill level, {} to {}", format_share(*first), format_share(*last))
        }
        _ => "Performance by fill level".to_owned(),
    }
}

pub(super) fn write(document: &Document, details: &FillDetails, out: &mut dyn Write) -> io::Result<()> {
    let law = format!(
        "Filled with files of {} to {}, weighted by e^({}(x-1)), {}; {}; {}.",
        format_size(details.size_range_bytes.0.into()),
        format_size(details.size_range_bytes.1.into()),
        details.weight,
        if details.is_random { "random bytes" } else { "zeros" },
        every(details.delete_every, "one random file deleted", "none deleted"),
        every(details.flush_every, "flushed around deletions", "not flushed"),
    );
    writeln!(out)?;
    prose(&law, out)?;
    write_devices(document, out)?;
    write_lines(document, out)?;
    for (at, subject) in document.subjects.iter().enumerate() {
        write_figures(document, details, at, subject, out)?;
    }
    write_levels(document, details, out)?;
    write_left_out(document, &details.left_out, out)
}

fn every(files: u64, what: &str, not: &str) -> String {
    match files {
        0 => not.to_owned(),
        files => format!("{what} for every {}", format_count(files.into())),
    }
}

/// The series of a test on a subject, by rising level.
fn of(document: &Document, subject: usize, test: Test) -> impl Iterator<Item = &Series> {
    let is_it = move |series: &&Series| series.subject == subject && series.measure == test.name();
    document.series.iter().filter(is_it)
}

fn write_devices(document: &Document, out: &mut dyn Write) -> io::Result<()> {
    for series in document.series.iter().filter(|series| series.measure == "device read") {
        let subject = name_before_text(document, series.subject);
        writeln!(
            out,
            "{subject}raw device read {TIMES}{}{TIMES:#} {FAINT}± {}{FAINT:#}",
            right(&figure(series.spread.mean, &series.unit), 14),
            format_share(series.spread.normalised_deviation)
        )?;
    }
    Ok(())
}

/// Each test of each subject as a line over the levels.
fn write_lines(document: &Document, out: &mut dyn Write) -> io::Result<()> {
    heading("Each test from the lowest to the highest level: mean time and its range", out)?;
    let width = if is_narrow() { LINE_COLUMNS / 4 } else { LINE_COLUMNS };
    table(out, |out| {
        for at in 0..document.subjects.len() {
            let mut is_first = true;
            for test in Test::ALL {
                let means: Vec<f64> = of(document, at, test).map(|series| series.spread.mean).collect();
                if means.is_empty() {
                    continue;
                }
                let low = means.iter().copied().fold(f64::INFINITY, f64::min);
                let high = means.iter().copied().fold(0.0, f64::max);
                // Wider steps with few levels, means of several with many.
                let columns: Vec<f64> = (0..width)
                    .map(|column| {
                        let from = column * means.len() / width;
                        let to = ((column + 1) * means.len() / width).max(from + 1);
                        means[from..to].iter().sum::<f64>() / (to - from) as f64
                    })
                    .collect();
                let test = match test {
                    Test::RemoveDirectories => "remove directories",
                    other => other.name(),
                };
                writeln!(
                    out,
                    "{}{}{TIMES}{}{TIMES:#} {FAINT}{}–{}{FAINT:#}",
                    if is_first { name_before_text(document, at) } else { " ".repeat(NAME_COLUMNS) },
                    left(test, 19),
                    line(&columns, low, high),
                    format_duration(low),
                    format_duration(high),
                )?;
                is_first = false;
            }
        }
        Ok(())
    })
}

/// Mean, deviation and multiple of the first level, for each test at each level.
fn write_figures(
    document: &Document,
    details: &FillDetails,
    at: usize,
    subject: &Subject,
    out: &mut dyn Write,
) -> io::Result<()> {
    if Test::ALL.iter().all(|test| of(document, at, *test).next().is_none()) {
        return Ok(());
    }
    let repeats = Test::ALL.iter().flat_map(|test| of(document, at, *test)).map(|series| series.spread.count).max();
    let repeats = format_count(repeats.unwrap_or(0).into());
    heading(&format!("{}: mean of {repeats}; ± relative deviation; multiple of the first level", subject.name), out)?;
    // In less than 80 columns, the tests of directories and those of files are two tables.
    let all = Test::ALL.len();
    let first = if is_narrow() { 3 } else { all };
    for (index, tests) in [0..first, first..all].into_iter().filter(|tests| !tests.is_empty()).enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        write_tests(document, details, at, tests, out)?;
    }
    Ok(())
}

/// What a group of tests is about, its columns, and its rows.
fn write_tests(
    document: &Document,
    details: &FillDetails,
    at: usize,
    tests: std::ops::Range<usize>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let count = |number: u64| format_count(number.into());
    let about = [
        (0..3, format!("{} directories", count(details.directories))),
        (3..5, format_size(details.file_bytes.into())),
        (5..7, format!("{} of {}", count(details.small_files), format_size(details.small_bytes.into()))),
    ];
    let about = about.iter().filter(|(of, _)| tests.contains(&of.start));
    let about = about.map(|(of, text)| right(text, of.len() * FIGURE_COLUMNS)).collect::<String>();
    writeln!(out, "{FAINT}{:8}{about}{FAINT:#}", "")?;
    write!(out, "{FAINT}{:>8}", "level")?;
    for test in &["create", "find", "remove", "write", "read", "create", "delete"][tests.clone()] {
        write!(out, "{}", right(test, FIGURE_COLUMNS))?;
    }
    writeln!(out, "{FAINT:#}")?;
    let tests = &Test::ALL[tests];
    for &level in &details.levels {
        let found: Vec<Option<&Series>> =
            tests.iter().map(|test| of(document, at, *test).find(|series| series.level == Some(level))).collect();
        if found.iter().all(Option::is_none) {
            continue;
        }
        let means = found.iter().map(|series| match series {
            Some(series) => right(&format_duration(series.spread.mean), FIGURE_COLUMNS),
            None => right("–", FIGURE_COLUMNS),
        });
        writeln!(out, "{}{TIMES}{}{TIMES:#}", right(&format_share(level), 8), means.collect::<String>())?;
        let spreads = tests.iter().zip(&found).map(|(test, series)| {
            let first = of(document, at, *test).next().map_or(0.0, |series| series.spread.mean);
            let text = series.map_or(String::new(), |series| beside(series, first));
            right(&text, FIGURE_COLUMNS)
        });
        writeln!(out, "{FAINT}{:8}{}{FAINT:#}", "", spreads.collect::<String>())?;
    }
    Ok(())
}

/// `±4% 1.2x`, in nine columns.
fn beside(series: &Series, first: f64) -> String {
    let deviation = match series.spread.count {
        0 | 1 => String::new(),
        _ => format!("±{:.0}% ", series.spread.normalised_deviation * 100.0),
    };
    let multiple = match series.spread.mean / first {
        multiple if !multiple.is_finite() => return deviation,
        multiple if multiple < 9.95 => format!("{multiple:.1}x"),
        multiple => format!("{multiple:.0}x"),
    };
    deviation + &multiple
}

fn write_levels(document: &Document, details: &FillDetails, out: &mut dyn Write) -> io::Result<()> {
    heading("Fill levels reached", out)?;
    table(out, |out| {
        writeln!(
            out,
            "{FAINT}{:16}{:>8}{:>9}{:>9}{:>10}{:>10}{:>9}{:>9}{FAINT:#}",
            "", "level", "reached", "after", "files", "bytes", "deleted", "extents"
        )?;
        for at in 0..document.subjects.len() {
            let rows = details.reached.iter().filter(|row| row.subject == at);
            for (index, row) in rows.enumerate() {
                let extents = row.extents_per_file.map_or("–".to_owned(), |extents| format!("{extents:.2}"));
                writeln!(
                    out,
                    "{}{}{}{}{}{}{}{}",
                    if index == 0 { name_before_text(document, at) } else { " ".repeat(NAME_COLUMNS) },
                    right(&format_share(row.level), 8),
                    right(&format_share(row.reached), 9),
                    right(&format_share(row.after), 9),
                    right(&format_count(row.files.into()), 10),
                    right(&format_size(row.bytes.into()), 10),
                    right(&format_count(row.deleted.into()), 9),
                    right(&extents, 9),
                )?;
            }
        }
        Ok(())
    })?;
    faint("Extents: mean of sampled files. After: fill level after the tests.", out)
}

fn write_left_out(document: &Document, left_out: &[FillLeftOut], out: &mut dyn Write) -> io::Result<()> {
    for FillLeftOut { subject, level, tests, cause } in left_out {
        let subject = document.subject_name(*subject);
        let level = format_share(*level);
        let text = match tests.is_empty() {
            true => format!("Skipped on {subject}: {level}: {cause}."),
            false => format!("Skipped on {subject} from {level} up: {}: {cause}.", tests.join(", ")),
        };
        prose(&text, out)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::result::CacheState;

    #[test]
    fn deviation_and_multiple_fit_their_columns() {
        let series = |samples: &[f64]| Series::new(0, "read", "seconds", CacheState::Cold, samples.to_vec());
        assert_eq!(beside(&series(&[1.0]), 0.5), "2.0x");
        assert_eq!(beside(&series(&[1.0, 3.0]), 2.0), "±50% 1.0x");
        assert_eq!(beside(&series(&[0.0, 0.0, 0.0, 100.0]), 2.0), "±173% 12x");
        assert_eq!(beside(&series(&[1.0, 1.0]), 0.0), "±0% ");
    }
}
