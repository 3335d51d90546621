//! The content of one file in pieces: verified once, in bounded memory, without its holes.
//!
//! A record is read whole (the cutoff bounds it); a large object is read a few stripe units at a time, each unit once.
//! The content is that of the object when reading began: a record is in memory, and the checksums of the descriptor
//! identify the units. If units are moved meanwhile, the new descriptor says where they are; if the object is removed
//! or replaced and its units are freed, reading fails.

use std::ops::Range;

use super::load::part_end;
use super::pinned::PinnedSnapshot;
use super::read::{Part, object_key_in};
use crate::Store;
use crate::devices::device::make_landing;
use crate::engine::pins::Loose;
use crate::error::{Error, ErrorKind, Result};
use crate::format::attributes::Attributes;
use crate::format::descriptor::Descriptor;
use crate::format::entry::{Entry, Kind};
use crate::format::key::Key;

/// Default size of a piece: bytes returned of a record at a time, and read of a large object, approximately.
const PIECE_BYTES: u64 = 4 << 20;
/// Bytes of units that are announced to the operating system before they are read.
const AHEAD_BYTES: u64 = 16 << 20;

/// Where an entry is from, for finding its object again.
#[derive(Debug, Clone, Copy)]
pub(super) enum Origin<'s> {
    /// The index of now.
    Now,
    /// A state that may be pinned.
    Snapshot(&'s PinnedSnapshot),
    /// A version that the key no longer has: it stays where it is, or is gone.
    Version(Loose),
}

/// The content of a file during reading; see [`Store::content`].
#[derive(Debug)]
pub struct Content<'s> {
    store: &'s Store,
    key: Key,
    entry: Entry,
    origin: Origin<'s>,
    attributes: Attributes,
    /// Only for a large object.
    descriptor: Option<Descriptor>,
    /// Bytes in memory, and their range among the stored bytes.
    bytes: Vec<u8>,
    start: usize,
    in_hand: Range<u64>,
    /// Runs of data: offset in the file, and length.
    runs: Vec<(u64, u64)>,
    run: usize,
    /// Where the run begins among the stored bytes, and how much of it was returned.
    run_stored: u64,
    given: u64,
    piece_bytes: u64,
}

impl Store {
    /// The content of a file, read in pieces, of any size; `None` if there is no such key. Anything but a file has no
    /// pieces.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn content(&self, key: &Key) -> Result<Option<Content<'_>>> {
        self.engine().with_found(key.stored(), |found| self.content_of(key, found.entry, Origin::Now))
    }

    /// The content of the file with an entry.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub(super) fn content_of<'s>(&'s self, key: &Key, entry: Entry, origin: Origin<'s>) -> Result<Content<'s>> {
        let engine = self.engine();
        let mut record = Vec::new();
        let (attributes, descriptor, bytes, within);
        if entry.kind == Kind::Large {
            let read = engine.read_entry(&entry, &mut record)?;
            attributes = engine.attributes_of(&entry, &read.head)?;
            let decoded = engine.decode_descriptor(entry.location, read.content)?;
            engine.extents.will_read(&decoded, AHEAD_BYTES);
            (descriptor, bytes, within) = (Some(decoded), Vec::new(), 0..0);
        } else {
            let mut content = Vec::new();
            let (own, range, part) = engine.stored_content(&entry, &mut record, &mut content)?;
            attributes = engine.attributes_over(own, &entry, || object_key_in(&record))?;
            bytes = match part {
                Part::Record => record,
                Part::Content => content,
            };
            (descriptor, within) = (None, range);
        }
        let runs = match (&attributes.holes, entry.kind) {
            (Some(holes), Kind::File | Kind::Large) => holes.data.clone(),
            (None, Kind::File | Kind::Large) => vec![(0, entry.size_bytes)],
            _ => Vec::new(),
        };
        Ok(Content {
            store: self,
            key: key.clone(),
            entry,
            origin,
            attributes,
            descriptor,
            bytes,
            start: within.start,
            in_hand: 0..within.len() as u64,
            runs,
            run: 0,
            run_stored: 0,
            given: 0,
            piece_bytes: PIECE_BYTES,
        })
    }
}

