//! What the histories of several superblocks imply together: which is the newest, which devices lag behind or continued
//! alone, and whether a writer sees enough to open (docs/FORMAT.md, law 5 and section 4). Nothing is read or written
//! here.
//!
//! An epoch is **void** if a device of its set does not have it: it begins on all of its set before anything is
//! acknowledged in it, so nothing was. A crash between the superblocks leaves such epochs, and they are ignored if
//! other devices continued without them. But if something was written in an epoch that a device of its set lacks, the
//! device is an old one, or of a copy of the store. Histories in which something was written, and of which each epoch
//! that the other lacks counts a device of the other, are of **twins**: a store and its copy, with devices of both in
//! one place. Where the log of an epoch is not in sight, it counts as written to if it would make the two twins.
//!
//! Why more than half of the last set is enough: every change of the set is an epoch that all devices of the set have
//! before anything is acknowledged in it. A later epoch would also have begun with more than half of this set, so some
//! device seen here would have it. The set of an epoch that perhaps was never established is not enough by itself:
//! others may have continued from the previous one (Jajodia and Mutchler, "Dynamic Voting Algorithms for Maintaining
//! the Consistency of a Replicated Database", ACM TODS 15 (2), 1990).

use crate::format::history::{EpochEntry, History};
use crate::format::ids::{DeviceNumber, Epoch};

/// How a device relates to the current history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It has the newest epoch, and is in its set.
    InSync,
    /// It lacks the newest epochs, and these are void: a crash came between the superblocks. In sync if the log has no
    /// batch of the last of them.
    Late,
    /// It was missing, or is old: the number of epochs that it missed.
    Stale(usize),
    /// It continued on its own.
    Diverged,
}

/// A history that no other continues, and the devices on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Side {
    pub(crate) history: History,
    /// Devices with epochs that no other side has.
    pub(crate) devices: Vec<DeviceNumber>,
}

/// How one history relates to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Relation {
    Same,
    /// The other continues it.
    Prefix,
    /// It continues the other.
    Extension,
    Diverged,
}

/// How `one` relates to `other`.
pub(crate) fn relation(one: &History, other: &History) -> Relation {
    let (newest, others) = (one.newest().epoch, other.newest().epoch);
    match (newest == others, other.contains(newest), one.contains(others)) {
        (true, ..) => Relation::Same,
        (_, true, _) => Relation::Prefix,
        (.., true) => Relation::Extension,
        _ => Relation::Diverged,
    }
}

/// Superblocks that were read, with their devices.
pub(crate) type SeenHistories<'h> = [(DeviceNumber, &'h History)];

fn is_void(entry: &EpochEntry, seen: &SeenHistories<'_>) -> bool {
    seen.iter().any(|(device, history)| entry.has(*device) && !history.contains(entry.epoch))
}

/// Whether a later epoch of a history began after more batches: something was written in this one.
fn is_used(entry: &EpochEntry, of: &History) -> bool {
    of.last_batch_of(entry.epoch).is_some_and(|last| last > entry.last_batch)
}

/// The epochs of a history that another one lacks, newest first.
fn alone<'h>(of: &'h History, without: &'h History) -> impl Iterator<Item = &'h EpochEntry> {
    let count = of.entries().rev().take_while(|entry| !without.contains(entry.epoch)).count();
    of.entries().rev().take(count)
}

/// Whether an epoch counts a device that another one counts too, and that has it. A device whose side was rejected has
/// the history of the other, in which no epoch counts it.
fn counts(set: &EpochEntry, with: &EpochEntry, seen: &SeenHistories<'_>) -> bool {
    seen.iter().any(|(device, history)| set.has(*device) && with.has(*device) && history.contains(with.epoch))
}

/// Whether two histories are of a store and its copy, if something was written in both: all epochs in which they differ
/// count a device of the other. Whoever began the last of them would have seen there what the other has.
fn are_twins(one: &History, other: &History, seen: &SeenHistories<'_>) -> bool {
    let all_count = |of: &History, other: &History| {
        let first = alone(other, of).last();
        first.is_some_and(|first| alone(of, other).all(|entry| counts(entry, first, seen)))
    };
    all_count(one, other) && all_count(other, one)
}

