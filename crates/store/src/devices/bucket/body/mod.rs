//! The body of a manifest: the files of a volume, who may publish, and what is to be deleted, in bytes (docs/FORMAT.md,
//! section 12.1, defines them).
//!
//! Decoding trusts nothing: a count is compared with the bytes that are left before anything is allocated for it, a
//! range lies in its object, and what is decoded satisfies the invariants of the table.

#![cfg_attr(not(test), warn(clippy::indexing_slicing))]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::devices::bucket::dropped::Dropped;
use crate::devices::bucket::lease::Lease;
use crate::devices::bucket::pieces::{LARGEST_BYTES, Pieces, Source};
use crate::devices::bucket::remembered::Remembered;
use crate::devices::bucket::table::{FileNumber, FileTable};
use crate::devices::objects::counts::Requests;
use crate::devices::published::{ObjectName, Process, PublishedObject};
use crate::format::decode::Decoder;
use crate::format::geometry::Class;
use crate::format::ids::Epoch;
use crate::io::varint;

const MAGIC: &[u8; 8] = b"granvol\0";
pub(crate) const FORMAT_VERSION: u16 = 1;
/// Bytes of the tag and the length of a section.
const SECTION_BYTES: usize = 1 + 4;

const LEASE: u8 = 1;
const DIRECTORIES: u8 = 4;
const FILES: u8 = 5;
const INLINE: u8 = 6;
const NEXT: u8 = 7;
const DROPPED: u8 = 8;
const SPENT: u8 = 9;
const REMEMBERED: u8 = 10;
/// In this order, each once; then what is remembered, unless that is nothing.
const SECTIONS: [u8; 7] = [LEASE, DIRECTORIES, FILES, INLINE, NEXT, DROPPED, SPENT];
/// Where the first section begins: the lease, so that it can be exchanged.
const LEASE_AT: usize = MAGIC.len() + 2;

/// Flag of a lease: nobody holds it.
const RELEASED: u8 = 1;

const HOLE: u8 = 0;
const IN_OBJECT: u8 = 1;
const IN_BODY: u8 = 2;
/// Least bytes of a file, and of a piece.
const LEAST_FILE_BYTES: usize = 5;
const LEAST_PIECE_BYTES: usize = 2;
/// Bytes of an epoch, and least bytes of a dropped object.
const EPOCH_BYTES: usize = 8;
const LEAST_DROPPED_BYTES: usize = 3 + NONCE_BYTES;
const NONCE_BYTES: usize = 4;

/// Why bytes are not a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyError {
    Damaged,
    /// Of a later version.
    Newer(u16),
}

/// What a version of a volume is.
#[derive(Debug, Clone, Default)]
pub(crate) struct Body {
    pub(crate) lease: Lease,
    pub(crate) table: FileTable,
    pub(crate) dropped: Dropped,
    /// Requests of all writers so far.
    pub(crate) spent: Requests,
    pub(crate) remembered: Remembered,
}

/// Encodes a body, with the files that have names. Bytes in memory go into it.
///
/// `objects` has the index of each object that is referred to, by number.
pub(crate) fn encode(body: &Body, objects: &BTreeMap<u64, u64>) -> Vec<u8> {
    let Body { lease, table, dropped, spent, remembered } = body;
    let (mut directories, mut files, mut inline, mut next) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    varint::put(&mut directories, table.directories().len() as u64);
    let mut before = "";
    for path in table.directories() {
        put_path(&mut directories, before, path);
        before = path;
    }
    varint::put(&mut files, table.named().count() as u64);
    before = "";
    for (path, number, pieces) in table.named() {
        put_path(&mut files, before, path);
        varint::put(&mut files, number.0);
        put_pieces(&mut files, &mut inline, pieces, objects);
        before = path;
    }
    varint::put(&mut next, table.next().0);
    let mut requests = Vec::new();
    spent.numbers().into_iter().for_each(|number| varint::put(&mut requests, number));
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
    let sections = [encode_lease(lease), directories, files, inline, next, encode_dropped(dropped), requests];
    for (tag, section) in SECTIONS.into_iter().zip(sections) {
        put_section(&mut bytes, tag, &section);
    }
    if *remembered != Remembered::default() {
        put_section(&mut bytes, REMEMBERED, &encode_remembered(remembered));
    }
    bytes
}

fn put_section(onto: &mut Vec<u8>, tag: u8, section: &[u8]) {
    onto.push(tag);
    onto.extend_from_slice(&(section.len() as u32).to_le_bytes());
    onto.extend_from_slice(section);
}

