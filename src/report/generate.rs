//! What `granulo generate` plans and makes, on a terminal.

use std::io::{self, Write};

use super::chart::{columns, right, shorten};
use super::paragraphs::{FAINT, HEADING, faint, heading, prose};
use super::table::table;
use crate::population::document::{Aging, Document, MadeFiles, MeasureDistance};
use crate::population::extents::Fragmentation;
use crate::progress::Snapshot;
use crate::survey::measure::Measure;
use crate::units::{format_count, format_counted, format_share, format_size};

/// The plan: what will be made, the space it needs, the space that stays free.
///
/// # Errors
/// Any error of `out`.
pub(crate) fn write_plan(document: &Document, out: &mut dyn Write) -> io::Result<()> {
    let plan = &document.plan;
    let title = format!("{}, like {}", shorten(&document.directory, columns() / 2), document.source);
    writeln!(out, "{HEADING}{}{HEADING:#}", shorten(&title, columns()))?;
    let mut sentences = vec![format!(
        "Planned: {} in {}, {} ({} bytes), the largest {}; {}; seed {}.",
        format_counted(plan.files, "file", "files"),
        format_counted(plan.directories, "directory", "directories"),
        format_size(plan.size_bytes),
        format_count(plan.size_bytes),
        format_size(plan.largest_bytes.into()),
        content_words(document),
        document.seed,
    )];
    if plan.size_factor != 1.0 {
        sentences.push(format!("Sizes of the source are multiplied by {}.", factor_words(plan.size_factor)));
    }
    let system = match plan.room.file_system {
        "other" => "the file system".to_owned(),
        known => known.to_owned(),
    };
    let inodes = match plan.room.available_inodes {
        Some(inodes) => format!(" and {} inodes", format_count(inodes.into())),
        None => String::new(),
    };
    sentences.push(format!(
        "Needs about {} and {} inodes on {system} with {} blocks, which has {}{inodes} available; {} will stay free.",
        format_size(plan.needed.bytes),
        format_count(plan.needed.inodes.into()),
        format_size(plan.room.unit_bytes().into()),
        format_size(plan.room.available_bytes.into()),
        format_size(plan.left_bytes),
    ));
    if let Some(operations) = plan.operations {
        sentences
            .push(format!("Then {} creations and deletions follow at this level.", format_count(operations.into())));
    }
    write_sentences(&sentences, out)
}

/// A factor with at least four digits.
fn factor_words(factor: f64) -> String {
    if factor >= 0.001 { format!("{factor:.6}") } else { format!("{factor:.3e}") }
}

/// What was made, and its distance from the source; for a dry run, the planned distance.
///
/// # Errors
/// Any error of `out`.
pub(crate) fn write_result(document: &Document, out: &mut dyn Write) -> io::Result<()> {
    if let Some(made) = &document.made {
        writeln!(out)?;
        write_sentences(&[made_words(document, made)], out)?;
    }
    if let Some(aging) = &document.aging {
        write_aging(aging, out)?;
    }
    write_distances(document, out)?;
    if !document.notes.is_empty() {
        writeln!(out)?;
        document.notes.iter().try_for_each(|note| faint(note, out))?;
    }
    Ok(())
}

fn made_words(document: &Document, made: &MadeFiles) -> String {
    let allocated = made
        .allocated_bytes
        .map(|bytes| format!(" The file system has allocated {} for the files.", format_size(bytes)));
    let there = format!(
        "{} in {}, {}",
        format_counted(made.files, "file", "files"),
        format_counted(made.directories, "directory", "directories"),
        format_size(made.size_bytes.into())
    );
    if document.aging.is_some() {
        return format!("There are {there}.{}", allocated.unwrap_or_default());
    }
    let complete = document.complete;
    let words = format!(
        "{}: {there}, in {:.2} s ({} files/s), plus {:.2} s to write back ({}/s overall).",
        if complete { "Created" } else { "Created before the interruption" },
        made.elapsed_seconds,
        format_count(made.files_per_second.round() as u128),
        made.sync_seconds,
        format_size(made.bytes_per_second.round() as u128),
    );
    words + &allocated.unwrap_or_default()
}

