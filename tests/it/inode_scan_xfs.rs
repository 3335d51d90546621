//! Surveys of XFS by its inodes against walks: equal in every number, with changes that are only in the log, and after
//! it is written back.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use granulo::testing::scan::inodes::kernel::MountedXfs;
use granulo::testing::scan::inodes::xfs::Xfs;
use granulo::testing::scan::inodes::{Ended, Scan, Scope};
use granulo::testing::survey::Collector;
use granulo_core::random::Random;
use rustix::fs::{XattrFlags, lsetxattr, syncfs};
use rustix::io::Errno;
use serde_json::Value;

use crate::args;
use crate::harness::{assert_same, finish, has_program, run, sandbox, skip, survey, write_file};
use crate::images::{Image, Mount, run as command};
use crate::inode_scan::{MIB, compare, many, patch, populate, refused, source, spoil};
use crate::model::AS_OF;

fn mounted(mkfs: &[&str]) -> Option<Image> {
    let mkfs = [&["mkfs.xfs", "-q", "-f"], mkfs].concat();
    Image::make(512 * MIB, &mkfs, Mount::Kernel(""))
}

/// Directories that grow in turn, so that each is fragmented; and one that was emptied again.
fn pieces(root: &Path) {
    for number in 0..2000 {
        for directory in 0..6 {
            let directory = root.join(format!("pieces/{directory}"));
            fs::create_dir_all(&directory).unwrap();
            File::create(directory.join(format!("{number}{}", "p".repeat(180)))).unwrap();
        }
    }
    for number in 0..2000 {
        fs::remove_file(root.join(format!("pieces/5/{number}{}", "p".repeat(180)))).unwrap();
    }
    for number in (0..2000).filter(|number| number % 7 != 0) {
        fs::remove_file(root.join(format!("pieces/4/{number}{}", "p".repeat(180)))).unwrap();
    }
}

fn remount(root: &Path) {
    command(Command::new("mount").args(["-o", "remount,ro"]).arg(root));
    command(Command::new("mount").args(["-o", "remount,rw"]).arg(root));
}

#[test]
fn the_scan_of_xfs_says_what_the_walk_says() {
    for options in [
        &[][..],
        &["-b", "size=1024"],
        &["-b", "size=1024", "-n", "size=16384", "-d", "agcount=7"],
        &["-m", "bigtime=0,inobtcount=0,finobt=0,reflink=0,rmapbt=0", "-i", "size=2048,sparse=0"],
        &["-m", "rmapbt=1,reflink=1", "-i", "nrext64=1", "-s", "size=4096"],
        &["-b", "size=2048", "-i", "nrext64=0", "-l", "su=64k"],
    ] {
        eprintln!("mkfs.xfs {options:?}");
        let Some(image) = mounted(options) else { return };
        let root = image.root();
        populate(&root, 8, !options.iter().any(|option| option.contains("bigtime=0")));
        many(&root, 4000);
        // None of this is written back yet.
        compare(&root, &[], &[]);
        compare(&root, &["--hard-links", "each"], &[]);
        pieces(&root);
        compare(&root, &["--hard-links", "shared"], &[]);
        remount(&root);
        compare(&root, &["--hard-links", "each"], &[]);
        fs::remove_dir_all(root.join("pieces")).unwrap();
        write_file(root.join("later/file"), 5);
        compare(&root, &["--hard-links", "each"], &[]);
        for below in ["deep", "sizes", "random", "later"] {
            compare(&root.join(below), &["--exclude", "*.7"], &[]);
        }
    }
}

