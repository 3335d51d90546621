//! Verification of what a copy has got, before it counts: each record on each copy, each unit of large objects that
//! these records name, each new sorted table. What the copy had before was verified when it came.
//!
//! Space in an extent file is given out before it is written. So a state may end behind units that are written for a
//! later one: what these units were at that moment is brought again, from the source, when a record names them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::image::{FileKind, Image, ImageFile};
use super::source::{COPY, Source};
use super::staging::Staging;
use crate::Store;
use crate::engine::pace::Pace;
use crate::error::{Error, ErrorKind, Result};
use crate::format::descriptor::{Descriptor, Run};
use crate::format::entry::Kind;
use crate::format::ids::{DeviceNumber, LogOffset};
use crate::format::names::{EXTENTS, segment_path};
use crate::index::Snapshot;
use crate::index::catalog::SegmentRow;
use crate::maintain::audit::Observation;
use crate::maintain::check::CheckOptions;
use crate::progress::Progress;

/// A copy that is verified.
pub(crate) struct Verification<'v> {
    pub(crate) store: &'v Store,
    /// Its state.
    pub(crate) snapshot: Snapshot,
    /// Where units can be brought again; `None`: it is the source that is verified.
    pub(crate) staging: Option<&'v Staging<'v>>,
    pub(crate) image: &'v Image,
    /// What the copy was before.
    pub(crate) before: Option<&'v Image>,
}

