//! The store on the command line: output, refusals, and round trips of content.
//!
//! The promises of the store itself are tested in the library; here are messages, exit statuses, JSON, pipes and
//! hostile names.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, FileTimes, Permissions};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use granulo_core::random::Random;
use serde_json::Value;
use tempfile::TempDir;
use unicode_width::UnicodeWidthStr;

use crate::args;
use crate::harness::{Ran, assert_golden, complains, granulo, run, sandbox, write_file};

/// A store of one device in a directory of its own.
pub fn store() -> (TempDir, PathBuf) {
    let sandbox = sandbox();
    let home = sandbox.path().join("store");
    run(args!["store", "init", &home]).ended(0);
    (sandbox, home)
}

/// `granulo store COMMAND STORE REST`.
#[track_caller]
pub fn on<S: AsRef<OsStr>>(command: &str, home: &Path, rest: impl IntoIterator<Item = S>) -> Ran {
    let mut all = args!["store", command, home];
    all.extend(rest.into_iter().map(|argument| argument.as_ref().to_owned()));
    run(all)
}

/// Puts bytes from standard input.
#[track_caller]
pub fn put(home: &Path, key: impl AsRef<OsStr>, content: &[u8]) {
    let mut child = granulo()
        .args(["store".as_ref(), "put".as_ref(), home.as_os_str(), key.as_ref()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(content).unwrap();
    let ran: Ran = child.wait_with_output().unwrap().into();
    let ran = ran.ended(0);
    assert_eq!((ran.text().as_str(), ran.said().as_str()), ("", ""));
}

/// Bytes without a repeating pattern that could hide a misplaced block.
pub fn noise(length: usize) -> Vec<u8> {
    Random::new(1).bytes(length)
}

/// The commands that the help of the store lists.
fn commands() -> Vec<String> {
    let help = run(["store", "--help"]).ended(0).text();
    let listed = help.split("Commands:\n").nth(1).unwrap().lines().take_while(|line| line.starts_with("  "));
    let named = listed.filter(|line| !line.starts_with("   ")).map(|line| line.split_whitespace().next().unwrap());
    let commands: Vec<String> = named.filter(|name| *name != "help").map(str::to_owned).collect();
    assert!(commands.len() >= 8, "{commands:?}");
    commands
}

#[test]
fn help_is_what_it_was_and_fits_a_hundred_columns() {
    for command in commands() {
        let help = run(["store", command.as_str(), "--help"]).ended(0).text();
        assert!(help.lines().all(|line| line.width() <= 100), "{help}");
        assert_golden(&format!("help-store-{command}.txt"), &help);
    }
}

#[test]
fn there_is_a_man_page_for_every_command_of_the_store() {
    let sandbox = sandbox();
    run(args!["man", "--directory", sandbox.path()]).ended(0);
    for command in commands() {
        let page = fs::read_to_string(sandbox.path().join(format!("granulo-store-{command}.1"))).unwrap();
        // A command with commands of its own takes the store after these.
        assert!(page.contains(".SH NAME") && (page.contains("STORE") || page.contains(".SH SUBCOMMANDS")), "{page}");
    }
}

#[test]
fn a_new_store_says_what_it_survives() {
    let sandbox = sandbox();
    let devices = |class: &str, count: usize| {
        (0..count)
            .flat_map(|index| args![format!("--{class}"), sandbox.path().join(format!("{class}{index}"))])
            .collect()
    };
    let mut arguments = args!["store", "init", sandbox.path().join("home")];
    arguments.extend::<Vec<OsString>>(devices("fast", 2));
    arguments.extend::<Vec<OsString>>(devices("slow", 6));
    let mut dry = arguments.clone();
    dry.push("--dry-run".into());
    let said = run(&dry).ended(0);
    assert!(!sandbox.path().join("home").exists() && !sandbox.path().join("fast0").exists());
    let made = run(&arguments).ended(0);
    assert_eq!(made.text(), said.text());
    assert_golden("store-init.txt", &made.text());
    assert!(made.said().contains("warning: ") && made.said().contains("on the same file system"), "{}", made.said());
    arguments[2] = sandbox.path().join("other").into();
    complains(&run(&arguments).ended(2), &["fast0"]);
}

#[test]
fn the_geometry_in_json_is_complete() {
    let sandbox = sandbox();
    let home = sandbox.path().join("home");
    let document = run(args![
        "store",
        "init",
        &home,
        "--json",
        "--compress",
        "zstd:7",
        "--cutoff",
        "32K",
        "--segment-size",
        "8MiB"
    ])
    .ended(0)
    .json();
    assert_eq!(document["schema"], "granulo/store-init/1");
    for (field, value) in [
        ("made", Value::from(true)),
        ("cutoff_bytes", 32_768.into()),
        ("compression", "zstd:7".into()),
        ("segment_bytes", (8 << 20).into()),
        ("high_watermark_fraction", 0.9.into()),
        ("copies", 1.into()),
        ("parity_units", 0.into()),
    ] {
        assert_eq!(document[field], value, "{field}");
    }
    assert_eq!(document["store"].as_str().unwrap().len(), 32);
    assert_eq!(document["devices"][0]["path"], home.to_str().unwrap());
    assert_eq!(document["survives"]["any_devices"], 0);
    assert!(document["explanation"].as_array().unwrap().iter().all(Value::is_string));
}

#[test]
fn a_geometry_that_cannot_keep_its_promise_is_refused() {
    let sandbox = sandbox();
    let home = sandbox.path().join("home");
    let (a, b) = (sandbox.path().join("a"), sandbox.path().join("b"));
    for (options, parts) in [
        (args!["--fast", &a, "--small-redundancy", "mirror"], ["2 fast devices", "there is one"]),
        (args!["--slow", &a, "--slow", &b, "--large-redundancy", "raid5"], ["raid5 needs at least 3", "--slow DIR"]),
        (args!["--fast", &a, "--slow", &a], ["named twice", "its own directory"]),
        (args!["--fast", &home], ["the home itself", "name no device"]),
        (args!["--cutoff", "2GiB"], ["at most 1 GiB", "2 GiB"]),
        (args!["--stripe-unit", "5000"], ["power of two", "5,000 bytes"]),
        (args!["--low-watermark", "95%"], ["watermark", "95 %"]),
        (args!["--compress", "zstd:40"], ["zstd level", "22"]),
    ] {
        let mut all = args!["store", "init", &home];
        all.extend(options);
        complains(&run(all).ended(2), &parts);
        assert!(!home.exists() && !a.exists(), "a refused store leaves something behind");
    }
    for wrong in ["lz4", "zstd:x"] {
        run(args!["store", "init", &home, "--compress", wrong]).ended(2);
    }
}

#[test]
fn what_goes_in_comes_out() {
    let (sandbox, home) = store();
    for (index, length) in [0, 1, 4095, 8192, 65_536, 65_537, 300_000, 9 << 20].into_iter().enumerate() {
        let content = noise(length);
        put(&home, format!("d/{index}"), &content);
        let got = on("get", &home, [format!("d/{index}")]).ended(0);
        assert!(got.stdout == content, "{length} bytes from standard input to standard output");
        assert_eq!(got.said(), "");
        let out = sandbox.path().join("out");
        let document = on("get", &home, args![format!("d/{index}"), "-o", &out, "--json"]).ended(0).json();
        assert!(fs::read(&out).unwrap() == content, "{length} bytes into a file");
        assert_eq!((&document["schema"], &document["written_bytes"]), (&"granulo/store-get/1".into(), &length.into()));
    }
    put(&home, "d/1", b"another");
    assert_eq!(on("get", &home, ["d/1"]).ended(0).text(), "another");
}

#[test]
fn an_object_has_a_number_for_life() {
    let (_sandbox, home) = store();
    let number = |key: &str| {
        let number = on("stat", &home, [key, "--json"]).ended(0).json()["number"].as_u64().unwrap();
        assert!(on("stat", &home, [key]).ended(0).text().contains(&format!("     number  {number}\n")));
        number
    };
    put(&home, "d/a", b"one");
    put(&home, "d/b", b"another");
    // A session that ends well frees what it had reserved, even if it wrote nothing.
    on("compact", &home, [""; 0]).ended(0);
    assert!(number("d/b") < 100);
    let (directory, a, b) = (number("d"), number("d/a"), number("d/b"));
    let mut all = std::collections::BTreeSet::from([directory, a, b]);
    assert_eq!(all.len(), 3);
    // Overwritten, large where it was small, moved, and found again without the index.
    put(&home, "d/a", &vec![b'x'; 1 << 20]);
    assert_eq!((number("d"), number("d/a"), number("d/b")), (directory, a, b));
    on("compact", &home, ["--all"]).ended(0);
    fs::remove_dir_all(home.join("index")).unwrap();
    on("check", &home, ["--rebuild-index"]).ended(0);
    assert_eq!((number("d"), number("d/a"), number("d/b")), (directory, a, b));
    // A new object under the same name is a different object, even when a removal was the last operation.
    for _ in 0..3 {
        on("rm", &home, ["d/b"]).ended(0);
        put(&home, "d/b", b"another");
        assert!(all.insert(number("d/b")));
    }
    on("rm", &home, ["-r", "d"]).ended(0);
    put(&home, "d/a", b"one");
    assert!(all.insert(number("d")) && all.insert(number("d/a")));
}

#[test]
fn a_file_keeps_mode_owner_and_time() {
    let (sandbox, home) = store();
    let file = write_file(sandbox.path().join("in/report.txt"), 1234);
    let time = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 5);
    File::options().write(true).open(&file).unwrap().set_times(FileTimes::new().set_modified(time)).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o4751)).unwrap();
    let document = on("put", &home, args!["docs/", &file, "--json"]).ended(0).json();
    assert_eq!(document["schema"], "granulo/store-put/1");
    assert_eq!((&document["key"], &document["size_bytes"]), (&"docs/report.txt".into(), &1234.into()));
    let status = on("stat", &home, ["docs/report.txt", "--json"]).ended(0).json();
    for (field, value) in [
        ("schema", Value::from("granulo/store-stat/1")),
        ("type", "file".into()),
        ("mode", 0o104_751.into()),
        ("mtime_seconds", 1_000_000_000.into()),
        ("mtime_nanoseconds", 5.into()),
        ("names", 1.into()),
        ("shared", Value::Null),
        ("striped", false.into()),
        ("data_runs", Value::Null),
    ] {
        assert_eq!(status[field], value, "{field}");
    }
    assert_eq!(status["uid"], rustix::process::geteuid().as_raw());
    let times = |status: &Value, of: &str| {
        (status[format!("{of}_seconds")].as_i64().unwrap(), status[format!("{of}_nanoseconds")].as_u64().unwrap())
    };
    // The birth time is that of the object in the store, not that of the file.
    let born = times(&status, "btime");
    assert!(born.0 > 1_700_000_000, "{status}");
    assert_eq!(times(&status, "ctime"), born);
    on("mv", &home, ["docs/report.txt", "docs/other"]).ended(0);
    let renamed = on("stat", &home, ["docs/other", "--json"]).ended(0).json();
    assert_eq!((times(&renamed, "btime"), times(&renamed, "mtime")), (born, (1_000_000_000, 5)));
    assert_ne!(times(&renamed, "ctime"), born);
    on("mv", &home, ["docs/other", "docs/report.txt"]).ended(0);
    let allocated = status["allocated_bytes"].as_u64().unwrap();
    assert!((1234 + 40..1234 + 120).contains(&allocated), "{allocated}");
    on("put", &home, args!["docs/", &file, "--mode", "600"]).ended(0);
    let shown = on("stat", &home, ["docs/report.txt"]).ended(0).text();
    let modified = "   modified  2001-09-09T01:46:40.000000005Z\n    changed  20";
    for part in ["docs/report.txt", "1,234 B", "0600 -rw-------", modified, "\n       born  20", "segment "] {
        assert!(shown.contains(part), "'{part}' is not in:\n{shown}");
    }
}

