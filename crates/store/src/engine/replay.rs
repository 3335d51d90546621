//! Reading the log beyond the index: which batches count, in which order, and where it ends (docs/FORMAT.md, section
//! 9).
//!
//! Batches wait until a later mark says that they were durable, or the log ends. Up to the highest mark (M) everything
//! was acknowledged: damage there is reported, and valid records count. After M a batch counts as long as it and all
//! before it are valid: each record is valid on some copy, and each stripe unit that it brings is intact, can be
//! reconstructed, or is on a missing device ([`tail_units`](super::tail_units)). **Absence is not damage:** only bytes
//! that were read and are wrong are evidence against a batch, and only if redundancy cannot repair them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use super::recovered::{Damage, RELEASED, Recovered};
use super::tail_units::{EarlierVersions, NewUnits, TailRecord};
use crate::engine::content::entry_of;
use crate::engine::early::is_many;
use crate::engine::effects::{Effects, Nameless};
use crate::engine::snapshots::versions_due;
use crate::engine::{Engine, EngineAccounts};
use crate::error::{ErrorKind, Result};
use crate::format::attributes::Attributes;
use crate::format::descriptor::Descriptor;
use crate::format::entry::{Entry, Kind, Location, Time};
use crate::format::geometry::Class;
use crate::format::history::History;
use crate::format::ids::{DeviceNumber, LogOffset, ObjectNumber, SegmentNumber};
use crate::format::index_key::ROOT_KEY;
use crate::format::record::{Head, Record, decode_directories};
use crate::format::release::Released;
use crate::format::rows::{Change, Position, SegmentRow, SnapshotRow};
use crate::format::segment::{Continued, FIRST_BATCH_AT, SEGMENT_HEADER_BYTES};
use crate::format::superblock::LogMark;
use crate::log::completeness::{Cause, Completeness, Missing};
use crate::log::lineage::LogPart;
use crate::log::open_batch::OpenBatch;
use crate::log::scan::{Committed, ScanStep};

/// A record that was read and is not applied yet.
#[derive(Debug)]
struct Item {
    kind: Kind,
    /// Only its head is intact.
    is_lost: bool,
    key: Arc<[u8]>,
    entry: Entry,
    descriptor: Option<Descriptor>,
    released: Option<Released>,
    snapshot: Option<SnapshotChange>,
    /// The directories in the tree that it removes.
    directories: Vec<ObjectNumber>,
}

impl Item {
    fn in_tail(&self) -> TailRecord<'_> {
        (&self.key, &self.entry, self.descriptor.as_ref())
    }
}

/// The content of a record of kind [`Kind::Snapshot`].
#[derive(Debug)]
enum SnapshotChange {
    Taken(SnapshotRow),
    /// The snapshot with this sequence number was removed.
    Removed(u64),
}

/// Records of the log: a batch, or the valid ones of a damaged batch.
#[derive(Debug, Default)]
struct Stretch {
    items: Vec<Item>,
    /// Its offset in the segment: 0 for the first, which includes the header.
    begin: LogOffset,
    position: Position,
    highest_id: u64,
    is_whole: bool,
    /// A later writer found that the log ended before it. What was durable counts all the same.
    is_superseded: bool,
    time_nanoseconds: Option<i64>,
    /// Of the large objects in it, in order, once it is known to count without a mark.
    new_units: Vec<NewUnits>,
}

/// What was read and waits for a later commit that says it was durable, or for the end of the log.
#[derive(Debug)]
enum Unsettled {
    Batch(Stretch),
    Broken(Damage),
    /// Batches up to this one are not there.
    Break(u64, Discontinuity),
}

/// Batches after the last mark that count.
pub(super) struct LogTail(Vec<Unsettled>);

/// Why a segment does not continue the last batch that was read before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Discontinuity {
    /// The batches between were in segments that have been released.
    Released,
    /// Segments between are missing, from this one to this one.
    Missing(SegmentNumber, SegmentNumber),
    /// The log ended before a batch that was acknowledged, and was continued after that batch.
    EndedBefore,
}

