//! The quarantine: bytes in the directories of segments that are no part of the log (docs/FORMAT.md, law 3).
//!
//! A crash leaves batches after the end of the log that were never acknowledged, or segments that nothing continues.
//! Recovery leaves them alone. They are removed when somebody accepts that, with all devices present: the live records
//! of segments with such an end are moved, and these segments are released with the others. What was known to be
//! missing is forgotten then, for good: segments that end before the log continues are released too.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::problem::Problem;
use super::salvage::{Emptied, KnownDamage};
use super::status::explain_trouble;
use crate::devices::names;
use crate::devices::slot::Slot;
use crate::engine::Engine;
use crate::engine::missing::{MISSING, MISSING_ON, PINS_DOUBTED};
use crate::engine::pace::Pace;
use crate::engine::recovered::RELEASED;
use crate::error::{Error, ErrorKind, Result};
use crate::format::ids::SegmentNumber;
use crate::format::names::{SEGMENTS, SegmentName};
use crate::format::release::Released;
use crate::index::catalog::SegmentRow;
use crate::locks::lock;

/// Bytes of one file that are no part of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Quarantined {
    pub(crate) segment: SegmentNumber,
    pub(crate) bytes: u64,
    /// Whether another part of the file is.
    pub(crate) is_in_log: bool,
    /// Whether it was begun in this history of epochs.
    pub(crate) is_of_history: bool,
}

/// What was accepted.
#[derive(Debug, Default)]
pub(crate) struct Accepted {
    /// Segments that were freed.
    pub(crate) freed: u64,
    /// Segments that could not be read to their end. If there are any, nothing was freed and nothing is forgotten.
    pub(crate) unread: Vec<Problem>,
}

impl Engine {
    /// The quarantine on the devices that are present. A reader omits the last segment, to which a writer may be
    /// appending.
    ///
    /// # Errors
    /// A directory of segments cannot be listed.
    pub(crate) fn quarantine(&self) -> Result<Vec<Quarantined>> {
        Ok(self.quarantine_by_device().into_iter().collect::<Result<Vec<_>>>()?.concat())
    }

    /// Bytes in quarantine, on devices of which the segments can be listed. A check names the others.
    pub(crate) fn quarantined_bytes(&self) -> u64 {
        self.quarantine_by_device().into_iter().flatten().flatten().map(|one| one.bytes).sum()
    }

    /// Which segments may be of a side that was not taken: they are not in the catalog, nor did this history begin them
    /// for certain.
    pub(crate) fn may_be_of_others(&self) -> impl Fn(SegmentName) -> bool + use<> {
        let has_begun = self.has_begun();
        let segments = Arc::clone(&self.view().state.segments);
        move |name| {
            let is_in_log = segments.get(&name.number).is_some_and(|row| SegmentName::from(row.id()) == name);
            !is_in_log && !has_begun(name)
        }
    }

    fn quarantine_by_device(&self) -> Vec<Result<Vec<Quarantined>>> {
        let state = self.view().state.clone();
        let released = state.notes.get(RELEASED).and_then(|note| Released::decode(note)).unwrap_or_default();
        let last = state.segments.keys().next_back().copied().unwrap_or_default().max(state.position.segment);
        let has_begun = self.has_begun();
        let is_settled = |number: SegmentNumber| self.is_writer() || number < last;
        let quarantined = |(name, size_bytes): (SegmentName, u64)| {
            let row = state.segments.get(&name.number).filter(|row| SegmentName::from(row.id()) == name);
            let is_of_history = row.is_some() || has_begun(name);
            let bytes = match row {
                Some(row) => size_bytes.saturating_sub(row.size_bytes),
                None if is_of_history && released.has_segment(name.number) => 0,
                None => size_bytes,
            };
            let one = Quarantined { segment: name.number, bytes, is_in_log: row.is_some(), is_of_history };
            (bytes > 0 && is_settled(name.number)).then_some(one)
        };
        let on = |slot: &Slot| {
            let listed = names::list(&*slot.device, SEGMENTS).map_err(|error| slot.error("list", SEGMENTS, error))?;
            let segments =
                listed.iter().filter_map(|(name, size_bytes)| Some((SegmentName::parse(name)?, *size_bytes)));
            Ok(segments.filter_map(quarantined).collect())
        };
        self.devices.slots().iter().filter(|slot| slot.is_readable()).map(on).collect()
    }

