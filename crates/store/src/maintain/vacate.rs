//! Freeing extent files: what is live in them is copied elsewhere, and the whole file is removed. No part of a file is
//! ever punched, truncated or overwritten.
//!
//! A component that moves is read and verified by the checksums of its descriptor (or reconstructed from parity),
//! written at the end of another file of the same device, and read again; then its object gets a record with the same
//! id and the new map, as compaction moves records. Content is not rewritten. What versions of an object share is
//! copied once (see `shared_units`).
//!
//! A file is released only when nothing can need it: the index agrees with its own accounts ([`Engine::agree`]), every
//! descriptor that may refer to the file was read, the account of the file is empty, and nobody has a claim to it.
//! Unknown bytes, left by a killed writer, are in **quarantine** in such a file and are removed with it, not before. A
//! file is unlinked after its release is durable, when no reader can need it.
//!
//! Survived: an end at any time (a signal, a crash, a full device). At worst units exist twice, and those that no
//! record refers to are dead.

use std::collections::{BTreeMap, BTreeSet};

use super::choice::{Choice, Compacted, ExtentId, PlannedExtent};
use super::salvage::Moving;
use super::shared_units::{MovedRuns, run_of, versions_of_large};
use crate::devices::extents::Touched;
use crate::devices::names;
use crate::engine::Engine;
use crate::engine::pace::{Pace, outcome};
use crate::engine::sides::OtherSides;
use crate::error::{Error, ErrorKind, Result};
use crate::format::descriptor::Descriptor;
use crate::format::entry::{Entry, Kind};
use crate::format::ids::{DeviceNumber, Epoch, LogOffset, SegmentId, SegmentNumber};
use crate::format::index_key::until_of;
use crate::format::names::{SEGMENTS, SegmentName};
use crate::index::catalog::{Change, ExtentRow, Superseded};
use crate::locks::lock;
use crate::log::scan::{ScanStep, SegmentScan};

/// Bytes moved between two syncs of units with their records.
const SYNC_BYTES: u64 = 64 << 20;
/// Objects whose records are written together.
const MOVED_TOGETHER: usize = 256;

/// Result of comparing the index with its accounts.
#[derive(Debug, Default)]
pub(crate) struct Agreement {
    /// Files whose references are all known.
    known: BTreeSet<ExtentId>,
}

/// Copies that are not yet durable.
#[derive(Default)]
struct PendingMoves {
    touched: Touched,
    moving: Vec<Moving>,
    bytes: u64,
    /// Where the units of versions in snapshots went.
    versions: MovedRuns,
}

impl Engine {
    /// Extent files on writable devices that are not yet freed.
    pub(crate) fn extent_files(&self) -> Vec<PlannedExtent> {
        let state = self.view().state.clone();
        let superseded: BTreeSet<ExtentId> = state.superseded_extents().collect();
        let mut found = Vec::new();
        for slot in self.devices.slots().iter().filter(|slot| slot.is_writable()) {
            let device = slot.entry.number;
            // An unreadable directory has nothing to free; check reports its fault.
            for (file, size_bytes) in self.extents.list(device).unwrap_or_default() {
                let row = state.extents.get(&(device, file)).copied();
                let row = row.unwrap_or(ExtentRow { device, file, end_bytes: 0, live_bytes: 0 });
                // The size is measured: a truncated file ends before its units do.
                let quarantined_bytes = size_bytes.saturating_sub(row.end_bytes);
                if !superseded.contains(&(device, file)) {
                    found.push(PlannedExtent {
                        device,
                        file,
                        size_bytes,
                        live_bytes: row.live_bytes,
                        quarantined_bytes,
                    });
                }
            }
        }
        found
    }

