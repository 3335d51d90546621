//! Writing a large object: a stream of known or unknown length becomes chunks, stripes and units.
//!
//! Memory is bounded by one stripe and its parity (at most 32 MiB and 8 MiB, less for objects below some gigabytes).
//! Full stripes that arrive in one piece are written without a copy. Write-back begins while the stream continues, so
//! that the final sync is short. Nothing refers to what is written until the caller has synced it and appended the
//! descriptor to the log: a crash before that leaves bytes in quarantine; after an error, or if a writer is dropped,
//! their space is reallocated.

use std::borrow::Cow;
use std::sync::Arc;

use super::allocate::{Allocator, Reserved, too_few};
use super::{ExtentFiles, JOINED_BYTES, Touched, checksum};
use crate::devices::erasure::Encoder;
use crate::error::{Error, ErrorKind, Result};
use crate::format::descriptor::{Chunk, Component, Descriptor};
use crate::format::ids::DeviceNumber;
use crate::layout::granulo::{SECTOR_BYTES, Stripes, Striping};
use crate::layout::round_up;

/// Write-back of a component begins whenever this many bytes were added to it.
const WRITEBACK_BYTES: u64 = 8 << 20;

/// A large object as written. Its units are durable after [`ExtentFiles::sync`] of `touched`.
#[derive(Debug)]
pub(crate) struct WrittenObject {
    /// Where it is.
    pub(crate) descriptor: Descriptor,
    /// Files with units of it.
    pub(crate) touched: Touched,
}

/// The chunk being written. The length in `stripes` is what was written so far.
#[derive(Debug)]
struct Growing {
    stripes: Stripes,
    longest_bytes: u64,
    places: Vec<Reserved>,
    checksums: Vec<u64>,
    /// For each component, the end of what write-back was begun for, relative to the component.
    written_back_bytes: Vec<u64>,
}

impl Growing {
    /// The length of one write: a stripe, or adjacent units on the only device.
    fn step_bytes(&self) -> u64 {
        let stripe = self.stripes.stripe_bytes();
        let joined = if self.stripes.width() == 1 { JOINED_BYTES as u64 / stripe } else { 1 };
        (stripe * joined.max(1)).min(self.longest_bytes - self.stripes.length_bytes)
    }

    fn component_bytes(&self, component: usize) -> u64 {
        if self.stripes.length_bytes == 0 { 0 } else { self.stripes.component_bytes(component) }
    }
}

/// Writes one large object. If dropped without [`finish`](Self::finish), it abandons what it wrote.
#[derive(Debug)]
#[must_use = "units that are not finished are given back"]
pub(crate) struct LargeWriter {
    files: Arc<ExtentFiles>,
    allocator: Arc<Allocator>,
    order: Vec<DeviceNumber>,
    rule: Striping,
    /// Bytes before the chunks.
    packed_bytes: u64,
    expected_bytes: Option<u64>,
    packed: Vec<u8>,
    /// Number of chunks of the object before those being written.
    first_chunk: usize,
    /// Bytes in chunks that are complete.
    chunked_bytes: u64,
    chunks: Vec<Chunk>,
    growing: Option<Growing>,
    /// The beginning of the next step.
    pending: Vec<u8>,
    encoder: Encoder,
    touched: Touched,
    /// A step was not written completely.
    failed: bool,
}

impl LargeWriter {
    /// Begins an object on the first devices of `order` ([`order`](super::order) of its id), whose descriptor packs
    /// `packed_bytes`. `expected_bytes` is its length, if known; the actual length may differ.
    pub(crate) fn begin(
        files: Arc<ExtentFiles>,
        allocator: Arc<Allocator>,
        order: Vec<DeviceNumber>,
        (rule, packed_bytes): (Striping, u64),
        expected_bytes: Option<u64>,
    ) -> LargeWriter {
        LargeWriter {
            files,
            allocator,
            order,
            rule,
            packed_bytes,
            expected_bytes,
            packed: Vec::new(),
            first_chunk: 0,
            chunked_bytes: 0,
            chunks: Vec::new(),
            growing: None,
            pending: Vec::new(),
            encoder: Encoder::default(),
            touched: Touched::default(),
            failed: false,
        }
    }

    /// Begins a part of `length_bytes` of an object after its packed bytes, striped as from its chunk `first_chunk` on.
    /// The result of [`finish`](Self::finish) has the chunks, and nothing before them.
    pub(super) fn begin_chunks(
        files: Arc<ExtentFiles>,
        allocator: Arc<Allocator>,
        order: Vec<DeviceNumber>,
        (rule, first_chunk): (Striping, usize),
        length_bytes: u64,
    ) -> LargeWriter {
        let mut writer = LargeWriter::begin(files, allocator, order, (rule, 0), Some(length_bytes));
        writer.first_chunk = first_chunk;
        writer
    }

