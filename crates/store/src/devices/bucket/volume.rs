//! A volume: a table of files, and the log that it is published to.
//!
//! - Of one version, or of what this process has written since: `files` has the table that reads and writes go by.
//! - Only the writer changes it, and only its publications change the log (`publish`). A reader takes in newer versions
//!   as a whole, when it opens or lists something, or asks for a size.
//! - After a failed publication, what the bucket has is unknown, so nothing is written or published any more: whoever
//!   opens the store again finds out.
//!
//! Lock order: `right`, `log`, `files`. Requests are sent with `log` locked, never with `files`.

#![cfg_attr(not(test), warn(clippy::indexing_slicing))]

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use super::body::{self, Body, BodyError};
use super::lease::{Heart, Lease};
use super::lock::Right;
use super::pieces::{LARGEST_BYTES, Piece, Source};
use super::table::{FileNumber, FileTable};
use crate::devices::objects::{ObjectError, Objects};
use crate::devices::published::{Bucket, MANIFEST, PublishedObject, Reader, Staged, Surroundings, Writer};
use crate::error::{Error, ErrorKind, Result};
use crate::locks::lock;

/// Error for unreadable data, as of a bad sector.
const UNREADABLE: i32 = rustix::io::Errno::IO.raw_os_error();
/// How often a reader takes in a newer version because an object is gone, before that is an error.
const MOST_REFRESHES: u32 = 3;

/// How a store in a bucket is used.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BucketOptions {
    /// Size of the objects in bytes that a writer puts, if it has as much; also the memory that each file needs until
    /// then.
    pub object_bytes: u64,
    /// How old what a reader knows may be before it asks for a newer version.
    pub poll: Duration,
}

impl Default for BucketOptions {
    fn default() -> BucketOptions {
        BucketOptions { object_bytes: 32 << 20, poll: Duration::from_millis(500) }
    }
}

/// The log, and what this process may do with it.
#[derive(Debug)]
pub(super) enum Log {
    /// There was none; the first publication creates it.
    Absent,
    Reading(Reader),
    Writing(Box<Author>),
}

/// The writer of the log.
#[derive(Debug)]
pub(super) struct Author {
    pub(super) writer: Writer,
    /// Objects that were put and not published, by number.
    pub(super) staged: BTreeMap<u64, Staged>,
    /// Bytes in the body as last published.
    pub(super) inline_bytes: u64,
    pub(super) heart: Arc<Heart>,
}

/// The files.
#[derive(Debug)]
pub(super) struct Files {
    pub(super) table: FileTable,
    /// Of the version that is known here.
    pub(super) lease: Lease,
    is_writable: bool,
    /// Number of changes so far, and of those that are published.
    pub(super) changes: u64,
    pub(super) published_changes: u64,
    /// When the newest version was last asked for.
    asked: Instant,
    /// Why nothing may be written any more.
    pub(super) failure: Option<String>,
}

/// Files in a bucket.
#[derive(Debug)]
pub(crate) struct Volume {
    pub(super) bucket: Bucket,
    pub(super) options: BucketOptions,
    pub(super) log: Mutex<Log>,
    pub(super) files: Mutex<Files>,
    /// How often each thread holds publications back.
    pub(super) holders: Mutex<HashMap<ThreadId, u32>>,
    /// Whether this process may write.
    pub(super) right: Mutex<Right>,
}

impl Files {
    /// # Errors
    /// `ReadOnlyFilesystem` if this process does not write; the failure of a publication.
    pub(super) fn may_write(&self) -> io::Result<()> {
        match &self.failure {
            Some(failure) => Err(io::Error::other(failure.clone())),
            None if !self.is_writable => Err(io::ErrorKind::ReadOnlyFilesystem.into()),
            None => Ok(()),
        }
    }

    pub(super) fn is_writable(&self) -> bool {
        self.is_writable
    }

