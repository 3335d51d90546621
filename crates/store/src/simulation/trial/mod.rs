//! A trial: random operations on a store, a crash before each operation of a device, and the model to judge the
//! remains.
//!
//! [`Subject`] is the whole interface of a store to a trial. [`run`] runs one workload on one store. Before each
//! operation of a device it takes what a power failure or a kill would leave, several times, recovers that, and asks
//! the model. Some of these recoveries are interrupted by a crash of their own, and some stores continue to work and
//! crash again. [`run_with_fault`] makes one operation fail instead, and lets the store continue, or opens it again if
//! it does not.
//!
//! A failure reports the seed, the operation and the seed of the remains: [`repeat`] repeats that crash alone.

use std::sync::{Arc, Mutex};

use super::model::Model;
use super::state::State;
use super::workload::{Change, Durability, Generator, Operation};
use super::world::{Fault, World};
use crate::error::{Error, Result};
use crate::random::Random;

/// A store on trial.
pub(crate) trait Subject: Sized {
    /// The settings of a new store.
    type Settings: Clone + Send + 'static;

    /// Number of devices that it needs.
    fn devices(settings: &Self::Settings) -> usize;
    /// The cutoff and the largest object to try, in bytes.
    fn sizes(settings: &Self::Settings) -> (usize, usize);
    /// Creates one on empty devices and opens it.
    fn create(settings: &Self::Settings, world: &World) -> Result<Self>;
    /// Opens it; recovers from a crash. Everything found is durable on return.
    fn open(settings: &Self::Settings, world: &World) -> Result<Self>;
    /// One batch. With a durability of `each`, `done` is called after each change.
    fn batch(&mut self, durability: Durability, changes: &[Change], done: &mut dyn FnMut()) -> Result<()>;
    /// Makes everything durable.
    fn sync(&mut self) -> Result<()>;
    /// Frees space.
    fn compact(&mut self) -> Result<()>;
    /// Everything that it has, read and verified; without objects that have no name.
    fn state(&self) -> Result<State>;
    /// What it says may be missing of what was acknowledged, in words.
    fn missing(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Parameters of a trial.
#[derive(Debug, Clone)]
pub(crate) struct Trial<S> {
    /// The settings of the store.
    pub(crate) settings: S,
    /// The seed of the workload.
    pub(crate) seed: u64,
    /// Number of operations on the store.
    pub(crate) operations: usize,
    /// Number of crashes before each operation of a device.
    pub(crate) crashes: u64,
}

/// The seed of the remains of crash `number` before `operation`.
fn seed_of_remains(seed: u64, operation: u64, number: u64) -> u64 {
    Random::new(seed ^ operation.rotate_left(24) ^ number.rotate_left(48)).any()
}

fn text(error: &Error) -> String {
    error.to_string()
}

/// Runs a workload on a store, and keeps the model in step.
struct Run<'a, T> {
    /// `None` after it failed to open again.
    subject: Option<T>,
    model: &'a Mutex<Model>,
}

impl<T: Subject> Run<'_, T> {
    fn subject(&mut self) -> &mut T {
        self.subject.as_mut().expect("who failed to open it again does not go on")
    }

    fn model(&self) -> std::sync::MutexGuard<'_, Model> {
        self.model.lock().expect("nothing panics with the model in hand")
    }

    /// Does one operation; the model learns of it whatever its outcome.
    fn work(&mut self, settings: &T::Settings, world: &World, operation: &Operation) -> Result<()> {
        match operation {
            Operation::Batch(durability, changes) => {
                let batch = self.model().begin(*durability, changes);
                let (model, mut count) = (self.model, 0);
                let mut done = || {
                    count += 1;
                    model.lock().expect("nothing panics with the model in hand").acknowledge(batch, count);
                };
                let outcome = self.subject().batch(*durability, changes, &mut done);
                match &outcome {
                    Err(_) => self.model().fail(batch),
                    Ok(()) if *durability != Durability::None => self.model().acknowledge(batch, changes.len()),
                    Ok(()) => {}
                }
                outcome
            }
            Operation::Sync => {
                self.subject().sync()?;
                self.model().acknowledge_all();
                Ok(())
            }
            Operation::Compact => self.subject().compact(),
            Operation::Reopen => {
                self.subject().sync()?;
                self.model().acknowledge_all();
                // One writer at a time: the old one is dropped first.
                self.subject = None;
                self.subject = Some(T::open(settings, world)?);
                Ok(())
            }
        }
    }

    /// Whether the store shows what was written.
    fn look(&mut self) -> std::result::Result<(), String> {
        let state = self.subject().state().map_err(|error| text(&error))?;
        self.model().observe(&state).map_err(|mismatch| mismatch.to_string())
    }
}

