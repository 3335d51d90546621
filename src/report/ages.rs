//! Ages on a terminal: how young files are, and whose bytes are old. All breaks are shown, in as many tables as the
//! width needs.

use std::io::{self, Write};

use super::chart::{columns, right};
use super::paragraphs::{FAINT, faint, heading};
use super::table::table;
use super::words::owner_words;
use crate::distribution::{Distribution, Weight};
use crate::survey::Survey;
use crate::survey::measure::{ByteMeasure, Measure};
use crate::survey::owner_ages::{OwnerAges, older};
use crate::survey::places::{Kind, Places};
use crate::units::{SECONDS_A_DAY, format_count, format_share, format_size, fraction};

/// The first day of 1982, in days since 1970. Packaging writes 1970 and 1980 where it has no time: earlier times are
/// resets.
const FIRST_TRUE_DAY: i64 = 4383;
/// Age of that day where the time of the survey is unknown: today's, and a little more.
const USUAL_RESET_DAYS: u64 = 16_384;
/// Columns before and of the shares younger than a break.
const AGES: (usize, usize) = (22, 9);
/// Columns before and of the bytes of an owner, with what they are and some of the owner's name.
const OWNERS: (usize, usize) = (34, 11);

/// Shares younger than each break, and how many times were reset by packaging.
pub(super) fn write_ages(survey: &Survey, out: &mut dyn Write) -> io::Result<()> {
    if survey.distributions.of(Measure::MtimeAge).is_empty() {
        return Ok(());
    }
    for breaks in groups(&survey.origin.options.age_breaks_days, AGES) {
        heading("Ages: share younger than", out)?;
        table(out, |out| age_table(survey, breaks, out))?;
    }
    let resets = resets(survey);
    if resets.is_empty() { Ok(()) } else { faint(&resets, out) }
}

fn age_table(survey: &Survey, breaks: &[u64], out: &mut dyn Write) -> io::Result<()> {
    let ages = [
        ("content changed", Measure::MtimeAge, ByteMeasure::MtimeAge),
        ("inode changed", Measure::CtimeAge, ByteMeasure::CtimeAge),
        ("read", Measure::AtimeAge, ByteMeasure::AtimeAge),
    ];
    let edges: Vec<u64> = breaks.iter().map(|days| days.saturating_sub(1)).collect();
    write!(out, "{FAINT}{:>22}", "")?;
    breaks.iter().try_for_each(|days| write!(out, "{:>9}", age_words(*days)))?;
    writeln!(out, "{FAINT:#}")?;
    for (label, by_files, by_bytes) in ages {
        age_row(&format!("{label:>15} files"), survey.distributions.of(by_files), &edges, out)?;
        age_row(&format!("{:>15} bytes", ""), survey.distributions.by_bytes(by_bytes), &edges, out)?;
    }
    Ok(())
}

/// Breaks side by side: as even groups as the width needs.
fn groups(breaks: &[u64], (before, each): (usize, usize)) -> impl Iterator<Item = &[u64]> {
    let across = (columns().saturating_sub(before) / each).max(1);
    let count = breaks.len().div_ceil(across).max(1);
    breaks.chunks(breaks.len().div_ceil(count).max(1))
}

/// An age in words: years and days where it is a whole number of them.
fn age_words(days: u64) -> String {
    match days {
        1 => "1 day".to_owned(),
        7 => "1 week".to_owned(),
        365 => "1 year".to_owned(),
        _ if days.is_multiple_of(365) => format!("{} years", days / 365),
        _ => format!("{} days", format_count(days.into())),
    }
}

/// The lowest age of a time that packaging reset.
pub(super) fn first_reset_days(survey: &Survey) -> u64 {
    let reference = survey.origin.reference_time.map(|at| at.div_euclid(SECONDS_A_DAY) - FIRST_TRUE_DAY);
    reference.and_then(|days| u64::try_from(days).ok()).map_or(USUAL_RESET_DAYS, |days| days + 1)
}

/// An age in days, marked if its time was reset: from `first_reset` on.
pub(super) fn days_words(days: u64, first_reset: u64) -> String {
    format!("{} d{}", format_count(days.into()), if days >= first_reset { "*" } else { "" })
}

/// What the mark means, if one of these ages has it.
pub(super) fn reset_note(mut ages: impl Iterator<Item = u64>, first_reset: u64, out: &mut dyn Write) -> io::Result<()> {
    if ages.any(|days| days >= first_reset) { faint("* A time before 1982: reset by packaging.", out) } else { Ok(()) }
}

/// The files whose times are before 1982, in a sentence; empty if there are hardly any.
fn resets(survey: &Survey) -> String {
    let kinds = [("mtime", Measure::MtimeAge), ("ctime", Measure::CtimeAge), ("atime", Measure::AtimeAge)];
    let first_reset = first_reset_days(survey);
    let shares = kinds.iter().filter_map(|(name, measure)| {
        let ages = survey.distributions.of(*measure);
        let reset = ages.count() - first_reset.checked_sub(1).map_or(0, |last| ages.up_to(last).count);
        let share = fraction(reset, ages.count());
        (share >= 0.001).then(|| format!("the {name} of {} of the files", format_share(share)))
    });
    let shares: Vec<String> = shares.collect();
    if shares.is_empty() {
        String::new()
    } else {
        format!("Reset by packaging, to before 1982: {}.", shares.join(", "))
    }
}

