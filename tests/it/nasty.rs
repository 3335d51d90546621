//! A tree of everything that is hard to preserve, and the comparison of two trees.
//!
//! The comparison covers everything that a file system stores about each entry ([`Seen`]), with a separate reader:
//! names, kinds, content, permissions, owners, times to the nanosecond, extended attributes, which names are the same
//! file, and whether holes are still holes.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags, lgetxattr, llistxattr, lsetxattr, makedev, mknodat,
    utimensat,
};

use crate::harness::is_root;

/// What a file system stores about an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    mode: u32,
    owner: (u32, u32),
    mtime: (i64, i64),
    device: u64,
    content: Vec<u8>,
    size: u64,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The first name, in order, of the same file.
    first_name: PathBuf,
}

/// Everything below `root`, by relative path; and the bytes allocated to each file.
pub fn seen(root: &Path) -> (BTreeMap<PathBuf, Seen>, BTreeMap<PathBuf, u64>) {
    let (mut all, mut allocated) = (BTreeMap::new(), BTreeMap::new());
    let (mut inodes, mut files) = (HashMap::new(), HashMap::new());
    let mut left = vec![PathBuf::new()];
    while let Some(relative) = left.pop() {
        let path = root.join(&relative);
        let found = fs::symlink_metadata(&path).unwrap();
        if found.is_dir() {
            left.extend(fs::read_dir(&path).unwrap().map(|entry| relative.join(entry.unwrap().file_name())));
        }
        let content = match found.file_type() {
            kind if kind.is_symlink() => fs::read_link(&path).unwrap().into_os_string().into_vec(),
            // For large files the data is enough: the size determines what is between.
            kind if kind.is_file() => digest(&path),
            _ => Vec::new(),
        };
        if found.is_file() {
            let first: &mut PathBuf = inodes.entry(found.ino()).or_insert_with(|| relative.clone());
            *first = first.clone().min(relative.clone());
        }
        files.insert(relative.clone(), found.ino());
        allocated.insert(relative.clone(), found.blocks() * 512);
        let relative_name = relative.clone();
        all.insert(
            relative,
            Seen {
                mode: found.mode(),
                owner: (found.uid(), found.gid()),
                mtime: (found.mtime(), found.mtime_nsec()),
                device: found.rdev(),
                content,
                size: if found.is_file() { found.size() } else { 0 },
                xattrs: xattrs(&path),
                first_name: relative_name,
            },
        );
    }
    // Hard links of anything but files are stored as separate objects, so only those of files are compared.
    for (relative, seen) in &mut all {
        if let Some(first) = files.get(relative).and_then(|inode| inodes.get(inode)) {
            seen.first_name = first.clone();
        }
    }
    (all, allocated)
}

/// A file's content as runs that are not all zeros: the same for a hole and for zeros.
fn digest(path: &Path) -> Vec<u8> {
    let mut digest = Vec::new();
    let (mut buffer, zeroes, mut at) = (vec![0; 1 << 20], vec![0; 1 << 20], 0u64);
    let mut file = File::open(path).unwrap();
    loop {
        let got = file.read(&mut buffer).unwrap();
        if got == 0 {
            return digest;
        }
        if buffer[..got] != zeroes[..got] {
            digest.extend_from_slice(&at.to_le_bytes());
            digest.extend_from_slice(&buffer[..got]);
        }
        at += got as u64;
    }
}

pub fn xattrs(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut names = vec![0; 1 << 16];
    let length = llistxattr(path, &mut names[..]).unwrap_or(0);
    let mut xattrs = BTreeMap::new();
    for name in names[..length].split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0; 1 << 16];
        let length = lgetxattr(path, name, &mut value[..]).unwrap();
        value.truncate(length);
        xattrs.insert(name.to_vec(), value);
    }
    xattrs
}

#[track_caller]
pub fn assert_same_trees(one: &Path, other: &Path) {
    let ((one_seen, one_allocated), (other_seen, other_allocated)) = (seen(one), seen(other));
    let names = |seen: &BTreeMap<PathBuf, Seen>| seen.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&one_seen), names(&other_seen));
    for (path, one) in &one_seen {
        let other = &other_seen[path];
        let brief = |seen: &Seen| Seen { content: Vec::new(), ..seen.clone() };
        assert_eq!(brief(one), brief(other), "{path:?}");
        assert!(one.content == other.content, "the content of {path:?} differs");
        // Holes stay holes: a file may need a few more blocks, because file systems allocate differently.
        assert!(
            other_allocated[path] <= one_allocated[path] + 64 * 1024,
            "{path:?} takes {} bytes and took {}",
            other_allocated[path],
            one_allocated[path]
        );
    }
}

