//! Writing again what may exist only in memory: the end of the log as a killed process left it, or a process whose sync
//! failed.
//!
//! After a failed sync Linux considers pages and names clean that are not on the device, so that another sync proves
//! nothing. Bytes are therefore written again in place, and new files renamed to another name and back ([`names`]),
//! before they are synced.

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::devices::device::{DeviceFile, Mode};
use crate::devices::names;
use crate::engine::Engine;
use crate::error::Result;
use crate::format::descriptor::Run;
use crate::format::ids::{LogOffset, SegmentId};
use crate::format::names::{EXTENTS, SEGMENTS, segment_path};

impl Engine {
    /// Restores the names of files that a crash left with their other name.
    ///
    /// # Errors
    /// Errors of renaming, unless the writer continues without what cannot be read.
    pub(crate) fn end_renaming(&self) -> Result<()> {
        for slot in self.devices.slots().iter().filter(|slot| slot.is_writable()) {
            for directory in [SEGMENTS, EXTENTS] {
                let fail = |error| slot.error("finish renaming in", directory, error);
                match names::end_renaming(&*slot.device, directory) {
                    Err(_) if self.is_degraded => {}
                    ended => ended.map_err(fail)?,
                }
            }
        }
        Ok(())
    }

    /// Makes a range of a segment durable on all its copies, and runs of units, on devices that are up to date. A range
    /// from 0 on belongs to a new segment. A copy that cannot be opened for writing is left as it is, beside others.
    ///
    /// # Errors
    /// Errors of writing or syncing; no copy can be opened for writing, unless the writer continues without what cannot
    /// be read.
    pub(crate) fn write_again(
        &self,
        segment: SegmentId,
        range: Range<LogOffset>,
        units: impl Iterator<Item = Run>,
    ) -> Result<()> {
        let (mut is_durable, mut unopened) = (false, None);
        for number in self.copies(segment.number) {
            let path = segment_path(segment);
            let fail = |error| self.devices.error("make the log durable", number, &path, error);
            let Some(device) = self.devices.to_write(number) else { continue };
            let file = match self.devices.segment(number, segment, Mode::Write) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => {
                    unopened = Some(fail(error));
                    continue;
                }
            };
            if range.start == LogOffset::START {
                names::name_again(&*device, &path, SEGMENTS).map_err(fail)?;
            }
            write_again(&file, range.start.0..range.end.0).and_then(|()| file.sync()).map_err(fail)?;
            is_durable = true;
        }
        if let Some(error) = unopened.filter(|_| !is_durable && !self.is_degraded) {
            return Err(error);
        }
        let known = Arc::clone(&self.view().state.extents);
        let mut named = BTreeSet::new();
        for run in units {
            let Some(device) = self.devices.to_write(run.device) else { continue };
            let fail = |error| self.extents.error("make the units durable", run.device, run.file, error);
            // The batch is valid without a missing unit: redundancy reconstructs it.
            let Some(path) = self.extents.path(run.device, run.file).map_err(fail)? else { continue };
            let file = match names::open(&*device, &path, Mode::Write) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                other => other.map_err(fail)?,
            };
            if !known.contains_key(&(run.device, run.file)) && named.insert((run.device, run.file)) {
                names::name_again(&*device, &path, EXTENTS).map_err(fail)?;
            }
            let range = run.offset_bytes..run.offset_bytes + run.length_bytes;
            write_again(&file, range).and_then(|()| file.sync()).map_err(fail)?;
        }
        Ok(())
    }
}

/// Bytes in one read near an unreadable place.
const PAGE_BYTES: u64 = 4096;

/// Writes the bytes of a range again in place; they are not synced.
pub(super) fn write_again(file: &Arc<dyn DeviceFile>, range: Range<u64>) -> io::Result<()> {
    const PIECE_BYTES: u64 = 1 << 20;
    let mut bytes = Vec::new();
    let (mut at, mut most_bytes) = (range.start, PIECE_BYTES);
    while at < range.end {
        bytes.clear();
        let piece = (range.end - at).min(most_bytes);
        match file.read_onto(&mut bytes, piece as usize, at) {
            Ok(0) => break,
            Ok(read) => {
                file.write_at(&bytes, at)?;
                at += read as u64;
                most_bytes = PIECE_BYTES;
            }
            // Bytes around an unreadable place may exist only in memory.
            Err(_) if piece > PAGE_BYTES => most_bytes = PAGE_BYTES,
            // Unreadable bytes are not in memory either; another copy, or parity, has them.
            Err(_) => at += piece,
        }
    }
    Ok(())
}
