//! The tree of directories that hold most, for a picture: where the bytes, the files, the small files and the overhead
//! are, and of what age, owner and kind they are.
//!
//! Bounded memory. Of each [`Ranking`], the [`KEPT`] leading directories with everything below them stay. A directory
//! never holds more than the one above it, and where they are equal the one above comes first; so with a directory all
//! that lie above it stay, and every sum is exact: what a directory holds beyond its own files and the children that
//! are shown is in the others. Sums do not depend on the order of arrival, so neither does the tree. Trees of disjoint
//! surveys merge exactly; a path that is in both is added, and the sums of its roots stay exact.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::places::{Extension, Packed, Ranking, Tally};
use super::tree_kinds::Kind;
use crate::scan::{self, Stat};

/// Directories that stay of each ranking.
pub const KEPT: usize = 250;
/// Directories that may be held at a time: more than four times [`KEPT`], so that few additions have to sort.
const HELD: usize = 16 * KEPT;

/// What a file adds to the colours of its directory, besides its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traits {
    /// Its owner.
    pub uid: u32,
    /// Day of the last change of its content, see `Stat::modified_day`.
    pub day: u16,
}

impl Traits {
    /// Those of a file.
    #[inline]
    pub fn of(stat: &Stat) -> Traits {
        Traits { uid: stat.uid, day: stat.modified_day() }
    }
}

/// Of what age, owner and kind the files of a directory are. Sums stay at the largest number rather than overflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Hues {
    /// Sum of size and [`Traits::day`], multiplied, of every file.
    pub day_bytes: u128,
    /// The lowest and the highest owner; the lowest is above the highest if there are no files.
    pub uids: [u32; 2],
    /// Bytes by [`Kind`].
    pub kind_bytes: [u64; Kind::ALL.len()],
}

impl Default for Hues {
    fn default() -> Hues {
        Hues { day_bytes: 0, uids: [u32::MAX, 0], kind_bytes: [0; Kind::ALL.len()] }
    }
}

impl Hues {
    /// Adds a file.
    #[inline]
    pub fn add_file(&mut self, size_bytes: u64, traits: Traits, extension: Extension) {
        self.day_bytes = self.day_bytes.saturating_add(u128::from(size_bytes) * u128::from(traits.day));
        self.uids = [self.uids[0].min(traits.uid), self.uids[1].max(traits.uid)];
        let bytes = &mut self.kind_bytes[Kind::of(extension) as usize];
        *bytes = bytes.saturating_add(size_bytes);
    }

    fn add(&mut self, other: &Hues) {
        self.day_bytes = self.day_bytes.saturating_add(other.day_bytes);
        self.uids = [self.uids[0].min(other.uids[0]), self.uids[1].max(other.uids[1])];
        for (mine, theirs) in self.kind_bytes.iter_mut().zip(other.kind_bytes) {
            *mine = mine.saturating_add(theirs);
        }
    }
}

/// Everything that is summed over the files of a directory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Sums {
    /// How many and how large.
    pub tally: Tally,
    /// Of what age, owner and kind.
    pub hues: Hues,
}

impl scan::Tally for Sums {
    fn add(&mut self, other: &Sums) {
        scan::Tally::add(&mut self.tally, &other.tally);
        self.hues.add(&other.hues);
    }
}

impl Sums {
    /// Those of one file.
    #[inline]
    pub fn of_file(tally: Tally, size_bytes: u64, traits: Traits, extension: Extension) -> Sums {
        let mut sums = Sums { tally, hues: Hues::default() };
        sums.hues.add_file(size_bytes, traits, extension);
        sums
    }
}

/// Hues in less than half the space, where all sums are small, as in nearly every directory.
#[derive(Debug, Clone, PartialEq, Eq)]
enum PackedHues {
    Small(u64, [u32; 2], [u32; Kind::ALL.len()]),
    Large(Box<Hues>),
}

/// Sums in less than half the space, as in nearly every directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackedSums {
    tally: Packed,
    hues: PackedHues,
}

impl Default for PackedSums {
    fn default() -> PackedSums {
        PackedSums::from(Sums::default())
    }
}

