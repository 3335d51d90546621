//! A placeholder.

use super::Kind;

/// `ext2`.
pub(super) const EXT2: Kind = Kind { name: "ext2", summary: "", options: &[], ..super::block::BLOCK };

/// `ext3`.
pub(super) const EXT3: Kind = Kind { name: "ext3", summary: "", options: &[], ..super::block::BLOCK };

/// `ext4`.
pub(super) const EXT4: Kind = Kind { name: "ext4", summary: "", options: &[], ..super::block::BLOCK };

/// Models for the laws of `tests`, beside the defaults.
#[cfg(test)]
pub(super) const TESTED: &[&str] = &[];
