//! Open files: what handles of one object share, and how it follows the object.
//!
//! A process has one open file per object, found by its number, as long as a handle to it exists. It knows the key of
//! the object and its entry in the index: every change that this process makes is first reported here
//! ([`Engine::meet_open_files`], with the writer's lock held): the new location of the record, or that the last name is
//! gone. Then the object lives on without a name: a record where it is, until it is read or its segment is about to be
//! unlinked, and then in memory (so an open file needs memory up to the cutoff); a large object's descriptor in memory,
//! with claims that protect the extent files with its units, and no others, from being freed. Nothing in the log or the
//! index refers to it: after a crash such an object is gone, its units are dead, and compaction frees them.
//!
//! A process that does not write sees no changes; there an open file consults the index when it is read.
//!
//! | module | subject |
//! | --- | --- |
//! | this one | the open files, and following changes |
//! | [`pending`] | writes that are not committed |
//! | [`rewrite`] | committing them |
//!
//! Invariants: content of a file without a name is in memory, in a segment that is there, or known to be damaged; an
//! entry changes only with the writer's lock held; no device is read with the list or a place locked. Survived: a
//! record that moves while it is read; a failed commit, after which everything pending still is.

pub(crate) mod pending;
pub(crate) mod rewrite;

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, RwLock, Weak};

use self::pending::Pending;
use super::{Engine, look_up_in};
use crate::devices::extents::{Allocator, Touched};
use crate::engine::content::{Base, StoredContent};
use crate::engine::records::decompress;
use crate::error::{Error, ErrorKind, Result};
use crate::format::attributes::{Attributes, Holes};
use crate::format::descriptor::Descriptor;
use crate::format::entry::{Entry, Kind};
use crate::format::ids::{ObjectNumber, SegmentNumber};
use crate::format::index_key::{directory_of, is_superseded, object_key};
use crate::index::catalog::Change;
use crate::locks::{lock, unpoisoned};

/// What an object is at one moment.
#[derive(Debug, Clone)]
pub(crate) struct NamedBase {
    pub(crate) base: Arc<Base>,
    /// Its key in the index and the entry that `base` is the content of; `None` without a name.
    named: Option<(Arc<[u8]>, Entry)>,
}

/// The place of an object.
#[derive(Debug, Default)]
struct FilePlace {
    /// Its key in the index and its entry; `None` without a name.
    named: Option<(Arc<[u8]>, Entry)>,
    /// The object in the entry's record.
    base: Option<Arc<Base>>,
    /// Whether it ever had a name: its units are then not reallocated.
    was_named: bool,
    /// For an object without a name: the extent files with its units.
    touched: Touched,
    /// For an object without a name that was not read yet: its entry, whose record is no longer live, but there.
    unread: Option<Entry>,
    /// Why an object without a name has no content.
    damage: Option<String>,
}

/// State shared by the handles of an object.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(crate) number: ObjectNumber,
    pub(crate) pending: RwLock<Pending>,
    place: Mutex<FilePlace>,
    list: Arc<OpenFiles>,
    allocator: Arc<Allocator>,
}

/// The open files of a process.
#[derive(Debug, Default)]
pub(crate) struct OpenFiles {
    known: Mutex<Registry>,
}

#[derive(Debug, Default)]
struct Registry {
    files: HashMap<ObjectNumber, Weak<OpenFile>>,
    /// Numbers of those with a name, by key.
    keys: HashMap<Arc<[u8]>, ObjectNumber>,
}

/// The effect of a change on an open file.
#[derive(Debug)]
enum OpenFileChange {
    /// The new location of its record.
    Placed(Arc<[u8]>, Entry),
    /// It no longer has a name; with its content, if that is not in memory and must be read now.
    Unnamed(Option<Result<Base>>),
}

/// Whether the object of an entry can be read when nothing refers to it: all of it is in its record. The units of a
/// large object are reused; attributes that were changed alone are found through the index.
fn can_be_read_later(entry: &Entry) -> bool {
    entry.kind == Kind::File && entry.attributes_id == 0
}

