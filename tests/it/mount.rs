//! A mounted store is a file system: everything that a program can do to ext4 it can do here, and finds it again after
//! a remount, with the same inode numbers.
//!
//! `mount_random` compares with ext4 what random operations do; `make test-pjdfs` runs the cases of pjdfstest.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FlockOperation, Mode, OFlags, RawDir, RenameFlags, SeekFrom as Whence, StatxFlags,
    XattrFlags, copy_file_range, fallocate, flock, lgetxattr, linkat, llistxattr, lremovexattr, lsetxattr, openat,
    renameat_with, seek, statvfs, statx,
};
use rustix::io::Errno;
use rustix::process::Signal;

use crate::harness::{finish, granulo, granulo_as_nobody, has_program, run, skip, without_wishes};
use crate::mounted::{Mounted, PATIENCE, Place};
use crate::nasty::{assert_same_trees, content, nasty_tree};

fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").arg(from).arg(to).output().unwrap();
    assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
}

/// Inode numbers of everything below a directory.
fn inodes(root: &Path) -> Vec<(PathBuf, u64)> {
    let (mut all, mut left) = (Vec::new(), vec![root.to_owned()]);
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let found = path.symlink_metadata().unwrap();
            all.push((path.clone(), found.ino()));
            if found.is_dir() {
                left.push(path);
            }
        }
    }
    all.sort();
    all
}

#[test]
fn a_tree_with_everything_comes_back_after_a_remount() {
    let Some(place) = Place::new() else { return };
    let source = place.sandbox.path().join("source");
    fs::create_dir(&source).unwrap();
    nasty_tree(&source, 1 << 30);
    let mounted = place.mount();
    copy(&source, &mounted.root);
    let copied = mounted.root.join("source");
    assert_same_trees(&source, &copied);
    let before = inodes(&copied);
    mounted.unmount();
    place.check();
    for arguments in [&["-o", "ro"][..], &[]] {
        let mounted = place.mount_with(arguments);
        assert_same_trees(&source, &copied);
        assert_eq!(inodes(&copied), before);
        mounted.unmount();
    }
    let exported = place.sandbox.path().join("exported");
    run(["store".as_ref(), "export".as_ref(), place.store().as_os_str(), exported.as_os_str()]).ended(0);
    assert_same_trees(&source, &exported.join("source"));
}

/// Bytes in the segments of a store that is a directory.
fn segment_bytes(store: &Path) -> u64 {
    let segments = fs::read_dir(store.join("segments")).unwrap();
    segments.map(|segment| segment.unwrap().metadata().unwrap().len()).sum()
}