#[test]
fn a_range_is_a_part_of_the_file() {
    let (_sandbox, home) = store();
    let content = noise(20 << 20);
    put(&home, "large", &content);
    put(&home, "small", &content[..1000]);
    for (key, range, expected) in [
        ("small", "0-99", &content[..100]),
        ("small", "900-5000", &content[900..1000]),
        ("small", "-10", &content[990..1000]),
        ("large", "10MiB-", &content[10 << 20..]),
        ("large", "4095-4097", &content[4095..4098]),
        ("large", "0-19MiB", &content[..=19 << 20]),
    ] {
        let got = on("get", &home, [key, "--range", range]).ended(0);
        assert!(got.stdout == expected, "{range} of {key}: {} bytes", got.stdout.len());
    }
    complains(&on("get", &home, ["small", "--range", "1000-"]).ended(2), &["1,000 bytes"]);
    for wrong in ["5", "9-8", "x-y"] {
        on("get", &home, ["small", "--range", wrong]).ended(2);
    }
}

#[test]
fn holes_come_out_as_zeroes_and_stay_holes_in_a_file() {
    let (sandbox, home) = store();
    let source = sandbox.path().join("in");
    fs::create_dir(&source).unwrap();
    let file = File::create(source.join("sparse")).unwrap();
    let (end, data) = ((3 << 30) + 5000, noise(2 << 20));
    file.set_len(end).unwrap();
    file.write_all_at(&data, 1 << 30).unwrap();
    on("import", &home, args![&source]).ended(0);
    let around = on("get", &home, ["sparse", "--range", "1073741000-1075840000"]).ended(0).stdout;
    let mut expected = vec![0; 824];
    expected.extend(&data);
    expected.resize(1_075_840_000 - 1_073_741_000 + 1, 0);
    assert!(around == expected);
    let out = sandbox.path().join("out");
    on("get", &home, args!["sparse", "-o", &out]).ended(0);
    let made = fs::metadata(&out).unwrap();
    assert_eq!(made.len(), end);
    assert!(made.blocks() * 512 < 8 << 20, "{} blocks for a hole", made.blocks());
    let mut read = vec![0; data.len() + 1];
    File::open(&out).unwrap().read_exact_at(&mut read, (1 << 30) - 1).unwrap();
    assert!(read[0] == 0 && read[1..] == data);
}