fn encode_lease(lease: &Lease) -> Vec<u8> {
    let Lease { is_released, holder, renewed_milliseconds } = lease;
    let mut bytes = vec![if *is_released { RELEASED } else { 0 }];
    for number in [*renewed_milliseconds, holder.number.into(), holder.began] {
        varint::put(&mut bytes, number);
    }
    for text in [&holder.host, &holder.machine] {
        varint::put(&mut bytes, text.len() as u64);
        bytes.extend_from_slice(text.as_bytes());
    }
    bytes
}

/// A class that nobody has named is an empty text, and a time 0; any other is one more than it is.
fn encode_remembered(remembered: &Remembered) -> Vec<u8> {
    let Remembered { fast_class, slow_class, grace_seconds } = remembered;
    let mut bytes = Vec::new();
    for class in [fast_class, slow_class] {
        let class = class.as_deref().unwrap_or_default();
        varint::put(&mut bytes, class.len() as u64);
        bytes.extend_from_slice(class.as_bytes());
    }
    varint::put(&mut bytes, grace_seconds.map_or(0, |seconds| seconds.saturating_add(1)));
    bytes
}

fn encode_dropped(dropped: &Dropped) -> Vec<u8> {
    let epochs: BTreeSet<u64> = dropped.rows().map(|(_, name)| name.epoch.0).collect();
    let mut bytes = Vec::new();
    varint::put(&mut bytes, epochs.len() as u64);
    epochs.iter().for_each(|epoch| bytes.extend_from_slice(&epoch.to_le_bytes()));
    let indexes: BTreeMap<u64, u64> = epochs.into_iter().zip(0..).collect();
    varint::put(&mut bytes, dropped.rows().len() as u64);
    let mut before = 0;
    for (seconds, name) in dropped.rows() {
        let of_epoch = indexes.get(&name.epoch.0).copied().expect("every epoch has an index");
        varint::put(&mut bytes, seconds - before);
        varint::put(&mut bytes, of_epoch << 1 | u64::from(name.class == Class::Slow));
        varint::put(&mut bytes, name.number);
        bytes.extend_from_slice(&name.nonce.to_le_bytes());
        before = seconds;
    }
    bytes
}

/// A body with another lease, and everything else the same.
///
/// # Errors
/// It is none.
pub(crate) fn with_lease(body: &[u8], lease: &Lease) -> Result<Vec<u8>, BodyError> {
    let (begin, rest) = body.split_at_checked(LEASE_AT).ok_or(BodyError::Damaged)?;
    let mut decoder = Decoder::new(rest);
    take_section(&mut decoder, LEASE).ok_or(BodyError::Damaged)?;
    let mut bytes = begin.to_vec();
    put_section(&mut bytes, LEASE, &encode_lease(lease));
    bytes.extend_from_slice(decoder.rest());
    Ok(bytes)
}

/// A path, without what it shares with the one before.
fn put_path(onto: &mut Vec<u8>, before: &str, path: &str) {
    let same = before.bytes().zip(path.bytes()).take_while(|(one, other)| one == other).count();
    let rest = path.as_bytes().get(same..).unwrap_or_default();
    varint::put(onto, same as u64);
    varint::put(onto, rest.len() as u64);
    onto.extend_from_slice(rest);
}

/// Encodes the pieces of one file, and appends its bytes in memory to `inline`, in the order of the pieces. `objects`
/// maps the number of an object to its index in the manifest.
fn put_pieces(onto: &mut Vec<u8>, inline: &mut Vec<u8>, pieces: &Pieces, objects: &BTreeMap<u64, u64>) {
    let (mut count, mut encoded, mut in_body) = (0, Vec::new(), 0);
    // A body with two pieces of this kind in a row is refused, so neighbours in memory become one. Returns how many
    // pieces that adds.
    let end_in_body = |in_body: &mut u64, encoded: &mut Vec<u8>| {
        let length = std::mem::take(in_body);
        if length > 0 {
            encoded.push(IN_BODY);
            varint::put(encoded, length);
        }
        u64::from(length > 0)
    };
    for piece in pieces.iter() {
        if let Some(bytes) = piece.bytes() {
            inline.extend_from_slice(bytes);
            in_body += piece.length;
            continue;
        }
        count += end_in_body(&mut in_body, &mut encoded) + 1;
        let Source::Object { object, offset } = &piece.source else {
            encoded.push(HOLE);
            varint::put(&mut encoded, piece.length);
            continue;
        };
        encoded.push(IN_OBJECT);
        varint::put(&mut encoded, piece.length);
        let index = objects.get(&object.number()).copied();
        varint::put(&mut encoded, index.expect("every object that is referred to has an index"));
        varint::put(&mut encoded, *offset);
    }
    count += end_in_body(&mut in_body, &mut encoded);
    varint::put(onto, count);
    onto.extend_from_slice(&encoded);
}

