//! What a batch of records does to the index and to the accounts: the same for a batch that is written now, one that recovery
//! finds in the log, and all of them when the index is rebuilt.
//!
//! Laws: a key has the record with the highest id (compaction never moves a record behind a newer one or a removal of its key, so the
//! order of the log tells the rest); bytes and records in use are counted in the segment they lie in, units of
//! large objects in their extent files; a shared object goes when its last name goes (when the index is rebuilt, names may come
//! in another order than they did, so that is looked at in the end). What something takes the place of and a snapshot has stays in use, under a key of its
//! own that says until when it was there.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use super::changed::ChangedKeys;
use crate::error::{Error, ErrorKind, Result};
use crate::format::descriptor::{Descriptor, Run};
use crate::format::entry::{Entry, Kind, Location};
use crate::format::geometry::Class;
use crate::format::ids::Epoch;
use crate::format::index_key::{
    ROOT, entries_of, is_superseded, leading_number, object_key, superseded, superseded_key, until_of, versions_behind,
    versions_from,
};
use crate::index::Snapshot;
use crate::index::catalog::{Change, ExtentRow, Position, RangeRow, SegmentRow};

/// Where accounts come from while a batch is taken in.
pub(crate) trait Ledger {
    /// The index before the batch.
    fn snapshot(&self) -> &Snapshot;
    /// A segment's account before the batch.
    fn segment(&self, number: u64) -> Option<SegmentRow>;
    /// An extent file's account before the batch.
    fn extent(&self, device: u16, file: u32) -> Option<ExtentRow>;
    /// Names of a shared object before the batch.
    fn names(&self, shared: u64) -> u64;
    /// Directories of removed trees before the batch.
    fn ranges(&self) -> &[RangeRow];
    /// Whether a snapshot has what is there from record `id` on until record `until`.
    fn keeps(&self, id: u64, until: u64) -> bool;
    /// The descriptor of a large object; `None` if it is damaged on every copy. Its units then count as in use until compaction has counted them.
    ///
    /// # Errors
    /// It cannot be read now: nobody knows what it names.
    fn descriptor(&self, location: Location) -> Result<Option<Descriptor>>;
}

/// What the index has for a key before a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Before {
    /// It was looked up in the ledger's snapshot, or in one that is the same.
    Known(Option<Entry>),
    /// It is to be looked up.
    Unknown,
}

/// Why a record is not in use any more where it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leaves {
    /// It was moved.
    Moved,
    /// This record took its place, or removed it.
    Superseded(u64),
    /// No snapshot has it any more.
    Forgotten,
}

/// When a shared object without names goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nameless {
    /// With its last name.
    Go,
    /// When somebody asks for it: names are still to come.
    Stay,
}

/// Stands for the segment of records that are not appended yet: offsets are then from the begin of their batch. So whatever keeps a batch from being
/// taken in is found before anything of it is in the log.
pub(crate) const UNPLACED: u64 = u64::MAX;

/// An account does not bear what is taken from it: the index does not agree with the log.
fn short_account(what: &str) -> Error {
    let cause = format!("{what} has less in use than is to be taken from it: the index does not agree with the log");
    Error::new(ErrorKind::Corrupt, "keep the accounts", cause)
        .advise("granulo store check --rebuild-index rebuilds the index")
}

/// A batch that is being taken in.
pub(crate) struct Effects<'l, L: Ledger> {
    ledger: &'l L,
    nameless: Nameless,
    keys: ChangedKeys,
    /// What it makes of versions that something took the place of, by key; `None`: gone.
    versions: BTreeMap<Vec<u8>, Option<Entry>>,
    segments: BTreeMap<u64, SegmentRow>,
    extents: BTreeMap<(u16, u32), ExtentRow>,
    shared: BTreeMap<u64, u64>,
    /// Shared objects that lost their last name, unless they get another before the batch ends.
    emptied: Vec<u64>,
    /// Directories that it removes, with the id of the removal.
    ranges: HashMap<u64, u64>,
    /// Units of large objects in records that are not appended yet, by offset.
    unplaced_runs: BTreeMap<u64, Vec<Run>>,
    highest_id: u64,
}

