//! Trees and archives into a store and out of it: a nasty tree is restored identically, an import can be repeated,
//! hostile members stay inside.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use granulo::error::ErrorKind;
use granulo::progress::Progress;
use granulo::store::tree::{
    ExportOptions, ExportSummary, ImportOptions, ImportSummary, export, import, import_tar, measure, write_tar,
};
use granulo::store::{Attributes, Durability, Key, Plan, Store};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use tempfile::TempDir;

use crate::harness::{finish, granulo_as_nobody, has_program, is_root, sandbox, skip};
use crate::nasty::{assert_same_trees, content, nasty_tree, seen, set_times, xattrs};

fn key(path: &str) -> Key {
    Key::parse(path).unwrap()
}

struct Place {
    sandbox: TempDir,
    store: Store,
}

impl Place {
    fn new() -> Place {
        let sandbox = sandbox();
        let home = sandbox.path().join("store");
        fs::create_dir(&home).unwrap();
        let store = Store::create(&home, &Plan::default()).unwrap();
        Place { sandbox, store }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.sandbox.path().join(name)
    }

    #[track_caller]
    fn import(&self, tree: &str) -> ImportSummary {
        self.import_to(tree, "")
    }

    #[track_caller]
    fn import_to(&self, tree: &str, prefix: &str) -> ImportSummary {
        let options = ImportOptions { prefix: key(prefix), ..ImportOptions::default() };
        let summary = import(&self.store, &self.path(tree), &options, &Progress::default()).unwrap();
        assert!(!summary.interrupted);
        summary
    }

    #[track_caller]
    fn export(&self, directory: &str) -> ExportSummary {
        let summary =
            export(&self.store, &self.path(directory), &ExportOptions::default(), &Progress::default()).unwrap();
        assert!(summary.reports.first.is_empty(), "{:?}", summary.reports);
        summary
    }

    fn import_tar(&self, archive: &[u8]) -> granulo::error::Result<ImportSummary> {
        import_tar(
            &self.store,
            &mut &archive[..],
            &ImportOptions { prefix: key("in"), ..ImportOptions::default() },
            &Progress::default(),
        )
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // So that users other than root can remove it.
        let _ = Command::new("chmod").args(["-R", "u+rwX"]).arg(self.sandbox.path()).stderr(Stdio::null()).status();
    }
}

#[test]
fn a_nasty_tree_comes_back_as_it_was() {
    let place = Place::new();
    nasty_tree(&place.path("tree"), 1 << 30);
    let before = is_root().then(|| seen(&place.path("tree")).0);
    let measured = measure(&place.store, &place.path("tree"), &ImportOptions::default(), &Progress::default()).unwrap();
    let summary = place.import("tree");
    assert!(!is_root() || summary.reports.first.is_empty(), "{:?}", summary.reports);
    if let Some(before) = before {
        assert!(before == seen(&place.path("tree")).0, "the import changed the tree");
        assert_eq!(
            (measured.files, measured.links, measured.directories, measured.symlinks, measured.specials),
            (summary.files, summary.links, summary.directories, summary.symlinks, summary.specials)
        );
        assert_eq!((summary.links, summary.symlinks, summary.specials), (3, 4, 4));
        // The file of 1 GiB is a hole with three pieces of data.
        assert!(summary.content_bytes < 40 << 20, "{summary:?}");
        let exported = place.export("back");
        assert_eq!((exported.files, exported.links), (summary.files, summary.links));
        assert_same_trees(&place.path("tree"), &place.path("back"));
    }
}

#[test]
fn a_second_import_and_a_second_export_find_everything_there() {
    let place = Place::new();
    nasty_tree(&place.path("tree"), 32 << 20);
    let first = place.import("tree");
    let second = place.import("tree");
    let put = |s: &ImportSummary| s.directories + s.files + s.links + s.symlinks + s.specials;
    assert_eq!((put(&second), second.content_bytes), (0, 0), "{second:?}");
    assert_eq!(second.unchanged, put(&first));

    let first = place.export("back");
    let again = ExportOptions { resume: true, ..ExportOptions::default() };
    let second = export(&place.store, &place.path("back"), &again, &Progress::default()).unwrap();
    assert_eq!((second.files, second.links, second.symlinks, second.specials), (0, 0, 0, 0), "{second:?}");
    assert_eq!(second.unchanged, first.files + first.links + first.symlinks + first.specials);
    if is_root() {
        assert_same_trees(&place.path("tree"), &place.path("back"));
    }
    let refused =
        export(&place.store, &place.path("back"), &ExportOptions::default(), &Progress::default()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Exists);
}

