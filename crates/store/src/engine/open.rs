//! Creating and opening stores.
//!
//! One process writes, protected by locks that are released when it dies; any number of processes read. A writer writes
//! nothing before superblocks and locks permit it (docs/FORMAT.md, section 4), and recovers the log first. A reader
//! that finds the index lost builds its own; one that finds the log ahead of the index, left by a writer that died,
//! applies the rest in memory.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::devices::bucket::BucketOptions;
use crate::devices::device::NotAFile;
#[cfg(test)]
use crate::devices::host::Host;
use crate::devices::platform::{LOST_AND_FOUND, Lock, Platform};
use crate::devices::platforms;
use crate::devices::set::{Devices, EpochStart};
use crate::devices::slot::Trouble;
use crate::devices::survey::{OpenOptions, Survey, bind, survey};
use crate::engine::index_place::index_place;
use crate::engine::locking::{self, Access, locked};
use crate::engine::missing::{devices_away, too_few};
use crate::engine::recovered::Recovered;
use crate::engine::recovery::Recovery;
use crate::engine::{Engine, Parts, RESERVED_IDS, displaced, unknown_epochs};
use crate::error::{Error, ErrorKind, Result};
use crate::format::geometry::{Geometry, Plan, address_scheme};
use crate::format::history::{EpochEntry, History};
use crate::format::ids::Epoch;
use crate::format::names::{EXTENTS, SEGMENTS};
use crate::format::superblock::{SUPERBLOCK, Superblock};
use crate::index::table::{BlockCache, DEFAULT_CACHE_BYTES, INDEX_DIRECTORY, table_number};
use crate::log::completeness::{Completeness, Missing};
use crate::log::writer::Writer;

/// How often a reader opens a store that writers keep changing.
const READ_ATTEMPTS: u32 = 5;

/// Creates a store: directories and superblocks. Fails if anything is already in its place but the empty `lost+found`
/// of a new file system.
pub(crate) fn create(platform: &dyn Platform, home: &Path, plan: &Plan) -> Result<()> {
    make(platform, home, Geometry::new(home, plan)?)
}

/// As [`create`], with a given geometry.
pub(crate) fn make(platform: &dyn Platform, home: &Path, geometry: Geometry) -> Result<()> {
    let fail = |path: &Path| {
        let path = path.to_owned();
        move |error| Error::io("create the store", &path, error)
    };
    let places: Vec<PathBuf> =
        geometry.devices.iter().map(|device| device.directory(home)).chain([home.to_owned()]).collect();
    for path in &places {
        let path = path.clone();
        let device = platform.device_with(&path, geometry.file_mode);
        device.create_directory("").map_err(fail(&path))?;
        let refuse = |kind, cause: &str| Err(Error::new(kind, "create the store", cause).at(&path));
        if Superblock::read(&*device).map_or(true, |found| found.is_some()) {
            return refuse(ErrorKind::Exists, "a store already exists");
        }
        // It may be where a new file system is mounted.
        let lost_and_found = Some(path.join(LOST_AND_FOUND)).filter(|found| platform.is_lost_and_found(found));
        let allowed: Vec<PathBuf> = places.iter().cloned().chain(lost_and_found).collect();
        let is_empty = device.list("").map_err(fail(&path))?.is_empty()
            && !platform.has_directories(&path, &allowed).map_err(fail(&path))?;
        if !is_empty {
            return refuse(ErrorKind::Exists, "the directory is not empty");
        }
    }
    if platform.has_others(home).map_err(fail(home))? {
        let error = Error::new(ErrorKind::Exists, "create the store", "other objects are there").at(home);
        return Err(error.advise("name another prefix: objects of a store that has lost its manifest would be deleted"));
    }
    let mut geometry = geometry;
    for entry in &geometry.devices {
        let path = entry.directory(home);
        let device = platform.device_with(&path, geometry.file_mode);
        for directory in [SEGMENTS, EXTENTS] {
            device.create_directory(directory).map_err(fail(&path))?;
        }
    }
    bind(platform, home, &mut geometry);
    let first = EpochEntry {
        epoch: Epoch(platform.random()?),
        began_nanoseconds: platform.now_nanoseconds(),
        segments_begun: 0,
        last_batch: 0,
        in_sync: geometry.devices.iter().map(|entry| entry.number).collect(),
    };
    let superblock = Superblock::of_store(geometry, History::new(first), None);
    let geometry = &superblock.geometry;
    for entry in &geometry.devices {
        let of_device = Superblock { number: entry.number, identity: entry.identity, ..superblock.clone() };
        of_device.write_first(&*platform.device_with(&entry.directory(home), geometry.file_mode))?;
    }
    if geometry.has_home_apart() {
        let device = platform.device_with(home, geometry.file_mode);
        superblock.write_first(&*device)?;
    }
    Ok(())
}

