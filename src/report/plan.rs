//! A plan on a terminal.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use unicode_width::UnicodeWidthStr;

use super::bills::write_bills;
use super::chart::{bar, columns, is_narrow, left, right, shorten, wrap};
use super::origin::told_apart;
use super::paragraphs::{FAINT, HEADING, faint, heading, prose};
use super::plan_words::{costs_sentence, fit_sentence, holds_everything, recommendation_sentences, source_sentence};
use super::systems::write_facts;
use super::table::{bar_columns, table};
use super::terminal::exact_size;
use crate::layout::Kind;
use crate::plan::tier::{RATIOS, Tier};
use crate::plan::{Caching, FastTier, ModelSpace, Plan};
use crate::units::{KIB, MIB, format_count, format_duration, format_share, format_size};

const FAST: Style = AnsiColor::Cyan.on_default();

/// Block sizes to print.
const BLOCKS: std::ops::RangeInclusive<u64> = 512..=MIB;
/// Layouts whose fast tiers fit side by side.
const TIERS_ACROSS: usize = 6;
/// Columns of the head of each.
const HEAD: usize = 10;
/// Columns of a model's name, at least.
const LEAST_NAME: usize = 14;
/// Cutoffs for which they are compared.
const COMPARED: std::ops::RangeInclusive<u64> = 0..=16 * MIB;
/// Settings and every cost are printed for at most this many layouts with a fast tier.
const DETAILS_FOR: usize = 2;

