//! What an fsstats CSV means: lays its histograms out as the distributions of a survey.
//!
//! The rows decide. `count` shows whether they are complete. `min` and `max`, which are truncated to whole units,
//! narrow the first and the last bucket, and a value is laid at each, where that agrees with the sums.

use super::read::{HistogramRow, Number, Parsed, Section};
use super::{Buckets, HISTOGRAMS, Histogram, KB, LINEAR_LAST, Population};
use crate::distribution::{Distribution, Interval, Weight, spread};
use crate::survey::measure::Measure;
use crate::survey::{Method, Resolution, Survey};
use crate::units::format_count;

/// The largest length above the linear buckets where the file does not state it: that of a symlink.
const LONGEST: u64 = 4095;

/// The largest sum of the values of a histogram: what a survey file may hold, so that no later sum overflows.
const LARGEST_SUM: u128 = 1 << 103;

type Result<T> = std::result::Result<T, String>;

/// The survey that `parsed` describes, without its name.
pub(super) fn survey_of(parsed: &Parsed, warnings: &mut Vec<String>) -> Result<Survey> {
    let mut survey = Survey::default();
    survey.origin.method = Method::Fsstats;
    survey.origin.resolution = Resolution::Buckets;
    survey.origin.taken_at = parsed.taken_at;
    for (kind, (histogram, section)) in HISTOGRAMS.iter().zip(&parsed.sections).enumerate() {
        let in_name = |cause: String| format!("in the histogram '{}', {cause}", histogram.name);
        let is_file_size = matches!(histogram.population, Population::Values(Measure::FileSize));
        let Some(section) = section else {
            if is_file_size {
                return Err("it has no histogram of file sizes".to_owned());
            }
            warnings.push(format!("there is no histogram '{}'", histogram.name));
            continue;
        };
        let rows = rows(histogram, section, warnings).map_err(in_name)?;
        if let Some(cause) = incomplete(histogram, section, &rows, parsed.last == Some(kind), parsed.cut) {
            let cause = format!("line {}: the histogram '{}' {cause}", section.line, histogram.name);
            if is_file_size {
                return Err(cause);
            }
            warnings.push(format!("{cause}; it is skipped"));
            continue;
        }
        if let Some(stated) = section.count
            && !agrees(histogram, stated, &rows)
        {
            let counted: u128 = rows.iter().map(|row| row.interval.count).sum::<u128>() / counted_in(histogram);
            let stated = stated.times(1).unwrap_or(u128::MAX);
            let (stated, counted) = (format_count(stated), format_count(counted));
            let of = format!("line {}: the histogram '{}'", section.line, histogram.name);
            warnings
                .push(format!("{of} states a count of {stated}, but its rows add up to {counted}; the rows are used"));
        }
        fill(&mut survey, histogram, section, &rows).map_err(in_name)?;
    }
    count(&mut survey, parsed);
    Ok(survey)
}

/// Fills in the counts that the file does not state but implies.
fn count(survey: &mut Survey, parsed: &Parsed) {
    let values = |measure| u64::try_from(survey.distributions.of(measure).count()).unwrap_or(u64::MAX);
    let symlinks = values(Measure::SymlinkTargetLength);
    let share = |share: Option<f64>| share.map_or(0, |share| (share.min(1.0) * symlinks as f64).round() as u64);
    let counts = crate::survey::Counts {
        files: values(Measure::FileSize),
        directories: values(Measure::DirectorySize).max(values(Measure::DirectoryEntries)),
        symlinks,
        special: parsed.special,
        hard_links_skipped: parsed.hard_links_skipped,
        empty_files: u64::try_from(survey.distributions.of(Measure::FileSize).up_to(0).count).unwrap_or(u64::MAX),
        symlinks_absolute: share(parsed.absolute_symlinks),
        symlinks_relative: share(parsed.relative_symlinks),
        snapshot_directories_skipped: parsed.snapshot_directories_skipped,
        ..Default::default()
    };
    survey.counts = counts;
}

/// A row, in the units of the distribution.
struct Bucket {
    line: usize,
    interval: Interval,
}

/// The unit of which the counts of a histogram are multiples, in the weight of its distribution.
fn counted_in(histogram: &Histogram) -> u128 {
    match histogram.population {
        Population::Kilobytes(_) => KB.into(),
        Population::Values(_) | Population::BySize(_) => 1,
    }
}

/// Bytes (or the unit of its values) per unit of a histogram.
fn scale_of(histogram: &Histogram, section: &Section) -> u64 {
    if histogram.scale == KB { section.scale.unwrap_or(KB) } else { histogram.scale }
}

