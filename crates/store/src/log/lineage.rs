//! Which of the segments found are part of the log, and how much of each.
//!
//! The header of a segment names the position that it continues. So, from the last segment back to the first:
//! everything between a segment and the one that it continues is not part of the log, nor is what follows that
//! position; both are quarantine. A segment that another history began (docs/FORMAT.md, law 5) is not part of the log
//! whatever it continues. An expected segment that was not found was released, or is missing. This module reads
//! no device: its input is files, its output is positions.

use std::collections::BTreeMap;

use crate::format::ids::{DeviceNumber, LogOffset, SegmentId, SegmentNumber};
use crate::format::release::Released;
use crate::format::segment::{Continued, SEGMENT_HEADER_BYTES, SegmentHeader};

/// A segment that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FoundSegment {
    pub(crate) id: SegmentId,
    /// `None` if no copy has a valid one.
    pub(crate) header: Option<SegmentHeader>,
    /// Where it continues the log: according to its header, or, if that is damaged, to its first commit.
    pub(crate) continues: Option<Continued>,
    /// Devices with a copy.
    pub(crate) devices: Vec<DeviceNumber>,
    /// Length of the longest copy.
    pub(crate) size_bytes: u64,
    /// Whether the history of epochs allows it to be part of the log.
    pub(crate) is_of_history: bool,
    /// Of several segments with one number, the one counts that is known or on more devices in service, if nothing
    /// says which the log continued in.
    pub(crate) weight: usize,
    /// Ends of its batches at which segments that were found continue the log. Only of segments that share their
    /// number.
    pub(crate) continued_at: Vec<Continued>,
}

/// A segment of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LogPart {
    pub(crate) found: FoundSegment,
    /// Where the next segment continues, if one does, or did before it was released.
    pub(crate) end: Option<LogOffset>,
    /// Numbers of expected segments before it that were neither found nor released: first and last.
    pub(crate) missing: Option<(SegmentNumber, SegmentNumber)>,
}

/// The log as found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Lineage {
    /// In log order.
    pub(crate) parts: Vec<LogPart>,
    /// Segments that are not part of the log and were not released.
    pub(crate) aside: Vec<FoundSegment>,
    /// The highest number found.
    pub(crate) newest: SegmentNumber,
}

/// What the following part says about the one sought.
enum StatedEnd {
    /// Nothing: there is no following part, or its beginning is damaged.
    Unknown,
    At(Continued),
}

/// Of segments with one number, the one that the log continued in at that place, otherwise the one with the most
/// weight; and the others.
fn choose(mut same_number: Vec<FoundSegment>, continued: &StatedEnd) -> Option<(FoundSegment, Vec<FoundSegment>)> {
    let rank = |one: &FoundSegment| {
        let is_continued = matches!(continued, StatedEnd::At(at) if one.continued_at.contains(at));
        (is_continued, one.weight)
    };
    let (at, _) = same_number.iter().enumerate().rev().max_by_key(|(_, one)| rank(one))?;
    let chosen = same_number.remove(at);
    Some((chosen, same_number))
}

