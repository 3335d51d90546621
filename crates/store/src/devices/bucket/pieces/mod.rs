//! The bytes of one file, as pieces: holes, ranges of objects, and bytes in memory.
//!
//! Invariants: pieces cover the file from 0 to its size without gaps, and none is empty. Neighbours that are one range
//! are one piece, except of bytes in memory. Bytes that a clone of the pieces shows never change: they are extended or
//! overwritten in place only while nobody else has them. So a clone is a snapshot, and cheap.

#![cfg_attr(not(test), warn(clippy::indexing_slicing))]

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use crate::devices::published::PublishedObject;

/// Upper bound of sizes, so that no sum overflows.
pub(crate) const LARGEST_BYTES: u64 = u64::MAX >> 2;

/// Where the bytes of a piece are.
#[derive(Debug, Clone)]
pub(crate) enum Source {
    /// Nowhere: they are zero.
    Hole,
    /// In an object, from an offset.
    Object { object: Arc<PublishedObject>, offset: u64 },
    /// In memory, from an offset: in the body of the manifest too, or published nowhere.
    Bytes { bytes: Arc<Vec<u8>>, offset: usize },
}

impl Source {
    /// The same, `by` bytes further.
    fn further(&self, by: u64) -> Source {
        match self {
            Source::Hole => Source::Hole,
            Source::Object { object, offset } => Source::Object { object: Arc::clone(object), offset: offset + by },
            Source::Bytes { bytes, offset } => Source::Bytes { bytes: Arc::clone(bytes), offset: offset + by as usize },
        }
    }

    /// Whether it is the same place in the same object.
    fn is_at(&self, other: &Source) -> bool {
        match (self, other) {
            (Source::Object { object, offset }, Source::Object { object: other, offset: begin }) => {
                object.number() == other.number() && offset == begin
            }
            _ => false,
        }
    }

    /// Whether `next` begins where `length` bytes of this end.
    fn leads_to(&self, length: u64, next: &Source) -> bool {
        match (self, next) {
            (Source::Hole, Source::Hole) => true,
            (Source::Object { object, offset }, Source::Object { object: other, offset: begin }) => {
                object.number() == other.number() && offset + length == *begin
            }
            (Source::Bytes { bytes, offset }, Source::Bytes { bytes: other, offset: begin }) => {
                Arc::ptr_eq(bytes, other) && *offset + length as usize == *begin
            }
            _ => false,
        }
    }
}

/// A range of a file.
#[derive(Debug, Clone)]
pub(crate) struct Piece {
    /// Where it begins in the file.
    pub(crate) at: u64,
    pub(crate) length: u64,
    pub(crate) source: Source,
}

impl Piece {
    pub(crate) fn end(&self) -> u64 {
        self.at + self.length
    }

    /// The part of it in a range that it meets.
    pub(in crate::devices::bucket) fn within(&self, range: &Range<u64>) -> Piece {
        let (at, end) = (self.at.max(range.start), self.end().min(range.end));
        Piece { at, length: end - at, source: self.source.further(at - self.at) }
    }

    /// Its bytes, if they are in memory.
    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        let Source::Bytes { bytes, offset } = &self.source else { return None };
        Some(bytes.get(*offset..*offset + self.length as usize).expect("a piece lies in its bytes"))
    }
}

/// What became of bytes in memory: they are in an object now.
#[derive(Debug)]
struct Move {
    /// Kept, so that no other bytes get their address.
    bytes: Arc<Vec<u8>>,
    offset: usize,
    length: u64,
    object: Arc<PublishedObject>,
    object_offset: u64,
}

/// Bytes in memory that were put into objects.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    /// By the address of the bytes.
    moved: HashMap<usize, Vec<Move>>,
}

