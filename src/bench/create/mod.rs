//! `bench create`: the time of every create, stat and delete of many files, and the curve over their numbers.
//!
//! After Foddex, "Filesystem file-creation speed test" (2009): files `file-1`, `file-2`, … in one directory (or a
//! number of them in each of many), opened with O_CREAT | O_EXCL, written if they have a size, and closed; then stat of
//! each in the same order; then deletion of each in a chosen order. After each phase, its dirty data is written back;
//! that is timed separately. On a store, the operations are put, stat and remove of one object. Memory use does not
//! depend on the number of files.
//!
//! A failure because a file system is full is a result where that harms nobody: on a file system created for the run,
//! or where only the directory is full. If the file system of a user's directory is full, the run ends.

mod files;
mod name;
mod objects;
mod order;

use std::path::Path;
use std::time::{Duration, Instant};

use super::caches::touch_memory;
use super::place::Prepared;
use super::result::{CacheState, CreateDetails, CreatePhase, Details, Document, Series};
use super::run::{Measured, Run, stage, turns};
use super::samples::Latencies;
use crate::error::{Error, ErrorKind, Result};
use crate::population::scramble;
use crate::progress::Progress;
use crate::units::{format_count, format_duration, format_size};
use files::Files;
use objects::{LARGEST_OBJECT_BYTES, Objects};
use order::Numbers;
pub(crate) use order::Order;

/// Largest number of files.
pub(crate) const MOST_FILES: u64 = 1_000_000_000;
/// Operations per batch with [`Durability::Batch`].
const BATCH_OPERATIONS: u64 = 1000;
/// Largest write, in bytes.
const PIECE_BYTES: u64 = 1 << 20;
/// Kernel memory per cached file, in bytes: inode, directory entry, their pages.
const MEMORY_A_FILE_BYTES: u64 = 1536;
/// Least space per file, with its name and inode, in bytes.
const ROOM_A_FILE_BYTES: u64 = 512;
/// A file system with less than this share free is full.
const FULL_FRACTION: f64 = 0.005;

/// When operations are durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    /// After the sync that follows the phase.
    None,
    /// Each operation, on return: fsync of the file and of its directory; a batch of one object.
    Each,
    /// Every thousandth operation: syncfs; sync of the store.
    Batch,
}

impl Durability {
    /// Its name in results.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Durability::None => "none",
            Durability::Each => "each",
            Durability::Batch => "batch",
        }
    }

    /// Counts an operation since the last sync; returns whether it completes a batch, which must be made durable.
    fn ends_batch(self, since_sync: &mut u64) -> bool {
        *since_sync += 1;
        let ends = self == Durability::Batch && *since_sync == BATCH_OPERATIONS;
        if ends {
            *since_sync = 0;
        }
        ends
    }
}

/// A request for `bench create`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CreateRequest {
    /// Number of files.
    pub files: u64,
    /// Size of each.
    pub size_bytes: u64,
    /// Files per directory; 0 for all in one.
    pub directory_files: u64,
    /// Order of deletion.
    pub order: Order,
    /// When operations are durable.
    pub durability: Durability,
    /// Whether caches are dropped before each phase.
    pub is_cold: bool,
    /// Number of rounds.
    pub rounds: u64,
    /// Longest time for a phase of a turn; later phases continue with the files that exist then.
    pub longest: Option<Duration>,
}

/// A result, and the subjects that were left out.
#[derive(Debug)]
pub(crate) struct Created {
    /// The result.
    pub document: Document,
    /// Why each subject was left out.
    pub left_out: Vec<String>,
}

/// Creates, stats and deletes files.
trait FileOperations {
    fn create(&mut self, number: u64, latencies: &mut Latencies) -> Result<()>;
    fn stat(&mut self, number: u64, latencies: &mut Latencies) -> Result<()>;
    fn delete(&mut self, number: u64, latencies: &mut Latencies) -> Result<()>;
    /// Deletes the files in directory order while `go_on` returns true; `None` if there is no such order.
    fn delete_as_listed(
        &mut self,
        made: u64,
        latencies: &mut Latencies,
        go_on: &mut dyn FnMut(u64) -> bool,
    ) -> Option<Result<()>>;
    /// Makes everything durable.
    fn sync(&mut self) -> Result<()>;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Create,
    Stat,
    Delete,
}

impl Phase {
    const ALL: [Phase; 3] = [Phase::Create, Phase::Stat, Phase::Delete];

    fn name(self) -> &'static str {
        match self {
            Phase::Create => "create",
            Phase::Stat => "stat",
            Phase::Delete => "delete",
        }
    }
}

impl CreateRequest {
    /// Number of directories that hold the files; 0 if the files have no directories of their own.
    fn directories(&self) -> u64 {
        if self.directory_files == 0 { 0 } else { self.files.div_ceil(self.directory_files) }
    }