impl Lineage {
    /// Sorts the segments found, starting from segment `first` (1: the whole log).
    pub(crate) fn new(
        found: impl IntoIterator<Item = FoundSegment>,
        released: &Released,
        first: SegmentNumber,
    ) -> Lineage {
        let mut lineage = Lineage::default();
        let mut by_number: BTreeMap<SegmentNumber, Vec<FoundSegment>> = BTreeMap::new();
        for one in found {
            let number = one.id.number;
            lineage.newest = lineage.newest.max(number);
            if !one.is_of_history {
                lineage.aside.push(one);
                continue;
            }
            if number < first || released.has_segment(one.id.number) {
                continue;
            }
            if one.header.is_none() && one.size_bytes <= SEGMENT_HEADER_BYTES {
                // It was never begun: not even its header exists.
                lineage.aside.push(one);
                continue;
            }
            by_number.entry(number).or_default().push(one);
        }
        let mut continued = StatedEnd::Unknown;
        let mut candidates = by_number.into_iter().rev().peekable();
        while let Some((number, same_number)) = candidates.next() {
            let Some((found, others)) = choose(same_number, &continued) else { continue };
            lineage.aside.extend(others);
            let end = match continued {
                StatedEnd::At(at) if number == at.segment => Some(at.offset),
                // Its continuation may have been released since.
                _ => released.end_of(found.id.number),
            };
            continued = match found.continues {
                Some(at) => StatedEnd::At(at),
                None => StatedEnd::Unknown,
            };
            // The log does not continue in those: what is missing may be before them as well.
            if let StatedEnd::At(at) = continued {
                let is_skipped = |(number, _): &(SegmentNumber, Vec<FoundSegment>)| *number > at.segment;
                lineage
                    .aside
                    .extend(std::iter::from_fn(|| candidates.next_if(is_skipped)).flat_map(|(_, found)| found));
            }
            // Segments expected between this one and the next one found.
            let after_expected = match continued {
                StatedEnd::At(at) => at.segment.next(),
                StatedEnd::Unknown => number,
            };
            let lowest = candidates.peek().map_or(first, |&(before, _)| before.next());
            let is_missing = |number: &SegmentNumber| !released.has_segment(*number);
            let mut missing = (lowest.0..after_expected.0).map(SegmentNumber).filter(is_missing);
            let missing = if number > first {
                missing.next().map(|lowest| (lowest, missing.next_back().unwrap_or(lowest)))
            } else {
                None
            };
            lineage.parts.push(LogPart { found, end, missing });
        }
        lineage.parts.reverse();
        lineage
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::geometry::Class;
    use crate::format::ids::{BatchSequence, Epoch, LogOffset};
    use crate::layout::granulo::Alignment;

    fn found(number: u64, continues: Option<(u64, u64)>) -> FoundSegment {
        let id = SegmentId::new(SegmentNumber(number), Epoch(number));
        let header = continues.map(|(segment, offset)| SegmentHeader {
            class: Class::Fast,
            copies: 1,
            alignment: Alignment::None,
            store: [1; 16],
            id,
            created_nanoseconds: 0,
            continues: Continued {
                segment: SegmentNumber(segment),
                offset: LogOffset(offset),
                sequence: BatchSequence(number),
                chain: 0,
            },
            highest_id: 0,
        });
        FoundSegment {
            id,
            header,
            continues: header.map(|header| header.continues),
            devices: vec![DeviceNumber(0)],
            size_bytes: 1000,
            is_of_history: true,
            weight: 1,
            continued_at: Vec::new(),
        }
    }

    /// Number, end, and what is missing before it.
    type Summary = (u64, Option<u64>, Option<(u64, u64)>);

    fn parts(lineage: &Lineage) -> Vec<Summary> {
        lineage
            .parts
            .iter()
            .map(|part| {
                let missing = part.missing.map(|(first, last)| (first.0, last.0));
                (part.found.id.number.0, part.end.map(|end| end.0), missing)
            })
            .collect()
    }

    fn aside(lineage: &Lineage) -> Vec<u64> {
        lineage.aside.iter().map(|found| found.id.number.0).collect()
    }

    #[test]
    fn each_segment_ends_where_the_next_goes_on() {
        let all = [found(1, Some((0, 0))), found(2, Some((1, 500))), found(3, Some((2, 600)))];
        let lineage = Lineage::new(all, &Released::default(), SegmentNumber(1));
        assert_eq!(parts(&lineage), [(1, Some(500), None), (2, Some(600), None), (3, None, None)]);
        assert_eq!((aside(&lineage), lineage.newest.0), (vec![], 3));
    }

    #[test]
    fn what_lies_between_a_segment_and_the_one_it_continues_is_set_aside() {
        let all = [found(1, Some((0, 0))), found(2, Some((1, 500))), found(3, Some((1, 400)))];
        let lineage = Lineage::new(all, &Released::default(), SegmentNumber(1));
        assert_eq!(parts(&lineage), [(1, Some(400), None), (3, None, None)]);
        assert_eq!(aside(&lineage), [2]);
    }

    #[test]
    fn a_segment_that_is_not_there_is_missing_unless_it_was_released() {
        let all = [found(1, Some((0, 0))), found(5, Some((4, 500)))];
        assert_eq!(
            parts(&Lineage::new(all.clone(), &Released::default(), SegmentNumber(1)))[1],
            (5, None, Some((2, 4)))
        );
        let mut released = Released::default();
        released.add_segment(SegmentNumber(2));
        assert_eq!(parts(&Lineage::new(all.clone(), &released, SegmentNumber(1)))[1], (5, None, Some((3, 4))));
        (3..5).for_each(|number| released.add_segment(SegmentNumber(number)));
        assert_eq!(parts(&Lineage::new(all.clone(), &released, SegmentNumber(1))), [(1, None, None), (5, None, None)]);
        released.add_end(SegmentNumber(1), LogOffset(700));
        assert_eq!(parts(&Lineage::new(all, &released, SegmentNumber(1))), [(1, Some(700), None), (5, None, None)]);
        // Also the very first segment; what precedes the position of an index is not looked for.
        assert_eq!(
            parts(&Lineage::new([found(3, Some((2, 9)))], &Released::default(), SegmentNumber(1))),
            [(3, None, Some((1, 2)))]
        );
        assert_eq!(
            parts(&Lineage::new([found(3, Some((2, 9)))], &Released::default(), SegmentNumber(3))),
            [(3, None, None)]
        );
    }

    #[test]
    fn a_segment_is_missing_also_if_one_behind_it_is_set_aside() {
        let all = [found(1, Some((0, 0))), found(3, Some((2, 500))), found(4, Some((2, 400)))];
        let lineage = Lineage::new(all, &Released::default(), SegmentNumber(1));
        assert_eq!(parts(&lineage), [(1, None, None), (4, None, Some((2, 2)))]);
        assert_eq!(aside(&lineage), [3]);
    }

    #[test]
    fn a_released_segment_that_turns_up_is_skipped() {
        let mut released = Released::default();
        released.add_segment(SegmentNumber(1));
        let all = [found(1, Some((0, 0))), found(2, Some((1, 500)))];
        let lineage = Lineage::new(all, &released, SegmentNumber(1));
        assert_eq!((parts(&lineage), aside(&lineage)), (vec![(2, None, None)], vec![]));
    }

    #[test]
    fn a_damaged_header_leaves_the_segment_in_the_log_and_a_file_without_anything_out_of_it() {
        let empty = FoundSegment { size_bytes: 128, ..found(4, None) };
        let all = [found(1, Some((0, 0))), found(2, None), found(3, Some((2, 700))), empty];
        let lineage = Lineage::new(all, &Released::default(), SegmentNumber(1));
        assert_eq!(parts(&lineage), [(1, None, None), (2, Some(700), None), (3, None, None)]);
        assert_eq!((aside(&lineage), lineage.newest.0), (vec![4], 4));
    }

    #[test]
    fn what_the_first_commit_says_counts_as_what_the_header_says() {
        let continues = found(3, Some((1, 400))).continues;
        let all = [found(1, Some((0, 0))), found(2, Some((1, 500))), FoundSegment { continues, ..found(3, None) }];
        let lineage = Lineage::new(all, &Released::default(), SegmentNumber(1));
        assert_eq!((parts(&lineage), aside(&lineage)), (vec![(1, Some(400), None), (3, None, None)], vec![2]));
    }

    #[test]
    fn what_another_history_began_is_set_aside_though_its_number_is_higher() {
        let mut all = vec![found(1, Some((0, 0))), found(2, Some((1, 500))), found(3, Some((1, 400)))];
        all[2].is_of_history = false;
        all.push(FoundSegment { is_of_history: false, weight: 5, ..found(2, Some((1, 300))) });
        let lineage = Lineage::new(all, &Released::default(), SegmentNumber(1));
        assert_eq!(parts(&lineage), [(1, Some(500), None), (2, None, None)]);
        assert_eq!((aside(&lineage), lineage.newest.0), (vec![3, 2], 3));
    }

    #[test]
    fn of_two_with_one_number_the_one_with_more_weight_counts() {
        let other =
            FoundSegment { weight: 2, id: SegmentId::new(SegmentNumber(1), Epoch(9)), ..found(1, Some((0, 0))) };
        for all in [[found(1, Some((0, 0))), other.clone()], [other.clone(), found(1, Some((0, 0)))]] {
            let lineage = Lineage::new(all, &Released::default(), SegmentNumber(1));
            assert_eq!((lineage.parts[0].found.id.epoch, aside(&lineage)), (Epoch(9), vec![1]));
        }
    }

    #[test]
    fn of_two_with_one_number_the_one_that_the_log_continued_in_counts() {
        let next = found(2, Some((1, 500)));
        let (mut own, mut other) = (found(1, Some((0, 0))), found(1, Some((0, 0))));
        own.continued_at = next.continues.into_iter().collect();
        other.continued_at = vec![Continued { chain: 7, ..own.continued_at[0] }];
        (other.id.epoch, other.weight) = (Epoch(9), 2);
        for all in [[own.clone(), other.clone(), next.clone()], [other, own.clone(), next]] {
            let lineage = Lineage::new(all, &Released::default(), SegmentNumber(1));
            assert_eq!((&lineage.parts[0].found, aside(&lineage)), (&own, vec![1]));
        }
    }
}
