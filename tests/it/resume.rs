//! Interrupting a survey and resuming it; damaged checkpoints.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use granulo::survey::Checkpoint;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::RowAccessor;
use tempfile::TempDir;
use twox_hash::XxHash3_64;

use crate::args;
use crate::harness::{
    Ran, assert_same, binary, finish, granulo, run, sandbox, sandbox_for_many, survey, wide_tree, without_wishes,
    write_file,
};
use crate::model::AS_OF;
use crate::store_place::can_trace;

/// Bytes before the body of a checkpoint: a name, a length, a checksum.
const HEADER: usize = 24 + 8 + 8;

/// The rows of a table of files: path and size. Every row is a different file.
pub fn rows(table: &Path) -> BTreeSet<(String, u64)> {
    let reader = SerializedFileReader::new(File::open(table).unwrap()).unwrap();
    let mut rows = BTreeSet::new();
    for row in reader.get_row_iter(None).unwrap() {
        let row = row.unwrap();
        let row = (row.get_string(0).unwrap().clone(), row.get_ulong(2).unwrap());
        assert!(!rows.contains(&row), "{row:?} is in the table twice");
        rows.insert(row);
    }
    rows
}

/// A survey of a tree that is large enough to be interrupted.
struct Long {
    sandbox: TempDir,
    files: usize,
}

impl Long {
    fn new(directories: usize, files: usize) -> Long {
        let long = Long { sandbox: sandbox_for_many(), files: directories * (files + 1) };
        wide_tree(&long.path("t"), directories, files);
        // Different sizes, a file with another name far away, something below.
        for directory in 0..directories {
            write_file(long.path("t").join(format!("d{directory}/sub/big")), 100 * directory);
            let original = long.path("t").join(format!("d{directory}/f0"));
            let elsewhere = (directory + directories / 2) % directories;
            fs::hard_link(original, long.path("t").join(format!("d{elsewhere}/again"))).unwrap();
        }
        long
    }

    fn path(&self, name: &str) -> PathBuf {
        self.sandbox.path().join(name)
    }

    fn beginning(&self) -> Vec<OsString> {
        args![self.path("t"), "--as-of", AS_OF]
    }

    fn checkpoint(&self) -> PathBuf {
        self.path("s.json.checkpoint")
    }

    /// Runs `granulo survey --json --threads 1 ARGUMENTS`, and interrupts it when it has listed `after` directories.
    /// `None`, with the reason reported, where that is not possible.
    fn interrupt(&self, after: usize, arguments: &[OsString]) -> Option<Ran> {
        self.interrupt_with(after, &[], arguments)
    }

    /// The same, with more options of strace.
    fn interrupt_with(&self, after: usize, more: &[&str], arguments: &[OsString]) -> Option<Ran> {
        if !can_trace() {
            return None;
        }
        let mut command = without_wishes(Command::new("strace"));
        // Each directory takes two calls: the second finds no more entries.
        let signal = format!("inject=getdents64:signal=INT:when={}", 2 * after);
        command.args(["-f", "-qqq", "-e", "trace=getdents64", "-e", &signal, "-o", "/dev/null"]).args(more);
        command.arg(binary()).args(["survey", "--json", "--threads", "1"]).args(arguments);
        let ran = finish(&mut command).ended(1);
        let counted = ran.json()["counts"]["files"].as_u64().unwrap() as usize;
        assert!(0 < counted && counted < self.files, "{counted} of {} files", self.files);
        Some(ran)
    }

    /// The same, writing to `s.json`.
    fn interrupt_result(&self, after: usize, arguments: &[OsString]) -> Option<Ran> {
        self.interrupt(after, &[args!["-o", self.path("s.json")], arguments.to_vec()].concat())
    }
}

