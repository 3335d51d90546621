//! Handles: an open file, read and written at any offset.
//!
//! Writes are kept in memory, where all handles of the object in this process see them immediately. They become the
//! object's content in the store on a commit: when requested, when a handle is closed, and automatically when they
//! reach [`MOST_PENDING_BYTES`]. As everywhere, reads return verified bytes only; a stripe unit is verified whole, so
//! the last one is kept for sequential readers.
//!
//! A handle belongs to the object, not to the name by which it was opened (see `engine::open_files`): it follows a
//! rename, and keeps the object when its last name is removed.

use std::ops::Range;
use std::sync::{Arc, Mutex, RwLockReadGuard, RwLockWriteGuard};

use super::load::part_end;
use super::read::{RangePiece, pieces};
use crate::engine::Engine;
use crate::engine::content::{Base, StoredContent};
use crate::engine::open_files::pending::Pending;
use crate::engine::open_files::{NamedBase, OpenFile};
use crate::error::{Error, ErrorKind, Result};
use crate::format::attributes::Attributes;
use crate::format::descriptor::Descriptor;
use crate::format::entry::{Entry, Kind};
use crate::format::ids::ObjectNumber;
use crate::format::index_key::{entry_key, object_key};
use crate::format::key::Key;
use crate::locks::{self, lock};
use crate::{Durability, Store};

/// Most memory for pending writes of an open file; above it, they are committed automatically.
pub(crate) const MOST_PENDING_BYTES: usize = 8 << 20;
/// Largest length of a file.
pub(crate) const LARGEST_BYTES: u64 = 1 << 62;

/// How an object is opened; see [`Store::open_object`].
#[derive(Debug, Clone, Default)]
pub struct HandleOptions {
    is_writing: bool,
    attributes: Option<Attributes>,
    is_new: bool,
    is_truncated: bool,
}

impl HandleOptions {
    /// Read an existing object.
    pub fn read() -> HandleOptions {
        HandleOptions::default()
    }

    /// Read and write an existing object.
    pub fn write() -> HandleOptions {
        HandleOptions { is_writing: true, ..HandleOptions::default() }
    }

    /// Create an empty file with these attributes if the name does not exist. Its directory must exist.
    pub fn create(self, attributes: Attributes) -> HandleOptions {
        HandleOptions { is_writing: true, attributes: Some(attributes), ..self }
    }

    /// As [`create`](Self::create), but fail if the name exists.
    pub fn create_new(self, attributes: Attributes) -> HandleOptions {
        HandleOptions { is_new: true, ..self.create(attributes) }
    }

    /// Discard the content.
    pub fn truncate(self) -> HandleOptions {
        HandleOptions { is_writing: true, is_truncated: true, ..self }
    }
}

/// Bytes that were read from the stored content.
#[derive(Debug, Default)]
struct ReadBuffer {
    base: Option<Arc<Base>>,
    range: Range<u64>,
    bytes: Vec<u8>,
}

/// An open file; see [`Store::open_object`]. Threads may share it.
///
/// Uncommitted writes are **in memory**: other processes, [`Store::get`] and everything else that reads by name do not
/// see them, and a crash loses them. Closing a handle commits. So does dropping it, but that cannot report an error, as
/// with [`std::io::BufWriter`]: call [`close`](Self::close) to learn of one.
///
/// If a batch replaces the content while an object is open, all its handles see the new content; pending writes are
/// overlaid on it.
///
/// An object that loses its last name while it is open lives on without one: reading and writing continue, and it is
/// removed when the last handle is closed or the process ends in any way. Only the extent files with its units are kept
/// for it.
///
/// The content of an object that is a record, thus up to the cutoff, stays in memory while it is open.
#[derive(Debug)]
pub struct Handle {
    store: Store,
    file: Arc<OpenFile>,
    is_writing: bool,
    in_hand: Mutex<ReadBuffer>,
}

/// What was pending in an open file at one moment; see [`Handle::save_pending`].
#[derive(Debug)]
pub struct SavedPending(Pending);

