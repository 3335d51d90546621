//! What came and went in a tree between two surveys of it: in all, by size, and where most of it did.
//!
//! Totals and the figures by size are exact. Owners and extensions are, as far as their tables are complete. A
//! directory is known where it is in a list of a survey; where one of the two has it in no list, it had at most what
//! the last row of the list has, and so its change has two bounds. Changes that are not sure to be any are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hash;

use serde::{Deserialize, Serialize};

use super::file::format_time;
use super::measure::{ByteMeasure, Measure};
use super::places::{Extension, Kind, KindTable, Places, Ranking, Tally, TopDirectories};
use super::{Options, Survey};
use crate::units::{SECONDS_A_DAY, escape};

/// Rows of a list, at most, unless the surveys have longer ones.
const LIMIT: usize = 20;
/// Share of the change of a directory that one below it has if its own row says nothing more.
const SAME_CHANGE: f64 = 0.95;

/// The difference between two surveys of one tree.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Growth {
    /// What the tree is called; `None` when anonymous.
    #[serde(default)]
    pub name: Option<String>,
    /// Its host, if both surveys are of one machine.
    #[serde(default)]
    pub host: Option<String>,
    /// When the earlier one was taken, RFC 3339.
    pub from: Option<String>,
    /// When the later one was taken.
    pub to: Option<String>,
    /// Time between them.
    pub elapsed_seconds: Option<i64>,
    /// The difference of all sums.
    pub total: Change,
    /// Files in the later one whose content changed since the earlier one, to a day; `None` if that is not known.
    pub written: Option<Written>,
    /// By size of the files: half-open ranges, those in which nothing changed left out.
    pub by_size: Vec<SizeChange>,
    /// Directories, each with everything below it.
    pub directories: Changed<DirectoryChange>,
    /// Owners.
    pub owners: Changed<OwnerChange>,
    /// Extensions.
    pub extensions: Changed<ExtensionChange>,
    /// What is beyond the lists of the surveys, in sentences.
    pub notes: Vec<String>,
}

/// Differences of sums: later minus earlier.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Regular files.
    pub files: i128,
    /// Sum of their sizes.
    pub size_bytes: i128,
    /// Sum of their allocated bytes.
    pub allocated_bytes: i128,
}

/// Files that were written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written {
    /// How many.
    pub files: u128,
    /// Sum of their sizes.
    pub size_bytes: u128,
}

/// Files of a range of sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizeChange {
    /// Smallest size.
    pub low: u128,
    /// The size from which on they belong to the next range.
    pub high: u128,
    /// Difference of their number.
    pub files: i128,
    /// Difference of the sums of their sizes.
    pub size_bytes: i128,
}

/// What changed most, by each of two figures.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Changed<R> {
    /// By the sums of sizes.
    pub by_size: Vec<R>,
    /// By the number of files.
    pub by_files: Vec<R>,
}

/// Between which bounds a difference is; equal where it is known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bounds {
    /// The lower one.
    pub least: i128,
    /// The upper one.
    pub most: i128,
}

/// A directory that changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DirectoryChange {
    /// Its path, escaped.
    pub path: String,
    /// Difference of the number of files.
    pub files: Bounds,
    /// Difference of the sums of sizes.
    pub size_bytes: Bounds,
}

/// An owner whose files changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "FlatOwner")]
pub struct OwnerChange {
    /// Its number.
    pub uid: u32,
    /// Its name, if it has one.
    pub name: Option<String>,
    /// The differences.
    #[serde(flatten)]
    pub change: Change,
}

/// An extension of which the files changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "FlatExtension")]
pub struct ExtensionChange {
    /// Lower case, without the dot; empty for names without one; "(numeric)" or "(other)" for unusual ones.
    pub extension: String,
    /// The differences.
    #[serde(flatten)]
    pub change: Change,
}

/// An owner as it is read: serde has no flattened figures of 128 bits.
#[derive(Deserialize)]
struct FlatOwner {
    uid: u32,
    name: Option<String>,
    files: i128,
    size_bytes: i128,
    allocated_bytes: i128,
}

