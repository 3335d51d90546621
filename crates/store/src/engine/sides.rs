//! All that was ever written to a store: its sides, if devices were written to separately, and those that were not
//! taken ([`take`](super::divergence)). Each can be opened for reading, as its history shows the tree; nothing is
//! written.
//!
//! Devices that still diverge have their histories in their superblocks. Of a side that was not taken, only segments
//! are left, of epochs that are in no history. Its last segment leads back: each header says behind which batch of
//! which segment it continues the log, and the sequence number and the chain of that batch tell the right one of
//! several segments with this number. Where the way reaches a segment of a history that is known, the side left it. Its
//! own epochs follow those up to there, each with the devices that have its segments.
//!
//! The history has a limited number of epochs. Of a segment that was begun before the oldest of them, only the catalog
//! tells whether it is the store's own.
//!
//! Not read: what is behind the place where a segment of the same side continues the log (quarantine). If segments that
//! a side needs were freed, by a compaction of the side that was taken, it is opened with what is left, and says so.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use super::Engine;
use super::locking::Access;
use super::open::{open, open_history};
use super::recovered::Recovered;
use crate::devices::device::{DeviceFile, Mode};
use crate::devices::epochs::last_common;
use crate::devices::names;
use crate::devices::platform::Platform;
use crate::devices::slot::Slot;
use crate::devices::survey::{OpenOptions, Survey, survey};
use crate::error::Result;
use crate::format::history::{EpochEntry, History};
use crate::format::ids::{DeviceNumber, Epoch, LogOffset};
use crate::format::names::{SEGMENTS, SegmentName, segment_path};
use crate::format::segment::{Continued, SegmentHeader};
use crate::log::scan::{ScanStep, SegmentScan};

/// Segments of sides that were not taken, by device and name, and the extent files of their large objects, which are
/// read once.
#[derive(Debug, Default)]
pub(crate) struct OtherSides {
    pub(crate) segments: BTreeSet<(DeviceNumber, String)>,
    pub(crate) extents: BTreeSet<(DeviceNumber, u32)>,
}

/// A history that was written to a store, alone from some point on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Side {
    /// Whether it is the store's: neither does it diverge from others in sight, nor was another one taken.
    pub is_current: bool,
    /// Devices with what only it has; all that are readable, of the store's own.
    pub devices: Vec<DeviceNumber>,
    /// Its own epochs and when they began, in nanoseconds since 1970, oldest first; the newest of the store's own.
    pub epochs: Vec<(Epoch, i64)>,
    pub(crate) history: History,
}

/// A segment that is in no known history, by its header.
#[derive(Debug, Clone)]
struct Found {
    header: SegmentHeader,
    devices: Vec<DeviceNumber>,
}

/// All sides of a store: of diverging devices, or the store's own, and then those that were not taken.
///
/// # Errors
/// As [`survey`].
pub(crate) fn sides(platform: &Arc<dyn Platform>, directory: &Path, options: &OpenOptions) -> Result<Vec<Side>> {
    let found = survey(&**platform, directory, options)?;
    let common = last_common(&found.sides).map(|entry| entry.epoch);
    let is_one = found.sides.len() < 2;
    let mut sides = Vec::new();
    for side in &found.sides {
        let own: Vec<(Epoch, i64)> = match common.filter(|_| !is_one).and_then(|common| side.history.after(common)) {
            Some(own) => own.map(|entry| (entry.epoch, entry.began_nanoseconds)).collect(),
            None => vec![(side.history.newest().epoch, side.history.newest().began_nanoseconds)],
        };
        let readable = found.slots.iter().filter(|slot| slot.is_readable()).map(|slot| slot.entry.number);
        let devices = if is_one { readable.collect() } else { side.devices.clone() };
        sides.push(Side { is_current: is_one, devices, epochs: own, history: side.history.clone() });
    }
    // Of several sides, a reader knows one: what the others began before the histories is none that was not taken.
    let own_of = || if is_one { own_segments(platform, directory, options) } else { None };
    sides.extend(not_taken(&found, &own_of));
    Ok(sides)
}

