//! `bench metadata`: what Welch and Noer (2013) measured to find out what SSDs add to disks, their Table III.
//!
//! | part | the paper | here |
//! | --- | --- | --- |
//! | load | SPEC SFS 2008: operations per second and response time | its mix of operations, offered in an open loop at increasing rates |
//! | check | an offline check of 20 million files | `Store::check`, and e2fsck, xfs_repair, btrfs check, fsck.fat, fsck.exfat |
//! | list | `ls -l` of a directory of a million files | names and attributes, in directory order |
//! | reads | 60,000 reads of small files | whole files, each once, by one thread, by several, as one batch |
//!
//! All but the load begin with cold caches and change nothing. The files are created once, on devices at full speed;
//! slow devices are limited only while they are measured.

mod check;
mod files;
mod layout;
mod load;
mod mix;
mod on_files;
mod on_store;
mod parts;
pub(crate) mod published;
mod reads;
mod series;
mod target;

use std::path::Path;
use std::time::Duration;

use super::place::Prepared;
use super::result::{Details, Document, MetadataDetails};
use super::run::{Measured, Run, stage, turns};
use crate::distribution::Distribution;
use crate::error::{Error, ErrorKind, Result};
use crate::progress::Progress;
use crate::units::{format_count, format_size};
use files::FileSet;
pub(crate) use files::LARGEST_BYTES;
pub(crate) use layout::{StoreLayout, Stores, Subject, prepare};
pub(crate) use mix::Mix;
use on_files::Filled;
use parts::{Bench, Results};
pub(crate) use series::SUSTAINED_FRACTION;
use target::Fresh;

/// Least space per file, with its name and inode, in bytes.
const ROOM_A_FILE_BYTES: u64 = 128;

/// Which parts are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// The mix of operations at increasing rates.
    Load,
    /// A full check; for a store, of every byte.
    Check,
    /// A directory with many entries.
    List,
    /// Random reads of small files.
    Reads,
}

/// Offered rates.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Loads {
    /// From this rate on, doubled until it is not sustained.
    From(f64),
    /// These rates, ascending.
    These(Vec<f64>),
}

/// A request for `bench metadata`.
#[derive(Debug, Clone)]
pub(crate) struct MetadataRequest {
    /// Source of the sizes.
    pub source: String,
    /// Distribution of file sizes.
    pub sizes: Distribution,
    /// Number of files.
    pub files: u64,
    /// Largest size, in bytes.
    pub largest_bytes: u64,
    /// Files per directory.
    pub directory_files: u64,
    /// Entries of the directory with many entries.
    pub listed: u64,
    /// Largest small file, in bytes.
    pub small_bytes: u64,
    /// Number of small files to read.
    pub reads: u64,
    /// Time limit for the reads.
    pub longest_reads: Duration,
    /// Shares of operations.
    pub mix: Mix,
    /// Offered rates.
    pub loads: Loads,
    /// Threads that perform the operations, and threads that read in parallel.
    pub threads: u64,
    /// Time at each rate that is discarded.
    pub warm_up: Duration,
    /// Measured time at each rate.
    pub window: Duration,
    /// Time limit for the loads of a subject in a round.
    pub longest_loads: Option<Duration>,
    /// Largest READ or WRITE, in bytes.
    pub transfer_bytes: u64,
    /// Whether modifying operations are durable when they return.
    pub is_durable: bool,
    /// Parts to measure.
    pub parts: Vec<Part>,
    /// Number of rounds.
    pub rounds: u64,
}

impl MetadataRequest {
    fn file_set(&self) -> Result<FileSet> {
        FileSet::new(&self.sizes, self.files, self.largest_bytes, self.directory_files, 0)
    }

    fn has(&self, part: Part) -> bool {
        self.parts.contains(&part)
    }

    fn details(&self, set: &FileSet) -> MetadataDetails {
        MetadataDetails {
            mix: self.mix.shares(),
            source: self.source.clone(),
            files: self.files,
            size_bytes: set.totals(1).0,
            directory_files: self.directory_files,
            listed: self.listed,
            small_bytes: self.small_bytes,
            reads: self.reads,
            threads: self.threads,
            transfer_bytes: self.transfer_bytes,
            is_durable: self.is_durable,
            warm_up_seconds: self.warm_up.as_secs_f64(),
            window_seconds: self.window.as_secs_f64(),
            ..MetadataDetails::default()
        }
    }
}

/// A target, with its files.
#[derive(Debug)]
struct Candidate {
    subject: Subject,
    filled: Filled,
    fresh: Fresh,
}

impl Candidate {
    /// Whether its file system was made for the run.
    fn is_made(&mut self) -> bool {
        self.subject.place.image().is_some()
    }
}

