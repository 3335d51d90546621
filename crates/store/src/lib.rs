//! The store: millions of small files as records in a few append-only segments, large ones striped over slow devices.
//!
//! One process writes; any number of processes read beside it. What is acknowledged survives a power failure, every
//! byte that is returned was verified, and what redundancy can repair is repaired; docs/FORMAT.md has the format and
//! the argument.
//!
//! # A tour
//!
//! Programs use [`Store`]. It holds objects under [`Key`]s, which are paths; a [`Batch`] changes many of them for the
//! cost of one sync.
//!
//! ```
//! use granulo_store::{Attributes, Buffer, Durability, Existing, HandleOptions, Key, Plan, Store, Time};
//!
//! # let place = tempfile::tempdir()?;
//! # let home = place.path().join("store");
//! // One directory; `Plan` also takes fast and slow devices, redundancy and the cutoff between small and large files.
//! let store = Store::create(&home, &Plan::default())?;
//! let attributes = Attributes::of_file(Time { seconds: 1_700_000_000, nanoseconds: 0 });
//!
//! // A batch is durable when `commit` returns. Directories above a key are created as needed.
//! let mut batch = store.batch(Durability::Batch);
//! for cat in 0..100 {
//!     batch.put(&Key::parse(format!("cats/{cat}.jpg"))?, &attributes, b"a picture")?;
//! }
//! batch.commit()?;
//!
//! // Read into memory that is used again; list a directory.
//! let mut buffer = Buffer::default();
//! let cat = Key::parse("cats/7.jpg")?;
//! assert_eq!(store.read(&cat, &mut buffer)?.unwrap().content, b"a picture");
//! assert_eq!(store.list(&Key::parse("cats")?)?.count(), 100);
//!
//! // Names: rename (whole directories too), exchange, link.
//! store.create_snapshot("before")?;
//! store.rename(&Key::parse("cats")?, &Key::parse("felines")?, Existing::Refuse)?;
//! store.hard_link(&Key::parse("felines/7.jpg")?, &Key::parse("favourite.jpg")?)?;
//!
//! // A handle reads and writes at any offset and follows its object through renames.
//! let handle = store.open_object(&Key::parse("favourite.jpg")?, &HandleOptions::write())?;
//! handle.write_at(b"the", 0)?;
//! handle.commit(Durability::Batch)?;
//! handle.close()?;
//! assert_eq!(store.get(&Key::parse("felines/7.jpg")?)?.unwrap(), b"theicture");
//!
//! // The snapshot still has what there was. Others may read meanwhile.
//! let reader = Store::open_read_only(&home)?;
//! let before = reader.snapshot_named("before")?.unwrap();
//! assert_eq!(before.read(&cat, &mut buffer)?.unwrap().content, b"a picture");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `cargo run -p granulo-store --example pack_directory -- DIR STORE` packs a directory and reads it back.
//!
//! # The crate
//!
//! | wing | subject |
//! | --- | --- |
//! | `format` | bytes and their meaning: [`key`], [`attributes`], [`entry`], [`geometry`] |
//! | `devices` | devices, host, placement; parity and extents; buckets: [`objects`], [`published`], [`bucket`] |
//! | `log` | records appended to segments and read through |
//! | `index` | the [`catalog`], sorted tables, look-up and order over both |
//! | `engine` | an open store: batches, what they do to index and accounts, durability; creating, opening, recovery |
//! | `access` | reading, listings, handles, snapshots, historical versions |
//! | `maintain` | check, scrub, repair, rebuild, compaction, rebalance |
//! | [`tree`] | file trees and archives, in and out |
//!
//! A wing uses only the wings below it; a test of the workspace enforces that.

#![warn(unreachable_pub)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

mod access;
mod devices;
mod engine;
mod format;
#[cfg(any(test, feature = "testing"))]
pub mod fuzzing;
mod index;
mod log;
mod maintain;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod space_tests;
#[cfg(test)]
mod tests;
pub mod tree;

// The modules of the core, under their names in the core.
#[cfg(test)]
pub(crate) use granulo_core::random;
pub(crate) use granulo_core::{error, io, layout, locks, units};

pub use granulo_core::progress::{self, Progress};

pub use devices::host::inherited_locks;
pub use devices::objects;
pub use devices::published;
pub use format::{attributes, entry, geometry, ids, key};