impl<'l, L: Ledger> Effects<'l, L> {
    pub(crate) fn new(ledger: &'l L, nameless: Nameless) -> Self {
        Effects {
            ledger,
            nameless,
            keys: ChangedKeys::default(),
            versions: BTreeMap::new(),
            segments: BTreeMap::new(),
            extents: BTreeMap::new(),
            shared: BTreeMap::new(),
            emptied: Vec::new(),
            ranges: HashMap::new(),
            unplaced_runs: BTreeMap::new(),
            highest_id: 0,
        }
    }

    /// Takes memory for a batch of so many records.
    pub(crate) fn reserve(&mut self, records: usize) {
        self.keys.reserve(records);
    }

    /// The entry of a key as the batch has it so far.
    pub(crate) fn look_up(&self, key: &[u8]) -> Result<Option<Entry>> {
        self.look_up_over(key, Before::Unknown)
    }

    /// As [`look_up`](Self::look_up), of a key of which it may be known what the index has.
    fn look_up_over(&self, key: &[u8], before: Before) -> Result<Option<Entry>> {
        if let Some(entry) = self.keys.get(key) {
            return Ok(entry.filter(|entry| entry.kind.is_used()));
        }
        let before = match before {
            Before::Known(entry) => entry,
            Before::Unknown => self.ledger.snapshot().look_up(key)?,
        };
        Ok(before.filter(|entry| !self.is_hidden(key, entry.id)))
    }

    /// Whether this batch removed the directory that an older record lies in.
    fn is_hidden(&self, key: &[u8], id: u64) -> bool {
        let removal = leading_number(key).and_then(|directory| self.ranges.get(&directory));
        removal.is_some_and(|&removal| removal > id)
    }

    /// A segment's account, for changes.
    pub(crate) fn segment(&mut self, number: u64) -> Option<&mut SegmentRow> {
        if !self.segments.contains_key(&number) {
            let row = if number == UNPLACED { unplaced_row() } else { self.ledger.segment(number)? };
            self.segments.insert(number, row);
        }
        self.segments.get_mut(&number)
    }

    /// The batch lies at the end of the log: the account of its segment, which may be new, ends there.
    pub(crate) fn appended(&mut self, active: Option<SegmentRow>, position: Position) {
        if let Some(row) = active.filter(|row| self.ledger.segment(row.number).is_none()) {
            self.segments.entry(row.number).or_insert(row);
        }
        if let Some(row) = self.segment(position.segment) {
            row.size_bytes = position.offset;
        }
    }

    /// The records with places from the begin of the batch were appended: their segment, and where in it the batch begins.
    pub(crate) fn placed(&mut self, segment: u64, begin: u64) {
        for entry in self.keys.entries_mut().filter(|entry| entry.location.segment == UNPLACED) {
            entry.location = Location { segment, offset: begin + entry.location.offset, ..entry.location };
        }
        let Some(counted) = self.segments.remove(&UNPLACED) else { return };
        if let Some(row) = self.segment(segment) {
            row.live_bytes += counted.live_bytes;
            row.live_records += counted.live_records;
            row.dead_records += counted.dead_records;
            row.lowest_id = row.lowest_id.min(counted.lowest_id);
        }
    }

    /// Counts a record that says nothing about what is stored (any more): a removal, a commit, one of an older id.
    pub(crate) fn dead(&mut self, location: Location, id: u64) {
        if let Some(row) = self.segment(location.segment) {
            row.dead_records += 1;
            row.lowest_id = row.lowest_id.min(id);
        }
    }

    /// A record of a key that is in use after it. Does nothing but count if a newer one is known.
    pub(crate) fn put(&mut self, key: &Arc<[u8]>, new: Entry, descriptor: Option<&Descriptor>) -> Result<()> {
        self.put_over(key, new, descriptor, Before::Unknown)
    }

    /// As [`put`](Self::put), of a key of which it may be known what the index has.
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
        let old = self.look_up_over(key, before)?;
        if old.is_some_and(|old| old.id > new.id) {
            self.dead(new.location, new.id);
            return Ok(());
        }
        // A moved copy of a record has its id: links and units stay what they are.
        let is_moved = old.is_some_and(|old| old.id == new.id);
        // Before the old one is retired, which may be another name of the same file.
        if new.kind == Kind::Link && !is_moved {
            *self.names(new.size_bytes) += 1;
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
        self.keys.insert(key, Some(new));
        Ok(())
    }

