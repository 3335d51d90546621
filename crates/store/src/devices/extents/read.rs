//! Reading a large object: every unit read is verified, and reconstructed from its stripe if it is faulty.
//!
//! Everything returned was verified against the checksums of the descriptor, including reconstructed units; faulty
//! bytes are never returned. Small ranges are read one unit after the other, on a single device several in one call;
//! large ones from all devices in parallel, each unit directly into its place.

use std::ops::Range;

use super::{ExtentFiles, FaultyUnit, JOINED_BYTES, UnitFault, is_intact};
use crate::devices::LOST_ADVICE;
use crate::devices::erasure::reconstruct;
use crate::devices::threads;
use crate::error::{Error, ErrorKind, Result};
use crate::format::descriptor::{Chunk, Descriptor, Run};

/// From this many bytes of a chunk on, its devices are read in parallel.
const PARALLEL_BYTES: u64 = 4 << 20;

/// Maximum number of threads that read one chunk.
const MOST_THREADS: usize = 16;

/// A data unit of a chunk: its stripe, and its number in the stripe.
fn place_of(chunk: &Chunk, unit: usize) -> (usize, usize) {
    let data = usize::from(chunk.stripes.data);
    (unit / data, unit % data)
}

impl ExtentFiles {
    /// Appends the part of a range that is stored to `out`. Returns the units that were faulty and have been
    /// reconstructed.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] if units are faulty that cannot be reconstructed; `out` is then unchanged.
    pub(crate) fn read_range(
        &self,
        descriptor: &Descriptor,
        range: Range<u64>,
        out: &mut Vec<u8>,
    ) -> Result<Vec<FaultyUnit>> {
        let before = out.len();
        let end = range.end.min(descriptor.stored_bytes);
        let start = range.start.min(end);
        let packed_bytes = descriptor.packed_bytes();
        let packed = start.min(packed_bytes)..end.min(packed_bytes);
        out.extend_from_slice(&descriptor.packed[packed.start as usize..packed.end as usize]);
        let mut faulty = Vec::new();
        let mut begin = packed_bytes;
        for (number, chunk) in descriptor.chunks.iter().enumerate() {
            let from = start.max(begin);
            let to = end.min(begin + chunk.stripes.length_bytes);
            if from < to
                && let Err(error) = self.read_chunk(number, chunk, from - begin..to - begin, out, &mut faulty)
            {
                out.truncate(before);
                return Err(error);
            }
            begin += chunk.stripes.length_bytes;
            if begin >= end {
                break;
            }
        }
        Ok(faulty)
    }

    /// Reads a non-empty range within a chunk.
    fn read_chunk(
        &self,
        number: usize,
        chunk: &Chunk,
        range: Range<u64>,
        out: &mut Vec<u8>,
        faulty: &mut Vec<FaultyUnit>,
    ) -> Result<()> {
        let unit_bytes = u64::from(chunk.stripes.unit_bytes);
        let units = (range.start / unit_bytes) as usize..(range.end - 1) as usize / unit_bytes as usize + 1;
        let base = out.len();
        if range.end - range.start >= PARALLEL_BYTES && chunk.stripes.data > 1 {
            self.read_in_parallel(number, chunk, units.clone(), out, faulty)?;
        } else {
            self.read_in_order(number, chunk, units.clone(), out, faulty)?;
        }
        // Units are verified whole; then bytes outside the request and the padding, which is at the end, are dropped.
        let skipped = (range.start - units.start as u64 * unit_bytes) as usize;
        out.drain(base..base + skipped);
        out.truncate(base + (range.end - range.start) as usize);
        Ok(())
    }

