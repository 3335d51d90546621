//! Damage on some copies of a segment is written again from one where it is intact. What became of it is known of each
//! device: one that cannot be written does not keep the others from being repaired.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::devices::device::{DeviceFile, Mode};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::format::ids::{DeviceNumber, LogOffset, SegmentId, SegmentNumber};
use crate::format::names::segment_path;
use crate::log::scan::{DifferingCopies, ScanStep, SegmentScan};

/// Why damage on a copy stays.
#[derive(Debug)]
enum Left {
    /// The copy cannot be opened for writing: nothing was written.
    Unopened(Error),
    /// Writing or syncing failed: what is there is unknown.
    Failed(Error),
    /// No copy has all of it.
    WithoutSource,
}

/// What became of damage on copies of a segment.
#[derive(Debug, Default)]
pub(crate) struct RepairedCopies {
    /// Copies that were written to.
    written: BTreeMap<DeviceNumber, Arc<dyn DeviceFile>>,
    left: BTreeMap<DeviceNumber, Left>,
}

impl RepairedCopies {
    /// Whether all that was damaged on a device was written again, and is durable.
    pub(crate) fn has(&self, device: DeviceNumber) -> bool {
        self.written.contains_key(&device) && !self.left.contains_key(&device)
    }

    /// Why it was not, if that is known.
    pub(crate) fn cause(&self, device: DeviceNumber) -> Option<&Error> {
        match self.left.get(&device)? {
            Left::Unopened(error) | Left::Failed(error) => Some(error),
            Left::WithoutSource => None,
        }
    }

    /// Number of devices on which writing or syncing failed.
    pub(crate) fn failed(&self) -> u64 {
        self.left.values().filter(|left| matches!(left, Left::Failed(_))).count() as u64
    }

    /// The same, unless one of these failures `ends` the work.
    ///
    /// # Errors
    /// That failure.
    pub(crate) fn unless(mut self, ends: impl Fn(&Error) -> bool) -> Result<RepairedCopies> {
        let is_end = |left: &Left| matches!(left, Left::Failed(error) if ends(error));
        let device = self.left.iter().find(|(_, left)| is_end(left)).map(|(&device, _)| device);
        match device.and_then(|device| self.left.remove(&device)) {
            Some(Left::Failed(error)) => Err(error),
            _ => Ok(self),
        }
    }

    fn leave(&mut self, device: DeviceNumber, left: Left) {
        self.left.entry(device).or_insert(left);
    }
}

/// A repair in progress.
struct Repair<'e> {
    engine: &'e Engine,
    id: SegmentId,
    copies: RepairedCopies,
}

impl Repair<'_> {
    /// Writes bytes to the copies on these devices.
    fn write(&mut self, devices: &[DeviceNumber], at: LogOffset, bytes: &[u8]) {
        for &device in devices {
            if matches!(self.copies.left.get(&device), Some(Left::Unopened(_) | Left::Failed(_))) {
                continue;
            }
            match self.file(device) {
                Err(error) => self.copies.leave(device, Left::Unopened(self.error("repair", device, error))),
                Ok(file) => {
                    if let Err(error) = file.write_at(bytes, at.0) {
                        self.copies.leave(device, Left::Failed(self.error("repair", device, error)));
                    }
                }
            }
        }
    }

    fn file(&mut self, device: DeviceNumber) -> io::Result<Arc<dyn DeviceFile>> {
        if let Some(file) = self.copies.written.get(&device) {
            return Ok(Arc::clone(file));
        }
        let file = self.engine.devices.segment(device, self.id, Mode::Write)?;
        self.copies.written.insert(device, Arc::clone(&file));
        Ok(file)
    }

    /// Writes a record again where it is damaged, from a copy that has it.
    ///
    /// # Errors
    /// It cannot be read there any more.
    fn record(
        &mut self,
        at: LogOffset,
        record_bytes: u64,
        on: DifferingCopies,
        devices: &[DeviceNumber],
    ) -> Result<()> {
        let is_whole = |device: &&DeviceNumber| !on.without.contains(device) && !on.differ.contains(device);
        let Some(&source) = devices.iter().find(is_whole) else {
            on.without.iter().for_each(|&device| self.copies.leave(device, Left::WithoutSource));
            return Ok(());
        };
        let mut bytes = Vec::new();
        let read = self.engine.read_copy(source, self.id, at, record_bytes as usize, &mut bytes);
        read.map_err(|error| self.error("read", source, error))?;
        self.write(&on.without, at, &bytes);
        Ok(())
    }

    /// Makes what was written durable.
    fn sync(mut self) -> RepairedCopies {
        let failed = |(&device, file): (&DeviceNumber, &Arc<dyn DeviceFile>)| Some((device, file.sync().err()?));
        for (device, error) in self.copies.written.iter().filter_map(failed).collect::<Vec<_>>() {
            self.copies.leave(device, Left::Failed(self.error("sync", device, error)));
        }
        self.copies
    }

    fn error(&self, operation: &'static str, device: DeviceNumber, error: io::Error) -> Error {
        self.engine.devices.error(operation, device, &segment_path(self.id), error)
    }
}

impl Engine {
    /// Rewrites damage in a range of a segment's copies from a valid copy. Copies that are valid and differ are left
    /// alone.
    ///
    /// # Errors
    /// A valid copy cannot be read any more.
    pub(crate) fn repair_segment(&self, number: SegmentNumber, range: Range<LogOffset>) -> Result<RepairedCopies> {
        let id = self.segment_id(number);
        let copies = self.open_copies(id, &self.copies(number));
        let devices: Vec<DeviceNumber> = copies.iter().map(|&(device, _)| device).collect();
        let mut scan = SegmentScan::new(copies, self.seed(id), range.start);
        let mut repair = Repair { engine: self, id, copies: RepairedCopies::default() };
        if range.start == LogOffset::START {
            let (header, without) = scan.header(id.into());
            if let Some(header) = header.filter(|header| header.id == id && !without.is_empty()) {
                repair.write(&without, LogOffset::START, &header.encode());
            }
        }
        loop {
            let (at, record_bytes, on) = match scan.next(true) {
                Some(ScanStep::Record(at, record, on)) => (at, record.record_bytes(), on),
                Some(ScanStep::Commit(committed, record, on)) => (committed.at, record.record_bytes(), on),
                Some(ScanStep::Damage(damaged, _)) if damaged.start < range.end => {
                    devices.iter().for_each(|&device| repair.copies.leave(device, Left::WithoutSource));
                    continue;
                }
                _ => break,
            };
            if at >= range.end {
                break;
            }
            if !on.without.is_empty() {
                repair.record(at, record_bytes, on, &devices)?;
            }
        }
        Ok(repair.sync())
    }
}
