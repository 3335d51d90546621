//! Every command on the address of a bucket, against a server of S3 in this process.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use tempfile::TempDir;

use crate::harness::{Ran, complains, finish, granulo, sandbox};
use crate::nasty::{assert_same_trees, nasty_tree};
use crate::simulated::{Fault, KEY_ID, Kind, SECRET, Server};

const ADDRESS: &str = "s3://bucket/some/store";

/// A server, and a machine that has its keys.
struct Place {
    server: Server,
    sandbox: TempDir,
}

impl Place {
    fn new(kind: Kind) -> Place {
        Place { server: Server::start(kind), sandbox: sandbox() }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.sandbox.path().join(name)
    }

    /// Runs a command of `granulo store` on the store.
    fn on<S: AsRef<OsStr>>(&self, command: &[&str], rest: &[S]) -> Ran {
        let mut run = granulo();
        for (variable, value) in [("AWS_ACCESS_KEY_ID", KEY_ID), ("AWS_SECRET_ACCESS_KEY", SECRET)] {
            run.env(variable, value);
        }
        run.env("AWS_ENDPOINT_URL", self.server.endpoint()).env("HOME", self.sandbox.path());
        run.env_remove("AWS_PROFILE").env_remove("AWS_ENDPOINT_URL_S3").env_remove("XDG_CACHE_HOME");
        finish(run.arg("store").args(command).arg(ADDRESS).args(rest))
    }

    fn put(&self, key: &str, bytes: &[u8]) {
        let path = self.path("content");
        fs::write(&path, bytes).unwrap();
        self.on(&["put"], &[OsStr::new(key), path.as_os_str()]).ended(0);
    }

    fn requests(&self) -> usize {
        self.server.requests().len()
    }
}

const NOTHING: [&str; 0] = [];

#[test]
fn a_tree_comes_back_from_a_bucket_as_it_was() {
    let place = Place::new(Kind::Ceph);
    let (tree, exported) = (place.path("tree"), place.path("exported"));
    fs::create_dir(&tree).unwrap();
    nasty_tree(&tree, 1 << 20);
    let made = place.on(&["init"], &["--json"]).ended(0).json();
    assert_eq!((made["home"].as_str(), made["devices"][0]["path"].as_str()), (Some(ADDRESS), Some(ADDRESS)));
    complains(&place.on(&["init"], &NOTHING).ended(2), &[ADDRESS, "a store already exists"]);
    place.on(&["import"], &[tree.as_os_str()]).ended(0);
    place.on(&["export"], &[exported.as_os_str()]).ended(0);
    assert_same_trees(&tree, &exported);
    assert!(place.on(&["check"], &["--deep"]).ended(0).text().contains("no problems"));
    place.on(&["scrub"], &NOTHING).ended(0);
    place.on(&["load"], &["--json"]).ended(0);
    let status = place.on(&["status"], &["--json"]).ended(0).json();
    assert_eq!(status["home"].as_str(), Some(ADDRESS), "{status}");
    let names: Vec<String> = place.server.state().objects.keys().cloned().collect();
    let is_ours = |name: &String| {
        ["manifest", "fast/", "slow/"].iter().any(|start| name.starts_with(&format!("some/store/{start}")))
    };
    assert!(names.iter().all(is_ours), "{names:?}");
}

#[test]
fn every_command_takes_an_address() {
    let place = Place::new(Kind::Documented);
    place.on(&["init"], &["--compress", "zstd"]).ended(0);
    place.put("a/one", b"one");
    place.put("a/two", &vec![7; 300_000]);
    assert_eq!(place.on(&["get"], &["a/one"]).ended(0).stdout, b"one");
    assert_eq!(place.on(&["ls"], &["a"]).ended(0).text(), "one\ntwo\n");
    place.on(&["stat"], &["a/one"]).ended(0);
    place.on(&["log"], &["a/one"]).ended(0);
    place.on(&["snapshot", "create"], &["monday"]).ended(0);
    place.on(&["mv"], &["a/one", "a/three"]).ended(0);
    place.on(&["cp"], &["a/three", "b"]).ended(0);
    place.on(&["ln"], &["b", "c"]).ended(0);
    place.on(&["rm"], &["a/two"]).ended(0);
    assert_eq!(place.on(&["get"], &["a/one", "--at", "monday"]).ended(0).stdout, b"one");
    assert!(place.on(&["snapshot", "ls"], &NOTHING).ended(0).text().contains("monday"));
    place.on(&["snapshot", "rm"], &["monday"]).ended(0);
    place.on(&["compact"], &["--all"]).ended(0);
    place.on(&["repair"], &NOTHING).ended(0);
    place.on(&["rebalance"], &NOTHING).ended(0);
    place.on(&["status"], &NOTHING).ended(0);
    assert_eq!(place.on(&["get"], &["c"]).ended(0).stdout, b"one");
    assert_eq!(place.on(&["ls"], &["-R"]).ended(0).text(), "a\na/three\nb\nc\n");
}