    /// Forgets what may be missing, and frees the quarantine, but not in segments that are to be spared: unless more of
    /// them cannot be read than is `known` to be damaged.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] if a device that may have what is missing is not present; errors of reading, of writing and
    /// of `pace`.
    pub(crate) fn accept(
        &self,
        spared: &BTreeSet<SegmentNumber>,
        known: &KnownDamage,
        pace: &mut Pace<'_>,
    ) -> Result<Accepted> {
        if let Some(away) = self.unsettled() {
            let what = explain_trouble(&away).unwrap_or_else(|| "is being rebuilt".to_owned());
            let cause = format!("device {} {what}: it may have what is missing", away.entry.number);
            return Err(Error::new(ErrorKind::Lost, "accept what is missing", cause)
                .at(&away.path)
                .advise("bring it back, or give it up with granulo store rebuild"));
        }
        if let Some(unread) = self.unread() {
            let cause = format!("device {} came back in this run: what it has was not read yet", unread.entry.number);
            return Err(Error::new(ErrorKind::Lost, "accept what is missing", cause)
                .at(&unread.path)
                .advise("repair again: the log is read with this device then"));
        }
        self.close_active_segment()?;
        let (mut given_back, mut strays) = (0, Released::default());
        let mut rows: Vec<SegmentRow> = Vec::new();
        let mut seen = BTreeSet::new();
        let quarantine = self.quarantine()?.into_iter().filter(|one| one.is_of_history);
        for one in quarantine.filter(|one| seen.insert(one.segment)) {
            match self.view().state.segments.get(&one.segment) {
                Some(row) if one.is_in_log && !spared.contains(&one.segment) => rows.push(row.clone()),
                // A release refers to a number, which another segment has.
                Some(_) => {}
                None => {
                    strays.add_segment(one.segment);
                    given_back += 1;
                }
            }
        }
        // What is acknowledged and gone at the end of a segment is accepted for good once the log no longer shows it.
        if !self.completeness_of(&self.view().state.notes).is_empty() {
            let is_new = |row: &SegmentRow| seen.insert(row.number) && !spared.contains(&row.number);
            rows.extend(self.cut_short().into_iter().filter(is_new));
        }
        pace.stage("freeing the quarantine", rows.iter().map(|row| row.size_bytes * row.devices.len() as u64).sum());
        let (mut emptied, mut unread) = (Vec::new(), Vec::new());
        for row in rows {
            match self.empty_segment(&row, known, pace)? {
                Emptied::Whole => emptied.push(row.number),
                Emptied::InUse => {}
                Emptied::Unread(range) => unread.push(self.problem_of_unread(&row, range)),
            }
        }
        if !unread.is_empty() {
            return Ok(Accepted { freed: 0, unread });
        }
        given_back += emptied.len() as u64;
        // What was begun and is not in the index is released, so that no index that is built from the log misses it
        // again. That comes first: if this process ends, it is still there to be accepted.
        if !self.completeness_of(&self.view().state.notes).is_empty() {
            self.release_alone(&self.lost_segments()?)?;
        }
        // What is missing is forgotten with the change that frees them: until then, an end of this process leaves it
        // to be accepted again, and from then on, their release covers what they skipped.
        self.supersede(emptied, &[MISSING, MISSING_ON, PINS_DOUBTED])?;
        self.release_alone(&strays)?;
        self.reclaim()?;
        self.remove_leftovers()?;
        Ok(Accepted { freed: given_back + self.remove_other_histories()?, unread })
    }

