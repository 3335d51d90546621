//! The report of fprof, the profiler of pcircle (<https://github.com/olcf/pcircle>): its table "Fileset Histogram", as
//! `gen_histogram` in `pcircle/fprof.py` prints it, or as its manual page shows it for older versions. (What `fprof
//! --perfile` writes is a list of sizes.)
//!
//! A row has `<=`, `<` or, in the last, `>`, a bound, the number of files from the bound before on, and perhaps the sum
//! of their sizes, with two decimals; then shares, which are not read. Of sparse files fprof takes what is allocated.

use super::rounded::{factor, rounded};
use super::{Listed, lines};
use crate::units::{escape, format_count, format_size};

/// How the table begins, in lower case.
const TITLE: &[u8] = b"fileset histogram";
/// How far above the last bound files are assumed to be, if the sum of their sizes does not say.
const ASSUMED_FACTOR: u64 = 4;

/// Where a row ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bound {
    UpTo,
    Below,
    Above,
}

struct FileRow {
    bound: Bound,
    bytes: u64,
    count: u64,
    sum_bytes: Option<u64>,
}

fn is_title(line: &[u8]) -> bool {
    line.get(..TITLE.len()).is_some_and(|head| head.eq_ignore_ascii_case(TITLE))
}

pub(super) fn looks_like(text: &[u8]) -> bool {
    lines(text).any(|(_, line)| is_title(line))
}

pub(super) fn read(text: &[u8]) -> Result<Listed, String> {
    let mut listed = Listed::new();
    let mut low = 0;
    let mut is_over = false;
    for row in rows(text)? {
        if is_over || row.bytes.checked_add(1).is_none_or(|next| next < low) {
            return Err("the bounds of its table do not rise".to_owned());
        }
        let (from, high) = match row.bound {
            Bound::UpTo => (low, row.bytes),
            Bound::Below => (low, row.bytes.saturating_sub(1)),
            Bound::Above => (low, above(&mut listed, low, &row)),
        };
        is_over = row.bound == Bound::Above;
        if row.count > 0 {
            listed.add_range(from, high, row.count, row.sum_bytes.map(u128::from))?;
        }
        low = high.saturating_add(1);
    }
    epilogue(text, &mut listed);
    Ok(listed)
}

/// The largest size of the files above the last bound, which the report does not have.
fn above(listed: &mut Listed, low: u64, row: &FileRow) -> u64 {
    let mean = row.sum_bytes.filter(|_| row.count > 0).map_or(low, |sum| sum / row.count);
    let high = low.max(mean).saturating_mul(ASSUMED_FACTOR).min(super::MOST_FILE_BYTES);
    if row.count > 0 {
        let [low, high] = [low, high].map(|bytes| format_size(bytes.into()));
        let count = format_count(row.count.into());
        listed.warnings.push(format!("how far {count} files above {low} reach is not known: {high} is assumed"));
    }
    high
}

fn rows(text: &[u8]) -> Result<Vec<FileRow>, String> {
    let mut rows = Vec::new();
    for (number, line) in lines(text).skip_while(|(_, line)| !is_title(line)).skip(1) {
        if rows.is_empty() && line.starts_with(b"Buckets") {
            continue;
        }
        if !line.starts_with(b"<") && !line.starts_with(b">") {
            break;
        }
        let row = String::from_utf8_lossy(line);
        rows.push(row_of(&row).ok_or_else(|| {
            let shown = escape(line.get(..40).unwrap_or(line));
            format!("line {number} is no row of the table of fprof: '{shown}'")
        })?);
    }
    if rows.is_empty() { Err("its table of fprof has no rows".to_owned()) } else { Ok(rows) }
}

fn row_of(line: &str) -> Option<FileRow> {
    let mut fields = line.split_whitespace().peekable();
    let bound = match fields.next()? {
        "<=" => Bound::UpTo,
        "<" => Bound::Below,
        ">" => Bound::Above,
        _ => return None,
    };
    let bytes = size(fields.next()?, fields.next()?)?;
    let count = rounded(fields.next()?, 1)?.value;
    let number = fields.next();
    let sum_bytes = match (number, fields.next()) {
        (Some(number), Some(unit)) if !number.ends_with('%') => Some(size(number, unit)?),
        _ => None,
    };
    Some(FileRow { bound, bytes, count, sum_bytes })
}

