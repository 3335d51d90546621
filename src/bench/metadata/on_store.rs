//! The same operations on objects of granulo's store, through its library.
//!
//! The store has no handles and overwrites nothing in place: LOOKUP, GETATTR and ACCESS are all one index lookup; WRITE
//! and SETATTR rewrite the whole object.

use std::path::Path;
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

use super::files::{FileSet, LARGE_DIRECTORY, SPARE_FILES};
use super::mix::Operation;
use super::target::{Aim, MOST_LISTED, Memory, Target, is_right, range};
use crate::error::{Error, ErrorKind, Result};
use crate::locks::lock;
use crate::progress::Progress;
use crate::store::{Attributes, CompactOptions, Durability, Key, Plan, Store, Time};

/// Objects in a store.
#[derive(Debug)]
pub(super) struct Objects<'s> {
    store: Store,
    set: &'s FileSet,
    transfer_bytes: u64,
    durability: Durability,
}

/// Creates a store with all objects; `go_on` receives the number so far. Returns whether it finished.
///
/// # Errors
/// Errors from creating them.
pub(super) fn fill(
    home: &Path,
    plan: &Plan,
    set: &FileSet,
    listed: u64,
    go_on: &mut dyn FnMut(u64) -> bool,
) -> Result<bool> {
    let store = Store::create(home, plan)?;
    let (of_file, of_directory) = (Attributes::of_file(now()), Attributes::of_directory(now()));
    let (mut name, mut target) = (String::new(), String::new());
    let mut batch = store.batch(Durability::Batch);
    for directory in 0..set.directories() {
        set.name_directory(directory, &mut name);
        batch.directory(&Key::parse(&name)?, &of_directory)?;
        set.name_link(directory, &mut name);
        set.name_target(directory, &mut target);
        batch.symlink(&Key::parse(&name)?, &of_file, target.as_bytes())?;
    }
    for number in 0..set.files {
        set.name_file(number, &mut name);
        batch.put(&Key::parse(&name)?, &of_file, set.content(number))?;
        if !go_on(number) {
            return Ok(false);
        }
    }
    for number in 0..SPARE_FILES {
        set.name_fresh(number, &mut name);
        batch.put(&Key::parse(&name)?, &of_file, b"")?;
    }
    if listed > 0 {
        batch.directory(&Key::parse(LARGE_DIRECTORY)?, &of_directory)?;
    }
    for number in 0..listed {
        set.name_listed(number, &mut name);
        batch.put(&Key::parse(&name)?, &of_file, b"")?;
        if !go_on(set.files + number) {
            return Ok(false);
        }
    }
    batch.commit()?;
    Ok(true)
}

fn now() -> Time {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time { seconds: now.as_secs() as i64, nanoseconds: 0 }
}

impl<'s> Objects<'s> {
    /// Opens the store at `home`, for writing if `is_changed`.
    pub(super) fn open(
        home: &Path,
        set: &'s FileSet,
        transfer_bytes: u64,
        is_durable: bool,
        is_changed: bool,
    ) -> Result<Objects<'s>> {
        let store = if is_changed { Store::open(home)? } else { Store::open_read_only(home)? };
        let durability = if is_durable { Durability::Batch } else { Durability::None };
        Ok(Objects { store, set, transfer_bytes, durability })
    }

    /// Rewrites an object with other attributes and the same content.
    fn set_time(&self, key: &Key, memory: &mut Memory) -> Result<()> {
        let object = self.store.read(key, &mut memory.object)?.ok_or_else(|| missing(key))?;
        self.put(key, &Attributes { mtime: now(), ctime: None, ..object.attributes }, object.content)
    }

    fn put(&self, key: &Key, attributes: &Attributes, content: &[u8]) -> Result<()> {
        let mut batch = self.store.batch(self.durability);
        batch.put(key, attributes, content)?;
        batch.commit()
    }

    fn remove(&self, key: &Key) -> Result<()> {
        let mut batch = self.store.batch(self.durability);
        let was_there = batch.remove(key)?;
        batch.commit()?;
        if was_there { Ok(()) } else { Err(missing(key)) }
    }

    fn list_some(&self, key: &Key) -> Result<()> {
        self.store.list(key)?.take(MOST_LISTED).try_for_each(|entry| entry.map(|_| ()))
    }
}

