//! The memory that a store command needs does not grow with the number of objects: with many small ones, each command
//! stays below 64 MiB.
//!
//! 200,000 objects are far more than any bounded structure holds (entries before they become a sorted table, the cache
//! of blocks, a window of `load`); `GRANULO_OBJECTS` sets another number.

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use granulo::store::{Key, Kind, Listed, Store};

use crate::args;
use crate::harness::{Ran, binary, has_program, run, sandbox_for_many, skip, without_wishes};

/// Largest memory that any command may need.
const MOST_MEMORY_BYTES: u64 = 64 << 20;
const CONTENT_BYTES: usize = 100;
/// Most lost objects that one `repair --drop-lost` drops.
const MOST_DROPPED: usize = 100_000;
const BLOCK_BYTES: usize = 512;

/// Writes the peak memory of its child, in bytes, to the file of its first argument: a peak of another parent may count
/// as the child's.
const MEASURE: &str = "import resource, subprocess, sys\n\
    code = subprocess.call(sys.argv[2:])\n\
    open(sys.argv[1], 'w').write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024))\n\
    sys.exit(code)";

/// Writes the input of a command.
type Input<'i> = &'i dyn Fn(&mut dyn Write);

/// Runs commands, and checks each against the limit.
struct Measured {
    place: PathBuf,
    peaks: Vec<(String, u64)>,
}

impl Measured {
    /// Runs `granulo store ARGUMENTS`, with what `input` writes on standard input; its output is discarded.
    fn ran(&mut self, name: &str, arguments: Vec<OsString>, input: Option<Input<'_>>) -> Ran {
        let peak = self.place.join("peak");
        let mut command = without_wishes(Command::new("python3"));
        command.args(["-c", MEASURE]).arg(&peak).arg(binary()).arg("store").args(arguments);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        if input.is_some() {
            command.stdin(Stdio::piped());
        }
        let mut child = command.spawn().unwrap();
        if let (Some(input), Some(mut stdin)) = (input, child.stdin.take()) {
            input(&mut stdin);
        }
        let ran = Ran::from(child.wait_with_output().unwrap());
        let peak: u64 = fs::read_to_string(peak).unwrap().parse().unwrap();
        self.peaks.push((name.to_owned(), peak));
        ran
    }

    #[track_caller]
    fn run_with(&mut self, name: &str, arguments: Vec<OsString>, input: Input<'_>) {
        self.ran(name, arguments, Some(input)).ended(0);
    }

    #[track_caller]
    fn run(&mut self, name: &str, arguments: Vec<OsString>) {
        self.ran(name, arguments, None).ended(0);
    }

    /// A command that finds damage, and leaves it.
    #[track_caller]
    fn run_amiss(&mut self, name: &str, arguments: Vec<OsString>) {
        self.ran(name, arguments, None).ended(1);
    }

    /// Fails with all commands that needed more, and their memory.
    fn are_bounded(self) {
        let kibibytes: Vec<_> = self.peaks.iter().map(|(name, bytes)| format!("{name}: {} KiB", bytes >> 10)).collect();
        let large: Vec<_> = self.peaks.iter().filter(|(_, bytes)| *bytes > MOST_MEMORY_BYTES).collect();
        assert!(large.is_empty(), "{large:?} of\n{}", kibibytes.join("\n"));
    }
}

/// An archive of files, a hundred per directory, a hundred directories per parent.
fn archive(objects: usize, out: &mut dyn Write) {
    let mut block = [0; 2 * BLOCK_BYTES];
    let mut header = tar::Header::new_ustar();
    header.set_size(CONTENT_BYTES as u64);
    header.set_mode(0o644);
    header.set_mtime(1_700_000_000);
    let mut piece = Vec::new();
    for number in 0..objects {
        header.set_path(format!("{:04}/{:02}/{:02}", number / 10_000, number / 100 % 100, number % 100)).unwrap();
        header.set_cksum();
        block[..BLOCK_BYTES].copy_from_slice(header.as_bytes());
        block[BLOCK_BYTES..BLOCK_BYTES + CONTENT_BYTES].fill(b'a' + (number % 26) as u8);
        piece.extend_from_slice(&block);
        if piece.len() > 1 << 20 {
            out.write_all(&piece).unwrap();
            piece.clear();
        }
    }
    piece.resize(piece.len() + 2 * BLOCK_BYTES, 0);
    out.write_all(&piece).unwrap();
}

fn objects() -> usize {
    std::env::var("GRANULO_OBJECTS").map_or(200_000, |objects| objects.parse().unwrap())
}

