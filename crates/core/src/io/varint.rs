//! Numbers of variable length: LEB128, and zigzag for signed ones. Sorted tables, the catalog and traces use them.
//!
//! Reading never panics: [`take`] and [`take_bytes`] return `None` for a number that is truncated or too large, and
//! `at` is then unspecified.

/// Most bytes of a number.
pub const LONGEST_BYTES: usize = 10;

/// Appends `value`.
#[inline]
pub fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Reads the number at `at` and moves `at` past it.
///
/// If eight bytes are available, numbers of up to eight bytes are read without a branch on their length: in a leaf
/// of a sorted table lengths are nearly random, and a mispredicted branch costs more than all the rest.
#[inline(always)]
pub fn take(bytes: &[u8], at: &mut usize) -> Option<u64> {
    const CONTINUATION: u64 = 0x8080_8080_8080_8080;
    let rest = bytes.get(*at..)?;
    if let Some(word) = rest.first_chunk::<8>() {
        let word = u64::from_le_bytes(*word);
        // The first byte without its high bit is the last.
        let ends = !word & CONTINUATION;
        if ends != 0 {
            let bits = ends.trailing_zeros() + 1;
            *at += (bits / 8) as usize;
            let word = word & (u64::MAX >> (64 - bits)) & !CONTINUATION;
            // Groups of 7 bits are merged to 14, to 28, to 56.
            let word = word & 0x007f_007f_007f_007f | (word & 0x7f00_7f00_7f00_7f00) >> 1;
            let word = word & 0x0000_3fff_0000_3fff | (word & 0x3fff_0000_3fff_0000) >> 2;
            return Some(word & 0x0fff_ffff | (word & 0x0fff_ffff_0000_0000) >> 4);
        }
    }
    take_bytewise(rest, at)
}

/// As [`take`], for a number at the beginning of `rest`, whatever its length: `rest` begins at `at`, which is only
/// advanced.
#[inline(never)]
fn take_bytewise(rest: &[u8], at: &mut usize) -> Option<u64> {
    let mut value = 0;
    for (index, &byte) in rest.iter().take(LONGEST_BYTES).enumerate() {
        let bits = u64::from(byte & 0x7f);
        let shift = 7 * index as u32;
        // The tenth byte has the last bit.
        if shift == 63 && bits > 1 {
            return None;
        }
        value |= bits << shift;
        if byte < 0x80 {
            *at += index + 1;
            return Some(value);
        }
    }
    None
}

/// Reads `length` bytes at `at` and moves `at` past them.
#[inline]
pub fn take_bytes<'a>(bytes: &'a [u8], at: &mut usize, length: u64) -> Option<&'a [u8]> {
    let end = at.checked_add(usize::try_from(length).ok()?)?;
    let taken = bytes.get(*at..end)?;
    *at = end;
    Some(taken)
}

/// A signed number as an unsigned one that is small if its magnitude is.
#[inline]
pub fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// The inverse of [`zigzag`].
#[inline]
pub fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lengths_change_where_seven_bits_are_full() {
        for (value, length) in [(0, 1), (127, 1), (128, 2), (16_383, 2), (16_384, 3), (u64::MAX, 10)] {
            let mut out = Vec::new();
            put(&mut out, value);
            assert_eq!(out.len(), length, "{value}");
        }
    }

    #[test]
    fn what_is_too_long_or_too_short_is_refused() {
        assert_eq!(take(&[0x80; 11], &mut 0), None);
        assert_eq!(take(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02], &mut 0), None);
        assert_eq!(take(&[0x80], &mut 0), None);
        assert_eq!(take(&[], &mut 3), None);
        assert_eq!(take_bytes(b"abc", &mut 1, 3), None);
        assert_eq!(take_bytes(b"abc", &mut 1, u64::MAX), None);
    }

    proptest! {
        #[test]
        fn every_number_comes_back(value: u64, bits in 0u32..64, signed: i64, before in 0usize..4, after in 0usize..10) {
            let value = value >> bits;
            let mut out = vec![0; before];
            put(&mut out, value);
            put(&mut out, zigzag(signed >> bits));
            let end = out.len();
            out.resize(end + after, 0xff);
            let mut at = before;
            prop_assert_eq!(take(&out, &mut at), Some(value));
            prop_assert_eq!(take(&out, &mut at).map(unzigzag), Some(signed >> bits));
            prop_assert_eq!(at, end);
        }
    }
}
