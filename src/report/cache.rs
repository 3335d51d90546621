//! A trace against caches on a terminal: matrices of cache size by block size, and the findings in words.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};

use super::chart::{COLUMNS, columns, right, shorten};
use super::origin::told_apart;
use super::paragraphs::{FAINT, HEADING, faint, heading, prose};
use super::table::table;
use crate::mrc::policy::Policy;
use crate::mrc::study::{Beside, BlockSize, Cell, Study, Writes};
use crate::units::{format_count, format_duration, format_share, format_size};

const SIZES: Style = AnsiColor::Cyan.on_default();
const BEST: Style = AnsiColor::Green.on_default();

/// Columns of a cache size, and largest width of a figure.
const LABEL_COLUMNS: usize = 12;
const MOST_FIGURE_COLUMNS: usize = 12;
/// Figures side by side; more block sizes get a second table.
const MOST_FIGURES: usize = 7;
/// Rows of caches beyond the useful sizes, which only hold more blocks that are never referenced again.
const USELESS_ROWS: usize = 1;

/// The whole study.
///
/// # Errors
/// Any error of `out`.
pub(crate) fn write_study(study: &Study, out: &mut dyn Write) -> io::Result<()> {
    let name = format!("Cache study of {}", study.trace);
    let title = told_apart(&name, study.host.as_deref(), None);
    writeln!(out, "{HEADING}{}{HEADING:#}", shorten(&title, columns()))?;
    prose(&source_sentence(study), out)?;
    if study.seen.reads + study.seen.writes == 0 {
        return Ok(());
    }
    write_block_sizes(study, out)?;
    let (sizes, has_more) = rows(study);
    for blocks in study.block_sizes.chunks(MOST_FIGURES) {
        heading("LRU miss ratio by cache size and block size", out)?;
        write_matrix(study, &sizes, blocks, out, &|cell| (format_share(cell.misses.miss_ratio), Style::new()))?;
        if blocks.iter().any(|block| block.rate < 1.0) {
            faint("sampling error: 95 % confidence interval of the exact ratio", out)?;
            write_matrix(study, &sizes, blocks, out, &|cell| (points(cell.error_ratio), FAINT))?;
        }
    }
    let time = format!("Time on a device with {}", device(study));
    for blocks in study.block_sizes.chunks(MOST_FIGURES) {
        heading(&time, out)?;
        write_matrix(study, &sizes, blocks, out, &|cell| {
            let is_best = study.best_block(cell.cache_bytes).is_some_and(|best| best.block_bytes == cell.block_bytes);
            (format_duration(cell.seconds), if is_best { BEST } else { Style::new() })
        })?;
        faint("fetched", out)?;
        write_matrix(study, &sizes, blocks, out, &|cell| {
            (format_size((cell.misses.fetched_blocks * cell.block_bytes as f64) as u128), Style::new())
        })?;
        if study.seen.writes > 0 && study.writes == Writes::Back {
            faint("written back", out)?;
            write_matrix(study, &sizes, blocks, out, &|cell| (format_size(cell.written_bytes as u128), Style::new()))?;
        }
    }
    if has_more {
        faint("Larger caches give the same results as the last one shown.", out)?;
    }
    write_policies(study, &sizes, out)?;
    write_targets(study, out)?;
    heading("In words", out)?;
    for sentence in sentences(study) {
        prose(&sentence, out)?;
    }
    if let Some(beside) = &study.beside {
        write_beside(beside, out)?;
    }
    writeln!(out)?;
    notes(study).iter().try_for_each(|note| faint(note, out))
}

fn size(bytes: u64) -> String {
    format_size(bytes.into())
}

fn count(count: u64) -> String {
    format_count(count.into())
}

/// A difference of shares: `± 0.3 %`.
fn points(ratio: f64) -> String {
    match ratio * 100.0 {
        0.0 => "exact".to_owned(),
        percent if percent < 0.01 => "± <0.01 %".to_owned(),
        percent => format!("± {percent:.2} %"),
    }
}

