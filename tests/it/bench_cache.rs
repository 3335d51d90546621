//! `granulo bench cache`: the limit is enforced, rereads are seen, and nothing is left: no file, mount, group or
//! process.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use granulo::testing::bench::file_systems::FileSystemKind;
use granulo::testing::bench::result::{CacheCell, CacheDetails, CacheState, Details, Document, FailureKind};
use rustix::process::Signal;
use tempfile::TempDir;
use unicode_width::UnicodeWidthStr;

use crate::args;
use crate::bench_harness::{Running, can_make, nothing_left};
use crate::harness::{
    finish, granulo, granulo_as_nobody, has_program, in_mount_namespace, is_root, run, sandbox, skip,
};

const MIB: u64 = 1 << 20;

/// Whether memory can be limited here; reports it like a skipped test.
pub fn can_limit() -> bool {
    let usable = is_root() && !group_parents().is_empty();
    if !usable {
        skip("it limits memory, which needs root and the memory controller of cgroups");
    }
    usable
}

/// Possible parents of groups: the group of this process, and the top.
fn group_parents() -> Vec<PathBuf> {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap();
    let own = own.lines().find_map(|line| line.split_once(":memory:")).map_or("", |(_, path)| path);
    let parents =
        [format!("/sys/fs/cgroup/memory{own}"), "/sys/fs/cgroup/memory".to_owned(), "/sys/fs/cgroup".to_owned()];
    let usable = |path: &String| {
        Path::new(path).join("memory.limit_in_bytes").exists()
            || Path::new(path).join("cgroup.subtree_control").exists()
    };
    parents.into_iter().filter(usable).map(PathBuf::from).collect()
}

/// Groups of benches.
fn groups() -> Vec<PathBuf> {
    let below = |parent: PathBuf| fs::read_dir(parent).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_group = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with("granulo-bench-");
    group_parents().into_iter().flat_map(below).filter(is_group).collect()
}

