//! Division of a walk among processes that do not communicate: each decides by itself what is its part.
//!
//! Down to a depth that all of them share, every process lists every directory, but only one counts its entries; below
//! it, each directory is walked, with everything in it, by one. Which one follows from a hash of the path, as the root
//! was specified. The depth is the smallest at which there are many more directories than processes, so that they
//! divide evenly; processes that see the same tree find the same. One huge directory below that depth stays with one.

use std::fs::read_dir;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

/// Directories for each process at the depth of the division, if the tree has so many.
const DIRECTORIES_EACH: usize = 64;
/// The depth of a division is at most this.
const DEEPEST: u32 = 16;
/// Largest number of parts.
pub(crate) const MOST_PARTS: u32 = 1 << 14;

/// One of the parts of a divided walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Division {
    /// Number of the part, below `count`.
    pub index: u32,
    /// Number of parts.
    pub count: u32,
    /// Depth from which on directories are walked whole by one process; the roots are at 0.
    pub depth: u32,
}

impl Division {
    /// Whether it can be one.
    pub(crate) fn is_valid(&self) -> bool {
        self.index < self.count && self.count <= MOST_PARTS && self.depth <= DEEPEST
    }

    /// Whether this part has what is at `path`: the entries of a directory, the tree below it, or a file that is a
    /// root.
    pub(crate) fn has(&self, path: &[u8]) -> bool {
        XxHash3_64::oneshot(path) % u64::from(self.count) == u64::from(self.index)
    }

    /// Whether directories at a depth are opened only by the process that has them.
    pub(super) fn is_divided_at(&self, depth: u32) -> bool {
        depth == self.depth
    }

    /// Whether directories at a depth are listed by all.
    pub(super) fn is_above(&self, depth: u32) -> bool {
        depth < self.depth
    }
}

/// The depth at which `count` processes divide the trees below `roots`.
pub(crate) fn depth_for(roots: &[PathBuf], count: u32) -> u32 {
    let wanted = DIRECTORIES_EACH * count as usize;
    let mut level: Vec<PathBuf> = roots.iter().filter(|root| root.is_dir()).cloned().collect();
    for depth in 0..DEEPEST {
        if level.len() >= wanted || level.is_empty() {
            return depth;
        }
        let mut next = Vec::new();
        for directory in level {
            let entries = read_dir(&directory).into_iter().flatten().flatten();
            let below = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            // More are not needed: the next level is then the one.
            next.extend(below.map(|entry| entry.path()).take(wanted.saturating_sub(next.len())));
        }
        level = next;
    }
    DEEPEST
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_path_is_in_one_part_and_parts_are_about_equal() {
        for count in [1, 2, 7, 64] {
            let mut parts = vec![0; count as usize];
            for path in 0..6400u32 {
                let path = format!("/data/{path}");
                let mut having = (0..count).filter(|&index| Division { index, count, depth: 1 }.has(path.as_bytes()));
                parts[having.next().unwrap() as usize] += 1;
                assert_eq!(having.next(), None);
            }
            let mean = 6400 / count;
            assert!(parts.iter().all(|&part| part > mean / 2 && part < mean * 2), "{parts:?}");
        }
    }

    #[test]
    fn the_depth_is_where_there_are_enough_directories() {
        let tree = tempfile::tempdir().unwrap();
        let roots = [tree.path().to_owned()];
        // No level has enough: the one below the last.
        assert_eq!(depth_for(&roots, 2), 1);
        for directory in 0..127 {
            std::fs::create_dir_all(tree.path().join(format!("only/{directory}/below"))).unwrap();
        }
        assert_eq!(depth_for(&roots, 1), 2);
        assert_eq!(depth_for(&roots, 2), 4);
        std::fs::create_dir_all(tree.path().join("only/127")).unwrap();
        assert_eq!(depth_for(&roots, 2), 2);
        let file = tree.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert_eq!(depth_for(&[file], 2), 0);
    }
}
