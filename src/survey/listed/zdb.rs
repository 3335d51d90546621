//! The table "Block Size Histogram" that `zdb -bbbs POOL` (any `zdb` with `-bb` or more, OpenZFS 2.0 and later) prints
//! after its other statistics, with numbers for people (`833K`; counts, too, are in powers of 1,024) or, with `-P`,
//! exact ones. The form is that of `dump_size_histograms` in OpenZFS, `cmd/zdb/zdb.c`.
//!
//! A row has a power of two, and for the physical, the logical and the allocated size of blocks their count, the sum of
//! their sizes and the sum so far. The logical sizes are read: what files wrote. Up to OpenZFS 2.3 a row is of blocks
//! from its size on, below the next; later ones of blocks up to its size. The means of the rows show which.
//!
//! These are blocks of all kinds, metadata included, and not files: a file is one block up to its record size, and
//! many blocks beyond.

use super::rounded::with_letter;
use super::{Listed, lines};
use crate::units::escape;

const TITLE: &[u8] = b"Block Size Histogram";
/// Columns of the logical sizes, after the size of the row and the physical ones.
const LOGICAL_COUNT: usize = 4;
/// Columns of a row.
const COLUMNS: usize = 10;

/// A row: its power of two, and count and sum of logical sizes.
struct BlockRow {
    size_bytes: u64,
    count: u64,
    sum_bytes: u64,
}

pub(super) fn looks_like(text: &[u8]) -> bool {
    lines(text).any(|(_, line)| line == TITLE)
}

pub(super) fn read(text: &[u8]) -> Result<Listed, String> {
    let rows = rows(text)?;
    let is_from = rows_are_from(&rows)?;
    let mut listed = Listed::new();
    listed.of = Some("blocks of a ZFS pool");
    for BlockRow { size_bytes, count, sum_bytes } in rows.into_iter().filter(|row| row.count > 0) {
        let (low, high) = if is_from { (size_bytes, 2 * size_bytes - 1) } else { (size_bytes / 2 + 1, size_bytes) };
        listed.add_range(low, high, count, Some(sum_bytes.into()))?;
    }
    listed.warnings.push(
        "it has blocks of a ZFS pool by their logical size, metadata included, and not files: a file larger than its \
         record size counts as many"
            .to_owned(),
    );
    Ok(listed)
}

/// The rows of the table.
fn rows(text: &[u8]) -> Result<Vec<BlockRow>, String> {
    let mut rows = Vec::new();
    for (number, line) in lines(text).skip_while(|(_, line)| *line != TITLE).skip(1) {
        if let Some(note) = line.strip_prefix(b"(note: all categories are binned by ") {
            if !note.starts_with(b"lsize") {
                return Err("its rows are not by logical size: run zdb without --bin, or with --bin=lsize".to_owned());
            }
            continue;
        }
        let is_head = [&b"(note:"[..], b"block", b"size"].iter().any(|head| line.starts_with(head));
        if rows.is_empty() && is_head {
            continue;
        }
        if !line[0].is_ascii_digit() {
            break;
        }
        let wrong = || {
            let shown = escape(line.get(..40).unwrap_or(line));
            format!("line {number} is no row of the table of block sizes: '{shown}'")
        };
        let row = std::str::from_utf8(line).ok().and_then(row).ok_or_else(wrong)?;
        if rows.last().is_some_and(|last: &BlockRow| last.size_bytes >= row.size_bytes) {
            return Err(wrong());
        }
        rows.push(row);
    }
    if rows.is_empty() { Err("its table of block sizes has no rows".to_owned()) } else { Ok(rows) }
}

fn row(line: &str) -> Option<BlockRow> {
    let fields: Vec<u64> = line
        .split_whitespace()
        .enumerate()
        .map(|(column, field)| if column == 0 { field.strip_suffix(':').unwrap_or(field) } else { field })
        .map(|field| Some(with_letter(field, 1024)?.value))
        .collect::<Option<_>>()?;
    let size_bytes = *fields.first().filter(|size| size.is_power_of_two() && **size <= 1 << 62)?;
    (fields.len() == COLUMNS).then_some(())?;
    Some(BlockRow { size_bytes, count: fields[LOGICAL_COUNT], sum_bytes: fields[LOGICAL_COUNT + 1] })
}

