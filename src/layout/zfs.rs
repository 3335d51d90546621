//! A placeholder.

use super::Kind;

/// `zfs`.
pub(super) const ZFS: Kind = Kind { name: "zfs", summary: "", options: &[], ..super::block::BLOCK };

/// Models for the laws of `tests`, beside the defaults.
#[cfg(test)]
pub(super) const TESTED: &[&str] = &[];
