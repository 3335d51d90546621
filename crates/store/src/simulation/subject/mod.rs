//! The store on simulated devices: its platform, and its methods for a trial.

mod upkeep;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::moments::{Moment, Moments};
use super::scenario::look::{Announced, Look};
use super::state::{Body, Object, State, without_moments};
use super::trial::Subject;
use super::workload::{Change, Durability};
use super::world::{HERE, World};
use crate::devices::anchored::Anchor;
use crate::devices::device::Device;
use crate::devices::platform::{Lock, Platform, PrivateDevice};
use crate::devices::survey::OpenOptions;
use crate::engine::locking::Access;
use crate::engine::open::make;
use crate::error::{Error, ErrorKind, Result};
use crate::format::geometry::{Alignment, Node, PRIVATE_MODE};
use crate::format::ids::{DeviceNumber, ObjectNumber};
use crate::index::catalog::Superseded;
use crate::layout::granulo::DEFAULT_PACKED_BYTES;
use crate::log::completeness::Cause;
use crate::{
    Attributes, Buffer, Class, Compression, DeviceEntry, DeviceState, Existing, Geometry, HandleOptions, Key, Kind,
    Listed, PinnedSnapshot, Store,
};

pub(crate) use upkeep::Repaired;

/// A store with a geometry on simulated devices.
pub(crate) struct Simulated {
    store: Store,
}

/// The platform of a world: a path is a place in it.
#[derive(Debug)]
struct Platformed {
    world: World,
}

/// A directory of a world at a path.
#[derive(Debug)]
struct Anchorage {
    world: World,
    path: String,
    node: u64,
}

impl Anchor for Anchorage {
    fn is_in_place(&self) -> bool {
        self.world.node_at(&self.path) == Some(self.node)
    }
}

#[derive(Debug)]
struct Held;

impl Lock for Held {}

impl Platform for Platformed {
    fn device_with(&self, path: &Path, _: u16) -> Arc<dyn Device> {
        self.world.device_at(path.to_str().expect("paths are text"))
    }

    fn node(&self, path: &Path) -> Option<Node> {
        let inode = self.world.node_at(path.to_str().expect("paths are text"))?;
        Some(Node { file_system: 1, inode })
    }

    fn anchor(&self, path: &Path) -> Option<Box<dyn Anchor>> {
        let path = path.to_str().expect("paths are text").to_owned();
        let node = self.world.node_at(&path)?;
        Some(Box::new(Anchorage { world: self.world.clone(), path, node }))
    }

    fn resolve(&self, path: &Path) -> PathBuf {
        path.to_owned()
    }

    fn random(&self) -> Result<u64> {
        Ok(self.world.draw())
    }

    fn has_directories(&self, _: &Path, _: &[PathBuf]) -> io::Result<bool> {
        Ok(false)
    }

    fn lock(&self, _: &Path) -> io::Result<Option<Box<dyn Lock>>> {
        Ok(Some(Box::new(Held)))
    }

    fn holder(&self, _: &Path) -> Option<String> {
        None
    }

    fn is_locked(&self, _: &Path) -> bool {
        false
    }

    fn pin(&self, _: &Path, _: u64) -> io::Result<Option<Box<dyn Lock>>> {
        Ok(self.world.has_pins().then(|| Box::new(Held) as Box<dyn Lock>))
    }

    fn unpinned(&self, _: &Path, below: u64) -> u64 {
        below
    }

    fn private_device(&self) -> Result<PrivateDevice> {
        Ok(PrivateDevice { device: World::new(1, 0).device(0), guard: Box::new(Held) })
    }

    fn idle_interval(&self) -> Option<Duration> {
        None
    }

    fn now_nanoseconds(&self) -> i64 {
        self.world.tick()
    }
}

/// A geometry with this many fast and slow devices.
pub(crate) fn geometry(fast: u16, slow: u16, copies: u8, (data, parity): (u8, u8)) -> Geometry {
    let entry = |number: u16| DeviceEntry {
        number: DeviceNumber(number),
        identity: [number as u8 + 1; 16],
        class: if number < fast { Class::Fast } else { Class::Slow },
        state: DeviceState::InUse,
        path: if fast + slow == 1 { PathBuf::from(".") } else { PathBuf::from(format!("{HERE}/{number}")) },
        node: Node::default(),
    };
    Geometry {
        store: [0xab; 16],
        created_nanoseconds: 1,
        cutoff_bytes: 8192,
        stripe_unit_bytes: 4096,
        packed_bytes: DEFAULT_PACKED_BYTES,
        copies,
        data,
        parity,
        compression: Compression::None,
        high_watermark_percent: 90,
        low_watermark_percent: 80,
        segment_bytes: 24 << 10,
        devices: (0..fast + slow).map(entry).collect(),
        home: if fast + slow == 1 { PathBuf::new() } else { PathBuf::from(format!("{HERE}/{}", fast + slow)) },
        home_node: Node::default(),
        alignment: Alignment::None,
        file_mode: PRIVATE_MODE,
    }
}

