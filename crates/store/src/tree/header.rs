//! The bytes of a tar archive: header blocks, numbers, extended headers, maps of sparse files.
//!
//! Sources: POSIX.1-2017, `pax` ("ustar Interchange Format", "pax Header Block"), and the GNU tar manual ("Basic Tar
//! Format", "Storing Sparse Files"). The crate `tar` has the layout of the blocks; numbers and extended headers are
//! decoded here: the crate ends the value of an extended header at a line feed, which binary attributes and some names
//! contain, and returns the data of sparse files only with their holes filled.
//!
//! Everything is checked: a value that is not understood is an error with a message, never a guess.

#![cfg_attr(not(test), warn(clippy::indexing_slicing))]

use tar::{GnuExtSparseHeader, GnuSparseHeader, Header as Block};

use super::posix::MOST_RUNS;
use crate::format::attributes::Holes;
use crate::format::entry::Time;

/// Size of a header, and the unit to which data are padded, in bytes.
pub(super) const BLOCK_BYTES: usize = 512;

/// Digits of the largest number.
const LONGEST_NUMBER: usize = 20;

/// The error is a message about the contradiction.
pub(super) type Decoded<T> = Result<T, &'static str>;

/// A header block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Header {
    /// Type of the member: the byte in the format.
    pub kind: u8,
    pub name: Vec<u8>,
    pub link: Vec<u8>,
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    /// Bytes of data that follow.
    pub data_bytes: u64,
    pub mtime: Time,
    pub device: (u32, u32),
    /// Map of a sparse file of GNU's old format.
    pub sparse: Option<OldSparse>,
}

/// The map of a sparse file in GNU's old format, as far as it is in the header.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct OldSparse {
    pub runs: Vec<(u64, u64)>,
    pub is_continued: bool,
    pub size_bytes: u64,
}

/// Decodes a header; `None` for a block of zeroes, which ends an archive.
pub(super) fn decode(bytes: &[u8; BLOCK_BYTES]) -> Decoded<Option<Header>> {
    if bytes.iter().all(|&byte| byte == 0) {
        return Ok(None);
    }
    let block = Block::from_byte_slice(bytes);
    let old = block.as_old();
    // The checksum counts its own bytes as spaces. Some old programs summed signed bytes.
    let counted = bytes[..148].iter().chain(&[b' '; 8]).chain(&bytes[156..]);
    let unsigned: i64 = counted.clone().map(|&byte| i64::from(byte)).sum();
    let signed: i64 = counted.map(|&byte| i64::from(byte as i8)).sum();
    let claimed = number(&old.cksum)?;
    if claimed != unsigned && claimed != signed {
        return Err("a header's checksum is wrong");
    }
    let kind = old.linkflag[0];
    let (mut device, mut sparse) = ((0, 0), None);
    if matches!(kind, b'3' | b'4') {
        let fields = block.as_ustar().map(|header| (&header.dev_major, &header.dev_minor));
        let fields = fields.or_else(|| block.as_gnu().map(|header| (&header.dev_major, &header.dev_minor)));
        if let Some((major, minor)) = fields {
            device = (within(number(major)?)?, within(number(minor)?)?);
        }
    }
    if kind == b'S' {
        let header = block.as_gnu().ok_or("a sparse file in a header that is not in GNU format")?;
        sparse = Some(OldSparse {
            runs: old_runs(&header.sparse)?,
            is_continued: header.is_extended(),
            size_bytes: within(number(&header.realsize)?)?,
        });
    }
    Ok(Some(Header {
        kind,
        name: block.path_bytes().into_owned(),
        link: block.link_name_bytes().map(|name| name.into_owned()).unwrap_or_default(),
        // Some programs store the type of the file in the mode too.
        mode: (number(&old.mode)? & 0o7777) as u16,
        uid: within(number(&old.uid)?)?,
        gid: within(number(&old.gid)?)?,
        data_bytes: within(number(&old.size)?)?,
        mtime: Time { seconds: number(&old.mtime)?, nanoseconds: 0 },
        device,
        sparse,
    }))
}

