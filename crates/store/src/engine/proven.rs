//! Superblocks that are damaged or gone on every device with records, where the segments beside them prove what they
//! were: without one of these devices there is no log to continue, so no writer opens, and the usual repair, which asks
//! the index what a device should have, cannot begin.
//!
//! The other superblocks, of a separate home or of devices without records, have the identity of the store, the
//! geometry and the epochs. A directory in the place of a device is the device if it has a segment of this store, by
//! its header, that the history may have, or that goes on beyond it. It gets a superblock with the epochs up to the
//! last one that counts it: if the others went on without it, it is stale, as it was.

use std::path::Path;

use super::locking::lock;
use crate::devices::names;
use crate::devices::platform::Platform;
use crate::devices::slot::{Slot, Trouble};
use crate::devices::survey::{OpenOptions, Survey, survey};
use crate::error::Result;
use crate::format::history::History;
use crate::format::ids::DeviceNumber;
use crate::format::names::{SEGMENTS, SegmentName};
use crate::format::superblock::{LogMark, Superblock};
use crate::units::escape_path;

/// A device whose superblock is proven by what is beside it.
struct Proven<'s> {
    slot: &'s Slot,
    history: History,
    segments: usize,
}

/// Why superblocks have to be written again before a writer can open; `None` if none has to, or none is proven.
///
/// # Errors
/// As [`survey`].
pub(crate) fn look(platform: &dyn Platform, directory: &Path, options: &OpenOptions) -> Result<Option<String>> {
    let found = survey(platform, directory, options)?;
    let proven = proven(&found).into_iter().map(|Proven { slot, segments, .. }| {
        let word = if segments == 1 { "segment" } else { "segments" };
        let trouble = slot.trouble.as_ref().map_or_else(String::new, Trouble::explain);
        let place = escape_path(&slot.path);
        format!("device {} ({place}) {trouble}; it has {segments} {word} of this store", slot.entry.number)
    });
    let words = proven.collect::<Vec<_>>().join("; ");
    Ok(Some(words).filter(|words| !words.is_empty()))
}

/// Writes the superblocks that are proven; returns of which devices.
///
/// # Errors
/// As [`survey`]; any error of locking and of writing.
pub(crate) fn write_again(
    platform: &dyn Platform,
    directory: &Path,
    options: &OpenOptions,
) -> Result<Vec<DeviceNumber>> {
    let found = survey(platform, directory, options)?;
    let mut locks = Vec::new();
    if found.on_home.is_some() {
        lock(platform, &found.home, &mut locks)?;
    }
    for Proven { slot, .. } in proven(&found).iter().filter(|proven| proven.slot.path != found.home) {
        lock(platform, &slot.path, &mut locks)?;
    }
    // What was read before the locks were taken may be outdated.
    let found = survey(platform, directory, options)?;
    let mut written = Vec::new();
    for Proven { slot, history, .. } in proven(&found) {
        let (number, identity) = (slot.entry.number, slot.entry.identity);
        // Marks are of the log as the newest epoch has it.
        let is_newest = history.newest().epoch == found.history.newest().epoch;
        let mark: Option<LogMark> = found.marks().into_iter().max_by_key(|mark| mark.sequence).filter(|_| is_newest);
        let superblock = Superblock::of_store(found.geometry.clone(), history, mark);
        Superblock { number, identity, ..superblock }.write_first(&*slot.device)?;
        written.push(number);
    }
    Ok(written)
}

fn proven(found: &Survey) -> Vec<Proven<'_>> {
    let has_records = |slot: &&Slot| found.geometry.record_devices().any(|entry| entry.number == slot.entry.number);
    let slots = || found.slots.iter().filter(has_records);
    if found.sides.len() > 1 || slots().any(Slot::is_readable) {
        return Vec::new();
    }
    let is_without = |slot: &&Slot| matches!(slot.trouble, Some(Trouble::Damaged | Trouble::Unmarked));
    let proven = slots().filter(is_without).filter_map(|slot| {
        let counted = found.history.entries().rev().find(|entry| entry.has(slot.entry.number))?;
        let history = found.history.up_to(counted.epoch)?;
        let segments = segments_of(slot, found);
        (segments > 0).then_some(Proven { slot, history, segments })
    });
    proven.collect()
}

/// Segments of the store in a directory, by their headers, that its log may have.
fn segments_of(slot: &Slot, found: &Survey) -> usize {
    let newest = found.history.newest();
    let may_be = |name: &SegmentName| found.history.may_have(*name) || name.number.0 > newest.segments_begun;
    let listed = names::list_names(&*slot.device, SEGMENTS).unwrap_or_default();
    let names = listed.iter().filter_map(|name| SegmentName::parse(name)).filter(may_be);
    names.filter(|name| slot.segment_header(*name, &found.geometry.store).is_some()).count()
}
