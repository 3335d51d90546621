//! Amazon S3: the bytes that are billed for an object in each storage class.
//!
//! | class | billed for `S` bytes |
//! | --- | --- |
//! | standard, intelligent-tiering | `S` |
//! | standard-ia, onezone-ia, glacier-ir | `max(S, 128 KiB)` |
//! | glacier, deep-archive | `S + 32 KiB` at the rate of the class, and 8 KiB at the rate of Standard |
//!
//! `allocated_bytes` is all of it, `metadata_bytes` the part at the rate of Standard, within it: two prices determine
//! the bill. This file contains no prices: they change.
//!
//! Invariants: an object is billed for at least its size; how it is stored (copies, parity) is in the price.
//!
//! Sources: Amazon S3 pricing, notes below the table of storage classes; Amazon S3 User Guide, "Amazon S3 CloudWatch
//! metrics" (`GlacierObjectOverhead` 32 KB, `GlacierS3ObjectOverhead` 8 KB); avantoss/vault-infra issue 31 for a bill.
//! Amazon writes KB; that 1,024 bytes are meant is assumed.

use super::{Kind, Layout, Opt, Range, Space, WholeUnits};
use crate::units::KIB;

/// `s3:class=standard`.
pub(super) const S3: Kind = Kind {
    name: "s3",
    summary: "Amazon S3: billed bytes of a storage class",
    options: &[Opt {
        name: "class",
        default: "standard",
        range: Range::Choice(&[
            "standard",
            "standard-ia",
            "glacier",
            "deep-archive",
            "onezone-ia",
            "glacier-ir",
            "intelligent-tiering",
        ]),
        meaning: "storage class",
    }],
    build: |options| {
        Ok(Box::new(match options.choice("class") {
            "standard-ia" | "onezone-ia" | "glacier-ir" => S3Class::Infrequent,
            "glacier" | "deep-archive" => S3Class::Archive,
            _ => S3Class::Frequent,
        }))
    },
};

/// Least billed size of an object in the classes for infrequent access.
const LEAST_BILLED_BYTES: u64 = 128 * KIB;

/// Index and metadata of an archived object, at the rate of its class.
const ARCHIVE_INDEX_BYTES: u64 = 32 * KIB;

/// Name and metadata of an archived object, at the rate of Standard.
const ARCHIVE_NAME_BYTES: u64 = 8 * KIB;

/// Classes with the same billing rule.
#[derive(Debug)]
enum S3Class {
    Frequent,
    Infrequent,
    Archive,
}

impl Layout for S3Class {
    fn file(&self, size_bytes: u64) -> Space {
        match self {
            S3Class::Frequent => Space { allocated_bytes: size_bytes.into(), metadata_bytes: 0 },
            S3Class::Infrequent => {
                Space { allocated_bytes: size_bytes.max(LEAST_BILLED_BYTES).into(), metadata_bytes: 0 }
            }
            S3Class::Archive => Space {
                allocated_bytes: u128::from(size_bytes) + u128::from(ARCHIVE_INDEX_BYTES + ARCHIVE_NAME_BYTES),
                metadata_bytes: ARCHIVE_NAME_BYTES.into(),
            },
        }
    }

    fn metadata_is_within(&self) -> bool {
        true
    }

    fn whole_units(&self) -> Option<WholeUnits> {
        matches!(self, S3Class::Frequent).then_some(WholeUnits { unit_bytes: 1, bytes_per_unit: 1 })
    }
}

/// Models for the laws of `tests`, besides the defaults.
#[cfg(test)]
pub(super) const TESTED: &[&str] = &[
    "s3:class=standard-ia",
    "s3:class=glacier",
    "s3:class=deep-archive",
    "s3:class=onezone-ia",
    "s3:class=glacier-ir",
    "s3:class=intelligent-tiering",
];

#[cfg(test)]
mod tests {
    use super::super::Model;
    use super::*;

    fn billed(class: &str, size_bytes: u64) -> Space {
        Model::parse(&format!("s3:class={class}")).unwrap().layout.file(size_bytes)
    }

    #[test]
    fn small_objects_cost_as_much_as_128_kib_where_access_is_infrequent() {
        for class in ["standard-ia", "onezone-ia", "glacier-ir"] {
            for (size, bytes) in [(0, 131_072), (1, 131_072), (131_072, 131_072), (131_073, 131_073)] {
                assert_eq!(billed(class, size).allocated_bytes, bytes, "{class} {size}");
            }
        }
        for class in ["standard", "intelligent-tiering"] {
            assert_eq!(billed(class, 1), Space { allocated_bytes: 1, metadata_bytes: 0 });
        }
    }

    #[test]
    fn archived_objects_have_two_rates() {
        for class in ["glacier", "deep-archive"] {
            let Space { allocated_bytes, metadata_bytes } = billed(class, 1000);
            assert_eq!((allocated_bytes - metadata_bytes, metadata_bytes), (1000 + 32 * 1024, 8 * 1024));
        }
    }

    #[test]
    fn a_published_bill_comes_out() {
        // avantoss/vault-infra issue 31: about 140 MB of logs brought 6.5 GB of GlacierObjectOverhead and 1.5 GB of
        // GlacierS3ObjectOverhead. The number of objects is not stated: 6.5 GiB are 213,000, so a mean of 0.7 KB.
        let (objects, size) = (213_000u128, 140_000_000 / 213_000);
        let Space { allocated_bytes, metadata_bytes } = billed("glacier", size);
        let gib = |bytes: u128| bytes as f64 / (1u64 << 30) as f64;
        let index = gib(objects * (allocated_bytes - metadata_bytes - u128::from(size)));
        let names = gib(objects * metadata_bytes);
        assert!((6.45..6.55).contains(&index), "{index}");
        assert!((1.45..1.65).contains(&names), "{names}");
    }
}
