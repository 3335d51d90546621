//! Reads little-endian fields from untrusted bytes: each step returns `None` if too few bytes remain.

#![cfg_attr(not(test), warn(clippy::indexing_slicing))]

/// A position in bytes that are being decoded.
#[derive(Debug, Clone)]
pub(crate) struct Decoder<'a> {
    rest: &'a [u8],
}

impl<'a> Decoder<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Decoder<'a> {
        Decoder { rest: bytes }
    }

    /// The bytes not consumed yet.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(*taken)
    }

    pub(crate) fn identity(&mut self) -> Option<[u8; 16]> {
        self.array()
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// A signed integer of five bytes.
    pub(crate) fn i40(&mut self) -> Option<i64> {
        let bytes: [u8; 5] = self.array()?;
        let mut wide = [if bytes[4] & 0x80 == 0 { 0 } else { 0xff }; 8];
        wide[..5].copy_from_slice(&bytes);
        Some(i64::from_le_bytes(wide))
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_input_is_no_value_and_signs_hold() {
        assert_eq!(Decoder::new(&[1]).u16(), None);
        assert_eq!(Decoder::new(&[1, 2, 3]).u16(), Some(0x0201));
        for seconds in [0, -1, 1 << 38, -(1 << 39), 253_402_300_800] {
            assert_eq!(Decoder::new(&i64::to_le_bytes(seconds)[..5]).i40(), Some(seconds));
        }
    }
}
