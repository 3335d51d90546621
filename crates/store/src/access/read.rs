//! Reading objects: every byte is verified, read from another copy or reconstructed from parity where one is damaged,
//! and never returned if it is wrong.
//!
//! A reader's index may be slightly out of date: the space that it refers to may be freed. Then the index is refreshed
//! and asked again; only a failure with a fresh index is damage.

use std::ops::Range;

use crate::devices::device::make_landing;
use crate::engine::pins::is_of_place;
use crate::engine::records::{decode_attributes, decompress};
use crate::engine::{Engine, look_up_in};
use crate::error::{Error, ErrorKind, Result};
use crate::format::attributes::{Attributes, Holes};
use crate::format::descriptor::Descriptor;
use crate::format::entry::{Entry, Kind, Location};
use crate::format::ids::ObjectNumber;
use crate::format::index_key::object_key;
use crate::format::key::Key;
use crate::format::record::Head;
use crate::layout::granulo::LISTED_BYTES;
use crate::units::format_size;

/// Memory for reads; reuse it to save allocations.
#[derive(Debug, Default)]
pub struct Buffer {
    record: Vec<u8>,
    content: Vec<u8>,
    spread: Vec<u8>,
}

/// An object, read and verified.
#[derive(Debug)]
pub struct Object<'b> {
    /// Its key; for a link, the requested name.
    pub key: Key,
    /// Its index entry; for one of several names, that of the shared object.
    pub entry: Entry,
    /// Its attributes.
    pub attributes: Attributes,
    /// For a file, all bytes, holes filled with zeroes; for a symlink, the target; for a special file, major and minor
    /// number, 4 bytes each.
    pub content: &'b [u8],
}

/// What is known of an object. Links are followed: this describes the file, not the name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// Kind, size, place of the record.
    pub entry: Entry,
    /// All attributes, including extended ones and holes.
    pub attributes: Attributes,
    /// Number of names of the file.
    pub names: u64,
    /// Number of the shared object, if the name is a link.
    pub shared: Option<ObjectNumber>,
    /// Bytes allocated on all devices: the record and its copies, and stripe units with parity, without the index.
    pub allocated_bytes: u64,
}

/// A key as found in the index.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LookedUp {
    /// Links followed.
    pub(crate) entry: Entry,
    pub(crate) shared: Option<ObjectNumber>,
}

/// Largest object that is read whole, holes filled, in bytes.
pub const WHOLE_BYTES: u64 = 1 << 30;

/// Range of the content in a buffer.
pub(crate) enum Part {
    Record,
    Content,
}

/// What was read of an object, and where its content is in the buffer.
pub(crate) struct ReadObject {
    entry: Entry,
    attributes: Attributes,
    range: Range<usize>,
    part: Part,
}

/// The object with its holes filled.
pub(crate) fn object<'b>(key: &Key, stored: ReadObject, buffer: &'b mut Buffer) -> Result<Object<'b>> {
    let ReadObject { entry, attributes, range, part } = stored;
    let Buffer { record, content, spread } = buffer;
    let data = match part {
        Part::Record => &record[range],
        Part::Content => &content[range],
    };
    let content = match &attributes.holes {
        Some(holes) => {
            fill_holes(holes, data, spread)?;
            &spread[..]
        }
        None => data,
    };
    Ok(Object { key: key.clone(), entry, attributes, content })
}

impl Engine {
    /// The entry of a path; for a hard link, that of its file. Symlinks are not followed.
    pub(crate) fn find(&self, path: &[u8]) -> Result<Option<LookedUp>> {
        let mut missed = None;
        loop {
            let Some(found) = self.look_up_path(self.fresh()?, path)? else { return Ok(None) };
            if found.kind != Kind::Link {
                return Ok(Some(LookedUp { entry: found, shared: None }));
            }
            let shared = found.linked();
            if let (_, Some(entry)) = look_up_in(self.fresh()?, &object_key(shared))? {
                return Ok(Some(LookedUp { entry, shared: Some(shared) }));
            }
            // Between the two look-ups, another object may have got the name, and the last name of this one gone: look
            // again. A link that dangles twice has no file.
            if missed.replace(found) == Some(found) {
                return Ok(None);
            }
        }
    }

    /// Calls `read` with the entry of `key`; if reading fails, refreshes the index and calls it again, until that has
    /// no other entry.
    pub(crate) fn with_found<T>(&self, key: &[u8], mut read: impl FnMut(LookedUp) -> Result<T>) -> Result<Option<T>> {
        let Some(mut found) = self.find(key)? else {
            // Another process may have written it a moment ago.
            return match self.refresh()? {
                true => self.find(key)?.map(read).transpose(),
                false => Ok(None),
            };
        };
        let mut is_again = false;
        loop {
            let error = match read(found) {
                Err(error) if is_of_place(&error) => error,
                other => return other.map(Some),
            };
            // Another process, or compaction in this one, may have moved or removed it since the look-up.
            let is_changed = self.look_again()?;
            let Some(again) = self.find(key)? else { return Ok(None) };
            let is_same = again.entry == found.entry;
            if is_same && (is_again || !is_changed) {
                return Err(error);
            }
            (found, is_again) = (again, is_same);
        }
    }

