//! `bench cache`: the run time of a workload over the size of the page cache and the block size of the file system.
//!
//! After Tanenbaum, Herder and Bos (2006), Fig. 5, which set the cache of an operating system to sizes from 0.5 to 8 MB
//! and compiled a large collection of programs on file systems with blocks of 1 to 8 KB. Here the limit applies to a
//! memory control group that the workload runs in; it bounds page cache and memory of the programs together. Before
//! each run, the file system is recreated, filled and remounted with cold caches. The device below it caches nothing
//! (direct I/O).
//!
//! | module | subject |
//! | --- | --- |
//! | `project` | the default workload: compiling a generated C project |
//! | `workload` | runs a command with a memory limit, and measures it |
//! | `fit` | choice of cache sizes |
//! | [`published`] | the figure of the paper |

mod fit;
mod project;
mod workload;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::confine::{self, Confined};
use super::file_systems::{FileSystemKind, FileSystemSpec};
use super::images;
use super::place::{Besides, Place, Prepared};
use super::programs;
use super::result::{CacheCell, CacheDetails, CacheState, CellFailure, Details, Document, Series};
use super::run::{Measured, Run, stage, turns};
use super::samples::Spread;
use super::scratch::Scratch;
use crate::error::{Error, ErrorKind, Result};
use crate::progress::Progress;
use crate::units::{GIB, KIB, MIB, escape_path, format_size};
pub(crate) use project::Project;
use workload::Ran;

/// Default limit of a run: this many times the run time without a memory limit.
pub(crate) const LONGEST_FACTOR: f64 = 10.0;
/// A run may take at least this long, however short it is without a limit.
const LEAST_LONGEST: Duration = Duration::from_secs(10);
/// Space for the compiler and its temporary files, or for the output of a command.
const PROJECT_ROOM_BYTES: u64 = 512 << 20;
/// The largest block size that is measured if none is named.
const LARGEST_USUAL_BLOCK_BYTES: u64 = 8 * KIB;
/// A block size that every kernel mounts if it knows the file system at all.
const ORDINARY_BLOCK_BYTES: u64 = 4 * KIB;

/// The workload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Workload {
    /// Compiling a generated project.
    Compile(Project),
    /// A command of the user, in a copy of a directory of theirs.
    Command {
        /// Program and arguments.
        command: Vec<OsString>,
        /// Tree that is copied to where the command runs; `None` if the command needs none.
        tree: Option<PathBuf>,
    },
}

/// A request for `bench cache`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CacheRequest {
    /// The workload.
    pub workload: Workload,
    /// Limits, in bytes; if empty, five from the least with which the workload runs to twice its footprint.
    pub sizes_bytes: Vec<u64>,
    /// Longest run; a longer one is killed. By default, ten times the run time without a limit.
    pub longest: Option<Duration>,
    /// Number of rounds.
    pub rounds: u64,
}

impl Workload {
    /// Describes the workload.
    pub(crate) fn name(&self) -> String {
        match self {
            Workload::Compile(project) => project.name(),
            Workload::Command { command, .. } => {
                command.iter().map(|word| escape_path(Path::new(word))).collect::<Vec<_>>().join(" ")
            }
        }
    }

    /// Checks the requirements except space, before anything is created.
    ///
    /// # Errors
    /// A missing program, with its package; a tree that does not exist.
    pub(crate) fn check(&self) -> Result<()> {
        programs::find("sh")?;
        match self {
            Workload::Compile(_) => programs::find(project::COMPILER).map(|_| ()),
            Workload::Command { tree: Some(tree), .. } => {
                programs::find("cp")?;
                let found = fs::metadata(tree).map_err(|error| Error::io("copy", tree, error))?;
                if found.is_dir() {
                    Ok(())
                } else {
                    Err(Error::new(ErrorKind::Usage, "copy", "it is not a directory").at(tree))
                }
            }
            Workload::Command { tree: None, .. } => Ok(()),
        }
    }

    /// Size of a file system with enough space for the workload and its output, with blocks of any of these sizes; if
    /// there are none, of the usual ones.
    ///
    /// # Errors
    /// Errors from reading the tree.
    pub(crate) fn room_bytes(&self, block_sizes: &[u64]) -> Result<u64> {
        match self {
            Workload::Command { tree: Some(tree), .. } => {
                Ok(allocated_below(tree)?.saturating_mul(2).saturating_add(PROJECT_ROOM_BYTES).next_multiple_of(MIB))
            }
            Workload::Command { tree: None, .. } => Ok(GIB),
            Workload::Compile(project) => {
                let block_bytes = block_sizes.iter().copied().max().unwrap_or(0).max(LARGEST_USUAL_BLOCK_BYTES);
                Ok(PROJECT_ROOM_BYTES.saturating_add(project.room_bytes(block_bytes)).next_multiple_of(MIB))
            }
        }
    }

