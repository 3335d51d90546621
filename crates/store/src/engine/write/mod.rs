//! Batches: objects are encoded, hashed and compressed by the caller's thread, and go to the log together.
//!
//! Records wait in memory until a piece of 8 MiB is full, counting 256 bytes more per record, or the batch ends; stripe
//! units of large objects are written immediately. Committing a piece takes the writer's lock: it gets its ids, is
//! appended, and changes the index atomically. A piece creates the missing parent directories of its objects.

mod admission;
mod committer;
pub(crate) mod names;
mod piece;

use std::collections::BTreeSet;
use std::io::Read;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use self::admission::{has_entries, not_empty};
pub use self::committer::Existing;
use self::committer::{Committer, Piece, RecordSubject, SeenEntry, Waiting, abandon};
use super::near::Near;
use crate::devices::extents::{LargeWriter, Touched, WrittenObject};
use crate::engine::Engine;
use crate::engine::content::{compressed, entry_of};
use crate::error::{Error, ErrorKind, Result};
use crate::format::attributes::Attributes;
use crate::format::descriptor::Descriptor;
use crate::format::entry::{Entry, Kind, Time};
use crate::format::ids::ObjectNumber;
use crate::format::index_key::entry_key;
use crate::format::key::{Key, goes_with, is_numbered, is_within, shared_key, shared_number, split};
use crate::format::record::NewRecord;
use crate::layout::granulo::Alignment;
use crate::{Durability, Store};

/// Memory of a batch's records that are committed together.
const PIECE_BYTES: usize = 8 << 20;
/// Memory of a waiting record besides its bytes: path, entry, slots in tables.
const WAITING_BYTES: usize = 256;
/// Bytes read from a stream per call.
const READ_BYTES: usize = 1 << 20;

/// Records that go to the log together; see [`Store::batch`]. Dropping it discards what was not committed.
#[derive(Debug)]
#[must_use = "a batch that is not committed is discarded"]
pub struct Batch<'s> {
    store: &'s Store,
    durability: Durability,
    /// That of the store when the batch began.
    alignment: Alignment,
    records: Vec<u8>,
    waiting: Vec<Waiting>,
    /// The highest key of waiting records.
    highest_key: Option<Arc<[u8]>>,
    /// A waiting record has a key that begins at the number of a directory.
    has_numbered: bool,
    /// Keys of waiting records; kept from the first removal on that searches them.
    keys: Option<BTreeSet<Arc<[u8]>>>,
    /// The tree whose removal is waiting: what was committed of it before is gone.
    removed_tree: Option<Vec<u8>>,
    /// Waiting shared files without a waiting name.
    nameless: BTreeSet<ObjectNumber>,
    attributes: Vec<u8>,
    compressed: Vec<u8>,
    /// Extent files with units of waiting records.
    touched: Touched,
    near: Near,
    /// Commits pieces while the batch continues, from the second on.
    committer: Option<Committer>,
    /// Memory of the last committed piece.
    spare: (Vec<u8>, Vec<Waiting>),
    /// When waiting records are written, once that was requested.
    time: Option<Time>,
    /// Why a piece could not be committed: the batch is never whole then.
    failed: Option<ErrorKind>,
}

impl<'s> Batch<'s> {
    pub(crate) fn new(store: &'s Store, durability: Durability) -> Batch<'s> {
        Batch {
            store,
            durability,
            alignment: store.engine().geometry().alignment,
            records: Vec::new(),
            waiting: Vec::new(),
            highest_key: None,
            has_numbered: false,
            keys: None,
            removed_tree: None,
            nameless: BTreeSet::new(),
            attributes: Vec::new(),
            compressed: Vec::new(),
            touched: Touched::default(),
            near: Near::default(),
            committer: None,
            spare: Default::default(),
            time: None,
            failed: None,
        }
    }

    /// Reuses memory returned by another batch, grown for records of `bytes`. If it grew on demand, it would be copied
    /// repeatedly; if every batch of many threads allocated it, most of it would stay with their allocators.
    pub(crate) fn reuse(&mut self, memory: Vec<u8>, bytes: usize) {
        self.records = memory;
        self.records.reserve_exact(bytes.min(PIECE_BYTES));
    }

    /// As [`commit`](Self::commit); returns its memory.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub(crate) fn commit_for_memory(mut self) -> Result<Vec<u8>> {
        self.end()?;
        Ok(std::mem::take(&mut self.records))
    }

