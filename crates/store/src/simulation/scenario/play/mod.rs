//! Playing a scenario step by step, with the laws checked after each.
//!
//! After each step a reader examines the store, and on a copy of the world a writer opens, is killed and opens again.
//! The model determines what they must show.

mod befall;
mod going_on;
mod mending;
mod sides;
mod upkeep;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;

use super::super::ever::Ever;
use super::super::mishap::{FileKind, Image};
use super::super::model::Model;
use super::super::subject::{Simulated, home};
use super::super::trial::Subject;
use super::super::workload::{Change, Durability, Generator};
use super::super::world::{HERE, World};
use super::laws::{Released, Sound, patient, untouched};
use super::look::{Announced, Look};
use super::promise::{Condition, Freshness, Promise, is_sound, promise};
use super::{End, Scenario, Step, Work};
use crate::devices::threads::without_threads;
use crate::engine::locking::Access;
use crate::error::{Error, ErrorKind};
use crate::format::ids::DeviceNumber;
use crate::random::Random;
use crate::{Geometry, Key};
use crate::{OpenOptions, RepairOptions};

/// The largest object in scenarios, in bytes.
const LARGEST_BYTES: usize = 40_000;

/// A violation of a law.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    /// The number of the step.
    pub(crate) step: usize,
    /// What is wrong.
    pub(crate) cause: String,
}

impl Failure {
    /// The violated law: "law 3".
    pub(crate) fn law(&self) -> &str {
        let from = self.cause.find("law").unwrap_or(0);
        let law = &self.cause[from..];
        law.split(':').next().unwrap_or(law)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "after step {}: {}", self.step, self.cause)
    }
}

/// Plays a scenario; returns how many opens were judged. Its course depends on nothing else: threads would take turns
/// as the machine likes.
///
/// # Errors
/// The first violation.
pub(crate) fn play(scenario: &Scenario) -> Result<u64, Failure> {
    without_threads(|| play_steps(scenario))
}

fn play_steps(scenario: &Scenario) -> Result<u64, Failure> {
    let mut play = Play::new(scenario).map_err(|cause| Failure { step: 0, cause })?;
    for (number, step) in scenario.steps.iter().enumerate() {
        play.take(step).map_err(|cause| Failure { step: number, cause: format!("{step:?}: {cause}") })?;
        if play.is_over {
            break;
        }
    }
    Ok(play.judged)
}

struct Play {
    geometry: Geometry,
    world: World,
    writer: Option<Simulated>,
    model: Model,
    ever: Ever,
    /// Of the devices, and last of the home, if it is not one.
    conditions: Vec<Condition>,
    sound: Sound,
    released: Released,
    random: Random,
    judged: u64,
    /// The home.
    home: PathBuf,
    /// The directory with the home and the devices.
    place: String,
    /// Number of earlier directories.
    places: usize,
    /// An open was interrupted while a device was missing: the next one needs the same proof.
    is_set_unsure: bool,
    /// A writer ended while something was unacknowledged, and nothing was acknowledged since: its remains may be after
    /// the end of the log.
    has_torn: bool,
    /// A disk was full: records may have gone to devices of the other class.
    was_full: bool,
    /// A segment was cut: beyond redundancy, nothing but the last mark elsewhere tells what was in it.
    was_cut: bool,
    /// Damage beyond redundancy was dropped, or a device rebuilt while there was a pin: nothing is in use where it was,
    /// and copies have it too; or what only the pin keeps has fewer copies.
    has_scars: bool,
    /// A writer opened while something failed or was full: what it adopted may have too few copies until a repair.
    has_few_copies: bool,
    /// Whether a pin by name exists, if known.
    is_pinned: Option<bool>,
    /// Damage was dropped, and nobody has accepted yet that something may be missing.
    is_incomplete: bool,
    /// After how many bytes maintenance is asked to stop.
    stop: Option<u64>,
    /// Devices that no writer has seen since the store moved.
    unmoved: BTreeSet<usize>,
    /// What was acknowledged before devices left the set, by the number of epochs.
    left_with: BTreeMap<u64, Model>,
    /// A writer opened without proof: devices without which it went on may have proof among themselves.
    is_forced: bool,
    /// The history without which this one goes on.
    other: Option<Side>,
    /// Number of epochs that began, as far as is known here.
    epochs: u64,
    /// What follows is beyond the promise and cannot be judged.
    is_over: bool,
}