#[test]
fn a_survey_that_was_interrupted_twice_ends_like_one_that_was_not() {
    let long = Long::new(150, 100);
    let whole = survey(long.beginning());

    let Some(ran) = long.interrupt_result(100, &long.beginning()) else { return };
    assert!(!long.path("s.json").exists(), "there is no result of half a survey");
    assert!(long.checkpoint().exists());
    let said = ran.said();
    let again = format!("granulo survey --resume {}", long.checkpoint().display());
    assert!(said.contains("interrupted") && said.contains(&again), "{said}");
    let part = ran.json();
    assert_eq!(part["complete"], false);
    let first = part["counts"]["files"].as_u64().unwrap();

    let ran = long.interrupt_result(70, &args!["--resume", long.checkpoint()]).unwrap();
    let second = ran.json()["counts"]["files"].as_u64().unwrap();
    assert!(second > first, "it goes on where it was: {second} files after {first}");
    assert!(long.checkpoint().exists() && !long.path("s.json").exists());

    let resumed = survey(args!["--resume", long.checkpoint(), "-o", long.path("s.json")]);
    assert_same(&whole, &resumed, &[]);
    assert!(!long.checkpoint().exists(), "nothing is left to continue with");
    let written = serde_json::from_slice(&fs::read(long.path("s.json")).unwrap()).unwrap();
    assert_same(&whole, &written, &[]);
}

#[test]
fn a_table_of_files_is_the_same_after_an_interruption() {
    let long = Long::new(150, 100);
    let table = long.path("files.parquet");
    let whole = survey([long.beginning(), args!["--files", &table]].concat());
    let expected = rows(&table);
    assert_eq!(expected.len() as u64, whole["counts"]["files"].as_u64().unwrap());
    fs::remove_file(&table).unwrap();

    if long.interrupt_result(100, &[long.beginning(), args!["--files", &table]].concat()).is_none() {
        return;
    }
    assert!(!table.exists(), "the table appears when it is whole");
    long.interrupt_result(70, &args!["--resume", long.checkpoint()]).unwrap();
    let resumed = survey(args!["--resume", long.checkpoint(), "-o", long.path("s.json")]);
    assert_same(&whole, &resumed, &[]);
    assert!(rows(&table) == expected, "the resumed table has other rows");
    let mut left: Vec<_> = fs::read_dir(long.sandbox.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["files.parquet", "s.json", "t"]);
}

/// A survey with a table of files that was interrupted, and the rows that it will have; `None` where it cannot be.
fn interrupted_with_table() -> Option<(Long, BTreeSet<(String, u64)>)> {
    let long = Long::new(150, 100);
    survey([long.beginning(), args!["--files", long.path("whole.parquet")]].concat());
    long.interrupt_result(100, &[long.beginning(), args!["--files", long.path("files.parquet")]].concat())?;
    let expected = rows(&long.path("whole.parquet"));
    Some((long, expected))
}

impl Long {
    /// Resumes the survey, which ends with a whole table, and leaves nothing else behind.
    #[track_caller]
    fn resumes_with(&self, expected: &BTreeSet<(String, u64)>) {
        survey(args!["--resume", self.checkpoint(), "-o", self.path("s.json")]);
        assert!(rows(&self.path("files.parquet")) == *expected, "the resumed table has other rows");
        assert_eq!(self.left(), ["files.parquet", "s.json", "t", "whole.parquet"]);
    }

    fn left(&self) -> Vec<String> {
        let entries = fs::read_dir(self.sandbox.path()).unwrap();
        let mut left: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        left.sort();
        left
    }
}

#[test]
fn a_checkpoint_that_cannot_be_written_leaves_the_earlier_one_with_its_table() {
    let Some((long, expected)) = interrupted_with_table() else { return };
    let good = fs::read(long.checkpoint()).unwrap();
    // Only a checkpoint that becomes the one at its path is renamed.
    let calls = "?rename,?renameat,?renameat2";
    let (trace, failing) = (format!("trace=getdents64,{calls}"), format!("inject={calls}:error=ENOSPC"));
    let more = ["-e", &trace, "-e", &failing];
    let ran = long.interrupt_with(40, &more, &args!["--resume", long.checkpoint()]).unwrap();
    assert!(ran.said().contains("s.json.checkpoint"), "{}", ran.said());
    assert_eq!(fs::read(long.checkpoint()).unwrap(), good);
    long.resumes_with(&expected);
}