#[test]
fn no_command_needs_more_with_many_objects() {
    if !has_program("python3") {
        skip("peak memory is measured by python3");
        return;
    }
    let sandbox = sandbox_for_many();
    let path = |name: &str| sandbox.path().join(name);
    let (store, tree, one) = (path("store"), path("tree"), path("one"));
    let mut init = args!["store", "init", &store];
    for device in ["a", "b"] {
        init.extend(args!["--fast", path(device)]);
    }
    run(init).ended(0);
    let objects = objects();
    let mut measured = Measured { place: sandbox.path().to_owned(), peaks: Vec::new() };
    measured.run_with("import -", args!["import", "-q", &store, "-"], &|out| archive(objects, out));
    read(&mut measured, &store);
    measured.run("export", args!["export", "-q", &store, &tree, "--prefix", "0000"]);
    measured.run("import", args!["import", "-q", &store, &tree, "--prefix", "again"]);
    measured.run("import, nothing new", args!["import", "-q", &store, &tree, "--prefix", "again"]);
    fs::write(&one, [b'x'; CONTENT_BYTES]).unwrap();
    measured.run("put", args!["put", &store, "0001/00/00", &one]);
    measured.run("rm", args!["rm", &store, "0001/00/01"]);
    measured.run("mv", args!["mv", &store, "0001", "0001-moved"]);
    measured.run("mv --exchange", args!["mv", "--exchange", &store, "0001-moved", "0003"]);
    measured.run("mv back", args!["mv", &store, "0003", "0001"]);
    measured.run("ln", args!["ln", &store, "0001/00/03", "0001/00/linked"]);
    measured.run("log", args!["log", &store, "0001/00/linked"]);
    maintain(&mut measured, &store, &path("new"));
    repair_mirrors(&mut measured, &store, [&path("a"), &path("new")], &one);
    measured.run("rm -r", args!["rm", "-r", &store, "0002"]);
    measured.run("compact", args!["compact", &store, "--dead", "1%"]);
    measured.run("compact --all", args!["compact", "--all", &store]);
    measured.run("compact --align 512", args!["compact", "--align", "512", &store]);
    measured.run("rm -r /", args!["rm", "-r", &store, "/"]);
    measured.run("compact of what is gone", args!["compact", &store]);
    measured.are_bounded();
}

/// A store on one device, with as many objects as are measured.
fn on_one_device(sandbox: &tempfile::TempDir) -> (PathBuf, Measured) {
    let store = sandbox.path().join("store");
    run(args!["store", "init", &store]).ended(0);
    let mut measured = Measured { place: sandbox.path().to_owned(), peaks: Vec::new() };
    let objects = objects();
    measured.run_with("import -", args!["import", "-q", &store, "-"], &|out| archive(objects, out));
    (store, measured)
}

#[test]
fn no_command_needs_more_for_objects_that_a_snapshot_has() {
    if !has_program("python3") {
        skip("peak memory is measured by python3");
        return;
    }
    let sandbox = sandbox_for_many();
    let (store, mut measured) = on_one_device(&sandbox);
    let objects = objects();
    drop(Store::open(&store).unwrap().create_snapshot("before").unwrap());
    measured.run("rm -r / under a snapshot", args!["rm", "-r", &store, "/"]);
    measured.run("ls -R of nothing", args!["ls", &store, "-R"]);
    measured.run("check of a snapshot", args!["check", &store]);
    measured.run("compact --all of a snapshot", args!["compact", "--all", &store]);
    measured.run("check --rebuild-index with a snapshot", args!["check", &store, "--rebuild-index"]);
    let of_then = Store::open_read_only(&store).unwrap().snapshot_named("before").unwrap().unwrap();
    assert_eq!(of_then.walk(&Key::root(), &Key::root()).unwrap().map(Result::unwrap).filter(is_file).count(), objects);
    drop(of_then);
    // Versions that are lost, of as many objects as one run drops.
    wipe_third(&store);
    measured.run_amiss("check --deep of lost versions", args!["check", &store, "--deep"]);
    measured.run_amiss("repair of lost versions", args!["repair", &store]);
    let mut runs = 1;
    let mut drop_some = || measured.ran("repair --drop-lost of versions", args!["repair", &store, "--drop-lost"], None);
    while drop_some().code == Some(1) {
        runs += 1;
        assert!(runs <= objects / MOST_DROPPED, "more lost objects than there are");
    }
    measured.run("check --deep", args!["check", &store, "--deep"]);
    measured.are_bounded();
}

#[test]
fn no_repair_of_one_device_needs_more_with_many_objects() {
    if !has_program("python3") {
        skip("peak memory is measured by python3");
        return;
    }
    let sandbox = sandbox_for_many();
    let (store, mut measured) = on_one_device(&sandbox);
    flip(&[&store], 0.25, Part::Content);
    measured.run_amiss("repair", args!["repair", &store]);
    measured.run("repair --drop-lost", args!["repair", &store, "--drop-lost"]);
    flip(&[&store], 0.75, Part::Head);
    fs::remove_dir_all(store.join("index")).unwrap();
    measured.run_amiss("check --rebuild-index of damage", args!["check", &store, "--rebuild-index"]);
    measured.run_amiss("repair with an index that was rebuilt", args!["repair", &store]);
    measured.run("repair --accept", args!["repair", &store, "--accept"]);
    measured.run("check --deep", args!["check", &store, "--deep"]);
    measured.are_bounded();
}

