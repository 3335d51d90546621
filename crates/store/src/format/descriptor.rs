//! Descriptors: where the bytes of a large object are (docs/FORMAT.md, section 7).
//!
//! [`Descriptor::decode`] trusts nothing. Its result has these invariants, on which reading and repair rely: together,
//! the chunks have exactly the bytes of the object after its packed ones; [`Stripes::check`] allows each chunk, and all
//! but the last consist of whole stripes; the components of a chunk are on different devices, at multiples of 4 KiB;
//! every unit that has bytes has a checksum. It allocates at most a small multiple of the length of its input, whatever
//! numbers that contains.

#![cfg_attr(not(test), warn(clippy::indexing_slicing))]

use std::path::Path;

use super::ids::DeviceNumber;
use crate::error::{Error, ErrorKind, Result};
use crate::layout::granulo::{CHUNK_HEADER_BYTES, COMPONENT_BYTES, SECTOR_BYTES, Stripes, check_packed};

/// Where the packed bytes begin in the content of the record.
pub(crate) const PACKED_AT: u64 = 16;

/// A run of units on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Run {
    /// Device.
    pub(crate) device: DeviceNumber,
    /// Extent file.
    pub(crate) file: u32,
    /// Offset in bytes.
    pub(crate) offset_bytes: u64,
    /// Length in bytes.
    pub(crate) length_bytes: u64,
}

/// Where the component of a chunk begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Component {
    /// Device.
    pub(crate) device: DeviceNumber,
    /// Extent file on it.
    pub(crate) file: u32,
    /// Offset in bytes, a multiple of 4 KiB.
    pub(crate) offset_bytes: u64,
}

/// A part of a large object, striped over one set of devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chunk {
    /// How it is divided into units.
    pub(crate) stripes: Stripes,
    /// Its components: one per data and parity unit of a stripe.
    pub(crate) components: Vec<Component>,
    /// XXH3 of each unit that has bytes, indexed by [`Stripes::checksum_index`].
    pub(crate) checksums: Vec<u64>,
}

impl Chunk {
    /// Where a unit is; the length is 0 for a unit without bytes.
    #[expect(clippy::indexing_slicing, reason = "there is a component for each unit of a stripe")]
    pub(crate) fn unit(&self, stripe: usize, unit: usize) -> Run {
        let component = self.components[self.stripes.component(stripe, unit)];
        Run {
            device: component.device,
            file: component.file,
            offset_bytes: component.offset_bytes + stripe as u64 * u64::from(self.stripes.unit_bytes),
            length_bytes: self.stripes.unit_length(stripe, unit) as u64,
        }
    }

    /// The runs of its components; none is empty.
    pub(crate) fn runs(&self) -> impl Iterator<Item = Run> + '_ {
        let numbered = self.components.iter().enumerate();
        let run = |(position, component): (usize, &Component)| Run {
            device: component.device,
            file: component.file,
            offset_bytes: component.offset_bytes,
            length_bytes: self.stripes.component_bytes(position),
        };
        numbered.map(run).filter(|run| run.length_bytes > 0)
    }

    /// What is wrong with the chunk on its own.
    fn check(&self) -> std::result::Result<(), String> {
        self.stripes.check()?;
        let width = self.stripes.width();
        if self.components.len() != width || self.checksums.len() != self.stripes.units() {
            return Err(format!("a chunk has {} components for {width} units", self.components.len()));
        }
        for (position, component) in self.components.iter().enumerate() {
            if self.components.iter().take(position).any(|before| before.device == component.device) {
                return Err(format!("two components of a chunk are on device {}", component.device));
            }
        }
        Ok(())
    }
}

/// The content of the record of a large object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Descriptor {
    /// Stored bytes, without holes.
    pub(crate) stored_bytes: u64,
    /// The first of them: as many as the geometry said when the object was written.
    pub(crate) packed: Vec<u8>,
    /// The rest.
    pub(crate) chunks: Vec<Chunk>,
}

impl Descriptor {
    /// Bytes of the object before its chunks.
    pub(crate) fn packed_bytes(&self) -> u64 {
        self.packed.len() as u64
    }

