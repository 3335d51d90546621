//! What one pass over a store can read and the next one cannot: it may be readable again, so nothing is given up.

use super::{file, key};
use crate::engine::locking::Access;
use crate::format::names::segment_path;
use crate::simulation::subject::{Simulated, geometry, home};
use crate::simulation::trial::Subject;
use crate::simulation::world::World;
use crate::{Key, Progress, RepairOptions, Store};

/// The names of all objects.
fn names(store: &Store) -> Vec<String> {
    store.walk(&Key::root()).unwrap().map(|listed| listed.unwrap().key.to_string()).skip(1).collect()
}

/// The check read a removal that the pass cannot read in which the segment is emptied.
#[test]
fn a_segment_stays_if_less_of_it_can_be_read_than_the_check_had_read() {
    let settings = geometry(1, 0, 1, (1, 0));
    let (world, home) = (World::new(Simulated::devices(&settings), 1), home(&settings));
    let subject = Simulated::create(&settings, &world).unwrap();
    let store = subject.store();
    store.put(&key("kept"), &file(), b"kept").unwrap();
    store.put(&key("gone"), &file(), b"gone").unwrap();
    store.engine().close_active_segment().unwrap();
    store.put(&key("dead"), &file(), &[1; 1000]).unwrap();
    let dead = store.entry(&key("dead")).unwrap().unwrap().entry.location;
    let removal = store.engine().writer().unwrap().position.offset;
    store.remove(&key("gone")).unwrap();
    store.remove(&key("dead")).unwrap();
    let path = segment_path(store.engine().segment_id(dead.segment));
    drop(subject);
    world.device(0).flip_bit(&path, 8 * (dead.offset.0 + 500));

    let (device, of_removal) = (world.device(0), path.clone());
    let failing = Progress::observed(move |progress| {
        if progress.snapshot().stage.name == "emptying damaged segments" {
            device.make_unreadable(&of_removal, removal.0, 1);
        }
    });
    let repair = |progress: &Progress| {
        Simulated::repair_reporting(&home, &world, RepairOptions::default(), progress).unwrap().report
    };
    let rebuilt = || names(Simulated::open_as(&home, &world, Access::RebuildIndex).unwrap().store());
    let report = repair(&failing);
    assert_eq!((report.given_back, report.check.problems(), report.left.len()), (0, 2, 2), "{report:?}");
    assert!(report.left[1].to_string().contains("the segment was not freed"), "{report:?}");
    world.device(0).make_readable(&path);
    assert_eq!(rebuilt(), ["kept"]);
    let report = repair(&Progress::default());
    assert_eq!((report.given_back, report.check.problems()), (1, 0), "{report:?}");
    assert_eq!(rebuilt(), ["kept"]);
}
