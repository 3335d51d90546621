//! Several keys, patterns and archives on the command line of the store; copies, mirrors, what an import takes, and
//! waiting for another writer.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::args;
use crate::harness::{binary, complains, finish, granulo, run, sandbox, without_wishes, write_file};
use crate::store_cli::{on, put, store};
use crate::store_place::can_trace;

fn keys(home: &Path) -> String {
    on("ls", home, ["-R"]).ended(0).text()
}

#[test]
fn get_writes_several_files_one_after_the_other() {
    let (_sandbox, home) = store();
    for (key, content) in [("a/1.log", "one\n"), ("a/2.log", "two\n"), ("a/3.txt", "three\n"), ("b/4.log", "four\n")] {
        put(&home, key, content.as_bytes());
    }
    assert_eq!(on("get", &home, ["b/4.log", "a/1.log"]).ended(0).text(), "four\none\n");
    assert_eq!(on("get", &home, ["a/*.log"]).ended(0).text(), "one\ntwo\n");
    assert_eq!(on("get", &home, ["**/*.log", "a/3.txt"]).ended(0).text(), "one\ntwo\nfour\nthree\n");
    complains(&on("get", &home, ["a/*.gif"]).ended(2), &["no such key", "pattern"]);
    complains(&on("get", &home, ["a/1.log", "a/9.log"]).ended(2), &["a/9.log"]);
    complains(&on("get", &home, ["a/*.log", "--range", "0-1"]).ended(2), &["--range"]);
    complains(&on("get", &home, ["*"]).ended(2), &["directory"]);
}

#[test]
fn rm_removes_several_keys_or_nothing() {
    let (_sandbox, home) = store();
    for key in ["a/1", "a/2", "b/1", "c"] {
        put(&home, key, b"x");
    }
    complains(&on("rm", &home, ["c", "missing"]).ended(2), &["missing"]);
    complains(&on("rm", &home, ["c", "a"]).ended(2), &["not empty"]);
    assert_eq!(keys(&home), "a\na/1\na/2\nb\nb/1\nc\n");
    let result = on("rm", &home, ["-r", "a", "a/1", "b/*", "--json"]).ended(0).text();
    let result: Value = serde_json::from_str(&result).unwrap();
    assert_eq!((&result["files"], &result["directories"]), (&3.into(), &1.into()));
    assert_eq!(result["keys"], serde_json::json!(["a", "b/1"]));
    assert_eq!(keys(&home), "b\nc\n");
}

#[test]
fn an_archive_of_keys_is_what_tar_and_an_import_read() {
    let place = sandbox();
    let source = place.path().join("source");
    fs::create_dir_all(source.join("deep").join("n".repeat(120))).unwrap();
    fs::write(source.join("deep").join("n".repeat(120)).join("file"), vec![7; 200_000]).unwrap();
    fs::write(source.join("small"), "small").unwrap();
    fs::hard_link(source.join("small"), source.join("other name")).unwrap();
    std::os::unix::fs::symlink("small", source.join("link")).unwrap();
    let sparse = fs::File::create(source.join("sparse")).unwrap();
    sparse.set_len(1 << 20).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"in the middle", 500_000).unwrap();
    drop(sparse);
    let home = place.path().join("store");
    run(args!["store", "init", &home]).ended(0);
    run(args!["store", "import", &home, &source, "--prefix", "in"]).ended(0);
    let archive = place.path().join("a.tar");
    run(args!["store", "get", &home, "in", "--tar", "-o", &archive]).ended(0);
    let out = place.path().join("out");
    fs::create_dir(&out).unwrap();
    let extracted = Command::new("tar").arg("-xpf").arg(&archive).arg("-C").arg(&out).output().unwrap();
    assert!(extracted.status.success(), "{}", String::from_utf8_lossy(&extracted.stderr));
    let same = Command::new("diff").args(["-r", "--no-dereference"]).arg(&source).arg(out.join("in")).output().unwrap();
    assert!(same.status.success(), "{}", String::from_utf8_lossy(&same.stdout));
    // Into another store, and everything is there already.
    let other = place.path().join("other");
    run(args!["store", "init", &other]).ended(0);
    run(args!["store", "import", &other, &archive]).ended(0);
    let again = run(args!["store", "import", &other, &source, "--prefix", "in", "--json"]).ended(0).text();
    let again: Value = serde_json::from_str(&again).unwrap();
    assert_eq!((&again["files"], &again["further_names"]), (&0.into(), &0.into()), "{again}");
    assert_eq!(on("ls", &other, ["-R"]).ended(0).text(), keys(&home));
}

#[test]
fn cp_copies_files_and_trees_and_refuses_what_would_be_lost() {
    let (_sandbox, home) = store();
    put(&home, "a/1", b"one");
    put(&home, "a/sub/2", &vec![9; 300_000]);
    put(&home, "c", b"see");
    on("cp", &home, ["a/1", "copy", "-q"]).ended(0);
    assert_eq!(on("get", &home, ["copy"]).ended(0).text(), "one");
    complains(&on("cp", &home, ["a", "b"]).ended(2), &["-r"]);
    on("cp", &home, ["-r", "a", "b"]).ended(0);
    assert_eq!(on("get", &home, ["b/sub/2"]).ended(0).stdout, vec![9; 300_000]);
    on("cp", &home, ["c", "a/1", "b/sub"]).ended(0);
    assert_eq!(on("get", &home, ["b/sub/c", "b/sub/1"]).ended(0).text(), "seeone");
    complains(&on("cp", &home, ["-r", "a", "a/sub"]).ended(2), &["into itself"]);
    complains(&on("cp", &home, ["c", "copy", "--no-replace"]).ended(2), &["exists"]);
    complains(&on("cp", &home, ["c", "a/1", "copy"]).ended(2), &["not a directory"]);
    on("check", &home, ["--deep"]).ended(0);
}

