//! A placeholder.

use super::Kind;

/// `s3`.
pub(super) const S3: Kind = Kind { name: "s3", summary: "", options: &[], ..super::block::BLOCK };

/// Models for the laws of `tests`, beside the defaults.
#[cfg(test)]
pub(super) const TESTED: &[&str] = &[];
