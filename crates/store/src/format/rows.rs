//! Rows of the manifest and its journal, and the changes of one transaction (docs/FORMAT.md, section 10).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::format::entry::Entry;
use crate::format::geometry::Class;
use crate::format::ids::{DeviceNumber, Epoch, LogOffset, ObjectNumber, SegmentId, SegmentNumber};
use crate::format::segment::SEGMENT_HEADER_BYTES;

/// Memory of an entry besides its key: itself, its place in a chunk, and the reference counts of the key.
const ENTRY_BYTES: usize = size_of::<(Arc<[u8]>, Entry)>() + 2 * size_of::<usize>();

/// Approximate memory of an entry, in bytes.
pub(crate) fn weight(key: &[u8]) -> usize {
    key.len() + ENTRY_BYTES
}

/// A position in the log: the end of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Position {
    /// Segment of the batch; 0 before the first.
    pub segment: SegmentNumber,
    /// Offset of its commit record.
    pub commit: LogOffset,
    /// Offset of the end of its commit record.
    pub offset: LogOffset,
    /// Its sequence number.
    pub sequence: u64,
    /// Chain after it.
    pub chain: u64,
}

/// A segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentRow {
    /// Its number.
    pub number: SegmentNumber,
    /// The epoch in which it was begun.
    pub epoch: Epoch,
    /// Class of the devices that hold it.
    pub class: Class,
    /// Devices with a copy of it.
    pub devices: Vec<DeviceNumber>,
    /// Its size with header, in bytes.
    pub size_bytes: u64,
    /// Bytes of live records, referenced now or by a snapshot.
    pub live_bytes: u64,
    /// Live records, referenced now or by a snapshot.
    pub live_records: u64,
    /// Superseded records, including those that snapshots reference, and tombstones.
    pub dead_records: u64,
    /// Lowest id of a record in it; `u64::MAX` without records.
    pub lowest_id: u64,
}

impl SegmentRow {
    /// Whether a crash left it before its first batch: the log skips it, or will.
    pub fn is_without_batches(&self) -> bool {
        self.live_records + self.dead_records == 0 && self.size_bytes <= SEGMENT_HEADER_BYTES
    }

    /// Where it ends.
    pub fn end(&self) -> LogOffset {
        LogOffset(self.size_bytes)
    }

    /// Its identity.
    pub fn id(&self) -> SegmentId {
        SegmentId::new(self.number, self.epoch)
    }
}

/// An extent file on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExtentRow {
    /// Device.
    pub device: DeviceNumber,
    /// Number of the file.
    pub file: u32,
    /// Where the next component is appended, in bytes.
    pub end_bytes: u64,
    /// Bytes of live units.
    pub live_bytes: u64,
}

/// A sorted table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableRow {
    /// Its number.
    pub number: u64,
    /// Entries in it.
    pub entries: u64,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Lowest id of a current entry.
    pub lowest_id: u64,
    /// Highest id of a current entry.
    pub highest_id: u64,
}

/// A directory of a removed tree: everything in it with a lower id is hidden.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RangeRow {
    /// Number of the directory.
    pub directory: ObjectNumber,
    /// Id of the tombstone.
    pub id: u64,
}

/// A state preserved by name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SnapshotRow {
    /// The snapshot contains everything up to this sequence number.
    pub sequence: u64,
    /// When it was taken, in nanoseconds since 1970.
    pub created_nanoseconds: i64,
    /// Its name: one component of a path.
    pub name: Vec<u8>,
}

impl SnapshotRow {
    /// When it was taken, in whole seconds since 1970.
    pub fn created_seconds(&self) -> i64 {
        self.created_nanoseconds.div_euclid(1_000_000_000)
    }
}

/// Space to be freed when no reader has a snapshot of the epoch or an older one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Superseded {
    /// A segment whose records were moved or are dead.
    Segment(SegmentNumber),
    /// An extent file without live units.
    Extent {
        /// Device.
        device: DeviceNumber,
        /// Extent file.
        file: u32,
    },
    /// A sorted table that was merged into another.
    Table(u64),
}

