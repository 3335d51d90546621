//! Moving records: all live records of some segments move, in key order, to the end of the log, and the segments are
//! freed.
//!
//! A moved record keeps its id and timestamp. It is committed like any batch, after a check under the writer's lock
//! that its key still has it: so a record is never moved behind a newer one or a removal of its key. A segment is freed
//! only when the index has nothing in it any more, all of it was readable, and the removals in it that are still needed
//! were moved too (docs/FORMAT.md, section 6): those that may be of a dead record in any segment that stays, a chosen
//! one included, because it is damaged or something in it could not be moved. Nor is one freed with more copies than
//! what was moved has, because a device went missing. Whenever moving ends, by a signal or a crash, the store is
//! consistent: at worst, records exist twice.

use crate::format::ids::{DeviceNumber, LogOffset, ObjectNumber, SegmentNumber};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, Mutex};

use crate::access::gather::{Joining, Wanted, sort};
use crate::devices::placement::Purpose;
use crate::engine::effects::{Effects, Nameless, UNPLACED};
use crate::engine::pace::{Pace, outcome};
use crate::engine::placement::Destination;
use crate::engine::{Engine, EngineAccounts};
use crate::error::{Error, ErrorKind, Result};
use crate::format::attributes::Attributes;
use crate::format::entry::{Entry, Kind, Location};
use crate::format::geometry::Class;
use crate::format::index_key::{entry_of_key, object_of_attributes, superseded, until_of};
use crate::format::record::{Head, NewRecord, Record};
use crate::index::catalog::{Change, SegmentRow, Superseded};
use crate::layout::granulo::Alignment;
use crate::log::open_batch::OpenBatch;
use crate::log::scan::{ScanStep, SegmentScan};
use crate::log::writer::Batched;
use crate::progress::Progress;

/// Most bytes and records in one commit.
const BATCH_BYTES: u64 = 1 << 20;
const BATCH_RECORDS: usize = 1 << 12;
/// Moved bytes between two syncs.
const SYNC_BYTES: u64 = 64 << 20;
/// How the records of a batch are read: they may be anywhere in the segments.
const JOINING: Joining = Joining { gap_bytes: 16 << 10, longest_bytes: 256 << 10 };
const THREADS: usize = 4;

/// Where moved records go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MoveTarget {
    /// Devices of the class where they are.
    SameClass(Class),
    /// The devices where they are: then each of them has as much space afterwards as before.
    SameDevices(Class, Vec<DeviceNumber>),
    /// Fast devices, down to the low watermark.
    Fast,
}

/// Result of a round.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Moved {
    /// Records that were moved, including removals, and their bytes, of one copy.
    pub(crate) records: u64,
    pub(crate) bytes: u64,
    /// Removals among them.
    pub(crate) removals: u64,
    /// Segments that were freed, and their bytes on all devices.
    pub(crate) freed_segments: Vec<SegmentNumber>,
    pub(crate) freed_bytes: u64,
    /// Bytes written to all devices.
    pub(crate) written_bytes: u64,
    /// Segments that stay, as something in them can be read from no copy.
    pub(crate) damaged_segments: Vec<SegmentNumber>,
    /// Segments that stay, as a device went missing meanwhile and some of what was moved has fewer copies.
    pub(crate) postponed: Vec<SegmentNumber>,
    pub(crate) is_interrupted: bool,
    /// Whether fast devices are at the low watermark.
    pub(crate) is_full: bool,
}

/// A record in memory.
struct BufferedRecord {
    key: Arc<[u8]>,
    entry: Entry,
    bytes: Range<usize>,
}

/// Records in memory, encoded one after another.
#[derive(Default)]
struct Hand {
    records: Vec<BufferedRecord>,
    bytes: Vec<u8>,
}

/// One round.
struct Round<'r, 'w> {
    engine: &'r Engine,
    chosen: &'r BTreeSet<SegmentNumber>,
    target: MoveTarget,
    /// Alignment of the encoded records.
    alignment: Alignment,
    /// Most bytes in one commit.
    batch_bytes: u64,
    pace: &'r mut Pace<'w>,
    unsynced_bytes: u64,
    moved: Moved,
    /// The devices with the copies of what was moved.
    places: BTreeSet<Vec<DeviceNumber>>,
    /// Number of records that the index had in each segment.
    found: BTreeMap<SegmentNumber, u64>,
    damaged: BTreeSet<SegmentNumber>,
    /// Removals up to this id are not moved: no segment that stays, as far as is known, has anything dead below it.
    unneeded_until: u64,
    /// Ids of removals that were moved.
    removals: BTreeSet<u64>,
}