    /// Appends to the object.
    ///
    /// # Errors
    /// No device has space, or writing fails. The object can then not be finished.
    pub(crate) fn write(&mut self, data: &[u8]) -> Result<()> {
        let to_packed = data.len().min(self.packed_bytes as usize - self.packed.len());
        self.packed.extend_from_slice(&data[..to_packed]);
        let mut data = &data[to_packed..];
        while !data.is_empty() {
            let step = match &self.growing {
                Some(growing) => growing.step_bytes(),
                None => self.begin_chunk()?,
            } as usize;
            if self.pending.is_empty() && data.len() >= step {
                self.put(&data[..step])?;
                data = &data[step..];
                continue;
            }
            let taken = data.len().min(step - self.pending.len());
            self.pending.reserve_exact(step - self.pending.len());
            self.pending.extend_from_slice(&data[..taken]);
            data = &data[taken..];
            if self.pending.len() == step {
                self.put_pending()?;
            }
        }
        Ok(())
    }

    /// Ends the object.
    ///
    /// # Errors
    /// As [`write`](Self::write); [`ErrorKind::Usage`] for an object without bytes after the packed ones, which should
    /// be a record, and after a [`write`](Self::write) that failed.
    pub(crate) fn finish(mut self) -> Result<WrittenObject> {
        if self.failed {
            return Err(Error::new(ErrorKind::Usage, "stripe an object", "an earlier write of it failed"));
        }
        if !self.pending.is_empty() {
            self.put_pending()?;
        }
        self.end_chunk();
        if self.chunks.is_empty() {
            let cause = format!("{} bytes fit in a record", self.packed.len());
            return Err(Error::new(ErrorKind::Usage, "stripe an object", cause));
        }
        let stored_bytes = self.packed_bytes + self.chunked_bytes;
        let (packed, chunks) = (std::mem::take(&mut self.packed), std::mem::take(&mut self.chunks));
        let descriptor = Descriptor { stored_bytes, packed, chunks };
        Ok(WrittenObject { descriptor, touched: std::mem::take(&mut self.touched) })
    }

    /// Begins the next chunk; returns the length of its first step.
    fn begin_chunk(&mut self) -> Result<u64> {
        let number = self.first_chunk + self.chunks.len();
        if number == usize::from(u16::MAX) {
            let cause = format!("it is longer than {} bytes", self.chunked_bytes);
            return Err(Error::new(ErrorKind::Usage, "stripe an object", cause).advise("choose more data units"));
        }
        // Once the object exceeds the expected length, its length is unknown.
        let before = self.packed_bytes + self.chunked_bytes;
        let left = self.expected_bytes.and_then(|expected| expected.checked_sub(before)).filter(|&left| left > 0);
        let (striping, places) = self.allocator.reserve(&self.files, &self.order, self.rule, number, left)?;
        let component_bytes = places.first().map_or(0, |place| place.end_bytes - place.component.offset_bytes);
        let growing = Growing {
            stripes: striping.stripes(number, 0),
            longest_bytes: component_bytes * u64::from(striping.data),
            written_back_bytes: vec![0; places.len()],
            places,
            checksums: Vec::new(),
        };
        Ok(self.growing.insert(growing).step_bytes())
    }

    fn put_pending(&mut self) -> Result<()> {
        let pending = std::mem::take(&mut self.pending);
        let result = self.put(&pending);
        self.pending = pending;
        self.pending.clear();
        result
    }

    /// Writes a step: whole stripes, or the last ones of the object.
    fn put(&mut self, data: &[u8]) -> Result<()> {
        let Some(growing) = &mut self.growing else { return Ok(()) };
        // A reservation does not guarantee space; and for an object of unknown length, space was not checked.
        if growing.stripes.length_bytes > 0 || self.expected_bytes.is_none() {
            let unit_bytes = (data.len() as u64).div_ceil(growing.stripes.data.into()).min(data.len() as u64);
            self.failed = true;
            for place in &growing.places {
                if self.files.room_bytes(place.component.device)? < unit_bytes {
                    return Err(too_few(growing.places.len(), growing.stripes.parity));
                }
            }
        }
        let stripe = (growing.stripes.length_bytes / growing.stripes.stripe_bytes()) as usize;
        growing.stripes.length_bytes += data.len() as u64;
        for place in &growing.places {
            self.touched.add(place.component.device, place.component.file, &place.file);
            self.touched.claim(place.component.device, place.component.file, &place.claim);
        }
        self.failed = true;
        if growing.stripes.width() == 1 {
            put_run(&self.files, growing, stripe, data)?;
        } else {
            put_stripe(&self.files, &mut self.encoder, growing, stripe, data)?;
        }
        self.failed = false;
        write_back(growing, WRITEBACK_BYTES);
        if growing.stripes.length_bytes == growing.longest_bytes {
            self.end_chunk();
        }
        Ok(())
    }

