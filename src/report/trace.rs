//! A trace on a terminal.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};

use super::chart::{bar, columns, right, shorten};
use super::paragraphs::{FAINT, HEADING, faint, heading, prose};
use super::table::{bar_columns, table};
use super::terminal::exact_size;
use crate::distribution::{Bucket, Distribution};
use crate::survey::file::format_time;
use crate::trace::summary::{BLOCK_SIZES, Interval, Pattern, Side, SizeRow, Summary, UNKNOWN_SIZE};
use crate::trace::{Clock, Detail, Kind, Source, published};
use crate::units::{MIB, format_count, format_counted, format_duration, format_share, format_size, fraction};

const READS: Style = AnsiColor::Cyan.on_default();
const WRITES: Style = AnsiColor::Magenta.on_default();

/// Block sizes to print.
const BLOCKS: std::ops::RangeInclusive<u64> = 512..=MIB;
/// Intervals to print.
const INTERVALS: usize = 16;

/// The summary of a trace whose source was read to its end.
///
/// # Errors
/// Any error of `out`.
pub fn write_trace(name: &str, summary: &Summary, source: &dyn Source, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{HEADING}{}{HEADING:#}", shorten(name, columns()))?;
    write_facts(summary, source, out)?;
    writeln!(out)?;
    prose(&sentences(summary, source).join(" "), out)?;
    write_kinds(summary, out)?;
    let (reads, writes) = (&summary.sides.reads, &summary.sides.writes);
    if !reads.whole.is_empty() || !writes.whole.is_empty() {
        write_deciles(summary, out)?;
        write_one_block(summary, out)?;
        write_by_file_size(reads, writes, out)?;
        if summary.has_requests {
            write_patterns(reads, writes, out)?;
        }
    }
    write_rates(summary, source, out)?;
    write_problems(source, out)
}

fn write_facts(summary: &Summary, source: &dyn Source, out: &mut dyn Write) -> io::Result<()> {
    let origin = source.origin();
    let mut facts = match origin.recorder.as_str() {
        published::RECORDER => "published deciles, not a recording".to_owned(),
        recorder => format!("recorded by {recorder}"),
    };
    if let Some(host) = &origin.host {
        facts.push_str(&format!(" on {host}"));
    }
    if let (Clock::Wall, Some((first, _))) = (origin.clock, summary.span_ns) {
        facts.push_str(&format!(", {}", format_time((first / 1_000_000_000) as i64)));
    }
    writeln!(out, "{FAINT}{facts}{FAINT:#}")?;
    match &origin.command {
        Some(command) => writeln!(out, "{FAINT}{}{FAINT:#}", shorten(command, columns())),
        None => Ok(()),
    }
}

/// The summary in a few sentences.
pub fn sentences(summary: &Summary, source: &dyn Source) -> Vec<String> {
    let origin = source.origin();
    let mut sentences = Vec::new();
    let time = match origin.clock {
        Clock::None => String::new(),
        _ => format!(" in {}", format_duration(summary.span_seconds())),
    };
    let operations = format_counted(summary.operations, "operation", "operations");
    sentences.push(match source.processes().len() as u64 {
        0 if summary.files.touched == 0 => format!("{operations}{time}."),
        processes => format!(
            "{operations}{time} by {} on {}.",
            format_counted(processes, "process", "processes"),
            format_counted(summary.files.touched, "file or directory", "files and directories"),
        ),
    });
    let (reads, writes) = (&summary.sides.reads, &summary.sides.writes);
    for (side, verb, files) in [(reads, "read", summary.files.read()), (writes, "written", summary.files.written())] {
        if side.whole.is_empty() {
            sentences.push(format!("Nothing was {verb}."));
            continue;
        }
        let requests = match summary.has_requests {
            true => format!(", by {}", format_counted(side.requests.count() as u64, "request", "requests")),
            false => String::new(),
        };
        sentences.push(format!(
            "{} {} {verb}, in {}{requests}; half of these were {} or less.",
            format_size(side.whole.total()),
            match files {
                0 => "were".to_owned(),
                1 => "of 1 file was".to_owned(),
                many => format!("of {} files were", format_count(many.into())),
            },
            format_counted(side.whole.count() as u64, "whole-file operation", "whole-file operations"),
            format_size(match summary.has_requests {
                true => side.requests.quantile(1, 2).into(),
                false => side.whole.quantile(1, 2).into(),
            }),
        ));
    }
    if !reads.whole.is_empty() && !writes.whole.is_empty() {
        let ratio = |one: u128, other: u128| format!("{:.2}", one as f64 / other as f64);
        sentences.push(format!(
            "Reads per write: {} as whole-file operations{}; bytes read per byte written: {}.",
            ratio(reads.whole.count(), writes.whole.count()),
            match summary.has_requests {
                true => format!(" ({} as requests)", ratio(reads.requests.count(), writes.requests.count())),
                false => String::new(),
            },
            ratio(reads.whole.total(), writes.whole.total()),
        ));
    }
    let files = &summary.files;
    if files.read() > 0 {
        let share = |part: u64| format_share(fraction(part.into(), files.read().into()));
        sentences.push(format!(
            "{} of the files read were read only once; {} were also written.",
            share(files.read_once),
            share(files.both)
        ));
    }
    if files.temporary > 0 {
        sentences.push(format!(
            "{} created and then removed.",
            if files.temporary == 1 {
                "1 file was".to_owned()
            } else {
                format!("{} files were", format_count(files.temporary.into()))
            }
        ));
    }
    let mapped = summary.kind(Kind::Map);
    let calls = mapped.count - mapped.failed;
    if calls > 0 {
        sentences.push(format!(
            "{} mapped {}; how much of it was accessed is unknown.",
            if calls == 1 { "One call".to_owned() } else { format!("{} calls", format_count(calls.into())) },
            format_size(mapped.bytes)
        ));
    }
    if origin.detail == Detail::WholeFiles {
        sentences.push("Individual requests are unknown.".to_owned());
    }
    sentences
}

fn write_kinds(summary: &Summary, out: &mut dyn Write) -> io::Result<()> {
    let width = bar_columns(14, 1);
    heading("Operations by kind", out)?;
    let mut kinds: Vec<Kind> = Kind::ALL.into_iter().filter(|&kind| summary.kind(kind).count > 0).collect();
    kinds.sort_by_key(|&kind| std::cmp::Reverse(summary.kind(kind).count));
    let most = kinds.first().map_or(0, |&kind| summary.kind(kind).count);
    table(out, |out| {
        writeln!(
            out,
            "{FAINT}{:>14}{:>13}{:>9} {:width$}{:>9}{:>10}{:>9}{FAINT:#}",
            "kind", "operations", "", "", "failed", "bytes", "time"
        )?;
        for kind in kinds {
            let row = summary.kind(kind);
            let style = match kind {
                Kind::Read => READS,
                Kind::Write => WRITES,
                _ => Style::new(),
            };
            let bytes = if kind.moves_bytes() { format_size(row.bytes) } else { String::new() };
            let time = if row.timed > 0 { format_duration(row.duration_ns as f64 / 1e9) } else { "–".to_owned() };
            let failed = if row.failed > 0 { format_count(row.failed.into()) } else { String::new() };
            let filled = bar(fraction(row.count.into(), most.into()), width);
            let gap = " ".repeat(width - filled.chars().count());
            writeln!(
                out,
                "{}{}{} {style}{filled}{style:#}{gap}{}{}{}",
                right(kind.name(), 14),
                right(&format_count(row.count.into()), 13),
                right(&format_share(fraction(row.count.into(), summary.operations.into())), 9),
                right(&failed, 9),
                right(&bytes, 10),
                right(&time, 9),
            )?;
        }
        Ok(())
    })
}

/// The deciles of some sizes, or dashes where there are none.
fn deciles(sizes: &Distribution) -> [[String; 10]; 2] {
    let text = |size: u64| if sizes.is_empty() { "–".to_owned() } else { format_size(size.into()) };
    [sizes.deciles().map(text), sizes.deciles_by_sum().map(text)]
}

/// Rows of tenths under labels.
fn write_tenths(columns: &[(&str, &[String; 10])], out: &mut dyn Write) -> io::Result<()> {
    table(out, |out| {
        write!(out, "{FAINT}{:>8}", "decile")?;
        columns.iter().try_for_each(|(label, _)| write!(out, "{label:>12}"))?;
        writeln!(out, "{FAINT:#}")?;
        for tenth in 0..10 {
            write!(out, "{:>6} %", 10 * (tenth + 1))?;
            columns.iter().try_for_each(|(_, column)| write!(out, "{}", right(&column[tenth], 12)))?;
            writeln!(out)?;
        }
        Ok(())
    })
}

/// Fig. 4, with the other deciles.
fn write_deciles(summary: &Summary, out: &mut dyn Write) -> io::Result<()> {
    let (reads, writes) = (&summary.sides.reads, &summary.sides.writes);
    heading("Deciles of whole-file reads and writes by operations and bytes, and of file sizes", out)?;
    let [read, read_bytes] = deciles(&reads.whole);
    let [written, written_bytes] = deciles(&writes.whole);
    let ([read_files, _], [written_files, _]) = (deciles(&reads.file_sizes), deciles(&writes.file_sizes));
    let columns = [
        ("reads", &read),
        ("by bytes", &read_bytes),
        ("file size", &read_files),
        ("writes", &written),
        ("by bytes", &written_bytes),
        ("file size", &written_files),
    ];
    write_tenths(&columns, out)?;
    if summary.has_requests {
        heading("Deciles of individual requests, by requests and by bytes", out)?;
        let ([read, read_bytes], [written, written_bytes]) = (deciles(&reads.requests), deciles(&writes.requests));
        let columns = [("reads", &read), ("by bytes", &read_bytes), ("writes", &written), ("by bytes", &written_bytes)];
        write_tenths(&columns, out)?;
        if reads.empty + writes.empty > 0 {
            let text = format!(
                "Excluded: {} that transferred nothing, mostly at the end of a file.",
                format_counted(reads.empty + writes.empty, "request", "requests")
            );
            faint(&text, out)?;
        }
    }
    Ok(())
}

fn share_or_none(share: f64, whole: u128) -> String {
    if whole == 0 { "–".to_owned() } else { format_share(share) }
}

fn write_one_block(summary: &Summary, out: &mut dyn Write) -> io::Result<()> {
    heading("Share served by one block", out)?;
    let (reads, writes) = (&summary.sides.reads, &summary.sides.writes);
    table(out, |out| {
        write!(out, "{FAINT}{:>10}{:>12}{:>12}", "block", "reads", "writes")?;
        if summary.has_requests {
            write!(out, "{:>16}{:>16}", "read requests", "write requests")?;
        }
        writeln!(out, "{FAINT:#}")?;
        for block in BLOCK_SIZES.into_iter().filter(|block| BLOCKS.contains(block)) {
            write!(out, "{}", right(&exact_size(block), 10))?;
            for side in [reads, writes] {
                write!(out, "{}", right(&share_or_none(side.whole_served(block), side.whole.count()), 12))?;
            }
            if summary.has_requests {
                for side in [reads, writes] {
                    let known: u64 = side.aligned.iter().sum();
                    write!(out, "{}", right(&share_or_none(side.requests_within(block), known.into()), 16))?;
                }
            }
            writeln!(out)?;
        }
        Ok(())
    })?;
    let requests =
        if summary.has_requests { " Requests: those within one block, where the offset is known." } else { "" };
    faint(
        &format!("Reads and writes: whole-file operations of that size or less, as in Fig. 4 of the paper.{requests}"),
        out,
    )
}

/// The label of a row: from its size up to the next.
fn row_label(number: usize) -> String {
    if number == UNKNOWN_SIZE { "unknown".to_owned() } else { format_size(Bucket::of(number as u32).low) }
}

fn write_by_file_size(reads: &Side, writes: &Side, out: &mut dyn Write) -> io::Result<()> {
    heading("Whole-file operations and bytes by file size (from each size up to the next)", out)?;
    table(out, |out| {
        writeln!(
            out,
            "{FAINT}{:>9}{:>11}{:>8}{:>11}{:>8}{:>11}{:>8}{:>11}{FAINT:#}",
            "size", "reads", "", "bytes", "", "writes", "", "bytes"
        )?;
        let sum = |side: &Side, figure: fn(&SizeRow) -> u128| side.by_file_size.iter().map(figure).sum::<u128>();
        let whole = |row: &SizeRow| u128::from(row.whole);
        for (number, (read, write)) in reads.by_file_size.iter().zip(&writes.by_file_size).enumerate() {
            if *read == SizeRow::default() && *write == SizeRow::default() {
                continue;
            }
            let share =
                |part: u128, all: u128| if all == 0 { String::new() } else { format_share(fraction(part, all)) };
            writeln!(
                out,
                "{}{}{}{}{}{}{}{}",
                right(&row_label(number), 9),
                right(&format_count(read.whole.into()), 11),
                right(&share(read.whole.into(), sum(reads, whole)), 8),
                right(&format_size(read.bytes), 11),
                right(&share(read.bytes, sum(reads, |row| row.bytes)), 8),
                right(&format_count(write.whole.into()), 11),
                right(&share(write.whole.into(), sum(writes, whole)), 8),
                right(&format_size(write.bytes), 11),
            )?;
        }
        Ok(())
    })
}

fn write_patterns(reads: &Side, writes: &Side, out: &mut dyn Write) -> io::Result<()> {
    heading("Access patterns of requests", out)?;
    table(out, |out| {
        writeln!(
            out,
            "{FAINT}{:>12}{:>16}{:>9}{:>9}{:>16}{:>9}{:>9}{FAINT:#}",
            "", "read requests", "", "bytes", "write requests", "", "bytes"
        )?;
        for pattern in Pattern::ALL {
            let of = |side: &Side| {
                let share = side.patterns[pattern as usize];
                let count = side.patterns.iter().map(|share| u128::from(share.count)).sum();
                let bytes = side.patterns.iter().map(|share| share.bytes).sum();
                (share, fraction(share.count.into(), count), fraction(share.bytes, bytes))
            };
            let ((read, read_count, read_bytes), (write, write_count, write_bytes)) = (of(reads), of(writes));
            if read.count + write.count == 0 {
                continue;
            }
            writeln!(
                out,
                "{}{}{}{}{}{}{}",
                right(pattern.name(), 12),
                right(&format_count(read.count.into()), 16),
                right(&format_share(read_count), 9),
                right(&format_share(read_bytes), 9),
                right(&format_count(write.count.into()), 16),
                right(&format_share(write_count), 9),
                right(&format_share(write_bytes), 9),
            )?;
        }
        Ok(())
    })?;
    faint(
        "First: first request after an open. Sequential: starts where the previous one ended. Strided: same distance from the previous one as that one from its predecessor.",
        out,
    )
}

fn write_rates(summary: &Summary, source: &dyn Source, out: &mut dyn Write) -> io::Result<()> {
    let width = bar_columns(16, 1);
    let rates = summary.rates.at_most(INTERVALS);
    if source.origin().clock == Clock::None || rates.intervals.len() < 2 {
        return Ok(());
    }
    let seconds = rates.width_ns as f64 / 1e9;
    // The last interval ends with the trace. A few operations in a tiny part of it would be a peak.
    let last = rates.intervals.len() - 1;
    let begin_ns = rates.start_ns.saturating_add(rates.width_ns.saturating_mul(last as u64));
    let end_ns = summary.span_ns.map_or(begin_ns, |(_, end)| end);
    let last_seconds = (end_ns.saturating_sub(begin_ns) as f64 / 1e9).clamp(seconds / 10.0, seconds);
    let rate = |count: u128, number: usize| {
        let over = if number == last { last_seconds } else { seconds };
        (count as f64 / over).round() as u128
    };
    let operations = |(number, interval): (usize, &Interval)| rate(interval.operations.into(), number);
    let most = rates.intervals.iter().enumerate().map(operations).max().unwrap_or(0);
    heading(&format!("Rates per second, in intervals of {}", format_duration(seconds)), out)?;
    table(out, |out| {
        writeln!(
            out,
            "{FAINT}{:>10}{:>13} {:width$}{:>11}{:>13}{:>13}{FAINT:#}",
            "from", "operations", "", "reads", "read", "written"
        )?;
        for (number, interval) in rates.intervals.iter().enumerate() {
            let bytes = |bytes: u128| format!("{}/s", format_size(rate(bytes, number)));
            let from = if number == 0 { "0 s".to_owned() } else { format_duration(number as f64 * seconds) };
            let filled = bar(fraction(operations((number, interval)), most), width);
            let gap = " ".repeat(width - filled.chars().count());
            writeln!(
                out,
                "{}{} {READS}{filled}{READS:#}{gap}{}{}{}",
                right(&from, 10),
                right(&format_count(operations((number, interval))), 13),
                right(&format_count(rate(interval.reads.into(), number)), 11),
                right(&bytes(interval.read_bytes), 13),
                right(&bytes(interval.write_bytes), 13),
            )?;
        }
        Ok(())
    })
}

fn write_problems(source: &dyn Source, out: &mut dyn Write) -> io::Result<()> {
    let problems = source.problems().list();
    if !problems.is_empty() {
        heading("Problems", out)?;
        for problem in problems {
            let text = format!("{} {}", format_count(problem.count.into()), problem.kind.words());
            writeln!(out, "{}", shorten(&format!("{text} (first: {})", problem.first), columns()))?;
        }
    }
    if !source.origin().notes.is_empty() {
        writeln!(out)?;
        source.origin().notes.iter().try_for_each(|note| faint(note, out))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::summary::{Options, summarise};
    use crate::trace::{Listed, Operation, Trouble};
    use crate::units::KIB;
    use unicode_width::UnicodeWidthStr;

    /// Every figure as large as it can reasonably be.
    fn large() -> Listed {
        let mut listed = Listed::new("strace");
        listed.origin.command = Some("a command ".repeat(20));
        listed.files.push(b"f");
        listed.processes.push(b"p");
        for number in 0..200u64 {
            for kind in Kind::ALL {
                let mut operation = Operation::new(1_700_000_000_000_000_000 + number * 777_000_000_000, 0, kind);
                operation.file = Some(0);
                operation.opening = Some(number as u32);
                operation.failed = number == 3;
                operation.length_bytes = 123_456_789_012 + number * KIB;
                operation.offset_bytes = Some(number * number * 4097);
                operation.file_size_bytes = Some(1 << (number % 50));
                operation.duration_ns = Some(999_999_999_999);
                listed.operations.push(operation);
            }
        }
        listed.problems.count_many(Trouble::Unreadable, 1_234_567_890, || "line 3: ".to_owned() + &"x".repeat(200));
        listed
    }

    #[test]
    fn everything_fits_80_columns() {
        let mut listed = large();
        let summary = summarise(&mut listed, Options::default(), |_, _| Ok(true)).unwrap();
        let mut out = Vec::new();
        write_trace("a/name/that/is/long".repeat(9).as_str(), &summary, &listed, &mut out).unwrap();
        let text = String::from_utf8(anstream::adapter::strip_bytes(&out).into_vec()).unwrap();
        for line in text.lines() {
            assert!(line.width() <= columns(), "{} columns: {line}", line.width());
        }
        for heading in
            ["Operations by kind", "Deciles of", "one block", "by file size", "Access patterns", "Rates", "Problems"]
        {
            assert!(text.contains(heading), "{heading}: {text}");
        }
    }

    fn text_of(mut listed: Listed) -> String {
        let summary = summarise(&mut listed, Options::default(), |_, _| Ok(true)).unwrap();
        let mut out = Vec::new();
        write_trace("x", &summary, &listed, &mut out).unwrap();
        String::from_utf8(anstream::adapter::strip_bytes(&out).into_vec()).unwrap()
    }

    #[test]
    fn the_last_rate_is_that_of_a_part_of_an_interval() {
        for seconds in [8.5, 8.1, 9.9] {
            let mut listed = Listed::new("strace");
            listed.operations = (0..(seconds * 1000.0) as u64)
                .map(|number| Operation::new(1_000_000_000_000 + number * 1_000_000, 0, Kind::Stat))
                .collect();
            let text = text_of(listed);
            let table = text.split("Rates per second").nth(1).unwrap();
            let rows = table.lines().skip(2).take_while(|line| !line.is_empty());
            let rates: Vec<f64> =
                rows.map(|row| row.split_whitespace().nth(2).unwrap().replace(',', "").parse().unwrap()).collect();
            assert!(rates.len() > 2 && rates.iter().all(|rate| (800.0..=1200.0).contains(rate)), "{text}");
        }
    }

    #[test]
    fn a_failed_call_maps_nothing() {
        let mut listed = Listed::new("strace");
        listed.files.push(b"f");
        for failed in [false, true] {
            let mut operation = Operation::new(1, 0, Kind::Map);
            (operation.file, operation.failed) = (Some(0), failed);
            operation.length_bytes = if failed { 0 } else { 4096 };
            listed.operations.push(operation);
        }
        let text = text_of(listed);
        assert!(text.split_whitespace().collect::<Vec<_>>().join(" ").contains("One call mapped 4 KiB"), "{text}");
    }

    #[test]
    fn nothing_is_said_of_what_did_not_happen() {
        let mut listed = Listed::new("strace");
        let summary = summarise(&mut listed, Options::default(), |_, _| Ok(true)).unwrap();
        let mut out = Vec::new();
        write_trace("x", &summary, &listed, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let words: Vec<&str> = text.split_whitespace().collect();
        assert!(words.join(" ").contains("Nothing was read. Nothing was written."), "{text}");
        assert!(!text.contains("Deciles") && !text.contains("NaN"), "{text}");
    }
}