/// Opens a store by its home or any of its devices. Until a writer has proof and all locks, nothing is written. An
/// index that does not belong to this log (because it is ahead of it or an old copy), or is damaged or unreadable on
/// all copies, is treated as lost: the log is read from its beginning.
///
/// A writer that begins or closes while a reader looks leaves it with superblocks from before, and a log from after
/// that: then the reader looks again.
pub(crate) fn open(
    platform: Arc<dyn Platform>,
    directory: &Path,
    access: Access,
    options: &OpenOptions,
) -> Result<(Engine, Recovered)> {
    let mut opened = open_once(&platform, directory, access, options)?;
    for _ in 1..READ_ATTEMPTS {
        let (engine, recovered) = &opened;
        let has_trouble = engine.devices.slots().iter().any(|slot| slot.trouble.is_some());
        // Superblocks from before, beside the index from after: a copy has taken the place of the directory.
        let is_certain = recovered.completeness == Completeness::default() && !has_trouble && !engine.is_index_private;
        if access.is_writer() || is_certain || !has_moved_on(&*platform, directory, options, engine) {
            break;
        }
        opened = open_once(&platform, directory, access, options)?;
    }
    Ok(opened)
}

/// Whether a writer has begun or closed since a reader read the superblocks, or is at work now. If that cannot be seen,
/// what was opened stays.
fn has_moved_on(platform: &dyn Platform, directory: &Path, options: &OpenOptions, engine: &Engine) -> bool {
    let now = survey(platform, directory, options).and_then(|now| Devices::new(platform, now, false));
    let Ok(now) = now else { return false };
    let before = &engine.devices;
    let is_same = now.epoch() == before.epoch() && now.marks() == before.marks();
    !is_same || platform.has_writer(&engine.home)
}

fn open_once(
    platform: &Arc<dyn Platform>,
    directory: &Path,
    access: Access,
    options: &OpenOptions,
) -> Result<(Engine, Recovered)> {
    let missing = match open_by(platform, directory, access, options, &[]) {
        Ok(Opened::Whole(opened)) => return Ok(*opened),
        Ok(Opened::UnusableIndex(missing)) => missing,
        Err(error) if is_of_tables(&error) => Vec::new(),
        Err(error) => return Err(error),
    };
    match open_by(platform, directory, access.without_index(), options, &missing)? {
        Opened::Whole(opened) => Ok(*opened),
        Opened::UnusableIndex(_) => Err(Error::new(ErrorKind::Corrupt, "open the store", "its log is inconsistent")
            .at(directory)
            .advise("run granulo store check --rebuild-index")),
    }
}

/// Whether a table of the index is damaged or unreadable on all copies. Other errors say nothing about the table: there
/// may be too many open files.
pub(crate) fn is_of_tables(error: &Error) -> bool {
    let is_unreadable = error
        .os_error()
        .is_some_and(|source| source.raw_os_error() == Some(locking::UNREADABLE) || NotAFile::is(source));
    (error.kind() == ErrorKind::Corrupt || is_unreadable)
        && error.path().is_some_and(|path| {
            let name = path.file_name().and_then(|name| name.to_str());
            path.parent().is_some_and(|above| above.ends_with(INDEX_DIRECTORY)) && name.and_then(table_number).is_some()
        })
}

/// The outcome of opening.
enum Opened {
    Whole(Box<(Engine, Recovered)>),
    /// The index does not belong to this log: what it has and the log lacks.
    UnusableIndex(Vec<Missing>),
}

fn open_by(
    platform: &Arc<dyn Platform>,
    directory: &Path,
    access: Access,
    options: &OpenOptions,
    missing: &[Missing],
) -> Result<Opened> {
    let mut survey = survey(&**platform, directory, options)?;
    let mut locks = Vec::new();
    let is_writer = access.is_writer();
    if is_writer {
        survey = locked(&**platform, directory, options, survey, &mut locks)?;
    } else {
        survey.may_read()?;
    }
    open_found(platform, access, options, missing, (survey, locks))
}