#[test]
fn a_checkpoint_that_is_kept_keeps_its_table() {
    // The table is complete, but no survey was written.
    let Some((long, expected)) = interrupted_with_table() else { return };
    let ran = run(args!["survey", "--json", "--resume", long.checkpoint()]).ended(0);
    assert!(ran.said().contains("the checkpoint is kept"), "{}", ran.said());
    assert!(rows(&long.path("files.parquet")) == expected);
    fs::remove_file(long.path("files.parquet")).unwrap();
    // The table cannot be written.
    fs::create_dir(long.path("files.parquet")).unwrap();
    let ran = run(args!["survey", "--json", "--resume", long.checkpoint(), "-o", long.path("s.json")]).ended(1);
    assert!(ran.said().contains("files.parquet") && ran.said().contains("the checkpoint is kept"), "{}", ran.said());
    fs::remove_dir(long.path("files.parquet")).unwrap();
    long.resumes_with(&expected);
}

#[test]
fn a_survey_that_is_resumed_with_another_checkpoint_leaves_neither() {
    let Some((long, expected)) = interrupted_with_table() else { return };
    let other = args!["--resume", long.checkpoint(), "--checkpoint", long.path("other")];
    long.interrupt_result(40, &other).unwrap();
    survey(args!["--resume", long.path("other"), "--checkpoint", long.checkpoint(), "-o", long.path("s.json")]);
    assert!(rows(&long.path("files.parquet")) == expected);
    assert_eq!(long.left(), ["files.parquet", "s.json", "t", "whole.parquet"]);
}

#[test]
fn a_survey_is_not_resumed_with_the_table_of_another() {
    let Some((long, _)) = interrupted_with_table() else { return };
    let good = fs::read(long.checkpoint()).unwrap();
    // Another survey writes there, and is interrupted too.
    let another = args![long.path("t/d0"), long.path("t"), "--files", long.path("files.parquet")];
    long.interrupt(70, &[another, args!["--checkpoint", long.path("other")]].concat()).unwrap();
    let ran = run(args!["survey", "--json", "--resume", long.checkpoint(), "-o", long.path("s.json")]).ended(2);
    assert!(ran.said().contains("files.parquet"), "{}", ran.said());
    assert_eq!(fs::read(long.checkpoint()).unwrap(), good);
}

#[test]
fn checkpoints_on_the_way_change_nothing_and_are_gone_at_the_end() {
    let long = Long::new(60, 60);
    let plain = survey([long.beginning(), args!["--files", long.path("plain.parquet")]].concat());
    // As often as interruptions are checked.
    let often = args!["--checkpoint-every", "0.00001", "--checkpoint", long.path("c"), "--threads", "1"];
    let document = survey([long.beginning(), often, args!["--files", long.path("f.parquet")]].concat());
    assert_same(&plain, &document, &[]);
    assert!(rows(&long.path("plain.parquet")) == rows(&long.path("f.parquet")));
    let mut left: Vec<_> = fs::read_dir(long.sandbox.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["f.parquet", "plain.parquet", "t"]);
}

#[test]
fn without_a_place_for_a_checkpoint_an_interrupted_survey_says_so() {
    let long = Long::new(100, 100);
    let Some(ran) = long.interrupt(100, &args![long.path("t")]) else { return };
    assert!(ran.said().contains("the result is partial (with -o, a survey can be resumed)"), "{}", ran.said());
    assert_eq!(ran.json()["complete"], false);
}

/// A checkpoint of an unfinished small survey; `None`, with the reason reported, where none can be interrupted.
fn small_checkpoint() -> Option<(Long, Vec<u8>)> {
    let long = Long::new(80, 100);
    long.interrupt_result(60, &long.beginning())?;
    let bytes = fs::read(long.checkpoint()).unwrap();
    Some((long, bytes))
}

