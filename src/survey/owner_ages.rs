//! Whose bytes are old: files and bytes of each owner by the age of their content and of their last read.
//!
//! Ages fall into classes between breaks, which are chosen before the survey: keeping all ages of all owners would not
//! be bounded. Owners are complete up to [`KINDS`]; beyond that, those with the fewest files are folded together.

use hashbrown::HashMap;
use serde::{Deserialize, Serialize};

use super::kind::{KINDS, Kind};

/// Breaks unless others are chosen, in days: a day, a week, a month, a quarter, a year, five years.
pub const DEFAULT_BREAKS_DAYS: [u64; 6] = [1, 7, 30, 90, 365, 1825];
/// Breaks, at most.
pub const MOST_BREAKS: usize = 16;

/// Files of a class of ages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct AgeSums {
    /// How many.
    pub files: u64,
    /// Sum of their sizes.
    pub size_bytes: u128,
}

impl AgeSums {
    fn add(&mut self, other: AgeSums) {
        self.files += other.files;
        self.size_bytes += other.size_bytes;
    }
}

/// The files of an owner by class: that younger than the first break first, that from the last break on last.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct AgedFiles {
    /// By the last change of the content.
    pub written: Vec<AgeSums>,
    /// By the last read.
    pub read: Vec<AgeSums>,
}

impl AgedFiles {
    fn empty(classes: usize) -> AgedFiles {
        AgedFiles { written: vec![AgeSums::default(); classes], read: vec![AgeSums::default(); classes] }
    }

    fn add(&mut self, other: &AgedFiles) {
        let pairs = self.written.iter_mut().zip(&other.written).chain(self.read.iter_mut().zip(&other.read));
        pairs.for_each(|(mine, theirs)| mine.add(*theirs));
    }

    /// All of them.
    pub fn total(&self) -> AgeSums {
        older(&self.written, 0)
    }
}

/// What is in the class with this index and in older ones: after break `class - 1`.
pub fn older(classes: &[AgeSums], class: usize) -> AgeSums {
    let mut sums = AgeSums::default();
    classes.iter().skip(class).for_each(|other| sums.add(*other));
    sums
}

/// The table of owners.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerAges {
    breaks_days: Vec<u64>,
    rows: HashMap<Kind<u32>, AgedFiles>,
    rest: AgedFiles,
}

impl OwnerAges {
    /// An empty table with these breaks, which rise.
    pub fn new(breaks_days: &[u64]) -> OwnerAges {
        let rest = AgedFiles::empty(breaks_days.len() + 1);
        OwnerAges { breaks_days: breaks_days.to_vec(), rows: HashMap::new(), rest }
    }

    /// A table from its parts; `None` if they do not belong together.
    pub fn from_parts(
        breaks_days: &[u64],
        rows: impl IntoIterator<Item = (Kind<u32>, AgedFiles)>,
        rest: AgedFiles,
    ) -> Option<OwnerAges> {
        let mut table = OwnerAges { breaks_days: breaks_days.to_vec(), rows: HashMap::new(), rest };
        for (owner, files) in rows {
            if table.rows.insert(owner, files).is_some() {
                return None;
            }
        }
        table.is_sound().then_some(table)
    }

    /// Whether every row has a sum for each class, and the breaks rise: what was read may be otherwise.
    pub(super) fn is_sound(&self) -> bool {
        let classes = self.breaks_days.len() + 1;
        let has_all = |files: &AgedFiles| files.written.len() == classes && files.read.len() == classes;
        are_breaks(&self.breaks_days) && has_all(&self.rest) && self.rows.values().all(has_all)
    }

    /// Counts a file with the ages of its content and of its last read in days.
    #[inline]
    pub(super) fn add(&mut self, uid: u32, written_days: u64, read_days: u64, size_bytes: u64) {
        let classes = self.breaks_days.len() + 1;
        let class = |days: u64| self.breaks_days.iter().take_while(|&&edge| edge <= days).count();
        let (written, read) = (class(written_days), class(read_days));
        let row = self.rows.entry(Kind::Named(uid)).or_insert_with(|| AgedFiles::empty(classes));
        let file = AgeSums { files: 1, size_bytes: size_bytes.into() };
        row.written[written].add(file);
        row.read[read].add(file);
        if self.rows.len() > 2 * KINDS {
            self.fold_smallest();
        }
    }

    fn fold_smallest(&mut self) {
        for (_, files) in self.ranked().split_off(KINDS) {
            self.rest.add(&files);
        }
        let kept: Vec<(Kind<u32>, AgedFiles)> = self.ranked().into_iter().take(KINDS).collect();
        self.rows = kept.into_iter().collect();
    }

    /// Where the classes begin, but for the first.
    pub fn breaks_days(&self) -> &[u64] {
        &self.breaks_days
    }

    /// The same with these breaks; `None` unless they rise, and all of them are breaks of the table.
    pub fn with_breaks(&self, breaks_days: &[u64]) -> Option<OwnerAges> {
        if !breaks_days.iter().all(|days| self.breaks_days.contains(days)) {
            return None;
        }
        let starts = [0].into_iter().chain(self.breaks_days.iter().copied());
        let to: Vec<usize> = starts.map(|start| breaks_days.iter().filter(|days| **days <= start).count()).collect();
        let regroup = |classes: &[AgeSums]| {
            let mut sums = vec![AgeSums::default(); breaks_days.len() + 1];
            classes.iter().zip(&to).for_each(|(files, class)| sums[*class].add(*files));
            sums
        };
        let files = |files: &AgedFiles| AgedFiles { written: regroup(&files.written), read: regroup(&files.read) };
        let rows = self.rows.iter().map(|(owner, row)| (*owner, files(row)));
        OwnerAges::from_parts(breaks_days, rows, files(&self.rest))
    }

