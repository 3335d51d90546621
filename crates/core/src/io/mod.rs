//! Files that appear whole: written to a temporary file beside the target, synced (except by [`AtomicFile::publish`]),
//! renamed.
//!
//! The temporary name cannot be guessed, and is created only if it does not exist, not even as a symbolic link: nobody
//! with write access to the directory can have another file written instead. An existing target keeps its owner and its
//! permissions; a new one follows the umask.

pub mod varint;

use std::collections::hash_map::RandomState;
use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, Hasher};
use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};

/// The largest file that is read whole into memory, in bytes: larger than any result of granulo.
pub const READ_LIMIT_BYTES: u64 = 256 << 20;

/// A file in progress. Dropped without [`commit`](Self::commit), it leaves nothing behind.
#[derive(Debug)]
#[must_use = "a file that is not committed is removed"]
pub struct AtomicFile {
    path: PathBuf,
    temporary: PathBuf,
    file: Option<File>,
}

impl AtomicFile {
    /// Begins a file that will be at `path`; fails early if it could not be created there.
    ///
    /// # Errors
    /// Errors of creating a file there; [`ErrorKind::Usage`] for a directory, a device or a pipe, which a rename would
    /// replace.
    pub fn create(path: &Path) -> Result<AtomicFile> {
        let refuse = |cause: &str, advice: &str| {
            Err(Error::new(ErrorKind::Usage, "write", cause.to_owned()).at(path).advise(advice))
        };
        let fail = |error| Error::io("create a file for", path, error);
        let replaced = match Target::of(path) {
            Target::Directory => return refuse("it is a directory", "name a file in it"),
            Target::Open(_) | Target::Special => {
                return refuse("it is not a regular file", "name a file that can be replaced");
            }
            Target::Replaced(replaced) => replaced,
        };
        let (temporary, file) = create_beside(path, replaced.is_some()).map_err(fail)?;
        let made = AtomicFile { path: path.to_owned(), temporary, file: Some(file) };
        if let (Some(replaced), Some(file)) = (replaced, &made.file) {
            resemble(file, &replaced).map_err(|error| match error.kind() {
                io::ErrorKind::PermissionDenied => fail(error)
                    .advise("its owner or group is not one that you may set: remove it first, or choose another name"),
                _ => fail(error),
            })?;
        }
        Ok(made)
    }

    /// The open temporary file.
    pub fn file(&self) -> io::Result<File> {
        match &self.file {
            Some(file) => file.try_clone(),
            None => Err(io::Error::other("the file was committed")),
        }
    }

    /// Renames it to the target. A crash may leave it partly written: only for content that is checked when it is read,
    /// and can be recreated.
    ///
    /// # Errors
    /// Errors of renaming; the target is then unchanged.
    pub fn publish(mut self) -> Result<()> {
        fs::rename(&self.temporary, &self.path).map_err(|error| Error::io("write", &self.path, error))?;
        self.temporary.clear();
        Ok(())
    }

