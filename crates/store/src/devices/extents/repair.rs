//! Verifying whole objects, rebuilding faulty units in place, and moving components.
//!
//! Only bytes verified against the descriptor's checksums are written, parity included. A unit is only ever overwritten
//! with the bytes that belong there, so a crash midway leaves it either faulty as before or right.

use std::collections::BTreeMap;

use super::read::note;
use super::{Allocator, ExtentFiles, FaultyUnit, JOINED_BYTES, Reserved, Touched, UnitFault, is_intact};
use crate::devices::erasure::Encoder;
use crate::error::{Error, ErrorKind, Result};
use crate::format::descriptor::{Chunk, Component, Descriptor, Run};
use crate::format::ids::DeviceNumber;

/// Called with the bytes of each step, to limit the rate, to show progress, and to stop with an error.
pub(crate) type Pace<'a> = &'a mut dyn FnMut(u64) -> Result<()>;

/// Result of a repair.
#[derive(Debug, Default)]
pub(crate) struct Repaired {
    /// Rebuilt units.
    pub(crate) units: u64,
    /// Units that are still faulty: their stripes have lost too much, or their devices are not in service.
    pub(crate) left: Vec<FaultyUnit>,
    /// Units that could be reconstructed but not written, each with the reason.
    pub(crate) unwritten: Vec<(FaultyUnit, Error)>,
    /// Files that were written to.
    pub(crate) touched: Touched,
}

impl ExtentFiles {
    /// Reads all units of an object, parity included, device by device; returns the faulty ones.
    ///
    /// # Errors
    /// Only those of `pace`.
    pub(crate) fn verify(&self, descriptor: &Descriptor, pace: Pace<'_>) -> Result<Vec<FaultyUnit>> {
        self.verify_chunks(descriptor, 0..descriptor.chunks.len(), pace)
    }

    /// As [`verify`](Self::verify), of some chunks.
    ///
    /// # Errors
    /// As [`verify`](Self::verify).
    pub(crate) fn verify_chunks(
        &self,
        descriptor: &Descriptor,
        chunks: impl Iterator<Item = usize>,
        pace: Pace<'_>,
    ) -> Result<Vec<FaultyUnit>> {
        let mut faulty = Vec::new();
        let mut buffer = Vec::new();
        for number in chunks {
            let chunk = &descriptor.chunks[number];
            for component in 0..chunk.stripes.width() {
                self.verify_component(number, chunk, component, &mut buffer, &mut faulty, pace)?;
            }
        }
        Ok(faulty)
    }

    pub(crate) fn verify_component(
        &self,
        number: usize,
        chunk: &Chunk,
        component: usize,
        buffer: &mut Vec<u8>,
        faulty: &mut Vec<FaultyUnit>,
        pace: Pace<'_>,
    ) -> Result<()> {
        let stripes = chunk.stripes;
        let unit_bytes = u64::from(stripes.unit_bytes);
        let joined = (JOINED_BYTES / stripes.unit_bytes as usize).max(1);
        let length = stripes.component_bytes(component);
        // The last unit of a component may have no bytes.
        let units = length.div_ceil(unit_bytes) as usize;
        for first in (0..units).step_by(joined) {
            let next = (first + joined).min(units);
            let begin = chunk.unit(first, stripes.unit_in(first, component));
            let length_bytes = (next as u64 * unit_bytes).min(length) - first as u64 * unit_bytes;
            buffer.clear();
            let read = self.read_run(Run { length_bytes, ..begin }, buffer);
            for (stripe, bytes) in (first..next).zip(buffer.chunks(stripes.unit_bytes as usize)) {
                let unit = stripes.unit_in(stripe, component);
                if !is_intact(chunk, stripe, unit, bytes) {
                    note(faulty, number, chunk, (stripe, unit), UnitFault::Changed);
                }
            }
            if read.is_err() {
                // Find out which of them.
                for stripe in first..next {
                    let unit = stripes.unit_in(stripe, component);
                    buffer.clear();
                    if let Err(fault) = self.read_unit(chunk, stripe, unit, buffer) {
                        note(faulty, number, chunk, (stripe, unit), fault);
                    }
                }
            }
            pace(length_bytes)?;
        }
        Ok(())
    }

    /// Rebuilds the `faulty` units of an object in place. Not durable until [`sync`](Self::sync). One that cannot be
    /// reconstructed or written is no error, and does not keep the others from being rebuilt: [`Repaired`] lists them.
    ///
    /// # Errors
    /// The chunk has more units than can be encoded.
    pub(crate) fn repair(&self, descriptor: &Descriptor, faulty: &[FaultyUnit]) -> Result<Repaired> {
        let mut stripes: BTreeMap<(usize, usize), Vec<FaultyUnit>> = BTreeMap::new();
        for unit in faulty {
            stripes.entry((unit.chunk, unit.stripe)).or_default().push(unit.clone());
        }
        let mut encoder = Encoder::default();
        let mut repaired = Repaired::default();
        for ((number, stripe), mut faulty) in stripes {
            let Some(chunk) = descriptor.chunks.get(number).filter(|chunk| stripe < chunk.stripes.count()) else {
                continue;
            };
            let Ok(units) = self.read_stripe(number, chunk, stripe, &mut faulty) else {
                repaired.left.append(&mut faulty);
                continue;
            };
            for unit in faulty {
                let run = chunk.unit(stripe, unit.unit);
                let bytes = unit_of(&mut encoder, chunk, stripe, unit.unit, &units)?;
                // One that missed writes is repaired once it is admitted.
                let is_writable = self.source.device_to_write(run.device).is_some();
                if !is_writable || !is_intact(chunk, stripe, unit.unit, bytes) {
                    repaired.left.push(unit);
                    continue;
                }
                let written = self.open_or_create(run.device, run.file).and_then(|file| {
                    let written = file.write_at(bytes, run.offset_bytes);
                    written.map_err(|error| self.error("repair a unit in", run.device, run.file, error))?;
                    Ok(file)
                });
                match written {
                    Ok(file) => {
                        repaired.touched.add(run.device, run.file, &file);
                        repaired.units += 1;
                    }
                    Err(error) => repaired.unwritten.push((unit, error)),
                }
            }
        }
        Ok(repaired)
    }

