//! The directories of a tree: how many files and directories each contains.
//!
//! Directories are numbered level by level, and the root is 0. The children of a directory are adjacent, and so are its
//! files: two running sums describe everything. Entries of a directory are its child directories, then its files; entry
//! k of directory d is entry `entries_before(d) + k` of the tree, which has one entry fewer than files and directories
//! together (the root is not an entry).
//!
//! Invariants, property-tested: every directory but the root is the child of one before it; every file is in exactly
//! one directory.

use std::ops::Range;

use super::stratify::{Table, stratify};
use super::streams::{Stream, sequence};
use crate::distribution::Distribution;
use crate::random::Random;

/// Child directories per directory where nothing else is known.
pub(crate) const FAN_OUT: u64 = 100;
/// Largest depth of a directory.
const DEEPEST: usize = 1000;

/// The directories of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tree {
    /// Number of files before each directory, then of all files.
    first_file: Vec<u64>,
    /// Number of the first child of each directory, then of all directories.
    first_child: Vec<u64>,
    /// Directories of each depth.
    levels: Vec<u64>,
}

impl Tree {
    /// A tree with the entries, and the depths if they are known, of a measured one.
    pub(super) fn measured(
        entries: &Distribution,
        depths: Option<&Distribution>,
        files: u64,
        directories: u64,
        seed: u64,
    ) -> Tree {
        let directories = directories.max(1);
        let mut pool = Vec::with_capacity(directories as usize);
        stratify(entries, directories).for_each(|value, count| pool.extend(std::iter::repeat_n(value, count as usize)));
        settle(&mut pool, u128::from(files) + u128::from(directories) - 1);
        let mut random = sequence(seed, Stream::Directories);
        random.shuffle(&mut pool);
        let levels = depths.map(|depths| levels(&stratify(depths, directories), directories));
        let laid_out = levels.and_then(|levels| by_levels(levels, pool.clone(), &mut random));
        let (entries, children) = laid_out.unwrap_or_else(|| breadth_first(pool));
        let files = entries.iter().zip(&children).map(|(entries, children)| entries - children);
        Tree::of(files, &children)
    }

    /// A tree with `directory_files` files in each directory, and directories at the depths, if there are any.
    pub(super) fn even(directory_files: u64, depths: Option<&Distribution>, files: u64) -> Tree {
        let flat = depths.is_some_and(|depths| depths.max() == 0);
        let directories = if flat { 1 } else { files.div_ceil(directory_files.max(1)).max(1) };
        let until = |directory: u64| (u128::from(files) * u128::from(directory) / u128::from(directories)) as u64;
        let files = (0..directories).map(|directory| until(directory + 1) - until(directory));
        let children: Vec<u64> = match depths {
            Some(depths) => {
                let levels = levels(&stratify(depths, directories), directories);
                let next = levels.iter().skip(1).copied().chain([0]);
                let part =
                    |level: u64, next: u64, at: u64| (u128::from(next) * u128::from(at) / u128::from(level)) as u64;
                let of_level = |(&level, next): (&u64, u64)| {
                    (0..level).map(move |at| part(level, next, at + 1) - part(level, next, at))
                };
                levels.iter().zip(next).flat_map(of_level).collect()
            }
            None => {
                let mut left = directories - 1;
                let mut some = || {
                    let children = left.min(FAN_OUT);
                    left -= children;
                    children
                };
                (0..directories).map(|_| some()).collect()
            }
        };
        Tree::of(files, &children)
    }

    fn of(files: impl Iterator<Item = u64>, children: &[u64]) -> Tree {
        let mut first_file = Vec::with_capacity(children.len() + 1);
        let mut first_child = Vec::with_capacity(children.len() + 1);
        let (mut file, mut child) = (0, 1);
        for (files, children) in files.zip(children) {
            first_file.push(file);
            first_child.push(child);
            file += files;
            child += children;
        }
        first_file.push(file);
        first_child.push(child);
        let mut levels = Vec::new();
        let mut level = 0..1u64;
        while !level.is_empty() {
            levels.push(level.end - level.start);
            level = level.end..first_child[level.end as usize];
        }
        Tree { first_file, first_child, levels }
    }

    /// Number of directories, with the root.
    pub(crate) fn directories(&self) -> u64 {
        self.first_child.len() as u64 - 1
    }

