//! `granulo bench metadata`: every part on files and stores, the effect of slow devices, and nothing left.

use std::fs;
use std::path::Path;

use granulo::testing::bench::file_systems::FileSystemKind;
use granulo::testing::bench::result::{CacheState, Details, Document, MetadataDetails, Series};
use rustix::process::Signal;
use unicode_width::UnicodeWidthStr;

use crate::args;
use crate::bench_harness::{Running, can_make, nothing_left};
use crate::harness::{finish, granulo_as_nobody, is_root, run, sandbox, sandbox_for_many, skip};

/// Few files, short loads.
const SMALL: [&str; 14] = [
    "--files",
    "300",
    "--listed",
    "700",
    "--reads",
    "150",
    "--loads",
    "100,300",
    "--window",
    "0.4",
    "--warm-up",
    "0.1",
    "--threads",
    "4",
];

#[track_caller]
fn measure(arguments: Vec<std::ffi::OsString>) -> Document {
    let ran = run([args!["bench", "metadata", "--json"], arguments, SMALL.map(Into::into).to_vec()].concat()).ended(0);
    assert_eq!(ran.said(), "");
    serde_json::from_slice(&ran.stdout).unwrap()
}

fn details(document: &Document) -> &MetadataDetails {
    let Details::Metadata(details) = &document.details else { panic!("{document:?}") };
    details
}

fn names(document: &Document) -> Vec<&str> {
    document.subjects.iter().map(|subject| subject.name.as_str()).collect()
}

fn series<'d>(document: &'d Document, subject: usize, measure: &str) -> Option<&'d Series> {
    document.series.iter().find(|series| series.subject == subject && series.measure == measure)
}

pub fn measures(document: &Document, subject: usize) -> Vec<&str> {
    document.series.iter().filter(|series| series.subject == subject).map(|series| series.measure.as_str()).collect()
}

#[test]
fn every_part_is_measured_on_files_and_on_a_store() {
    let sandbox = sandbox();
    let place = sandbox.path().join("place");
    let document = measure(args![&place, "--store", "--rounds", "2", "--seed", "5"]);
    assert!(document.complete);
    assert_eq!(names(&document), ["place", "granulo on place"]);
    assert_eq!(
        measures(&document, 0),
        ["list", "reads, 1 thread", "reads, 4 threads", "peak load", "overall response time"]
    );
    assert_eq!(
        measures(&document, 1),
        [
            "list",
            "reads, 1 thread",
            "reads, 4 threads",
            "reads, together",
            "check",
            "deep check",
            "peak load",
            "overall response time"
        ]
    );
    for series in &document.series {
        assert_eq!(series.samples.len(), 2, "{series:?}");
        assert!(series.samples.iter().all(|&sample| sample > 0.0), "{series:?}");
        assert_eq!(series.caches == CacheState::Cold, is_root(), "{series:?}");
    }
    assert_eq!(series(&document, 0, "list").unwrap().level, Some(700.0));
    let of = details(&document);
    assert_eq!((of.files, of.listed, of.reads, of.source.as_str()), (300, 700, 150, "vu-2005"));
    assert!(of.size_bytes > 300 * 2000 && of.limits.is_empty(), "{of:?}");
    assert!((of.mix.iter().map(|share| share.fraction).sum::<f64>() - 1.0).abs() < 1e-9);
    // Two subjects, two loads, two rounds.
    assert_eq!(of.load_points.len(), 8);
    for point in &of.load_points {
        let due = point.offered_per_second * 0.4;
        assert!((point.due as f64 - due).abs() <= 2.0, "{point:?}");
        assert!(point.p50_ms <= point.p99_ms && point.p99_ms <= point.longest_ms * 1.01, "{point:?}");
        let done: u64 = point.operations.iter().map(|operation| operation.count).sum();
        assert_eq!(done + point.unfinished, point.due, "{point:?}");
        assert!(point.operations.iter().any(|operation| operation.operation == "getattr"));
    }
    assert!(document.notes.iter().any(|note| note.contains("wake up")), "{:?}", document.notes);
    assert!(document.notes.iter().any(|note| note.contains("was not checked")), "{:?}", document.notes);
    nothing_left(&sandbox, &[]);
}