/// The group of a bench that keeps its files in `sandbox`.
fn group_of(sandbox: &TempDir) -> Option<PathBuf> {
    let names: Vec<OsString> = fs::read_dir(sandbox.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    groups().into_iter().find(|group| names.iter().any(|name| group.file_name() == Some(name)))
}

fn details(document: &Document) -> &CacheDetails {
    let Details::Cache(details) = &document.details else { panic!("{document:?}") };
    details
}

fn cell(document: &Document, cache_bytes: u64, block_bytes: u64) -> &CacheCell {
    let is_it = |cell: &&CacheCell| cell.limit_bytes == cache_bytes && cell.block_bytes == block_bytes;
    details(document).cells.iter().find(is_it).unwrap()
}

/// A directory with a file of `mebibytes` MiB.
fn tree(sandbox: &TempDir, mebibytes: u64) -> PathBuf {
    let tree = sandbox.path().join("tree");
    fs::create_dir_all(tree.join("below")).unwrap();
    let bytes: Vec<u8> =
        (0..mebibytes * MIB / 8).flat_map(|at| at.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes()).collect();
    fs::write(tree.join("below/data"), bytes).unwrap();
    tree
}

#[test]
fn what_does_not_fit_the_cache_is_read_again() {
    if !can_make(FileSystemKind::Xfs) || !can_limit() {
        return;
    }
    let sandbox = sandbox();
    let tree = tree(&sandbox, 24);
    let measure = || -> Document {
        let ran = run(args![
            "bench",
            "cache",
            "--json",
            "--scratch",
            sandbox.path(),
            "--block-sizes",
            "1K,4K",
            "--cache-sizes",
            "8M,96M",
            "--rounds",
            "2",
            "--tree",
            &tree,
            "--",
            "sh",
            "-c",
            "cat below/data below/data below/data > /dev/null"
        ])
        .ended(0);
        serde_json::from_slice(&ran.stdout).unwrap()
    };
    // Other tests empty the caches of the machine, and then what fits is read again, too. That they do it in each of
    // several runs is next to impossible.
    let is_undisturbed =
        |document: &Document| [1024, 4096].iter().all(|&block| cell(document, 96 * MIB, block).read_bytes < 40 * MIB);
    let mut document = measure();
    for _ in 0..4 {
        if is_undisturbed(&document) {
            break;
        }
        document = measure();
    }
    assert!(document.complete);
    let of = details(&document);
    assert_eq!(of.workload, "sh -c cat below/data below/data below/data > /dev/null");
    assert_eq!(
        (of.cache_sizes_bytes.as_slice(), of.block_sizes_bytes.as_slice()),
        (&[8 * MIB, 96 * MIB][..], &[1024, 4096][..])
    );
    assert!(of.unlimited_seconds > 0.0 && of.footprint_bytes > 24 * MIB && of.least_bytes.is_none());
    for block in [1024, 4096] {
        let (small, large) = (cell(&document, 8 * MIB, block), cell(&document, 96 * MIB, block));
        assert_eq!((&small.failure, &large.failure), (&None, &None));
        assert!(small.read_bytes > 60 * MIB, "three times 24 MiB: {small:?}");
        assert!((24 * MIB..40 * MIB).contains(&large.read_bytes), "once 24 MiB: {large:?}");
        assert!(small.page_cache_bytes <= 8 * MIB && large.page_cache_bytes > 20 * MIB, "{small:?} {large:?}");
        if let Some(process) = small.process_read_bytes {
            assert!(process > 60 * MIB, "{small:?}");
        }
    }
    let runs: Vec<_> = document.series.iter().filter(|series| series.measure == "run").collect();
    assert_eq!(runs.len(), 4);
    assert!(runs.iter().all(|series| series.samples.len() == 2 && series.caches == CacheState::Cold));
    assert_eq!((runs[0].level, runs[0].second_level), (Some(8.0 * MIB as f64), Some(1024.0)));
    let names: Vec<&str> = document.subjects.iter().map(|subject| subject.name.as_str()).collect();
    assert_eq!(names, ["xfs 1 KiB", "xfs 4 KiB"]);
    nothing_left(&sandbox, &["tree"]);
    assert_eq!(group_of(&sandbox), None);
}

#[test]
fn a_project_is_compiled_with_the_sizes_that_suit_it() {
    if !can_make(FileSystemKind::Ext4) || !can_limit() {
        return;
    }
    if !has_program("cc") {
        return skip("it compiles, and there is no cc");
    }
    let sandbox = sandbox();
    let result = sandbox.path().join("result.json");
    let ran = run(args![
        "bench",
        "cache",
        "--scratch",
        sandbox.path(),
        "--block-sizes",
        "4K",
        "--rounds",
        "1",
        "--programs",
        "1",
        "--headers",
        "5",
        "--builds",
        "1",
        "--longest",
        "20",
        "-o",
        &result
    ])
    .ended(0);
    let document: Document = serde_json::from_slice(&fs::read(&result).unwrap()).unwrap();
    let of = details(&document);
    let least = of.least_bytes.unwrap();
    assert!(least > MIB && least <= of.footprint_bytes.next_multiple_of(MIB), "{of:?}");
    assert_eq!(of.cache_sizes_bytes[0], least);
    assert!(of.cache_sizes_bytes.last().unwrap() / 2 >= least && of.cache_sizes_bytes.is_sorted());
    assert!(of.cells.iter().filter(|cell| cell.failure.is_none()).count() >= of.cells.len() - 1, "{of:?}");
    assert!(document.tools.iter().any(|tool| tool.name == "cc" && !tool.version.is_empty()));
    let text = ran.text();
    for line in text.lines() {
        assert!(line.width() <= 80, "{} columns: {line}", line.width());
    }
    for words in [
        "compiling 1 C programs",
        "run time",
        "read from the device",
        "Fig. 5",
        "584 s",
        "The smallest limit that works is",
    ] {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(words), "'{words}' is not in:\n{text}");
    }
    nothing_left(&sandbox, &["result.json"]);
}

