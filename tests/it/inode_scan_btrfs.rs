//! Surveys of btrfs by its trees against walks: equal in every number, with subvolumes, snapshots and every layout.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use granulo::testing::scan::inodes::btrfs::{Btrfs, Choice};
use granulo::testing::scan::inodes::{Scan, Scope};
use granulo::testing::survey::Collector;
use granulo_core::random::Random;
use rustix::fs::syncfs;
use serde_json::Value;

use crate::args;
use crate::harness::{assert_same, has_program, is_root, run, sandbox, skip, survey, write_file};
use crate::images::{Image, Mount, run as command};
use crate::inode_scan::{MIB, compare, many, patch, populate, refused, spoil};
use crate::model::AS_OF;

fn mounted(mkfs: &[&str], options: &str) -> Option<Image> {
    let mkfs = [&["mkfs.btrfs", "-q"], mkfs].concat();
    Image::make(512 * MIB, &mkfs, Mount::Kernel(options))
}

/// Fails where an inode scan that enters subvolumes differs from a walk.
#[track_caller]
fn compare_all(root: &Path, more: &[&str], but: &[&str]) -> Value {
    syncfs(File::open(root).unwrap()).unwrap();
    let by = |method: &str| {
        let mut arguments = args!["--as-of", AS_OF, "--method", method, root];
        arguments.extend(more.iter().map(OsString::from));
        survey(arguments)
    };
    let (walk, scan) = (by("walk"), by("inode-scan"));
    assert_eq!((&walk["method"], &scan["method"]), (&"walk".into(), &"inode-scan".into()));
    assert_eq!(scan["consistent"], true, "{}", scan["inconsistencies"]);
    assert_same(&walk, &scan, &[&["method", "consistent"], but].concat());
    scan
}

fn btrfs(arguments: &[&str], paths: &[&Path]) {
    command(Command::new("btrfs").args(arguments).args(paths));
}

/// Features that only btrfs has: compressed files, files that share extents, names of any byte.
fn more(root: &Path) {
    let packed = root.join("packed");
    fs::create_dir(&packed).unwrap();
    command(Command::new("chattr").arg("+c").arg(&packed));
    for size in [100, 3000, 5000, 200_000] {
        let file = write_file(packed.join(format!("{size}.txt")), size);
        command(Command::new("cp").arg("--reflink=always").arg(&file).arg(packed.join(format!("copy-{size}"))));
    }
    for name in [&b"\xff\xfe"[..], b"line\nend", b"\x01", &[b'n'; 255]] {
        File::create(root.join(std::ffi::OsStr::from_bytes(name))).unwrap();
    }
}

/// Nested subvolumes, snapshots of them, deleted ones, and directories in place of subvolumes.
fn subvolumes(root: &Path) {
    let path = |name: &str| root.join(name);
    for name in ["home", "home/user", "home/user/cache", "gone", "gone/inside"] {
        btrfs(&["-q", "subvolume", "create"], &[&path(name)]);
        for number in 0..50 {
            write_file(path(name).join(format!("d{}/f{number}", number % 3)), number * 150);
        }
    }
    fs::hard_link(path("home/user/d0/f3"), path("home/user/d1/again")).unwrap();
    btrfs(&["-q", "subvolume", "snapshot"], &[&path("home"), &path("home-2")]);
    btrfs(&["-q", "subvolume", "snapshot", "-r"], &[&path("home/user"), &path("home/user/before")]);
    write_file(path("home-2/d0/new"), 77_777);
    fs::remove_file(path("home-2/d0/f3")).unwrap();
    btrfs(&["-q", "subvolume", "delete"], &[&path("gone/inside")]);
    fs::create_dir(path("sizes/moved")).unwrap();
    fs::rename(path("gone"), path("sizes/moved/kept")).unwrap();
}

#[test]
fn the_scan_of_btrfs_says_what_the_walk_says() {
    for (mkfs, options) in [
        (&[][..], ""),
        (&["--nodesize", "4096", "-O", "^no-holes"], "compress-force=zstd"),
        (&["--nodesize", "65536", "-m", "single"], "max_inline=0"),
        (&["--csum", "xxhash", "-R", "quota"], ""),
        (&["--csum", "blake2", "--mixed"], "max_inline=4096,nodatacow"),
        (&["--csum", "sha256", "-O", "raid1c34", "-R", "^free-space-tree"], "space_cache=v1"),
    ] {
        eprintln!("mkfs.btrfs {mkfs:?}, {options}");
        let Some(image) = mounted(mkfs, options) else { return };
        let root = image.root();
        populate(&root, 3, true);
        many(&root, 4000);
        more(&root);
        compare(&root, &[], &[]);
        compare_all(&root, &["--hard-links", "each"], &[]);
        compare(&root, &["--hard-links", "shared"], &[]);
    }
}

