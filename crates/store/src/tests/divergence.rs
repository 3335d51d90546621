//! Two sides of a store that was written to without the other: the side that is taken is the store from then on, and
//! nothing of the other one comes back, whatever numbers and versions it has.

use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;

use super::{bytes, file, key};
use crate::error::ErrorKind;
use crate::format::history::MOST_EPOCHS;
use crate::format::ids::{DeviceNumber, SegmentNumber};
use crate::format::names::segment_path;
use crate::format::segment::FIRST_BATCH_AT;
use crate::{
    CheckOptions, Choice, CompactOptions, Error, OpenOptions, Plan, Progress, RepairOptions, RepairReport, Result,
    Store, plan_repair, rebuild_index, repair, take_side,
};

/// On two devices.
const LARGE_BYTES: usize = 700_000;

/// What a side does besides writing its own objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deed {
    Nothing,
    /// It begins several segments.
    ManySegments,
    /// It frees the segments from before.
    Compacts,
    /// Its index is built again, and is the newest by far.
    RebuildsIndex,
    /// It is written to in several sessions.
    OpensOften,
}

impl Deed {
    const ALL: [Deed; 5] = [Deed::Nothing, Deed::ManySegments, Deed::Compacts, Deed::RebuildsIndex, Deed::OpensOften];
}

/// A store that is not closed has no mark of its end.
fn end(store: Store, is_closed: bool) {
    if !is_closed {
        store.engine().latch(&Error::new(ErrorKind::Io, "go on", "the test ends it"));
    }
}

struct Mirror {
    sandbox: TempDir,
    fast: usize,
    /// The only device of side a, which has a copy of the first segment. Of three devices, the two with the most room
    /// have one, and other programs change which these are.
    alone: usize,
    /// Sessions after a side was taken.
    sessions_after: usize,
}

impl Mirror {
    /// With a home apart, an object for each side to remove, and others that stay.
    fn new(fast: usize, is_closed: bool) -> Mirror {
        let mut mirror = Mirror { sandbox: TempDir::new().unwrap(), fast, alone: 0, sessions_after: 0 };
        let plan = Plan { fast: (0..fast).map(|at| mirror.device(at)).collect(), copies: Some(2), ..Plan::default() };
        let store = Store::create(&mirror.home(), &plan).unwrap();
        for name in ["both/kept", "both/a-removes", "both/b-removes"] {
            store.put(&key(name), &file(), name.as_bytes()).unwrap();
        }
        store.put(&key("both/large"), &file(), &bytes(1, LARGE_BYTES)).unwrap();
        let view = store.engine().view();
        mirror.alone = view.state.segments[&view.state.position.segment].devices[0].index();
        drop(view);
        end(store, is_closed);
        mirror
    }

    fn home(&self) -> PathBuf {
        self.sandbox.path().join("s")
    }

    fn device(&self, number: usize) -> PathBuf {
        self.sandbox.path().join(format!("fast{number}"))
    }

    fn hidden(&self, number: usize) -> PathBuf {
        self.sandbox.path().join(format!("hidden{number}"))
    }

    /// The devices that a side does not have.
    fn away_of(&self, side: &str) -> Vec<usize> {
        (0..self.fast).filter(|&device| (device == self.alone) == (side == "b")).collect()
    }

    /// A side continues without these devices.
    fn go_on(&self, side: &str, away: &[usize], deed: Deed) {
        away.iter().for_each(|&number| fs::rename(self.device(number), self.hidden(number)).unwrap());
        let how = OpenOptions { degraded: true, ..OpenOptions::default() };
        if deed == Deed::RebuildsIndex {
            drop(rebuild_index(&self.home(), &how).unwrap());
        }
        for session in 0..if deed == Deed::OpensOften { 4 } else { 1 } {
            let store = Store::open_with(&self.home(), &how).unwrap();
            for number in 0..if deed == Deed::ManySegments { 4 } else { 1 } {
                let name = format!("{side}/{session}-{number}");
                store.put(&key(&name), &file(), name.as_bytes()).unwrap();
                store.engine().close_active_segment().unwrap();
            }
            if away.len() == 1 {
                store.put(&key(&format!("{side}/{session}-large")), &file(), &bytes(2, LARGE_BYTES)).unwrap();
            }
            store.remove(&key(&format!("both/{side}-removes"))).unwrap();
            store.sync().unwrap();
            if deed == Deed::Compacts {
                let options = CompactOptions { choice: Choice::All, ..CompactOptions::default() };
                store.compact(&options, &Progress::default()).unwrap();
            }
        }
        away.iter().for_each(|&number| fs::rename(self.hidden(number), self.device(number)).unwrap());
    }