#[test]
fn the_scan_of_the_fourth_version_of_xfs_says_what_the_walk_says() {
    for options in
        [&["-m", "crc=0"][..], &["-m", "crc=0", "-n", "ftype=0,size=8192", "-b", "size=1024", "-i", "size=256"]]
    {
        let mkfs = [&["mkfs.xfs", "-q", "-f"], options].concat();
        let directory = sandbox();
        let probe = directory.path().join("probe");
        if !has_program("mkfs.xfs") {
            return skip("there is no mkfs.xfs");
        }
        File::create(&probe).unwrap().set_len(512 * MIB).unwrap();
        command(Command::new(mkfs[0]).args(&mkfs[1..]).arg(&probe));
        assert_eq!(survey(args!["--method", "inode-scan", &probe])["counts"]["directories"], 1);
        let root = directory.path().join("root");
        fs::create_dir(&root).unwrap();
        if !Command::new("mount").args(["-o", "loop"]).arg(&probe).arg(&root).status().is_ok_and(|done| done.success())
        {
            // Kernels may be built without it; then only an empty one is read.
            continue;
        }
        let unmount = Unmount(root);
        populate(&unmount.0, 9, false);
        many(&unmount.0, 4000);
        pieces(&unmount.0);
        compare(&unmount.0, &["--hard-links", "each"], &[]);
        remount(&unmount.0);
        compare(&unmount.0, &["--hard-links", "each"], &[]);
    }
}

/// Unmounts when dropped.
struct Unmount(PathBuf);

impl Drop for Unmount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn what_is_deleted_and_open_is_not_on_xfs() {
    let Some(image) = mounted(&[]) else { return };
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
    assert_eq!(compare(&root, &[], &[])["counts"]["files"], 1);
    drop(open);
}

#[test]
fn many_changes_in_the_log_are_replayed_in_their_order() {
    let Some(image) = mounted(&["-b", "size=1024"]) else { return };
    let root = image.root();
    let mut random = Random::new(5);
    for round in 0..6 {
        for _ in 0..1500 {
            let state = random.any();
            let path = root.join(format!("d{}/e{}/f{}", state >> 61, state >> 56 & 7, state >> 50 & 31));
            match state >> 40 & 7 {
                0 => drop(fs::remove_dir_all(path.parent().unwrap())),
                1 | 2 => drop(fs::remove_file(&path)),
                3 => drop(fs::rename(&path, root.join(format!("moved-{}", state >> 33 & 63)))),
                _ => drop(write_file(path, (state >> 20) as usize % 20_000)),
            }
            if state >> 34 & 0xff == 0 {
                syncfs(File::open(&root).unwrap()).unwrap();
            }
        }
        compare(&root, &["--hard-links", "each"], &[]);
        if round == 2 {
            remount(&root);
        }
    }
}

#[test]
fn an_image_of_xfs_is_surveyed_clean_or_not() {
    let Some(image) = mounted(&[]) else { return };
    let root = image.root();
    populate(&root, 10, true);
    let walked = compare(&root, &["--hard-links", "each"], &[]);
    let copy = sandbox();
    let file = copy.path().join("image");
    let scan = || {
        let arguments =
            args!["survey", "--json", "--as-of", AS_OF, "--method", "inode-scan", "--hard-links", "each", &file];
        run(arguments).ended(0)
    };
    // The state after a crash.
    command(Command::new("cp").arg("--sparse=always").arg(image.file()).arg(&file));
    let found = scan();
    assert!(found.said().contains("its log had changes that were not written back"), "{}", found.said());
    for part in ["counts", "distributions"] {
        assert_same(&walked[part], &found.json()[part], &[]);
    }
    assert_eq!(found.json()["consistent"], false);
    command(Command::new("mount").args(["-o", "remount,ro"]).arg(&root));
    command(Command::new("cp").arg("--sparse=always").arg(image.file()).arg(&file));
    let found = scan();
    for part in ["counts", "distributions"] {
        assert_same(&walked[part], &found.json()[part], &[]);
    }
}

/// An image that mkfs.xfs filled from a list of files.
fn filled(at: &Path, options: &[&str]) -> Option<PathBuf> {
    if !has_program("mkfs.xfs") {
        skip("there is no mkfs.xfs");
        return None;
    }
    let from = source(at);
    let mut list = "/dev/null\n0 0\nd--755 0 0\n".to_owned();
    for number in 0..300 {
        let file = from.join(format!("d{}/e{}/f{number}.c", number % 7, number % 3));
        list.push_str(&format!("file{number} ---644 0 0 {}\n", file.display()));
    }
    list.push_str("down d--755 0 0\nlink l--777 0 0 /usr\nfifo p--644 0 0\n$\n$\n");
    let protofile = at.join("list");
    fs::write(&protofile, list).unwrap();
    let image = at.join("image");
    File::create(&image).unwrap().set_len(300 * MIB).unwrap();
    command(Command::new("mkfs.xfs").args(["-q", "-f", "-p"]).arg(&protofile).args(options).arg(&image));
    Some(image)
}

