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
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use super::body::{self, Body, BodyError};
use super::cache::DiskCache;
use super::dropped::Dropped;
use super::fetch::{FetchError, Fetcher, Reading, SHORT_FILE_BYTES, unreadable};
use super::lease::{Heart, Lease, silence};
use super::options::{BucketOptions, refuse_impossible};
use super::pieces::{LARGEST_BYTES, Piece, Source};
use super::remembered::Remembered;
use super::table::{FileNumber, FileTable};
use super::uploads::Uploads;
use crate::devices::device::Unanswered;
use crate::devices::objects::counts::{BucketStatus, Counted, Requests, StoredObjects};
use crate::devices::objects::{ObjectError, Objects};
use crate::devices::published::{Bucket, MANIFEST, Manifest, PublishedObject, Reader, Staged, Surroundings, Writer};
use crate::error::{Error, ErrorKind, Result};
use crate::format::geometry::Class;
use crate::locks::lock;

/// How often a reader takes in a newer version because an object is gone, before that is an error.
const MOST_REFRESHES: u32 = 3;

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
    /// What is to be deleted later, as of the next version.
    pub(super) dropped: Dropped,
    pub(super) spending: Spending,
    pub(super) heart: Arc<Heart>,
}

/// What writers have asked the bucket, which each version says.
#[derive(Debug, Clone)]
pub(super) struct Spending {
    pub(super) counted: Arc<Counted>,
    /// Requests of all writers, as last published.
    pub(super) spent: Requests,
    /// Requests of this process among them.
    pub(super) published: Requests,
}

impl Spending {
    /// As of a publication that begins now, with its own request, but not yet the bytes of it.
    pub(super) fn next(&self) -> Spending {
        let mut published = self.counted.requests();
        published.replaces += 1;
        let spent = self.spent.and(&published.since(&self.published));
        Spending { counted: Arc::clone(&self.counted), spent, published }
    }
}

/// The files.
#[derive(Debug)]
pub(super) struct Files {
    pub(super) table: FileTable,
    /// Of the version that is known here; of a writer, of the next one.
    pub(super) lease: Lease,
    pub(super) remembered: Remembered,
    is_writable: bool,
    /// Number of changes so far, and of those that are published.
    pub(super) changes: u64,
    pub(super) published_changes: u64,
    /// Requests of all writers, of the version that is read here.
    spent: Requests,
    /// Requests of this process that a version has.
    published_requests: Requests,
    /// When the newest version was last asked for.
    asked: Instant,
    /// Why nothing may be written any more.
    pub(super) failure: Option<String>,
}

/// The right to write, as far as this process knows.
#[derive(Debug, Default)]
pub(super) struct Right {
    pub(super) is_held: bool,
    /// Another process had it, and nobody asks until then, by the clock of the surroundings.
    pub(super) busy_until: Duration,
}

/// Files in a bucket.
#[derive(Debug)]
pub(crate) struct Volume {
    pub(super) bucket: Bucket,
    counted: Arc<Counted>,
    pub(super) fetcher: Fetcher,
    pub(super) uploads: Uploads,
    pub(super) options: BucketOptions,
    pub(super) log: Mutex<Log>,
    pub(super) files: Mutex<Files>,
    has_unanswered: AtomicBool,
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

    /// This process is no writer any more.
    pub(super) fn end_spending(&mut self, spending: &Spending) {
        (self.spent, self.published_requests) = (spending.spent, spending.published);
    }

    /// Becomes what was published later.
    pub(super) fn become_next(&mut self, next: Body) {
        let Body { lease, table, spent, remembered, .. } = next;
        (self.lease, self.spent, self.remembered) = (lease, spent, remembered);
        self.table.become_next(table);
    }
}

/// The files of a version, and its lease.
fn body_of(bucket: &Bucket, manifest: &Manifest) -> Result<Body> {
    const READ: &str = "read the files of the store";
    let objects: Vec<Arc<PublishedObject>> = manifest.objects().cloned().map(Arc::new).collect();
    body::decode(manifest.body(), &objects).map_err(|error| {
        let error = match error {
            BodyError::Damaged => Error::new(ErrorKind::Corrupt, READ, "the manifest has no table of files"),
            BodyError::Newer(version) => Error::newer_version(READ, version, body::FORMAT_VERSION),
        };
        error.at(&bucket.place_of(MANIFEST))
    })
}

