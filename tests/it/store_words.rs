//! What the commands of a store say when something is wrong: which object and which copies, what helps, and never
//! anything that they cannot know.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use serde_json::Value;

use crate::args;
use crate::harness::{Ran, granulo, has_program, skip};
use crate::images::{Image, Mount};
use crate::store_place::{Place, bytes, can_trace, copy_all, find, flip};

/// Asserts that the output for people has each of these parts.
#[track_caller]
fn says(ran: &Ran, parts: &[&str]) {
    let said = format!("{}{}", ran.said(), ran.text());
    for part in parts {
        assert!(said.contains(part), "'{part}' is not in: {said}");
    }
}

/// Asserts that it has none of these.
#[track_caller]
fn says_not(ran: &Ran, parts: &[&str]) {
    let said = format!("{}{}", ran.said(), ran.text());
    for part in parts {
        assert!(!said.contains(part), "'{part}' is in: {said}");
    }
}

fn swap(place: &Place, one: usize, other: usize) {
    let between = place.path("between");
    fs::rename(&place.devices[one], &between).unwrap();
    fs::rename(&place.devices[other], &place.devices[one]).unwrap();
    fs::rename(&between, &place.devices[other]).unwrap();
}

/// Changes a bit of a small object's content on a device.
fn damage(place: &Place, device: usize, key: &str) {
    let (path, at) = find(&place.devices[device].join("segments"), &place.objects[key]).unwrap();
    flip(&path, at);
}

#[test]
fn disks_mounted_in_another_order_are_found_in_silence() {
    let mut place = Place::new(2, 3, &[]);
    place.import(40, 3);
    swap(&place, 0, 1);
    swap(&place, 2, 4);
    swap(&place, 3, 4);
    let is_silent = |ran: Ran| assert_eq!(ran.said(), "");
    place.is_whole();
    is_silent(place.run_on("ls", [""; 0]).ended(0));
    is_silent(place.run_on("check", ["--deep"]).ended(0));
    // A writer records the new places, and the others follow from these.
    is_silent(place.put("after", b"the swap").ended(0));
    is_silent(place.put("after-large", &bytes(5, 200_000)).ended(0));
    place.is_whole();
    swap(&place, 0, 1);
    is_silent(place.put("once more", b"there and back").ended(0));
    place.is_whole();
    place.run_on("check", ["--deep"]).ended(0);
}

#[test]
fn a_copy_in_the_place_of_another_device_is_not_used() {
    let mut place = Place::new(2, 3, &[]);
    place.import(20, 2);
    let aside = place.path("aside");
    fs::rename(&place.devices[0], &aside).unwrap();
    copy_all(&place.devices[1], &place.devices[0]);
    let before = crate::store_place::snapshot(&place.devices[0]);
    let ran = place.run_on("check", [""; 0]).ended(1);
    says(&ran, &["device 0 should be there, but it is device 1;"]);
    says_not(&ran, &["swapped"]);
    place.put("without", b"device 0");
    assert!(crate::store_place::snapshot(&place.devices[0]) == before, "the copy was written to");
}