    /// Fills an empty directory with the workload's files; returns a note for the result.
    fn fill(&self, directory: &Path, scratch: &Scratch) -> Result<Option<String>> {
        match self {
            Workload::Compile(project) => {
                let (passes, bytes) = project.write(directory)?;
                Ok(Some(project::note(&passes, bytes)))
            }
            Workload::Command { tree: Some(tree), .. } => {
                // Everything in it, hidden or not.
                let from = tree.join(".");
                let arguments = [OsStr::new("-a"), OsStr::new("--"), from.as_os_str(), directory.as_os_str()];
                programs::run("copy the files that the command needs", "cp", arguments, scratch.lock())?;
                Ok(None)
            }
            Workload::Command { tree: None, .. } => Ok(None),
        }
    }

    fn command(&self) -> Vec<OsString> {
        match self {
            Workload::Compile(project) => project.command().map(OsString::from).to_vec(),
            Workload::Command { command, .. } => command.clone(),
        }
    }
}

/// Allocated bytes of the files below a directory.
fn allocated_below(directory: &Path) -> Result<u64> {
    use std::os::unix::fs::MetadataExt;
    let fail = |error| Error::io("list", directory, error);
    let mut bytes = 0u64;
    for entry in fs::read_dir(directory).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        let found = entry.metadata().map_err(fail)?;
        bytes = bytes.saturating_add(found.blocks().saturating_mul(512).max(ORDINARY_BLOCK_BYTES));
        if found.is_dir() {
            bytes = bytes.saturating_add(allocated_below(&entry.path())?);
        }
    }
    Ok(bytes)
}

/// Block sizes of the published figure.
const PUBLISHED_BLOCK_SIZES: [u64; 4] = [KIB, 2 * KIB, 4 * KIB, LARGEST_USUAL_BLOCK_BYTES];

/// Block sizes to measure for a kind of file system if none are named: those of the published figure that it supports.
/// Empty for the default of its mkfs.
pub(crate) fn usual_block_sizes(kind: FileSystemKind) -> &'static [u64] {
    match kind {
        FileSystemKind::Ext2 | FileSystemKind::Ext3 | FileSystemKind::Ext4 => &PUBLISHED_BLOCK_SIZES[..3],
        FileSystemKind::Xfs => &PUBLISHED_BLOCK_SIZES,
        _ => &[],
    }
}

/// The file system to measure if none is named: XFS, which has all published block sizes, where it can be created.
pub(crate) fn usual_file_system() -> FileSystemKind {
    if images::is_possible(FileSystemKind::Xfs) { FileSystemKind::Xfs } else { FileSystemKind::Ext4 }
}

/// Returns the places with each of the block sizes, or with the usual ones for their kind.
///
/// # Errors
/// [`ErrorKind::Usage`] for a block size that no kind supports.
fn with_block_sizes(places: &[Place], block_sizes: &[u64]) -> Result<Vec<Place>> {
    let takes = |place: &Place, block_bytes: u64| match place {
        Place::FileSystem(spec) => spec.kind.possible_block_bytes().contains(&block_bytes),
        Place::Directory(_) => false,
    };
    if let Some(wrong) = block_sizes.iter().find(|&&size| !places.iter().any(|place| takes(place, size))) {
        let cause = format!("none of these file systems supports blocks of {}", format_size((*wrong).into()));
        return Err(Error::new(ErrorKind::Usage, "create the file systems", cause)
            .advise("ext4 supports 1K, 2K and 4K, xfs 1K to 64K"));
    }
    let mut all = Vec::new();
    for place in places {
        let Place::FileSystem(spec) = place else {
            all.push(place.clone());
            continue;
        };
        let sizes: Vec<u64> = match block_sizes {
            [] => usual_block_sizes(spec.kind).to_vec(),
            named => named.iter().copied().filter(|&size| takes(place, size)).collect(),
        };
        match sizes.as_slice() {
            [] => all.push(place.clone()),
            sizes => all.extend(sizes.iter().map(|&block_bytes| {
                Place::FileSystem(FileSystemSpec { block_bytes: Some(block_bytes), ..spec.clone() })
            })),
        }
    }
    Ok(all)
}

