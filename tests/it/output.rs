//! What people and programs see: golden texts, widths, colour, hostile names, pipes, anonymity.

use std::ffi::OsStr;
use std::fs::{self, File, FileTimes};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use serde_json::Value;
use unicode_width::UnicodeWidthStr;

use crate::args;
use crate::cli::commands;
use crate::harness::{
    Ran, assert_golden, files_below, finish, granulo, is_root, run, sandbox, source_tree, survey, wide_tree, write_file,
};

/// Asserts that every line fits and contains only text.
#[track_caller]
fn fits(text: &str, columns: usize) {
    for line in text.lines() {
        assert!(line.width() <= columns, "{} columns: {line}", line.width());
        assert!(!line.contains(|c: char| c.is_control()), "{line:?}");
    }
}

#[test]
fn published_tables_print_as_they_always_did() {
    for (name, arguments) in [
        ("show-vu-2005.txt", &["show", "vu-2005"][..]),
        ("show-list.txt", &["show", "--list"]),
        ("show-answers.txt", &["show", "vu-2005", "--cutoff", "12KiB", "--cutoff", "64KiB", "--block-size", "128KiB"]),
        ("show-all-web-2005.txt", &["show", "web-2005", "--all"]),
        ("compare-vu.txt", &["compare", "vu-1984", "vu-2005"]),
    ] {
        let ran = run(arguments).ended(0);
        assert_eq!(ran.said(), "", "{name}");
        fits(&ran.text(), 80);
        assert_golden(name, &ran.text());
    }
}

#[test]
fn help_is_what_it_was_and_fits_a_hundred_columns() {
    let help = run(["--help"]).ended(0).text();
    fits(&help, 100);
    assert_golden("help.txt", &help);
    for command in commands() {
        let help = run([command.as_str(), "--help"]).ended(0).text();
        fits(&help, 100);
        assert_golden(&format!("help-{command}.txt"), &help);
    }
}

#[test]
fn summaries_have_the_width_of_the_terminal() {
    let source = source_tree();
    let small = source.join("tests/golden/small.survey.json");
    let bench = |name: &str| source.join("benchmarks/runs/2026-11-21-bench").join(format!("{name}.json"));
    for (name, arguments) in [
        ("show-small", args!["show", &small]),
        ("show-answers", args!["show", "vu-2005", "--cutoff", "12KiB", "--block-size", "128KiB", "--quantile", "50%"]),
        ("compare-four", args!["compare", &small, "vu-1984", "vu-2005", "web-2005"]),
        ("plan-vu-2005", args!["plan", "vu-2005"]),
        ("systems", args!["show", "panasas"]),
        ("allocate", args!["allocate", "zfs", "0", "1", "12KiB", "1MiB"]),
        ("bench-create", args!["show", bench("create")]),
        ("bench-cache", args!["show", bench("cache")]),
        ("bench-fill", args!["show", bench("fill")]),
        ("bench-metadata", args!["show", bench("metadata")]),
        ("bench-pack", args!["show", bench("pack")]),
    ] {
        for columns in [60, 80, 140] {
            let ran = finish(granulo().env("COLUMNS", columns.to_string()).args(&arguments)).ended(0);
            fits(&ran.text(), columns);
            assert_golden(&format!("widths/{name}-{columns}.txt"), &ran.text());
        }
        let narrow = finish(granulo().env("COLUMNS", "20").args(&arguments)).ended(0).text();
        assert_eq!(narrow, finish(granulo().env("COLUMNS", "60").args(&arguments)).ended(0).text(), "60 is the least");
    }
}

/// A tree that is the same everywhere, except for allocation and the times of the inodes.
fn fixed_tree(root: &Path) {
    for (path, size, days) in [
        ("README", 1200, 400),
        ("empty", 0, 1),
        ("src/main.rs", 700, 3),
        ("src/lib.rs", 5000, 20),
        ("src/deep/er/mod.rs", 4096, 100),
        ("pictures/a.jpg", 70_000, 2000),
        ("pictures/b.JPG", 300_000, 2000),
        ("pictures/thumbs/a.jpg", 3000, 0),
        ("logs/x.log", 65_536, 40),
        ("logs/y.log.1", 65_537, 41),
    ] {
        let path = write_file(root.join(path), size);
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(978_307_200 - 86_400 * days - 1);
        File::options()
            .write(true)
            .open(path)
            .unwrap()
            .set_times(FileTimes::new().set_modified(time).set_accessed(time))
            .unwrap();
    }
    std::os::unix::fs::symlink("README", root.join("link")).unwrap();
    fs::hard_link(root.join("README"), root.join("README.again")).unwrap();
}

