//! Damaged ext4 against the kernel's own word: what the checksums of a file system refuse counts as in a walk of the
//! mounted image, and nothing differs silently.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use granulo::testing::scan::inodes::ext::{Ext, seal};
use granulo::testing::scan::inodes::{Scan, Scope};
use granulo::testing::survey::Collector;
use granulo_core::random::Random;
use serde_json::Value;
use tempfile::TempDir;

use crate::args;
use crate::harness::{Ran, differences, has_program, is_root, run, sandbox, skip, write_file};
use crate::images::{Image, Mount, run as command};
use crate::inode_scan::MIB;
use crate::model::AS_OF;

/// An image that is damaged and mounted, again and again.
struct Specimen {
    directory: TempDir,
    intact: Vec<u8>,
}

impl Specimen {
    /// An image from `mke2fs OPTIONS`, filled by the kernel with every kind of directory.
    fn new(options: &[&str]) -> Option<Specimen> {
        let extended = format!("nodiscard,hash_seed={ALWAYS}");
        let mkfs = [&["mke2fs", "-F", "-q", "-U", ALWAYS, "-E", &extended], options].concat();
        let mut image = Image::make(24 * MIB, &mkfs, Mount::Kernel(""))?;
        fill(&image.root());
        image.unmount();
        let directory = sandbox();
        fs::create_dir(directory.path().join("root")).unwrap();
        Some(Specimen { directory, intact: fs::read(image.file()).unwrap() })
    }

    fn root(&self) -> PathBuf {
        self.directory.path().join("root")
    }

    /// Block size, from the superblock.
    fn block_bytes(&self) -> usize {
        1024 << self.intact[1024 + 0x18]
    }

    /// Surveys of an image by a walk and by an inode scan of the same mount; `None` if the kernel refuses to mount it.
    fn both(&self, image: &[u8]) -> Option<[Ran; 2]> {
        let (path, root) = (self.directory.path().join("image"), self.root());
        // A new file: a mount namespace that another test made meanwhile may hold the mount before this one, and mount(8)
        // takes a loop device that still has the same file, with its cache of the image before.
        fs::remove_file(&path).or_else(|error| if path.exists() { Err(error) } else { Ok(()) }).unwrap();
        fs::write(&path, image).unwrap();
        let mounted = Command::new("mount").args(["-o", "ro,loop"]).arg(&path).arg(&root).output().unwrap();
        if !mounted.status.success() {
            return None;
        }
        let by = |method: &str| run(args!["survey", "--json", "--as-of", AS_OF, "-x", "--method", method, &root]);
        let ran = ["walk", "inode-scan"].map(by);
        command(Command::new("umount").arg(&root));
        Some(ran)
    }

    /// The blocks for which `is_it` holds, as offsets.
    fn blocks(&self, is_it: impl Fn(&[u8]) -> bool) -> Vec<usize> {
        let bytes = self.block_bytes();
        (1..self.intact.len() / bytes)
            .map(|block| block * bytes)
            .filter(|&at| is_it(&self.intact[at..at + bytes]))
            .collect()
    }

    /// Offset of the inode of `path`.
    fn inode(&self, path: &str) -> usize {
        let file = self.directory.path().join("image");
        fs::write(&file, &self.intact).unwrap();
        let told = command(Command::new("debugfs").args(["-R", &format!("imap {path}")]).arg(file));
        // "located at block 123, offset 0x0100".
        let number = |mark: &str| {
            let rest = told.split(mark).nth(1).unwrap_or_else(|| panic!("{told}"));
            rest.split(|c: char| !c.is_alphanumeric()).next().unwrap().to_owned()
        };
        let offset = usize::from_str_radix(number("offset 0x").trim_start_matches("0x"), 16).unwrap();
        number("at block ").parse::<usize>().unwrap() * self.block_bytes() + offset
    }
}

/// The identifier and the seed of hashes, so that images are alike.
const ALWAYS: &str = "6b1c2f0e-3d5a-4c47-9d0e-8a8f5b7c1d2e";

