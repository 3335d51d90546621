//! A source tree in key order: each directory before its content, names by bytes.
//!
//! One thread, one `statx` per entry relative to the open directory. Only the names of the directories on the current
//! path are in memory. Of these directories the root and at most the deepest [`OPEN_LEVELS`] are open; others are
//! reopened on the path back, through `..` or else by their names from an open one above, and checked to be the same,
//! so that a tree of any depth can be walked.
//!
//! Survives: entries that vanish (as if they had never been there), those whose status cannot be read, directories that
//! cannot be read (reported; the walk continues beside them), directories that are moved while the walk is in them (one
//! that is not found again is reported, and what remains of it skipped).

use std::collections::HashSet;
use std::ffi::{CStr, CString};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FileType, Mode, OFlags, open};
use rustix::io::Errno;

use super::Ledger;
use super::posix::{FileStatus, Identity, open_directory, open_parent, sorted_names, status, status_at};
use super::selection::Selection;
use crate::error::{Error, ErrorKind, Result};
use crate::format::entry::Time;
use crate::format::key::Key;

/// Directories on the current path that are kept open besides the root.
const OPEN_LEVELS: usize = 64;

/// A step of the walk.
pub(super) enum WalkStep {
    /// A directory; its content follows, up to its [`WalkStep::Leave`].
    Enter(SourceEntry),
    /// The end of the directory that was entered last.
    Leave,
    /// Anything but a directory.
    Entry(SourceEntry),
}

/// A file of the source.
pub(super) struct SourceEntry {
    /// Its key in the store.
    pub key: Key,
    /// Its parent directory; for a directory, itself (or its parent, if it cannot be opened).
    pub directory: Arc<OwnedFd>,
    /// Its name there; `.` for an open directory.
    pub name: Box<CStr>,
    /// The result of `statx`.
    pub status: FileStatus,
}

struct Level {
    names: std::vec::IntoIter<Box<CStr>>,
    handle: Option<Arc<OwnedFd>>,
    identity: Identity,
    /// When it was changed last, as of before its names were read.
    changed: (Time, Time),
    key: Key,
}

/// What to omit.
pub(super) struct WalkFilter {
    /// Stay on the file system of the root.
    pub one_file_system: bool,
    /// Directories that are skipped: the store's own.
    pub own: HashSet<Identity>,
    /// What of the tree is wanted.
    pub selection: Selection,
}

/// A walk.
pub(super) struct SourceTree<'l, 'w> {
    ledger: &'l Ledger<'w>,
    bounds: WalkFilter,
    source: PathBuf,
    prefix: Key,
    levels: Vec<Level>,
    root: Option<SourceEntry>,
    /// Directories of the store itself that were met.
    pub own_directories: u64,
    /// Names, entries and directories that could not be examined: something may exist that the walk did not return.
    pub unread: u64,
    root_device: u64,
}

impl<'l, 'w> SourceTree<'l, 'w> {
    /// Opens the root. The tree's entries go below `prefix`.
    ///
    /// # Errors
    /// If the root cannot be opened, is not a directory, or is the store's own.
    pub(super) fn open(
        source: &Path,
        prefix: Key,
        bounds: WalkFilter,
        ledger: &'l Ledger<'w>,
    ) -> Result<SourceTree<'l, 'w>> {
        let fail = |errno: Errno| Error::io("import", source, errno.into());
        let root = match open(source, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()) {
            Err(Errno::NOTDIR) => {
                return Err(Error::new(ErrorKind::Usage, "import", "it is not a directory")
                    .at(source)
                    .advise("name a tree or a tar archive"));
            }
            root => root.map_err(fail)?,
        };
        let status = status(&root).map_err(fail)?;
        if bounds.own.contains(&status.identity) {
            return Err(Error::new(ErrorKind::Usage, "import", "it is a directory of the store itself").at(source));
        }
        let root_device = status.identity.0;
        let root = SourceEntry { key: prefix.clone(), directory: Arc::new(root), name: Box::from(c"."), status };
        Ok(SourceTree {
            ledger,
            bounds,
            source: source.to_owned(),
            prefix,
            levels: Vec::new(),
            root: Some(root),
            own_directories: 0,
            unread: 0,
            root_device,
        })
    }