/// Whether the devices with a history may be of a copy of the store: the first epochs in which the histories differ
/// each count a device of the other, from which each may have gone on alone since; or something may have been written
/// in an epoch of one that counts a device of the other, which lacks it, so that device is of a copy, or an old one
/// that went on alone. Then files of the same names may have other content on both.
pub(crate) fn may_be_of_copy(own: &History, newest: &History, seen: &SeenHistories<'_>) -> bool {
    let (Some(first_own), Some(first_newest)) = (alone(own, newest).last(), alone(newest, own).last()) else {
        return false;
    };
    let is_written = |entry: &EpochEntry, of: &History| is_used(entry, of) || entry.epoch == of.newest().epoch;
    let count = |of: &History, without: &History, first: &EpochEntry| {
        alone(of, without).any(|entry| is_written(entry, of) && counts(entry, first, seen))
    };
    counts(first_own, first_newest, seen) && counts(first_newest, first_own, seen)
        || count(own, newest, first_newest)
        || count(newest, own, first_own)
}

/// Whether something was written in epochs that a device has and `known` lacks, which never had them. `marked` is the
/// last batch of the device that was durable.
pub(crate) fn goes_on(own: &History, known: &History, marked: u64) -> bool {
    let is_written =
        |entry: &EpochEntry| is_used(entry, own) || entry.epoch == own.newest().epoch && marked > entry.last_batch;
    !ends_before(own, known) && alone(own, known).any(is_written)
}

/// Whether `old` may be a prefix of `newest` whose epochs were all dropped from it: they have none in common, and no
/// batch of `old` is after the oldest one that `newest` still has.
fn ends_before(old: &History, newest: &History) -> bool {
    let is_after = |oldest: &EpochEntry| oldest.last_batch >= old.newest().last_batch;
    newest.entries().next().is_some_and(is_after) && !old.entries().any(|entry| newest.contains(entry.epoch))
}

/// Whether `old` is for certain a prefix of `newest` that was dropped from it whole: a device that has `newest` was in
/// the last set of `old`, and in each one before it, back to the last epoch known to be established and without that
/// one, which began on all of its set. Without such a device, those with `old` may have written something alone.
fn is_dropped_prefix(old: &History, newest: &History, seen: &SeenHistories<'_>) -> bool {
    let current = newest.newest().epoch;
    let Some(oldest) = newest.entries().next() else { return false };
    let has_both = |entry: &EpochEntry| {
        let is_on = |device: DeviceNumber, history: &History| entry.has(device) && history.contains(current);
        seen.iter().any(|&(device, history)| is_on(device, history) && oldest.has(device))
    };
    let mut last_batch_after = 0;
    for entry in old.entries().rev() {
        let is_established = last_batch_after > entry.last_batch;
        if is_established {
            break;
        }
        if !has_both(entry) {
            return false;
        }
        last_batch_after = entry.last_batch;
    }
    ends_before(old, newest)
}

/// The sides of what was seen: one, unless some devices have diverged. A `witness` (a home, or the superblock from
/// which the search began) is not a device and is on no side, but may know a newer epoch; one that is older than all
/// that a device still has says nothing. `written` says of a newest epoch whether something was written in it, if that
/// is known.
pub(crate) fn sides(
    seen: &SeenHistories<'_>,
    witnesses: &[&History],
    written: &dyn Fn(&EpochEntry) -> Option<bool>,
) -> Vec<Side> {
    // The histories that are no prefix of another one.
    let mut newest: Vec<&History> = Vec::new();
    for history in seen.iter().map(|(_, history)| *history).chain(witnesses.iter().copied()) {
        if newest.iter().any(|known| matches!(relation(history, known), Relation::Same | Relation::Prefix)) {
            continue;
        }
        newest.retain(|known| relation(known, history) != Relation::Prefix);
        newest.push(history);
    }
    // Without those that were dropped from another one.
    if newest.len() > 1 {
        let is_of_device = |side: &History| seen.iter().any(|(_, history)| history.contains(side.newest().epoch));
        let is_obsolete = |side: &History, other: &History| match is_of_device(side) {
            true => is_dropped_prefix(side, other, seen) && !is_dropped_prefix(other, side, seen),
            false => is_of_device(other) && ends_before(side, other),
        };
        let current = newest.iter().filter(|side| !newest.iter().any(|other| is_obsolete(side, other)));
        newest = current.copied().collect();
    }
    // Without those in whose own epochs nothing was written.
    if newest.len() > 1 {
        let is_shared = |side: &History, epoch: Epoch| {
            newest.iter().any(|other| !std::ptr::eq(*other, side) && other.contains(epoch))
        };
        let is_twin = |side: &&History| newest.iter().any(|other| are_twins(side, other, seen));
        let is_empty = |side: &&History| {
            let mut own = side.entries().rev().take_while(|entry| !is_shared(side, entry.epoch));
            own.all(|entry| is_void(entry, seen) && !is_used(entry, side))
                && !written(side.newest()).unwrap_or_else(|| is_twin(side))
        };
        let used: Vec<&History> = newest.iter().filter(|side| !is_empty(side)).copied().collect();
        if used.is_empty() {
            // Nothing was acknowledged on any side: choose one deterministically.
            newest.sort_by_key(|side| side.newest().epoch);
            newest.truncate(1);
        } else {
            newest = used;
        }
    }
    let on_side = |side: &History| {
        let is_on = |history: &History| {
            let epoch = history.newest().epoch;
            side.contains(epoch) && newest.iter().all(|other| std::ptr::eq(*other, side) || !other.contains(epoch))
        };
        seen.iter().filter(|(_, history)| is_on(history)).map(|&(device, _)| device).collect()
    };
    newest.iter().map(|&side| Side { history: side.clone(), devices: on_side(side) }).collect()
}