    pub(super) fn set_writable(&mut self, is_writable: bool) {
        self.is_writable = is_writable;
    }

    /// Becomes what was published later.
    pub(super) fn become_next(&mut self, next: Body) {
        let Body { lease, table } = next;
        self.lease = lease;
        self.table.become_next(table);
    }
}

/// The files of the version that a reader has, and its lease.
fn body_of(bucket: &Bucket, reader: &Reader) -> Result<Body> {
    const READ: &str = "read the files of the store";
    let objects: Vec<Arc<PublishedObject>> = reader.manifest().objects().cloned().map(Arc::new).collect();
    body::decode(reader.manifest().body(), &objects).map_err(|error| {
        let error = match error {
            BodyError::Damaged => Error::new(ErrorKind::Corrupt, READ, "the manifest has no table of files"),
            BodyError::Newer(version) => Error::newer_version(READ, version, body::FORMAT_VERSION),
        };
        error.at(&bucket.place_of(MANIFEST))
    })
}

fn unreadable() -> io::Error {
    io::Error::from_raw_os_error(UNREADABLE)
}

impl Volume {
    /// Opens a volume for reading. If the bucket has none, it is empty and may be written to; the first publication
    /// creates it.
    ///
    /// # Errors
    /// The manifest cannot be read, is damaged, or of a later version.
    pub(crate) fn open(
        objects: Arc<dyn Objects>,
        surroundings: Arc<dyn Surroundings>,
        options: BucketOptions,
    ) -> Result<Volume> {
        let bucket = Bucket { objects: Arc::clone(&objects), surroundings: Arc::clone(&surroundings) };
        let (log, Body { lease, table }) = match Reader::open(objects, surroundings) {
            Ok(reader) => {
                let body = body_of(&bucket, &reader)?;
                (Log::Reading(reader), body)
            }
            Err(error) if error.kind() == ErrorKind::NotFound => (Log::Absent, Body::default()),
            Err(error) => return Err(error),
        };
        let is_writable = matches!(log, Log::Absent);
        let (changes, published_changes, asked) = (0, 0, Instant::now());
        let files = Files { table, lease, is_writable, changes, published_changes, asked, failure: None };
        Ok(Volume {
            bucket,
            options,
            log: Mutex::new(log),
            files: Mutex::new(files),
            holders: Mutex::default(),
            right: Mutex::default(),
        })
    }

    /// Whether there is a log, or anything to create one with.
    pub(crate) fn exists(&self) -> bool {
        !matches!(*lock(&self.log), Log::Absent) || !lock(&self.files).table.is_empty()
    }

    /// Looks at the files, at most as old as readers like.
    ///
    /// # Errors
    /// A newer version cannot be read.
    pub(super) fn look<T>(&self, look: impl FnOnce(&mut FileTable) -> T) -> io::Result<T> {
        let is_due = {
            let files = lock(&self.files);
            !files.is_writable && files.asked.elapsed() >= self.options.poll
        };
        if is_due {
            self.refresh()?;
        }
        Ok(look(&mut lock(&self.files).table))
    }

    /// Takes in the newest version, unless this process writes.
    ///
    /// # Errors
    /// It cannot be read, or is older than what was read before.
    pub(super) fn refresh(&self) -> io::Result<()> {
        let mut log = lock(&self.log);
        let Log::Reading(reader) = &mut *log else { return Ok(()) };
        let asked = Instant::now();
        let told = |error: Error| io::Error::other(error.to_string());
        let newer = match reader.refresh().map_err(told)? {
            true => Some(body_of(&self.bucket, reader).map_err(told)?),
            false => None,
        };
        let mut files = lock(&self.files);
        files.asked = asked;
        newer.into_iter().for_each(|newer| files.become_next(newer));
        Ok(())
    }

    /// The files of the version that a reader has, and its lease.
    ///
    /// # Errors
    /// It is damaged, or of a later version.
    pub(super) fn body_of(&self, reader: &Reader) -> Result<Body> {
        body_of(&self.bucket, reader)
    }

