//! The operations on files: relative to one open directory, without allocating.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, RawDir, fsync, mkdirat, openat, statat, syncfs, unlinkat};
use rustix::io::Errno;

use super::name::Name;
use super::{CreateRequest, Durability, FileOperations, content};
use crate::bench::clock::try_timed;
use crate::bench::samples::Latencies;
use crate::error::{Error, Result};

const OPEN_DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// Buffer for reading a directory, in bytes.
const LISTING_BYTES: usize = 32 << 10;

/// Files below a directory.
pub(super) struct Files {
    path: PathBuf,
    base: OwnedFd,
    /// The directory of the last file, with its number, if files are made durable one by one.
    parent: Option<(u64, OwnedFd)>,
    name: Name,
    directory_files: u64,
    durability: Durability,
    content: Vec<u8>,
    size_bytes: u64,
    since_sync: u64,
}

impl Files {
    pub(super) fn open(path: &Path, request: &CreateRequest, seed: u64) -> Result<Files> {
        let base = openat(CWD, path, OPEN_DIRECTORY, Mode::empty());
        Ok(Files {
            path: path.to_owned(),
            base: base.map_err(|error| Error::io("open", path, error.into()))?,
            parent: None,
            name: Name::new(),
            directory_files: request.directory_files,
            durability: request.durability,
            content: content(request.size_bytes, seed),
            size_bytes: request.size_bytes,
            since_sync: 0,
        })
    }

    /// Returns the number of a file's directory, from 1; 0 for none.
    fn directory(&self, number: u64) -> u64 {
        (number - 1).checked_div(self.directory_files).map_or(0, |before| before + 1)
    }

    fn fail(&self, operation: &'static str, error: Errno) -> Error {
        let name = std::ffi::OsStr::from_bytes(self.name.as_bytes());
        Error::io(operation, &self.path.join(name), error.into())
    }

    /// Opens a directory by its number.
    fn open_directory(&mut self, directory: u64) -> Result<OwnedFd> {
        let opened = match directory {
            0 => openat(&self.base, c".", OPEN_DIRECTORY, Mode::empty()),
            directory => {
                self.name.set_directory(directory);
                openat(&self.base, self.name.as_c_str(), OPEN_DIRECTORY, Mode::empty())
            }
        };
        opened.map_err(|error| self.fail("open", error))
    }

    /// Opens the directory of a file if it is to be made durable with the file.
    fn open_parent(&mut self, number: u64) -> Result<()> {
        let directory = self.directory(number);
        if self.durability != Durability::Each || self.parent.as_ref().is_some_and(|(open, _)| *open == directory) {
            return Ok(());
        }
        self.parent = Some((directory, self.open_directory(directory)?));
        Ok(())
    }

    /// Whether this operation completes a batch, which is then made durable.
    fn ends_batch(&mut self) -> bool {
        self.durability.ends_batch(&mut self.since_sync)
    }
}