impl Unsettled {
    /// The segment of a batch, and where the batch ends in it.
    fn end(&self) -> Option<(SegmentNumber, LogOffset)> {
        match self {
            Unsettled::Batch(stretch) => Some((stretch.position.segment, stretch.position.offset)),
            Unsettled::Broken(_) | Unsettled::Break(..) => None,
        }
    }
}

/// State while the log is read.
pub(super) struct Replay<'e> {
    engine: &'e Engine,
    history: History,
    /// End of the last batch that was applied.
    pub(super) position: Position,
    /// End of the last batch that was read.
    read: Position,
    /// M: the highest sequence number that was durable according to a mark or the index.
    mark: u64,
    /// For an index built from scratch, sequence numbers of snapshots at the end of the log, as far as stated at the
    /// beginning of its newest segments: what they reference is preserved from the first record on. Any other index
    /// knows which exist where it continues.
    snapshots_ahead: Vec<u64>,
    /// The end of the log according to the highest mark in a superblock.
    marked_place: Option<LogMark>,
    /// In log order.
    unsettled: VecDeque<Unsettled>,
    is_from_scratch: bool,
    last_nanoseconds: Option<i64>,
    pub(super) released: Released,
    pub(super) recovered: Recovered,
    pub(super) completeness: Completeness,
    /// Attributes records that came before the record of their object, or without one.
    pub(super) unjoined: u64,
    /// Devices whose segments could not be listed.
    unlisted: BTreeSet<DeviceNumber>,
    /// Number of missing parts that the index knows of.
    pub(super) noted: usize,
    /// Batches that were applied without a mark.
    pub(super) adopted: u64,
    /// Segment and offset where the first of them begins.
    pub(super) tail: Option<(SegmentNumber, LogOffset)>,
}