    /// Estimated space per file with blocks of `block_bytes`.
    fn room_a_file(&self, block_bytes: u64) -> u64 {
        let block_bytes = block_bytes.max(1);
        self.size_bytes.div_ceil(block_bytes).saturating_mul(block_bytes).saturating_add(ROOM_A_FILE_BYTES)
    }

    /// Checks that a place has enough space for the files.
    ///
    /// # Errors
    /// [`ErrorKind::NoSpace`] if it does not.
    fn check_room(&self, place: &mut Prepared) -> Result<()> {
        let room = place.room()?;
        let free = place.usable_bytes(&room);
        let advice = match place.image() {
            Some(_) => "increase --fs-size, or use fewer --files",
            None => "use fewer --files, or another directory",
        };
        let refuse = |cause: String| {
            let error = Error::new(ErrorKind::NoSpace, "create the files on", cause);
            Err(error.at(Path::new(place.name())).advise(advice))
        };
        let needed = self.files.saturating_mul(self.room_a_file(place.subject().file_system.block_bytes));
        if needed > free {
            return refuse(format!(
                "there is space for {}, but {} files need at least {}",
                format_size(free.into()),
                format_count(self.files.into()),
                format_size(needed.into())
            ));
        }
        let needed = self.files.saturating_add(self.directories());
        match room.available_inodes.filter(|_| place.counts_inodes() && !place.is_store()) {
            Some(inodes) if inodes < needed => refuse(format!(
                "there is space for {} inodes, but {} are needed",
                format_count(inodes.into()),
                format_count(needed.into())
            )),
            _ => Ok(()),
        }
    }
}

/// Result of a phase.
struct Passed {
    phase: CreatePhase,
    /// Whether it was asked to stop.
    stopped: bool,
}

/// Runs the bench in prepared places.
///
/// # Errors
/// [`ErrorKind::NoSpace`] if a place has too little space for the files, or a user's file system becomes full; any
/// error of an operation.
pub(crate) fn create(
    request: &CreateRequest,
    mut run: Run,
    places: Vec<Prepared>,
    progress: &Progress,
) -> Result<Created> {
    if places.iter().any(Prepared::is_store) && request.size_bytes > LARGEST_OBJECT_BYTES {
        let cause =
            format!("this bench writes objects of a store whole, up to {}", format_size(LARGEST_OBJECT_BYTES.into()));
        return Err(Error::new(ErrorKind::Usage, "measure a store", cause));
    }
    let (mut places, left_out) = leave_out(places)?;
    places.iter_mut().try_for_each(|place| request.check_room(place))?;
    left_out.iter().for_each(|why| run.note(why));
    let mut phases = Vec::new();
    let mut complete = true;
    for (round, at) in turns(request.rounds, places.len()) {
        let place = &mut places[at];
        if round > 0 {
            place.renew()?;
        }
        complete = turn(request, run.seed(), place, (round, at), progress, &mut phases)?;
        if !complete {
            break;
        }
    }
    if places.iter().any(Prepared::is_store) {
        run.note(store_note(request.durability));
    }
    let shortest_median_ns =
        phases.iter().filter(|phase| phase.latencies.count > 0).map(|phase| phase.latencies.p50_ns).min();
    let details = CreateDetails {
        files: request.files,
        size_bytes: request.size_bytes,
        directory_files: request.directory_files,
        order: request.order.name().to_owned(),
        durability: request.durability.name().to_owned(),
        phases,
    };
    let measured = Measured {
        series: series(&details.phases),
        details: Details::Create(details),
        shortest_median_ns: shortest_median_ns.map_or(f64::INFINITY, |median| median as f64),
        complete,
    };
    Ok(Created { document: run.end(places, measured), left_out })
}

/// Leaves out stores on file systems of the run that cannot hold one (some have no locks, for instance), and says why.
///
/// # Errors
/// The failure itself if nothing would be left, or in a user's directory.
fn leave_out(places: Vec<Prepared>) -> Result<(Vec<Prepared>, Vec<String>)> {
    let (mut kept, mut left_out, mut last) = (Vec::new(), Vec::new(), None);
    for mut place in places {
        match if place.is_store() { objects::try_store(place.directory()) } else { Ok(()) } {
            Ok(()) => {
                if place.is_store() {
                    place.renew()?;
                }
                kept.push(place);
            }
            Err(error) if place.image().is_some() => {
                left_out.push(format!("{} is skipped: {error}.", place.name()));
                last = Some(error);
            }
            Err(error) => return Err(error),
        }
    }
    match last.filter(|_| kept.is_empty()) {
        Some(error) => Err(error),
        None => Ok((kept, left_out)),
    }
}

