//! `bench metadata`: what Welch and Noer (2013) measured to see what SSDs add to disks, their Table III.
//!
//! | part | the source | here |
//! | --- | --- | --- |
//! | load | SPEC SFS 2008: operations a second and response time | its mix of operations, offered in an open loop at rising rates |
//! | check | an offline check of 20 million files | `Store::check`, and e2fsck, xfs_repair, btrfs check, fsck.fat, fsck.exfat |
//! | list | `ls -l` of a directory of a million files | names and attributes, in the order in which they come |
//! | reads | 60,000 reads of small files | whole files, each once, by one thread, by several, together |
//!
//! All but the load begin with cold caches and change nothing. The files are made once, by devices as fast as they are; what is to be slow is
//! slow while it is measured.

mod check;
mod files;
mod layout;
mod load;
mod mix;
mod on_files;
mod on_store;
mod parts;
pub mod published;
mod reads;
mod series;
mod target;

use std::path::Path;
use std::time::Duration;

use super::place::Prepared;
use super::result::{Details, Document, MetadataDetails};
use super::run::{Measured, Progress, Run, Watch, turns};
use super::volume::Room;
use crate::distribution::Distribution;
use crate::error::{Error, ErrorKind, Result};
use crate::units::{format_count, format_size};
use files::FileSet;
pub use files::LARGEST_BYTES;
pub use layout::{StoreLayout, Stores, Subject, prepare};
pub use mix::{Mix, Operation};
use on_files::Filled;
use parts::Bench;
pub use series::SUSTAINED_FRACTION;
use target::Fresh;

/// Share of a file system of the user's that stays free.
const MARGIN_FRACTION: f64 = 0.05;
/// Least room that a file takes, with its name and inode, in bytes.
const ROOM_A_FILE_BYTES: u64 = 128;

/// Which parts are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The mix of operations at rising rates.
    Load,
    /// A full check, and of a store every byte.
    Check,
    /// A directory with many entries.
    List,
    /// Random reads of small files.
    Reads,
}

/// Rates of a load.
#[derive(Debug, Clone, PartialEq)]
pub enum Loads {
    /// Twice as much each time, from this on until it is too much.
    From(f64),
    /// These, rising.
    These(Vec<f64>),
}