#[test]
fn a_changed_tree_is_brought_up_to_date() {
    let place = Place::new();
    let tree = place.path("tree");
    fs::create_dir_all(tree.join("d")).unwrap();
    for name in ["a", "b", "c", "same"] {
        fs::write(tree.join(name), name).unwrap();
    }
    fs::hard_link(tree.join("b"), tree.join("d/b")).unwrap();
    fs::write(tree.join("was a file"), "").unwrap();
    fs::write(tree.join("x"), "x").unwrap();
    fs::write(tree.join("y"), "x").unwrap();
    place.import("tree");

    // A new name that sorts before the known ones, a file that splits in two, two that become one, a file that becomes
    // a directory.
    fs::hard_link(tree.join("c"), tree.join("0")).unwrap();
    fs::remove_file(tree.join("d/b")).unwrap();
    fs::copy(tree.join("b"), tree.join("d/b")).unwrap();
    let time = fs::metadata(tree.join("b")).unwrap();
    set_times(&tree.join("d/b"), time.mtime(), time.mtime_nsec());
    fs::remove_file(tree.join("y")).unwrap();
    fs::hard_link(tree.join("x"), tree.join("y")).unwrap();
    fs::write(tree.join("a"), "longer than it was").unwrap();
    fs::remove_file(tree.join("was a file")).unwrap();
    fs::create_dir(tree.join("was a file")).unwrap();
    fs::write(tree.join("was a file/inside"), "").unwrap();
    let summary = place.import("tree");
    assert!(summary.reports.first.is_empty(), "{:?}", summary.reports);
    assert_eq!(summary.unchanged, 1, "only what is the same stays: {summary:?}");
    place.export("back");
    assert_same_trees(&tree, &place.path("back"));
    assert_eq!(place.import("tree").unchanged, 12);
}

#[test]
fn a_directory_of_the_store_does_not_give_way_to_a_file() {
    let place = Place::new();
    fs::create_dir_all(place.path("tree/d/e")).unwrap();
    place.import("tree");
    fs::remove_dir_all(place.path("tree/d")).unwrap();
    fs::write(place.path("tree/d"), "a file").unwrap();
    let summary = place.import("tree");
    assert_eq!(summary.reports.first[0].kind(), ErrorKind::Exists);
    assert!(place.store.entry(&key("d/e")).unwrap().is_some());
}

#[test]
fn a_file_is_no_prefix_not_even_for_a_count() {
    let place = Place::new();
    fs::create_dir_all(place.path("tree")).unwrap();
    fs::write(place.path("tree/f"), "a file").unwrap();
    place.import("tree");
    let options = ImportOptions { prefix: key("f"), ..ImportOptions::default() };
    let measured = measure(&place.store, &place.path("tree"), &options, &Progress::default());
    let imported = import(&place.store, &place.path("tree"), &options, &Progress::default());
    assert_eq!(measured.unwrap_err().kind(), imported.unwrap_err().kind());
}

#[test]
fn the_store_itself_in_the_tree_is_skipped() {
    let place = Place::new();
    fs::write(place.path("beside"), "x").unwrap();
    let summary = place.import_to("", "all/of it");
    assert_eq!((summary.files, summary.own_directories), (1, 1));
    assert!(place.store.entry(&key("all/of it/beside")).unwrap().is_some());
    assert!(place.store.entry(&key("all/of it/store")).unwrap().is_none());
    let refused =
        import(&place.store, &place.path("store"), &ImportOptions::default(), &Progress::default()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Usage);
}