impl From<Sums> for PackedSums {
    fn from(sums: Sums) -> PackedSums {
        let hues = sums.hues;
        let small = || {
            let mut kinds = [0u32; Kind::ALL.len()];
            for (to, from) in kinds.iter_mut().zip(hues.kind_bytes) {
                *to = from.try_into().ok()?;
            }
            Some(PackedHues::Small(hues.day_bytes.try_into().ok()?, hues.uids, kinds))
        };
        let hues = small().unwrap_or_else(|| PackedHues::Large(Box::new(hues)));
        PackedSums { tally: sums.tally.into(), hues }
    }
}

impl From<&PackedSums> for Sums {
    fn from(packed: &PackedSums) -> Sums {
        let hues = match &packed.hues {
            PackedHues::Small(day_bytes, uids, kinds) => {
                Hues { day_bytes: (*day_bytes).into(), uids: *uids, kind_bytes: kinds.map(u64::from) }
            }
            PackedHues::Large(hues) => **hues,
        };
        Sums { tally: Tally::from(&packed.tally), hues }
    }
}

/// A directory of the tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeRow {
    /// How far below its root.
    pub depth: u32,
    /// Its own files.
    pub own: Sums,
    /// With everything below it.
    pub subtree: Sums,
}

impl TreeRow {
    fn without_owners(&self) -> TreeRow {
        let mut row = self.clone();
        [&mut row.own, &mut row.subtree].into_iter().for_each(|sums| sums.hues.uids = Hues::default().uids);
        row
    }
}

/// The directories that hold most, by path.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectoryTree {
    rows: BTreeMap<Vec<u8>, TreeRow>,
    /// For each ranking, a figure below which a directory will not stay.
    least: [u128; 4],
}

/// A directory of the tree with its place in it.
#[derive(Debug, Clone, Copy)]
pub struct TreeNode<'t> {
    /// Position of the directory above it; `None` for a root.
    pub parent: Option<usize>,
    /// Its name; the whole path of a root.
    pub name: &'t [u8],
    /// Its sums.
    pub row: &'t TreeRow,
}

impl DirectoryTree {
    /// Considers a directory, each once; calls `path` only if it may stay.
    pub fn offer(&mut self, row: TreeRow, path: impl FnOnce() -> Vec<u8>) {
        // All above it hold at least as much and come before it. Deep chains have long paths.
        if row.depth as usize >= KEPT {
            return;
        }
        let figure = |ranking: Ranking| ranking.figure(&row.subtree.tally);
        if Ranking::ALL
            .into_iter()
            .any(|ranking| figure(ranking) > 0 && figure(ranking) >= self.least[ranking as usize])
        {
            self.rows.insert(path(), row);
            if self.rows.len() > HELD {
                self.settle();
            }
        }
    }

    /// Drops what does not stay.
    pub fn settle(&mut self) {
        let mut stay: Vec<bool> = vec![false; self.rows.len()];
        for ranking in Ranking::ALL {
            let figures = self.rows.values().map(|row| ranking.figure(&row.subtree.tally));
            let mut ranked: Vec<(u128, usize)> = figures.zip(0..).filter(|&(figure, _)| figure > 0).collect();
            // Rows are in the order of their paths.
            ranked.sort_unstable_by_key(|&(figure, at)| (std::cmp::Reverse(figure), at));
            ranked.truncate(KEPT);
            ranked.iter().for_each(|&(_, at)| stay[at] = true);
            let full = ranked.last().filter(|_| ranked.len() == KEPT);
            self.least[ranking as usize] = full.map_or(0, |&(figure, _)| figure);
        }
        let mut stay = stay.into_iter();
        self.rows.retain(|_, _| stay.next().unwrap_or(false));
    }

    /// Adds the tree of another survey, or of another part of one.
    pub fn merge(&mut self, other: &DirectoryTree) {
        for (path, row) in &other.rows {
            match self.rows.get_mut(path) {
                Some(mine) => {
                    mine.depth = mine.depth.min(row.depth);
                    scan::Tally::add(&mut mine.own, &row.own);
                    scan::Tally::add(&mut mine.subtree, &row.subtree);
                }
                None => {
                    self.rows.insert(path.clone(), row.clone());
                }
            }
        }
        self.settle();
    }

