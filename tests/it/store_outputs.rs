//! Documents of the store in files: `-o` writes what `--json` prints, and leaves the text for people; `--report` makes
//! the page that `granulo report` makes of that file.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::Value;

use crate::args;
use crate::harness::{Ran, complains, finish, granulo, run, sandbox, skip};
use crate::results::data;
use crate::store_cli::{on, put, store};
use crate::store_place::{Place, bytes, find, flip};

/// The document in a file.
#[track_caller]
fn document(path: &Path) -> Value {
    let content = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_slice(&content).unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&content)))
}

/// What a page shows, but for the name of its document and the time.
fn shown(page: &Path) -> Value {
    let mut shown = data(page);
    for field in ["title", "name", "generated_at"] {
        shown.as_object_mut().unwrap().remove(field);
    }
    shown
}

/// Runs a command with `-o`, `--json` and `--report`: the file has what is printed, a document of this kind, and the page
/// is that of the file.
#[track_caller]
fn writes(place: &Place, kind: &str, arguments: Vec<OsString>) -> Value {
    let [file, page, again] = ["document.json", "page.html", "again.html"].map(|name| place.path(name));
    for earlier in [&file, &page] {
        let _ = fs::remove_file(earlier);
    }
    let ran = place.run([arguments, args!["--json", "-o", &file, "--report", &page]].concat());
    // Problems that were found are a result too.
    assert!(matches!(ran.code, Some(0 | 1)), "{kind}: {}", ran.said());
    assert!(fs::read(&file).unwrap() == ran.stdout, "{kind} printed: {}", ran.text());
    run(args!["report", &file, "-o", &again]).ended(0);
    assert_eq!(shown(&page), shown(&again), "{kind}");
    let written = document(&file);
    assert_eq!(written["schema"], format!("granulo/store-{kind}/1"));
    written
}

/// Runs a command with `-o` alone: the text stays, and the file has a document of this kind.
#[track_caller]
fn writes_and_says(place: &Place, kind: &str, arguments: Vec<OsString>) -> (Ran, Value) {
    let file = place.path("document.json");
    let _ = fs::remove_file(&file);
    let ran = place.run([arguments, args!["-o", &file]].concat());
    assert!(matches!(ran.code, Some(0 | 1)), "{kind}: {}", ran.said());
    assert!(!ran.text().is_empty() && serde_json::from_slice::<Value>(&ran.stdout).is_err(), "{kind}: {}", ran.text());
    let written = document(&file);
    assert_eq!(written["schema"], format!("granulo/store-{kind}/1"));
    (ran, written)
}

#[test]
fn every_command_writes_what_it_prints_as_json() {
    let place = Place::new(2, 3, &[]);
    let (home, tree) = (&place.home, place.path("tree"));
    fs::create_dir_all(tree.join("d")).unwrap();
    for (name, seed, length) in [("small", 1, 1000), ("other", 2, 2000), ("large", 3, 300_000), ("fresh", 4, 1500)] {
        fs::write(tree.join("d").join(name), bytes(seed, length)).unwrap();
    }
    granulo::store::Store::open(home).unwrap().pin("pin").unwrap();
    for (kind, arguments) in [
        ("init", args!["init", place.path("another")]),
        ("import", args!["import", home, &tree, "--dry-run"]),
        ("import", args!["import", home, &tree]),
        ("put", args!["put", home, "one", tree.join("d/small")]),
        ("cp", args!["cp", home, "one", "two"]),
        ("mv", args!["mv", home, "two", "three"]),
        ("ln", args!["ln", home, "one", "four"]),
        ("ls", args!["ls", home, "-R", "-l"]),
        ("ls", args!["ls", home, "one"]),
        ("stat", args!["stat", home, "one"]),
        ("snapshot-create", args!["snapshot", "create", home, "monday"]),
        ("rm", args!["rm", home, "three", "--dry-run"]),
        ("rm", args!["rm", home, "three"]),
        ("put", args!["put", home, "one", tree.join("d/large")]),
        ("log", args!["log", home, "one"]),
        ("snapshot-diff", args!["snapshot", "diff", home, "monday"]),
        ("snapshot-ls", args!["snapshot", "ls", home]),
        ("export", args!["export", home, place.path("exported")]),
        ("load", args!["load", home]),
        ("status", args!["status", home, "--count"]),
        ("clone", args!["clone", home, place.path("copy")]),
        ("push", args!["push", home, place.path("copy")]),
        ("pull", args!["pull", place.path("copy"), home]),
        ("snapshot-rm", args!["snapshot", "rm", home, "monday"]),
        ("unpin", args!["unpin", home, "pin"]),
        ("compact", args!["compact", home, "--all", "--dry-run"]),
        ("compact", args!["compact", home, "--all"]),
        ("rebalance", args!["rebalance", home]),
        ("check", args!["check", home, "--deep"]),
        ("check", args!["check", home, "--rebuild-index"]),
        ("scrub", args!["scrub", home]),
        ("repair", args!["repair", home]),
    ] {
        writes(&place, kind, arguments);
    }

    let content = bytes(5, 1500);
    fs::write(tree.join("damaged"), &content).unwrap();
    writes(&place, "put", args!["put", home, "damaged", tree.join("damaged")]);
    let (path, at) = find(&place.devices[1].join("segments"), &content).unwrap();
    flip(&path, at + 700);
    let found = writes(&place, "check", args!["check", home, "--deep"]);
    assert_eq!((&found["repairable"], &found["problems"][0]["device"]), (&1.into(), &1.into()));
    let planned = writes(&place, "repair", args!["repair", home, "--dry-run"]);
    let repaired = writes(&place, "repair", args!["repair", home]);
    assert_eq!((&planned["done"], &repaired["done"], &repaired["repaired"]), (&false.into(), &true.into(), &1.into()));

    fs::remove_dir_all(&place.devices[3]).unwrap();
    let rebuild = args!["rebuild", home, "--device", "3", "--onto", place.path("new")];
    let planned = writes(&place, "rebuild", [rebuild.clone(), args!["--dry-run"]].concat());
    assert_eq!(planned["home"], place.home.to_str().unwrap());
    let rebuilt = writes(&place, "rebuild", rebuild);
    assert_eq!((&planned["done"], &rebuilt["done"], &rebuilt["complete"]), (&false.into(), &true.into(), &true.into()));
}

