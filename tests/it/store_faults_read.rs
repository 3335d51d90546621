//! The n-th system call fails, from outside, for what [`crate::store_faults`] leaves out: calls that read and that ask
//! the file system, in every command, and any call in commands that read, check, repair and rebuild.
//!
//! What must hold: exit status 0 only if everything was done; else 1 or 2 and a message; no wrong byte, no panic,
//! nothing lost; and the same command without the failure then succeeds.
//!
//! `GRANULO_FAULTS` is the number of failures to try (60), with a fixed seed and each kind as often as any other; `all`
//! tries each.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use granulo_core::random::Random;

use crate::args;
use crate::harness::Ran;
use crate::store_faults::{CALLS, ERRORS, Work, counts, is_sound, prepared, restore, stays_sound, works};
use crate::store_place::{Place, can_trace, files, flip};

/// Calls that read, and calls that ask the file system.
const READS: [&str; 10] =
    ["read", "pread64", "statx", "newfstatat", "getdents64", "flock", "mkdir", "fallocate", "statfs", "readlink"];

/// What a command does, and so what must hold after it.
enum Deed {
    /// It changes the contents.
    Changes,
    /// It prints an object.
    Prints(Vec<u8>),
    /// It writes all objects to a directory.
    Exports(PathBuf),
    /// It only reads.
    Reads,
    /// It fixes damage, or the loss of a device.
    Fixes { lost: Option<usize> },
}

struct Task {
    work: Work,
    deed: Deed,
    calls: Vec<&'static str>,
}

fn tasks(place: &Place) -> Vec<Task> {
    let task = |name, rest: Vec<OsString>, deed| {
        let arguments = [args![name, &place.home], rest].concat();
        let work = Work { name, arguments, removed: "", added: BTreeMap::new() };
        Task { work, deed, calls: [&READS[..], &CALLS[..]].concat() }
    };
    let (key, content) = place.objects.last_key_value().unwrap();
    let target = place.path("target");
    let mut tasks = vec![
        task("get", args![key], Deed::Prints(content.clone())),
        task("export", args!["--quiet", &target], Deed::Exports(target.clone())),
        task("check", args!["--deep"], Deed::Reads),
        task("ls", args!["-R"], Deed::Reads),
    ];
    if place.devices.len() > 1 {
        tasks.push(task("repair", args![], Deed::Fixes { lost: None }));
        let onto = args!["--device", "3", "--onto", place.path("new")];
        tasks.push(task("rebuild", onto, Deed::Fixes { lost: Some(3) }));
    }
    let changes = works(place).into_iter();
    tasks.extend(changes.map(|work| Task { work, deed: Deed::Changes, calls: READS.to_vec() }));
    tasks
}

/// The store as the command is to find it.
fn prepare(place: &Place, pristine: &Path, task: &Task) {
    restore(place, pristine);
    for left in ["target", "new"] {
        let _ = fs::remove_dir_all(place.path(left));
    }
    match task.deed {
        Deed::Fixes { lost: Some(device) } => fs::remove_dir_all(&place.devices[device]).unwrap(),
        Deed::Fixes { lost: None } => {
            flip(&place.segments(0)[0], 3000);
            flip(&files(&place.devices[3].join("extents"))[0], 5000);
            flip(&place.devices[1].join("superblock"), 40);
        }
        _ => {}
    }
}