    /// Number of files.
    pub(crate) fn files(&self) -> u64 {
        self.first_file[self.first_file.len() - 1]
    }

    /// The directory that a file is in.
    pub(super) fn directory_of(&self, file: u64) -> u64 {
        self.first_file.partition_point(|&first| first <= file) as u64 - 1
    }

    /// The files of a directory.
    pub(super) fn files_of(&self, directory: u64) -> Range<u64> {
        self.first_file[directory as usize]..self.first_file[directory as usize + 1]
    }

    /// The child directories of a directory.
    pub(super) fn children_of(&self, directory: u64) -> Range<u64> {
        self.first_child[directory as usize]..self.first_child[directory as usize + 1]
    }

    /// Entries of the directories before this one.
    pub(super) fn entries_before(&self, directory: u64) -> u64 {
        self.first_file[directory as usize] + self.first_child[directory as usize] - 1
    }

    /// Entries of each directory.
    pub(crate) fn entries(&self) -> Distribution {
        let mut entries = Distribution::default();
        for directory in 0..self.directories() {
            let (files, children) = (self.files_of(directory), self.children_of(directory));
            entries.record(files.end - files.start + children.end - children.start);
        }
        entries
    }

    /// Depth of each directory.
    pub(crate) fn depths(&self) -> Distribution {
        let mut depths = Distribution::default();
        (0..).zip(&self.levels).for_each(|(depth, &count)| depths.add(depth, count));
        depths
    }
}

/// Adjusts the sum of `values` to `sum` with as few changes as possible: the largest values, each by at most half
/// (where that is enough).
fn settle(values: &mut [u64], sum: u128) {
    values.sort_unstable_by(|a, b| b.cmp(a));
    let now: u128 = values.iter().map(|&value| u128::from(value)).sum();
    let (mut over, mut lacking) = (now.saturating_sub(sum), sum.saturating_sub(now));
    while over > 0 {
        for value in values.iter_mut() {
            let less = u64::try_from(over).unwrap_or(u64::MAX).min(value.div_ceil(2));
            *value -= less;
            over -= u128::from(less);
        }
    }
    while lacking > 0 {
        for value in values.iter_mut() {
            let more = u64::try_from(lacking).unwrap_or(u64::MAX).min((*value / 2).max(1));
            *value += more;
            lacking -= u128::from(more);
        }
    }
}

/// How many directories each level gets: one root, no empty level.
fn levels(depths: &Table, directories: u64) -> Vec<u64> {
    let mut levels = Vec::new();
    depths.for_each(|depth, count| {
        let depth = usize::try_from(depth).unwrap_or(DEEPEST).min(DEEPEST);
        levels.resize(levels.len().max(depth + 1), 0);
        levels[depth] += count;
    });
    levels.resize(levels.len().max(2), 0);
    // Several roots become one, and the others become directories in it.
    let roots = std::mem::replace(&mut levels[0], 1);
    if roots == 0 {
        let widest = (1..levels.len()).max_by_key(|&level| (levels[level], level)).unwrap_or(1);
        levels[widest] = levels[widest].saturating_sub(1);
    } else {
        levels[1] += roots - 1;
    }
    while levels.last() == Some(&0) {
        levels.pop();
    }
    // In a small tree a level can round to no directory. Everything below it would then move up one level.
    for level in 1..levels.len() {
        let widest = (1..levels.len()).max_by_key(|&level| levels[level]).unwrap_or(level);
        if levels[level] == 0 && levels[widest] > 1 {
            levels[widest] -= 1;
            levels[level] = 1;
        }
    }
    levels.retain(|&count| count > 0);
    debug_assert_eq!(levels.iter().sum::<u64>(), directories);
    levels
}

