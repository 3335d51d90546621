//! `granulo bench fill`: levels that are reached and kept, by the figures of the file system; tests at each; nothing
//! left.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use granulo::population::SizeLaw;
use granulo::progress::Progress;
use granulo::testing::bench::file_systems::{FileSystemKind, FileSystemSpec};
use granulo::testing::bench::fill::{FillRequest, Filling, Test, fill};
use granulo::testing::bench::place::{Besides, Place};
use granulo::testing::bench::result::{CacheState, Details, Document, FillDetails, Series};
use granulo::testing::bench::run::{Request, Run};
use rustix::process::Signal;

use crate::args;
use crate::bench_harness::{can_make, nothing_left, signalled};
use crate::bench_pack::{assert_fits, document, is_below};
use crate::harness::{finish, granulo_as_nobody, in_mount_namespace, is_root, run, sandbox, skip};

const MIB: u64 = 1 << 20;
/// Largest difference of a level from what was requested; docs/METHOD.md.
const TOLERANCE: f64 = 0.01;

fn details(document: &Document) -> &FillDetails {
    let Details::Fill(details) = &document.details else { panic!("{document:?}") };
    details
}

fn of(document: &Document, subject: usize, test: Test) -> Vec<&Series> {
    let is_it = |series: &&Series| series.subject == subject && series.measure == test.name();
    document.series.iter().filter(is_it).collect()
}

/// Asserts that every level was reached within the tolerance, and was unchanged at its end.
#[track_caller]
fn assert_levels(document: &Document, subjects: usize, levels: &[f64]) {
    let details = details(document);
    for subject in 0..subjects {
        let rows: Vec<_> = details.reached.iter().filter(|row| row.subject == subject).collect();
        assert_eq!(rows.iter().map(|row| row.level).collect::<Vec<_>>(), levels, "{details:?}");
        for row in rows {
            assert!((row.reached - row.level).abs() <= TOLERANCE, "{row:?}");
            assert!((row.after - row.reached).abs() <= TOLERANCE, "{row:?}");
            assert!(row.files > 0 && row.bytes > 0, "{row:?}");
        }
    }
}

const SMALL: [&str; 12] = [
    "--largest",
    "1MiB",
    "--directories",
    "300",
    "--small-files",
    "300",
    "--file-size",
    "4MiB",
    "--repeats",
    "2",
    "--seed",
    "3",
];

