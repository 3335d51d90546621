//! Pools as a cluster allocates in them, fast pools, and what is typed.

use super::super::Model;
use super::super::tests::{allocated, layout};
use super::*;

#[test]
fn one_kib_takes_what_the_manual_says() {
    // bluestore-config-ref: three copies of 1 KB strand about 9 KB; on 4+2 it needs 6 * 4 KB = 24 KB.
    assert_eq!(allocated("ceph:pool=replicated", 1024) - 3 * 1024, 9 * 1024);
    assert_eq!(allocated("ceph:k=4,m=2", 1024), 24 * 1024);
}

#[test]
fn a_cluster_of_16_2_15_allocates_the_same() {
    // Sum of bluestore_allocated over all OSDs, for one object: docs/MODELS.md.
    for (size, replicated, erasure) in [
        (0, 0, 0),
        (1, 12_288, 24_576),
        (4_096, 12_288, 24_576),
        (4_097, 24_576, 24_576),
        (16_384, 49_152, 24_576),
        (16_385, 61_440, 49_152),
        (65_537, 208_896, 122_880),
        (100_000, 307_200, 172_032),
        (1_000_000, 3_010_560, 1_523_712),
        (4_194_303, 12_582_912, 6_291_456),
        (4_194_304, 12_582_912, 6_291_456),
    ] {
        assert_eq!(allocated("ceph:pool=replicated", size), replicated, "{size}");
        assert_eq!(allocated("ceph:k=4,m=2", size), erasure, "{size}");
    }
}

#[test]
fn unpadded_shards_are_as_long_as_in_the_test_of_ceph() {
    // TestECUtil.cc: k=4, m=2, chunks of 4 KiB. 0x4D000, 0x4CCFF and 0x4C001 bytes: the first data shard and both
    // parity shards have 0x14000 bytes, the other data shards 0x13000.
    for size in [0x4D000, 0x4CCFF, 0x4C001] {
        assert_eq!(allocated("ceph:fast_ec=on", size), 3 * 0x14000 + 3 * 0x13000);
    }
    assert_eq!(allocated("ceph:fast_ec=on", 0x4C000), 6 * 0x13000);
    assert_eq!(allocated("ceph:fast_ec=on", 0x4D001), 4 * 0x14000 + 2 * 0x13000);
    // One small data shard and its two parities, instead of six.
    assert_eq!(allocated("ceph:fast_ec=on", 1024), 3 * 4096);
    assert_eq!(allocated("ceph:fast_ec=on,stripe_unit=16K", 20_000), 16_384 + 4_096 + 2 * 16_384);
}

#[test]
fn unpadded_never_takes_more_than_padded() {
    for size in (0..200_000).step_by(511) {
        assert!(allocated("ceph:fast_ec=on,k=5", size) <= allocated("ceph:k=5", size), "{size}");
    }
}

#[test]
fn large_files_are_cut_into_objects() {
    let whole = allocated("ceph:min_alloc=64K", 4 * MIB);
    assert_eq!(allocated("ceph:min_alloc=64K", 40 * MIB + 1), 10 * whole + 6 * 64 * 1024);
    // Onodes: 11 objects of 6 shards.
    let space = layout("ceph:onode=500").file(40 * MIB + 1);
    assert_eq!(space.metadata_bytes, 11 * 6 * 500 + space.allocated_bytes / 768);
    // An empty file has one object.
    assert_eq!(layout("ceph").file(0).metadata_bytes, 6 * 512);
}

#[test]
fn onodes_are_as_large_as_measured() {
    // Keys and values of CephFS objects of 4 MiB on one device: 5,974 bytes replicated, 1,875 for each shard on
    // 4+2. Small ones had 433 to 600 bytes.
    let replicated = layout("ceph:pool=replicated,copies=1").file(4 * MIB).metadata_bytes;
    let shard = layout("ceph:k=4,m=2").file(4 * MIB).metadata_bytes / 6;
    assert!((5_964..=5_984).contains(&replicated), "{replicated}");
    assert!((1_865..=1_885).contains(&shard), "{shard}");
    assert!((433..=600).contains(&layout("ceph:pool=replicated,copies=1").file(1).metadata_bytes));
}

#[test]
fn a_file_system_of_16_2_15_allocates_the_same() {
    // Files of CephFS in a pool with 4+2: docs/MODELS.md.
    for (size, measured) in
        [(4_194_305, 6_316_032), (10_000_000, 15_015_936), (12_652_912, 18_997_248), (100_000, 172_032)]
    {
        assert_eq!(allocated("ceph", size), measured, "{size}");
    }
    assert_eq!(layout("ceph").reported(100_000), Some(100_352));
}

#[test]
fn devices_with_large_units_allocate_the_same() {
    // The same cluster with min_alloc of 16 KiB on the devices of the replicated pool, and 64 KiB on the others.
    for (size, replicated, erasure) in [
        (1, 49_152, 393_216),
        (16_385, 98_304, 393_216),
        (65_537, 245_760, 393_216),
        (262_144, 786_432, 393_216),
        (1_000_000, 3_047_424, 1_572_864),
        (4_194_304, 12_582_912, 6_291_456),
    ] {
        assert_eq!(allocated("ceph:pool=replicated,min_alloc=16K", size), replicated, "{size}");
        assert_eq!(allocated("ceph:min_alloc=64K", size), erasure, "{size}");
    }
}

