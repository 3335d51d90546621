//! The computations of granulo: distributions, layouts and miss-ratio curves, on top of sizes and one error type. serde
//! is the only dependency.
//!
//! # A tour
//!
//! ```
//! use granulo_core::distribution::{Distribution, published};
//! use granulo_core::layout::Model;
//! use granulo_core::mrc::recorder::{Recorder, Sampling};
//! use granulo_core::mrc::request::Kind;
//! use granulo_core::units::{format_size, parse_size};
//!
//! // A distribution counts values in bounded memory: exact up to 64 KiB, better than 1 % above.
//! let mut sizes = Distribution::default();
//! for size in [0, 120, 4000, 4000, 70_000] {
//!     sizes.record(size);
//! }
//! assert_eq!((sizes.count(), sizes.quantile(1, 2), sizes.up_to(4096).sum), (5, 4000, 8120));
//!
//! // Published distributions are of the same type, and distributions add.
//! sizes.merge(published::find("vu-2005").unwrap().distribution());
//!
//! // A layout is arithmetic: the space of one file. Models have names and options.
//! let ext4 = Model::parse("ext4:block=4K")?;
//! assert_eq!(ext4.layout.file(5000).allocated_bytes, 8192);
//!
//! // A miss-ratio curve of a stream of references to blocks: one pass, every size of an LRU cache.
//! let mut recorder = Recorder::new(Sampling::within(parse_size("1MiB")?), &[]);
//! for _round in 0..10 {
//!     for block in 0..100 {
//!         recorder.refer(block, Kind::Read, false);
//!     }
//! }
//! let curve = recorder.finish();
//! assert_eq!((curve.at(99).miss_ratio, curve.at(100).miss_ratio), (1.0, 0.1));
//! assert_eq!(format_size(u128::from(curve.enough_blocks()) * 4096), "400 KiB");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The crate
//!
//! | layer | modules |
//! | --- | --- |
//! | 1 | [`distribution`]: distributions; [`layout`]: space; [`mrc`]: miss-ratio curves; [`io`]: atomic files |
//! | 0 | [`units`], [`error`]; [`progress`]: how far long work is, and the request to stop it; [`locks`]: locks that survive a panic; [`random`]: seeded random numbers; [`tables`]: published tables |
//!
//! A module uses only layers below its own; a test reads the imports and enforces that.

#![warn(unreachable_pub)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod distribution;
pub mod error;
pub mod io;
pub mod layout;
pub mod locks;
pub mod mrc;
pub mod progress;
pub mod random;
pub mod tables;
pub mod units;
