//! One pinned state of a store: listings and reads of the same moment, while others write and compact.
//!
//! The state is what was durable when it was taken. Nothing that it refers to is freed while it exists: a shared lock
//! in the directory of the index announces it to other processes, and is released with the process if that dies. A user
//! who may not write there reads it without: what a writer moves meanwhile is found again, and what it frees is said to
//! be gone.

use super::read::{Buffer, Object, object};
use super::walk::{Listed, Walk};
use crate::Store;
use crate::engine::View;
use crate::engine::pins::{Pin, is_of_place};
use crate::error::{Error, Result};
use crate::format::entry::{Entry, Kind};
use crate::format::index_key::object_key;
use crate::format::key::Key;
use crate::format::rows::SnapshotRow;
use crate::index::Snapshot;

/// A pinned state. See [`Store::snapshot`].
#[derive(Debug)]
#[must_use = "the state is preserved only as long as this exists"]
pub struct PinnedSnapshot {
    store: Store,
    snapshot: Snapshot,
    /// The sequence number of the snapshot with a name that it is, if it is one.
    sequence: Option<u64>,
    pin: Pin,
}

impl Store {
    /// The current state of the store, for as long as this value is kept. What cannot be freed because of it takes
    /// space: `status` says how much.
    ///
    /// ```
    /// use granulo_store::{Attributes, Buffer, Key, Plan, Store, Time};
    ///
    /// # let place = tempfile::tempdir()?;
    /// let store = Store::create(&place.path().join("store"), &Plan::default())?;
    /// let (key, attributes) = (Key::parse("a/file")?, Attributes::of_file(Time { seconds: 0, nanoseconds: 0 }));
    /// store.put(&key, &attributes, b"before")?;
    /// let snapshot = store.snapshot()?;
    /// store.put(&key, &attributes, b"after")?;
    ///
    /// let mut buffer = Buffer::default();
    /// assert_eq!(snapshot.read(&key, &mut buffer)?.unwrap().content, b"before");
    /// assert_eq!(store.get(&key)?.unwrap(), b"after");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Errors of reading the index; errors of making everything durable, if the store is open for writing.
    pub fn snapshot(&self) -> Result<PinnedSnapshot> {
        let (pin, view) = self.engine().pinned()?;
        Ok(PinnedSnapshot::new(self, pin, &view, view.at()))
    }

    /// Keeps the current state of the store under a name, until [`remove_snapshot`](Self::remove_snapshot); durable on
    /// return. Its cost is what changes from then on.
    ///
    /// ```
    /// use granulo_store::{Attributes, Buffer, Key, Plan, Store, Time};
    ///
    /// # let place = tempfile::tempdir()?;
    /// let home = place.path().join("store");
    /// let store = Store::create(&home, &Plan::default())?;
    /// let (key, attributes) = (Key::parse("a/file")?, Attributes::of_file(Time { seconds: 0, nanoseconds: 0 }));
    /// store.put(&key, &attributes, b"before")?;
    /// store.create_snapshot("monday")?;
    /// store.remove_tree(&Key::parse("a")?)?;
    /// drop(store);
    ///
    /// let store = Store::open_read_only(&home)?;
    /// let monday = store.snapshot_named("monday")?.unwrap();
    /// assert_eq!(monday.read(&key, &mut Buffer::default())?.unwrap().content, b"before");
    /// assert_eq!(store.get(&key)?, None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Exists`](crate::error::ErrorKind::Exists) if a snapshot of that name exists,
    /// [`Usage`](crate::error::ErrorKind::Usage) if it is not a valid file name; errors of writing.
    pub fn create_snapshot(&self, name: &str) -> Result<SnapshotRow> {
        self.engine().take_snapshot(name.as_bytes())
    }

    /// Removes a snapshot; returns whether it existed. [`compact`](Self::compact) frees what only that referred to.
    ///
    /// # Errors
    /// Errors of writing.
    pub fn remove_snapshot(&self, name: &str) -> Result<bool> {
        self.engine().remove_snapshot(name.as_bytes())
    }

    /// The snapshots, oldest first.
    ///
    /// # Errors
    /// Errors of reading the index.
    pub fn snapshots(&self) -> Result<Vec<SnapshotRow>> {
        Ok(self.engine().fresh()?.state.snapshots.to_vec())
    }

    /// The store as it was when a snapshot was taken, if one of that name exists.
    ///
    /// # Errors
    /// As [`snapshot`](Self::snapshot).
    pub fn snapshot_named(&self, name: &str) -> Result<Option<PinnedSnapshot>> {
        // A snapshot is durable; later writes are not in it.
        let (pin, view) = self.engine().pinned_as_it_is()?;
        let sequence = view.state.snapshot_named(name.as_bytes()).map(|row| row.sequence);
        Ok(sequence.map(|sequence| PinnedSnapshot::new(self, pin, &view, Some(sequence))))
    }

    /// The entries of a directory from a name on, inclusive: continues an interrupted listing.
    ///
    /// ```
    /// use granulo_store::{Attributes, Key, Plan, Store, Time};
    ///
    /// # let place = tempfile::tempdir()?;
    /// let store = Store::create(&place.path().join("store"), &Plan::default())?;
    /// let attributes = Attributes::of_file(Time { seconds: 0, nanoseconds: 0 });
    /// for name in ["a", "b", "c"] {
    ///     store.put(&Key::parse(&format!("d/{name}"))?, &attributes, name.as_bytes())?;
    /// }
    /// let from_b = store.list_from(&Key::parse("d")?, b"b")?;
    /// let keys: Vec<String> = from_b.map(|listed| listed.map(|one| one.key.to_string())).collect::<Result<_, _>>()?;
    /// assert_eq!(keys, ["d/b", "d/c"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`list`](Self::list).
    pub fn list_from(&self, directory: &Key, name: &[u8]) -> Result<Walk> {
        self.engine().list(directory, name)
    }

