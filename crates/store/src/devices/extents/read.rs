//! Reading a large object: every unit that is touched is verified, and made from the rest of its stripe where it is wrong.
//!
//! What comes out was verified against the checksums of the descriptor, also what was reconstructed; there are never wrong bytes.
//! Small ranges are read in their order with as few calls as there are runs; large ones from all devices at the same time, each unit into
//! its place.

use std::ops::Range;

use super::{ExtentFiles, Flaw, JOINED_BYTES, Wrong, is_intact};
use crate::devices::erasure::reconstruct;
use crate::devices::threads;
use crate::error::{Error, ErrorKind, Result};
use crate::format::descriptor::{Chunk, Descriptor, Run};
use crate::layout::granulo::PACKED_BYTES;

/// From so many bytes of a chunk on, its devices are read at the same time.
const PARALLEL_BYTES: u64 = 4 << 20;

/// Threads that read one chunk, at most.
const MOST_THREADS: usize = 16;

/// A data unit of a chunk: stripe, and number in it.
fn place_of(chunk: &Chunk, unit: usize) -> (usize, usize) {
    let data = usize::from(chunk.stripes.data);
    (unit / data, unit % data)
}

impl ExtentFiles {
    /// Reads a range of what is stored, as far as there is something, to the end of `out`. Gives the units that were wrong and made up for.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] if units are wrong that cannot be made up for; `out` is then as it was.
    pub(crate) fn read_range(
        &self,
        descriptor: &Descriptor,
        range: Range<u64>,
        out: &mut Vec<u8>,
    ) -> Result<Vec<Wrong>> {
        let before = out.len();
        let end = range.end.min(descriptor.stored_bytes);
        let start = range.start.min(end);
        let packed = start.min(PACKED_BYTES)..end.min(PACKED_BYTES);
        out.extend_from_slice(&descriptor.packed[packed.start as usize..packed.end as usize]);
        let mut wrong = Vec::new();
        let mut begin = PACKED_BYTES;
        for (number, chunk) in descriptor.chunks.iter().enumerate() {
            let from = start.max(begin);
            let to = end.min(begin + chunk.stripes.length_bytes);
            if from < to
                && let Err(error) = self.read_chunk(number, chunk, from - begin..to - begin, out, &mut wrong)
            {
                out.truncate(before);
                return Err(error);
            }
            begin += chunk.stripes.length_bytes;
            if begin >= end {
                break;
            }
        }
        Ok(wrong)
    }

    /// A range of a chunk that is not empty and within it.
    fn read_chunk(
        &self,
        number: usize,
        chunk: &Chunk,
        range: Range<u64>,
        out: &mut Vec<u8>,
        wrong: &mut Vec<Wrong>,
    ) -> Result<()> {
        let unit_bytes = u64::from(chunk.stripes.unit_bytes);
        let units = (range.start / unit_bytes) as usize..(range.end - 1) as usize / unit_bytes as usize + 1;
        let base = out.len();
        if range.end - range.start >= PARALLEL_BYTES && chunk.stripes.data > 1 {
            self.read_at_once(number, chunk, units.clone(), out, wrong)?;
        } else {
            self.read_in_order(number, chunk, units.clone(), out, wrong)?;
        }
        // Units are verified whole; what was not asked for and padding, which is at the end, go.
        let skipped = (range.start - units.start as u64 * unit_bytes) as usize;
        out.drain(base..base + skipped);
        out.truncate(base + (range.end - range.start) as usize);
        Ok(())
    }

