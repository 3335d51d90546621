//! Encodes and decodes the store's format (docs/FORMAT.md): what the bytes mean, not where they are.

pub mod attributes;
pub(crate) mod decode;
pub(crate) mod descriptor;
pub mod entry;
pub mod geometry;
pub(crate) mod history;
pub mod ids;
pub(crate) mod index_key;
pub mod key;
pub(crate) mod names;
pub(crate) mod record;
pub(crate) mod release;
pub(crate) mod rows;
pub(crate) mod segment;
pub(crate) mod superblock;

/// Version of the whole format.
pub(crate) const VERSION: u16 = 2;
