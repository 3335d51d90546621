//! `granulo bench`: what it measures and reports, and that a run leaves nothing behind, however it ends.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use granulo::testing::bench::file_systems::FileSystemKind;
use granulo::testing::bench::result::{CreatePhase, Details, Document};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::process::Signal;
use unicode_width::UnicodeWidthStr;

use crate::args;
use crate::bench_harness::{Running, can_make, left_below, nothing_left};
use crate::harness::{Ran, finish, granulo, granulo_as_nobody, is_root, run, sandbox, skip};
use crate::images::{Image, Mount};

const PATIENCE: Duration = Duration::from_secs(120);

/// What a bench prints with `--json`; it must end well.
#[track_caller]
fn measure<S: AsRef<std::ffi::OsStr>>(arguments: impl IntoIterator<Item = S>) -> Document {
    let ran = finish(granulo().args(["bench", "create", "--json"]).args(arguments)).ended(0);
    assert_eq!(ran.said(), "");
    serde_json::from_slice(&ran.stdout).unwrap()
}

/// Splits arguments without spaces in them.
fn words(text: &str) -> Vec<std::ffi::OsString> {
    text.split_whitespace().map(std::ffi::OsString::from).collect()
}

fn phases(document: &Document) -> &[CreatePhase] {
    let Details::Create(details) = &document.details else { panic!("{document:?}") };
    &details.phases
}

/// Starts a `bench create`.
fn start(mut arguments: Vec<std::ffi::OsString>) -> Running {
    arguments.insert(0, "create".into());
    Running::start_within(arguments, PATIENCE)
}

/// Files below a directory, at any depth.
fn files(directory: &Path) -> usize {
    let Ok(entries) = fs::read_dir(directory) else { return 0 };
    let entries = entries.flatten().map(|entry| if entry.path().is_dir() { files(&entry.path()) } else { 1 });
    entries.sum()
}

#[test]
fn every_operation_of_every_round_is_counted() {
    let sandbox = sandbox();
    let place = sandbox.path().join("new");
    let document = measure(args![&place, "--files", "500", "--rounds", "2", "--store", "--seed", "9"]);
    assert_eq!((document.schema.as_str(), document.complete, document.seed), ("granulo/bench/1", true, 9));
    assert_eq!(document.command_line[1..4], ["bench", "create", "--json"]);
    assert!(document.harness.empty_operation_ns > 0.0 && document.harness.overhead_fraction > 0.0);
    assert!(document.host.memory_bytes > 0 && !document.host.kernel.is_empty());
    let subjects: Vec<&str> = document.subjects.iter().map(|subject| subject.name.as_str()).collect();
    assert_eq!(subjects, ["new", "granulo on new"]);
    assert!(document.subjects[0].path.ends_with("/files") && document.subjects[0].fill_before > 0.0);
    let seen: Vec<(usize, u64, &str)> =
        phases(&document).iter().map(|phase| (phase.subject, phase.round, phase.phase.as_str())).collect();
    let turn = |subject, round| ["create", "stat", "delete"].map(|phase| (subject, round, phase));
    assert_eq!(seen, [turn(0, 0), turn(1, 0), turn(1, 1), turn(0, 1)].concat());
    for phase in phases(&document) {
        let times = &phase.latencies;
        assert_eq!((times.count, phase.limit.as_ref()), (500, None));
        assert_eq!(times.curve.iter().map(|bin| bin.count).sum::<u64>(), 500);
        assert!(times.min_ns > 0 && times.min_ns <= times.p50_ns && times.p50_ns <= times.max_ns);
        assert!(times.total_seconds <= phase.elapsed_seconds, "{phase:?}");
    }
    let measures: Vec<&str> =
        document.series.iter().filter(|series| series.subject == 1).map(|series| series.measure.as_str()).collect();
    assert_eq!(measures, ["create", "sync after create", "stat", "sync after stat", "delete", "sync after delete"]);
    assert!(document.series.iter().all(|series| series.samples.len() == 2 && series.spread.count == 2));
    nothing_left(&sandbox, &[]);
}