#[test]
fn a_listing_is_in_columns_by_name() {
    let (sandbox, home) = store();
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(978_307_200);
    for (name, size, mode) in [("b.txt", 7, 0o644), ("a b", 1_000_000, 0o600), ("sub/deep/x", 0, 0o755)] {
        let file = write_file(sandbox.path().join("in").join(name), size);
        File::options().write(true).open(&file).unwrap().set_times(FileTimes::new().set_modified(time)).unwrap();
        fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
        on("put", &home, args![name, &file]).ended(0);
    }
    assert_eq!(on("ls", &home, [""; 0]).ended(0).text(), "a b\nb.txt\nsub\n");
    assert_eq!(on("ls", &home, ["/", "-R"]).ended(0).text(), "a b\nb.txt\nsub\nsub/deep\nsub/deep/x\n");
    assert_eq!(on("ls", &home, ["sub", "-R"]).ended(0).text(), "deep\ndeep/x\n");
    assert_eq!(on("ls", &home, ["sub/deep/x"]).ended(0).text(), "sub/deep/x\n");
    assert_eq!(on("ls", &home, ["-0"]).ended(0).stdout, b"a b\0b.txt\0sub\0");
    let long = on("ls", &home, ["-l"]).ended(0).text();
    let lines: Vec<&str> = long.lines().collect();
    assert!(lines[0].starts_with("-rw------- 1 ") && lines[0].ends_with(" 1000000 2001-01-01 00:00 a b"), "{long}");
    assert!(lines[1].starts_with("-rw-r--r-- 1 ") && lines[1].ends_with("       7 2001-01-01 00:00 b.txt"), "{long}");
    assert!(lines[2].starts_with("drwx") && lines.iter().all(|line| line.len() <= 80), "{long}");
    let document = on("ls", &home, ["-R", "-l", "--json"]).ended(0).json();
    assert_eq!((&document["schema"], &document["key"]), (&"granulo/store-ls/1".into(), &"/".into()));
    let entries = document["entries"].as_array().unwrap();
    assert_eq!(entries.len(), 5);
    assert_eq!((&entries[0]["size_bytes"], &entries[0]["striped"]), (&1_000_000.into(), &true.into()));
    assert_eq!((&entries[4]["name"], &entries[4]["names"]), (&"sub/deep/x".into(), &1.into()));
    assert_eq!(on("ls", &home, ["sub/deep/x", "--json"]).ended(0).json()["entries"][0]["key"], "sub/deep/x");
}

