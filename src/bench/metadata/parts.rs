//! The parts of the bench, one turn of a subject after another.

use std::time::{Duration, Instant};

use super::files::FileSet;
use super::layout::Subject;
use super::load::{Load, Outcome};
use super::on_files::Files;
use super::on_store::{Objects, compact};
use super::series::{Collected, is_sustained, overall_response_seconds, peak};
use super::target::{Fresh, Target};
use super::{Candidate, Loads, MetadataRequest, Part, check, reads};
use crate::bench::caches::drop_caches;
use crate::bench::result::{CacheState, LoadPoint, MetadataDetails, Series};
use crate::bench::run::stage;
use crate::bench::scratch::Scratch;
use crate::error::{Error, ErrorKind, Result};
use crate::progress::Progress;
use crate::units::{format_count, format_duration};

/// A load is not doubled beyond this many operations per second.
const MOST_PER_SECOND: f64 = 10e6;
/// A store on a device that is fuller than this is compacted before the next load.
const COMPACTED_FILL: f64 = 0.5;
/// Entries or files between two progress reports.
const SHOWN_EACH: u64 = 256;

/// The request, and the results so far.
pub(super) struct Bench<'b> {
    request: &'b MetadataRequest,
    set: &'b FileSet,
    scratch: &'b Scratch,
    progress: &'b Progress,
    details: MetadataDetails,
    collected: Collected,
    notes: Vec<String>,
    shortest_median_ns: f64,
}

/// The results of all parts.
pub(super) struct Results {
    pub details: MetadataDetails,
    pub series: Vec<Series>,
    pub notes: Vec<String>,
    /// The shortest median time of an operation of a load; infinite if there are none.
    pub shortest_median_ns: f64,
}