#[test]
fn small_files_lie_in_the_fast_pool() {
    let ceph = layout("ceph:db=slow");
    let small = ceph.place(1000, 65_536).unwrap();
    // Three blocks, three onodes, and the checksums of three blocks.
    assert_eq!((small.fast_bytes, small.slow_bytes), (3 * (4096 + 512) + 3 * 4096 / 768, 0));
    let large = ceph.place(65_537, 65_536).unwrap();
    assert_eq!(large.fast_bytes, 0);
    assert_eq!(large.slow_bytes, ceph.file(65_537).allocated_bytes + ceph.file(65_537).metadata_bytes);
    // With block.db on fast devices the onodes of large files are on them.
    assert_eq!(layout("ceph").place(65_537, 65_536).unwrap().fast_bytes, ceph.file(65_537).metadata_bytes);
}

#[test]
fn settings_name_the_cutoff_and_the_pools() {
    let lines = layout("ceph:fast_ec=on,stripe_unit=16K").settings(&Wanted::of(65_536, 3_000_000)).join("\n");
    for part in [
        "k=4 m=2 stripe_unit=16384",
        "allow_ec_optimizations true",
        "max_bytes 1000000",
        "ContentLength > 65536",
        "pool set small size 3",
        "bluestore_min_alloc_size_hdd 4096",
        "--db-devices",
    ] {
        assert!(lines.contains(part), "{part}: {lines}");
    }
}

#[test]
fn the_quota_is_what_metadata_and_fill_leave_to_one_copy() {
    let said = |model: &str, metadata_bytes: u128| {
        let wanted = Wanted { metadata_bytes, fill_fraction: 0.5, ..Wanted::of(4096, 6_000_000_000) };
        layout(model).settings(&wanted).join("\n")
    };
    assert!(said("ceph", 0).contains("max_bytes 1000000000\n"));
    assert!(said("ceph", 600_000_000).contains("max_bytes 800000000\n"));
    assert!(said("ceph:fast_copies=2", 600_000_000).contains("max_bytes 1200000000\n"));
    // A quota of 0 would mean none.
    for metadata_bytes in [2_999_999_998, 3_000_000_000, u128::MAX] {
        let said = said("ceph", metadata_bytes);
        assert!(!said.contains("max_bytes") && said.contains("# No space is left for data"), "{said}");
    }
    layout("ceph").settings(&Wanted::of(u64::MAX, u128::MAX));
}

#[test]
fn settings_say_how_much_is_for_block_db() {
    let said = |model: &str| {
        layout(model).settings(&Wanted { metadata_bytes: 1 << 30, ..Wanted::of(4096, 10 << 30) }).join("\n")
    };
    let fast = said("ceph");
    assert!(fast.contains("Of the 10 GiB of fast devices, at least 1 GiB are for block.db (DBSSD...)"), "{fast}");
    assert!(fast.contains("HDD... --db-devices DBSSD...\nceph-volume lvm batch --no-auto SSD...\n"), "{fast}");
    let slow = said("ceph:db=slow");
    assert!(!slow.contains("block.db") && !slow.contains("DBSSD"), "{slow}");
    assert!(slow.contains("--no-auto HDD...\nceph-volume lvm batch --no-auto SSD...\n"), "{slow}");
}

#[test]
fn pools_are_made_ready_for_the_gateway_or_for_a_file_system() {
    let lines = |model: &str| layout(model).settings(&Wanted::of(4096, 1 << 40));
    for model in ["ceph", "ceph:pool=replicated"] {
        let lines = lines(model);
        let at = |start: &str| {
            lines.iter().position(|line| line.starts_with(start)).unwrap_or_else(|| panic!("{start}: {lines:?}"))
        };
        assert!(at("ceph osd pool create large") < at("ceph osd pool application enable large rgw"));
        assert!(at("ceph osd pool application enable small rgw") < at("radosgw-admin zonegroup placement add"));
        assert!(
            at("radosgw-admin zone placement modify") < at("# In a realm, commit the change: radosgw-admin period")
        );
        assert!(at("# In a realm") < at("# Then restart the gateways"));
        assert!(at("ceph fs add_data_pool FS large") < at("setfattr"));
    }
    let overwrites = "ceph osd pool set large allow_ec_overwrites true";
    let erasure = lines("ceph");
    let at = erasure.iter().position(|line| line == overwrites).unwrap();
    assert_eq!(erasure[at + 1], "ceph fs add_data_pool FS large");
    assert!(!lines("ceph:pool=replicated").iter().any(|line| line == overwrites));
}

#[test]
fn the_largest_size_is_one_like_any_other() {
    // 2^64 - 1 bytes, rounded up to 2^64.
    let largest = |name| allocated(name, u64::MAX);
    assert_eq!(largest("ceph:pool=replicated"), 3 << 64);
    assert_eq!(largest("ceph"), (6 << 64) / 4);
    assert_eq!(largest("ceph:object=0"), largest("ceph"));
    assert_eq!(largest("ceph:fast_ec=on,object=0"), largest("ceph"));
    let placed = layout("ceph").place(u64::MAX, u64::MAX).unwrap();
    assert!(placed.fast_bytes > 3 << 64 && placed.slow_bytes == 0);
}

#[test]
fn options_that_make_no_sense_together_are_refused() {
    for (name, cause) in [
        ("ceph:fast_ec=on,stripe_unit=2K", "stripe_unit of at least 4K"),
        ("ceph:pool=replicated,fast_ec=on", "use pool=ec"),
        ("ceph:copies=2", "copies applies only to pool=replicated"),
        ("ceph:pool=replicated,k=8", "k applies only to pool=ec"),
        ("ceph:pool=replicated,m=3", "m applies only to pool=ec"),
        ("ceph:pool=replicated,stripe_unit=16K", "stripe_unit applies only to pool=ec"),
    ] {
        assert!(Model::parse(name).unwrap_err().to_string().contains(cause), "{name}");
    }
}
