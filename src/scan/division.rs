//! Division of a walk among processes that do not communicate: each decides by itself what is its part.
//!
//! Down to a depth that all of them share, every process lists every directory, but only one counts its entries; below
//! it, each directory is walked, with everything in it, by one. Which one follows from a hash of the path, as the root
//! was specified. The depth is the smallest at which there are many more directories than processes, so that they
//! divide evenly; processes that see the same tree find the same. One huge directory below that depth stays with one.

use std::collections::HashSet;
use std::ffi::CString;
use std::fs::{metadata, read_dir, symlink_metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::CWD;
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

use super::mounts::is_pseudo_file_system;
use super::{WalkOptions, join};
use crate::mounts::mounts;

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

/// The depth at which `count` processes divide a walk. Directories that it leaves out do not count: they can differ
/// between the moments at which the processes begin (`/proc`), or be on a server that does not answer.
pub(crate) fn depth_for(walk: &WalkOptions, count: u32) -> u32 {
    let wanted = DIRECTORIES_EACH * count as usize;
    let device = |path: &Path| symlink_metadata(path).ok().map(|found| found.dev());
    // So that no directory has to be asked what it is on.
    let points: HashSet<PathBuf> = mounts().unwrap_or_default().into_iter().map(|mount| mount.point).collect();
    let is_pseudo = |real: &Path| {
        let path = CString::new(real.as_os_str().as_bytes());
        points.contains(real) && path.is_ok_and(|path| is_pseudo_file_system(CWD, &path) == Ok(true))
    };
    // With the path below the root, and the device that the walk stays on.
    let root = |root: &PathBuf| {
        let real = root.canonicalize().unwrap_or_else(|_| root.clone());
        let found = metadata(&real).ok().filter(|found| found.is_dir())?;
        Some((real, Vec::new(), found.dev()))
    };
    let mut level: Vec<(PathBuf, Vec<u8>, u64)> = walk.roots.iter().filter_map(root).collect();
    for depth in 0..DEEPEST {
        if level.len() >= wanted || level.is_empty() {
            return depth;
        }
        let mut next = Vec::new();
        for (directory, below, of_root) in level {
            for entry in read_dir(&directory).into_iter().flatten().flatten() {
                // With as many as are wanted, the next round ends the search.
                if next.len() >= wanted {
                    break;
                }
                let (name, path) = (entry.file_name(), entry.path());
                let is_walked = entry.file_type().is_ok_and(|kind| kind.is_dir())
                    && !walk.exclude.matches(&below, name.as_bytes())
                    && !walk.skips_as_snapshot(name.as_bytes())
                    && (!walk.one_file_system || device(&path) == Some(of_root))
                    && !is_pseudo(&path);
                if is_walked {
                    next.push((path, join(below.clone(), name.as_bytes()), of_root));
                }
            }
        }
        level = next;
    }
    DEEPEST
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan::exclude::Exclude;

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
        let walk = |root: &Path, excluded: &[&str]| WalkOptions {
            roots: vec![root.to_owned()],
            threads: 1,
            one_file_system: true,
            include_snapshots: false,
            exclude: Exclude::new(&excluded.iter().map(|&glob| glob.to_owned()).collect::<Vec<_>>()).unwrap(),
            division: None,
        };
        let depth = |count| depth_for(&walk(tree.path(), &[]), count);
        // No level has enough: the one below the last.
        assert_eq!(depth(2), 1);
        for directory in 0..127 {
            std::fs::create_dir_all(tree.path().join(format!("only/{directory}/below"))).unwrap();
        }
        assert_eq!((depth(1), depth(2)), (2, 4));
        std::fs::create_dir_all(tree.path().join("only/127")).unwrap();
        assert_eq!(depth(2), 2);
        // What is left out does not count.
        assert_eq!(depth_for(&walk(tree.path(), &["12?"]), 2), 4);
        let file = tree.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert_eq!(depth_for(&walk(&file, &[]), 2), 0);
        // The processes in /proc come and go.
        let all_but_proc = ["[!p]*", "p", "p[!r]*", "pr", "pr[!o]*", "pro", "pro[!c]*", "proc?*"];
        let root = WalkOptions { one_file_system: false, ..walk(Path::new("/"), &all_but_proc) };
        assert_eq!(depth_for(&root, 1), 1);
    }
}
