//! `granulo survey` against the model of [`crate::model`], and against everything that file systems contain.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
use serde_json::{Value, json};

use crate::args;
use crate::harness::{
    Ran, assert_same, binary, finish, granulo_as_nobody, in_mount_namespace, is_root, run, sandbox, sandbox_for_many,
    skip, survey, wide_tree, without_wishes, write_file,
};
use crate::model::{AS_OF, Model, Rules, number, unescape};

#[test]
fn an_empty_directory_is_a_survey_of_nothing() {
    let sandbox = sandbox();
    let document = survey(args![sandbox.path(), "--as-of", AS_OF]);
    let rules = Rules::default();
    Model::of(&[sandbox.path()], &rules).check(&document, &rules);
    assert_eq!(document["counts"]["files"], 0);
    assert_eq!(document["counts"]["directories"], 1);
    assert!(run(args!["survey", sandbox.path()]).ended(0).text().contains("No files to measure."));
}

#[test]
fn the_largest_sparse_files_are_added_without_overflow() {
    let sandbox = sandbox();
    let size = [1u64 << 62, 1 << 43, 1 << 41].into_iter().find(|&size| {
        let made = File::create(sandbox.path().join("a")).and_then(|file| file.set_len(size));
        made.is_ok()
    });
    let size = size.unwrap();
    for name in ["b", "c", "d", "e", "f"] {
        File::create(sandbox.path().join(name)).unwrap().set_len(size).unwrap();
    }
    let document = survey(args![sandbox.path()]);
    assert_eq!(number(&document["totals"]["size_bytes"]), 6 * u128::from(size));
    assert_eq!(document["counts"]["sparse_files"], 6);
    assert_eq!(number(&document["distributions"]["file_size"]["max"]), u128::from(size));
}

#[test]
fn hard_links_count_once_or_at_each_name_or_share_by_share() {
    let sandbox = sandbox();
    let file = write_file(sandbox.path().join("a/one.txt"), 9001);
    write_file(sandbox.path().join("b/other.txt"), 100);
    for name in ["a/two.txt", "b/three.txt"] {
        fs::hard_link(&file, sandbox.path().join(name)).unwrap();
    }
    for (how, files, size, skipped) in [("once", 2, 9101, 2), ("each", 4, 27_103, 0), ("shared", 4, 9101, 0)] {
        let document = survey(args![sandbox.path(), "--hard-links", how]);
        assert_eq!(document["counts"]["files"], files, "{how}");
        assert_eq!(document["counts"]["hard_links_skipped"], skipped, "{how}");
        assert_eq!(document["totals"]["size_bytes"], size, "{how}");
        assert_eq!(document["options"]["hard_links"], how);
    }
    // Also across roots.
    let roots = args![sandbox.path().join("a"), sandbox.path().join("b")];
    assert_eq!(survey(roots)["totals"]["size_bytes"], 9101);
}

#[test]
fn forty_thousand_names_of_one_file_are_one_file() {
    let sandbox = sandbox_for_many();
    let first = write_file(sandbox.path().join("0/first"), 10);
    for index in 1..40_000 {
        let directory = sandbox.path().join((index % 4).to_string());
        fs::create_dir_all(&directory).unwrap();
        if let Err(error) = fs::hard_link(&first, directory.join(format!("n{index}"))) {
            return skip(&format!("the file system allows only {index} names of a file: {error}"));
        }
    }
    let document = survey(args![sandbox.path()]);
    assert_eq!(document["counts"]["files"], 1);
    assert_eq!(document["counts"]["hard_links_skipped"], 39_999);
    assert_eq!(document["distributions"]["link_count"]["max"], 40_000);
    let shared = survey(args![sandbox.path(), "--hard-links", "shared"]);
    assert_eq!(shared["counts"]["files"], 40_000);
}

#[test]
fn a_directory_of_twenty_thousand_entries_is_read_to_its_end() {
    let sandbox = sandbox_for_many();
    wide_tree(sandbox.path(), 1, 20_000);
    let document = survey(args![sandbox.path(), "--as-of", AS_OF]);
    assert_eq!(document["counts"]["files"], 20_000);
    assert_eq!(document["distributions"]["directory_entries"]["max"], 20_000);
    let rules = Rules::default();
    Model::of(&[sandbox.path()], &rules).check(&document, &rules);
}