#[test]
fn a_damaged_object_is_named_with_what_helps_and_an_import_of_the_backup_replaces_it() {
    let mut place = Place::new(0, 0, &[]);
    place.import(12, 2);
    let source = place.path("source1");
    for (name, also) in [("i1/d0/0000", "i1/d0/also"), ("i1/z-large/0000", "i1/z-large/also")] {
        fs::hard_link(source.join(name), source.join(also)).unwrap();
        place.objects.insert(also.to_owned(), place.objects[name].clone());
    }
    place.run_on("import", args!["--quiet", &source]).ended(0);
    place.run_on("compact", ["--all"]).ended(0);
    place.is_whole();
    let (small, shared, large) = ("i1/d1/0001", "i1/d0/0000", "i1/z-large/0001");
    damage(&place, 0, small);
    damage(&place, 0, shared);
    let (_, path, at) = place.a_unit(large);
    flip(&path, at);
    let helps = ["granulo store put", "import --verify", "repair --drop-lost"];
    let (exported, ran) = place.export();
    says(&ran.ended(1), &[&helps[..], &[small, shared, large]].concat());
    assert_eq!(exported.len(), place.objects.len() - 4, "the others are exported");
    let ran = place.run_on("load", [""; 0]).ended(1);
    says(&ran, &[&helps[..], &[small, "it affects shared file ", large, "3 damaged"]].concat());
    says_not(&ran, &["missing devices"]);
    says(&place.run_on("get", [large]).ended(1), &helps);

    // What is there is not read again, unless that is requested.
    let ran = place.run_on("import", args![&source]).ended(0);
    says(&ran, &["already there"]);
    place.run_on("load", [""; 0]).ended(1);
    let ran = place.run_on("import", args!["--quiet", "--verify", "--json", &source]).ended(0);
    let document: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!((&document["damaged_replaced"], &document["files"]), (&Value::from(3), &Value::from(3)), "{document}");
    place.is_whole();
    let ran = place.run_on("import", args!["--verify", &source]).ended(0);
    says(&ran, &["Imported nothing"]);
    assert_eq!(place.run_on("stat", ["--json", "i1/d0/also"]).ended(0).json()["names"], 2);
}

#[test]
fn an_archive_restores_what_is_damaged_too() {
    if !has_program("tar") {
        return skip("it makes an archive with tar");
    }
    let mut place = Place::new(0, 0, &[]);
    place.import(6, 1);
    let (archive, source) = (place.path("backup.tar"), place.path("source1"));
    let made = std::process::Command::new("tar").arg("-cf").arg(&archive).arg("-C").arg(&source).arg("i1").status();
    assert!(made.unwrap().success());
    place.run_on("import", args!["--quiet", &archive]).ended(0);
    // What was replaced is gone.
    place.run_on("compact", ["--all"]).ended(0);
    damage(&place, 0, "i1/d1/0001");
    place.run_on("import", args!["--quiet", &archive]).ended(0);
    place.run_on("load", [""; 0]).ended(1);
    says(&place.run_on("import", args!["--verify", &archive]).ended(0), &["1 damaged object was"]);
    place.is_whole();
}

#[test]
fn without_the_log_nothing_is_claimed_about_what_the_devices_have() {
    let mut place = Place::new(2, 3, &[]);
    place.import(30, 4);
    place.take_away(0, false);
    place.take_away(1, false);
    let ran = place.run_on("check", [""; 0]).ended(1);
    says(&ran, &["device 0 is missing", "what it has is unknown", "name its directory with --device"]);
    says_not(&ran, &["quarantine", "0 segments (0 B)", "granulo store rebuild"]);
    let ran = place.run_on("status", [""; 0]).ended(1);
    says(&ran, &["what the devices have is unknown"]);
    says_not(&ran, &["0 records", "0 B in stripe units"]);
    assert_eq!(place.run_on("status", ["--json"]).ended(1).json()["records_in_sight"], false);
    let ran = place.run_on("get", ["i1/d0/0000"]).ended(2);
    says(&ran, &["may be in what is missing", "bring its devices back"]);
    for device in 2..5 {
        place.take_away(device, false);
    }
    let file = place.path("put");
    fs::write(&file, b"x").unwrap();
    let ran = place.run_on("put", args!["key", &file]).ended(2);
    says_not(&ran, &["can still be read"]);
    (0..5).for_each(|device| place.bring_back(device));
    assert_eq!(place.run_on("status", ["--json"]).ended(0).json()["records_in_sight"], true);
    place.is_whole();
}