#[test]
fn subvolumes_and_snapshots_are_counted_as_the_walk_does() {
    let Some(image) = mounted(&["--nodesize", "4096"], "") else { return };
    let root = image.root();
    populate(&root, 4, true);
    subvolumes(&root);
    let all = compare_all(&root, &["--hard-links", "each"], &[]);
    compare_all(&root, &[], &[]);
    compare_all(&root, &["--exclude", "d1", "--exclude", "/home/user/**", "--hard-links", "each"], &[]);
    let one = compare(&root, &["--hard-links", "each"], &[]);
    assert_eq!(one["counts"]["mount_points_skipped"], 3);
    assert!(one["counts"]["files"].as_u64().unwrap() + 300 < all["counts"]["files"].as_u64().unwrap());
    for below in ["home", "home-2", "home/user/before", "sizes", "sizes/moved", "home/user/d1", "deep"] {
        compare_all(&root.join(below), &["--hard-links", "each"], &[]);
        compare(&root.join(below), &["--hard-links", "each"], &[]);
    }
    refused(&root.join("home-2/user"), "it refers to a subvolume that is elsewhere");
    btrfs(&["-q", "subvolume", "create"], &[&root.join(".snapshots")]);
    write_file(root.join(".snapshots/1/file"), 10);
    let without = compare_all(&root, &["--hard-links", "each"], &[]);
    assert_eq!(without["counts"]["snapshot_directories_skipped"], 1);
    assert_eq!(without["counts"]["files"], all["counts"]["files"]);
    compare(&root, &["--hard-links", "each"], &[]);
    compare_all(&root, &["--hard-links", "each", "--include-snapshots"], &[]);
}

