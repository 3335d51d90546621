//! Fills and tests a file system with plain files.

use std::ffi::CStr;
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RawDir, SeekFrom, mkdirat, openat, seek, statat, syncfs, unlinkat,
};
use rustix::io::Errno;

use super::level::Extents;
use super::{FILE_NUMBER, FILL_WIDTHS, FillTarget, KeepGoing, TEST_WIDTHS, misread};
use crate::bench::content::{Content, PIECE_BYTES};
use crate::bench::numbered::NumberedPath;
use crate::error::{Error, Result};
use crate::population::extents::pieces;

const OPEN_DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const CREATE: OFlags = OFlags::CREATE.union(OFlags::EXCL).union(OFlags::WRONLY).union(OFlags::CLOEXEC);
/// Buffer for reading a directory, in bytes.
const LISTING_BYTES: usize = 16 << 10;
const FILL: &CStr = c"fill";
const DIRECTORIES: &CStr = c"directories";
const FILES: &CStr = c"files";
const FILE: &CStr = c"file";

/// A directory in which files fill and tests run.
pub(super) struct Files<'c> {
    content: &'c Content,
    path: PathBuf,
    base: OwnedFd,
    fill: OwnedFd,
    fill_path: NumberedPath,
    /// The directory of the last filling file that was created.
    made: Option<u64>,
}

impl<'c> Files<'c> {
    pub(super) fn new(path: &Path, content: &'c Content) -> Result<Files<'c>> {
        let fail = |error: Errno| Error::io("fill", path, error.into());
        let base = openat(CWD, path, OPEN_DIRECTORY, Mode::empty()).map_err(fail)?;
        mkdirat(&base, FILL, Mode::from_raw_mode(0o755)).map_err(fail)?;
        let fill = openat(&base, FILL, OPEN_DIRECTORY, Mode::empty()).map_err(fail)?;
        let fill_path = NumberedPath::new(&FILL_WIDTHS);
        Ok(Files { content, path: path.to_owned(), base, fill, fill_path, made: None })
    }

    fn fail(&self, operation: &'static str, name: &[u8], error: impl Into<io::Error>) -> Error {
        Error::io(operation, &self.path.join(std::ffi::OsStr::from_bytes(name)), error.into())
    }

    fn open_below(&self, name: &CStr) -> Result<OwnedFd> {
        let opened = openat(&self.base, name, OPEN_DIRECTORY, Mode::empty());
        opened.map_err(|error| self.fail("open", name.to_bytes(), error))
    }

    fn make_below(&self, name: &CStr) -> Result<OwnedFd> {
        let made = mkdirat(&self.base, name, Mode::from_raw_mode(0o755));
        made.map_err(|error| self.fail("create the directory", name.to_bytes(), error))?;
        self.open_below(name)
    }

    /// Walks everything below a directory, contents before their directory, and removes it if requested; returns the
    /// number of entries of a kind, without the directory itself.
    fn walk(&self, directory: &OwnedFd, wanted: FileType, removes: bool, go_on: &mut KeepGoing<'_>) -> Result<u64> {
        let fail = |error: Errno| self.fail("list", b"", error);
        let mut buffer = [MaybeUninit::uninit(); LISTING_BYTES];
        let mut found = 0;
        loop {
            let before = found;
            seek(directory, SeekFrom::Start(0)).map_err(fail)?;
            let mut entries = RawDir::new(directory.as_fd(), &mut buffer);
            while let Some(entry) = entries.next() {
                let entry = entry.map_err(fail)?;
                let name = entry.file_name();
                if [c".", c".."].contains(&name) {
                    continue;
                }
                if !go_on() {
                    return Ok(found);
                }
                let kind = match entry.file_type() {
                    FileType::Unknown => {
                        let status = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).map_err(fail)?;
                        FileType::from_raw_mode(status.st_mode)
                    }
                    kind => kind,
                };
                let is_directory = kind == FileType::Directory;
                if is_directory {
                    let below = openat(directory, name, OPEN_DIRECTORY, Mode::empty()).map_err(fail)?;
                    found += self.walk(&below, wanted, removes, go_on)?;
                }
                if removes {
                    let flags = if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
                    match unlinkat(directory, name, flags) {
                        // The removal below was stopped on request.
                        Err(Errno::NOTEMPTY) if !go_on() => return Ok(found),
                        removed => removed.map_err(|error| self.fail("remove", name.to_bytes(), error))?,
                    }
                }
                found += u64::from(kind == wanted);
            }
            // A file system may skip entries while others are deleted: repeat until none is left.
            if !removes || found == before {
                return Ok(found);
            }
        }
    }

