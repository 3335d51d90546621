//! Where the files are: the directories, owners and kinds of files that hold most.
//!
//! Bounded memory. A list of directories keeps the top rows of its ranking and nothing else; rankings of disjoint trees
//! merge exactly, because the top of both is among the tops of each. The tables of owners and extensions are complete
//! up to [`KINDS`] keys. Beyond that, the smallest half is folded together, every row may be too low by at most
//! `max_error` files (the bound of Misra and Gries 1982), and the table reports it. So it does where a list of files
//! does not tell the owners or names of all of them.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::hash::Hash;

use hashbrown::HashMap;
use serde::{Deserialize, Serialize};

pub use super::kind::{KINDS, Kind};
use super::largest::LargestFiles;
use super::owner_ages::OwnerAges;
use crate::scan;

/// Rows of a list of directories unless requested otherwise.
pub const DEFAULT_LIMIT: usize = 20;

/// Sums over a set of files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Tally {
    /// Regular files.
    pub files: u64,
    /// Those up to the cutoff for small files.
    pub small_files: u64,
    /// Sum of their sizes.
    pub size_bytes: u128,
    /// Sum of the sizes of the small ones.
    pub small_size_bytes: u128,
    /// Sum of their allocated bytes.
    pub allocated_bytes: u128,
    /// Sum of their positive overheads.
    pub overhead_bytes: u128,
    /// Directories in the set.
    pub directories: u64,
}

impl scan::Tally for Tally {
    fn add(&mut self, other: &Tally) {
        self.files += other.files;
        self.small_files += other.small_files;
        self.size_bytes += other.size_bytes;
        self.small_size_bytes += other.small_size_bytes;
        self.allocated_bytes += other.allocated_bytes;
        self.overhead_bytes += other.overhead_bytes;
        self.directories += other.directories;
    }
}

impl Tally {
    /// The sums of one file; `small`: whether its size is at most the cutoff.
    #[inline]
    pub fn of_file(size_bytes: u64, allocated_bytes: u64, small: bool) -> Tally {
        Tally {
            files: 1,
            small_files: u64::from(small),
            size_bytes: size_bytes.into(),
            small_size_bytes: if small { size_bytes.into() } else { 0 },
            allocated_bytes: allocated_bytes.into(),
            overhead_bytes: allocated_bytes.saturating_sub(size_bytes).into(),
            directories: 0,
        }
    }
}

impl Tally {
    /// Whether all of `tallies` together are at most `count` and `bytes` in every field.
    pub(super) fn are_within<'a>(tallies: impl IntoIterator<Item = &'a Tally>, count: u64, bytes: u128) -> bool {
        let (mut counts, mut sums) = ([0u64; 3], [0u128; 4]);
        tallies.into_iter().all(|tally| {
            let of_tally = [tally.files, tally.small_files, tally.directories];
            let bytes_of = [tally.size_bytes, tally.small_size_bytes, tally.allocated_bytes, tally.overhead_bytes];
            let add = |sum: &mut u64, more: u64| sum.checked_add(more).map(|total| *sum = total);
            let add_bytes = |sum: &mut u128, more: u128| sum.checked_add(more).map(|total| *sum = total);
            counts.iter_mut().zip(of_tally).all(|(sum, more)| add(sum, more).is_some() && *sum <= count)
                && sums.iter_mut().zip(bytes_of).all(|(sum, more)| add_bytes(sum, more).is_some() && *sum <= bytes)
        })
    }
}

/// Sums in half the space, where all of them are below 2^64 and those of files below 2^32, as in nearly every
/// directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Packed {
    /// All sums are, and the set has no directories: files, small files; sizes, small sizes, allocated, overheads.
    Small([u32; 2], [u64; 4]),
    /// Otherwise.
    Large(Box<Tally>),
}

impl Default for Packed {
    fn default() -> Packed {
        Packed::Small([0; 2], [0; 4])
    }
}