/// Decodes a block that continues the map of a sparse file; returns whether another one follows.
pub(super) fn decode_continuation(bytes: &[u8; BLOCK_BYTES]) -> Decoded<(Vec<(u64, u64)>, bool)> {
    let mut block = GnuExtSparseHeader::new();
    block.as_mut_bytes().copy_from_slice(bytes);
    Ok((old_runs(block.sparse())?, block.is_extended()))
}

fn old_runs(fields: &[GnuSparseHeader]) -> Decoded<Vec<(u64, u64)>> {
    let used = fields.iter().take_while(|field| field.offset[0] != 0 || field.numbytes[0] != 0);
    used.map(|field| Ok((within(number(&field.offset)?)?, within(number(&field.numbytes)?)?))).collect()
}

/// A number field: octal digits, or, with the highest bit set, a signed base-256 number.
fn number(field: &[u8]) -> Decoded<i64> {
    let Some((&first, rest)) = field.split_first() else { return Ok(0) };
    if first & 0x80 != 0 {
        // The bit below the marker is the sign.
        let mut value = if first & 0x40 != 0 { i64::from(first as i8) } else { i64::from(first & 0x3f) };
        for &byte in rest {
            value = value.checked_mul(256).ok_or("a number is too large")? | i64::from(byte);
        }
        return Ok(value);
    }
    let digits = field.split(|&byte| byte == 0).next().unwrap_or_default().trim_ascii();
    digits.iter().try_fold(0i64, |value, &digit| {
        if !(b'0'..=b'7').contains(&digit) {
            return Err("a number is not octal");
        }
        let value = value.checked_mul(8).ok_or("a number is too large")?;
        Ok(value | i64::from(digit - b'0'))
    })
}

fn within<T: TryFrom<i64>>(number: i64) -> Decoded<T> {
    T::try_from(number).map_err(|_| "a number is out of range")
}

/// The records of an extended header: keyword and value, in order, until one is malformed.
pub(super) fn extended(mut bytes: &[u8]) -> impl Iterator<Item = Decoded<(&[u8], &[u8])>> {
    std::iter::from_fn(move || {
        // Some programs pad with zeroes.
        bytes.first().filter(|&&byte| byte != 0)?;
        let (record, rest) = first_record(bytes)
            .map_or((Err("an extended header is malformed"), &[][..]), |(keyword, value, rest)| {
                (Ok((keyword, value)), rest)
            });
        bytes = rest;
        Some(record)
    })
}

/// Keyword and value of the first record, and what follows it; `None` if it is malformed.
fn first_record(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    // A length has no more digits than a number.
    let digits = bytes.iter().take(LONGEST_NUMBER + 1).position(|&byte| byte == b' ')?;
    let length = usize::try_from(decimal(bytes.get(..digits)?).ok()?).ok()?;
    let (record, rest) = bytes.split_at_checked(length)?;
    let (keyword, value) = halves(record.get(digits + 1..)?.strip_suffix(b"\n")?, b'=');
    Some((keyword, value?, rest))
}

/// What is before and after the first `separator`; `None` after it if there is none.
fn halves(bytes: &[u8], separator: u8) -> (&[u8], Option<&[u8]>) {
    let mut halves = bytes.splitn(2, |&byte| byte == separator);
    (halves.next().unwrap_or_default(), halves.next())
}

/// A whole number in decimal digits.
pub(super) fn decimal(digits: &[u8]) -> Decoded<u64> {
    if digits.is_empty() || digits.len() > LONGEST_NUMBER {
        return Err("a number is not decimal");
    }
    digits.iter().try_fold(0u64, |value, &digit| {
        if !digit.is_ascii_digit() {
            return Err("a number is not decimal");
        }
        let value = value.checked_mul(10).and_then(|value| value.checked_add(u64::from(digit - b'0')));
        value.ok_or("a number is too large")
    })
}

