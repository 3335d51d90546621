//! File-size granulometry: measure a file population, and display it.
//!
//! | layer | modules |
//! | --- | --- |
//! | 5 | [`cli`]: arguments, progress, exit status |
//! | 4 | [`report`]: results for people, on a terminal and as a page |
//! | 3 | [`survey`]: distributions from a scan; survey files, merging, comparison |
//! | 2 | [`scan`]: enumerate files; [`plan`]: apply a layout to a distribution; [`population`]: file trees modelled on a measured one; [`store`]: the hybrid composite-file store; [`trace`]: recorded reads and writes |
//! | 1 | [`distribution`]: distributions; [`layout`]: space arithmetic; [`mrc`]: miss-ratio curves; [`io`]: atomic file creation; [`document`]: granulo's JSON; [`mounts`]: mounted file systems |
//! | 0 | [`units`], [`error`]; [`progress`]: how far long work is, and the request to stop it |
//!
//! A module uses only layers below its own; a test reads the imports and enforces that.

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

// The crates of the lower layers, re-exported as modules.
pub use granulo_core::{distribution, error, io, layout, mrc, progress, units};
pub use granulo_store as store;

/// The README's examples, compiled and run as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
