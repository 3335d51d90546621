//! The image of a store: one state of it as files with lengths, and what its superblocks say at that moment.
//!
//! It ends with a batch that was acknowledged. Its history has nothing that began after a later batch, so that a copy
//! of these files, with superblocks of this image, is the store as it was right behind that batch.

use std::collections::BTreeMap;

use crate::format::geometry::Geometry;
use crate::format::history::History;
use crate::format::ids::{DeviceNumber, Epoch};
use crate::format::names::{EXTENTS, segment_path};
use crate::format::superblock::LogMark;
use crate::index::catalog::{Position, State};
use crate::index::table::table_path;

/// What a file of an image is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FileKind {
    /// A segment: what a history once has of it, it has forever; the last one grows.
    Segment,
    /// An extent file: where an object has units, these stay.
    Extents,
    /// A sorted table, the same on each device with the index. An index that was rebuilt may use a number again.
    Table,
}

/// A file of an image.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ImageFile {
    pub(crate) device: DeviceNumber,
    /// Its path on the device.
    pub(crate) path: String,
    pub(crate) size_bytes: u64,
    pub(crate) kind: FileKind,
}

/// The last batch of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LastBatch {
    /// The epoch of its writer.
    pub(crate) epoch: Epoch,
    /// The store was closed there.
    pub(crate) is_close: bool,
    /// Its commit record.
    pub(crate) record: Vec<u8>,
}

/// One state of a store.
#[derive(Debug, Clone)]
pub(crate) struct Image {
    pub(crate) geometry: Geometry,
    pub(crate) history: History,
    pub(crate) state: State,
    /// `None` if nothing was written yet.
    pub(crate) last: Option<LastBatch>,
    /// Ids up to this one may have been assigned.
    pub(crate) ids_reserved: u64,
    /// Names of the extent files.
    pub(crate) extents: BTreeMap<(DeviceNumber, u32), String>,
}

impl Image {
    /// Its end in the log.
    pub(crate) fn position(&self) -> Position {
        self.state.position
    }

    /// Its files, those that others refer to first.
    pub(crate) fn files(&self) -> Vec<ImageFile> {
        let extents = self.state.extents.iter().filter_map(|(place, row)| {
            let path = format!("{EXTENTS}/{}", self.extents.get(place)?);
            Some(ImageFile { device: row.device, path, size_bytes: row.end_bytes, kind: FileKind::Extents })
        });
        let segments = self.state.segments.values().flat_map(|row| {
            let (path, size_bytes, kind) = (segment_path(row.id()), row.size_bytes, FileKind::Segment);
            row.devices.iter().map(move |&device| ImageFile { device, path: path.clone(), size_bytes, kind })
        });
        let tables = self.state.tables.iter().flat_map(|row| {
            let (path, size_bytes, kind) = (table_path(row.number), row.size_bytes, FileKind::Table);
            self.state.devices.iter().map(move |&device| ImageFile { device, path: path.clone(), size_bytes, kind })
        });
        extents.chain(segments).chain(tables).collect()
    }

    /// What superblocks of this state say about the end of the log; `None` if nothing was written yet.
    pub(crate) fn mark(&self) -> Option<LogMark> {
        let last = self.last.as_ref()?;
        let Position { segment, commit: _, offset, sequence, chain } = self.position();
        let newest = self.state.segments.keys().next_back().copied().unwrap_or_default();
        let segments_begun = newest.max(segment).0.max(self.history.newest().segments_begun);
        let ids_reserved = self.ids_reserved.max(self.state.highest_id);
        Some(LogMark { is_closed: last.is_close, segment, offset, sequence, chain, segments_begun, ids_reserved })
    }
}
