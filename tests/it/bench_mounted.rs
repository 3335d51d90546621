//! `--mount` of the benches: files in a mounted store, measured beside others, and nothing left.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::chown;
use std::path::Path;
use std::process::Command;

use granulo::testing::bench::file_systems::FileSystemKind;
use granulo::testing::bench::result::{Details, Document, Subject, SubjectKind};
use rustix::process::Signal;

use crate::args;
use crate::bench_harness::{Running, can_make, left_below, nothing_left};
use crate::bench_metadata::measures;
use crate::harness::{finish, granulo_as_nobody, has_program, run, sandbox, skip, without_wishes};
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
fn a_user_measures_a_mounted_store_and_leaves_nothing() {
    if !can_mount() {
        return;
    }
    if !has_program("fusermount3") || !has_program("unshare") {
        return skip("there is no fusermount3 or no unshare");
    }
    let sandbox = sandbox();
    chown(sandbox.path(), Some(65534), Some(65534)).unwrap();
    let Some(copied) = granulo_as_nobody(&sandbox) else { return };
    // Everybody may open /dev/fuse on most systems, but not on all: in this namespace they may.
    let script = r#"
        mkdir "$1/dev"
        mount -t tmpfs -o dev,mode=755 none "$1/dev"
        mknod -m 666 "$1/dev/fuse" c 10 229
        mount --bind "$1/dev/fuse" /dev/fuse
        cd "$1"
        setpriv --reuid=65534 --regid=65534 --clear-groups "$0" \
            bench create place --mount --files 10 --rounds 2 --json --scratch .
        if grep -F "$1/place" /proc/self/mountinfo >&2; then exit 7; fi
    "#;
    let program = copied.get_args().last().unwrap().to_owned();
    let mut command = without_wishes(Command::new("unshare"));
    command.args(["--mount", "--propagation", "private", "sh", "-euc", script]).arg(program);
    let ran = finish(command.arg(sandbox.path())).ended(0);
    let document: Document = serde_json::from_slice(&ran.stdout).unwrap();
    let mounted = ("mount on place", SubjectKind::Mount, "mounted");
    assert_eq!(seen(&document), [("place", SubjectKind::Directory, "not"), mounted]);
    assert_eq!(processes_below(sandbox.path()), 0);
    nothing_left(&sandbox, &["dev", "granulo"]);
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