#[test]
fn the_mix_is_what_is_asked_for() {
    let sandbox = sandbox();
    let mut arguments = args![sandbox.path().join("place"), "--store", "--rounds", "1", "--part", "load", "--durable"];
    arguments.extend(args!["--mix", "create=1,remove=1,write=1,setattr=1,commit=1,readdirplus=1,readlink=1,fsstat=1,read=1,lookup=1,access=1,readdir=1"]);
    let document = measure(arguments);
    let of = details(&document);
    assert!(of.is_durable && of.mix.len() == 12);
    assert_eq!(measures(&document, 0), ["peak load", "overall response time"]);
    for subject in [0, 1] {
        let points = of.load_points.iter().filter(|point| point.subject == subject);
        let mut seen: Vec<&str> =
            points.flat_map(|point| &point.operations).map(|operation| operation.operation.as_str()).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 12, "{seen:?}");
        assert!(!seen.contains(&"getattr"));
    }
    nothing_left(&sandbox, &[]);
}

/// A window of hours ends with the time limit, as a place that is too slow for any load would.
#[test]
fn a_time_limit_ends_the_first_load_with_what_it_did() {
    let sandbox = sandbox();
    let place = sandbox.path().join("place");
    let mut arguments = args!["bench", "metadata", &place, "--store", "--json", "--rounds", "1", "--part", "load"];
    arguments.extend(args![
        "--files",
        "100",
        "--loads",
        "20,40",
        "--window",
        "7200",
        "--longest",
        "2",
        "--threads",
        "2"
    ]);
    let document: Document = serde_json::from_slice(&run(arguments.clone()).ended(1).stdout).unwrap();
    let of = details(&document);
    assert!(document.complete && of.load_points.len() == 2, "{of:?}");
    for point in &of.load_points {
        // Due after the warm-up of a second, within the two.
        assert!(point.offered_per_second == 20.0 && (19..=21).contains(&point.due), "{point:?}");
    }
    for name in ["place", "granulo on place"] {
        let ended = format!("{name}: --longest ended the load of 20 operations/s after 2.00 s, within its window.");
        let next = format!("{name}: --longest ended the loads before 40 operations/s.");
        assert!(of.limits.contains(&ended) && of.limits.contains(&next), "{:?}", of.limits);
    }
    nothing_left(&sandbox, &[]);
    let at = arguments.iter().position(|argument| argument == "2").unwrap();
    arguments[at] = "1".into();
    assert!(run(arguments).ended(2).said().contains("--longest must be longer than --warm-up"));
}

#[test]
fn loads_rise_until_they_are_too_much() {
    let sandbox = sandbox();
    let ran = run(args![
        "bench",
        "metadata",
        "--json",
        sandbox.path().join("place"),
        "--files",
        "100",
        "--listed",
        "0",
        "--part",
        "load",
        "--rounds",
        "1",
        "--window",
        "0.1",
        "--warm-up",
        "0",
        "--threads",
        "2",
        "--first-load",
        "20000",
        "--mix",
        "readdirplus=1"
    ])
    .ended(0);
    let document: Document = serde_json::from_slice(&ran.stdout).unwrap();
    let points = &details(&document).load_points;
    let last = points.last().unwrap();
    assert!(last.achieved_per_second < 0.95 * last.offered_per_second && last.unfinished + 1 > 0, "{last:?}");
    for pair in points.windows(2) {
        assert_eq!(pair[1].offered_per_second, 2.0 * pair[0].offered_per_second);
        assert!(pair[0].achieved_per_second >= 0.95 * pair[0].offered_per_second);
    }
    let peak = series(&document, 0, "peak load").unwrap().spread.median;
    assert_eq!(peak, points.iter().map(|point| point.achieved_per_second).fold(0.0, f64::max));
}

#[test]
fn file_systems_are_checked_by_their_programs() {
    let kinds = [FileSystemKind::Ext4, FileSystemKind::Xfs, FileSystemKind::Btrfs, FileSystemKind::Exfat];
    if !kinds.into_iter().all(can_make) {
        return;
    }
    let sandbox = sandbox();
    let document = measure(args![
        "--fs",
        "ext4,xfs,btrfs,exfat",
        "--store",
        "--scratch",
        sandbox.path(),
        "--rounds",
        "1",
        "--part",
        "check,list,reads"
    ]);
    assert_eq!(
        names(&document),
        ["ext4", "granulo on ext4", "xfs", "granulo on xfs", "btrfs", "granulo on btrfs", "exfat", "granulo on exfat"]
    );
    for subject in 0..8 {
        assert!(series(&document, subject, "check").is_some_and(|series| series.level == Some(1000.0)), "{subject}");
        assert_eq!(series(&document, subject, "deep check").is_some(), subject % 2 == 1);
        assert!(
            series(&document, subject, "list").is_some() && series(&document, subject, "reads, 1 thread").is_some()
        );
    }
    for program in ["e2fsck", "xfs_repair", "btrfs", "fsck.exfat"] {
        assert!(document.tools.iter().any(|tool| tool.name == program), "{:?}", document.tools);
    }
    assert!(document.subjects[0].file_system.made_by.as_ref().unwrap().contains("-N "));
    assert!(document.notes.iter().any(|note| note.contains("no symbolic links")), "{:?}", document.notes);
    assert!(details(&document).load_points.is_empty());
    nothing_left(&sandbox, &[]);
}

