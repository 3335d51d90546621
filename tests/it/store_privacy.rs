//! Who may read what a store keeps: modes of its files, and results that are written through no planted link.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::args;
use crate::harness::{Ran, binary, finish, granulo_as_nobody, is_root, skip, without_wishes};
use crate::store_place::{Place, bytes, files, snapshot};

#[test]
fn what_was_private_stays_private_in_a_store() {
    for (fast, slow) in [(0, 0), (2, 3)] {
        let mut place = Place::new(fast, slow, &[]);
        place.import(20, 2);
        for directory in place.devices.iter().chain([&place.home]) {
            let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
            assert_eq!(mode(directory), 0o700, "{}", directory.display());
            for path in files(directory) {
                assert_eq!(mode(&path) & 0o177, 0, "{} has {:o}", path.display(), mode(&path));
                assert_eq!(mode(path.parent().unwrap()), 0o700, "{}", path.display());
            }
        }
        if let Some(mut nobody) = is_root().then(|| granulo_as_nobody(&place.sandbox)).flatten() {
            let ran = finish(nobody.args(["store", "get"]).arg(&place.home).arg("i1/d0/0000"));
            assert_eq!((ran.code, &ran.stdout[..]), (Some(2), &b""[..]), "{}", ran.said());
        }
    }
}

#[test]
fn directories_that_a_put_implies_are_those_of_its_user_and_follow_the_umask() {
    let place = Place::new(0, 0, &[]);
    let mut put = Command::new("sh");
    put.args(["-c", "umask 027; echo content | \"$0\" store put \"$1\" a/b/f -"]).arg(binary()).arg(&place.home);
    finish(&mut without_wishes(put)).ended(0);
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    for key in ["a", "a/b"] {
        let stat = place.run_on("stat", ["--json", key]).ended(0).json();
        assert_eq!((stat["mode"].as_u64(), stat["uid"].as_u64()), (Some(0o040_750), Some(uid.into())), "{stat}");
        assert_eq!(stat["gid"].as_u64(), Some(gid.into()), "{stat}");
    }
    let Some(mut nobody) = is_root().then(|| granulo_as_nobody(&place.sandbox)).flatten() else { return };
    let own = place.path("own");
    fs::create_dir(&own).unwrap();
    chown(&own, Some(65534), Some(65534)).unwrap();
    fs::write(place.path("file"), "content").unwrap();
    let home = own.join("store");
    finish(nobody.args(["store", "init"]).arg(&home)).ended(0);
    let mut nobody = granulo_as_nobody(&place.sandbox).unwrap();
    finish(nobody.args(["store", "put"]).arg(&home).arg("a/f").arg(place.path("file"))).ended(0);
    let stat = place.run(args!["stat", "--json", &home, "a"]).json();
    assert_eq!((stat["uid"].as_u64(), stat["gid"].as_u64()), (Some(65534), Some(65534)), "{stat}");
}

#[test]
fn root_is_told_that_a_store_is_somebody_elses() {
    if !is_root() {
        return skip("only root can give a store to somebody else");
    }
    let mut place = Place::new(0, 0, &[]);
    place.import(2, 0);
    let put = || place.run_on("put", ["name", place.home.join("superblock").to_str().unwrap()]).ended(0);
    assert_eq!(put().said(), "");
    chown(&place.home, Some(65534), Some(65534)).unwrap();
    let said = put().said();
    assert!(said.contains("belongs to user 65534") && said.contains("run this as its owner"), "{said}");
}

