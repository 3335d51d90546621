//! The tree of directories in a survey file: `tree` of docs/SCHEMA.md, written and read.

use serde::{Deserialize, Serialize};

use super::places::{Ranking, Tally};
use super::tree::{DirectoryTree, Hues, KEPT, Sums, TreeRow, number_text};
use super::tree_kinds::Kind;
use crate::units::{escape, unescape};

/// Bytes of a name on any file system (`FUSE_NAME_MAX` in Linux), and more than a survey has.
const LONGEST_NAME_BYTES: usize = 1024;

/// The tree as it is stored.
#[derive(Serialize, Deserialize)]
pub(super) struct TreeRecord {
    /// Directories kept of each ranking.
    limit: usize,
    /// Names of the kinds, in the order of `kind_bytes`.
    kinds: Vec<String>,
    nodes: Vec<NodeRecord>,
}

#[derive(Serialize, Deserialize)]
struct NodeRecord {
    /// Position in `nodes` of the directory above it, which comes before it; `None` for a root.
    parent: Option<usize>,
    /// Escaped; the whole path of a root; `None` when anonymous.
    name: Option<String>,
    depth: u32,
    subtree: SumsRecord,
    own: SumsRecord,
}

#[derive(Serialize, Deserialize)]
struct SumsRecord {
    files: u64,
    small_files: u64,
    size_bytes: u128,
    small_size_bytes: u128,
    allocated_bytes: u128,
    overhead_bytes: u128,
    directories: u64,
    /// Sum of size and day, multiplied.
    day_bytes: u128,
    /// Lowest and highest owner; none without files, and in anonymous surveys.
    #[serde(default)]
    uids: Option<[u32; 2]>,
    kind_bytes: Vec<u64>,
}

impl SumsRecord {
    fn of(sums: &Sums, anonymous: bool) -> SumsRecord {
        let Tally { files, small_files, size_bytes, small_size_bytes, allocated_bytes, overhead_bytes, directories } =
            sums.tally;
        let Hues { day_bytes, uids, kind_bytes } = sums.hues;
        let used = kind_bytes.iter().rposition(|&bytes| bytes > 0).map_or(0, |last| last + 1);
        SumsRecord {
            files,
            small_files,
            size_bytes,
            small_size_bytes,
            allocated_bytes,
            overhead_bytes,
            directories,
            day_bytes,
            uids: (!anonymous && uids[0] <= uids[1]).then_some(uids),
            kind_bytes: kind_bytes[..used].to_vec(),
        }
    }

    fn sums(&self, most: u64, most_bytes: u128) -> Result<Sums, String> {
        let counts = [self.files, self.small_files, self.directories];
        let bytes = [self.size_bytes, self.small_size_bytes, self.allocated_bytes, self.overhead_bytes];
        if counts.iter().any(|&count| count > most) || bytes.iter().any(|&sum| sum > most_bytes) {
            return Err("the counts in a directory of the tree are too large".to_owned());
        }
        let mut hues = Hues { day_bytes: self.day_bytes, ..Hues::default() };
        if let Some([low, high]) = self.uids {
            hues.uids = [low.min(high), high.max(low)];
        }
        hues.kind_bytes.iter_mut().zip(&self.kind_bytes).for_each(|(to, &from)| *to = from);
        let tally = Tally {
            files: self.files,
            small_files: self.small_files,
            size_bytes: self.size_bytes,
            small_size_bytes: self.small_size_bytes,
            allocated_bytes: self.allocated_bytes,
            overhead_bytes: self.overhead_bytes,
            directories: self.directories,
        };
        Ok(Sums { tally, hues })
    }
}

