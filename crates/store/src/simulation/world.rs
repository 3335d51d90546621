//! Several devices that crash together, and their faults.
//!
//! Every call that changes something counts as one **operation**, and reads do on request. From the operation of a
//! crash on, all fail; [`World::after_crash`] is then what a reboot would find. It may be called at any other time too,
//! also by an observer that is called before each operation, so that one run of a workload tests a crash at each of its
//! points.
//!
//! An operation that is made to fail may have been done in part, or whole: an error proves nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use rustix::io::Errno;

use super::media::{File, Luck, Names};
use super::mishap::{Betrayal, FileKind, Outage, Passing};
use super::world_objects::Shelf;
use crate::index::table::INDEX_DIRECTORY;
use crate::random::Random;

/// The directory of the devices of a new world, by their numbers.
pub(crate) const HERE: &str = "/here";

/// A kind of operation on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeviceOperation {
    /// Opening, listing, reading: everything that changes nothing.
    Read,
    /// Writing at an offset.
    Write,
    /// Syncing a file.
    Sync,
    /// Setting a size.
    SetSize,
    /// Creating a file.
    Create,
    /// Renaming.
    Rename,
    /// Removing.
    Remove,
    /// Syncing a directory.
    SyncDirectory,
    /// Creating a directory.
    CreateDirectory,
}

/// A planned error.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fault {
    /// The operation that fails, or the first after it that can fail in this way: a full device does not prevent
    /// reading or removing.
    pub(crate) operation: u64,
    /// Its error.
    pub(crate) errno: Errno,
    /// Whether all later ones fail too.
    pub(crate) is_lasting: bool,
    /// The device that fails, or all.
    pub(crate) device: Option<usize>,
}

impl Fault {
    fn hits(&self, number: u64, operation: DeviceOperation, device: usize) -> bool {
        let full = self.errno == Errno::NOSPC || self.errno == Errno::DQUOT;
        let frees =
            matches!(operation, DeviceOperation::Read | DeviceOperation::Remove | DeviceOperation::SyncDirectory);
        number >= self.operation && self.device.is_none_or(|one| one == device) && !(full && frees)
    }
}

/// One device.
#[derive(Debug, Clone, Default)]
pub(super) struct Disk {
    pub(super) names: Names,
    pub(super) directories: BTreeSet<String>,
    /// Directories of which the names cannot be read.
    pub(super) unlistable: BTreeSet<String>,
    /// Files that cannot be opened for writing.
    pub(super) protected: BTreeSet<String>,
    /// All files that ever existed, by number: a name of one may still reappear.
    pub(super) files: BTreeMap<u64, File>,
    pub(super) capacity_bytes: Option<u64>,
    /// Limits what can be allocated, too, and the device does not say so.
    pub(super) quota_bytes: Option<u64>,
    pub(super) is_lost: bool,
    /// Changes when the device disappears or returns: open files then fail for ever.
    pub(super) incarnation: u64,
    /// Inode number of its directory; 0 if there is none.
    pub(super) node: u64,
}

impl Disk {
    pub(super) fn remains(&self, luck: Option<Luck>, random: &mut Random) -> Disk {
        let names = self.names.remains(luck.unwrap_or_else(|| Luck::draw(random)), random);
        let of_names: BTreeSet<u64> = names.current.values().copied().collect();
        let mut files = BTreeMap::new();
        for (number, file) in &self.files {
            // Chance is drawn for every file, so that the remains of one do not depend on the names of others.
            let file = file.remains(luck.unwrap_or_else(|| Luck::draw(random)), random);
            if of_names.contains(number) {
                files.insert(*number, file);
            }
        }
        self.with(names, files)
    }

    /// The same device with these names and files.
    fn with(&self, names: Names, files: BTreeMap<u64, File>) -> Disk {
        let directories = self.directories.clone();
        let (unlistable, protected) = (self.unlistable.clone(), self.protected.clone());
        Disk { names, files, directories, unlistable, protected, ..*self }
    }

