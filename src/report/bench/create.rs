//! `bench create` on a terminal: Foddex's table, times of single operations, and the curve of the n-th operation as a
//! line of blocks.

use std::io::{self, Write};

use super::{FAINT, TIMES, caches, faint, heading, name, prose, table};
use crate::bench::result::{CreateDetails, CreatePhase, Document};
use crate::bench::samples::{CurveBin, Spread};
use crate::report::chart::{left, right};
use crate::report::table::bar_columns;
use crate::units::{format_count, format_duration, format_size};

/// Columns of a curve.
const CURVE_COLUMNS: usize = 38;
/// Smallest span of the vertical scale, as the ratio of its ends: noise stays flat.
const LEAST_RATIO: f64 = 8.0;
const PHASES: [&str; 3] = ["create", "stat", "delete"];

pub(super) fn title(details: &CreateDetails) -> String {
    let what = match details.size_bytes {
        0 => "empty files".to_owned(),
        bytes => format!("files of {}", format_size(bytes.into())),
    };
    let r#where = match details.directory_files {
        0 => "in one directory".to_owned(),
        files => format!("in directories of {}", format_count(files.into())),
    };
    format!("{} {what} {where}", format_count(details.files.into()), where = r#where)
}

pub(super) fn write(document: &Document, details: &CreateDetails, out: &mut dyn Write) -> io::Result<()> {
    write_totals(document, details, out)?;
    write_times(document, details, out)?;
    write_curves(document, details, out)?;
    write_limits(details, out)
}

/// The phases of one subject with one name, in all rounds.
fn of<'a>(details: &'a CreateDetails, subject: usize, phase: &'a str) -> impl Iterator<Item = &'a CreatePhase> {
    details.phases.iter().filter(move |passed| passed.subject == subject && passed.phase == phase)
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    Spread::of(&values.collect::<Vec<_>>()).median
}

/// Files, time taken, average, deletion time, average: the columns of the source, for create, stat and delete.
fn write_totals(document: &Document, details: &CreateDetails, out: &mut dyn Write) -> io::Result<()> {
    let rounds = details.phases.iter().map(|phase| phase.round).max().map_or(0, |last| last + 1);
    let durable = match details.durability.as_str() {
        "each" => ", each made durable",
        "batch" => ", every 1,000 made durable",
        _ => "",
    };
    let medians =
        if rounds > 1 { format!("; medians of {} rounds", format_count(rounds.into())) } else { String::new() };
    heading(&format!("Total time, and average per file{durable}{medians}"), out)?;
    table(out, |out| {
        write!(out, "{FAINT}{:16}{:>10}", "", "files")?;
        for phase in PHASES {
            write!(out, "{phase:>9}{:>9}", "average")?;
        }
        writeln!(out, "{FAINT:#}")?;
        for at in 0..document.subjects.len() {
            let made = median(of(details, at, "create").map(|phase| phase.latencies.count as f64));
            write!(out, "{}{}", name(document, at), right(&format_count(made as u128), 10))?;
            for phase in PHASES {
                let taken = median(of(details, at, phase).map(|phase| phase.elapsed_seconds));
                let average = median(
                    of(details, at, phase).map(|phase| phase.elapsed_seconds / phase.latencies.count.max(1) as f64),
                );
                let (taken, average) = match of(details, at, phase).next() {
                    Some(_) => (format_duration(taken), format_duration(average)),
                    None => ("–".to_owned(), "–".to_owned()),
                };
                write!(out, "{}{TIMES}{}{TIMES:#}", right(&taken, 9), right(&average, 9))?;
            }
            writeln!(out)?;
        }
        Ok(())
    })?;
    writeln!(out)?;
    table(out, |out| {
        write!(out, "{FAINT}{:26}", "write-back afterwards")?;
        for _ in PHASES {
            write!(out, "{:>9}{:>9}", "sync", if rounds > 1 { "spread" } else { "" })?;
        }
        writeln!(out, "{FAINT:#}")?;
        for at in 0..document.subjects.len() {
            write!(out, "{}{:10}", name(document, at), "")?;
            for phase in PHASES {
                let taken: Vec<f64> = of(details, at, phase).map(|phase| phase.elapsed_seconds).collect();
                let sync = median(of(details, at, phase).map(|phase| phase.sync_seconds));
                let sync = if taken.is_empty() { "–".to_owned() } else { format_duration(sync) };
                let spread = match taken.len() {
                    0 | 1 => String::new(),
                    _ => format!("± {:.0} %", 100.0 * Spread::of(&taken).normalised_deviation),
                };
                write!(out, "{}{FAINT}{}{FAINT:#}", right(&sync, 9), right(&spread, 9))?;
            }
            writeln!(out)?;
        }
        Ok(())
    })?;
    match rounds {
        0 | 1 => Ok(()),
        _ => faint("Spread: standard deviation over the mean.", out),
    }
}

