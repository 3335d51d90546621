//! Changing names and attributes of existing objects: rename, exchange, hard link, new attributes.
//!
//! A record has the name of its object, so changing that rewrites the record: number and content are unchanged, units
//! of large objects stay in place, and each object is still found with one look-up. The cost is a record: at most the
//! cutoff for a file, a hundred bytes for a directory, whatever it contains. New attributes of a file are a record
//! without its content, unless its own is hardly longer ([`attributes`](crate::engine::attributes)).
//!
//! Each operation is one piece of the log: after a crash it is applied completely or not at all. Waiting records of the
//! batch are committed before.

use std::sync::Arc;

use super::admission::{is_changed, within_itself};
use super::committer::{Existing, Named, Onto, RecordSubject, SeenEntry};
use super::{Batch, recorded_name};
use crate::Durability;
use crate::devices::extents::Touched;
use crate::engine::attributes::are_changed_alone;
use crate::engine::content::{Base, entry_of};
use crate::engine::records::{decode_attributes, unknown_attributes};
use crate::error::{Error, ErrorKind, Result};
use crate::format::attributes::{Attributes, changed_again};
use crate::format::entry::{Entry, Kind, Time};
use crate::format::ids::ObjectNumber;
use crate::format::index_key::{ROOT_KEY, entry_key, object_key};
use crate::format::key::{Key, is_within, shared_key};
use crate::format::record::{NewRecord, content_checksum};

/// How often to retry while others keep changing the same names.
const ATTEMPTS: u32 = 100;
/// The file type in a mode.
const TYPE: u16 = 0o170_000;

/// An object where it was seen.
struct Source<'k> {
    key: &'k Key,
    seen: SeenEntry,
    entry: Entry,
    /// Whether the entry is that of the file to which the name leads.
    is_followed: bool,
}

impl Source<'_> {
    /// Whether it has the name of a key that leads to this directory: the key may have another form.
    fn is_at(&self, key: &Key, directory: ObjectNumber) -> bool {
        self.seen.directory == directory && self.key.name() == key.name()
    }

    /// The key of the entry.
    fn index_key(&self) -> Vec<u8> {
        match self.is_followed {
            true => object_key(self.entry.number).to_vec(),
            false => entry_key(self.seen.directory, self.key.name().unwrap_or_default()),
        }
    }
}

