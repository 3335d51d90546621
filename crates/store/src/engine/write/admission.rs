//! Whether a piece of a batch may be committed, and what it needs: the parent directories of its names, missing
//! directories, current index entries, and the numbers of its objects.
//!
//! An object keeps its number for life: a put over a file, directory, symlink or special file of the same type keeps
//! the object; any other put creates a new one. The number of a new object is the id of its first record, and ids are
//! never reused.

use std::path::PathBuf;
use std::sync::Arc;

use hashbrown::HashMap;

use super::committer::{Existing, Named, Onto, RecordSubject, SeenEntry, Waiting};
use crate::devices::platform::Creator;
use crate::engine::attributes::are_changed_alone;
use crate::engine::content::entry_of;
use crate::engine::effects::Before;
use crate::engine::{Engine, EngineAccounts};
use crate::error::{Error, ErrorKind, Result};
use crate::format::attributes::Attributes;
use crate::format::entry::{Entry, Kind, Time};
use crate::format::ids::ObjectNumber;
use crate::format::index_key::{ROOT, ROOT_KEY, entry_key, object_key};
use crate::format::key::{Key, shared_number, split};
use crate::format::record::{NewRecord, encode_directories};
use crate::index::Snapshot;
use crate::layout::granulo::Alignment;
use crate::locks;

/// Where the number of an object comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Number {
    /// None.
    None,
    /// The id of this record, which is the first of its object.
    Own,
    /// An object that existed before, or a shared one.
    Of(ObjectNumber),
    /// The id of another record in the piece, by its position, which is the first of the object.
    OfRecord(usize),
    /// A directory that was missing, by its position among these; resolved once the piece is admitted.
    Made(usize),
}

impl Number {
    /// The number for record `id` of an admitted piece, whose first record has id `first_id`.
    pub(super) fn resolve(self, id: u64, first_id: u64) -> ObjectNumber {
        match self {
            Number::None => ObjectNumber::NONE,
            Number::Own => ObjectNumber(id),
            Number::Of(number) => number,
            Number::OfRecord(at) => ObjectNumber(first_id + at as u64),
            Number::Made(_) => unreachable!("an admitted piece has a record of each directory that it makes"),
        }
    }
}

/// What was found for a record.
#[derive(Debug, Clone, Copy)]
pub(super) struct Admitted {
    /// Its entry in the index before the piece.
    pub(super) before: Before,
    pub(super) number: Number,
    /// The directory of its name.
    pub(super) parent: Number,
}

/// A name in a directory, by whichever form of its key; without a name, the object with that number.
type Place<'w> = (Number, &'w [u8]);

/// What is known of a place.
#[derive(Debug, Clone, Copy)]
struct PlaceState {
    kind: Kind,
    number: Number,
}

/// A missing ancestor of an object.
#[derive(Debug)]
struct MissingAncestor<'w> {
    path: &'w [u8],
    parent: Number,
    /// The record of the piece that puts it.
    put: Option<usize>,
}

/// Whether a put of one kind over another kind keeps the object.
fn is_same_object(there: Kind, new: Kind) -> bool {
    let is_file = |kind| matches!(kind, Kind::File | Kind::Large);
    there == new || is_file(there) && is_file(new)
}

/// A path as shown to people.
fn shown(path: &[u8]) -> PathBuf {
    Key::of_path(path).map(|key| key.to_path()).unwrap_or_default()
}

fn exists(path: &[u8], cause: &str) -> Error {
    Error::new(ErrorKind::Exists, "write to the store", cause).at(&shown(path))
}

pub(super) fn within_itself(path: &[u8]) -> Error {
    Error::new(ErrorKind::Usage, "rename a directory to", "it would be inside itself").at(&shown(path))
}

/// A concurrent change came first; the caller retries.
pub(super) fn is_changed(path: &[u8]) -> Error {
    Error::new(ErrorKind::Busy, "write to the store", "it changed meanwhile").at(&shown(path))
}

pub(super) fn not_empty(path: &[u8]) -> Error {
    Error::new(ErrorKind::Usage, "remove the directory", "it is not empty")
        .at(&shown(path))
        .advise("remove it with everything below it: granulo store rm -r")
}

