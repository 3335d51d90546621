//! Plans: the space that layouts need for a population of files, and the size of the fast tier. Takes distributions
//! instead of paths and touches no disk.

pub mod bill;
mod block_size;
pub mod caching;
pub mod cost;
mod document;
pub mod operations;
pub mod population;
pub mod recommend;
mod space;
pub mod systems;
pub mod tier;

pub use block_size::{BLOCK_SIZES, BlockSize, Padding, block_size, block_sizes};
pub use caching::Caching;
pub(crate) use document::read_document;
pub use document::{About, FastTier, Plan, Request, ServedOperations, Source, plan, read};
pub use operations::Operations;
pub use population::{Population, Tree};
pub use space::{ModelSpace, model_space};
