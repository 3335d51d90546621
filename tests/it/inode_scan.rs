//! Inode scans against walks of the same file systems: equal in every number, on images with every feature.

use std::ffi::OsString;
use std::fs::{self, File, FileTimes};
use std::os::unix::fs::{FileExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use granulo::testing::scan::inodes::ext::Ext;
use granulo::testing::scan::inodes::{Scan, Scope};
use granulo::testing::survey::Collector;
use granulo_core::random::Random;
use rustix::fs::{CWD, FallocateFlags, FileType, Mode, XattrFlags, fallocate, mknodat, setxattr, syncfs};
use serde_json::Value;

use crate::args;
use crate::harness::{
    assert_same, differences, granulo_as_nobody, has_program, in_mount_namespace, run, sandbox, skip, survey,
    write_file,
};
use crate::images::{Image, Mount, run as command};
use crate::model::AS_OF;

pub const KIB: u64 = 1 << 10;
pub const MIB: u64 = 1 << 20;

/// A mounted image from `mke2fs OPTIONS`.
fn mounted(size_bytes: u64, options: &[&str]) -> Option<Image> {
    let mkfs = [&["mke2fs", "-F", "-q", "-E", "nodiscard"], options].concat();
    Image::make(size_bytes, &mkfs, Mount::Kernel(""))
}

/// The results of a walk and of an inode scan of the same mount point, with more arguments.
fn both(root: &Path, more: &[&str]) -> (Value, Value) {
    // The inode scan, which runs second, would otherwise allocate what is still delayed.
    syncfs(File::open(root).unwrap()).unwrap();
    let by = |method: &str| {
        let mut arguments = args!["--as-of", AS_OF, "-x", "--method", method, root];
        arguments.extend(more.iter().map(OsString::from));
        survey(arguments)
    };
    (by("walk"), by("inode-scan"))
}

/// Fails where an inode scan differs from a walk, except in `but`.
#[track_caller]
pub fn compare(root: &Path, more: &[&str], but: &[&str]) -> Value {
    let (walk, scan) = both(root, more);
    assert_eq!((&walk["method"], &scan["method"]), (&"walk".into(), &"inode-scan".into()));
    assert_eq!(scan["consistent"], true, "{}", scan["inconsistencies"]);
    assert_same(&walk, &scan, &[&["method", "consistent"], but].concat());
    scan
}

/// Files of every kind, made so that the numbers of hard links divide what they share.
pub fn populate(root: &Path, seed: u64, far_times: bool) {
    let sizes =
        [0, 1, 59, 60, 61, 100, 150, 156, 157, 160, 200, 511, 512, 513, 900, 1024, 4095, 4096, 5000, 60_000, 300_000];
    for (number, size) in sizes.into_iter().enumerate() {
        write_file(root.join(format!("sizes/d{}/f{size}.{}", number % 4, ["txt", "C", "", "7"][number % 4])), size);
    }
    holes(root);
    for length in [1, 10, 58, 59, 60, 61, 100, 127, 128, 160, 300, 1000] {
        symlink("r".repeat(length), root.join(format!("relative-{length}"))).unwrap();
        symlink(format!("/{}", "a".repeat(length)), root.join(format!("absolute-{length}.lnk"))).unwrap();
    }
    links(root);
    attributes(root);
    let old = File::create(root.join("old")).unwrap();
    let (before, after) = (Duration::from_secs(2_000_000_000), Duration::from_secs(9_000_000_000));
    old.set_times(FileTimes::new().set_modified(SystemTime::UNIX_EPOCH - before)).unwrap();
    if far_times {
        let new = File::create(root.join("new")).unwrap();
        new.set_times(FileTimes::new().set_modified(SystemTime::UNIX_EPOCH + after)).unwrap();
    }
    for (uid, gid) in [(1000, 70_000), (70_000, 5), (u32::MAX - 5, u32::MAX - 7)] {
        let path = write_file(root.join(format!("owner-{uid}")), 1234);
        chown(path, Some(uid), Some(gid)).unwrap();
    }
    let mut deep = root.join("deep");
    for level in 0..60 {
        deep.push(format!("level {level}"));
    }
    write_file(deep.join("bottom.rs"), 77);
    let mut random = Random::new(seed);
    for number in 0..600 {
        let state = random.any();
        let name = format!("random/{}/{}/{number}.{}", state >> 60, state >> 56 & 15, state >> 50 & 7);
        write_file(root.join(name), (state >> 40) as usize % 3000);
    }
    // Deleted files leave their inodes behind.
    fs::remove_dir_all(root.join("random/3")).ok();
    fs::remove_dir_all(root.join("random/9")).ok();
}

/// Sparse files, reserved ones, and lists of blocks with holes.
fn holes(root: &Path) {
    File::create(root.join("sparse.img")).unwrap().set_len(3 << 30).unwrap();
    let file = File::create(root.join("holes")).unwrap();
    for offset in [0, 5 * KIB, 13 * KIB, 300 * KIB, 70 * MIB, 80 * MIB + 1] {
        file.write_all_at(b"here", offset).unwrap();
    }
    let reserved = File::create(root.join("reserved")).unwrap();
    // Only extents can be reserved.
    let _ = fallocate(&reserved, FallocateFlags::KEEP_SIZE, 0, MIB);
}

/// Files with several names, and entries that are not files.
fn links(root: &Path) {
    for (number, size) in [0usize, 8192, 65_536].into_iter().enumerate() {
        let file = write_file(root.join(format!("links/one/{number}.o")), size);
        fs::create_dir_all(root.join("links/two")).unwrap();
        fs::hard_link(&file, root.join(format!("links/two/{number}.a"))).unwrap();
    }
    let nodes = [
        (FileType::Fifo, 0),
        (FileType::Socket, 0),
        (FileType::CharacterDevice, 0x0103),
        (FileType::BlockDevice, 0x0700),
    ];
    for (number, (kind, device)) in nodes.into_iter().enumerate() {
        mknodat(CWD, root.join(format!("node{number}")), kind, Mode::from_raw_mode(0o600), device).unwrap();
    }
    fs::hard_link(root.join("node0"), root.join("node0-again")).unwrap();
    fs::hard_link(root.join("relative-10"), root.join("links/symlink-again")).unwrap();
}

/// Attributes in the inode, and in a separate block.
fn attributes(root: &Path) {
    for (number, length) in [10, 60, 400, 900].into_iter().enumerate() {
        let file = write_file(root.join(format!("attributes/{number}")), 50 * number);
        let value = vec![b'v' + number as u8 % 2; length];
        // Where they do not fit, there are none.
        let _ = setxattr(&file, "user.test", &value, XattrFlags::empty());
        let _ = setxattr(root.join("attributes"), format!("user.test{number}"), &value[..10], XattrFlags::empty());
    }
}

/// A directory with so many names that it is hashed, some of which were removed again.
pub fn many(root: &Path, count: usize) {
    let directory = root.join("many");
    fs::create_dir(&directory).unwrap();
    let file = File::create(root.join("named often")).map(|_| root.join("named often")).unwrap();
    for number in 0..count {
        fs::hard_link(&file, directory.join(format!("{:x}{}", number * 7919, "n".repeat(number % 90)))).unwrap();
    }
    for number in (0..count).filter(|number| number % 3 == 0) {
        fs::remove_file(directory.join(format!("{:x}{}", number * 7919, "n".repeat(number % 90)))).unwrap();
    }
}

#[track_caller]
fn check_features(size_bytes: u64, sets: &[&[&str]]) {
    for options in sets {
        eprintln!("mke2fs {}", options.join(" "));
        let Some(image) = mounted(size_bytes, options) else { return };
        let root = image.root();
        // In the first revision, the kernel reports cached values that the inode cannot hold.
        populate(&root, size_bytes + options.len() as u64, !options.contains(&"-r"));
        many(&root, 4000);
        // If a name in another directory is met first, the file counts there.
        compare(&root, &[], &[]);
        compare(&root, &["--hard-links", "each"], &[]);
        compare(&root, &["--hard-links", "shared"], &[]);
    }
}

#[test]
fn the_scan_of_ext2_and_ext3_says_what_the_walk_says() {
    check_features(
        192 * MIB,
        &[
            &["-t", "ext2", "-b", "1024", "-I", "128"],
            &["-t", "ext2", "-b", "4096", "-O", "^filetype"],
            &["-t", "ext2", "-r", "0"],
            &["-t", "ext3", "-b", "1024"],
            &["-t", "ext3", "-b", "2048", "-I", "512", "-O", "^sparse_super,^resize_inode"],
        ],
    );
}

#[test]
fn the_scan_of_ext4_says_what_the_walk_says() {
    check_features(
        192 * MIB,
        &[
            &["-t", "ext4"],
            &["-t", "ext4", "-b", "1024", "-I", "128", "-O", "^huge_file,^dir_nlink"],
            &["-t", "ext4", "-b", "2048", "-I", "1024", "-N", "60000"],
            &["-t", "ext4", "-O", "^extent,^64bit"],
            &["-t", "ext4", "-O", "^flex_bg,^has_journal", "-b", "1024", "-g", "2048"],
        ],
    );
}

#[test]
fn the_scan_says_what_the_walk_says_where_data_are_in_inodes() {
    check_features(
        192 * MIB,
        &[
            &["-t", "ext4", "-O", "inline_data"],
            &["-t", "ext4", "-O", "inline_data", "-I", "1024"],
            &["-t", "ext4", "-O", "inline_data,ea_inode,^metadata_csum", "-b", "1024", "-I", "512"],
        ],
    );
}

#[test]
fn the_scan_says_what_the_walk_says_with_every_layout_of_groups() {
    check_features(
        192 * MIB,
        &[
            &["-t", "ext4", "-O", "meta_bg,^resize_inode", "-b", "1024"],
            &["-t", "ext4", "-O", "meta_bg,^resize_inode,^64bit,^flex_bg", "-b", "1024", "-g", "1024"],
            &["-t", "ext4", "-O", "^metadata_csum,uninit_bg"],
            &["-t", "ext4", "-O", "^metadata_csum,uninit_bg,64bit", "-b", "1024"],
            &["-t", "ext4", "-O", "^metadata_csum,^uninit_bg"],
            &["-t", "ext4", "-O", "sparse_super2,^resize_inode"],
            &["-t", "ext4", "-O", "metadata_csum,metadata_csum_seed,large_dir,ea_inode,mmp"],
        ],
    );
}

#[test]
fn the_scan_says_what_the_walk_says_of_clusters_and_orphans() {
    check_features(
        512 * MIB,
        &[
            &["-t", "ext4", "-O", "bigalloc", "-C", "16384"],
            &["-t", "ext4", "-O", "bigalloc", "-b", "1024", "-C", "65536"],
            &["-t", "ext4", "-O", "orphan_file"],
        ],
    );
}

#[test]
fn what_is_deleted_and_open_is_not_there() {
    for options in [&["-t", "ext4"][..], &["-t", "ext4", "-O", "orphan_file"], &["-t", "ext2"]] {
        let Some(image) = mounted(64 * MIB, options) else { return };
        let root = image.root();
        let open: Vec<File> = (0..50)
            .map(|number| {
                let path = write_file(root.join(format!("{number}")), 10_000);
                let file = File::open(&path).unwrap();
                fs::remove_file(path).unwrap();
                file
            })
            .collect();
        write_file(root.join("there"), 5);
        let scan = compare(&root, &[], &[]);
        assert_eq!(scan["counts"]["files"], 1);
        drop(open);
    }
}

#[test]
fn a_part_of_a_file_system_is_surveyed_from_its_tables() {
    let Some(image) = mounted(192 * MIB, &["-t", "ext4"]) else { return };
    let root = image.root();
    populate(&root, 1, true);
    for below in ["deep", "sizes", "sizes/d1", "random", "attributes"] {
        compare(&root.join(below), &[], &[]);
    }
    // Names outside it are not counted.
    let one = compare(&root.join("links/one"), &["--hard-links", "shared"], &[]);
    assert_eq!(one["counts"]["files"], 3);
}

#[test]
fn what_a_walk_leaves_out_is_left_out() {
    let Some(image) = mounted(192 * MIB, &["-t", "ext4"]) else { return };
    let root = image.root();
    populate(&root, 2, true);
    for directory in [".snapshot", "deep/.snapshots", "sizes/~snapshot/x"] {
        write_file(root.join(directory).join("copy"), 100);
    }
    write_file(root.join("sizes/.zfs"), 10);
    let scan = compare(&root, &[], &[]);
    assert_eq!(scan["counts"]["snapshot_directories_skipped"], 3);
    compare(&root, &["--include-snapshots", "--hard-links", "each"], &[]);
    for globs in [
        &["*.txt"][..],
        &["d1"],
        &["/sizes/d*/**", "*.7"],
        &["deep/level 0/**"],
        &["one"],
        &["two", "sparse*", "node*"],
    ] {
        let options: Vec<&str> = globs.iter().flat_map(|glob| ["--exclude", glob]).collect();
        let scan = compare(&root, &options, &[]);
        assert!(scan["counts"]["excluded"].as_u64().unwrap() > 0, "{globs:?}");
        compare(&root, &[&options[..], &["--hard-links", "each"]].concat(), &[]);
    }
}

#[test]
fn what_is_hidden_below_mount_points_is_left_out() {
    let Some(image) = mounted(64 * MIB, &["-t", "ext4"]) else { return };
    let root = image.root();
    write_file(root.join("a/hidden/x/y"), 5000);
    write_file(root.join("a/seen"), 5000);
    let script = r#"
        mount -t tmpfs tmpfs "$1/a/hidden"; echo x > "$1/a/hidden/other"
        "$GRANULO" survey --json --as-of 2030-01-01 -x --method walk "$1"
        "$GRANULO" survey --json --as-of 2030-01-01 -x "$1"
        "$GRANULO" survey --json --as-of 2030-01-01 --method inode-scan "$1"
        "$GRANULO" survey --json --as-of 2030-01-01 "$1"
    "#;
    let Some(ran) = in_mount_namespace(script, &args![&root]) else { return };
    let ran = ran.ended(0);
    let documents: Vec<Value> = ran.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [walk, auto, scan, crossing] = &documents[..] else { panic!("{} documents", documents.len()) };
    assert_eq!(walk["counts"]["mount_points_skipped"], 1);
    assert_same(walk, auto, &["method", "consistent"]);
    assert_same(walk, scan, &["method", "consistent", "options"]);
    assert_eq!((&auto["method"], &scan["method"]), (&"inode-scan".into(), &"inode-scan".into()));
    assert_eq!(crossing["method"], "walk");
    assert_eq!(crossing["counts"]["files"], 2);
    assert!(crossing["method_reason"].as_str().unwrap().contains("mounted below"), "{crossing}");
    assert!(ran.said().contains("exclude them with -x"), "{}", ran.said());
}

/// An image filled by `mke2fs -d` from a directory, without mounting it.
fn filled(directory: &Path, name: &str, size_bytes: u64, options: &[&str], from: &Path) -> Option<PathBuf> {
    if !has_program("mke2fs") {
        skip("there is no mke2fs");
        return None;
    }
    let image = directory.join(name);
    File::create(&image).unwrap().set_len(size_bytes).unwrap();
    command(Command::new("mke2fs").args(["-F", "-q"]).args(options).arg("-d").arg(from).arg(&image));
    Some(image)
}

pub fn source(directory: &Path) -> PathBuf {
    let from = directory.join("from");
    for number in 0..300 {
        write_file(from.join(format!("d{}/e{}/f{number}.c", number % 7, number % 3)), number * 37);
    }
    symlink("/usr", from.join("link")).unwrap();
    symlink("x".repeat(200), from.join("long")).unwrap();
    from
}

fn scan_of(image: &Path) -> Value {
    survey(args!["--as-of", AS_OF, "--method", "inode-scan", image])
}

#[test]
fn an_image_that_was_never_mounted_is_surveyed() {
    let directory = sandbox();
    let from = source(directory.path());
    let walked = survey(args!["--as-of", AS_OF, &from]);
    for options in [&["-t", "ext4"][..], &["-t", "ext2", "-b", "1024"], &["-t", "ext4", "-b", "65536"]] {
        let Some(image) = filled(directory.path(), "image", 64 * MIB, options, &from) else { return };
        let scan = scan_of(&image);
        assert_eq!(scan["consistent"], true);
        for distribution in ["file_size", "symlink_target_length", "mtime_age"] {
            let of = |document: &Value| document["distributions"][distribution].clone();
            assert_eq!(differences(&of(&walked), &of(&scan)), Vec::<String>::new(), "{options:?}");
        }
        assert_eq!(scan["counts"]["files"], 300);
        assert_eq!(scan["counts"]["symlinks_absolute"], 1);
        // lost+found exists too.
        assert_eq!(scan["counts"]["directories"].as_u64(), walked["counts"]["directories"].as_u64().map(|n| n + 1));
        assert_eq!(scan["distributions"]["directory_depth"]["max"], 2);
        fs::remove_file(image).unwrap();
    }
}

#[test]
fn blocks_are_those_that_debugfs_sees() {
    if !has_program("debugfs") {
        return skip("there is no debugfs");
    }
    let directory = sandbox();
    let from = source(directory.path());
    let Some(image) = filled(directory.path(), "image", 64 * MIB, &["-t", "ext4", "-O", "bigalloc"], &from) else {
        return;
    };
    let listed = command(Command::new("debugfs").args(["-R", "stat d3/e1/f220.c"]).arg(&image));
    let sectors = listed.split("Blockcount: ").nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap();
    let sectors: u64 = sectors.parse().unwrap();
    let scan = scan_of(&image);
    let allocated = &scan["distributions"]["allocated"];
    assert_eq!(allocated["min"], 0);
    assert_eq!(allocated["max"], sectors * 512);
}

pub fn patch(image: &Path, offset: u64, bytes: &[u8]) {
    File::options().write(true).open(image).unwrap().write_all_at(bytes, offset).unwrap();
}

/// Asserts the error of an inode scan for an image that it cannot read.
#[track_caller]
pub fn refused(image: &Path, cause: &str) {
    let ran = run(args!["survey", "--json", "--method", "inode-scan", image]).ended(2);
    assert!(ran.said().contains(cause), "{}", ran.said());
}

#[test]
fn a_damaged_superblock_is_read_from_a_copy() {
    let directory = sandbox();
    let from = source(directory.path());
    for options in [&["-t", "ext4", "-b", "1024"][..], &["-t", "ext2", "-b", "1024"], &["-t", "ext4", "-b", "4096"]] {
        let Some(image) = filled(directory.path(), "image", 300 * MIB, options, &from) else { return };
        let whole = scan_of(&image);
        patch(&image, 1024, &[0xa5; 1024]);
        let ran = run(args!["survey", "--json", "--as-of", AS_OF, "--method", "inode-scan", &image]).ended(0);
        assert!(ran.said().contains("the first superblock is damaged; the copy in group 1 was read"), "{}", ran.said());
        let copy = ran.json();
        assert_eq!(copy["consistent"], false);
        assert_same(&whole, &copy, &["consistent", "inconsistencies"]);
        // If the descriptors are lost too, those of the copy locate the tables.
        let block = if options[3] == "1024" { 2 * KIB } else { 4 * KIB };
        patch(&image, block, &[0x5a; 64]);
        let ran = run(args!["survey", "--json", "--as-of", AS_OF, "--method", "inode-scan", &image]).ended(0);
        assert_same(&whole, &ran.json(), &["consistent", "inconsistencies"]);
        fs::remove_file(image).unwrap();
    }
}

#[test]
fn what_cannot_be_read_is_refused_with_a_reason() {
    let directory = sandbox();
    let path = |name: &str| directory.path().join(name);
    fs::write(path("text"), "no file system\n".repeat(1000)).unwrap();
    refused(&path("text"), "it is not an ext2, ext3, ext4, xfs or btrfs file system");
    fs::write(path("empty"), "").unwrap();
    refused(&path("empty"), "it is not an ext2, ext3, ext4, xfs or btrfs file system");
    refused(&path("nothing"), "No such file or directory");
    let from = source(directory.path());
    let Some(image) = filled(directory.path(), "image", 32 * MIB, &["-t", "ext4", "-O", "^metadata_csum"], &from)
    else {
        return;
    };
    let feature = fs::read(&image).unwrap()[1024 + 0x60..1024 + 0x64].to_vec();
    patch(&image, 1024 + 0x63, &[0x40]);
    refused(&image, "it has an unsupported feature: incompat 0x40000000");
    patch(&image, 1024 + 0x60, &feature);
    File::options().write(true).open(&image).unwrap().set_len(20 * MIB).unwrap();
    refused(&image, "bytes shorter than its superblock states");
    File::options().write(true).open(&image).unwrap().set_len(32 * MIB).unwrap();
    assert_eq!(scan_of(&image)["counts"]["files"], 300);
    let ran = run(args!["survey", "--json", "--method", "inode-scan", &image, path("text")]).ended(2);
    assert!(ran.said().contains("one path"), "{}", ran.said());
    let ran = run(args!["survey", "--method", "inode-scan", &image, "--files", path("f.parquet")]).ended(2);
    assert!(ran.said().contains("a table of files needs a walk"), "{}", ran.said());
    // A file is a file unless it is specified as an image.
    assert_eq!(survey(args![&image])["counts"]["files"], 1);
}

#[test]
fn circles_of_directories_are_not_walked_in() {
    if !has_program("debugfs") {
        return skip("there is no debugfs");
    }
    let directory = sandbox();
    let from = directory.path().join("from");
    write_file(from.join("a/b/c/file"), 100);
    write_file(from.join("other"), 100);
    let Some(image) = filled(directory.path(), "image", 16 * MIB, &["-t", "ext4"], &from) else { return };
    let change = |request: &str| command(Command::new("debugfs").args(["-w", "-R", request]).arg(&image));
    change("link a a/b/c/a");
    let twice = run(args!["survey", "--json", "--method", "inode-scan", &image]);
    assert!(twice.said().contains("second name"), "{}", twice.said());
    assert_eq!(twice.json()["counts"]["directories"], 5);
    change("unlink a");
    let cut = run(args!["survey", "--json", "--method", "inode-scan", &image]).ended(0);
    assert!(cut.said().contains("3 directories cannot be reached from the root"), "{}", cut.said());
    let cut = cut.json();
    assert_eq!(cut["counts"]["files"], 1);
    assert_eq!(cut["counts"]["directories"], 2);
    assert_eq!(cut["consistent"], false);
}

#[test]
fn auto_takes_the_scan_of_a_mount_point_and_says_why_not() {
    let Some(image) = mounted(64 * MIB, &["-t", "ext4"]) else { return };
    let root = image.root();
    write_file(root.join("a/b"), 100);
    fs::set_permissions(&root, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    fs::remove_dir(root.join("lost+found")).unwrap();
    let auto = survey(args![&root]);
    assert_eq!(auto["method"], "inode-scan");
    assert_eq!(auto["consistent"], true);
    let part = survey(args![root.join("a")]);
    assert_eq!((&part["method"], &part["method_reason"]), (&"walk".into(), &Value::Null));
    let summary = run(args!["survey", &root]).ended(0);
    assert!(summary.text().lines().nth(1).unwrap().ends_with("s, by its inodes"), "{}", summary.text());
    let table = sandbox();
    let ran = run(args!["survey", "--json", &root, "--files", table.path().join("t.parquet")]).ended(0);
    assert_eq!(ran.json()["method"], "walk");
    assert!(ran.said().contains("a table of files needs a walk"), "{}", ran.said());
    let copy = sandbox();
    let Some(mut nobody) = granulo_as_nobody(&copy) else { return };
    let ran: crate::harness::Ran = nobody.args(["survey", "--json"]).arg(&root).output().unwrap().into();
    let ran = ran.ended(0);
    assert_eq!(ran.json()["method"], "walk");
    assert_eq!(ran.json()["counts"]["files"], 1);
    assert!(ran.said().contains("Permission denied"), "{}", ran.said());
}

#[test]
fn a_changing_file_system_is_said_to_be_one() {
    let directory = sandbox();
    let from = source(directory.path());
    let Some(image) = filled(directory.path(), "image", 16 * MIB, &["-t", "ext4"], &from) else { return };
    // The state while it is mounted, and after a crash.
    let mut superblock = fs::read(&image).unwrap()[1024..2048].to_vec();
    superblock[0x60] |= 4;
    let checksummed = superblock[0x64 + 1] & 4 != 0;
    assert!(checksummed, "the test is made for checksums");
    let crc = superblock[..0x3fc].iter().fold(!0u32, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 })
    });
    superblock[0x3fc..].copy_from_slice(&crc.to_le_bytes());
    patch(&image, 1024, &superblock);
    let ran = run(args!["survey", "--json", "--method", "inode-scan", &image]).ended(0);
    assert_eq!(ran.json()["consistent"], false);
    assert!(ran.said().contains("its journal has changes that were not written back"), "{}", ran.said());
}

