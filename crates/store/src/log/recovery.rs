//! What a writer does first: it takes in what the log has beyond the catalog, and cuts off what was never acknowledged
//! (docs/FORMAT.md, section 8). With an empty catalog, the same makes the index anew from all segments.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use super::outdated::Outdated;
use super::scan::{SegmentScan, Step};
use super::writer::{Active, Writer};
use crate::devices::device::{DeviceFile, Mode};
use crate::devices::extents::{Allocator, DIRECTORY, path as extent_path};
use crate::devices::set::Devices;
use crate::engine::effects::{Effects, Nameless, shared_number};
use crate::engine::sync::RECENT_LIMIT;
use crate::engine::write::entry_of;
use crate::engine::{Engine, EngineLedger};
use crate::error::{Error, ErrorKind, Result};
use crate::format::attributes::Attributes;
use crate::format::descriptor::Descriptor;
use crate::format::entry::{Entry, Kind, Location};
use crate::format::geometry::Class;
use crate::format::record::Record;
use crate::format::segment::{Commit, SEGMENT_HEADER_BYTES, SEGMENTS, SegmentHeader, chained, number_of, segment_path};
use crate::index::catalog::{Change, Position, SegmentRow};

/// Damage that recovery found in the log: bytes of a segment that no copy has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Number of the segment.
    pub segment: u64,
    /// Where, in bytes.
    pub range: Range<u64>,
}

/// What recovery did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Batches that the log had and the catalog had not.
    pub batches: u64,
    /// Records in them.
    pub records: u64,
    /// Bytes at the end of the log that were never acknowledged, and were cut off.
    pub cut_off_bytes: u64,
    /// Acknowledged bytes that are lost.
    pub damage: Vec<Damage>,
    /// Segments that only devices had which were away, when the index was made anew.
    pub outdated: Vec<Outdated>,
}

/// A record that was read and is not taken in yet.
#[derive(Debug)]
struct Item {
    kind: Kind,
    key: Vec<u8>,
    entry: Entry,
    descriptor: Option<Descriptor>,
}

/// A stretch of the log that holds: a batch, or single records out of a damaged one.
#[derive(Debug, Default)]
struct Stretch {
    items: Vec<Item>,
    /// Where in the segment it begins.
    begin: u64,
    position: Position,
    highest_id: u64,
}

/// What was read and waits for a later commit to say that it was durable, or for the end of the log.
#[derive(Debug)]
enum Unsettled {
    Holds(Stretch),
    Broken(Damage),
    /// Here a segment begins, after the batch with this sequence number, that those before it do not lead to, while the index is made
    /// anew: if all up to there was durable, they were given back; else a crash took what was between.
    Gap(u64),
}

/// Where things are while the log is read.
struct Reading<'e> {
    engine: &'e Engine,
    /// End of the last stretch that was taken in.
    position: Position,
    /// The highest sequence number that a commit says was durable.
    durable_sequence: u64,
    /// In the order of the log.
    unsettled: VecDeque<Unsettled>,
    is_making_anew: bool,
    recovered: Recovered,
}

/// Segments on the devices, by number, with the devices that have a copy.
pub(crate) fn segments(devices: &Devices) -> Result<BTreeMap<u64, Vec<u16>>> {
    let mut found: BTreeMap<u64, Vec<u16>> = BTreeMap::new();
    for slot in devices.slots().iter().filter(|slot| slot.is_readable()) {
        let listed = slot.device.list(SEGMENTS).map_err(|error| Error::io("list", &slot.path.join(SEGMENTS), error))?;
        for number in listed.iter().filter_map(|(name, _)| number_of(name)) {
            found.entry(number).or_default().push(slot.entry.number);
        }
    }
    Ok(found)
}

impl Engine {
    /// Takes in a change that the log has: into the catalog, if it is this process's to change, and into the view.
    fn take_in(&self, change: Change) -> Result<()> {
        if self.owns_index() {
            self.catalog.commit(&change)?;
        }
        self.apply(change)
    }

    /// Copies of a segment that are there. Those on devices that were away come last, so that they are asked only for what no other has.
    pub(crate) fn open_copies(&self, number: u64, devices: &[u16]) -> Vec<(u16, Arc<dyn DeviceFile>)> {
        let open = |&device: &u16| self.devices.segment(device, number, Mode::Read).ok().map(|file| (device, file));
        let mut copies: Vec<_> = devices.iter().filter_map(open).collect();
        let slots = self.devices.slots();
        copies.sort_by_key(|&(device, _)| slots.get(usize::from(device)).is_none_or(|slot| !slot.is_writable()));
        copies
    }