/// How a handle reads its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// Only what is asked for.
    Plain,
    /// Through the caches: it is part of an index.
    Kept,
    /// Past the caches, which then have what the bucket has.
    Renewed,
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
        refuse_impossible(&options).map_err(|error| error.at(&objects.place()))?;
        let counted = Arc::new(Counted::new(objects));
        let objects: Arc<dyn Objects> = counted.clone();
        let bucket = Bucket { objects: Arc::clone(&objects), surroundings: Arc::clone(&surroundings) };
        let (log, Body { lease, table, spent, remembered, .. }) = match Reader::open(objects, surroundings) {
            Ok(reader) => {
                let body = body_of(&bucket, reader.manifest())?;
                (Log::Reading(reader), body)
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let remembered = Remembered::default().with(&options);
                (Log::Absent, Body { remembered, ..Body::default() })
            }
            Err(error) => return Err(error),
        };
        let is_writable = matches!(log, Log::Absent);
        let (changes, published_changes, asked) = (0, 0, Instant::now());
        let published_requests = Requests::default();
        let files = Files {
            table,
            lease,
            remembered,
            is_writable,
            changes,
            published_changes,
            spent,
            published_requests,
            asked,
            failure: None,
        };
        let (fetcher, uploads) = (Fetcher::new(bucket.clone()), Uploads::new(bucket.clone(), options.uploads));
        let volume = Volume {
            bucket,
            counted,
            fetcher,
            uploads,
            options,
            log: Mutex::new(log),
            files: Mutex::new(files),
            has_unanswered: AtomicBool::new(false),
            holders: Mutex::default(),
            right: Mutex::default(),
        };
        if let Log::Reading(reader) = &*lock(&volume.log) {
            volume.keep(reader.manifest());
        }
        Ok(volume)
    }

    /// What this process has spent as a writer so far.
    pub(super) fn spending(&self, files: &Files) -> Spending {
        Spending { counted: Arc::clone(&self.counted), spent: files.spent, published: files.published_requests }
    }

    /// Keeps what is read of the index of this store where the options say.
    pub(super) fn keep(&self, manifest: &Manifest) {
        if let Some(directory) = &self.options.cache {
            self.fetcher.keep_in(DiskCache::new(directory, manifest.store(), self.options.cache_bytes));
        }
    }

    /// Whether there is a log, or anything to create one with.
    pub(crate) fn exists(&self) -> bool {
        !matches!(*lock(&self.log), Log::Absent) || !lock(&self.files).table.is_empty()
    }

    /// Whether there are objects where no log is.
    ///
    /// # Errors
    /// They cannot be listed.
    pub(super) fn has_others(&self) -> io::Result<bool> {
        let is_absent = matches!(*lock(&self.log), Log::Absent);
        if is_absent { self.bucket.has_objects().map_err(ObjectError::into_io) } else { Ok(false) }
    }

    /// Looks at the files, at most as old as readers like.
    ///
    /// # Errors
    /// A newer version cannot be read.
    pub(super) fn look<T>(&self, look: impl FnOnce(&mut FileTable) -> T) -> io::Result<T> {
        let is_due = |files: &Files| !files.is_writable && files.asked.elapsed() >= self.options.poll;
        if is_due(&lock(&self.files)) {
            self.refresh_if(is_due)?;
        }
        Ok(look(&mut lock(&self.files).table))
    }

    /// Takes in the newest version, unless this process writes.
    ///
    /// # Errors
    /// It cannot be read, or is older than what was read before.
    pub(super) fn refresh(&self) -> io::Result<()> {
        self.refresh_if(|_| true)
    }

    /// The same, if it still is to be done once others have that are at it.
    fn refresh_if(&self, is_due: impl Fn(&Files) -> bool) -> io::Result<()> {
        let mut log = lock(&self.log);
        let Log::Reading(reader) = &mut *log else { return Ok(()) };
        if !is_due(&lock(&self.files)) {
            return Ok(());
        }
        let asked = Instant::now();
        let told = |error: Error| io::Error::other(error.to_string());
        let newer = reader.refresh_to(|manifest| body_of(&self.bucket, manifest)).map_err(told)?;
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
        body_of(&self.bucket, reader.manifest())
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

    /// Size of a file in bytes, as far as is known here.
    pub(super) fn known_size_bytes(&self, number: FileNumber) -> u64 {
        lock(&self.files).table.pieces(number).map_or(0, |pieces| pieces.size_bytes())
    }

    /// The pieces of a range of a file, and if it is short, all of them.
    fn pieces_of(&self, number: FileNumber, range: Range<u64>) -> (Vec<Piece>, Vec<Piece>) {
        let files = lock(&self.files);
        let Some(pieces) = files.table.pieces(number) else { return Default::default() };
        let whole = if pieces.size_bytes() <= SHORT_FILE_BYTES { 0..SHORT_FILE_BYTES } else { 0..0 };
        let (mut found, mut whole): (Vec<Piece>, Vec<Piece>) =
            (pieces.within(range).collect(), pieces.within(whole).collect());
        drop(files);
        self.uploads.find(&mut found);
        self.uploads.find(&mut whole);
        (found, whole)
    }

    /// Reads bytes of a file; fewer only at its end.
    ///
    /// # Errors
    /// Of the bucket; `EIO` if an object is gone, or has another length.
    pub(super) fn read(&self, number: FileNumber, buffer: &mut [u8], at: u64, way: Way) -> io::Result<usize> {
        let range = at..at.saturating_add(buffer.len() as u64);
        let (mut pieces, mut whole) = self.pieces_of(number, range.clone());
        match way {
            Way::Renewed => self.fetcher.forget(&pieces),
            Way::Plain | Way::Kept => self.read_ahead(number, &range, &pieces, way),
        }
        for _ in 0..MOST_REFRESHES {
            let reading = if way == Way::Plain { Reading::Plain } else { Reading::Kept(&whole) };
            let gone = match self.fetcher.fill(buffer, at, &pieces, reading) {
                Err(FetchError { object, error: ObjectError::NotFound }) => object,
                Err(FetchError { error, .. }) => {
                    let error = error.into_io();
                    // That an object has another length is an answer.
                    let is_damaged = error.raw_os_error() == unreadable().raw_os_error();
                    return Err(if is_damaged { error } else { self.unanswered(&error) });
                }
                Ok(filled) => return Ok(filled),
            };
            // It may have been replaced, and dropped, since the version that is known here.
            self.refresh().map_err(|error| self.unanswered(&error))?;
            (pieces, whole) = self.pieces_of(number, range.clone());
            let is_gone =
                |piece: &Piece| matches!(&piece.source, Source::Object { object, .. } if object.name() == gone);
            if pieces.iter().any(is_gone) {
                break;
            }
        }
        Err(unreadable())
    }

    fn unanswered(&self, error: &io::Error) -> io::Error {
        self.has_unanswered.store(true, Ordering::Relaxed);
        Unanswered::of(error)
    }

    /// Whether the bucket has refused to answer a read, or has not answered it in time.
    pub(super) fn has_unanswered(&self) -> bool {
        self.has_unanswered.load(Ordering::Relaxed)
    }

    /// Begins to fetch what will be read next, if a read of some pieces is one in a row.
    fn read_ahead(&self, number: FileNumber, range: &Range<u64>, pieces: &[Piece], way: Way) {
        let is_in_object = |piece: &Piece| matches!(piece.source, Source::Object { .. });
        // A short file of an index is fetched as a whole.
        let is_whole = way == Way::Kept && self.known_size_bytes(number) <= SHORT_FILE_BYTES;
        if is_whole || !pieces.iter().any(is_in_object) {
            return;
        }
        if let Some(ahead) = self.fetcher.note(number, range.clone()) {
            self.will_read(number, ahead, way);
        }
    }

    /// Begins to fetch a range of a file that will be read soon.
    pub(super) fn will_read(&self, number: FileNumber, range: Range<u64>, way: Way) {
        let (pieces, whole) = self.pieces_of(number, range);
        let reading = if way == Way::Plain { Reading::Plain } else { Reading::Kept(&whole) };
        self.fetcher.fetch_ahead(&pieces, reading);
    }

    /// The next reads of a file ask the bucket.
    pub(super) fn forget(&self, number: FileNumber) {
        self.fetcher.forget(&self.pieces_of(number, 0..LARGEST_BYTES).0);
    }

    /// What is in the bucket as far as is known here, and what this process has asked it; `None` without a log.
    pub(super) fn status(&self) -> Option<BucketStatus> {
        let log = lock(&self.log);
        let manifest = match &*log {
            Log::Absent => return None,
            Log::Reading(reader) => reader.manifest(),
            Log::Writing(author) => author.writer.manifest(),
        };
        let of_class = |class: Class| {
            let lengths =
                manifest.objects().filter(|object| object.class() == class).map(PublishedObject::length_bytes);
            StoredObjects { objects: lengths.clone().count() as u64, bytes: lengths.sum() }
        };
        Some(BucketStatus {
            place: self.bucket.objects.place(),
            version: manifest.version(),
            manifest_bytes: manifest.length_bytes(),
            fast: of_class(Class::Fast),
            slow: of_class(Class::Slow),
            requests: self.counted.requests(),
            spent: match &*log {
                Log::Writing(author) => author.spending.spent,
                Log::Reading(_) | Log::Absent => lock(&self.files).spent,
            },
        })
    }

    /// How long the holder of the lease has been silent, if it has, and the bucket says so. Sends requests.
    pub(super) fn silence(&self) -> Option<Duration> {
        let (lease, epoch) = match &*lock(&self.log) {
            Log::Reading(reader) => (lock(&self.files).lease.clone(), reader.manifest().epoch()),
            Log::Absent | Log::Writing(_) => return None,
        };
        if lease.is_free(&*self.bucket.surroundings) {
            return None;
        }
        silence(&self.bucket, &lease, epoch).ok().flatten()
    }

    /// As if so much time had passed since the newest version was asked for.
    #[cfg(test)]
    pub(crate) fn let_pass(&self, time: Duration) {
        let mut files = lock(&self.files);
        files.asked = files.asked.checked_sub(time).expect("the machine has been on for that long");
    }

    /// Waits until nothing is read ahead any more.
    #[cfg(test)]
    pub(crate) fn settle(&self) {
        self.fetcher.settle();
    }
}
