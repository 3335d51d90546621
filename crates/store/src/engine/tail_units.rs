//! Units of large objects that a batch in the tail of the log brings with it: whether they are whole, and their repair.
//!
//! A version of an object shares most of its units with the version before it: a write through a handle replaces the
//! stripes that it touches, a rename none. What an earlier version that counts has in common with this one is no
//! evidence about this batch, and is not in doubt either: extent space is never used twice, so the same place has the
//! same bytes. Only the chunks that are new are read, verified, and written again. A commit to an object of any size
//! costs recovery what it wrote, and damage from long ago never makes a batch of today count as torn.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::devices::extents::{FaultyUnit, UnitFault};
use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::format::descriptor::{Descriptor, Run};
use crate::format::entry::{Entry, Kind};
use crate::format::ids::DeviceNumber;

/// The new chunks of a descriptor, and what is wrong with them.
#[derive(Debug)]
pub(super) struct NewUnits {
    chunks: Vec<usize>,
    faulty: Vec<FaultyUnit>,
}

/// The newest version of each large object that counts: those in the index, and those of batches after it.
#[derive(Debug)]
pub(super) struct EarlierVersions<'e> {
    engine: &'e Engine,
    /// By index key.
    behind_index: BTreeMap<Arc<[u8]>, Entry>,
}

/// A record of a batch: its index key, entry, and descriptor if it is that of a large object.
pub(super) type TailRecord<'r> = (&'r Arc<[u8]>, &'r Entry, Option<&'r Descriptor>);

impl<'e> EarlierVersions<'e> {
    pub(super) fn new(engine: &'e Engine) -> EarlierVersions<'e> {
        EarlierVersions { engine, behind_index: BTreeMap::new() }
    }

    /// Reads and verifies the new units of a batch. Returns them, one per large object in the order of its records;
    /// `None` if some are damaged beyond repair, so that the batch does not count.
    ///
    /// # Errors
    /// Errors of reading the index; [`ErrorKind::Lost`] if only a missing device can tell whether the batch counts, for
    /// a writer that was not told to continue without it.
    pub(super) fn verify<'r>(
        &mut self,
        records: impl Iterator<Item = TailRecord<'r>> + Clone,
    ) -> Result<Option<Vec<NewUnits>>> {
        if records.clone().all(|(.., descriptor)| descriptor.is_none()) {
            return Ok(Some(Vec::new()));
        }
        // A rename gives the old key to a tombstone of the same batch.
        let mut earlier = BTreeMap::new();
        for (key, entry, _) in records.clone() {
            if matches!(entry.kind, Kind::Large | Kind::Removal) {
                earlier.extend(self.look_up(key)?.map(|entry| (entry.number, entry)));
            }
        }
        let mut all = Vec::new();
        for (_, entry, descriptor) in records.clone() {
            let Some(descriptor) = descriptor else { continue };
            let new = self.verify_new(descriptor, earlier.get(&entry.number).copied())?;
            if !self.counts(descriptor, &new)? {
                return Ok(None);
            }
            all.push(new);
        }
        for (key, entry, _) in records.filter(|(.., descriptor)| descriptor.is_some()) {
            self.behind_index.insert(Arc::clone(key), *entry);
        }
        Ok(Some(all))
    }

    /// The version under a key.
    fn look_up(&self, key: &Arc<[u8]>) -> Result<Option<Entry>> {
        if let Some(known) = self.behind_index.get(key) {
            return Ok(Some(*known));
        }
        let entry = self.engine.snapshot().look_up(key)?;
        Ok(entry.filter(|entry| entry.kind == Kind::Large))
    }

    fn verify_new(&self, descriptor: &Descriptor, earlier: Option<Entry>) -> Result<NewUnits> {
        // Without the record of the earlier version, everything is new.
        let earlier = earlier.and_then(|entry| self.engine.descriptor(&entry).ok());
        let chunks = new_chunks(descriptor, earlier.as_ref());
        let faulty = self.engine.extents.verify_chunks(descriptor, chunks.iter().copied(), &mut |_| Ok(()))?;
        Ok(NewUnits { chunks, faulty })
    }