    /// Takes in what the log has beyond the catalog, cuts off what does not hold, and makes the log ready to be appended to. The engine's view and
    /// catalog are brought up to date; an empty catalog is filled from all segments.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if the catalog is ahead of the log: a device lost what was acknowledged, or is an old copy.
    pub(crate) fn recover(&self) -> Result<Recovered> {
        if self.is_writer() {
            self.end_renaming()?;
        }
        let mut segments = segments(&self.devices)?;
        let newest = segments.keys().next_back().copied().unwrap_or(0);
        let state = self.view().state.clone();
        let start = state.position;
        let is_making_anew = start == Position::default();
        let outdated = self.sort_out_old(&mut segments, is_making_anew);
        let mut reading = Reading {
            engine: self,
            position: start,
            durable_sequence: start.sequence,
            unsettled: VecDeque::new(),
            is_making_anew,
            recovered: Recovered { outdated, ..Recovered::default() },
        };
        if !is_making_anew {
            self.check_position(start, segments.get(&start.segment).map(Vec::as_slice).unwrap_or_default())?;
        }
        drop(state);
        let mut headers: BTreeMap<u64, SegmentHeader> = BTreeMap::new();
        for (&number, devices) in segments.range(start.segment..) {
            let mut scan = SegmentScan::new(
                self.open_copies(number, devices),
                if number == start.segment { start.offset } else { 0 },
            );
            let (header, _) = scan.header();
            let header = match header.filter(|header| header.number == number && header.store == self.geometry().store)
            {
                Some(header) => header,
                None if scan.end <= SEGMENT_HEADER_BYTES => continue,
                None => {
                    // Its records tell by themselves whether they go on where the segment before ended.
                    reading
                        .unsettled
                        .push_back(Unsettled::Broken(Damage { segment: number, range: 0..SEGMENT_HEADER_BYTES }));
                    reading.assumed_header(number, devices.len() as u8)
                }
            };
            headers.insert(number, header);
            reading.add_row(number, header, devices)?;
            reading.segment(number, &header, &mut scan)?;
        }
        reading.end()?;
        let end = reading.position;
        if !self.is_writer() {
            return Ok(reading.recovered);
        }
        let mut recovered = reading.recovered;
        self.cut_off(&segments, start, end, &mut recovered)?;
        if is_making_anew {
            self.drop_nameless()?;
        }
        self.cut_off_extents(&mut recovered)?;
        self.resume(newest, &headers, end)?;
        Ok(recovered)
    }

    /// Whether the log has the batch that the catalog says it has taken in last.
    fn check_position(&self, position: Position, devices: &[u16]) -> Result<()> {
        const COMMIT_BYTES: u64 = 84;
        let from = position.offset.saturating_sub(COMMIT_BYTES);
        let mut scan = SegmentScan::new(self.open_copies(position.segment, devices), from);
        let holds = match scan.next(false) {
            Some(Step::Record(at, record, _)) if at == from && record.head.kind == Kind::Commit => {
                Commit::decode(record.content)
                    .is_some_and(|commit| commit.chain == position.chain && commit.sequence == position.sequence)
            }
            _ => false,
        };
        if holds {
            return Ok(());
        }
        let place = devices.first().map_or_else(
            || PathBuf::from(segment_path(position.segment)),
            |&device| self.devices.place(device, &segment_path(position.segment)),
        );
        let cause = format!(
            "the log should have batch {} there, ending at {}, and has not: the device lost acknowledged writes, or is an old copy",
            position.sequence, position.offset
        );
        Err(Error::new(ErrorKind::Corrupt, "recover the log", cause).at(&place).advise(
            "bring the device back as it was, or run granulo store check --rebuild-index to go on with what there is",
        ))
    }