#[test]
fn every_kind_of_work_is_done_and_undone() {
    let sandbox = sandbox();
    let place = sandbox.path().join("place");
    fs::create_dir(&place).unwrap();
    for (order, durability, count) in [
        ("creation", "none", 130),
        ("reverse", "none", 130),
        ("name", "none", 130),
        ("random", "each", 130),
        ("listed", "each", 130),
        ("random", "batch", 1100),
        ("listed", "batch", 1100),
    ] {
        let asked = format!("--files {count} --rounds 1 --store --order {order} --durability {durability}");
        let how = if order == "name" { "--size 5000 --cold" } else { "--size 5000 --directory-files 40" };
        let document = measure([words(&asked), words(how), args![&place]].concat());
        let counts: Vec<u64> = phases(&document).iter().map(|phase| phase.latencies.count).collect();
        assert_eq!(counts, [count; 6], "{order}, {durability}");
        let Details::Create(details) = &document.details else { panic!() };
        assert_eq!((details.size_bytes, details.directory_files), (5000, if order == "name" { 0 } else { 40 }));
        assert_eq!((details.order.as_str(), details.durability.as_str()), (order, durability));
    }
    assert!(place.is_dir() && fs::read_dir(&place).unwrap().next().is_none());
}

#[test]
fn files_are_where_and_what_they_are_said_to_be() {
    let sandbox = sandbox();
    let place = sandbox.path().join("place");
    let mut started = start(args![
        &place,
        "--files",
        "2000000",
        "--size",
        "3000",
        "--directory-files",
        "7",
        "--rounds",
        "1",
        "--quiet"
    ]);
    let bench = || fs::read_dir(&place).ok()?.next()?.ok().map(|entry| entry.path());
    started.until("50 files are there", || bench().is_some_and(|bench| bench.join("files/d8/file-50").exists()));
    let made = bench().unwrap().join("files");
    let sizes = [made.join("d1/file-1"), made.join("d1/file-7"), made.join("d2/file-8")]
        .map(|path| fs::metadata(path).unwrap().len());
    assert_eq!(sizes, [3000; 3]);
    assert_ne!(fs::read(made.join("d1/file-1")).unwrap(), fs::read(made.join("d1/file-2")).unwrap());
    assert_eq!(fs::metadata(bench().unwrap()).unwrap().mode() & 0o777, 0o700);
    started.signal(Signal::INT);
    let ran = started.end().ended(1);
    assert!(ran.said().contains("interrupted"), "{}", ran.said());
    nothing_left(&sandbox, &[]);
}

#[test]
fn the_table_fits_a_terminal() {
    let sandbox = sandbox();
    let place = sandbox.path().join("a rather long name of a directory");
    let result = sandbox.path().join("result.json");
    let ran = run(args!["bench", "create", &place, "--files", "3000", "--store", "-o", &result]).ended(0);
    let text = ran.text();
    for line in text.lines() {
        assert!(line.width() <= 80, "{} columns: {line}", line.width());
    }
    for words in [
        "3,000 empty files in one directory",
        "Targets",
        "medians of 3 rounds",
        "Time per delete, in creation order; caches warm",
        "99.9 %",
        "Time of the n-th operation",
        "An empty operation takes",
        "not synced",
    ] {
        assert!(text.contains(words), "'{words}' is not in:\n{text}");
    }
    let document: Document = serde_json::from_slice(&fs::read(&result).unwrap()).unwrap();
    assert_eq!(phases(&document).len(), 18);
    assert!(ran.said().contains("wrote"), "{}", ran.said());
    nothing_left(&sandbox, &["result.json"]);
}

