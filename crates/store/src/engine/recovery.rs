//! The first step of a writer: it applies what the log has beyond the catalog (docs/FORMAT.md, section 9). With an
//! empty catalog, this rebuilds the index from all segments; a reader without a live writer does it in memory.
//!
//! **Recovery never truncates and never deletes.** What is invalid at the end of the log stays in place, in quarantine;
//! the writer begins a new segment that continues the last batch that counts, and continues in the old one only after a
//! clean close. A crash at any point leaves what the next recovery needs, because nothing that was read is changed:
//! bytes are only overwritten with themselves, or damage with bytes from a valid copy.

use std::cmp::Ordering as Compared;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use super::missing::{MISSING, devices_away, too_few};
use super::recovered::{RELEASED, Recovered};
use super::replay::Replay;
use crate::devices::device::{DeviceFile, Mode};
use crate::devices::extents::Allocator;
use crate::devices::names;
use crate::devices::superblocks::is_of_process;
use crate::engine::copies::Damaged;
use crate::engine::effects::{Effects, Nameless};
use crate::engine::pace::Pace;
use crate::engine::{EXTENT_FILE_BYTES, Engine, EngineAccounts};
use crate::error::{Error, ErrorKind, Result};
use crate::format::ids::{DeviceNumber, Epoch, LogOffset, SegmentId, SegmentNumber};
use crate::format::names::{SEGMENTS, SegmentName};
use crate::format::record::Seed;
use crate::format::release::Released;
use crate::format::rows::{Change, Position, SegmentRow, Superseded};
use crate::format::segment::SegmentHeader;
use crate::layout::granulo::Alignment;
use crate::locks::{self, lock};
use crate::log::completeness::{Cause, Completeness, Missing, Tail};
use crate::log::lineage::{FoundSegment, Lineage, LogPart};
use crate::log::scan::{ScanStep, SegmentScan};
use crate::log::writer::{Active, Writer};
use crate::progress::Progress;

/// The outcome of applying the log.
pub(crate) enum Recovery {
    Done(Recovered),
    /// The catalog does not belong to this log: it is ahead of it, or of another history, or so old that what it needs
    /// was released. What it has and the log lacks.
    UnusableIndex(Vec<Missing>),
}

/// Segments on the devices.
struct ListedSegments {
    /// By name, with the devices that have a copy and the length of the longest.
    copies: BTreeMap<SegmentName, (Vec<DeviceNumber>, u64)>,
    /// Devices whose segments could not be listed.
    unlisted: BTreeSet<DeviceNumber>,
}

/// A copy of a segment that cannot be read.
type Unread = (SegmentName, DeviceNumber, io::Error);

/// An open copy of a segment, with its device.
type OpenCopy = (DeviceNumber, Arc<dyn DeviceFile>);

impl Engine {
    /// Existing copies of a segment. Those on devices that were missing come last, so that they are read only for what
    /// no other has.
    pub(crate) fn open_copies(&self, segment: SegmentId, devices: &[DeviceNumber]) -> Vec<OpenCopy> {
        self.try_copies(segment, devices).0
    }