/// The newest epoch that all sides have.
pub(crate) fn last_common(sides: &[Side]) -> Option<&EpochEntry> {
    let (first, others) = sides.split_first()?;
    first.history.entries().rev().find(|entry| others.iter().all(|side| side.history.contains(entry.epoch)))
}

/// The side that readers use: the only one, or the one with more devices of the last common set than any other. `None`:
/// undecidable.
pub(crate) fn preferred(sides: &[Side]) -> Option<usize> {
    if sides.len() == 1 {
        return Some(0);
    }
    let common = last_common(sides)?;
    let mut counts: Vec<(usize, usize)> =
        sides.iter().map(|side| side.devices.iter().filter(|&&device| common.has(device)).count()).zip(0..).collect();
    counts.sort_by_key(|&(count, _)| std::cmp::Reverse(count));
    match counts[..] {
        [(most, side), (next, _), ..] if most > next => Some(side),
        _ => None,
    }
}

/// How a device with `history` relates to the current history. `marked` is the last batch that was durable according to
/// a mark on a device with the newest epoch.
pub(crate) fn standing(
    device: DeviceNumber,
    history: &History,
    newest: &History,
    seen: &SeenHistories<'_>,
    marked: u64,
) -> Standing {
    // The device itself may be the one that does not have an epoch.
    let is_void = |entry: &EpochEntry| is_void(entry, seen) || is_void(entry, &[(device, history)]);
    let missed = history.entries().rev().find_map(|entry| newest.after(entry.epoch));
    let Some(missed) = missed.filter(|_| alone(history, newest).all(is_void)) else {
        return match is_dropped_prefix(history, newest, seen) {
            true => Standing::Stale(newest.entries().count()),
            false => Standing::Diverged,
        };
    };
    if missed.clone().next().is_none() {
        return if newest.newest().has(device) { Standing::InSync } else { Standing::Stale(0) };
    }
    // Nothing was acknowledged in a void epoch, unless the device that lacks it is an old copy.
    let last_batch = newest.newest().last_batch.max(marked);
    let is_unused = |entry: &EpochEntry| is_void(entry) && entry.last_batch == last_batch;
    if missed.clone().all(is_unused) { Standing::Late } else { Standing::Stale(missed.count()) }
}

/// What a writer knows before it writes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WriterView<'s> {
    /// Devices that have the newest epoch, or lack only unused ones.
    pub(crate) in_sync: &'s [DeviceNumber],
    /// All superblocks, including those of old copies.
    pub(crate) seen: &'s SeenHistories<'s>,
    /// The last batch that was durable according to a mark.
    pub(crate) marked: u64,
    /// A device declared lost, which is not waited for.
    pub(crate) lost: Option<DeviceNumber>,
}