    /// Segments that were begun, and are neither released nor in the index.
    fn lost_segments(&self) -> Result<Released> {
        let writer = self.writer()?;
        let state = self.view().state.clone();
        let is_lost =
            |number: &SegmentNumber| !state.segments.contains_key(number) && !writer.released.has_segment(*number);
        let mut lost = Released::default();
        (1..=writer.newest_segment.0).map(SegmentNumber).filter(is_lost).for_each(|number| lost.add_segment(number));
        Ok(lost)
    }

    /// Releases segments that the index does not have.
    fn release_alone(&self, segments: &Released) -> Result<()> {
        if segments.is_empty() {
            return Ok(());
        }
        self.sync_all()?;
        let _sync = lock(&self.sync);
        let mut writer = self.writer()?;
        self.release(&mut writer, segments)
    }

    /// A device in service that was not read when something was found missing: it may have that.
    fn unread(&self) -> Option<Slot> {
        let slots = self.devices.slots();
        let is_unread = |slot: &&Slot| self.is_settled(slot.entry.number) && self.may_have_missing(slot.entry.number);
        slots.iter().find(is_unread).cloned()
    }

    /// Removes the segments that this history is not known to have begun; returns how many. No release names them:
    /// their numbers may be those of segments of this one.
    fn remove_other_histories(&self) -> Result<u64> {
        let is_of_others = self.may_be_of_others();
        let mut removed = BTreeSet::new();
        for slot in self.devices.slots().iter().filter(|slot| slot.is_writable()) {
            let listed = names::list(&*slot.device, SEGMENTS).map_err(|error| slot.error("list", SEGMENTS, error))?;
            let others = listed.into_iter().filter_map(|(name, _)| Some((SegmentName::parse(&name)?, name)));
            for (segment, name) in others.filter(|(segment, _)| is_of_others(*segment)) {
                let path = format!("{SEGMENTS}/{name}");
                slot.device.remove(&path).map_err(|error| slot.error("remove", &path, error))?;
                removed.insert(segment);
            }
        }
        Ok(removed.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs::OpenOptions;
    use std::io::Write;
    use std::path::{Path, PathBuf};

    use crate::engine::missing::MISSING;
    use crate::engine::pace::Pace;
    use crate::error::ErrorKind;
    use crate::log::completeness::{Cause, Completeness, Missing};
    use crate::maintain::repair::{RepairOptions, plan_repair, repair};
    use crate::maintain::salvage::KnownDamage;
    use crate::{Attributes, Key, OpenOptions as How, Plan, Progress, Store, Time};

    /// A store with 5,000 bytes behind the end of its segment, with its key, and the segment.
    fn torn(home: &Path) -> (Key, PathBuf) {
        let key = Key::parse("kept").unwrap();
        let store = Store::create(home, &Plan::default()).unwrap();
        store.put(&key, &file(), b"content").unwrap();
        drop(store);
        let segment = std::fs::read_dir(home.join("segments")).unwrap().next().unwrap().unwrap().path();
        OpenOptions::new().append(true).open(&segment).unwrap().write_all(&[7; 5000]).unwrap();
        (key, segment)
    }

    fn file() -> Attributes {
        Attributes::of_file(Time { seconds: 5, nanoseconds: 6 })
    }

    #[test]
    fn what_is_missing_is_not_forgotten_before_the_quarantine_is_free() {
        let place = tempfile::tempdir().unwrap();
        let home = place.path().join("store");
        let (_, segment) = torn(&home);
        let store = Store::open(&home).unwrap();
        let mut completeness = Completeness::default();
        completeness.add(Missing {
            cause: Cause::EndsBeforeMark,
            segments: None,
            batches: Some((7, 9)),
            after_nanoseconds: None,
            devices: Vec::new(),
        });
        let engine = store.engine();
        engine.note(&[(MISSING, completeness.encode_missing())]).unwrap();
        let accept = |progress: &Progress| {
            let accepted = engine.accept(&BTreeSet::new(), &KnownDamage::default(), &mut Pace::new(None, progress));
            accepted.map(|accepted| accepted.freed)
        };
        let progress = Progress::default();
        progress.stop();
        assert_eq!(accept(&progress).unwrap_err().kind(), ErrorKind::Interrupted);
        let missing = || engine.completeness_of(&engine.view().state.notes).len();
        assert!(missing() == 1 && segment.exists());
        assert_eq!((accept(&Progress::default()).unwrap(), missing(), segment.exists()), (1, 0, false));
    }

    #[test]
    fn a_segment_that_is_gone_is_accepted_for_good() {
        let place = tempfile::tempdir().unwrap();
        let home = place.path().join("store");
        let store = Store::create(&home, &Plan::default()).unwrap();
        let segments = || -> BTreeSet<PathBuf> {
            std::fs::read_dir(home.join("segments")).unwrap().map(|entry| entry.unwrap().path()).collect()
        };
        let mut of_gone = BTreeSet::new();
        for key in ["a", "gone", "b"] {
            let before = segments();
            store.put(&Key::parse(key).unwrap(), &file(), key.as_bytes()).unwrap();
            store.engine().close_active_segment().unwrap();
            if key == "gone" {
                of_gone = segments().difference(&before).cloned().collect();
            }
        }
        drop(store);
        assert_eq!(of_gone.len(), 1, "{of_gone:?}");
        of_gone.iter().for_each(|path| std::fs::remove_file(path).unwrap());
        std::fs::remove_dir_all(home.join("index")).unwrap();
        let how = How::default();
        let plan = plan_repair(&home, &how, None, &mut |_| {}, &Progress::default()).unwrap();
        assert!(!plan.completeness.is_complete());
        let options = RepairOptions { accept: true, ..RepairOptions::default() };
        let report = repair(&home, &how, &plan, options, &mut |_, _| {}, &Progress::default()).unwrap();
        assert!(report.is_accepted && report.completeness.is_complete());
        for _ in 0..2 {
            let store = Store::open(&home).unwrap();
            assert!(store.completeness().is_complete(), "{:?}", store.completeness().lines());
            assert_eq!(store.get(&Key::parse("b").unwrap()).unwrap().unwrap(), b"b");
            drop(store);
            // The next index is built from the log.
            std::fs::remove_dir_all(home.join("index")).unwrap();
        }
    }

    #[test]
    fn what_lies_behind_the_end_of_the_log_is_given_back_when_it_is_accepted() {
        let place = tempfile::tempdir().unwrap();
        let home = place.path().join("store");
        let (key, segment) = torn(&home);
        let store = Store::open(&home).unwrap();
        store.put(&key, &file(), b"content 2").unwrap();
        assert_eq!(store.status(false).unwrap().quarantined_bytes, 5000);
        drop(store);
        let how = How::default();
        let plan = plan_repair(&home, &how, None, &mut |_| {}, &Progress::default()).unwrap();
        assert!(plan.is_empty() && plan.has_to_accept() && plan.quarantined_bytes == 5000);
        let without =
            repair(&home, &how, &plan, RepairOptions::default(), &mut |_, _| {}, &Progress::default()).unwrap();
        assert_eq!((without.released, segment.exists()), (0, true), "nobody accepted it");

        let options = RepairOptions { accept: true, ..RepairOptions::default() };
        let report = repair(&home, &how, &plan, options, &mut |_, _| {}, &Progress::default()).unwrap();
        assert_eq!((report.is_accepted, report.released, report.check.problems()), (true, 1, 0));
        assert!(!segment.exists());
        let store = Store::open_read_only(&home).unwrap();
        assert_eq!(store.status(false).unwrap().quarantined_bytes, 0);
        assert_eq!(store.get(&key).unwrap().unwrap(), b"content 2");
    }
}
