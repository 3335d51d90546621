//! Storing one file of a source tree in a batch: content, attributes, holes.
//!
//! Files up to [`SMALL_BYTES`] are read whole before they are stored, larger ones stream; of sparse ones only the data
//! are read. A file that changes while it is read is read a second time; if it changes again, the last reading stays
//! and is reported. Its attributes are those from before reading, so that the next import reads it once more.
//!
//! Survives: files that vanish, shrink or grow while they are read (a stream returns exactly the announced bytes for a
//! sparse file, and all bytes up to the end for another), files that are replaced by something else or cannot be read,
//! and attributes that a record cannot hold.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Mutex;

use rustix::fs::FileType;
use rustix::io::Errno;

use super::names::Handover;
use super::posix::{FileStatus, XattrReader, holes, open_file, status};
use super::task::{Action, ImportOptions, ImportSummary, Task};
use super::turns::ReadyBatch;
use super::unchanged::{Comparison, Unlisted, compare, unlisted_of};
use super::walk::SourceEntry;
use super::{Ledger, Watched};
use crate::error::{Error, ErrorKind, Result};
use crate::format::attributes::Attributes;
use crate::format::entry::Time;
use crate::format::ids::ObjectNumber;
use crate::format::key::Key;
use crate::locks::lock;
use crate::units::MIB;
use crate::{Batch, Durability, Listed, Store};

/// Largest file that is read whole before it is stored.
pub(super) const SMALL_BYTES: u64 = MIB;
/// Most times that a changing file is read.
const READINGS: u32 = 2;
/// Of files above this size, one is read at a time: their stripes grow with them, up to 32 MiB.
const GIANT_BYTES: u64 = 256 * MIB;
/// Approximate size of the record of a small file besides its content.
const RECORD_BYTES: u64 = 128;
/// Approximate memory of an object in a batch besides its content: its record, its key and its entry.
const HELD_BYTES: u64 = 512;
/// Approximate memory of a large file in a batch.
const DESCRIPTOR_BYTES: u64 = 8192;

/// Stores files in batches.
pub(super) struct Putter<'s, 'l, 'w> {
    store: &'s Store,
    ledger: &'l Ledger<'w>,
    access_times: bool,
    verify: bool,
    path_of: &'l dyn Fn(&Key) -> PathBuf,
    /// Held by the thread that reads a giant file.
    giant: &'l Mutex<()>,
    xattrs: XattrReader,
    content: Vec<u8>,
    held_bytes: u64,
    /// What was done with the files of this batch, and of those with nothing to commit.
    pub done: ImportSummary,
}

/// An open file with what to store of it.
struct OpenedFile {
    file: File,
    status: FileStatus,
    attributes: Attributes,
}

impl OpenedFile {
    /// Bytes to read, without holes.
    fn data_bytes(&self) -> u64 {
        match &self.attributes.holes {
            Some(holes) => holes.data.iter().map(|&(_, length)| length).sum(),
            None => self.status.size_bytes,
        }
    }

    fn hole_bytes(&self) -> u64 {
        self.status.size_bytes.saturating_sub(self.data_bytes())
    }

    fn has_changed(&self) -> bool {
        status(&self.file).map_or(true, |now| self.status.has_changed(&now))
    }
}

/// Why a file was not stored.
enum PutFailure {
    /// It could not be read.
    Source(io::Error),
    /// The store could not take it.
    Store(Error),
}

impl From<Errno> for PutFailure {
    fn from(errno: Errno) -> PutFailure {
        PutFailure::Source(errno.into())
    }
}

impl From<io::Error> for PutFailure {
    fn from(error: io::Error) -> PutFailure {
        PutFailure::Source(error)
    }
}

impl From<Error> for PutFailure {
    fn from(error: Error) -> PutFailure {
        PutFailure::Store(error)
    }
}

