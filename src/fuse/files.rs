//! Open files: reading, writing, committing what was written.
//!
//! All opens of a file share one handle of the store, which keeps what is written until it is committed. The kernel
//! caches content, and all of its changes go through it, so it is told to keep that when a file is opened again. So
//! most files that are opened for reading are never read here: their handle is opened when that happens, or before the
//! name goes by which it would be found.

use std::sync::Arc;

use rustix::io::Errno;

use super::errno::Outcome;
use super::file_system::{FileSystem, now};
use super::live::{Info, LiveState};
use super::wire::opened;
use super::wire::reply::Reply;
use super::wire::request::Header;
use crate::locks::lock;
use crate::store::ids::ObjectNumber;
use crate::store::{Handle, HandleOptions, Holes};

/// Flags of open(2).
const ACCESS_MODE: u32 = 3;
const READ_ONLY: u32 = 0;
/// Modes of fallocate(2).
const KEEP_SIZE: u32 = 1;
const PUNCH_HOLE: u32 = 2;
const ZERO_RANGE: u32 = 0x10;
/// Positions of lseek(2).
const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;
/// Bytes that are copied at once.
const COPY_BYTES: usize = 1 << 20;

impl FileSystem {
    /// Opens a file. That it is truncated is another request, which comes when the kernel knows that it may be: not
    /// while it is executed.
    pub(super) fn open(&self, number: ObjectNumber, flags: u32) -> Outcome<Reply> {
        let live = self.nodes.hold(number);
        let mut state = lock(&live.state);
        let is_reading = flags & ACCESS_MODE == READ_ONLY;
        if !is_reading || self.appearance.is_read_only {
            self.open_handle(number, &mut state)?;
        } else if state.handle.is_none() {
            self.key_of(number)?;
        }
        state.opens += 1;
        Ok(Reply::opened(0, opened::KEEP_CACHE | if is_reading { opened::NO_FLUSH } else { 0 }))
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
        let handle = self.store.open_object(&self.key_of(number)?, &options).map_err(|error| self.fail(error))?;
        if handle.number() != number {
            return Err(Errno::STALE);
        }
        Ok(Arc::clone(state.handle.insert(Arc::new(handle))))
    }

    /// The handle of an open file.
    fn handle(&self, number: ObjectNumber) -> Outcome<Arc<Handle>> {
        let live = self.nodes.held(number).ok_or(Errno::BADF)?;
        self.open_handle(number, &mut lock(&live.state))
    }

    pub(super) fn read(&self, number: ObjectNumber, offset: u64, size: u32) -> Outcome<Reply> {
        let handle = self.handle(number)?;
        // Read-ahead asks for more than there is.
        let there = handle.size_bytes().map_err(|error| self.fail(error))?.saturating_sub(offset);
        let most_bytes = there.min(size.into()) as usize;
        Reply::filled(most_bytes, |buffer| handle.read_at(buffer, offset)).map_err(|error| self.fail(error))
    }

    pub(super) fn write(&self, number: ObjectNumber, offset: u64, bytes: &[u8], kills_set_id: bool) -> Outcome<Reply> {
        let live = self.nodes.held(number).ok_or(Errno::BADF)?;
        let mut state = lock(&live.state);
        let handle = state.handle.clone().ok_or(Errno::BADF)?;
        let info = self.info(&live, &mut state)?;
        info.touch(now());
        if kills_set_id {
            info.drop_set_id();
        }
        handle.write_at(bytes, offset).map_err(|error| self.fail(error))?;
        self.mark_dirty(&mut state);
        if self.is_full.load(std::sync::atomic::Ordering::Relaxed) {
            self.commit(&live, &mut state)?;
        }
        Ok(Reply::written(bytes.len()))
    }

    /// A program has closed its file: what it wrote is committed.
    pub(super) fn flush(&self, number: ObjectNumber) -> Outcome<Reply> {
        if let Some(live) = self.nodes.held(number) {
            self.commit(&live, &mut lock(&live.state))?;
        }
        Ok(Reply::empty())
    }

