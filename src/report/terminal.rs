//! A survey on a terminal: its width or 80 columns, colour only where it is shown (the writer strips it elsewhere).

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};

use super::ages::{days_words, first_reset_days, reset_note, write_ages, write_owner_ages};
use super::chart::{bar, columns, is_narrow, left, right, shorten, wrap};
use super::paragraphs::{FAINT, HEADING, faint, heading};
use super::systems::write_facts;
use super::table::{bar_columns, table};
use super::words::{file_system_words, file_systems, owner_words, remarks, sentences};
use crate::distribution::published::Published;
use crate::distribution::{Bucket, Distribution, Weight};
use crate::plan::{BLOCK_SIZES, BlockSize, block_sizes};
use crate::population::profiles::Profile;
use crate::survey::answers::{Answers, Quantiles};
use crate::survey::file::{format_time, up_to};
use crate::survey::measure::{ByteMeasure, Measure};
use crate::survey::places::{DirectoryRow, Kind, KindTable, Places, Ranking, Tally, TopDirectories};
use crate::survey::{Method, Survey};
use crate::units::{KIB, escape, format_count, format_share, format_size, fraction};

const FILES: Style = AnsiColor::Cyan.on_default();
const BYTES: Style = AnsiColor::Magenta.on_default();

/// Block sizes whose shares by decile are shown: those of Fig. 3, and 64 KiB.
const DECILE_BLOCKS: [u64; 6] = [KIB, 2 * KIB, 4 * KIB, 8 * KIB, 16 * KIB, 64 * KIB];
/// Rows of each list under "where".
const PLACES_SHOWN: usize = 5;
/// Extensions shown.
const EXTENSIONS_SHOWN: usize = 8;

/// The summary: sentences, histogram, deciles, block sizes, ages and places.
///
/// # Errors
/// Any error of `out`.
pub fn write_summary(survey: &Survey, out: &mut dyn Write) -> io::Result<()> {
    write_summary_of(survey, None, out)
}

/// The same with `shown` rows in each list, as far as the survey has them.
///
/// # Errors
/// Any error of `out`.
pub fn write_summary_of(survey: &Survey, shown: Option<usize>, out: &mut dyn Write) -> io::Result<()> {
    let title = survey.origin.title().unwrap_or_else(|| "anonymous survey".to_owned());
    writeln!(out, "{HEADING}{}{HEADING:#}", shorten(&title, columns()))?;
    let mut facts = Vec::new();
    if let Some(taken_at) = survey.origin.taken_at {
        facts.push(format!("surveyed {}", format_time(taken_at)));
    }
    match survey.origin.method {
        Method::Walk => facts.push(format!("in {:.2} s", survey.origin.elapsed_seconds)),
        Method::InodeScan => facts.push(format!("in {:.2} s, by its inodes", survey.origin.elapsed_seconds)),
        Method::Merge | Method::Fsstats | Method::Published | Method::List => {}
    }
    if !facts.is_empty() {
        writeln!(out, "{FAINT}{}{FAINT:#}", facts.join(" "))?;
    }
    for (host, found) in file_systems(survey) {
        for line in wrap(&file_system_words(host, found), columns()) {
            writeln!(out, "{FAINT}{line}{FAINT:#}")?;
        }
    }
    writeln!(out)?;
    for sentence in sentences(survey) {
        for line in wrap(&sentence, columns()) {
            writeln!(out, "{line}")?;
        }
    }
    let remarks = remarks(survey);
    if !remarks.is_empty() {
        for line in wrap(&format!("Also: {}.", remarks.join("; ")), columns()) {
            writeln!(out, "{FAINT}{line}{FAINT:#}")?;
        }
    }
    let sizes = survey.distributions.of(Measure::FileSize);
    if sizes.is_empty() {
        return Ok(());
    }
    write_facts(&survey.origin.facts, out)?;
    write_histogram(sizes, out)?;
    write_block_sizes(survey, out)?;
    write_ages(survey, out)?;
    if let Some(places) = &survey.places {
        write_places(places, survey, shown, out)?;
    }
    Ok(())
}