/// Whether a directory has entries.
///
/// # Errors
/// Any error of reading the index.
pub(super) fn has_entries(snapshot: &Snapshot, directory: ObjectNumber) -> Result<bool> {
    Ok(snapshot.entries_of(directory)?.next_entry()?.is_some())
}

/// The numbers of a directory and all directories below it.
fn directories_below(snapshot: &Snapshot, top: ObjectNumber) -> Result<Vec<ObjectNumber>> {
    let mut found = vec![top];
    let mut at = 0;
    while let Some(&directory) = found.get(at) {
        let mut scan = snapshot.entries_of(directory)?;
        while let Some((_, entry)) = scan.next_entry()? {
            if entry.kind == Kind::Directory {
                found.push(entry.number);
            }
        }
        at += 1;
    }
    found.sort_unstable();
    Ok(found)
}

/// A piece being checked, record by record.
struct Admission<'a, 'w> {
    engine: &'a Engine,
    accounts: &'a EngineAccounts<'a>,
    /// State of places after the records so far; `gone` has the directories of a removed tree, by number.
    known: HashMap<Place<'w>, Option<PlaceState>>,
    gone: &'w [ObjectNumber],
    missing: Vec<MissingAncestor<'w>>,
    /// Directories met, by path, and that of the last name.
    directories: HashMap<&'w [u8], Number>,
    last: Option<(&'w [u8], Number)>,
    /// The batch may remove a directory.
    has_removals: bool,
}

impl<'w> Admission<'_, 'w> {
    fn is_gone(&self, (directory, name): Place<'_>) -> bool {
        matches!(directory, Number::Of(number) if !name.is_empty() && self.gone.binary_search(&number).is_ok())
    }

    /// From here on, other directories may have these paths.
    fn forget_paths(&mut self) {
        self.directories.clear();
        self.last = None;
    }

    /// The directory with a path, created if it is missing.
    fn directory(&mut self, path: &'w [u8]) -> Result<Number> {
        if let Some((_, number)) = self.last.filter(|(last, _)| *last == path) {
            return Ok(number);
        }
        if let Some(number) = shared_number(path) {
            return Ok(Number::Of(number));
        }
        // Up to a known one, and down again.
        let (mut above, mut unknown) = (path, Vec::new());
        let mut number = loop {
            let Some((next, name)) = split(above) else { break Number::Of(ROOT) };
            match self.directories.get(above) {
                Some(number) => break *number,
                None => unknown.push((above, name)),
            }
            above = next;
        };
        for (path, name) in unknown.into_iter().rev() {
            number = self.step_down(number, path, name)?;
            self.directories.insert(path, number);
        }
        self.last = Some((path, number));
        Ok(number)
    }

    /// The directory `name` in another; it has this path.
    fn step_down(&mut self, parent: Number, path: &'w [u8], name: &'w [u8]) -> Result<Number> {
        let place = (parent, name);
        match (self.known.get(&place), parent) {
            (Some(Some(PlaceState { kind: Kind::Directory, number })), _) => return Ok(*number),
            (Some(Some(_)), _) => return Err(exists(path, "it is a file, so nothing can be below it")),
            (None, Number::Of(above)) if !self.is_gone(place) => {
                if let Some(number) = self.there(above, path, name)? {
                    return Ok(Number::Of(number));
                }
            }
            _ => {}
        }
        let number = Number::Made(self.missing.len());
        self.missing.push(MissingAncestor { path, parent, put: None });
        self.known.insert(place, Some(PlaceState { kind: Kind::Directory, number }));
        Ok(number)
    }

    /// The number of a directory in the index.
    fn there(&self, above: ObjectNumber, path: &[u8], name: &[u8]) -> Result<Option<ObjectNumber>> {
        if !self.has_removals {
            let known = locks::read(&self.engine.directories).get(above, name);
            if known.is_some() {
                return Ok(known);
            }
        }
        match self.accounts.snapshot.look_up(&entry_key(above, name))? {
            Some(entry) if entry.kind == Kind::Directory => {
                let mut directories = locks::write(&self.engine.directories);
                directories.add(above, name, entry.number);
                Ok(Some(entry.number))
            }
            Some(_) => Err(exists(path, "it is a file, so nothing can be below it")),
            None => Ok(None),
        }
    }

