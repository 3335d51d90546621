//! Combines requests into whole-file operations, as Tanenbaum, Herder and Bos counted them: a copy of a 10 MB file is
//! one read.
//!
//! If opens are known, everything read (or written) from open to close is one operation. If they are not (NFS version
//! 3, blocks of a device), requests of one process to one file form one operation as long as each is adjacent or close
//! to what the others covered, none repeats, and little time passes between them. Clients send the requests of a copy
//! concurrently and out of order: hence "close".

use hashbrown::HashMap;

use super::{Kind, Operation};

/// How to combine requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// Longest time between the end of one request and the beginning of the next, if opens are not known.
    pub gap_ns: u64,
    /// Largest distance of a request from the covered range, in bytes.
    pub reach_bytes: u64,
}

impl Default for Rule {
    fn default() -> Rule {
        Rule { gap_ns: 1_000_000_000, reach_bytes: 16 << 20 }
    }
}

/// Largest number of separate ranges: an operation with more is not a copy.
const MOST_PIECES: usize = 64;
/// Largest number of open operations: beyond it, the oldest end.
const MOST_OPEN: usize = 1 << 18;

type Key = (Option<u32>, u32, Option<u32>, bool);

/// An open operation.
#[derive(Debug, Clone)]
struct PendingWhole {
    whole: Operation,
    end_ns: u64,
    requests: u64,
    /// The covered ranges, sorted and disjoint; empty if offsets are not known.
    pieces: Vec<(u64, u64)>,
}

/// Combines requests.
#[derive(Debug, Default)]
pub struct Whole {
    rule: Rule,
    open: HashMap<Key, PendingWhole>,
    /// Time of the last search for ended operations.
    swept_ns: u64,
}

impl Whole {
    /// Creates it with a rule.
    pub fn new(rule: Rule) -> Whole {
        Whole { rule, ..Whole::default() }
    }

    /// Adds an operation; `give` receives all operations that are complete by now, with the number of their requests:
    /// reads and writes when they end, others immediately. Returns whether it is the first request of an operation.
    pub fn add(&mut self, operation: &Operation, give: &mut impl FnMut(Operation, u64)) -> bool {
        if operation.time_ns > self.swept_ns.saturating_add(self.rule.gap_ns) || self.open.len() >= MOST_OPEN {
            self.sweep(operation.time_ns, give);
        }
        if operation.failed || !matches!(operation.kind, Kind::Read | Kind::Write) {
            if operation.kind == Kind::Close {
                for write in [false, true] {
                    let key = key(operation, write);
                    if let Some(run) = self.open.remove(&key) {
                        give(run.whole, run.requests);
                    }
                }
            }
            give(*operation, 1);
            return false;
        }
        let key = key(operation, operation.kind == Kind::Write);
        if let Some(run) = self.open.get_mut(&key) {
            if run.takes(operation, &self.rule) {
                return false;
            }
            give(run.whole, run.requests);
        }
        self.open.insert(key, PendingWhole::new(operation));
        true
    }

    /// Updates the size of a file that is being read or written.
    pub fn see_size(&mut self, operation: &Operation) {
        if let Some(run) = self.open.get_mut(&key(operation, operation.kind == Kind::Write)) {
            run.whole.file_size_bytes = operation.file_size_bytes.or(run.whole.file_size_bytes);
        }
    }

    /// Ends everything that is still open.
    pub fn finish(&mut self, give: &mut impl FnMut(Operation, u64)) {
        let mut runs: Vec<PendingWhole> = self.open.drain().map(|(_, run)| run).collect();
        runs.sort_by_key(|run| (run.end_ns, run.whole.time_ns, run.whole.file));
        runs.into_iter().for_each(|run| give(run.whole, run.requests));
    }

    /// Ends operations that no request can extend any more; if far too many are open, the older half.
    fn sweep(&mut self, now_ns: u64, give: &mut impl FnMut(Operation, u64)) {
        self.swept_ns = now_ns;
        let mut before_ns = now_ns.saturating_sub(self.rule.gap_ns);
        let mut all = false;
        if self.open.len() >= MOST_OPEN {
            let mut ends: Vec<u64> = self.open.values().map(|run| run.end_ns).collect();
            let middle = ends.len() / 2;
            before_ns = before_ns.max(*ends.select_nth_unstable(middle).1).saturating_add(1);
            all = true;
        }
        let over = |key: &Key, run: &PendingWhole| run.end_ns < before_ns && (all || key.2.is_none());
        let mut runs: Vec<PendingWhole> = self.open.extract_if(|key, run| over(key, run)).map(|(_, run)| run).collect();
        runs.sort_by_key(|run| (run.end_ns, run.whole.time_ns, run.whole.file));
        runs.into_iter().for_each(|run| give(run.whole, run.requests));
    }
}

