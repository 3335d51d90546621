//! A store in a bucket: the same records and stripes on one device without redundancy, which the bucket has, in objects
//! of one size.
//!
//! Records and index lie in the class for what is read at random, stripes in the class for what is large. The manifest
//! (about 60 bytes for each object) is not counted as space. docs/FORMAT.md, section 12.

use super::{ATTRIBUTES_BYTES, Alignment, Content, DEFAULT_PACKED_BYTES, Granulo, Striping, largest_record_bytes};
use crate::layout::billing::{ByClass, Reading, Upload};
use crate::units::MIB;

/// Stripe unit of a store, unless it has another one.
const STRIPE_UNIT_BYTES: u32 = 64 << 10;
/// Length of a name, as the model `granulo` has it.
const NAME_BYTES: u64 = 24;
/// An import publishes each time that it has this much content,
const CONTENT_OF_A_SYNC_BYTES: u128 = 256 * MIB as u128;
/// or this many entries.
const ENTRIES_OF_A_SYNC: u128 = 32_768;
/// Most requests of a publication besides full objects: the manifest, and what is left of segments, of extent files and
/// of the index.
const PUTS_OF_A_SYNC: u128 = 4;
/// Publications that begin and end an epoch.
const PUTS_OF_AN_EPOCH: u128 = 2;

/// Files in a store in a bucket.
#[derive(Debug)]
pub(in crate::layout) struct InBucket {
    store: Granulo,
    object_bytes: u64,
}

impl InBucket {
    /// Sizes that objects may have, as FORMAT.md says.
    pub(in crate::layout) const OBJECT_BYTES: [u64; 2] = [8 * MIB, 64 * MIB];

    /// A store whose records are up to `cutoff_bytes`, in objects of `object_bytes`.
    pub(in crate::layout) fn new(cutoff_bytes: u64, object_bytes: u64) -> InBucket {
        let store = Granulo {
            cutoff_bytes,
            copies: 1,
            striping: Striping { stripe_unit_bytes: STRIPE_UNIT_BYTES, data: 1, parity: 0 },
            packed_bytes: DEFAULT_PACKED_BYTES,
            alignment: Alignment::None,
            name_bytes: NAME_BYTES,
            attributes_bytes: ATTRIBUTES_BYTES,
        };
        InBucket { store, object_bytes }
    }

    /// Bytes of record (or descriptor) and index, and bytes in stripes.
    pub(in crate::layout) fn file(&self, size_bytes: u64) -> ByClass<u128> {
        self.file_with(size_bytes, self.store.cutoff_bytes)
    }

    /// The same, with another cutoff.
    pub(in crate::layout) fn file_with(&self, size_bytes: u64, cutoff_bytes: u64) -> ByClass<u128> {
        let (records, stripes) = self.store.parts(size_bytes, cutoff_bytes);
        [records + self.store.index_bytes(), stripes]
    }

    /// Bytes of a directory, which has no content, or of a symlink: a record and its index entry.
    pub(in crate::layout) fn other(&self, content_bytes: u64) -> u128 {
        self.store.records(Content::Other, content_bytes) + self.store.index_bytes()
    }

    /// The index entry of a file.
    pub(in crate::layout) fn index_bytes(&self) -> u128 {
        self.store.index_bytes()
    }

    /// Objects for this many bytes.
    pub(in crate::layout) fn objects(&self, bytes: u128) -> u128 {
        bytes.div_ceil(self.object_bytes.into())
    }

    /// Requests of an import besides its objects, at most.
    pub(in crate::layout) fn publishing_puts(&self, upload: &Upload) -> u128 {
        let syncs = 1 + upload.size_bytes / CONTENT_OF_A_SYNC_BYTES + upload.files / ENTRIES_OF_A_SYNC;
        syncs.saturating_mul(PUTS_OF_A_SYNC).saturating_add(PUTS_OF_AN_EPOCH)
    }

    /// A file is read with its record; a large one with its descriptor, and a range of each object that has some of it.
    /// The index is in a cache on the reader's machine.
    pub(in crate::layout) fn reading(&self, size_bytes: u64) -> ByClass<Reading> {
        let packed_bytes = self.store.packed_bytes;
        if size_bytes <= largest_record_bytes(self.store.cutoff_bytes, packed_bytes) {
            return [Reading { gets: 1, bytes: size_bytes }, Reading::default()];
        }
        let striped_bytes = size_bytes - packed_bytes;
        let stripes = Reading { gets: striped_bytes.div_ceil(self.object_bytes), bytes: striped_bytes };
        [Reading { gets: 1, bytes: packed_bytes }, stripes]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Model;
    use crate::units::KIB;

    #[test]
    fn a_file_takes_what_the_model_of_the_store_says() {
        let model = Model::parse("granulo:data=1").unwrap().layout;
        let bucket = InBucket::new(64 * KIB, 32 * MIB);
        for size in [0, 1, 4096, 65_536, 65_537, 1 << 20, 100 << 20, 10 << 30, u64::MAX] {
            let space = model.file(size);
            assert_eq!(bucket.file(size).iter().sum::<u128>(), space.allocated_bytes + space.metadata_bytes, "{size}");
            let read = bucket.reading(size);
            assert_eq!(read.iter().map(|part| u128::from(part.bytes)).sum::<u128>(), u128::from(size));
            assert_eq!(read[1].bytes > 0, bucket.file(size)[1] > 0, "{size}");
        }
    }

    #[test]
    fn large_files_are_read_by_ranges_of_objects() {
        let gets = |size: u64| InBucket::new(64 * KIB, 32 * MIB).reading(size).map(|part| part.gets);
        assert_eq!(gets(0), [1, 0]);
        assert_eq!(gets(64 * KIB), [1, 0]);
        assert_eq!(gets(64 * KIB + 1), [1, 1]);
        assert_eq!(gets(100 * MIB), [1, 4]);
        // A descriptor would need more than 8 KiB do.
        assert_eq!(InBucket::new(0, 8 * MIB).reading(8 * KIB).map(|part| part.gets), [1, 0]);
    }

    #[test]
    fn fifty_thousand_files_are_a_thousand_times_fewer_requests() {
        // 50,000 x 20,000 B, as in `make bench-pack`.
        let bucket = InBucket::new(64 * KIB, 32 * MIB);
        let bytes = 50_000 * bucket.file(20_000)[0];
        let upload = Upload { files: 50_000, size_bytes: 1_000_000_000, billed_bytes: [bytes, 0] };
        assert_eq!(bucket.objects(bytes), 31);
        assert_eq!(bucket.objects(bytes) + bucket.publishing_puts(&upload), 53);
    }
}