    /// Reads units one after the other; those of a chunk on a single device, where they are adjacent, up to
    /// [`JOINED_BYTES`] in one read.
    fn read_in_order(
        &self,
        number: usize,
        chunk: &Chunk,
        units: Range<usize>,
        out: &mut Vec<u8>,
        faulty: &mut Vec<FaultyUnit>,
    ) -> Result<()> {
        let unit_bytes = chunk.stripes.unit_bytes as usize;
        let joined = if chunk.stripes.width() == 1 { (JOINED_BYTES / unit_bytes).max(1) } else { 1 };
        let mut restored = Restored::default();
        let mut first = units.start;
        while first < units.end {
            let next = (first + joined).min(units.end);
            if next - first == 1 || !self.read_joined(chunk, first..next, out) {
                for unit in first..next {
                    let (stripe, unit) = place_of(chunk, unit);
                    if let Err(fault) = self.read_unit(chunk, stripe, unit, out) {
                        note(faulty, number, chunk, (stripe, unit), fault);
                        out.extend_from_slice(restored.unit(self, number, chunk, stripe, unit, faulty)?);
                    }
                }
            }
            first = next;
        }
        Ok(())
    }

    /// Reads units of a chunk on one device in one call; returns whether all of them were intact. `out` is left
    /// unchanged otherwise.
    fn read_joined(&self, chunk: &Chunk, units: Range<usize>, out: &mut Vec<u8>) -> bool {
        let start = out.len();
        let (first, last) = (chunk.unit(units.start, 0), chunk.unit(units.end - 1, 0));
        let run = Run { length_bytes: last.offset_bytes - first.offset_bytes + last.length_bytes, ..first };
        let intact = self.read_run(run, out).is_ok()
            && out[start..]
                .chunks(chunk.stripes.unit_bytes as usize)
                .zip(units)
                .all(|(bytes, stripe)| is_intact(chunk, stripe, 0, bytes));
        if !intact {
            out.truncate(start);
        }
        intact
    }

    /// Appends data units of a chunk, counted through all its stripes, and reads from all devices in parallel. Faulty
    /// units are reconstructed. After an error the appended bytes are not verified; the caller truncates them.
    fn read_in_parallel(
        &self,
        chunk_number: usize,
        chunk: &Chunk,
        units: Range<usize>,
        out: &mut Vec<u8>,
        faulty: &mut Vec<FaultyUnit>,
    ) -> Result<()> {
        let base = out.len();
        let unit_bytes = chunk.stripes.unit_bytes as usize;
        let (stripe, unit) = place_of(chunk, units.end - 1);
        let length = (units.end - 1 - units.start) * unit_bytes + chunk.stripes.unit_length(stripe, unit);
        out.resize(base + length, 0);
        let groups = chunk.stripes.width().min(MOST_THREADS);
        let mut work: Vec<Vec<(usize, &mut [u8])>> = (0..groups).map(|_| Vec::new()).collect();
        for (unit, buffer) in units.clone().zip(out[base..].chunks_mut(unit_bytes)) {
            let (stripe, in_stripe) = place_of(chunk, unit);
            work[chunk.stripes.component(stripe, in_stripe) % groups].push((unit, buffer));
        }
        let faults_of = |group: Vec<(usize, &mut [u8])>| -> Vec<(usize, UnitFault)> {
            group
                .into_iter()
                .filter_map(|(unit, buffer)| {
                    let (stripe, in_stripe) = place_of(chunk, unit);
                    self.read_unit_into(chunk, stripe, in_stripe, buffer).err().map(|fault| (unit, fault))
                })
                .collect()
        };
        let mut faults: Vec<(usize, UnitFault)> =
            threads::each(work, groups, faults_of).into_iter().flatten().collect();
        faults.sort_unstable_by_key(|&(unit, _)| unit);
        for (unit, fault) in &faults {
            note(faulty, chunk_number, chunk, place_of(chunk, *unit), fault.clone());
        }
        let mut restored = Restored::default();
        for (unit, _) in faults {
            let (stripe, in_stripe) = place_of(chunk, unit);
            let bytes = restored.unit(self, chunk_number, chunk, stripe, in_stripe, faulty)?;
            let at = base + (unit - units.start) * unit_bytes;
            out[at..at + bytes.len()].copy_from_slice(bytes);
        }
        Ok(())
    }