impl WriterView<'_> {
    /// Whether an epoch certainly began on all of its set: all of them have it, or something was written in it.
    fn is_established(&self, entry: &EpochEntry, last_batch_after: u64) -> bool {
        let has = |device: &DeviceNumber| {
            self.seen.iter().any(|(seen, history)| seen == device && history.contains(entry.epoch))
        };
        last_batch_after > entry.last_batch || entry.in_sync.iter().all(has)
    }

    /// Whether more than half of a set is in sync; or half of it, with the other half visible, which then cannot be
    /// part of a majority elsewhere.
    fn is_enough_of(&self, entry: &EpochEntry) -> bool {
        let wanted: Vec<&DeviceNumber> = entry.in_sync.iter().filter(|device| Some(**device) != self.lost).collect();
        let in_sync = wanted.iter().filter(|device| self.in_sync.contains(device)).count();
        let in_sight = wanted.iter().filter(|device| self.seen.iter().any(|(seen, _)| seen == **device)).count();
        in_sync > 0 && (2 * in_sync > wanted.len() || 2 * in_sync == wanted.len() && in_sight == wanted.len())
    }

    /// Whether this suffices to write: of the last set, and of earlier ones as long as it is unknown whether the
    /// following epoch was established.
    pub(crate) fn has_proof(&self, newest: &History) -> bool {
        let mut last_batch_after = self.marked;
        for entry in newest.entries().rev() {
            if !self.is_enough_of(entry) {
                return false;
            }
            if self.is_established(entry, last_batch_after) {
                break;
            }
            last_batch_after = entry.last_batch;
        }
        true
    }
}

