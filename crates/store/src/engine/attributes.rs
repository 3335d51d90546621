//! Attributes that were changed alone: when they get a record of their own, and how they are read.
//!
//! A record has the attributes of its object, and rewriting it costs as many bytes as its content. So new attributes of
//! a file whose record is not small go to a record without content ([`effects::attributes`](super::effects)). The entry
//! of the file has the id of that record: what a listing shows needs no second look-up, everything else one. The first
//! such record of a file is not written while a snapshot has the file without one: then a state that a snapshot
//! preserves finds the attributes of its files as its files, among the versions.

use super::Engine;
use crate::engine::records::decode_attributes;
use crate::error::{Error, ErrorKind, Result};
use crate::format::attributes::Attributes;
use crate::format::entry::Entry;
use crate::format::index_key::attributes_key;
use crate::format::record::Head;
use crate::index::Snapshot;
use crate::index::catalog::State;

/// Records at least this long are not rewritten for other attributes: below, another entry in the index and a second
/// read cost more. Less in tests, whose files are small.
const LEAST_BYTES: u64 = if cfg!(test) { 128 } else { 512 };

/// Whether new attributes of an object get a record of their own.
pub(crate) fn are_changed_alone(state: &State, entry: &Entry) -> bool {
    let is_first = entry.attributes_id == 0;
    let is_large_enough = entry.kind.is_file() && entry.location.record_bytes >= LEAST_BYTES;
    is_large_enough && !(is_first && state.keeps(entry.id, u64::MAX))
}

impl Engine {
    /// All attributes of an object with this entry, whose record has this head.
    ///
    /// # Errors
    /// Any error of reading the index and the record with its attributes.
    pub(crate) fn attributes_of(&self, entry: &Entry, head: &Head<'_>) -> Result<Attributes> {
        self.attributes_over(decode_attributes(head.attributes)?, entry, || head.object_key())
    }

    /// All attributes of an object with this entry, whose record has its `own`; `key` is asked for only if they were
    /// changed since.
    ///
    /// # Errors
    /// As [`attributes_of`](Self::attributes_of).
    pub(crate) fn attributes_over(
        &self,
        own: Attributes,
        entry: &Entry,
        key: impl FnOnce() -> Vec<u8>,
    ) -> Result<Attributes> {
        if entry.attributes_id == 0 {
            return Ok(own);
        }
        let newer = self.changed_attributes(&self.snapshot(), &key(), entry)?;
        // Holes belong to the content.
        Ok(Attributes { holes: own.holes, ..newer })
    }

    /// The attributes of the object with this key and entry from the record in which they were changed alone, without
    /// holes.
    ///
    /// # Errors
    /// As [`attributes_of`](Self::attributes_of).
    pub(crate) fn changed_attributes(&self, snapshot: &Snapshot, key: &[u8], entry: &Entry) -> Result<Attributes> {
        let mut buffer = Vec::new();
        let mut found = snapshot.attributes_record(key, entry.attributes_id)?;
        loop {
            let read = found.map(|found| self.read_entry(&found, &mut buffer));
            let failed = match read {
                Some(Ok(record)) => return decode_attributes(record.head.attributes),
                Some(Err(error)) => Some(error),
                None => None,
            };
            // Compaction in another thread may have moved it, or another change superseded it a moment ago.
            let now = self.snapshot();
            let again = match now.attributes_record(key, entry.attributes_id)? {
                Some(again) => Some(again),
                None => now.look_up(&attributes_key(key))?.filter(|now| now.id > entry.attributes_id),
            };
            let again = again.filter(|again| again.number == entry.number);
            if again.is_some() && again != found {
                found = again;
                continue;
            }
            return Err(failed.unwrap_or_else(|| {
                let cause = format!("the index does not have record {} with its attributes", entry.attributes_id);
                Error::new(ErrorKind::Corrupt, "read", cause).at(&self.index_directory)
            }));
        }
    }
}
