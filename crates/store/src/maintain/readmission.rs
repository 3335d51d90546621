//! Readmission: a device that was out of service returns if its content belongs to this store.
//!
//! What it holds may exist only in memory. A device leaves service when a sync fails on it, and after that Linux
//! considers pages clean that are not on the device: everything reads well, and a later sync proves nothing. So before
//! it counts again, all that was written to it from its own last mark on is written again and synced
//! ([`rewrite`](super::rewrite)), and what a crash left under another name is renamed back. Until that is done nothing
//! is written to its superblock, so an interrupted readmission begins again at the same place. Damage, and what the
//! device missed, are left to the repair that follows.
//!
//! A device without a sound superblock has no mark. The last epoch that counts it began when everything before was
//! durable on it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::rewrite::write_again;
use crate::devices::device::{Device, DeviceFile, Mode, NotAFile};
use crate::devices::extents::{DeviceSource, ExtentFiles, file_number};
use crate::devices::names;
use crate::devices::slot::{Slot, Trouble};
use crate::engine::Engine;
use crate::engine::locking::is_of_disk;
use crate::engine::pace::Pace;
use crate::error::{Error, ErrorKind, Result, os_message};
use crate::format::descriptor::{Chunk, Run};
use crate::format::entry::Kind;
use crate::format::ids::{DeviceNumber, LogOffset, SegmentNumber};
use crate::format::names::{EXTENTS, SEGMENTS, segment_path};
use crate::format::superblock::LogMark;
use crate::log::scan::SegmentScan;

/// Most large objects whose units are sought on a device without a sound superblock.
const ASKED: usize = 64;

/// A place in the log: everything before it is durable on a device.
type Proven = (SegmentNumber, LogOffset);

/// A device that is about to return.
#[derive(Debug)]
struct Returning {
    slot: Slot,
    proven: Proven,
    /// Its extent files by number; a crash may have left two with one.
    extents: BTreeMap<u32, Vec<String>>,
    /// Those that were renamed and back.
    renamed: BTreeSet<u32>,
    /// The one that was written to last, and is not synced.
    unsynced: Option<(u32, Vec<Arc<dyn DeviceFile>>)>,
    /// Whether what was written is there.
    outcome: Result<()>,
}

impl Engine {
    /// Returns devices to service whose content belongs to this store: stale ones, and ones without a sound superblock.
    /// One that cannot be written stays out of service.
    ///
    /// # Errors
    /// [`ErrorKind::Interrupted`] if the work is asked to stop; errors of reading the index.
    pub(crate) fn admit(&self, pace: &mut Pace<'_>) -> Result<Vec<DeviceNumber>> {
        let mut returning = Vec::new();
        for slot in self.devices.slots().iter() {
            if matches!(slot.trouble, Some(Trouble::Stale { .. } | Trouble::Damaged | Trouble::Unmarked))
                && let Err(error) = self.platform.lock(&slot.path)
                && is_of_disk(&error)
            {
                self.stays_out(slot.entry.number, os_message(&error));
                continue;
            }
            let is_ours = match slot.trouble {
                Some(Trouble::Stale { .. }) => true,
                Some(Trouble::Damaged | Trouble::Unmarked | Trouble::Empty) => self.has_ours(slot)?,
                _ => false,
            };
            if is_ours {
                match self.returning(slot) {
                    Ok(ours) => returning.push(ours),
                    Err(error) => self.stays_out(slot.entry.number, error.to_string()),
                }
            }
        }
        self.make_units_durable(&mut returning, pace)?;
        let mut admitted = Vec::new();
        for mut device in returning {
            let number = device.slot.entry.number;
            let synced = std::mem::replace(&mut device.outcome, Ok(())).and_then(|()| device.sync());
            match synced.and_then(|()| self.make_segments_durable(&device, pace)) {
                Err(error) if error.kind() == ErrorKind::Interrupted => return Err(error),
                Err(error) => self.stays_out(number, error.to_string()),
                Ok(()) => admitted.push(number),
            }
        }
        for &device in &admitted {
            self.devices.change_slot(device, |slot| slot.trouble = None);
            self.extents.forget(device);
        }
        Ok(admitted)
    }