impl Store {
    /// Opens a file for reading and writing at any offset.
    ///
    /// ```
    /// use granulo_store::{Attributes, Durability, HandleOptions, Key, Plan, Store, Time};
    ///
    /// # let place = tempfile::tempdir()?;
    /// let store = Store::create(&place.path().join("store"), &Plan::default())?;
    /// let (key, attributes) = (Key::parse("file")?, Attributes::of_file(Time { seconds: 0, nanoseconds: 0 }));
    /// let handle = store.open_object(&key, &HandleOptions::write().create(attributes))?;
    /// handle.write_at(b"content", 0)?;
    /// handle.write_at(b"far", 10_000)?;
    /// handle.commit(Durability::Batch)?;
    ///
    /// let mut bytes = [1; 9];
    /// assert_eq!(handle.read_at(&mut bytes, 4)?, 9);
    /// assert_eq!(&bytes, b"ent\0\0\0\0\0\0");
    /// assert_eq!(store.get(&key)?.unwrap().len(), 10_003);
    /// handle.close()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound) if there is no such object and none is to be created, or no such directory;
    /// [`Exists`](ErrorKind::Exists) if it must be new and is not; [`Usage`](ErrorKind::Usage) if it is not a file;
    /// [`ReadOnly`](ErrorKind::ReadOnly) for writing in a store that is opened for reading; errors of reading the index
    /// and of writing.
    pub fn open_object(&self, key: &Key, options: &HandleOptions) -> Result<Handle> {
        let engine = self.engine();
        if options.is_writing {
            engine.writer().map(drop)?;
        }
        loop {
            let found = engine.open_file(|| engine.find_file(key))?;
            let file = match (found, &options.attributes) {
                (Some(_), _) if options.is_new => {
                    let cause = "an object with this name exists";
                    return Err(Error::new(ErrorKind::Exists, "open", cause).at(&key.to_path()));
                }
                (Some(file), _) => file,
                (None, Some(attributes)) => match self.make_file(key, attributes) {
                    // Another thread created it first.
                    Err(error) if error.kind() == ErrorKind::Exists && !options.is_new => continue,
                    Err(error) => return Err(error),
                    Ok(()) => match engine.open_file(|| engine.find_file(key))? {
                        Some(file) => file,
                        None => continue,
                    },
                },
                (None, None) => {
                    return Err(Error::new(ErrorKind::NotFound, "open", "no such object").at(&key.to_path()));
                }
            };
            let handle = self.handle_of(file, options.is_writing);
            if options.is_truncated {
                handle.set_len(0)?;
            }
            return Ok(handle);
        }
    }

    /// Creates a file without a name, empty and open for writing. It is removed when its handle is closed or the
    /// process ends, unless [`Handle::link`] names it.
    ///
    /// ```
    /// use granulo_store::{Attributes, Key, Plan, Store, Time};
    ///
    /// # let place = tempfile::tempdir()?;
    /// let store = Store::create(&place.path().join("store"), &Plan::default())?;
    /// let attributes = Attributes::of_file(Time { seconds: 0, nanoseconds: 0 });
    /// let handle = store.create_nameless(&attributes)?;
    /// handle.append(b"all of it, or nothing")?;
    /// handle.link(&Key::parse("whole")?)?;
    /// assert_eq!(store.get(&Key::parse("whole")?)?.unwrap(), b"all of it, or nothing");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Usage`](ErrorKind::Usage) for attributes that cannot be stored; [`ReadOnly`](ErrorKind::ReadOnly) in a store
    /// that is opened for reading.
    pub fn create_nameless(&self, attributes: &Attributes) -> Result<Handle> {
        self.engine().writer().map(drop)?;
        let attributes = Attributes { holes: None, ..attributes.clone() };
        attributes.encode(self.engine().now(), &mut Vec::new())?;
        Ok(self.handle_of(self.engine().open_nameless(attributes), true))
    }

    fn handle_of(&self, file: Arc<OpenFile>, is_writing: bool) -> Handle {
        Handle { store: self.clone(), file, is_writing, in_hand: Mutex::default() }
    }

    /// Creates an empty file at a free name.
    fn make_file(&self, key: &Key, attributes: &Attributes) -> Result<()> {
        let attributes = Attributes { holes: None, ..attributes.clone() };
        let mut batch = self.batch(Durability::None);
        let empty =
            Base { attributes: Attributes::default(), size_bytes: 0, content: StoredContent::Whole(Vec::new()) };
        batch.name_file(key, ObjectNumber::NONE, &attributes, &empty, &Default::default())?;
        batch.commit()
    }
}