/// Recovers the remains of a crash, and asks the model; returns the store and its state.
fn recover<T: Subject>(
    settings: &T::Settings,
    world: &World,
    model: &Mutex<Model>,
) -> std::result::Result<(T, State), String> {
    let subject = T::open(settings, world).map_err(|error| text(&error))?;
    let state = subject.state().map_err(|error| text(&error))?;
    let model = model.lock().expect("nothing panics with the model in hand");
    model.allows(&state).map_err(|mismatch| mismatch.to_string())?;
    match subject.missing() {
        missing if missing.is_empty() => Ok((subject, state)),
        missing => Err(format!("nothing is missing, and it says: {}", missing.join("; "))),
    }
}

/// One crash: the remains are recovered, perhaps after another crash meanwhile, and perhaps the store works on until it
/// crashes again.
fn crash<T: Subject>(
    settings: &T::Settings,
    world: &World,
    model: &Mutex<Model>,
    seed: u64,
) -> std::result::Result<(), String> {
    let mut random = Random::new(seed);
    // A killed process leaves everything that it wrote in the page cache, and the next to open the store must make what
    // it shows durable.
    let is_kill = random.happens(1, 4);
    let mut left = if is_kill { world.after_kill(seed) } else { world.after_crash(seed) };
    if random.happens(1, 4) {
        left.crash_at(random.below(20));
        // Whether it opened or not: its work is interrupted.
        drop(T::open(settings, &left));
        left = left.after_crash(random.any());
    }
    let (subject, state) = recover::<T>(settings, &left, model)?;
    if !is_kill && !random.happens(1, 4) {
        return Ok(());
    }
    // What was recovered was shown, so it is durable; and the store must continue to work.
    let model = Mutex::new(Model::of(state.clone()));
    let (cutoff_bytes, largest_bytes) = T::sizes(settings);
    let mut generator = Generator::of(random.any(), cutoff_bytes, largest_bytes, state);
    let mut run = Run { subject: Some(subject), model: &model };
    left.crash_at(left.operations() + random.below(60));
    for _ in 0..4 {
        match run.work(settings, &left, &generator.operation()) {
            _ if left.has_crashed() => break,
            Ok(()) => run.look().map_err(|cause| format!("after recovery, {cause}"))?,
            Err(error) => return Err(format!("after recovery, {error}")),
        }
    }
    let left = left.after_crash(random.any());
    recover::<T>(settings, &left, &model).map_err(|cause| format!("after a second crash, {cause}"))?;
    Ok(())
}

/// Tries a crash before each operation of a device. Returns how many crashes were tried.
///
/// # Errors
/// The first crash with a wrong state, in words that say how to repeat it.
pub(crate) fn run<T: Subject>(trial: &Trial<T::Settings>) -> std::result::Result<u64, String> {
    observe::<T>(trial, None)
}

/// Repeats one crash of a trial: before `operation`, with these remains.
///
/// # Errors
/// As [`run`].
pub(crate) fn repeat<T: Subject>(
    trial: &Trial<T::Settings>,
    operation: u64,
    remains: u64,
) -> std::result::Result<u64, String> {
    observe::<T>(trial, Some((operation, remains)))
}