#[test]
fn a_device_that_vanishes_during_an_import_is_named() {
    if !has_program("tar") {
        return skip("it makes archives with tar");
    }
    let place = Place::new(2, 4, &[]);
    let source = place.path("source");
    for number in 0..60 {
        fs::create_dir_all(&source).unwrap();
        fs::write(source.join(format!("{number:02}")), bytes(number, 300_000)).unwrap();
    }
    let tar = std::process::Command::new("tar").args(["-cf", "-", "-C"]).arg(&source).arg(".").output().unwrap();
    let mut command = granulo();
    command.args(["store", "import", "-q", "--json"]).arg(&place.home).arg("-");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut pipe = child.stdin.take().unwrap();
    // More than the buffers hold: the import has begun when this is written.
    let (first, rest) = tar.stdout.split_at(8 << 20);
    pipe.write_all(first).unwrap();
    fs::rename(&place.devices[3], place.path("gone")).unwrap();
    pipe.write_all(rest).unwrap();
    drop(pipe);
    let ran: Ran = child.wait_with_output().unwrap().into();
    let ran = ran.ended(1);
    says(&ran, &["device 3", "the store goes on without it", "granulo store repair", "granulo store rebuild"]);
    assert_eq!(ran.json()["failed_devices"], serde_json::json!([3]));
    assert_eq!(ran.json()["files"], 60);
    fs::rename(place.path("gone"), &place.devices[3]).unwrap();
    place.run_on("repair", [""; 0]).ended(0);
    place.run_on("check", ["--deep"]).ended(0);
}

/// The same with one of two devices that have copies of the log: nothing that the import acknowledged is lost, whether
/// the device returns or not.
#[test]
fn an_import_that_loses_a_device_with_records_goes_on_and_says_so() {
    if !has_program("tar") {
        return skip("it makes archives with tar");
    }
    let mut place = Place::new(2, 4, &[]);
    let source = place.path("source");
    fs::create_dir_all(&source).unwrap();
    for number in 0..2000 {
        let length = if number % 200 == 0 { 300_000 } else { 5000 };
        fs::write(source.join(format!("{number:04}")), bytes(number, length)).unwrap();
    }
    let tar = std::process::Command::new("tar").args(["-cf", "-", "-C"]).arg(&source).arg(".").output().unwrap();
    let mut command = granulo();
    command.args(["store", "import", "-q", "--json"]).arg(&place.home).arg("-");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut pipe = child.stdin.take().unwrap();
    // More than the buffers hold: the import has begun when this is written.
    let (first, rest) = tar.stdout.split_at(8 << 20);
    pipe.write_all(first).unwrap();
    fs::rename(&place.devices[0], place.path("gone")).unwrap();
    pipe.write_all(rest).unwrap();
    drop(pipe);
    let ran: Ran = child.wait_with_output().unwrap().into();
    let ran = ran.ended(1);
    says(&ran, &["device 0", "the store goes on without it", "granulo store repair", "granulo store rebuild"]);
    assert_eq!(String::from_utf8_lossy(&ran.stderr).matches("the store goes on without it").count(), 1);
    assert_eq!(ran.json()["failed_devices"], serde_json::json!([0]));
    assert_eq!((&ran.json()["files"], &ran.json()["errors"]), (&2000.into(), &0.into()));
    let is_whole = |place: &Place, target: &str| {
        place.run_on("export", args![place.path(target)]);
        for number in 0..2000 {
            let name = format!("{number:04}");
            assert!(
                fs::read(source.join(&name)).unwrap() == fs::read(place.path(target).join(&name)).unwrap(),
                "{name}"
            );
        }
    };
    is_whole(&place, "without it");
    place.put("later", b"without --degraded").ended(0);
    fs::rename(place.path("gone"), &place.devices[0]).unwrap();
    is_whole(&place, "with it");
    place.run_on("repair", [""; 0]).ended(0);
    place.run_on("check", ["--deep"]).ended(0);
    fs::rename(&place.devices[1], place.path("gone")).unwrap();
    is_whole(&place, "from it alone");
}

