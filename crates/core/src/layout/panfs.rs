//! PanFS: mirrored small files, RAID-5 over component objects above. Welch and Noer, "Optimizing a hybrid SSD/HDD HPC
//! storage system based on file size distributions" (MSST 2013), section III.
//!
//! Blocks of 16 KiB. A component object of `x` bytes needs a block for its descriptor and blocks for its data; packing
//! stores the first 12 KiB of data in the descriptor's block: `object(x) = 16 KiB + up(max(0, x - 12 KiB), 16 KiB)`.
//! Files up to 64 KiB are two objects with all of the data. Larger ones have stripe units of 64 KiB over `data` objects
//! and a parity object with 64 KiB for each stripe: the sum of `object(x)` over all of them.
//!
//! The sum has a closed form. A data object's units except the file's last are whole, and
//! `object(64 KiB * n) = 16 KiB + 64 KiB * n` with and without packing; so every component needs its descriptor, every
//! whole unit and every parity unit 64 KiB, and only the unit with the end of the file depends on packing.

use super::{Kind, Layout, Opt, Placement, Range, Space, round_up_wide};
use crate::units::KIB;

const BLOCK_BYTES: u64 = 16 * KIB;
/// Bytes of an object's data that fit beside its descriptor.
const PACKED_BYTES: u64 = 12 * KIB;
const UNIT_BYTES: u64 = 64 * KIB;
/// Files up to here are mirrored.
const MIRRORED_BYTES: u64 = 64 * KIB;
/// Stripes of a parity group before the next set of components begins, if there is one.
const STRIPES_PER_SET: u64 = 2000;

/// `panfs:data=8,packing=on`.
pub(super) const PANFS: Kind = Kind {
    name: "panfs",
    summary: "PanFS object RAID: two copies up to 64 KiB, RAID-5 above",
    options: &[
        Opt {
            name: "data",
            default: "8",
            range: Range::Count { least: 2, most: 20 },
            meaning: "data objects of a full stripe, plus one parity object; the system chooses 7 to 10",
        },
        Opt {
            name: "packing",
            default: "on",
            range: Range::Switch,
            meaning: "the first 12 KiB of an object share the block of its descriptor",
        },
        Opt {
            name: "osds",
            default: "0",
            range: Range::Count { least: 0, most: 100_000 },
            meaning: "storage devices, for files above 2,000 stripes; 0: only those of one stripe",
        },
    ],
    build: |options| {
        let (data, osds) = (options.count("data"), options.count("osds"));
        let width = data + 1;
        if osds != 0 && osds < width {
            return Err(format!(
                "osds={osds} cannot hold a stripe of data={data} and a parity object: it needs at least osds={width}"
            ));
        }
        Ok(Box::new(Panfs { data, packing: options.switch("packing"), sets_most: (osds / width).max(1) }))
    },
};

#[derive(Debug)]
struct Panfs {
    data: u64,
    packing: bool,
    /// Most sets of component objects side by side, each object on a device of its own.
    sets_most: u64,
}

impl Panfs {
    /// The component objects of a file above 64 KiB; each exists once it has data.
    fn components(&self, size_bytes: u64) -> u64 {
        let units = size_bytes.div_ceil(UNIT_BYTES);
        let units_per_set = self.data * STRIPES_PER_SET;
        let sets_full = (units / units_per_set).min(self.sets_most);
        let last_set = if sets_full == self.sets_most { 0 } else { (units - sets_full * units_per_set).min(self.data) };
        sets_full * (self.data + 1) + if last_set == 0 { 0 } else { last_set + 1 }
    }

    /// Bytes that the last `bytes` of an object add to the blocks of its data; `before`: after whole units.
    fn end_bytes(&self, before: bool, bytes: u64) -> u128 {
        let packed = if self.packing { PACKED_BYTES } else { 0 };
        if before {
            // The packed bytes shift the later blocks: `up(64 KiB * n + bytes - 12 KiB) - 64 KiB * n`.
            return round_up_wide((bytes + UNIT_BYTES - packed).into(), BLOCK_BYTES) - u128::from(UNIT_BYTES);
        }
        round_up_wide(bytes.saturating_sub(packed).into(), BLOCK_BYTES)
    }

    /// Bytes of data and parity besides the blocks of the descriptors.
    fn beside_descriptors(&self, size_bytes: u64) -> u128 {
        if size_bytes <= MIRRORED_BYTES {
            return 2 * self.end_bytes(false, size_bytes);
        }
        let (whole, rest) = (size_bytes / UNIT_BYTES, size_bytes % UNIT_BYTES);
        let stripes = size_bytes.div_ceil(UNIT_BYTES * self.data);
        let end = if rest == 0 { 0 } else { self.end_bytes(self.unit_is_behind_another(whole), rest) };
        u128::from(UNIT_BYTES) * (u128::from(whole) + u128::from(stripes)) + end
    }

