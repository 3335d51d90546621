//! `bench fill`: performance over the fill level.
//!
//! After Atkinson, "Impact of space usage on file system performance" (2013): the device is read as it is; then the file system is filled in
//! steps with files of weighted sizes, every tenth creation followed by a random deletion, with flushes around it; at each level, several times,
//! [`Test`]s are timed: 10,000 directories made, found, found and removed, 0.5 GiB written and read, 10,000 small files made and deleted. Before each
//! test everything is written back and the caches are dropped. The time of what writes has the sync behind it in it, for a file system that
//! is nearly full pays when it allocates, which it may put off until then.
//!
//! Several places are filled to a level one after the other and tested there in turns. What a test lacks the room for is left out from that
//! level on, and says so. A file system that was made for the run has no holes below it: its image is written full before.

mod device;
mod files;
mod level;
mod objects;
mod steps;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::content::Content;
use super::place::Prepared;
use super::result::{CacheState, Details, Document, FillDetails, Series};
use super::run::{Measured, Progress, Run, Watch};
use super::volume;
use crate::error::{Error, ErrorKind, Result};
use crate::mounts::Mount;
use crate::units::MIB;
use device::Baseline;
use files::Files;
use level::{Extents, Fill};
pub use level::{Filling, TOLERANCE};
use objects::Objects;
use steps::{Steps, Tested};

/// The highest level.
pub const HIGHEST_LEVEL: f64 = 0.995;

/// Whether to go on; told how much is done.
type Going<'g> = dyn FnMut(u64) -> bool + 'g;

/// A timed test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Test {
    /// Directories made, a hundred in each of those at the top.
    CreateDirectories,
    /// All of them found.
    FindDirectories,
    /// All found and removed.
    RemoveDirectories,
    /// A large file written.
    Write,
    /// The same file read.
    Read,
    /// Small files created.
    CreateFiles,
    /// All of them found and deleted.
    DeleteFiles,
}

impl Test {
    /// All of them, in the order in which they are done.
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

/// Tests of the same things, one after the other.
const GROUPS: [&[Test]; 3] = [
    &[Test::CreateDirectories, Test::FindDirectories, Test::RemoveDirectories],
    &[Test::Write, Test::Read],
    &[Test::CreateFiles, Test::DeleteFiles],
];

/// What is to be done.
#[derive(Debug, Clone, PartialEq)]
pub struct FillRequest {
    /// Levels, rising.
    pub levels: Vec<f64>,
    /// How it is filled.
    pub filling: Filling,
    /// Whether files have random bytes in them, not zeros.
    pub is_random: bool,
    /// How often the tests are done at each level.
    pub repeats: u64,
    /// Directories of a test.
    pub directories: u64,
    /// Bytes of the large file.
    pub file_bytes: u64,
    /// Small files of a test.
    pub small_files: u64,
    /// Bytes of each.
    pub small_bytes: u64,
}

/// What it will come to, as far as that can be known before.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// What is written to fill all places.
    pub fill_bytes: u64,
    /// Tests that are timed.
    pub tests: u64,
    /// About how long it takes.
    pub seconds: f64,
}