/// Whether rows are of blocks from their size on, and not of blocks up to it. Of blocks of exactly that size alone
/// both are true.
fn rows_are_from(rows: &[BlockRow]) -> Result<bool, String> {
    // Count and sum have three digits.
    const DIGITS: f64 = 0.02;
    let (mut from, mut up_to) = (false, false);
    for row in rows.iter().filter(|row| row.count > 0) {
        let relative = row.sum_bytes as f64 / row.count as f64 / row.size_bytes as f64;
        if !(0.5 - DIGITS..2.0 + DIGITS).contains(&relative) {
            return Err(format!("the sum of the blocks in the row {} contradicts their count", row.size_bytes));
        }
        from |= relative > 1.0 + DIGITS;
        up_to |= relative < 1.0 - DIGITS;
    }
    if from && up_to { Err("its rows contradict each other".to_owned()) } else { Ok(!up_to) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::survey::measure::Measure;

    /// The table that a user of a large pool posted, after other lines of `zdb`
    /// (<https://forum.level1techs.com/t/zfs-metadata-special-device-z/159954/94>).
    const POSTED: &str = include_str!("../../../tests/data/lists/zdb-level1techs.txt");

    #[test]
    fn a_posted_table_gives_its_logical_sizes() {
        assert!(looks_like(POSTED.as_bytes()));
        let (survey, warnings) = read(POSTED.as_bytes()).unwrap().survey();
        assert!(warnings[0].contains("not files"));
        let sizes = survey.distributions.of(Measure::FileSize);
        let printed = |text| u128::from(with_letter(text, 1024).unwrap().value);
        // What is below 128 KiB: the rows from 512 to 64K.
        let rows = ["833K", "1.04M", "889K", "963K", "1.61M", "2.15M", "802K", "1.01M"];
        assert_eq!(sizes.up_to((128 << 10) - 1).count, rows.iter().map(|row| printed(row)).sum());
        // The last sum so far, to three digits.
        let total = survey.size_bytes() as f64 / (1_u64 << 40) as f64;
        assert!((total - 82.6).abs() < 0.1, "{total}");
    }

    #[test]
    fn later_versions_and_exact_numbers_are_read() {
        let text = "\nBlock Size Histogram\n(note: all categories are binned separately)\n\n\
            block\tpsize\t\t\tlsize\t\t\t  asize\n\
            size\tCount\tSize\tCum.\tCount\tSize\tCum.\tCount\tSize\tCum.\t\n\
            512\t9\t4608\t4608\t0\t0\t0\t0\t0\t0\n\
            4096\t0\t0\t4608\t3\t10752\t10752\t9\t36864\t36864\n\
            131072\t0\t0\t4608\t2\t262144\t272896\t0\t0\t36864\n\nspace map refcount mismatch\n";
        let (survey, _) = read(text.as_bytes()).unwrap().survey();
        let sizes = survey.distributions.of(Measure::FileSize);
        assert_eq!((survey.counts.files, survey.size_bytes()), (5, 272_896));
        assert_eq!((sizes.up_to(2048).count, sizes.up_to(4096).count), (0, 3));
        let binned = text.replace("separately", "by psize");
        assert!(read(binned.as_bytes()).err().unwrap().contains("--bin"));
        for (from, to) in [("10752", "999999"), ("10752", "10752x"), ("131072\t", "4096\t"), ("\t36864\n131", "\n131")]
        {
            assert!(read(text.replacen(from, to, 1).as_bytes()).is_err(), "{from}");
        }
        assert!(read(b"Block Size Histogram\n").is_err());
        assert!(!looks_like(b"zdb\n"));
    }
}