/// Decodes a body; `objects` are those of its manifest, in order.
///
/// # Errors
/// It is of a later version, or contradicts itself or the objects.
pub(crate) fn decode(bytes: &[u8], objects: &[Arc<PublishedObject>]) -> Result<Body, BodyError> {
    let mut decoder = Decoder::new(bytes);
    if decoder.take(MAGIC.len()) != Some(MAGIC) {
        return Err(BodyError::Damaged);
    }
    match decoder.u16() {
        Some(FORMAT_VERSION) => {}
        Some(version) if version > FORMAT_VERSION => return Err(BodyError::Newer(version)),
        _ => return Err(BodyError::Damaged),
    }
    body_of(decoder, objects).ok_or(BodyError::Damaged)
}

/// The next section, if it has this tag.
fn take_section<'b>(decoder: &mut Decoder<'b>, tag: u8) -> Option<&'b [u8]> {
    let mut head = Decoder::new(decoder.take(SECTION_BYTES)?);
    let is_due = head.u8()? == tag;
    decoder.take(head.u32()? as usize).filter(|_| is_due)
}

fn body_of(mut decoder: Decoder<'_>, objects: &[Arc<PublishedObject>]) -> Option<Body> {
    let mut section = |tag: u8| take_section(&mut decoder, tag).map(Cursor::new);
    let mut lease = section(LEASE)?;
    let (mut directories, mut files) = (section(DIRECTORIES)?, section(FILES)?);
    let (inline, mut next, mut dropped) = (section(INLINE)?.rest(), section(NEXT)?, section(DROPPED)?);
    let mut spent = section(SPENT)?;
    let remembered = match decoder.rest() {
        [] => None,
        _ => Some(Cursor::new(take_section(&mut decoder, REMEMBERED)?)),
    };
    let mut table = FileTable::default();
    let mut path = Vec::new();
    for _ in 0..directories.number()? {
        let before = path.clone();
        directories.path(&mut path)?;
        // One that is above the next is there before it.
        table.create_directory(std::str::from_utf8(&path).ok().filter(|_| before < path)?).ok()?;
    }
    let mut inline = Inline { bytes: Arc::new(inline.to_vec()), used: 0 };
    let (count, end) = (files.count(LEAST_FILE_BYTES)?, FileNumber(next.number()?));
    path.clear();
    for _ in 0..count {
        let before = path.clone();
        files.path(&mut path)?;
        let number = FileNumber(files.number()?);
        let pieces = files.pieces(objects, &mut inline)?;
        let is_next = before < path && number < end;
        table.insert(std::str::from_utf8(&path).ok().filter(|_| is_next)?, number, pieces).ok()?;
    }
    table.set_next(end);
    let mut body =
        Body { lease: lease.lease()?, table, dropped: dropped.dropped()?, spent: spent.requests()?, ..Body::default() };
    if let Some(mut remembered) = remembered {
        body.remembered = remembered.remembered().filter(|_| remembered.rest().is_empty())?;
    }
    let is_read = [lease, directories, files, next, dropped, spent].iter().all(|section| section.rest().is_empty());
    (is_read && decoder.rest().is_empty() && inline.used == inline.bytes.len()).then_some(body)
}

/// The bytes in the body, used in the order of the files.
struct Inline {
    bytes: Arc<Vec<u8>>,
    used: usize,
}

impl Inline {
    fn take(&mut self, length: u64) -> Option<Source> {
        let offset = self.used;
        self.used = offset.checked_add(usize::try_from(length).ok()?)?;
        (self.used <= self.bytes.len()).then(|| Source::Bytes { bytes: Arc::clone(&self.bytes), offset })
    }
}

/// A position in a section.
struct Cursor<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl<'b> Cursor<'b> {
    fn new(bytes: &'b [u8]) -> Cursor<'b> {
        Cursor { bytes, at: 0 }
    }

    fn rest(&self) -> &'b [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    fn number(&mut self) -> Option<u64> {
        varint::take(self.bytes, &mut self.at)
    }

