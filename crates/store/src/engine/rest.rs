//! A store at rest: opened for reading as it was when a snapshot was taken.
//!
//! A pin keeps the files of that state. A user who cannot pin reads it all the same: as long as the snapshot exists,
//! the index of now says where a writer has moved what is not where it was.

use std::collections::HashMap;
use std::sync::OnceLock;

use super::Engine;
use crate::engine::pins::Pin;
use crate::error::{Error, Result};
use crate::format::entry::Kind;
use crate::format::ids::ObjectNumber;
use crate::format::index_key::ROOT_KEY;
use crate::index::Snapshot;
use crate::units::escape;

/// The snapshot that is looked at.
#[derive(Debug)]
pub(super) struct Rest {
    sequence: u64,
    name: Vec<u8>,
    /// Keeps it from being freed.
    pin: Pin,
    /// Numbers of names of the files that have several, once they are asked for: the accounts are those of now.
    names: OnceLock<HashMap<ObjectNumber, u64>>,
}

impl Engine {
    /// From here on, a store that was opened for reading is what it was when a snapshot was taken; returns whether one
    /// of this name exists.
    ///
    /// # Errors
    /// As [`pinned`](Self::pinned).
    pub(crate) fn rest_at(&self, name: &[u8]) -> Result<bool> {
        assert!(!self.is_writer(), "a snapshot is read only");
        let (pin, mut view) = self.pinned_as_it_is()?;
        let Some(sequence) = view.state.snapshot_named(name).map(|row| row.sequence) else { return Ok(false) };
        view.at = Some(sequence);
        self.replace_view(view);
        let rest = Rest { sequence, name: name.to_vec(), pin, names: OnceLock::new() };
        assert!(self.rest.set(rest).is_ok(), "one snapshot is looked at");
        Ok(true)
    }

    /// After a failed read: takes in what another process has changed, to find again what it has moved; returns whether
    /// there was anything. At a snapshot that is kept, nothing has moved.
    ///
    /// # Errors
    /// As [`refresh`](Self::refresh); [`Busy`](crate::error::ErrorKind::Busy) if the snapshot that is looked at was not
    /// kept, and removed.
    pub(crate) fn look_again(&self) -> Result<bool> {
        match self.rest.get() {
            None => self.refresh(),
            Some(rest) if rest.pin.is_held() => Ok(false),
            Some(rest) => self.renew(Some(rest.sequence)),
        }
    }

    /// The error that the snapshot that is looked at was removed.
    pub(super) fn removed_snapshot(&self) -> Error {
        let name = self.rest.get().map(|rest| escape(&rest.name)).unwrap_or_default();
        self.unkept(&format!("the snapshot {name} was removed meanwhile"))
    }

    /// The index of now, for finding again what a state referred to: at the snapshot with a sequence number, if one is
    /// given; `None` if that was removed.
    ///
    /// # Errors
    /// As [`look_again`](Self::look_again).
    pub(crate) fn snapshot_again(&self, sequence: Option<u64>) -> Result<Option<Snapshot>> {
        self.look_again()?;
        let view = self.view();
        Ok(match sequence {
            None => Some(view.snapshot()),
            Some(sequence) if view.state.has_snapshot(sequence) => Some(view.snapshot().at(sequence)),
            Some(_) => None,
        })
    }

    /// Number of names of a file with several; 0 if it no longer exists. At a snapshot, the first call reads all
    /// entries, and what of these cannot be read counts as absent.
    pub(crate) fn names_of(&self, file: ObjectNumber) -> u64 {
        match self.rest.get() {
            None => self.view().state.shared.get(&file).copied().unwrap_or(0),
            Some(rest) => rest.names.get_or_init(|| self.count_names()).get(&file).copied().unwrap_or(0),
        }
    }

    fn count_names(&self) -> HashMap<ObjectNumber, u64> {
        let mut names = HashMap::new();
        let Ok(mut scan) = self.snapshot().scan_from(ROOT_KEY) else { return names };
        while let Ok(Some((_, entry))) = scan.next_entry() {
            if entry.kind == Kind::Link {
                *names.entry(entry.linked()).or_default() += 1;
            }
        }
        names
    }
}
