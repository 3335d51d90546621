//! Effects of a batch of records on the index and the accounts: the same for a batch being written, one found in the
//! log by recovery, and all of them when the index is rebuilt.
//!
//! Laws: the record with the highest id counts for a key (compaction never moves a record after a newer one or a
//! tombstone of its key, so the order of the log settles the rest); live bytes and records are counted in their
//! segment, units of large objects in their extent files; a shared object is removed with its last name (in a rebuild
//! of the index, names may come in another order than originally, so that is checked at the end). Superseded entries
//! that a snapshot references stay live ([`versions`]). Attributes that were changed alone are a record of their own,
//! and are retired with the record of their object ([`attributes`]).

mod attributes;
mod versions;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use self::versions::Left;
pub(crate) use self::versions::Versions;

use super::changed::ChangedKeys;
use crate::error::{Error, ErrorKind, Result};
use crate::format::descriptor::{Descriptor, Run};
use crate::format::entry::{Entry, Kind, Location};
use crate::format::geometry::Class;
use crate::format::ids::{DeviceNumber, Epoch, LogOffset, ObjectNumber, SegmentNumber};
use crate::format::index_key::{ROOT, attributes_of, directory_of, entries_of, is_superseded, object_key, superseded};
use crate::index::catalog::{Change, ExtentRow, Position, RangeRow, SegmentRow};
use crate::index::{Early, Snapshot};

/// Provides the accounts while a batch is applied.
pub(crate) trait Accounts {
    /// The index before the batch.
    fn snapshot(&self) -> &Snapshot;
    /// A segment's account before the batch.
    fn segment(&self, number: SegmentNumber) -> Option<SegmentRow>;
    /// An extent file's account before the batch.
    fn extent(&self, device: DeviceNumber, file: u32) -> Option<ExtentRow>;
    /// Names of a shared object before the batch.
    fn names(&self, shared: ObjectNumber) -> u64;
    /// Directories of removed trees before the batch.
    fn ranges(&self) -> &[RangeRow];
    /// Whether attributes records are in the index whose object had no entry when they came: while the log is read.
    fn may_have_unjoined(&self) -> bool;
    /// Whether a snapshot preserves what existed from record `id` until record `until`.
    fn keeps(&self, id: u64, until: u64) -> bool;
    /// Invisible versions in the index.
    fn early(&self) -> Option<Early>;
    /// Number of versions of a removed tree inserted into the index per transaction, before the batch is applied;
    /// `None`: all are part of the batch.
    fn piece(&self) -> Option<usize>;
    /// Inserts versions into the index that are invisible until the removal `until` is applied; `is_last`: these are
    /// the last.
    ///
    /// # Errors
    /// Any error of changing the catalog.
    fn write_early(&self, until: u64, versions: Versions, is_last: bool) -> Result<()>;
    /// The index with these versions visible.
    fn revealed(&self) -> Snapshot;
    /// The descriptor of a large object; `None` if it is damaged on every copy. Its units then count as live until
    /// compaction has counted them.
    ///
    /// # Errors
    /// It cannot be read now, so what it references is unknown.
    fn descriptor(&self, entry: &Entry) -> Result<Option<Descriptor>>;
    /// The entry with the attributes in its own record; as it is if that is damaged on every copy.
    ///
    /// # Errors
    /// It cannot be read now.
    fn with_own_attributes(&self, entry: Entry) -> Result<Entry>;
}

/// The entry for a key before a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Before {
    /// It was looked up in the snapshot of the accounts, or in an equal one.
    Known(Option<Entry>),
    /// It must be looked up.
    Unknown,
}

/// Why a record is no longer live at its old location.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leaves {
    /// It was moved.
    Moved,
    /// This record superseded or removed it.
    Superseded(u64),
    /// No snapshot references it any more.
    Forgotten,
}

/// When a shared object without names is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nameless {
    /// With its last name.
    Go,
    /// On request: more names may follow.
    Stay,
}

/// Placeholder for the segment of records that are not appended yet: offsets are then relative to the beginning of
/// their batch. So anything that prevents a batch from being applied is found before any of it is in the log.
pub(crate) const UNPLACED: SegmentNumber = SegmentNumber(u64::MAX);

/// An account would become negative: the index does not match the log.
fn short_account(what: &str) -> Error {
    let cause = format!("{what} has less in use than is to be subtracted: the index contradicts the log");
    Error::new(ErrorKind::Corrupt, "update the accounts", cause)
        .advise("granulo store check --rebuild-index rebuilds the index")
}