fn device(study: &Study) -> String {
    let device = &study.device;
    let figures = format!(
        "{} and {}/s ({})",
        format_duration(device.latency_seconds),
        format_size(device.bytes_per_second as u128),
        device.name,
    );
    match study.base_seconds {
        0.0 => figures,
        base => format!("{figures}, plus {} for everything else", format_duration(base)),
    }
}

fn source_sentence(study: &Study) -> String {
    let seen = &study.seen;
    let mut text = format!(
        "{} reads of {} and {} writes of {}, in {} files.",
        count(seen.reads),
        size(seen.read_bytes),
        count(seen.writes),
        size(seen.written_bytes),
        count(seen.files),
    );
    if seen.cuts > 0 {
        let times = if seen.cuts == 1 { "once".to_owned() } else { format!("{} times", count(seen.cuts)) };
        text.push_str(&format!(" Files were removed or truncated {times}, which dropped them from the cache."));
    }
    if !study.complete {
        text.push_str(" The trace was not read to the end.");
    }
    text
}

fn write_block_sizes(study: &Study, out: &mut dyn Write) -> io::Result<()> {
    let sampled = study.block_sizes.iter().any(|block| block.rate < 1.0);
    heading("References by block size", out)?;
    table(out, |out| {
        write!(
            out,
            "{FAINT}{:>LABEL_COLUMNS$}{:>15}{:>15}{:>12}{:>14}",
            "block", "references", "blocks", "first", "enough"
        )?;
        writeln!(out, "{}{FAINT:#}", if sampled { right("sample", 12) } else { String::new() })?;
        for block in &study.block_sizes {
            write!(
                out,
                "{SIZES}{}{SIZES:#}{}{}{}{}",
                right(&size(block.block_bytes), LABEL_COLUMNS),
                right(&count(block.references.all()), 15),
                right(&count(block.blocks), 15),
                right(&format_share(block.compulsory_ratio), 12),
                right(&size(block.enough_bytes), 14),
            )?;
            let sample = if block.rate < 1.0 { format_share(block.rate) } else { "all".to_owned() };
            writeln!(out, "{}", if sampled { right(&sample, 12) } else { String::new() })?;
        }
        Ok(())
    })?;
    faint(
        "Blocks: distinct blocks. First: first references to a block (compulsory misses). Enough: the smallest cache without other \
         misses.",
        out,
    )
}

/// The cache sizes to print, and whether there are larger ones, which perform like the last of them.
fn rows(study: &Study) -> (Vec<u64>, bool) {
    let enough = study.block_sizes.iter().map(|block| block.enough_bytes + block.block_bytes).max().unwrap_or(0);
    let useful = study.cache_sizes_bytes.iter().filter(|&&size| size < enough).count() + USELESS_ROWS;
    let printed: Vec<u64> = study.cache_sizes_bytes.iter().copied().take(useful).collect();
    let has_more = printed.len() < study.cache_sizes_bytes.len();
    (printed, has_more)
}

fn columns_of_a_figure(figures: usize) -> usize {
    ((COLUMNS - LABEL_COLUMNS) / figures.max(1)).min(MOST_FIGURE_COLUMNS)
}

fn write_matrix(
    study: &Study,
    sizes: &[u64],
    blocks: &[BlockSize],
    out: &mut dyn Write,
    figure: &dyn Fn(&Cell) -> (String, Style),
) -> io::Result<()> {
    let columns = columns_of_a_figure(blocks.len());
    table(out, |out| {
        write!(out, "{FAINT}{}", right("cache", LABEL_COLUMNS))?;
        for block in blocks {
            write!(out, "{}", right(&size(block.block_bytes), columns))?;
        }
        writeln!(out, "{FAINT:#}")?;
        for &cache_bytes in sizes {
            write!(out, "{SIZES}{}{SIZES:#}", right(&size(cache_bytes), LABEL_COLUMNS))?;
            for block in blocks {
                let (text, style) = match study.cell(cache_bytes, block.block_bytes) {
                    Some(cell) if cell.cache_blocks > 0 => figure(cell),
                    _ => ("–".to_owned(), FAINT),
                };
                write!(out, "{style}{}{style:#}", right(&text, columns))?;
            }
            writeln!(out)?;
        }
        Ok(())
    })
}

