//! What this process knows of an object that the store does not: that it is open, and attributes that are newer.
//!
//! Times of directories and of files that are written change often. They change here, and go to the store with the
//! content, or when everything is committed.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use crate::store::ids::ObjectNumber;
use crate::store::{Attributes, Handle, Kind, SavedPending, Status, Time};

/// The type of a file, in a mode.
pub(super) const TYPE: u16 = 0o170_000;
pub(super) const DIRECTORY: u16 = 0o040_000;
pub(super) const REGULAR: u16 = 0o100_000;
pub(super) const SET_UID: u16 = 0o4000;
pub(super) const SET_GID: u16 = 0o2000;
pub(super) const GROUP_EXECUTE: u16 = 0o010;

/// An object that is open, has changed, or is looked at.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) number: ObjectNumber,
    pub(super) state: Mutex<LiveState>,
}

#[derive(Debug, Default)]
pub(super) struct LiveState {
    /// What is known, once it was asked for.
    pub(super) info: Option<Info>,
    /// Of a regular file that is used.
    pub(super) handle: Option<Arc<Handle>>,
    /// How often it is open, in a mount that is told: one for reading only.
    pub(super) opens: u32,
    /// Of a symbolic link whose last name is gone: where it leads, for who has it open.
    pub(super) target: Option<Vec<u8>>,
    /// Content or attributes are newer than in the store.
    pub(super) is_dirty: bool,
    /// It is among those that wait to be committed before what comes next.
    pub(super) is_waiting: bool,
    /// Bytes that were written since it was committed, with some for each write.
    pub(super) waiting_bytes: u64,
    /// It has no name, or no longer.
    pub(super) is_nameless: bool,
    /// It has names, but none that is known here: only what is open of it finds it.
    pub(super) is_unplaced: bool,
    /// When it has lost a name, if nothing was known of it then.
    pub(super) lost_name: Option<Time>,
    /// When it was last committed for the sake of what came next.
    pub(super) settled: Option<Instant>,
}

/// What an object was before a change that may fail.
#[derive(Debug)]
pub(super) struct Saved {
    info: Option<Info>,
    is_dirty: bool,
    waiting_bytes: u64,
    /// What its handle had pending, if the change is committed at once.
    pending: Option<SavedPending>,
}

/// What is known of an object.
#[derive(Debug, Clone)]
pub(super) struct Info {
    /// Without holes; with change and birth time.
    pub(super) attributes: Attributes,
    /// The access time that is shown. It is stored only if a program has set it; else it is the modification time when
    /// this was read.
    pub(super) atime: Time,
    /// Of what is not open.
    pub(super) size_bytes: u64,
    pub(super) allocated_bytes: u64,
    pub(super) device: (u32, u32),
    /// Directories in this one, once they were looked for.
    pub(super) directories: Option<Directories>,
}

/// Directories in a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Directories {
    Counted(u64),
    /// There were too many entries to count them among.
    Uncounted,
}

impl Directories {
    /// So many came or went.
    pub(super) fn changed_by(self, more: i64) -> Option<Directories> {
        match self {
            Directories::Counted(count) => count.checked_add_signed(more).map(Directories::Counted),
            Directories::Uncounted => Some(Directories::Uncounted),
        }
    }

    /// Number of names of the directory above them: its own, `.`, and `..` in each. 1 says that they are not counted,
    /// here as elsewhere (ext4 with more than 65,000, Btrfs always).
    pub(super) fn names(self) -> u32 {
        match self {
            Directories::Counted(count) => u32::try_from(count + 2).unwrap_or(1),
            Directories::Uncounted => 1,
        }
    }
}

impl Live {
    pub(super) fn new(number: ObjectNumber) -> Live {
        Live { number, state: Mutex::default() }
    }
}