/// The lowest id of anything that may be dead in segments that stay: removals up to it are no longer needed.
pub(crate) fn lowest_dead_id<'s>(staying: impl Iterator<Item = &'s SegmentRow>) -> u64 {
    staying.filter(|row| row.dead_records > 0).map(|row| row.lowest_id).min().unwrap_or(u64::MAX)
}

impl Engine {
    /// Moves all live records out of the chosen segments, and frees those where that succeeds.
    ///
    /// # Errors
    /// Errors of reading the index or of writing. What was moved until then stays moved.
    pub(crate) fn move_segments(
        &self,
        chosen: &BTreeSet<SegmentNumber>,
        target: MoveTarget,
        pace: &mut Pace<'_>,
    ) -> Result<Moved> {
        {
            let mut writer = self.writer()?;
            // The room for this round was measured on the roomiest devices, or on certain ones.
            writer.close_segment();
        }
        let mut round = Round::new(self, chosen, target, pace);
        let outcome = round.run();
        let mut moved = round.moved;
        moved.damaged_segments = round.damaged.into_iter().collect();
        // What was moved stays moved, whatever happened then.
        self.sync_all()?;
        outcome.map(|()| moved)
    }

    /// Writes directories and names of shared files again whose records are lost, as the index has them: as if they
    /// were moved, so that what a snapshot has of them stays. Entries that their keys no longer have are left out.
    ///
    /// # Errors
    /// Any error of writing.
    pub(crate) fn restore_records(&self, entries: &[(Vec<u8>, Entry)]) -> Result<()> {
        let rows = Arc::clone(&self.view().state.segments);
        let class_of = |entry: &Entry| rows.get(&entry.location.segment).map_or(Class::Fast, |row| row.class);
        for class in [Class::Fast, Class::Slow] {
            let progress = Progress::default();
            let (mut pace, none) = (Pace::new(None, &progress), BTreeSet::new());
            let mut round = Round::new(self, &none, MoveTarget::SameClass(class), &mut pace);
            let mut hand = Hand::default();
            for (key, entry) in entries.iter().filter(|(_, entry)| class_of(entry) == class) {
                hand.add(key.as_slice().into(), *entry, &restored(key, entry, round.alignment)?);
            }
            round.commit(hand)?;
        }
        Ok(())
    }
}

impl<'r, 'w> Round<'r, 'w> {
    fn new(
        engine: &'r Engine,
        chosen: &'r BTreeSet<SegmentNumber>,
        target: MoveTarget,
        pace: &'r mut Pace<'w>,
    ) -> Round<'r, 'w> {
        Round {
            engine,
            chosen,
            target,
            alignment: engine.geometry().alignment,
            batch_bytes: engine.batch_bytes(BATCH_BYTES),
            pace,
            unsynced_bytes: 0,
            moved: Moved::default(),
            places: BTreeSet::new(),
            found: BTreeMap::new(),
            damaged: BTreeSet::new(),
            unneeded_until: u64::MAX,
            removals: BTreeSet::new(),
        }
    }

    fn run(&mut self) -> Result<()> {
        let rows = std::sync::Arc::clone(&self.engine.view().state.segments);
        self.move_live()?;
        // A segment that turns out to be damaged stays, and may need further removals.
        while self.is_whole() {
            let lowest = self.lowest_needed(&rows);
            if lowest >= self.unneeded_until {
                break;
            }
            self.unneeded_until = lowest;
            for row in self.chosen.iter().filter_map(|number| rows.get(number)).filter(|row| row.dead_records > 0) {
                if !self.move_removals(row)? {
                    break;
                }
            }
        }
        self.moved.removals = self.removals.len() as u64;
        self.free(&rows)
    }

    /// Whether everything was moved so far; removals for which there was no room are needed where they are.
    fn is_whole(&self) -> bool {
        !self.moved.is_interrupted && !self.moved.is_full
    }

    /// The lowest id of anything that may be dead in segments that will not be freed.
    fn lowest_needed(&self, rows: &BTreeMap<SegmentNumber, SegmentRow>) -> u64 {
        let now = std::sync::Arc::clone(&self.engine.view().state.segments);
        let stays =
            |row: &&SegmentRow| !self.is_emptied(row.number, rows, &now) && !self.engine.is_superseded(row.number);
        lowest_dead_id(now.values().filter(stays))
    }

