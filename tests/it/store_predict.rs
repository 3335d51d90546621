//! Prediction and store: `granulo allocate granulo` matches the space that a real import needs, to the byte.

use std::fs;

use granulo::units::parse_size;
use serde_json::Value;

use crate::args;
use crate::harness::{run, sandbox};

const SEGMENT_HEADER_BYTES: u64 = 128;
const COMMIT_BYTES: u64 = 48 + 72;
/// With an alignment, records begin this many bytes before a multiple of it.
const HEAD_BYTES: u64 = 256;
/// An import with two threads commits after this much content,
const PIECE_BYTES: u64 = 1 << 20;
/// or this many objects, and syncs after this much content.
const PIECE_OBJECTS: u64 = 256;
const SYNC_BYTES: u64 = 256 << 20;

/// Sizes at every edge: of padding, of the packed bytes, of the cutoff, of units, stripes and chunks.
fn sizes() -> Vec<u64> {
    let edges = [
        0,
        4,
        4096,
        8192,
        12_288,
        16_384,
        65_536,
        69_632,
        77_824,
        131_072,
        69_632 + 131_072,
        1 << 20,
        64 << 20,
        (64 << 20) + 4096,
    ];
    let mut sizes: Vec<u64> = edges.iter().flat_map(|&edge: &u64| [edge.saturating_sub(1), edge, edge + 1]).collect();
    sizes.extend((0..200).map(|number: u64| number * number * 37 % 90_000));
    sizes
}

/// Bytes on all devices of files of `sizes`, with keys of one length.
fn predicted(model: &str, sizes: &[u64]) -> Vec<u64> {
    let mut all = args!["allocate", "--json", model];
    all.extend(sizes.iter().map(|size| size.to_string().into()));
    let document = run(all).ended(0).json();
    let files = document["files"].as_array().unwrap();
    files.iter().map(|file| file["allocated_bytes"].as_u64().unwrap()).collect()
}

/// Records in the list of each commit of an import of files of `sizes` in one directory of the tree: one for each
/// piece, one for the mark of each sync (the last at its end), and one for the mark at the close.
fn commits(sizes: &[u64]) -> Vec<u64> {
    // The two directories come first.
    let (mut commits, mut objects, mut piece_bytes, mut unsynced_bytes) = (Vec::new(), 2, 0, 0);
    for size in sizes {
        (objects, piece_bytes) = (objects + 1, piece_bytes + size);
        if piece_bytes >= PIECE_BYTES || objects >= PIECE_OBJECTS {
            commits.push(objects);
            unsynced_bytes += piece_bytes;
            (objects, piece_bytes) = (0, 0);
        }
        if unsynced_bytes >= SYNC_BYTES {
            commits.push(0);
            unsynced_bytes = 0;
        }
    }
    if objects > 0 || unsynced_bytes > 0 {
        commits.extend((objects > 0).then_some(objects));
        commits.push(0);
    }
    commits.push(0);
    commits
}

/// Bytes of commits and segments besides headers and lists, one copy: with an alignment, each segment begins with a
/// commit up to the first position for a record, and each commit ends at the next one.
fn beside(commits: &[u64], segments: u64, align: Option<u64>) -> u64 {
    let Some(unit) = align else { return commits.len() as u64 * COMMIT_BYTES };
    let commit = |records: &u64| (COMMIT_BYTES + 8 * records).next_multiple_of(unit) - 8 * records;
    commits.iter().map(commit).sum::<u64>() + segments * (unit - HEAD_BYTES - SEGMENT_HEADER_BYTES)
}

