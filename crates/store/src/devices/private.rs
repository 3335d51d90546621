//! Directories that are private to a process, and go with it: the index of a reader that finds none.
//!
//! Such a directory is locked by its process. One that is not belongs to a process that was killed, and the next that
//! makes one removes it: an index may be as large as a store of millions of files makes it.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags, open};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::locked::{Held, try_lock};
use super::platform::Lock;
use crate::error::{Error, ErrorKind, Result};
use crate::format::names::number_of;

/// How their names begin; a random number follows, which others, who may write to the directory around it, cannot
/// guess.
const PREFIX: &str = "granulo-index-";
/// How many names are tried.
const MOST_NAMES: usize = 100;

/// A directory of this process, removed when dropped.
#[derive(Debug)]
pub(super) struct Private {
    pub(super) path: PathBuf,
    _held: Option<Held>,
}

impl Lock for Private {}

impl Drop for Private {
    fn drop(&mut self) {
        // Still locked: nobody else begins to.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Makes one in `parent`, and removes those of processes that were killed.
///
/// # Errors
/// Any error of creating it.
pub(super) fn create(parent: &Path, random: impl Fn() -> Result<u64>) -> Result<Private> {
    remove_left(parent);
    for _ in 0..MOST_NAMES {
        let path = parent.join(format!("{PREFIX}{:016x}", random()?));
        match DirBuilder::new().mode(0o700).create(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            made => made.map_err(|error| Error::io("create a private index", parent, error))?,
        }
        match hold(&path) {
            // Another process has just taken it for one that was left.
            Ok(None) => {}
            // Where nothing can be locked, nobody removes it.
            held => return Ok(Private { path, _held: held.ok().flatten() }),
        }
    }
    Err(Error::new(ErrorKind::Exists, "create a private index", "all names are taken").at(parent))
}

/// Locks a directory; `None` if another process holds or has removed it.
fn hold(path: &Path) -> io::Result<Option<Held>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = match open(path, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(None),
        opened => File::from(opened?),
    };
    let opened = directory.metadata()?;
    let Some(held) = try_lock(directory, FlockOperation::NonBlockingLockExclusive)? else { return Ok(None) };
    let is_there =
        fs::symlink_metadata(path).is_ok_and(|found| (found.dev(), found.ino()) == (opened.dev(), opened.ino()));
    Ok(is_there.then_some(held))
}

/// Removes the directories of this user that no process holds.
fn remove_left(parent: &Path) {
    let own = geteuid().as_raw();
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let is_one = name.to_str().and_then(|name| name.strip_prefix(PREFIX)).is_some_and(|it| number_of(it).is_some());
        if is_one
            && entry.metadata().is_ok_and(|found| found.is_dir() && found.uid() == own)
            && let Ok(Some(_held)) = hold(&entry.path())
        {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::os::unix::fs::{chown, symlink};

    use super::*;

    #[test]
    fn what_a_killed_process_left_goes_with_the_next_and_nothing_else_does() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        let number = Cell::new(0);
        let random = || {
            number.set(number.get() + 1);
            Ok(number.get())
        };
        let first = create(place.path(), random).unwrap();
        fs::create_dir_all(first.path.join("index")).unwrap();
        let left = at("granulo-index-00000000000000aa");
        fs::create_dir_all(left.join("index")).unwrap();
        fs::write(left.join("index/manifest"), "large").unwrap();
        let elsewhere = at("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        fs::write(elsewhere.join("file"), "").unwrap();
        let link = at("granulo-index-00000000000000bb");
        symlink(&elsewhere, &link).unwrap();
        let others = ["granulo-index-notes", "granulo-index-00000000000000cc.old"].map(at);
        others.iter().for_each(|path| fs::create_dir(path).unwrap());
        let of_other_user = at("granulo-index-00000000000000dd");
        if geteuid().is_root() {
            fs::create_dir(&of_other_user).unwrap();
            chown(&of_other_user, Some(65_534), None).unwrap();
        }
        // The first name is taken.
        number.set(0);
        let second = create(place.path(), random).unwrap();
        assert!(first.path != second.path && first.path.join("index").exists() && second.path.exists());
        assert!(!left.exists() && link.exists() && elsewhere.join("file").exists());
        assert!(others.iter().all(|path| path.exists()) && of_other_user.exists() == geteuid().is_root());
        let paths = [first.path.clone(), second.path.clone()];
        drop((first, second));
        assert!(paths.iter().all(|path| !path.exists()));
    }

    #[test]
    fn a_directory_that_another_process_holds_or_has_removed_is_not_ones_own() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("one");
        fs::create_dir(&path).unwrap();
        let held = hold(&path).unwrap().unwrap();
        assert!(hold(&path).unwrap().is_none());
        drop(held);
        assert!(hold(&path).unwrap().is_some());
        fs::remove_dir(&path).unwrap();
        assert!(hold(&path).unwrap().is_none());
    }
}