/// The place of its home: the only device, or a separate one.
pub(crate) fn home(geometry: &Geometry) -> PathBuf {
    if !geometry.has_home_apart() { Path::new(HERE).join("0") } else { geometry.home.clone() }
}

fn platform(world: &World) -> Arc<Platformed> {
    Arc::new(Platformed { world: world.clone() })
}

fn change(
    batch: &mut crate::Batch<'_>,
    store: &Store,
    names: &mut HashMap<Key, ObjectNumber>,
    change: &Change,
) -> Result<()> {
    if let Change::Put(key, ..) | Change::Planted(key, ..) | Change::Symlink(key, ..) | Change::Special(key, ..) =
        change
    {
        // It replaces a name of a shared file.
        names.remove(key);
    }
    match change {
        Change::Put(key, attributes, recipe) => batch.put(key, attributes, &recipe.bytes()),
        Change::Planted(key, attributes, content) => batch.put(key, attributes, content),
        Change::Shared(key, attributes, recipe) => {
            let number = batch.shared(attributes, &mut &recipe.bytes()[..], None)?;
            names.insert(key.clone(), number);
            batch.link(key, number)
        }
        Change::Link(first, key) => {
            let number = match names.get(first) {
                Some(number) => Some(*number),
                None => store.entry(first)?.and_then(|found| found.shared),
            };
            // It may have become a name of a shared file in this batch.
            let Some(number) = number else { return batch.hard_link(first, key) };
            names.insert(key.clone(), number);
            batch.link(key, number)
        }
        Change::Directory(key, attributes) => batch.directory(key, attributes),
        Change::Symlink(key, attributes, target) => batch.symlink(key, attributes, target),
        Change::Special(key, attributes, major, minor) => batch.special(key, attributes, *major, *minor),
        Change::Rename(from, to) => {
            names.clear();
            batch.rename(from, to, Existing::Replace)
        }
        Change::Exchange(one, other) => {
            names.clear();
            batch.exchange(one, other)
        }
        Change::HardLink(existing, key) => {
            names.remove(key);
            batch.hard_link(existing, key)
        }
        Change::Attributes(key, attributes) => batch.set_attributes(key, attributes),
        Change::Remove(key) | Change::RemoveDirectory(key) => batch.remove(key).map(|_| ()),
        Change::RemoveTree(key) => batch.remove_tree(key).map(|_| ()),
        Change::Snapshot(_) | Change::RemoveSnapshot(_) | Change::Write(..) | Change::Resize(..) => {
            unreachable!("it is no part of a batch")
        }
    }
}

fn object(found: &Listed, read: Option<crate::Object<'_>>) -> Result<Object> {
    let object = read
        .ok_or_else(|| Error::new(ErrorKind::Lost, "read", "what is listed is not there").at(&found.key.to_path()))?;
    let body = match object.entry.kind {
        Kind::Directory => Body::Directory,
        Kind::Symlink => Body::Symlink(object.content.to_vec()),
        Kind::Special => {
            let number = |at: usize| u32::from_le_bytes(object.content[at..at + 4].try_into().expect("four bytes"));
            Body::Special(number(0), number(4))
        }
        _ => Body::File(object.content.into()),
    };
    let Attributes { ctime: Some(changed), btime: Some(born), .. } = object.attributes else {
        return Err(Error::new(ErrorKind::Corrupt, "read", "it has no change time, or no birth time"));
    };
    // A listing shows what the record has.
    if found.entry.ctime != changed || object.entry.ctime != changed {
        return Err(Error::new(ErrorKind::Corrupt, "list", "the index has another change time than the record"));
    }
    let moments = Moments { changed: Moment::At(changed), born: Moment::At(born) };
    let (attributes, number) = (Some(without_moments(object.attributes.clone())), Some(object.entry.number));
    let (shared, incarnation) = (found.shared.map(|number| number.0), None);
    Ok(Object { attributes, body, shared, incarnation, number, has_any_holes: false, moments })
}

