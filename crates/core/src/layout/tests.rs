//! The laws that every layout keeps.

use super::*;
use proptest::prelude::*;

/// The layout of a model.
pub(super) fn layout(name: &str) -> Box<dyn Layout> {
    Model::parse(name).unwrap().layout
}

/// What a model allocates for one file.
pub(super) fn allocated(name: &str, size_bytes: u64) -> u128 {
    layout(name).file(size_bytes).allocated_bytes
}

/// Every kind with its defaults, and models with other options of each.
fn models() -> Vec<Model> {
    let more = [
        block::TESTED,
        btrfs::TESTED,
        ceph::TESTED,
        ext::TESTED,
        fat::TESTED,
        granulo::TESTED,
        hdfs::TESTED,
        lustre::TESTED,
        minio::TESTED,
        ntfs::TESTED,
        panfs::TESTED,
        s3::TESTED,
        xfs::TESTED,
        zfs::TESTED,
    ];
    let plain = kinds().iter().map(|kind| kind.name);
    plain.chain(more.concat()).map(|name| Model::parse(name).unwrap()).collect()
}

/// Sizes of every magnitude, many of them at an edge.
fn sizes() -> impl Strategy<Value = u64> {
    let magnitude = (0u32..64, any::<u64>()).prop_map(|(shift, bits)| bits >> shift);
    let edge = (0u32..64, 1u64..12, 0u64..3).prop_map(|(shift, times, beside)| {
        times.checked_shl(shift).unwrap_or(u64::MAX).saturating_add(beside).saturating_sub(1)
    });
    let last = (0u64..100_000).prop_map(|before| u64::MAX - before);
    prop_oneof![4 => magnitude, 4 => edge, 1 => Just(u64::MAX), 1 => last]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn allocated_never_falls_and_holds_the_file(a in sizes(), b in sizes()) {
        let (small, large) = (a.min(b), a.max(b));
        for model in models() {
            let (of_small, of_large) = (model.layout.file(small), model.layout.file(large));
            prop_assert!(of_small.allocated_bytes <= of_large.allocated_bytes, "{} {small} {large}", model.name);
            if let Some((numerator, denominator)) = model.layout.redundancy() {
                prop_assert!(numerator >= denominator && denominator > 0);
                let least = u128::from(large) * u128::from(numerator) / u128::from(denominator);
                prop_assert!(of_large.allocated_bytes + of_large.metadata_bytes >= least, "{} {large}", model.name);
            }
            if let Some(units) = model.layout.whole_units().filter(|_| large > 1 << 16) {
                let whole = u128::from(large).div_ceil(units.unit_bytes.into());
                prop_assert_eq!(of_large.allocated_bytes, whole * units.bytes_per_unit, "{} {}", model.name, large);
            }
        }
    }

    #[test]
    fn all_of_a_file_is_billed_and_read(size in sizes()) {
        for model in models() {
            let Some(billing) = model.layout.billing() else { continue };
            let billed = model.layout.file(size).allocated_bytes;
            prop_assert!(billing.second_class_bytes(size) <= billed, "{} {size}", model.name);
            let [first, second] = billing.reading(size);
            prop_assert_eq!(u128::from(first.bytes) + u128::from(second.bytes), u128::from(size), "{}", model.name);
            prop_assert!(first.gets > 0 && (second.gets > 0) == (second.bytes > 0), "{} {size}", model.name);
        }
    }

    #[test]
    fn a_higher_cutoff_never_takes_from_the_fast_tier(size in sizes(), a in sizes(), b in sizes()) {
        for model in models() {
            let most = model.layout.place(size, model.layout.cutoff_most_bytes());
            prop_assert_eq!(most, model.layout.place(size, u64::MAX), "{} {}", model.name, size);
            let (low, high) = (model.layout.place(size, a.min(b)), model.layout.place(size, a.max(b)));
            let (Some(low), Some(high)) = (low, high) else { continue };
            prop_assert!(low.fast_bytes <= high.fast_bytes, "{} {size}", model.name);
            prop_assert!(low.fast_least_bytes <= high.fast_least_bytes, "{} {size}", model.name);
            prop_assert!(low.fast_least_bytes <= low.fast_bytes);
            if model.layout.alike_up_to() >= size && round_up(a.max(b), model.layout.cutoff_unit_bytes()) < size {
                prop_assert_eq!(low, high, "{} {}", model.name, size);
            }
            if a.min(b) >= size {
                prop_assert_eq!(low, high, "{} {}", model.name, size);
            }
        }
    }
}

#[test]
fn directories_grow_with_their_entries() {
    for model in models() {
        let of = |entries: u64| model.layout.directory(entries, entries * model.layout.entry_bytes(20));
        let counts = [0, 1, 10, 100, 1000, 100_000, 100_000_000];
        for pair in counts.windows(2) {
            let (Some(few), Some(many)) = (of(pair[0]), of(pair[1])) else { continue };
            assert!(few.allocated_bytes <= many.allocated_bytes, "{} {pair:?}", model.name);
        }
    }
}
