//! Many separate files, in directories by the digits of their numbers, like those of the paper.

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, RawDir, mkdirat, openat};
use rustix::io::Errno;

use super::population::Population;
use super::{Going, Order, Tally, wrong};
use crate::bench::content::{Content, PIECE_BYTES};
use crate::bench::numbered::{NumberedPath, number_of};
use crate::error::{Error, ErrorKind, Result};

const OPEN_DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// Buffer for reading a directory, in bytes.
const LISTING_BYTES: usize = 16 << 10;

/// The files below a directory.
pub(super) struct Files<'p> {
    population: &'p Population,
    path: PathBuf,
    base: OwnedFd,
}

/// Visitor of a file: its directory, its name there, its number. Returns whether to continue.
type Each<'e> = dyn FnMut(&OwnedFd, &CStr, u64) -> Result<bool> + 'e;

impl<'p> Files<'p> {
    pub(super) fn open(path: &Path, population: &'p Population) -> Result<Files<'p>> {
        let base = openat(CWD, path, OPEN_DIRECTORY, Mode::empty());
        let base = base.map_err(|error| Error::io("open", path, error.into()))?;
        Ok(Files { population, path: path.to_owned(), base })
    }

    fn fail(&self, operation: &'static str, name: &[u8], error: impl Into<io::Error>) -> Error {
        Error::io(operation, &self.path.join(std::ffi::OsStr::from_bytes(name)), error.into())
    }

    /// Creates all files and the directories above them, none of which may exist; returns whether it finished.
    pub(super) fn create(&self, content: &Content, go_on: &mut Going<'_>) -> Result<bool> {
        let mut path = self.population.path();
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        for number in 0..self.population.files {
            if !go_on(number) {
                return Ok(false);
            }
            for depth in 1..=path.depth() {
                if number.is_multiple_of(path.below(depth)) {
                    path.set_directory(number, depth);
                    let made = mkdirat(&self.base, path.as_c_str(), Mode::from_raw_mode(0o755));
                    made.map_err(|error| self.fail("create the directory", path.as_bytes(), error))?;
                }
            }
            path.set(number);
            let file = openat(&self.base, path.as_c_str(), flags, Mode::from_raw_mode(0o644));
            let file = file.map_err(|error| self.fail("create", path.as_bytes(), error))?;
            let size_bytes = self.population.size(number);
            write_content(&file, content, number, size_bytes)
                .map_err(|error| self.fail("write", path.as_bytes(), error))?;
        }
        Ok(true)
    }

    /// Reads all files in full and compares their content; returns whether it finished.
    pub(super) fn load(&self, order: Order, content: &Content, go_on: &mut Going<'_>) -> Result<bool> {
        let mut buffer = vec![0; PIECE_BYTES];
        let mut tally = Tally::default();
        let mut path = self.population.path();
        let complete = self.visit(order, &mut |directory, name, number| {
            if !go_on(tally.files) {
                return Ok(false);
            }
            let mut fail = |operation, error: Errno| {
                path.set(number);
                self.fail(operation, path.as_bytes(), error)
            };
            let file = openat(directory, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
            let file = file.map_err(|error| fail("open", error))?;
            let mut at = 0;
            loop {
                let read = match rustix::io::read(&file, &mut buffer) {
                    Ok(0) => break,
                    Ok(read) => read,
                    Err(Errno::INTR) => continue,
                    Err(error) => return Err(fail("read", error)),
                };
                if !content.is(number, at, &buffer[..read]) {
                    return Err(wrong(&self.path.join(format!("file {number}"))));
                }
                at += read as u64;
            }
            tally.add(number, at);
            Ok(true)
        })?;
        if complete {
            tally.check(self.population, &self.path)?;
        }
        Ok(complete)
    }

    /// The orders, each with an earlier one that visits the files in the same sequence; `None` if the sequence is new.
    pub(super) fn distinct(&self, orders: &[Order]) -> Result<Vec<(Order, Option<Order>)>> {
        let mut known: Vec<(Order, u64)> = Vec::new();
        let mut found = Vec::new();
        for &order in orders {
            let mut sequence = 0u64;
            self.visit(order, &mut |_, _, number| {
                sequence = sequence.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(23).wrapping_add(number);
                Ok(true)
            })?;
            let same = known.iter().find(|(_, other)| *other == sequence).map(|(order, _)| *order);
            if same.is_none() {
                known.push((order, sequence));
            }
            found.push((order, same));
        }
        Ok(found)
    }

    fn visit(&self, order: Order, each: &mut Each<'_>) -> Result<bool> {
        let mut path = self.population.path();
        if order == Order::Name {
            for number in 0..self.population.files {
                path.set(number);
                if !each(&self.base, path.as_c_str(), number)? {
                    return Ok(false);
                }
            }
            return Ok(true);
        }
        let base = openat(&self.base, c".", OPEN_DIRECTORY, Mode::empty());
        let base = base.map_err(|error| self.fail("open", b"", error))?;
        self.visit_below(base, 0, (0, &path), order, each)
    }

    /// Walks a directory at `depth` whose path has the digits of `above`.
    fn visit_below(
        &self,
        directory: OwnedFd,
        depth: usize,
        (above, path): (u64, &NumberedPath),
        order: Order,
        each: &mut Each<'_>,
    ) -> Result<bool> {
        // The path of the directory at a depth whose path has these digits.
        let fail = |operation, digits: u64, depth: usize, error: Errno| {
            let mut path = self.population.path();
            path.set_directory(digits * path.below(depth), depth);
            self.fail(operation, path.as_bytes(), error)
        };
        let mut buffer = [MaybeUninit::uninit(); LISTING_BYTES];
        let mut entries = RawDir::new(directory.as_fd(), &mut buffer);
        let mut met = |name: &CStr| -> Result<bool> {
            let digits = number_of(name.to_bytes(), b'/').unwrap_or_default();
            let number = above.wrapping_mul(10u64.saturating_pow(name.count_bytes() as u32)).wrapping_add(digits);
            if depth == path.depth() {
                return each(&directory, name, number);
            }
            let below = openat(&directory, name, OPEN_DIRECTORY, Mode::empty());
            let below = below.map_err(|error| fail("open", number, depth + 1, error))?;
            self.visit_below(below, depth + 1, (number, path), order, each)
        };
        // One directory at a time: at most a hundred entries, since names have at most two digits.
        let mut sorted = Vec::new();
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(|error| fail("list", above, depth, error))?;
            let name = entry.file_name();
            if number_of(name.to_bytes(), b'/').is_none() {
                continue;
            }
            match order {
                Order::Inode => sorted.push((entry.ino(), name.to_owned())),
                _ if !met(name)? => return Ok(false),
                _ => {}
            }
        }
        sorted.sort_unstable();
        for (_, name) in &sorted {
            if !met(name)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Writes the whole content of file `number`. A write of nothing counts as a full file system, which is a result.
fn write_content(file: &OwnedFd, content: &Content, number: u64, size_bytes: u64) -> io::Result<()> {
    let mut at = 0;
    while at < size_bytes {
        match rustix::io::write(file, content.piece(number, at, size_bytes - at)) {
            Ok(0) => return Err(Errno::NOSPC.into()),
            Ok(written) => at += written as u64,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

impl Tally {
    /// Checks that every file was visited once.
    pub(super) fn check(&self, population: &Population, path: &Path) -> Result<()> {
        let all = (0..population.files).fold(Tally::default(), |mut tally, number| {
            tally.add(number, 0);
            tally
        });
        let is_whole = self.files == population.files && self.bytes == population.bytes && self.mixed == all.mixed;
        if is_whole {
            return Ok(());
        }
        let cause = format!(
            "{} files with {} bytes were read, but {} files with {} bytes were written",
            self.files, self.bytes, population.files, population.bytes
        );
        Err(Error::new(ErrorKind::Corrupt, "load", cause).at(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_orders_meet_every_file_and_see_what_is_wrong() {
        let directory = tempfile::tempdir().unwrap();
        let population = Population::same(1234, 100).unwrap();
        let content = Content::random(1);
        let files = Files::open(directory.path(), &population).unwrap();
        let mut go_on = |_: u64| true;
        assert!(files.create(&content, &mut go_on).unwrap());
        assert_eq!(std::fs::metadata(directory.path().join("12/33")).unwrap().len(), 100);
        for order in [Order::Name, Order::Listed, Order::Inode] {
            assert!(files.load(order, &content, &mut go_on).unwrap());
            assert!(!files.load(order, &content, &mut |done| done < 10).unwrap());
        }
        let distinct = files.distinct(&[Order::Name, Order::Name]).unwrap();
        assert_eq!(distinct, [(Order::Name, None), (Order::Name, Some(Order::Name))]);
        // A wrong byte, a shorter file, a missing file.
        let path = directory.path().join("03/21");
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[50] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        let said = |order| files.load(order, &content, &mut |_| true).unwrap_err().to_string();
        assert!(said(Order::Name).contains("321"), "{}", said(Order::Name));
        bytes[50] ^= 1;
        std::fs::write(&path, &bytes[..99]).unwrap();
        assert!(said(Order::Listed).contains("123399 bytes"), "{}", said(Order::Listed));
        std::fs::remove_file(&path).unwrap();
        assert!(said(Order::Inode).contains("1233 files"), "{}", said(Order::Inode));
    }
}
