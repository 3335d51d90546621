//! `granulo survey --ncdu`: what ncdu makes of the export, beside what it finds itself; and what granulo reads back.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::args;
use crate::harness::{
    finish, granulo_as_nobody, has_program, in_mount_namespace, is_root, run, sandbox, skip, survey, wide_tree,
    write_file,
};

/// The entries of an export by path, each with its attributes. Bytes of names are characters here, as in Latin-1.
fn entries(export: &[u8]) -> BTreeMap<String, Value> {
    let text: String = export.iter().copied().map(char::from).collect();
    let document: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&document[0], &document[1]), (&1.into(), &2.into()));
    assert!(document[2]["timestamp"].is_i64());
    assert_eq!(document.as_array().unwrap().len(), 4);
    let mut found = BTreeMap::new();
    collect(&document[3], "", &mut found);
    found
}

fn collect(entry: &Value, above: &str, found: &mut BTreeMap<String, Value>) {
    let (mut own, below) = match entry.as_array() {
        Some(list) => (list[0].clone(), &list[1..]),
        None => (entry.clone(), &[][..]),
    };
    let fields = own.as_object_mut().unwrap();
    let name = fields.remove("name").unwrap();
    if fields.contains_key("excluded") {
        // Of what it leaves out, ncdu writes an inode that it did not look at.
        fields.remove("dev");
    }
    fields.insert("directory".to_owned(), entry.is_array().into());
    let path = format!("{}{}{}", above, if above.is_empty() { "" } else { "/" }, name.as_str().unwrap());
    below.iter().for_each(|entry| collect(entry, &path, found));
    assert!(found.insert(path.clone(), own).is_none(), "{path} is there twice");
}

/// What `ncdu` prints with these arguments, in its extended mode.
fn ncdu(arguments: &[OsString]) -> BTreeMap<String, Value> {
    let ran = finish(Command::new("ncdu").args(["--ignore-config", "-0", "-e", "-o", "-"]).args(arguments)).ended(0);
    entries(&ran.stdout)
}

fn has_ncdu() -> bool {
    let has = has_program("ncdu");
    if !has {
        skip("it compares with ncdu, which is not installed");
    }
    has
}

fn tree(root: &Path) {
    wide_tree(root, 3, 40);
    for size in [0, 1, 4096, 70_000, 3_000_000] {
        write_file(root.join(format!("sized/f{size}.dat")), size);
    }
    for name in [&b"\xff\xfe"[..], b"tab\tquote\"back\\slash", b"\x01\x7f\x1b[31m", "ü.txt".as_bytes(), b"a-b", b"a b"]
    {
        write_file(root.join("names").join(OsStr::from_bytes(name)), 5);
        write_file(root.join("names").join(OsStr::from_bytes(&[name, b".d"].concat())).join("x"), 6);
    }
    // Of one extension: which name counts depends on the numbers of the directories, which an export does not have.
    fs::hard_link(root.join("sized/f4096.dat"), root.join("second.dat")).unwrap();
    fs::hard_link(root.join("sized/f4096.dat"), root.join("d0/third.dat")).unwrap();
    symlink("/absolute", root.join("link")).unwrap();
    symlink("x".repeat(200), root.join("long-link")).unwrap();
    assert!(Command::new("mkfifo").arg(root.join("pipe")).status().unwrap().success());
    fs::File::create(root.join("sparse")).unwrap().set_len(1 << 30).unwrap();
    fs::create_dir_all(root.join("empty/emptier")).unwrap();
    write_file(root.join("left/out/f.tmp"), 100);
    write_file(root.join("left/f.tmp"), 100);
}

#[test]
fn ncdu_reads_what_it_would_have_found_itself() {
    if !has_ncdu() {
        return;
    }
    let sandbox = sandbox();
    let (root, export) = (sandbox.path().join("tree"), sandbox.path().join("e.json"));
    tree(&root);
    run(args!["survey", &root, "--ncdu", &export, "--exclude", "*.tmp", "--exclude", "emptier"]).ended(0);
    let found = ncdu(&args!["--exclude", "*.tmp", "--exclude", "emptier", &root]);
    assert_eq!(found.values().filter(|entry| entry["excluded"] == "pattern").count(), 3);
    assert_eq!(found.values().filter(|entry| entry["hlnkc"] == true).count(), 3);
    let read = ncdu(&args!["-f", &export]);
    assert!(read.keys().eq(found.keys()), "{:?}\n{:?}", read.keys(), found.keys());
    for (path, entry) in &found {
        assert_eq!(&read[path], entry, "{path}");
    }
    // Without its program in between, too.
    assert_eq!(entries(&fs::read(&export).unwrap()), found);
}