fn fill(root: &Path) {
    // It has several blocks and no index, and Linux says nothing about damage to it.
    fs::remove_dir(root.join("lost+found")).unwrap();
    for number in 0..60 {
        write_file(root.join(format!("d{}/e{}/f{number}.c", number % 5, number % 3)), number * 700);
    }
    write_file(root.join("damaged"), 9000);
    fs::hard_link(root.join("damaged"), root.join("d1/again")).unwrap();
    fs::create_dir(root.join("empty")).unwrap();
    symlink("/usr", root.join("short")).unwrap();
    symlink("x".repeat(200), root.join("long")).unwrap();
    // Two indexed directories that grow in turns: their blocks are not consecutive.
    for directory in ["left", "right"] {
        write_file(root.join(directory).join("first"), 10);
    }
    for number in 0..700 {
        for directory in ["left", "right"] {
            let name = format!("{:x}{}", number * 7919 % 1000, "n".repeat(150 + number % 50));
            fs::hard_link(root.join(directory).join("first"), root.join(directory).join(name)).unwrap();
        }
        if number % 10 == 0 {
            write_file(root.join(format!("left/f{number}/in it")), number);
        }
    }
}

/// What keeps these tests from running here.
fn cannot_run() -> bool {
    if !is_root() || !["mke2fs", "debugfs", "mount"].iter().all(|program| has_program(program)) {
        skip("it mounts damaged images of ext4, which needs root, e2fsprogs and loop devices");
        return true;
    }
    false
}

const LEAF_TAIL: [u8; 8] = [0, 0, 0, 0, 12, 0, 0, 0xde];

fn is_leaf(block: &[u8]) -> bool {
    block[block.len() - 12..block.len() - 4] == LEAF_TAIL
}

/// The only block of a directory.
fn is_single(block: &[u8]) -> bool {
    is_leaf(block) && block[4..9] == [12, 0, 1, 2, b'.']
}

fn is_extents(block: &[u8]) -> bool {
    block[..2] == [0x0a, 0xf3] && block[6] < 5
}

/// The root of an index: `.` and `..`, which has the rest of the block.
fn is_index_root(block: &[u8]) -> bool {
    block[4..9] == [12, 0, 1, 2, b'.'] && block[18..22] == [2, 2, b'.', b'.'] && block[29] == 8
}

fn is_index_node(block: &[u8]) -> bool {
    block[..4] == [0; 4]
        && usize::from(u16::from_le_bytes([block[4], block[5]])) == block.len()
        && block[6..8] == [0; 2]
}

/// Any metadata but tables.
fn is_any(block: &[u8]) -> bool {
    is_leaf(block) || is_extents(block) || is_index_root(block) || is_index_node(block)
}

/// Without what may differ: how it was done, and the words of errors.
fn comparable(document: &Value) -> Value {
    let mut document = document.clone();
    let fields = document.as_object_mut().unwrap();
    for field in ["taken_at", "elapsed_seconds", "method", "consistent", "inconsistencies", "errors", "where", "tree"] {
        fields.remove(field);
    }
    document
}

/// Differences between walk and scan. Fails where there are any and the scan does not say that it is inconsistent.
#[track_caller]
fn check([walk, scan]: [Ran; 2], what: &str) -> Vec<String> {
    let (walked, scanned) = (walk.json(), scan.json());
    let found = differences(&comparable(&walked), &comparable(&scanned));
    let is_consistent = scanned["consistent"] == true;
    assert!(found.is_empty() || !is_consistent, "{what}: silently different:\n{}", found.join("\n"));
    let has_errors = |document: &Value| document["counts"]["errors"] != 0;
    assert!(!has_errors(&walked) || has_errors(&scanned) && !is_consistent, "{what}: {}", scan.said());
    assert_eq!(scan.code, Some(i32::from(has_errors(&scanned))), "{what}: {}", scan.said());
    found
}

