//! Converts counters to operations: as many as were counted, with sizes that agree with the histogram, the most common
//! sizes and the bytes.

use super::text::{Record, counter, nanoseconds, time};
use crate::trace::{Kind, Operation};

/// Upper bounds of Darshan's bins; the last bin has none.
const BIN_HIGH_BYTES: [u64; 9] = [100, 1 << 10, 10 << 10, 100 << 10, 1 << 20, 4 << 20, 10 << 20, 100 << 20, 1 << 30];
const BINS: usize = BIN_HIGH_BYTES.len() + 1;
const SIZES: usize = 4;

/// Largest number of operations of a kind on a file: a larger counter is damaged.
pub(super) const MOST_OPERATIONS: u64 = 1 << 32;

/// Operations of one kind on one file, spread evenly over an interval.
#[derive(Debug, Clone)]
pub(super) struct Series {
    model: Operation,
    end_ns: u64,
    /// Count of operations of each size, and how many of them were returned.
    groups: Vec<(u64, u64, u64)>,
    count: u64,
    given: u64,
}

impl Series {
    /// `groups` are counts and sizes.
    pub(super) fn new(model: Operation, end_ns: u64, groups: impl IntoIterator<Item = (u64, u64)>) -> Series {
        let groups: Vec<_> =
            groups.into_iter().filter(|(count, _)| *count > 0).map(|(count, size)| (count, size, 0)).collect();
        let count = groups.iter().map(|(count, ..)| count).sum();
        Series { model, end_ns, groups, count, given: 0 }
    }

    /// Start time of the next operation.
    pub(super) fn time_ns(&self) -> Option<u64> {
        let span = u128::from(self.end_ns.saturating_sub(self.model.time_ns));
        let passed = span * u128::from(self.given) / u128::from(self.count.max(1));
        (self.given < self.count).then(|| self.model.time_ns.saturating_add(passed as u64))
    }

    /// Returns the next operation. Sizes alternate in proportion to their counts.
    pub(super) fn take(&mut self) -> Option<Operation> {
        let time_ns = self.time_ns()?;
        let left = |&(count, _, given): &(u64, u64, u64)| (count - given) as f64 / count as f64;
        let next = (0..self.groups.len()).max_by(|&a, &b| left(&self.groups[a]).total_cmp(&left(&self.groups[b])))?;
        let (_, size, given) = &mut self.groups[next];
        *given += 1;
        self.given += 1;
        Some(Operation { time_ns, length_bytes: *size, ..self.model })
    }
}

/// Counts and sizes of the reads (or writes) of a record, and whether the sizes add up to the counted bytes.
pub(super) fn sizes(record: &Record, writes: bool) -> (Vec<(u64, u64)>, bool) {
    let at = |place: usize| u64::try_from(record.counters[place]).unwrap_or(0);
    let (own, other, count, bytes) = match writes {
        false => (counter::READ_SIZES, counter::WRITE_SIZES, at(counter::READS), at(counter::BYTES_READ)),
        true => (counter::WRITE_SIZES, counter::READ_SIZES, at(counter::WRITES), at(counter::BYTES_WRITTEN)),
    };
    let mut left: [u64; BINS] = std::array::from_fn(|bin| at(own + bin));
    if left.iter().fold(0u64, |sum, &n| sum.saturating_add(n)) != count {
        // No histogram (stdio), or one that contradicts the count: all have the mean size.
        return (even(count, bytes), left.iter().all(|&n| n == 0));
    }
    let mut groups = Vec::new();
    let mut exact_bytes = 0u128;
    let mut sizes: Vec<(u64, u64)> =
        (0..SIZES).map(|n| (at(counter::ACCESS_SIZES + n), at(counter::ACCESS_COUNTS + n))).collect();
    sizes.retain(|&(_, common)| common > 0);
    let bounds_of = |bin: usize| {
        let low = if bin == 0 { 0 } else { BIN_HIGH_BYTES[bin - 1] + 1 };
        (low, BIN_HIGH_BYTES.get(bin).copied().unwrap_or(u64::MAX))
    };
    for (size, common) in sizes {
        let bin = bin(size);
        // The most common sizes cover reads and writes together.
        let (mine, theirs) = (at(own + bin), at(other + bin));
        let share = match theirs {
            0 => common,
            _ => (u128::from(common) * u128::from(mine) / (u128::from(mine) + u128::from(theirs))) as u64,
        };
        let share = share.min(left[bin]);
        // No more than the remaining bytes.
        let rest = u128::from(bytes) - exact_bytes;
        let share = share.min(at_most(rest, size));
        // And so many that what is left of the bins can have the bytes that remain then.
        let of_all = |bound: &dyn Fn(usize) -> u64| -> u128 {
            (0..BINS).map(|bin| u128::from(left[bin]) * u128::from(bound(bin))).sum()
        };
        let (low, high) = bounds_of(bin);
        let above_least = rest.saturating_sub(of_all(&|bin| bounds_of(bin).0));
        let below_most = of_all(&|bin| bounds_of(bin).1).saturating_sub(rest);
        let share = share.min(at_most(above_least, size - low)).min(at_most(below_most, high - size));
        left[bin] -= share;
        exact_bytes += u128::from(share) * u128::from(size);
        groups.push((share, size));
    }
    let rest = u128::from(bytes) - exact_bytes;
    let fits = spread(&left, rest, &mut groups);
    (groups, fits)
}