/// What requests of one operation have in common. Several processes may use an open.
fn key(operation: &Operation, write: bool) -> Key {
    let process = if operation.opening.is_some() { 0 } else { operation.process };
    (operation.file, process, operation.opening, write)
}

impl PendingWhole {
    fn new(operation: &Operation) -> PendingWhole {
        let end_ns = operation.time_ns.saturating_add(operation.duration_ns.unwrap_or(0));
        let pieces = operation.offset_bytes.zip(operation.end_bytes()).into_iter().collect();
        PendingWhole { whole: *operation, end_ns, requests: 1, pieces }
    }

    /// Adds a request to the operation, if it belongs to it.
    fn takes(&mut self, operation: &Operation, rule: &Rule) -> bool {
        let piece = operation.offset_bytes.zip(operation.end_bytes());
        let through_an_opening = operation.opening.is_some();
        if !through_an_opening && operation.time_ns > self.end_ns.saturating_add(rule.gap_ns) {
            return false;
        }
        match piece {
            Some((start, end)) if !self.pieces.is_empty() => {
                let Some(next) = self.place(start, end, rule, through_an_opening) else { return false };
                self.join(next, start, end);
            }
            _ => {}
        }
        let end_ns = operation.time_ns.saturating_add(operation.duration_ns.unwrap_or(0));
        self.end_ns = self.end_ns.max(end_ns);
        self.requests += 1;
        let whole = &mut self.whole;
        whole.time_ns = whole.time_ns.min(operation.time_ns);
        whole.duration_ns = Some(self.end_ns - whole.time_ns);
        whole.length_bytes = whole.length_bytes.saturating_add(operation.length_bytes);
        whole.offset_bytes = self.pieces.first().map(|&(start, _)| start).or(whole.offset_bytes);
        whole.file_size_bytes = operation.file_size_bytes.or(whole.file_size_bytes);
        true
    }

    /// Index among the ranges where a range belongs, if it may belong to them.
    fn place(&self, start: u64, end: u64, rule: &Rule, any: bool) -> Option<usize> {
        let next = self.pieces.partition_point(|&(begin, _)| begin < start);
        if any {
            return Some(next);
        }
        let before = next.checked_sub(1).map(|at| self.pieces[at]);
        let behind = self.pieces.get(next).copied();
        // A copy reads nothing twice. An empty read finds the end of a file.
        let again = start < end
            && (before.is_some_and(|(_, last)| last > start) || behind.is_some_and(|(begin, _)| begin < end));
        let near = before.is_some_and(|(_, last)| start.saturating_sub(last) <= rule.reach_bytes)
            || behind.is_some_and(|(begin, _)| begin.saturating_sub(end) <= rule.reach_bytes);
        let apart = before.is_none_or(|(_, last)| last < start) && behind.is_none_or(|(begin, _)| begin > end);
        (!again && near && !(apart && self.pieces.len() >= MOST_PIECES)).then_some(next)
    }

