//! A mounted store is a file system: everything that a program can do to ext4 it can do here, and finds it again after
//! a remount, with the same inode numbers.
//!
//! `mount_random` compares with ext4 what random operations do; `make test-pjdfs` runs the cases of pjdfstest.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FlockOperation, Mode, OFlags, RawDir, RenameFlags, SeekFrom as Whence, StatxFlags,
    XattrFlags, fallocate, flock, lgetxattr, linkat, llistxattr, lremovexattr, lsetxattr, openat, renameat_with, seek,
    statvfs, statx,
};
use rustix::io::Errno;

use crate::harness::{finish, has_program, run, skip, without_wishes};
use crate::mounted::{Place, segment_bytes};
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

/// A store takes names up to 65,535 bytes: a mount cannot show them, and hides nothing else for it.
#[test]
fn names_that_are_too_long_hide_no_others() {
    let Some(place) = Place::new() else { return };
    let names = ["a".to_owned(), "b".repeat(256), "b".repeat(5000), "c".to_owned()];
    for name in &names {
        run([
            OsStr::new("store"),
            "put".as_ref(),
            place.store().as_ref(),
            format!("d/{name}").as_ref(),
            "Cargo.toml".as_ref(),
        ])
        .ended(0);
    }
    let mounted = place.mount();
    let listed = fs::read_dir(mounted.root.join("d")).unwrap().map(|entry| entry.unwrap().file_name());
    let mut found: Vec<_> = listed.collect();
    found.sort();
    assert_eq!(found, ["a", "c"]);
    let said = mounted.log();
    assert!(said.contains("not shown, as its name has more than 255 bytes: bbb"), "{said}");
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
fn data_in_a_hole_are_found_though_only_a_mapping_has_them() {
    const WRITE_AND_SEEK: &str = "
import mmap, os, sys, threading
def look(name):
    file = os.open(name, os.O_RDWR | os.O_CREAT)
    os.ftruncate(file, 1 << 20)
    mapped = mmap.mmap(file, 1 << 20)
    mapped[1 << 19] = 7
    data = os.lseek(file, 0, os.SEEK_DATA)
    hole = os.lseek(file, data, os.SEEK_HOLE)
    found.append((data, hole > 1 << 19))
found = []
threads = [threading.Thread(target=look, args=(f'{sys.argv[1]}/{number}',)) for number in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(found == [(1 << 19, True)] * 8)
";
    if !has_program("python3") {
        return skip("python3 maps the files");
    }
    let Some(place) = Place::new() else { return };
    for threads in ["1", "4"] {
        let mounted = place.mount_with(&["--threads", threads]);
        let mut python = without_wishes(Command::new("python3"));
        let ran = finish(python.args(["-c", WRITE_AND_SEEK]).arg(&mounted.root));
        assert_eq!(ran.ended(0).text(), "True\n");
        for name in 0..8 {
            fs::remove_file(mounted.root.join(name.to_string())).unwrap();
        }
        mounted.unmount();
    }
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
    // As much as there is room for: then it is full, as elsewhere, and nothing is lost.
    let many = (0..1000).map(|number| set(&format!("user.many{number}"), &content(65_000), XattrFlags::empty()));
    assert_eq!(many.filter_map(Result::err).next(), Some(Errno::NOSPC));
    (0..1000).for_each(|number| _ = lremovexattr(&path, format!("user.many{number}").as_str()));

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