impl From<Tally> for Packed {
    fn from(tally: Tally) -> Packed {
        let small = || {
            let counts = [tally.files.try_into().ok()?, tally.small_files.try_into().ok()?];
            let Tally { size_bytes, small_size_bytes, allocated_bytes, overhead_bytes, .. } = tally;
            let [a, b, c, d] =
                [size_bytes, small_size_bytes, allocated_bytes, overhead_bytes].map(|sum| sum.try_into().ok());
            (tally.directories == 0).then_some(Packed::Small(counts, [a?, b?, c?, d?]))
        };
        small().unwrap_or_else(|| Packed::Large(Box::new(tally)))
    }
}

impl From<&Packed> for Tally {
    fn from(packed: &Packed) -> Tally {
        match packed {
            Packed::Small([files, small_files], sums) => {
                let [size_bytes, small_size_bytes, allocated_bytes, overhead_bytes] = sums.map(u128::from);
                let [files, small_files] = [*files, *small_files].map(u64::from);
                Tally {
                    files,
                    small_files,
                    size_bytes,
                    small_size_bytes,
                    allocated_bytes,
                    overhead_bytes,
                    directories: 0,
                }
            }
            Packed::Large(tally) => **tally,
        }
    }
}

/// What directories are ranked by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Ranking {
    /// Number of files.
    Files,
    /// Number of small files.
    SmallFiles,
    /// Positive overhead.
    Overhead,
    /// Sum of sizes.
    Size,
}

impl Ranking {
    /// All of them.
    pub const ALL: [Ranking; 4] = [Ranking::Files, Ranking::SmallFiles, Ranking::Overhead, Ranking::Size];

    /// Its name in survey files.
    pub fn name(self) -> &'static str {
        match self {
            Ranking::Files => "files",
            Ranking::SmallFiles => "small_files",
            Ranking::Overhead => "overhead",
            Ranking::Size => "size",
        }
    }

    /// The figure that it ranks by.
    pub fn figure(self, tally: &Tally) -> u128 {
        match self {
            Ranking::Files => tally.files.into(),
            Ranking::SmallFiles => tally.small_files.into(),
            Ranking::Overhead => tally.overhead_bytes,
            Ranking::Size => tally.size_bytes,
        }
    }
}

/// One directory of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectoryRow {
    /// Its path; `None` when anonymous.
    pub path: Option<Vec<u8>>,
    /// How far below its root.
    pub depth: u32,
    /// Its sums.
    pub tally: Tally,
}

/// The directories that hold most, by each [`Ranking`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopDirectories {
    limit: usize,
    lists: [Vec<DirectoryRow>; 4],
}

impl TopDirectories {
    /// Lists of at most `limit` rows.
    pub fn new(limit: usize) -> TopDirectories {
        TopDirectories { limit, lists: Default::default() }
    }

    /// Rows that a list may have.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// The list of a ranking: by falling figure, then by rising path.
    pub fn list(&self, ranking: Ranking) -> &[DirectoryRow] {
        &self.lists[ranking as usize]
    }

    /// Considers a directory; calls `path` only if it may enter a list.
    pub fn offer(&mut self, depth: u32, tally: &Tally, path: impl Fn() -> Vec<u8>) {
        let mut known_path = None;
        for ranking in Ranking::ALL {
            if self.may_enter(ranking, tally) {
                let path = known_path.get_or_insert_with(&path);
                self.insert(ranking, DirectoryRow { path: Some(path.clone()), depth, tally: *tally });
            }
        }
    }

    fn may_enter(&self, ranking: Ranking, tally: &Tally) -> bool {
        let list = self.list(ranking);
        let figure = ranking.figure(tally);
        figure > 0
            && self.limit > 0
            && (list.len() < self.limit || list.last().is_none_or(|last| figure >= ranking.figure(&last.tally)))
    }

    fn insert(&mut self, ranking: Ranking, row: DirectoryRow) {
        let list = &mut self.lists[ranking as usize];
        let position = list.partition_point(|other| compare(ranking, other, &row) == Ordering::Less);
        list.insert(position, row);
        list.truncate(self.limit);
    }

