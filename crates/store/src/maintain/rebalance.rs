//! Rebalancing: records that overflowed to slow devices return to fast ones once these have room again.
//!
//! Whole segments are moved, the oldest first, as compaction moves them, until fast devices are at the low watermark. A
//! store without fast or without slow devices has nothing to rebalance. As in compaction, nothing is freed if the index
//! does not agree with its accounts or part of the log is missing.

use crate::format::ids::SegmentNumber;
use std::collections::BTreeSet;

use super::choice::{PlannedSegment, round};
use super::moving::MoveTarget;
use crate::Store;
use crate::engine::Engine;
use crate::engine::pace::Pace;
use crate::error::Result;
use crate::format::geometry::Class;
use crate::index::catalog::SegmentRow;
use crate::progress::Progress;

/// What would be done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RebalancePlan {
    /// Segments to be moved.
    pub segments: Vec<PlannedSegment>,
    /// Overflowed segments for which fast devices have no room.
    pub left: Vec<PlannedSegment>,
    /// Overflowed segments that wait for missing devices: new ones would have fewer copies.
    pub postponed: Vec<SegmentNumber>,
    /// Bytes of records that fast devices can take, down to the low watermark, for one copy.
    pub room_bytes: u64,
}

/// What was done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rebalanced {
    /// Records that were moved.
    pub moved_records: u64,
    /// Their bytes, of one copy.
    pub moved_bytes: u64,
    /// Segments that are no longer on slow devices.
    pub segments: u64,
    /// Bytes that are freed when readers have ended, on all devices.
    pub waiting_bytes: u64,
    /// Segments that stay, as something in them can be read from no copy.
    pub damaged_segments: Vec<SegmentNumber>,
    /// Segments that stay until missing devices return or are rebuilt: new ones would have fewer copies.
    pub postponed: Vec<SegmentNumber>,
    /// Whether fast devices became full before everything was moved.
    pub is_full: bool,
    /// Whether it was interrupted.
    pub is_interrupted: bool,
}

impl RebalancePlan {
    /// Bytes to be moved, of one copy.
    pub fn live_bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.live_bytes).sum()
    }

    /// Bytes of records that stay on slow devices, of one copy.
    pub fn left_bytes(&self) -> u64 {
        self.left.iter().map(|segment| segment.live_bytes).sum()
    }
}

impl Engine {
    /// Segments with records that overflowed to slow devices.
    pub(crate) fn overflowed(&self) -> Vec<SegmentRow> {
        if !self.has_both_classes() {
            return Vec::new();
        }
        let rows = std::sync::Arc::clone(&self.view().state.segments);
        rows.values().filter(|row| row.class == Class::Slow && !self.is_superseded(row.number)).cloned().collect()
    }

    pub(crate) fn plan_rebalance(&self) -> Result<RebalancePlan> {
        let (overflowed, postponed): (Vec<SegmentRow>, Vec<SegmentRow>) =
            self.overflowed().into_iter().partition(|row| self.keeps_copies(row, Class::Fast));
        let overflowed: Vec<PlannedSegment> = overflowed.iter().map(PlannedSegment::of).collect();
        let room_bytes = self.fast_room_bytes(&self.geometry())?;
        let (segments, left) = round(&overflowed, self.geometry().alignment, room_bytes);
        let postponed = postponed.iter().map(|row| row.number).collect();
        Ok(RebalancePlan { segments, left, postponed, room_bytes })
    }

    pub(crate) fn rebalance(&self, bytes_per_second: Option<u64>, progress: &Progress) -> Result<Rebalanced> {
        self.sync_all()?;
        // Fast devices may have the room only then.
        self.free_waiting()?;
        let plan = self.plan_rebalance()?;
        let mut pace = Pace::new(bytes_per_second, progress);
        pace.stage("moving records", plan.live_bytes());
        let mut done =
            Rebalanced { is_full: !plan.left.is_empty(), postponed: plan.postponed.clone(), ..Rebalanced::default() };
        let chosen: BTreeSet<SegmentNumber> = plan.segments.iter().map(|segment| segment.number).collect();
        if !chosen.is_empty() {
            let _ = self.reconcile("rebalance the store", false)?;
            let moved = self.move_segments(&chosen, MoveTarget::Fast, &mut pace)?;
            self.reclaim()?;
            (done.moved_bytes, done.moved_records) = (moved.bytes, moved.records);
            done.segments = moved.freed_segments.len() as u64;
            done.damaged_segments = moved.damaged_segments;
            done.postponed.extend(moved.postponed);
            done.is_full |= moved.is_full;
            done.is_interrupted = moved.is_interrupted;
        }
        done.waiting_bytes = self.waiting_bytes();
        Ok(done)
    }
}

