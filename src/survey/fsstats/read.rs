//! An fsstats CSV as lines: finds header lines and histograms, and checks every number. [`super::fill`] interprets
//! them.
//!
//! fsstats, its forks and the scripts that merge its files agree on the lines but not on their order, so any order is
//! accepted. Text around the CSV, and unknown or repeated histograms, are skipped with a warning. Work is bounded by
//! [`MAX_BYTES`] and [`MAX_ROWS`].

use std::time::UNIX_EPOCH;

use super::{HISTOGRAMS, KB};
use crate::units::escape;

/// The longest file that is accepted: a thousand times what fsstats writes.
pub const MAX_BYTES: usize = 16 << 20;

/// How much of a file is examined to recognise it.
const RECOGNISED_WITHIN: usize = 64 << 10;

/// The most rows of a histogram; fsstats has at most 64.
const MAX_ROWS: usize = 256;

/// Whether `text` may be an fsstats CSV: a line near its beginning starts a histogram.
pub fn looks_like(text: &[u8]) -> bool {
    let beginning = text.get(..RECOGNISED_WITHIN).unwrap_or(text);
    beginning.split(|&byte| byte == b'\n').any(|line| line.trim_ascii_start().starts_with(b"histogram,"))
}

/// What the lines of a file contain.
#[derive(Default)]
pub(super) struct Parsed {
    pub taken_at: Option<i64>,
    pub special: u64,
    pub hard_links_skipped: u64,
    pub snapshot_directories_skipped: u64,
    pub relative_symlinks: Option<f64>,
    pub absolute_symlinks: Option<f64>,
    /// One for each of [`HISTOGRAMS`] that the file has.
    pub sections: [Option<Section>; HISTOGRAMS.len()],
    /// Whether the file ends without ending its last line.
    pub cut: bool,
    /// The histogram that the file ends in.
    pub last: Option<usize>,
    /// Number of histograms found, known or not.
    pub found: usize,
}

/// A histogram as in the file.
#[derive(Default)]
pub(super) struct Section {
    pub line: usize,
    pub count: Option<Number>,
    pub min: Option<Number>,
    pub max: Option<Number>,
    /// The unit of `min` and `max` that the file states, in bytes, where it is a unit of size.
    pub scale: Option<u64>,
    pub rows: Vec<HistogramRow>,
    columns: Columns,
    /// Whether its last row lacks columns or cannot be read.
    pub torn: bool,
}

/// A row of a histogram.
pub(super) struct HistogramRow {
    pub line: usize,
    /// `None`: everything below the smallest bucket.
    pub first: Option<Number>,
    /// `None`: everything above `first`.
    pub last: Option<Number>,
    pub count: Number,
    pub value: Option<Number>,
}

/// Positions of the columns in a row.
#[derive(Clone, Copy)]
struct Columns {
    first: usize,
    last: usize,
    count: usize,
    value: Option<usize>,
    /// Number of columns, where the file states it.
    all: usize,
}

impl Default for Columns {
    fn default() -> Columns {
        Columns { first: 0, last: 1, count: 2, value: Some(5), all: 0 }
    }
}

impl Columns {
    fn of(names: &[&str]) -> Columns {
        let position = |name: &str| names.iter().position(|field| field.eq_ignore_ascii_case(name));
        let standard = Columns::default();
        Columns {
            first: position("bucket min").unwrap_or(standard.first),
            last: position("bucket max").unwrap_or(standard.last),
            count: position("count").unwrap_or(standard.count),
            value: position("val count"),
            all: names.len(),
        }
    }
}

/// An exact decimal number that is not negative.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Number {
    digits: u128,
    /// Number of digits after the decimal point.
    decimals: u32,
}

impl Number {
    /// `None` for a missing number: an empty field, or `-`.
    fn read(field: &str) -> std::result::Result<Option<Number>, String> {
        if field.is_empty() || field == "-" {
            return Ok(None);
        }
        let wrong = |what: &str| Err(format!("'{}' {what}", shown(field)));
        let (whole, fraction) = field.split_once('.').unwrap_or((field, ""));
        let plain = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
        if !whole.is_empty() && plain(whole) && plain(fraction) {
            // Nine decimals of a kilobyte are far below a byte.
            let fraction = fraction.get(..9).unwrap_or(fraction);
            return match format!("{whole}{fraction}").parse() {
                Ok(digits) => Ok(Some(Number { digits, decimals: fraction.len() as u32 })),
                Err(_) => wrong("is too large"),
            };
        }
        // Perl prints numbers from 1e+15 like that.
        match field.parse::<f64>() {
            Ok(value) if value.is_nan() || value.is_infinite() => wrong("is not a number"),
            Ok(value) if value < 0.0 => wrong("is negative"),
            Ok(value) if value < 1e30 => Ok(Some(Number { digits: (value * 1e6).round() as u128, decimals: 6 })),
            Ok(_) => wrong("is too large"),
            Err(_) => wrong("is not a number"),
        }
    }