    /// The path of a key in the source, for messages.
    pub(super) fn path_of(&self, key: &Key) -> PathBuf {
        path_of(&self.source, &self.prefix, key)
    }

    /// The next step; `None` at the end.
    pub(super) fn next(&mut self) -> Option<WalkStep> {
        if let Some(root) = self.root.take() {
            self.enter(&root);
            return Some(WalkStep::Enter(root));
        }
        loop {
            let level = self.levels.last_mut()?;
            let Some(name) = level.names.next() else {
                self.leave();
                return Some(WalkStep::Leave);
            };
            let Some(directory) = level.handle.clone() else { continue };
            let key = match level.key.child(name.to_bytes()) {
                Ok(key) => key,
                Err(error) => {
                    self.unread += 1;
                    self.ledger.report(error);
                    continue;
                }
            };
            let status = match status_at(&directory, &name) {
                Ok(status) => status,
                Err(Errno::NOENT) if self.may_be_removed(&directory) => continue,
                Err(errno) => {
                    self.unread += 1;
                    self.ledger.report_io("read", &self.path_of(&key), errno);
                    continue;
                }
            };
            let mut found = SourceEntry { key, directory, name, status };
            let is_directory = found.status.file_type() == FileType::Directory;
            if !self.bounds.selection.takes(&self.prefix, &found.key, is_directory) {
                continue;
            }
            if !is_directory {
                return Some(WalkStep::Entry(found));
            }
            if self.bounds.own.contains(&found.status.identity) {
                self.own_directories += 1;
                continue;
            }
            if self.step_into(&mut found) {
                return Some(WalkStep::Enter(found));
            }
        }
    }

    /// Opens a directory and enters it. One that cannot be opened is entered too, as if it were empty; one that is gone
    /// is not. Returns whether it was entered.
    fn step_into(&mut self, found: &mut SourceEntry) -> bool {
        let opened = open_directory(&found.directory, &found.name).and_then(|opened| Ok((status(&opened)?, opened)));
        match opened {
            Ok((status, opened)) => {
                // The open directory is the one that is walked, even if its name now belongs to another.
                found.status = status;
                found.directory = Arc::new(opened);
                found.name = Box::from(c".");
                if self.bounds.own.contains(&status.identity) {
                    self.push(found, Vec::new());
                } else {
                    self.enter(found);
                }
            }
            Err(Errno::NOENT) if self.may_be_removed(&found.directory) => return false,
            Err(errno) => {
                self.unread += 1;
                self.ledger.report_io("read the directory", &self.path_of(&found.key), errno);
                self.push(found, Vec::new());
            }
        }
        true
    }

    fn enter(&mut self, found: &SourceEntry) {
        let names = if self.is_elsewhere(&found.status) { Ok(Vec::new()) } else { sorted_names(&found.directory) };
        let names = names.unwrap_or_else(|errno| {
            self.unread += 1;
            self.ledger.report_io("read the directory", &self.path_of(&found.key), errno);
            Vec::new()
        });
        self.push(found, names);
    }

    /// Whether a directory is not read because it is on another file system.
    pub(super) fn is_elsewhere(&self, status: &FileStatus) -> bool {
        self.bounds.one_file_system && status.identity.0 != self.root_device
    }

    fn push(&mut self, found: &SourceEntry, names: Vec<Box<CStr>>) {
        if let Some(above) = self.levels.len().checked_sub(OPEN_LEVELS).filter(|&above| above > 0) {
            self.levels[above].handle = None;
        }
        self.levels.push(Level {
            names: names.into_iter(),
            handle: Some(found.directory.clone()),
            identity: found.status.identity,
            changed: (found.status.mtime, found.status.ctime),
            key: found.key.clone(),
        });
    }