/// A batch being applied.
pub(crate) struct Effects<'l, L: Accounts> {
    accounts: &'l L,
    nameless: Nameless,
    keys: ChangedKeys,
    /// Changes of superseded versions, by key; `None`: removed.
    versions: BTreeMap<Vec<u8>, Option<Entry>>,
    segments: BTreeMap<SegmentNumber, SegmentRow>,
    extents: BTreeMap<(DeviceNumber, u32), ExtentRow>,
    shared: BTreeMap<ObjectNumber, u64>,
    /// Shared objects that lost their last name, unless they get another before the batch ends.
    emptied: Vec<ObjectNumber>,
    /// Directories that it removes, with the id of the tombstone.
    ranges: HashMap<ObjectNumber, u64>,
    /// Versions of a removed tree that is being traversed.
    left: Option<Left>,
    /// The index with early versions visible.
    revealed: Option<Snapshot>,
    /// This batch makes them visible.
    takes_early_in: bool,
    /// Attributes records whose object had no entry.
    unjoined: u64,
    /// Units of large objects in records that are not appended yet, by offset.
    unplaced_runs: BTreeMap<LogOffset, Vec<Run>>,
    highest_id: u64,
}

impl<'l, L: Accounts> Effects<'l, L> {
    pub(crate) fn new(accounts: &'l L, nameless: Nameless) -> Self {
        Effects {
            accounts,
            nameless,
            keys: ChangedKeys::default(),
            versions: BTreeMap::new(),
            segments: BTreeMap::new(),
            extents: BTreeMap::new(),
            shared: BTreeMap::new(),
            emptied: Vec::new(),
            ranges: HashMap::new(),
            left: None,
            revealed: None,
            takes_early_in: false,
            unjoined: 0,
            unplaced_runs: BTreeMap::new(),
            highest_id: 0,
        }
    }

    /// Allocates memory for a batch of `records` records.
    pub(crate) fn reserve(&mut self, records: usize) {
        self.keys.reserve(records);
    }

    /// The entry for a key, with the batch applied so far.
    pub(crate) fn look_up(&self, key: &[u8]) -> Result<Option<Entry>> {
        self.look_up_over(key, Before::Unknown)
    }

    /// As [`look_up`](Self::look_up), for a key whose entry in the index may be known.
    fn look_up_over(&self, key: &[u8], before: Before) -> Result<Option<Entry>> {
        if let Some(entry) = self.keys.get(key) {
            return Ok(Some(entry).filter(|entry| entry.kind.is_used()));
        }
        let before = match before {
            Before::Known(entry) => entry,
            Before::Unknown => self.accounts.snapshot().look_up(key)?,
        };
        Ok(before.filter(|entry| !self.is_hidden(key, entry.id)))
    }

    /// Whether this batch removed the directory of an older record.
    fn is_hidden(&self, key: &[u8], id: u64) -> bool {
        let removal = directory_of(key).and_then(|directory| self.ranges.get(&directory));
        removal.is_some_and(|&removal| removal > id)
    }

    /// A segment's account, mutable.
    pub(crate) fn segment(&mut self, number: SegmentNumber) -> Option<&mut SegmentRow> {
        if !self.segments.contains_key(&number) {
            let row = if number == UNPLACED { unplaced_row() } else { self.accounts.segment(number)? };
            self.segments.insert(number, row);
        }
        self.segments.get_mut(&number)
    }

    /// The batch is at the end of the log: the account of its segment, which may be new, ends there.
    pub(crate) fn appended(&mut self, active: Option<SegmentRow>, position: Position) {
        if let Some(row) = active.filter(|row| self.accounts.segment(row.number).is_none()) {
            self.segments.entry(row.number).or_insert(row);
        }
        if let Some(row) = self.segment(position.segment) {
            row.size_bytes = position.offset.0;
        }
    }

    /// The records with relative offsets were appended: their segment, and the offset of the batch in it.
    pub(crate) fn placed(&mut self, segment: SegmentNumber, begin: LogOffset) {
        for entry in self.keys.entries_mut().filter(|entry| entry.location.segment == UNPLACED) {
            entry.location = Location { segment, offset: begin + entry.location.offset.0, ..entry.location };
        }
        let Some(counted) = self.segments.remove(&UNPLACED) else { return };
        if let Some(row) = self.segment(segment) {
            row.live_bytes += counted.live_bytes;
            row.live_records += counted.live_records;
            row.dead_records += counted.dead_records;
            row.lowest_id = row.lowest_id.min(counted.lowest_id);
        }
    }

