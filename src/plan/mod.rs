//! Plans: what layouts make of a population of files, and how large a fast tier has to be. Takes distributions, not paths, and
//! touches no disk.

mod block_size;
pub mod cost;
mod document;
pub mod operations;
pub mod population;
pub mod recommend;
mod space;
pub mod systems;
pub mod tier;

pub use block_size::{BLOCK_SIZES, BlockSize, Padding, block_size, block_sizes};
pub use document::{About, FastTier, Plan, Request, ServedOperations, plan, read};
pub use operations::Operations;
pub use population::{Population, Tree};
pub use space::{ModelSpace, model_space};