/// Entries and children of each directory, with the levels as requested or a little deeper; `None` where these entries
/// cannot be arranged like that.
fn by_levels(mut levels: Vec<u64>, mut pool: Vec<u64>, random: &mut Random) -> Option<(Vec<u64>, Vec<u64>)> {
    let mut children = Vec::with_capacity(pool.len());
    let (mut at, mut depth) = (0usize, 0);
    while depth < levels.len() {
        let size = levels[depth] as usize;
        let mut wanted = levels.get(depth + 1).copied().unwrap_or(0);
        let (before, after) = pool.split_at_mut(at);
        let (level, rest) = after.split_at_mut(size);
        let mut holds = enrich(level, rest, wanted, random);
        if holds < u128::from(wanted) {
            // On deep levels only empty ones may be left. Directories without children may be exchanged with any.
            let mut childless: Vec<&mut u64> = before
                .iter_mut()
                .zip(&children)
                .filter(|(_, children)| **children == 0)
                .map(|(entries, _)| entries)
                .collect();
            let mut entries: Vec<u64> = childless.iter().map(|entries| **entries).collect();
            holds = enrich(level, &mut entries, wanted, random);
            childless.iter_mut().zip(entries).for_each(|(place, entries)| **place = entries);
        }
        if holds < u128::from(wanted) {
            // What this level cannot hold moves one level down.
            let fits = u64::try_from(holds).unwrap_or(wanted);
            if fits == 0 || levels.len() > DEEPEST {
                return None;
            }
            if levels.len() == depth + 2 {
                levels.push(0);
            }
            levels[depth + 2] += wanted - fits;
            levels[depth + 1] = fits;
            wanted = fits;
        }
        // In proportion to their entries, so that none gets more than it has.
        let until = |entries: u128| (u128::from(wanted) * entries).checked_div(holds).unwrap_or(0) as u64;
        let mut seen = 0u128;
        for &entries in level.iter() {
            let before = until(seen);
            seen += u128::from(entries);
            children.push(until(seen) - before);
        }
        at += size;
        depth += 1;
    }
    Some((pool, children))
}

/// Exchanges directories of a level for larger ones of the rest until it has `wanted` entries, if possible; returns the
/// entries it then has.
fn enrich(level: &mut [u64], rest: &mut [u64], wanted: u64, random: &mut Random) -> u128 {
    let mut holds: u128 = level.iter().map(|&entries| u128::from(entries)).sum();
    if holds >= u128::from(wanted) {
        return holds;
    }
    level.sort_unstable();
    rest.sort_unstable_by(|a, b| b.cmp(a));
    for (at, smaller) in level.iter_mut().enumerate() {
        // The smallest that is enough, or the largest that is left.
        let enough = (u128::from(wanted) - holds).saturating_add(u128::from(*smaller));
        let enough_until = rest.partition_point(|&entries| u128::from(entries) >= enough);
        let Some(larger) = rest.get_mut(if enough_until > at { enough_until - 1 } else { at }) else { break };
        if *larger <= *smaller {
            break;
        }
        holds += u128::from(*larger - *smaller);
        std::mem::swap(smaller, larger);
        if holds >= u128::from(wanted) {
            break;
        }
    }
    random.shuffle(level);
    random.shuffle(rest);
    holds
}