    /// What the store has must be what both had and what one side has.
    fn must_be(&self, side: &str, store: &Store, when: &str) {
        let other = if side == "a" { "b" } else { "a" };
        let content = |name: &str| store.get(&key(name)).unwrap().unwrap();
        let has = |name: &str| store.entry(&key(name)).unwrap().is_some();
        assert!(has("both/kept") && has("both/large"), "{when}");
        assert!(!has(&format!("both/{side}-removes")) && has(&format!("both/{other}-removes")), "{when}");
        assert!(has(side) && !has(other), "{when}: of the other side: {}", has(other));
        assert_eq!(content("both/kept"), b"both/kept", "{when}");
        assert_eq!(content("both/large"), bytes(1, LARGE_BYTES), "{when}");
        assert_eq!(content(&format!("{side}/0-0")), format!("{side}/0-0").as_bytes(), "{when}");
        let large = store.get(&key(&format!("{side}/0-large"))).unwrap();
        // One device of three cannot place a large object.
        let expected = (self.fast == 2 || side == "b").then(|| bytes(2, LARGE_BYTES));
        assert!(large == expected, "{when}");
    }

    fn repair(&self, accept: bool) -> RepairReport {
        let (how, quiet) = (OpenOptions::default(), Progress::default());
        let plan = plan_repair(&self.home(), &how, None, &mut |_| {}, &quiet).unwrap();
        let options = RepairOptions { accept, ..RepairOptions::default() };
        repair(&self.home(), &how, &plan, options, &mut |_, _| {}, &quiet).unwrap()
    }

    /// Reads a side that is not the store's.
    fn must_be_apart(&self, side: &str, when: &str) {
        let how = OpenOptions::default();
        let away = self.away_of(side);
        let is_on = |device: &DeviceNumber| !away.contains(&device.index());
        let sides = Store::sides(&self.home(), &how).unwrap();
        let of_side: Vec<_> = sides.iter().filter(|one| !one.is_current && one.devices.iter().all(is_on)).collect();
        let &[one] = &of_side[..] else { panic!("{when}: {sides:?}") };
        let store = Store::open_side(&self.home(), &how, one).unwrap();
        self.must_be(side, &store, &format!("{when}: salvaged"));
        assert_eq!(store.completeness().missing, [], "{when}: salvaged");
        let others = sides.iter().filter(|other| *other != one);
        let others: Vec<Store> = others.map(|other| Store::open_side(&self.home(), &how, other).unwrap()).collect();
        let names = store.walk(&key("")).unwrap().filter(|found| {
            let found = found.as_ref().unwrap();
            found.key.to_string().starts_with(&format!("{side}/")) && found.entry.kind != crate::Kind::Directory
        });
        // And the object that the other side has removed.
        let (_, alone) = store.count_beside(&others.iter().collect::<Vec<_>>()).unwrap();
        assert_eq!(alone, names.count() as u64 + 1, "{when}: only here");
    }