    /// The stored content of an object: decompressed, for a large object from its units, without its holes. In `record`
    /// or in `content`; with the attributes in its record, which may be out of date, except for the holes.
    pub(crate) fn stored_content(
        &self,
        entry: &Entry,
        record: &mut Vec<u8>,
        content: &mut Vec<u8>,
    ) -> Result<(Attributes, Range<usize>, Part)> {
        let read = self.read_entry(entry, record)?;
        let attributes = decode_attributes(read.head.attributes)?;
        let head_bytes = read.head.lengths.head_bytes();
        if entry.kind == Kind::Large {
            let descriptor = self.decode_descriptor(entry.location, read.content)?;
            let begin = make_landing(content, descriptor.stored_bytes.min(WHOLE_BYTES) as usize, 0);
            self.read_units(&descriptor, 0..descriptor.stored_bytes, content)?;
            return Ok((attributes, begin..content.len(), Part::Content));
        }
        if read.head.is_zstd {
            *content = decompress(read.content, attributes.holes.as_ref().map_or(entry.size_bytes, Holes::data_bytes))?;
            return Ok((attributes, 0..content.len(), Part::Content));
        }
        let range = head_bytes..head_bytes + read.content.len();
        Ok((attributes, range, Part::Record))
    }

    pub(crate) fn read<'b>(&self, key: &Key, buffer: &'b mut Buffer) -> Result<Option<Object<'b>>> {
        // Two steps, as the object may borrow the buffer only when reading has succeeded.
        let mut read = None;
        let looked = self.with_found(key.stored(), |found| {
            read = Some(self.stored(key, found.entry, buffer)?);
            Ok(())
        })?;
        read.filter(|_| looked.is_some()).map(|stored| object(key, stored, buffer)).transpose()
    }

    /// The object of an entry from a listing, without another look-up; if its place has been freed since, as
    /// [`read`](Self::read).
    pub(crate) fn read_listed<'b>(
        &self,
        key: &Key,
        entry: Entry,
        buffer: &'b mut Buffer,
    ) -> Result<Option<Object<'b>>> {
        match self.stored(key, entry, buffer) {
            Ok(stored) => object(key, stored, buffer).map(Some),
            Err(error) if is_of_place(&error) => self.read(key, buffer),
            Err(error) => Err(error),
        }
    }

    /// The stored bytes of an object, verified, in the buffer.
    pub(crate) fn stored(&self, key: &Key, entry: Entry, buffer: &mut Buffer) -> Result<ReadObject> {
        refuse_giant(key, &entry)?;
        let (own, range, part) = self.stored_content(&entry, &mut buffer.record, &mut buffer.content)?;
        let attributes = self.attributes_over(own, &entry, || object_key_in(&buffer.record))?;
        Ok(ReadObject { entry, attributes, range, part })
    }

    pub(crate) fn stat(&self, key: &Key) -> Result<Option<Status>> {
        let mut buffer = Vec::new();
        self.with_found(key.stored(), |found| {
            let entry = found.entry;
            let on_copies = |location: Location| {
                self.copies(location.segment).len() as u64 * (location.record_bytes + LISTED_BYTES)
            };
            let names = found.shared.map_or(1, |file| self.names_of(file));
            if entry.is_plain {
                let (attributes, allocated_bytes) = (Attributes::shown_by(&entry), on_copies(entry.location));
                return Ok(Status { entry, attributes, names, shared: found.shared, allocated_bytes });
            }
            let (head, descriptor) = match entry.kind {
                Kind::Large => {
                    let record = self.read_entry(&entry, &mut buffer)?;
                    (record.head, Some(self.decode_descriptor(entry.location, record.content)?))
                }
                _ => (self.read_head(&entry, &mut buffer)?, None),
            };
            let attributes = self.attributes_of(&entry, &head)?;
            let changed = match entry.attributes_id {
                0 => None,
                id => self.snapshot().attributes_record(&head.object_key(), id)?,
            };
            let records = [Some(entry.location), changed.map(|changed| changed.location)];
            let units = descriptor.iter().flat_map(Descriptor::runs).map(|run| run.length_bytes).sum::<u64>();
            let allocated_bytes = records.into_iter().flatten().map(on_copies).sum::<u64>() + units;
            Ok(Status { entry, attributes, names, shared: found.shared, allocated_bytes })
        })
    }

    /// Appends a range of an object; returns its length. After an error a part may have been appended.
    pub(crate) fn read_range(&self, key: &Key, range: Range<u64>, onto: &mut Vec<u8>) -> Result<Option<u64>> {
        let (mut record, mut content) = (Vec::new(), Vec::new());
        let start = onto.len();
        self.with_found(key.stored(), |found| {
            // `with_found` may call this twice.
            onto.truncate(start);
            let size = found.entry.size_bytes;
            let (from, to) = (range.start.min(size), range.end.min(size));
            if from >= to || found.entry.kind == Kind::Directory {
                return Ok(0);
            }
            if found.entry.kind != Kind::Large {
                let (attributes, within, part) = self.stored_content(&found.entry, &mut record, &mut content)?;
                let data = match part {
                    Part::Record => &record[within],
                    Part::Content => &content[within],
                };
                pieces(attributes.holes.as_ref(), from..to, |piece| {
                    match piece {
                        RangePiece::Hole(length) => onto.resize(onto.len() + length as usize, 0),
                        RangePiece::Data(stored) => onto.extend_from_slice(within_data(data, stored)?),
                    }
                    Ok(())
                })?;
                return Ok(to - from);
            }
            let read = self.read_entry(&found.entry, &mut record)?;
            let holes = decode_attributes(read.head.attributes)?.holes;
            let descriptor = self.decode_descriptor(found.entry.location, read.content)?;
            pieces(holes.as_ref(), from..to, |piece| {
                match piece {
                    RangePiece::Hole(length) => onto.resize(onto.len() + length as usize, 0),
                    RangePiece::Data(stored) if stored.end > descriptor.stored_bytes => return Err(less_than_stated()),
                    RangePiece::Data(stored) => self.read_units(&descriptor, stored, onto)?,
                }
                Ok(())
            })?;
            Ok(to - from)
        })
    }
}

