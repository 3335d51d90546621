//! Importing a source again leaves in the store what the source has, whatever changed: attributes alone, too.

use std::fs;
use std::os::unix::fs::{PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};

use granulo::progress::Progress;
use granulo::store::tree::{ExportOptions, ImportOptions, ImportSummary, export, import, import_tar};
use granulo::store::{Attributes, Buffer, Key, Plan, Store};
use rustix::fs::{CWD, FileType, Mode, XattrFlags, lremovexattr, lsetxattr, makedev, mknodat};
use tempfile::TempDir;

use crate::harness::{is_root, sandbox, skip};
use crate::nasty::{assert_same_trees, set_times};

struct Place {
    sandbox: TempDir,
    store: Store,
    options: ImportOptions,
}

impl Place {
    fn new(options: ImportOptions) -> Place {
        let sandbox = sandbox();
        let store = Store::create(&sandbox.path().join("store"), &Plan::default()).unwrap();
        fs::create_dir(sandbox.path().join("tree")).unwrap();
        Place { sandbox, store, options }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.sandbox.path().join(name)
    }

    fn in_tree(&self, name: &str) -> PathBuf {
        self.path("tree").join(name)
    }

    #[track_caller]
    fn import(&self) -> ImportSummary {
        let summary = import(&self.store, &self.path("tree"), &self.options, &Progress::default()).unwrap();
        assert!(summary.reports.first.is_empty(), "{:?}", summary.reports);
        summary
    }

    #[track_caller]
    fn is_as_the_tree(&self) {
        let back = self.path("back");
        export(&self.store, &back, &ExportOptions::default(), &Progress::default()).unwrap();
        assert_same_trees(&self.path("tree"), &back);
    }
}

/// Objects that were stored.
fn put(summary: &ImportSummary) -> u64 {
    summary.directories + summary.files + summary.links + summary.symlinks + summary.specials
}

fn set(path: &Path, name: &str, value: &[u8]) {
    lsetxattr(path, name, value, XattrFlags::empty()).unwrap();
}

/// An access control list that lets user 12345 read, beside the permissions 0644.
fn acl() -> Vec<u8> {
    let entries =
        [(0x01, 6, u32::MAX), (0x02, 4, 12_345), (0x04, 4, u32::MAX), (0x10, 4, u32::MAX), (0x20, 4, u32::MAX)];
    let encoded = entries.iter().flat_map(|&(tag, permissions, id): &(u16, u16, u32)| {
        [&tag.to_le_bytes()[..], &permissions.to_le_bytes(), &id.to_le_bytes()].concat()
    });
    2u32.to_le_bytes().into_iter().chain(encoded).collect()
}

#[test]
fn attributes_that_changed_alone_are_brought_up_to_date() {
    for access_times in [true, false] {
        let place = Place::new(ImportOptions { access_times, ..ImportOptions::default() });
        let files = ["acl", "changed", "given", "mode", "mtime", "owner", "same", "shared", "taken"];
        for name in files {
            fs::write(place.in_tree(name), name).unwrap();
            fs::set_permissions(place.in_tree(name), fs::Permissions::from_mode(0o644)).unwrap();
        }
        fs::hard_link(place.in_tree("shared"), place.in_tree("shared again")).unwrap();
        fs::create_dir(place.in_tree("d")).unwrap();
        if lsetxattr(place.in_tree("d"), "user.probe", b"", XattrFlags::empty()).is_err() {
            return skip("the file system of the tests has no extended attributes");
        }
        for name in ["changed", "same", "taken"] {
            set(&place.in_tree(name), "user.a", b"1");
        }
        let all = put(&place.import());
        let again = place.import();
        assert_eq!((put(&again), again.unchanged), (0, all), "{again:?}");

        set(&place.in_tree("given"), "user.a", b"1");
        set(&place.in_tree("changed"), "user.a", b"2");
        set(&place.in_tree("shared"), "user.a", b"1");
        set(&place.in_tree("d"), "user.a", b"1");
        lremovexattr(place.in_tree("taken"), "user.a").unwrap();
        fs::set_permissions(place.in_tree("mode"), fs::Permissions::from_mode(0o600)).unwrap();
        set_times(&place.in_tree("mtime"), 1, 2);
        // Some file systems have no ACLs, and only root gives files away.
        let has_acl = lsetxattr(place.in_tree("acl"), "system.posix_acl_access", &acl(), XattrFlags::empty()).is_ok();
        let is_given_away = is_root() && lchown(place.in_tree("owner"), Some(1), Some(1)).is_ok();
        let changed = place.import();
        let files = 6 + u64::from(has_acl) + u64::from(is_given_away);
        assert_eq!((changed.files, changed.links, changed.directories), (files, 1, 1), "{changed:?}");
        place.is_as_the_tree();
        let again = place.import();
        assert_eq!((put(&again), again.unchanged), (0, all), "{again:?}");
    }
}

