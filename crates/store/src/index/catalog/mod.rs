//! The catalog: the small, transactional part of the index (docs/FORMAT.md, section 10).
//!
//! It has the changes since the last sorted table, the lists of tables, segments and extent files, and how far the log
//! has been applied. It changes by whole batches, after they are durable in the log, so it is never ahead of the log.
//!
//! | module | subject |
//! | --- | --- |
//! | `kept` | the catalog on its devices: loading, refreshing, committing |
//! | `manifest` | the document that is replaced as a whole |
//! | `journal` | the frames that continue it |
//! | `encoding`, `recent` | the content of both |
//! | `chunks` | changes since the newest table, in memory |

use crate::format::ids::{DeviceNumber, ObjectNumber, SegmentNumber};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

pub use crate::format::rows::{Change, ExtentRow, Position, RangeRow, SegmentRow, SnapshotRow, Superseded, TableRow};

pub mod chunks;
pub(crate) mod encoding;
pub(crate) mod journal;
pub(crate) mod kept;
pub(crate) mod manifest;
pub(crate) mod recent;

#[cfg(test)]
pub(crate) mod tests;

/// The whole catalog in memory. Cheap to clone.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct State {
    /// How far the log has been applied.
    pub position: Position,
    /// Changes with each commit.
    pub version: u64,
    /// The epoch that snapshots of readers pin.
    pub epoch: u64,
    /// Highest id assigned.
    pub highest_id: u64,
    /// Number of the next sorted table.
    pub next_table: u64,
    /// Changes since the newest sorted table, by stored key.
    pub recent: chunks::Recent,
    /// Directories of removed trees, by number, one row each.
    pub ranges: Arc<Vec<RangeRow>>,
    /// Sorted tables, oldest first.
    pub tables: Arc<Vec<TableRow>>,
    /// Segments by number.
    pub segments: Arc<BTreeMap<SegmentNumber, SegmentRow>>,
    /// Extent files by device and number.
    pub extents: Arc<BTreeMap<(DeviceNumber, u32), ExtentRow>>,
    /// Number of names of each shared object, by its number.
    pub shared: Arc<BTreeMap<ObjectNumber, u64>>,
    /// What is to be freed, in the order of the epochs in which it became unreferenced.
    pub superseded: Arc<BTreeSet<(u64, Superseded)>>,
    /// Progress and times of maintenance, by name.
    pub notes: Arc<BTreeMap<String, Vec<u8>>>,
    /// Devices with a copy of the index.
    pub devices: Arc<Vec<DeviceNumber>>,
    /// Epochs pinned by name until released, whatever processes end.
    pub pins: Arc<BTreeMap<String, u64>>,
    /// Snapshots by name, in ascending order of sequence number.
    pub snapshots: Arc<Vec<SnapshotRow>>,
}

impl State {
    /// The snapshots, by position, that preserve what existed from record `id` until record `until`.
    pub(crate) fn keepers(&self, id: u64, until: u64) -> Range<usize> {
        let below = |sequence: u64| self.snapshots.partition_point(|row| row.sequence < sequence);
        below(id)..below(until)
    }

    /// Whether one of them does.
    pub(crate) fn keeps(&self, id: u64, until: u64) -> bool {
        !self.keepers(id, until).is_empty()
    }

    /// The snapshot of a name.
    pub(crate) fn snapshot_named(&self, name: &[u8]) -> Option<&SnapshotRow> {
        self.snapshots.iter().find(|row| row.name == name)
    }

    /// Whether the snapshot with a sequence number exists.
    pub(crate) fn has_snapshot(&self, sequence: u64) -> bool {
        self.snapshots.iter().any(|row| row.sequence == sequence)
    }

    /// Segments that are freed once no reader needs them.
    pub(crate) fn superseded_segments(&self) -> impl Iterator<Item = SegmentNumber> {
        self.superseded.iter().filter_map(|(_, superseded)| match *superseded {
            Superseded::Segment(number) => Some(number),
            Superseded::Extent { .. } | Superseded::Table(_) => None,
        })
    }

    /// Extent files that are freed once no reader needs them.
    pub(crate) fn superseded_extents(&self) -> impl Iterator<Item = (DeviceNumber, u32)> {
        self.superseded.iter().filter_map(|(_, superseded)| match *superseded {
            Superseded::Extent { device, file } => Some((device, file)),
            Superseded::Segment(_) | Superseded::Table(_) => None,
        })
    }

    /// Applies the changes of one transaction. Keys are shared with it.
    pub fn apply(&mut self, change: &Change) {
        self.version += 1;
        self.position = change.position.unwrap_or(self.position);
        self.epoch = change.epoch.unwrap_or(self.epoch);
        self.highest_id = self.highest_id.max(change.highest_id.unwrap_or(0));
        self.next_table = change.next_table.unwrap_or(self.next_table);
        if change.clear_recent {
            self.recent = chunks::Recent::default();
        }
        change.forget.iter().for_each(|key| self.recent.remove(key));
        self.recent.extend(change.recent.iter().map(|(key, entry)| (key, *entry)));
        if let Some(ranges) = &change.ranges {
            self.ranges = Arc::new(sorted_ranges(ranges.clone()));
        }
        if let Some(tables) = &change.tables {
            self.tables = Arc::new(tables.clone());
        }
        let segments = change.segments.iter().map(|row| (row.number, row.clone())).collect();
        apply_rows(&mut self.segments, &change.removed_segments, segments);
        let extents = change.extents.iter().map(|row| ((row.device, row.file), *row)).collect();
        apply_rows(&mut self.extents, &change.removed_extents, extents);
        let (gone, shared) = change.shared.iter().partition(|(_, names)| *names == 0);
        apply_rows(&mut self.shared, &keys(gone), shared);
        if !change.superseded.is_empty() || !change.freed.is_empty() {
            let superseded = Arc::make_mut(&mut self.superseded);
            superseded.extend(change.superseded.iter().cloned());
            for freed in &change.freed {
                superseded.remove(freed);
            }
        }
        let (gone, notes) = change.notes.iter().cloned().partition(|(_, note)| note.is_empty());
        apply_rows(&mut self.notes, &keys(gone), notes);
        if let Some(devices) = &change.devices {
            self.devices = Arc::new(devices.clone());
        }
        apply_rows(&mut self.pins, &change.unpinned, change.pins.clone());
        if let Some(snapshots) = &change.snapshots {
            self.snapshots = Arc::new(snapshots.clone());
        }
    }
}

/// Removes, then inserts. A map shared with a snapshot is copied, but only if there are changes.
fn apply_rows<K: Ord + Clone, V: Clone>(map: &mut Arc<BTreeMap<K, V>>, removed: &[K], inserted: Vec<(K, V)>) {
    if removed.is_empty() && inserted.is_empty() {
        return;
    }
    let map = Arc::make_mut(map);
    for key in removed {
        map.remove(key);
    }
    map.extend(inserted);
}

fn keys<K, V>(rows: Vec<(K, V)>) -> Vec<K> {
    rows.into_iter().map(|(key, _)| key).collect()
}

/// Removed directories by number, each with its newest row.
fn sorted_ranges(mut ranges: Vec<RangeRow>) -> Vec<RangeRow> {
    ranges.sort_by_key(|row| (row.directory, std::cmp::Reverse(row.id)));
    ranges.dedup_by_key(|row| row.directory);
    ranges
}