    /// What is known of a place, and its index entry if that was looked up.
    fn look_up(&self, place: Place<'_>) -> Result<(Option<PlaceState>, Before)> {
        if let Some(known) = self.known.get(&place) {
            return Ok((*known, Before::Unknown));
        }
        if self.is_gone(place) {
            return Ok((None, Before::Unknown));
        }
        let entry = match place {
            (Number::Of(object), []) => self.accounts.snapshot.look_up(&object_key(object))?,
            (Number::Of(directory), name) => self.accounts.snapshot.look_up(&entry_key(directory, name))?,
            // A directory created by this piece is empty.
            _ => None,
        };
        let of = |entry: Entry| PlaceState { kind: entry.kind, number: Number::Of(entry.number) };
        Ok((entry.map(of), Before::Known(entry)))
    }

    fn put(&mut self, at: usize, path: &'w [u8], entry: &Entry) -> Result<Admitted> {
        if let Some(number) = shared_number(path) {
            let number = Number::Of(number);
            self.known.insert((number, &[]), Some(PlaceState { kind: entry.kind, number }));
            return Ok(Admitted { before: Before::Unknown, number, parent: Number::None });
        }
        let Some((above, name)) = split(path) else {
            let before = Before::Known(self.accounts.snapshot.look_up(ROOT_KEY)?);
            return Ok(Admitted { before, number: Number::Of(ROOT), parent: Number::None });
        };
        let parent = self.directory(above)?;
        let (there, before) = self.look_up((parent, name))?;
        match (there.map(|there| there.kind), entry.kind) {
            // Replaced by another one.
            (Some(Kind::Directory), Kind::Directory) if !entry.number.is_none() => {
                match there.map(|there| there.number) {
                    Some(Number::Of(number))
                        if number != entry.number && has_entries(&self.accounts.snapshot, number)? =>
                    {
                        return Err(not_empty(path));
                    }
                    _ => {}
                }
            }
            (Some(Kind::Directory), Kind::Directory) | (None, _) => {}
            (Some(Kind::Directory), _) => return Err(exists(path, "a directory with this name exists")),
            (Some(_), Kind::Directory) => return Err(exists(path, "a file with this name exists")),
            _ => {}
        }
        if entry.kind == Kind::Link {
            let file = entry.linked();
            if self.look_up((Number::Of(file), &[]))?.0.is_none() {
                return Err(Error::new(ErrorKind::NotFound, "create the link", "no shared file has this number"));
            }
        }
        let number = match there.filter(|there| is_same_object(there.kind, entry.kind)) {
            // A link, or a directory whose own record is lost.
            _ if !entry.number.is_none() => Number::Of(entry.number),
            Some(there) => there.number,
            None => Number::Own,
        };
        if let Number::Made(missing) = number
            && let Some(missing) = self.missing.get_mut(missing)
        {
            missing.put.get_or_insert(at);
        }
        let of_place = if number == Number::Own { Number::OfRecord(at) } else { number };
        self.known.insert((parent, name), Some(PlaceState { kind: entry.kind, number: of_place }));
        if entry.kind == Kind::Directory && !entry.number.is_none() {
            self.forget_paths();
        }
        Ok(Admitted { before, number, parent })
    }

    /// Checks that an object is as it was seen.
    fn check_seen(&self, path: &[u8], named: &Named) -> Result<()> {
        let Named { entry, name, seen, followed, .. } = named;
        if seen.version == self.accounts.state.version {
            return Ok(());
        }
        let is_as_seen = |key: &[u8], entry| self.accounts.snapshot.look_up(key).map(|now| now == entry);
        let is_same = is_as_seen(&entry_key(seen.directory, name), seen.entry)?
            && (followed.is_none() || is_as_seen(&object_key(entry.number), *followed)?);
        if is_same { Ok(()) } else { Err(is_changed(path)) }
    }