#[test]
fn damage_names_the_copies_that_were_read() {
    let mut place = Place::new(2, 0, &[]);
    place.import(8, 0);
    // In the attributes, before the content: without an index, nobody knows of what object they are.
    let (path, at) = find(&place.devices[0].join("segments"), &place.objects["i1/d1/0001"]).unwrap();
    flip(&path, at - 1);
    place.take_away(1, false);
    let ran = place.run_on("get", ["i1/d1/0001"]).ended(1);
    says(&ran, &["its bytes on device 0 are damaged", "device 1 is not in service", "bring the missing devices back"]);
    let ran = place.run_on("check", ["--deep"]).ended(1);
    says(&ran, &["damaged on every copy that can be read; device 1, which may have it, is not in service"]);
    place.lose_index();
    let ran = place.run_on("ls", [""; 0]).ended(1);
    says(&ran, &["damaged on every copy that could be read, written after 20", "(device 1 could not)"]);
    place.bring_back(1);
    place.run_on("repair", [""; 0]).ended(0);
    place.is_whole();
}

#[test]
fn a_log_that_ended_too_early_says_after_when_and_what_helps() {
    let mut place = Place::new(0, 0, &[]);
    place.put("first", b"kept").ended(0);
    let kept = place.path("kept");
    copy_all(&place.home.join("segments"), &kept);
    place.put("second", b"gone").ended(0);
    fs::remove_dir_all(place.home.join("segments")).unwrap();
    copy_all(&kept, &place.home.join("segments"));
    place.lose_index();
    let ran = place.run_on("ls", [""; 0]).ended(1);
    says(
        &ran,
        &["acknowledged data may be missing (bring its devices back", "repair --accept", " acknowledged after 20"],
    );
    let missing = place.run_on("ls", ["--json"]).ended(1).json()["completeness"]["missing"][0].clone();
    assert!(missing["after_nanoseconds"].as_i64().is_some_and(|after| after > 1_600_000_000_000_000_000), "{missing}");
    let sides = place.run_on("salvage", ["--json"]).ended(1).json();
    assert_eq!(sides["completeness"]["state"], "incomplete", "{sides}");
    // A reader that has no index builds a private one, which is a problem of its own.
    place.run_on("check", ["--rebuild-index"]);
    let ran = place.run_on("check", [""; 0]).ended(1);
    says(&ran, &["no problems in what is present, but the store is incomplete"]);
    let ran = place.run_on("repair", ["--dry-run"]);
    says(&ran, &["Use --accept to accept what may be missing."]);
    says_not(&ran, &["quarantine"]);
    says(&place.run_on("repair", ["--dry-run", "--accept"]), &["Would accept what may be missing."]);
    let planned = place.run_on("repair", ["--dry-run", "--accept", "--json"]).ended(1).json();
    assert_eq!(planned["completeness"]["state"], "incomplete", "nothing was accepted yet");
    says(&place.run_on("repair", ["--accept"]), &["Going to accept what may be missing."]);
    says(&place.run_on("check", [""; 0]).ended(0), &["metadata: no problems"]);
}

#[test]
fn the_only_device_cannot_be_rebuilt_from_others() {
    let place = Place::new(0, 0, &[]);
    let ran = place.run_on("rebuild", args!["--device", "0", "--onto", place.path("new")]).ended(2);
    says(&ran, &["it is the only device", "granulo store export"]);
    says_not(&ran, &["incomplete", "bring them back"]);
    assert!(!place.path("new").exists());
}