#[test]
fn wrong_requests_are_refused_before_anything_is_done() {
    let sandbox = sandbox();
    let new = sandbox.path().join("new");
    let long = "1000000001";
    for (arguments, words) in [
        (args![], "no target to measure"),
        (args!["--fs", "zfs"], "zfs"),
        (args![&new, "--fs-options", "ext4=-b 1024"], "which --fs does not name"),
        (args![&new, "--emulate", "hdd"], "--fs"),
        (args![&new, "--emulate", "tape"], "tape"),
        (args![&new, "--files", "0"], "--files"),
        (args![&new, "--files", long], long),
        (args![&new, "--files", "-1"], "-1"),
        (args![&new, "--rounds", "0"], "--rounds"),
        (args![&new, "--directory-files", "0"], "--directory-files"),
        (args![&new, "--order", "size"], "size"),
        (args![&new, "--mount", "--durability", "batch"], "does not reach a mounted store"),
        (args![&new, "--size", "lots"], "lots"),
        (args!["--fs", "ext4", "--files", "1000000000", "--size", "1EiB"], "they would need"),
        (args![&new, "--files", "1000000000", "--size", "1EiB"], "there is space for"),
        (args![&new, "--files", "1000000000", "--size", "1GiB"], "there is space for"),
        (args![&new, "--files", "900000000", "--size", "8KiB"], "there is space for"),
        (args![&new, &new], "named twice"),
        (args![&new, "--store", "--files", "1", "--size", "300MiB"], "256 MiB"),
        (args![new.join("below"), "--files", "1"], "No such file"),
        (args![&new, "--scratch", sandbox.path().join("none")], "none"),
        (args![&new, "-o", sandbox.path()], "directory"),
        (args![&new, "-o", new.join("result.json")], "No such file"),
        (args![&new, "--report", new.join("result.html")], "No such file"),
    ] {
        let ran = run([args!["bench", "create"], arguments.clone()].concat()).ended(2);
        assert!(ran.said().contains(words), "{arguments:?}: {}", ran.said());
        assert_eq!(ran.text(), "");
        nothing_left(&sandbox, &[]);
    }
}

#[test]
fn a_result_that_cannot_be_written_is_printed() {
    if !Path::new("/dev/full").exists() {
        return skip("there is no /dev/full");
    }
    let sandbox = sandbox();
    let [place, page] = ["place", "page.html"].map(|name| sandbox.path().join(name));
    let few = args!["bench", "create", &place, "--files", "10", "--rounds", "1", "-o", "/dev/full", "--report", &page];
    let ran = run(few).ended(1);
    assert!(ran.text().contains("10 empty files"), "{}", ran.text());
    assert!(ran.said().contains("/dev/full: No space left on device") && page.exists(), "{}", ran.said());
}

#[test]
fn what_is_not_empty_is_left_alone() {
    let sandbox = sandbox();
    let full = sandbox.path().join("full");
    fs::create_dir_all(full.join("mine")).unwrap();
    // No process has this number.
    let left = sandbox.path().join("left");
    fs::create_dir_all(left.join("granulo-bench-4194305-00000000/x")).unwrap();
    let store = sandbox.path().join("store");
    run(args!["store", "init", &store]).ended(0);
    let file = sandbox.path().join("file");
    fs::write(&file, b"x").unwrap();
    for (place, words) in [
        (&full, "mine"),
        (&store, "it is a store"),
        (&file, "not a directory"),
        (&left, "or left granulo-bench-4194305-00000000"),
    ] {
        let ran = run(args!["bench", "create", place, "--files", "10"]).ended(2);
        assert!(ran.said().contains(words), "{}", ran.said());
    }
    assert_eq!(fs::read_dir(&full).unwrap().count(), 1);
    nothing_left(&sandbox, &["full", "store", "file", "left"]);
}

