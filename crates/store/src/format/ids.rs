//! Numbers that must not be taken for each other: of segments, places in them, batches, epochs and devices.
//!
//! A segment is known by its number and its epoch together ([`SegmentId`]): a number alone may have been given a second time on a device that
//! the rest of the store did not see.

use std::fmt;

use super::record::Seed;

/// Number of a segment; they are numbered in the order in which they are begun, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SegmentNumber(pub u64);

/// A place in a segment, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct LogOffset(pub u64);

/// Sequence number of a batch; the first is 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BatchSequence(pub u64);

/// The epoch of a writer: random, drawn at each opening for writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Epoch(pub u64);

/// Number of a device in its store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct DeviceNumber(pub u16);

/// Which segment it is: what its name says, and what seeds its checksums.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SegmentId {
    /// Its number.
    pub number: SegmentNumber,
    /// The epoch that it was begun in.
    pub epoch: Epoch,
}

impl SegmentId {
    /// The segment of a number that was begun in an epoch.
    pub fn new(number: u64, epoch: Epoch) -> SegmentId {
        SegmentId { number: SegmentNumber(number), epoch }
    }

    /// The seed of the checksums in it.
    pub(crate) fn seed(self, store: &[u8; 16]) -> Seed {
        Seed::new(store, self)
    }
}

impl Epoch {
    /// The half that names of files have.
    pub fn low_half(self) -> u32 {
        self.0 as u32
    }
}

impl BatchSequence {
    /// That of the batch after this one.
    #[must_use]
    pub fn next(self) -> BatchSequence {
        BatchSequence(self.0 + 1)
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