    fn stays_out(&self, device: DeviceNumber, cause: String) {
        let failed = Trouble::Failed(cause);
        self.devices.change_slot(device, |slot| slot.trouble = Some(failed));
    }

    /// A device that is about to return, with its files under their own names.
    fn returning(&self, slot: &Slot) -> Result<Returning> {
        for directory in [SEGMENTS, EXTENTS] {
            let fail = |error| slot.error("finish renaming in", directory, error);
            names::end_renaming(&*slot.device, directory).map_err(fail)?;
        }
        let fail = |error| slot.error("list", EXTENTS, error);
        let mut extents: BTreeMap<u32, Vec<String>> = BTreeMap::new();
        for name in names::list_names(&*slot.device, EXTENTS).map_err(fail)? {
            file_number(&name).into_iter().for_each(|file| extents.entry(file).or_default().push(name.clone()));
        }
        let proven = self.proven_on(slot.entry.number);
        Ok(Returning { slot: slot.clone(), proven, extents, renamed: BTreeSet::new(), unsynced: None, outcome: Ok(()) })
    }

    /// Up to where everything is durable on a device, according to its own superblock, or to the others.
    fn proven_on(&self, device: DeviceNumber) -> Proven {
        if let Some(LogMark { segment, offset, .. }) = self.devices.mark_on(device) {
            return (segment, offset);
        }
        let history = self.devices.history();
        let counted = history.entries().rev().find(|entry| entry.has(device));
        (SegmentNumber(counted.map_or(0, |entry| entry.segments_begun + 1)), LogOffset::START)
    }

    /// Writes the units again whose records are not in the proven part of the log. A device on which that fails keeps
    /// the error.
    ///
    /// # Errors
    /// [`ErrorKind::Interrupted`] if the work is asked to stop; errors of reading the index.
    fn make_units_durable(&self, returning: &mut [Returning], pace: &mut Pace<'_>) -> Result<()> {
        let Some(first) = returning.iter().map(|device| device.proven).min() else { return Ok(()) };
        let view = self.view().clone();
        let snapshot = view.snapshot();
        let mut scan = snapshot.scan_versions_from(&[])?;
        while let Some((_, entry)) = scan.next_entry()? {
            let place = (entry.location.segment, entry.location.offset);
            if entry.kind != Kind::Large || place < first {
                continue;
            }
            // Without its record nothing says where its units are; the repair tells of it.
            let Ok(descriptor) = self.descriptor(entry) else { continue };
            for run in descriptor.runs() {
                let is_meant = |device: &&mut Returning| {
                    device.slot.entry.number == run.device && place >= device.proven && device.outcome.is_ok()
                };
                if let Some(device) = returning.iter_mut().find(is_meant) {
                    device.outcome = device.write_again(run);
                }
            }
            pace.spend(0)?;
        }
        Ok(())
    }

    /// Writes the segments again that do not end in the proven part of the log.
    fn make_segments_durable(&self, device: &Returning, pace: &mut Pace<'_>) -> Result<()> {
        let Returning { slot, proven: (segment, offset), .. } = device;
        let rows = Arc::clone(&self.view().state.segments);
        for row in rows.range(*segment..).map(|(_, row)| row).filter(|row| row.devices.contains(&slot.entry.number)) {
            let path = segment_path(row.id());
            let fail = |error| slot.error("make the log durable", &path, error);
            let file = match names::open(&*slot.device, &path, Mode::Write) {
                // Nothing of the log is there: the repair tells of it.
                Err(error) if error.kind() == io::ErrorKind::NotFound || NotAFile::is(&error) => continue,
                other => other.map_err(fail)?,
            };
            let begin = if row.number == *segment { *offset } else { LogOffset::START };
            if begin == LogOffset::START {
                names::name_again(&*slot.device, &path, SEGMENTS).map_err(fail)?;
            }
            let end = file.size().map_err(fail)?;
            write_again(&file, begin.0..end).and_then(|()| file.sync()).map_err(fail)?;
            pace.spend(0)?;
        }
        Ok(())
    }