#[test]
fn a_large_directory_is_renamed_at_once_and_lists_in_pieces() {
    const FILES: usize = 20_000;
    let Some(place) = Place::new() else { return };
    let mounted = place.mount();
    let (old, new) = (mounted.root.join("old"), mounted.root.join("new"));
    fs::create_dir_all(old.join("within")).unwrap();
    for number in 0..FILES {
        File::create(old.join(format!("within/{number}"))).unwrap();
    }
    File::open(&mounted.root).unwrap().sync_all().unwrap();
    let before = segment_bytes(&place.store());
    fs::rename(&old, &new).unwrap();
    File::open(&mounted.root).unwrap().sync_all().unwrap();
    let written = segment_bytes(&place.store()) - before;
    assert!(written < 10_000, "{written} bytes for {FILES} files");
    let mut names: Vec<usize> = fs::read_dir(new.join("within"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_str().unwrap().parse().unwrap())
        .collect();
    names.sort_unstable();
    assert!(names.iter().copied().eq(0..FILES));
    // While it is listed, its entries are removed.
    fs::remove_dir_all(&new).unwrap();
    assert_eq!(fs::read_dir(&mounted.root).unwrap().count(), 0);
    assert_eq!(mounted.root.metadata().unwrap().nlink(), 2);
    mounted.unmount();
    place.check();
}

#[test]
fn a_listing_continues_where_it_was_however_little_is_taken_of_it() {
    let Some(place) = Place::new() else { return };
    let mounted = place.mount();
    let directory = mounted.root.join("directory");
    fs::create_dir(&directory).unwrap();
    let names: Vec<String> = (0..300).map(|number| format!("{number:03}")).collect();
    names.iter().for_each(|name| _ = File::create(directory.join(name)).unwrap());
    let open = File::open(&directory).unwrap();
    // The kernel gets more at once than it has room for here, and asks for the rest again.
    let read = |is_removed: bool| {
        let mut buffer = [MaybeUninit::uninit(); 256];
        let (mut listing, mut seen) = (RawDir::new(&open, &mut buffer), Vec::new());
        while let Some(entry) = listing.next() {
            let entry = entry.unwrap();
            let name = entry.file_name().to_str().unwrap().to_owned();
            if is_removed && !name.starts_with('.') {
                fs::remove_file(directory.join(&name)).unwrap();
            }
            seen.push((name, entry.next_entry_cookie()));
        }
        seen
    };
    let only_names = |seen: &[(String, u64)]| -> Vec<String> {
        seen.iter().map(|(name, _)| name.clone()).filter(|name| !name.starts_with('.')).collect()
    };
    let seen = read(false);
    assert_eq!(only_names(&seen), names);
    for at in [250, 100, 7] {
        fs::remove_file(directory.join(&seen[at - 3].0)).unwrap();
        seek(&open, Whence::Start(seen[at].1)).unwrap();
        let behind = read(false);
        assert_eq!(behind[0].0, seen[at + 1].0);
    }
    seek(&open, Whence::Start(0)).unwrap();
    assert_eq!(only_names(&read(true)).len(), names.len() - 3);
    drop(open);
    fs::remove_dir(&directory).unwrap();
    mounted.unmount();
}

#[test]
fn names_and_links_follow_the_rules() {
    let Some(place) = Place::new() else { return };
    let mounted = place.mount();
    let at = |name: &str| mounted.root.join(name);
    fs::write(at("a"), "a").unwrap();
    fs::write(at("b"), "b").unwrap();
    let flagged = |from: &str, to: &str, flags| renameat_with(CWD, at(from), CWD, at(to), flags);
    assert_eq!(flagged("a", "b", RenameFlags::NOREPLACE), Err(Errno::EXIST));
    assert_eq!(flagged("a", "b", RenameFlags::WHITEOUT), Err(Errno::INVAL));
    flagged("a", "b", RenameFlags::EXCHANGE).unwrap();
    assert_eq!((fs::read(at("a")).unwrap(), fs::read(at("b")).unwrap()), (b"b".to_vec(), b"a".to_vec()));
    fs::create_dir_all(at("d/e")).unwrap();
    flagged("d", "a", RenameFlags::EXCHANGE).unwrap();
    assert!(at("a/e").is_dir() && at("d").is_file());
    assert_eq!((at("a").metadata().unwrap().nlink(), mounted.root.metadata().unwrap().nlink()), (3, 3));
    assert_eq!(fs::rename(at("a"), at("a/e/x")).unwrap_err().raw_os_error(), Some(22));
    assert_eq!(fs::remove_dir(at("a")).unwrap_err().raw_os_error(), Some(39));

    let long = "n".repeat(255);
    fs::write(at(&long), "long").unwrap();
    assert_eq!(fs::write(at(&"n".repeat(256)), "").unwrap_err().raw_os_error(), Some(36));

    for name in ["file", "link"] {
        match name {
            "link" => symlink("target", at(name)).unwrap(),
            _ => fs::write(at(name), "content").unwrap(),
        }
        let before = at(name).symlink_metadata().unwrap();
        fs::hard_link(at(name), at("another")).unwrap();
        fs::hard_link(at(name), at("third")).unwrap();
        let now = at("third").symlink_metadata().unwrap();
        assert_eq!((now.ino(), now.nlink()), (before.ino(), 3));
        assert!((now.ctime(), now.ctime_nsec()) > (before.ctime(), before.ctime_nsec()));
        fs::remove_file(at(name)).unwrap();
        fs::rename(at("another"), at("moved")).unwrap();
        assert_eq!(at("moved").symlink_metadata().unwrap().nlink(), 2);
        fs::remove_file(at("third")).unwrap();
        fs::remove_file(at("moved")).unwrap();
    }
    mounted.unmount();
    place.check();
}

#[test]
fn a_file_lives_as_long_as_it_is_open() {
    let Some(place) = Place::new() else { return };
    let mounted = place.mount();
    let path = mounted.root.join("file");
    let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
    file.write_all(b"before").unwrap();
    fs::remove_file(&path).unwrap();
    file.write_all(b" and after").unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    let mut read = String::new();
    file.read_to_string(&mut read).unwrap();
    assert_eq!((read.as_str(), file.metadata().unwrap().nlink()), ("before and after", 0));
    // Another file may have its name.
    fs::write(&path, "other").unwrap();
    assert_ne!(path.metadata().unwrap().ino(), file.metadata().unwrap().ino());
    drop(file);
    // Opened for reading by one of two names, and both go before anything is read.
    let other = mounted.root.join("other name");
    fs::hard_link(&path, &other).unwrap();
    let (reading, writer) = (File::open(&path).unwrap(), content(90_000));
    fs::remove_file(&path).unwrap();
    fs::write(mounted.root.join("replacing"), &writer).unwrap();
    fs::rename(mounted.root.join("replacing"), &other).unwrap();
    let mut read = String::new();
    (&reading).read_to_string(&mut read).unwrap();
    assert_eq!((read.as_str(), fs::read(&other).unwrap() == writer), ("other", true));
    drop(reading);
    let directory = mounted.root.join("directory");
    fs::create_dir(&directory).unwrap();
    let held = File::open(&directory).unwrap();
    fs::remove_dir(&directory).unwrap();
    assert_eq!(held.metadata().unwrap().nlink(), 0);
    drop(held);

    // Without a name from the beginning, and then with one.
    let flags = OFlags::TMPFILE | OFlags::RDWR;
    let nameless = File::from(openat(CWD, &mounted.root, flags, Mode::from_raw_mode(0o600)).unwrap());
    nameless.write_all_at(&content(100_000), 0).unwrap();
    assert_eq!(nameless.metadata().unwrap().nlink(), 0);
    let through = format!("/proc/self/fd/{}", nameless.as_raw_fd());
    linkat(CWD, &through, CWD, mounted.root.join("named"), AtFlags::SYMLINK_FOLLOW).unwrap();
    drop(nameless);
    assert_eq!(fs::read(mounted.root.join("named")).unwrap(), content(100_000));
    mounted.unmount();
    place.check();
    let mounted = place.mount();
    assert_eq!(fs::read(mounted.root.join("named")).unwrap(), content(100_000));
    mounted.unmount();
}

/// After a remount, the kernel has met each file under one of its names only.
#[test]
fn an_open_file_loses_the_only_name_that_the_kernel_knows() {
    let Some(place) = Place::with(&["--cutoff", "16KiB"]) else { return };
    let mounted = place.mount();
    for size in [1000, 200_000] {
        for way in ["removed", "replaced"] {
            let name = |which: &str| mounted.root.join(format!("{way} {size} {which}"));
            fs::write(name("one"), content(size)).unwrap();
            fs::hard_link(name("one"), name("other")).unwrap();
            symlink("target", name("link")).unwrap();
            fs::hard_link(name("link"), name("other link")).unwrap();
        }
    }
    mounted.unmount();
    let mounted = place.mount();
    for size in [1000, 200_000] {
        for way in ["removed", "replaced"] {
            let name = |which: &str| mounted.root.join(format!("{way} {size} {which}"));
            let open = OpenOptions::new().read(true).write(true).open(name("one")).unwrap();
            fs::symlink_metadata(name("link")).unwrap();
            for which in ["one", "link"] {
                match way {
                    "removed" => fs::remove_file(name(which)).unwrap(),
                    _ => {
                        fs::write(name("new"), "new").unwrap();
                        fs::rename(name("new"), name(which)).unwrap();
                    }
                }
            }
            let mut bytes = vec![0; size];
            open.read_exact_at(&mut bytes, 0).unwrap();
            assert!(bytes == content(size), "{way}, {size} bytes");
            open.write_all_at(b"written", 10).unwrap();
            open.set_permissions(Permissions::from_mode(0o640)).unwrap();
            open.sync_all().unwrap();
            let found = open.metadata().unwrap();
            assert_eq!((found.nlink(), found.len(), found.mode() & 0o777), (1, size as u64, 0o640));
            bytes[10..17].copy_from_slice(b"written");
            assert!(fs::read(name("other")).unwrap() == bytes, "{way}, {size} bytes");
            drop(open);
            assert_eq!(fs::read_link(name("other link")).unwrap(), Path::new("target"));
        }
    }
    rustix::fs::syncfs(File::open(&mounted.root).unwrap()).unwrap();
    mounted.unmount();
    place.check();
    let mounted = place.mount();
    for size in [1000, 200_000] {
        for way in ["removed", "replaced"] {
            let found = fs::read(mounted.root.join(format!("{way} {size} other"))).unwrap();
            assert!(found.len() == size && &found[10..17] == b"written");
        }
    }
    mounted.unmount();
}

#[test]
fn holes_are_holes() {
    const BLOCK: u64 = 65_536;
    let Some(place) = Place::new() else { return };
    let mounted = place.mount();
    let path = mounted.root.join("file");
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
    file.write_all_at(&content(4 * BLOCK as usize), 0).unwrap();
    fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, BLOCK, BLOCK).unwrap();
    fallocate(&file, FallocateFlags::ZERO_RANGE, 5 * BLOCK, BLOCK).unwrap();
    fallocate(&file, FallocateFlags::KEEP_SIZE, 10 * BLOCK, BLOCK).unwrap();
    assert_eq!(fallocate(&file, FallocateFlags::COLLAPSE_RANGE, 0, BLOCK), Err(Errno::OPNOTSUPP));
    let look = |file: &File| {
        assert_eq!(file.metadata().unwrap().len(), 6 * BLOCK);
        assert_eq!(seek(file, Whence::Hole(0)), Ok(BLOCK));
        assert_eq!(seek(file, Whence::Data(BLOCK)), Ok(2 * BLOCK));
        assert_eq!(seek(file, Whence::Hole(2 * BLOCK)), Ok(4 * BLOCK));
        assert_eq!(seek(file, Whence::Data(4 * BLOCK)), Err(Errno::NXIO));
        let mut read = vec![1; 6 * BLOCK as usize];
        file.read_exact_at(&mut read, 0).unwrap();
        let mut expected = content(4 * BLOCK as usize);
        expected[BLOCK as usize..2 * BLOCK as usize].fill(0);
        expected.resize(6 * BLOCK as usize, 0);
        assert!(read == expected);
    };
    look(&file);
    drop(file);
    assert_eq!(path.metadata().unwrap().blocks(), 3 * BLOCK / 512);
    mounted.unmount();
    let mounted = place.mount();
    look(&File::open(&path).unwrap());
    mounted.unmount();
}