impl Subject for Simulated {
    type Settings = Geometry;

    fn devices(geometry: &Geometry) -> usize {
        geometry.devices.len() + usize::from(geometry.has_home_apart())
    }

    fn sizes(geometry: &Geometry) -> (usize, usize) {
        (geometry.largest_record_bytes() as usize, 40_000)
    }

    fn create(geometry: &Geometry, world: &World) -> Result<Simulated> {
        make(&*platform(world), &home(geometry), geometry.clone())?;
        Simulated::open(geometry, world)
    }

    fn open(geometry: &Geometry, world: &World) -> Result<Simulated> {
        Simulated::open_as(&home(geometry), world, Access::Write)
    }

    fn batch(&mut self, durability: Durability, changes: &[Change], done: &mut dyn FnMut()) -> Result<()> {
        let durability = match durability {
            Durability::Each => crate::Durability::Each,
            Durability::Batch => crate::Durability::Batch,
            Durability::None => crate::Durability::None,
        };
        let mut names = HashMap::new();
        let mut batch = self.store.batch(durability);
        for made in changes {
            match made {
                Change::Snapshot(name) => {
                    std::mem::replace(&mut batch, self.store.batch(durability)).commit()?;
                    self.store.create_snapshot(&name.to_string()).map(|_| ())?;
                }
                Change::RemoveSnapshot(name) => {
                    std::mem::replace(&mut batch, self.store.batch(durability)).commit()?;
                    self.store.remove_snapshot(&name.to_string()).map(|_| ())?;
                }
                Change::Write(key, ..) | Change::Resize(key, _) => {
                    std::mem::replace(&mut batch, self.store.batch(durability)).commit()?;
                    let handle = self.store.open_object(key, &HandleOptions::write())?;
                    match made {
                        Change::Write(_, at, recipe) => handle.write_at(&recipe.bytes(), *at)?,
                        Change::Resize(_, length) => handle.set_len(*length)?,
                        _ => {}
                    }
                    handle.commit(durability)?;
                }
                _ => change(&mut batch, &self.store, &mut names, made)?,
            }
            if durability == crate::Durability::Each {
                done();
            }
        }
        batch.commit()
    }

    fn sync(&mut self) -> Result<()> {
        self.store.sync()
    }

    fn compact(&mut self) -> Result<()> {
        self.compact_until(None).map(drop)
    }

    fn state(&self) -> Result<State> {
        let mut state = State::default();
        let mut buffer = Buffer::default();
        for found in self.store.walk(&Key::root())? {
            let found = found?;
            let object = self.object(&found, &mut buffer)?;
            if !found.key.is_root() {
                state.insert(found.key, object);
            }
        }
        for (name, snapshot) in self.snapshots()? {
            let mut then = State::default();
            for found in snapshot.walk(&Key::root(), &Key::root())? {
                let found = found?;
                let object = object(&found, snapshot.read(&found.key, &mut buffer)?)?;
                if !found.key.is_root() {
                    then.insert(found.key, object);
                }
            }
            state.insert_snapshot(name, then);
        }
        Ok(state)
    }

    fn missing(&self) -> Vec<String> {
        self.store.completeness().missing.iter().map(ToString::to_string).collect()
    }
}

impl Simulated {
    pub(super) fn of(store: Store) -> Simulated {
        Simulated { store }
    }

    /// Opens the store with this home.
    pub(crate) fn open_as(home: &Path, world: &World, access: Access) -> Result<Simulated> {
        Simulated::open_how(home, world, access, &OpenOptions::default())
    }

    /// Opens it with these options.
    pub(crate) fn open_how(home: &Path, world: &World, access: Access, how: &OpenOptions) -> Result<Simulated> {
        Store::open_on(platform(world), home, access, how).map(|store| Simulated { store })
    }

    /// The store itself.
    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// Numbers of devices that it does not consider in sync.
    pub(crate) fn out_of_service(&self) -> Vec<DeviceNumber> {
        self.store.troubles().into_iter().map(|(number, _)| number).collect()
    }

    /// Those of them without which its newest epoch began: the others know that.
    pub(crate) fn out_of_set(&self) -> Vec<DeviceNumber> {
        let history = self.store.engine().devices.history();
        self.out_of_service().into_iter().filter(|device| !history.newest().has(*device)).collect()
    }

