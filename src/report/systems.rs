//! The 65 systems of Welch and Noer on a terminal, and what is published about one of them.

use std::io::{self, Write};

use super::chart::{columns, left, right, wrap};
use super::paragraphs::{FAINT, HEADING, faint, heading};
use super::table::table;
use crate::plan::systems::{AssessedSystem, Fact, FactKind, suited};
use crate::plan::tier::RATIOS;
use crate::units::{format_count, format_share, format_size};

/// Columns of the kind of a fact.
const KIND: usize = 17;
/// What marks a system whose tables contradict themselves.
const CONTRADICTION: &str = "†";

/// What is published and what is assumed; nothing where there are no facts.
///
/// # Errors
/// Any error of `out`.
pub(super) fn write_facts(facts: &[Fact], out: &mut dyn Write) -> io::Result<()> {
    if facts.is_empty() {
        return Ok(());
    }
    heading("What is published and what is assumed (in brackets: the figure used here)", out)?;
    for fact in facts {
        let used = match fact.fitted {
            Some(figure) if figure <= 1.0 => format!(" ({})", format_share(figure)),
            Some(figure) if fact.kind == FactKind::Published => format!(" ({})", format_count(figure.round() as u128)),
            _ => String::new(),
        };
        let used = if fact.kind == FactKind::Contradiction { "" } else { &used };
        for (index, line) in wrap(&format!("{}{used}", fact.words), columns() - KIND).iter().enumerate() {
            writeln!(out, "{}{line}", left(if index == 0 { kind_word(fact.kind) } else { "" }, KIND))?;
        }
    }
    Ok(())
}

fn kind_word(kind: FactKind) -> &'static str {
    match kind {
        FactKind::Published => "published",
        FactKind::Typical => "of most systems",
        FactKind::Assumed => "assumed",
        FactKind::Contradiction => "contradiction",
    }
}

/// The tables, what follows from them, and how the three ratios suit the systems.
///
/// # Errors
/// Any error of `out`.
pub(crate) fn write_systems(systems: &[AssessedSystem], out: &mut dyn Write) -> io::Result<()> {
    write_tables(systems, out)?;
    write_shares(systems, out)?;
    heading("Number of systems for which a ratio of fast to slow capacity suffices", out)?;
    table(out, |out| {
        writeln!(
            out,
            "{FAINT}{:>8}{:>22}{:>22}{:>26}{FAINT:#}",
            "ratio", "descriptors, certain", "descriptors, possible", "with files <= 64 KiB"
        )?;
        for (ratio, suited) in RATIOS.iter().zip(suited(systems)) {
            let counts = [suited.descriptors_certain, suited.descriptors_possible, suited.small_files_assumed];
            let [certain, possible, assumed] = counts.map(|count| format!("{count} of 65"));
            writeln!(
                out,
                "{:>8}{certain:>22}{possible:>22}{:>26}",
                format_share(*ratio),
                format!("{assumed}, assumed")
            )?;
        }
        Ok(())
    })
}

/// The figures of the paper.
fn write_tables(systems: &[AssessedSystem], out: &mut dyn Write) -> io::Result<()> {
    let title = "The 65 file systems of Welch and Noer (2013): Tables I and II";
    wrap(title, columns()).iter().try_for_each(|line| writeln!(out, "{HEADING}{line}{HEADING:#}"))?;
    let mut has_contradiction = false;
    table(out, |out| {
        writeln!(out, "{FAINT}{:45}{:>10}{:>17}{:>8}{FAINT:#}", "", "", "entries", "name")?;
        writeln!(
            out,
            "{FAINT}{:7}{:>11}{:>9}{:>9}{:>9}{:>10}{:>7}{:>10}{:>4}{:>4}{FAINT:#}",
            "system", "files", "data", "mean", "largest", "direct.", "mean", "most", "avg", "max"
        )?;
        for AssessedSystem { system, facts, .. } in systems {
            let is_contradicted = facts.iter().any(Fact::is_contradiction_of_tables);
            has_contradiction |= is_contradicted;
            let name = format!("{}{}", system.name, if is_contradicted { CONTRADICTION } else { "" });
            writeln!(
                out,
                "{}{}{}{}{}{}{}{}{:>4}{:>4}",
                left(&name, 7),
                right(&format_count(system.files.into()), 11),
                right(&format_size(system.size_bytes), 9),
                right(&format_size(system.mean_bytes.into()), 9),
                right(&format_size(system.max_bytes.into()), 9),
                right(&format_count(system.directories.into()), 10),
                right(&format_count(system.directory_entries_mean.into()), 7),
                right(&format_count(system.directory_entries_max.into()), 10),
                system.name_length_mean,
                system.name_length_max
            )?;
        }
        Ok(())
    })?;
    if has_contradiction {
        let said = systems.iter().flat_map(|system| &system.facts).filter(|fact| fact.is_contradiction_of_tables());
        said.map(|fact| format!("{CONTRADICTION} {}.", fact.words)).try_for_each(|sentence| faint(&sentence, out))?;
    }
    Ok(())
}

/// Descriptors and small files.
fn write_shares(systems: &[AssessedSystem], out: &mut dyn Write) -> io::Result<()> {
    heading("Descriptors and small files", out)?;
    table(out, |out| {
        writeln!(out, "{FAINT}{:8}{:^29}{:>11}{:>11}{FAINT:#}", "", "descriptors", "small", "")?;
        writeln!(
            out,
            "{FAINT}{:8}{:>9}{:>9}{:>11}{:>11}{:>11}{FAINT:#}",
            "system", "least", "most", "assumed", "files", "fast"
        )?;
        for AssessedSystem { system, shares, facts } in systems {
            let is_published = facts.iter().any(|fact| fact.kind == FactKind::Published && fact.fitted.is_some());
            writeln!(
                out,
                "{:8}{}{}{}{}{}{}",
                system.name,
                right(&format_share(shares.descriptors_least_fraction), 9),
                right(&format_share(shares.descriptors_most_fraction), 9),
                right(&format_share(shares.descriptors_assumed_fraction), 11),
                right(&format_share(shares.small_files_assumed_fraction), 11),
                right(&format_share(shares.fast_to_slow_assumed), 11),
                if is_published { " *" } else { "" }
            )?;
        }
        Ok(())
    })?;
    faint(
        "Least, most: object descriptors (16 KiB per component object) as a share of the file data, for any distribution with these \
         numbers of files and bytes. Assumed: of the distribution used here. Small files: share of the files of 64 KiB or less. Fast: \
         descriptors and these files, mirrored, as a ratio to the slow tier. * The text gives figures of its distribution, to which it is \
         fitted; of the others, and between these figures, sizes are assumed (granulo show NAME says what is published).",
        out,
    )
}
