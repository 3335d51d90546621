//! The times that Tanenbaum, Herder and Bos (2006) measured by size of the cache and of a block: their Fig. 5.

use serde::Serialize;

use crate::tables::{CacheRow, cache_seconds};
use crate::units::{KIB, MIB};

/// Block sizes of the columns, in KiB.
const BLOCKS_KIB: [u64; 4] = [1, 2, 4, 8];

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
    let row = |row: CacheRow| ((row.cache_mib * MIB as f64) as u64, row.seconds.to_vec());
    Matrix {
        block_sizes_bytes: BLOCKS_KIB.map(|kib| kib * KIB).to_vec(),
        rows: cache_seconds().into_iter().map(row).collect(),
    }
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
