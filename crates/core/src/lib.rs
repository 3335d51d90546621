//! What granulo computes with: distributions, layouts and miss-ratio curves, over sizes and one error type. serde is all it needs.
//!
//! | layer | modules |
//! | --- | --- |
//! | 1 | [`distribution`]: distributions; [`layout`]: arithmetic of space; [`mrc`]: miss-ratio curves; [`io`]: files that appear whole |
//! | 0 | [`units`], [`error`] |
//!
//! A module uses only layers below its own; a test reads the imports and holds that.

pub mod distribution;
pub mod error;
pub mod io;
pub mod layout;
pub mod mrc;
pub mod units;
