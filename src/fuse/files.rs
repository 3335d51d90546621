//! Content: reading, writing, making durable.
//!
//! The kernel caches content, and in a mount for writing all changes of it go through the kernel. So it opens and
//! closes files there without a word to this process, and asks for content only if it has none. All users of a file
//! share one handle of the store, which keeps what is written until it is committed. A small file that nobody writes to
//! needs no handle: its record is read whole.

use std::ops::Range;
use std::sync::Arc;

use rustix::io::Errno;

use super::errno::Outcome;
use super::file_system::{FileSystem, now};
use super::live::{Info, LiveState};
use super::wire::opened;
use super::wire::reply::Reply;
use super::wire::request::Header;
use crate::store::ids::ObjectNumber;
use crate::store::{Buffer, Handle, HandleOptions, Holes, Kind, Listed};

/// Modes of fallocate(2).
const KEEP_SIZE: u32 = 1;
const PUNCH_HOLE: u32 = 2;
const ZERO_RANGE: u32 = 0x10;
/// Positions of lseek(2).
const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;
/// A file of that size, holes included, is read whole for each request: the kernel asks for it in one or two.
const SMALL_BYTES: u64 = 128 << 10;
/// Bytes that are copied at once.
const COPY_BYTES: usize = 1 << 20;
/// Most bytes that a request copies. A program asks for the rest; between two requests, it can be interrupted.
const MOST_COPIED_BYTES: u64 = 32 << 20;

impl FileSystem {
    /// Opens a file, in a mount for reading only: the process that writes may remove it while it is read here. In a
    /// mount for writing the kernel is told with the first request that it need not ask.
    pub(super) fn open(&self, number: ObjectNumber) -> Outcome<Reply> {
        if !self.appearance.is_read_only {
            return Err(Errno::NOSYS);
        }
        // The kernel may not have been told of a change, and times may be as before: what is known of a record is not.
        let listed = self.store.entry(&self.key_of(number)?).map_err(|error| self.fail_of(number, error))?;
        let record = listed.filter(|listed| listed.entry.number == number).map_or(0, |listed| listed.entry.id);
        let is_same = self.nodes.is_opened_again(number, record);
        let live = self.nodes.hold(number);
        let mut state = self.attention.lock(&live.state);
        self.meet_again(number, &mut state);
        self.open_handle(number, &mut state)?;
        state.opens += 1;
        Ok(Reply::opened(0, opened::NO_FLUSH | if is_same { opened::KEEP_CACHE } else { 0 }))
    }

    /// Beside a writer, a file that is open was met under a name that may be new: its handle goes on there.
    pub(super) fn meet_again(&self, number: ObjectNumber, state: &mut LiveState) {
        if self.appearance.is_read_only
            && state.handle.is_some()
            && let Ok(key) = self.key_of(number)
        {
            // If the name is gone again, the file stays what it was.
            _ = self.store.open_object(&key, &HandleOptions::read());
            state.info = None;
        }
    }

    /// The handle of a file, opened in the store if it is not yet.
    pub(super) fn open_handle(&self, number: ObjectNumber, state: &mut LiveState) -> Outcome<Arc<Handle>> {
        if let Some(handle) = &state.handle {
            return Ok(Arc::clone(handle));
        }
        let options = match self.appearance.is_read_only {
            true => HandleOptions::read(),
            false => HandleOptions::write(),
        };
        let handle =
            self.store.open_object(&self.key_of(number)?, &options).map_err(|error| self.fail_of(number, error))?;
        if handle.number() != number {
            return Err(Errno::STALE);
        }
        let handle = Arc::clone(state.handle.insert(Arc::new(handle)));
        self.opened_handle(number);
        Ok(handle)
    }

    /// The handle of a file.
    fn handle(&self, number: ObjectNumber) -> Outcome<Arc<Handle>> {
        let live = self.nodes.hold(number);
        let mut state = self.attention.lock(&live.state);
        self.open_handle(number, &mut state)
    }

    pub(super) fn read(&self, number: ObjectNumber, offset: u64, size: u32) -> Outcome<Reply> {
        let handle = match self.nodes.held(number).and_then(|live| self.attention.lock(&live.state).handle.clone()) {
            Some(handle) => handle,
            None => match self.read_small(number, offset, size)? {
                Some(reply) => return Ok(reply),
                None => self.handle(number)?,
            },
        };
        // Read-ahead asks for more than there is.
        let there = handle.size_bytes().map_err(|error| self.fail_of(number, error))?.saturating_sub(offset);
        let most_bytes = there.min(size.into()) as usize;
        Reply::filled(most_bytes, |buffer| handle.read_at(buffer, offset)).map_err(|error| self.fail_of(number, error))
    }

