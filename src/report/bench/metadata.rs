//! `bench metadata` on a terminal: checks, listing and reads in one table, the load in others, with the source's
//! figures beside them.

use std::io::{self, Write};

use super::{FAINT, HEAD_COLUMNS, NAME_COLUMNS, TIMES, caches, faint, heading, name, prose, short_name, table};
use crate::bench::metadata::published::{Figure, figure};
use crate::bench::result::{Document, LoadPoint, MetadataDetails, Series, Subject};
use crate::bench::samples::Spread;
use crate::report::chart::{columns as output_columns, left, right};
use crate::units::{format_count, format_duration, format_size};

const FIGURE_COLUMNS: usize = 10;
/// Subjects side by side, and the width of each.
const SUBJECTS_BESIDE: usize = 5;
const SUBJECT_COLUMNS: usize = HEAD_COLUMNS + 1;
/// Prefix of a load that was not sustained.
const TOO_MUCH: &str = "only ";

type OfFigure = fn(&Figure) -> f64;
type OfPoint = fn(&LoadPoint) -> f64;

pub(super) fn title(details: &MetadataDetails) -> String {
    let listed = match details.listed {
        0 => String::new(),
        listed => format!(", and {} in one directory", format_count(listed.into())),
    };
    format!(
        "Metadata operations on {} files like {} ({}){listed}",
        format_count(details.files.into()),
        details.source,
        format_size(details.size_bytes.into())
    )
}

pub(super) fn write(document: &Document, details: &MetadataDetails, out: &mut dyn Write) -> io::Result<()> {
    write_cold(document, details, out)?;
    if !details.load_points.is_empty() {
        write_peaks(document, details, out)?;
        write_responses(document, details, out)?;
        write_operations(document, details, out)?;
    }
    write_speed_ups(document, details, out)?;
    for limit in &details.limits {
        prose(limit, out)?;
    }
    Ok(())
}

/// How many subjects fit side by side.
fn subjects_beside() -> usize {
    ((output_columns() - NAME_COLUMNS + 1) / SUBJECT_COLUMNS).min(SUBJECTS_BESIDE)
}

fn rate(value: f64) -> String {
    format!("{}/s", format_count(value.round() as u128))
}

/// A column of the first table.
struct Column {
    measure: String,
    heads: [String; 2],
    /// The source's name for the same.
    published: &'static str,
}

/// The columns that have measurements.
fn columns(document: &Document, details: &MetadataDetails) -> Vec<Column> {
    let threads = details.threads;
    let column = |measure: &str, first: &str, second: &str, published| Column {
        measure: measure.to_owned(),
        heads: [first.to_owned(), second.to_owned()],
        published,
    };
    let all = [
        column("check", "full", "check", "check"),
        column("deep check", "every", "byte", ""),
        column("list", "directory", "ls -l", "list"),
        column("reads, 1 thread", "reads,", "1 thread", "reads"),
        column(&format!("reads, {threads} threads"), "reads,", &format!("{threads} thr."), ""),
        column("reads, together", "reads,", "together", ""),
    ];
    let is_measured = |column: &Column| document.series.iter().any(|series| series.measure == column.measure);
    all.into_iter().filter(is_measured).collect()
}

/// Phases before which the caches were dropped, where that was possible.
fn write_cold(document: &Document, details: &MetadataDetails, out: &mut dyn Write) -> io::Result<()> {
    let columns = columns(document, details);
    if columns.is_empty() {
        return Ok(());
    }
    let is_here = |series: &&Series| columns.iter().any(|column| column.measure == series.measure);
    let state = document.series.iter().find(is_here).map_or("", |series| caches(series.caches));
    heading(&format!("Full check, large directory, whole small files, caches {state}; medians"), out)?;
    table(out, |out| {
        for line in 0..2 {
            write!(out, "{FAINT}{}", left("", NAME_COLUMNS))?;
            for column in &columns {
                write!(out, "{}", right(&column.heads[line], FIGURE_COLUMNS))?;
            }
            writeln!(out, "{FAINT:#}")?;
        }
        for at in 0..document.subjects.len() {
            let found: Vec<Option<&Series>> =
                columns.iter().map(|column| document.series_of(at, &column.measure)).collect();
            write!(out, "{}", name(document, at))?;
            for series in &found {
                let text = series.map_or("–".to_owned(), |series| match series.unit.as_str() {
                    "seconds" => format_duration(series.spread.median),
                    _ => rate(series.spread.median),
                });
                write!(out, "{}", right(&text, FIGURE_COLUMNS))?;
            }
            writeln!(out)?;
            if found.iter().flatten().any(|series| series.spread.count > 1) {
                write!(out, "{FAINT}{}", left("", NAME_COLUMNS))?;
                for series in &found {
                    let text = series.map_or(String::new(), |series| {
                        format!("± {:.0} %", 100.0 * series.spread.normalised_deviation)
                    });
                    write!(out, "{}", right(&text, FIGURE_COLUMNS))?;
                }
                writeln!(out, "{FAINT:#}")?;
            }
        }
        write_published_cold(&columns, out)
    })
}

