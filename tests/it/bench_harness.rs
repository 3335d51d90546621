//! The foundation of every bench: file systems made for a run, caches, deliberately slow disks, and nothing left
//! behind.
//!
//! These call the library, because only the library can observe a run in progress.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use granulo::error::ErrorKind;
use granulo::testing::bench::emulate::Emulation;
use granulo::testing::bench::file_systems::{FileSystemKind, FileSystemSpec};
use granulo::testing::bench::images;
use granulo::testing::bench::place::{Besides, Place, Prepared};
use granulo::testing::bench::result::{CacheState, CreateDetails, Details, SubjectKind};
use granulo::testing::bench::run::{Measured, Request, Run};
use granulo_core::random::Random;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::harness::{Ran, granulo, is_root, sandbox, skip};

const MIB: u64 = 1 << 20;

/// Mounts and loop devices that belong to `directory`.
pub fn left_below(directory: &Path) -> Vec<String> {
    let directory = fs::canonicalize(directory).unwrap();
    let text = directory.to_str().unwrap();
    let mut left: Vec<String> =
        String::from_utf8_lossy(&fs::read("/proc/self/mountinfo").unwrap()).lines().map(str::to_owned).collect();
    for block in fs::read_dir("/sys/block").unwrap() {
        left.extend(fs::read_to_string(block.unwrap().path().join("loop/backing_file")));
    }
    left.retain(|line| line.contains(text));
    left
}

/// Whether a file system of this kind can be made here; reports why not like a skipped test.
pub fn can_make(kind: FileSystemKind) -> bool {
    if !is_root() || !Path::new("/dev/loop-control").exists() {
        skip("it makes file systems, which needs root and loop devices");
        return false;
    }
    let checked = images::check(&[FileSystemSpec::new(kind, 1 << 30)]);
    checked.map_err(|error| skip(&error.to_string())).is_ok()
}