fn write_all(file: &OwnedFd, content: &[u8], size_bytes: u64) -> rustix::io::Result<()> {
    let mut left = size_bytes;
    while left > 0 {
        let piece = left.min(content.len() as u64) as usize;
        match rustix::io::write(file, &content[..piece]) {
            Ok(written) => left -= written as u64,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl FileOperations for Files {
    fn create(&mut self, number: u64, latencies: &mut Latencies) -> Result<()> {
        let directory = self.directory(number);
        // The first file of a directory creates it; files are numbered from 1.
        if directory > 0 && (number - 1).is_multiple_of(self.directory_files) {
            self.name.set_directory(directory);
            let made = mkdirat(&self.base, self.name.as_c_str(), Mode::from_raw_mode(0o755));
            made.map_err(|error| self.fail("create the directory", error))?;
        }
        self.open_parent(number)?;
        let ends_batch = self.ends_batch();
        self.name.set_file(directory, number);
        if let Some(head) = self.content.first_chunk_mut() {
            // Makes every file different.
            *head = number.to_le_bytes();
        }
        let Files { base, name, content, size_bytes, .. } = &*self;
        let parent = self.parent.as_ref().map(|(_, parent)| parent);
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        let done = try_timed(latencies, || {
            let file = openat(base, name.as_c_str(), flags, Mode::from_raw_mode(0o644))?;
            write_all(&file, content, *size_bytes)?;
            if let Some(parent) = parent {
                fsync(&file)?;
                drop(file);
                fsync(parent)?;
            } else {
                drop(file);
            }
            if ends_batch { syncfs(base) } else { Ok(()) }
        });
        done.map_err(|error| {
            // A file whose content was not written does not count as created.
            let _ = unlinkat(&self.base, self.name.as_c_str(), AtFlags::empty());
            self.fail("create", error)
        })
    }

    fn stat(&mut self, number: u64, latencies: &mut Latencies) -> Result<()> {
        self.name.set_file(self.directory(number), number);
        let found = try_timed(latencies, || statat(&self.base, self.name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW));
        found.map(|_| ()).map_err(|error| self.fail("stat", error))
    }

    fn delete(&mut self, number: u64, latencies: &mut Latencies) -> Result<()> {
        self.open_parent(number)?;
        let ends_batch = self.ends_batch();
        self.name.set_file(self.directory(number), number);
        let parent = self.parent.as_ref().map(|(_, parent)| parent);
        let done = try_timed(latencies, || {
            unlinkat(&self.base, self.name.as_c_str(), AtFlags::empty())?;
            parent.map_or(Ok(()), fsync)?;
            if ends_batch { syncfs(&self.base) } else { Ok(()) }
        });
        done.map_err(|error| self.fail("delete", error))
    }

    fn delete_as_listed(
        &mut self,
        made: u64,
        latencies: &mut Latencies,
        go_on: &mut dyn FnMut(u64) -> bool,
    ) -> Option<Result<()>> {
        Some(self.delete_listed(made, latencies, go_on))
    }

    fn sync(&mut self) -> Result<()> {
        syncfs(&self.base).map_err(|error| Error::io("sync", &self.path, error.into()))
    }
}

impl Files {
    /// Lists each directory and deletes its entries in that order.
    fn delete_listed(
        &mut self,
        made: u64,
        latencies: &mut Latencies,
        go_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<()> {
        let directories = if self.directory_files == 0 { 0..=0 } else { 1..=made.div_ceil(self.directory_files) };
        let mut buffer = [MaybeUninit::uninit(); LISTING_BYTES];
        for directory in directories {
            let first = directory.saturating_sub(1) * self.directory_files + 1;
            self.open_parent(first)?;
            let listed = self.open_directory(directory)?;
            // A file system may skip entries while others are deleted: repeat until none is left.
            loop {
                let before = latencies.count();
                rustix::fs::seek(&listed, rustix::fs::SeekFrom::Start(0)).map_err(|error| self.fail("list", error))?;
                let mut entries = RawDir::new(&listed, &mut buffer);
                while let Some(entry) = entries.next() {
                    let entry = entry.map_err(|error| self.fail("list", error))?;
                    if [c".", c".."].contains(&entry.file_name()) {
                        continue;
                    }
                    if !go_on(latencies.count()) {
                        return Ok(());
                    }
                    let ends_batch = self.ends_batch();
                    let parent = self.parent.as_ref().map(|(_, parent)| parent);
                    let done = try_timed(latencies, || {
                        unlinkat(&listed, entry.file_name(), AtFlags::empty())?;
                        parent.map_or(Ok(()), fsync)?;
                        if ends_batch { syncfs(&listed) } else { Ok(()) }
                    });
                    done.map_err(|error| self.fail("delete a file below", error))?;
                }
                if latencies.count() == before {
                    break;
                }
            }
        }
        Ok(())
    }
}
