//! `granulo trace`: recordings of real commands, reading of texts, conversions, problems, and plans from traces.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::args;
use crate::harness::{finish, granulo, has_program, run, sandbox, skip, write_file};

/// Whether strace is installed and may trace.
fn can_trace() -> bool {
    if !has_program("strace") {
        skip("there is no strace");
        return false;
    }
    let traces = Command::new("strace").args(["-o", "/dev/null", "true"]).stderr(Stdio::null()).status();
    if !traces.is_ok_and(|status| status.success()) {
        skip("strace may not trace here");
        return false;
    }
    true
}

fn kind<'a>(trace: &'a Value, kind: &str) -> &'a Value {
    let kinds = trace["kinds"].as_array().unwrap();
    kinds.iter().find(|row| row["kind"] == kind).unwrap_or(&Value::Null)
}

fn problem(trace: &Value, kind: &str) -> u64 {
    let problems = trace["problems"].as_array().unwrap();
    problems.iter().find(|row| row["kind"] == kind).map_or(0, |row| row["count"].as_u64().unwrap())
}

/// The same document without the fields that differ between a text and its conversion.
fn without_name(mut trace: Value) -> Value {
    trace["name"] = Value::Null;
    trace
}

/// A text of strace: a copy of `pieces` pieces of 4,000 bytes.
fn strace_of_a_copy(sandbox: &TempDir, pieces: u64) -> PathBuf {
    let mut text = "7 1700000000.0 openat(AT_FDCWD</w>, \"a\", O_RDONLY) = 3</w/a> <0.00001>\n\
        7 1700000000.1 openat(AT_FDCWD</w>, \"b\", O_WRONLY|O_CREAT|O_TRUNC, 0644) = 4</w/b> <0.00001>\n"
        .to_owned();
    for piece in 0..pieces {
        let time = 1_700_000_001 + piece;
        text += &format!("7 {time}.0 read(3</w/a>, \"\"..., 4000) = 4000 <0.00001>\n");
        text += &format!("7 {time}.5 write(4</w/b>, \"\"..., 4000) = 4000 <0.00002>\n");
    }
    text += "7 1800000000.0 close(3</w/a>) = 0 <0.1>\n7 1800000000.1 close(4</w/b>) = 0 <0.1>\n7 1800000000.2 +++ exited with 0 +++\n";
    let path = sandbox.path().join("copy.strace");
    fs::write(&path, text).unwrap();
    path
}

