//! Populations: file trees made like a measured one.
//!
//! A [`Recipe`] has the distributions to be like, whatever they were measured with. A [`Design`] is the whole tree that follows from a
//! recipe, a number of files and a seed: it takes the memory of its directories, and says of each file, by its number, what it is. [`make()`]
//! puts a design on a disk, with any number of threads; [`age::age`] lives in it for a while, so that files and free space become
//! fragmented; [`room`] says before whether there is room.
//!
//! | module | subject |
//! | --- | --- |
//! | [`stratify`] | a number of values with the distribution of a source, stratified, not sampled |
//! | [`weighted`], [`profiles`] | sizes by a law; the profiles of Geriatrix |
//! | `permutation`, [`chance`] | which file has which size; numbers from a seed |
//! | [`tree`], `names` | directories and names |
//! | [`content`] | bytes |
//! | [`design`], [`mod@make`], [`room`] | what is to be made; making it; what it takes |
//! | [`document`] | what was planned and made, `granulo/generate/1` |
//! | [`mod@age`], [`extents`] | creating and deleting; how many pieces files and free space are in |
//!
//! Invariant: a tree is a function of recipe, number of files and seed. Threads, interruptions and what is on the disk do not show
//! in it.

pub mod age;
pub mod chance;
pub mod content;
pub mod design;
pub mod document;
pub mod extents;
pub mod make;
mod names;
mod permutation;
pub mod profiles;
pub mod room;
pub mod stratify;
pub mod tree;
pub mod weighted;

pub use chance::scramble;
pub use content::Content;
pub use design::{Design, FileTimes, Recipe, Shape};
pub use make::{Made, Progress, make};
pub use permutation::Permutation;
pub use room::{Allowed, Needed, Room};
pub use weighted::SizeLaw;

/// Seconds of a day, the unit of ages.
const SECONDS_A_DAY: u64 = 86_400;