    fn object(&self, found: &Listed, buffer: &mut Buffer) -> Result<Object> {
        object(found, self.store.read(&found.key, buffer)?)
    }

    /// Its snapshots, by name.
    fn snapshots(&self) -> Result<Vec<(Key, PinnedSnapshot)>> {
        let mut snapshots = Vec::new();
        for row in self.store.snapshots()? {
            let name = String::from_utf8(row.name).expect("names are text here");
            let snapshot = self.store.snapshot_named(&name)?.expect("nobody removes one meanwhile");
            snapshots.push((Key::parse(&name)?, snapshot));
        }
        Ok(snapshots)
    }

    /// Examines its snapshots.
    fn look_back(&self, look: &mut Look, buffer: &mut Buffer) -> Result<()> {
        for (name, snapshot) in self.snapshots()? {
            let mut then = State::default();
            for found in snapshot.walk(&Key::root(), &Key::root())? {
                let found = found?;
                match snapshot.read(&found.key, buffer).and_then(|read| object(&found, read)) {
                    Ok(_) if found.key.is_root() => {}
                    Ok(object) => then.insert(found.key, object),
                    Err(error) => _ = look.unreadable.insert(found.key, error.to_string()),
                }
            }
            look.state.insert_snapshot(name, then);
        }
        Ok(())
    }

    /// What it shows, and what it announces about it.
    pub(crate) fn look(&self) -> Look {
        let mut look = Look {
            state: State::default(),
            unreadable: BTreeMap::new(),
            ended: None,
            announced: self.announced(),
            words: self.store.completeness().lines(),
        };
        let mut buffer = Buffer::default();
        let walk = match self.store.walk(&Key::root()) {
            Ok(walk) => walk,
            Err(error) => return Look { ended: Some(error.to_string()), ..look },
        };
        for found in walk {
            match found.map(|found| (self.object(&found, &mut buffer), found.key)) {
                Ok((_, key)) if key.is_root() => {}
                Ok((Ok(object), key)) => look.state.insert(key, object),
                Ok((Err(error), key)) => _ = look.unreadable.insert(key, error.to_string()),
                Err(error) => return Look { ended: Some(error.to_string()), ..look },
            }
        }
        look.ended = self.look_back(&mut look, &mut buffer).err().map(|error| error.to_string());
        look
    }

    fn announced(&self) -> Announced {
        let completeness = self.store.completeness();
        match completeness.is_complete() {
            false if completeness.missing.iter().all(|one| one.cause == Cause::DevicesAway) => Announced::Unknown,
            false => Announced::Incomplete,
            true if completeness.tail.is_some() => Announced::Tail,
            true => Announced::Complete,
        }
    }

    /// Pins the current state by a name, or releases that pin.
    pub(crate) fn pin(&self, is_set: bool) -> Result<()> {
        if is_set { self.store.pin("mount") } else { self.store.unpin("mount").map(drop) }
    }

    /// Whether there is a pin.
    pub(crate) fn is_pinned(&self) -> bool {
        self.store.pins().is_ok_and(|pins| !pins.is_empty())
    }

    /// Segments and extent files in the catalog.
    pub(crate) fn rows(&self) -> BTreeSet<Superseded> {
        let state = self.store.engine().view().state.clone();
        let extents = state.extents.keys().map(|&(device, file)| Superseded::Extent { device, file });
        state.segments.keys().map(|&number| Superseded::Segment(number)).chain(extents).collect()
    }

