//! The integration tests: one binary, one module per subject.
//!
//! They run the built `granulo` and check its output; only `circles`, `layers` and `tidy` read the source. Each test has a
//! directory of its own. A test that needs root, a mount or another program reports when it is skipped, and fails
//! instead when `GRANULO_REQUIRE_ALL=1` is set. `GRANULO_UPDATE_GOLDEN=1` rewrites the texts in `tests/golden`.
#![allow(clippy::useless_vec, reason = "`args!` makes one list for calls that keep it and for calls that do not")]

mod bad_input;
mod bench;
mod bench_cache;
mod bench_fill;
mod bench_harness;
mod bench_metadata;
mod bench_mounted;
mod bench_pack;
mod bench_report;
mod btrfs;
mod buckets;
mod build_script;
mod cache;
mod changes;
mod circles;
mod cli;
mod dependencies;
mod filesystems;
mod generate;
mod growth;
mod harness;
mod images;
mod inode_scan;
mod inode_scan_btrfs;
mod inode_scan_checksums;
mod inode_scan_options;
mod inode_scan_xfs;
mod layers;
mod merge;
mod model;
#[cfg(feature = "fuse")]
mod mount;
#[cfg(feature = "fuse")]
mod mount_kernel;
#[cfg(feature = "fuse")]
mod mount_kill;
#[cfg(feature = "fuse")]
mod mount_life;
#[cfg(feature = "fuse")]
mod mount_random;
#[cfg(feature = "fuse")]
mod mount_space;
#[cfg(feature = "fuse")]
mod mounted;
mod nasty;
mod ncdu;
mod nfs_packets;
mod output;
mod plan;
mod population;
mod power_disk;
mod results;
mod resume;
mod same;
mod schemas;
mod shards;
mod sources;
mod store_again;
mod store_cli;
mod store_disasters;
mod store_displaced;
mod store_faults;
mod store_faults_read;
mod store_flips;
mod store_images;
mod store_integrity;
mod store_keys;
mod store_kill;
mod store_log;
mod store_lost_devices;
mod store_memory;
mod store_outputs;
mod store_pipes;
mod store_place;
mod store_power;
mod store_predict;
mod store_privacy;
mod store_replica;
mod store_restore;
mod store_sample;
mod store_script;
mod store_short;
mod store_snapshots;
mod store_space;
mod store_superblocks;
mod store_tail;
mod store_tar;
mod store_tree;
mod store_words;
mod survey;
mod survey_random;
mod tidy;
mod trace;
mod trace_readers;
mod watch;
mod xfs;
mod zfs;