pub fn set_times(path: &Path, seconds: i64, nanoseconds: i64) {
    let time = Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
    let times = Timestamps { last_access: time, last_modification: time };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

pub fn content(size: usize) -> Vec<u8> {
    (0..size).map(|at| (at as u32).wrapping_mul(2_654_435_761) as u8 ^ (at >> 12) as u8).collect()
}

/// A tree of everything that is hard to preserve; one sparse file has `huge_bytes`.
pub fn nasty_tree(root: &Path, huge_bytes: u64) {
    fs::create_dir_all(root.join("sizes")).unwrap();
    for size in [0, 1, 4095, 4096, 4097, 8191, 8192, 8193, 65_535, 65_536, 65_537, 1 << 20, 5 << 20] {
        fs::write(root.join(format!("sizes/{size}")), content(size)).unwrap();
    }
    let names = root.join("names");
    fs::create_dir(&names).unwrap();
    for name in [&b"new\nline"[..], b"\xff\xfe", b"-rf", b" ", b"\x1b[31m", b"a-b", b"a.b", &[b'n'; 255], b"\x01"] {
        fs::write(names.join(OsStr::from_bytes(name)), name).unwrap();
    }
    fs::create_dir(names.join("a")).unwrap();
    fs::write(names.join("a/z"), "z").unwrap();

    let mut deep = root.join("deep");
    for level in 0..100 {
        deep.push(format!("level {level}"));
    }
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join("bottom"), "here").unwrap();
    fs::create_dir_all(root.join("empty/emptier")).unwrap();

    let links = root.join("links");
    fs::create_dir_all(links.join("far/away")).unwrap();
    fs::write(links.join("small"), "one file with three names").unwrap();
    fs::hard_link(links.join("small"), links.join("far/away/small")).unwrap();
    fs::hard_link(links.join("small"), root.join("zz small")).unwrap();
    fs::write(links.join("large"), content(3 << 20)).unwrap();
    fs::hard_link(links.join("large"), links.join("another large")).unwrap();
    symlink("nowhere", links.join("dangling")).unwrap();
    symlink("/etc/passwd", links.join("absolute")).unwrap();
    symlink("../../..", links.join("up")).unwrap();
    symlink(OsString::from_vec(vec![0xff; 1000]), links.join("long")).unwrap();

    let special = root.join("special");
    fs::create_dir(&special).unwrap();
    let node = |name: &str, kind: FileType, device| {
        mknodat(CWD, special.join(name), kind, Mode::from_raw_mode(0o640), device).unwrap();
    };
    node("fifo", FileType::Fifo, 0);
    node("socket", FileType::Socket, 0);
    if is_root() {
        node("null", FileType::CharacterDevice, makedev(1, 3));
        node("loop", FileType::BlockDevice, makedev(7, 300));
    }

    let sparse = root.join("sparse");
    fs::create_dir(&sparse).unwrap();
    let holes = |name: &str, size: u64, data: &[u64]| {
        let file = File::create(sparse.join(name)).unwrap();
        file.set_len(size).unwrap();
        for &at in data {
            file.write_all_at(b"data between holes", at).unwrap();
        }
        // Some file systems report where data lies only after allocation.
        file.sync_all().unwrap();
    };
    holes("only a hole", 300_000, &[]);
    holes("small", 1 << 20, &[0, 500_000]);
    holes("ends with data", 200_018, &[200_000]);
    holes("huge", huge_bytes, &[12_345, huge_bytes / 2, huge_bytes - 18]);
    let many: Vec<u64> = (0..200).map(|at| at * 100_000).collect();
    holes("many", 20 << 20, &many);

    let attributes = root.join("attributes");
    fs::create_dir(&attributes).unwrap();
    for (name, mode) in [("nothing", 0o000), ("suid", 0o4755), ("sgid", 0o2711), ("sticky", 0o1600), ("all", 0o7777)] {
        fs::write(attributes.join(name), name).unwrap();
        fs::set_permissions(attributes.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    fs::create_dir(attributes.join("closed")).unwrap();
    fs::write(attributes.join("closed/inside"), "x").unwrap();
    let set = |path: &Path, name: &str, value: &[u8]| {
        // If the file system of the tests has no attributes, nothing is compared.
        let _ = lsetxattr(path, name, value, XattrFlags::empty());
    };
    set(&attributes.join("all"), "user.binary", &[0, 10, 255, 61]);
    set(&attributes.join("all"), "user.empty", b"");
    set(&attributes, "user.directory", b"yes");
    set(&attributes.join("all"), "trusted.of root", b"1");
    set(&links.join("dangling"), "trusted.of a link", b"2");
    set(&root.join("sparse/huge"), "user.large", &content(2000));
    if is_root() {
        for (name, uid, gid) in [("suid", 1234, 5678), ("sgid", 65_534, 4_000_000_000)] {
            std::os::unix::fs::lchown(attributes.join(name), Some(uid), Some(gid)).unwrap();
            let mode = if name == "suid" { 0o4755 } else { 0o2711 };
            fs::set_permissions(attributes.join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        std::os::unix::fs::lchown(links.join("up"), Some(7), Some(8)).unwrap();
    }
    let times = [
        ("nothing", -1, 999_999_999),
        ("suid", -2_000_000_000, 1),
        ("sgid", 4_000_000_000, 123_456_789),
        ("sticky", 0, 0),
    ];
    for (name, seconds, nanoseconds) in times {
        set_times(&attributes.join(name), seconds, nanoseconds);
    }
    set_times(&links.join("dangling"), 1_000_000_000, 5);
    set_times(&special.join("fifo"), 1_000_000_001, 6);
    fs::set_permissions(attributes.join("closed"), fs::Permissions::from_mode(0o555)).unwrap();
    set_times(&attributes.join("closed"), 77, 77);
    set_times(&root.join("empty/emptier"), 1, 2);
    set_times(root, 1_234_567_890, 42);
}