/// One turn of a subject: all phases. Returns whether it finished.
fn turn(
    request: &CreateRequest,
    seed: u64,
    place: &mut Prepared,
    (round, at): (u64, usize),
    progress: &Progress,
    phases: &mut Vec<CreatePhase>,
) -> Result<bool> {
    touch_memory(request.files.saturating_mul(MEMORY_A_FILE_BYTES.saturating_add(request.size_bytes)));
    let mut caches = if request.is_cold { place.cool()? } else { CacheState::AsIs };
    let mut target = open(place, request, seed)?;
    let mut made = request.files;
    for phase in Phase::ALL {
        if phase != Phase::Create && request.is_cold {
            drop(target);
            caches = place.cool()?;
            target = open(place, request, seed)?;
        } else if phase != Phase::Create {
            // The files just created are still in memory, as far as they fit.
            caches = CacheState::Warm;
        }
        let passed = pass(request, seed ^ round, place, &mut *target, phase, (round, at, made), caches, progress)?;
        if phase == Phase::Create {
            made = passed.phase.latencies.count;
        }
        if passed.phase.latencies.count > 0 {
            phases.push(passed.phase);
        }
        if passed.stopped || progress.should_stop() {
            return Ok(false);
        }
    }
    Ok(true)
}

fn open(place: &Prepared, request: &CreateRequest, seed: u64) -> Result<Box<dyn FileOperations>> {
    Ok(match place.is_store() {
        true => Box::new(Objects::open(place.directory(), request, seed)?),
        false => Box::new(Files::open(place.directory(), request, seed)?),
    })
}

#[allow(clippy::too_many_arguments, reason = "one call, of things that have nothing else to do with each other")]
fn pass(
    request: &CreateRequest,
    seed: u64,
    place: &mut Prepared,
    target: &mut dyn FileOperations,
    phase: Phase,
    (round, at, made): (u64, usize, u64),
    caches: CacheState,
    progress: &Progress,
) -> Result<Passed> {
    // An operation may take microseconds or a tenth of a second.
    const OPERATIONS_BETWEEN: u64 = 16;
    let mut latencies = Latencies::default();
    let (mut limit, mut failed, mut stopped) = (None, None, false);
    let subject = place.name().to_owned();
    let order = if phase == Phase::Delete { request.order } else { Order::Creation };
    progress.begin(stage(&subject, phase.name(), round), made);
    let started = Instant::now();
    let mut go_on = |done: u64| {
        if done.is_multiple_of(OPERATIONS_BETWEEN) {
            progress.set_operations(done);
            if let Some(longest) = request.longest.filter(|longest| done > 0 && started.elapsed() >= *longest) {
                let (done, longest) = (format_count(done.into()), format_duration(longest.as_secs_f64()));
                limit = Some(format!(
                    "{subject}, {}: stopped at the time limit after {done} files in {longest}",
                    phase.name()
                ));
                return false;
            }
        }
        stopped = progress.should_stop();
        !stopped
    };
    let listed = match order {
        Order::Listed => target.delete_as_listed(made, &mut latencies, &mut go_on),
        _ => None,
    };
    match listed {
        Some(done) => done?,
        None => {
            for number in Numbers::new(order, made, seed) {
                if !go_on(latencies.count()) {
                    break;
                }
                let done = match phase {
                    Phase::Create => target.create(number, &mut latencies),
                    Phase::Stat => target.stat(number, &mut latencies),
                    Phase::Delete => target.delete(number, &mut latencies),
                };
                if let Err(error) = done {
                    failed = Some(limit_of(error, phase, place, latencies.count())?);
                    break;
                }
            }
        }
    }
    let elapsed_seconds = started.elapsed().as_secs_f64();
    let syncing = Instant::now();
    target.sync()?;
    place.sync()?;
    let sync_seconds = syncing.elapsed().as_secs_f64();
    let phase = CreatePhase {
        subject: at,
        round,
        phase: phase.name().to_owned(),
        elapsed_seconds,
        sync_seconds,
        caches,
        limit: limit.or(failed),
        latencies: latencies.summary(),
    };
    Ok(Passed { phase, stopped })
}

/// Explains a file that could not be created, if that is a harmless limit of the file system.
///
/// # Errors
/// The error itself in all other cases.
fn limit_of(error: Error, phase: Phase, place: &mut Prepared, made: u64) -> Result<String> {
    let room = place.room()?;
    let is_full = room.available_bytes < (room.total_bytes as f64 * FULL_FRACTION) as u64
        || room.available_inodes == Some(0) && !place.subject().file_system.kind.contains("fat");
    let is_limit = phase == Phase::Create && made > 0 && error.kind() == ErrorKind::NoSpace;
    if !is_limit || (is_full && place.image().is_none()) {
        return Err(error);
    }
    let what = match place.subject().file_system.kind.as_str() {
        _ if is_full => "the file system is full",
        // Its space for metadata can be full while there is space for data.
        "btrfs" => "the file system or its space for metadata is full",
        _ => "the directory is full",
    };
    Ok(format!("{} has space for {} files: {what}", place.name(), format_count(made.into())))
}

