//! The life of a mount: several at once of one store, its end by a signal, the background, and a user who is not root.

use std::fs::{self, File};
use std::os::unix::fs::chown;
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