    /// Counts a record without effect on what is stored: a tombstone, a commit, one with an older id.
    pub(crate) fn dead(&mut self, location: Location, id: u64) {
        if let Some(row) = self.segment(location.segment) {
            row.dead_records += 1;
            row.lowest_id = row.lowest_id.min(id);
        }
    }

    /// Applies a record that is live afterwards. If a newer one of its key is known, it is only counted.
    pub(crate) fn put(&mut self, key: &Arc<[u8]>, new: Entry, descriptor: Option<&Descriptor>) -> Result<()> {
        self.put_over(key, new, descriptor, Before::Unknown)
    }

    /// As [`put`](Self::put), for a key whose entry in the index may be known.
    pub(crate) fn put_over(
        &mut self,
        key: &Arc<[u8]>,
        new: Entry,
        descriptor: Option<&Descriptor>,
        before: Before,
    ) -> Result<()> {
        self.highest_id = self.highest_id.max(new.id);
        if let Some((of, until)) = superseded(key) {
            return self.put_version(&of, until, new, descriptor);
        }
        if new.kind == Kind::Attributes {
            return self.put_attributes(key, new);
        }
        let old = self.look_up_over(key, before)?;
        if old.is_some_and(|old| old.id > new.id) {
            self.dead(new.location, new.id);
            return Ok(());
        }
        // A moved record keeps its id: links, units and newer attributes are unchanged.
        let is_moved = old.is_some_and(|old| old.id == new.id);
        let new = match old {
            Some(old) if is_moved => new.with_attributes_as(&old),
            old => self.join_attributes(key, old, new)?,
        };
        // Before the old one is retired, which may be another name of the same file.
        if new.kind == Kind::Link && !is_moved {
            *self.names(new.linked()) += 1;
        }
        if let Some(old) = old {
            if let Some(descriptor) = descriptor.filter(|_| is_moved) {
                self.move_units(old, descriptor)?;
            }
            self.retire(key, old, if is_moved { Leaves::Moved } else { Leaves::Superseded(new.id) })?;
        }
        self.count(new);
        if let Some(descriptor) = descriptor.filter(|_| !is_moved) {
            descriptor.runs().for_each(|run| self.take_run(run));
            if new.location.segment == UNPLACED {
                self.unplaced_runs.insert(new.location.offset, descriptor.runs().collect());
            }
        }
        self.keys.insert(key, new);
        Ok(())
    }

    /// Counts a live record.
    fn count(&mut self, new: Entry) {
        if let Some(row) = self.segment(new.location.segment) {
            row.live_records += 1;
            row.live_bytes += new.location.record_bytes;
            row.lowest_id = row.lowest_id.min(new.id);
        }
    }

    /// Applies the tombstone of a key at `location`; returns whether the key existed.
    pub(crate) fn remove(&mut self, key: &Arc<[u8]>, id: u64, location: Location) -> Result<bool> {
        self.remove_over(key, id, location, Before::Unknown)
    }

    /// As [`remove`](Self::remove), for a key whose entry in the index may be known.
    pub(crate) fn remove_over(&mut self, key: &Arc<[u8]>, id: u64, location: Location, before: Before) -> Result<bool> {
        self.highest_id = self.highest_id.max(id);
        self.dead(location, id);
        self.end_version(key, id)?;
        let old = self.look_up_over(key, before)?;
        self.retire_attributes(key, old, id)?;
        let Some(old) = old.filter(|old| old.id <= id) else { return Ok(false) };
        self.forget(key, id, location);
        self.retire(key, old, Leaves::Superseded(id))?;
        Ok(true)
    }

    /// Applies the tombstone of a directory with everything below it: of the entry `key` (none for the root, which
    /// stays), and of all entries of `directories`.
    pub(crate) fn remove_tree(
        &mut self,
        key: Option<&Arc<[u8]>>,
        directories: &[ObjectNumber],
        id: u64,
        location: Location,
    ) -> Result<()> {
        self.highest_id = self.highest_id.max(id);
        self.dead(location, id);
        if directories.contains(&ROOT) {
            self.end_versions_in_root(id)?;
        }
        if let Some(key) = key {
            self.end_version(key, id)?;
            if let Some(old) = self.look_up(key)?.filter(|old| old.id <= id) {
                self.forget(key, id, location);
                self.retire(key, old, Leaves::Superseded(id))?;
            }
        }
        for &directory in directories {
            for (key, old) in self.keys.entries_of(directory) {
                if old.kind.is_used() && old.id <= id {
                    self.forget(&key, id, location);
                    self.retire(&key, old, Leaves::Superseded(id))?;
                }
            }
        }
        self.retire_entries(directories, id)?;
        for &directory in directories {
            let known = self.ranges.entry(directory).or_default();
            *known = id.max(*known);
        }
        Ok(())
    }

