//! `granulo bench pack`: every way of storing the files, on real file systems, and reports of those that are
//! impossible.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use granulo::testing::bench::file_systems::FileSystemKind;
use granulo::testing::bench::result::{CacheState, Details, Document, PackDetails, Series};
use rustix::process::Signal;
use unicode_width::UnicodeWidthStr;

use crate::args;
use crate::bench_harness::{can_make, nothing_left, signalled};
use crate::harness::{Ran, finish, granulo, granulo_as_nobody, is_root, run, sandbox};

/// Parses a result from the output.
#[track_caller]
pub fn document(ran: &Ran) -> Document {
    serde_json::from_slice(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {}", ran.said()))
}

/// Whether a file with this name exists anywhere below.
pub fn is_below(directory: &Path, name: &str) -> bool {
    let Ok(entries) = fs::read_dir(directory) else { return false };
    entries.flatten().any(|entry| {
        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        entry.file_name() == name || (is_directory && is_below(&entry.path(), name))
    })
}

/// Asserts that all lines of a text fit a terminal; a longer path is on its own line.
#[track_caller]
pub fn assert_fits(text: &str) {
    for line in text.lines().filter(|line| line.contains(' ')) {
        assert!(line.width() <= 80, "{} columns: {line}", line.width());
    }
}

fn details(document: &Document) -> &PackDetails {
    let Details::Pack(details) = &document.details else { panic!("{document:?}") };
    details
}

fn of<'d>(document: &'d Document, subject: usize, measure: &str) -> &'d Series {
    let found = document.series.iter().find(|series| series.subject == subject && series.measure == measure);
    found.unwrap_or_else(|| panic!("there is no {measure} of {subject}: {:?}", document.series))
}

fn pack<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Ran {
    finish(granulo().args(["bench", "pack", "--json"]).args(arguments))
}

#[test]
fn every_way_is_written_and_loaded_in_every_round() {
    let sandbox = sandbox();
    let place = sandbox.path().join("place");
    let ran = pack(args![&place, "--files", "1200", "--size", "3000", "--rounds", "2", "--seed", "5"]).ended(0);
    let document = document(&ran);
    assert!(document.complete && document.seed == 5);
    assert_eq!(document.subjects.len(), 1, "the store is a way, not a subject");
    let details = details(&document);
    assert_eq!((details.files, details.bytes, details.size_bytes), (1200, 3_600_000, Some(3000)));
    assert_eq!((details.population.as_str(), details.failures.len()), ("1,200 × 3,000 bytes", 0));
    assert!(details.published.is_empty() && details.checked_bytes_per_second > 1e8);
    for way in ["files", "store", "composite", "flat"] {
        for step in ["create", "sync", "load"] {
            let measure =
                if (way, step) == ("files", "load") { "files load by name" } else { &format!("{way} {step}") };
            let series = of(&document, 0, measure);
            assert_eq!((series.samples.len(), series.unit.as_str()), (2, "seconds"));
            assert!(series.samples.iter().all(|seconds| *seconds > 0.0), "{series:?}");
            let cold = if is_root() { CacheState::Cold } else { CacheState::AsIs };
            assert!(step != "load" || series.caches == cold, "{series:?}");
        }
        assert!(details.space.iter().any(|space| space.way == way && space.subject == 0), "{details:?}");
    }
    nothing_left(&sandbox, &[]);
}

#[test]
fn a_file_system_that_cannot_be_created_leaves_the_others() {
    if ![FileSystemKind::Ext4, FileSystemKind::Fat].into_iter().all(can_make) {
        return;
    }
    let sandbox = sandbox();
    // FAT12 has fewer clusters than these.
    let options = ["--fs-options", "fat=-F 12 -s 1", "--fs-size", "512MiB", "--files", "100", "--rounds", "1"];
    let pack = |fs: &str| {
        run([args!["bench", "pack", "--fs", fs, "--scratch", sandbox.path()], options.map(Into::into).to_vec()]
            .concat())
    };
    let ran = pack("fat,ext4").ended(1);
    assert!(ran.said().contains("fat -F 12 -s 1 was left out: cannot create a file system"), "{}", ran.said());
    let text = ran.text();
    assert!(text.contains("flat file") && text.contains("was left out"), "{text}");
    assert_fits(&text);
    let ran = pack("fat").ended(2);
    assert!(ran.said().contains("cannot create a file system"), "{}", ran.said());
    nothing_left(&sandbox, &[]);
}