impl<'s, 'l, 'w> Putter<'s, 'l, 'w> {
    /// `path_of` gives the source of a key, for messages; one thread at a time holds `giant`, and reads a file that
    /// does not fit in memory.
    pub(super) fn new(
        store: &'s Store,
        ledger: &'l Ledger<'w>,
        options: &ImportOptions,
        path_of: &'l dyn Fn(&Key) -> PathBuf,
        giant: &'l Mutex<()>,
    ) -> Putter<'s, 'l, 'w> {
        Putter {
            store,
            ledger,
            access_times: options.access_times,
            verify: options.verify,
            path_of,
            giant,
            xattrs: XattrReader::default(),
            content: Vec::new(),
            held_bytes: 0,
            done: ImportSummary::default(),
        }
    }

    /// Stores files in one batch, in `memory`, which must then be committed; `None` if there is nothing to commit.
    /// Notifies later names that wait for a file that will not be stored.
    ///
    /// # Errors
    /// Errors of the store, except objects that it cannot hold: those are reported.
    pub(super) fn put_all(&mut self, tasks: Vec<Task>, memory: Vec<u8>) -> Result<Option<ReadyBatch<'s>>> {
        let mut batch = self.store.batch(Durability::None);
        let held = |task: &Task| match (&task.action, task.found.status.size_bytes) {
            (Action::PutIfOther(_), _) => 0,
            (_, size) if size <= SMALL_BYTES => size + RECORD_BYTES,
            _ => DESCRIPTOR_BYTES,
        };
        batch.reuse(memory, tasks.iter().map(held).sum::<u64>() as usize);
        // Of pieces with nothing to commit.
        let done_before = std::mem::take(&mut self.done);
        self.held_bytes = 0;
        let mut objects = 0;
        let mut failed = None;
        for task in tasks {
            if failed.is_none() && !self.ledger.is_over() {
                match self.put(&mut batch, &task) {
                    Ok(false) => {}
                    Ok(true) => {
                        objects += 1;
                        self.held_bytes += HELD_BYTES;
                    }
                    Err(error) => failed = Some(error),
                }
                self.ledger.advance(1, 0);
            }
            if let Action::PutShared(slot) = task.action {
                slot.set(None);
            }
        }
        self.done.xattrs_unreadable += std::mem::take(&mut self.xattrs.unreadable);
        let done = std::mem::replace(&mut self.done, done_before);
        match failed {
            Some(error) => Err(error),
            None if objects == 0 => {
                self.done.add(&done);
                Ok(None)
            }
            None => {
                let (content_bytes, held_bytes) = (done.content_bytes, self.held_bytes);
                Ok(Some(ReadyBatch { batch, content_bytes, held_bytes, done }))
            }
        }
    }

    /// Returns whether something was stored: not if it is unchanged, or cannot be read, which is reported.
    fn put(&mut self, batch: &mut Batch<'s>, task: &Task) -> Result<bool> {
        if task.replace && task.found.status.file_type() != FileType::Directory {
            batch.remove_tree(&task.found.key)?;
        }
        let done = match &task.action {
            Action::PutIfOther(listed) => {
                match self.compare(&task.found, listed)? {
                    Comparison::Same => {
                        self.leave(&task.found);
                        return Ok(false);
                    }
                    Comparison::Other => {}
                    Comparison::Damaged => self.done.replaced += 1,
                }
                self.put_found(batch, task, None)
            }
            Action::Put => self.put_found(batch, task, None),
            Action::PutShared(slot) => self.put_found(batch, task, Some(slot)),
            Action::Link(slot) => self.put_link(batch, task, slot),
        };
        let path = || (self.path_of)(&task.found.key);
        match done {
            Ok(()) => Ok(true),
            // Any error of a stream that was asked to stop.
            Err(_) if self.ledger.is_interrupted() => Ok(false),
            Err(PutFailure::Source(error)) => {
                self.ledger.report(Error::io("import", &path(), error));
                Ok(false)
            }
            Err(PutFailure::Store(error)) if error.kind() == ErrorKind::Usage => {
                self.ledger.report(error.at(&path()));
                Ok(false)
            }
            Err(PutFailure::Store(error)) => Err(error),
        }
    }

    /// Compares a file with a single name with what the store lists.
    fn compare(&mut self, found: &SourceEntry, listed: &Listed) -> Result<Comparison> {
        if listed.shared.is_some_and(|number| self.store.names_of(number) != 1) {
            return Ok(Comparison::Other);
        }
        compare(self.store, found, listed, &mut self.xattrs, self.verify)
    }

    /// Counts what stays as it is.
    fn leave(&mut self, found: &SourceEntry) {
        self.done.unchanged += 1;
        self.ledger.skip(if found.status.file_type() == FileType::Directory { 0 } else { found.status.size_bytes });
    }

    fn put_link(
        &mut self,
        batch: &mut Batch<'s>,
        task: &Task,
        slot: &Handover<ObjectNumber>,
    ) -> std::result::Result<(), PutFailure> {
        let Some(number) = slot.wait() else {
            return Err(PutFailure::Source(io::Error::other("the first name of the same file could not be imported")));
        };
        batch.link(&task.found.key, number)?;
        self.done.links += 1;
        Ok(())
    }

    fn put_found(
        &mut self,
        batch: &mut Batch<'s>,
        task: &Task,
        shared: Option<&Handover<ObjectNumber>>,
    ) -> std::result::Result<(), PutFailure> {
        let found = &task.found;
        if found.status.file_type() == FileType::RegularFile {
            return self.put_file(batch, task, shared);
        }
        let Unlisted { xattrs, content } = unlisted_of(found, &mut self.xattrs)?;
        let attributes = Attributes { xattrs, ..found.status.attributes(self.access_times) };
        if task.replace && found.status.file_type() == FileType::Directory {
            // What is refused removes nothing.
            attributes.encode(Time::default(), &mut Vec::new())?;
            batch.remove(&found.key)?;
        }
        match found.status.file_type() {
            FileType::Directory => {
                batch.directory(&found.key, &attributes)?;
                self.done.directories += 1;
            }
            FileType::Symlink => {
                batch.symlink(&found.key, &attributes, &content)?;
                self.done.symlinks += 1;
            }
            _ => {
                let (major, minor) = found.status.device;
                batch.special(&found.key, &attributes, major, minor)?;
                self.done.specials += 1;
            }
        }
        Ok(())
    }

    fn put_file(
        &mut self,
        batch: &mut Batch<'s>,
        task: &Task,
        shared: Option<&Handover<ObjectNumber>>,
    ) -> std::result::Result<(), PutFailure> {
        let key = &task.found.key;
        let version = last_version(|is_last| self.put_version(batch, task, shared.is_some(), is_last))?;
        self.ledger.skip(version.hole_bytes);
        if let (Some(slot), Some(number)) = (shared, version.number) {
            slot.set(Some(number));
        }
        self.count_file(key, version.content_bytes, version.has_changed);
        Ok(())
    }

    /// Reads a file and stores it, as a shared object if `is_shared`. `None` if it changed meanwhile and is so small
    /// that it was not stored: it is not the last reading then.
    fn put_version(
        &mut self,
        batch: &mut Batch<'s>,
        task: &Task,
        is_shared: bool,
        is_last: bool,
    ) -> std::result::Result<Option<Version>, PutFailure> {
        let key = &task.found.key;
        let opened = self.open(&task.found, is_shared)?;
        if opened.data_bytes() > SMALL_BYTES {
            return self.put_large(batch, key, &opened, is_shared).map(Some);
        }
        // A small file is stored only after all of it was read.
        let mut content = std::mem::take(&mut self.content);
        content.clear();
        content.reserve_exact(opened.data_bytes() as usize + 1);
        let read = DataRuns::new(&opened).read_to_end(&mut content);
        self.content = content;
        read?;
        let has_changed = opened.has_changed();
        if has_changed && !is_last {
            return Ok(None);
        }
        let content = &self.content[..];
        let content_bytes = content.len() as u64;
        self.ledger.advance(0, content_bytes);
        let number = match is_shared {
            false => {
                batch.put(key, &opened.attributes, content)?;
                None
            }
            true => {
                let number = batch.shared(&opened.attributes, &mut { content }, Some(content_bytes))?;
                batch.link(key, number)?;
                Some(number)
            }
        };
        self.held_bytes += content_bytes;
        Ok(Some(Version { number, content_bytes, hole_bytes: opened.hole_bytes(), has_changed }))
    }

    /// Stores a file piece by piece, while it is read.
    fn put_large(
        &mut self,
        batch: &mut Batch<'s>,
        key: &Key,
        opened: &OpenedFile,
        is_shared: bool,
    ) -> std::result::Result<Version, PutFailure> {
        let _giant = (opened.data_bytes() > GIANT_BYTES).then(|| lock(self.giant));
        let mut stream = Watched { ledger: self.ledger, inner: DataRuns::new(opened) };
        let size_bytes = Some(opened.data_bytes());
        let put = match is_shared {
            false => batch.put_from(key, &opened.attributes, &mut stream, size_bytes).map(|_| None),
            true => batch.shared(&opened.attributes, &mut stream, size_bytes).map(Some),
        };
        // The store reports that the stream failed; the stream knows why.
        let DataRuns { failure, read_bytes, .. } = stream.inner;
        let number = match (put, failure) {
            (Err(_), Some(failure)) => return Err(PutFailure::Source(failure)),
            (put, _) => put?,
        };
        if let Some(number) = number {
            // After a second reading, this removes the name of the first object, and thereby the object.
            batch.link(key, number)?;
        }
        self.held_bytes += DESCRIPTOR_BYTES;
        let (hole_bytes, has_changed) = (opened.hole_bytes(), opened.has_changed());
        Ok(Version { number, content_bytes: read_bytes, hole_bytes, has_changed })
    }

    fn count_file(&mut self, key: &Key, content_bytes: u64, changed: bool) {
        self.done.files += 1;
        self.done.content_bytes += content_bytes;
        if changed {
            self.done.changed += 1;
            let error =
                Error::new(ErrorKind::Io, "import", "it changed while it was being read").at(&(self.path_of)(key));
            self.ledger
                .report(error.advise("the last version read is kept; import it again when nothing writes to it"));
        }
    }

    /// Opens a file and decides what to store of it. It may differ from the one that the walk saw, but not if its names
    /// are counted.
    fn open(&mut self, found: &SourceEntry, is_shared: bool) -> std::result::Result<OpenedFile, PutFailure> {
        let file = open_file(&found.directory, &found.name)?;
        let status = status(&file)?;
        if status.file_type() != FileType::RegularFile || is_shared && status.file() != found.status.file() {
            return Err(PutFailure::Source(io::Error::other("it was replaced while it was being imported")));
        }
        let mut attributes = status.attributes(self.access_times);
        attributes.xattrs = self.xattrs.of_file(file.as_fd())?;
        if status.allocated_bytes < status.size_bytes {
            attributes.holes = holes(&file, status.size_bytes)?;
        }
        Ok(OpenedFile { file: File::from(file), status, attributes })
    }
}

