//! A placeholder.

use super::Kind;

/// `ntfs`.
pub(super) const NTFS: Kind = Kind { name: "ntfs", summary: "", options: &[], ..super::block::BLOCK };

/// Models for the laws of `tests`, beside the defaults.
#[cfg(test)]
pub(super) const TESTED: &[&str] = &[];