#[test]
fn another_target_and_another_device_are_brought_up_to_date() {
    let place = Place::new(ImportOptions::default());
    let make = |target: &str, minor: u32| {
        let (link, device) = (place.in_tree("link"), place.in_tree("device"));
        symlink(target, &link).unwrap();
        set_times(&link, 1, 0);
        if is_root() {
            mknodat(CWD, &device, FileType::CharacterDevice, Mode::RUSR, makedev(1, minor)).unwrap();
            set_times(&device, 1, 0);
        }
    };
    make("/releases/1", 3);
    place.import();
    fs::remove_file(place.in_tree("link")).unwrap();
    let _ = fs::remove_file(place.in_tree("device"));
    make("/releases/2", 5);
    let summary = place.import();
    assert_eq!((summary.symlinks, summary.specials), (1, u64::from(is_root())), "{summary:?}");
    place.is_as_the_tree();
    assert_eq!(put(&place.import()), 0);
}

/// An archive of a file, a symlink and a device, all of one time.
fn archive(xattr: &str, target: &str, minor: u32) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    let header = |kind| {
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(kind);
        header.set_mode(0o644);
        header.set_mtime(1);
        header.set_uid(0);
        header.set_gid(0);
        header.set_size(0);
        header
    };
    builder.append_pax_extensions([("SCHILY.xattr.user.a", xattr.as_bytes())]).unwrap();
    builder.append_data(&mut header(tar::EntryType::Regular), "file", &b""[..]).unwrap();
    builder.append_link(&mut header(tar::EntryType::Symlink), "link", target).unwrap();
    // Of a symlink, which has one name.
    builder.append_link(&mut header(tar::EntryType::Link), "link again", "link").unwrap();
    let mut device = header(tar::EntryType::Char);
    device.set_device_major(1).unwrap();
    device.set_device_minor(minor).unwrap();
    builder.append_data(&mut device, "device", &b""[..]).unwrap();
    builder.into_inner().unwrap()
}

#[test]
fn an_archive_with_other_attributes_is_brought_up_to_date() {
    let place = Place::new(ImportOptions::default());
    let take = |archive: &[u8]| {
        let summary = import_tar(&place.store, &mut &archive[..], &place.options, &Progress::default()).unwrap();
        assert!(summary.reports.first.is_empty(), "{:?}", summary.reports);
        summary
    };
    assert_eq!(put(&take(&archive("1", "/releases/1", 3))), 4);
    let again = take(&archive("1", "/releases/1", 3));
    assert_eq!((put(&again), again.unchanged), (0, 4), "{again:?}");
    let changed = take(&archive("2", "/releases/2", 5));
    assert_eq!((put(&changed), changed.unchanged), (4, 0), "{changed:?}");
    let mut buffer = Buffer::default();
    let mut read = |name: &str| {
        let object = place.store.read(&Key::parse(name).unwrap(), &mut buffer).unwrap().unwrap();
        (object.attributes.xattrs, object.content.to_vec())
    };
    assert_eq!(read("file").0, [(b"user.a".to_vec(), b"2".to_vec())]);
    assert_eq!((read("link").1, read("link again").1), (b"/releases/2".to_vec(), b"/releases/2".to_vec()));
    assert_eq!(read("device").1, [1, 0, 0, 0, 5, 0, 0, 0]);
    assert_eq!(put(&take(&archive("2", "/releases/2", 5))), 0);
}

#[test]
fn what_was_changed_in_the_store_is_brought_up_to_date() {
    let place = Place::new(ImportOptions::default());
    fs::write(place.in_tree("file"), "content").unwrap();
    place.import();
    let key = Key::parse("file").unwrap();
    let stored = place.store.stat(&key).unwrap().unwrap().attributes;
    let xattrs = vec![(b"user.a".to_vec(), b"1".to_vec())];
    place.store.set_attributes(&key, &Attributes { xattrs, ..stored.clone() }).unwrap();
    assert_eq!(place.import().files, 1);
    assert_eq!(place.store.stat(&key).unwrap().unwrap().attributes.xattrs, stored.xattrs);
}
