//! The computations of granulo: distributions, layouts and miss-ratio curves, on top of sizes and one error type. serde
//! is the only dependency.
//!
//! | layer | modules |
//! | --- | --- |
//! | 1 | [`distribution`]: distributions; [`layout`]: space; [`mrc`]: miss-ratio curves; [`io`]: atomic files |
//! | 0 | [`units`], [`error`]; [`progress`]: how far long work is, and the request to stop it |
//!
//! A module uses only layers below its own; a test reads the imports and enforces that.

pub mod distribution;
pub mod error;
pub mod io;
pub mod layout;
pub mod mrc;
pub mod progress;
pub mod units;
