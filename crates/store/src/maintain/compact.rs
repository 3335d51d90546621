//! Compaction: frees the space of dead records, and restores the order of groups.
//!
//! Segments are chosen by what they would free ([`choose`]), or because their content must be realigned. Their live
//! records are moved (see `moving`), as many segments at a time as there is room for; extent files follow the same rule
//! (see `vacate`). Nothing is freed if the index does not agree with its accounts. Readers continue meanwhile: a file
//! is removed when no reader can need it any more. Compaction may be interrupted at any time, by a signal or by a
//! crash: what was moved stays moved, and the rest is unchanged.

use std::collections::{BTreeMap, BTreeSet};

use super::moving::MoveTarget;
use super::vacate::PlannedExtent;
use crate::Store;
use crate::devices::device::Room;
use crate::devices::placement::{moving_bytes, put_bytes};
use crate::devices::slot::Slot;
use crate::engine::Engine;
use crate::engine::pace::Pace;
use crate::error::{Error, ErrorKind, Result};
use crate::format::geometry::{Class, Geometry};
use crate::format::ids::{DeviceNumber, LogOffset, SegmentNumber};
use crate::format::segment::{SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::index::catalog::{SegmentRow, Superseded};
use crate::layout::granulo::{ALIGNED_HEAD_BYTES, Alignment};
use crate::locks::lock;
use crate::progress::Progress;

/// The order of records is not examined in a segment with fewer live records.
const LEAST_ORDERED_RECORDS: u64 = 64;
/// A segment is in order if less than one record in this many is not followed by the next key.
const ORDERED_RECORDS: u64 = 8;

/// Bytes that a moved record needs in addition: the sequence number of what superseded it, a place in the list of its
/// commit, and padding.
const BESIDE_MOVED_BYTES: u64 = 16;

/// The operation of an error.
const COMPACT: &str = "compact the store";

/// Which segments are rewritten, and which extent files are emptied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// Those with at least this percentage of dead bytes.
    Dead(u8),
    /// These, and those whose records are not in order of keys.
    DeadOrDisordered(u8),
    /// All segments, after which everything is in order, and all extent files with any dead bytes.
    All,
}

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
}

impl Default for CompactOptions {
    fn default() -> CompactOptions {
        CompactOptions { choice: Choice::Dead(30), is_alone: false, alignment: None, bytes_per_second: None }
    }
}

/// A segment that would be rewritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlannedSegment {
    /// Its number.
    pub number: SegmentNumber,
    /// Class of the devices it is on.
    pub class: Class,
    /// Copies of it.
    pub copies: u64,
    /// Its size, in bytes.
    pub size_bytes: u64,
    /// Bytes of live records, which are moved.
    pub live_bytes: u64,
    /// Their number.
    pub live_records: u64,
    /// Whether the content of its files is realigned.
    pub is_realigned: bool,
}

/// What would be done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CompactPlan {
    /// Segments to be rewritten.
    pub segments: Vec<PlannedSegment>,
    /// Extent files to be freed.
    pub extents: Vec<PlannedExtent>,
    /// Bytes that were freed before and wait for readers, on all devices.
    pub waiting_bytes: u64,
    /// Segments that would be rewritten if no device were missing: new ones would have fewer copies.
    pub postponed: Vec<SegmentNumber>,
}

/// What was done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Compacted {
    /// Records that were moved.
    pub moved_records: u64,
    /// Their bytes, of one copy.
    pub moved_bytes: u64,
    /// Removals that had to be kept, as segments that stay have older records of their keys.
    pub kept_removals: u64,
    /// Bytes of units of large objects that were copied, on all devices.
    pub moved_unit_bytes: u64,
    /// Segments that were freed.
    pub segments: u64,
    /// Extent files that were freed.
    pub extent_files: u64,
    /// Bytes freed minus bytes written, on all devices. Negative if moving needed more.
    pub gained_bytes: i64,
    /// Bytes that are freed when readers have ended, on all devices.
    pub waiting_bytes: u64,
    /// Segments that stay, as something in them can be read from no copy.
    pub damaged_segments: Vec<SegmentNumber>,
    /// Segments that stay until missing devices return or are rebuilt: new ones would have fewer copies.
    pub postponed: Vec<SegmentNumber>,
    /// Extent files that stay, by device and number, as parity cannot reconstruct damaged units in them.
    pub damaged_extents: BTreeSet<(DeviceNumber, u32)>,
    /// Whether it was interrupted.
    pub is_interrupted: bool,
}

impl CompactPlan {
    /// Bytes to be moved: the space needed meanwhile, for one copy.
    pub fn live_bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.live_bytes).sum()
    }

    /// Records to be moved.
    pub fn live_records(&self) -> u64 {
        self.segments.iter().map(|segment| segment.live_records).sum()
    }

    /// Bytes of live units that are copied, on all devices.
    pub fn live_unit_bytes(&self) -> u64 {
        self.extents.iter().map(|file| file.live_bytes).sum()
    }

    /// Bytes that no descriptor ever referred to and that are freed with extent files, on all devices.
    pub fn quarantined_bytes(&self) -> u64 {
        self.extents.iter().map(|file| file.quarantined_bytes).sum()
    }

    /// Bytes that segments and extent files free on all devices, approximately: removals may have to stay.
    pub fn gained_bytes(&self) -> u64 {
        let segments = self.segments.iter().map(PlannedSegment::gained_bytes);
        segments.chain(self.extents.iter().map(PlannedExtent::dead_bytes)).sum()
    }
}