fn write_distances(document: &Document, out: &mut dyn Write) -> io::Result<()> {
    if document.distances.is_empty() {
        return Ok(());
    }
    let how = if document.made.is_some() { "surveyed on disk" } else { "as planned" };
    heading(&format!("Distance from the source, {how}"), out)?;
    table(out, |out| {
        writeln!(out, "{FAINT}{:>16}{:>12}{:>18}{:>12}{:>16}{FAINT:#}", "", "by count", "at", "by bytes", "at")?;
        document.distances.iter().try_for_each(|row| write_distance(row, out))
    })?;
    if document.plan.operations.is_some() {
        return Ok(());
    }
    let bounds = &document.bounds;
    let words = match bounds.met {
        Some(true) => format!(
            "Largest difference between cumulative shares (Kolmogorov-Smirnov); the target is at most {} by files and {} by bytes.",
            bounds.by_files, bounds.by_bytes
        ),
        Some(false) if bounds.least_by_bytes > bounds.by_bytes => format!(
            "The target is at most {} by files and {} by bytes. By bytes, no tree with so few files of this mean size can be closer than {:.3}: each of the largest files of the source would be too large a part of it. About {} files are needed.",
            bounds.by_files,
            bounds.by_bytes,
            bounds.least_by_bytes,
            format_count(bounds.files_for_bytes.into())
        ),
        Some(false) => {
            format!("The target is at most {} by files and {} by bytes.", bounds.by_files, bounds.by_bytes)
        }
        None => {
            let from = format!(
                "From {} files up, the target is at most {} by files and {} by bytes.",
                format_count(bounds.from_files.into()),
                bounds.by_files,
                bounds.by_bytes
            );
            let too_few = format!(
                " This source needs about {} files for that; so few cannot be closer than {:.3} by bytes.",
                format_count(bounds.files_for_bytes.into()),
                bounds.least_by_bytes
            );
            from + if bounds.least_by_bytes > bounds.by_bytes { &too_few } else { "" }
        }
    };
    faint(&words, out)
}

fn write_distance(row: &MeasureDistance, out: &mut dyn Write) -> io::Result<()> {
    let Some(distance) = row.reached.or(row.planned) else { return Ok(()) };
    let value = |value: u64| match row.unit {
        "bytes" => format_size(value.into()),
        unit => format!("{} {unit}", format_count(value.into())),
    };
    // A gap that is printed as zero has no position.
    let at = |gap: f64, at: u64| if gap >= 0.000_005 { value(at) } else { "–".to_owned() };
    let by_bytes = if row.measure == Measure::FileSize.name() {
        let at = at(distance.by_sum, distance.by_sum_at);
        format!("{:>12.5}{}", distance.by_sum, right(&at, 16))
    } else {
        String::new()
    };
    let label = match row.measure {
        "file_size" => "sizes",
        "name_length" => "name lengths",
        "directory_entries" => "entries",
        "directory_depth" => "depths",
        "mtime_age" => "modified, age",
        "atime_age" => "accessed, age",
        other => other,
    };
    let at = at(distance.by_count, distance.by_count_at);
    writeln!(out, "{}{:>12.5}{}{by_bytes}", right(label, 16), distance.by_count, right(&at, 18))
}

fn content_words(document: &Document) -> String {
    let content = document.content.as_str();
    match content.split_once(':') {
        Some(("compressible", ratio)) => format!("bytes that compress {ratio}:1"),
        Some(("sparse", share)) => format!("random bytes, holes for {} of the blocks", share.replace('%', " %")),
        _ if content == "none" && document.plan.operations.is_some() => "space reserved, no data written".to_owned(),
        _ if content == "none" => "no data, only sizes".to_owned(),
        _ => format!("{content} bytes"),
    }
}

