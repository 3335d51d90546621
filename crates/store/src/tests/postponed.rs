//! While a device is away, moving records does not reduce their copies.

use tempfile::TempDir;

use super::{ALL, file, key};
use crate::engine::locking::Access;
use crate::engine::pace::Pace;
use crate::error::{Error, ErrorKind};
use crate::format::ids::{DeviceNumber, SegmentNumber};
use crate::maintain::moving::{MoveTarget, Moved};
use crate::simulation::mishap::Absence;
use crate::simulation::subject::{Simulated, geometry, home};
use crate::simulation::trial::Subject;
use crate::simulation::world::World;
use crate::{Attributes, Class, Compacted, Durability, OpenOptions, Plan, Progress, Store};

/// The first device fails after the other one returned: everything is still there.
#[test]
fn compaction_waits_for_the_mirror_that_is_away() {
    let sandbox = TempDir::new().unwrap();
    let home = sandbox.path().join("s");
    let fast = ["a", "b"].map(|name| sandbox.path().join(name));
    let store = Store::create(&home, &Plan { fast: fast.to_vec(), ..Plan::default() }).unwrap();
    for content in [b"dead", b"live"] {
        store.put(&key("f"), &file(), content).unwrap();
    }
    drop(store);
    let [away, dead] = ["away", "dead"].map(|name| sandbox.path().join(name));
    std::fs::rename(&fast[1], &away).unwrap();
    let without = |device: u16| OpenOptions { lost: Some(DeviceNumber(device)), ..OpenOptions::default() };
    let store = Store::open_with(&home, &without(1)).unwrap();
    store.put(&key("g"), &file(), b"written alone").unwrap();
    let first = SegmentNumber(1);
    assert_eq!(store.plan_compaction(&ALL).unwrap().postponed, [first]);
    let done = store.compact(&ALL, &Progress::default()).unwrap();
    assert_eq!((done.postponed, done.segments, done.moved_records), (vec![first], 1, 1), "what is written alone moves");
    assert!(store.engine().view().state.segments.contains_key(&first));
    drop(store);
    std::fs::rename(&away, &fast[1]).unwrap();
    std::fs::rename(&fast[0], &dead).unwrap();
    // What was written alone is missing, and nothing else.
    let store = Store::open_read_only(&home).unwrap();
    assert!(!store.completeness().is_complete());
    assert_eq!(store.get(&key("f")).unwrap().as_deref(), Some(&b"live"[..]));
    drop(store);
    std::fs::rename(&dead, &fast[0]).unwrap();
    let store = Store::open(&home).unwrap();
    assert_eq!(store.engine().admit(&mut Pace::new(None, &Progress::default())).unwrap(), [DeviceNumber(1)]);
    store.engine().complete_copies(&mut Pace::new(None, &Progress::default())).unwrap();
    let Compacted { postponed, segments, .. } = store.compact(&ALL, &Progress::default()).unwrap();
    assert!(postponed.is_empty() && segments > 1, "{segments}");
}

/// The plan knows nothing of a device that fails while records move.
#[test]
fn a_segment_with_more_copies_than_what_was_moved_stays() {
    let world = World::new(3, 1);
    let of = geometry(2, 0, 2, (1, 1));
    let subject = Simulated::create(&of, &world).unwrap();
    let store = subject.store();
    store.put(&key("f"), &file(), b"content").unwrap();
    store.engine().devices.fail(DeviceNumber(1), &Error::new(ErrorKind::Io, "write", "it broke"));
    let progress = Progress::default();
    let first = SegmentNumber(1);
    let target = MoveTarget::SameClass(Class::Fast);
    let moved = store.engine().move_segments(&[first].into(), target, &mut Pace::new(None, &progress)).unwrap();
    let Moved { records, freed_segments, postponed, .. } = moved;
    assert_eq!((records, freed_segments, postponed), (1, vec![], vec![first]));
    assert_eq!(store.get(&key("f")).unwrap().as_deref(), Some(&b"content"[..]));
}

#[test]
fn rebalance_waits_for_the_fast_device_that_is_away() {
    let world = World::new(5, 1);
    let of = geometry(2, 2, 2, (1, 1));
    let subject = Simulated::create(&of, &world).unwrap();
    (0..2).for_each(|fast| world.fill(fast, 60));
    let mut batch = subject.store().batch(Durability::Batch);
    for number in 0..400 {
        batch.put(&key(&format!("f/{number}")), &Attributes::default(), &[3; 8000]).unwrap();
    }
    batch.commit().unwrap();
    (0..2).for_each(|fast| world.fill(fast, 4000));
    let overflowed = subject.store().engine().overflowed();
    let plan = subject.store().plan_rebalance().unwrap();
    assert!(!overflowed.is_empty() && plan.segments.len() == overflowed.len() && plan.postponed.is_empty(), "{plan:?}");
    drop(subject);
    let away = world.detach(1, Absence::Missing, 1);
    let how = OpenOptions { lost: Some(DeviceNumber(1)), ..OpenOptions::default() };
    let subject = Simulated::open_how(&home(&of), &world, Access::Write, &how).unwrap();
    let done = subject.store().rebalance(None, &Progress::default()).unwrap();
    let overflowed: Vec<SegmentNumber> = subject.store().engine().overflowed().iter().map(|row| row.number).collect();
    assert_eq!((done.moved_records, done.postponed), (0, overflowed));
    drop(away);
}