#[test]
fn damaged_xfs_is_refused_or_said_to_be_damaged() {
    let directory = sandbox();
    let Some(image) = filled(directory.path(), &["-d", "agcount=3"]) else { return };
    let scan = || run(args!["survey", "--json", "--as-of", AS_OF, "--method", "inode-scan", &image]);
    let whole = scan().ended(0).json();
    assert_eq!((&whole["counts"]["files"], &whole["counts"]["symlinks_absolute"]), (&300.into(), &1.into()));
    assert_eq!((&whole["counts"]["directories"], &whole["consistent"]), (&2.into(), &true.into()));
    let bytes = fs::read(&image).unwrap();
    let u32_at = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
    patch(&image, 90, &[0xff; 2]);
    refused(&image, "its number of blocks does not match its groups");
    patch(&image, 84, &bytes[84..100]);
    patch(&image, 110, &[0xff; 2]);
    refused(&image, "its checksum is wrong");
    patch(&image, 110, &bytes[110..112]);
    patch(&image, 216, &[0x40]);
    refused(&image, "it has an unsupported feature: incompat 0x40000000");
    patch(&image, 216, &bytes[216..220]);
    // One group fewer.
    let group = u64::from(u32_at(84)) * u64::from(u32_at(4));
    patch(&image, group + 1024, &[0; 4]);
    let ran = scan().ended(0);
    assert!(ran.said().contains("inodes of group 1 are missing"), "{}", ran.said());
    patch(&image, group + 1024, b"XAGI");
    // One inode fewer.
    let root = u64::from_be_bytes(bytes[56..64].try_into().unwrap());
    let inode = (root + 7) * 512;
    assert_eq!(&bytes[inode as usize..inode as usize + 2], b"IN");
    patch(&image, inode + 60, &[0xff; 2]);
    let ran = scan().ended(1);
    assert!(ran.said().contains("its checksum is wrong, or it is another inode"), "{}", ran.said());
    assert_eq!(ran.json()["counts"]["files"], 299);
    patch(&image, inode + 60, &bytes[inode as usize + 60..inode as usize + 62]);
    // A log that cannot be read.
    let block = u64::from_be_bytes(bytes[48..56].try_into().unwrap());
    let bits = u32::from(bytes[124]);
    let log = ((block >> bits) * u64::from(u32_at(84)) + (block & ((1 << bits) - 1))) * u64::from(u32_at(4));
    patch(&image, log, &[0xff; 8]);
    refused(&image, "the newest record of the log was not found");
    patch(&image, log, &bytes[log as usize..log as usize + 8]);
    File::options().write(true).open(&image).unwrap().set_len(200 * MIB).unwrap();
    refused(&image, "bytes shorter than its superblock states");
}

/// A directory block of several blocks must be without gaps: otherwise blocks of two directory blocks pass for one.
#[test]
fn a_directory_block_whose_extents_have_a_gap_is_damaged() {
    if !has_program("xfs_db") {
        return skip("there is no xfs_db");
    }
    let directory = sandbox();
    let Some(image) = filled(directory.path(), &["-n", "size=8192"]) else { return };
    let scan = || run(args!["survey", "--json", "--as-of", AS_OF, "--method", "inode-scan", &image]);
    assert_eq!(scan().ended(0).json()["counts"]["files"], 300);
    // The two blocks of the first directory block, the second of them at another place in the directory.
    let root = ["sb 0", "addr rootino"];
    let expert = |commands: &[String]| {
        let commands = root.iter().map(|it| (*it).to_owned()).chain(commands.iter().cloned());
        finish(Command::new("xfs_db").arg("-x").args(commands.flat_map(|it| ["-c".to_owned(), it])).arg(&image))
            .ended(0)
    };
    let printed = expert(&["print u3.bmx[0].startblock".to_owned()]).text();
    let start: u64 = printed.trim().rsplit(' ').next().unwrap().parse().unwrap();
    let writes = [("0].blockcount", 1), ("1].startoff", 7), ("1].startblock", start + 1), ("1].blockcount", 1)];
    expert(&writes.map(|(field, value)| format!("write -d u3.bmx[{field} {value}")));
    let ran = scan().ended(1);
    assert!(ran.said().contains("one of its blocks is not whole"), "{}", ran.said());
    assert_eq!(ran.json()["consistent"], false);
}

