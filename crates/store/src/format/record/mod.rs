//! Records: the bytes of one object, or of its removal, in the log (docs/FORMAT.md, section 6).
//!
//! A record is decoded in two steps, each with a checksum: the head (header, name and attributes), then the content.
//! Both steps reject bytes that are no record, torn, or flipped anywhere. The checksum of the head is seeded with the
//! segment and the offset: a misplaced or forged record is invalid. So it is sealed last, once its offset is known.

#![cfg_attr(not(test), warn(clippy::indexing_slicing))]

use twox_hash::XxHash3_64;

use super::entry::Kind;
use super::ids::{LogOffset, ObjectNumber, SegmentId};
use super::index_key::{ROOT_KEY, attributes_key, entry_key, is_name, object_key, superseded_key};
use crate::error::{Error, ErrorKind, Result};
use crate::layout::granulo::{Alignment, Content, MOVED_BYTES, RECORD_HEADER_BYTES};

// Offsets of the fields of a header.
const CHECKSUM_AT: usize = 0;
const KIND_AT: usize = CHECKSUM_AT + 8;
const FLAGS_AT: usize = KIND_AT + 1;
const NAME_LENGTH_AT: usize = FLAGS_AT + 1;
const CONTENT_LENGTH_AT: usize = NAME_LENGTH_AT + 2;
const CONTENT_CHECKSUM_AT: usize = CONTENT_LENGTH_AT + 4;
const NUMBER_AT: usize = CONTENT_CHECKSUM_AT + 8;
const PARENT_AT: usize = NUMBER_AT + SIX;
const SEQUENCE_AT: usize = PARENT_AT + SIX;
const ATTRIBUTES_LENGTH_AT: usize = SEQUENCE_AT + SIX;
const MARK_AT: usize = ATTRIBUTES_LENGTH_AT + 3;
const FRONT_LENGTH_AT: usize = MARK_AT + 1;
/// Length of a record's header.
pub(crate) const HEADER_BYTES: usize = FRONT_LENGTH_AT + 2;
const _: () = assert!(HEADER_BYTES as u64 == RECORD_HEADER_BYTES);

/// Numbers of objects and of records are six bytes long.
const SIX: usize = 6;
/// Bytes after the header of a moved record: the sequence number that superseded it.
const UNTIL_BYTES: usize = SIX;
const _: () = assert!(UNTIL_BYTES as u64 == MOVED_BYTES);

/// The highest sequence number of a record.
pub(crate) const LARGEST_ID: u64 = (1 << 48) - 1;
/// A byte in every header.
const MARK: u8 = 0xb7;

const ZSTD: u8 = 1;
const MOVED: u8 = 2;
const NAME: u8 = 4;
const ATTRIBUTES: u8 = 8;
const CONTENT: u8 = 16;
/// The record's length is a multiple of 512, or of 4,096.
const OF_SECTORS: u8 = 32;
const OF_PAGES: u8 = 64;
const LARGEST_ATTRIBUTES_BYTES: usize = (1 << 24) - 1;

/// The hash behind every checksum of the store.
pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot(bytes)
}

/// Writes the checksum of all that follows it at the beginning of `bytes`, which have room for it, and returns it.
pub(crate) fn put_checksum(bytes: &mut [u8]) -> u64 {
    let (place, rest) = bytes.split_at_mut(8);
    let sum = checksum(rest);
    place.copy_from_slice(&sum.to_le_bytes());
    sum
}

/// Seed of the checksums in a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seed(u64);

/// Seed of the checksum of a record at one offset of one segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seal(u64);

impl SegmentId {
    /// The seed of its checksums.
    pub(crate) fn seed(self, store: &[u8; 16]) -> Seed {
        Seed::new(store, self)
    }
}

impl Seed {
    /// The seed of a segment of a store.
    pub(crate) fn new(store: &[u8; 16], segment: SegmentId) -> Seed {
        let mut bytes = [0; 32];
        bytes[..16].copy_from_slice(store);
        bytes[16..24].copy_from_slice(&segment.epoch.0.to_le_bytes());
        bytes[24..].copy_from_slice(&segment.number.0.to_le_bytes());
        Seed(checksum(&bytes))
    }

    /// The seal for a record at `offset`.
    pub(crate) fn at(self, offset: LogOffset) -> Seal {
        Seal(self.0.wrapping_add(offset.0))
    }
}

impl Seal {
    fn checksum(self, head: &[u8]) -> u64 {
        XxHash3_64::oneshot_with_seed(self.0, head)
    }
}