/// What is to be measured.
#[derive(Debug, Clone)]
pub struct MetadataRequest {
    /// What the sizes are from.
    pub source: String,
    /// Sizes of the files.
    pub sizes: Distribution,
    /// Files.
    pub files: u64,
    /// None is larger, in bytes.
    pub largest_bytes: u64,
    /// Files in a directory.
    pub directory_files: u64,
    /// Entries of the directory with many.
    pub listed: u64,
    /// Files up to this size are small ones, in bytes.
    pub small_bytes: u64,
    /// Small files that are read.
    pub reads: u64,
    /// Reads end after this.
    pub longest_reads: Duration,
    /// Shares of operations.
    pub mix: Mix,
    /// Rates.
    pub loads: Loads,
    /// Threads that do the operations, and read side by side.
    pub threads: u64,
    /// What is done before it counts, at each rate.
    pub warm_up: Duration,
    /// What counts.
    pub window: Duration,
    /// Most that one READ or WRITE moves, in bytes.
    pub transfer_bytes: u64,
    /// Whether operations that change something are durable when they return.
    pub is_durable: bool,
    /// Which parts.
    pub parts: Vec<Part>,
    /// How often.
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

/// Something to measure, with its files.
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

/// Measures the parts that are asked for.
///
/// # Errors
/// What filling a place or measuring in it fails with; [`ErrorKind::Corrupt`] if something else is read than was written.
pub fn metadata(
    request: &MetadataRequest,
    mut run: Run,
    mut subjects: Vec<Subject>,
    watch: Watch<'_>,
) -> Result<Document> {
    let set = FileSet::new(&request.sizes, request.files, request.largest_bytes, request.directory_files, run.seed())?;
    let mut details = request.details(&set);
    subjects.iter_mut().try_for_each(|subject| check_room(request, &set, &mut subject.place))?;
    let mut complete = true;
    let mut candidates = Vec::new();
    for mut subject in subjects {
        let filled = match complete && !watch.is_stopped() {
            true => fill(request, &set, &mut subject, watch, &mut details)?,
            false => None,
        };
        complete &= filled.is_some();
        let filled = filled.unwrap_or(Filled { has_links: false, listed: 0 });
        candidates.push(Candidate { subject, filled, fresh: Fresh::new() });
    }
    let scratch = run.scratch()?;
    let mut bench = Bench::new(request, &set, &scratch, watch, details);
    if complete {
        for (round, at) in turns(request.rounds, candidates.len()) {
            complete = complete && bench.turn(&mut candidates[at], at, round)?;
        }
    }
    if complete && request.has(Part::Load) {
        complete = bench.loads(&mut candidates)?;
    }
    let (details, series, notes) = bench.end();
    notes.into_iter().for_each(|note| run.note(note));
    note_programs(request, &mut run, &mut candidates);
    let shortest_ns =
        details.load_points.iter().flat_map(|point| &point.operations).map(|operation| operation.mean_ms * 1e6);
    let shortest_median_ns = shortest_ns.fold(f64::INFINITY, f64::min);
    let places: Vec<Prepared> = candidates.into_iter().map(|candidate| candidate.subject.place).collect();
    Ok(run.end(places, Measured { series, details: Details::Metadata(details), shortest_median_ns, complete }))
}

/// The programs that checked file systems, for their versions.
fn note_programs(request: &MetadataRequest, run: &mut Run, candidates: &mut [Candidate]) {
    for candidate in candidates.iter_mut().filter(|_| request.has(Part::Check)) {
        let place = &mut candidate.subject.place;
        if !place.is_store()
            && let Some(image) = place.image()
            && let Some((program, _)) = check::program(image.spec().kind)
        {
            run.uses(program);
        }
    }
}

/// Says whether a place has room for the files.
fn check_room(request: &MetadataRequest, set: &FileSet, place: &mut Prepared) -> Result<()> {
    let Room { total_bytes, available_bytes, available_inodes, .. } = place.room()?;
    let is_made = place.image().is_some();
    let advice = match is_made {
        true => "give it a larger --fs-size, or ask for fewer --files and --listed",
        false => "ask for fewer --files and --listed, or name another directory",
    };
    let refuse = |cause: String| {
        Err(Error::new(ErrorKind::NoSpace, "make the files on", cause).at(Path::new(place.name())).advise(advice))
    };
    let margin = if is_made { 0.0 } else { MARGIN_FRACTION };
    let free = available_bytes.saturating_sub((total_bytes as f64 * margin) as u64);
    let block_bytes = if place.is_store() { 1 } else { place.subject().file_system.block_bytes };
    let needed = request.entries().saturating_mul(ROOM_A_FILE_BYTES).saturating_add(set.totals(block_bytes).1);
    // A hybrid store has most of its bytes on other devices.
    if needed > free && place.further().is_empty() {
        return refuse(format!(
            "there is room for {}, and {} files take at least {}",
            format_size(free.into()),
            format_count(request.entries().into()),
            format_size(needed.into())
        ));
    }
    match available_inodes {
        // FAT and others have no fixed number, and say so in this way.
        Some(0) | None => Ok(()),
        Some(inodes) if place.is_store() || inodes >= request.entries() => Ok(()),
        Some(inodes) => refuse(format!(
            "it has {} inodes left, and {} files are asked for",
            format_count(inodes.into()),
            format_count(request.entries().into())
        )),
    }
}

/// Makes the files of a place; `None` if it was to stop meanwhile.
fn fill(
    request: &MetadataRequest,
    set: &FileSet,
    subject: &mut Subject,
    watch: Watch<'_>,
    details: &mut MetadataDetails,
) -> Result<Option<Filled>> {
    const FILES_BETWEEN: u64 = 64;
    let Subject { place, plan, directory } = subject;
    check_room(request, set, place)?;
    place.set_slow(false)?;
    let name = place.name().to_owned();
    let listed = if request.has(Part::List) || request.has(Part::Check) { request.listed } else { 0 };
    let total = request.files + listed;
    let mut go_on = |done: u64| {
        if done.is_multiple_of(FILES_BETWEEN) {
            watch.show(Progress { subject: &name, phase: "make the files", round: 0, done, total });
        }
        !watch.is_stopped()
    };
    let filled = match place.is_store() {
        true => on_store::fill(directory, plan, set, listed, &mut go_on)?.then_some(Filled { has_links: true, listed }),
        false => on_files::fill(directory, set, listed, &mut go_on)?,
    };
    let Some(filled) = filled else { return Ok(None) };
    watch.show(Progress { subject: &name, phase: "write them back", round: 0, done: 0, total: 0 });
    place.sync()?;
    place.set_slow(true)?;
    if filled.listed < listed {
        details.limits.push(format!(
            "{} has no more than {} entries in one directory, of {} that were asked for: it is not listed.",
            place.name(),
            format_count(filled.listed.into()),
            format_count(listed.into())
        ));
    }
    if !filled.has_links {
        place.note(format!("{} has no symbolic links: GETATTR stands for READLINK.", place.name()));
    }
    Ok(Some(filled))
}
