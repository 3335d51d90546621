//! The findings of a bench, in sentences: the questions of its source, answered with the figures of the run.

use crate::bench::fill::Test;
use crate::bench::result::{
    CacheDetails, CreateDetails, CreatePhase, Details, Document, MetadataDetails, PackDetails, Series, Subject,
};
use crate::bench::samples::Spread;
use crate::units::{format_count, format_duration, format_share, format_size};

/// A test hurts at a level at which it takes this many times as long as at the first level.
const HURTS: f64 = 1.5;
/// More cache does not help where it makes a run faster by less than this.
const NO_HELP: f64 = 0.05;

/// Sentences, the most significant first.
pub fn sentences(document: &Document) -> Vec<String> {
    let mut sentences = match &document.details {
        Details::Create(details) => create(document, details),
        Details::Pack(details) => pack(document, details),
        Details::Fill(_) => fill(document),
        Details::Metadata(details) => metadata(document, details),
        Details::Cache(details) => cache(document, details),
    };
    if !document.complete {
        sentences.push("The run was interrupted: these are partial results.".to_owned());
    }
    sentences
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let values: Vec<f64> = values.collect();
    (!values.is_empty()).then(|| Spread::of(&values).median)
}

/// `1.3 times`, with about two digits.
fn times(ratio: f64) -> String {
    match ratio {
        ratio if ratio >= 99.5 => format!("{} times", format_count(ratio.round() as u128)),
        ratio if ratio >= 9.95 => format!("{ratio:.0} times"),
        ratio => format!("{ratio:.1} times"),
    }
}

/// How long the last operations took compared with the first, by round.
pub(super) struct Rounds {
    pub(super) count: u64,
    pub(super) least: f64,
    pub(super) most: f64,
    /// Whether rounds differ by more than the first and the last operations do.
    pub(super) is_noise: bool,
}

impl Rounds {
    /// From the times of the first and of the last operations in each round; `None` for one round, which has no spread.
    pub(super) fn of(first: &[f64], last: &[f64]) -> Option<Rounds> {
        let ratios: Vec<f64> =
            first.iter().zip(last).map(|(first, last)| last / first.max(f64::MIN_POSITIVE)).collect();
        let [ratios, first, last] = [&ratios[..], first, last].map(Spread::of);
        let noise = (first.max - first.min).max(last.max - last.min);
        let is_noise = noise > (last.median - first.median).abs();
        (ratios.count > 1).then_some(Rounds { count: ratios.count, least: ratios.min, most: ratios.max, is_noise })
    }

    fn words(&self) -> String {
        let noise = if self.is_noise { ", which is no more than noise" } else { "" };
        format!(" ({:.1} to {:.1} times in {} rounds{noise})", self.least, self.most, format_count(self.count.into()))
    }
}

fn create(document: &Document, details: &CreateDetails) -> Vec<String> {
    let sentence = |(at, subject): (usize, &Subject)| {
        let phases = |phase: &'static str| {
            details.phases.iter().filter(move |passed| passed.subject == at && passed.phase == phase)
        };
        let edges = |phase: &'static str| {
            let first = median(phases(phase).map(|passed| passed.latencies.first_mean_ns / 1e9))?;
            let last = median(phases(phase).map(|passed| passed.latencies.last_mean_ns / 1e9))?;
            Some((first, last))
        };
        let in_rounds = |figure: fn(&CreatePhase) -> f64| phases("create").map(figure).collect::<Vec<f64>>();
        let rounds = Rounds::of(
            &in_rounds(|passed| passed.latencies.first_mean_ns),
            &in_rounds(|passed| passed.latencies.last_mean_ns),
        );
        let average = |phase: &'static str| {
            median(phases(phase).map(|passed| passed.elapsed_seconds / passed.latencies.count.max(1) as f64))
        };
        let files = median(phases("create").map(|passed| passed.latencies.count as f64))?;
        let (first, last) = edges("create")?;
        let mut text = format!(
            "{}: of {} files, creating each of the last thousand took {}, {} as long as the first{}",
            subject.name,
            format_count(files as u128),
            format_duration(last),
            times(last / first.max(f64::MIN_POSITIVE)),
            rounds.as_ref().map_or_else(String::new, Rounds::words),
        );
        if let (Some(created), Some(deleted)) = (average("create"), average("delete")) {
            text.push_str(&format!(
                "; deleting a file took {} on average, creating {}",
                format_duration(deleted),
                format_duration(created)
            ));
        }
        Some(text + ".")
    };
    document.subjects.iter().enumerate().filter_map(sentence).collect()
}

fn pack(document: &Document, details: &PackDetails) -> Vec<String> {
    let sentence = |(at, subject): (usize, &Subject)| {
        let seconds = |measure: &str| document.series_of(at, measure).map(|series| series.spread.median);
        let loads =
            document.series.iter().filter(|series| series.subject == at && series.measure.starts_with("files load"));
        let many = loads.map(|series| series.spread.median).fold(f64::INFINITY, f64::min);
        let against: Vec<String> = [
            ("store load", "the granulo store"),
            ("flat load", "one flat file"),
            ("composite load", "one file of records"),
        ]
        .into_iter()
        .filter_map(|(measure, name)| Some(format!("{} as long as {name}", times(many / seconds(measure)?))))
        .collect();
        (many.is_finite() && !against.is_empty()).then(|| {
            format!(
                "On {}, reading {} files takes {} at best: {}.",
                subject.name,
                format_count(details.files.into()),
                format_duration(many),
                against.join(", ")
            )
        })
    };
    document.subjects.iter().enumerate().filter_map(sentence).collect()
}

