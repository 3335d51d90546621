//! The store's commands among other processes and files: one writer, interruptions, readers that go away, targets that
//! cannot be written, trees and archives through files and pipes.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;
use std::process::Stdio;

use crate::args;
use crate::harness::{Ran, complains, finish, granulo, without_wishes, write_file};
use crate::store_cli::{noise, on, put, store};

/// A writer that keeps the store open until its standard input is closed.
fn writer(home: &Path) -> std::process::Child {
    let mut child = granulo()
        .args(["store".as_ref(), "put".as_ref(), home.as_os_str(), OsStr::new("slow")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It reads only after opening the store: a pipe holds 64 KiB, so once more than that was read, the store is open.
    child.stdin.as_mut().unwrap().write_all(&noise(1 << 20)).unwrap();
    child
}

#[test]
fn there_is_one_writer_and_readers_do_not_mind() {
    let (_sandbox, home) = store();
    put(&home, "key", b"content");
    let mut writing = writer(&home);
    let holder = format!("another process ({}) has it open for writing", writing.id());
    complains(&on("rm", &home, ["key"]).ended(2), &[&holder]);
    assert_eq!(on("get", &home, ["key"]).ended(0).text(), "content");
    assert_eq!(on("ls", &home, [""; 0]).ended(0).text(), "key\n");
    drop(writing.stdin.take());
    let ran: Ran = writing.wait_with_output().unwrap().into();
    ran.ended(0);
    assert_eq!(on("ls", &home, [""; 0]).ended(0).text(), "key\nslow\n");
}

#[test]
fn an_interrupted_put_puts_nothing() {
    let (_sandbox, home) = store();
    put(&home, "slow", b"old");
    // Whoever writes to the pipe may be stopped by the same signal, and the content seem to end there.
    for goes_on in [true, false] {
        let mut writing = writer(&home);
        let pid = rustix::process::Pid::from_child(&writing);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        if goes_on {
            // The flag is checked before each read: this write completes the read in which it waits.
            let _ = writing.stdin.as_mut().unwrap().write_all(&noise(1 << 20));
        }
        drop(writing.stdin.take());
        let ran: Ran = writing.wait_with_output().unwrap().into();
        assert!(ran.ended(1).said().contains("interrupted; nothing was stored"));
        assert_eq!(on("get", &home, ["slow"]).ended(0).text(), "old");
    }
    put(&home, "slow", b"x");
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let (_sandbox, home) = store();
    put(&home, "large", &noise(20 << 20));
    let mut child = granulo()
        .args(["store".as_ref(), "get".as_ref(), home.as_os_str(), OsStr::new("large")])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut some = [0; 1000];
    child.stdout.as_mut().unwrap().read_exact(&mut some).unwrap();
    drop(child.stdout.take());
    let ran: Ran = child.wait_with_output().unwrap().into();
    assert_eq!(ran.ended(0).said(), "");
}

#[test]
fn a_target_that_cannot_be_written_leaves_nothing() {
    let (sandbox, home) = store();
    put(&home, "key", b"content");
    let gone = sandbox.path().join("gone/out");
    complains(&on("get", &home, args!["key", "-o", &gone]).ended(2), &["gone"]);
    complains(&on("get", &home, args!["key", "-o", sandbox.path()]).ended(2), &["directory"]);
    on("get", &home, ["key", "-o", "/dev/null"]).ended(0);
    let mut command = without_wishes(std::process::Command::new("sh"));
    command.args(["-c", "\"$1\" store get \"$2\" key > /dev/full", "sh"]).arg(crate::harness::binary()).arg(&home);
    complains(&finish(&mut command).ended(2), &["standard output", "No space left"]);
    on("get", &home, ["key", "--json"]).ended(2);
}

#[test]
fn a_tree_goes_in_and_comes_out() {
    let (sandbox, home) = store();
    let tree = sandbox.path().join("tree");
    for (name, size) in [("a/one", 1), ("a/b/large", 300_000), ("empty", 0)] {
        write_file(tree.join(name), size);
    }
    std::os::unix::fs::symlink("a/one", tree.join("link")).unwrap();
    fs::hard_link(tree.join("a/one"), tree.join("again")).unwrap();
    let counts = "3 files, 3 directories, 1 symbolic link, 1 additional name, 293 KiB";
    let planned = on("import", &home, args![&tree, "--dry-run"]).ended(0);
    assert!(one_line(&planned).ends_with(&format!("has {counts}; nothing was imported.")), "{}", planned.text());
    assert_eq!(on("ls", &home, [""; 0]).ended(0).text(), "");
    let imported = on("import", &home, args![&tree, "--prefix", "kept/here"]).ended(0);
    assert_eq!(one_line(&imported), format!("Imported {counts}."));
    assert_eq!(imported.said(), "");
    let again = on("import", &home, args![&tree, "--prefix", "kept/here", "--json"]).ended(0).json();
    assert_eq!((&again["schema"], &again["prefix"]), (&"granulo/store-import/1".into(), &"kept/here".into()));
    assert_eq!((&again["files"], &again["complete"], &again["errors"]), (&0.into(), &true.into(), &0.into()));
    assert!(again["unchanged"].as_u64().unwrap() >= 7, "{again}");

    let long = on("ls", &home, ["kept/here", "-l"]).ended(0).text();
    assert!(long.lines().any(|line| line.ends_with(" link -> a/one")), "{long}");
    assert!(long.lines().any(|line| line.starts_with("-rw-r--r-- 2 ") && line.ends_with(" again")), "{long}");
    let removal = on("rm", &home, ["kept/here/a", "-r", "--dry-run", "--json"]).ended(0).json();
    assert_eq!((&removal["files"], &removal["names_of_files_that_stay"]), (&1.into(), &1.into()));
    complains(&on("get", &home, ["kept/here/link"]).ended(2), &["symbolic link to a/one"]);

    let out = sandbox.path().join("out");
    let exported = on("export", &home, args![&out, "--prefix", "kept/here"]).ended(0);
    assert!(one_line(&exported).starts_with("Exported 3 files"), "{}", exported.text());
    assert_eq!(fs::read(out.join("a/b/large")).unwrap(), vec![b'x'; 300_000]);
    assert_eq!(fs::read_link(out.join("link")).unwrap(), Path::new("a/one"));
    complains(&on("export", &home, args![&out]).ended(2), &["out", "empty"]);
    let resumed = on("export", &home, args![&out, "--prefix", "kept/here", "--resume", "--json"]).ended(0).json();
    assert_eq!((&resumed["schema"], &resumed["files"]), (&"granulo/store-export/1".into(), &0.into()));
    complains(&on("export", &home, args![sandbox.path().join("new"), "--prefix", "nowhere"]).ended(2), &["nowhere"]);
    complains(&on("import", &home, args![sandbox.path().join("missing")]).ended(2), &["missing"]);
}

/// The output without its line breaks.
fn one_line(ran: &Ran) -> String {
    ran.text().lines().collect::<Vec<_>>().join(" ")
}

#[test]
fn an_archive_goes_in_from_a_file_and_from_a_pipe() {
    let (sandbox, home) = store();
    let archive = sandbox.path().join("archive.tar");
    let mut builder = tar::Builder::new(File::create(&archive).unwrap());
    for (name, content) in [("a/b", &b"one"[..]), ("c", b"three")] {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o640);
        header.set_mtime(1_000_000_000);
        builder.append_data(&mut header, name, content).unwrap();
    }
    builder.into_inner().unwrap();
    complains(&on("import", &home, args![&archive, "--dry-run"]).ended(2), &["archive", "tar -tv"]);
    on("import", &home, args![&archive]).ended(0);
    let mut piped = granulo();
    piped.args([
        "store".as_ref(),
        "import".as_ref(),
        home.as_os_str(),
        "-".as_ref(),
        "--prefix".as_ref(),
        "p".as_ref(),
    ]);
    let ran = finish(piped.stdin(File::open(&archive).unwrap())).ended(0);
    assert!(one_line(&ran).starts_with("Imported 2 files"), "{}", ran.text());
    for key in ["a/b", "p/a/b"] {
        assert_eq!(on("get", &home, [key]).ended(0).text(), "one");
        assert_eq!(on("stat", &home, [key, "--json"]).ended(0).json()["mtime_seconds"], 1_000_000_000);
    }
    let garbage = write_file(sandbox.path().join("garbage"), 5000);
    complains(&on("import", &home, args![&garbage]).ended(2), &["not a tar archive"]);
    let whole = fs::read(&archive).unwrap();
    fs::write(&archive, &whole[..1600]).unwrap();
    complains(&on("import", &home, args![&archive, "--prefix", "cut"]).ended(1), &["truncated"]);
    assert_eq!(on("get", &home, ["cut/a/b"]).ended(0).text(), "one");
}
