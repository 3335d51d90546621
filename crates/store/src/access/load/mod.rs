//! Loading: everything at or below a key, in disk order, at the speed of the devices.
//!
//! A planner walks the index and plans which ranges of which segments to read; workers read them, verify every record
//! and parse it in place; units of large objects are read in parts by their descriptors. Bytes between wanted records
//! are read and ignored.
//!
//! The consuming thread reads too when no piece is ready: what a thread has read and verified is best processed on the
//! same thread, so there is exactly one thread per processor.
//!
//! **Order.** Keys that are adjacent in the index are mostly adjacent on disk too (they were written together, or
//! compacted): such runs are read as they come. Others are gathered in a window of [`WINDOW_RECORDS`] and read in disk
//! order; if there are more, another pass over the index handles the rest. So memory is bounded whatever the size of
//! the store, and a store in random order is read in ascending passes.
//!
//! **State.** A load shows one consistent state: a pin keeps it until the load is dropped. A damaged object does not
//! end the load: it is an error among the pieces. So is one that a writer has moved or freed, for a user who may not
//! pin.
//!
//! **Names.** A file with several names is one object with a number ([`LoadedObject::shared`]) and without a key; each
//! name is an object without content and with that number. So content is returned once, and a group contains the
//! content of every name in it.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;

pub(crate) use self::large::part_end;
use self::large::{Large, PART_BYTES, Unread};
use self::plan::{ATTRIBUTES_CHANGED, Planned, Scope, plan_all};
use super::gather::{Span, Wanted};
use crate::Store;
use crate::devices::threads;
use crate::engine::Engine;
use crate::engine::pins::Loose;
use crate::engine::records::{decode_attributes, decompress};
use crate::error::{Error, ErrorKind, Result};
use crate::format::attributes::Attributes;
use crate::format::descriptor::Descriptor;
use crate::format::entry::Kind;
use crate::format::ids::ObjectNumber;
use crate::format::key::Key;
use crate::format::record::{Head, NewRecord, Record};
use crate::index::Snapshot;
use crate::index::paths::Ways;
use crate::layout::granulo::Alignment;
use crate::locks::lock;

mod large;
mod plan;

/// Most planned ranges in the queue.
const PLANNED: usize = 64;
/// Most workers: memory grows with them.
const MOST_THREADS: usize = 8;
/// Errors of records that are given the name of their object.
const MOST_NAMED: u32 = 20;

/// A range of bytes of a piece: in what was read, or in what was derived from it.
#[derive(Debug, Clone)]
struct BufferRange {
    is_aside: bool,
    bytes: Range<usize>,
}

/// An object of a piece.
#[derive(Debug)]
struct PlacedObject {
    head: BufferRange,
    content: BufferRange,
    /// Where in the object this content begins.
    offset: u64,
    content_bytes: u64,
}

/// Buffers of dropped pieces.
type Spare = Arc<Mutex<Vec<Vec<u8>>>>;

/// A piece of a load: some objects, or a part of a large one. Its memory is reused when it is dropped.
#[derive(Debug)]
pub struct Loaded {
    read: Vec<u8>,
    aside: Vec<u8>,
    objects: Vec<PlacedObject>,
    spare: Spare,
    names: Arc<LazyPaths>,
}

/// The paths of directories that contain loaded names; computed on first use.
#[derive(Debug)]
struct LazyPaths {
    snapshot: Snapshot,
    ways: OnceLock<Ways>,
    /// Errors that were given a name.
    named: AtomicU32,
}

impl LazyPaths {
    fn path(&self, directory: ObjectNumber, name: &[u8]) -> Result<Key> {
        let ways = match self.ways.get() {
            Some(ways) => ways,
            None => {
                let ways = Ways::of(&self.snapshot)?;
                self.ways.get_or_init(|| ways)
            }
        };
        let lost = || Error::new(ErrorKind::Corrupt, "load", "the index has no path for a record that it refers to");
        ways.path(directory, name).ok_or_else(lost)
    }

    /// The error of a record, with the name of its object. That is searched for in the whole index, so only for the
    /// first errors.
    fn of_record(&self, error: Error, wanted: &Wanted) -> Error {
        if self.named.fetch_add(1, Ordering::Relaxed) >= MOST_NAMED {
            return error;
        }
        match self.name_at(wanted) {
            Some(name) => error.affecting(name),
            None => error,
        }
    }

