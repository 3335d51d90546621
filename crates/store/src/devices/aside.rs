//! A directory that is made beside another one, and takes its place in one step: everything in it changes at one
//! moment, for whoever looks at its path, whenever the process or the machine dies. What both have in common is one
//! file with two names.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::directory::open_regular;

/// Ends the name of the directory that is made.
const ASIDE: &str = ".incoming";
/// Names in it that only [`can_exchange`] uses.
const TRIED: [&str; 2] = ["exchange-1.tmp", "exchange-2.tmp"];

/// The directory that is made beside one; `None` for a root.
pub(crate) fn place_aside(directory: &Path) -> Option<PathBuf> {
    let mut name = directory.file_name()?.to_owned();
    name.push(ASIDE);
    Some(directory.with_file_name(name))
}

/// Whether a directory is on the file system of the one above it: a mount point cannot be exchanged, and files in it
/// have no names outside.
///
/// # Errors
/// One of them cannot be looked at.
pub(crate) fn is_on_one_file_system(directory: &Path, with: &Path) -> io::Result<bool> {
    Ok(fs::metadata(directory)?.dev() == fs::metadata(with)?.dev())
}

/// Names in a directory, in order.
///
/// # Errors
/// It cannot be read.
pub(crate) fn names_in(directory: &Path) -> io::Result<Vec<std::ffi::OsString>> {
    let mut names = fs::read_dir(directory)?.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>()?;
    names.sort_unstable();
    Ok(names)
}

/// Whether the file system exchanges directories, tried with two in `place`.
///
/// # Errors
/// They cannot be created or removed.
pub(crate) fn can_exchange(place: &Path) -> io::Result<bool> {
    let [one, other] = TRIED.map(|name| place.join(name));
    for path in [&one, &other] {
        match DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made?,
        }
    }
    let is_exchanged = renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).is_ok();
    fs::remove_dir(&one)?;
    fs::remove_dir(&other)?;
    Ok(is_exchanged)
}

/// Exchanges two directories beside each other, durably.
///
/// # Errors
/// Then nothing has changed, unless it is unknown what is durable.
pub(crate) fn exchange(one: &Path, other: &Path) -> io::Result<()> {
    renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE)?;
    sync_above(one)
}

/// Gives a directory the name of another one, which does not exist or is empty, durably.
///
/// # Errors
/// As [`exchange`].
pub(crate) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)?;
    sync_above(from)
}

/// Makes the names beside a directory durable.
fn sync_above(directory: &Path) -> io::Result<()> {
    File::open(directory.parent().unwrap_or(Path::new("/")))?.sync_all()
}

/// Gives a file a second name. Returns whether the file system can.
///
/// # Errors
/// Any other than that it cannot.
pub(crate) fn link(from: &Path, to: &Path) -> io::Result<bool> {
    match fs::hard_link(from, to) {
        Ok(()) => Ok(true),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::AlreadyExists) => Err(error),
        Err(_) => Ok(false),
    }
}

/// Copies the first bytes of a file to an empty one, inside the file system if that can share them. Returns how many it
/// had, at most `bytes`.
///
/// # Errors
/// Any error of reading and writing.
pub(crate) fn copy_begin(from: &Path, to: &Path, bytes: u64) -> io::Result<u64> {
    let from = open_regular(OpenOptions::new().read(true), from)?;
    let mut to = open_regular(OpenOptions::new().write(true), to)?;
    io::copy(&mut io::Read::take(&from, bytes), &mut to)
}

/// Removes an empty directory; one that does not exist is removed already.
///
/// # Errors
/// Any error of removing it.
pub(crate) fn remove_directory(path: &Path) -> io::Result<()> {
    match fs::remove_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