    /// An object and everything below it from a key on, inclusive, in key order.
    ///
    /// ```
    /// use granulo_store::{Attributes, Key, Plan, Store, Time};
    ///
    /// # let place = tempfile::tempdir()?;
    /// let store = Store::create(&place.path().join("store"), &Plan::default())?;
    /// for key in ["a/1", "a/2", "b/3"] {
    ///     store.put(&Key::parse(key)?, &Attributes::of_file(Time { seconds: 0, nanoseconds: 0 }), b"")?;
    /// }
    /// // A walk that stopped before a/2 resumes there.
    /// let rest = store.walk_from(&Key::root(), &Key::parse("a/2")?)?;
    /// let keys: Vec<String> = rest.map(|listed| listed.map(|one| one.key.to_string())).collect::<Result<_, _>>()?;
    /// assert_eq!(keys, ["a/2", "b", "b/3"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Errors of reading the index.
    pub fn walk_from(&self, top: &Key, from: &Key) -> Result<Walk> {
        self.engine().walk(top, from)
    }

    /// Reads what a listing returned, as it was listed, without another look-up. `None` if it no longer exists and its
    /// space is freed.
    ///
    /// ```
    /// use granulo_store::{Attributes, Buffer, Key, Kind, Plan, Store, Time};
    ///
    /// # let place = tempfile::tempdir()?;
    /// let store = Store::create(&place.path().join("store"), &Plan::default())?;
    /// store.put(&Key::parse("d/file")?, &Attributes::of_file(Time { seconds: 0, nanoseconds: 0 }), b"content")?;
    /// let mut buffer = Buffer::default();
    /// for listed in store.list(&Key::parse("d")?)? {
    ///     let object = store.read_listed(&listed?, &mut buffer)?.unwrap();
    ///     assert_eq!((object.entry.kind, object.content), (Kind::File, &b"content"[..]));
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_listed<'b>(&self, listed: &Listed, buffer: &'b mut Buffer) -> Result<Option<Object<'b>>> {
        self.engine().read_listed(&listed.key, listed.entry, buffer)
    }
}

/// The entry of a key in a state of the index; for one of several names, that of the shared object.
fn entry_in(snapshot: &Snapshot, key: &Key) -> Result<Option<Listed>> {
    let Some(entry) = snapshot.look_up_path(key.stored())? else { return Ok(None) };
    if entry.kind != Kind::Link {
        return Ok(Some(Listed { key: key.clone(), entry, shared: None }));
    }
    let shared = entry.linked();
    let entry = snapshot.look_up(&object_key(shared))?;
    Ok(entry.map(|entry| Listed { key: key.clone(), entry, shared: Some(shared) }))
}

impl PinnedSnapshot {
    fn new(store: &Store, pin: Pin, view: &View, sequence: Option<u64>) -> PinnedSnapshot {
        let now = view.snapshot();
        let snapshot = match sequence {
            Some(sequence) => now.at(sequence),
            None => now,
        };
        PinnedSnapshot { store: store.clone(), snapshot, sequence, pin }
    }

    pub(super) fn store(&self) -> &Store {
        &self.store
    }

    /// Where an object is now that could not be read where it was.
    ///
    /// # Errors
    /// The `error` of reading it, unless it was moved; [`Busy`](crate::error::ErrorKind::Busy) if it was freed.
    pub(super) fn find_again(&self, key: &Key, was: &Entry, error: Error) -> Result<Entry> {
        if self.pin.is_held() || !is_of_place(&error) {
            return Err(error);
        }
        let engine = self.store.engine();
        let now = engine.snapshot_again(self.sequence)?;
        let again = now.map_or(Ok(None), |now| entry_in(&now, key))?.map(|listed| listed.entry);
        let moved = again.filter(|again| again.id == was.id && again != was);
        moved.ok_or_else(|| engine.or_freed(self.pin.loose(), error))
    }

    /// The index entry of a key in this state; for one of several names, that of the shared object.
    ///
    /// # Errors
    /// Errors of reading the index.
    pub fn entry(&self, key: &Key) -> Result<Option<Listed>> {
        entry_in(&self.snapshot, key)
    }

    /// Reads and verifies an object as it was.
    ///
    /// # Errors
    /// As [`Store::read`]; [`Busy`](crate::error::ErrorKind::Busy) if it was freed, as this user may not keep it.
    pub fn read<'b>(&self, key: &Key, buffer: &'b mut Buffer) -> Result<Option<Object<'b>>> {
        let Some(Listed { mut entry, .. }) = self.entry(key)? else { return Ok(None) };
        loop {
            match self.store.engine().stored(key, entry, buffer) {
                Ok(stored) => return object(key, stored, buffer).map(Some),
                Err(error) => entry = self.find_again(key, &entry, error)?,
            }
        }
    }

    /// The entries of a directory, by name; from `name` on, if that is not empty.
    ///
    /// # Errors
    /// As [`Store::list`].
    pub fn list(&self, directory: &Key, name: &[u8]) -> Result<Walk> {
        Walk::list(self.snapshot.clone(), directory, name)
    }

    /// An object and everything below it, in key order; from `from` on.
    ///
    /// # Errors
    /// Errors of reading the index.
    pub fn walk(&self, top: &Key, from: &Key) -> Result<Walk> {
        Walk::from(self.snapshot.clone(), top, from)
    }
}