    /// The head of a record with the attributes that were changed since.
    fn changed_head(&self, engine: &Engine, head: &Head<'_>) -> Result<Vec<u8>> {
        let Some(entry) = self.snapshot.look_up(&head.object_key())? else {
            return Err(Error::new(ErrorKind::Corrupt, "load", "the index does not have a record that it refers to"));
        };
        let (mut stored, mut bytes) = (Vec::new(), Vec::new());
        let newer = engine.changed_attributes(&self.snapshot, &head.object_key(), &entry)?;
        // Holes belong to the content.
        let holes = decode_attributes(head.attributes)?.holes;
        Attributes { holes, ..newer }.encode(entry.ctime, &mut stored)?;
        let Head { kind, id, number, parent, name, .. } = *head;
        let changed = NewRecord { id, number, parent, name, attributes: &stored, ..NewRecord::of(kind) };
        changed.encode_with(0, Alignment::None, &mut bytes)?;
        Ok(bytes)
    }

    /// `None` if the index cannot be read to there.
    fn name_at(&self, wanted: &Wanted) -> Option<String> {
        let mut scan = self.snapshot.scan_from(&[]).ok()?;
        while let Some((key, entry)) = scan.next_entry().ok()? {
            if (entry.id, entry.location) == (wanted.id, wanted.location) {
                return Ways::of(&self.snapshot).unwrap_or_default().name_of(key);
            }
        }
        None
    }

    /// The error of a large object, with its name.
    fn of_large(&self, error: Error, large: &Large) -> Error {
        match Head::parse(&large.head) {
            Some(Head { name: Some(name), parent, .. }) => match self.path(parent, name) {
                Ok(path) => error.affecting(path),
                Err(_) => error,
            },
            Some(head) => error.affecting(format!("shared file {}", head.number)),
            None => error,
        }
    }
}

/// A verified object of a piece.
#[derive(Debug, Clone, Copy)]
pub struct LoadedObject<'p> {
    names: &'p LazyPaths,
    head: Head<'p>,
    content: &'p [u8],
    offset: u64,
    content_bytes: u64,
}

impl Loaded {
    fn new(work: &SharedWork) -> Loaded {
        let read = lock(&work.spare).pop().unwrap_or_default();
        let (spare, names) = (Arc::clone(&work.spare), Arc::clone(&work.names));
        Loaded { read, aside: Vec::new(), objects: Vec::new(), spare, names }
    }

    /// Its objects, in disk order.
    pub fn objects(&self) -> impl Iterator<Item = LoadedObject<'_>> {
        self.objects.iter().filter_map(|placed| {
            let head = Head::parse(self.bytes(&placed.head))?;
            Some(LoadedObject {
                names: &self.names,
                head,
                content: self.bytes(&placed.content),
                offset: placed.offset,
                content_bytes: placed.content_bytes,
            })
        })
    }

    /// Bytes of content in it.
    pub fn content_bytes(&self) -> u64 {
        self.objects.iter().map(|placed| placed.content.bytes.len() as u64).sum()
    }

    fn bytes(&self, place: &BufferRange) -> &[u8] {
        let from = if place.is_aside { &self.aside } else { &self.read };
        from.get(place.bytes.clone()).unwrap_or_default()
    }

    /// Adds a record that lies at `start` of what was read, or else is copied to separate memory.
    fn add(&mut self, start: Option<usize>, head_bytes: usize, stored: &[u8], content: Option<Vec<u8>>) {
        let head = match start {
            Some(start) => BufferRange { is_aside: false, bytes: start..start + head_bytes },
            None => self.put_aside(&stored[..head_bytes]),
        };
        let content = match (content, start) {
            (Some(content), _) => self.put_aside(&content),
            (None, Some(start)) => BufferRange { is_aside: false, bytes: start + head_bytes..start + stored.len() },
            (None, None) => self.put_aside(&stored[head_bytes..]),
        };
        let content_bytes = content.bytes.len() as u64;
        self.objects.push(PlacedObject { head, content, offset: 0, content_bytes });
    }

    /// Replaces the head of the object that was added last.
    fn set_head(&mut self, head: &[u8]) {
        let head = self.put_aside(head);
        if let Some(last) = self.objects.last_mut() {
            last.head = head;
        }
    }

    fn put_aside(&mut self, bytes: &[u8]) -> BufferRange {
        let start = self.aside.len();
        self.aside.extend_from_slice(bytes);
        BufferRange { is_aside: true, bytes: start..self.aside.len() }
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        let mut spare = lock(&self.spare);
        // A buffer that a giant record enlarged is not kept.
        if self.read.capacity() as u64 <= 2 * PART_BYTES && spare.len() < 2 * MOST_THREADS {
            self.read.clear();
            spare.push(std::mem::take(&mut self.read));
        }
    }
}

