//! Snapshots on the command line: taken, listed, compared, read by every command that reads, mounted, and expired.

use std::fs;
use std::path::Path;

use granulo::store::Store;

use crate::args;
use crate::harness::{Ran, complains, run, sandbox};
use crate::mounted::Place;
use crate::nasty::{assert_same_trees, nasty_tree};
use crate::store_cli::{on, put};

/// Runs a command of `granulo store snapshot`.
fn snapshot(command: &str, home: &Path, rest: &[&str]) -> Ran {
    run([args!["store", "snapshot", command, home], rest.iter().map(Into::into).collect()].concat())
}

#[test]
fn every_command_that_reads_reads_a_snapshot() {
    let sandbox = sandbox();
    let (home, tree) = (sandbox.path().join("home"), sandbox.path().join("tree"));
    fs::create_dir(&tree).unwrap();
    nasty_tree(&tree, 1 << 20);
    on("init", &home, [""; 0]).ended(0);
    on("import", &home, [tree.as_os_str()]).ended(0);
    let said = snapshot("create", &home, &["monday"]).ended(0);
    assert_eq!(said.text(), "monday\n");
    complains(&snapshot("create", &home, &["monday"]).ended(2), &["a snapshot with this name exists", "use another"]);
    complains(&snapshot("create", &home, &["a/b"]).ended(2), &["a name has no /"]);
    let listed = on("ls", &home, ["-R", "-l"]).ended(0).text();
    let loaded = on("load", &home, ["--json"]).ended(0).json();

    for name in fs::read_dir(&tree).unwrap() {
        on("rm", &home, ["-r".as_ref(), name.unwrap().file_name().as_os_str()]).ended(0);
    }
    put(&home, "new", b"new");
    on("compact", &home, ["--all"]).ended(0);

    let again = on("ls", &home, ["-R", "-l", "--at", "monday"]).ended(0).text();
    let other = again.lines().zip(listed.lines()).find(|(one, other)| one != other);
    assert_eq!((other, again.len()), (None, listed.len()));
    let again = on("load", &home, ["--json", "--at", "monday"]).ended(0).json();
    assert_eq!(again["content_bytes"], loaded["content_bytes"]);
    assert_eq!(again["objects"], loaded["objects"]);
    let exported = sandbox.path().join("exported");
    on("export", &home, [exported.as_os_str(), "--at".as_ref(), "monday".as_ref()]).ended(0);
    assert_same_trees(&tree, &exported);
    on("get", &home, ["new"]).ended(0);
    complains(&on("get", &home, ["new", "--at", "monday"]).ended(2), &["no such key"]);
    complains(&on("stat", &home, ["new", "--at", "monday"]).ended(2), &["no such key"]);
    complains(&on("get", &home, ["new", "--at", "sunday"]).ended(2), &["there is no snapshot sunday", "snapshot ls"]);
    assert!(on("check", &home, ["--deep"]).ended(0).text().contains("no problems"));
}

/// A store with a snapshot and changes after it.
fn changed(home: &Path) {
    on("init", home, [""; 0]).ended(0);
    for (key, length) in [("d/same", 10), ("d/changed", 100), ("d/gone", 1000)] {
        put(home, key, &vec![1; length]);
    }
    snapshot("create", home, &["monday"]).ended(0);
    put(home, "d/changed", &[2; 300_000]);
    put(home, "e/new", &[3; 7]);
    on("rm", home, ["d/gone"]).ended(0);
}

#[test]
fn what_differs_is_listed_with_sizes() {
    let sandbox = sandbox();
    let home = sandbox.path().join("home");
    changed(&home);
    let said = snapshot("diff", &home, &["monday"]).ended(0);
    assert_eq!(
        said.text(),
        "changed     293 KiB  d/changed (was 100 B)\nremoved     1,000 B  d/gone\nadded                e\n\
         added           7 B  e/new\n2 added (7 B), 1 changed (293 KiB), 1 removed (1,000 B)\n"
    );
    snapshot("create", &home, &["tuesday"]).ended(0);
    let document = snapshot("diff", &home, &["monday", "tuesday", "--prefix", "d", "--json"]).ended(0).json();
    assert_eq!(document["schema"], "granulo/store-snapshot-diff/1");
    assert_eq!((&document["from"], &document["to"]), (&"monday".into(), &"tuesday".into()));
    let keys: Vec<&str> =
        document["differences"].as_array().unwrap().iter().map(|one| one["key"].as_str().unwrap()).collect();
    assert_eq!(keys, ["d/changed", "d/gone"]);
    assert_eq!(document["totals"]["changed"]["size_bytes_after"], 300_000);
    assert_eq!(document["totals"]["removed"]["size_bytes_before"], 1000);
    // Nothing differs from itself, and the other way round what was added was removed.
    let same = snapshot("diff", &home, &["tuesday", "--json"]).ended(0).json();
    assert!(same["differences"].as_array().unwrap().is_empty());
    let back = snapshot("diff", &home, &["tuesday", "monday", "--json"]).ended(0).json();
    assert_eq!(back["totals"]["removed"]["objects"], 2);
    complains(&snapshot("diff", &home, &["friday"]).ended(2), &["there is no snapshot friday", "tuesday, monday"]);
}

