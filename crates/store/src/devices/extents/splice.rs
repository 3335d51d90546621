//! Changing parts of a large object: the stripes affected are rewritten, all others stay in place.
//!
//! A chunk is cut at stripe boundaries. The part before the cut keeps its places; so does the part after it, with its
//! components rotated: unit i of stripe s is on component (s + i) mod width, so in a chunk that begins with the former
//! stripe s, component c is the former component (c + s) mod width, from s units on. The affected stripes become
//! separate chunks in between, with their previous widths; at the end of the object, where it may have grown, with
//! those of the rule. A partial last stripe is affected if the object grows, and so is the stripe in which an object is
//! truncated.
//!
//! Nothing is overwritten, so the old object remains until a record references the new descriptor. After an error, or
//! if the change never reaches the log, the space of the new chunks is reallocated, never that of the old ones.
//! Survived: faulty units, as far as parity can reconstruct them.

use std::ops::Range;
use std::sync::Arc;

use super::write::LargeWriter;
use super::{Allocator, ExtentFiles, Touched};
use crate::error::Result;
use crate::format::descriptor::{Chunk, Component, Descriptor};
use crate::format::ids::DeviceNumber;
use crate::layout::granulo::{Stripes, Striping};

/// Chunks beyond what the rule gives an object of its length that any object may have.
const FEW_CHUNKS: u64 = 256;
/// Bytes that those of an object may take in its descriptor.
const MOST_CHUNK_BYTES: u64 = 512 << 10;
/// Chunks that a descriptor can have.
const LARGEST_COUNT: usize = u16::MAX as usize;
/// Bytes after the old end are written in pieces of this length.
const PIECE_BYTES: u64 = 4 << 20;

/// Bytes that replace stored bytes, or follow them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Edit<'e> {
    /// Offset of the first one in the stored bytes.
    pub(crate) at: u64,
    pub(crate) filling: Filling<'e>,
}

/// The bytes of an edit.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Filling<'e> {
    Bytes(&'e [u8]),
    /// A number of zeroes.
    Zeroes(u64),
}

impl Edit<'_> {
    fn end(&self) -> u64 {
        match self.filling {
            Filling::Bytes(bytes) => self.at + bytes.len() as u64,
            Filling::Zeroes(length) => self.at + length,
        }
    }
}

/// How many chunks beyond what the rule gives an object may have; with more it is rewritten.
///
/// Each chunk, of b bytes, is in the descriptor that every change writes, and changes add one or two. If an object of S
/// bytes is rewritten after n of them, a change costs about S/n for that, and b·n/2 for the descriptor: together least
/// for n = √(2S/b).
pub(crate) fn most_chunks(stored_bytes: u64, rule: Striping) -> usize {
    let width = u64::from(rule.data) + u64::from(rule.parity);
    // With the checksum of one unit on each device.
    let chunk_bytes = 16 + 18 * width;
    let cheapest = (stored_bytes.saturating_mul(2) / chunk_bytes).isqrt();
    cheapest.min(MOST_CHUNK_BYTES / chunk_bytes).max(FEW_CHUNKS) as usize
}

/// A changed object. Its units are durable after [`ExtentFiles::sync`] of `touched`.
#[derive(Debug, Default)]
pub(crate) struct Spliced {
    pub(crate) chunks: Vec<Chunk>,
    pub(crate) packed: Vec<u8>,
    /// Those of the new chunks: abandoned if no record references them.
    pub(crate) fresh: Vec<Chunk>,
    pub(crate) touched: Touched,
}

/// A part of the new object, in bytes after the packed ones.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Region {
    /// Stripes of a chunk that stay in place.
    Kept { chunk: usize, stripes: Range<usize> },
    /// Stripes to be written by a rule, starting at this chunk of an object.
    Written { range: Range<u64>, rule: Striping, first_chunk: usize },
}

/// The object and its changes.
struct Splice<'s> {
    before: &'s Descriptor,
    /// Ascending and separate.
    edits: &'s [Edit<'s>],
    /// The rule for the end of the object.
    rule: Striping,
    /// Old and new end of the object, in bytes after the packed ones.
    old_end: u64,
    end: u64,
}