#[test]
fn a_hybrid_store_is_faster_than_one_on_slow_devices() {
    if !can_make(FileSystemKind::Ext4) {
        return;
    }
    if !Path::new("/sys/fs/cgroup/blkio/blkio.throttle.read_bps_device").exists() {
        return skip("it limits a device, which needs the blkio controller of cgroup v1");
    }
    // In memory, so that only the devices that are slowed down are slow, whatever the disk does meanwhile.
    let sandbox = sandbox_for_many();
    // A store of a few mebibytes is in memory once it has been opened.
    let ran = run(args![
        "bench",
        "metadata",
        "--json",
        "--fs",
        "ext4",
        "--fs-devices",
        "slow,fast",
        "--store-layout",
        "slow,hybrid,fast",
        "--slow-devices",
        "2",
        "--emulate",
        "hdd:ops=100",
        "--scratch",
        sandbox.path(),
        "--rounds",
        "1",
        "--part",
        "reads",
        "--longest-reads",
        "3",
        "--files",
        "5000",
        "--reads",
        "3000",
        "--threads",
        "2"
    ])
    .ended(0);
    let document: Document = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(names(&document), ["ext4 slow", "ext4 fast", "granulo slow", "granulo hybrid", "granulo fast"]);
    let rate = |subject| series(&document, subject, "reads, 1 thread").unwrap().spread.median;
    for slow in [0, 2] {
        assert!(rate(slow) < 130.0, "at most 100 operations a second: {}", rate(slow));
    }
    for fast in [1, 3, 4] {
        assert!(rate(fast) > 2.0 * rate(2), "{} beside {}", rate(fast), rate(2));
    }
    let devices: Vec<(bool, Vec<bool>)> = document
        .subjects
        .iter()
        .map(|subject| {
            let further = subject.further_devices.iter().map(|device| device.emulated.is_some());
            (subject.device.emulated.is_some(), further.collect())
        })
        .collect();
    let (slow, fast) = (true, false);
    assert_eq!(devices, [(slow, vec![]), (fast, vec![]), (slow, vec![slow]), (fast, vec![slow, slow]), (fast, vec![])]);
    assert!(document.notes.iter().any(|note| note.contains("Not modelled")), "{:?}", document.notes);
    nothing_left(&sandbox, &[]);
}

#[test]
fn the_tables_fit_a_terminal() {
    let sandbox = sandbox();
    let place = sandbox.path().join("a rather long name of a directory");
    let ran =
        run([args!["bench", "metadata", place, "--store", "--rounds", "2"], SMALL.map(Into::into).to_vec()].concat())
            .ended(0);
    let text = ran.text();
    for line in text.lines() {
        assert!(line.width() <= 80, "{} columns: {line}", line.width());
    }
    for words in [
        "Metadata operations on 300 files like vu-2005",
        "700 in one directory",
        "Welch and Noer",
        "9,739/s",
        "29,336 s",
        "8,882/s",
        "lookup 24, read 18, write 10, getattr 26",
        "Speed-up over",
        "3.38",
    ] {
        // Lines break at spaces.
        let unbroken = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(unbroken.contains(words), "'{words}' is not in:\n{text}");
    }
    nothing_left(&sandbox, &[]);
}

