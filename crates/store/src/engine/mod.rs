//! State shared by all handles of an open store: devices, index, accounts, and the writer's end of the log.
//!
//! Lock order: `sync`, then `writer`, then `view`, then `directories`. Readers take only `view`, for the duration of a
//! look-up in memory; no device is read while it is held. The pending state of an open file (see `open_files`) is
//! locked before all of these, the list of open files after them, and the place of an open file last. The list of
//! copies in progress (see `copying`) is locked alone. A failed write or sync sets the latch: nothing more is written
//! until the store is reopened.

pub(crate) mod attributes;
pub(crate) mod changed;
pub(crate) mod content;
mod continued;
pub(crate) mod copies;
pub(crate) mod copying;
mod decision;
pub(crate) mod directories;
pub(crate) mod displaced;
pub(crate) mod divergence;
pub(crate) mod early;
pub(crate) mod effects;
pub(crate) mod index_copies;
pub(crate) mod index_place;
pub(crate) mod left_behind;
pub(crate) mod locking;
pub(crate) mod looking;
mod losses;
pub(crate) mod marks;
pub(crate) mod missing;
mod near;
pub(crate) mod open;
pub(crate) mod open_files;
pub(crate) mod pace;
pub(crate) mod paths;
pub(crate) mod pins;
pub(crate) mod placement;
pub(crate) mod proven;
pub(crate) mod records;
pub(crate) mod recovered;
pub(crate) mod recovery;
pub(crate) mod repaired_copies;
pub(crate) mod replay;
mod rest;
pub(crate) mod sides;
pub(crate) mod snapshots;
pub(crate) mod sync;
mod tail_units;
pub(crate) mod unknown_epochs;
mod unreferenced;
pub(crate) mod unused;
pub(crate) mod write;

#[cfg(test)]
mod batch_tests;

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, RwLock};
use std::time::Instant;

use self::sides::OtherSides;
use crate::devices::device::Mode;
use crate::devices::extents::{Allocator, DeviceSource, ExtentFiles};
use crate::devices::platform::{Lock, Platform};
use crate::devices::set::Devices;
use crate::devices::slot::Slot;
use crate::engine::content::entry_of;
use crate::engine::copying::CopiesInProgress;
use crate::engine::directories::KnownDirectories;
use crate::engine::effects::{Accounts, Versions};
use crate::engine::looking::Looking;
use crate::engine::open_files::OpenFiles;
use crate::engine::rest::Rest;
use crate::error::{Error, ErrorKind, Result};
use crate::format::attributes::Attributes;
use crate::format::descriptor::Descriptor;
use crate::format::entry::{Entry, Location, Time};
use crate::format::geometry::Geometry;
use crate::format::ids::{DeviceNumber, Epoch, LogOffset, ObjectNumber, SegmentId, SegmentNumber};
use crate::format::index_key::ROOT;
use crate::format::record::Seed;
use crate::index::catalog::kept::Catalog;
use crate::index::catalog::{Change, ExtentRow, RangeRow, SegmentRow, State, TableRow};
use crate::index::copies::Copies;
use crate::index::table::BlockCache;
use crate::index::{Early, Presence, Snapshot, Tables, look_up_recent, look_up_tables, open_tables};
use crate::layout::granulo::LARGEST_EXTENT_FILE_BYTES;
use crate::locks::{self, lock};
use crate::log::writer::{Batched, Writer};

/// Minimum interval at which a reader checks for changes by another process.
const FRESH_NANOSECONDS: u64 = 1_000_000;

/// Maximum length of an extent file in bytes. Smaller in tests, which then fill some.
pub(crate) const EXTENT_FILE_BYTES: u64 = if cfg!(test) { 256 << 10 } else { LARGEST_EXTENT_FILE_BYTES };

/// Ids reserved per round of superblocks: of 2⁴⁸, each writer that ends uncleanly loses at most this many. Tests
/// reserve often.
pub(crate) const RESERVED_IDS: u64 = if cfg!(test) { 64 } else { 1 << 24 };

/// The index and the accounts, as seen by handles of this process.
#[derive(Debug, Clone, Default)]
pub(crate) struct View {
    pub(crate) state: State,
    pub(crate) tables: Tables,
    /// The sequence number of the snapshot that is looked at, instead of the current state.
    at: Option<u64>,
}