    /// Adds the lists of a disjoint tree.
    pub fn merge(&mut self, other: &TopDirectories) {
        for ranking in Ranking::ALL {
            for row in other.list(ranking) {
                if self.may_enter(ranking, &row.tally) {
                    self.insert(ranking, row.clone());
                }
            }
        }
    }

    /// Lists read from a file, sorted.
    pub fn from_lists(limit: usize, lists: [Vec<DirectoryRow>; 4]) -> TopDirectories {
        let mut top = TopDirectories::new(limit);
        for (ranking, list) in Ranking::ALL.into_iter().zip(lists) {
            for row in list {
                if top.may_enter(ranking, &row.tally) {
                    top.insert(ranking, row);
                }
            }
        }
        top
    }

    fn map_paths(&mut self, change: &impl Fn(&[u8]) -> Vec<u8>) {
        for row in self.lists.iter_mut().flatten() {
            row.path = row.path.as_deref().map(change);
        }
        for ranking in Ranking::ALL {
            self.lists[ranking as usize].sort_by(|a, b| compare(ranking, a, b));
        }
    }

    fn anonymise(&mut self) {
        for row in self.lists.iter_mut().flatten() {
            row.path = None;
        }
        for ranking in Ranking::ALL {
            // Without paths, rows with equal figures would keep the order of their paths.
            self.lists[ranking as usize].sort_by(|a, b| compare(ranking, a, b));
        }
    }
}

/// Higher figures first, then paths in byte order, then the rest, so that the result never depends on the order of
/// arrival.
fn compare(ranking: Ranking, a: &DirectoryRow, b: &DirectoryRow) -> Ordering {
    let rest = |row: &DirectoryRow| (row.depth, row.tally);
    let by_figure = ranking.figure(&b.tally).cmp(&ranking.figure(&a.tally));
    by_figure.then_with(|| a.path.cmp(&b.path)).then_with(|| rest(a).cmp(&rest(b)))
}

/// The extension of a name: lower case and padded with NUL, or one of the words for names without a usual one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Extension([u8; 16]);

impl Extension {
    /// Names without an extension.
    pub const NONE: Extension = Extension([0; 16]);
    /// Extensions of digits only: `.0`, `.2024`.
    pub const NUMERIC: Extension = Extension(*b"(numeric)\0\0\0\0\0\0\0");
    /// Extensions that are longer than 16 characters, or have characters other than letters, digits, `_`, `-` and `+`.
    pub const OTHER: Extension = Extension(*b"(other)\0\0\0\0\0\0\0\0\0");

    /// The extension of a name: what follows its last dot, unless that is its first character.
    #[inline]
    pub fn of(name: &[u8]) -> Extension {
        let Some(dot) = name.iter().rposition(|&byte| byte == b'.').filter(|&dot| dot > 0) else {
            return Extension::NONE;
        };
        let text = &name[dot + 1..];
        let mut padded = [0; 16];
        let (mut letters, mut others) = (false, text.len() > padded.len());
        for (to, &byte) in padded.iter_mut().zip(text) {
            *to = byte.to_ascii_lowercase();
            letters |= !byte.is_ascii_digit();
            others |= !(byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'+'));
        }
        match () {
            _ if others => Extension::OTHER,
            _ if text.is_empty() => Extension::NONE,
            _ if !letters => Extension::NUMERIC,
            _ => Extension(padded),
        }
    }

    /// The extension that [`text`](Self::text) printed.
    pub fn from_text(text: &str) -> Option<Extension> {
        let mut padded = [0; 16];
        padded.get_mut(..text.len())?.copy_from_slice(text.as_bytes());
        let word = Extension(padded);
        let plain = text.bytes().all(|b| b.is_ascii_alphanumeric() && !b.is_ascii_uppercase() || b"_-+".contains(&b));
        (plain || word == Extension::NUMERIC || word == Extension::OTHER).then_some(word)
    }

    /// An extension of at most 16 lower-case letters and digits.
    pub(super) const fn of_short(text: &[u8]) -> Extension {
        let mut padded = [0; 16];
        padded.split_at_mut(text.len()).0.copy_from_slice(text);
        Extension(padded)
    }

    /// The bytes as a number.
    #[inline]
    pub(super) const fn bits(self) -> u128 {
        u128::from_ne_bytes(self.0)
    }

    /// As text, without the dot; empty for [`Extension::NONE`].
    pub fn text(&self) -> &str {
        let end = self.0.iter().position(|&byte| byte == 0).unwrap_or(self.0.len());
        std::str::from_utf8(&self.0[..end]).unwrap_or("(other)")
    }
}

