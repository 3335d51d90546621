//! File-size granulometry: measure a file population, and see it.
//!
//! | layer | modules |
//! | --- | --- |
//! | 5 | [`cli`]: arguments, progress, exit status |
//! | 4 | [`report`]: results for people, on a terminal and as a page |
//! | 3 | [`survey`]: a scan made into distributions; survey files, merging, comparison |
//! | 2 | [`scan`]: enumerate files; [`plan`]: what a layout makes of a distribution; [`population`]: file trees made like a measured one; [`store`]: the hybrid composite-file store; [`trace`]: what is read and written |
//! | 1 | [`distribution`]: distributions; [`layout`]: arithmetic of space; [`mrc`]: miss-ratio curves; [`io`]: files that appear whole; [`document`]: JSON of granulo's; [`mounts`]: what is mounted |
//! | 0 | [`units`], [`error`] |
//!
//! A module uses only layers below its own; a test reads the imports and holds that.

pub mod bench;
pub mod cli;
pub mod document;
pub mod mounts;
pub mod plan;
pub mod population;
pub mod report;
pub mod scan;
pub mod survey;
pub mod trace;

// The crates below, as modules of this one.
pub use granulo_core::{distribution, error, io, layout, mrc, units};
pub use granulo_store as store;

/// The README's examples, compiled and run with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