/// Asserts that a run has left no file, mount or loop device, except files with these names.
#[track_caller]
pub fn nothing_left(sandbox: &TempDir, but: &[&str]) {
    let names = fs::read_dir(sandbox.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let left: Vec<String> = names.filter(|name| !but.contains(&name.as_str())).collect();
    assert_eq!(left, Vec::<String>::new());
    assert_eq!(left_below(sandbox.path()), Vec::<String>::new());
}

/// A bench that is running.
pub struct Running {
    child: Child,
    patience: Duration,
}

impl Running {
    pub fn start(arguments: Vec<OsString>) -> Running {
        Running::start_within(arguments, Duration::from_secs(300))
    }

    /// Starts a bench, with `patience` for every wait.
    pub fn start_within(arguments: Vec<OsString>, patience: Duration) -> Running {
        let mut command = granulo();
        command.arg("bench").args(arguments);
        Running { patience, ..Running::of(command) }
    }

    /// Starts any command.
    pub fn of(mut command: Command) -> Running {
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        Running { child, patience: Duration::from_secs(300) }
    }

    /// Waits until `done`, which must happen before the bench ends.
    #[track_caller]
    pub fn until(&mut self, what: &str, mut done: impl FnMut() -> bool) {
        let started = Instant::now();
        while !done() {
            if let Some(status) = self.child.try_wait().unwrap() {
                let mut said = String::new();
                self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
                panic!("it exited with {status} before {what}: {said}");
            }
            assert!(started.elapsed() < self.patience, "still not: {what}");
            sleep(Duration::from_millis(2));
        }
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    pub fn end(self) -> Ran {
        self.child.wait_with_output().unwrap().into()
    }
}

/// Starts a bench, sends it a signal when `ready` returns true, and waits for its end.
#[track_caller]
pub fn signalled(arguments: Vec<OsString>, signal: Signal, ready: impl FnMut() -> bool) -> Ran {
    let mut running = Running::start(arguments);
    running.until("ready for the signal", ready);
    running.signal(signal);
    running.end()
}

fn begin(sandbox: &TempDir) -> Run {
    Run::begin(Request { command_line: Vec::new(), seed: 1, scratch: sandbox.path().to_owned() }).unwrap()
}

fn end(run: Run, places: Vec<Prepared>) -> granulo::testing::bench::result::Document {
    let details = Details::Create(CreateDetails::default());
    run.end(places, Measured { series: Vec::new(), details, shortest_median_ns: 1e3, complete: true })
}

fn bears_files(kind: FileSystemKind, options: &str, size_bytes: u64, seen_as: &[&str]) {
    if !can_make(kind) {
        return;
    }
    let sandbox = sandbox();
    let spec = FileSystemSpec::new(kind, size_bytes).with_options(options).unwrap();
    let mut run = begin(&sandbox);
    let mut places = run.prepare(&[Place::FileSystem(spec.clone())], Besides::default()).unwrap();
    let place = &mut places[0];
    assert_eq!((place.subject().kind, place.name()), (SubjectKind::FileSystem, spec.name().as_str()));
    let file_system = &place.subject().file_system;
    assert!(seen_as.contains(&file_system.kind.as_str()), "{file_system:?}");
    assert!(file_system.made_by.as_ref().unwrap().starts_with(&format!("mkfs.{kind}")), "{file_system:?}");
    assert!(file_system.size_bytes > size_bytes / 2 && file_system.size_bytes <= size_bytes, "{file_system:?}");
    let device = &place.subject().device;
    assert!(device.name.starts_with("loop") && device.model.ends_with("/image"), "{device:?}");
    assert_eq!((device.size_bytes, device.emulated), (size_bytes, None));

    let content: Vec<u8> = (0..100_000u32).flat_map(u32::to_le_bytes).collect();
    let path = place.directory().join("kept");
    fs::write(&path, &content).unwrap();
    place.sync().unwrap();
    assert_eq!(place.cool().unwrap(), CacheState::Cold);
    assert_eq!(fs::read(&path).unwrap(), content);
    assert!(place.room().unwrap().fill > 0.0);
    let before = place.device_number().unwrap();
    place.renew().unwrap();
    assert_eq!(fs::read_dir(place.directory()).unwrap().count(), 0);
    assert!(place.device_number().unwrap().0 == before.0);
    fs::write(&path, b"again").unwrap();

    let document = end(run, places);
    assert!(document.tools.iter().all(|tool| !tool.version.is_empty() || tool.name.contains("fat")), "{document:?}");
    assert!(document.tools.iter().any(|tool| tool.name == format!("mkfs.{kind}")), "{document:?}");
    assert_eq!(fs::read_dir(sandbox.path()).unwrap().count(), 0);
    assert_eq!(left_below(sandbox.path()), Vec::<String>::new());
}

#[test]
fn ext4_is_made_and_gone() {
    bears_files(FileSystemKind::Ext4, "-b 1024 -o noatime", 64 * MIB, &["ext4"]);
}

#[test]
fn ext2_and_ext3_are_made_and_gone() {
    bears_files(FileSystemKind::Ext2, "", 64 * MIB, &["ext2", "ext4"]);
    bears_files(FileSystemKind::Ext3, "", 64 * MIB, &["ext3", "ext4"]);
}

#[test]
fn xfs_is_made_and_gone() {
    bears_files(FileSystemKind::Xfs, "-m reflink=0", 320 * MIB, &["xfs"]);
}

#[test]
fn btrfs_is_made_and_gone() {
    bears_files(FileSystemKind::Btrfs, "-o compress=zstd", 256 * MIB, &["btrfs"]);
}

#[test]
fn ntfs_is_made_and_gone() {
    bears_files(FileSystemKind::Ntfs, "", 64 * MIB, &["fuseblk", "ntfs3"]);
}

#[test]
fn fat_is_made_and_gone() {
    bears_files(FileSystemKind::Fat, "", 64 * MIB, &["fuse.fusefat", "vfat"]);
}

#[test]
fn exfat_is_made_and_gone() {
    bears_files(FileSystemKind::Exfat, "", 64 * MIB, &["fuseblk", "exfat"]);
}

#[test]
fn files_and_a_store_have_file_systems_of_their_own() {
    if !can_make(FileSystemKind::Ext4) {
        return;
    }
    let sandbox = sandbox();
    let directory = sandbox.path().join("directory");
    let mut run = begin(&sandbox);
    let spec = FileSystemSpec::new(FileSystemKind::Ext4, 64 * MIB);
    let places = run
        .prepare(&[Place::FileSystem(spec), Place::Directory(directory)], Besides { store: true, ..Besides::default() })
        .unwrap();
    let names: Vec<&str> = places.iter().map(Prepared::name).collect();
    assert_eq!(names[..2], ["ext4", "granulo on ext4"]);
    assert_eq!(names[3], format!("granulo on {}", names[2]));
    assert_ne!(places[0].device_number(), places[1].device_number());
    assert_eq!(places[2].device_number(), places[3].device_number());
    // A second run beside it, which notices that this one is alive.
    drop(begin(&sandbox));
    assert!(places.iter().all(|place| place.directory().is_dir()));
    // Without its regular end, as after an error.
    drop((places, run));
    assert_eq!(fs::read_dir(sandbox.path()).unwrap().count(), 0);
    assert_eq!(left_below(sandbox.path()), Vec::<String>::new());
}

#[test]
fn a_file_system_that_fails_to_be_made_leaves_nothing() {
    if !can_make(FileSystemKind::Ext4) {
        return;
    }
    let sandbox = sandbox();
    for options in ["-O no_such_feature", "-o no_such_option"] {
        let spec = FileSystemSpec::new(FileSystemKind::Ext4, 64 * MIB).with_options(options).unwrap();
        let mut run = begin(&sandbox);
        let error = run.prepare(&[Place::FileSystem(spec)], Besides::default()).unwrap_err().to_string();
        let program = if options.starts_with("-O") { "mkfs.ext4" } else { "mount" };
        assert!(error.contains(program), "{error}");
        drop(run);
        assert_eq!(fs::read_dir(sandbox.path()).unwrap().count(), 0);
    }
    let far = FileSystemSpec::new(FileSystemKind::Ext4, 1 << 50);
    let error = begin(&sandbox).prepare(&[Place::FileSystem(far)], Besides::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    assert!(error.to_string().contains("--fs-size"), "{error}");
    assert_eq!(left_below(sandbox.path()), Vec::<String>::new());
}

/// Rates of cold reads of a file: sequential in bytes per second, and random in blocks per second.
fn read_rates(place: &mut Prepared) -> (f64, f64) {
    const FILE_BYTES: u64 = 512 * MIB;
    const READS: u64 = 300;
    let path: PathBuf = place.directory().join("file");
    let mut file = File::create(&path).unwrap();
    let mut random = Random::new(1);
    for _ in 0..FILE_BYTES / MIB {
        file.write_all(&random.bytes(MIB as usize)).unwrap();
    }
    file.sync_all().unwrap();
    drop(file);
    place.cool().unwrap();
    let mut file = File::open(&path).unwrap();
    let mut buffer = vec![0; 1 << 17];
    let started = Instant::now();
    while file.read(&mut buffer).unwrap() > 0 {}
    let sequential = FILE_BYTES as f64 / started.elapsed().as_secs_f64();
    drop(file);

    place.cool().unwrap();
    let file = File::open(&path).unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random).unwrap();
    let started = Instant::now();
    for at in 0..READS {
        // Each block once: a prime step visits all of them.
        let block = at * 7_919 % (FILE_BYTES / 4096);
        file.read_exact_at(&mut buffer[..4096], block * 4096).unwrap();
    }
    (sequential, READS as f64 / started.elapsed().as_secs_f64())
}

#[test]
fn an_emulated_disk_keeps_to_its_rates() {
    if !can_make(FileSystemKind::Ext4) {
        return;
    }
    if !Path::new("/sys/fs/cgroup/blkio/blkio.throttle.read_bps_device").exists() {
        return skip("it limits a device, which needs the blkio controller of cgroup v1");
    }
    let sandbox = sandbox();
    let mut run = begin(&sandbox);
    let emulation = Emulation { bytes_per_second: 100_000_000, operations_per_second: 100, read_ahead_bytes: None };
    let spec = FileSystemSpec { emulation: Some(emulation), ..FileSystemSpec::new(FileSystemKind::Ext4, 800 * MIB) };
    let mut places = run.prepare(&[Place::FileSystem(spec)], Besides::default()).unwrap();
    let emulated = places[0].subject().device.emulated.unwrap();
    assert_eq!((emulated.operations_per_second, emulated.bytes_per_second), (100, 100_000_000));
    let (bytes, operations) = read_rates(&mut places[0]);
    println!("sequential {:.1} MB/s, random {operations:.1}/s", bytes / 1e6);
    // A busy machine is slower than the limits, and nothing is faster.
    assert!(bytes > 0.0 && bytes < 1.15e8, "{bytes} bytes a second");
    assert!(operations > 0.0 && operations < 115.0, "{operations} operations a second");
    let number = places[0].device_number().unwrap();
    let limits = || fs::read_to_string("/sys/fs/cgroup/blkio/blkio.throttle.read_bps_device").unwrap();
    // Another test may get the same loop device afterwards, and limits it to other rates.
    let limited = format!("{}:{} 100000000", number.0, number.1);
    assert!(limits().lines().any(|line| line == limited), "{}", limits());
    let document = end(run, places);
    assert!(document.notes.iter().any(|note| note.contains("Not modelled")), "{:?}", document.notes);
    assert!(!limits().lines().any(|line| line == limited), "{}", limits());
    assert_eq!(left_below(sandbox.path()), Vec::<String>::new());
}