fn observe<T: Subject>(trial: &Trial<T::Settings>, only: Option<(u64, u64)>) -> std::result::Result<u64, String> {
    let Trial { settings, seed, operations, crashes } = trial.clone();
    let world = World::new(T::devices(&settings), seed);
    let subject = T::create(&settings, &world).map_err(|error| text(&error))?;
    let model = Arc::new(Mutex::new(Model::default()));
    let outcome = Arc::new(Mutex::new(Ok(0)));
    let (judge, result, of_crash) = (Arc::clone(&model), Arc::clone(&outcome), settings.clone());
    world.observe(move |world, operation| {
        let mut result = result.lock().expect("nothing panics with the outcome in hand");
        for number in 0..crashes {
            let remains = seed_of_remains(seed, operation, number);
            let is_meant = only.is_none_or(|only| only == (operation, remains));
            let Ok(count) = result.as_mut() else { return };
            if is_meant {
                *count += 1;
                if let Err(cause) = crash::<T>(&of_crash, world, &judge, remains) {
                    *result =
                        Err(format!("seed {seed}, crash before operation {operation}, remains {remains}: {cause}"));
                }
            }
        }
    });
    let (cutoff_bytes, largest_bytes) = T::sizes(&settings);
    let mut generator = Generator::new(seed, cutoff_bytes, largest_bytes);
    let mut run = Run { subject: Some(subject), model: &model };
    for number in 0..operations {
        let operation = generator.operation();
        let done = run.work(&settings, &world, &operation).map_err(|error| text(&error));
        done.and_then(|()| run.look())
            .map_err(|cause| format!("seed {seed}, {operation:?} (number {number}): {cause}"))?;
        outcome.lock().expect("nothing panics with the outcome in hand").clone()?;
    }
    world.stop_observing();
    outcome.lock().expect("nothing panics with the outcome in hand").clone()
}

/// Runs a workload while operations of the devices fail. After an error, the store continues if `goes_on` says so for
/// the error, otherwise it is opened again without the fault; at the end the power fails. Returns whether the fault
/// occurred.
///
/// # Errors
/// The first wrong state.
pub(crate) fn run_with_fault<T: Subject>(
    trial: &Trial<T::Settings>,
    fault: Fault,
    goes_on: impl Fn(&Error) -> bool,
) -> std::result::Result<bool, String> {
    let Trial { settings, seed, operations, .. } = trial.clone();
    let told = |cause: String| format!("seed {seed}, {fault:?}: {cause}");
    let world = World::new(T::devices(&settings), seed);
    let subject = T::create(&settings, &world).map_err(|error| text(&error))?;
    world.fail(Fault { operation: world.operations() + fault.operation, ..fault });
    let (cutoff_bytes, largest_bytes) = T::sizes(&settings);
    let mut generator = Generator::new(seed, cutoff_bytes, largest_bytes);
    let model = Mutex::new(Model::default());
    let mut run = Run { subject: Some(subject), model: &model };
    for _ in 0..operations {
        let operation = generator.operation();
        let Err(error) = run.work(&settings, &world, &operation) else {
            run.look().map_err(told)?;
            continue;
        };
        if world.failures() == 0 {
            return Err(told(format!("nothing had failed, and yet: {error}")));
        }
        if run.subject.is_none() || !goes_on(&error) {
            drop(run);
            world.clear_faults();
            let (subject, state) = recover::<T>(&settings, &world, &model).map_err(told)?;
            *model.lock().expect("nothing panics with the model in hand") = Model::of(state);
            run = Run { subject: Some(subject), model: &model };
        }
        run.look().map_err(told)?;
        let state = run.subject().state().map_err(|error| told(text(&error)))?;
        generator = Generator::of(seed ^ world.operations(), cutoff_bytes, largest_bytes, state);
    }
    // While it is open: closing it would make everything durable.
    for number in 0..trial.crashes {
        let left = world.after_crash(seed_of_remains(seed, u64::MAX, number));
        recover::<T>(&settings, &left, &model).map_err(told)?;
    }
    Ok(world.failures() > 0)
}

#[cfg(test)]
mod tests;