impl Store {
    /// What [`rebalance`](Self::rebalance) would do.
    ///
    /// # Errors
    /// A device does not say how much space it has.
    pub fn plan_rebalance(&self) -> Result<RebalancePlan> {
        self.engine().plan_rebalance()
    }

    /// Moves records that overflowed back to fast devices, down to the low watermark; `progress` receives the bytes of
    /// each stage and may interrupt. Reading and writing continue meanwhile.
    ///
    /// # Errors
    /// Errors of reading the index or of writing. The store is consistent in any case.
    pub fn rebalance(&self, bytes_per_second: Option<u64>, progress: &Progress) -> Result<Rebalanced> {
        self.engine().rebalance(bytes_per_second, progress)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::locking::Access;
    use crate::error::ErrorKind;
    use crate::format::names::segment_path;
    use crate::simulation::subject::{Simulated, geometry, home};
    use crate::simulation::trial::Subject;
    use crate::simulation::world::World;
    use crate::{Attributes, Durability, Key};

    const OBJECTS: u64 = 600;

    fn key(path: String) -> Key {
        Key::parse(path).unwrap()
    }

    fn keys(subject: &Simulated) -> Vec<String> {
        subject.state().unwrap().objects().map(|(key, _)| key.to_string()).collect()
    }

    /// The slow device has a few objects and the removals of all on the fast one, where these are still dead records.
    fn removed_while_full(world: &World) -> Simulated {
        let subject = Simulated::create(&geometry(1, 1, 1, (1, 0)), world).unwrap();
        let store = subject.store();
        let mut batch = store.batch(Durability::Batch);
        for number in 0..OBJECTS {
            batch.put(&key(format!("removed/{number}")), &Attributes::default(), &[1; 100]).unwrap();
        }
        for number in 0..400 {
            batch.put(&key(format!("fast/{number}")), &Attributes::default(), &[3; 8000]).unwrap();
        }
        batch.commit().unwrap();
        // Above the high watermark.
        world.fill(0, 60);
        let mut batch = store.batch(Durability::Batch);
        for number in 0..OBJECTS {
            batch.remove(&key(format!("removed/{number}"))).unwrap();
        }
        for number in 0..10 {
            batch.put(&key(format!("kept/{number}")), &Attributes::default(), &[2; 100]).unwrap();
        }
        batch.commit().unwrap();
        subject
    }

    /// Without the removals, an index made from the log would show the objects again.
    #[test]
    fn removals_for_which_there_is_no_room_stay_where_they_are() {
        let mut outcomes = BTreeSet::new();
        for blocks in (60..400).step_by(10) {
            let world = World::new(3, 1);
            let subject = removed_while_full(&world);
            world.fill(0, blocks);
            let (store, before) = (subject.store(), keys(&subject));
            let overflowed = store.engine().overflowed().len() as u64;
            let done = store.rebalance(None, &Progress::default()).unwrap();
            outcomes.insert((done.moved_records > 0, done.segments == overflowed));
            assert!(done.is_full || done.segments == overflowed, "{blocks} blocks: {done:?}");
            drop(subject);
            let rebuilt = Simulated::open_as(&home(&geometry(1, 1, 1, (1, 0))), &world, Access::RebuildIndex).unwrap();
            assert!(keys(&rebuilt) == before, "{blocks} blocks: {done:?}");
        }
        assert_eq!(outcomes, [(false, false), (true, false), (true, true)].into());
    }

    /// What else is in these segments is not known then: another copy may return.
    #[test]
    fn nothing_is_freed_while_part_of_the_log_is_missing() {
        let world = World::new(3, 1);
        let subject = removed_while_full(&world);
        let (expected, home) = (keys(&subject), home(&geometry(1, 1, 1, (1, 0))));
        let location = subject.store().entry(&key("kept/3".to_owned())).unwrap().unwrap().entry.location;
        let path = segment_path(subject.store().engine().segment_id(location.segment));
        drop(subject);
        // In its head: of which object it is cannot be known.
        let flip = || world.device(1).flip_bit(&path, 8 * (location.offset.0 + 25));
        flip();
        let subject = Simulated::open_as(&home, &world, Access::RebuildIndex).unwrap();
        assert!(!subject.store().completeness().is_complete());
        world.fill(0, 400);
        let overflowed = subject.store().engine().overflowed();
        assert!(!subject.store().plan_rebalance().unwrap().segments.is_empty());
        let error = subject.store().rebalance(None, &Progress::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert_eq!(subject.store().engine().overflowed(), overflowed);
        drop(subject);
        flip();
        let subject = Simulated::open_as(&home, &world, Access::RebuildIndex).unwrap();
        assert!(keys(&subject) == expected && subject.store().completeness().is_complete());
        assert!(subject.store().rebalance(None, &Progress::default()).unwrap().moved_records > 0);
    }
}