/// A number and its unit, as in `4.00 KiB`.
fn size(number: &str, unit: &str) -> Option<u64> {
    Some(rounded(number, factor(unit.strip_suffix("iB")?, 1024)?)?.value)
}

/// Takes what the rest of the report counts.
fn epilogue(text: &[u8], listed: &mut Listed) {
    let number_of = |label: &str| {
        lines(text).find_map(|(_, line)| {
            let line = std::str::from_utf8(line).ok()?;
            let (found, number) = line.split_once(':')?;
            found.eq_ignore_ascii_case(label).then(|| rounded(number.trim(), 1).map(|number| number.value))?
        })
    };
    let bounded = |count: Option<u64>| count.unwrap_or(0).min(super::MOST_FILES);
    let counts = &mut listed.survey.counts;
    counts.directories = bounded(number_of("directory count"));
    counts.symlinks = bounded(number_of("sym links count"));
    counts.sparse_files = bounded(number_of("sparse files"));
    let files = counts.files;
    if let Some(stated) = number_of("file count").filter(|stated| *stated != files) {
        let [stated, files] = [stated, files].map(|count| format_count(count.into()));
        listed.warnings.push(format!("the report states {stated} files, and its table has {files}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::survey::measure::Measure;

    /// The sample of the manual page, from ORNL's Atlas (`man/fprof.md` in pcircle, f2521cc).
    const ATLAS: &str = include_str!("../../../tests/data/lists/fprof-atlas.txt");

    #[test]
    fn the_sample_of_the_manual_is_read() {
        assert!(looks_like(ATLAS.as_bytes()));
        let (survey, warnings) = read(ATLAS.as_bytes()).unwrap().survey();
        let sizes = survey.distributions.of(Measure::FileSize);
        assert_eq!((survey.counts.directories, survey.counts.symlinks), (35_945_074, 1_050_485));
        assert_eq!(sizes.up_to(4095).count, 19_888_046);
        assert_eq!(sizes.up_to((1 << 40) - 1).count, u128::from(survey.counts.files) - 458);
        assert!(warnings[0].contains("458"), "{warnings:?}");
        // No warning says that the stated number of files is another.
        assert_eq!((survey.counts.files, warnings.len()), (116_411_394, 1));
        let other = ATLAS.replace("116,411,394", "116,411,395");
        assert!(read(other.as_bytes()).unwrap().survey().1[1].contains("116,411,395"));
    }

    /// As the code of pcircle formats it, with sums.
    #[test]
    fn the_present_form_has_sums() {
        let row = |op: &str, bound: &str, count: &str, size: &str| {
            format!("\t{op:<3}{bound:<15}{count:<15}{size:>10}{:>15}{:>15}\n", "1.00%", "2.00%")
        };
        let head = "Fprof epilogue:\n\n\tDirectory count:         1,234               \n\tFile count:              1,110\n\n\
            Fileset Histogram\n\n\t   Buckets        Num of Files         Size       %(Files)        %(Size)\n\n";
        let rows = [
            row("<= ", "0.00 KiB", "100", "0.00 KiB"),
            row("<= ", "4.00 KiB", "1,000", "1.95 MiB"),
            row("<= ", "8.00 KiB", "0", "0.00 KiB"),
            row("> ", "8.00 KiB", "10", "1.00 GiB"),
        ];
        let text = format!("{head}{}\nTop N File Report:\n", rows.concat());
        let (survey, warnings) = read(text.as_bytes()).unwrap().survey();
        let sizes = survey.distributions.of(Measure::FileSize);
        assert_eq!((survey.counts.files, survey.counts.directories), (1110, 1234));
        assert_eq!((sizes.up_to(0).count, sizes.up_to(4096).count, sizes.up_to(8192).count), (100, 1100, 1100));
        assert_eq!(survey.size_bytes(), (195 << 20) / 100 + (1 << 30));
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        for (from, to) in [("8.00", "2.00"), ("1,000", "many"), ("4.00 KiB", "4.00 KB"), ("<= ", "=< ")] {
            assert!(read(text.replace(from, to).as_bytes()).is_err(), "{from}");
        }
        assert!(read(b"Fileset Histogram\n").is_err());
    }
}