impl View {
    /// The sequence number of the snapshot that is looked at, if one is.
    pub(crate) fn at(&self) -> Option<u64> {
        self.at
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        let now = Snapshot::new(&self.state, Arc::clone(&self.tables));
        match self.at {
            None => now,
            Some(sequence) => now.at(sequence),
        }
    }
}

/// A view's entry for a stored key that is expected to exist, with the view's version. Tables are read without the
/// lock.
///
/// # Errors
/// As [`look_up_tables`].
pub(crate) fn look_up_in(view: Looking<'_>, key: &[u8]) -> Result<(u64, Option<Entry>)> {
    let version = view.state.version;
    if view.at.is_some() {
        let snapshot = view.snapshot();
        drop(view);
        return Ok((version, snapshot.look_up(key)?));
    }
    if let Some(entry) = look_up_recent(&view.state, key) {
        return Ok((version, entry));
    }
    let (tables, ranges) = (Arc::clone(&view.tables), Arc::clone(&view.state.ranges));
    drop(view);
    Ok((version, look_up_tables(&tables, &ranges, key, Presence::There)?))
}

/// State shared by all handles of an open store.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) platform: Arc<dyn Platform>,
    pub(crate) home: PathBuf,
    /// Opened to continue without what is missing or unreadable.
    pub(crate) is_degraded: bool,
    /// A device that is not waited for.
    lost: Option<DeviceNumber>,
    geometry: RwLock<Arc<Geometry>>,
    pub(crate) devices: Arc<Devices>,
    pub(crate) extents: Arc<ExtentFiles>,
    /// Allocates space for the next chunk of a large object.
    pub(crate) allocator: RwLock<Arc<Allocator>>,
    /// The devices with the index (or a directory for it, if it is lost), and its path on the first, for messages.
    pub(crate) index: Copies,
    pub(crate) index_directory: PathBuf,
    pub(crate) catalog: Catalog,
    /// The index is in a directory that is removed with this process.
    pub(crate) is_index_private: bool,
    pub(crate) cache: Arc<BlockCache>,
    view: RwLock<View>,
    pub(crate) directories: RwLock<KnownDirectories>,
    /// Files opened by handles.
    pub(crate) open_files: Arc<OpenFiles>,
    /// `None` in a store opened for reading.
    writer: Option<Mutex<Writer>>,
    /// Copies of segments that are being written.
    pub(crate) copying: CopiesInProgress,
    /// Held while files are synced and the catalog changes.
    pub(crate) sync: Mutex<()>,
    /// Number of removed directories when tables could not be merged for them; 0 after they were.
    unmerged_ranges: AtomicUsize,
    /// The highest id assigned.
    pub(crate) highest_id: AtomicU64,
    /// Ids up to this one may be assigned, as superblocks durably say.
    pub(crate) reserved_ids: AtomicU64,
    /// Why nothing more may be written.
    latch: OnceLock<String>,
    /// Segment and offset of the first batch that a reader applied without a mark.
    pub(crate) tail: Mutex<Option<(SegmentNumber, LogOffset)>>,
    /// Of the snapshot that is looked at, if one is.
    rest: OnceLock<Rest>,
    opened: Instant,
    /// When a reader last checked for changes, in nanoseconds since `opened`.
    looked: AtomicU64,
    /// How often the view was updated with changes by another process, and up to which of these whoever waits for
    /// changes has been told.
    renewals: AtomicU64,
    told_renewals: AtomicU64,
    /// What only sides have that were not taken, as of the last look.
    pub(crate) other_sides: Mutex<OtherSides>,
    /// Locks of the writer; released when the store is dropped.
    locks: Vec<Box<dyn Lock>>,
}

/// The parts of an engine.
pub(crate) struct Parts {
    pub(crate) platform: Arc<dyn Platform>,
    pub(crate) home: PathBuf,
    pub(crate) geometry: Geometry,
    pub(crate) devices: Devices,
    pub(crate) index: Copies,
    pub(crate) index_directory: PathBuf,
    pub(crate) catalog: Catalog,
    pub(crate) is_index_private: bool,
    pub(crate) cache: Arc<BlockCache>,
    pub(crate) writer: Option<Writer>,
    pub(crate) is_degraded: bool,
    pub(crate) lost: Option<DeviceNumber>,
    pub(crate) locks: Vec<Box<dyn Lock>>,
}

