//! Operations: the sizes of reads and writes. A layout chosen from the files at rest alone may not suit them.
//!
//! Most programs read and write a file as a whole, so one block serves an operation whose size is at most that of a
//! block (Tanenbaum, Herder and Bos 2006, section 4 and Fig. 4). The deciles are known; between them, sizes are laid
//! out log-uniformly.

use serde::{Deserialize, Serialize};

use super::block_size::BLOCK_SIZES;
use crate::distribution::Distribution;
use crate::distribution::published::{fig_4, through_percentiles};
use crate::units::fraction;

/// Name of the operations of Fig. 4.
pub const PUBLISHED: &str = "vu-2005";

/// Sizes of reads and of writes.
#[derive(Debug, Clone)]
pub struct Operations {
    /// Their name.
    pub name: String,
    /// Sizes of reads.
    pub reads: Distribution,
    /// Sizes of writes.
    pub writes: Distribution,
    /// Time in which they happened, if all of them are here.
    pub span_seconds: Option<f64>,
}

/// Least duration of operations whose rate is taken for that of a month.
pub const SHORTEST_RATE_SECONDS: f64 = 3600.0;

/// How a block size serves operations.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Served {
    /// The block size.
    pub block_bytes: u64,
    /// Share of the reads that one block serves.
    pub reads_fraction: f64,
    /// Share of the writes that one block serves.
    pub writes_fraction: f64,
}

impl Operations {
    /// The operations of Fig. 4: four days of a file server at the VU in 2005.
    pub fn published() -> Operations {
        Operations::through(&fig_4(), PUBLISHED)
            .unwrap_or_else(|cause| unreachable!("the built-in table is sound: {cause}"))
    }

    /// Their duration, if it is long enough to tell a rate.
    pub fn rate_seconds(&self) -> Option<f64> {
        self.span_seconds.filter(|&seconds| seconds >= SHORTEST_RATE_SECONDS)
    }

    /// Sizes through rows of per cent, read and write.
    fn through(rows: &[[u64; 3]], name: &str) -> Result<Operations, &'static str> {
        let column =
            |at: usize| through_percentiles(rows.iter().map(move |row| (row[0], row[at])), OPERATIONS_PER_PERCENT);
        Ok(Operations { name: name.to_owned(), reads: column(1)?, writes: column(2)?, span_seconds: None })
    }

    /// Reads deciles: lines of `decile_pct,read_bytes,write_bytes`, rising to 100 per cent; `#` begins a comment.
    ///
    /// # Errors
    /// A sentence that says which line is wrong.
    pub fn parse(text: &str, name: &str) -> Result<Operations, String> {
        const HEADER: &str = "decile_pct,read_bytes,write_bytes";
        let mut lines = text.lines().enumerate().filter(|(_, line)| !line.starts_with('#') && !line.trim().is_empty());
        if lines.next().is_none_or(|(_, line)| line.trim() != HEADER) {
            return Err(format!("the first line must be '{HEADER}'"));
        }
        let mut rows = Vec::new();
        let mut before = [0u64; 3];
        for (number, line) in lines {
            let wrong = |what: &str| format!("line {}: {what}", number + 1);
            let fields: Option<Vec<u64>> = line.split(',').map(|field| field.trim().parse().ok()).collect();
            let row: [u64; 3] = fields
                .and_then(|fields| fields.try_into().ok())
                .ok_or_else(|| wrong("three whole numbers were expected"))?;
            if row[0] <= before[0] || row[0] > 100 {
                return Err(wrong("the percentages must rise to 100"));
            }
            if row[1] < before[1] || row[2] < before[2] {
                return Err(wrong("the sizes must not decrease"));
            }
            rows.push(row);
            before = row;
        }
        if before[0] != 100 {
            return Err("the last line must be for 100 percent".to_owned());
        }
        Ok(Operations::through(&rows, name)?)
    }

    /// How the usual block sizes serve them.
    pub fn served(&self) -> Vec<Served> {
        BLOCK_SIZES.iter().map(|&block_bytes| self.served_by(block_bytes)).collect()
    }

    /// How one block size serves them.
    pub fn served_by(&self, block_bytes: u64) -> Served {
        let share = |sizes: &Distribution| fraction(sizes.up_to(block_bytes).count, sizes.count());
        Served { block_bytes, reads_fraction: share(&self.reads), writes_fraction: share(&self.writes) }
    }
}

/// Operations that represent one per cent: enough for shares to a hundredth of a per cent.
const OPERATIONS_PER_PERCENT: u64 = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_kib_serve_half_of_the_reads_and_four_fifths_of_the_writes() {
        // Section 4 of the paper.
        let served = Operations::published().served_by(8192);
        assert!((0.5..0.6).contains(&served.reads_fraction), "{}", served.reads_fraction);
        assert!((0.8..0.9).contains(&served.writes_fraction), "{}", served.writes_fraction);
        let all = Operations::published().served();
        assert!(all.is_sorted_by(|a, b| a.reads_fraction <= b.reads_fraction));
    }

    #[test]
    fn a_decile_is_where_the_table_says() {
        let operations = Operations::published();
        assert_eq!(operations.reads.up_to(6629).count, 500_000);
        assert_eq!(operations.writes.up_to(4096).count, 400_000);
        assert_eq!(operations.writes.max(), 1_131_274_484);
    }

    #[test]
    fn wrong_tables_are_refused() {
        let header = "decile_pct,read_bytes,write_bytes\n";
        for (rows, cause) in [
            ("", "100 percent"),
            ("10,1\n", "line 2: three whole numbers"),
            ("10,5,5\n10,6,6\n", "line 3: the percentages"),
            ("50,5,5\n100,4,6\n", "line 3: the sizes"),
            ("101,5,5\n", "rise to 100"),
            ("100,x,1\n", "three whole numbers"),
            ("100,1,1,x\n", "three whole numbers"),
            ("100,1,1,\n", "three whole numbers"),
        ] {
            let error = Operations::parse(&format!("{header}{rows}"), "x").unwrap_err();
            assert!(error.contains(cause), "{error}");
        }
        assert!(Operations::parse("", "x").unwrap_err().contains("first line"));
        assert!(Operations::parse(&format!("{header}100,18446744073709551615,0\n"), "x").is_ok());
    }
}
