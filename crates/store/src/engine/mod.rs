//! What all handles of an open store share: devices, index, accounts, and the writer's end of the log.
//!
//! Lock order: `sync`, then `writer`, then `view`, then `directories`. Readers take only `view`, for as long as a look-up in memory takes; nobody reads
//! a device while holding it. What is pending of an open file (see `open_files`) is locked before all of these, the list of open files after them, and the place of
//! an open file last. A failed write or sync sets the latch: nothing is written any more until the store is opened again.

pub(crate) mod changed;
pub(crate) mod copies;
pub(crate) mod directories;
pub(crate) mod divergence;
pub(crate) mod early;
pub(crate) mod effects;
pub(crate) mod index_copies;
pub(crate) mod index_place;
mod losses;
pub(crate) mod marks;
mod near;
pub(crate) mod open;
pub(crate) mod open_files;
pub(crate) mod pace;
pub(crate) mod paths;
pub(crate) mod pins;
mod placement;
pub(crate) mod records;
pub(crate) mod recovery;
pub(crate) mod replay;
pub(crate) mod snapshots;
pub(crate) mod sync;
pub(crate) mod write;

#[cfg(test)]
mod batch_tests;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard};
use std::time::Instant;

use crate::devices::device::Mode;
use crate::devices::extents::{Allocator, DeviceSource, ExtentFiles};
use crate::devices::set::{Devices, Lock, Platform, Slot};
use crate::engine::directories::KnownDirectories;
use crate::engine::effects::{Ledger, Versions};
use crate::engine::open_files::OpenFiles;
use crate::error::{Error, ErrorKind, Result};
use crate::format::descriptor::Descriptor;
use crate::format::entry::{Entry, Location, Time};
use crate::format::geometry::Geometry;
use crate::format::ids::{Epoch, SegmentId};
use crate::format::index_key::ROOT;
use crate::format::record::Seed;
use crate::index::catalog::kept::Catalog;
use crate::index::catalog::{Change, ExtentRow, RangeRow, SegmentRow, State, TableRow};
use crate::index::copies::Copies;
use crate::index::table::BlockCache;
use crate::index::{Early, Expected, Snapshot, Tables, look_up_recent, look_up_tables, open_tables};
use crate::layout::granulo::LARGEST_EXTENT_FILE_BYTES;
use crate::log::writer::{Batched, Writer};

/// A reader looks for changes of another process's at most this often.
const FRESH_NANOSECONDS: u64 = 1_000_000;

/// An extent file takes no more than this, in bytes. Tests fill some sooner.
pub(crate) const EXTENT_FILE_BYTES: u64 = if cfg!(test) { 256 << 10 } else { LARGEST_EXTENT_FILE_BYTES };

/// So many ids are reserved at once, which takes a round of superblocks: of 2⁴⁸, each writer that ends unclean loses so many at most. Tests reserve often.
pub(crate) const RESERVED_IDS: u64 = if cfg!(test) { 64 } else { 1 << 24 };

/// The index and the accounts, as handles of this process see them.
#[derive(Debug, Clone, Default)]
pub(crate) struct View {
    pub(crate) state: State,
    pub(crate) tables: Tables,
}

impl View {
    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot::new(&self.state, Arc::clone(&self.tables))
    }
}

/// What a view has for a stored key that is thought to be there, with the view's version. Tables are read without the lock.
///
/// # Errors
/// As [`look_up_tables`].
pub(crate) fn look_up_in(view: RwLockReadGuard<'_, View>, key: &[u8]) -> Result<(u64, Option<Entry>)> {
    let version = view.state.version;
    if let Some(entry) = look_up_recent(&view.state, key) {
        return Ok((version, entry));
    }
    let (tables, ranges) = (Arc::clone(&view.tables), Arc::clone(&view.state.ranges));
    drop(view);
    Ok((version, look_up_tables(&tables, &ranges, key, Expected::There)?))
}

