//! A page of benches: one self-contained HTML file, with runs of the same bench overlaid.
//!
//! Its scripts are in `web/bench*.js`; template, style, figures and formats are those of the survey page. Curves of the
//! n-th operation are thinned out, with the rounds of a run joined.

use std::collections::BTreeMap;
use std::io;

use serde::Serialize;

use super::noise::warnings;
use super::title;
use super::words::sentences;
use crate::bench::metadata::published::{Figure, table_3};
use crate::bench::result::{CreatePhase, Details, Document};
use crate::bench::samples::{CurveBin, Spread};
use crate::mrc::published::{Matrix, fig_5};
use crate::report::origin::told_apart;
use crate::report::page::{Part, Scripts};

const SCRIPTS: Scripts = Scripts {
    kind: "bench",
    sections: include_str!("../../../web/bench-sections.js"),
    details: include_str!("../../../web/bench-details.js"),
    script: include_str!("../../../web/bench.js"),
};

/// Largest number of points of a curve.
const MOST_POINTS: usize = 256;

/// A result with its name, which is the name of its file where there are several.
#[derive(Debug)]
pub struct NamedRun {
    /// Short, escaped.
    pub name: String,
    /// The result.
    pub document: Document,
}

#[derive(Serialize)]
struct Page<'a> {
    words: Vec<String>,
    /// Where the figures are not to be trusted.
    warnings: Vec<String>,
    runs: Vec<RunRecord<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    table_3: Option<Vec<Figure>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fig_5: Option<Matrix>,
}

#[derive(Serialize)]
struct RunRecord<'a> {
    name: &'a str,
    document: Document,
    curves: Vec<Curve>,
}

/// The n-th operation of a subject: the middle of a range of operations, their mean time in the middle round, in the
/// fastest and in the slowest, in seconds.
#[derive(Debug, PartialEq, Serialize)]
struct Curve {
    subject: usize,
    phase: String,
    points: Vec<(f64, f64, f64, f64)>,
}

/// The part on a page with other results.
///
/// # Errors
/// When the data cannot be JSON.
pub fn part(runs: &[NamedRun]) -> io::Result<Part> {
    let has = |is_it: fn(&Details) -> bool| runs.iter().any(|run| is_it(&run.document.details));
    let title_of_all = match runs {
        [only] => told_apart(&title(&only.document), Some(&only.document.host.name), Some(&only.document.started_at)),
        several => format!("{} runs", several.len()),
    };
    let page = Page {
        words: match runs {
            [only] => sentences(&only.document),
            several => several.iter().map(|run| format!("{}: {}.", run.name, title(&run.document))).collect(),
        },
        warnings: runs
            .iter()
            .flat_map(|run| {
                let of = if runs.len() > 1 { format!("{}: ", run.name) } else { String::new() };
                warnings(&run.document).into_iter().map(move |warning| format!("{of}{warning}"))
            })
            .collect(),
        runs: runs.iter().map(RunRecord::of).collect(),
        table_3: has(|details| matches!(details, Details::Metadata(_))).then(table_3),
        fig_5: has(|details| matches!(details, Details::Cache(_))).then(fig_5),
    };
    Part::new(title_of_all, &page, &SCRIPTS)
}

impl<'a> RunRecord<'a> {
    fn of(run: &'a NamedRun) -> RunRecord<'a> {
        let mut document = run.document.clone();
        let mut curves = Vec::new();
        if let Details::Create(details) = &mut document.details {
            curves = joined(&details.phases);
            details.phases.iter_mut().for_each(|phase| phase.latencies.curve.clear());
        }
        RunRecord { name: &run.name, document, curves }
    }
}

/// One curve for each subject and phase.
fn joined(phases: &[CreatePhase]) -> Vec<Curve> {
    let mut groups: BTreeMap<(usize, &str), Vec<&[CurveBin]>> = BTreeMap::new();
    for phase in phases {
        groups.entry((phase.subject, &phase.phase)).or_default().push(&phase.latencies.curve);
    }
    let curve = |((subject, phase), rounds): ((usize, &str), Vec<&[CurveBin]>)| Curve {
        subject,
        phase: phase.to_owned(),
        points: points(&rounds),
    };
    groups.into_iter().map(curve).filter(|curve| !curve.points.is_empty()).collect()
}

/// The rounds of a curve as one. Rounds that ended early do not contribute beyond their end.
fn points(rounds: &[&[CurveBin]]) -> Vec<(f64, f64, f64, f64)> {
    let last =
        rounds.iter().filter_map(|bins| bins.last()).map(|bin| bin.first.saturating_add(bin.count)).max().unwrap_or(0);
    let step = last.div_ceil(MOST_POINTS as u64).max(1);
    let rows: Vec<Vec<Option<f64>>> = rounds.iter().map(|bins| thinned(bins, step, last.div_ceil(step))).collect();
    let point = |index: u64| {
        let means: Vec<f64> = rows.iter().filter_map(|row| row[index as usize]).collect();
        let spread = Spread::of(&means);
        let (from, to) = (index * step, (index + 1).saturating_mul(step).min(last));
        (!means.is_empty()).then(|| ((from + to) as f64 / 2.0, spread.median, spread.min, spread.max))
    };
    (0..last.div_ceil(step)).filter_map(point).collect()
}

/// Means of `count` times `step` operations, in seconds; a bin belongs to the step of its first operation.
fn thinned(bins: &[CurveBin], step: u64, count: u64) -> Vec<Option<f64>> {
    let mut sums = vec![(0.0, 0u64); count as usize];
    for bin in bins {
        // Hand-written results may contain any number.
        if let Some((sum, operations)) = sums.get_mut((bin.first / step) as usize) {
            *sum += bin.mean_ns * bin.count as f64;
            *operations = operations.saturating_add(bin.count);
        }
    }
    sums.into_iter().map(|(sum, operations)| (operations > 0).then(|| round(sum / operations as f64 / 1e9))).collect()
}

/// Rounds to four digits, more than can be seen.
fn round(seconds: f64) -> f64 {
    if seconds <= 0.0 {
        return 0.0;
    }
    let scale = 10f64.powf(3.0 - seconds.log10().floor());
    (seconds * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bins(means_ns: &[f64], count: u64) -> Vec<CurveBin> {
        let bin = |(index, &mean_ns): (usize, &f64)| CurveBin {
            first: index as u64 * count,
            count,
            mean_ns,
            min_ns: mean_ns as u64,
            max_ns: mean_ns as u64,
        };
        means_ns.iter().enumerate().map(bin).collect()
    }

    #[test]
    fn rounds_become_one_curve() {
        let (a, b, c) = (bins(&[1000.0, 2000.0], 10), bins(&[3000.0, 4000.0], 10), bins(&[2000.0], 10));
        let found = points(&[&a, &b, &c]);
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].1, found[0].2, found[0].3), (2e-6, 1e-6, 3e-6));
        // The third round ended earlier.
        assert_eq!((found[1].1, found[1].2, found[1].3), (3e-6, 2e-6, 4e-6));
    }

    #[test]
    fn long_curves_are_thinned_and_keep_their_mean() {
        let means: Vec<f64> = (0..1024).map(f64::from).collect();
        let found = points(&[&bins(&means, 100)]);
        assert_eq!(found.len(), MOST_POINTS);
        let mean = found.iter().map(|point| point.1).sum::<f64>() / MOST_POINTS as f64;
        assert!((mean * 1e9 - 511.5).abs() < 1.0, "{mean}");
        assert!(points(&[]).is_empty() && points(&[&[]]).is_empty());
    }
}
