//! What was superseded and may be gone: content of a release record (docs/FORMAT.md, section 8).
//!
//! A release record is complete: it repeats everything ever released, as ranges, so only the newest counts. A segment
//! that it names is ignored wherever it appears; one that is neither named nor on a device is missing. Usually the
//! header of the next segment says where a segment ends; once that next one is released, the release record says it, so
//! that what a crash left after the end never becomes part of the log. It also lists the existing snapshots, so that a
//! reader of the whole log knows them before the records that they reference, and the names of pins.

#![cfg_attr(not(test), warn(clippy::indexing_slicing))]

use std::collections::{BTreeMap, BTreeSet};

use super::decode::Decoder;
use super::ids::{DeviceNumber, LogOffset, SegmentNumber};
use super::index_key::is_name;
use super::rows::SnapshotRow;

/// Numbers as ranges that neither touch nor overlap: first and last of each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct NumberRanges(BTreeMap<u64, u64>);

impl NumberRanges {
    fn contains(&self, number: u64) -> bool {
        self.0.range(..=number).next_back().is_some_and(|(_, &last)| number <= last)
    }

    fn add(&mut self, first: u64, last: u64) {
        let (mut first, mut last) = (first, last);
        // Ranges that touch or overlap become one.
        while let Some((&from, &to)) = self.0.range(..=last.saturating_add(1)).next_back() {
            if to.saturating_add(1) < first {
                break;
            }
            self.0.remove(&from);
            (first, last) = (first.min(from), last.max(to));
        }
        self.0.insert(first, last);
    }

    /// First number and count of each range. No count says all numbers: the last one is left out, which is never
    /// assigned.
    fn ranges(&self) -> impl ExactSizeIterator<Item = (u64, u64)> {
        self.0.iter().map(|(&first, &last)| (first, (last - first).saturating_add(1)))
    }
}

/// Released segments and extent files, and the ends of remaining segments.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Released {
    segments: NumberRanges,
    extents: BTreeMap<DeviceNumber, NumberRanges>,
    /// Ends of segments that were not released but whose continuation was.
    ends: BTreeMap<u64, u64>,
    /// The existing snapshots.
    pub(crate) snapshots: Vec<SnapshotRow>,
    /// Names of the existing pins. The format does not interpret them.
    pub(crate) pins: BTreeSet<String>,
}

impl Released {
    pub(crate) fn is_empty(&self) -> bool {
        self.segments.0.is_empty() && self.extents.is_empty() && self.snapshots.is_empty() && self.pins.is_empty()
    }

    /// Whether a segment of this number was released.
    pub(crate) fn has_segment(&self, number: SegmentNumber) -> bool {
        self.segments.contains(number.0)
    }

    /// The highest released segment: numbers are not reused.
    pub(crate) fn highest_segment(&self) -> Option<SegmentNumber> {
        self.segments.0.last_key_value().map(|(_, &last)| SegmentNumber(last))
    }

    /// Whether an extent file of a device was released.
    pub(crate) fn has_extent(&self, device: DeviceNumber, file: u32) -> bool {
        self.extents.get(&device).is_some_and(|files| files.contains(file.into()))
    }

    pub(crate) fn add_segment(&mut self, number: SegmentNumber) {
        self.segments.add(number.0, number.0);
        self.ends.remove(&number.0);
    }

    /// Records the end of a segment whose continuation was released.
    pub(crate) fn add_end(&mut self, number: SegmentNumber, end: LogOffset) {
        self.ends.insert(number.0, end.0);
    }

    /// The end of a segment, if its continuation was released.
    pub(crate) fn end_of(&self, number: SegmentNumber) -> Option<LogOffset> {
        self.ends.get(&number.0).copied().map(LogOffset)
    }

    pub(crate) fn add_extent(&mut self, device: DeviceNumber, file: u32) {
        self.extents.entry(device).or_default().add(file.into(), file.into());
    }

    /// The highest released extent file of each device: numbers are not reused.
    pub(crate) fn highest_extents(&self) -> impl Iterator<Item = (DeviceNumber, u32)> {
        let highest = |(device, files): (&DeviceNumber, &NumberRanges)| {
            let (_, &last) = files.0.last_key_value()?;
            Some((*device, u32::try_from(last).ok()?))
        };
        self.extents.iter().filter_map(highest)
    }