    /// Whether everything in a chosen segment was moved or is dead, and all of it could be read: the index has nothing
    /// in it now, and had no more than the account says.
    fn is_emptied(
        &self,
        number: SegmentNumber,
        before: &BTreeMap<SegmentNumber, SegmentRow>,
        now: &BTreeMap<SegmentNumber, SegmentRow>,
    ) -> bool {
        let account = before.get(&number).map_or(0, |row| row.live_records);
        self.chosen.contains(&number)
            && now.get(&number).is_some_and(|row| row.live_records == 0 && row.live_bytes == 0)
            && account >= self.found.get(&number).copied().unwrap_or(0)
            && !self.damaged.contains(&number)
            && now.get(&number).is_none_or(|row| !self.has_fewer_copies(row))
    }

    /// Whether something that was moved has fewer copies than a segment: a device may have failed since then.
    fn has_fewer_copies(&self, row: &SegmentRow) -> bool {
        let is_there = |device: &&DeviceNumber| self.engine.devices.is_in_service(**device);
        let fewest = self.places.iter().map(|devices| devices.iter().filter(is_there).count()).min();
        fewest.is_some_and(|fewest| self.engine.wanted_copies(row) > fewest)
    }

    /// Counts bytes that were moved or read; returns whether to continue.
    fn spend(&mut self, bytes: u64) -> Result<bool> {
        let spent = self.pace.spend(bytes);
        self.moved.is_interrupted |= !outcome(spent)?;
        Ok(self.is_whole())
    }

    /// Moves everything that the index has in the chosen segments, in key order; what only snapshots have follows
    /// everything current. If that ends early, the rest is still counted: [`free`](Self::free) compares the counts with
    /// the accounts.
    fn move_live(&mut self) -> Result<()> {
        let snapshot = self.engine.snapshot();
        let mut scan = snapshot.scan_versions_from(&[])?;
        let mut batch: Vec<(Vec<u8>, Entry)> = Vec::new();
        let mut bytes = 0;
        let mut continues = true;
        loop {
            let next = scan.next_entry()?;
            let is_end = next.is_none();
            if let Some((key, entry)) = next
                && self.chosen.contains(&entry.location.segment)
            {
                *self.found.entry(entry.location.segment).or_default() += 1;
                if continues {
                    bytes += entry.location.record_bytes;
                    batch.push((key.to_vec(), *entry));
                }
            }
            if bytes >= self.batch_bytes || batch.len() >= BATCH_RECORDS || is_end && !batch.is_empty() {
                let hand = self.read(std::mem::take(&mut batch))?;
                bytes = 0;
                let committed = self.commit(hand)?;
                continues = self.spend(committed)?;
            }
            if is_end {
                return Ok(());
            }
        }
    }

    /// Reads a batch of records and encodes them as moved, in key order. What can be read from no copy stays.
    fn read(&mut self, batch: Vec<(Vec<u8>, Entry)>) -> Result<Hand> {
        let mut wanted: Vec<Wanted> = batch.iter().zip(0..).map(|((_, entry), tag)| Wanted::new(entry, tag)).collect();
        sort(&mut wanted);
        let slots: Vec<Mutex<Option<Result<Vec<u8>>>>> = batch.iter().map(|_| Mutex::new(None)).collect();
        self.engine.read_wanted(&wanted, JOINING, THREADS, &|at, record| {
            let tag = wanted[at].tag as usize;
            let encoded = record.and_then(|record| moved(&record, until_of(&batch[tag].0), self.alignment));
            if let Ok(mut slot) = slots[tag].lock() {
                *slot = Some(encoded);
            }
        });
        let mut hand = Hand::default();
        for ((key, entry), slot) in batch.into_iter().zip(slots) {
            match slot.into_inner().ok().flatten() {
                Some(Ok(bytes)) => hand.add(key.into(), entry, &bytes),
                _ => {
                    self.damaged.insert(entry.location.segment);
                }
            }
        }
        Ok(hand)
    }

