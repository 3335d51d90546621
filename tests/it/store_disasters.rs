//! The everyday disasters that format 1 of the store did not survive, each from outside with the command: a device that
//! fails, is not mounted, comes back, decays; an index that is lost, old or damaged; a store that is copied, moved,
//! read by others; malicious archives.
//!
//! The assertions are what a user must see: all objects with their bytes; or the command reports first what may be
//! missing, and ends with status 1; or it refuses with status 2 and changes nothing. Never an empty result for a store
//! that is not empty.

use std::fs;
use std::path::PathBuf;

use crate::args;
use crate::harness::Ran;
use crate::store_place::{Place, bytes, calls, copy_all, files, find, flip, injected, snapshot};

// 1

#[test]
fn a_fast_device_dies_beside_a_rotten_unit_and_rebuild_brings_everything_back() {
    let mut place = Place::new(2, 3, &[]);
    place.import(150, 8);
    let (_, path, at) = place.a_unit("i1/z-large/0003");
    flip(&path, at);
    fs::remove_dir_all(&place.devices[0]).unwrap();
    let new = place.path("new");
    let ran = place.run_on("rebuild", args!["--device", "0", "--onto", &new]);
    assert!(matches!(ran.code, Some(0 | 1)), "{}", ran.said());
    place.is_whole();
    // Parity covers the decayed unit; afterwards nothing is left to find.
    place.run_on("scrub", [""; 0]);
    place.run_on("check", ["--deep"]).ended(0);
    place.is_whole();
}

// 2

#[test]
fn a_device_of_one_class_goes_away_after_an_import_of_large_files_and_comes_back() {
    for options in [&[][..], &["--small-redundancy", "triple"], &["--large-redundancy", "raid6"]] {
        let mut place = Place::new(4, 0, options);
        place.import(60, 12);
        for device in 0..4 {
            place.take_away(device, device % 2 == 0);
            // Reported or not: nothing is missing.
            let (exported, _) = place.export();
            assert!(exported == place.objects, "{options:?}, without device {device}: {} objects", exported.len());
            // A majority is present: a writer may continue.
            let key = format!("after-{device}");
            place.put(&key, &bytes(77 + device as u64, 100_000)).ended(0);
            let (exported, _) = place.export();
            assert!(exported == place.objects, "{options:?}, written without device {device}");
            place.bring_back(device);
            let (exported, _) = place.export();
            assert!(exported == place.objects, "{options:?}, device {device} is back");
            place.run_on("repair", [""; 0]).ended(0);
            place.is_whole();
        }
        place.run_on("check", ["--deep"]).ended(0);
    }
}

// 3

#[test]
fn fast_devices_that_are_not_mounted_are_no_empty_store() {
    let mut place = Place::new(2, 3, &[]);
    place.import(100, 5);
    let before: Vec<_> = place.devices.iter().map(|device| snapshot(&device.join("segments"))).collect();
    for device in 0..2 {
        place.take_away(device, true);
    }
    for (command, rest) in [("ls", vec!["-R"]), ("load", vec![]), ("status", vec![]), ("check", vec![])] {
        let ran = place.run_on(command, rest);
        assert!(matches!(ran.code, Some(1 | 2)), "{command} ended with {:?}: {}", ran.code, ran.said());
        assert!(!ran.said().trim().is_empty(), "{command} says nothing");
    }
    let (exported, ran) = place.export();
    assert!(matches!(ran.code, Some(1 | 2)) && exported.len() < place.objects.len(), "{:?}", ran.code);
    // Nobody can write to it.
    let file = place.path("put");
    fs::write(&file, b"x").unwrap();
    place.run_on("put", args!["meanwhile", &file]).ended(2);
    for device in 0..2 {
        assert_eq!(files(&place.devices[device]), Vec::<PathBuf>::new(), "something was written to a mount point");
        place.bring_back(device);
    }
    place.is_whole();
    place.run_on("repair", [""; 0]).ended(0);
    place.is_whole();
    for (device, before) in place.devices.iter().zip(&before) {
        let after = snapshot(&device.join("segments"));
        assert!(before.iter().all(|(path, bytes)| after.get(path).is_some_and(|now| now.starts_with(bytes))));
    }
}