/// The flag of a record encoded for `alignment`.
fn flag_of(alignment: Alignment) -> u8 {
    match alignment {
        Alignment::None => 0,
        Alignment::Sector => OF_SECTORS,
        Alignment::Page => OF_PAGES,
    }
}

/// The alignment for which a record with these flags was encoded.
fn alignment_of(flags: u8) -> Option<Alignment> {
    match flags & (OF_SECTORS | OF_PAGES) {
        0 => Some(Alignment::None),
        OF_SECTORS => Some(Alignment::Sector),
        OF_PAGES => Some(Alignment::Page),
        _ => None,
    }
}

/// The parts that a record of this kind asserts, with a name or without. `None`: no such record exists.
fn parts(kind: Kind, has_name: bool) -> Option<u8> {
    match (kind, has_name) {
        (Kind::File | Kind::Large | Kind::Directory | Kind::Symlink | Kind::Special, true) => {
            Some(NAME | ATTRIBUTES | CONTENT)
        }
        (Kind::File | Kind::Large | Kind::Symlink | Kind::Special, false) => Some(ATTRIBUTES | CONTENT),
        // The name says where the object was; it does not bring it back.
        (Kind::Attributes, true) => Some(NAME | ATTRIBUTES),
        (Kind::Attributes, false) => Some(ATTRIBUTES),
        (Kind::Link | Kind::Removal, true) => Some(NAME),
        (Kind::TreeRemoval, true) => Some(NAME | CONTENT),
        (Kind::Snapshot, true) => Some(NAME | CONTENT),
        (Kind::Commit | Kind::Release | Kind::Snapshot, false) => Some(CONTENT),
        _ => None,
    }
}

/// A record to be written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewRecord<'a> {
    pub(crate) kind: Kind,
    pub(crate) is_zstd: bool,
    /// For a moved record, the sequence number that superseded it; 0 if none did.
    pub(crate) moved: Option<u64>,
    pub(crate) id: u64,
    /// Number of the object; none if the record has none.
    pub(crate) number: ObjectNumber,
    /// Number of the directory that contains the name; none without a name, for the root, and for a snapshot.
    pub(crate) parent: ObjectNumber,
    /// Name in that directory, empty for the root, a snapshot's own; `None` for shared objects and kinds without one.
    pub(crate) name: Option<&'a [u8]>,
    /// Stored form.
    pub(crate) attributes: &'a [u8],
    /// As stored.
    pub(crate) content: &'a [u8],
}