    /// A record is in use.
    fn count(&mut self, new: Entry) {
        if let Some(row) = self.segment(new.location.segment) {
            row.live_records += 1;
            row.live_bytes += new.location.record_bytes;
            row.lowest_id = row.lowest_id.min(new.id);
        }
    }

    /// A moved record of a version of `of`, of which record `until` took the place.
    fn put_version(&mut self, of: &[u8], until: u64, new: Entry, descriptor: Option<&Descriptor>) -> Result<()> {
        let mut key: Arc<[u8]> = superseded_key(of, until).into();
        let mut old = None;
        match self.version_behind(of, new.id)? {
            Some((known, entry)) if entry.id == new.id => (key, old) = (known.into(), Some(entry)),
            _ => self.end_version(of, new.id)?,
        }
        if old.is_none() && !self.ledger.keeps(new.id, until) {
            self.dead(new.location, new.id);
            return Ok(());
        }
        match old {
            Some(old) => {
                descriptor.map_or(Ok(()), |descriptor| self.move_units(old, descriptor))?;
                self.retire(&key, old, Leaves::Moved)?;
            }
            None => descriptor.iter().flat_map(|descriptor| descriptor.runs()).for_each(|run| self.take_run(run)),
        }
        self.count(new);
        if let Some(row) = self.segment(new.location.segment) {
            row.dead_records += 1;
        }
        self.set_version(&key, new);
        Ok(())
    }

    /// Record `id` is in between a version of `of` and what seemed to take the place of that, as the log, read from its beginning, had not said so yet: there is a removal, or
    /// another version, that was moved behind what came later.
    fn end_version(&mut self, of: &[u8], id: u64) -> Result<()> {
        if !self.ledger.keeps(0, u64::MAX) {
            return Ok(());
        }
        let Some((known, entry)) = self.version_behind(of, id)?.filter(|(_, entry)| entry.id < id) else {
            return Ok(());
        };
        if !self.ledger.keeps(entry.id, id) {
            return self.forget_version(&known, entry);
        }
        self.forget(&known[..].into(), entry.id, entry.location);
        self.set_version(&superseded_key(of, id).into(), entry);
        Ok(())
    }

    /// Everything in the root was removed by record `id`. Only there can anything come later: no other directory has its number again.
    fn end_versions_in_root(&mut self, id: u64) -> Result<()> {
        if !self.ledger.keeps(0, u64::MAX) {
            return Ok(());
        }
        let (from, to) = entries_of(ROOT);
        let (from, to) = (versions_from(&from), versions_from(&to));
        let mut keys = BTreeSet::new();
        let mut scan = self.ledger.snapshot().scan(Bound::Included(&from), Bound::Excluded(&to))?;
        while let Some((key, _)) = scan.next_entry()? {
            keys.extend(superseded(key).map(|(of, _)| of));
        }
        keys.extend(self.versions.range(from..to).filter_map(|(key, _)| superseded(key).map(|(of, _)| of)));
        keys.iter().try_for_each(|of| self.end_version(of, id))
    }

    fn set_version(&mut self, key: &Arc<[u8]>, entry: Entry) {
        self.versions.insert(key.to_vec(), Some(entry));
        self.keys.insert(key, Some(entry));
    }

    /// As [`Snapshot::version_behind`], as the batch has it so far.
    fn version_behind(&self, of: &[u8], sequence: u64) -> Result<Option<(Vec<u8>, Entry)>> {
        let mut behind = sequence;
        let before = loop {
            let Some((key, entry)) = self.ledger.snapshot().version_behind(of, behind)? else { break None };
            if !self.versions.contains_key(&key) {
                break Some((key, entry));
            }
            behind = until_of(&key);
        };
        let range = (Bound::Excluded(superseded_key(of, sequence)), Bound::Excluded(versions_behind(of)));
        let changed = self.versions.range(range).find_map(|(key, entry)| Some((key.clone(), (*entry)?)));
        Ok(match (before, changed) {
            (Some(before), Some(changed)) => Some(if before.0 < changed.0 { before } else { changed }),
            (before, changed) => before.or(changed),
        })
    }