    /// Whether every new unit is intact, can be reconstructed, or is on a missing device. One that is damaged and could
    /// only be reconstructed from a missing device is evidence against the batch, which a reader does not apply; but
    /// the batch may have been acknowledged, so a writer builds on nothing else before the device returns.
    fn counts(&self, descriptor: &Descriptor, new: &NewUnits) -> Result<bool> {
        let mut in_stripe: BTreeMap<(usize, usize), (Vec<DeviceNumber>, Vec<DeviceNumber>)> = BTreeMap::new();
        for unit in &new.faulty {
            let (away, damaged) = in_stripe.entry((unit.chunk, unit.stripe)).or_default();
            let is_away = unit.fault == UnitFault::Absent && self.engine.devices.readable(unit.device).is_none();
            if is_away { away.push(unit.device) } else { damaged.push(unit.device) }
        }
        let parity_of = |chunk: usize| usize::from(descriptor.chunks[chunk].stripes.parity);
        if in_stripe.iter().any(|(&(chunk, _), (_, damaged))| damaged.len() > parity_of(chunk)) {
            return Ok(false);
        }
        let beyond = in_stripe.iter().find(|&(&(chunk, _), (away, damaged))| {
            !damaged.is_empty() && away.len() + damaged.len() > parity_of(chunk)
        });
        match beyond {
            None => Ok(true),
            Some(_) if !self.engine.is_writer() || self.engine.is_degraded => Ok(false),
            Some((_, (away, damaged))) => {
                let cause = format!(
                    "device {} has a damaged part of the last batch, and device {}, which could make up for it, is missing",
                    damaged[0], away[0]
                );
                Err(Error::new(ErrorKind::Lost, "recover the log", cause)
                    .at(&self.engine.home)
                    .advise("bring the device back; --degraded continues without the batch"))
            }
        }
    }
}

impl NewUnits {
    /// Their runs in extent files.
    pub(super) fn runs<'d>(&'d self, descriptor: &'d Descriptor) -> impl Iterator<Item = Run> + 'd {
        self.chunks.iter().flat_map(|&chunk| descriptor.chunks[chunk].runs())
    }

    /// Reconstructs those that the batch lacks: it counts from here on, and must survive as many losses as any other.
    /// On a device without room they are left to a repair, as without any writer nobody could make room.
    ///
    /// # Errors
    /// Errors of writing or syncing; [`ErrorKind::Corrupt`] if one on a device in service cannot be reconstructed,
    /// although enough others are intact.
    pub(super) fn repair(&self, engine: &Engine, descriptor: &Descriptor) -> Result<()> {
        if self.faulty.is_empty() {
            return Ok(());
        }
        let repaired = engine.extents.repair(descriptor, &self.faulty)?;
        let mut unwritten = repaired.unwritten.into_iter().map(|(_, error)| error);
        let failed = unwritten.find(|error| error.kind() != ErrorKind::NoSpace);
        if let Some(error) = failed.filter(|_| !engine.is_degraded) {
            return Err(error.advise("--degraded continues with the damage"));
        }
        // One that missed epochs is not written to: a repair brings it up to date.
        let left = repaired.left.iter().find(|unit| engine.devices.is_in_service(unit.device));
        if let Some(left) = left.filter(|_| !engine.is_degraded) {
            let cause = format!("a part of the last batch on device {} cannot be reconstructed", left.device);
            return Err(Error::new(ErrorKind::Corrupt, "recover the log", cause)
                .at(&engine.home)
                .advise("--degraded continues with the damage"));
        }
        engine.extents.sync(&repaired.touched)
    }
}

/// Chunks of a version of which some component is not where the earlier version has it.
fn new_chunks(descriptor: &Descriptor, earlier: Option<&Descriptor>) -> Vec<usize> {
    let mut known: Vec<Run> = earlier.iter().flat_map(|earlier| earlier.runs()).collect();
    known.sort_unstable();
    let is_known = |run: Run| {
        let place = |run: &Run| (run.device, run.file, run.offset_bytes);
        let at = known.partition_point(|before| place(before) <= place(&run));
        at.checked_sub(1).map(|at| known[at]).is_some_and(|before| {
            (before.device, before.file) == (run.device, run.file)
                && run.offset_bytes + run.length_bytes <= before.offset_bytes + before.length_bytes
        })
    };
    let numbered = descriptor.chunks.iter().enumerate();
    numbered.filter(|(_, chunk)| !chunk.runs().all(is_known)).map(|(number, _)| number).collect()
}
