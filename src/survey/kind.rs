//! Keys of tables of owners and extensions, and how many of them a table holds.

use serde::{Deserialize, Serialize};

/// Smallest number of keys that a table of owners or extensions holds.
pub const KINDS: usize = 4096;

/// The key of a table: the value itself, or only a rank when anonymous.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Kind<K> {
    /// The owner or extension itself.
    Named(K),
    /// Omitted; numbered so that rows stay distinct.
    Anonymous(u64),
}