    /// Adds the tree of another survey without names: none of its directories is one of these.
    pub fn merge_anonymous(&mut self, other: &DirectoryTree) {
        let split = |path: &Vec<u8>| {
            let end = path.iter().position(|&byte| byte == b'/').unwrap_or(path.len());
            let number = std::str::from_utf8(&path[..end]).ok().and_then(|text| text.parse::<usize>().ok());
            (number.unwrap_or(0), end)
        };
        // Roots that did not stay have left their numbers behind.
        let before = self.rows.keys().map(|path| split(path).0 + 1).max().unwrap_or(0);
        let apart = other.rows.iter().map(|(path, row)| {
            let (number, end) = split(path);
            ([number_text(number + before).as_bytes(), &path[end..]].concat(), row.clone())
        });
        self.merge(&DirectoryTree { rows: apart.collect(), ..DirectoryTree::default() });
        // The order of merging does not show.
        self.anonymise();
    }

    /// Whether there are no directories.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The directories, each after the one above it.
    pub fn nodes(&self) -> Vec<TreeNode<'_>> {
        let positions: BTreeMap<&[u8], usize> = self.rows.keys().map(Vec::as_slice).zip(0..).collect();
        let node = |(path, row): (&'_ Vec<u8>, &'_ TreeRow)| {
            let slash = path.iter().rposition(|&byte| byte == b'/');
            let (name_at, above) = match slash {
                None => (0, [&b""[..], b""]),
                // The root `/`, and roots given with a slash, keep it.
                Some(slash) => (slash + 1, [&path[..slash], &path[..=slash]]),
            };
            let is_above =
                |candidate: &&[u8]| candidate.len() < path.len() && positions.contains_key(*candidate) && row.depth > 0;
            (name_at, above.into_iter().find(is_above).and_then(|above| positions.get(above).copied()))
        };
        let places: Vec<(usize, Option<usize>)> = self.rows.iter().map(node).collect();
        let placed = self.rows.iter().zip(places);
        placed
            .map(|((path, row), (name_at, parent))| {
                let name = if parent.is_some() { &path[name_at..] } else { &path[..] };
                TreeNode { parent, name, row }
            })
            .collect()
    }

    /// A tree of directories, each with the position of the one above it, which comes before it, and its name.
    pub fn from_nodes(nodes: impl IntoIterator<Item = (Option<usize>, Vec<u8>, TreeRow)>) -> DirectoryTree {
        let (mut tree, mut paths) = (DirectoryTree::default(), Vec::<Vec<u8>>::new());
        for (parent, name, row) in nodes {
            let above = parent.and_then(|parent| paths.get(parent));
            let path = above.map_or_else(|| name.clone(), |above| scan::join(above.clone(), &name));
            paths.push(path.clone());
            tree.rows.insert(path, row);
        }
        tree.settle();
        tree
    }

    /// Changes the path of every directory.
    pub(super) fn map_paths(&mut self, change: &impl Fn(&[u8]) -> Vec<u8>) {
        self.rows = std::mem::take(&mut self.rows).into_iter().map(|(path, row)| (change(&path), row)).collect();
    }

    /// Replaces every name by the rank of the directory in the one above it.
    pub fn anonymise(&mut self) {
        let nodes = self.nodes();
        let mut by_size: Vec<usize> = (0..nodes.len()).collect();
        let rows: Vec<TreeRow> = nodes.iter().map(|node| node.row.without_owners()).collect();
        by_size.sort_by_key(|&at| std::cmp::Reverse((rows[at].subtree, rows[at].own)));
        let (mut ranks, mut children) = (vec![0usize; nodes.len()], BTreeMap::<Option<usize>, usize>::new());
        for at in by_size {
            let rank = children.entry(nodes[at].parent).or_default();
            ranks[at] = *rank;
            *rank += 1;
        }
        let numbered = nodes.iter().zip(ranks).zip(rows);
        let renamed: Vec<_> =
            numbered.map(|((node, rank), row)| (node.parent, number_text(rank).into_bytes(), row)).collect();
        *self = DirectoryTree::from_nodes(renamed);
    }
}