/// The changes of one transaction. Fields that are empty or `None` change nothing.
#[derive(Debug, Clone, Default)]
pub struct Change {
    /// New position in the log.
    pub position: Option<Position>,
    /// New epoch.
    pub epoch: Option<u64>,
    /// New highest id; one below the current value changes nothing, because ids are never reused.
    pub highest_id: Option<u64>,
    /// New number of the next sorted table.
    pub next_table: Option<u64>,
    /// Empties `recent` first (its entries became a table).
    pub clear_recent: bool,
    /// Keys to be dropped from `recent`.
    pub forget: Vec<Arc<[u8]>>,
    /// Keys to be added to `recent`.
    pub recent: Vec<(Arc<[u8]>, Entry)>,
    /// All directories of removed trees, in any order; of two rows of one directory the newer counts.
    pub ranges: Option<Vec<RangeRow>>,
    /// All sorted tables, oldest first.
    pub tables: Option<Vec<TableRow>>,
    /// New or changed segments.
    pub segments: Vec<SegmentRow>,
    /// Segments that no longer exist.
    pub removed_segments: Vec<SegmentNumber>,
    /// New or changed extent files.
    pub extents: Vec<ExtentRow>,
    /// Extent files that no longer exist.
    pub removed_extents: Vec<(DeviceNumber, u32)>,
    /// Number of names of each shared object; 0 if it no longer exists.
    pub shared: Vec<(ObjectNumber, u64)>,
    /// Space to be freed in addition.
    pub superseded: Vec<(u64, Superseded)>,
    /// Space that was freed.
    pub freed: Vec<(u64, Superseded)>,
    /// Notes; an empty value removes one.
    pub notes: Vec<(String, Vec<u8>)>,
    /// All devices with a copy of the index.
    pub devices: Option<Vec<DeviceNumber>>,
    /// New or changed pins.
    pub pins: Vec<(String, u64)>,
    /// Pins that no longer exist.
    pub unpinned: Vec<String>,
    /// All snapshots, by ascending sequence number.
    pub snapshots: Option<Vec<SnapshotRow>>,
    /// Whether the transaction must be durable when `commit` returns. Others become durable later, in order.
    pub durable: bool,
}

impl Change {
    /// Approximate memory of its keys and entries, in bytes.
    pub fn bytes(&self) -> usize {
        let keys = self.recent.iter().map(|(key, _)| key).chain(&self.forget);
        keys.map(|key| weight(key)).sum()
    }

    /// Merges `later` into this change, as if applied after it.
    pub fn merge(&mut self, later: Change) {
        self.position = later.position.or(self.position);
        self.epoch = later.epoch.or(self.epoch);
        self.highest_id = self.highest_id.max(later.highest_id);
        self.next_table = later.next_table.or(self.next_table);
        if later.clear_recent {
            self.clear_recent = true;
            self.forget.clear();
            self.recent.clear();
        }
        if !later.forget.is_empty() {
            let forgotten: BTreeSet<&[u8]> = later.forget.iter().map(|key| &**key).collect();
            self.recent.retain(|(key, _)| !forgotten.contains(&**key));
        }
        self.forget.extend(later.forget);
        self.recent.extend(later.recent);
        self.ranges = later.ranges.or(self.ranges.take());
        self.tables = later.tables.or(self.tables.take());
        self.removed_segments.extend(later.removed_segments);
        let removed = &self.removed_segments;
        self.segments.retain(|row| !removed.contains(&row.number));
        merge_rows(&mut self.segments, later.segments, |row| row.number);
        self.extents.retain(|row| !later.removed_extents.contains(&(row.device, row.file)));
        self.removed_extents.extend(later.removed_extents);
        merge_rows(&mut self.extents, later.extents, |row| (row.device, row.file));
        merge_rows(&mut self.shared, later.shared, |row| row.0);
        self.superseded.extend(later.superseded);
        self.freed.extend(later.freed);
        merge_rows(&mut self.notes, later.notes, |row| row.0.clone());
        self.devices = later.devices.or(self.devices.take());
        let unpinned = &later.unpinned;
        self.pins.retain(|(name, _)| !unpinned.contains(name));
        self.unpinned.extend(later.unpinned);
        merge_rows(&mut self.pins, later.pins, |row| row.0.clone());
        self.snapshots = later.snapshots.or(self.snapshots.take());
        self.durable |= later.durable;
    }
}

/// Merges the rows of two changes; of two rows about the same thing, the later counts.
fn merge_rows<T, K: Ord>(rows: &mut Vec<T>, later: Vec<T>, key: impl Fn(&T) -> K) {
    if later.is_empty() {
        return;
    }
    let mut all: BTreeMap<K, T> = std::mem::take(rows).into_iter().map(|row| (key(&row), row)).collect();
    all.extend(later.into_iter().map(|row| (key(&row), row)));
    rows.extend(all.into_values());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_later_change_removes_does_not_come_back() {
        let extent = |file| ExtentRow { device: DeviceNumber(1), file, end_bytes: 8, live_bytes: 8 };
        let mut change = Change { extents: vec![extent(1), extent(2)], ..Change::default() };
        change.merge(Change { removed_extents: vec![(DeviceNumber(1), 1)], ..Change::default() });
        assert_eq!(change.extents, [extent(2)]);
        change.merge(Change { extents: vec![extent(1)], ..Change::default() });
        assert_eq!(change.extents.len(), 2, "what is added again stays");
    }
}