#[test]
fn nothing_is_left_of_a_run_that_is_interrupted_or_killed() {
    if !can_make(FileSystemKind::Ext4) {
        return;
    }
    let sandbox = sandbox();
    let arguments = || {
        args![
            "metadata",
            "--json",
            "--fs",
            "ext4",
            "--store-layout",
            "slow,hybrid",
            "--scratch",
            sandbox.path(),
            "--files",
            "200",
            "--listed",
            "500",
            "--loads",
            "100",
            "--window",
            "600",
            "--part",
            "load,list",
            "--rounds",
            "1",
            "--longest-reads",
            "1"
        ]
    };
    // Its four images are mounted; it is making the files, or measuring.
    let mounted = || {
        let mounts = String::from_utf8_lossy(&fs::read("/proc/self/mountinfo").unwrap()).into_owned();
        let root = fs::canonicalize(sandbox.path()).unwrap();
        mounts.lines().filter(|line| line.contains(root.to_str().unwrap())).count() >= 4
    };
    let mut running = Running::start(arguments());
    running.until("it is mounted", mounted);
    running.signal(Signal::INT);
    let ran = running.end().ended(1);
    let document: Document = serde_json::from_slice(&ran.stdout).unwrap();
    assert!(!document.complete && document.subjects.len() == 3, "{}", ran.said());
    nothing_left(&sandbox, &[]);

    let mut running = Running::start(arguments());
    running.until("it is mounted", mounted);
    running.signal(Signal::KILL);
    running.end();
    assert!(mounted());
    let place = sandbox.path().join("place");
    let ran = run([
        args!["bench", "metadata", &place, "--scratch", sandbox.path(), "--part", "reads"],
        SMALL.map(Into::into).to_vec(),
    ]
    .concat());
    assert!(ran.ended(0).said().contains("removed leftovers of a killed run"));
    nothing_left(&sandbox, &[]);
}

#[test]
fn wrong_requests_are_refused_before_anything_is_done() {
    let sandbox = sandbox();
    let new = sandbox.path().join("new");
    let full = sandbox.path().join("full");
    fs::create_dir_all(full.join("mine")).unwrap();
    for (arguments, words) in [
        (args![], "no target to measure"),
        (args![&full], "mine"),
        (args![&new, "--source", sandbox.path().join("none.json")], "none.json"),
        (args![&new, "--mix", "rename=1"], "readdirplus"),
        (args![&new, "--loads", "-5"], "-5"),
        (args![&new, "--window", "0.001"], "0.05"),
        (args![&new, "--largest", "1GiB"], "--largest"),
        (args![&new, "--transfer", "100"], "--transfer"),
        (args![&new, "--files", "0"], "--files"),
        (args![&new, "--threads", "0"], "--threads"),
        (args![&new, "--part", "rename"], "rename"),
        (args![&new, "--store-layout", "warm"], "warm"),
        (args![&new, "--fs-devices", "slow"], "--fs"),
        (args![&new, "--files", "1000000000", "--largest", "1KiB"], "there is space for"),
        (args!["--fs", "ext4", "--files", "1000000000"], "they would need an image"),
    ] {
        let ran = run([args!["bench", "metadata"], arguments.clone()].concat()).ended(2);
        assert!(ran.said().contains(words), "{arguments:?}: {}", ran.said());
        assert_eq!(ran.text(), "");
        nothing_left(&sandbox, &["full"]);
    }
    if can_make(FileSystemKind::Fat) && !fs::read_to_string("/proc/filesystems").unwrap().contains("vfat") {
        let arguments = args!["bench", "metadata", "--scratch", sandbox.path(), "--fs", "fat", "--part", "reads"];
        let ran = run([arguments, SMALL.map(Into::into).to_vec()].concat()).ended(2);
        assert!(ran.said().contains("fusefat") && ran.said().contains("omit fat"), "{}", ran.said());
        nothing_left(&sandbox, &["full"]);
    }
    if can_make(FileSystemKind::Ext4) {
        let few = args![
            "bench",
            "metadata",
            "--scratch",
            sandbox.path(),
            "--fs",
            "ext4",
            "--fs-options",
            "ext4=-N 500",
            "--part",
            "reads"
        ];
        let ran = run([few, SMALL.map(Into::into).to_vec()].concat()).ended(2);
        assert!(ran.said().contains("inodes left"), "{}", ran.said());
        nothing_left(&sandbox, &["full"]);
    }
}

#[test]
fn without_root_directories_are_measured() {
    let sandbox = sandbox();
    let place = sandbox.path().join("place");
    fs::create_dir(&place).unwrap();
    fs::set_permissions(&place, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let Some(mut command) = granulo_as_nobody(&sandbox) else { return };
    let ran =
        finish(command.args(args!["bench", "metadata", "--json", &place, "--store", "--rounds", "1"]).args(SMALL))
            .ended(0);
    let document: Document = serde_json::from_slice(&ran.stdout).unwrap();
    assert!(document.complete && !document.host.is_root);
    assert!(document.notes.iter().any(|note| note.contains("could not be dropped")), "{:?}", document.notes);
    let Some(mut command) = granulo_as_nobody(&sandbox) else { return };
    let said = finish(command.args(["bench", "metadata", "--store-layout", "hybrid"]).args(SMALL)).ended(2).said();
    assert!(said.contains("needs root") && said.contains("needs no root"), "{said}");
}
