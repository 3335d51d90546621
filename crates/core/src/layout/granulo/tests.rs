//! Records, descriptors and stripes to the byte, and the laws of their division.

use super::*;
use crate::layout::Model;
use proptest::prelude::*;

fn striping() -> impl Strategy<Value = Striping> {
    (12u32..=22, 1u8..=64, 0u8..=2)
        .prop_map(|(shift, data, parity)| Striping { stripe_unit_bytes: 1 << shift, data, parity })
        .prop_filter("stripes are bounded", |striping| striping.check().is_ok())
}

/// Sizes of every magnitude up to a few chunks of the largest unit, many of them at an edge of a unit.
fn bytes() -> impl Strategy<Value = u64> {
    let magnitude = (0u32..36, any::<u64>()).prop_map(|(shift, bits)| (bits >> 28) >> shift);
    let edge = (12u32..34, 1u64..70, 0u64..3).prop_map(|(shift, times, beside)| (times << shift) + beside - 1);
    prop_oneof![magnitude, edge].prop_filter("something is striped", |&bytes| bytes > 0)
}

#[test]
fn twenty_thousand_bytes_take_half_a_per_cent_more() {
    // The data set of Vorontsov: 50,000 files of 20,000 bytes, here with their names and their index entries.
    let space = Model::parse("granulo:name=12").unwrap().layout.file(20_000);
    assert_eq!(space.allocated_bytes, 20_096);
    assert_eq!(space.allocated_bytes + space.metadata_bytes, 20_128);
}

#[test]
fn an_access_time_and_a_name_are_counted_to_the_byte() {
    // Header, place in the list, name, attributes, access time, content, padding.
    for (model, bytes) in
        [("granulo:name=0", 48 + 8 + 28 + 5 + 3), ("granulo:name=9,atime=on", 48 + 8 + 9 + 28 + 14 + 5)]
    {
        let layout = Model::parse(model).unwrap().layout;
        assert_eq!(layout.symlink(5).unwrap().allocated_bytes, bytes, "{model}");
        assert_eq!(layout.file(5), layout.symlink(5).unwrap(), "{model}");
    }
}

#[test]
fn a_large_object_is_striped_with_parity() {
    let model = Model::parse("granulo:small=mirror,large=raid5,data=8").unwrap();
    // Two full stripes of 512 KiB after the packed bytes: 9 units each, and two descriptors with 9 components and
    // 18 checksums.
    let size = 4 * KIB + 2 * 512 * KIB;
    let content = 16 + 4096 + 16 + 9 * 10 + 18 * 8;
    let allocated = model.layout.file(size).allocated_bytes;
    assert_eq!(
        allocated,
        2 * (record_bytes(Alignment::None, Content::Descriptor, 24, 28, content) + 8) + 2 * 9 * 64 * u128::from(KIB)
    );
    // One byte more begins a stripe: a sector and a checksum of data, and of parity.
    assert_eq!(model.layout.file(size + 1).allocated_bytes, allocated + 2 * 4096 + 2 * 16);
    let placed = model.layout.place(size, 64 * KIB).unwrap();
    assert_eq!(placed.slow_bytes, 2 * 9 * 64 * u128::from(KIB));
    // What descriptors pack besides is on fast devices, with as many copies as records.
    let packing = Model::parse("granulo:small=mirror,large=raid5,data=8,packed=12KiB").unwrap();
    let placed_more = packing.layout.place(size + 8 * KIB, 64 * KIB).unwrap();
    assert_eq!(placed_more.slow_bytes, placed.slow_bytes);
    assert_eq!(packing.layout.file(size + 8 * KIB).allocated_bytes, allocated + 2 * 8 * u128::from(KIB));
}

#[test]
fn what_descriptors_pack_decides_what_is_always_a_record() {
    for (packed, largest) in [("4K", 8 * KIB), ("12KiB", 16 * KIB), ("64K", 68 * KIB)] {
        let layout = Model::parse(&format!("granulo:cutoff=0,packed={packed}")).unwrap().layout;
        let slow = |size| layout.place(size, 0).unwrap().slow_bytes;
        assert_eq!(slow(largest), 0, "{packed}");
        assert_eq!(slow(largest + 1), 8 * u128::from(KIB), "{packed}");
    }
    for wrong in ["5K", "12345", "6KiB"] {
        let said = Model::parse(&format!("granulo:packed={wrong}")).unwrap_err().to_string();
        assert!(said.contains("a descriptor must pack a multiple of 4 KiB, from 4 to 64 KiB"), "{said}");
    }
}

#[test]
fn no_cutoff_makes_a_record_of_more_than_a_gibibyte() {
    let layout = Model::parse("granulo").unwrap().layout;
    assert_eq!(layout.place(GIB, u64::MAX).unwrap().slow_bytes, 0);
    assert_eq!(layout.place(GIB + 1, u64::MAX), layout.place(GIB + 1, 0));
}

