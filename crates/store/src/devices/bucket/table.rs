//! The files of a volume: directories, names, and what each file consists of.
//!
//! Invariants: a file has at most one name, and a number that no other file ever has; it stays while it has a name or a
//! handle. Every name is in a directory that exists, the root (an empty path) or one that was created, and no directory
//! has the name of a file. A clone is a snapshot.

#![cfg_attr(not(test), warn(clippy::indexing_slicing))]

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use super::pieces::Pieces;

/// Longest path, in bytes.
pub(crate) const LONGEST_PATH_BYTES: usize = 255;

/// Identifies a file, whatever its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct FileNumber(pub(crate) u64);

#[derive(Debug, Clone)]
struct Row {
    pieces: Arc<Pieces>,
    /// Open handles of this process.
    handles: u64,
    has_name: bool,
}

/// All files.
#[derive(Debug, Clone, Default)]
pub(crate) struct FileTable {
    names: BTreeMap<String, FileNumber>,
    directories: BTreeSet<String>,
    files: BTreeMap<FileNumber, Row>,
    /// The number of the next file.
    next: FileNumber,
}

fn absent() -> io::Error {
    io::ErrorKind::NotFound.into()
}

fn exists() -> io::Error {
    io::ErrorKind::AlreadyExists.into()
}

/// The directory that a path is in; the root is an empty path.
fn above(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(above, _)| above)
}

/// Whether a path may be that of a file or a directory: relative, and in one form only.
pub(crate) fn is_path(path: &str) -> bool {
    let is_name = |name: &str| !name.is_empty() && name != "." && name != ".." && !name.contains('\0');
    path.len() <= LONGEST_PATH_BYTES && path.split('/').all(is_name)
}

impl FileTable {
    /// Creates an empty file.
    ///
    /// # Errors
    /// `AlreadyExists`; `NotFound` if its directory does not exist; `InvalidInput` if the path is none.
    pub(crate) fn create(&mut self, path: &str) -> io::Result<FileNumber> {
        let number = self.next;
        self.insert(path, number, Pieces::default())?;
        self.next.0 += 1;
        Ok(number)
    }

