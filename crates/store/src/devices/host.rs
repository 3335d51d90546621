//! The platform of stores outside tests: directories, `flock`, the clock.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{FlockOperation, statvfs};

use super::anchored::Anchor;
use super::locked::{Held, try_lock};
use super::pins;
use super::platform::{Creator, Lock, Platform, PrivateDevice, UnknownPin};
use super::private;
use crate::devices::device::Device;
use crate::devices::directory::{Directory, open_regular};
use crate::error::Result;
use crate::format::geometry::{Node, PRIVATE_MODE, absolute, random_identity};
use crate::format::superblock::SUPERBLOCK;

/// The file that the writer locks.
pub(crate) const LOCK: &str = "lock";
/// Maximum length of the text in it.
const LONGEST_TEXT: u64 = 40;
/// Follows the process id, and the nonce of the holder, until the log has been recovered.
const RECOVERING: &str = " recovering";

/// This machine.
#[derive(Debug)]
pub(crate) struct Host;

/// The lock of the writer.
#[derive(Debug)]
struct WriterLock {
    held: Held,
    path: PathBuf,
    /// Tells this holder from others, on other machines, too.
    nonce: u64,
    /// Whether the text is that of this holder, or none.
    is_signed: AtomicBool,
    /// The directory that was locked.
    place: Option<Box<dyn Anchor>>,
}

/// Most locks that a forked child can leave to its parent.
const MOST_LOCKS: usize = 256;
const NO_LOCK: RawFd = -1;
/// Descriptors of the locks of this process as a writer: without a mutex, which a fork may find taken.
static WRITING: [AtomicI32; MOST_LOCKS] = [const { AtomicI32::new(NO_LOCK) }; MOST_LOCKS];

/// Replaces a descriptor in the list of those of locks.
fn note(old: RawFd, new: RawFd) {
    let _ = WRITING.iter().any(|slot| slot.compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed).is_ok());
}

/// Descriptors of the locks that a forked child shares with its parent, for the child to close: else the store of a
/// parent that is killed stays locked while a child lives. The child must neither use nor drop what its parent opened.
pub fn inherited_locks() -> Vec<RawFd> {
    WRITING.iter().map(|slot| slot.swap(NO_LOCK, Ordering::Relaxed)).filter(|&lock| lock != NO_LOCK).collect()
}

impl WriterLock {
    fn new(held: Held, path: PathBuf, nonce: u64, place: Option<Box<dyn Anchor>>) -> WriterLock {
        note(NO_LOCK, held.file.as_raw_fd());
        WriterLock { held, path, nonce, is_signed: AtomicBool::new(false), place }
    }
}

impl Drop for WriterLock {
    fn drop(&mut self) {
        note(self.held.file.as_raw_fd(), NO_LOCK);
    }
}

impl Lock for WriterLock {
    fn sign(&self, has_recovered: bool) {
        // The lock itself decides who holds it.
        let end = if has_recovered { "" } else { RECOVERING };
        let text = format!("{} {:016x}{end}\n", std::process::id(), self.nonce);
        let written = self.held.file.write_all_at(text.as_bytes(), 0);
        // On a full device the text of a former holder must not stay: an empty one says nothing.
        let length = if written.is_ok() { text.len() as u64 } else { 0 };
        let cut = self.held.file.set_len(length);
        self.is_signed.store(written.is_ok() || cut.is_ok(), Ordering::Relaxed);
    }

    /// A lock that was removed is nobody's, on a full device the text may say nothing, and what is at its path may be
    /// another directory.
    fn is_ours(&self) -> bool {
        let is_elsewhere = self.place.as_ref().is_some_and(|place| !place.is_in_place());
        if is_elsewhere || !self.is_signed.load(Ordering::Relaxed) {
            return true;
        }
        let own = format!("{:016x}", self.nonce);
        text_in(&self.path).ok().is_none_or(|text| text.split_whitespace().nth(1).is_none_or(|nonce| nonce == own))
    }
}

/// A directory that is kept open, so that its inode number is not reused.
#[derive(Debug)]
struct OpenDirectory {
    path: PathBuf,
    directory: File,
}

impl Anchor for OpenDirectory {
    fn is_in_place(&self) -> bool {
        let (Ok(opened), Ok(found)) = (self.directory.metadata(), fs::metadata(&self.path)) else { return false };
        (opened.dev(), opened.ino()) == (found.dev(), found.ino())
    }
}

/// The text in the lock of a directory.
fn signature(directory: &Path) -> io::Result<String> {
    text_in(&directory.join(LOCK))
}

/// The text in a lock.
fn text_in(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let lock = open_regular(OpenOptions::new().read(true), path)?;
    lock.take(LONGEST_TEXT).read_to_string(&mut text)?;
    Ok(text)
}

/// Gives what this user made, found with these attributes, permission bits that the umask removed and the store's group
/// should have.
fn widen(path: &Path, found: &fs::Metadata, mode: u32) -> io::Result<()> {
    if found.mode() & 0o777 == mode || found.uid() != rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

/// The umask of this process, without changing it, which other threads would notice.
fn umask() -> u16 {
    const USUAL: u16 = 0o022;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    line.and_then(|octal| u16::from_str_radix(octal.trim(), 8).ok()).unwrap_or(USUAL) & 0o777
}

/// Opens a file that is locked, and creates it with this mode if it does not exist.
fn open_to_lock(path: &Path, mode: u32) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).read(true).write(true).mode(mode);
    let file = open_regular(&mut options, path)?;
    widen(path, &file.metadata()?, mode)?;
    Ok(file)
}

