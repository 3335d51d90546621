//! `bench pack`: many files against one composite file, created and loaded cold.
//!
//! After Vorontsov, "Single file vs multi file storage": 50,000 files of 20,000 bytes in two levels of directories
//! against one file of records, all of it read after a reboot. Here each [`Way`] of storing the same bytes is measured
//! in turn on each place, always starting empty: the files, granulo's store, the composite file of the article, and a
//! flat file, which is the lower bound. A turn is: empty and cool the place, write everything (timed), make it durable
//! (timed), measure how much free space is gone, and for each load unmount, drop the caches, mount, and read everything
//! (timed). The bytes loaded are compared with the bytes written.
//!
//! Ways that a file system does not support (it is full, or cannot hold a store) are left out and named, and the others
//! continue; in a user's directory, a full file system ends the run. Wrong bytes always end it.

mod files;
mod one;
mod population;
pub(crate) mod published;
mod stored;

use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use super::caches::touch_memory;
use super::content::{self, Content, PIECE_BYTES};
use super::place::Prepared;
use super::result::{CacheState, Details, Document, PackDetails, PackFailure, PackSpace, Series};
use super::run::{Measured, Run, stage, turns};
use super::samples::Spread;
use crate::error::{Error, ErrorKind, Result};
use crate::progress::Progress;
use crate::random::{Random, mix};
use crate::units::{MIB, format_count, format_duration, format_share, format_size};
use files::Files;
pub(crate) use population::{MOST_FILES, PUBLISHED_FILES, PUBLISHED_SIZE_BYTES, Population};

/// Kernel memory per cached file beyond its content, in bytes.
const MEMORY_A_FILE_BYTES: u64 = 1536;
/// Share of the shortest load that comparing may take without a note.
const LARGEST_CHECK_FRACTION: f64 = 0.05;

/// Whether to continue; receives the number of files or bytes done.
type Going<'g> = dyn FnMut(u64) -> bool + 'g;

/// A way of storing the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// Separate files.
    Files,
    /// Objects in granulo's store.
    Store,
    /// Records of one file, as in the article.
    Composite,
    /// Their bytes alone, in one file.
    Flat,
}

impl Way {
    /// All ways.
    pub(crate) const ALL: [Way; 4] = [Way::Files, Way::Store, Way::Composite, Way::Flat];

    /// Its name in results.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Way::Files => "files",
            Way::Store => "store",
            Way::Composite => "composite",
            Way::Flat => "flat",
        }
    }
}

/// The order in which many files are loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// By name; the names are known in advance, as in the article's program.
    Name,
    /// In directory order.
    Listed,
    /// By inode number within each directory.
    Inode,
}

impl Order {
    /// Its name in results.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Order::Name => "by name",
            Order::Listed => "as listed",
            Order::Inode => "by inode",
        }
    }
}

/// A request for `bench pack`.
#[derive(Debug)]
pub(crate) struct PackRequest {
    /// The files to pack.
    pub population: Population,
    /// Ways of storing them.
    pub ways: Vec<Way>,
    /// Orders of loading many files.
    pub orders: Vec<Order>,
    /// Number of rounds.
    pub rounds: u64,
}

/// What a load found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Tally {
    files: u64,
    bytes: u64,
    /// A checksum of the set of numbers, each once.
    mixed: u64,
}

impl Tally {
    fn add(&mut self, number: u64, bytes: u64) {
        self.files += 1;
        self.bytes += bytes;
        self.mixed = self.mixed.wrapping_add(Random::new(mix(number)).any());
    }
}

/// The bytes read differ from those written.
fn wrong(path: &Path) -> Error {
    content::misread("load", path)
}