/// Sums by owner or extension.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(bound = "K: Serialize + for<'a> Deserialize<'a> + Eq + Hash + Ord + Copy")]
pub struct KindTable<K: Eq + Hash> {
    rows: HashMap<K, Tally>,
    /// The rows that were folded together when the table was full.
    rest: Tally,
    max_error: u64,
}

impl<K: Eq + Hash> Default for KindTable<K> {
    fn default() -> KindTable<K> {
        KindTable { rows: HashMap::new(), rest: Tally::default(), max_error: 0 }
    }
}

impl<K: Eq + Hash + Ord + Copy> KindTable<K> {
    /// Adds files of a kind.
    #[inline]
    pub fn add(&mut self, kind: K, tally: &Tally) {
        scan::Tally::add(self.rows.entry(kind).or_default(), tally);
        if self.rows.len() > 2 * KINDS {
            self.fold_smallest();
        }
    }

    fn fold_smallest(&mut self) {
        let mut rows: Vec<(K, Tally)> = self.rows.drain().collect();
        rows.sort_unstable_by_key(|(kind, tally)| (std::cmp::Reverse(tally.files), *kind));
        self.max_error += rows.get(KINDS).map_or(0, |(_, tally)| tally.files);
        for (_, tally) in rows.drain(KINDS..) {
            scan::Tally::add(&mut self.rest, &tally);
        }
        self.rows.extend(rows);
    }

    /// Adds all of `other`.
    pub fn merge(&mut self, other: &KindTable<K>) {
        for (kind, tally) in &other.rows {
            self.add(*kind, tally);
        }
        scan::Tally::add(&mut self.rest, &other.rest);
        self.max_error += other.max_error;
    }

    /// Of so many files, those in no row have a kind that is not known.
    pub(super) fn cover(&mut self, files: u64) {
        let known: u64 = self.tallies().map(|tally| tally.files).sum();
        assert!(known <= files, "{known} files have a kind, of {files}");
        self.max_error += files - known;
    }

    /// Rows by falling number of files.
    pub fn ranked(&self) -> Vec<(K, Tally)> {
        let mut rows: Vec<(K, Tally)> = self.rows.iter().map(|(kind, tally)| (*kind, *tally)).collect();
        rows.sort_unstable_by_key(|(kind, tally)| (std::cmp::Reverse(tally.files), *kind));
        rows
    }

    /// The sums of all rows.
    pub(super) fn tallies(&self) -> impl Iterator<Item = &Tally> {
        self.rows.values().chain([&self.rest])
    }

    /// The rows that were folded together.
    pub fn rest(&self) -> &Tally {
        &self.rest
    }

    /// By how many files a row can be too low, because rows were folded together or the kinds of files are not known; 0
    /// if the table is complete.
    pub fn max_error(&self) -> u64 {
        self.max_error
    }

    /// A table from its parts.
    pub fn from_parts(rows: impl IntoIterator<Item = (K, Tally)>, rest: Tally, max_error: u64) -> KindTable<K> {
        let mut table = KindTable { rows: HashMap::new(), rest, max_error };
        rows.into_iter().for_each(|(kind, tally)| table.add(kind, &tally));
        table
    }
}

/// Everything about where the files are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Places {
    /// Directories, each without those below it.
    pub own: TopDirectories,
    /// Directories, each with everything below it.
    pub subtree: TopDirectories,
    /// By owner.
    pub owners: KindTable<Kind<u32>>,
    /// Names of owners, escaped, where the survey was taken; owners without a name there are missing.
    pub owner_names: BTreeMap<u32, String>,
    /// By extension.
    pub extensions: KindTable<Kind<Extension>>,
    /// Ages by owner; `None` if they are not known, or were merged from surveys with different breaks.
    pub owner_ages: Option<OwnerAges>,
    /// The largest files; `None` if not known.
    pub files: Option<LargestFiles>,
}