#[test]
fn text_stays_beside_the_file() {
    let mut place = Place::new(2, 0, &[]);
    place.import(20, 0);
    place.run(args!["snapshot", "create", &place.home, "monday"]).ended(0);
    let (one, other) = (bytes(5, 1500), bytes(6, 1500));
    place.put("damaged", &one).ended(0);
    place.put("other", &other).ended(0);
    let (path, at) = find(&place.devices[1].join("segments"), &one).unwrap();
    flip(&path, at + 700);
    let home = &place.home;
    for (kind, arguments) in [
        ("check", args!["check", home, "--deep"]),
        ("ls", args!["ls", home]),
        ("ls", args!["ls", home, "-R", "-l"]),
        ("ls", args!["ls", home, "other"]),
        ("snapshot-ls", args!["snapshot", "ls", home]),
        ("snapshot-diff", args!["snapshot", "diff", home, "monday"]),
        ("stat", args!["stat", home, "other"]),
        ("log", args!["log", home, "other"]),
    ] {
        let alone = place.run(arguments.clone());
        let (ran, _) = writes_and_says(&place, kind, arguments);
        assert_eq!((ran.code, ran.text(), ran.said()), (alone.code, alone.text(), alone.said()));
    }
    // How full the devices are may change meanwhile.
    let (_, status) = writes_and_says(&place, "status", args!["status", home]);
    assert!(status["segment_ages"].is_array(), "{status}");
    let (ran, found) = writes_and_says(&place, "check", args!["check", home, "--deep"]);
    assert_eq!((ran.code, &found["repairable"]), (Some(1), &1.into()));
    assert!(ran.text().starts_with("repairable: ") && found["problems"][0]["cause"].is_string(), "{}", ran.text());
    let (ran, found) = writes_and_says(&place, "scrub", args!["scrub", home]);
    assert_eq!((ran.code, &found["problems"][0]["repaired"]), (Some(1), &true.into()));
    assert!(ran.text().starts_with("repaired: "), "{}", ran.text());
}

#[test]
fn a_damaged_record_is_reported_once_and_the_list_is_written_nevertheless() {
    let (sandbox, home) = store();
    let [tree, file, page] = ["tree", "list.json", "list.html"].map(|name| sandbox.path().join(name));
    let target = "where-the-damaged-link-leads-to";
    fs::create_dir(&tree).unwrap();
    symlink(target, tree.join("link")).unwrap();
    on("import", &home, [&tree]).ended(0);
    put(&home, "later", b"later");
    let (path, at) = find(&home.join("segments"), target.as_bytes()).unwrap();
    flip(&path, at + 3);
    let alone = on("ls", &home, ["-l"]).ended(1);
    let ran = on("ls", &home, args!["-l", "-o", &file]).ended(1);
    assert_eq!((ran.text(), ran.said()), (alone.text(), alone.said()));
    let paged = on("ls", &home, args!["-l", "-o", &file, "--report", &page]).ended(1);
    assert_eq!(paged.text(), alone.text());
    assert_eq!(data(&page)["document"]["tables"][0]["row_count"], 2);
    for ran in [ran, paged] {
        assert_eq!(ran.said().matches("granulo: error: ").count(), 1, "{}", ran.said());
    }
    let entries = document(&file)["entries"].clone();
    assert_eq!((&entries[1]["name"], &entries[1]["target"]), (&"link".into(), &Value::Null));
    assert_eq!(entries[0]["name"], "later");
}

