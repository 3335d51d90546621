//! Plans: what a layout makes of a population of files. Takes distributions, not paths, and touches no disk.

mod block_size;

pub use block_size::{BLOCK_SIZES, BlockSize, Padding, block_size, block_sizes};
