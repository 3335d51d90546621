//! Pins: they prevent superseded segments and extent files from being unlinked while they are still read.
//!
//! A reader that needs a snapshot for long holds a lock on a file of its epoch, which ends with its process. It may be
//! another user than the writer: what the writer cannot look at counts as held. A pin **by name** outlives processes,
//! power failures, and the index: the catalog has its epoch, and a release record in the log, repeated at the beginning
//! of each segment, has the names of all existing pins. An index built from the log takes the names from there, and
//! gives them its own first epoch: nothing that existed when it was built is unlinked before they are released. That
//! epoch is above all earlier ones, so that locks of readers hold, too. An incomplete log may lack names; `status` says
//! so until that is accepted.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;

use super::Engine;
use crate::Store;
use crate::devices::platform::{Lock, UnknownPin};
use crate::engine::recovered::RELEASED;
use crate::error::{Error, ErrorKind, Result};
use crate::format::geometry::address_scheme;
use crate::format::rows::Change;
use crate::index::table::INDEX_DIRECTORY;
use crate::log::writer::release_record;

impl Store {
    /// What may be pins of readers who are other users, and cannot be looked at by this one, who may write to the
    /// store: what was freed is kept for it.
    pub fn unknown_pins(&self) -> Vec<UnknownPin> {
        self.engine().unknown_pins()
    }
}

/// Keeps what a state refers to from being freed, if this user may pin.
#[derive(Debug)]
pub(crate) struct Pin {
    lock: Option<Box<dyn Lock>>,
    /// The epoch of the state.
    epoch: u64,
}

impl Pin {
    /// Whether nothing is freed while it exists.
    pub(crate) fn is_held(&self) -> bool {
        self.lock.is_some()
    }

    /// Whether what the state refers to may be freed.
    pub(crate) fn loose(&self) -> Loose {
        Loose((!self.is_held()).then_some(self.epoch))
    }
}

/// Whether what a state refers to may be freed while it is read: of one that is not kept, the epoch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Loose(Option<u64>);

/// Several locks as one.
#[derive(Debug)]
struct Locks(#[expect(dead_code, reason = "held until it is dropped")] Vec<Box<dyn Lock>>);

impl Lock for Locks {}

/// Whether an error may be that of something that is not where it was.
pub(crate) fn is_of_place(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Lost | ErrorKind::NotFound)
}

impl Engine {
    /// Lets other users who may read the index pin it.
    pub(super) fn share_pins(&self) {
        self.pinned_places().iter().for_each(|index| self.platform.share_pins(index));
    }

    /// Pins what a snapshot of an epoch needs, in every place where a writer looks for pins, if this user may.
    ///
    /// # Errors
    /// Any error of locking.
    pub(crate) fn pin_epoch(&self, epoch: u64) -> io::Result<Pin> {
        let mut locks = Vec::new();
        for index in self.pinned_places() {
            match self.platform.pin(&index, epoch) {
                // A copy that is lost: a writer looks in the others too.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                pinned => locks.extend(pinned?),
            }
        }
        let lock = (!locks.is_empty()).then(|| Box::new(Locks(locks)) as Box<dyn Lock>);
        Ok(Pin { lock, epoch })
    }

    /// Whether a writer may have moved or freed what a state refers to since it was taken.
    pub(crate) fn may_have_freed(&self, loose: Loose) -> bool {
        let Loose(Some(epoch)) = loose else { return false };
        let is_removed = self.look_again().is_err_and(|error| error.kind() == ErrorKind::Busy);
        is_removed || self.view().state.epoch > epoch
    }

    /// An error of reading a state: what a writer has freed is not damaged.
    pub(crate) fn or_freed(&self, loose: Loose, error: Error) -> Error {
        match is_of_place(&error) && self.may_have_freed(loose) {
            true => self.freed(),
            false => error,
        }
    }

    /// The error that a state could not be kept, and was not.
    pub(crate) fn freed(&self) -> Error {
        self.unkept("a writer has moved or freed it meanwhile")
    }

    /// The error that what is read could not be kept, and why that matters.
    pub(super) fn unkept(&self, cause: &str) -> Error {
        let (why, advice) = match address_scheme(&self.home) {
            None => (
                "this user may not write there",
                "read it again while nobody compacts the store, or as a user who may write there",
            ),
            Some(_) => ("in a bucket, nothing is kept for readers", "read it again while nobody compacts the store"),
        };
        let cause = format!("{why}, and {cause}");
        Error::new(ErrorKind::Busy, "keep what is being read from being freed in", cause)
            .at(&self.index_directory)
            .advise(advice)
    }

    /// Pins the current state by a name; durable on return.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] if the name is too long; any error of writing.
    pub(crate) fn pin_named(&self, name: &str) -> Result<()> {
        if u16::try_from(name.len()).is_err() {
            return Err(Error::new(ErrorKind::Usage, "pin the store", "a name has at most 65,535 bytes"));
        }
        self.change_pins(|pins, epoch| {
            pins.insert(name.to_owned());
            Some(Change { pins: vec![(name.to_owned(), epoch)], ..Change::default() })
        })
        .map(drop)
    }

    /// Releases a pin; returns whether it existed.
    ///
    /// # Errors
    /// Any error of writing.
    pub(crate) fn unpin_named(&self, name: &str) -> Result<bool> {
        self.change_pins(|pins, _| {
            let is_there = pins.remove(name);
            is_there.then(|| Change { unpinned: vec![name.to_owned()], ..Change::default() })
        })
    }

    /// Commits a release record with other names of pins; `change` modifies the existing names, and returns the
    /// resulting change of the catalog in an epoch, or `None` if there is none.
    fn change_pins(&self, change: impl FnOnce(&mut BTreeSet<String>, u64) -> Option<Change>) -> Result<bool> {
        let mut writer = self.writer()?;
        let (mut pins, epoch) = {
            let view = self.view();
            (view.state.pins.keys().cloned().collect(), view.state.epoch)
        };
        let Some(changed) = change(&mut pins, epoch) else { return Ok(false) };
        let mut released = writer.released.clone();
        released.pins = pins;
        let mut record = release_record(&released)?;
        let batch = self.batch_of(&mut record);
        let mut appended = self.append_without_entries(&mut writer, batch)?;
        // A segment begun by the batch repeats the previous state.
        writer.released.pins = released.pins;
        appended.notes.push((RELEASED.to_owned(), writer.released.encode()));
        (appended.pins, appended.unpinned) = (changed.pins, changed.unpinned);
        self.apply_pending(&mut writer, appended)?;
        drop(writer);
        self.sync_all()?;
        Ok(true)
    }

    /// The lowest epoch below `below` that is pinned, by a process or by name, or may be; else `below`.
    pub(crate) fn unpinned_epoch(&self, below: u64) -> u64 {
        let named = self.view().state.pins.values().copied().min().unwrap_or(below);
        let unpinned = |index: &PathBuf| self.platform.unpinned(index, below);
        self.pinned_places().iter().map(unpinned).fold(below.min(named), u64::min)
    }

    /// What this process cannot look at in the place of readers' pins, though it may change the index: what was freed
    /// stays for it.
    pub(crate) fn unknown_pins(&self) -> Vec<UnknownPin> {
        self.pinned_places().iter().flat_map(|index| self.platform.unknown_pins(index)).collect()
    }

    /// The directories of the copies of the index.
    fn pinned_places(&self) -> Vec<PathBuf> {
        self.index.places().iter().map(|place| place.device.place().join(INDEX_DIRECTORY)).collect()
    }
}
