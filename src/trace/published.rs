//! The operations of a file server at the VU in 2005, as a source: what Tanenbaum, Herder and Bos (2006) publish in
//! section 4 and Fig. 4.
//!
//! They give the number of reads, of writes and of all other operations, and deciles of the sizes. Between the deciles
//! sizes are log-uniform, as in a plan; order, times and files are unknown, so operations are numbered: reads first,
//! then writes, then the others.

use std::collections::VecDeque;

use super::{Clock, Detail, Findings, Kind, Names, Operation, Origin, Problems, Source};
use crate::distribution::published::{fig_4, through_percentiles};
use crate::error::Result;

/// What the source is called on the command line.
pub const NAME: &str = "vu-2005";
/// What it says instead of a recorder.
pub const RECORDER: &str = "published";

/// 3.2 million reads, and 0.54 million writes.
const READS_PER_PERCENT: u64 = 32_000;
const WRITES_PER_PERCENT: u64 = 5_400;
/// "The number of write operations was approximately equivalent to the number of all other operations excluding reads."
const OTHERS: u64 = 540_000;

/// The published operations.
#[derive(Debug)]
pub struct Published {
    /// Kind, size and number of operations that are left.
    left: VecDeque<(Kind, u64, u64)>,
    given: u64,
    whole: u64,
    nothing: Names,
    origin: Origin,
    problems: Problems,
}

impl Published {
    /// All of them.
    pub fn new() -> Published {
        let mut left = VecDeque::new();
        for (column, kind, per_percent) in [(1, Kind::Read, READS_PER_PERCENT), (2, Kind::Write, WRITES_PER_PERCENT)] {
            let deciles = fig_4().into_iter().map(|row| (row[0], row[column]));
            let sizes = through_percentiles(deciles, per_percent).unwrap_or_default();
            let largest = sizes.max();
            for cell in sizes.cells() {
                let is_last = (cell.low..=cell.high).contains(&largest);
                let (count, sum) = match is_last {
                    true => (cell.count - 1, cell.sum - u128::from(largest)),
                    false => (cell.count, cell.sum),
                };
                // The sum of a cell is exact, with sizes that differ by a byte.
                let (size, larger) = (sum / count.max(1), sum % count.max(1));
                left.push_back((kind, size as u64, (count - larger) as u64));
                left.push_back((kind, size as u64 + 1, larger as u64));
                left.push_back((kind, largest, u64::from(is_last)));
            }
        }
        left.push_back((Kind::Other, 0, OTHERS));
        left.retain(|(.., count)| *count > 0);
        let origin = Origin {
            clock: Clock::None,
            detail: Detail::WholeFiles,
            notes: vec![
                "Deciles of the sizes are published (Tanenbaum, Herder and Bos 2006, Fig. 4); between them, sizes are \
                 log-uniform. Files, order and times are unknown."
                    .to_owned(),
            ],
            ..Origin::new(RECORDER)
        };
        let whole = left.iter().map(|(.., count)| count).sum();
        Published { left, given: 0, whole, nothing: Names::default(), origin, problems: Problems::default() }
    }
}

impl Default for Published {
    fn default() -> Published {
        Published::new()
    }
}

impl Source for Published {
    fn next(&mut self) -> Result<Option<Operation>> {
        let Some((kind, size, count)) = self.left.front_mut() else { return Ok(None) };
        let operation = Operation { length_bytes: *size, ..Operation::new(self.given, 0, *kind) };
        self.given += 1;
        *count -= 1;
        if *count == 0 {
            self.left.pop_front();
        }
        Ok(Some(operation))
    }

    fn findings(&self) -> Findings<'_> {
        Findings { files: &self.nothing, processes: &self.nothing, origin: &self.origin, problems: &self.problems }
    }

    fn progress(&self) -> (u64, Option<u64>) {
        (self.given, Some(self.whole))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::summary::{Options, summarise};

    #[test]
    fn numbers_and_deciles_are_those_of_section_4() {
        let summary = summarise(&mut Published::new(), Options::default(), |_, _| Ok(true)).unwrap();
        assert_eq!(summary.operations, 4_280_000);
        let (reads, writes) = (&summary.sides.reads.whole, &summary.sides.writes.whole);
        assert_eq!((reads.count(), writes.count()), (3_200_000, 540_000));
        assert_eq!(reads.deciles()[..5], [889, 1965, 3055, 5265, 6629]);
        assert_eq!(writes.deciles()[..5], [300, 2821, 4096, 4096, 4503]);
        assert_eq!((reads.max(), writes.max()), (235_507_712, 1_131_274_484));
        // "50% of all read operations and 80% of all write operations are for files smaller than 8 KB."
        assert!(summary.sides.reads.whole_served(8192) >= 0.5 && summary.sides.writes.whole_served(8192) >= 0.8);
    }
}