    /// Nobody has the file open any more by this open.
    pub(super) fn release(&self, number: ObjectNumber) -> Outcome<Reply> {
        let Some(live) = self.nodes.held(number) else { return Ok(Reply::empty()) };
        let mut state = lock(&live.state);
        state.opens = state.opens.saturating_sub(1);
        if state.opens == 0 {
            // After an error it is tried again with everything else.
            self.commit(&live, &mut state)?;
            self.let_go(&live, &mut state);
        }
        Ok(Reply::empty())
    }

    /// Makes a file durable, with all that was committed before.
    pub(super) fn sync_file(&self, number: ObjectNumber) -> Outcome<Reply> {
        self.flush(number)?;
        if !self.appearance.is_read_only {
            self.make_durable()?;
        }
        Ok(Reply::empty())
    }

    /// Makes everything durable.
    pub(super) fn sync_all(&self) -> Outcome<Reply> {
        self.mark_changed();
        self.sync().map(|()| Reply::empty())
    }

    /// Sets the size of a file.
    pub(super) fn set_size(&self, number: ObjectNumber, state: &mut LiveState, size: u64) -> Outcome<()> {
        let handle = self.open_handle(number, state)?;
        handle.set_len(size).map_err(|error| self.fail(error))
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
        let live = self.nodes.held(number).ok_or(Errno::BADF)?;
        let mut state = lock(&live.state);
        let handle = state.handle.clone().ok_or(Errno::BADF)?;
        let size = handle.size_bytes().map_err(|error| self.fail(error))?;
        let changed = match mode & !KEEP_SIZE {
            0 => Ok(()),
            PUNCH_HOLE if mode & KEEP_SIZE > 0 => handle.punch_hole(offset..end),
            ZERO_RANGE => handle.punch_hole(offset..end),
            _ => return Err(Errno::OPNOTSUPP),
        };
        changed.map_err(|error| self.fail(error))?;
        if mode & KEEP_SIZE == 0 && end > size {
            handle.set_len(end).map_err(|error| self.fail(error))?;
        }
        changed_by(self.info(&live, &mut state)?, header);
        self.mark_dirty(&mut state);
        Ok(Reply::empty())
    }

    /// The next data or hole from an offset on.
    pub(super) fn seek(&self, number: ObjectNumber, offset: u64, whence: u32) -> Outcome<Reply> {
        let handle = self.handle(number)?;
        let size = handle.size_bytes().map_err(|error| self.fail(error))?;
        if offset >= size {
            return Err(Errno::NXIO);
        }
        let holes = handle.attributes().map_err(|error| self.fail(error))?.holes;
        let runs = holes.map_or_else(|| vec![(0, size)], |Holes { data, .. }| data);
        let run = runs.iter().map(|&(at, length)| at..at + length).find(|run| run.end > offset);
        let found = match (whence, run) {
            (SEEK_DATA, Some(run)) => run.start.max(offset),
            (SEEK_DATA, None) => return Err(Errno::NXIO),
            (SEEK_HOLE, Some(run)) if run.contains(&offset) => run.end,
            (SEEK_HOLE, _) => offset,
            _ => return Err(Errno::INVAL),
        };
        Ok(Reply::offset(found))
    }

    /// Copies within the store.
    pub(super) fn copy_range(
        &self,
        (from, from_offset): (ObjectNumber, u64),
        (to, to_offset): (ObjectNumber, u64),
        header: &Header,
        length: u64,
    ) -> Outcome<Reply> {
        let source = self.handle(from)?;
        let live = self.nodes.held(to).ok_or(Errno::BADF)?;
        let mut state = lock(&live.state);
        let target = state.handle.clone().ok_or(Errno::BADF)?;
        // A reply has room for 32 bits.
        let length = length.min(u64::from(u32::MAX) - COPY_BYTES as u64);
        let mut buffer = vec![0; COPY_BYTES.min(length as usize)];
        let mut copied = 0;
        while copied < length {
            let wanted = buffer.len().min((length - copied) as usize);
            let read = source.read_at(&mut buffer[..wanted], from_offset + copied);
            let read = read.map_err(|error| self.fail(error))?;
            if read == 0 {
                break;
            }
            target.write_at(&buffer[..read], to_offset + copied).map_err(|error| self.fail(error))?;
            copied += read as u64;
        }
        if copied > 0 {
            changed_by(self.info(&live, &mut state)?, header);
            self.mark_dirty(&mut state);
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
