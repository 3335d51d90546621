//! The operations on files of a file system, relative to one open directory.

use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{
    Access, AtFlags, CWD, Mode, OFlags, RawDir, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, accessat, fstatvfs, fsync,
    mkdirat, openat, readlinkat_raw, statat, symlinkat, syncfs, unlinkat, utimensat,
};
use rustix::io::{Errno, pread, pwrite};

use super::files::{FileSet, LARGE_DIRECTORY, SPARE_FILES};
use super::mix::Operation;
use super::target::{Aim, MOST_LISTED, Memory, Target, is_right, range};
use crate::error::{Error, ErrorKind, Result};

const OPEN_DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
const NEW_FILE: OFlags = OFlags::CREATE.union(OFlags::EXCL).union(OFlags::WRONLY).union(OFlags::CLOEXEC);
const READ_FILE: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC);
const WRITE_FILE: OFlags = OFlags::WRONLY.union(OFlags::CLOEXEC);
const FILE_MODE: Mode = Mode::from_raw_mode(0o644);
const DIRECTORY_MODE: Mode = Mode::from_raw_mode(0o755);
/// Buffers for reading directories, in bytes: for a hundred entries, and for many.
const SHORT_LISTING_BYTES: usize = 4 << 10;
const LISTING_BYTES: usize = 64 << 10;

/// Files below a directory.
#[derive(Debug)]
pub(super) struct Files<'s> {
    path: PathBuf,
    base: OwnedFd,
    set: &'s FileSet,
    /// Largest READ or WRITE.
    transfer_bytes: u64,
    /// Whether modifying operations are durable when they return.
    is_durable: bool,
    /// Whether the file system has symbolic links.
    has_links: bool,
}

/// What could be created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Filled {
    /// Whether the file system has symbolic links.
    pub has_links: bool,
    /// Entries of the directory with many.
    pub listed: u64,
}

/// Creates all files; `go_on` receives the number so far.
///
/// # Errors
/// Errors from creating them. A directory that accepts no more entries is not an error.
pub(super) fn fill(
    path: &Path,
    set: &FileSet,
    listed: u64,
    go_on: &mut dyn FnMut(u64) -> bool,
) -> Result<Option<Filled>> {
    let base =
        openat(CWD, path, OPEN_DIRECTORY, Mode::empty()).map_err(|error| Error::io("open", path, error.into()))?;
    let (mut name, mut target) = (String::new(), String::new());
    let fail = |operation, name: &str, error: Errno| Error::io(operation, &path.join(name), error.into());
    let mut has_links = true;
    for directory in 0..set.directories() {
        set.name_directory(directory, &mut name);
        mkdirat(&base, name.as_str(), DIRECTORY_MODE).map_err(|error| fail("create the directory", &name, error))?;
        set.name_link(directory, &mut name);
        set.name_target(directory, &mut target);
        if has_links && let Err(error) = symlinkat(target.as_str(), &base, name.as_str()) {
            // FAT and exFAT have no symbolic links.
            if ![Errno::PERM, Errno::NOSYS, Errno::OPNOTSUPP].contains(&error) {
                return Err(fail("create the link", &name, error));
            }
            has_links = false;
        }
    }
    for number in 0..set.files {
        set.name_file(number, &mut name);
        let file = openat(&base, name.as_str(), NEW_FILE, FILE_MODE).map_err(|error| fail("create", &name, error))?;
        let content = set.content(number);
        write_all(&file, content, 0).map_err(|error| fail("write", &name, error))?;
        if !go_on(number) {
            return Ok(None);
        }
    }
    for number in 0..SPARE_FILES {
        set.name_fresh(number, &mut name);
        openat(&base, name.as_str(), NEW_FILE, FILE_MODE).map_err(|error| fail("create", &name, error))?;
    }
    if listed > 0 {
        mkdirat(&base, LARGE_DIRECTORY, DIRECTORY_MODE)
            .map_err(|error| fail("create the directory", LARGE_DIRECTORY, error))?;
    }
    for number in 0..listed {
        set.name_listed(number, &mut name);
        match openat(&base, name.as_str(), NEW_FILE, FILE_MODE) {
            Ok(_) => {}
            // Some directories accept no more entries although the file system has space.
            Err(Errno::NOSPC) if number > 0 && has_room(&base) => {
                return Ok(Some(Filled { has_links, listed: number }));
            }
            Err(error) => return Err(fail("create", &name, error)),
        }
        if !go_on(set.files + number) {
            return Ok(None);
        }
    }
    Ok(Some(Filled { has_links, listed }))
}