#[test]
fn few_requests_are_sent() {
    let place = Place::new(Kind::Documented);
    place.on(&["init"], &NOTHING).ended(0);
    // Is there one (twice), or anything else? Five of the probe; the manifest, and its end.
    assert_eq!(place.requests(), 10);
    place.put("key", b"content");
    let put = place.requests();
    assert!(put <= 4, "{put} requests to put a small file");
    place.on(&["get"], &["key"]).ended(0);
    let get = place.requests();
    assert!(get <= 2, "{get} requests to get it");
}

#[test]
fn large_files_may_be_in_another_class() {
    let place = Place::new(Kind::Documented);
    place.on(&["init"], &NOTHING).ended(0);
    let path = place.path("large");
    fs::write(&path, vec![1; 1 << 20]).unwrap();
    let rest = [OsStr::new("key"), path.as_os_str(), OsStr::new("--slow-class=COLD"), OsStr::new("--object-size=256K")];
    place.on(&["put"], &rest).ended(0);
    let state = place.server.state();
    let slow: Vec<_> = state.objects.iter().filter(|(name, _)| name.starts_with("some/store/slow/")).collect();
    assert!(slow.len() >= 4, "{slow:?}");
    assert!(slow.iter().all(|(_, stored)| stored.class.as_deref() == Some("COLD")));
    assert!(state.objects.iter().all(|(name, stored)| name.contains("/slow/") || stored.class.is_none()));
    drop(state);
    let rest = [OsStr::new("key"), path.as_os_str(), OsStr::new("--slow-class=DEEP_ARCHIVE")];
    complains(&place.on(&["put"], &rest).ended(2), &["restored"]);
    complains(&place.on(&["put"], &["k", "f", "--object-size=1K"]).ended(2), &["64KiB"]);
}

#[test]
fn what_cannot_be_is_said() {
    let place = Place::new(Kind::Versioned);
    complains(&place.on(&["init"], &NOTHING).ended(2), &["conditional puts", "versioning"]);
    assert!(place.server.state().objects.is_empty());
    complains(&place.on(&["ls"], &NOTHING).ended(2), &[ADDRESS]);
    place.requests();
    let run = |address: &str, variables: &[(&str, &str)]| {
        let mut run = granulo();
        run.env("AWS_ENDPOINT_URL", place.server.endpoint()).env("HOME", place.sandbox.path());
        run.env("AWS_ACCESS_KEY_ID", KEY_ID).env("AWS_SECRET_ACCESS_KEY", SECRET);
        run.envs(variables.iter().copied());
        finish(run.args(["store", "ls", address])).ended(2)
    };
    complains(&run(ADDRESS, &[("AWS_ACCESS_KEY_ID", "other")]), &["InvalidAccessKeyId", "check the credentials"]);
    complains(&run("s3://nosuch/a", &[]), &["NoSuchBucket", "create the bucket"]);
    complains(&run("s3:///a", &[]), &["does not name a bucket"]);
    complains(&run(ADDRESS, &[("AWS_PROFILE", "nosuch")]), &["no profile nosuch"]);
    // Permanent errors are not tried again.
    assert_eq!(place.server.requests().iter().filter(|request| request.starts_with("GET")).count(), 2);
}

#[test]
fn a_device_beside_a_bucket_is_refused() {
    let place = Place::new(Kind::Documented);
    let device = place.path("fast");
    let refused = place.on(&["init"], &[OsStr::new("--fast"), device.as_os_str()]).ended(2);
    complains(&refused, &["a store in a bucket has no other devices"]);
    assert!(!Path::new(&device).exists());
}

#[test]
fn faults_of_the_network_are_survived() {
    let place = Place::new(Kind::Ceph);
    place.on(&["init"], &NOTHING).ended(0);
    let faults = [Fault::CutAfter, Fault::Status(503, "SlowDown"), Fault::Twice, Fault::StatusAfter(500, "")];
    for (number, fault) in faults.into_iter().enumerate() {
        // In a read, in the beginning of an epoch, and in a batch.
        place.server.fail_next(&[Some(fault), None, Some(fault), None, Some(fault)]);
        place.put(&number.to_string(), format!("{fault:?}").as_bytes());
        place.server.fail_next(&[]);
    }
    for (number, fault) in faults.into_iter().enumerate() {
        let found = place.on(&["get"], &[number.to_string()]).ended(0);
        assert_eq!(found.stdout, format!("{fault:?}").into_bytes());
    }
}
