//! Sizes, shares and names in the notation of people.
//!
//! Sizes are bytes in a `u64` (sums of sizes in a `u128`, so that sparse files of 8 EiB cannot overflow them). `KiB`,
//! `MiB`, … are powers of 1,024; `kB`, `MB`, … powers of 1,000; a bare `K`, `M`, … means the former. [`escape`] makes
//! any byte string printable, reversibly: see [`unescape`].

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// 1 KiB in bytes.
pub const KIB: u64 = 1 << 10;
/// 1 MiB in bytes.
pub const MIB: u64 = 1 << 20;
/// 1 GiB in bytes.
pub const GIB: u64 = 1 << 30;
/// 1 TiB in bytes.
pub const TIB: u64 = 1 << 40;

/// Seconds of a day, the unit of ages.
pub const SECONDS_A_DAY: i64 = 86_400;

/// Largest size of a "small file" by default, in bytes: the cutoff of Welch and Noer (64 KiB).
pub const SMALL_FILE_BYTES: u64 = 64 * KIB;

const BINARY_UNITS: [&str; 9] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"];

/// Parses a size: `65536`, `64KiB`, `64K` (1,024-based), `64kB` (1,000-based), `1.5GiB`; with separators `1_000_000`
/// or, as [`format_size`] prints it, `1,000 KiB`: a comma stands before three digits, for `1,5` is meant as a fraction.
/// Upper and lower case are the same, so `kb` has the base of `kB`, and `k` that of `KiB`. Spaces may stand around the
/// number. A fraction of a unit is rounded to whole bytes; there is no fraction of a byte.
///
/// # Errors
/// A sentence about the mistake, for the argument parser to print.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let invalid = || format!("'{text}' is not a size; write, for example, 65536, 64KiB, 64K (= KiB) or 64kB (= 1,000)");
    let trimmed = text.trim();
    let split = trimmed.find(|c: char| !c.is_ascii_digit() && !['.', '_', ','].contains(&c)).unwrap_or(trimmed.len());
    let (digits, suffix) = trimmed.split_at(split);
    let digits = digits.replace('_', "");
    let factor = unit_factor(suffix.trim()).ok_or_else(invalid)?;
    let (whole, fraction) = digits.split_once('.').unwrap_or((&digits, ""));
    let has_point = digits.contains('.');
    if whole.is_empty() || (has_point && (fraction.is_empty() || factor == 1)) {
        return Err(invalid());
    }
    let mut groups = whole.split(',');
    let first = groups.next().unwrap_or_default();
    if whole.contains(',') && !((1..=3).contains(&first.len()) && groups.all(|group| group.len() == 3)) {
        return Err(invalid());
    }
    let whole = whole.replace(',', "");
    let too_large = || format!("'{text}' is too large (the limit is 2^64 bytes)");
    let whole: u64 = whole.parse().map_err(|_| too_large())?;
    let mut bytes = whole.checked_mul(factor).ok_or_else(too_large)?;
    if !fraction.is_empty() {
        let fraction: f64 = format!("0.{fraction}").parse().map_err(|_| invalid())?;
        bytes = bytes.checked_add((fraction * factor as f64).round() as u64).ok_or_else(too_large)?;
    }
    Ok(bytes)
}

/// Parses a percentage, `50%` or `50`, as a fraction. A bare `0.5` is refused: it may be meant as a half.
///
/// # Errors
/// A sentence about the mistake, for the argument parser to print.
pub fn parse_percent(text: &str) -> Result<f64, String> {
    let trimmed = text.trim();
    let number = trimmed.strip_suffix('%').map(str::trim_end);
    match number.unwrap_or(trimmed).parse::<f64>() {
        Ok(percent) if number.is_none() && percent > 0.0 && percent < 1.0 => {
            // 0.07 times 100 is 7, and a rounding error more.
            let of_fraction = (percent * 1e12).round() / 1e10;
            Err(format!("'{text}' may be a percentage or a fraction; write {of_fraction}% or {text}%"))
        }
        Ok(percent) if (0.0..=1e6).contains(&percent) => Ok(percent / 100.0),
        _ => Err(format!("'{text}' is not a percentage; write, for example, 50%")),
    }
}

