//! Predictions for xfs against file systems made for it, to the byte.
//!
//! Also what [`crate::btrfs`] shares: sizes at every edge, files of these sizes, and the comparison.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::Command;

use granulo::layout::Model;
use granulo_core::random::Random;
use rustix::fs::{FallocateFlags, fallocate};

use crate::harness::{skip, write_file};
use crate::images::{Image, Mount, run};

const KIB: u64 = 1 << 10;

/// Every size at which something could change: powers of two to 4 MiB, the first multiples of each unit, these sizes
/// themselves, and one byte to each side.
pub fn edges(units: &[u64], others: &[u64]) -> Vec<u64> {
    let powers = (0..=22).map(|power| 1u64 << power);
    let multiples = units.iter().flat_map(|unit| [1, 2, 3, 4, 5, 8, 16].map(|times| times * unit));
    let middles = powers.chain(multiples).chain(others.iter().copied());
    let mut sizes: Vec<u64> = middles.flat_map(|size| [size.saturating_sub(1), size, size + 1]).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// Sizes that are reserved instead of written: only the length of the file matters.
pub const LARGE: [u64; 4] = [(100 << 20) + 1, 128 << 20, (128 << 20) + 1, (257 << 20) + 4097];

/// A file for each size, named after it, and [`LARGE`] ones; synced.
pub fn make_files(root: &Path, sizes: &[u64]) {
    for size in sizes {
        write_file(root.join(size.to_string()), usize::try_from(*size).unwrap());
    }
    for size in LARGE {
        let file = File::create(root.join(size.to_string())).unwrap();
        fallocate(&file, FallocateFlags::empty(), 0, size).unwrap();
    }
    sync(root);
}

pub fn sync(root: &Path) {
    run(Command::new("sync").arg("--file-system").arg(root));
}

/// Bytes that `stat` reports as allocated; for a symlink, those of the link itself.
pub fn allocated(path: &Path) -> u128 {
    u128::from(fs::symlink_metadata(path).unwrap().blocks()) * 512
}

/// Fails with every name whose two figures differ.
#[track_caller]
pub fn assert_all_equal(model: &str, figures: impl IntoIterator<Item = (String, u128, u128)>) {
    let mut compared = 0;
    let different = |(name, predicted, measured): (String, u128, u128)| {
        compared += 1;
        (predicted != measured).then(|| format!("{name}: {predicted} predicted, {measured} measured"))
    };
    let different: Vec<String> = figures.into_iter().filter_map(different).collect();
    assert!(compared > 0, "{model}: nothing was compared");
    assert!(different.is_empty(), "{model}, {compared} compared:\n{}", different.join("\n"));
    println!("{model}: {compared} the same");
}

/// Asserts that files of all sizes match the model, to the byte.
#[track_caller]
pub fn assert_files(model: &Model, root: &Path, sizes: &[u64]) {
    let figure = |size: &u64| {
        let predicted = model.layout.file(*size).allocated_bytes;
        (format!("file of {size}"), predicted, allocated(&root.join(size.to_string())))
    };
    assert_all_equal(&model.name, sizes.iter().chain(&LARGE).map(figure));
}

/// Asserts that symlinks of these lengths match the model, to the byte.
#[track_caller]
pub fn assert_symlinks(model: &Model, root: &Path, lengths: &[usize]) {
    let path = |length: usize| root.join(format!("link{length}"));
    for length in lengths {
        symlink("t".repeat(*length), path(*length)).unwrap();
    }
    sync(root);
    let figure = |length: &usize| {
        let predicted = model.layout.symlink(*length as u64).unwrap().allocated_bytes;
        (format!("symlink to {length}"), predicted, allocated(&path(*length)))
    };
    assert_all_equal(&model.name, lengths.iter().map(figure));
}

/// A directory with `entries` entries; `name_length` receives the number of each.
fn make_directory(path: &Path, entries: u64, name_length: impl Fn(u64) -> usize) {
    let mut random = Random::new(entries);
    fs::create_dir(path).unwrap();
    for number in 0..entries {
        let length = name_length(number);
        let mut name = format!("{number:x}.");
        while name.len() < length {
            name.push(char::from(b'a' + (random.any() % 26) as u8));
        }
        name.truncate(length.max(4));
        File::create(path.join(&name)).unwrap();
    }
}

/// Linux 6.12 is the first that mounts blocks larger than a page, which is assumed to be 4 KiB.
fn mounts(block: u64) -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut parts = release.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    let version = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    block <= 4 * KIB || version >= (6, 12)
}