/// The rows with a count, by rising bucket.
fn rows(histogram: &Histogram, section: &Section, warnings: &mut Vec<String>) -> Result<Vec<Bucket>> {
    let scale = scale_of(histogram, section);
    let largest = section.max.and_then(|max| max.times(scale));
    let limit = match histogram.population {
        Population::Kilobytes(_) => <u128 as Weight>::LIMIT,
        Population::Values(_) | Population::BySize(_) => <u64 as Weight>::LIMIT,
    };
    let mut buckets = Vec::new();
    let (mut counted, mut summed) = (0u128, 0u128);
    for row in &section.rows {
        let at = |cause: &str| format!("line {}: {cause}", row.line);
        let (low, high) = bounds(histogram, row, scale, largest).map_err(at)?;
        let count = row.count.times(counted_in(histogram) as u64).filter(|&count| count <= limit);
        let count = count.ok_or_else(|| at("the count is too large"))?;
        counted += count;
        let most = count.checked_mul(high.into()).and_then(|most| most.checked_add(count));
        summed = summed.saturating_add(most.unwrap_or(u128::MAX));
        if counted > limit || summed > LARGEST_SUM {
            return Err(at("the counts of the histogram are too large"));
        }
        if count == 0 {
            continue;
        }
        let sum_scale = scale.saturating_mul(counted_in(histogram) as u64);
        let sum = match row.value {
            None => None,
            Some(value) => match value.times(sum_scale) {
                Some(sum) if sum <= LARGEST_SUM => Some(sum),
                _ => return Err(at("the sum of the values is too large")),
            },
        };
        let by_size = matches!(histogram.population, Population::BySize(_));
        // Printed values are rounded, and those of days are truncated to whole days: one more unit is not a
        // contradiction.
        let possible = u128::from(low) * count..=most.unwrap_or(u128::MAX);
        if let Some(sum) = sum
            && !by_size
            && !(possible.contains(&sum) || possible.contains(&(sum + sum / 1_000_000 + 1)))
        {
            warnings.push(at("the sum of the values is impossible for the bucket; the nearest possible sum is used"));
        }
        buckets.push(Bucket { line: row.line, interval: Interval { low, high, count, sum } });
    }
    buckets.sort_by_key(|bucket| (bucket.interval.low, bucket.interval.high));
    for (one, next) in buckets.iter().zip(buckets.iter().skip(1)) {
        if next.interval.low <= one.interval.high && one.interval.high > 0 {
            let (first, second) = (one.line.min(next.line), one.line.max(next.line));
            return Err(format!("line {second}: the bucket overlaps the one in line {first}"));
        }
    }
    Ok(buckets)
}

/// The smallest and the largest value of a row, both included.
fn bounds(
    histogram: &Histogram,
    row: &HistogramRow,
    scale: u64,
    largest: Option<u128>,
) -> std::result::Result<(u64, u64), &'static str> {
    let fits = |number: Number| {
        let scaled = number.times(scale).filter(|&scaled| scaled <= 1 << 64);
        scaled.ok_or("a bound of the bucket is too large")
    };
    let scale = u128::from(scale);
    let (low, end) = match (row.first, row.last) {
        (None, None) => return Err("the bucket has no bounds"),
        // Below the smallest bucket, which starts at 0.
        (None, Some(_)) => (0, 1),
        (Some(first), None) => {
            let low = fits(first)? + scale;
            let last = largest.unwrap_or(u128::from(LONGEST.max(LINEAR_LAST)));
            let end = last.checked_add(scale).ok_or("a bound of the bucket is too large")?;
            (low, end.max(low + scale))
        }
        (Some(first), Some(last)) => {
            let (low, last) = (fits(first)?, fits(last)?);
            if low > last {
                return Err("the bucket ends before it begins");
            }
            // Where it is a power of two, the upper bound itself shows whether it is included.
            let power = (2 * low).max(2 * scale);
            let excluded = last == power || (last + scale != power && histogram.buckets == Buckets::Real && last > low);
            (low, if excluded { last } else { last + scale })
        }
    };
    let low = u64::try_from(low).map_err(|_| "a bound of the bucket is too large")?;
    let high = u64::try_from(end - 1).map_err(|_| "a bound of the bucket is too large")?;
    Ok((low, high))
}

/// Whether the rows add up to the `stated` count. Kilobytes may have been truncated to whole ones in every row.
fn agrees(histogram: &Histogram, stated: Number, rows: &[Bucket]) -> bool {
    let counted_in = counted_in(histogram);
    let counted: u128 = rows.iter().map(|row| row.interval.count).sum();
    let tolerance = if counted_in == 1 { 0 } else { (rows.len() as u128 + 1) * counted_in };
    stated.times(counted_in as u64).is_some_and(|stated| stated.abs_diff(counted) <= tolerance)
}

/// Why a histogram is incomplete, if it is: the file ends in it.
fn incomplete(
    histogram: &Histogram,
    section: &Section,
    rows: &[Bucket],
    last: bool,
    cut: bool,
) -> Option<&'static str> {
    let counted: u128 = rows.iter().map(|row| row.interval.count).sum();
    let counts_nothing = section.count.is_some_and(|stated| stated.times(1) == Some(0));
    let fewer = |stated: Number| stated.times(counted_in(histogram) as u64).is_none_or(|stated| counted < stated);
    match section.count {
        _ if section.torn => Some("is truncated within a line"),
        Some(stated) if last && fewer(stated) && !agrees(histogram, stated, rows) => {
            Some("is truncated: rows are missing")
        }
        None if last && cut => Some("is truncated"),
        _ if section.rows.is_empty() && !counts_nothing => Some("has no rows"),
        _ => None,
    }
}

