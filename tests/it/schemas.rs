//! The JSON Schemas in docs/schema: documents of every kind, in many shapes, are valid, and have no field that their
//! schema does not know. Their commands are in tests/data/documents.txt.
//!
//! Readers ignore unknown fields, and so do the schemas. Here they are closed first: a field that is new in a document
//! must be in the schema and in docs/SCHEMA.md. It is not `required` there, because documents of the same major version
//! that were written before remain valid.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use granulo::testing::bench::file_systems::FileSystemKind;
use jsonschema::Validator;
use rustix::process::Signal;
use serde_json::{Map, Value, json};

use crate::args;
use crate::bench_cache::can_limit;
use crate::bench_harness::{can_make, signalled};
use crate::growth::date;
use crate::harness::{files_below, has_program, in_mount_namespace, run, sandbox, skip, source_tree, write_file};
use crate::nasty::nasty_tree;
use crate::store_place::{Place, files, flip};

/// Every schema, by the beginning of its file's name: `survey-1`.
fn schemas() -> BTreeMap<String, Value> {
    let read = |path: &Path| {
        let name = path.file_name().unwrap().to_str().unwrap().strip_suffix(".schema.json").unwrap().to_owned();
        let schema: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
        assert_eq!(schema["$id"], format!("{name}.schema.json"));
        (name, schema)
    };
    files_below(&source_tree().join("docs/schema"), "json").iter().map(|path| read(path)).collect()
}

fn page() -> String {
    fs::read_to_string(source_tree().join("docs/SCHEMA.md")).unwrap()
}

/// The schema of `granulo/KIND/MAJOR`: one for all kinds of a store.
fn name_of(kind: &str) -> String {
    let (kind, major) = kind.strip_prefix("granulo/").unwrap().split_once('/').unwrap();
    format!("{}-{major}", if kind.starts_with("store-") { "store" } else { kind })
}

/// Every schema within a schema, with those in `if`.
fn within<'s>(schema: &'s Value, found: &mut Vec<&'s Map<String, Value>>) {
    match schema {
        Value::Array(items) => items.iter().for_each(|item| within(item, found)),
        Value::Object(fields) => {
            found.push(fields);
            fields.values().for_each(|field| within(field, found));
        }
        _ => {}
    }
}

/// Refuses what is not listed, everywhere but in `if`, which selects.
fn close_all(schema: &mut Value) {
    match schema {
        Value::Array(items) => items.iter_mut().for_each(close_all),
        Value::Object(fields) => {
            fields.iter_mut().filter(|(name, _)| *name != "if").for_each(|(_, field)| close_all(field));
            let is_extended = fields.contains_key("allOf");
            if is_extended || fields.contains_key("properties") {
                let rule = if is_extended { "unevaluatedProperties" } else { "additionalProperties" };
                fields.insert(rule.to_owned(), false.into());
            }
        }
        _ => {}
    }
}

/// The same schema for documents without unknown fields. Parts that others extend (`allOf`) are closed by these.
fn closed(schema: &Value) -> Value {
    let (mut all, mut closed) = (Vec::new(), schema.clone());
    within(schema, &mut all);
    close_all(&mut closed);
    let parts = all.iter().filter_map(|fields| fields.get("allOf")?.as_array()).flatten();
    for part in parts.filter_map(|part| part["$ref"].as_str()?.strip_prefix("#/$defs/")) {
        let open = closed["$defs"][part].as_object_mut().unwrap();
        open.remove("additionalProperties");
        open.remove("unevaluatedProperties");
    }
    closed
}

/// Validators of closed schemas, and the kinds of the documents that were valid.
struct Checker {
    validators: BTreeMap<String, Validator>,
    seen: BTreeSet<String>,
}

impl Checker {
    fn new() -> Checker {
        let compile = |(name, schema): (String, Value)| {
            let validator = jsonschema::draft202012::new(&closed(&schema));
            (name.clone(), validator.unwrap_or_else(|error| panic!("{name}: {error}")))
        };
        Checker { validators: schemas().into_iter().map(compile).collect(), seen: BTreeSet::new() }
    }