/// The effects of a change on open files.
#[derive(Debug, Default)]
pub(crate) struct MetFiles(Vec<(Arc<OpenFile>, OpenFileChange)>);

impl FilePlace {
    /// The entry of the record to read, with a name or without.
    fn entry(&self) -> Option<Entry> {
        self.named.as_ref().map(|(_, entry)| *entry).or(self.unread)
    }

    /// An object without a name was read.
    fn has_read(&mut self, read: Result<Base>) {
        self.unread = None;
        match read {
            Ok(base) => _ = self.base.get_or_insert_with(|| Arc::new(base)),
            Err(error) if self.base.is_none() => self.damage = Some(error.to_string()),
            Err(_) => {}
        }
    }
}

fn is_file(entry: &Entry) -> bool {
    matches!(entry.kind, Kind::File | Kind::Large)
}

impl OpenFiles {
    /// Applies what [`Engine::meet_open_files`] found, once the index has it.
    pub(crate) fn follow(&self, mut met: MetFiles) {
        if met.0.is_empty() {
            return;
        }
        // Released before the files, whose last reference may be here and which then lock it.
        let mut known = lock(&self.known);
        for (file, _) in &met.0 {
            if let Some((key, _)) = &lock(&file.place).named {
                known.keys.remove(key);
            }
        }
        for (file, met) in &mut met.0 {
            let mut place = lock(&file.place);
            match met {
                OpenFileChange::Placed(key, entry) => {
                    known.keys.insert(Arc::clone(key), file.number);
                    let is_same = |old: &Entry| (old.id, old.attributes_id) == (entry.id, entry.attributes_id);
                    let is_moved = place.named.as_ref().is_some_and(|(_, old)| is_same(old));
                    if !is_moved || entry.kind == Kind::Large {
                        place.base = None;
                    }
                    place.named = Some((Arc::clone(key), *entry));
                    (place.was_named, place.touched) = (true, Touched::default());
                }
                OpenFileChange::Unnamed(read) => {
                    let entry = place.named.take().map(|(_, entry)| entry);
                    match read.take() {
                        Some(read) => place.has_read(read),
                        None if place.base.is_none() => place.unread = entry,
                        None => {}
                    }
                    file.claim(&mut place);
                }
            }
        }
    }

    /// All files that are open now.
    pub(crate) fn all(&self) -> Vec<Arc<OpenFile>> {
        lock(&self.known).files.values().filter_map(Weak::upgrade).collect()
    }

    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        lock(&self.known).files.len()
    }
}

impl Engine {
    /// What a change in the log will do to open files. A file that loses its name and is not in memory is read while
    /// its location is valid. Called with the writer's lock held.
    pub(crate) fn meet_open_files(&self, change: &Change) -> MetFiles {
        let mut met: HashMap<ObjectNumber, (Arc<OpenFile>, OpenFileChange)> = HashMap::new();
        // No file is closed with the list locked.
        let mut looked_at: Vec<Arc<OpenFile>> = Vec::new();
        {
            let known = lock(&self.open_files.known);
            if known.files.is_empty() {
                return MetFiles::default();
            }
            let open = |number: &ObjectNumber| known.files.get(number).and_then(Weak::upgrade);
            // Superseded versions for snapshots are irrelevant.
            let of_now = change.recent.iter().filter(|(key, entry)| is_file(entry) && !is_superseded(key));
            for (key, entry) in of_now {
                if let Some(file) = open(&entry.number) {
                    met.insert(entry.number, (file, OpenFileChange::Placed(Arc::clone(key), *entry)));
                }
            }
            let ranges = change.ranges.iter().flatten().fold(HashMap::<ObjectNumber, u64>::new(), |mut ranges, row| {
                let id = ranges.entry(row.directory).or_default();
                *id = row.id.max(*id);
                ranges
            });
            let changed = change.recent.iter().map(|(key, _)| key).chain(&change.forget);
            let mut unnamed: Vec<ObjectNumber> = changed.filter_map(|key| known.keys.get(key)).copied().collect();
            for (key, number) in known.keys.iter().filter(|_| !ranges.is_empty()) {
                let removal = directory_of(key).and_then(|directory| ranges.get(&directory));
                if let (Some(&id), Some(file)) = (removal, open(number)) {
                    if lock(&file.place).named.as_ref().is_some_and(|(_, entry)| id > entry.id) {
                        unnamed.push(*number);
                    }
                    looked_at.push(file);
                }
            }
            unnamed.retain(|number| !met.contains_key(number));
            met.extend(
                unnamed.iter().filter_map(|number| Some((*number, (open(number)?, OpenFileChange::Unnamed(None))))),
            );
        }
        drop(looked_at);
        for (file, met) in met.values_mut() {
            if let OpenFileChange::Unnamed(read) = met
                && let Some(entry) = file.entry_to_read()
                && !can_be_read_later(&entry)
            {
                *read = Some(self.read_base(&entry));
            }
        }
        MetFiles(met.into_values().collect())
    }