#[test]
fn snapshots_are_listed_with_what_they_alone_keep_and_removed() {
    let sandbox = sandbox();
    let home = sandbox.path().join("home");
    changed(&home);
    let document = snapshot("ls", &home, &["--json"]).ended(0).json();
    let monday = &document["snapshots"][0];
    assert_eq!(monday["name"], "monday");
    assert_eq!((&monday["alone_objects"], &monday["alone_size_bytes"]), (&2.into(), &1100.into()));
    snapshot("create", &home, &["tuesday"]).ended(0);
    on("rm", &home, ["d/same"]).ended(0);
    // Both have the file that was removed last.
    let document = snapshot("ls", &home, &["--json"]).ended(0).json();
    let alone = |at: usize| document["snapshots"][at]["alone_size_bytes"].as_u64().unwrap();
    assert_eq!((alone(0), alone(1), &document["held_size_bytes"]), (1100, 0, &1110.into()));
    let table = snapshot("ls", &home, &[]).ended(0).text();
    assert!(table.contains("monday") && table.ends_with("Together they keep 3 objects, 1.08 KiB.\n"), "{table}");

    complains(&snapshot("rm", &home, &[]).ended(2), &["nothing says which", "--keep-daily 7"]);
    complains(&snapshot("rm", &home, &["--keep-daily", "0"]).ended(2), &["nothing says which"]);
    complains(&snapshot("rm", &home, &["tuesday", "sunday"]).ended(2), &["there is no snapshot sunday"]);
    let would = snapshot("rm", &home, &["--keep-last", "1", "--dry-run"]).ended(0).text();
    assert_eq!(would, "would remove monday\n1 snapshot is kept\n");
    assert_eq!(snapshot("rm", &home, &["--keep-daily", "7"]).ended(0).text(), "removed monday\n1 snapshot is kept\n");
    assert_eq!(snapshot("rm", &home, &["tuesday"]).ended(0).text(), "removed tuesday\n");
    assert_eq!(snapshot("ls", &home, &[]).ended(0).text(), "no snapshots\n");
    on("compact", &home, ["--all"]).ended(0);
    assert!(on("check", &home, ["--deep"]).ended(0).text().contains("no problems"));
}

#[test]
fn a_name_that_looks_like_another_is_not_removed_with_it() {
    let sandbox = sandbox();
    let home = sandbox.path().join("home");
    on("init", &home, [""; 0]).ended(0);
    // The second is how the first is shown.
    for name in ["a\x1b", "a\\x1b"] {
        snapshot("create", &home, &[name]).ended(0);
    }
    assert_eq!(snapshot("rm", &home, &["a\\x1b"]).ended(0).text(), "removed a\\\\x1b\n");
    assert_eq!(snapshot("rm", &home, &["a\\x1b"]).ended(0).text(), "removed a\\x1b\n");
    let store = Store::open(&home).unwrap();
    store.pin("a\x1b").unwrap();
    store.pin("a\\x1b").unwrap();
    drop(store);
    on("unpin", &home, ["a\\x1b"]).ended(0);
    let pins = Store::open_read_only(&home).unwrap().pins().unwrap();
    assert_eq!(pins.iter().map(|(name, _)| &name[..]).collect::<Vec<_>>(), ["a\x1b"]);
    on("unpin", &home, ["a\\x1b"]).ended(0);
}

#[test]
fn a_snapshot_is_mounted_and_stays_as_it_is() {
    let Some(place) = Place::new() else { return };
    let mounted = place.mount();
    fs::write(mounted.root.join("file"), "before").unwrap();
    mounted.unmount();
    snapshot("create", &place.store(), &["monday"]).ended(0);
    let mounted = place.mount();
    fs::write(mounted.root.join("file"), "after").unwrap();
    fs::write(mounted.root.join("new"), "").unwrap();
    mounted.unmount();
    for options in [&["-o", "at=monday"][..], &["--at", "monday"]] {
        let mounted = place.mount_with(options);
        assert_eq!(fs::read_to_string(mounted.root.join("file")).unwrap(), "before");
        assert_eq!(fs::read_dir(&mounted.root).unwrap().count(), 1);
        let error = fs::write(mounted.root.join("file"), "").unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
        mounted.unmount();
    }
    place.check();
}