#[test]
fn attributes_are_those_of_the_file() {
    let Some(place) = Place::new() else { return };
    let mounted = place.mount();
    let path = mounted.root.join("file");
    fs::write(&path, "content").unwrap();
    let born = |path: &Path| {
        let found = statx(CWD, path, AtFlags::empty(), StatxFlags::ALL).unwrap();
        assert!(StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::BTIME));
        (found.stx_btime.tv_sec, found.stx_btime.tv_nsec)
    };
    let first = born(&path);
    let set = |name: &str, value: &[u8], flags| lsetxattr(&path, name, value, flags);
    assert_eq!(set("user.a", b"1", XattrFlags::REPLACE), Err(Errno::NODATA));
    set("user.a", b"1", XattrFlags::CREATE).unwrap();
    assert_eq!(set("user.a", b"2", XattrFlags::CREATE), Err(Errno::EXIST));
    set("trusted.b", &content(20_000), XattrFlags::empty()).unwrap();
    let mut value = [0; 3];
    assert_eq!(lgetxattr(&path, "trusted.b", &mut value[..]), Err(Errno::RANGE));
    assert_eq!(lgetxattr(&path, "user.none", &mut value[..]), Err(Errno::NODATA));
    assert_eq!(lgetxattr(&path, "user.a", &mut value[..]), Ok(1));
    let mut names = [0; 100];
    let length = llistxattr(&path, &mut names[..]).unwrap();
    assert_eq!(names[..length], *b"trusted.b\0user.a\0");
    lremovexattr(&path, "user.a").unwrap();
    assert_eq!(lremovexattr(&path, "user.a"), Err(Errno::NODATA));

    // Set-id bits go with an owner, and when somebody else writes.
    fs::set_permissions(&path, Permissions::from_mode(0o6755)).unwrap();
    std::os::unix::fs::chown(&path, Some(7), Some(8)).unwrap();
    assert_eq!(path.metadata().unwrap().mode(), 0o100_755);
    // A new file belongs to the group of a directory with the set-group-id bit.
    let shared = mounted.root.join("shared");
    fs::create_dir(&shared).unwrap();
    std::os::unix::fs::chown(&shared, None, Some(4711)).unwrap();
    fs::set_permissions(&shared, Permissions::from_mode(0o2775)).unwrap();
    fs::create_dir(shared.join("below")).unwrap();
    fs::write(shared.join("below/file"), "").unwrap();
    assert_eq!(shared.join("below").metadata().unwrap().mode() & 0o7000, 0o2000);
    assert_eq!(shared.join("below/file").metadata().unwrap().gid(), 4711);
    mounted.unmount();

    let mounted = place.mount();
    assert_eq!(born(&path), first);
    let mut value = vec![0; 20_000];
    assert_eq!(lgetxattr(&path, "trusted.b", &mut value[..]), Ok(20_000));
    assert!(value == content(20_000));
    // Room and objects.
    let found = statvfs(&mounted.root).unwrap();
    assert!(found.f_blocks > 0 && found.f_bavail <= found.f_blocks && found.f_namemax == 255);
    // What is in use below, which others change meanwhile.
    let below = statvfs(place.store()).unwrap();
    let used = |of: &rustix::fs::StatVfs| (of.f_blocks - of.f_bfree) as f64 / of.f_blocks as f64;
    assert!((used(&found) - used(&below)).abs() < 0.1, "{} beside {}", used(&found), used(&below));
    let objects = found.f_files - found.f_ffree;
    assert!((5..10).contains(&objects), "{objects}");
    mounted.unmount();
}