#[test]
fn records_lie_in_order_of_keys() {
    let place = Place::new();
    for at in 0..3000 {
        let path = place.path("tree").join(format!("{}/{}", at % 37, at));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content(at)).unwrap();
    }
    place.import("tree");
    let walk = place.store.walk(&Key::root()).unwrap().map(Result::unwrap);
    let places: Vec<_> = walk.map(|listed| (listed.entry.location.segment, listed.entry.location.offset)).collect();
    assert_eq!(places.len(), 3038);
    assert!(places.is_sorted(), "some records lie before those of smaller keys");
}

/// Requests a stop after this many objects or bytes.
fn until(objects: u64, bytes: u128) -> Progress {
    Progress::observed(move |progress| {
        let now = progress.snapshot();
        if now.objects >= objects || now.bytes >= bytes {
            progress.stop();
        }
    })
}

#[test]
fn an_interrupted_import_and_export_are_gone_on_with() {
    let place = Place::new();
    nasty_tree(&place.path("tree"), 32 << 20);
    let mut interrupted = 0;
    let all = u128::MAX;
    for (objects, bytes) in [(1, all), (20, all), (u64::MAX, 4 << 20), (u64::MAX, 100_000), (60, all)] {
        let progress = until(objects, bytes);
        let summary = import(&place.store, &place.path("tree"), &ImportOptions::default(), &progress).unwrap();
        assert!(summary.reports.first.is_empty() || !is_root(), "{:?}", summary.reports);
        assert!(progress.snapshot().objects > 0);
        interrupted += u64::from(summary.interrupted);
    }
    assert!(interrupted >= 3, "{interrupted}");
    place.import("tree");
    let options = ExportOptions { resume: true, ..ExportOptions::default() };
    // The last time after most of some 160 objects, so that there are files among them in any order: 113 are
    // directories.
    for (objects, bytes) in [(1, all), (30, all), (u64::MAX, 5 << 20), (130, all)] {
        assert!(export(&place.store, &place.path("back"), &options, &until(objects, bytes)).unwrap().interrupted);
    }
    let last = export(&place.store, &place.path("back"), &options, &Progress::default()).unwrap();
    assert!(last.reports.first.is_empty() && last.unchanged > 0, "{last:?}");
    if is_root() {
        assert_same_trees(&place.path("tree"), &place.path("back"));
    }
}

#[test]
fn an_export_replaces_what_differs_and_follows_no_symlink() {
    let place = Place::new();
    for path in ["a", "b", "d/f", "e/f"] {
        place.store.put(&key(path), &Attributes { mode: 0o100_600, ..Attributes::default() }, b"stored").unwrap();
    }
    let back = place.path("back");
    fs::create_dir_all(place.path("outside")).unwrap();
    fs::create_dir_all(back.join("b")).unwrap();
    fs::write(back.join("a"), "else").unwrap();
    fs::hard_link(back.join("a"), place.path("outside/linked")).unwrap();
    fs::write(back.join("mine"), "stays").unwrap();
    symlink(place.path("outside"), back.join("d")).unwrap();
    let options = ExportOptions { resume: true, ..ExportOptions::default() };
    let summary = export(&place.store, &back, &options, &Progress::default()).unwrap();
    assert_eq!(fs::read(back.join("a")).unwrap(), b"stored");
    // The file with the other name is a different one now.
    assert_eq!(fs::read(place.path("outside/linked")).unwrap(), b"else");
    assert_eq!(fs::read(back.join("mine")).unwrap(), b"stays");
    assert_eq!(fs::read(back.join("e/f")).unwrap(), b"stored");
    assert!(!place.path("outside/f").exists());
    assert!(fs::symlink_metadata(back.join("d")).unwrap().is_symlink());
    let paths: Vec<_> = summary.reports.first.iter().map(|error| error.path().unwrap().to_owned()).collect();
    assert_eq!(paths.len(), 2, "{summary:?}");
    assert!(paths.contains(&back.join("b")) && paths.contains(&back.join("d")), "{paths:?}");
}