/// Checks that the places have enough space.
fn check_room(request: &PackRequest, places: &mut [Prepared]) -> Result<()> {
    for place in places {
        let room = place.room()?;
        let block_bytes = place.subject().file_system.block_bytes;
        let free = place.usable_bytes(&room);
        let as_files = request.ways.contains(&Way::Files);
        let population = &request.population;
        // The other ways pack them densely, in a few files.
        let (needed, inodes) = match as_files {
            true => (population.room_bytes(block_bytes), population.files),
            false => (population.bytes, 0),
        };
        let lacks_inodes = place.counts_inodes() && room.available_inodes.is_some_and(|available| available < inodes);
        if needed <= free && !lacks_inodes {
            continue;
        }
        let cause = match lacks_inodes {
            true => format!(
                "there is space for {} inodes, but {} files need one each",
                format_count(room.available_inodes.unwrap_or(0).into()),
                format_count(inodes.into())
            ),
            false => format!(
                "there is space for {}, but {} need at least {}{}",
                format_size(free.into()),
                population.name,
                format_size(needed.into()),
                if as_files { format!(" in blocks of {}", format_size(block_bytes.into())) } else { String::new() }
            ),
        };
        let advice = match place.image() {
            Some(_) => "increase --fs-size, or use fewer --files",
            None => "use fewer --files, or another directory",
        };
        let error = Error::new(ErrorKind::NoSpace, "pack the files on", cause);
        return Err(error.at(Path::new(place.name())).advise(advice));
    }
    Ok(())
}

/// Runs the bench in prepared places.
///
/// # Errors
/// [`ErrorKind::NoSpace`] if a place has too little space for the files; [`ErrorKind::Corrupt`] if the bytes read
/// differ from those written; the first failure, if nothing could be measured.
pub(crate) fn pack(
    request: &PackRequest,
    run: Run,
    mut places: Vec<Prepared>,
    progress: &Progress,
) -> Result<Document> {
    check_room(request, &mut places)?;
    let content = Content::random(run.seed());
    let mut packing = Packing {
        request,
        content: &content,
        progress,
        orders: vec![request.orders.clone(); places.len()],
        samples: Vec::new(),
        space: Vec::new(),
        failures: Vec::new(),
        first_error: None,
    };
    let mut complete = true;
    for (round, at) in turns(request.rounds, places.len()) {
        complete = packing.turn(&mut places[at], round, at)?;
        if !complete {
            break;
        }
    }
    packing.end(run, places, complete)
}

/// Samples of one measure of one subject.
struct Sampled {
    subject: usize,
    measure: String,
    caches: CacheState,
    seconds: Vec<f64>,
}

/// A run of the bench.
struct Packing<'r> {
    request: &'r PackRequest,
    content: &'r Content,
    progress: &'r Progress,
    /// Distinct orders, by subject.
    orders: Vec<Vec<Order>>,
    samples: Vec<Sampled>,
    /// Subject, way, and bytes in each round.
    space: Vec<(usize, Way, Vec<f64>)>,
    failures: Vec<PackFailure>,
    first_error: Option<Error>,
}

impl<'r> Packing<'r> {
    /// Measures all ways on one place, starting with another one in each round; returns whether it finished.
    fn turn(&mut self, place: &mut Prepared, round: u64, at: usize) -> Result<bool> {
        let ways = &self.request.ways;
        let mut is_fresh = round == 0;
        for index in 0..ways.len() {
            let way = ways[(index + round as usize) % ways.len()];
            let is_left_out = self.failures.iter().any(|failure| failure.subject == at && failure.way == way.name());
            // A store in a mounted store says nothing.
            if is_left_out || (place.is_mount() && way == Way::Store) {
                continue;
            }
            let renewed = if is_fresh { Ok(()) } else { place.renew() };
            is_fresh = false;
            match renewed.and_then(|()| self.measure(place, way, round, at)) {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(error) if self.is_end(&error, place) => return Err(error),
                Err(error) => self.leave_out(at, way, error),
            }
        }
        Ok(!self.progress.should_stop())
    }

    /// Notes that a way fails on a place.
    fn leave_out(&mut self, subject: usize, way: Way, error: Error) {
        self.failures.push(PackFailure { subject, way: way.name().to_owned(), cause: error.to_string() });
        self.first_error.get_or_insert(error);
    }

    /// Whether an error ends the whole run. On a file system of its own, whose program may have ended, the others go
    /// on.
    fn is_end(&self, error: &Error, place: &mut Prepared) -> bool {
        error.kind() == ErrorKind::Corrupt || (error.kind() == ErrorKind::NoSpace && place.image().is_none())
    }

    /// Measures one way: write, make durable, load; returns whether it finished.
    fn measure(&mut self, place: &mut Prepared, way: Way, round: u64, at: usize) -> Result<bool> {
        Ok(self.write(place, way, round, at)? && self.load(place, way, round, at)?)
    }

