//! What the kernel shows of a store against the tree that was imported. Needs root and Linux 6.12.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

use crate::store::geometry::Alignment;
use crate::store::tree::{ImportOptions, import};
use crate::store::{Attributes, Holes, Key, Plan, Store, Time};
use rustix::fs::{AtFlags, Timespec, Timestamps};
use rustix::fs::{CWD, FileType, Mode, XattrFlags, lgetxattr, llistxattr, lsetxattr, mknodat, utimensat};
use rustix::mount::{MountAttrFlags, UnmountFlags, unmount};

use super::*;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// A mount that ends with the test.
struct Unmounting(tempfile::TempDir);

impl Drop for Unmounting {
    fn drop(&mut self) {
        let _ = unmount(self.0.path(), UnmountFlags::DETACH);
    }
}

fn mounted(store: &Store, home: &Path) -> Option<(Unmounting, Imaged)> {
    let place = tempfile::tempdir().unwrap();
    let snapshot = store.snapshot().unwrap();
    match mount(&snapshot, home, place.path(), MountAttrFlags::empty(), &Progress::default()) {
        Ok(mounted) => Some((Unmounting(place), mounted.imaged)),
        Err(error) if rustix::process::geteuid().is_root() && !error.to_string().contains("the kernel") => {
            panic!("{error}")
        }
        Err(error) => {
            crate::skipped::skip(&error.to_string());
            None
        }
    }
}

/// What is compared of a file: attributes, content or target, extended attributes.
type Shown = (Vec<i64>, Vec<u8>, Vec<(String, Vec<u8>)>);

fn shown(path: &Path) -> Shown {
    let stat = fs::symlink_metadata(path).unwrap();
    let kind = stat.file_type();
    let is_directory = kind.is_dir();
    let attributes = vec![
        i64::from(stat.mode()),
        i64::from(stat.uid()),
        i64::from(stat.gid()),
        stat.nlink() as i64,
        if is_directory { 0 } else { stat.size() as i64 },
        if kind.is_char_device() || kind.is_block_device() { stat.rdev() as i64 } else { 0 },
        stat.mtime(),
        stat.mtime_nsec(),
    ];
    let content = match () {
        _ if kind.is_file() => fs::read(path).unwrap(),
        _ if kind.is_symlink() => fs::read_link(path).unwrap().into_os_string().into_encoded_bytes(),
        _ => Vec::new(),
    };
    let mut names = vec![0; 4096];
    let length = llistxattr(path, &mut names[..]).unwrap_or(0);
    let mut xattrs = Vec::new();
    for name in names[..length].split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0; 4096];
        let length = lgetxattr(path, name, &mut value[..]).unwrap();
        xattrs.push((String::from_utf8(name.to_vec()).unwrap(), value[..length].to_vec()));
    }
    xattrs.sort();
    (attributes, content, xattrs)
}