    /// Extent files with units of large objects that only a side knows which was not taken: they stay until that is
    /// accepted, as its segments do. (Its units on devices without its records are not recognised.)
    ///
    /// # Errors
    /// Segments cannot be listed.
    pub(crate) fn extents_of_other_sides(&self) -> Result<BTreeSet<ExtentId>> {
        let is_of_others = self.may_be_of_others();
        let mut others = BTreeSet::new();
        for slot in self.devices.slots().iter().filter(|slot| slot.is_readable()) {
            let listed = match names::list_names(&*slot.device, SEGMENTS) {
                Ok(listed) => listed,
                // It has failed, and is as one that is missing.
                Err(_) if !slot.is_writable() => continue,
                Err(error) => return Err(slot.error("list", SEGMENTS, error)),
            };
            let named = listed.into_iter().filter(|name| SegmentName::parse(name).is_some_and(&is_of_others));
            others.extend(named.map(|name| (slot.entry.number, name)));
        }
        let mut known = lock(&self.other_sides);
        if known.segments != others {
            match self.extents_of(&others) {
                Some(extents) => *known = OtherSides { extents, segments: others },
                // What was not read may name any of them.
                None => return Ok(self.extent_files().iter().map(PlannedExtent::place).collect()),
            }
        }
        Ok(known.extents.clone())
    }

    /// Extent files of large objects in some segments, by device and name; `None` if a segment on a device in service
    /// cannot be read: an error says nothing about the objects in it.
    fn extents_of(&self, segments: &BTreeSet<(DeviceNumber, String)>) -> Option<BTreeSet<ExtentId>> {
        let store = self.geometry().store;
        let mut found = BTreeSet::new();
        for (device, name) in segments {
            let Some(name) = SegmentName::parse(name) else { continue };
            let is_unread = |scan: &mut SegmentScan| scan.take_error().is_some() && self.devices.is_in_service(*device);
            let half = SegmentId::new(name.number, Epoch(name.epoch_low_half.into()));
            let mut scan = self.scan(half, &[*device], LogOffset::START);
            let Some(header) = scan.header(name).0.filter(|header| header.store == store) else {
                if is_unread(&mut scan) {
                    return None;
                }
                continue;
            };
            let mut scan = self.scan(header.id, &[*device], LogOffset::START);
            while let Some(step) = scan.next(false) {
                let ScanStep::Record(_, record, _) = step else { continue };
                if record.head.kind == Kind::Large
                    && let Ok(descriptor) = Descriptor::decode(record.content, &self.home)
                {
                    found.extend(descriptor.runs().map(|run| (run.device, run.file)));
                }
            }
            if is_unread(&mut scan) {
                return None;
            }
        }
        Some(found)
    }

    /// The extent files that are worth freeing: what frees most for the bytes copied comes first. `shared`: bytes that
    /// their accounts count more than once.
    pub(crate) fn choose_extents(&self, choice: Choice, shared: &BTreeMap<ExtentId, u64>) -> Vec<PlannedExtent> {
        let counted_once = |file: PlannedExtent| {
            let again_bytes = shared.get(&file.place()).copied().unwrap_or(0);
            PlannedExtent { live_bytes: file.live_bytes.saturating_sub(again_bytes), ..file }
        };
        let files = self.extent_files().into_iter().map(counted_once);
        let mut chosen: Vec<PlannedExtent> = files.filter(|file| file.is_chosen(choice)).collect();
        chosen.sort_by_key(|file| (file.live_bytes * 1000 / file.size_bytes.max(1), file.place()));
        chosen
    }

