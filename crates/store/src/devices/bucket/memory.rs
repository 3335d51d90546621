//! Ranges of objects in memory, and those on their way there: read ahead, or of an index and read lately.
//!
//! - Objects never change, so nothing here becomes old. No two ranges of an object meet.
//! - A range is announced before it is fetched, by one thread; whoever else wants it waits for that one. If it
//!   fails, it is gone from here, and who waited fetches for himself.
//! - All ranges together, those on their way included, are bounded. Room is made for a range that is wanted now by
//!   dropping the one that was used longest ago; for one that is read ahead, only if that one was used at all, or
//!   nobody came for it for long: streams beside each other do not take what the other one is about to read.

#![cfg_attr(not(test), warn(clippy::indexing_slicing))]

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use crate::devices::published::ObjectName;
use crate::locks::{lock, unpoisoned};

/// How many uses of others it takes until a range that nobody has used may be dropped for reading ahead.
const PATIENCE_USES: u64 = 64;
/// What a range needs besides its bytes.
const OWN_BYTES: u64 = 256;

/// A range of an object.
#[derive(Debug)]
struct Held {
    end: u64,
    /// `None` while it is on its way.
    bytes: Option<Arc<Vec<u8>>>,
    /// The last use, or when it was announced, in uses of all.
    used: u64,
    was_used: bool,
}

#[derive(Debug, Default)]
struct Ranges {
    /// By object and begin.
    held: BTreeMap<(ObjectName, u64), Held>,
    bytes: u64,
    on_their_way: usize,
    uses: u64,
}

/// What is to be done about a range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Announced {
    /// It is here, or on its way.
    Held,
    /// There is no room for it.
    NoRoom,
    /// The caller fetches this part of it, and says what became of it: [`RangeMemory::arrive`].
    Fetch(Range<u64>),
}

/// Ranges of objects in memory.
#[derive(Debug)]
pub(super) struct RangeMemory {
    ranges: Mutex<Ranges>,
    has_arrived: Condvar,
    most_bytes: u64,
    most_on_their_way: usize,
}

impl Ranges {
    /// The range that has a byte: where it begins.
    fn begin_of(&self, object: ObjectName, at: u64) -> Option<u64> {
        let (&(found, begin), held) = self.held.range(..=(object, at)).next_back()?;
        (found == object && at < held.end).then_some(begin)
    }

    /// Where the next range begins.
    fn next_begin(&self, object: ObjectName, at: u64) -> Option<u64> {
        self.held.range((object, at)..).next().filter(|((found, _), _)| *found == object).map(|((_, begin), _)| *begin)
    }

    fn drop_range(&mut self, key: (ObjectName, u64)) {
        if let Some(held) = self.held.remove(&key) {
            self.bytes -= held.end - key.1 + OWN_BYTES;
        }
    }

    /// Drops ranges until there is room; returns whether there is.
    fn make_room(&mut self, bytes: u64, most_bytes: u64, is_ahead: bool) -> bool {
        while self.bytes + bytes > most_bytes {
            let uses = self.uses;
            let may_go =
                |held: &Held| held.bytes.is_some() && (!is_ahead || held.was_used || held.used + PATIENCE_USES < uses);
            let oldest = self.held.iter().filter(|(_, held)| may_go(held)).min_by_key(|(_, held)| held.used);
            match oldest.map(|(key, _)| *key) {
                Some(key) => self.drop_range(key),
                None => return false,
            }
        }
        true
    }
}

impl RangeMemory {
    /// Of at most so many bytes, and so many ranges on their way that are read ahead.
    pub(super) fn new(most_bytes: u64, most_on_their_way: usize) -> RangeMemory {
        RangeMemory { ranges: Mutex::default(), has_arrived: Condvar::new(), most_bytes, most_on_their_way }
    }