fn unit_factor(suffix: &str) -> Option<u64> {
    let lower = suffix.to_ascii_lowercase();
    if lower.is_empty() || lower == "b" {
        return Some(1);
    }
    let power = 1 + "kmgtpe".find(lower.chars().next()?)? as u32;
    match &lower[1..] {
        "" | "ib" => Some(1 << (10 * power)),
        "b" => Some(1000u64.pow(power)),
        _ => None,
    }
}

/// Formats a size: `0 B`, `512 B`, `64 KiB`, `1.50 MiB`, `1,023 MiB`, at most four digits.
pub fn format_size(bytes: u128) -> String {
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < BINARY_UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    // 1,023.99 would round up to "1024": take the next unit instead.
    if value >= 999.5 && unit > 0 && unit + 1 < BINARY_UNITS.len() && value.round() >= 1024.0 {
        value /= 1024.0;
        unit += 1;
    }
    let exact = unit == 0 || bytes.is_multiple_of(1u128 << (10 * unit as u32));
    let digits = match value {
        _ if exact => 0,
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        _ => 2,
    };
    let number = if value >= 999.5 { format_count(value.round() as u128) } else { format!("{value:.digits$}") };
    format!("{number} {}", BINARY_UNITS[unit])
}

/// Formats a whole number with a comma at every thousand: `1,234,567`.
pub fn format_count(count: u128) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a count with its noun: `1 file`, `1,234 files`.
pub fn format_counted(count: impl Into<u128>, one: &str, many: &str) -> String {
    let count = count.into();
    format!("{} {}", format_count(count), if count == 1 { one } else { many })
}

/// Formats a share in per cent: `12.3 %`; `<0.1 %` and `>99.9 %` if rounding would hide that it is neither 0 nor all.
pub fn format_share(fraction: f64) -> String {
    let percent = fraction * 100.0;
    if !percent.is_finite() {
        "–".to_owned()
    } else if percent > 0.0 && percent < 0.05 {
        "<0.1 %".to_owned()
    } else if (99.95..100.0).contains(&percent) {
        ">99.9 %".to_owned()
    } else if percent >= 1000.0 {
        format!("{} %", format_count(percent.round() as u128))
    } else {
        // No negative zero.
        let percent = if percent > -0.05 && percent < 0.0 { 0.0 } else { percent };
        format!("{percent:.1} %")
    }
}

/// Formats a time: `830 ns`, `18.5 µs`, `1.23 ms`, `12.3 s`, `1,234 s`, at least three digits.
pub fn format_duration(seconds: f64) -> String {
    if seconds >= 999.5 {
        return format!("{} s", format_count(seconds.round() as u128));
    }
    // A time that would round up to 1,000 of a unit is 1 of the next.
    let units = [(1e-9, "ns"), (1e-6, "µs"), (1e-3, "ms")];
    let (unit, name) = units.into_iter().find(|(unit, _)| seconds < 999.5 * unit).unwrap_or((1.0, "s"));
    let value = seconds / unit;
    let digits = match value {
        _ if name == "ns" => 0,
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.digits$} {name}")
}

/// Year, month, day, hour, minute and second, in UTC, of any number of seconds since 1970.
///
/// The calendar is the proleptic Gregorian one; days become dates as in `civil_from_days` of Howard Hinnant
/// ("chrono-Compatible Low-Level Date Algorithms", 2013), which counts years from March so that the leap day is the
/// last. An era is 400 years. Own code because time stamps of files reach beyond the year 9999, where libraries (jiff,
/// humantime) end.
pub fn civil(seconds: i64) -> (i64, i64, i64, i64, i64, i64) {
    const DAYS_IN_400_YEARS: i64 = 146_097;
    /// Days from 1 March of the year 0 to 1 January 1970.
    const DAYS_BEFORE_1970: i64 = 719_468;
    let days = seconds.div_euclid(SECONDS_A_DAY) + DAYS_BEFORE_1970;
    let of_day = seconds.rem_euclid(SECONDS_A_DAY);
    let day_of_era = days.rem_euclid(DAYS_IN_400_YEARS);
    // Without its leap days, an era is 400 years of 365 days.
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + days.div_euclid(DAYS_IN_400_YEARS) * 400 + i64::from(month <= 2);
    (year, month, day, of_day / 3600, of_day / 60 % 60, of_day % 60)
}