/// Times of single operations.
fn write_times(document: &Document, details: &CreateDetails, out: &mut dyn Write) -> io::Result<()> {
    for phase in PHASES {
        if details.phases.iter().all(|passed| passed.phase != phase) {
            continue;
        }
        let order = if phase == "delete" { format!(", {}", order(&details.order)) } else { String::new() };
        let state =
            details.phases.iter().find(|passed| passed.phase == phase).map_or("", |passed| caches(passed.caches));
        heading(&format!("Time per {phase}{order}; caches {state}"), out)?;
        table(out, |out| {
            writeln!(
                out,
                "{FAINT}{:16}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{FAINT:#}",
                "", "50 %", "90 %", "99 %", "99.9 %", "longest", "first", "last"
            )?;
            for at in 0..document.subjects.len() {
                if of(details, at, phase).next().is_none() {
                    continue;
                }
                write!(out, "{}", name(document, at))?;
                let figures: [fn(&CreatePhase) -> f64; 7] = [
                    |phase| phase.latencies.p50_ns as f64,
                    |phase| phase.latencies.p90_ns as f64,
                    |phase| phase.latencies.p99_ns as f64,
                    |phase| phase.latencies.p999_ns as f64,
                    |phase| phase.latencies.max_ns as f64,
                    |phase| phase.latencies.first_mean_ns,
                    |phase| phase.latencies.last_mean_ns,
                ];
                for figure in figures {
                    let value = median(of(details, at, phase).map(figure));
                    write!(out, "{}", right(&format_duration(value / 1e9), 9))?;
                }
                writeln!(out)?;
            }
            Ok(())
        })?;
    }
    faint("First, last: mean of the first and last 1,000.", out)
}

fn order(name: &str) -> &'static str {
    match name {
        "reverse" => "in reverse order",
        "random" => "in random order",
        "name" => "by name",
        "listed" => "in directory order",
        _ => "in creation order",
    }
}

/// The n-th operation, in the first round: how the mean time changes on the way.
fn write_curves(document: &Document, details: &CreateDetails, out: &mut dyn Write) -> io::Result<()> {
    heading("Time of the n-th operation, first to last (log scale of means)", out)?;
    let columns = bar_columns(CURVE_COLUMNS, 1);
    table(out, |out| {
        for at in 0..document.subjects.len() {
            for phase in PHASES {
                let Some(passed) = of(details, at, phase).next() else { continue };
                let means = means(&passed.latencies.curve, columns);
                let low = means.iter().copied().fold(f64::INFINITY, f64::min);
                let high = means.iter().copied().fold(0.0, f64::max);
                if means.is_empty() {
                    continue;
                }
                writeln!(
                    out,
                    "{} {phase:7}{TIMES}{}{TIMES:#}{FAINT}{}{FAINT:#}",
                    name(document, at),
                    left(&line(&means, low, high), columns),
                    right(&format!("{}–{}", format_duration(low / 1e9), format_duration(high / 1e9)), 18),
                )?;
            }
        }
        Ok(())
    })
}

/// The mean of the operations in each column.
fn means(curve: &[CurveBin], columns: usize) -> Vec<f64> {
    let columns = curve.len().min(columns);
    let column = |at: usize| {
        let bins = &curve[at * curve.len() / columns..(at + 1) * curve.len() / columns];
        let (sum, count) =
            bins.iter().fold((0.0, 0), |(sum, count), bin| (sum + bin.mean_ns * bin.count as f64, count + bin.count));
        sum / (count as f64).max(1.0)
    };
    (0..columns).map(column).collect()
}

/// Values as blocks of eight heights, by their logarithms: each step is the same factor.
pub(super) fn line(values: &[f64], low: f64, high: f64) -> String {
    const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let low = low.max(1e-9);
    let octaves = (high / low).max(LEAST_RATIO).ln();
    let height = |value: &f64| HEIGHTS[(((value / low).max(1.0).ln() / octaves * 7.0).round() as usize).min(7)];
    values.iter().map(height).collect()
}

fn write_limits(details: &CreateDetails, out: &mut dyn Write) -> io::Result<()> {
    let mut said = Vec::new();
    for limit in details.phases.iter().filter_map(|phase| phase.limit.as_ref()) {
        if !said.contains(&limit) {
            said.push(limit);
            prose(&format!("{limit}; {} were requested.", format_count(details.files.into())), out)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_is_a_line_of_blocks() {
        assert_eq!(line(&[1.0, 2.0, 4.0, 8.0], 1.0, 8.0), "▁▃▆█");
        assert_eq!(line(&[1.0, 1e7], 1.0, 1e7), "▁█");
        assert_eq!(line(&[100.0, 105.0], 100.0, 105.0), "▁▁");
        assert_eq!(line(&[0.0, 0.0], 0.0, 0.0), "▁▁");
        let bin = |first, mean_ns| CurveBin { first, count: 2, mean_ns, min_ns: 0, max_ns: 9 };
        assert_eq!(means(&[bin(0, 1.0), bin(2, 3.0)], CURVE_COLUMNS), [1.0, 3.0]);
        let many: Vec<CurveBin> = (0..2 * CURVE_COLUMNS as u64).map(|at| bin(at * 2, at as f64)).collect();
        let many = means(&many, CURVE_COLUMNS);
        assert_eq!((many.len(), many[0], many[37]), (38, 0.5, 74.5));
        assert_eq!(means(&[], CURVE_COLUMNS), Vec::<f64>::new());
    }

    #[test]
    fn the_title_says_what_was_done() {
        let details = CreateDetails { files: 327_800, ..CreateDetails::default() };
        assert_eq!(title(&details), "327,800 empty files in one directory");
        let details = CreateDetails { size_bytes: 20_000, directory_files: 1000, ..details };
        assert_eq!(title(&details), "327,800 files of 19.5 KiB in directories of 1,000");
    }
}