#[test]
fn levels_are_reached_and_tested_on_every_file_system() {
    let kinds = [FileSystemKind::Ext4, FileSystemKind::Xfs, FileSystemKind::Btrfs, FileSystemKind::Ntfs];
    if !kinds.into_iter().all(can_make) {
        return;
    }
    let sandbox = sandbox();
    let result = sandbox.path().join("result.json");
    let mut arguments = args![
        "bench",
        "fill",
        "--fs",
        "ext4,xfs,btrfs,ntfs",
        "--fs-size",
        "400MiB",
        "--levels",
        "40%,85%",
        "--scratch",
        sandbox.path(),
        "-o",
        &result
    ];
    arguments.extend(SMALL.map(Into::into));
    let ran = run(arguments).ended(0);
    assert!(ran.said().contains("to fill up, and timing 112 tests"), "{}", ran.said());
    let document: Document = serde_json::from_slice(&fs::read(&result).unwrap()).unwrap();
    assert_levels(&document, 4, &[0.4, 0.85]);
    let details = details(&document);
    assert_eq!(details.left_out, []);
    for subject in 0..4 {
        for test in Test::ALL {
            let series = of(&document, subject, test);
            assert_eq!(series.iter().map(|series| series.level).collect::<Vec<_>>(), [0.4, 0.85].map(Some));
            for series in series {
                assert_eq!((series.samples.len(), series.caches), (2, CacheState::Cold));
                assert!(series.samples.iter().all(|seconds| *seconds > 0.0), "{series:?}");
            }
        }
        let device: Vec<&Series> =
            document.series.iter().filter(|s| s.subject == subject && s.measure == "device read").collect();
        assert_eq!((device.len(), device[0].unit.as_str(), device[0].samples.len()), (1, "bytes/s", 2));
        assert!(device[0].spread.median > 1e6, "{device:?}");
        let rows: Vec<_> = details.reached.iter().filter(|row| row.subject == subject).collect();
        for pair in rows.windows(2) {
            // The bytes added match the rise of the level.
            let whole = (pair[1].bytes - pair[0].bytes) as f64 / (pair[1].reached - pair[0].reached);
            assert!((0.75..1.05).contains(&(whole / (400 * MIB) as f64)), "{pair:?}");
            assert!(pair[1].deleted > pair[0].deleted, "{pair:?}");
        }
        let created = rows[1].files + rows[1].deleted;
        assert_eq!(rows[1].deleted, created / 10, "{rows:?}");
        // FIEMAP needs a file system of the kernel.
        let asked = document.subjects[subject].file_system.kind != "fuseblk";
        assert_eq!(rows[1].extents_per_file.is_some(), asked, "{rows:?}");
        assert!(rows[1].extents_per_file.is_none_or(|extents| extents >= 1.0), "{rows:?}");
    }
    assert_fits(&ran.text());
    // Line breaks do not matter.
    let text = ran.text().split_whitespace().collect::<Vec<_>>().join(" ");
    for words in [
        "weighted by e^(6(x-1))",
        "one random file deleted for every 10",
        "Each test from the lowest",
        "Fill levels reached",
    ] {
        assert!(text.contains(words), "'{words}' is not in:\n{}", ran.text());
    }
    nothing_left(&sandbox, &["result.json"]);
}

/// Sizes and allocated bytes of the files below a directory, and their number.
fn totals(directory: &Path) -> (u64, u64, u64) {
    let mut sums = (0, 0, 0);
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let found = entry.metadata().unwrap();
        let (size, allocated, files) =
            if found.is_dir() { totals(&entry.path()) } else { (found.len(), found.blocks() * 512, 1) };
        sums = (sums.0 + size, sums.1 + allocated, sums.2 + files);
    }
    sums
}

#[test]
fn totals_agree_with_what_the_file_system_says() {
    if !can_make(FileSystemKind::Ext4) {
        return;
    }
    let sandbox = sandbox();
    let request = Request { command_line: Vec::new(), seed: 1, scratch: sandbox.path().to_owned() };
    let mut run = Run::begin(request).unwrap();
    let spec = FileSystemSpec::new(FileSystemKind::Ext4, 256 * MIB);
    let places = run.prepare(&[Place::FileSystem(spec)], Besides::default()).unwrap();
    let directory: PathBuf = places[0].directory().to_owned();
    let level = |directory: &Path| {
        let found = rustix::fs::statvfs(directory).unwrap();
        let used = found.f_blocks - found.f_bfree;
        (used * found.f_frsize, used as f64 / (used + found.f_bavail) as f64)
    };
    let empty = level(&directory).0;
    let asked = FillRequest {
        levels: vec![0.3, 0.7],
        filling: Filling {
            sizes: SizeLaw { k: 4.0, min_bytes: 1024, max_bytes: MIB },
            delete_every: 10,
            flush_every: 50,
        },
        is_random: true,
        repeats: 1,
        directories: 100,
        file_bytes: MIB,
        small_files: 100,
        small_bytes: 100,
    };
    // Observed from outside, when the first test of a level begins.
    let seen: Arc<Mutex<Vec<(f64, u64, u64)>>> = Arc::default();
    let phases: Mutex<Vec<String>> = Mutex::default();
    let (observed, filled) = (seen.clone(), directory.clone());
    let progress = Progress::observed(move |progress| {
        let (phase, mut phases) = (progress.snapshot().stage.name, phases.lock().unwrap());
        if phase.ends_with(Test::CreateDirectories.name()) && !phases.contains(&phase) {
            phases.push(phase);
            let (size, allocated, files) = totals(&filled.join("fill"));
            let (used, fill) = level(&filled);
            let counted = used - empty;
            // The difference is directories, and blocks of extent trees.
            assert!(counted >= allocated && counted - allocated < allocated / 50, "{counted} {allocated}");
            observed.lock().unwrap().push((fill, size, files));
        }
    });
    let announced = AtomicBool::new(false);
    let announce = |estimate: granulo::testing::bench::fill::Estimate| {
        assert!(estimate.seconds > 0.0 && estimate.tests == 14 && estimate.fill_bytes > 100 * MIB, "{estimate:?}");
        announced.store(true, std::sync::atomic::Ordering::Relaxed);
    };
    let document = fill(&asked, run, places, &progress, &announce).unwrap();
    assert!(announced.into_inner());
    assert_levels(&document, 1, &[0.3, 0.7]);
    let seen = seen.lock().unwrap().clone();
    assert_eq!(seen.len(), 2);
    for (row, (fill, size, files)) in details(&document).reached.iter().zip(seen) {
        assert!((row.reached - fill).abs() < 0.001, "{row:?} {fill}");
        assert_eq!((row.bytes, row.files), (size, files), "{row:?}");
    }
    nothing_left(&sandbox, &[]);
}