    /// What is wrong with a document, the first few.
    fn faults(&self, document: &Value) -> Vec<String> {
        let kind = document["schema"].as_str().unwrap();
        let validator = self.validators.get(&name_of(kind)).unwrap_or_else(|| panic!("{kind} has no schema"));
        let faults = validator.iter_errors(document).take(5);
        faults.map(|fault| format!("{}: {fault}", fault.instance_path())).collect()
    }

    #[track_caller]
    fn check(&mut self, document: &Value, what: &str) {
        let kind = document["schema"].as_str().unwrap();
        let faults = self.faults(document);
        assert!(faults.is_empty(), "{what}: {kind}: {faults:#?}");
        self.seen.insert(kind.to_owned());
    }

    /// Checks what a command prints, whether all went well or not.
    #[track_caller]
    fn prints(&mut self, arguments: &[OsString]) -> Value {
        let ran = run(arguments);
        let code = ran.code.filter(|code| *code < 2);
        let ran = ran.ended(code.unwrap_or(0));
        let document = ran.json();
        self.check(&document, &format!("{arguments:?}"));
        assert_eq!(document["granulo_version"], env!("CARGO_PKG_VERSION"), "{arguments:?}");
        document
    }

    /// Runs the commands of a section of tests/data/documents.txt with `--json`; `@NAME` is in `directory`.
    #[track_caller]
    fn script(&mut self, directory: &Path, section: &str) {
        let script = fs::read_to_string(source_tree().join("tests/data/documents.txt")).unwrap();
        let (_, script) = script.split_once(&format!("[{section}]\n")).unwrap();
        for line in script.lines().take_while(|line| !line.is_empty()) {
            let word = |word: &str| match word.strip_prefix('@') {
                Some(name) => directory.join(name).into_os_string(),
                None => word.into(),
            };
            let mut arguments: Vec<OsString> = line.split(' ').map(word).collect();
            if !line.contains(" --json ") {
                arguments.push("--json".into());
            }
            self.prints(&arguments);
        }
    }
}