#[test]
fn a_path_longer_than_path_max_is_walked_to_its_end() {
    let sandbox = sandbox();
    let name = "twenty-letters-name-";
    let mut at: OwnedFd = openat(CWD, sandbox.path(), OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap();
    for _ in 0..600 {
        mkdirat(&at, name, Mode::RWXU).unwrap();
        at = openat(&at, name, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap();
    }
    let file = openat(&at, "deep.txt", OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC, Mode::RWXU).unwrap();
    rustix::io::write(&file, b"12345").unwrap();
    let table = sandbox.path().with_extension("parquet");
    let document = survey(args![sandbox.path(), "--files", &table]);
    let rows = crate::resume::rows(&table);
    fs::remove_file(&table).unwrap();
    assert_eq!(document["counts"]["directories"], 601);
    assert_eq!(document["counts"]["files"], 1);
    assert_eq!(document["totals"]["size_bytes"], 5);
    assert_eq!(rows.len(), 1);
    assert!(rows.first().unwrap().0.len() > 600 * 21);
    let deepest = &document["where"]["directories"]["own"]["files"][0];
    assert_eq!(deepest["depth"], 600);
    assert!(deepest["path"].as_str().unwrap().len() > 12_000);
    // On the terminal the path is cut to the width of the output.
    let text = run(args!["survey", sandbox.path()]).ended(0).text();
    assert!(text.lines().all(|line| line.len() < 200), "{text}");
    assert!(Command::new("rm").arg("-rf").arg(sandbox.path().join(name)).status().unwrap().success());
}

#[test]
fn few_descriptors_give_the_same_survey() {
    let sandbox = sandbox();
    let mut at = sandbox.path().to_owned();
    for level in 0..150 {
        for side in ["a", "b", "c"] {
            write_file(at.join(side).join("f.txt"), level);
            fs::create_dir(at.join(side).join("leaf")).unwrap();
        }
        at.push("d");
    }
    fs::create_dir(&at).unwrap();
    let plenty = survey(args![sandbox.path(), "--as-of", AS_OF]);
    assert_eq!(plenty["counts"]["files"], 450);
    for threads in ["1", "8"] {
        let mut few = without_wishes(Command::new("sh"));
        few.args(["-c", "ulimit -n 100 && ulimit -Hn 100 && exec \"$@\"", "sh"]).arg(binary());
        few.args(["survey", "--json", "--as-of", AS_OF, "--threads", threads]).arg(sandbox.path());
        assert_same(&plenty, &finish(&mut few).ended(0).json(), &[]);
    }
    // Fewer than it would choose itself: the same result.
    let mut fewest = without_wishes(Command::new("sh"));
    fewest.args(["-c", "ulimit -n 24 && ulimit -Hn 24 && exec \"$@\"", "sh"]).arg(binary());
    fewest.args(["survey", "--json", "--as-of", AS_OF, "--threads", "4"]).arg(sandbox.path());
    assert_same(&plenty, &finish(&mut fewest).ended(0).json(), &[]);
}

#[test]
fn a_directory_that_may_not_be_read_is_counted_and_the_rest_stands() {
    let sandbox = sandbox();
    let root = sandbox.path().join("t");
    write_file(root.join("open/a.txt"), 10);
    write_file(root.join("b.txt"), 20);
    write_file(root.join("closed/c.txt"), 40);
    // Names can be listed here, but not read further.
    write_file(root.join("listed/d.txt"), 80);
    for (name, mode) in [("closed", 0o000), ("listed", 0o644)] {
        fs::set_permissions(root.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    let Some(mut command) = granulo_as_nobody(&sandbox) else { return };
    let ran = finish(command.args(["survey", "--json"]).arg(&root));
    for name in ["closed", "listed"] {
        fs::set_permissions(root.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let ran = ran.ended(1);
    let document = ran.json();
    assert_eq!(document["counts"]["errors"], 2);
    assert_eq!(document["counts"]["files"], 2);
    assert_eq!(document["totals"]["size_bytes"], 30);
    assert_eq!(document["counts"]["directories"], 4);
    assert_eq!(document["complete"], true);
    let kinds = document["errors"]["by_kind"].as_array().unwrap();
    assert_eq!(kinds.iter().map(|kind| kind["count"].as_u64().unwrap()).sum::<u64>(), 2);
    assert!(kinds.iter().all(|kind| kind["kind"] == "Permission denied"), "{kinds:?}");
    let said = ran.said();
    assert!(said.contains("closed") && said.contains("d.txt") && said.contains("Permission denied"), "{said}");
    assert!(!said.contains("os error"), "{said}");
}

#[test]
fn what_vanishes_during_the_walk_is_no_error() {
    let sandbox = sandbox_for_many();
    wide_tree(sandbox.path(), 20, 200);
    let stop = AtomicBool::new(false);
    let documents: Vec<Value> = std::thread::scope(|scope| {
        for churner in 0..2 {
            let (root, stop) = (sandbox.path(), &stop);
            scope.spawn(move || {
                let mut round = 0usize;
                while !stop.load(Ordering::Relaxed) {
                    let directory = root.join(format!("d{}", round % 20));
                    let (file, sub) = (directory.join(format!("x{churner}")), directory.join(format!("y{churner}")));
                    fs::write(&file, b"1").unwrap();
                    fs::create_dir(&sub).unwrap();
                    fs::write(sub.join("z"), b"2").unwrap();
                    fs::remove_file(&file).unwrap();
                    fs::remove_dir_all(&sub).unwrap();
                    round += 1;
                }
            });
        }
        let documents = (0..8).map(|_| survey(args![sandbox.path()])).collect();
        stop.store(true, Ordering::Relaxed);
        documents
    });
    for document in documents {
        let (counts, distributions) = (&document["counts"], &document["distributions"]);
        assert_eq!(counts["errors"], 0);
        let files = counts["files"].as_u64().unwrap();
        assert!((4000..4010).contains(&files), "{files} files");
        assert_eq!(distributions["file_size"]["count"], counts["files"]);
        assert_eq!(distributions["directory_size"]["count"], counts["directories"]);
        assert_eq!(distributions["directory_entries"]["total"], distributions["name_length"]["count"]);
    }
}

#[test]
fn names_in_a_table_of_entries_add_up() {
    let sandbox = sandbox();
    wide_tree(sandbox.path(), 7, 9);
    symlink("x", sandbox.path().join("link")).unwrap();
    let document = survey(args![sandbox.path()]);
    assert_eq!(document["distributions"]["directory_entries"]["total"], 7 * 9 + 7 + 1);
    assert_eq!(document["distributions"]["directory_entries"]["count"], 8);
    assert_eq!(document["distributions"]["name_length"]["count"], 7 * 9 + 7 + 1);
}

#[test]
fn the_same_root_given_twice_counts_once() {
    let sandbox = sandbox();
    let root = sandbox.path().join("t");
    wide_tree(&root, 3, 5);
    symlink("t", sandbox.path().join("link")).unwrap();
    let once = survey(args![&root, "--as-of", AS_OF]);
    let mut slash = root.clone().into_os_string();
    slash.push("/");
    let dotted = sandbox.path().join("t/../t/.");
    let document = survey(args![&root, slash, dotted, sandbox.path().join("link"), "--as-of", AS_OF]);
    assert_same(&once, &document, &["roots", "name", "where", "tree"]);
}

#[test]
fn a_root_inside_another_root_counts_once() {
    let sandbox = sandbox();
    let inner = sandbox.path().join("d1");
    wide_tree(sandbox.path(), 3, 5);
    let once = survey(args![sandbox.path(), "--as-of", AS_OF]);
    for roots in [[sandbox.path(), &inner], [&inner, sandbox.path()]] {
        let document = survey(args![roots[0], roots[1], "--as-of", AS_OF]);
        assert_same(&flat(&once), &flat(&document), &["roots", "name", "where", "tree"]);
        // Each root is the top of what is below it.
        let depths = &document["distributions"]["directory_depth"];
        assert_eq!((&depths["count"], &depths["total"]), (&json!(4), &json!(2)));
    }
}

/// A survey without the depths of its directories.
fn flat(document: &Value) -> Value {
    let mut document = document.clone();
    document["distributions"].as_object_mut().unwrap().remove("directory_depth").unwrap();
    document
}

#[test]
fn a_root_that_is_a_file_of_another_root_counts_once() {
    let sandbox = sandbox();
    let file = write_file(sandbox.path().join("a/b.txt"), 1000);
    let document = survey(args![sandbox.path(), &file]);
    assert_eq!(document["counts"]["files"], 1);
    assert_eq!(document["totals"]["size_bytes"], 1000);
    // Where the walk of the directory does not come to it, it is one of its own.
    for glob in ["*.txt", "/a", "a/b.txt", "a"] {
        let document = survey(args!["--exclude", glob, sandbox.path(), &file]);
        assert_eq!(document["counts"]["files"], 1, "{glob}");
    }
    let within = write_file(sandbox.path().join(".snapshot/c"), 1000);
    let arguments = args![sandbox.path(), &within];
    for arguments in [arguments.clone(), [arguments, args!["--include-snapshots"]].concat()] {
        assert_eq!(survey(arguments)["counts"]["files"], 2);
    }
}

#[test]
fn a_root_may_be_a_file_or_a_link_to_a_directory() {
    let sandbox = sandbox();
    let file = write_file(sandbox.path().join("t/f.txt"), 1234);
    let link = sandbox.path().join("link");
    symlink("t", &link).unwrap();
    let document = survey(args![&file]);
    assert_eq!(document["counts"]["files"], 1);
    assert_eq!(document["counts"]["directories"], 0);
    assert_eq!(document["distributions"]["name_length"]["count"], 0);
    assert_eq!(document["totals"]["size_bytes"], 1234);
    assert_eq!(document["where"]["extensions"]["rows"][0]["extension"], "txt");
    let document = survey(args![&link]);
    assert_eq!(document["counts"]["files"], 1);
    assert_eq!(document["counts"]["directories"], 1);
    assert_eq!(document["counts"]["symlinks"], 0);
    assert_eq!(document["roots"][0], link.to_str().unwrap());
}

#[test]
fn a_link_below_a_root_is_not_followed() {
    let sandbox = sandbox();
    write_file(sandbox.path().join("outside/big"), 5000);
    let root = sandbox.path().join("t");
    fs::create_dir(&root).unwrap();
    symlink("../outside", root.join("relative")).unwrap();
    symlink(sandbox.path().join("outside"), root.join("absolute")).unwrap();
    symlink("loop", root.join("loop")).unwrap();
    let document = survey(args![&root]);
    assert_eq!(document["counts"]["files"], 0);
    assert_eq!(document["counts"]["symlinks"], 3);
    assert_eq!(document["counts"]["symlinks_absolute"], 1);
    assert_eq!(document["counts"]["symlinks_relative"], 2);
}

#[test]
fn globs_leave_out_names_everywhere_and_paths_below_the_root() {
    let sandbox = sandbox();
    for path in ["a.txt", "b.tmp", "x/c.tmp", "x/.git/config", "build/o.o", "x/build/keep.o", "cache/z", "x/cache/keep"]
    {
        write_file(sandbox.path().join(path), 10);
    }
    let globs = ["--exclude", "*.tmp", "--exclude", ".git", "--exclude", "build/**", "--exclude", "/cache"];
    let mut arguments = args![sandbox.path(), "--files", sandbox.path().with_extension("parquet")];
    arguments.extend(globs.map(OsString::from));
    let document = survey(arguments);
    let table = sandbox.path().with_extension("parquet");
    let mut names: Vec<String> = crate::resume::rows(&table).into_iter().map(|(path, _)| path).collect();
    fs::remove_file(&table).unwrap();
    names.sort();
    let prefix = format!("{}/", sandbox.path().display());
    let names: Vec<&str> = names.iter().map(|name| name.strip_prefix(&prefix).unwrap()).collect();
    assert_eq!(names, ["a.txt", "x/build/keep.o", "x/cache/keep"]);
    assert_eq!(document["counts"]["excluded"], 5);
    // A skipped name is not an entry either.
    assert_eq!(
        document["distributions"]["directory_entries"]["total"],
        document["distributions"]["name_length"]["count"]
    );
    assert_eq!(document["options"]["excluded"].as_array().unwrap().len(), 4);
}

#[test]
fn snapshot_directories_are_left_out_unless_asked_for() {
    let sandbox = sandbox();
    write_file(sandbox.path().join("live"), 10);
    for name in [".snapshot", ".snapshots", ".zfs", "~snapshot", "d/.snapshot"] {
        write_file(sandbox.path().join(name).join("daily.0/live"), 10);
    }
    // A file with that name is not a snapshot directory.
    write_file(sandbox.path().join("e/.snapshot"), 10);
    let document = survey(args![sandbox.path()]);
    assert_eq!(document["counts"]["files"], 2);
    assert_eq!(document["counts"]["snapshot_directories_skipped"], 5);
    let document = survey(args![sandbox.path(), "--include-snapshots"]);
    assert_eq!(document["counts"]["files"], 7);
    assert_eq!(document["counts"]["snapshot_directories_skipped"], 0);
    assert_eq!(document["options"]["snapshots"], "include");
}

#[test]
fn names_of_any_bytes_come_back_from_the_lists() {
    let sandbox = sandbox();
    let name = OsStr::from_bytes(b"d\xff\n\x1b[31m\\x41\xe2\x80\xae");
    write_file(sandbox.path().join(name).join("f"), 3);
    let document = survey(args![sandbox.path()]);
    let path = document["where"]["directories"]["own"]["files"][0]["path"].as_str().unwrap();
    assert!(path.chars().all(|c| !c.is_control() && c != '\u{202e}'), "{path:?}");
    assert_eq!(unescape(path), sandbox.path().join(name).as_os_str().as_bytes());
}

/// The output of `survey` for `$1`, prepared by a script in a mount namespace.
fn mounted(script: &str, root: &Path) -> Option<Ran> {
    in_mount_namespace(script, &args![root])
}

#[test]
fn one_file_system_leaves_out_what_is_mounted() {
    let sandbox = sandbox();
    write_file(sandbox.path().join("a"), 10);
    fs::create_dir(sandbox.path().join("m")).unwrap();
    let script = "mount -t tmpfs tmpfs \"$1/m\"; echo 12345 > \"$1/m/b\"; \"$GRANULO\" survey --json $OPTIONS \"$1\"";
    let Some(across) = mounted(script, sandbox.path()) else { return };
    let across = across.ended(0).json();
    assert_eq!((&across["counts"]["files"], &across["counts"]["mount_points_skipped"]), (&2.into(), &0.into()));
    let Some(within) = mounted(&format!("OPTIONS=--one-file-system; {script}"), sandbox.path()) else { return };
    let within = within.ended(0).json();
    assert_eq!((&within["counts"]["files"], &within["counts"]["mount_points_skipped"]), (&1.into(), &1.into()));
    assert_eq!(within["distributions"]["directory_entries"]["total"], 2);
    assert_eq!(within["options"]["one_file_system"], true);
}

#[test]
fn pseudo_file_systems_are_left_out_unless_they_are_roots() {
    let sandbox = sandbox();
    write_file(sandbox.path().join("a"), 10);
    fs::create_dir(sandbox.path().join("p")).unwrap();
    if !is_root() {
        return skip("it mounts proc, which needs root");
    }
    let script = "mount -t proc proc \"$1/p\"; \"$GRANULO\" survey --json \"$1\"";
    let Some(ran) = mounted(script, sandbox.path()) else { return };
    let document = ran.ended(0).json();
    assert_eq!(document["counts"]["files"], 1);
    assert_eq!(document["counts"]["mount_points_skipped"], 1);
    let script = "mount -t proc proc \"$1/p\"; \"$GRANULO\" survey --json \"$1/p/sys/kernel/random\"";
    let Some(ran) = mounted(script, sandbox.path()) else { return };
    assert!(ran.ended(0).json()["counts"]["files"].as_u64().unwrap() > 3);
}

#[test]
fn a_directory_mounted_at_two_more_places_is_seen_once() {
    let sandbox = sandbox();
    for name in ["t/m", "t/n", "outside"] {
        fs::create_dir_all(sandbox.path().join(name)).unwrap();
    }
    write_file(sandbox.path().join("outside/f"), 10);
    let script = "mount --bind \"$1/outside\" \"$1/t/m\"; mount --bind \"$1/outside\" \"$1/t/n\"
        \"$GRANULO\" survey --json \"$1/t\"";
    let Some(ran) = mounted(script, sandbox.path()) else { return };
    let document = ran.ended(0).json();
    assert_eq!(document["counts"]["files"], 1);
    assert_eq!(document["counts"]["mount_points_skipped"], 1);
}

#[test]
fn a_directory_of_the_tree_that_is_mounted_in_it_counts_once_more_as_the_method_says() {
    let method = fs::read_to_string(crate::harness::source_tree().join("docs/METHOD.md")).unwrap();
    assert!(
        method.contains("A directory that a bind mount shows at a second place below the roots is counted at both.")
    );
    let sandbox = sandbox();
    for name in ["t/m", "t/z"] {
        fs::create_dir_all(sandbox.path().join(name)).unwrap();
    }
    write_file(sandbox.path().join("t/original/d/f"), 10);
    // At its original place, and at one of the two mount points.
    let script = "mount --bind \"$1/t/original\" \"$1/t/m\"; mount --bind \"$1/t/original\" \"$1/t/z\"
        \"$GRANULO\" survey --json \"$1/t\"";
    let Some(ran) = mounted(script, sandbox.path()) else { return };
    let document = ran.ended(0).json();
    assert_eq!((&document["counts"]["files"], &document["counts"]["mount_points_skipped"]), (&2.into(), &1.into()));
}

#[test]
fn a_root_mounted_inside_itself_does_not_go_round() {
    let sandbox = sandbox();
    fs::create_dir(sandbox.path().join("m")).unwrap();
    write_file(sandbox.path().join("f"), 10);
    let Some(ran) = mounted("mount --bind \"$1\" \"$1/m\"; \"$GRANULO\" survey --json \"$1\"", sandbox.path()) else {
        return;
    };
    assert_eq!(ran.ended(0).json()["counts"]["files"], 1);
}

#[test]
fn small_is_what_the_option_says() {
    let sandbox = sandbox();
    for size in [0, 99, 100, 101, 70_000] {
        write_file(sandbox.path().join(format!("f{size}")), size);
    }
    let document = survey(args![sandbox.path(), "--small", "100"]);
    let row = &document["where"]["directories"]["own"]["small_files"][0];
    assert_eq!(row["small_files"], 3);
    assert_eq!(row["small_size_bytes"], 199);
    assert_eq!(document["options"]["small_file_bytes"], 100);
    let rows = survey(args![sandbox.path(), "--top", "0"]);
    assert_eq!(rows["where"]["directories"]["own"]["files"].as_array().unwrap().len(), 0);
}

#[test]
fn a_survey_file_says_what_json_on_standard_output_says() {
    let sandbox = sandbox();
    let root = sandbox.path().join("t");
    wide_tree(&root, 2, 3);
    let file = sandbox.path().join("s.json");
    let printed = survey(args![&root, "-o", &file, "--as-of", AS_OF]);
    let written: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert_same(&printed, &written, &[]);
    let shown = run(args!["show", &file, "--json"]).ended(0).json();
    assert_eq!(shown, written, "a survey that was read and written again is the same");
    assert_eq!(printed["schema"], "granulo/survey/1");
    assert_eq!(printed["method"], "walk");
    assert!(!sandbox.path().join("s.json.checkpoint").exists());
}

/// The tree of a survey by name: files with everything below, and bytes of its own.
fn tree(document: &Value) -> Vec<(String, u128, u128)> {
    let nodes = document["tree"]["nodes"].as_array().unwrap();
    let row = |node: &Value| {
        let name = node["name"].as_str().unwrap_or("-").to_owned();
        (name, number(&node["subtree"]["files"]), number(&node["own"]["size_bytes"]))
    };
    nodes.iter().map(row).collect()
}

#[test]
fn the_tree_of_directories_adds_up_and_tells_owner_and_kind() {
    let sandbox = sandbox();
    let root = sandbox.path();
    write_file(root.join("top.txt"), 10);
    write_file(root.join("a/b/deep.png"), 300);
    let file = write_file(root.join("a/b/linked.rs"), 70);
    fs::hard_link(&file, root.join("a/second.rs")).unwrap();
    write_file(root.join("c/data.csv"), 5);
    fs::create_dir(root.join("empty")).unwrap();
    let document = survey(args![root, "--threads", "3"]);
    let found = tree(&document);
    let names: Vec<&str> = found.iter().map(|(name, ..)| name.as_str()).collect();
    assert_eq!(names, [root.to_str().unwrap(), "a", "b", "c"]);
    assert_eq!((found[0].1, found[1].1, found[3].1), (4, 2, 1));
    assert_eq!(found.iter().map(|(_, _, own)| own).sum::<u128>(), number(&document["totals"]["size_bytes"]));
    let nodes = &document["tree"]["nodes"];
    assert_eq!([&nodes[0]["parent"], &nodes[2]["parent"]], [&Value::Null, &json!(1)]);
    let uids = nodes[0]["subtree"]["uids"].as_array().unwrap();
    assert_eq!(uids[0], uids[1]);
    // Code and text, then images, then data, in the order of the kinds.
    assert_eq!(nodes[0]["subtree"]["kind_bytes"], json!([80, 0, 300, 0, 0, 0, 5]));

    assert_eq!(document["tree"], survey(args![root, "--threads", "1"])["tree"]);
    let anonymous = survey(args![root, "--anonymous"]);
    let shape: Vec<_> = tree(&anonymous).into_iter().map(|(name, files, _)| (name, files)).collect();
    let same: Vec<_> = found.into_iter().map(|(_, files, _)| ("-".to_owned(), files)).collect();
    assert_eq!(shape, same);
    assert_eq!(anonymous["tree"]["nodes"][0]["subtree"]["uids"], Value::Null);
}
