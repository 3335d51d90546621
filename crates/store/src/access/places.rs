//! Where the bytes of an object lie in the files of the devices: for a kernel, or a program, that reads them there.
//!
//! Nothing that is read that way is verified, and no parity is used. What is named stays as it is while the snapshot
//! exists, and longer while the files are open: space is freed by removing whole files only.

use std::path::PathBuf;

use super::content::{Content, Origin};
use super::pinned::PinnedSnapshot;
use super::walk::Lent;
use crate::engine::Engine;
use crate::error::Result;
use crate::format::attributes::Attributes;
use crate::format::descriptor::PACKED_AT;
use crate::format::entry::{Entry, Kind};
use crate::format::ids::{DeviceNumber, SegmentNumber};
use crate::format::names::segment_path;

/// A file of a device with content of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ContentFile {
    /// A segment.
    Segment(DeviceNumber, SegmentNumber),
    /// An extent file.
    Extents(DeviceNumber, u32),
}

impl ContentFile {
    /// The device that the file is on.
    pub fn device(self) -> DeviceNumber {
        match self {
            ContentFile::Segment(device, _) | ContentFile::Extents(device, _) => device,
        }
    }
}

/// A run of bytes of an object, as stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlacedRun {
    /// Offset of the first byte among the stored bytes of the object, holes left out.
    pub stored_at: u64,
    /// Length in bytes.
    pub length_bytes: u64,
    /// The file that contains it.
    pub file: ContentFile,
    /// Offset in that file.
    pub offset_bytes: u64,
}

/// An object without its content: where that is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    /// All attributes, with extended ones and holes.
    pub attributes: Attributes,
    /// Target of a symlink; major and minor number of a special file, 4 bytes each; else empty.
    pub inline: Vec<u8>,
    /// Where the stored bytes of a file are, in their order; `None` if they are compressed or not all on devices in
    /// service, so that only granulo can read them.
    pub runs: Option<Vec<PlacedRun>>,
}

impl PinnedSnapshot {
    /// Where the content of what a walk of this snapshot returned is. Reads its record, or the head of it.
    ///
    /// # Errors
    /// As [`Store::read`](crate::Store::read).
    pub fn place(&self, listed: &Lent<'_>, buffer: &mut Vec<u8>) -> Result<Placed> {
        let mut entry = listed.entry;
        loop {
            match self.store().engine().placed(&entry, buffer) {
                Err(error) => entry = self.find_again(listed.key, &entry, error)?,
                placed => return placed,
            }
        }
    }

    /// The content of what a walk of this snapshot returned, in pieces.
    ///
    /// # Errors
    /// As [`Store::content`](crate::Store::content).
    pub fn content(&self, listed: &Lent<'_>) -> Result<Content<'_>> {
        let mut entry = listed.entry;
        loop {
            match self.store().content_of(listed.key, entry, Origin::Snapshot(self)) {
                Err(error) => entry = self.find_again(listed.key, &entry, error)?,
                content => return content,
            }
        }
    }

    /// Number of files that may have content: as many as [`place`](Self::place) can name.
    pub fn content_files(&self) -> usize {
        let view = self.store().engine().view();
        view.state.segments.len() + view.state.extents.len()
    }

    /// Path of a file that [`place`](Self::place) named.
    pub fn path_of(&self, file: ContentFile) -> PathBuf {
        let engine = self.store().engine();
        match file {
            ContentFile::Segment(device, segment) => {
                engine.devices.place(device, &segment_path(engine.segment_id(segment)))
            }
            ContentFile::Extents(device, file) => engine.extents.place(device, file),
        }
    }
}

impl Engine {
    fn placed(&self, entry: &Entry, buffer: &mut Vec<u8>) -> Result<Placed> {
        if entry.kind == Kind::File || entry.kind == Kind::Directory {
            let head = self.read_head(entry, buffer)?;
            let attributes = self.attributes_of(entry, &head)?;
            let run = |device| PlacedRun {
                stored_at: 0,
                length_bytes: head.lengths.content as u64,
                file: ContentFile::Segment(device, entry.location.segment),
                offset_bytes: entry.location.offset.0 + head.lengths.head_bytes() as u64,
            };
            let is_empty = head.lengths.content == 0;
            let runs = match self.copy(entry.location.segment, 0) {
                _ if head.is_zstd => None,
                _ if is_empty => Some(Vec::new()),
                Some((device, _)) if self.devices.readable(device).is_some() => Some(vec![run(device)]),
                _ => None,
            };
            return Ok(Placed { attributes, inline: Vec::new(), runs });
        }
        let record = self.read_entry(entry, buffer)?;
        let attributes = self.attributes_of(entry, &record.head)?;
        if entry.kind != Kind::Large {
            return Ok(Placed { attributes, inline: record.content.to_vec(), runs: Some(Vec::new()) });
        }
        let descriptor = self.decode_descriptor(entry.location, record.content)?;
        let content_at = entry.location.offset.0 + record.head.lengths.head_bytes() as u64;
        let packed = self.copy(entry.location.segment, 0).map(|(device, _)| PlacedRun {
            stored_at: 0,
            length_bytes: descriptor.packed_bytes(),
            file: ContentFile::Segment(device, entry.location.segment),
            offset_bytes: content_at + PACKED_AT,
        });
        let units = descriptor.data_units().map(|(stored_at, length_bytes, unit)| PlacedRun {
            stored_at,
            length_bytes,
            file: ContentFile::Extents(unit.device, unit.file),
            offset_bytes: unit.offset_bytes,
        });
        let runs: Vec<PlacedRun> = packed.into_iter().filter(|run| run.length_bytes > 0).chain(units).collect();
        let is_here = |run: &PlacedRun| self.devices.readable(run.file.device()).is_some();
        let is_whole = descriptor.packed.is_empty() || packed.is_some();
        let runs = (is_whole && runs.iter().all(is_here)).then_some(runs);
        Ok(Placed { attributes, inline: Vec::new(), runs })
    }
}