#[test]
fn what_was_written_by_name_without_the_log_goes_on_behind_it_when_it_is_back() {
    let mut place = Place::new(2, 3, &[]);
    place.import(60, 3);
    for device in 0..2 {
        place.take_away(device, true);
    }
    let file = place.path("put");
    fs::write(&file, b"by name").unwrap();
    let ran = place.run_on("put", args!["--degraded", "meanwhile", &file]);
    assert!(matches!(ran.code, Some(1 | 2)), "{:?}: {}", ran.code, ran.said());
    if ran.code == Some(1) {
        place.objects.insert("meanwhile".to_owned(), b"by name".to_vec());
        place.says_incomplete_first();
    }
    for device in 0..2 {
        place.bring_back(device);
    }
    // The log is read again as soon as the missing devices are visible.
    place.is_whole();
    place.run_on("repair", [""; 0]);
    place.is_whole();
    place.run_on("check", ["--rebuild-index"]).ended(0);
    place.is_whole();
}

// 4

fn says_name(ran: &Ran, name: &str) {
    assert!(ran.text().lines().any(|line| line == name), "{name}: {}", ran.text());
}

#[test]
fn a_flipped_bit_costs_one_object_when_the_index_is_made_from_the_log() {
    for rebuild in ["check --rebuild-index", "a lost index and a put"] {
        for (is_large, is_head) in [(false, false), (false, true), (true, false)] {
            let mut place = Place::new(0, 0, &[]);
            place.import(150, 6);
            let hit = if is_large { "i1/z-large/0002" } else { "i1/d3/0045" };
            let (path, at) = if is_large {
                let (_, path, at) = place.a_unit(hit);
                (path, at)
            } else {
                find(&place.home.join("segments"), &place.objects[hit]).unwrap()
            };
            // The content of a record, or the attributes before it.
            flip(&path, if is_head { at - 1 } else { at + 10 });
            if rebuild.starts_with("check") {
                let ran = place.run_on("check", ["--rebuild-index"]);
                assert!(ran.code == Some(1) || is_large && ran.code == Some(0), "{:?}: {}", ran.code, ran.said());
            } else {
                place.lose_index();
                let ran = place.put("later", b"after the index was lost");
                assert!(matches!(ran.code, Some(0 | 1)), "{rebuild}: {}", ran.said());
                place.objects.insert("later".to_owned(), b"after the index was lost".to_vec());
            }
            place.is_honest();
            // What may be missing is reported first, wherever the store is listed; a known object where it is read.
            match is_head {
                true => place.says_incomplete_first(),
                false => says_name(&place.run_on("ls", ["-R"]).ended(0), hit),
            }
            let (exported, ran) = place.export();
            ran.ended(1);
            let missing: Vec<_> = place.objects.keys().filter(|key| !exported.contains_key(*key)).collect();
            assert!(missing.iter().all(|key| *key == hit), "{rebuild}: {missing:?}");
            // An intact object stays intact.
            let whole = place.run_on("get", ["i1/d0/0000"]).ended(0);
            assert!(whole.stdout == place.objects["i1/d0/0000"]);
            let ran = place.run_on("get", [hit]);
            assert!(matches!(ran.code, Some(1 | 2)), "{hit}: {:?}, {}", ran.code, ran.said());
        }
    }
}

