//! Many surveys of one tree over time: its sums, how fast they grow, and when the file system will be full.
//!
//! Growth is the median of the slopes between all pairs of surveys (Theil and Sen), which one odd survey does not
//! change. It is taken over the last [`RECENT_DAYS`] where these have at least three surveys a day apart or more, and
//! over all surveys otherwise. Only sums are kept of each survey: a history of thousands is small.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::Survey;
use super::file::format_time;
use super::machine::fill_fraction;
use super::measure::Measure;
use crate::program;
use crate::units::SECONDS_A_DAY;

/// `granulo/history/1`.
pub const SCHEMA: &str = "granulo/history/1";
/// Days that decide how fast something grows, where enough surveys are of them.
pub const RECENT_DAYS: f64 = 30.0;
/// Surveys for which all pairs are looked at; of more, this many are chosen evenly.
const MOST_PAIRED: usize = 512;
/// A forecast beyond ten thousand days says nothing.
const FARTHEST_DAYS: f64 = 10_000.0;

/// Histories of trees.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct History {
    /// [`SCHEMA`].
    pub schema: String,
    /// Version that wrote it.
    pub granulo_version: String,
    /// Commit that wrote it, with `+changed` where the tree differed from it; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub granulo_commit: Option<String>,
    /// One for each tree, in the order of their names.
    pub trees: Vec<TreeHistory>,
}

/// The history of one tree.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TreeHistory {
    /// Its name.
    pub name: String,
    /// Whether the surveys are anonymous: they do not say of which tree they are, so there is no growth between them.
    #[serde(default)]
    pub anonymous: bool,
    /// Its host, if all surveys have the same.
    pub host: Option<String>,
    /// Its roots, made absolute if it is known in which directory they are.
    pub roots: Vec<String>,
    /// Its surveys, the earliest first.
    pub points: Vec<Point>,
    /// Growth of the number of files.
    pub files: Option<Trend>,
    /// Growth of the sum of sizes.
    pub size_bytes: Option<Trend>,
    /// Growth of the sum of allocated bytes.
    pub allocated_bytes: Option<Trend>,
    /// When its file system will be full, if it has only one.
    pub forecasts: Vec<Forecast>,
}

/// A survey as a point of the curves.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Point {
    /// The file of the survey, escaped.
    pub source: String,
    /// When it was taken, RFC 3339.
    pub taken_at: String,
    /// The same in seconds since 1970.
    pub taken_at_seconds: i64,
    /// Regular files.
    pub files: u64,
    /// Those up to the cutoff of the survey.
    pub small_files: u64,
    /// Directories.
    pub directories: u64,
    /// Sum of sizes.
    pub size_bytes: u128,
    /// Sum of allocated bytes of files.
    pub allocated_bytes: u128,
    /// Of the file system, if there is only one: its size, the bytes in use, its inodes, the inodes in use.
    pub capacity_bytes: Option<u64>,
    /// Bytes in use.
    pub used_bytes: Option<u64>,
    /// Bytes that users may still write.
    pub available_bytes: Option<u64>,
    /// Inodes; `None` where their number is not fixed.
    pub inodes: Option<u64>,
    /// Inodes in use.
    pub used_inodes: Option<u64>,
}

impl Point {
    /// Share of the file system in use, as df prints it.
    pub fn fill_fraction(&self) -> Option<f64> {
        fill_fraction(self.used_bytes?, self.available_bytes?)
    }
}

/// How fast something grows.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Trend {
    /// A day, over all surveys.
    pub per_day: f64,
    /// A day, over the last 30 days; `None` with fewer than three surveys in them.
    pub recent_per_day: Option<f64>,
}

/// What a file system has only so much of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Resource {
    /// Bytes.
    Bytes,
    /// Inodes.
    Inodes,
}

/// When something of a file system will be used up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Forecast {
    /// Of what.
    pub of: Resource,
    /// What is left at the last survey.
    pub left: u64,
    /// Growth of what is in use.
    pub trend: Trend,
    /// Days from the last survey; `None` if it does not grow, or for decades.
    pub days: Option<f64>,
    /// That day, RFC 3339.
    pub full_at: Option<String>,
}

