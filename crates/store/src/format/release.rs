//! What was released: segments and extent files that were superseded and may be gone (docs/FORMAT.md, section 8).
//!
//! It is complete: it repeats all that was ever released, as ranges, so that the newest alone counts. Invariants, also of what was decoded: ranges rise, are not
//! empty and are apart by at least one number, so that there is one way to write a set.

use std::collections::{BTreeMap, btree_map};

/// Ranges of numbers: first, and one behind the last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    fn contains(&self, number: u64) -> bool {
        self.0.range(..=number).next_back().is_some_and(|(_, &end)| number < end)
    }

    fn insert(&mut self, number: u64) {
        let Some(mut end) = number.checked_add(1) else { return };
        if self.contains(number) {
            return;
        }
        if let Some(joined) = self.0.remove(&end) {
            end = joined;
        }
        match self.0.range_mut(..number).next_back() {
            Some((_, before)) if *before == number => *before = end,
            _ => {
                self.0.insert(number, end);
            }
        }
    }

    /// Adds a range that was read, which must lie behind all others, and not right behind.
    fn push(&mut self, first: u64, count: u64) -> Option<()> {
        let end = first.checked_add(count).filter(|_| count > 0)?;
        let is_behind = self.0.last_key_value().is_none_or(|(_, &last)| first > last);
        is_behind.then(|| {
            self.0.insert(first, end);
        })
    }

    fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        let ranges: btree_map::Iter<'_, u64, u64> = self.0.iter();
        ranges.map(|(&first, &end)| (first, end - first))
    }

    fn highest(&self) -> Option<u64> {
        self.0.last_key_value().map(|(_, &end)| end - 1)
    }
}

/// All that was ever released.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Released {
    segments: Ranges,
    extents: BTreeMap<u16, Ranges>,
}

impl Released {
    /// Adds a segment.
    pub(crate) fn add_segment(&mut self, number: u64) {
        self.segments.insert(number);
    }

    /// Adds an extent file.
    pub(crate) fn add_extent(&mut self, device: u16, file: u32) {
        self.extents.entry(device).or_default().insert(file.into());
    }

    /// Whether a segment was released.
    pub(crate) fn has_segment(&self, number: u64) -> bool {
        self.segments.contains(number)
    }

    /// Whether an extent file was released.
    #[cfg(test)]
    pub(crate) fn has_extent(&self, device: u16, file: u32) -> bool {
        self.extents.get(&device).is_some_and(|ranges| ranges.contains(file.into()))
    }

    /// The highest extent file of each device that was released: numbers are not used again.
    pub(crate) fn highest_extents(&self) -> impl Iterator<Item = (u16, u32)> {
        self.extents.iter().filter_map(|(&device, ranges)| Some((device, u32::try_from(ranges.highest()?).ok()?)))
    }

    /// The content of a release record.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&(self.segments.0.len() as u32).to_le_bytes());
        for (first, count) in self.segments.iter() {
            bytes.extend_from_slice(&first.to_le_bytes());
            bytes.extend_from_slice(&count.to_le_bytes());
        }
        let extents: usize = self.extents.values().map(|ranges| ranges.0.len()).sum();
        bytes.extend_from_slice(&(extents as u32).to_le_bytes());
        for (device, ranges) in &self.extents {
            for (first, count) in ranges.iter() {
                bytes.extend_from_slice(&device.to_le_bytes());
                bytes.extend_from_slice(&(first as u32).to_le_bytes());
                bytes.extend_from_slice(&(count as u32).to_le_bytes());
            }
        }
        bytes
    }

    /// What `bytes` say, all of them; `None` if they contradict themselves.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Released> {
        let mut released = Released::default();
        let (count, mut rest) = take::<4>(bytes)?;
        for _ in 0..u32::from_le_bytes(count) {
            let (first, after) = take::<8>(rest)?;
            let (count, after) = take::<8>(after)?;
            released.segments.push(u64::from_le_bytes(first), u64::from_le_bytes(count))?;
            rest = after;
        }
        let (count, mut rest) = take::<4>(rest)?;
        let mut newest = 0;
        for _ in 0..u32::from_le_bytes(count) {
            let (device, after) = take::<2>(rest)?;
            let (first, after) = take::<4>(after)?;
            let (count, after) = take::<4>(after)?;
            let (device, first) = (u16::from_le_bytes(device), u64::from(u32::from_le_bytes(first)));
            let count = u64::from(u32::from_le_bytes(count));
            if device < newest || first + count > 1 << 32 {
                return None;
            }
            newest = device;
            released.extents.entry(device).or_default().push(first, count)?;
            rest = after;
        }
        rest.is_empty().then_some(released)
    }
}

fn take<const LENGTH: usize>(bytes: &[u8]) -> Option<([u8; LENGTH], &[u8])> {
    bytes.split_first_chunk().map(|(taken, rest)| (*taken, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bytes_are_where_the_format_has_them() {
        let mut released = Released::default();
        [3, 1, 2, 9].into_iter().for_each(|number| released.add_segment(number));
        released.add_extent(5, 7);
        let expected = [
            &[2u8, 0, 0, 0][..],
            &[1, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0],
            &[9, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0],
            &[1, 0, 0, 0, 5, 0, 7, 0, 0, 0, 1, 0, 0, 0],
        ]
        .concat();
        assert_eq!(released.encode(), expected);
        assert_eq!(Released::decode(&expected), Some(released.clone()));
        assert_eq!(released.highest_extents().collect::<Vec<_>>(), [(5, 7)]);
        for length in 0..expected.len() {
            assert_eq!(Released::decode(&expected[..length]), None);
        }
        // Ranges that touch, fall, or are empty; too many files; bytes behind the end.
        for (at, byte) in [(20, 4), (20, 1), (12, 0), (46, 0)] {
            let mut bytes = expected.clone();
            bytes[at] = byte;
            assert_eq!(Released::decode(&bytes), None, "{at}");
        }
        let mut bytes = expected.clone();
        bytes[42..46].fill(0xff);
        assert!(Released::decode(&bytes).is_some(), "the last file there can be");
        bytes[46] = 2;
        assert_eq!(Released::decode(&bytes), None);
        assert_eq!(Released::decode(&[expected, vec![0]].concat()), None);
        assert_eq!(Released::decode(&[0; 8]), Some(Released::default()));
    }

    proptest! {
        #[test]
        fn a_set_of_numbers_is_what_was_added_in_any_order(
            segments in proptest::collection::vec(0u64..40, 0..60),
            extents in proptest::collection::vec((0u16..3, 0u32..40), 0..60),
        ) {
            let mut released = Released::default();
            segments.iter().for_each(|&number| released.add_segment(number));
            extents.iter().for_each(|&(device, file)| released.add_extent(device, file));
            for number in 0..40 {
                prop_assert_eq!(released.has_segment(number), segments.contains(&number));
                for device in 0..3 {
                    prop_assert_eq!(released.has_extent(device, number as u32), extents.contains(&(device, number as u32)));
                }
            }
            prop_assert_eq!(Released::decode(&released.encode()), Some(released));
        }
    }
}
