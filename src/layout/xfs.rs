//! A placeholder.

use super::Kind;

/// `xfs`.
pub(super) const XFS: Kind = Kind { name: "xfs", summary: "", options: &[], ..super::block::BLOCK };

/// Models for the laws of `tests`, beside the defaults.
#[cfg(test)]
pub(super) const TESTED: &[&str] = &[];
