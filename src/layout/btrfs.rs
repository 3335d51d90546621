//! A placeholder.

use super::Kind;

/// `btrfs`.
pub(super) const BTRFS: Kind = Kind { name: "btrfs", summary: "", options: &[], ..super::block::BLOCK };

/// Models for the laws of `tests`, beside the defaults.
#[cfg(test)]
pub(super) const TESTED: &[&str] = &[];