    /// Checks new attributes of an object, which must still be as it was seen. A snapshot may have come meanwhile.
    fn attributes(&self, path: &[u8], named: &Named) -> Result<Admitted> {
        self.check_seen(path, named)?;
        let object = named.followed.or(named.seen.entry);
        if !object.is_some_and(|object| are_changed_alone(&self.accounts.state, &object)) {
            return Err(is_changed(path));
        }
        let parent = if named.followed.is_some() { Number::None } else { Number::Of(named.seen.directory) };
        Ok(Admitted { before: Before::Unknown, number: Number::Of(named.entry.number), parent })
    }

    /// Checks another name of an object, which must still be where it was seen.
    fn name(&mut self, at: usize, path: &'w [u8], named: &Named) -> Result<Admitted> {
        let Named { entry, onto, .. } = named;
        self.check_seen(path, named)?;
        let Some((above, new_name)) = split(path).filter(|_| shared_number(path).is_none()) else {
            return self.put(at, path, entry);
        };
        let mut above_it = vec![ROOT];
        above_it.extend(shared_number(above));
        let found = self.accounts.snapshot.directory_with(above, &mut |number, _, _| above_it.push(number))?;
        let Some(directory) = found else {
            let cause = "no such directory";
            return Err(Error::new(ErrorKind::NotFound, "give it the name", cause).at(&shown(above)));
        };
        if entry.kind == Kind::Directory && above_it.contains(&entry.number) {
            return Err(within_itself(path));
        }
        let existing = match onto {
            Onto::Any(existing) => existing,
            Onto::Seen(there) if *there != directory => return Err(is_changed(path)),
            Onto::Seen(_) => {
                let number = Number::Of(entry.number);
                let before = Before::Known(self.accounts.snapshot.look_up(&entry_key(directory, new_name))?);
                self.known.insert((Number::Of(directory), new_name), Some(PlaceState { kind: entry.kind, number }));
                return Ok(Admitted { before, number, parent: Number::Of(directory) });
            }
        };
        let admitted = self.put(at, path, entry)?;
        match (admitted.before, existing) {
            (Before::Known(Some(_)), Existing::Refuse) => Err(exists(path, "an object with this name exists")),
            _ => Ok(admitted),
        }
    }

    fn remove(&mut self, path: &'w [u8], seen: &SeenEntry) -> Result<Admitted> {
        let parent = Number::Of(seen.directory);
        let admitted = |before| Admitted { before, number: Number::None, parent };
        let Some((_, name)) = split(path) else { return Ok(admitted(Before::Unknown)) };
        self.known.insert((parent, name), None);
        self.forget_paths();
        self.has_removals = true;
        if seen.version == self.accounts.state.version || seen.has_other {
            return Ok(admitted(Before::Known(seen.entry)));
        }
        let now = self.accounts.snapshot.look_up(&entry_key(seen.directory, name))?;
        // Another batch may have put something there meanwhile.
        let directory = now.filter(|entry| entry.kind == Kind::Directory).map(|entry| entry.number);
        if let Some(directory) = directory
            && has_entries(&self.accounts.snapshot, directory)?
        {
            return Err(not_empty(path));
        }
        Ok(admitted(Before::Known(now)))
    }
}

/// Determines the tree that the first record of a piece removes, and encodes the record.
fn remove_tree(
    snapshot: &Snapshot,
    records: &mut Vec<u8>,
    record: &mut Waiting,
    alignment: Alignment,
) -> Result<Option<Admitted>> {
    let (parent, name) = match split(&record.key) {
        None => (ObjectNumber::NONE, &[][..]),
        Some((above, name)) => match snapshot.directory(above)? {
            Some(directory) => (directory, name),
            None => return Ok(None),
        },
    };
    let entry = match record.key.is_empty() {
        true => None,
        false => match snapshot.look_up(&entry_key(parent, name))? {
            None => return Ok(None),
            Some(entry) => Some(entry),
        },
    };
    let mut number = ObjectNumber::NONE;
    let mut directories = Vec::new();
    if entry.is_none_or(|entry| entry.kind == Kind::Directory) {
        number = entry.map_or(ROOT, |entry| entry.number);
        directories = directories_below(snapshot, number)?;
    }
    let kind = if number.is_none() { Kind::Removal } else { Kind::TreeRemoval };
    record.start = records.len();
    let content = &encode_directories(&directories)[..];
    NewRecord { number, parent, name: Some(name), content, ..NewRecord::of(kind) }.encode(alignment, records)?;
    record.record_bytes = records.len() - record.start;
    record.subject = RecordSubject::TreeRemoval(directories);
    let number = if number.is_none() { Number::None } else { Number::Of(number) };
    let parent = if parent.is_none() { Number::None } else { Number::Of(parent) };
    Ok(Some(Admitted { before: Before::Unknown, number, parent }))
}

