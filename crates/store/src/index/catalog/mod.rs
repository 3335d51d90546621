//! The catalog: the small, transactional part of the index (docs/FORMAT.md, section 10).
//!
//! It has what changed since the last sorted table, which tables, segments and extent files there are, and how far the log has
//! been taken in. It changes by whole batches, after they are durable in the log, so it is never ahead of the log.
//!
//! | module | subject |
//! | --- | --- |
//! | `kept` | the catalog on its devices: loading, refreshing, committing |
//! | `manifest` | the document that is replaced whole |
//! | `journal` | the frames that continue it |
//! | `encoding`, `recent` | what is in both |
//! | `chunks` | what changed since the newest table, in memory |

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::format::entry::Entry;
use crate::format::geometry::Class;
use crate::format::ids::{Epoch, SegmentId};

pub mod chunks;
pub(crate) mod encoding;
pub(crate) mod journal;
pub(crate) mod kept;
pub(crate) mod manifest;
pub(crate) mod recent;

#[cfg(test)]
pub(crate) mod tests;

/// A place in the log: the end of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Position {
    /// Segment that the batch is in; 0 before the first.
    pub segment: u64,
    /// Offset of its commit record.
    pub commit: u64,
    /// Offset of the end of its commit record.
    pub offset: u64,
    /// Its sequence number.
    pub sequence: u64,
    /// Chain after it.
    pub chain: u64,
}

/// A segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentRow {
    /// Its number.
    pub number: u64,
    /// The epoch that it was begun in.
    pub epoch: Epoch,
    /// Class of the devices it is on.
    pub class: Class,
    /// Devices with a copy of it.
    pub devices: Vec<u16>,
    /// Its size with header, in bytes.
    pub size_bytes: u64,
    /// Bytes of records in use.
    pub live_bytes: u64,
    /// Records in use.
    pub live_records: u64,
    /// Records that were replaced or removed, and removals.
    pub dead_records: u64,
    /// Lowest id of a record in it; `u64::MAX` of none.
    pub lowest_id: u64,
}

impl SegmentRow {
    /// Which segment it is.
    pub fn id(&self) -> SegmentId {
        SegmentId::new(self.number, self.epoch)
    }
}

/// An extent file on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExtentRow {
    /// Device.
    pub device: u16,
    /// Number of the file.
    pub file: u32,
    /// Where the next component goes, in bytes.
    pub end_bytes: u64,
    /// Bytes of units in use.
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
    /// Lowest id of an entry.
    pub lowest_id: u64,
    /// Highest id of an entry.
    pub highest_id: u64,
}

/// A removed tree: hides entries of sorted tables with a lower id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangeRow {
    /// Stored form of the key; it and all below are hidden.
    pub key: Vec<u8>,
    /// Id of the removal.
    pub id: u64,
}

/// Space to be given back when no reader has a snapshot of the epoch or an older one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Freed {
    /// A segment whose records were moved or are dead.
    Segment(u64),
    /// An extent file of which no unit is in use.
    Extent {
        /// Device.
        device: u16,
        /// Extent file.
        file: u32,
    },
    /// A sorted table that was merged into another.
    Table(u64),
}

/// Everything the catalog has, in memory. Cheap to clone.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct State {
    /// How far the log has been taken in.
    pub position: Position,
    /// Changes with each commit.
    pub version: u64,
    /// Snapshots of readers are pinned to it.
    pub epoch: u64,
    /// Highest id given.
    pub highest_id: u64,
    /// Number of the next sorted table.
    pub next_table: u64,
    /// What changed since the newest sorted table, by stored key.
    pub recent: chunks::Recent,
    /// Removed trees, by key; a key has one.
    pub ranges: Arc<Vec<RangeRow>>,
    /// Sorted tables, oldest first.
    pub tables: Arc<Vec<TableRow>>,
    /// Segments by number.
    pub segments: Arc<BTreeMap<u64, SegmentRow>>,
    /// Extent files by device and number.
    pub extents: Arc<BTreeMap<(u16, u32), ExtentRow>>,
    /// Names of each shared object, by its number.
    pub shared: Arc<BTreeMap<u64, u64>>,
    /// What is to be given back, with the epoch in which it was freed, in that order.
    pub freed: Arc<BTreeSet<(u64, Freed)>>,
    /// Progress and dates of maintenance, by name.
    pub notes: Arc<BTreeMap<String, Vec<u8>>>,
    /// Devices with a copy of the index.
    pub devices: Arc<Vec<u16>>,
    /// Epochs that stay until they are released by name, whatever processes end.
    pub pins: Arc<BTreeMap<String, u64>>,
}