/// Flips bytes in used parts of an image.
pub fn spoil(image: &[u8], used: &[usize], random: &mut Random) -> Vec<u8> {
    let mut image = image.to_vec();
    for _ in 0..1 + random.below(30) {
        let at = *random.pick(used);
        image[at] = match random.below(4) {
            0 => 0xff,
            1 => 0,
            2 => image[at] ^ 1 << random.below(8),
            _ => random.any() as u8,
        };
    }
    if random.happens(1, 8) {
        // Noise over a whole block.
        let block = *random.pick(used) & !0x3ff;
        image[block..block + 1024].fill_with(|| random.any() as u8);
    }
    image
}

#[test]
fn spoilt_images_end_soon_and_never_badly() {
    let directory = sandbox();
    let from = source(directory.path());
    let sets: [&[&str]; 4] = [
        &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,^has_journal,^resize_inode,inline_data"],
        &["-t", "ext2", "-b", "1024", "-O", "^resize_inode"],
        &["-t", "ext4", "-b", "1024", "-O", "^has_journal,^resize_inode"],
        &["-t", "ext4", "-b", "4096", "-O", "^metadata_csum,meta_bg,^resize_inode,^has_journal"],
    ];
    let mut random = Random::new(7);
    for options in sets {
        let Some(image) = filled(directory.path(), "image", 8 * MIB, options, &from) else { return };
        let image = fs::read(image).unwrap();
        let used: Vec<usize> = (1024..image.len()).filter(|&at| image[at] != 0 && image[at] != b'x').collect();
        let (mut opened, mut damaged) = (0, 0);
        for _ in 0..40 {
            let spoilt = spoil(&image, &used, &mut random);
            let Ok(source) = Ext::open(&spoilt[..], 1) else { continue };
            opened += 1;
            for counted_by_name in [false, true] {
                let scope = Scope { counted_by_name, threads: 1, ..Scope::default() };
                let collector = Collector::new(&granulo::survey::Options::default(), 1, 0, 20);
                let started = Instant::now();
                let ended = Scan::new(&source, &collector, &scope).run(Duration::from_secs(60), || {});
                assert!(started.elapsed() < Duration::from_secs(20), "{options:?}: {:?}", started.elapsed());
                let counts = collector.survey().counts;
                assert!(counts.files + counts.directories <= spoilt.len() as u64 / 128);
                assert!(ended.is_err() || counts.directories > 0);
                damaged += usize::from(counts.errors > 0);
            }
        }
        assert!(opened > 8 && damaged > 4, "{options:?}: {opened} of 40 were opened, damage was seen {damaged} times");
    }
}