impl From<FlatOwner> for OwnerChange {
    fn from(read: FlatOwner) -> OwnerChange {
        let FlatOwner { uid, name, files, size_bytes, allocated_bytes } = read;
        OwnerChange { uid, name, change: Change { files, size_bytes, allocated_bytes } }
    }
}

/// The same of an extension.
#[derive(Deserialize)]
struct FlatExtension {
    extension: String,
    files: i128,
    size_bytes: i128,
    allocated_bytes: i128,
}

impl From<FlatExtension> for ExtensionChange {
    fn from(read: FlatExtension) -> ExtensionChange {
        let FlatExtension { extension, files, size_bytes, allocated_bytes } = read;
        ExtensionChange { extension, change: Change { files, size_bytes, allocated_bytes } }
    }
}

impl Bounds {
    fn between(before: (u128, u128), after: (u128, u128)) -> Bounds {
        Bounds { least: minus(after.0, before.1), most: minus(after.1, before.0) }
    }

    /// The change that is sure: 0 if there may be none.
    pub fn sure(self) -> i128 {
        if self.least > 0 {
            self.least
        } else if self.most < 0 {
            self.most
        } else {
            0
        }
    }

    /// Whether it is known.
    pub fn is_exact(self) -> bool {
        self.least == self.most
    }
}

impl Change {
    fn between(before: &Tally, after: &Tally) -> Change {
        Change {
            files: minus(after.files.into(), before.files.into()),
            size_bytes: minus(after.size_bytes, before.size_bytes),
            allocated_bytes: minus(after.allocated_bytes, before.allocated_bytes),
        }
    }
}

fn minus(after: u128, before: u128) -> i128 {
    // Sums of a survey are below 2^117.
    after as i128 - before as i128
}

/// Whether two surveys are of one tree at two times: the same roots, and no sign of another machine. (What was not
/// measured has no roots.)
pub fn is_of_one_tree(earlier: &Survey, later: &Survey) -> bool {
    let (one, other) = (&earlier.origin, &later.origin);
    let hosts_differ = one.host().zip(other.host()).is_some_and(|(one, other)| one != other);
    // Their lists have paths that begin with the roots as given. An older granulo did not write in which directory
    // relative ones are.
    let in_one_place = one.directory.is_none() || other.directory.is_none() || one.directory == other.directory;
    !one.roots.is_empty() && one.roots == other.roots && in_one_place && !hosts_differ
}

/// What changed between two surveys of one tree.
pub fn growth(earlier: &Survey, later: &Survey) -> Growth {
    let sums = |survey: &Survey| Tally {
        files: survey.counts.files,
        size_bytes: survey.size_bytes(),
        allocated_bytes: survey.allocated_bytes(),
        ..Tally::default()
    };
    let times = (earlier.origin.taken_at, later.origin.taken_at);
    let elapsed_seconds = times.0.zip(times.1).map(|(from, to)| to - from);
    let mut growth = Growth {
        name: later.origin.name.clone(),
        host: later.origin.host().map(str::to_owned),
        from: times.0.map(format_time),
        to: times.1.map(format_time),
        elapsed_seconds,
        total: Change::between(&sums(earlier), &sums(later)),
        written: elapsed_seconds.and_then(|elapsed| written(later, elapsed)),
        by_size: by_size(earlier, later),
        directories: Changed { by_size: Vec::new(), by_files: Vec::new() },
        owners: Changed { by_size: Vec::new(), by_files: Vec::new() },
        extensions: Changed { by_size: Vec::new(), by_files: Vec::new() },
        notes: Vec::new(),
    };
    match (&earlier.places, &later.places) {
        (Some(before), Some(after)) => growth.add_places(before, after),
        _ => growth.notes.push("one of the surveys does not say where its files are".to_owned()),
    }
    if !earlier.origin.complete || !later.origin.complete {
        let note = "one of the surveys is of a part of the tree (it was interrupted, or shards are missing): what it did \
                    not see counts as absent";
        growth.notes.push(note.to_owned());
    }
    if earlier.origin.options != later.origin.options {
        let differing = differing_options(&earlier.origin.options, &later.origin.options).join(", ");
        growth.notes.push(format!(
            "they were taken with different options ({differing}), so part of the difference may be due to these"
        ));
    }
    growth
}