    /// Reserves space for a component of this chunk on another device, which must be in service.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] if the chunk is already on that device; creating a file fails.
    pub(crate) fn place_component(
        &self,
        allocator: &Allocator,
        chunk: &Chunk,
        component: usize,
        device: DeviceNumber,
    ) -> Result<Reserved> {
        if chunk.components.iter().any(|component| component.device == device) {
            let cause = format!("device {device} already has another component of it");
            return Err(Error::new(ErrorKind::Usage, "move a component", cause));
        }
        allocator.reserve_on(self, device, chunk.stripes.component_bytes(component))
    }

    /// Writes all units of a component to `target`: another place ([`place_component`](Self::place_component)), or its
    /// own place on a replaced device, where they may already be: in memory alone, if a sync has failed. They are read
    /// from their old place, or reconstructed. Not durable until [`sync`](Self::sync).
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] if a unit cannot be reconstructed; writing fails; those of `pace`, which is called with the
    /// bytes of each unit.
    pub(crate) fn rebuild_component(
        &self,
        descriptor: &Descriptor,
        number: usize,
        component: usize,
        target: Component,
        pace: Pace<'_>,
    ) -> Result<Touched> {
        let mut touched = Touched::default();
        let chunk = descriptor.chunks.get(number).filter(|chunk| component < chunk.components.len());
        let Some(chunk) = chunk.filter(|chunk| chunk.stripes.component_bytes(component) > 0) else {
            return Ok(touched);
        };
        let file = self.open_or_create(target.device, target.file)?;
        let mut encoder = Encoder::default();
        let mut buffer = Vec::new();
        for stripe in 0..chunk.stripes.count() {
            let unit = chunk.stripes.unit_in(stripe, component);
            let length = chunk.stripes.unit_length(stripe, unit);
            if length == 0 {
                continue;
            }
            buffer.clear();
            if let Err(fault) = self.read_unit(chunk, stripe, unit, &mut buffer) {
                let mut faulty = Vec::new();
                note(&mut faulty, number, chunk, (stripe, unit), fault);
                let units = self.read_stripe(number, chunk, stripe, &mut faulty)?;
                buffer.clear();
                buffer.extend_from_slice(unit_of(&mut encoder, chunk, stripe, unit, &units)?);
            }
            if !is_intact(chunk, stripe, unit, &buffer) {
                let cause = format!("parity of stripe {stripe} of chunk {number} does not match its data");
                return Err(Error::new(ErrorKind::Lost, "rebuild a large object", cause));
            }
            let offset = target.offset_bytes + stripe as u64 * u64::from(chunk.stripes.unit_bytes);
            file.write_at(&buffer, offset)
                .map_err(|error| self.error("rebuild a unit in", target.device, target.file, error))?;
            file.start_writeback(offset, length as u64);
            pace(length as u64)?;
        }
        touched.add(target.device, target.file, &file);
        Ok(touched)
    }

    /// Makes a file at least as long as its account: a unit at its end that is lost for good remains a hole, and the
    /// file does not look truncated.
    ///
    /// # Errors
    /// Any error of creating and writing.
    pub(crate) fn extend(&self, device: DeviceNumber, file: u32, end_bytes: u64, touched: &mut Touched) -> Result<()> {
        let open = self.open_or_create(device, file)?;
        let fail = |error| self.error("extend", device, file, error);
        if open.size().map_err(fail)? < end_bytes {
            open.write_at(&[0], end_bytes - 1).map_err(fail)?;
            touched.add(device, file, &open);
        }
        Ok(())
    }
}

/// A unit of a stripe whose data units are all known.
fn unit_of<'a>(
    encoder: &'a mut Encoder,
    chunk: &Chunk,
    stripe: usize,
    unit: usize,
    units: &'a [Vec<u8>],
) -> Result<&'a [u8]> {
    let data = usize::from(chunk.stripes.data);
    if unit < data {
        return Ok(units.get(unit).map_or(&[], Vec::as_slice));
    }
    let borrowed: Vec<&[u8]> = units.iter().map(Vec::as_slice).collect();
    let parity = usize::from(chunk.stripes.parity);
    let parity = encoder.parity(data, parity, chunk.stripes.unit_length(stripe, 0), &borrowed)?;
    Ok(parity.get(unit - data).map_or(&[], Vec::as_slice))
}