impl Trend {
    /// The one that a forecast uses.
    pub fn current(self) -> f64 {
        self.recent_per_day.unwrap_or(self.per_day)
    }
}

/// Name, roots and host of a tree.
type TreeKey = (Option<String>, Vec<String>, String);

/// What is kept of surveys.
#[derive(Debug, Clone, Default)]
pub struct Collected {
    /// By name, roots and host; no name is that of all anonymous surveys.
    trees: BTreeMap<TreeKey, Vec<Point>>,
}

impl Collected {
    /// Adds a survey; `source` is its file, escaped. Returns false if it is not dated, and so not a point.
    pub fn add(&mut self, survey: &Survey, source: String) -> bool {
        let Some(taken_at) = survey.origin.taken_at else { return false };
        let origin = &survey.origin;
        let mut file_systems = origin.file_systems();
        let file_system = file_systems.next().filter(|_| file_systems.next().is_none());
        let point = Point {
            source,
            taken_at: format_time(taken_at),
            taken_at_seconds: taken_at,
            files: survey.counts.files,
            small_files: small_files(survey),
            directories: survey.counts.directories,
            size_bytes: survey.size_bytes(),
            allocated_bytes: survey.allocated_bytes(),
            capacity_bytes: file_system.and_then(|found| found.capacity_bytes),
            used_bytes: file_system.and_then(|found| found.used_bytes()),
            available_bytes: file_system.and_then(|found| found.available_bytes),
            inodes: file_system.and_then(|found| found.inodes),
            used_inodes: file_system.and_then(|found| found.used_inodes()),
        };
        let key = (origin.name.clone(), origin.absolute_roots(), origin.host().unwrap_or_default().to_owned());
        self.trees.entry(key).or_default().push(point);
        true
    }

    /// An older granulo did not write where relative roots are: its surveys belong to the only tree that they can.
    fn place_relative_roots(&mut self) {
        let is_placed = |roots: &[String]| roots.iter().all(|root| root.starts_with('/'));
        let unplaced: Vec<TreeKey> = self.trees.keys().filter(|key| !is_placed(&key.1)).cloned().collect();
        for key in unplaced {
            let may_be_it = |other: &&TreeKey| {
                let ends_alike = |(placed, root): (&String, &String)| Path::new(placed).ends_with(root);
                (&other.0, &other.2) == (&key.0, &key.2)
                    && is_placed(&other.1)
                    && other.1.len() == key.1.len()
                    && other.1.iter().zip(&key.1).all(ends_alike)
            };
            let found: Vec<TreeKey> = self.trees.keys().filter(may_be_it).cloned().collect();
            if let [only] = &found[..] {
                let points = self.trees.remove(&key).unwrap_or_default();
                self.trees.entry(only.clone()).or_default().extend(points);
            }
        }
    }

    /// The histories.
    pub fn history(mut self) -> History {
        self.place_relative_roots();
        History {
            schema: SCHEMA.to_owned(),
            granulo_version: program::VERSION.to_owned(),
            granulo_commit: program::commit().map(str::to_owned),
            trees: self
                .trees
                .into_iter()
                .map(|((name, roots, host), points)| tree(name, roots, host, points))
                .collect(),
        }
    }
}

fn small_files(survey: &Survey) -> u64 {
    let small = survey.distributions.of(Measure::FileSize).up_to(survey.origin.options.small_file_bytes);
    u64::try_from(small.count).unwrap_or(u64::MAX)
}

