//! Names of what is there: renamed, exchanged, and given beside others.
//!
//! A record has the name of its object, so who gives that another name writes the record again: number, attributes and content stay what they are, units of large
//! objects stay where they are, and each object is found with one look-up as before. No record depends on another that may be lost. It costs a record: of a file the
//! cutoff at most, of a directory, whatever is in it, a hundred bytes.
//!
//! Each of these is one piece of the log: all of it is there after a crash, or nothing. What waits in the batch is committed before.

use std::sync::Arc;

use super::admission::within_itself;
use super::committer::{Existing, Named, Seen, Subject};
use super::{Batch, entry_of};
use crate::Durability;
use crate::error::{Error, ErrorKind, Result};
use crate::format::attributes::Attributes;
use crate::format::entry::{Entry, Kind};
use crate::format::key::{Key, is_within, shared_key, shared_number, split};
use crate::format::record::NewRecord;

/// How often is looked again, where others change the same names.
const ATTEMPTS: u32 = 100;

/// An object where it was seen.
struct Source<'k> {
    key: &'k Key,
    seen: Seen,
    entry: Entry,
}

impl Batch<'_> {
    /// Gives an object another name; a directory goes with all that is in it. It keeps its number. Where names are two of one file, nothing happens.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if it is not there, or the directory that it is to be in; [`ErrorKind::Exists`] if the name is taken and must not be, or by a
    /// directory for a file, or the other way round; [`ErrorKind::Usage`] if it is a directory that would lie below itself, or one that is not empty has the name; what
    /// reading the record and writing fails with.
    pub fn rename(&mut self, from: &Key, to: &Key, existing: Existing) -> Result<()> {
        self.refuse_root(from)?;
        self.refuse_root(to)?;
        self.at_once(|batch| {
            let source = batch.source(from)?;
            let target = batch.see(to)?.and_then(|seen| seen.entry);
            let is_same_file = |target: Entry| source.entry.kind == Kind::Link && target.number == source.entry.number;
            match target {
                Some(_) if existing == Existing::Refuse => return Err(is_taken(to)),
                _ if from == to || target.is_some_and(is_same_file) => return Ok(()),
                _ if is_within(to.stored(), from.stored()) => return Err(within_itself(to.stored())),
                _ => {}
            }
            batch.add_name(&source, to.stored().into(), Some(existing))?;
            batch.add_removal(from, Seen { has_other: true, ..source.seen })
        })
    }

    /// Lets two objects have each other's name.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if one of them is not there; [`ErrorKind::Usage`] if one is below the other; what reading records and writing fails with.
    pub fn exchange(&mut self, one: &Key, other: &Key) -> Result<()> {
        self.refuse_root(one)?;
        self.refuse_root(other)?;
        self.at_once(|batch| {
            let (first, second) = (batch.source(one)?, batch.source(other)?);
            if one == other {
                return Ok(());
            }
            if is_within(one.stored(), other.stored()) || is_within(other.stored(), one.stored()) {
                return Err(within_itself(one.stored().max(other.stored())));
            }
            batch.add_name(&first, other.stored().into(), None)?;
            batch.add_name(&second, one.stored().into(), None)
        })
    }

    /// Gives a file another name beside those that it has. One with a single name becomes one that can have several, which is written again.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if it is not there, or the directory that the name is to be in; [`ErrorKind::Exists`] if the name is taken;
    /// [`ErrorKind::Usage`] if it is no file; what reading the record and writing fails with.
    pub fn hard_link(&mut self, existing: &Key, name: &Key) -> Result<()> {
        self.refuse_root(existing)?;
        self.refuse_root(name)?;
        self.at_once(|batch| {
            let source = batch.source(existing)?;
            if batch.see(name)?.is_some_and(|seen| seen.entry.is_some()) {
                return Err(is_taken(name));
            }
            let number = source.entry.number;
            match source.entry.kind {
                Kind::Link => {}
                Kind::File | Kind::Large => {
                    batch.add_name(&source, shared_key(number).into(), Some(Existing::Replace))?;
                    // The name that it has stays in the same piece.
                    batch.nameless.insert(number);
                    batch.link(existing, number)?;
                }
                _ => {
                    return Err(Error::new(ErrorKind::Usage, "give it another name", "only files have several names")
                        .at(&existing.to_path()));
                }
            }
            let link = Entry { size_bytes: number, number, ..entry_of(Kind::Link, &Attributes::default()) };
            let source = Source { entry: link, ..source };
            batch.add_name(&source, name.stored().into(), Some(Existing::Refuse))
        })
    }

    /// Commits what waits, then what `add` adds, as one piece, and once more if what it looked at changed meanwhile.
    fn at_once(&mut self, mut add: impl FnMut(&mut Self) -> Result<()>) -> Result<()> {
        self.commit_piece()?;
        let mut attempts = 1;
        loop {
            let added = self.held_back(&mut add).and_then(|()| self.commit_piece());
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

    fn source<'k>(&mut self, key: &'k Key) -> Result<Source<'k>> {
        let found = self.see(key)?.and_then(|seen| Some((seen, seen.entry?)));
        let (seen, entry) = found
            .ok_or_else(|| Error::new(ErrorKind::NotFound, "rename", "there is no such object").at(&key.to_path()))?;
        Ok(Source { key, seen, entry })
    }

    /// A record of an object under another name; under none, that it has names of their own.
    fn add_name(&mut self, source: &Source<'_>, key: Arc<[u8]>, existing: Option<Existing>) -> Result<()> {
        let Source { key: from, seen, entry } = source;
        let name = match shared_number(&key) {
            Some(_) => None,
            None => split(&key).map(|(_, name)| name),
        };
        let start = self.records.len();
        let mut buffer = Vec::new();
        let mut descriptor = None;
        let mut new = NewRecord {
            kind: entry.kind,
            is_zstd: false,
            is_moved: false,
            id: 0,
            number: 0,
            parent: 0,
            name,
            attributes: &[],
            content: &[],
        };
        if entry.kind != Kind::Link {
            let record = self.engine().read_entry(entry, &mut buffer)?;
            (new.is_zstd, new.attributes, new.content) = (record.head.is_zstd, record.head.attributes, record.content);
            if entry.kind == Kind::Large {
                descriptor = Some(self.engine().decode_descriptor(entry.location, record.content)?);
            }
        }
        new.encode(self.alignment, &mut self.records)?;
        let name = from.name().unwrap_or_default().to_vec();
        let named = Named { entry: *entry, descriptor, name, seen: *seen, existing };
        self.wait(key, start, Subject::Name(Box::new(named)))
    }
}

fn is_taken(key: &Key) -> Error {
    Error::new(ErrorKind::Exists, "rename", "there is an object of this name").at(&key.to_path())
}