    /// Reads the open files without a name that were not read yet, and whose segments are about to be unlinked. Called
    /// with the writer's lock held.
    pub(crate) fn read_before_unlinking(&self, is_unlinked: impl Fn(SegmentNumber) -> bool) {
        for file in self.open_files.all() {
            let unread = lock(&file.place).unread;
            let Some(entry) = unread.filter(|entry| is_unlinked(entry.location.segment)) else { continue };
            let read = self.read_base(&entry);
            let mut place = lock(&file.place);
            if place.unread == Some(entry) {
                place.has_read(read);
            }
        }
    }

    /// The object of an entry.
    ///
    /// # Errors
    /// Any error of reading its record.
    fn read_base(&self, entry: &Entry) -> Result<Base> {
        let mut buffer = Vec::new();
        let record = self.read_entry(entry, &mut buffer)?;
        let attributes = self.attributes_of(entry, &record.head)?;
        let content = match entry.kind {
            Kind::Large => StoredContent::Striped(self.decode_descriptor(entry.location, record.content)?),
            _ if record.head.is_zstd => {
                let data_bytes = attributes.holes.as_ref().map_or(entry.size_bytes, Holes::data_bytes);
                StoredContent::Whole(decompress(record.content, data_bytes)?)
            }
            _ => StoredContent::Whole(record.content.to_vec()),
        };
        Ok(Base { attributes, size_bytes: entry.size_bytes, content })
    }

    /// Opens the file at a key of the index; `find` returns key and entry, and is called with the writer's lock held,
    /// so that no change is missed.
    ///
    /// # Errors
    /// Those of `find`.
    pub(crate) fn open_file(
        &self,
        find: impl FnOnce() -> Result<Option<(Arc<[u8]>, Entry)>>,
    ) -> Result<Option<Arc<OpenFile>>> {
        // A store that is no longer written does not change either.
        let _writer = self.writer().ok();
        let Some((key, entry)) = find()? else { return Ok(None) };
        let mut known = lock(&self.open_files.known);
        if let Some(open) = known.files.get(&entry.number).and_then(Weak::upgrade) {
            drop(known);
            if !self.is_writer() {
                open.met_at(key, entry);
            }
            return Ok(Some(open));
        }
        let place = FilePlace { named: Some((Arc::clone(&key), entry)), was_named: true, ..FilePlace::default() };
        let file = self.new_open_file(entry.number, place);
        if self.is_writer() {
            // Elsewhere keys change unseen, and nobody looks for files by them.
            known.keys.insert(key, entry.number);
        }
        known.files.insert(entry.number, Arc::downgrade(&file));
        Ok(Some(file))
    }

