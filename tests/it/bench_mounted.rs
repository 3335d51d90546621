//! `--mount` of the benches: files in a mounted store, measured beside others, and nothing left.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use granulo::testing::bench::file_systems::FileSystemKind;
use granulo::testing::bench::result::{Details, Document, Subject, SubjectKind};
use rustix::process::Signal;

use crate::args;
use crate::bench_harness::{Running, can_make, left_below, nothing_left};
use crate::bench_metadata::measures;
use crate::harness::{run, sandbox};
use crate::mounted::can_mount;

#[track_caller]
fn measure(arguments: Vec<OsString>) -> Document {
    let ran = run([args!["bench"], arguments, args!["--json", "--rounds", "2"]].concat()).ended(0);
    assert_eq!(ran.said(), "");
    serde_json::from_slice(&ran.stdout).unwrap()
}

fn seen(document: &Document) -> Vec<(&str, SubjectKind, &str)> {
    let seen = |subject: &'_ Subject| subject.file_system.kind == "fuse.granulo";
    let kind = |subject| if seen(subject) { "mounted" } else { "not" };
    document.subjects.iter().map(|subject| (subject.name.as_str(), subject.kind, kind(subject))).collect()
}

#[test]
fn files_are_created_in_a_mounted_store_too() {
    if !can_mount() {
        return;
    }
    let sandbox = sandbox();
    let place = sandbox.path().join("place");
    let create = args!["create", &place, "--mount", "--store", "--files", "200", "--size", "3000", "--cold"];
    let document = measure(create);
    let (files, store) = (("place", SubjectKind::Directory, "not"), ("granulo on place", SubjectKind::Store, "not"));
    assert_eq!(seen(&document), [files, store, ("mount on place", SubjectKind::Mount, "mounted")]);
    let Details::Create(details) = &document.details else { panic!("{document:?}") };
    let phases = details.phases.iter().filter(|phase| phase.subject == 2);
    assert_eq!(phases.map(|phase| phase.latencies.count).collect::<Vec<_>>(), [200; 6]);
    nothing_left(&sandbox, &[]);
}

#[test]
fn a_mounted_store_is_packed_as_files_are() {
    if !can_mount() || !can_make(FileSystemKind::Ext4) {
        return;
    }
    let sandbox = sandbox();
    let pack = args!["pack", "--fs", "ext4", "--fs-size", "200MiB", "--mount", "--files", "300", "--size", "5000"];
    let document = measure([pack, args!["--orders", "name", "--scratch", sandbox.path()]].concat());
    let ext4 = ("ext4", SubjectKind::FileSystem, "not");
    assert_eq!(seen(&document), [ext4, ("mount on ext4", SubjectKind::Mount, "mounted")]);
    assert!(measures(&document, 0).contains(&"store load"));
    let of_mount = measures(&document, 1);
    assert!(of_mount.contains(&"files load by name") && of_mount.contains(&"composite load"), "{of_mount:?}");
    assert!(!of_mount.iter().any(|measure| measure.starts_with("store")), "{of_mount:?}");
    nothing_left(&sandbox, &[]);
}

#[test]
fn every_layout_of_a_store_is_measured_mounted() {
    if !can_mount() || !can_make(FileSystemKind::Ext4) {
        return;
    }
    let sandbox = sandbox();
    let small = "--files 300 --listed 700 --reads 150 --loads 100 --window 0.3 --warm-up 0.1 --threads 4";
    let metadata = args!["metadata", "--store-layout", "hybrid", "--mount", "--scratch", sandbox.path()];
    let document = measure([metadata, small.split(' ').map(Into::into).collect()].concat());
    let hybrid = ("granulo hybrid", SubjectKind::Store, "not");
    assert_eq!(seen(&document), [hybrid, ("mount hybrid", SubjectKind::Mount, "mounted")]);
    assert!(document.subjects.iter().all(|subject| subject.further_devices.len() == 1));
    let of_mount = measures(&document, 1);
    assert_eq!(of_mount, ["list", "reads, 1 thread", "reads, 4 threads", "peak load", "overall response time"]);
    let why = document.notes.iter().find(|note| note.starts_with("mount hybrid was not checked"));
    assert!(why.is_some(), "{:?}", document.notes);
    nothing_left(&sandbox, &[]);
}

/// Processes that were told something below a directory.
fn processes_below(directory: &Path) -> usize {
    let below = directory.to_str().unwrap().as_bytes();
    let names =
        fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    names.filter(|line| line.windows(below.len()).any(|window| window == below)).count()
}

#[test]
fn the_server_of_a_killed_run_ends_at_the_next_start() {
    if !can_mount() || !can_make(FileSystemKind::Ext4) {
        return;
    }
    let sandbox = sandbox();
    let scratch = sandbox.path();
    let create = args!["create", "--fs", "ext4", "--fs-size", "200MiB", "--mount", "--scratch", scratch];
    let arguments = [create, args!["--files", "5000", "--rounds", "1000", "--quiet"]].concat();
    let mut started = Running::start(arguments);
    started.until("the store is mounted", || left_below(scratch).iter().any(|line| line.contains("fuse.granulo")));
    started.signal(Signal::KILL);
    started.end();
    assert!(processes_below(scratch) > 0);
    let again = args!["bench", "create", "--fs", "ext4", "--fs-size", "100MiB", "--scratch", scratch, "--json"];
    let ran = run([again, args!["--files", "10", "--rounds", "1"]].concat()).ended(0);
    assert!(ran.said().contains("removed leftovers of a killed run"), "{}", ran.said());
    nothing_left(&sandbox, &[]);
    assert_eq!(processes_below(scratch), 0);
}