/// What a batch has of a file after one reading.
struct Version {
    /// Of the object, if it is shared.
    number: Option<ObjectNumber>,
    content_bytes: u64,
    hole_bytes: u64,
    /// Whether the file changed while it was read.
    has_changed: bool,
}

/// The version that is kept of a file: the first that did not change while `read` read it, else the last. If a later
/// one cannot be read, that is the one before: the batch has it already, so it must not count as left out.
fn last_version(
    mut read: impl FnMut(bool) -> std::result::Result<Option<Version>, PutFailure>,
) -> std::result::Result<Version, PutFailure> {
    let mut kept = None;
    for reading in 1..=READINGS {
        match read(reading == READINGS) {
            Ok(Some(version)) if !version.has_changed => return Ok(version),
            Ok(version) => kept = version.or(kept),
            Err(PutFailure::Source(failure)) => return kept.ok_or(PutFailure::Source(failure)),
            Err(failure) => return Err(failure),
        }
    }
    Ok(kept.unwrap_or_else(|| unreachable!("the last reading stores the file or fails")))
}

/// The data of a file, one run after another.
struct DataRuns<'f> {
    file: &'f File,
    runs: std::slice::Iter<'f, (u64, u64)>,
    at: u64,
    end: u64,
    /// Whether missing bytes are replaced by zeroes, as the record already has the lengths of the runs.
    exact: bool,
    read_bytes: u64,
    failure: Option<io::Error>,
}