    /// Retires the index entries of some directories, except those changed by the batch.
    fn retire_entries(&mut self, directories: &[ObjectNumber], id: u64) -> Result<()> {
        self.begin_tree(id);
        let snapshot = self.accounts.snapshot();
        let mut retire = |key: &[u8], old: Entry| {
            if self.keys.get(key).is_none() && !self.is_hidden(key, old.id) && old.id <= id {
                self.retire(key, old, Leaves::Superseded(id))?;
                self.write_if_many()?;
            }
            Ok(true)
        };
        each_between(snapshot, directories, entries_of, &mut retire)?;
        each_between(snapshot, directories, attributes_of, &mut retire)?;
        self.end_tree()
    }

    /// Called when nothing more is applied: removes shared objects without a name. Only now, because exchanged names
    /// lose one before they get another.
    pub(crate) fn settle_names(&mut self) -> Result<()> {
        for number in std::mem::take(&mut self.emptied) {
            if *self.names(number) == 0 {
                self.drop_shared(number, self.highest_id)?;
            }
        }
        Ok(())
    }

    /// Removes a shared object that lost its last name, or never had one.
    fn drop_shared(&mut self, number: ObjectNumber, until: u64) -> Result<()> {
        let key = object_key(number);
        if let Some(old) = self.look_up(&key)? {
            self.drop_attributes(&key, old, until)?;
            self.forget(&key[..].into(), old.id, old.location);
            self.retire(&key, old, Leaves::Superseded(until))?;
        }
        self.shared.insert(number, 0);
        Ok(())
    }

    /// Removes shared objects without a name, on request after a rebuild of the index: each with the record that
    /// superseded its last name in a snapshot, or 0.
    pub(crate) fn drop_nameless(&mut self, objects: impl IntoIterator<Item = (ObjectNumber, u64)>) -> Result<()> {
        objects.into_iter().try_for_each(|(number, until)| self.drop_shared(number, until))
    }

    /// Removes the key.
    fn forget(&mut self, key: &Arc<[u8]>, id: u64, location: Location) {
        if is_superseded(key) {
            self.versions.insert(key.to_vec(), None);
        }
        self.keys.insert(key, Entry::removal(id, location));
    }

    /// The live record of this key becomes dead, unless a snapshot references it.
    fn retire(&mut self, key: &[u8], old: Entry, leaves: Leaves) -> Result<()> {
        let (is_moved, is_version) = (leaves == Leaves::Moved, is_superseded(key));
        let kept_until = match leaves {
            Leaves::Superseded(until) => self.kept_until(key, old, until)?,
            Leaves::Moved | Leaves::Forgotten => None,
        };
        if let Leaves::Superseded(until) = leaves
            && old.attributes_id > until
        {
            // They are those of a record that was moved, and comes later in the log.
            self.unjoined += 1;
        }
        if let Some(until) = kept_until {
            let version = self.as_it_was(key, old, until)?;
            self.keep_version(key, until, version);
        }
        if let Some(row) = self.segment(old.location.segment) {
            let short = || short_account(&format!("segment {}", row.number));
            if kept_until.is_none() {
                row.live_records = row.live_records.checked_sub(1).ok_or_else(short)?;
                row.live_bytes = row.live_bytes.checked_sub(old.location.record_bytes).ok_or_else(short)?;
            }
            // A version has been counted since it was superseded.
            row.dead_records += u64::from(!is_version);
        }
        match old.kind {
            _ if is_moved => {}
            Kind::Link if !is_version => {
                let names = self.names(old.linked());
                *names = names.checked_sub(1).ok_or_else(|| short_account("a shared object"))?;
                if *names == 0 && self.nameless == Nameless::Go {
                    self.emptied.push(old.linked());
                }
            }
            Kind::Large if kept_until.is_none() => {
                let runs = match old.location.segment {
                    UNPLACED => self.unplaced_runs.remove(&old.location.offset),
                    _ => self.accounts.descriptor(&old)?.map(|descriptor| descriptor.runs().collect()),
                };
                runs.into_iter().flatten().try_for_each(|run| self.give_run(run))?;
            }
            _ => {}
        }
        Ok(())
    }

    fn names(&mut self, shared: ObjectNumber) -> &mut u64 {
        let accounts = self.accounts;
        self.shared.entry(shared).or_insert_with(|| accounts.names(shared))
    }