/// Stores in buckets: how their addresses lead to one, and how they are used.
pub mod bucket {
    pub use crate::devices::bucket::BucketOptions;
    pub use crate::devices::objects::counts::{BucketStatus, Requests, StoredObjects};
    pub use crate::devices::platforms::{Connector, is_address, register};
}
pub use index::catalog;

pub use access::content::Content;
pub use access::difference::{Difference, Differences};
pub use access::handle::{Handle, HandleOptions, SavedPending};
pub use access::held::{Held, HeldBySnapshots, SnapshotHeld};
pub use access::listed::RecordPlace;
pub use access::load::{Load, Loaded, LoadedObject};
pub use access::pinned::PinnedSnapshot;
pub use access::places::{ContentFile, Placed, PlacedRun};
pub use access::read::{Buffer, Object, Status, WHOLE_BYTES};
pub use access::versions::{Removed, Version, VersionContent, Versions};
pub use access::walk::{Lent, Listed, Walk};
pub use devices::platform::UnknownPin;
pub use devices::slot::Trouble;
pub use devices::survey::OpenOptions;
pub use engine::divergence::Rejected;
pub use engine::open::is_store;
pub use engine::recovered::{Damage, Recovered};
pub use engine::sides::Side;
pub use engine::unused::{UnusedDirectory, unused_directories};
pub use engine::write::{Batch, Existing};
pub use format::attributes::{Attributes, Holes, Xattrs};
pub use format::entry::{Entry, Kind, Location, Time};
pub use format::geometry::{Class, Compression, DeviceEntry, DeviceState, Geometry, Plan};
pub use format::key::Key;
pub use format::rows::SnapshotRow;
pub use log::completeness::{Cause, Completeness, Missing, Tail};
pub use maintain::check::{CheckOptions, CheckReport};
pub use maintain::choice::{Choice, CompactPlan, Compacted, PlannedExtent, PlannedSegment};
pub use maintain::compact::CompactOptions;
pub use maintain::problem::{Problem, ProblemKind, Remedy};
pub use maintain::rebalance::{RebalancePlan, Rebalanced};
pub use maintain::rebuild::{RebuildOptions, RebuildPlan, RebuildReport};
pub use maintain::repair::{
    PlanLine, RepairOptions, RepairPlan, RepairReport, plan_repair, rebuild_index, repair, take_side,
};
pub use maintain::replicate::{Copied, CopyOptions, Incoming, Peer};
pub use maintain::scrub::{ScrubOptions, ScrubReport, ScrubStatus};
pub use maintain::status::{AgedSegments, Census, DeviceStatus, StoreStatus};

use crate::error::{Error, Result};
use crate::format::ids::DeviceNumber;
use devices::platform::Platform;
use devices::platforms;
use devices::watch::DirectoryWatch;
use engine::Engine;
use engine::locking::Access;
use engine::marks::Idle;
use engine::open;
use maintain::status::explain_trouble;

/// When a batch is durable and visible to other processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Each object, when its call returns.
    Each,
    /// The whole batch, when `commit` returns.
    Batch,
    /// At the next [`Store::sync`].
    None,
}

/// An open store. Clones share the same store, and threads may share a clone.
#[derive(Debug, Clone)]
pub struct Store {
    engine: Arc<Closing>,
    recovered: Recovered,
}

/// The engine, made durable when the last handle is dropped.
#[derive(Debug)]
struct Closing {
    engine: Arc<Engine>,
    /// Ends before the store is closed.
    idle: Option<Idle>,
    /// The open failed after recovery: nobody was told what that found, so the next one must find it again.
    is_abandoned: bool,
}

impl Drop for Closing {
    fn drop(&mut self) {
        self.idle = None;
        // Call `sync` first to learn whether everything is durable.
        if !self.is_abandoned {
            let _ = self.engine.close();
        }
    }
}

impl Store {
    /// Creates a store and opens it for writing. The home and the devices must be empty or not exist.
    ///
    /// # Errors
    /// [`Exists`](crate::error::ErrorKind::Exists) if something exists there, [`Usage`](crate::error::ErrorKind::Usage)
    /// for an impossible geometry.
    pub fn create(home: &Path, plan: &Plan) -> Result<Store> {
        Store::create_with(home, plan, &OpenOptions::default())
    }