#[test]
fn root_who_reads_the_store_of_somebody_else_keeps_nothing_of_it() {
    if !is_root() {
        return skip("only root can read the store of somebody else");
    }
    let mut place = Place::new(0, 0, &[]);
    place.import(20, 0);
    finish(Command::new("chown").args(["-R", "65534:65534"]).arg(&place.home)).ended(0);
    if granulo_as_nobody(&place.sandbox).is_none() {
        return;
    }
    let as_owner = |command: &str, rest: &[&str]| {
        let mut owner = granulo_as_nobody(&place.sandbox).unwrap();
        finish(owner.args(["store", command]).arg(&place.home).args(rest))
    };
    // Removes a file; returns how compaction ended, and what waits.
    let free = |key: &str| {
        as_owner("rm", &[key]).ended(0);
        let ran = as_owner("compact", &["--all", "--json"]);
        let waiting_bytes = ran.json()["done"]["waiting_bytes"].as_u64();
        (ran.code, waiting_bytes.is_some_and(|bytes| bytes > 0), ran.said())
    };
    let pins = place.home.join("index/pins");
    let owner_of = |path: &Path| fs::metadata(path).unwrap().uid();
    for command in ["load", "check"] {
        place.run_on(command, [""; 0]).ended(0);
        assert_eq!((owner_of(&pins), files(&pins)), (65534, vec![]), "{command}");
    }
    assert_eq!(free("i1/d0/0000"), (Some(0), false, String::new()));
    // While it reads.
    let reader = granulo::store::Store::open_read_only(&place.home).unwrap();
    let snapshot = reader.snapshot().unwrap();
    assert_eq!(owner_of(&files(&pins)[0]), 65534);
    assert_eq!(free("i1/d1/0001"), (Some(0), true, String::new()));
    drop((snapshot, reader));
    assert_eq!(free("i1/d2/0002"), (Some(0), false, String::new()));
    // A reader that was killed before it had given away what it made.
    fs::remove_dir(&pins).unwrap();
    fs::create_dir(&pins).unwrap();
    fs::set_permissions(&pins, fs::Permissions::from_mode(0o700)).unwrap();
    let (code, is_waiting, said) = free("i1/d3/0003");
    let names_it = |text: &str| text.contains("index/pins cannot be looked at (Permission denied)");
    assert!((code, is_waiting) == (Some(1), true) && names_it(&said), "{code:?} {said}");
    let status = as_owner("status", &["--json"]).ended(0).json();
    assert_eq!(status["unknown_pins"][0]["cause"], "Permission denied", "{status}");
    let segments = place.segments(0).len();
    as_owner("rm", &["i1/d4/0004"]).ended(0);
    as_owner("rm", &["i1/d5/0005"]).ended(0);
    assert_eq!(place.segments(0).len(), segments, "each writer closed the store");
    // The next one does.
    place.run_on("load", [""; 0]).ended(0);
    assert_eq!(free("i1/d6/0006"), (Some(0), false, String::new()));
}

/// A reader who is in the group of a store, and has begun to read its snapshot.
struct Member {
    place: Place,
    reading: Child,
    begun: Vec<u8>,
}