/// Formats a time, in seconds since 1970, as `2026-11-22 13:51:35 UTC`.
pub fn format_time(seconds: i64) -> String {
    let (year, month, day, hour, minute, second) = civil(seconds);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// `part / whole`, and 0 if the whole is 0.
pub fn fraction(part: u128, whole: u128) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Makes bytes printable on any terminal and page, reversibly.
///
/// Valid UTF-8 stays unchanged, except the backslash (`\\`), control characters (`\n`, `\x1b`), invalid bytes (`\xff`),
/// and characters that change the direction or visibility of text (`\u{202e}`).
pub fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => text.push_str("\\\\"),
                '\n' => text.push_str("\\n"),
                '\r' => text.push_str("\\r"),
                '\t' => text.push_str("\\t"),
                '\0'..='\x1f' | '\x7f' => text.push_str(&format!("\\x{:02x}", c as u32)),
                _ if is_deceptive(c) => text.push_str(&format!("\\u{{{:x}}}", c as u32)),
                _ => text.push(c),
            }
        }
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

/// Whether [`escape`] leaves a character as it is, or it is the backslash.
pub fn is_printable(c: char) -> bool {
    !matches!(c, '\0'..='\x1f' | '\x7f') && !is_deceptive(c)
}

/// C1 controls, line separators, zero-width and bidirectional characters, tags and interlinear marks.
fn is_deceptive(c: char) -> bool {
    matches!(c,
        '\u{80}'..='\u{9f}' | '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// The bytes that [`escape`] turned into `text`; `None` if there are none.
pub fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        bytes.extend_from_slice(&rest.as_bytes()[..at]);
        let escaped = &rest[at + 1..];
        let (byte, used): (&[u8], usize) = match escaped.as_bytes().first()? {
            b'\\' => (b"\\", 1),
            b'n' => (b"\n", 1),
            b'r' => (b"\r", 1),
            b't' => (b"\t", 1),
            b'x' => {
                bytes.push(u8::from_str_radix(escaped.get(1..3)?, 16).ok()?);
                (b"", 3)
            }
            b'u' => {
                let end = escaped.find('}')?;
                let c = char::from_u32(u32::from_str_radix(escaped.get(2..end)?, 16).ok()?)?;
                bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                (b"", end + 1)
            }
            _ => return None,
        };
        bytes.extend_from_slice(byte);
        rest = &escaped[used..];
    }
    bytes.extend_from_slice(rest.as_bytes());
    Some(bytes)
}

/// [`escape`] for a path.
pub fn escape_path(path: &Path) -> String {
    escape(path.as_os_str().as_bytes())
}

