//! A placeholder.

use super::Kind;

/// `granulo`.
pub(super) const GRANULO: Kind = Kind { name: "granulo", summary: "", options: &[], ..super::block::BLOCK };

/// Models for the laws of `tests`, beside the defaults.
#[cfg(test)]
pub(super) const TESTED: &[&str] = &[];