    fn end_chunk(&mut self) {
        let Some(mut growing) = self.growing.take().filter(|growing| growing.stripes.length_bytes > 0) else { return };
        write_back(&mut growing, 1);
        for (component, place) in growing.places.iter().enumerate() {
            self.allocator.release(place, place.component.offset_bytes + growing.component_bytes(component));
        }
        self.chunked_bytes += growing.stripes.length_bytes;
        let components = growing.places.iter().map(|place| place.component).collect();
        self.chunks.push(Chunk { stripes: growing.stripes, components, checksums: growing.checksums });
    }
}

impl Drop for LargeWriter {
    fn drop(&mut self) {
        for place in self.growing.iter().flat_map(|growing| &growing.places) {
            self.allocator.release(place, place.component.offset_bytes);
        }
        for chunk in self.chunks.iter().rev() {
            for (position, component) in chunk.components.iter().enumerate() {
                let end_bytes = component.offset_bytes + chunk.stripes.component_bytes(position);
                self.allocator.give_back(*component, end_bytes, component.offset_bytes);
            }
        }
    }
}

/// Bytes of a unit as written: padded to whole sectors.
fn padded(unit: &[u8]) -> Cow<'_, [u8]> {
    let length = round_up(unit.len() as u64, SECTOR_BYTES) as usize;
    if length == unit.len() {
        return Cow::Borrowed(unit);
    }
    let mut padded = Vec::with_capacity(length);
    padded.extend_from_slice(unit);
    padded.resize(length, 0);
    Cow::Owned(padded)
}

fn write_at(files: &ExtentFiles, place: &Reserved, from_bytes: u64, data: &[u8]) -> Result<()> {
    let Component { device, file, offset_bytes } = place.component;
    place
        .file
        .append_at(data, offset_bytes + from_bytes)
        .map_err(|error| files.error("write to the extent file", device, file, error))
}

/// Writes units on the only device, where they are adjacent.
fn put_run(files: &ExtentFiles, growing: &mut Growing, stripe: usize, data: &[u8]) -> Result<()> {
    let data = padded(data);
    let unit_bytes = growing.stripes.unit_bytes as usize;
    growing.checksums.extend(data.chunks(unit_bytes).map(checksum));
    write_at(files, &growing.places[0], stripe as u64 * unit_bytes as u64, &data)
}

/// Writes units of one stripe, and their parity.
fn put_stripe(
    files: &ExtentFiles,
    encoder: &mut Encoder,
    growing: &mut Growing,
    stripe: usize,
    data: &[u8],
) -> Result<()> {
    let stripes = growing.stripes;
    let units: Vec<Cow<'_, [u8]>> = data.chunks(stripes.unit_bytes as usize).map(padded).collect();
    let borrowed: Vec<&[u8]> = units.iter().map(AsRef::as_ref).collect();
    let (data_units, parity_units) = (usize::from(stripes.data), usize::from(stripes.parity));
    let parity = encoder.parity(data_units, parity_units, stripes.unit_length(stripe, 0), &borrowed)?;
    let data = borrowed.iter().copied().enumerate();
    let parity = parity.iter().enumerate().map(|(unit, bytes)| (data_units + unit, bytes.as_slice()));
    for (unit, bytes) in data.chain(parity) {
        growing.checksums.push(checksum(bytes));
        let place = &growing.places[stripes.component(stripe, unit)];
        write_at(files, place, stripe as u64 * u64::from(stripes.unit_bytes), bytes)?;
    }
    Ok(())
}

/// Begins write-back of components that grew by at least `least_bytes` since it was last begun.
fn write_back(growing: &mut Growing, least_bytes: u64) {
    for component in 0..growing.places.len() {
        let (end, begun) = (growing.component_bytes(component), growing.written_back_bytes[component]);
        if end >= begun + least_bytes {
            let place = &growing.places[component];
            place.file.start_writeback(place.component.offset_bytes + begun, end - begun);
            growing.written_back_bytes[component] = end;
        }
    }
}