impl Batch<'_> {
    /// Renames an object; a directory keeps everything in it. It keeps its number. If both names are one, or belong to
    /// one file, nothing happens. If a key begins at the number of a directory, the caller knows that a directory does
    /// not come below itself.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if it or its new directory does not exist; [`ErrorKind::Exists`] if the name is taken
    /// and must not be, or by a directory for a file, or vice versa; [`ErrorKind::Usage`] if a directory would be below
    /// itself, or one that is not empty has the name; any error of reading the record and of writing.
    pub fn rename(&mut self, from: &Key, to: &Key, existing: Existing) -> Result<()> {
        self.refuse_root(from)?;
        self.refuse_root(to)?;
        self.at_once(|batch| {
            let source = batch.source("rename", from)?;
            let seen = batch.see(to)?;
            let target = seen.and_then(|seen| seen.entry);
            let is_same_name = seen.is_some_and(|seen| source.is_at(to, seen.directory));
            let is_same_file = |target: Entry| source.entry.kind == Kind::Link && target.number == source.entry.number;
            match target {
                Some(_) if existing == Existing::Refuse => return Err(is_taken("rename", to)),
                _ if is_same_name || target.is_some_and(is_same_file) => return Ok(()),
                _ if is_within(to.stored(), from.stored()) => return Err(within_itself(to.stored())),
                _ => {}
            }
            batch.add_again(&source, to.stored().into(), Onto::Any(existing), None)?;
            batch.add_removal(from, SeenEntry { has_other: true, ..source.seen })
        })
    }

    /// Exchanges the names of two objects. If a key begins at the number of a directory, the caller knows that neither
    /// is below the other.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if one of them does not exist; [`ErrorKind::Usage`] if one is below the other; any error
    /// of reading records and of writing.
    pub fn exchange(&mut self, one: &Key, other: &Key) -> Result<()> {
        self.refuse_root(one)?;
        self.refuse_root(other)?;
        self.at_once(|batch| {
            let (first, second) = (batch.source("exchange", one)?, batch.source("exchange", other)?);
            if first.is_at(other, second.seen.directory) {
                return Ok(());
            }
            if is_within(one.stored(), other.stored()) || is_within(other.stored(), one.stored()) {
                return Err(within_itself(one.stored().max(other.stored())));
            }
            batch.add_again(&first, other.stored().into(), Onto::Seen(second.seen.directory), None)?;
            batch.add_again(&second, one.stored().into(), Onto::Seen(first.seen.directory), None)
        })
    }

    /// Adds another name to anything but a directory. What has a single name is rewritten as what can have several.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if it or the directory of the name does not exist; [`ErrorKind::Exists`] if the name is
    /// taken; [`ErrorKind::Usage`] if it is a directory; any error of reading the record and of writing.
    pub fn hard_link(&mut self, existing: &Key, name: &Key) -> Result<()> {
        self.refuse_root(existing)?;
        self.refuse_root(name)?;
        self.at_once(|batch| {
            let source = batch.source("link", existing)?;
            if batch.see(name)?.is_some_and(|seen| seen.entry.is_some()) {
                return Err(is_taken("link", name));
            }
            let link = batch.add_shared(source)?;
            batch.add_again(&link, name.stored().into(), Onto::Any(Existing::Refuse), None)
        })
    }

    /// Rewrites what has a single name as what can have several; returns its number for [`link`](Batch::link).
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if it does not exist; [`ErrorKind::Usage`] if it is a directory; any error of reading
    /// the record and of writing.
    pub(crate) fn share(&mut self, existing: &Key) -> Result<ObjectNumber> {
        self.refuse_root(existing)?;
        let mut number = ObjectNumber::NONE;
        self.at_once(|batch| {
            let source = batch.source("link", existing)?;
            number = batch.add_shared(source)?.entry.number;
            Ok(())
        })?;
        Ok(number)
    }

    /// Rewrites what has a single name as what can have several; returns the link that its name is then. What is a link
    /// already stays as it is; a directory is refused.
    fn add_shared<'k>(&mut self, source: Source<'k>) -> Result<Source<'k>> {
        let Source { key, seen, entry: Entry { kind, number, .. }, .. } = source;
        let link = Source { entry: Entry::link(number), ..source };
        match kind {
            Kind::Link => {}
            Kind::File | Kind::Large | Kind::Symlink | Kind::Special => {
                self.add_again(&source, shared_key(number).into(), Onto::Any(Existing::Replace), None)?;
                self.add_again(&link, key.stored().into(), Onto::Seen(seen.directory), None)?;
            }
            _ => {
                let cause = "a directory cannot have several names";
                return Err(Error::new(ErrorKind::Usage, "give it another name", cause).at(&key.to_path()));
            }
        }
        Ok(link)
    }

    /// Changes the attributes of an object; a file with several names has one set for all. Its type and, for a sparse
    /// file, the holes are kept.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if it does not exist; [`ErrorKind::Usage`] for attributes that cannot be stored; any
    /// error of reading the record and of writing.
    pub fn set_attributes(&mut self, key: &Key, attributes: &Attributes) -> Result<()> {
        if key.is_root() {
            let btime = attributes.btime.or(self.birth_of_root()?);
            return self.directory(key, &Attributes { btime, ..attributes.clone() });
        }
        self.at_once(|batch| {
            let mut source = batch.source("change", key)?;
            let (mut path, mut onto) = (key.stored().into(), Onto::Seen(source.seen.directory));
            if source.entry.kind == Kind::Link {
                let number = source.entry.number;
                let snapshot = batch.engine().snapshot();
                source.entry = snapshot.look_up(&object_key(number))?.ok_or_else(|| not_there("change", key))?;
                source.is_followed = true;
                (path, onto) = (shared_key(number).into(), Onto::Any(Existing::Replace));
            }
            let is_alone = are_changed_alone(&batch.engine().view().state, &source.entry);
            match is_alone {
                true => batch.add_attributes(&source, path, attributes),
                false => batch.add_again(&source, path, onto, Some(attributes)),
            }
        })
    }

    /// Gives a file with these attributes an unused name: a new file, or the one with a number, which has no name and
    /// whose units are in these files.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if its directory does not exist; [`ErrorKind::Exists`] if the name is taken; any error
    /// of writing.
    pub(crate) fn name_file(
        &mut self,
        key: &Key,
        number: ObjectNumber,
        attributes: &Attributes,
        file: &Base,
        units: &Touched,
    ) -> Result<()> {
        self.refuse_root(key)?;
        self.at_once(|batch| {
            let cause = "no such directory";
            let absent = || Error::new(ErrorKind::NotFound, "give it the name", cause).at(&key.to_path());
            let seen = batch.see(key)?.ok_or_else(absent)?;
            if seen.entry.is_some() {
                return Err(is_taken("give it the name", key));
            }
            let attributes = attributes.clone().dated(batch.now());
            let (start, compression) = (batch.records.len(), batch.engine().geometry().compression);
            file.encode(&attributes, key.name(), batch.alignment, compression, &mut batch.records)?;
            batch.touched.merge(units.clone());
            let (entry, descriptor) = (Entry { number, ..file.entry(&attributes) }, file.descriptor().cloned());
            let (name, onto) = (key.name().unwrap_or_default().to_vec(), Onto::Any(Existing::Refuse));
            let named = Named { entry, descriptor, name, seen, followed: None, onto };
            batch.wait(key.stored().into(), start, RecordSubject::Name(Box::new(named)))
        })
    }

    /// Commits waiting records, then what `add` adds, as one piece, and retries if the state it read changed meanwhile.
    fn at_once(&mut self, mut add: impl FnMut(&mut Self) -> Result<()>) -> Result<()> {
        self.commit_piece()?;
        let mut attempts = 1;
        let failed = self.failed;
        loop {
            let added = self.held_back(&mut add).and_then(|()| self.commit_piece());
            // The caller is told of this piece alone.
            self.failed = failed;
            match added {
                Err(error) if error.kind() == ErrorKind::Busy && attempts < ATTEMPTS => attempts += 1,
                Err(error) => {
                    drop(self.take_piece());
                    return Err(error);
                }
                Ok(()) if self.durability == Durability::Each => return self.engine().sync_all(),
                Ok(()) => return Ok(()),
            }
        }
    }

    /// What has the name `key`, for an operation that messages name.
    fn source<'k>(&mut self, operation: &'static str, key: &'k Key) -> Result<Source<'k>> {
        let found = self.see(key)?.and_then(|seen| Some((seen, seen.entry?)));
        let (seen, entry) = found.ok_or_else(|| not_there(operation, key))?;
        Ok(Source { key, seen, entry, is_followed: false })
    }

    /// "Changed", if compaction in another thread has moved what could not be read; else the error.
    fn moved_or(&self, source: &Source<'_>, error: Error) -> Error {
        match self.engine().snapshot().look_up(&source.index_key()) {
            Ok(now) if now != Some(source.entry) => is_changed(source.key.stored()),
            _ => error,
        }
    }

    /// When the root was created, if it has a record.
    fn birth_of_root(&self) -> Result<Option<Time>> {
        let (engine, mut buffer) = (self.engine(), Vec::new());
        let now = || engine.snapshot().look_up(ROOT_KEY);
        while let Some(entry) = now()? {
            match engine.read_entry(&entry, &mut buffer) {
                Ok(record) => return decode_attributes(record.head.attributes).map(|attributes| attributes.btime),
                Err(error) if now()? == Some(entry) => return Err(error),
                // Compaction in another thread has moved it.
                Err(_) => {}
            }
        }
        Ok(None)
    }

    /// Adds a record with new attributes of an object. Its type and its birth time are kept, its change time is now.
    fn add_attributes(&mut self, source: &Source<'_>, path: Arc<[u8]>, attributes: &Attributes) -> Result<()> {
        let Source { key, seen, entry: there, is_followed } = source;
        let (now, start) = (self.now(), self.records.len());
        let before = match attributes.btime {
            // The index has the type: nothing of the record is needed.
            Some(_) => Attributes { mode: there.mode, ..Attributes::default() },
            None => self.attributes_before(source).map_err(|error| self.moved_or(source, error))?,
        };
        let attributes = Attributes { holes: None, ..changed(attributes, before) };
        let mut stored = Vec::new();
        attributes.encode(now, &mut stored)?;
        let (kind, name) = (Kind::Attributes, recorded_name(&path));
        NewRecord { name, attributes: &stored, ..NewRecord::of(kind) }.encode(self.alignment, &mut self.records)?;
        let entry = Entry { number: there.number, ..entry_of(kind, &attributes, now) };
        let name = key.name().unwrap_or_default().to_vec();
        let (followed, onto) = (is_followed.then_some(*there), Onto::Any(Existing::Replace));
        let named = Named { entry, descriptor: None, name, seen: *seen, followed, onto };
        self.wait(path, start, RecordSubject::Attributes(Box::new(named)))
    }

    /// The attributes of an object, without its holes if its content need not be read for that.
    fn attributes_before(&self, source: &Source<'_>) -> Result<Attributes> {
        let (engine, entry) = (self.engine(), &source.entry);
        if entry.attributes_id > 0 {
            return engine.changed_attributes(&engine.snapshot(), &source.index_key(), entry);
        }
        let mut buffer = Vec::new();
        decode_attributes(engine.read_head(entry, &mut buffer)?.attributes)
    }

    /// Rewrites a record of an object: under this name (none: its names are separate records), and with other
    /// attributes if given. Its birth time is kept, its change time is now.
    fn add_again(
        &mut self,
        source: &Source<'_>,
        key: Arc<[u8]>,
        onto: Onto,
        attributes: Option<&Attributes>,
    ) -> Result<()> {
        let Source { key: from, seen, entry: there, is_followed } = source;
        let mut entry = *there;
        let (now, start) = (self.now(), self.records.len());
        let (mut buffer, mut current, mut stored) = (Vec::new(), Vec::new(), Vec::new());
        let mut descriptor = None;
        let mut checksum = None;
        let mut new = NewRecord { name: recorded_name(&key), ..NewRecord::of(entry.kind) };
        if entry.kind != Kind::Link {
            let record = match self.engine().read_entry(&entry, &mut buffer) {
                Ok(record) => record,
                Err(error) => return Err(self.moved_or(source, error)),
            };
            (new.is_zstd, new.attributes, new.content) = (record.head.is_zstd, record.head.attributes, record.content);
            checksum = Some(record.head.content_checksum);
            if entry.kind == Kind::Large {
                descriptor = Some(self.engine().decode_descriptor(entry.location, record.content)?);
            }
            if entry.attributes_id > 0 {
                let all = self.engine().attributes_of(&entry, &record.head);
                all.map_err(|error| self.moved_or(source, error))?.encode(now, &mut current)?;
                new.attributes = &current;
                entry.attributes_id = 0;
            }
        }
        if let Some(attributes) = attributes {
            let attributes = changed(attributes, decode_attributes(new.attributes)?);
            attributes.encode(now, &mut stored)?;
            new.attributes = &stored;
            entry = entry.showing(&entry_of(entry.kind, &attributes, now));
        } else if entry.kind != Kind::Link {
            stored = changed_again(new.attributes, now).ok_or_else(unknown_attributes)?;
            new.attributes = &stored;
            entry = entry.showing(&entry_of(entry.kind, &decode_attributes(&stored)?, now));
        }
        new.encode(self.alignment, &mut self.records)?;
        // The checksum accompanies the content from the first write on: memory that flips in between is detected.
        if checksum.is_some() && self.records.get(start..).and_then(content_checksum) != checksum {
            self.records.truncate(start);
            return Err(
                Error::new(ErrorKind::Corrupt, "write again", "its content changed in memory").at(&from.to_path())
            );
        }
        let name = from.name().unwrap_or_default().to_vec();
        let followed = is_followed.then_some(*there);
        let named = Named { entry, descriptor, name, seen: *seen, followed, onto };
        self.wait(key, start, RecordSubject::Name(Box::new(named)))
    }
}

/// New attributes of an object that had others: type, holes and, unless given, birth time stay.
fn changed(new: &Attributes, before: Attributes) -> Attributes {
    let mode = before.mode & TYPE | new.mode & !TYPE;
    Attributes { mode, btime: new.btime.or(before.btime), holes: before.holes, ..new.clone() }
}

fn not_there(operation: &'static str, key: &Key) -> Error {
    Error::new(ErrorKind::NotFound, operation, "no such object").at(&key.to_path())
}

fn is_taken(operation: &'static str, key: &Key) -> Error {
    Error::new(ErrorKind::Exists, operation, "an object with this name exists").at(&key.to_path())
}
