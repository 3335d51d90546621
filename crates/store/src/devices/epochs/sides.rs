//! The sides of a store: histories that no other continues, each with its devices. There is one, unless some devices
//! went on without others.

use super::{Relation, SeenHistories, alone, counts, ends_before, is_dropped_prefix, is_used, is_void, relation};
use crate::format::history::{EpochEntry, History};
use crate::format::ids::{DeviceNumber, Epoch};

/// A history that no other continues, and the devices on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Side {
    pub(crate) history: History,
    /// Devices with epochs that no other side has.
    pub(crate) devices: Vec<DeviceNumber>,
}

/// The sides of what was seen: one, unless some devices have diverged. A `witness` (a home, or the superblock from
/// which the search began) is not a device: its history may be a side, which then has no devices. One whose epochs are
/// all older than those that a device still has is ignored. `written` says of a newest epoch whether something was
/// written in it, if that is known.
pub(crate) fn sides(
    seen: &SeenHistories<'_>,
    witnesses: &[&History],
    written: &dyn Fn(&EpochEntry) -> Option<bool>,
) -> Vec<Side> {
    let mut newest = not_continued(seen, witnesses);
    if newest.len() > 1 {
        newest = without_dropped(&newest, seen);
    }
    if newest.len() > 1 {
        newest = without_empty(newest, seen, written);
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

/// The histories that no other one continues; of equal ones the first, those of devices before witnesses. All pairs are
/// compared: one that continues a second, which continues a third, may have dropped the epochs of the third.
fn not_continued<'h>(seen: &SeenHistories<'h>, witnesses: &[&'h History]) -> Vec<&'h History> {
    let all: Vec<&History> = seen.iter().map(|(_, history)| *history).chain(witnesses.iter().copied()).collect();
    let is_continued = |at: usize| {
        all.iter().enumerate().any(|(other_at, other)| match relation(all[at], other) {
            Relation::Prefix => true,
            Relation::Same => other_at < at,
            _ => false,
        })
    };
    (0..all.len()).filter(|&at| !is_continued(at)).map(|at| all[at]).collect()
}

/// Histories without those that were dropped from another one.
fn without_dropped<'h>(newest: &[&'h History], seen: &SeenHistories<'_>) -> Vec<&'h History> {
    let is_of_device = |side: &History| seen.iter().any(|(_, history)| history.contains(side.newest().epoch));
    let is_obsolete = |side: &History, other: &History| match is_of_device(side) {
        true => is_dropped_prefix(side, other, seen) && !is_dropped_prefix(other, side, seen),
        false => is_of_device(other) && ends_before(side, other),
    };
    newest.iter().filter(|side| !newest.iter().any(|other| is_obsolete(side, other))).copied().collect()
}

/// Histories without those in whose own epochs nothing was written; one of them, if nothing was written in any.
fn without_empty<'h>(
    mut newest: Vec<&'h History>,
    seen: &SeenHistories<'_>,
    written: &dyn Fn(&EpochEntry) -> Option<bool>,
) -> Vec<&'h History> {
    let is_shared =
        |side: &History, epoch: Epoch| newest.iter().any(|other| !std::ptr::eq(*other, side) && other.contains(epoch));
    let is_twin = |side: &History| newest.iter().any(|other| are_twins(side, other, seen));
    let is_empty = |side: &History| {
        let mut own = side.entries().rev().take_while(|entry| !is_shared(side, entry.epoch));
        own.all(|entry| is_void(entry, seen) && !is_used(entry, side))
            && !written(side.newest()).unwrap_or_else(|| is_twin(side))
    };
    let used: Vec<&History> = newest.iter().filter(|side| !is_empty(side)).copied().collect();
    if !used.is_empty() {
        return used;
    }
    // Nothing was acknowledged on any side: the choice only has to be the same each time.
    newest.sort_by_key(|side| side.newest().epoch);
    newest.truncate(1);
    newest
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

/// For messages, where and when each side of a divergence continued.
pub(crate) fn departures(sides: &[Side]) -> Vec<(&Side, &EpochEntry)> {
    let common = last_common(sides).map(|entry| entry.epoch);
    let first_alone = |side: &'_ Side| -> Option<usize> {
        common.and_then(|common| side.history.entries().position(|entry| entry.epoch == common)).map(|at| at + 1)
    };
    sides.iter().filter_map(|side| Some((side, side.history.entries().nth(first_alone(side).unwrap_or(0))?))).collect()
}

/// Whether two histories are of a store and its copy, if something was written in both: all epochs in which they differ
/// count a device of the other. Whoever began the last of them would have seen there what the other has.
pub(super) fn are_twins(one: &History, other: &History, seen: &SeenHistories<'_>) -> bool {
    let all_count = |of: &History, other: &History| {
        let first = alone(other, of).last();
        first.is_some_and(|first| alone(of, other).all(|entry| counts(entry, first, seen)))
    };
    all_count(one, other) && all_count(other, one)
}