/// Asserts what must hold after a command in which a call failed.
fn judge(place: &Place, task: &Task, ran: &Ran, what: &str) {
    let is_done = ran.code == Some(0);
    match &task.deed {
        Deed::Changes => return stays_sound(place, &task.work, is_done, what),
        Deed::Prints(content) => {
            let is_right = if is_done { ran.stdout == *content } else { content.starts_with(&ran.stdout) };
            assert!(is_right, "{what}: it prints other bytes");
        }
        Deed::Exports(target) => {
            let exported = if target.exists() { files(target) } else { Vec::new() };
            for path in &exported {
                let key = path.strip_prefix(target).unwrap().to_str().unwrap();
                let content = place.objects.get(key).unwrap_or_else(|| panic!("{what}: {key} is exported"));
                assert!(fs::read(path).unwrap() == *content, "{what}: {key} is exported with other bytes");
            }
            assert!(!is_done || exported.len() == place.objects.len(), "{what}: it ended with 0, and not all is there");
        }
        Deed::Reads => {}
        Deed::Fixes { lost } => {
            if !is_done {
                // What was begun is continued. If the new directory has taken over, there is nothing left to rebuild.
                let again = place.run(task.work.arguments.clone());
                let is_fixed = again.code == Some(0) || (lost.is_some() && again.code == Some(2));
                assert!(is_fixed, "{what}, then again: {:?}, {}{}", again.code, again.said(), again.text());
            }
            let checked = place.run_on("check", args!["--deep"]);
            if checked.code != Some(0) {
                // A device that failed is left behind, and what it has counts as one copy less until it is repaired.
                let found = checked.text();
                let is_left = |line: &str| ["repairable: ", "device: "].iter().any(|kind| line.starts_with(kind));
                let is_known = found.lines().filter(|line| line.contains(": /")).all(is_left);
                assert!(checked.code == Some(1) && is_known, "{what}, then check: {}{found}", checked.said());
                let repaired = place.run_on("repair", [""; 0]);
                assert_eq!(repaired.code, Some(0), "{what}, then repair: {}{}", repaired.said(), repaired.text());
            }
            let checked = place.run_on("check", args!["--deep"]);
            assert_eq!(checked.code, Some(0), "{what}, then check: {}{}", checked.said(), checked.text());
        }
    }
    is_sound(place, &task.work, is_done, what);
}

/// A call that fails: store, task, call, error, and which of its calls.
type Fault = (usize, usize, &'static str, &'static str, usize);

/// This many of them, the first of each group before the second of any, in random order.
fn chosen(mut groups: Vec<Vec<Fault>>, count: usize) -> Vec<Fault> {
    let mut random = Random::new(7);
    let mut chosen = Vec::new();
    while chosen.len() < count && !groups.is_empty() {
        for at in (1..groups.len()).rev() {
            groups.swap(at, random.below(at as u64 + 1) as usize);
        }
        for group in &mut groups {
            chosen.push(group.swap_remove(random.below(group.len() as u64) as usize));
        }
        groups.retain(|group| !group.is_empty());
    }
    chosen.truncate(count);
    chosen
}

#[test]
fn any_call_that_fails_in_any_command_is_told_and_loses_nothing() {
    if !can_trace() {
        return;
    }
    let places = [prepared(0, 0), prepared(2, 3)];
    let all: Vec<Vec<Task>> = places.iter().map(|(place, _)| tasks(place)).collect();
    let trace = |calls: &[&str]| format!("trace={}", calls.join(","));
    let mut groups: Vec<Vec<Fault>> = Vec::new();
    for (at, ((place, pristine), tasks)) in places.iter().zip(&all).enumerate() {
        for (number, task) in tasks.iter().enumerate() {
            prepare(place, pristine, task);
            place.strace(&["-e", &trace(&task.calls)], task.work.arguments.clone()).unwrap().ended(0);
            for (call, count) in counts(&place.trace(), &task.calls) {
                let each = (1..=count).flat_map(|when| ERRORS.map(|error| (at, number, call, error, when)));
                groups.push(each.collect());
            }
        }
    }
    let count = match std::env::var("GRANULO_FAULTS").as_deref() {
        Ok("all") => usize::MAX,
        wanted => wanted.map_or(60, |wanted| wanted.parse().expect("GRANULO_FAULTS is a number or 'all'")),
    };
    for (at, number, call, error, when) in chosen(groups, count) {
        let ((place, pristine), task) = (&places[at], &all[at][number]);
        let what = format!("{} of {} devices, {call} {when} fails with {error}", task.work.name, place.devices.len());
        prepare(place, pristine, task);
        let inject = format!("inject={call}:error={error}:when={when}");
        let options = ["-e", &trace(&task.calls), "-e", &inject];
        let ran = place.strace(&options, task.work.arguments.clone()).unwrap();
        // 127: the dynamic loader, which says so.
        assert!(matches!(ran.code, Some(0..=2 | 127)), "{what}: {:?}, {}", ran.code, ran.said());
        // These report what they found on standard output.
        let reports = ["check", "repair", "rebuild"].contains(&task.work.name);
        let is_told = !ran.said().trim().is_empty() || (reports && !ran.stdout.is_empty());
        assert!(ran.code == Some(0) || is_told, "{what}: it fails and says nothing");
        judge(place, task, &ran, &what);
    }
}