impl<'a> NewRecord<'a> {
    /// An empty record of a kind, without an object.
    pub(crate) fn of(kind: Kind) -> NewRecord<'a> {
        let (is_zstd, moved, id, number, parent) = (false, None, 0, ObjectNumber::NONE, ObjectNumber::NONE);
        NewRecord { kind, is_zstd, moved, id, number, parent, name: None, attributes: &[], content: &[] }
    }

    /// A record that was read, to be moved, with this content. Sequence number `until` superseded it; 0 if none did.
    pub(crate) fn moved(head: Head<'a>, until: u64, content: &'a [u8]) -> NewRecord<'a> {
        let Head { kind, is_zstd, id, number, parent, name, attributes, .. } = head;
        NewRecord { kind, is_zstd, moved: Some(until), id, number, parent, name, attributes, content }
    }

    /// Appends the record, padded but not sealed, for an offset at which records begin in a segment so aligned.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] if a part is too long for its length field.
    pub(crate) fn encode(&self, alignment: Alignment, onto: &mut Vec<u8>) -> Result<()> {
        let content = match self.kind {
            Kind::File => Content::File,
            Kind::Large => Content::Descriptor,
            _ => Content::Other,
        };
        let until_bytes = if self.moved.is_some() { UNTIL_BYTES } else { 0 };
        let head_bytes = HEADER_BYTES + until_bytes + self.name.map_or(0, <[u8]>::len) + self.attributes.len();
        let padding_bytes = content.padding_bytes(alignment, head_bytes as u64, self.content.len() as u64);
        self.encode_with(padding_bytes, alignment, onto)
    }

    /// Appends the record, not sealed, with `padding_bytes` zeroes before its name and a multiple of `alignment` long.
    ///
    /// # Errors
    /// As [`encode`](Self::encode).
    pub(crate) fn encode_with(&self, padding_bytes: u64, alignment: Alignment, onto: &mut Vec<u8>) -> Result<()> {
        let too_long =
            || Error::new(ErrorKind::Usage, "write the record", "the name, the attributes or the content is too long");
        let name = self.name.unwrap_or_default();
        let name_length = u16::try_from(name.len()).map_err(|_| too_long())?;
        let content_length = u32::try_from(self.content.len()).map_err(|_| too_long())?;
        if self.attributes.len() > LARGEST_ATTRIBUTES_BYTES {
            return Err(too_long());
        }
        let start = onto.len();
        let parts = parts(self.kind, self.name.is_some());
        assert!(parts.is_some(), "a record of kind {:?} has a name, or has none", self.kind);
        let flags = if self.is_zstd { ZSTD } else { 0 } | if self.moved.is_some() { MOVED } else { 0 };
        let flags = parts.unwrap_or_default() | flags | flag_of(alignment);
        let until_bytes = if self.moved.is_some() { UNTIL_BYTES } else { 0 };
        let front_length = u16::try_from(until_bytes as u64 + padding_bytes).map_err(|_| too_long())?;
        onto.extend_from_slice(&[0; KIND_AT]);
        onto.extend_from_slice(&[self.kind as u8, flags]);
        onto.extend_from_slice(&name_length.to_le_bytes());
        onto.extend_from_slice(&content_length.to_le_bytes());
        onto.extend_from_slice(&checksum(self.content).to_le_bytes());
        onto.extend_from_slice(&six(self.number.0));
        onto.extend_from_slice(&six(self.parent.0));
        onto.extend_from_slice(&six(self.id));
        onto.extend_from_slice(&(self.attributes.len() as u32).to_le_bytes()[..3]);
        onto.push(MARK);
        onto.extend_from_slice(&front_length.to_le_bytes());
        if let Some(until) = self.moved {
            onto.extend_from_slice(&six(until));
        }
        onto.resize(onto.len() + padding_bytes as usize, 0);
        onto.extend_from_slice(name);
        onto.extend_from_slice(self.attributes);
        onto.extend_from_slice(self.content);
        onto.resize(start + (onto.len() - start).next_multiple_of(alignment.unit_bytes() as usize), 0);
        Ok(())
    }
}

/// The content checksum stated by an encoded record.
pub(crate) fn content_checksum(record: &[u8]) -> Option<u64> {
    record.get(CONTENT_CHECKSUM_AT..)?.first_chunk().copied().map(u64::from_le_bytes)
}

/// The six bytes of a number.
fn six(number: u64) -> [u8; SIX] {
    let [a, b, c, d, e, f, _, _] = number.to_le_bytes();
    [a, b, c, d, e, f]
}

/// Inverse of [`six`].
fn of_six([a, b, c, d, e, f]: [u8; SIX]) -> u64 {
    u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
}

/// Sets a number in the header of an encoded record.
#[expect(clippy::indexing_slicing, reason = "an encoded record has a whole header")]
fn set_six(record: &mut [u8], at: usize, number: u64) {
    record[at..at + SIX].copy_from_slice(&six(number));
}

/// Sets the sequence number of an encoded record that was not moved. The record must be sealed afterwards.
pub(crate) fn give_id(record: &mut [u8], id: u64) {
    set_six(record, SEQUENCE_AT, id);
}

/// Sets the numbers of object and directory in an encoded record. The record must be sealed afterwards.
pub(crate) fn give_numbers(record: &mut [u8], number: ObjectNumber, parent: ObjectNumber) {
    set_six(record, NUMBER_AT, number.0);
    set_six(record, PARENT_AT, parent.0);
}

/// The content of the tombstone of a tree: the numbers of its directories.
pub(crate) fn encode_directories(numbers: &[ObjectNumber]) -> Vec<u8> {
    let mut content = Vec::with_capacity(numbers.len() * SIX);
    numbers.iter().for_each(|number| content.extend_from_slice(&six(number.0)));
    content
}

/// The directories of a removed tree; `None` if the content is not that of such a record.
pub(crate) fn decode_directories(content: &[u8]) -> Option<Vec<ObjectNumber>> {
    let (numbers, []) = content.as_chunks::<SIX>() else { return None };
    Some(numbers.iter().map(|&number| ObjectNumber(of_six(number))).collect())
}

/// Seals encoded records, the first of which will be at `begin`. Returns what their commit lists for each.
pub(crate) fn seal(records: &mut [u8], seed: Seed, begin: LogOffset) -> Vec<ListedRecord> {
    let mut list = Vec::new();
    let mut at = 0;
    while let Some((lengths, place, head)) = records.get_mut(at..).and_then(unsealed) {
        let sum = seed.at(LogOffset(begin.0 + at as u64)).checksum(head);
        *place = sum.to_le_bytes();
        list.push(ListedRecord { record_bytes: lengths.record_bytes() as u64, checksum: sum as u32 });
        at += lengths.record_bytes();
    }
    assert_eq!(at, records.len(), "what is sealed are encoded records");
    list
}