/// The segments of the store's own log, and those that it has released and left behind; `None` if it cannot be read.
fn own_segments(
    platform: &Arc<dyn Platform>,
    directory: &Path,
    options: &OpenOptions,
) -> Option<BTreeSet<SegmentName>> {
    let (engine, _) = open(Arc::clone(platform), directory, Access::Read, options).ok()?;
    let segments = Arc::clone(&engine.view().state.segments);
    let in_log = segments.values().map(|row| SegmentName::from(row.id()));
    Some(in_log.chain(engine.left_behind()).collect())
}

/// The sides of which only segments are left.
fn not_taken(survey: &Survey, own_of: &dyn Fn() -> Option<BTreeSet<SegmentName>>) -> Vec<Side> {
    let others = others(survey, own_of);
    let is_continued = |one: &Found| {
        others.iter().any(|next| next.header.continues.segment == one.header.id.number && continues(survey, next, one))
    };
    let last = others.iter().filter(|one| !is_continued(one));
    last.filter_map(|last| way_back(survey, &others, last)).collect()
}

/// Segments of this store that no known history has. Of those that were begun before the oldest epoch known, these are
/// what is not the store's `own`.
fn others(survey: &Survey, own_of: &dyn Fn() -> Option<BTreeSet<SegmentName>>) -> Vec<Found> {
    let histories = || survey.sides.iter().map(|side| &side.history).chain([&survey.history]);
    let (mut found, mut older): (BTreeMap<SegmentName, Found>, BTreeSet<SegmentName>) = Default::default();
    for slot in slots(survey) {
        let listed = names::list_names(&*slot.device, SEGMENTS).unwrap_or_default();
        for name in listed.iter().filter_map(|name| SegmentName::parse(name)) {
            if histories().any(|history| history.has_begun(name)) {
                continue;
            }
            if let Some(header) = slot.segment_header(name, &survey.geometry.store) {
                let one = found.entry(name).or_insert(Found { header, devices: Vec::new() });
                one.devices.push(slot.entry.number);
                older.extend(histories().any(|history| history.may_have(name)).then_some(name));
            }
        }
    }
    if !older.is_empty() {
        let own = own_of();
        let is_own = |name: &SegmentName| own.as_ref().is_none_or(|own| own.contains(name));
        found.retain(|name, _| !older.contains(name) || !is_own(name));
    }
    found.into_values().collect()
}

/// Devices with a superblock of the store, whatever their history.
fn slots(survey: &Survey) -> impl Iterator<Item = &Slot> {
    survey.slots.iter().zip(&survey.on_devices).filter(|(_, found)| found.is_some()).map(|(slot, _)| slot)
}

/// From the last segment of a side back to where it left a known history.
fn way_back(survey: &Survey, others: &[Found], last: &Found) -> Option<Side> {
    let mut way = vec![last];
    let base = loop {
        let first = *way.last()?;
        let at = first.header.continues;
        let before = others.iter().find(|one| {
            one.header.id.number == at.segment
                && one.header.id.number < first.header.id.number
                && continues(survey, first, one)
        });
        match before {
            Some(before) => way.push(before),
            None => break base_of(survey, at).or_else(|| as_far_as_known(survey, at))?,
        }
    };
    way.reverse();
    let mut history = base;
    let (mut epochs, mut devices): (Vec<(Epoch, i64)>, BTreeSet<DeviceNumber>) = (Vec::new(), BTreeSet::new());
    for one in &way {
        let SegmentHeader { id, created_nanoseconds, continues, .. } = one.header;
        devices.extend(&one.devices);
        if epochs.last().is_some_and(|&(epoch, _)| epoch == id.epoch) {
            continue;
        }
        epochs.push((id.epoch, created_nanoseconds));
        history = history.followed_by(EpochEntry {
            epoch: id.epoch,
            began_nanoseconds: created_nanoseconds,
            segments_begun: id.number.0 - 1,
            last_batch: continues.sequence.0,
            in_sync: one.devices.clone(),
        });
    }
    Some(Side { is_current: false, devices: devices.into_iter().collect(), epochs, history })
}

