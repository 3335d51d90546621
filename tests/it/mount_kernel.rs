//! `granulo mount --kernel`: what it says, and what mounts that were killed leave. What the kernel shows is tested in
//! `src/erofs`.

use std::fs;
use std::path::Path;

use granulo::store::{Attributes, Key, Store, Time};

use crate::harness::{Ran, is_root, run, sandbox, skip};

/// A store, and a directory to mount it at.
fn place() -> (tempfile::TempDir, [String; 2]) {
    let sandbox = sandbox();
    let [store, at] = ["store", "at"].map(|name| sandbox.path().join(name).to_str().unwrap().to_owned());
    fs::create_dir(&at).unwrap();
    run(["store", "init", "--align", "512", &store]).ended(0);
    (sandbox, [store, at])
}

/// Mounts a store; `None`, with the reason reported, where the kernel does not.
fn mounted(store: &str, at: &str) -> Option<Ran> {
    let ran = run(["mount", "--kernel", store, at]);
    if ran.said().contains("note: mounted at") {
        return Some(ran);
    }
    assert!(!is_root() || ran.said().contains("the kernel"), "{}", ran.said());
    skip(&ran.said());
    None
}

#[test]
fn the_next_mount_removes_the_image_of_one_that_was_killed() {
    let (_sandbox, [store, at]) = place();
    let [image, other] = ["mount-0123456789abcdef.erofs", "mount-mine.erofs"].map(|name| Path::new(&store).join(name));
    [&image, &other].into_iter().for_each(|path| fs::write(path, "x").unwrap());
    // Also where it ends for lack of rights or of a kernel that can.
    let ran = run(["mount", "--kernel", &store, &at]);
    assert!(ran.said().contains("mount-0123456789abcdef.erofs, which a mount left"), "{}", ran.said());
    assert!(!image.exists() && other.exists());
    if ran.said().contains("note: mounted at") {
        run(["unmount", &at]).ended(0);
    }
}

#[test]
fn options_of_a_server_are_refused() {
    let (_sandbox, [store, at]) = place();
    for option in ["commit=1s", "free=1m", "log=/x"] {
        let ran = run(["mount", "--kernel", "-o", option, &store, &at]).ended(2);
        assert!(ran.said().contains("has no server: commit=, free= and log="), "{option}: {}", ran.said());
    }
}

#[test]
fn attributes_that_do_not_fit_are_said() {
    let (_sandbox, [store, at]) = place();
    let xattrs = (0..5).map(|number| (format!("user.{number}").into_bytes(), vec![b'A'; 60_000])).collect();
    let attributes = Attributes { xattrs, ..Attributes::of_file(Time::default()) };
    let opened = Store::open(Path::new(&store)).unwrap();
    opened.put(&Key::parse("file").unwrap(), &attributes, b"content").unwrap();
    drop(opened);
    let Some(ran) = mounted(&store, &at) else { return };
    run(["unmount", &at]).ended(0);
    let ran = ran.ended(1);
    assert!(ran.said().contains("warning: 1 extended attributes are not shown"), "{}", ran.said());
}