    /// Whether the unit with this number is not the first of its object.
    fn unit_is_behind_another(&self, unit: u64) -> bool {
        let units_per_set = self.data * STRIPES_PER_SET;
        let in_set = if unit / units_per_set < self.sets_most { unit % units_per_set } else { unit };
        in_set >= self.data
    }

    fn objects(&self, size_bytes: u64) -> u64 {
        if size_bytes <= MIRRORED_BYTES { 2 } else { self.components(size_bytes) }
    }

    fn descriptor_bytes(&self, size_bytes: u64) -> u128 {
        u128::from(self.objects(size_bytes)) * u128::from(BLOCK_BYTES)
    }
}

impl Layout for Panfs {
    fn file(&self, size_bytes: u64) -> Space {
        let metadata_bytes = self.descriptor_bytes(size_bytes);
        Space { allocated_bytes: metadata_bytes + self.beside_descriptors(size_bytes), metadata_bytes }
    }

    fn metadata_is_within(&self) -> bool {
        true
    }

    fn redundancy(&self) -> Option<(u64, u64)> {
        Some((self.data + 1, self.data))
    }

    fn data_bytes(&self, size_bytes: u64) -> u128 {
        self.beside_descriptors(size_bytes)
    }

    /// The whole of a file up to the cutoff; for a larger one the blocks of its descriptors, with the data packed into
    /// them.
    fn alike_up_to(&self) -> u64 {
        u64::MAX
    }

    fn overflows(&self) -> bool {
        true
    }

    fn place(&self, size_bytes: u64, cutoff_bytes: u64) -> Option<Placement> {
        let (descriptors, data) = (self.descriptor_bytes(size_bytes), self.beside_descriptors(size_bytes));
        Some(if size_bytes <= cutoff_bytes {
            Placement::certain(descriptors + data, 0)
        } else {
            Placement::certain(descriptors, data)
        })
    }
}

/// Models for the laws of `tests`, besides the defaults.
#[cfg(test)]
pub(super) const TESTED: &[&str] = &[
    "panfs:packing=off",
    "panfs:data=2",
    "panfs:data=2,packing=off",
    "panfs:data=7",
    "panfs:data=10,packing=off",
    "panfs:osds=1000",
    "panfs:data=10,osds=25",
    "panfs:data=3,packing=off,osds=11",
];

#[cfg(test)]
mod tests {
    use super::super::Model;
    use super::super::tests::allocated;
    use super::*;
    use crate::units::{GIB, MIB, TIB};
    use proptest::prelude::*;

    fn kib(model: &str, size_bytes: u64) -> u128 {
        let bytes = allocated(model, size_bytes);
        assert_eq!(bytes % 1024, 0);
        bytes / 1024
    }

    #[test]
    fn the_sizes_that_the_paper_gives() {
        // "A zero-length file and a 12K file occupy the same space: 32 K"; "a zero-length file occupies 32KB"; "a 1
        // byte file would occupy 64KB"; "a file that is 64KB in length occupies 160KB".
        for size in [0, 1, 12 * KIB] {
            assert_eq!(kib("panfs", size), 32);
        }
        assert_eq!(kib("panfs:packing=off", 0), 32);
        assert_eq!(kib("panfs:packing=off", 1), 64);
        assert_eq!(kib("panfs", 64 * KIB), 160);
        assert_eq!(kib("panfs:packing=off", 64 * KIB), 160);
    }

    #[test]
    fn the_steps_of_its_figure_1() {
        // Steps of 32 KiB while mirrored, at 12 KiB and every 16 KiB from there.
        let steps: Vec<u64> = (0..64 * KIB).filter(|size| kib("panfs", *size) != kib("panfs", size + 1)).collect();
        assert_eq!(steps, [12 * KIB, 28 * KIB, 44 * KIB, 60 * KIB]);
        assert_eq!(kib("panfs", 28 * KIB + 1) - kib("panfs", 28 * KIB), 32);
        // Then two data objects and parity: 80 + 16 + 80 KiB; steps of one block; another object at 128 KiB.
        assert_eq!(kib("panfs", 64 * KIB + 1), 176);
        assert_eq!(kib("panfs", 76 * KIB), 176);
        assert_eq!(kib("panfs", 76 * KIB + 1), 192);
        assert_eq!(kib("panfs", 128 * KIB), 240);
        assert_eq!(kib("panfs", 128 * KIB + 1), 256);
    }