#[test]
fn access_control_lists_are_inherited() {
    let Some(place) = Place::new() else { return };
    if !has_program("setfacl") {
        return skip("there is no setfacl");
    }
    let mounted = place.mount();
    let shell = |script: &str| {
        let ran = finish(Command::new("sh").args(["-ec", script]).current_dir(&mounted.root));
        ran.ended(0).text()
    };
    shell("mkdir d; setfacl -m u:1234:rwx,d:u:1234:rwx,d:g::r-x,d:o::--- d; umask 077; touch d/f; mkdir d/e");
    let listed = shell("getfacl -cn d/f d/e");
    assert!(listed.starts_with("user::rw-\nuser:1234:rwx"), "{listed}");
    assert!(listed.contains("mask::rw-") && listed.contains("default:user:1234:rwx"), "{listed}");
    shell("chmod 640 d/f");
    assert!(shell("getfacl -cn d/f").contains("mask::r--"));
    shell("setfacl -b d/f");
    assert_eq!(shell("getfacl -cn d/f").trim(), "user::rw-\ngroup::r--\nother::---");
    mounted.unmount();
}

#[test]
fn locks_keep_others_out() {
    let Some(place) = Place::new() else { return };
    let mounted = place.mount();
    let path = mounted.root.join("file");
    let (one, other) = (File::create(&path).unwrap(), File::open(&path).unwrap());
    flock(&one, FlockOperation::LockExclusive).unwrap();
    assert_eq!(flock(&other, FlockOperation::NonBlockingLockShared), Err(Errno::AGAIN));
    flock(&one, FlockOperation::Unlock).unwrap();
    flock(&other, FlockOperation::NonBlockingLockShared).unwrap();
    drop((one, other));
    mounted.unmount();
}