    /// Reads a small file whose content is a record; `None` if it is not, or was moved or removed meanwhile, since
    /// nothing of it is locked.
    fn read_small(&self, number: ObjectNumber, offset: u64, size: u32) -> Outcome<Option<Reply>> {
        let Ok(key) = self.key_of(number) else { return Ok(None) };
        let mut buffer = Buffer::default();
        let is_small = |Listed { entry, .. }: &Listed| {
            entry.number == number && entry.kind == Kind::File && entry.size_bytes <= SMALL_BYTES
        };
        if !self.store.entry(&key).map_err(|error| self.fail_of(number, error))?.is_some_and(|listed| is_small(&listed))
        {
            return Ok(None);
        }
        let object = self.store.read(&key, &mut buffer).map_err(|error| self.fail_of(number, error))?;
        let Some(object) = object.filter(|object| object.entry.number == number) else { return Ok(None) };
        let content = object.content;
        let from = usize::try_from(offset).map_or(content.len(), |from| from.min(content.len()));
        let to = from.saturating_add(size as usize).min(content.len());
        Ok(Some(Reply::bytes(&content[from..to])))
    }

    pub(super) fn write(&self, number: ObjectNumber, offset: u64, bytes: &[u8], kills_set_id: bool) -> Outcome<Reply> {
        self.write_by(number, offset, bytes, |info| {
            info.touch(now());
            if kills_set_id {
                info.drop_set_id();
            }
        })?;
        Ok(Reply::written(bytes.len()))
    }

    /// Writes no more than the kernel sends at once: all of it, or nothing. `change` says what that makes of the
    /// attributes.
    fn write_by(&self, number: ObjectNumber, offset: u64, bytes: &[u8], change: impl FnOnce(&mut Info)) -> Outcome<()> {
        {
            let live = self.nodes.hold(number);
            let mut state = self.attention.lock(&live.state);
            let handle = self.open_handle(number, &mut state)?;
            self.change_object(&live, &mut state, bytes.len(), |info| {
                self.retry_after_freeing(number, || handle.write_at(bytes, offset))?;
                change(info);
                Ok(())
            })?;
        }
        self.settle_much();
        Ok(())
    }

    /// Nobody has the file open any more by this open.
    pub(super) fn release(&self, number: ObjectNumber) -> Outcome<Reply> {
        let Some(live) = self.nodes.held(number) else { return Ok(Reply::empty()) };
        let mut state = self.attention.lock(&live.state);
        state.opens = state.opens.saturating_sub(1);
        if self.appearance.is_read_only && state.opens == 0 {
            self.let_go(&live, &mut state);
        }
        Ok(Reply::empty())
    }

    /// Makes a file durable, with all that was done before, also to others: they come first, so that the file is never
    /// newer in the store than what was written before it.
    ///
    /// # Errors
    /// Those of this file; what cannot be committed of another is told to who syncs that, and still waits.
    pub(super) fn sync_file(&self, number: ObjectNumber) -> Outcome<Reply> {
        if !self.appearance.is_read_only {
            self.settle_all(Some(number));
            self.settle_one(number)?;
            self.make_durable()?;
        }
        Ok(Reply::empty())
    }

    /// Makes durable what was just done; to `number`, if to its content or attributes. What cannot be committed of
    /// others is told to who syncs that.
    pub(super) fn sync_done(&self, number: Option<ObjectNumber>) -> Outcome<()> {
        _ = self.commit_each(|_, _| ());
        number.map_or(Ok(()), |number| self.settle_one(number))?;
        self.make_durable()
    }

    /// Makes everything durable.
    pub(super) fn sync_all(&self) -> Outcome<Reply> {
        self.mark_changed();
        self.sync().map(|()| Reply::empty())
    }

