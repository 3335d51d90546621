//! What the store is tested on: devices that crash, fail, fill up and rot, and a model of what it may be afterwards.
//!
//! | module | subject |
//! | --- | --- |
//! | [`bucket`] | a log that is published to a bucket, on a world of its own |
//! | `cost` | what a record that rots costs |
//! | [`chance`] | random numbers from a seed |
//! | [`media`] | what is written, apart from what is durable: one file, the names of one device |
//! | [`mishap`] | what befalls whole devices and single writes: away, empty, old, swapped, rotten, betrayed |
//! | [`world`] | several devices that crash together; faults; the count of operations |
//! | [`device`] | the devices as the store sees them, and damage done to them |
//! | [`state`] | all objects of a store, and what changes make of them |
//! | [`moments`] | when objects were changed and made |
//! | [`model`] | the states that a store may have after a crash |
//! | [`ever`] | what objects ever were |
//! | [`subject`] | the store itself on such devices |
//! | [`workload`] | random operations, as plain data |
//! | [`scenario`] | steps over a world that varies, as data; the laws that are checked after each |
//! | [`trial`] | a store, a workload and a crash at each point, judged by the model |
//!
//! Everything follows from seeds: the same seeds give the same operations, the same crash and the same remains of it. Nothing is assumed
//! of the media but what docs/FORMAT.md, section 2, assumes.

pub(crate) mod bucket;
pub(crate) mod chance;
mod cost;
pub(crate) mod device;
pub(crate) mod ever;
pub(crate) mod media;
pub(crate) mod mishap;
pub(crate) mod model;
pub(crate) mod moments;
pub(crate) mod numbers;
pub(crate) mod scenario;
pub(crate) mod state;
pub(crate) mod subject;
pub(crate) mod trial;
pub(crate) mod workload;
pub(crate) mod world;

/// What an environment variable asks for: a seed, or how many of something.
fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}
