//! Collects samples, in the order in which subjects and measures first appeared.

use crate::bench::result::{CacheState, LoadPoint, Series};

/// A load is sustained if at least this share of it is achieved.
pub(crate) const SUSTAINED_FRACTION: f64 = 0.95;

/// Series that are still incomplete.
#[derive(Debug, Default)]
pub(super) struct Collected {
    series: Vec<Series>,
}

impl Collected {
    /// Adds a sample of a measure of a subject, at a level if the measure has one.
    pub(super) fn push(
        &mut self,
        subject: usize,
        measure: &str,
        unit: &str,
        level: Option<f64>,
        (caches, sample): (CacheState, f64),
    ) {
        let is_it = |series: &&mut Series| {
            series.subject == subject && series.measure == measure && series.level == level && series.caches == caches
        };
        let samples = match self.series.iter_mut().find(is_it) {
            Some(series) => {
                let mut samples = std::mem::take(&mut series.samples);
                samples.push(sample);
                *series = Series { level, ..Series::new(subject, measure, unit, caches, samples) };
                return;
            }
            None => vec![sample],
        };
        self.series.push(Series { level, ..Series::new(subject, measure, unit, caches, samples) });
    }

    /// All series, by subject.
    pub(super) fn end(mut self) -> Vec<Series> {
        self.series.sort_by_key(|series| series.subject);
        self.series
    }
}

/// Whether enough of a load was achieved to offer more.
pub(super) fn is_sustained(point: &LoadPoint) -> bool {
    point.achieved_per_second >= SUSTAINED_FRACTION * point.offered_per_second
}

/// Most operations per second of any point.
pub(super) fn peak(points: &[&LoadPoint]) -> f64 {
    points.iter().map(|point| point.achieved_per_second).fold(0.0, f64::max)
}

/// Response time over all sustained loads, in seconds: the area under the curve of response time over achieved load,
/// divided by the largest of these loads. Below the first point the curve is assumed flat. `None` if no load was
/// sustained.
pub(super) fn overall_response_seconds(points: &[&LoadPoint]) -> Option<f64> {
    let mut sustained: Vec<(f64, f64)> = points
        .iter()
        .filter(|point| is_sustained(point))
        .map(|point| (point.achieved_per_second, point.response_ms))
        .collect();
    sustained.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (first, last) = (sustained.first()?, sustained.last()?);
    let between = sustained.windows(2).map(|pair| (pair[1].0 - pair[0].0) * (pair[0].1 + pair[1].1) / 2.0);
    let area = first.0 * first.1 + between.sum::<f64>();
    Some(area / last.0.max(f64::MIN_POSITIVE) / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(offered_per_second: f64, achieved_per_second: f64, response_ms: f64) -> LoadPoint {
        LoadPoint {
            subject: 0,
            round: 0,
            offered_per_second,
            achieved_per_second,
            response_ms,
            p50_ms: response_ms,
            p99_ms: response_ms,
            longest_ms: response_ms,
            due: 0,
            unfinished: 0,
            caches: CacheState::Cold,
            operations: Vec::new(),
        }
    }

    #[test]
    fn the_overall_response_time_is_an_area() {
        let points = [point(100.0, 100.0, 2.0), point(200.0, 200.0, 4.0), point(400.0, 250.0, 900.0)];
        let points: Vec<&LoadPoint> = points.iter().collect();
        assert_eq!(peak(&points), 250.0);
        // 100 times 2, and 100 times 3, over 200.
        assert_eq!(overall_response_seconds(&points), Some(0.0025));
        assert_eq!(overall_response_seconds(&points[..1]), Some(0.002));
        assert_eq!(overall_response_seconds(&points[2..]), None);
    }

    #[test]
    fn samples_of_one_measure_are_one_series() {
        let mut collected = Collected::default();
        collected.push(1, "list", "seconds", Some(10.0), (CacheState::Cold, 2.0));
        collected.push(0, "list", "seconds", Some(10.0), (CacheState::Cold, 1.0));
        collected.push(1, "list", "seconds", Some(10.0), (CacheState::Cold, 4.0));
        collected.push(1, "check", "seconds", None, (CacheState::Cold, 9.0));
        let series = collected.end();
        let found: Vec<_> =
            series.iter().map(|series| (series.subject, series.measure.as_str(), series.spread.mean)).collect();
        assert_eq!(found, [(0, "list", 1.0), (1, "list", 3.0), (1, "check", 9.0)]);
        assert_eq!(series[1].level, Some(10.0));
    }
}
