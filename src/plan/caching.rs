//! Caches: what one of a given size makes of each block size. Larger blocks move more in one transfer, but fewer of
//! them fit in the cache, so more references miss (Tanenbaum, Herder and Bos 2006, section 5).
//!
//! The times are predicted from a trace, or are those that the paper measured (its Fig. 5).

use serde::{Deserialize, Serialize};

use super::operations::PUBLISHED;
use crate::mrc::device::Device;
use crate::mrc::published::fig_5;
use crate::mrc::study::{Cell, Study};

/// Time over that of the best block size that is allowed.
pub const TIME_TOLERANCE: f64 = 0.05;

/// A cache, and its times by block size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Caching {
    /// Name of the trace, or of the published operations.
    pub name: String,
    /// Size of the cache.
    pub cache_bytes: u64,
    /// The device of the prediction; `None` where times were measured.
    pub device: Option<Device>,
    /// One row per block size, ascending.
    pub rows: Vec<CachedBlock>,
    /// The times with caches of other sizes too, ascending.
    #[serde(default)]
    pub times: Vec<CacheTimes>,
}

/// A size of the cache.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CacheTimes {
    /// The size.
    pub cache_bytes: u64,
    /// Time with each block size, in the order of the rows.
    pub seconds: Vec<f64>,
}

/// A block size.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CachedBlock {
    /// The block size.
    pub block_bytes: u64,
    /// Misses per reference; `None` where only the time is known.
    pub miss_ratio: Option<f64>,
    /// Transfers from the device.
    pub fetches: Option<f64>,
    /// Bytes that they move.
    pub fetched_bytes: Option<f64>,
    /// Time for the device; measured: of the whole run.
    pub seconds: f64,
}

impl Caching {
    /// The measured times of the paper, with the largest cache of its Fig. 5 that is not larger than this one (or the
    /// smallest one).
    pub fn published(cache_bytes: u64) -> Caching {
        let matrix = fig_5();
        let times = |(cache_bytes, seconds): &(u64, Vec<f64>)| CacheTimes {
            cache_bytes: *cache_bytes,
            seconds: seconds.clone(),
        };
        let times = matrix.rows.iter().map(times).collect();
        let row = matrix.rows.iter().rfind(|(size, _)| *size <= cache_bytes).or(matrix.rows.first());
        let (cache_bytes, seconds) = row.cloned().unwrap_or_default();
        let rows = matrix.block_sizes_bytes.iter().zip(seconds).map(|(&block_bytes, seconds)| CachedBlock {
            block_bytes,
            miss_ratio: None,
            fetches: None,
            fetched_bytes: None,
            seconds,
        });
        Caching { name: PUBLISHED.to_owned(), cache_bytes, device: None, rows: rows.collect(), times }
    }

    /// The largest cache that the paper measured, in bytes.
    pub fn largest_published() -> u64 {
        fig_5().rows.last().map_or(0, |(size, _)| *size)
    }

    /// What was predicted from a trace, for one of its caches, with the blocks that fit in it.
    pub fn predicted(study: &Study, cache_bytes: u64) -> Caching {
        let row = |cell: &Cell| CachedBlock {
            block_bytes: cell.block_bytes,
            miss_ratio: Some(cell.misses.miss_ratio),
            fetches: Some(cell.misses.fetches),
            fetched_bytes: Some(cell.misses.fetched_blocks * cell.block_bytes as f64),
            seconds: cell.seconds,
        };
        let cells = |cache_bytes| study.cells.iter().filter(move |cell| cell.cache_bytes == cache_bytes);
        // Block sizes ascend, so these are the first ones of each cache.
        let rows: Vec<CachedBlock> = cells(cache_bytes).filter(|cell| cell.cache_blocks > 0).map(row).collect();
        let times = |&cache_bytes: &u64| CacheTimes {
            cache_bytes,
            seconds: cells(cache_bytes).take(rows.len()).map(|cell| cell.seconds).collect(),
        };
        Caching {
            name: study.trace.clone(),
            cache_bytes,
            device: Some(study.device.clone()),
            times: study.cache_sizes_bytes.iter().map(times).collect(),
            rows,
        }
    }

    /// The row of a block size.
    pub fn row(&self, block_bytes: u64) -> Option<&CachedBlock> {
        self.rows.iter().find(|row| row.block_bytes == block_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mrc::study::{StudyRequest, Writes, run};
    use crate::progress::Progress;
    use crate::units::{KIB, MIB};

    #[test]
    fn blocks_larger_than_the_cache_have_no_row() {
        let request = StudyRequest {
            block_sizes_bytes: vec![4 * KIB, 64 * KIB],
            cache_sizes_bytes: vec![4 * KIB, 64 * KIB],
            rate: 1.0,
            most_blocks: None,
            memory_bytes: MIB,
            policies: Vec::new(),
            writes: Writes::Back,
            device: Device::named("disk").unwrap(),
            base_seconds: 1.0,
            targets: Vec::new(),
            longest_bytes: MIB,
            threads: 1,
        };
        let found = run(&request, &mut || Ok(None), &Progress::default()).unwrap();
        let study = request.study(&found, "trace".to_owned(), Vec::new());
        for (cache_bytes, blocks) in [(4 * KIB, vec![4 * KIB]), (64 * KIB, vec![4 * KIB, 64 * KIB])] {
            let caching = Caching::predicted(&study, cache_bytes);
            assert_eq!(caching.rows.iter().map(|row| row.block_bytes).collect::<Vec<_>>(), blocks);
            // One time for each row, with the other cache too.
            let times: Vec<usize> = caching.times.iter().map(|at| at.seconds.len()).collect();
            assert_eq!(times, [blocks.len(); 2]);
        }
    }

    #[test]
    fn the_published_cache_is_the_next_smaller_one() {
        for (asked, row) in [(2 * MIB, 2 * MIB), (3 * MIB, 2 * MIB), (64 * MIB, 8 * MIB), (KIB, 512 * KIB)] {
            assert_eq!(Caching::published(asked).cache_bytes, row);
        }
        // "With a 2-MB cache and 4-KB blocks, it took 90 seconds."
        assert_eq!(Caching::published(2 * MIB).row(4 * KIB).unwrap().seconds, 90.0);
        assert_eq!(Caching::published(2 * MIB).row(16 * KIB), None);
        assert_eq!(Caching::largest_published(), 8 * MIB);
        // Whatever the cache, all that were measured are there.
        let times = Caching::published(2 * MIB).times;
        assert_eq!(times.iter().map(|at| at.cache_bytes / (512 * KIB)).collect::<Vec<_>>(), [1, 2, 4, 8, 16]);
        assert_eq!(times[1], CacheTimes { cache_bytes: MIB, seconds: vec![119.0, 140.0, 212.0, 399.0] });
    }
}