/// Whether a segment continues the log in another one that is in no known history.
fn continues(survey: &Survey, next: &Found, before: &Found) -> bool {
    let id = before.header.id;
    batch_at(survey, &SegmentName::from(id), id.epoch, &next.header.continues).is_some()
}

/// The known history with the batch that a side continues, up to the epoch of that batch.
fn base_of(survey: &Survey, at: Continued) -> Option<History> {
    let histories: Vec<&History> = match survey.sides.len() {
        0 => vec![&survey.history],
        _ => survey.sides.iter().map(|side| &side.history).collect(),
    };
    if at.segment.0 == 0 {
        // The side began with the first segment: of what was before, nothing was written.
        let first = histories.first()?.entries().next()?.epoch;
        return histories.first()?.up_to(first);
    }
    for slot in slots(survey) {
        let listed = names::list_names(&*slot.device, SEGMENTS).unwrap_or_default();
        let named = listed.iter().filter_map(|name| SegmentName::parse(name)).filter(|name| name.number == at.segment);
        for name in named {
            let Some(history) = histories.iter().find(|history| history.may_have(name)) else { continue };
            let Some(header) = slot.segment_header(name, &survey.geometry.store) else { continue };
            if let Some(epoch) = batch_at(survey, &name, header.id.epoch, &at) {
                return history.up_to(epoch).or_else(|| before_known(history, at));
            }
        }
    }
    None
}

/// The known history up to the last epoch that began before a batch. The segment with it was freed, so the store says
/// what is missing.
fn as_far_as_known(survey: &Survey, at: Continued) -> Option<History> {
    let history = &survey.history;
    match history.entries().rev().find(|entry| entry.last_batch < at.sequence.0) {
        Some(before) => history.up_to(before.epoch),
        None => before_known(history, at),
    }
}

/// The history as it was at a batch that is older than all epochs known: what was begun up to there is its own, of
/// whatever epoch.
fn before_known(history: &History, at: Continued) -> Option<History> {
    let oldest = history.entries().next()?.clone();
    Some(History::new(EpochEntry { segments_begun: at.segment.0, last_batch: at.sequence.0, ..oldest }))
}

/// The epoch of the batch at a position in a segment, if it is there on some device.
fn batch_at(survey: &Survey, name: &SegmentName, epoch: Epoch, at: &Continued) -> Option<Epoch> {
    let id = crate::format::ids::SegmentId::new(name.number, epoch);
    let open = |slot: &Slot| {
        let file = names::open(&*slot.device, &segment_path(id), Mode::Read).ok()?;
        Some((slot.entry.number, file))
    };
    let copies: Vec<(DeviceNumber, Arc<dyn DeviceFile>)> = slots(survey).filter_map(open).collect();
    let mut scan = SegmentScan::new(copies, id.seed(&survey.geometry.store), LogOffset::START);
    while let Some(step) = scan.next(false) {
        if let ScanStep::Commit(committed, ..) = step {
            let commit = &committed.commit;
            if committed.end == at.offset {
                let is_it = commit.sequence == at.sequence && commit.chain() == at.chain;
                return is_it.then_some(commit.epoch);
            }
        }
    }
    None
}

impl Side {
    /// Opens the store for reading as this side shows it, with an index of its own in memory and in a temporary
    /// directory.
    ///
    /// # Errors
    /// As opening for reading.
    pub(crate) fn open(
        &self,
        platform: Arc<dyn Platform>,
        directory: &Path,
        options: &OpenOptions,
    ) -> Result<(Engine, Recovered)> {
        open_history(platform, directory, options, &self.history)
    }
}