    /// All data units of a stripe that have bytes, verified: read, or reconstructed from the others if they are faulty.
    /// Units already in `faulty` are not read again; newly found ones are added.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] if more units are faulty than there is parity.
    pub(super) fn read_stripe(
        &self,
        number: usize,
        chunk: &Chunk,
        stripe: usize,
        faulty: &mut Vec<FaultyUnit>,
    ) -> Result<Vec<Vec<u8>>> {
        let stripes = chunk.stripes;
        let (data, reached, unit_bytes) =
            (usize::from(stripes.data), stripes.reached(stripe), stripes.unit_length(stripe, 0));
        let known = |faulty: &[FaultyUnit], unit: usize| {
            faulty.iter().any(|faulty| (faulty.chunk, faulty.stripe, faulty.unit) == (number, stripe, unit))
        };
        let mut units: Vec<Option<Vec<u8>>> = vec![None; stripes.width()];
        for unit in (0..reached).chain(data..stripes.width()) {
            // Parity is read only as far as needed.
            let missing = (0..reached).filter(|&unit| units[unit].is_none()).count();
            let parity = units[data..].iter().flatten().count();
            if unit >= data && parity >= missing || known(faulty, unit) {
                continue;
            }
            let mut bytes = Vec::with_capacity(unit_bytes);
            match self.read_unit(chunk, stripe, unit, &mut bytes) {
                Ok(()) => units[unit] = Some(bytes),
                Err(fault) => note(faulty, number, chunk, (stripe, unit), fault),
            }
        }
        let zeroes = vec![0; unit_bytes];
        let borrowed: Vec<Option<&[u8]>> = units
            .iter()
            .enumerate()
            .map(|(unit, bytes)| if (reached..data).contains(&unit) { Some(&zeroes[..]) } else { bytes.as_deref() })
            .collect();
        let restored = reconstruct(data, unit_bytes, &borrowed).map_err(|_| self.lost(number, stripe, faulty))?;
        for (unit, mut bytes) in restored {
            bytes.truncate(stripes.unit_length(stripe, unit));
            if !is_intact(chunk, stripe, unit, &bytes) {
                return Err(self.lost(number, stripe, faulty));
            }
            units[unit] = Some(bytes);
        }
        units.truncate(reached);
        Ok(units.into_iter().flatten().collect())
    }

    /// The error for a stripe with too many faulty units.
    fn lost(&self, number: usize, stripe: usize, faulty: &[FaultyUnit]) -> Error {
        let faulty = || faulty.iter().filter(|faulty| (faulty.chunk, faulty.stripe) == (number, stripe));
        let units: Vec<String> = faulty()
            .map(|faulty| format!("unit {} on device {} {}", faulty.unit, faulty.device, faulty.fault))
            .collect();
        let cause = format!("in stripe {stripe} of chunk {number} {}", units.join(", "));
        let is_away = faulty().any(|faulty| self.source.device(faulty.device).is_none());
        Error::new(ErrorKind::Lost, "read a large object", cause).advise(match is_away {
            true => "bring the missing devices back: granulo store status",
            false => LOST_ADVICE,
        })
    }
}

/// The last reconstructed stripe: others of its units may be faulty too.
#[derive(Default)]
struct Restored {
    stripe: Option<usize>,
    units: Vec<Vec<u8>>,
}

impl Restored {
    fn unit(
        &mut self,
        files: &ExtentFiles,
        number: usize,
        chunk: &Chunk,
        stripe: usize,
        unit: usize,
        faulty: &mut Vec<FaultyUnit>,
    ) -> Result<&[u8]> {
        if self.stripe != Some(stripe) {
            self.units = files.read_stripe(number, chunk, stripe, faulty)?;
            self.stripe = Some(stripe);
        }
        Ok(&self.units[unit])
    }
}

/// Adds a unit to the faulty ones, without duplicates.
pub(super) fn note(
    faulty: &mut Vec<FaultyUnit>,
    number: usize,
    chunk: &Chunk,
    (stripe, unit): (usize, usize),
    fault: UnitFault,
) {
    if !faulty.iter().any(|known| (known.chunk, known.stripe, known.unit) == (number, stripe, unit)) {
        faulty.push(FaultyUnit { device: chunk.unit(stripe, unit).device, chunk: number, stripe, unit, fault });
    }
}
