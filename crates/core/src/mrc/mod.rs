//! Miss-ratio curves: how often a requested block is missing from the cache, for every size of the cache, from the
//! requests of a trace.
//!
//! Requests are split into blocks ([`request`]). One pass per block size finds the reuse distance of each reference to
//! a block, the number of different blocks that were referenced since the last time: with LRU it is a hit in exactly
//! the caches of more blocks than that. So one pass computes the curve for all sizes ([`recorder`], [`curve`]), with
//! the blocks that are written back and the transfers that fetch neighbouring misses. Beyond a memory limit, or on
//! request, a sample represents all blocks (SHARDS), with an estimate of its error. Other policies are simulated at
//! chosen sizes ([`policy`]). A [`device`] turns misses into time, and [`study`] combines everything. The module knows
//! no trace format: requests come from a closure.

pub mod curve;
pub mod device;
mod noted;
mod order;
pub mod policy;
pub mod published;
pub mod recorder;
pub mod request;
pub mod study;
mod table;
#[cfg(test)]
mod tests;
