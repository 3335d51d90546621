//! A comparison on a terminal: one column per source.

use std::io::{self, Write};

use anstyle::Style;

use super::chart::{columns, letters, right, shorten, wrap};
use super::growth::write_growth;
use super::paragraphs::{faint, heading};
use crate::survey::Resolution;
use crate::survey::compare::{Compared, Comparison};
use crate::units::{format_count, format_size};

const HEADING: Style = Style::new().bold();
const FAINT: Style = Style::new().dimmed();
/// Sources side by side, at most.
const SOURCES_ACROSS: usize = 7;
/// Columns of one of few sources.
const MOST_COLUMNS: usize = 16;
/// Columns of the widest size.
const SIZE_COLUMNS: usize = "1,023 MiB".len();
/// Columns of the label before the sources.
const LABEL: usize = 10;

/// Shares of files and bytes up to each size, deciles, and distances.
///
/// # Errors
/// Any error of `out`.
pub(crate) fn write_comparison(comparison: &Comparison, out: &mut dyn Write) -> io::Result<()> {
    if let Some(growth) = &comparison.growth {
        write_growth(growth, out)?;
        writeln!(out)?;
    }
    let names: Vec<String> = comparison.sources.iter().map(|source| source.name.clone()).collect();
    let figures = comparison.sources.iter().map(|source| format_count(source.files).len());
    let least = figures.max().unwrap_or(0).max(SIZE_COLUMNS) + 1;
    let across = (columns().saturating_sub(LABEL) / least).clamp(1, SOURCES_ACROSS);
    let labels = labels(&names, width_of(names.len().min(across), least));
    if labels != names {
        for (label, name) in labels.iter().zip(&names) {
            writeln!(out, "{FAINT}{label}: {}{FAINT:#}", shorten(name, columns() - label.len() - 2))?;
        }
        writeln!(out)?;
    }
    let sources: Vec<usize> = (0..comparison.sources.len()).collect();
    for (index, group) in sources.chunks(across).enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        write_columns(comparison, &labels, (group, width_of(group.len(), least)), out)?;
    }
    heading("Distance (Kolmogorov-Smirnov: largest difference between cumulative curves)", out)?;
    for pair in &comparison.distances {
        let text = format!(
            "{} and {}: {:.3} by files (at {}), {:.3} by bytes (at {})",
            pair.a,
            pair.b,
            pair.by_files,
            format_size(pair.by_files_at.into()),
            pair.by_bytes,
            format_size(pair.by_bytes_at.into()),
        );
        for text in wrap(&text, columns()) {
            writeln!(out, "{text}")?;
        }
    }
    if comparison.sources.iter().any(|source| source.resolution == Resolution::Buckets) {
        faint("Published tables and fsstats CSVs are interpolated between rows.", out)?;
    }
    Ok(())
}

/// Columns of one of `sources` that are side by side, of which each needs at least `least`.
fn width_of(sources: usize, least: usize) -> usize {
    (columns().saturating_sub(LABEL) / sources.max(1)).min(MOST_COLUMNS).max(least)
}

/// What the columns are called: the names, or letters where shortened names could not be told apart.
fn labels(names: &[String], width: usize) -> Vec<String> {
    let short: Vec<String> = names.iter().map(|name| shorten(name, width.saturating_sub(1))).collect();
    let is_alike = |(index, name): (usize, &String)| short[..index].contains(name);
    if short.iter().enumerate().any(is_alike) || names.len() == 2 && short != names {
        return (0..names.len()).map(letters).collect();
    }
    names.to_vec()
}

/// Everything except the distances, for the sources of a group, each in `width` columns.
fn write_columns(
    comparison: &Comparison,
    labels: &[String],
    (group, width): (&[usize], usize),
    out: &mut dyn Write,
) -> io::Result<()> {
    let names = |out: &mut dyn Write| {
        write!(out, "{FAINT}{:LABEL$}", "")?;
        for &source in group {
            write!(out, "{}", right(&shorten(&labels[source], width - 1), width))?;
        }
        writeln!(out, "{FAINT:#}")
    };
    let line = |out: &mut dyn Write, label: &str, figures: &[String]| {
        write!(out, "{}", right(label, LABEL))?;
        figures.iter().try_for_each(|figure| write!(out, "{}", right(figure, width)))?;
        writeln!(out)
    };
    let each = |figure: &dyn Fn(&Compared) -> String| -> Vec<String> {
        group.iter().map(|&source| figure(&comparison.sources[source])).collect()
    };
    names(out)?;
    line(out, "files", &each(&|source| format_count(source.files)))?;
    line(out, "bytes", &each(&|source| format_size(source.size_bytes)))?;
    line(out, "mean", &each(&|source| format_size(source.mean.round() as u128)))?;
    line(out, "median", &each(&|source| format_size(source.deciles[4].into())))?;
    for (what, by_files) in [("files", true), ("bytes in files", false)] {
        heading(&format!("Per cent of the {what} of this size or smaller"), out)?;
        names(out)?;
        for row in &comparison.up_to {
            let fractions = if by_files { &row.files_fraction } else { &row.bytes_fraction };
            // A document that was edited may have fewer.
            let words = |share: &f64| format!("{:.2}", 100.0 * share);
            let shares: Vec<String> =
                group.iter().map(|&source| fractions.get(source).map_or("–".to_owned(), words)).collect();
            line(out, &format_size(row.size_bytes.into()), &shares)?;
        }
    }
    writeln!(out, "\n{HEADING}Deciles by files{HEADING:#}")?;
    names(out)?;
    for tenth in 0..10 {
        let figures = each(&|source| format_size(source.deciles[tenth].into()));
        line(out, &format!("{} %", 10 * (tenth + 1)), &figures)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::survey::Survey;
    use crate::survey::compare::compare;
    use crate::survey::measure::Measure;

    /// Sources with as many files each.
    fn comparison(sources: usize, files: u64) -> Comparison {
        let mut survey = Survey::default();
        survey.distributions.of_mut(Measure::FileSize).add(5000, files);
        let names: Vec<String> = (0..sources).map(|source| format!("s{source}")).collect();
        compare(&vec![survey; sources], &names)
    }

    fn text(comparison: &Comparison) -> String {
        let mut out = Vec::new();
        write_comparison(comparison, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn figures_do_not_touch() {
        for (files, words) in [(12_345_678, "12,345,678"), (12_345_678_901_234, "12,345,678,901,234")] {
            let text = text(&comparison(7, files));
            let rows = text.lines().filter_map(|line| line.trim_start().strip_prefix("files "));
            let figures: Vec<&str> = rows.flat_map(str::split_whitespace).collect();
            assert_eq!(figures, [words; 7], "{text}");
        }
    }

    #[test]
    fn lists_of_unequal_length_are_written() {
        let mut comparison = comparison(3, 10);
        comparison.up_to.iter_mut().for_each(|row| row.files_fraction.truncate(2));
        comparison.up_to[0].bytes_fraction.clear();
        let document = serde_json::to_vec(&comparison).unwrap();
        let read: Comparison = serde_json::from_slice(&document).unwrap();
        assert!(text(&read).contains("–"));
    }
}