    /// Everything that was written, as after a shutdown: all of it durable.
    pub(super) fn settled(&self) -> Disk {
        let names = Names::settled(self.names.current.clone());
        let file = |number: &u64| {
            let current = self.files.get(number).map(|file| Arc::clone(&file.current)).unwrap_or_default();
            (*number, File::settled(current))
        };
        let files = names.current.values().map(file).collect();
        self.with(names, files)
    }
}

#[derive(Debug)]
pub(super) struct WorldState {
    pub(super) disks: Vec<Disk>,
    /// Open handles, by device and file: removed files keep their space until these are closed.
    pub(super) handles: BTreeMap<(usize, u64), usize>,
    pub(super) random: Random,
    /// Number of draws for the store, in this world and in earlier ones.
    drawn: u64,
    /// The time, in this world and in later ones.
    now_nanoseconds: i64,
    pub(super) next_file: u64,
    /// The objects in its bucket.
    pub(super) shelf: Shelf,
    /// Paths and the disks at them.
    pub(super) places: BTreeMap<String, usize>,
    /// Writes that a device will acknowledge but not do.
    pub(super) betrayals: Vec<Betrayal>,
    /// Places that cannot be read for a while.
    pub(super) passing: Vec<Passing>,
    /// Number of reads that failed there.
    pub(super) passed: u64,
    /// Times in which everything on a device fails.
    pub(super) outages: Vec<Outage>,
    /// Reads of the content of files, by their kind.
    pub(super) reads: BTreeMap<FileKind, u64>,
    operations: u64,
    counts_reads: bool,
    refuses_pins: bool,
    crash_at: Option<u64>,
    faults: Vec<Fault>,
    failures: u64,
    /// Devices on which planned errors occurred.
    failed: BTreeSet<usize>,
}

impl WorldState {
    fn new(disks: Vec<Disk>, random: Random) -> WorldState {
        let next_file = 1 + disks.iter().flat_map(|disk| disk.files.keys()).max().copied().unwrap_or(0);
        WorldState {
            places: (0..disks.len()).map(|number| (format!("{HERE}/{number}"), number)).collect(),
            betrayals: Vec::new(),
            passing: Vec::new(),
            passed: 0,
            outages: Vec::new(),
            reads: BTreeMap::new(),
            disks,
            handles: BTreeMap::new(),
            random,
            drawn: 0,
            now_nanoseconds: 1_000_000_000,
            next_file,
            shelf: Shelf::default(),
            operations: 0,
            counts_reads: false,
            refuses_pins: false,
            crash_at: None,
            faults: Vec::new(),
            failures: 0,
            failed: BTreeSet::new(),
        }
    }

    /// The world after this one: the disks keep their places.
    fn followed_by(&self, disks: Vec<Disk>, random: Random) -> World {
        let (places, drawn, now_nanoseconds) = (self.places.clone(), self.drawn, self.now_nanoseconds);
        let mut next = WorldState { places, drawn, now_nanoseconds, ..WorldState::new(disks, random) };
        next.shelf = self.shelf.clone();
        next.shelf.remains(&mut next.random);
        World::of(next)
    }

    fn has_crashed(&self) -> bool {
        self.crash_at.is_some_and(|at| self.operations >= at)
    }

    /// Number of operations so far.
    pub(super) fn operations(&self) -> u64 {
        self.operations
    }

    /// Whether an operation is still to fail.
    pub(super) fn has_faults(&self) -> bool {
        !self.faults.is_empty()
    }

    /// Bytes allocated on a device for files with names or open handles.
    pub(super) fn taken_bytes(&self, device: usize) -> u64 {
        let disk = &self.disks[device];
        let named: BTreeSet<u64> = disk.names.current.values().copied().collect();
        let is_there = |number: &u64| named.contains(number) || self.handles.contains_key(&(device, *number));
        disk.files.iter().filter(|(number, _)| is_there(number)).map(|(_, file)| file.current.allocated_bytes()).sum()
    }

    /// Bytes that can still be allocated on a device.
    /// What other programs have on an endless device. It changes all the time, so that each may get the next segment.
    pub(super) fn taken_by_others_bytes(&self, device: usize) -> u64 {
        match self.disks[device].capacity_bytes {
            Some(_) => 0,
            None => Random::new(self.operations << 8 | device as u64).below(1 << 20),
        }
    }