/// Measures the requested parts.
///
/// # Errors
/// Errors from filling a place or measuring in it; [`ErrorKind::Corrupt`] if the bytes read differ from those written.
pub(crate) fn metadata(
    request: &MetadataRequest,
    mut run: Run,
    mut subjects: Vec<Subject>,
    progress: &Progress,
) -> Result<Document> {
    let set = FileSet::new(&request.sizes, request.files, request.largest_bytes, request.directory_files, run.seed())?;
    let mut details = request.details(&set);
    subjects.iter_mut().try_for_each(|subject| check_room(request, &set, &mut subject.place))?;
    let mut complete = true;
    let mut candidates = Vec::new();
    for mut subject in subjects {
        let filled = match complete && !progress.should_stop() {
            true => fill(request, &set, &mut subject, progress, &mut details)?,
            false => None,
        };
        complete &= filled.is_some();
        let filled = filled.unwrap_or(Filled { has_links: false, listed: 0 });
        candidates.push(Candidate { subject, filled, fresh: Fresh::new() });
    }
    let scratch = run.scratch()?;
    let mut bench = Bench::new(request, &set, &scratch, progress, details);
    if complete {
        for (round, at) in turns(request.rounds, candidates.len()) {
            complete = complete && bench.run_cold_parts(&mut candidates[at], at, round)?;
        }
    }
    if complete && request.has(Part::Load) {
        complete = bench.loads(&mut candidates)?;
    }
    let Results { details, series, notes, shortest_median_ns } = bench.end();
    notes.into_iter().for_each(|note| run.note(note));
    note_programs(request, &mut run, &mut candidates);
    let places: Vec<Prepared> = candidates.into_iter().map(|candidate| candidate.subject.place).collect();
    Ok(run.end(places, Measured { series, details: Details::Metadata(details), shortest_median_ns, complete }))
}

/// Adds the programs that check the file systems, for their versions.
fn note_programs(request: &MetadataRequest, run: &mut Run, candidates: &mut [Candidate]) {
    for candidate in candidates.iter_mut().filter(|_| request.has(Part::Check)) {
        let place = &mut candidate.subject.place;
        if !place.is_store()
            && !place.is_mount()
            && let Some(image) = place.image()
            && let Some((program, _)) = check::program(image.spec().kind)
        {
            run.uses(program);
        }
    }
}

/// Checks that a place has enough space for the files.
fn check_room(request: &MetadataRequest, set: &FileSet, place: &mut Prepared) -> Result<()> {
    let room = place.room()?;
    let free = place.usable_bytes(&room);
    let advice = match place.image() {
        Some(_) => "increase --fs-size, or use fewer --files and --listed",
        None => "use fewer --files and --listed, or another directory",
    };
    let refuse = |cause: String| {
        Err(Error::new(ErrorKind::NoSpace, "create the files on", cause).at(Path::new(place.name())).advise(advice))
    };
    let block_bytes = if place.is_store() { 1 } else { place.subject().file_system.block_bytes };
    let needed = request.entries().saturating_mul(ROOM_A_FILE_BYTES).saturating_add(set.totals(block_bytes).1);
    // A hybrid store has most of its bytes on other devices.
    if needed > free && place.further().is_empty() {
        return refuse(format!(
            "there is space for {}, but {} files need at least {}",
            format_size(free.into()),
            format_count(request.entries().into()),
            format_size(needed.into())
        ));
    }
    match room.available_inodes {
        // FAT and others report in this way that they have no fixed number of inodes.
        Some(0) | None => Ok(()),
        Some(inodes) if place.is_store() || inodes >= request.entries() => Ok(()),
        Some(inodes) => refuse(format!(
            "it has {} inodes left, but {} files need one each",
            format_count(inodes.into()),
            format_count(request.entries().into())
        )),
    }
}

/// Creates the files of a place; `None` if it was asked to stop.
fn fill(
    request: &MetadataRequest,
    set: &FileSet,
    subject: &mut Subject,
    progress: &Progress,
    details: &mut MetadataDetails,
) -> Result<Option<Filled>> {
    const FILES_BETWEEN: u64 = 64;
    let Subject { place, plan, directory } = subject;
    check_room(request, set, place)?;
    place.set_slow(false)?;
    let name = place.name().to_owned();
    let listed = if request.has(Part::List) || request.has(Part::Check) { request.listed } else { 0 };
    progress.begin(stage(&name, "create the files", 0), request.files + listed);
    let mut go_on = |done: u64| {
        if done.is_multiple_of(FILES_BETWEEN) {
            progress.set_operations(done);
        }
        !progress.should_stop()
    };
    let filled = match place.is_store() {
        true => on_store::fill(directory, plan, set, listed, &mut go_on)?.then_some(Filled { has_links: true, listed }),
        false => on_files::fill(directory, set, listed, &mut go_on)?,
    };
    let Some(filled) = filled else { return Ok(None) };
    progress.begin(stage(&name, "write back", 0), 0);
    place.sync()?;
    place.set_slow(true)?;
    if filled.listed < listed {
        details.limits.push(format!(
            "{} holds at most {} of {} entries in one directory: it is not listed.",
            place.name(),
            format_count(filled.listed.into()),
            format_count(listed.into())
        ));
    }
    if !filled.has_links {
        place.note(format!("{} has no symbolic links: GETATTR replaces READLINK.", place.name()));
    }
    Ok(Some(filled))
}