    /// The data units in the order of the bytes, without padding: the first byte's offset among the stored bytes, the
    /// number of bytes, and where the unit is.
    pub(crate) fn data_units(&self) -> impl Iterator<Item = (u64, u64, Run)> + '_ {
        let mut begin = self.packed_bytes();
        self.chunks.iter().flat_map(move |chunk| {
            let (stripes, first) = (chunk.stripes, begin);
            begin += stripes.length_bytes;
            let units =
                (0..stripes.count()).flat_map(move |stripe| (0..stripes.reached(stripe)).map(move |at| (stripe, at)));
            units.map(move |(stripe, at)| {
                let within = stripe as u64 * stripes.stripe_bytes() + at as u64 * u64::from(stripes.unit_bytes);
                (first + within, stripes.content_bytes(stripe, at), chunk.unit(stripe, at))
            })
        })
    }

    /// The runs that the object occupies in extent files, chunk by chunk; none is empty.
    pub(crate) fn runs(&self) -> impl Iterator<Item = Run> + '_ {
        self.chunks.iter().flat_map(Chunk::runs)
    }

    /// What is wrong with the descriptor as a whole.
    fn check(&self) -> std::result::Result<(), String> {
        check_packed(self.packed_bytes())?;
        let (last, before) = self.chunks.split_last().ok_or("it has no chunks")?;
        if let Some(chunk) = before.iter().find(|chunk| chunk.stripes.length_bytes % chunk.stripes.stripe_bytes() != 0)
        {
            return Err(format!("a chunk of {} bytes does not consist of whole stripes", chunk.stripes.length_bytes));
        }
        // No chunk is longer than 4 GiB and there are fewer than 2^16: no overflow.
        let striped: u64 = before.iter().chain([last]).map(|chunk| chunk.stripes.length_bytes).sum();
        if self.stored_bytes.checked_sub(self.packed_bytes()) != Some(striped) {
            return Err(format!("{striped} bytes in chunks do not match an object of {}", self.stored_bytes));
        }
        Ok(())
    }

    /// Encodes the descriptor.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let chunks: u64 = self.chunks.iter().map(|chunk| chunk.stripes.map_bytes()).sum();
        let mut bytes = Vec::with_capacity(PACKED_AT as usize + self.packed.len() + chunks as usize);
        bytes.extend_from_slice(&self.stored_bytes.to_le_bytes());
        bytes.extend_from_slice(&(self.packed.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&(self.chunks.len() as u16).to_le_bytes());
        bytes.extend_from_slice(&[0; 2]);
        bytes.extend_from_slice(&self.packed);
        for Chunk { stripes, components, checksums } in &self.chunks {
            bytes.extend_from_slice(&stripes.length_bytes.to_le_bytes());
            bytes.extend_from_slice(&stripes.unit_bytes.to_le_bytes());
            bytes.extend_from_slice(&[stripes.data, stripes.parity, 0, 0]);
            for component in components {
                bytes.extend_from_slice(&component.device.0.to_le_bytes());
                bytes.extend_from_slice(&component.file.to_le_bytes());
                bytes.extend_from_slice(&((component.offset_bytes / SECTOR_BYTES) as u32).to_le_bytes());
            }
            for checksum in checksums {
                bytes.extend_from_slice(&checksum.to_le_bytes());
            }
        }
        bytes
    }

    /// Decodes a descriptor, which must be all of `bytes`; `path` is that of the object, for the error.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] for anything but a valid descriptor.
    pub(crate) fn decode(bytes: &[u8], path: &Path) -> Result<Descriptor> {
        Descriptor::read(&mut FieldReader { bytes }).map_err(|cause| {
            Error::new(ErrorKind::Corrupt, "read the descriptor of", cause)
                .at(path)
                .advise("granulo store check --deep shows what else is damaged")
        })
    }

    fn read(reader: &mut FieldReader<'_>) -> std::result::Result<Descriptor, String> {
        let stored_bytes = u64::from_le_bytes(reader.array()?);
        let packed = u32::from_le_bytes(reader.array()?);
        let count = u16::from_le_bytes(reader.array()?);
        reader.zeroes()?;
        let packed = reader.take(u64::from(packed))?.to_vec();
        // Grows with the bytes present, not with the stated count.
        let mut chunks = Vec::new();
        for _ in 0..count {
            chunks.push(reader.chunk()?);
        }
        if !reader.bytes.is_empty() {
            return Err(format!("{} bytes follow its end", reader.bytes.len()));
        }
        let descriptor = Descriptor { stored_bytes, packed, chunks };
        descriptor.check()?;
        Ok(descriptor)
    }
}

/// Bytes still to be read.
struct FieldReader<'a> {
    bytes: &'a [u8],
}