impl Splice<'_> {
    /// A range after the packed bytes in stored bytes.
    fn stored(&self, range: &Range<u64>) -> Range<u64> {
        let packed_bytes = self.before.packed_bytes();
        range.start + packed_bytes..range.end + packed_bytes
    }

    /// Edits with bytes in a range after the packed bytes.
    fn edits_in(&self, range: &Range<u64>) -> &[Edit<'_>] {
        let Range { start: from, end: to } = self.stored(range);
        let first = self.edits.partition_point(|edit| edit.end() <= from);
        let count = self.edits[first..].partition_point(|edit| edit.at < to);
        &self.edits[first..first + count]
    }

    /// The chunk that contains a byte in an object striped by the rule.
    fn chunk_at(&self, at: u64) -> usize {
        let mut begin = 0;
        (0..usize::from(u16::MAX))
            .take_while(|&chunk| {
                begin += self.rule.longest_chunk_bytes(chunk);
                begin <= at
            })
            .count()
    }

    /// The new object, part by part.
    fn regions(&self) -> Vec<Region> {
        let mut regions: Vec<Region> = Vec::new();
        let mut begin = 0;
        for (number, chunk) in self.before.chunks.iter().enumerate() {
            let stripes = chunk.stripes;
            let unit_rule =
                Striping { stripe_unit_bytes: stripes.unit_bytes, data: stripes.data, parity: stripes.parity };
            for stripe in 0..stripes.count() {
                let from = begin + stripe as u64 * stripes.stripe_bytes();
                if from >= self.end {
                    break;
                }
                let to = from + stripes.bytes_in(stripe);
                let is_followed = to == self.old_end && to < self.end && to - from < stripes.stripe_bytes();
                let is_kept = to <= self.end && !is_followed && self.edits_in(&(from..to)).is_empty();
                match regions.last_mut() {
                    Some(Region::Kept { chunk, stripes }) if is_kept && *chunk == number && stripes.end == stripe => {
                        stripes.end += 1;
                    }
                    Some(Region::Written { range, rule, .. })
                        if !is_kept && *rule == unit_rule && to - range.start <= rule.longest_chunk_bytes(0) =>
                    {
                        range.end = to.min(self.end);
                    }
                    _ if is_kept => regions.push(Region::Kept { chunk: number, stripes: stripe..stripe + 1 }),
                    _ => {
                        regions.push(Region::Written { range: from..to.min(self.end), rule: unit_rule, first_chunk: 0 })
                    }
                }
            }
            begin += stripes.length_bytes;
        }
        if self.old_end < self.end {
            let from = match regions.pop() {
                Some(Region::Written { range, .. }) => range.start,
                last => {
                    regions.extend(last);
                    self.old_end
                }
            };
            let first_chunk = self.chunk_at(from);
            regions.push(Region::Written { range: from..self.end, rule: self.rule, first_chunk });
        }
        regions
    }

    /// The end of the stripe that contained a byte, or of the piece after the old end.
    fn piece_end(&self, at: u64) -> u64 {
        let mut begin = 0;
        for chunk in &self.before.chunks {
            let end = begin + chunk.stripes.length_bytes;
            if at < end {
                let stripe_bytes = chunk.stripes.stripe_bytes();
                return (begin + ((at - begin) / stripe_bytes + 1) * stripe_bytes).min(end);
            }
            begin = end;
        }
        at + PIECE_BYTES
    }

    /// The new bytes of a range within a stripe or after the old end.
    fn compose(&self, files: &ExtentFiles, range: Range<u64>, onto: &mut Vec<u8>) -> Result<()> {
        onto.clear();
        let edits = self.edits_in(&range);
        let Range { start: from, end: to } = self.stored(&range);
        let covered: u64 = edits.iter().map(|edit| edit.end().min(to) - edit.at.max(from)).sum();
        if covered < to - from {
            files.read_range(self.before, from..to, onto)?;
        }
        onto.resize((to - from) as usize, 0);
        apply(edits, from, onto);
        Ok(())
    }
}