/// Opens a store for reading as a history shows it, with a private index. Devices with other epochs are read as stale
/// ones, except those of a copy of the store. What marks and the other histories say does not count.
///
/// # Errors
/// As [`open`].
pub(crate) fn open_history(
    platform: Arc<dyn Platform>,
    directory: &Path,
    options: &OpenOptions,
    history: &History,
) -> Result<(Engine, Recovered)> {
    let mut found = survey(&*platform, directory, options)?;
    let side = found.sides.iter().find(|side| side.history == *history).cloned();
    let of_copy = side.map(|side| found.twins_of(&side)).unwrap_or_default();
    for (slot, on_device) in found.slots.iter_mut().zip(&mut found.on_devices) {
        let Some(on_device) = on_device else { continue };
        on_device.superblock.mark = None;
        let number = slot.entry.number;
        slot.is_late = false;
        slot.trouble = match history.newest().has(number) {
            _ if of_copy.contains(&number) => Some(Trouble::Diverged),
            true => None,
            false => Some(Trouble::Stale { missed: 1 }),
        };
    }
    found.on_home.iter_mut().for_each(|home| home.superblock.mark = None);
    found.sides.clear();
    found.history = history.clone();
    match open_found(&platform, Access::ReadWithoutIndex, options, &[], (found, Vec::new()))? {
        Opened::Whole(opened) => Ok(*opened),
        Opened::UnusableIndex(_) => unreachable!("it is opened without one"),
    }
}

/// Opens a store whose superblocks were read, and whose locks were taken by a writer. If these were found on no side,
/// it is opened by a history that may not be the store's.
fn open_found(
    platform: &Arc<dyn Platform>,
    access: Access,
    options: &OpenOptions,
    missing: &[Missing],
    (survey, mut locks): (Survey, Vec<Box<dyn Lock>>),
) -> Result<Opened> {
    let is_writer = access.is_writer();
    // What recovery writes is acknowledged by nobody: it goes out with the first batch, or when the lock is released.
    let _hold = is_writer.then(|| platform.hold());
    let is_of_side = survey.sides.is_empty();
    let is_known = is_of_side || survey.doubt(options.lost).is_none() && survey.sides.len() < 2;
    let away = survey.away_beside(options.lost);
    let mut missing = missing.to_vec();
    missing.extend((!away.is_empty()).then(|| devices_away(away)));
    let geometry = if is_writer { survey.bound.clone() } else { survey.geometry.clone() };
    let home = survey.home.clone();
    // Before the index is read: what a dead writer left in the log is applied, and so is what one that is recovering is
    // about to apply; one that has recovered is ahead of what is read here.
    let is_left = is_writer || is_of_side || !platform.has_writer(&home);
    let devices = Devices::new(&**platform, survey, is_writer)?;
    if is_writer && !options.degraded {
        displaced::refuse_others(&devices, displaced::WRITERS_ADVICE)?;
    }
    let beyond = if is_of_side { None } else { unknown_epochs::find(&devices, &geometry.store) };
    let old = match beyond {
        Some(beyond) if beyond.continues() && is_writer => return Err(beyond.refusal(&home)),
        Some(beyond) if beyond.continues() => Some(beyond.missing()),
        beyond => {
            missing.extend(beyond.map(|beyond| beyond.missing()));
            None
        }
    };
    let index = index_place(&**platform, &devices, &geometry, access)?;
    let is_index_private = index.private.is_some();
    locks.extend(index.private);
    let engine = Engine::new(Parts {
        platform: Arc::clone(platform),
        home,
        geometry,
        devices,
        index: index.catalog.copies(),
        index_directory: index.directory,
        catalog: index.catalog,
        is_index_private,
        cache: Arc::new(BlockCache::new(DEFAULT_CACHE_BYTES)),
        writer: is_writer.then(Writer::default),
        is_degraded: options.degraded,
        lost: options.lost,
        locks,
    });
    engine.load_view()?;
    let mut recovered = Recovered::default();
    // A writer may have just taken the lock from one that was killed.
    let is_left = is_left || !platform.has_writer(&engine.home);
    if is_left || engine.owns_index() || engine.catalog.is_doubtful() {
        match engine.recover(index.witnessed, &missing)? {
            Recovery::Done(done) => recovered = done,
            Recovery::UnusableIndex(missing) => return Ok(Opened::UnusableIndex(missing)),
        }
    } else {
        recovered.completeness.missing = engine.completeness_of(&engine.view().state.notes);
    }
    if !is_known {
        recovered.completeness.add(too_few(&engine.devices));
    }
    old.into_iter().for_each(|old| recovered.completeness.add(old));
    if is_writer {
        let (beginning, end) = {
            let writer = engine.writer()?;
            (engine.beginning(&writer), writer.position)
        };
        engine.devices.settle_late(beginning.last_batch, |device| engine.has_log(device, end));
        engine.devices.begin_epoch(&*engine.platform, &engine.geometry(), beginning)?;
        engine.begun(beginning);
        engine.publish_index()?;
        engine.share_pins();
        engine.locks.iter().for_each(|lock| lock.sign(true));
    }
    Ok(Opened::Whole(Box::new((engine, recovered))))
}