#[test]
fn every_command_names_a_missing_device_and_a_scrub_without_it_is_not_whole() {
    let mut place = Place::new(2, 4, &[]);
    place.import(20, 3);
    let verified = |ran: &Ran| ran.json()["verified_bytes"].as_u64().unwrap();
    let whole = place.run_on("scrub", ["--json"]).ended(0);
    assert_eq!(whole.json()["partial"], false);
    let status = place.run_on("status", ["--json"]).ended(0).json();
    assert_eq!(status["last_scrub_partial"], false);
    let on_it = status["devices"][2]["unit_bytes"].as_u64().unwrap();
    place.take_away(2, false);
    let missing = format!("device 2, {}, is missing: no such directory", place.devices[2].display());
    for (command, rest, code) in [
        ("export", &["--quiet", "out"][..], None),
        ("load", &[], Some(0)),
        ("compact", &["--dry-run"], Some(0)),
        ("compact", &["--all"], Some(0)),
        ("rebalance", &["--dry-run"], Some(0)),
        ("rebalance", &[], Some(0)),
        ("scrub", &[], Some(1)),
    ] {
        let rest = rest.iter().map(|&word| if word == "out" { place.path(word).into() } else { word.into() });
        let ran = place.run_on(command, rest.collect::<Vec<std::ffi::OsString>>());
        says(&ran, &[&missing]);
        assert!(code.is_none() || ran.code == code, "{command}: {:?}, {}", ran.code, ran.said());
        assert_eq!(ran.said().matches("device 2, ").count(), 1, "{}", ran.said());
    }
    let ran = place.run_on("scrub", ["--json", "--restart"]).ended(1);
    assert_eq!((&ran.json()["partial"], &ran.json()["found"]), (&true.into(), &0.into()));
    // The log grows with each writer.
    let grown = (verified(&ran) + on_it).checked_sub(verified(&whole)).unwrap();
    assert!(on_it > 150_000 && grown < 100_000, "{grown} of {on_it}");
    says(&place.run_on("status", [""; 0]), &["last scrub   2", ", when not all devices were in service\n"]);
    assert_eq!(place.run_on("status", ["--json"]).json()["last_scrub_partial"], true);
    place.bring_back(2);
    says(&place.run_on("scrub", [""; 0]).ended(1), &["(granulo store repair brings it up to date)", "not all devices"]);
    place.run_on("repair", [""; 0]).ended(0);
    says_not(&place.run_on("scrub", [""; 0]).ended(0), &["not all devices"]);
    says_not(&place.run_on("status", [""; 0]).ended(0), &["not all devices"]);
    place.is_whole();
}

#[test]
fn a_large_file_that_only_stale_devices_prevent_needs_a_repair() {
    let mut place = Place::new(1, 3, &[]);
    let file = place.path("large");
    fs::write(&file, bytes(7, 300_000)).unwrap();
    for device in [1, 2] {
        place.take_away(device, false);
        place.run_on("put", args!["--degraded", "meanwhile", &file]);
        place.bring_back(device);
    }
    let ran = place.run_on("put", args!["--degraded", "k", &file]).ended(2);
    says(&ran, &["parity needs 2 (granulo store repair brings stale devices up to date)"]);
    place.take_away(1, false);
    let ran = place.run_on("put", args!["--degraded", "k", &file]).ended(2);
    says(&ran, &["brings stale devices up to date, and granulo store rebuild replaces lost ones)"]);
    place.bring_back(1);
    place.run_on("repair", ["--degraded"]);
    place.put("k", &bytes(7, 300_000)).ended(0);
}

#[test]
fn damaged_superblocks_are_repaired_as_the_refusal_says() {
    let mut place = Place::new(2, 0, &[]);
    place.import(12, 0);
    let superblock = place.devices[1].join("superblock");
    let pristine = fs::read(&superblock).unwrap();
    fs::write(&superblock, vec![0; pristine.len()]).unwrap();
    says(
        &place.run_on("repair", [""; 0]).ended(2),
        &["(granulo store repair --degraded rewrites damaged superblocks)"],
    );
    place.run_on("repair", ["--degraded"]).ended(1);
    place.run_on("check", ["--deep"]).ended(0);
    // A directory with segments is not empty.
    fs::remove_file(&superblock).unwrap();
    says(&place.run_on("ls", [""; 0]), &["device 1, ", ", has no superblock"]);
    says(&place.run_on("check", [""; 0]).ended(1), &["device 1 has no superblock", "(run granulo store repair)"]);
    place.run_on("repair", ["--degraded"]).ended(1);
    place.run_on("repair", [""; 0]).ended(0);
    place.is_whole();
    place.take_away(1, true);
    says(&place.run_on("check", [""; 0]).ended(1), &["device 1 has an empty directory"]);
}

