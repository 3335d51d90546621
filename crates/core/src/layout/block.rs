//! Any block file system: whole blocks, nothing else. Tanenbaum, Herder and Bos (2006), section 3.

use super::{Kind, Layout, Opt, Range, Space, WholeUnits, round_up_wide};
use crate::units::GIB;

/// `block:size=4096`.
pub(super) const BLOCK: Kind = Kind {
    name: "block",
    summary: "any block file system: whole blocks",
    options: &[Opt {
        name: "size",
        default: "4096",
        range: Range::Size { least: 1, most: GIB, power_of_two: false },
        meaning: "block size",
    }],
    build: |options| Ok(Box::new(Block { size_bytes: options.size("size").max(1) })),
};

#[derive(Debug)]
struct Block {
    size_bytes: u64,
}

impl Layout for Block {
    fn file(&self, size_bytes: u64) -> Space {
        Space { allocated_bytes: round_up_wide(size_bytes.into(), self.size_bytes), metadata_bytes: 0 }
    }

    fn whole_units(&self) -> Option<WholeUnits> {
        Some(WholeUnits { unit_bytes: self.size_bytes, bytes_per_unit: self.size_bytes.into() })
    }
}

/// Models for the laws of `tests`, besides the defaults.
#[cfg(test)]
pub(super) const TESTED: &[&str] = &["block:size=1", "block:size=3000", "block:size=1GiB"];
