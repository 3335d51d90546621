//! Predictions for ext2/3/4, NTFS, FAT and exFAT against file systems made for it: files to the byte, directories
//! within the variation of chance.
//!
//! Files are compared by `st_blocks * 512` after a sync; on FAT and exFAT by the used space that `statfs` reports,
//! since fusefat does not count clusters in `st_blocks`.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use granulo::layout::{Layout, Model};
use granulo_core::random::Random;
use rustix::fs::{FallocateFlags, fallocate, statvfs, syncfs};

use crate::images::{Image, Mount};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Name, prediction and measurement of each item.
#[derive(Default)]
struct Comparison(Vec<(String, u128, u128)>);

impl Comparison {
    fn add(&mut self, what: impl ToString, predicted: u128, measured: u128) {
        self.0.push((what.to_string(), predicted, measured));
    }

    /// Fails with a list of all items unless every pair is equal.
    #[track_caller]
    fn equal(&self, model: &str) {
        self.within(model, |_| 0);
    }

    /// The same, with a tolerance for the prediction.
    #[track_caller]
    fn within(&self, model: &str, tolerance: impl Fn(u128) -> u128) {
        let wrong = |line: &&(String, u128, u128)| line.1.abs_diff(line.2) > tolerance(line.2);
        let count = self.0.iter().filter(wrong).count();
        let mut list = String::new();
        for line in &self.0 {
            let mark = if wrong(&line) { "  <-- differs" } else { "" };
            list += &format!("{}: predicted {}, measured {}{mark}\n", line.0, line.1, line.2);
        }
        assert!(count == 0 && !self.0.is_empty(), "{model}: {count} of {} differ\n{list}", self.0.len());
    }
}

fn layout(model: &str) -> Box<dyn Layout> {
    Model::parse(model).unwrap().layout
}

/// An image with an ext file system: `mke2fs -t TYPE OPTIONS`.
fn ext(size_bytes: u64, kind: &str, options: &[&str]) -> Option<Image> {
    let mut mkfs = vec!["mke2fs", "-F", "-q", "-t", kind, "-E", "nodiscard"];
    mkfs.extend(options);
    // The inode tables are not initialised in the background either.
    let mount = if kind == "ext4" { "noinit_itable" } else { "" };
    Image::make(size_bytes, &mkfs, Mount::Kernel(mount))
}

fn sync(root: &Path) {
    syncfs(File::open(root).unwrap()).unwrap();
}

fn blocks_of(path: &Path) -> u128 {
    u128::from(fs::symlink_metadata(path).unwrap().blocks()) * 512
}

fn used(root: &Path) -> u128 {
    let stat = statvfs(root).unwrap();
    u128::from(stat.f_blocks - stat.f_bfree) * u128::from(stat.f_frsize)
}

/// A name of 12 characters, the default of the `ntfs` model.
fn name(number: u64) -> String {
    format!("f{number:011}")
}

/// A name of `length` characters in scrambled order.
fn scrambled(number: u64, length: usize) -> String {
    let mut random = Random::new(number);
    let letter = |_| char::from(b'a' + random.below(26) as u8);
    // The number itself makes names unique.
    let letters: String = (0..length - 6).map(letter).collect();
    format!("{letters}{number:06}")
}

fn write(file: &mut File, bytes: u64) {
    let buffer = vec![b'x'; MIB as usize];
    let mut left = bytes;
    while left > 0 {
        let part = left.min(MIB);
        file.write_all(&buffer[..part as usize]).unwrap();
        left -= part;
    }
}