    fn extent(&mut self, device: DeviceNumber, file: u32) -> &mut ExtentRow {
        let accounts = self.accounts;
        self.extents.entry((device, file)).or_insert_with(|| {
            accounts.extent(device, file).unwrap_or(ExtentRow { device, file, end_bytes: 0, live_bytes: 0 })
        })
    }

    fn take_run(&mut self, run: Run) {
        let row = self.extent(run.device, run.file);
        row.live_bytes += run.length_bytes;
        row.end_bytes = row.end_bytes.max(run.offset_bytes + run.length_bytes);
    }

    fn give_run(&mut self, run: Run) -> Result<()> {
        let row = self.extent(run.device, run.file);
        let short = || short_account(&format!("extent file {:08x} of device {}", run.file, run.device));
        row.live_bytes = row.live_bytes.checked_sub(run.length_bytes).ok_or_else(short)?;
        Ok(())
    }

    /// A moved record may have another map: units that were rebuilt on another device (see `rebuild`), or moved (see
    /// `vacate`).
    fn move_units(&mut self, old: Entry, descriptor: &Descriptor) -> Result<()> {
        // If it cannot be read, its units count as live until the accounts are compared.
        let before = self.accounts.descriptor(&old)?;
        let before: BTreeSet<Run> = before.iter().flat_map(Descriptor::runs).collect();
        let after: BTreeSet<Run> = descriptor.runs().collect();
        after.difference(&before).for_each(|&run| self.take_run(run));
        before.difference(&after).try_for_each(|&run| self.give_run(run))
    }

    /// The change that applies the batch to the catalog.
    pub(crate) fn finish(mut self, position: Option<Position>) -> Change {
        assert!(self.emptied.is_empty(), "names are settled before a batch is finished");
        let mut change =
            Change { position, highest_id: Some(self.highest_id).filter(|&id| id > 0), ..Change::default() };
        change.recent = std::mem::take(&mut self.keys).into_sorted();
        // A tombstone hides what sorted tables have for a key. Early versions may have become one since.
        if self.accounts.revealed().tables().is_empty() {
            let is_forgotten = |(_, entry): &mut (Arc<[u8]>, Entry)| entry.kind == Kind::Removal;
            change.forget = change.recent.extract_if(.., is_forgotten).map(|(key, _)| key).collect();
        }
        if !self.ranges.is_empty() {
            let ranges = self.ranges.into_iter().map(|(directory, id)| RangeRow { directory, id });
            change.ranges = Some(self.accounts.ranges().iter().copied().chain(ranges).collect());
        }
        if self.takes_early_in {
            change.notes.push(Early::no_note());
        }
        change.segments = self.segments.into_values().collect();
        change.extents = self.extents.into_values().collect();
        change.shared = self.shared.into_iter().collect();
        change
    }
}

/// Traverses a snapshot's entries of some directories, by ascending number, as long as `each` returns true.
///
/// # Errors
/// Any error of reading the index, and those of `each`.
pub(crate) fn each_entry_of(
    snapshot: &Snapshot,
    directories: &[ObjectNumber],
    each: &mut dyn FnMut(&[u8], Entry) -> Result<bool>,
) -> Result<()> {
    each_between(snapshot, directories, entries_of, each)
}

/// As [`each_entry_of`], for the keys of each directory that `bounds` says.
fn each_between(
    snapshot: &Snapshot,
    directories: &[ObjectNumber],
    bounds: fn(ObjectNumber) -> (Vec<u8>, Vec<u8>),
    each: &mut dyn FnMut(&[u8], Entry) -> Result<bool>,
) -> Result<()> {
    let mut sorted = directories.to_vec();
    sorted.sort_unstable();
    let (Some(&first), Some(&last)) = (sorted.first(), sorted.last()) else { return Ok(()) };
    let (from, to) = (bounds(first).0, bounds(last).1);
    let mut scan = snapshot.scan(Bound::Included(&from), Bound::Excluded(&to))?;
    let mut left = sorted.iter().peekable();
    while let Some((key, entry)) = scan.next_entry()? {
        let Some(directory) = directory_of(key) else { break };
        while left.next_if(|left| **left < directory).is_some() {}
        match left.peek() {
            None => break,
            Some(&&next) if next > directory => scan.seek(&bounds(next).0)?,
            Some(_) => {
                if !each(key, *entry)? {
                    break;
                }
            }
        }
    }
    Ok(())
}

fn unplaced_row() -> SegmentRow {
    SegmentRow {
        number: UNPLACED,
        epoch: Epoch(0),
        class: Class::Fast,
        devices: Vec::new(),
        size_bytes: 0,
        live_bytes: 0,
        live_records: 0,
        dead_records: 0,
        lowest_id: u64::MAX,
    }
}
