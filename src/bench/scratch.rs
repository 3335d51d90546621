//! The directory for what a run creates, and the removal of what a killed run left.
//!
//! A run creates `granulo-bench-PID-RANDOM` in the directory that the user names, with mode 0700 and a file `lock` in
//! it that the run holds locked (`flock`) while it lives; the programs that it starts hold the same lock. Before that,
//! every directory with such a name beside it whose lock is free is cleared away: it belongs to a killed run. Mounts
//! below it are unmounted, limits of its loop devices lifted, the devices detached, the files removed, the lock last. A
//! directory that belongs to another user, or has a mount that cannot be unmounted, is left alone.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::mount::{UnmountFlags, unmount};

use super::{confine, emulate, loops, programs, servers, volume};
use crate::error::{Error, ErrorKind, Result};
use crate::locks;
use crate::units::{escape_path, format_size};

/// Prefix of the name of every scratch directory.
const PREFIX: &str = "granulo-bench-";
const LOCK: &str = "lock";
/// Time limit for the programs of a killed run to end.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long to retry an unmount that is refused because something is in use.
const UNMOUNT_PATIENCE: Duration = Duration::from_secs(5);

/// The directory of a run. Dropping it removes it with its content.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    lock: File,
    /// Images in it, with their promised sizes.
    promised: Mutex<Vec<(PathBuf, u64)>>,
}

/// What was cleared away.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cleared {
    /// Left-overs of killed runs that were removed.
    pub removed: Vec<PathBuf>,
    /// Left-overs that could not be removed, and why.
    pub kept: Vec<(PathBuf, String)>,
}

impl Scratch {
    /// Creates a directory for this run in `parent`.
    ///
    /// # Errors
    /// Errors from creating it.
    pub fn create(parent: &Path) -> Result<Scratch> {
        let fail = |error| Error::io("create a directory for the run in", parent, error);
        let parent = fs::canonicalize(parent).map_err(fail)?;
        for attempt in 0u32.. {
            let path = parent.join(format!("{PREFIX}{}-{:08x}", std::process::id(), random(attempt)));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && attempt < 100 => continue,
                Err(error) => return Err(fail(error)),
            }
            // Until it is locked, another run that starts just now may take it for a left-over.
            match lock(&path, true) {
                Ok(Some(lock)) => return Ok(Scratch { path, lock, promised: Mutex::default() }),
                Ok(None) if attempt < 100 => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound && attempt < 100 => {}
                Ok(None) => return Err(fail(io::ErrorKind::ResourceBusy.into())),
                Err(error) => {
                    let _ = fs::remove_dir(&path);
                    return Err(fail(error));
                }
            }
        }
        Err(fail(io::ErrorKind::AlreadyExists.into()))
    }

    /// Its absolute path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The lock, for programs to hold.
    pub(super) fn lock(&self) -> &File {
        &self.lock
    }

    /// Creates an empty directory in it.
    ///
    /// # Errors
    /// Errors from creating it.
    pub fn directory(&self, name: &str) -> Result<PathBuf> {
        let path = self.path.join(name);
        fs::create_dir(&path).map_err(|error| Error::io("create the directory", &path, error))?;
        Ok(path)
    }

    /// Reserves space for an image at `path` that may grow to `size_bytes`, if all reservations fit the file system and
    /// leave a margin.
    ///
    /// # Errors
    /// [`ErrorKind::NoSpace`] if they do not.
    pub(super) fn promise(&self, path: &Path, size_bytes: u64) -> Result<()> {
        let room = volume::room(&self.path)?;
        let mut promised = locks::lock(&self.promised);
        promised.retain(|(path, _)| path.exists());
        // Space that the images already occupy is no longer available.
        let to_come = promised.iter().map(|(path, size_bytes)| {
            let taken = fs::metadata(path).map_or(0, |found| found.blocks() * 512);
            size_bytes.saturating_sub(taken)
        });
        let needed = to_come.fold(size_bytes, u64::saturating_add);
        let free = room.beyond_margin_bytes();
        if needed > free {
            let cause = format!(
                "there is space for {}, with {} of the file system left free, but images may need {}",
                format_size(free.into()),
                crate::units::format_share(volume::MARGIN_FRACTION),
                format_size(needed.into()),
            );
            let error = Error::new(ErrorKind::NoSpace, "create an image in", cause).at(&self.path);
            return Err(error.advise("name another directory with --scratch DIR, or reduce --fs-size"));
        }
        promised.push((path.to_owned(), size_bytes));
        Ok(())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.path.exists() {
            // The next run clears away what cannot be removed now.
            let _ = empty(&self.path).and_then(|()| remove_emptied(&self.path));
        }
    }
}