impl<'a> FieldReader<'a> {
    fn take(&mut self, length: u64) -> std::result::Result<&'a [u8], String> {
        let (taken, rest) = usize::try_from(length)
            .ok()
            .and_then(|length| self.bytes.split_at_checked(length))
            .ok_or_else(|| format!("it ends {} bytes early", length - self.bytes.len() as u64))?;
        self.bytes = rest;
        Ok(taken)
    }

    fn array<const LENGTH: usize>(&mut self) -> std::result::Result<[u8; LENGTH], String> {
        let (array, rest) = self.bytes.split_first_chunk().ok_or("it ends within a number")?;
        self.bytes = rest;
        Ok(*array)
    }

    fn zeroes(&mut self) -> std::result::Result<(), String> {
        if self.array()? == [0, 0] { Ok(()) } else { Err("bytes that must be zero are not".to_owned()) }
    }

    fn chunk(&mut self) -> std::result::Result<Chunk, String> {
        let length_bytes = u64::from_le_bytes(self.array()?);
        let unit_bytes = u32::from_le_bytes(self.array()?);
        let [data, parity] = self.array()?;
        self.zeroes()?;
        let stripes = Stripes { length_bytes, unit_bytes, data, parity };
        stripes.check()?;
        let mut of_components = FieldReader { bytes: self.take(stripes.width() as u64 * COMPONENT_BYTES)? };
        let mut components = Vec::with_capacity(stripes.width());
        while !of_components.bytes.is_empty() {
            components.push(Component {
                device: DeviceNumber(u16::from_le_bytes(of_components.array()?)),
                file: u32::from_le_bytes(of_components.array()?),
                offset_bytes: u64::from(u32::from_le_bytes(of_components.array()?)) * SECTOR_BYTES,
            });
        }
        let before = CHUNK_HEADER_BYTES + stripes.width() as u64 * COMPONENT_BYTES;
        let (checksums, _) = self.take(stripes.map_bytes() - before)?.as_chunks();
        let checksums = checksums.iter().map(|checksum| u64::from_le_bytes(*checksum)).collect();
        let chunk = Chunk { stripes, components, checksums };
        chunk.check()?;
        Ok(chunk)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::granulo::Striping;
    use proptest::prelude::*;

    fn decode(bytes: &[u8]) -> Result<Descriptor> {
        Descriptor::decode(bytes, Path::new("a/b"))
    }

    /// A valid descriptor of an object of `stored_bytes`.
    fn sample(rule: Striping, stored_bytes: u64) -> Descriptor {
        packing(4096, rule, stored_bytes)
    }

    /// As [`sample`], with this many packed bytes.
    fn packing(packed_bytes: u64, rule: Striping, stored_bytes: u64) -> Descriptor {
        let chunk = |(number, stripes): (usize, Stripes)| Chunk {
            stripes,
            components: (0..stripes.width())
                .map(|at| Component {
                    device: DeviceNumber((at * 7 + number) as u16),
                    file: (at + 3) as u32,
                    offset_bytes: (at as u64 + 1) << 30,
                })
                .collect(),
            checksums: (0..stripes.units() as u64).map(|at| at.wrapping_mul(0x9E37_79B9_7F4A_7C15)).collect(),
        };
        let chunks = rule.chunks(stored_bytes - packed_bytes).enumerate().map(chunk).collect();
        Descriptor { stored_bytes, packed: (0..packed_bytes).map(|at| at as u8).collect(), chunks }
    }

    fn samples() -> impl Strategy<Value = Descriptor> {
        (1u64..=16, 12u32..=16, 1u8..=12, 0u8..=2, 1u64..200_000_000, 0u32..16).prop_map(
            |(pages, shift, data, parity, bytes, less)| {
                let packed = pages * 4096;
                let rule = Striping { stripe_unit_bytes: 1 << shift, data, parity };
                packing(packed, rule, packed + (bytes >> less).max(1))
            },
        )
    }

    #[test]
    fn bytes_are_where_the_format_has_them() {
        let rule = Striping { stripe_unit_bytes: 65536, data: 2, parity: 1 };
        let bytes = sample(rule, 4096 + 65537).encode();
        assert_eq!(bytes[..16], [0x01, 0x10, 0x01, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 1, 0, 0, 0].map(|byte: u8| byte));
        assert_eq!(bytes[16..4112], (0..4096u32).map(|at| at as u8).collect::<Vec<u8>>());
        assert_eq!(bytes[4112..4128], [1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 2, 1, 0, 0]);
        assert_eq!(bytes[4138..4148], [7, 0, 4, 0, 0, 0, 0, 0, 8, 0]);
        // Two data units and one of parity.
        assert_eq!(bytes.len(), 4128 + 3 * 10 + 3 * 8);
        assert_eq!(bytes.len() as u128, rule.descriptor_content_bytes(4096, 4096 + 65537));
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        let good = sample(Striping { stripe_unit_bytes: 4096, data: 2, parity: 1 }, 4096 + 20_000).encode();
        decode(&good).unwrap();
        let with = |at: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            decode(&bytes).unwrap_err().to_string()
        };
        for (at, byte, cause) in [
            (0, 1, "bytes in chunks do not match an object"),
            (7, 255, "bytes in chunks do not match an object"),
            (10, 255, "it ends"),
            (12, 0, "bytes follow its end"),
            (13, 1, "it ends within a number"),
            (14, 1, "must be zero"),
            (4112, 0, "bytes in chunks do not match an object"),
            (4116, 1, "a chunk of such units must have 1 to 4194304 bytes"),
            (4120, 1, "a power of two"),
            (4122, 0xFF, "a power of two"),
            (4124, 0, "a stripe must have 1 to 64 data units"),
            (4125, 3, "a stripe must have 1 to 64 data units"),
            (4127, 1, "must be zero"),
            (4138, 0, "two components of a chunk are on device 0"),
        ] {
            let said = with(at, byte);
            assert!(said.contains(cause) && said.contains("a/b"), "{at}: {said}");
        }
        for length in 0..good.len() {
            assert_eq!(decode(&good[..length]).unwrap_err().kind(), ErrorKind::Corrupt);
        }
    }

    #[test]
    fn a_chunk_before_the_last_ends_with_a_stripe() {
        let rule = Striping { stripe_unit_bytes: 4096, data: 2, parity: 0 };
        let first = sample(rule, 4096 + 8192).chunks.remove(0);
        let mut odd = sample(rule, 4096 + 8192 + 100);
        odd.stored_bytes = 4096 + 2 * (8192 + 100);
        odd.chunks.push(odd.chunks[0].clone());
        assert!(decode(&odd.encode()).unwrap_err().to_string().contains("whole stripes"));
        // A chunk may end early where a stripe does.
        odd.chunks[0] = first;
        odd.stored_bytes = 4096 + 2 * 8192 + 100;
        assert_eq!(decode(&odd.encode()).unwrap(), odd);
    }

    #[test]
    fn whole_pages_are_packed() {
        let rule = Striping { stripe_unit_bytes: 4096, data: 2, parity: 1 };
        for packed_bytes in [4096, 12_288, 65_536] {
            let good = packing(packed_bytes, rule, packed_bytes + 20_000);
            assert_eq!(decode(&good.encode()).unwrap(), good);
        }
        for packed_bytes in [0, 100, 4095, 6144, 65_536 + 4096] {
            let said = decode(&packing(packed_bytes, rule, packed_bytes + 20_000).encode()).unwrap_err().to_string();
            assert!(said.contains("a descriptor must pack a multiple of 4 KiB"), "{packed_bytes}: {said}");
        }
    }

    #[test]
    fn numbers_in_hostile_bytes_allocate_nothing() {
        // 65,535 chunks, 4 GiB packed: refused at the first missing byte.
        assert!(decode(&[0xFF; 14]).is_err());
        let mut bytes = vec![0; 16];
        bytes[12..14].fill(0xFF);
        assert!(decode(&bytes).unwrap_err().to_string().contains("within a number"));
    }

    proptest! {
        #[test]
        fn what_was_encoded_is_decoded(descriptor in samples()) {
            let bytes = descriptor.encode();
            prop_assert_eq!(decode(&bytes).unwrap(), descriptor);
        }

        #[test]
        fn mutated_bytes_are_refused_or_sound(
            descriptor in samples(),
            changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
            cut in proptest::option::of(any::<prop::sample::Index>()),
        ) {
            let mut bytes = descriptor.encode();
            for (at, byte) in changes {
                // Half of the changes are in the header or in that of the first chunk, where they matter most.
                let map = 16 + descriptor.packed.len();
                let within = if byte % 2 == 0 { 16 } else { bytes.len() - map };
                let at = at.index(within);
                bytes[if byte % 2 == 0 { at } else { map + at }] = byte;
            }
            if let Some(cut) = cut {
                bytes.truncate(cut.index(bytes.len()));
            }
            match decode(&bytes) {
                Err(error) => prop_assert_eq!(error.kind(), ErrorKind::Corrupt),
                Ok(decoded) => {
                    prop_assert_eq!(decoded.encode(), bytes);
                    for chunk in &decoded.chunks {
                        for stripe in 0..chunk.stripes.count() {
                            for unit in 0..chunk.stripes.width() {
                                let run = chunk.unit(stripe, unit);
                                let position = chunk.stripes.checksum_index(stripe, unit);
                                prop_assert_eq!(position.is_some(), run.length_bytes > 0);
                                prop_assert!(position.is_none_or(|at| at < chunk.checksums.len()));
                            }
                        }
                    }
                }
            }
        }
    }
}