/// The whole plan.
///
/// # Errors
/// Any error of `out`.
pub(crate) fn write_plan(plan: &Plan, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{HEADING}{}{HEADING:#}", shorten(&title(plan), columns()))?;
    prose(&source_sentence(plan), out)?;
    write_facts(&plan.source.facts, out)?;
    if plan.asks_for_blocks() {
        write_block_sizes(plan, out)?;
    }
    write_models(plan, out)?;
    if let Some(first) = plan.fast_tiers.first() {
        write_tiers(plan, first, out)?;
        write_tiers_by_model(plan, out)?;
        if let (1, Some(fit)) = (plan.fast_tiers.len(), &first.fit) {
            writeln!(out)?;
            prose(&fit_sentence(plan, first, fit), out)?;
        } else {
            write_fits(plan, out)?;
        }
        write_profiles(plan, out)?;
        plan.fast_tiers.iter().try_for_each(|tier| write_answers(plan, tier, out))?;
        if plan.fast_tiers.len() > DETAILS_FOR && plan.fast_tiers.iter().any(|tier| !tier.settings.is_empty()) {
            writeln!(out)?;
            faint(
                "Setup commands are printed for one or two layouts with a fast tier: choose them with --model.",
                out,
            )?;
        }
    }
    write_bills(plan, out)
}

/// The source, with its machine, and the day where it was surveyed.
fn title(plan: &Plan) -> String {
    let source = &plan.source;
    let name = source.name.as_deref().unwrap_or("anonymous survey");
    told_apart(name, source.host.as_deref(), source.taken_at.as_deref())
}

fn write_block_sizes(plan: &Plan, out: &mut dyn Write) -> io::Result<()> {
    heading("Block size", out)?;
    for sentence in recommendation_sentences(plan) {
        prose(&sentence, out)?;
    }
    let chosen = plan.recommendation.as_ref().map(|recommendation| recommendation.block_bytes);
    table(out, |out| {
        write!(out, "{FAINT}{:>10}{:>12}{:>12}{:>16}", "block", "allocated", "growth", "files in one")?;
        if plan.operations.is_some() {
            write!(out, "{:>14}{:>14}", "reads in one", "writes in one")?;
        }
        writeln!(out, "{FAINT:#}")?;
        for (index, row) in plan.block_sizes.iter().enumerate().filter(|(_, row)| BLOCKS.contains(&row.block_bytes)) {
            let style = if chosen == Some(row.block_bytes) { FAST } else { Style::new() };
            write!(
                out,
                "{style}{}{}{}{}",
                right(&exact_size(row.block_bytes), 10),
                right(&format_size(row.allocated_bytes), 12),
                right(&format_share(row.growth_fraction), 12),
                right(&format_share(row.single_block_fraction), 16),
            )?;
            if let Some(served) = plan.operations.as_ref().and_then(|operations| operations.served.get(index)) {
                write!(out, "{}", right(&format_share(served.reads_fraction), 14))?;
                write!(out, "{}", right(&format_share(served.writes_fraction), 14))?;
            }
            writeln!(out, "{style:#}")?;
        }
        Ok(())
    })?;
    plan.caching.as_ref().map_or(Ok(()), |caching| write_caching(caching, chosen, out))
}

/// The times with a cache: of every block size and cache, after what is behind those with the cache that was asked for.
fn write_caching(caching: &Caching, chosen: Option<u64>, out: &mut dyn Write) -> io::Result<()> {
    let title = match &caching.device {
        Some(device) => {
            write_requests(caching, &device.name, chosen, out)?;
            "Time by block size and cache"
        }
        None => "Time by block size and cache, of compilations that the source measured",
    };
    heading(title, out)?;
    table(out, |out| {
        write!(out, "{FAINT}{:>10}", "block")?;
        for at in &caching.times {
            write!(out, "{}", right(&exact_size(at.cache_bytes), 10))?;
        }
        writeln!(out, "{FAINT:#}")?;
        for (index, row) in caching.rows.iter().enumerate() {
            let style = if chosen == Some(row.block_bytes) { FAST } else { Style::new() };
            write!(out, "{style}{}", right(&exact_size(row.block_bytes), 10))?;
            for at in &caching.times {
                write!(out, "{}", right(&at.seconds.get(index).copied().map(format_duration).unwrap_or_default(), 10))?;
            }
            writeln!(out, "{style:#}")?;
        }
        Ok(())
    })
}

/// What the requests of a trace cost on a device, with one cache.
fn write_requests(caching: &Caching, device: &str, chosen: Option<u64>, out: &mut dyn Write) -> io::Result<()> {
    let cache = exact_size(caching.cache_bytes);
    heading(&format!("A cache of {cache} (LRU) with the requests of the trace, on {device}"), out)?;
    table(out, |out| {
        writeln!(
            out,
            "{FAINT}{:>10}{:>12}{:>16}{:>14}{:>12}{FAINT:#}",
            "block", "misses", "transfers", "fetched", "time"
        )?;
        for row in &caching.rows {
            let style = if chosen == Some(row.block_bytes) { FAST } else { Style::new() };
            write!(out, "{style}{}", right(&exact_size(row.block_bytes), 10))?;
            let figures = [
                (row.miss_ratio.map(format_share), 12),
                (row.fetches.map(|fetches| format_count(fetches.round() as u128)), 16),
                (row.fetched_bytes.map(|bytes| format_size(bytes as u128)), 14),
            ];
            figures
                .into_iter()
                .try_for_each(|(figure, width)| write!(out, "{}", right(&figure.unwrap_or_default(), width)))?;
            writeln!(out, "{}{style:#}", right(&format_duration(row.seconds), 12))?;
        }
        Ok(())
    })
}

/// Columns of the models beside figures that need `others`: those of the longest, where there is room.
fn name_columns(plan: &Plan, others: usize) -> usize {
    let longest = plan.models.iter().map(|row| row.model.width()).max().unwrap_or(0);
    (longest + 1).min(columns().saturating_sub(others)).max(LEAST_NAME)
}

/// A model in its column; above its row, if it is longer.
fn write_name(model: &str, name: usize, out: &mut dyn Write) -> io::Result<()> {
    if model.width() < name {
        return write!(out, "{}", left(model, name));
    }
    write!(out, "\t{model}\n{:name$}", "")
}

fn write_models(plan: &Plan, out: &mut dyn Write) -> io::Result<()> {
    let name = name_columns(plan, 43);
    heading("Space by layout", out)?;
    table(out, |out| {
        writeln!(
            out,
            "{FAINT}{:name$}{:>11}{:>10}{:>11}{:>11}{FAINT:#}",
            "model", "allocated", "overhead", "metadata", "total"
        )?;
        for row in &plan.models {
            let mark = match row {
                _ if row.metadata_is_within => "*",
                _ if row.metadata_is_memory => "†",
                _ => " ",
            };
            write_name(&row.model, name, out)?;
            writeln!(
                out,
                "{}{}{}{mark}{}",
                right(&format_size(row.allocated_bytes), 11),
                right(&format_share(row.overhead_fraction), 10),
                right(&format_size(row.metadata_bytes), 11),
                right(&format_size(row.total_bytes), 10),
            )?;
            if let Some(reported) = row.reported_bytes {
                let reported = right(&format_size(reported), 11);
                // Text across the other columns would keep them apart.
                match is_narrow() {
                    true => writeln!(out, "{FAINT}{:name$}{reported}{FAINT:#}", "  as reported")?,
                    false => writeln!(out, "{FAINT}{:name$}{reported} as reported by the system{FAINT:#}", "")?,
                }
            }
        }
        Ok(())
    })?;
    let any = |has: fn(&ModelSpace) -> bool, words| if plan.models.iter().any(has) { words } else { "" };
    let within = any(|row| row.metadata_is_within, " * Metadata is part of the allocated bytes.");
    let memory = any(|row| row.metadata_is_memory && !row.metadata_is_within, " † Server memory, not in the total.");
    let words = "Overhead: share of the allocated bytes that is not file data. Total: with metadata, and with \
        directories and symlinks if both source and model cover them.";
    faint(&format!("{words}{within}{memory}"), out)
}

fn tier_row(tier: &Tier, most: u128, out: &mut dyn Write) -> io::Result<()> {
    let label = cutoff_label(tier.cutoff_bytes);
    let fill = if most == 0 { 0.0 } else { tier.fast_bytes as f64 / most as f64 };
    writeln!(
        out,
        "{}{}{}{}{}{} {FAST}{}{FAST:#}",
        right(&label, 12),
        right(&format_share(tier.small_file_fraction), 9),
        right(&format_share(tier.small_data_fraction), 9),
        right(&format_size(tier.fast_bytes), 11),
        right(&format_share(tier.fast_fraction), 9),
        right(&format_size(tier.fast_device_bytes), 12),
        bar(fill, bar_columns(14, 1))
    )
}

/// Rows of the table: powers of two from 4 KiB, and the requested cutoffs.
fn printed(tier: &Tier, plan: &Plan) -> bool {
    let size = tier.cutoff_bytes;
    size >= 4 * KIB || size == 0 || is_asked(tier, plan)
}

/// Whether its row is always printed: its cutoff was requested, or is the usual one.
fn is_asked(tier: &Tier, plan: &Plan) -> bool {
    tier.cutoff_bytes == plan.usual_cutoff_bytes || plan.asked_cutoffs_bytes.contains(&tier.cutoff_bytes)
}

/// The tiers of the first layout that has any, which `plan.tiers` are about.
fn write_tiers(plan: &Plan, first: &FastTier, out: &mut dyn Write) -> io::Result<()> {
    heading(&format!("Fast tier of {}: metadata, and files up to a cutoff", first.model), out)?;
    let mut rows: Vec<&Tier> = plan.tiers.iter().filter(|tier| printed(tier, plan)).collect();
    // Once nearly everything is fast, larger cutoffs need the same space: only the first such row is printed.
    let says_the_same = |row: &Tier, kept: &Tier| {
        kept.fast_fraction > 0.9 && format_size(row.fast_bytes) == format_size(kept.fast_bytes)
    };
    rows.dedup_by(|row, kept| says_the_same(row, kept) && !is_asked(row, plan));
    let most = rows.last().map_or(0, |tier| tier.fast_bytes);
    table(out, |out| {
        writeln!(
            out,
            "{FAINT}{:>12}{:>9}{:>9}{:>11}{:>9}{:>12}{FAINT:#}",
            "cutoff", "files", "bytes", "fast", "of all", "to buy"
        )?;
        rows.iter().try_for_each(|tier| tier_row(tier, most, out))
    })?;
    let growth = if plan.growth_fraction == 0.0 {
        String::new()
    } else {
        format!(", with room for {} growth", format_share(plan.growth_fraction))
    };
    faint(
        &format!(
            "Fast: including redundancy. To buy: filled to at most {}{growth}. Cutoffs are exact up to 64 KiB, within \
             1 % above.",
            format_share(first.fill_fraction)
        ),
        out,
    )
}

/// What each layout needs, side by side.
fn write_tiers_by_model(plan: &Plan, out: &mut dyn Write) -> io::Result<()> {
    if plan.fast_tiers.len() < 2 {
        return Ok(());
    }
    let across = if is_narrow() { TIERS_ACROSS - 2 } else { TIERS_ACROSS };
    for group in plan.fast_tiers.chunks(across) {
        heading("Fast bytes by layout, as a share of all bytes it stores", out)?;
        table(out, |out| {
            let heads: Vec<Vec<String>> = group.iter().map(|tier| head(&tier.model, plan)).collect();
            let lines = heads.iter().map(Vec::len).max().unwrap_or(1);
            for line in 0..lines {
                write!(out, "{FAINT}{:>12}", if line + 1 == lines { "cutoff" } else { "" })?;
                for head in &heads {
                    write!(out, " {}", right(head.get(line).map_or("", String::as_str), HEAD))?;
                }
                writeln!(out, "{FAINT:#}")?;
            }
            let rows = plan
                .tiers
                .iter()
                .filter(|tier| printed(tier, plan) && (COMPARED.contains(&tier.cutoff_bytes) || is_asked(tier, plan)));
            for cutoff in rows.map(|tier| tier.cutoff_bytes) {
                write!(out, "{}", right(&cutoff_label(cutoff), 12))?;
                for tier in group {
                    let at = tier.curve.iter().find(|at| at.cutoff_bytes == cutoff);
                    write!(out, " {}", right(&at.map_or(String::new(), |at| format_share(at.fast_fraction)), 10))?;
                }
                writeln!(out)?;
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// The head of a model's column, line by line: its name, and those of its options that others of the same name do not
/// share; of a long one, the value.
fn head(model: &str, plan: &Plan) -> Vec<String> {
    let split = |model: &str| {
        let (kind, options) = model.split_once(':').unwrap_or((model, ""));
        (kind.to_owned(), options.split(',').map(str::to_owned).collect::<Vec<String>>())
    };
    let (kind, options) = split(model);
    let alike: Vec<Vec<String>> = plan
        .models
        .iter()
        .filter(|other| other.model != model)
        .map(|other| split(&other.model))
        .filter(|(other, _)| *other == kind)
        .map(|(_, options)| options)
        .collect();
    let shared = |option: &String| !alike.is_empty() && alike.iter().all(|other| other.contains(option));
    let own = options.iter().filter(|option| !option.is_empty() && !shared(option));
    let short = |option: &String| match option.split_once('=') {
        Some((_, value)) if option.width() > HEAD => shorten(value, HEAD),
        _ => shorten(option, HEAD),
    };
    [kind].into_iter().chain(own.map(short)).collect()
}

fn cutoff_label(cutoff_bytes: u64) -> String {
    if cutoff_bytes == 0 { "metadata".to_owned() } else { exact_size(cutoff_bytes) }
}

/// The largest cutoff that fits.
fn holds_label(largest_bytes: Option<u64>) -> String {
    match largest_bytes {
        None => "nothing".to_owned(),
        Some(0) => cutoff_label(0),
        Some(cutoff) => format_size(rounded_down(cutoff).into()),
    }
}

/// The largest size with three digits in its unit that is not above.
fn rounded_down(bytes: u64) -> u64 {
    let unit =
        std::iter::successors(Some(1_u64), |unit| unit.checked_mul(KIB)).take_while(|unit| *unit <= bytes).last();
    let Some(unit) = unit.filter(|unit| *unit > 1) else { return bytes };
    let hundredths = u128::from(bytes) * 100 / u128::from(unit);
    let step = match hundredths {
        0..1_000 => 1,
        1_000..10_000 => 10,
        _ => 100,
    };
    u64::try_from((hundredths / step * step * u128::from(unit)).div_ceil(100)).unwrap_or(bytes)
}

/// The cutoffs that a specified fast tier holds.
fn write_fits(plan: &Plan, out: &mut dyn Write) -> io::Result<()> {
    let Some(first) = plan.fast_tiers.iter().find_map(|tier| tier.fit.as_ref()) else { return Ok(()) };
    heading(&format!("Largest cutoff that a fast tier of {} holds", format_size(first.fast_device_bytes)), out)?;
    let name = name_columns(plan, 54);
    let spills = format!("does not fit at {}", exact_size(plan.usual_cutoff_bytes));
    table(out, |out| {
        writeln!(out, "{FAINT}{:name$}{:>12}{:>9}{:>9}{:>24}{FAINT:#}", "model", "cutoff", "files", "bytes", spills)?;
        for (tier, fit) in plan.fast_tiers.iter().filter_map(|tier| Some((tier, tier.fit.as_ref()?))) {
            let spill = match fit.spill.spilled_bytes {
                0 => "nothing".to_owned(),
                bytes => format!("{} ({})", format_size(bytes), format_share(fit.spill.spilled_fraction)),
            };
            let share =
                |of: fn(&Tier) -> f64| fit.largest.as_ref().map_or("–".to_owned(), |tier| format_share(of(tier)));
            let holds = match &fit.largest {
                Some(tier) if holds_everything(tier, plan) => "everything".to_owned(),
                largest => holds_label(largest.as_ref().map(|tier| tier.cutoff_bytes)),
            };
            write_name(&tier.model, name, out)?;
            writeln!(
                out,
                "{}{}{}{}",
                right(&holds, 12),
                right(&share(|tier| tier.small_file_fraction), 9),
                right(&share(|tier| tier.small_data_fraction), 9),
                right(&spill, 24)
            )?;
        }
        Ok(())
    })?;
    let fail: Vec<&str> =
        plan.fast_tiers.iter().filter(|tier| !tier.overflows).map(|tier| tier.model.as_str()).collect();
    let fail = match fail.is_empty() {
        true => String::new(),
        false => {
            format!(" When full, writes fail on {}; the others spill to the slow tier.", fail.join(", "))
        }
    };
    let fits = plan.fast_tiers.iter().filter_map(|tier| tier.fit.as_ref());
    let nothing = nothing_words(fits.map(|fit| fit.largest.map(|tier| tier.cutoff_bytes)));
    faint(&format!("Capacity is raw, all copies together.{nothing}{fail}"), out)
}

/// What "nothing" means, where it is said.
fn nothing_words(mut largest: impl Iterator<Item = Option<u64>>) -> &'static str {
    if largest.any(|cutoff| cutoff.is_none()) { " Nothing: not even the metadata fits." } else { "" }
}

/// What the three ratios hold.
fn write_profiles(plan: &Plan, out: &mut dyn Write) -> io::Result<()> {
    heading("Largest cutoff with 1.5, 3 and 10 % of fast to slow capacity", out)?;
    let enough = exact_size(plan.usual_cutoff_bytes);
    let name = name_columns(plan, 42);
    table(out, |out| {
        write!(out, "{FAINT}{:name$}", "model")?;
        RATIOS.iter().try_for_each(|ratio| write!(out, "{:>14}", format_share(*ratio)))?;
        writeln!(out, "{FAINT:#}")?;
        for tier in &plan.fast_tiers {
            write_name(&tier.model, name, out)?;
            for profile in &tier.profiles {
                let style = if profile.fits { FAST } else { Style::new() };
                let mark = if profile.fits { "* " } else { "" };
                let label = format!("{mark}{}", holds_label(profile.largest_cutoff_bytes));
                write!(out, "{style}{}{style:#}", right(&label, 14))?;
            }
            writeln!(out)?;
        }
        Ok(())
    })?;
    let enough =
        if plan.usual_cutoff_bytes == 0 { "metadata".to_owned() } else { format!("metadata and files up to {enough}") };
    let profiles = || plan.fast_tiers.iter().flat_map(|tier| &tier.profiles);
    let enough = if profiles().any(|profile| profile.fits) { format!("* Enough for {enough}.") } else { String::new() };
    let words = format!("{enough}{}", nothing_words(profiles().map(|profile| profile.largest_cutoff_bytes)));
    if words.is_empty() { Ok(()) } else { faint(words.trim_start(), out) }
}

/// Answers for one layout: range, costs, settings.
fn write_answers(plan: &Plan, tier: &FastTier, out: &mut dyn Write) -> io::Result<()> {
    let at = tier.curve.iter().find(|at| at.cutoff_bytes == plan.usual_cutoff_bytes);
    let uncertain = at.filter(|at| format_size(at.fast_least_bytes) != format_size(at.fast_bytes));
    let types = plan.fast_tiers.len() <= DETAILS_FOR && !tier.settings.is_empty();
    if uncertain.is_none() && tier.cheapest.is_none() && !types {
        return Ok(());
    }
    heading(&format!("Sizing for {}", tier.model), out)?;
    if let Some(at) = uncertain {
        let least = format_size(at.fast_least_bytes);
        let most = format_size(at.fast_bytes);
        let cutoff = exact_size(at.cutoff_bytes);
        prose(&format!("At {cutoff}, between {least} and {most} is fast, depending on records and compression."), out)?;
    }
    if let Some(sentence) = costs_sentence(plan, tier) {
        prose(&sentence, out)?;
        if plan.fast_tiers.len() <= DETAILS_FOR {
            write_costs(plan, tier, out)?;
        }
    }
    if types {
        faint("Setup commands:", out)?;
        tier.settings.iter().try_for_each(|line| writeln!(out, "  {line}"))?;
    }
    Ok(())
}

fn write_costs(plan: &Plan, tier: &FastTier, out: &mut dyn Write) -> io::Result<()> {
    let currency = plan.currency.as_deref().unwrap_or("");
    table(out, |out| {
        writeln!(out, "{FAINT}{:>14}{:>24}{:>24}{:>14}{FAINT:#}", "option", "fast devices", "slow devices", currency)?;
        for cost in &tier.costs {
            let way = match cost.cutoff_bytes {
                Some(0) => "metadata".to_owned(),
                Some(cutoff) => exact_size(cutoff),
                None => format!("all {}", if cost.fast.is_some() { "fast" } else { "slow" }),
            };
            let devices = |purchase: &Option<crate::plan::cost::Purchase>| match purchase {
                Some(purchase) => {
                    format!(
                        "{} x {}",
                        format_count(purchase.count),
                        shorten(&crate::units::escape(purchase.device.as_bytes()), 16)
                    )
                }
                None => String::new(),
            };
            let mark = if tier.cheapest.as_ref() == Some(cost) { FAST } else { Style::new() };
            writeln!(
                out,
                "{mark}{}{}{}{}{mark:#}",
                right(&way, 14),
                right(&devices(&cost.fast), 24),
                right(&devices(&cost.slow), 24),
                right(&format_count(cost.cost.round() as u128), 14)
            )?;
        }
        Ok(())
    })
}

/// The models with their options.
///
/// # Errors
/// Any error of `out`.
pub(crate) fn write_models_list(kinds: &[&Kind], out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{HEADING}Layout models, with their options and defaults{HEADING:#}")?;
    for kind in kinds {
        for (index, line) in wrap(kind.summary, columns() - 9).iter().enumerate() {
            writeln!(out, "{FAST}{:9}{FAST:#}{line}", if index == 0 { kind.name } else { "" })?;
        }
        for option in kind.options {
            let what = format!("{} ({})", option.meaning, option.range.describe());
            let label = format!("{}={}", option.name, option.default);
            if is_narrow() {
                writeln!(out, "         {label}")?;
                wrap(&what, columns() - 13).iter().try_for_each(|line| writeln!(out, "             {line}"))?;
                continue;
            }
            for (index, line) in wrap(&what, columns() - 34).iter().enumerate() {
                writeln!(out, "         {}{line}", left(if index == 0 { &label } else { "" }, 25))?;
            }
        }
    }
    Ok(())
}