    /// Until when a snapshot has a version that record `until` takes the place of, or one that the index knows already; `None` if none has it.
    fn kept_until(&self, key: &[u8], old: Entry, until: u64) -> Result<Option<u64>> {
        if is_superseded(key) || !self.ledger.keeps(old.id, until) {
            return Ok(None);
        }
        let next = self.version_behind(key, old.id)?.map(|(_, entry)| entry.id);
        match next {
            // Its moved record was read before what took its place.
            Some(next) if next == old.id => Ok(None),
            Some(next) if next < until => Ok(Some(next).filter(|&next| self.ledger.keeps(old.id, next))),
            _ => Ok(Some(until)),
        }
    }

    /// No snapshot has a version any more, which is under this key.
    pub(crate) fn forget_version(&mut self, key: &[u8], old: Entry) -> Result<()> {
        self.forget(&key.into(), old.id, old.location);
        self.retire(key, old, Leaves::Forgotten)
    }

    /// A removal of a key, lying at `location`; gives whether it was in use.
    pub(crate) fn remove(&mut self, key: &Arc<[u8]>, id: u64, location: Location) -> Result<bool> {
        self.remove_over(key, id, location, Before::Unknown)
    }

    /// As [`remove`](Self::remove), of a key of which it may be known what the index has.
    pub(crate) fn remove_over(&mut self, key: &Arc<[u8]>, id: u64, location: Location, before: Before) -> Result<bool> {
        self.highest_id = self.highest_id.max(id);
        self.dead(location, id);
        self.end_version(key, id)?;
        let Some(old) = self.look_up_over(key, before)?.filter(|old| old.id <= id) else { return Ok(false) };
        self.forget(key, id, location);
        self.retire(key, old, Leaves::Superseded(id))?;
        Ok(true)
    }