/// The path that [`escape_path`] turned into `text`.
pub fn unescape_path(text: &str) -> Option<std::path::PathBuf> {
    Some(Path::new(OsStr::from_bytes(&unescape(text)?)).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn times_are_of_the_civil_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (-1, "1969-12-31 23:59:59 UTC"),
            (951_782_399, "2000-02-28 23:59:59 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
            (1_795_355_495, "2026-11-22 13:51:35 UTC"),
            (253_402_300_800, "10000-01-01 00:00:00 UTC"),
            (-62_167_219_201, "-001-12-31 23:59:59 UTC"),
            (i64::MAX, "292277026596-12-04 15:30:07 UTC"),
            (i64::MIN, "-292277022657-01-27 08:29:52 UTC"),
        ] {
            assert_eq!(format_time(seconds), text);
        }
    }

    #[test]
    fn sizes_are_read_in_both_bases() {
        for (text, bytes) in [
            ("0", 0),
            ("65536", 65536),
            ("64KiB", 65536),
            ("64K", 65536),
            ("64k", 65536),
            ("64kB", 64000),
            ("64 KB", 64000),
            ("64kb", 64000),
            (" 64 kib ", 65536),
            ("7b", 7),
            ("1.5GiB", 1610612736),
            ("0.1K", 102),
            ("1_000", 1000),
            ("1,023 B", 1023),
            ("1,000 PiB", 1000 << 50),
            ("1,234,567.5K", 1_264_197_120),
            ("16E", 0),
        ] {
            if text == "16E" {
                assert!(parse_size(text).unwrap_err().contains("too large"));
            } else {
                assert_eq!(parse_size(text), Ok(bytes), "{text}");
            }
        }
        for text in [
            "",
            "_",
            "K",
            "12Q",
            "1.",
            ".5",
            "1.5",
            "1.0B",
            "1.5.5K",
            "1 000",
            "-1",
            "1e3",
            "0x10",
            "64KiBs",
            "é",
            "1,5K",
            ",",
            ",000",
            "1,",
            "1000,000",
            "1,0000",
            "1,,000",
            "1.500,000K",
        ] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn shares_are_read_in_per_cent() {
        for (text, share) in [("50%", 0.5), ("50", 0.5), ("0", 0.0), ("7.5 %", 0.075), ("300%", 3.0)] {
            assert_eq!(parse_percent(text), Ok(share));
        }
        assert!(parse_percent("0.75").unwrap_err().contains("write 75% or 0.75%"));
        assert!(parse_percent("0.07").unwrap_err().contains("write 7% or 0.07%"));
        for text in ["", "%", "-1", "x", "NaN", "inf", "1e9", "50%%"] {
            assert!(parse_percent(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_printed_short() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1,023 B"),
            (65536, "64 KiB"),
            (1536, "1.50 KiB"),
            (1048575, "1.00 MiB"),
            (2297807503, "2.14 GiB"),
            (u128::from(u64::MAX), "16.0 EiB"),
        ] {
            assert_eq!(format_size(bytes), text);
        }
    }

    #[test]
    fn shares_do_not_hide_small_parts() {
        assert_eq!(format_share(0.0), "0.0 %");
        assert_eq!(format_share(0.00001), "<0.1 %");
        assert_eq!(format_share(0.99999), ">99.9 %");
        assert_eq!(format_share(1.0), "100.0 %");
        assert_eq!(format_count(1234567), "1,234,567");
    }

    #[test]
    fn times_have_three_digits() {
        for (seconds, text) in [
            (0.0, "0 ns"),
            (8.3e-7, "830 ns"),
            (9.996e-7, "1.00 µs"),
            (1.846e-5, "18.5 µs"),
            (0.001234, "1.23 ms"),
            (0.9996, "1.00 s"),
            (10.4, "10.4 s"),
            (99.96, "100 s"),
            (210.0, "210 s"),
            (10_800.0, "10,800 s"),
        ] {
            assert_eq!(format_duration(seconds), text);
        }
    }

    #[test]
    fn nothing_dangerous_survives_escaping() {
        assert_eq!(escape(b"a\x1b]0;x\x07\n\xff\\"), "a\\x1b]0;x\\x07\\n\\xff\\\\");
        assert_eq!(escape("\u{202e}gpj.exe é".as_bytes()), "\\u{202e}gpj.exe é");
    }

    proptest! {
        #[test]
        fn escaping_is_reversible(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let text = escape(&bytes);
            prop_assert!(text.chars().all(|c| !c.is_control()));
            prop_assert_eq!(unescape(&text), Some(bytes));
        }

        #[test]
        fn printed_sizes_read_back_within_a_percent(bytes in any::<u64>(), shift in 0u32..64) {
            // Of every scale: of uniform numbers, one in 650 has four digits when printed.
            let bytes = bytes >> shift;
            if let Ok(back) = parse_size(&format_size(u128::from(bytes))) {
                let error = (back as f64 - bytes as f64).abs() / (bytes.max(1) as f64);
                prop_assert!(error <= 0.006);
            } else {
                prop_assert!(bytes > u64::MAX - (1 << 57));
            }
        }
    }
}