#[test]
fn spoilt_images_of_xfs_end_soon_and_never_badly() {
    for options in [&["-b", "size=1024", "-d", "agcount=2"][..], &["-m", "crc=0", "-n", "ftype=0"]] {
        let directory = sandbox();
        let Some(image) = filled(directory.path(), options) else { return };
        let mut image = fs::read(image).unwrap();
        image.truncate(300 << 20);
        // Data is noise; only the rest matters.
        let metadata = (0..image.len() / 512).filter(|at| {
            let sector = &image[at * 512..][..512];
            sector[..2] == *b"IN"
                || sector[..2] == *b"XF"
                || sector[..2] == *b"XA"
                || sector[..2] == *b"IA"
                || sector[..2] == *b"XD"
        });
        let used: Vec<usize> = metadata.flat_map(|at| at * 512..(at + 1) * 512).filter(|&at| image[at] != 0).collect();
        let (mut opened, mut errors, mut random) = (0, 0, Random::new(13));
        for _ in 0..25 {
            let spoilt = spoil(&image, &used, &mut random);
            let Ok(source) = Xfs::open(&spoilt[..], 1, true) else { continue };
            opened += 1;
            for counted_by_name in [false, true] {
                let scope = Scope { counted_by_name, threads: 1, ..Scope::default() };
                let collector = Collector::new(&granulo::survey::Options::default(), 1, 0, 20);
                let started = Instant::now();
                let ended = Scan::new(&source, &collector, &scope).run(Duration::from_secs(60), || {});
                assert!(started.elapsed() < Duration::from_secs(20), "{options:?}: {:?}", started.elapsed());
                let counts = collector.survey().counts;
                assert!(counts.files + counts.directories < 10_000);
                assert!(ended.is_err() || counts.directories > 0);
                errors += usize::from(counts.errors > 0);
            }
        }
        assert!(opened > 4 && errors > 2, "{options:?}: {opened} of 25 were opened, damage was seen {errors} times");
    }
}

#[test]
fn blocks_reserved_for_copy_on_write_are_a_reason_to_walk() {
    let Some(image) = mounted(&["-m", "reflink=1"]) else { return };
    let root = image.root();
    let first = write_file(root.join("first"), 4 << 20);
    command(Command::new("cp").arg("--reflink=always").arg(&first).arg(root.join("second")));
    assert_eq!(survey(args![&root])["method"], "inode-scan", "shared blocks alone are no reason");
    // One page of each megabyte: for each, the kernel reserves 32 blocks.
    let file = File::options().write(true).open(&first).unwrap();
    for megabyte in 0..4 {
        file.write_all_at(&[7; 4096], megabyte << 20).unwrap();
    }
    syncfs(&file).unwrap();
    let walk = survey(args!["--method", "walk", &root]);
    let auto = run(args!["survey", "--json", &root]).ended(0).json();
    assert_eq!(auto["method"], "walk");
    assert!(auto["method_reason"].as_str().unwrap().contains("reserved for copy-on-write"));
    assert_same(&walk, &auto, &["method_reason", "ages_relative_to"]);
    let scan = run(args!["survey", "--json", "--method", "inode-scan", &root]).ended(0).json();
    assert_eq!(scan["consistent"], false);
    assert!(scan["inconsistencies"][0].as_str().unwrap().contains("reserved for copy-on-write"));
    // Mounted read-only in between, the kernel gives the rest back.
    drop(file);
    remount(&root);
    compare(&root, &[], &[]);
}

