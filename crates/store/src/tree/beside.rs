//! The listings of a store beside a walk of the source: both in key order, so that each finds the other's entry without
//! a look-up, and what only the store has appears on the way.
//!
//! Memory: one listing per directory on the path, and each object that only the store has, a directory counting once.

use std::iter::Peekable;

use super::task::ImportOptions;
use super::walk::{SourceTree, WalkStep};
use crate::error::Result;
use crate::format::entry::Kind;
use crate::format::key::Key;
use crate::{Durability, Listed, Store, Walk};

/// The listings of the directories on the path of a walk.
pub(super) struct Beside<'s> {
    store: &'s Store,
    /// `None` for a directory that the store does not have.
    listings: Vec<Option<Peekable<Walk>>>,
    /// What only the store has, if that is wanted.
    gone: Option<Vec<Listed>>,
}

impl<'s> Beside<'s> {
    pub(super) fn new(store: &'s Store, is_gone_wanted: bool) -> Beside<'s> {
        Beside { store, listings: Vec::new(), gone: is_gone_wanted.then(Vec::new) }
    }

    /// Goes along with a step of the walk; returns the store's entry for it.
    pub(super) fn follow(&mut self, step: &WalkStep, tree: &SourceTree<'_, '_>) -> Result<Option<Listed>> {
        match step {
            WalkStep::Entry(found) => self.find(&found.key),
            WalkStep::Enter(found) => {
                let listed = self.find(&found.key)?;
                let is_root = self.listings.is_empty();
                let is_known = listed.as_ref().is_some_and(|listed| listed.entry.kind == Kind::Directory);
                // Of a directory that is not read nothing is known to be gone.
                let list = (is_known || is_root && found.key.is_root()) && !tree.is_elsewhere(&found.status);
                self.listings.push(if list { Some(self.store.list(&found.key)?.peekable()) } else { None });
                Ok(listed)
            }
            WalkStep::Leave => {
                let rest = self.listings.pop().flatten();
                if let (Some(rest), Some(gone)) = (rest, &mut self.gone) {
                    for listed in rest {
                        gone.push(listed?);
                    }
                }
                Ok(None)
            }
        }
    }

    /// What only the store has.
    pub(super) fn into_gone(self) -> Vec<Listed> {
        self.gone.unwrap_or_default()
    }

    /// The store's entry for `key`, in the directory that the walk is in.
    fn find(&mut self, key: &Key) -> Result<Option<Listed>> {
        let Some(listing) = self.listings.last_mut() else { return self.store.entry(key) };
        let Some(listing) = listing else { return Ok(None) };
        while let Some(listed) = listing.next_if(|listed| listed.as_ref().map_or(true, |listed| listed.key <= *key)) {
            let listed = listed?;
            if listed.key == *key {
                return Ok(Some(listed));
            }
            if let Some(gone) = &mut self.gone {
                gone.push(listed);
            }
        }
        Ok(None)
    }
}

/// Removes what only the store has, one tree after the other, and makes that durable at the end: after an error some of
/// it may be gone. Returns how many objects. What the selection does not take stays, and the directories above it.
pub(super) fn remove(store: &Store, gone: Vec<Listed>, options: &ImportOptions) -> Result<u64> {
    let mut removed = 0;
    let mut batch = store.batch(Durability::Batch);
    each_to_remove(store, gone, options, &mut |key, objects, is_directory| {
        removed += objects;
        // A tree settles what was removed before it, and a file does not.
        if is_directory { batch.remove_tree(key).map(drop) } else { batch.remove(key).map(drop) }
    })?;
    batch.commit()?;
    Ok(removed)
}

/// Whether the selection leaves anything below a directory of the store.
pub(super) fn keeps_any(store: &Store, directory: &Key, options: &ImportOptions) -> Result<bool> {
    let ImportOptions { prefix, selection, .. } = options;
    if selection.is_everything() {
        return Ok(false);
    }
    for below in store.walk(directory)? {
        let below = below?;
        if !selection.takes(prefix, &below.key, below.entry.kind == Kind::Directory) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// How many objects [`remove`] would remove.
pub(super) fn count(store: &Store, gone: Vec<Listed>, options: &ImportOptions) -> Result<u64> {
    let mut count = 0;
    each_to_remove(store, gone, options, &mut |_, objects, _| {
        count += objects;
        Ok(())
    })?;
    Ok(count)
}

/// Calls `take` with each tree that goes, the number of its objects, and whether it is a directory, children first.
fn each_to_remove(
    store: &Store,
    gone: Vec<Listed>,
    options: &ImportOptions,
    take: &mut dyn FnMut(&Key, u64, bool) -> Result<()>,
) -> Result<()> {
    let ImportOptions { prefix, selection, .. } = options;
    for listed in gone {
        let is_directory = listed.entry.kind == Kind::Directory;
        if !selection.takes(prefix, &listed.key, is_directory) {
            continue;
        }
        if !is_directory {
            take(&listed.key, 1, false)?;
            continue;
        }
        if selection.is_everything() {
            let objects = store.walk(&listed.key)?.try_fold(0, |count, below| below.map(|_| count + 1))?;
            take(&listed.key, objects, true)?;
            continue;
        }
        // One level after the other, so that a deep tree needs no deep stack: what is kept keeps the directories above.
        let mut directories = vec![listed.key.clone()];
        let mut kept = hashbrown::HashSet::new();
        let mut at = 0;
        while let Some(directory) = directories.get(at).cloned() {
            at += 1;
            for below in store.list(&directory)? {
                let below = below?;
                let is_directory = below.entry.kind == Kind::Directory;
                match (selection.takes(prefix, &below.key, is_directory), is_directory) {
                    (true, true) => directories.push(below.key),
                    (true, false) => take(&below.key, 1, false)?,
                    (false, _) => kept.extend(std::iter::successors(Some(directory.clone()), Key::parent)),
                }
            }
        }
        for directory in directories.into_iter().rev().filter(|directory| !kept.contains(directory)) {
            take(&directory, 1, true)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::progress::Progress;
    use crate::tree::import::import;
    use crate::{Plan, Store};

    #[test]
    fn files_that_are_gone_go_together() {
        let place = tempfile::tempdir().unwrap();
        let (home, source) = (place.path().join("store"), place.path().join("source"));
        fs::create_dir_all(source.join("kept")).unwrap();
        let file = |number: usize| source.join(format!("kept/{number}"));
        (0..300).for_each(|number| fs::write(file(number), "x").unwrap());
        let store = Store::create(&home, &Plan::default()).unwrap();
        let options = ImportOptions { delete: true, ..ImportOptions::default() };
        let mirror = || import(&store, &source, &options, &Progress::default()).unwrap().removed;
        assert_eq!(mirror(), 0);
        (0..299).for_each(|number| fs::remove_file(file(number)).unwrap());
        let sequence = || store.engine().view().state.position.sequence;
        let before = sequence();
        assert_eq!(mirror(), 299);
        assert!(sequence() - before < 10, "{} batches", sequence() - before);
        fs::remove_dir_all(source.join("kept")).unwrap();
        assert_eq!(mirror(), 2);
        assert!(store.list(&Key::root()).unwrap().next().is_none());
    }
}