    /// Whether a name that is not found may have been removed since its directory was read: only then is it gone. Else
    /// the file system lists what it does not find.
    fn may_be_removed(&self, directory: &OwnedFd) -> bool {
        let before = self.levels.last().map(|level| level.changed);
        status(directory).is_ok_and(|now| Some((now.mtime, now.ctime)) != before)
    }

    /// Ends the deepest directory, and reopens its parent if that was closed.
    fn leave(&mut self) {
        let Some(left) = self.levels.pop() else { return };
        let Some(above) = self.levels.last() else { return };
        if above.handle.is_some() {
            return;
        }
        let parent = left.handle.ok_or(Errno::STALE).and_then(|handle| open_parent(handle, above.identity));
        let opened = parent.map(Arc::new).or_else(|_| self.reopen());
        let Some(above) = self.levels.last_mut() else { return };
        match opened {
            Ok(opened) => above.handle = Some(opened),
            Err(errno) => {
                self.unread += 1;
                above.names = Vec::new().into_iter();
                let path = path_of(&self.source, &self.prefix, &above.key);
                self.ledger.report_io("return to the directory", &path, errno);
            }
        }
    }

    /// Opens the deepest directory by names, from the nearest one above that is open.
    fn reopen(&self) -> std::result::Result<Arc<OwnedFd>, Errno> {
        let open = self.levels.iter().rposition(|level| level.handle.is_some()).ok_or(Errno::STALE)?;
        let mut directory = self.levels[open].handle.clone().ok_or(Errno::STALE)?;
        for level in &self.levels[open + 1..] {
            let name = level.key.name().and_then(|name| CString::new(name).ok()).ok_or(Errno::STALE)?;
            let opened = open_directory(&directory, &name)?;
            if status(&opened)?.identity != level.identity {
                return Err(Errno::STALE);
            }
            directory = Arc::new(opened);
        }
        Ok(directory)
    }
}

