//! Tables of buckets as CSV: `min,max,count` and perhaps `bytes`, with these names in the first line, in any order.
//! Without names, three or four numbers a line are such a table if each of the first rows begins where the one before
//! ends.
//! Bounds are inclusive, as most programs print them; a `max` that is the next row's `min` is taken as exclusive.

use super::{Listed, lines, number};
use crate::units::escape;

/// Names of a column, in lower case.
const LOW: [&str; 4] = ["min", "low", "from", "min_bytes"];
const HIGH: [&str; 4] = ["max", "high", "to", "max_bytes"];
const COUNT: [&str; 3] = ["count", "files", "number"];
const SUM: [&str; 4] = ["bytes", "sum", "size_bytes", "total"];

struct Columns {
    low: usize,
    high: usize,
    count: usize,
    sum: Option<usize>,
    /// Whether the first line names them.
    is_named: bool,
}

/// Rows that decide whether a text without names is a table.
const LOOKED_AT: usize = 3;

fn columns(text: &[u8]) -> Option<Columns> {
    named_columns(text).or_else(|| is_unnamed(text).then_some(UNNAMED))
}

/// The columns of a table without names.
const UNNAMED: Columns = Columns { low: 0, high: 1, count: 2, sum: Some(3), is_named: false };

fn is_unnamed(text: &[u8]) -> bool {
    let numbers = |line: &[u8]| line.split(|&byte| byte == b',').map(number).collect::<Option<Vec<u64>>>();
    let rows: Option<Vec<Vec<u64>>> = lines(text).take(LOOKED_AT).map(|(_, line)| numbers(line)).collect();
    let Some(rows) = rows.filter(|rows| rows.len() > 1) else { return false };
    let is_row = |row: &Vec<u64>| matches!(row.len(), 3 | 4) && row[0] <= row[1];
    let follows = |pair: &[Vec<u64>]| pair[0][0] < pair[1][0] && pair[1][0].wrapping_sub(pair[0][1]) <= 1;
    rows.iter().all(is_row) && rows.windows(2).all(follows)
}

fn named_columns(text: &[u8]) -> Option<Columns> {
    let (_, first) = lines(text).next()?;
    let first = std::str::from_utf8(first).ok()?.to_ascii_lowercase();
    let names: Vec<&str> = first.split(',').map(|name| name.trim().trim_matches('"')).collect();
    let find = |known: &[&str]| names.iter().position(|name| known.contains(name));
    Some(Columns { low: find(&LOW)?, high: find(&HIGH)?, count: find(&COUNT)?, sum: find(&SUM), is_named: true })
}

pub(super) fn looks_like(text: &[u8]) -> bool {
    columns(text).is_some()
}

pub(super) fn read(text: &[u8]) -> Result<Listed, String> {
    let columns = columns(text).ok_or("its first line does not name the columns min, max and count")?;
    let mut rows: Vec<(u64, u64, u64, Option<u128>)> = Vec::new();
    for (line_number, line) in lines(text).skip(usize::from(columns.is_named)) {
        let fields: Vec<&[u8]> = line.split(|&byte| byte == b',').collect();
        let at = |column: usize| fields.get(column).copied().and_then(number);
        let sum = columns.sum.and_then(at).map(u128::from);
        match (at(columns.low), at(columns.high), at(columns.count)) {
            (Some(low), Some(high), Some(count)) if low <= high => rows.push((low, high, count, sum)),
            _ => {
                let shown = escape(line.get(..40).unwrap_or(line));
                return Err(format!("line {line_number} has no range of sizes and count: '{shown}'"));
            }
        }
    }
    rows.sort_unstable();
    let mut listed = Listed::new();
    if !columns.is_named {
        listed
            .warnings
            .push("its first line names no columns: read as min,max,count, and bytes if there are".to_owned());
    }
    for (index, &(low, high, count, sum)) in rows.iter().enumerate() {
        let next = rows.get(index + 1).map(|row| row.0);
        let high = if next == Some(high) && low < high { high - 1 } else { high };
        if next.is_some_and(|next| next <= high) {
            return Err(format!("the ranges from {low} and {} overlap", next.unwrap_or(0)));
        }
        if count > 0 {
            listed.add_range(low, high, count, sum)?;
        }
    }
    Ok(listed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_ranges_whatever_their_bounds() {
        for text in ["min,max,count\n0,0,5\n1,1023,10\n1024,2047,3\n", "count,Min,Max\n5,0,0\n10,1,1024\n3,1024,2047\n"]
        {
            assert!(looks_like(text.as_bytes()));
            let (survey, _) = read(text.as_bytes()).unwrap().survey();
            let sizes = survey.distributions.of(crate::survey::measure::Measure::FileSize);
            assert_eq!((survey.counts.files, sizes.up_to(0).count, sizes.up_to(1023).count), (18, 5, 15));
        }
        let with_sum = read(b"min,max,count,bytes\n0,9,3,12\n").unwrap().survey().0;
        assert_eq!(with_sum.size_bytes(), 12);
        for wrong in ["min,max,count\n5,1,1\n", "min,max,count\n0,5,1\n3,9,1\n", "min,max,count\nx,1,1\n"] {
            assert!(read(wrong.as_bytes()).is_err(), "{wrong}");
        }
        assert!(!looks_like(b"a,b,c\n"));
        let unnamed = b"0,1024,10\n1025,4096,20\n4096,9999,3\n";
        let (survey, warnings) = read(&unnamed[..23]).unwrap().survey();
        assert_eq!((looks_like(unnamed), survey.counts.files, warnings.len()), (true, 30, 1));
        // Sizes with allocated bytes and names.
        for sizes in ["10,4096,1\n20,4096,2\n", "0,1024,10\n", "0,0,1\n0,0,x\n", "0,0,1\n0,0,2\n"] {
            assert!(!looks_like(sizes.as_bytes()), "{sizes}");
        }
    }
}
