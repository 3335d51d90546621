//! Amazon S3, and what is billed like it: the bytes of a file in each storage class, and the requests.
//!
//! | class | billed for an object of `S` bytes |
//! | --- | --- |
//! | standard, intelligent-tiering | `S` |
//! | standard-ia, onezone-ia, glacier-ir | `max(S, 128 KiB)` |
//! | glacier, deep-archive | `S + 32 KiB` at the rate of the class, and 8 KiB at the rate of Standard |
//!
//! With `as=files`, each file is an object. `allocated_bytes` is all that is billed, `metadata_bytes` the part at the
//! rate of Standard, within it. With `as=granulo`, files are in a store in the bucket ([`InBucket`]), whose objects are
//! far above the least billed size; `metadata_bytes` is the index, within `allocated_bytes`. [`Billing`] has classes
//! and requests. This file contains no prices: they change.
//!
//! Invariants: a file is billed for at least its size; how it is stored (copies, parity) is in the price.
//!
//! Sources: Amazon S3 pricing, notes below the table of storage classes; Amazon S3 User Guide, "Amazon S3 CloudWatch
//! metrics" (`GlacierObjectOverhead` 32 KB, `GlacierS3ObjectOverhead` 8 KB); avantoss/vault-infra issue 31 for a bill.
//! Amazon writes KB; that 1,024 bytes are meant is assumed.

use super::billing::{Billing, ByClass, Reading, Upload};
use super::granulo::InBucket;
use super::{Kind, Layout, Opt, Options, Range, Space, WholeUnits};
use crate::units::{GIB, KIB};

/// The storage classes.
const CLASSES: [&str; 7] =
    ["standard", "standard-ia", "glacier", "deep-archive", "onezone-ia", "glacier-ir", "intelligent-tiering"];

/// Where the names of archived objects are.
const STANDARD: &str = CLASSES[0];

/// `slow_class` if there is only one class.
const SAME: &str = "same";

/// Values of `slow_class`.
const SLOW_CLASSES: [&str; 6] = [SAME, "standard", "standard-ia", "onezone-ia", "glacier-ir", "intelligent-tiering"];

/// `s3:class=standard,as=files`.
pub(super) const S3: Kind = Kind {
    name: "s3",
    summary: "Amazon S3: billed bytes of a storage class",
    options: &[
        Opt { name: "class", default: STANDARD, range: Range::Choice(&CLASSES), meaning: "storage class" },
        Opt {
            name: "as",
            default: "files",
            range: Range::Choice(&["files", "granulo"]),
            meaning: "an object for each file, or a store of granulo in the bucket",
        },
        Opt {
            name: "object",
            default: "32M",
            range: Range::Size {
                least: InBucket::OBJECT_BYTES[0],
                most: InBucket::OBJECT_BYTES[1],
                power_of_two: false,
            },
            meaning: "size of the objects of a store (granulo)",
        },
        Opt {
            name: "cutoff",
            default: "64K",
            range: Range::Size { least: 0, most: GIB, power_of_two: false },
            meaning: "largest file stored as a record (granulo)",
        },
        Opt {
            name: "slow_class",
            default: SAME,
            range: Range::Choice(&SLOW_CLASSES),
            meaning: "storage class of the stripes of larger files (granulo)",
        },
    ],
    build,
};

fn build(options: &Options) -> Result<Box<dyn Layout>, String> {
    let class = |name: &str| CLASSES.into_iter().find(|class| *class == options.choice(name));
    let chosen = class("class").unwrap_or(STANDARD);
    let rule = S3Class::of(chosen);
    if options.choice("as") == "files" {
        return match ["object", "cutoff", "slow_class"].into_iter().find(|name| options.is_given(name)) {
            Some(name) => Err(format!("{name} applies only to a store of granulo: use as=granulo, or omit {name}")),
            None => Ok(Box::new(Files { rule, class: chosen })),
        };
    }
    if rule == S3Class::Archive {
        return Err(format!("a store cannot be in {chosen}, whose objects must be restored before they are read"));
    }
    let store = InBucket::new(options.size("cutoff"), options.size("object"));
    Ok(Box::new(Packed { store, classes: [chosen, class("slow_class").unwrap_or(chosen)] }))
}

/// Least billed size of an object in the classes for infrequent access.
const LEAST_BILLED_BYTES: u64 = 128 * KIB;

/// Index and metadata of an archived object, at the rate of its class.
const ARCHIVE_INDEX_BYTES: u64 = 32 * KIB;

/// Name and metadata of an archived object, at the rate of Standard.
const ARCHIVE_NAME_BYTES: u64 = 8 * KIB;

/// Classes with the same billing rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum S3Class {
    Frequent,
    Infrequent,
    Archive,
}

impl S3Class {
    fn of(class: &str) -> S3Class {
        match class {
            "standard-ia" | "onezone-ia" | "glacier-ir" => S3Class::Infrequent,
            "glacier" | "deep-archive" => S3Class::Archive,
            _ => S3Class::Frequent,
        }
    }
}

/// An object for each file.
#[derive(Debug)]
struct Files {
    rule: S3Class,
    class: &'static str,
}

impl Layout for Files {
    fn file(&self, size_bytes: u64) -> Space {
        match self.rule {
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
        (self.rule == S3Class::Frequent).then_some(WholeUnits { unit_bytes: 1, bytes_per_unit: 1 })
    }

    fn billing(&self) -> Option<&dyn Billing> {
        Some(self)
    }
}

impl Billing for Files {
    fn classes(&self) -> ByClass<&'static str> {
        [self.class, if self.rule == S3Class::Archive { STANDARD } else { self.class }]
    }

