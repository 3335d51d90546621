//! Numbers of variable length: LEB128, and zigzag for signed ones. Sorted tables and the catalog are made of them.
//!
//! Reading never panics: [`take`] and [`take_bytes`] give `None` for what ends early or does not fit, and then leave `at` anywhere.

/// The most bytes that a number takes.
pub(crate) const LONGEST_BYTES: usize = 10;

/// Appends `value`.
#[inline]
pub(crate) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Reads the number at `at` and moves `at` behind it.
#[inline]
pub(crate) fn take(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let first = *bytes.get(*at)?;
    *at += 1;
    if first < 0x80 {
        return Some(u64::from(first));
    }
    let mut value = u64::from(first & 0x7f);
    for index in 1..LONGEST_BYTES {
        let byte = *bytes.get(*at)?;
        *at += 1;
        let bits = u64::from(byte & 0x7f);
        let shift = 7 * index as u32;
        if shift == 63 && bits > 1 {
            return None;
        }
        value |= bits << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

/// Reads `length` bytes at `at` and moves `at` behind them.
#[inline]
pub(crate) fn take_bytes<'a>(bytes: &'a [u8], at: &mut usize, length: u64) -> Option<&'a [u8]> {
    let end = at.checked_add(usize::try_from(length).ok()?)?;
    let taken = bytes.get(*at..end)?;
    *at = end;
    Some(taken)
}

/// A signed number as an unsigned one, small if its magnitude is.
#[inline]
pub(crate) fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// The way back from [`zigzag`].
#[inline]
pub(crate) fn unzigzag(value: u64) -> i64 {
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
        fn every_number_comes_back(value: u64, signed: i64, before in 0usize..4) {
            let mut out = vec![0; before];
            put(&mut out, value);
            put(&mut out, zigzag(signed));
            let mut at = before;
            prop_assert_eq!(take(&out, &mut at), Some(value));
            prop_assert_eq!(take(&out, &mut at).map(unzigzag), Some(signed));
            prop_assert_eq!(at, out.len());
        }
    }
}
