//! Making and opening stores.
//!
//! One process writes, told by locks that die with it; any number reads. A writer recovers the log first. A reader that finds the
//! index lost makes one for itself; one that finds the log ahead of it, left by a writer that died, takes the rest into memory.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::devices::extents::DIRECTORY as EXTENTS;
use crate::devices::host::Host;
use crate::devices::set::{Devices, Lock, Platform, find, keep_home};
use crate::engine::index_place::index_place;
use crate::engine::{Engine, Parts};
use crate::error::{Error, ErrorKind, Result};
use crate::format::geometry::{Geometry, Plan};
use crate::format::segment::SEGMENTS;
use crate::format::superblock::{NO_DEVICE, SUPERBLOCK, Superblock};
use crate::index::table::{BlockCache, DEFAULT_CACHE_BYTES};
use crate::log::recovery::Recovered;
use crate::log::writer::Writer;

/// How often a lock that is taken is tried again, and after what time.
const LOCK_ATTEMPTS: u32 = 10;
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// Whether an opened store writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Write,
    Read,
    /// As `Write`, and the index is made anew.
    Anew,
}

/// Makes a store: directories and superblocks. Fails if there is something already where it is to be.
pub(crate) fn create(platform: &dyn Platform, home: &Path, plan: &Plan) -> Result<()> {
    make(platform, home, Geometry::new(home, plan)?)
}

/// As [`create`], of a geometry that is known.
pub(crate) fn make(platform: &dyn Platform, home: &Path, geometry: Geometry) -> Result<()> {
    let fail = |path: &Path| {
        let path = path.to_owned();
        move |error| Error::io("make the store", &path, error)
    };
    let places: Vec<PathBuf> =
        geometry.devices.iter().map(|device| device.directory(home)).chain([home.to_owned()]).collect();
    for path in &places {
        let path = path.clone();
        let device = platform.device(&path);
        device.create_directory("").map_err(fail(&path))?;
        let refuse = |kind, cause: &str| Err(Error::new(kind, "make the store", cause).at(&path));
        if Superblock::read(&*device).map_or(true, |found| found.is_some()) {
            return refuse(ErrorKind::Exists, "there is a store already");
        }
        let is_empty = device.list("").map_err(fail(&path))?.is_empty()
            && !platform.has_directories(&path, &places).map_err(fail(&path))?;
        if !is_empty {
            return refuse(ErrorKind::Exists, "the directory is not empty");
        }
    }
    let mut superblock = Superblock { generation: 0, number: NO_DEVICE, identity: [0; 16], geometry };
    let devices = superblock.geometry.devices.clone();
    for generation in [1, 2] {
        superblock.generation = generation;
        for entry in &devices {
            let path = entry.directory(home);
            let device = platform.device(&path);
            for directory in [SEGMENTS, EXTENTS] {
                device.create_directory(directory).map_err(fail(&path))?;
            }
            (superblock.number, superblock.identity) = (entry.number, entry.identity);
            superblock.write(&*device)?;
        }
        if !superblock.geometry.home.as_os_str().is_empty() {
            (superblock.number, superblock.identity) = (NO_DEVICE, [0; 16]);
            superblock.write(&*platform.device(home))?;
        }
    }
    Ok(())
}

/// Opens a store by its home or any of its devices.
pub(crate) fn open(platform: Arc<dyn Platform>, directory: &Path, access: Access) -> Result<(Engine, Recovered)> {
    let (home, superblock) = find(&*platform, directory)?;
    let mut locks = Vec::new();
    let mut superblock = superblock;
    if access != Access::Read {
        keep_home(&*platform, &home, &superblock)?;
        lock(&*platform, &home, &mut locks)?;
        // What it says may have changed before the lock was taken.
        superblock = find(&*platform, directory)?.1;
    }
    let superblock = newest(&*platform, &home, superblock);
    let devices = Devices::open(&*platform, &home, &superblock);
    let geometry = superblock.geometry.clone();
    if access != Access::Read {
        for slot in devices.slots().iter().filter(|slot| slot.is_writable() && slot.path != home) {
            lock(&*platform, &slot.path, &mut locks)?;
        }
        devices.write_superblocks(&*platform, &home, &geometry)?;
    }
    let index = index_place(&*platform, &devices, geometry.store, access)?;
    let is_index_private = index.private.is_some();
    locks.extend(index.private);
    let engine = Engine::new(Parts {
        platform: Arc::clone(&platform),
        home,
        geometry,
        devices,
        index: index.device,
        index_directory: index.directory,
        catalog: index.catalog,
        is_index_private,
        cache: Arc::new(BlockCache::new(DEFAULT_CACHE_BYTES)),
        writer: (access != Access::Read).then(Writer::default),
        locks,
    });
    engine.load_view()?;
    // What a writer that died has left in the log is taken in; one that lives is about to do it itself.
    let is_left = access != Access::Read || engine.owns_index() || !platform.is_locked(&engine.home);
    let recovered = if is_left { engine.recover()? } else { Recovered::default() };
    if engine.is_writer() {
        engine.publish_index()?;
    }
    Ok((engine, recovered))
}

fn lock(platform: &dyn Platform, directory: &Path, locks: &mut Vec<Box<dyn Lock>>) -> Result<()> {
    let fail = |error| Error::io("lock the store", directory, error);
    let mut lock = platform.lock(directory).map_err(fail)?;
    for _ in 0..LOCK_ATTEMPTS {
        if lock.is_none() {
            // Somebody may hold it for a moment, only to see whether somebody else does.
            std::thread::sleep(LOCK_PAUSE);
            lock = platform.lock(directory).map_err(fail)?;
        }
    }
    match lock {
        Some(lock) => {
            locks.push(lock);
            Ok(())
        }
        None => {
            Err(Error::new(ErrorKind::Busy, "open the store for writing", "another process has it open for writing")
                .at(directory)
                .advise("wait for it to end; reading is possible meanwhile"))
        }
    }
}

/// The superblock of the highest generation on any device that this one names.
fn newest(platform: &dyn Platform, home: &Path, superblock: Superblock) -> Superblock {
    let mut newest = superblock;
    for entry in newest.geometry.devices.clone() {
        let found = Superblock::read(&*platform.device(&entry.directory(home)));
        if let Ok(Some(found)) = found
            && found.geometry.store == newest.geometry.store
            && found.generation > newest.generation
        {
            newest = found;
        }
    }
    newest
}

/// Opens on this machine.
pub(crate) fn open_here(directory: &Path, access: Access) -> Result<(Engine, Recovered)> {
    open(Arc::new(Host), directory, access)
}

/// Whether a directory holds a store or a device of one.
pub fn is_store(directory: &Path) -> bool {
    directory.join(SUPERBLOCK).is_file()
}
