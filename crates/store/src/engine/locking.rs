//! How a store is opened, and the locks that a writer takes first: of the home and of every device that it may write.

use std::path::Path;
use std::time::Duration;

use crate::devices::platform::{Lock, Platform};
use crate::devices::survey::{OpenOptions, Survey, survey};
use crate::error::{Error, ErrorKind, Result};

/// How often to retry a lock that is held, and the interval.
const LOCK_ATTEMPTS: u32 = 10;
const LOCK_PAUSE: Duration = Duration::from_millis(5);
/// Error for unreadable data (`EIO`).
pub(super) const UNREADABLE: i32 = rustix::io::Errno::IO.raw_os_error();
/// Error of file systems without locks (`ENOLCK`).
const NO_LOCKS: i32 = rustix::io::Errno::NOLCK.raw_os_error();

/// How a store is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Write,
    Read,
    /// As `Write`, and the index is rebuilt.
    RebuildIndex,
    /// As `Read`, with a private index, whatever exists.
    ReadWithoutIndex,
}

impl Access {
    pub(super) fn is_writer(self) -> bool {
        matches!(self, Access::Write | Access::RebuildIndex)
    }

    /// The same, whatever index exists.
    pub(crate) fn without_index(self) -> Access {
        if self.is_writer() { Access::RebuildIndex } else { Access::ReadWithoutIndex }
    }
}

/// The survey used by a writer: judged, all locks taken, read and judged again.
///
/// # Errors
/// As [`Survey::may_write`]; [`ErrorKind::Busy`]; any error of reading superblocks and of locking.
pub(super) fn locked(
    platform: &dyn Platform,
    directory: &Path,
    options: &OpenOptions,
    mut found: Survey,
    locks: &mut Vec<Box<dyn Lock>>,
) -> Result<Survey> {
    found.may_write(platform, options)?;
    found.make_home(platform)?;
    lock(platform, &found.home, locks)?;
    let mut failed = Vec::new();
    for slot in found.slots.iter().filter(|slot| slot.is_writable() && slot.path != found.home) {
        match lock(platform, &slot.path, locks) {
            Err(error) if error.os_error().is_some_and(is_of_disk) => failed.push((slot.entry.number, error)),
            outcome => outcome?,
        }
    }
    found.set_failed(&failed);
    // Superblocks may have changed before the locks were taken.
    let mut again = survey(platform, directory, options)?;
    again.set_failed(&failed);
    again.may_write(platform, options)?;
    if !again.is_same_as(&found) {
        return Err(Error::new(ErrorKind::Busy, "write to", "its devices changed meanwhile")
            .at(directory)
            .advise("try again"));
    }
    Ok(again)
}

/// Whether an error says that nothing can be written to a file system: as ext4 does it, it became read-only after one.
pub(crate) fn is_of_disk(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::ReadOnlyFilesystem || error.raw_os_error() == Some(UNREADABLE)
}

/// Takes the lock of a directory.
///
/// # Errors
/// [`ErrorKind::Busy`] if another process has it; any error of locking.
pub(crate) fn lock(platform: &dyn Platform, directory: &Path, locks: &mut Vec<Box<dyn Lock>>) -> Result<()> {
    let fail = |error: std::io::Error| {
        let is_read_only = error.kind() == std::io::ErrorKind::ReadOnlyFilesystem;
        let cannot = matches!(error.kind(), std::io::ErrorKind::Unsupported) || error.raw_os_error() == Some(NO_LOCKS);
        let error = Error::io("lock the store", directory, error);
        match () {
            () if cannot => error.advise(
                "the file system has no locks (flock), like NFS without its lock service: writing to a store needs them",
            ),
            () if is_read_only => error.advise("remount the file system for writing: until then, the store can be read"),
            () => error,
        }
    };
    let mut lock = platform.lock(directory).map_err(fail)?;
    for _ in 0..LOCK_ATTEMPTS {
        if lock.is_none() {
            // Another process may hold it briefly, only to test whether it is held.
            std::thread::sleep(LOCK_PAUSE);
            lock = platform.lock(directory).map_err(fail)?;
        }
    }
    match lock {
        Some(lock) => {
            lock.sign(false);
            locks.push(lock);
            Ok(())
        }
        None => {
            let who = match platform.holder(directory) {
                Some(process) => format!("another process ({process}) has it open for writing"),
                None => "another process has it open for writing".to_owned(),
            };
            Err(Error::new(ErrorKind::Busy, "write to", who)
                .at(directory)
                .advise("wait for it to end; the store can still be read"))
        }
    }
}