#[test]
fn what_needs_more_memory_or_time_than_it_has_is_a_result() {
    if !can_make(FileSystemKind::Ext4) || !can_limit() {
        return;
    }
    let sandbox = sandbox();
    let measure = |script: &str, longest: &str| -> Document {
        let ran = run(args![
            "bench",
            "cache",
            "--json",
            "--scratch",
            sandbox.path(),
            "--block-sizes",
            "4K",
            "--cache-sizes",
            "12M,1G",
            "--rounds",
            "2",
            "--longest",
            longest,
            "--",
            "sh",
            "-c",
            script
        ]);
        serde_json::from_slice(&ran.ended(0).stdout).unwrap()
    };
    // The text that the shell keeps is anonymous memory.
    let document = measure("x=$(head -c 40000000 /dev/zero | tr '\\0' a); test ${#x} = 40000000", "100");
    let failure = cell(&document, 12 * MIB, 4096).failure.as_ref().unwrap();
    assert_eq!(failure.kind, FailureKind::OutOfMemory, "{failure:?}");
    assert_eq!(cell(&document, 1024 * MIB, 4096).failure, None);
    assert!(cell(&document, 1024 * MIB, 4096).anonymous_bytes > 30 * MIB, "{document:?}");
    // Without a limit there is no timeout.
    let document = measure("sleep 3", "1");
    let failure = cell(&document, 12 * MIB, 4096).failure.as_ref().unwrap();
    assert_eq!(failure.kind, FailureKind::TooLong);
    assert!(document.series.iter().all(|series| series.measure != "run"));
    nothing_left(&sandbox, &[]);
    assert_eq!(group_of(&sandbox), None);
}

#[test]
fn a_command_that_fails_ends_it_with_its_own_words() {
    if !can_make(FileSystemKind::Ext4) || !can_limit() {
        return;
    }
    let sandbox = sandbox();
    for (script, words) in [("echo 'all is lost' >&2; exit 3", "all is lost"), ("exit 4", "exit status: 4")] {
        let ran =
            run(args!["bench", "cache", "--scratch", sandbox.path(), "--cache-sizes", "64M", "--", "sh", "-c", script])
                .ended(2);
        assert!(ran.said().contains(words) && ran.said().contains("without a memory limit"), "{}", ran.said());
        nothing_left(&sandbox, &[]);
    }
    let ran = run(args!["bench", "cache", "--scratch", sandbox.path(), "--", "granulo-no-such-program"]).ended(2);
    assert!(ran.said().contains("granulo-no-such-program"), "{}", ran.said());
}

#[test]
fn nothing_is_left_of_a_run_that_is_interrupted() {
    if !can_make(FileSystemKind::Ext4) || !can_limit() {
        return;
    }
    let sandbox = sandbox();
    let arguments =
        args!["cache", "--json", "--scratch", sandbox.path(), "--cache-sizes", "64M", "--", "sleep", "1000"];
    let mut running = Running::start(arguments);
    let mut group = None;
    running.until("the command runs", || {
        group = group_of(&sandbox);
        group
            .as_ref()
            .is_some_and(|group| fs::read_to_string(group.join("cgroup.procs")).is_ok_and(|text| !text.is_empty()))
    });
    running.signal(Signal::INT);
    let ran = running.end().ended(1);
    let document: Document = serde_json::from_slice(&ran.stdout).unwrap();
    assert!(!document.complete && ran.said().contains("interrupted"), "{}", ran.said());
    assert!(!group.unwrap().exists());
    nothing_left(&sandbox, &[]);
}

