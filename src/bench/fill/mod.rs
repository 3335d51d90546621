//! `bench fill`: performance over the fill level.
//!
//! After Atkinson, "Impact of space usage on file system performance" (2013): the device is read; then the file system
//! is filled in steps with files of weighted sizes, every tenth creation followed by a random deletion, with flushes
//! around it; at each level, [`Test`]s are timed, several times: create, find, and find and remove 10,000 directories,
//! write and read 0.5 GiB, create and delete 10,000 small files. Before each test everything is written back and the
//! caches are dropped. The time of a writing test includes the sync after it: a nearly full file system pays when it
//! allocates, and may delay that until the sync.
//!
//! Several places are filled to a level one after another, then tested there in turns. A test for which space is
//! insufficient is left out from that level on, and the result says so. A file system that was created for the run has
//! no holes below it: its image is first written in full.

mod device;
mod files;
mod level;
mod objects;
mod steps;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::content::{self, Content};
use super::place::Prepared;
use super::result::{CacheState, Details, Document, FillDetails, Series};
use super::run::{Measured, Run, stage};
use crate::error::{Error, ErrorKind, Result};
use crate::mounts::{Mount, mount_of};
use crate::progress::Progress;
use crate::units::MIB;
use device::Baseline;
use files::Files;
pub use level::Filling;
use level::{Extents, Fill};
use objects::Objects;
use steps::{Steps, Tested};

/// The highest level.
pub const HIGHEST_LEVEL: f64 = 0.995;

/// Digits of the paths of filling files: a thousand per directory.
const FILL_WIDTHS: [usize; 2] = [6, 3];
/// Digits of the paths of test files: a hundred per directory.
const TEST_WIDTHS: [usize; 2] = [6, 2];
/// Number that determines the content of the test file.
const FILE_NUMBER: u64 = u64::MAX;

/// Whether to continue.
type KeepGoing<'g> = dyn FnMut() -> bool + 'g;

/// A timed test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Test {
    /// Creates directories, a hundred in each at the top.
    CreateDirectories,
    /// Finds all of them.
    FindDirectories,
    /// Finds and removes all of them.
    RemoveDirectories,
    /// Writes a large file.
    Write,
    /// Reads the same file.
    Read,
    /// Creates small files.
    CreateFiles,
    /// Finds and deletes all of them.
    DeleteFiles,
}

impl Test {
    /// All tests, in order of execution.
    pub const ALL: [Test; 7] = [
        Test::CreateDirectories,
        Test::FindDirectories,
        Test::RemoveDirectories,
        Test::Write,
        Test::Read,
        Test::CreateFiles,
        Test::DeleteFiles,
    ];

    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Test::CreateDirectories => "create directories",
            Test::FindDirectories => "find directories",
            Test::RemoveDirectories => "find and remove directories",
            Test::Write => "write",
            Test::Read => "read",
            Test::CreateFiles => "create files",
            Test::DeleteFiles => "delete files",
        }
    }
}

/// Tests on the same files, in order.
const GROUPS: [&[Test]; 3] = [
    &[Test::CreateDirectories, Test::FindDirectories, Test::RemoveDirectories],
    &[Test::Write, Test::Read],
    &[Test::CreateFiles, Test::DeleteFiles],
];

/// A request for `bench fill`.
#[derive(Debug, Clone, PartialEq)]
pub struct FillRequest {
    /// Levels, ascending.
    pub levels: Vec<f64>,
    /// How to fill.
    pub filling: Filling,
    /// Whether file content is random bytes, not zeros.
    pub is_random: bool,
    /// Repetitions of the tests at each level.
    pub repeats: u64,
    /// Directories per test.
    pub directories: u64,
    /// Size of the large file.
    pub file_bytes: u64,
    /// Small files per test.
    pub small_files: u64,
    /// Size of each.
    pub small_bytes: u64,
}

/// An estimate of a run, as far as it can be known before.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// Bytes written to fill all places.
    pub fill_bytes: u64,
    /// Tests that are timed.
    pub tests: u64,
    /// Estimated duration.
    pub seconds: f64,
}