    /// Cuts the log off at `end` on all devices, removes segments after it, and makes copies of the last segment alike.
    fn cut_off(
        &self,
        segments: &BTreeMap<u64, Vec<u16>>,
        start: Position,
        end: Position,
        recovered: &mut Recovered,
    ) -> Result<()> {
        let fail = |device: u16, number: u64, error| {
            Error::io("cut off the segment", &self.devices.place(device, &segment_path(number)), error)
        };
        for (&number, devices) in segments.range(end.segment..) {
            for &device in devices {
                let Some(slot) =
                    self.devices.slots().get(usize::from(device)).filter(|slot| slot.is_writable()).cloned()
                else {
                    continue;
                };
                if number > end.segment {
                    recovered.cut_off_bytes +=
                        self.devices.segment(device, number, Mode::Read).and_then(|file| file.size()).unwrap_or(0);
                    slot.device.remove(&segment_path(number)).map_err(|error| fail(device, number, error))?;
                    slot.device.sync_directory(SEGMENTS).map_err(|error| fail(device, number, error))?;
                    continue;
                }
                let file =
                    self.devices.segment(device, number, Mode::Write).map_err(|error| fail(device, number, error))?;
                let size = file.size().map_err(|error| fail(device, number, error))?;
                if size > end.offset {
                    recovered.cut_off_bytes += size - end.offset;
                    file.set_size(end.offset)
                        .and_then(|()| file.sync())
                        .map_err(|error| fail(device, number, error))?;
                }
            }
            self.devices.forget_segment(number);
            if number > end.segment && self.view().state.segments.contains_key(&number) {
                let change = Change { removed_segments: vec![number], ..Change::default() };
                self.catalog.commit(&change)?;
                self.apply(change)?;
            }
        }
        self.make_copies_alike(segments, start, end)
    }

    /// Cuts extent files off behind the last unit that a descriptor names, and removes those of which none is named.
    fn cut_off_extents(&self, recovered: &mut Recovered) -> Result<()> {
        let rows = Arc::clone(&self.view().state.extents);
        for slot in self.devices.slots().iter().filter(|slot| slot.is_writable()) {
            let listed =
                slot.device.list(DIRECTORY).map_err(|error| Error::io("list", &slot.path.join(DIRECTORY), error))?;
            let mut is_changed = false;
            for (name, size) in listed {
                let Some(number) = number_of(&name).and_then(|number| u32::try_from(number).ok()) else { continue };
                let end = rows.get(&(slot.entry.number, number)).map_or(0, |row| row.end_bytes);
                let place = slot.path.join(DIRECTORY).join(&name);
                let fail = |error| Error::io("cut off the extent file", &place, error);
                if size <= end {
                    continue;
                }
                recovered.cut_off_bytes += size - end;
                let path = extent_path(number);
                if end == 0 {
                    slot.device.remove(&path).map_err(fail)?;
                    is_changed = true;
                } else {
                    let file = slot.device.open(&path, Mode::Write).map_err(fail)?;
                    file.set_size(end).and_then(|()| file.sync()).map_err(fail)?;
                }
            }
            if is_changed {
                slot.device
                    .sync_directory(DIRECTORY)
                    .map_err(|error| Error::io("sync", &slot.path.join(DIRECTORY), error))?;
            }
        }
        *self.allocator.write().unwrap_or_else(PoisonError::into_inner) =
            Arc::new(Allocator::new(rows.values().copied()));
        Ok(())
    }

    /// Every copy of the segments of the tail gets the bytes that hold.
    fn make_copies_alike(&self, segments: &BTreeMap<u64, Vec<u16>>, start: Position, end: Position) -> Result<()> {
        if start == Position::default() {
            // Made anew from all there is: telling copies apart is the work of a scrub.
            return Ok(());
        }
        for (&number, devices) in segments.range(start.segment..=end.segment) {
            if devices.len() < 2 {
                continue;
            }
            let from = if number == start.segment { start.offset } else { 0 };
            let row_end = self.view().state.segments.get(&number).map_or(0, |row| row.size_bytes);
            self.heal_segment(number, from..row_end)?;
        }
        Ok(())
    }

