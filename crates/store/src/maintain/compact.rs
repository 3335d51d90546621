//! Compaction: frees the space of dead records, and restores the order of groups.
//!
//! Segments are chosen by what they would free ([`choose`]), or because their content must be realigned. Their live
//! records are moved (see `moving`), as many segments at a time as there is room for; extent files follow the same rule
//! (see `vacate`). Nothing is freed if the index does not agree with its accounts. Readers continue meanwhile: a file
//! is removed when no reader can need it any more. Compaction may be interrupted at any time, by a signal or by a
//! crash: what was moved stays moved, and the rest is unchanged.

use std::collections::{BTreeMap, BTreeSet};

use super::choice::{Choice, Chosen, CompactPlan, Compacted, PlannedSegment, choose, round};
use super::moving::MoveTarget;
use crate::Store;
use crate::devices::device::Room;
use crate::devices::placement::moving_bytes;
use crate::devices::slot::Slot;
use crate::engine::Engine;
use crate::engine::pace::Pace;
use crate::error::{Error, ErrorKind, Result};
use crate::format::geometry::{Class, Geometry};
use crate::format::ids::{DeviceNumber, LogOffset, SegmentNumber};
use crate::format::segment::{SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::index::catalog::{SegmentRow, Superseded};
use crate::layout::granulo::Alignment;
use crate::locks::lock;
use crate::progress::Progress;

/// The operation of an error.
const COMPACT: &str = "compact the store";

/// Options of [`Store::compact`].
#[derive(Debug, Clone, Copy)]
pub struct CompactOptions {
    /// Which segments.
    pub choice: Choice,
    /// Whether no batch is open in this process meanwhile. Only then can shared files without names be distinguished
    /// from those about to be named, and freed.
    pub is_alone: bool,
    /// Where the content of files begins from now on. Segments in which it begins elsewhere are rewritten too.
    pub alignment: Option<Alignment>,
    /// Most bytes of records per second.
    pub bytes_per_second: Option<u64>,
    /// Whether units that versions of a file share count once, for which the map of each version in a snapshot is read.
    /// Otherwise they count once for each, and an extent file seems to have fewer dead bytes than it has.
    pub counts_shared_once: bool,
}

impl Default for CompactOptions {
    fn default() -> CompactOptions {
        CompactOptions {
            choice: Choice::Dead(30),
            is_alone: false,
            alignment: None,
            bytes_per_second: None,
            counts_shared_once: false,
        }
    }
}

impl Engine {
    /// Whether a segment was freed and waits for readers.
    pub(crate) fn is_superseded(&self, number: SegmentNumber) -> bool {
        self.view().state.superseded_segments().any(|superseded| superseded == number)
    }

    /// Bytes that were freed and wait for readers, on all devices.
    pub(crate) fn waiting_bytes(&self) -> u64 {
        let view = self.view();
        let bytes = |(_, superseded): &(u64, Superseded)| match superseded {
            Superseded::Segment(number) => {
                view.state.segments.get(number).map_or(0, |row| row.size_bytes * row.devices.len() as u64)
            }
            Superseded::Extent { device, file } => {
                self.extents.list(*device).ok().and_then(|listed| listed.get(file).copied()).unwrap_or(0)
            }
            Superseded::Table(_) => 0,
        };
        view.state.superseded.iter().map(bytes).sum()
    }

    /// See [`Store::free_waiting`].
    pub(crate) fn free_waiting(&self) -> Result<u64> {
        let before_bytes = self.waiting_bytes();
        if before_bytes == 0 {
            return Ok(0);
        }
        self.sync_all()?;
        self.reclaim()?;
        Ok(before_bytes.saturating_sub(self.waiting_bytes()))
    }

    /// For each segment, the number of live records that do not directly follow the one with the preceding key.
    fn breaks(&self) -> Result<BTreeMap<SegmentNumber, u64>> {
        let mut breaks: BTreeMap<SegmentNumber, u64> = BTreeMap::new();
        let snapshot = self.snapshot();
        let mut scan = snapshot.scan_from(&[])?;
        let mut end = (SegmentNumber(0), LogOffset::START);
        while let Some((_, entry)) = scan.next_entry()? {
            let location = entry.location;
            if location.segment != end.0 || location.offset < end.1 {
                *breaks.entry(location.segment).or_default() += 1;
            }
            end = (location.segment, location.range().end);
        }
        Ok(breaks)
    }

    /// The segments in which the content of files does not begin where it should, or for which that is unknown.
    fn misaligned(&self, rows: &[&SegmentRow], alignment: Alignment) -> BTreeSet<SegmentNumber> {
        let mut bytes = Vec::new();
        let mut is_aligned = |row: &SegmentRow| {
            row.devices.iter().any(|&device| {
                bytes.clear();
                let read =
                    self.read_copy(device, row.id(), LogOffset::START, SEGMENT_HEADER_BYTES as usize, &mut bytes);
                let header = read.ok().and_then(|_| SegmentHeader::decode(&bytes));
                header.is_some_and(|header| header.id == row.id() && header.alignment == alignment)
            })
        };
        rows.iter().filter(|row| !is_aligned(row)).map(|row| row.number).collect()
    }

    /// Sets where the content of files begins in new segments: durable on all devices before it takes effect.
    fn align(&self, alignment: Alignment) -> Result<()> {
        let geometry = self.geometry();
        if geometry.alignment == alignment {
            return Ok(());
        }
        let geometry = Geometry { alignment, ..(*geometry).clone() };
        self.write_geometry(&geometry)
    }

    pub(crate) fn plan_compaction(&self, options: &CompactOptions) -> Result<CompactPlan> {
        let breaks = match options.choice {
            Choice::DeadOrDisordered(_) => self.breaks()?,
            Choice::Dead(_) | Choice::All => BTreeMap::new(),
        };
        let rows = std::sync::Arc::clone(&self.view().state.segments);
        let rows: Vec<&SegmentRow> = rows.values().filter(|row| !self.is_superseded(row.number)).collect();
        let misaligned = options.alignment.map_or_else(BTreeSet::new, |alignment| self.misaligned(&rows, alignment));
        let chosen = choose(&rows, options.choice, &breaks, &misaligned).map_err(|error| error.at(&self.home))?;
        let keeps_copies: BTreeSet<SegmentNumber> =
            rows.iter().filter(|row| self.keeps_copies(row, row.class)).map(|row| row.number).collect();
        let (segments, postponed): (Vec<PlannedSegment>, Vec<PlannedSegment>) =
            chosen.into_iter().partition(|segment| keeps_copies.contains(&segment.number));
        let shared = if options.counts_shared_once { self.shared_bytes()? } else { BTreeMap::new() };
        let mut extents = self.choose_extents(options.choice, &shared);
        if !extents.is_empty() {
            let spared = self.extents_of_other_sides()?;
            extents.retain(|file| !spared.contains(&file.place()));
        }
        Ok(CompactPlan {
            segments,
            extents,
            waiting_bytes: self.waiting_bytes(),
            postponed: postponed.iter().map(|segment| segment.number).collect(),
        })
    }

    /// Room on each of some devices, for one copy.
    fn room_on(slots: &[Slot], room_bytes: fn(Room) -> u64) -> Result<u64> {
        let rooms: Vec<u64> = slots.iter().map(|slot| slot.room().map(room_bytes)).collect::<Result<_>>()?;
        Ok(rooms.into_iter().min().unwrap_or(0))
    }

    /// The next segments of a class to be rewritten, the rest, and where the records go: to the roomiest devices as
    /// long as those keep their reserve. Then segments go back to their own devices, which are no fuller afterwards: on
    /// others, they would use up the space that is needed there to free anything.
    fn next_round(&self, class: Class, left: &[PlannedSegment]) -> Result<(MoveTarget, Chosen)> {
        let (geometry, view) = (self.geometry(), self.view().clone());
        let alignment = geometry.alignment;
        let next = self.next_slots(&geometry, class);
        let chosen = round(left, alignment, Engine::room_on(&next, Room::put_bytes)?);
        if !chosen.0.is_empty() {
            return Ok((MoveTarget::SameClass(class), chosen));
        }
        let devices_of = |segment: &PlannedSegment| {
            view.state.segments.get(&segment.number).map(|row| row.devices.clone()).unwrap_or_default()
        };
        let sets: BTreeSet<Vec<DeviceNumber>> = left.iter().map(devices_of).collect();
        for devices in sets {
            let (there, elsewhere): (Vec<PlannedSegment>, Vec<PlannedSegment>) =
                left.iter().partition(|segment| devices_of(segment) == devices);
            let slots = self.next_slots_near(&geometry, class, &devices);
            let (chosen, mut later) = round(&there, alignment, Engine::room_on(&slots, moving_bytes)?);
            if !chosen.is_empty() {
                later.extend(elsewhere);
                return Ok((MoveTarget::SameDevices(class, devices), (chosen, later)));
            }
        }
        Ok((MoveTarget::SameClass(class), round(left, alignment, Engine::room_on(&next, moving_bytes)?)))
    }

    pub(crate) fn compact(&self, options: &CompactOptions, progress: &Progress) -> Result<Compacted> {
        self.sync_all()?;
        // There may be no room to move anything without it.
        self.free_waiting()?;
        self.catch_up()?;
        if options.is_alone {
            let _sync = lock(&self.sync);
            let mut writer = self.writer()?;
            self.settle(&mut writer)?;
            self.drop_nameless()?;
        }
        options.alignment.map_or(Ok(()), |alignment| self.align(alignment))?;
        let plan = self.plan_compaction(options)?;
        let mut pace = Pace::new(options.bytes_per_second, progress);
        let mut done = Compacted { postponed: plan.postponed.clone(), ..Compacted::default() };
        if !plan.segments.is_empty() || !plan.extents.is_empty() {
            let agreement = self.reconcile(COMPACT, !plan.extents.is_empty())?;
            pace.stage("moving records", plan.live_bytes());
            self.compact_rounds(&plan, &mut pace, &mut done)?;
            if !done.is_interrupted {
                pace.stage("moving stripe units", plan.live_unit_bytes());
                self.vacate(&plan.extents, &agreement, &mut pace, &mut done)?;
            }
        }
        self.merge_index()?;
        self.reclaim()?;
        self.remove_leftovers()?;
        self.collect_garbage(COMPACT)?;
        done.waiting_bytes = self.waiting_bytes();
        Ok(done)
    }

    /// Frees what is in no file of the store.
    pub(crate) fn collect_garbage(&self, operation: &'static str) -> Result<()> {
        self.platform.collect().map_err(|error| Error::io(operation, &self.home, error))
    }

    fn compact_rounds(&self, plan: &CompactPlan, pace: &mut Pace<'_>, done: &mut Compacted) -> Result<()> {
        for class in [Class::Fast, Class::Slow] {
            let mut left: Vec<PlannedSegment> =
                plan.segments.iter().filter(|segment| segment.class == class).copied().collect();
            while !left.is_empty() && !done.is_interrupted {
                let (target, (chosen, later)) = self.next_round(class, &left)?;
                if chosen.is_empty() {
                    return Err(self.no_room(left.iter().map(|segment| segment.live_bytes).min().unwrap_or(0)));
                }
                left = later;
                let chosen: BTreeSet<SegmentNumber> = chosen.iter().map(|segment| segment.number).collect();
                let moved = self.move_segments(&chosen, target, pace)?;
                self.reclaim()?;
                done.moved_records += moved.records;
                done.moved_bytes += moved.bytes;
                done.kept_removals += moved.removals;
                done.segments += moved.freed_segments.len() as u64;
                done.gained_bytes += moved.freed_bytes as i64 - moved.written_bytes as i64;
                done.damaged_segments.extend(moved.damaged_segments);
                done.postponed.extend(moved.postponed);
                done.is_interrupted |= moved.is_interrupted;
            }
        }
        Ok(())
    }

    pub(crate) fn no_room(&self, needed_bytes: u64) -> Error {
        let cause = format!(
            "moving live data temporarily needs {}, and less is free",
            crate::units::format_size(needed_bytes.into())
        );
        let advice = match self.waiting_bytes() {
            0 => "free some space on the device first".to_owned(),
            bytes => format!("{} will be freed when readers close the store", crate::units::format_size(bytes.into())),
        };
        Error::new(ErrorKind::NoSpace, COMPACT, cause).at(&self.home).advise(advice)
    }

    /// Merges the whole index into one sorted table.
    pub(crate) fn merge_index(&self) -> Result<()> {
        self.sync_all()?;
        let _sync = lock(&self.sync);
        // The lock excludes batches from here to the end.
        let mut writer = self.writer()?;
        self.settle(&mut writer)?;
        self.merge_all()
    }
}

impl Store {
    /// What [`compact`](Self::compact) would do.
    ///
    /// # Errors
    /// Errors of reading the index; [`ErrorKind::Corrupt`] if its accounts cannot be true.
    pub fn plan_compaction(&self, options: &CompactOptions) -> Result<CompactPlan> {
        self.engine().plan_compaction(options)
    }

    /// Frees what was compacted while readers needed it, as far as these have ended; returns how many bytes, on all
    /// devices. Nothing is moved: [`compact`](Self::compact) does the same first, and closing the store does.
    ///
    /// # Errors
    /// Errors of writing.
    pub fn free_waiting(&self) -> Result<u64> {
        self.engine().free_waiting()
    }

    /// Frees the space of dead records; `progress` receives the bytes of each stage and may interrupt. Reading and
    /// writing continue meanwhile.
    ///
    /// # Errors
    /// [`ErrorKind::NoSpace`] if there is no room for what must be moved first; errors of writing. The store is
    /// consistent in any case.
    pub fn compact(&self, options: &CompactOptions, progress: &Progress) -> Result<Compacted> {
        self.engine().compact(options, progress)
    }
}