    /// Compares the index with its accounts; with `units`, also every descriptor with those of extent files. Accounts
    /// of extent files that are too high, as descriptors were damaged when their objects were removed, are corrected.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if they do not agree, or if the index was built from an incomplete log: what else is live
    /// is unknown then.
    pub(crate) fn reconcile(&self, operation: &'static str, units: bool) -> Result<Agreement> {
        let view = self.view().clone();
        if let Some(missing) = self.completeness_of(&view.state.notes).first() {
            let refused = self.refuse(operation, format!("part of the log is missing: {missing}"));
            return Err(refused.advise("bring back what may have it, or give it up with granulo store repair --accept"));
        }
        let mut segments: BTreeMap<SegmentNumber, (u64, u64)> = BTreeMap::new();
        let mut extents: BTreeMap<ExtentId, u64> = BTreeMap::new();
        let mut unread = 0u64;
        let snapshot = view.snapshot();
        let mut scan = snapshot.scan_versions_from(&[])?;
        while let Some((_, entry)) = scan.next_entry()? {
            let sum = segments.entry(entry.location.segment).or_default();
            *sum = (sum.0 + 1, sum.1 + entry.location.record_bytes);
            if !units || entry.kind != Kind::Large {
                continue;
            }
            match self.descriptor(entry) {
                Ok(descriptor) => descriptor
                    .runs()
                    .for_each(|run| *extents.entry((run.device, run.file)).or_default() += run.length_bytes),
                Err(_) => unread += 1,
            }
        }
        let rows = &view.state.segments;
        let end = view.state.position.segment;
        if end > SegmentNumber(0) && !rows.contains_key(&end) {
            return Err(self.refuse(operation, format!("the log ends in segment {end}, which is not in the index")));
        }
        let of_row = |number: &SegmentNumber| rows.get(number).map_or((0, 0), |row| (row.live_records, row.live_bytes));
        let numbers: BTreeSet<SegmentNumber> = rows.keys().chain(segments.keys()).copied().collect();
        if let Some(number) =
            numbers.iter().find(|number| segments.get(number).copied().unwrap_or_default() != of_row(number))
        {
            return Err(self.refuse(operation, format!("the index and its account of segment {number} differ")));
        }
        if !units {
            return Ok(Agreement::default());
        }
        let rows = &view.state.extents;
        let account = |place: &ExtentId| rows.get(place).map_or(0, |row| row.live_bytes);
        if let Some(((device, file), _)) = extents.iter().find(|(place, counted)| **counted > account(place)) {
            let cause =
                format!("large objects have more in extent file {file:08x} of device {device} than is accounted for");
            return Err(self.refuse(operation, cause));
        }
        let counted = |place: &ExtentId| extents.get(place).copied().unwrap_or(0);
        let too_high: BTreeMap<ExtentId, u64> = rows
            .keys()
            .map(|place| (*place, account(place) - counted(place)))
            .filter(|&(_, bytes)| bytes > 0)
            .collect();
        if unread == 0 && !too_high.is_empty() {
            self.lower_accounts(operation, &too_high)?;
        }
        // Unreadable descriptors may refer to units in files whose account exceeds the sum of the others.
        let is_known = |file: &ExtentId| unread == 0 || !too_high.contains_key(file);
        Ok(Agreement { known: self.extent_files().iter().map(PlannedExtent::place).filter(is_known).collect() })
    }

    /// Subtracts from accounts of extent files what no descriptor refers to, though all were read.
    fn lower_accounts(&self, operation: &'static str, too_high: &BTreeMap<ExtentId, u64>) -> Result<()> {
        let mut short = None;
        self.adjust(|state| {
            let lower = |(place, bytes): (&ExtentId, &u64)| {
                let row = state.extents.get(place)?;
                match row.live_bytes.checked_sub(*bytes) {
                    Some(live_bytes) => Some(ExtentRow { live_bytes, ..*row }),
                    None => {
                        short = Some(*place);
                        None
                    }
                }
            };
            Change { extents: too_high.iter().filter_map(lower).collect(), durable: true, ..Change::default() }
        })?;
        match short {
            None => Ok(()),
            Some((device, file)) => Err(self.refuse(
                operation,
                format!("the account of extent file {file:08x} of device {device} changed meanwhile"),
            )),
        }
    }

    fn refuse(&self, operation: &'static str, cause: String) -> Error {
        Error::new(ErrorKind::Corrupt, operation, format!("nothing is freed: {cause}"))
            .at(&self.home)
            .advise("run granulo store check --deep, and check --rebuild-index with all devices in service")
    }

