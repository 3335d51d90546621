//! A placeholder.

use super::Kind;

/// `fat`.
pub(super) const FAT: Kind = Kind { name: "fat", summary: "", options: &[], ..super::block::BLOCK };

/// `exfat`.
pub(super) const EXFAT: Kind = Kind { name: "exfat", summary: "", options: &[], ..super::block::BLOCK };

/// Models for the laws of `tests`, beside the defaults.
#[cfg(test)]
pub(super) const TESTED: &[&str] = &[];