use sides::Side;

type Outcome = Result<(), String>;

fn text(error: &Error) -> String {
    error.to_string()
}

impl Play {
    fn new(scenario: &Scenario) -> Result<Play, String> {
        let geometry = scenario.shape.geometry();
        let devices = Simulated::devices(&geometry);
        let world = World::new(devices, scenario.seed);
        drop(Simulated::create(&geometry, &world).map_err(|error| text(&error))?);
        Ok(Play {
            world,
            home: home(&geometry),
            geometry,
            writer: None,
            model: Model::default(),
            ever: Ever::default(),
            conditions: (0..devices).map(Condition::new).collect(),
            sound: Sound::default(),
            released: Released::default(),
            // Separate from that of the world, and from that of the steps: epochs are random, and never repeat.
            random: Random::new(Random::new(!scenario.seed).any()),
            judged: 0,
            place: HERE.to_owned(),
            places: 0,
            is_set_unsure: false,
            has_torn: false,
            has_few_copies: false,
            has_scars: false,
            was_full: false,
            was_cut: false,
            is_pinned: Some(false),
            is_incomplete: false,
            stop: None,
            unmoved: BTreeSet::new(),
            left_with: BTreeMap::new(),
            is_forced: false,
            other: None,
            epochs: 0,
            is_over: false,
        })
    }

    fn promise(&self) -> Promise {
        let promise = promise(&self.geometry, &self.conditions);
        let has_proof = promise.has_proof.filter(|_| !self.is_set_unsure);
        let has_proof = has_proof.filter(|_| !(self.is_forced && promise.is_rolled_back));
        let is_covered = !self.has_few_copies || is_sound(&self.conditions);
        // What one device did not write may be gone from the others, or be on missing ones only.
        let is_doubted = |one: &Condition| self.sound.is_doubted(one.disk);
        let is_honest = |one: &Condition| one.is_there() && one.freshness == Freshness::Fresh && !is_doubted(one);
        let is_restored = self.conditions.iter().any(|one| one.is_restored);
        let with_records = self.geometry.record_devices().map(|entry| &self.conditions[entry.number.index()]);
        let lacking = with_records.filter(|one| !is_honest(one)).count();
        let is_gone =
            self.conditions.iter().any(is_doubted) && (is_restored || lacking >= usize::from(self.geometry.copies));
        let is_whole = promise.is_whole && !self.is_incomplete && is_covered;
        Promise { has_proof, is_whole, is_rolled_back: promise.is_rolled_back || is_gone, ..promise }
    }

    /// Does one step and checks the laws after it.
    fn take(&mut self, step: &Step) -> Outcome {
        let betrayals = self.world.betrayals();
        if betrayals > 0 {
            self.keep_sound();
        }
        self.follow_side();
        let is_done = self.act(step)?;
        self.follow_side();
        self.note_betrayals(betrayals);
        self.note_failed(is_done);
        if self.is_over || !is_done { Ok(()) } else { self.check_laws() }
    }