impl TreeRecord {
    /// What is stored of a tree; if `anonymous`, without names and owners.
    pub(super) fn of(tree: &DirectoryTree, anonymous: bool) -> TreeRecord {
        let nodes = tree.nodes();
        let node = |node: &super::tree::TreeNode<'_>| NodeRecord {
            parent: node.parent,
            name: (!anonymous).then(|| escape(node.name)),
            depth: node.row.depth,
            subtree: SumsRecord::of(&node.row.subtree, anonymous),
            own: SumsRecord::of(&node.row.own, anonymous),
        };
        TreeRecord {
            limit: KEPT,
            kinds: Kind::ALL.map(|kind| kind.name().to_owned()).to_vec(),
            nodes: nodes.iter().map(node).collect(),
        }
    }

    /// The tree that was stored, if it is one; counts are at most `most`, sums of bytes `most_bytes`.
    pub(super) fn tree(&self, most: u64, most_bytes: u128) -> Result<DirectoryTree, String> {
        if self.nodes.len() > Ranking::ALL.len() * KEPT {
            return Err("the tree has more directories than any survey keeps".to_owned());
        }
        let mut nodes = Vec::with_capacity(self.nodes.len());
        let mut left: Vec<[u128; 6]> = Vec::with_capacity(self.nodes.len());
        for (at, node) in self.nodes.iter().enumerate() {
            let (own, subtree) = (node.own.sums(most, most_bytes)?, node.subtree.sums(most, most_bytes)?);
            let mut rest = figures(&subtree.tally);
            take(&mut rest, &figures(&own.tally))?;
            left.push(rest);
            if let Some(parent) = node.parent {
                let above = left.get_mut(parent).filter(|_| parent < at);
                take(above.ok_or("a directory of the tree is above itself")?, &figures(&subtree.tally))?;
            }
            let name = match &node.name {
                // As in the tree that was stored: ties in its rankings are settled by the order of names.
                None => number_text(at).into_bytes(),
                Some(name) => unescape(name).ok_or("a name of the tree is not escaped correctly")?,
            };
            let is_name = !name.is_empty() && !name.contains(&b'/') && name.len() <= LONGEST_NAME_BYTES;
            if node.parent.is_some() && !is_name {
                return Err("a name of the tree is not that of a directory".to_owned());
            }
            nodes.push((node.parent, name, TreeRow { depth: node.depth, own, subtree }));
        }
        let mut tree = DirectoryTree::from_nodes(nodes);
        if self.nodes.iter().any(|node| node.name.is_none()) {
            tree.anonymise();
        }
        Ok(tree)
    }
}

fn figures(tally: &Tally) -> [u128; 6] {
    let Tally { files, small_files, size_bytes, small_size_bytes, allocated_bytes, overhead_bytes, .. } = *tally;
    [files.into(), small_files.into(), size_bytes, small_size_bytes, allocated_bytes, overhead_bytes]
}

/// Takes what a part holds from what is left of the whole.
fn take(left: &mut [u128; 6], part: &[u128; 6]) -> Result<(), String> {
    for (left, part) in left.iter_mut().zip(part) {
        *left = left.checked_sub(*part).ok_or("a directory of the tree holds less than its parts")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record of a root with these directories in it, one file each.
    fn record(names: impl IntoIterator<Item = String>) -> TreeRecord {
        let sums =
            |files| SumsRecord::of(&Sums { tally: Tally { files, ..Tally::default() }, ..Sums::default() }, false);
        let mut nodes = vec![NodeRecord {
            parent: None,
            name: Some("/r".to_owned()),
            depth: 0,
            subtree: sums(1 << 20),
            own: sums(0),
        }];
        nodes.extend(names.into_iter().map(|name| NodeRecord {
            parent: Some(0),
            name: Some(name),
            depth: 1,
            subtree: sums(1),
            own: sums(1),
        }));
        TreeRecord { limit: KEPT, kinds: Vec::new(), nodes }
    }

    #[test]
    fn what_no_survey_keeps_is_refused() {
        let read = |names: Vec<String>| record(names).tree(1 << 53, 1 << 100).map(|tree| tree.nodes().len());
        assert_eq!(read(vec!["n".repeat(LONGEST_NAME_BYTES)]), Ok(2));
        for wrong in [String::new(), "a/b".to_owned(), "n".repeat(LONGEST_NAME_BYTES + 1)] {
            assert!(read(vec![wrong]).unwrap_err().contains("is not that of a directory"));
        }
        let most = Ranking::ALL.len() * KEPT;
        assert!(read((1..most).map(|number| number.to_string()).collect()).is_ok());
        assert!(read((0..most).map(|number| number.to_string()).collect()).unwrap_err().contains("more directories"));
    }

    #[test]
    fn a_tree_without_names_is_read_back_whole_though_its_directories_tie() {
        let read = |record: &TreeRecord| record.tree(1 << 53, 1 << 100).unwrap();
        // Half of them come first by files, half by bytes, and the rankings keep some of each.
        let mut record = record((1..Ranking::ALL.len() * KEPT).map(|number| number.to_string()));
        let sums = |files, size_bytes| {
            let tally = Tally { files, size_bytes, ..Tally::default() };
            SumsRecord::of(&Sums { tally, ..Sums::default() }, false)
        };
        record.nodes[0].subtree = sums(1 << 20, 1 << 40);
        for (at, node) in record.nodes.iter_mut().enumerate().skip(1) {
            let figures = if at % 2 == 0 { (2, 0) } else { (1, 100) };
            (node.subtree, node.own) = (sums(figures.0, figures.1), sums(figures.0, figures.1));
        }
        let mut tree = read(&record);
        tree.anonymise();
        let stored = TreeRecord::of(&tree, true);
        assert!(stored.nodes.len() > KEPT, "more than one ranking keeps is there");
        assert_eq!(read(&stored).nodes().len(), stored.nodes.len());
    }
}