/// Clears away what killed runs left in `parent`; returns what that was.
///
/// # Errors
/// Errors from listing `parent`.
pub(crate) fn clear_left_overs(parent: &Path) -> Result<Cleared> {
    let fail = |error| Error::io("look for leftovers in", parent, error);
    let parent = fs::canonicalize(parent).map_err(fail)?;
    let mut cleared = Cleared::default();
    for entry in fs::read_dir(&parent).map_err(fail)? {
        let Ok(entry) = entry else { continue };
        let name = entry.file_name();
        let Some(process) = name.to_str().and_then(owner) else { continue };
        let path = entry.path();
        // Only directories of this user: /tmp is shared.
        let mine = |found: &fs::Metadata| found.is_dir() && found.uid() == rustix::process::geteuid().as_raw();
        if !fs::symlink_metadata(&path).is_ok_and(|found| mine(&found)) {
            continue;
        }
        match clear(&path, process) {
            Ok(true) => cleared.removed.push(path),
            Ok(false) => {}
            Err(error) => cleared.kept.push((path, error.to_string())),
        }
    }
    Ok(cleared)
}

/// The process that a scratch directory of this name belongs to; `None` if the name is not one.
pub(super) fn owner(name: &str) -> Option<u32> {
    let (process, random) = name.strip_prefix(PREFIX)?.split_once('-')?;
    let is_random = random.len() == 8 && random.bytes().all(|byte| byte.is_ascii_hexdigit());
    process.parse().ok().filter(|_| is_random)
}

/// Clears a directory away if its lock is free; returns whether it is gone.
fn clear(path: &Path, process: u32) -> Result<bool> {
    let fail = |error| Error::io("clean up", path, error);
    let started = Instant::now();
    let _held = loop {
        match lock(path, false) {
            Ok(Some(lock)) => break lock,
            // A program that the killed run had started may still be running.
            Ok(None) if !Path::new(&format!("/proc/{process}")).exists() && started.elapsed() < PATIENCE => {
                sleep(Duration::from_millis(100));
            }
            Ok(None) => return Ok(false),
            // Killed before it had a lock, or after it had removed the lock: the directory is empty, or belongs to
            // someone else.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(!Path::new(&format!("/proc/{process}")).exists() && fs::remove_dir(path).is_ok());
            }
            Err(error) => return Err(fail(error)),
        }
    };
    servers::end_servers(path);
    empty(path)?;
    remove_emptied(path)?;
    Ok(true)
}

/// Takes the lock of a scratch directory; `None` if another process holds it.
fn lock(directory: &Path, create: bool) -> io::Result<Option<File>> {
    let path = directory.join(LOCK);
    let flags = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
    let file =
        OpenOptions::new().create(create).truncate(false).write(true).mode(0o600).custom_flags(flags).open(&path)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    // It may have been removed between opening and locking.
    let same = fs::symlink_metadata(&path)?.ino() == file.metadata()?.ino();
    if same { Ok(Some(file)) } else { Err(io::ErrorKind::NotFound.into()) }
}

/// Unmounts and detaches everything below a scratch directory, and removes all its content except the lock.
fn empty(path: &Path) -> Result<()> {
    // This comes first: programs in the group may have files open.
    confine::clear_left_over(path);
    for mount in volume::mounts_below(path)? {
        unmount_at(&mount.point)?;
    }
    emulate::lift_left_over(path);
    for device in loops::devices_below(path) {
        loops::detach(&device)?;
    }
    if let Some(mount) = volume::mounts_below(path)?.first() {
        let cause = format!("{} is still mounted", escape_path(&mount.point));
        return Err(Error::new(ErrorKind::Busy, "clean up", cause).at(path).advise("unmount it"));
    }
    let fail = |error| Error::io("clean up", path, error);
    for entry in fs::read_dir(path).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        if entry.file_name() == LOCK {
            continue;
        }
        match entry.file_type().map_err(fail)?.is_dir() {
            true => fs::remove_dir_all(entry.path()),
            false => fs::remove_file(entry.path()),
        }
        .map_err(fail)?;
    }
    Ok(())
}

/// Removes a scratch directory that contains only the lock.
fn remove_emptied(path: &Path) -> Result<()> {
    let fail = |error| Error::io("remove", path, error);
    fs::remove_file(path.join(LOCK)).map_err(fail)?;
    fs::remove_dir(path).map_err(fail)
}