impl Target for Objects<'_> {
    fn perform(&self, operation: Operation, aim: Aim, memory: &mut Memory) -> Result<()> {
        match operation {
            Operation::Create | Operation::Remove => self.set.name_fresh(aim.fresh, &mut memory.name),
            Operation::ReadDir | Operation::ReadDirPlus => {
                self.set.name_directory(self.set.directory_of(aim.file), &mut memory.name);
            }
            Operation::ReadLink => self.set.name_link(self.set.directory_of(aim.file), &mut memory.name),
            _ => self.set.name_file(aim.file, &mut memory.name),
        }
        let key = Key::parse(&memory.name)?;
        match operation {
            Operation::Lookup | Operation::GetAttr | Operation::Access => {
                self.store.entry(&key)?.map(|_| ()).ok_or_else(|| missing(&key))
            }
            Operation::ReadLink => self.store.read(&key, &mut memory.object)?.map(|_| ()).ok_or_else(|| missing(&key)),
            Operation::ReadDir | Operation::ReadDirPlus => self.list_some(&key),
            Operation::SetAttr => self.set_time(&key, memory),
            Operation::Create => self.put(&key, &Attributes::of_file(now()), b""),
            Operation::Remove => self.remove(&key),
            Operation::FsStat => self.store.status(false).map(|_| ()),
            Operation::Commit => self.store.sync(),
            Operation::Write => self.put(&key, &Attributes::of_file(now()), self.set.content(aim.file)),
            Operation::Read => {
                let range = range(self.set, aim, self.transfer_bytes);
                let length = range.end - range.start;
                memory.bytes.clear();
                match self.store.read_range(&key, range, &mut memory.bytes)? {
                    Some(read) if read == length => Ok(()),
                    Some(_) => Err(wrong(&key)),
                    None => Err(missing(&key)),
                }
            }
        }
    }

    fn read_whole(&self, number: u64, memory: &mut Memory) -> Result<()> {
        self.set.name_file(number, &mut memory.name);
        let key = Key::parse(&memory.name)?;
        let object = self.store.read(&key, &mut memory.object)?.ok_or_else(|| missing(&key))?;
        if is_right(self.set.content(number), object.content) { Ok(()) } else { Err(wrong(&key)) }
    }

    fn read_together(&self, numbers: &[u64], depth: usize) -> Option<Result<()>> {
        let mut name = String::new();
        let keys: Result<Vec<Key>> = numbers
            .iter()
            .map(|&number| {
                self.set.name_file(number, &mut name);
                Key::parse(&name)
            })
            .collect();
        let keys = match keys {
            Ok(keys) => keys,
            Err(error) => return Some(Err(error)),
        };
        let first_error: Mutex<Option<Error>> = Mutex::new(None);
        self.store.get_many(&keys, depth, |at, found| {
            let error = match found {
                Ok(Some(object)) if is_right(self.set.content(numbers[at]), object.content) => return,
                Ok(Some(_)) => wrong(&keys[at]),
                Ok(None) => missing(&keys[at]),
                Err(error) => error,
            };
            lock(&first_error).get_or_insert(error);
        });
        Some(first_error.into_inner().unwrap_or_default().map_or(Ok(()), Err))
    }

    fn list(&self, go_on: &mut dyn FnMut(u64) -> bool) -> Result<u64> {
        let mut listed = 0;
        for entry in self.store.list(&Key::parse(LARGE_DIRECTORY)?)? {
            entry?;
            listed += 1;
            if !go_on(listed) {
                break;
            }
        }
        Ok(listed)
    }

    fn sync(&self) -> Result<()> {
        self.store.sync()
    }
}

/// Frees the space of dead records in the store at `home`; returns whether it finished.
///
/// # Errors
/// Errors from moving records.
pub(super) fn compact(home: &Path, progress: &Progress) -> Result<bool> {
    let options = CompactOptions { is_alone: true, ..CompactOptions::default() };
    let store = Store::open(home)?;
    let compacted = store.compact(&options, &progress.part())?;
    Ok(!compacted.is_interrupted)
}

fn missing(key: &Key) -> Error {
    Error::new(ErrorKind::Lost, "find", "a stored object is missing").at(&key.to_path())
}

fn wrong(key: &Key) -> Error {
    Error::new(ErrorKind::Corrupt, "read", "the data read differs from the data stored").at(&key.to_path())
}