    /// Rewrites what does not hold in a range of a segment's copies from a copy where it does; gives the bytes rewritten.
    pub(crate) fn heal_segment(&self, number: u64, range: Range<u64>) -> Result<u64> {
        let copies = self.open_copies(number, &self.copies(number));
        let devices: Vec<u16> = copies.iter().map(|&(device, _)| device).collect();
        let mut scan = SegmentScan::new(copies, range.start);
        let mut repairs: Vec<(Vec<u16>, u64, Vec<u8>)> = Vec::new();
        if range.start == 0 {
            let (header, without) = scan.header();
            if let Some(header) = header.filter(|_| !without.is_empty()) {
                repairs.push((without, 0, header.encode()));
            }
        }
        let mut healed = 0;
        let mut touched = BTreeSet::new();
        loop {
            let step = match scan.next(true) {
                Some(Step::Record(at, record, without)) if at < range.end => {
                    if !without.is_empty() {
                        let mut bytes = Vec::new();
                        let found = record.record_bytes();
                        let source = devices.iter().find(|device| !without.contains(device));
                        if let Some(&source) = source {
                            self.read_copy(source, number, at, found as usize, &mut bytes).map_err(|error| {
                                Error::io("read", &self.devices.place(source, &segment_path(number)), error)
                            })?;
                            repairs.push((without, at, bytes));
                        }
                    }
                    true
                }
                Some(Step::Damage(_)) => true,
                _ => false,
            };
            for (without, at, bytes) in repairs.drain(..) {
                for device in without {
                    let place = self.devices.place(device, &segment_path(number));
                    let Ok(file) = self.devices.segment(device, number, Mode::Write) else { continue };
                    file.write_at(&bytes, at).map_err(|error| Error::io("repair", &place, error))?;
                    healed += bytes.len() as u64;
                    touched.insert(device);
                }
            }
            if !step {
                break;
            }
        }
        for device in touched {
            let place = self.devices.place(device, &segment_path(number));
            let file = self
                .devices
                .segment(device, number, Mode::Write)
                .map_err(|error| Error::io("repair", &place, error))?;
            file.sync().map_err(|error| Error::io("sync", &place, error))?;
        }
        Ok(healed)
    }

    /// Shared objects that no name is left of go from an index that was made anew.
    pub(crate) fn drop_nameless(&self) -> Result<()> {
        let ledger = EngineLedger::new(self);
        let mut nameless = Vec::new();
        let mut scan = ledger.snapshot.scan_from(&[0])?;
        while let Some((key, _)) = scan.next_entry()? {
            let Some(number) = shared_number(key) else { break };
            if ledger.state.shared.get(&number).copied().unwrap_or(0) == 0 {
                nameless.push(number);
            }
        }
        let mut effects = Effects::new(&ledger, Nameless::Go);
        effects.drop_nameless(nameless)?;
        let change = effects.finish(None);
        drop(ledger);
        self.catalog.commit(&change)?;
        self.apply(change)
    }

    /// The log goes on where it ends: in its last segment, if all its copies can be written, else in a new one.
    fn resume(&self, newest: u64, headers: &BTreeMap<u64, SegmentHeader>, end: Position) -> Result<()> {
        let row = self.view().state.segments.get(&end.segment).cloned();
        let mut writer = self.writer()?;
        *writer = Writer {
            newest_segment: newest.max(end.segment),
            position: end,
            durable_sequence: end.sequence,
            ..Writer::default()
        };
        let Some(row) = row else { return Ok(()) };
        let open =
            |&device: &u16| self.devices.segment(device, row.number, Mode::Write).ok().map(|file| (device, file));
        let copies: Vec<_> = row.devices.iter().filter_map(open).collect();
        let wanted = headers.get(&row.number).map_or(row.devices.len(), |header| header.copies.into());
        let is_whole = copies.len() == row.devices.len() && copies.len() >= wanted.min(self.geometry().copies.into());
        if is_whole && row.size_bytes < self.geometry().segment_bytes {
            writer.active =
                Some(Active { number: row.number, class: row.class, on: row.class, copies, end: end.offset });
        }
        Ok(())
    }
}

