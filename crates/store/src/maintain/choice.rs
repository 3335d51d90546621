//! What compaction chooses, and what it did: segments and extent files with what they would free.
//!
//! Pure arithmetic on the accounts of the index. What frees most for the bytes written comes first, in case there is
//! little room.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::{Error, ErrorKind, Result};
use crate::format::geometry::Class;
use crate::format::ids::{DeviceNumber, SegmentNumber};
use crate::format::segment::SEGMENT_HEADER_BYTES;
use crate::index::catalog::SegmentRow;
use crate::layout::granulo::{ALIGNED_HEAD_BYTES, Alignment};

/// The order of records is not examined in a segment with fewer live records.
const LEAST_ORDERED_RECORDS: u64 = 64;
/// A segment is in order if less than one record in this many is not followed by the next key.
const ORDERED_RECORDS: u64 = 8;

/// Bytes that a moved record needs in addition: the sequence number of what superseded it, a place in the list of its
/// commit, and padding.
const BESIDE_MOVED_BYTES: u64 = 16;

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
pub(super) type Chosen = (Vec<PlannedSegment>, Vec<PlannedSegment>);

/// The first of `segments` that fit in the room together, in a store of this alignment; and the rest.
pub(crate) fn round(segments: &[PlannedSegment], alignment: Alignment, room_bytes: u64) -> Chosen {
    let mut left_bytes = room_bytes;
    segments.iter().partition(|segment| {
        let left = left_bytes.checked_sub(segment.moving_bytes(alignment));
        left_bytes = left.unwrap_or(left_bytes);
        left.is_some()
    })
}

/// An extent file: device and number.
pub(crate) type ExtentId = (DeviceNumber, u32);

/// An extent file that would be freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlannedExtent {
    /// Device that it is on.
    pub device: DeviceNumber,
    /// Its number.
    pub file: u32,
    /// Its size, in bytes.
    pub size_bytes: u64,
    /// Bytes of live units, which are copied to another file.
    pub live_bytes: u64,
    /// Bytes that no descriptor ever referred to, at its end: left by a killed writer.
    pub quarantined_bytes: u64,
}

impl PlannedExtent {
    pub(super) fn place(&self) -> ExtentId {
        (self.device, self.file)
    }

    /// Bytes that are known to be dead. The size is measured, not accounted: a truncated file may be shorter than its
    /// units, and units that versions share may count once for each. Nothing is known to be dead then.
    pub(crate) fn dead_bytes(&self) -> u64 {
        self.size_bytes.saturating_sub(self.live_bytes)
    }

    pub(super) fn is_chosen(&self, choice: Choice) -> bool {
        match choice {
            _ if self.live_bytes == 0 => true,
            Choice::All => self.dead_bytes() > 0,
            Choice::Dead(percent) | Choice::DeadOrDisordered(percent) => {
                let (dead, size) = (u128::from(self.dead_bytes()), u128::from(self.size_bytes));
                dead > 0 && dead * 100 >= size * u128::from(percent)
            }
        }
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

    fn extent(size_bytes: u64, live_bytes: u64) -> PlannedExtent {
        PlannedExtent { device: DeviceNumber(0), file: 0, size_bytes, live_bytes, quarantined_bytes: 0 }
    }

    #[test]
    fn files_are_chosen_by_their_share_of_dead_bytes() {
        for (size, live, chosen) in [
            (0, 0, true),
            (100, 0, true),
            (100, 70, true),
            (100, 71, false),
            (100, 100, false),
            // Truncated: nothing in it is known to be dead.
            (100, 200, false),
            (u64::MAX, 1, true),
        ] {
            assert_eq!(extent(size, live).is_chosen(Choice::Dead(30)), chosen, "{live} of {size}");
        }
        assert!(extent(100, 99).is_chosen(Choice::All) && !extent(100, 100).is_chosen(Choice::All));
    }
}
