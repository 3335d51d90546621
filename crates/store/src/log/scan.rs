//! Reading segments from one end to the other: records one after the other, from another copy where one is damaged, and on past
//! damage that no copy makes good.

use std::ops::Range;
use std::sync::Arc;

use crate::devices::device::DeviceFile;
use crate::format::record::{HEADER_BYTES, Lengths, Record};
use crate::format::segment::{SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::layout::granulo::RECORD_ALIGNMENT_BYTES;

/// What is read ahead, in bytes.
const WINDOW_BYTES: usize = 1 << 20;

/// A window on one copy of a segment.
#[derive(Debug)]
struct Copy {
    device: u16,
    file: Arc<dyn DeviceFile>,
    size_bytes: u64,
    bytes: Vec<u8>,
    start: u64,
}

impl Copy {
    /// The bytes from `offset`, at least `length` of them if there are as many; `None` if reading fails.
    fn bytes(&mut self, offset: u64, length: usize) -> Option<&[u8]> {
        let is_there = offset >= self.start && offset + length as u64 <= self.start + self.bytes.len() as u64;
        if !is_there {
            self.bytes.clear();
            self.start = offset;
            self.file.read_onto(&mut self.bytes, length.max(WINDOW_BYTES), offset).ok()?;
        }
        self.bytes.get((offset - self.start) as usize..)
    }

    /// The record at `offset`, if it holds.
    fn record(&mut self, offset: u64) -> Option<Record<'_>> {
        let rest = self.size_bytes.checked_sub(offset)?;
        let lengths = Lengths::peek(self.bytes(offset, HEADER_BYTES)?)?;
        if lengths.record_bytes() as u64 > rest {
            return None;
        }
        Record::decode(self.bytes(offset, lengths.record_bytes())?)
    }
}

/// A step through a segment.
#[derive(Debug)]
pub(crate) enum Step<'r> {
    /// A record that holds, where it begins, and the devices on which it does not hold.
    Record(u64, Record<'r>, Vec<u16>),
    /// Bytes that are no record on any copy.
    Damage(Range<u64>),
}

/// Reads one segment.
#[derive(Debug)]
pub(crate) struct SegmentScan {
    copies: Vec<Copy>,
    at: u64,
    /// Where the longest copy ends.
    pub(crate) end: u64,
}

impl SegmentScan {
    /// Begins at `from` (at the first record if that is 0).
    pub(crate) fn new(files: Vec<(u16, Arc<dyn DeviceFile>)>, from: u64) -> SegmentScan {
        let copy = |(device, file): (u16, Arc<dyn DeviceFile>)| {
            let size_bytes = file.size().unwrap_or(0);
            Copy { device, file, size_bytes, bytes: Vec::new(), start: 0 }
        };
        let copies: Vec<Copy> = files.into_iter().map(copy).collect();
        let end = copies.iter().map(|copy| copy.size_bytes).max().unwrap_or(0);
        SegmentScan { copies, at: from.max(SEGMENT_HEADER_BYTES), end }
    }

    /// The header, from the first copy that has a sound one, and the devices on which it is not.
    pub(crate) fn header(&mut self) -> (Option<SegmentHeader>, Vec<u16>) {
        let mut found = None;
        let mut without = Vec::new();
        for copy in &mut self.copies {
            match copy.bytes(0, SEGMENT_HEADER_BYTES as usize).and_then(SegmentHeader::decode) {
                Some(header) => found = found.or(Some(header)),
                None => without.push(copy.device),
            }
        }
        (found, without)
    }

    /// The next record or stretch of damage; `None` at the end. Looks at every copy if `all`, else only at as many as it takes.
    pub(crate) fn next(&mut self, all: bool) -> Option<Step<'_>> {
        if self.at >= self.end {
            return None;
        }
        let at = self.at;
        let mut holds = None;
        let mut without = Vec::new();
        for (number, copy) in self.copies.iter_mut().enumerate() {
            if holds.is_some() && !all {
                break;
            }
            match copy.record(at) {
                Some(_) => holds = holds.or(Some(number)),
                None => without.push(copy.device),
            }
        }
        match holds {
            Some(number) => {
                let record = self.copies[number].record(at)?;
                self.at = at + record.record_bytes();
                Some(Step::Record(at, record, without))
            }
            None => {
                let end = self.resume(at);
                self.at = end;
                Some(Step::Damage(at..end))
            }
        }
    }

    /// Where the next record that holds begins, on any copy; the end if there is none.
    fn resume(&mut self, damaged: u64) -> u64 {
        let mut at = damaged + RECORD_ALIGNMENT_BYTES;
        while at < self.end {
            if self.copies.iter_mut().any(|copy| copy.record(at).is_some()) {
                return at;
            }
            at += RECORD_ALIGNMENT_BYTES;
        }
        self.end
    }
}