#[test]
fn a_store_is_filled_and_tested_too() {
    if !can_make(FileSystemKind::Ext4) {
        return;
    }
    let sandbox = sandbox();
    let mut arguments = args![
        "bench",
        "fill",
        "--fs",
        "ext4",
        "--store",
        "--fs-size",
        "512MiB",
        // At the last level, the live data does not fit a second time: nothing can be compacted.
        "--levels",
        "20%,40%,60%",
        "--content",
        "random",
        "--json",
        "--quiet",
        "--scratch",
        sandbox.path(),
        // Large objects, whose deletion leaves space that compaction frees.
        "--largest",
        "6MiB"
    ];
    arguments.extend(SMALL[2..].iter().map(Into::into));
    let ran = run(arguments).ended(0);
    assert_eq!(ran.said(), "");
    let document = document(&ran);
    assert_levels(&document, 1, &[0.2, 0.4, 0.6]);
    let rows: Vec<_> = details(&document).reached.iter().filter(|row| row.subject == 1).collect();
    assert!(rows.iter().all(|row| row.files > 0 && row.bytes > 0), "{rows:?}");
    assert_eq!(rows.iter().map(|row| row.level).collect::<Vec<_>>(), [0.2, 0.4, 0.6]);
    assert!(rows.iter().all(|row| (row.reached - row.level).abs() <= TOLERANCE), "{rows:?}");
    assert!(rows[..2].iter().all(|row| (row.after - row.reached).abs() <= TOLERANCE), "{rows:?}");
    // Written by two rounds of tests: a file, and small ones.
    let written = 2.0 * (4.0 * MIB as f64 + 300.0 * 4096.0) / (512.0 * MIB as f64);
    assert!((-TOLERANCE..written + TOLERANCE).contains(&(rows[1].after - rows[1].reached)), "{rows:?}");
    for test in Test::ALL {
        assert_eq!(of(&document, 1, test).len(), 3, "{test:?}");
    }
    assert!(details(&document).reached.iter().all(|row| (row.subject == 0) == row.extents_per_file.is_some()));
    assert!(document.notes.iter().any(|note| note.contains("compacted")), "{:?}", document.notes);
    nothing_left(&sandbox, &[]);
}