#[test]
fn a_full_device_is_an_error_to_the_program_and_the_mount_goes_on() {
    let Some(place) = Place::empty() else { return };
    let small = place.sandbox.path().join("small");
    fs::create_dir(&small).unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=24m", "tmpfs"]).arg(&small).status().unwrap();
    assert!(mounted.success());
    let _unmount = Unmount(small.clone());
    let store = small.join("store");
    run(["store".as_ref(), "init".as_ref(), store.as_os_str()]).ended(0);
    let mounted = Mounted::start(&store, &place.target(), &[]);
    fs::write(mounted.root.join("first"), "kept").unwrap();
    let fill =
        |name: &str| (0..400).try_for_each(|at| fs::write(mounted.root.join(format!("{name}{at}")), content(100_000)));
    // Closing reports what writing could not know; std ignores that, so the next write does.
    let filled = fill("a").and_then(|()| fill("b"));
    assert_eq!(filled.unwrap_err().raw_os_error(), Some(28));
    assert_eq!(fs::read(mounted.root.join("first")).unwrap(), b"kept");
    for entry in fs::read_dir(&mounted.root).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().is_some_and(|name| name != "first") {
            fs::remove_file(path).unwrap();
        }
    }
    assert_eq!(fs::read(mounted.root.join("first")).unwrap(), b"kept");
    assert!(mounted.log().contains("the device is full") || mounted.log().contains("space"), "{}", mounted.log());
    mounted.unmount();
    run(["store".as_ref(), "check".as_ref(), store.as_os_str(), "--deep".as_ref()]).ended(0);
}

