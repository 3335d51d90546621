//! `granulo store clone`, `push` and `pull` as processes: what they say, and what they leave when they are killed.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use granulo::store::{Key, Store};
use granulo_core::random::Random;
use rustix::process::Signal;

use crate::args;
use crate::bench_harness::Running;
use crate::harness::{Ran, binary, complains, finish, granulo, in_mount_namespace, is_root, run};
use crate::store_cli::on;
use crate::store_place::{Place, bytes};

/// How often a push is killed.
const KILLS: u64 = 20;

/// Contents by key.
fn content(home: &Path) -> BTreeMap<String, Vec<u8>> {
    let store = Store::open_read_only(home).unwrap();
    assert!(store.completeness().is_complete());
    let keys = store.walk(&Key::root()).unwrap().map(|found| found.unwrap().key);
    keys.map(|key| (key.to_string(), store.get(&key).unwrap().unwrap())).collect()
}

fn beside(copy: &Path) -> PathBuf {
    copy.with_file_name("copy.incoming")
}

#[test]
fn a_copy_is_made_brought_up_to_date_and_refused_when_it_was_written_to() {
    for (fast, slow) in [(0, 0), (2, 3)] {
        let mut place = Place::new(fast, slow, &[]);
        place.import(40, 2);
        let copy = place.path("copy");
        let made = on("clone", &place.home, [&copy]).ended(0);
        assert!(made.text().contains(" has the state of batch ") && made.said().is_empty(), "{}", made.said());
        assert_eq!(content(&copy), content(&place.home));
        complains(&on("clone", &place.home, [&copy]).ended(2), &["not empty", "granulo store push"]);

        assert!(on("push", &place.home, [&copy]).ended(0).text().ends_with(" is up to date\n"));
        place.put("later", &bytes(5, 2000)).ended(0);
        run(args!["store", "snapshot", "create", &place.home, "then"]).ended(0);
        let pushed = on("push", &place.home, args![&copy, "--verify", "--json"]).ended(0).json();
        assert_eq!((&pushed["unchanged"], &pushed["snapshots"]), (&false.into(), &1.into()));
        assert!(pushed["transferred_bytes"].as_u64() < pushed["kept_bytes"].as_u64(), "{pushed}");
        assert_eq!(content(&copy), content(&place.home));
        on("check", &copy, ["--deep"]).ended(0);
        assert_eq!(on("get", &copy, ["later", "--at", "then"]).ended(0).stdout, bytes(5, 2000));

        on("rm", &copy, ["later"]).ended(0);
        place.put("later", &bytes(6, 2000)).ended(0);
        let before = content(&copy);
        complains(&on("push", &place.home, [&copy]).ended(2), &["written to", "nothing was changed"]);
        assert_eq!(content(&copy), before);
        // Devices outside of a home cannot change with it at one moment.
        let pulled = on("pull", &place.home, [&copy]);
        complains(&pulled.ended(2), &[if fast > 0 { "outside its home" } else { "written to" }]);
    }
}

#[test]
fn what_was_written_to_a_copy_is_pulled_into_its_source() {
    let mut place = Place::new(0, 0, &[]);
    place.import(10, 1);
    let copy = place.path("copy");
    on("clone", &place.home, [&copy]).ended(0);
    on("rm", &copy, ["-r", "i1"]).ended(0);
    on("pull", &place.home, [&copy]).ended(0);
    assert_eq!(content(&place.home), content(&copy));
    on("check", &place.home, ["--deep"]).ended(0);
}