/// How many of `each` bytes fit into `bytes`.
fn at_most(bytes: u128, each: u64) -> u64 {
    bytes.checked_div(each.into()).map_or(u64::MAX, |count| u64::try_from(count).unwrap_or(u64::MAX))
}

/// Equal sizes that add up to `bytes`, some of them a byte larger.
fn even(count: u64, bytes: u64) -> Vec<(u64, u64)> {
    match count {
        0 => Vec::new(),
        _ => vec![(count - bytes % count, bytes / count), (bytes % count, bytes / count + 1)],
    }
}

/// Appends sizes to `groups` for the remaining counts of the bins, at the same relative position in each bin, so that
/// they add up to `bytes`; returns whether they do.
fn spread(remaining: &[u64; BINS], bytes: u128, groups: &mut Vec<(u64, u64)>) -> bool {
    let bounds = |bin: usize| {
        let low = if bin == 0 { 0 } else { BIN_HIGH_BYTES[bin - 1] + 1 };
        // The last bin, which has no bound, can hold all remaining bytes.
        let unbounded =
            || u64::try_from(bytes.div_ceil(u128::from(remaining[bin].max(1)))).unwrap_or(u64::MAX).max(low);
        (low, BIN_HIGH_BYTES.get(bin).copied().unwrap_or_else(unbounded))
    };
    let filled = || (0..BINS).filter(|&bin| remaining[bin] > 0);
    let least: u128 = filled().map(|bin| u128::from(remaining[bin]) * u128::from(bounds(bin).0)).sum();
    let room: u128 = filled().map(|bin| u128::from(remaining[bin]) * u128::from(bounds(bin).1 - bounds(bin).0)).sum();
    let above = bytes.saturating_sub(least).min(room);
    let mut remainder = above;
    let position = if room == 0 { 0.0 } else { above as f64 / room as f64 };
    let mut sized: Vec<(u64, u64, u64)> = Vec::new();
    for bin in filled() {
        let (low, high) = bounds(bin);
        let width = high - low;
        let step = ((width as f64 * position) as u64)
            .min(width)
            .min(u64::try_from(remainder / u128::from(remaining[bin])).unwrap_or(0));
        remainder -= u128::from(step) * u128::from(remaining[bin]);
        sized.push((remaining[bin], low + step, high));
    }
    // The remainder from rounding goes to the largest sizes with space in their bin, one byte each; then, if floats
    // were too imprecise, more.
    for &(count, size, high) in sized.iter().rev() {
        let more = u64::try_from(remainder / u128::from(count)).unwrap_or(u64::MAX).min(high - size);
        remainder -= u128::from(more) * u128::from(count);
        let size = size + more;
        // Below the upper bound, less than `count` remains.
        let plus = if size < high { u64::try_from(remainder).unwrap_or(u64::MAX).min(count) } else { 0 };
        remainder -= u128::from(plus);
        groups.push((count - plus, size));
        groups.push((plus, size.saturating_add(1)));
    }
    groups.retain(|(count, _)| *count > 0);
    remainder == 0 && bytes >= least && bytes - least <= room
}

fn bin(size: u64) -> usize {
    BIN_HIGH_BYTES.partition_point(|&high| high < size)
}

/// Start and end of the operations of a kind, in nanoseconds since the job began.
pub(super) fn times(record: &Record, kind: Kind) -> (u64, u64) {
    let seconds = |place: usize| record.seconds[place];
    let (start, end) = match kind {
        Kind::Read => (seconds(time::READ_START), seconds(time::READ_END)),
        Kind::Write => (seconds(time::WRITE_START), seconds(time::WRITE_END)),
        Kind::Close => (seconds(time::CLOSE), seconds(time::CLOSE)),
        _ => (seconds(time::OPEN), seconds(time::OPEN)),
    };
    // Nothing happens before the first open.
    let start = if start > 0.0 { start } else { seconds(time::OPEN) };
    (nanoseconds(start), nanoseconds(end.max(start)))
}

/// The size of the file, as far as it was accessed.
pub(super) fn touched_bytes(record: &Record) -> Option<u64> {
    let last = record.counters[counter::MAX_BYTE_READ].max(record.counters[counter::MAX_BYTE_WRITTEN]);
    // 0 may mean the first byte, or no access.
    u64::try_from(last).ok().filter(|&last| last > 0).map(|last| last + 1)
}

#[cfg(test)]
mod tests {
    use super::super::text::{Log, Module};
    use super::*;
    use proptest::prelude::*;