/// The first of encoded records: its lengths, the place of the checksum of its head, and the rest of its head.
fn unsealed(records: &mut [u8]) -> Option<(Lengths, &mut [u8; KIND_AT], &mut [u8])> {
    let lengths = Lengths::peek(records)?;
    let (place, head) = records.get_mut(..lengths.head_bytes())?.split_first_chunk_mut()?;
    Some((lengths, place, head))
}

/// What a commit lists for a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ListedRecord {
    /// Length with padding.
    pub(crate) record_bytes: u64,
    /// Low half of the checksum of its head.
    pub(crate) checksum: u32,
}

/// The lengths in a header before anything is verified: enough to know how much to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lengths {
    /// Bytes before the name: what only a moved record has, and zeroes.
    front: u16,
    pub(crate) name: usize,
    pub(crate) attributes: usize,
    pub(crate) content: usize,
    alignment: Alignment,
}

impl Lengths {
    /// The lengths in the first [`HEADER_BYTES`]; `None` if they are not a header.
    pub(crate) fn peek(bytes: &[u8]) -> Option<Lengths> {
        let header: &[u8; HEADER_BYTES] = bytes.first_chunk()?;
        let name = u16::from_le_bytes(*header[NAME_LENGTH_AT..].first_chunk()?);
        let content = u32::from_le_bytes(*header[CONTENT_LENGTH_AT..].first_chunk()?);
        let [low, middle, high] = *header[ATTRIBUTES_LENGTH_AT..].first_chunk()?;
        let lengths = Lengths {
            front: u16::from_le_bytes(*header[FRONT_LENGTH_AT..].first_chunk()?),
            name: name.into(),
            attributes: u32::from_le_bytes([low, middle, high, 0]) as usize,
            content: content as usize,
            alignment: alignment_of(header[FLAGS_AT])?,
        };
        (header[MARK_AT] == MARK && kind_of(header).is_some()).then_some(lengths)
    }

    /// Length of header, the field of a moved record, zeroes before the name, name and attributes.
    pub(crate) fn head_bytes(&self) -> usize {
        HEADER_BYTES + usize::from(self.front) + self.name + self.attributes
    }

    /// The whole record with padding.
    pub(crate) fn record_bytes(&self) -> usize {
        (self.head_bytes() + self.content).next_multiple_of(self.alignment.unit_bytes() as usize)
    }
}

/// The kind in a header, before anything is verified.
pub(crate) fn kind_of(header: &[u8]) -> Option<Kind> {
    header.get(KIND_AT).copied().and_then(Kind::from_byte)
}

/// The head of a record, with a valid checksum.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Head<'a> {
    pub(crate) kind: Kind,
    pub(crate) is_zstd: bool,
    pub(crate) id: u64,
    /// Whether it was moved: its batch is that of the move.
    pub(crate) is_moved: bool,
    /// For a moved record, the sequence number that had superseded it before; 0 if none had.
    pub(crate) until: u64,
    /// Number of the object; none if the record has none.
    pub(crate) number: ObjectNumber,
    /// Number of the directory that contains the name; none without a name, for the root, and for a snapshot.
    pub(crate) parent: ObjectNumber,
    pub(crate) lengths: Lengths,
    pub(crate) head_checksum: u64,
    pub(crate) content_checksum: u64,
    /// Name in that directory, empty for the root, a snapshot's own; `None` for shared objects and kinds without one.
    pub(crate) name: Option<&'a [u8]>,
    /// Stored form.
    pub(crate) attributes: &'a [u8],
}