fn surveys(checker: &mut Checker, at: &Path) {
    fs::create_dir_all(at.join("empty")).unwrap();
    fs::create_dir_all(at.join("history")).unwrap();
    nasty_tree(&at.join("tree"), 1 << 20);
    let [old, file] = ["old.json", "tree/removed.log"].map(|name| at.join(name));
    write_file(&file, 9000);
    run(args!["survey", at.join("tree"), "-o", &old]);
    for day in 0..4u8 {
        let copy = at.join(format!("history/{day}.json"));
        fs::copy(&old, &copy).unwrap();
        date(&copy, 9 - 3 * i64::from(day), 1_000_000 * u64::from(day + 1));
    }
    date(&old, 10, 0);
    fs::remove_file(&file).unwrap();
    write_file(at.join("tree/added/file.bin"), 70_000);
    for part in ["1", "2"] {
        let (shard, file) = (format!("{part}/2"), at.join(format!("part{part}.json")));
        run(args!["survey", at.join("tree"), "--shard", shard, "-o", file]);
    }
    fs::copy(source_tree().join("tests/data/fsstats/complete.csv"), at.join("fsstats.csv")).unwrap();
    for (name, text) in [
        ("buckets.csv", "min,max,count\n0,0,2\n1,1024,8\n"),
        // Sums beyond 64 bits.
        ("wide.txt", "9223372036854775807\n9223372036854775807\n9223372036854775807\n"),
        ("ncdu.json", r#"[1,2,{},[{"name":"/t","dsize":4096},{"name":"a","asize":5,"dsize":4096}]]"#),
    ] {
        fs::write(at.join(name), text).unwrap();
    }
    checker.script(at, "surveys");
}

fn inode_scans(checker: &mut Checker, at: &Path) {
    if !has_program("mke2fs") {
        return skip("there is no mke2fs");
    }
    let source = at.join("tree/sizes");
    let made = args!["-F", "-q", "-t", "ext4", "-L", "label", "-d", source, at.join("image"), "32M"];
    assert!(std::process::Command::new("mke2fs").args(made).status().unwrap().success());
    checker.script(at, "inode scans");
}

fn traces(checker: &mut Checker, at: &Path) {
    let mut text = "7 1700000000.0 openat(AT_FDCWD</w>, \"a\", O_RDWR|O_CREAT, 0644) = 3</w/a> <0.00001>\n".to_owned();
    for second in 0..100 {
        text += &format!("7 17000001{second:02}.0 read(3</w/a>, \"\"..., 4000) = 4000 <0.00001>\n");
        text += &format!("7 17000001{second:02}.5 write(3</w/a>, \"\"..., 500) = 500 <0.00002>\n");
    }
    fs::write(at.join("copy.strace"), format!("{text}7 1700000300.0 close(3</w/a>) = 0 <0.1>\n")).unwrap();
    let odd =
        "nonsense\n7 1700000001.0 open(\"x\", 0) = -1 ENOENT <0.1>\n7 1700000900.0 frobnicate(3</w/a>) = 0 <0.1>\n";
    fs::write(at.join("odd.strace"), text + odd).unwrap();
    fs::write(at.join("ops.csv"), "1,R,f,0,4096\n2,W,f,4096,10\n3,R,g,0,7\n").unwrap();
    let darshan = fs::read_to_string(source_tree().join("tests/data/traces/darshan-small.txt")).unwrap();
    fs::write(at.join("darshan.txt"), format!("# darshan log version: 3.41\n{darshan}")).unwrap();
    fs::copy(source_tree().join("benchmarks/runs/2026-11-21-bench/cache.json"), at.join("measured.json")).unwrap();
    checker.script(at, "traces");
}

const PRICES: &str = r#"
currency = "EUR"
fast = [{ name = "flash", size = "1GiB", price = 10 }]
slow = [{ name = "disk", size = "10GiB", price = 5 }]
object = [{ class = "standard", per_gib_month = 0.02, per_1000_requests = 0.01, per_1000_reads = 0.001 }]
"#;

const MODELS: &str = "block ext2 ext3 ext4 xfs btrfs ntfs fat exfat panfs zfs ceph lustre hdfs minio s3 granulo";

fn plans(checker: &mut Checker, at: &Path) {
    fs::write(at.join("prices.toml"), PRICES).unwrap();
    fs::write(at.join("zero.txt"), "0\n0\n").unwrap();
    fs::write(at.join("plan.json"), checker.prints(&args!["plan", "vu-1984", "--json"]).to_string()).unwrap();
    for model in MODELS.split(' ') {
        checker.prints(&args!["allocate", "--json", model, "0", "70000", "18446744073709551615"]);
    }
    checker.script(at, "plans");
}

fn benches(checker: &mut Checker, at: &Path) {
    checker.script(at, "benches");
    let place = at.join("place");
    let entries = || fs::read_dir(&place).into_iter().flatten().flatten();
    let begun = || entries().any(|entry| entry.path().join("files/file-50").exists());
    let arguments = args!["create", &place, "--files", "200000", "--rounds", "1", "--quiet", "--json"];
    let interrupted = signalled(arguments, Signal::INT, begun).ended(1).json();
    assert_eq!(interrupted["complete"], false);
    checker.check(&interrupted, "interrupted");
}

fn stores(checker: &mut Checker) {
    let place = Place::new(2, 4, &[]);
    filled(checker, &place);
    fs::remove_dir_all(&place.devices[5]).unwrap();
    checker.script(place.sandbox.path(), "a store without one of its slow devices");
    (0..2).for_each(|device| fs::remove_dir_all(&place.devices[device]).unwrap());
    checker.script(place.sandbox.path(), "a store without a device with records");

    let place = Place::new(0, 0, &["--compress", "zstd:3", "--align", "512"]);
    checker.script(place.sandbox.path(), "new stores");
    filled(checker, &place);
    let length = |path: &PathBuf| fs::metadata(path).unwrap().len();
    let largest = files(&place.home.join("segments")).into_iter().max_by_key(length).unwrap();
    (length(&largest) / 3..length(&largest)).step_by(3000).for_each(|at| flip(&largest, at));
    checker.script(place.sandbox.path(), "a store with a damaged segment");

    let place = Place::new(2, 0, &[]);
    let (one, other) = (&place.devices[0], &place.devices[1]);
    let (away, kept) = (place.path("away"), place.path("kept"));
    let put = args!["store", "put", &place.home, "key", source_tree().join("LICENSE"), "--degraded", "--json"];
    fs::rename(other, &away).unwrap();
    checker.prints(&put);
    fs::rename(one, &kept).unwrap();
    fs::rename(&away, other).unwrap();
    checker.prints(&put);
    fs::rename(&kept, one).unwrap();
    checker.script(place.sandbox.path(), "a store with two sides");
    damaged_superblock(checker);
}

/// A store that cannot be opened: each command says so in a document, too.
fn damaged_superblock(checker: &mut Checker) {
    let sandbox = sandbox();
    let home = sandbox.path().join("home");
    run(args!["store", "init", &home]).ended(0);
    let superblock = home.join("superblock");
    fs::write(&superblock, vec![0; 4096]).unwrap();
    for command in ["status", "check", "scrub"] {
        let ran = run(args!["store", command, &home, "--json"]).ended(2);
        let document = ran.json();
        checker.check(&document, command);
        assert_eq!(document["command"], command);
        assert_eq!(
            (&document["error"]["kind"], &document["completeness"]["state"]),
            (&"corrupt".into(), &"unknown".into())
        );
        assert_eq!(document["error"]["path"], superblock.to_str().unwrap(), "{document}");
        assert!(ran.said().contains(document["error"]["message"].as_str().unwrap()), "{ran:?}");
        assert_eq!(document["granulo_version"], env!("CARGO_PKG_VERSION"));
    }
}

fn filled(checker: &mut Checker, place: &Place) {
    nasty_tree(&place.path("tree"), 1 << 20);
    granulo::store::Store::open(&place.home).unwrap().pin("pin").unwrap();
    checker.script(place.sandbox.path(), "every command of a store");
}

/// Results that earlier versions wrote.
fn recorded(checker: &mut Checker) {
    let read = |path: &Path| -> Value { serde_json::from_slice(&fs::read(path).unwrap()).unwrap() };
    let found = files_below(&source_tree().join("benchmarks/runs"), "json");
    let of_granulo: Vec<Value> =
        found.iter().map(|path| read(path)).filter(|json| json["schema"].is_string()).collect();
    assert!(of_granulo.len() >= 8, "only {} results are left", of_granulo.len());
    of_granulo.iter().for_each(|document| checker.check(document, "recorded"));
}

/// Kinds that headings of docs/SCHEMA.md name.
fn documented() -> BTreeSet<String> {
    let page = page();
    let headings = page.lines().filter(|line| line.starts_with('#'));
    let words = headings.flat_map(|line| line.split([' ', ',']));
    words.filter(|word| word.starts_with("granulo/")).map(str::to_owned).collect()
}

#[test]
fn every_kind_of_document_has_a_schema_and_is_valid() {
    let mut checker = Checker::new();
    let sandbox = sandbox();
    let at = sandbox.path();
    surveys(&mut checker, at);
    inode_scans(&mut checker, at);
    traces(&mut checker, at);
    plans(&mut checker, at);
    benches(&mut checker, at);
    stores(&mut checker);
    assert_eq!(checker.seen, documented());
    recorded(&mut checker);
    let kinds = |schema: &Value| match &schema["properties"]["schema"] {
        of if of["const"].is_string() => vec![of["const"].clone()],
        of => of["enum"].as_array().unwrap().clone(),
    };
    let kinds: Vec<Value> = schemas().values().flat_map(kinds).collect();
    let kinds: BTreeSet<String> = kinds.iter().map(|kind| kind.as_str().unwrap().to_owned()).collect();
    assert_eq!(kinds, documented());
}

#[test]
fn benches_of_file_systems_are_valid() {
    let (mut checker, sandbox) = (Checker::new(), sandbox());
    let fill = r#"
        mount -t tmpfs -o size=64m tmpfs "$1"
        mkdir "$1/place"
        "$GRANULO" bench fill "$1/place" --levels 30%,60% --largest 256KiB --directories 50 --small-files 50 \
            --file-size 1MiB --rounds 1 --json --quiet
    "#;
    if let Some(ran) = in_mount_namespace(fill, &args![sandbox.path()]) {
        checker.check(&ran.ended(0).json(), "bench fill");
    }
    if can_make(FileSystemKind::Ext4) && can_limit() {
        checker.script(sandbox.path(), "file systems");
    }
}

#[test]
fn what_a_schema_does_not_say_is_refused() {
    let (checker, sandbox) = (Checker::new(), sandbox());
    let [tree, home] = ["tree", "home"].map(|name| sandbox.path().join(name));
    let file = write_file(tree.join("a.txt"), 10);
    let survey = run(args!["survey", "--json", &tree]).ended(0).json();
    let init = run(args!["store", "init", "--json", &home]).ended(0).json();
    run(args!["store", "put", &home, "key", &file]).ended(0);
    let list = run(args!["store", "ls", "--json", "-l", &home]).ended(0).json();
    for (document, at, field) in [
        (&survey, "", "counts"),
        (&survey, "/counts", "files"),
        (&survey, "/where/owners/rows/0", "size_bytes"),
        (&survey, "/tree/nodes/0/own", "kind_bytes"),
        (&survey, "/distributions/file_size/buckets/0", "low"),
        (&init, "", "copies"),
        (&list, "/entries/0", "number"),
        (&list, "/completeness", "state"),
    ] {
        assert_eq!(checker.faults(document), Vec::<String>::new());
        let refused = |change: &dyn Fn(&mut Map<String, Value>)| {
            let mut changed = document.clone();
            change(changed.pointer_mut(at).unwrap().as_object_mut().unwrap());
            assert_ne!(checker.faults(&changed), Vec::<String>::new(), "{at}/{field}");
        };
        refused(&|fields| {
            let value = fields.remove(field).unwrap();
            fields.insert("renamed".to_owned(), value);
        });
        refused(&|fields| fields[field] = json!({"of": "another type"}));
        refused(&|fields| {
            fields.insert("unknown".to_owned(), 1.into());
        });
    }
    let mut other = init;
    other["schema"] = "granulo/store-put/1".into();
    assert_ne!(checker.faults(&other), Vec::<String>::new());
    // Readers ignore what is unknown, and so do the published schemas.
    let mut newer = survey;
    newer["where"]["unknown"] = 1.into();
    assert!(jsonschema::draft202012::new(&schemas()["survey-1"]).unwrap().is_valid(&newer));
}

#[test]
fn every_field_of_a_schema_is_described_here_and_in_the_page() {
    let (page, schemas) = (page(), schemas());
    let words: BTreeSet<&str> = page.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
    let mut parts = BTreeMap::new();
    for (name, schema) in &schemas {
        let mut all = Vec::new();
        within(schema, &mut all);
        for fields in all {
            assert!(!fields.contains_key("additionalProperties"), "{name} refuses what later versions add");
            for (field, of) in fields.get("properties").and_then(Value::as_object).into_iter().flatten() {
                assert!(words.contains(field.as_str()), "docs/SCHEMA.md does not name {field} of {name}");
                let is_described = ["description", "$ref", "const"].iter().any(|key| of.get(key).is_some());
                assert!(is_described, "{field} of {name} has no description");
            }
        }
        // Each file stands alone; what several of them have is the same.
        for (part, of) in schema["$defs"].as_object().into_iter().flatten() {
            assert_eq!(*parts.entry(part).or_insert(of), of, "{part} of {name} differs from that of another schema");
        }
    }
}
