//! Looking: at names, attributes, the target of a symbolic link.

use std::sync::TryLockError;

use rustix::io::Errno;

use super::errno::Outcome;
use super::file_system::FileSystem;
use super::live::{Info, Live};
use super::wire::reply::{Reply, Shown};
use crate::store::ids::ObjectNumber;
use crate::store::{Attributes, Buffer, Entry, Kind, Listed};

impl FileSystem {
    /// An entry of a directory. That there is none is an answer, too, which the kernel may keep.
    pub(super) fn look_up(&self, directory: ObjectNumber, name: &[u8]) -> Outcome<Reply> {
        let key = self.entry_key(directory, name)?;
        let (valid, before) = (self.appearance.valid, self.changes());
        let Some(Listed { entry, .. }) = self.store.entry(&key).map_err(|error| self.fail(error))? else {
            return Ok(Reply::no_entry(valid));
        };
        let number = entry.number;
        self.nodes.met(number, directory, name);
        let shown = match (self.nodes.held(number), entry.kind) {
            (Some(live), _) => self.shown_met(&live),
            // What was read may be out of date.
            (None, Kind::File | Kind::Symlink | Kind::Directory) if self.changes() == before => {
                self.shown_in_index(&entry)
            }
            (None, _) => self.shown_of(number),
        };
        let shown = shown.inspect_err(|_| self.nodes.forget(number, 1))?;
        Ok(Reply::entry(&shown, valid))
    }

    /// What the index says of a small file, a symbolic link or a directory: no record is read for it. The access time
    /// that a program has set is in the record only; here it is the modification time.
    pub(super) fn shown_in_index(&self, entry: &Entry) -> Outcome<Shown> {
        let attributes = Attributes {
            mode: entry.mode,
            uid: entry.uid,
            gid: entry.gid,
            mtime: entry.mtime,
            ctime: Some(entry.ctime),
            ..Attributes::default()
        };
        let allocated_bytes = match entry.kind {
            Kind::File => entry.size_bytes.min(entry.location.record_bytes),
            _ => 0,
        };
        let mut info = Info { size_bytes: entry.size_bytes, allocated_bytes, ..Info::new(attributes) };
        let names = match entry.kind {
            Kind::Directory => self.names_of_directory(entry.number, &mut info)?,
            _ => self.names_of(entry.number),
        };
        Ok(self.shown_as(entry.number, &info, names))
    }

    /// What a program sees of an object that the kernel knows.
    pub(super) fn shown_of(&self, number: ObjectNumber) -> Outcome<Shown> {
        let live = self.nodes.hold(number);
        let mut state = self.attention.lock(&live.state);
        self.shown(&live, &mut state)
    }

    /// The same of one that was just met under a name.
    fn shown_met(&self, live: &Live) -> Outcome<Shown> {
        let mut state = self.attention.lock(&live.state);
        self.meet_again(live.number, &mut state);
        self.shown(live, &mut state)
    }

    /// As [`shown_met`](Self::shown_met); `None` also if its state is locked: whoever has it may wait for devices, or
    /// for space.
    pub(super) fn shown_if_free(&self, live: &Live) -> Option<Shown> {
        let mut state = match live.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(state)) => state.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        self.meet_again(live.number, &mut state);
        self.shown(live, &mut state).ok()
    }

    pub(super) fn attributes(&self, number: ObjectNumber) -> Outcome<Reply> {
        Ok(Reply::attributes(&self.shown_of(number)?, self.appearance.valid))
    }

    pub(super) fn statx(&self, number: ObjectNumber) -> Outcome<Reply> {
        Ok(Reply::statx(&self.shown_of(number)?, self.appearance.valid))
    }

    pub(super) fn read_link(&self, number: ObjectNumber) -> Outcome<Reply> {
        let live = self.nodes.hold(number);
        let state = self.attention.lock(&live.state);
        match &state.target {
            Some(target) => Ok(Reply::bytes(target)),
            None => Ok(Reply::bytes(&self.target(number)?)),
        }
    }

    /// The target of a symbolic link. Called with its state locked.
    pub(super) fn target(&self, number: ObjectNumber) -> Outcome<Vec<u8>> {
        let (key, mut buffer) = (self.key_of(number)?, Buffer::default());
        let object = self.store.read(&key, &mut buffer).map_err(|error| self.fail_of(number, error))?;
        let link = object.filter(|object| object.entry.number == number).ok_or(Errno::STALE)?;
        match link.entry.kind {
            Kind::Symlink => Ok(link.content.to_vec()),
            _ => Err(Errno::INVAL),
        }
    }
}