#[test]
fn a_disk_that_take_replaced_comes_back_with_a_rebuild() {
    let mut place = Place::new(2, 0, &[]);
    place.import(12, 0);
    let directories = [place.home.clone(), place.devices[0].clone(), place.devices[1].clone()];
    let (copy, original) = (place.path("copy"), place.path("original"));
    fs::create_dir(&copy).unwrap();
    fs::create_dir(&original).unwrap();
    let move_all = |to: &std::path::Path, from: Option<&std::path::Path>| {
        for directory in &directories {
            let name = directory.file_name().unwrap();
            fs::rename(directory, to.join(name)).unwrap();
            from.iter().for_each(|from| fs::rename(from.join(name), directory).unwrap());
        }
    };
    directories.iter().for_each(|directory| copy_all(directory, &copy));
    place.put("only in the original", b"1").ended(0);
    move_all(&original, Some(&copy));
    place.objects.remove("only in the original");
    place.put("only in the copy", b"2").ended(0);
    // A disk of the original is put in the place of the copy's.
    let name = directories[2].file_name().unwrap();
    fs::rename(&directories[2], copy.join(name)).unwrap();
    fs::rename(original.join(name), &directories[2]).unwrap();
    says(&place.run_on("repair", [""; 0]).ended(2), &["granulo store repair --take NUMBER continues with one side"]);
    says(&place.run_on("repair", ["--take", "0"]), &["of a copy of the store: 1 (unchanged;"]);
    fs::rename(&directories[2], original.join(name)).unwrap();
    fs::rename(copy.join(name), &directories[2]).unwrap();
    let ran = place.run_on("check", [""; 0]).ended(1);
    says(
        &ran,
        &["it is one that was replaced", "(granulo store rebuild --device 1 --onto DIRECTORY fills a directory"],
    );
    says_not(&ran, &["bring the device back"]);
    place.run_on("rebuild", args!["--device", "1", "--degraded", "--onto", &directories[2]]).ended(0);
    place.run_on("check", ["--deep"]).ended(0);
    place.is_whole();
}

#[test]
fn a_directory_that_is_no_device_is_refused() {
    let mut place = Place::new(2, 0, &[]);
    place.import(4, 0);
    let other = Place::new(2, 0, &[]);
    let (empty, copy) = (place.path("empty"), place.path("copy"));
    fs::create_dir(&empty).unwrap();
    copy_all(&place.devices[0], &copy);
    for (directory, why) in [
        (place.path("none"), "no such directory"),
        (empty, "it has no superblock"),
        (other.devices[0].clone(), "it belongs to another store"),
        (place.home.clone(), "it is the home of the store"),
    ] {
        for command in ["ls", "repair", "scrub", "rebuild"] {
            let ran = place.run_on(command, args!["--device", &directory]).ended(2);
            says(&ran, &["cannot use as a device ", &directory.display().to_string(), why]);
        }
    }
    let ran = place.run_on("ls", args!["--device", &copy]).ended(0);
    says(&ran, &["is not used: it is a copy of device 0, which is at "]);
    // It may be the device that is to be repaired.
    fs::write(copy.join("superblock"), [0; 8192]).unwrap();
    says(&place.run_on("repair", args!["--device", &copy]).ended(0), &["is not used: its superblock is damaged"]);
    assert_eq!(place.run_on("ls", args!["--device", &place.devices[1]]).ended(0).said(), "");
}