/// A table for each block size: the policies side by side.
fn write_policies(study: &Study, sizes: &[u64], out: &mut dyn Write) -> io::Result<()> {
    let mut policies: Vec<Policy> = study.policies.iter().map(|cell| cell.policy).collect();
    policies.dedup();
    if policies.is_empty() {
        return Ok(());
    }
    let columns = columns_of_a_figure(policies.len() + 1);
    for block in &study.block_sizes {
        heading(&format!("Miss ratio by policy, with {} blocks", size(block.block_bytes)), out)?;
        table(out, |out| {
            write!(out, "{FAINT}{}{}", right("cache", LABEL_COLUMNS), right("curve", columns))?;
            policies.iter().try_for_each(|policy| write!(out, "{}", right(policy.name(), columns)))?;
            writeln!(out, "{FAINT:#}")?;
            for &cache_bytes in sizes.iter().filter(|&&size| size >= block.block_bytes) {
                let found = |policy: Policy| {
                    let cell = study.policies.iter().find(|cell| {
                        cell.policy == policy
                            && cell.cache_bytes == cache_bytes
                            && cell.block_bytes == block.block_bytes
                    });
                    cell.and_then(|cell| cell.miss_ratio)
                };
                let lru = study.cell(cache_bytes, block.block_bytes).map(|cell| cell.misses.miss_ratio);
                let all = || std::iter::once(lru).chain(policies.iter().map(|&policy| found(policy)));
                let least = all().flatten().fold(f64::INFINITY, f64::min);
                write!(out, "{SIZES}{}{SIZES:#}", right(&size(cache_bytes), LABEL_COLUMNS))?;
                for ratio in all() {
                    let style = if ratio == Some(least) { BEST } else { Style::new() };
                    let text = ratio.map_or("–".to_owned(), format_share);
                    write!(out, "{style}{}{style:#}", right(&text, columns))?;
                }
                writeln!(out)?;
            }
            Ok(())
        })?;
    }
    if study.policies.iter().any(|cell| cell.miss_ratio.is_none()) {
        faint("–: stopped, because it exceeded its share of memory; raise --memory, or sample with --sample.", out)?;
    }
    Ok(())
}

