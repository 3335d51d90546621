//! What grew between two surveys of one tree, on a terminal.

use std::io::{self, Write};

use super::chart::right;
use super::paragraphs::{FAINT, faint, heading, prose};
use super::table::table;
use crate::survey::growth::{Bounds, Change, Changed, Growth, SizeChange};
use crate::units::{SECONDS_A_DAY, format_count, format_duration, format_size};

/// Rows of each list.
const SHOWN: usize = 10;
/// Ranges of sizes that are shown.
const SIZES_SHOWN: usize = 8;

/// The difference in a sentence or two, by size, and where most of it is.
pub(super) fn write_growth(growth: &Growth, out: &mut dyn Write) -> io::Result<()> {
    sentences(growth).iter().try_for_each(|sentence| prose(sentence, out))?;
    let directories = &growth.directories;
    let rows = merged(directories, |row| row.path.clone());
    let rows = rows.into_iter().map(|row| (row.path.clone(), bounded(row.files, count), bounded(row.size_bytes, size)));
    list("Directories that changed most, with everything below", "directory", rows.collect(), out)?;
    let change = |change: Change| (count(change.files), size(change.size_bytes));
    let owners = merged(&growth.owners, |row| row.uid).into_iter().map(|row| {
        let (files, bytes) = change(row.change);
        let name = row.name.as_ref().map_or_else(|| row.uid.to_string(), |name| format!("{name} ({})", row.uid));
        (name, files, bytes)
    });
    list("Owners", "owner", owners.collect(), out)?;
    let extensions = merged(&growth.extensions, |row| row.extension.clone()).into_iter().map(|row| {
        let (files, bytes) = change(row.change);
        let name = match row.extension.as_str() {
            "" => "(none)".to_owned(),
            word if word.starts_with('(') => word.to_owned(),
            word => format!(".{word}"),
        };
        (name, files, bytes)
    });
    list("File types, by extension", "extension", extensions.collect(), out)?;
    sizes(&growth.by_size, out)?;
    growth.notes.iter().try_for_each(|note| faint(&format!("Note: {note}."), out))
}

/// The difference, and what was written.
pub(super) fn sentences(growth: &Growth) -> Vec<String> {
    let mut sentences = vec![sentence(growth)];
    if let Some(written) = growth.written {
        let (files, bytes) = (format_count(written.files), format_size(written.size_bytes));
        sentences.push(format!("Of the files that are there now, {files} with {bytes} were written in that time."));
    }
    sentences
}

/// The whole difference.
fn sentence(growth: &Growth) -> String {
    let Change { files, size_bytes, allocated_bytes } = growth.total;
    let time = match growth.elapsed_seconds {
        Some(seconds) if seconds > 0 => format!("In {} between the surveys: ", duration(seconds)),
        _ => String::new(),
    };
    let mut text =
        format!("{time}{} file{} and {} net", count(files), if files.abs() == 1 { "" } else { "s" }, size(size_bytes));
    if allocated_bytes != size_bytes {
        text.push_str(&format!(" ({} allocated)", size(allocated_bytes)));
    }
    let days = growth.elapsed_seconds.map_or(0.0, |seconds| seconds as f64 / SECONDS_A_DAY as f64);
    if days >= 2.0 {
        let bytes_a_day = (size_bytes as f64 / days).round() as i128;
        text.push_str(&format!(", {} files and {} a day", files_a_day(files as f64 / days), size(bytes_a_day)));
    }
    text.push('.');
    text
}

/// A number a day, with its sign; of few, three digits.
pub(super) fn files_a_day(number: f64) -> String {
    let digits = match number.abs() {
        few if (0.001..0.9995).contains(&few) => 3,
        few if (0.9995..9.995).contains(&few) => 2,
        few if (9.995..99.95).contains(&few) => 1,
        _ => return count(number.round() as i128),
    };
    format!("{}{:.digits$}", if number < 0.0 { '−' } else { '+' }, number.abs())
}

/// Days where there are some.
fn duration(seconds: i64) -> String {
    let days = seconds as f64 / SECONDS_A_DAY as f64;
    if days < 1.0 {
        format_duration(seconds as f64)
    } else {
        format!("{} day{}", (days * 10.0).round() / 10.0, if days < 1.05 { "" } else { "s" })
    }
}

/// A number with its sign.
pub(super) fn count(number: i128) -> String {
    signed(number, format_count)
}

/// A difference of sizes with its sign.
pub(super) fn size(bytes: i128) -> String {
    signed(bytes, format_size)
}

fn signed(number: i128, format: impl Fn(u128) -> String) -> String {
    let sign = match number {
        0 => "±",
        1.. => "+",
        _ => "−",
    };
    format!("{sign}{}", format(number.unsigned_abs()))
}

/// A difference, or at least how large it is.
fn bounded(bounds: Bounds, format: fn(i128) -> String) -> String {
    match bounds {
        _ if bounds.is_exact() => format(bounds.least),
        _ if bounds.sure() == 0 => "?".to_owned(),
        _ => format!("≥ {}", format(bounds.sure())).replace("≥ −", "≤ −"),
    }
}

/// The rows that come first by either figure, each once.
fn merged<R, K: PartialEq>(changed: &Changed<R>, key: impl Fn(&R) -> K) -> Vec<&R> {
    let mut rows: Vec<&R> = changed.by_size.iter().take(SHOWN).collect();
    let most_files = changed.by_files.iter().take(SHOWN / 2);
    for row in most_files {
        if rows.iter().all(|known| key(known) != key(row)) {
            rows.push(row);
        }
    }
    rows
}

fn list(title: &str, label: &str, rows: Vec<(String, String, String)>, out: &mut dyn Write) -> io::Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    heading(title, out)?;
    table(out, |out| {
        writeln!(out, "{FAINT}{:>16}{:>16}\t{label}{FAINT:#}", "files", "size")?;
        for (name, files, bytes) in rows {
            writeln!(out, "{}{}\t{name}", right(&files, 16), right(&bytes, 16))?;
        }
        Ok(())
    })
}

/// The ranges of sizes that changed most, in the order of sizes.
fn sizes(rows: &[SizeChange], out: &mut dyn Write) -> io::Result<()> {
    let mut most: Vec<&SizeChange> = rows.iter().collect();
    most.sort_by_key(|row| std::cmp::Reverse(row.size_bytes.unsigned_abs()));
    let mut chosen: Vec<&SizeChange> = most.iter().take(SIZES_SHOWN / 2).copied().collect();
    most.sort_by_key(|row| std::cmp::Reverse(row.files.unsigned_abs()));
    for row in most {
        if chosen.len() < SIZES_SHOWN && !chosen.contains(&row) {
            chosen.push(row);
        }
    }
    chosen.sort_by_key(|row| row.low);
    let rows = chosen.into_iter().map(|row| {
        let range = match row.low {
            0 => "empty".to_owned(),
            low => format!("{} up to {}", format_size(low), format_size(row.high)),
        };
        (range, count(row.files), size(row.size_bytes))
    });
    list("By size of the files", "size of a file", rows.collect(), out)
}