/// Damages one byte after the other: each time, scan and walk must agree in every number, and the scan must say
/// `cause`, if there is one. Returns everything that scans said.
#[track_caller]
fn check_flips(specimen: &Specimen, flips: &[(&str, usize, &str)]) -> String {
    let mut all = String::new();
    for &(what, at, cause) in flips {
        let mut image = specimen.intact.clone();
        image[at] ^= 0x40;
        let Some(ran) = specimen.both(&image) else { panic!("{what}: not mounted") };
        let (errors, said) = (ran[0].json()["counts"]["errors"].clone(), ran[1].said());
        let scanned = ran[1].json();
        let found = check(ran, what);
        assert_eq!(found, Vec::<String>::new(), "{what}: {said}");
        if !cause.is_empty() {
            assert_ne!(errors, 0, "{what}: the walk saw nothing");
            assert!(said.contains(cause), "{what}: {said}");
            assert!(scanned["inconsistencies"][0].as_str().unwrap().contains("damaged"), "{scanned}");
        }
        all.push_str(&said);
    }
    all
}

const WRONG: &str = "its checksum is wrong";
const BLOCK: &str = "the checksum of one of its blocks is wrong";
const INDEX: &str = "the checksum of a block of its index is wrong";
const EXTENTS: &str = "the checksum of a node of its extent tree is wrong";

#[test]
fn what_the_kernel_refuses_counts_as_in_a_walk() {
    if cannot_run() {
        return;
    }
    let sets: [&[&str]; 4] = [
        &["-t", "ext4", "-b", "1024"],
        &["-t", "ext4", "-b", "1024", "-I", "128", "-O", "^64bit"],
        &["-t", "ext4", "-b", "1024", "-I", "512", "-O", "metadata_csum_seed,large_dir,inline_data"],
        &["-t", "ext4", "-b", "1024", "-O", "^extent,^64bit,^has_journal"],
    ];
    for options in sets {
        eprintln!("mke2fs {}", options.join(" "));
        let Some(specimen) = Specimen::new(options) else { return };
        let whole = specimen.both(&specimen.intact).unwrap();
        assert_eq!(whole[1].json()["consistent"], true, "{}", whole[1].said());
        assert_eq!(check(whole, "whole"), Vec::<String>::new());
        let [file, directory, symlink] = ["/damaged", "/d1", "/short"].map(|path| specimen.inode(path));
        let mut flips = vec![
            ("size of a file", file + 6, WRONG),
            ("size of a directory", directory + 5, WRONG),
            ("links of a file", file + 0x1a, WRONG),
            ("generation of a directory", directory + 0x64, WRONG),
            ("kind of a symlink", symlink + 1, WRONG),
            ("checksum of an inode", file + 0x7c, WRONG),
            ("time of an inode", file + 0x10, WRONG),
        ];
        let leaves = specimen.blocks(|block| is_leaf(block) && !is_single(block));
        let single = specimen.blocks(is_single);
        let roots = specimen.blocks(is_index_root);
        let nodes = specimen.blocks(is_index_node);
        let extents = specimen.blocks(is_extents);
        assert!(leaves.len() > 200 && roots.len() >= 2 && nodes.len() >= 4, "{} leaves", leaves.len());
        // Journals have copies, which do not matter; some of these are no copies.
        flips.extend(leaves.iter().step_by(leaves.len() / 12).map(|at| ("a leaf", at + 10, "")));
        flips.extend(single.iter().step_by(single.len().div_ceil(6)).map(|at| ("a single block", at + 30, "")));
        flips.extend(roots.iter().map(|at| ("the root of an index", at + 44, "")));
        flips.extend(nodes.iter().take(6).map(|at| ("a node of an index", at + 20, "")));
        flips.extend(extents.iter().map(|at| ("a node of extents", at + 20, "")));
        let said = check_flips(&specimen, &flips);
        let causes = [BLOCK, INDEX, EXTENTS];
        for cause in &causes[..if options.contains(&"^extent,^64bit,^has_journal") { 2 } else { 3 }] {
            assert!(said.contains(cause), "nothing was said of {cause}:\n{said}");
        }
    }
}