/// Asserts that `--resume` refuses these bytes: exit status 2 and a sentence about the file.
fn refused(bytes: &[u8]) -> String {
    let sandbox = sandbox();
    let path = sandbox.path().join("checkpoint");
    fs::write(&path, bytes).unwrap();
    let ran = finish(granulo().current_dir(sandbox.path()).args(["survey", "--resume", "checkpoint"])).ended(2);
    assert_eq!(ran.text(), "");
    let said = ran.said();
    assert!(said.starts_with("granulo: error: cannot read the checkpoint checkpoint: "), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    said
}

#[test]
fn a_damaged_checkpoint_is_refused_in_a_sentence() {
    let Some((_long, good)) = small_checkpoint() else { return };
    assert!(Checkpoint::parse(&good).is_ok());
    for length in (0..good.len()).step_by(97) {
        assert!(Checkpoint::parse(&good[..length]).is_err(), "cut to {length} bytes");
    }
    for at in (0..good.len()).step_by(97).chain(0..HEADER) {
        let mut flipped = good.clone();
        flipped[at] ^= 0x10;
        assert!(Checkpoint::parse(&flipped).is_err(), "byte {at} flipped");
    }
    for length in [0, 1, 23, 24, 39, 40, 41, good.len() / 2, good.len() - 1] {
        refused(&good[..length]);
    }
    assert!(refused(&good[..good.len() - 1]).contains("it is truncated"));
    let mut longer = good.clone();
    longer.push(0);
    refused(&longer);
    let mut flipped = good.clone();
    flipped[HEADER + 10] ^= 1;
    assert!(refused(&flipped).contains("checksum"));
    let mut newer = good.clone();
    newer[20..22].copy_from_slice(b"9 ");
    assert!(refused(&newer).contains("another version of granulo"));
    assert!(refused(b"{\"schema\":\"granulo/survey/1\"}").contains("not a granulo checkpoint"));
    assert!(refused(&[0; 5000]).contains("not a granulo checkpoint"));
}

#[test]
fn a_checkpoint_that_lies_with_a_right_checksum_does_no_harm() {
    let Some((_long, good)) = small_checkpoint() else { return };
    let place = sandbox();
    let step = (good.len() - HEADER) / 60;
    for (turn, at) in (HEADER..good.len()).step_by(step.max(1)).enumerate() {
        let mut lie = good.clone();
        lie[at] ^= 1 << (turn % 8);
        seal(&mut lie);
        let path = place.path().join("lie");
        fs::write(&path, &lie).unwrap();
        let mut command = granulo();
        let ran = finish(command.current_dir(place.path()).args(["survey", "--json", "--resume", "lie"]));
        assert!(!ran.said().contains("panicked"), "bit {} of byte {at}: {}", turn % 8, ran.said());
        assert!(matches!(ran.code, Some(0..=2)), "bit {} of byte {at}: {ran:?}", turn % 8);
    }
    // Truncated, with the length and the checksum of the rest.
    for length in (HEADER..good.len()).step_by((step * 3).max(1)) {
        let mut lie = good[..length].to_vec();
        seal(&mut lie);
        assert!(refused(&lie).contains("fields do not match its length"), "cut to {length} bytes");
    }
}

fn seal(checkpoint: &mut [u8]) {
    let (header, body) = checkpoint.split_at_mut(HEADER);
    header[24..32].copy_from_slice(&(body.len() as u64).to_le_bytes());
    header[32..40].copy_from_slice(&XxHash3_64::oneshot(body).to_le_bytes());
}

#[test]
fn a_survey_is_not_resumed_where_its_tree_is_not() {
    let Some((long, good)) = small_checkpoint() else { return };
    // As when a file system is not mounted yet: none of it has vanished, and the checkpoint is still needed.
    fs::rename(long.path("t"), long.path("moved")).unwrap();
    let ran = run(args!["survey", "--json", "--resume", long.checkpoint(), "-o", long.path("s.json")]).ended(2);
    assert!(ran.said().contains(long.path("t").to_str().unwrap()), "{}", ran.said());
    assert!(!long.path("s.json").exists(), "half a tree is no result");
    assert_eq!(fs::read(long.checkpoint()).unwrap(), good);
}

#[test]
fn options_that_a_checkpoint_decides_are_refused_beside_it() {
    for option in [&["--exclude", "x"][..], &["--anonymous"], &["--files", "f"], &["--as-of", "2020-01-01"], &["/tmp"]]
    {
        let mut arguments = vec!["survey", "--resume", "checkpoint"];
        arguments.extend(option);
        assert!(run(arguments).ended(2).said().contains("cannot be used with"));
    }
}