    fn lock(&self) -> MutexGuard<'_, Ranges> {
        lock(&self.ranges)
    }

    /// Copies the bytes of an object from an offset on, as far as one range has them; waits for one on its way. Returns
    /// how many.
    pub(super) fn copy(&self, object: ObjectName, at: u64, place: &mut [u8]) -> usize {
        let mut ranges = self.lock();
        let bytes = loop {
            let Some(begin) = ranges.begin_of(object, at) else { return 0 };
            ranges.uses += 1;
            let uses = ranges.uses;
            let Some(held) = ranges.held.get_mut(&(object, begin)) else { return 0 };
            (held.used, held.was_used) = (uses, true);
            if let Some(bytes) = &held.bytes {
                break bytes.get((at - begin) as usize..).map(|_| (Arc::clone(bytes), (at - begin) as usize));
            }
            ranges = unpoisoned(self.has_arrived.wait(ranges));
        };
        drop(ranges);
        let Some((bytes, from)) = bytes else { return 0 };
        let length = place.len().min(bytes.len() - from);
        if let (Some(place), Some(bytes)) = (place.get_mut(..length), bytes.get(from..from + length)) {
            place.copy_from_slice(bytes);
        }
        length
    }

    /// Where the next range after an offset begins, if before `end`; else `end`.
    pub(super) fn next_begin(&self, object: ObjectName, at: u64, end: u64) -> u64 {
        self.lock().next_begin(object, at).map_or(end, |begin| begin.min(end))
    }

    /// Announces that a range is fetched: the part of it around `at` that is not held.
    pub(super) fn announce(&self, object: ObjectName, range: Range<u64>, at: u64) -> Announced {
        let mut ranges = self.lock();
        if ranges.begin_of(object, at).is_some() {
            return Announced::Held;
        }
        let before = ranges.held.range(..(object, at)).next_back().filter(|((found, _), _)| *found == object);
        let begin = before.map_or(range.start, |(_, held)| held.end.max(range.start));
        let end = ranges.next_begin(object, at).map_or(range.end, |next| next.min(range.end));
        self.expect(&mut ranges, object, begin..end, false)
    }

    /// As [`announce`](Self::announce), to read ahead: the first part of the range that is not held.
    pub(super) fn announce_ahead(&self, object: ObjectName, range: Range<u64>) -> Announced {
        let mut ranges = self.lock();
        let mut begin = range.start;
        while let Some(held) = ranges.begin_of(object, begin).and_then(|begin| ranges.held.get(&(object, begin))) {
            begin = held.end;
        }
        let end = ranges.next_begin(object, begin).map_or(range.end, |next| next.min(range.end));
        match begin < range.end {
            false => Announced::Held,
            true if ranges.on_their_way >= self.most_on_their_way => Announced::NoRoom,
            true => self.expect(&mut ranges, object, begin..end, true),
        }
    }

    fn expect(&self, ranges: &mut Ranges, object: ObjectName, range: Range<u64>, is_ahead: bool) -> Announced {
        let bytes = range.end - range.start + OWN_BYTES;
        if !ranges.make_room(bytes, self.most_bytes, is_ahead) {
            return Announced::NoRoom;
        }
        ranges.bytes += bytes;
        ranges.on_their_way += 1;
        ranges.uses += 1;
        let held = Held { end: range.end, bytes: None, used: ranges.uses, was_used: false };
        ranges.held.insert((object, range.start), held);
        Announced::Fetch(range)
    }

    /// A range that was announced is there, or has failed.
    pub(super) fn arrive(&self, object: ObjectName, begin: u64, bytes: Option<&Arc<Vec<u8>>>) {
        let mut ranges = self.lock();
        ranges.on_their_way -= 1;
        let key = (object, begin);
        match (ranges.held.get_mut(&key), bytes) {
            (Some(held), Some(bytes)) if bytes.len() as u64 == held.end - begin => held.bytes = Some(Arc::clone(bytes)),
            _ => ranges.drop_range(key),
        }
        drop(ranges);
        self.has_arrived.notify_all();
    }

    /// Drops the ranges that meet one, except those on their way.
    pub(super) fn forget(&self, object: ObjectName, range: &Range<u64>) {
        let mut ranges = self.lock();
        let found = ranges.held.range((object, 0)..(object, range.end));
        let is_met =
            |(key, held): (&(ObjectName, u64), &Held)| (held.bytes.is_some() && range.start < held.end).then_some(*key);
        let met: Vec<(ObjectName, u64)> = found.filter_map(is_met).collect();
        met.into_iter().for_each(|key| ranges.drop_range(key));
    }

    /// Waits until nothing is on its way.
    #[cfg(test)]
    pub(super) fn settle(&self) {
        let mut ranges = self.lock();
        while ranges.on_their_way > 0 {
            ranges = unpoisoned(self.has_arrived.wait(ranges));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(number: u64) -> ObjectName {
        ObjectName::of(&format!("fast/{number:016x}-{:016x}-{:08x}", 7, 9)).unwrap()
    }

    fn bytes(range: &Range<u64>) -> Arc<Vec<u8>> {
        Arc::new(range.clone().map(|at| at as u8).collect())
    }

    fn hold(memory: &RangeMemory, number: u64, range: Range<u64>) {
        assert_eq!(memory.announce(object(number), range.clone(), range.start), Announced::Fetch(range.clone()));
        memory.arrive(object(number), range.start, Some(&bytes(&range)));
    }

    fn read(memory: &RangeMemory, number: u64, range: Range<u64>) -> Vec<u8> {
        let mut place = vec![0; (range.end - range.start) as usize];
        let length = memory.copy(object(number), range.start, &mut place);
        place.truncate(length);
        place
    }

    #[test]
    fn ranges_give_what_they_have_and_others_are_fetched_between_them() {
        let memory = RangeMemory::new(1 << 20, 8);
        hold(&memory, 1, 100..200);
        hold(&memory, 1, 300..400);
        assert_eq!(read(&memory, 1, 150..180), *bytes(&(150..180)));
        assert_eq!(read(&memory, 1, 150..250), *bytes(&(150..200)));
        for nothing in [0..50, 200..250, 400..500] {
            assert!(read(&memory, 1, nothing).is_empty());
        }
        assert!(read(&memory, 0, 100..200).is_empty() && read(&memory, 2, 100..200).is_empty());
        assert_eq!(memory.next_begin(object(1), 200, 280), 280);
        assert_eq!(memory.next_begin(object(1), 200, 380), 300);
        assert_eq!(memory.announce(object(1), 0..500, 120), Announced::Held);
        assert_eq!(memory.announce(object(1), 0..500, 250), Announced::Fetch(200..300));
        assert_eq!(memory.announce_ahead(object(1), 100..500), Announced::Fetch(400..500));
        assert_eq!(memory.announce_ahead(object(1), 100..500), Announced::Held, "some of it on its way");
        memory.arrive(object(1), 200, None);
        memory.arrive(object(1), 400, Some(&bytes(&(400..410))));
        assert!(read(&memory, 1, 200..300).is_empty(), "it failed");
        assert!(read(&memory, 1, 400..500).is_empty(), "too little arrived");
        memory.forget(object(1), &(199..300));
        assert!(read(&memory, 1, 100..200).is_empty());
        assert_eq!(read(&memory, 1, 300..400), *bytes(&(300..400)));
    }

    #[test]
    fn what_was_used_longest_ago_goes_and_what_nobody_used_yet_does_not_for_reading_ahead() {
        let room = |ranges: u64| ranges * (100 + OWN_BYTES);
        let memory = RangeMemory::new(room(3), 2);
        (0..3).for_each(|at| hold(&memory, at, 0..100));
        assert_eq!(memory.announce_ahead(object(3), 0..100), Announced::NoRoom, "nobody has used them");
        assert_eq!(read(&memory, 1, 0..100).len(), 100);
        assert_eq!(memory.announce_ahead(object(3), 0..100), Announced::Fetch(0..100));
        assert!(read(&memory, 1, 0..100).is_empty(), "it made room");
        assert_eq!(memory.announce(object(4), 0..100, 0), Announced::Fetch(0..100));
        assert!(read(&memory, 0, 0..100).is_empty(), "the oldest goes for what is wanted now");
        assert_eq!(memory.announce_ahead(object(5), 0..100), Announced::NoRoom, "two are on their way");
        memory.arrive(object(3), 0, Some(&bytes(&(0..100))));
        memory.arrive(object(4), 0, Some(&bytes(&(0..100))));
        (0..PATIENCE_USES + 2).for_each(|_| assert!(!read(&memory, 4, 0..100).is_empty()));
        assert_eq!(memory.announce_ahead(object(5), 0..100), Announced::Fetch(0..100), "nobody came for one of them");
        assert!(read(&memory, 2, 0..100).is_empty());
        assert_eq!(memory.announce(object(6), 0..room(3), 0), Announced::NoRoom);
    }

    #[test]
    fn whoever_wants_what_is_on_its_way_waits_for_it() {
        let memory = RangeMemory::new(1 << 20, 8);
        assert_eq!(memory.announce(object(1), 0..100, 50), Announced::Fetch(0..100));
        std::thread::scope(|scope| {
            let waiting: Vec<_> = (0..4).map(|_| scope.spawn(|| read(&memory, 1, 10..60))).collect();
            memory.arrive(object(1), 0, Some(&bytes(&(0..100))));
            waiting.into_iter().for_each(|one| assert_eq!(one.join().unwrap(), *bytes(&(10..60))));
        });
        assert_eq!(memory.announce(object(2), 0..100, 50), Announced::Fetch(0..100));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| read(&memory, 2, 10..60));
            memory.arrive(object(2), 0, None);
            assert!(waiting.join().unwrap().is_empty(), "it fetches for itself");
        });
    }
}
