//! The n-th system call fails, from outside: strace makes the call return an error instead of executing it, for each
//! call that a command makes, and for threads that cannot be created.
//!
//! What must hold: a command that reports success has done everything; one that fails reports why and ends neither in a
//! panic nor by a signal; everything acknowledged before still exists with its bytes, and a later writer and `check
//! --deep` find nothing lost.
//!
//! `GRANULO_FAULTS` is the number of failures to try (60), spread over all possible ones; `all` tries each.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::Path;

use crate::args;
use crate::store_place::{Place, bytes, can_trace, copy_all};

/// The calls that fail, and how.
pub const CALLS: [&str; 12] = [
    "write",
    "pwrite64",
    "pwritev",
    "fdatasync",
    "fsync",
    "openat",
    "rename",
    "renameat",
    "renameat2",
    "ftruncate",
    "unlink",
    "unlinkat",
];
pub const ERRORS: [&str; 3] = ["EIO", "ENOSPC", "EINTR"];

/// A command that changes a store, and the expected contents after it.
pub struct Work {
    pub name: &'static str,
    pub arguments: Vec<OsString>,
    /// Keys that are missing after it.
    pub removed: &'static str,
    /// Keys that are added.
    pub added: BTreeMap<String, Vec<u8>>,
}

pub fn works(place: &Place) -> Vec<Work> {
    let file = place.path("put-file");
    fs::write(&file, bytes(9, 2000)).unwrap();
    let source = place.path("more");
    let mut added = BTreeMap::new();
    for number in 0..12u64 {
        let name = format!("more/{}/{number}", number % 3);
        let content = bytes(1000 + number, if number == 7 { 250_000 } else { 1500 });
        fs::create_dir_all(source.join(&name).parent().unwrap()).unwrap();
        fs::write(source.join(&name), &content).unwrap();
        added.insert(name, content);
    }
    let work = |name, rest: Vec<OsString>, removed, added| {
        let arguments = [args![name, &place.home], rest].concat();
        Work { name, arguments, removed, added }
    };
    let put = BTreeMap::from([("new".to_owned(), bytes(9, 2000))]);
    vec![
        work("put", args!["new", &file], "", put),
        work("import", args!["--quiet", &source], "", added),
        work("rm", args!["-r", "i1/d2"], "i1/d2/", BTreeMap::new()),
        work("compact", args!["--all"], "", BTreeMap::new()),
    ]
}

