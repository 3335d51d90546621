//! A store of granulo in a bucket of the object gateway: records and stripes in objects that are full, so that nothing
//! is lost to padding.
//!
//! Each file has its share of full RADOS objects and of their onodes. Records (with the index) and stripes are in one
//! pool, or in the fast and the large one, as storage classes of the bucket.

use super::super::granulo::{InBucket, LARGEST_CUTOFF_BYTES};
use super::{Ceph, Layout, Placement, Pool, Space, Wanted};
use crate::units::{KIB, MIB};

/// Cutoff and size of objects, as `granulo store init` has them.
const CUTOFF_BYTES: u64 = 64 * KIB;
const OBJECT_BYTES: u64 = 32 * MIB;

#[derive(Debug)]
pub(super) struct Packed {
    ceph: Ceph,
    store: InBucket,
}

impl Pool {
    /// The share of full objects that these bytes need.
    fn share(&self, bytes: u128) -> Space {
        let of_objects = |each: u128| (bytes * each).div_ceil(self.object_bytes.into());
        let allocated_bytes = of_objects(self.object(self.object_bytes));
        let onodes = of_objects(u128::from(self.spread.shards().0) * u128::from(self.onode_bytes));
        Space { allocated_bytes, metadata_bytes: onodes + allocated_bytes / super::DATA_PER_ONODE_BYTE }
    }
}

impl Packed {
    pub(super) fn new(ceph: Ceph) -> Packed {
        Packed { ceph, store: InBucket::new(CUTOFF_BYTES, OBJECT_BYTES) }
    }

    /// With the record in the fast pool and the stripes in the large one.
    fn divided(&self, size_bytes: u64, cutoff_bytes: u64) -> Placement {
        let [records, stripes] = self.store.file_with(size_bytes, cutoff_bytes);
        let (fast, slow) = (self.ceph.fast.share(records), self.ceph.pool.share(stripes));
        let fast_db_bytes = if self.ceph.db_is_fast { slow.metadata_bytes } else { 0 };
        let slow_bytes = slow.allocated_bytes + slow.metadata_bytes - fast_db_bytes;
        Placement::certain(fast.allocated_bytes + fast.metadata_bytes + fast_db_bytes, slow_bytes)
    }
}

impl Layout for Packed {
    fn file(&self, size_bytes: u64) -> Space {
        self.ceph.pool.share(self.store.file(size_bytes).iter().sum())
    }

    fn redundancy(&self) -> Option<(u64, u64)> {
        self.ceph.redundancy()
    }

    fn directory(&self, _entries: u64, _entries_bytes: u64) -> Option<Space> {
        Some(self.ceph.pool.share(self.store.other(0)))
    }

    fn symlink(&self, target_length: u64) -> Option<Space> {
        Some(self.ceph.pool.share(self.store.other(target_length)))
    }

    fn fast_directory(&self, _entries: u64, _entries_bytes: u64) -> Option<Space> {
        Some(self.ceph.fast.share(self.store.other(0)))
    }

    fn fast_symlink(&self, target_length: u64) -> Option<Space> {
        Some(self.ceph.fast.share(self.store.other(target_length)))
    }

    fn cutoff_most_bytes(&self) -> u64 {
        LARGEST_CUTOFF_BYTES
    }

    /// A file up to the cutoff is a record, and a larger one a descriptor and stripes.
    fn alike_up_to(&self) -> u64 {
        u64::MAX
    }

    fn place(&self, size_bytes: u64, cutoff_bytes: u64) -> Option<Placement> {
        let placed = self.divided(size_bytes, cutoff_bytes);
        if placed.slow_bytes > 0 {
            return Some(placed);
        }
        // Onodes of stripes can be larger than what they describe: the fast size to buy must not fall as the cutoff
        // rises.
        let as_large = self.divided(size_bytes, 0);
        Some(Placement::certain(placed.fast_bytes.max(as_large.fast_bytes), 0))
    }

    fn fast_fill(&self) -> (u64, u64) {
        self.ceph.fast_fill()
    }

    fn settings(&self, wanted: &Wanted) -> Vec<String> {
        self.ceph.settings_for_store(wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::Model;
    use super::super::super::tests::layout;
    use super::super::Spread;
    use super::*;

    #[test]
    fn a_store_pays_for_its_bytes_and_parity() {
        // 20,108 bytes of record and 32 of index, on 2+1; an object of its own needs three shards of 12 KiB.
        let (packed, single) = (layout("ceph:k=2,m=1,as=granulo"), layout("ceph:k=2,m=1"));
        assert_eq!(packed.file(20_000).allocated_bytes, 20_140 * 3 / 2);
        assert_eq!(single.file(20_000).allocated_bytes, 3 * 12_288);
        // A file has a share of an onode: 512 bytes on each of three devices, in 4 MiB.
        assert_eq!(packed.file(20_000).metadata_bytes, 8 + packed.file(20_000).allocated_bytes / 768);
    }

    #[test]
    fn whole_objects_are_those_of_a_pool() {
        let spread = Spread::Erasure { k: 4, m: 2, stripe_unit_bytes: 4 * KIB, unpadded: false };
        let pool = Pool { spread, min_alloc_bytes: 4 * KIB, object_bytes: 4 * MIB, onode_bytes: 512 };
        assert_eq!(pool.share(u128::from(40 * MIB)), pool.file(40 * MIB));
    }

    #[test]
    fn records_are_fast_and_stripes_are_slow() {
        let packed = layout("ceph:k=2,m=1,as=granulo,db=slow");
        let small = packed.place(1000, 64 * KIB).unwrap();
        assert_eq!(small.slow_bytes, 0);
        assert_eq!(small.fast_bytes, 3 * 1140 + 1 + 3 * 1140 / 768);
        let large = packed.place(4 * KIB + 10 * MIB, 64 * KIB).unwrap();
        assert!((15 * MIB..16 * MIB).contains(&(large.slow_bytes as u64)), "{large:?}");
        assert!((3 * 4 * KIB..6 * 4 * KIB).contains(&(large.fast_bytes as u64)), "{large:?}");
    }

    #[test]
    fn settings_have_no_cutoff_that_a_store_refuses() {
        let lines = |cutoff_bytes| layout("ceph:as=granulo").settings(&Wanted::of(cutoff_bytes, 1 << 40)).join("\n");
        let lowered = lines(2 << 30);
        assert!(lowered.contains("--cutoff 1073741824 "), "{lowered}");
        assert!(lowered.contains("a cutoff of at most 1 GiB, not of 2147483648 bytes"), "{lowered}");
        assert!(!lines(1 << 30).contains("at most"));
    }

    #[test]
    fn settings_make_the_store_in_two_classes() {
        let lines = layout("ceph:as=granulo").settings(&Wanted::of(65_536, 1 << 40)).join("\n");
        for part in [
            "ceph osd pool create large erasure large",
            "--storage-class LARGE --data-pool large",
            "granulo store init s3://BUCKET/PREFIX --cutoff 65536 --fast-class STANDARD --slow-class LARGE",
        ] {
            assert!(lines.contains(part), "{part}: {lines}");
        }
        assert!(!lines.contains("lua") && !lines.contains("ceph fs"), "{lines}");
        assert!(Model::parse("ceph:as=granulo,object=0").unwrap_err().to_string().contains("at least 1 byte"));
    }
}
