//! Reading many records together: neighbours are read in one request, in disk order.
//!
//! A [`Wanted`] is a record by its place and id, which suffices to verify it. [`spans`] joins neighbours: bytes between
//! them (dead records, records of others) are read and ignored. Every record that is returned was verified, header and
//! content, and has the id that the index said; a record that does not hold where it was read is read again by itself,
//! from every copy.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::devices::device::make_landing;
use crate::devices::threads;
use crate::engine::Engine;
use crate::error::Result;
use crate::format::entry::{Entry, Location};
use crate::format::ids::{LogOffset, SegmentNumber};
use crate::format::record::Record;

/// A record to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Wanted {
    pub(crate) location: Location,
    pub(crate) id: u64,
    /// The caller's number for it.
    pub(crate) tag: u32,
}

impl Wanted {
    pub(crate) fn new(entry: &Entry, tag: u32) -> Wanted {
        Wanted { location: entry.location, id: entry.id, tag }
    }
}

/// How neighbours are joined.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Joining {
    /// A gap of at most this many bytes between two records is read rather than skipped.
    pub(crate) gap_bytes: u64,
    /// Most bytes in one read, except for a single longer record.
    pub(crate) longest_bytes: u64,
}

/// A range of a segment with wanted records, read in one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) segment: SegmentNumber,
    /// The range in the segment, in bytes.
    pub(crate) bytes: Range<LogOffset>,
    /// Its records, as indexes into the list that was joined.
    pub(crate) wanted: Range<usize>,
}

/// The ranges to read for `wanted`, which is sorted by place.
pub(crate) fn spans(wanted: &[Wanted], joining: Joining) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    for (at, Wanted { location, .. }) in wanted.iter().enumerate() {
        let Range { start, end } = location.range();
        match spans.last_mut() {
            Some(span)
                if span.segment == location.segment
                    && start <= span.bytes.end + joining.gap_bytes
                    && end.max(span.bytes.end) - span.bytes.start <= joining.longest_bytes =>
            {
                // A record that is wanted twice must not shorten the range.
                span.bytes.end = span.bytes.end.max(end);
                span.wanted.end = at + 1;
            }
            _ => spans.push(Span { segment: location.segment, bytes: start..end, wanted: at..at + 1 }),
        }
    }
    spans
}

/// Sorts by place, that is in disk order.
pub(crate) fn sort(wanted: &mut [Wanted]) {
    wanted.sort_unstable_by_key(|wanted| (wanted.location.segment, wanted.location.offset));
}

/// From memory, one thread reads so much in a few milliseconds; a second one would take a fifth more processor time for
/// it (`make bench-python`), of which the caller may have other use.
const FEW_BYTES: u64 = 16 << 20;

/// The longest that it takes to read bytes that are in memory: 40 µs, and a second for 2 GB.
fn from_memory(bytes: u64) -> Duration {
    Duration::from_micros(40) + Duration::from_nanos(bytes / 2)
}

impl Engine {
    /// Reads a span into `buffer`, from one copy: a different one for each `turn`, so that mirrors share the load.
    /// Returns where it begins there. Unreadable bytes are missing.
    pub(crate) fn read_span(&self, span: &Span, turn: usize, buffer: &mut Vec<u8>) -> usize {
        let copies = self.copies(span.segment);
        let segment = self.segment_id(span.segment);
        let length = (span.bytes.end - span.bytes.start) as usize;
        let begin = make_landing(buffer, length, span.bytes.start.0);
        for at in 0..copies.len() {
            let device = copies[(turn + at) % copies.len()];
            match self.read_copy(device, segment, span.bytes.start, length, buffer) {
                Ok(_) => break,
                Err(_) => buffer.truncate(begin),
            }
        }
        begin
    }

