//! Reading ranges of objects in few requests, and at once.
//!
//! - Ranges of one object that are adjacent or near are **joined** into one request; ranges of several objects, and the
//!   parts of a long one, are requested at the same time.
//! - What is read in order is **read ahead** ([`Streams`]), in parts, each by a thread of its own, into a bounded
//!   [`RangeMemory`]. Where there is no thread or no room, it is not.
//! - Files with an index are **kept**: read in blocks, all of a short file at once, through memory and, if there is
//!   one, a [`DiskCache`]. Other bytes of objects are kept nowhere: each record is read when somebody asks.
//!
//! A request that fails, fails the read that needs it; what was requested ahead and failed is requested again by
//! whoever needs it.

#![cfg_attr(not(test), warn(clippy::indexing_slicing))]

use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock};

use crate::devices::bucket::cache::{BLOCK_BYTES, DiskCache};
use crate::devices::bucket::memory::{Announced, RangeMemory};
use crate::devices::bucket::pieces::{Piece, Source};
use crate::devices::bucket::streams::Streams;
use crate::devices::bucket::table::FileNumber;
use crate::devices::objects::ObjectError;
use crate::devices::published::{Bucket, ObjectName, PublishedObject};
use crate::devices::threads;
use crate::locks::lock;

/// Error for unreadable data, as of a bad sector.
const UNREADABLE: i32 = rustix::io::Errno::IO.raw_os_error();
/// Bytes of objects in memory.
const MEMORY_BYTES: u64 = 32 << 20;
/// Most bytes of a request: of one for a part of something longer, and of any.
const PART_BYTES: u64 = 4 << 20;
const LONGEST_BYTES: u64 = 8 << 20;
/// A gap of at most so many bytes between two ranges is read rather than requested around.
pub(in crate::devices::bucket) const NEAR_BYTES: u64 = 64 << 10;
/// Most requests at the same time for one read, and for reading ahead.
const MOST_AT_ONCE: usize = 8;
/// A file with an index that is at most so long is fetched as a whole.
pub(in crate::devices::bucket) const SHORT_FILE_BYTES: u64 = LONGEST_BYTES;

/// Why an object cannot be read.
#[derive(Debug)]
pub(in crate::devices::bucket) struct FetchError {
    pub(in crate::devices::bucket) object: ObjectName,
    pub(in crate::devices::bucket) error: ObjectError,
}

type Fetched<T> = Result<T, FetchError>;

/// The error for bytes that are not what they should be.
pub(in crate::devices::bucket) fn unreadable() -> io::Error {
    io::Error::from_raw_os_error(UNREADABLE)
}

/// Bytes of an object that somebody wants, and where.
#[derive(Debug)]
struct Want<'b> {
    object: Arc<PublishedObject>,
    offset: u64,
    place: &'b mut [u8],
}

impl<'b> Want<'b> {
    fn end(&self) -> u64 {
        self.offset + self.place.len() as u64
    }

    fn is_empty(&self) -> bool {
        self.place.is_empty()
    }

    /// The first `length` bytes, and the rest.
    fn split(self, length: u64) -> (Want<'b>, Want<'b>) {
        let Want { object, offset, place } = self;
        let (first, rest) = place.split_at_mut(usize::try_from(length).unwrap_or(usize::MAX).min(place.len()));
        let behind = offset + first.len() as u64;
        (Want { object: Arc::clone(&object), offset, place: first }, Want { object, offset: behind, place: rest })
    }

    /// What is before an offset in the object, and the rest.
    fn split_at(self, offset: u64) -> (Want<'b>, Want<'b>) {
        let length = offset.saturating_sub(self.offset);
        self.split(length)
    }

    /// Takes it from bytes of the object that begin at an offset, and cover it.
    fn take(self, begin: u64, bytes: &[u8]) {
        let from = bytes.get((self.offset - begin) as usize..(self.end() - begin) as usize);
        self.place.copy_from_slice(from.expect("what is requested covers what is wanted of it"));
    }
}

/// A range of an object that is read at once, with what is wanted of it, in order.
#[derive(Debug)]
struct Request<'b> {
    object: Arc<PublishedObject>,
    range: Range<u64>,
    wants: Vec<Want<'b>>,
}

impl Request<'_> {
    fn may_take(&self, want: &Want<'_>, longest_bytes: u64) -> bool {
        let is_near = self.range.end <= want.offset && want.offset - self.range.end <= NEAR_BYTES;
        is_near && self.object.name() == want.object.name() && want.end() - self.range.start <= longest_bytes
    }
}

