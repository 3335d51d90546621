//! A placeholder.

use super::Kind;

/// `lustre`.
pub(super) const LUSTRE: Kind = Kind { name: "lustre", summary: "", options: &[], ..super::block::BLOCK };

/// Models for the laws of `tests`, beside the defaults.
#[cfg(test)]
pub(super) const TESTED: &[&str] = &[];