    /// The record at its place in a span that was read, or from another copy (then in `fallback`).
    ///
    /// # Errors
    /// If no copy is intact.
    pub(crate) fn wanted_record<'b>(
        &self,
        wanted: &Wanted,
        span: &Span,
        buffer: &'b [u8],
        fallback: &'b mut Vec<u8>,
    ) -> Result<Record<'b>> {
        let at = (wanted.location.offset - span.bytes.start) as usize;
        let is_right =
            |record: &Record<'_>| record.head.id == wanted.id && record.record_bytes() == wanted.location.record_bytes;
        let seal = self.seed(self.segment_id(span.segment)).at(wanted.location.offset);
        match buffer.get(at..).and_then(|bytes| Record::decode(bytes, seal)).filter(|record| is_right(record)) {
            Some(record) => Ok(record),
            None => self.read_record(wanted.location, fallback, is_right),
        }
    }

    /// Reads the records of `wanted`, sorted by place, on one thread, or two if they are far or more than
    /// [`FEW_BYTES`], and on up to `most_threads` once a device is waited for. `take` is called once per record, by
    /// several threads at once, with its index in the list and the record, or the error. In disk order, except that
    /// threads overtake each other.
    pub(crate) fn read_wanted(
        &self,
        wanted: &[Wanted],
        joining: Joining,
        most_threads: usize,
        take: &(dyn Fn(usize, Result<Record<'_>>) + Sync),
    ) {
        let gap_bytes = joining.gap_bytes.max(self.platform.least_gap_bytes());
        let spans = spans(wanted, Joining { gap_bytes, ..joining });
        let next = AtomicUsize::new(0);
        let work = |join: &dyn Fn()| {
            let (mut buffer, mut fallback) = (Vec::new(), Vec::new());
            loop {
                let turn = next.fetch_add(1, Ordering::Relaxed);
                let Some(span) = spans.get(turn) else { return };
                let started = Instant::now();
                // What could not be read is missing in the buffer: those records are then read one by one.
                let begin = self.read_span(span, turn, &mut buffer);
                if started.elapsed() > from_memory(span.bytes.end - span.bytes.start) {
                    join();
                }
                for at in span.wanted.clone() {
                    let started = Instant::now();
                    take(at, self.wanted_record(&wanted[at], span, &buffer[begin..], &mut fallback));
                    // Units of large objects are read only there.
                    if started.elapsed() > from_memory(wanted[at].location.record_bytes) {
                        join();
                    }
                }
            }
        };
        let all_bytes: u64 = spans.iter().map(|span| span.bytes.end - span.bytes.start).sum();
        // Where a gap is worth reading, there is latency to share.
        let is_far = self.platform.least_gap_bytes() > 0;
        let beginning = if all_bytes > FEW_BYTES || is_far { 2 } else { 1 };
        threads::share_once_slow(beginning, most_threads.min(spans.len()), work);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const JOINING: Joining = Joining { gap_bytes: 64, longest_bytes: 1000 };

    fn wanted(segment: u64, offset: u64, record_bytes: u64) -> Wanted {
        Wanted {
            location: Location { segment: SegmentNumber(segment), offset: LogOffset(offset), record_bytes },
            id: 1,
            tag: 0,
        }
    }

    fn range_of(span: &Span) -> Range<u64> {
        span.bytes.start.0..span.bytes.end.0
    }

    #[test]
    fn neighbours_are_read_together_and_others_are_not() {
        let list =
            [wanted(1, 80, 100), wanted(1, 180, 100), wanted(1, 344, 100), wanted(1, 509, 100), wanted(2, 609, 100)];
        let found = spans(&list, JOINING);
        let short: Vec<_> = found.iter().map(|span| (span.segment.0, range_of(span), span.wanted.clone())).collect();
        assert_eq!(short, [(1, 80..444, 0..3), (1, 509..609, 3..4), (2, 609..709, 4..5)]);
    }

    #[test]
    fn a_long_record_is_read_by_itself_and_a_stretch_is_no_longer_than_allowed() {
        let list = [wanted(1, 0, 600), wanted(1, 600, 600), wanted(1, 1200, 5000), wanted(1, 6200, 10)];
        let short: Vec<_> = spans(&list, JOINING).iter().map(range_of).collect();
        assert_eq!(short, [0..600, 600..1200, 1200..6200, 6200..6210]);
    }

    proptest! {
        #[test]
        fn every_record_is_in_one_stretch_that_covers_it(places in proptest::collection::vec((1u64..4, 0u64..500, 1u64..60), 0..80)) {
            let mut list: Vec<Wanted> = places.iter().map(|&(segment, at, length)| wanted(segment, at * 4, length * 4)).collect();
            sort(&mut list);
            let found = spans(&list, JOINING);
            prop_assert_eq!(found.iter().map(|span| span.wanted.len()).sum::<usize>(), list.len());
            for span in &found {
                prop_assert!(span.bytes.end - span.bytes.start <= JOINING.longest_bytes);
                for wanted in &list[span.wanted.clone()] {
                    let Location { segment, offset, record_bytes } = wanted.location;
                    prop_assert_eq!(segment, span.segment);
                    prop_assert!(span.bytes.start <= offset && offset + record_bytes <= span.bytes.end);
                }
            }
        }
    }
}