fn has_room(base: &OwnedFd) -> bool {
    const LEAST_BYTES: u64 = 1 << 20;
    fstatvfs(base).is_ok_and(|found| found.f_bavail.saturating_mul(found.f_frsize.max(1)) > LEAST_BYTES)
}

fn write_all(file: &OwnedFd, mut content: &[u8], mut offset: u64) -> rustix::io::Result<()> {
    while !content.is_empty() {
        match pwrite(file, content, offset) {
            Ok(written) => {
                content = &content[written..];
                offset += written as u64;
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl<'s> Files<'s> {
    pub(super) fn open(
        path: &Path,
        set: &'s FileSet,
        filled: Filled,
        transfer_bytes: u64,
        is_durable: bool,
    ) -> Result<Files<'s>> {
        let base = openat(CWD, path, OPEN_DIRECTORY, Mode::empty());
        let base = base.map_err(|error| Error::io("open", path, error.into()))?;
        Ok(Files { path: path.to_owned(), base, set, transfer_bytes, is_durable, has_links: filled.has_links })
    }

    fn fail(&self, operation: &'static str, name: &str) -> impl Fn(Errno) -> Error {
        let path = self.path.join(name);
        move |error| Error::io(operation, &path, error.into())
    }

    /// Reads a range of the named file; returns whether the file has that many bytes.
    fn read_range(&self, range: Range<u64>, memory: &mut Memory) -> rustix::io::Result<bool> {
        let length = (range.end - range.start) as usize;
        let file = openat(&self.base, memory.name.as_str(), READ_FILE, Mode::empty())?;
        memory.bytes.resize(length, 0);
        let mut read = 0;
        while read < length {
            match pread(&file, &mut memory.bytes[read..], range.start + read as u64) {
                Ok(0) => return Ok(false),
                Ok(more) => read += more,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    fn write_range(&self, aim: Aim, memory: &Memory) -> rustix::io::Result<()> {
        let range = range(self.set, aim, self.transfer_bytes);
        let file = openat(&self.base, memory.name.as_str(), WRITE_FILE, Mode::empty())?;
        write_all(&file, &self.set.content(aim.file)[range.start as usize..range.end as usize], range.start)?;
        if self.is_durable { fsync(&file) } else { Ok(()) }
    }

    fn create(&self, name: &str) -> rustix::io::Result<()> {
        let file = openat(&self.base, name, NEW_FILE, FILE_MODE)?;
        if self.is_durable {
            fsync(&file)?;
        }
        drop(file);
        self.sync_parent(name)
    }

    /// Makes the directory of a name durable, if modifying operations are to be durable.
    fn sync_parent(&self, name: &str) -> rustix::io::Result<()> {
        if !self.is_durable {
            return Ok(());
        }
        let parent = name.rsplit_once('/').map_or(".", |(parent, _)| parent);
        fsync(openat(&self.base, parent, OPEN_DIRECTORY, Mode::empty())?)
    }

    fn set_time(&self, name: &str) -> rustix::io::Result<()> {
        let times = Timestamps {
            last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
            last_modification: Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        };
        utimensat(&self.base, name, &times, AtFlags::SYMLINK_NOFOLLOW)?;
        if self.is_durable { fsync(openat(&self.base, name, READ_FILE, Mode::empty())?) } else { Ok(()) }
    }

    /// Lists the first [`MOST_LISTED`] entries of a directory, `.` and `..` included, with or without attributes.
    fn list_some(&self, name: &str, with_attributes: bool) -> rustix::io::Result<()> {
        let directory = openat(&self.base, name, OPEN_DIRECTORY, Mode::empty())?;
        let mut buffer = [MaybeUninit::uninit(); SHORT_LISTING_BYTES];
        let mut entries = RawDir::new(&directory, &mut buffer);
        let mut listed = 0;
        while let Some(entry) = entries.next() {
            let entry = entry?;
            if with_attributes {
                match statat(&directory, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW) {
                    // Another thread removed it after it was listed.
                    Ok(_) | Err(Errno::NOENT) => {}
                    Err(error) => return Err(error),
                }
            }
            listed += 1;
            if listed == MOST_LISTED {
                break;
            }
        }
        Ok(())
    }
}

impl Target for Files<'_> {
    fn perform(&self, operation: Operation, aim: Aim, memory: &mut Memory) -> Result<()> {
        match operation {
            Operation::Create | Operation::Remove => self.set.name_fresh(aim.fresh, &mut memory.name),
            Operation::ReadDir | Operation::ReadDirPlus => {
                self.set.name_directory(self.set.directory_of(aim.file), &mut memory.name)
            }
            Operation::ReadLink if self.has_links => {
                self.set.name_link(self.set.directory_of(aim.file), &mut memory.name)
            }
            _ => self.set.name_file(aim.file, &mut memory.name),
        }
        let name = memory.name.as_str();
        let base = &self.base;
        let done = match operation {
            Operation::Lookup => {
                openat(base, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()).map(|_| ())
            }
            Operation::GetAttr => statat(base, name, AtFlags::SYMLINK_NOFOLLOW).map(|_| ()),
            Operation::Access => accessat(base, name, Access::READ_OK, AtFlags::empty()),
            Operation::ReadLink if self.has_links => {
                let mut target = [MaybeUninit::uninit(); 64];
                readlinkat_raw(base, name, &mut target).map(|_| ())
            }
            // The same number of operations, where the file system has no symbolic links.
            Operation::ReadLink => statat(base, name, AtFlags::SYMLINK_NOFOLLOW).map(|_| ()),
            Operation::ReadDir => self.list_some(name, false),
            Operation::ReadDirPlus => self.list_some(name, true),
            Operation::SetAttr => self.set_time(name),
            Operation::Create => self.create(name),
            Operation::Remove => unlinkat(base, name, AtFlags::empty()).and_then(|()| self.sync_parent(name)),
            Operation::FsStat => fstatvfs(base).map(|_| ()),
            Operation::Commit => openat(base, name, WRITE_FILE, Mode::empty()).and_then(|file| fsync(&file)),
            Operation::Write => self.write_range(aim, memory),
            Operation::Read => match self.read_range(range(self.set, aim, self.transfer_bytes), memory) {
                Ok(true) => Ok(()),
                Ok(false) => return Err(wrong(&self.path.join(&memory.name))),
                Err(error) => Err(error),
            },
        };
        done.map_err(|error| self.fail(operation.name(), &memory.name)(error))
    }

    fn read_whole(&self, number: u64, memory: &mut Memory) -> Result<()> {
        self.set.name_file(number, &mut memory.name);
        let expected = self.set.content(number);
        let read = self.read_range(0..expected.len() as u64, memory);
        let read = read.map_err(|error| self.fail("read", &memory.name)(error))?;
        if read && is_right(expected, &memory.bytes) { Ok(()) } else { Err(wrong(&self.path.join(&memory.name))) }
    }

    fn read_together(&self, _numbers: &[u64], _depth: usize) -> Option<Result<()>> {
        None
    }

    fn list(&self, go_on: &mut dyn FnMut(u64) -> bool) -> Result<u64> {
        let fail = self.fail("list", LARGE_DIRECTORY);
        let directory = openat(&self.base, LARGE_DIRECTORY, OPEN_DIRECTORY, Mode::empty()).map_err(&fail)?;
        let mut buffer = vec![MaybeUninit::uninit(); LISTING_BYTES];
        let mut entries = RawDir::new(&directory, &mut buffer);
        let mut listed = 0;
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(&fail)?;
            if [c".", c".."].contains(&entry.file_name()) {
                continue;
            }
            statat(&directory, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW).map_err(&fail)?;
            listed += 1;
            if !go_on(listed) {
                break;
            }
        }
        Ok(listed)
    }

    fn sync(&self) -> Result<()> {
        syncfs(&self.base).map_err(|error| Error::io("sync", &self.path, error.into()))
    }
}

fn wrong(path: &Path) -> Error {
    Error::new(ErrorKind::Corrupt, "read", "the data read differs from the data written").at(path)
}