impl Places {
    /// An empty instance; lists of directories will have at most `limit` rows.
    pub fn new(limit: usize) -> Places {
        Places {
            own: TopDirectories::new(limit),
            subtree: TopDirectories::new(limit),
            owners: KindTable::default(),
            owner_names: BTreeMap::new(),
            extensions: KindTable::default(),
            owner_ages: None,
            files: Some(LargestFiles::new(limit)),
        }
    }

    /// Rows that a list of directories may have.
    pub fn limit(&self) -> usize {
        self.own.limit
    }

    /// Adds the places of a disjoint tree. Lists are cut to the shorter limit: beyond it they would not be exact.
    pub fn merge(&mut self, other: &Places) {
        let limit = self.limit().min(other.limit());
        for (mine, theirs) in [(&mut self.own, &other.own), (&mut self.subtree, &other.subtree)] {
            mine.limit = limit;
            mine.merge(theirs);
            mine.lists.iter_mut().for_each(|list| list.truncate(limit));
        }
        merge_kinds(&mut self.owners, &other.owners);
        for (uid, name) in &other.owner_names {
            self.owner_names.entry(*uid).or_insert_with(|| name.clone());
        }
        merge_kinds(&mut self.extensions, &other.extensions);
        self.owner_ages = match (self.owner_ages.take(), &other.owner_ages) {
            (Some(mut mine), Some(theirs)) if mine.breaks_days() == theirs.breaks_days() => {
                mine.merge(theirs);
                Some(mine)
            }
            _ => None,
        };
        self.files = match (self.files.take(), &other.files) {
            (Some(mut mine), Some(theirs)) => {
                mine.merge(theirs);
                Some(mine)
            }
            _ => None,
        };
    }

    /// Records the names of the owners; `name_of` returns a name, escaped.
    pub fn name_owners(&mut self, name_of: impl Fn(u32) -> Option<String>) {
        let uids = self.owners.rows.keys().filter_map(|kind| match kind {
            Kind::Named(uid) => Some(*uid),
            Kind::Anonymous(_) => None,
        });
        self.owner_names = uids.filter_map(|uid| Some((uid, name_of(uid)?))).collect();
    }

    /// Changes the path of every directory and file.
    pub(super) fn map_paths(&mut self, change: &impl Fn(&[u8]) -> Vec<u8>) {
        self.own.map_paths(change);
        self.subtree.map_paths(change);
        self.files.iter_mut().for_each(|files| files.map_paths(change));
    }

    /// Forgets every name.
    pub fn anonymise(&mut self) {
        self.own.anonymise();
        self.subtree.anonymise();
        self.owner_names.clear();
        self.owners = anonymous(&self.owners);
        self.extensions = anonymous(&self.extensions);
        self.owner_ages.iter_mut().for_each(OwnerAges::anonymise);
        self.files.iter_mut().for_each(LargestFiles::anonymise);
    }
}

/// Adds a table; rows without a name cannot be matched, so they stay apart.
fn merge_kinds<K: Eq + Hash + Ord + Copy>(mine: &mut KindTable<Kind<K>>, theirs: &KindTable<Kind<K>>) {
    let rank_after = |kind: &Kind<K>| match kind {
        Kind::Anonymous(rank) => rank + 1,
        Kind::Named(_) => 0,
    };
    let known = mine.rows.keys().map(rank_after).max().unwrap_or(0);
    let apart = theirs.rows.iter().map(|(kind, tally)| match kind {
        Kind::Anonymous(rank) => (Kind::Anonymous(known + rank), *tally),
        named => (*named, *tally),
    });
    mine.merge(&KindTable { rows: apart.collect(), ..theirs.clone() });
    if mine.rows.keys().any(|kind| matches!(kind, Kind::Anonymous(_))) {
        *mine = anonymous(mine);
    }
}