fn store_note(durability: Durability) -> String {
    match durability {
        Durability::None => {
            "Objects of the store were committed one by one and not synced; files were not synced either. The sync \
                after each phase is timed separately."
        }
        Durability::Each => {
            "Every operation was durable when it returned: objects of the store in batches of one, files by fsync of \
                the file and its directory."
        }
        Durability::Batch => {
            "Every 1,000 operations were made durable together, in the store by a sync, for files by syncfs; the time \
                counts for the thousandth."
        }
    }
    .to_owned()
}

/// The rates of each phase, and the times of the syncs after it, by subject.
fn series(phases: &[CreatePhase]) -> Vec<Series> {
    let mut all: Vec<Series> = Vec::new();
    let subjects = phases.iter().map(|phase| phase.subject).max().map_or(0, |last| last + 1);
    for subject in 0..subjects {
        for phase in Phase::ALL {
            let of = || phases.iter().filter(move |passed| passed.subject == subject && passed.phase == phase.name());
            let Some(first) = of().next() else { continue };
            let rate = |passed: &CreatePhase| passed.latencies.count as f64 / passed.elapsed_seconds.max(1e-9);
            all.push(Series::new(subject, phase.name(), "operations/s", first.caches, of().map(rate).collect()));
            let name = format!("sync after {}", phase.name());
            all.push(Series::new(
                subject,
                name,
                "seconds",
                CacheState::AsIs,
                of().map(|passed| passed.sync_seconds).collect(),
            ));
        }
    }
    all
}

/// Content to write: as long as a file, at most a mebibyte, determined by the seed.
fn content(size_bytes: u64, seed: u64) -> Vec<u8> {
    let length = size_bytes.min(PIECE_BYTES) as usize;
    let words = (0..length.div_ceil(8) as u64).flat_map(|at| scramble(seed.wrapping_add(at)).to_le_bytes());
    words.take(length).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::bench::place::{Besides, Place};
    use crate::bench::run;

    fn request(files: u64) -> CreateRequest {
        CreateRequest {
            files,
            size_bytes: 10,
            directory_files: 7,
            order: Order::Random,
            durability: Durability::None,
            is_cold: false,
            rounds: 3,
            longest: None,
        }
    }

    /// Runs in a new directory, and stops after this many progress reports.
    fn run_until(request: &CreateRequest, words: u64) -> Result<Created> {
        let sandbox = tempfile::tempdir().unwrap();
        let asked = run::Request { command_line: Vec::new(), seed: 3, scratch: sandbox.path().to_owned() };
        let mut run = Run::begin(asked)?;
        let places = run.prepare(
            &[Place::Directory(sandbox.path().join("place"))],
            Besides { store: true, ..Besides::default() },
        )?;
        let said = AtomicU64::new(0);
        let progress = Progress::observed(move |progress| {
            if said.fetch_add(1, Ordering::Relaxed) + 1 >= words {
                progress.stop();
            }
        });
        if words == 0 {
            progress.stop();
        }
        let created = create(request, run, places, &progress);
        assert_eq!(std::fs::read_dir(sandbox.path()).unwrap().count(), 0);
        created
    }

    #[test]
    fn a_stopped_run_has_what_was_done() {
        let details = |words| match run_until(&request(100), words).unwrap().document {
            Document { details: Details::Create(details), complete, .. } => (details.phases, complete),
            other => panic!("{other:?}"),
        };
        assert_eq!(details(0), (Vec::new(), false));
        let (phases, complete) = details(6);
        assert!(!complete && phases.len() == 1, "{phases:?}");
        assert_eq!((phases[0].latencies.count, phases[0].limit.as_ref()), (64, None));
        let (phases, complete) = details(u64::MAX);
        assert!(complete && phases.len() == 2 * 3 * 3);
    }

    #[test]
    fn what_there_is_no_room_for_is_not_begun() {
        let error = run_until(&request(MOST_FILES * 1000), 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoSpace);
        let large = CreateRequest { size_bytes: LARGEST_OBJECT_BYTES + 1, ..request(1) };
        assert_eq!(run_until(&large, 1).unwrap_err().kind(), ErrorKind::Usage);
    }

    #[test]
    fn content_is_that_of_its_seed() {
        assert_eq!((content(0, 1).len(), content(13, 1).len(), content(3 << 20, 1).len()), (0, 13, 1 << 20));
        assert_eq!(content(100, 1), content(100, 1));
        assert_ne!(content(100, 1), content(100, 2));
    }
}
