//! Looking: at names, attributes, the target of a symbolic link.

use rustix::io::Errno;

use super::errno::Outcome;
use super::file_system::FileSystem;
use super::live::Info;
use super::wire::reply::{Reply, Shown};
use crate::locks::lock;
use crate::store::ids::ObjectNumber;
use crate::store::{Buffer, Kind};

impl FileSystem {
    /// An entry of a directory. That there is none is an answer, too, which the kernel may keep.
    pub(super) fn look_up(&self, directory: ObjectNumber, name: &[u8]) -> Outcome<Reply> {
        let key = self.entry_key(directory, name)?;
        let (valid, before) = (self.appearance.valid, self.changes());
        let Some(status) = self.store.stat(&key).map_err(|error| self.fail(error))? else {
            return Ok(Reply::no_entry(valid));
        };
        let number = status.entry.number;
        self.nodes.met(number, directory, name);
        let shown = match (self.nodes.held(number), status.entry.kind) {
            (Some(live), _) => self.shown(&live, &mut lock(&live.state)),
            // Its directories are counted.
            (None, Kind::Directory) => self.shown_of(number),
            // What was read may be out of date.
            (None, _) if self.changes() != before => self.shown_of(number),
            (None, _) => {
                let names = u32::try_from(status.names).unwrap_or(u32::MAX).max(1);
                let device = self.device_of(&key, &status.entry);
                device.map(|device| self.shown_as(number, &Info::of(status, device), names))
            }
        };
        let shown = shown.inspect_err(|_| self.nodes.forget(number, 1))?;
        Ok(Reply::entry(&shown, valid))
    }

    /// What a program sees of an object that the kernel knows.
    pub(super) fn shown_of(&self, number: ObjectNumber) -> Outcome<Shown> {
        let live = self.nodes.hold(number);
        let mut state = lock(&live.state);
        self.shown(&live, &mut state)
    }

    pub(super) fn attributes(&self, number: ObjectNumber) -> Outcome<Reply> {
        Ok(Reply::attributes(&self.shown_of(number)?, self.appearance.valid))
    }

    pub(super) fn statx(&self, number: ObjectNumber) -> Outcome<Reply> {
        Ok(Reply::statx(&self.shown_of(number)?, self.appearance.valid))
    }

    /// The target of a symbolic link.
    pub(super) fn read_link(&self, number: ObjectNumber) -> Outcome<Reply> {
        let (key, mut buffer) = (self.key_of(number)?, Buffer::default());
        let object = self.store.read(&key, &mut buffer).map_err(|error| self.fail(error))?;
        let link = object.filter(|object| object.entry.number == number).ok_or(Errno::STALE)?;
        match link.entry.kind {
            Kind::Symlink => Ok(Reply::bytes(link.content)),
            _ => Err(Errno::INVAL),
        }
    }
}