impl Moves {
    /// A piece in memory is in an object, from an offset.
    pub(crate) fn add(&mut self, piece: &Piece, object: &Arc<PublishedObject>, object_offset: u64) {
        if let Source::Bytes { bytes, offset } = &piece.source {
            let (bytes, offset, object) = (Arc::clone(bytes), *offset, Arc::clone(object));
            let moves = self.moved.entry(Arc::as_ptr(&bytes).addr()).or_default();
            moves.push(Move { bytes, offset, length: piece.length, object, object_offset });
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.moved.is_empty()
    }

    /// The pieces that a piece becomes.
    fn apply(&self, piece: Piece, onto: &mut Pieces) {
        let Source::Bytes { bytes, offset } = &piece.source else { return onto.push(piece) };
        let moves = self.moved.get(&Arc::as_ptr(bytes).addr()).map_or(&[][..], Vec::as_slice);
        let (begin, end) = (*offset, *offset + piece.length as usize);
        let mut cuts: Vec<usize> = moves
            .iter()
            .flat_map(|moved| [moved.offset, moved.offset + moved.length as usize])
            .filter(|cut| (begin + 1..end).contains(cut))
            .chain([begin, end])
            .collect();
        cuts.sort_unstable();
        cuts.dedup();
        for (from, to) in cuts.iter().zip(cuts.iter().skip(1)) {
            let covers = |moved: &&Move| {
                Arc::ptr_eq(&moved.bytes, bytes) && moved.offset <= *from && *to <= moved.offset + moved.length as usize
            };
            let source = match moves.iter().find(covers) {
                Some(moved) => Source::Object {
                    object: Arc::clone(&moved.object),
                    offset: moved.object_offset + (from - moved.offset) as u64,
                },
                None => Source::Bytes { bytes: Arc::clone(bytes), offset: *from },
            };
            onto.push(Piece { at: piece.at + (from - begin) as u64, length: (to - from) as u64, source });
        }
    }
}

/// The pieces of a file.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pieces {
    pieces: Vec<Piece>,
}