    /// Whether a directory without a sound superblock has a segment or a stripe unit that the accounts have on this
    /// device.
    pub(crate) fn has_ours(&self, slot: &Slot) -> Result<bool> {
        let view = self.view().clone();
        let number = slot.entry.number;
        let geometry = self.geometry();
        for row in view.state.segments.values().filter(|row| row.devices.contains(&number)) {
            let Ok(file) = names::open(&*slot.device, &segment_path(row.id()), Mode::Read) else {
                continue;
            };
            let (header, _) =
                SegmentScan::new(vec![(number, file)], self.seed(row.id()), LogOffset::START).header(row.id().into());
            if header.is_some_and(|header| header.store == geometry.store && header.id == row.id()) {
                return Ok(true);
            }
        }
        if !view.state.extents.values().any(|row| row.device == number && row.live_bytes > 0) {
            // Nothing is stored on it: a directory whose superblock is damaged is still a device; an empty one may be a
            // mount point.
            return Ok(slot.trouble == Some(Trouble::Damaged));
        }
        // Checksums identify units: they are read from the device as if it were in service.
        let mut asked = 0;
        let files = ExtentFiles::new(Arc::new(Alone { number, slot: slot.clone() }));
        let snapshot = view.snapshot();
        let mut scan = snapshot.scan_versions_from(&[])?;
        while let Some((_, entry)) = scan.next_entry()? {
            if entry.kind != Kind::Large {
                continue;
            }
            let Ok(descriptor) = self.descriptor(entry) else { continue };
            let wanted = descriptor.chunks.iter().map(|chunk| of_device(chunk, number)).sum::<usize>();
            if wanted == 0 {
                continue;
            }
            let wrong = files.verify(&descriptor, &mut |_| Ok(()))?;
            if wrong.iter().filter(|unit| unit.device == number).count() < wanted {
                return Ok(true);
            }
            asked += 1;
            if asked >= ASKED {
                break;
            }
        }
        Ok(false)
    }
}

impl Returning {
    /// Writes a run of units again, if its file exists.
    fn write_again(&mut self, run: Run) -> Result<()> {
        if self.unsynced.as_ref().is_none_or(|(file, _)| *file != run.file) {
            self.sync()?;
            let is_first = self.renamed.insert(run.file);
            let mut opened = Vec::new();
            for name in self.extents.get(&run.file).into_iter().flatten() {
                let path = format!("{EXTENTS}/{name}");
                let fail = |error| self.error(&path, error);
                if is_first {
                    names::name_again(&*self.slot.device, &path, EXTENTS).map_err(fail)?;
                }
                opened.push(names::open(&*self.slot.device, &path, Mode::Write).map_err(fail)?);
            }
            self.unsynced = Some((run.file, opened));
        }
        let range = run.offset_bytes..run.offset_bytes + run.length_bytes;
        let mut files = self.unsynced.iter().flat_map(|(_, files)| files);
        files.try_for_each(|file| write_again(file, range.clone())).map_err(|error| self.error(EXTENTS, error))
    }

    fn sync(&mut self) -> Result<()> {
        let files = self.unsynced.take().map_or_else(Vec::new, |(_, files)| files);
        files.iter().try_for_each(|file| file.sync()).map_err(|error| self.error(EXTENTS, error))
    }

    fn error(&self, path: &str, error: io::Error) -> Error {
        self.slot.error("make the units durable", path, error)
    }
}

/// Units of a chunk that have bytes and are on a device.
fn of_device(chunk: &Chunk, device: DeviceNumber) -> usize {
    let stripes = chunk.stripes;
    let Some(component) = chunk.components.iter().position(|component| component.device == device) else { return 0 };
    (0..stripes.count()).filter(|&stripe| stripes.unit_length(stripe, stripes.unit_in(stripe, component)) > 0).count()
}

/// A view of one device alone.
#[derive(Debug)]
struct Alone {
    number: DeviceNumber,
    slot: Slot,
}

impl DeviceSource for Alone {
    fn device(&self, number: DeviceNumber) -> Option<Arc<dyn Device>> {
        (number == self.number).then(|| Arc::clone(&self.slot.device))
    }

    fn device_to_write(&self, _: DeviceNumber) -> Option<Arc<dyn Device>> {
        None
    }

    fn directory(&self, _: DeviceNumber) -> PathBuf {
        self.slot.path.clone()
    }

    fn epoch(&self) -> u32 {
        0
    }
}