/// A time in an extended header: seconds, perhaps negative, perhaps with a fraction, which is truncated to nanoseconds.
pub(super) fn time(text: &[u8]) -> Decoded<Time> {
    let (negative, text) = text.strip_prefix(b"-").map_or((false, text), |rest| (true, rest));
    let (whole, fraction) = halves(text, b'.');
    let seconds = i64::try_from(decimal(whole)?).map_err(|_| "a time is out of range")?;
    let mut nanoseconds = 0;
    for place in 0..9 {
        let digit = fraction.and_then(|fraction| fraction.get(place)).copied().unwrap_or(b'0');
        if !digit.is_ascii_digit() {
            return Err("a time is not decimal");
        }
        nanoseconds = nanoseconds * 10 + u32::from(digit - b'0');
    }
    Ok(match (negative, nanoseconds) {
        (false, _) => Time { seconds, nanoseconds },
        (true, 0) => Time { seconds: -seconds, nanoseconds },
        (true, _) => Time { seconds: -seconds - 1, nanoseconds: 1_000_000_000 - nanoseconds },
    })
}

/// The name of an extended attribute in a keyword, in which GNU tar writes `=` as `%3D` and `%` as `%25`.
pub(super) fn xattr_name(keyword: &[u8]) -> Vec<u8> {
    let mut name = Vec::with_capacity(keyword.len());
    let mut rest = keyword;
    loop {
        let byte;
        (byte, rest) = match rest {
            [b'%', b'3', b'D' | b'd', after @ ..] => (b'=', after),
            [b'%', b'2', b'5', after @ ..] => (b'%', after),
            [first, after @ ..] => (*first, after),
            [] => return name,
        };
        name.push(byte);
    }
}

/// The name of an extended attribute as GNU tar has it in a keyword: see [`xattr_name`].
pub(super) fn xattr_keyword(name: &[u8]) -> Vec<u8> {
    let mut keyword = b"SCHILY.xattr.".to_vec();
    for &byte in name {
        match byte {
            b'=' => keyword.extend_from_slice(b"%3D"),
            b'%' => keyword.extend_from_slice(b"%25"),
            _ => keyword.push(byte),
        }
    }
    keyword
}