impl PlannedSegment {
    pub(crate) fn of(row: &SegmentRow) -> PlannedSegment {
        PlannedSegment {
            number: row.number,
            class: row.class,
            copies: row.devices.len() as u64,
            size_bytes: row.size_bytes,
            live_bytes: row.live_bytes,
            live_records: row.live_records,
            is_realigned: false,
        }
    }

    /// Bytes besides live records, on all devices. Its account was checked when it was chosen.
    fn gained_bytes(&self) -> u64 {
        let PlannedSegment { number, size_bytes, live_bytes, .. } = *self;
        assert!(live_bytes <= size_bytes, "segment {number} has {size_bytes} bytes, and {live_bytes} of them in use");
        self.copies * (size_bytes - live_bytes)
    }

    /// Bytes that its records need after moving, if none was moved before.
    fn moving_bytes(&self, alignment: Alignment) -> u64 {
        let padding_bytes = alignment.bytes().filter(|_| self.is_realigned).map_or(0, |unit| ALIGNED_HEAD_BYTES + unit);
        self.live_bytes + self.live_records * (BESIDE_MOVED_BYTES + padding_bytes)
    }
}

/// Dead bytes in a segment: dead records, removals, commits.
///
/// # Errors
/// [`ErrorKind::Corrupt`] if more are in use than it has: its records do not overlap, so the account is wrong.
pub(crate) fn dead_bytes(row: &SegmentRow) -> Result<u64> {
    let SegmentRow { number, size_bytes, live_bytes, .. } = *row;
    let dead = size_bytes.checked_sub(SEGMENT_HEADER_BYTES).and_then(|records| records.checked_sub(live_bytes));
    dead.ok_or_else(|| {
        let cause = format!("segment {number} has {size_bytes} bytes, and {live_bytes} of them in live records");
        Error::new(ErrorKind::Corrupt, "read the accounts of the index", cause)
            .advise("run granulo store check --rebuild-index")
    })
}

/// The segments that are worth rewriting. `breaks`: for each segment, the number of its records that do not directly
/// follow the one with the preceding key; `misaligned`: those in which the content of files does not begin where it
/// should.
///
/// # Errors
/// As [`dead_bytes`].
pub(crate) fn choose(
    rows: &[&SegmentRow],
    choice: Choice,
    breaks: &BTreeMap<SegmentNumber, u64>,
    misaligned: &BTreeSet<SegmentNumber>,
) -> Result<Vec<PlannedSegment>> {
    let is_dead = |row: &SegmentRow, dead: u64, percent: u8| {
        dead > 0
            && (row.live_records == 0 || u128::from(dead) * 100 >= u128::from(row.size_bytes) * u128::from(percent))
    };
    let is_disordered = |row: &SegmentRow| {
        let breaks = breaks.get(&row.number).copied().unwrap_or(0);
        row.live_records >= LEAST_ORDERED_RECORDS && breaks * ORDERED_RECORDS > row.live_records
    };
    // The log needs an end: a segment with nothing but marks is not worth replacing.
    let newest = rows.iter().map(|row| row.number).max();
    let is_end = |row: &SegmentRow| Some(row.number) == newest && row.live_records == 0 && row.dead_records == 0;
    let is_chosen = |row: &SegmentRow, dead: u64| match choice {
        _ if is_end(row) => false,
        // A segment that the log skipped is freed before the one whose header says so.
        _ if row.is_without_batches() => true,
        _ if misaligned.contains(&row.number) => true,
        Choice::All => row.size_bytes > SEGMENT_HEADER_BYTES,
        Choice::Dead(percent) => is_dead(row, dead, percent),
        Choice::DeadOrDisordered(percent) => is_dead(row, dead, percent) || is_disordered(row),
    };
    let mut chosen = Vec::new();
    for row in rows {
        if is_chosen(row, dead_bytes(row)?) {
            chosen.push(PlannedSegment { is_realigned: misaligned.contains(&row.number), ..PlannedSegment::of(row) });
        }
    }
    // What frees most for the bytes written comes first, in case there is little room.
    chosen.sort_by(|a, b| {
        (u128::from(a.live_bytes) * u128::from(b.size_bytes))
            .cmp(&(u128::from(b.live_bytes) * u128::from(a.size_bytes)))
    });
    Ok(chosen)
}

/// Segments of a round, and the rest.
type Chosen = (Vec<PlannedSegment>, Vec<PlannedSegment>);