/// Names of the options that differ.
fn differing_options(earlier: &Options, later: &Options) -> Vec<&'static str> {
    let all = [
        ("--hard-links", earlier.hard_links != later.hard_links),
        ("--one-file-system", earlier.one_file_system != later.one_file_system),
        ("--include-snapshots", earlier.snapshots != later.snapshots),
        ("--exclude", earlier.excluded != later.excluded),
        ("--cutoff", earlier.small_file_bytes != later.small_file_bytes),
        ("--age-breaks", earlier.age_breaks_days != later.age_breaks_days),
    ];
    all.into_iter().filter(|(_, differs)| *differs).map(|(option, _)| option).collect()
}

/// Files written in the last `elapsed` seconds before `later`.
fn written(later: &Survey, elapsed: i64) -> Option<Written> {
    let ages = later.distributions.of(Measure::MtimeAge);
    let is_now = later.origin.reference_time == later.origin.taken_at;
    let last_day = u64::try_from(elapsed / SECONDS_A_DAY - 1).ok()?;
    (is_now && !ages.is_empty()).then(|| Written {
        files: ages.up_to(last_day).count,
        size_bytes: later.distributions.by_bytes(ByteMeasure::MtimeAge).up_to(last_day).count,
    })
}

fn by_size(earlier: &Survey, later: &Survey) -> Vec<SizeChange> {
    let buckets = |survey: &Survey| survey.distributions.of(Measure::FileSize).buckets();
    let mut rows: BTreeMap<u128, SizeChange> = BTreeMap::new();
    for (buckets, sign) in [(buckets(earlier), -1), (buckets(later), 1)] {
        for bucket in buckets {
            let empty = SizeChange { low: bucket.low, high: bucket.high, files: 0, size_bytes: 0 };
            let row = rows.entry(bucket.low).or_insert(empty);
            row.files += sign * bucket.count as i128;
            row.size_bytes += sign * bucket.sum as i128;
        }
    }
    rows.into_values().filter(|row| (row.files, row.size_bytes) != (0, 0)).collect()
}

impl Growth {
    fn add_places(&mut self, before: &Places, after: &Places) {
        let limit = after.limit().max(LIMIT);
        self.directories = directories(&before.subtree, &after.subtree, limit);
        if let Some(least) = unknown_bytes(&before.subtree, &after.subtree) {
            let bytes = crate::units::format_size(least);
            self.notes.push(format!(
                "directories of less than {bytes} are in no list of the surveys: their changes are not shown (--top keeps more)"
            ));
        }
        let name = |uid: &u32| after.owner_names.get(uid).or_else(|| before.owner_names.get(uid)).cloned();
        self.owners = changed(kinds(&before.owners, &after.owners), limit, |uid, change| OwnerChange {
            uid: *uid,
            name: name(uid),
            change,
        });
        self.extensions =
            changed(kinds(&before.extensions, &after.extensions), limit, |extension: &Extension, change| {
                ExtensionChange { extension: extension.text().to_owned(), change }
            });
        let (owners, extensions) = (self.owners.by_files.len(), self.extensions.by_files.len());
        for (what, rows, error) in [
            ("owners", owners, before.owners.max_error().max(after.owners.max_error())),
            ("extensions", extensions, before.extensions.max_error().max(after.extensions.max_error())),
        ] {
            if rows > 0 && error > 0 {
                self.notes.push(format!("not all {what} are known: each row may be off by {error} files"));
            }
        }
    }
}

/// Differences of named kinds.
fn kinds<K: Eq + Hash + Ord + Copy>(before: &KindTable<Kind<K>>, after: &KindTable<Kind<K>>) -> Vec<(K, Change)> {
    let mut both: BTreeMap<K, [Tally; 2]> = BTreeMap::new();
    for (index, table) in [before, after].into_iter().enumerate() {
        for (kind, tally) in table.ranked() {
            if let Kind::Named(kind) = kind {
                both.entry(kind).or_default()[index] = tally;
            }
        }
    }
    let changes = both.into_iter().map(|(kind, [before, after])| (kind, Change::between(&before, &after)));
    changes.filter(|(_, change)| *change != Change::default()).collect()
}