    #[test]
    fn the_steps_of_its_figure_2() {
        // A full stripe: 8 * 64 KiB of data, 64 KiB of parity, 9 descriptors.
        assert_eq!(kib("panfs", 512 * KIB), 576 + 144);
        // One more byte needs another 64 KiB of parity, and fits into the last block of the first object.
        assert_eq!(kib("panfs", 512 * KIB + 1), 576 + 144 + 64);
        assert_eq!(kib("panfs", 524 * KIB), 576 + 144 + 64);
        assert_eq!(kib("panfs", 524 * KIB + 1), 576 + 144 + 64 + 16);
        assert_eq!(kib("panfs", 1024 * KIB), 2 * 576 + 144);
        // Large files: 12.5 % and the descriptors.
        assert_eq!(allocated("panfs", TIB), u128::from(TIB) * 9 / 8 + 9 * 16 * 1024);
    }

    #[test]
    fn a_file_above_2000_stripes_takes_another_set_where_there_are_devices() {
        let set = 1000 * MIB;
        assert_eq!(kib("panfs:osds=18", set), 1_152_000 + 144);
        // One byte: a unit of parity, and the descriptors of a data object and of the parity object.
        assert_eq!(kib("panfs:osds=18", set + 1), 1_152_000 + 144 + 64 + 32);
        assert_eq!(kib("panfs:osds=17", set + 1), 1_152_000 + 144 + 64);
        // No third set in 18 devices.
        let descriptors = |model: &str| Model::parse(model).unwrap().layout.file(3 * GIB).metadata_bytes / (16 * 1024);
        assert_eq!((descriptors("panfs"), descriptors("panfs:osds=18"), descriptors("panfs:osds=1000")), (9, 18, 36));
    }

    #[test]
    fn a_small_file_is_fast_and_a_large_one_keeps_its_descriptors_there() {
        let panfs = Model::parse("panfs").unwrap().layout;
        assert_eq!(panfs.place(64 * KIB, 64 * KIB), Some(Placement::certain(160 * 1024, 0)));
        assert_eq!(panfs.place(64 * KIB + 1, 64 * KIB), Some(Placement::certain(48 * 1024, 128 * 1024)));
        assert_eq!(panfs.place(GIB, 64 * KIB).unwrap().fast_bytes, 9 * 16 * 1024);
    }

    #[test]
    fn a_stripe_that_does_not_fit_is_refused() {
        let said = Model::parse("panfs:data=10,osds=10").unwrap_err().to_string();
        assert!(said.contains("at least osds=11"), "{said}");
    }

    /// The sum over the objects, one by one.
    fn by_objects(panfs: &Panfs, size: u64) -> u128 {
        let object = |bytes: u64| {
            let packed = if panfs.packing { PACKED_BYTES } else { 0 };
            u128::from(BLOCK_BYTES) + round_up_wide(bytes.saturating_sub(packed).into(), BLOCK_BYTES)
        };
        if size <= MIRRORED_BYTES {
            return 2 * object(size);
        }
        let width = panfs.data as usize;
        let mut sets = vec![vec![0u64; width + 1]; panfs.sets_most as usize];
        let units = size.div_ceil(UNIT_BYTES);
        for unit in 0..units {
            let stripe = unit / panfs.data;
            // Beyond the last set, its objects grow.
            let set = ((stripe / STRIPES_PER_SET) as usize).min(sets.len() - 1);
            let bytes = if unit + 1 == units { size - unit * UNIT_BYTES } else { UNIT_BYTES };
            sets[set][(unit % panfs.data) as usize] += bytes;
            if unit.is_multiple_of(panfs.data) {
                sets[set][width] += UNIT_BYTES;
            }
        }
        sets.concat().into_iter().filter(|bytes| *bytes > 0).map(object).sum()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        #[test]
        fn the_closed_form_is_the_sum(data in 2u64..12, packing: bool, sets_most in 1u64..4, size in 0..3 * GIB, edge in 0..60_000u64) {
            let panfs = Panfs { data, packing, sets_most };
            for size in [size, size >> 12, edge * 16 * KIB, edge * UNIT_BYTES + 1, edge * UNIT_BYTES + PACKED_BYTES] {
                prop_assert_eq!(panfs.file(size).allocated_bytes, by_objects(&panfs, size), "{:?} {}", panfs, size);
            }
        }
    }
}