#[test]
fn tests_that_have_no_room_are_left_out_and_said() {
    if !can_make(FileSystemKind::Ext4) {
        return;
    }
    let sandbox = sandbox();
    let ran = run(args![
        "bench",
        "fill",
        "--fs",
        "ext4",
        "--fs-size",
        "128MiB",
        "--levels",
        "50%,90%,98%",
        "--largest",
        "512KiB",
        "--directories",
        "100",
        "--small-files",
        "100",
        "--file-size",
        "30MiB",
        "--repeats",
        "1",
        "--flush-every",
        "0",
        "--scratch",
        sandbox.path(),
        "--json"
    ])
    .ended(0);
    let document = document(&ran);
    let details = details(&document);
    let levels = |test| of(&document, 0, test).iter().map(|series| series.level.unwrap()).collect::<Vec<_>>();
    assert_eq!((levels(Test::Write), levels(Test::Read)), (vec![0.5], vec![0.5]));
    assert!(levels(Test::CreateFiles).starts_with(&[0.5, 0.9]));
    let left_out = &details.left_out[0];
    assert_eq!((left_out.level, left_out.tests.as_slice()), (0.9, &["write".to_owned(), "read".to_owned()][..]));
    assert!(left_out.cause.contains("are available"), "{left_out:?}");
    assert!(details.reached.iter().all(|row| row.reached <= row.level + TOLERANCE), "{details:?}");
    nothing_left(&sandbox, &[]);
}

#[test]
fn a_file_system_in_memory_needs_no_image() {
    let sandbox = sandbox();
    let script = r#"
        mount -t tmpfs -o size=64m tmpfs "$1"
        mkdir "$1/place"
        "$GRANULO" bench fill "$1/place" --levels 30%,60% --largest 256KiB --directories 50 --small-files 50 --file-size 1MiB \
            --repeats 1 --json --quiet
        test -z "$(ls "$1/place")"
        df --output=used "$1" >&2
    "#;
    let Some(ran) = in_mount_namespace(script, &args![sandbox.path()]) else { return };
    let ran = ran.ended(0);
    let document = document(&ran);
    assert_levels(&document, 1, &[0.3, 0.6]);
    assert!(document.notes.iter().any(|note| note.contains("a file was read instead")), "{:?}", document.notes);
    assert_eq!(document.subjects[0].file_system.kind, "tmpfs");
    assert!(ran.said().trim_end().ends_with('0'), "{}", ran.said());
}

#[test]
fn one_file_system_is_filled_by_one() {
    let sandbox = sandbox();
    let script = r#"
        mount -t tmpfs -o size=64m tmpfs "$1"
        ! "$GRANULO" bench fill "$1/one" "$1/other" || exit 9
        ! "$GRANULO" bench fill "$1/one" --store || exit 9
        test -z "$(ls "$1")"
    "#;
    let Some(ran) = in_mount_namespace(script, &args![sandbox.path()]) else { return };
    let said = ran.ended(0).said();
    assert!(said.contains("on the same file system") && said.contains("would fill the same file system"), "{said}");
}

#[test]
fn a_level_that_was_passed_long_ago_is_said() {
    let sandbox = sandbox();
    let script = r#"
        mount -t tmpfs -o size=64m tmpfs "$1"
        head -c 32M /dev/zero > "$1/mine"
        "$GRANULO" bench fill "$1/place" --levels 20%,70% --largest 256KiB --directories 50 --small-files 50 --file-size 1MiB \
            --repeats 1 --quiet --json || status=$?
        test -s "$1/mine" -a ! -e "$1/place"
        exit $status
    "#;
    let Some(ran) = in_mount_namespace(script, &args![sandbox.path()]) else { return };
    let ran = ran.ended(1);
    // Half of it, and the first files of the run.
    assert!(ran.said().contains("was not filled to 20.0 %: it is already 5"), "{}", ran.said());
    assert_levels(&document(&ran), 1, &[0.7]);
}