    /// Adds everything that `other` has, except snapshots and pins.
    pub(crate) fn merge(&mut self, other: &Released) {
        other.segments.0.iter().for_each(|(&first, &last)| self.segments.add(first, last));
        for (&device, files) in &other.extents {
            let mine = self.extents.entry(device).or_default();
            files.0.iter().for_each(|(&first, &last)| mine.add(first, last));
        }
        self.ends.extend(&other.ends);
        let segments = &self.segments;
        self.ends.retain(|&number, _| !segments.contains(number));
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&(self.segments.0.len() as u32).to_le_bytes());
        for (first, count) in self.segments.ranges() {
            bytes.extend_from_slice(&first.to_le_bytes());
            bytes.extend_from_slice(&count.to_le_bytes());
        }
        let extents: usize = self.extents.values().map(|files| files.0.len()).sum();
        bytes.extend_from_slice(&(extents as u32).to_le_bytes());
        for (device, files) in &self.extents {
            for (first, count) in files.ranges() {
                bytes.extend_from_slice(&device.0.to_le_bytes());
                bytes.extend_from_slice(&(first as u32).to_le_bytes());
                let count = u32::try_from(count).unwrap_or(u32::MAX);
                bytes.extend_from_slice(&count.to_le_bytes());
            }
        }
        bytes.extend_from_slice(&(self.ends.len() as u32).to_le_bytes());
        for (number, end) in &self.ends {
            bytes.extend_from_slice(&number.to_le_bytes());
            bytes.extend_from_slice(&end.to_le_bytes());
        }
        bytes.extend_from_slice(&(self.snapshots.len() as u32).to_le_bytes());
        for SnapshotRow { sequence, created_nanoseconds, name } in &self.snapshots {
            bytes.extend_from_slice(&sequence.to_le_bytes());
            bytes.extend_from_slice(&created_nanoseconds.to_le_bytes());
            bytes.extend_from_slice(&(name.len() as u16).to_le_bytes());
            bytes.extend_from_slice(name);
        }
        if !self.pins.is_empty() {
            bytes.extend_from_slice(&(self.pins.len() as u32).to_le_bytes());
        }
        for name in &self.pins {
            bytes.extend_from_slice(&(name.len() as u16).to_le_bytes());
            bytes.extend_from_slice(name.as_bytes());
        }
        bytes
    }

    /// `None` if it is inconsistent.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Released> {
        let mut at = Decoder::new(bytes);
        let mut released = Released::default();
        let last = |first: u64, count: u64| first.checked_add(count.checked_sub(1)?);
        for _ in 0..at.u32()? {
            let (first, count) = (at.u64()?, at.u64()?);
            released.segments.add(first, last(first, count)?);
        }
        for _ in 0..at.u32()? {
            let (device, first, count) = (DeviceNumber(at.u16()?), at.u32()?, at.u32()?);
            let last = last(first.into(), count.into()).filter(|&last| last <= u32::MAX.into())?;
            released.extents.entry(device).or_default().add(first.into(), last);
        }
        for _ in 0..at.u32()? {
            let (number, end) = (at.u64()?, at.u64()?);
            if released.segments.contains(number) || released.ends.insert(number, end).is_some() {
                return None;
            }
        }
        for _ in 0..at.u32()? {
            let (sequence, created_nanoseconds, length) = (at.u64()?, at.u64()? as i64, at.u16()?);
            let name = at.take(length.into())?.to_vec();
            let rises = released.snapshots.last().is_none_or(|last| last.sequence < sequence);
            if !rises || !is_name(&name) {
                return None;
            }
            released.snapshots.push(SnapshotRow { sequence, created_nanoseconds, name });
        }
        // Without pins, nothing follows.
        let pins = if at.rest().is_empty() { 0 } else { at.u32().filter(|&pins| pins > 0)? };
        for _ in 0..pins {
            let length = at.u16()?;
            let name = std::str::from_utf8(at.take(length.into())?).ok()?.to_owned();
            if released.pins.last().is_some_and(|last| *last >= name) {
                return None;
            }
            released.pins.insert(name);
        }
        at.rest().is_empty().then_some(released)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn ranges_are_the_set_of_what_was_added(one in proptest::collection::vec(0u64..40, 0..40), other in proptest::collection::vec(0u64..40, 0..40)) {
            let released = |numbers: &[u64]| {
                let mut released = Released::default();
                for &number in numbers {
                    released.add_segment(SegmentNumber(number));
                    released.add_extent(DeviceNumber((number % 3) as u16), number as u32);
                }
                released
            };
            let mut merged = released(&one);
            merged.merge(&released(&other));
            let all: BTreeSet<u64> = one.iter().chain(&other).copied().collect();
            for number in 0..42 {
                prop_assert_eq!(merged.has_segment(SegmentNumber(number)), all.contains(&number));
                prop_assert_eq!(merged.has_extent(DeviceNumber((number % 3) as u16), number as u32), all.contains(&number));
            }
            // Ranges that touch are one.
            let runs = all.iter().filter(|&&number| number == 0 || !all.contains(&(number - 1))).count();
            prop_assert_eq!(merged.segments.0.len(), runs);
            prop_assert_eq!(Released::decode(&merged.encode()), Some(merged));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            if let Some(released) = Released::decode(&bytes) {
                prop_assert_eq!(Released::decode(&released.encode()), Some(released));
            }
        }
    }

    #[test]
    fn an_end_stands_until_its_segment_is_released_too() {
        let mut released = Released::default();
        released.add_segment(SegmentNumber(2));
        released.add_end(SegmentNumber(1), LogOffset(500));
        assert_eq!(released.end_of(SegmentNumber(1)), Some(LogOffset(500)));
        let mut later = Released::default();
        later.add_segment(SegmentNumber(1));
        for (mut one, other) in [(released.clone(), later.clone()), (later, released)] {
            one.merge(&other);
            assert_eq!(one.end_of(SegmentNumber(1)), None);
        }
    }

    #[test]
    fn pins_are_names_that_rise() {
        let mut released = Released::default();
        let without = released.encode();
        released.pins = ["mount", "", "other"].map(str::to_owned).into();
        let bytes = released.encode();
        assert_eq!(bytes.len(), without.len() + 4 + 3 * 2 + 10);
        assert_eq!(Released::decode(&bytes), Some(released));
        assert!((without.len() + 1..bytes.len()).all(|length| Released::decode(&bytes[..length]).is_none()));
        let of = |count: u32, names: &[&[u8]]| {
            let mut bytes = [&without[..], &count.to_le_bytes()].concat();
            names.iter().for_each(|name| bytes.extend([&(name.len() as u16).to_le_bytes()[..], name].concat()));
            Released::decode(&bytes)
        };
        assert!(of(1, &[b"a"]).is_some());
        assert_eq!(
            (of(0, &[]), of(2, &[b"a", b"a"]), of(2, &[b"b", b"a"]), of(1, &[&[255]])),
            (None, None, None, None)
        );
    }

    #[test]
    fn all_numbers_are_encoded_without_the_last() {
        let (mut released, device) = (Released::default(), DeviceNumber(1));
        released.segments.add(0, u64::MAX);
        released.extents.entry(device).or_default().add(0, u32::MAX.into());
        let read = Released::decode(&released.encode()).unwrap();
        assert_eq!([u64::MAX - 1, u64::MAX].map(|number| read.has_segment(SegmentNumber(number))), [true, false]);
        assert_eq!([u32::MAX - 1, u32::MAX].map(|file| read.has_extent(device, file)), [true, false]);
    }

    #[test]
    fn what_is_truncated_or_overflows_is_refused() {
        let mut released = Released::default();
        released.add_segment(SegmentNumber(7));
        released.add_extent(DeviceNumber(1), 9);
        released.add_end(SegmentNumber(6), LogOffset(500));
        released.snapshots.push(SnapshotRow { sequence: 7, created_nanoseconds: -1, name: b"a day".to_vec() });
        let bytes = released.encode();
        assert_eq!(bytes.len(), 4 + 16 + 4 + 10 + 4 + 16 + 4 + 18 + 5);
        assert_eq!(Released::decode(&bytes), Some(released));
        assert!((0..bytes.len()).all(|length| Released::decode(&bytes[..length]).is_none()));
        let wrong = |first: u64, count: u64| {
            let mut bytes = 1u32.to_le_bytes().to_vec();
            bytes.extend([first, count].iter().flat_map(|number| number.to_le_bytes()));
            bytes.extend([0u32; 3].iter().flat_map(|count| count.to_le_bytes()));
            Released::decode(&bytes)
        };
        assert!(wrong(3, 1).is_some());
        assert_eq!((wrong(3, 0), wrong(u64::MAX, 2)), (None, None));
        let of = |sequences: &[u64], name: &[u8]| {
            let row = |&sequence: &u64| SnapshotRow { sequence, created_nanoseconds: 0, name: name.to_vec() };
            Released { snapshots: sequences.iter().map(row).collect(), ..Released::default() }
        };
        assert_eq!(Released::decode(&of(&[3, 4], b"a").encode()), Some(of(&[3, 4], b"a")));
        assert!(
            [of(&[4, 4], b"a"), of(&[3], b"a/b"), of(&[3], b"")]
                .iter()
                .all(|one| Released::decode(&one.encode()).is_none())
        );
    }
}