    /// Writes the files in one way and makes them durable; returns whether it finished.
    fn write(&mut self, place: &mut Prepared, way: Way, round: u64, at: usize) -> Result<bool> {
        let population = &self.request.population;
        let directory = place.directory().to_owned();
        let home = directory.join("store");
        self.touch();
        let caches = place.cool()?;
        place.sync()?;
        let used_before = place.room()?.used_bytes;

        let (content, progress) = (self.content, self.progress);
        let name = place.name().to_owned();
        let mut go_on = going(progress, &name, &format!("{}: create", way.name()), round, population, way);
        let started = Instant::now();
        let mut store = None;
        let written = match way {
            Way::Files => Files::open(&directory, population)?.create(content, &mut go_on)?,
            Way::Composite => one::write_records(&directory, population, content, &mut go_on)?,
            Way::Flat => one::write_flat(&directory, population.bytes, content, &mut go_on)?,
            Way::Store => {
                store = stored::put(&home, population, content, &mut go_on)?;
                store.is_some()
            }
        };
        let created = started.elapsed().as_secs_f64();
        if !written {
            return Ok(false);
        }
        let syncing = Instant::now();
        if let Some(store) = store {
            store.sync()?;
        }
        place.sync()?;
        let synced = syncing.elapsed().as_secs_f64();
        let used = place.room()?.used_bytes.saturating_sub(used_before);
        if way == Way::Files && round == 0 {
            self.find_orders(place, at)?;
        }
        self.sample(at, format!("{} create", way.name()), caches, created);
        self.sample(at, format!("{} sync", way.name()), CacheState::AsIs, synced);
        match self.space.iter_mut().find(|(subject, of, _)| (*subject, *of) == (at, way)) {
            Some((.., bytes)) => bytes.push(used as f64),
            None => self.space.push((at, way, vec![used as f64])),
        }
        Ok(true)
    }

    /// Loads what was written in one way, in each order; returns whether it finished.
    fn load(&mut self, place: &mut Prepared, way: Way, round: u64, at: usize) -> Result<bool> {
        let population = &self.request.population;
        let directory = place.directory().to_owned();
        let home = directory.join("store");
        let (content, progress) = (self.content, self.progress);
        let name = place.name().to_owned();
        let orders = if way == Way::Files { self.orders[at].clone() } else { vec![Order::Name] };
        for order in orders {
            let measure = match way {
                Way::Files => format!("files load {}", order.name()),
                _ => format!("{} load", way.name()),
            };
            self.touch();
            let caches = place.cool()?;
            let mut go_on = going(progress, &name, &measure, round, population, way);
            let started = Instant::now();
            let loaded = match way {
                Way::Files => Files::open(&directory, population)?.load(order, content, &mut go_on)?,
                Way::Composite => one::read_records(&directory, population, content, &mut go_on)?,
                Way::Flat => one::read_flat(&directory, population.bytes, None, &mut go_on)?,
                Way::Store => stored::load(&home, population, content, progress)?,
            };
            let seconds = started.elapsed().as_secs_f64();
            // For the lower bound only reading is timed; the bytes are still in memory, as far as they fit.
            if !loaded
                || (way == Way::Flat
                    && !one::read_flat(&directory, population.bytes, Some(content), &mut |_| !progress.should_stop())?)
            {
                return Ok(false);
            }
            self.sample(at, measure, caches, seconds);
        }
        Ok(true)
    }

    /// Leaves out orders that equal another on this file system.
    fn find_orders(&mut self, place: &mut Prepared, at: usize) -> Result<()> {
        let files = Files::open(place.directory(), &self.request.population)?;
        let found = files.distinct(&self.orders[at])?;
        self.orders[at] = found.iter().filter(|(_, same)| same.is_none()).map(|(order, _)| *order).collect();
        for (order, same) in found {
            if let Some(same) = same {
                let name = place.name().to_owned();
                place.note(format!(
                    "On {name}, files {} are the files {} and were not loaded a second time.",
                    order.name(),
                    same.name()
                ));
            }
        }
        Ok(())
    }