/// The path of `key` in a source whose entries go below `prefix`.
pub(super) fn path_of(source: &Path, prefix: &Key, key: &Key) -> PathBuf {
    match key.below(prefix) {
        Some(below) if !below.is_root() => source.join(below.to_path()),
        _ => source.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::Progress;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn bounds() -> WalkFilter {
        WalkFilter { one_file_system: false, own: HashSet::new(), selection: Selection::default() }
    }

    fn keys(source: &Path, bounds: WalkFilter) -> (Vec<String>, u64) {
        let progress = Progress::default();
        let ledger = Ledger::new(&progress);
        let mut tree = SourceTree::open(source, Key::parse("p").unwrap(), bounds, &ledger).unwrap();
        let (mut keys, mut depth) = (Vec::new(), 0);
        while let Some(step) = tree.next() {
            match step {
                WalkStep::Enter(found) => {
                    depth += 1;
                    keys.push(format!("{}/", found.key));
                }
                WalkStep::Entry(found) => keys.push(found.key.to_string()),
                WalkStep::Leave => depth -= 1,
            }
        }
        assert_eq!(depth, 0);
        (keys, ledger.end().1.count)
    }

    #[test]
    fn it_is_in_order_of_keys_and_follows_no_symlink() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        fs::create_dir_all(root.join("a/z")).unwrap();
        for file in ["a/b", "a-b", "a.b", "a/z/1", "c"] {
            fs::write(root.join(file), "").unwrap();
        }
        symlink(root, root.join("b")).unwrap();
        let (found, reports) = keys(root, bounds());
        assert_eq!(found, ["p/", "p/a/", "p/a/b", "p/a/z/", "p/a/z/1", "p/a-b", "p/a.b", "p/b", "p/c"]);
        assert_eq!(reports, 0);
    }

    #[test]
    fn what_vanishes_after_its_directory_was_read_leaves_nothing_unread() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        fs::create_dir(root.join("y")).unwrap();
        for file in ["a", "z"] {
            fs::write(root.join(file), "").unwrap();
        }
        // A clock may be too coarse to tell that from the removals.
        fs::File::open(root).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
        let progress = Progress::default();
        let ledger = Ledger::new(&progress);
        let mut tree = SourceTree::open(root, Key::parse("p").unwrap(), bounds(), &ledger).unwrap();
        assert!(matches!(tree.next(), Some(WalkStep::Enter(_))));
        fs::remove_dir(root.join("y")).unwrap();
        fs::remove_file(root.join("z")).unwrap();
        assert!(matches!(tree.next(), Some(WalkStep::Entry(found)) if found.key.to_string() == "p/a"));
        assert!(matches!(tree.next(), Some(WalkStep::Leave)) && tree.next().is_none());
        assert_eq!((tree.unread, ledger.end().1.count), (0, 0));
    }

    #[test]
    fn a_tree_deeper_than_there_are_open_directories_is_walked_whole() {
        let directory = tempfile::tempdir().unwrap();
        let mut path = directory.path().to_owned();
        for _ in 0..3 * OPEN_LEVELS {
            path.push("d");
            fs::create_dir(&path).unwrap();
            fs::write(path.join("a"), "").unwrap();
            fs::write(path.join("z"), "").unwrap();
        }
        let (found, reports) = keys(directory.path(), bounds());
        assert_eq!((found.len(), reports), (1 + 3 * 3 * OPEN_LEVELS, 0));
        assert_eq!(found.last().unwrap(), "p/d/z");
    }

    #[test]
    fn a_directory_that_is_moved_while_the_walk_is_in_it_costs_nothing_above_it() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let mut path = root.join("d");
        for _ in 0..OPEN_LEVELS + 6 {
            fs::create_dir(&path).unwrap();
            fs::write(path.join("z"), "").unwrap();
            path.push("d");
        }
        // At the bottom, the walk finds that the sixth directory has gone elsewhere, or that there is another one.
        for replace in [false, true] {
            let sixth = root.join(["d"; 6].join("/"));
            let progress = Progress::default();
            let ledger = Ledger::new(&progress);
            let mut tree = SourceTree::open(root, Key::root(), bounds(), &ledger).unwrap();
            let mut names = 0;
            while let Some(step) = tree.next() {
                match step {
                    WalkStep::Entry(found) if names == 0 => {
                        assert_eq!(found.key.to_string(), format!("{}/z", ["d"; OPEN_LEVELS + 6].join("/")));
                        names = 1;
                        fs::rename(&sixth, root.join("moved")).unwrap();
                        if replace {
                            fs::create_dir(&sixth).unwrap();
                        }
                    }
                    WalkStep::Entry(_) => names += 1,
                    WalkStep::Enter(_) | WalkStep::Leave => {}
                }
            }
            assert_eq!((names, ledger.end().1.count), (OPEN_LEVELS + 6, 0));
            fs::remove_dir(&sixth).ok();
            fs::rename(root.join("moved"), &sixth).unwrap();
        }
    }

    #[test]
    fn directories_of_the_store_are_skipped_and_are_no_source() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir_all(directory.path().join("store/segments")).unwrap();
        fs::write(directory.path().join("x"), "").unwrap();
        let store = fs::File::open(directory.path().join("store")).unwrap();
        let own = || HashSet::from([status(&store).unwrap().identity]);
        assert_eq!(keys(directory.path(), WalkFilter { own: own(), ..bounds() }).0, ["p/", "p/x"]);
        let progress = Progress::default();
        let ledger = Ledger::new(&progress);
        let refused = SourceTree::open(
            &directory.path().join("store"),
            Key::root(),
            WalkFilter { own: own(), ..bounds() },
            &ledger,
        );
        assert_eq!(refused.err().unwrap().kind(), ErrorKind::Usage);
    }
}
