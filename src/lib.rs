//! File-size granulometry: measure a file population, predict what any storage layout makes of it.
//!
//! # A tour
//!
//! ```
//! use std::path::Path;
//!
//! use granulo::layout::Model;
//! use granulo::plan::{About, Request as PlanRequest, plan};
//! use granulo::progress::Progress;
//! use granulo::survey::file::{Detail, read, write};
//! use granulo::survey::measure::Measure;
//! use granulo::survey::run::{Request, take};
//!
//! # let tree = tempfile::tempdir()?;
//! # let tree = tree.path();
//! for number in 0..100 {
//!     std::fs::write(tree.join(format!("{number}.txt")), vec![b'x'; 10 * number])?;
//! }
//!
//! // Survey a tree: one walk in parallel, memory that does not grow with the number of files. It can be interrupted,
//! // resumed from a checkpoint, and shown while it runs.
//! let survey = take(Request::new(vec![tree.to_owned()]), None, &Progress::default())?.survey;
//! assert_eq!(survey.counts.files, 100);
//!
//! // Distributions by files and by bytes: quantiles, shares up to a size, cells.
//! let sizes = survey.distributions.of(Measure::FileSize);
//! assert_eq!((sizes.quantile(1, 2), sizes.max()), (490, 990));
//! assert_eq!(sizes.up_to(490).count, 50);
//!
//! // A survey is a file; fsstats CSVs and published tables are read and merged in the same way.
//! let mut text = Vec::new();
//! write(&survey, Detail::Full, &mut text)?;
//! assert_eq!(read(&text, Path::new("tree.json"))?, survey);
//!
//! // What layouts make of this population, without writing anything.
//! let models = vec![Model::parse("ext4")?, Model::parse("zfs:vdev=raidz2,disks=10")?];
//! let plan = plan(&survey.population(), About::default(), &PlanRequest::new(models))?;
//! assert_eq!(plan.models[0].allocated_bytes, 99 * 4096);
//! assert!(plan.models[1].total_bytes > plan.models[0].allocated_bytes);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `cargo run --example survey -- DIR`, and likewise `plan` and `cache`, are small programs on this interface.
//!
//! # The crate
//!
//! | module | what a program does with it |
//! | --- | --- |
//! | [`survey`] | survey trees; read, write, merge and compare surveys |
//! | [`distribution`] | keep distributions in bounded memory; published ones |
//! | [`plan`], [`layout`] | predict the space that layouts need, the size of a fast tier, and costs |
//! | [`trace`] | read recorded operations, whatever recorded them, and sum them up |
//! | [`mrc`] | compute miss-ratio curves of a stream of requests |
//! | [`population`] | generate a tree that resembles a measured one |
//! | [`store`] | store millions of small files in a few large ones |
//! | [`progress`] | watch long work, and ask it to stop |
//! | [`units`], [`error`] | sizes as people write them, escaped names; the error type of all of these |
//!
//! [`cli::main`] is the `granulo` command, and [`cli::run`] the same with other arguments than those of the process.
//! The other modules are internal: the feature `testing` shows some of them to the tests of this workspace, and
//! promises nothing.

#![cfg_attr(feature = "testing", warn(unreachable_pub))]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod bench;
pub mod cli;
mod document;
#[cfg(feature = "fuse")]
mod erofs;
#[cfg(feature = "fuse")]
mod fuse;
mod mounts;
pub mod plan;
pub mod population;
mod program;
mod report;
mod scan;
#[cfg(test)]
mod skipped;
pub mod survey;
#[cfg(feature = "testing")]
pub mod testing;
pub mod trace;
mod watch;

// The crates of the lower layers, re-exported as modules.
pub use granulo_core::{distribution, error, layout, mrc, progress, units};
use granulo_core::{io, locks, random, tables};
pub use granulo_store as store;
use granulo_sys as sys;

/// The examples of the README and of the guides that have any, compiled and run as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;

#[cfg(doctest)]
#[doc = include_str!("../docs/guide/plan.md")]
pub struct PlanGuide;

#[cfg(doctest)]
#[doc = include_str!("../docs/guide/store.md")]
pub struct StoreGuide;