#[test]
fn what_a_repair_cannot_know_is_accepted_and_not_dropped() {
    let mut place = Place::new(0, 0, &[]);
    place.import(8, 0);
    let (path, at) = find(&place.home.join("segments"), &place.objects["i1/d1/0001"]).unwrap();
    flip(&path, at - 1);
    place.lose_index();
    let ran = place.run_on("check", ["--deep"]).ended(1);
    says(&ran, &["acknowledged bytes of the log are damaged on its only copy (restore what is missing from a backup;"]);
    says_not(&ran, &["--drop-lost"]);
    place.put("the index", b"is rebuilt").ended(1);
    let ran = place.run_on("check", ["--deep"]).ended(1);
    says(
        &ran,
        &[
            "what was there is unknown (restore what is missing from a backup; granulo store repair --accept gives it up)",
        ],
    );
    let lines = ran.text();
    assert!(lines.lines().all(|line| !(line.contains("is unknown") && line.contains("--drop-lost"))), "{lines}");
    // What programs read of an incomplete store says so too.
    for (command, rest) in [("compact", &["--all", "--dry-run", "--json"][..]), ("scrub", &["--json"])] {
        assert_eq!(place.run_on(command, rest).ended(1).json()["completeness"]["state"], "incomplete", "{command}");
    }
}

#[test]
fn documents_of_an_incomplete_store_say_so() {
    let mut place = Place::new(2, 0, &[]);
    place.import(8, 0);
    place.take_away(0, false);
    for (command, rest) in [
        ("compact", &["--all", "--json", "--degraded"][..]),
        ("compact", &["--all", "--json", "--dry-run"]),
        ("rebuild", &["--dry-run", "--json"]),
        ("rebalance", &["--json", "--dry-run"]),
    ] {
        let document = place.run_on(command, rest).ended(1).json();
        assert_eq!(document["completeness"]["state"], "incomplete", "{command}: {document}");
    }
}

#[test]
fn another_name_of_a_symbolic_link_in_an_archive_is_another_name_of_it() {
    if !has_program("tar") {
        return skip("it makes an archive with tar");
    }
    let place = Place::new(0, 0, &[]);
    let (source, archive) = (place.path("source"), place.path("links.tar"));
    fs::create_dir(&source).unwrap();
    std::os::unix::fs::symlink("target", source.join("a")).unwrap();
    fs::hard_link(source.join("a"), source.join("b")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, source.join("p"), 0o600.into()).unwrap();
    fs::hard_link(source.join("p"), source.join("q")).unwrap();
    let tar = |names: &[&str]| {
        let made =
            std::process::Command::new("tar").arg("-cf").arg(&archive).arg("-C").arg(&source).args(names).status();
        assert!(made.unwrap().success());
    };
    tar(&["a", "b", "p", "q"]);
    let document = place.run_on("import", args!["--quiet", "--json", &archive]).ended(0).json();
    let count = |field: &str| document[field].as_u64().unwrap();
    assert_eq!(
        (count("symlinks"), count("special"), count("further_names"), count("refused")),
        (1, 2, 1, 0),
        "{document}"
    );
    let seen = |key: &str| {
        let mut document = place.run_on("stat", [key, "--json"]).ended(0).json();
        // What differs between two documents of one object: the name, and the second in which each was written.
        for field in ["key", "written_at"] {
            document.as_object_mut().unwrap().remove(field).unwrap();
        }
        document
    };
    assert_eq!(seen("a"), seen("b"));
    assert_eq!((&seen("b")["type"], &seen("b")["target"]), (&"symlink".into(), &"target".into()));
    // tar writes no links to fifos.
    assert_eq!((&seen("p")["type"], &seen("q")["type"]), (&"fifo".into(), &"fifo".into()));
    for verify in [&[][..], &["--verify"]] {
        let mut rest = args!["--quiet", "--json", &archive];
        rest.extend(verify.iter().map(std::ffi::OsString::from));
        let document = place.run_on("import", rest).ended(0).json();
        assert_eq!((&document["unchanged"], &document["symlinks"]), (&4.into(), &0.into()), "{document}");
    }
    place.run_on("check", ["--deep"]).ended(0);
}