    /// Existing copies of a segment, and one that exists and cannot be opened.
    fn try_copies(
        &self,
        segment: SegmentId,
        devices: &[DeviceNumber],
    ) -> (Vec<OpenCopy>, Option<(DeviceNumber, io::Error)>) {
        let (mut copies, mut unopened) = (Vec::new(), None);
        for &device in devices {
            match self.devices.segment(device, segment, Mode::Read) {
                Ok(file) => copies.push((device, file)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => unopened = Some((device, error)),
            }
        }
        let slots = self.devices.slots();
        copies.sort_by_key(|&(device, _)| slots.get(device.index()).is_none_or(|slot| !slot.is_writable()));
        (copies, unopened)
    }

    /// Reads a segment from an offset on.
    pub(crate) fn scan(&self, segment: SegmentId, devices: &[DeviceNumber], from: LogOffset) -> SegmentScan {
        let (copies, unopened) = self.try_copies(segment, devices);
        SegmentScan::new(copies, self.seed(segment), from).beside(unopened)
    }

    /// Lists the segments on the devices.
    ///
    /// # Errors
    /// A device cannot be listed, for a writer that was not told to continue without it; errors that say nothing about
    /// the device.
    fn list_segments(&self) -> Result<ListedSegments> {
        let mut found = ListedSegments { copies: BTreeMap::new(), unlisted: BTreeSet::new() };
        for slot in self.devices.slots().iter().filter(|slot| slot.is_readable()) {
            let listed = match names::list(&*slot.device, SEGMENTS) {
                Ok(listed) => listed,
                Err(error) if is_of_process(&error) => return Err(slot.error("list", SEGMENTS, error)),
                Err(error) if self.is_writer() && !self.is_degraded => {
                    let error = slot.error("list", SEGMENTS, error);
                    return Err(error.advise("check the device; --degraded continues without what cannot be read"));
                }
                Err(_) => {
                    found.unlisted.insert(slot.entry.number);
                    continue;
                }
            };
            for (name, size) in listed.iter().filter_map(|(name, size)| Some((SegmentName::parse(name)?, *size))) {
                let (devices, longest) = found.copies.entry(name).or_default();
                devices.push(slot.entry.number);
                *longest = size.max(*longest);
            }
        }
        Ok(found)
    }

    /// Identifies the segments in files from number `first` on, with their headers; and copies whose header cannot be
    /// read, of segments that no other copy identifies.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if all of them are of another store: the superblock is not the one of this directory.
    fn identified(&self, first: SegmentNumber, listed: &ListedSegments) -> Result<(Vec<FoundSegment>, Vec<Unread>)> {
        let slots = self.devices.slots();
        let known = Arc::clone(&self.view().state.segments);
        let history = self.devices.history();
        let (mut found, mut unread) = (Vec::new(), Vec::new());
        let (mut has_own, mut has_others) = (false, false);
        let mut epochs: BTreeMap<u32, Epoch> = BTreeMap::new();
        let mut unknown = Vec::new();
        for (&name, (devices, size_bytes)) in listed.copies.range(SegmentName { number: first, epoch_low_half: 0 }..) {
            let row = known.get(&name.number).map(SegmentRow::id).filter(|&id| SegmentName::from(id) == name);
            let half = SegmentId { number: name.number, epoch: Epoch(name.epoch_low_half.into()) };
            let mut scan = self.scan(row.unwrap_or(half), devices, LogOffset::START);
            let header = scan.header(name).0;
            let is_of_history = history.may_have(name);
            if header.is_none()
                && is_of_history
                && let Some((device, error)) = scan.take_error()
            {
                unread.push((name, device, error));
            }
            let is_own = |header: &SegmentHeader| header.store == self.geometry().store;
            has_own |= row.is_some() || header.as_ref().is_some_and(is_own);
            has_others |= header.as_ref().is_some_and(|header| !is_own(header));
            let header = header.filter(is_own);
            let id = header.map(|header| header.id).or(row);
            epochs.extend(id.map(|id| (id.epoch.low_half(), id.epoch)));
            // One known to the index takes precedence.
            let weight = devices.iter().filter(|&&device| self.devices.is_in_service(device)).count()
                + if row.is_some() { slots.len() + 1 } else { 0 };
            let one = FoundSegment {
                id: id.unwrap_or(half),
                header,
                continues: header.map(|header| header.continues),
                devices: devices.clone(),
                size_bytes: *size_bytes,
                is_of_history,
                weight,
                continued_at: Vec::new(),
            };
            if id.is_some() { found.push(one) } else { unknown.push(one) }
        }
        if has_others && !has_own {
            return Err(Error::new(ErrorKind::Corrupt, "open the store", "its segments belong to another store")
                .at(&self.home)
                .advise(
                    "put back the superblock of this directory; docs/read_store.py reads the segments without one",
                ));
        }
        for one in unknown {
            let half = one.id.epoch.low_half();
            let epoch = epochs.get(&half).copied().or_else(|| self.epoch_in(&one));
            let id = SegmentId { epoch: epoch.unwrap_or(one.id.epoch), ..one.id };
            found.push(FoundSegment { id, ..one });
        }
        self.find_continued(&mut found);
        self.tell_apart(&mut found);
        Ok((found, unread))
    }

    /// The epoch of a segment whose header is damaged on every copy: that of its commits, if they are sealed with it.
    fn epoch_in(&self, found: &FoundSegment) -> Option<Epoch> {
        let store = self.geometry().store;
        self.open_copies(found.id, &found.devices).into_iter().find_map(|(_, file)| {
            let is_right = |epoch: Epoch| epoch.low_half() == found.id.epoch.low_half();
            let seed = |epoch: Epoch| -> Seed { SegmentId { epoch, ..found.id }.seed(&store) };
            crate::log::scan::sealed_epoch(&*file, &is_right, &seed)
        })
    }

    /// What was released according to the last segments of the log: the first batch of each repeats it. One that a
    /// crash or a full device left without a batch says nothing. Nor does one beside the log: it may be of a side that
    /// was not taken, from before all epochs in the history, which released other segments with the same numbers.
    fn newest_released(&self, lineage: &Lineage) -> Released {
        let mut released = Released::default();
        for LogPart { found: one, end, .. } in lineage.parts.iter().rev() {
            let mut scan =
                SegmentScan::new(self.open_copies(one.id, &one.devices), self.seed(one.id), LogOffset::START);
            scan.end = end.map_or(scan.end, |end| scan.end.min(end));
            let (mut is_whole, mut has_batch) = (one.header.is_some(), false);
            while let Some(step) = scan.next(false) {
                match step {
                    ScanStep::Record(_, record, _) if record.head.kind == crate::format::entry::Kind::Release => {
                        released = Released::decode(record.content).unwrap_or(released);
                    }
                    ScanStep::Record(..) => {}
                    ScanStep::Commit(..) => has_batch = true,
                    ScanStep::Damage(..) => is_whole = false,
                }
            }
            // A complete one has everything released before it, or nothing was.
            if is_whole && has_batch || !released.is_empty() {
                break;
            }
        }
        released
    }

    /// Applies what the log has beyond the catalog, and prepares the log for appending. The engine's view and catalog
    /// are updated; an empty catalog is filled from all segments. `witnessed` is a batch that was durable according to
    /// another index; `missing` is what was known to be missing before.
    ///
    /// # Errors
    /// Any error of reading, writing and syncing.
    pub(crate) fn recover(&self, witnessed: u64, missing: &[Missing]) -> Result<Recovery> {
        let state = self.view().state.clone();
        let history = self.devices.history();
        if state.segments.values().any(|row| !history.may_have(row.id().into())) {
            // It is the index of a side that was not taken.
            return Ok(Recovery::UnusableIndex(Vec::new()));
        }
        let start = state.position;
        let is_from_scratch = start == Position::default();
        // Which segments are the log.
        let listed = self.list_segments()?;
        let (found, unread) = self.identified(start.segment, &listed)?;
        let known_released = state.notes.get(RELEASED).and_then(|note| Released::decode(note)).unwrap_or_default();
        let mut released = known_released.clone();
        let mut lineage = Lineage::new(found.clone(), &released, start.segment.max(SegmentNumber(1)));
        let lacks_some = lineage.parts.iter().any(|part| part.missing.is_some())
            || lineage.parts.first().is_none_or(|part| part.found.id.number != start.segment);
        // An index may be too old to know of the release of what the log lacks.
        if is_from_scratch || lacks_some {
            let newest = self.newest_released(&lineage);
            released.merge(&newest);
            if is_from_scratch {
                released.snapshots = newest.snapshots;
            }
            lineage = Lineage::new(found, &released, start.segment.max(SegmentNumber(1)));
        }
        for (name, device, error) in unread {
            // One that was never begun, or that the log does not continue in, has nothing of it.
            let is_of_log = |part: &&LogPart| SegmentName::from(part.found.id) == name;
            if let Some(part) = lineage.parts.iter().find(is_of_log) {
                self.unreadable(device, part.found.id, error)?;
            }
        }
        let mark = self.known_mark().max(witnessed);
        let mut replay = Replay::new(self, start, mark, released, listed.unlisted.clone());
        missing.iter().for_each(|missing| replay.completeness.add(missing.clone()));
        // Whether the index is one of this log.
        if !is_from_scratch {
            let known_missing = self.completeness_of(&state.notes);
            if !known_missing.is_empty() && self.is_more_in_sight(&state.notes, &listed.unlisted) {
                return Ok(Recovery::UnusableIndex(Vec::new()));
            }
            known_missing.iter().for_each(|missing| replay.completeness.add(missing.clone()));
            replay.noted = replay.completeness.missing.len();
            if let Some(lacking) = self.check_position(start, &lineage, &mut replay.completeness)? {
                return Ok(Recovery::UnusableIndex(known_missing.into_iter().chain([lacking]).collect()));
            }
            // Batches were released that the index has not applied: what they removed is no longer in the log.
            if replay.skips(&lineage.parts) {
                return Ok(Recovery::UnusableIndex(known_missing));
            }
        }
        drop(state);
        // What the index lacks is applied; a writer's changes wait until it is proven that it may write. An index built
        // from scratch is not published before the log was read.
        if self.is_writer() && !is_from_scratch {
            self.look_ahead(&lineage.parts, start, mark)?;
            self.writer()?.is_undecided = true;
        }
        for part in &lineage.parts {
            replay.segment(part)?;
        }
        let tail = replay.tail()?;
        let is_proven = self.decide(&replay, &tail)?;
        if self.is_writer() {
            self.end_renaming()?;
        }
        replay.end(tail)?;
        let is_old = self.look_for_rows((&replay.released, &known_released), &listed, &mut replay.completeness);
        if is_old && !is_from_scratch {
            return Ok(Recovery::UnusableIndex(self.completeness_of(&self.view().state.notes)));
        }
        // What was found.
        let quarantined_bytes = self.quarantined(&lineage, replay.position)?;
        // What an earlier recovery left in quarantine is reported again: a device that returned may complete it.
        if replay.adopted > 0 || replay.has_rest() || is_from_scratch && quarantined_bytes > 0 {
            replay.completeness.tail = Some(Tail { batches: replay.adopted, quarantined_bytes });
        }
        *lock(&self.tail) = replay.tail;
        let mut recovered = Recovered { completeness: replay.completeness.clone(), ..replay.recovered.clone() };
        if !is_proven {
            recovered.completeness.add(too_few(&self.devices));
        }
        if !listed.unlisted.is_empty() {
            // Known again at the next open, so it is not noted.
            recovered.completeness.add(devices_away(listed.unlisted.iter().copied().collect()));
        }
        if !self.is_writer() {
            return Ok(Recovery::Done(recovered));
        }
        // A writer goes on.
        // Without space in the index they stay until a compaction.
        if (is_from_scratch || replay.unjoined > 0) && self.commit_pending()? {
            if is_from_scratch {
                self.drop_nameless()?;
            }
            if replay.unjoined > 0 {
                self.drop_unjoined()?;
            }
        }
        let missing_note = replay.completeness.encode_missing();
        let known = self.view().state.notes.get(MISSING).cloned().unwrap_or_default();
        let is_read_again = is_from_scratch && !lineage.parts.is_empty();
        if known != missing_note || is_read_again {
            let notes = self.missing_notes(missing_note, is_from_scratch, &listed.unlisted);
            self.take_in(Change { notes, durable: true, ..Change::default() })?;
        }
        self.renew_allocator();
        self.resume(&lineage, replay)?;
        Ok(Recovery::Done(recovered))
    }

    /// Whether the log has the last batch that the catalog has applied. Damage there is damage; a log that ends before
    /// it, or has another batch there, does not belong to this catalog: returns what it lacks.
    ///
    /// # Errors
    /// As [`unreadable`](Self::unreadable).
    fn check_position(
        &self,
        position: Position,
        lineage: &Lineage,
        completeness: &mut Completeness,
    ) -> Result<Option<Missing>> {
        let part = lineage.parts.first().filter(|part| part.found.id.number == position.segment);
        let Some(part) = part.filter(|_| position.commit > LogOffset::START) else { return Ok(None) };
        let id = part.found.id;
        let mut scan = self.scan(id, &part.found.devices, position.commit);
        let (mut is_it, mut is_other) = (false, false);
        if let Some(ScanStep::Commit(committed, ..)) = scan.next(false) {
            let commit = &committed.commit;
            is_it = committed.at == position.commit
                && (commit.sequence.0, commit.chain()) == (position.sequence, position.chain);
            is_other = committed.at == position.commit && !is_it;
        }
        let is_there =
            LogOffset(part.found.size_bytes) >= position.offset && part.end.is_none_or(|end| end >= position.offset);
        if is_it && is_there {
            return Ok(None);
        }
        let missing = |cause| Missing {
            cause,
            segments: Some((position.segment, position.segment)),
            batches: Some((position.sequence, position.sequence)),
            after_nanoseconds: self.devices.history().began_before(position.sequence),
            devices: self.not_read(cause),
        };
        if !is_there || is_other {
            return Ok(Some(missing(Cause::EndsBeforeMark)));
        }
        match scan.take_error() {
            Some((device, error)) => self.unreadable(device, id, error)?,
            None => completeness.add(missing(Cause::Damage)),
        }
        Ok(None)
    }

    /// Devices that may have what is damaged on all others.
    pub(super) fn not_read(&self, cause: Cause) -> Vec<DeviceNumber> {
        if cause == Cause::Damage { self.devices.record_devices_away(&self.geometry()) } else { Vec::new() }
    }

    /// Looks for segments of the catalog that no present device has. Returns whether the catalog is old: it has files
    /// that were released, and does not know that, although it was durable that they are free before they were
    /// released. (One that was built from a log in which a removal is damaged has some, and knows.)
    fn look_for_rows(
        &self,
        (released, known): (&Released, &Released),
        listed: &ListedSegments,
        completeness: &mut Completeness,
    ) -> bool {
        let view = self.view().state.clone();
        let superseded: BTreeSet<&Superseded> = view.superseded.iter().map(|(_, superseded)| superseded).collect();
        let is_in_use = |as_superseded: Superseded| !superseded.contains(&as_superseded);
        let mut is_old = view.extents.values().filter(|row| row.live_bytes > 0).any(|row| {
            released.has_extent(row.device, row.file)
                && !known.has_extent(row.device, row.file)
                && is_in_use(Superseded::Extent { device: row.device, file: row.file })
        });
        for row in view.segments.values().filter(|row| is_in_use(Superseded::Segment(row.number))) {
            let is_released = released.has_segment(row.number);
            is_old |= is_released && !known.has_segment(row.number);
            if row.live_records > 0 && !is_released && !listed.copies.contains_key(&SegmentName::from(row.id())) {
                completeness.add(Missing {
                    cause: Cause::SegmentMissing,
                    segments: Some((row.number, row.number)),
                    batches: None,
                    after_nanoseconds: None,
                    devices: row.devices.clone(),
                });
            }
        }
        is_old
    }

    /// Bytes on all copies that are not part of the log: after its end, after the positions that segments continue, and
    /// in segments set aside.
    fn quarantined(&self, lineage: &Lineage, end: Position) -> Result<u64> {
        let size_on = |id: SegmentId, device: DeviceNumber| {
            self.devices.segment(device, id, Mode::Read).and_then(|file| file.size()).unwrap_or(0)
        };
        let mut bytes = 0;
        for part in &lineage.parts {
            let id = part.found.id;
            let from = match id.number.cmp(&end.segment) {
                Compared::Less => part.end.map_or(u64::MAX, |end| end.0),
                Compared::Equal => end.offset.0,
                Compared::Greater => 0,
            };
            let behind = part.found.devices.iter().map(|&device| size_on(id, device).saturating_sub(from));
            bytes += behind.sum::<u64>();
        }
        for found in &lineage.aside {
            bytes += found.devices.iter().map(|&device| size_on(found.id, device)).sum::<u64>();
        }
        Ok(bytes)
    }

    /// New units go after what is in extent files, to files that are not freed and whose numbers are unused.
    fn renew_allocator(&self) {
        let state = self.view().state.clone();
        let released = state.notes.get(RELEASED).and_then(|note| Released::decode(note)).unwrap_or_default();
        let full = state.superseded_extents().chain(released.highest_extents());
        *locks::write(&self.allocator) =
            Arc::new(Allocator::new(state.extents.values().copied(), full, EXTENT_FILE_BYTES));
    }

    /// Creates missing copies of a segment in the tail of the log, which ends at `size_bytes` there: a crash may have
    /// lost the name of a copy, and an adopted batch must survive as many losses as any other. A copy that cannot be
    /// created now is found missing by a check.
    ///
    /// # Errors
    /// Any error of the catalog.
    pub(super) fn complete_tail(&self, segment: SegmentNumber, end: LogOffset) -> Result<()> {
        let wanted = usize::from(self.geometry().copies);
        loop {
            let Some(known) = self.view().state.segments.get(&segment).cloned() else { return Ok(()) };
            let row = SegmentRow { size_bytes: end.0, ..known.clone() };
            let Ok(Some(device)) = self.spare_for(&row, wanted) else { return Ok(()) };
            if self.copy_segment(&row, device, Damaged::Copied, &mut Pace::new(None, &Progress::default())).is_err() {
                return Ok(());
            }
            let mut devices = known.devices.clone();
            devices.push(device);
            devices.sort_unstable();
            let segments = vec![SegmentRow { devices, ..known }];
            self.take_in(Change { segments, ..Change::default() })?;
        }
    }

    /// Removes entries from a private index: they stay in the log.
    pub(crate) fn hide_entries(&self, keys: &[Vec<u8>]) -> Result<()> {
        let accounts = EngineAccounts::new(self);
        let mut effects = Effects::new(&accounts, Nameless::Stay);
        for key in keys {
            if let Some(entry) = accounts.snapshot.look_up(key)? {
                effects.forget_entry(key, entry)?;
            }
        }
        let change = effects.finish(None);
        drop(accounts);
        self.change_index(&change)
    }

    /// Whether the last batch of the log is that of a clean close.
    pub(crate) fn is_closed_at(&self, end: Position) -> bool {
        let id = self.segment_id(end.segment);
        let copies = self.open_copies(id, &self.copies(end.segment));
        let mut scan = SegmentScan::new(copies, self.seed(id), end.commit);
        matches!(scan.next(false), Some(ScanStep::Commit(committed, ..))
            if committed.commit.is_close && committed.end == end.offset && committed.commit.chain() == end.chain)
    }

    /// Continues the log where it ends: in its last segment after a clean close if every copy has the right length,
    /// else in a new one.
    fn resume(&self, lineage: &Lineage, replay: Replay<'_>) -> Result<()> {
        let end = replay.position;
        let rows = Arc::clone(&self.view().state.segments);
        let row = rows.get(&end.segment).cloned();
        let header = lineage.parts.last().and_then(|part| part.found.header);
        // The index may have a segment whose file a crash lost before its first batch: its number is used up all the
        // same.
        let in_index = rows.last_key_value().map_or(SegmentNumber(0), |(&number, _)| number);
        // A segment that could not be begun is released, maybe before a mark says that its number is used up.
        let in_releases = replay.released.highest_segment().unwrap_or_default();
        let known = SegmentNumber(self.known_segments_begun());
        let newest = lineage.newest.max(end.segment).max(known).max(in_index).max(in_releases);
        let is_clean = self.is_closed_at(end) && !replay.has_rest() && newest == end.segment;
        let mut released = replay.released;
        released.snapshots = self.view().state.snapshots.to_vec();
        released.pins = self.view().state.pins.keys().cloned().collect();
        let mut writer = self.writer()?;
        *writer = Writer {
            newest_segment: newest,
            position: end,
            durable_sequence: end.sequence,
            closed_sequence: is_clean.then_some(end.sequence),
            record_sequence: if is_clean { 0 } else { end.sequence },
            released,
            pending: std::mem::take(&mut writer.pending),
            has_pending: writer.has_pending,
            pending_bytes: writer.pending_bytes,
            ..Writer::default()
        };
        let Some(row) = row.filter(|_| is_clean) else { return Ok(()) };
        let open = |&device: &DeviceNumber| {
            self.devices.segment(device, row.id(), Mode::Write).ok().map(|file| (device, file))
        };
        let copies: Vec<_> = row.devices.iter().filter_map(open).collect();
        let wanted = header.map_or(row.devices.len(), |header: SegmentHeader| header.copies.into());
        let is_whole = copies.len() == row.devices.len()
            && copies.len() >= wanted.min(self.geometry().copies.into())
            && copies.iter().all(|(_, file)| file.size().is_ok_and(|size| size == end.offset.0));
        if is_whole && row.size_bytes < self.geometry().segment_bytes {
            let (id, class, alignment) =
                (row.id(), row.class, header.map_or(Alignment::None, |header| header.alignment));
            let begun_on = row.devices.clone();
            writer.active = Some(Active { id, class, on: class, alignment, copies, begun_on, end: end.offset });
        }
        Ok(())
    }
}