    /// Units one after the other; those that lie so on a device in one read.
    fn read_in_order(
        &self,
        number: usize,
        chunk: &Chunk,
        units: Range<usize>,
        out: &mut Vec<u8>,
        wrong: &mut Vec<Wrong>,
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
                    if let Err(flaw) = self.read_unit(chunk, stripe, unit, out) {
                        note(wrong, number, chunk, (stripe, unit), flaw);
                        out.extend_from_slice(restored.unit(self, number, chunk, stripe, unit, wrong)?);
                    }
                }
            }
            first = next;
        }
        Ok(())
    }

    /// Units of a chunk on one device, in one read; whether all of them were intact. `out` is left as it was otherwise.
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

    /// Units from all devices at the same time.
    fn read_at_once(
        &self,
        number: usize,
        chunk: &Chunk,
        units: Range<usize>,
        out: &mut Vec<u8>,
        wrong: &mut Vec<Wrong>,
    ) -> Result<()> {
        let base = out.len();
        let unit_bytes = chunk.stripes.unit_bytes as usize;
        let (stripe, unit) = place_of(chunk, units.end - 1);
        let length = (units.end - 1 - units.start) * unit_bytes + chunk.stripes.unit_length(stripe, unit);
        out.resize(base + length, 0);
        let threads = chunk.stripes.width().min(MOST_THREADS);
        let mut work: Vec<Vec<(usize, &mut [u8])>> = (0..threads).map(|_| Vec::new()).collect();
        for (unit, place) in units.clone().zip(out[base..].chunks_mut(unit_bytes)) {
            let (stripe, in_stripe) = place_of(chunk, unit);
            work[chunk.stripes.component(stripe, in_stripe) % threads].push((unit, place));
        }
        let read = |work: Vec<(usize, &mut [u8])>| -> Vec<(usize, Flaw)> {
            work.into_iter()
                .filter_map(|(unit, place)| {
                    let (stripe, in_stripe) = place_of(chunk, unit);
                    self.read_unit_into(chunk, stripe, in_stripe, place).err().map(|flaw| (unit, flaw))
                })
                .collect()
        };
        let mut bad: Vec<(usize, Flaw)> = threads::each(work, threads, read).into_iter().flatten().collect();
        bad.sort_unstable_by_key(|&(unit, _)| unit);
        for (unit, flaw) in &bad {
            note(wrong, number, chunk, place_of(chunk, *unit), flaw.clone());
        }
        let mut restored = Restored::default();
        for (unit, _) in bad {
            let (stripe, in_stripe) = place_of(chunk, unit);
            let bytes = restored.unit(self, number, chunk, stripe, in_stripe, wrong)?;
            let at = base + (unit - units.start) * unit_bytes;
            out[at..at + bytes.len()].copy_from_slice(bytes);
        }
        Ok(())
    }

    /// All data units of a stripe that have bytes, verified: read, and those that are wrong made from the others. Units that `wrong`
    /// has already are not read again; more that are found are added.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] if more units are wrong than there is parity.
    pub(super) fn read_stripe(
        &self,
        number: usize,
        chunk: &Chunk,
        stripe: usize,
        wrong: &mut Vec<Wrong>,
    ) -> Result<Vec<Vec<u8>>> {
        let stripes = chunk.stripes;
        let (data, reached, unit_bytes) =
            (usize::from(stripes.data), stripes.reached(stripe), stripes.unit_length(stripe, 0));
        let known = |wrong: &[Wrong], unit: usize| {
            wrong.iter().any(|wrong| (wrong.chunk, wrong.stripe, wrong.unit) == (number, stripe, unit))
        };
        let mut units: Vec<Option<Vec<u8>>> = vec![None; stripes.width()];
        for unit in (0..reached).chain(data..stripes.width()) {
            // Parity is read only as far as it is needed.
            let missing = (0..reached).filter(|&unit| units[unit].is_none()).count();
            let parity = units[data..].iter().flatten().count();
            if unit >= data && parity >= missing || known(wrong, unit) {
                continue;
            }
            let mut bytes = Vec::with_capacity(unit_bytes);
            match self.read_unit(chunk, stripe, unit, &mut bytes) {
                Ok(()) => units[unit] = Some(bytes),
                Err(flaw) => note(wrong, number, chunk, (stripe, unit), flaw),
            }
        }
        let zeroes = vec![0; unit_bytes];
        let borrowed: Vec<Option<&[u8]>> = units
            .iter()
            .enumerate()
            .map(|(unit, bytes)| if (reached..data).contains(&unit) { Some(&zeroes[..]) } else { bytes.as_deref() })
            .collect();
        let restored = reconstruct(data, unit_bytes, &borrowed).map_err(|_| lost(number, stripe, wrong))?;
        for (unit, mut bytes) in restored {
            bytes.truncate(stripes.unit_length(stripe, unit));
            if !is_intact(chunk, stripe, unit, &bytes) {
                return Err(lost(number, stripe, wrong));
            }
            units[unit] = Some(bytes);
        }
        units.truncate(reached);
        Ok(units.into_iter().flatten().collect())
    }
}

/// The stripe that was reconstructed last: others of its units may be wrong too.
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
        wrong: &mut Vec<Wrong>,
    ) -> Result<&[u8]> {
        if self.stripe != Some(stripe) {
            self.units = files.read_stripe(number, chunk, stripe, wrong)?;
            self.stripe = Some(stripe);
        }
        Ok(&self.units[unit])
    }
}

/// Adds a unit to those that are wrong, once.
pub(super) fn note(wrong: &mut Vec<Wrong>, number: usize, chunk: &Chunk, (stripe, unit): (usize, usize), flaw: Flaw) {
    if !wrong.iter().any(|known| (known.chunk, known.stripe, known.unit) == (number, stripe, unit)) {
        wrong.push(Wrong { device: chunk.unit(stripe, unit).device, chunk: number, stripe, unit, flaw });
    }
}

/// What is to be said of a stripe with too many wrong units.
fn lost(number: usize, stripe: usize, wrong: &[Wrong]) -> Error {
    let units: Vec<String> = wrong
        .iter()
        .filter(|wrong| (wrong.chunk, wrong.stripe) == (number, stripe))
        .map(|wrong| format!("unit {} on device {} {}", wrong.unit, wrong.device, wrong.flaw))
        .collect();
    let cause = format!("in stripe {stripe} of chunk {number} {}", units.join(", "));
    Error::new(ErrorKind::Lost, "read a large object", cause)
        .advise("bring back missing devices, or restore the object from a backup")
}
