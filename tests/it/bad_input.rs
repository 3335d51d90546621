//! What cannot be done is reported before it begins; what fails on the way is reported and damages nothing else.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::args;
use crate::harness::{
    Ran, finish, granulo, granulo_as_nobody, in_mount_namespace, run, sandbox, wide_tree, without_wishes, write_file,
};

/// Asserts a message for a person: one line that names the program, the fault and the path.
#[track_caller]
fn complains(ran: &Ran, words: &[&str]) {
    let said = ran.said();
    assert!(said.starts_with("granulo: error: ") || said.starts_with("error: "), "{said}");
    for word in words {
        assert!(said.contains(word), "'{word}' is not in: {said}");
    }
    assert!(!said.contains("os error") && !said.contains("Error {"), "{said}");
}

#[test]
fn a_path_that_does_not_exist_is_no_survey() {
    let sandbox = sandbox();
    let output = sandbox.path().join("s.json");
    let ran = run(args!["survey", sandbox.path().join("missing"), "-o", &output]).ended(2);
    complains(&ran, &["missing", "No such file or directory"]);
    assert_eq!(ran.text(), "");
    assert!(!output.exists());
    // The empty path does not exist.
    run(["survey", ""]).ended(2);
}

#[test]
fn one_missing_path_of_two_is_counted_and_the_other_surveyed() {
    let sandbox = sandbox();
    let (good, missing) = (sandbox.path().join("good"), sandbox.path().join("missing"));
    write_file(good.join("f"), 100);
    for order in [[&good, &missing], [&missing, &good]] {
        let ran = run(args!["survey", "--json", order[0], order[1]]).ended(1);
        let document = ran.json();
        assert_eq!(document["counts"]["files"], 1);
        assert_eq!(document["counts"]["errors"], 1);
        assert_eq!(document["errors"]["examples"][0]["path"], missing.to_str().unwrap());
        assert!(ran.said().contains("missing") && ran.said().contains("No such file"), "{}", ran.said());
    }
}

#[test]
fn results_that_could_not_be_written_stop_the_survey_before_it_begins() {
    let sandbox = sandbox();
    let root = sandbox.path().join("t");
    write_file(root.join("f"), 1);
    for option in ["-o", "--report", "--fsstats", "--files", "--checkpoint"] {
        let ran = run(args!["survey", &root, option, sandbox.path().join("no/such/result")]).ended(2);
        complains(&ran, &["no/such"]);
        assert_eq!(ran.text(), "", "{option}: nothing is surveyed");
        let ran = run(args!["survey", &root, option, sandbox.path()]).ended(2);
        complains(&ran, &["directory"]);
        assert_eq!(ran.text(), "", "{option}: nothing is surveyed");
        let ran = run(args!["survey", &root, option, root.join("f/below-a-file")]).ended(2);
        complains(&ran, &["f"]);
    }
    let both = sandbox.path().join("both");
    complains(&run(args!["survey", &root, "-o", &both, "--report", &both]).ended(2), &["both"]);
}

#[test]
fn wrong_arguments_are_named() {
    let sandbox = sandbox();
    let path = sandbox.path().to_str().unwrap();
    for (wrong, named) in [
        (&["--small", "64Q"][..], "64Q"),
        (&["--small", "-1"], "-1"),
        (&["--exclude", "a["], "a["),
        (&["--exclude", "{a"], "{a"),
        (&["--threads", "0"], "0"),
        (&["--threads", "1e9"], "1e9"),
        (&["--checkpoint-every", "-3"], "-3"),
        (&["--checkpoint-every", "NaN"], "NaN"),
        (&["--as-of", "tomorrow"], "tomorrow"),
        (&["--as-of", "2026-13-45"], "2026-13-45"),
        (&["--hard-links", "twice"], "twice"),
        (&["--no-such-option"], "--no-such-option"),
    ] {
        let mut arguments = vec!["survey", path];
        arguments.extend(wrong);
        let ran = run(&arguments).ended(2);
        complains(&ran, &[named]);
        assert_eq!(ran.text(), "");
    }
    let table = sandbox.path().join("x.parquet");
    complains(&run(args!["survey", path, "--anonymous", "--files", table]).ended(2), &["anonymous"]);
    complains(&run(["merge"]).ended(2), &["<SURVEY>"]);
    complains(&run(["report", "vu-2005"]).ended(2), &["--output"]);
    complains(&run(["show"]).ended(2), &["SOURCE"]);
    assert_eq!(fs::read_dir(sandbox.path()).unwrap().count(), 0);
}

