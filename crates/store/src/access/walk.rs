//! Listings: entries in name order, of one consistent state, however long they take.
//!
//! A walk visits each directory before its content: that is the order of whole paths. Of the directories on the path it
//! keeps the scans of the deepest [`MOST_SCANS`], so that memory does not grow with depth; for the others it seeks by
//! name again when it returns to them. A scan at its end continues with the next directory, which mostly follows in the
//! index too, and all scans share one read-ahead window: so a tree takes about as many device reads as its part of the
//! index is long.

use std::ops::Bound;

use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::format::entry::{Entry, Kind};
use crate::format::ids::ObjectNumber;
use crate::format::index_key::{ROOT, ROOT_KEY, entries_of, entry_key, object_key};
use crate::format::key::Key;
use crate::index::{Reach, Scan, Snapshot, Windows};

/// Most scans that are kept open.
const MOST_SCANS: usize = 16;

/// An entry of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// The full key.
    pub key: Key,
    /// Kind, size, mode, owner, time and place. Links are followed.
    pub entry: Entry,
    /// Number of the shared object, if the name is a link.
    pub shared: Option<ObjectNumber>,
}

/// An entry of a listing whose key is borrowed until the next entry is requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lent<'w> {
    /// The full key.
    pub key: &'w Key,
    /// Kind, size, mode, owner, time and place. Links are followed.
    pub entry: Entry,
    /// Number of the shared object, if the name is a link.
    pub shared: Option<ObjectNumber>,
}

/// A directory that is being visited.
#[derive(Debug)]
struct Level {
    directory: ObjectNumber,
    /// Length of its path.
    path_bytes: usize,
    /// `None` if its place must be sought again.
    scan: Option<Scan>,
}

/// Entries in order of keys, of one consistent state. See [`Store::list`](crate::Store::list) and
/// [`Store::walk`](crate::Store::walk).
///
/// As an iterator, it returns owned entries; [`lend`](Self::lend) allocates nothing for each.
#[derive(Debug)]
pub struct Walk {
    snapshot: Snapshot,
    /// The first entry, if it is not in a visited directory.
    top: Option<Entry>,
    /// The deepest is last.
    levels: Vec<Level>,
    /// Scans at their end, of directories that were left; the one left last is last.
    spare: Vec<Scan>,
    windows: Windows,
    /// The path of the last returned entry.
    key: Key,
    /// Only the entries of one directory.
    is_flat: bool,
    ended: bool,
}

impl Engine {
    /// Entries at and below `top`, from the path `from` on.
    pub(crate) fn walk(&self, top: &Key, from: &Key) -> Result<Walk> {
        self.refresh()?;
        let snapshot = self.snapshot();
        Walk::from(snapshot, top, from)
    }

    /// The entries of a directory from a name on.
    pub(crate) fn list(&self, directory: &Key, from: &[u8]) -> Result<Walk> {
        self.refresh()?;
        let snapshot = self.snapshot();
        Walk::list(snapshot, directory, from)
    }
}

impl Walk {
    /// As [`Engine::list`], of one state.
    pub(crate) fn list(snapshot: Snapshot, directory: &Key, from: &[u8]) -> Result<Walk> {
        let Some(number) = snapshot.directory(directory.stored())? else {
            let (kind, cause) = match snapshot.look_up_path(directory.stored())? {
                None => (ErrorKind::NotFound, "no such object"),
                Some(_) => (ErrorKind::Usage, "it is not a directory"),
            };
            return Err(Error::new(kind, "list", cause).at(&directory.to_path()));
        };
        let mut walk = Walk::empty(snapshot, directory, true, Reach::Near);
        walk.enter(number, Bound::Included(from))?;
        Ok(walk)
    }

    /// As [`Engine::walk`], of one state.
    pub(crate) fn from(snapshot: Snapshot, top: &Key, from: &Key) -> Result<Walk> {
        let reach = if top.is_root() && from <= top { Reach::All } else { Reach::Near };
        let mut walk = Walk::empty(snapshot, top, false, reach);
        let found = walk.snapshot.look_up_path(top.stored())?;
        let is_directory = found.is_some_and(|entry| entry.kind == Kind::Directory);
        let number = if top.is_root() { Some(ROOT) } else { found.filter(|_| is_directory).map(|entry| entry.number) };
        if from <= top {
            walk.top = found;
            // If `top` is returned first, its directory is entered after that.
            if let Some(number) = number.filter(|_| found.is_none()) {
                walk.enter(number, Bound::Unbounded)?;
            }
        } else if let (Some(number), Some(below)) = (number, from.below(top)) {
            walk.enter_before(number, &below)?;
        }
        Ok(walk)
    }

    fn empty(snapshot: Snapshot, top: &Key, is_flat: bool, reach: Reach) -> Walk {
        let windows = snapshot.windows(reach);
        let (levels, spare) = (Vec::new(), Vec::new());
        Walk { snapshot, top: None, levels, spare, windows, key: top.clone(), is_flat, ended: false }
    }