#[test]
fn a_device_that_could_not_be_written_from_the_beginning_is_named_once() {
    if !can_trace() {
        return;
    }
    let mut place = Place::new(2, 4, &[]);
    place.import(4, 1);
    let file = place.path("large");
    fs::write(&file, bytes(9, 300_000)).unwrap();
    let lock = place.devices[3].join("lock");
    let options = ["-P", lock.to_str().unwrap(), "-e", "trace=open,openat", "-e", "inject=open,openat:error=EROFS"];
    let ran = place.strace(&options, args!["put", "--json", &place.home, "k", &file]).unwrap().ended(0);
    says(&ran, &["failed and is no longer written to: Read-only file system (when it can be written, run"]);
    says_not(&ran, &["meanwhile"]);
    assert_eq!(ran.said().matches("device 3, ").count(), 1, "{}", ran.said());
    assert_eq!(ran.json()["failed_devices"], serde_json::json!([]));
    // It is stale now; a repair brings the others up to date, and this one when it can be written.
    place.take_away(2, false);
    place.put("meanwhile", b"without two").ended(0);
    place.bring_back(2);
    let ran = place.strace(&options, args!["repair", &place.home]).unwrap().ended(1);
    says(&ran, &["device 2 is in service again", "device 3 failed and is no longer written to: Read-only file system"]);
    place.run_on("repair", [""; 0]).ended(0);
    place.run_on("check", ["--deep"]).ended(0);
}

#[test]
fn a_rebuild_that_is_refused_leaves_the_device_as_it_was() {
    let mut place = Place::new(2, 0, &[]);
    place.put("k", b"on both").ended(0);
    place.take_away(1, false);
    let ran = place.run_on("rebuild", [""; 0]).ended(2);
    says(&ran, &["no other device has room for 1 of its segments and chunks"]);
    place.bring_back(1);
    place.run_on("check", ["--deep"]).ended(0);
    place.put("again", b"on both").ended(0);
}

#[test]
fn an_import_that_ends_for_lack_of_space_counts_what_it_stored() {
    let mkfs = ["mkfs.ext4", "-q", "-F", "-m", "0"];
    let Some(image) = Image::make(24 << 20, &mkfs, Mount::Kernel("")) else { return };
    let home = image.root().join("store");
    let place = Place::new(0, 0, &[]);
    let source = place.path("many");
    fs::create_dir(&source).unwrap();
    for number in 0..900u64 {
        fs::write(source.join(number.to_string()), bytes(number, 30_000)).unwrap();
    }
    place.run(args!["init", &home]).ended(0);
    let imported = place.run(args!["import", &home, &source, "--json"]).ended(2).json()["files"].as_u64().unwrap();
    let status = place.run(args!["status", &home, "--count", "--json"]);
    let stored = status.json()["counts"]["files"].as_u64().unwrap();
    assert!((100..900).contains(&stored) && imported == stored, "{imported} {stored}");
}

#[test]
fn a_removal_without_space_asks_for_space() {
    let mkfs = ["mkfs.ext4", "-q", "-F", "-m", "0", "-O", "^has_journal"];
    let Some(image) = Image::make(16 << 20, &mkfs, Mount::Kernel("")) else { return };
    let home = image.root().join("store");
    let place = Place::new(0, 0, &[]);
    place.run(args!["init", &home, "--high-watermark", "100%"]).ended(0);
    let small = place.path("small");
    fs::write(&small, bytes(3, 3000)).unwrap();
    place.run(args!["put", &home, "k", &small]).ended(0);
    let mut filler = fs::File::create(image.root().join("filler")).unwrap();
    for length in [1 << 16, 512] {
        while filler.write_all(&vec![1; length]).is_ok() {}
    }
    let ran = place.run(args!["rm", &home, "k"]).ended(2);
    says(&ran, &["something else occupies the space reserved for removals (free space on their file systems"]);
    says_not(&ran, &["remove objects"]);
    // A removed file that is being written back keeps its space for a while.
    filler.set_len(0).unwrap();
    place.run(args!["rm", &home, "k"]).ended(0);
}