    /// Touches memory for what will be cached.
    fn touch(&self) {
        let population = &self.request.population;
        touch_memory(population.bytes.saturating_add(population.files.saturating_mul(MEMORY_A_FILE_BYTES)));
    }

    fn sample(&mut self, subject: usize, measure: String, caches: CacheState, seconds: f64) {
        match self.samples.iter_mut().find(|found| found.subject == subject && found.measure == measure) {
            Some(found) => found.seconds.push(seconds),
            None => self.samples.push(Sampled { subject, measure, caches, seconds: vec![seconds] }),
        }
    }

    fn end(mut self, mut run: Run, places: Vec<Prepared>, complete: bool) -> Result<Document> {
        if self.samples.is_empty() && complete {
            return Err(self
                .first_error
                .unwrap_or_else(|| Error::new(ErrorKind::Usage, "pack", "no way of storing the files was requested")));
        }
        let population = &self.request.population;
        let checked_bytes_per_second = check_rate(self.content);
        let check_seconds = population.bytes as f64 / checked_bytes_per_second;
        let is_compared =
            |sampled: &&Sampled| sampled.measure.contains(" load") && !sampled.measure.starts_with("flat");
        let loads = self.samples.iter().filter(is_compared).map(|sampled| Spread::of(&sampled.seconds).median);
        let shortest = loads.fold(f64::INFINITY, f64::min);
        if check_seconds / shortest > LARGEST_CHECK_FRACTION {
            run.note(format!(
                "Comparing the loaded data with the written data needs {} on one processor each time ({} of the \
                    shortest load), which is part of the times of all loads except that of the flat file.",
                format_duration(check_seconds),
                format_share(check_seconds / shortest)
            ));
        }
        if self.samples.iter().any(|sampled| sampled.measure == "store load") {
            run.note(
                "granulo's store was loaded by its own loader, with one thread per processor; everything else by \
                one thread.",
            );
        }
        if places.iter().any(|place| place.subject().kind == super::result::SubjectKind::Directory) {
            run.note(
                "The space that a way needs is the decrease of free space on the file system: in a directory, this \
                    includes what other processes wrote meanwhile.",
            );
        }
        self.samples.sort_by_key(|sampled| sampled.subject);
        let series = self
            .samples
            .into_iter()
            .map(|sampled| Series::new(sampled.subject, sampled.measure, "seconds", sampled.caches, sampled.seconds))
            .collect();
        let space = self.space.iter().map(|(subject, way, bytes)| PackSpace {
            subject: *subject,
            way: way.name().to_owned(),
            allocated_bytes: Spread::of(bytes).median as u64,
        });
        let details = PackDetails {
            population: population.name.clone(),
            files: population.files,
            bytes: population.bytes,
            size_bytes: population.size_bytes(),
            space: space.collect(),
            failures: self.failures,
            checked_bytes_per_second,
            published: if population.is_published() { published::all() } else { Vec::new() },
        };
        let details = Details::Pack(details);
        Ok(run.end(places, Measured { series, details, shortest_median_ns: f64::INFINITY, complete }))
    }
}

/// Returns a function that reports progress, and returns whether to continue.
fn going<'g>(
    progress: &'g Progress,
    subject: &str,
    phase: &str,
    round: u64,
    population: &Population,
    way: Way,
) -> impl FnMut(u64) -> bool + 'g {
    const FILES_BETWEEN: u64 = 64;
    let counts_bytes = way == Way::Flat;
    progress.begin(stage(subject, phase, round), if counts_bytes { population.bytes / MIB } else { population.files });
    move |done| {
        if counts_bytes || done.is_multiple_of(FILES_BETWEEN) {
            progress.set_operations(if counts_bytes { done / MIB } else { done });
        }
        !progress.should_stop()
    }
}

/// Rate of comparing content, in bytes per second.
fn check_rate(content: &Content) -> f64 {
    const PIECES: u64 = 128;
    let piece = content.piece(0, 0, PIECE_BYTES as u64).to_vec();
    let started = Instant::now();
    for _ in 0..PIECES {
        black_box(content.is(0, 0, black_box(&piece)));
    }
    (PIECES * PIECE_BYTES as u64) as f64 / started.elapsed().as_secs_f64().max(1e-9)
}