    /// Moves the removals of a segment that are still needed, each once its commit vouches for it; returns whether to
    /// continue.
    fn move_removals(&mut self, row: &SegmentRow) -> Result<bool> {
        let mut scan = SegmentScan::new(
            self.engine.open_copies(row.id(), &row.devices),
            self.engine.seed(row.id()),
            LogOffset::START,
        );
        let mut hand = Hand::default();
        let mut batch: OpenBatch<(Arc<[u8]>, Entry, Vec<u8>)> = OpenBatch::default();
        let mut is_damaged = scan.end < row.end();
        // What follows is in quarantine: a removal there was never acknowledged.
        scan.end = row.end();
        while let Some(step) = scan.next(false) {
            match step {
                ScanStep::Damage(..) => is_damaged = true,
                ScanStep::Commit(committed, ..) => {
                    for (key, entry, bytes) in batch.end(&committed) {
                        if self.removals.insert(entry.id) {
                            hand.add(key, entry, &bytes);
                        }
                    }
                }
                ScanStep::Record(offset, record, _) => {
                    let head = record.head;
                    let is_needed = matches!(head.kind, Kind::Removal | Kind::TreeRemoval)
                        && head.id > self.unneeded_until
                        && !self.removals.contains(&head.id);
                    let removal = is_needed.then(|| -> Result<_> {
                        let location = Location { segment: row.number, offset, record_bytes: record.record_bytes() };
                        let entry = Entry { kind: head.kind, ..Entry::removal(head.id, location) };
                        Ok((head.key().into(), entry, moved(&record, 0, self.alignment)?))
                    });
                    batch.replace(offset, removal.transpose()?);
                }
            }
            if hand.bytes.len() as u64 >= self.batch_bytes {
                self.commit(std::mem::take(&mut hand))?;
            }
        }
        // Without a commit, what precedes it is damage.
        if is_damaged || !batch.is_empty() {
            self.damaged.insert(row.number);
        }
        self.commit(hand)?;
        self.spend(0)
    }

    /// Commits the records in memory, except those that their keys no longer have; returns their bytes.
    fn commit(&mut self, mut hand: Hand) -> Result<u64> {
        if hand.records.is_empty() {
            return Ok(0);
        }
        let engine = self.engine;
        let mut writer = engine.writer()?;
        let geometry = engine.geometry();
        let accounts = EngineAccounts::new(engine);
        let mut effects = Effects::new(&accounts, Nameless::Go);
        let mut is_current = Vec::with_capacity(hand.records.len());
        for BufferedRecord { key, entry, .. } in &hand.records {
            let has = |now: Entry| now.id == entry.id && now.location == entry.location;
            is_current.push(!entry.kind.is_used() || effects.look_up(key)?.is_some_and(has));
        }
        hand.keep(&is_current);
        if hand.records.is_empty() {
            return Ok(0);
        }
        let needed_bytes = hand.bytes.len() as u64;
        let class = match &self.target {
            _ if !engine.has_both_classes() => writer.active.as_ref().map_or(Class::Fast, |active| active.class),
            MoveTarget::SameClass(class) | MoveTarget::SameDevices(class, _) => *class,
            MoveTarget::Fast => {
                if engine.fast_room_bytes(&geometry)? < needed_bytes {
                    self.moved.is_full = true;
                    return Ok(0);
                }
                Class::Fast
            }
        };
        for BufferedRecord { key, entry, bytes } in &hand.records {
            let location =
                Location { segment: UNPLACED, offset: LogOffset(bytes.start as u64), record_bytes: bytes.len() as u64 };
            match entry.kind.is_used() {
                true => effects.put(key, Entry { location, ..*entry }, None)?,
                false => effects.dead(location, entry.id),
            }
        }
        let mut batch = Batched { alignment: self.alignment, ..engine.batch_of(&mut hand.bytes) };
        let near: &[DeviceNumber] = match &self.target {
            MoveTarget::SameDevices(_, devices) => devices,
            MoveTarget::SameClass(_) | MoveTarget::Fast => &[],
        };
        let to = Destination { classes: &[class], near, claim: Purpose::Frees };
        let written = engine.append_to(&mut writer, &geometry, to, &mut batch)?;
        let row = writer.active_row();
        let devices = row.as_ref().map(|row| row.devices.clone()).unwrap_or_default();
        let copies = devices.len() as u64;
        effects.appended(row, written.position);
        effects.placed(written.segment, written.begin);
        let change = effects.finish(Some(written.position));
        drop(accounts);
        engine.apply_pending(&mut writer, change)?;
        drop(writer);
        self.places.insert(devices);
        self.moved.written_bytes += needed_bytes * copies;
        self.moved.bytes += needed_bytes;
        self.moved.records += hand.records.len() as u64;
        self.unsynced_bytes += needed_bytes;
        // Moved entries stay in memory until they are in a sorted table: with small records, they need far more than
        // the records' bytes.
        if self.unsynced_bytes >= SYNC_BYTES || engine.is_full() {
            self.unsynced_bytes = 0;
            engine.sync_all()?;
        }
        Ok(needed_bytes)
    }

