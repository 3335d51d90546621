//! A placeholder.

use super::Kind;

/// `ceph`.
pub(super) const CEPH: Kind = Kind { name: "ceph", summary: "", options: &[], ..super::block::BLOCK };

/// Models for the laws of `tests`, beside the defaults.
#[cfg(test)]
pub(super) const TESTED: &[&str] = &[];