    pub(super) fn room_bytes(&self, device: usize) -> u64 {
        let disk = &self.disks[device];
        let most = disk.capacity_bytes.into_iter().chain(disk.quota_bytes).min();
        most.map_or(u64::MAX, |most| most.saturating_sub(self.taken_bytes(device)))
    }
}

/// Called before each operation, with its number.
type Observer = Box<dyn FnMut(&World, u64) + Send>;

/// Called before each sync of a file.
type Gate = Arc<dyn Fn(FileKind) + Send + Sync>;

pub(super) struct Shared {
    state: Mutex<WorldState>,
    observer: Mutex<Option<Observer>>,
    gate: Mutex<Option<Gate>>,
}

/// Several devices that crash together. A clone is the same world.
#[derive(Clone)]
pub(crate) struct World(Arc<Shared>);

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        write!(f, "World({} devices, {} operations)", state.disks.len(), state.operations)
    }
}

impl World {
    /// `devices` empty devices without limited capacity.
    pub(crate) fn new(devices: usize, seed: u64) -> World {
        World::of(WorldState::new(vec![Disk::default(); devices], Random::new(seed)))
    }

    fn of(state: WorldState) -> World {
        World(Arc::new(Shared { state: Mutex::new(state), observer: Mutex::new(None), gate: Mutex::new(None) }))
    }

