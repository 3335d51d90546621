//! A survey in sentences: the answer that a person would give after reading it.

use crate::distribution::published;
use crate::plan::block_size;
use crate::survey::machine::FileSystem;
use crate::survey::measure::Measure;
use crate::survey::places::Places;
use crate::survey::{Method, Resolution, Survey};
use crate::units::{KIB, format_count, format_counted, format_share, format_size, fraction};

/// What a survey without names lacks.
const NO_NAMES: &str = "Names were not read (--without-names), so directory sizes, name lengths, depths, extensions and file locations are unknown.";

/// The answer in a few sentences, the most important first.
pub(crate) fn sentences(survey: &Survey) -> Vec<String> {
    let mut sentences = of_sizes(survey);
    sentences.extend(of_source(survey));
    sentences
}

fn of_sizes(survey: &Survey) -> Vec<String> {
    let sizes = survey.distributions.of(Measure::FileSize);
    let (files, bytes) = (sizes.count(), sizes.total());
    if files == 0 {
        return vec![format!("{}No files to measure.", until_now(survey))];
    }
    let mut sentences = vec![format!("{}{}", until_now(survey), how_many(survey, files, bytes))];

    if bytes == 0 {
        sentences.push(if files == 1 { "It is empty." } else { "All of them are empty." }.to_owned());
        return sentences;
    }

    let deciles = sizes.deciles();
    sentences.push(format!(
        "Half of the files are {} or smaller, 90 % are {} or smaller; the mean is {}, the largest {}.",
        format_size(deciles[4].into()),
        format_size(deciles[8].into()),
        format_size(sizes.mean().round() as u128),
        format_size(sizes.max().into()),
    ));

    let cutoff = survey.origin.options.small_file_bytes;
    let small = sizes.up_to(cutoff);
    sentences.push(format!(
        "{} of the files are small ({} or less) and hold {} of the bytes; the largest 10 % hold {}.",
        format_share(fraction(small.count, files)),
        format_size(cutoff.into()),
        format_share(fraction(small.sum, bytes)),
        format_share(largest_tenth(survey)),
    ));

    let allocated = survey.allocated_bytes();
    // Merged surveys may know it of some files only.
    if survey.distributions.of(Measure::Allocated).count() == files {
        sentences.push(format!(
            "The file system has allocated {} for them{}.",
            format_size(allocated),
            overhead(survey)
        ));
    }
    sentences.push(block_size_costs(survey));
    let empty = sizes.up_to(0).count;
    // The first row of an fsstats table has empty files and others.
    let is_known = survey.origin.method == Method::Published || survey.origin.resolution != Resolution::Buckets;
    if empty > 0 && is_known {
        sentences.push(format!(
            "{} of the files {} empty ({}).",
            format_count(empty),
            if empty == 1 { "is" } else { "are" },
            format_share(fraction(empty, files))
        ));
    }
    sentences
}

/// Overhead as a share of what is allocated, and apart from it what sparse files have not allocated.
fn overhead(survey: &Survey) -> String {
    let (size, allocated) = (survey.size_bytes(), survey.allocated_bytes());
    match survey.overhead_bytes() {
        Some(beyond) => {
            let sparse = (beyond + size).saturating_sub(allocated);
            let sparse = match sparse {
                0 => String::new(),
                bytes => format!("; {} of their size are not allocated (holes, compression)", format_size(bytes)),
            };
            format!(", {} of it beyond their size{sparse}", format_share(fraction(beyond, allocated)))
        }
        None if size > allocated => format!(", {} less than their size", format_size(size - allocated)),
        None => format!(", {} of it beyond their size", format_share(survey.overhead_fraction())),
    }
}

/// Where the figures come from, and what they lack.
fn of_source(survey: &Survey) -> Vec<String> {
    let mut sentences = Vec::new();
    if let Some(table) = survey.origin.name.as_deref().and_then(published::find) {
        sentences.push(format!("Source: {}.", table.source));
        if table.is_count_assumed {
            sentences.push("It does not state the number of files; this one is assumed.".to_owned());
        }
    }
    if survey.origin.without_names {
        sentences.push(NO_NAMES.to_owned());
    }
    if survey.origin.resolution == Resolution::Buckets {
        sentences.push("The source is a table; values between its rows are interpolated.".to_owned());
    }
    sentences
}

fn until_now(survey: &Survey) -> &'static str {
    if survey.origin.complete { "" } else { "Interrupted: this covers only the part scanned so far. " }
}

fn how_many(survey: &Survey, files: u128, bytes: u128) -> String {
    let (noun, verb) = if files == 1 { ("file", "holds") } else { ("files", "hold") };
    let directories = match survey.counts.directories {
        0 => String::new(),
        1 => " in 1 directory".to_owned(),
        many => format!(" in {} directories", format_count(many.into())),
    };
    format!(
        "{} {noun}{directories} {verb} {} ({} bytes).",
        format_count(files),
        format_size(bytes),
        format_count(bytes)
    )
}

/// Share of the bytes in the largest tenth of the files.
fn largest_tenth(survey: &Survey) -> f64 {
    let sizes = survey.distributions.of(Measure::FileSize);
    1.0 - block_size(sizes, survey.padding.as_ref(), 1).cumulative_weight[8]
}

