//! Malicious archives: their cost is in proportion to their bytes, in work, memory and store space, and their import
//! ends on request.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::io::ioctl_fionread;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::args;
use crate::harness::{Ran, binary, files_below, finish, granulo, has_program, run, sandbox, skip, without_wishes};

const BLOCK_BYTES: usize = 512;
/// Largest memory that any command may need.
const MOST_MEMORY_BYTES: u64 = 64 << 20;
/// How long a command may take to end on request on a busy machine before it counts as hanging.
const PATIENCE: Duration = Duration::from_secs(60);

fn member(kind: u8, name: &str, data: &[u8]) -> Vec<u8> {
    let mut block = tar::Header::new_ustar();
    block.set_entry_type(tar::EntryType::new(kind));
    block.set_path(name).unwrap();
    block.set_size(data.len() as u64);
    block.set_mode(0o644);
    block.set_mtime(1_000_000_000);
    block.set_cksum();
    let mut bytes = block.as_bytes().to_vec();
    bytes.extend_from_slice(data);
    bytes.resize(bytes.len().next_multiple_of(BLOCK_BYTES), 0);
    bytes
}

/// An extended header of records: `x` or `g`.
fn extended(kind: u8, records: impl IntoIterator<Item = (String, Vec<u8>)>) -> Vec<u8> {
    let mut data = Vec::new();
    for (keyword, value) in records {
        let rest = keyword.len() + value.len() + 3;
        let mut length = rest + 1;
        while rest + length.to_string().len() != length {
            length = rest + length.to_string().len();
        }
        data.extend_from_slice(format!("{length} {keyword}=").as_bytes());
        data.extend_from_slice(&value);
        data.push(b'\n');
    }
    member(kind, "PaxHeaders/x", &data)
}

fn long_name(name: &[u8]) -> Vec<u8> {
    member(b'L', "././@LongLink", &[name, b"\0"].concat())
}

fn ended(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.resize(bytes.len() + 2 * BLOCK_BYTES, 0);
    bytes
}

struct Place {
    sandbox: TempDir,
    store: PathBuf,
}

impl Place {
    fn new() -> Place {
        let sandbox = sandbox();
        let store = sandbox.path().join("store");
        run(args!["store", "init", &store]).ended(0);
        Place { sandbox, store }
    }

    /// Imports an archive; returns how it ended, and its peak memory, if that can be measured here.
    fn import(&self, archive: &[u8]) -> (Ran, Option<u64>) {
        let path = self.sandbox.path().join("archive.tar");
        fs::write(&path, archive).unwrap();
        if !has_program("python3") {
            skip("peak memory is measured by python3");
            return (run(args!["store", "import", &self.store, &path]), None);
        }
        let measure = "import resource, subprocess, sys\n\
            code = subprocess.call(sys.argv[2:])\n\
            open(sys.argv[1], 'w').write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024))\n\
            sys.exit(code)";
        let peak = self.sandbox.path().join("peak");
        let mut command = without_wishes(Command::new("python3"));
        command.args(["-c", measure]).arg(&peak).arg(binary()).args(["store", "import"]);
        let ran = finish(command.arg(&self.store).arg(&path));
        assert!(!ran.said().contains("panicked at"), "{}", ran.said());
        (ran, Some(fs::read_to_string(peak).unwrap().parse().unwrap()))
    }

    fn stored_bytes(&self) -> u64 {
        bytes_below(&self.store.join("segments")) + bytes_below(&self.store.join("extents"))
    }
}

fn bytes_below(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten();
    entries.map(|entry| std::os::unix::fs::MetadataExt::blocks(&entry.unwrap().metadata().unwrap()) * 512).sum()
}

#[track_caller]
fn is_bounded(memory: Option<u64>) {
    if let Some(memory) = memory {
        assert!(memory <= MOST_MEMORY_BYTES, "{} KiB of memory", memory >> 10);
    }
}

#[test]
fn many_global_keywords_cost_no_more_than_their_bytes() {
    let keywords = |first: char| (0..20_000).map(move |number| (format!("{first}{number}"), Vec::new()));
    let mut archive = [extended(b'g', keywords('k')), extended(b'g', keywords('l'))].concat();
    for number in 0..500 {
        archive.extend_from_slice(&member(b'0', &format!("m{number}"), b"x"));
    }
    let place = Place::new();
    let (ran, memory) = place.import(&ended(archive));
    ran.ended(0);
    is_bounded(memory);
    assert_eq!(run(args!["store", "get", &place.store, "m499"]).ended(0).text(), "x");
}