#[test]
fn what_a_full_device_has_refused_is_not_there_later() {
    const LENGTH: usize = 50_000;
    let Some(place) = Place::empty() else { return };
    let small = place.sandbox.path().join("small");
    fs::create_dir(&small).unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=24m", "tmpfs"]).arg(&small).status().unwrap();
    assert!(mounted.success());
    let _unmount = Unmount(small.clone());
    let store = small.join("store");
    run(["store".as_ref(), "init".as_ref(), store.as_os_str()]).ended(0);
    let mounted = Mounted::start(&store, &place.target(), &["--free-every", "0s"]);
    let root = mounted.root.clone();
    let at = |name: &str| root.join(name);
    fs::write(at("file"), content(LENGTH)).unwrap();
    fs::write(at("large"), content(1 << 20)).unwrap();
    let open = |name: &str| OpenOptions::new().read(true).write(true).open(at(name)).unwrap();
    let (file, large) = (open("file"), open("large"));
    file.sync_all().unwrap();
    fs::create_dir(at("filling")).unwrap();
    let filled = (0..).try_for_each(|number| fs::write(at(&format!("filling/{number}")), content(100_000)));
    assert_eq!(filled.unwrap_err().raw_os_error(), Some(28));

    let mut kept = content(LENGTH);
    // The kernel sends it in parts, of which the first may fit.
    let written = file.write_at(&[7; 1 << 20], 0).unwrap_or_else(|error| {
        assert_eq!(error.raw_os_error(), Some(28));
        0
    });
    assert!(written < 1 << 20);
    kept.resize(LENGTH.max(written), 0);
    kept[..written].fill(7);
    assert_eq!(file.metadata().unwrap().len(), kept.len() as u64);
    let (mut from, mut to) = (0, 10);
    let copied = copy_file_range(&large, Some(&mut from), &file, Some(&mut to), 1 << 20);
    assert_eq!(copied, Err(Errno::NOSPC));
    // This needs little room: it is there as a whole, or it is not there.
    if fallocate(&file, FallocateFlags::ZERO_RANGE, 1000, 100_000).is_ok() {
        kept.resize(kept.len().max(101_000), 0);
        kept[1000..101_000].fill(0);
    }
    fs::remove_dir_all(at("filling")).unwrap();
    file.sync_all().unwrap();
    drop((file, large));
    mounted.unmount();
    let mounted = Mounted::start(&store, &place.target(), &[]);
    assert!(fs::read(at("file")).unwrap() == kept);
    mounted.unmount();
    run(["store".as_ref(), "check".as_ref(), store.as_os_str(), "--deep".as_ref()]).ended(0);
}

#[test]
fn space_comes_back_on_a_full_device_before_a_program_hears_of_it() {
    const FILES: usize = 500;
    let Some(place) = Place::empty() else { return };
    let small = place.sandbox.path().join("small");
    fs::create_dir(&small).unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=96m", "tmpfs"]).arg(&small).status().unwrap();
    assert!(mounted.success());
    let _unmount = Unmount(small.clone());
    let store = small.join("store");
    run(["store".as_ref(), "init".as_ref(), store.as_os_str()]).ended(0);
    // Not at intervals.
    let mounted = Mounted::start(&store, &place.target(), &["--free-every", "0s"]);
    let at = |name: usize| mounted.root.join(name.to_string());
    let held_content = content(99_000);
    fs::write(at(FILES), &held_content).unwrap();
    let held = File::open(at(FILES)).unwrap();
    fs::remove_file(at(FILES)).unwrap();
    // Half of the device, three times: removed, and written over.
    (0..FILES).for_each(|name| fs::write(at(name), content(100_000)).unwrap());
    (0..FILES).for_each(|name| fs::remove_file(at(name)).unwrap());
    (0..FILES).for_each(|name| fs::write(at(name), content(100_001)).unwrap());
    (0..FILES).for_each(|name| fs::write(at(name), content(100_002)).unwrap());
    assert!((0..FILES).all(|name| fs::read(at(name)).unwrap() == content(100_002)));
    let mut read = Vec::new();
    (&held).read_to_end(&mut read).unwrap();
    assert!(read == held_content);
    drop(held);
    mounted.unmount();
    run(["store".as_ref(), "check".as_ref(), store.as_os_str(), "--deep".as_ref()]).ended(0);
}

#[test]
fn space_that_waited_for_a_reader_comes_back_before_a_program_hears_that_there_is_none() {
    const FILES: usize = 500;
    let Some(place) = Place::empty() else { return };
    let small = place.sandbox.path().join("small");
    fs::create_dir(&small).unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=96m", "tmpfs"]).arg(&small).status().unwrap();
    assert!(mounted.success());
    let _unmount = Unmount(small.clone());
    let store = small.join("store");
    run(["store".as_ref(), "init".as_ref(), store.as_os_str()]).ended(0);
    let mounted = Mounted::start(&store, &place.target(), &["--free-every", "0s"]);
    let at = |name: usize| mounted.root.join(name.to_string());
    let write_all = |length: usize| (0..FILES).try_for_each(|name| fs::write(at(name), content(length)));
    write_all(100_000).unwrap();
    File::open(&mounted.root).unwrap().sync_all().unwrap();
    // Half of the device is kept for a reader. There is no room for the other content of all.
    let reader = granulo::store::Store::open_read_only(&store).unwrap();
    let snapshot = reader.snapshot().unwrap();
    let kept = snapshot.entry(&granulo::store::Key::parse("0").unwrap()).unwrap().unwrap();
    assert_eq!(kept.entry.size_bytes, 100_000);
    let filled = write_all(100_001).and_then(|()| write_all(100_002));
    assert_eq!(filled.unwrap_err().raw_os_error(), Some(28));
    assert!(reader.status(false).unwrap().waiting_bytes > 30_000_000);
    drop((snapshot, reader));
    // Nothing more becomes dead.
    let another = |name: usize| mounted.root.join(format!("another{name}"));
    (0..FILES / 2).for_each(|name| fs::write(another(name), content(100_003)).unwrap());
    assert!((0..FILES / 2).all(|name| fs::read(another(name)).unwrap() == content(100_003)));
    mounted.unmount();
    run(["store".as_ref(), "check".as_ref(), store.as_os_str(), "--deep".as_ref()]).ended(0);
}