    /// Adds a file with a number that no other has.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub(crate) fn insert(&mut self, path: &str, number: FileNumber, pieces: Pieces) -> io::Result<()> {
        self.may_be_named(path)?;
        if self.names.contains_key(path) || self.files.contains_key(&number) {
            return Err(exists());
        }
        self.names.insert(path.to_owned(), number);
        self.files.insert(number, Row { pieces: Arc::new(pieces), handles: 0, has_name: true });
        Ok(())
    }

    fn may_be_named(&self, path: &str) -> io::Result<()> {
        match () {
            () if !is_path(path) => Err(io::ErrorKind::InvalidInput.into()),
            () if self.directories.contains(path) => Err(exists()),
            () if !self.has_directory(above(path)) => Err(absent()),
            () => Ok(()),
        }
    }

    /// Creates a directory and those above it, if they do not exist.
    ///
    /// # Errors
    /// `AlreadyExists` if one has the name of a file; `InvalidInput` if the path is none.
    pub(crate) fn create_directory(&mut self, path: &str) -> io::Result<()> {
        if self.has_directory(path) {
            return Ok(());
        }
        if !is_path(path) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        if self.names.contains_key(path) {
            return Err(exists());
        }
        self.create_directory(above(path))?;
        self.directories.insert(path.to_owned());
        Ok(())
    }

    pub(crate) fn has_directory(&self, path: &str) -> bool {
        path.is_empty() || self.directories.contains(path)
    }

    /// Whether there is nothing at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.names.is_empty() && self.directories.is_empty()
    }

    pub(crate) fn directories(&self) -> impl ExactSizeIterator<Item = &str> {
        self.directories.iter().map(String::as_str)
    }

    /// The number of the next file.
    pub(crate) fn next(&self) -> FileNumber {
        self.next
    }

    /// Sets the number of the next file, which is above all others.
    pub(crate) fn set_next(&mut self, next: FileNumber) {
        self.next = next;
    }

    /// The files with names, by name.
    pub(crate) fn named(&self) -> impl Iterator<Item = (&str, FileNumber, &Arc<Pieces>)> {
        self.names.iter().filter_map(|(path, number)| Some((path.as_str(), *number, self.pieces(*number)?)))
    }

    /// All files, those without names too.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Pieces>> {
        self.files.values().map(|row| &row.pieces)
    }

    pub(crate) fn find(&self, path: &str) -> Option<FileNumber> {
        self.names.get(path).copied()
    }

    /// Names and sizes of the files in a directory.
    pub(crate) fn list(&self, directory: &str) -> Vec<(String, u64)> {
        let prefix = if directory.is_empty() { String::new() } else { format!("{directory}/") };
        let below = self.names.range(prefix.clone()..).take_while(|(path, _)| path.starts_with(&prefix));
        let names = below.filter_map(|(path, number)| Some((path.strip_prefix(&prefix)?, *number)));
        let own = names.filter(|(name, _)| !name.contains('/'));
        own.filter_map(|(name, number)| Some((name.to_owned(), self.pieces(number)?.size_bytes()))).collect()
    }

    /// Names of the directories in a directory.
    pub(crate) fn directories_in(&self, directory: &str) -> impl Iterator<Item = &str> {
        self.directories.iter().map(String::as_str).filter(move |path| above(path) == directory)
    }

    /// Removes a name; a file without handles goes with it.
    ///
    /// # Errors
    /// `NotFound`.
    pub(crate) fn remove(&mut self, path: &str) -> io::Result<()> {
        let number = self.names.remove(path).ok_or_else(absent)?;
        if let Some(row) = self.files.get_mut(&number) {
            row.has_name = false;
        }
        self.forget_unused(number);
        Ok(())
    }

    /// Renames a file; another one with that name loses it.
    ///
    /// # Errors
    /// `NotFound`; as [`create`](Self::create).
    pub(crate) fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        let number = self.find(from).ok_or_else(absent)?;
        self.may_be_named(to)?;
        if from != to {
            self.find(to).map_or(Ok(()), |_| self.remove(to))?;
            self.names.remove(from);
            self.names.insert(to.to_owned(), number);
        }
        Ok(())
    }

    /// A handle opens.
    pub(crate) fn hold(&mut self, number: FileNumber) {
        if let Some(row) = self.files.get_mut(&number) {
            row.handles += 1;
        }
    }

    /// A handle closes; a file without a name goes with its last one.
    pub(crate) fn let_go(&mut self, number: FileNumber) {
        if let Some(row) = self.files.get_mut(&number) {
            row.handles = row.handles.saturating_sub(1);
        }
        self.forget_unused(number);
    }

    fn forget_unused(&mut self, number: FileNumber) {
        if self.files.get(&number).is_some_and(|row| !row.has_name && row.handles == 0) {
            self.files.remove(&number);
        }
    }

    pub(crate) fn pieces(&self, number: FileNumber) -> Option<&Arc<Pieces>> {
        self.files.get(&number).map(|row| &row.pieces)
    }

    /// The pieces of a file, to be changed; a snapshot keeps its own.
    pub(crate) fn pieces_mut(&mut self, number: FileNumber) -> Option<&mut Pieces> {
        self.files.get_mut(&number).map(|row| Arc::make_mut(&mut row.pieces))
    }

    /// Changes the pieces of each file.
    pub(crate) fn for_each_mut(&mut self, mut change: impl FnMut(&mut Arc<Pieces>)) {
        self.files.values_mut().for_each(|row| change(&mut row.pieces));
    }

    /// Leaves out the names that are not `kept`, and files without names: what is published.
    pub(crate) fn retain(&mut self, kept: impl Fn(&str) -> bool) {
        self.names.retain(|path, _| kept(path));
        let numbers: BTreeSet<FileNumber> = self.names.values().copied().collect();
        self.files.retain(|number, _| numbers.contains(number));
    }

    /// Becomes a table that was published later. Handles stay, also of files that it no longer has.
    pub(crate) fn become_next(&mut self, next: FileTable) {
        let before = std::mem::replace(self, next);
        for (number, row) in before.files.into_iter().filter(|(_, row)| row.handles > 0) {
            match self.files.get_mut(&number) {
                Some(found) => found.handles = row.handles,
                None => drop(self.files.insert(number, Row { has_name: false, ..row })),
            }
        }
    }
}