#[test]
fn a_full_disk_loses_one_result_and_nothing_else() {
    let sandbox = sandbox();
    let directory = sandbox.path();
    fs::create_dir(directory.join("full")).unwrap();
    wide_tree(&directory.join("t"), 30, 100);
    for (index, size) in (0..400).map(|i| i * 37).enumerate() {
        write_file(directory.join(format!("t/sized/f{index}")), size);
    }
    let script = "mount -t tmpfs -o size=64k tmpfs \"$1/full\"; head -c 61440 /dev/zero > \"$1/full/filler\"
        code=0; \"$GRANULO\" survey \"$1/t\" $2 \"$1/full/result\" || code=$?
        ls -A \"$1/full\" > \"$1/left\"; exit $code";
    for option in ["-o", "--report", "--fsstats", "--files", "--ncdu"] {
        let Some(ran) = in_mount_namespace(script, &args![directory, option]) else { return };
        let ran = ran.ended(1);
        complains(&ran, &["result", "No space left on device", "free some space"]);
        assert!(ran.text().contains("3,400 files"), "{option}: the summary is printed all the same\n{}", ran.text());
        assert_eq!(fs::read_to_string(directory.join("left")).unwrap(), "filler\n", "{option}: half a result is left");
    }
}

#[test]
fn a_full_disk_keeps_the_result_that_was_there() {
    let sandbox = sandbox();
    let directory = sandbox.path();
    fs::create_dir(directory.join("full")).unwrap();
    wide_tree(&directory.join("t"), 3, 3);
    let script = "mount -t tmpfs -o size=64k tmpfs \"$1/full\"; echo before > \"$1/full/result\"
        head -c 57344 /dev/zero > \"$1/full/filler\"; code=0
        \"$GRANULO\" survey \"$1/t\" --report \"$1/full/result\" || code=$?; cp \"$1/full/result\" \"$1/kept\"; exit $code";
    let Some(ran) = in_mount_namespace(script, &args![directory]) else { return };
    complains(&ran.ended(1), &["No space left on device"]);
    assert_eq!(fs::read_to_string(directory.join("kept")).unwrap(), "before\n");
}

#[test]
fn a_full_standard_output_is_said() {
    let sandbox = sandbox();
    let output = sandbox.path().join("s.json");
    wide_tree(&sandbox.path().join("t"), 2, 2);
    if !Path::new("/dev/full").exists() {
        return crate::harness::skip("there is no /dev/full");
    }
    let full = || Stdio::from(File::options().write(true).open("/dev/full").unwrap());
    for arguments in [args!["show", "vu-2005"], args!["show", "vu-2005", "--json"], args!["completions", "bash"]] {
        let ran = finish(granulo().args(arguments).stdout(full()));
        assert!(matches!(ran.code, Some(1 | 2)), "{ran:?}");
        complains(&ran, &["standard output", "No space left on device"]);
    }
    // Requested result files exist.
    let ran = finish(granulo().args(args!["survey", sandbox.path().join("t"), "-o", &output]).stdout(full()));
    assert!(matches!(ran.code, Some(1 | 2)), "{ran:?}");
    complains(&ran, &["standard output"]);
    run(args!["show", &output]).ended(0);
}

#[test]
fn a_result_may_go_to_a_pipe() {
    let sandbox = sandbox();
    wide_tree(&sandbox.path().join("t"), 2, 2);
    let mut command = without_wishes(Command::new("sh"));
    command.args(["-c", "\"$0\" survey \"$1\" -o /dev/stdout --quiet >&2 | cat"]);
    command.args([crate::harness::binary().as_os_str(), sandbox.path().join("t").as_os_str()]);
    // Everything goes to standard error here; it ends well and leaves nothing beside the device.
    finish(&mut command).ended(0);
    assert!(!Path::new("/dev/stdout.checkpoint").exists());
    // Write permission for a device does not imply permission to create files beside it.
    let Some(mut command) = granulo_as_nobody(&sandbox) else { return };
    for option in ["-o", "--report", "--fsstats"] {
        let ran = finish(command.arg("survey").arg(sandbox.path().join("t")).args([option, "/dev/null"])).ended(0);
        assert_eq!(ran.said(), "", "{option}");
        let Some(again) = granulo_as_nobody(&sandbox) else { return };
        command = again;
    }
    assert!(fs::metadata("/dev/null").is_ok_and(|metadata| !metadata.is_file()), "/dev/null is still a device");
    // Standard output is a file that the shell opened: the result goes where it writes.
    let (kept, into) = (sandbox.path().join("kept.json"), sandbox.path().join("t"));
    let Some(mut command) = granulo_as_nobody(&sandbox) else { return };
    command.args([
        OsStr::new("survey"),
        into.as_os_str(),
        OsStr::new("-q"),
        OsStr::new("-o"),
        OsStr::new("/dev/stdout"),
    ]);
    let status = command.stdout(fs::File::create(&kept).unwrap()).status().unwrap();
    assert!(status.success());
    run(args!["show", &kept]).ended(0);
}

#[test]
fn a_table_of_files_takes_the_place_of_no_device() {
    let sandbox = sandbox();
    wide_tree(&sandbox.path().join("t"), 2, 2);
    let pipe = sandbox.path().join("pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    let ran = run(args!["survey", sandbox.path().join("t"), "--files", &pipe]).ended(2);
    complains(&ran, &["pipe"]);
    assert!(fs::symlink_metadata(&pipe).unwrap().file_type().is_fifo(), "the pipe is a pipe no more");
    assert_eq!(fs::read_dir(sandbox.path()).unwrap().count(), 2);
}