    pub(super) fn state(&self) -> MutexGuard<'_, WorldState> {
        self.0.state.lock().expect("nothing panics with the lock held")
    }

    /// A number that is determined by the seed, and never repeats: not even after a crash, whatever the seed of that.
    pub(crate) fn draw(&self) -> u64 {
        let mut state = self.state();
        state.drawn += 1;
        let seed = state.random.any().wrapping_add(state.drawn << 32);
        Random::new(seed).any()
    }

    /// The time, in nanoseconds; never the same twice.
    pub(crate) fn tick(&self) -> i64 {
        let mut state = self.state();
        state.now_nanoseconds += 1_000_000;
        state.now_nanoseconds
    }

    /// Number of operations so far.
    pub(crate) fn operations(&self) -> u64 {
        self.state().operations
    }

    /// Sets whether reads count as operations, and fail like others.
    pub(crate) fn count_reads(&self, counts: bool) {
        self.state().counts_reads = counts;
    }

    /// From here on, nobody may pin, as if readers could not write.
    pub(crate) fn refuse_pins(&self) {
        self.state().refuses_pins = true;
    }

    pub(super) fn has_pins(&self) -> bool {
        !self.state().refuses_pins
    }

    /// From operation number `operation` on (the first is 0), everything fails.
    pub(crate) fn crash_at(&self, operation: u64) {
        self.state().crash_at = Some(operation);
    }

    /// Whether it has reached the crash.
    pub(crate) fn has_crashed(&self) -> bool {
        self.state().has_crashed()
    }

    /// Makes an operation fail.
    pub(crate) fn fail(&self, fault: Fault) {
        self.state().faults.push(fault);
    }

    /// Number of planned errors that occurred.
    pub(crate) fn failures(&self) -> u64 {
        self.state().failures
    }

    /// Devices on which planned errors occurred and were not taken.
    pub(crate) fn failed(&self) -> BTreeSet<usize> {
        self.state().failed.clone()
    }

    /// The same, and takes them.
    pub(crate) fn take_failed(&self) -> BTreeSet<usize> {
        std::mem::take(&mut self.state().failed)
    }

    /// Nothing fails any more.
    pub(crate) fn clear_faults(&self) {
        self.state().faults.clear();
    }

    /// Calls `observer` before each operation with its number; nothing of this world is locked then. It must not work
    /// on this world's devices, but may on those of [`after_crash`](Self::after_crash).
    pub(crate) fn observe(&self, observer: impl FnMut(&World, u64) + Send + 'static) {
        *self.0.observer.lock().expect("no observer panicked") = Some(Box::new(observer));
    }

    /// Removes the observer. Must not be called by the observer.
    pub(crate) fn stop_observing(&self) {
        *self.0.observer.lock().expect("no observer panicked") = None;
    }

    /// Calls `gate` before each sync of a file with its kind. Nothing of this world is locked then: it may wait for
    /// operations on its devices.
    pub(crate) fn keep_gate(&self, gate: impl Fn(FileKind) + Send + Sync + 'static) {
        *self.0.gate.lock().expect("nothing panics with the lock held") = Some(Arc::new(gate));
    }

    /// Waits at the gate, if there is one.
    pub(super) fn pass_gate(&self, kind: FileKind) {
        let gate = self.0.gate.lock().expect("nothing panics with the lock held").clone();
        gate.iter().for_each(|gate| gate(kind));
    }

    /// What a reboot would find after a power failure now; sometimes the index is lost entirely, as is allowed. This
    /// world continues unchanged.
    pub(crate) fn after_crash(&self, seed: u64) -> World {
        let mut random = Random::new(!seed);
        let world = self.after_power_failure(seed);
        if random.happens(1, 16) {
            world.state().disks.iter_mut().for_each(|disk| disk.names.forget(INDEX_DIRECTORY));
        }
        world
    }

    /// What a reboot would find after a power failure now.
    pub(crate) fn after_power_failure(&self, seed: u64) -> World {
        let mut random = Random::new(seed);
        // Either everything that is not durable has the same luck, or each file and each device its own.
        let luck = if random.happens(1, 2) { Some(Luck::draw(&mut random)) } else { None };
        let state = self.state();
        let disks = state.disks.iter().map(|disk| disk.remains(luck, &mut random)).collect();
        state.followed_by(disks, random)
    }

    /// What another process would find if the writing processes were killed now: everything that was written, durable
    /// or not.
    pub(crate) fn after_kill(&self, seed: u64) -> World {
        let state = self.state();
        state.followed_by(state.disks.clone(), Random::new(seed))
    }

    /// What a reboot after a clean shutdown would find.
    pub(crate) fn after_shutdown(&self) -> World {
        let state = self.state();
        let disks = state.disks.iter().map(Disk::settled).collect();
        state.followed_by(disks, state.random.clone())
    }

    /// Exchanges the places of two devices.
    pub(crate) fn swap(&self, one: usize, other: usize) {
        let mut state = self.state();
        state.disks.swap(one, other);
        let place = |disk| moved(disk, (one, other));
        // What is to befall a device goes with it.
        state.betrayals.iter_mut().for_each(|betrayal| betrayal.device = place(betrayal.device));
        state.faults.iter_mut().for_each(|fault| fault.device = fault.device.map(place));
        state.passing.iter_mut().for_each(|passing| passing.device = place(passing.device));
        state.outages.iter_mut().for_each(|outage| outage.device = place(outage.device));
    }

    /// Counts an operation; fails if there is a crash, or the device is lost. Returns the error with which it must end,
    /// if any.
    pub(super) fn begin(
        &self,
        operation: DeviceOperation,
        device: usize,
    ) -> io::Result<(MutexGuard<'_, WorldState>, Option<Errno>)> {
        let counts = operation != DeviceOperation::Read || self.state().counts_reads;
        if counts {
            let mut observer = self.0.observer.lock().expect("no observer panicked");
            if let Some(observer) = observer.as_mut() {
                let number = self.operations();
                observer(self, number);
            }
        }
        let mut state = self.state();
        if state.has_crashed() {
            return Err(io::Error::other("crashed"));
        }
        let mut failure = None;
        let number = state.operations;
        if state.is_out(device, number) {
            failure = Some(Errno::IO);
            state.failures += 1;
            state.failed.insert(device);
        }
        if counts {
            state.operations += 1;
            if let Some(at) = state.faults.iter().position(|fault| fault.hits(number, operation, device)) {
                failure = Some(state.faults[at].errno);
                state.failures += 1;
                state.failed.insert(device);
                if !state.faults[at].is_lasting {
                    state.faults.remove(at);
                }
            }
        }
        if state.disks[device].is_lost {
            return Err(Errno::IO.into());
        }
        Ok((state, failure))
    }
}

/// Where a device is after two changed places.
pub(crate) fn moved(disk: usize, (one, other): (usize, usize)) -> usize {
    match disk {
        _ if disk == one => other,
        _ if disk == other => one,
        _ => disk,
    }
}