/// The map of a sparse file from the runs in an archive; `None` if there are no holes.
pub(super) fn sparse_map(runs: &[(u64, u64)], size_bytes: u64, data_bytes: u64) -> Decoded<Option<Holes>> {
    let mut data: Vec<(u64, u64)> = Vec::new();
    let (mut end, mut sum) = (0u64, 0u64);
    for &(offset, length) in runs {
        if offset < end {
            return Err("runs of a sparse file overlap");
        }
        end = offset
            .checked_add(length)
            .filter(|&end| end <= size_bytes)
            .ok_or("a run of a sparse file is beyond its end")?;
        sum += length;
        match data.last_mut() {
            _ if length == 0 => {}
            Some((last, last_length)) if *last + *last_length == offset => *last_length += length,
            _ => data.push((offset, length)),
        }
    }
    if sum != data_bytes {
        return Err("the data of a sparse file does not have the length in its map");
    }
    if data.len() > MOST_RUNS {
        return Err("a sparse file has more than 65,536 runs of data");
    }
    let is_whole = data == [(0, size_bytes)] || size_bytes == 0;
    Ok((!is_whole).then_some(Holes { size_bytes, data }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn block(set: impl FnOnce(&mut Block)) -> [u8; BLOCK_BYTES] {
        let mut block = Block::new_gnu();
        block.set_size(0);
        block.set_mode(0o644);
        block.set_uid(1);
        block.set_gid(2);
        block.set_mtime(3);
        block.set_path("name").unwrap();
        set(&mut block);
        block.set_cksum();
        *block.as_bytes()
    }

    #[test]
    fn a_header_is_decoded_and_its_checksum_held() {
        let mut bytes = block(|block| block.set_size(9 << 30));
        let header = decode(&bytes).unwrap().unwrap();
        assert_eq!((&header.name[..], header.mode, header.uid, header.gid), (&b"name"[..], 0o644, 1, 2));
        assert_eq!((header.data_bytes, header.mtime.seconds), (9 << 30, 3));
        bytes[0] ^= 1;
        assert!(decode(&bytes).unwrap_err().contains("checksum"));
        assert_eq!(decode(&[0; BLOCK_BYTES]).unwrap(), None);
    }

    #[test]
    fn numbers_are_octal_or_signed_binary() {
        assert_eq!(number(b"0000644\0"), Ok(0o644));
        assert_eq!(number(b"   644 \0"), Ok(0o644));
        assert_eq!(number(b"\0\0\0\0"), Ok(0));
        assert_eq!(number(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xfe"), Ok(-2));
        assert_eq!(number(b"\x80\0\0\0\0\0\0\0\0\0\x01\x02"), Ok(258));
        assert!(number(b"0000648\0").is_err());
        assert!(number(b"\xbf\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff").is_err());
    }

    #[test]
    fn values_of_an_extended_header_may_hold_any_byte() {
        let records: Vec<_> = extended(b"13 path=a\nb=\n17 SCHILY.x=\0\n\n\x01\n").map(Result::unwrap).collect();
        assert_eq!(records, [(&b"path"[..], &b"a\nb="[..]), (b"SCHILY.x", b"\0\n\n\x01")]);
        for wrong in
            [&b"12 path=a\nb=\n"[..], b"99 path=a\n", b"path=a\n", b"8 patha\n", b"0 a=b\n", b"2 \n", b"-1 a=b\n"]
        {
            assert!(extended(wrong).any(|record| record.is_err()), "{wrong:?}");
        }
    }

    #[test]
    fn times_before_the_epoch_round_down() {
        assert_eq!(time(b"-1.25"), Ok(Time { seconds: -2, nanoseconds: 750_000_000 }));
        assert_eq!(time(b"-3"), Ok(Time { seconds: -3, nanoseconds: 0 }));
        assert_eq!(time(b"12.0000000019"), Ok(Time { seconds: 12, nanoseconds: 1 }));
        assert!(time(b"1.x").is_err() && time(b"").is_err() && time(b"99999999999999999999").is_err());
    }

    #[test]
    fn names_of_attributes_are_taken_out_of_keywords() {
        assert_eq!(xattr_name(b"user.a%3Db%25c%"), b"user.a=b%c%");
        assert_eq!(xattr_keyword(b"user.a=b%c"), b"SCHILY.xattr.user.a%3Db%25c");
        for name in [&b"user.a%3Db"[..], b"user.p%25", b"user.=", b"user.%", b"user.%253D=%", b"user.\n\xff"] {
            assert_eq!(xattr_name(xattr_keyword(name).strip_prefix(b"SCHILY.xattr.").unwrap()), name);
        }
    }

    #[test]
    fn a_map_is_rising_apart_and_complete() {
        let holes = |data: &[(u64, u64)]| Some(Holes { size_bytes: 100, data: data.to_vec() });
        assert_eq!(sparse_map(&[(10, 5), (15, 5), (50, 1), (100, 0)], 100, 11), Ok(holes(&[(10, 10), (50, 1)])));
        assert_eq!(sparse_map(&[(100, 0)], 100, 0), Ok(holes(&[])));
        assert_eq!(sparse_map(&[(0, 100)], 100, 100), Ok(None));
        assert!(sparse_map(&[(10, 5), (12, 5)], 100, 10).is_err());
        assert!(sparse_map(&[(99, 2)], 100, 2).is_err());
        assert!(sparse_map(&[(u64::MAX, 2)], 100, 2).is_err());
        assert!(sparse_map(&[(1, 2)], 100, 3).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_decoded_or_refused(mut bytes in proptest::collection::vec(any::<u8>(), BLOCK_BYTES), fix in any::<bool>()) {
            if fix {
                let sum: u32 = bytes[..148].iter().chain(&bytes[156..]).map(|&byte| u32::from(byte)).sum::<u32>() + 256;
                bytes[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
            }
            let bytes: [u8; BLOCK_BYTES] = bytes.try_into().unwrap();
            let _ = decode(&bytes);
            let _ = decode_continuation(&bytes);
            let _ = extended(&bytes).count();
            let _ = time(&bytes[..20]);
        }
    }
}
