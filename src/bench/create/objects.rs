//! The same operations on a store: put, stat and remove of an object, each in a batch of its own.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use super::name::Name;
use super::{CreateRequest, Durability, FileOperations, content};
use crate::bench::clock::try_timed;
use crate::bench::samples::Latencies;
use crate::error::{Error, ErrorKind, Result};
use crate::store::{self, Attributes, Key, Plan, Store, Time};

/// Largest object, in bytes: an object is put whole.
pub(super) const LARGEST_OBJECT_BYTES: u64 = 256 << 20;

/// Tests whether `home` can hold a store: creates one, puts an object, and reads it back.
pub(super) fn try_store(home: &Path) -> Result<()> {
    let store = Store::create(home, &Plan::default())?;
    let key = Key::parse("probe")?;
    store.put(&key, &Attributes::of_file(Time::default()), b"x")?;
    drop(store);
    Store::open(home)?.get(&key).map(|_| ())
}

/// Objects in a store.
pub(super) struct Objects {
    store: Store,
    name: Name,
    directory_files: u64,
    durability: Durability,
    attributes: Attributes,
    content: Vec<u8>,
    since_sync: u64,
}

impl Objects {
    /// Opens the store at `home`, or creates it.
    pub(super) fn open(home: &Path, request: &CreateRequest, seed: u64) -> Result<Objects> {
        let store = match store::is_store(home) {
            true => Store::open(home)?,
            false => Store::create(home, &Plan::default())?,
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut bytes = content(request.size_bytes, seed);
        let piece = bytes.clone();
        while (bytes.len() as u64) < request.size_bytes {
            let more = (request.size_bytes - bytes.len() as u64).min(piece.len() as u64) as usize;
            bytes.extend_from_slice(&piece[..more]);
        }
        Ok(Objects {
            store,
            name: Name::new(),
            directory_files: request.directory_files,
            durability: request.durability,
            attributes: Attributes::of_file(Time { seconds: now.as_secs() as i64, nanoseconds: 0 }),
            content: bytes,
            since_sync: 0,
        })
    }

    fn key(&mut self, number: u64) -> Result<Key> {
        let directory = (number - 1).checked_div(self.directory_files).map_or(0, |before| before + 1);
        self.name.set_file(directory, number);
        Key::parse(self.name.as_bytes())
    }

    /// The durability to request from the store, and whether this operation completes its batch.
    fn durability(&mut self) -> (store::Durability, bool) {
        let ends = self.durability.ends_batch(&mut self.since_sync);
        let asked =
            if self.durability == Durability::Each { store::Durability::Batch } else { store::Durability::None };
        (asked, ends)
    }
}

impl FileOperations for Objects {
    fn create(&mut self, number: u64, latencies: &mut Latencies) -> Result<()> {
        let key = self.key(number)?;
        let (durability, ends_batch) = self.durability();
        if let Some(head) = self.content.first_chunk_mut() {
            *head = number.to_le_bytes();
        }
        try_timed(latencies, || {
            let mut batch = self.store.batch(durability);
            batch.put(&key, &self.attributes, &self.content)?;
            batch.commit()?;
            if ends_batch { self.store.sync() } else { Ok(()) }
        })
    }

    fn stat(&mut self, number: u64, latencies: &mut Latencies) -> Result<()> {
        let key = self.key(number)?;
        let found = try_timed(latencies, || self.store.stat(&key))?;
        found.map(|_| ()).ok_or_else(|| missing("stat", &key))
    }

    fn delete(&mut self, number: u64, latencies: &mut Latencies) -> Result<()> {
        let key = self.key(number)?;
        let (durability, ends_batch) = self.durability();
        let was_there = try_timed(latencies, || -> Result<bool> {
            let mut batch = self.store.batch(durability);
            let was_there = batch.remove(&key)?;
            batch.commit()?;
            if ends_batch {
                self.store.sync()?;
            }
            Ok(was_there)
        })?;
        if was_there { Ok(()) } else { Err(missing("remove", &key)) }
    }

    fn delete_as_listed(
        &mut self,
        _made: u64,
        _latencies: &mut Latencies,
        _go_on: &mut dyn FnMut(u64) -> bool,
    ) -> Option<Result<()>> {
        None
    }

    fn sync(&mut self) -> Result<()> {
        self.store.sync()
    }
}

fn missing(operation: &'static str, key: &Key) -> Error {
    Error::new(ErrorKind::Lost, operation, "the object that was just stored is missing").at(&key.to_path())
}