#[test]
fn ncdu_knows_which_directories_could_not_be_read() {
    if !has_ncdu() {
        return;
    }
    let sandbox = sandbox();
    let (root, results) = (sandbox.path().join("tree"), sandbox.path().join("results"));
    write_file(root.join("open/a.txt"), 10);
    write_file(root.join("closed/c.txt"), 40);
    write_file(root.join("listed/d.txt"), 80);
    fs::create_dir(&results).unwrap();
    let permit = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    permit(&root.join("closed"), 0o000);
    permit(&root.join("listed"), 0o644);
    permit(&results, 0o777);
    let export = results.join("e.json");
    let Some(mut command) = granulo_as_nobody(&sandbox) else { return };
    finish(command.args(args!["survey", &root, "--ncdu", &export])).ended(1);
    let (program, by) = if is_root() {
        ("setpriv", &["--reuid=65534", "--regid=65534", "--clear-groups", "ncdu"][..])
    } else {
        ("ncdu", &[][..])
    };
    let mut other = Command::new(program);
    let ran = finish(other.args(by).args(["--ignore-config", "-0", "-e", "-o", "-"]).arg(&root)).ended(0);
    permit(&root.join("closed"), 0o755);
    permit(&root.join("listed"), 0o755);
    let (mut found, mut exported) = (entries(&ran.stdout), entries(&fs::read(&export).unwrap()));
    let root = root.canonicalize().unwrap();
    let of = |name: &str| format!("{}/{name}", root.display());
    // ncdu enters a directory to read it, so that its names are lost where that is not possible.
    let unreadable = exported.remove(&of("listed/d.txt")).unwrap();
    assert_eq!(unreadable, serde_json::json!({ "directory": false, "read_error": true }));
    assert_eq!(found.remove(&of("listed")).unwrap()["read_error"], true);
    assert_eq!(exported.remove(&of("listed")).unwrap()["read_error"], Value::Null);
    assert_eq!(exported[&of("closed")]["read_error"], true);
    assert_eq!(exported, found);
}

#[test]
fn other_file_systems_are_named_as_left_out() {
    if !has_ncdu() {
        return;
    }
    let sandbox = sandbox();
    write_file(sandbox.path().join("t/a"), 10);
    fs::create_dir(sandbox.path().join("t/mounted")).unwrap();
    let script = "mount -t tmpfs -o size=1m tmpfs \"$1/t/mounted\"; echo > \"$1/t/mounted/f\"
        \"$GRANULO\" survey -q -x \"$1/t\" --ncdu \"$1/e.json\"
        \"$GRANULO\" survey -q \"$1/t\" --ncdu \"$1/all.json\"
        ncdu --ignore-config -0 -e -o \"$1/ncdu-all.json\" \"$1/t\"
        ncdu --ignore-config -0 -x -e -o \"$1/ncdu.json\" \"$1/t\"
        ncdu --ignore-config -0 -e -f \"$1/e.json\" -o \"$1/read.json\"";
    let Some(ran) = in_mount_namespace(script, &args![sandbox.path()]) else { return };
    ran.ended(0);
    let read = |name: &str| entries(&fs::read(sandbox.path().join(name)).unwrap());
    assert_eq!(read("all.json"), read("ncdu-all.json"));
    let (found, export) = (read("ncdu.json"), read("read.json"));
    assert!(found.keys().eq(export.keys()), "{found:?} {export:?}");
    // What it reads as `otherfs` it writes as `othfs`, when it found it with attributes that it does not read.
    for exported in [found, export] {
        assert_eq!(exported.values().filter(|entry| entry["excluded"] == "othfs").count(), 1);
    }
    assert_eq!(read("e.json").values().filter(|entry| entry["excluded"] == "otherfs").count(), 1);
    for export in ["e.json", "ncdu.json"] {
        let shown = run(args!["show", sandbox.path().join(export), "--json"]).ended(0).json();
        assert_eq!(shown["counts"]["mount_points_skipped"], 1, "{export}");
        assert_eq!(shown["counts"]["directories"], 1, "{export}");
    }
}

#[test]
fn an_export_is_a_source_as_the_survey_beside_it() {
    let sandbox = sandbox();
    let (root, export) = (sandbox.path().join("tree"), sandbox.path().join("e.json"));
    tree(&root);
    let survey = run(args!["survey", &root, "--ncdu", &export, "--exclude", "*.tmp", "--json"]).ended(0).json();
    let read = run(args!["show", &export, "--json"]).ended(0).json();
    assert_eq!(read["method"], "list");
    let measured = ["file_size", "allocated", "directory_size", "directory_entries", "directory_depth", "name_length"];
    for measure in measured {
        assert_eq!(read["distributions"][measure], survey["distributions"][measure], "{measure}");
    }
    for counted in [
        "files",
        "directories",
        "symlinks",
        "special",
        "empty_files",
        "sparse_files",
        "hard_links_skipped",
        "excluded",
        "errors",
    ] {
        assert_eq!(read["counts"][counted], survey["counts"][counted], "{counted}");
    }
    assert_eq!(read["where"]["extensions"]["rows"], survey["where"]["extensions"]["rows"]);
    assert_eq!(read["totals"]["size_bytes"], survey["totals"]["size_bytes"]);
    let allocated = |source: &Path| {
        let said = run(args!["show", source]).ended(0).text().replace('\n', " ");
        said.split_once("The file system has allocated").unwrap().1.split_once(". ").unwrap().0.to_owned()
    };
    let plan = |source: &Path| run(args!["plan", source, "--json"]).ended(0).json()["models"].clone();
    let saved = sandbox.path().join("s.json");
    run(args!["survey", &root, "--exclude", "*.tmp", "-o", &saved]).ended(0);
    assert_eq!(plan(&export), plan(&saved));
    assert_eq!(allocated(&export), allocated(&saved), "the same overhead");
}

