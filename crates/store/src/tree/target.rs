//! What to export, what came of it, and the state that the threads of an export share.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex};

use super::walk::path_of;
use super::{Ledger, Reports};
use crate::Store;
use crate::format::key::Key;
use crate::locks::{lock, unpoisoned};

/// What to export, and how.
#[derive(Debug, Clone)]
pub struct ExportOptions {
    /// The directory of the store whose content is exported to the target.
    pub prefix: Key,
    /// Accept a target with content: an existing object of the same kind, size and modification time stays, one that
    /// differs is replaced, any other is left alone. Without this option the target must be empty or not exist.
    pub resume: bool,
    /// Report owners that cannot be set, instead of only counting them.
    pub require_owners: bool,
    /// Number of threads that write; `None` for a default by the number of processors.
    pub threads: Option<usize>,
}

impl Default for ExportOptions {
    fn default() -> ExportOptions {
        ExportOptions { prefix: Key::root(), resume: false, require_owners: false, threads: None }
    }
}

/// Result of an export.
#[derive(Debug, Default)]
pub struct ExportSummary {
    /// Directories created or entered.
    pub directories: u64,
    /// Files created; one with several names counts once.
    pub files: u64,
    /// Second and later names created.
    pub links: u64,
    /// Symlinks created.
    pub symlinks: u64,
    /// Fifos, sockets and devices created.
    pub specials: u64,
    /// Bytes of content written, without holes.
    pub content_bytes: u64,
    /// Objects that existed already.
    pub unchanged: u64,
    /// Objects that belong to this user, who may not set their owner. They have no set-user-ID and set-group-ID.
    pub owners_not_set: u64,
    /// Extended attributes that only root may set, or that the file system does not support.
    pub xattrs_not_set: u64,
    /// Devices that only root may create.
    pub specials_not_made: u64,
    /// Objects that could not be exported, or only in part.
    pub reports: Reports,
    /// Whether a stop was requested. Directories then lack their attributes; see [`ExportOptions::resume`].
    pub interrupted: bool,
}

/// State that all threads of an export share.
pub(super) struct Export<'e> {
    pub store: &'e Store,
    pub ledger: &'e Ledger<'e>,
    pub options: &'e ExportOptions,
    pub target: &'e Path,
    pub root: OwnedFd,
    pub is_root_user: bool,
    open: OpenDirectories,
    /// Directories whose permissions would lock their owner out; these are set last.
    late: Mutex<Vec<Key>>,
    pub done: Mutex<ExportSummary>,
}

/// Number of open directories.
#[derive(Default)]
struct OpenDirectories {
    count: Mutex<usize>,
    closed: Condvar,
}

impl<'e> Export<'e> {
    pub(super) fn new(
        store: &'e Store,
        options: &'e ExportOptions,
        target: &'e Path,
        root: OwnedFd,
        ledger: &'e Ledger<'e>,
    ) -> Export<'e> {
        Export {
            store,
            ledger,
            options,
            target,
            root,
            is_root_user: rustix::process::geteuid().is_root(),
            open: OpenDirectories::default(),
            late: Mutex::default(),
            done: Mutex::default(),
        }
    }

    /// The target path of an object, for messages.
    pub(super) fn path_of(&self, key: &Key) -> PathBuf {
        path_of(self.target, &self.options.prefix, key)
    }

    /// Leaves the attributes of a directory to the end.
    pub(super) fn finish_later(&self, key: Key) {
        lock(&self.late).push(key);
    }

    /// Takes the directories that were left to the end: each before its parent, as look-ups in that may fail
    /// afterwards.
    pub(super) fn take_late(&self) -> Vec<Key> {
        let mut late = std::mem::take(&mut *lock(&self.late));
        late.sort_unstable();
        late.dedup();
        late.reverse();
        late
    }

    /// Counts a directory of the target that is opened, until [`closed`](Self::closed).
    pub(super) fn opened(&self) {
        *lock(&self.open.count) += 1;
    }

    /// Counts a directory of the target that is closed.
    pub(super) fn closed(&self) {
        *lock(&self.open.count) -= 1;
        self.open.closed.notify_all();
    }

    /// Number of open directories of the target.
    pub(super) fn open_directories(&self) -> usize {
        *lock(&self.open.count)
    }

    /// Waits until fewer than `most` directories of the target are open.
    pub(super) fn await_fewer_directories(&self, most: usize) {
        let mut count = lock(&self.open.count);
        while *count >= most {
            count = unpoisoned(self.open.closed.wait(count));
        }
    }
}