impl Engine {
    pub(crate) fn new(parts: Parts) -> Engine {
        let devices = Arc::new(parts.devices);
        Engine {
            platform: parts.platform,
            home: parts.home,
            geometry: RwLock::new(Arc::new(parts.geometry)),
            is_degraded: parts.is_degraded,
            lost: parts.lost,
            extents: Arc::new(ExtentFiles::new(Arc::clone(&devices) as Arc<dyn DeviceSource>)),
            devices,
            allocator: RwLock::new(Arc::new(Allocator::new([], [], EXTENT_FILE_BYTES))),
            index: parts.index,
            index_directory: parts.index_directory,
            catalog: parts.catalog,
            is_index_private: parts.is_index_private,
            cache: parts.cache,
            view: RwLock::default(),
            directories: RwLock::default(),
            open_files: Arc::default(),
            writer: parts.writer.map(Mutex::new),
            copying: CopiesInProgress::default(),
            sync: Mutex::new(()),
            unmerged_ranges: AtomicUsize::new(0),
            highest_id: AtomicU64::new(0),
            reserved_ids: AtomicU64::new(0),
            latch: OnceLock::new(),
            tail: Mutex::default(),
            rest: OnceLock::new(),
            opened: Instant::now(),
            looked: AtomicU64::new(0),
            renewals: AtomicU64::new(0),
            told_renewals: AtomicU64::new(0),
            other_sides: Mutex::default(),
            locks: parts.locks,
        }
    }

    pub(crate) fn geometry(&self) -> Arc<Geometry> {
        Arc::clone(&locks::read(&self.geometry))
    }

    /// Replaces the geometry; the new one is already on the devices.
    pub(crate) fn set_geometry(&self, geometry: Geometry) {
        *locks::write(&self.geometry) = Arc::new(geometry);
    }

    pub(crate) fn is_writer(&self) -> bool {
        self.writer.is_some()
    }

    /// Whether this process may change the catalog and the tables.
    pub(crate) fn owns_index(&self) -> bool {
        self.writer.is_some() || self.is_index_private
    }

    /// How much of a segment was left or recovered by a writer. A reader uses the rest as it finds it.
    pub(crate) fn recovered_end(&self, row: &SegmentRow) -> LogOffset {
        if self.is_writer() {
            return row.end();
        }
        let known = LogOffset(self.catalog.segment_bytes(row.number));
        match *lock(&self.tail) {
            Some((segment, offset)) if row.number == segment => known.min(offset),
            Some((segment, _)) if row.number > segment => LogOffset::START,
            _ => known,
        }
    }