    /// Owners by falling number of files.
    pub fn ranked(&self) -> Vec<(Kind<u32>, AgedFiles)> {
        let mut rows: Vec<(Kind<u32>, AgedFiles)> = self.rows.iter().map(|(owner, f)| (*owner, f.clone())).collect();
        rows.sort_by_key(|(owner, files)| (std::cmp::Reverse(files.total().files), *owner));
        rows
    }

    /// The sums of all classes of all owners.
    pub(super) fn sums(&self) -> impl Iterator<Item = &AgeSums> {
        let rows = self.rows.values().chain([&self.rest]);
        rows.flat_map(|files| files.written.iter().chain(&files.read))
    }

    /// The owners that were folded together.
    pub fn rest(&self) -> &AgedFiles {
        &self.rest
    }

    /// Adds another table with the same breaks; owners without a name stay apart.
    pub(super) fn merge(&mut self, other: &OwnerAges) {
        let rank_after = |owner: &Kind<u32>| match owner {
            Kind::Anonymous(rank) => rank + 1,
            Kind::Named(_) => 0,
        };
        let known = self.rows.keys().map(rank_after).max().unwrap_or(0);
        for (owner, files) in other.ranked() {
            let owner = match owner {
                Kind::Anonymous(rank) => Kind::Anonymous(known + rank),
                named => named,
            };
            self.rows.entry(owner).or_insert_with(|| AgedFiles::empty(files.written.len())).add(&files);
        }
        self.rest.add(&other.rest);
        if self.rows.len() > 2 * KINDS {
            self.fold_smallest();
        }
        if self.rows.keys().any(|owner| matches!(owner, Kind::Anonymous(_))) {
            self.anonymise();
        }
    }

    /// Forgets every owner. Ranks follow from the rows alone: neither from owners nor from an order of merging.
    pub(super) fn anonymise(&mut self) {
        let mut rows: Vec<AgedFiles> = self.rows.drain().map(|(_, files)| files).collect();
        rows.sort_by_cached_key(|files| std::cmp::Reverse((files.total(), files.clone())));
        self.rows = rows.into_iter().zip(0..).map(|(files, rank)| (Kind::Anonymous(rank), files)).collect();
    }
}

/// Whether these can be breaks: at least one, not too many, rising from 1 on.
pub fn are_breaks(breaks_days: &[u64]) -> bool {
    let rise = breaks_days.windows(2).all(|pair| pair[0] < pair[1]);
    (1..=MOST_BREAKS).contains(&breaks_days.len()) && breaks_days[0] > 0 && rise
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_fall_into_classes_and_nothing_is_lost() {
        let mut table = OwnerAges::new(&[7, 365]);
        for (uid, written, read, size) in [(1, 0, 0, 5), (1, 6, 7, 10), (1, 365, 364, 100), (2, 9999, 9999, 1)] {
            table.add(uid, written, read, size);
        }
        let rows = table.ranked();
        let sizes = |classes: &[AgeSums]| classes.iter().map(|class| class.size_bytes).collect::<Vec<_>>();
        assert_eq!((rows[0].0, sizes(&rows[0].1.written)), (Kind::Named(1), vec![15, 0, 100]));
        assert_eq!(sizes(&rows[0].1.read), [5, 110, 0]);
        assert_eq!(older(&rows[0].1.read, 1), AgeSums { files: 2, size_bytes: 110 });
        let mut twice = table.clone();
        twice.merge(&table);
        assert_eq!(twice.ranked()[0].1.total(), AgeSums { files: 6, size_bytes: 230 });
        twice.anonymise();
        assert!(twice.ranked().iter().all(|(owner, _)| matches!(owner, Kind::Anonymous(_))));
        let parts = table.ranked();
        assert_eq!(OwnerAges::from_parts(&[7, 365], parts.clone(), table.rest().clone()), Some(table.clone()));
        assert_eq!(OwnerAges::from_parts(&[7], parts, table.rest().clone()), None);
    }

    #[test]
    fn fewer_breaks_have_the_sums_of_more() {
        let (mut fine, mut coarse) = (OwnerAges::new(&[1, 7, 30, 365]), OwnerAges::new(&[7, 365]));
        for (uid, days) in [(1, 0), (1, 1), (1, 7), (2, 29), (2, 30), (2, 364), (3, 365), (3, 9999)] {
            fine.add(uid, days, days / 2, 1 + days);
            coarse.add(uid, days, days / 2, 1 + days);
        }
        assert_eq!(fine.with_breaks(&[7, 365]), Some(coarse));
        assert_eq!(fine.with_breaks(fine.breaks_days()), Some(fine.clone()));
        assert_eq!(fine.with_breaks(&[7, 90]), None);
    }

    #[test]
    fn thousands_of_owners_are_folded() {
        let mut table = OwnerAges::new(&[1]);
        for uid in 0..2 * KINDS as u32 + 1 {
            table.add(uid, 0, 0, 1);
        }
        assert_eq!(table.ranked().len(), KINDS);
        assert_eq!(table.rest().total().files, KINDS as u64 + 1);
    }

    #[test]
    fn breaks_rise() {
        assert!(are_breaks(&DEFAULT_BREAKS_DAYS) && are_breaks(&[1]));
        for wrong in [&[][..], &[0, 1], &[5, 5], &[9, 3], &(1..=17).collect::<Vec<u64>>()] {
            assert!(!are_breaks(wrong), "{wrong:?}");
        }
    }
}