/// A number such that the order of texts is that of numbers.
pub(super) fn number_text(number: usize) -> String {
    format!("{number:08}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sums(files: u64, bytes: u64) -> Sums {
        let tally = Tally { files, size_bytes: bytes.into(), directories: 1, ..Tally::default() };
        Sums::of_file(tally, bytes, Traits { uid: 7, day: 3 }, Extension::of(b"a.rs"))
    }

    /// A tree with two levels: `wide` directories below the root, each with three below it.
    fn offers(root: &str, wide: u64) -> Vec<(Vec<u8>, TreeRow)> {
        let (mut rows, mut whole) = (Vec::new(), Sums::default());
        for number in 0..wide {
            let mut middle = sums(number % 7, number * 11 % 97);
            for leaf in 0..3 {
                let own = sums(number % 5 + leaf, number * 31 % 89);
                scan::Tally::add(&mut middle, &own);
                rows.push((format!("{root}/d{number}/l{leaf}").into_bytes(), TreeRow { depth: 2, own, subtree: own }));
            }
            scan::Tally::add(&mut whole, &middle);
            let own = sums(number % 7, number * 11 % 97);
            rows.push((format!("{root}/d{number}").into_bytes(), TreeRow { depth: 1, own, subtree: middle }));
        }
        rows.push((root.as_bytes().to_vec(), TreeRow { depth: 0, own: Sums::default(), subtree: whole }));
        rows
    }

    fn tree<'r>(rows: impl IntoIterator<Item = &'r (Vec<u8>, TreeRow)>) -> DirectoryTree {
        let mut tree = DirectoryTree::default();
        rows.into_iter().for_each(|(path, row)| tree.offer(row.clone(), || path.clone()));
        tree.settle();
        tree
    }

    #[test]
    fn a_tree_keeps_the_largest_and_all_above_them() {
        let rows = offers("/r", 3000);
        let kept = tree(&rows);
        let nodes = kept.nodes();
        assert!((KEPT..=4 * KEPT).contains(&nodes.len()), "{}", nodes.len());
        assert_eq!(nodes.iter().filter(|node| node.parent.is_none()).count(), 1);
        let largest =
            rows.iter().map(|(_, row)| (row.subtree.tally.size_bytes, row.depth)).filter(|row| row.1 == 1).max();
        let shown = nodes.iter().filter(|node| node.row.depth == 1).map(|node| node.row.subtree.tally.size_bytes).max();
        assert_eq!(shown, largest.map(|(bytes, _)| bytes));
        for (at, node) in nodes.iter().enumerate() {
            assert!(node.parent.is_none_or(|parent| parent < at && nodes[parent].row.depth + 1 == node.row.depth));
            let below: u128 =
                nodes.iter().filter(|n| n.parent == Some(at)).map(|n| n.row.subtree.tally.size_bytes).sum();
            assert!(below + node.row.own.tally.size_bytes <= node.row.subtree.tally.size_bytes);
        }
    }

    #[test]
    fn names_go_and_the_shape_stays() {
        // Twice as many are fewer than stay of each ranking.
        let mut anonymous = tree(&offers("/secret", 30));
        let before = anonymous.clone();
        anonymous.anonymise();
        assert_eq!(anonymous.nodes().len(), before.nodes().len());
        assert!(anonymous.nodes().iter().all(|node| node.name.iter().all(u8::is_ascii_digit)));
        let mut again = anonymous.clone();
        again.anonymise();
        assert_eq!(again, anonymous);
        let mut both = anonymous.clone();
        both.merge_anonymous(&anonymous);
        assert_eq!(both.nodes().iter().filter(|node| node.parent.is_none()).count(), 2);
        assert_eq!(both.nodes().len(), 2 * anonymous.nodes().len());
    }

    #[test]
    fn of_a_deep_chain_no_long_paths_are_needed() {
        let mut kept = DirectoryTree::default();
        let deepest = 3 * KEPT as u32;
        for depth in (0..deepest).rev() {
            let below = u64::from(deepest - depth);
            let row = TreeRow { depth, own: sums(1, 1), subtree: sums(below, below) };
            kept.offer(row, || {
                assert!((depth as usize) < KEPT, "the path of a directory that cannot stay");
                ["d"; KEPT][..=depth as usize].join("/").into_bytes()
            });
        }
        kept.settle();
        assert_eq!(kept.nodes().len(), KEPT);
    }

    #[test]
    fn roots_may_have_a_slash() {
        let row = |depth| TreeRow { depth, own: sums(1, 1), subtree: sums(2, 2) };
        let kept = tree(&[(b"/".to_vec(), row(0)), (b"/usr".to_vec(), row(1)), (b"/usr/lib".to_vec(), row(2))]);
        let parents: Vec<_> = kept.nodes().iter().map(|node| (node.parent, node.name.to_vec())).collect();
        assert_eq!(parents, [(None, b"/".to_vec()), (Some(0), b"usr".to_vec()), (Some(1), b"lib".to_vec())]);
        let stored = kept.nodes().iter().map(|n| (n.parent, n.name.to_vec(), n.row.clone())).collect::<Vec<_>>();
        assert_eq!(DirectoryTree::from_nodes(stored), kept);
    }

    #[test]
    fn packed_sums_come_back() {
        let mut large = sums(3, u64::MAX);
        scan::Tally::add(&mut large, &sums(4, u64::MAX));
        for sums in [Sums::default(), sums(3, 1000), large] {
            assert_eq!(Sums::from(&PackedSums::from(sums)), sums);
        }
        assert_eq!(large.hues.kind_bytes[0], u64::MAX);
    }

    /// A tree without names of one root, whose number is that, as if others had not stayed.
    fn unnamed(number: usize, wide: u64) -> DirectoryTree {
        let mut tree = tree(&offers("/secret", wide));
        tree.anonymise();
        let nodes = tree.nodes();
        let renamed = nodes.iter().map(|node| {
            let name = if node.parent.is_none() { number_text(number).into_bytes() } else { node.name.to_vec() };
            (node.parent, name, node.row.clone())
        });
        DirectoryTree::from_nodes(renamed.collect::<Vec<_>>())
    }

    proptest! {
        #[test]
        fn the_order_of_arrival_and_the_parts_do_not_matter(order in Just((0..4001usize).collect::<Vec<_>>()).prop_shuffle()) {
            let rows = offers("/r", 1000);
            let whole = tree(&rows);
            prop_assert_eq!(&tree(order.iter().map(|&at| &rows[at])), &whole);
            let mut merged = tree(order[..2000].iter().map(|&at| &rows[at]));
            merged.merge(&tree(order[2000..].iter().map(|&at| &rows[at])));
            prop_assert_eq!(&merged, &whole);
        }

        #[test]
        fn trees_without_names_are_added_in_any_order(order in Just((0..5usize).collect::<Vec<_>>()).prop_shuffle(), cut in 1..5usize) {
            let trees = [(0, 5), (3, 6), (2, 7), (1, 4), (0, 8)].map(|(number, wide)| unnamed(number, wide));
            let sum = |trees: &[&DirectoryTree]| {
                let mut sum = trees[0].clone();
                trees[1..].iter().for_each(|tree| sum.merge_anonymous(tree));
                sum
            };
            let shuffled: Vec<&DirectoryTree> = order.iter().map(|&at| &trees[at]).collect();
            let merged = sum(&shuffled);
            let roots = merged.nodes().iter().filter(|node| node.parent.is_none()).count();
            prop_assert_eq!((roots, merged.nodes().len()), (5, trees.iter().map(|tree| tree.nodes().len()).sum()));
            prop_assert_eq!(&merged, &sum(&trees.iter().collect::<Vec<_>>()));
            prop_assert_eq!(&merged, &sum(&[&sum(&shuffled[..cut]), &sum(&shuffled[cut..])]));
        }
    }
}