    /// The writer's end of the log.
    ///
    /// # Errors
    /// [`ErrorKind::ReadOnly`] if the store was opened for reading, or a write has failed.
    pub(crate) fn writer(&self) -> Result<MutexGuard<'_, Writer>> {
        let Some(writer) = &self.writer else {
            return Err(
                Error::new(ErrorKind::ReadOnly, "write to the store", "it was opened for reading").at(&self.home)
            );
        };
        let writer = lock(writer);
        match self.latch.get() {
            None => Ok(writer),
            Some(cause) => {
                Err(Error::new(ErrorKind::ReadOnly, "write to the store", format!("an earlier write failed: {cause}"))
                    .at(&self.home)
                    .advise("reopen it, which recovers it, and run granulo store check"))
            }
        }
    }

    /// The platform's current time.
    pub(crate) fn now(&self) -> Time {
        Time::of_nanoseconds(self.platform.now_nanoseconds())
    }

    /// Encoded records as a batch written now.
    pub(crate) fn batch_of<'b>(&self, records: &'b mut [u8]) -> Batched<'b> {
        let highest_id = self.highest_id.load(Ordering::Relaxed);
        let now_nanoseconds = self.platform.now_nanoseconds();
        let alignment = self.geometry().alignment;
        Batched { records, alignment, highest_id, now_nanoseconds, epoch: self.epoch(), is_close: false }
    }

    /// The epoch of this writer.
    pub(crate) fn epoch(&self) -> Epoch {
        self.devices.epoch()
    }

    /// The identity of a segment number, according to the index.
    pub(crate) fn segment_id(&self, number: SegmentNumber) -> SegmentId {
        self.view().state.segments.get(&number).map_or(SegmentId::new(number, Epoch(0)), SegmentRow::id)
    }

    /// The seed of a segment's checksums.
    pub(crate) fn seed(&self, segment: SegmentId) -> Seed {
        segment.seed(&self.geometry().store)
    }

    /// From here on nothing is written: after a failed write or sync it is unknown what is durable.
    pub(crate) fn latch(&self, cause: &Error) {
        let _ = self.latch.set(cause.to_string());
    }

    /// Why nothing more may be written, if so.
    pub(crate) fn latched(&self) -> Option<&str> {
        self.latch.get().map(String::as_str)
    }

    /// The view, locked. Whoever holds it must not look at it again, nor call what does: see [`looking`].
    pub(crate) fn view(&self) -> Looking<'_> {
        looking::look(&self.view)
    }

    /// The index of now; nothing stays locked.
    pub(crate) fn snapshot(&self) -> Snapshot {
        self.view().snapshot()
    }

    /// The state for look-ups, refreshed if this process does not write and the interval has passed.
    ///
    /// # Errors
    /// Any error of reading the catalog or opening a table.
    pub(crate) fn fresh(&self) -> Result<Looking<'_>> {
        if self.writer.is_none() {
            let now = self.opened.elapsed().as_nanos() as u64;
            if now.saturating_sub(self.looked.load(Ordering::Relaxed)) > FRESH_NANOSECONDS {
                self.refresh()?;
            }
        }
        Ok(self.view())
    }

    /// Updates the view with changes by another process; returns whether it changed. At a snapshot, nothing does.
    ///
    /// # Errors
    /// As [`fresh`](Self::fresh).
    pub(crate) fn refresh(&self) -> Result<bool> {
        if self.writer.is_some() || self.rest.get().is_some() {
            return Ok(false);
        }
        self.renew(None)
    }

    /// Updates the view with changes by another process, at the snapshot with a sequence number if one is given.
    fn renew(&self, at: Option<u64>) -> Result<bool> {
        let _sync = lock(&self.sync);
        self.looked.store(self.opened.elapsed().as_nanos() as u64, Ordering::Relaxed);
        let manifest = self.catalog.manifest();
        let Some(mut state) = self.catalog.renewed()? else { return Ok(false) };
        // What this reader applied from the end of the log stays until a writer has applied it, or found that it does
        // not count. One that is recovering has done neither.
        if state.position.sequence < self.view().state.position.sequence {
            if !self.platform.has_writer(&self.home) {
                self.catalog.load_again();
                return Ok(false);
            }
            state = self.catalog.renewed()?.unwrap_or(state);
        }
        let mut view = View { state, tables: Arc::clone(&self.view().tables), at };
        // A table may be merged and removed between reading its row and opening it: then the catalog has changed again.
        for attempt in 0.. {
            match self.open_tables(&view) {
                Ok(tables) => {
                    view.tables = tables;
                    break;
                }
                Err(error) if error.kind() == ErrorKind::NotFound && attempt < 8 => {
                    view.state = self.catalog.renewed()?.unwrap_or(view.state);
                }
                Err(error) => {
                    self.catalog.forget();
                    return Err(error);
                }
            }
        }
        if at.is_some_and(|sequence| !view.state.has_snapshot(sequence)) {
            self.catalog.forget();
            return Err(self.removed_snapshot());
        }
        if self.catalog.manifest() != manifest {
            // A copy that was brought up to date has other files of the same names, with what the view is about to
            // show.
            self.devices.forget_segments();
            self.extents.forget_all();
        }
        self.replace_view(view);
        self.extents.look_again();
        self.renewals.fetch_add(1, Ordering::SeqCst);
        Ok(true)
    }

    /// Whether the view was updated since this was last asked, now or by whoever read meanwhile.
    ///
    /// # Errors
    /// As [`refresh`](Self::refresh).
    pub(crate) fn has_changed(&self) -> Result<bool> {
        self.refresh()?;
        let renewals = self.renewals.load(Ordering::SeqCst);
        Ok(self.told_renewals.swap(renewals, Ordering::SeqCst) != renewals)
    }

    fn replace_view(&self, new: View) {
        let mut view = looking::change(&self.view);
        locks::write(&self.directories).clear();
        *view = new;
    }

    /// Replaces the view's state and opens its tables.
    ///
    /// # Errors
    /// A table cannot be opened.
    pub(crate) fn set_state(&self, state: State) -> Result<()> {
        let mut view = View { state, ..View::default() };
        view.tables = self.open_tables(&view)?;
        // The root has the first number.
        self.highest_id.fetch_max(view.state.highest_id.max(ROOT.0), Ordering::Relaxed);
        self.replace_view(view);
        Ok(())
    }

    fn open_tables(&self, view: &View) -> Result<Tables> {
        open_tables(&self.index, &self.cache, &view.state.tables, &view.tables)
    }

    /// Reopens a table of the view. Called with `sync` held.
    ///
    /// # Errors
    /// It cannot be opened.
    pub(crate) fn reopen_table(&self, row: &TableRow) -> Result<()> {
        let (rows, mut kept) = {
            let view = self.view();
            (Arc::clone(&view.state.tables), view.tables.to_vec())
        };
        kept.retain(|table| table.row() != row);
        let tables = open_tables(&self.index, &self.cache, &rows, &kept)?;
        looking::change(&self.view).tables = tables;
        Ok(())
    }

    /// The allocator of space for units.
    pub(crate) fn allocator(&self) -> Arc<Allocator> {
        Arc::clone(&locks::read(&self.allocator))
    }

    /// Applies a change to the view of this process.
    ///
    /// # Errors
    /// A new table cannot be opened: nothing was changed.
    pub(crate) fn apply(&self, change: &Change) -> Result<()> {
        let tables = self.tables_of(change)?;
        self.apply_with(change, tables);
        Ok(())
    }

    /// Applies a change that is in the log; it goes to the catalog when it is durable.
    ///
    /// # Errors
    /// As [`apply`](Self::apply).
    pub(crate) fn apply_pending(&self, writer: &mut Writer, change: Change) -> Result<()> {
        let met = self.meet_open_files(&change);
        self.apply(&change)?;
        self.open_files.follow(met);
        writer.pend(change);
        Ok(())
    }

    /// Opens the tables that a change names; `None` if it leaves them unchanged.
    ///
    /// # Errors
    /// A new table cannot be opened.
    pub(crate) fn tables_of(&self, change: &Change) -> Result<Option<Tables>> {
        let Some(rows) = &change.tables else { return Ok(None) };
        let previous = Arc::clone(&self.view().tables);
        open_tables(&self.index, &self.cache, rows, &previous).map(Some)
    }

    /// As [`apply`](Self::apply), with its tables already open.
    pub(crate) fn apply_with(&self, change: &Change, tables: Option<Tables>) {
        let mut view = looking::change(&self.view);
        locks::write(&self.directories).take_in(change);
        view.state.apply(change);
        if let Some(tables) = tables {
            view.tables = tables;
        }
    }

    /// The devices with a readable copy of a segment, in an order that spreads load.
    pub(crate) fn copies(&self, segment: SegmentNumber) -> Vec<DeviceNumber> {
        self.view().state.segments.get(&segment).map(|row| row.devices.clone()).unwrap_or_default()
    }

    /// The device with the `turn`-th copy of a segment, without building a list, and the identity of the segment;
    /// `None` if there are no more. All others follow those known to the index: a device that was missing when the
    /// index was built may have an unknown copy.
    pub(crate) fn copy(&self, segment: SegmentNumber, turn: usize) -> Option<(DeviceNumber, SegmentId)> {
        let view = self.view();
        let row = view.state.segments.get(&segment)?;
        let device = row.devices.get(turn).copied().or_else(|| {
            let is_other = |slot: &&Slot| slot.is_readable() && !row.devices.contains(&slot.entry.number);
            let slots = self.devices.slots();
            slots.iter().filter(is_other).nth(turn - row.devices.len()).map(|slot| slot.entry.number)
        })?;
        Some((device, row.id()))
    }

    /// Whether what is damaged on all copies of a location stays so: each is on a device in service, and was read, or
    /// is not there. (What cannot be read may be readable again.)
    fn stays_damaged(&self, location: Location) -> bool {
        let (copies, segment) = (self.copies(location.segment), self.segment_id(location.segment));
        let mut bytes = Vec::new();
        let mut is_known = |device: DeviceNumber| {
            bytes.clear();
            let length = location.record_bytes as usize;
            let read = self.read_copy(device, segment, location.offset, length, &mut bytes);
            match read {
                Ok(read) => read == length || self.is_settled(device),
                Err(error) => error.kind() == io::ErrorKind::NotFound && self.is_settled(device),
            }
        };
        !copies.is_empty() && copies.into_iter().all(&mut is_known)
    }

    /// Appends `length` bytes of a segment to `buffer`, from one copy.
    pub(crate) fn read_copy(
        &self,
        device: DeviceNumber,
        segment: SegmentId,
        offset: LogOffset,
        length: usize,
        buffer: &mut Vec<u8>,
    ) -> std::io::Result<usize> {
        self.devices.segment(device, segment, Mode::Read)?.read_onto(buffer, length, offset.0)
    }
}