impl Engine {
    /// Checks whether the batch may be committed, and adds missing ancestors of its objects. Returns what it found for
    /// each record. The removal of a tree is the first record of a piece; it is dropped if the tree is gone.
    pub(super) fn admit_piece(
        &self,
        accounts: &EngineAccounts<'_>,
        records: &mut Vec<u8>,
        waiting: &mut Vec<Waiting>,
        alignment: Alignment,
        time: Time,
    ) -> Result<Vec<Admitted>> {
        let mut admitted = Vec::with_capacity(waiting.len());
        if let Some(first) = waiting.first_mut().filter(|first| matches!(first.subject, RecordSubject::TreeRemoval(_)))
        {
            match remove_tree(&accounts.snapshot, records, first, alignment)? {
                Some(removal) => admitted.push(removal),
                None => _ = waiting.remove(0),
            }
        }
        let mut admission = Admission {
            engine: self,
            accounts,
            known: HashMap::with_capacity(waiting.len()),
            gone: &[],
            missing: Vec::new(),
            directories: HashMap::new(),
            last: None,
            has_removals: false,
        };
        for (at, record) in waiting.iter().enumerate() {
            let path = &record.key[..];
            match &record.subject {
                RecordSubject::Put(entry, _) => admitted.push(admission.put(at, path, entry)?),
                RecordSubject::Name(named) => admitted.push(admission.name(at, path, named)?),
                RecordSubject::Attributes(named) => admitted.push(admission.attributes(path, named)?),
                RecordSubject::Removal(seen) => admitted.push(admission.remove(path, seen)?),
                RecordSubject::TreeRemoval(directories) => {
                    assert_eq!(at, 0, "the removal of a tree begins a piece");
                    (admission.gone, admission.has_removals) = (directories, true);
                    let top = admitted.first().zip(split(path)).map(|(removal, (_, name))| (removal.parent, name));
                    admission.known.extend(top.map(|top| (top, None)));
                }
            }
        }
        // A directory later in the batch has attributes of its own.
        let mut first_records = Vec::with_capacity(admission.missing.len());
        let mut made: Vec<(Arc<[u8]>, Number)> = Vec::new();
        for MissingAncestor { path, parent, put } in &admission.missing {
            first_records.push(put.unwrap_or(waiting.len() + made.len()));
            if put.is_none() {
                made.push(((*path).into(), *parent));
            }
        }
        drop(admission);
        if first_records.is_empty() {
            return Ok(admitted);
        }
        let Creator { uid, gid, umask } = self.platform.creator();
        let of_all = Attributes::of_directory(time);
        let attributes = Attributes { mode: of_all.mode & !umask, uid, gid, ..of_all };
        let mut stored = Vec::new();
        attributes.encode(time, &mut stored)?;
        for (key, parent) in made {
            let start = records.len();
            let name = split(&key).map(|(_, name)| name);
            let record = NewRecord { name, attributes: &stored, ..NewRecord::of(Kind::Directory) };
            record.encode(alignment, records)?;
            let record_bytes = records.len() - start;
            let subject = RecordSubject::Put(Box::new(entry_of(Kind::Directory, &attributes, time)), None);
            waiting.push(Waiting { key, start, record_bytes, subject });
            admitted.push(Admitted { before: Before::Unknown, number: Number::Own, parent });
        }
        let settled = |number: Number, at: Option<usize>| match number {
            Number::Made(missing) if at == Some(first_records[missing]) => Number::Own,
            Number::Made(missing) => Number::OfRecord(first_records[missing]),
            other => other,
        };
        for (at, admitted) in admitted.iter_mut().enumerate() {
            admitted.number = settled(admitted.number, Some(at));
            admitted.parent = settled(admitted.parent, None);
        }
        Ok(admitted)
    }
}