    /// Returns whether there was anything to do.
    fn act(&mut self, step: &Step) -> Result<bool, String> {
        match step {
            Step::Open => self.open(Access::Write)?,
            Step::OpenDegraded => self.open_degraded()?,
            Step::Batch(work, durability, seed) => return self.batch(*work, *durability, *seed),
            Step::Sync => self.sync()?,
            Step::Close => self.close()?,
            Step::Kill => self.end(End::Kill),
            Step::PowerFailure(seed) => self.end(End::Power(*seed)),
            Step::Cut(operations, end, step) => {
                if let Step::Take(device) = **step {
                    return self.take_side_in_two(device, *operations, *end);
                }
                self.world.crash_at(self.world.operations() + operations);
                let failures = self.world.failures();
                let is_done = self.act(step)?;
                if self.has_crashed() {
                    self.is_set_unsure |= self.world.failures() > failures;
                    self.has_torn = true;
                    self.doubt_set();
                    // A writer may have adopted what was never acknowledged.
                    self.leave_behind();
                } else {
                    self.note_lost();
                }
                self.end(*end);
                return Ok(is_done);
            }
            Step::Scrub => return self.scrub(),
            Step::Repair => self.repair(RepairOptions::default())?,
            Step::DropLost => self.repair(RepairOptions { drop_lost: true, ..RepairOptions::default() })?,
            Step::Accept => self.repair(RepairOptions { accept: true, ..RepairOptions::default() })?,
            Step::Take(device) => return self.take_side(*device, false),
            Step::Rebuild(device) => return self.rebuild(*device, false),
            Step::GiveUp(device) => return self.rebuild(*device, true),
            Step::Stopped(bytes, step) => {
                self.stop = Some(*bytes);
                let is_done = self.act(step);
                self.stop = None;
                return is_done;
            }
            Step::Outage(device, operations, step) => return self.outage(*device, *operations, step),
            Step::Compact => return self.move_records(Simulated::compact_until),
            Step::Rebalance => return self.move_records(Simulated::rebalance_until),
            Step::Pin(is_set) => return self.pin(*is_set),
            Step::Check => self.check()?,
            Step::RebuildIndex => self.open(Access::RebuildIndex)?,
            Step::Look => {}
            Step::Move => return self.move_away(),
            Step::Copy => self.copy()?,
            _ => return Ok(self.befall(step)),
        }
        Ok(true)
    }

    fn has_crashed(&self) -> bool {
        self.world.has_crashed()
    }

    fn open(&mut self, access: Access) -> Outcome {
        self.open_how(access, &OpenOptions::default())
    }

    fn open_how(&mut self, access: Access, how: &OpenOptions) -> Outcome {
        if self.writer.is_some() {
            return Ok(());
        }
        let (before, may_fail, betrayals) = (self.world.images(), self.may_fail(), self.world.betrayals());
        let opened = Simulated::open_how(&self.home, &self.world, access, how);
        if self.has_crashed() {
            return Ok(());
        }
        self.note_betrayals(betrayals);
        self.has_few_copies |= may_fail && (self.has_torn || self.model.has_doubt());
        let promise = self.promise();
        let is_proven = !how.degraded && how.lost.is_none();
        let promise = Promise { has_proof: promise.has_proof.filter(|_| is_proven), ..promise };
        let after = self.world.images();
        patient(&before, &after, &self.released, &self.sound)?;
        let writer = match opened {
            Ok(writer) => writer,
            Err(_) if may_fail => {
                // It may have begun an epoch with fewer devices, at least in part.
                self.is_set_unsure = true;
                return Ok(());
            }
            Err(error) => {
                self.judge_failed(&before, &after, &error)?;
                return match self.promise() {
                    Promise { is_whole: true, is_record_away: true, .. } if how.degraded => Ok(()),
                    Promise { is_whole: true, .. } if how.degraded => {
                        Err(format!("law 5: refused though degraded: {error}"))
                    }
                    _ => self.judge_refusal(promise, &error),
                };
            }
        };
        if promise.has_proof == Some(false) {
            return Err("law 5: a writer opened without proof".to_owned());
        }
        if promise.has_diverged {
            return Err("law 5: a writer opened over two histories".to_owned());
        }
        let conditions = &self.conditions;
        self.unmoved.retain(|device| conditions[*device].away.is_some());
        // They have to be named when they return: the home has another place now, and they do not know that.
        self.is_over |= !self.unmoved.is_empty();
        let look = writer.look();
        if promise.is_rolled_back && (how.degraded || self.is_forced || self.other.is_some()) {
            return self.part(writer, &look);
        }
        self.judge(promise, &look, "a writer")?;
        self.judge_pin(promise, &writer, "a writer")?;
        self.is_pinned = Some(writer.is_pinned());
        self.left_with.insert(self.epochs + 1, self.model.clone());
        let is_of_mark = || self.was_cut && self.model.allows_from_mark(&look.state, &[]);
        let is_known = self.model.allows(&look.state).is_ok() || look.announced == Announced::Tail || is_of_mark();
        let is_listed = look.announced != Announced::Incomplete;
        if (promise.is_whole || is_known) && is_listed && look.ended.is_none() && look.unreadable.is_empty() {
            // What a writer found is durable.
            self.model = Model::of(look.state);
        } else {
            self.model.doubt();
        }
        self.is_forced |= how.degraded;
        self.note_set(&writer);
        self.writer = Some(writer);
        Ok(())
    }