impl LiveState {
    /// Whether it must stay: it is open, or more is here than the store has. What has no name, or none that is known,
    /// stays as long as the kernel knows it.
    pub(super) fn is_needed(&self, is_known: bool) -> bool {
        match (self.is_nameless, self.is_unplaced) {
            (true, _) => self.opens > 0 || is_known,
            (false, true) => self.opens > 0 || self.is_dirty || is_known,
            (false, false) => self.opens > 0 || self.is_dirty || self.handle.is_some(),
        }
    }

    /// What it is now; with what its handle has pending if `with_pending`, which may be megabytes.
    pub(super) fn save(&self, with_pending: bool) -> Saved {
        let handle = self.handle.as_ref().filter(|_| with_pending);
        let pending = handle.map(|handle| handle.save_pending());
        Saved { info: self.info.clone(), is_dirty: self.is_dirty, waiting_bytes: self.waiting_bytes, pending }
    }

    /// It is what it was: a change has failed.
    pub(super) fn restore(&mut self, saved: Saved) {
        (self.info, self.is_dirty, self.waiting_bytes) = (saved.info, saved.is_dirty, saved.waiting_bytes);
        if let (Some(handle), Some(pending)) = (&self.handle, saved.pending) {
            handle.restore_pending(pending);
        }
    }

    /// Whether its handle can be closed: it can be opened again, and nobody uses it at the moment. If somebody did, the
    /// handle would be closed later, and commit what another one has pending by then.
    pub(super) fn is_idle(&self) -> bool {
        let is_used = self.handle.as_ref().is_some_and(|handle| Arc::strong_count(handle) > 1);
        self.opens == 0 && !self.is_dirty && !self.is_nameless && !self.is_unplaced && !is_used
    }
}

impl Info {
    /// Of an object in the store. For a special file, `device` has its numbers.
    pub(super) fn of(status: Status, device: (u32, u32)) -> Info {
        let Status { entry, attributes, .. } = status;
        let allocated_bytes = match (&attributes.holes, entry.kind) {
            (Some(holes), _) => holes.data_bytes(),
            (None, Kind::File | Kind::Large) => entry.size_bytes,
            (None, _) => 0,
        };
        let info = Info::new(attributes);
        Info { size_bytes: entry.size_bytes, allocated_bytes, device, ..info }
    }

    /// Of an object with these attributes and nothing else.
    pub(super) fn new(attributes: Attributes) -> Info {
        let atime = attributes.atime.unwrap_or(attributes.mtime);
        let attributes = Attributes { holes: None, ..attributes };
        Info { attributes, atime, size_bytes: 0, allocated_bytes: 0, device: (0, 0), directories: None }
    }

    pub(super) fn is_directory(&self) -> bool {
        self.attributes.mode & TYPE == DIRECTORY
    }

    /// Content has changed. It then has no capabilities any more, whoever has changed it.
    pub(super) fn touch(&mut self, now: Time) {
        (self.attributes.mtime, self.attributes.ctime) = (now, Some(now));
        self.drop_capabilities();
    }

    fn drop_capabilities(&mut self) {
        self.attributes.xattrs.retain(|(name, _)| name != b"security.capability");
    }

    /// Removes what would let others act as the owner: of a file that is written by somebody who may not keep it, or
    /// that gets another owner. Mandatory locking, a set-group-id bit without execution, stays.
    pub(super) fn drop_set_id(&mut self) {
        let mode = &mut self.attributes.mode;
        *mode &= !SET_UID;
        if *mode & GROUP_EXECUTE > 0 {
            *mode &= !SET_GID;
        }
        self.drop_capabilities();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_counted_or_said_to_be_uncounted() {
        let two = Directories::Counted(3).changed_by(-1);
        assert_eq!((two, two.map(Directories::names)), (Some(Directories::Counted(2)), Some(4)));
        assert_eq!(Directories::Counted(0).changed_by(-1), None, "they are looked for again");
        assert_eq!(Directories::Counted(u64::from(u32::MAX)).names(), 1);
        let uncounted = Directories::Uncounted.changed_by(1);
        assert_eq!(uncounted.map(Directories::names), Some(1));
    }
}