#[test]
fn an_empty_store_lists_nothing() {
    let (_sandbox, home) = store();
    assert_eq!(on("ls", &home, [""; 0]).ended(0).text(), "");
    assert_eq!(on("ls", &home, ["-l", "-R"]).ended(0).text(), "");
    assert_eq!(on("ls", &home, ["--json"]).ended(0).json()["entries"], Value::Array(Vec::new()));
    complains(&on("stat", &home, ["/"]).ended(2), &["cannot stat /: the root has no attributes"]);
    let removed = on("rm", &home, ["/", "-r"]).ended(0).text();
    assert_eq!(removed, "Removing /: it is empty\n");
}

#[test]
fn names_are_moved_exchanged_and_given_beside() {
    let (_sandbox, home) = store();
    put(&home, "in/day/1", b"one");
    put(&home, "in/day/2", b"two");
    put(&home, "archive/old", b"old");
    let number = |key: &str| on("stat", &home, [key, "--json"]).ended(0).json()["number"].as_u64().unwrap();
    let (of_day, of_one) = (number("in/day"), number("in/day/1"));
    // Into a directory, as mv does, and to a new name.
    let ran = on("mv", &home, ["in/day", "archive"]).ended(0);
    assert_eq!((ran.text(), ran.said()), (String::new(), String::new()));
    on("mv", &home, ["archive/day", "archive/today", "--no-replace"]).ended(0);
    assert_eq!((number("archive/today"), number("archive/today/1")), (of_day, of_one));
    assert_eq!(on("get", &home, ["archive/today/2"]).ended(0).text(), "two");
    complains(&on("stat", &home, ["in/day"]).ended(2), &["no such key", "in, a directory"]);
    // The two exchange their names.
    let document = on("mv", &home, ["archive/today/1", "archive/old", "--exchange", "--json"]).ended(0).json();
    assert_eq!((&document["schema"], &document["exchanged"]), (&"granulo/store-mv/1".into(), &true.into()));
    assert_eq!((&document["from"], &document["number"]), (&"archive/today/1".into(), &of_one.into()));
    assert_eq!(on("get", &home, ["archive/old"]).ended(0).text(), "one");
    // Only -T replaces an empty directory; the error names what is in the way.
    on("mv", &home, ["archive/today", "in", "-T"]).ended(0);
    assert_eq!(on("get", &home, ["in/1"]).ended(0).text(), "old");
    complains(&on("mv", &home, ["in/1", "in/2", "-n"]).ended(2), &["an object with this name exists"]);
    complains(&on("mv", &home, ["in", "in/1/x"]).ended(2), &["inside itself"]);
    complains(&on("mv", &home, ["in/1", "none/x"]).ended(2), &["cannot rename in/1: no such directory: none ("]);
    complains(&on("mv", &home, ["in/1", "in/none/a/x"]).ended(2), &["no such directory: in/none ("]);
    complains(&on("ln", &home, ["in/1", "none/a/x"]).ended(2), &["name for in/1: no such directory: none ("]);
    complains(&on("mv", &home, ["none", "in"]).ended(2), &["none", "no such key"]);
    complains(&on("mv", &home, ["archive/old", "in/1", "-n", "--exchange"]).ended(2), &["--no-replace"]);
    // A second name.
    let document = on("ln", &home, ["in/1", "archive/same", "--json"]).ended(0).json();
    assert_eq!((&document["schema"], &document["to"]), (&"granulo/store-ln/1".into(), &"archive/same".into()));
    on("rm", &home, ["in/1"]).ended(0);
    assert_eq!(on("get", &home, ["archive/same"]).ended(0).text(), "old");
    complains(&on("ln", &home, ["in", "x"]).ended(2), &["a directory cannot have several names"]);
    complains(
        &on("ln", &home, ["in/2", "archive/same"]).ended(2),
        &["cannot link archive/same", "an object with this name exists"],
    );
    assert!(on("check", &home, ["--deep"]).ended(0).text().contains("no problems"));
}