    /// An open that fails changes nothing. But if a device was restored while a writer had it, and lacks units of the
    /// last batch, the index has the batch when that is found.
    fn judge_failed(&self, before: &[Image], after: &[Image], error: &Error) -> Outcome {
        if self.is_of_restored(error) {
            return Ok(());
        }
        untouched(before, after).map_err(|cause| format!("an opening failed ({error}); {cause}"))
    }

    /// Whether an opening may have failed because a device was restored while a writer had it.
    fn is_of_restored(&self, error: &Error) -> bool {
        self.conditions.iter().any(|one| one.is_restored) && error.to_string().contains("cannot recover the log")
    }

    /// Whether an opening may have failed because of a tail that an operator must decide about: it is unreadable on one
    /// copy, and torn on the other, or a device was restored while a writer had it.
    fn is_undecided(&self, error: &Error) -> bool {
        let may_be_torn = self.model.has_doubt() || self.has_torn;
        self.is_of_restored(error)
            || (may_be_torn || self.has_scars) && error.to_string().contains("cannot recover the log")
    }

    fn judge_refusal(&self, promise: Promise, error: &Error) -> Outcome {
        let is_unreadable = self.is_undecided(error);
        // The home may be of the other history.
        let is_of_home = self.other.is_some() && error.to_string().contains("the home since");
        match promise {
            _ if is_unreadable || is_of_home => Ok(()),
            Promise { is_whole: true, has_proof: Some(true), is_record_of_set_away: false, .. }
                if !self.is_set_unsure =>
            {
                Err(format!("law 5: refused: {error}"))
            }
            _ => Ok(()),
        }
    }

    /// Whether an error names a damaged table that no device has whole.
    fn is_of_tables(&self, cause: &str) -> bool {
        self.lacks_tables() && cause.contains("the sorted table")
    }

    fn judge(&self, promise: Promise, look: &Look, who: &str) -> Outcome {
        if look.causes().any(|cause| self.is_of_tables(cause)) {
            return Ok(());
        }
        if promise.is_rolled_back && !promise.is_stale && promise.has_proof != Some(false) {
            return Ok(());
        }
        let said = |cause: String| format!("{who}: {cause}");
        if promise.has_diverged && !matches!(look.announced, Announced::Incomplete | Announced::Unknown) {
            return Err(said("law 5: two histories are there, and it does not say so".to_owned()));
        }
        if !promise.is_whole {
            return look.is_honest(&self.model, &self.ever, self.was_cut).map_err(said);
        }
        look.is_whole(&self.model).map_err(said)?;
        match (promise.has_proof, look.announced) {
            // A superblock without an epoch is from before a crash, or from an old copy; the missing device would tell.
            (Some(true), Announced::Unknown) if promise.is_record_away => Ok(()),
            // What was dropped is still damaged, and is found again where the log is read.
            (_, Announced::Incomplete) if self.has_scars => Ok(()),
            (Some(true), Announced::Incomplete | Announced::Unknown) => {
                Err(said(format!("law 4: nothing is missing, and it says: {}", look.words.join("; "))))
            }
            (Some(false), Announced::Complete | Announced::Tail) => {
                Err(said("law 4: too few devices are there to know, and it does not say so".to_owned()))
            }
            _ => Ok(()),
        }
    }