/// A new file system with this block size and inode size.
fn image(block: u64, inode: u64) -> Option<Image> {
    if !mounts(block) {
        skip(&format!("this kernel does not mount xfs with blocks of {block}"));
        return None;
    }
    let (block, inode) = (format!("size={block}"), format!("size={inode}"));
    Image::make(2 << 30, &["mkfs.xfs", "-q", "-b", &block, "-i", &inode], Mount::Kernel(""))
}

/// Whether new inodes get space for attributes, which the security modules of the machine decide: eight names of 16
/// bytes fit into an inode of 512 without it.
pub fn security(root: &Path) -> &'static str {
    let probe = root.join("probe");
    make_directory(&probe, 8, |_| 16);
    let reserved = allocated(&probe) > 0;
    if reserved { "on" } else { "off" }
}

#[test]
fn xfs_allocates_what_was_predicted() {
    for block in [1, 2, 4, 8, 16, 32, 64].map(|kib| kib * KIB) {
        let Some(image) = image(block, 512) else { return };
        let root = image.root();
        let sizes = edges(&[block], &[]);
        make_files(&root, &sizes);
        let model = Model::parse(&format!("xfs:block={block},security={}", security(&root))).unwrap();
        assert_files(&model, &root, &sizes);
        assert_symlinks(&model, &root, &[1, 59, 335, 336, 337, 512, 967, 968, 969, 1023]);
    }
}

#[test]
fn xfs_keeps_symlinks_in_larger_inodes() {
    let Some(image) = image(4 * KIB, 1024) else { return };
    let model = Model::parse("xfs:inode=1024").unwrap();
    assert_symlinks(&model, &image.root(), &[1, 336, 337, 847, 848, 849, 1023]);
}

#[test]
fn xfs_directories_without_room_for_attributes_hold_more() {
    let Some(image) = image(4 * KIB, 512) else { return };
    // mkfs makes the root, which has no such space.
    let root = image.root();
    let layout = Model::parse("xfs:security=off").unwrap().layout;
    for entries in 1..20 {
        File::create(root.join(format!("{entries:016}"))).unwrap();
        sync(&root);
        let predicted = layout.directory(entries, entries * layout.entry_bytes(16)).unwrap().allocated_bytes;
        assert_eq!(predicted, allocated(&root), "{entries} entries");
    }
}

#[test]
fn xfs_directories_are_as_predicted() {
    for block in [1, 4, 8, 16, 64].map(|kib| kib * KIB) {
        let Some(image) = image(block, 512) else { return };
        let root = image.root();
        let model = Model::parse(&format!("xfs:block={block},security={}", security(&root))).unwrap();
        let predict =
            |entries: u64, entries_bytes: u64| model.layout.directory(entries, entries_bytes).unwrap().allocated_bytes;

        // Names of equal length: exact while there is one leaf of hashes.
        let counts = [0, 1, 6, 7, 8, 13, 14, 15, 57, 99, 100, 101, 300, 400, 500];
        for entries in counts {
            make_directory(&root.join(format!("same{entries}")), entries, |_| 16);
        }
        sync(&root);
        let figure = |entries: u64| {
            let predicted = predict(entries, entries * model.layout.entry_bytes(16));
            (format!("directory of {entries}"), predicted, allocated(&root.join(format!("same{entries}"))))
        };
        assert_all_equal(&model.name, counts.map(figure));

        // Mixed names and a tree of hashes: 10 % each, 3 % together.
        let (mut sum_predicted, mut sum_measured) = (0, 0);
        for entries in [501, 700, 1000, 1500, 2000, 3000, 6000, 10_000] {
            let path = root.join(format!("mixed{entries}"));
            let length = |number: u64| 5 + (number * 7 % 26) as usize;
            make_directory(&path, entries, length);
            sync(&root);
            let entries_bytes = fs::read_dir(&path).unwrap();
            let entries_bytes: u64 =
                entries_bytes.map(|entry| model.layout.entry_bytes(entry.unwrap().file_name().len() as u64)).sum();
            let (predicted, measured) = (predict(entries, entries_bytes), allocated(&path));
            println!("{} directory of {entries}: {predicted} predicted, {measured} measured", model.name);
            assert!(predicted.abs_diff(measured) * 10 <= measured, "{entries}: {predicted} {measured}");
            sum_predicted += predicted;
            sum_measured += measured;
        }
        println!("{} directories: {sum_predicted} predicted, {sum_measured} measured", model.name);
        assert!(sum_predicted.abs_diff(sum_measured) * 100 <= sum_measured * 3, "{sum_predicted} {sum_measured}");
    }
}
