//! One line of a table: its fields, and the numbers and words in them.

use std::borrow::Cow;

use crate::trace::Kind;
use crate::trace::input::decimal;

/// Splits a line into fields, without the blanks around them. A field in double quotes may contain separators, and
/// doubled quotes.
pub(super) fn fields(line: &[u8], separator: u8) -> Vec<Cow<'_, [u8]>> {
    let mut fields = Vec::new();
    split(line, separator, &mut fields);
    fields
}

/// Same, into an existing list.
pub(super) fn split<'a>(line: &'a [u8], separator: u8, fields: &mut Vec<Cow<'a, [u8]>>) {
    fields.clear();
    let line = line.trim_ascii();
    if separator == b' ' {
        fields.extend(line.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty()).map(Cow::Borrowed));
        return;
    }
    if !line.contains(&b'"') {
        fields.extend(line.split(|&b| b == separator).map(|field| Cow::Borrowed(field.trim_ascii())));
        return;
    }
    let mut rest = Some(line);
    while let Some(text) = rest {
        let text = text.trim_ascii_start();
        if text.first() != Some(&b'"') {
            let end = text.iter().position(|&b| b == separator);
            fields.push(Cow::Borrowed(text[..end.unwrap_or(text.len())].trim_ascii()));
            rest = end.map(|end| &text[end + 1..]);
            continue;
        }
        let (mut value, mut at) = (Vec::new(), 1);
        while let Some(&byte) = text.get(at) {
            match (byte, text.get(at + 1)) {
                (b'"', Some(b'"')) => at += 1,
                (b'"', _) => break,
                _ => {}
            }
            value.push(byte);
            at += 1;
        }
        let behind = text.get(at..).unwrap_or_default();
        fields.push(Cow::Owned(value));
        rest = behind.iter().position(|&b| b == separator).map(|end| &behind[end + 1..]);
    }
}

/// A decimal number, converted to the smallest units (nanoseconds, bytes), rounded down.
pub(super) fn scaled(text: &[u8], unit: u64) -> Option<u64> {
    /// Further digits do not matter.
    const MOST_DIGITS: usize = 18;
    if text.iter().any(|b| matches!(b, b'e' | b'E')) {
        let value: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
        let value = value * unit as f64;
        return (value >= 0.0 && value < u64::MAX as f64).then_some(value as u64);
    }
    let (whole, fraction) = match text.iter().position(|&b| b == b'.') {
        None => (text, &[][..]),
        Some(at) => (&text[..at], &text[at + 1..]),
    };
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let whole = if whole.is_empty() { 0 } else { decimal(whole)? };
    if !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let seen = &fraction[..fraction.len().min(MOST_DIGITS)];
    let part = if seen.is_empty() { 0 } else { u128::from(decimal(seen)?) };
    let sum = u128::from(whole) * u128::from(unit) + part * u128::from(unit) / 10u128.pow(seen.len() as u32);
    u64::try_from(sum).ok()
}

/// The kind of an operation, by its names in existing tables.
pub(super) fn kind(word: &[u8]) -> Option<Kind> {
    /// No longer word is known.
    const LONGEST: usize = 24;
    let mut lower = [0; LONGEST];
    let lower = lower.get_mut(..word.len())?;
    lower.copy_from_slice(word);
    lower.make_ascii_lowercase();
    // The most common, and those with the flags that block layers append: RA, RS, WS, WSM, FWS …
    match &*lower {
        b"r" | b"read" | b"0" | b"rs" | b"ra" | b"ram" | b"rm" | b"rsm" | b"pread" | b"get" => return Some(Kind::Read),
        b"w" | b"write" | b"1" | b"ws" | b"wm" | b"wsm" | b"wfs" | b"fws" | b"pwrite" | b"put" | b"append" => {
            return Some(Kind::Write);
        }
        b"d" | b"ds" | b"discard" | b"trim" | b"unmap" | b"fallocate" => return Some(Kind::Allocate),
        b"f" | b"fn" | b"flush" | b"fsync" | b"commit" => return Some(Kind::Sync),
        b"creat" => return Some(Kind::Create),
        b"mmap" => return Some(Kind::Map),
        b"exec" => return Some(Kind::Execute),
        b"getattr" | b"fstat" => return Some(Kind::Stat),
        b"lookup" | b"access" => return Some(Kind::Lookup),
        b"readdir" | b"read_directory" | b"read-directory" | b"read directory" => return Some(Kind::ReadDirectory),
        b"mkdir" => return Some(Kind::MakeDirectory),
        b"unlink" | b"delete" | b"rmdir" => return Some(Kind::Unlink),
        b"setattr" | b"chmod" => return Some(Kind::SetAttributes),
        _ => {}
    }
    Kind::ALL.into_iter().find(|kind| {
        kind.name()
            .bytes()
            .map(|b| if b == b' ' { b'_' } else { b })
            .eq(lower.iter().map(|&b| if matches!(b, b' ' | b'-') { b'_' } else { b }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_taken_apart() {
        let of = |line: &str, separator: u8| -> Vec<String> {
            fields(line.as_bytes(), separator).iter().map(|field| String::from_utf8_lossy(field).into_owned()).collect()
        };
        assert_eq!(of("a, b ,,c\r\n", b','), ["a", "b", "", "c"]);
        assert_eq!(of("\"a,\"\"b\"\"\" , c,\"\"", b','), ["a,\"b\"", "c", ""]);
        assert_eq!(of("\"open,b", b','), ["open,b"]);
        assert_eq!(of("  a \t b  ", b' '), ["a", "b"]);
        assert_eq!(of("a\tb c\t", b'\t'), ["a", "b c"]);
    }

    #[test]
    fn numbers_are_exact() {
        for (text, unit, value) in [
            ("1255.123456789", 1_000_000_000, Some(1_255_123_456_789)),
            ("1455592451.100000001", 1_000_000_000, Some(1_455_592_451_100_000_001)),
            ("0.1234567890123456789012", 1_000_000_000, Some(123_456_789)),
            (".5", 1000, Some(500)),
            ("5.", 512, Some(2560)),
            ("1.5e3", 10, Some(15_000)),
            ("18446744073709551615", 1, Some(u64::MAX)),
            ("18446744073709551615", 2, None),
            ("18446744073709551616", 1, None),
            ("-1", 1, None),
            ("", 1, None),
            (".", 1, None),
            ("1.x", 1, None),
            ("1e999", 1, None),
            ("nan", 1, None),
        ] {
            assert_eq!(scaled(text.as_bytes(), unit), value, "{text}");
        }
    }

    #[test]
    fn every_kind_can_be_written() {
        for known in Kind::ALL {
            assert_eq!(kind(known.name().to_uppercase().as_bytes()), Some(known));
            // The words of documents are those that METHOD.md promises.
            let word = serde_json::to_value(known).unwrap();
            assert_eq!(kind(word.as_str().unwrap().as_bytes()), Some(known), "{word}");
        }
        for (word, known) in [("WS", Kind::Write), ("list-directory", Kind::ReadDirectory), ("Flush", Kind::Sync)] {
            assert_eq!(kind(word.as_bytes()), Some(known));
        }
        assert_eq!((kind(b""), kind(&[b'r'; 100]), kind(b"rw")), (None, None, None));
    }
}
