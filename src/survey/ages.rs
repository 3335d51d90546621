//! Files and bytes by age, before they enter their distributions. Both figures of a day are adjacent, so that a file
//! touches one place for each of its times.

use super::measure::{ByteMeasure, Distributions, Measure};

/// Days that have a place: 22 years. Older files go directly to the distributions.
const DAYS: usize = 8192;

/// The distributions of the three times of a file.
const MEASURES: [(Measure, ByteMeasure); 3] = [
    (Measure::MtimeAge, ByteMeasure::MtimeAge),
    (Measure::CtimeAge, ByteMeasure::CtimeAge),
    (Measure::AtimeAge, ByteMeasure::AtimeAge),
];

/// Files of an age, and the bytes in them.
#[derive(Debug, Clone, Copy, Default)]
struct Day {
    files: u64,
    bytes: u64,
}

/// Files and bytes by content's, inode's and access's age.
#[derive(Clone)]
pub(super) struct AgeCounts {
    days: [Box<[Day]>; 3],
}

impl Default for AgeCounts {
    fn default() -> AgeCounts {
        AgeCounts { days: std::array::from_fn(|_| vec![Day::default(); DAYS].into_boxed_slice()) }
    }
}

impl AgeCounts {
    /// Counts a file by its time with index `time`.
    #[inline]
    pub(super) fn add(&mut self, distributions: &mut Distributions, time: usize, days: u64, size_bytes: u64) {
        if let Some(day) = usize::try_from(days).ok().and_then(|days| self.days[time].get_mut(days))
            && let Some(bytes) = day.bytes.checked_add(size_bytes)
        {
            *day = Day { files: day.files + 1, bytes };
            return;
        }
        record(distributions, time, days, Day { files: 1, bytes: size_bytes });
    }

    /// Moves everything that was added into the distributions.
    pub(super) fn settle(&mut self, distributions: &mut Distributions) {
        for (time, of_time) in self.days.iter_mut().enumerate() {
            for (days, day) in of_time.iter_mut().enumerate().filter(|(_, day)| day.files > 0) {
                record(distributions, time, days as u64, std::mem::take(day));
            }
        }
    }
}

fn record(distributions: &mut Distributions, time: usize, days: u64, day: Day) {
    let (measure, by_bytes) = MEASURES[time];
    distributions.of_mut(measure).add(days, day.files);
    if day.bytes > 0 {
        distributions.by_bytes_mut(by_bytes).add(days, day.bytes.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_of_old_and_of_huge_files() {
        let (mut ages, mut distributions) = (AgeCounts::default(), Distributions::default());
        let files = [(0, 5), (0, u64::MAX - 2), (0, 0), (8191, 1), (8192, 2), (70_000, 3), (u64::MAX, 4)];
        for (days, size_bytes) in files {
            ages.add(&mut distributions, 1, days, size_bytes);
        }
        ages.settle(&mut distributions);
        ages.settle(&mut distributions);
        let of_files = distributions.of(Measure::CtimeAge);
        assert_eq!((of_files.count(), of_files.up_to(0).count, of_files.max()), (7, 3, u64::MAX));
        let of_bytes = distributions.by_bytes(ByteMeasure::CtimeAge);
        assert_eq!(of_bytes.count(), u128::from(u64::MAX) + 3 + 10);
        assert!(distributions.of(Measure::MtimeAge).is_empty());
    }
}