impl Pieces {
    /// Size of the file in bytes.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.pieces.last().map_or(0, Piece::end)
    }

    pub(crate) fn iter(&self) -> std::slice::Iter<'_, Piece> {
        self.pieces.iter()
    }

    /// Appends a piece, which begins at the end.
    pub(crate) fn push(&mut self, piece: Piece) {
        debug_assert_eq!(piece.at, self.size_bytes(), "pieces have no gaps");
        match self.pieces.last_mut() {
            _ if piece.length == 0 => {}
            Some(last) if last.source.leads_to(last.length, &piece.source) => last.length += piece.length,
            _ => self.pieces.push(piece),
        }
    }

    /// Appends `length` bytes of a source.
    pub(crate) fn append(&mut self, length: u64, source: Source) {
        self.push(Piece { at: self.size_bytes(), length, source });
    }

    /// Index of the piece with a byte, or of the end.
    fn index_of(&self, at: u64) -> usize {
        self.pieces.partition_point(|piece| piece.end() <= at)
    }

    /// What there is of a range.
    pub(crate) fn within(&self, range: Range<u64>) -> impl Iterator<Item = Piece> {
        let pieces = self.pieces.get(self.index_of(range.start)..).unwrap_or_default();
        let end = range.end;
        pieces.iter().take_while(move |piece| piece.at < end).map(move |piece| piece.within(&range))
    }

    /// Writes bytes; a gap before them becomes a hole.
    pub(crate) fn write(&mut self, at: u64, data: &[u8]) {
        let size_bytes = self.size_bytes();
        if data.is_empty() {
            return;
        }
        if at > size_bytes {
            self.append(at - size_bytes, Source::Hole);
        }
        if !self.write_in_place(at, data) {
            self.splice(at, data.len() as u64, Source::Bytes { bytes: Arc::new(data.to_vec()), offset: 0 });
        }
    }

    /// Overwrites or extends bytes in memory that nobody else has; returns whether there are any.
    fn write_in_place(&mut self, at: u64, data: &[u8]) -> bool {
        let is_append = at == self.size_bytes();
        let index = if is_append { self.pieces.len().wrapping_sub(1) } else { self.index_of(at) };
        let Some(piece) = self.pieces.get_mut(index) else { return false };
        let end = piece.end();
        let Source::Bytes { bytes, offset } = &mut piece.source else { return false };
        let Some(bytes) = Arc::get_mut(bytes) else { return false };
        let from = *offset + (at - piece.at) as usize;
        if is_append {
            // Bytes behind the piece were truncated, or belong to nobody.
            bytes.truncate(from);
            bytes.extend_from_slice(data);
            piece.length += data.len() as u64;
            return true;
        }
        let is_within = at + data.len() as u64 <= end;
        let place = bytes.get_mut(from..from + data.len()).filter(|_| is_within);
        place.map(|place| place.copy_from_slice(data)).is_some()
    }

    /// Replaces a range, which begins at or before the end, with bytes that no neighbour continues.
    fn splice(&mut self, at: u64, length: u64, source: Source) {
        let end = at + length;
        let (first, last) = (self.index_of(at), self.pieces.partition_point(|piece| piece.at < end));
        let met = self.pieces.get(first..last).unwrap_or_default();
        let before = met.first().filter(|piece| piece.at < at).map(|piece| piece.within(&(0..at)));
        let after = met.last().filter(|piece| piece.end() > end).map(|piece| piece.within(&(end..u64::MAX)));
        let between = Piece { at, length, source };
        self.pieces.splice(first..last, before.into_iter().chain([between]).chain(after));
    }

    /// Replaces pieces in a row, which are of objects, by one, if they are all still there; returns whether they are.
    pub(crate) fn exchange(&mut self, run: &[Piece], source: Source) -> bool {
        let (Some(first), Some(last)) = (run.first(), run.last()) else { return false };
        let range = first.at..last.end();
        let is_same = |one: &Piece, other: &Piece| {
            (one.at, one.length) == (other.at, other.length) && one.source.is_at(&other.source)
        };
        let found: Vec<Piece> = self.within(range.clone()).collect();
        let is_there = found.len() == run.len() && found.iter().zip(run).all(|(one, other)| is_same(one, other));
        if is_there {
            self.splice(range.start, range.end - range.start, source);
        }
        is_there
    }

    /// Truncates the file, or extends it by a hole.
    pub(crate) fn set_size(&mut self, size_bytes: u64) {
        let before = self.size_bytes();
        if size_bytes >= before {
            return self.append(size_bytes - before, Source::Hole);
        }
        self.pieces.truncate(self.index_of(size_bytes) + 1);
        match self.pieces.last_mut() {
            Some(last) if last.at < size_bytes => last.length = size_bytes - last.at,
            _ => drop(self.pieces.pop()),
        }
    }

    /// The bytes in memory around one of them, without anything else in between; nothing if it is not in memory.
    pub(crate) fn run_around(&self, at: u64) -> Range<u64> {
        let (before, after) = self.pieces.split_at(self.index_of(at));
        let is_in_memory = |piece: &&Piece| piece.bytes().is_some();
        let Some(last) = after.iter().take_while(is_in_memory).last() else { return at..at };
        let first = before.iter().rev().take_while(is_in_memory).last().or(after.first());
        first.map_or(at, |piece| piece.at)..last.end()
    }

    /// Number of bytes in memory.
    pub(crate) fn in_memory_bytes(&self) -> u64 {
        self.pieces.iter().filter(|piece| piece.bytes().is_some()).map(|piece| piece.length).sum()
    }

    /// The same file, with bytes that have moved where they are now.
    pub(crate) fn relocated(&self, moves: &Moves) -> Pieces {
        let mut relocated = Pieces::default();
        self.pieces.iter().for_each(|piece| moves.apply(piece.clone(), &mut relocated));
        relocated
    }
}

#[cfg(test)]
mod tests;
