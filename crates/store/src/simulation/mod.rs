//! The tests' environment for the store: devices that crash, fail, fill up and rot, and a model of its possible states
//! afterwards.
//!
//! | module | subject |
//! | --- | --- |
//! | [`bucket`] | a log that is published to a bucket, in a world of its own |
//! | [`bucketed`] | a store in the bucket of a world |
//! | `cost` | the cost of a record that rots |
//! | [`machines`] | processes on machines, and a time that passes when one of them waits |
//! | [`media`] | what is written, separate from what is durable: one file, the names of one device |
//! | [`mishap`] | faults of whole devices and single writes: missing, empty, stale, swapped, damaged, betrayed |
//! | [`world`] | several devices that crash together; faults; the count of operations |
//! | [`world_objects`] | the bucket of a world, and what becomes of requests |
//! | [`device`] | the devices as the store sees them, and methods that damage them |
//! | [`state`] | all objects of a store, and the effect of changes on them |
//! | [`moments`] | when objects were changed and created |
//! | [`model`] | the states that a store may have after a crash |
//! | [`ever`] | what objects ever were |
//! | [`subject`] | the store itself on such devices |
//! | [`workload`] | random operations, as plain data |
//! | [`scenario`] | steps over a varying world, as data; the laws that are checked after each |
//! | [`trial`] | a store, a workload and a crash at each point, judged by the model |
//!
//! Everything is determined by seeds: the same seeds produce the same operations, the same crash and the same remains
//! of it. The simulation assumes only what docs/FORMAT.md, section 2, assumes of the media.

pub(crate) mod bucket;
pub(crate) mod bucketed;
mod cost;
pub(crate) mod device;
pub(crate) mod ever;
pub(crate) mod machines;
pub(crate) mod media;
pub(crate) mod mishap;
pub(crate) mod model;
pub(crate) mod moments;
pub(crate) mod numbers;
mod repairs;
pub(crate) mod scenario;
pub(crate) mod state;
pub(crate) mod subject;
pub(crate) mod trial;
pub(crate) mod workload;
pub(crate) mod world;
pub(crate) mod world_objects;

/// Whether failures are listed (`GRANULO_GO_ON`), and the first does not end a run.
fn goes_on() -> bool {
    std::env::var_os("GRANULO_GO_ON").is_some()
}

/// Lists a failure at once: the harness would keep what `println!` prints.
fn list(failure: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stdout(), "{failure}");
}

/// The number in an environment variable: a seed, or a count.
fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}