/// Entries and children of each directory where depths are not known: up to half of the entries of a directory are
/// directories, in order, until there are enough; up to all of them where the halves would not suffice.
fn breadth_first(mut pool: Vec<u64>) -> (Vec<u64>, Vec<u64>) {
    let directories = pool.len() as u64;
    let half: u128 = pool.iter().map(|&entries| u128::from(entries.div_ceil(2))).sum();
    let most = |entries: u64| if half + 1 >= u128::from(directories) { entries.div_ceil(2) } else { entries };
    let mut children = Vec::with_capacity(pool.len());
    let (mut placed, mut next_filled) = (1, 0);
    for at in 0..pool.len() {
        // The last open directory must have a child while there are more to come.
        if placed == at as u64 + 1 && placed < directories && pool[at] == 0 {
            next_filled = next_filled.max(at);
            while pool.get(next_filled).is_some_and(|&entries| entries == 0) {
                next_filled += 1;
            }
            pool.swap(at, next_filled.min(directories as usize - 1));
        }
        let some = most(pool[at]).min(directories - placed);
        children.push(some);
        placed += some;
    }
    (pool, children)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distribution::distance;
    use proptest::prelude::*;

    fn of(values: &[(u64, u64)]) -> Distribution {
        let mut distribution = Distribution::default();
        values.iter().for_each(|&(value, count)| distribution.add(value, count));
        distribution
    }

    #[track_caller]
    fn is_a_tree(tree: &Tree, files: u64, directories: u64) {
        assert_eq!((tree.files(), tree.directories()), (files, directories));
        let mut next_child = 1;
        for directory in 0..directories {
            let children = tree.children_of(directory);
            assert_eq!(children.start, next_child);
            assert!(children.is_empty() || children.start > directory, "a child comes after its parent");
            next_child = children.end;
        }
        assert_eq!(next_child, directories);
        assert!((0..files).all(|file| tree.files_of(tree.directory_of(file)).contains(&file)));
        assert!(
            (1..directories)
                .all(|directory| (0..directory).any(|parent| tree.children_of(parent).contains(&directory)))
        );
        assert_eq!(tree.levels.iter().sum::<u64>(), directories);
        assert_eq!(tree.entries().total(), u128::from(files + directories - 1));
    }

    proptest! {
        #[test]
        fn every_measured_tree_is_one(
            entries in proptest::collection::vec((prop_oneof![Just(0u64), 0u64..5, 0u64..300], 1u64..30), 1..20),
            depths in proptest::option::of(proptest::collection::vec((0u64..12, 1u64..30), 1..10)),
            files in 1u64..600,
            directories in 1u64..200,
            seed in any::<u64>(),
        ) {
            let depths = depths.map(|depths| of(&depths));
            let tree = Tree::measured(&of(&entries), depths.as_ref(), files, directories, seed);
            is_a_tree(&tree, files, directories);
            prop_assert_eq!(&tree, &Tree::measured(&of(&entries), depths.as_ref(), files, directories, seed));
        }

        #[test]
        fn every_even_tree_is_one(
            directory_files in 1u64..40,
            files in 1u64..2000,
            depths in proptest::option::of(proptest::collection::vec((0u64..30, 1u64..30), 1..10)),
        ) {
            let depths = depths.map(|depths| of(&depths));
            let tree = Tree::even(directory_files, depths.as_ref(), files);
            is_a_tree(&tree, files, tree.directories());
            prop_assert!(tree.directories() == files.div_ceil(directory_files) || depths.is_some());
        }
    }

    /// A small tree modelled on a large one has levels of one directory, which neither rounding nor empty ones may
    /// remove.
    #[test]
    fn narrow_levels_are_kept_in_a_small_tree() {
        let entries = of(&[(0, 3000), (1, 2500), (3, 3000), (8, 2000), (40, 900), (500, 30)]);
        let depths =
            of(&[(0, 1), (1, 12), (2, 1200), (3, 3900), (4, 3000), (5, 1500), (6, 900), (7, 500), (8, 250), (9, 60)]);
        for seed in 0..40 {
            let tree = Tree::measured(&entries, Some(&depths), 2000, 250, seed);
            is_a_tree(&tree, 2000, 250);
            let found = distance(&depths, &tree.depths()).by_count;
            assert!(found < 0.02, "{found} of seed {seed}");
        }
    }

    #[test]
    fn a_tree_like_a_measured_one_has_its_entries_and_depths() {
        let entries = of(&[(0, 300), (1, 2500), (3, 3000), (8, 2000), (40, 900), (500, 30), (3000, 2)]);
        let depths = of(&[(0, 1), (1, 12), (2, 120), (3, 900), (4, 3000), (5, 3500), (6, 1199)]);
        let whole = entries.total() as u64;
        let directories = entries.count() as u64;
        // 6 per cent of the entries were symlinks.
        let files = (whole - directories + 1) * 94 / 100;
        let tree = Tree::measured(&entries, Some(&depths), files, directories, 1);
        is_a_tree(&tree, files, directories);
        let found = distance(&entries, &tree.entries());
        assert!(found.by_count < 0.005, "{found:?}");
        assert!(distance(&depths, &tree.depths()).by_count < 0.002);
        // A tenth of it.
        let tree = Tree::measured(&entries, Some(&depths), files / 10, directories / 10, 1);
        assert!(distance(&entries, &tree.entries()).by_count < 0.01);
        assert!(distance(&depths, &tree.depths()).by_count < 0.01);
    }

    #[test]
    fn a_table_without_a_tree_gets_a_hundred_of_each() {
        let tree = Tree::even(100, None, 100_000);
        assert_eq!((tree.directories(), tree.levels.clone()), (1000, vec![1, 100, 899]));
        assert_eq!(tree.files_of(5), 500..600);
        assert_eq!(tree.entries_before(1), 200);
        assert_eq!(Tree::even(100, Some(&of(&[(0, 1)])), 5000).directories(), 1, "all in one directory");
    }
}