    /// The number times `scale`, rounded to the nearest; `None` on overflow.
    pub(super) fn times(self, scale: u64) -> Option<u128> {
        let one = 10u128.pow(self.decimals);
        let (whole, rest) = (self.digits / one, self.digits % one);
        whole.checked_mul(scale.into())?.checked_add((rest * u128::from(scale) + one / 2) / one)
    }

    /// The number, in units of 1/`scale`, if it is at most 2^53.
    pub(super) fn count(self, scale: u64) -> Option<u64> {
        self.times(scale).and_then(|count| u64::try_from(count).ok()).filter(|&count| count <= 1 << 53)
    }
}

/// Parses the lines.
#[derive(Default)]
pub(super) struct Parser {
    parsed: Parsed,
    /// The histogram whose lines follow, if it is to be read.
    section: Option<(usize, Section)>,
    /// Whether the lines that follow belong to a skipped histogram.
    skipping: bool,
    warnings: Vec<String>,
    not_understood: Option<(usize, usize)>,
}

impl Parser {
    pub(super) fn parse(text: &[u8]) -> std::result::Result<(Parsed, Vec<String>), String> {
        let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
        let mut parser = Parser::default();
        let mut lines = text.split(|&byte| byte == b'\n').enumerate().peekable();
        while let Some((index, line)) = lines.next() {
            // What follows the last line end is not a line unless it has text.
            let unfinished = lines.peek().is_none() && !line.is_empty();
            parser.parsed.cut = unfinished;
            let line = String::from_utf8_lossy(line);
            let line = line.trim();
            if line.contains("END CSV") || line.contains("BEGIN NORMAL") {
                parser.close();
                parser.parsed.last = None;
                break;
            }
            if line.contains("BEGIN CSV") {
                parser = Parser::default();
                continue;
            }
            parser.parse_line(index + 1, line, unfinished).map_err(|cause| format!("line {}: {cause}", index + 1))?;
        }
        parser.close();
        if let Some((first, count)) = parser.not_understood {
            let others = if count > 1 { format!(" and {} others", count - 1) } else { String::new() };
            parser.warnings.push(format!("line {first}{others} cannot be parsed and is skipped"));
        }
        Ok((parser.parsed, parser.warnings))
    }

    /// Ends the histogram whose lines were read so far.
    fn close(&mut self) {
        if let Some((kind, section)) = self.section.take()
            && let Some(place) = self.parsed.sections.get_mut(kind)
        {
            *place = Some(section);
            self.parsed.last = Some(kind);
        }
        self.skipping = false;
    }

    /// One line, numbered from 1; `unfinished` if the file ends in it.
    fn parse_line(&mut self, number: usize, line: &str, unfinished: bool) -> std::result::Result<(), String> {
        if line.is_empty() {
            return Ok(());
        }
        if let Some(comment) = line.strip_prefix('#') {
            self.parsed.taken_at = self.parsed.taken_at.or_else(|| date_in(comment));
            return Ok(());
        }
        let fields: Vec<&str> = line.split(',').map(str::trim).take(64).collect();
        let key = fields.first().copied().unwrap_or_default();
        let argument = fields.get(1).copied().unwrap_or_default();
        if key == "histogram" {
            self.start_histogram(number, argument);
            return Ok(());
        }
        let numeric = key.starts_with(|first: char| first.is_ascii_digit() || first == '-');
        // A line of a histogram that is skipped.
        if self.skipping && (numeric || ["count", "average", "min", "max", "bucket min"].contains(&key)) {
            return Ok(());
        }
        if let Some((_, section)) = &mut self.section {
            match key {
                "count" => section.count = Number::read(argument)?,
                "average" => {}
                "min" | "max" => {
                    // The least age is negative where a clock was wrong; such an age counts as 0.
                    let negative = key == "min" && argument.len() > 1 && argument.starts_with('-');
                    let bound = Number::read(if negative { "0" } else { argument })?;
                    section.scale = fields.get(2).and_then(|unit| bytes_of(unit)).or(section.scale);
                    *(if key == "min" { &mut section.min } else { &mut section.max }) = bound;
                }
                "bucket min" => section.columns = Columns::of(&fields),
                _ if numeric => return section.row(number, &fields, unfinished),
                _ => return self.parse_header(number, key, argument, unfinished),
            }
            return Ok(());
        }
        self.parse_header(number, key, argument, unfinished)
    }

    fn start_histogram(&mut self, number: usize, name: &str) {
        self.close();
        self.parsed.found += 1;
        let shown = shown(name);
        match HISTOGRAMS.iter().position(|histogram| histogram.name.eq_ignore_ascii_case(name)) {
            Some(kind) if matches!(self.parsed.sections.get(kind), Some(None)) => {
                self.section = Some((kind, Section { line: number, ..Section::default() }));
            }
            known => {
                self.skipping = true;
                self.parsed.last = None;
                let why = if known.is_some() { "is repeated" } else { "is unknown" };
                self.warn(format!("line {number}: the histogram '{shown}' {why}; it is skipped"));
            }
        }
    }