/// The accounts before a batch, as seen by the writer.
pub(crate) struct EngineAccounts<'e> {
    pub(crate) engine: &'e Engine,
    pub(crate) state: State,
    pub(crate) snapshot: Snapshot,
    /// Units of a descriptor that cannot be read now still count as live: the batch is not refused.
    is_lenient: bool,
    /// Number of versions of a tree inserted into the index per transaction, before its removal; `None`: they come with
    /// it.
    piece: Option<usize>,
    /// Sequence numbers of snapshots later in the log.
    pub(crate) snapshots_ahead: Vec<u64>,
    /// See [`Accounts::may_have_unjoined`].
    may_have_unjoined: bool,
}

impl<'e> EngineAccounts<'e> {
    pub(crate) fn new(engine: &'e Engine) -> EngineAccounts<'e> {
        let view = engine.view();
        let (state, snapshot) = (view.state.clone(), view.snapshot());
        let (snapshots_ahead, may_have_unjoined) = (Vec::new(), false);
        EngineAccounts { engine, state, snapshot, is_lenient: false, piece: None, snapshots_ahead, may_have_unjoined }
    }

    /// For records that are already in the log.
    pub(crate) fn of_log(engine: &'e Engine) -> EngineAccounts<'e> {
        EngineAccounts { is_lenient: true, ..EngineAccounts::new(engine) }
    }
}

impl Accounts for EngineAccounts<'_> {
    fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    fn segment(&self, number: SegmentNumber) -> Option<SegmentRow> {
        self.state.segments.get(&number).cloned()
    }

    fn extent(&self, device: DeviceNumber, file: u32) -> Option<ExtentRow> {
        self.state.extents.get(&(device, file)).copied()
    }

    fn names(&self, shared: ObjectNumber) -> u64 {
        self.state.shared.get(&shared).copied().unwrap_or(0)
    }

    fn ranges(&self) -> &[RangeRow] {
        &self.state.ranges
    }

    fn may_have_unjoined(&self) -> bool {
        self.may_have_unjoined
    }

    fn keeps(&self, id: u64, until: u64) -> bool {
        self.state.keeps(id, until) || self.snapshots_ahead.iter().any(|&sequence| id <= sequence && sequence < until)
    }

    fn early(&self) -> Option<Early> {
        Early::of(&self.engine.view().state)
    }

    fn piece(&self) -> Option<usize> {
        self.piece
    }

    fn write_early(&self, until: u64, versions: Versions, is_last: bool) -> Result<()> {
        self.engine.write_early(until, versions, is_last)
    }

    fn revealed(&self) -> Snapshot {
        self.engine.snapshot().revealed()
    }

    fn descriptor(&self, entry: &Entry) -> Result<Option<Descriptor>> {
        match self.engine.descriptor(entry) {
            Ok(descriptor) => Ok(Some(descriptor)),
            Err(_) if self.engine.stays_damaged(entry.location) => Ok(None),
            Err(_) if self.is_lenient => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn with_own_attributes(&self, entry: Entry) -> Result<Entry> {
        let mut buffer = Vec::new();
        let own = Entry { attributes_id: 0, ..entry };
        match self.engine.read_head(&entry, &mut buffer) {
            Ok(head) => {
                let attributes = Attributes::decode(head.attributes);
                Ok(attributes.map_or(own, |attributes| own.showing(&entry_of(own.kind, &attributes, Time::default()))))
            }
            Err(_) if self.is_lenient || self.engine.stays_damaged(entry.location) => Ok(own),
            Err(error) => Err(error),
        }
    }
}