impl<'e> Replay<'e> {
    /// Continues after the position of the index; `mark` is the highest sequence number that superblocks, epochs or
    /// another index say was durable.
    pub(super) fn new(
        engine: &'e Engine,
        start: Position,
        mark: u64,
        released: Released,
        unlisted: BTreeSet<DeviceNumber>,
    ) -> Replay<'e> {
        let is_from_scratch = start == Position::default();
        let snapshots_ahead = match is_from_scratch {
            true => released.snapshots.iter().map(|row| row.sequence).collect(),
            false => Vec::new(),
        };
        Replay {
            engine,
            history: engine.devices.history(),
            snapshots_ahead,
            position: start,
            read: start,
            // What the index has applied was durable before.
            mark: mark.max(start.sequence),
            marked_place: engine.devices.marks().iter().max_by_key(|place| place.sequence).copied(),
            unsettled: VecDeque::new(),
            is_from_scratch,
            last_nanoseconds: None,
            released,
            recovered: Recovered::default(),
            completeness: Completeness::default(),
            unjoined: 0,
            unlisted,
            noted: 0,
            adopted: 0,
            tail: None,
        }
    }

    /// Adds the account of a segment, if the catalog has none, or lacks a copy.
    fn add_row(&self, part: &LogPart) -> Result<()> {
        let (engine, id) = (self.engine, part.found.id);
        let known = engine.view().state.segments.get(&id.number).cloned();
        let mut devices = part.found.devices.clone();
        devices.extend(known.iter().flat_map(|row| &row.devices));
        devices.sort_unstable();
        devices.dedup();
        let new = SegmentRow {
            number: id.number,
            epoch: id.epoch,
            class: part.found.header.map_or(Class::Fast, |header| header.class),
            devices: Vec::new(),
            size_bytes: SEGMENT_HEADER_BYTES,
            live_bytes: 0,
            live_records: 0,
            dead_records: 0,
            lowest_id: u64::MAX,
        };
        let row = SegmentRow { devices, ..known.clone().unwrap_or(new) };
        if known.as_ref() == Some(&row) {
            return Ok(());
        }
        engine.take_in(Change { segments: vec![row], ..Change::default() })
    }

    fn broken(&mut self, segment: SegmentNumber, range: Range<LogOffset>) {
        if !range.is_empty() {
            self.unsettled.push_back(Unsettled::Broken(Damage { segment, range }));
        }
    }

    /// Reads the part of a segment that belongs to the log.
    pub(super) fn segment(&mut self, part: &LogPart) -> Result<()> {
        let (engine, id) = (self.engine, part.found.id);
        let number = id.number;
        let from = if number == self.position.segment { self.position.offset } else { LogOffset::START };
        let mut scan = engine.scan(id, &part.found.devices, from);
        let end = part.end.unwrap_or(scan.end);
        let there = scan.end.min(end);
        scan.end = there;
        if number != self.position.segment {
            self.begin(part);
        }
        self.add_row(part)?;
        let mut batch: OpenBatch<Item> = OpenBatch::default();
        let (mut is_damaged, mut has_damage) = (false, false);
        while let Some(step) = scan.next(false) {
            match step {
                ScanStep::Damage(range, head) => {
                    (is_damaged, has_damage) = (true, true);
                    // It is known which object is lost: as long as nothing supersedes it, earlier versions are old.
                    match head.and_then(|head| item(number, range.start, &head, None)) {
                        Some(lost) => batch.replace(range.start, Some(lost)),
                        None => self.broken(number, range),
                    }
                }
                ScanStep::Record(at, record, _) => {
                    let item = item(number, at, &record.head, Some(record.content));
                    if item.is_none() {
                        is_damaged = true;
                        self.broken(number, at..at + record.record_bytes());
                    }
                    batch.replace(at, item);
                }
                ScanStep::Commit(committed, ..) => {
                    let items = batch.end(&committed).collect();
                    self.commit(number, items, is_damaged, committed)?;
                    is_damaged = false;
                }
            }
        }
        if (has_damage || there < end)
            && let Some((device, error)) = scan.take_error()
        {
            engine.unreadable(device, id, error)?;
        }
        if there < end {
            self.broken(number, there.max(self.read.offset)..end);
        }
        if !batch.is_empty() {
            // Records without a commit: torn, or the commit is damaged.
            if !is_damaged {
                self.broken(number, self.read.offset..there);
            }
            let position = Position {
                segment: number,
                commit: LogOffset::START,
                offset: there,
                sequence: self.read.sequence + 1,
                ..self.read
            };
            let items = batch.without_commit().collect();
            self.unsettled.push_back(Unsettled::Batch(Stretch { items, position, ..Stretch::default() }));
        }
        self.settle()
    }

    /// Whether the log continues after batches that were in released segments and are not applied.
    pub(super) fn skips(&self, parts: &[LogPart]) -> bool {
        let is_there = |number: SegmentNumber| parts.iter().any(|part| part.found.id.number == number);
        parts.iter().filter(|part| part.missing.is_none()).filter_map(|part| part.found.header).any(|header| {
            header.id.number > self.position.segment
                && header.continues.sequence.0 > self.position.sequence
                && !is_there(header.continues.segment)
        })
    }

    /// At the beginning of another segment, checks whether it continues where the log before it ended.
    fn begin(&mut self, part: &LogPart) {
        let number = part.found.id.number;
        if part.found.header.is_none() {
            self.broken(number, LogOffset::START..FIRST_BATCH_AT);
        }
        let (sequence, chain) = match part.found.continues {
            Some(Continued { segment, offset, sequence, chain }) => {
                if sequence.0 > self.read.sequence {
                    let cause = match part.missing {
                        Some((first, last)) => Discontinuity::Missing(first, last),
                        None if (segment, offset) == (self.read.segment, self.read.offset) => {
                            Discontinuity::EndedBefore
                        }
                        None => Discontinuity::Released,
                    };
                    self.unsettled.push_back(Unsettled::Break(sequence.0, cause));
                }
                (sequence.0.max(self.read.sequence), chain)
            }
            None => (self.read.sequence, self.read.chain),
        };
        self.read = Position { segment: number, commit: LogOffset::START, offset: FIRST_BATCH_AT, sequence, chain };
    }

    /// Processes a commit, with the records before it that it does not refute, in the order of their offsets.
    fn commit(
        &mut self,
        segment: SegmentNumber,
        mut items: Vec<Item>,
        is_damaged: bool,
        committed: Committed,
    ) -> Result<()> {
        let Committed { at, end, commit, is_whole, .. } = committed;
        let sequence = commit.sequence.0;
        if sequence <= self.read.sequence {
            // Not part of this history, whatever it is.
            self.broken(segment, self.read.offset..end);
            return Ok(());
        }
        let of_lost = items.partition_point(|item| item.entry.location.offset < commit.begin);
        let of_batch = items.split_off(of_lost);
        let goes_on = sequence == self.read.sequence + 1
            && commit.begin == self.read.offset
            && commit.chain_before == self.read.chain;
        let is_whole = is_whole && !is_damaged && goes_on;
        if !is_whole && !is_damaged {
            self.broken(segment, self.read.offset..end);
        }
        if !items.is_empty() {
            let (begin, chain) = (commit.begin, commit.chain_before);
            let position = Position { segment, commit: LogOffset::START, offset: begin, sequence: sequence - 1, chain };
            self.unsettled.push_back(Unsettled::Batch(Stretch { items, position, ..Stretch::default() }));
        }
        let begin = if commit.begin == FIRST_BATCH_AT { LogOffset::START } else { commit.begin };
        self.read = Position { segment, commit: at, offset: end, sequence, chain: commit.chain() };
        self.mark = self.mark.max(commit.mark.0);
        self.unsettled.push_back(Unsettled::Batch(Stretch {
            items: of_batch,
            begin,
            position: self.read,
            highest_id: commit.highest_id,
            is_whole,
            is_superseded: self.history.last_batch_of(commit.epoch).is_some_and(|last| sequence > last),
            time_nanoseconds: Some(commit.time_nanoseconds),
            new_units: Vec::new(),
        }));
        self.settle()
    }

    /// Applies what was durable. Invalid data before the end of that was acknowledged, and is damage.
    fn settle(&mut self) -> Result<()> {
        loop {
            let is_acknowledged = match self.unsettled.front() {
                Some(Unsettled::Batch(stretch)) => stretch.position.sequence <= self.mark,
                Some(Unsettled::Break(sequence, _)) => *sequence <= self.mark,
                Some(Unsettled::Broken(_)) => self.position.sequence < self.mark,
                None => false,
            };
            if !is_acknowledged {
                return Ok(());
            }
            match self.unsettled.pop_front() {
                Some(Unsettled::Batch(stretch)) => self.take_in(stretch)?,
                Some(Unsettled::Break(sequence, cause)) => self.pass_break(sequence, cause),
                Some(Unsettled::Broken(damage)) => self.damaged(damage),
                None => {}
            }
        }
    }

    fn pass_break(&mut self, sequence: u64, cause: Discontinuity) {
        let batches = Some((self.position.sequence + 1, sequence));
        match cause {
            Discontinuity::Released => {}
            Discontinuity::Missing(first, last) => self.missing(Cause::SegmentMissing, Some((first, last)), batches),
            Discontinuity::EndedBefore => self.missing(Cause::EndsBeforeMark, None, batches),
        }
        self.position.sequence = self.position.sequence.max(sequence);
    }

    fn damaged(&mut self, damage: Damage) {
        self.missing(Cause::Damage, Some((damage.segment, damage.segment)), None);
        self.recovered.damage.push(damage);
    }

    fn missing(&mut self, cause: Cause, segments: Option<(SegmentNumber, SegmentNumber)>, batches: Option<(u64, u64)>) {
        let first = batches.map_or(self.position.sequence + 1, |(first, _)| first);
        let after_nanoseconds = self.last_nanoseconds.or_else(|| self.history.began_before(first));
        let devices = self.engine.not_read(cause);
        self.completeness.add(Missing { cause, segments, batches, after_nanoseconds, devices });
    }

    /// At the end of the log, what is valid and no mark says that it was durable, up to the first batch that is not
    /// valid.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] if only a missing device can tell where the log ends, for a writer that was not told to
    /// continue without it.
    pub(super) fn tail(&mut self) -> Result<LogTail> {
        let tail = self.valid_tail()?;
        if self.engine.is_writer() {
            let damaged = match self.unsettled.front() {
                Some(Unsettled::Batch(stretch)) if !stretch.is_whole => Some(stretch.position.segment),
                Some(Unsettled::Broken(damage)) => Some(damage.segment),
                _ => None,
            };
            if let Some(segment) = damaged {
                self.engine.wait_for_copies(segment, &[], self.position.sequence)?;
            }
        }
        Ok(LogTail(tail))
    }

    /// The last batch of the log with this tail, or what a mark says that it is.
    pub(super) fn last_batch(&self, LogTail(tail): &LogTail) -> u64 {
        let read = tail.iter().map(|unsettled| match unsettled {
            Unsettled::Batch(stretch) => stretch.position.sequence,
            Unsettled::Break(sequence, _) => *sequence,
            Unsettled::Broken(_) => 0,
        });
        read.chain([self.position.sequence, self.mark]).max().unwrap_or(0)
    }

    /// Applies the tail of the log.
    ///
    /// What is in doubt may be in memory only: left by a killed process, or by a failed sync (Linux marks pages that it
    /// could not write as clean). So a writer rewrites all of it on every copy, and syncs it, before anything builds on
    /// it.
    pub(super) fn end(&mut self, LogTail(tail): LogTail) -> Result<()> {
        if self.engine.is_writer() {
            let ends: BTreeMap<SegmentNumber, LogOffset> = tail.iter().filter_map(Unsettled::end).collect();
            ends.into_iter().try_for_each(|(segment, end)| self.engine.complete_tail(segment, end))?;
        }
        for unsettled in tail {
            match unsettled {
                Unsettled::Batch(stretch) => self.adopt(stretch)?,
                Unsettled::Break(sequence, cause) => self.pass_break(sequence, cause),
                Unsettled::Broken(_) => unreachable!("it does not count"),
            }
        }
        if self.position.sequence < self.mark {
            let batches = Some((self.position.sequence + 1, self.mark));
            self.missing(Cause::EndsBeforeMark, None, batches);
            self.position.sequence = self.mark;
            // What is not visible now belongs to the log when it returns, so the log continues after it.
            if let Some(place) = self.marked_place.filter(|place| place.sequence == self.mark) {
                let LogMark { segment, offset, sequence, chain, .. } = place;
                self.position = Position { segment, commit: LogOffset::START, offset, sequence, chain };
            }
        }
        Ok(())
    }

    /// What is unsettled and valid, up to the first batch that is not.
    fn valid_tail(&mut self) -> Result<Vec<Unsettled>> {
        let mut tail = Vec::new();
        let mut earlier = EarlierVersions::new(self.engine);
        while let Some(mut unsettled) = self.unsettled.pop_front() {
            let counts = match &mut unsettled {
                Unsettled::Batch(stretch) if stretch.is_whole && !stretch.is_superseded => {
                    let units = earlier.verify(stretch.items.iter().map(Item::in_tail))?;
                    let is_valid = units.is_some();
                    stretch.new_units = units.unwrap_or_default();
                    is_valid
                }
                Unsettled::Batch(_) => false,
                // What was freed by a release was durable.
                Unsettled::Break(_, Discontinuity::Released) => self.is_from_scratch,
                // The writer that continued after it knew that it was acknowledged.
                Unsettled::Break(_, Discontinuity::EndedBefore) => true,
                Unsettled::Break(_, Discontinuity::Missing(..)) => false,
                Unsettled::Broken(_) => false,
            };
            if !counts {
                self.unsettled.push_front(unsettled);
                break;
            }
            tail.push(unsettled);
        }
        Ok(tail)
    }

    /// Applies a valid batch, although no mark says that it was durable.
    fn adopt(&mut self, stretch: Stretch) -> Result<()> {
        if self.engine.is_writer() {
            let segment = stretch.position.segment;
            let descriptors = || stretch.items.iter().filter_map(|item| item.descriptor.as_ref());
            let new = || descriptors().zip(&stretch.new_units);
            assert_eq!(descriptors().count(), stretch.new_units.len(), "the units of each large object were verified");
            self.engine.repair_segment(segment, stretch.begin..stretch.position.offset)?.unless(|_| true)?;
            new().try_for_each(|(descriptor, units)| units.repair(self.engine, descriptor))?;
            let runs = new().flat_map(|(descriptor, units)| units.runs(descriptor));
            self.engine.write_again(self.engine.segment_id(segment), stretch.begin..stretch.position.offset, runs)?;
        }
        self.adopted += 1;
        self.tail.get_or_insert((stretch.position.segment, stretch.begin));
        self.take_in(stretch)
    }

    /// Whether anything that is not part of the log follows the end.
    pub(super) fn has_rest(&self) -> bool {
        !self.unsettled.is_empty()
    }

    /// Whether these records may leave more versions than one change of the index should have.
    fn leaves_many(&self, items: &[Item], accounts: &EngineAccounts<'_>) -> Result<bool> {
        if accounts.state.snapshots.is_empty() && self.snapshots_ahead.is_empty() {
            return Ok(false);
        }
        for removal in items.iter().filter(|item| item.kind == Kind::TreeRemoval) {
            if is_many(&accounts.snapshot, &removal.directories)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn take_in(&mut self, stretch: Stretch) -> Result<()> {
        let engine = self.engine;
        let mut accounts = EngineAccounts::of_log(engine);
        if self.leaves_many(&stretch.items, &accounts)? && engine.commit_pending()? {
            accounts.may_write_early();
        }
        accounts.snapshots_ahead.clone_from(&self.snapshots_ahead);
        accounts.may_have_unjoined = self.unjoined > 0;
        let mut snapshots = accounts.state.snapshots.to_vec();
        let mut is_removed = false;
        let nameless = if self.is_from_scratch { Nameless::Stay } else { Nameless::Go };
        let mut effects = Effects::new(&accounts, nameless);
        let mut highest_id = stretch.highest_id.max(accounts.state.highest_id);
        let mut newest_release = None;
        for item in &stretch.items {
            let (entry, location) = (item.entry, item.entry.location);
            highest_id = highest_id.max(entry.id);
            if item.is_lost {
                let damage = Damage { segment: location.segment, range: location.range() };
                match engine.not_read(Cause::Damage).is_empty() {
                    true => self.recovered.lost.push((Arc::clone(&item.key), damage)),
                    // One that is away may have it: then the log is read again.
                    false => self.damaged(damage),
                }
            }
            match item.kind {
                Kind::Removal => effects.remove(&item.key, entry.id, location).map(|_| ())?,
                Kind::TreeRemoval => {
                    let top = (*item.key != *ROOT_KEY).then_some(&item.key);
                    effects.remove_tree(top, &item.directories, entry.id, location)?
                }
                Kind::Release => {
                    if let Some(released) = &item.released {
                        newest_release = Some(released);
                        self.released.merge(released);
                        is_removed |= snapshots.iter().any(|row| !released.snapshots.contains(row));
                        snapshots.clone_from(&released.snapshots);
                    }
                }
                Kind::Snapshot => {
                    effects.dead(location, entry.id);
                    match &item.snapshot {
                        Some(SnapshotChange::Taken(taken)) => snapshots.push(taken.clone()),
                        Some(SnapshotChange::Removed(sequence)) => {
                            snapshots.retain(|row| row.sequence != *sequence);
                            is_removed = true;
                        }
                        None => {}
                    }
                }
                _ => effects.put(&item.key, entry, item.descriptor.as_ref())?,
            }
        }
        effects.settle_names()?;
        self.unjoined += effects.unjoined();
        if let Some(row) = effects.segment(stretch.position.segment) {
            row.size_bytes = row.size_bytes.max(stretch.position.offset.0);
        }
        self.recovered.batches += 1;
        self.recovered.records += stretch.items.len() as u64;
        self.last_nanoseconds = stretch.time_nanoseconds.or(self.last_nanoseconds);
        self.position = stretch.position;
        let mut change = effects.finish(Some(stretch.position));
        change.highest_id = Some(highest_id);
        if let Some(newest) = newest_release {
            // A pin unknown to the catalog preserves the state from here on.
            let known = &accounts.state.pins;
            let new = newest.pins.iter().filter(|name| !known.contains_key(*name));
            change.pins = new.map(|name| (name.clone(), accounts.state.epoch)).collect();
            change.unpinned = known.keys().filter(|name| !newest.pins.contains(*name)).cloned().collect();
            self.released.pins.clone_from(&newest.pins);
            change.notes.push((RELEASED.to_owned(), self.released.encode()));
        }
        if snapshots != **accounts.state.snapshots {
            change.snapshots = Some(snapshots);
        }
        // In the transaction that goes on behind it: a crash must not leave an index that knows nothing of it.
        let missing = self.completeness.missing.len();
        if engine.is_writer() && missing > self.noted {
            let kept = self.completeness.encode_missing();
            change.notes.extend(engine.missing_notes(kept, self.is_from_scratch, &self.unlisted));
            self.noted = missing;
        }
        if is_removed {
            change.notes.push(versions_due());
        }
        drop(accounts);
        engine.take_in(change)?;
        engine.highest_id.fetch_max(highest_id, std::sync::atomic::Ordering::Relaxed);
        let has_pending = engine.is_writer() && engine.writer()?.has_pending;
        if !engine.owns_index() || !engine.is_recent_full() || has_pending {
            return Ok(());
        }
        match engine.make_table() {
            // What is recent stays in memory.
            Err(error) if error.kind() == ErrorKind::NoSpace && engine.catalog.is_written() => Ok(()),
            made => made,
        }
    }
}

/// The index entry for a record: that of a removal for the tombstone of a tree; `None` if its attributes or its content
/// are inconsistent.
pub(crate) fn entry_in(segment: SegmentNumber, offset: LogOffset, record: &Record<'_>) -> Option<Entry> {
    item(segment, offset, &record.head, Some(record.content)).map(|item| item.entry)
}

/// A record to be applied; `None` if its attributes or its content are inconsistent, or if its content is lost and
/// needed to apply it. That of an object is not: it stays listed, and nothing older stands in for it.
fn item(segment: SegmentNumber, offset: LogOffset, head: &Head<'_>, content: Option<&[u8]>) -> Option<Item> {
    let location = Location { segment, offset, record_bytes: head.lengths.record_bytes() as u64 };
    let (mut descriptor, mut released, mut snapshot, mut directories) = (None, None, None, Vec::new());
    let mut entry = match head.kind {
        Kind::Removal => Entry::removal(head.id, location),
        Kind::TreeRemoval => {
            directories = decode_directories(content?)?;
            Entry::removal(head.id, location)
        }
        Kind::Release => {
            released = Some(Released::decode(content?)?);
            Entry::removal(head.id, location)
        }
        Kind::Snapshot => {
            let number = u64::from_le_bytes(content?.try_into().ok()?);
            snapshot = Some(match head.name {
                Some(name) => {
                    let created_nanoseconds = number as i64;
                    SnapshotChange::Taken(SnapshotRow { sequence: head.id, created_nanoseconds, name: name.to_vec() })
                }
                None => SnapshotChange::Removed(number),
            });
            Entry::removal(head.id, location)
        }
        Kind::Link => Entry::link(head.number),
        kind => {
            let attributes = Attributes::decode(head.attributes)?;
            let stored = match (kind, content) {
                (Kind::Large, Some(content)) => {
                    let decoded = Descriptor::decode(content, Path::new("")).ok()?;
                    let stored = decoded.stored_bytes;
                    descriptor = Some(decoded);
                    stored
                }
                (Kind::File, Some(content)) if head.is_zstd => {
                    zstd::zstd_safe::get_frame_content_size(content).ok().flatten()?
                }
                // Its size is lost with its content.
                (Kind::Large, None) => 0,
                (Kind::File, None) if head.is_zstd => 0,
                (Kind::File | Kind::Symlink, _) => head.lengths.content as u64,
                _ => 0,
            };
            let size_bytes = attributes.holes.as_ref().map_or(stored, |holes| holes.size_bytes);
            Entry { size_bytes, ..entry_of(kind, &attributes, Time::default()) }
        }
    };
    let number = if head.kind.is_used() { head.number } else { ObjectNumber::NONE };
    (entry.id, entry.number, entry.location) = (head.id, number, location);
    let (kind, is_lost, key) = (head.kind, content.is_none(), head.key().into());
    Some(Item { kind, is_lost, key, entry, descriptor, released, snapshot, directories })
}