    /// All metadata is at the rate of Standard.
    fn second_class_bytes(&self, size_bytes: u64) -> u128 {
        self.file(size_bytes).metadata_bytes
    }

    fn objects(&self, upload: &Upload) -> ByClass<u128> {
        [upload.files, 0]
    }

    fn puts(&self, upload: &Upload) -> ByClass<u128> {
        self.objects(upload)
    }

    fn reading(&self, size_bytes: u64) -> ByClass<Reading> {
        [Reading { gets: 1, bytes: size_bytes }, Reading::default()]
    }
}

/// A store of granulo: records and index in the first class, stripes in the second.
#[derive(Debug)]
struct Packed {
    store: InBucket,
    classes: ByClass<&'static str>,
}

impl Packed {
    /// Directories and symlinks are records.
    fn other(&self, content_bytes: u64) -> Space {
        Space { allocated_bytes: self.store.other(content_bytes), metadata_bytes: self.store.index_bytes() }
    }
}

impl Layout for Packed {
    fn file(&self, size_bytes: u64) -> Space {
        let [records, stripes] = self.store.file(size_bytes);
        Space { allocated_bytes: records + stripes, metadata_bytes: self.store.index_bytes() }
    }

    fn metadata_is_within(&self) -> bool {
        true
    }

    fn directory(&self, _entries: u64, _entries_bytes: u64) -> Option<Space> {
        Some(self.other(0))
    }

    fn symlink(&self, target_length: u64) -> Option<Space> {
        Some(self.other(target_length))
    }

    fn billing(&self) -> Option<&dyn Billing> {
        Some(self)
    }
}

impl Billing for Packed {
    fn classes(&self) -> ByClass<&'static str> {
        self.classes
    }

    fn second_class_bytes(&self, size_bytes: u64) -> u128 {
        self.store.file(size_bytes)[1]
    }

    fn objects(&self, upload: &Upload) -> ByClass<u128> {
        upload.billed_bytes.map(|bytes| self.store.objects(bytes))
    }

    fn puts(&self, upload: &Upload) -> ByClass<u128> {
        let [records, stripes] = self.objects(upload);
        [records.saturating_add(self.store.publishing_puts(upload)), stripes]
    }

    fn reading(&self, size_bytes: u64) -> ByClass<Reading> {
        self.store.reading(size_bytes)
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
    "s3:as=granulo",
    "s3:as=granulo,object=8M,cutoff=0",
    "s3:as=granulo,object=64M,cutoff=1GiB,slow_class=standard-ia",
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

    #[test]
    fn what_has_names_elsewhere_has_two_classes() {
        let classes = |model: &str| Model::parse(model).unwrap().layout.billing().unwrap().classes();
        assert_eq!(classes("s3"), ["standard"; 2]);
        assert_eq!(classes("s3:class=glacier"), ["glacier", "standard"]);
        assert_eq!(classes("s3:class=standard-ia,as=granulo"), ["standard-ia"; 2]);
        assert_eq!(classes("s3:as=granulo,slow_class=glacier-ir"), ["standard", "glacier-ir"]);
        assert!(Model::parse("ceph").unwrap().layout.billing().is_none());
    }

    #[test]
    fn small_files_of_a_store_are_billed_for_their_bytes() {
        let layout = Model::parse("s3:class=standard-ia,as=granulo").unwrap().layout;
        // The record as the store has it, and the index entry.
        assert_eq!(layout.file(1000), Space { allocated_bytes: 1108 + 32, metadata_bytes: 32 });
        assert_eq!(layout.symlink(1000), Some(layout.file(1000)));
        assert_eq!(layout.directory(5, 0), Some(layout.file(0)));
    }

    #[test]
    fn a_store_puts_objects_and_not_files() {
        let puts = |model: &str| {
            let layout = Model::parse(model).unwrap().layout;
            let (billing, files) = (layout.billing().unwrap(), 1_000_000);
            let second = files * billing.second_class_bytes(100_000);
            let billed_bytes = [files * layout.file(100_000).allocated_bytes - second, second];
            let upload = Upload { files, size_bytes: files * 100_000, billed_bytes };
            (billing.objects(&upload), billing.puts(&upload))
        };
        assert_eq!(puts("s3"), ([1_000_000, 0], [1_000_000, 0]));
        assert_eq!(puts("s3:class=glacier"), ([1_000_000, 0], [1_000_000, 0]));
        let (objects, puts) = puts("s3:as=granulo,slow_class=standard-ia");
        // Descriptors with 4 KiB in one class, 96 KiB of stripes in the other.
        assert_eq!(objects, [129, 2930]);
        // A publication for each 256 MiB and for each 32,768 files.
        assert_eq!(puts, [129 + 4 * (1 + 372 + 30) + 2, 2930]);
    }

    #[test]
    fn what_a_store_cannot_be_in_is_refused() {
        for (model, cause) in [
            ("s3:class=glacier,as=granulo", "a store cannot be in glacier, whose objects must be restored"),
            ("s3:object=8M", "object applies only to a store of granulo: use as=granulo, or omit object"),
            ("s3:slow_class=standard", "slow_class applies only"),
            ("s3:as=granulo,slow_class=glacier", "slow_class must be one of same, standard,"),
            ("s3:as=granulo,object=1M", "object must be a size from 8 MiB to 64 MiB"),
        ] {
            let said = Model::parse(model).unwrap_err().to_string();
            assert!(said.contains(cause), "{said}");
        }
    }
}