#[test]
fn a_part_of_the_store_is_exported_alone() {
    let place = Place::new();
    for path in ["a/b/c", "a/bb", "a/b-c", "d"] {
        place.store.put(&key(path), &Attributes { mode: 0o100_600, ..Attributes::default() }, b"").unwrap();
    }
    let options = ExportOptions { prefix: key("a/b"), ..ExportOptions::default() };
    export(&place.store, &place.path("back"), &options, &Progress::default()).unwrap();
    let names: Vec<_> = seen(&place.path("back")).0.into_keys().collect();
    assert_eq!(names, [PathBuf::new(), PathBuf::from("c")]);
    let wrong = |prefix: &str| {
        let options = ExportOptions { prefix: key(prefix), ..ExportOptions::default() };
        export(&place.store, &place.path("wrong"), &options, &Progress::default()).unwrap_err().kind()
    };
    assert_eq!((wrong("d"), wrong("x")), (ErrorKind::Usage, ErrorKind::NotFound));
    assert!(!place.path("wrong").exists());
}

#[test]
fn what_cannot_be_read_is_reported_and_the_rest_imported() {
    let sandbox = sandbox();
    let (tree, home) = (sandbox.path().join("tree"), sandbox.path().join("stores/store"));
    fs::create_dir_all(tree.join("closed")).unwrap();
    fs::create_dir(sandbox.path().join("stores")).unwrap();
    fs::write(tree.join("secret"), "x").unwrap();
    fs::write(tree.join("z"), "x").unwrap();
    for (path, mode) in [("", 0o755), ("stores", 0o777), ("tree/closed", 0o000), ("tree/secret", 0o000)] {
        fs::set_permissions(sandbox.path().join(path), fs::Permissions::from_mode(mode)).unwrap();
    }
    for (arguments, code) in [(vec!["init"], 0), (vec!["import"], 1)] {
        let Some(mut command) = granulo_as_nobody(&sandbox) else { return };
        command.arg("store").args(&arguments).arg(&home);
        if arguments == ["import"] {
            command.arg(&tree);
        }
        let ran = finish(&mut command).ended(code);
        if arguments == ["import"] {
            for said in ["secret", "closed"] {
                assert!(ran.said().contains(said), "{}", ran.said());
            }
        }
    }
    let store = Store::open_read_only(&home).unwrap();
    assert!(store.entry(&key("z")).unwrap().is_some());
    assert!(store.entry(&key("secret")).unwrap().is_none());
}

/// The output of `tar` for a tree.
fn tar_of(tree: &Path, options: &[&str]) -> Option<Vec<u8>> {
    if !has_program("tar") {
        skip("it needs tar");
        return None;
    }
    let tar = Command::new("tar").args(options).arg("-C").arg(tree).args(["-cf", "-", "."]).output().unwrap();
    // It reports that it skips sockets, and ends well.
    assert!(tar.status.success(), "{}", String::from_utf8_lossy(&tar.stderr));
    Some(tar.stdout)
}

#[test]
fn archives_of_the_system_s_tar_come_back_as_the_tree() {
    if !is_root() {
        return skip("it keeps owners and devices, which needs root");
    }
    let formats: [&[&str]; 3] = [
        &["--format=posix", "--xattrs", "--xattrs-include=*", "--sparse"],
        &["--format=posix", "--xattrs", "--xattrs-include=*", "--sparse", "--sparse-version=0.1"],
        &["--format=gnu", "--sparse"],
    ];
    for options in formats {
        let place = Place::new();
        let tree = place.path("tree");
        nasty_tree(&tree, 32 << 20);
        fs::remove_file(tree.join("special/socket")).unwrap();
        if options[0] == "--format=gnu" {
            // The format has neither attributes nor fractions of seconds.
            for path in seen(&tree).0.keys() {
                let path = tree.join(path);
                for name in xattrs(&path).keys() {
                    rustix::fs::lremovexattr(&path, &name[..]).unwrap();
                }
            }
            for path in seen(&tree).0.keys() {
                let path = tree.join(path);
                set_times(&path, fs::symlink_metadata(&path).unwrap().mtime(), 0);
            }
        }
        let Some(archive) = tar_of(&tree, options) else { return };
        let summary = place.import_tar(&archive).unwrap();
        assert!(summary.reports.first.is_empty() && summary.refused == 0, "{options:?}: {summary:?}");
        assert_eq!(summary.links, 3);
        let export_options = ExportOptions { prefix: key("in"), ..ExportOptions::default() };
        let exported = export(&place.store, &place.path("back"), &export_options, &Progress::default()).unwrap();
        assert!(exported.reports.first.is_empty(), "{options:?}: {exported:?}");
        assert_same_trees(&tree, &place.path("back"));
        let again = place.import_tar(&archive).unwrap();
        assert_eq!((again.files, again.links, again.content_bytes), (0, 0, 0), "{again:?}");
        assert_eq!(
            again.unchanged,
            summary.unchanged
                + summary.directories
                + summary.files
                + summary.links
                + summary.symlinks
                + summary.specials
        );
    }
}