    /// A writer has told the other devices which ones it lost.
    fn note_lost(&mut self) {
        let lost = self.writer.as_ref().map(Simulated::out_of_set).unwrap_or_default();
        self.epochs += u64::from(lost.iter().any(|number| self.conditions[number.index()].is_in_set));
        lost.iter().for_each(|number| self.conditions[number.index()].leave(self.epochs));
    }

    /// A writer ends that may or may not have recorded which devices it lost.
    fn doubt_set(&mut self) {
        self.is_set_unsure |= !is_sound(&self.conditions) || self.conditions.iter().any(|one| !one.is_in_set);
    }

    /// A writer began an epoch: devices that are not in its set are stale.
    fn note_set(&mut self, writer: &Simulated) {
        let out = writer.out_of_service();
        self.is_set_unsure = false;
        self.epochs += 1;
        let (devices, is_parted) = (self.geometry.devices.len(), self.other.is_some());
        for (number, condition) in self.conditions[..devices].iter_mut().enumerate() {
            if condition.away.is_some() || out.contains(&DeviceNumber(number as u16)) {
                condition.leave(self.epochs);
                continue;
            }
            condition.is_in_set = true;
            condition.is_of_this |= is_parted;
            // A repair that left something else has brought it up to date.
            if condition.freshness == Freshness::Stale {
                condition.freshness = Freshness::Unknown;
            }
        }
    }

    /// Opens a writer if there is none; returns whether there is a usable one.
    fn has_writer(&mut self) -> Result<bool, String> {
        self.open(Access::Write)?;
        Ok(self.writer.is_some() && self.promise().is_whole)
    }

    fn batch(&mut self, work: Work, durability: Durability, seed: u64) -> Result<bool, String> {
        let was_open = self.writer.is_some();
        if !self.has_writer()? {
            return Ok(false);
        }
        let changes = self.changes(work, seed);
        let Some(writer) = &mut self.writer else { return Ok(false) };
        let batch = self.model.begin(durability, &changes);
        self.ever.note(&changes);
        let mut count = 0;
        let outcome = writer.batch(durability, &changes, &mut || count += 1);
        if durability == Durability::Each {
            self.model.acknowledge(batch, count);
        }
        match outcome {
            Err(error) => {
                self.model.fail(batch);
                self.must_go_on(was_open, work, &error)?;
                self.fail(&error)?;
            }
            Ok(()) if durability != Durability::None => {
                self.model.acknowledge(batch, changes.len());
                self.has_torn = false;
                self.leave_behind();
            }
            Ok(()) => {}
        }
        Ok(true)
    }

    fn changes(&mut self, work: Work, seed: u64) -> Vec<Change> {
        let cutoff_bytes = self.geometry.largest_record_bytes() as usize;
        let mut generator = Generator::of(seed, cutoff_bytes, LARGEST_BYTES, self.model.latest());
        match work {
            Work::Any => generator.changes(),
            Work::Small => generator.puts(1..cutoff_bytes),
            Work::Large => generator.puts(cutoff_bytes + 1..LARGEST_BYTES),
            Work::Removal => generator.removal(false),
            Work::TreeRemoval => generator.removal(true),
            Work::Rename => generator.rename(),
            Work::Crossing => generator.crossing(),
            Work::Snapshot => generator.snapshot(),
            Work::Write => generator.write(),
            Work::Planted => {
                let segments = self.world.images().into_iter().flatten();
                let mut segments = segments.filter(|(path, _)| FileKind::of(path) == FileKind::Segment);
                let mut log = segments.next_back().map(|(_, content)| content.bytes.clone()).unwrap_or_default();
                log.truncate(LARGEST_BYTES);
                generator.planted(log.into())
            }
        }
    }