#[test]
fn a_copy_is_one_read_and_one_write() {
    let sandbox = sandbox();
    let trace = strace_of_a_copy(&sandbox, 250);
    let ran = run(args!["trace", "read", &trace, "--json"]).ended(0);
    assert_eq!(ran.said(), "");
    let json = ran.json();
    assert_eq!(json["schema"], "granulo/trace/1");
    for side in ["reads", "writes"] {
        assert_eq!((&json[side]["whole"]["count"], &json[side]["whole"]["total"]), (&1.into(), &1_000_000.into()));
        assert_eq!(json[side]["requests"]["deciles"][4], 4000);
        assert_eq!(json[side]["patterns"][1]["count"], 249);
        let one_block = &json[side]["one_block"][3];
        assert_eq!((&one_block["block_bytes"], &one_block["requests_fraction"]), (&4096.into(), &1.0.into()));
    }
    assert_eq!(json["writes"]["file_size"]["max"], 1_000_000);
    assert_eq!((&json["files"]["only_read"], &json["files"]["only_written"]), (&1.into(), &1.into()));
    assert_eq!(kind(&json, "close")["seconds"], 0.2);
    let text = run(args!["trace", "read", &trace]).ended(0).text();
    assert!(text.contains("250 requests") && text.contains("sequential"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn a_conversion_says_the_same() {
    let sandbox = sandbox();
    let trace = strace_of_a_copy(&sandbox, 1_000);
    let own = sandbox.path().join("copy.gtrace");
    let ran = run(args!["trace", "read", &trace, "-o", &own, "--json"]).ended(0);
    assert!(ran.said().contains("2,004 operations"), "{}", ran.said());
    let back = run(args!["trace", "read", &own, "--json"]).ended(0);
    assert_eq!(without_name(ran.json()), without_name(back.json()));
    assert!(fs::metadata(&own).unwrap().len() * 10 < fs::metadata(&trace).unwrap().len());
    // A second conversion produces the same bytes; standard input works as well; a compressed text is decompressed.
    let again = sandbox.path().join("again.gtrace");
    run(args!["trace", "read", &own, "--format", "granulo", "-o", &again]).ended(0);
    assert_eq!(fs::read(&own).unwrap(), fs::read(&again).unwrap());
    let piped =
        finish(granulo().args(["trace", "read", "-", "--json"]).stdin(fs::File::open(&trace).unwrap())).ended(0);
    assert_eq!(without_name(piped.json()), without_name(back.json()));
    let packed = sandbox.path().join("copy.strace.zst");
    fs::write(&packed, zstd::encode_all(&fs::read(&trace).unwrap()[..], 3).unwrap()).unwrap();
    assert_eq!(without_name(run(args!["trace", "read", &packed, "--json"]).ended(0).json()), without_name(back.json()));
}

#[test]
fn a_truncated_trace_gives_what_is_whole() {
    let sandbox = sandbox();
    let trace = strace_of_a_copy(&sandbox, 100_000);
    let own = sandbox.path().join("copy.gtrace");
    run(args!["trace", "read", &trace, "-o", &own]).ended(0);
    let bytes = fs::read(&own).unwrap();
    fs::write(&own, &bytes[..bytes.len() / 2]).unwrap();
    let cut = run(args!["trace", "read", &own, "--json"]).ended(1).json();
    assert_eq!((&cut["operations"], problem(&cut, "truncated")), (&65_536.into(), 1));
    assert!(run(args!["trace", "read", &own]).ended(1).text().contains("truncated"));
    let planned = run(args!["plan", "vu-2005", "--model", "ext4", "--trace", &own, "--json"]).ended(1);
    assert!(planned.said().contains("could not be read") && planned.json()["operations"].is_object(), "{planned:?}");
    let text = fs::read(&trace).unwrap();
    fs::write(&trace, &text[..text.len() / 2]).unwrap();
    let cut = run(args!["trace", "read", &trace, "--json"]).ended(1).json();
    assert_eq!(problem(&cut, "truncated"), 1);
    assert!(cut["operations"].as_u64().unwrap() > 90_000);
}

#[test]
fn what_is_no_trace_is_refused() {
    let sandbox = sandbox();
    let path = sandbox.path().join("x");
    for (bytes, said) in [
        (&b""[..], "its format is not recognised"),
        (b"hello\nworld\n", "its format is not recognised"),
        (b"granulo trace 9\n", "version 9"),
        (b"granulo trace 1\n", "truncated"),
        (b"1 getpid() = 1\n", "no file operations"),
    ] {
        fs::write(&path, bytes).unwrap();
        let ran = run(args!["trace", "read", &path]).ended(2);
        assert!(ran.said().contains(said), "{}", ran.said());
    }
    fs::write(&path, "some\ntext\n").unwrap();
    let forced = run(args!["trace", "read", &path, "--format", "strace"]).ended(2);
    assert!(forced.said().contains("unreadable, skipped: line 1"), "{}", forced.said());
    assert!(run(args!["trace", "read", sandbox.path().join("none")]).ended(2).said().contains("No such file"));
    assert!(run(args!["trace", "read", &path, "--format", "x"]).ended(2).said().contains("strace"));
    // An unreadable trace leaves no output behind.
    let out = sandbox.path().join("out.gtrace");
    run(args!["trace", "read", &path, "--format", "strace", "-o", &out]).ended(2);
    assert_eq!(fs::read_dir(sandbox.path()).unwrap().count(), 1);
}

#[test]
fn only_what_is_below_a_path_counts() {
    let sandbox = sandbox();
    let trace = strace_of_a_copy(&sandbox, 10);
    let json = run(args!["trace", "read", &trace, "--below", "/w/b", "--json"]).ended(0).json();
    assert_eq!((&json["reads"]["whole"]["count"], &json["writes"]["whole"]["count"]), (&0.into(), &1.into()));
    assert!(run(args!["trace", "read", &trace, "--below", "/x"]).ended(2).said().contains("no file operations"));
}

#[test]
fn a_plan_takes_any_trace() {
    let sandbox = sandbox();
    let trace = strace_of_a_copy(&sandbox, 10);
    let own = sandbox.path().join("copy.gtrace");
    run(args!["trace", "read", &trace, "-o", &own]).ended(0);
    for path in [&trace, &own] {
        let plan = run(args!["plan", "vu-2005", "--model", "ext4", "--trace", path, "--json"]).ended(0).json();
        let served = plan["operations"]["served"].as_array().unwrap();
        let at = |block: u64| served.iter().find(|row| row["block_bytes"] == block).unwrap();
        assert_eq!((&at(32_768)["reads_fraction"], &at(65_536)["reads_fraction"]), (&0.0.into(), &1.0.into()));
    }
    fs::write(&trace, "1 open(\"/a\", O_RDONLY) = 3\n1 read(3, \"\"..., 5) = 5\n").unwrap();
    let ran = run(args!["plan", "vu-2005", "--model", "ext4", "--trace", &trace, "--json"]).ended(0);
    assert!(ran.said().contains("no writes"), "{}", ran.said());
    fs::write(&trace, "decile_pct,read_bytes,write_bytes\n100,5,5\n").unwrap();
    run(args!["plan", "vu-2005", "--model", "ext4", "--trace", &trace, "--json"]).ended(0);
}

/// Records a command; returns the summary of files below the sandbox.
fn record(sandbox: &TempDir, command: &[&str]) -> Value {
    let own = sandbox.path().join("t.gtrace");
    let ran =
        finish(granulo().current_dir(sandbox.path()).args(["trace", "record", "-o"]).arg(&own).arg("--").args(command));
    let ran = ran.ended(0);
    assert!(ran.said().contains("wrote "), "{}", ran.said());
    run(args!["trace", "read", &own, "--below", sandbox.path(), "--json"]).ended(0).json()
}

#[test]
fn a_real_copy_is_recorded() {
    if !can_trace() {
        return;
    }
    let sandbox = sandbox();
    write_file(sandbox.path().join("a"), 3_000_000);
    // Neither clones files in the kernel; one copies by small pieces.
    let script = "dd if=a of=b bs=100000 status=none && cat < b > c && cat b c > d && mv d e && rm b";
    let json = record(&sandbox, &["sh", "-c", script]);
    let total = |side: &str| json[side]["whole"]["total"].as_u64().unwrap();
    assert_eq!((total("reads"), total("writes")), (12_000_000, 12_000_000));
    assert_eq!((&json["reads"]["whole"]["count"], &json["writes"]["whole"]["count"]), (&4.into(), &3.into()));
    assert_eq!(json["reads"]["file_size"]["deciles"], Value::from(vec![3_000_000; 10]));
    assert_eq!(json["writes"]["file_size"]["max"], 6_000_000);
    assert_eq!(
        (&json["files"]["read"], &json["files"]["both"], &json["files"]["temporary"]),
        (&3.into(), &2.into(), &1.into())
    );
    assert_eq!((&kind(&json, "rename")["count"], &kind(&json, "unlink")["count"]), (&1.into(), &1.into()));
    assert_eq!(json["problems"], Value::Array(Vec::new()), "{}", json["problems"]);
    for side in ["reads", "writes"] {
        let patterns = json[side]["patterns"].as_array().unwrap();
        let of = |name: &str| patterns.iter().find(|row| row["pattern"] == name).unwrap()["count"].as_u64().unwrap();
        assert!(of("sequential") >= 29 && of("random") + of("strided") + of("unknown") == 0, "{side}: {patterns:?}");
    }
}

#[test]
fn a_real_compile_is_recorded() {
    if !can_trace() {
        return;
    }
    if !has_program("cc") {
        return skip("there is no cc");
    }
    let sandbox = sandbox();
    let source = "#include <stdio.h>\n#include \"own.h\"\nint main(void) { printf(\"%d\\n\", OWN); return 0; }\n";
    fs::write(sandbox.path().join("own.h"), "#define OWN 5\n").unwrap();
    for name in ["one.c", "two.c"] {
        fs::write(sandbox.path().join(name), source).unwrap();
    }
    // The compiler's passes are in a temporary directory that is visible too.
    let json = record(
        &sandbox,
        &["sh", "-c", "TMPDIR=. cc -c one.c && TMPDIR=. cc -c two.c && TMPDIR=. cc -o two two.o && ./two"],
    );
    assert_eq!(json["problems"], Value::Array(Vec::new()), "{}", json["problems"]);
    // Each source once, the header by both, each object and the program written, the assembler's input removed again.
    let files = &json["files"];
    let read = files["read"].as_u64().unwrap();
    assert!(read >= 5, "{files}");
    assert!(files["temporary"].as_u64().unwrap() >= 2, "{files}");
    assert!(files["written"].as_u64().unwrap() >= 5, "{files}");
    let size = |name: &str| fs::metadata(sandbox.path().join(name)).unwrap().len();
    let written = json["writes"]["whole"]["total"].as_u64().unwrap();
    // The linker leaves holes.
    assert!(written >= size("one.o"), "{written}");
    // The written file has its actual size.
    assert!(json["writes"]["file_size"]["max"].as_u64().unwrap() >= size("two"), "{json}");
    assert!(json["processes"].as_u64().unwrap() >= 5);
}

#[test]
fn a_recorded_command_keeps_its_status_and_its_output() {
    if !can_trace() {
        return;
    }
    let sandbox = sandbox();
    write_file(sandbox.path().join("a"), 10);
    let kept = sandbox.path().join("kept");
    let ran = finish(
        granulo().current_dir(sandbox.path()).args(["trace", "record", "--json", "--keep-strace"]).arg(&kept).args([
            "--",
            "sh",
            "-c",
            "cat a >&2; exit 7",
        ]),
    );
    let ran = ran.ended(7);
    assert!(ran.said().contains("xxxxxxxxxx"), "{}", ran.said());
    let own = run(args!["trace", "read", &kept, "--json"]).ended(0).json();
    assert_eq!(own["kinds"], ran.json()["kinds"]);
    assert_eq!(ran.json()["command"], "sh -c cat a >&2; exit 7");
    let killed = finish(granulo().args(["trace", "record", "--json", "--", "sh", "-c", "kill -TERM $$"]));
    killed.ended(128 + 15);
    let missing = finish(granulo().args(["trace", "record", "--", "granulo-no-such-command"])).ended(2);
    assert!(missing.said().contains("granulo-no-such-command"), "{}", missing.said());
    let without = finish(granulo().env("PATH", "/nowhere").args(["trace", "record", "--", "true"])).ended(2);
    assert!(without.said().contains("install the package strace"), "{}", without.said());
}

#[test]
fn a_command_of_which_no_file_counts_keeps_its_status() {
    if !can_trace() {
        return;
    }
    let sandbox = sandbox();
    let own = sandbox.path().join("t.gtrace");
    let ran = run(args!["trace", "record", "--below", "/nowhere", "-o", &own, "--", "sh", "-c", "exit 3"]).ended(3);
    assert!(ran.said().contains("wrote ") && own.exists(), "{}", ran.said());
    let ran = run(args!["trace", "record", "--below", "/nowhere", "--json", "--", "sh", "-c", "exit 3"]).ended(3);
    assert_eq!(ran.json()["operations"], 0);
}

#[test]
fn a_result_that_cannot_be_written_is_known_before_the_command_runs() {
    let sandbox = sandbox();
    let [made, kept] = ["made", "kept"].map(|name| sandbox.path().join(name));
    for option in ["-o", "--report", "--keep-strace"] {
        let ran = run(args!["trace", "record", option, "/none/x", "--", "touch", &made]).ended(2);
        assert!(ran.said().contains("/none/x"), "{option}: {}", ran.said());
        assert!(!made.exists(), "{option}");
    }
    // Nothing is left of what could be.
    run(args!["trace", "record", "-o", &kept, "--report", "/none/x", "--", "touch", &made]).ended(2);
    assert_eq!(fs::read_dir(sandbox.path()).unwrap().count(), 0);
}

#[test]
fn the_json_of_a_recording_is_all_of_standard_output() {
    if !can_trace() {
        return;
    }
    let sandbox = sandbox();
    write_file(sandbox.path().join("a"), 10);
    let own = sandbox.path().join("t.gtrace");
    let ran = finish(
        granulo()
            .current_dir(sandbox.path())
            .args(["trace", "record", "--json", "-o"])
            .arg(&own)
            .args(["--", "cat", "a"]),
    );
    let ran = ran.ended(0);
    // What the command prints is not lost.
    assert!(ran.said().contains("xxxxxxxxxx") && ran.said().contains("wrote "), "{}", ran.said());
    let json = ran.json();
    assert_eq!((&json["schema"], &json["name"]), (&"granulo/trace/1".into(), &"cat a".into()));
    assert_eq!(json["kinds"], run(args!["trace", "read", &own, "--json"]).ended(0).json()["kinds"]);
}

#[test]
fn the_published_operations_are_read_like_a_trace() {
    let json = run(["trace", "read", "vu-2005", "--json"]).ended(0).json();
    assert_eq!((&json["recorder"], &json["operations"]), (&"published".into(), &4_280_000.into()));
    assert_eq!(json["reads"]["whole"]["deciles"].as_array().unwrap()[..3], [889, 1965, 3055]);
    // A plan counts the same operations.
    let plan = run(["plan", "vu-2005", "--trace", "vu-2005", "--json"]).ended(0).json();
    for row in plan["operations"]["served"].as_array().unwrap() {
        for side in ["reads", "writes"] {
            let same = json[side]["one_block"].as_array().unwrap();
            let same = same.iter().find(|other| other["block_bytes"] == row["block_bytes"]).unwrap();
            let share = row[format!("{side}_fraction")].as_f64().unwrap();
            assert!((share - same["whole_fraction"].as_f64().unwrap()).abs() < 1e-3, "{side}: {row} {same}");
        }
    }
    let text = run(["trace", "read", "vu-2005"]).ended(0).text();
    assert!(text.contains("published deciles, not a recording"), "{text}");
    assert!(text.contains("4,280,000 operations.") && text.contains("were read, in 3,200,000 whole-file"), "{text}");
}

#[test]
fn a_signal_reaches_the_recorded_command() {
    if !can_trace() {
        return;
    }
    let sandbox = sandbox();
    let script = "trap 'echo ended > done; exit 3' TERM; echo up > up; while :; do sleep 0.05; done";
    let mut child = granulo()
        .current_dir(sandbox.path())
        .args(["trace", "record", "-o", "t.gtrace", "--", "sh", "-c", script])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for(&sandbox.path().join("up"));
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(3));
    assert_eq!(fs::read_to_string(sandbox.path().join("done")).unwrap(), "ended\n");
    let json = run(args!["trace", "read", sandbox.path().join("t.gtrace"), "--json"]).ended(0).json();
    assert!(json["operations"].as_u64().unwrap() > 0);
}

fn wait_for(path: &Path) {
    for _ in 0..600 {
        if path.exists() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    panic!("{} did not appear", path.display());
}