fn tree(name: Option<String>, roots: Vec<String>, host: String, mut points: Vec<Point>) -> TreeHistory {
    let anonymous = name.is_none();
    points.sort_by(|a, b| (a.taken_at_seconds, &a.source).cmp(&(b.taken_at_seconds, &b.source)));
    let trend_of = |figure: &dyn Fn(&Point) -> Option<f64>| if anonymous { None } else { trend(&points, figure) };
    let forecasts = points.last().map_or_else(Vec::new, |last| {
        let bytes =
            last.available_bytes.map(|left| (Resource::Bytes, left, trend_of(&|point| Some(point.used_bytes? as f64))));
        let free_inodes = last.inodes.zip(last.used_inodes).map(|(all, used)| all.saturating_sub(used));
        let inodes =
            free_inodes.map(|left| (Resource::Inodes, left, trend_of(&|point| Some(point.used_inodes? as f64))));
        let both = bytes.into_iter().chain(inodes);
        both.filter_map(|(of, left, trend)| Some(forecast(of, left, trend?, last.taken_at_seconds))).collect()
    });
    TreeHistory {
        name: name.unwrap_or_else(|| "anonymous surveys".to_owned()),
        anonymous,
        host: Some(host).filter(|host| !host.is_empty()),
        roots,
        files: trend_of(&|point| Some(point.files as f64)),
        size_bytes: trend_of(&|point| Some(point.size_bytes as f64)),
        allocated_bytes: trend_of(&|point| Some(point.allocated_bytes as f64)),
        forecasts,
        points,
    }
}

fn forecast(of: Resource, left: u64, trend: Trend, now: i64) -> Forecast {
    let days = Some(left as f64 / trend.current()).filter(|days| trend.current() > 0.0 && *days <= FARTHEST_DAYS);
    let full_at = days.map(|days| format_time(now.saturating_add((days * SECONDS_A_DAY as f64) as i64)));
    Forecast { of, left, trend, days, full_at }
}

/// How fast a figure grows; `None` where no two surveys that have it are a day apart: less says little of a day.
fn trend(points: &[Point], figure: &dyn Fn(&Point) -> Option<f64>) -> Option<Trend> {
    let day = |point: &Point| point.taken_at_seconds as f64 / SECONDS_A_DAY as f64;
    let all: Vec<(f64, f64)> = points.iter().filter_map(|point| Some((day(point), figure(point)?))).collect();
    let last = all.last()?.0;
    if last - all.first()?.0 < 1.0 {
        return None;
    }
    let recent: Vec<(f64, f64)> = all.iter().filter(|(day, _)| *day >= last - RECENT_DAYS).copied().collect();
    let spans_days = recent.first().is_some_and(|first| last - first.0 >= 1.0);
    let recent_per_day = if recent.len() >= 3 && spans_days { median_slope(&recent) } else { None };
    Some(Trend { per_day: median_slope(&all)?, recent_per_day })
}

