//! The current faults, and whether redundancy covers them.
//!
//! A copy of records, or a unit of each stripe, may be missing on as many devices as redundancy allows. Devices are
//! counted, not places: if two devices have damaged bytes that redundancy can repair because they are not in one
//! record, the promise covers more than this says, and less is checked.

use std::collections::BTreeSet;

use super::super::device::DeviceImage;
use super::super::mishap::{Detached, FileKind};
use crate::Geometry;

/// Whether a device has what was acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Freshness {
    /// All of it.
    Fresh,
    /// It may lack something: it disappeared while a writer had it open, or was restored.
    Unknown,
    /// Others continued without it.
    Stale,
}

/// The condition of a device.
#[derive(Debug)]
pub(crate) struct Condition {
    /// Its disk in the world.
    pub(crate) disk: usize,
    /// The device, if it is missing.
    pub(crate) away: Option<Detached>,
    /// How current its content is.
    pub(crate) freshness: Freshness,
    /// Whether its last writer counted it among those in sync.
    pub(crate) is_in_set: bool,
    /// Kinds of files with damaged places.
    pub(crate) rotten: BTreeSet<FileKind>,
    /// It was restored to an earlier state.
    pub(crate) is_restored: bool,
    /// Its kept state.
    pub(crate) kept: Option<DeviceImage>,
    /// It is in the place of another device, where it is found.
    pub(crate) is_swapped: bool,
    /// How many epochs had begun when it left the set.
    pub(crate) left_at: u64,
    /// Whether it may have left earlier: a repair that was to bring it back was interrupted.
    pub(crate) may_have_left_earlier: bool,
    /// Of two histories, it has epochs of the current one that the other lacks.
    pub(crate) is_of_this: bool,
    /// Of two histories, it has epochs that the current one lacks.
    pub(crate) is_of_other: bool,
    /// The directory onto which a rebuild of it was begun, if it was not completed.
    pub(crate) begun: Option<String>,
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
            left_at: 0,
            may_have_left_earlier: false,
            is_of_this: false,
            is_of_other: false,
            begun: None,
        }
    }

    /// It may lack something from now on.
    pub(crate) fn doubt(&mut self) {
        if self.freshness == Freshness::Fresh {
            self.freshness = Freshness::Unknown;
        }
    }

    pub(crate) fn is_there(&self) -> bool {
        self.away.is_none()
    }

    /// Its writer goes on without it, when so many epochs have begun.
    pub(crate) fn leave(&mut self, epochs: u64) {
        if self.is_in_set {
            (self.left_at, self.may_have_left_earlier) = (epochs, self.freshness == Freshness::Unknown);
        }
        (self.is_in_set, self.freshness) = (false, Freshness::Stale);
    }

    /// Whether its history cannot be seen for certain.
    pub(crate) fn is_unclear(&self) -> bool {
        self.is_restored || self.rotten.contains(&FileKind::Superblock)
    }

    fn lacks(&self, kind: FileKind) -> bool {
        let is_known = self.is_there() && !self.rotten.contains(&FileKind::Superblock);
        !is_known || self.freshness != Freshness::Fresh || self.rotten.contains(&kind)
    }

    /// Whether a writer sees it as one of the last set; `None` if that is unknown here.
    fn is_seen(&self) -> Option<bool> {
        match self.freshness {
            _ if self.rotten.contains(&FileKind::Superblock) || self.begun.is_some() => None,
            _ if self.away.is_some() => Some(false),
            Freshness::Fresh => Some(true),
            Freshness::Unknown => None,
            Freshness::Stale => Some(false),
        }
    }
}

/// What is expected of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Promise {
    /// Everything that was acknowledged can be read.
    pub(crate) is_whole: bool,
    /// A writer sees enough devices: yes, no, or unknown here.
    pub(crate) has_proof: Option<bool>,
    /// A device with records is missing.
    pub(crate) is_record_away: bool,
    /// A device with records is missing that the last writer counted among those in sync.
    pub(crate) is_record_of_set_away: bool,
    /// All records that are present may have been restored to an earlier state, which nobody can detect.
    pub(crate) is_rolled_back: bool,
    /// All records that are present are on devices without which others continued, which everybody can detect.
    pub(crate) is_stale: bool,
    /// Devices are present whose histories are not prefixes of each other.
    pub(crate) has_diverged: bool,
}

/// What is expected of a store with such devices; the home, if it is not one, is the last.
pub(crate) fn promise(geometry: &Geometry, conditions: &[Condition]) -> Promise {
    let devices = &conditions[..geometry.devices.len()];
    let lacking = |kind: FileKind| devices.iter().filter(|one| one.lacks(kind)).count();
    let records = lacking(FileKind::Segment) < usize::from(geometry.copies);
    let units = lacking(FileKind::Extent) <= usize::from(geometry.parity);
    let is_home_there = conditions.iter().skip(devices.len()).all(Condition::is_there);
    // Unknown ones are in sync, or not, or not in the set.
    let proof = |of_unknown: Option<bool>| {
        let may_count = |one: &&Condition| one.is_in_set || one.begun.is_some();
        let seen = devices.iter().filter(may_count).map(|one| one.is_seen().or(of_unknown));
        let known: Vec<bool> = seen.flatten().collect();
        let seen = known.iter().filter(|seen| **seen).count();
        2 * seen > known.len() || seen == known.len()
    };
    let proofs = [proof(Some(true)), proof(Some(false)), proof(None)];
    let has_proof = (is_home_there && proofs.iter().all(|one| *one == proofs[0])).then_some(proofs[0]);
    let is_there = |is_of: fn(&Condition) -> bool| devices.iter().any(|one| one.is_there() && is_of(one));
    let (is_this, is_other) = (is_there(|one| one.is_of_this), is_there(|one| one.is_of_other));
    let is_unclear = devices.iter().any(|one| one.is_of_other) && devices.iter().any(Condition::is_unclear);
    let has_proof = has_proof.filter(|_| !is_unclear && !is_other);
    let is_fresh = |one: &Condition| one.is_there() && one.freshness == Freshness::Fresh;
    let with_records = || geometry.record_devices().map(|entry| &devices[entry.number.index()]);
    // Or all devices that had some of them: no other device knows of those since the last mark.
    let lacking_records = with_records().filter(|one| !is_fresh(one)).count();
    let is_restored = with_records().any(|one| one.is_there() && one.is_restored);
    let is_rolled_back =
        !with_records().any(is_fresh) || is_restored && lacking_records >= usize::from(geometry.copies);
    let mut there = with_records().filter(|one| one.is_there()).peekable();
    let is_stale = there.peek().is_some() && there.all(|one| one.freshness == Freshness::Stale);
    let is_record_away = with_records().any(|one| !one.is_there());
    let is_record_of_set_away = with_records().any(|one| !one.is_there() && one.is_in_set);
    let has_diverged = is_this && is_other && !is_unclear;
    let is_rolled_back = is_rolled_back || is_unclear;
    Promise {
        is_whole: records && units && is_home_there && !is_other && !is_unclear,
        has_proof,
        is_record_away,
        is_record_of_set_away,
        is_rolled_back,
        is_stale,
        has_diverged,
    }
}

/// Whether all devices are sound, so that no step may fail or find problems because of them.
pub(crate) fn is_sound(conditions: &[Condition]) -> bool {
    conditions.iter().all(|one| one.away.is_none() && one.rotten.is_empty() && one.freshness == Freshness::Fresh)
}
