//! Copies of a store that are brought up to date: `clone`, `push` and `pull`.
//!
//! A copy has the identity of its source, and the same files: segments, extent files, sorted tables. It is one state of
//! the source, with everything that is in its log, snapshots too. What it lacks is transferred, nothing else; a copy
//! that was written to is refused and stays as it is.
//!
//! | module | subject |
//! | --- | --- |
//! | `image` | one state of a store, as files |
//! | `source` | where that comes from |
//! | `relation` | whether a copy may become a newer state |
//! | `staging` | the files of a copy, made beside it |
//! | `verify` | what came is what was written |
//! | `directory` | a copy in a directory, from the comparison to the exchange |
//! | `volume` | a copy in a bucket, from the comparison to the publication |
//! | `wire`, `stream` | a source or a copy on another machine, through a pipe |

mod directory;
pub(crate) mod image;
mod relation;
mod source;
mod staging;
mod stream;
mod verify;
mod volume;
pub(crate) mod wire;

#[cfg(test)]
mod tests;

use std::path::Path;

use self::source::StoreSource;
pub use self::stream::{Incoming, Peer};
use crate::Store;
use crate::devices::bucket::BucketOptions;
use crate::error::Result;
use crate::format::geometry::address_scheme;
use crate::progress::Progress;

/// How a copy is made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CopyOptions {
    /// Most bytes per second.
    pub bytes_per_second: Option<u64>,
    /// Verify every byte of the copy before it counts, also what it had before.
    pub is_verified: bool,
    /// How the bucket is used that the copy is in.
    pub bucket: BucketOptions,
}

/// What was copied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Copied {
    /// There was no copy before.
    pub is_new: bool,
    /// The copy was up to date.
    pub is_unchanged: bool,
    /// It was asked to stop: the copy is as it was, and what was transferred stays for the next time.
    pub is_interrupted: bool,
    /// Files with bytes that were transferred.
    pub files: u64,
    /// Bytes that were transferred, also of what a writer has freed meanwhile.
    pub bytes: u64,
    /// Files that were there: of the copy, or from an interrupted attempt.
    pub kept_files: u64,
    /// Bytes that were there.
    pub kept_bytes: u64,
    /// Segments of the state.
    pub segments: u64,
    /// Snapshots of the state.
    pub snapshots: u64,
    /// Sequence number of its last batch.
    pub batch: u64,
}

impl Store {
    /// Makes a copy of the current state of the store in a directory that does not exist or is empty. With the copy
    /// interrupted, calling it again goes on.
    ///
    /// ```
    /// use granulo_store::{Attributes, CopyOptions, Key, Plan, Progress, Store, Time};
    ///
    /// # let place = tempfile::tempdir()?;
    /// let (home, copy) = (place.path().join("store"), place.path().join("copy"));
    /// let store = Store::create(&home, &Plan::default())?;
    /// let attributes = Attributes::of_file(Time { seconds: 0, nanoseconds: 0 });
    /// store.put(&Key::parse("a")?, &attributes, b"one")?;
    /// store.clone_to(&copy, &CopyOptions::default(), &Progress::default())?;
    ///
    /// // Later, only what is new is transferred.
    /// store.put(&Key::parse("b")?, &attributes, b"two")?;
    /// store.push_to(&copy, &CopyOptions::default(), &Progress::default())?;
    /// assert_eq!(Store::open_read_only(&copy)?.get(&Key::parse("b")?)?.unwrap(), b"two");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Exists`](crate::error::ErrorKind::Exists) if something is there; [`Lost`](crate::error::ErrorKind::Lost) if
    /// this store is incomplete, or lacks a device; errors of reading and writing.
    pub fn clone_to(&self, to: &Path, options: &CopyOptions, progress: &Progress) -> Result<Copied> {
        let mut source = StoreSource::new(self);
        match address_scheme(to) {
            Some(_) => volume::copy(&mut source, to, true, options, progress),
            None => directory::make(&mut source, to, options, progress),
        }
    }

    /// Brings a copy up to date. Until it is, it stays what it was; it changes at one moment.
    ///
    /// # Errors
    /// [`Exists`](crate::error::ErrorKind::Exists) if it was written to, or is no copy of this store: nothing is
    /// changed. [`Busy`](crate::error::ErrorKind::Busy) if another process writes to it, or reads what would be
    /// removed. [`Lost`](crate::error::ErrorKind::Lost) if this store is incomplete, or lacks a device; errors of
    /// reading and writing.
    pub fn push_to(&self, copy: &Path, options: &CopyOptions, progress: &Progress) -> Result<Copied> {
        let mut source = StoreSource::new(self);
        match address_scheme(copy) {
            Some(_) => volume::copy(&mut source, copy, false, options, progress),
            None => directory::update(&mut source, copy, options, progress),
        }
    }

    /// As [`clone_to`](Self::clone_to), with the copy where [`serve_peer`](Self::serve_peer) runs.
    ///
    /// # Errors
    /// As [`clone_to`](Self::clone_to); the other side is gone.
    pub fn clone_to_peer(&self, peer: Peer<'_>, options: &CopyOptions, progress: &Progress) -> Result<Copied> {
        stream::copy_to(&mut StoreSource::new(self), peer, true, options, progress)
    }

    /// As [`push_to`](Self::push_to), with the copy where [`serve_peer`](Self::serve_peer) runs.
    ///
    /// # Errors
    /// As [`push_to`](Self::push_to); the other side is gone.
    pub fn push_to_peer(&self, peer: Peer<'_>, options: &CopyOptions, progress: &Progress) -> Result<Copied> {
        stream::copy_to(&mut StoreSource::new(self), peer, false, options, progress)
    }

    /// As [`clone_to`](Self::clone_to), of the store where [`serve_peer`](Self::serve_peer) runs.
    ///
    /// # Errors
    /// As [`clone_to`](Self::clone_to); the other side is gone.
    pub fn clone_from_peer(peer: Peer<'_>, to: &Path, options: &CopyOptions, progress: &Progress) -> Result<Copied> {
        stream::copy_from(peer, to, true, options, progress)
    }

    /// As [`push_to`](Self::push_to), of the store where [`serve_peer`](Self::serve_peer) runs.
    ///
    /// # Errors
    /// As [`push_to`](Self::push_to); the other side is gone.
    pub fn pull_from_peer(peer: Peer<'_>, copy: &Path, options: &CopyOptions, progress: &Progress) -> Result<Copied> {
        stream::copy_from(peer, copy, false, options, progress)
    }

    /// Does what another granulo wishes with the store, or the copy, at a place: is its source, or becomes its copy.
    /// The other side is told of errors.
    ///
    /// # Errors
    /// The other side is gone, or says something else than a granulo of this version.
    pub fn serve_peer(home: &Path, peer: Peer<'_>, progress: &Progress) -> Result<()> {
        stream::serve(home, peer, progress)
    }
}