    /// Makes it durable and renames it to the target.
    ///
    /// # Errors
    /// Errors of syncing or renaming; the target is then unchanged.
    pub fn commit(mut self) -> Result<()> {
        let fail = |error| Error::io("write", &self.path, error);
        if let Some(file) = self.file.take() {
            file.sync_all().map_err(fail)?;
        }
        fs::rename(&self.temporary, &self.path).map_err(fail)?;
        self.temporary.clear();
        let directory = self.path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        // The rename is durable once the directory is; a file system that cannot sync directories is not an error.
        if let Ok(directory) = File::open(directory) {
            let _ = directory.sync_all();
        }
        Ok(())
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        if !self.temporary.as_os_str().is_empty() {
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

/// Permissions of a new file, reduced by the umask.
const NEW_MODE: u32 = 0o666;
/// Permissions of a file that will get those of another.
const PRIVATE_MODE: u32 = 0o600;
/// Most names that are tried.
const ATTEMPTS: u32 = 100;

/// A new file in the directory of `path`, under a descriptive but unpredictable name. `is_private`: only for its owner,
/// until it gets the permissions of the file that it replaces.
fn create_beside(path: &Path, is_private: bool) -> io::Result<(PathBuf, File)> {
    let mode = if is_private { PRIVATE_MODE } else { NEW_MODE };
    let mut result = Err(io::ErrorKind::AlreadyExists.into());
    for _ in 0..ATTEMPTS {
        // Its keys are random numbers from the system.
        let number = RandomState::new().build_hasher().finish();
        let temporary = path.with_file_name(format!(".granulo-{number:016x}.tmp"));
        // With O_EXCL, which `create_new` sets, a symbolic link counts as existing.
        match OpenOptions::new().read(true).write(true).create_new(true).mode(mode).open(&temporary) {
            Ok(file) => return Ok((temporary, file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => result = Err(error),
            Err(error) => return Err(error),
        }
    }
    result
}

/// Sets the owner, the group and the permissions of a file to those of another.
fn resemble(file: &File, other: &fs::Metadata) -> io::Result<()> {
    let found = file.metadata()?;
    let differs = |now: u32, wanted: u32| (now != wanted).then_some(wanted);
    let (owner, group) = (differs(found.uid(), other.uid()), differs(found.gid(), other.gid()));
    if owner.is_some() || group.is_some() {
        fchown(file, owner, group)?;
    }
    file.set_permissions(fs::Permissions::from_mode(other.mode() & 0o777))
}

/// A new file with a known name, to be continued later: an existing file of that name is removed first.
///
/// # Errors
/// Errors of removing or creating it, including a concurrent creation.
pub fn create_afresh(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    OpenOptions::new().read(true).write(true).create_new(true).mode(NEW_MODE).open(path)
}

/// Writes a whole file; `write` receives a buffered writer. A target that is not a regular file (`/dev/stdout`, a pipe)
/// is written directly.
///
/// # Errors
/// Errors of creating, writing, syncing or renaming; the target is then unchanged.
pub fn write_atomically(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    let fail = |error| Error::io("write", path, error);
    let (file, target) = open_target(path)?;
    let mut out = BufWriter::with_capacity(1 << 18, file);
    write(&mut out).and_then(|()| out.flush()).map_err(fail)?;
    drop(out);
    target.map_or(Ok(()), AtomicFile::commit)
}

/// The open file that a path stands for, as `/dev/stdout` does, whatever that is.
fn descriptor(path: &Path) -> Option<io::Result<File>> {
    let own = fs::canonicalize("/proc/self/fd").ok()?;
    let is_own = |path: &Path| path.parent().is_some_and(|parent| fs::canonicalize(parent).is_ok_and(|at| at == own));
    let link = if is_own(path) { path.to_owned() } else { fs::read_link(path).ok().filter(|link| is_own(link))? };
    Some(match link.file_name()?.as_bytes() {
        // They share the position with whatever else is written there.
        b"1" => io::stdout().as_fd().try_clone_to_owned().map(File::from),
        b"2" => io::stderr().as_fd().try_clone_to_owned().map(File::from),
        _ => OpenOptions::new().append(true).open(&link),
    })
}

/// What a path leads to, as the target of a result.
enum Target {
    /// An open file, as `/dev/stdout` is: written directly.
    Open(io::Result<File>),
    /// A pipe or a device: written directly.
    Special,
    Directory,
    /// A regular file, or none yet, or a symbolic link to either: replaced by a rename. With what the file itself is.
    Replaced(Option<fs::Metadata>),
}

impl Target {
    fn of(path: &Path) -> Target {
        if let Some(opened) = descriptor(path) {
            return Target::Open(opened);
        }
        match fs::metadata(path) {
            Ok(found) if found.is_dir() => Target::Directory,
            Ok(found) if !found.is_file() => Target::Special,
            _ => Target::Replaced(fs::symlink_metadata(path).ok().filter(fs::Metadata::is_file)),
        }
    }
}

/// The file to write a result to, and the one to commit afterwards: `None` if the target is not a regular file
/// (a pipe), or an open one (`/dev/stdout`).
///
/// # Errors
/// Errors of creating or opening a file there.
pub fn open_target(path: &Path) -> Result<(File, Option<AtomicFile>)> {
    let fail = |error| Error::io("write", path, error);
    match Target::of(path) {
        Target::Open(opened) => Ok((opened.map_err(fail)?, None)),
        Target::Special => Ok((OpenOptions::new().write(true).open(path).map_err(fail)?, None)),
        Target::Directory | Target::Replaced(_) => {
            let target = AtomicFile::create(path)?;
            Ok((target.file().map_err(fail)?, Some(target)))
        }
    }
}

/// Whether a result is written into what is at a path, not put in its place: an open file, a pipe, a device.
pub fn is_written_directly(path: &Path) -> bool {
    matches!(Target::of(path), Target::Open(_) | Target::Special)
}

/// Checks that a result can be written to a path, before the work that it is the result of. Leaves nothing there.
///
/// # Errors
/// As [`AtomicFile::create`].
pub fn check_target(path: &Path) -> Result<()> {
    match Target::of(path) {
        Target::Open(_) | Target::Special => Ok(()),
        Target::Directory | Target::Replaced(_) => AtomicFile::create(path).map(drop),
    }
}

/// Reads a file that should be a result of granulo: refuses directories and files above [`READ_LIMIT_BYTES`].
///
/// # Errors
/// Errors of opening or reading; [`ErrorKind::NotRecognised`] for a file that is too large.
pub fn read_bounded(operation: &'static str, path: &Path) -> Result<Vec<u8>> {
    use std::io::Read;
    let fail = |error| Error::io(operation, path, error);
    let file = File::open(path).map_err(fail)?;
    let mut bytes = Vec::new();
    file.take(READ_LIMIT_BYTES + 1).read_to_end(&mut bytes).map_err(fail)?;
    if bytes.len() as u64 > READ_LIMIT_BYTES {
        let cause = "it is larger than any granulo result";
        return Err(Error::new(ErrorKind::NotRecognised, operation, cause).at(path));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn a_failed_write_leaves_the_old_file_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("result");
        write_atomically(&path, |out| out.write_all(b"old")).unwrap();
        let failed = write_atomically(&path, |out| {
            out.write_all(b"half of the new")?;
            Err(io::Error::from_raw_os_error(28))
        });
        assert_eq!(failed.unwrap_err().kind(), ErrorKind::NoSpace);
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_directory_is_no_target() {
        let directory = tempfile::tempdir().unwrap();
        let error = write_atomically(directory.path(), |_| Ok(())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Usage);
    }

    #[test]
    fn what_a_rename_would_replace_is_written_directly_or_refused() {
        let directory = tempfile::tempdir().unwrap();
        let kept = directory.path().join("kept");
        let mut open = OpenOptions::new().create(true).append(true).open(&kept).unwrap();
        open.write_all(b"before ").unwrap();
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(format!("/proc/self/fd/{}", open.as_raw_fd()), &link).unwrap();
        write_atomically(&link, |out| out.write_all(b"result")).unwrap();
        assert_eq!(fs::read(&kept).unwrap(), b"before result");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(AtomicFile::create(&link).unwrap_err().kind(), ErrorKind::Usage);
        assert_eq!(AtomicFile::create(Path::new("/dev/null")).unwrap_err().kind(), ErrorKind::Usage);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
    }

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn a_target_keeps_its_mode_and_a_new_one_is_no_wider_than_usual() {
        let directory = tempfile::tempdir().unwrap();
        let (new, usual) = (directory.path().join("new"), directory.path().join("usual"));
        fs::write(&usual, "").unwrap();
        write_atomically(&new, |out| out.write_all(b"x")).unwrap();
        assert_eq!(mode(&new), mode(&usual));
        for kept in [0o600, 0o640, 0o444, 0o755] {
            fs::set_permissions(&new, fs::Permissions::from_mode(kept)).unwrap();
            let file = AtomicFile::create(&new).unwrap();
            // Nobody can read it while it is written.
            assert_eq!(file.file().unwrap().metadata().unwrap().mode() & 0o777 & !kept, 0);
            drop(file);
            write_atomically(&new, |out| out.write_all(b"y")).unwrap();
            assert_eq!((mode(&new), fs::read(&new).unwrap()), (kept, b"y".to_vec()));
        }
    }

    #[test]
    fn an_owner_stays_the_owner() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("result");
        fs::write(&path, "old").unwrap();
        if std::os::unix::fs::chown(&path, Some(4321), Some(4322)).is_err() {
            return; // Only root can own files of others.
        }
        write_atomically(&path, |out| out.write_all(b"new")).unwrap();
        let found = fs::metadata(&path).unwrap();
        assert_eq!((found.uid(), found.gid()), (4321, 4322));
    }

    #[test]
    fn planted_links_are_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let victim = directory.path().join("victim");
        fs::write(&victim, "precious").unwrap();
        let result = directory.path().join("result");
        // A former temporary name, the target itself, and the name of a part.
        let old_name = directory.path().join(format!("result.{}.tmp", std::process::id()));
        for planted in [&old_name, &result] {
            std::os::unix::fs::symlink(&victim, planted).unwrap();
        }
        write_atomically(&result, |out| out.write_all(b"new")).unwrap();
        assert!(fs::symlink_metadata(&result).unwrap().is_file());
        let part = directory.path().join("part");
        std::os::unix::fs::symlink(&victim, &part).unwrap();
        create_afresh(&part).unwrap().write_all(b"part").unwrap();
        assert!(fs::symlink_metadata(&part).unwrap().is_file());
        assert_eq!(fs::read(&victim).unwrap(), b"precious");
        assert_eq!(fs::read(&result).unwrap(), b"new");
    }
}