/// The key of the object in a record that was verified.
pub(super) fn object_key_in(record: &[u8]) -> Vec<u8> {
    Head::parse(record).expect("a record that was verified").object_key()
}

/// Refuses an object that is too large for memory.
///
/// # Errors
/// [`ErrorKind::Usage`] if it is too large to be read whole.
pub(crate) fn refuse_giant(key: &Key, entry: &Entry) -> Result<()> {
    if entry.kind == Kind::Link || entry.size_bytes <= WHOLE_BYTES {
        return Ok(());
    }
    let (size, most) = (format_size(entry.size_bytes.into()), format_size(WHOLE_BYTES.into()));
    Err(Error::new(ErrorKind::Usage, "read", format!("it has {size}; only objects up to {most} are read whole"))
        .at(&key.to_path())
        .advise("read it in pieces: Store::content or Store::read_range, granulo store get or export"))
}

/// As [`refuse_giant`], of a content whose key is not known.
///
/// # Errors
/// [`ErrorKind::Usage`] if it is too large to be read whole.
pub(super) fn refuse_more_than_whole(size_bytes: u64) -> Result<()> {
    if size_bytes <= WHOLE_BYTES {
        return Ok(());
    }
    let (size, most) = (format_size(size_bytes.into()), format_size(WHOLE_BYTES.into()));
    Err(Error::new(ErrorKind::Usage, "read", format!("it has {size}; only objects up to {most} are read whole"))
        .advise("read it in pieces: Store::content or Store::read_range"))
}

/// A part of a range of a file: a number of zeroes, or a range of the stored bytes.
pub(super) enum RangePiece {
    Hole(u64),
    Data(Range<u64>),
}

/// Splits a range of a file into holes and data.
pub(super) fn pieces(
    holes: Option<&Holes>,
    range: Range<u64>,
    mut take: impl FnMut(RangePiece) -> Result<()>,
) -> Result<()> {
    let Some(holes) = holes else { return take(RangePiece::Data(range)) };
    let (mut at, mut stored) = (range.start, 0);
    for &(offset, length) in &holes.data {
        let (from, to) = (offset.max(at), (offset + length).min(range.end));
        if from < to {
            if from > at {
                take(RangePiece::Hole(from - at))?;
            }
            take(RangePiece::Data(stored + from - offset..stored + to - offset))?;
            at = to;
        }
        stored += length;
    }
    if at < range.end { take(RangePiece::Hole(range.end - at)) } else { Ok(()) }
}

fn within_data(data: &[u8], stored: Range<u64>) -> Result<&[u8]> {
    data.get(stored.start as usize..stored.end as usize).ok_or_else(less_than_stated)
}

fn less_than_stated() -> Error {
    Error::new(ErrorKind::Corrupt, "read", "the object has less data than its list of holes states")
}

/// Replaces the content of `spread` with the whole of a sparse file.
pub(crate) fn fill_holes(holes: &Holes, data: &[u8], spread: &mut Vec<u8>) -> Result<()> {
    spread.clear();
    pieces(Some(holes), 0..holes.size_bytes, |piece| {
        match piece {
            RangePiece::Hole(length) => spread.resize(spread.len() + length as usize, 0),
            RangePiece::Data(stored) => spread.extend_from_slice(within_data(data, stored)?),
        }
        Ok(())
    })
}