    /// Missing devices have missed something, if it concerned them.
    fn leave_behind(&mut self) {
        self.conditions.iter_mut().filter(|one| one.away.is_some()).for_each(Condition::doubt);
    }

    /// Handles a failure that a writer reported: whether it may fail, and whether it continues.
    fn fail(&mut self, error: &Error) -> Outcome {
        if self.has_crashed() {
            return Ok(());
        }
        // What a device did not write, though it acknowledged it, may be read again in the same step.
        let is_betrayed = self.conditions.iter().any(|one| self.sound.is_doubted(one.disk));
        let is_troubled = self.may_fail() || self.world.failures() > 0;
        let is_expected = is_troubled || is_betrayed || !is_sound(&self.conditions);
        if !is_expected {
            return Err(format!("nothing had failed, and yet: {error}"));
        }
        if error.kind() == ErrorKind::NoSpace {
            return Ok(());
        }
        self.doubt_set();
        if self.random.happens(1, 2) {
            self.end(End::Kill);
        } else {
            // It closes; what it cannot make durable is in doubt.
            self.writer = None;
        }
        Ok(())
    }

    fn sync(&mut self) -> Outcome {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        match writer.sync() {
            Err(error) => self.fail(&error),
            Ok(()) => {
                match writer.store().completeness().is_complete() {
                    true => self.model.acknowledge_all(),
                    false => self.model.acknowledge_unmarked(),
                }
                self.leave_behind();
                Ok(())
            }
        }
    }

    fn close(&mut self) -> Outcome {
        self.sync()?;
        self.note_close();
        self.writer = None;
        Ok(())
    }

    /// Ends the process, and perhaps the machine with it.
    fn end(&mut self, end: End) {
        self.has_torn |= self.model.has_doubt();
        self.world = match end {
            End::Kill => self.world.after_kill(self.random.any()),
            End::Power(seed) => {
                self.keep_sound();
                self.world.after_power_failure(seed)
            }
        };
        // It closes in its former world.
        self.writer = None;
    }

    /// Checks the laws (docs/FORMAT.md, section 3): the running writer is compared with the model, which learns from it
    /// what was applied; then, on a copy of the world as a kill would leave it, a reader and, unless faults are
    /// pending, two writers, one after the kill of the other.
    fn check_laws(&mut self) -> Outcome {
        self.note_lost();
        if let Some(writer) = &self.writer {
            let (promise, look) = (self.promise(), writer.look());
            if promise.is_whole && look.ended.is_none() && look.unreadable.is_empty() {
                self.model.observe(&look.state).map_err(|mismatch| format!("the writer: {mismatch}"))?;
            }
            // What it says is of its start: it does not notice that devices disappear until it writes to them, nor that
            // they return.
            let has_proof = promise.has_proof.filter(|has_proof| *has_proof && !self.is_forced);
            let has_lost_tables = self.lacks_index() && look.causes().any(|cause| cause.contains("the sorted table"));
            if !has_lost_tables {
                self.judge(Promise { has_proof, has_diverged: false, ..promise }, &look, "the writer")?;
            }
            self.judged += 1;
        }
        let (promise, may_fail) = (self.promise(), self.may_fail());
        let copy = self.world.after_kill(self.random.any());
        self.look_as_reader(&copy, promise)?;
        if may_fail {
            // An opening may fail now, and leave part of an epoch.
            return Ok(());
        }
        let first = self.look_as_writer(&copy, promise)?;
        let again = copy.after_kill(self.random.any());
        // Beyond redundancy, what follows the last mark is reported as lost once.
        let reported = first.as_ref().filter(|look| !promise.is_whole && look.announced == Announced::Tail);
        let reported = reported.filter(|look| self.model.allows_from_mark(&look.state, &[])).map(sides::seen);
        let model = reported.map(|reported| std::mem::replace(&mut self.model, reported));
        let second = self.look_as_writer(&again, promise)?;
        model.into_iter().for_each(|model| self.model = model);
        if let (Some(first), Some(second)) = (first, second)
            && promise.is_whole
            && let Err(mismatch) = Model::of(first.state).allows(&second.state)
        {
            return Err(format!("law 3: a second recovery finds another state: {mismatch}"));
        }
        Ok(())
    }