/// What one transaction changes. Fields that are empty or `None` change nothing.
#[derive(Debug, Clone, Default)]
pub struct Change {
    /// New position in the log.
    pub position: Option<Position>,
    /// New epoch.
    pub epoch: Option<u64>,
    /// New highest id; a lower one than there was changes nothing, as none is given twice.
    pub highest_id: Option<u64>,
    /// New number of the next sorted table.
    pub next_table: Option<u64>,
    /// Empties `recent` first (it became a table).
    pub clear_recent: bool,
    /// Keys that `recent` no longer has.
    pub forget: Vec<Arc<[u8]>>,
    /// Keys that `recent` has now.
    pub recent: Vec<(Arc<[u8]>, Entry)>,
    /// All removed trees, in any order; of two with the same key the newer counts.
    pub ranges: Option<Vec<RangeRow>>,
    /// All sorted tables, oldest first.
    pub tables: Option<Vec<TableRow>>,
    /// Segments that are new or changed.
    pub segments: Vec<SegmentRow>,
    /// Segments that are no more.
    pub removed_segments: Vec<u64>,
    /// Extent files that are new or changed.
    pub extents: Vec<ExtentRow>,
    /// Extent files that are no more.
    pub removed_extents: Vec<(u16, u32)>,
    /// Names of shared objects; 0 for one that is no more.
    pub shared: Vec<(u64, u64)>,
    /// What is to be given back besides what there was.
    pub freed: Vec<(u64, Freed)>,
    /// What was given back.
    pub given_back: Vec<(u64, Freed)>,
    /// Notes; an empty one is removed.
    pub notes: Vec<(String, Vec<u8>)>,
    /// All devices with a copy of the index.
    pub devices: Option<Vec<u16>>,
    /// Pins that are new or changed.
    pub pins: Vec<(String, u64)>,
    /// Pins that are no more.
    pub unpinned: Vec<String>,
    /// Whether the transaction must be durable when `commit` returns. The others are so some time later, in order.
    pub durable: bool,
}

impl State {
    /// Makes the changes of one transaction. Keys are shared with it.
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
        if !change.freed.is_empty() || !change.given_back.is_empty() {
            let freed = Arc::make_mut(&mut self.freed);
            freed.extend(change.freed.iter().cloned());
            for given_back in &change.given_back {
                freed.remove(given_back);
            }
        }
        let (gone, notes) = change.notes.iter().cloned().partition(|(_, note)| note.is_empty());
        apply_rows(&mut self.notes, &keys(gone), notes);
        if let Some(devices) = &change.devices {
            self.devices = Arc::new(devices.clone());
        }
        apply_rows(&mut self.pins, &change.unpinned, change.pins.clone());
    }
}

/// Removes, then inserts. A map that a snapshot has too is copied, but not for nothing.
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

/// Removed trees by key, of each the newest.
fn sorted_ranges(mut ranges: Vec<RangeRow>) -> Vec<RangeRow> {
    ranges.sort_by(|a, b| a.key.cmp(&b.key).then(b.id.cmp(&a.id)));
    ranges.dedup_by(|next, first| next.key == first.key);
    ranges
}

impl Change {
    /// Bytes of memory that its keys and their entries take, about.
    pub fn bytes(&self) -> usize {
        let keys = self.recent.iter().map(|(key, _)| key).chain(&self.forget);
        keys.map(|key| chunks::weight(key)).sum()
    }

    /// This change and then `later`, as one.
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
        self.removed_extents.extend(later.removed_extents);
        merge_rows(&mut self.extents, later.extents, |row| (row.device, row.file));
        merge_rows(&mut self.shared, later.shared, |row| row.0);
        self.freed.extend(later.freed);
        self.given_back.extend(later.given_back);
        merge_rows(&mut self.notes, later.notes, |row| row.0.clone());
        self.devices = later.devices.or(self.devices.take());
        let unpinned = &later.unpinned;
        self.pins.retain(|(name, _)| !unpinned.contains(name));
        self.unpinned.extend(later.unpinned);
        merge_rows(&mut self.pins, later.pins, |row| row.0.clone());
        self.durable |= later.durable;
    }
}

/// Rows of two changes; of two about the same thing, the later.
fn merge_rows<T, K: Ord>(rows: &mut Vec<T>, later: Vec<T>, key: impl Fn(&T) -> K) {
    if later.is_empty() {
        return;
    }
    let mut all: BTreeMap<K, T> = std::mem::take(rows).into_iter().map(|row| (key(&row), row)).collect();
    all.extend(later.into_iter().map(|row| (key(&row), row)));
    rows.extend(all.into_values());
}