fn tree_of(top: &Path) -> BTreeMap<OsString, Shown> {
    let mut found = BTreeMap::new();
    let mut pending = vec![top.to_owned()];
    while let Some(path) = pending.pop() {
        found.insert(path.strip_prefix(top).unwrap().as_os_str().to_owned(), shown(&path));
        if fs::symlink_metadata(&path).unwrap().is_dir() {
            pending.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    found
}

fn bytes(length: usize, seed: u64) -> Vec<u8> {
    (0..length as u64).map(|at| (at.wrapping_mul(0x9E37_79B9).wrapping_add(seed * 77) >> 7) as u8).collect()
}

/// A tree with everything that a store keeps.
fn make(top: &Path) {
    fs::create_dir_all(top.join("a/deep/er")).unwrap();
    fs::create_dir(top.join("empty")).unwrap();
    fs::write(top.join("nothing"), b"").unwrap();
    for (number, length) in
        [1, 511, 512, 513, 4095, 4096, 20_000, 65_536, 65_537, MIB, 3 * MIB + 100].into_iter().enumerate()
    {
        fs::write(top.join(format!("a/file-{length}")), bytes(length, number as u64)).unwrap();
    }
    // A directory of many blocks, names around those of itself and its parent, and long ones.
    fs::create_dir(top.join("many")).unwrap();
    for number in 0..2000 {
        fs::write(top.join(format!("many/{number}")), bytes(number % 700, number as u64)).unwrap();
    }
    for name in ["!", "-", ".hidden", "..more", "~", &"n".repeat(255), "é"] {
        fs::write(top.join("a").join(name), name).unwrap();
    }
    symlink("a/file-1", top.join("short")).unwrap();
    symlink("x/".repeat(300), top.join("long")).unwrap();
    symlink("y".repeat(256), top.join("edge")).unwrap();
    fs::hard_link(top.join("a/file-20000"), top.join("a/deep/second")).unwrap();
    fs::hard_link(top.join("a/file-20000"), top.join("third")).unwrap();
    mknodat(CWD, top.join("fifo"), FileType::Fifo, Mode::from(0o640), 0).unwrap();
    drop(UnixListener::bind(top.join("socket")).unwrap());
    let _ = mknodat(CWD, top.join("device"), FileType::CharacterDevice, Mode::from(0o600), rustix::fs::makedev(4, 300));
    // Holes: in whole blocks, and odd ones.
    for (name, data) in [("sparse", [(1 << 20, 4096), (5 << 20, 8192)]), ("odd", [(10_000, 100), (70_000, 3000)])] {
        let file = fs::File::create(top.join(name)).unwrap();
        file.set_len(8 << 20).unwrap();
        for (offset, length) in data {
            file.write_all_at(&bytes(length, offset), offset).unwrap();
        }
    }
    for (name, value) in [("user.comment", bytes(300, 1)), ("user.x", Vec::new()), ("trusted.t", b"1".to_vec())] {
        let _ = lsetxattr(top.join("a/file-513"), name, &value, XattrFlags::empty());
        let _ = lsetxattr(top.join("many"), name, &value, XattrFlags::empty());
    }
    // Owner, a user, group, mask, others: tag, permissions, id (include/uapi/linux/posix_acl_xattr.h).
    let entries = [(1u16, 6u16, !0u32), (2, 4, 1000), (4, 4, !0), (0x10, 4, !0), (0x20, 0, !0)];
    let entries = entries.iter().flat_map(|(tag, permissions, id)| {
        [&tag.to_le_bytes()[..], &permissions.to_le_bytes(), &id.to_le_bytes()].concat()
    });
    let acl: Vec<u8> = 2u32.to_le_bytes().into_iter().chain(entries).collect();
    for (path, name) in [("a/file-512", "system.posix_acl_access"), ("a/deep", "system.posix_acl_default")] {
        let _ = lsetxattr(top.join(path), name, &acl, XattrFlags::empty());
    }
    fs::set_permissions(top.join("a/file-4096"), fs::Permissions::from_mode(0o4711)).unwrap();
    let past = Timespec { tv_sec: -86_400, tv_nsec: 123_456_789 };
    let times = Timestamps { last_access: past, last_modification: past };
    utimensat(CWD, top.join("nothing"), &times, AtFlags::empty()).unwrap();
}

fn plan(more: impl FnOnce(&Path, &mut Plan)) -> (tempfile::TempDir, tempfile::TempDir, Store) {
    let (source, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    make(source.path());
    let mut plan = Plan { alignment: Alignment::Sector, ..Plan::default() };
    more(place.path(), &mut plan);
    let store = Store::create(&place.path().join("home"), &plan).unwrap();
    let options = ImportOptions::default();
    import(&store, source.path(), &options, &Progress::default()).unwrap();
    (source, place, store)
}

#[test]
fn the_kernel_shows_what_was_imported() {
    let (source, place, store) = plan(|_, _| {});
    let home = place.path().join("home");
    let Some((at, imaged)) = mounted(&store, &home) else { return };
    assert_eq!(tree_of(at.0.path()), tree_of(source.path()));
    // Only what cannot be mapped was copied: the odd holes, and perhaps the end of the log.
    assert!(imaged.copied_files <= 3, "{imaged:?}");
    assert!(imaged.mapped_bytes > 4 << 20, "{imaged:?}");
    assert!(!fs::read_dir(&home).unwrap().any(|entry| entry.unwrap().path().extension().is_some_and(|e| e == "erofs")));
}

#[test]
fn messages_of_the_kernel_lose_their_level_only() {
    assert_eq!(without_level("e erofs: failed to open extra device\n"), "erofs: failed to open extra device");
    assert_eq!(without_level("w will be ignored"), "will be ignored");
    assert_eq!(without_level("invalid"), "invalid");
}

#[test]
fn stripes_on_several_devices_are_read_where_they_lie() {
    let (source, place, store) = plan(|place, plan| {
        plan.fast = ["f0", "f1"].map(|name| place.join(name)).to_vec();
        plan.slow = ["s0", "s1", "s2"].map(|name| place.join(name)).to_vec();
    });
    let home = place.path().join("home");
    let Some((at, imaged)) = mounted(&store, &home) else { return };
    assert_eq!(tree_of(at.0.path()), tree_of(source.path()));
    assert!(imaged.files.len() >= 4, "{imaged:?}");
}

#[test]
fn a_mount_stays_as_it_was_while_the_store_changes() {
    let (source, place, store) = plan(|_, plan| plan.segment_bytes = 1 << 20);
    let Some((at, _)) = mounted(&store, &place.path().join("home")) else { return };
    store.remove_tree(&Key::parse("a").unwrap()).unwrap();
    store.compact(&Default::default(), &Progress::default()).unwrap();
    assert_eq!(tree_of(at.0.path()), tree_of(source.path()));
}

#[test]
fn a_file_with_more_attributes_than_an_inode_can_have_shows_its_own_content() {
    let (_source, place, store) = plan(|_, _| {});
    let xattrs = (0..5).map(|number| (format!("user.{number}").into_bytes(), vec![b'A'; 60_000])).collect();
    let attributes = Attributes { xattrs, ..Attributes::of_file(Time::default()) };
    store.put(&Key::parse("victim").unwrap(), &attributes, &bytes(5000, 9)).unwrap();
    let Some((at, imaged)) = mounted(&store, &place.path().join("home")) else { return };
    assert_eq!(imaged.xattrs_left_out, 1);
    let victim = at.0.path().join("victim");
    assert_eq!(fs::read(&victim).unwrap(), bytes(5000, 9));
    let mut value = vec![0; 1 << 16];
    let lengths = (0..5).map(|number| lgetxattr(&victim, format!("user.{number}"), &mut value[..]).unwrap_or(0));
    assert_eq!(lengths.collect::<Vec<_>>(), [60_000, 60_000, 60_000, 60_000, 0]);
}

#[test]
fn a_file_of_more_than_four_gigabytes_has_its_data_where_they_were() {
    const SIZE_BYTES: u64 = (5 << 30) + 1;
    let runs = [(0, 4096), ((4 << 30) + 8192, 4096), (5 << 30, 1)];
    let (_source, place, store) = plan(|_, _| {});
    let holes = Holes { size_bytes: SIZE_BYTES, data: runs.to_vec() };
    let attributes = Attributes { holes: Some(holes), ..Attributes::of_file(Time::default()) };
    let content = bytes(4096 + 4096 + 1, 5);
    store.put(&Key::parse("far").unwrap(), &attributes, &content).unwrap();
    let Some((at, _)) = mounted(&store, &place.path().join("home")) else { return };
    let file = File::open(at.0.path().join("far")).unwrap();
    assert_eq!(file.metadata().unwrap().len(), SIZE_BYTES);
    let read = |(offset, length): (u64, u64)| {
        let mut read = vec![1; length as usize];
        file.read_exact_at(&mut read, offset).unwrap();
        read
    };
    assert!(runs.map(read).concat() == content);
    assert!(read((4 << 30, 8192)) == [0; 8192]);
}

#[test]
fn a_store_without_alignment_is_refused_with_the_way_out() {
    let (_source, place, store) = plan(|_, plan| plan.alignment = Alignment::None);
    let many = tempfile::tempdir().unwrap();
    for number in 0..70 {
        fs::write(many.path().join(number.to_string()), bytes(MIB - 7 * KIB, number)).unwrap();
    }
    import(&store, many.path(), &ImportOptions::default(), &Progress::default()).unwrap();
    let snapshot = store.snapshot().unwrap();
    let at = tempfile::tempdir().unwrap();
    let home = place.path().join("home");
    let error = mount(&snapshot, &home, at.path(), MountAttrFlags::empty(), &Progress::default());
    if let Err(error) = error {
        assert_eq!(error.kind(), ErrorKind::Usage);
    }
}