/// Sizes at, one below and one above each edge, and a block to both sides.
fn around(edges: &[u64], block: u64) -> Vec<u64> {
    let beside = |edge: &u64| [edge.saturating_sub(block), edge.saturating_sub(1), *edge, edge + 1, edge + block];
    let mut sizes: Vec<u64> = edges.iter().flat_map(beside).chain([0, 1, 511, 512, 513, 100_000]).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// Writes a file of each size and compares `st_blocks`.
#[track_caller]
fn compare_files(model: &str, image: &Image, sizes: &[u64]) {
    let layout = layout(model);
    let root = image.root();
    for &size in sizes {
        write(&mut File::create(root.join(name(size))).unwrap(), size);
    }
    sync(&root);
    let mut found = Comparison::default();
    for &size in sizes {
        found.add(size, layout.file(size).allocated_bytes, blocks_of(&root.join(name(size))));
    }
    found.equal(model);
}

/// Writes one file of each size after the other and compares the space in `statfs`.
#[track_caller]
fn compare_files_by_space(model: &str, image: &Image, sizes: &[u64]) {
    let layout = layout(model);
    let root = image.root();
    // The directory already has its entry when the file is measured.
    let path = root.join("file");
    let mut found = Comparison::default();
    drop(File::create(&path).unwrap());
    let before = used(&root);
    for &size in sizes {
        drop(File::create(&path).unwrap());
        // FUSE frees a removed file with a short delay.
        for _ in 0..500 {
            if used(&root) == before {
                break;
            }
            sleep(Duration::from_millis(10));
        }
        let before = used(&root);
        write(&mut File::create(&path).unwrap(), size);
        sync(&root);
        found.add(size, layout.file(size).allocated_bytes, used(&root) - before);
        fs::remove_file(&path).unwrap();
    }
    found.equal(model);
}

/// Makes a symlink of each length and compares `st_blocks`.
#[track_caller]
fn compare_symlinks(model: &str, image: &Image, lengths: &[u64]) {
    let layout = layout(model);
    let root = image.root();
    let mut found = Comparison::default();
    for &length in lengths {
        symlink("t".repeat(length as usize), root.join(format!("link{length}"))).unwrap();
    }
    sync(&root);
    for &length in lengths {
        let predicted = layout.symlink(length).unwrap().allocated_bytes;
        found.add(length, predicted, blocks_of(&root.join(format!("link{length}"))));
    }
    found.equal(model);
}

/// Directories of hard links, with names of `length` characters, compared at each of `counts`.
fn compared_directory(model: &str, image: &Image, length: usize, counts: &[u64]) -> Comparison {
    let layout = layout(model);
    let (mut found, mut there) = (Comparison::default(), 0);
    let directory = image.root().join("directory");
    fs::create_dir(&directory).unwrap();
    let mut file = image.root().join("0");
    for &count in counts {
        for number in there..count {
            if number % 10_000 == 0 {
                file = image.root().join(number.to_string());
                File::create(&file).unwrap();
            }
            fs::hard_link(&file, directory.join(scrambled(number, length))).unwrap();
        }
        there = count;
        sync(&image.root());
        let predicted = layout.directory(count, count * layout.entry_bytes(length as u64)).unwrap();
        found.add(count, predicted.allocated_bytes, blocks_of(&directory));
    }
    found
}

const DIRECTORY_COUNTS: [u64; 12] = [0, 1, 5, 36, 50, 100, 200, 500, 1_000, 2_000, 5_000, 20_000];

/// An eighth and three blocks: chance decides which leaves have split, especially where most of them are nearly full.
fn directory_tolerance(block: u64) -> impl Fn(u128) -> u128 {
    move |measured| measured / 8 + 3 * u128::from(block)
}

#[test]
fn ext2_and_ext3_count_their_indirect_blocks() {
    for kind in ["ext2", "ext3"] {
        for block in [KIB, 2 * KIB, 4 * KIB] {
            let Some(image) = ext(300 * MIB, kind, &["-b", &block.to_string()]) else { return };
            let pointers = block / 4;
            let double = (12 + pointers) * block;
            let edges = [block, 12 * block, 13 * block, double, double + block, double + pointers * block];
            let model = format!("{kind}:block={block}");
            compare_files(&model, &image, &around(&edges, block));
            compare_symlinks(&model, &image, &[1, 59, 60, 61, 100, 1000]);
        }
    }
}

#[test]
fn ext2_and_ext3_count_their_triple_indirect_blocks() {
    for kind in ["ext2", "ext3"] {
        let Some(image) = ext(128 * MIB, kind, &["-b", "1024"]) else { return };
        let model = format!("{kind}:block=1024");
        let layout = layout(&model);
        let path = image.root().join("file");
        let mut file = File::create(&path).unwrap();
        let triple = 64 * MIB + 268 * KIB;
        // One growing file: its blocks equal those of a file of that size.
        let (mut there, mut found) = (0, Comparison::default());
        for size in [triple - KIB, triple - 1, triple, triple + 1, triple + KIB + 1, triple + 256 * KIB + 1, 70 * MIB] {
            write(&mut file, size - there);
            there = size;
            sync(&image.root());
            found.add(size, layout.file(size).allocated_bytes, blocks_of(&path));
        }
        found.equal(&model);
    }
}

#[test]
fn ext4_takes_whole_blocks() {
    for block in [KIB, 2 * KIB, 4 * KIB] {
        let Some(image) = ext(128 * MIB, "ext4", &["-b", &block.to_string()]) else { return };
        let model = format!("ext4:block={block}");
        compare_files(&model, &image, &around(&[block, 2 * block, 12 * block, 64 * KIB, MIB, 5 * MIB], block));
        compare_symlinks(&model, &image, &[1, 59, 60, 61, 100, 1000]);
    }
}

#[test]
fn ext4_keeps_small_files_in_inodes_of_every_size() {
    for (inode, block) in [(256u64, 4096u64), (512, 4096), (1024, 4096), (256, 1024), (1024, 1024), (2048, 4096)] {
        let options = ["-O", "inline_data", "-I", &inode.to_string(), "-b", &block.to_string()];
        let Some(image) = ext(64 * MIB, "ext4", &options) else { return };
        let model = format!("ext4:inline=on,inode={inode},block={block}");
        let mut sizes = around(&[60, inode - 128, inode, block, 2 * block], 64);
        sizes.extend([128, 160, 188, 384, 896, 1536, 1920]);
        sizes.sort_unstable();
        sizes.dedup();
        compare_files(&model, &image, &sizes);
        compare_symlinks(&model, &image, &[1, 59, 60, 61, 100, 127, 129, 1000]);
        let small = compared_directory(&model, &image, 12, &[0, 1, 2, 5]);
        small.equal(&model);
    }
}

#[test]
fn ext4_takes_whole_clusters_of_bigalloc() {
    for (block, cluster) in [(4 * KIB, 16 * KIB), (4 * KIB, 64 * KIB), (KIB, 16 * KIB)] {
        let options = ["-O", "bigalloc", "-C", &cluster.to_string(), "-b", &block.to_string()];
        let Some(image) = ext(2 * GIB, "ext4", &options) else { return };
        let model = format!("ext4:block={block},cluster={cluster}");
        compare_files(&model, &image, &around(&[block, cluster, 2 * cluster, 5 * cluster], block));
        compare_symlinks(&model, &image, &[59, 60, 1000]);
        compared_directory(&model, &image, 20, &[0, 100, 1000]).within(&model, directory_tolerance(cluster));
        compare_reserved(&model, &image, &[100 * MIB * block / (4 * KIB), 600 * MIB]);
    }
}

/// Reserves a file of each size and compares `st_blocks`.
#[track_caller]
fn compare_reserved(model: &str, image: &Image, sizes: &[u64]) {
    let layout = layout(model);
    let mut found = Comparison::default();
    let path = image.root().join("reserved");
    for &size in sizes {
        fallocate(File::create(&path).unwrap(), FallocateFlags::empty(), 0, size).unwrap();
        sync(&image.root());
        found.add(size, layout.file(size).allocated_bytes, blocks_of(&path));
        fs::remove_file(&path).unwrap();
        sync(&image.root());
    }
    found.equal(model);
}

/// Sizes that are not within a twentieth of an edge: the contiguous runs that the allocator finds there depend on where
/// the block groups keep their metadata.
#[test]
fn ext4_counts_the_blocks_of_its_extent_tree() {
    let options = ["-b", "4096", "-O", "^has_journal", "-E", "lazy_itable_init=1,nodiscard"];
    let Some(image) = ext(56 * GIB, "ext4", &options) else { return };
    let sizes = [MIB, 100 * MIB, 128 * MIB, 256 * MIB, 600 * MIB, GIB, 5 * GIB + 1, 36 * GIB, 48 * GIB];
    compare_reserved("ext4", &image, &sizes);
}

#[test]
fn directories_of_ext_are_hash_trees() {
    for (kind, block, length) in
        [("ext4", 4 * KIB, 20), ("ext4", 4 * KIB, 8), ("ext4", KIB, 20), ("ext3", 4 * KIB, 20), ("ext2", KIB, 20)]
    {
        let options = ["-b", &block.to_string(), "-O", "^has_journal"];
        let kind_made = if kind == "ext3" { "ext2" } else { kind };
        let Some(image) = ext(128 * MIB, kind_made, &options) else { return };
        let model = format!("{kind}:block={block}");
        let found = compared_directory(&model, &image, length, &DIRECTORY_COUNTS);
        found.within(&model, directory_tolerance(block));
    }
}

fn ntfs(options: &[&str], mount: &[&str]) -> Option<Image> {
    let mkfs = [&["mkntfs", "-F", "-Q", "-q"], options].concat();
    let program = [&["ntfs-3g"], mount].concat();
    Image::make(64 * MIB, &mkfs, Mount::Fuse(&program))
}

#[test]
fn ntfs_keeps_small_files_in_their_records() {
    for (made, mounted, model) in [
        (&["-c", "4096"][..], &[][..], "ntfs:cluster=4096"),
        (&["-c", "512"], &[], "ntfs:cluster=512"),
        (&["-c", "65536"], &[], "ntfs:cluster=64KiB"),
        (&["-c", "16384"], &["-o", "permissions"], "ntfs:cluster=16KiB,descriptor=shared"),
        (&["-c", "16384", "-s", "4096"], &[], "ntfs:cluster=16KiB,record=4096"),
    ] {
        let Some(image) = ntfs(made, mounted) else { return };
        let limits = [512, 640, 720, 1024, 3696, 4096, 8192, 16_384, 65_536, 131_072, MIB];
        compare_files(model, &image, &around(&limits, 8));
        compare_symlinks(model, &image, &[1, 20, 100, 300, 800, 3000]);
    }
}

#[test]
fn indexes_of_ntfs_split_in_halves() {
    for (cluster, length) in [(4 * KIB, 20), (4 * KIB, 8), (16 * KIB, 20)] {
        let Some(image) = ntfs(&["-c", &cluster.to_string()], &[]) else { return };
        let root = image.root();
        let model = format!("ntfs:cluster={cluster}");
        let layout = layout(&model);
        let (from, to) = (root.join("from"), root.join("to"));
        let mut found = Comparison::default();
        for count in [2, 10, 25, 300, 1500] {
            fs::create_dir(&from).unwrap();
            fs::create_dir(&to).unwrap();
            let names: Vec<String> = (0..count).map(|number| scrambled(number, length)).collect();
            for name in &names {
                File::create(from.join(name)).unwrap();
            }
            // Moving them creates the second index and no record; the first keeps its blocks.
            let before = used(&root);
            for name in &names {
                fs::rename(from.join(name), to.join(name)).unwrap();
            }
            let predicted = layout.directory(count, count * layout.entry_bytes(length as u64)).unwrap();
            found.add(count, predicted.allocated_bytes, used(&root) - before);
            fs::remove_dir_all(&from).unwrap();
            fs::remove_dir_all(&to).unwrap();
        }
        found.within(&model, directory_tolerance(cluster));
    }
}

/// Directories of empty files, compared by the used space after each of `counts`.
#[track_caller]
fn compare_directory_by_space(model: &str, image: &Image, length: usize, counts: &[u64]) {
    let layout = layout(model);
    let root = image.root();
    let directory = root.join("directory");
    let (mut found, mut there) = (Comparison::default(), 0);
    let before = used(&root);
    fs::create_dir(&directory).unwrap();
    for &count in counts {
        for number in there..count {
            File::create(directory.join(scrambled(number, length))).unwrap();
        }
        there = count;
        let predicted = layout.directory(count, count * layout.entry_bytes(length as u64)).unwrap();
        found.add(count, predicted.allocated_bytes, used(&root) - before);
    }
    found.equal(model);
}

#[test]
fn fat_takes_whole_clusters() {
    // Few entries: fusefat takes longer for each than for the previous one.
    for (cluster, mkfs, counts) in [
        (2 * KIB, ["-F", "32", "-s", "4"], &[0, 1, 20, 21, 42, 43, 64][..]),
        (16 * KIB, ["-F", "16", "-s", "32"], &[0, 1, 30]),
    ] {
        let mkfs = [&["mkfs.fat"], &mkfs[..]].concat();
        let Some(image) = Image::make(256 * MIB, &mkfs, Mount::Fuse(&["fusefat", "-o", "rw+"])) else { return };
        let model = format!("fat:cluster={cluster}");
        compare_directory_by_space(&model, &image, 20, counts);
        compare_files_by_space(&model, &image, &around(&[cluster, 2 * cluster, 64 * KIB, MIB], KIB));
    }
}

#[test]
fn exfat_takes_whole_clusters() {
    for (cluster, name) in [(4 * KIB, "4K"), (32 * KIB, "32K")] {
        let mount = Mount::FuseOnLoop(&["mount.exfat-fuse"]);
        let Some(image) = Image::make(256 * MIB, &["mkfs.exfat", "-c", name], mount) else { return };
        let model = format!("exfat:cluster={cluster}");
        compare_directory_by_space(&model, &image, 20, &[0, 1, 32, 33, 64, 65, 256, 257, 600]);
        compare_files_by_space(&model, &image, &around(&[cluster, 2 * cluster, 64 * KIB, MIB], KIB));
    }
}
