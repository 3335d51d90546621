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

mod proof;
mod sides;
#[cfg(test)]
mod tests;

use crate::format::history::{EpochEntry, History};
use crate::format::ids::DeviceNumber;
pub(super) use proof::WriterView;
pub(crate) use sides::last_common;
pub(super) use sides::{Side, departures, preferred, sides};

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