/// Mounts by a separate script, and returns its output.
fn in_namespace(script: &str, arguments: &[OsString]) -> Option<Vec<Value>> {
    let ran = crate::harness::in_mount_namespace(script, arguments)?.ended(0);
    Some(ran.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

#[test]
fn a_mounted_subvolume_is_a_root() {
    let Some(image) = mounted(&[], "") else { return };
    let root = image.root();
    populate(&root, 5, false);
    subvolumes(&root);
    syncfs(File::open(&root).unwrap()).unwrap();
    let script = r#"
        device=$(findmnt -n -o SOURCE "$1"); mkdir "$2/a" "$2/b"
        mount -o subvol=home/user "$device" "$2/a"; mount --bind "$2/a/d1" "$2/b"
        for root in "$2/a" "$2/b"; do for method in walk inode-scan; do
            "$GRANULO" survey --json --as-of 2030-01-01 --method $method "$root"
        done; done
        for root in "$2/b" "$2/a"; do "$GRANULO" survey --json --as-of 2030-01-01 "$root"; done
        mount -t tmpfs tmpfs "$2/a/cache"; echo x > "$2/a/cache/other"
        for method in walk auto; do "$GRANULO" survey --json -x --as-of 2030-01-01 --method $method "$2/a"; done
    "#;
    let at = sandbox();
    let Some(documents) = in_namespace(script, &args![&root, at.path()]) else { return };
    let [walk_a, scan_a, walk_b, scan_b, auto_b, auto_a, walk_x, auto_x] = &documents[..] else {
        panic!("{} documents", documents.len())
    };
    for (walk, scan) in [(walk_a, scan_a), (walk_b, scan_b), (walk_a, auto_a), (walk_x, auto_x)] {
        assert_eq!((&walk["method"], &scan["method"]), (&"walk".into(), &"inode-scan".into()), "{scan}");
        assert_same(walk, scan, &["method", "consistent"]);
    }
    assert_eq!((&walk_a["counts"]["files"], &walk_b["counts"]["files"]), (&150.into(), &18.into()));
    // To survey a part, all inodes would have to be read.
    assert_eq!(auto_b["method"], "walk");
}

#[test]
fn an_image_of_btrfs_is_surveyed_as_it_would_be_mounted() {
    let Some(image) = mounted(&[], "") else { return };
    let root = image.root();
    populate(&root, 6, true);
    subvolumes(&root);
    let walked = compare_all(&root, &["--hard-links", "each"], &[]);
    let copy = sandbox();
    let file = copy.path().join("image");
    command(Command::new("cp").arg("--sparse=always").arg(image.file()).arg(&file));
    let scan = |more: &[&str]| {
        let mut arguments = args!["--as-of", AS_OF, "--method", "inode-scan", "--hard-links", "each", &file];
        arguments.extend(more.iter().map(OsString::from));
        survey(arguments)
    };
    let found = scan(&[]);
    assert_eq!(found["consistent"], true);
    for part in ["counts", "distributions"] {
        assert_same(&walked[part], &found[part], &[]);
    }
    assert!(scan(&["-x"])["counts"]["files"].as_u64() < found["counts"]["files"].as_u64());
    // The subvolume that is mounted by default.
    btrfs(&["subvolume", "set-default"], &[&root.join("home/user/before")]);
    syncfs(File::open(&root).unwrap()).unwrap();
    command(Command::new("cp").arg("--sparse=always").arg(image.file()).arg(&file));
    assert_eq!(scan(&[])["counts"]["files"], 51);
}

#[test]
fn several_devices_are_read_while_they_are_mounted() {
    if !is_root() || !Path::new("/dev/loop-control").exists() || !has_program("mkfs.btrfs") {
        return skip("it mounts images, which needs root, loop devices and mkfs.btrfs");
    }
    for profile in ["raid1", "raid0", "raid10", "raid5"] {
        let directory = sandbox();
        let images: Vec<PathBuf> = (0..4).map(|number| directory.path().join(format!("{number}"))).collect();
        let attach = |image: &PathBuf| {
            File::create(image).unwrap().set_len(300 * MIB).unwrap();
            PathBuf::from(command(Command::new("losetup").args(["--find", "--show"]).arg(image)).trim())
        };
        let loops: Vec<PathBuf> = images.iter().map(attach).collect();
        command(Command::new("mkfs.btrfs").args(["-q", "-f", "-d", "single", "-m", profile]).args(&loops));
        command(Command::new("btrfs").args(["device", "scan"]).args(&loops));
        let root = directory.path().join("root");
        fs::create_dir(&root).unwrap();
        command(Command::new("mount").arg(&loops[1]).arg(&root));
        loops.iter().for_each(|device| drop(command(Command::new("losetup").arg("--detach").arg(device))));
        let unmount = Unmount(root);
        populate(&unmount.0, 7, true);
        many(&unmount.0, 3000);
        compare(&unmount.0, &["--hard-links", "each"], &[]);
        drop(unmount);
        refused(&images[0], "it has 4 devices, but only 1 could be read");
    }
}

/// Unmounts when dropped.
struct Unmount(PathBuf);

impl Drop for Unmount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// A small image that was filled without being mounted.
fn filled(at: &Path, options: &[&str]) -> Option<PathBuf> {
    if !has_program("mkfs.btrfs") {
        skip("there is no mkfs.btrfs");
        return None;
    }
    let from = crate::inode_scan::source(at);
    let image = at.join("image");
    File::create(&image).unwrap().set_len(128 * MIB).unwrap();
    command(Command::new("mkfs.btrfs").args(["-q", "-f"]).args(options).arg("-r").arg(&from).arg(&image));
    Some(image)
}

#[test]
fn damaged_btrfs_is_refused_or_said_to_be_damaged() {
    let directory = sandbox();
    let Some(image) = filled(directory.path(), &["-m", "single"]) else { return };
    let whole = survey(args!["--as-of", AS_OF, "--method", "inode-scan", &image]);
    assert_eq!((&whole["counts"]["files"], &whole["consistent"]), (&300.into(), &true.into()));
    let bytes = fs::read(&image).unwrap();
    let superblock = &bytes[64 << 10..(64 << 10) + 4096];
    let u64_at = |at: usize| u64::from_le_bytes(superblock[at..at + 8].try_into().unwrap());
    // The copy is used where the first superblock is damaged.
    patch(&image, (64 << 10) + 0x48, &[0xff; 8]);
    let ran = run(args!["survey", "--json", "--as-of", AS_OF, "--method", "inode-scan", &image]).ended(0);
    assert!(ran.said().contains("the first superblock is damaged; a copy was read"), "{}", ran.said());
    assert_same(&whole, &ran.json(), &["consistent", "inconsistencies"]);
    patch(&image, 64 << 20, &[0xff; 4096]);
    refused(&image, "its checksum is wrong, and no copy is intact");
    patch(&image, 64 << 10, superblock);
    // A feature of the future.
    let mut newer = superblock.to_vec();
    newer[0xbc + 5] |= 1;
    seal(&mut newer);
    patch(&image, 64 << 10, &newer);
    refused(&image, "it has an unsupported feature: incompat 0x10000000000");
    patch(&image, 64 << 10, superblock);
    File::options().write(true).open(&image).unwrap().set_len(100 * MIB).unwrap();
    refused(&image, "bytes shorter than its superblock states");
    File::options().write(true).open(&image).unwrap().set_len(128 * MIB).unwrap();
    // Without the tree of trees nothing can be read.
    let trees = bytes.chunks(4096).position(|block| block[0x30..0x38] == u64_at(0x50).to_le_bytes()).unwrap();
    patch(&image, trees as u64 * 4096 + 200, &[0xff; 64]);
    refused(&image, "its root tree cannot be read");
}

/// Gives a block its correct checksum.
fn seal(block: &mut [u8]) {
    let crc = block[32..].iter().fold(!0u32, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 })
    });
    block[..4].copy_from_slice(&(!crc).to_le_bytes());
}