fn changed<K, R>(rows: Vec<(K, Change)>, limit: usize, row: impl Fn(&K, Change) -> R) -> Changed<R> {
    let ranked = |figure: fn(&Change) -> i128| {
        let mut rows: Vec<&(K, Change)> = rows.iter().filter(|(_, change)| figure(change) != 0).collect();
        rows.sort_by_key(|(_, change)| std::cmp::Reverse(figure(change).unsigned_abs()));
        rows.into_iter().take(limit).map(|(kind, change)| row(kind, *change)).collect()
    };
    Changed { by_size: ranked(|change| change.size_bytes), by_files: ranked(|change| change.files) }
}

/// The directories of all lists of a survey, with their sums.
fn known(top: &TopDirectories) -> BTreeMap<&[u8], &Tally> {
    let rows = Ranking::ALL.into_iter().flat_map(|ranking| top.list(ranking));
    rows.filter_map(|row| Some((row.path.as_deref()?, &row.tally))).collect()
}

/// Most that a directory has of a figure if it is in no list.
fn most_beyond(top: &TopDirectories, ranking: Ranking) -> u128 {
    let list = top.list(ranking);
    let is_full = list.len() >= top.limit();
    if is_full { list.last().map_or(u128::MAX >> 2, |last| ranking.figure(&last.tally)) } else { 0 }
}

/// The least size of directories that are in the lists of both, if any are not.
fn unknown_bytes(before: &TopDirectories, after: &TopDirectories) -> Option<u128> {
    let most = most_beyond(before, Ranking::Size).max(most_beyond(after, Ranking::Size));
    (1..u128::MAX >> 2).contains(&most).then_some(most)
}

fn directories(before: &TopDirectories, after: &TopDirectories, limit: usize) -> Changed<DirectoryChange> {
    let tables = [known(before), known(after)];
    let paths: BTreeSet<&[u8]> = tables.iter().flat_map(|table| table.keys().copied()).collect();
    let beyond = |ranking| [before, after].map(|top| most_beyond(top, ranking));
    let (files_beyond, bytes_beyond) = (beyond(Ranking::Files), beyond(Ranking::Size));
    let bounds = |path: &[u8], ranking: Ranking, beyond: [u128; 2]| {
        let [before, after] = [0, 1].map(|at| match tables[at].get(path) {
            Some(tally) => (ranking.figure(tally), ranking.figure(tally)),
            None => (0, beyond[at]),
        });
        Bounds::between(before, after)
    };
    let rows: Vec<(&[u8], DirectoryChange)> = paths
        .into_iter()
        .map(|path| {
            let (files, size_bytes) =
                (bounds(path, Ranking::Files, files_beyond), bounds(path, Ranking::Size, bytes_beyond));
            (path, DirectoryChange { path: escape(path), files, size_bytes })
        })
        .collect();
    let ranked = |figure: fn(&DirectoryChange) -> i128| {
        let mut rows: Vec<&(&[u8], DirectoryChange)> = rows.iter().filter(|(_, row)| figure(row) != 0).collect();
        // The deepest first, so that of a chain the one stays that says most.
        rows.sort_by_key(|(path, row)| (std::cmp::Reverse(figure(row).unsigned_abs()), std::cmp::Reverse(path.len())));
        let says_nothing_more = |path: &[u8], change: i128| {
            rows.iter().any(|(other, row)| {
                is_below(other, path)
                    && (figure(row) > 0) == (change > 0)
                    && figure(row).unsigned_abs() as f64 >= SAME_CHANGE * change.unsigned_abs() as f64
            })
        };
        let told = rows.iter().filter(|(path, row)| !says_nothing_more(path, figure(row)));
        told.take(limit).map(|(_, row)| row.clone()).collect()
    };
    Changed { by_size: ranked(|row| row.size_bytes.sure()), by_files: ranked(|row| row.files.sure()) }
}

