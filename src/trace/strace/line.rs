//! The prefix of a call in strace output: the process, and one of the time formats of strace.

use crate::trace::input::decimal;

/// Time at which a line was printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stamp {
    /// `-ttt`: nanoseconds since 1970.
    Wall(u64),
    /// `-t` and `-tt`: nanoseconds since midnight.
    OfDay(u64),
    /// `-r`: nanoseconds since the previous line.
    Since(u64),
}

/// A parsed line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Prefixed<'a> {
    /// The process, if the line has one.
    pub pid: Option<u32>,
    /// The time, if the line has one.
    pub stamp: Option<Stamp>,
    /// The call.
    pub rest: &'a [u8],
}

/// Process numbers are below this; a larger number is a time in seconds.
const MOST_PIDS: u64 = 1 << 22;
/// From 1973 on, seconds count from 1970 and not from the previous line.
const WALL_SECONDS: u64 = 100_000_000;
const NS: u64 = 1_000_000_000;

/// Parses a line. Nothing is refused: a missing part is `None`.
pub(super) fn prefixed(line: &[u8]) -> Prefixed<'_> {
    let mut rest = line.trim_ascii();
    let mut pid = None;
    if let Some(behind) = rest.strip_prefix(b"[pid") {
        let end = behind.iter().position(|&byte| byte == b']');
        if let Some(end) = end
            && let Some(number) = decimal(behind[..end].trim_ascii())
        {
            pid = u32::try_from(number).ok();
            rest = behind[end + 1..].trim_ascii_start();
        }
    } else if let Some((token, behind)) = token(rest)
        && let Some(number) = decimal(token)
        && number < MOST_PIDS
    {
        pid = Some(number as u32);
        rest = behind;
    }
    let stamp = token(rest).and_then(|(token, behind)| Some((stamp(token)?, behind)));
    match stamp {
        Some((stamp, behind)) => Prefixed { pid, stamp: Some(stamp), rest: behind },
        None => Prefixed { pid, stamp: None, rest },
    }
}

/// The first word, if it begins with a digit, and the text after it.
fn token(text: &[u8]) -> Option<(&[u8], &[u8])> {
    if !text.first()?.is_ascii_digit() {
        return None;
    }
    let end = text.iter().position(|&byte| byte == b' ')?;
    Some((&text[..end], text[end..].trim_ascii_start()))
}

fn stamp(token: &[u8]) -> Option<Stamp> {
    let (whole, fraction) = match token.iter().position(|&byte| byte == b'.') {
        Some(at) => (&token[..at], Some(&token[at + 1..])),
        None => (token, None),
    };
    let fraction_ns = match fraction {
        Some(digits) => fraction_ns(digits)?,
        None => 0,
    };
    if whole.contains(&b':') {
        let mut parts = whole.split(|&byte| byte == b':').map(decimal);
        let (hours, minutes, seconds) = (parts.next()??, parts.next()??, parts.next()??);
        if parts.next().is_some() || hours > 23 || minutes > 59 || seconds > 60 {
            return None;
        }
        return Some(Stamp::OfDay((hours * 3600 + minutes * 60 + seconds) * NS + fraction_ns));
    }
    let seconds = decimal(whole)?;
    let ns = seconds.checked_mul(NS)?.checked_add(fraction_ns)?;
    match seconds {
        WALL_SECONDS.. => Some(Stamp::Wall(ns)),
        _ => fraction.map(|_| Stamp::Since(ns)),
    }
}

/// Nanoseconds from the digits after a decimal point.
fn fraction_ns(digits: &[u8]) -> Option<u64> {
    let mut value = decimal(digits)?;
    for _ in digits.len()..9 {
        value = value.checked_mul(10)?;
    }
    for _ in 9..digits.len() {
        value /= 10;
    }
    Some(value)
}

/// `0.000123` as nanoseconds.
pub(super) fn seconds(text: &[u8]) -> Option<u64> {
    let at = text.iter().position(|&byte| byte == b'.')?;
    decimal(&text[..at])?.checked_mul(NS)?.checked_add(fraction_ns(&text[at + 1..])?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_prefix_is_seen() {
        let wall = Some(Stamp::Wall(1_700_000_000_123_456_000));
        for (line, pid, stamp) in [
            ("close(3) = 0", None, None),
            ("123 close(3) = 0", Some(123), None),
            ("[pid   123] close(3) = 0", Some(123), None),
            ("123   1700000000.123456 close(3) = 0", Some(123), wall),
            ("[pid 123] 1700000000.123456 close(3) = 0", Some(123), wall),
            ("1700000000.123456 close(3) = 0", None, wall),
            ("1700000000 close(3) = 0", None, Some(Stamp::Wall(1_700_000_000 * NS))),
            ("7 12:00:01 close(3) = 0", Some(7), Some(Stamp::OfDay(43_201 * NS))),
            ("7 12:00:01.5 close(3) = 0", Some(7), Some(Stamp::OfDay(43_201 * NS + NS / 2))),
            ("     0.000012 close(3) = 0", None, Some(Stamp::Since(12_000))),
            ("7      0.000012 close(3) = 0", Some(7), Some(Stamp::Since(12_000))),
        ] {
            let found = prefixed(line.as_bytes());
            assert_eq!((found.pid, found.stamp, found.rest), (pid, stamp, &b"close(3) = 0"[..]), "{line}");
        }
        assert_eq!(prefixed(b"[pid x] close").rest, b"[pid x] close");
        assert_eq!(prefixed(b"99:99:99 x").stamp, None);
        assert_eq!(seconds(b"0.000123"), Some(123_000));
        assert_eq!(seconds(b"99999999999999999999.1"), None);
    }
}