/// The table with ranks as keys, which follow from the rows alone: neither from names nor from an order of merging.
fn anonymous<K: Eq + Hash + Ord + Copy>(table: &KindTable<Kind<K>>) -> KindTable<Kind<K>> {
    let mut tallies: Vec<Tally> = table.rows.values().copied().collect();
    tallies.sort_unstable_by_key(|tally| std::cmp::Reverse(*tally));
    let rows = tallies.into_iter().zip(0..).map(|(tally, rank)| (Kind::Anonymous(rank), tally));
    KindTable::from_parts(rows, table.rest, table.max_error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn files(files: u64) -> Tally {
        Tally { files, size_bytes: u128::from(files) * 10, ..Tally::default() }
    }

    #[test]
    fn packed_sums_come_back() {
        let tally = |files, sum: u128, directories| Tally {
            files,
            small_files: files / 2,
            size_bytes: sum,
            small_size_bytes: sum / 3,
            allocated_bytes: sum / 2,
            overhead_bytes: sum / 5,
            directories,
        };
        let most = u128::from(u64::MAX);
        for (files, sum, directories, is_small) in [
            (0, 0, 0, true),
            (u64::from(u32::MAX), most, 0, true),
            (u64::from(u32::MAX) + 1, 1, 0, false),
            (1, most + 1, 0, false),
            (1, 1, 1, false),
        ] {
            let packed = Packed::from(tally(files, sum, directories));
            assert_eq!(matches!(packed, Packed::Small(..)), is_small);
            assert_eq!(Tally::from(&packed), tally(files, sum, directories));
        }
    }

    #[test]
    fn extensions_are_lower_case_and_short() {
        for (name, text) in [
            ("a.TXT", "txt"),
            ("archive.tar.gz", "gz"),
            (".bashrc", ""),
            ("README", ""),
            ("file.", ""),
            ("lib.so.6", "(numeric)"),
            ("x.a b", "(other)"),
            ("x.abcdefghijklmnopq", "(other)"),
            ("x.abcdefghijklmnop", "abcdefghijklmnop"),
            ("a.c++", "c++"),
        ] {
            let extension = Extension::of(name.as_bytes());
            assert_eq!(extension.text(), text, "{name}");
            assert_eq!(Extension::from_text(text), Some(extension));
        }
        assert_eq!(Extension::of(b"x.\xff"), Extension::OTHER);
        assert_eq!(Extension::from_text("<script>"), None);
    }

    #[test]
    fn a_full_table_says_how_wrong_it_may_be() {
        let mut table = KindTable::default();
        for key in 0..2 * KINDS as u64 {
            table.add(key, &files(if key < 10 { 100 } else { 1 }));
        }
        assert_eq!(table.max_error(), 0);
        table.add(1 << 40, &files(7));
        assert_eq!(table.max_error(), 1);
        assert_eq!(table.ranked().len(), KINDS);
        assert_eq!(table.ranked()[10], (1 << 40, files(7)));
        let whole: u64 = table.ranked().iter().map(|(_, t)| t.files).sum::<u64>() + table.rest().files;
        assert_eq!(whole, 2 * KINDS as u64 - 10 + 1000 + 7);
    }

    proptest! {
        #[test]
        fn the_top_of_two_trees_is_the_top_of_their_tops(
            left in proptest::collection::vec(1u64..50, 0..60),
            right in proptest::collection::vec(1u64..50, 0..60),
        ) {
            let offer = |top: &mut TopDirectories, side: &str, list: &[u64]| {
                for (index, &count) in list.iter().enumerate() {
                    top.offer(1, &files(count), || format!("{side}{index}").into_bytes());
                }
            };
            let (mut whole, mut a, mut b) = (TopDirectories::new(5), TopDirectories::new(5), TopDirectories::new(5));
            offer(&mut whole, "r", &right);
            offer(&mut whole, "l", &left);
            offer(&mut a, "l", &left);
            offer(&mut b, "r", &right);
            a.merge(&b);
            prop_assert_eq!(a, whole);
        }
    }
}
