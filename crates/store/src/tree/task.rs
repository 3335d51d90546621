//! What an import does with each file, what it asks for, and what it did.

use std::sync::Arc;

use super::Reports;
use super::names::Handover;
use super::selection::Selection;
use super::walk::SourceEntry;
use crate::Listed;
use crate::format::ids::ObjectNumber;
use crate::format::key::Key;

/// What to import, and how.
#[derive(Debug, Clone)]
pub struct ImportOptions {
    /// The directory of the store for the content of the source; created if it is missing.
    pub prefix: Key,
    /// Keep access times.
    pub access_times: bool,
    /// Do not enter other file systems than that of the source's root.
    pub one_file_system: bool,
    /// Number of threads that read; `None` for a default by the number of processors.
    pub threads: Option<usize>,
    /// Read objects that are already in the store, and replace those that are damaged.
    pub verify: bool,
    /// What of the source is wanted.
    pub selection: Selection,
    /// Remove from the store what is below the prefix and no longer in the source, as far as it is wanted; see
    /// [`ImportSummary::removed`]. Archives ignore it.
    pub delete: bool,
}

impl Default for ImportOptions {
    fn default() -> ImportOptions {
        ImportOptions {
            prefix: Key::root(),
            access_times: true,
            one_file_system: false,
            threads: None,
            verify: false,
            selection: Selection::default(),
            delete: false,
        }
    }
}

/// Result of an import.
#[derive(Debug, Default)]
pub struct ImportSummary {
    /// Directories stored.
    pub directories: u64,
    /// Files stored; one with several names counts once.
    pub files: u64,
    /// Second and later names stored.
    pub links: u64,
    /// Symlinks stored.
    pub symlinks: u64,
    /// Fifos, sockets and devices stored.
    pub specials: u64,
    /// Bytes of content stored, without holes.
    pub content_bytes: u64,
    /// Objects that are already in the store.
    pub unchanged: u64,
    /// Damaged objects of the store that were replaced; they count as stored too.
    pub replaced: u64,
    /// Files that changed while they were read, twice; they are reported too.
    pub changed: u64,
    /// Directories of the store itself in the source.
    pub own_directories: u64,
    /// Members of an archive that were refused because of their name or kind; they are reported too.
    pub refused: u64,
    /// Objects that were removed because the source no longer has them.
    pub removed: u64,
    /// Nothing was removed, although that was requested: a part of the source could not be examined.
    pub removal_refused: bool,
    /// Extended attributes that this user may not read, or that an archive has in an unknown form.
    pub xattrs_unreadable: u64,
    /// Files that could not be imported, or only in part.
    pub reports: Reports,
    /// Whether a stop was requested.
    pub interrupted: bool,
}

impl ImportSummary {
    /// Adds the counts of another thread, or of a batch.
    pub(super) fn add(&mut self, other: &ImportSummary) {
        self.directories += other.directories;
        self.files += other.files;
        self.links += other.links;
        self.symlinks += other.symlinks;
        self.specials += other.specials;
        self.content_bytes += other.content_bytes;
        self.unchanged += other.unchanged;
        self.replaced += other.replaced;
        self.changed += other.changed;
        self.xattrs_unreadable += other.xattrs_unreadable;
    }
}

/// What to do with a file.
pub(super) enum Action {
    /// Store it as an object of its own.
    Put,
    /// Store it as a shared object, and pass on its number.
    PutShared(Arc<Handover<ObjectNumber>>),
    /// Add a name when the number is known.
    Link(Arc<Handover<ObjectNumber>>),
    /// The store lists the same: store it if the rest differs, or if the store has other names of it, which the source
    /// no longer has.
    PutIfOther(Box<Listed>),
}

/// A file and what to do with it.
pub(super) struct Task {
    pub found: SourceEntry,
    pub action: Action,
    /// Something else has its key: what is no directory, for a directory, or a directory with its content.
    pub replace: bool,
}
