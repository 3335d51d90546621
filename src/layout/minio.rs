//! A placeholder.

use super::Kind;

/// `minio`.
pub(super) const MINIO: Kind = Kind { name: "minio", summary: "", options: &[], ..super::block::BLOCK };

/// Models for the laws of `tests`, beside the defaults.
#[cfg(test)]
pub(super) const TESTED: &[&str] = &[];