impl Verification<'_> {
    /// # Errors
    /// [`ErrorKind::Corrupt`] if something is not what it was written as; the request to stop.
    pub(crate) fn run(&self, source: &mut dyn Source, pace: &mut Pace<'_>) -> Result<()> {
        self.run_with(source, pace, &mut |_, _| Ok(()))
    }

    /// The same; `see` gets the key and the descriptor of each large object that came.
    ///
    /// # Errors
    /// As [`run`](Self::run), and those of `see`.
    pub(crate) fn run_with(
        &self,
        source: &mut dyn Source,
        pace: &mut Pace<'_>,
        see: &mut dyn FnMut(&[u8], &Descriptor) -> Result<()>,
    ) -> Result<()> {
        let rows = Arc::clone(&self.image.state.segments);
        let new = rows.values().filter_map(|row| Some((row, self.new_from(row)?)));
        let new: Vec<(&SegmentRow, LogOffset)> = new.collect();
        let bytes = |&(row, from): &(&SegmentRow, LogOffset)| (row.size_bytes - from.0) * row.devices.len() as u64;
        pace.stage("verifying", new.iter().map(bytes).sum());
        for (row, from) in new {
            self.segment(row, from, (source, pace), see)?;
        }
        self.tables(pace)
    }

    /// Whether the copy opened as a reader would open it.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if it did not.
    pub(crate) fn is_whole(&self) -> Result<()> {
        let found = self.store.recovered();
        let is_whole = found.completeness.is_complete() && found.completeness.tail.is_none() && found.batches == 0;
        let is_at = self.store.engine().view().state.position == self.image.position();
        if is_whole && is_at && !self.store.engine().is_index_private { Ok(()) } else { Err(self.unlike()) }
    }

    fn unlike(&self) -> Error {
        let error = Error::new(ErrorKind::Corrupt, COPY, "what was copied is not the state of the source");
        error
            .at(&self.store.engine().home)
            .advise("check the source with granulo store check --deep; remove this directory")
    }

    /// Where what a segment has got begins; `None` if it has got nothing.
    fn new_from(&self, row: &SegmentRow) -> Option<LogOffset> {
        let before = self.before.and_then(|before| before.state.segments.get(&row.number));
        // A copy on another device came whole.
        let is_known = |known: &&SegmentRow| {
            known.id() == row.id() && row.devices.iter().all(|device| known.devices.contains(device))
        };
        let known = before.filter(is_known).map_or(0, |known| known.size_bytes);
        (known < row.size_bytes).then_some(LogOffset(known))
    }

    fn segment(
        &self,
        row: &SegmentRow,
        from: LogOffset,
        (source, pace): (&mut dyn Source, &mut Pace<'_>),
        see: &mut dyn FnMut(&[u8], &Descriptor) -> Result<()>,
    ) -> Result<()> {
        let engine = self.store.engine();
        let damaged = || {
            let first = row.devices.first().copied().unwrap_or_default();
            let place = engine.devices.place(first, &segment_path(row.id()));
            let error = Error::new(ErrorKind::Corrupt, COPY, "a part of it is damaged in the source, or on the way");
            error.at(&place).advise("run granulo store repair on the source, and this again")
        };
        let mut large = Vec::new();
        let tally = engine.audit_segment(row, &self.snapshot, from, pace, &mut |sight, _| match sight {
            Observation::Header(Some(_), without) if without.is_empty() => Ok(()),
            Observation::Header(..) | Observation::Damage(..) | Observation::Batch(..) => Err(damaged()),
            Observation::Batched(_) => Ok(()),
            Observation::Record(met) if !met.without.is_empty() || !met.differ.is_empty() => Err(damaged()),
            Observation::Record(met) => {
                if met.record.head.kind == Kind::Large && met.live.is_some() {
                    large.push((met.key.clone(), engine.descriptor_in(row, &met.record)?));
                }
                Ok(())
            }
        })?;
        if tally.is_unread {
            return Err(damaged());
        }
        for (key, descriptor) in &large {
            self.units(descriptor, source, pace)?;
            see(key, descriptor)?;
        }
        Ok(())
    }

    fn units(&self, descriptor: &Descriptor, source: &mut dyn Source, pace: &mut Pace<'_>) -> Result<()> {
        let extents = &self.store.engine().extents;
        let faulty = extents.verify(descriptor, &mut |_| pace.spend(0))?;
        if faulty.is_empty() {
            return Ok(());
        }
        let mut runs: BTreeMap<(DeviceNumber, u32), Vec<Run>> = BTreeMap::new();
        for unit in &faulty {
            let Some(chunk) = descriptor.chunks.get(unit.chunk) else { continue };
            let run = chunk.unit(unit.stripe, unit.unit);
            runs.entry((unit.device, run.file)).or_default().push(run);
        }
        for ((device, file), runs) in runs {
            self.bring_again(device, file, &runs, source)?;
            extents.forget(device);
        }
        match extents.verify(descriptor, &mut |_| pace.spend(0))?.first() {
            None => Ok(()),
            Some(unit) => {
                let file = descriptor.chunks.get(unit.chunk).map_or(0, |chunk| chunk.unit(unit.stripe, unit.unit).file);
                let cause = format!("a stripe unit {}, in the source or on the way", unit.fault);
                let error = Error::new(ErrorKind::Corrupt, COPY, cause).at(&extents.place(unit.device, file));
                Err(error.advise("run granulo store repair on the source, and this again"))
            }
        }
    }

    fn bring_again(&self, device: DeviceNumber, file: u32, runs: &[Run], source: &mut dyn Source) -> Result<()> {
        let (Some(name), Some(staging)) = (self.image.extents.get(&(device, file)), self.staging) else {
            return Ok(());
        };
        let end_bytes = runs.iter().map(|run| run.offset_bytes + run.length_bytes).max().unwrap_or(0);
        let path = format!("{EXTENTS}/{name}");
        let file = ImageFile { device, path, size_bytes: end_bytes, kind: FileKind::Extents };
        let mut pieces = Vec::new();
        for run in runs {
            let mut bytes = Vec::new();
            source.read(&file, run.offset_bytes, run.length_bytes as usize, &mut bytes)?;
            pieces.push((run.offset_bytes, bytes));
        }
        staging.overwrite(&file, &pieces)
    }

    fn tables(&self, pace: &mut Pace<'_>) -> Result<()> {
        let is_on_these = |before: &&Image| before.state.devices == self.image.state.devices;
        let before = self.before.filter(is_on_these);
        let known = before.map(|before| Arc::clone(&before.state.tables)).unwrap_or_default();
        let tables = Arc::clone(&self.store.engine().view().tables);
        for table in tables.iter().filter(|table| !known.contains(table.row())) {
            table.verify_paced(&mut |_| pace.spend(0))?;
        }
        Ok(())
    }
}

/// Verifies every byte of a copy, also of what it had before.
///
/// # Errors
/// The first problem; the request to stop.
pub(crate) fn verify_every_byte(copy: &Store, bytes_per_second: Option<u64>, progress: &Progress) -> Result<()> {
    let mut first = None;
    let options = CheckOptions { is_deep: true, bytes_per_second };
    let report = copy.check(options, &mut |problem| _ = first.get_or_insert(problem.to_string()), progress)?;
    match first {
        Some(problem) => {
            let error = Error::new(ErrorKind::Corrupt, "verify the copy", problem).at(&copy.engine().home);
            Err(error.advise("check both sides with granulo store check --deep; a damaged copy is cloned again"))
        }
        None if !report.is_complete => {
            Err(Error::new(ErrorKind::Interrupted, "verify the copy", "it was asked to stop"))
        }
        None => Ok(()),
    }
}