/// Prepares the places: each file system with each of `block_sizes`, or with the usual ones if none are named. Usual
/// sizes that this kernel cannot mount are left out, with a note in the result.
///
/// # Errors
/// Same as [`Run::prepare`]; errors from setting up memory limits.
pub(crate) fn prepare(run: &mut Run, places: &[Place], block_sizes: &[u64]) -> Result<Vec<Prepared>> {
    confine::check()?;
    let all = with_block_sizes(places, block_sizes)?;
    let specs: Vec<FileSystemSpec> = all
        .iter()
        .filter_map(|place| match place {
            Place::FileSystem(spec) => Some(spec.clone()),
            Place::Directory(_) => None,
        })
        .collect();
    images::check(&specs)?;
    if specs.iter().any(|spec| spec.emulation.is_some()) {
        confine::check_beside_slow_devices()?;
    }
    run.refuse_doubles(&all)?;
    let mut prepared = Vec::new();
    for place in &all {
        let may_be_too_large = |place: &Place| match place {
            Place::FileSystem(spec) => {
                block_sizes.is_empty() && spec.block_bytes.is_some_and(|bytes| bytes > ORDINARY_BLOCK_BYTES)
            }
            Place::Directory(_) => false,
        };
        match run.prepare_place(place, &all, Besides::default()) {
            Ok(mut places) => prepared.append(&mut places),
            Err(error) if may_be_too_large(place) && error.kind() == ErrorKind::Io => {
                run.note(format!("Skipped because this kernel cannot mount it: {error}."));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(prepared)
}

/// A cell of the matrix, while it is measured.
#[derive(Debug, Default)]
struct Cell {
    seconds: Vec<f64>,
    device_bytes: Vec<f64>,
    device_reads: Vec<f64>,
    process_bytes: Vec<f64>,
    page_cache_bytes: u64,
    anonymous_bytes: u64,
    failure: Option<CellFailure>,
    caches: Option<CacheState>,
}

/// Measurements of one run.
struct Trial {
    ran: Ran,
    caches: CacheState,
    /// A note on the workload for the result.
    note: Option<String>,
}

/// Runs the workload with every limit in every place.
///
/// # Errors
/// Errors from preparing a place; a workload that fails without a limit.
pub(crate) fn cache(
    request: &CacheRequest,
    mut run: Run,
    mut places: Vec<Prepared>,
    progress: &Progress,
) -> Result<Document> {
    let scratch = run.scratch()?;
    if let Workload::Compile(_) = request.workload {
        run.uses(project::COMPILER);
    }
    let blocks: Vec<u64> = places.iter().map(|place| place.subject().file_system.block_bytes).collect();
    let mut details = CacheDetails { workload: request.workload.name(), ..CacheDetails::default() };
    details.block_sizes_bytes = blocks.clone();
    details.block_sizes_bytes.sort_unstable();
    details.block_sizes_bytes.dedup();
    let fitted = fit(request, &scratch, &mut run, &mut places, progress, &mut details)?;
    let sizes = details.cache_sizes_bytes.clone();
    let mut cells: Vec<Cell> = Vec::new();
    cells.resize_with(sizes.len() * places.len(), Cell::default);
    let mut complete = fitted;
    let longest = Duration::from_secs_f64(details.longest_seconds);
    for (round, turn) in turns(request.rounds, cells.len()) {
        let (size, at) = (turn / places.len(), turn % places.len());
        if !complete || progress.should_stop() {
            complete = false;
            break;
        }
        // A limit that was too small once is not tried again.
        if cells[turn].failure.is_some() {
            continue;
        }
        let phase = format!("with {}", format_size(sizes[size].into()));
        progress.begin(stage(places[at].name(), &phase, round), 0);
        match trial(request, &scratch, &mut places[at], Some(sizes[size]), Some(longest), progress)? {
            Some(trial) => cells[turn].take(trial),
            None => complete = false,
        }
    }
    let mut series = Vec::new();
    for (turn, cell) in cells.into_iter().enumerate() {
        let (cache_bytes, at) = (sizes[turn / places.len()], turn % places.len());
        let levels = |series: Series| Series {
            level: Some(cache_bytes as f64),
            second_level: Some(blocks[at] as f64),
            ..series
        };
        let Some(caches) = cell.caches else { continue };
        details.cells.push(cell.summary(at, cache_bytes, blocks[at]));
        if !cell.seconds.is_empty() {
            series.push(levels(Series::new(at, "run", "seconds", caches, cell.seconds)));
            series.push(levels(Series::new(at, "read from the device", "bytes", caches, cell.device_bytes)));
        }
    }
    run.note(
        "The limit covers the page cache and the memory of the programs together; swap is not used. Before each run \
            the file system is recreated and mounted with cold caches.",
    );
    if places.iter_mut().any(|place| place.image().is_none()) {
        run.note("For a directory, all reads of its device are shown, including those of other processes.");
    }
    let details = Details::Cache(details);
    Ok(run.end(places, Measured { series, details, shortest_median_ns: f64::INFINITY, complete }))
}

impl Cell {
    fn take(&mut self, Trial { ran, caches, .. }: Trial) {
        self.caches = Some(caches);
        self.page_cache_bytes = self.page_cache_bytes.max(ran.charged.page_cache_bytes);
        self.anonymous_bytes = self.anonymous_bytes.max(ran.charged.anonymous_bytes);
        match ran.failure {
            None => {
                self.seconds.push(ran.seconds);
                self.device_bytes.push(ran.device.bytes as f64);
                self.device_reads.push(ran.device.reads as f64);
                self.process_bytes.extend(ran.process_read_bytes.map(|bytes| bytes as f64));
            }
            Some(failure) => self.failure = Some(failure),
        }
    }

    fn summary(&self, subject: usize, limit_bytes: u64, block_bytes: u64) -> CacheCell {
        let median = |samples: &[f64]| Spread::of(samples).median as u64;
        CacheCell {
            subject,
            limit_bytes,
            block_bytes,
            read_bytes: median(&self.device_bytes),
            reads: median(&self.device_reads),
            process_read_bytes: (!self.process_bytes.is_empty()).then(|| median(&self.process_bytes)),
            page_cache_bytes: self.page_cache_bytes,
            anonymous_bytes: self.anonymous_bytes,
            failure: self.failure.clone(),
        }
    }
}

/// In the first place, measures the footprint without a limit and finds the least limit with which the workload runs;
/// returns whether it finished.
fn fit(
    request: &CacheRequest,
    scratch: &Scratch,
    run: &mut Run,
    places: &mut [Prepared],
    progress: &Progress,
    details: &mut CacheDetails,
) -> Result<bool> {
    let Some(place) = places.first_mut() else {
        return Err(Error::new(ErrorKind::Usage, "start", "no target was named"));
    };
    details.cache_sizes_bytes = request.sizes_bytes.clone();
    let show = |place: &Prepared, phase: &str| progress.begin(stage(place.name(), phase, 0), 0);
    show(place, "without a limit");
    let Some(Trial { ran, note, .. }) = trial(request, scratch, place, None, None, progress)? else { return Ok(false) };
    note.into_iter().for_each(|note| run.note(note));
    if let Some(failure) = ran.failure {
        let cause = failure.cause;
        return Err(Error::new(ErrorKind::Usage, "measure the workload", format!("without a memory limit, {cause}"))
            .advise("make sure that it runs in its own directory; --tree DIR copies the files that it needs there"));
    }
    let footprint_bytes = ran.peak_bytes.unwrap_or(ran.charged.page_cache_bytes + ran.charged.anonymous_bytes);
    let usual = Duration::from_secs_f64(ran.seconds * LONGEST_FACTOR).max(LEAST_LONGEST);
    let longest = request.longest.unwrap_or(usual);
    details.unlimited_seconds = ran.seconds;
    details.footprint_bytes = footprint_bytes;
    details.longest_seconds = longest.as_secs_f64();
    if !request.sizes_bytes.is_empty() {
        return Ok(true);
    }
    let (mut stopped, mut last) = (false, None);
    let found = fit::least(footprint_bytes, &mut |limit_bytes| {
        show(place, &format!("searching for the smallest limit that works, with {}", format_size(limit_bytes.into())));
        let tried = trial(request, scratch, place, Some(limit_bytes), Some(longest), progress)?;
        stopped = tried.is_none();
        Ok(tried.map(|tried| {
            let works = tried.ran.failure.is_none();
            last = tried.ran.failure.map(|failure| failure.cause);
            works
        }))
    })?;
    match found {
        Some(least_bytes) => {
            details.least_bytes = Some(least_bytes);
            details.cache_sizes_bytes = fit::sizes(least_bytes, footprint_bytes);
            Ok(true)
        }
        None if stopped => Ok(false),
        None => {
            let cause = format!(
                "without a limit it needs {}; with a limit of twice that, {}",
                format_size(footprint_bytes.into()),
                last.unwrap_or_default()
            );
            Err(Error::new(ErrorKind::Usage, "find cache sizes for the workload", cause)
                .advise("name them with --cache-size 64M,128M, or allow more time with --longest 600"))
        }
    }
}

/// Runs the workload once, on an empty file system; `None` if it was asked to stop.
fn trial(
    request: &CacheRequest,
    scratch: &Scratch,
    place: &mut Prepared,
    limit_bytes: Option<u64>,
    longest: Option<Duration>,
    progress: &Progress,
) -> Result<Option<Trial>> {
    place.renew()?;
    let note = request.workload.fill(place.directory(), scratch)?;
    place.sync()?;
    let caches = place.cool()?;
    let group = Confined::new(scratch.path(), limit_bytes)?;
    let device = place.device_number();
    let ran = workload::run(&request.workload.command(), place.directory(), &group, device, longest, progress)?;
    Ok(ran.map(|ran| Trial { ran, caches, note }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::run::Request;

    fn file_system(kind: FileSystemKind) -> Place {
        Place::FileSystem(FileSystemSpec::new(kind, GIB))
    }

    fn blocks(places: &[Place]) -> Vec<Option<u64>> {
        places
            .iter()
            .map(|place| match place {
                Place::FileSystem(spec) => spec.block_bytes,
                Place::Directory(_) => None,
            })
            .collect()
    }

    #[test]
    fn every_file_system_has_the_blocks_that_it_can_have() {
        let places =
            [file_system(FileSystemKind::Ext4), file_system(FileSystemKind::Btrfs), Place::Directory("a".into())];
        let usual = with_block_sizes(&places, &[]).unwrap();
        assert_eq!(blocks(&usual), [Some(KIB), Some(2 * KIB), Some(4 * KIB), None, None]);
        let of_xfs = with_block_sizes(&[file_system(FileSystemKind::Xfs)], &[]).unwrap();
        assert_eq!(blocks(&of_xfs), [KIB, 2 * KIB, 4 * KIB, 8 * KIB].map(Some));
        let named = with_block_sizes(&places, &[2 * KIB, 16 * KIB]).unwrap();
        assert_eq!(blocks(&named), [Some(2 * KIB), Some(16 * KIB), None]);
        assert_eq!(with_block_sizes(&places, &[128 * KIB]).unwrap_err().kind(), ErrorKind::Usage);
        assert_eq!(with_block_sizes(&places[2..], &[KIB]).unwrap_err().kind(), ErrorKind::Usage);
    }

    #[test]
    fn directories_with_the_same_last_name_are_told_apart() {
        if let Err(error) = confine::check() {
            return crate::skipped::skip(&error.to_string());
        }
        let sandbox = tempfile::tempdir().unwrap();
        let places = ["one", "other"].map(|above| {
            fs::create_dir(sandbox.path().join(above)).unwrap();
            Place::Directory(sandbox.path().join(above).join("work"))
        });
        let scratch = sandbox.path().to_owned();
        let mut run = Run::begin(Request { command_line: Vec::new(), seed: 1, scratch }).unwrap();
        let prepared = prepare(&mut run, &places, &[]).unwrap();
        let names: Vec<&str> = prepared.iter().map(Prepared::name).collect();
        assert!(names[0].ends_with("one/work") && names[1].ends_with("other/work"), "{names:?}");
    }

    #[test]
    fn a_project_has_room_for_each_of_its_programs() {
        let room = |programs: u64, block_sizes: &[u64]| {
            Workload::Compile(Project { programs, ..Project::default() }).room_bytes(block_sizes).unwrap()
        };
        assert!((PROJECT_ROOM_BYTES..2 * PROJECT_ROOM_BYTES).contains(&room(5, &[])));
        assert!(room(10_000, &[]) > 10_000 * 100 * KIB);
        // Four sources, their objects, the program and a directory.
        assert!(room(10_000, &[KIB, 64 * KIB]) > 10_000 * 10 * 64 * KIB);
    }

    #[test]
    fn a_tree_has_room_for_itself_twice() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("below")).unwrap();
        fs::write(directory.path().join("below/file"), vec![b'x'; 3 << 20]).unwrap();
        let workload = Workload::Command { command: vec!["true".into()], tree: Some(directory.path().to_owned()) };
        workload.check().unwrap();
        let room = workload.room_bytes(&[]).unwrap() - PROJECT_ROOM_BYTES;
        assert!((6 << 20..9 << 20).contains(&room), "{room}");
        let file = Workload::Command { command: Vec::new(), tree: Some(directory.path().join("below/file")) };
        assert_eq!(file.check().unwrap_err().kind(), ErrorKind::Usage);
        assert_eq!(workload.name(), "true");
    }
}
