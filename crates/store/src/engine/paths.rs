//! From a path to its current entry in the index. Directories on the path are remembered.

use super::looking::Looking;
use super::{Engine, look_up_in};
use crate::error::Result;
use crate::format::entry::Entry;
use crate::format::ids::ObjectNumber;
use crate::format::index_key::{ROOT_KEY, entry_key};
use crate::format::key::{shared_number, split};
use crate::locks;

impl Engine {
    /// A view's entry for a path that is expected to exist. Tables are read without the lock.
    ///
    /// # Errors
    /// Any error of reading the index.
    pub(crate) fn look_up_path(&self, view: Looking<'_>, path: &[u8]) -> Result<Option<Entry>> {
        let Some((above, name)) = split(path) else { return look_up_in(view, ROOT_KEY).map(|(_, entry)| entry) };
        if let Some(directory) = self.known_directory(above) {
            return look_up_in(view, &entry_key(directory, name)).map(|(_, entry)| entry);
        }
        let (version, snapshot) = (view.state.version, view.snapshot());
        drop(view);
        match self.learn(version, &snapshot, above)? {
            Some(directory) => snapshot.look_up(&entry_key(directory, name)),
            None => Ok(None),
        }
    }

    /// The current number of the directory with a path.
    ///
    /// # Errors
    /// Any error of reading the index.
    pub(crate) fn directory(&self, path: &[u8]) -> Result<Option<ObjectNumber>> {
        let view = self.view();
        let known = self.known_directory(path);
        if known.is_some() {
            return Ok(known);
        }
        let (version, snapshot) = (view.state.version, view.snapshot());
        drop(view);
        self.learn(version, &snapshot, path)
    }

    /// The number of the directory with a path, if no look-up is needed: the key may begin there.
    fn known_directory(&self, path: &[u8]) -> Option<ObjectNumber> {
        shared_number(path).or_else(|| locks::read(&self.directories).directory(path))
    }

    /// Looks up a directory, and remembers the path to it if the snapshot still matches the view.
    fn learn(&self, version: u64, snapshot: &crate::index::Snapshot, path: &[u8]) -> Result<Option<ObjectNumber>> {
        let mut met: Vec<(ObjectNumber, ObjectNumber, Box<[u8]>)> = Vec::new();
        let found = snapshot.directory_with(path, &mut |number, above, name| met.push((number, above, name.into())))?;
        let view = self.view();
        if view.state.version == version {
            let mut directories = locks::write(&self.directories);
            met.iter().for_each(|(number, above, name)| directories.add(*above, name, *number));
        }
        Ok(found)
    }
}