    /// Whether a directory is a device only if its content says so.
    fn lacks_superblock(&self) -> bool {
        let mut there = self.conditions.iter().filter(|one| one.is_there());
        there.any(|one| !self.world.image(one.disk).contains_key("superblock"))
    }

    /// Whether as many devices as there are copies lack the index, or parts of it.
    fn lacks_index(&self) -> bool {
        let lacks = |one: &Condition| {
            let is_there = one.away.is_none() && one.is_in_set && one.freshness == Freshness::Fresh;
            !is_there || one.rotten.iter().any(|kind| kind.is_of_index())
        };
        let of_records = self.geometry.record_devices().map(|entry| &self.conditions[entry.number.index()]);
        // A device that is full may have lost its copy.
        let bearable = if self.was_full { 1 } else { usize::from(self.geometry.copies) };
        of_records.filter(|one| lacks(one)).count() >= bearable
    }

    /// Whether tables may be damaged on all copies: a command that meets that reports it, and the log has everything
    /// that the index had.
    fn lacks_tables(&self) -> bool {
        self.conditions.iter().any(|one| one.rotten.contains(&FileKind::Table)) && self.lacks_index()
    }

    fn look_as_reader(&mut self, world: &World, promise: Promise) -> Outcome {
        let before = world.images();
        let access = if self.lacks_tables() { Access::ReadWithoutIndex } else { Access::Read };
        let reader = Simulated::open_as(&self.home, world, access);
        self.judged += 1;
        let outcome = match &reader {
            Ok(reader) => {
                let outcome = self.judge(promise, &reader.look(), "a reader");
                self.look_up(world, reader, promise).and(outcome).and(self.judge_pin(promise, reader, "a reader"))
            }
            Err(error) if promise.is_whole => Err(format!("laws 1, 2: a reader is refused: {error}")),
            Err(_) => Ok(()),
        };
        drop(reader);
        untouched(&before, &world.images()).map_err(|cause| format!("a reader: {cause}"))?;
        outcome
    }

    /// Law 7: with the index on any device, a look-up reads no log.
    fn look_up(&self, world: &World, reader: &Simulated, promise: Promise) -> Outcome {
        if !promise.is_whole || self.lacks_index() {
            return Ok(());
        }
        let before = world.reads(FileKind::Segment);
        let keys: BTreeSet<Key> = self.model.latest().objects().map(|(key, _)| key.clone()).collect();
        for key in &keys {
            reader.store().entry(key).map_err(|error| format!("law 7: {error}"))?;
        }
        match world.reads(FileKind::Segment) - before {
            0 => Ok(()),
            reads => Err(format!("law 7: {} look-ups read segments {reads} times", keys.len())),
        }
    }

    fn look_as_writer(&mut self, world: &World, promise: Promise) -> Result<Option<Look>, String> {
        let before: Vec<Image> = world.images();
        let writer = Simulated::open_as(&self.home, world, Access::Write);
        self.judged += 1;
        let after = world.images();
        patient(&before, &after, &self.released, &self.sound)?;
        match writer {
            Ok(_) if promise.has_proof == Some(false) => Err("law 5: a writer opened without proof".to_owned()),
            Ok(_) if promise.has_diverged => Err("law 5: a writer opened over two histories".to_owned()),
            Ok(writer) => {
                let look = writer.look();
                self.judge(promise, &look, "a writer that opens next")?;
                // Killed: it does not close in this world.
                world.crash_at(0);
                Ok(Some(look))
            }
            Err(error) => {
                self.judge_failed(&before, &after, &error)?;
                self.judge_refusal(promise, &error)?;
                Ok(None)
            }
        }
    }
}
