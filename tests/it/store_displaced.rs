//! Something else in the place of a file of a store: a link, because somebody moved the file to another disk, a pipe, a
//! directory. Nothing waits for it, nothing follows it, and nothing is given up because of it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::store_place::{Place, files};

const LINK: &str = "a symbolic link";

fn put_in_place(path: &Path, kind: &str, away: &Path) {
    fs::rename(path, away).unwrap();
    match kind {
        LINK => symlink(away, path).unwrap(),
        "a directory" => fs::create_dir(path).unwrap(),
        "a named pipe" => mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap(),
        _ => unreachable!("{kind}"),
    }
}

fn take_away(path: &Path) {
    match path.symlink_metadata().unwrap().is_dir() {
        true => fs::remove_dir(path).unwrap(),
        false => fs::remove_file(path).unwrap(),
    }
}

fn one(place: &Place, directory: &str) -> PathBuf {
    files(&place.home.join(directory)).into_iter().max().unwrap()
}

#[test]
fn a_writer_waits_for_the_segment_or_extent_file_in_whose_place_something_else_is() {
    let mut place = Place::new(0, 0, &[]);
    place.import(12, 1);
    let away = place.path("away");
    for directory in ["segments", "extents"] {
        let path = one(&place, directory);
        for kind in [LINK, "a directory", "a named pipe"] {
            put_in_place(&path, kind, &away);
            let words = format!("it is {kind}, not a file (put the file itself in its place, or a copy of it");
            let check = place.run_on("check", ["--deep"]).ended(1);
            assert!(check.text().contains(&words), "{}", check.text());
            for arguments in [&["repair"][..], &["repair", "--drop-lost"], &["repair", "--accept"], &["scrub"]] {
                let ran = place.run_on(arguments[0], &arguments[1..]).ended(2);
                assert!(ran.said().contains(&words), "{arguments:?}: {}", ran.said());
            }
            let ran = place.run_on("repair", ["--degraded", "--drop-lost"]).ended(2);
            assert!(ran.said().contains(&words), "{}", ran.said());
            take_away(&path);
            fs::rename(&away, &path).unwrap();
            // The one that went on without it noted that something is missing.
            place.run_on("check", ["--rebuild-index"]).ended(0);
        }
    }
    place.run_on("check", ["--deep"]).ended(0);
}

#[test]
fn an_index_in_whose_place_something_else_is_is_lost_and_rebuilt() {
    let mut place = Place::new(0, 0, &[]);
    place.import(12, 0);
    place.run_on("compact", ["--all"]).ended(0);
    let whole = place.list().0;
    let away = place.path("away");
    for path in files(&place.home.join("index")).into_iter().filter(|path| !path.parent().unwrap().ends_with("pins")) {
        // An earlier repair has replaced it.
        if !path.exists() {
            continue;
        }
        for kind in ["a named pipe", LINK] {
            put_in_place(&path, kind, &away);
            assert_eq!(place.list().0, whole, "{}", path.display());
            place.run_on("repair", [""; 0]).ended(0);
            place.run_on("check", ["--deep"]).ended(0);
            if path.symlink_metadata().is_ok_and(|found| !found.is_file()) {
                take_away(&path);
            }
            if !path.exists() {
                break;
            }
        }
        let _ = fs::remove_file(&away);
    }
}

#[test]
fn a_superblock_or_lock_that_is_a_pipe_is_no_superblock_or_lock() {
    let mut place = Place::new(0, 0, &[]);
    place.import(3, 0);
    let away = place.path("away");
    for (name, reader) in [("superblock", 2), ("lock", 0)] {
        let path = place.home.join(name);
        put_in_place(&path, "a named pipe", &away);
        place.run_on("ls", [""; 0]).ended(reader);
        let said = place.put("key", b"content").ended(2).said();
        assert!(said.contains("it is a named pipe, not a file"), "{said}");
        take_away(&path);
        fs::rename(&away, &path).unwrap();
    }
}