    /// Takes a side and looks at every way to read it.
    fn take(&self, side: &str, has_compacted: bool, when: &str) {
        let other = if side == "a" { "b" } else { "a" };
        [side, other].iter().for_each(|one| self.must_be_apart(one, &format!("{when}: before")));
        let device = (0..self.fast).find(|device| !self.away_of(side).contains(device)).unwrap();
        let how = OpenOptions::default();
        let reader = Store::open_read_only(&self.home());
        assert!(reader.map_or(true, |reader| !reader.completeness().is_complete()), "{when}");
        take_side(&self.home(), &how, DeviceNumber(device as u16)).unwrap();
        self.must_be(side, &Store::open_read_only(&self.home()).unwrap(), &format!("{when}: a reader"));
        let writer = Store::open_with(&self.home(), &OpenOptions { degraded: true, ..how.clone() }).unwrap();
        self.must_be(side, &writer, &format!("{when}: a writer"));
        drop(writer);
        self.must_be_apart(other, &format!("{when}: after"));
        let report = self.repair(false);
        assert!(report.lost.is_empty(), "{when}: {report:?}");
        if !has_compacted {
            self.must_be_apart(other, &format!("{when}: after the repair"));
        }
        let before = Store::open_read_only(&self.home()).unwrap().engine().epoch();
        for session in 0..self.sessions_after {
            let store = Store::open(&self.home()).unwrap();
            store.put(&key(&format!("{side}/after")), &file(), &session.to_le_bytes()).unwrap();
        }
        if self.sessions_after > MOST_EPOCHS {
            let store = Store::open_read_only(&self.home()).unwrap();
            assert!(!store.engine().devices.history().contains(before), "{when}: the epochs are forgotten");
            drop(store);
            self.must_be_apart(other, &format!("{when}: after {} sessions", self.sessions_after));
        }
        let opens: [(&str, &dyn Fn() -> Result<Store>); 3] = [
            ("a reader after the repair", &|| Store::open_read_only(&self.home())),
            ("a writer after the repair", &|| Store::open(&self.home())),
            ("an index from the log", &|| rebuild_index(&self.home(), &how)),
        ];
        for (who, open) in opens {
            let store = open().unwrap();
            self.must_be(side, &store, &format!("{when}: {who}"));
            assert!(store.recovered().completeness.is_complete(), "{when}: {who}: {:?}", store.recovered());
        }
        let kept = |store: Store| store.engine().quarantine().unwrap().iter().filter(|one| !one.is_of_history).count();
        let before = kept(Store::open_read_only(&self.home()).unwrap());
        let store = Store::open(&self.home()).unwrap();
        store
            .compact(&CompactOptions { choice: Choice::All, ..CompactOptions::default() }, &Progress::default())
            .unwrap();
        assert!(before > 0 && kept(store) >= before, "{when}: what was rejected stays until that is accepted");
        if self.fast == 2 || other == "b" {
            let sides = Store::sides(&self.home(), &how).unwrap();
            let apart = sides.iter().find(|one| !one.is_current).unwrap();
            let apart = Store::open_side(&self.home(), &how, apart).unwrap();
            let name = key(&format!("{other}/0-large"));
            assert!(apart.get(&name).unwrap() == Some(bytes(2, LARGE_BYTES)), "{when}: after a compaction");
        }
        self.repair(true);
        let store = Store::open(&self.home()).unwrap();
        let checked = store.check(
            CheckOptions { is_deep: true, ..CheckOptions::default() },
            &mut |problem| {
                panic!("{when}: {problem}");
            },
            &Progress::default(),
        );
        assert_eq!(checked.unwrap().problems(), 0, "{when}");
        self.must_be(side, &store, &format!("{when}: at the end"));
        assert_eq!(store.engine().quarantine().unwrap(), [], "{when}: what was rejected is gone");
        assert_eq!(Store::sides(&self.home(), &how).unwrap().len(), 1, "{when}");
    }
}

/// Neither does the store take for its own, and free, what it rejected, nor is that mixed with what it has itself.
#[test]
fn a_side_that_was_not_taken_outlasts_the_epochs_that_are_remembered() {
    for (is_closed, rejected) in [(true, Deed::Nothing), (false, Deed::ManySegments), (true, Deed::OpensOften)] {
        for (side, other) in [("a", "b"), ("b", "a")] {
            let mirror = Mirror { sessions_after: MOST_EPOCHS + 4, ..Mirror::new(2, is_closed) };
            mirror.go_on(side, &mirror.away_of(side), Deed::Nothing);
            mirror.go_on(other, &mirror.away_of(other), rejected);
            mirror.take(side, false, &format!("closed {is_closed}: {side} is taken, {rejected:?} is not"));
        }
    }
}

/// What was released while a device was away, which comes back after more sessions than the history remembers. An index
/// that was built meanwhile does not know what is on the device.
#[test]
fn what_a_device_left_behind_is_no_side_that_was_not_taken() {
    for is_rebuilt in [false, true] {
        // Of three devices, the others have room for two copies.
        let mirror = Mirror::new(3, true);
        let away = mirror.away_of("b");
        assert_eq!(away.len(), 1);
        let device = mirror.device(away[0]);
        let segments = || fs::read_dir(device.join("segments")).unwrap().count();
        let before = segments();
        fs::rename(&device, mirror.hidden(away[0])).unwrap();
        let how = OpenOptions { degraded: true, ..OpenOptions::default() };
        if is_rebuilt {
            drop(rebuild_index(&mirror.home(), &how).unwrap());
        }
        let store = Store::open_with(&mirror.home(), &how).unwrap();
        let options = CompactOptions { choice: Choice::All, ..CompactOptions::default() };
        ["both/kept", "both/a-removes", "both/b-removes", "both/large"].iter().for_each(|name| {
            store.put(&key(name), &file(), b"again").unwrap();
        });
        store.engine().close_active_segment().unwrap();
        store.compact(&options, &Progress::default()).unwrap();
        store.sync().unwrap();
        assert!(store.engine().view().state.notes.contains_key("segments.left"), "built anew: {is_rebuilt}");
        drop(store);
        for session in 0..MOST_EPOCHS + 4 {
            let store = Store::open_with(&mirror.home(), &how).unwrap();
            store.put(&key("session"), &file(), &session.to_le_bytes()).unwrap();
        }
        fs::rename(mirror.hidden(away[0]), &device).unwrap();
        assert_eq!(segments(), before);
        let old = fs::read_dir(device.join("segments")).unwrap().map(|entry| entry.unwrap().file_name());
        let old: Vec<_> = old.collect();
        mirror.repair(false);
        let store = Store::open(&mirror.home()).unwrap();
        let is_left = |name: &std::ffi::OsString| device.join("segments").join(name).exists();
        assert!(!old.is_empty() && !old.iter().any(is_left), "built anew: {is_rebuilt}: {old:?}");
        assert_eq!(store.engine().quarantine().unwrap(), []);
        drop(store);
        assert_eq!(Store::sides(&mirror.home(), &OpenOptions::default()).unwrap().len(), 1);
        mirror.repair(false);
        let store = Store::open(&mirror.home()).unwrap();
        let has_note = store.engine().view().state.notes.contains_key("segments.left");
        assert!(!has_note, "the note is not needed any more");
    }
}

