//! Populations: file trees modelled on a measured one.
//!
//! A [`Recipe`] has the target distributions, however they were measured. A [`Design`] is the whole tree that follows
//! from a recipe, a number of files and a seed: it needs memory for its directories, and computes the properties of
//! each file from its number. [`make()`] writes a design to a disk, with any number of threads; [`age::age`] creates
//! and deletes files in it, so that files and free space become fragmented; [`Room`] checks beforehand whether there is
//! enough space.
//!
//! | module | subject |
//! | --- | --- |
//! | `stratify` | a number of values with the distribution of a source, stratified, not sampled |
//! | `weighted`, [`profiles`] | sizes by a law; the profiles of Geriatrix |
//! | `permutation`, `streams` | which file has which size; numbers from a seed |
//! | `tree`, `names` | directories and names |
//! | `content` | bytes |
//! | `design`, `make`, `room` | the planned tree; making it; the space that it needs |
//! | [`document`] | what was planned and made, `granulo/generate/1` |
//! | [`mod@age`], [`extents`] | creating and deleting; how many pieces files and free space are in |
//!
//! Invariant: a tree is a function of recipe, number of files and seed. It does not depend on threads, interruptions or
//! the contents of the disk.

pub mod age;
mod content;
pub(crate) mod design;
pub mod document;
pub mod extents;
pub(crate) mod make;
mod names;
mod permutation;
pub mod profiles;
mod room;
pub(crate) mod stratify;
pub(crate) mod streams;
pub(crate) mod tree;
pub(crate) mod weighted;

pub use content::Content;
pub use design::{Amount, Design, FileTimes, Recipe, Shape};
pub use make::{Made, MakeOptions, make};
pub(crate) use permutation::Permutation;
pub use room::{Allowed, Needed, Room};
pub(crate) use streams::scramble;
pub use weighted::SizeLaw;
