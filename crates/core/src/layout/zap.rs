//! A ZFS directory: a ZAP object (module/zfs/zap_micro.c, zap.c, zap_leaf.c).
//!
//! - Up to 2,047 entries with names of up to 49 bytes: one block of 64 bytes for each entry and 64 more, in steps of
//!   512 bytes.
//! - Above: leaves of 16 KiB with chunks of 24 bytes, one for an entry, one for its value, one for each 21 bytes of its
//!   name with the terminating zero; a full leaf is split, which leaves them filled to ln 2 on average; and a block of
//!   pointers.
//!
//! All of them are compressed. Their compressed sizes are assumed from measurements: a small directory to a half (2.2
//! to 1 with random names, 8 to 1 with numbered ones), a leaf to 10 KiB.

use crate::units::KIB;

const SMALL_ENTRY_BYTES: u64 = 64;
const SMALL_MOST_ENTRIES: u64 = 2047;
const GRAIN_BYTES: u64 = 512;
const CHUNK_BYTES: u64 = 24;
const CHUNK_NAME_BYTES: u64 = 21;
/// Bytes in a leaf of 16 KiB that is 69 % full.
const LEAF_FILL_BYTES: u64 = 11_356;
const LEAF_STORED_BYTES: u64 = 10 * KIB;

/// The chunks of an entry in a large directory.
pub(super) fn entry_bytes(name_length: u64) -> u64 {
    CHUNK_BYTES.saturating_mul(2 + name_length.saturating_add(1).div_ceil(CHUNK_NAME_BYTES))
}

/// The number of blocks, and the stored bytes of each.
pub(super) fn blocks(entries: u64, entries_bytes: u64) -> (u64, u64) {
    if entries <= SMALL_MOST_ENTRIES {
        let block = ((entries + 1) * SMALL_ENTRY_BYTES).next_multiple_of(GRAIN_BYTES);
        return (1, (block / 2).max(GRAIN_BYTES));
    }
    (1 + entries_bytes.div_ceil(LEAF_FILL_BYTES), LEAF_STORED_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_takes_a_chunk_for_each_21_bytes() {
        assert_eq!([1, 20, 21, 41, 42, 255].map(entry_bytes), [72, 72, 96, 96, 120, 24 * 15]);
        assert_eq!(entry_bytes(u64::MAX), u64::MAX);
    }

    #[test]
    fn directories_take_what_was_measured_or_up_to_twice_as_much() {
        // Sectors of 4 KiB for one copy, from st_blocks on a pool of zfs-fuse 0.7.0: names of 16 bytes with a number,
        // of 20 and 32 bytes with random digits.
        for (entries, name_length, measured) in [
            (0, 16, 1),
            (100, 20, 1),
            (1000, 20, 7),
            (2047, 20, 14),
            (2048, 16, 34),
            (4000, 16, 66),
            (4000, 20, 65),
            (20_000, 20, 311),
            (30_000, 16, 514),
            (4000, 32, 96),
            (20_000, 32, 437),
        ] {
            let (count, stored) = blocks(entries, entries * entry_bytes(name_length));
            let sectors = count * stored.div_ceil(4096);
            assert!(
                sectors >= measured && sectors * 2 <= measured * 3 + 6,
                "{entries}: {sectors}, measured {measured}"
            );
        }
    }
}
