//! Caches with other policies than LRU, simulated one size at a time.
//!
//! | module | policy |
//! | --- | --- |
//! | `fifo` | FIFO, and CLOCK: FIFO with a second chance (Corbató 1968) |
//! | `lru` | LRU, for comparison |
//! | `two_queues` | 2Q, the full version, `Kin` 25 %, `Kout` 50 % (Johnson and Shasha 1994) |
//! | `s3_fifo` | S3-FIFO, 10 % in the small queue (Yang, Zhang, Qiu, Yue and Rashmi 2023) |
//! | `arc` | ARC (Megiddo and Modha 2003) |
//! | `lists` | the common structure: lists of keys in one arena |

mod arc;
mod fifo;
mod lists;
mod lru;
mod s3_fifo;
#[cfg(test)]
mod tests;
mod two_queues;

use std::fmt::Debug;

use serde::{Deserialize, Serialize};

/// A policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// The least recently used block is evicted.
    Lru,
    /// The block that was inserted first is evicted.
    Fifo,
    /// As FIFO, but a block that was used since has a second chance.
    Clock,
    /// 2Q.
    #[serde(rename = "2q")]
    TwoQueues,
    /// S3-FIFO.
    S3Fifo,
    /// ARC.
    Arc,
}

/// A cache of a fixed number of blocks.
pub trait Cache: Debug + Send {
    /// References a block, which is in the cache afterwards; returns whether it was before.
    fn refer(&mut self, key: u64) -> bool;
    /// Drops the blocks in these ranges, their ends included, and everything that is remembered about them.
    fn forget(&mut self, ranges: &[(u64, u64)]);
    /// Its current memory.
    fn memory_bytes(&self) -> usize;
}

impl Policy {
    /// All policies.
    pub const EVERY: [Policy; 6] =
        [Policy::Lru, Policy::Fifo, Policy::Clock, Policy::TwoQueues, Policy::S3Fifo, Policy::Arc];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Policy::Lru => "LRU",
            Policy::Fifo => "FIFO",
            Policy::Clock => "CLOCK",
            Policy::TwoQueues => "2Q",
            Policy::S3Fifo => "S3-FIFO",
            Policy::Arc => "ARC",
        }
    }

    /// An empty cache of `blocks` blocks, at least one.
    pub fn cache(self, blocks: usize) -> Box<dyn Cache> {
        let blocks = blocks.max(1);
        match self {
            Policy::Lru => Box::new(lru::Lru::new(blocks)),
            Policy::Fifo => Box::new(fifo::Fifo::new(blocks, false)),
            Policy::Clock => Box::new(fifo::Fifo::new(blocks, true)),
            Policy::TwoQueues => Box::new(two_queues::TwoQueues::new(blocks)),
            Policy::S3Fifo => Box::new(s3_fifo::S3Fifo::new(blocks)),
            Policy::Arc => Box::new(arc::Arc::new(blocks)),
        }
    }
}