#[test]
fn the_root_file_system_is_not_filled() {
    let sandbox = sandbox();
    let place = sandbox.path().join("new/place");
    if fs::metadata("/").unwrap().dev() != fs::metadata(sandbox.path()).unwrap().dev() {
        return skip("it needs a temporary directory on the root file system");
    }
    for place in [place.clone(), sandbox.path().to_owned()] {
        let ran = run(args!["bench", "fill", &place]).ended(2);
        assert!(ran.said().contains("--allow-root-file-system") && ran.said().contains("--fs"), "{}", ran.said());
    }
    assert!(!sandbox.path().join("new").exists());
    // An explicit request is honoured: here it does nothing, because every root is fuller than this.
    let place = sandbox.path().join("place");
    let ran =
        run(args!["bench", "fill", &place, "--allow-root-file-system", "--levels", "0.1%", "--file-size", "1MiB"])
            .ended(2);
    assert!(ran.said().contains("it is already "), "{}", ran.said());
    nothing_left(&sandbox, &[]);
}

#[test]
fn wrong_requests_are_refused_before_anything_is_done() {
    let sandbox = sandbox();
    for (arguments, words) in [
        (args!["--levels", "30%..100%"], "is not a level"),
        (args!["--levels", "80%..30%"], "lower level first"),
        (args!["--levels", "0.5"], "50%"),
        (args!["--step", "0%"], "levels"),
        (args!["--weight=-2"], "k must be a number"),
        (args!["--smallest", "2MiB", "--largest", "1MiB"], "above max"),
        (args!["--rounds", "0"], "--rounds"),
        (args!["--directories", "0"], "--directories"),
        (args!["--content", "text"], "text"),
        (args!["--fs", "zfs"], "zfs"),
    ] {
        let ran = run([args!["bench", "fill", "--scratch", sandbox.path()], arguments].concat()).ended(2);
        assert!(ran.said().contains(words), "{}", ran.said());
        nothing_left(&sandbox, &[]);
    }
}

#[test]
fn without_root_the_default_says_what_works() {
    let sandbox = sandbox();
    let Some(mut command) = granulo_as_nobody(&sandbox) else { return };
    let ran = finish(command.args(["bench", "fill"])).ended(2);
    assert!(ran.said().contains("needs root") && ran.said().contains("name a directory"), "{}", ran.said());
}

fn interruptible(sandbox: &Path) -> Vec<std::ffi::OsString> {
    args![
        "fill",
        "--fs",
        "ext4",
        "--fs-size",
        "256MiB",
        "--levels",
        "20%,50%,80%",
        "--largest",
        "512KiB",
        "--repeats",
        "1",
        "--file-size",
        "1MiB",
        "--directories",
        "100",
        "--small-files",
        "50000",
        "--small-size",
        "0",
        "--json",
        "--quiet",
        "--scratch",
        sandbox
    ]
}

#[test]
fn an_interrupted_run_keeps_what_it_has() {
    if !can_make(FileSystemKind::Ext4) {
        return;
    }
    let sandbox = sandbox();
    let ran = signalled(interruptible(sandbox.path()), Signal::INT, || is_below(sandbox.path(), "000100")).ended(1);
    let document = document(&ran);
    assert!(!document.complete && ran.said().contains("interrupted"), "{}", ran.said());
    assert_eq!((details(&document).reached.len(), of(&document, 0, Test::Read).len()), (1, 1));
    assert!(of(&document, 0, Test::CreateFiles).is_empty());
    nothing_left(&sandbox, &[]);
}

#[test]
fn what_a_killed_run_leaves_the_next_clears_away() {
    if !is_root() || !can_make(FileSystemKind::Ext4) {
        return;
    }
    let sandbox = sandbox();
    signalled(interruptible(sandbox.path()), Signal::KILL, || is_below(sandbox.path(), "fill"));
    assert_ne!(fs::read_dir(sandbox.path()).unwrap().count(), 0);
    let ran = run(args![
        "bench",
        "fill",
        "--fs",
        "ext4",
        "--fs-size",
        "64MiB",
        "--levels",
        "50%",
        "--repeats",
        "1",
        "--file-size",
        "1MiB",
        "--directories",
        "10",
        "--small-files",
        "10",
        "--json",
        "--scratch",
        sandbox.path()
    ])
    .ended(0);
    assert!(ran.said().contains("removed leftovers of a killed run"), "{}", ran.said());
    nothing_left(&sandbox, &[]);
}