/// For messages, where and when each side of a divergence continued.
pub(crate) fn departures(sides: &[Side]) -> Vec<(&Side, &EpochEntry)> {
    let common = last_common(sides).map(|entry| entry.epoch);
    let first_alone = |side: &'_ Side| -> Option<usize> {
        common.and_then(|common| side.history.entries().position(|entry| entry.epoch == common)).map(|at| at + 1)
    };
    sides.iter().filter_map(|side| Some((side, side.history.entries().nth(first_alone(side).unwrap_or(0))?))).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::format::history::MOST_EPOCHS;

    /// The sides, if nothing is known to have been written in a newest epoch.
    fn sides(seen: &SeenHistories<'_>, witnesses: &[&History]) -> Vec<Side> {
        super::sides(seen, witnesses, &|_| Some(false))
    }

    fn entry(epoch: u64, last_batch: u64, set: &[u16]) -> EpochEntry {
        EpochEntry {
            epoch: Epoch(epoch),
            began_nanoseconds: 0,
            segments_begun: 0,
            last_batch,
            in_sync: set.iter().map(|&number| DeviceNumber(number)).collect(),
        }
    }

    /// A history of epochs with these numbers and sets.
    fn history(epochs: &[(u64, &[u16])]) -> History {
        let ((first, set), others) = epochs.split_first().unwrap();
        let begin = History::new(entry(*first, *first, set));
        others.iter().fold(begin, |history, (epoch, set)| history.followed_by(entry(*epoch, *epoch, set)))
    }

    fn standing_of(device: u16, history: &History, newest: &History) -> Standing {
        standing(DeviceNumber(device), history, newest, &[], 0)
    }

    fn devices(numbers: &[u16]) -> Vec<DeviceNumber> {
        numbers.iter().map(|&number| DeviceNumber(number)).collect()
    }

    #[test]
    fn relations_are_what_the_names_say() {
        let old = history(&[(1, &[0, 1])]);
        let newer = history(&[(1, &[0, 1]), (2, &[0])]);
        let other = history(&[(1, &[0, 1]), (3, &[1])]);
        assert_eq!(relation(&old, &old), Relation::Same);
        assert_eq!((relation(&old, &newer), relation(&newer, &old)), (Relation::Prefix, Relation::Extension));
        assert_eq!((relation(&other, &newer), relation(&newer, &other)), (Relation::Diverged, Relation::Diverged));
    }

    #[test]
    fn one_that_was_away_is_stale_and_two_that_went_on_alone_have_diverged() {
        let old = history(&[(1, &[0, 1])]);
        let first = history(&[(1, &[0, 1]), (2, &[0])]);
        let second = history(&[(1, &[0, 1]), (3, &[1]), (4, &[1])]);
        let seen = [(DeviceNumber(0), &first), (DeviceNumber(1), &old)];
        let found = sides(&seen, &[]);
        assert_eq!((found.len(), &found[0].history, &found[0].devices), (1, &first, &devices(&[0, 1])));
        assert_eq!(standing_of(1, &old, &first), Standing::Stale(1));
        assert_eq!(standing_of(0, &first, &first), Standing::InSync);
        // Visible again but not repaired.
        assert_eq!(standing_of(1, &first, &first), Standing::Stale(0));

        let seen = [(DeviceNumber(0), &first), (DeviceNumber(1), &second)];
        let found = sides(&seen, &[&old]);
        assert_eq!(found.iter().map(|side| side.devices.clone()).collect::<Vec<_>>(), [devices(&[0]), devices(&[1])]);
        assert_eq!(preferred(&found), None);
        assert_eq!(last_common(&found).unwrap().epoch, Epoch(1));
        let alone: Vec<_> = departures(&found).iter().map(|(_, entry)| entry.epoch).collect();
        assert_eq!(alone, [Epoch(2), Epoch(3)]);
        assert_eq!(standing_of(1, &second, &first), Standing::Diverged);
    }

    #[test]
    fn readers_take_the_side_with_more_devices() {
        let pair = history(&[(1, &[0, 1, 2]), (2, &[0, 1])]);
        let alone = history(&[(1, &[0, 1, 2]), (3, &[2])]);
        let seen = [(DeviceNumber(2), &alone), (DeviceNumber(0), &pair), (DeviceNumber(1), &pair)];
        let found = sides(&seen, &[]);
        assert_eq!(found[preferred(&found).unwrap()].history, pair);
        // Two stores of one identity, with no common epoch.
        let stranger = history(&[(9, &[2])]);
        assert_eq!(preferred(&sides(&[(DeviceNumber(0), &pair), (DeviceNumber(2), &stranger)], &[])), None);
    }

    #[test]
    fn a_crash_between_superblocks_makes_nobody_old() {
        let before = history(&[(1, &[0, 1])]);
        let begun =
            |last: [u64; 2]| before.followed_by(entry(2, last[0], &[0, 1])).followed_by(entry(3, last[1], &[0, 1]));
        assert_eq!(standing_of(1, &before, &begun([5, 5])), Standing::Late);
        // Something was written in epoch 2, which this device should have and lacks: it is an old copy.
        assert_eq!(standing_of(1, &before, &begun([5, 6])), Standing::Stale(2));
        assert_eq!(standing_of(1, &before, &before.followed_by(entry(2, 5, &[0]))), Standing::Stale(1));
    }

    #[test]
    fn a_store_and_its_copy_have_diverged_once_both_were_written_to() {
        let before = history(&[(1, &[0, 1])]);
        for written in [Some(true), None] {
            for (one, other) in [(1, 1), (1, 3), (3, 2)] {
                let later = |first: u64, count: u64| {
                    (first..first + count)
                        .fold(before.clone(), |history, next| history.followed_by(entry(next, 5, &[0, 1])))
                };
                let (one, other) = (later(10, one), later(20, other));
                let seen = [(DeviceNumber(0), &one), (DeviceNumber(1), &other)];
                let found = super::sides(&seen, &[&one], &|_| written);
                let on: Vec<_> = found.iter().map(|side| side.devices.clone()).collect();
                assert_eq!((on, preferred(&found)), (vec![devices(&[0]), devices(&[1])], None));
                // Nothing was written in one of them: a crash between superblocks left it.
                let is_of_one = |entry: &EpochEntry| Some(one.contains(entry.epoch));
                assert_eq!(super::sides(&seen, &[], &is_of_one)[0].history, one);
            }
        }
        // One device of the copy among four of the store.
        let before = history(&[(1, &[0, 1, 2, 3, 4])]);
        let store = before.followed_by(entry(2, 1, &[0, 1, 2, 3, 4]));
        let copy = before.followed_by(entry(3, 1, &[0, 1, 2, 3, 4]));
        let seen: Vec<_> =
            (0..5).map(|device| (DeviceNumber(device), if device == 3 { &copy } else { &store })).collect();
        let found = super::sides(&seen, &[], &|_| None);
        assert_eq!((found.len(), &found[preferred(&found).unwrap()].history), (2, &store));
        // The store has gone on without it.
        let store = store.followed_by(entry(4, 2, &[0, 1, 2, 4]));
        let seen: Vec<_> =
            (0..5).map(|device| (DeviceNumber(device), if device == 3 { &copy } else { &store })).collect();
        assert!(!are_twins(&store, &copy, &seen) && may_be_of_copy(&copy, &store, &seen));
    }

    #[test]
    fn a_copy_is_told_also_if_one_side_went_on_without_the_devices_of_the_other() {
        let before = history(&[(1, &[0, 1, 2])]);
        // The store without device 0, its copy without device 2; of the copy, only device 0 is in sight.
        let store = before.followed_by(entry(2, 1, &[1, 2]));
        let copy = before.followed_by(entry(3, 1, &[0, 1]));
        let seen = [(DeviceNumber(0), &copy), (DeviceNumber(1), &store), (DeviceNumber(2), &store)];
        assert!(!are_twins(&store, &copy, &seen));
        assert!(may_be_of_copy(&copy, &store, &seen) && may_be_of_copy(&store, &copy, &seen));
        // Of one store, each side alone: no epoch counts a device of the other.
        let other = before.followed_by(entry(4, 1, &[0]));
        let seen = [(DeviceNumber(0), &other), (DeviceNumber(1), &store), (DeviceNumber(2), &store)];
        assert!(!may_be_of_copy(&other, &store, &seen) && !may_be_of_copy(&store, &other, &seen));
        // Nor does a crash between superblocks before that.
        let crashed = before.followed_by(entry(5, 1, &[0, 1, 2])).followed_by(entry(6, 1, &[0]));
        let seen = [(DeviceNumber(0), &crashed), (DeviceNumber(1), &store), (DeviceNumber(2), &store)];
        assert!(!may_be_of_copy(&crashed, &store, &seen));
        // Device 0 was rejected before: it has the history of the store, in which no epoch counts it.
        let rest = before.followed_by(entry(7, 1, &[0, 3]));
        let seen = [(DeviceNumber(0), &store), (DeviceNumber(1), &store), (DeviceNumber(3), &rest)];
        assert!(!may_be_of_copy(&rest, &store, &seen));
    }

    #[test]
    fn a_device_goes_on_if_something_was_written_in_epochs_that_nobody_else_knows() {
        let known = history(&[(1, &[0, 1])]);
        let newer = known.followed_by(entry(2, 5, &[0, 1]));
        assert!(!goes_on(&newer, &known, 5) && goes_on(&newer, &known, 6));
        assert!(goes_on(&newer.followed_by(entry(3, 6, &[0, 1])), &known, 0), "a later epoch began after more batches");
        assert!(!goes_on(&known, &newer, 9), "an old one");
    }

    #[test]
    fn one_without_the_newest_epoch_is_an_old_copy_if_a_mark_says_that_it_was_used() {
        let old = history(&[(1, &[0, 1, 2])]);
        let newest = old.followed_by(entry(2, 5, &[0, 1, 2]));
        let seen = [(DeviceNumber(0), &newest), (DeviceNumber(1), &newest), (DeviceNumber(2), &old)];
        assert_eq!(standing(DeviceNumber(2), &old, &newest, &seen, 5), Standing::Late);
        assert_eq!(standing(DeviceNumber(2), &old, &newest, &seen, 6), Standing::Stale(1));
    }

    #[test]
    fn an_epoch_that_was_begun_on_some_and_never_used_is_no_side() {
        let before = history(&[(1, &[0, 1, 2])]);
        let crashed = before.followed_by(entry(2, 1, &[0, 1, 2]));
        let after = before.followed_by(entry(3, 1, &[1, 2]));
        let seen = [(DeviceNumber(0), &crashed), (DeviceNumber(1), &after), (DeviceNumber(2), &after)];
        let found = sides(&seen, &[]);
        assert_eq!((found.len(), &found[0].history), (1, &after));
        // It is in no set of those that continued.
        assert_eq!(standing(DeviceNumber(0), &crashed, &after, &seen, 0), Standing::Stale(1));
        // Two crashes, each on different devices: nothing was acknowledged in either epoch.
        let seen = [(DeviceNumber(0), &crashed), (DeviceNumber(1), &after), (DeviceNumber(2), &before)];
        assert_eq!(sides(&seen, &[]).len(), 1);
        // Begun by a writer that had only this device: not void.
        let alone = before.followed_by(entry(4, 1, &[0]));
        let seen = [(DeviceNumber(0), &alone), (DeviceNumber(1), &after), (DeviceNumber(2), &after)];
        assert_eq!(sides(&seen, &[]).len(), 2);
    }

    /// The history after so many more epochs of a set, each with a batch.
    fn later(history: &History, epochs: u64, set: &[u16]) -> History {
        let last = history.newest().last_batch;
        (last + 1..=last + epochs).fold(history.clone(), |history, next| history.followed_by(entry(next, next, set)))
    }

    #[test]
    fn a_witness_older_than_all_that_a_device_still_has_says_nothing() {
        // A device was lost and replaced, which is when the home was last written.
        let of_home = history(&[(1, &[0, 1]), (2, &[1]), (3, &[0, 1])]);
        for (epochs, is_dropped) in [(20, false), (MOST_EPOCHS as u64 + 10, true)] {
            let current = later(&of_home, epochs, &[0, 1]);
            assert_eq!(relation(&of_home, &current) == Relation::Diverged, is_dropped);
            // The other device is away.
            let seen = [(DeviceNumber(0), &current)];
            let found = sides(&seen, &[&of_home]);
            assert_eq!((found.len(), &found[0].history), (1, &current));
        }
        // What the device has is older than the home.
        let newer = later(&of_home, MOST_EPOCHS as u64 + 10, &[1]);
        let seen = [(DeviceNumber(0), &of_home)];
        assert!(sides(&seen, &[&newer]).iter().any(|side| side.history == newer));
    }

    #[test]
    fn a_device_that_was_away_for_longer_than_histories_reach_is_stale() {
        let old = history(&[(1, &[0, 1]), (2, &[1]), (3, &[0, 1])]);
        let current = later(&old, MOST_EPOCHS as u64 + 10, &[0]);
        let seen = [(DeviceNumber(0), &current), (DeviceNumber(1), &old)];
        let found = sides(&seen, &[]);
        assert_eq!((found.len(), &found[0].history, &found[0].devices), (1, &current, &devices(&[0])));
        assert_eq!(standing(DeviceNumber(1), &old, &current, &seen, 0), Standing::Stale(MOST_EPOCHS));
        assert_eq!(standing(DeviceNumber(0), &current, &current, &seen, 0), Standing::InSync);

        // It went on alone, with fewer batches than the other has had since, or is perhaps the only one that has an
        // epoch of both.
        let alone = old.followed_by(entry(1000, 4, &[1]));
        let rejoined = alone.followed_by(entry(1001, 4, &[0, 1]));
        // It has more batches than the other had when its history begins.
        let ahead = old.followed_by(entry(1000, 100, &[0, 1]));
        for own in [&alone, &rejoined, &ahead] {
            let seen = [(DeviceNumber(0), &current), (DeviceNumber(1), own)];
            assert_eq!(standing(DeviceNumber(1), own, &current, &seen, 0), Standing::Diverged, "{:?}", own.newest());
            assert_eq!(sides(&seen, &[]).len(), 2);
        }
        // Something was written in the epoch of both: the other had it.
        let used = rejoined.followed_by(entry(1002, 5, &[0, 1]));
        let seen = [(DeviceNumber(0), &current), (DeviceNumber(1), &used)];
        assert_eq!(standing(DeviceNumber(1), &used, &current, &seen, 0), Standing::Stale(MOST_EPOCHS));
    }

    fn has_proof(newest: &History, in_sync: &[u16], seen: &[(u16, &History)], lost: Option<u16>) -> bool {
        let seen: Vec<_> = seen.iter().map(|&(device, history)| (DeviceNumber(device), history)).collect();
        let in_sync = devices(in_sync);
        WriterView { in_sync: &in_sync, seen: &seen, marked: 0, lost: lost.map(DeviceNumber) }.has_proof(newest)
    }

    #[test]
    fn proof_is_more_than_half_of_the_last_set() {
        for (set, there, lost, expected) in [
            (&[0][..], &[0][..], None, true),
            (&[0, 1], &[0], None, false),
            (&[0, 1], &[0], Some(1), true),
            (&[0, 1], &[0], Some(0), false),
            (&[0, 1, 2], &[0, 2], None, true),
            (&[0, 1, 2], &[2], None, false),
            (&[0, 1, 2], &[2], Some(1), false),
            // Devices outside the set prove nothing.
            (&[0, 1, 2], &[2, 3, 4, 5], None, false),
            (&[0], &[], Some(0), false),
        ] {
            let newest = history(&[(1, set)]);
            let seen: Vec<_> = there.iter().map(|&device| (device, &newest)).collect();
            assert_eq!(has_proof(&newest, there, &seen, lost), expected, "{set:?} {there:?} {lost:?}");
        }
        // The other is visible, and has lost its content.
        let old = history(&[(1, &[0, 1])]);
        let newest = history(&[(1, &[0, 1]), (2, &[0, 1])]);
        assert!(!has_proof(&newest, &[0], &[(0, &newest)], None));
        assert!(has_proof(&newest, &[0], &[(0, &newest), (1, &old)], None));
    }

    #[test]
    fn a_smaller_set_counts_once_it_has_come_to_be() {
        let before = history(&[(1, &[0, 1, 2, 3, 4])]);
        let shrunk = before.followed_by(entry(2, 1, &[0, 1, 2]));
        // Device 0 is missing: it is unknown whether all three had the epoch.
        assert!(!has_proof(&shrunk, &[1, 2], &[(1, &shrunk), (2, &shrunk)], None));
        assert!(has_proof(&shrunk, &[0, 1, 2], &[(0, &shrunk), (1, &shrunk), (2, &shrunk)], None));
        // Something was written in it.
        let used = shrunk.followed_by(entry(3, 2, &[1, 2]));
        assert!(has_proof(&used, &[1, 2], &[(1, &used), (2, &used)], None));
    }

    /// A simulated set of devices: some are visible, a writer opens if it has proof and begins an epoch on those, or
    /// crashes midway.
    #[derive(Debug, Clone)]
    struct Opening {
        there: Vec<bool>,
        reached: Vec<bool>,
        is_crash: bool,
    }

    fn openings() -> impl Strategy<Value = Vec<Opening>> {
        let opening = (prop::collection::vec(any::<bool>(), 5), prop::collection::vec(any::<bool>(), 5), any::<bool>())
            .prop_map(|(there, reached, is_crash)| Opening { there, reached, is_crash });
        prop::collection::vec(opening, 1..40)
    }

    proptest! {
        /// Writers that require the proof do not diverge, and each sees what earlier ones acknowledged.
        #[test]
        fn with_proof_there_is_one_history(count in 1..=5usize, openings in openings()) {
            let all: Vec<u16> = (0..count as u16).collect();
            let mut on: Vec<History> = vec![history(&[(1, &all)]); count];
            let mut acknowledged = Epoch(1);
            for (opening, epoch) in openings.iter().zip(2..) {
                let there: Vec<usize> = (0..count).filter(|&device| opening.there[device]).collect();
                let seen: Vec<(DeviceNumber, &History)> =
                    there.iter().map(|&device| (DeviceNumber(device as u16), &on[device])).collect();
                let found = sides(&seen, &[]);
                if found.is_empty() {
                    continue;
                }
                // A missing device may be the one that knows that an epoch was never used: nobody writes until it
                // returns.
                if found.len() > 1 {
                    prop_assert!(there.len() < count, "diverged before {}", epoch);
                    continue;
                }
                let newest = found[0].history.clone();
                let in_sync: Vec<DeviceNumber> = seen
                    .iter()
                    .filter(|(device, history)| {
                        matches!(standing(*device, history, &newest, &seen, 0), Standing::InSync | Standing::Late)
                    })
                    .map(|&(device, _)| device)
                    .collect();
                if !(WriterView { in_sync: &in_sync, seen: &seen, marked: 0, lost: None }).has_proof(&newest) {
                    continue;
                }
                prop_assert!(newest.contains(acknowledged), "epoch {} was lost sight of at {}", acknowledged.0, epoch);
                let set: Vec<u16> = in_sync.iter().map(|device| device.0).collect();
                // As many batches as there were epochs with one.
                let next = newest.followed_by(entry(epoch, acknowledged.0, &set));
                for &device in &set {
                    if !opening.is_crash || opening.reached[usize::from(device)] {
                        on[usize::from(device)] = next.clone();
                    }
                }
                if !opening.is_crash {
                    acknowledged = Epoch(epoch);
                }
            }
        }

        #[test]
        fn relations_are_each_others_mirror(a in prop::collection::vec(0u64..6, 1..6), b in prop::collection::vec(0u64..6, 1..6)) {
            // A tree of histories: the number of an epoch determines its predecessors.
            let build = |choices: &[u64]| {
                let mut path = 1u64;
                let mut all = vec![(path, &[0u16][..])];
                for choice in choices {
                    path = path * 7 + choice % 2;
                    all.push((path, &[0]));
                }
                history(&all)
            };
            let (a, b) = (build(&a), build(&b));
            let mirrored = match relation(&a, &b) {
                Relation::Prefix => Relation::Extension,
                Relation::Extension => Relation::Prefix,
                other => other,
            };
            prop_assert_eq!(relation(&b, &a), mirrored);
        }
    }
}