fn write_published_cold(columns: &[Column], out: &mut dyn Write) -> io::Result<()> {
    let published: Vec<Option<Figure>> = columns.iter().map(|column| figure(column.published)).collect();
    if published.iter().all(Option::is_none) {
        return Ok(());
    }
    writeln!(out, "\t{FAINT}Welch and Noer (2013): 20 million files checked, a million listed, 60,000 read{FAINT:#}")?;
    let figures: [(&str, OfFigure); 2] =
        [("all on disks", |figure| figure.all_disk), ("hybrid", |figure| figure.hybrid)];
    for (label, of) in figures {
        write!(out, "{TIMES}{}", left(label, NAME_COLUMNS))?;
        for figure in &published {
            let text = figure.as_ref().map_or("–".to_owned(), |figure| match figure.unit.as_str() {
                "seconds" => format_duration(of(figure)),
                _ => rate(of(figure)),
            });
            write!(out, "{}", right(&text, FIGURE_COLUMNS))?;
        }
        writeln!(out, "{TIMES:#}")?;
    }
    Ok(())
}

/// The highest achieved load, and response times.
fn write_peaks(document: &Document, details: &MetadataDetails, out: &mut dyn Write) -> io::Result<()> {
    let mix = details.mix.iter().map(|share| format!("{} {:.3}", share.operation, 100.0 * share.fraction));
    let mix: Vec<String> = mix.map(|text| text.trim_end_matches('0').trim_end_matches('.').to_owned()).collect();
    heading("Operation mix, offered at rising rates (open loop)", out)?;
    let facts = format!(
        "Per cent: {}. {} threads; each load measured for {} after {} of warm-up. At ½: at the largest load up to half of the peak.",
        mix.join(", "),
        details.threads,
        format_duration(details.window_seconds),
        format_duration(details.warm_up_seconds),
    );
    faint(&facts, out)?;
    table(out, |out| {
        writeln!(
            out,
            "{FAINT}{}{:>14}{:>9}{:>16}{:>12}{:>12}{FAINT:#}",
            left("", NAME_COLUMNS),
            "peak rate",
            "",
            "mean response",
            "median at ½",
            "99 % at ½",
        )?;
        for at in 0..document.subjects.len() {
            let Some(peak) = document.series_of(at, "peak load") else { continue };
            let spread = if peak.spread.count > 1 {
                format!("± {:.0} %", 100.0 * peak.spread.normalised_deviation)
            } else {
                String::new()
            };
            let response = document.series_of(at, "overall response time");
            let half = half_load(details, at, peak.spread.median);
            let time = |value: Option<f64>| value.map_or("–".to_owned(), format_duration);
            writeln!(
                out,
                "{}{}{FAINT}{}{FAINT:#}{}{}{}",
                name(document, at),
                right(&rate(peak.spread.median), 14),
                right(&spread, 9),
                right(&time(response.map(|series| series.spread.median)), 16),
                right(&time(half.map(|(p50, _)| p50)), 12),
                right(&time(half.map(|(_, p99)| p99)), 12),
            )?;
        }
        let Some(sfs) = figure("sfs") else { return Ok(()) };
        writeln!(out, "\t{FAINT}Welch and Noer (2013), SPEC SFS 2008 on a ten-blade chassis{FAINT:#}")?;
        let response = sfs.response_ms.unwrap_or_default();
        for (label, most, response_ms) in
            [("all on disks", sfs.all_disk, response.0), ("hybrid", sfs.hybrid, response.1)]
        {
            writeln!(
                out,
                "{TIMES}{}{}{:9}{}{TIMES:#}",
                left(label, NAME_COLUMNS),
                right(&rate(most), 14),
                "",
                right(&format_duration(response_ms / 1e3), 16)
            )?;
        }
        Ok(())
    })
}

/// Median and 99th percentile of the response time at the largest load up to half of the achieved one.
fn half_load(details: &MetadataDetails, subject: usize, peak: f64) -> Option<(f64, f64)> {
    let of = |point: &&LoadPoint| point.subject == subject && point.offered_per_second <= peak / 2.0;
    let offered = details.load_points.iter().filter(of).map(|point| point.offered_per_second).fold(0.0, f64::max);
    let points: Vec<&LoadPoint> =
        details.load_points.iter().filter(of).filter(|point| point.offered_per_second == offered).collect();
    let median = |value: fn(&LoadPoint) -> f64| {
        Spread::of(&points.iter().map(|point| value(point) / 1e3).collect::<Vec<_>>()).median
    };
    (!points.is_empty()).then(|| (median(|point| point.p50_ms), median(|point| point.p99_ms)))
}