/// Its segments are from before all epochs in the history, and have numbers that the store uses, too. The segments that
/// the store has begun since are damaged, so they do not tell that nothing was released.
#[test]
fn what_a_side_that_was_not_taken_has_released_is_still_the_stores() {
    let mirror = Mirror::new(2, true);
    for (side, deed) in [("a", Deed::Nothing), ("b", Deed::Compacts)] {
        mirror.go_on(side, &mirror.away_of(side), deed);
    }
    let how = OpenOptions::default();
    take_side(&mirror.home(), &how, DeviceNumber(mirror.alone as u16)).unwrap();
    mirror.repair(false);
    for session in 0..MOST_EPOCHS + 4 {
        let store = Store::open(&mirror.home()).unwrap();
        store.put(&key("a/after"), &file(), &session.to_le_bytes()).unwrap();
    }
    let store = Store::open_read_only(&mirror.home()).unwrap();
    let segments = store.engine().view().state.segments.clone();
    let others = store.engine().quarantine().unwrap();
    let of_side = others.iter().filter(|one| !one.is_of_history).map(|one| one.segment).max().unwrap();
    let oldest = store.engine().devices.history().entries().next().cloned().unwrap();
    assert!(of_side.0 <= oldest.segments_begun, "its segments are older than the history");
    drop(store);
    let mut damaged = 0;
    for row in segments.values().filter(|row| row.number > of_side) {
        for device in &row.devices {
            let path = mirror.device(device.index()).join(segment_path(row.id()));
            let mut log = fs::read(&path).unwrap();
            log[FIRST_BATCH_AT.0 as usize + 8] ^= 1;
            fs::write(&path, log).unwrap();
            damaged += 1;
        }
    }
    assert!(damaged > 0 && segments.keys().any(|number| *number > SegmentNumber(1) && *number < of_side));
    let store = rebuild_index(&mirror.home(), &how).unwrap();
    mirror.must_be("a", &store, "an index from the log");
    assert!(!store.completeness().is_complete());
}

/// The side that is not taken goes on first or last, so that its numbers and versions are lower or higher.
#[test]
fn the_side_taken_is_the_store_and_nothing_of_the_other_returns() {
    // With three devices, the index of the side with one of them is on a device that has none later.
    for (fast, is_closed, rejected) in [2, 3]
        .into_iter()
        .flat_map(|fast| [true, false].map(|is_closed| (fast, is_closed)))
        .flat_map(|(fast, is_closed)| Deed::ALL.map(|rejected| (fast, is_closed, rejected)))
    {
        for taken in [Deed::Nothing, rejected] {
            for (side, other, is_last) in [("a", "b", true), ("b", "a", false), ("b", "a", true), ("a", "b", false)] {
                let mirror = Mirror::new(fast, is_closed);
                let go_on = |side: &str, deed| mirror.go_on(side, &mirror.away_of(side), deed);
                if is_last {
                    go_on(side, taken);
                    go_on(other, rejected);
                } else {
                    go_on(other, rejected);
                    go_on(side, taken);
                }
                let when = format!(
                    "{fast} devices, closed {is_closed}: {taken:?} of {side} is taken, {rejected:?} is not, and was last: {is_last}"
                );
                mirror.take(side, taken == Deed::Compacts, &when);
            }
        }
    }
}
