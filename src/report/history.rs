//! Histories of trees: tables and curves on a terminal, and CSV.

use std::io::{self, Write};

use super::chart::{bar, columns, left, right, shorten};
use super::csv::quoted;
use super::growth::{files_a_day, size};
use super::paragraphs::{FAINT, HEADING, faint, heading, prose};
use super::table::{bar_columns, table};
use crate::survey::history::{Forecast, History, Point, Resource, TreeHistory};
use crate::units::{format_count, format_share, format_size, fraction};

/// Rows of a table.
const ROWS: usize = 30;
/// Columns of a bar.
const BAR: usize = 22;

/// Each tree with its surveys, curves, growth, and when it will be full.
///
/// # Errors
/// Any error of `out`.
pub(crate) fn write_history(history: &History, out: &mut dyn Write) -> io::Result<()> {
    for (index, tree) in history.trees.iter().enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        write_tree(tree, out)?;
    }
    Ok(())
}

fn write_tree(tree: &TreeHistory, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{HEADING}{}{HEADING:#}", shorten(&title(tree), columns()))?;
    let (Some(first), Some(last)) = (tree.points.first(), tree.points.last()) else { return Ok(()) };
    let surveys = format_count(tree.points.len() as u128);
    match tree.points.len() {
        1 => faint(&format!("1 survey, {}", first.taken_at), out)?,
        _ => faint(&format!("{surveys} surveys, {} to {}", first.taken_at, last.taken_at), out)?,
    }
    writeln!(out)?;
    for sentence in sentences(tree) {
        prose(&sentence, out)?;
    }
    write_table(tree, out)?;
    if tree.anonymous { Ok(()) } else { write_curves(tree, out) }
}

/// How a tree grows, and when its file system will be full; or why that is unknown.
pub(super) fn sentences(tree: &TreeHistory) -> Vec<String> {
    let mut sentences = growth(tree);
    if tree.anonymous && tree.points.len() > 1 {
        sentences.push(
            "These surveys are anonymous: they do not say of which tree they are, so nothing is computed across them. \
             Surveys with a name (granulo survey without --anonymous) have growth and curves."
                .to_owned(),
        );
    } else if tree.files.is_none() {
        sentences.push("Growth needs surveys that are at least a day apart.".to_owned());
    }
    sentences.extend(tree.forecasts.iter().map(full));
    sentences
}

/// Its name, and its host if that is known.
pub(super) fn title(tree: &TreeHistory) -> String {
    match &tree.host {
        Some(host) => format!("{} on {host}", tree.name),
        None => tree.name.clone(),
    }
}

fn growth(tree: &TreeHistory) -> Vec<String> {
    let (Some(files), Some(bytes)) = (tree.files, tree.size_bytes) else { return Vec::new() };
    let when = if bytes.recent_per_day.is_some() { "in the last 30 days" } else { "over all surveys" };
    let mut sentences = vec![format!(
        "{} files and {} a day {when}.",
        files_a_day(files.current()),
        size(bytes.current().round() as i128)
    )];
    if bytes.recent_per_day.is_some() {
        let (files, bytes) = (files_a_day(files.per_day), size(bytes.per_day.round() as i128));
        sentences.push(format!("Over all surveys: {files} files and {bytes} a day."));
    }
    sentences
}

fn full(forecast: &Forecast) -> String {
    let per_day = forecast.trend.current();
    let (left, per_day) = match forecast.of {
        Resource::Bytes => (format_size(forecast.left.into()), size(per_day.round() as i128)),
        Resource::Inodes => (format!("{} inodes", format_count(forecast.left.into())), files_a_day(per_day)),
    };
    let left = format!("The file system has {left} left and");
    match (forecast.days, &forecast.full_at) {
        (Some(days), Some(at)) => {
            let day = at.split('T').next().unwrap_or_default();
            format!("{left} changes by {per_day} a day: full in {days:.0} days, on {day}.")
        }
        _ if forecast.trend.current() > 0.0 => {
            format!("{left} changes by {per_day} a day: not full within 27 years at this rate.")
        }
        _ if forecast.trend.current() < 0.0 => format!("{left} changes by {per_day} a day: never full at this rate."),
        _ => format!("{left} does not change: never full at this rate."),
    }
}

/// At most [`ROWS`] points, evenly chosen, the last with them.
fn chosen(points: &[Point]) -> Vec<&Point> {
    let step = points.len().div_ceil(ROWS).max(1);
    let mut rows: Vec<&Point> = points.iter().rev().step_by(step).collect();
    rows.reverse();
    rows
}

/// Columns of times that tell the rows apart: to the minute, else to the second.
fn time_columns(rows: &[&Point]) -> usize {
    const TO_THE_MINUTE: usize = 16;
    let minute = |point: &Point| point.taken_at.get(..TO_THE_MINUTE).map(str::to_owned);
    let is_same = |pair: &[&Point]| minute(pair[0]) == minute(pair[1]);
    if rows.windows(2).any(is_same) { TO_THE_MINUTE + 3 } else { TO_THE_MINUTE }
}

fn write_table(tree: &TreeHistory, out: &mut dyn Write) -> io::Result<()> {
    let rows = chosen(&tree.points);
    heading("Files and bytes by survey", out)?;
    let most = tree.points.iter().map(|point| point.size_bytes).max().unwrap_or(0);
    let when = time_columns(&rows);
    table(out, |out| {
        writeln!(out, "{FAINT}{:when$}{:>14}{:>12}{:>12}  size{FAINT:#}", "taken (UTC)", "files", "size", "in use")?;
        for point in &rows {
            let used = point.fill_fraction().map(format_share).unwrap_or_default();
            let time: String = point.taken_at.replace('T', " ").chars().take(when).collect();
            writeln!(
                out,
                "{}{}{}{}  {}",
                left(&time, when),
                right(&format_count(point.files.into()), 14),
                right(&format_size(point.size_bytes), 12),
                right(&used, 12),
                bar(fraction(point.size_bytes, most), bar_columns(BAR, 1)),
            )?;
        }
        Ok(())
    })?;
    if rows.len() < tree.points.len() {
        let all = format_count(tree.points.len() as u128);
        faint(&format!("{} of {all} surveys are shown; --csv and --json have all.", rows.len()), out)?;
    }
    Ok(())
}

/// One line a figure, by time, from its least to its most.
fn write_curves(tree: &TreeHistory, out: &mut dyn Write) -> io::Result<()> {
    let (Some(first), Some(last)) = (tree.points.first(), tree.points.last()) else { return Ok(()) };
    if first.taken_at_seconds == last.taken_at_seconds {
        return Ok(());
    }
    heading("Curves by time, each from its least to its most", out)?;
    type Figure = (&'static str, fn(&Point) -> Option<u128>, fn(u128) -> String);
    let figures: [Figure; 5] = [
        ("files", |point| Some(point.files.into()), format_count),
        ("small files", |point| Some(point.small_files.into()), format_count),
        ("size", |point| Some(point.size_bytes), format_size),
        ("space in use", |point| point.used_bytes.map(u128::from), format_size),
        ("inodes in use", |point| point.used_inodes.map(u128::from), format_count),
    ];
    for (label, figure, format) in figures {
        let known: Vec<(i64, u128)> =
            tree.points.iter().filter_map(|point| Some((point.taken_at_seconds, figure(point)?))).collect();
        let (Some(least), Some(most)) = (known.iter().map(|p| p.1).min(), known.iter().map(|p| p.1).max()) else {
            continue;
        };
        let is_level = format(least) == format(most);
        let drawn: Vec<(i64, u128)> =
            known.iter().map(|&(at, value)| (at, if is_level { least } else { value })).collect();
        let curve = curve(&drawn, (first.taken_at_seconds, last.taken_at_seconds), columns() - 44);
        let ends = if is_level { format(least) } else { format!("{} to {}", format(least), format(most)) };
        writeln!(out, "{} {curve}  {FAINT}{ends}{FAINT:#}", left(label, 13))?;
    }
    Ok(())
}

/// A curve in eighths of a line; between two points, the earlier holds.
fn curve(points: &[(i64, u128)], (from, to): (i64, i64), width: usize) -> String {
    const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let (least, most) = (points.iter().map(|p| p.1).min().unwrap_or(0), points.iter().map(|p| p.1).max().unwrap_or(0));
    let level = |value: u128| {
        let share = if most > least { (value - least) as f64 / (most - least) as f64 } else { 0.0 };
        LEVELS[((share * 7.0).round() as usize).min(7)]
    };
    let column = |at: usize| {
        // The end of the column.
        let time = from + ((to - from) as f64 * (at + 1) as f64 / width as f64).round() as i64;
        points.iter().take_while(|(taken_at, _)| *taken_at <= time).last().map_or(' ', |(_, value)| level(*value))
    };
    (0..width).map(column).collect()
}

/// All points of all trees, with a line of names.
///
/// # Errors
/// Any error of `out`.
pub(crate) fn write_csv(history: &History, out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "name,host,source,taken_at,files,small_files,directories,size_bytes,allocated_bytes,capacity_bytes,used_bytes,\
         available_bytes,inodes,used_inodes"
    )?;
    for tree in &history.trees {
        for point in &tree.points {
            let texts = [&tree.name, tree.host.as_deref().unwrap_or_default(), &point.source, &point.taken_at];
            let texts = texts.map(quoted).join(",");
            let sums = format!(
                "{},{},{},{},{}",
                point.files, point.small_files, point.directories, point.size_bytes, point.allocated_bytes
            );
            let room = [point.capacity_bytes, point.used_bytes, point.available_bytes, point.inodes, point.used_inodes];
            let room = room.map(|figure| figure.map(|figure| figure.to_string()).unwrap_or_default()).join(",");
            writeln!(out, "{texts},{sums},{room}")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_holds_until_the_next_point() {
        assert_eq!(curve(&[(0, 5), (50, 12), (100, 5)], (0, 100), 4), "▁██▁");
        assert_eq!(curve(&[(0, 5), (100, 5)], (0, 100), 3), "▁▁▁");
        assert_eq!(curve(&[(60, 1), (100, 2)], (0, 100), 4), "  ▁█");
    }

    fn point(taken_at: &str) -> Point {
        serde_json::from_value(serde_json::json!({
            "source": "s", "taken_at": taken_at, "taken_at_seconds": 0, "files": 1, "small_files": 1, "directories": 1,
            "size_bytes": 1, "allocated_bytes": 1,
        }))
        .unwrap()
    }

    #[test]
    fn two_surveys_in_a_minute_have_seconds() {
        let [one, other, later] = ["2026-01-31T12:00:01Z", "2026-01-31T12:00:59Z", "2026-01-31T12:01:00Z"].map(point);
        assert_eq!(time_columns(&[&one, &later]), "2026-01-31 12:00".len());
        assert_eq!(time_columns(&[&one, &other, &later]), "2026-01-31 12:00:01".len());
    }

    #[test]
    fn what_does_not_grow_is_never_full() {
        let forecast = |per_day: f64, days| Forecast {
            of: Resource::Bytes,
            left: 1 << 30,
            trend: crate::survey::history::Trend { per_day, recent_per_day: None },
            days,
            full_at: None,
        };
        assert_eq!(
            full(&forecast(0.0, None)),
            "The file system has 1 GiB left and does not change: never full at this rate."
        );
        assert!(full(&forecast(-5.0, None)).ends_with("−5 B a day: never full at this rate."));
        assert!(full(&forecast(5.0, None)).ends_with("not full within 27 years at this rate."));
    }

    #[test]
    fn fields_with_commas_and_quotes_are_quoted() {
        assert_eq!(quoted("/a b"), "/a b");
        assert_eq!(quoted("/a,\"b\""), "\"/a,\"\"b\"\"\"");
    }
}