/// Unmounts, and retries while something is in use for a moment; finally only detaches it from the tree, so that it is
/// unmounted with its last user.
///
/// # Errors
/// Errors from unmounting.
pub(super) fn unmount_at(point: &Path) -> Result<()> {
    let started = Instant::now();
    loop {
        match unmount(point, UnmountFlags::NOFOLLOW) {
            Ok(()) => return Ok(()),
            Err(rustix::io::Errno::BUSY) if started.elapsed() < UNMOUNT_PATIENCE => sleep(Duration::from_millis(50)),
            Err(rustix::io::Errno::BUSY) => {
                let detached = unmount(point, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH);
                return detached.map_err(|error| Error::io("unmount", point, error.into()));
            }
            // Users other than root unmount what they have mounted through a program that may.
            Err(rustix::io::Errno::PERM) => match unmount_by_program(point, false) {
                Err(error) if error.kind() == ErrorKind::Busy && started.elapsed() < UNMOUNT_PATIENCE => {
                    sleep(Duration::from_millis(50));
                }
                Err(error) if error.kind() == ErrorKind::Busy => return unmount_by_program(point, true),
                ended => return ended,
            },
            Err(error) => return Err(Error::io("unmount", point, error.into())),
        }
    }
}

/// Unmounts what this user has mounted through FUSE; if `is_lazy`, with its last user.
///
/// # Errors
/// [`ErrorKind::NotFound`] if there is no program for it; [`ErrorKind::Busy`] if something is in use, otherwise
/// [`ErrorKind::PermissionDenied`], with its last words.
fn unmount_by_program(point: &Path, is_lazy: bool) -> Result<()> {
    const OPERATION: &str = "unmount";
    let mut command = Command::new(programs::find("fusermount3")?);
    // Ctrl-C does not reach a process group of its own.
    command.process_group(0).stdin(Stdio::null()).arg(if is_lazy { "-uz" } else { "-u" }).arg("--").arg(point);
    let output = command.output().map_err(|error| Error::io(OPERATION, point, error))?;
    if output.status.success() {
        return Ok(());
    }
    let cause = programs::last_words(&output.stderr, output.status);
    let is_busy = cause.to_lowercase().contains("resource busy");
    let kind = if is_busy { ErrorKind::Busy } else { ErrorKind::PermissionDenied };
    Err(Error::new(kind, OPERATION, cause).at(point))
}

/// A number that other processes are unlikely to have.
fn random(attempt: u32) -> u32 {
    let mut bytes = [0; 4];
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
        Ok(4) => u32::from_le_bytes(bytes),
        _ => std::process::id().wrapping_mul(0x9E37_79B9).wrapping_add(attempt),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_goes_with_all_in_it() {
        let parent = tempfile::tempdir().unwrap();
        let scratch = Scratch::create(parent.path()).unwrap();
        let inside = scratch.directory("files").unwrap();
        fs::write(inside.join("file-1"), b"x").unwrap();
        assert!(scratch.directory("files").is_err());
        drop(scratch);
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }

    #[test]
    fn left_overs_are_cleared_and_nothing_else() {
        let parent = tempfile::tempdir().unwrap();
        let alive = Scratch::create(parent.path()).unwrap();
        // A process that does not exist: no PID is that large.
        let dead = parent.path().join("granulo-bench-4294967295-0123abcd");
        fs::create_dir_all(dead.join("0/root/d1")).unwrap();
        fs::write(dead.join(LOCK), b"").unwrap();
        fs::write(dead.join("0/image"), b"x").unwrap();
        let just_made = parent.path().join("granulo-bench-4294967295-00000000");
        fs::create_dir(&just_made).unwrap();
        for other in ["granulo-bench-1-xyz", "granulo-bench-1-0123abcdef", "granulo-bench-a-0123abcd", "mine"] {
            fs::create_dir(parent.path().join(other)).unwrap();
            fs::write(parent.path().join(other).join(LOCK), b"").unwrap();
        }
        std::os::unix::fs::symlink("mine", parent.path().join("granulo-bench-4294967295-ffffffff")).unwrap();
        let mut cleared = clear_left_overs(parent.path()).unwrap();
        cleared.removed.sort();
        let real = fs::canonicalize(parent.path()).unwrap();
        let gone = [&just_made, &dead].map(|path| real.join(path.file_name().unwrap()));
        assert_eq!((cleared.removed, cleared.kept), (gone.to_vec(), vec![]));
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 6);
        assert!(alive.path().join(LOCK).exists() && parent.path().join("mine/lock").exists());
    }

    #[test]
    fn images_that_do_not_fit_are_refused_together() {
        let parent = tempfile::tempdir().unwrap();
        let scratch = Scratch::create(parent.path()).unwrap();
        let free = volume::room(parent.path()).unwrap().available_bytes;
        let (one, other) = (scratch.path().join("one"), scratch.path().join("other"));
        fs::write(&one, b"").unwrap();
        assert_eq!(scratch.promise(&other, free).unwrap_err().kind(), ErrorKind::NoSpace);
        if free / 2 > volume::room(parent.path()).unwrap().total_bytes / 10 {
            scratch.promise(&one, free / 2).unwrap();
            let error = scratch.promise(&other, free / 2 + 1).unwrap_err();
            assert!(error.to_string().contains("--scratch"), "{error}");
        }
    }
}