#[test]
fn nothing_is_left_of_a_run_that_was_killed_after_the_next() {
    if !can_make(FileSystemKind::Ext4) || !can_limit() {
        return;
    }
    let sandbox = sandbox();
    let mut running = Running::start(args![
        "cache",
        "--scratch",
        sandbox.path(),
        "--cache-sizes",
        "64M",
        "--",
        "sh",
        "-c",
        "sleep 1000 & sleep 1000; true"
    ]);
    let processes = |group: &Path| fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    let mut group = PathBuf::new();
    running.until("the command runs", || {
        group = group_of(&sandbox).unwrap_or_default();
        processes(&group).lines().count() >= 3
    });
    running.signal(Signal::KILL);
    running.end();
    let left = processes(&group);
    assert!(left.lines().count() >= 3, "they outlive it: {left}");
    let ran = run(args![
        "bench",
        "cache",
        "--scratch",
        sandbox.path(),
        "--block-sizes",
        "4K",
        "--cache-sizes",
        "64M",
        "--rounds",
        "1",
        "--",
        "true"
    ]);
    let ran = ran.ended(0);
    assert!(ran.said().contains("removed leftovers of a killed run"), "{}", ran.said());
    assert!(!group.exists());
    let is_asleep =
        |process: &str| fs::read_to_string(format!("/proc/{process}/cmdline")).is_ok_and(|line| line.contains("sleep"));
    assert!(!left.lines().any(is_asleep), "{left}");
    nothing_left(&sandbox, &[]);
}

#[test]
fn wrong_requests_are_refused_before_anything_is_done() {
    let sandbox = sandbox();
    let file = sandbox.path().join("file");
    fs::write(&file, b"x").unwrap();
    for (arguments, words) in [
        (args!["--store"], "--store"),
        (args!["--cache-sizes", "100K"], "is too little to run any program"),
        (args!["--cache-sizes", "little"], "little"),
        (args!["--block-sizes", "4X"], "4X"),
        (args!["--programs", "0"], "--programs"),
        (args!["--tree", &file], "COMMAND"),
        (args!["--tree", &file, "--", "true"], "not a directory"),
        (args!["--tree", sandbox.path().join("none"), "--", "true"], "none"),
        (args!["--programs", "3", "--", "true"], "--programs"),
    ] {
        let ran = run([args!["bench", "cache"], arguments.clone()].concat()).ended(2);
        assert!(ran.said().contains(words), "{arguments:?}: {}", ran.said());
    }
    if can_make(FileSystemKind::Ext4) && can_limit() {
        let ran = run(args![
            "bench",
            "cache",
            "--scratch",
            sandbox.path(),
            "--fs",
            "ext4",
            "--block-sizes",
            "128K",
            "--",
            "true"
        ])
        .ended(2);
        assert!(ran.said().contains("none of these file systems supports blocks of 128"), "{}", ran.said());
    }
    nothing_left(&sandbox, &["file"]);
}

#[test]
fn what_it_needs_is_said() {
    let sandbox = sandbox();
    if let Some(mut command) = granulo_as_nobody(&sandbox) {
        let ran = finish(command.args(["bench", "cache", "--", "true"])).ended(2);
        assert!(ran.said().contains("needs root"), "{}", ran.said());
    }
    let empty = sandbox.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let mut command = granulo();
    let said = finish(command.env("PATH", &empty).args(["bench", "cache"])).ended(2).said();
    assert!(said.contains("sh") && said.contains("PATH"), "{said}");
    if has_program("sh") && is_root() {
        std::os::unix::fs::symlink("/bin/sh", empty.join("sh")).unwrap();
        let said = finish(granulo().env("PATH", &empty).args(["bench", "cache"])).ended(2).said();
        assert!(said.contains("cc") && said.contains("install the package gcc"), "{said}");
    }
    if !can_limit() {
        return;
    }
    let script = "umount /sys/fs/cgroup/memory || exit 77\n\"$GRANULO\" bench cache -- true";
    let Some(ran) = in_mount_namespace(script, &[]) else { return };
    if ran.code == Some(77) {
        return skip("it takes the memory controller away, which is not mounted by itself here");
    }
    let said = ran.ended(2).said();
    assert!(
        said.contains("memory controller") && (said.contains("mount it") || said.contains("boot a kernel")),
        "{said}"
    );
}