    /// # Errors
    /// As [`Files::may_write`].
    pub(super) fn may_write(&self) -> io::Result<()> {
        lock(&self.files).may_write()
    }

    /// Changes the files.
    ///
    /// # Errors
    /// As [`Files::may_write`]; that of the change, and then nothing has changed.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut FileTable) -> io::Result<T>) -> io::Result<T> {
        let mut files = lock(&self.files);
        files.may_write()?;
        let changed = change(&mut files.table)?;
        files.changes += 1;
        Ok(changed)
    }

    /// Writes bytes of a file.
    ///
    /// # Errors
    /// As [`change`](Self::change); a long run of bytes cannot be put.
    pub(super) fn write(&self, number: FileNumber, data: &[u8], at: u64) -> io::Result<()> {
        if at.checked_add(data.len() as u64).is_none_or(|end| end > LARGEST_BYTES) {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.change(|table| {
            table.pieces_mut(number).ok_or(io::ErrorKind::NotFound)?.write(at, data);
            Ok(())
        })?;
        self.stage_long_run(number, at)
    }

    /// Truncates a file, or extends it by a hole.
    ///
    /// # Errors
    /// As [`change`](Self::change).
    pub(super) fn set_size(&self, number: FileNumber, size_bytes: u64) -> io::Result<()> {
        if size_bytes > LARGEST_BYTES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.change(|table| {
            table.pieces_mut(number).ok_or(io::ErrorKind::NotFound)?.set_size(size_bytes);
            Ok(())
        })
    }

    /// Size of a file in bytes.
    ///
    /// # Errors
    /// As [`look`](Self::look).
    pub(super) fn size_bytes(&self, number: FileNumber) -> io::Result<u64> {
        self.look(|table| table.pieces(number).map_or(0, |pieces| pieces.size_bytes()))
    }

    /// Reads bytes of a file; fewer only at its end.
    ///
    /// # Errors
    /// Of the bucket; `EIO` if an object is gone, or has another length.
    pub(super) fn read(&self, number: FileNumber, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let range = at..at.saturating_add(buffer.len() as u64);
        let pieces = || -> Vec<Piece> {
            let files = lock(&self.files);
            files.table.pieces(number).map(|pieces| pieces.within(range.clone()).collect()).unwrap_or_default()
        };
        for _ in 0..MOST_REFRESHES {
            match self.fill(buffer, at, &pieces()) {
                // It may have been replaced, and dropped, since the version that is known here.
                Err(ObjectError::NotFound) => self.refresh()?,
                Err(error) => return Err(error.into_io()),
                Ok(filled) => return Ok(filled),
            }
        }
        Err(unreadable())
    }

    fn fill(&self, buffer: &mut [u8], at: u64, pieces: &[Piece]) -> std::result::Result<usize, ObjectError> {
        let mut filled = 0;
        for piece in pieces {
            let begin = (piece.at - at) as usize;
            filled = begin + piece.length as usize;
            let Some(place) = buffer.get_mut(begin..filled) else { break };
            match (&piece.source, piece.bytes()) {
                (Source::Object { object, offset }, _) => {
                    place.copy_from_slice(&self.fetch(object, *offset, piece.length)?);
                }
                (_, Some(bytes)) => place.copy_from_slice(bytes),
                (_, None) => place.fill(0),
            }
        }
        Ok(filled)
    }

    /// Reads a range of an object.
    pub(super) fn fetch(
        &self,
        object: &PublishedObject,
        offset: u64,
        length: u64,
    ) -> std::result::Result<Vec<u8>, ObjectError> {
        let piece = self.bucket.read(&object.path(), offset..offset + length)?;
        if piece.head.size_bytes != object.length_bytes() || piece.bytes.len() as u64 != length {
            return Err(ObjectError::Failed(unreadable()));
        }
        Ok(piece.bytes)
    }
}