impl<'p> LoadedObject<'p> {
    /// Its key; `None` for a file with several names, whose names are objects of their own.
    ///
    /// # Errors
    /// Errors of reading the index: the first request for a key computes the paths of the directories.
    pub fn key(&self) -> Result<Option<Key>> {
        self.head.name.map(|name| self.names.path(self.head.parent, name)).transpose()
    }

    /// Its kind. [`Kind::Link`] is a name of a file with several.
    pub fn kind(&self) -> Kind {
        self.head.kind
    }

    /// The number of a file with several names: of the file itself, and of each name.
    pub fn shared(&self) -> Option<ObjectNumber> {
        match self.head.kind {
            Kind::Link => Some(self.head.number),
            _ => self.head.name.is_none().then_some(self.head.number),
        }
    }

    /// Its attributes.
    ///
    /// # Errors
    /// [`ErrorKind::NewerVersion`] if a newer granulo wrote something that must not be ignored.
    pub fn attributes(&self) -> Result<Attributes> {
        decode_attributes(self.head.attributes)
    }

    /// The content in this piece: all, or a part of a large object. For a sparse file, the concatenated runs of data;
    /// for a symlink, the target; for a name, nothing.
    pub fn content(&self) -> &'p [u8] {
        self.content
    }

    /// Offset of this part in its content, in bytes.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Length of its whole content, all parts together, in bytes.
    pub fn content_bytes(&self) -> u64 {
        self.content_bytes
    }
}

/// A load in progress: an iterator over pieces, read and verified by several threads. See [`Store::load`].
#[derive(Debug)]
pub struct Load {
    pieces: Option<Receiver<Result<Loaded>>>,
    threads: Vec<JoinHandle<()>>,
    /// Reads on this thread; `None` when no plan is left.
    helper: Option<Helper>,
    /// Pieces that this thread has read and not yet returned.
    own: VecDeque<Result<Loaded>>,
}

/// State of a reading thread.
#[derive(Debug, Clone)]
struct Helper {
    store: Store,
    work: Arc<SharedWork>,
    /// The pin is released when the last thread has ended.
    _scope: Arc<Scope>,
}

impl Iterator for Load {
    type Item = Result<Loaded>;

    fn next(&mut self) -> Option<Result<Loaded>> {
        loop {
            if let Some(piece) = self.own.pop_front() {
                return Some(piece);
            }
            let pieces = self.pieces.as_ref()?;
            let given = match &self.helper {
                Some(_) => pieces.try_recv(),
                None => pieces.recv().map_err(|_| TryRecvError::Disconnected),
            };
            match given {
                Ok(piece) => return Some(piece),
                Err(TryRecvError::Empty) => self.help(),
                Err(TryRecvError::Disconnected) if self.helper.is_some() => self.help(),
                Err(TryRecvError::Disconnected) => {
                    self.pieces = None;
                    let died = self.threads.drain(..).map(JoinHandle::join).filter(std::result::Result::is_err).count();
                    // The pieces of the dead thread are missing.
                    return (died > 0).then(|| Err(Error::new(ErrorKind::Io, "load", "a thread ended unexpectedly")));
                }
            }
        }
    }
}

