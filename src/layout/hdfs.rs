//! A placeholder.

use super::Kind;

/// `hdfs`.
pub(super) const HDFS: Kind = Kind { name: "hdfs", summary: "", options: &[], ..super::block::BLOCK };

/// Models for the laws of `tests`, beside the defaults.
#[cfg(test)]
pub(super) const TESTED: &[&str] = &[];