    /// Opens an empty file without a name.
    pub(crate) fn open_nameless(&self, attributes: Attributes) -> Arc<OpenFile> {
        let number = ObjectNumber(self.highest_id.fetch_add(1, Ordering::Relaxed) + 1);
        let base =
            Base { attributes: attributes.dated(self.now()), size_bytes: 0, content: StoredContent::Whole(Vec::new()) };
        let file = self.new_open_file(number, FilePlace { base: Some(Arc::new(base)), ..FilePlace::default() });
        lock(&self.open_files.known).files.insert(number, Arc::downgrade(&file));
        file
    }

    fn new_open_file(&self, number: ObjectNumber, place: FilePlace) -> Arc<OpenFile> {
        let (list, allocator) = (Arc::clone(&self.open_files), self.allocator());
        Arc::new(OpenFile { number, pending: RwLock::default(), place: Mutex::new(place), list, allocator })
    }
}

impl OpenFile {
    /// Whether it has a name.
    pub(crate) fn is_named(&self) -> bool {
        lock(&self.place).named.is_some()
    }

    /// The object, if it is a large one without a name: no index and no record references it.
    pub(crate) fn striped_without_name(&self) -> Option<Arc<Base>> {
        let place = lock(&self.place);
        let base = place.base.as_ref().filter(|_| place.named.is_none())?;
        matches!(base.content, StoredContent::Striped(_)).then(|| Arc::clone(base))
    }

    /// The units of an object without a name have moved; returns whether the object still was `before`. Called with the
    /// pending state locked.
    pub(crate) fn move_units(&self, before: &Arc<Base>, descriptor: Descriptor, touched: &Touched) -> bool {
        let mut place = lock(&self.place);
        if place.named.is_some() || !place.base.as_ref().is_some_and(|base| Arc::ptr_eq(base, before)) {
            return false;
        }
        let (attributes, size_bytes) = (before.attributes.clone(), before.size_bytes);
        place.base = Some(Arc::new(Base { attributes, size_bytes, content: StoredContent::Striped(descriptor) }));
        place.touched.merge(touched.clone());
        self.claim(&mut place);
        true
    }

    /// Its entry in the index, if that must be read to know the object.
    fn entry_to_read(&self) -> Option<Entry> {
        let place = lock(&self.place);
        place.named.as_ref().filter(|_| place.base.is_none()).map(|(_, entry)| *entry)
    }

    /// Protects the extent files with its units.
    fn claim(&self, place: &mut FilePlace) {
        let Some(base) = place.base.clone() else { return };
        if let StoredContent::Striped(descriptor) = &base.content {
            for run in descriptor.runs() {
                place.touched.claim(run.device, run.file, &self.allocator.claim(run.device, run.file));
            }
        }
    }

    /// The object without pending changes.
    ///
    /// # Errors
    /// As [`current`](Self::current).
    pub(crate) fn base(&self, engine: &Engine) -> Result<Arc<Base>> {
        self.current(engine).map(|current| current.base)
    }

    /// The object without pending changes, and its entry, of the same moment.
    ///
    /// # Errors
    /// Any error of reading its record.
    fn current(&self, engine: &Engine) -> Result<NamedBase> {
        if !engine.is_writer() {
            self.look_again(engine)?;
        }
        loop {
            let entry = {
                let place = lock(&self.place);
                match (&place.base, place.entry()) {
                    (Some(base), _) => return Ok(NamedBase { base: Arc::clone(base), named: place.named.clone() }),
                    (None, Some(entry)) => entry,
                    (None, None) => {
                        let cause = place.damage.clone().unwrap_or_default();
                        return Err(Error::new(ErrorKind::Corrupt, "read the object without a name", cause));
                    }
                }
            };
            let read = engine.read_base(&entry);
            let mut place = lock(&self.place);
            if place.base.is_some() || place.entry() != Some(entry) {
                // It moved or changed meanwhile.
                continue;
            }
            match read {
                Err(error) if place.named.is_none() => return Err(error),
                Ok(base) => {
                    place.unread = None;
                    let base = Arc::clone(place.base.insert(Arc::new(base)));
                    return Ok(NamedBase { base, named: place.named.clone() });
                }
                Err(error) if engine.is_writer() => {
                    let key = place.named.as_ref().map(|(key, _)| Arc::clone(key)).unwrap_or_default();
                    drop(place);
                    // A change that the index has already, and this file is about to follow, is not damage.
                    if look_up_in(engine.view(), &key)?.1 == Some(entry) {
                        return Err(error);
                    }
                    std::thread::yield_now();
                }
                Err(error) => {
                    drop(place);
                    engine.look_again()?;
                    if !self.look_again(engine)? {
                        return Err(self.gone_or(engine, error));
                    }
                }
            }
        }
    }