/// A file system that `mke2fs` fills: its directories have several blocks and no index.
fn filled(directory: &Path, options: &[&str]) -> PathBuf {
    let (from, image) = (directory.join("from"), directory.join("made"));
    for number in 0..200 {
        write_file(from.join("many").join(format!("{number}{}", "n".repeat(150))), number * 10);
        write_file(from.join(format!("d{}/f{number}.c", number % 7)), number * 37);
    }
    File::create(&image).unwrap().set_len(16 * MIB).unwrap();
    command(Command::new("mke2fs").args(["-F", "-q"]).args(options).arg("-d").arg(&from).arg(&image));
    image
}

#[test]
fn names_behind_a_damaged_block_count_as_in_a_walk() {
    if cannot_run() {
        return;
    }
    let directory = sandbox();
    for options in [&["-t", "ext4", "-b", "1024"][..], &["-t", "ext4", "-b", "2048", "-O", "^dir_index"]] {
        let intact = fs::read(filled(directory.path(), options)).unwrap();
        let root = directory.path().join("root");
        fs::create_dir_all(&root).unwrap();
        let specimen = Specimen { directory: sandbox(), intact };
        fs::create_dir(specimen.root()).unwrap();
        let leaves = specimen.blocks(|block| is_leaf(block) && block[8..].starts_with(b"1") && block[40] == b'n');
        assert!(leaves.len() > 5);
        for &at in &leaves {
            let mut image = specimen.intact.clone();
            image[at + 30] ^= 1;
            let ran = specimen.both(&image).unwrap();
            let [walked, scanned] = [&ran[0], &ran[1]].map(|ran| ran.json());
            let said = ran[1].said();
            // Linux leaves the block out without an error, but finds no name behind it.
            let mut expected = comparable(&walked);
            let errors = expected["counts"]["errors"].as_u64().unwrap();
            expected["counts"]["errors"] = (errors + 1).into();
            assert_eq!(differences(&expected, &comparable(&scanned)), Vec::<String>::new(), "{said}");
            assert_eq!((ran[1].code, &scanned["consistent"]), (Some(1), &false.into()));
            assert!(said.contains(BLOCK), "{said}");
        }
    }
}

#[test]
fn damaged_descriptors_are_read_from_copies() {
    if cannot_run() {
        return;
    }
    let directory = sandbox();
    let sets: [&[&str]; 3] = [
        &["-t", "ext4", "-b", "1024", "-g", "1024"],
        &["-t", "ext4", "-b", "1024", "-g", "1024", "-O", "^metadata_csum,uninit_bg,^64bit"],
        &["-t", "ext4", "-b", "1024", "-g", "1024", "-O", "^metadata_csum,uninit_bg,64bit"],
    ];
    for options in sets {
        let image = filled(directory.path(), options);
        let whole = run(args!["survey", "--json", "--as-of", AS_OF, "--method", "inode-scan", &image]).ended(0).json();
        assert_eq!(whole["consistent"], true);
        let intact = fs::read(&image).unwrap();
        let bytes = if intact[1024 + 0x60] & 0x80 != 0 { 64 } else { 32 };
        for group in 0..8 {
            for at in [8, 9, 0x12, 0x1c, 0x1e, bytes - 1] {
                let at = 2048 + group * bytes + at;
                File::options().write(true).open(&image).unwrap().write_all_at(&[intact[at] ^ 1], at as u64).unwrap();
                let ran = run(args!["survey", "--json", "--as-of", AS_OF, "--method", "inode-scan", &image]).ended(0);
                File::options().write(true).open(&image).unwrap().write_all_at(&[intact[at]], at as u64).unwrap();
                assert!(ran.said().contains("descriptors of 1 groups are damaged"), "{options:?}: {}", ran.said());
                assert_eq!(ran.json()["consistent"], false);
                assert_eq!(differences(&comparable(&whole), &comparable(&ran.json())), Vec::<String>::new());
            }
        }
    }
}