/// What all handles of an open store share.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) platform: Arc<dyn Platform>,
    pub(crate) home: PathBuf,
    /// Opened to go on without what is away or cannot be read.
    pub(crate) is_degraded: bool,
    geometry: RwLock<Arc<Geometry>>,
    pub(crate) devices: Arc<Devices>,
    pub(crate) extents: Arc<ExtentFiles>,
    /// Where the next chunk of a large object goes.
    pub(crate) allocator: RwLock<Arc<Allocator>>,
    /// The devices that the index is on (or a directory for it, where it is lost), and the path on the first, for messages.
    pub(crate) index: Copies,
    pub(crate) index_directory: PathBuf,
    pub(crate) catalog: Catalog,
    /// The index is in a directory that goes with this process.
    pub(crate) is_index_private: bool,
    pub(crate) cache: Arc<BlockCache>,
    view: RwLock<View>,
    pub(crate) directories: RwLock<KnownDirectories>,
    /// Files that are open by handles.
    pub(crate) open_files: Arc<OpenFiles>,
    /// `None` in a store that is opened for reading.
    writer: Option<Mutex<Writer>>,
    /// Held while files are synced and the catalog changes.
    pub(crate) sync: Mutex<()>,
    /// The highest id given.
    pub(crate) highest_id: AtomicU64,
    /// Ids up to this one may be given: superblocks say so, durably.
    pub(crate) reserved_ids: AtomicU64,
    /// Why nothing may be written any more.
    latch: OnceLock<String>,
    /// Segment and offset where the batches begin that a reader took in without a mark.
    pub(crate) tail: Mutex<Option<(u64, u64)>>,
    opened: Instant,
    /// When a reader last looked for changes, in nanoseconds since `opened`.
    looked: AtomicU64,
    /// Reads that needed redundancy or were made good by it.
    pub(crate) healed: AtomicU64,
    /// Locks of the writer; let go when the store is dropped.
    _locks: Vec<Box<dyn Lock>>,
}