impl Load {
    /// Reads the next planned range.
    fn help(&mut self) {
        let own = RefCell::new(&mut self.own);
        let give = |piece| {
            own.borrow_mut().push_back(piece);
            true
        };
        let is_left =
            self.helper.as_ref().is_some_and(|helper| helper.work.step(helper.store.engine(), &give) == ReadStep::Done);
        if !is_left {
            self.helper = None;
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        // A thread that waits for room, here or in the queue of plans, sees that nobody wants more.
        (self.pieces, self.helper) = (None, None);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Result of a reading step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReadStep {
    Done,
    /// Nothing was left, or nobody wants more.
    Over,
}

impl ReadStep {
    fn of(goes_on: bool) -> ReadStep {
        if goes_on { ReadStep::Done } else { ReadStep::Over }
    }
}

/// State that workers share.
#[derive(Debug)]
struct SharedWork {
    plans: Mutex<Receiver<Result<Planned>>>,
    large: Mutex<VecDeque<Unread>>,
    /// Nobody wants more.
    is_over: AtomicBool,
    spare: Spare,
    names: Arc<LazyPaths>,
    loose: Loose,
}

impl SharedWork {
    fn new(scope: &Scope, plans: Receiver<Result<Planned>>) -> SharedWork {
        SharedWork {
            plans: Mutex::new(plans),
            large: Mutex::default(),
            is_over: AtomicBool::new(false),
            spare: Spare::default(),
            names: Arc::new(LazyPaths {
                snapshot: scope.snapshot.clone(),
                ways: OnceLock::new(),
                named: AtomicU32::new(0),
            }),
            loose: scope.pin.loose(),
        }
    }
}

impl Store {
    /// Loads all objects at or below a key (the root loads everything): pieces in approximate disk order, read ahead
    /// and verified.
    ///
    /// ```
    /// use granulo_store::{Attributes, Durability, Key, Kind, Plan, Store, Time};
    ///
    /// # let place = tempfile::tempdir()?;
    /// let store = Store::create(&place.path().join("store"), &Plan::default())?;
    /// let attributes = Attributes::of_file(Time { seconds: 0, nanoseconds: 0 });
    /// let mut batch = store.batch(Durability::Batch);
    /// for n in 0..100 {
    ///     batch.put(&Key::parse(format!("samples/{n}"))?, &attributes, b"sample")?;
    /// }
    /// batch.commit()?;
    /// let (mut objects, mut bytes) = (0, 0);
    /// for piece in store.load(&Key::parse("samples")?)? {
    ///     for object in piece?.objects().filter(|object| object.kind() == Kind::File) {
    ///         objects += 1;
    ///         bytes += object.content().len();
    ///     }
    /// }
    /// assert_eq!((objects, bytes), (100, 600));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is no such key; errors of reading the index. Damaged objects are errors among
    /// the pieces, and so are those that a writer has moved or freed ([`ErrorKind::Busy`]), if this user may not write
    /// to the index and so cannot keep what it reads.
    pub fn load(&self, group: &Key) -> Result<Load> {
        // The consuming thread is one more.
        self.load_by(group, default_threads().saturating_sub(1).max(1))
    }

    /// As [`load`](Self::load), with `threads` threads besides the consuming one.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub(crate) fn load_by(&self, group: &Key, threads: usize) -> Result<Load> {
        let scope = self.engine().scope(group)?;
        let (plan, plans) = sync_channel(PLANNED);
        let (give, pieces) = sync_channel(threads + 1);
        let work = Arc::new(SharedWork::new(&scope, plans));
        let mut handles = Vec::new();
        let scope = Arc::new(scope);
        let planned = Arc::clone(&scope);
        handles.push(threads::spawn(move || plan_all(&planned, &plan, &AtomicBool::new(false)))?);
        let helper = Helper { store: self.clone(), work, _scope: scope };
        for _ in 0..threads {
            let (helper, give) = (helper.clone(), give.clone());
            let worker =
                threads::spawn(move || helper.work.run(helper.store.engine(), &|piece| give.send(piece).is_ok()));
            match worker {
                Ok(worker) => handles.push(worker),
                // Fewer threads suffice, and so does the consuming one alone.
                Err(_) => break,
            }
        }
        Ok(Load { pieces: Some(pieces), threads: handles, helper: Some(helper), own: VecDeque::new() })
    }

    /// As [`load`](Self::load), but calls `each` from several threads concurrently (0: as many as there are
    /// processors); it returns whether to continue.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_with(
        &self,
        group: &Key,
        threads: usize,
        each: impl Fn(Result<LoadedObject<'_>>) -> bool + Sync,
    ) -> Result<()> {
        let scope = self.engine().scope(group)?;
        let count = if threads == 0 { default_threads() } else { threads.min(MOST_THREADS) };
        let (plan, plans) = sync_channel(PLANNED);
        let work = SharedWork::new(&scope, plans);
        let take = |piece: Result<Loaded>| match piece {
            Ok(piece) => piece.objects().all(|object| each(Ok(object))),
            Err(error) => each(Err(error)),
        };
        std::thread::scope(|threads_of| {
            let (scope, is_over) = (&scope, &work.is_over);
            let planner = threads::spawn_within(threads_of, move || plan_all(scope, &plan, is_over)).map(drop);
            if planner.is_ok() {
                threads::share(count, || work.run(self.engine(), &take));
            }
            // A planner that waits for room gets it, and sees that nobody wants more.
            work.is_over.store(true, Ordering::Relaxed);
            while lock(&work.plans).recv().is_ok() {}
            planner
        })
    }
}

fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from).min(MOST_THREADS)
}

impl SharedWork {
    /// Reads planned ranges until none is left or nobody wants more.
    fn run(&self, engine: &Engine, give: &dyn Fn(Result<Loaded>) -> bool) {
        while self.step(engine, give) == ReadStep::Done {}
    }