/// Bytes of each owner that were not read, and not written, for at least as long as each break.
pub(super) fn write_owner_ages(places: &Places, shown: usize, out: &mut dyn Write) -> io::Result<()> {
    let Some(ages) = places.owner_ages.as_ref().filter(|ages| !ages.ranked().is_empty()) else { return Ok(()) };
    let mut first = 0;
    for breaks in groups(ages.breaks_days(), OWNERS) {
        heading("Bytes of each owner that nobody read, or wrote, for at least", out)?;
        table(out, |out| owner_table(places, ages, (first, breaks), shown, out))?;
        first += breaks.len();
    }
    Ok(())
}

/// The table of `breaks`, which begin at index `first` of all.
fn owner_table(
    places: &Places,
    ages: &OwnerAges,
    (first, breaks): (usize, &[u64]),
    shown: usize,
    out: &mut dyn Write,
) -> io::Result<()> {
    write!(out, "{FAINT}{:>12}", "all")?;
    breaks.iter().try_for_each(|days| write!(out, "{:>11}", age_words(*days)))?;
    writeln!(out, "{:>8}\towner{FAINT:#}", "")?;
    let mut rows = ages.ranked();
    rows.sort_by_key(|(owner, files)| (std::cmp::Reverse(files.total().size_bytes), *owner));
    for (owner, files) in rows.iter().take(shown) {
        let label = match owner {
            Kind::Named(uid) => owner_words(places, *uid),
            Kind::Anonymous(_) => "(omitted)".to_owned(),
        };
        let total = format_size(files.total().size_bytes);
        for (what, classes, total, label) in
            [("read", &files.read, total.as_str(), label.as_str()), ("written", &files.written, "", "")]
        {
            write!(out, "{}", right(total, 12))?;
            for index in first..first + breaks.len() {
                write!(out, "{}", right(&format_size(older(classes, index + 1).size_bytes), 11))?;
            }
            writeln!(out, "{FAINT}{what:>8}{FAINT:#}\t{label}")?;
        }
    }
    Ok(())
}

fn age_row<W: Weight>(label: &str, ages: &Distribution<W>, edges: &[u64], out: &mut dyn Write) -> io::Result<()> {
    write!(out, "{label:>22}")?;
    let whole = ages.count();
    for days in edges {
        let share = match whole {
            0 => "–".to_owned(),
            _ => format_share(fraction(ages.up_to(*days).count, whole)),
        };
        write!(out, "{}", right(&share, 9))?;
    }
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn aged(days: u64, files: u64) -> Survey {
        let mut survey = Survey::default();
        survey.distributions.of_mut(Measure::MtimeAge).add(days, files);
        survey.distributions.of_mut(Measure::MtimeAge).add(10, 3);
        survey
    }

    #[test]
    fn times_that_packaging_reset_are_said() {
        assert_eq!(resets(&aged(16_400, 1)), "Reset by packaging, to before 1982: the mtime of 25.0 % of the files.");
        assert_eq!(resets(&aged(16_000, 1)), "");
        assert_eq!(days_words(16_384, USUAL_RESET_DAYS), "16,384 d*");
        assert_eq!(days_words(365, USUAL_RESET_DAYS), "365 d");
    }

    #[test]
    fn resets_are_before_1982_whenever_the_survey_was_taken() {
        // 1980-01-01 on 2023-01-01; 1985-01-01 on 2031-01-01.
        for (reference_time, days, is_reset) in [(1_672_531_200, 15_706, true), (1_924_992_000, 16_801, false)] {
            let mut survey = aged(days, 1);
            survey.origin.reference_time = Some(reference_time);
            assert_eq!(!resets(&survey).is_empty(), is_reset, "{days}");
            assert_eq!(days_words(days, first_reset_days(&survey)).ends_with('*'), is_reset, "{days}");
        }
    }

    #[test]
    fn unknown_ages_have_no_shares() {
        let row = |ages: &Distribution| {
            let mut out = Vec::new();
            age_row("files", ages, &[6, 29], &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(row(&Distribution::default()), format!("{:>22}{:>9}{:>9}\n", "files", "–", "–"));
        let mut old = Distribution::default();
        old.add(400, 1);
        assert!(row(&old).contains("0.0 %"));
    }

    #[test]
    fn every_break_is_in_a_group() {
        let breaks: Vec<u64> = (1..=16).collect();
        for layout in [AGES, OWNERS] {
            let groups: Vec<&[u64]> = groups(&breaks, layout).collect();
            assert_eq!(groups.concat(), breaks);
            assert!(groups.iter().all(|group| layout.0 + layout.1 * group.len() <= columns()), "{groups:?}");
        }
    }
}