fn write_histogram(sizes: &Distribution, out: &mut dyn Write) -> io::Result<()> {
    let width = bar_columns(14, 2);
    heading("Files and bytes by size (each row from its size up to the next)", out)?;
    let buckets = sizes.buckets();
    let (files, bytes) = (sizes.count(), sizes.total());
    let most = |figure: fn(&Bucket) -> u128| buckets.iter().map(figure).max().unwrap_or(0);
    let (most_files, most_bytes) = (most(|b| b.count), most(|b| b.sum));
    let first = buckets.iter().position(|bucket| bucket.count > 0).unwrap_or(0);
    table(out, |out| {
        writeln!(out, "{FAINT}{:>8}{:>14}{:>8} {:width$}{:>10}{:>8}{FAINT:#}", "size", "files", "", "", "bytes", "")?;
        for bucket in &buckets[first..] {
            writeln!(
                out,
                "{}{}{} {FILES}{}{FILES:#}{}{} {BYTES}{}{BYTES:#}",
                right(&format_size(bucket.low), 8),
                right(&format_count(bucket.count), 14),
                right(&format_share(fraction(bucket.count, files)), 8),
                left(&bar(fraction(bucket.count, most_files), width), width),
                right(&format_size(bucket.sum), 10),
                right(&format_share(fraction(bucket.sum, bytes)), 8),
                bar(fraction(bucket.sum, most_bytes), width),
            )?;
        }
        Ok(())
    })
}

/// A size to the byte: in the largest unit of which it is a multiple, with at most four digits, else in bytes.
pub(super) fn exact_size(bytes: u64) -> String {
    let short = format_size(bytes.into());
    match crate::units::parse_size(&short.replace(',', "")) {
        Ok(same) if same == bytes => short,
        _ => format!("{} B", format_count(bytes.into())),
    }
}

fn write_block_sizes(survey: &Survey, out: &mut dyn Write) -> io::Result<()> {
    let sizes = survey.distributions.of(Measure::FileSize);
    let rows = block_sizes(sizes, survey.padding.as_ref());
    write_growth(&rows, out)?;
    let printed: Vec<&BlockSize> = rows.iter().filter(|row| DECILE_BLOCKS.contains(&row.block_bytes)).collect();
    write_deciles(sizes, &printed, out)
}

/// Space for each block size.
fn write_growth(rows: &[BlockSize], out: &mut dyn Write) -> io::Result<()> {
    heading("Space by block size, growth over 1 KiB, and share of files that fit in one block", out)?;
    table(out, |out| {
        writeln!(out, "{FAINT}{:>12}{:>12}{:>12}{:>12}{FAINT:#}", "block", "allocated", "growth", "one block")?;
        for row in rows {
            writeln!(
                out,
                "{}{}{}{}",
                right(&exact_size(row.block_bytes), 12),
                right(&format_size(row.allocated_bytes), 12),
                right(&format_share(row.growth_fraction), 12),
                right(&format_share(row.single_block_fraction), 12),
            )?;
        }
        Ok(())
    })
}