#[test]
fn what_a_pin_keeps_is_freed_once_it_is_released() {
    let (_sandbox, home) = store();
    put(&home, "a", &[1; 10_000]);
    let open = granulo::store::Store::open(&home).unwrap();
    ["mount-1", "odd\u{7}name"].iter().for_each(|name| open.pin(name).unwrap());
    drop(open);
    on("rm", &home, ["a"]).ended(0);
    on("compact", &home, ["--all"]).ended(0);
    assert!(on("status", &home, [""; 0]).ended(0).text().contains("waits for mount-1, odd\\x07name"));
    let waiting =
        || on("compact", &home, ["--all", "--json"]).ended(0).json()["done"]["waiting_bytes"].as_u64().unwrap();
    assert!(waiting() > 10_000);
    // Nothing is released if one of the names is wrong.
    complains(&on("unpin", &home, ["mount-1", "mount-2"]).ended(2), &["no such pin: mount-2", "mount-1, odd\\x07name"]);
    let document = on("unpin", &home, ["mount-1", "--json"]).ended(0).json();
    assert_eq!((&document["unpinned"][0], &document["pins"][0]), (&"mount-1".into(), &"odd\u{7}name".into()));
    assert!(waiting() > 10_000);
    on("unpin", &home, ["odd\\x07name"]).ended(0);
    assert_eq!(waiting(), 0);
    complains(&on("unpin", &home, ["mount-1"]).ended(2), &["no such pin", "the store has none"]);
}