impl Platform for Host {
    fn creator(&self) -> Creator {
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        Creator { uid, gid, umask: umask() }
    }

    fn device_with(&self, path: &Path, file_mode: u16) -> Arc<dyn Device> {
        Arc::new(Directory::with_mode(path, file_mode))
    }

    fn node(&self, path: &Path) -> Option<Node> {
        let found = fs::metadata(path).ok().filter(fs::Metadata::is_dir)?;
        Some(Node { file_system: statvfs(path).ok()?.f_fsid, inode: found.ino() })
    }

    fn anchor(&self, path: &Path) -> Option<Box<dyn Anchor>> {
        let directory = File::open(path).ok()?;
        Some(Box::new(OpenDirectory { path: path.to_owned(), directory }))
    }

    fn resolve(&self, path: &Path) -> PathBuf {
        absolute(path).unwrap_or_else(|_| path.to_owned())
    }

    fn random(&self) -> Result<u64> {
        let identity = random_identity()?;
        Ok(identity.iter().take(8).fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }

    fn lock(&self, directory: &Path) -> io::Result<Option<Box<dyn Lock>>> {
        // Whoever may write the superblock may be the writer.
        let superblock = fs::metadata(directory.join(SUPERBLOCK));
        let mode = superblock.map_or(PRIVATE_MODE.into(), |superblock| superblock.mode() & 0o666);
        let path = directory.join(LOCK);
        let Some(held) = try_lock(open_to_lock(&path, mode)?, FlockOperation::NonBlockingLockExclusive)? else {
            return Ok(None);
        };
        // A copy may have taken the place of the directory since the file was opened: its lock is another.
        let is_in_place = match fs::symlink_metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            found => {
                let (found, own) = (found?, held.file.metadata()?);
                (found.dev(), found.ino()) == (own.dev(), own.ino())
            }
        };
        if !is_in_place {
            return Ok(None);
        }
        let nonce = self.random().map_err(|error| io::Error::other(error.to_string()))?;
        Ok(Some(Box::new(WriterLock::new(held, path, nonce, self.anchor(directory)))))
    }

    fn holder(&self, directory: &Path) -> Option<String> {
        let number: u32 = signature(directory).ok()?.split_whitespace().next()?.parse().ok()?;
        Some(number.to_string())
    }

    fn is_locked(&self, directory: &Path) -> bool {
        // A brief shared lock: a writer that arrives just then retries.
        let Ok(file) = open_regular(OpenOptions::new().read(true), &directory.join(LOCK)) else { return false };
        matches!(try_lock(file, FlockOperation::NonBlockingLockShared), Ok(None))
    }

    fn has_writer(&self, directory: &Path) -> bool {
        // What a former holder wrote is overwritten as soon as there is a new one: a reader looks twice.
        let has_recovered = |text: String| !text.is_empty() && !text.contains(RECOVERING);
        self.is_locked(directory) && signature(directory).is_ok_and(has_recovered)
    }

    fn share_pins(&self, index: &Path) {
        pins::share(index);
    }

    fn pin(&self, index: &Path, epoch: u64) -> io::Result<Option<Box<dyn Lock>>> {
        pins::pin(index, epoch)
    }

    fn unpinned(&self, index: &Path, below: u64) -> u64 {
        pins::lowest(index, below)
    }

    fn unknown_pins(&self, index: &Path) -> Vec<UnknownPin> {
        pins::unknown(index)
    }

    fn private_device(&self) -> Result<PrivateDevice> {
        let directory = private::create(&std::env::temp_dir(), || self.random())?;
        Ok(PrivateDevice { device: self.device(&directory.path), guard: Box::new(directory) })
    }

    fn has_directories(&self, path: &Path, allowed: &[PathBuf]) -> io::Result<bool> {
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() && !allowed.iter().any(|allowed| allowed.starts_with(entry.path())) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn is_lost_and_found(&self, directory: &Path) -> bool {
        let is_of_system = fs::symlink_metadata(directory).is_ok_and(|found| found.is_dir() && found.uid() == 0);
        let is_empty = match fs::read_dir(directory) {
            // Other users may not even look into it.
            Err(error) => error.kind() == io::ErrorKind::PermissionDenied,
            Ok(mut entries) => entries.next().is_none(),
        };
        is_of_system && is_empty
    }

    fn now_nanoseconds(&self) -> i64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_has_recovered_only_if_it_says_so() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path();
        fs::write(directory.join(LOCK), "4194304\n").unwrap();
        assert!(!Host.has_writer(directory), "what a former one said");
        let lock = Host.lock(directory).unwrap().unwrap();
        for _ in 0..2 {
            lock.sign(false);
            assert!(!Host.has_writer(directory));
            lock.sign(true);
            assert!(Host.has_writer(directory));
            assert_eq!(Host.holder(directory), Some(std::process::id().to_string()));
            assert!(signature(directory).unwrap().starts_with(&format!("{} ", std::process::id())));
            assert!(lock.is_ours());
        }
        // Removed, and then of another holder.
        fs::rename(directory.join(LOCK), directory.join("removed")).unwrap();
        assert!(lock.is_ours());
        let other = Host.lock(directory).unwrap().unwrap();
        other.sign(true);
        assert!(!lock.is_ours() && other.is_ours());
        drop(lock);
        // As on a full device.
        fs::write(directory.join(LOCK), "").unwrap();
        assert!(!Host.has_writer(directory));
    }
}