#[test]
fn stripes_that_do_not_fit_into_memory_are_refused() {
    let said = Model::parse("granulo:data=64,stripe_unit=1M").unwrap_err().to_string();
    assert!(said.contains("64 units of 1048576 bytes are more than the largest stripe, 32 MiB"), "{said}");
    Model::parse("granulo:data=32,stripe_unit=1M").unwrap();
}

#[test]
fn units_grow_with_the_object_up_to_a_stripe_in_memory() {
    let rule = |data| Striping { stripe_unit_bytes: 64 << 10, data, parity: 1 };
    let units = |data| (0..100).map(|chunk| rule(data).unit_bytes(chunk) >> 10).collect::<Vec<_>>();
    assert_eq!(units(8)[..8], [64, 128, 256, 512, 1024, 2048, 4096, 4096]);
    assert_eq!(units(10)[4..], [[1024; 1].as_slice(), &[2048; 95]].concat());
    assert_eq!(units(64)[2..5], [256, 512, 512]);
    assert_eq!(rule(10).longest_chunk_bytes(0), 1020 * 64 * KIB);
    // With few data units the extent file limits a chunk: 256 units of 4 MiB on a device.
    assert_eq!([1, 2, 3].map(|data| rule(data).longest_chunk_bytes(6)), [GIB, 2 * GIB, 3 * GIB]);
    assert_eq!(rule(4).longest_chunk_bytes(6), 4 * GIB);
    assert_eq!(rule(5).longest_chunk_bytes(6), 204 * 5 * 4 * MIB);
    // A tebibyte in a descriptor of a few mebibytes.
    assert!(rule(8).descriptor_content_bytes(4 * KIB, 1 << 40) < 3 * u128::from(MIB));
}

proptest! {
    #[test]
    fn totals_are_the_sum_over_the_chunks(rule in striping(), bytes in bytes()) {
        let chunks: Vec<Stripes> = rule.chunks(bytes).collect();
        prop_assert_eq!(chunks.iter().map(|chunk| chunk.length_bytes).sum::<u64>(), bytes);
        prop_assert_eq!(chunks.iter().map(|chunk| u128::from(chunk.allocated_bytes())).sum::<u128>(), rule.striped_bytes(bytes));
        let map: u64 = chunks.iter().map(|chunk| chunk.map_bytes()).sum();
        prop_assert_eq!(rule.descriptor_content_bytes(12 * KIB, bytes + 12 * KIB), u128::from(16 + 12 * KIB + map));
        for chunk in &chunks {
            prop_assert_eq!(chunk.check(), Ok(()));
            let longest = (0..chunk.width()).map(|component| chunk.component_bytes(component)).max();
            prop_assert!(longest <= Some(LARGEST_EXTENT_FILE_BYTES));
        }
        for chunk in &chunks[..chunks.len() - 1] {
            prop_assert_eq!(chunk.length_bytes % chunk.stripe_bytes(), 0);
        }
    }

    #[test]
    fn every_unit_has_its_place(rule in striping(), bytes in bytes()) {
        // The last chunk: all others are full.
        let stripes = rule.chunks(bytes).last().unwrap();
        let (width, data) = (stripes.width(), usize::from(stripes.data));
        let (mut next, mut content, mut components) = (0, 0, vec![0u64; width]);
        for stripe in 0..stripes.count() {
            for unit in 0..width {
                let component = stripes.component(stripe, unit);
                prop_assert_eq!(stripes.unit_in(stripe, component), unit);
                let length = stripes.unit_length(stripe, unit) as u64;
                prop_assert!(length <= stripes.unit_bytes.into() && length.is_multiple_of(SECTOR_BYTES));
                prop_assert_eq!(stripes.checksum_index(stripe, unit), (length > 0).then_some(next), "{} {}", stripe, unit);
                next += usize::from(length > 0);
                if length > 0 {
                    components[component] = stripe as u64 * u64::from(stripes.unit_bytes) + length;
                }
                if unit < data {
                    content += stripes.content_bytes(stripe, unit);
                    prop_assert!(length <= stripes.unit_length(stripe, 0) as u64);
                } else {
                    prop_assert_eq!(length, stripes.unit_length(stripe, 0) as u64);
                }
            }
        }
        prop_assert_eq!((next, content), (stripes.units(), stripes.length_bytes));
        let said: Vec<u64> = (0..width).map(|component| stripes.component_bytes(component)).collect();
        prop_assert_eq!(said.iter().sum::<u64>(), stripes.allocated_bytes());
        prop_assert_eq!(said, components);
    }
}
