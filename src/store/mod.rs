//! The store: millions of small files as records in a few append-only segments, large ones striped over slow devices.
//!
//! docs/FORMAT.md has the format and the argument why nothing acknowledged is lost; this module keeps to it.
//! [`Store`] is all that programs need.
//!
//! | module | subject |
//! | --- | --- |
//! | [`key`], [`attributes`], [`entry`] | what an object is called, carries, and what the index knows of it |
//! | [`geometry`], `superblock`, `devices` | which devices there are, and what each says of itself |
//! | `record`, `segment`, `log` | the log: bytes of records, files of records, appending and committing |
//! | `descriptor`, `erasure`, `extents` | large objects: the map, parity, stripe units |
//! | [`catalog`], `table`, `index` | the index: transactional part, sorted tables, look-up and order over both |
//! | `recovery` | what a writer does first |
//! | `simulation` | for tests: devices that crash, fail and rot, and what a store may be after it |

pub mod attributes;
pub mod catalog;
pub mod entry;
pub mod geometry;
pub mod key;
#[cfg(test)]
pub(crate) mod simulation;

pub use attributes::{Attributes, Holes};
pub use entry::{Entry, Kind, Location, Time};
pub use geometry::{Class, Compression, DeviceEntry, DeviceState, Geometry, Plan};
pub use key::Key;