#[test]
fn file_systems_are_compared_in_one_run() {
    let kinds =
        [FileSystemKind::Ext4, FileSystemKind::Xfs, FileSystemKind::Btrfs, FileSystemKind::Ntfs, FileSystemKind::Fat];
    if !kinds.into_iter().all(can_make) {
        return;
    }
    let sandbox = sandbox();
    let result = sandbox.path().join("result.json");
    let ran = run(args![
        "bench",
        "pack",
        "--fs",
        "ext4,xfs,btrfs,ntfs,fat",
        "--fs-size",
        "512MiB",
        "--files",
        "1100",
        "--rounds",
        "1",
        "--scratch",
        sandbox.path(),
        "-o",
        &result
    ]);
    let document: Document = serde_json::from_slice(&fs::read(&result).unwrap()).unwrap();
    let text = ran.text();
    assert_fits(&text);
    let details = details(&document);
    // granulo's store needs locks and shared memory, which not every FUSE file system has.
    assert_eq!(ran.code, Some(i32::from(!details.failures.is_empty())), "{}", ran.said());
    assert!(details.failures.iter().all(|failure| failure.way == "store" && failure.subject >= 3), "{details:?}");
    for (at, kind) in ["ext4", "xfs", "btrfs", "ntfs", "fat"].iter().enumerate() {
        assert_eq!(document.subjects[at].name, *kind);
        for measure in ["files create", "files sync", "files load by name", "composite load", "flat load"] {
            assert_eq!(of(&document, at, measure).samples.len(), 1);
        }
        assert_eq!(of(&document, at, "flat load").caches, CacheState::Cold);
        // Each order was loaded, or a note names the order that it equals.
        for order in ["as listed", "by inode"] {
            let loaded = document.series.iter().any(|s| s.subject == at && s.measure == format!("files load {order}"));
            let said = document.notes.iter().any(|n| n.starts_with(&format!("On {kind}, files {order} are the files")));
            assert!(loaded != said, "{kind} {order}: {:?}", document.notes);
        }
        let takes = |way: &str| {
            let space = details.space.iter().find(|space| space.subject == at && space.way == way);
            space.map(|space| space.allocated_bytes as f64 / details.bytes as f64)
        };
        // 20,000 bytes are five blocks of 4 KiB.
        assert!((1.0..1.3).contains(&takes("files").unwrap()), "{kind}: {details:?}");
        assert!((0.99..1.1).contains(&takes("flat").unwrap()), "{kind}: {details:?}");
        assert!(takes("files") > takes("flat"), "{kind}: {details:?}");
        assert!(text.contains(kind), "{text}");
    }
    nothing_left(&sandbox, &["result.json"]);
}

#[test]
fn sizes_come_from_any_source() {
    let sandbox = sandbox();
    let place = sandbox.path().join("place");
    let ran = pack(args![
        &place,
        "--files",
        "300",
        "--source",
        "vu-1984",
        "--rounds",
        "1",
        "--ways",
        "files,flat",
        "--orders",
        "name"
    ]);
    let document = document(&ran.ended(0));
    let details = details(&document);
    assert_eq!((details.size_bytes, details.population.as_str()), (None, "300 × sizes of vu-1984"));
    assert!(details.bytes > 300 * 1000);
    let measures: Vec<&str> = document.series.iter().map(|series| series.measure.as_str()).collect();
    assert_eq!(measures.len(), 6, "{measures:?}");
    assert!(!measures.iter().any(|measure| measure.starts_with("store")), "{measures:?}");
    nothing_left(&sandbox, &[]);
}