    /// A removal of a directory with all below it: of the entry `key` (of the root none, which stays), and of all entries of `directories`.
    pub(crate) fn remove_tree(
        &mut self,
        key: Option<&Arc<[u8]>>,
        directories: &[u64],
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

    /// What the index has in some directories goes, but for what the batch has changed.
    fn retire_entries(&mut self, directories: &[u64], id: u64) -> Result<()> {
        let mut sorted = directories.to_vec();
        sorted.sort_unstable();
        let (Some(&first), Some(&last)) = (sorted.first(), sorted.last()) else { return Ok(()) };
        let (from, to) = (entries_of(first).0, entries_of(last).1);
        let mut scan = self.ledger.snapshot().scan(Bound::Included(&from), Bound::Excluded(&to))?;
        let mut left = sorted.iter().peekable();
        while let Some((key, old)) = scan.next_entry()? {
            let Some(directory) = leading_number(key) else { break };
            while left.next_if(|left| **left < directory).is_some() {}
            match left.peek() {
                None => break,
                Some(&&next) if next > directory => scan.seek(&entries_of(next).0)?,
                Some(_) if self.keys.get(key).is_none() && !self.is_hidden(key, old.id) && old.id <= id => {
                    self.retire(key, *old, Leaves::Superseded(id))?;
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// Nothing more is taken in: shared objects that are left without a name go. Names that are exchanged lose one before they get another.
    pub(crate) fn settle_names(&mut self) -> Result<()> {
        for number in std::mem::take(&mut self.emptied) {
            if *self.names(number) == 0 {
                self.drop_shared(number, self.highest_id)?;
            }
        }
        Ok(())
    }

    /// A shared object that lost its last name, or never had one.
    fn drop_shared(&mut self, number: u64, until: u64) -> Result<()> {
        let key = object_key(number);
        if let Some(old) = self.look_up(&key)? {
            self.forget(&key[..].into(), old.id, old.location);
            self.retire(&key, old, Leaves::Superseded(until))?;
        }
        self.shared.insert(number, 0);
        Ok(())
    }

    /// Shared objects of which no name is left go; asked for when the index was rebuilt. They were there until record `until` at most.
    pub(crate) fn drop_nameless(&mut self, numbers: impl IntoIterator<Item = u64>, until: u64) -> Result<()> {
        numbers.into_iter().try_for_each(|number| self.drop_shared(number, until))
    }

    /// The key is no more: a removal hides what sorted tables have of it.
    fn forget(&mut self, key: &Arc<[u8]>, id: u64, location: Location) {
        if is_superseded(key) {
            self.versions.insert(key.to_vec(), None);
        }
        let is_needed = !self.ledger.snapshot().tables().is_empty();
        self.keys.insert(key, is_needed.then(|| Entry::removal(id, location)));
    }

    /// A record that was in use under this key is not any more, unless a snapshot has it.
    fn retire(&mut self, key: &[u8], old: Entry, leaves: Leaves) -> Result<()> {
        let (is_moved, is_version) = (leaves == Leaves::Moved, is_superseded(key));
        let kept_until = match leaves {
            Leaves::Superseded(until) => self.kept_until(key, old, until)?,
            Leaves::Moved | Leaves::Forgotten => None,
        };
        if let Some(until) = kept_until {
            self.set_version(&superseded_key(key, until).into(), old);
        }
        if let Some(row) = self.segment(old.location.segment) {
            let short = || short_account(&format!("segment {}", row.number));
            if kept_until.is_none() {
                row.live_records = row.live_records.checked_sub(1).ok_or_else(short)?;
                row.live_bytes = row.live_bytes.checked_sub(old.location.record_bytes).ok_or_else(short)?;
            }
            // A version is counted since something took its place.
            row.dead_records += u64::from(!is_version);
        }
        match old.kind {
            _ if is_moved => {}
            Kind::Link if !is_version => {
                let names = self.names(old.size_bytes);
                *names = names.checked_sub(1).ok_or_else(|| short_account("a shared object"))?;
                if *names == 0 && self.nameless == Nameless::Go {
                    self.emptied.push(old.size_bytes);
                }
            }
            Kind::Large if kept_until.is_none() => {
                let runs = match old.location.segment {
                    UNPLACED => self.unplaced_runs.remove(&old.location.offset),
                    _ => self.ledger.descriptor(old.location)?.map(|descriptor| descriptor.runs().collect()),
                };
                runs.into_iter().flatten().try_for_each(|run| self.give_run(run))?;
            }
            _ => {}
        }
        Ok(())
    }

    fn names(&mut self, shared: u64) -> &mut u64 {
        let ledger = self.ledger;
        self.shared.entry(shared).or_insert_with(|| ledger.names(shared))
    }

    fn extent(&mut self, device: u16, file: u32) -> &mut ExtentRow {
        let ledger = self.ledger;
        self.extents.entry((device, file)).or_insert_with(|| {
            ledger.extent(device, file).unwrap_or(ExtentRow { device, file, end_bytes: 0, live_bytes: 0 })
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

    /// A moved record may have another map: units that were rebuilt on another device (see `rebuild`), or moved (see `vacate`).
    fn move_units(&mut self, old: Entry, descriptor: &Descriptor) -> Result<()> {
        let Some(before) = self.ledger.descriptor(old.location)? else { return Ok(()) };
        let (before, after): (BTreeSet<Run>, BTreeSet<Run>) = (before.runs().collect(), descriptor.runs().collect());
        after.difference(&before).for_each(|&run| self.take_run(run));
        before.difference(&after).try_for_each(|&run| self.give_run(run))
    }

    /// The change that takes the batch into the catalog.
    pub(crate) fn finish(mut self, position: Option<Position>) -> Change {
        assert!(self.emptied.is_empty(), "names are settled before a batch is finished");
        let mut change =
            Change { position, highest_id: Some(self.highest_id).filter(|&id| id > 0), ..Change::default() };
        let changed = std::mem::take(&mut self.keys).into_sorted();
        change.forget = changed.iter().filter(|(_, entry)| entry.is_none()).map(|(key, _)| Arc::clone(key)).collect();
        change.recent = changed.into_iter().filter_map(|(key, entry)| Some((key, entry?))).collect();
        if !self.ranges.is_empty() {
            let ranges = self.ranges.into_iter().map(|(directory, id)| RangeRow { directory, id });
            change.ranges = Some(self.ledger.ranges().iter().copied().chain(ranges).collect());
        }
        change.segments = self.segments.into_values().collect();
        change.extents = self.extents.into_values().collect();
        change.shared = self.shared.into_iter().collect();
        change
    }
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