/// Joins neighbours, and divides what is long.
fn requests(wants: Vec<Want<'_>>) -> Vec<Request<'_>> {
    let bytes: usize = wants.iter().map(|want| want.place.len()).sum();
    let longest_bytes = if bytes as u64 > LONGEST_BYTES { PART_BYTES } else { LONGEST_BYTES };
    let mut requests: Vec<Request<'_>> = Vec::new();
    for mut rest in wants {
        while !rest.is_empty() {
            let want;
            (want, rest) = rest.split(longest_bytes);
            match requests.last_mut() {
                Some(request) if request.may_take(&want, longest_bytes) => {
                    request.range.end = want.end();
                    request.wants.push(want);
                }
                _ => {
                    let (object, range) = (Arc::clone(&want.object), want.offset..want.end());
                    requests.push(Request { object, range, wants: vec![want] });
                }
            }
        }
    }
    requests
}

/// The range that a piece has in an object, if it is in one.
fn in_object(piece: &Piece) -> Option<(&Arc<PublishedObject>, Range<u64>)> {
    match &piece.source {
        Source::Object { object, offset } => Some((object, *offset..*offset + piece.length)),
        Source::Hole | Source::Bytes { .. } => None,
    }
}

/// The ranges that pieces have in objects, each at most `longest_bytes` long.
fn ranges_of(pieces: &[Piece], longest_bytes: u64) -> impl Iterator<Item = (&Arc<PublishedObject>, Range<u64>)> {
    pieces.iter().filter_map(in_object).flat_map(move |(object, range)| {
        let begins = range.clone().step_by(longest_bytes as usize);
        begins.map(move |begin| (object, begin..range.end.min(begin + longest_bytes)))
    })
}

/// The blocks of an object that a range meets, as a range.
fn in_blocks(object: &PublishedObject, range: &Range<u64>) -> Range<u64> {
    let end = range.end.div_ceil(BLOCK_BYTES) * BLOCK_BYTES;
    range.start / BLOCK_BYTES * BLOCK_BYTES..end.min(object.length_bytes())
}

/// The blocks of an object that a range has, as a whole.
fn blocks_in(object: &PublishedObject, range: &Range<u64>) -> impl Iterator<Item = (u64, Range<u64>)> {
    let (start, end, length_bytes) = (range.start, range.end, object.length_bytes());
    let blocks = start.div_ceil(BLOCK_BYTES)..end.div_ceil(BLOCK_BYTES);
    let with_range = move |block: u64| (block, block * BLOCK_BYTES..length_bytes.min((block + 1) * BLOCK_BYTES));
    blocks.map(with_range).filter(move |(_, block)| block.end <= end)
}

/// How a file is read.
#[derive(Debug, Clone, Copy)]
pub(in crate::devices::bucket) enum Reading<'p> {
    /// Only what is asked for.
    Plain,
    /// With an index: in blocks that are kept. A short file is fetched whole, and these are all of its pieces.
    Kept(&'p [Piece]),
}

impl Reading<'_> {
    /// The blocks to be fetched where some around `at` are needed: with those of the rest of a short file.
    fn around(&self, object: &PublishedObject, at: u64, needed: Range<u64>) -> Range<u64> {
        let Reading::Kept(whole) = self else { return needed };
        let has =
            |(found, range): &(&Arc<PublishedObject>, Range<u64>)| found.name() == object.name() && range.contains(&at);
        let rest = ranges_of(whole, SHORT_FILE_BYTES).find(has).map(|(_, range)| in_blocks(object, &range));
        rest.map_or(needed.clone(), |rest| rest.start.min(needed.start)..rest.end.max(needed.end))
    }
}

/// What threads that read ahead share.
#[derive(Debug)]
struct Shared {
    bucket: Bucket,
    memory: RangeMemory,
    disk: OnceLock<DiskCache>,
}

/// Tells those who wait for an announced range what became of it, also if that is a panic.
struct Arrival<'s> {
    memory: &'s RangeMemory,
    object: ObjectName,
    begin: u64,
    bytes: Option<Arc<Vec<u8>>>,
}

impl Drop for Arrival<'_> {
    fn drop(&mut self) {
        self.memory.arrive(self.object, self.begin, self.bytes.as_ref());
    }
}