    /// Nothing is reserved: room is found when content is committed.
    pub(super) fn allocate(
        &self,
        number: ObjectNumber,
        header: &Header,
        (offset, length): (u64, u64),
        mode: u32,
    ) -> Outcome<Reply> {
        let end = offset.checked_add(length).filter(|end| i64::try_from(*end).is_ok()).ok_or(Errno::FBIG)?;
        let live = self.nodes.hold(number);
        let mut state = self.attention.lock(&live.state);
        let handle = self.open_handle(number, &mut state)?;
        let is_size_kept = mode & KEEP_SIZE > 0;
        let size = handle.size_bytes().map_err(|error| self.fail_of(number, error))?;
        self.change_object(&live, &mut state, 0, |info| {
            let changed = match mode & !KEEP_SIZE {
                0 if end > size && !is_size_kept => handle.set_len(end),
                0 => Ok(()),
                PUNCH_HOLE | ZERO_RANGE if is_size_kept => handle.punch_hole(offset..end),
                ZERO_RANGE => handle.zero_range(offset..end),
                _ => return Err(Errno::OPNOTSUPP),
            };
            changed.map_err(|error| self.fail_of(number, error))?;
            changed_by(info, header);
            Ok(())
        })?;
        drop(state);
        self.settle_much();
        Ok(Reply::empty())
    }

    /// The next data or hole from an offset on, or that there is none; and the hole on which that depends, if any.
    pub(super) fn run_at(&self, number: ObjectNumber, offset: u64, whence: u32) -> Outcome<(Outcome<u64>, Range<u64>)> {
        let handle = self.handle(number)?;
        let size = handle.size_bytes().map_err(|error| self.fail_of(number, error))?;
        if offset >= size {
            return Err(Errno::NXIO);
        }
        let holes = handle.attributes().map_err(|error| self.fail_of(number, error))?.holes;
        let runs = holes.map_or_else(|| vec![(0, size)], |Holes { data, .. }| data);
        let data_behind = |from| runs.iter().map(|&(at, length)| at..at + length).find(|run| run.end > from);
        let found = match (whence, data_behind(offset)) {
            (SEEK_DATA, Some(run)) => Ok(run.start.max(offset)),
            (SEEK_DATA, None) => Err(Errno::NXIO),
            (SEEK_HOLE, Some(run)) if run.contains(&offset) => Ok(run.end),
            (SEEK_HOLE, _) => Ok(offset),
            _ => return Err(Errno::INVAL),
        };
        let from = if whence == SEEK_HOLE { found.unwrap_or(offset) } else { offset };
        Ok((found, from..data_behind(from).map_or(size, |run| run.start)))
    }

    /// As lseek(2). `flush` has the kernel write what programs have changed in a hole through mappings.
    pub(super) fn seek(
        &self,
        number: ObjectNumber,
        offset: u64,
        whence: u32,
        flush: impl Fn(&Range<u64>),
    ) -> Outcome<Reply> {
        let mut flushed = 0..0;
        loop {
            let (found, hole) = self.run_at(number, offset, whence)?;
            if hole.is_empty() || hole == flushed {
                return found.map(Reply::offset);
            }
            flush(&hole);
            flushed = hole;
        }
    }

    /// Copies within the store, piece by piece. If one fails, those before it stay, and the program is told how much
    /// that is; so it is told of a failure only if nothing was copied.
    pub(super) fn copy_range(
        &self,
        (from, from_offset): (ObjectNumber, u64),
        (to, to_offset): (ObjectNumber, u64),
        header: &Header,
        length: u64,
    ) -> Outcome<Reply> {
        let source = self.handle(from)?;
        let length = length.min(MOST_COPIED_BYTES);
        let mut buffer = vec![0; COPY_BYTES.min(length as usize)];
        let mut copied = 0;
        while copied < length {
            let wanted = buffer.len().min((length - copied) as usize);
            let read = source.read_at(&mut buffer[..wanted], from_offset + copied);
            let piece = read.map_err(|error| self.fail_of(from, error)).and_then(|read| {
                if read > 0 {
                    self.write_by(to, to_offset + copied, &buffer[..read], |info| changed_by(info, header))?;
                }
                Ok(read)
            });
            match piece {
                Ok(0) => break,
                Ok(read) => copied += read as u64,
                Err(errno) if copied == 0 => return Err(errno),
                Err(_) => break,
            }
        }
        Ok(Reply::written(copied as usize))
    }
}

/// Content was changed by somebody: here the kernel does not say whether set-id bits may stay.
fn changed_by(info: &mut Info, header: &Header) {
    info.touch(now());
    if header.uid != 0 {
        info.drop_set_id();
    }
}