/// Places in metadata that are in use: superblock, descriptors, tables, directories and nodes of extents.
fn metadata(specimen: &Specimen, is_one: fn(&[u8]) -> bool) -> Vec<usize> {
    let bytes = specimen.block_bytes();
    let places = |at: usize| (at..at + bytes).filter(|&at| specimen.intact[at] != 0);
    let mut found: Vec<usize> = specimen.blocks(is_one).into_iter().flat_map(places).collect();
    // The tables begin with the inode of the root.
    let start = specimen.inode("/") & !(bytes - 1);
    let end = specimen.inode("/long") + 256;
    // Directories have more bytes than tables; the same number of each is tried.
    let table: Vec<usize> = (start..end).filter(|&at| specimen.intact[at] != 0).collect();
    let times = (found.len() / table.len().max(1)).max(1);
    found.extend(std::iter::repeat_n(table, times).flatten());
    found.extend(1024..1024 + 0x70);
    found.extend(2048..2048 + 64);
    found
}

#[test]
fn no_flip_in_metadata_is_silently_wrong() {
    if cannot_run() {
        return;
    }
    let mut random = Random::new(5);
    let options = ["-t", "ext4", "-b", "1024", "-O", "^has_journal"];
    let Some(specimen) = Specimen::new(&options) else { return };
    let places = metadata(&specimen, is_any);
    let (mut mounted, mut seen, mut different) = (0, 0, Vec::new());
    for number in 0..75 {
        let at = places[random.index(places.len())];
        let bit = 1u8 << random.below(8);
        let what = format!("flip {number}: bit {bit:#x} at {at:#x}");
        let mut image = specimen.intact.clone();
        image[at] ^= bit;
        // What Linux does not mount is refused, or said to be damaged.
        let Some(ran) = specimen.both(&image) else {
            let path = specimen.directory.path().join("image");
            let ran = run(args!["survey", "--json", "--method", "inode-scan", path]);
            assert!(ran.code == Some(2) || ran.json()["consistent"] == false, "{what}: {}", ran.said());
            continue;
        };
        mounted += 1;
        seen += usize::from(ran[0].json()["counts"]["errors"] != 0);
        let found = check(ran, &what);
        if !found.is_empty() {
            different.push(format!("{what}: {}", found.join("; ")));
        }
    }
    assert!(mounted > 60 && seen > 30, "{mounted} were mounted, a walk saw damage in {seen}");
    assert!(different.len() <= 2, "{}", different.join("\n"));
}

#[test]
fn no_flip_with_the_right_checksum_is_silently_wrong() {
    if cannot_run() {
        return;
    }
    let mut random = Random::new(11);
    // Not an index, its names and their blocks, because Linux finds these names only by their hashes; nor the numbers
    // of blocks, in inodes and descriptors, which Linux compares with the location of tables.
    let Some(specimen) = Specimen::new(&["-t", "ext4", "-b", "1024", "-O", "^has_journal"]) else { return };
    let places = metadata(&specimen, is_single);
    let mut silent = Vec::new();
    for number in 0..100 {
        let at = places[random.index(places.len())];
        if at < 4096 || (0x28..0x64).contains(&(at % 256)) {
            continue;
        }
        let bit = 1u8 << random.below(8);
        let mut image = specimen.intact.clone();
        image[at] ^= bit;
        seal(&mut image);
        let Some([walk, scan]) = specimen.both(&image) else { continue };
        let (walked, scanned) = (walk.json(), scan.json());
        let found = differences(&comparable(&walked), &comparable(&scanned));
        if !found.is_empty() && scanned["consistent"] == true {
            silent.push(format!("flip {number}: bit {bit:#x} at {at:#x}: {}\n{}", walk.said(), found.join("\n")));
        }
    }
    assert!(silent.is_empty(), "{}", silent.join("\n"));
}

