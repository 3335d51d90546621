//! The memory of a collector does not depend on how many files it counts: shown with a stream of made-up files, in a
//! process of its own, whose peak is looked at. `GRANULO_STREAM_FILES=1000000000` (and `cargo test --release`) shows it
//! for a billion.

use std::fs;
use std::io::Write;
use std::process::Command;

use super::*;
use crate::random::Random;
use crate::scan::DirectoryLocation;

/// Number of files, in the environment of the process that counts them.
const FILES: &str = "GRANULO_STREAM_COUNT";
/// Number of files of the larger of two streams.
const WANTED: &str = "GRANULO_STREAM_FILES";
const FILES_A_DIRECTORY: u64 = 1000;
const FILES_A_BATCH: u64 = 250;
const THREADS: u64 = 2;
/// More than the peaks of two processes with the same work differ by.
const DIFFERENCE_KIB: u64 = 5 << 10;

/// A directory of the stream.
struct At(u64);

impl DirectoryLocation for At {
    fn path(&self) -> Vec<u8> {
        format!("/data/{}/{}/{}", self.0 / 10_000, self.0 / 100 % 100, self.0 % 100).into_bytes()
    }

    fn depth(&self) -> u32 {
        4
    }
}

/// Counts the files of a share of the directories: sizes over all orders of magnitude, many owners, and names whose
/// last parts are all different, as those of numbered files are.
fn count(collector: &Collector, thread: u64, files: u64) {
    let mut random = Random::new(thread);
    let parent = Parent::of_root();
    for directory in (thread..files / FILES_A_DIRECTORY).step_by(THREADS as usize) {
        let (at, mut own) = (At(directory), Sums::default());
        let place = Directory::at(&at);
        for batch_of in 0..FILES_A_DIRECTORY / FILES_A_BATCH {
            let mut batch = Batch::default();
            for file in 0..FILES_A_BATCH {
                let drawn = random.any();
                let size_bytes = drawn >> (20 + drawn % 44);
                let time = Timestamp { seconds: (drawn % 1_700_000_000) as i64, nanoseconds: 0 };
                let stat = Stat {
                    kind: scan::Kind::File,
                    size_bytes,
                    allocated_bytes: size_bytes.next_multiple_of(4096),
                    link_count: 1,
                    uid: (drawn % 5000) as u32,
                    gid: 0,
                    mode: 0o100_644,
                    device: 1,
                    inode: directory * FILES_A_DIRECTORY + batch_of * FILES_A_BATCH + file,
                    mtime: time,
                    ctime: time,
                    atime: time,
                };
                batch.push(format!("file.{:x}", drawn >> 24).as_bytes(), stat);
            }
            collector.entries(thread as usize, place, &parent, &batch, &mut own);
        }
        collector.listed(thread as usize, place, FILES_A_DIRECTORY);
        collector.finished(thread as usize, place, &own, &Sums::default());
    }
}

/// Without [`FILES`], only a test that passes.
#[test]
fn the_stream_that_is_counted() {
    let Some(files) = std::env::var(FILES).ok().and_then(|files| files.parse().ok()) else { return };
    let collector = Collector::new(&Options::default(), THREADS as usize, 1_700_000_000, 20);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let collector = &collector;
            scope.spawn(move || count(collector, thread, files));
        }
    });
    let survey = collector.survey();
    assert_eq!(survey.counts.files, files);
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let said = format!("\npeak_kib {}\n", peak.trim().strip_suffix(" kB").unwrap());
    std::io::stdout().write_all(said.as_bytes()).unwrap();
}

fn peak_kib(files: u64) -> u64 {
    let name = concat!(module_path!(), "::the_stream_that_is_counted");
    let name = name.split_once("::").map_or(name, |(_, name)| name);
    let ran = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(FILES, files.to_string())
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let said = String::from_utf8(ran.stdout).unwrap();
    said.lines().find_map(|line| line.strip_prefix("peak_kib ")).unwrap().parse().unwrap()
}

#[test]
fn ten_times_the_files_take_no_more_memory() {
    let most = std::env::var(WANTED).map_or(2_000_000, |files| files.parse().unwrap());
    let [few, many] = [most / 10, most].map(peak_kib);
    let said = format!("{few} KiB for {} files, {many} KiB for {most}\n", most / 10);
    std::io::stdout().write_all(said.as_bytes()).unwrap();
    assert!(many < few + DIFFERENCE_KIB, "{said}");
}