#[test]
fn the_kernel_is_asked_for_what_it_has_in_memory() {
    let Some(image) = mounted(&["-m", "reflink=1"]) else { return };
    let root = image.root();
    populate(&root, 12, true);
    // So many that the device is not read for them.
    for directory in 0..70 {
        let directory = root.join(format!("many/{directory}"));
        fs::create_dir_all(&directory).unwrap();
        (0..1000).for_each(|number| drop(File::create(directory.join(format!("{number}"))).unwrap()));
    }
    let gone = write_file(root.join("gone"), 5000);
    let open = File::open(&gone).unwrap();
    fs::remove_file(gone).unwrap();
    // What is small enough is in the inode, and its attributes are not.
    let short = root.join("short");
    fs::create_dir(&short).unwrap();
    symlink("target", short.join("link")).unwrap();
    for path in [&short, &short.join("link")] {
        lsetxattr(path, "trusted.long", &[7; 3000], XattrFlags::empty()).unwrap();
        assert!(fs::symlink_metadata(path).unwrap().blocks() > 0);
    }
    // Blocks that are reserved for copy-on-write are in the kernel's memory only.
    let first = write_file(root.join("first"), 4 << 20);
    command(Command::new("cp").arg("--reflink=always").arg(&first).arg(root.join("second")));
    let file = File::options().write(true).open(&first).unwrap();
    file.write_all_at(&[7; 4096], 1 << 20).unwrap();
    syncfs(&file).unwrap();
    let walked = survey(args!["--method", "walk", &root]);
    let source = match MountedXfs::open(&root, 1) {
        Err(error) if error.raw_os_error() == Some(Errno::NOTTY.raw_os_error()) => {
            return skip("the kernel is too old");
        }
        source => source.unwrap(),
    };
    for (threads, counted_by_name) in [(1, false), (3, false), (3, true)] {
        let scope = Scope { counted_by_name, threads, device: 1, ..Scope::default() };
        let collector = Collector::new(&granulo::survey::Options::default(), threads, 0, 20);
        let ended = Scan::new(&source, &collector, &scope).run(Duration::from_secs(60), || {}).unwrap();
        assert_eq!(ended, Ended::default());
        let found = collector.survey();
        let counts = &found.counts;
        for (name, count) in [
            ("files", counts.files),
            ("hard_links_skipped", counts.hard_links_skipped),
            ("directories", counts.directories),
            ("symlinks_absolute", counts.symlinks_absolute),
            ("symlinks_relative", counts.symlinks_relative),
            ("errors", counts.errors),
        ] {
            assert_eq!(walked["counts"][name], count, "{name}");
        }
        assert_eq!(walked["distributions"]["allocated"]["total"], found.allocated_bytes() as u64);
        let others = found.other_allocated;
        for (name, bytes) in [("directories", others.directories_bytes), ("symlinks", others.symlinks_bytes)] {
            assert_eq!(walked["totals"][format!("{name}_allocated_bytes")], bytes as u64, "{name}");
        }
    }
    // The same by the program. It reads the device if something else drops the kernel's caches; then nothing may be
    // reserved.
    drop((file, open));
    remount(&root);
    compare(&root, &[], &[]);
    compare(&root, &["--hard-links", "each"], &[]);
    compare(&root.join("deep"), &["--exclude", "*.7"], &[]);
    assert_eq!(survey(args![&root])["method"], "inode-scan");
}

#[test]
fn auto_takes_the_scan_of_xfs() {
    let Some(image) = mounted(&[]) else { return };
    let root = image.root();
    write_file(root.join("a/b"), 100);
    let auto = survey(args![&root]);
    assert_eq!((&auto["method"], &auto["consistent"]), (&"inode-scan".into(), &true.into()));
    let part: Value = survey(args![root.join("a")]);
    assert_eq!(part["method"], "walk");
}