/// Fig. 3 of Tanenbaum, Herder and Bos: deciles, and the share of the disk in the smallest files.
fn write_deciles(sizes: &Distribution, blocks: &[&BlockSize], out: &mut dyn Write) -> io::Result<()> {
    let across = if is_narrow() { 4 } else { 6 };
    let (by_files, by_bytes) = (sizes.deciles(), sizes.deciles_by_sum());
    for group in blocks.chunks(across) {
        heading("Deciles by files and by bytes; per cent of disk space in the smallest files", out)?;
        table(out, |out| {
            write!(out, "{FAINT}{:>7}{:>11}{:>11}", "decile", "files", "bytes")?;
            for block in group {
                write!(out, "{}", right(&format_size(block.block_bytes.into()), 8))?;
            }
            writeln!(out, "{FAINT:#}")?;
            for tenth in 0..10 {
                let (files, bytes) = (format_size(by_files[tenth].into()), format_size(by_bytes[tenth].into()));
                write!(out, "{:>5} %{}{}", 10 * (tenth + 1), right(&files, 11), right(&bytes, 11))?;
                for block in group {
                    write!(out, "{:>8.2}", 100.0 * block.cumulative_weight[tenth])?;
                }
                writeln!(out)?;
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// The largest single files.
fn write_largest(places: &Places, shown: usize, out: &mut dyn Write) -> io::Result<()> {
    let Some(files) = places.files.as_ref().filter(|files| !files.rows().is_empty()) else { return Ok(()) };
    heading("Largest files", out)?;
    table(out, |out| {
        writeln!(out, "{FAINT}{:>12}{:>12}\tfile{FAINT:#}", "size", "allocated")?;
        for file in files.rows().iter().take(shown) {
            let path = file.path.as_ref().map_or_else(|| "(omitted)".to_owned(), |path| escape(path));
            let [size, allocated] = [file.size_bytes, file.allocated_bytes].map(|bytes| format_size(bytes.into()));
            writeln!(out, "{}{}\t{path}", right(&size, 12), right(&allocated, 12))?;
        }
        Ok(())
    })
}

fn write_places(places: &Places, survey: &Survey, shown: Option<usize>, out: &mut dyn Write) -> io::Result<()> {
    let small = format_size(survey.origin.options.small_file_bytes.into());
    let (rows, extensions) = (shown.unwrap_or(PLACES_SHOWN), shown.unwrap_or(EXTENSIONS_SHOWN));
    let lists: [(&TopDirectories, Ranking, String); 3] = [
        (&places.own, Ranking::SmallFiles, format!("Directories with the most small files ({small} or less)")),
        (&places.subtree, Ranking::SmallFiles, "… including everything below".to_owned()),
        (&places.own, Ranking::Overhead, "Directories with the most overhead".to_owned()),
    ];
    for (top, ranking, title) in lists {
        if !top.list(ranking).is_empty() {
            heading(&title, out)?;
            table(out, |out| {
                tally_header("directory", out)?;
                top.list(ranking).iter().take(rows).try_for_each(|row| directory_row(row, out))
            })?;
        }
    }
    write_largest(places, rows, out)?;
    kind_table("Owners", "owner", &places.owners, |uid| owner_words(places, *uid), rows, out)?;
    write_owner_ages(places, rows, out)?;
    let extension = |extension: &crate::survey::places::Extension| match extension.text() {
        "" => "(none)".to_owned(),
        text if text.starts_with('(') => text.to_owned(),
        text => format!(".{text}"),
    };
    kind_table("File types, by extension", "extension", &places.extensions, extension, extensions, out)
}

fn tally_header(label: &str, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{FAINT}{:>12}{:>12}{:>10}{:>10}\t{label}{FAINT:#}", "files", "small", "size", "overhead")
}

fn tally_columns(tally: &Tally) -> String {
    format!(
        "{}{}{}{}",
        right(&format_count(tally.files.into()), 12),
        right(&format_count(tally.small_files.into()), 12),
        right(&format_size(tally.size_bytes), 10),
        right(&format_size(tally.overhead_bytes), 10),
    )
}

fn directory_row(row: &DirectoryRow, out: &mut dyn Write) -> io::Result<()> {
    let path = match &row.path {
        Some(path) => escape(path),
        None => format!("(at depth {})", row.depth),
    };
    writeln!(out, "{}\t{path}", tally_columns(&row.tally))
}

fn kind_table<K: Eq + std::hash::Hash + Ord + Copy>(
    title: &str,
    column: &str,
    kinds: &KindTable<Kind<K>>,
    label: impl Fn(&K) -> String,
    shown: usize,
    out: &mut dyn Write,
) -> io::Result<()> {
    let rows = kinds.ranked();
    if rows.is_empty() {
        return Ok(());
    }
    let more = match rows.len().saturating_sub(shown) {
        0 => String::new(),
        more => format!(" (and {} more)", format_count(more as u128)),
    };
    heading(&format!("{title}{more}"), out)?;
    table(out, |out| {
        tally_header(column, out)?;
        for (kind, tally) in rows.iter().take(shown) {
            let label = match kind {
                Kind::Named(key) => label(key),
                Kind::Anonymous(_) => "(omitted)".to_owned(),
            };
            writeln!(out, "{}\t{label}", tally_columns(tally))?;
        }
        Ok(())
    })?;
    if kinds.max_error() > 0 {
        let text = format!(
            "Not all are known: each row may be short by up to {} files.",
            format_count(kinds.max_error().into())
        );
        faint(&text, out)?;
    }
    Ok(())
}

/// Answers to questions about cutoffs and block sizes.
///
/// # Errors
/// Any error of `out`.
pub fn write_answers(
    survey: &Survey,
    cutoffs: &[u64],
    blocks: &[u64],
    fractions: &[f64],
    out: &mut dyn Write,
) -> io::Result<()> {
    let sizes = survey.distributions.of(Measure::FileSize);
    let answers = Answers::of(survey, cutoffs, blocks).with_quantiles(survey, fractions);
    if !cutoffs.is_empty() {
        heading("Files of this size or smaller", out)?;
        table(out, |out| write_cutoffs(&answers, out))?;
    }
    if !blocks.is_empty() {
        write_growth(&answers.block_sizes, out)?;
        write_deciles(sizes, &answers.block_sizes.iter().collect::<Vec<_>>(), out)?;
    }
    write_quantiles(survey, &answers.quantiles, out)?;
    if blocks.iter().any(|block_bytes| survey.padding.is_none() || !BLOCK_SIZES.contains(block_bytes)) {
        faint("Figures for files above 64 KiB are estimates, within 1 % of each file.", out)?;
    }
    Ok(())
}

fn write_cutoffs(answers: &Answers, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{FAINT}{:>14}{:>16}{:>9}{:>12}{:>9}{FAINT:#}", "cutoff", "files", "", "bytes", "")?;
    for at in &answers.cutoffs {
        let doubt = match at.doubt_files {
            0 => String::new(),
            doubt => format!("  ± {} files", format_count(doubt)),
        };
        writeln!(
            out,
            "{}{}{}{}{}{doubt}",
            right(&exact_size(at.cutoff_bytes), 14),
            right(&format_count(at.files), 16),
            right(&format_share(at.files_fraction), 9),
            right(&format_size(at.size_bytes), 12),
            right(&format_share(at.bytes_fraction), 9),
        )?;
    }
    Ok(())
}

fn write_quantiles(survey: &Survey, rows: &[Quantiles], out: &mut dyn Write) -> io::Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    let first_reset = first_reset_days(survey);
    heading("Values up to which a share lies: sizes, and ages since written and read", out)?;
    table(out, |out| {
        write!(out, "{FAINT}{:>10}{:>11}{:>11}", "share", "size", "by bytes")?;
        writeln!(out, "{:>12}{:>10}{:>10}{:>10}{FAINT:#}", "written", "by bytes", "read", "by bytes")?;
        for row in rows {
            // To a thousandth of a per cent, as it was asked for.
            write!(out, "{}", right(&format!("{} %", (row.fraction * 1e5).round() / 1e3), 10))?;
            let words = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
            let sizes = [row.file_size, row.file_size_by_total];
            let sizes = sizes.map(|bytes| right(&words(bytes.map(|bytes| format_size(bytes.into()))), 11));
            let ages = [row.mtime_age, row.mtime_age_bytes, row.atime_age, row.atime_age_bytes];
            let ages = ages.map(|days| right(&words(days.map(|days| days_words(days, first_reset))), 10));
            writeln!(out, "{}  {}", sizes.join(""), ages.join(""))?;
        }
        Ok(())
    })?;
    let ages = rows.iter().flat_map(|row| [row.mtime_age, row.mtime_age_bytes, row.atime_age, row.atime_age_bytes]);
    reset_note(ages.flatten(), first_reset, out)
}

/// Every distribution as a table of its buckets.
///
/// # Errors
/// Any error of `out`.
pub fn write_distributions(survey: &Survey, out: &mut dyn Write) -> io::Result<()> {
    heading("Share of the files, and of their bytes, in files of this size or smaller", out)?;
    writeln!(out, "{FAINT}{:>10}{:>12}{:>12}{FAINT:#}", "size", "files", "bytes")?;
    for row in up_to(survey.distributions.of(Measure::FileSize)) {
        let shares = [row.files_fraction, row.bytes_fraction].map(|share| format!("{:.2} %", 100.0 * share));
        writeln!(out, "{}{:>12}{:>12}", right(&format_size(row.size_bytes.into()), 10), shares[0], shares[1])?;
    }
    for measure in Measure::ALL {
        write_distribution(measure.name(), measure.unit(), survey.distributions.of(measure), out)?;
    }
    for measure in ByteMeasure::ALL {
        write_distribution(measure.name(), measure.unit(), survey.distributions.by_bytes(measure), out)?;
    }
    Ok(())
}

fn write_distribution<W: Weight>(
    name: &str,
    unit: &str,
    distribution: &Distribution<W>,
    out: &mut dyn Write,
) -> io::Result<()> {
    if distribution.is_empty() {
        return Ok(());
    }
    let number = |value: u128| if unit == "bytes" { format_size(value) } else { format_count(value) };
    heading(&format!("{name} ({unit})"), out)?;
    let figures = format!(
        "count {} · min {} · max {} · mean {:.1} · median {}",
        format_count(distribution.count()),
        number(distribution.min().into()),
        number(distribution.max().into()),
        distribution.mean(),
        number(distribution.quantile(1, 2).into()),
    );
    faint(&figures, out)?;
    let (count, total) = (distribution.count(), distribution.total());
    table(out, |out| {
        for bucket in distribution.buckets().iter().filter(|bucket| bucket.count > 0) {
            writeln!(
                out,
                "{} –{}{}{}{}",
                right(&number(bucket.low), 10),
                right(&number(bucket.high), 11),
                right(&format_count(bucket.count), 22),
                right(&format_share(fraction(bucket.count, count)), 9),
                right(&format_share(fraction(bucket.sum, total)), 9),
            )?;
        }
        Ok(())
    })
}

/// The additional profiles that `generate` accepts, one per line.
///
/// # Errors
/// Any error of `out`.
pub fn write_profiles(profiles: &[Profile], source: &str, out: &mut dyn Write) -> io::Result<()> {
    heading("For granulo generate alone", out)?;
    for profile in profiles {
        let (sizes, ages) = (profile.sizes.cells().count(), profile.ages.len());
        let name = &profile.name;
        writeln!(
            out,
            "{HEADING}{name:<20}{HEADING:#}{sizes} sizes up to {}, {ages} ages",
            format_size(profile.sizes.max().into())
        )?;
    }
    for line in wrap(source, columns()) {
        writeln!(out, "{FAINT}{line}{FAINT:#}")?;
    }
    Ok(())
}

/// The published tables, one per line.
///
/// # Errors
/// Any error of `out`.
pub fn write_published(tables: &[Published], out: &mut dyn Write) -> io::Result<()> {
    let mut sources: Vec<&str> = Vec::new();
    for table in tables {
        let assumed = if table.is_count_assumed { " (assumed)" } else { "" };
        let files = format_count(table.files.into());
        writeln!(out, "{HEADING}{:<10}{HEADING:#}{:<10}{files} files{assumed}", table.name, table.title)?;
        if !sources.contains(&table.source) {
            sources.push(table.source);
        }
    }
    for line in sources.iter().flat_map(|source| wrap(source, columns())) {
        writeln!(out, "{FAINT}{line}{FAINT:#}")?;
    }
    Ok(())
}