    /// As [`create`](Self::create), with options: how its bucket is used.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn create_with(home: &Path, plan: &Plan, options: &OpenOptions) -> Result<Store> {
        let platform = platforms::of(home, &options.bucket)?;
        let hold = platform.hold();
        open::create(&*platform, home, plan)?;
        let store = Store::open_on(platform, home, Access::Write, options)?;
        // Whoever reads it finds it with its index.
        hold.publish().map_err(|error| Error::io("create the store", home, error))?;
        Ok(store)
    }

    /// Keeps the current state of the store from being freed until [`unpin`](Self::unpin) with the same name, even if
    /// processes end meanwhile. An existing pin of that name moves to the current state.
    ///
    /// ```
    /// use granulo_store::{Plan, Store};
    ///
    /// # let place = tempfile::tempdir()?;
    /// let store = Store::create(&place.path().join("store"), &Plan::default())?;
    /// store.pin("nightly copy")?;
    /// // Meanwhile others may copy the files of this state, whatever is removed and compacted.
    /// assert_eq!(store.pins()?.len(), 1);
    /// assert!(store.unpin("nightly copy")?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`ReadOnly`](crate::error::ErrorKind::ReadOnly) if the store was opened for reading; errors of writing.
    pub fn pin(&self, name: &str) -> Result<()> {
        self.engine().pin_named(name)
    }

    /// Releases a pin; returns whether it existed.
    ///
    /// # Errors
    /// As [`pin`](Self::pin).
    pub fn unpin(&self, name: &str) -> Result<bool> {
        self.engine().unpin_named(name)
    }

    /// Names of the pins that outlive a process, each with the epoch that it keeps.
    ///
    /// # Errors
    /// Errors of reading the index.
    pub fn pins(&self) -> Result<Vec<(String, u64)>> {
        let view = self.engine().fresh()?;
        Ok(view.state.pins.iter().map(|(name, epoch)| (name.clone(), *epoch)).collect())
    }

    /// Opens a store, by its home or any of its devices, for reading and writing; recovers from a crash.
    ///
    /// # Errors
    /// [`NotFound`](crate::error::ErrorKind::NotFound) if there is no store, [`Busy`](crate::error::ErrorKind::Busy) if
    /// another process writes, [`Lost`](crate::error::ErrorKind::Lost) if too few devices are present to be sure that
    /// the newest state is among them, or if they have diverged, [`Corrupt`](crate::error::ErrorKind::Corrupt) if
    /// acknowledged writes are missing.
    pub fn open(home: &Path) -> Result<Store> {
        Store::open_with(home, &OpenOptions::default())
    }

    /// As [`open`](Self::open), with options: where devices are, or to write although too few are present.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_with(home: &Path, options: &OpenOptions) -> Result<Store> {
        Store::open_on(platforms::of(home, &options.bucket)?, home, Access::Write, options)
    }

    /// Opens for reading, with or without a concurrent writer. Sees what a writer makes durable within a millisecond.
    ///
    /// # Errors
    /// As [`open`](Self::open), except `Busy`.
    pub fn open_read_only(home: &Path) -> Result<Store> {
        Store::open_read_only_with(home, &OpenOptions::default())
    }

    /// As [`open_read_only`](Self::open_read_only), with options: where devices are.
    ///
    /// # Errors
    /// As [`open_read_only`](Self::open_read_only).
    pub fn open_read_only_with(home: &Path, options: &OpenOptions) -> Result<Store> {
        Store::open_on(platforms::of(home, &options.bucket)?, home, Access::Read, options)
    }

    /// Opens a store as it was when a snapshot was taken, for reading: whatever reads it, reads that state. What is
    /// written meanwhile does not appear, and removing the snapshot frees nothing of it before this is dropped. (Unless
    /// this user may not write to the index: then reading what was freed is an error,
    /// [`Busy`](crate::error::ErrorKind::Busy).)
    ///
    /// ```
    /// use granulo_store::{Attributes, Key, OpenOptions, Plan, Store, Time};
    ///
    /// # let place = tempfile::tempdir()?;
    /// let home = place.path().join("store");
    /// let store = Store::create(&home, &Plan::default())?;
    /// let (key, attributes) = (Key::parse("a/file")?, Attributes::of_file(Time { seconds: 0, nanoseconds: 0 }));
    /// store.put(&key, &attributes, b"before")?;
    /// store.create_snapshot("monday")?;
    /// store.put(&key, &attributes, b"after")?;
    ///
    /// let monday = Store::open_at(&home, "monday", &OpenOptions::default())?;
    /// assert_eq!(monday.get(&key)?.unwrap(), b"before");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`open_read_only`](Self::open_read_only); `NotFound` if there is no such snapshot.
    pub fn open_at(home: &Path, snapshot: &str, options: &OpenOptions) -> Result<Store> {
        let store = Store::open_read_only_with(home, options)?;
        match store.engine().rest_at(snapshot.as_bytes())? {
            true => Ok(store),
            false => {
                let cause = format!("there is no snapshot {}", crate::units::escape(snapshot.as_bytes()));
                let error = Error::new(error::ErrorKind::NotFound, "open", cause).at(home);
                Err(error.advise("list them with granulo store snapshot ls"))
            }
        }
    }

    /// Opens a store on a platform. What is due after recovery reads tables that recovery did not: an unreadable one
    /// among them is treated as recovery treats it.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub(crate) fn open_on(
        platform: Arc<dyn Platform>,
        home: &Path,
        access: Access,
        options: &OpenOptions,
    ) -> Result<Store> {
        let open_with = |access| open::open(Arc::clone(&platform), home, access, options).and_then(Store::of);
        match open_with(access) {
            Err(error) if open::is_of_tables(&error) => open_with(access.without_index()),
            outcome => outcome,
        }
    }

    /// # Errors
    /// As [`attach_detached`](Self::attach_detached).
    pub(crate) fn of((engine, recovered): (Engine, Recovered)) -> Result<Store> {
        let engine = Arc::new(engine);
        let idle = engine.platform.idle_interval().filter(|_| engine.is_writer()).map(|interval| {
            let marking = Arc::clone(&engine);
            // The next write reports a failure here.
            Idle::begin(interval, move || _ = marking.mark(false))
        });
        let mut store = Store { engine: Arc::new(Closing { engine, idle, is_abandoned: false }), recovered };
        let prepared = store.prepare();
        if let (Err(_), Some(closing)) = (&prepared, Arc::get_mut(&mut store.engine)) {
            closing.is_abandoned = true;
        }
        prepared.map(|()| store)
    }

    /// What is due after recovery. A writer on a full device leaves it to another: somebody must be able to free space.
    fn prepare(&mut self) -> Result<()> {
        self.recovered.detached = self.attach_detached()?;
        if self.engine().is_writer() { self.engine().catch_up() } else { Ok(()) }
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine.engine
    }

    /// Notes that a batch became durable: if none follows for a while, the log says so.
    pub(crate) fn beat(&self) {
        self.engine.idle.iter().for_each(Idle::beat);
    }

    /// What was recovered on open.
    pub fn recovered(&self) -> &Recovered {
        &self.recovered
    }

    /// Whether everything acknowledged was present on open.
    pub fn completeness(&self) -> &Completeness {
        &self.recovered.completeness
    }

    /// The geometry.
    pub fn geometry(&self) -> Arc<Geometry> {
        self.engine().geometry()
    }

    /// Devices with a fault, by number.
    pub fn troubles(&self) -> Vec<(DeviceNumber, Trouble)> {
        let slots = self.engine().devices.slots();
        slots.iter().filter_map(|slot| Some((slot.entry.number, slot.trouble.clone()?))).collect()
    }

    /// The fault of a device, as the end of "device 3 …".
    pub fn explain_trouble(&self, device: DeviceNumber) -> Option<String> {
        explain_trouble(self.engine().devices.slots().get(device.index())?)
    }

    /// A new batch. Up to 8 MiB of records are atomic; a larger batch is committed in pieces of that size. Threads may
    /// fill batches concurrently, and durable batches that are committed at the same time share one round of syncs:
    ///
    /// ```
    /// use granulo_store::{Attributes, Durability, Key, Plan, Store, Time};
    ///
    /// # let place = tempfile::tempdir()?;
    /// let store = Store::create(&place.path().join("store"), &Plan::default())?;
    /// let attributes = Attributes::of_file(Time { seconds: 0, nanoseconds: 0 });
    /// std::thread::scope(|scope| {
    ///     for thread in 0..8 {
    ///         let (store, attributes) = (&store, &attributes);
    ///         scope.spawn(move || {
    ///             let mut batch = store.batch(Durability::Batch);
    ///             batch.put(&Key::parse(format!("log/{thread}")).unwrap(), attributes, b"done").unwrap();
    ///             batch.commit().unwrap();
    ///         });
    ///     }
    /// });
    /// assert_eq!(store.list(&Key::parse("log")?)?.count(), 8);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn batch(&self, durability: Durability) -> Batch<'_> {
        Batch::new(self, durability)
    }

    /// Stores a file, durable on return. Creates missing parent directories.
    ///
    /// # Errors
    /// As [`Batch::put`] and [`Batch::commit`].
    pub fn put(&self, key: &Key, attributes: &Attributes, content: &[u8]) -> Result<()> {
        let mut batch = self.batch(Durability::Batch);
        batch.put(key, attributes, content)?;
        batch.commit()
    }

    /// Removes a file, a link, or an empty directory, durable on return; returns whether it existed.
    ///
    /// # Errors
    /// As [`Batch::remove`].
    pub fn remove(&self, key: &Key) -> Result<bool> {
        let mut batch = self.batch(Durability::Batch);
        let was_there = batch.remove(key)?;
        batch.commit()?;
        Ok(was_there)
    }

    /// Renames an object, durable on return.
    ///
    /// # Errors
    /// As [`Batch::rename`].
    pub fn rename(&self, from: &Key, to: &Key, existing: Existing) -> Result<()> {
        let mut batch = self.batch(Durability::Batch);
        batch.rename(from, to, existing)?;
        batch.commit()
    }

    /// Exchanges the names of two objects, durable on return.
    ///
    /// ```
    /// use granulo_store::{Attributes, Key, Plan, Store, Time};
    ///
    /// # let place = tempfile::tempdir()?;
    /// let store = Store::create(&place.path().join("store"), &Plan::default())?;
    /// let attributes = Attributes::of_file(Time { seconds: 0, nanoseconds: 0 });
    /// store.put(&Key::parse("current/data")?, &attributes, b"old")?;
    /// store.put(&Key::parse("next/data")?, &attributes, b"new")?;
    /// // Whole directories: nobody sees a moment without `current`.
    /// store.exchange(&Key::parse("current")?, &Key::parse("next")?)?;
    /// assert_eq!(store.get(&Key::parse("current/data")?)?.unwrap(), b"new");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Batch::exchange`].
    pub fn exchange(&self, one: &Key, other: &Key) -> Result<()> {
        let mut batch = self.batch(Durability::Batch);
        batch.exchange(one, other)?;
        batch.commit()
    }

    /// Adds a name to a file, durable on return.
    ///
    /// # Errors
    /// As [`Batch::hard_link`].
    pub fn hard_link(&self, existing: &Key, name: &Key) -> Result<()> {
        let mut batch = self.batch(Durability::Batch);
        batch.hard_link(existing, name)?;
        batch.commit()
    }

    /// Replaces the attributes of an object, durable on return.
    ///
    /// # Errors
    /// As [`Batch::set_attributes`].
    pub fn set_attributes(&self, key: &Key, attributes: &Attributes) -> Result<()> {
        let mut batch = self.batch(Durability::Batch);
        batch.set_attributes(key, attributes)?;
        batch.commit()
    }

    /// Removes an object and, if it is a directory, everything below it, durable on return; returns whether it existed.
    /// The root itself stays.
    ///
    /// # Errors
    /// As [`Batch::remove_tree`].
    pub fn remove_tree(&self, key: &Key) -> Result<bool> {
        let mut batch = self.batch(Durability::Batch);
        let was_there = batch.remove_tree(key)?;
        batch.commit()?;
        Ok(was_there)
    }

    /// Makes everything that was committed durable and visible to other processes.
    ///
    /// # Errors
    /// Errors of syncing; the store is read-only afterwards.
    pub fn sync(&self) -> Result<()> {
        self.engine().sync_all()?;
        self.engine().mark(false)
    }

    /// Takes in what another process has made durable; returns whether there was anything.
    ///
    /// # Errors
    /// Errors of reading the index.
    pub fn refresh(&self) -> Result<bool> {
        self.engine().refresh()
    }

    /// Waits until another process makes something durable, and takes it in; returns whether that happened before
    /// `timeout`.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use granulo_store::{Attributes, Key, Plan, Store, Time};
    ///
    /// # let place = tempfile::tempdir()?;
    /// # let home = place.path().join("store");
    /// let writer = Store::create(&home, &Plan::default())?;
    /// let reader = Store::open_read_only(&home)?;
    /// std::thread::scope(|scope| {
    ///     let attributes = Attributes::of_file(Time { seconds: 0, nanoseconds: 0 });
    ///     scope.spawn(move || writer.put(&Key::parse("news").unwrap(), &attributes, b"!").unwrap());
    ///     while reader.entry(&Key::parse("news").unwrap()).unwrap().is_none() {
    ///         reader.wait_for_change(Duration::from_secs(60)).unwrap();
    ///     }
    /// });
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Errors of reading the index or of waiting.
    pub fn wait_for_change(&self, timeout: Duration) -> Result<bool> {
        let (engine, until) = (self.engine(), Instant::now().checked_add(timeout));
        let mut watch = DirectoryWatch::new(&engine.index_directory);
        loop {
            // The watch starts first, so that nothing is missed in between.
            if engine.has_changed()? {
                return Ok(true);
            }
            let left = until.map_or(timeout, |until| until.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return Ok(false);
            }
            watch.wait(left).map_err(|error| Error::io("wait for changes of", &engine.index_directory, error))?;
        }
    }

    /// The index entry of a key, for one of several names that of the shared object; symlinks are not followed. Reads
    /// no record.
    ///
    /// # Errors
    /// Errors of reading the index.
    pub fn entry(&self, key: &Key) -> Result<Option<Listed>> {
        let found = self.engine().find(key.stored())?;
        Ok(found.map(|found| Listed { key: key.clone(), entry: found.entry, shared: found.shared }))
    }

    /// Number of names of a file with several (the number in [`Listed::shared`]), from the index: no record is read.
    pub fn names_of(&self, file: ids::ObjectNumber) -> u64 {
        self.engine().names_of(file)
    }

    /// Everything known about a key. Reads its record, unless the index shows all its attributes
    /// ([`Entry::is_plain`]).
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn stat(&self, key: &Key) -> Result<Option<Status>> {
        self.engine().stat(key)
    }

    /// The content of an object, up to 1 GiB; use [`content`](Self::content) or [`read_range`](Self::read_range) for
    /// larger ones.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn get(&self, key: &Key) -> Result<Option<Vec<u8>>> {
        let mut buffer = Buffer::default();
        Ok(self.read(key, &mut buffer)?.map(|object| object.content.to_vec()))
    }

    /// Reads and verifies an object into `buffer`.
    ///
    /// # Errors
    /// [`Usage`](crate::error::ErrorKind::Usage) if it is larger than 1 GiB, holes filled: [`content`](Self::content)
    /// returns it in pieces. [`Corrupt`](crate::error::ErrorKind::Corrupt) or [`Lost`](crate::error::ErrorKind::Lost)
    /// if redundancy cannot repair its damage.
    pub fn read<'b>(&self, key: &Key, buffer: &'b mut Buffer) -> Result<Option<Object<'b>>> {
        self.engine().read(key, buffer)
    }

    /// Appends the bytes of a range of the content to `onto`, as far as the content extends; returns how many. The
    /// range bounds the memory needed.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_range(&self, key: &Key, range: Range<u64>, onto: &mut Vec<u8>) -> Result<Option<u64>> {
        self.engine().read_range(key, range, onto)
    }

    /// The entries of a directory, by name.
    ///
    /// # Errors
    /// [`NotFound`](crate::error::ErrorKind::NotFound) or [`Usage`](crate::error::ErrorKind::Usage) if there is no such
    /// directory.
    pub fn list(&self, directory: &Key) -> Result<Walk> {
        self.engine().list(directory, &[])
    }

    /// An object and everything below it, in key order. Empty if there is no such object.
    ///
    /// # Errors
    /// Errors of reading the index.
    pub fn walk(&self, top: &Key) -> Result<Walk> {
        self.engine().walk(top, &Key::root())
    }
}