impl Reading<'_> {
    /// What a segment whose header is damaged should say.
    fn assumed_header(&self, number: u64, copies: u8) -> SegmentHeader {
        let newest = self.unsettled.iter().rev().find_map(|unsettled| match unsettled {
            Unsettled::Holds(stretch) => Some(stretch.position),
            Unsettled::Broken(_) | Unsettled::Gap(_) => None,
        });
        let before = newest.unwrap_or(self.position);
        SegmentHeader {
            class: Class::Fast,
            copies,
            store: self.engine.geometry().store,
            number,
            created_nanoseconds: 0,
            sequence: before.sequence,
            chain: before.chain,
            highest_id: 0,
        }
    }

    /// The account of a segment, when the catalog has none, or does not know of a copy.
    fn add_row(&self, number: u64, header: SegmentHeader, devices: &[u16]) -> Result<()> {
        let engine = self.engine;
        let known = engine.view().state.segments.get(&number).cloned();
        let all: BTreeSet<u16> = devices.iter().chain(known.iter().flat_map(|row| &row.devices)).copied().collect();
        let new = SegmentRow {
            number,
            class: header.class,
            devices: Vec::new(),
            size_bytes: SEGMENT_HEADER_BYTES,
            live_bytes: 0,
            live_records: 0,
            dead_records: 0,
            lowest_id: u64::MAX,
        };
        let row = SegmentRow { devices: all.into_iter().collect(), ..known.clone().unwrap_or(new) };
        if known.as_ref() == Some(&row) {
            return Ok(());
        }
        let change = Change { segments: vec![row], ..Change::default() };
        engine.take_in(change)
    }

    fn break_off(&mut self, segment: u64, range: Range<u64>) {
        self.unsettled.push_back(Unsettled::Broken(Damage { segment, range }));
    }

    /// Reads a segment from where the scan stands.
    fn segment(&mut self, number: u64, header: &SegmentHeader, scan: &mut SegmentScan) -> Result<()> {
        let before = self.assumed_header(number, 0);
        let goes_on = header.sequence == before.sequence && header.chain == before.chain;
        let mut running = if number == self.position.segment {
            self.position
        } else {
            // Segments before it may have been compacted away since; in the tail of the log none are.
            match (goes_on, self.is_making_anew) {
                (true, _) => {}
                (false, true) => self.unsettled.push_back(Unsettled::Gap(header.sequence)),
                (false, false) => self.break_off(number, 0..scan.end),
            }
            Position { segment: number, offset: SEGMENT_HEADER_BYTES, sequence: header.sequence, chain: header.chain }
        };
        let mut stretch = Stretch::default();
        let mut is_whole = true;
        while let Some(step) = scan.next(false) {
            match step {
                Step::Damage(range) => {
                    is_whole = false;
                    self.break_off(number, range);
                }
                Step::Record(at, record, _) if record.head.kind == Kind::Commit => {
                    let Some(commit) = Commit::decode(record.content) else {
                        is_whole = false;
                        self.break_off(number, at..at + record.record_bytes());
                        continue;
                    };
                    let end = at + record.record_bytes();
                    let holds = commit.sequence == running.sequence + 1
                        && commit.begin == running.offset
                        && commit.records as usize == stretch.items.len()
                        && commit.chain == running.chain;
                    if !holds && is_whole {
                        self.break_off(number, running.offset..end);
                    }
                    stretch.begin = if running.offset == SEGMENT_HEADER_BYTES { 0 } else { running.offset };
                    running = Position { segment: number, offset: end, sequence: commit.sequence, chain: commit.chain };
                    stretch.position = running;
                    stretch.highest_id = commit.highest_id;
                    self.unsettled.push_back(Unsettled::Holds(std::mem::take(&mut stretch)));
                    self.durable_sequence = self.durable_sequence.max(commit.durable_sequence);
                    self.settle()?;
                    is_whole = true;
                }
                Step::Record(at, record, _) => {
                    running.chain = chained(running.chain, record.head.head_checksum, record.head.content_checksum);
                    match item(number, at, &record) {
                        Some(item) => stretch.items.push(item),
                        None => {
                            is_whole = false;
                            self.break_off(number, at..at + record.record_bytes());
                        }
                    }
                }
            }
        }
        if !stretch.items.is_empty() {
            // Records without a commit: torn, or the commit is damaged.
            if is_whole {
                self.break_off(number, running.offset..scan.end);
            }
            stretch.position = Position { offset: scan.end, chain: header.chain, ..running };
            self.unsettled.push_back(Unsettled::Holds(stretch));
        }
        Ok(())
    }

    /// Takes in what was durable. What does not hold before the end of that was acknowledged, and is damage.
    fn settle(&mut self) -> Result<()> {
        loop {
            match self.unsettled.front() {
                Some(Unsettled::Holds(stretch)) if stretch.position.sequence <= self.durable_sequence => {
                    if let Some(Unsettled::Holds(stretch)) = self.unsettled.pop_front() {
                        self.take_in(stretch)?;
                    }
                }
                Some(&Unsettled::Gap(sequence)) if sequence <= self.durable_sequence => {
                    self.unsettled.pop_front();
                }
                Some(Unsettled::Broken(_)) if self.position.sequence < self.durable_sequence => {
                    if let Some(Unsettled::Broken(damage)) = self.unsettled.pop_front() {
                        self.recovered.damage.push(damage);
                    }
                }
                _ => return Ok(()),
            }
        }
    }

    /// The end of the log: what holds without a gap is taken in, with its units looked at, as nothing says that it was durable.
    ///
    /// It may be in memory only: left by a process that was killed, or (as Linux takes pages that it could not write for clean) by a sync that failed.
    /// So all of it is written again, and synced, before anything is built on it.
    fn end(&mut self) -> Result<()> {
        while let Some(Unsettled::Holds(stretch)) = self.unsettled.pop_front() {
            let mut descriptors = stretch.items.iter().filter_map(|item| item.descriptor.as_ref());
            let holds = |descriptor| {
                self.engine.extents.verify(descriptor, &mut |_| Ok(())).is_ok_and(|wrong| wrong.is_empty())
            };
            if !descriptors.all(holds) {
                break;
            }
            if self.engine.is_writer() {
                let units = stretch.items.iter().filter_map(|item| item.descriptor.as_ref()).flat_map(Descriptor::runs);
                self.engine.write_again(stretch.position.segment, stretch.begin..stretch.position.offset, units)?;
            }
            self.take_in(stretch)?;
        }
        Ok(())
    }

    fn take_in(&mut self, stretch: Stretch) -> Result<()> {
        let engine = self.engine;
        let ledger = EngineLedger::new(engine);
        let nameless = if self.is_making_anew { Nameless::Stay } else { Nameless::Go };
        let mut effects = Effects::new(&ledger, nameless);
        let mut highest_id = stretch.highest_id.max(ledger.state.highest_id);
        for item in &stretch.items {
            let (entry, location) = (item.entry, item.entry.location);
            highest_id = highest_id.max(entry.id);
            match item.kind {
                Kind::Removal => effects.remove(&item.key, entry.id, location).map(|_| ())?,
                Kind::TreeRemoval => effects.remove_tree(&item.key, entry.id, location).map(|_| ())?,
                _ => effects.put(&item.key, entry, item.descriptor.as_ref())?,
            }
        }
        if let Some(row) = effects.segment(stretch.position.segment) {
            row.size_bytes = row.size_bytes.max(stretch.position.offset);
        }
        self.recovered.batches += 1;
        self.recovered.records += stretch.items.len() as u64;
        self.position = stretch.position;
        let mut change = effects.finish(Some(stretch.position));
        change.highest_id = Some(highest_id);
        drop(ledger);
        engine.take_in(change)?;
        engine.highest_id.fetch_max(highest_id, std::sync::atomic::Ordering::Relaxed);
        if engine.owns_index() && engine.view().state.recent.len() >= RECENT_LIMIT {
            engine.make_table()
        } else {
            Ok(())
        }
    }
}