    /// Descends along a path as far as it exists, so that the next entry is the first that is not before it.
    fn enter_before(&mut self, top: ObjectNumber, path: &Key) -> Result<()> {
        let mut number = top;
        let mut names = path.components().peekable();
        while let Some(name) = names.next() {
            let is_last = names.peek().is_none();
            let entry = if is_last { None } else { self.snapshot.look_up(&entry_key(number, name))? };
            if is_last || entry.is_none() {
                return self.enter(number, Bound::Included(name));
            }
            self.enter(number, Bound::Excluded(name))?;
            match entry {
                Some(entry) if entry.kind == Kind::Directory => number = entry.number,
                _ => return Ok(()),
            }
            self.key.push(name);
        }
        Ok(())
    }

    /// Enters the directory whose path is the key.
    fn enter(&mut self, directory: ObjectNumber, from: Bound<&[u8]>) -> Result<()> {
        let scan = match (from, self.spare.pop()) {
            (Bound::Unbounded, Some(mut scan)) => {
                let (first, end) = entries_of(directory);
                scan.restart(&first, end)?.then_some(scan)
            }
            _ => None,
        };
        let scan = match scan {
            Some(scan) => scan,
            None => scan_of(&self.snapshot, &self.windows, directory, from)?,
        };
        self.levels.push(Level { directory, path_bytes: self.key.stored().len(), scan: Some(scan) });
        if let Some(above) = self.levels.len().checked_sub(MOST_SCANS + 1)
            && let Some(level) = self.levels.get_mut(above)
        {
            level.scan = None;
        }
        Ok(())
    }

    /// The next entry, as the iterator returns it, with a key that this walk owns.
    ///
    /// # Errors
    /// Errors of reading the index; the walk is at its end then.
    pub fn lend(&mut self) -> Result<Option<Lent<'_>>> {
        if self.ended {
            return Ok(None);
        }
        let step = self.step();
        self.ended = !matches!(step, Ok(Some(_)));
        Ok(step?.map(|(entry, shared)| Lent { key: &self.key, entry, shared }))
    }

    /// Advances to the next entry that resolves, links followed.
    #[inline]
    fn step(&mut self) -> Result<Option<(Entry, Option<ObjectNumber>)>> {
        while let Some(entry) = self.next_unfollowed()? {
            if entry.kind != Kind::Link {
                return Ok(Some((entry, None)));
            }
            let shared = entry.linked();
            if let Some(entry) = self.snapshot.look_up(&object_key(shared))? {
                return Ok(Some((entry, Some(shared))));
            }
        }
        Ok(None)
    }

    /// Advances to the next entry, without following links: a link's path is then the key.
    ///
    /// # Errors
    /// Errors of reading the index.
    #[inline]
    pub(crate) fn next_unfollowed(&mut self) -> Result<Option<Entry>> {
        if let Some(top) = self.top.take() {
            if top.kind == Kind::Directory {
                self.enter(top.number, Bound::Unbounded)?;
            }
            return Ok(Some(top));
        }
        loop {
            let Some(level) = self.levels.last_mut() else { return Ok(None) };
            let path_bytes = level.path_bytes;
            let scan = match &mut level.scan {
                Some(scan) => scan,
                sought => {
                    // The name of the child directory that was visited is still in the key.
                    let name = self.key.stored().get(path_bytes..).unwrap_or_default();
                    let name = name.strip_prefix(&[0]).unwrap_or(name);
                    let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
                    sought.insert(scan_of(&self.snapshot, &self.windows, level.directory, Bound::Excluded(name))?)
                }
            };
            let Some((key, entry)) = scan.next_entry()? else {
                let left = self.levels.pop().and_then(|level| level.scan);
                self.spare.extend(left.filter(|_| self.spare.len() < MOST_SCANS));
                continue;
            };
            let entry = *entry;
            self.key.truncate(path_bytes);
            self.key.push(key.get(ROOT_KEY.len()..).unwrap_or_default());
            if entry.kind == Kind::Directory && !self.is_flat {
                self.enter(entry.number, Bound::Unbounded)?;
            }
            return Ok(Some(entry));
        }
    }
}

/// The entries of a directory from a name on, or after it.
fn scan_of(snapshot: &Snapshot, windows: &Windows, directory: ObjectNumber, from: Bound<&[u8]>) -> Result<Scan> {
    let (first, end) = entries_of(directory);
    let from = match from {
        Bound::Included(name) => Bound::Included(entry_key(directory, name)),
        Bound::Excluded(name) => Bound::Excluded(entry_key(directory, name)),
        Bound::Unbounded => Bound::Included(first),
    };
    snapshot.scan_within(windows, from.as_ref().map(Vec::as_slice), Bound::Excluded(&end))
}

impl Iterator for Walk {
    type Item = Result<Listed>;

    fn next(&mut self) -> Option<Result<Listed>> {
        let next = self.lend().map(|lent| lent.map(|Lent { key, entry, shared }| (key.clone(), entry, shared)));
        next.map(|next| next.map(|(key, entry, shared)| Listed { key, entry, shared })).transpose()
    }
}