    fn record(counters: &[(usize, i64)]) -> Record {
        let mut log = Log::default();
        log.line(b"POSIX\t0\t1\tPOSIX_OPENS\t1\t/f\t/\text4");
        let mut record = log.records.remove(0);
        assert_eq!((record.module, record.counters[counter::OPENS]), (Module::Posix, 1));
        counters.iter().for_each(|&(at, value)| record.counters[at] = value);
        record
    }

    #[test]
    fn the_commonest_sizes_are_exact_and_the_rest_gives_the_bytes() {
        let record = record(&[
            (counter::READS, 110),
            (counter::BYTES_READ, 100 * 4096 + 10 * 50_000 + 3),
            (counter::READ_SIZES + 2, 100),
            (counter::READ_SIZES + 3, 10),
            (counter::ACCESS_SIZES, 4096),
            (counter::ACCESS_COUNTS, 100),
        ]);
        assert_eq!(sizes(&record, false), (vec![(100, 4096), (7, 50_000), (3, 50_001)], true));
        assert_eq!(sizes(&record, true), (vec![], true));
    }

    #[test]
    fn without_a_histogram_all_have_the_mean() {
        let record = record(&[(counter::WRITES, 3), (counter::BYTES_WRITTEN, 10)]);
        assert_eq!(sizes(&record, true), (vec![(2, 3), (1, 4)], true));
        let (mut first, mut sum) = (Series::new(Operation::new(5, 0, Kind::Write), 11, sizes(&record, true).0), 0);
        let mut times = Vec::new();
        while let Some(operation) = first.take() {
            times.push(operation.time_ns);
            sum += operation.length_bytes;
        }
        assert_eq!((times, sum), (vec![5, 7, 9], 10));
    }

    proptest! {
        #[test]
        fn counts_bins_and_bytes_come_back(sizes_given in proptest::collection::vec(0u64..3 << 30, 1..60), common in 0usize..4) {
            let mut counters = vec![(counter::READS, sizes_given.len() as i64),
                (counter::BYTES_READ, sizes_given.iter().sum::<u64>() as i64)];
            let mut bins = [0; BINS];
            sizes_given.iter().for_each(|&size| bins[bin(size)] += 1);
            counters.extend(bins.iter().enumerate().map(|(at, &n)| (counter::READ_SIZES + at, n)));
            for (at, &size) in sizes_given.iter().take(common).enumerate() {
                counters.push((counter::ACCESS_SIZES + at, size as i64));
                counters.push((counter::ACCESS_COUNTS + at, 1));
            }
            let (groups, fits) = sizes(&record(&counters), false);
            prop_assert!(fits, "{:?} {:?}", groups, sizes_given);
            let mut back = [0; BINS];
            groups.iter().for_each(|&(count, size)| back[bin(size)] += count as i64);
            prop_assert_eq!(back, bins);
            prop_assert_eq!(groups.iter().map(|(count, size)| count * size).sum::<u64>(), sizes_given.iter().sum::<u64>());
        }

        #[test]
        fn reads_and_writes_share_the_common_sizes(
            given in proptest::collection::vec((0u64..200_000, any::<bool>(), 1u64..40), 1..20),
        ) {
            let of = |writes| given.iter().filter(move |(_, is_write, _)| *is_write == writes);
            let mut counters = Vec::new();
            for (writes, [count, bytes, bins]) in [
                (false, [counter::READS, counter::BYTES_READ, counter::READ_SIZES]),
                (true, [counter::WRITES, counter::BYTES_WRITTEN, counter::WRITE_SIZES]),
            ] {
                let mut by_bin = [0; BINS];
                of(writes).for_each(|&(size, _, times)| by_bin[bin(size)] += times as i64);
                counters.extend([(count, by_bin.iter().sum()), (bytes, of(writes).map(|g| (g.0 * g.2) as i64).sum())]);
                counters.extend(by_bin.iter().enumerate().map(|(at, &n)| (bins + at, n)));
            }
            let mut common = std::collections::BTreeMap::new();
            given.iter().for_each(|&(size, _, times)| *common.entry(size).or_insert(0) += times as i64);
            let mut common: Vec<_> = common.into_iter().collect();
            common.sort_by_key(|&(_, times)| std::cmp::Reverse(times));
            for (at, (size, times)) in common.into_iter().take(SIZES).enumerate() {
                counters.extend([(counter::ACCESS_SIZES + at, size as i64), (counter::ACCESS_COUNTS + at, times)]);
            }
            let record = record(&counters);
            for writes in [false, true] {
                let (groups, fits) = sizes(&record, writes);
                prop_assert!(fits, "{groups:?} {given:?}");
                let bytes = |groups: &mut dyn Iterator<Item = (u64, u64)>| groups.map(|(n, size)| n * size).sum::<u64>();
                let wanted = bytes(&mut of(writes).map(|&(size, _, times)| (times, size)));
                prop_assert_eq!(bytes(&mut groups.iter().copied()), wanted);
            }
        }

        #[test]
        fn any_counters_are_borne(values in proptest::collection::vec(any::<i64>(), 41)) {
            let counters: Vec<_> = values.into_iter().enumerate().collect();
            for writes in [false, true] {
                sizes(&record(&counters), writes);
            }
        }
    }
}