impl Engine {
    /// The file that a path names, directly or as one of several names (symlinks are not followed): its key in the
    /// index, and its entry; `None` if nothing has the name. For [`open_file`](Self::open_file), which holds the lock
    /// of the writer, if there is one.
    fn find_file(&self, key: &Key) -> Result<Option<(Arc<[u8]>, Entry)>> {
        let refuse = |cause: &str| Err(Error::new(ErrorKind::Usage, "open", cause).at(&key.to_path()));
        let (Some(above), Some(name)) = (key.parent(), key.name().filter(|_| !key.is_root())) else {
            return refuse("it is a directory");
        };
        let Some(found) = self.find(key.stored())? else { return Ok(None) };
        match found.entry.kind {
            Kind::File | Kind::Large => {}
            Kind::Directory => return refuse("it is a directory"),
            _ => return refuse("it is not a regular file"),
        }
        if let Some(shared) = found.shared {
            return Ok(Some((object_key(shared)[..].into(), found.entry)));
        }
        // In a reader another process may have removed the directory since.
        let Some(directory) = self.directory(above.stored())? else { return Ok(None) };
        Ok(Some((entry_key(directory, name).into(), found.entry)))
    }
}

impl Handle {
    fn engine(&self) -> &Engine {
        self.store.engine()
    }