#[test]
fn an_index_from_before_the_import_and_a_device_that_is_not_mounted_lose_nothing() {
    let mut place = Place::new(2, 3, &[]);
    place.import(40, 2);
    let old: Vec<_> =
        place.index_directories().into_iter().map(|directory| (snapshot(&directory), directory)).collect();
    assert!(!old.is_empty());
    place.import(100, 6);
    for (files, directory) in &old {
        fs::remove_dir_all(directory).unwrap();
        fs::create_dir(directory).unwrap();
        for (path, content) in files {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
    }
    place.take_away(3, true);
    let (exported, _) = place.export();
    assert!(exported == place.objects, "{} of {} objects", exported.len(), place.objects.len());
    place.put("written-meanwhile", &bytes(5, 150_000)).ended(0);
    place.bring_back(3);
    let (exported, _) = place.export();
    assert!(exported == place.objects);
    place.run_on("repair", [""; 0]).ended(0);
    place.is_whole();
}

// 5

#[test]
fn a_flipped_bit_in_the_index_hides_nothing_and_gives_nothing_back() {
    for (fast, slow) in [(0, 0), (2, 3)] {
        let mut place = Place::new(fast, slow, &[]);
        place.import(80, 4);
        let index: Vec<PathBuf> = place.index_directories().iter().flat_map(|directory| files(directory)).collect();
        assert!(!index.is_empty());
        for path in index {
            // An earlier step may have replaced the file by another.
            let Ok(length) = fs::metadata(&path).map(|metadata| metadata.len()) else { continue };
            let everywhere = (0..length).step_by((length as usize / 9).max(1));
            for at in everywhere.chain((37..length.min(1024)).step_by(101)) {
                if !path.exists() || fs::metadata(&path).unwrap().len() <= at {
                    continue;
                }
                flip(&path, at);
                let place_of = format!("byte {at} of {}", path.display());
                place.is_honest();
                let ran = place.run_on("compact", ["--deep"]);
                assert!(matches!(ran.code, Some(0..=2)), "{place_of}: {}", ran.said());
                let repaired = place.run_on("repair", [""; 0]);
                assert_eq!(repaired.code, Some(0), "{place_of}: {}", repaired.said());
                place.is_whole();
            }
        }
        place.run_on("check", ["--deep"]).ended(0);
    }
}

// 6

#[test]
fn a_removal_that_fails_half_way_lists_no_object_that_cannot_be_read() {
    let mut place = Place::new(0, 4, &["--large-redundancy", "raid5"]);
    place.import(30, 10);
    // No thread can be created, starting with the first, the second, and so on.
    for from in 1..6 {
        let inject = format!("inject=clone,clone3:error=EAGAIN:when={from}+");
        let Some(ran) = place.strace(&["-e", &inject], args!["rm", &place.home, "-r", "i1/z-large"]) else { return };
        let is_gone = ran.code == Some(0);
        assert!(is_gone || !ran.said().trim().is_empty(), "it failed and says nothing");
        let (listed, ran) = place.list();
        ran.ended(0);
        for key in listed.iter().filter(|key| place.objects.contains_key(*key)) {
            let got = place.run_on("get", [key]);
            assert!(got.code == Some(0) && got.stdout == place.objects[key], "{key} is listed: {}", got.said());
        }
        let left = listed.iter().filter(|key| key.contains("z-large/")).count();
        assert!(if is_gone { left == 0 } else { left == 10 }, "{left} of 10 are left");
        place.run_on("check", ["--deep"]).ended(0);
        if is_gone {
            place = Place::new(0, 4, &["--large-redundancy", "raid5"]);
            place.import(30, 10);
        }
    }
}

#[test]
fn a_removal_that_cannot_read_says_so_or_removes() {
    let mut place = Place::new(0, 0, &[]);
    place.import(20, 4);
    for (number, when) in (1..=40).step_by(3).enumerate() {
        let key = format!("i1/z-large/{:04}", number % 4);
        let inject = format!("inject=pread64,preadv:error=EIO:when={when}+");
        let Some(ran) = place.strace(&["-e", &inject], args!["rm", &place.home, &key]) else { return };
        let (listed, after) = place.list();
        after.ended(0);
        assert!(ran.code != Some(0) || !listed.contains(&key), "it ended with 0, and {key} is there");
        assert!(ran.code == Some(0) || !ran.said().trim().is_empty(), "it failed and says nothing");
        if !listed.contains(&key) {
            let content = place.objects[&key].clone();
            place.put(&key, &content).ended(0);
        }
    }
    place.is_whole();
    place.run_on("check", ["--deep"]).ended(0);
}

// 7

#[test]
fn a_copy_of_a_store_never_changes_the_original() {
    for (fast, slow) in [(0, 0), (2, 0), (2, 3)] {
        let mut place = Place::new(fast, slow, &[]);
        place.import(20, 2);
        let copies = place.path("copies");
        fs::create_dir(&copies).unwrap();
        for directory in place.devices.iter().chain([&place.home]) {
            let to = copies.join(directory.file_name().unwrap());
            if !to.exists() {
                copy_all(directory, &to);
            }
        }
        let before: Vec<_> = place.devices.iter().map(|device| snapshot(device)).collect();
        let copied_home = copies.join("home");
        let ran = place.run(args!["rm", &copied_home, "i1/d0/0000"]);
        let after: Vec<_> = place.devices.iter().map(|device| snapshot(device)).collect();
        assert!(before == after, "{fast} fast, {slow} slow: the original was changed ({:?}: {})", ran.code, ran.said());
        if fast + slow > 0 {
            // The devices that the copy knows belong to their own home.
            ran.ended(2);
        }
        place.is_whole();
        place.put("still-writable", b"x").ended(0);
    }
}

#[test]
fn a_moved_store_of_several_devices_is_found() {
    let mut place = Place::new(2, 3, &[]);
    place.import(40, 3);
    let moved = place.path("moved");
    fs::create_dir(&moved).unwrap();
    for directory in place.devices.clone().iter_mut().chain([&mut place.home.clone()]) {
        fs::rename(&*directory, moved.join(directory.file_name().unwrap())).unwrap();
    }
    place.home = moved.join("home");
    place.devices = place.devices.iter().map(|device| moved.join(device.file_name().unwrap())).collect();
    // A writing command reports their new paths once.
    let mut rest = args!["i2/moved"];
    let file = place.path("put");
    fs::write(&file, b"after the move").unwrap();
    rest.push(file.into());
    for device in &place.devices {
        rest.extend(args!["--device", device]);
    }
    place.run_on("put", rest).ended(0);
    place.objects.insert("i2/moved".to_owned(), b"after the move".to_vec());
    place.is_whole();
    place.run_on("repair", [""; 0]).ended(0);
    place.is_whole();
}

#[test]
fn a_device_that_was_away_when_the_store_was_moved_is_found_beside_the_home() {
    let mut place = Place::new(2, 3, &[]);
    place.import(40, 3);
    place.take_away(3, false);
    let moved = place.path("moved");
    fs::create_dir(&moved).unwrap();
    for (number, directory) in place.devices.iter().chain([&place.home]).enumerate() {
        if number != 3 {
            fs::rename(directory, moved.join(directory.file_name().unwrap())).unwrap();
        }
    }
    let was = place.devices[3].clone();
    place.home = moved.join("home");
    // The next writer records the new places, of those that are there.
    place.put("after the move", b"kept").ended(0);
    place.bring_back(3);
    place.devices = place.devices.iter().map(|device| moved.join(device.file_name().unwrap())).collect();
    fs::rename(was, &place.devices[3]).unwrap();
    assert!(place.run_on("ls", [""; 0]).ended(0).said().contains("device 3, "), "stale, not missing");
    place.run_on("repair", [""; 0]).ended(0);
    place.run_on("check", ["--deep"]).ended(0);
    place.is_whole();
}

#[test]
fn a_store_with_its_devices_inside_is_moved_as_one() {
    let mut place = Place::new(0, 0, &[]);
    let home = place.path("together");
    let devices: Vec<PathBuf> = (0..3).map(|number| home.join(format!("d{number}"))).collect();
    let mut arguments = args!["init", &home];
    devices.iter().for_each(|device| arguments.extend(args!["--fast", device]));
    place.run(arguments).ended(0);
    (place.home, place.devices) = (home.clone(), devices);
    place.import(30, 3);
    let moved = place.path("elsewhere");
    fs::rename(&home, &moved).unwrap();
    place.devices = place.devices.iter().map(|device| moved.join(device.file_name().unwrap())).collect();
    place.home = moved;
    place.is_whole();
    place.put("after", b"x").ended(0);
    place.is_whole();
}

// 8

#[test]
fn a_failed_sync_names_the_device_that_failed() {
    let mut place = Place::new(0, 4, &[]);
    place.import(20, 3);
    let file = place.path("put");
    let mut failed = 0;
    for (number, device) in place.devices.clone().into_iter().enumerate() {
        place.put("before", &bytes(number as u64, 700)).ended(0);
        // The segment in progress, on the devices that have it.
        let Some(segment) = place.segments(number).into_iter().next_back() else { continue };
        fs::write(&file, bytes(1, 700)).unwrap();
        let put = args!["put", &place.home, "x", &file];
        let segment = segment.to_str().unwrap();
        let syncs = "inject=fdatasync,fsync,sync_file_range:error=EIO";
        let Some(ran) = place.strace(&["-P", segment, "-e", syncs], put) else { return };
        if injected(&place.trace()).is_some() && ran.code != Some(0) {
            failed += 1;
            let said = ran.said();
            assert!(said.contains(device.to_str().unwrap()), "the sync of {segment} failed: {said}");
        }
    }
    assert!(failed > 0, "no sync was made to fail");
    // The store went on without each of them.
    place.run_on("repair", [""; 0]).ended(0);
    place.run_on("check", ["--deep"]).ended(0);
}

#[test]
fn a_rebuild_that_lacks_another_device_speaks_of_that_one() {
    for (fast, slow, options) in [(0, 5, &["--large-redundancy", "raid6"][..]), (2, 3, &[])] {
        let mut place = Place::new(fast, slow, options);
        place.import(20, 3);
        place.take_away(1, false);
        place.take_away(2, false);
        let ran = place.run_on("rebuild", args!["--device", "2", "--onto", place.path("new")]);
        if ran.code != Some(0) {
            let said = ran.said();
            assert!(!said.contains("--onto"), "it was given: {said}");
            assert!(said.contains("device 1") || said.contains(place.devices[1].to_str().unwrap()), "{said}");
        }
        let (exported, _) = place.export();
        assert!(exported == place.objects);
    }
}

#[test]
fn a_look_up_costs_no_scan_of_the_log_when_an_index_device_is_lost() {
    let mut place = Place::new(2, 3, &[]);
    // A log of 15 MB.
    place.import_files((0..250).map(|number| (format!("d/{number:03}"), bytes(number, 60_000))));
    let get = |place: &Place| args!["get", &place.home, "d/003"];
    let trace = ["-e", "trace=read,pread64,preadv,mmap"];
    let read_bytes = |place: &Place| -> u64 {
        let traced = place.trace();
        let of_segments = traced.lines().filter(|line| line.contains("/segments/"));
        of_segments.filter_map(|line| line.rsplit_once("= ")?.1.trim().parse::<u64>().ok()).sum()
    };
    let Some(ran) = place.strace(&trace, get(&place)) else { return };
    ran.ended(0);
    let before = read_bytes(&place);
    for device in 0..2 {
        place.take_away(device, true);
        let ran = place.strace(&trace, get(&place)).unwrap();
        assert_eq!(ran.stdout, place.objects["d/003"], "{}", ran.said());
        let now = read_bytes(&place);
        assert!(
            now <= 2 * before + 65_536,
            "without device {device} {now} bytes of segments are read, {before} before"
        );
        place.bring_back(device);
    }
}

// 9

#[test]
fn a_rebuild_of_the_index_that_dies_leaves_a_store_that_opens() {
    let mut place = Place::new(2, 0, &[]);
    place.import(120, 2);
    let rebuild = |place: &Place| args!["check", &place.home, "--rebuild-index"];
    let names =
        ["pwrite64", "write", "fdatasync", "fsync", "rename", "renameat", "renameat2", "unlink", "unlinkat", "mkdir"];
    let all = names.join(",");
    let Some(ran) = place.strace(&["-e", &format!("trace={all}")], rebuild(&place)) else { return };
    ran.ended(0);
    let trace = place.trace();
    for name in names {
        let count = calls(&trace, &[name]);
        for when in (1..=count).step_by((count / 8).max(1)) {
            let inject = format!("inject={name}:signal=SIGKILL:when={when}");
            place.strace(&["-e", &format!("trace={name}"), "-e", &inject], rebuild(&place));
            let (exported, ran) = place.export();
            assert!(
                exported == place.objects,
                "killed at {name} {when}, a reader sees {}: {}",
                exported.len(),
                ran.said()
            );
            place.put("counter", format!("{name} {when}").as_bytes()).ended(0);
            let (exported, _) = place.export();
            assert!(exported == place.objects, "killed at {name} {when}, after a writer");
        }
    }
    place.run_on("check", ["--deep"]).ended(0);
}

// 10: modes, and results written through links, are in `store_privacy`.

// 11: malicious archives are in `store_tar`.

// 12

#[test]
fn content_that_looks_like_a_log_is_never_taken_for_one() {
    let mut place = Place::new(0, 0, &[]);
    place.import(120, 1);
    // Removals, commits and all other records of a log, with the checksums and seeds of this very store.
    place.put("tree/a", b"a").ended(0);
    place.run_on("rm", ["-r", "tree"]).ended(0);
    place.objects.remove("tree/a");
    place.run_on("rm", ["-r", "i1"]).ended(0);
    let log: Vec<u8> = place.segments(0).iter().flat_map(|path| fs::read(path).unwrap()).collect();
    place.objects.clear();
    place.import(120, 1);
    // At every possible alignment of a record.
    for shift in [0, 4, 8, 12] {
        let mut content = bytes(shift, shift as usize);
        content.extend_from_slice(&log);
        content.truncate(60_000);
        place.put(&format!("trap-{shift}"), &content).ended(0);
    }
    place.import(40, 1);
    let last = &log[log.len() - 20_000.min(log.len())..];
    place.put("trap-end", last).ended(0);
    place.put("behind", b"the last").ended(0);
    for trap in ["trap-0", "trap-4", "trap-8", "trap-12", "trap-end"] {
        // In the record's own key, so that the content is exposed.
        let (path, at) = find(&place.home.join("segments"), trap.as_bytes()).unwrap();
        flip(&path, at);
    }
    let ran = place.run_on("check", ["--rebuild-index"]);
    assert_eq!(ran.code, Some(1), "{}", ran.said());
    let (exported, _) = place.export();
    for (key, content) in &place.objects {
        if !key.starts_with("trap") {
            assert!(exported.get(key) == Some(content), "{key} is not there, or has other bytes");
        }
    }
    assert!(exported.keys().all(|key| place.objects.contains_key(key)), "something came back that was removed");
    place.is_honest();
}

// 13

#[test]
fn an_opening_that_fails_writes_nothing() {
    let mut place = Place::new(2, 0, &[]);
    place.import(20, 0);
    let before = snapshot(&place.home);
    for device in 0..2 {
        place.take_away(device, true);
    }
    let file = place.path("put");
    fs::write(&file, b"x").unwrap();
    for _ in 0..3 {
        place.run_on("put", args!["x", &file]).ended(2);
    }
    let after = snapshot(&place.home);
    for (path, content) in &before {
        if !path.ends_with("lock") {
            assert!(after.get(path) == Some(content), "{} was written", path.display());
        }
    }
    for device in 0..2 {
        assert_eq!(files(&place.devices[device]), Vec::<PathBuf>::new());
        place.bring_back(device);
    }
    place.put("x", b"both are back").ended(0);
    place.run_on("repair", [""; 0]).ended(0);
    place.is_whole();
}

#[test]
fn a_put_makes_few_syncs() {
    const SYNCS: [&str; 5] = ["fsync", "fdatasync", "sync_file_range", "syncfs", "msync"];
    for (fast, most) in [(0, 4), (2, 8)] {
        let mut place = Place::new(fast, 0, &[]);
        place.import(10, 0);
        let file = place.path("put");
        fs::write(&file, bytes(1, 1000)).unwrap();
        let put = args!["put", &place.home, "x", &file];
        let Some(ran) = place.strace(&["-e", &format!("trace={}", SYNCS.join(","))], put) else { return };
        ran.ended(0);
        let trace = place.trace();
        let count = calls(&trace, &SYNCS);
        assert!((1..=most).contains(&count), "{fast} devices: {count} syncs\n{trace}");
    }
}
