//! Whether a piece of a batch may be committed, and what it finds: the directories that it needs, what the index has for its keys, and the numbers of its objects.
//!
//! An object keeps its number for life: what is put over a file, a directory, a symlink or a special file of the same type is the same object; anything
//! else is another one. The number of a new object is the id of its first record, and ids are never given twice.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};

use hashbrown::HashMap;

use super::committer::{Subject, Waiting};
use super::entry_of;
use crate::engine::effects::{Before, goes_with};
use crate::engine::{Engine, EngineLedger};
use crate::error::{Error, ErrorKind, Result};
use crate::format::attributes::Attributes;
use crate::format::entry::{Entry, Kind, Time};
use crate::format::key::{Key, shared_key, shared_number};
use crate::format::record::NewRecord;
use crate::layout::granulo::Alignment;

/// Where the number of a record's object comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Number {
    /// It is about no object.
    None,
    /// It is the first record of its object: its id.
    Own,
    /// An object that was there before, or a shared one.
    Of(u64),
    /// As that of another record of the piece, by its place.
    AsRecord(usize),
}

/// What was found of a record.
#[derive(Debug, Clone, Copy)]
pub(super) struct Admitted {
    /// What the index has for its key before the piece.
    pub(super) before: Before,
    pub(super) number: Number,
}

/// What a key has.
#[derive(Debug, Clone, Copy)]
struct Known {
    kind: Kind,
    number: Number,
}

/// Whether a record of one kind that is put where one of another kind is leaves the object what it is.
fn is_same_object(there: Kind, new: Kind) -> bool {
    let is_file = |kind| matches!(kind, Kind::File | Kind::Large);
    there == new || is_file(there) && is_file(new)
}