    fn pending(&self) -> RwLockReadGuard<'_, Pending> {
        locks::read(&self.file.pending)
    }

    fn pending_to_change(&self) -> Result<RwLockWriteGuard<'_, Pending>> {
        match self.is_writing {
            true => Ok(locks::write(&self.file.pending)),
            false => Err(Error::new(ErrorKind::ReadOnly, "write to an object", "it was opened for reading")),
        }
    }

    #[cfg(test)]
    pub(crate) fn pending_bytes(&self) -> usize {
        self.pending().memory_bytes()
    }

    /// Number of the object, constant for its lifetime.
    pub fn number(&self) -> ObjectNumber {
        self.file.number
    }

    /// Size of the file, including pending writes.
    ///
    /// # Errors
    /// Errors of reading the record.
    pub fn size_bytes(&self) -> Result<u64> {
        let pending = self.pending();
        Ok(pending.size_over(self.file.base(self.engine())?.size_bytes))
    }

    /// Its attributes, with its current holes. Writing does not change the modification time: a caller that maintains
    /// it sets it. The change time is that of the last commit, or the one that was set.
    ///
    /// # Errors
    /// Errors of reading the record.
    pub fn attributes(&self) -> Result<Attributes> {
        let pending = self.pending();
        let base = self.file.base(self.engine())?;
        let holes = pending.plan(&base)?.holes;
        Ok(pending.attributes_over(&base.attributes, holes))
    }

    /// Reads from an offset; returns the number of bytes, less than the buffer's length only at the end. Holes are
    /// zeroes.
    ///
    /// # Errors
    /// As [`Store::read`]; [`ErrorKind::Busy`] in a store that is opened for reading, if another process has removed or
    /// renamed the object and its space is freed.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let pending = self.pending();
        self.file.read_with(self.engine(), |NamedBase { base, .. }| {
            let size = pending.size_over(base.size_bytes);
            let length = size.saturating_sub(offset).min(buffer.len() as u64) as usize;
            let buffer = &mut buffer[..length];
            let shown = pending.shown_bytes(base.size_bytes).clamp(offset, offset + length as u64);
            self.read_base(base, offset, &mut buffer[..(shown - offset) as usize])?;
            buffer[(shown - offset) as usize..].fill(0);
            pending.lay_over(offset, buffer);
            Ok(length)
        })
    }

    /// Reads a range of the committed content, which must contain all of it.
    fn read_base(&self, base: &Arc<Base>, offset: u64, buffer: &mut [u8]) -> Result<()> {
        if buffer.is_empty() {
            return Ok(());
        }
        let mut rest = buffer;
        let end = offset + rest.len() as u64;
        pieces(base.attributes.holes.as_ref(), offset..end, |piece| {
            let length = match &piece {
                RangePiece::Hole(length) => *length,
                RangePiece::Data(range) => range.end - range.start,
            };
            let (place, behind) = std::mem::take(&mut rest).split_at_mut(length as usize);
            rest = behind;
            match piece {
                RangePiece::Hole(_) => place.fill(0),
                RangePiece::Data(range) => self.read_data(base, range, place)?,
            }
            Ok(())
        })
    }

    fn read_data(&self, base: &Arc<Base>, range: Range<u64>, place: &mut [u8]) -> Result<()> {
        let descriptor = match &base.content {
            StoredContent::Striped(descriptor) if !range.is_empty() => descriptor,
            _ => {
                let mut bytes = Vec::with_capacity(place.len());
                self.engine().read_stored(base, range, &mut bytes)?;
                place.copy_from_slice(&bytes);
                return Ok(());
            }
        };
        let mut in_hand = lock(&self.in_hand);
        let ReadBuffer { base: of, range: there, bytes } = &mut *in_hand;
        let mut at = range.start;
        while at < range.end {
            if !of.as_ref().is_some_and(|of| Arc::ptr_eq(of, base)) || !there.contains(&at) {
                let unit = unit_at(descriptor, at);
                let most = part_end(descriptor, at).max(unit.end);
                // A sequential reader gets read-ahead; any other gets the requested units.
                let is_next = !there.is_empty() && there.end == at;
                let end = if is_next { most } else { unit_at(descriptor, range.end - 1).end.min(most) };
                // The earlier bytes are invalid until all of the new ones are read.
                (*of, *there) = (None, 0..0);
                bytes.clear();
                let begin = unit.start;
                self.engine().read_units(descriptor, begin..end, bytes)?;
                (*of, *there) = (Some(Arc::clone(base)), begin..begin + bytes.len() as u64);
            }
            let to = there.end.min(range.end);
            let read = bytes.get((at - there.start) as usize..to.saturating_sub(there.start) as usize);
            let wrong =
                || Error::new(ErrorKind::Corrupt, "read", "the object has less data than its descriptor states");
            let read = read.filter(|read| !read.is_empty()).ok_or_else(wrong)?;
            place[(at - range.start) as usize..(to - range.start) as usize].copy_from_slice(read);
            at = to;
        }
        Ok(())
    }

    /// Writes at an offset. The range between the end and the offset becomes a hole.
    ///
    /// ```
    /// use granulo_store::{Attributes, HandleOptions, Key, Plan, Store, Time};
    ///
    /// # let place = tempfile::tempdir()?;
    /// let store = Store::create(&place.path().join("store"), &Plan::default())?;
    /// let (key, attributes) = (Key::parse("file")?, Attributes::of_file(Time { seconds: 0, nanoseconds: 0 }));
    /// store.put(&key, &attributes, &[1; 1_000_000])?;
    /// let handle = store.open_object(&key, &HandleOptions::write())?;
    /// handle.write_at(b"other", 500_000)?;
    /// // Writes the stripe that it is in, and a record.
    /// handle.close()?;
    /// assert_eq!(&store.get(&key)?.unwrap()[499_999..500_006], b"\x01other\x01");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::ReadOnly`] if it was opened for reading; [`ErrorKind::Usage`] beyond 2⁶² bytes; errors of
    /// [`commit`](Self::commit) when that is needed to make room: then nothing was written, or only the first part of
    /// more than a few megabytes.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        let mut pending = self.pending_to_change()?;
        self.write_locked(&mut pending, bytes, offset)
    }

    fn write_locked(&self, pending: &mut RwLockWriteGuard<'_, Pending>, bytes: &[u8], offset: u64) -> Result<()> {
        if offset.checked_add(bytes.len() as u64).is_none_or(|end| end > LARGEST_BYTES) {
            return Err(too_long());
        }
        let mut at = offset;
        for part in bytes.chunks(MOST_PENDING_BYTES / 4) {
            if pending.memory_bytes() + Pending::needed_bytes(part.len()) > MOST_PENDING_BYTES {
                self.file.commit(self.engine(), pending)?;
                self.engine().flush_if_full()?;
            }
            pending.write(at, part);
            at += part.len() as u64;
        }
        Ok(())
    }

    /// Writes at the end, atomically with finding the end; returns the offset of the bytes.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at).
    pub fn append(&self, bytes: &[u8]) -> Result<u64> {
        let mut pending = self.pending_to_change()?;
        let end = pending.size_over(self.file.base(self.engine())?.size_bytes);
        self.write_locked(&mut pending, bytes, end)?;
        Ok(end)
    }

    /// Truncates the file, or extends it with a hole.
    ///
    /// ```
    /// use granulo_store::{Attributes, HandleOptions, Key, Plan, Store, Time};
    ///
    /// # let place = tempfile::tempdir()?;
    /// let store = Store::create(&place.path().join("store"), &Plan::default())?;
    /// let attributes = Attributes::of_file(Time { seconds: 0, nanoseconds: 0 });
    /// let handle = store.open_object(&Key::parse("file")?, &HandleOptions::write().create(attributes))?;
    /// handle.append(b"content")?;
    /// handle.set_len(4)?;
    /// handle.set_len(6)?;
    /// let mut bytes = [1; 8];
    /// assert_eq!(handle.read_at(&mut bytes, 0)?, 6);
    /// assert_eq!(&bytes, b"cont\0\0\x01\x01");
    /// handle.close()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::ReadOnly`] if it was opened for reading; [`ErrorKind::Usage`] beyond 2⁶² bytes; errors of reading
    /// the record.
    pub fn set_len(&self, size_bytes: u64) -> Result<()> {
        let mut pending = self.pending_to_change()?;
        if size_bytes > LARGEST_BYTES {
            return Err(too_long());
        }
        let before = pending.size_over(self.file.base(self.engine())?.size_bytes);
        if size_bytes != before {
            pending.set_size(size_bytes, before);
        }
        Ok(())
    }

    /// Punches a hole: the range reads as zeroes and takes no space; the size stays. What is stored behind the hole is
    /// written again with the next commit.
    ///
    /// ```
    /// use granulo_store::{Attributes, HandleOptions, Key, Plan, Store, Time};
    ///
    /// # let place = tempfile::tempdir()?;
    /// let store = Store::create(&place.path().join("store"), &Plan::default())?;
    /// let (key, attributes) = (Key::parse("file")?, Attributes::of_file(Time { seconds: 0, nanoseconds: 0 }));
    /// store.put(&key, &attributes, &[1; 10_000])?;
    /// let handle = store.open_object(&key, &HandleOptions::write())?;
    /// handle.punch_hole(4096..8192)?;
    /// handle.close()?;
    /// assert_eq!(store.get(&key)?.unwrap()[4095..8193].iter().filter(|&&byte| byte == 1).count(), 2);
    /// let holes = store.stat(&key)?.unwrap().attributes.holes.unwrap();
    /// assert_eq!(holes.data, [(0, 4096), (8192, 1808)]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::ReadOnly`] if it was opened for reading; errors of reading the record.
    pub fn punch_hole(&self, range: Range<u64>) -> Result<()> {
        self.punch(range, 0)
    }

    /// As [`punch_hole`](Self::punch_hole); and a file that ends before the range does becomes so long. After an error,
    /// neither has happened.
    ///
    /// ```
    /// use granulo_store::{Attributes, HandleOptions, Key, Plan, Store, Time};
    ///
    /// # let place = tempfile::tempdir()?;
    /// let store = Store::create(&place.path().join("store"), &Plan::default())?;
    /// let attributes = Attributes::of_file(Time { seconds: 0, nanoseconds: 0 });
    /// let handle = store.open_object(&Key::parse("file")?, &HandleOptions::write().create(attributes))?;
    /// handle.append(b"content")?;
    /// handle.zero_range(4..9)?;
    /// let mut bytes = [1; 10];
    /// assert_eq!(handle.read_at(&mut bytes, 0)?, 9);
    /// assert_eq!(&bytes, b"cont\0\0\0\0\0\x01");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`punch_hole`](Self::punch_hole); [`ErrorKind::Usage`] beyond 2⁶² bytes.
    pub fn zero_range(&self, range: Range<u64>) -> Result<()> {
        let end = range.end;
        self.punch(range, end)
    }

    fn punch(&self, range: Range<u64>, least_bytes: u64) -> Result<()> {
        let mut pending = self.pending_to_change()?;
        if least_bytes > LARGEST_BYTES {
            return Err(too_long());
        }
        let content_bytes = self.file.base(self.engine())?.size_bytes;
        let before = pending.size_over(content_bytes);
        let size_bytes = before.max(least_bytes);
        pending.punch(range);
        // What ended the file may be gone.
        if pending.size_over(content_bytes) != size_bytes {
            pending.set_size(size_bytes, before);
        }
        Ok(())
    }

    /// What is pending now: content, size and attributes, for [`restore_pending`](Self::restore_pending).
    pub fn save_pending(&self) -> SavedPending {
        SavedPending(self.pending().clone())
    }

    /// Makes pending what was saved, in place of what is. So a caller for whose change there is no room takes it back,
    /// and what was pending before it still is. It may have been committed meanwhile: then it is pending again, over
    /// itself.
    ///
    /// ```
    /// use granulo_store::{Attributes, HandleOptions, Key, Plan, Store, Time};
    ///
    /// # let place = tempfile::tempdir()?;
    /// let store = Store::create(&place.path().join("store"), &Plan::default())?;
    /// let attributes = Attributes::of_file(Time { seconds: 0, nanoseconds: 0 });
    /// let handle = store.open_object(&Key::parse("file")?, &HandleOptions::write().create(attributes))?;
    /// handle.append(b"kept")?;
    /// let before = handle.save_pending();
    /// handle.append(b" and not kept")?;
    /// handle.restore_pending(before);
    /// handle.close()?;
    /// assert_eq!(store.get(&Key::parse("file")?)?.unwrap(), b"kept");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn restore_pending(&self, saved: SavedPending) {
        *locks::write(&self.file.pending) = saved.0;
    }

    /// Replaces its attributes with the next commit. Its type and its holes do not change.
    ///
    /// # Errors
    /// [`ErrorKind::ReadOnly`] if it was opened for reading; [`ErrorKind::Usage`] for attributes that cannot be stored.
    pub fn set_attributes(&self, attributes: &Attributes) -> Result<()> {
        let mut pending = self.pending_to_change()?;
        let attributes = Attributes { holes: None, ..attributes.clone() };
        attributes.encode(self.engine().now(), &mut Vec::new())?;
        pending.set_attributes(attributes);
        Ok(())
    }

    /// Commits the pending writes to the store, atomically; with [`Durability::Batch`] or [`Durability::Each`] they are
    /// durable, and so is everything committed before. An object without a name has nothing to make durable.
    ///
    /// # Errors
    /// Errors of reading the object and of writing; [`ErrorKind::Busy`] if others keep changing it. All writes stay
    /// pending and may be committed again, unless the store has become read-only.
    pub fn commit(&self, durability: Durability) -> Result<()> {
        if self.is_writing {
            let mut pending = self.pending_to_change()?;
            self.file.commit(self.engine(), &mut pending)?;
        }
        match durability {
            _ if !self.engine().is_writer() => Ok(()),
            Durability::None => self.engine().flush_if_full(),
            Durability::Batch | Durability::Each => self.engine().sync_all().map(|()| self.store.beat()),
        }
    }

    /// Names an object that has no name; the name must be free. The object has its content at that time. Not durable
    /// before the next [`Store::sync`] or [`commit`](Self::commit).
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] if it has a name ([`Store::hard_link`] adds another); [`ErrorKind::Exists`] if the name is
    /// taken; [`ErrorKind::NotFound`] if the parent directory does not exist; as [`commit`](Self::commit).
    pub fn link(&self, key: &Key) -> Result<()> {
        let mut pending = self.pending_to_change()?;
        self.file.commit(self.engine(), &mut pending)?;
        let Some(units) = self.file.unnamed_units() else {
            return Err(Error::new(ErrorKind::Usage, "give it a name", "it already has one").at(&key.to_path()));
        };
        let base = self.file.base(self.engine())?;
        let mut batch = self.store.batch(Durability::None);
        // The change time becomes now; the birth time stays.
        let attributes = Attributes { ctime: None, ..base.attributes.clone() };
        batch.name_file(key, self.file.number, &attributes, &base, &units)?;
        batch.commit()
    }

    /// Closes the file; pending writes are committed but not durable.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub fn close(self) -> Result<()> {
        self.end()
    }

    fn end(&self) -> Result<()> {
        match self.is_writing && self.file.is_named() {
            true => self.commit(Durability::None),
            // A nameless object is removed with its last handle, or stays pending for the others.
            false => Ok(()),
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

fn too_long() -> Error {
    Error::new(ErrorKind::Usage, "write to an object", "it would be longer than 2^62 bytes")
}

/// The range of the stripe unit that contains a stored byte, among the stored bytes.
fn unit_at(descriptor: &Descriptor, at: u64) -> Range<u64> {
    let mut begin = descriptor.packed_bytes();
    if at < begin {
        return 0..begin;
    }
    for chunk in &descriptor.chunks {
        let end = begin + chunk.stripes.length_bytes;
        if at < end {
            let unit_bytes = u64::from(chunk.stripes.unit_bytes);
            let from = at - (at - begin) % unit_bytes;
            return from..(from + unit_bytes).min(end);
        }
        begin = end;
    }
    at..at + 1
}