    /// Inserts a range at its index, and joins it with those that it touches.
    fn join(&mut self, next: usize, start: u64, end: u64) {
        let pieces = &mut self.pieces;
        let mut at = next;
        if next > 0 && pieces[next - 1].1 >= start {
            at = next - 1;
            pieces[at].1 = end.max(pieces[at].1);
        } else if pieces.len() >= MOST_PIECES {
            // An open may have any number of ranges; only the first and the last matter then.
            at = next.saturating_sub(1);
            pieces[at] = (pieces[at].0.min(start), pieces[at].1.max(end));
        } else {
            pieces.insert(next, (start, end));
        }
        while let Some(&(begin, last)) = pieces.get(at + 1)
            && begin <= pieces[at].1
        {
            pieces[at].1 = pieces[at].1.max(last);
            pieces.remove(at + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000_000;

    fn request(time_ns: u64, kind: Kind, offset: u64, length: u64) -> Operation {
        Operation {
            duration_ns: Some(1000),
            file: Some(1),
            offset_bytes: Some(offset),
            length_bytes: length,
            ..Operation::new(time_ns, 0, kind)
        }
    }

    fn whole(requests: &[Operation]) -> Vec<Operation> {
        let (mut merger, mut given) = (Whole::default(), Vec::new());
        for request in requests {
            merger.add(request, &mut |operation, _| given.push(operation));
        }
        merger.finish(&mut |operation, _| given.push(operation));
        given
    }

    #[test]
    fn a_copy_is_one_operation_however_it_is_ordered() {
        let mut requests: Vec<Operation> =
            (0..160).map(|n| request(n * 1_000_000, Kind::Read, n * 65_536, 65_536)).collect();
        for pair in requests.chunks_mut(7) {
            pair.reverse();
        }
        requests.push(request(160_000_000, Kind::Read, 160 * 65_536, 0));
        let given = whole(&requests);
        assert_eq!(given.len(), 1);
        assert_eq!((given[0].offset_bytes, given[0].length_bytes, given[0].time_ns), (Some(0), 10 << 20, 0));
        assert_eq!(given[0].duration_ns, Some(160_001_000));
    }

    #[test]
    fn another_copy_is_another_operation() {
        let of = |requests: &[Operation]| whole(requests).iter().map(|o| o.length_bytes).collect::<Vec<_>>();
        // Repeated, long after, a write, by another process, of another file, far away.
        let first = request(0, Kind::Read, 0, 10);
        assert_eq!(of(&[first, request(1, Kind::Read, 0, 10)]), [10, 10]);
        assert_eq!(of(&[first, request(11 * SECOND, Kind::Read, 10, 7)]), [10, 7]);
        assert_eq!(of(&[first, request(SECOND, Kind::Read, 10, 7)]), [17]);
        assert_eq!(of(&[first, request(1, Kind::Write, 10, 7)]), [10, 7]);
        assert_eq!(of(&[first, Operation { process: 1, ..request(1, Kind::Read, 10, 7) }]), [10, 7]);
        assert_eq!(of(&[first, Operation { file: Some(2), ..request(1, Kind::Read, 10, 7) }]), [10, 7]);
        assert_eq!(of(&[first, request(1, Kind::Read, 1 << 30, 7)]), [10, 7]);
        assert_eq!(of(&[first, Operation::new(1, 0, Kind::Stat), request(2, Kind::Read, 10, 7)]), [0, 17]);
    }

    #[test]
    fn through_an_opening_all_is_one_until_it_closes() {
        let through = |operation: Operation, opening| Operation { opening: Some(opening), ..operation };
        let close = Operation { file: Some(1), opening: Some(5), ..Operation::new(100 * SECOND, 0, Kind::Close) };
        let given = whole(&[
            through(request(0, Kind::Read, 0, 10), 5),
            through(request(50 * SECOND, Kind::Read, 0, 10), 5),
            Operation { process: 3, ..through(request(60 * SECOND, Kind::Read, 1 << 40, 10), 5) },
            through(request(60 * SECOND, Kind::Read, 0, 4), 6),
            close,
        ]);
        let list: Vec<_> = given.iter().map(|o| (o.kind, o.opening, o.length_bytes)).collect();
        assert_eq!(list, [(Kind::Read, Some(5), 30), (Kind::Close, Some(5), 0), (Kind::Read, Some(6), 4)]);
    }

    #[test]
    fn what_is_over_does_not_stay() {
        let (mut merger, mut given) = (Whole::default(), 0);
        for n in 0..600_000u32 {
            let one = Operation { file: Some(n), ..request(u64::from(n) * 1000, Kind::Read, 0, 10) };
            merger.add(&one, &mut |_, _| given += 1);
            assert!(merger.open.len() <= MOST_OPEN);
        }
        merger.finish(&mut |_, _| given += 1);
        assert_eq!(given, 600_000);
    }

    proptest! {
        #[test]
        fn no_byte_is_lost_and_none_is_added(
            list in proptest::collection::vec((0u64..30, any::<bool>(), 0u64..1 << 26, 0u64..100_000, proptest::option::of(0u32..3)), 0..200),
        ) {
            let mut time = 0;
            let requests: Vec<Operation> = list
                .into_iter()
                .map(|(pause, read, offset, length, opening)| {
                    time += pause * SECOND / 4;
                    Operation { opening, ..request(time, if read { Kind::Read } else { Kind::Write }, offset, length) }
                })
                .collect();
            let sum = |list: &[Operation], kind| list.iter().filter(|o| o.kind == kind).map(|o| o.length_bytes).sum::<u64>();
            let given = whole(&requests);
            for kind in [Kind::Read, Kind::Write] {
                prop_assert_eq!(sum(&given, kind), sum(&requests, kind));
            }
            prop_assert!(given.len() <= requests.len());
        }
    }
}