impl Engine {
    /// Looks whether the batch may be committed, and adds the directories that are missing above its objects. Gives what it found of each record.
    pub(super) fn admit_piece(
        &self,
        ledger: &EngineLedger<'_>,
        records: &mut Vec<u8>,
        waiting: &mut Vec<Waiting>,
        alignment: Alignment,
        timestamp_milliseconds: u64,
    ) -> Result<Vec<Admitted>> {
        let exists = |key: &[u8], cause: &str| {
            let path = Key::from_stored(key).map(|key| key.to_path()).unwrap_or_default();
            Error::new(ErrorKind::Exists, "write to the store", cause).at(&path)
        };
        let mut admitted = Vec::with_capacity(waiting.len());
        // What keys have after the records so far; what a removed tree leaves is asked of `gone`.
        let mut known: HashMap<&[u8], Option<Known>> = HashMap::with_capacity(waiting.len());
        let mut gone: Vec<&[u8]> = Vec::new();
        let mut missing: Vec<Arc<[u8]>> = Vec::new();
        // A directory that is there.
        let mut parent_before: Option<&[u8]> = None;
        let mut directories = self.directories.lock().unwrap_or_else(PoisonError::into_inner);
        // What the batch removes may be one.
        let mut has_removals = false;
        for (at, record) in waiting.iter().enumerate() {
            let key = &record.key[..];
            let entry = match &record.subject {
                Subject::Put(entry, _) => entry,
                Subject::Removal(seen) => {
                    known.insert(key, None);
                    (parent_before, has_removals) = (None, true);
                    let (version, entry) = **seen;
                    let is_new = version == ledger.state.version;
                    let before = if is_new { Before::Known(entry) } else { Before::Unknown };
                    admitted.push(Admitted { before, number: Number::None });
                    continue;
                }
                Subject::TreeRemoval => {
                    known.retain(|other, _| !goes_with(other, key));
                    gone.push(key);
                    (parent_before, has_removals) = (None, true);
                    admitted.push(Admitted { before: Before::Unknown, number: Number::None });
                    continue;
                }
            };
            let look_up = |known: &HashMap<&[u8], Option<Known>>, key: &[u8]| -> Result<(Option<Known>, Before)> {
                match known.get(key) {
                    Some(known) => Ok((*known, Before::Unknown)),
                    None if gone.iter().any(|top| goes_with(key, top)) => Ok((None, Before::Unknown)),
                    None => {
                        let entry = ledger.snapshot.look_up(key)?;
                        let of = |entry: Entry| Known { kind: entry.kind, number: Number::Of(entry.number) };
                        Ok((entry.map(of), Before::Known(entry)))
                    }
                }
            };
            if let Some(number) = shared_number(key) {
                let number = Number::Of(number);
                known.insert(key, Some(Known { kind: entry.kind, number }));
                admitted.push(Admitted { before: Before::Unknown, number });
                continue;
            }
            let (there, before) = look_up(&known, key)?;
            match (there.map(|there| there.kind), entry.kind) {
                (Some(Kind::Directory), Kind::Directory) | (None, _) => {}
                (Some(Kind::Directory), _) => return Err(exists(key, "there is a directory of this name")),
                (Some(_), Kind::Directory) if !key.is_empty() => {
                    return Err(exists(key, "there is a file of this name"));
                }
                _ => {}
            }
            if entry.kind == Kind::Link && look_up(&known, &shared_key(entry.size_bytes))?.0.is_none() {
                return Err(Error::new(ErrorKind::NotFound, "make the link", "there is no shared file of this number"));
            }
            let number = match there.filter(|there| is_same_object(there.kind, entry.kind)) {
                _ if entry.kind == Kind::Link => Number::Of(entry.size_bytes),
                Some(there) => there.number,
                None => Number::Own,
            };
            let of_key = if number == Number::Own { Number::AsRecord(at) } else { number };
            known.insert(key, Some(Known { kind: entry.kind, number: of_key }));
            admitted.push(Admitted { before, number });
            let mut parent = key;
            while let Some(end) = parent.iter().rposition(|&byte| byte == 0) {
                parent = &parent[..end];
                if parent_before == Some(parent) || !has_removals && directories.has(parent) {
                    break;
                }
                match look_up(&known, parent)? {
                    (Some(Known { kind: Kind::Directory, .. }), before) => {
                        if matches!(before, Before::Known(_)) {
                            directories.add(parent);
                        }
                        break;
                    }
                    (Some(_), _) => return Err(exists(parent, "it is a file, so nothing can lie below it")),
                    (None, _) => {
                        known.insert(parent, Some(Known { kind: Kind::Directory, number: Number::Own }));
                        missing.push(parent.into());
                    }
                }
            }
            parent_before = key.iter().rposition(|&byte| byte == 0).map(|end| &key[..end]).or(parent_before);
        }
        drop((known, directories));
        // A directory that comes later in the batch has attributes of its own.
        if !missing.is_empty() {
            let put: BTreeSet<&[u8]> = waiting
                .iter()
                .filter(|record| matches!(record.subject, Subject::Put(..)))
                .map(|record| &record.key[..])
                .collect();
            missing.retain(|key| !put.contains(&**key));
        }
        let seconds = (timestamp_milliseconds / 1000) as i64;
        let nanoseconds = (timestamp_milliseconds % 1000 * 1_000_000) as u32;
        let attributes = Attributes::of_directory(Time { seconds, nanoseconds });
        let mut stored = Vec::new();
        attributes.encode(&mut stored)?;
        for key in missing {
            let start = records.len();
            let record = NewRecord {
                kind: Kind::Directory,
                is_zstd: false,
                is_moved: false,
                id: 0,
                number: 0,
                name: Some(&key),
                attributes: &stored,
                content: &[],
            };
            record.encode(alignment, records)?;
            let record_bytes = records.len() - start;
            let subject = Subject::Put(Box::new(entry_of(Kind::Directory, &attributes)), None);
            waiting.push(Waiting { key, start, record_bytes, subject });
            admitted.push(Admitted { before: Before::Unknown, number: Number::Own });
        }
        Ok(admitted)
    }
}