#[test]
fn space_comes_back_at_intervals() {
    const FILES: usize = 1000;
    let Some(place) = Place::new() else { return };
    let mounted = place.mount_with(&["-o", "commit=1", "--free-every", "100ms"]);
    let at = |name: usize| mounted.root.join(name.to_string());
    (0..FILES).for_each(|name| fs::write(at(name), content(100_000 + name)).unwrap());
    let held = File::open(at(0)).unwrap();
    (0..FILES).filter(|name| name % 100 != 7).for_each(|name| fs::remove_file(at(name)).unwrap());
    let began = Instant::now();
    while segment_bytes(&place.store()) > 10 << 20 {
        assert!(began.elapsed() < PATIENCE, "{} bytes: {}", segment_bytes(&place.store()), mounted.log());
        thread::sleep(Duration::from_millis(20));
    }
    (7..FILES).step_by(100).for_each(|name| assert!(fs::read(at(name)).unwrap() == content(100_000 + name)));
    let mut read = Vec::new();
    (&held).read_to_end(&mut read).unwrap();
    assert!(read == content(100_000));
    drop(held);
    mounted.unmount();
    place.check();
}

struct Unmount(PathBuf);

impl Drop for Unmount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn others_mount_it_read_only_and_see_what_is_durable() {
    let Some(place) = Place::new() else { return };
    let writer = place.mount();
    let (directory, file) = (writer.root.join("directory"), writer.root.join("directory/file"));
    fs::create_dir(&directory).unwrap();
    fs::write(&file, "one").unwrap();
    File::open(&file).unwrap().sync_all().unwrap();

    let second = place.sandbox.path().join("second");
    fs::create_dir(&second).unwrap();
    let refused = finish(granulo().arg("mount").arg(place.store()).arg(&second)).ended(2).said();
    assert!(refused.contains(&writer.child.id().to_string()) && refused.contains("-o ro"), "{refused}");
    let reader = Mounted::start(&place.store(), &second, &["-o", "ro"]);
    let seen = second.join("directory/file");
    assert_eq!(fs::read(&seen).unwrap(), b"one");
    assert_eq!(fs::write(&seen, "x").unwrap_err().raw_os_error(), Some(30));
    let within = |what: &str, is_so: &dyn Fn() -> bool| {
        let began = Instant::now();
        while !is_so() {
            assert!(began.elapsed() < PATIENCE, "{what}: {}", reader.log());
            thread::sleep(Duration::from_millis(10));
        }
    };
    let sync = |path: &Path| File::open(path).unwrap().sync_all().unwrap();
    for number in 0..5 {
        let text = format!("another content, number {number}");
        fs::write(&file, &text).unwrap();
        sync(&file);
        within("new content", &|| fs::read(&seen).is_ok_and(|read| read == text.as_bytes()));
    }
    fs::rename(&directory, writer.root.join("renamed")).unwrap();
    fs::write(writer.root.join("renamed/new"), "new").unwrap();
    sync(&writer.root);
    within("the new name", &|| fs::read(second.join("renamed/new")).is_ok_and(|read| read == b"new"));
    within("the old name is gone", &|| !second.join("directory").exists());
    fs::remove_file(writer.root.join("renamed/file")).unwrap();
    sync(&writer.root);
    within("the removal", &|| !second.join("renamed/file").exists());
    let names = || fs::read_dir(second.join("renamed")).unwrap().count();
    within("the list", &|| names() == 1);
    reader.unmount();
    writer.unmount();
}

#[test]
fn it_ends_with_a_signal_and_starts_in_the_background() {
    let Some(place) = Place::new() else { return };
    let mounted = place.mount();
    fs::write(mounted.root.join("file"), "content").unwrap();
    mounted.signal(Signal::TERM);
    let mut mounted = mounted;
    assert!(mounted.child.wait().unwrap().success(), "{}", mounted.log());
    assert!(!place.target().join("file").exists());

    let log = place.sandbox.path().join("log");
    let mut start = granulo();
    start.arg("mount").arg("--background").arg("--log").arg(&log).arg(place.store()).arg(place.target());
    finish(&mut start).ended(0);
    assert_eq!(fs::read(place.target().join("file")).unwrap(), b"content");
    let refused = finish(granulo().args(["mount", "-o", "nosuch"]).arg(place.store()).arg(place.target())).ended(2);
    assert!(refused.said().contains("nosuch"));
    finish(granulo().arg("unmount").arg(place.target())).ended(0);
    finish(granulo().arg("unmount").arg(place.target())).ended(2);
    place.check();
}