impl Shared {
    /// Requests a range of an object.
    fn get(&self, object: &PublishedObject, range: Range<u64>) -> Fetched<Vec<u8>> {
        let failed = |error| FetchError { object: object.name(), error };
        let length = range.end - range.start;
        let piece = self.bucket.read(&object.path(), range).map_err(failed)?;
        if piece.head.size_bytes != object.length_bytes() {
            return Err(failed(ObjectError::Failed(unreadable())));
        }
        if piece.bytes.len() as u64 != length {
            // An answer that is too short says nothing about the object.
            return Err(failed(ObjectError::Unknown(io::ErrorKind::UnexpectedEof.into())));
        }
        Ok(piece.bytes)
    }

    /// Fetches a range that was announced: from disk, if it is kept, or from the bucket.
    fn fetch_announced(&self, object: &PublishedObject, range: &Range<u64>, is_kept: bool) -> Fetched<Arc<Vec<u8>>> {
        let (memory, object_name) = (&self.memory, object.name());
        let mut arrival = Arrival { memory, object: object_name, begin: range.start, bytes: None };
        let disk = self.disk.get().filter(|_| is_kept);
        let found = disk.and_then(|disk| read_disk(disk, object, range));
        let is_new = found.is_none();
        let bytes = Arc::new(found.map_or_else(|| self.get(object, range.clone()), Ok)?);
        arrival.bytes = Some(Arc::clone(&bytes));
        // Nobody waits for the disk.
        drop(arrival);
        for (block, place) in blocks_in(object, range).filter(|_| is_new) {
            let place = (place.start - range.start) as usize..(place.end - range.start) as usize;
            if let (Some(disk), Some(bytes)) = (disk, bytes.get(place)) {
                disk.write(object_name, block, bytes);
            }
        }
        Ok(bytes)
    }

    /// Copies what is in memory; returns the rest.
    fn take_from_memory<'b>(&self, want: Want<'b>) -> Vec<Want<'b>> {
        let (mut rest, mut missing) = (want, Vec::new());
        while !rest.is_empty() {
            let name = rest.object.name();
            let copied = self.memory.copy(name, rest.offset, rest.place) as u64;
            rest = rest.split(copied).1;
            if copied == 0 {
                let next = self.memory.next_begin(name, rest.offset + 1, rest.end());
                let (absent, behind) = rest.split_at(next);
                missing.push(absent);
                rest = behind;
            }
        }
        missing
    }

    fn answer(&self, request: Request<'_>) -> Fetched<()> {
        let Request { object, range, wants } = request;
        let bytes = self.get(&object, range.clone())?;
        wants.into_iter().for_each(|want| want.take(range.start, &bytes));
        Ok(())
    }

    /// Fills a place from memory, or with blocks from disk or from the bucket.
    fn fill_kept(&self, want: Want<'_>, reading: Reading<'_>) -> Fetched<()> {
        let mut rest = want;
        while !rest.is_empty() {
            let object = Arc::clone(&rest.object);
            let copied = self.memory.copy(object.name(), rest.offset, rest.place) as u64;
            rest = rest.split(copied).1;
            if copied > 0 {
                continue;
            }
            let needed = in_blocks(&object, &(rest.offset..rest.end()));
            let range = match self.disk.get().is_some_and(|disk| is_on(disk, &object, &needed)) {
                true => needed.clone(),
                false => reading.around(&object, rest.offset, needed.clone()),
            };
            let (range, bytes) = match self.memory.announce(object.name(), range, rest.offset) {
                Announced::Held => continue,
                Announced::NoRoom => (needed.clone(), Arc::new(self.get(&object, needed)?)),
                Announced::Fetch(part) => (part.clone(), self.fetch_announced(&object, &part, true)?),
            };
            let (place, behind) = rest.split_at(range.end);
            place.take(range.start, &bytes);
            rest = behind;
        }
        Ok(())
    }
}

/// The bytes of whole blocks, if all of them are on disk.
fn read_disk(disk: &DiskCache, object: &PublishedObject, range: &Range<u64>) -> Option<Vec<u8>> {
    if !is_on(disk, object, range) {
        return None;
    }
    let length = (range.end - range.start) as usize;
    let mut bytes = Vec::with_capacity(length);
    let is_whole = blocks_in(object, range).all(|(block, place)| {
        let length = (place.end - place.start) as usize;
        disk.read(object.name(), block, length, &mut bytes)
    });
    Some(bytes).filter(|bytes| is_whole && bytes.len() == length)
}

/// Whether all blocks of a range seem to be on disk.
fn is_on(disk: &DiskCache, object: &PublishedObject, range: &Range<u64>) -> bool {
    blocks_in(object, range).all(|(block, _)| disk.has(object.name(), block))
}

