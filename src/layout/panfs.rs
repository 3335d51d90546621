//! A placeholder.

use super::Kind;

/// `panfs`.
pub(super) const PANFS: Kind = Kind { name: "panfs", summary: "", options: &[], ..super::block::BLOCK };

/// Models for the laws of `tests`, beside the defaults.
#[cfg(test)]
pub(super) const TESTED: &[&str] = &[];