fn block_size_costs(survey: &Survey) -> String {
    let sizes = survey.distributions.of(Measure::FileSize);
    let row = |bytes| block_size(sizes, survey.padding.as_ref(), bytes);
    let (four, sixteen, sixty_four) = (row(4 * KIB), row(16 * KIB), row(64 * KIB));
    format!(
        "4 KiB blocks need {} more space than 1 KiB blocks, 16 KiB {} more, 64 KiB {} more; {} of the files fit in one 4 KiB block.",
        format_share(four.growth_fraction),
        format_share(sixteen.growth_fraction),
        format_share(sixty_four.growth_fraction),
        format_share(four.single_block_fraction),
    )
}

/// File systems that are named in a summary, at most.
const FILE_SYSTEMS: usize = 5;

/// The first file systems of a survey, each with its host where there are several.
pub(crate) fn file_systems(survey: &Survey) -> impl Iterator<Item = (Option<&str>, &FileSystem)> {
    let machines = &survey.origin.machines;
    let of_each = machines.iter().flat_map(move |machine| {
        let host = (machines.len() > 1).then_some(machine.host.as_str());
        machine.file_systems.iter().map(move |found| (host, found))
    });
    of_each.take(FILE_SYSTEMS)
}

/// A file system in one phrase: what it is, and how full it was.
pub(crate) fn file_system_words(host: Option<&str>, found: &FileSystem) -> String {
    let mut words = String::from("file system");
    if let Some(host) = host {
        words.push_str(&format!(" of {host}"));
    }
    if let Some(label) = &found.label {
        words.push_str(&format!(" \"{label}\""));
    }
    let kind = if found.kind.is_empty() { "unknown type" } else { &found.kind };
    words.push_str(&format!(": {kind} on {}", found.device));
    if !found.mount_point.is_empty() {
        words.push_str(&format!(" at {}", found.mount_point));
    }
    if let Some(capacity) = found.capacity_bytes {
        words.push_str(&format!(", {}", format_size(capacity.into())));
    }
    if let (Some(fill), Some(free)) = (found.fill_fraction(), found.available_bytes) {
        words.push_str(&format!(", {} in use, {} free", format_share(fill), format_size(free.into())));
    }
    if let (Some(inodes), Some(used)) = (found.inodes, found.used_inodes()) {
        words.push_str(&format!(", {} of the inodes in use", format_share(fraction(used.into(), inodes.into()))));
    }
    words
}

/// An owner: its name, if that is known, and its number.
pub(super) fn owner_words(places: &Places, uid: u32) -> String {
    match places.owner_names.get(&uid) {
        Some(name) => format!("{name} ({uid})"),
        None => uid.to_string(),
    }
}

/// Other entries, what was skipped and what looked wrong, as short phrases; empty if there was nothing.
pub(crate) fn remarks(survey: &Survey) -> Vec<String> {
    let counts = &survey.counts;
    let remark = |count: u64, one: &str, many: &str| {
        let words = if count == 1 { one } else { many };
        (count > 0).then(|| format!("{} {words}", format_count(count.into())))
    };
    let symlinks = (counts.symlinks > 0).then(|| {
        let absolute = fraction(counts.symlinks_absolute.into(), counts.symlinks.into());
        let is_known = counts.symlinks_absolute + counts.symlinks_relative > 0;
        let absolute = if is_known { format!(" ({} absolute)", format_share(absolute)) } else { String::new() };
        format!("{}{absolute}", format_counted(counts.symlinks, "symlink", "symlinks"))
    });
    let special = match survey.origin.method {
        // Other programs do not always say what else it is.
        Method::List => ("entry that is no regular file", "entries that are no regular files"),
        _ => ("fifo, socket or device", "fifos, sockets and devices"),
    };
    [
        symlinks,
        remark(counts.errors, "could not be read", "could not be read"),
        remark(counts.vanished, "vanished during the survey", "vanished during the survey"),
        remark(counts.hard_links_skipped, "additional name of a counted file", "additional names of counted files"),
        remark(counts.sparse_files, "file allocated less than its size", "files allocated less than their size"),
        remark(counts.special, special.0, special.1),
        remark(counts.excluded, "excluded by a glob", "excluded by globs"),
        remark(counts.snapshot_directories_skipped, "snapshot directory skipped", "snapshot directories skipped"),
        remark(counts.mount_points_skipped, "mount point skipped", "mount points skipped"),
        remark(counts.future_times, "timestamp in the future", "timestamps in the future"),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_is_as_full_as_df_says() {
        let found: FileSystem = serde_json::from_value(serde_json::json!({
            "kind": "ext4", "device": "/dev/vda", "mount_point": "/",
            "capacity_bytes": 10_000, "free_bytes": 6_000, "available_bytes": 1_000,
        }))
        .unwrap();
        let words = file_system_words(None, &found);
        assert_eq!(words, "file system: ext4 on /dev/vda at /, 9.77 KiB, 80.0 % in use, 1,000 B free");
    }
}