    fn write_file(
        &self,
        directory: &OwnedFd,
        name: &CStr,
        number: u64,
        size_bytes: u64,
        go_on: &mut KeepGoing<'_>,
    ) -> Result<bool> {
        let file = openat(directory, name, CREATE, Mode::from_raw_mode(0o644));
        let file = file.map_err(|error| self.fail("create", name.to_bytes(), error))?;
        let mut at = 0;
        while at < size_bytes {
            if !go_on() {
                return Ok(false);
            }
            match rustix::io::write(&file, self.content.piece(number, at, size_bytes - at)) {
                Ok(0) => return Err(self.fail("write", name.to_bytes(), Errno::NOSPC)),
                Ok(written) => at += written as u64,
                Err(Errno::INTR) => {}
                Err(error) => return Err(self.fail("write", name.to_bytes(), error)),
            }
        }
        Ok(true)
    }
}

impl FillTarget for Files<'_> {
    fn create(&mut self, number: u64, size_bytes: u64) -> Result<()> {
        let group = number / self.fill_path.below(1);
        if self.made != Some(group) {
            self.fill_path.set_directory(number, 1);
            let made = mkdirat(&self.fill, self.fill_path.as_c_str(), Mode::from_raw_mode(0o755));
            made.map_err(|error| self.fail("create the directory", self.fill_path.as_bytes(), error))?;
            self.made = Some(group);
        }
        self.fill_path.set(number);
        let path = self.fill_path.clone();
        self.write_file(&self.fill, path.as_c_str(), number, size_bytes, &mut || true).map(|_| ())
    }

    fn delete(&mut self, number: u64) -> Result<Option<u64>> {
        self.fill_path.set(number);
        let path = self.fill_path.as_c_str();
        let size_bytes = match statat(&self.fill, path, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(status) => status.st_size as u64,
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(self.fail("examine", path.to_bytes(), error)),
        };
        let removed = unlinkat(&self.fill, path, AtFlags::empty());
        removed.map_err(|error| self.fail("remove", path.to_bytes(), error))?;
        Ok(Some(size_bytes))
    }

    fn sync(&mut self) -> Result<()> {
        syncfs(&self.base).map_err(|error| self.fail("sync", b"", error))
    }

    fn extents(&mut self, number: u64) -> Result<Extents> {
        self.fill_path.set(number);
        let path = self.fill_path.as_c_str();
        let file = match openat(&self.fill, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(Extents::None),
            Err(error) => return Err(self.fail("open", path.to_bytes(), error)),
        };
        Ok(match pieces(&file) {
            Ok(0) => Extents::None,
            Ok(extents) => Extents::Of(extents),
            Err(_) => Extents::Unknown,
        })
    }

    fn make_directories(&mut self, count: u64, go_on: &mut KeepGoing<'_>) -> Result<bool> {
        let base = self.make_below(DIRECTORIES)?;
        let mut path = NumberedPath::new(&TEST_WIDTHS);
        for number in 0..count {
            if !go_on() {
                return Ok(false);
            }
            path.set_nested(number);
            let made = mkdirat(&base, path.as_c_str(), Mode::from_raw_mode(0o755));
            made.map_err(|error| self.fail("create the directory", path.as_bytes(), error))?;
        }
        Ok(true)
    }

    fn find_directories(&mut self, go_on: &mut KeepGoing<'_>) -> Result<u64> {
        self.walk(&self.open_below(DIRECTORIES)?, FileType::Directory, false, go_on)
    }

    fn remove_directories(&mut self, go_on: &mut KeepGoing<'_>) -> Result<u64> {
        self.walk(&self.open_below(DIRECTORIES)?, FileType::Directory, true, go_on)
    }

    fn write(&mut self, size_bytes: u64, go_on: &mut KeepGoing<'_>) -> Result<bool> {
        self.write_file(&self.base, FILE, FILE_NUMBER, size_bytes, go_on)
    }

    fn read(&mut self, size_bytes: u64, go_on: &mut KeepGoing<'_>) -> Result<bool> {
        let file = openat(&self.base, FILE, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        let file = file.map_err(|error| self.fail("open", FILE.to_bytes(), error))?;
        let mut buffer = vec![0; PIECE_BYTES];
        let mut at = 0;
        loop {
            if !go_on() {
                return Ok(false);
            }
            match rustix::io::read(&file, &mut buffer) {
                Ok(0) => break,
                Ok(read) if self.content.is(FILE_NUMBER, at, &buffer[..read]) => at += read as u64,
                Ok(_) => return Err(misread(&self.path)),
                Err(Errno::INTR) => {}
                Err(error) => return Err(self.fail("read", FILE.to_bytes(), error)),
            }
        }
        if at == size_bytes { Ok(true) } else { Err(misread(&self.path)) }
    }

    fn prepare_files(&mut self, count: u64) -> Result<()> {
        let base = self.make_below(FILES)?;
        let mut path = NumberedPath::new(&TEST_WIDTHS);
        for number in (0..count).step_by(path.below(1) as usize) {
            path.set_directory(number, 1);
            let made = mkdirat(&base, path.as_c_str(), Mode::from_raw_mode(0o755));
            made.map_err(|error| self.fail("create the directory", path.as_bytes(), error))?;
        }
        Ok(())
    }

    fn make_files(&mut self, count: u64, size_bytes: u64, go_on: &mut KeepGoing<'_>) -> Result<bool> {
        let base = self.open_below(FILES)?;
        let mut path = NumberedPath::new(&TEST_WIDTHS);
        for number in 0..count {
            path.set(number);
            if !go_on() || !self.write_file(&base, path.as_c_str(), number, size_bytes, &mut || true)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn remove_files(&mut self, go_on: &mut KeepGoing<'_>) -> Result<u64> {
        self.walk(&self.open_below(FILES)?, FileType::RegularFile, true, go_on)
    }

    fn clear(&mut self) -> Result<()> {
        for name in [DIRECTORIES, FILES, FILE] {
            let path = self.path.join(std::ffi::OsStr::from_bytes(name.to_bytes()));
            let removed = if name == FILE { fs::remove_file(&path) } else { fs::remove_dir_all(&path) };
            match removed {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(Error::io("remove", &path, error));
                }
                _ => {}
            }
        }
        self.sync()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::fill::objects::Objects;
    use crate::error::ErrorKind;

    /// Runs the tests that every target supports.
    fn bears_the_tests(target: &mut dyn FillTarget) {
        let go_on: &mut KeepGoing<'_> = &mut || true;
        for number in 0..1500 {
            target.create(number, number % 3 * 4096).unwrap();
        }
        assert_eq!((target.delete(1001).unwrap(), target.delete(1001).unwrap()), (Some(2 * 4096), None));
        assert_eq!(target.delete(5000).unwrap(), None);
        target.sync().unwrap();
        for _ in 0..2 {
            assert!(target.make_directories(1234, go_on).unwrap());
            target.sync().unwrap();
            target.close();
            assert_eq!(target.find_directories(go_on).unwrap(), 1234);
            assert_eq!(target.remove_directories(go_on).unwrap(), 1234);
            target.clear().unwrap();
            assert!(target.write(3_500_000, go_on).unwrap());
            target.sync().unwrap();
            assert!(target.read(3_500_000, go_on).unwrap());
            assert_eq!(target.read(3_500_001, go_on).unwrap_err().kind(), ErrorKind::Corrupt);
            target.clear().unwrap();
            target.prepare_files(777).unwrap();
            assert!(target.make_files(777, 5000, go_on).unwrap());
            assert_eq!(target.remove_files(go_on).unwrap(), 777);
            target.clear().unwrap();
        }
        // Clearing also removes what a stopped test left.
        let mut calls = 0..150;
        assert!(!target.make_directories(1234, &mut || calls.next().is_some()).unwrap());
        target.clear().unwrap();
        assert!(target.make_directories(10, go_on).unwrap());
        target.clear().unwrap();
        assert_eq!(target.delete(1).unwrap(), Some(4096));
    }

    #[test]
    fn files_bear_the_tests() {
        let directory = tempfile::tempdir().unwrap();
        let content = Content::random(1);
        let mut files = Files::new(directory.path(), &content).unwrap();
        bears_the_tests(&mut files);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        assert_eq!(fs::metadata(directory.path().join("fill/000001/002")).unwrap().len(), 0);
        assert!(matches!(files.extents(2).unwrap(), Extents::Of(1..) | Extents::Unknown));
        assert!(matches!(files.extents(1001).unwrap(), Extents::None));
    }

    #[test]
    fn a_store_bears_the_tests() {
        let directory = tempfile::tempdir().unwrap();
        let content = Content::zero();
        let mut objects = Objects::new(directory.path(), &content).unwrap();
        bears_the_tests(&mut objects);
        assert_eq!(objects.extents(2).unwrap(), Extents::Unknown);
    }
}