#[test]
fn without_root_the_rest_works_and_says_so() {
    let sandbox = sandbox();
    let place = sandbox.path().join("place");
    fs::create_dir(&place).unwrap();
    fs::set_permissions(&place, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let Some(mut command) = granulo_as_nobody(&sandbox) else { return };
    let ran =
        finish(command.args(args!["bench", "create", &place, "--files", "100", "--cold", "--rounds", "1", "--json"]));
    let document: Document = serde_json::from_slice(&ran.ended(0).stdout).unwrap();
    assert!(!document.host.is_root);
    assert!(document.notes.iter().any(|note| note.contains("could not be dropped")), "{:?}", document.notes);
    assert!(document.series.iter().all(|series| series.caches == granulo::testing::bench::result::CacheState::AsIs));
    assert_eq!(fs::read_dir(&place).unwrap().count(), 0);

    let Some(mut command) = granulo_as_nobody(&sandbox) else { return };
    let ran = finish(command.args(args!["bench", "create", "--fs", "ext4", "--files", "100"])).ended(2);
    assert!(ran.said().contains("needs root") && ran.said().contains("needs no root"), "{}", ran.said());
}

#[test]
fn a_missing_program_is_named_with_its_package() {
    if !is_root() {
        return skip("it needs root to come so far");
    }
    let sandbox = sandbox();
    let empty = sandbox.path().join("empty");
    fs::create_dir(&empty).unwrap();
    for (kind, program, package) in [
        ("ext4", "mkfs.ext4", "e2fsprogs"),
        ("xfs", "mkfs.xfs", "xfsprogs"),
        ("btrfs", "mkfs.btrfs", "btrfs-progs"),
        ("ntfs", "mkfs.ntfs", "ntfs-3g"),
        ("fat", "mkfs.fat", "dosfstools"),
        ("exfat", "mkfs.exfat", "exfatprogs"),
    ] {
        let mut command = granulo();
        command.env("PATH", &empty).args(args!["bench", "create", "--fs", kind, "--scratch", sandbox.path()]);
        let said = finish(&mut command).ended(2).said();
        assert!(said.contains(program) && said.contains(package), "{said}");
        nothing_left(&sandbox, &["empty"]);
    }
}

#[test]
fn file_systems_are_made_measured_and_gone() {
    // Without FAT, whose FUSE program may end where several directories grow under load.
    let kinds = [FileSystemKind::Ext4, FileSystemKind::Xfs, FileSystemKind::Btrfs, FileSystemKind::Ntfs];
    if !kinds.into_iter().all(can_make) {
        return;
    }
    let sandbox = sandbox();
    let options = args!["--fs-options", "ext4=-O ^dir_index -o noatime", "--scratch", sandbox.path()];
    let all = words(
        "bench create --json --fs ext4,xfs,btrfs,ntfs --fs-size 400MiB --files 300 --size 100 --rounds 2 --store",
    );
    let document: Document = serde_json::from_slice(&run([all, options].concat()).ended(0).stdout).unwrap();
    let names: Vec<&str> = document.subjects.iter().map(|subject| subject.name.as_str()).collect();
    let ext4 = "ext4 -O ^dir_index -o noatime";
    let on = |name: &str| format!("granulo on {name}");
    let expected = [ext4, "xfs", "btrfs", "ntfs"].map(|name| [name.to_owned(), on(name)]).concat();
    assert_eq!(names, expected);
    assert!(phases(&document).iter().all(|phase| phase.latencies.count == 300), "{document:?}");
    assert_eq!(phases(&document).len(), expected.len() * 2 * 3);
    let made = document.subjects[0].file_system.made_by.as_ref().unwrap();
    assert_eq!(made, "mkfs.ext4 -q -F -O ^dir_index; mount -t ext4 -o noatime");
    assert!(document.subjects[0].file_system.mount_options.contains("noatime"));
    assert!(document.tools.iter().any(|tool| tool.name == "mkfs.xfs" && tool.version.contains('.')), "{document:?}");
    nothing_left(&sandbox, &[]);
}

#[test]
fn more_files_than_a_file_system_has_inodes_for_are_refused() {
    if !can_make(FileSystemKind::Ext4) {
        return;
    }
    let sandbox = sandbox();
    let small = words("bench create --fs ext4 --fs-size 64MiB --files 100000");
    let ran = run([small, args!["--scratch", sandbox.path()]].concat()).ended(2);
    assert!(ran.said().contains("inodes") && ran.said().contains("--fs-size"), "{}", ran.said());
    nothing_left(&sandbox, &[]);
}

#[test]
fn a_full_file_system_of_the_run_is_a_result() {
    if !can_make(FileSystemKind::Btrfs) {
        return;
    }
    let sandbox = sandbox();
    // Files in the tree itself, which is stored twice: they need about twice their size.
    let options = args!["--fs-options", "btrfs=-m dup -o max_inline=4000", "--scratch", sandbox.path()];
    let document =
        measure([words("--fs btrfs --fs-size 256MiB --files 36000 --size 3500 --rounds 1"), options].concat());
    let taken = phases(&document)[0].latencies.count;
    assert!(taken > 1000 && taken < 36_000, "{taken}");
    let limit = phases(&document)[0].limit.as_ref().unwrap();
    assert!(limit.contains("btrfs") && limit.contains("full"), "{limit}");
    assert!(document.complete && phases(&document).iter().all(|phase| phase.latencies.count == taken));
    nothing_left(&sandbox, &[]);
}

#[test]
fn a_subject_that_takes_too_long_has_fewer_files() {
    let sandbox = sandbox();
    let place = sandbox.path().join("place");
    let asked = words("bench create --files 30000 --durability each --longest 1 --rounds 1");
    let ran = run([asked, args![&place]].concat()).ended(0);
    // The last file may exceed the limit.
    let text = ran.text().split_whitespace().collect::<Vec<_>>().join(" ");
    let (_, limit) = text.split_once("place, create: stopped at the time limit after ").expect(&text);
    let (taken, rest) = limit.split_once(" s; ").expect(&text);
    let seconds: f64 = taken.split_once(" files in ").expect(&text).1.parse().unwrap();
    assert!((1.0..30.0).contains(&seconds) && rest.starts_with("30,000 were requested."), "{text}");
    nothing_left(&sandbox, &[]);
}

#[test]
fn a_disk_that_fills_during_a_run_ends_it_and_loses_nothing() {
    let sandbox = sandbox();
    let Some(image) = Image::make(128 << 20, &["mkfs.ext4", "-q", "-F", "-m", "0"], Mount::Kernel("")) else { return };
    let place = image.root().join("place");
    let asked = words("--files 12000 --size 4096 --durability each --rounds 1 --quiet");
    let mut started = start([asked, args![&place]].concat());
    started.until("some files are there", || files(&place) > 20);
    let mine = File::create(image.root().join("mine")).unwrap();
    // All that is left, down to a page.
    for power in (12..27).rev() {
        let size = mine.metadata().unwrap().len();
        while fallocate(&mine, FallocateFlags::empty(), mine.metadata().unwrap().len(), 1 << power).is_ok() {}
        assert!(mine.metadata().unwrap().len() >= size);
    }
    let ran = started.end().ended(2);
    assert!(ran.said().contains("No space left") && ran.said().contains("file-"), "{}", ran.said());
    assert!(!place.exists());
    assert!(mine.metadata().unwrap().len() > 1 << 20);
    nothing_left(&sandbox, &[]);
}

#[test]
fn an_interrupted_run_writes_what_it_has() {
    let sandbox = sandbox();
    let (place, result) = (sandbox.path().join("place"), sandbox.path().join("result.json"));
    // However busy the machine is, a round has passed after one of these times.
    for seconds in [3, 9, 27, 81] {
        let started = start(args![&place, "--files", "500", "--rounds", "10000", "--quiet", "-o", &result]);
        sleep(Duration::from_secs(seconds));
        started.signal(Signal::TERM);
        let ran = started.end().ended(1);
        assert!(ran.said().contains("interrupted"), "{}", ran.said());
        let document: Document = serde_json::from_slice(&fs::read(&result).unwrap()).unwrap();
        assert!(!document.complete);
        nothing_left(&sandbox, &["result.json"]);
        if phases(&document).len() >= 3 {
            assert!(ran.text().contains("500 empty files"), "{}", ran.text());
            return;
        }
    }
    panic!("no round ended within 81 seconds");
}

/// Starts runs that are killed after `delays`, in the same directory; then one that is not.
fn killed(scratch: &Path, arguments: impl Fn() -> Vec<std::ffi::OsString>, delays: &[u64]) -> Ran {
    for delay in delays {
        let started = start(arguments());
        sleep(Duration::from_millis(*delay));
        started.signal(Signal::KILL);
        assert_eq!(started.end().code, None, "it was not killed after {delay} ms");
    }
    let other: PathBuf = scratch.join("other");
    run(args!["bench", "create", &other, "--scratch", scratch, "--files", "10", "--rounds", "1", "--json"]).ended(0)
}

#[test]
fn what_a_killed_run_left_goes_at_the_next_start() {
    if !can_make(FileSystemKind::Ext4) || !can_make(FileSystemKind::Ntfs) {
        return;
    }
    let sandbox = sandbox();
    let scratch = sandbox.path();
    // Limits of devices that are no longer in use; those of other tests are still in use.
    let limits_left = || -> Vec<String> {
        let limits = fs::read_to_string("/sys/fs/cgroup/blkio/blkio.throttle.read_bps_device").unwrap_or_default();
        let is_left = |line: &&str| {
            let device = line.split(' ').next().unwrap_or_default();
            fs::read_to_string(format!("/sys/dev/block/{device}/loop/backing_file")).is_err()
        };
        limits.lines().filter(is_left).map(str::to_owned).collect()
    };
    let asked = "--fs ext4,ntfs --fs-size 200MiB --files 8000 --rounds 1000 --quiet --store";
    let arguments = || [words(asked), args!["--scratch", scratch]].concat();
    // Once in the middle of the measurement, and at any moment of creating and mounting.
    let mut started = start(arguments());
    started.until("all four are mounted", || {
        left_below(scratch).iter().filter(|line| line.contains("/root ")).count() == 4
    });
    started.signal(Signal::KILL);
    started.end();
    assert!(!left_below(scratch).is_empty());
    let ran = killed(scratch, arguments, &[]);
    assert!(ran.said().contains("removed leftovers of a killed run"), "{}", ran.said());
    nothing_left(&sandbox, &[]);
    let before = limits_left();
    let slow = || [arguments(), args!["--emulate", "hdd"]].concat();
    let emulates = Path::new("/sys/fs/cgroup/blkio/blkio.throttle.read_bps_device").exists();
    let delays = [5, 40, 90, 150, 220, 310, 450, 700, 1000];
    if emulates {
        killed(scratch, slow, &delays);
        // Another test may be between removing its device and lifting its limit.
        let begun = Instant::now();
        while limits_left().iter().any(|line| !before.contains(line)) {
            assert!(begun.elapsed() < Duration::from_secs(60), "limits are left: {:?}", limits_left());
            sleep(Duration::from_millis(100));
        }
    } else {
        killed(scratch, arguments, &delays);
    }
    nothing_left(&sandbox, &[]);
}

#[test]
fn what_a_killed_run_left_in_a_directory_goes_too() {
    let sandbox = sandbox();
    let place = sandbox.path().join("place");
    fs::create_dir(&place).unwrap();
    let mut started = start(args![&place, "--files", "200000", "--store", "--quiet"]);
    started.until("some files are there", || files(&place) > 200);
    started.signal(Signal::KILL);
    started.end();
    assert!(files(&place) > 200);
    let ran = run(args!["bench", "create", &place, "--files", "10", "--rounds", "1", "--json"]).ended(0);
    assert!(ran.said().contains("removed leftovers of a killed run"), "{}", ran.said());
    assert!(place.is_dir() && fs::read_dir(&place).unwrap().next().is_none());
}