impl Content<'_> {
    /// The index entry of the file.
    pub fn entry(&self) -> &Entry {
        &self.entry
    }

    /// Its attributes.
    pub fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    /// Sets the bytes that are returned, and kept in memory, at a time: about that many, or one stripe unit if that is
    /// more. From 4 MiB on, devices are read in parallel.
    #[must_use]
    pub fn in_pieces_of(mut self, bytes: u64) -> Self {
        self.piece_bytes = bytes.max(1);
        self
    }

    /// Continues with the first data at or after an offset in the file.
    pub fn seek(&mut self, offset: u64) {
        (self.run, self.run_stored, self.given) = (0, 0, 0);
        while let Some(&(begin, length)) = self.runs.get(self.run) {
            if offset < begin + length {
                self.given = offset.saturating_sub(begin);
                return;
            }
            self.next_run(length);
        }
    }

    fn next_run(&mut self, length: u64) {
        (self.run, self.run_stored, self.given) = (self.run + 1, self.run_stored + length, 0);
    }

    /// The next data: its offset in the file, and the bytes; `None` at the end. Gaps between pieces are holes.
    ///
    /// # Errors
    /// As [`Store::read`]; [`ErrorKind::Busy`] if the file was removed or replaced meanwhile and its units are freed.
    pub fn next_piece(&mut self) -> Result<Option<(u64, &[u8])>> {
        let (begin, length) = loop {
            match self.runs.get(self.run) {
                None => return Ok(None),
                Some(&(_, length)) if self.given >= length => self.next_run(length),
                Some(&run) => break run,
            }
        };
        let stored = self.run_stored + self.given;
        if !self.in_hand.contains(&stored) {
            self.take_in_hand(stored)?;
        }
        let end = (self.run_stored + length).min(self.in_hand.end).min(stored + self.piece_bytes);
        let at = begin + self.given;
        self.given += end.saturating_sub(stored);
        let place = |stored: u64| self.start + (stored - self.in_hand.start) as usize;
        let wrong = || Error::new(ErrorKind::Corrupt, "read", "the object has less data than its list of holes states");
        let bytes = match end > stored {
            true => self.bytes.get(place(stored)..place(end)).ok_or_else(wrong)?,
            false => return Err(wrong()),
        };
        Ok(Some((at, bytes)))
    }

    /// Reads units of a large object, starting at one of the stored bytes.
    fn take_in_hand(&mut self, from: u64) -> Result<()> {
        let Some(descriptor) = &self.descriptor else { return Ok(()) };
        let mut end = part_end(descriptor, from);
        while end < descriptor.stored_bytes && end - from < self.piece_bytes {
            end = part_end(descriptor, end);
        }
        self.in_hand = from..from;
        self.start = make_landing(&mut self.bytes, (end - from) as usize, 0);
        let engine = self.store.engine();
        while let Some(descriptor) = &self.descriptor
            && let Err(error) = engine.read_units(descriptor, from..end, &mut self.bytes)
        {
            self.find_again(error)?;
            self.bytes.truncate(self.start);
        }
        self.in_hand = from..from + (self.bytes.len() - self.start) as u64;
        Ok(())
    }

    /// Looks up where the units are now; returns the error if they have not moved.
    fn find_again(&mut self, error: Error) -> Result<()> {
        let engine = self.store.engine();
        self.entry = match self.origin {
            Origin::Now => self.find_now(error)?,
            Origin::Snapshot(snapshot) => snapshot.find_again(&self.key, &self.entry, error)?,
            Origin::Version(loose) => return Err(engine.or_freed(loose, error)),
        };
        self.descriptor = Some(engine.descriptor(&self.entry)?);
        Ok(())
    }

    fn find_now(&self, error: Error) -> Result<Entry> {
        let engine = self.store.engine();
        engine.look_again()?;
        match engine.find(self.key.stored())? {
            Some(now) if now.entry.id == self.entry.id && now.entry.location == self.entry.location => Err(error),
            Some(now) if now.entry.id == self.entry.id => Ok(now.entry),
            _ => {
                let cause = "it was replaced or removed while it was being read";
                Err(Error::new(ErrorKind::Busy, "read", cause).at(&self.key.to_path()).advise("read it again"))
            }
        }
    }
}