    /// Empties the chosen extent files, as many at a time as there is room for, and frees them.
    ///
    /// # Errors
    /// [`ErrorKind::NoSpace`] if there is no room to copy the live units of any of them; errors of reading the index
    /// and of writing.
    pub(crate) fn vacate(
        &self,
        chosen: &[PlannedExtent],
        agreement: &Agreement,
        pace: &mut Pace<'_>,
        done: &mut Compacted,
    ) -> Result<()> {
        let allocator = self.allocator();
        // A file with references that are not all known is not emptied, but gets no new units.
        chosen.iter().for_each(|file| allocator.retire(file.device, file.file));
        let mut pending: Vec<PlannedExtent> =
            chosen.iter().filter(|file| agreement.known.contains(&file.place())).copied().collect();
        while !pending.is_empty() && !done.is_interrupted {
            let devices: BTreeSet<DeviceNumber> = pending.iter().map(|file| file.device).collect();
            let mut rooms: BTreeMap<DeviceNumber, u64> = BTreeMap::new();
            for device in devices {
                rooms.insert(device, self.extents.moving_room_bytes(device)?);
            }
            let (batch, later): (Vec<PlannedExtent>, Vec<PlannedExtent>) = pending.iter().partition(|file| {
                let room = rooms.entry(file.device).or_default();
                let remaining = room.checked_sub(file.live_bytes);
                *room = remaining.unwrap_or(*room);
                remaining.is_some()
            });
            if batch.is_empty() {
                return Err(self.no_room(pending.iter().map(|file| file.live_bytes).min().unwrap_or(0)));
            }
            pending = later;
            let places: BTreeSet<ExtentId> =
                batch.iter().filter(|file| file.live_bytes > 0).map(PlannedExtent::place).collect();
            if !places.is_empty() {
                done.is_interrupted |= !self.move_units(&places, pace, done)?;
            }
            self.release_extents(&batch, done)?;
            self.sync_all()?;
            self.reclaim()?;
        }
        Ok(())
    }

    /// Copies every component in these files to another file of its device; returns whether all of it was done. An
    /// interruption keeps what is done.
    fn move_units(&self, places: &BTreeSet<ExtentId>, pace: &mut Pace<'_>, done: &mut Compacted) -> Result<bool> {
        let mut unsettled = PendingMoves::default();
        let is_whole = outcome(self.move_each(places, &mut unsettled, pace, done))?;
        self.settle_units(&mut unsettled)?;
        Ok(is_whole)
    }

    fn move_each(
        &self,
        places: &BTreeSet<ExtentId>,
        unsettled: &mut PendingMoves,
        pace: &mut Pace<'_>,
        done: &mut Compacted,
    ) -> Result<()> {
        let snapshot = self.snapshot();
        // Before what shares units with them.
        for key in versions_of_large(&snapshot)? {
            if let Some(entry) = snapshot.look_up(&key)? {
                self.move_entry(&key, &entry, places, unsettled, pace, done)?;
            }
        }
        let mut scan = snapshot.scan_from(&[])?;
        while let Some((key, entry)) = scan.next_entry()? {
            if entry.kind == Kind::Large {
                self.move_entry(key, entry, places, unsettled, pace, done)?;
            }
        }
        Ok(())
    }

    /// Copies the components of one object that are in these files.
    fn move_entry(
        &self,
        key: &[u8],
        entry: &Entry,
        places: &BTreeSet<ExtentId>,
        unsettled: &mut PendingMoves,
        pace: &mut Pace<'_>,
        done: &mut Compacted,
    ) -> Result<()> {
        let mut buffer = Vec::new();
        // An unreadable one keeps its files: their accounts stay above zero.
        let Ok(record) = self.read_entry(entry, &mut buffer) else { return Ok(()) };
        let Ok(before) = self.decode_descriptor(entry.location, record.content) else { return Ok(()) };
        let components = components_in(&before, places);
        if components.is_empty() {
            return Ok(());
        }
        match self.move_object(key, &before, &components, unsettled, pace) {
            Ok((moved, bytes)) => {
                unsettled.moving.push(Moving::new(key, *entry, &record, Some(moved), self.geometry().alignment)?);
                unsettled.bytes += bytes;
                done.moved_unit_bytes += bytes;
                done.gained_bytes -= bytes as i64;
            }
            Err(error) if matches!(error.kind(), ErrorKind::Lost | ErrorKind::Corrupt) => {
                let of = |&(chunk, component): &(usize, usize)| {
                    let component = before.chunks[chunk].components[component];
                    (component.device, component.file)
                };
                done.damaged_extents.extend(components.iter().map(of));
                return Ok(());
            }
            Err(error) => return Err(error),
        }
        match unsettled.bytes >= SYNC_BYTES || unsettled.moving.len() >= MOVED_TOGETHER {
            true => self.settle_units(unsettled),
            false => Ok(()),
        }
    }