/// What an engine is made of.
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
            sync: Mutex::new(()),
            highest_id: AtomicU64::new(0),
            reserved_ids: AtomicU64::new(0),
            latch: OnceLock::new(),
            tail: Mutex::default(),
            opened: Instant::now(),
            looked: AtomicU64::new(0),
            healed: AtomicU64::new(0),
            _locks: parts.locks,
        }
    }

    pub(crate) fn geometry(&self) -> Arc<Geometry> {
        Arc::clone(&self.geometry.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts another geometry in the place of this one; it is on the devices already.
    pub(crate) fn set_geometry(&self, geometry: Geometry) {
        *self.geometry.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(geometry);
    }

    pub(crate) fn is_writer(&self) -> bool {
        self.writer.is_some()
    }

    /// Whether the catalog and the tables are this process's to change.
    pub(crate) fn owns_index(&self) -> bool {
        self.writer.is_some() || self.is_index_private
    }

    /// How much of a segment is as a writer has left or recovered it. What lies behind, a reader takes as it finds it.
    pub(crate) fn recovered_bytes(&self, row: &SegmentRow) -> u64 {
        if self.is_writer() {
            return row.size_bytes;
        }
        let known = self.catalog.segment_bytes(row.number);
        match *self.tail.lock().unwrap_or_else(PoisonError::into_inner) {
            Some((segment, offset)) if row.number == segment => known.min(offset),
            Some((segment, _)) if row.number > segment => 0,
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
        let writer = writer.lock().unwrap_or_else(PoisonError::into_inner);
        match self.latch.get() {
            None => Ok(writer),
            Some(cause) => {
                Err(Error::new(ErrorKind::ReadOnly, "write to the store", format!("a write failed before: {cause}"))
                    .at(&self.home)
                    .advise("open it again, which recovers it, and run granulo store check"))
            }
        }
    }

    /// The time, as the platform has it.
    pub(crate) fn now(&self) -> Time {
        Time::of_nanoseconds(self.platform.now_nanoseconds())
    }

    /// Encoded records as a batch of now.
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

    /// Which segment a number stands for, as the index has it.
    pub(crate) fn segment_id(&self, number: u64) -> SegmentId {
        self.view().state.segments.get(&number).map_or(SegmentId::new(number, Epoch(0)), SegmentRow::id)
    }

    /// The seed of a segment's checksums.
    pub(crate) fn seed(&self, segment: SegmentId) -> Seed {
        segment.seed(&self.geometry().store)
    }

    /// From here on nothing is written: what is durable after a failed write or sync is not known.
    pub(crate) fn latch(&self, cause: &Error) {
        let _ = self.latch.set(cause.to_string());
    }

    /// Why nothing may be written any more, if so.
    pub(crate) fn latched(&self) -> Option<&str> {
        self.latch.get().map(String::as_str)
    }

    pub(crate) fn view(&self) -> RwLockReadGuard<'_, View> {
        self.view.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state to look things up in, brought up to date if this process does not write and it is time.
    ///
    /// # Errors
    /// What reading the catalog or opening a table fails with.
    pub(crate) fn fresh(&self) -> Result<RwLockReadGuard<'_, View>> {
        if self.writer.is_none() {
            let now = self.opened.elapsed().as_nanos() as u64;
            if now.saturating_sub(self.looked.load(Ordering::Relaxed)) > FRESH_NANOSECONDS {
                self.refresh()?;
            }
        }
        Ok(self.view())
    }

    /// Brings the view up to date with what another process wrote; gives whether it changed.
    ///
    /// # Errors
    /// As [`fresh`](Self::fresh).
    pub(crate) fn refresh(&self) -> Result<bool> {
        if self.writer.is_some() {
            return Ok(false);
        }
        let _one = self.sync.lock().unwrap_or_else(PoisonError::into_inner);
        self.looked.store(self.opened.elapsed().as_nanos() as u64, Ordering::Relaxed);
        // What this reader took in from the end of the log stays, until a writer has taken it in.
        let Some(state) = self.catalog.renewed()? else { return Ok(false) };
        let mut view = View { state, tables: Arc::clone(&self.view().tables) };
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
        self.replace_view(view);
        self.extents.look_again();
        Ok(true)
    }

    fn replace_view(&self, new: View) {
        let mut view = self.view.write().unwrap_or_else(PoisonError::into_inner);
        self.directories.write().unwrap_or_else(PoisonError::into_inner).clear();
        *view = new;
    }

    /// Puts a state in the place of the view's, its tables opened.
    ///
    /// # Errors
    /// A table cannot be opened.
    pub(crate) fn set_state(&self, state: State) -> Result<()> {
        let mut view = View { state, ..View::default() };
        view.tables = self.open_tables(&view)?;
        // The root has the first number.
        self.highest_id.fetch_max(view.state.highest_id.max(ROOT), Ordering::Relaxed);
        self.replace_view(view);
        Ok(())
    }

    fn open_tables(&self, view: &View) -> Result<Tables> {
        open_tables(&self.index, &self.cache, &view.state.tables, &view.tables)
    }

    /// Opens a table of the view once more. Called with `sync` held.
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
        self.view.write().unwrap_or_else(PoisonError::into_inner).tables = tables;
        Ok(())
    }

    /// The allocator of units.
    pub(crate) fn allocator(&self) -> Arc<Allocator> {
        Arc::clone(&self.allocator.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes a change into the view that this process reads from.
    ///
    /// # Errors
    /// A new table cannot be opened: nothing was changed.
    pub(crate) fn apply(&self, change: &Change) -> Result<()> {
        let tables = self.tables_of(change)?;
        self.apply_with(change, tables);
        Ok(())
    }

    /// Takes in a change that the log has; the catalog gets it when that is durable.
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

    /// The tables that a change names, opened; `None` if it leaves them as they are.
    ///
    /// # Errors
    /// A new table cannot be opened.
    pub(crate) fn tables_of(&self, change: &Change) -> Result<Option<Tables>> {
        let Some(rows) = &change.tables else { return Ok(None) };
        let previous = Arc::clone(&self.view().tables);
        open_tables(&self.index, &self.cache, rows, &previous).map(Some)
    }

    /// As [`apply`](Self::apply), with the tables that it names.
    pub(crate) fn apply_with(&self, change: &Change, tables: Option<Tables>) {
        let mut view = self.view.write().unwrap_or_else(PoisonError::into_inner);
        self.directories.write().unwrap_or_else(PoisonError::into_inner).take_in(change);
        view.state.apply(change);
        if let Some(tables) = tables {
            view.tables = tables;
        }
    }

    /// A copy of a segment that may be read, for each device that has one, in an order that spreads load.
    pub(crate) fn copies(&self, segment: u64) -> Vec<u16> {
        self.view().state.segments.get(&segment).map(|row| row.devices.clone()).unwrap_or_default()
    }

    /// The device with the copy of a segment that is asked `turn`-th, without a list of them, and which segment that is; `None` if there are no more.
    /// After those that the index knows come all others: one that was away when the index was made may have a copy that it does not know.
    pub(crate) fn copy(&self, segment: u64, turn: usize) -> Option<(u16, SegmentId)> {
        let view = self.view();
        let row = view.state.segments.get(&segment)?;
        let device = row.devices.get(turn).copied().or_else(|| {
            let is_other = |slot: &&Slot| slot.is_readable() && !row.devices.contains(&slot.entry.number);
            let slots = self.devices.slots();
            slots.iter().filter(is_other).nth(turn - row.devices.len()).map(|slot| slot.entry.number)
        })?;
        Some((device, row.id()))
    }

    /// Whether all bytes of a place in a segment can be read on each of its copies, right or wrong.
    fn is_read_everywhere(&self, location: Location) -> bool {
        let (copies, segment) = (self.copies(location.segment), self.segment_id(location.segment));
        let mut bytes = Vec::new();
        let mut is_read = |device: u16| {
            bytes.clear();
            let length = location.record_bytes as usize;
            let read = self.read_copy(device, segment, location.offset, length, &mut bytes);
            read.is_ok_and(|read| read == length)
        };
        !copies.is_empty() && copies.into_iter().all(&mut is_read)
    }

    /// Reads `length` bytes of a segment onto `buffer`, from one copy.
    pub(crate) fn read_copy(
        &self,
        device: u16,
        segment: SegmentId,
        offset: u64,
        length: usize,
        buffer: &mut Vec<u8>,
    ) -> std::io::Result<usize> {
        self.devices.segment(device, segment, Mode::Read)?.read_onto(buffer, length, offset)
    }
}

/// The accounts before a batch, as the writer sees them.
pub(crate) struct EngineLedger<'e> {
    pub(crate) engine: &'e Engine,
    pub(crate) state: State,
    pub(crate) snapshot: Snapshot,
    /// Units of a descriptor that cannot be read now go on counting as in use: nothing is refused for it.
    is_lenient: bool,
    /// So many versions of a tree go into the index at once, before its removal; `None`: they come with it.
    piece: Option<usize>,
    /// Sequence numbers of snapshots that come later in the log.
    pub(crate) coming: Vec<u64>,
}

impl<'e> EngineLedger<'e> {
    pub(crate) fn new(engine: &'e Engine) -> EngineLedger<'e> {
        let view = engine.view();
        let (state, snapshot) = (view.state.clone(), view.snapshot());
        EngineLedger { engine, state, snapshot, is_lenient: false, piece: None, coming: Vec::new() }
    }

    /// For what is in the log already.
    pub(crate) fn of_log(engine: &'e Engine) -> EngineLedger<'e> {
        EngineLedger { is_lenient: true, ..EngineLedger::new(engine) }
    }

    /// While the log is replayed, and nobody else changes the index.
    pub(crate) fn of_replay(engine: &'e Engine) -> EngineLedger<'e> {
        let mut ledger = EngineLedger::of_log(engine);
        if engine.owns_index() {
            ledger.may_write_early();
        }
        ledger
    }
}

impl Ledger for EngineLedger<'_> {
    fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    fn segment(&self, number: u64) -> Option<SegmentRow> {
        self.state.segments.get(&number).cloned()
    }

    fn extent(&self, device: u16, file: u32) -> Option<ExtentRow> {
        self.state.extents.get(&(device, file)).copied()
    }

    fn names(&self, shared: u64) -> u64 {
        self.state.shared.get(&shared).copied().unwrap_or(0)
    }

    fn ranges(&self) -> &[RangeRow] {
        &self.state.ranges
    }

    fn keeps(&self, id: u64, until: u64) -> bool {
        self.state.keeps(id, until) || self.coming.iter().any(|&sequence| id <= sequence && sequence < until)
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
        self.engine.view().snapshot().revealed()
    }

    fn descriptor(&self, location: Location) -> Result<Option<Descriptor>> {
        match self.engine.descriptor(location) {
            Ok(descriptor) => Ok(Some(descriptor)),
            // What was read on every copy and is wrong stays so.
            Err(_) if self.engine.is_read_everywhere(location) => Ok(None),
            Err(_) if self.is_lenient => Ok(None),
            Err(error) => Err(error),
        }
    }
}