/// Largest number of each call by one thread: strace counts each thread separately.
pub fn counts(trace: &str, calls: &[&'static str]) -> BTreeMap<&'static str, usize> {
    let mut by_thread: BTreeMap<(&str, &'static str), usize> = BTreeMap::new();
    for line in trace.lines() {
        let Some((thread, call)) = line.split_once(' ') else { continue };
        let call = call.trim_start();
        if let Some(name) =
            calls.iter().find(|name| call.strip_prefix(**name).is_some_and(|rest| rest.starts_with('(')))
        {
            *by_thread.entry((thread, name)).or_default() += 1;
        }
    }
    let mut most = BTreeMap::new();
    for ((_, name), count) in by_thread {
        let known: &mut usize = most.entry(name).or_default();
        *known = count.max(*known);
    }
    most
}

/// Restores the original state of a store.
pub fn restore(place: &Place, pristine: &Path) {
    for directory in place.devices.iter().chain([&place.home]) {
        if directory.exists() {
            fs::remove_dir_all(directory).unwrap();
        }
    }
    for directory in place.devices.iter().chain([&place.home]) {
        if !directory.exists() {
            copy_all(&pristine.join(directory.file_name().unwrap()), directory);
        }
    }
}

/// Asserts that the export has the original contents, with or without the changes of the work: with all of them if it
/// was done.
pub fn is_sound(place: &Place, work: &Work, is_done: bool, what: &str) {
    let (exported, ran) = place.export();
    ran.ended(0);
    for (key, content) in &place.objects {
        let is_removed = !work.removed.is_empty() && key.starts_with(work.removed);
        match exported.get(key) {
            Some(read) => {
                assert!(read == content, "{what}: {key} has other bytes");
                assert!(!(is_removed && is_done), "{what}: it ended with 0, and {key} is there");
            }
            None => assert!(is_removed, "{what}: {key} is gone"),
        }
    }
    for (key, content) in &work.added {
        match exported.get(key) {
            Some(read) => assert!(read == content, "{what}: {key} has other bytes"),
            None => assert!(!is_done, "{what}: it ended with 0, and {key} is not there"),
        }
    }
    let is_known = |key: &String| place.objects.contains_key(key) || work.added.contains_key(key);
    assert!(exported.keys().all(is_known), "{what}: there is more than was put");
}

/// The same, and that whoever uses the store afterwards finds nothing wrong and can write.
pub fn stays_sound(place: &Place, work: &Work, is_done: bool, what: &str) {
    is_sound(place, work, is_done, what);
    let file = place.path("put-file");
    let ends_with_0 = |command: &str, rest: Vec<OsString>| {
        let ran = place.run_on(command, rest);
        assert_eq!(ran.code, Some(0), "{what}, then {command}: {}{}", ran.said(), ran.text());
    };
    ends_with_0("put", args!["after", &file]);
    let checked = place.run_on("check", args!["--deep"]);
    if checked.code != Some(0) {
        // Devices that failed are left behind, with whatever the failed write left there, and segments lack their copies
        // on them; nothing else is wrong, and repair fixes it.
        let found = checked.text();
        let stale = found.lines().filter(|line| line.contains(" is stale: it was absent"));
        let on_them: Vec<&str> = stale.filter_map(|line| line.split(": device ").next()).collect();
        let is_left_behind = |line: &str| {
            line.starts_with("repairable: ") && on_them.iter().any(|on_it| line.starts_with(on_it))
                || line.starts_with("device: ") && line.contains(": it has 1 of 2 copies")
        };
        let mut problems = found.lines().filter(|line| line.contains(": /"));
        let is_known = place.devices.len() > 1 && problems.all(is_left_behind);
        assert!(checked.code == Some(1) && is_known, "{what}, then check: {}{found}", checked.said());
        ends_with_0("repair", args![]);
        ends_with_0("check", args!["--deep"]);
    }
    ends_with_0("rm", args!["after"]);
    is_sound(place, work, is_done, what);
}

/// A store with something to compact, and where a copy of it is.
pub fn prepared(fast: usize, slow: usize) -> (Place, std::path::PathBuf) {
    let mut place = Place::new(fast, slow, &[]);
    place.import(25, 2);
    // Something for compaction to do.
    place.run_on("rm", ["-r", "i1/d1"]).ended(0);
    place.objects.retain(|key, _| !key.starts_with("i1/d1/"));
    let pristine = place.path("pristine");
    fs::create_dir(&pristine).unwrap();
    for directory in place.devices.iter().chain([&place.home]) {
        let to = pristine.join(directory.file_name().unwrap());
        if !to.exists() {
            copy_all(directory, &to);
        }
    }
    (place, pristine)
}

#[test]
fn any_call_that_fails_is_told_and_loses_nothing() {
    if !can_trace() {
        return;
    }
    let wanted = std::env::var("GRANULO_FAULTS").unwrap_or_else(|_| "60".to_owned());
    let mut faults = Vec::new();
    let places = [prepared(0, 0), prepared(2, 3)];
    let all: Vec<Vec<Work>> = places.iter().map(|(place, _)| works(place)).collect();
    let trace = format!("trace={}", CALLS.join(","));
    for (at, ((place, pristine), works)) in places.iter().zip(&all).enumerate() {
        for (number, work) in works.iter().enumerate() {
            restore(place, pristine);
            place.strace(&["-e", &trace], work.arguments.clone()).unwrap().ended(0);
            for (call, count) in counts(&place.trace(), &CALLS) {
                let each = (1..=count).flat_map(|when| ERRORS.map(|error| (at, number, call, error, when)));
                faults.extend(each);
            }
        }
    }
    let count = if wanted == "all" { faults.len() } else { wanted.parse().unwrap() };
    // A stride without a common factor with the numbers of calls and errors.
    let stride = (faults.len() / count.max(1)).max(1) | 1;
    let mut tried = 0;
    for &(at, number, call, error, when) in faults.iter().step_by(stride) {
        let ((place, pristine), work) = (&places[at], &all[at][number]);
        let what = format!("{} of {} devices, {call} {when} fails with {error}", work.name, place.devices.len());
        restore(place, pristine);
        let inject = format!("inject={call}:error={error}:when={when}");
        let ran = place.strace(&["-e", &trace, "-e", &inject], work.arguments.clone()).unwrap();
        assert!(ran.code.is_some_and(|code| code <= 2 || code == 127), "{what}: {:?}, {}", ran.code, ran.said());
        assert!(ran.code == Some(0) || !ran.said().trim().is_empty(), "{what}: it fails and says nothing");
        stays_sound(place, work, ran.code == Some(0), &what);
        tried += 1;
    }
    assert!(tried > 0);
}

#[test]
fn threads_that_cannot_be_made_end_nothing_in_a_panic() {
    if !can_trace() {
        return;
    }
    for (fast, slow) in [(0, 0), (2, 3)] {
        let (place, pristine) = prepared(fast, slow);
        let mut works = works(&place);
        let reads = ["load", "scrub", "check", "ls"].map(|name| Work {
            name,
            arguments: args![name, &place.home],
            removed: "",
            added: BTreeMap::new(),
        });
        works.extend(reads);
        for work in &works {
            for from in 1..=3 {
                restore(&place, &pristine);
                let what = format!("{} of {} devices, threads fail from {from} on", work.name, place.devices.len());
                let inject = format!("inject=clone,clone3:error=EAGAIN:when={from}+");
                let ran = place.strace(&["-e", &inject], work.arguments.clone()).unwrap();
                assert!(matches!(ran.code, Some(0..=2)), "{what}: {:?}, {}", ran.code, ran.said());
                assert!(ran.code == Some(0) || !ran.said().trim().is_empty(), "{what}: it fails and says nothing");
                is_sound(&place, work, ran.code == Some(0), &what);
            }
        }
        place.run_on("check", ["--deep"]).ended(0);
    }
}
