//! The life of a mount: several at once of one store, its end by a signal, the background, and a user who is not root.

use std::fs::{self, File};
use std::io::{Read, Seek};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::args;
use crate::harness::{finish, granulo, granulo_as_nobody, has_program, run, skip, without_wishes};
use crate::mounted::{Mounted, PATIENCE, Place};

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
    let within = |what: &str, is_so: &dyn Fn() -> bool| within(what, &reader, is_so);
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

/// Whether something is so in the end.
fn within(what: &str, mounted: &Mounted, is_so: &dyn Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "{what}: {}", mounted.log());
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_file_that_is_open_beside_a_writer_is_followed_to_its_new_names() {
    let Some(place) = Place::new() else { return };
    let writer = place.mount();
    let second = place.sandbox.path().join("second");
    fs::create_dir(&second).unwrap();
    let write = |name: &str, text: &str| {
        fs::write(writer.root.join(name), text).unwrap();
        File::open(writer.root.join(name)).unwrap().sync_all().unwrap();
    };
    write("a", "one");
    let reader = Mounted::start(&place.store(), &second, &["-o", "ro"]);
    let mut open = File::open(second.join("a")).unwrap();
    let mut read = || {
        let mut text = String::new();
        open.rewind().unwrap();
        open.read_to_string(&mut text).unwrap();
        text
    };
    assert_eq!(read(), "one");
    fs::rename(writer.root.join("a"), writer.root.join("b")).unwrap();
    write("b", "another");
    within("the new name", &reader, &|| fs::read(second.join("b")).is_ok_and(|read| read == b"another"));
    assert_eq!(read(), "another");
    fs::hard_link(writer.root.join("b"), writer.root.join("c")).unwrap();
    write("c", "the third");
    within("the second name", &reader, &|| fs::read(second.join("c")).is_ok_and(|read| read == b"the third"));
    assert_eq!(read(), "the third");
    drop(open);
    reader.unmount();
    writer.unmount();
}

#[test]
fn content_with_the_time_of_the_old_is_read_however_many_files_are_known() {
    const FILES: usize = 10_001;
    let Some(place) = Place::new() else { return };
    let writer = place.mount();
    let second = place.sandbox.path().join("second");
    fs::create_dir(&second).unwrap();
    fs::create_dir(writer.root.join("many")).unwrap();
    for number in 0..FILES {
        fs::write(writer.root.join(format!("many/{number}")), "old").unwrap();
    }
    let file = writer.root.join("many/7");
    File::open(&file).unwrap().sync_all().unwrap();
    let reader = Mounted::start(&place.store(), &second, &["-o", "ro"]);
    let seen = second.join("many/7");
    let known = fs::read_dir(second.join("many")).unwrap().filter(|entry| entry.as_ref().unwrap().metadata().is_ok());
    assert_eq!(known.count(), FILES);
    assert_eq!(fs::read(&seen).unwrap(), b"old");
    let before = fs::metadata(&file).unwrap();
    fs::write(&file, "new").unwrap();
    let open = File::options().write(true).open(&file).unwrap();
    let times = fs::FileTimes::new().set_modified(before.modified().unwrap()).set_accessed(before.accessed().unwrap());
    open.set_times(times).unwrap();
    open.sync_all().unwrap();
    drop(open);
    within("new content", &reader, &|| fs::read(&seen).is_ok_and(|read| read == b"new"));
    reader.unmount();
    writer.unmount();
}

#[test]
fn what_changes_names_is_durable_with_dirsync_and_attributes_with_sync() {
    let Some(place) = Place::new() else { return };
    let mounted = place.mount_with(&["-o", "dirsync,commit=1h"]);
    let at = |name: &str| mounted.root.join(name);
    for name in ["made", "old"] {
        fs::create_dir(at(name)).unwrap();
    }
    fs::write(at("file"), "").unwrap();
    fs::write(at("gone"), "").unwrap();
    fs::rename(at("old"), at("new")).unwrap();
    fs::hard_link(at("file"), at("link")).unwrap();
    fs::remove_file(at("gone")).unwrap();
    mounted.kill();
    let mounted = place.mount_with(&["-o", "sync,commit=1h"]);
    let mut names: Vec<_> = fs::read_dir(&mounted.root).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["file", "link", "made", "new"]);
    fs::set_permissions(mounted.root.join("file"), fs::Permissions::from_mode(0o640)).unwrap();
    mounted.kill();
    let mounted = place.mount();
    assert_eq!(fs::metadata(mounted.root.join("link")).unwrap().permissions().mode(), 0o100_640);
    mounted.unmount();
    place.check();
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
fn a_store_is_not_mounted_over_its_own_files() {
    let Some(place) = Place::new() else { return };
    let (store, device) = (place.store(), place.sandbox.path().join("device"));
    run(args!["store", "init", place.sandbox.path().join("other"), "--fast", &device]).ended(0);
    let inside = store.join("inside");
    fs::create_dir(&inside).unwrap();
    for (of, target) in [
        (&store, store.as_path()),
        (&store, place.sandbox.path()),
        (&store, &inside),
        (&place.sandbox.path().join("other"), &device),
    ] {
        for kernel in [&[][..], &["--kernel"]] {
            let refused = finish(granulo().arg("mount").args(kernel).arg(of).arg(target)).ended(2).said();
            assert!(refused.contains("its own files"), "{refused}");
        }
    }
}

#[test]
fn a_store_whose_root_was_never_written_is_mounted() {
    let Some(place) = Place::new() else { return };
    let content = place.sandbox.path().join("content");
    fs::write(&content, "one").unwrap();
    run(args!["store", "put", place.store(), "file", &content]).ended(0);
    let mounted = place.mount_with(&["-o", "ro"]);
    let names: Vec<_> = fs::read_dir(&mounted.root).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["file"]);
    assert_eq!(fs::read(mounted.root.join("file")).unwrap(), b"one");
    assert!(fs::metadata(&mounted.root).unwrap().is_dir());
    mounted.unmount();
}

#[test]
fn attributes_that_no_file_system_has_are_refused() {
    let Some(place) = Place::new() else { return };
    let mounted = place.mount();
    let path = mounted.root.join("file");
    fs::write(&path, "one").unwrap();
    let set = |name: &str| rustix::fs::setxattr(&path, name, b"x", rustix::fs::XattrFlags::empty());
    for name in ["system.evil", "foo.a"] {
        assert_eq!(set(name), Err(rustix::io::Errno::OPNOTSUPP), "{name}");
        assert!(rustix::fs::removexattr(&path, name).is_err());
    }
    set("user.a").unwrap();
    set("security.a").unwrap();
    set("trusted.a").unwrap();
    mounted.unmount();
}

#[test]
fn a_mount_is_ended_by_a_link_to_its_directory() {
    let Some(place) = Place::new() else { return };
    let mut mounted = place.mount();
    let link = place.sandbox.path().join("link");
    std::os::unix::fs::symlink(&mounted.root, &link).unwrap();
    finish(granulo().arg("unmount").arg(&link)).ended(0);
    assert!(mounted.child.wait().unwrap().success());
}