/// What is filled and tested: files, or objects in a store.
trait FillTarget {
    /// Creates a filling file.
    fn create(&mut self, number: u64, size_bytes: u64) -> Result<()>;
    /// Deletes one; returns its size, or `None` if there is none with that number.
    fn delete(&mut self, number: u64) -> Result<Option<u64>>;
    /// Makes everything durable.
    fn sync(&mut self) -> Result<()>;
    /// Drops what it has in memory; the next operation reopens it.
    fn close(&mut self) {}
    /// Extents of a filling file.
    fn extents(&mut self, number: u64) -> Result<Extents>;
    /// Creates directories in two levels: one in a hundred at the top, the other 99 inside it. Like all tests that do
    /// not count, it returns whether it ran to the end.
    fn make_directories(&mut self, count: u64, go_on: &mut KeepGoing<'_>) -> Result<bool>;
    /// Lists all of them; like all tests that count, it returns how many entries it met.
    fn find_directories(&mut self, go_on: &mut KeepGoing<'_>) -> Result<u64>;
    /// Lists and removes them.
    fn remove_directories(&mut self, go_on: &mut KeepGoing<'_>) -> Result<u64>;
    /// Writes the large file.
    fn write(&mut self, size_bytes: u64, go_on: &mut KeepGoing<'_>) -> Result<bool>;
    /// Reads and verifies it.
    fn read(&mut self, size_bytes: u64, go_on: &mut KeepGoing<'_>) -> Result<bool>;
    /// Creates the directories for small files.
    fn prepare_files(&mut self, count: u64) -> Result<()>;
    /// Creates small files in them.
    fn make_files(&mut self, count: u64, size_bytes: u64, go_on: &mut KeepGoing<'_>) -> Result<bool>;
    /// Lists and removes these; returns how many. If it is stopped, the number means nothing, and some may remain.
    fn remove_files(&mut self, go_on: &mut KeepGoing<'_>) -> Result<u64>;
    /// Frees space whose release was deferred by deletions.
    fn settle(&mut self) -> Result<()> {
        Ok(())
    }
    /// Removes everything that tests have left.
    fn clear(&mut self) -> Result<()>;
}

fn misread(path: &Path) -> Error {
    content::misread("read back the file of", path)
}

/// Refuses directories that cannot be filled: two targets on one file system, which would fill it together; and those
/// on the root file system, unless that is allowed. `with_store` means that each gets files and a store, which would
/// fill the same file system.
///
/// # Errors
/// [`ErrorKind::Usage`] for the first such directory; errors from examining it.
pub fn check_directories(directories: &[PathBuf], with_store: bool, allow_root: bool) -> Result<()> {
    let device = |path: &Path| -> Result<(u64, Mount)> {
        let found = fs::metadata(path).map_err(|error| Error::io("examine", path, error))?;
        Ok((found.dev(), mount_of(path)?))
    };
    let refuse = |directory: &Path, cause: &str, advice: &str| {
        Err(Error::new(ErrorKind::Usage, "fill", cause).at(directory).advise(advice))
    };
    let (root_number, root) = device(Path::new("/"))?;
    let mut seen = Vec::new();
    for directory in directories {
        // A directory that does not exist yet will be on the file system of its nearest ancestor.
        let above =
            directory.ancestors().map(|above| if above.as_os_str().is_empty() { Path::new(".") } else { above });
        let existing = above.into_iter().find(|above| above.exists()).unwrap_or(Path::new("/"));
        let (number, mount) = device(existing)?;
        // Subvolumes of the root have other device numbers, and so may what an overlay shows of it.
        let is_root = number == root_number
            || mount.device == root.device
            || (mount.kind == root.kind && mount.source == root.source && root.device.0 != 0);
        if is_root && !allow_root {
            let advice =
                "name a directory on another file system, create one with --fs, or use --allow-root-file-system";
            return refuse(
                directory,
                "it is on the root file system, and a system with a full root file system does not work",
                advice,
            );
        }
        if with_store {
            let cause = "files and a store in one directory would fill the same file system";
            return refuse(directory, cause, "create file systems with --fs, one for each");
        }
        // Subvolumes of one file system have numbers of their own.
        if seen.iter().any(|&(other, ref of)| other == number || *of == mount.device) {
            let cause = "another of these directories is on the same file system";
            return refuse(directory, cause, "name only one of them");
        }
        seen.push((number, mount.device));
    }
    Ok(())
}

/// Runs the bench in prepared places; `announce` receives the estimate before it begins.
///
/// # Errors
/// [`ErrorKind::NoSpace`] if no level can be tested on any place; [`ErrorKind::Corrupt`] if the bytes read differ from
/// those written; any other failure.
pub fn fill(
    request: &FillRequest,
    mut run: Run,
    mut places: Vec<Prepared>,
    progress: &Progress,
    announce: &dyn Fn(Estimate),
) -> Result<Document> {
    let content = if request.is_random { Content::random(run.seed()) } else { Content::zero() };
    let mut samples = Vec::new();
    let mut complete = fill_holes(&mut places, progress)?;
    if complete {
        complete = read_devices(request, &mut places, &content, progress, &mut samples)?;
    }
    if complete {
        announce(estimate(request, &places, &samples)?);
    }
    let mut steps = Steps { request, progress, samples, reached: Vec::new(), left_out: Vec::new() };
    let mut subjects = Vec::new();
    for (at, place) in places.iter_mut().enumerate() {
        let target: Box<dyn FillTarget> = match place.is_store() {
            true => Box::new(Objects::new(place.directory(), &content)?),
            false => Box::new(Files::new(place.directory(), &content)?),
        };
        let fill = Fill::new(run.seed().wrapping_add(at as u64));
        subjects.push(Tested { at, place, target, fill, without: [false; GROUPS.len()], is_over: false });
    }
    for &level in &request.levels {
        complete = complete && steps.level(level, &mut subjects)?;
        if !complete {
            break;
        }
    }
    // Open files must be closed before the places are removed.
    drop(subjects);
    let Steps { samples, reached, left_out, .. } = steps;
    if complete && reached.is_empty() {
        let cause = left_out.first().map_or("there are no levels", |left_out| &left_out.cause);
        return Err(Error::new(ErrorKind::NoSpace, "reach any level", cause)
            .advise("choose other --levels, or increase --fs-size"));
    }
    if places.iter().any(Prepared::is_store) {
        run.note(
            "A store was compacted when it reached a level, filled further, and compacted after each round of tests, \
                outside the measured time, to free the space of removed files. Where there was no space for \
                compaction, that space is part of the level.",
        );
    }
    let series = samples.into_iter().map(Sampled::series).collect();
    let details = FillDetails {
        levels: request.levels.clone(),
        reached,
        left_out,
        weight: request.filling.sizes.k,
        size_range_bytes: (request.filling.sizes.min_bytes, request.filling.sizes.max_bytes),
        is_random: request.is_random,
        delete_every: request.filling.delete_every,
        flush_every: request.filling.flush_every,
        directories: request.directories,
        file_bytes: request.file_bytes,
        small_files: request.small_files,
        small_bytes: request.small_bytes,
    };
    Ok(run
        .end(places, Measured { series, details: Details::Fill(details), shortest_median_ns: f64::INFINITY, complete }))
}

/// Writes zeros to the holes of the images of file systems that were created for the run; returns whether it finished.
fn fill_holes(places: &mut [Prepared], progress: &Progress) -> Result<bool> {
    for place in places {
        let name = place.name().to_owned();
        let Some(image) = place.image() else { continue };
        progress.begin(stage(&name, "fill the holes of the image", 0), 0);
        let mut go_on = |done: u64, total: u64| {
            progress.set_total(total / MIB);
            progress.set_operations(done / MIB);
            !progress.should_stop()
        };
        if !image.fill_holes(&mut go_on)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Measures the read rates of the devices; returns whether it finished.
fn read_devices(
    request: &FillRequest,
    places: &mut [Prepared],
    content: &Content,
    progress: &Progress,
    samples: &mut Vec<Sampled>,
) -> Result<bool> {
    for (at, place) in places.iter_mut().enumerate() {
        let name = place.name().to_owned();
        let Some(mut baseline) = Baseline::open(place, request.file_bytes, content)? else { continue };
        for repeat in 0..request.repeats {
            if progress.should_stop() {
                return Ok(false);
            }
            progress.begin(stage(&name, "read the device", repeat), 0);
            let (rate, caches) = baseline.rate(repeat, request.repeats)?;
            add(samples, (at, "device read", None), caches, rate);
        }
    }
    Ok(true)
}

/// Estimates a run: half the read rate for writes, 50 microseconds per metadata operation, and 400 for listing a cold
/// directory, which is a read of its own. It is called before any test, when `samples` has only rates of reading.
fn estimate(request: &FillRequest, places: &[Prepared], samples: &[Sampled]) -> Result<Estimate> {
    const OPERATION_SECONDS: f64 = 50e-6;
    const COLD_READ_SECONDS: f64 = 400e-6;
    const FLUSH_SECONDS: f64 = 0.1;
    const UNKNOWN_RATE: f64 = 100e6;
    let highest = request.levels.iter().copied().fold(0.0, f64::max);
    let (mut fill_bytes, mut seconds) = (0, 0.0);
    let rounds = request.levels.len() as u64 * request.repeats;
    for (at, place) in places.iter().enumerate() {
        let room = place.room()?;
        let whole = (room.used_bytes + room.available_bytes) as f64;
        let missing = (whole * highest - room.used_bytes as f64).max(0.0);
        let rates = samples.iter().filter(|sampled| sampled.subject == at).flat_map(|sampled| &sampled.values);
        let (sum, count) = rates.fold((0.0, 0.0), |(sum, count), rate| (sum + rate, count + 1.0));
        let rate = if count > 0.0 { sum / count } else { UNKNOWN_RATE };
        let filling = &request.filling;
        let deleted = if filling.delete_every > 0 { 1.0 / filling.delete_every as f64 } else { 0.0 };
        let written = missing * (1.0 + deleted);
        let files = written / filling.sizes.mean().max(1.0);
        let flushes = if filling.flush_every > 0 { 2.0 * files / filling.flush_every as f64 } else { 0.0 };
        let operations = 3 * request.directories + 2 * request.small_files;
        let cold_reads = 2 * request.directories;
        let emulated = place.subject().device.emulated;
        let emulated_seconds = emulated.map_or(0.0, |emulated| 1.0 / emulated.operations_per_second as f64);
        // Of an emulated device: ten operations are written back together.
        let metadata = operations as f64 * OPERATION_SECONDS.max(emulated_seconds / 10.0)
            + cold_reads as f64 * COLD_READ_SECONDS.max(emulated_seconds);
        let tested = request.file_bytes as f64 * 3.0 / rate + metadata + Test::ALL.len() as f64 * FLUSH_SECONDS;
        fill_bytes += written as u64;
        seconds += 2.0 * written / rate + flushes * FLUSH_SECONDS + rounds as f64 * tested;
    }
    let tests = rounds * places.len() as u64 * Test::ALL.len() as u64;
    Ok(Estimate { fill_bytes, tests, seconds })
}

/// Samples of one measure of one subject at one level.
struct Sampled {
    subject: usize,
    measure: &'static str,
    level: Option<f64>,
    caches: CacheState,
    values: Vec<f64>,
}

impl Sampled {
    fn series(self) -> Series {
        let unit = if self.level.is_some() { "seconds" } else { "bytes/s" };
        let series = Series::new(self.subject, self.measure, unit, self.caches, self.values);
        Series { level: self.level, ..series }
    }
}

type Measure = (usize, &'static str, Option<f64>);

fn add(samples: &mut Vec<Sampled>, (subject, measure, level): Measure, caches: CacheState, value: f64) {
    let is_it = |found: &&mut Sampled| (found.subject, found.measure, found.level) == (subject, measure, level);
    match samples.iter_mut().find(is_it) {
        Some(found) => found.values.push(value),
        None => samples.push(Sampled { subject, measure, level, caches, values: vec![value] }),
    }
}