/// Mean and 99th percentile of the response time at each load.
fn write_responses(document: &Document, details: &MetadataDetails, out: &mut dyn Write) -> io::Result<()> {
    let mut rates: Vec<f64> = details.load_points.iter().map(|point| point.offered_per_second).collect();
    rates.sort_by(f64::total_cmp);
    rates.dedup();
    let subjects: Vec<usize> = (0..document.subjects.len()).collect();
    let figures: [(&str, OfPoint); 2] = [
        ("Mean response time, from the scheduled time", |point| point.response_ms),
        ("99th percentile of the response time", |point| point.p99_ms),
    ];
    for (what, value) in figures {
        for beside in subjects.chunks(subjects_beside()) {
            heading(&format!("{what} (only …: rate achieved, a second)"), out)?;
            table(out, |out| {
                write_heads("offered", beside, &document.subjects, out)?;
                for &offered in &rates {
                    let of = |at: usize| -> Vec<&LoadPoint> {
                        let is_it = |point: &&LoadPoint| point.subject == at && point.offered_per_second == offered;
                        details.load_points.iter().filter(is_it).collect()
                    };
                    if beside.iter().all(|&at| of(at).is_empty()) {
                        continue;
                    }
                    write!(out, "{TIMES}{}{TIMES:#}", right(&rate(offered), NAME_COLUMNS - 1))?;
                    for &at in beside {
                        write!(out, "{}", right(&response(&of(at), value), SUBJECT_COLUMNS))?;
                    }
                    writeln!(out)?;
                }
                Ok(())
            })?;
        }
    }
    Ok(())
}

/// A response time; for an excessive load, how much of it was achieved.
fn response(points: &[&LoadPoint], value: fn(&LoadPoint) -> f64) -> String {
    let median = |value: &dyn Fn(&LoadPoint) -> f64| {
        Spread::of(&points.iter().map(|point| value(point)).collect::<Vec<_>>()).median
    };
    let share = median(&|point| point.achieved_per_second / point.offered_per_second);
    match points {
        [] => "–".to_owned(),
        _ if share < crate::bench::metadata::SUSTAINED_FRACTION => {
            let achieved = rate(median(&|point| point.achieved_per_second));
            format!("{TOO_MUCH}{}", achieved.trim_end_matches("/s"))
        }
        _ => format_duration(median(&|point| value(point)) / 1e3),
    }
}

fn write_heads(label: &str, beside: &[usize], subjects: &[Subject], out: &mut dyn Write) -> io::Result<()> {
    write!(out, "{FAINT}{}", right(label, NAME_COLUMNS - 1))?;
    for &at in beside {
        write!(out, "{}", right(&short_name(subjects, at, HEAD_COLUMNS), SUBJECT_COLUMNS))?;
    }
    writeln!(out, "{FAINT:#}")
}

