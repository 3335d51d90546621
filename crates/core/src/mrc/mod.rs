//! Miss-ratio curves: how often a block that is wanted is not in the cache, for every size of the cache, from the requests of a trace.
//!
//! Requests are split into blocks ([`request`]). One pass a block size finds the reuse distance of each reference to a block, how many
//! different blocks were referred to since the last time: with LRU it is a hit in exactly the caches of more blocks than that. So one
//! pass gives the curve for all sizes ([`recorder`], [`curve`]), with the blocks that are written back and the transfers that neighbouring
//! misses are fetched with. Beyond a limit of memory, or by wish, a sample of the blocks stands for all (SHARDS), with an estimate of its
//! error. Other policies are simulated at chosen sizes ([`policy`]). A [`device`] turns misses into time, and [`study`] puts all of it
//! together. It knows no trace: requests come from a closure.

pub mod curve;
pub mod device;
mod noted;
mod order;
pub mod policy;
pub mod recorder;
pub mod request;
pub mod study;
mod table;
#[cfg(test)]
mod tests;
