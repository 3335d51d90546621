//! Numbers that must not be confused: of objects, segments, offsets in them, batches, epochs and devices.
//!
//! A segment is identified by number and epoch together ([`SegmentId`]): the same number may have been assigned again
//! on a device that the rest of the store did not see.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

/// Number of an object, of at most 48 bits: the id of its very first record, for life. Directories are objects too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ObjectNumber(pub u64);

/// Number of a segment, from 1 in the order in which segments are begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SegmentNumber(pub u64);

/// An offset in a segment, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct LogOffset(pub u64);

/// Sequence number of a batch; the first is 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BatchSequence(pub u64);

/// The epoch of a writer: random, drawn on each open for writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Epoch(pub u64);

/// Number of a device in its store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct DeviceNumber(pub u16);

/// Identity of a segment: given by its name, and the seed of its checksums.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SegmentId {
    /// Its number.
    pub number: SegmentNumber,
    /// The epoch in which it was begun.
    pub epoch: Epoch,
}

impl SegmentId {
    /// The segment `number` that was begun in `epoch`.
    pub fn new(number: SegmentNumber, epoch: Epoch) -> SegmentId {
        SegmentId { number, epoch }
    }
}

impl LogOffset {
    /// Where a segment begins.
    pub const START: LogOffset = LogOffset(0);
}

impl Add<u64> for LogOffset {
    type Output = LogOffset;

    /// So many bytes further on.
    fn add(self, bytes: u64) -> LogOffset {
        LogOffset(self.0 + bytes)
    }
}

impl AddAssign<u64> for LogOffset {
    fn add_assign(&mut self, bytes: u64) {
        self.0 += bytes;
    }
}

impl Sub for LogOffset {
    type Output = u64;

    /// The bytes between two offsets.
    fn sub(self, before: LogOffset) -> u64 {
        self.0 - before.0
    }
}

impl Epoch {
    /// The half that is part of file names.
    pub fn low_half(self) -> u32 {
        self.0 as u32
    }
}

impl ObjectNumber {
    /// No object: the number in tombstones, and of the directory that contains the root.
    pub const NONE: ObjectNumber = ObjectNumber(0);

    /// A number that was read; `None` if it has more than 48 bits, which none has.
    #[inline]
    pub(crate) fn stored(number: u64) -> Option<ObjectNumber> {
        (number < 1 << 48).then_some(ObjectNumber(number))
    }

    /// Whether it is [`NONE`](Self::NONE).
    pub fn is_none(self) -> bool {
        self == ObjectNumber::NONE
    }

    /// The next number; the entries of a directory end where those of the next begin.
    #[must_use]
    pub fn next(self) -> ObjectNumber {
        ObjectNumber(self.0 + 1)
    }
}

impl DeviceNumber {
    /// Its place among the devices of its store.
    pub fn index(self) -> usize {
        self.0.into()
    }
}

impl SegmentNumber {
    /// The number of the next segment.
    #[must_use]
    pub fn next(self) -> SegmentNumber {
        SegmentNumber(self.0 + 1)
    }
}

impl BatchSequence {
    /// The number of the next batch.
    #[must_use]
    pub fn next(self) -> BatchSequence {
        BatchSequence(self.0 + 1)
    }
}

impl fmt::Display for ObjectNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for LogOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for SegmentNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for BatchSequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for DeviceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