/// Service times of operations, at the first load of each subject.
fn write_operations(document: &Document, details: &MetadataDetails, out: &mut dyn Write) -> io::Result<()> {
    let subjects: Vec<usize> = (0..document.subjects.len()).collect();
    let lowest = details.load_points.iter().map(|point| point.offered_per_second).fold(f64::INFINITY, f64::min);
    for beside in subjects.chunks(subjects_beside()) {
        heading(&format!("Operation times without queueing, at {}; means", rate(lowest)), out)?;
        table(out, |out| {
            write_heads("", beside, &document.subjects, out)?;
            for share in &details.mix {
                write!(out, "{TIMES}{}{TIMES:#}", right(&share.operation, NAME_COLUMNS - 1))?;
                for &at in beside {
                    let of = details
                        .load_points
                        .iter()
                        .filter(|point| point.subject == at && point.offered_per_second == lowest);
                    let all = of.flat_map(|point| &point.operations).filter(|time| time.operation == share.operation);
                    let (sum, count) = all.fold((0.0, 0), |(sum, count), time| {
                        (sum + time.mean_ms * time.count as f64, count + time.count)
                    });
                    let text = if count == 0 { "–".to_owned() } else { format_duration(sum / count as f64 / 1e3) };
                    write!(out, "{}", right(&text, SUBJECT_COLUMNS))?;
                }
                writeln!(out)?;
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// The speed of each subject relative to the reference: the store on slow devices, or the first subject.
fn write_speed_ups(document: &Document, details: &MetadataDetails, out: &mut dyn Write) -> io::Result<()> {
    let reference = document.subjects.iter().position(|subject| subject.name == "granulo slow").unwrap_or(0);
    let (Some(of), 2..) = (document.subjects.get(reference), document.subjects.len()) else { return Ok(()) };
    let several = format!("reads, {} threads", details.threads);
    let all = [
        ("peak load", "load", "sfs"),
        ("check", "check", "check"),
        ("list", "list", "list"),
        ("reads, 1 thread", "reads", "reads"),
        (several.as_str(), "concurrent", ""),
    ];
    let is_measured = |(measure, ..): &(&str, &str, &str)| document.series_of(reference, measure).is_some();
    let measures: Vec<_> = all.into_iter().filter(is_measured).collect();
    if measures.is_empty() {
        return Ok(());
    }
    heading(&format!("Speed-up over {}", of.name), out)?;
    table(out, |out| {
        write!(out, "{FAINT}{}", left("", NAME_COLUMNS))?;
        for (_, head, _) in &measures {
            write!(out, "{}", right(head, SUBJECT_COLUMNS))?;
        }
        writeln!(out, "{FAINT:#}")?;
        for at in (0..document.subjects.len()).filter(|at| *at != reference) {
            write!(out, "{}", name(document, at))?;
            for (measure, ..) in &measures {
                let ratio =
                    document.series_of(at, measure).zip(document.series_of(reference, measure)).map(|(mine, other)| {
                        let ratio = mine.spread.median / other.spread.median.max(f64::MIN_POSITIVE);
                        if mine.unit == "seconds" { 1.0 / ratio } else { ratio }
                    });
                write!(out, "{}", right(&ratio.map_or("–".to_owned(), times), SUBJECT_COLUMNS))?;
            }
            writeln!(out)?;
        }
        write!(out, "{TIMES}{}", left("Welch and Noer", NAME_COLUMNS))?;
        for (.., benchmark) in &measures {
            write!(
                out,
                "{}",
                right(&figure(benchmark).map_or("–".to_owned(), |figure| times(figure.speed_up())), SUBJECT_COLUMNS)
            )?;
        }
        writeln!(out, "{TIMES:#}")
    })
}

/// A ratio with about three digits.
fn times(ratio: f64) -> String {
    match ratio {
        ratio if ratio >= 99.5 => format_count(ratio.round() as u128),
        ratio if ratio >= 9.95 => format!("{ratio:.1}"),
        ratio => format!("{ratio:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::result::{CacheState, Details, Harness, Host, SubjectKind};
    use crate::report::bench::words::sentences;
    use crate::report::chart::COLUMNS;

    #[test]
    fn tables_fit_a_terminal() {
        const { assert!(NAME_COLUMNS + 6 * FIGURE_COLUMNS <= COLUMNS) };
        const { assert!(NAME_COLUMNS - 1 + SUBJECTS_BESIDE * SUBJECT_COLUMNS <= COLUMNS) };
        const { assert!(NAME_COLUMNS + 14 + 9 + 16 + 12 + 12 <= COLUMNS) };
    }

    #[test]
    fn caches_that_were_not_dropped_are_not_called_cold() {
        let details = MetadataDetails { threads: 4, ..MetadataDetails::default() };
        let subject = Subject {
            name: "place".to_owned(),
            kind: SubjectKind::Directory,
            path: String::new(),
            file_system: Default::default(),
            device: Default::default(),
            further_devices: Vec::new(),
            fill_before: 0.0,
            fill_after: 0.0,
        };
        let series = |measure: &str, unit: &str| Series::new(0, measure, unit, CacheState::AsIs, vec![2.0]);
        let document = Document {
            schema: String::new(),
            granulo_version: String::new(),
            granulo_commit: None,
            started_at: String::new(),
            elapsed_seconds: 0.0,
            complete: true,
            command_line: Vec::new(),
            seed: 0,
            host: Host::default(),
            tools: Vec::new(),
            harness: Harness::default(),
            subjects: vec![subject],
            series: vec![series("list", "seconds"), series("reads, 1 thread", "operations/s")],
            notes: Vec::new(),
            details: Details::Metadata(details.clone()),
        };
        let mut out = Vec::new();
        write(&document, &details, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap() + &sentences(&document).concat();
        assert!(text.contains("caches not dropped") && text.contains("Reads of small files"), "{text}");
        assert!(!text.to_lowercase().contains("cold"), "{text}");
    }

    #[test]
    fn ratios_have_three_digits() {
        assert_eq!([8.064, 23.94, 1234.4, 0.5].map(times), ["8.06", "23.9", "1,234", "0.50"]);
    }

    #[test]
    fn the_title_says_what_the_files_are() {
        let details = MetadataDetails {
            files: 50_000,
            source: "vu-2005".to_owned(),
            size_bytes: 1 << 30,
            listed: 1_000_000,
            ..MetadataDetails::default()
        };
        assert_eq!(
            title(&details),
            "Metadata operations on 50,000 files like vu-2005 (1 GiB), and 1,000,000 in one directory"
        );
    }
}
