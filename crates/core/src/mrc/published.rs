//! The times that Tanenbaum, Herder and Bos (2006) measured by size of the cache and of a block: their Fig. 5.

use serde::Serialize;

use crate::units::{KIB, MIB};

const FIG_5: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/tanenbaum_fig5_cache_seconds.csv"));

/// Run times by cache size and block size.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Matrix {
    /// Block sizes of the columns.
    pub block_sizes_bytes: Vec<u64>,
    /// Cache size, and seconds for each block size.
    pub rows: Vec<(u64, Vec<f64>)>,
}

/// Fig. 5 of Tanenbaum, Herder and Bos (2006).
pub fn fig_5() -> Matrix {
    let mut lines = FIG_5.lines().filter(|line| !line.starts_with('#'));
    let number = |field: &str| field.parse::<f64>().unwrap_or(0.0);
    let columns = lines.next().unwrap_or_default().split(',').skip(1);
    let block_of = |name: &str| number(name.trim_start_matches("block_").trim_end_matches("k_s")) as u64 * KIB;
    let block_sizes_bytes = columns.map(block_of).collect();
    let row = |line: &str| {
        let mut fields = line.split(',').map(number);
        let cache_bytes = (fields.next().unwrap_or(0.0) * MIB as f64) as u64;
        (cache_bytes, fields.collect())
    };
    Matrix { block_sizes_bytes, rows: lines.map(row).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figure_is_as_printed() {
        let matrix = fig_5();
        assert_eq!(matrix.block_sizes_bytes, [1, 2, 4, 8].map(|kib| kib * KIB));
        assert_eq!(matrix.rows.len(), 5);
        assert_eq!(matrix.rows[0], (512 * KIB, vec![584.0, 538.0, 539.0, 625.0]));
        // "For example, with a 2-MB cache and 4-KB blocks, it took 90 seconds."
        assert_eq!((matrix.rows[2].0, matrix.rows[2].1[2]), (2 * MIB, 90.0));
        assert!(matrix.rows.iter().all(|(_, seconds)| seconds.len() == 4 && seconds.iter().all(|&time| time > 70.0)));
    }
}