    /// Frees those of the chosen segments that were emptied; those with dead records, which may be removals, only if
    /// all that are needed were moved.
    fn free(&mut self, rows: &BTreeMap<SegmentNumber, SegmentRow>) -> Result<()> {
        let engine = self.engine;
        // A device may fail only now, and what was moved to it is lost.
        engine.sync_all()?;
        let mut writer = engine.writer()?;
        let view_rows = std::sync::Arc::clone(&engine.view().state.segments);
        // Under the writer's lock: nothing changes any more.
        let are_moved = self.is_whole() && self.lowest_needed(rows) >= self.unneeded_until;
        let is_empty = |number: &&SegmentNumber| {
            let has_removals = rows.get(number).is_none_or(|row| row.dead_records > 0);
            self.is_emptied(**number, rows, &view_rows) && (are_moved || !has_removals)
        };
        let empty: Vec<SegmentNumber> = self.chosen.iter().filter(is_empty).copied().collect();
        let chosen = self.chosen.iter().filter_map(|number| view_rows.get(number));
        self.moved.postponed = chosen.filter(|row| self.has_fewer_copies(row)).map(|row| row.number).collect();
        if empty.is_empty() {
            return Ok(());
        }
        if empty.contains(&writer.position.segment) {
            // The log must continue somewhere: the segment with its position must not be freed.
            let change = engine.append_without_entries(&mut writer, engine.batch_of(&mut []))?;
            engine.apply_pending(&mut writer, change)?;
        }
        let epoch = engine.view().state.epoch;
        let mut superseded = Vec::new();
        for number in empty {
            if let Some(row) = view_rows.get(&number) {
                self.moved.freed_bytes += row.size_bytes * row.devices.len() as u64;
            }
            superseded.push((epoch, Superseded::Segment(number)));
            self.moved.freed_segments.push(number);
        }
        let change = Change { superseded, ..Change::default() };
        engine.apply_pending(&mut writer, change)?;
        // The mark makes the next check for unsynced changes find one.
        let change = engine.append_without_entries(&mut writer, engine.batch_of(&mut []))?;
        engine.apply_pending(&mut writer, change)?;
        Ok(())
    }
}

impl Hand {
    fn add(&mut self, key: Arc<[u8]>, entry: Entry, record: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(record);
        self.records.push(BufferedRecord { key, entry, bytes: start..self.bytes.len() });
    }

    /// Removes the records that are not to be kept.
    fn keep(&mut self, is_kept: &[bool]) {
        if is_kept.iter().all(|&kept| kept) {
            return;
        }
        let before = std::mem::take(self);
        for (record, _) in before.records.into_iter().zip(is_kept).filter(|(_, kept)| **kept) {
            self.add(record.key, record.entry, &before.bytes[record.bytes]);
        }
    }
}

/// A record as it is written when moved; record `until` superseded it, if that is not 0.
fn moved(record: &Record<'_>, until: u64, alignment: Alignment) -> Result<Vec<u8>> {
    let head = record.head;
    let mut bytes = Vec::with_capacity(record.record_bytes() as usize);
    NewRecord::moved(head, until, record.content).encode(alignment, &mut bytes)?;
    // The checksum of the content is that of the first write: a bit flip in memory in between is detected.
    match Head::parse(&bytes).is_some_and(|again| again.content_checksum == head.content_checksum) {
        true => Ok(bytes),
        false => Err(Error::new(ErrorKind::Corrupt, "move a record", "its content changed in memory")),
    }
}

/// The record of a directory, of attributes or of a name, from the index: extended attributes and the birth time are
/// not in it.
fn restored(key: &[u8], entry: &Entry, alignment: Alignment) -> Result<Vec<u8>> {
    let (own, until) = superseded(key).unwrap_or_else(|| (key.to_vec(), 0));
    let own = object_of_attributes(&own).unwrap_or(own);
    let (parent, name) = match entry_of_key(&own) {
        Some((parent, name)) => (parent, Some(name)),
        None => (ObjectNumber::NONE, None),
    };
    let mut attributes = Vec::new();
    if matches!(entry.kind, Kind::Directory | Kind::Attributes) {
        let Entry { mode, uid, gid, mtime, ctime, .. } = *entry;
        let known = Attributes { mode, uid, gid, mtime, ctime: Some(ctime), ..Attributes::default() };
        known.encode(ctime, &mut attributes)?;
    }
    let (moved, id, number) = (Some(until), entry.id, entry.number);
    let record = NewRecord { moved, id, number, parent, name, ..NewRecord::of(entry.kind) };
    let mut bytes = Vec::new();
    NewRecord { attributes: &attributes, ..record }.encode(alignment, &mut bytes)?;
    Ok(bytes)
}
