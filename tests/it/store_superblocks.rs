//! Superblocks that were put back from an old copy, emptied or removed: no command passes over it, no writer goes on, and
//! `repair` writes them again as far as segments prove them.

use std::fs;
use std::path::Path;

use crate::args;
use crate::harness::{Ran, complains, run, sandbox};
use crate::store_cli::{on, put, store};

#[track_caller]
fn warns(ran: &Ran, parts: &[&str]) {
    let said = ran.said();
    assert!(said.starts_with("granulo: warning: ") && parts.iter().all(|part| said.contains(part)), "{said}");
}

#[test]
fn an_old_superblock_keeps_writers_out_until_a_repair_follows_the_log() {
    let (sandbox, home) = store();
    put(&home, "old", b"old");
    let (superblock, copy) = (home.join("superblock"), sandbox.path().join("copy"));
    fs::copy(&superblock, &copy).unwrap();
    put(&home, "new", b"new");
    on("compact", &home, ["--all"]).ended(0);
    put(&home, "newest", b"newest");
    fs::copy(&copy, &superblock).unwrap();
    let listed = on("ls", &home, ["-R"]).ended(1);
    assert_eq!(listed.text(), "new\nnewest\nold\n");
    warns(&listed, &["superblocks are older than segment", "granulo store repair"]);
    complains(&on("rm", &home, ["old"]).ended(2), &["superblocks are older", "granulo store repair follows the log"]);
    // Nothing is to be accepted: the log shows everything.
    let repaired = on("repair", &home, [""; 0]).ended(0);
    assert!(!repaired.text().contains("--accept"), "{}", repaired.text());
    assert_eq!(on("ls", &home, ["-R"]).ended(0).text(), "new\nnewest\nold\n");
    on("rm", &home, ["old"]).ended(0);
    assert!(on("check", &home, ["--deep"]).ended(0).text().contains("no problems"));
}

#[test]
fn a_superblock_is_written_again_beside_segments_that_prove_it() {
    let sandbox = sandbox();
    let path = |name: &str| sandbox.path().join(name);
    let home = path("home");
    run(args!["store", "init", &home, "--fast", path("a"), "--slow", path("b")]).ended(0);
    put(&home, "x", b"content");
    for damage in [
        |superblock: &Path| fs::write(superblock, "").unwrap(),
        |superblock: &Path| {
            fs::remove_file(superblock).unwrap();
        },
    ] {
        damage(&path("a").join("superblock"));
        warns(&on("ls", &home, ["-R"]).ended(1), &["device 0", "superblock", "granulo store repair"]);
        complains(&on("rm", &home, ["x"]).ended(2), &["granulo store repair writes a superblock again"]);
        let repaired = on("repair", &home, [""; 0]).ended(0);
        assert!(repaired.text().contains("device 0 is in service again"), "{}", repaired.text());
        assert_eq!(on("get", &home, ["x"]).ended(0).text(), "content");
        assert!(on("check", &home, ["--deep"]).ended(0).text().contains("no problems"));
    }
}