#[test]
fn hostile_names_reach_no_terminal() {
    let (_sandbox, home) = store();
    let name = OsStr::from_bytes(b"a\x1b[31m\n\xff\\");
    put(&home, name, b"x");
    let escaped = "a\\x1b[31m\\n\\xff\\\\";
    assert_eq!(on("ls", &home, [""; 0]).ended(0).text(), format!("{escaped}\n"));
    assert!(on("ls", &home, ["-l"]).ended(0).text().ends_with(&format!(" {escaped}\n")));
    assert!(on("stat", &home, [name]).ended(0).text().contains(escaped));
    assert_eq!(on("ls", &home, ["--json"]).ended(0).json()["entries"][0]["name"], escaped);
    assert_eq!(on("ls", &home, ["-0"]).ended(0).stdout, b"a\x1b[31m\n\xff\\\0");
    assert_eq!(on("get", &home, [name]).ended(0).text(), "x");
    assert_eq!(on("rm", &home, [name]).ended(0).text(), format!("Removing {escaped}: 1 file, 1 B\n"));
    let missing = on("get", &home, [name]).ended(2);
    complains(&missing, &[escaped, "no such key"]);
}

#[test]
fn what_is_removed_is_said_first() {
    let (sandbox, home) = store();
    for key in ["a/1", "a/2", "a/b/3", "c"] {
        put(&home, key, b"four");
    }
    complains(&on("rm", &home, ["a"]).ended(2), &["not empty", "-r"]);
    complains(&on("rm", &home, ["/"]).ended(2), &["the root cannot be removed", "-r"]);
    let plan = "a: 3 files, 2 directories, 12 B\n";
    assert_eq!(on("rm", &home, ["a", "-r", "--dry-run"]).ended(0).text(), format!("Would remove {plan}"));
    let document = on("rm", &home, ["a", "-r", "--dry-run", "--json"]).ended(0).json();
    assert_eq!((&document["schema"], &document["removed"]), (&"granulo/store-rm/1".into(), &false.into()));
    assert_eq!((&document["files"], &document["size_bytes"]), (&3.into(), &12.into()));
    assert_eq!(on("ls", &home, ["-R"]).ended(0).text().lines().count(), 6);
    assert_eq!(on("rm", &home, ["a", "-r"]).ended(0).text(), format!("Removing {plan}"));
    assert_eq!(on("ls", &home, ["-R"]).ended(0).text(), "c\n");
    assert_eq!(on("rm", &home, ["c", "--json"]).ended(0).json()["removed"], true);
    let tree = sandbox.path().join("tree");
    fs::create_dir(&tree).unwrap();
    std::os::unix::fs::symlink("somewhere", tree.join("l")).unwrap();
    on("import", &home, args![&tree, "--quiet"]).ended(0);
    on("ln", &home, ["l", "m"]).ended(0);
    let document = on("rm", &home, ["l", "m", "--json"]).ended(0).json();
    assert_eq!((&document["symlinks"], &document["files"]), (&1.into(), &0.into()), "one with two names");
    complains(&on("rm", &home, ["c"]).ended(2), &["c", "no such key"]);
    assert_eq!(on("ls", &home, ["-R"]).ended(0).text(), "");
}