    /// A line outside histograms; closes the open one.
    fn parse_header(
        &mut self,
        number: usize,
        key: &str,
        argument: &str,
        unfinished: bool,
    ) -> std::result::Result<(), String> {
        if self.section.is_some() {
            self.close();
            self.parsed.last = None;
        }
        match key {
            "skipped special files" => self.parsed.special = whole(argument)?,
            "skipped duplicate hardlinks" => self.parsed.hard_links_skipped = whole(argument)?,
            "skipped snapshot dirs" => self.parsed.snapshot_directories_skipped = whole(argument)?,
            "relative symlink target pct" => self.parsed.relative_symlinks = share(argument)?,
            "absolute symlink target pct" => self.parsed.absolute_symlinks = share(argument)?,
            // Rounded to two decimals of their unit: the histograms have the sums exactly.
            "total capacity used" | "total user data" | "percent overhead" | "Filesystem total" | "Filesystem used" => {
            }
            // fsstats prints its progress before the CSV.
            _ if self.parsed.found == 0 || unfinished => {}
            _ => {
                self.not_understood = Some(self.not_understood.map_or((number, 1), |(first, count)| (first, count + 1)))
            }
        }
        Ok(())
    }

    fn warn(&mut self, warning: String) {
        const MOST: usize = 50;
        match self.warnings.len() {
            0..MOST => self.warnings.push(warning),
            MOST => self.warnings.push("further histograms are also skipped".to_owned()),
            _ => {}
        }
    }
}

impl Section {
    fn row(&mut self, line: usize, fields: &[&str], unfinished: bool) -> std::result::Result<(), String> {
        if unfinished && fields.len() < self.columns.all {
            self.torn = true;
            return Ok(());
        }
        if self.rows.len() >= MAX_ROWS {
            return Err(format!("the histogram has more than {MAX_ROWS} rows"));
        }
        let field = |column: usize| fields.get(column).copied().unwrap_or_default();
        let bound = |column: usize| match field(column) {
            "-1" => Ok(None),
            text => Number::read(text)?.map(Some).ok_or_else(|| "a bound of the bucket is missing".to_owned()),
        };
        let (first, last) = (bound(self.columns.first)?, bound(self.columns.last)?);
        let count = Number::read(field(self.columns.count))?.ok_or("the count of the bucket is missing")?;
        // Only negative ages can be below the smallest bucket; they are counted as 0.
        let value = match (first, self.columns.value) {
            (None, _) | (_, None) => None,
            (Some(_), Some(column)) => Number::read(field(column))?,
        };
        self.rows.push(HistogramRow { line, first, last, count, value });
        Ok(())
    }
}

fn whole(field: &str) -> std::result::Result<u64, String> {
    match Number::read(field)? {
        None => Ok(0),
        Some(number) => number.count(1).ok_or_else(|| format!("'{}' is too large", shown(field))),
    }
}

fn share(field: &str) -> std::result::Result<Option<f64>, String> {
    Ok(Number::read(field)?.and_then(|share| share.times(1_000_000)).map(|share| share as f64 / 1e6))
}

/// The beginning of a field, for a message.
fn shown(field: &str) -> String {
    let beginning: String = field.chars().take(60).collect();
    escape(beginning.as_bytes())
}

/// Bytes in a unit of size, as fsstats means it.
fn bytes_of(unit: &str) -> Option<u64> {
    match unit.to_ascii_uppercase().as_str() {
        "B" | "BYTES" => Some(1),
        "KB" => Some(KB),
        "MB" => Some(KB * KB),
        "GB" => Some(KB * KB * KB),
        "TB" => Some(KB * KB * KB * KB),
        _ => None,
    }
}

/// The date in parentheses that granulo writes into its first line, in seconds since 1970.
fn date_in(comment: &str) -> Option<i64> {
    let date = comment.strip_prefix("Generated by granulo ")?.split_once('(')?.1.strip_suffix(')')?;
    let since_1970 = humantime::parse_rfc3339(date).ok()?.duration_since(UNIX_EPOCH).ok()?;
    i64::try_from(since_1970.as_secs()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_exactly_or_refused() {
        let times = |field: &str, scale| Number::read(field).unwrap().unwrap().times(scale);
        assert_eq!(times("2.249023", 1024), Some(2303));
        assert_eq!(times("9007199254740993.000977", 1024), Some(9_007_199_254_740_993 * 1024 + 1));
        assert_eq!(times("1.5e+15", 1024), Some(1_500_000_000_000_000 * 1024));
        assert_eq!(times("340282366920938463463374607431768211455", 1024), None);
        assert_eq!((Number::read("-"), Number::read("")), (Ok(None), Ok(None)));
        let too_long = "9".repeat(60);
        for field in ["nan", "-2", "1e40", "inf", "12x", "1.2.3", ".", "0x10", "é", too_long.as_str()] {
            assert!(Number::read(field).is_err(), "{field}");
        }
    }

    #[test]
    fn an_fsstats_csv_is_recognised_by_its_histograms() {
        assert!(looks_like(b"noise\r\n histogram,file size\r\n"));
        assert!(!looks_like(b"{\"schema\": \"granulo/survey/1\"}\n"));
        assert!(!looks_like(b""));
    }
}