/// Reads objects of a bucket.
#[derive(Debug)]
pub(in crate::devices::bucket) struct Fetcher {
    shared: Arc<Shared>,
    streams: Mutex<Streams>,
}

impl Fetcher {
    pub(in crate::devices::bucket) fn new(bucket: Bucket) -> Fetcher {
        let memory = RangeMemory::new(MEMORY_BYTES, MOST_AT_ONCE);
        Fetcher { shared: Arc::new(Shared { bucket, memory, disk: OnceLock::new() }), streams: Mutex::default() }
    }

    /// Keeps blocks in a cache from now on.
    pub(in crate::devices::bucket) fn keep_in(&self, cache: DiskCache) {
        // A store has one identity, and its fetcher one cache.
        let _ = self.shared.disk.set(cache);
    }

    /// Fills the beginning of `buffer` with pieces, which lie behind each other from `at` on; returns how much.
    pub(in crate::devices::bucket) fn fill(
        &self,
        buffer: &mut [u8],
        at: u64,
        pieces: &[Piece],
        reading: Reading<'_>,
    ) -> Fetched<usize> {
        let (mut rest, mut end, mut wants) = (buffer, at, Vec::new());
        for piece in pieces {
            debug_assert_eq!(piece.at, end, "pieces have no gaps");
            let Some((place, behind)) = rest.split_at_mut_checked(piece.length as usize) else { break };
            (rest, end) = (behind, piece.end());
            match (&piece.source, piece.bytes()) {
                (Source::Object { object, offset }, _) => {
                    wants.push(Want { object: Arc::clone(object), offset: *offset, place });
                }
                (_, Some(bytes)) => place.copy_from_slice(bytes),
                (_, None) => place.fill(0),
            }
        }
        let shared = &self.shared;
        match reading {
            Reading::Kept(_) => wants.into_iter().try_for_each(|want| shared.fill_kept(want, reading))?,
            Reading::Plain => {
                let missing = wants.into_iter().flat_map(|want| shared.take_from_memory(want)).collect();
                let answers = threads::each(requests(missing), MOST_AT_ONCE, |request| shared.answer(request));
                answers.into_iter().collect::<Fetched<()>>()?;
            }
        }
        Ok((end - at) as usize)
    }

    /// Notes a read of a file that is not short; returns the range of it to be read ahead, if any.
    pub(in crate::devices::bucket) fn note(&self, file: FileNumber, range: Range<u64>) -> Option<Range<u64>> {
        lock(&self.streams).note(file, range)
    }

    /// Begins to fetch pieces that will be read soon, as far as there is room.
    pub(in crate::devices::bucket) fn fetch_ahead(&self, pieces: &[Piece], reading: Reading<'_>) {
        let bytes: u64 = pieces.iter().map(|piece| piece.length).sum();
        // At least two at a time.
        let part_bytes = (bytes / 2).clamp(BLOCK_BYTES, PART_BYTES);
        for (object, range) in ranges_of(pieces, part_bytes) {
            let range = match reading {
                Reading::Plain => range,
                Reading::Kept(_) => reading.around(object, range.start, in_blocks(object, &range)),
            };
            match self.shared.memory.announce_ahead(object.name(), range) {
                Announced::Held => {}
                Announced::NoRoom => return,
                Announced::Fetch(part) => self.fetch_by_thread(object, part, matches!(reading, Reading::Kept(_))),
            }
        }
    }

    fn fetch_by_thread(&self, object: &Arc<PublishedObject>, range: Range<u64>, is_kept: bool) {
        let (shared, object, begin) = (Arc::clone(&self.shared), Arc::clone(object), range.start);
        let name = object.name();
        // Whoever needs it fetches what failed, and learns why.
        let work = move || drop(shared.fetch_announced(&object, &range, is_kept));
        if threads::spawn(work).is_err() {
            self.shared.memory.arrive(name, begin, None);
        }
    }

    /// Drops what is kept of pieces, so that they are next read from the bucket.
    pub(in crate::devices::bucket) fn forget(&self, pieces: &[Piece]) {
        for (object, range) in ranges_of(pieces, PART_BYTES) {
            let range = in_blocks(object, &range);
            self.shared.memory.forget(object.name(), &range);
            if let Some(disk) = self.shared.disk.get() {
                blocks_in(object, &range).for_each(|(block, _)| disk.forget(object.name(), block));
            }
        }
    }

    /// Waits until nothing is read ahead any more.
    #[cfg(test)]
    pub(in crate::devices::bucket) fn settle(&self) {
        self.shared.memory.settle();
    }
}

#[cfg(test)]
mod tests;