/// Removes what depends on the file system, the user and the day: time, duration, allocated bytes.
fn portable(text: &str) -> String {
    let mut kept = String::new();
    let mut leave_out = false;
    for line in text.lines() {
        match line {
            // The host is in the title.
            _ if line.starts_with("tree on ") => {
                kept.push_str("tree\n");
                continue;
            }
            _ if line.starts_with("surveyed ") => continue,
            _ if line.starts_with("file system: ") => {
                leave_out = true;
                continue;
            }
            "" if leave_out => leave_out = false,
            _ if line.starts_with("The file system has allocated") => leave_out = true,
            _ if line.starts_with("Blocks of") => leave_out = false,
            _ if line.starts_with("Directories with") => break,
            _ => {}
        }
        if !leave_out {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    kept
}

#[test]
fn the_survey_of_a_small_tree_reads_as_it_always_did() {
    let sandbox = sandbox();
    fixed_tree(&sandbox.path().join("tree"));
    let mut command = granulo();
    let ran = finish(command.current_dir(sandbox.path()).args(["survey", "tree", "--as-of", "2001-01-01"])).ended(0);
    assert_eq!(ran.said(), "", "there is no progress where there is no terminal");
    fits(&ran.text(), 80);
    assert_golden("survey-tree.txt", &portable(&ran.text()));
    for part in ["tree/pictures", "Directories with the most", "Owners", ".jpg", "surveyed 20"] {
        assert!(ran.text().contains(part), "{part} is not in\n{}", ran.text());
    }
}

#[test]
fn a_survey_file_prints_as_it_always_did() {
    let file = source_tree().join("tests/golden/small.survey.json");
    let ran = run(args!["show", &file]).ended(0);
    fits(&ran.text(), 80);
    assert_golden("show-small.txt", &ran.text());
    let ran = run(args!["show", &file, "--all"]).ended(0);
    fits(&ran.text(), 80);
    assert_golden("show-small-all.txt", &ran.text());
    let ran = run(args!["compare", &file, "vu-1984", "vu-2005", "web-2005"]).ended(0);
    fits(&ran.text(), 80);
    assert_golden("compare-four.txt", &ran.text());
}

#[test]
fn long_and_wide_names_stay_in_the_columns() {
    let sandbox = sandbox();
    let wide = "データ".repeat(25);
    for name in ["n".repeat(200), wide, "combining e\u{301}".repeat(12), "👩‍👩‍👧‍👦".repeat(8), "a b ".repeat(40)]
    {
        for file in 0..3 {
            write_file(sandbox.path().join(&name).join(format!("f{file}.longextension-16")), 1000 * file);
        }
    }
    fits(&run(args!["survey", sandbox.path()]).ended(0).text(), 80);
    let sources = vec!["vu-2005"; 3];
    fits(&run([&["compare"], &sources[..]].concat()).ended(0).text(), 80);
}

#[test]
fn many_sources_are_compared_in_eighty_columns() {
    for many in [7, 8, 12] {
        let sources = vec!["vu-2005"; many];
        fits(&run([&["compare"], &sources[..]].concat()).ended(0).text(), 80);
    }
}

#[test]
fn colour_is_for_terminals_and_for_those_who_ask() {
    for arguments in
        [&["show", "vu-2005"][..], &["compare", "vu-1984", "vu-2005"], &["survey", "--help"], &["show", "missing"]]
    {
        let with = |when: &str| {
            let mut all = vec!["--color", when];
            all.extend(arguments);
            let ran = run(all);
            [ran.stdout, ran.stderr].concat()
        };
        let plain = run(arguments);
        let plain = [plain.stdout, plain.stderr].concat();
        assert!(!plain.contains(&0x1b), "{arguments:?}");
        assert!(!with("auto").contains(&0x1b) && !with("never").contains(&0x1b), "{arguments:?}");
        if !arguments.contains(&"--help") {
            assert!(with("always").contains(&0x1b), "{arguments:?}");
        }
    }
    assert!(!run(["--color", "always", "show", "vu-2005", "--json"]).stdout.contains(&0x1b));
    let wished = finish(granulo().args(["--color", "always", "show", "vu-2005"]));
    let stripped = strip_colour(&wished.text());
    assert_eq!(stripped, run(["show", "vu-2005"]).text(), "colour changes nothing else");
}

fn strip_colour(text: &str) -> String {
    let mut parts = text.split("\x1b[");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        plain.push_str(part.split_once('m').unwrap().1);
    }
    plain
}

#[test]
fn json_is_one_line_and_alone() {
    let sandbox = sandbox();
    wide_tree(&sandbox.path().join("t"), 2, 2);
    let (tree, kept) = (sandbox.path().join("t"), sandbox.path().join("s.json"));
    survey(args![&tree, "-o", &kept]);
    for arguments in [
        args!["survey", "--json", &tree],
        args!["show", "vu-2005", "--json"],
        args!["merge", &kept, "--json"],
        args!["compare", "vu-1984", "vu-2005", "--json"],
    ] {
        let ran = run(&arguments).ended(0);
        assert_eq!(ran.said(), "", "{arguments:?}");
        assert_eq!(ran.stdout.iter().filter(|&&byte| byte == b'\n').count(), 1, "{arguments:?}");
        assert_eq!(ran.stdout.last(), Some(&b'\n'));
        let schema = ran.json()["schema"].as_str().unwrap().to_owned();
        assert!(schema.starts_with("granulo/") && schema.ends_with("/1"), "{schema}");
    }
}

#[test]
fn every_documented_field_of_a_survey_is_there_and_no_other() {
    let sandbox = sandbox();
    fixed_tree(&sandbox.path().join("t"));
    let document = survey(args![sandbox.path().join("t")]);
    let schema = fs::read_to_string(source_tree().join("docs/SCHEMA.md")).unwrap();
    let documented = |name: &str| {
        schema.contains(&format!("`{name}`"))
            || schema.contains(&format!("{name}}}"))
            || schema.contains(&format!("{name},"))
    };
    let mut undocumented = Vec::new();
    let parts = [
        "",
        "/machines/0",
        "/machines/0/file_systems/0",
        "/options",
        "/counts",
        "/totals",
        "/distributions",
        "/distributions/file_size",
        "/overhead_by_size",
        "/distributions/file_size/detail",
        "/up_to/0",
        "/block_sizes/0",
        "/where",
        "/where/directories",
        "/where/owners",
        "/where/owners/rows/0",
        "/where/extensions/rows/0",
        "/where/owner_ages",
        "/where/owner_ages/rows/0",
        "/where/owner_ages/rows/0/read/0",
        "/where/files/0",
        "/where/directories/own/files/0",
        "/errors",
    ];
    for part in parts {
        let fields = document.pointer(part).unwrap_or_else(|| panic!("there is no {part}")).as_object().unwrap();
        undocumented.extend(fields.keys().filter(|field| !documented(field)).map(|field| format!("{part}/{field}")));
    }
    assert!(undocumented.is_empty(), "docs/SCHEMA.md does not name {undocumented:?}");
    for field in [
        "schema",
        "granulo_version",
        "name",
        "roots",
        "method",
        "resolution",
        "taken_at",
        "elapsed_seconds",
        "complete",
    ] {
        assert!(!document[field].is_null(), "{field}");
    }
}

const HOSTILE: [&[u8]; 6] = [
    b"<script>alert(1)</script>",
    b"\x1b]0;pwned\x07",
    "\u{202e}txt.exe".as_bytes(),
    b"new\nline",
    b"\xff\xfe\x9b31m",
    "\u{9b}31m\u{200b}\u{feff}".as_bytes(),
];

/// Asserts that no byte of a hostile name reaches the terminal as a control character.
#[track_caller]
fn harmless(ran: &Ran) {
    for bytes in [&ran.stdout, &ran.stderr] {
        let text = std::str::from_utf8(bytes).expect("what is printed is UTF-8");
        for c in text.chars().filter(|&c| c != '\n') {
            let deceptive = matches!(c, '\u{202a}'..='\u{202e}' | '\u{200b}' | '\u{feff}' | '\u{2066}'..='\u{2069}');
            assert!(!c.is_control() && !deceptive, "{c:?} is printed: {text:?}");
        }
        assert!(!text.lines().any(|line| line.starts_with("line")), "a name breaks a line: {text}");
    }
}

#[test]
fn hostile_names_do_nothing_on_the_terminal_or_the_page() {
    let sandbox = sandbox();
    let root = sandbox.path().join("t");
    for name in HOSTILE {
        // A slash in a name is another directory.
        let directory = root.join(OsStr::from_bytes(name));
        fs::create_dir_all(&directory).unwrap();
        let file = [b"f.", name].concat();
        write_file(directory.join(OsStr::from_bytes(&file)), 100);
    }
    let (page, json) = (sandbox.path().join("p.html"), sandbox.path().join("s.json"));
    harmless(&run(args!["survey", &root, "--report", &page, "-o", &json]).ended(0));
    harmless(&run(args!["survey", &root, "--json"]).ended(0));
    harmless(&run(args!["show", &json, "--all"]).ended(0));
    let html = fs::read(&page).unwrap();
    let html = std::str::from_utf8(&html).unwrap();
    assert!(html.len() < 5 << 20);
    assert!(!html.contains("<script>alert(1)"), "a name is markup on the page");
    for raw in ["\x1b]0;pwned", "\u{202e}txt.exe", "new\nline", "\u{9b}31m"] {
        assert!(!html.contains(raw), "{raw:?} is on the page");
    }
    // As roots, in messages, and as the names of results.
    for name in HOSTILE {
        let path = root.join(OsStr::from_bytes(name));
        let missing = path.join("missing");
        harmless(&run(args!["survey", &path]).ended(0));
        harmless(&run(args!["survey", &missing]).ended(2));
        harmless(&run(args!["survey", &path, &missing]).ended(1));
        harmless(&run(args!["survey", &path, "-o", missing.join("x")]).ended(2));
        harmless(&run(args!["show", &path]).ended(2));
        harmless(&run(args!["show", &missing]).ended(2));
        let copy = sandbox.path().join(OsStr::from_bytes(name).to_string_lossy().replace('/', "_"));
        fs::copy(&json, &copy).unwrap();
        harmless(&run(args!["compare", &copy, "vu-2005"]).ended(0));
        harmless(&run(args!["report", &copy, "-o", &page]).ended(0));
        assert!(!fs::read_to_string(&page).unwrap().contains("<script>alert(1)"));
    }
    harmless(&run(args!["survey", &root, "--exclude", OsStr::from_bytes(b"a[\x1bpwned\x07")]).ended(2));
}

#[test]
fn a_survey_file_cannot_bring_escapes_to_the_terminal() {
    let sandbox = sandbox();
    let file = sandbox.path().join("s.json");
    wide_tree(&sandbox.path().join("t"), 2, 2);
    survey(args![sandbox.path().join("t"), "-o", &file]);
    let mut document: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let evil = "\u{1b}]0;pwned\u{7}\u{202e}\nline";
    document["name"] = evil.into();
    document["roots"] = Value::from(vec![evil]);
    document["options"]["excluded"] = Value::from(vec![evil]);
    document["granulo_version"] = evil.into();
    document["where"]["owners"]["rows"][0]["name"] = evil.into();
    document["errors"]["examples"] = serde_json::json!([{"path": evil, "operation": evil, "cause": evil}]);
    document["errors"]["by_kind"] = serde_json::json!([{"operation": evil, "kind": evil, "count": 1}]);
    fs::write(&file, document.to_string()).unwrap();
    for arguments in
        [args!["show", &file], args!["show", &file, "--all"], args!["compare", &file, "vu-2005"], args!["merge", &file]]
    {
        let ran = run(&arguments);
        assert!(matches!(ran.code, Some(0 | 2)), "{ran:?}");
        harmless(&ran);
    }
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    for arguments in [
        &["show", "vu-2005", "--json"][..],
        &["show", "vu-2005", "--all"],
        &["completions", "bash"],
        &["survey", "--help"],
    ] {
        let mut command = granulo();
        let mut child = command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut first = [0; 10];
        child.stdout.take().unwrap().read_exact(&mut first).unwrap();
        let ran = Ran::from(child.wait_with_output().unwrap()).ended(0);
        assert_eq!(ran.said(), "", "{arguments:?}");
    }
    // The pipe is closed from the beginning: nobody reads.
    for arguments in [&["show", "vu-2005"][..], &["show", "missing"]] {
        let mut child = granulo().args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        drop(child.stderr.take());
        assert!(matches!(child.wait().unwrap().code(), Some(0 | 2)), "{arguments:?}");
    }
}

#[test]
fn an_anonymous_survey_holds_no_name_at_all() {
    let sandbox = sandbox();
    let root = sandbox.path().join("zqroot");
    write_file(root.join("zqdirectory/zqfile.zqext"), 100);
    write_file(root.join("zqdirectory/zqglobbed"), 100);
    write_file(root.join("zqother/plain.zqtwo"), 5);
    if is_root() {
        std::os::unix::fs::chown(root.join("zqdirectory/zqfile.zqext"), Some(4_111_222_333), None).unwrap();
    }
    let [json, page, csv] = ["s.json", "p.html", "f.csv"].map(|name| sandbox.path().join(name));
    let mut arguments = args!["survey", &root, root.join("zqmissing"), "--anonymous", "--exclude", "zqglob*"];
    arguments.extend(args!["-o", &json, "--report", &page, "--fsstats", &csv]);
    let ran = run(arguments).ended(1);
    let merged = sandbox.path().join("m.json");
    run(args!["merge", &json, &json, "-o", &merged]).ended(0);
    let second = sandbox.path().join("second.html");
    run(args!["report", &json, "-o", &second]).ended(0);
    for file in [&json, &page, &csv, &merged, &second] {
        let text = fs::read_to_string(file).unwrap();
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        for token in ["zq", "4111222333", "granulo-it", &format!("\"{}\"", host.trim()), "\"mount_options\":"] {
            assert!(!text.contains(token), "{token} is in {}", file.display());
        }
    }
    assert!(!ran.text().contains("zq"), "{}", ran.text());
    let document: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    assert_eq!(document["anonymous"], true);
    assert_eq!(document["name"], Value::Null);
    assert_eq!((&document["roots"], &document["options"]["excluded"]), (&Value::Array(vec![]), &Value::Array(vec![])));
    assert_eq!(document["errors"]["examples"], Value::Array(vec![]));
    assert_eq!(document["machines"], Value::Array(vec![]));
    assert_eq!((&document["counts"]["files"], &document["counts"]["errors"]), (&2.into(), &1.into()));
    for table in ["owners", "extensions"] {
        for row in document["where"][table]["rows"].as_array().unwrap() {
            assert!(row.get("name").is_none_or(Value::is_null) && row.get("uid").is_none_or(Value::is_null), "{row}");
            assert!(row.get("extension").is_none_or(Value::is_null), "{row}");
        }
    }
    let directories = document["where"]["directories"]["subtree"]["files"].as_array().unwrap();
    for row in directories.iter().chain(document["where"]["files"].as_array().unwrap()) {
        assert_eq!(row["path"], Value::Null);
    }
    for row in document["where"]["owner_ages"]["rows"].as_array().unwrap() {
        assert_eq!((&row["uid"], &row["name"]), (&Value::Null, &Value::Null));
    }
}

#[test]
fn a_page_is_one_file_that_needs_no_network() {
    let sandbox = sandbox();
    let page = sandbox.path().join("p.html");
    let ran = run(args!["report", "vu-1984", "vu-2005", "-o", &page]).ended(0);
    assert_eq!(ran.text(), "");
    let html = fs::read_to_string(&page).unwrap();
    assert!(html.len() < 5 << 20, "{} bytes", html.len());
    for outside in ["src=\"http", "href=\"http", "src='http", "@import", "url(http", "rel=\"stylesheet\""] {
        assert!(!html.contains(outside), "{outside}");
    }
    assert!(html.contains("<!doctype html>") || html.contains("<!DOCTYPE html>"));
    assert_eq!(files_below(sandbox.path(), "html").len(), 1);
}