fn fill(document: &Document) -> Vec<String> {
    let sentence = |(at, subject): (usize, &Subject)| {
        let hurting = |test: &Test| hurting(test.name(), &levels(document, at, test.name()));
        let hurts: Vec<String> = Test::ALL.iter().filter_map(hurting).collect();
        // A level that was reached may have had no room for a test.
        let tested = document.series.iter().filter(|series| series.subject == at).filter_map(|series| series.level);
        let last = tested.fold(0.0, f64::max);
        match hurts.is_empty() {
            _ if last == 0.0 => None,
            true => Some(format!(
                "{}: up to {} full, no test takes {HURTS} times as long as at the lowest level.",
                subject.name,
                format_share(last)
            )),
            false => Some(format!(
                "{}: tests that take at least {HURTS} times as long as at the lowest level: {}.",
                subject.name,
                hurts.join(", ")
            )),
        }
    };
    document.subjects.iter().enumerate().filter_map(sentence).collect()
}

/// Levels of a test on a subject, from the lowest, with the mean time at each.
fn levels(document: &Document, subject: usize, test: &str) -> Vec<(f64, f64)> {
    let is_it = |series: &&Series| series.subject == subject && series.measure == test;
    let of = |series: &Series| Some((series.level?, series.spread.mean));
    let mut levels: Vec<(f64, f64)> = document.series.iter().filter(is_it).filter_map(of).collect();
    levels.sort_by(|a, b| a.0.total_cmp(&b.0));
    levels
}

/// The levels at which a test takes [`HURTS`] times as long as at the lowest, in words: all from one level on, or some
/// in between.
fn hurting(test: &str, levels: &[(f64, f64)]) -> Option<String> {
    let (_, first) = *levels.first()?;
    let hurts = |(_, mean): &(f64, f64)| *mean >= HURTS * first;
    let from = levels.iter().rposition(|level| !hurts(level)).map_or(0, |at| at + 1);
    if let (Some((level, _)), Some((_, last))) = (levels.get(from), levels.last()) {
        return Some(format!("{test} from {} up ({} at the highest)", format_share(*level), times(last / first)));
    }
    let mut between = levels.iter().filter(|level| hurts(level));
    let (lowest, _) = between.next()?;
    let longest = levels.iter().map(|(_, mean)| *mean).fold(0.0, f64::max);
    let levels = match between.next_back() {
        Some((highest, _)) => format!("between {} and {}", format_share(*lowest), format_share(*highest)),
        None => format!("at {}", format_share(*lowest)),
    };
    Some(format!("{test} only {levels} (at most {})", times(longest / first)))
}

fn metadata(document: &Document, details: &MetadataDetails) -> Vec<String> {
    let mut sentences = Vec::new();
    let several = format!("reads, {} threads", details.threads);
    let measures = [
        ("peak load", "Peak rate of the operation mix"),
        ("check", "A full check"),
        ("list", "Listing a large directory with attributes"),
        ("reads, 1 thread", "Reads of small files per second, one thread"),
        (several.as_str(), "The same with all threads"),
    ];
    for (measure, what) in measures {
        let figure = |(at, subject): (usize, &Subject)| {
            let series = document.series_of(at, measure)?;
            let median = series.spread.median;
            Some(match series.unit.as_str() {
                "seconds" => format!("{} {}", subject.name, format_duration(median)),
                _ => format!("{} {}", subject.name, format_count(median.round() as u128)),
            })
        };
        let said: Vec<String> = document.subjects.iter().enumerate().filter_map(figure).collect();
        if !said.is_empty() {
            sentences.push(format!("{what}: {}.", said.join(", ")));
        }
    }
    sentences
}

fn cache(document: &Document, details: &CacheDetails) -> Vec<String> {
    let runs = || document.series.iter().filter(|series| series.measure == "run");
    let mut sentences = Vec::new();
    let best = |size: u64| {
        runs()
            .filter(|series| series.level == Some(size as f64))
            .min_by(|a, b| a.spread.median.total_cmp(&b.spread.median))
    };
    let named = |series: &Series| document.subject_name(series.subject);
    let found: Vec<(u64, &Series)> =
        details.cache_sizes_bytes.iter().filter_map(|&size| Some((size, best(size)?))).collect();
    if let Some((size, series)) = found.first() {
        sentences.push(format!(
            "With {}, the smallest limit with completed runs, {} is fastest: {}; without a limit, a run takes {}.",
            format_size((*size).into()),
            named(series),
            format_duration(series.spread.median),
            format_duration(details.unlimited_seconds),
        ));
    }
    let helps = |pair: &[(u64, &Series)]| pair[1].1.spread.median < (1.0 - NO_HELP) * pair[0].1.spread.median;
    let enough = found.windows(2).rposition(helps).map_or(0, |at| at + 1);
    if let Some((size, _)) = found.get(enough).filter(|_| enough + 1 < found.len()) {
        sentences.push(format!(
            "Above {}, each larger cache size speeds up a run by less than {}.",
            format_size((*size).into()),
            format_share(NO_HELP)
        ));
    }
    sentences
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_that_hurt_are_named() {
        let of = |means: &[f64]| {
            let levels: Vec<(f64, f64)> = [0.3, 0.5, 0.9, 0.95].into_iter().zip(means.iter().copied()).collect();
            hurting("read", &levels)
        };
        assert_eq!(of(&[1.0, 1.1, 1.4, 1.49]), None);
        assert_eq!(of(&[1.0, 1.1, 1.6, 2.0]).unwrap(), "read from 90.0 % up (2.0 times at the highest)");
        assert_eq!(of(&[1.0, 1.7, 1.6, 1.4]).unwrap(), "read only between 50.0 % and 90.0 % (at most 1.7 times)");
        assert_eq!(of(&[1.0, 1.1, 1.5, 1.4]).unwrap(), "read only at 90.0 % (at most 1.5 times)");
        assert_eq!(of(&[]), None);
    }
}