/// Opens a store on this machine, and does nothing that is due after recovery.
#[cfg(test)]
pub(crate) fn open_here(directory: &Path, access: Access, options: &OpenOptions) -> Result<(Engine, Recovered)> {
    open(Arc::new(Host), directory, access, options)
}

/// Whether a directory contains a store or one of its devices; or whether an address in a bucket is that of a store.
pub fn is_store(directory: &Path) -> bool {
    if address_scheme(directory).is_none() {
        return directory.join(SUPERBLOCK).is_file();
    }
    let platform = platforms::of(directory, &BucketOptions::default());
    platform.is_ok_and(|platform| matches!(Superblock::read(&*platform.device(directory)), Ok(Some(_))))
}

impl Engine {
    /// The state at the beginning of an epoch begun now. It is unknown which ids another writer had assigned of those
    /// it reserved.
    fn beginning(&self, writer: &Writer) -> EpochStart {
        let reserved_before = self.devices.marks().iter().map(|mark| mark.ids_reserved).max().unwrap_or(0);
        let given = self.highest_id.fetch_max(reserved_before, Ordering::Relaxed).max(reserved_before);
        EpochStart {
            segments_begun: writer.newest_segment.0,
            last_batch: writer.position.sequence,
            ids_reserved: given + RESERVED_IDS,
        }
    }

    /// The superblocks have the epoch, and what it reserves.
    fn begun(&self, at: EpochStart) {
        self.reserved_ids.store(at.ids_reserved, Ordering::Relaxed);
        self.catalog.set_epoch(self.epoch());
    }

    /// Writes another geometry to all devices in service, as a separate epoch; it takes effect with that.
    ///
    /// # Errors
    /// As [`begin_next_epoch`](Self::begin_next_epoch); then nothing more is written if the log may have lost a batch.
    pub(crate) fn write_geometry(&self, geometry: &Geometry) -> Result<()> {
        let _sync = crate::locks::lock(&self.sync);
        self.begin_next_epoch(geometry)
    }

    /// As [`write_geometry`](Self::write_geometry), with `sync` held: nothing is acknowledged until it returns.
    ///
    /// # Errors
    /// As [`Devices::begin_epoch`], and any error of writing and syncing the log.
    pub(crate) fn begin_next_epoch(&self, geometry: &Geometry) -> Result<()> {
        let mut writer = self.writer()?;
        // The superblocks say that the last batch before an epoch is durable.
        match self.settle(&mut writer) {
            Err(error) if self.is_waiting_for_space(&error) => {}
            other => other?,
        }
        self.begin_settled_epoch(&mut writer, geometry)
    }

    /// The same when everything in the log is durable.
    ///
    /// # Errors
    /// As [`begin_next_epoch`](Self::begin_next_epoch).
    pub(super) fn begin_settled_epoch(&self, writer: &mut Writer, geometry: &Geometry) -> Result<()> {
        assert_eq!(writer.durable_sequence, writer.position.sequence, "every batch before an epoch is durable");
        let beginning = self.beginning(writer);
        self.devices.begin_next(&*self.platform, geometry, beginning).inspect_err(|error| {
            if !self.devices.continue_epoch() {
                self.latch(error);
            }
        })?;
        self.begun(beginning);
        // Before the mark: if a device fails then, another epoch begins, and it must have this geometry, too.
        self.set_geometry(geometry.clone());
        self.mark_epoch(writer)
    }
}