impl Member {
    /// `None`, with the reason reported, where nobody else can be.
    fn who_reads(may_pin: bool) -> Option<Member> {
        if !is_root() {
            skip("only root can give a store to a group that it is not in");
            return None;
        }
        let mut place = Place::new(0, 0, &["--mode", "0640", "--segment-size", "1MiB"]);
        place.import_files((0..200).map(|number| (format!("f/{number:03}"), bytes(number, 30_000))));
        let give = "chgrp -R 65534 \"$0\" && find \"$0\" -type d -exec chmod g+s {} +";
        finish(Command::new("sh").args(["-c", give]).arg(&place.home)).ended(0);
        place.run(args!["snapshot", "create", &place.home, "monday"]).ended(0);
        place.run_on("rm", ["-r", "f"]).ended(0);
        let pins = place.home.join("index/pins");
        assert_eq!(fs::metadata(&pins).unwrap().mode() & 0o1777, 0o1770);
        if !may_pin {
            // As where it may not write.
            chown(&pins, Some(1), Some(1)).unwrap();
            fs::set_permissions(&pins, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let mut member = granulo_as_nobody(&place.sandbox)?;
        member.args(["store", "get"]).arg(&place.home).args(["/", "--tar", "--at", "monday"]);
        let mut reading = member.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut begun = vec![0; 512];
        reading.stdout.as_mut().unwrap().read_exact(&mut begun).unwrap();
        Some(Member { place, reading, begun })
    }

    /// Reads the rest: how it ended, and the files of the archive.
    fn goes_on(mut self) -> (Ran, BTreeMap<String, Vec<u8>>, Place) {
        self.reading.stdout.take().unwrap().read_to_end(&mut self.begun).unwrap();
        let ran = Ran::from(self.reading.wait_with_output().unwrap());
        let other = Place::new(0, 0, &[]);
        let archive = other.path("archive");
        fs::write(&archive, &self.begun).unwrap();
        other.run_on("import", args!["--quiet", &archive]).ended(0);
        let (files, exported) = other.export();
        exported.ended(0);
        (ran, files, self.place)
    }
}

#[test]
fn a_reader_of_the_group_has_its_snapshot_to_the_end() {
    for may_pin in [true, false] {
        let Some(member) = Member::who_reads(may_pin) else { return };
        if may_pin {
            // What it reads stays, whatever happens to the snapshot.
            member.place.run(args!["snapshot", "rm", &member.place.home, "monday"]).ended(0);
        }
        (0..2).for_each(|_| drop(member.place.run_on("compact", ["--all"]).ended(0)));
        let (ran, files, place) = member.goes_on();
        assert_eq!((ran.code, ran.said().as_str()), (Some(0), ""), "{may_pin}");
        assert!(files == place.objects, "{may_pin}: {} of {}", files.len(), place.objects.len());
        // Nothing stays behind it.
        let compacted = place.run_on("compact", ["--all", "--json"]).ended(0).json();
        assert_eq!(compacted["done"]["waiting_bytes"], 0, "{may_pin}: {compacted}");
    }
}

#[test]
fn a_snapshot_that_could_not_be_kept_and_is_removed_is_not_called_damaged() {
    let Some(member) = Member::who_reads(false) else { return };
    member.place.run(args!["snapshot", "rm", &member.place.home, "monday"]).ended(0);
    member.place.run_on("compact", ["--all"]).ended(0);
    let (ran, files, place) = member.goes_on();
    let said = ran.said();
    assert!(ran.code == Some(1) && said.contains("the snapshot monday was removed meanwhile"), "{said}");
    let calls_it_damaged = ["--drop-lost", "cannot be verified", "check --deep"].iter().any(|it| said.contains(it));
    assert!(!calls_it_damaged && files.len() < place.objects.len(), "{said}");
}

#[test]
fn a_store_is_shared_only_when_it_was_asked_for() {
    let mut place = Place::new(0, 0, &["--mode", "0660"]);
    place.import(10, 1);
    for path in files(&place.home) {
        let mode = fs::metadata(&path).unwrap().mode() & 0o777;
        assert_eq!(mode & !0o660, 0, "{} has {mode:o}", path.display());
        assert_eq!(fs::metadata(path.parent().unwrap()).unwrap().mode() & 0o777, 0o770);
    }
    let segment = &place.segments(0)[0];
    assert_eq!(fs::metadata(segment).unwrap().mode() & 0o777, 0o660);
}

#[test]
fn a_planted_link_in_a_store_leads_a_writer_nowhere() {
    for name in ["lock", "superblock", "segments", "index"] {
        let mut place = Place::new(0, 0, &[]);
        place.import(2, 0);
        let (planted, elsewhere) = (place.home.join(name), place.path("elsewhere"));
        fs::create_dir(&elsewhere).unwrap();
        fs::rename(&planted, elsewhere.join(name)).unwrap();
        let before = snapshot(&elsewhere);
        symlink(elsewhere.join(name), &planted).unwrap();
        let ran = place.put("another", b"1");
        assert_ne!(ran.code, Some(0), "{name}");
        assert!(ran.said().contains(name), "{name}: {}", ran.said());
        assert!(snapshot(&elsewhere) == before, "{name}");
    }
}

#[test]
fn results_are_written_through_no_planted_link_and_keep_what_a_target_had() {
    let mut place = Place::new(0, 0, &[]);
    place.import(10, 0);
    let target = place.path("result");
    let get = args!["get", &place.home, "i1/d0/0000", "-o", &target];
    if let Some(ran) = place.strace(&["-e", "trace=open,openat,openat2"], get.clone()) {
        ran.ended(0);
        let beside = target.parent().unwrap().to_str().unwrap().to_owned();
        let trace = place.trace();
        let made: Vec<&str> = trace
            .lines()
            .filter(|line| line.contains("O_CREAT") && line.contains(&beside) && !line.contains(".lock"))
            .filter(|line| !line.contains(place.home.to_str().unwrap()))
            .collect();
        // The trace shows no data (-s 0) but names of files: each is created with O_EXCL.
        assert!(made.iter().all(|line| line.contains("O_EXCL") || line.contains("O_TMPFILE")), "{made:?}");
    }
    assert_eq!(fs::read(&target).unwrap(), place.objects["i1/d0/0000"]);
    // An existing target keeps its mode and its owner.
    fs::set_permissions(&target, fs::Permissions::from_mode(0o600)).unwrap();
    if is_root() {
        std::os::unix::fs::chown(&target, Some(65_534), Some(65_534)).unwrap();
    }
    let before = fs::metadata(&target).unwrap();
    place.run(get).ended(0);
    let after = fs::metadata(&target).unwrap();
    assert_eq!((after.mode(), after.uid(), after.gid()), (before.mode(), before.uid(), before.gid()));
    // Guessable names, planted as links to a file that must not be touched.
    let victim = place.path("victim");
    fs::write(&victim, b"precious").unwrap();
    let target = place.path("second");
    let mut child = place.command(args!["get", &place.home, "i1/d0/0000", "-o", &target]);
    let shell = format!("ln -s {} {}.$$.tmp; exec \"$@\"", victim.display(), target.display());
    let mut through = without_wishes(Command::new("sh"));
    through.args(["-c", &shell, "sh"]).arg(child.get_program()).args(child.get_args());
    child.stdin(Stdio::null());
    finish(&mut through).ended(0);
    assert_eq!(fs::read(&victim).unwrap(), b"precious");
    assert_eq!(fs::read(&target).unwrap(), place.objects["i1/d0/0000"]);
    // A link in the place of the target itself is replaced, or its target is written as requested: never anything in
    // between.
    symlink(&victim, place.path("third")).unwrap();
    let ran = place.run(args!["get", &place.home, "i1/d0/0000", "-o", place.path("third")]);
    assert!(ran.code != Some(0) || fs::read(place.path("third")).unwrap() == place.objects["i1/d0/0000"]);
}