    /// Those that a pin by name keeps.
    pub(crate) fn kept_by_pins(&self) -> BTreeSet<Superseded> {
        let state = self.store.engine().view().state.clone();
        let Some(pinned) = state.pins.values().min() else { return BTreeSet::new() };
        let mut rows = self.rows();
        state
            .superseded
            .iter()
            .filter(|(since, _)| since < pinned)
            .for_each(|(_, superseded)| _ = rows.remove(superseded));
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::super::mishap::FileKind;
    use super::super::trial::{Trial, repeat, run, run_with_fault};
    use super::super::world::Fault;
    use super::super::{goes_on, list, number};
    use super::*;

    fn geometries() -> Vec<Geometry> {
        let aligned = Geometry { alignment: Alignment::Page, packed_bytes: 12 << 10, ..geometry(2, 0, 2, (2, 0)) };
        let apart = [geometry(2, 0, 2, (2, 0)), geometry(2, 3, 2, (2, 1)), geometry(3, 5, 3, (2, 2))];
        [geometry(1, 0, 1, (1, 0))].into_iter().chain(apart).chain([aligned]).collect()
    }

    /// `GRANULO_CRASH_POINTS` crash points (2,000), from `GRANULO_CRASH_SEED` (1). A failure says how to repeat it:
    /// `GRANULO_CRASH=SEED:OPERATION:REMAINS`. With `GRANULO_GO_ON` the first failure of each seed is listed.
    #[test]
    fn every_crash_leaves_what_was_acknowledged() {
        if let Ok(one) = std::env::var("GRANULO_CRASH") {
            let numbers: Vec<u64> =
                one.split(':').map(|number| number.parse().expect("SEED:OPERATION:REMAINS")).collect();
            let trial = trial(numbers[0]);
            assert_eq!(repeat::<Simulated>(&trial, numbers[1], numbers[2]), Ok(1));
            return;
        }
        let points = number("GRANULO_CRASH_POINTS").unwrap_or(2000);
        let first = number("GRANULO_CRASH_SEED").unwrap_or(1);
        let (mut tried, mut failed) = (0, 0);
        for seed in first.. {
            match run::<Simulated>(&trial(seed)) {
                Ok(count) => tried += count,
                Err(cause) if goes_on() => {
                    // About as many as a seed has.
                    (tried, failed) = (tried + 4000, failed + 1);
                    list(&cause);
                }
                Err(cause) => panic!(
                    "{cause}\nrepeat it with GRANULO_CRASH=SEED:OPERATION:REMAINS cargo test --lib every_crash_leaves, with the numbers above"
                ),
            }
            if tried >= points {
                break;
            }
        }
        assert_eq!(failed, 0, "crashes lost something");
    }

    /// Versions of a tree were in the index before its removal, and came into the accounts once more.
    #[test]
    fn a_tree_that_is_removed_across_two_crashes_is_subtracted_once() {
        assert_eq!(repeat::<Simulated>(&trial(202612050000000019), 1259, 2138145570360157507), Ok(1));
    }

    /// Versions were inserted into the index before what recovery had read of the log: a table had all of that, and the
    /// index continued before it.
    #[test]
    fn an_index_is_never_ahead_of_its_position() {
        assert_eq!(repeat::<Simulated>(&trial(202612060000000056), 573, 5915682057981728019), Ok(1));
    }

    #[test]
    fn a_full_device_still_lets_go_of_objects_and_is_compacted() {
        let geometry = geometry(1, 0, 1, (1, 0));
        let world = World::new(1, 1);
        world.device(0).set_capacity(32 << 20);
        let mut subject = Simulated::create(&geometry, &world).unwrap();
        let mut keys: Vec<Key> = Vec::new();
        for (length, is_known) in
            [(3_000_000, true), (2_500_000, false), (300_000, false), (100_000, true), (5000, true)]
        {
            loop {
                let key = Key::parse(format!("f{}", keys.len())).unwrap();
                let content = vec![keys.len() as u8; length];
                let mut batch = subject.store.batch(crate::Durability::Batch);
                let size = is_known.then_some(length as u64);
                let put = batch.put_from(&key, &crate::Attributes::default(), &mut &content[..], size);
                match put.and_then(|_| batch.commit()) {
                    Ok(()) => keys.push(key),
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
                        break;
                    }
                }
            }
            let room = world.device(0).room().unwrap();
            let kept = crate::devices::placement::reserve_bytes(room);
            assert!(room.available_bytes > kept - (64 << 10), "{} of {kept}", room.available_bytes);
        }
        for key in &keys {
            assert!(subject.store.remove(key).unwrap());
        }
        subject.compact().unwrap();
        assert!(world.device(0).room().unwrap().available_bytes > 30 << 20);
        subject.store.put(&keys[0], &crate::Attributes::default(), &[1; 3_000_000]).unwrap();
    }