#[test]
fn damage_with_right_checksums_ends_soon_and_never_badly() {
    if cannot_run() {
        return;
    }
    let Some(specimen) = Specimen::new(&["-t", "ext4", "-b", "1024", "-O", "inline_data,^has_journal"]) else { return };
    let mut again = specimen.intact.clone();
    seal(&mut again);
    assert!(again == specimen.intact, "an intact image is sealed already");
    let places = metadata(&specimen, is_any);
    let mut random = Random::new(3);
    let (mut opened, mut damaged) = (0, 0);
    for _ in 0..60 {
        let mut image = specimen.intact.clone();
        for _ in 0..1 + random.below(60) {
            image[places[random.index(places.len())]] = random.below(256) as u8;
        }
        seal(&mut image);
        let Ok(source) = Ext::open(&image[..], 1) else { continue };
        opened += 1;
        for counted_by_name in [false, true] {
            let scope = Scope { counted_by_name, threads: 1, ..Scope::default() };
            let collector = Collector::new(&granulo::survey::Options::default(), 1, 0, 20);
            let ended = Scan::new(&source, &collector, &scope).run(std::time::Duration::from_secs(60), || {});
            let counts = collector.survey().counts;
            assert!(counts.files + counts.directories <= image.len() as u64 / 128);
            damaged += usize::from(ended.is_ok_and(|ended| ended.damaged > 0));
        }
    }
    assert!(opened > 10 && damaged > 5, "{opened} of 60 were opened, damage was seen {damaged} times");
}

#[test]
fn without_names_damaged_inodes_are_errors() {
    if cannot_run() {
        return;
    }
    let Some(specimen) = Specimen::new(&["-t", "ext4", "-b", "1024"]) else { return };
    let path = specimen.directory.path().join("image");
    let mut image = specimen.intact.clone();
    image[specimen.inode("/damaged") + 6] ^= 0x40;
    fs::write(&path, &image).unwrap();
    let arguments = args!["survey", "--json", "--method", "inode-scan", "--without-names", &path];
    let ran = run(arguments).ended(1);
    let document = ran.json();
    assert_eq!((&document["counts"]["errors"], &document["consistent"]), (&1.into(), &false.into()));
    assert!(ran.said().contains(WRONG), "{}", ran.said());
}

#[test]
fn what_the_kernel_is_writing_is_not_damaged() {
    let Some(image) = Image::make(128 * MIB, &["mke2fs", "-F", "-q", "-t", "ext4"], Mount::Kernel("")) else { return };
    let root = image.root();
    for number in 0..3000 {
        write_file(root.join(format!("still/{}/{number}", number % 20)), number);
    }
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (root, ended) = (&root, &ended);
            scope.spawn(move || {
                for number in 0.. {
                    let directory = root.join(format!("busy{thread}/{}", number % 7));
                    let file = write_file(directory.join(format!("{}{}", number % 300, "n".repeat(90))), number % 5000);
                    if number % 3 == 0 {
                        fs::remove_file(file).unwrap();
                    }
                    if number % 500 == 499 {
                        fs::remove_dir_all(root.join(format!("busy{thread}/{}", number % 7))).unwrap();
                    }
                    if ended.load(Relaxed) {
                        break;
                    }
                }
            });
        }
        // Also when an assertion fails.
        let _end = EndsWriters(&ended);
        // A writer that is not scheduled for long between a change and its checksum is no fault of the scan.
        let mut damaged = 0;
        for _ in 0..25 {
            let ran = run(args!["survey", "--json", "--as-of", AS_OF, "--method", "inode-scan", &root]);
            assert!(ran.json()["counts"]["files"].as_u64().unwrap() >= 3000, "{}", ran.said());
            let is_damaged = ran.said().contains("damaged") || ran.said().contains(WRONG);
            if is_damaged {
                eprintln!("{}", ran.said());
            }
            damaged += u32::from(is_damaged);
        }
        assert!(damaged <= 3, "{damaged} of 25 scans met wrong checksums");
    });
}

/// Tells the writers to end when dropped.
struct EndsWriters<'e>(&'e AtomicBool);

impl Drop for EndsWriters<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}