    fn engine(&self) -> &'s Engine {
        self.store.engine()
    }

    /// Puts a file with this content: if the attributes have holes, the runs of data, one after the other.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] for attributes that cannot be stored, [`ErrorKind::Exists`] if a directory has the key, or
    /// a file the key of an ancestor; any error of writing.
    pub fn put(&mut self, key: &Key, attributes: &Attributes, content: &[u8]) -> Result<()> {
        self.refuse_root(key)?;
        let stored_bytes = content.len() as u64;
        let key = Arc::from(key.stored());
        if stored_bytes <= self.engine().geometry().largest_record_bytes() {
            let size_bytes = size_of(attributes, stored_bytes)?;
            return self.add(key, Kind::File, attributes, size_bytes, content, None);
        }
        let write = |batch: &Self| -> Result<WrittenObject> {
            let mut writer = batch.begin_large(&key, Some(stored_bytes))?;
            writer.write(content)?;
            writer.finish()
        };
        let mut written = write(self);
        while let Err(error) = &written
            && self.engine().goes_on_without(error)?
        {
            written = write(self);
        }
        self.end_large(key, attributes, written?).map(|_| ())
    }

    /// Puts a file from a stream, as [`put`](Self::put); `size_bytes` is a hint. Returns the bytes read.
    ///
    /// # Errors
    /// As [`put`](Self::put), and any error of reading.
    pub fn put_from(
        &mut self,
        key: &Key,
        attributes: &Attributes,
        stream: &mut dyn Read,
        size_bytes: Option<u64>,
    ) -> Result<u64> {
        self.refuse_root(key)?;
        self.file(key.stored().into(), attributes, stream, size_bytes)
    }

    /// Puts a directory, or changes its attributes.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn directory(&mut self, key: &Key, attributes: &Attributes) -> Result<()> {
        self.add(key.stored().into(), Kind::Directory, attributes, 0, &[], None)
    }

    /// Puts a directory with this number: its own record is lost.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub(crate) fn adopt(&mut self, key: &Key, attributes: &Attributes, number: ObjectNumber) -> Result<()> {
        self.make_room(attributes.most_bytes())?;
        let (now, mut stored) = (self.now(), Vec::new());
        attributes.encode(now, &mut stored)?;
        let entry = Entry { number, ..entry_of(Kind::Directory, attributes, now) };
        self.encode(key.stored().into(), entry, &stored, false, &[], None)
    }

    /// Puts a symlink.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn symlink(&mut self, key: &Key, attributes: &Attributes, target: &[u8]) -> Result<()> {
        self.refuse_root(key)?;
        self.add(key.stored().into(), Kind::Symlink, attributes, target.len() as u64, target, None)
    }

    /// Puts a fifo, socket or device; the mode says which.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn special(&mut self, key: &Key, attributes: &Attributes, major: u32, minor: u32) -> Result<()> {
        self.refuse_root(key)?;
        let content = [major.to_le_bytes(), minor.to_le_bytes()].concat();
        self.add(key.stored().into(), Kind::Special, attributes, 0, &content, None)
    }

    /// Puts a file that will have several names; returns its number for [`link`](Self::link), now or in a later batch.
    /// If that follows directly, both are applied or neither. Compaction frees files that a crash leaves nameless.
    ///
    /// # Errors
    /// As [`put_from`](Self::put_from).
    pub fn shared(
        &mut self,
        attributes: &Attributes,
        stream: &mut dyn Read,
        size_bytes: Option<u64>,
    ) -> Result<ObjectNumber> {
        let number = ObjectNumber(self.engine().highest_id.fetch_add(1, Ordering::Relaxed) + 1);
        // A file without a name waits for it, whatever the durability.
        self.held_back(|batch| batch.file(shared_key(number).into(), attributes, stream, size_bytes))?;
        self.nameless.insert(number);
        Ok(number)
    }

    /// Adds records without committing any of them.
    fn held_back<T>(&mut self, add: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let durability = std::mem::replace(&mut self.durability, Durability::None);
        let added = add(self);
        self.durability = durability;
        added
    }

    /// Adds a name to a shared file.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if the shared file does not exist on commit; as [`put`](Self::put).
    pub fn link(&mut self, key: &Key, shared: ObjectNumber) -> Result<()> {
        self.refuse_root(key)?;
        // The first name of a file is in the piece of the file.
        if !self.nameless.remove(&shared) {
            self.make_room(0)?;
        }
        self.encode(key.stored().into(), Entry::link(shared), &[], false, &[], None)
    }

    /// Removes a file, name or empty directory, on commit; returns whether it existed. First commits what waits if it
    /// is a directory, or if what waits may have the name or one below it.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] for the root and for a directory that is not empty, also on commit if another batch has put
    /// something there; any error of reading the index and of writing.
    pub fn remove(&mut self, key: &Key) -> Result<bool> {
        self.refuse_root(key)?;
        // A file that waits for its name stays in its piece, unless what waits must be committed below.
        if self.nameless.is_empty() {
            self.make_room(0)?;
        }
        self.settle()?;
        let is_waiting = self.may_be_waiting(key.stored());
        if !is_waiting && self.removed_tree.as_ref().is_some_and(|top| goes_with(key.stored(), top)) {
            return Ok(false);
        }
        let mut seen = self.see(key)?;
        let entry_of = |seen: Option<SeenEntry>| seen.and_then(|seen| seen.entry);
        if is_waiting || entry_of(seen).is_some_and(|entry| entry.kind == Kind::Directory) {
            self.commit_piece()?;
            seen = self.see(key)?;
        }
        let (Some(seen), Some(found)) = (seen, entry_of(seen)) else { return Ok(false) };
        if found.kind == Kind::Directory && has_entries(&self.engine().snapshot(), found.number)? {
            return Err(not_empty(key.stored()));
        }
        self.add_removal(key, seen)?;
        Ok(true)
    }

    /// Removes one of several entries of a directory, which keeps its content.
    ///
    /// # Errors
    /// Any error of reading the index.
    pub(crate) fn drop_entry(&mut self, directory: ObjectNumber, name: &[u8]) -> Result<()> {
        self.make_room(0)?;
        let engine = self.engine();
        let (version, entry) = self.near.look_up(engine, &entry_key(directory, name))?;
        // The path of the directory does not matter, and there may be none.
        let key = Key::root().child(name)?;
        self.add_removal(&key, SeenEntry { version, directory, entry, has_other: true })
    }

    fn add_removal(&mut self, key: &Key, seen: SeenEntry) -> Result<()> {
        let start = self.records.len();
        let record = NewRecord { parent: seen.directory, name: key.name(), ..NewRecord::of(Kind::Removal) };
        record.encode(self.alignment, &mut self.records)?;
        self.wait(key.stored().into(), start, RecordSubject::Removal(Box::new(seen)))
    }

    /// The current entry for a key; `None` if its parent directory does not exist.
    fn see(&mut self, key: &Key) -> Result<Option<SeenEntry>> {
        let engine = self.store.engine();
        let Some((above, name)) = split(key.stored()) else { return Ok(None) };
        let Some(directory) = engine.directory(above)? else { return Ok(None) };
        let (version, entry) = self.near.look_up(engine, &entry_key(directory, name))?;
        Ok(Some(SeenEntry { version, directory, entry, has_other: false }))
    }

    /// Whether a waiting record has this key or is below it; it may if only one of them begins at the number of a
    /// directory.
    fn may_be_waiting(&mut self, key: &[u8]) -> bool {
        let has_path = self.highest_key.as_ref().is_some_and(|highest| highest.first() > Some(&0));
        if is_numbered(key) && (has_path || self.removed_tree.is_some()) || !is_numbered(key) && self.has_numbered {
            return true;
        }
        if self.highest_key.as_ref().is_none_or(|highest| key > &**highest) {
            return false;
        }
        let waiting = &self.waiting;
        let keys = self.keys.get_or_insert_with(|| waiting.iter().map(|waiting| Arc::clone(&waiting.key)).collect());
        // A key and everything below it are one range.
        let mut from = keys.range::<[u8], _>((Bound::Included(key), Bound::Unbounded));
        from.next().is_some_and(|first| is_within(first, key))
    }

    /// Removes an object and everything below it; returns whether it existed. The root stays, with its attributes.
    ///
    /// # Errors
    /// Any error of writing.
    pub fn remove_tree(&mut self, key: &Key) -> Result<bool> {
        self.commit_piece()?;
        let snapshot = self.engine().snapshot();
        let is_there = key.is_root() || snapshot.look_up_path(key.stored())?.is_some();
        if is_there {
            self.removed_tree = Some(key.stored().to_vec());
            // Its content is known on commit, and the record is encoded then.
            self.wait(key.stored().into(), 0, RecordSubject::TreeRemoval(Vec::new()))?;
        }
        Ok(is_there)
    }

    /// Ends the batch, with the requested durability.
    ///
    /// # Errors
    /// Any error of writing or syncing: the store is then read-only, unless a device was full. An earlier part of the
    /// batch could not be written, which another call reported: the rest of it is committed.
    pub fn commit(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        self.commit_piece()?;
        match self.durability {
            Durability::None => self.engine().flush_if_full()?,
            Durability::Batch | Durability::Each => self.engine().sync_all().map(|()| self.store.beat())?,
        }
        let cause = "an earlier part of it could not be written";
        self.failed.map_or(Ok(()), |kind| Err(Error::new(kind, "commit the batch", cause)))
    }

    fn refuse_root(&self, key: &Key) -> Result<()> {
        match key.is_root() {
            true => Err(Error::new(ErrorKind::Usage, "write to the store", "the root is a directory")),
            false => Ok(()),
        }
    }

    /// When waiting records are written: one time for all of them.
    fn now(&mut self) -> Time {
        let engine = self.engine();
        *self.time.get_or_insert_with(|| engine.now())
    }

    fn file(
        &mut self,
        key: Arc<[u8]>,
        attributes: &Attributes,
        stream: &mut dyn Read,
        size_bytes: Option<u64>,
    ) -> Result<u64> {
        let largest = self.engine().geometry().largest_record_bytes();
        let fail = |error| Error::new(ErrorKind::of(&error), "read the content", crate::error::os_message(&error));
        // One byte beyond the largest record shows whether there is more.
        let mut content = Vec::with_capacity(size_bytes.unwrap_or(0).min(largest) as usize + 1);
        stream.take(largest + 1).read_to_end(&mut content).map_err(fail)?;
        if content.len() as u64 <= largest {
            let stored = content.len() as u64;
            let size = size_of(attributes, stored)?;
            self.add(key, Kind::File, attributes, size, &content, None)?;
            return Ok(stored);
        }
        // What was read from the stream is gone: after a device failure, the next object is written without it.
        let goes_on = |error: Error| match self.engine().goes_on_without(&error) {
            Ok(_) => self.engine().advise_on_devices(error),
            Err(latched) => latched,
        };
        let mut writer = self.begin_large(&key, size_bytes)?;
        writer.write(&content).map_err(goes_on)?;
        content.clear();
        content.reserve(READ_BYTES);
        loop {
            content.clear();
            stream.take(READ_BYTES as u64).read_to_end(&mut content).map_err(fail)?;
            if content.is_empty() {
                break;
            }
            writer.write(&content).map_err(goes_on)?;
        }
        let written = writer.finish().map_err(goes_on)?;
        self.end_large(key, attributes, written)
    }

    fn begin_large(&self, key: &[u8], size_bytes: Option<u64>) -> Result<LargeWriter> {
        self.engine().writer().map(|_| ())?;
        Ok(self.engine().begin_large(key, size_bytes))
    }

    /// Ends a large object, and adds its descriptor; returns the stored bytes.
    fn end_large(&mut self, key: Arc<[u8]>, attributes: &Attributes, written: WrittenObject) -> Result<u64> {
        let WrittenObject { descriptor, touched } = written;
        let stored = descriptor.stored_bytes;
        let encoded = descriptor.encode();
        // Room first, so that the claims on its extent files stay with its record: in an earlier piece, they would end
        // with that one's sync, and the files would be taken for unused.
        let size = size_of(attributes, stored)
            .and_then(|size| self.make_room(encoded.len() + attributes.most_bytes()).map(|()| size))
            .inspect_err(|_| self.engine().abandon(&descriptor))?;
        self.touched.merge(touched);
        self.add(key, Kind::Large, attributes, size, &encoded, Some(Arc::new(descriptor)))?;
        Ok(stored)
    }

    fn add(
        &mut self,
        key: Arc<[u8]>,
        kind: Kind,
        attributes: &Attributes,
        size_bytes: u64,
        content: &[u8],
        descriptor: Option<Arc<Descriptor>>,
    ) -> Result<()> {
        self.make_room(content.len() + attributes.most_bytes())?;
        let now = self.now();
        let mut stored_attributes = std::mem::take(&mut self.attributes);
        stored_attributes.clear();
        let encoded = attributes.encode(now, &mut stored_attributes);
        if encoded.is_err() {
            descriptor.iter().for_each(|descriptor| self.engine().abandon(descriptor));
        }
        let outcome = encoded.and_then(|()| {
            let entry = Entry { size_bytes, ..entry_of(kind, attributes, now) };
            let compression = self.engine().geometry().compression;
            let mut frame = std::mem::take(&mut self.compressed);
            let shorter = (kind == Kind::File).then(|| compressed(content, compression, &mut frame)).flatten();
            let outcome = match shorter {
                Some(shorter) => self.encode(key, entry, &stored_attributes, true, shorter, descriptor),
                None => self.encode(key, entry, &stored_attributes, false, content, descriptor),
            };
            self.compressed = frame;
            outcome
        });
        self.attributes = stored_attributes;
        outcome
    }

    /// Begins another piece if a record with `bytes` besides its header would make this one too large.
    fn make_room(&mut self, bytes: usize) -> Result<()> {
        let waiting = self.records.len() + self.waiting.len() * WAITING_BYTES;
        match !self.records.is_empty() && waiting + bytes > PIECE_BYTES {
            true => self.hand_over(),
            false => Ok(()),
        }
    }

    fn encode(
        &mut self,
        key: Arc<[u8]>,
        entry: Entry,
        attributes: &[u8],
        is_zstd: bool,
        content: &[u8],
        descriptor: Option<Arc<Descriptor>>,
    ) -> Result<()> {
        let start = self.records.len();
        let name = recorded_name(&key);
        let record = NewRecord { is_zstd, name, attributes, content, ..NewRecord::of(entry.kind) };
        if let Err(error) = record.encode(self.alignment, &mut self.records) {
            descriptor.iter().for_each(|descriptor| self.engine().abandon(descriptor));
            return Err(error);
        }
        self.wait(key, start, RecordSubject::Put(Box::new(entry), descriptor))
    }

    fn wait(&mut self, key: Arc<[u8]>, start: usize, subject: RecordSubject) -> Result<()> {
        let record_bytes = self.records.len() - start;
        if let Some(keys) = &mut self.keys {
            keys.insert(Arc::clone(&key));
        }
        if self.highest_key.as_ref().is_none_or(|highest| key > *highest) {
            self.highest_key = Some(Arc::clone(&key));
        }
        self.has_numbered |= is_numbered(&key);
        self.waiting.push(Waiting { key, start, record_bytes, subject });
        if self.durability == Durability::Each {
            let failed = self.failed;
            let committed = self.commit_piece();
            // The caller is told of this piece alone.
            self.failed = failed;
            committed?;
            self.engine().sync_all()?;
        }
        Ok(())
    }

    /// Commits waiting records as one piece, after the one handed over.
    fn commit_piece(&mut self) -> Result<()> {
        self.settle()?;
        if self.waiting.is_empty() {
            return Ok(());
        }
        let mut piece = self.take_piece();
        let committed = piece.commit(self.store.engine());
        self.take_back(piece);
        self.remember(committed)
    }

    /// Notes that a piece could not be committed.
    pub(super) fn remember(&mut self, committed: Result<()>) -> Result<()> {
        committed.inspect_err(|error| self.failed = Some(error.kind()))
    }

    /// Takes waiting records; the batch begins another piece.
    fn take_piece(&mut self) -> Piece {
        // With a snapshot, changes would copy what it shares.
        self.near.leave();
        self.highest_key = None;
        self.has_numbered = false;
        self.keys = None;
        self.removed_tree = None;
        self.nameless.clear();
        let time = self.now();
        self.time = None;
        Piece {
            time,
            alignment: self.alignment,
            records: std::mem::take(&mut self.records),
            waiting: std::mem::take(&mut self.waiting),
            touched: std::mem::take(&mut self.touched),
        }
    }

    /// Reuses the memory of a committed piece.
    fn take_back(&mut self, piece: Piece) {
        (self.records, self.waiting) = (piece.records, piece.waiting);
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        self.end_committer();
        abandon(self.store.engine(), &self.waiting);
    }
}

/// Size of a file with `stored_bytes`.
///
/// # Errors
/// [`ErrorKind::Usage`] if they differ from the total of its runs of data.
fn size_of(attributes: &Attributes, stored_bytes: u64) -> Result<u64> {
    match &attributes.holes {
        None => Ok(stored_bytes),
        Some(holes) if holes.data_bytes() == stored_bytes => Ok(holes.size_bytes),
        Some(_) => Err(Error::new(
            ErrorKind::Usage,
            "write to the store",
            "the content does not have the length of the sparse file's data",
        )),
    }
}

/// The name in the record of a path: its last component, none for a shared object.
fn recorded_name(path: &[u8]) -> Option<&[u8]> {
    match shared_number(path) {
        None => Some(split(path).map_or(&[], |(_, name)| name)),
        Some(_) => None,
    }
}
