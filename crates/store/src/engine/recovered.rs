//! What recovery found in the log, and what it notes.

use std::ops::Range;
use std::sync::Arc;

use crate::format::ids::{LogOffset, SegmentNumber};
use crate::log::completeness::Completeness;

/// Note with what was released.
pub(crate) const RELEASED: &str = "log.released";

/// Damage that recovery found in the log: bytes of a segment that are valid on no copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Number of the segment.
    pub segment: SegmentNumber,
    /// The damaged bytes.
    pub range: Range<LogOffset>,
}

/// Result of recovery.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Batches that were in the log but not in the catalog.
    pub batches: u64,
    /// Records in them.
    pub records: u64,
    /// Acknowledged bytes that are lost, and nobody knows of what.
    pub damage: Vec<Damage>,
    /// The same, of objects that are known, with their index keys.
    pub(crate) lost: Vec<(Arc<[u8]>, Damage)>,
    /// Whether everything acknowledged is present.
    pub completeness: Completeness,
    /// Directories whose record is lost, and that were moved to `lost+found`.
    pub detached: u64,
}