impl<'b> Bench<'b> {
    pub(super) fn new(
        request: &'b MetadataRequest,
        set: &'b FileSet,
        scratch: &'b Scratch,
        progress: &'b Progress,
        details: MetadataDetails,
    ) -> Bench<'b> {
        let (collected, notes, shortest_median_ns) = (Collected::default(), Vec::new(), f64::INFINITY);
        Bench { request, set, scratch, progress, details, collected, notes, shortest_median_ns }
    }

    /// Returns the results.
    pub(super) fn end(self) -> Results {
        let Bench { details, collected, notes, shortest_median_ns, .. } = self;
        Results { details, series: collected.end(), notes, shortest_median_ns }
    }

    /// One round of a candidate in all parts that begin cold and change nothing; returns whether it finished.
    pub(super) fn run_cold_parts(&mut self, candidate: &mut Candidate, at: usize, round: u64) -> Result<bool> {
        let is_listed = self.request.listed > 0 && candidate.filled.listed == self.request.listed;
        if self.request.has(Part::List) && is_listed && !self.list(candidate, at, round)? {
            return Ok(false);
        }
        if self.request.has(Part::Reads) && !self.reads(candidate, at, round)? {
            return Ok(false);
        }
        if self.request.has(Part::Check) {
            return match candidate.subject.place.is_store() {
                true => self.check_store(candidate, at, round),
                false => self.check_file_system(candidate, at, round),
            };
        }
        Ok(true)
    }

    fn open(&self, candidate: &Candidate, is_changed: bool) -> Result<Box<dyn Target + 'b>> {
        let (MetadataRequest { transfer_bytes, is_durable, .. }, set) = (self.request, self.set);
        let directory = &candidate.subject.directory;
        Ok(match candidate.subject.place.is_store() {
            true => Box::new(Objects::open(directory, set, *transfer_bytes, *is_durable, is_changed)?),
            false => Box::new(Files::open(directory, set, candidate.filled, *transfer_bytes, *is_durable)?),
        })
    }

    fn list(&mut self, candidate: &mut Candidate, at: usize, round: u64) -> Result<bool> {
        let caches = candidate.subject.place.cool()?;
        let name = candidate.subject.place.name();
        let (progress, total) = (self.progress, self.request.listed);
        progress.begin(stage(name, "list", round), total);
        let started = Instant::now();
        let target = self.open(candidate, false)?;
        let listed = target.list(&mut |done| {
            if done.is_multiple_of(SHOWN_EACH) {
                progress.set_operations(done);
            }
            !progress.should_stop()
        })?;
        let seconds = started.elapsed().as_secs_f64();
        if progress.should_stop() {
            return Ok(false);
        }
        if listed != total {
            let cause =
                format!("there are {}, but {} were created", format_count(listed.into()), format_count(total.into()));
            let error = Error::new(ErrorKind::Corrupt, "list the entries", cause);
            return Err(error.at(&candidate.subject.directory));
        }
        self.collected.push(at, "list", "seconds", Some(total as f64), (caches, seconds));
        Ok(true)
    }

    fn reads(&mut self, candidate: &mut Candidate, at: usize, round: u64) -> Result<bool> {
        let numbers = self.set.small_files(self.request.reads, self.request.small_bytes, round);
        let small = self.set.count_up_to(self.request.small_bytes);
        if small < self.request.reads {
            self.notes.push(match small {
                0 => "No file is small enough for the reads; see --cutoff.".to_owned(),
                small => format!("There are only {} small files: some were read again.", format_count(small.into())),
            });
        }
        if numbers.is_empty() {
            return Ok(true);
        }
        let several = self.request.threads;
        let mut ways = vec![(1, "reads, 1 thread".to_owned())];
        if several > 1 {
            ways.push((several, format!("reads, {several} threads")));
        }
        let (progress, longest) = (self.progress, self.request.longest_reads);
        for (threads, measure) in ways {
            let caches = candidate.subject.place.cool()?;
            let show = self.showing(candidate, &measure, round, numbers.len() as u64);
            // Opening also reads, so its time counts.
            let started = Instant::now();
            let target = self.open(candidate, false)?;
            let Some(rate) = reads::one_by_one(&*target, &numbers, threads, (started, longest), progress, &show)?
            else {
                return Ok(false);
            };
            self.collected.push(at, &measure, "operations/s", None, (caches, rate));
        }
        if candidate.subject.place.is_store() {
            let measure = "reads, together";
            let caches = candidate.subject.place.cool()?;
            let show = self.showing(candidate, measure, round, numbers.len() as u64);
            let started = Instant::now();
            let target = self.open(candidate, false)?;
            let Some(rate) = reads::together(&*target, &numbers, (started, longest), progress, &show)? else {
                return Ok(false);
            };
            self.collected.push(at, measure, "operations/s", None, (caches, rate));
        }
        Ok(true)
    }

    /// Begins a phase; the result reports the number done.
    fn showing(&self, candidate: &Candidate, phase: &str, round: u64, total: u64) -> impl Fn(u64) + Sync + use<'b> {
        let progress = self.progress;
        progress.begin(stage(candidate.subject.place.name(), phase, round), total);
        move |done| {
            if done.is_multiple_of(SHOWN_EACH) {
                progress.set_operations(done);
            }
        }
    }

    fn check_store(&mut self, candidate: &mut Candidate, at: usize, round: u64) -> Result<bool> {
        let progress = self.progress;
        for (measure, is_deep) in [("check", false), ("deep check", true)] {
            let caches = candidate.subject.place.cool()?;
            progress.begin(stage(candidate.subject.place.name(), measure, round), 0);
            match check::store(&candidate.subject.directory, is_deep, progress)? {
                Some(seconds) => {
                    self.collected.push(at, measure, "seconds", self.checked(candidate), (caches, seconds))
                }
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Approximate number of files that a check covered: those that were created.
    fn checked(&self, candidate: &Candidate) -> Option<f64> {
        Some((self.request.files + candidate.filled.listed) as f64)
    }

    fn check_file_system(&mut self, candidate: &mut Candidate, at: usize, round: u64) -> Result<bool> {
        let level = self.checked(candidate);
        let place = &mut candidate.subject.place;
        let name = place.name().to_owned();
        if place.is_mount() {
            self.notes
                .push(format!("{name} was not checked: that is a check of the store, which has a row of its own."));
            return Ok(true);
        }
        let Some(image) = place.image() else {
            self.notes.push(format!("The file system of {name} was not checked: it is in use."));
            return Ok(true);
        };
        if check::program(image.spec().kind).is_none() {
            self.notes.push(format!("{name} was not checked: no program is known that checks all of it."));
            return Ok(true);
        }
        self.progress.begin(stage(&name, "check", round), 0);
        image.unmount()?;
        let dropped = drop_caches();
        let checked = check::file_system(image, self.scratch, self.progress);
        image.mount()?;
        let Some(seconds) = checked? else { return Ok(false) };
        dropped.note.into_iter().for_each(|note| self.notes.push(note));
        self.collected.push(at, "check", "seconds", level, (dropped.state, seconds));
        Ok(true)
    }

    /// The load in every round: each rate is offered to all subjects that sustained the previous one and have time
    /// left; returns whether it finished.
    pub(super) fn loads(&mut self, candidates: &mut [Candidate]) -> Result<bool> {
        self.note_idle()?;
        let mut is_full = vec![false; candidates.len()];
        for round in 0..self.request.rounds {
            let mut bears: Vec<bool> = is_full.iter().map(|is_full| !is_full).collect();
            let mut spent = vec![Duration::ZERO; candidates.len()];
            for step in 0.. {
                let Some(rate) = self.rate(step).filter(|_| bears.contains(&true)) else { break };
                for turn in 0..candidates.len() {
                    let at = (turn + (round + step) as usize) % candidates.len();
                    if !bears[at] {
                        continue;
                    }
                    if self.is_too_long(spent[at]) {
                        bears[at] = false;
                        let limit = out_of_time(candidates[at].subject.place.name(), rate);
                        if !self.details.limits.contains(&limit) {
                            self.details.limits.push(limit);
                        }
                        continue;
                    }
                    let begun = Instant::now();
                    let point = match self.load(&mut candidates[at], at, (round, step), rate, spent[at]) {
                        Ok(Some(point)) => point,
                        Ok(None) => return Ok(false),
                        // Files that could not be created cannot be removed: no higher rate is offered.
                        Err(error) if error.kind() == ErrorKind::NoSpace && candidates[at].is_made() => {
                            (bears[at], is_full[at]) = (false, true);
                            self.details.limits.push(full(candidates[at].subject.place.name(), rate));
                            continue;
                        }
                        Err(error) => return Err(error),
                    };
                    spent[at] += begun.elapsed();
                    // Requested rates are offered whether or not they are sustained.
                    bears[at] = is_sustained(&point) || matches!(self.request.loads, Loads::These(_));
                    self.details.load_points.push(point);
                }
            }
            self.sum_up(candidates.len(), round);
        }
        Ok(true)
    }

    /// Whether another load could end after the time limit; the first is offered in any case, and ends then.
    fn is_too_long(&self, spent: Duration) -> bool {
        let MetadataRequest { warm_up, window, longest_loads, .. } = self.request;
        spent > Duration::ZERO && longest_loads.is_some_and(|longest| spent + *warm_up + *window * 2 > longest)
    }

    /// Operations per second of a step.
    fn rate(&self, step: u64) -> Option<f64> {
        match &self.request.loads {
            Loads::These(rates) => rates.get(step as usize).copied(),
            Loads::From(first) => {
                Some(first * 2f64.powi(i32::try_from(step).unwrap_or(i32::MAX))).filter(|rate| *rate <= MOST_PER_SECOND)
            }
        }
    }

    fn load(
        &mut self,
        candidate: &mut Candidate,
        at: usize,
        (round, step): (u64, u64),
        rate: f64,
        spent: Duration,
    ) -> Result<Option<LoadPoint>> {
        if !self.make_room(candidate, round)? {
            return Ok(None);
        }
        let caches = candidate.subject.place.cool()?;
        let target = self.open(candidate, true)?;
        let phase = format!("{} operations/s", format_count(rate.round() as u128));
        self.progress.begin(stage(candidate.subject.place.name(), &phase, round), 0);
        let perform = |operation, aim, memory: &mut _| target.perform(operation, aim, memory);
        let mut load = self.offered(rate, (round << 32) | step);
        if let Some(longest) = self.request.longest_loads.filter(|_| spent.is_zero()) {
            load.longest = longest;
        }
        let outcome = load.run(&perform, &candidate.fresh, self.progress)?;
        if load.is_cut_short() {
            let limit = cut_short(candidate.subject.place.name(), rate, load.longest);
            if !self.details.limits.contains(&limit) {
                self.details.limits.push(limit);
            }
        }
        // Dirty data is not carried into the next load.
        target.sync()?;
        drop(target);
        candidate.subject.place.sync()?;
        Ok(outcome.map(|outcome| {
            self.shortest_median_ns = self.shortest_median_ns.min(outcome.shortest_median_ns);
            point(at, round, rate, caches, outcome)
        }))
    }

    /// Frees the space that earlier loads left in a store, which overwrites nothing in place; returns whether it
    /// finished.
    fn make_room(&mut self, candidate: &mut Candidate, round: u64) -> Result<bool> {
        let Subject { place, directory, .. } = &mut candidate.subject;
        if !place.is_store() || place.fullest()? < COMPACTED_FILL {
            return Ok(true);
        }
        place.set_slow(false)?;
        let (progress, name) = (self.progress, place.name());
        progress.begin(stage(name, "compact", round), 0);
        let is_whole = compact(directory, progress)?;
        place.sync()?;
        place.set_slow(true)?;
        Ok(is_whole)
    }

    fn offered(&self, offered_per_second: f64, purpose: u64) -> Load<'b> {
        let MetadataRequest { mix, files, threads, warm_up, window, transfer_bytes, .. } = self.request;
        Load {
            mix,
            files: *files,
            offered_per_second,
            threads: *threads,
            warm_up: *warm_up,
            window: *window,
            longest: Duration::MAX,
            transfer_bytes: *transfer_bytes,
            seed: self.set.seed_of(purpose),
        }
    }

    /// Computes peak and overall response time of each subject in a round.
    fn sum_up(&mut self, subjects: usize, round: u64) {
        for at in 0..subjects {
            let of = |point: &&LoadPoint| point.subject == at && point.round == round;
            let points: Vec<&LoadPoint> = self.details.load_points.iter().filter(of).collect();
            let Some(first) = points.first() else { continue };
            let caches = first.caches;
            let (peak, response) = (peak(&points), overall_response_seconds(&points));
            self.collected.push(at, "peak load", "operations/s", None, (caches, peak));
            if let Some(response) = response {
                self.collected.push(at, "overall response time", "seconds", None, (caches, response));
            }
        }
    }

    /// Measures the cost of the load itself: the response time of an operation that does nothing.
    fn note_idle(&mut self) -> Result<()> {
        const PER_SECOND: f64 = 1000.0;
        let load = Load { warm_up: Duration::ZERO, window: Duration::from_millis(300), ..self.offered(PER_SECOND, 0) };
        if let Some(idle) = load.run(&|_, _, _| Ok(()), &Fresh::new(), self.progress)? {
            self.notes.push(format!(
                "An empty operation, offered {} times per second, has a mean response time of {} (99 %: {}): that is \
                    how late sleeping threads wake up here.",
                format_count(PER_SECOND as u128),
                format_duration(idle.response_seconds),
                format_duration(idle.p99_seconds),
            ));
        }
        Ok(())
    }
}

/// A note for a place that a load has filled.
fn full(name: &str, offered_per_second: f64) -> String {
    format!(
        "{name} became full at {} operations/s: no higher load is offered. Increase --fs-size, or use fewer --loads.",
        format_count(offered_per_second.round() as u128)
    )
}

/// A note for a place whose loads have taken all the time allowed.
fn out_of_time(name: &str, offered_per_second: f64) -> String {
    format!(
        "{name}: --longest ended the loads before {} operations/s.",
        format_count(offered_per_second.round() as u128)
    )
}

/// A note for a place whose first load lasts longer than all of them may.
fn cut_short(name: &str, offered_per_second: f64, longest: Duration) -> String {
    format!(
        "{name}: --longest ended the load of {} operations/s after {}, within its window.",
        format_count(offered_per_second.round() as u128),
        format_duration(longest.as_secs_f64()),
    )
}

fn point(subject: usize, round: u64, offered_per_second: f64, caches: CacheState, outcome: Outcome) -> LoadPoint {
    LoadPoint {
        subject,
        round,
        offered_per_second,
        achieved_per_second: outcome.achieved_per_second,
        response_ms: outcome.response_seconds * 1e3,
        p50_ms: outcome.p50_seconds * 1e3,
        p99_ms: outcome.p99_seconds * 1e3,
        longest_ms: outcome.longest_seconds * 1e3,
        due: outcome.due,
        unfinished: outcome.unfinished,
        caches,
        operations: outcome.operations,
    }
}