/// Applies edits to bytes that begin at `from` in the stored object.
fn apply(edits: &[Edit<'_>], from: u64, bytes: &mut [u8]) {
    let to = from + bytes.len() as u64;
    for edit in edits {
        let (begin, end) = (edit.at.max(from), edit.end().min(to));
        if begin >= end {
            continue;
        }
        let place = &mut bytes[(begin - from) as usize..(end - from) as usize];
        match edit.filling {
            Filling::Bytes(new) => {
                place.copy_from_slice(&new[(begin - edit.at) as usize..(end - edit.at) as usize]);
            }
            Filling::Zeroes(_) => place.fill(0),
        }
    }
}

/// Some stripes of a chunk as a separate chunk, with their units in place.
fn cut(chunk: &Chunk, kept: Range<usize>) -> Chunk {
    let (stripes, width, begin) = (chunk.stripes, chunk.stripes.width(), kept.start as u64);
    let length_bytes =
        stripes.length_bytes.min(kept.end as u64 * stripes.stripe_bytes()) - begin * stripes.stripe_bytes();
    let turned = |position: usize| {
        let component = chunk.components[(position + kept.start) % width];
        let offset_bytes = component.offset_bytes + begin * u64::from(stripes.unit_bytes);
        Component { offset_bytes, ..component }
    };
    let end = (kept.end * width).min(chunk.checksums.len());
    Chunk {
        stripes: Stripes { length_bytes, ..stripes },
        components: (0..width).map(turned).collect(),
        checksums: chunk.checksums[kept.start * width..end].to_vec(),
    }
}

impl Allocator {
    /// Frees the space of chunks that no record ever referenced for reallocation, as far as nothing was reserved after
    /// them.
    pub(crate) fn give_up_chunks(&self, chunks: Vec<Chunk>) {
        self.give_up(&Descriptor { stored_bytes: 0, packed: Vec::new(), chunks });
    }
}

impl ExtentFiles {
    /// Writes what edits affect (ascending, separate, without gaps after the old end) in an object of `stored_bytes`
    /// after the change. New chunks are placed by `order`; at the end of the object they are striped by `rule`,
    /// elsewhere as before. `None`: there would be no chunks or too many, or fewer devices have space than such stripes
    /// need; the object must be rewritten. If it `has_no_room` for that, it may have as many chunks as a descriptor.
    ///
    /// # Errors
    /// As [`read_range`](Self::read_range) and [`LargeWriter::write`].
    pub(crate) fn splice(
        self: &Arc<Self>,
        allocator: &Arc<Allocator>,
        (order, rule): (&[DeviceNumber], Striping),
        before: &Descriptor,
        edits: &[Edit<'_>],
        (stored_bytes, has_no_room): (u64, bool),
    ) -> Result<Option<Spliced>> {
        let packed_bytes = before.packed_bytes();
        if stored_bytes <= packed_bytes {
            return Ok(None);
        }
        let (old_end, end) = (before.stored_bytes - packed_bytes, stored_bytes - packed_bytes);
        let splice = Splice { before, edits, rule, old_end, end };
        let regions = splice.regions();
        let most = match has_no_room {
            true => LARGEST_COUNT - 1,
            false => most_chunks(stored_bytes, rule) + rule.chunks(end).count(),
        };
        // The last region becomes several chunks if the object grows by much.
        if regions.len() > most || regions.len() + rule.chunks(end).count() > LARGEST_COUNT {
            return Ok(None);
        }
        let mut spliced = Spliced { packed: before.packed.clone(), ..Spliced::default() };
        apply(edits, 0, &mut spliced.packed);
        let count = regions.len();
        for (position, region) in regions.into_iter().enumerate() {
            let is_last = position + 1 == count;
            // Only the last chunk may end within a stripe; one striped over fewer devices may do so earlier.
            let may_continue = match &region {
                Region::Kept { chunk, stripes } => {
                    spliced.chunks.push(cut(&before.chunks[*chunk], stripes.clone()));
                    Ok(true)
                }
                Region::Written { range, rule, first_chunk } => {
                    let striping = (*rule, *first_chunk);
                    self.write_region(allocator, order, striping, &splice, range, &mut spliced).map(|()| {
                        let last = spliced.chunks.last().map(|chunk| chunk.stripes);
                        is_last || last.is_some_and(|last| last.length_bytes % last.stripe_bytes() == 0)
                    })
                }
            };
            if !matches!(may_continue, Ok(true)) {
                allocator.give_up_chunks(std::mem::take(&mut spliced.fresh));
                return may_continue.map(|_| None);
            }
        }
        Ok(Some(spliced))
    }

    /// Writes a part of the new object.
    fn write_region(
        self: &Arc<Self>,
        allocator: &Arc<Allocator>,
        order: &[DeviceNumber],
        striping: (Striping, usize),
        splice: &Splice<'_>,
        range: &Range<u64>,
        spliced: &mut Spliced,
    ) -> Result<()> {
        let length_bytes = range.end - range.start;
        let (files, allocator) = (Arc::clone(self), Arc::clone(allocator));
        let mut writer = LargeWriter::begin_chunks(files, allocator, order.to_vec(), striping, length_bytes);
        let (mut at, mut bytes) = (range.start, Vec::new());
        while at < range.end {
            let to = splice.piece_end(at).min(range.end);
            splice.compose(self, at..to, &mut bytes)?;
            writer.write(&bytes)?;
            at = to;
        }
        let written = writer.finish()?;
        spliced.fresh.extend(written.descriptor.chunks.iter().cloned());
        spliced.chunks.extend(written.descriptor.chunks);
        spliced.touched.merge(written.touched);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::granulo::DEFAULT_PACKED_BYTES;
    use proptest::prelude::*;

    fn chunk(stripes: Stripes) -> Chunk {
        let component =
            |at: usize| Component { device: DeviceNumber(at as u16), file: 7, offset_bytes: (at as u64 + 1) << 32 };
        let components = (0..stripes.width()).map(component).collect();
        Chunk { stripes, components, checksums: (0..stripes.units() as u64).collect() }
    }

    fn stripes() -> impl Strategy<Value = Stripes> {
        (1u8..6, 0u8..3, 1u64..1_000_000).prop_map(|(data, parity, length_bytes)| Stripes {
            length_bytes,
            unit_bytes: 4096,
            data,
            parity,
        })
    }

    #[test]
    fn the_longer_an_object_the_more_chunks_it_may_have() {
        let rule = |data, parity| Striping { stripe_unit_bytes: 65_536, data, parity };
        let most = [0, 1 << 20, 100 << 20, 1 << 30, 1 << 40].map(|length| most_chunks(length, rule(1, 0)));
        assert_eq!(most, [256, 256, 2483, 7947, 15_420]);
        assert_eq!(most_chunks(1 << 40, rule(8, 2)), 2674);
        assert_eq!(most_chunks(u64::MAX, rule(200, 55)), 256);
    }

    proptest! {
        #[test]
        fn units_of_a_chunk_that_is_cut_are_where_they_were(stripes in stripes(), at in any::<[prop::sample::Index; 2]>()) {
            let whole = chunk(stripes);
            let begin = at[0].index(stripes.count());
            let end = begin + 1 + at[1].index(stripes.count() - begin);
            let part = cut(&whole, begin..end);
            prop_assert_eq!(part.stripes.check(), Ok(()));
            prop_assert_eq!(part.checksums.len(), part.stripes.units());
            for stripe in begin..end {
                for unit in 0..stripes.width() {
                    prop_assert_eq!(part.unit(stripe - begin, unit).length_bytes, whole.unit(stripe, unit).length_bytes);
                    let index = part.stripes.checksum_index(stripe - begin, unit);
                    prop_assert_eq!(index.is_some(), stripes.checksum_index(stripe, unit).is_some());
                    if let (Some(index), Some(before)) = (index, stripes.checksum_index(stripe, unit)) {
                        prop_assert_eq!(part.unit(stripe - begin, unit), whole.unit(stripe, unit));
                        prop_assert_eq!(part.checksums[index], whole.checksums[before]);
                    }
                }
            }
            // Nothing is counted twice or omitted.
            let bytes = |chunk: &Chunk| chunk.stripes.allocated_bytes();
            let parts = [(0, begin), (begin, end), (end, stripes.count())].into_iter().filter(|(from, to)| from < to);
            prop_assert_eq!(parts.map(|(from, to)| bytes(&cut(&whole, from..to))).sum::<u64>(), bytes(&whole));
        }
    }

    #[test]
    fn an_object_is_taken_apart_where_it_is_touched() {
        let rule = Striping { stripe_unit_bytes: 4096, data: 2, parity: 1 };
        let stripes = |length_bytes| Stripes { length_bytes, unit_bytes: 4096, data: 2, parity: 1 };
        let chunks = vec![chunk(stripes(4 * 8192)), chunk(stripes(3 * 8192 + 10))];
        let stored_bytes = DEFAULT_PACKED_BYTES + 7 * 8192 + 10;
        let before = Descriptor { stored_bytes, packed: vec![0; DEFAULT_PACKED_BYTES as usize], chunks };
        let regions = |edits: &[(u64, u64)], end: u64| {
            let edits: Vec<Edit<'_>> = edits
                .iter()
                .map(|&(at, length)| Edit { at: DEFAULT_PACKED_BYTES + at, filling: Filling::Zeroes(length) })
                .collect();
            Splice { before: &before, edits: &edits, rule, old_end: 7 * 8192 + 10, end }.regions()
        };
        let kept = |chunk, stripes| Region::Kept { chunk, stripes };
        let written = |range, first_chunk| Region::Written { range, rule, first_chunk };
        let end = 7 * 8192 + 10;
        assert_eq!(regions(&[], end), [kept(0, 0..4), kept(1, 0..4)]);
        assert_eq!(
            regions(&[(8192, 1), (5 * 8192 - 1, 2)], end),
            [kept(0, 0..1), written(8192..2 * 8192, 0), kept(0, 2..4), written(4 * 8192..6 * 8192, 0), kept(1, 2..4)]
        );
        // Affected stripes of two chunks become one; at the end, the chunk continues as the object grows.
        assert_eq!(regions(&[(4 * 8192 - 1, 2)], end), [kept(0, 0..3), written(3 * 8192..5 * 8192, 0), kept(1, 1..4)]);
        assert_eq!(regions(&[(end, 100)], end + 100), [kept(0, 0..4), kept(1, 0..3), written(7 * 8192..end + 100, 0)]);
        // Truncated within a stripe, and between two.
        assert_eq!(regions(&[], 8192 + 5), [kept(0, 0..1), written(8192..8192 + 5, 0)]);
        assert_eq!(regions(&[], 8192), [kept(0, 0..1)]);
    }
}
