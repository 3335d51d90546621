//! Chunks: the mapping from logical addresses to devices.

use crate::scan::inodes::fields::LittleEndian;

const HEADER_BYTES: usize = 48;
const STRIPE_BYTES: usize = 32;
/// Chunks of these types hold trees.
const SYSTEM: u64 = 2;
const METADATA: u64 = 4;
const RAID0: u64 = 8;
const RAID10: u64 = 64;
const RAID5: u64 = 128;
const RAID6: u64 = 256;

/// A range of logical addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Chunk {
    length_bytes: u64,
    stripe_bytes: u64,
    kind: u64,
    /// Copies of each stripe with RAID10.
    copies: usize,
    /// Number of a device, and offset on it.
    stripes: Vec<(u64, u64)>,
}

/// All chunks, by their first address.
#[derive(Debug, Default)]
pub(super) struct Chunks {
    chunks: Vec<(u64, Chunk)>,
}

impl Chunk {
    /// Parses a chunk; returns it and what follows its item.
    pub(super) fn parse(bytes: &[u8]) -> Option<(Chunk, &[u8])> {
        let (header, rest) = bytes.split_first_chunk::<HEADER_BYTES>()?;
        let count = usize::from(header.u16::<44>());
        let (stripes, behind) = rest.split_at_checked(count * STRIPE_BYTES)?;
        let stripes = stripes.as_chunks::<STRIPE_BYTES>().0.iter();
        let chunk = Chunk {
            length_bytes: header.u64::<0>(),
            stripe_bytes: header.u64::<16>(),
            kind: header.u64::<24>(),
            copies: usize::from(header.u16::<46>()),
            stripes: stripes.map(|stripe| (stripe.u64::<0>(), stripe.u64::<8>())).collect(),
        };
        let grouped = chunk.kind & RAID10 == 0 || chunk.copies > 0 && count.is_multiple_of(chunk.copies);
        let fits = count > chunk.parities() && chunk.length_bytes > 0 && chunk.stripe_bytes >= 4096 && grouped;
        fits.then_some((chunk, behind))
    }

    fn parities(&self) -> usize {
        usize::from(self.kind & RAID5 != 0) + 2 * usize::from(self.kind & RAID6 != 0)
    }

    /// The device and the offset on it of copy `copy` of the byte at `offset`; `None` if there is no such copy. Of
    /// RAID5 and RAID6 there is one: parity is not used.
    fn place(&self, offset: u64, copy: usize) -> Option<(u64, u64)> {
        let (number, within) = (offset / self.stripe_bytes, offset % self.stripe_bytes);
        let all = self.stripes.len();
        let (row, column) = if self.kind & (RAID0 | RAID5 | RAID6) != 0 {
            let data = all - self.parities();
            let (row, column) = (number / data as u64, (number % data as u64) as usize);
            // Parity rotates over the devices.
            let turn = if self.parities() > 0 { (row % all as u64) as usize } else { 0 };
            (row, (copy == 0).then_some((column + turn) % all)?)
        } else if self.kind & RAID10 != 0 {
            let groups = (all / self.copies) as u64;
            (number / groups, (number % groups) as usize * self.copies + (copy < self.copies).then_some(copy)?)
        } else {
            (number, copy)
        };
        let &(device, start) = self.stripes.get(column)?;
        Some((device, start.checked_add(row * self.stripe_bytes)?.checked_add(within)?))
    }
}

impl Chunks {
    /// Keeps the chunks that hold trees.
    pub(super) fn new(mut chunks: Vec<(u64, Chunk)>) -> Chunks {
        chunks.retain(|(_, chunk)| chunk.kind & (SYSTEM | METADATA) != 0);
        chunks.sort_by_key(|(start, _)| *start);
        chunks.dedup_by_key(|(start, _)| *start);
        Chunks { chunks }
    }

    /// The device and offset of a copy of the block at an address; `None` if there is no such copy.
    pub(super) fn place(&self, address: u64, copy: usize) -> Option<(u64, u64)> {
        let behind = self.chunks.partition_point(|(start, _)| *start <= address);
        let (start, chunk) = self.chunks.get(behind.checked_sub(1)?)?;
        let offset = address - start;
        (offset < chunk.length_bytes).then(|| chunk.place(offset, copy)).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(kind: u64, copies: u16, stripes: &[(u64, u64)]) -> Chunk {
        let mut bytes = vec![0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&(1u64 << 30).to_le_bytes());
        bytes[16..24].copy_from_slice(&(1u64 << 16).to_le_bytes());
        bytes[24..32].copy_from_slice(&(kind | METADATA).to_le_bytes());
        bytes[44..46].copy_from_slice(&(stripes.len() as u16).to_le_bytes());
        bytes[46..48].copy_from_slice(&copies.to_le_bytes());
        for (device, start) in stripes {
            bytes.extend(device.to_le_bytes());
            bytes.extend(start.to_le_bytes());
            bytes.extend([0; 16]);
        }
        Chunk::parse(&bytes).unwrap().0
    }

    #[test]
    fn addresses_are_found_on_every_profile() {
        const STRIPE: u64 = 1 << 16;
        let devices = [(1, 0), (2, 10 * STRIPE), (3, 20 * STRIPE), (4, 30 * STRIPE)];
        let at = |chunk: Chunk, address: u64, copy: usize| Chunks::new(vec![(100, chunk)]).place(100 + address, copy);
        assert_eq!(at(chunk(0, 1, &devices[..1]), 5 * STRIPE + 7, 0), Some((1, 5 * STRIPE + 7)));
        assert_eq!(at(chunk(32, 1, &[(1, 0), (1, 9 * STRIPE)]), 7, 1), Some((1, 9 * STRIPE + 7)));
        assert_eq!(at(chunk(16, 1, &devices[..2]), STRIPE, 2), None);
        assert_eq!(at(chunk(RAID0, 1, &devices), 6 * STRIPE + 7, 0), Some((3, 21 * STRIPE + 7)));
        assert_eq!(at(chunk(RAID0, 1, &devices), 0, 1), None);
        assert_eq!(at(chunk(RAID10, 2, &devices), 3 * STRIPE, 0), Some((3, 21 * STRIPE)));
        assert_eq!(at(chunk(RAID10, 2, &devices), 3 * STRIPE, 1), Some((4, 31 * STRIPE)));
        assert_eq!(at(chunk(RAID5, 1, &devices[..3]), 3 * STRIPE, 0), Some((3, 21 * STRIPE)));
        assert_eq!(at(chunk(RAID6, 1, &devices), 2 * STRIPE + 1, 0), Some((2, 11 * STRIPE + 1)));
        let single = Chunks::new(vec![(1 << 40, chunk(0, 1, &devices[..1]))]);
        assert_eq!(single.place(0, 0).or(single.place((1 << 40) + (1 << 30), 0)), None);
    }
}
