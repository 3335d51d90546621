//! What a store needs of the machine it is on: directories, locks, time and random numbers. The real one is
//! [`Host`](super::host::Host); a [bucket](super::bucket) is another, and the simulation has one.

use std::fmt::Debug;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::anchored::Anchor;
use super::device::Device;
use super::objects::counts::BucketStatus;
use crate::error::Result;
use crate::format::geometry::{Node, PRIVATE_MODE};

/// Directory that a new file system has.
pub(crate) const LOST_AND_FOUND: &str = "lost+found";

/// Holds a lock until dropped.
pub(crate) trait Lock: Send + Sync + Debug {
    /// Writes the holder's id into the lock, for refused processes; and, for readers, whether it has recovered the log.
    fn sign(&self, _has_recovered: bool) {}

    /// Whether no other process has signed it since: that has recovered the log later, or will.
    fn is_ours(&self) -> bool {
        true
    }
}

/// Holds publications back until it is published, or dropped.
///
/// On some platforms a sync is a publication of everything written before. Who syncs several files before it
/// acknowledges something holds them back, and publishes once.
pub(crate) trait Hold {
    /// Makes everything that was synced by any thread since durable, at one moment.
    ///
    /// # Errors
    /// It may not be durable; the platform has failed.
    fn publish(self: Box<Self>) -> io::Result<()>;
    /// Gives up everything that was written and not published: this process publishes nothing more.
    fn abandon(self: Box<Self>) {}
}

/// Where each sync makes durable what it says, nothing is held back.
struct NoHold;

impl Hold for NoHold {
    fn publish(self: Box<Self>) -> io::Result<()> {
        Ok(())
    }
}

/// A device private to this process, and the guard that removes it.
pub(crate) struct PrivateDevice {
    pub(crate) device: Arc<dyn Device>,
    pub(crate) guard: Box<dyn Lock>,
}

/// Something in the place of readers' pins that a writer cannot look at: it may be held, so what it could protect
/// stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownPin {
    /// The file of the pin, or the directory of all of them.
    pub path: PathBuf,
    /// Why it cannot be looked at.
    pub cause: String,
}

/// Who creates what has no attributes of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Creator {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Permission bits that it does not give.
    pub(crate) umask: u16,
}

/// Provides a store's directories, locks and time.
pub(crate) trait Platform: Send + Sync + Debug {
    /// Who creates directories that nobody described: the user of this process.
    fn creator(&self) -> Creator {
        Creator { uid: 0, gid: 0, umask: 0o022 }
    }

    /// The directory at `path`, which need not exist; files created in it get these permission bits.
    fn device_with(&self, path: &Path, file_mode: u16) -> Arc<dyn Device>;
    /// The same, read-only use.
    fn device(&self, path: &Path) -> Arc<dyn Device> {
        self.device_with(path, PRIVATE_MODE)
    }
    /// File system and inode of a directory; `None` if it does not exist.
    fn node(&self, path: &Path) -> Option<Node>;
    /// Anchors the directory that is at `path` now; `None` if there is none.
    fn anchor(&self, path: &Path) -> Option<Box<dyn Anchor>>;
    /// The absolute path without symbolic links, resolved as far as it exists.
    fn resolve(&self, path: &Path) -> PathBuf;
    /// A random number that is unpredictable and does not repeat.
    fn random(&self) -> Result<u64>;
    /// Whether a directory contains other directories than those on the way to `allowed`.
    fn has_directories(&self, path: &Path, allowed: &[PathBuf]) -> io::Result<bool>;
    /// Whether a directory is the `lost+found` of an unused file system: empty, the administrator's, and no link.
    fn is_lost_and_found(&self, _directory: &Path) -> bool {
        false
    }
    /// Whether something is where a store is to be made that [`device`](Self::device) does not show.
    ///
    /// # Errors
    /// It cannot be examined.
    fn has_others(&self, _home: &Path) -> io::Result<bool> {
        Ok(false)
    }
    /// The exclusive lock on a directory; `None` if another process has it.
    fn lock(&self, directory: &Path) -> io::Result<Option<Box<dyn Lock>>>;
    /// The process that holds the lock, if it has said who it is, in words.
    fn holder(&self, directory: &Path) -> Option<String>;
    /// Whether any process holds the lock.
    fn is_locked(&self, directory: &Path) -> bool;
    /// Whether a process holds the lock that has recovered the log, so that the index has all that was acknowledged.
    fn has_writer(&self, directory: &Path) -> bool {
        self.is_locked(directory)
    }
    /// Lets other users who may read the index pin it.
    fn share_pins(&self, _index: &Path) {}
    /// Pins what a snapshot of an epoch needs; `None` if that is impossible.
    fn pin(&self, index: &Path, epoch: u64) -> io::Result<Option<Box<dyn Lock>>>;
    /// The lowest epoch below `below` that is or may be pinned, else `below`.
    fn unpinned(&self, index: &Path, below: u64) -> u64;
    /// What this process cannot look at in the place of pins, though it may change the index.
    fn unknown_pins(&self, _index: &Path) -> Vec<UnknownPin> {
        Vec::new()
    }
    /// A place for an index used only by this process.
    fn private_device(&self) -> Result<PrivateDevice>;
    /// Nanoseconds since 1970.
    fn now_nanoseconds(&self) -> i64;
    /// A gap of at most so many bytes between two ranges of a file is worth reading, whatever reads.
    fn least_gap_bytes(&self) -> u64 {
        0
    }
    /// What the store has in its bucket, if it is in one.
    fn bucket(&self) -> Option<BucketStatus> {
        None
    }
    /// How long nothing has been heard of another process that writes, if that is so long that it has probably ended.
    /// Only known where it cannot be seen.
    fn writer_silence(&self) -> Option<Duration> {
        None
    }
    /// Whether some read has failed for a reason that says nothing about what is read.
    fn has_unanswered(&self) -> bool {
        false
    }
    /// Holds publications back, if a sync is one.
    fn hold(&self) -> Box<dyn Hold> {
        Box::new(NoHold)
    }
    /// Frees what is in no file and no longer needed, where that is possible.
    ///
    /// # Errors
    /// It cannot be looked for. Nothing else has changed.
    fn collect(&self) -> io::Result<()> {
        Ok(())
    }
    /// How long a writer must be idle before the log is marked; `None`: never.
    fn idle_interval(&self) -> Option<Duration> {
        Some(Duration::from_secs(1))
    }
}
