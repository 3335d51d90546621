//! Tests of what histories imply together.

use proptest::prelude::*;

use super::sides::{are_twins, last_common};
use super::*;
use crate::format::history::MOST_EPOCHS;
use crate::format::ids::Epoch;

/// The sides, if nothing is known to have been written in a newest epoch.
fn sides(seen: &SeenHistories<'_>, witnesses: &[&History]) -> Vec<Side> {
    super::sides::sides(seen, witnesses, &|_| Some(false))
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
    let begun = |last: [u64; 2]| before.followed_by(entry(2, last[0], &[0, 1])).followed_by(entry(3, last[1], &[0, 1]));
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
            let found = super::sides::sides(&seen, &[&one], &|_| written);
            let on: Vec<_> = found.iter().map(|side| side.devices.clone()).collect();
            assert_eq!((on, preferred(&found)), (vec![devices(&[0]), devices(&[1])], None));
            // Nothing was written in one of them: a crash between superblocks left it.
            let is_of_one = |entry: &EpochEntry| Some(one.contains(entry.epoch));
            assert_eq!(super::sides::sides(&seen, &[], &is_of_one)[0].history, one);
        }
    }
    // One device of the copy among four of the store.
    let before = history(&[(1, &[0, 1, 2, 3, 4])]);
    let store = before.followed_by(entry(2, 1, &[0, 1, 2, 3, 4]));
    let copy = before.followed_by(entry(3, 1, &[0, 1, 2, 3, 4]));
    let seen: Vec<_> = (0..5).map(|device| (DeviceNumber(device), if device == 3 { &copy } else { &store })).collect();
    let found = super::sides::sides(&seen, &[], &|_| None);
    assert_eq!((found.len(), &found[preferred(&found).unwrap()].history), (2, &store));
    // The store has gone on without it.
    let store = store.followed_by(entry(4, 2, &[0, 1, 2, 4]));
    let seen: Vec<_> = (0..5).map(|device| (DeviceNumber(device), if device == 3 { &copy } else { &store })).collect();
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