impl<'a> Head<'a> {
    /// Decodes the head at the beginning of `bytes`; `None` if it is incomplete, invalid, or sealed for another place.
    pub(crate) fn decode(bytes: &'a [u8], seal: Seal) -> Option<Head<'a>> {
        let head = Head::parse(bytes)?;
        let covered = bytes.get(KIND_AT..head.lengths.head_bytes())?;
        (head.head_checksum == seal.checksum(covered)).then_some(head)
    }

    /// Decodes the head at the beginning of `bytes`; `None` if its form is none of the format. Its checksum is not
    /// verified: for bytes that [`decode`](Self::decode) has verified.
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<Head<'a>> {
        let lengths = Lengths::peek(bytes)?;
        let (header, rest) = bytes.get(..lengths.head_bytes())?.split_first_chunk::<HEADER_BYTES>()?;
        let (front, rest) = rest.split_at_checked(lengths.front.into())?;
        let (name, attributes) = rest.split_at_checked(lengths.name)?;
        let kind = kind_of(header)?;
        let flags = header[FLAGS_AT];
        let (until, padding) = match flags & MOVED {
            0 => (0, front),
            _ => front.split_first_chunk().map(|(until, padding)| (of_six(*until), padding))?,
        };
        let id = of_six(*header[SEQUENCE_AT..].first_chunk()?);
        let number = ObjectNumber(of_six(*header[NUMBER_AT..].first_chunk()?));
        let parent = ObjectNumber(of_six(*header[PARENT_AT..].first_chunk()?));
        let has_name = flags & NAME != 0;
        let sound = Some(flags & !(ZSTD | MOVED | OF_SECTORS | OF_PAGES)) == parts(kind, has_name)
            && (flags & ATTRIBUTES != 0 || attributes.is_empty())
            && (flags & CONTENT != 0 || lengths.content == 0)
            && (flags & ZSTD == 0 || kind == Kind::File)
            && match (has_name, kind) {
                (false, _) => name.is_empty() && parent.is_none(),
                (true, Kind::Snapshot) => is_name(name) && parent.is_none(),
                // The root.
                (true, Kind::Directory | Kind::TreeRemoval) if parent.is_none() => name.is_empty(),
                (true, _) => is_name(name) && !parent.is_none(),
            }
            && padding.iter().all(|&byte| byte == 0)
            && number.is_none() != (kind.is_used() || kind == Kind::TreeRemoval)
            && (until == 0 || until > id && kind.is_used());
        let head = Head {
            kind,
            is_zstd: flags & ZSTD != 0,
            id,
            is_moved: flags & MOVED != 0,
            until,
            number,
            parent,
            lengths,
            head_checksum: u64::from_le_bytes(*header.first_chunk()?),
            content_checksum: u64::from_le_bytes(*header[CONTENT_CHECKSUM_AT..].first_chunk()?),
            name: has_name.then_some(name),
            attributes,
        };
        sound.then_some(head)
    }

    /// The record's key in the index, now or before it was superseded; for kinds without an object, a key never in it.
    pub(crate) fn key(&self) -> Vec<u8> {
        let object = self.object_key();
        let key = if self.kind == Kind::Attributes { attributes_key(&object) } else { object };
        if self.until > 0 { superseded_key(&key, self.until) } else { key }
    }

    /// The key of its object; for an attributes record not its own, for a superseded record that which it had.
    pub(crate) fn object_key(&self) -> Vec<u8> {
        match self.name {
            Some([]) => ROOT_KEY.to_vec(),
            Some(name) => entry_key(self.parent, name),
            None => object_key(self.number).to_vec(),
        }
    }

    /// What its commit lists for it.
    pub(crate) fn listed(&self) -> ListedRecord {
        ListedRecord { record_bytes: self.lengths.record_bytes() as u64, checksum: self.head_checksum as u32 }
    }
}

/// A record whose head and content are verified.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Record<'a> {
    pub(crate) head: Head<'a>,
    /// As stored.
    pub(crate) content: &'a [u8],
}

impl<'a> Record<'a> {
    /// Decodes the record at the start of `bytes`; `None` if it is incomplete, invalid, or sealed for another place.
    pub(crate) fn decode(bytes: &'a [u8], seal: Seal) -> Option<Record<'a>> {
        let head = Head::decode(bytes, seal)?;
        let record = bytes.get(..head.lengths.record_bytes())?;
        let (content, padding) = record.get(head.lengths.head_bytes()..)?.split_at_checked(head.lengths.content)?;
        let sound = checksum(content) == head.content_checksum && padding.iter().all(|&byte| byte == 0);
        sound.then_some(Record { head, content })
    }

    /// Decodes the record at the beginning of `bytes`, without verifying its checksums, as [`Head::parse`].
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<Record<'a>> {
        let head = Head::parse(bytes)?;
        let start = head.lengths.head_bytes();
        Some(Record { head, content: bytes.get(start..start + head.lengths.content)? })
    }

    /// Length with padding, in bytes.
    pub(crate) fn record_bytes(&self) -> u64 {
        self.head.lengths.record_bytes() as u64
    }
}

#[cfg(test)]
mod tests;