    #[test]
    fn a_sector_that_cannot_be_read_costs_the_records_in_it_and_no_others() {
        let geometry = geometry(1, 0, 1, (1, 0));
        let put = |world: &World| {
            let subject = Simulated::create(&geometry, world).unwrap();
            for first in [0, 40, 80] {
                let mut batch = subject.store.batch(crate::Durability::Batch);
                for number in first..first + 40 {
                    let content = vec![number; 700];
                    batch.put(&Key::parse(format!("f{number}")).unwrap(), &Default::default(), &content).unwrap();
                }
                batch.commit().unwrap();
            }
        };
        let path_in = |world: &World| {
            let files = world.device(0).files();
            files.into_iter().find(|(path, _)| FileKind::of(path) == FileKind::Segment).unwrap()
        };
        let world = World::new(1, 1);
        put(&world);
        let (_, size_bytes) = path_in(&world);
        for at in (0..size_bytes).step_by(4096) {
            let world = World::new(1, 1);
            put(&world);
            let (path, _) = path_in(&world);
            world.device(0).make_unreadable(&path, at, 1);
            for access in [Access::Read, Access::RebuildIndex] {
                let how = OpenOptions { degraded: true, ..OpenOptions::default() };
                let subject = Simulated::open_how(&home(&geometry), &world, access, &how).unwrap();
                let look = subject.look();
                let whole = look.state.objects().count();
                // A record of 800 bytes may share a sector with the next.
                assert!(look.ended.is_none() && whole >= 118, "sector at {at}, {access:?}: {whole} of 120 objects");
            }
        }
    }

    fn trial(seed: u64) -> Trial<Geometry> {
        let geometries = geometries();
        let settings = geometries[seed as usize % geometries.len()].clone();
        Trial { settings, seed, operations: 30, crashes: 2 }
    }

    #[test]
    fn whatever_operation_fails_nothing_acknowledged_is_lost() {
        let mut operation = 0;
        let mut without = 0;
        while without < 3 {
            for (errno, is_lasting) in [
                (rustix::io::Errno::IO, false),
                (rustix::io::Errno::IO, true),
                (rustix::io::Errno::NOSPC, false),
                (rustix::io::Errno::NOSPC, true),
            ] {
                let trial = Trial { operations: 12, ..trial(if operation % 6 == 5 { 4 } else { operation % 4 }) };
                let fault = Fault { operation, errno, is_lasting, device: None };
                let goes_on = |error: &Error| error.kind() == ErrorKind::NoSpace;
                match run_with_fault::<Simulated>(&trial, fault, goes_on) {
                    Ok(true) => without = 0,
                    Ok(false) => without += 1,
                    Err(cause) => panic!("{cause}"),
                }
            }
            operation += if operation < 100 { 1 } else { 7 };
        }
    }

    /// Only a compaction may fail: it moves units on the device, and removes files.
    #[test]
    fn a_writer_goes_on_without_any_one_device_from_any_operation_on() {
        let settings = [geometry(2, 3, 2, (2, 1)), geometry(3, 5, 3, (2, 2)), geometry(4, 0, 2, (2, 1))];
        for seed in 0..12 {
            let settings = settings[seed as usize % settings.len()].clone();
            let device = Some(seed as usize / 3 % settings.devices.len());
            let mut without = 0;
            for operation in (0..).step_by(9) {
                let trial = Trial { settings: settings.clone(), seed, operations: 12, crashes: 2 };
                let fault = Fault { operation, errno: rustix::io::Errno::IO, is_lasting: true, device };
                let goes_on = |error: &Error| {
                    let is_of_units = error.path().is_some_and(|path| path.to_string_lossy().contains("extents"));
                    let is_of_compaction = is_of_units || ["move units", "remove"].contains(&error.operation());
                    assert!(is_of_compaction, "{seed}, {fault:?}: {error}");
                    true
                };
                match run_with_fault::<Simulated>(&trial, fault, goes_on) {
                    Ok(true) => without = 0,
                    Ok(false) => without += 1,
                    Err(cause) => panic!("{cause}"),
                }
                if without > 2 {
                    break;
                }
            }
        }
    }

    #[test]
    fn what_a_full_device_left_behind_the_end_of_the_log_never_comes_back() {
        // Among these are a segment with such an end whose continuation is compacted away, and an index that a crash
        // loses after that.
        for seed in 0..4 {
            for operation in (20..80).step_by(if seed == 3 { 1 } else { 7 }) {
                let trial = Trial { operations: 12, ..trial(seed) };
                let fault = Fault { operation, errno: rustix::io::Errno::NOSPC, is_lasting: true, device: None };
                let goes_on = |error: &Error| error.kind() == ErrorKind::NoSpace;
                if let Err(cause) = run_with_fault::<Simulated>(&trial, fault, goes_on) {
                    panic!("{cause}");
                }
            }
        }
    }
}