    /// If another process writes, rereads the object; returns whether it has changed.
    fn look_again(&self, engine: &Engine) -> Result<bool> {
        let Some((mut key, before)) = lock(&self.place).named.clone() else { return Ok(false) };
        let is_this = |now: &Entry| is_file(now) && now.number == self.number;
        let mut now = look_up_in(engine.fresh()?, &key)?.1.filter(is_this);
        if now.is_none() {
            // With a second name it is found by its number.
            key = object_key(self.number)[..].into();
            now = look_up_in(engine.fresh()?, &key)?.1.filter(is_this);
        }
        // A removed object stays what it was as long as it can be read.
        let Some(now) = now.filter(|now| *now != before) else { return Ok(false) };
        let mut place = lock(&self.place);
        (place.base, place.named) = (None, Some((key, now)));
        Ok(true)
    }

    /// Another process writes, and this was met at a key that may be new. Ids of records only grow.
    fn met_at(&self, key: Arc<[u8]>, entry: Entry) {
        let mut place = lock(&self.place);
        if place.named.as_ref().is_some_and(|(_, known)| known.id < entry.id) {
            (place.base, place.named) = (None, Some((key, entry)));
        }
    }

    /// That another process has removed it, if so; else the error.
    fn gone_or(&self, engine: &Engine, error: Error) -> Error {
        let named = lock(&self.place).named.clone().filter(|_| !engine.is_writer());
        let Some((key, _)) = named else { return error };
        match look_up_in(engine.view(), &key) {
            Ok((_, now)) if now.is_none_or(|now| now.number != self.number) => {
                Error::new(ErrorKind::Busy, "read", "it was removed, renamed or replaced, and its space was freed")
                    .advise("open it again")
            }
            _ => error,
        }
    }

    /// Calls `read` with the object; if that fails to read it, and the object was moved or changed meanwhile, once
    /// more.
    ///
    /// # Errors
    /// Those of `read`, and of [`base`](Self::base).
    pub(crate) fn read_with<T>(&self, engine: &Engine, mut read: impl FnMut(&NamedBase) -> Result<T>) -> Result<T> {
        loop {
            let current = self.current(engine)?;
            match read(&current) {
                Err(error) if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Lost | ErrorKind::NotFound) => {
                    if !engine.is_writer() {
                        engine.look_again()?;
                    }
                    if Arc::ptr_eq(&self.base(engine)?, &current.base) {
                        return Err(self.gone_or(engine, error));
                    }
                }
                other => return other,
            }
        }
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        let mut known = lock(&self.list.known);
        let place = unpoisoned(self.place.get_mut());
        // It may have been reopened meanwhile.
        if known.files.get(&self.number).is_some_and(|open| open.strong_count() == 0) {
            known.files.remove(&self.number);
            if let Some((key, _)) = &place.named {
                known.keys.remove(key);
            }
        }
        drop(known);
        if let Some(base) = place.base.take().filter(|_| !place.was_named)
            && let StoredContent::Striped(descriptor) = &base.content
        {
            self.allocator.give_up(descriptor);
        }
    }
}