#[test]
fn a_list_that_fails_leaves_the_file_as_it_was() {
    let (sandbox, home) = store();
    let file = sandbox.path().join("list.json");
    put(&home, "key", b"content");
    complains(&on("ls", &home, args!["missing", "-o", &file]).ended(2), &["no such key"]);
    assert!(!file.exists());
    // A file that cannot be written is known before anything is done.
    let nowhere = sandbox.path().join("nowhere/list.json");
    for option in ["-o", "--report"] {
        let ran = on("ls", &home, args![option, &nowhere]).ended(2);
        assert_eq!(ran.text(), "");
        complains(&ran, &["nowhere"]);
        let ran = on("put", &home, args!["new", &home.join("superblock"), option, &nowhere]).ended(2);
        assert!(ran.said().contains("nowhere"), "{}", ran.said());
    }
    let ran = on("put", &home, args!["new", &home.join("superblock"), "-o", &file, "--report", &file]).ended(2);
    complains(&ran, &["two results would be written to", "list.json"]);
    assert!(!file.exists());
    assert_eq!(on("ls", &home, [""; 0]).ended(0).text(), "key\n");
}

#[test]
fn an_error_replaces_the_last_result() {
    let sandbox = sandbox();
    let [nothing, file, page] = ["nothing", "f.json", "f.html"].map(|name| sandbox.path().join(name));
    fs::create_dir(&nothing).unwrap();
    for command in ["check", "scrub", "status"] {
        for file in [&file, &page] {
            fs::write(file, "of yesterday").unwrap();
        }
        let ran = on(command, &nothing, args!["-o", &file, "--report", &page]).ended(2);
        assert_eq!(ran.text(), "");
        assert_eq!(data(&page)["document"]["kind"], "Store error");
        let error = document(&file);
        assert_eq!((&error["schema"], &error["command"]), (&"granulo/store-error/1".into(), &command.into()));
        assert!(ran.said().contains(error["error"]["message"].as_str().unwrap()), "{error}");
        fs::write(&file, "of yesterday").unwrap();
        let ran = on(command, &nothing, args!["-o", &file, "--json"]).ended(2);
        assert!(fs::read(&file).unwrap() == ran.stdout, "{}", ran.text());
    }
}

#[test]
fn a_result_that_was_written_stays_where_it_cannot_be_printed() {
    if !Path::new("/dev/full").exists() {
        return skip("there is no /dev/full");
    }
    let (sandbox, home) = store();
    let [file, page] = ["f.json", "f.html"].map(|name| sandbox.path().join(name));
    put(&home, "key", b"content that is damaged");
    let (path, at) = find(&home.join("segments"), b"is damaged").unwrap();
    let fails = |command: &str, more: &[&str]| {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let arguments = args!["store", command, &home, "-o", &file, "--report", &page];
        let ran = finish(granulo().args(arguments).args(more).stdout(full)).ended(2);
        complains(&ran, &["standard output", "No space left on device"]);
        assert_ne!(data(&page)["document"]["kind"], "Store error");
        let written = document(&file);
        assert_eq!(written["schema"], format!("granulo/store-{command}/1"), "{written}");
        written
    };
    for command in ["check", "scrub", "status"] {
        fails(command, &[]);
        fails(command, &["--json"]);
    }
    // What was found, too, of which every line is printed at once.
    flip(&path, at);
    assert!(fails("check", &["--deep"])["problems"][0]["cause"].is_string());
}

#[test]
fn the_sides_of_a_store_have_a_page() {
    let (sandbox, home) = store();
    let page = sandbox.path().join("sides.html");
    let listed = on("salvage", &home, [""; 0]).ended(0);
    let ran = on("salvage", &home, args!["--report", &page]).ended(0);
    assert_eq!(ran.text(), listed.text());
    assert_eq!(data(&page)["document"]["kind"], "Store salvage");
    let sides = on("salvage", &home, ["--json"]).ended(0).json();
    let (device, tree) = (sides["sides"][0]["devices"][0].to_string(), sandbox.path().join("tree"));
    on("salvage", &home, args!["--side", device, "-o", &tree, "--quiet", "--report", &page]).ended(0);
    assert_eq!(data(&page)["document"]["kind"], "Store export");
}