/// Lays out a histogram.
fn fill(survey: &mut Survey, histogram: &Histogram, section: &Section, rows: &[Bucket]) -> Result<()> {
    let scale = scale_of(histogram, section);
    // Truncated to whole units, so any value below the next unit.
    let within = |number: Option<Number>| {
        let low = number?.times(scale)?;
        Some((u64::try_from(low).ok()?, u64::try_from(low + u128::from(scale) - 1).ok()?))
    };
    let (min, max) = (within(section.min), within(section.max));
    let intervals: Vec<Interval> = rows.iter().map(|row| row.interval).collect();
    let distributions = &mut survey.distributions;
    let laid_out = match histogram.population {
        Population::Values(measure) => lay_out(distributions.of_mut(measure), intervals, min, max),
        Population::Kilobytes(measure) => lay_out(distributions.by_bytes_mut(measure), intervals, min, max),
        Population::BySize(measure) => {
            let positive = measure == Measure::PositiveOverhead;
            for interval in &intervals {
                // The first row of kilobytes holds all sizes below 2 KiB, represented by the largest of their buckets.
                let count = u64::try_from(interval.count).unwrap_or(u64::MAX);
                survey.overhead_by_size.record(interval.high, positive, count, interval.sum.unwrap_or(0));
            }
            lay_out(distributions.of_mut(measure), overhead(&intervals, min, max), min, max)
        }
    };
    laid_out.map_err(|cause| format!("line {}: {cause}", section.line))
}

/// The overheads of all sizes together: how they are spread within a size is unknown, but their least and most are
/// known.
fn overhead(by_size: &[Interval], min: Option<(u64, u64)>, max: Option<(u64, u64)>) -> Vec<Interval> {
    let count: u128 = by_size.iter().map(|interval| interval.count).sum();
    let sum: u128 = by_size.iter().map(|interval| interval.sum.unwrap_or(0)).fold(0, u128::saturating_add);
    if count == 0 {
        return Vec::new();
    }
    let bounds = min.zip(max).map(|(min, max)| (min.0, max.1));
    let agrees = |&(low, high): &(u64, u64)| {
        let most = u128::from(high).checked_mul(count);
        low <= high && u128::from(low).saturating_mul(count) <= sum && most.is_some_and(|most| sum <= most)
    };
    let (low, high) = bounds.filter(agrees).unwrap_or((0, u64::try_from(sum / count * 2 + 1).unwrap_or(u64::MAX)));
    vec![Interval { low, high, count, sum: Some(sum) }]
}

/// Lays out rising `intervals`, with the least value within `min` and the largest within `max` where the intervals
/// allow it.
fn lay_out<W: Weight>(
    distribution: &mut Distribution<W>,
    mut intervals: Vec<Interval>,
    min: Option<(u64, u64)>,
    max: Option<(u64, u64)>,
) -> std::result::Result<(), &'static str> {
    let alone = intervals.len() == 1;
    if let (Some(first), Some(min)) = (intervals.first_mut(), min) {
        let low = first.low.max(min.0);
        if low <= first.high && first.sum.is_none_or(|sum| u128::from(low).saturating_mul(first.count) <= sum) {
            first.low = low;
        }
    }
    if let (Some(last), Some(max)) = (intervals.last_mut(), max) {
        let high = last.high.min(max.1);
        if high >= last.low && last.sum.is_none_or(|sum| sum <= u128::from(high).saturating_mul(last.count)) {
            last.high = high;
        }
    }
    // Pinning the largest value leaves room for the least one, where both are in one bucket.
    let pinned = [
        intervals.last_mut().and_then(|last| pin(last, max?, min.filter(|_| alone))),
        intervals.first_mut().and_then(|first| pin(first, min?, None)),
    ];
    for value in pinned.into_iter().flatten() {
        spread(distribution, &Interval { low: value, high: value, count: 1, sum: None })?;
    }
    intervals.iter().try_for_each(|interval| spread(distribution, interval))
}

/// Removes one value within `range` from `interval`, such that the rest can still have its sum and include a value
/// within `within`.
fn pin(interval: &mut Interval, range: (u64, u64), within: Option<(u64, u64)>) -> Option<u64> {
    let (from, to) = (range.0.max(interval.low), range.1.min(interval.high));
    let others = interval.count.checked_sub(1)?;
    let (low, high) = (u128::from(interval.low), u128::from(interval.high));
    if from > to {
        return None;
    }
    let value = match interval.sum {
        None => from,
        Some(sum) => {
            let sum = sum.clamp(low * interval.count, high * interval.count);
            let most = match within.filter(|_| others > 0) {
                Some(within) => (others - 1) * high + u128::from(within.1).min(high),
                None => others * high,
            };
            let from = u128::from(from).max(sum.saturating_sub(most));
            let to = u128::from(to).min(sum - others * low);
            if from > to {
                return None;
            }
            interval.sum = Some(sum - from);
            u64::try_from(from).ok()?
        }
    };
    interval.count = others;
    Some(value)
}