#[test]
fn what_the_source_measured_stands_beside() {
    let sandbox = sandbox();
    if !can_make(FileSystemKind::Ext4) {
        return;
    }
    let ran = run(args![
        "bench",
        "pack",
        "--fs",
        "ext4",
        "--rounds",
        "1",
        "--ways",
        "store,flat",
        "--scratch",
        sandbox.path()
    ])
    .ended(0);
    let text = ran.text();
    for words in ["50,000 × 20,000 bytes", "paper: Ubuntu 12", "63.4 s versus 35.5 s", "1.78 x", "granulo store"] {
        assert!(text.contains(words), "'{words}' is not in:\n{text}");
    }
    assert!(!text.contains("Windows"), "{text}");
    assert_fits(&text);
    nothing_left(&sandbox, &[]);
}

#[test]
fn what_there_is_no_room_for_is_refused_before() {
    let sandbox = sandbox();
    if ![FileSystemKind::Fat, FileSystemKind::Xfs].into_iter().all(can_make) {
        return;
    }
    // Blocks as large as the clusters of the source: three times the bytes. (On xfs: fusefat does not report the size
    // of clusters.)
    for (kind, options, files, words) in
        [("xfs", "xfs=-b size=65536", "8000", "blocks of 64 KiB"), ("fat", "fat=", "40000", "there is space for")]
    {
        let ran = pack(args![
            "--fs",
            kind,
            "--fs-size",
            "512MiB",
            "--fs-options",
            options,
            "--files",
            files,
            "--scratch",
            sandbox.path()
        ])
        .ended(2);
        assert!(ran.said().contains(words) && ran.said().contains("--fs-size"), "{}", ran.said());
        nothing_left(&sandbox, &[]);
    }
}

#[test]
fn wrong_requests_are_refused_before_anything_is_done() {
    let sandbox = sandbox();
    let place = sandbox.path().join("place");
    for (arguments, words) in [
        (args!["--files", "10"], "no target to measure"),
        (args![&place, "--files", "0"], "--files"),
        (args![&place, "--files", "1000000000", "--size", "1TiB"], "pack so many bytes"),
        (args![&place, "--ways", "files,files"], "repeats a value"),
        (args![&place, "--ways", "tar"], "tar"),
        (args![&place, "--orders", "size"], "size"),
        (args![&place, "--source", "vu-1066"], "vu-1066"),
        (args![&place, "--source", "vu-2005", "--size", "1"], "--size"),
        (args![&place, "--emulate", "hdd"], "--fs"),
    ] {
        let ran = run([args!["bench", "pack"], arguments].concat()).ended(2);
        assert!(ran.said().contains(words), "{}", ran.said());
        nothing_left(&sandbox, &[]);
    }
}

#[test]
fn an_interrupted_run_keeps_what_it_has() {
    let sandbox = sandbox();
    let place = sandbox.path().join("place");
    let arguments =
        args!["pack", &place, "--files", "400000", "--size", "100", "--ways", "flat,files", "--json", "--quiet"];
    // The flat file is complete once there are files.
    let ran = signalled(arguments, Signal::INT, || is_below(&place, "05")).ended(1);
    let document = document(&ran);
    assert!(!document.complete && ran.said().contains("interrupted"), "{}", ran.said());
    assert_eq!(of(&document, 0, "flat load").samples.len(), 1);
    assert!(!document.series.iter().any(|series| series.measure == "files create"));
    nothing_left(&sandbox, &[]);
}

#[test]
fn without_root_everything_but_cold_caches_works() {
    let sandbox = sandbox();
    let place = sandbox.path().join("place");
    fs::create_dir(&place).unwrap();
    fs::set_permissions(&place, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let Some(mut command) = granulo_as_nobody(&sandbox) else { return };
    let ran = finish(command.args(args!["bench", "pack", &place, "--files", "200", "--rounds", "1", "--json"]));
    let document = document(&ran.ended(0));
    assert!(document.series.iter().all(|series| series.caches == CacheState::AsIs));
    assert!(document.notes.iter().any(|note| note.contains("could not be dropped")), "{:?}", document.notes);
    assert_eq!(fs::read_dir(&place).unwrap().count(), 0);
}