fn is_as_predicted(model: &str, copies: u64, init: &[&str], align: Option<u64>) {
    let sandbox = sandbox();
    let (tree, home) = (sandbox.path().join("tree"), sandbox.path().join("home"));
    fs::create_dir_all(tree.join("directory")).unwrap();
    let sizes = sizes();
    for (number, &size) in sizes.iter().enumerate() {
        // Real bytes: a hole would not be stored.
        fs::write(tree.join(format!("directory/{number:06}")), vec![1 + (number % 250) as u8; size as usize]).unwrap();
    }
    let mut all = args!["store", "init", &home];
    for word in init {
        match word.strip_prefix('@') {
            Some(device) => all.push(sandbox.path().join(device).into()),
            None => all.push(word.into()),
        }
    }
    run(all).ended(0);
    run(args!["store", "import", &home, &tree, "--threads", "2"]).ended(0);

    let files = predicted(&format!("{model},name=6,atime=on"), &sizes);
    for number in [0, 1, 8, 17, 22, 28, 31, 41, sizes.len() - 1] {
        let key = format!("directory/{number:06}");
        let status = run(args!["store", "stat", &home, &key, "--json"]).ended(0).json();
        assert_eq!(status["size_bytes"], sizes[number], "{key}");
        assert_eq!(status["allocated_bytes"], files[number], "{key} of {} bytes", sizes[number]);
    }
    // A directory is a record without content, like an empty file: the root, and the one below it.
    let directories = predicted(&format!("{model},name=0,atime=on"), &[0])[0]
        + predicted(&format!("{model},name=9,atime=on"), &[0])[0];

    let status = run(args!["store", "status", &home, "--json"]).ended(0).json();
    let devices = status["devices"].as_array().unwrap();
    let on_devices = |field: &str| devices.iter().map(|device: &Value| device[field].as_u64().unwrap()).sum::<u64>();
    let taken = on_devices("segment_bytes") + on_devices("unit_bytes");
    let segments = status["segments"].as_u64().unwrap();
    assert_eq!(status["alignment_bytes"].as_u64(), align);
    let packed = init.iter().skip_while(|word| **word != "--packed").nth(1);
    assert_eq!(status["packed_bytes"], packed.map_or(4096, |kibibytes| parse_size(kibibytes).unwrap()));
    let left = taken - files.iter().sum::<u64>() - directories - copies * segments * SEGMENT_HEADER_BYTES;
    // Only commits are left.
    assert_eq!(left, copies * beside(&commits(&sizes), segments, align), "{taken} bytes taken");
}

#[test]
fn a_store_in_one_directory_takes_what_was_predicted() {
    is_as_predicted("granulo:data=1", 1, &[], None);
}

#[test]
fn a_hybrid_store_takes_what_was_predicted() {
    let devices =
        ["--fast", "@f1", "--fast", "@f2", "--slow", "@s1", "--slow", "@s2", "--slow", "@s3", "--slow", "@s4"];
    is_as_predicted("granulo:small=mirror,large=raid5,data=3", 2, &devices, None);
}

#[test]
fn other_units_and_redundancy_take_what_was_predicted() {
    let mut init = vec!["--cutoff", "20000", "--stripe-unit", "16KiB", "--large-redundancy", "raid6"];
    init.extend(["--small-redundancy", "triple", "--fast", "@f1", "--fast", "@f2", "--fast", "@f3"]);
    init.extend(["--slow", "@s1", "--slow", "@s2", "--slow", "@s3", "--slow", "@s4", "--slow", "@s5"]);
    is_as_predicted("granulo:cutoff=20000,stripe_unit=16K,small=triple,large=raid6,data=2", 3, &init, None);
}

#[test]
fn other_packed_lengths_take_what_was_predicted() {
    let one = ["--packed", "12KiB", "--cutoff", "0"];
    is_as_predicted("granulo:data=1,packed=12KiB,cutoff=0", 1, &one, None);
    let devices = ["--packed", "64KiB", "--fast", "@f1", "--fast", "@f2", "--slow", "@s1", "--slow", "@s2"];
    is_as_predicted("granulo:small=mirror,data=2,packed=64K", 2, &devices, None);
    let aligned = ["--packed", "12KiB", "--align", "512"];
    is_as_predicted("granulo:data=1,packed=12K,align=512", 1, &aligned, Some(512));
}

#[test]
fn an_aligned_store_takes_what_was_predicted() {
    is_as_predicted("granulo:data=1,align=512", 1, &["--align", "512"], Some(512));
    let devices =
        ["--align", "4096", "--fast", "@f1", "--fast", "@f2", "--slow", "@s1", "--slow", "@s2", "--slow", "@s3"];
    is_as_predicted("granulo:small=mirror,large=raid5,data=2,align=4096", 2, &devices, Some(4096));
}