/// The median slope between all pairs of points.
fn median_slope(points: &[(f64, f64)]) -> Option<f64> {
    let step = points.len().div_ceil(MOST_PAIRED).max(1);
    // The last one always counts.
    let chosen: Vec<(f64, f64)> = points.iter().rev().step_by(step).copied().collect();
    let mut slopes = Vec::new();
    for (index, (later, value)) in chosen.iter().enumerate() {
        let earlier = chosen[index + 1..].iter().filter(|(day, _)| day < later);
        slopes.extend(earlier.map(|(day, before)| (value - before) / (later - day)));
    }
    let middle = slopes.len() / 2;
    slopes.sort_by(f64::total_cmp);
    let upper = slopes.get(middle).copied()?;
    Some(if slopes.len() % 2 == 1 { upper } else { f64::midpoint(slopes[middle - 1], upper) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::survey::Origin;
    use crate::survey::machine::Machine;

    const DAY: i64 = 86_400;

    fn survey(day: i64, files: u64, used: u64) -> Survey {
        let machine: Machine = serde_json::from_value(serde_json::json!({
            "host": "h",
            "file_systems": [{"capacity_bytes": 1000, "free_bytes": 1000 - used, "available_bytes": 900 - used}],
        }))
        .unwrap();
        let origin = Origin {
            name: Some("/r".to_owned()),
            roots: vec!["/r".to_owned()],
            machines: vec![machine],
            taken_at: Some(day * DAY),
            ..Origin::default()
        };
        let mut survey = Survey { origin, ..Survey::default() };
        survey.counts.files = files;
        survey.distributions.of_mut(Measure::FileSize).add(10, files);
        survey
    }

    fn history(surveys: &[Survey]) -> History {
        let mut collected = Collected::default();
        surveys.iter().for_each(|survey| assert!(collected.add(survey, "s.json".to_owned())));
        collected.history()
    }

    #[test]
    fn growth_is_the_median_and_says_when_there_is_no_room() {
        // In no order, and one is odd.
        let surveys = [survey(4, 140, 540), survey(0, 100, 500), survey(2, 9000, 520), survey(3, 130, 530)];
        let history = history(&surveys);
        let [tree] = &history.trees[..] else { panic!("{history:?}") };
        assert!(tree.points.is_sorted_by_key(|point| point.taken_at_seconds));
        let days: Vec<i64> = tree.points.iter().map(|point| point.taken_at_seconds / DAY).collect();
        assert_eq!(days, [0, 2, 3, 4]);
        // 100 of the 1,000 bytes are only for root: 540 in use, 360 free.
        assert_eq!(tree.points[3].fill_fraction(), Some(0.6));
        // The slopes are 10 three times, 4,450, -4,430 and -8,870.
        assert_eq!(tree.files.unwrap().current(), 10.0);
        let [forecast] = &tree.forecasts[..] else { panic!("{tree:?}") };
        assert_eq!((forecast.of, forecast.left, forecast.trend.current()), (Resource::Bytes, 360, 10.0));
        assert_eq!((forecast.days, forecast.full_at.as_deref()), (Some(36.0), Some("1970-02-10T00:00:00Z")));
    }

    #[test]
    fn what_shrinks_or_was_seen_once_is_never_full() {
        let shrinking = history(&[survey(0, 10, 500), survey(1, 9, 400)]);
        let [forecast] = &shrinking.trees[0].forecasts[..] else { panic!("{shrinking:?}") };
        assert_eq!((forecast.days, forecast.full_at.clone()), (None, None));
        assert_eq!(shrinking.trees[0].files.unwrap().current(), -1.0);
        let once = history(&[survey(0, 10, 500)]);
        assert_eq!((once.trees[0].files, once.trees[0].forecasts.len()), (None, 0));
        assert!(!Collected::default().add(&Survey::default(), String::new()));
    }

    #[test]
    fn anonymous_surveys_are_not_taken_for_one_tree() {
        let anonymous = |day| {
            let mut survey = survey(day, 10 * (day as u64 + 1), 500);
            survey.origin.name = None;
            survey.origin.roots.clear();
            survey.origin.machines.clear();
            survey
        };
        let history = history(&[anonymous(0), survey(0, 10, 500), anonymous(2), survey(2, 20, 510)]);
        let [unknown, known] = &history.trees[..] else { panic!("{history:?}") };
        assert_eq!((unknown.anonymous, unknown.points.len(), unknown.forecasts.len()), (true, 2, 0));
        assert_eq!((unknown.files, unknown.size_bytes, unknown.allocated_bytes), (None, None, None));
        assert_eq!((known.anonymous, known.files.map(Trend::current)), (false, Some(5.0)));
    }

    #[test]
    fn the_last_month_counts_where_it_is_known() {
        let mut surveys: Vec<Survey> = (0..10).map(|n| survey(n * 30, 100 + 30 * n as u64, 10)).collect();
        surveys.extend((271..280).map(|day| survey(day, 370 + 100 * (day as u64 - 270), 10)));
        let trend = history(&surveys).trees[0].files.unwrap();
        assert_eq!(trend.current(), 100.0);
        assert!(trend.per_day < 50.0, "{trend:?}");
    }

    #[test]
    fn thousands_of_surveys_are_enough_of_pairs() {
        let points: Vec<(f64, f64)> = (0..5000).map(|n| (f64::from(n), 3.0 * f64::from(n))).collect();
        assert_eq!(median_slope(&points), Some(3.0));
        assert_eq!(median_slope(&[(1.0, 2.0), (1.0, 3.0)]), None);
    }
}