#[test]
fn a_directory_is_replaced_only_by_a_file_that_can_be_read_and_not_with_what_is_excluded() {
    let place = sandbox();
    let source = place.path().join("source");
    let file = write_file(source.join("turned/inside"), 10);
    write_file(source.join("other/k.tmp"), 10);
    let home = place.path().join("store");
    run(args!["store", "init", &home]).ended(0);
    run(args!["store", "import", &home, &source]).ended(0);
    for name in ["turned", "other"] {
        fs::remove_dir_all(source.join(name)).unwrap();
        write_file(source.join(name), 5);
    }
    assert!(!file.exists());
    let import = args!["store", "import", &home, &source, "--delete", "--exclude", "*.tmp"];
    if can_trace() {
        let mut strace = without_wishes(Command::new("strace"));
        strace.args(["-f", "-qqq", "-P", "turned", "-e", "trace=openat", "-e", "inject=openat:error=EACCES"]);
        let said = finish(strace.args(["-o", "/dev/null"]).arg(binary()).args(&import)).ended(1).said();
        assert!(said.contains("source/turned"), "{said}");
        assert_eq!(keys(&home), "other\nother/k.tmp\nturned\nturned/inside\n");
    }
    let said = run(import).ended(1).said();
    assert!(said.contains("source/other") && said.contains("excluded"), "{said}");
    assert_eq!(keys(&home), "other\nother/k.tmp\nturned\n");
    run(args!["store", "import", &home, &source, "--delete"]).ended(0);
    assert_eq!(keys(&home), "other\nturned\n");
    on("check", &home, ["--deep"]).ended(0);
}

#[test]
fn an_import_with_delete_mirrors_and_keeps_what_is_excluded() {
    let place = sandbox();
    let source = place.path().join("source");
    for (name, content) in [("a/1", "1"), ("a/2", "2"), ("gone/x", "x"), ("kept/k.tmp", "t"), ("turned", "file")] {
        fs::create_dir_all(source.join(name).parent().unwrap()).unwrap();
        fs::write(source.join(name), content).unwrap();
    }
    let home = place.path().join("store");
    run(args!["store", "init", &home]).ended(0);
    put(&home, "elsewhere", b"not below the prefix");
    run(args!["store", "import", &home, &source, "--prefix", "m"]).ended(0);
    fs::remove_file(source.join("a/2")).unwrap();
    fs::remove_dir_all(source.join("gone")).unwrap();
    fs::remove_dir_all(source.join("kept")).unwrap();
    fs::remove_file(source.join("turned")).unwrap();
    fs::create_dir(source.join("turned")).unwrap();
    fs::write(source.join("turned/inside"), "i").unwrap();
    let mirror = |more: &[&str]| {
        let mut all =
            args!["store", "import", &home, &source, "--prefix", "m", "--delete", "--exclude", "*.tmp", "--json"];
        all.extend(more.iter().map(Into::into));
        serde_json::from_str::<Value>(&run(all).ended(0).text()).unwrap()
    };
    assert_eq!(mirror(&["--dry-run"])["removed"], 3);
    assert_eq!(mirror(&[])["removed"], 3);
    let expected = "elsewhere\nm\nm/a\nm/a/1\nm/kept\nm/kept/k.tmp\nm/turned\nm/turned/inside\n";
    assert_eq!(keys(&home), expected);
    // A directory becomes a file.
    fs::remove_dir_all(source.join("turned")).unwrap();
    fs::write(source.join("turned"), "file again").unwrap();
    assert_eq!(mirror(&[])["removed"], 0);
    assert_eq!(on("get", &home, ["m/turned"]).ended(0).text(), "file again");
    on("check", &home, ["--deep"]).ended(0);
    complains(&run(args!["store", "import", &home, "-", "--delete"]).ended(2), &["archive"]);
}

#[test]
fn an_import_takes_what_is_included_and_not_excluded() {
    let place = sandbox();
    let source = place.path().join("source");
    for name in ["p/1.jpg", "p/2.png", "p/raw/3.jpg", "q/4.txt", "whole/5.txt"] {
        fs::create_dir_all(source.join(name).parent().unwrap()).unwrap();
        fs::write(source.join(name), name).unwrap();
    }
    let home = place.path().join("store");
    run(args!["store", "init", &home]).ended(0);
    let patterns = ["--include", "*.jpg", "--include", "whole", "--exclude", "/p/raw"];
    let mut all = args!["store", "import", &home, &source];
    all.extend(patterns.map(Into::into));
    run(all).ended(0);
    assert_eq!(keys(&home), "p\np/1.jpg\nq\nwhole\nwhole/5.txt\n");
    complains(&run(args!["store", "import", &home, &source, "--exclude", "a["]).ended(2), &["--exclude"]);
}

#[test]
fn a_writer_waits_for_another_one_to_end() {
    let (sandbox, home) = store();
    let mut first = granulo()
        .args(args!["store", "put", &home, "first"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let file = sandbox.path().join("file");
    fs::write(&file, "second").unwrap();
    // Until the first writer has the store.
    while run(args!["store", "put", &home, "probe", &file]).code == Some(0) {
        std::thread::sleep(Duration::from_millis(10));
    }
    complains(&run(args!["store", "put", "--wait=10ms", &home, "second", &file]).ended(2), &["another process"]);
    let waiting =
        granulo().args(args!["store", "put", "--wait", &home, "second", &file]).stderr(Stdio::piped()).spawn().unwrap();
    drop(first.stdin.take());
    assert!(first.wait().unwrap().success());
    assert!(waiting.wait_with_output().unwrap().status.success());
    assert_eq!(on("get", &home, ["second"]).ended(0).text(), "second");
}