    /// Reads the next planned range.
    fn step(&self, engine: &Engine, give: &dyn Fn(Result<Loaded>) -> bool) -> ReadStep {
        if let Some((large, range)) = self.next_part(engine) {
            return ReadStep::of(give(self.part(engine, &large, range)));
        }
        let planned = lock(&self.plans).recv();
        ReadStep::of(match planned {
            Ok(Ok(planned)) => self.read_planned(engine, &planned, give),
            Ok(Err(error)) => give(Err(error)),
            Err(_) => !lock(&self.large).is_empty(),
        })
    }

    /// Reads a planned range and passes its records on as one piece. Large objects among them are queued: their content
    /// follows in parts. Returns whether more is wanted.
    fn read_planned(&self, engine: &Engine, planned: &Planned, give: &dyn Fn(Result<Loaded>) -> bool) -> bool {
        let mut piece = Loaded::new(self);
        let mut read = std::mem::take(&mut piece.read);
        let begin = engine.read_span(&planned.span, planned.turn, &mut read);
        let mut other = Vec::new();
        for wanted in &planned.wanted {
            other.clear();
            let placed = self.place_record(engine, (wanted, &planned.span), (&read, begin), &mut other, &mut piece);
            if let Err(error) = placed
                && !give(Err(self.explained(engine, error, |error| self.names.of_record(error, wanted))))
            {
                return false;
            }
        }
        piece.read = read;
        piece.objects.is_empty() || give(Ok(piece))
    }

    /// The error of an object: that it was freed, or else `named`.
    fn explained(&self, engine: &Engine, error: Error, named: impl FnOnce(Error) -> Error) -> Error {
        let error = engine.or_freed(self.loose, error);
        if error.kind() == ErrorKind::Busy { error } else { named(error) }
    }

    /// Adds a record to a piece, or queues a large object. `read` has the span from `begin` on; a record that is
    /// damaged there is read from another copy into `other`.
    fn place_record(
        &self,
        engine: &Engine,
        (wanted, span): (&Wanted, &Span),
        (read, begin): (&[u8], usize),
        other: &mut Vec<u8>,
        piece: &mut Loaded,
    ) -> Result<()> {
        let record = engine.wanted_record(wanted, span, &read[begin..], other)?;
        let lengths = record.head.lengths;
        let changed_head = match wanted.tag {
            ATTRIBUTES_CHANGED => Some(self.names.changed_head(engine, &record.head)?),
            _ => None,
        };
        let content = content_of(engine, wanted, &record);
        let stored_bytes = lengths.head_bytes() + lengths.content;
        let start = begin + (wanted.location.offset - span.bytes.start) as usize;
        let (bytes, start) = match other.is_empty() {
            true => (&read[start..start + stored_bytes], Some(start)),
            false => (&other[..stored_bytes], None),
        };
        match content? {
            ContentSource::Large(descriptor) => {
                let head = changed_head.unwrap_or_else(|| bytes[..lengths.head_bytes()].to_vec());
                let large = Arc::new(Large { head, descriptor, has_failed: AtomicBool::new(false) });
                lock(&self.large).push_back(Unread { large, at: 0, is_announced: false });
            }
            source => {
                let content = match source {
                    ContentSource::Decompressed(content) => Some(content),
                    _ => None,
                };
                piece.add(start, lengths.head_bytes(), bytes, content);
                changed_head.iter().for_each(|head| piece.set_head(head));
            }
        }
        Ok(())
    }
}

/// Where the content of a record is.
pub(super) enum ContentSource {
    InPlace,
    Decompressed(Vec<u8>),
    /// In units, described by this.
    Large(Descriptor),
}

/// Finds the content of a verified record. Only the frame states the length of compressed content; before memory is
/// allocated, it is checked against the largest object that is a record, which never changes in a store.
///
/// # Errors
/// [`ErrorKind::Corrupt`] for an invalid descriptor or frame; the caller adds the name of the object.
pub(super) fn content_of(engine: &Engine, wanted: &Wanted, record: &Record<'_>) -> Result<ContentSource> {
    if record.head.kind == Kind::Large {
        return engine.decode_descriptor(wanted.location, record.content).map(ContentSource::Large);
    }
    if !record.head.is_zstd {
        return Ok(ContentSource::InPlace);
    }
    let wrong =
        || Error::new(ErrorKind::Corrupt, "decompress", "the frame does not state its size, or an impossible one");
    let size_bytes = zstd::zstd_safe::get_frame_content_size(record.content).ok().flatten();
    let largest_bytes = engine.geometry().largest_record_bytes();
    let size_bytes = size_bytes.filter(|&size| size <= largest_bytes).ok_or_else(wrong)?;
    decompress(record.content, size_bytes).map(ContentSource::Decompressed)
}