#[test]
fn a_user_mounts_and_unmounts_what_is_theirs() {
    let Some(place) = Place::empty() else { return };
    if !has_program("fusermount3") || !has_program("unshare") {
        return skip("there is no fusermount3 or no unshare");
    }
    for directory in [place.sandbox.path(), &place.target()] {
        chown(directory, Some(65534), Some(65534)).unwrap();
    }
    let Some(copied) = granulo_as_nobody(&place.sandbox) else { return };
    // Everybody may open /dev/fuse on most systems, but not on all: in this namespace they may.
    let script = r#"
        user() { setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }
        mknod -m 666 "$1/fuse" c 10 229
        mount --bind "$1/fuse" /dev/fuse
        cd "$1"
        user "$0" store init store
        user "$0" mount --background store mnt
        user sh -euc 'cd mnt; mkdir d; echo text > d/file; ln d/file d/other; stat -c "%u %h" d/file; cat d/other'
        # Others have no access without allow_other.
        if ls mnt; then exit 7; fi
        user "$0" unmount mnt
        user "$0" store get store d/file
        user "$0" store check --deep store
        if user "$0" mount store /proc; then exit 8; fi
    "#;
    let program = copied.get_args().last().unwrap().to_owned();
    let mut command = without_wishes(Command::new("unshare"));
    command.args(["--mount", "--propagation", "private", "sh", "-euc", script]).arg(program);
    let ran = finish(command.arg(place.sandbox.path())).ended(0);
    let text = ran.text();
    assert!(text.contains("65534 2\ntext\n") && text.matches("text\n").count() == 2, "{text}");
    assert!(ran.said().contains("cannot mount at /proc"), "{}", ran.said());
}

#[test]
fn a_file_has_its_size_whoever_looks_while_it_is_closed() {
    let Some(place) = Place::new() else { return };
    let mounted = place.mount_with(&["--commit-every", "20ms"]);
    let (root, now) = (mounted.root.clone(), AtomicU64::new(0));
    let path = |number: u64| root.join(format!("{}/{number}", number % 7));
    (0..7).for_each(|directory| fs::create_dir(root.join(directory.to_string())).unwrap());
    const FILES: u64 = 300;
    thread::scope(|scope| {
        scope.spawn(|| {
            while now.load(Ordering::SeqCst) < FILES {
                let _ = path(now.load(Ordering::SeqCst)).metadata();
                thread::yield_now();
            }
        });
        scope.spawn(|| {
            while now.load(Ordering::SeqCst) < FILES {
                let directory = path(now.load(Ordering::SeqCst)).parent().unwrap().to_owned();
                fs::read_dir(directory).unwrap().for_each(|entry| _ = entry.unwrap().metadata());
                thread::sleep(Duration::from_millis(1));
            }
        });
        for number in 0..FILES {
            now.store(number, Ordering::SeqCst);
            let length = 1 + number as usize * 37 % 5000;
            let mut file = File::create(path(number)).unwrap();
            file.write_all(&content(length)).unwrap();
            file.set_permissions(Permissions::from_mode(0o444)).unwrap();
            drop(file);
            assert_eq!(path(number).metadata().unwrap().len(), length as u64, "file {number}");
            assert_eq!(File::open(path(number)).unwrap().metadata().unwrap().len(), length as u64, "file {number}");
            if number % 3 == 0 {
                assert_eq!(fs::read(path(number)).unwrap(), content(length));
            }
        }
        now.store(FILES, Ordering::SeqCst);
    });
    mounted.unmount();
    place.check();
}

#[test]
fn a_time_that_no_store_has_becomes_the_nearest_and_spoils_nothing() {
    let Some(place) = Place::new() else { return };
    let mounted = place.mount();
    let file = mounted.root.join("file");
    fs::write(&file, "content").unwrap();
    let far = rustix::fs::Timespec { tv_sec: 1 << 40, tv_nsec: 0 };
    let times = rustix::fs::Timestamps { last_access: far, last_modification: far };
    rustix::fs::utimensat(CWD, &file, &times, AtFlags::empty()).unwrap();
    File::open(&file).unwrap().sync_all().unwrap();
    File::open(&mounted.root).unwrap().sync_all().unwrap();
    assert_eq!(fs::metadata(&file).unwrap().mtime(), (1 << 39) - 1);
    mounted.unmount();
    place.check();
}
