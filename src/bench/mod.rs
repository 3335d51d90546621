//! Benchmarks: how a file system, or granulo's store, performs with a population of files.
//!
//! A bench begins a [`run::Run`], lets it prepare the places, measures them in turns, and ends the run with a
//! [`result::Document`]:
//!
//! ```no_run
//! use granulo::testing::bench::place::{Besides, Place};
//! use granulo::testing::bench::result::{CreateDetails, Details, Series};
//! use granulo::testing::bench::run::{Measured, Request, Run, turns};
//!
//! # fn main() -> granulo::error::Result<()> {
//! let mut run = Run::begin(Request { command_line: vec![], seed: 1, scratch: "/tmp".into() })?;
//! let besides = Besides { store: true, ..Besides::default() };
//! let mut places = run.prepare(&[Place::Directory("/mnt/empty".into())], besides)?;
//! let mut samples = vec![Vec::new(); places.len()];
//! let mut caches = Vec::new();
//! for (_round, at) in turns(3, places.len()) {
//!     places[at].renew()?;
//!     caches.push(places[at].cool()?);
//!     // Measure in `places[at].directory()`.
//!     samples[at].push(places[at].sync()?);
//! }
//! let series = samples.into_iter().enumerate().map(|(at, samples)| Series::new(at, "sync", "seconds", caches[0], samples)).collect();
//! let details = Details::Create(CreateDetails::default());
//! let document = run.end(places, Measured { series, details, shortest_median_ns: f64::INFINITY, complete: true });
//! # let _ = document;
//! # Ok(())
//! # }
//! ```
//!
//! | module | subject |
//! | --- | --- |
//! | [`result`] | the document that every bench writes, `granulo/bench/1` |
//! | [`samples`] | spread of few samples; times of millions of operations in constant memory |
//! | [`create`] | `bench create`: times of individual operations on many files |
//! | [`pack`] | `bench pack`: many files against one composite store |
//! | [`fill`] | `bench fill`: performance over the fill level |
//! | [`content`], `numbered` | content that is written and compared when read; paths by the digits of a number |
//! | [`metadata`] | `bench metadata`: load, check, listing and reads, after Welch and Noer |
//! | [`cache`] | `bench cache`: run times over cache size and block size |
//! | [`run`] | one run: prepared places, turns, the document |
//! | [`place`] | a place to measure: a directory or a file system created for it; files, a store, a mounted store |
//! | [`file_systems`], [`images`] | kinds of file systems, those created for a run |
//! | `mounted`, `served`, `servers` | a mounted store; programs that serve file systems, those that a killed run left |
//! | [`loops`], [`emulate`] | their devices, deliberately slow devices |
//! | `cgroups`, `confine` | control groups; a memory limit for a program |
//! | [`scratch`] | the directory of a run, and left-overs of killed runs |
//! | [`device`] | `cache --measure`: two figures of a device |
//! | [`caches`], [`clock`] | caches before a measurement; timing |
//! | [`host`], [`volume`], [`programs`] | descriptions of machine, file system, device and programs in a result |

pub(crate) mod cache;
pub(crate) mod caches;
mod cgroups;
pub(crate) mod clock;
mod confine;
pub(crate) mod content;
pub(crate) mod create;
pub(crate) mod device;
pub mod emulate;
pub mod file_systems;
pub mod fill;
pub(crate) mod host;
pub mod images;
pub(crate) mod loops;
pub(crate) mod metadata;
mod mounted;
mod numbered;
pub(crate) mod pack;
pub mod place;
pub(crate) mod programs;
pub mod result;
pub mod run;
pub(crate) mod samples;
pub(crate) mod scratch;
mod served;
mod servers;
pub(crate) mod volume;