#[test]
fn a_push_that_is_killed_at_any_moment_leaves_the_old_or_the_new_state() {
    let mut place = Place::new(0, 0, &["--segment-size", "1MiB"]);
    place.import(30, 1);
    let copy = place.path("copy");
    on("clone", &place.home, [&copy]).ended(0);
    let (mut random, mut known) = (Random::new(7), vec![content(&place.home)]);
    for round in 0..KILLS {
        place.put(&format!("small{round}"), &bytes(round, 30_000)).ended(0);
        place.put("large", &bytes(round, 400_000)).ended(0);
        if round % 5 == 4 {
            on("compact", &place.home, ["--all"]).ended(0);
        }
        known.push(content(&place.home));
        let mut push = granulo()
            .args(args!["store", "push", &place.home, &copy, "--rate", "8MiB"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(random.below(120)));
        push.kill().unwrap();
        push.wait().unwrap();
        let found = content(&copy);
        assert!(known.contains(&found), "round {round}: it is one of the states of its source");
        on("check", &copy, ["--deep"]).ended(0);
    }
    on("push", &place.home, [&copy]).ended(0);
    assert_eq!(content(&copy), *known.last().unwrap());
    assert!(!beside(&copy).exists());
}

#[test]
fn an_interrupted_push_says_so_and_goes_on() {
    let mut place = Place::new(0, 0, &["--segment-size", "1MiB"]);
    place.import(10, 0);
    let copy = place.path("copy");
    on("clone", &place.home, [&copy]).ended(0);
    let before = content(&copy);
    place.put("large", &bytes(1, 8_000_000)).ended(0);
    let there = beside(&copy);
    let begun = || fs::read_dir(there.join("extents")).is_ok_and(|mut entries| entries.next().is_some());
    let mut slow = granulo();
    slow.args(args!["store", "push", &place.home, &copy, "--rate", "100KiB"]);
    let mut push = Running::of(slow);
    push.until("the copy has begun", begun);
    push.signal(Signal::INT);
    let ran = push.end().ended(1);
    assert!(ran.text().starts_with("Interrupted: "), "{}", ran.text());
    assert_eq!(content(&copy), before);
    run(args!["store", "push", &place.home, &copy]).ended(0);
    assert_eq!(content(&copy), content(&place.home));
    assert!(!beside(&copy).exists());
}

#[test]
fn a_copy_without_room_says_what_it_leaves_and_where() {
    const SCRIPT: &str = "mount -t tmpfs -o size=2m tmpfs \"$1\"\n\"$GRANULO\" store clone \"$2\" \"$1/copy\"";
    let mut place = Place::new(0, 0, &["--segment-size", "1MiB"]);
    place.import_files((0..60).map(|number| (format!("f{number:02}"), bytes(number, 50_000))));
    let small = place.path("small");
    fs::create_dir(&small).unwrap();
    let Some(ran) = in_mount_namespace(SCRIPT, &args![&small, &place.home]) else { return };
    complains(&ran.ended(2), &["No space left", "run the same command again", "copy.incoming; remove that"]);
}

/// Runs a command of the store with a program in place of ssh that runs the other granulo here.
fn with_ssh(place: &Place, arguments: Vec<std::ffi::OsString>) -> Ran {
    through(place, "ssh", "echo \"$1\" > \"$0.host\"\nexec sh -c \"$2\"", arguments)
}

/// The same with a program that does this with `$1`, the host, and `$2`, the command.
fn through(place: &Place, name: &str, does: &str, arguments: Vec<std::ffi::OsString>) -> Ran {
    let ssh = place.path(name);
    if !ssh.exists() {
        // They are the last two words.
        fs::write(&ssh, format!("#!/bin/sh\nwhile [ $# -gt 2 ]; do shift; done\n{does}\n")).unwrap();
        fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut command = granulo();
    finish(command.arg("store").args(arguments).env("GRANULO_SSH", &ssh).env("GRANULO_REMOTE", binary()))
}

/// In either direction, behind the first of several segments.
#[test]
fn a_connection_that_breaks_is_said_and_the_same_command_continues() {
    // Without a buffer, in which a short question or answer would stay.
    const BEFORE: &str = "stdbuf -o0 head -c 1500000";
    let mut place = Place::new(0, 0, &["--segment-size", "1MiB"]);
    place.import_files((0..60).map(|number| (format!("f{number:02}"), bytes(number, 50_000))));
    let whole = place.path("whole");
    let all = on("clone", &place.home, args![&whole, "--json"]).ended(0).json();
    let address = |path: &Path| format!("ssh://host{}", path.display());
    let (here, there) = (place.path("here"), place.path("there"));
    let pull = args!["clone", address(&place.home), &here, "--json"];
    let push = args!["clone", &place.home, address(&there), "--json"];
    for (copy, name, does, arguments) in [
        // The other side may be waiting for the next question then: both directions end, as they do with ssh.
        (&here, "short-answers", format!("sh -c \"$2\" | {{ {BEFORE}; kill $$; }}"), pull),
        (&there, "short-questions", format!("{BEFORE} | sh -c \"$2\""), push),
    ] {
        let broken = through(&place, name, &does, arguments.clone());
        complains(&broken.ended(2), &["connection ended", "run the same command again", "ssh://host"]);
        let aside = copy.with_extension("incoming");
        assert!(!copy.exists() && aside.exists(), "{name}");
        let done = with_ssh(&place, arguments).ended(0).json();
        let [kept, came] = ["kept_bytes", "transferred_bytes"].map(|count| done[count].as_u64().unwrap());
        assert!(kept > 0 && Some(kept + came) == all["transferred_bytes"].as_u64(), "{name}: {done} after {all}");
        assert_eq!(content(copy), content(&place.home));
        on("check", copy, ["--deep"]).ended(0);
        assert!(!aside.exists(), "{name}");
    }
}

#[test]
fn a_copy_on_another_machine_is_brought_up_to_date_through_ssh() {
    let mut place = Place::new(2, 0, &[]);
    place.import(20, 1);
    let (there, here) = (place.path("it's there"), place.path("here"));
    let address = format!("ssh://me@host:22{}", there.display());
    with_ssh(&place, args!["clone", &place.home, &address]).ended(0);
    assert_eq!(fs::read_to_string(place.path("ssh.host")).unwrap(), "me@host\n");
    assert_eq!(content(&there), content(&place.home));
    with_ssh(&place, args!["clone", &address, &here]).ended(0);
    place.put("later", &bytes(1, 10_000)).ended(0);
    let pushed = with_ssh(&place, args!["push", &place.home, &address, "--json"]).ended(0).json();
    assert_eq!((&pushed["to"], &pushed["unchanged"]), (&address.as_str().into(), &false.into()));
    with_ssh(&place, args!["pull", &here, &address, "--verify"]).ended(0);
    assert_eq!(content(&there), content(&place.home));
    assert_eq!(content(&here), content(&place.home));
    // Errors of the other side are said once, and end with status 2.
    on("rm", &there, ["later"]).ended(0);
    place.put("later", &bytes(2, 10_000)).ended(0);
    complains(&with_ssh(&place, args!["push", &place.home, &address]).ended(2), &["ssh://me@host", "written to"]);
    complains(&with_ssh(&place, args!["push", &address, &address]).ended(2), &["neither is this one"]);
    complains(&with_ssh(&place, args!["push", &place.home, "ssh://host"]).ended(2), &["it has no path"]);
    // Root leaves its owner without the copy, also if it pulls.
    if is_root() {
        std::os::unix::fs::chown(&here, Some(65_534), Some(65_534)).unwrap();
        let pulled = with_ssh(&place, args!["pull", &here, address.replace("it's there", "home")]).ended(0);
        assert!(pulled.said().contains("belongs to user 65534"), "{}", pulled.said());
    }
    // What is no granulo.
    let mut command = granulo();
    let ran = finish(command.args(args!["store", "push", &place.home, &address]).env("GRANULO_SSH", "echo"));
    complains(&ran.ended(2), &["talk to the other granulo", "ssh://me@host"]);
}
