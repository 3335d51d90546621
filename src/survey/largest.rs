//! The largest single files, in bounded memory.
//!
//! Files of equal size are ranked by name and then by path: the result depends neither on the order in which files are
//! found nor on how. An inode scan knows paths only at its end, so until then `Unlocated` has the positions of
//! directories, and more files of one size and name than the list may have, of which paths decide.

use std::cmp::Ordering;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde::{Deserialize, Serialize};

use crate::locks::lock;

/// Files of one size and name beyond the limit, at most: of more, those in the directories that were found first stay.
const MOST_TIED: usize = 4096;

/// A file, as it counts at one name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LargeFile {
    /// Its path; `None` when anonymous.
    pub path: Option<Vec<u8>>,
    /// Its size.
    pub size_bytes: u64,
    /// Its allocated bytes.
    pub allocated_bytes: u64,
}

impl LargeFile {
    fn name(&self) -> Option<&[u8]> {
        self.path.as_ref().and_then(|path| path.rsplit(|&byte| byte == b'/').next())
    }

    /// The larger one first.
    fn compare(&self, other: &LargeFile) -> Ordering {
        let by_size = other.size_bytes.cmp(&self.size_bytes);
        let by_name = || (self.name(), &self.path).cmp(&(other.name(), &other.path));
        by_size.then_with(by_name).then_with(|| self.allocated_bytes.cmp(&other.allocated_bytes))
    }
}

/// The largest files, at most a limit of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LargestFiles {
    limit: usize,
    rows: Vec<LargeFile>,
}

impl LargestFiles {
    /// A list of at most `limit` files.
    pub fn new(limit: usize) -> LargestFiles {
        LargestFiles { limit, rows: Vec::new() }
    }

    /// By falling size.
    pub fn rows(&self) -> &[LargeFile] {
        &self.rows
    }

    /// Whether a file of this size may enter.
    #[inline]
    pub(super) fn may_enter(&self, size_bytes: u64) -> bool {
        self.limit > 0
            && size_bytes > 0
            && (self.rows.len() < self.limit || self.rows.last().is_none_or(|last| size_bytes >= last.size_bytes))
    }

    /// Considers a file.
    pub fn offer(&mut self, file: LargeFile) {
        if self.may_enter(file.size_bytes) {
            let position = self.rows.partition_point(|other| other.compare(&file) == Ordering::Less);
            self.rows.insert(position, file);
            self.rows.truncate(self.limit);
        }
    }

    /// Adds the files of a disjoint tree, up to the shorter limit: beyond it the list would not be exact.
    pub(super) fn merge(&mut self, other: &LargestFiles) {
        self.limit = self.limit.min(other.limit);
        self.rows.truncate(self.limit);
        other.rows.iter().for_each(|file| self.offer(file.clone()));
    }

    /// Changes the path of every file.
    pub(super) fn map_paths(&mut self, change: &impl Fn(&[u8]) -> Vec<u8>) {
        self.rows.iter_mut().for_each(|file| file.path = file.path.as_deref().map(change));
        self.rows.sort_by(LargeFile::compare);
    }

    /// Forgets every name.
    pub(super) fn anonymise(&mut self) {
        self.rows.iter_mut().for_each(|file| file.path = None);
        self.rows.sort_by(LargeFile::compare);
    }
}

/// The largest files of directories of which only positions are known.
#[derive(Debug)]
pub(super) struct Unlocated {
    /// The smallest size that may enter.
    least_bytes: AtomicU64,
    limit: usize,
    /// Positions, and files with only their names as paths.
    rows: Mutex<Vec<(u32, LargeFile)>>,
}

impl Unlocated {
    pub(super) fn new(limit: usize) -> Unlocated {
        Unlocated { least_bytes: AtomicU64::new(1), limit, rows: Mutex::default() }
    }

    /// Considers a file; calls `file` only if it may be among the largest.
    #[inline]
    pub(super) fn offer(&self, position: u32, size_bytes: u64, file: impl FnOnce() -> LargeFile) {
        if self.limit == 0 || size_bytes < self.least_bytes.load(Relaxed) {
            return;
        }
        let row = (position, file());
        let mut rows = lock(&self.rows);
        let at = rows.partition_point(|other| other.1.compare(&row.1).then(other.0.cmp(&row.0)) == Ordering::Less);
        rows.insert(at, row);
        let Some((_, last)) = rows.get(self.limit - 1) else { return };
        self.least_bytes.store(last.size_bytes, Relaxed);
        let key = |file: &LargeFile| (file.size_bytes, file.name().map(<[u8]>::to_vec));
        let last = key(last);
        let tied = rows[self.limit..].iter().take_while(|(_, file)| key(file) == last).count();
        rows.truncate(self.limit + tied.min(MOST_TIED));
    }

    /// The files of a directory, which now has a path.
    pub(super) fn take(&self, position: u32, path: &dyn Fn() -> Vec<u8>) -> Vec<LargeFile> {
        let mut rows = lock(&self.rows);
        if rows.iter().all(|(other, _)| *other != position) {
            return Vec::new();
        }
        let path = path();
        let here = rows.extract_if(.., |(other, _)| *other == position);
        here.map(|(_, file)| {
            let name = file.path.unwrap_or_default();
            LargeFile { path: Some(crate::scan::join(path.clone(), &name)), ..file }
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, size_bytes: u64) -> LargeFile {
        LargeFile { path: Some(path.as_bytes().to_vec()), size_bytes, allocated_bytes: size_bytes }
    }

    fn paths(files: &[LargeFile]) -> Vec<&str> {
        files.iter().filter_map(|file| std::str::from_utf8(file.path.as_ref()?).ok()).collect()
    }

    #[test]
    fn the_largest_stay_in_whatever_order() {
        let files = [file("a/x", 5), file("b/y", 9), file("c/x", 5), file("c", 0), file("d/w", 5)];
        let mut forwards = LargestFiles::new(3);
        files.iter().for_each(|file| forwards.offer(file.clone()));
        let mut backwards = LargestFiles::new(3);
        files.iter().rev().for_each(|file| backwards.offer(file.clone()));
        assert_eq!(forwards, backwards);
        assert_eq!(paths(forwards.rows()), ["b/y", "d/w", "a/x"]);
        let mut both = LargestFiles::new(2);
        both.merge(&forwards);
        assert_eq!(both.rows().len(), 2);
        both.anonymise();
        assert!(both.rows().iter().all(|file| file.path.is_none()));
    }

    #[test]
    fn positions_become_paths_and_ties_wait_for_them() {
        let unlocated = Unlocated::new(2);
        for (position, name, size) in [(7, "x", 5), (8, "y", 9), (7, "z", 4), (9, "x", 5), (9, "w", 1)] {
            unlocated.offer(position, size, || file(name, size));
        }
        // Of the two with one size and name, paths decide.
        assert_eq!(paths(&unlocated.take(7, &|| b"/r/b".to_vec())), ["/r/b/x"]);
        assert!(unlocated.take(7, &|| panic!("there is none")).is_empty());
        assert_eq!(paths(&unlocated.take(9, &|| b"/r/a".to_vec())), ["/r/a/x"]);
        assert_eq!(paths(&unlocated.take(8, &|| b"/r".to_vec())), ["/r/y"]);
    }
}