#[test]
fn names_that_are_too_deep_are_refused_and_deep_ones_are_kept() {
    let too_deep = [&b"a/".repeat(21_000)[..], b"f"].concat();
    let mut archive = [long_name(&too_deep), member(b'0', "x", b"not kept")].concat();
    // As deep as Linux allows.
    let deep = [&b"a/".repeat(2047)[..], b"f"].concat();
    archive.extend_from_slice(&[long_name(&deep), member(b'0', "x", b"kept")].concat());
    let place = Place::new();
    let (ran, memory) = place.import(&ended(archive));
    let said = ran.said();
    ran.ended(1);
    assert!(said.contains("too deep") && said.contains("at byte "), "{}", &said[said.len().saturating_sub(500)..]);
    is_bounded(memory);
    let key = String::from_utf8(deep).unwrap();
    assert_eq!(run(args!["store", "get", &place.store, key]).ended(0).text(), "kept");
}

#[test]
fn attributes_of_a_global_header_are_not_repeated_for_each_member() {
    let mut archive = extended(b'g', [("SCHILY.xattr.user.a".to_owned(), vec![b'v'; 3_600_000])]);
    for number in 0..190 {
        archive.extend_from_slice(&member(b'0', &format!("m{number}"), b""));
    }
    let archive = ended(archive);
    let place = Place::new();
    let (ran, memory) = place.import(&archive);
    // The output reports that they are skipped.
    assert!(ran.said().contains("left out 1 extended attribute, in a form that is unknown"), "{}", ran.said());
    assert!(!ran.said().contains("by this user"), "{}", ran.said());
    ran.ended(0);
    is_bounded(memory);
    assert!(place.stored_bytes() <= 2 * archive.len() as u64, "{} bytes", place.stored_bytes());
}

#[test]
fn attributes_of_members_are_kept_and_cost_no_more_than_their_bytes() {
    let mut archive = Vec::new();
    for number in 0..60 {
        let values = (0..16).map(|at| (format!("SCHILY.xattr.user.{at:02}"), vec![b'v'; 60_000]));
        archive.extend_from_slice(&extended(b'x', values));
        archive.extend_from_slice(&member(b'0', &format!("m{number}"), b"x"));
    }
    // As many records as an extended header may have.
    archive.extend_from_slice(&extended(b'x', (0..800_000).map(|_| ("a".to_owned(), Vec::new()))));
    archive.extend_from_slice(&member(b'0', "last", b"x"));
    let archive = ended(archive);
    let place = Place::new();
    let (ran, memory) = place.import(&archive);
    ran.ended(0);
    is_bounded(memory);
    assert!(place.stored_bytes() <= 2 * archive.len() as u64, "{} bytes", place.stored_bytes());
    assert!(run(args!["store", "stat", &place.store, "m59"]).ended(0).text().contains("user.15"));
}

/// A hard link to another member.
fn link(name: &str, target: &str) -> Vec<u8> {
    let mut bytes = member(b'1', name, b"");
    bytes[157..157 + target.len()].copy_from_slice(target.as_bytes());
    let mut block = tar::Header::new_ustar();
    block.as_mut_bytes().copy_from_slice(&bytes);
    block.set_cksum();
    block.as_bytes().to_vec()
}

/// What is refused leaves no trace: neither do members before it go with it, nor is a later one judged by it.
#[test]
fn a_refused_member_takes_no_other_with_it() {
    let file = |name: &str| member(b'0', name, b"x");
    let names = |members: &[&str]| members.iter().map(|name| file(name)).collect::<Vec<_>>().concat();
    // Archive, members that are refused, and those that the store has then, sorted.
    let below_a_file = names(&["g0", "f", "g1", "f/x/y", "f/x/z", "f/x/w", "h0"]);
    let to_itself = [link("a/l", "a/l"), file("a"), file("ok")].concat();
    let below_a_link = [file("t"), link("a/l", "t"), file("a"), file("ok")].concat();
    let to_nothing = [link("a/l", "missing"), file("a/c"), file("a"), file("ok")].concat();
    for (archive, refused, kept) in [
        (below_a_file, 3, &["f", "g0", "g1", "h0"][..]),
        (to_itself, 1, &["a", "ok"]),
        (below_a_link, 1, &["a", "a/l", "ok", "t"]),
        (to_nothing, 2, &["a", "a/c", "ok"]),
    ] {
        let place = Place::new();
        let path = place.sandbox.path().join("archive.tar");
        fs::write(&path, ended(archive)).unwrap();
        let document = run(args!["store", "import", "-q", "--json", &place.store, &path]).ended(1).json();
        assert_eq!(document["refused"], refused, "{document}");
        let listed = run(args!["store", "ls", "-R", &place.store]).ended(0).text();
        assert_eq!(listed.lines().collect::<Vec<_>>(), kept);
        run(args!["store", "check", "--deep", &place.store]).ended(0);
    }
    // What the store has already is no other case.
    let place = Place::new();
    run(args!["store", "put", &place.store, "f", "Cargo.toml"]).ended(0);
    let (ran, _) = place.import(&ended(names(&["g0", "f/x/y", "f/x/z", "h0"])));
    assert!(ran.ended(1).text().starts_with("Imported 2 files"));
}