#[test]
fn the_same_tree_is_the_same_export_whatever_the_threads() {
    let sandbox = sandbox();
    let root = sandbox.path().join("tree");
    tree(&root);
    let export = |threads: &str, scratch: &Path| {
        let path = sandbox.path().join(threads).with_extension("json");
        run(args!["survey", &root, "--ncdu", &path, "--threads", threads, "--scratch", scratch, "-q"]).ended(0);
        let text = fs::read(path).unwrap();
        let head = text.iter().position(|&byte| byte == b'\n').unwrap();
        text[head..].to_vec()
    };
    let one = export("1", sandbox.path());
    assert_eq!(export("16", sandbox.path()), one);
    // Few entries need no scratch space, and a pipe is written directly.
    assert_eq!(export("3", Path::new("/nonexistent")), one);
    let printed = run(args!["survey", &root, "--quiet", "--ncdu", "/dev/stdout"]).ended(0).stdout;
    assert!(printed.ends_with(&one));
    let left: Vec<_> = fs::read_dir(sandbox.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 4, "{left:?}");
}

#[test]
fn several_roots_are_in_the_directory_that_contains_all() {
    let sandbox = sandbox();
    let real = sandbox.path().canonicalize().unwrap();
    let (export, above) = (sandbox.path().join("e.json"), real.to_str().unwrap().to_owned());
    for path in ["a/deep/root/f", "b/g", "b/inner/h", "b/file", "c/target/i"] {
        write_file(real.join(path), 7);
    }
    symlink(real.join("c/target"), real.join("by-link")).unwrap();
    let roots = args![real.join("a/deep/root/"), real.join("b"), real.join("b/inner"), real.join("by-link")];
    let files = survey([roots, args![real.join("b/file"), "--ncdu", &export]].concat())["counts"]["files"].clone();
    assert_eq!(files, 5);
    let found = entries(&fs::read(&export).unwrap());
    let paths: Vec<String> = found.keys().map(|path| path.strip_prefix(&above).unwrap().to_owned()).collect();
    let expected = [
        "",
        "/a",
        "/a/deep",
        "/a/deep/root",
        "/a/deep/root/f",
        "/b",
        "/b/file",
        "/b/g",
        "/b/inner",
        "/b/inner/h",
        "/c",
        "/c/target",
        "/c/target/i",
    ];
    assert_eq!(paths, expected);
    assert_eq!(found[&format!("{above}/a")], serde_json::json!({ "directory": true }));
    assert_eq!(found[&format!("{above}/b/g")]["asize"], 7);
    if has_program("ncdu") {
        assert!(ncdu(&args!["-f", &export]).keys().eq(found.keys()));
    }
    let shown = run(args!["show", &export, "--json"]).ended(0).json();
    assert_eq!(shown["counts"]["files"], 5);

    // A file alone is in its directory, and a relative root has its real path.
    run(args!["survey", real.join("b/g"), "--ncdu", &export]).ended(0);
    assert_eq!(
        entries(&fs::read(&export).unwrap()).into_keys().collect::<Vec<_>>(),
        [format!("{above}/b"), format!("{above}/b/g")]
    );
    let mut command = crate::harness::granulo();
    finish(command.current_dir(real.join("b")).args(["survey", "../b/./inner", "--ncdu", "../e.json"])).ended(0);
    assert!(entries(&fs::read(&export).unwrap()).into_keys().next().unwrap().ends_with("/b/inner"));
}

#[test]
fn what_an_export_cannot_be_combined_with_is_named() {
    let sandbox = sandbox();
    let (root, export) = (sandbox.path().join("t"), sandbox.path().join("e.json"));
    write_file(root.join("f"), 1);
    for other in [
        &args!["--anonymous"][..],
        &args!["--method", "inode-scan"],
        &args!["--without-names"],
        &args!["--shard", "1/2", "-o", sandbox.path().join("s")],
        &args!["-o", &export],
    ] {
        let ran = run([args!["survey", &root, "--ncdu", &export], other.to_vec()].concat()).ended(2);
        assert!(ran.said().contains("ncdu") || ran.said().contains("two results"), "{}", ran.said());
        assert!(!export.exists());
    }
    let said = run(args!["survey", &root, "--ncdu", sandbox.path().join("no/e.json")]).ended(2).said();
    assert!(said.contains("no"), "{said}");
}