    /// A count of things that need at least `least` bytes each.
    fn count(&mut self, least: usize) -> Option<usize> {
        let count = usize::try_from(self.number()?).ok()?;
        (count.checked_mul(least)? <= self.rest().len()).then_some(count)
    }

    fn byte(&mut self) -> Option<u8> {
        varint::take_bytes(self.bytes, &mut self.at, 1)?.first().copied()
    }

    fn text(&mut self) -> Option<String> {
        let length = self.number()?;
        let bytes = varint::take_bytes(self.bytes, &mut self.at, length)?;
        std::str::from_utf8(bytes).ok().map(str::to_owned)
    }

    fn lease(&mut self) -> Option<Lease> {
        let flags = self.byte().filter(|flags| flags & !RELEASED == 0)?;
        let (renewed_milliseconds, number, began) =
            (self.number()?, u32::try_from(self.number()?).ok()?, self.number()?);
        let mut holder = Process::default();
        (holder.number, holder.began) = (number, began);
        (holder.host, holder.machine) = (self.text()?, self.text()?);
        Some(Lease { is_released: flags == RELEASED, holder, renewed_milliseconds })
    }

    fn requests(&mut self) -> Option<Requests> {
        let mut numbers = [0; Requests::NUMBERS];
        for number in &mut numbers {
            *number = self.number()?;
        }
        Some(Requests::of_numbers(numbers))
    }

    fn remembered(&mut self) -> Option<Remembered> {
        let mut class = || self.text().map(|class| Some(class).filter(|class| !class.is_empty()));
        let (fast_class, slow_class) = (class()?, class()?);
        let grace_seconds = self.number()?.checked_sub(1);
        Some(Remembered { fast_class, slow_class, grace_seconds })
    }

    fn dropped(&mut self) -> Option<Dropped> {
        let count = self.count(EPOCH_BYTES)?;
        let mut epochs = Vec::with_capacity(count);
        for _ in 0..count {
            let bytes = varint::take_bytes(self.bytes, &mut self.at, EPOCH_BYTES as u64)?;
            epochs.push(Epoch(u64::from_le_bytes(bytes.try_into().ok()?)));
        }
        let (mut dropped, mut seconds) = (Dropped::default(), 0_u64);
        for _ in 0..self.count(LEAST_DROPPED_BYTES)? {
            seconds = seconds.checked_add(self.number()?)?;
            let kind = self.number()?;
            let epoch = *epochs.get(usize::try_from(kind >> 1).ok()?)?;
            let class = if kind & 1 == 0 { Class::Fast } else { Class::Slow };
            let number = self.number()?;
            let nonce = varint::take_bytes(self.bytes, &mut self.at, NONCE_BYTES as u64)?;
            let name = ObjectName { number, epoch, nonce: u32::from_le_bytes(nonce.try_into().ok()?), class };
            dropped.add(seconds, name).then_some(())?;
        }
        Some(dropped)
    }

    /// The path after `path`, which becomes it.
    fn path(&mut self, path: &mut Vec<u8>) -> Option<()> {
        let same = usize::try_from(self.number()?).ok().filter(|same| *same <= path.len())?;
        let length = self.number()?;
        path.truncate(same);
        path.extend_from_slice(varint::take_bytes(self.bytes, &mut self.at, length)?);
        Some(())
    }

    fn pieces(&mut self, objects: &[Arc<PublishedObject>], inline: &mut Inline) -> Option<Pieces> {
        let mut pieces = Pieces::default();
        let mut before = None;
        for _ in 0..self.count(LEAST_PIECE_BYTES)? {
            let kind = self.byte()?;
            let length = self.number()?;
            let is_sound = length > 0 && pieces.size_bytes().checked_add(length)? <= LARGEST_BYTES;
            let source = match kind {
                HOLE => Source::Hole,
                IN_OBJECT => {
                    let object = objects.get(usize::try_from(self.number()?).ok()?)?;
                    let offset = self.number()?;
                    let is_in_it = offset.checked_add(length)? <= object.length_bytes();
                    Source::Object { object: Arc::clone(Some(object).filter(|_| is_in_it)?), offset }
                }
                IN_BODY if before != Some(IN_BODY) => inline.take(length)?,
                _ => return None,
            };
            pieces.append(length, Some(source).filter(|_| is_sound)?);
            before = Some(kind);
        }
        Some(pieces)
    }
}

#[cfg(test)]
pub(crate) mod tests;
