//! Tables of buckets as CSV: `min,max,count` and perhaps `bytes`, with these names in the first line, in any order.
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
}

fn columns(text: &[u8]) -> Option<Columns> {
    let (_, first) = lines(text).next()?;
    let first = std::str::from_utf8(first).ok()?.to_ascii_lowercase();
    let names: Vec<&str> = first.split(',').map(|name| name.trim().trim_matches('"')).collect();
    let find = |known: &[&str]| names.iter().position(|name| known.contains(name));
    Some(Columns { low: find(&LOW)?, high: find(&HIGH)?, count: find(&COUNT)?, sum: find(&SUM) })
}

pub(super) fn looks_like(text: &[u8]) -> bool {
    columns(text).is_some()
}

pub(super) fn read(text: &[u8]) -> Result<Listed, String> {
    let columns = columns(text).ok_or("its first line does not name the columns min, max and count")?;
    let mut rows: Vec<(u64, u64, u64, Option<u128>)> = Vec::new();
    for (line_number, line) in lines(text).skip(1) {
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
    }
}