#[test]
fn keys_that_are_none_are_named_with_what_is_near() {
    let (sandbox, home) = store();
    put(&home, "a/b/file", b"x");
    complains(
        &on("get", &home, ["a/b/c/d"]).ended(2),
        &["cannot get a/b/c/d", "no such key", "nearest existing ancestor is a/b, a directory"],
    );
    complains(&on("stat", &home, ["a/b/file/x"]).ended(2), &["nearest existing ancestor is a/b/file, a file"]);
    complains(&on("ls", &home, ["nothing"]).ended(2), &["nothing", "no such key"]);
    for command in ["get", "stat", "ls", "rm"] {
        complains(&on(command, &home, ["a/../a/b"]).ended(2), &["a/../a/b", "must not contain . or .."]);
    }
    complains(&on("get", &home, ["a/b"]).ended(2), &["it is a directory", "export"]);
    complains(&on("get", &home, ["/"]).ended(2), &["/: it is a directory"]);
    let file = write_file(sandbox.path().join("f"), 1);
    complains(&on("put", &home, args!["a/b", &file]).ended(2), &["a/b", "directory"]);
    complains(&on("put", &home, args!["a/b/file/x", &file]).ended(2), &["a/b/file"]);
    complains(&on("put", &home, args!["x", sandbox.path()]).ended(2), &["it is a directory", "import"]);
    complains(&on("put", &home, args!["x", sandbox.path().join("missing")]).ended(2), &["missing", "No such file"]);
    complains(&on("put", &home, ["x/"]).ended(2), &["standard input has no name"]);
    assert_eq!(on("ls", &home, ["-R"]).ended(0).text(), "a\na/b\na/b/file\n");
}

#[test]
fn what_is_no_store_is_said() {
    let (sandbox, home) = store();
    let empty = sandbox.path().join("empty");
    fs::create_dir(&empty).unwrap();
    for command in ["ls", "put", "get", "stat", "rm"] {
        let rest: &[&str] = if command == "ls" { &[] } else { &["key"] };
        complains(&on(command, &empty, rest).ended(2), &["empty", "store"]);
        complains(&on(command, &sandbox.path().join("missing"), rest).ended(2), &["missing"]);
    }
    complains(&run(args!["store", "init", &home]).ended(2), &["store"]);
    let full = write_file(sandbox.path().join("full/file"), 1);
    complains(&run(args!["store", "init", full.parent().unwrap()]).ended(2), &["full"]);
    complains(&run(args!["store", "init", &full]).ended(2), &["not a directory"]);
}

#[test]
fn a_device_leads_to_its_store() {
    let sandbox = sandbox();
    let (home, fast, slow) = (sandbox.path().join("home"), sandbox.path().join("fast"), sandbox.path().join("slow"));
    run(args!["store", "init", &home, "--fast", &fast, "--slow", &slow]).ended(0);
    put(&home, "key", b"content");
    fs::remove_dir_all(&home).unwrap();
    for device in [&fast, &slow] {
        assert_eq!(on("get", device, ["key"]).ended(0).text(), "content");
    }
    complains(&on("ls", &home, [""; 0]).ended(2), &["home"]);
}

#[test]
fn damage_is_said_and_never_read() {
    let (sandbox, home) = store();
    put(&home, "key", &noise(5000));
    let segments: Vec<PathBuf> =
        fs::read_dir(home.join("segments")).unwrap().map(|entry| entry.unwrap().path()).collect();
    let [segment] = segments.as_slice() else { panic!("{segments:?}") };
    let mut bytes = fs::read(segment).unwrap();
    bytes[2500] ^= 4;
    fs::write(segment, bytes).unwrap();
    let out = sandbox.path().join("out");
    let ran = on("get", &home, args!["key", "-o", &out]).ended(1);
    complains(&ran, &["key"]);
    assert!(!out.exists());
    assert_eq!(on("get", &home, ["key"]).ended(1).stdout, b"");
}