/// What the index will have of a record; `None` if its attributes or its content contradict themselves.
fn item(segment: u64, offset: u64, record: &Record<'_>) -> Option<Item> {
    let head = &record.head;
    let location = Location { segment, offset, record_bytes: record.record_bytes() };
    let mut descriptor = None;
    let mut entry = match head.kind {
        Kind::Removal | Kind::TreeRemoval => Entry::removal(head.id, location),
        Kind::Link => Entry {
            size_bytes: u64::from_le_bytes(record.content.try_into().ok()?),
            ..entry_of(Kind::Link, &Attributes::default())
        },
        kind => {
            let attributes = Attributes::decode(head.attributes)?;
            let stored = match kind {
                Kind::Large => {
                    let decoded = Descriptor::decode(record.content, Path::new("")).ok()?;
                    let stored = decoded.stored_bytes;
                    descriptor = Some(decoded);
                    stored
                }
                Kind::File if head.is_zstd => zstd::zstd_safe::get_frame_content_size(record.content).ok().flatten()?,
                Kind::File | Kind::Symlink => record.content.len() as u64,
                _ => 0,
            };
            let size_bytes = attributes.holes.as_ref().map_or(stored, |holes| holes.size_bytes);
            Entry { size_bytes, ..entry_of(kind, &attributes) }
        }
    };
    (entry.id, entry.location) = (head.id, location);
    Some(Item { kind: head.kind, key: head.key.to_vec(), entry, descriptor })
}