fn is_file(listed: &Listed) -> bool {
    listed.entry.kind == Kind::File
}

/// The largest segment of the first device, on each of these devices.
fn largest_segments(devices: &[&Path]) -> Vec<PathBuf> {
    let listed = fs::read_dir(devices[0].join("segments")).unwrap().map(Result::unwrap);
    let largest = listed.max_by_key(|one| one.metadata().unwrap().len()).unwrap().file_name();
    devices.iter().map(|device| device.join("segments").join(&largest)).collect()
}

/// Part of a record.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// The object is known though its content is lost.
    Content,
    /// The attributes before it: without an index, nobody knows of what object they are.
    Head,
}

/// Flips a bit of the record of a file, in all copies of the largest segment, behind a share of its length.
fn flip(devices: &[&Path], share: f64, part: Part) {
    for path in largest_segments(devices) {
        let mut bytes = fs::read(&path).unwrap();
        let from = (bytes.len() as f64 * share) as usize;
        let is_content = |piece: &[u8]| piece[0].is_ascii_lowercase() && piece.iter().all(|byte| *byte == piece[0]);
        // Where a content begins, not in the middle of one.
        let begins = |piece: &[u8]| piece[0] != piece[1] && is_content(&piece[1..]);
        let at = from + 1 + bytes[from..].windows(1 + CONTENT_BYTES / 2).position(begins).unwrap();
        bytes[if part == Part::Head { at - 1 } else { at }] ^= 4;
        fs::write(&path, bytes).unwrap();
    }
}

/// Overwrites the middle third of the largest segment.
fn wipe_third(device: &Path) {
    let path = largest_segments(&[device]).remove(0);
    let mut bytes = fs::read(&path).unwrap();
    let length = bytes.len() / 3;
    bytes[length..2 * length].fill(0xff);
    fs::write(&path, bytes).unwrap();
}

/// Every kind of repair of a store on two devices.
fn repair_mirrors(measured: &mut Measured, store: &Path, devices: [&Path; 2], file: &Path) {
    flip(&devices[..1], 0.3, Part::Content);
    measured.run("repair of a copy", args!["repair", store]);
    flip(&devices, 0.25, Part::Content);
    measured.run_amiss("repair of both copies", args!["repair", store]);
    measured.run("repair --drop-lost", args!["repair", store, "--drop-lost"]);
    flip(&devices, 0.75, Part::Head);
    devices.iter().for_each(|device| fs::remove_dir_all(device.join("index")).unwrap());
    measured.run_amiss("check --rebuild-index of damage", args!["check", store, "--rebuild-index"]);
    measured.run_amiss("repair with an index that was rebuilt", args!["repair", store]);
    measured.run("repair --accept", args!["repair", store, "--accept"]);
    // Each device is written to without the other.
    for away in devices {
        let hidden = away.with_extension("hidden");
        fs::rename(away, &hidden).unwrap();
        measured.run_amiss("put --degraded", args!["put", "--degraded", store, "0004/00/00", file]);
        fs::rename(&hidden, away).unwrap();
    }
    measured.run("repair --take", args!["repair", store, "--take", "0"]);
}

/// Every command that only reads.
fn read(measured: &mut Measured, store: &Path) {
    measured.run("status", args!["status", store]);
    measured.run("status --count", args!["status", store, "--count"]);
    measured.run("ls", args!["ls", store, "0000/00"]);
    measured.run("ls -R", args!["ls", store, "-R"]);
    measured.run("ls -R -l", args!["ls", store, "-R", "-l"]);
    measured.run("ls -R --json", args!["ls", store, "-R", "--json"]);
    measured.run("get", args!["get", store, "0000/00/00"]);
    measured.run("stat", args!["stat", store, "0000/00/00"]);
    measured.run("log", args!["log", store, "0000/00/00"]);
    measured.run("load", args!["load", store]);
    measured.run("load --group", args!["load", store, "--group", "0001"]);
    measured.run("check", args!["check", store]);
    measured.run("check --deep", args!["check", store, "--deep"]);
}

/// Every command that maintains a store.
fn maintain(measured: &mut Measured, store: &Path, onto: &Path) {
    measured.run("scrub", args!["scrub", store]);
    measured.run("repair", args!["repair", store]);
    measured.run("rebalance", args!["rebalance", store]);
    let lost = store.join("../b");
    fs::rename(&lost, lost.with_extension("away")).unwrap();
    measured.run("rebuild", args!["rebuild", store, "--device", "1", "--onto", onto]);
    measured.run("check --rebuild-index", args!["check", store, "--rebuild-index"]);
    for index in [store.join("../a/index"), onto.join("index")] {
        fs::rename(&index, index.with_extension("away")).unwrap();
    }
    measured.run("ls -R without an index", args!["ls", store, "-R"]);
    measured.run("load without an index", args!["load", store]);
    measured.run("rm without an index", args!["rm", store, "0001/00/02"]);
}
