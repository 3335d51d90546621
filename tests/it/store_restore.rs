//! What an export, a copy and an archive do with what is there already: nothing is replaced before its replacement is
//! whole, nothing is joined or overwritten unasked, and nobody may read more than the store says.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use rustix::fs::lgetxattr;
use rustix::io::Errno;

use crate::args;
use crate::harness::{binary, complains, finish, has_program, is_root, skip, without_wishes, write_file};
use crate::store_cli::{on, put, store};
use crate::store_place::{can_trace, find, flip};

/// Names in a directory.
fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = entries.collect();
    names.sort();
    names
}

#[test]
fn a_resumed_export_keeps_what_it_cannot_replace() {
    let (sandbox, home) = store();
    let (tree, out) = (sandbox.path().join("tree"), sandbox.path().join("out"));
    for (name, content) in [("damaged", &b"content that will be damaged"[..]), ("sound", b"content"), ("same", b"same")]
    {
        write_file(tree.join(name), 0);
        fs::write(tree.join(name), content).unwrap();
    }
    fs::hard_link(tree.join("sound"), tree.join("sound again")).unwrap();
    on("import", &home, [&tree]).ended(0);
    on("export", &home, [&out]).ended(0);
    let (path, at) = find(&home.join("segments"), b"content that will be damaged").unwrap();
    flip(&path, at + 3);
    for name in ["damaged", "sound"] {
        fs::remove_file(out.join(name)).unwrap();
        fs::write(out.join(name), "newer, and the only copy").unwrap();
    }
    fs::remove_file(out.join("sound again")).unwrap();
    fs::write(out.join("sound again"), "another").unwrap();
    let resumed = on("export", &home, args![&out, "--resume"]).ended(1);
    assert!(resumed.said().contains("it affects damaged"), "{}", resumed.said());
    assert_eq!(fs::read(out.join("damaged")).unwrap(), b"newer, and the only copy");
    assert_eq!(fs::read(out.join("sound")).unwrap(), b"content");
    let inode = |name: &str| fs::metadata(out.join(name)).unwrap().ino();
    assert_eq!(inode("sound again"), inode("sound"));
    assert_eq!(names(&out), ["damaged", "same", "sound", "sound again"]);
}

#[test]
fn a_new_file_system_is_an_empty_target() {
    let (sandbox, home) = store();
    put(&home, "key", b"content");
    put(&home, "lost+found/#7", b"of the one that was imported");
    let out = sandbox.path().join("out");
    fs::create_dir_all(out.join("lost+found")).unwrap();
    if is_root() {
        on("export", &home, [&out]).ended(0);
        assert_eq!(names(&out), ["key", "lost+found"]);
        assert_eq!(names(&out.join("lost+found")), ["#7"]);
        fs::remove_file(out.join("key")).unwrap();
    }
    write_file(out.join("lost+found/#12"), 1);
    complains(&on("export", &home, [&out]).ended(2), &["not empty"]);
}

#[test]
fn an_owner_that_cannot_be_set_counts_once_however_deep_the_tree_is() {
    if !is_root() || !can_trace() {
        return skip("only root sets owners, and strace refuses that");
    }
    let (sandbox, home) = store();
    let tree = sandbox.path().join("tree");
    let deepest = (0..70).fold(tree.clone(), |path, _| path.join("d"));
    fs::create_dir_all(&deepest).unwrap();
    on("import", &home, [&tree]).ended(0);
    let mut strace = without_wishes(Command::new("strace"));
    strace.args(["-f", "-qqq", "-e", "trace=fchown,fchownat", "-e", "inject=fchown,fchownat:error=EPERM"]);
    strace.args(["-o", "/dev/null"]).arg(binary());
    let out = sandbox.path().join("out");
    let exported = finish(strace.args(args!["store", "export", &home, &out, "--json"]));
    assert_eq!(exported.ended(0).json()["owners_not_set"], 71, "and that of the target");
}

#[test]
fn a_default_acl_of_the_target_gives_nobody_access() {
    if !has_program("setfacl") {
        return skip("there is no setfacl");
    }
    let (sandbox, home) = store();
    let (tree, out) = (sandbox.path().join("tree"), sandbox.path().join("out"));
    write_file(tree.join("below/private"), 10);
    fs::set_permissions(tree.join("below/private"), fs::Permissions::from_mode(0o640)).unwrap();
    on("import", &home, [&tree]).ended(0);
    fs::create_dir(&out).unwrap();
    let set = Command::new("setfacl").args(["-d", "-m", "u:12345:rwx"]).arg(&out).output().unwrap();
    if !set.status.success() {
        return skip("the file system of the tests has no ACLs");
    }
    on("export", &home, [&out]).ended(0);
    for name in ["below", "below/private"] {
        for acl in ["system.posix_acl_access", "system.posix_acl_default"] {
            let found = lgetxattr(out.join(name), acl, &mut [0u8; 100][..]);
            assert!(matches!(found, Err(Errno::NODATA | Errno::OPNOTSUPP)), "{name}: {acl}: {found:?}");
        }
    }
    assert_eq!(fs::metadata(out.join("below/private")).unwrap().mode() & 0o777, 0o640);
}

#[test]
fn two_objects_are_not_copied_to_one_key() {
    let (_sandbox, home) = store();
    for (key, content) in [("a/same", b"one"), ("b/same", b"two"), ("c/other", b"six")] {
        put(&home, key, content);
    }
    for arguments in [["a/same", "b/same", "c"], ["a", "b/same", "c"]] {
        let ran = on("cp", &home, args!["-r", arguments[0], arguments[1], arguments[2]]);
        if arguments[0] == "a" {
            ran.ended(0);
            continue;
        }
        let ran = ran.ended(2);
        complains(&ran, &["c/same", "two of the objects would get this key"]);
        assert_eq!(on("ls", &home, ["c"]).ended(0).text(), "other\n");
    }
}

#[test]
fn a_link_of_an_archive_is_not_joined_with_what_was_left_out() {
    if !has_program("tar") {
        return skip("there is no tar");
    }
    let (sandbox, home) = store();
    put(&home, "cache/f", b"old");
    let (tree, archive) = (sandbox.path().join("tree"), sandbox.path().join("new.tar"));
    write_file(tree.join("cache/f"), 7);
    fs::create_dir(tree.join("data")).unwrap();
    fs::hard_link(tree.join("cache/f"), tree.join("data/g")).unwrap();
    let mut tar = Command::new("tar");
    tar.arg("-C").arg(&tree).args(["-cf", "-", "cache/f", "data/g"]).stdout(File::create(&archive).unwrap());
    assert!(tar.status().unwrap().success());
    let ran = on("import", &home, args![&archive, "--exclude", "cache"]).ended(1);
    assert!(ran.said().contains("data/g: the name it links to is left out"), "{}", ran.said());
    on("get", &home, ["data/g"]).ended(2);
}