fn write_targets(study: &Study, out: &mut dyn Write) -> io::Result<()> {
    for blocks in study.block_sizes.chunks(MOST_FIGURES) {
        let columns = columns_of_a_figure(blocks.len());
        heading("Smallest cache for a miss ratio", out)?;
        table(out, |out| {
            write!(out, "{FAINT}{}", right("at most", LABEL_COLUMNS))?;
            blocks.iter().try_for_each(|block| write!(out, "{}", right(&size(block.block_bytes), columns)))?;
            writeln!(out, "{FAINT:#}")?;
            for at in 0..blocks.first().map_or(0, |block| block.targets.len()) {
                write!(
                    out,
                    "{SIZES}{}{SIZES:#}",
                    right(&format_share(blocks[0].targets[at].miss_ratio), LABEL_COLUMNS)
                )?;
                for block in blocks {
                    // A document that was edited may have fewer.
                    let text = match block.targets.get(at) {
                        Some(target) => target.cache_bytes.map_or("none".to_owned(), size),
                        None => "–".to_owned(),
                    };
                    write!(out, "{}", right(&text, columns))?;
                }
                writeln!(out)?;
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// The findings in words.
pub(super) fn sentences(study: &Study) -> Vec<String> {
    let mut sentences: Vec<String> = least_cache_sentence(study).into_iter().collect();
    sentences.extend(best_block_sentences(study));
    if let Some(sentence) = cliff_sentence(study) {
        sentences.push(sentence);
    }
    sentences
}

/// The smallest cache for the lowest requested miss ratio that a cache reaches, with the block size that needs the
/// least.
fn least_cache_sentence(study: &Study) -> Option<String> {
    let number = study.block_sizes.first()?.targets.len();
    let least = |at: usize| {
        let found =
            study.block_sizes.iter().filter_map(|block| Some((block.targets.get(at)?.cache_bytes?, block.block_bytes)));
        found.min()
    };
    let ratio = |at: usize| format_share(study.block_sizes[0].targets[at].miss_ratio);
    let (at, (cache_bytes, block_bytes)) = match (0..number).rev().find_map(|at| Some((at, least(at)?))) {
        Some(found) => found,
        None => {
            return (number > 0).then(|| {
                "No cache has a miss ratio as low as requested: too many references are first references.".to_owned()
            });
        }
    };
    let mut text = format!(
        "The smallest cache with a miss ratio of {} or less is {}, with {} blocks.",
        ratio(at),
        size(cache_bytes),
        size(block_bytes)
    );
    if at + 1 < number {
        text.push_str(&format!(" None has {} or less: too many references are first references.", ratio(at + 1)));
    }
    Some(text)
}

/// Adjacent cache sizes with the same best block size, in one sentence.
fn best_block_sentences(study: &Study) -> Vec<String> {
    let (sizes, _) = rows(study);
    let mut groups: Vec<(u64, u64, &Cell)> = Vec::new();
    for cell in sizes.iter().filter_map(|&size| study.best_block(size)) {
        match groups.last_mut() {
            Some((_, last, best)) if best.block_bytes == cell.block_bytes => *last = cell.cache_bytes,
            _ => groups.push((cell.cache_bytes, cell.cache_bytes, cell)),
        }
    }
    let number = groups.len();
    let sentence = |(at, (first, last, best)): (usize, &(u64, u64, &Cell))| {
        let caches = match () {
            _ if number == 1 => "At every cache size,".to_owned(),
            _ if at + 1 == number => format!("From {} up,", size(*first)),
            _ if first == last => format!("With {},", size(*first)),
            _ => format!("With {} to {},", size(*first), size(*last)),
        };
        let worst = study.cells.iter().filter(|cell| cell.cache_bytes == *first && cell.cache_blocks > 0);
        let worst = worst.max_by(|a, b| a.seconds.total_cmp(&b.seconds));
        let compared = match worst {
            Some(worst) if worst.seconds > best.seconds * 1.01 => format!(
                " ({} with a {} cache, against {} with {} blocks)",
                format_duration(best.seconds),
                size(*first),
                format_duration(worst.seconds),
                size(worst.block_bytes),
            ),
            _ => String::new(),
        };
        format!("{caches} {} blocks are fastest{compared}.", size(best.block_bytes))
    };
    groups.iter().enumerate().map(sentence).collect()
}

/// The size from which a larger cache hardly helps.
fn cliff_sentence(study: &Study) -> Option<String> {
    let best: Vec<&Cell> = study.cache_sizes_bytes.iter().filter_map(|&size| study.best_block(size)).collect();
    let (first, last) = (best.first()?, best.last()?);
    let enough = best.iter().find(|cell| cell.seconds <= last.seconds * 1.05)?;
    (first.seconds > last.seconds * 1.05).then(|| {
        format!(
            "A cache above {} saves less than 5 % of the time; {} takes {:.1} times as long.",
            size(enough.cache_bytes),
            size(first.cache_bytes),
            first.seconds / last.seconds,
        )
    })
}

fn write_beside(beside: &Beside, out: &mut dyn Write) -> io::Result<()> {
    heading(&format!("Compared with {}: {}", beside.name, beside.workload), out)?;
    table(out, |out| {
        writeln!(
            out,
            "{FAINT}{:<16}{:>9}{:>10}{:>10}{:>10}{:>9}{:>8}{:>8}{FAINT:#}",
            "", "memory", "for cache", "measured", "predicted", "error", "read", "pred."
        )?;
        for cell in &beside.cells {
            let percent = (100.0 * (cell.predicted_seconds / cell.measured_seconds - 1.0)).round();
            let difference = if percent == 0.0 { "0 %".to_owned() } else { format!("{percent:+.0} %") };
            writeln!(
                out,
                "{:<16}{}{}{}{}{}{}{}",
                shorten(&cell.subject, 16),
                right(&size(cell.limit_bytes), 9),
                right(&size(cell.cache_bytes), 10),
                right(&format_duration(cell.measured_seconds), 10),
                right(&format_duration(cell.predicted_seconds), 10),
                right(&difference, 9),
                right(&short_size(cell.measured_read_bytes), 8),
                right(&short_size(cell.predicted_read_bytes), 8),
            )?;
        }
        Ok(())
    })?;
    if beside.is_fitted {
        faint("The time not spent on the device is fitted to the run with the largest memory.", out)?;
    }
    faint(
        "For cache: memory minus the peak use by programs. Predictions assume page cache units of 4 KiB, or of one block if that is \
         larger. Read: bytes read from the device. Read-ahead and metadata are not modelled.",
        out,
    )
}

/// A size in at most seven columns.
fn short_size(bytes: u64) -> String {
    size(bytes).replace("iB", "").replace([' ', ','], "")
}

fn notes(study: &Study) -> Vec<String> {
    let memory: u64 = study.block_sizes.iter().map(|block| block.memory_bytes).sum();
    let written = match study.writes {
        Writes::Back => {
            "Writes go to the device when their block is evicted, and at the end, in their original lengths"
        }
        Writes::Through => "Writes go to the device immediately",
    };
    let mut notes = vec![format!(
        "Adjacent blocks of one request are fetched in one transfer; transfers are sequential. {written}. The analysis used {} of memory.",
        size(memory)
    )];
    notes.extend(study.notes.iter().cloned());
    notes
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn seven_block_sizes_fit_a_terminal() {
        assert!(LABEL_COLUMNS + MOST_FIGURES * columns_of_a_figure(MOST_FIGURES) <= COLUMNS);
        assert!("± 12.34 %".chars().count() <= columns_of_a_figure(MOST_FIGURES));
        assert_eq!(
            (points(0.0), points(0.00001), points(0.1234)),
            ("exact".into(), "± <0.01 %".into(), "± 12.34 %".into())
        );
        assert_eq!((short_size(14 << 30), short_size(1023 << 20)), ("14G".into(), "1023M".into()));
    }

    #[test]
    fn lists_of_unequal_length_are_written() {
        let block = |block_bytes: u64, targets: Value| {
            json!({
                "block_bytes": block_bytes, "blocks": 5, "compulsory_ratio": 0.5, "enough_bytes": 65536, "rate": 1.0,
                "references": { "reads": 9, "partial_writes": 0, "whole_writes": 0, "write_requests": 0 },
                "memory_bytes": 0, "targets": targets, "curve": [],
            })
        };
        let study = json!({
            "schema": "granulo/cache/1", "granulo_version": "", "trace": "t", "complete": true, "writes": "back",
            "seen": {
                "reads": 9, "read_bytes": 9, "writes": 0, "written_bytes": 0, "files": 1, "empty": 0, "too_long": 0,
                "longest_bytes": 0, "beyond_end": 0, "cuts": 0,
            },
            "notes": [], "device": { "name": "d", "latency_seconds": 0.001, "bytes_per_second": 1e6 },
            "base_seconds": 0.0, "cache_sizes_bytes": [4096], "cells": [], "policies": [], "beside": null,
            "block_sizes": [block(1024, json!([{ "miss_ratio": 0.5, "cache_bytes": 4096 }])), block(4096, json!([]))],
        });
        let study: Study = serde_json::from_value(study).unwrap();
        let mut out = Vec::new();
        write_study(&study, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.lines().any(|line| line.contains("50.0 %") && line.ends_with('–')), "{text}");
    }
}