#[test]
fn a_damaged_leaf_is_an_error_and_no_more() {
    let directory = sandbox();
    let Some(image) = filled(directory.path(), &["-m", "single", "--nodesize", "4096"]) else { return };
    let bytes = fs::read(&image).unwrap();
    // Leaves of the tree of files, the newest of which is live.
    let leaves = (0..bytes.len() / 4096).map(|at| &bytes[at * 4096..][..4096]).enumerate().filter(|(_, block)| {
        block[0x58..0x60] == 5u64.to_le_bytes() && block[0x64] == 0 && block[0x60] > 3 && block[0x40..0x50] != [0; 16]
    });
    let mut seen = 0;
    for (at, block) in leaves.collect::<Vec<_>>().into_iter().step_by(7) {
        patch(&image, at as u64 * 4096 + 300, &[0xee; 40]);
        let ran = run(args!["survey", "--json", "--as-of", AS_OF, "--method", "inode-scan", &image]);
        patch(&image, at as u64 * 4096, block);
        let Ok(document) = serde_json::from_slice::<Value>(&ran.stdout) else { continue };
        if document["counts"]["errors"].as_u64().unwrap() > 0 {
            assert_eq!(ran.code, Some(1), "{}", ran.said());
            assert!(ran.said().contains("damaged or was replaced"), "{}", ran.said());
            seen += 1;
        }
    }
    assert!(seen > 3, "{seen} leaves were in use");
}

#[test]
fn spoilt_images_of_btrfs_end_soon_and_never_badly() {
    let directory = sandbox();
    let Some(image) = filled(directory.path(), &["-m", "single", "--nodesize", "4096"]) else { return };
    let image = fs::read(image).unwrap();
    // Only blocks of trees: without checksums, everything else is noise.
    let is_tree = |block: &[u8]| block[0x20..0x30] == image[(64 << 10) + 0x20..(64 << 10) + 0x30];
    let trees = (0..image.len() / 4096).filter(|at| is_tree(&image[at * 4096..][..4096]));
    let used: Vec<usize> =
        trees.flat_map(|at| at * 4096 + 0x30..(at + 1) * 4096).filter(|&at| image[at] != 0).collect();
    let (mut opened, mut errors, mut random) = (0, 0, Random::new(11));
    for _ in 0..60 {
        let spoilt = spoil(&image, &used, &mut random);
        let choice = Choice { unchecked: true, ..Choice::default() };
        let Ok(source) = Btrfs::open(vec![&spoilt[..]], &choice, 1) else { continue };
        opened += 1;
        for counted_by_name in [false, true] {
            let scope = Scope { counted_by_name, threads: 1, ..Scope::default() };
            let collector = Collector::new(&granulo::survey::Options::default(), 1, 0, 20);
            let started = Instant::now();
            let ended = Scan::new(&source, &collector, &scope).run(Duration::from_secs(60), || {});
            assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
            let counts = collector.survey().counts;
            assert!(counts.files + counts.directories < 10_000);
            assert!(ended.is_err() || counts.directories > 0);
            errors += usize::from(counts.errors > 0);
        }
    }
    assert!(opened > 8 && errors > 4, "{opened} of 60 were opened, damage was seen {errors} times");
}

#[test]
fn while_btrfs_is_written_to_the_scan_is_that_of_one_moment() {
    let Some(image) = mounted(&["--nodesize", "4096"], "") else { return };
    let root = image.root();
    let files = 3000;
    for number in 0..files {
        write_file(root.join(format!("still/{}/{number}", number % 20)), number);
    }
    syncfs(File::open(&root).unwrap()).unwrap();
    let ended = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0.. {
                let file = File::create(root.join(format!("busy{}", number % 50))).unwrap();
                file.write_all_at(&vec![7; number % 9000], 0).unwrap();
                if number % 20 == 0 {
                    syncfs(&file).unwrap();
                }
                if ended.load(std::sync::atomic::Ordering::Relaxed) {
                    break;
                }
            }
        });
        for _ in 0..20 {
            let ran = run(args!["survey", "--json", "--as-of", AS_OF, "--method", "inode-scan", &root]).ended(0);
            let found = ran.json();
            let counted = found["counts"]["files"].as_u64().unwrap();
            assert!((files as u64..=files as u64 + 50).contains(&counted), "{counted}: {}", ran.said());
        }
        ended.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}