/// The first of `segments` that fit in the room together, in a store of this alignment; and the rest.
pub(crate) fn round(segments: &[PlannedSegment], alignment: Alignment, room_bytes: u64) -> Chosen {
    let mut left_bytes = room_bytes;
    segments.iter().partition(|segment| {
        let left = left_bytes.checked_sub(segment.moving_bytes(alignment));
        left_bytes = left.unwrap_or(left_bytes);
        left.is_some()
    })
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

    /// For each segment, the number of live records that do not directly follow the one with the preceding key.
    fn breaks(&self) -> Result<BTreeMap<SegmentNumber, u64>> {
        let mut breaks: BTreeMap<SegmentNumber, u64> = BTreeMap::new();
        let snapshot = self.view().snapshot();
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
        self.write_geometry(&geometry)?;
        self.set_geometry(geometry);
        Ok(())
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
        Ok(CompactPlan {
            segments,
            extents: self.choose_extents(options.choice),
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
        let chosen = round(left, alignment, Engine::room_on(&next, put_bytes)?);
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
        if options.is_alone {
            let _one = lock(&self.sync);
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
        done.waiting_bytes = self.waiting_bytes();
        Ok(done)
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
        let _one = lock(&self.sync);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::ids::Epoch;

    fn row(number: u64, size_bytes: u64, live_bytes: u64) -> SegmentRow {
        let live_records = live_bytes / 100;
        SegmentRow {
            number: SegmentNumber(number),
            epoch: Epoch(0),
            class: Class::Fast,
            devices: vec![DeviceNumber(0), DeviceNumber(1)],
            size_bytes,
            live_bytes,
            live_records,
            dead_records: 1,
            lowest_id: 1,
        }
    }

    fn numbers(rows: &[SegmentRow], choice: Choice, breaks: &BTreeMap<SegmentNumber, u64>) -> Vec<u64> {
        let rows: Vec<&SegmentRow> = rows.iter().collect();
        choose(&rows, choice, breaks, &BTreeSet::new()).unwrap().iter().map(|segment| segment.number.0).collect()
    }

    #[test]
    fn an_account_of_more_than_there_is_is_an_error() {
        assert_eq!(dead_bytes(&row(7, 1128, 1000)).unwrap(), 0);
        for wrong in [row(7, 1128, 1001), row(7, 100, 0), row(7, 1128, u64::MAX)] {
            for choice in [Choice::Dead(30), Choice::All] {
                let error = choose(&[&wrong], choice, &BTreeMap::new(), &BTreeSet::new()).unwrap_err();
                assert!(error.kind() == ErrorKind::Corrupt && error.to_string().contains("segment 7"), "{error}");
            }
        }
    }

    #[test]
    fn segments_are_chosen_by_what_they_give_back_most_for_least_first() {
        let rows = [
            row(1, 10_128, 10_000),
            row(2, 10_128, 7_100),
            row(3, 10_128, 6_900),
            row(4, 10_128, 0),
            row(5, 128, 0),
            row(6, 20_128, 2_000),
        ];
        let none = BTreeMap::new();
        assert_eq!(numbers(&rows, Choice::Dead(30), &none), [4, 6, 3]);
        assert_eq!(numbers(&rows, Choice::Dead(100), &none), [4]);
        assert_eq!(numbers(&rows, Choice::All, &none), [4, 6, 3, 2, 1]);
        let breaks = BTreeMap::from([(SegmentNumber(1), 13), (SegmentNumber(2), 8)]);
        assert_eq!(numbers(&rows, Choice::DeadOrDisordered(30), &breaks), [4, 6, 3, 1]);
    }

    #[test]
    fn segments_with_content_elsewhere_are_chosen_and_grow() {
        let rows = [row(1, 10_128, 10_000), row(2, 10_128, 10_000), row(3, 10_128, 10_000)];
        let rows: Vec<&SegmentRow> = rows.iter().collect();
        let chosen = choose(&rows, Choice::Dead(30), &BTreeMap::new(), &BTreeSet::from([SegmentNumber(2)])).unwrap();
        assert_eq!(chosen.iter().map(|one| (one.number.0, one.is_realigned)).collect::<Vec<_>>(), [(2, true)]);
        let bytes = Alignment::ALL.map(|alignment| chosen[0].moving_bytes(alignment));
        assert_eq!(bytes, [11_600, 11_600 + 100 * 768, 11_600 + 100 * 4352]);
    }

    #[test]
    fn a_round_takes_what_there_is_room_for() {
        let rows = [row(1, 20_128, 7_072), row(2, 20_128, 7_072), row(3, 20_128, 7_072)];
        let rows: Vec<&SegmentRow> = rows.iter().collect();
        let segments = choose(&rows, Choice::All, &BTreeMap::new(), &BTreeSet::new()).unwrap();
        let taken = |room_bytes: u64| round(&segments, Alignment::Page, room_bytes).0.len();
        assert_eq!([taken(8_191), taken(8_192), taken(16_384), taken(u64::MAX)], [0, 1, 2, 3]);
        // A segment without room does not block the others.
        let mut segments = segments;
        segments.insert(0, PlannedSegment { live_bytes: 10_000, ..segments[0] });
        let (chosen, later) = round(&segments, Alignment::None, 8_192);
        assert_eq!((chosen.len(), later.len(), later[0].live_bytes), (1, 3, 10_000));
    }
}