fn header(kind: tar::EntryType, size: usize) -> tar::Header {
    let mut header = tar::Header::new_ustar();
    header.set_entry_type(kind);
    header.set_size(size as u64);
    header.set_mode(0o644);
    header.set_mtime(1);
    header.set_uid(0);
    header.set_gid(0);
    header
}

/// An archive with names and targets exactly as specified.
fn archive(members: &[(tar::EntryType, &str, &str)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (kind, name, target) in members {
        let data: &[u8] = if *kind == tar::EntryType::Regular { target.as_bytes() } else { b"" };
        let mut header = header(*kind, data.len());
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        if data.is_empty() {
            header.as_old_mut().linkname[..target.len()].copy_from_slice(target.as_bytes());
        }
        header.set_cksum();
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(data);
        bytes.resize(bytes.len().next_multiple_of(512), 0);
    }
    bytes.resize(bytes.len() + 1024, 0);
    bytes
}

#[test]
fn members_of_a_hostile_archive_stay_inside() {
    use tar::EntryType as Is;
    let place = Place::new();
    place.store.put(&key("secret"), &Attributes { mode: 0o100_600, ..Attributes::default() }, b"not yours").unwrap();
    let bytes = archive(&[
        (Is::Regular, "../escaped", "x"),
        (Is::Regular, "/absolute", "x"),
        (Is::Regular, "a/../../escaped", "x"),
        (Is::Link, "stolen", "../secret"),
        (Is::Link, "stolen", "/secret"),
        (Is::Link, "stolen", "missing"),
        (Is::Symlink, "out", "/tmp"),
        (Is::Regular, "out/through a symlink", "x"),
        (Is::Link, "itself", "itself"),
        (Is::Directory, "d/", ""),
        (Is::Link, "linked directory", "d"),
        (Is::Regular, "f", "first"),
        (Is::Regular, "f/below a file", "x"),
        (Is::Regular, "d/e/g", "kept"),
        (Is::Regular, "d", "in the place of a directory"),
        (Is::Regular, "d/e", "in the place of a directory that was never listed"),
        (Is::Regular, ".", "in the place of the root"),
        (Is::Regular, "", "no name"),
        (Is::Regular, "f", "second"),
        (Is::Link, "./late", "f"),
        (Is::Regular, "last", "still there"),
    ]);
    let summary = place.import_tar(&bytes).unwrap();
    let walk = place.store.walk(&Key::root()).unwrap().map(|listed| listed.unwrap().key.to_string());
    let keys: Vec<String> = walk.filter(|key| key != "/").collect();
    assert_eq!(
        keys,
        ["in", "in/d", "in/d/e", "in/d/e/g", "in/f", "in/last", "in/late", "in/out", "secret"],
        "{:?}",
        summary.reports
    );
    assert_eq!((summary.refused, summary.files, summary.links), (14, 4, 1));
    for (name, content) in
        [("in/f", &b"second"[..]), ("in/late", b"second"), ("in/d/e/g", b"kept"), ("secret", b"not yours")]
    {
        assert_eq!(place.store.get(&key(name)).unwrap().unwrap(), content);
    }
    assert_eq!(place.store.stat(&key("in/f")).unwrap().unwrap().names, 2);
    // On export, the symlink is one again, and nothing passes through it.
    place.export("back");
    assert_eq!(fs::read_link(place.path("back/in/out")).unwrap(), Path::new("/tmp"));
}

#[test]
fn a_file_becomes_a_directory_and_names_are_taken_again_within_one_archive() {
    use tar::EntryType as Is;
    let place = Place::new();
    let bytes = archive(&[
        (Is::Regular, "a", "a file first"),
        (Is::Directory, "a", ""),
        (Is::Regular, "a/b", "inside"),
        (Is::Regular, "c", "one"),
        (Is::Link, "d", "c"),
        (Is::Link, "e", "c"),
        (Is::Regular, "c", "two"),
        (Is::Link, "f", "c"),
    ]);
    let summary = place.import_tar(&bytes).unwrap();
    assert_eq!((summary.refused, summary.reports.count), (0, 0), "{summary:?}");
    for (name, content, names) in
        [("in/a/b", &b"inside"[..], 1), ("in/c", b"two", 2), ("in/d", b"one", 2), ("in/f", b"two", 2)]
    {
        assert_eq!(place.store.get(&key(name)).unwrap().unwrap(), content, "{name}");
        assert_eq!(place.store.stat(&key(name)).unwrap().unwrap().names, names, "{name}");
    }
}

/// As `tar -r` appends it within a second.
#[test]
fn a_later_member_replaces_an_earlier_one_that_looks_the_same() {
    use tar::EntryType as Is;
    /// More than are committed together.
    const BETWEEN: usize = 1500;
    let place = Place::new();
    let between: Vec<String> = (0..BETWEEN).map(|at| format!("between/{at}")).collect();
    let mut members = vec![(Is::Regular, "again", "one")];
    members.extend(between.iter().map(|name| (Is::Regular, &name[..], "")));
    members.push((Is::Regular, "again", "two"));
    let bytes = archive(&members);
    for unchanged in [0, BETWEEN as u64 + 2] {
        let summary = place.import_tar(&bytes).unwrap();
        assert_eq!((summary.unchanged, summary.reports.count), (unchanged, 0), "{summary:?}");
        assert_eq!(place.store.get(&key("in/again")).unwrap().unwrap(), b"two");
    }
}

#[test]
fn what_has_several_names_has_them_after_an_archive_too() {
    use tar::EntryType as Is;
    let place = Place::new();
    let mode = |mode| Attributes { mode, ..Attributes::default() };
    let mut batch = place.store.batch(Durability::Batch);
    batch.put(&key("out/file"), &mode(0o100_640), b"content").unwrap();
    batch.put(&key("out/large"), &mode(0o100_600), &content(300_000)).unwrap();
    batch.symlink(&key("out/symlink"), &mode(0o120_777), b"to/where").unwrap();
    batch.special(&key("out/fifo"), &mode(0o010_644), 0, 0).unwrap();
    batch.special(&key("out/device"), &mode(0o020_600), 1, 3).unwrap();
    batch.special(&key("out/socket"), &mode(0o140_700), 0, 0).unwrap();
    batch.commit().unwrap();
    let kinds = [Is::Regular, Is::Regular, Is::Symlink, Is::Fifo, Is::Char];
    let names = ["file", "large", "symlink", "fifo", "device"];
    for name in names.iter().chain(&["socket"]) {
        place.store.hard_link(&key(&format!("out/{name}")), &key(&format!("out/{name} again"))).unwrap();
    }
    let mut bytes = Vec::new();
    let written = write_tar(&place.store, &[key("out")], &mut bytes, &Progress::default()).unwrap();
    assert_eq!((written.members, written.left_out, written.reports.count), (11, 2, 0));
    let mut members: Vec<(String, Is, String)> = Vec::new();
    for member in tar::Archive::new(&bytes[..]).entries().unwrap().map(Result::unwrap) {
        let text =
            |bytes: Option<std::borrow::Cow<'_, [u8]>>| String::from_utf8(bytes.unwrap_or_default().into()).unwrap();
        let header = member.header();
        members.push((text(Some(member.path_bytes())), header.entry_type(), text(member.link_name_bytes())));
    }
    for (name, kind) in names.iter().zip(kinds) {
        let target = if kind == Is::Symlink { "to/where" } else { "" };
        assert!(members.contains(&(format!("out/{name}"), kind, target.to_owned())), "{members:?}");
        assert!(members.contains(&(format!("out/{name} again"), Is::Link, format!("out/{name}"))), "{members:?}");
    }
    // What has the name of a link gives way to it.
    place.store.put(&key("in/out/symlink again"), &mode(0o100_640), b"something else").unwrap();
    let summary = place.import_tar(&bytes).unwrap();
    assert_eq!((summary.files, summary.symlinks, summary.specials, summary.links), (2, 1, 2, 5), "{summary:?}");
    for name in names {
        let stat = |path: String| place.store.stat(&key(&path)).unwrap().unwrap();
        let (before, one, other) =
            (stat(format!("out/{name}")), stat(format!("in/out/{name}")), stat(format!("in/out/{name} again")));
        assert_eq!((one.entry.kind, one.entry.mode, one.names), (before.entry.kind, before.entry.mode, 2), "{name}");
        assert_eq!((one.entry.number, one.entry.size_bytes), (other.entry.number, before.entry.size_bytes), "{name}");
        let content = |path: String| place.store.get(&key(&path)).unwrap().unwrap();
        assert!(content(format!("in/out/{name} again")) == content(format!("out/{name}")), "{name}");
    }
    let again = place.import_tar(&bytes).unwrap();
    assert_eq!((again.unchanged, again.files, again.symlinks, again.specials, again.links), (11, 0, 0, 0, 0));
}

#[test]
fn attributes_of_any_name_go_through_an_archive() {
    let place = Place::new();
    let names = [&b"user.%"[..], b"user.a%3Db", b"user.a=b", b"user.line\n", b"user.p%25"];
    let xattrs: Vec<(Vec<u8>, Vec<u8>)> = names.iter().map(|name| (name.to_vec(), b"=%25\n".to_vec())).collect();
    place.store.put(&key("file"), &Attributes { mode: 0o100_600, xattrs, ..Attributes::default() }, b"x").unwrap();
    let mut bytes = Vec::new();
    let written = write_tar(&place.store, &[key("file")], &mut bytes, &Progress::default()).unwrap();
    assert_eq!((written.members, written.left_out), (1, 0));
    assert_eq!(place.import_tar(&bytes).unwrap().xattrs_unreadable, 0);
    let of = |path: &str| place.store.stat(&key(path)).unwrap().unwrap().attributes.xattrs;
    assert_eq!((of("in/file").len(), of("in/file")), (names.len(), of("file")));
}

#[test]
fn what_is_not_an_archive_and_what_is_truncated_is_said() {
    use tar::EntryType as Is;
    let place = Place::new();
    let refused = place.import_tar(&[7; 5000]).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NotRecognised);
    let large = "y".repeat(99);
    let mut bytes = archive(&[(Is::Regular, "whole", "x"), (Is::Regular, "half", &large)]);
    bytes.truncate(512 * 3 + 50);
    let cut = place.import_tar(&bytes).unwrap_err();
    assert_eq!(cut.kind(), ErrorKind::Corrupt, "{cut}");
    // What came before it exists.
    assert_eq!(place.store.get(&key("in/whole")).unwrap().unwrap(), b"x");
    assert!(place.store.entry(&key("in/half")).unwrap().is_none());
    let bytes = archive(&[(Is::Regular, "whole", "x")]);
    let summary = place.import_tar(&bytes[..bytes.len() - 1024]).unwrap();
    assert_eq!((summary.unchanged, summary.reports.count), (1, 1), "an end without its marker is reported");
}

#[test]
fn a_stream_that_fails_is_an_error_of_the_stream() {
    struct Failing;
    impl Read for Failing {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::from_raw_os_error(5))
        }
    }
    let place = Place::new();
    let failed = import_tar(&place.store, &mut Failing, &ImportOptions::default(), &Progress::default()).unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::Io);
    assert!(failed.to_string().contains("Input/output error"), "{failed}");
}

#[test]
fn special_files_that_are_read_do_not_hang() {
    let place = Place::new();
    fs::create_dir(place.path("tree")).unwrap();
    mknodat(CWD, place.path("tree/fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    assert_eq!(place.import("tree").specials, 1);
    place.export("back");
    assert!(fs::symlink_metadata(place.path("back/fifo")).unwrap().file_type().is_fifo());
}
