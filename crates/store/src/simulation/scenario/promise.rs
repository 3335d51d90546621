//! Which faults there are, and whether the geometry bears them.
//!
//! A copy of records, or a unit of each stripe, may be missing on as many devices as redundancy says. Devices are counted, not places: where two devices have
//! rotten bytes that redundancy makes up for as they are not of one record, more is within the promise than this says, and less is checked.

use std::collections::BTreeSet;

use super::super::device::Snapshot;
use super::super::mishap::{Detached, FileKind};
use crate::Geometry;

/// Whether a device has what was acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Freshness {
    /// All of it.
    Fresh,
    /// It may lack something: it went while a writer had it open, or was restored.
    Unknown,
    /// Others went on without it.
    Stale,
}

/// How a device is.
#[derive(Debug)]
pub(crate) struct Condition {
    /// Its disk in the world.
    pub(crate) disk: usize,
    /// It, if it is not there.
    pub(crate) away: Option<Detached>,
    /// What it has.
    pub(crate) freshness: Freshness,
    /// Whether its last writer counted it among those in sync.
    pub(crate) is_in_set: bool,
    /// Kinds of files that have bad places.
    pub(crate) rotten: BTreeSet<FileKind>,
    /// It was put back to what it once was.
    pub(crate) is_restored: bool,
    /// As it once was.
    pub(crate) kept: Option<Snapshot>,
    /// Where another device has its place.
    pub(crate) is_swapped: bool,
    /// It has writes that were acknowledged and that the others went on without, by writes of their own.
    pub(crate) has_diverged: bool,
}

impl Condition {
    /// A new device.
    pub(crate) fn new(disk: usize) -> Condition {
        Condition {
            disk,
            away: None,
            freshness: Freshness::Fresh,
            is_in_set: true,
            rotten: BTreeSet::new(),
            is_restored: false,
            kept: None,
            is_swapped: false,
            has_diverged: false,
        }
    }

    /// It may lack something from now on.
    pub(crate) fn doubt(&mut self) {
        if self.freshness == Freshness::Fresh {
            self.freshness = Freshness::Unknown;
        }
    }

    fn is_there(&self) -> bool {
        self.away.is_none() && !self.is_swapped
    }

    fn lacks(&self, kind: FileKind) -> bool {
        let is_known = self.is_there() && !self.rotten.contains(&FileKind::Superblock);
        !is_known || self.freshness != Freshness::Fresh || self.rotten.contains(&kind)
    }

    /// Whether a writer sees it as one of the last set; `None` if this does not know.
    fn is_seen(&self) -> Option<bool> {
        match self.freshness {
            _ if self.is_swapped || self.rotten.contains(&FileKind::Superblock) => None,
            _ if self.away.is_some() => Some(false),
            Freshness::Fresh => Some(true),
            Freshness::Unknown => None,
            Freshness::Stale => Some(false),
        }
    }
}

/// What may be expected of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Promise {
    /// All that was acknowledged can be read.
    pub(crate) is_whole: bool,
    /// A writer sees enough devices: yes, no, or it depends on what this does not know.
    pub(crate) has_proof: Option<bool>,
    /// A device with records is away.
    pub(crate) is_record_away: bool,
    /// All records that are there may have been put back to what it once was, which nobody can notice.
    pub(crate) is_rolled_back: bool,
    /// Devices with histories that are no prefix of each other are there.
    pub(crate) has_diverged: bool,
}

/// What may be expected of a store with such devices; the home, if it is none, is the last.
pub(crate) fn promise(geometry: &Geometry, conditions: &[Condition]) -> Promise {
    let devices = &conditions[..geometry.devices.len()];
    let lacking = |kind: FileKind| devices.iter().filter(|one| one.lacks(kind)).count();
    let records = lacking(FileKind::Segment) < usize::from(geometry.copies);
    let units = lacking(FileKind::Extent) <= usize::from(geometry.parity);
    let is_home_there = conditions.iter().skip(devices.len()).all(Condition::is_there);
    // Those that nothing is known of are in sync, or not, or out of the set.
    let proof = |of_unknown: Option<bool>| {
        let seen = devices.iter().filter(|one| one.is_in_set).map(|one| one.is_seen().or(of_unknown));
        let known: Vec<bool> = seen.flatten().collect();
        let seen = known.iter().filter(|seen| **seen).count();
        2 * seen > known.len() || seen == known.len()
    };
    let proofs = [proof(Some(true)), proof(Some(false)), proof(None)];
    let has_proof = (is_home_there && proofs.iter().all(|one| *one == proofs[0])).then_some(proofs[0]);
    let is_fresh = |one: &Condition| one.is_there() && one.freshness == Freshness::Fresh;
    let with_records = || geometry.record_devices().map(|entry| &devices[usize::from(entry.number)]);
    // Or all that had some of them: no other device says which there were since the last mark.
    let lacking_records = with_records().filter(|one| !is_fresh(one)).count();
    let is_restored = with_records().any(|one| one.is_there() && one.is_restored);
    let is_rolled_back =
        !with_records().any(is_fresh) || is_restored && lacking_records >= usize::from(geometry.copies);
    let is_record_away = with_records().any(|one| !one.is_there());
    let has_diverged = devices.iter().any(|one| one.is_there() && one.has_diverged) && !is_rolled_back;
    Promise {
        is_whole: records && units && is_home_there && !has_diverged,
        has_proof,
        is_record_away,
        is_rolled_back,
        has_diverged,
    }
}

/// Whether a step may fail or find problems for what was done to the devices.
pub(crate) fn is_sound(conditions: &[Condition]) -> bool {
    conditions
        .iter()
        .all(|one| one.away.is_none() && one.rotten.is_empty() && one.freshness == Freshness::Fresh && !one.is_swapped)
}