/// Whether a path is below a directory.
fn is_below(path: &[u8], directory: &[u8]) -> bool {
    let rest = path.strip_prefix(directory).filter(|rest| !rest.is_empty());
    rest.is_some_and(|rest| rest[0] == b'/' || directory.last() == Some(&b'/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::survey::places::Places;

    fn tally(files: u64, size_bytes: u128) -> Tally {
        Tally { files, size_bytes, allocated_bytes: size_bytes, ..Tally::default() }
    }

    fn survey(limit: usize, directories: &[(&str, u64, u128)]) -> Survey {
        let mut places = Places::new(limit);
        let mut survey = Survey::default();
        for (path, files, bytes) in directories {
            places.subtree.offer(1, &tally(*files, *bytes), || path.as_bytes().to_vec());
        }
        let whole = directories.first().map_or(Tally::default(), |(_, files, bytes)| tally(*files, *bytes));
        survey.counts.files = whole.files;
        survey.distributions.of_mut(Measure::FileSize).add(1, whole.files);
        places.owners.add(Kind::Named(7), &whole);
        survey.places = Some(places);
        survey.origin.roots = vec!["/r".to_owned()];
        survey
    }

    #[test]
    fn a_chain_is_one_row_and_what_shrank_counts_too() {
        let before = survey(9, &[("/r", 10, 1000), ("/r/a", 5, 500), ("/r/a/b", 5, 500), ("/r/c", 4, 300)]);
        let after = survey(9, &[("/r", 13, 1900), ("/r/a", 9, 1500), ("/r/a/b", 9, 1500), ("/r/c", 3, 200)]);
        let growth = growth(&before, &after);
        let rows = |list: &[DirectoryChange]| -> Vec<(String, i128)> {
            list.iter().map(|row| (row.path.clone(), row.size_bytes.sure())).collect()
        };
        let expected = [("/r/a/b", 1000), ("/r/c", -100)].map(|(path, change)| (path.to_owned(), change));
        assert_eq!(rows(&growth.directories.by_size), expected);
        assert_eq!(growth.total.files, 3);
        assert_eq!(growth.owners.by_size[0].change.size_bytes, 900);
        assert!(growth.notes.is_empty(), "{:?}", growth.notes);
    }

    #[test]
    fn what_no_list_has_is_bounded_by_its_last_row() {
        let before = survey(2, &[("/r", 10, 1000), ("/r/a", 5, 500)]);
        let after = survey(2, &[("/r", 10, 1700), ("/r/b", 6, 1200)]);
        let growth = growth(&before, &after);
        let row = |path: &str| growth.directories.by_size.iter().find(|row| row.path == path).unwrap();
        // It had 0 to 500 bytes before.
        assert_eq!(row("/r/b").size_bytes, Bounds { least: 700, most: 1200 });
        // It has 0 to 1,200 bytes now, so it may have grown as well as shrunk.
        assert!(growth.directories.by_size.iter().all(|row| row.path != "/r/a"));
        assert!(growth.notes[0].contains("1.17 KiB") || growth.notes[0].contains("1.2 KiB"), "{:?}", growth.notes);
    }

    #[test]
    fn only_one_tree_grows() {
        let one = survey(2, &[("/r", 1, 1)]);
        let mut other = survey(2, &[("/r", 2, 2)]);
        assert!(is_of_one_tree(&one, &other));
        // Relative roots are one tree in one directory only; an older granulo did not write in which.
        let relative = |directory: Option<&str>| {
            let mut survey = one.clone();
            (survey.origin.roots, survey.origin.directory) = (vec![".".to_owned()], directory.map(str::to_owned));
            survey
        };
        assert!(is_of_one_tree(&relative(Some("/r")), &relative(Some("/r"))));
        assert!(!is_of_one_tree(&relative(Some("/r")), &relative(Some("/s"))));
        assert!(is_of_one_tree(&relative(None), &relative(Some("/s"))));
        other.origin.roots = vec!["/s".to_owned()];
        assert!(!is_of_one_tree(&one, &other));
        other.origin = Survey::default().origin;
        assert!(!is_of_one_tree(&Survey::default(), &other));
    }
}