fn write_sentences(sentences: &[String], out: &mut dyn Write) -> io::Result<()> {
    sentences.iter().try_for_each(|sentence| prose(sentence, out))
}

/// How it aged, and the fragmentation of files and free space.
fn write_aging(aging: &Aging, out: &mut dyn Write) -> io::Result<()> {
    let mut sentence = format!(
        "Aged by {} operations in {:.2} s: {} created and {} deleted in total; the file system is {} full.",
        format_count(aging.operations.into()),
        aging.elapsed_seconds,
        format_counted(aging.created, "file", "files"),
        format_count(aging.deleted.into()),
        format_share(aging.fill_fraction),
    );
    if let Some(distance) = aging.age_distance {
        sentence.push_str(&format!(" The distance of the file ages from the profile is {distance:.3}."));
    }
    writeln!(out)?;
    write_sentences(&[sentence], out)?;
    let (Some(first), last) = (&aging.first, &aging.last) else { return Ok(()) };
    heading("Fragmentation", out)?;
    table(out, |out| {
        writeln!(out, "{FAINT}{:>26}{:>16}{:>16}{FAINT:#}", "", "after filling", "now")?;
        let mut row = |label: &str, figure: &dyn Fn(&Fragmentation) -> Option<String>| {
            let figures =
                [Some(first), last.as_ref()].map(|seen| seen.and_then(figure).unwrap_or_else(|| "–".to_owned()));
            writeln!(out, "{}{}{}", right(label, 26), right(&figures[0], 16), right(&figures[1], 16))
        };
        row("extents per file", &|seen| Some(format!("{:.3}", seen.extents_per_file)))?;
        row("fragmented files", &|seen| Some(format_share(seen.fragmented_fraction)))?;
        row("most in one file", &|seen| Some(format_count(seen.most_extents.into())))?;
        if first.free.is_none() {
            return Ok(());
        }
        row("free space extents", &|seen| Some(format_count(seen.free.as_ref()?.extents.into())))?;
        row("mean size", &|seen| Some(format_size(seen.free.as_ref()?.mean_bytes as u128)))?;
        if first.free.as_ref().is_some_and(|free| free.largest_bytes.is_some()) {
            row("largest", &|seen| Some(format_size(seen.free.as_ref()?.largest_bytes?.into())))?;
        }
        Ok(())
    })
}

/// Progress of aging, for the progress line.
pub(crate) fn aging_progress_words(now: &Snapshot, level_bytes: u64, operations: u64) -> String {
    let there = format!(
        "{} files · {} of {}",
        format_count(now.objects.into()),
        format_size(now.bytes),
        format_size(level_bytes.into())
    );
    match now.operations {
        0 => format!("filling: {there}"),
        done => format!(
            "{} of {} operations ({}) · {there} · {:.0} s",
            format_count(done.into()),
            format_count(operations.into()),
            format_share(done as f64 / operations.max(1) as f64),
            now.elapsed.as_secs_f64()
        ),
    }
}

/// Progress of making, for the progress line.
pub(crate) fn progress_words(now: &Snapshot, whole: u64) -> String {
    let per_second = now.objects as f64 / now.elapsed.as_secs_f64().max(0.05);
    format!(
        "{} of {} files ({}) · {} · {} files/s",
        format_count(now.objects.into()),
        format_count(whole.into()),
        format_share(now.objects as f64 / whole.max(1) as f64),
        format_size(now.bytes),
        format_count(per_second.round() as u128)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_factors_are_not_zero() {
        for (factor, words) in [(2.5, "2.500000"), (0.103277, "0.103277"), (0.001, "0.001000"), (1e-7, "1.000e-7")] {
            assert_eq!(factor_words(factor), words);
        }
    }
}