/// For a directory, a size is a limit of its size, and for what has no content it says nothing.
#[test]
fn only_files_have_data_behind_their_headers() {
    let with_size = |kind: u8, name: &str| {
        let mut block = tar::Header::new_ustar();
        block.as_mut_bytes().copy_from_slice(&member(kind, name, b""));
        block.set_size(2 * BLOCK_BYTES as u64);
        if kind == b'2' {
            block.set_link_name("target").unwrap();
        }
        block.set_cksum();
        block.as_bytes().to_vec()
    };
    let place = Place::new();
    let members = [with_size(b'5', "d/"), member(b'0', "a", b"1"), with_size(b'2', "l"), with_size(b'6', "p")].concat();
    let (ran, _) = place.import(&ended([members, member(b'0', "b", b"2")].concat()));
    ran.ended(0);
    let listed = run(args!["store", "ls", &place.store]).ended(0).text();
    assert_eq!(listed.lines().collect::<Vec<_>>(), ["a", "b", "d", "l", "p"]);
}

/// Nor does it remove what it was to replace.
#[test]
fn a_refused_directory_replaces_nothing() {
    let place = Place::new();
    let (ran, _) = place.import(&ended(member(b'0', "x", b"content")));
    ran.ended(0);
    let far = extended(b'x', [("mtime".to_owned(), b"1000000000000".to_vec())]);
    let (ran, _) = place.import(&ended([far, member(b'5', "x/", b"")].concat()));
    ran.ended(1);
    assert_eq!(run(args!["store", "get", &place.store, "x"]).ended(0).text(), "content");
}

#[test]
fn an_archive_that_breaks_off_does_not_hide_what_was_imported_and_refused() {
    let outside = [long_name(b"../b"), member(b'0', "x", b"x")].concat();
    let whole = [member(b'0', "a", b"x"), outside, member(b'0', "c", &[b'x'; 5000])].concat();
    let broken = &whole[..whole.len() - 2000];
    let place = Place::new();
    let (ran, _) = place.import(broken);
    let ran = ran.ended(1);
    for part in ["its name contains ..", "it is truncated at byte"] {
        assert!(ran.said().contains(part), "{}", ran.said());
    }
    assert!(ran.text().starts_with("Imported 1 file, 1 B."), "{}", ran.text());
    let path = place.sandbox.path().join("archive.tar");
    let ran = run(args!["store", "import", "-q", "--json", "--prefix", "p", &place.store, &path]).ended(1);
    let document = ran.json();
    assert_eq!((&document["files"], &document["refused"], &document["errors"]), (&1.into(), &1.into(), &1.into()));
    assert_eq!(document["complete"], false);
}

/// Interrupts a command, and waits for its end.
#[track_caller]
fn interrupt(mut child: std::process::Child) -> Ran {
    let pid = Pid::from_raw(child.id() as i32).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    let asked = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if asked.elapsed() > PATIENCE {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("it does not end when it is asked to");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap().into()
}

#[test]
fn an_import_ends_when_it_is_asked_to_while_it_waits_and_while_headers_come_without_end() {
    for endless in [false, true] {
        let place = Place::new();
        let mut command = granulo();
        command.args(["store", "import", "-q"]).arg(&place.store).arg("-");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut pipe = child.stdin.take().unwrap();
        // More than the pipe and the buffer hold, so that the import has begun once this is written.
        let first = member(b'0', "first", &vec![b'x'; 2 << 20]);
        pipe.write_all(&first).unwrap();
        let written = Instant::now();
        while !endless && ioctl_fionread(&pipe).unwrap() > 0 {
            assert!(written.elapsed() < PATIENCE, "it does not read");
            std::thread::sleep(Duration::from_millis(5));
        }
        let feeding = std::thread::spawn(move || {
            let header = extended(b'g', (0..100).map(|number| (format!("k{number}"), Vec::new())));
            while endless && pipe.write_all(&header).is_ok() {}
            // Kept open: more data may follow.
            pipe
        });
        let ran = interrupt(child).ended(1);
        assert!(ran.said().contains("interrupted"), "{}", ran.said());
        drop(feeding.join().unwrap());
        run(args!["store", "check", "--deep", &place.store]).ended(0);
        assert!(files_below(&place.store, "tmp").is_empty());
    }
}