    /// Copies components of one object, verified before and after; returns its new map, and the bytes copied: none for
    /// units that it shares with a version that was moved before.
    fn move_object(
        &self,
        key: &[u8],
        before: &Descriptor,
        components: &[(usize, usize)],
        unsettled: &mut PendingMoves,
        pace: &mut Pace<'_>,
    ) -> Result<(Descriptor, u64)> {
        let (allocator, mut moved, mut copied_bytes) = (self.allocator(), before.clone(), 0);
        for &(number, component) in components {
            let was = run_of(&before.chunks[number], component);
            if let Some((target, claim)) = unsettled.versions.find(was) {
                unsettled.touched.claim(target.device, target.file, &claim);
                moved.chunks[number].components[component] = target;
                continue;
            }
            let place = allocator.reserve_on(&self.extents, was.device, was.length_bytes)?;
            let target = place.component;
            unsettled.touched.claim(target.device, target.file, &place.claim);
            let copy =
                self.extents.rebuild_component(before, number, component, target, &mut |bytes| pace.spend(bytes));
            unsettled.touched.merge(copy?);
            moved.chunks[number].components[component] = target;
            let (mut buffer, mut wrong) = (Vec::new(), Vec::new());
            let chunk = &moved.chunks[number];
            self.extents.verify_component(number, chunk, component, &mut buffer, &mut wrong, &mut |_| Ok(()))?;
            if !wrong.is_empty() {
                let cause = "what was written fails verification when read back";
                let place = self.extents.place(target.device, target.file);
                return Err(Error::new(ErrorKind::Io, "copy units to", cause).at(&place));
            }
            copied_bytes += was.length_bytes;
            if until_of(key) > 0 {
                unsettled.versions.add(was, target, place.claim);
            }
        }
        Ok((moved, copied_bytes))
    }

    /// Makes the copies durable and writes the records.
    fn settle_units(&self, unsettled: &mut PendingMoves) -> Result<()> {
        // The files stay claimed until the records are written.
        let (touched, moving) = (std::mem::take(&mut unsettled.touched), std::mem::take(&mut unsettled.moving));
        unsettled.bytes = 0;
        let failed = self.extents.try_sync(&touched);
        if let Some((device, error)) = failed.first() {
            let cause = format!("device {device} failed meanwhile: {error}");
            self.bear(failed).inspect_err(|error| self.latch(error))?;
            // Without their records, the copies are dead.
            return Err(Error::new(ErrorKind::Io, "move units", cause).at(&self.home));
        }
        if !moving.is_empty() {
            // If an object was replaced or removed meanwhile, its copies are dead.
            self.append_moved(moving)?;
        }
        self.sync_all()
    }

    /// Releases the files that are empty.
    fn release_extents(&self, files: &[PlannedExtent], done: &mut Compacted) -> Result<()> {
        let mut writer = self.writer()?;
        let (state, allocator) = (self.view().state.clone(), self.allocator());
        let is_empty = |file: &&PlannedExtent| {
            let is_in_use = state.extents.get(&file.place()).is_some_and(|row| row.live_bytes > 0);
            !is_in_use && !allocator.is_claimed(file.device, file.file)
        };
        let empty: Vec<&PlannedExtent> = files.iter().filter(is_empty).collect();
        if empty.is_empty() {
            return Ok(());
        }
        let mut superseded = Vec::new();
        for file in empty {
            superseded.push((state.epoch, Superseded::Extent { device: file.device, file: file.file }));
            done.extent_files += 1;
            done.gained_bytes += file.size_bytes as i64;
        }
        let mut change = Change { superseded, ..Change::default() };
        // The mark makes the next check for unsynced changes find one.
        change.merge(self.append_without_entries(&mut writer, self.batch_of(&mut []))?);
        self.apply_pending(&mut writer, change)?;
        Ok(())
    }
}

/// Chunks and components of an object with bytes in one of these files.
fn components_in(descriptor: &Descriptor, places: &BTreeSet<ExtentId>) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    for (number, chunk) in descriptor.chunks.iter().enumerate() {
        for (position, component) in chunk.components.iter().enumerate() {
            if places.contains(&(component.device, component.file)) && chunk.stripes.component_bytes(position) > 0 {
                found.push((number, position));
            }
        }
    }
    found
}