impl<'f> DataRuns<'f> {
    fn new(opened: &'f OpenedFile) -> DataRuns<'f> {
        let (runs, end) = match &opened.attributes.holes {
            Some(holes) => (&holes.data[..], 0),
            None => (&[][..], opened.status.size_bytes),
        };
        let exact = opened.attributes.holes.is_some();
        DataRuns { file: &opened.file, runs: runs.iter(), at: 0, end, exact, read_bytes: 0, failure: None }
    }
}

impl Read for DataRuns<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.at == self.end {
            let Some(&(offset, length)) = self.runs.next() else { return Ok(0) };
            (self.at, self.end) = (offset, offset + length);
        }
        let wanted = buffer.len().min(usize::try_from(self.end - self.at).unwrap_or(usize::MAX));
        let got = match self.file.read_at(&mut buffer[..wanted], self.at) {
            Ok(0) if self.exact => {
                buffer[..wanted].fill(0);
                wanted
            }
            Ok(got) => got,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Err(error),
            Err(error) => {
                let passed_on = io::Error::from(error.kind());
                self.failure = Some(error);
                return Err(passed_on);
            }
        };
        self.at += got as u64;
        self.read_bytes += got as u64;
        Ok(got)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::attributes::Holes;

    fn opened(content: &[u8], holes: Option<Holes>) -> (tempfile::TempDir, OpenedFile) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, content).unwrap();
        let file = File::open(&path).unwrap();
        let status = status(&file).unwrap();
        let attributes = Attributes { holes, ..status.attributes(false) };
        (directory, OpenedFile { file, status, attributes })
    }

    #[test]
    fn the_last_version_that_was_stored_is_kept() {
        let version = |content_bytes, has_changed| Version { number: None, content_bytes, hole_bytes: 0, has_changed };
        let vanished = || PutFailure::Source(io::ErrorKind::NotFound.into());
        let kept = |readings: Vec<std::result::Result<Option<Version>, PutFailure>>| {
            let mut readings = readings.into_iter();
            let version = last_version(|_| readings.next().unwrap());
            assert!(readings.next().is_none());
            version.map(|version| (version.content_bytes, version.has_changed)).ok()
        };
        assert_eq!(kept(vec![Ok(Some(version(1, false)))]), Some((1, false)));
        assert_eq!(kept(vec![Ok(Some(version(1, true))), Ok(Some(version(2, false)))]), Some((2, false)));
        assert_eq!(kept(vec![Ok(Some(version(1, true))), Ok(Some(version(2, true)))]), Some((2, true)));
        assert_eq!(kept(vec![Ok(None), Ok(Some(version(2, true)))]), Some((2, true)));
        // The batch has the first one, over what the store had: it is reported as changed, not as left out.
        assert_eq!(kept(vec![Ok(Some(version(1, true))), Err(vanished())]), Some((1, true)));
        assert_eq!(kept(vec![Ok(None), Err(vanished())]), None);
        assert_eq!(kept(vec![Err(vanished())]), None);
    }

    #[test]
    fn data_runs_are_read_one_after_the_other() {
        let holes = Holes { size_bytes: 10, data: vec![(1, 2), (5, 3)] };
        let (_directory, opened) = opened(b"0123456789", Some(holes));
        assert_eq!(opened.data_bytes(), 5);
        let mut read = Vec::new();
        DataRuns::new(&opened).read_to_end(&mut read).unwrap();
        assert_eq!(read, b"12567");
    }

    #[test]
    fn a_file_that_shrank_is_filled_up_only_where_its_runs_are_recorded() {
        let (directory, whole) = opened(b"0123456789", None);
        let holes = Holes { size_bytes: 10, data: vec![(2, 8)] };
        let (other, sparse) = opened(b"0123456789", Some(holes));
        for directory in [&directory, &other] {
            std::fs::OpenOptions::new().write(true).open(directory.path().join("file")).unwrap().set_len(4).unwrap();
        }
        let mut read = Vec::new();
        DataRuns::new(&whole).read_to_end(&mut read).unwrap();
        assert_eq!(read, b"0123");
        assert!(whole.has_changed());
        read.clear();
        DataRuns::new(&sparse).read_to_end(&mut read).unwrap();
        assert_eq!(read, b"23\0\0\0\0\0\0");
    }
}