/// What is filled and tested: files, or objects of a store.
trait Ground {
    /// Creates a file that fills.
    fn create(&mut self, number: u64, size_bytes: u64) -> Result<()>;
    /// Deletes one; gives its size, or `None` if there is none of that number.
    fn delete(&mut self, number: u64) -> Result<Option<u64>>;
    /// Makes everything durable.
    fn sync(&mut self) -> Result<()>;
    /// Lets go of what it has in memory; what comes next opens it again.
    fn close(&mut self) {}
    /// Extents of a file that fills.
    fn extents(&mut self, number: u64) -> Result<Extents>;
    /// The tests; those that count give how many there were, others whether they were not stopped.
    fn make_directories(&mut self, count: u64, go_on: &mut Going<'_>) -> Result<bool>;
    fn find_directories(&mut self, go_on: &mut Going<'_>) -> Result<u64>;
    fn remove_directories(&mut self, go_on: &mut Going<'_>) -> Result<u64>;
    fn write(&mut self, size_bytes: u64, go_on: &mut Going<'_>) -> Result<bool>;
    fn read(&mut self, size_bytes: u64, go_on: &mut Going<'_>) -> Result<bool>;
    /// Makes what small files need around them.
    fn prepare_files(&mut self, count: u64) -> Result<()>;
    fn make_files(&mut self, count: u64, size_bytes: u64, go_on: &mut Going<'_>) -> Result<bool>;
    fn remove_files(&mut self, go_on: &mut Going<'_>) -> Result<u64>;
    /// Gives back what deletions left to be given back later.
    fn settle(&mut self) -> Result<()> {
        Ok(())
    }
    /// Removes whatever tests have left.
    fn clear(&mut self) -> Result<()>;
}

fn misread(path: &Path) -> Error {
    let cause = "what was read is not what was written";
    let advice = "do not trust this device, file system or memory before you know why";
    Error::new(ErrorKind::Corrupt, "read back the file of", cause).at(path).advise(advice)
}

/// Refuses directories that cannot be filled: two things in one file system, which would fill it together; and those on the root file system,
/// unless that is allowed.
///
/// # Errors
/// [`ErrorKind::Usage`] for the first that cannot be; if it cannot be told.
pub fn check_directories(directories: &[PathBuf], with_store: bool, allow_root: bool) -> Result<()> {
    let device = |path: &Path| -> Result<(u64, Mount)> {
        let found = fs::metadata(path).map_err(|error| Error::io("look at", path, error))?;
        Ok((found.dev(), volume::mount_of(path)?))
    };
    let refuse = |directory: &Path, cause: &str, advice: &str| {
        Err(Error::new(ErrorKind::Usage, "fill", cause).at(directory).advise(advice))
    };
    let (root_number, root) = device(Path::new("/"))?;
    let mut seen = Vec::new();
    for directory in directories {
        // One that is still to be made will be on the file system of what is above it.
        let above =
            directory.ancestors().map(|above| if above.as_os_str().is_empty() { Path::new(".") } else { above });
        let existing = above.into_iter().find(|above| above.exists()).unwrap_or(Path::new("/"));
        let (number, mount) = device(existing)?;
        // Subvolumes and bind mounts of the root have other numbers.
        let is_root = number == root_number
            || mount.device == root.device
            || (mount.kind == root.kind && mount.source == root.source && root.device.0 != 0);
        if is_root && !allow_root {
            let advice = "name a directory on another file system, have one made with --fs, or insist with --allow-root-file-system";
            return refuse(
                directory,
                "it is on the root file system, and a system whose root is full does not work",
                advice,
            );
        }
        if with_store {
            let cause = "files and a store in one directory would fill the same file system together";
            return refuse(directory, cause, "have file systems made with --fs, of which each has its own");
        }
        if seen.contains(&number) {
            let cause = "another directory that is to be filled is on the same file system";
            return refuse(directory, cause, "name one of them");
        }
        seen.push(number);
    }
    Ok(())
}

/// Runs the bench in prepared places; `announce` is told what it will come to before it begins.
///
/// # Errors
/// [`ErrorKind::NoSpace`] if no level can be tested on any place; [`ErrorKind::Corrupt`] if what is read is not what was written; whatever else fails.
pub fn fill(
    request: &FillRequest,
    mut run: Run,
    mut places: Vec<Prepared>,
    watch: Watch<'_>,
    announce: &dyn Fn(Estimate),
) -> Result<Document> {
    let content = if request.is_random { Content::random(run.seed()) } else { Content::zero() };
    let mut samples = Vec::new();
    let mut complete = make_whole(&mut places, watch)?;
    if complete {
        complete = read_devices(request, &mut places, &content, watch, &mut samples)?;
    }
    if complete {
        announce(estimate(request, &places, &samples)?);
    }
    let mut steps = Steps { request, watch, samples, reached: Vec::new(), left_out: Vec::new() };
    let mut subjects = Vec::new();
    for (at, place) in places.iter_mut().enumerate() {
        let ground: Box<dyn Ground> = match place.is_store() {
            true => Box::new(Objects::new(place.directory(), &content)?),
            false => Box::new(Files::new(place.directory(), &content)?),
        };
        let fill = Fill::new(run.seed().wrapping_add(at as u64));
        subjects.push(Tested { at, place, ground, fill, without: [false; GROUPS.len()], is_over: false });
    }
    for &level in &request.levels {
        complete = complete && steps.level(level, &mut subjects)?;
        if !complete {
            break;
        }
    }
    // What is open goes before the places do.
    drop(subjects);
    let Steps { samples, reached, left_out, .. } = steps;
    if complete && reached.is_empty() {
        let cause = left_out.first().map_or("there is no level to be reached", |left_out| &left_out.cause);
        return Err(Error::new(ErrorKind::NoSpace, "fill to any of the levels", cause)
            .advise("choose other --levels, or a larger --fs-size"));
    }
    if places.iter().any(Prepared::is_store) {
        run.note(
            "A store was compacted when a level was reached, then filled further, and compacted after each round of tests, outside of what is timed, so \
             that what was removed was given back. Where there was no room for that, it stays in the level.",
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

/// Writes the images of file systems that were made for the run full; gives whether it was not stopped.
fn make_whole(places: &mut [Prepared], watch: Watch<'_>) -> Result<bool> {
    for place in places {
        let name = place.name().to_owned();
        let Some(image) = place.image() else { continue };
        let mut go_on = |done: u64, total: u64| {
            let (done, total) = (done / MIB, total / MIB);
            watch.show(Progress { subject: &name, phase: "write the image full", round: 0, done, total });
            !watch.is_stopped()
        };
        if !image.fill_holes(&mut go_on)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// How fast the devices are; gives whether it was not stopped.
fn read_devices(
    request: &FillRequest,
    places: &mut [Prepared],
    content: &Content,
    watch: Watch<'_>,
    samples: &mut Vec<Sampled>,
) -> Result<bool> {
    for (at, place) in places.iter_mut().enumerate() {
        let name = place.name().to_owned();
        let Some(mut baseline) = Baseline::open(place, request.file_bytes, content)? else { continue };
        for repeat in 0..request.repeats {
            if watch.is_stopped() {
                return Ok(false);
            }
            watch.show(Progress { subject: &name, phase: "read the device", round: repeat, done: 0, total: 0 });
            let rate = baseline.rate(repeat, request.repeats)?;
            add(samples, (at, "device read", None), CacheState::Cold, rate);
        }
    }
    Ok(true)
}

/// What it will come to: rates of writing are taken to be half of that of reading, metadata operations to take 50 microseconds, and listing a cold
/// directory, which is a read of its own, 400.
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
        let slowest = emulated.map_or(0.0, |emulated| 1.0 / emulated.operations_per_second as f64);
        // Many are written back together.
        let metadata = operations as f64 * OPERATION_SECONDS.max(slowest / 10.0)
            + cold_reads as f64 * COLD_READ_SECONDS.max(slowest);
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
